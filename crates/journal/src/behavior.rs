//! What callers see of a whole journal: groups, locks, poison, damage, threads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Rng;

use crate::disk::RealDisk;
use crate::done::Done;
use crate::error::JournalError;
use crate::format::{Frame, FrameRef, Position};
use crate::journal::Journal;
use crate::options::{Durability, JournalOptions};
use crate::recovery::Recovery;
use crate::sim::SimDisk;

const SMALL: JournalOptions = JournalOptions {
    segment_bytes: 4096,
    preallocate_bytes: 2048,
    pending_bytes_max: 8192,
    reserve_bytes: 0,
    spares_max: 0,
    unasked_rest: Duration::ZERO,
    unasked_bytes: 0,
    sync_interval: Duration::ZERO,
    carried_time_max: Duration::from_millis(1),
};
const SIM_DIR: &str = "/sim";

fn ignore(_: FrameRef<'_>) -> Result<(), JournalError> {
    Ok(())
}

fn open_sim(disk: &SimDisk, options: JournalOptions) -> (Journal, Recovery, Vec<Vec<u8>>) {
    let mut payloads = Vec::new();
    let (journal, recovery) = Journal::open(
        Arc::new(disk.clone()),
        Path::new(SIM_DIR),
        options,
        &mut |frame| {
            payloads.push(frame.payload.to_vec());
            Ok(())
        },
    )
    .unwrap();
    (journal, recovery, payloads)
}

fn append(journal: &Journal, payload: &[u8]) -> Result<Position, JournalError> {
    let frame = Frame {
        kind: 1,
        version: 1,
        parts: &[payload],
    };
    journal
        .append_blocking(&[frame], Durability::Disk)
        .map(|placed| placed.first)
}

#[test]
fn a_hundred_waiters_share_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let (journal, mut writer, _) = Journal::open_stepped(
        Arc::new(disk.clone()),
        Path::new(SIM_DIR),
        JournalOptions::default(),
        &mut ignore,
    )
    .unwrap();
    let before = disk.operations();
    let waits: Vec<_> = (0..100u8)
        .map(|i| {
            let (done, wait) = Done::channel(Durability::Disk);
            let frame = Frame {
                kind: 1,
                version: 1,
                parts: &[&[i; 50], b"tail"],
            };
            journal.append(&[frame], Durability::Disk, done).unwrap();
            wait
        })
        .collect();
    assert_eq!(disk.operations(), before, "an append touched the disk");
    writer.pass();
    assert_eq!(disk.operations(), before + 2, "one write and one sync");
    for wait in waits {
        wait.wait_blocking().unwrap();
    }
    assert_eq!(journal.end(), journal.durable_end());
}

#[test]
fn a_barrier_waits_for_what_was_appended_before_it() {
    let disk = SimDisk::new(2);
    let (journal, mut writer, _) = Journal::open_stepped(
        Arc::new(disk.clone()),
        Path::new(SIM_DIR),
        SMALL,
        &mut ignore,
    )
    .unwrap();
    let frame = Frame {
        kind: 1,
        version: 1,
        parts: &[b"unsynced"],
    };
    let placed = journal
        .append(&[frame], Durability::Os, Done::none())
        .unwrap();
    writer.pass();
    assert!(journal.durable_end() < placed.end);
    let (done, wait) = Done::channel(Durability::Disk);
    journal.append(&[], Durability::Disk, done).unwrap();
    writer.pass();
    wait.wait_blocking().unwrap();
    assert_eq!(journal.durable_end(), placed.end);
}

#[test]
fn an_idle_journal_leaves_the_disk_alone() {
    let disk = SimDisk::new(3);
    let (journal, ..) = open_sim(&disk, SMALL);
    for _ in 0..50 {
        append(&journal, &[5; 400]).unwrap();
    }
    // The writer may still be making space ahead: wait until it rests.
    let mut before = disk.operations();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(20));
        let now = disk.operations();
        if now == before {
            break;
        }
        before = now;
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(disk.operations(), before);
}

