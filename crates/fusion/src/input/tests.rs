//! What an input's log promises.

use std::path::Path;
use std::time::Duration;

use base::UnixMillis;
use journal::RealDisk;

use super::*;

fn opened(dir: &Path, from: u64) -> (Arc<InputLog>, Vec<Position>) {
    let options = InputOptions {
        need: Durability::Os,
        message_bytes_max: 1 << 20,
        bytes_max: 4 << 20,
    };
    let (log, frames) = InputLog::open(Arc::new(RealDisk), dir, options, from).unwrap();
    (Arc::new(log), frames)
}

fn message<'m>(topic: &'m str, payload: &'m [u8], received: i64) -> Message<'m> {
    Message {
        topic,
        payload,
        received: UnixMillis(received),
        ..Message::default()
    }
}

/// Everything that these frames hold: number, topic, payload and time of each message.
fn held(log: &InputLog, frames: &[Position]) -> Vec<(u64, String, Vec<u8>, i64)> {
    let mut held = Vec::new();
    for position in frames {
        let payload = log.read(*position).unwrap();
        let (first, messages) = frames::decode(&payload).unwrap();
        for (number, message) in (first..).zip(messages) {
            let topic = message.topic.to_owned();
            held.push((number, topic, message.payload.to_vec(), message.received.0));
        }
    }
    held
}

#[tokio::test]
async fn what_was_taken_is_there_again_from_any_number_on() {
    let folder = tempfile::tempdir().unwrap();
    let (log, frames) = opened(folder.path(), 7);
    assert!(frames.is_empty());
    let first = [
        message("a/1", b"x", 1_000),
        message("a/1", b"", 1_000),
        message("b", &[0, 255], 900),
    ];
    log.take(first.iter());
    log.take([].iter());
    log.take([message("b", b"y", 2_000)].iter());
    log.settle(11).await.unwrap();
    assert!(log.settled().is_none());
    log.close();
    assert!(!log.is_ready());
    let all = [
        (7, "a/1".to_owned(), b"x".to_vec(), 1_000),
        (8, "a/1".to_owned(), Vec::new(), 1_000),
        (9, "b".to_owned(), vec![0, 255], 900),
        (10, "b".to_owned(), b"y".to_vec(), 2_000),
    ];
    for from in [0, 7, 9] {
        let (log, frames) = opened(folder.path(), from);
        assert_eq!(held(&log, &frames), all, "from {from}");
        assert_eq!(log.next(), 11);
        log.close();
    }
    let (log, frames) = opened(folder.path(), 10);
    assert_eq!(held(&log, &frames), all[3..]);
    log.close();
    // A statement that is ahead of its log goes on with its own numbers.
    let (log, frames) = opened(folder.path(), 40);
    assert_eq!((frames.len(), log.next()), (0, 40));
    log.close();
}

#[tokio::test]
async fn a_log_that_is_full_takes_nothing_until_a_checkpoint_holds_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = opened(folder.path(), 0);
    let payload = vec![1; 64 << 10];
    for round in 0..24 {
        let mut was_filling = false;
        while log.is_ready() {
            log.take([message("t", &payload, 0)].iter());
            log.flush().await.unwrap();
            was_filling |= log.is_filling() && log.is_ready();
        }
        assert!(was_filling, "nobody would have known in time");
        assert_eq!(log.next(), 64 * (round + 1));
        log.settle(log.next()).await.unwrap();
        // Of what is behind the checkpoint nothing is given back.
        log.release(log.next() - 1).await;
        assert!(log.is_ready());
        let last = log.next() - 1;
        let (first, _) = *log.state.lock().marks.front().unwrap();
        assert!(first <= last, "{first} {last}");
        log.release(log.next()).await;
        assert!(!log.is_filling());
    }
    let kept = || -> u64 {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        // One that is just being given back may be gone.
        let sizes = entries.filter_map(|entry| Some(entry.unwrap().metadata().ok()?.len()));
        sizes.sum()
    };
    // 96 MiB were written; there are a few segments of 8 MiB, one of them ahead and one to spare.
    // A segment that is not synced yet goes with a later checkpoint.
    let given_back = async {
        while kept() > 40 << 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            log.release(log.next()).await;
        }
    };
    let given_back = tokio::time::timeout(Duration::from_secs(60), given_back).await;
    assert!(given_back.is_ok(), "{} bytes", kept());
    log.close();
}

#[tokio::test]
async fn what_is_no_input_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(
        Arc::new(RealDisk),
        folder.path(),
        JournalOptions::default(),
        &mut |_| Ok(()),
    )
    .unwrap();
    let frame = Frame {
        kind: MESSAGES,
        version: VERSION + 1,
        parts: &[b"of another time"],
    };
    journal.append_wait(&[frame], Durability::Os).await.unwrap();
    journal.close().unwrap();
    let options = InputOptions {
        need: Durability::Os,
        message_bytes_max: 1 << 10,
        bytes_max: 1 << 20,
    };
    let opened = InputLog::open(Arc::new(RealDisk), folder.path(), options, 0);
    assert!(matches!(opened, Err(FusionError::Unreadable(_))));
}
