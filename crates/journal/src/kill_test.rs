//! kill -9 at random moments: a child process appends and says what was acknowledged, the parent
//! kills it, opens the folder and looks for every acknowledged frame.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::Rng;

use crate::disk::RealDisk;
use crate::done::Done;
use crate::error::JournalError;
use crate::format::Frame;
use crate::journal::Journal;
use crate::options::{Durability, JournalOptions};

const OPTIONS: JournalOptions = JournalOptions {
    segment_bytes: 64 << 10,
    preallocate_bytes: 16 << 10,
    pending_bytes_max: 32 << 10,
    reserve_bytes: 0,
    spares_max: 2,
    unasked_rest: Duration::from_millis(1),
    unasked_bytes: 8 << 10,
    sync_interval: Duration::from_millis(1),
    carried_time_max: Duration::from_millis(1),
};
const DIR_VARIABLE: &str = "JOURNAL_KILL_TEST_DIR";
const ROUNDS: u32 = 20;
/// Appends that are carried one after another, and that are not.
const CARRIED_RUN: u64 = 50;

#[test]
fn frames_acknowledged_before_kill_9_are_there_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::from_entropy();
    let mut acknowledged = 0u64;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "kill_test::child_that_appends_until_it_is_killed",
                "--exact",
                "--nocapture",
            ])
            .env(DIR_VARIABLE, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at_least = rng.below(400);
        let mut seen = 0;
        // Some acknowledgements, then a moment more, then the end.
        for line in lines.by_ref() {
            if let Some(number) = line.unwrap().strip_prefix("ack ") {
                acknowledged = number.parse().unwrap();
                seen += 1;
            }
            if seen > at_least {
                break;
            }
        }
        assert!(
            seen > at_least,
            "the child of round {round} ended by itself"
        );
        std::thread::sleep(Duration::from_micros(rng.below(3_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            // A pipe takes each short line whole or not at all.
            let number = line.strip_prefix("ack ").and_then(|rest| rest.parse().ok());
            acknowledged = acknowledged.max(number.unwrap_or(0));
        }
        let (count, cut) = read_back(dir.path());
        assert!(
            count > acknowledged,
            "round {round}: {acknowledged} was acknowledged, {count} frames are there, cut {cut}"
        );
    }
}

/// Counts the frames, which must be numbered without a gap.
fn read_back(dir: &Path) -> (u64, bool) {
    let mut count = 0u64;
    let (journal, recovery) = Journal::open(Arc::new(RealDisk), dir, OPTIONS, &mut |frame| {
        assert_eq!(frame.payload[..8], count.to_le_bytes());
        assert!(frame.payload[8..].iter().all(|byte| *byte == count as u8));
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(recovery.damage, []);
    journal.close().unwrap();
    (count, recovery.cut.is_some())
}

/// Not a test by itself: returns at once unless the parent started it.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR_VARIABLE) else {
        return;
    };
    let mut number = 0u64;
    let (journal, _) = Journal::open(Arc::new(RealDisk), Path::new(&dir), OPTIONS, &mut |_| {
        number += 1;
        Ok(())
    })
    .unwrap();
    loop {
        let payload = vec![number as u8; (number % 700) as usize];
        let frame = Frame {
            kind: 1,
            version: 1,
            parts: &[&number.to_le_bytes(), &payload],
        };
        let mine = number;
        let done = Done {
            os: None,
            disk: Some(Box::new(move |outcome| {
                outcome.unwrap();
                let mut out = std::io::stdout().lock();
                // One write per line, so that a kill cannot show half a number as a whole one.
                out.write_all(format!("\nack {mine}\n").as_bytes()).unwrap();
                out.flush().unwrap();
            })),
        };
        // In turns those who append go on at once and write for themselves.
        let carrier = (number / CARRIED_RUN % 2 == 1).then(|| journal.carrier());
        match journal.append(&[frame], Durability::Disk, done) {
            Ok(_) => number += 1,
            Err(JournalError::Busy) => {
                drop(carrier);
                journal.room_blocking(1_000);
                continue;
            }
            Err(error) => panic!("append failed: {error}"),
        }
        if let Some(carrier) = carrier
            && !carrier.carry()
        {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}