#[test]
fn a_second_opening_says_who_has_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Journal::open(Arc::new(RealDisk), dir.path(), SMALL, &mut ignore);
    let (journal, _) = open().unwrap();
    let error = open().unwrap_err().to_string();
    let pid = std::process::id();
    assert!(
        error.starts_with(&format!("another process (pid {pid}) has the folder")),
        "{error}"
    );
    assert!(
        error.ends_with("stop it or choose another --data folder"),
        "{error}"
    );
    journal.close().unwrap();
    open().unwrap();
}

#[test]
fn dropping_writes_what_is_pending_and_closing_ends_appends() {
    let disk = SimDisk::new(4);
    let (journal, ..) = open_sim(&disk, SMALL);
    let frame = Frame {
        kind: 1,
        version: 1,
        parts: &[b"left behind"],
    };
    journal
        .append(&[frame], Durability::Memory, Done::none())
        .unwrap();
    drop(journal);
    disk.crash();
    let (journal, recovery, payloads) = open_sim(&disk, SMALL);
    assert_eq!(payloads, [b"left behind".to_vec()]);
    assert_eq!(recovery.cut, None);
    journal.close().unwrap();
    journal.close().unwrap();
    assert!(matches!(
        append(&journal, b"late"),
        Err(JournalError::Closed)
    ));
}

#[test]
fn a_failed_sync_poisons_until_the_folder_is_opened_again() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (journal, ..) = open_sim(&disk, JournalOptions::default());
        append(&journal, b"kept").unwrap();
        disk.fail_next_sync();
        let error = append(&journal, b"doubtful").unwrap_err();
        assert!(matches!(error, JournalError::Poisoned { .. }), "{error}");
        assert!(matches!(
            append(&journal, b"refused"),
            Err(JournalError::Poisoned { .. })
        ));
        assert!(matches!(
            journal.close(),
            Err(JournalError::Poisoned { .. })
        ));
        drop(journal);
        let (journal, _, first) = open_sim(&disk, JournalOptions::default());
        assert_eq!(first[0], b"kept");
        append(&journal, b"after").unwrap();
        // What was shown after the failure must not go away any more.
        disk.crash();
        drop(journal);
        let (_, _, second) = open_sim(&disk, JournalOptions::default());
        assert_eq!(second[..first.len()], first, "seed {seed}");
        assert_eq!(
            second.last().map(Vec::as_slice),
            Some(&b"after"[..]),
            "seed {seed}"
        );
    }
}

#[test]
fn a_flipped_bit_costs_its_own_frame_and_is_reported() {
    let mut rng = Rng::from_seed(7);
    for case in 0..400 {
        let disk = SimDisk::new(case);
        let (journal, ..) = open_sim(&disk, SMALL);
        let frames: Vec<Vec<u8>> = (0..40u8)
            .map(|i| vec![i; 50 + usize::from(i) * 7])
            .collect();
        let positions: Vec<u64> = frames
            .iter()
            .map(|payload| append(&journal, payload).unwrap().0)
            .collect();
        // Without the one that may stand ready, empty, after the last frame.
        let mut segments = journal.segments();
        segments.retain(|segment| segment.base.0 < positions[39]);
        journal.close().unwrap();
        drop(journal);
        let hit = &segments[rng.below(segments.len() as u64) as usize];
        let offset = rng.below(hit.end.0 - hit.base.0);
        let path = Path::new(SIM_DIR).join(format!("{:016x}.journal", hit.base.0));
        assert!(disk.flip(&path, offset, 1 << rng.below(8)));
        let at = hit.base.0 + offset;

        let (journal, recovery, visited) = open_sim(&disk, SMALL);
        let struck = positions
            .iter()
            .zip(&frames)
            .position(|(position, payload)| {
                (*position..*position + 24 + payload.len() as u64).contains(&at)
            });
        let mut expected = frames.clone();
        match struck {
            // Nothing behind the last frame tells rot from a torn write.
            Some(39) => {
                expected.pop();
                assert!(
                    recovery.cut.is_some() && recovery.damage.is_empty(),
                    "case {case}"
                );
            }
            other => {
                assert_eq!(
                    recovery.damage.len(),
                    1,
                    "case {case} at {at}: {recovery:?}"
                );
                let damage = recovery.damage[0];
                let range = damage.position.0..damage.position.0 + damage.bytes;
                assert!(range.contains(&at), "case {case}: {damage:?} misses {at}");
                assert_eq!(recovery.cut, None);
                if let Some(struck) = other {
                    expected.remove(struck);
                    assert!(matches!(
                        journal.read_frame(Position(positions[struck])),
                        Err(JournalError::Damaged { .. })
                    ));
                }
            }
        }
        assert_eq!(visited, expected, "case {case} at {at}");
        append(&journal, b"goes on").unwrap();
        journal.close().unwrap();
        drop(journal);
        let (.., visited) = open_sim(&disk, SMALL);
        expected.push(b"goes on".to_vec());
        assert_eq!(visited, expected, "case {case}: the second opening differs");
    }
}

