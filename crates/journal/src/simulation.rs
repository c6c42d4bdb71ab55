//! Thousands of seeds of random appends, syncs, crashes and recoveries against a model.
//!
//! The writer is stepped on the test's own thread, so that a seed repeats its run exactly. The
//! model is the list of frames in the order they were placed, and how far the journal has said
//! that they are safe.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Rng;
use parking_lot::Mutex;

use crate::done::{Done, OnDone};
use crate::error::JournalError;
use crate::format::{FRAME_OVERHEAD_BYTES, Frame, FrameRef, Position};
use crate::journal::Journal;
use crate::options::{Durability, JournalOptions};
use crate::recovery::Recovery;
use crate::sim::SimDisk;
use crate::writer::Writer;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_torn_is_read() {
    let first = seed_of("JOURNAL_SEED").unwrap_or(0);
    let count = seed_of("JOURNAL_SEEDS").unwrap_or(SEEDS);
    let mut seen = Seen::default();
    for seed in first..first + count {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            world.seen
        });
        match run {
            Ok(one) => seen.add(&one),
            Err(panic) => {
                eprintln!("failing seed: JOURNAL_SEED={seed} JOURNAL_SEEDS=1");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?}");
    if count == SEEDS {
        // The run must have met what it claims to stand.
        let Seen {
            crashes,
            kills,
            cuts,
            poisonings,
            full,
            reclaimed,
            rolled,
            open_failures,
            marked,
            reserved,
            handed,
            at_once,
            carried,
            read_only,
            read,
        } = seen;
        for (what, times) in [
            ("crashes", crashes),
            ("kills", kills),
            ("cuts", cuts),
            ("poisonings", poisonings),
            ("full disks", full),
            ("reclaimed segments", reclaimed),
            ("rolled segments", rolled),
            ("failed openings", open_failures),
            ("openings at a mark", marked),
            ("reserves taken", reserved),
            ("rounds of the syncer", handed),
            ("writes with their sync", at_once),
            ("appends carried", carried),
            ("read-only file systems", read_only),
            ("openings to read", read),
        ] {
            assert!(times > 100, "only {times} {what} in {count} seeds");
        }
    }
}

fn seed_of(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    position: u64,
    kind: u8,
    version: u8,
    payload: Vec<u8>,
}

impl Placed {
    fn of(frame: &FrameRef<'_>) -> Placed {
        Placed {
            position: frame.position.0,
            kind: frame.kind,
            version: frame.version,
            payload: frame.payload.to_vec(),
        }
    }
}

/// What the journal has promised; counts of frames from the beginning of time.
#[derive(Debug, Default)]
struct Model {
    frames: Vec<Placed>,
    os: usize,
    disk: usize,
    /// How many the writer has taken at least; not all of them tell of `os`.
    taken: usize,
    refused: usize,
}

#[derive(Debug, Default)]
struct Seen {
    crashes: u64,
    kills: u64,
    cuts: u64,
    poisonings: u64,
    full: u64,
    reclaimed: u64,
    rolled: u64,
    open_failures: u64,
    marked: u64,
    reserved: u64,
    handed: u64,
    at_once: u64,
    carried: u64,
    read_only: u64,
    read: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.cuts += other.cuts;
        self.poisonings += other.poisonings;
        self.full += other.full;
        self.reclaimed += other.reclaimed;
        self.rolled += other.rolled;
        self.open_failures += other.open_failures;
        self.marked += other.marked;
        self.reserved += other.reserved;
        self.handed += other.handed;
        self.at_once += other.at_once;
        self.carried += other.carried;
        self.read_only += other.read_only;
        self.read += other.read;
    }
}

struct World {
    rng: Rng,
    disk: SimDisk,
    options: JournalOptions,
    model: Arc<Mutex<Model>>,
    low_water: u64,
    /// The furthest position that was to be the mark.
    marked_max: u64,
    /// Some worlds have frames of one size only: there the frames of a tail that was cut stand
    /// just where new ones end, and must not come back to life behind them.
    one_size: Option<usize>,
    seen: Seen,
}

