//! The latest rows of a statement, for those who look. Kept only while somebody does: a statement
//! that nobody looked at for a minute keeps nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::limits::{TAP_BYTES, TAP_KEPT, TAP_ROWS};

/// The latest rows.
pub struct Tap {
    kept: Mutex<Kept>,
    told: Notify,
}

struct Kept {
    rows: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the next row; rows are counted from 0 since the first look.
    next: u64,
    asked: Instant,
}

/// What there is after a row's number.
#[derive(Debug, Default, Serialize)]
pub struct Tail {
    /// The rows, oldest first.
    pub rows: Vec<Box<RawValue>>,
    /// What to ask for next.
    pub next: u64,
    /// Rows that were gone before they were asked for.
    pub missed: u64,
}

impl Tap {
    /// A tap that somebody looks at now.
    pub fn new() -> Self {
        Tap {
            kept: Mutex::new(Kept {
                rows: VecDeque::new(),
                bytes: 0,
                next: 0,
                asked: Instant::now(),
            }),
            told: Notify::new(),
        }
    }

    /// Shows rows.
    pub fn show(&self, texts: impl Iterator<Item = Bytes>) {
        let mut kept = self.kept.lock();
        let is_watched = kept.asked.elapsed() < TAP_KEPT;
        for text in texts {
            kept.next += 1;
            if is_watched && text.len() <= TAP_BYTES {
                kept.bytes += text.len();
                kept.rows.push_back(text);
            } else {
                kept.forget();
            }
            while kept.rows.len() > TAP_ROWS || kept.bytes > TAP_BYTES {
                let gone = kept.rows.pop_front();
                kept.bytes -= gone.map_or(0, |gone| gone.len());
            }
        }
        drop(kept);
        self.told.notify_waiters();
    }

    /// The rows from number `after` on, or from now on; waits for the first.
    pub async fn tail(&self, after: Option<u64>, wait: Duration) -> Tail {
        let after = after.unwrap_or_else(|| self.kept.lock().next);
        let waiting = async {
            loop {
                let told = self.told.notified();
                let mut told = std::pin::pin!(told);
                told.as_mut().enable();
                let tail = self.after(after);
                if tail.next != after {
                    return tail;
                }
                told.await;
            }
        };
        match tokio::time::timeout(wait, waiting).await {
            Ok(tail) => tail,
            Err(_) => self.after(after),
        }
    }

    fn after(&self, after: u64) -> Tail {
        let mut kept = self.kept.lock();
        kept.asked = Instant::now();
        let first = kept.next - kept.rows.len() as u64;
        // A number that was never given out is from another life of the process.
        let after = if after > kept.next { first } else { after };
        let skipped = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        let rows = kept.rows.iter().skip(skipped);
        let rows = rows
            .filter_map(|row| serde_json::from_slice(row).ok())
            .collect();
        Tail {
            rows,
            next: kept.next,
            missed: first.saturating_sub(after),
        }
    }
}

impl Kept {
    fn forget(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(range: std::ops::Range<u64>) -> impl Iterator<Item = Bytes> {
        range.map(|number| Bytes::from(number.to_string()))
    }

    fn texts(tail: &Tail) -> Vec<&str> {
        tail.rows.iter().map(|row| row.get()).collect()
    }

    #[tokio::test]
    async fn who_looks_sees_what_comes_and_how_much_it_missed() {
        let tap = Tap::new();
        tap.show(rows(0..2));
        let tail = tap.tail(None, Duration::ZERO).await;
        assert_eq!((texts(&tail).len(), tail.next), (0, 2));
        tap.show(rows(2..5));
        let tail = tap.tail(Some(tail.next), Duration::ZERO).await;
        assert_eq!(
            (texts(&tail), tail.next, tail.missed),
            (vec!["2", "3", "4"], 5, 0)
        );
        tap.show(rows(5..1_000));
        let tail = tap.tail(Some(5), Duration::ZERO).await;
        assert_eq!(
            (tail.rows.len(), tail.missed),
            (TAP_ROWS, 995 - TAP_ROWS as u64)
        );
        assert_eq!(tap.tail(Some(5_000), Duration::ZERO).await.next, 1_000);
    }

    #[tokio::test]
    async fn a_look_waits_for_the_first_row() {
        let tap = std::sync::Arc::new(Tap::new());
        let looker = tap.clone();
        let looking =
            tokio::spawn(async move { looker.tail(Some(0), Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        tap.show(rows(0..1));
        assert_eq!(texts(&looking.await.unwrap()), ["0"]);
    }
}
