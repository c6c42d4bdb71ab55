//! What nobody waits for: it rests, but not for long and not at anybody's cost.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::checksum::Checksum;
use crate::done::Done;
use crate::error::JournalError;
use crate::format::{Frame, FrameRef};
use crate::journal::Journal;
use crate::options::{Durability, JournalOptions};
use crate::sim::SimDisk;

const LONG: Duration = Duration::from_secs(3_600);
const DIR: &str = "/unasked";

fn open(disk: &SimDisk, rest: Duration) -> Journal {
    let options = JournalOptions {
        unasked_rest: rest,
        ..JournalOptions::default()
    };
    let mut ignore = |_: FrameRef<'_>| -> Result<(), JournalError> { Ok(()) };
    let disk = Arc::new(disk.clone());
    let opened = Journal::open(disk, Path::new(DIR), options, &mut ignore);
    opened.unwrap().0
}

fn append(journal: &Journal, payload: &[u8], done: Done) {
    let frame = Frame {
        kind: 1,
        version: 1,
        parts: &[payload],
    };
    let checksum = Checksum::default().then(payload);
    journal
        .append_summed(frame, checksum, Durability::Disk, done)
        .unwrap();
}

/// Has something synced, so that what follows rests.
fn begin(journal: &Journal) {
    let (done, wait) = Done::channel(Durability::Disk);
    append(journal, b"first", done);
    wait.wait_blocking().unwrap();
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_nobody_waits_for_is_synced_by_itself_after_its_rest() {
    let disk = SimDisk::new(1);
    let journal = open(&disk, Duration::from_millis(200));
    begin(&journal);
    let began = Instant::now();
    for _ in 0..50 {
        append(&journal, b"nobody waits", Done::none());
    }
    until("the sync", || journal.durable_end() == journal.end());
    assert!(began.elapsed() >= Duration::from_millis(150), "no rest");
}

#[test]
fn who_waits_does_not_wait_for_a_rest_and_takes_the_others_along() {
    let disk = SimDisk::new(2);
    let journal = open(&disk, LONG);
    begin(&journal);
    for _ in 0..3 {
        append(&journal, b"nobody waits", Done::none());
        let (done, wait) = Done::channel(Durability::Disk);
        append(&journal, b"somebody waits", done);
        wait.wait_blocking().unwrap();
        assert_eq!(journal.durable_end(), journal.end());
        append(&journal, b"nobody waits", Done::none());
        // A barrier asks as well.
        journal.append_blocking(&[], Durability::Os).unwrap();
    }
}

#[test]
fn much_is_synced_before_its_rest_is_over() {
    let disk = SimDisk::new(3);
    let journal = open(&disk, LONG);
    begin(&journal);
    let piece = vec![7; 1 << 20];
    let bytes = JournalOptions::default().unasked_bytes;
    for _ in 0..2 * bytes / piece.len() as u64 {
        journal.room_blocking(2 * piece.len() as u64);
        append(&journal, &piece, Done::none());
    }
    let end = journal.end().0;
    until("the sync", || journal.durable_end().0 + bytes >= end);
}

#[test]
fn a_journal_that_is_closed_in_a_rest_has_everything() {
    let disk = SimDisk::new(4);
    let journal = open(&disk, LONG);
    begin(&journal);
    append(&journal, b"nobody waits", Done::none());
    let end = journal.end();
    let began = Instant::now();
    journal.close().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
    drop(journal);
    disk.crash();
    assert_eq!(open(&disk, LONG).end(), end);
}
