//! Rests between two syncs: here they last so long that only what ends them early ends them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::done::{Done, DurableWait};
use crate::error::JournalError;
use crate::format::{Frame, FrameRef};
use crate::journal::Journal;
use crate::limits;
use crate::options::{Durability, JournalOptions};
use crate::sim::SimDisk;

const DIR: &str = "/rests";

fn open(disk: &SimDisk) -> Journal {
    let options = JournalOptions {
        sync_interval: Duration::from_secs(3_600),
        ..JournalOptions::default()
    };
    let mut ignore = |_: FrameRef<'_>| -> Result<(), JournalError> { Ok(()) };
    let disk = Arc::new(disk.clone());
    let opened = Journal::open(disk, Path::new(DIR), options, &mut ignore);
    opened.unwrap().0
}

/// A journal whose writer is in a rest, or on its way there.
fn resting(disk: &SimDisk) -> Journal {
    let journal = open(disk);
    for _ in 0..limits::TRIAL_AFTER_MIN {
        append(&journal, b"lone", Durability::Disk)
            .wait_blocking()
            .unwrap();
    }
    journal
}

fn append(journal: &Journal, payload: &[u8], need: Durability) -> DurableWait {
    let frame = Frame {
        kind: 1,
        version: 1,
        parts: &[payload],
    };
    let (done, wait) = Done::channel(need);
    journal.append(&[frame], need, done).unwrap();
    wait
}

#[test]
fn a_rest_ends_when_enough_has_gathered_and_one_sync_serves_it_all() {
    let journal = resting(&SimDisk::new(1));
    let waits: Vec<_> = (0..limits::RESTING_APPENDS_MAX)
        .map(|_| append(&journal, b"one of many", Durability::Disk))
        .collect();
    for wait in waits {
        wait.wait_blocking().unwrap();
    }
    let calls = journal.shared().telemetry.commit_calls.read();
    assert_eq!(calls.count, u64::from(limits::TRIAL_AFTER_MIN) + 1);
}

#[test]
fn many_bytes_end_a_rest() {
    let journal = resting(&SimDisk::new(2));
    let first = append(&journal, b"small", Durability::Disk);
    let large = vec![7; limits::RESTING_BYTES_MAX];
    append(&journal, &large, Durability::Disk)
        .wait_blocking()
        .unwrap();
    first.wait_blocking().unwrap();
}

#[test]
fn what_needs_no_sync_ends_a_rest() {
    let journal = resting(&SimDisk::new(3));
    let synced = append(&journal, b"small", Durability::Disk);
    append(&journal, b"with the system", Durability::Os)
        .wait_blocking()
        .unwrap();
    synced.wait_blocking().unwrap();
}

#[test]
fn a_journal_that_is_closed_in_a_rest_has_all_that_gathered() {
    let disk = SimDisk::new(4);
    let journal = resting(&disk);
    let wait = append(&journal, b"small", Durability::Disk);
    let end = journal.end();
    journal.close().unwrap();
    wait.wait_blocking().unwrap();
    drop(journal);
    disk.crash();
    assert_eq!(open(&disk).end(), end);
}