#[test]
fn a_missing_segment_is_reported_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk);
    let (journal, _) = Journal::open(disk.clone(), dir.path(), SMALL, &mut ignore).unwrap();
    for i in 0..40u8 {
        append(&journal, &[i; 500]).unwrap();
    }
    let segments = journal.segments();
    journal.close().unwrap();
    drop(journal);
    let gone = &segments[2];
    std::fs::remove_file(dir.path().join(format!("{:016x}.journal", gone.base.0))).unwrap();
    let mut last = None;
    let (_, recovery) = Journal::open(disk, dir.path(), SMALL, &mut |frame| {
        last = frame.payload.first().copied();
        Ok(())
    })
    .unwrap();
    assert_eq!(last, Some(39));
    assert_eq!(recovery.damage.len(), 1);
    assert_eq!(recovery.damage[0].position, gone.base);
}

#[test]
fn what_is_opened_to_read_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk);
    let to_read = || Journal::open_to_read(disk.clone(), dir.path(), SMALL, &mut ignore);
    assert!(to_read().unwrap_err().is_read_only(), "there is none yet");
    let (journal, _) = Journal::open(disk.clone(), dir.path(), SMALL, &mut ignore).unwrap();
    let mut positions = Vec::new();
    for i in 0..40u8 {
        positions.push(append(&journal, &[i; 500]).unwrap());
    }
    drop(journal);
    let lens = || {
        let files = std::fs::read_dir(dir.path()).unwrap();
        let mut lens: Vec<_> = files
            .map(|file| file.unwrap())
            .map(|file| (file.file_name(), file.metadata().unwrap().len()))
            .collect();
        lens.sort();
        lens
    };
    let before = lens();
    let (journal, recovery) = to_read().unwrap();
    assert_eq!(recovery.frames, 40);
    for (i, position) in positions.iter().enumerate() {
        assert_eq!(journal.read_frame(*position).unwrap()[0], i as u8);
    }
    assert!(append(&journal, b"more").unwrap_err().is_read_only());
    assert!(matches!(to_read(), Err(JournalError::Locked { .. })));
    assert!(journal.close().unwrap_err().is_read_only());
    drop(journal);
    assert_eq!(lens(), before);
    Journal::open(disk.clone(), dir.path(), SMALL, &mut ignore).unwrap();
}

#[test]
fn threads_that_were_answered_find_their_frames_after_a_crash() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let (journal, ..) = open_sim(&disk, SMALL);
        disk.crash_after(20 + seed * 3);
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let journal = journal.clone();
                std::thread::spawn(move || {
                    let mut answered = 0u32;
                    loop {
                        let mut payload = vec![thread; 40 + usize::from(thread) * 100];
                        payload[1..5].copy_from_slice(&answered.to_le_bytes());
                        if append(&journal, &payload).is_err() {
                            return answered;
                        }
                        answered += 1;
                    }
                })
            })
            .collect();
        let answered: Vec<u32> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        disk.power_on();
        drop(journal);
        let (.., payloads) = open_sim(&disk, SMALL);
        let mut next = [0u32; 4];
        for payload in payloads {
            let thread = usize::from(payload[0]);
            let number = u32::from_le_bytes(payload[1..5].try_into().unwrap());
            assert_eq!(number, next[thread], "seed {seed}: out of order");
            next[thread] += 1;
        }
        for (thread, answered) in answered.into_iter().enumerate() {
            assert!(
                next[thread] >= answered,
                "seed {seed}: thread {thread} lost a frame"
            );
        }
    }
}