/// How a life of the journal ended, which says what must still be there.
#[derive(Debug)]
enum End {
    PowerCut,
    Killed,
    Closed,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed ^ 0x5eed);
        let options = JournalOptions {
            segment_bytes: 4096 + rng.below(12_000),
            preallocate_bytes: 500 + rng.below(8_000),
            pending_bytes_max: 2_000 + rng.below(10_000),
            reserve_bytes: if rng.one_in(2) {
                0
            } else {
                1 + rng.below(2_000)
            },
            spares_max: rng.below(4) as u32,
            unasked_rest: if rng.one_in(2) {
                Duration::ZERO
            } else {
                Duration::from_secs(3_600)
            },
            unasked_bytes: rng.below(20_000),
            sync_interval: Duration::ZERO,
            // A seed must not depend on how fast the machine is.
            carried_time_max: Duration::from_secs(3_600),
        };
        let disk = SimDisk::new(seed);
        let one_size = rng.one_in(3).then_some(60);
        World {
            rng,
            disk,
            options,
            model: Arc::default(),
            low_water: 0,
            marked_max: 0,
            one_size,
            seen: Seen::default(),
        }
    }

    fn run(&mut self) {
        let mut end = End::Closed;
        for _ in 0..LIVES {
            if self.rng.one_in(4) {
                self.disk.crash_after(self.rng.below(8));
            } else if self.rng.one_in(8) {
                self.disk.fail_next_sync();
            }
            let Some((journal, writer)) = self.open(&end) else {
                self.seen.open_failures += 1;
                if self.disk.is_down() || self.rng.one_in(2) {
                    self.seen.crashes += 1;
                    self.disk.crash();
                    // What was said to be safe before stays the measure.
                    end = End::PowerCut;
                } else {
                    // A failed sync: the page cache may show more than there is.
                    self.disk.kill();
                }
                continue;
            };
            end = self.live(journal, writer);
        }
    }

    /// Opens and holds what is visited against the model; `None` when a fault got in the way.
    fn open(&mut self, end: &End) -> Option<(Journal, Writer)> {
        let read = self.rng.one_in(6).then(|| self.read_only()).flatten();
        let mut visited = Vec::new();
        let opened = Journal::open_stepped(
            Arc::new(self.disk.clone()),
            Path::new("/sim"),
            self.options,
            &mut |frame| {
                visited.push(Placed::of(&frame));
                Ok(())
            },
        );
        if let (Some(read), Ok(_)) = (read, &opened) {
            assert_eq!(read, visited, "what was read is not what stood there");
            self.seen.read += 1;
        }
        let (journal, mut writer, recovery) = match opened {
            Ok(opened) => opened,
            Err(JournalError::Io { .. }) => return None,
            Err(error) => panic!("opening failed: {error}"),
        };
        self.check_recovery(end, &journal, visited, &recovery);
        // Some leave all syncing to the syncer, some hardly any.
        let bytes = self.rng.below(3) * self.rng.below(4_000);
        writer.commit.hands_over_from(bytes);
        Some((journal, writer))
    }

    /// What can be read while the file system is read-only; `None` where there is no journal yet.
    fn read_only(&mut self) -> Option<Vec<Placed>> {
        let disk = Arc::new(self.disk.clone());
        let dir = Path::new("/sim");
        self.disk.set_read_only(true);
        let refused = Journal::open_stepped(disk.clone(), dir, self.options, &mut |_| Ok(()));
        let refused = refused.err().expect("it opens, and cannot be written");
        assert!(refused.is_read_only(), "{refused}");
        let mut visited = Vec::new();
        let opened = Journal::open_to_read(disk, dir, self.options, &mut |frame| {
            visited.push(Placed::of(&frame));
            Ok(())
        });
        let read = match opened {
            Ok((journal, _)) => {
                for frame in &visited {
                    let payload = journal.read_frame(Position(frame.position));
                    assert_eq!(payload.unwrap(), frame.payload);
                }
                let error = self.probe(&journal).unwrap_err();
                assert!(error.is_read_only(), "{error}");
                Some(visited)
            }
            Err(error) => {
                assert!(error.is_read_only() && visited.is_empty(), "{error}");
                None
            }
        };
        self.disk.set_read_only(false);
        read
    }

    fn check_recovery(
        &mut self,
        end: &End,
        journal: &Journal,
        visited: Vec<Placed>,
        recovery: &Recovery,
    ) {
        let mut model = self.model.lock();
        assert_eq!(recovery.damage, [], "no bit rot in this world");
        assert_eq!(recovery.frames, visited.len() as u64);
        self.seen.cuts += u64::from(recovery.cut.is_some());
        self.seen.marked += u64::from(recovery.started.is_some());
        if let Some(started) = recovery.started {
            assert!(
                started.0 <= self.marked_max,
                "started behind every mark that was set"
            );
        }
        let start = recovery.started.unwrap_or(journal.start()).0;
        let first = model
            .frames
            .iter()
            .position(|frame| frame.position >= start);
        let first = first.unwrap_or(model.frames.len());
        let until = first + visited.len();
        assert!(until <= model.frames.len(), "more frames than were placed");
        assert_eq!(
            visited,
            model.frames[first..until],
            "not the frames that were placed"
        );
        let promised = match end {
            End::PowerCut => model.disk,
            End::Killed => model.os,
            End::Closed => model.frames.len(),
        };
        assert!(
            until >= promised,
            "{until} frames are left of {promised} after {end:?}"
        );
        let removed = model
            .frames
            .partition_point(|frame| frame.position < journal.start().0);
        if let Some(last_removed) = removed.checked_sub(1) {
            let removed = &model.frames[last_removed];
            assert!(
                removed.position < self.low_water,
                "a frame above the low water is gone"
            );
        }
        if let Some(cut) = recovery.cut {
            assert!(!matches!(end, End::Closed), "a clean end was cut: {cut:?}");
        }
        // Opening made durable what it showed.
        model.frames.truncate(until);
        (model.os, model.taken) = (until, until);
        model.disk = until;
        assert_eq!(journal.end(), journal.durable_end());
    }

    fn live(&mut self, journal: Journal, mut writer: Writer) -> End {
        for _ in 0..self.rng.below(STEPS) {
            match self.rng.below(100) {
                0..47 => self.append(&journal),
                47..55 => self.carry(&journal, &mut writer),
                55..73 => self.pass(&mut writer),
                73..80 => self.seen.handed += u64::from(writer.commit.sync_pass()),
                80..86 => self.read(&journal),
                86..89 => self.reclaim(&journal),
                89 => self.mark(&journal),
                90..92 => self.disk.crash_after(self.rng.below(6)),
                92 => self.disk.fail_next_sync(),
                93 => self.disk.fail_next_write(),
                94 => self.disk.set_read_only(true),
                95..97 => self
                    .disk
                    .set_capacity(Some(self.disk.used() + self.rng.below(4000))),
                97..99 => self.disk.set_capacity(None),
                _ => self.fills_up_and_recovers(&journal, &mut writer),
            }
            if let Err(JournalError::Poisoned { .. }) = self.probe(&journal) {
                self.seen.poisonings += 1;
                let told = journal.health().unwrap_err();
                self.seen.read_only += u64::from(told.is_read_only());
                break;
            }
        }
        self.disk.set_capacity(None);
        self.disk.set_read_only(false);
        self.seen.rolled += journal.segments().len() as u64 - 1;
        self.end(journal, writer)
    }

    fn end(&mut self, journal: Journal, mut writer: Writer) -> End {
        if self.disk.is_down() || self.rng.one_in(3) {
            drop((journal, writer));
            self.seen.crashes += 1;
            self.disk.crash();
            return End::PowerCut;
        }
        if self.rng.one_in(2) {
            self.disk.kill();
            drop((journal, writer));
            self.seen.kills += 1;
            return End::Killed;
        }
        let refused = self.model.lock().refused;
        // Answers at `os` of the first pass may append once more.
        self.pass(&mut writer);
        self.pass(&mut writer);
        writer.commit.finish();
        let closed = journal.close();
        drop((journal, writer));
        if closed.is_err() || self.model.lock().refused > refused {
            if self.disk.is_down() {
                self.disk.crash();
                self.seen.crashes += 1;
                return End::PowerCut;
            }
            self.disk.kill();
            return End::Killed;
        }
        // A clean close survives the machine's end as well.
        if self.rng.one_in(2) {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        End::Closed
    }

    /// The empty append says whether the journal still takes anything.
    fn probe(&self, journal: &Journal) -> Result<(), JournalError> {
        journal
            .append(&[], Durability::Memory, Done::none())
            .map(|_| ())
    }

    fn append(&mut self, journal: &Journal) {
        let need =
            [Durability::Memory, Durability::Os, Durability::Disk][self.rng.below(3) as usize];
        let count = 1 + self.rng.below(3);
        let payloads: Vec<Vec<u8>> = (0..count).map(|_| self.payload()).collect();
        // Now and then an answer at `os` appends as well, between the write and the sync.
        let nested = self
            .rng
            .one_in(10)
            .then(|| (journal.clone(), self.payload()));
        let plain = nested.is_none();
        let told = match self.rng.below(4) {
            0 | 1 if plain => Told::Disk,
            2 if plain => Told::Os,
            _ => Told::Both(nested),
        };
        match place(&self.model, journal, &payloads, need, told) {
            // The largest appends fill a segment, and the reserve follows in the next.
            Ok(()) if plain && payloads.iter().map(Vec::len).sum::<usize>() < 1_500 => {
                let room = journal.room_ahead();
                assert!(room >= self.options.reserve_bytes, "only {room} are left");
            }
            Ok(()) | Err(JournalError::Busy) => {}
            Err(JournalError::Full { .. }) => self.seen.full += 1,
            Err(JournalError::TooLarge { .. } | JournalError::Poisoned { .. }) => {}
            Err(error) => panic!("append failed: {error}"),
        }
    }

    fn pass(&mut self, writer: &mut Writer) {
        {
            let mut model = self.model.lock();
            model.taken = model.frames.len();
        }
        self.seen.at_once += u64::from(writer.pass());
    }

    /// An append that its caller carries, where the writer has nothing to do.
    fn carry(&mut self, journal: &Journal, writer: &mut Writer) {
        self.pass(writer);
        if journal.shared().state.lock().has_work() {
            return;
        }
        let is_carried = writer.while_asleep(|| {
            let carrier = journal.carrier();
            self.append(journal);
            {
                let mut model = self.model.lock();
                model.taken = model.frames.len();
            }
            carrier.carry()
        });
        self.seen.carried += u64::from(is_carried);
    }

    fn payload(&mut self) -> Vec<u8> {
        let len = match self.rng.below(10) {
            0 => 0,
            1 => self.rng.below(4_500),
            _ => self.rng.below(300),
        };
        let mut payload = vec![0; self.one_size.unwrap_or(len as usize)];
        // Zeros are the hardest payload to tell from nothing.
        if !self.rng.one_in(5) {
            self.rng.fill(&mut payload);
        }
        payload
    }

    fn read(&mut self, journal: &Journal) {
        let model = self.model.lock();
        if model.os == 0 {
            return;
        }
        let frame = &model.frames[self.rng.below(model.os as u64) as usize];
        let position = Position(frame.position);
        match journal.read_frame(position) {
            Ok(payload) => assert_eq!(payload, frame.payload),
            Err(JournalError::Reclaimed { .. }) => assert!(frame.position < journal.start().0),
            Err(JournalError::Io { .. }) => assert!(self.disk.is_down()),
            Err(error) => panic!("frame at {position} cannot be read: {error}"),
        }
        // What still waits for the writer cannot be read.
        if let Some(pending) = model.frames.get(model.os.max(model.taken)) {
            let early = journal.read(Position(pending.position), 1);
            assert!(
                matches!(early, Err(JournalError::OutOfRange { .. })),
                "{early:?}"
            );
        }
    }

    fn reclaim(&mut self, journal: &Journal) {
        let model = self.model.lock();
        if model.disk == 0 {
            return;
        }
        let upto = self.rng.below(model.disk as u64) as usize;
        self.low_water = self.low_water.max(model.frames[upto].position);
        drop(model);
        let before = journal.segments();
        match journal.reclaim(Position(self.low_water)) {
            Ok(removed) => {
                let after = journal.segments();
                assert_eq!(before.len() - removed as usize, after.len());
                let first = after.first().expect("the active segment always stays");
                assert!(
                    !first.sealed || first.end.0 > self.low_water,
                    "a segment was left"
                );
                self.seen.reclaimed += u64::from(removed);
            }
            Err(error @ JournalError::Io { .. }) => {
                assert!(self.disk.is_down() || error.is_read_only());
            }
            Err(JournalError::Poisoned { .. }) => {}
            Err(error) => panic!("reclaim failed: {error}"),
        }
    }

    fn mark(&mut self, journal: &Journal) {
        let model = self.model.lock();
        if model.disk == 0 {
            return;
        }
        let frame = self.rng.below(model.disk as u64) as usize;
        let position = model.frames[frame].position;
        drop(model);
        // Also when it fails: the file may be there whole all the same.
        self.marked_max = self.marked_max.max(position);
        match journal.mark(Position(position)) {
            Ok(()) | Err(JournalError::Io { .. } | JournalError::Poisoned { .. }) => {}
            Err(error) => panic!("mark failed: {error}"),
        }
    }

    /// Nothing is assigned while the disk is full, and appends go on when there is room again.
    fn fills_up_and_recovers(&mut self, journal: &Journal, writer: &mut Writer) {
        self.disk.set_capacity(Some(self.disk.used()));
        let payload = vec![vec![1; 1000]];
        let mut full = false;
        for _ in 0..100 {
            let end = journal.end();
            match place(
                &self.model,
                journal,
                &payload,
                Durability::Os,
                Told::Both(None),
            ) {
                Ok(()) => {}
                Err(JournalError::Busy) => self.pass(writer),
                Err(JournalError::Full { .. }) => {
                    assert_eq!(journal.end(), end, "a refused append was assigned");
                    full = true;
                    break;
                }
                Err(JournalError::Poisoned { .. }) => return,
                Err(error) => panic!("append failed: {error}"),
            }
        }
        assert!(full || self.disk.is_down(), "the full disk never showed");
        self.seen.full += 1;
        self.takes_the_reserve(journal, writer);
        self.disk.set_capacity(None);
        for _ in 0..3 {
            self.pass(writer);
            match place(
                &self.model,
                journal,
                &payload,
                Durability::Disk,
                Told::Both(None),
            ) {
                Ok(()) | Err(JournalError::Poisoned { .. }) => return,
                Err(JournalError::Busy | JournalError::Full { .. }) => {}
                Err(error) => panic!("append failed: {error}"),
            }
        }
        let state = journal.state_text();
        assert!(
            self.disk.is_down(),
            "room on the disk did not help: {state}"
        );
    }
}

