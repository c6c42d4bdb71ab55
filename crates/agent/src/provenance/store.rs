//! The provenance repository: blocks of events, in the order of time, bounded by bytes and age.
//!
//! On the disk it is a journal of its own. Blocks are gathered into frames of about 32 KiB; what
//! is not written yet is still in the records' journal, from where it is taken again after a
//! crash: each frame begins with the position of the last commit whose events are all written.
//!
//! A commit never fails for its events: what cannot be written waits in memory for room, and of
//! more than fits there the oldest goes, which is told.
//!
//! | frame of kind 1 | |
//! | --- | --- |
//! | 0..8 | position of the last whole commit in the records' journal, little-endian |
//! | 8..16 | time of its last block, Unix milliseconds |
//! | then | for each block its length (`u32`, little-endian) and its bytes |
//!
//! In a frame of version 2 the number of its blocks stands at 16..24, and what follows is sealed
//! ([`crate::sealing`]).

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use journal::{
    Disk, Done, Durability, Frame, FrameRef, Journal, JournalError, JournalOptions, Position,
};
use parking_lot::Mutex;

use super::{EventKind, ProvenanceEvent, decode, time_of};
use crate::flowfile::FlowFileId;
use crate::limits::{
    PROVENANCE_FRAME_BYTES, PROVENANCE_PENDING_BYTES_MAX, PROVENANCE_SEGMENT_BYTES_MAX,
    PROVENANCE_SEGMENT_BYTES_MIN,
};
use crate::repository::Access;
use crate::sealing::{Keyring, Piece};

/// All that is known of what happened.
#[derive(Debug)]
pub struct Provenance {
    journal: Option<Journal>,
    bytes_max: u64,
    count_max: u64,
    age_max: Duration,
    keyring: Arc<Keyring>,
    book: Mutex<Book>,
}

/// Which events are asked for; all that are set must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// About this FlowFile, or naming it as a parent.
    pub flow_file: Option<FlowFileId>,
    /// Of these kinds; of all, when empty.
    pub kinds: Vec<EventKind>,
    /// Of this processor, by id.
    pub component_id: Option<String>,
    /// Not before.
    pub from: Option<UnixMillis>,
    /// Before.
    pub until: Option<UnixMillis>,
    /// At most so many, the newest.
    pub count_max: usize,
}

/// Counts for the status.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProvenanceStatus {
    /// Blocks of events that are kept; each is what one session did.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Book {
    /// What is written, oldest first.
    frames: VecDeque<Written>,
    /// What is not written yet, or in memory only.
    blocks: VecDeque<Block>,
    block_bytes: u64,
    frame_bytes: u64,
    /// Bytes of blocks at which writing is tried; more than usual after it failed.
    write_at: u64,
    /// The last commit whose events are all in a frame.
    last: Position,
}

/// What one session did, or a part of it.
#[derive(Clone, Debug)]
struct Block {
    at: UnixMillis,
    /// The commit that this is the last block of.
    ends: Option<Position>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    position: Position,
    last_time: UnixMillis,
    bytes: u64,
    blocks: u64,
    is_sealed: bool,
}

impl Provenance {
    /// In memory only; at the bounds the oldest goes.
    pub(crate) fn volatile(bytes_max: u64, count_max: u64) -> Self {
        Provenance {
            journal: None,
            bytes_max,
            count_max,
            age_max: Duration::MAX,
            keyring: Arc::default(),
            book: Mutex::default(),
        }
    }

    /// On the disk in `dir`, bounded by bytes and age.
    pub(crate) fn open(
        access: Access,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        (bytes_max, age_max): (u64, Duration),
        keyring: Arc<Keyring>,
    ) -> Result<Self, JournalError> {
        let segment =
            (bytes_max / 8).clamp(PROVENANCE_SEGMENT_BYTES_MIN, PROVENANCE_SEGMENT_BYTES_MAX);
        let options = JournalOptions {
            segment_bytes: segment,
            preallocate_bytes: segment,
            ..JournalOptions::default()
        };
        let mut book = Book::default();
        let (journal, recovery) = access.open(disk, dir, options, &mut |frame| {
            book.recovered(&frame);
            Ok(())
        })?;
        if recovery.damaged_bytes > 0 {
            tracing::error!(
                bytes = recovery.damaged_bytes,
                "provenance events were lost, since their bytes on the disk have gone bad"
            );
        }
        Ok(Provenance {
            journal: Some(journal),
            bytes_max,
            count_max: u64::MAX,
            age_max,
            keyring,
            book: Mutex::new(book),
        })
    }