#[test]
fn reclaimed_segments_become_new_ones_and_show_nothing_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        spares_max: 2,
        ..SMALL
    };
    let names = |suffix: &str| {
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(suffix)).count()
    };
    let open = |seen: &mut Vec<u32>| {
        let mut see = |frame: FrameRef<'_>| {
            seen.push(u32::from_le_bytes(frame.payload[..4].try_into().unwrap()));
            Ok(())
        };
        Journal::open(Arc::new(RealDisk), dir.path(), options, &mut see)
            .unwrap()
            .0
    };
    let journal = open(&mut Vec::new());
    let mut kept = 0;
    let mut positions = Vec::new();
    for i in 0..400_u32 {
        positions.push(append(&journal, &i.to_le_bytes().repeat(100)).unwrap());
        if i % 50 == 49 {
            journal.reclaim(positions[i as usize - 20]).unwrap();
            kept = kept.max(names(".spare"));
        }
    }
    assert_eq!(kept, 2, "spares are kept, and no more than that");
    let start = journal.start();
    journal.close().unwrap();
    let mut seen = Vec::new();
    drop(open(&mut seen));
    let first = positions.partition_point(|position| *position < start);
    assert_eq!(seen, (first as u32..400).collect::<Vec<u32>>());
    assert_eq!(names(".spare"), 0, "an opening trusts no spare");
}

#[test]
fn readers_and_reclaiming_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(Arc::new(RealDisk), dir.path(), SMALL, &mut ignore).unwrap();
    let positions: Vec<Position> = (0..300u32)
        .map(|i| append(&journal, &i.to_le_bytes().repeat(100)).unwrap())
        .collect();
    let half = positions[150];
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (journal, positions) = (&journal, &positions);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(reader);
                for _ in 0..2_000 {
                    let i = rng.below(300) as usize;
                    match journal.read_frame(positions[i]) {
                        Ok(payload) => assert_eq!(payload[..4], (i as u32).to_le_bytes()),
                        Err(JournalError::Reclaimed { .. }) => assert!(i < 150),
                        Err(error) => panic!("frame {i}: {error}"),
                    }
                }
            });
        }
        scope.spawn(|| assert!(journal.reclaim(half).unwrap() > 5));
    });
    assert!(journal.start() <= half);
    assert!(matches!(
        journal.read(positions[0], 1),
        Err(JournalError::Reclaimed { .. })
    ));
    let late = journal.end();
    assert!(matches!(
        journal.read(late, 1),
        Err(JournalError::OutOfRange { .. })
    ));
    assert!(matches!(
        journal.read(late, usize::MAX),
        Err(JournalError::OutOfRange { .. })
    ));
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(
        files,
        journal.segments().len() + 1,
        "segments and the lock file"
    );
}