impl World {
    /// What is vital has its room on a full disk.
    fn takes_the_reserve(&mut self, journal: &Journal, writer: &mut Writer) {
        if journal.room_ahead() < self.options.reserve_bytes {
            // The disk was full before the journal could make it.
            return;
        }
        let payload = [vec![2; 100]];
        let framed = 100 + FRAME_OVERHEAD_BYTES;
        let mut left = self.options.reserve_bytes;
        // Where the reserve is in two segments, the rest of the first may be too small for one.
        while left >= 3 * framed && !self.disk.is_down() {
            match place_as(
                true,
                &self.model,
                journal,
                &payload,
                Durability::Os,
                Told::Both(None),
            ) {
                Ok(()) => left -= framed,
                Err(JournalError::Busy) => self.pass(writer),
                Err(JournalError::Poisoned { .. }) => return,
                Err(error) => panic!("the reserve was not there: {error}"),
            }
        }
        self.seen.reserved += 1;
    }
}

/// Appends and notes the frames in the model, with completions that note how far they are safe.
fn place(
    model: &Arc<Mutex<Model>>,
    journal: &Journal,
    payloads: &[Vec<u8>],
    need: Durability,
    told: Told,
) -> Result<(), JournalError> {
    place_as(false, model, journal, payloads, need, told)
}