    /// The last commit whose events are here; later ones are to be given again.
    pub(crate) fn last(&self) -> Position {
        self.book.lock().last
    }

    /// Errors: `Poisoned` after a failed sync. A commit asks before it is placed.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match &self.journal {
            Some(journal) => journal.health(),
            None => Ok(()),
        }
    }

    /// Takes the events of one commit, which stands at `position`.
    pub(crate) fn take(&self, position: Position, blocks: Vec<Vec<u8>>) {
        let Some(newest) = blocks.last().map(|block| time_of(block)) else {
            return;
        };
        let mut book = self.book.lock();
        let count = blocks.len();
        for (index, bytes) in blocks.into_iter().enumerate() {
            book.block_bytes += bytes.len() as u64 + 4;
            book.blocks.push_back(Block {
                at: newest,
                ends: (index + 1 == count).then_some(position),
                bytes,
            });
        }
        let Some(journal) = &self.journal else {
            book.shed(self.bytes_max, self.count_max);
            return;
        };
        if book.block_bytes < book.write_at.max(PROVENANCE_FRAME_BYTES) {
            return;
        }
        let outcome = self.write(journal, &mut book);
        book.write_at = match outcome.and_then(|()| self.forget(journal, &mut book, newest)) {
            Ok(()) => 0,
            Err(error) => {
                let lost = book.shed(PROVENANCE_PENDING_BYTES_MAX, u64::MAX);
                tracing::warn!(
                    error = base::report(&error),
                    waiting = book.blocks.len(),
                    lost,
                    "provenance events cannot be written; they wait in memory"
                );
                book.block_bytes + PROVENANCE_FRAME_BYTES
            }
        };
    }

    /// Has everything on the disk when it returns.
    pub(crate) fn sync(&self, now: UnixMillis) -> Result<(), JournalError> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let (done, wait) = Done::channel(Durability::Disk);
        {
            let mut book = self.book.lock();
            self.write(journal, &mut book)?;
            self.forget(journal, &mut book, now)?;
            journal.append(&[], Durability::Disk, done)?;
        }
        wait.wait_blocking()
    }

    /// The events that `filter` lets through, oldest first. Reads the whole repository at worst.
    pub fn events(&self, filter: &Filter) -> Result<Vec<ProvenanceEvent>, JournalError> {
        let mut found = VecDeque::new();
        let mut take = |block: &[u8]| {
            let outcome = decode(block, &mut |event| {
                if filter.passes(&event) {
                    if found.len() >= filter.count_max {
                        found.pop_front();
                    }
                    found.push_back(event);
                }
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "a block of provenance events is passed over");
            }
        };
        let (frames, blocks) = {
            let book = self.book.lock();
            let frames: Vec<Written> = book.frames.iter().copied().collect();
            (frames, book.blocks.clone())
        };
        if let Some(journal) = &self.journal {
            for frame in frames {
                if filter.from.is_some_and(|from| frame.last_time < from) {
                    continue;
                }
                match journal.read_appended(frame.position) {
                    Ok(payload) if frame.is_sealed => self.open_blocks(payload, &mut take),
                    Ok(payload) => {
                        each_block(payload.get(BLOCKS_AT..).unwrap_or_default(), &mut take);
                    }
                    // It went while this reads, or its bytes have gone bad: the others are there.
                    Err(JournalError::Reclaimed { .. } | JournalError::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        for block in &blocks {
            take(&block.bytes);
        }
        Ok(found.into())
    }

    /// Counts for the status.
    pub fn status(&self) -> ProvenanceStatus {
        let book = self.book.lock();
        ProvenanceStatus {
            blocks: book.blocks.len() as u64 + book.frames.iter().map(|f| f.blocks).sum::<u64>(),
            bytes: book.block_bytes + book.frame_bytes,
        }
    }

    /// Writes what is left and closes.
    pub(crate) fn close(&self, now: UnixMillis) -> Result<(), JournalError> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let synced = self.sync(now);
        journal.close().and(synced)
    }

    /// Shows the blocks of a sealed frame, if there is a key for it.
    fn open_blocks(&self, payload: Bytes, visit: &mut dyn FnMut(&[u8])) {
        let sealed = payload.slice((BLOCKS_AT + 8).min(payload.len())..);
        drop(payload);
        match self.keyring.open(Piece::Events, sealed) {
            Ok(blocks) => each_block(&blocks, visit),
            Err(error) => {
                let error = base::report(&error);
                tracing::warn!(error, "provenance events are passed over");
            }
        }
    }

    /// Writes all blocks, as many frames as it takes.
    fn write(&self, journal: &Journal, book: &mut Book) -> Result<(), JournalError> {
        while let Some(first) = book.blocks.front() {
            let mut last_time = first.at;
            let mut last = book.last;
            let mut payload = vec![0; BLOCKS_AT];
            let mut count = 0;
            for block in &book.blocks {
                let len = u32::try_from(block.bytes.len()).expect("a block is far below 4 GiB");
                payload.extend_from_slice(&len.to_le_bytes());
                payload.extend_from_slice(&block.bytes);
                last_time = block.at;
                last = last.max(block.ends.unwrap_or(last));
                count += 1;
                if payload.len() as u64 >= PROVENANCE_FRAME_BYTES {
                    break;
                }
            }
            payload[..8].copy_from_slice(&last.0.to_le_bytes());
            payload[8..16].copy_from_slice(&last_time.0.to_le_bytes());
            let blocks_len = (payload.len() - BLOCKS_AT) as u64;
            let is_sealed = self.keyring.seals();
            if is_sealed {
                let sealed = self.keyring.seal(Piece::Events, &payload[BLOCKS_AT..]);
                payload.truncate(BLOCKS_AT);
                payload.extend_from_slice(&(count as u64).to_le_bytes());
                payload.extend_from_slice(&sealed);
            }
            let parts = [payload.as_slice()];
            let frame = Frame {
                kind: EVENTS,
                version: if is_sealed { SEALED } else { PLAIN },
                parts: &parts,
            };
            let placed = loop {
                match journal.append(&[frame], Durability::Os, Done::none()) {
                    Err(JournalError::Busy) => journal.room_blocking(frame.framed_len()),
                    other => break other?,
                }
            };
            let written = Written {
                position: placed.first,
                last_time,
                bytes: frame.framed_len(),
                blocks: count as u64,
                is_sealed,
            };
            book.frame_bytes += written.bytes;
            book.frames.push_back(written);
            book.last = last;
            book.block_bytes -= blocks_len;
            book.blocks.drain(..count);
        }
        Ok(())
    }

    /// Lets go of what is too old or too much, whole segments at a time.
    fn forget(
        &self,
        journal: &Journal,
        book: &mut Book,
        now: UnixMillis,
    ) -> Result<(), JournalError> {
        let is_old = |frame: &Written| now.since(frame.last_time) > self.age_max;
        let before = book.frames.len();
        while let Some(oldest) = book.frames.front().copied() {
            // The newest stays: it knows how far the events are copied.
            if book.frames.len() < 2 || (book.frame_bytes <= self.bytes_max && !is_old(&oldest)) {
                break;
            }
            book.frame_bytes -= oldest.bytes;
            book.frames.pop_front();
        }
        if let Some(first) = book.frames.front().filter(|_| book.frames.len() < before) {
            journal.reclaim(first.position)?;
        }
        Ok(())
    }
}

impl Book {
    /// Lets the oldest blocks go that are too many; how many went.
    fn shed(&mut self, bytes_max: u64, count_max: u64) -> usize {
        let before = self.blocks.len();
        while self.block_bytes > bytes_max || self.blocks.len() as u64 > count_max {
            let Some(gone) = self.blocks.pop_front() else {
                break;
            };
            self.block_bytes -= gone.bytes.len() as u64 + 4;
        }
        before - self.blocks.len()
    }

    fn recovered(&mut self, frame: &FrameRef<'_>) {
        let Some((header, rest)) = frame.payload.split_first_chunk::<BLOCKS_AT>() else {
            return;
        };
        let (last, time) = header.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let is_sealed = frame.version == SEALED;
        let mut blocks = 0;
        match rest.first_chunk::<8>() {
            Some(count) if is_sealed => blocks = u64::from_le_bytes(*count),
            _ => each_block(rest, &mut |_| blocks += 1),
        }
        let written = Written {
            position: frame.position,
            last_time: UnixMillis(word(time) as i64),
            bytes: frame.payload.len() as u64 + journal::FRAME_OVERHEAD_BYTES,
            blocks,
            is_sealed,
        };
        self.last = self.last.max(Position(word(last)));
        self.frame_bytes += written.bytes;
        self.frames.push_back(written);
    }
}

impl Filter {
    fn passes(&self, event: &ProvenanceEvent) -> bool {
        self.flow_file.is_none_or(|id| event.concerns(id))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self
                .component_id
                .as_ref()
                .is_none_or(|id| *id == event.component_id)
            && self.from.is_none_or(|from| event.at >= from)
            && self.until.is_none_or(|until| event.at < until)
    }
}

fn each_block(blocks: &[u8], visit: &mut dyn FnMut(&[u8])) {
    let mut rest = blocks;
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        let Some((block, tail)) = tail.split_at_checked(len) else {
            return;
        };
        visit(block);
        rest = tail;
    }
}

const EVENTS: u8 = 1;

/// Version of a frame: as it is.
const PLAIN: u8 = 1;
/// Version of a frame: its blocks are sealed.
const SEALED: u8 = 2;

/// Where a frame's blocks begin.
const BLOCKS_AT: usize = 16;

#[cfg(test)]
mod tests {
    use journal::SimDisk;

    use super::*;
    use crate::provenance::Events;

    fn take(provenance: &Provenance, step: u64) {
        let mut events = Events::default();
        events.note(EventKind::Send, FlowFileId(2 * step), &"x".repeat(1_000));
        let blocks = events.encode("p", "PutTCP", UnixMillis(step as i64));
        provenance.take(Position(step), blocks);
    }

    fn steps(provenance: &Provenance) -> Vec<u64> {
        let all = Filter {
            count_max: usize::MAX,
            ..Filter::default()
        };
        let events = provenance.events(&all).unwrap();
        events.iter().map(|event| event.at.0 as u64).collect()
    }

    /// Once there is room again, which the journal finds by trying.
    fn sync(provenance: &Provenance) {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while let Err(error) = provenance.sync(UnixMillis(0)) {
            assert!(std::time::Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_noted_is_shown_before_it_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(journal::RealDisk);
        let bounds = (64 << 20, Duration::MAX);
        let opened = Provenance::open(Access::Write, &disk, dir.path(), bounds, Arc::default());
        let provenance = opened.unwrap();
        for step in 0..8_000 {
            take(&provenance, step);
            if step % 20 == 0 {
                // Looked at by the last only: all of them would take long.
                let filter = Filter {
                    from: Some(UnixMillis(step.saturating_sub(300) as i64)),
                    count_max: usize::MAX,
                    ..Filter::default()
                };
                let events = provenance.events(&filter).unwrap();
                let shown: Vec<i64> = events.iter().map(|event| event.at.0).collect();
                let expected: Vec<i64> = (step.saturating_sub(300)..=step)
                    .map(|at| at as i64)
                    .collect();
                assert_eq!(shown, expected);
            }
        }
        provenance.close(UnixMillis(0)).unwrap();
    }

    #[test]
    fn what_finds_no_room_waits_is_bounded_and_comes_later_in_order() {
        let disk = Arc::new(SimDisk::new(1));
        let open = || {
            let dir = Path::new("/provenance");
            let (disk, bounds): (Arc<dyn Disk>, _) = (disk.clone(), (64 << 20, Duration::MAX));
            Provenance::open(Access::Write, &disk, dir, bounds, Arc::default()).unwrap()
        };
        let provenance = open();
        take(&provenance, 0);
        disk.set_capacity(Some(disk.used() + 4_096));
        // The space that a segment has ahead is used up, then two megabytes wait.
        let mut step = 1;
        while provenance.status().bytes < (8 << 20) + (2 << 20) {
            take(&provenance, step);
            step += 1;
        }
        assert!(provenance.last() < Position(step - 1_000), "nothing waited");
        assert_eq!(steps(&provenance), (0..step).collect::<Vec<_>>());
        disk.set_capacity(None);
        take(&provenance, step);
        sync(&provenance);
        assert_eq!(provenance.last(), Position(step));
        // Far too much: the oldest of what waits goes.
        disk.set_capacity(Some(disk.used()));
        let first = step + 1;
        let end = first + 20_000;
        (first..end).for_each(|step| take(&provenance, step));
        let waiting = provenance.book.lock().block_bytes;
        assert!(
            waiting < PROVENANCE_PENDING_BYTES_MAX + (64 << 10),
            "{waiting}"
        );
        assert_eq!(steps(&provenance).last(), Some(&(end - 1)));
        disk.set_capacity(None);
        sync(&provenance);
        provenance.close(UnixMillis(0)).unwrap();
        let before = steps(&provenance);
        drop(provenance);
        assert_eq!(steps(&open()), before);
    }
}