#[tokio::test]
async fn senders_beyond_the_pending_bound_are_held_back_and_all_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(Arc::new(RealDisk), dir.path(), SMALL, &mut ignore).unwrap();
    let tasks: Vec<_> = (0..64u8)
        .map(|i| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let frame = Frame {
                        kind: i,
                        version: 1,
                        parts: &[&[i; 1000]],
                    };
                    journal.append_wait(&[frame], Durability::Os).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    let mut count = [0; 64];
    let (_, recovery) = Journal::open(Arc::new(RealDisk), dir.path(), SMALL, &mut |frame| {
        count[usize::from(frame.kind)] += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!((recovery.frames, count), (640, [10; 64]));
}

#[test]
fn a_visitor_may_refuse_and_nothing_was_changed() {
    let disk = SimDisk::new(9);
    let (journal, ..) = open_sim(&disk, SMALL);
    append(&journal, b"one").unwrap();
    drop(journal);
    let refused = Journal::open(
        Arc::new(disk.clone()),
        Path::new(SIM_DIR),
        SMALL,
        &mut |_| Err(JournalError::refused(std::fmt::Error)),
    );
    assert!(matches!(refused, Err(JournalError::Refused(_))));
    let (.., payloads) = open_sim(&disk, SMALL);
    assert_eq!(payloads.len(), 1);
}

#[test]
fn a_frame_as_large_as_a_segment_fits_and_a_larger_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(Arc::new(RealDisk), dir.path(), SMALL, &mut ignore).unwrap();
    let most = SMALL.append_bytes_max() as usize - 24;
    for _ in 0..3 {
        append(&journal, b"small").unwrap();
        let position = append(&journal, &vec![7; most]).unwrap();
        assert_eq!(journal.read_frame(position).unwrap().len(), most);
    }
    let refused = append(&journal, &vec![7; most + 1]);
    assert!(matches!(refused, Err(JournalError::TooLarge { .. })));
}

#[test]
fn a_full_disk_with_a_single_segment_gets_free_when_that_is_sealed_early() {
    let options = JournalOptions {
        segment_bytes: 64 << 10,
        preallocate_bytes: 64 << 10,
        reserve_bytes: 20 << 10,
        ..SMALL
    };
    // Never enough for another segment.
    for left in [0, 10 << 10, 19 << 10] {
        let disk = SimDisk::new(left);
        let (journal, ..) = open_sim(&disk, options);
        disk.set_capacity(Some(disk.used() + left));
        let full = loop {
            match append(&journal, &[7; 900]) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(full, JournalError::Full { .. }), "{full}");
        let [only] = journal.segments()[..] else {
            panic!("{:?}", journal.segments());
        };
        assert_eq!(journal.reclaim(only.end).unwrap(), 0, "it is not sealed");

        journal.seal_early();
        while journal.segments().len() < 2 {
            std::thread::yield_now();
        }
        let vital = Frame {
            kind: 1,
            version: 1,
            parts: &[b"vital"],
        };
        let placed = journal.append_vital_blocking(&[vital], Durability::Disk);
        assert!(placed.unwrap().first >= only.end);
        // The writer may have found by now what the disk has left beside the reserve.
        let is_refused = append(&journal, &[7; 900]).is_err();
        assert!(
            is_refused || left > 0 && journal.room_ahead() >= options.reserve_bytes,
            "the reserve was taken"
        );
        let sealed = journal.segments()[0];
        assert_eq!(journal.reclaim(sealed.end).unwrap(), 1);
        while append(&journal, b"after").is_err() {
            std::thread::yield_now();
        }
        journal.close().unwrap();
        let (_, _, mut payloads) = open_sim(&disk, options);
        if !is_refused {
            assert_eq!(payloads.remove(1), [7; 900]);
        }
        assert_eq!(payloads, [b"vital".to_vec(), b"after".to_vec()]);
    }
}

#[test]
fn large_appends_that_pass_the_cache_are_there_whole_in_every_segment() {
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        segment_bytes: 4 << 20,
        ..JournalOptions::default()
    };
    let mut expected = Vec::new();
    let open = |seen: &mut Vec<Vec<u8>>| {
        let mut keep = |frame: FrameRef<'_>| {
            seen.push(frame.payload.to_vec());
            Ok(())
        };
        Journal::open(Arc::new(RealDisk), dir.path(), options, &mut keep).unwrap()
    };
    let mut rng = Rng::from_seed(31);
    for _ in 0..2 {
        let mut seen = Vec::new();
        let (journal, recovery) = open(&mut seen);
        assert!(
            recovery.cut.is_none() && recovery.damage.is_empty(),
            "{recovery:?}"
        );
        assert!(seen == expected);
        for round in 0..60 {
            // Some wait for the sync, some pile up behind them; a small one shifts all that follow.
            let mut payload = vec![0; 1 + rng.below(900_000) as usize];
            rng.fill(&mut payload);
            let frame = Frame {
                kind: 1,
                version: 1,
                parts: &[&payload],
            };
            let need = [Durability::Disk, Durability::Os, Durability::Memory][round % 3];
            journal.append_blocking(&[frame], need).unwrap();
            expected.push(payload);
        }
        journal.close().unwrap();
    }
    let mut seen = Vec::new();
    let (journal, _) = open(&mut seen);
    assert!(seen == expected);
    assert!(journal.segments().len() > 10);
}