/// What an append wants to be told.
enum Told {
    Disk,
    Os,
    /// Of both levels; at the first one it may append to the journal itself.
    Both(Option<(Journal, Vec<u8>)>),
}

fn place_as(
    is_vital: bool,
    model: &Arc<Mutex<Model>>,
    journal: &Journal,
    payloads: &[Vec<u8>],
    need: Durability,
    told: Told,
) -> Result<(), JournalError> {
    let parts: Vec<[&[u8]; 2]> = payloads
        .iter()
        .map(|payload| {
            let (left, right) = payload.split_at(payload.len() / 3);
            [left, right]
        })
        .collect();
    let frames: Vec<Frame<'_>> = parts
        .iter()
        .enumerate()
        .map(|(i, parts)| Frame {
            kind: i as u8,
            version: 9,
            parts,
        })
        .collect();
    let upto = model.lock().frames.len() + frames.len();
    let (os_model, disk_model) = (model.clone(), model.clone());
    let is_silent = matches!(told, Told::Disk);
    let is_of_os = matches!(told, Told::Os);
    let os = |nested: Option<(Journal, Vec<u8>)>| -> OnDone {
        Box::new(move |outcome| {
            {
                let mut model = os_model.lock();
                match outcome {
                    Ok(()) => {
                        assert!(model.os <= upto, "answers out of order");
                        model.os = upto;
                    }
                    Err(_) => model.refused += 1,
                }
            }
            if let Some((journal, payload)) = nested {
                let told = Told::Both(None);
                // Refusals are fine here; what matters is that it may be called.
                let _ = place(&os_model, &journal, &[payload], Durability::Disk, told);
            }
        })
    };
    let disk: OnDone = Box::new(move |outcome| {
        let mut model = disk_model.lock();
        match outcome {
            Ok(()) => {
                if is_silent {
                    model.os = model.os.max(upto);
                }
                assert!(upto <= model.os, "on the disk before the operating system");
                assert!(model.disk <= upto, "answers out of order");
                model.disk = upto;
            }
            Err(_) => model.refused += 1,
        }
    });
    let done = Done {
        os: match told {
            Told::Disk => None,
            Told::Os => Some(os(None)),
            Told::Both(nested) => Some(os(nested)),
        },
        disk: (!is_of_os).then_some(disk),
    };
    let placed = if is_vital {
        journal.append_vital(&frames, need, done)?
    } else {
        journal.append(&frames, need, done)?
    };
    let mut model = model.lock();
    let last = model.frames.last().map_or(0, |frame| frame.position);
    assert!(placed.first.0 > last, "positions must grow");
    for (position, (frame, payload)) in placed.each(&frames).zip(frames.iter().zip(payloads)) {
        model.frames.push(Placed {
            position: position.0,
            kind: frame.kind,
            version: frame.version,
            payload: payload.clone(),
        });
    }
    let end = placed.end.0;
    assert_eq!(
        model.frames.last().map(|frame| frame.position < end),
        Some(true)
    );
    Ok(())
}

/// Seeds in an ordinary run: a few seconds on one core.
const SEEDS: u64 = 3_000;
/// Openings per seed.
const LIVES: u64 = 12;
/// Steps per life at most.
const STEPS: u64 = 120;
