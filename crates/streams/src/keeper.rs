//! Frees segments that hold nothing living, on a thread of its own that sleeps until told.
//!
//! A segment at the journal's front can go when no living batch lies in it and a complete snapshot
//! of all that is not a batch was begun after it. So a look is: where does the oldest living batch
//! lie; does that free a whole segment; if so, write a snapshot (unless the last one will do) and
//! reclaim. Nothing is written when nothing can be freed.
//!
//! Streams have an age at which their records expire. The keeper hides them when they get there;
//! it sleeps until the oldest of them does, or until the youngest possible could, and for ever
//! when no topic has such an age.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use journal::{Done, Durability, Frame, Position};
use parking_lot::{Condvar, Mutex};

use crate::error::StreamsError;
use crate::frames::{Change, VERSION};
use crate::limits::RECLAIM_CHECK_BYTES;
use crate::partition::storage;
use crate::store::Streams;

/// Wakes the keeper's thread.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    told: Mutex<Told>,
    bell: Condvar,
    /// Position at which the next look is due.
    due: AtomicU64,
}

#[derive(Debug, Default)]
struct Told {
    look: bool,
    stop: bool,
}

impl Keeper {
    /// A keeper that first looks when the journal has grown from `end`.
    pub(crate) fn starting_at(end: Position) -> Self {
        Keeper {
            due: AtomicU64::new(end.0 + RECLAIM_CHECK_BYTES),
            ..Keeper::default()
        }
    }

    /// Tells how far the journal has grown.
    pub(crate) fn note_end(&self, end: Position) {
        let due = self.due.load(Ordering::Relaxed);
        if end.0 < due {
            return;
        }
        let next = end.0 + RECLAIM_CHECK_BYTES;
        // Whoever moves the mark rings; the others have nothing to do.
        let moved = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            self.look();
        }
    }

    /// Asks for a look now.
    pub(crate) fn look(&self) {
        self.told.lock().look = true;
        self.bell.notify_one();
    }

    /// Ends the thread after the look that it is at.
    pub(crate) fn stop(&self) {
        self.told.lock().stop = true;
        self.bell.notify_one();
    }

    /// Waits to be told, or for `pause`; false when the thread is to end.
    fn wait(&self, pause: Option<Duration>) -> bool {
        let mut told = self.told.lock();
        let deadline = pause.map(|pause| Instant::now() + pause);
        while !told.look && !told.stop {
            match deadline {
                None => self.bell.wait(&mut told),
                Some(deadline) if self.bell.wait_until(&mut told, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        told.look = false;
        !told.stop
    }
}

/// Starts the thread; it ends with [`Keeper::stop`], which dropping the store calls too.
pub(crate) fn start(streams: &Arc<Streams>) -> Result<(), StreamsError> {
    // Neither the store nor its journal: those end when their users let go of them.
    let keeper = Arc::clone(&streams.shared().keeper);
    let streams: Weak<Streams> = Arc::downgrade(streams);
    let run = move || {
        let mut pause = Some(Duration::ZERO);
        while keeper.wait(pause) {
            let Some(streams) = streams.upgrade() else {
                return;
            };
            pause = match streams.expire() {
                Ok(pause) => pause,
                Err(StreamsError::Closed) => return,
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot expire records; trying again later");
                    Some(EXPIRY_RETRY)
                }
            };
            match streams.reclaim() {
                Ok(0) | Err(StreamsError::Closed) => {}
                Ok(segments) => tracing::info!(segments, "freed segments without living data"),
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot free segments; trying again later");
                }
            }
        }
    };
    let spawned = thread::Builder::new()
        .name("streams-keeper".to_owned())
        .spawn(run);
    spawned
        .map(drop)
        .map_err(|error| StreamsError::Storage(Arc::new(error)))
}

impl Streams {
    /// Hides what has expired; tells how long from now the next may.
    pub(crate) fn expire(&self) -> Result<Option<Duration>, StreamsError> {
        let now = self.clock().now();
        let mut next: Option<Duration> = None;
        for topic in self.topics_snapshot() {
            let Some(ttl) = self.config().ttl(topic.name()) else {
                continue;
            };
            // What is written from now on expires no sooner than this.
            next = Some(next.map_or(ttl, |next| next.min(ttl)));
            for partition in topic.partitions() {
                let made = self.until_not_busy(|| {
                    partition.expire(now - ttl, |standing| {
                        self.append_once(&Change::Partition(standing), Durability::Memory)
                    })
                })?;
                if let Some(made) = made {
                    let age = now.since(made);
                    next = next.map(|next| next.min(ttl.saturating_sub(age)));
                }
            }
        }
        Ok(next.map(|next| next.max(EXPIRY_PAUSE_MIN)))
    }

    /// Frees what can be freed; tells how many segments went.
    pub(crate) fn reclaim(&self) -> Result<u32, StreamsError> {
        let _alone = self.reclaiming().lock();
        let journal = &self.shared().journal;
        // Whatever is appended from here on lies behind every segment that is looked at.
        let end = journal.end();
        let living = self.oldest_batch().map_or(end, |oldest| oldest.min(end));
        let segments = journal.segments();
        let freed = segments
            .iter()
            .take_while(|s| s.sealed && s.end <= living)
            .last();
        let Some(freed) = freed.map(|segment| segment.end) else {
            return Ok(0);
        };
        if self.snapshot_began() < freed {
            self.write_snapshot()?;
        }
        journal
            .reclaim(living.min(self.snapshot_began()))
            .map_err(storage)
    }

    /// Writes all that is not a batch once more and waits until it is on the disk.
    pub(crate) fn write_snapshot(&self) -> Result<(), StreamsError> {
        let began = self.shared().journal.end();
        self.snapshot_changes(&mut |change| self.append_once(change, Durability::Memory))?;
        let (kind, payload) = Change::SnapshotEnd { began: began.0 }.encode();
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &[&payload],
        };
        self.shared()
            .journal
            .append_blocking(&[frame], Durability::Disk)
            .map_err(storage)?;
        self.set_snapshot_began(began);
        Ok(())
    }

    /// Appends one change at the end of the journal, or answers `Busy`.
    fn append_once(&self, change: &Change, need: Durability) -> Result<(), StreamsError> {
        let (kind, payload) = change.encode();
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &[&payload],
        };
        self.shared()
            .journal
            .append(&[frame], need, Done::none())
            .map(drop)
            .map_err(storage)
    }
}

/// Shortest pause between two looks for expired records: finer than anybody sets the age, and a
/// look passes over all partitions.
const EXPIRY_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Pause after a look that failed.
const EXPIRY_RETRY: Duration = Duration::from_secs(60);
