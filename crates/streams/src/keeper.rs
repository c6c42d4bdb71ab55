//! Frees segments that hold nothing living, on a thread of its own that sleeps until told.
//!
//! A segment at the journal's front can go when no living batch lies in it, a complete snapshot of
//! all that is not a batch was begun after it, and the disk knows what let go of its batches. So a
//! look is: where does the oldest living batch
//! lie; does that free a whole segment; if so, write a snapshot (unless the last one will do) and
//! reclaim. Nothing is written when nothing can be freed.
//!
//! Topics may have an age at which their records expire, and a size above which the oldest go. The
//! keeper hides them when they get there; it sleeps until the oldest of them does, or until the
//! youngest possible could, and for ever when no topic has such an age. What compaction, snapshots
//! and the mover do, they do on this thread too.
//!
//! A full disk refuses what clients write. What the keeper writes, and what lets go of records,
//! goes into a reserve that the journal has allocated, so that a store on a full disk gets free by
//! retention and deletion alone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use base::UnixMillis;
use journal::{Done, Durability, Frame, Position};
use parking_lot::{Condvar, Mutex};

use crate::error::StreamsError;
use crate::frames::{Change, VERSION, version_of};
use crate::limits::{CHUNK_BATCHES_MIN, RECLAIM_CHECK_BYTES, SNAPSHOT_AFTER_BYTES};
use crate::mover::SPARE_SEGMENTS;
use crate::partition::{Partition, storage};
use crate::setbacks::Setbacks;
use crate::store::{Streams, reserve_of};

/// Wakes the keeper's thread.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    told: Mutex<Told>,
    bell: Condvar,
    /// Position at which the next look is due.
    due: AtomicU64,
    /// Somebody was told that the disk is full since the last look that found it so.
    is_full: AtomicBool,
    /// Whether the last look found no group whose offsets could expire one day.
    without_groups: AtomicBool,
}

#[derive(Debug, Default)]
struct Told {
    look: bool,
    stop: bool,
    /// Partitions that hold more than they are to keep.
    over: Vec<Arc<Partition>>,
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

    /// Tells that the disk is full; what can be freed is looked for now and then from here on.
    pub(crate) fn note_full(&self) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            self.look();
        }
    }

    /// Tells that a group may have something that expires one day.
    pub(crate) fn note_groups(&self) {
        if self.without_groups.load(Ordering::Relaxed)
            && self.without_groups.swap(false, Ordering::Relaxed)
        {
            self.look();
        }
    }

    /// Writes down whether the next look is not meant for groups.
    pub(crate) fn sleeps_without_groups(&self, without: bool) {
        self.without_groups.store(without, Ordering::Relaxed);
    }

    /// Asks for a look now.
    pub(crate) fn look(&self) {
        self.told.lock().look = true;
        self.bell.notify_one();
    }

    /// Tells that a partition holds more bytes than it is to keep.
    pub(crate) fn trim(&self, partition: &Arc<Partition>) {
        self.told.lock().over.push(Arc::clone(partition));
        self.bell.notify_one();
    }

    /// Ends the thread after the look that it is at.
    pub(crate) fn stop(&self) {
        self.told.lock().stop = true;
        self.bell.notify_one();
    }

    /// Waits to be told, or for `pause`; none when the thread is to end.
    fn wait(&self, deadline: Option<Instant>) -> Option<Told> {
        let mut told = self.told.lock();
        while !told.look && !told.stop && told.over.is_empty() {
            match deadline {
                None => self.bell.wait(&mut told),
                Some(deadline) if self.bell.wait_until(&mut told, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        if told.stop {
            return None;
        }
        Some(std::mem::take(&mut *told))
    }
}

/// Starts the thread; it ends with [`Keeper::stop`], which dropping the store calls too.
pub(crate) fn start(streams: &Arc<Streams>) -> Result<(), StreamsError> {
    // Neither the store nor its journal: those end when their users let go of them.
    let keeper = Arc::clone(&streams.shared().keeper);
    let streams: Weak<Streams> = Arc::downgrade(streams);
    let run = move || {
        let mut deadline = Some(Instant::now());
        while let Some(told) = keeper.wait(deadline) {
            let Some(streams) = streams.upgrade() else {
                return;
            };
            for partition in told.over {
                if let Err(error) = streams.trim(&partition) {
                    let error = base::report(&error);
                    tracing::warn!(error, ?partition, "cannot trim; trying again later");
                }
            }
            if !told.look && deadline.is_none_or(|deadline| Instant::now() < deadline) {
                continue;
            }
            let pause = match streams.expire_all() {
                Ok(pause) => pause,
                Err(StreamsError::Closed) => return,
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot expire what is old; trying again later");
                    Some(EXPIRY_RETRY)
                }
            };
            let compacts = match streams.compact_due() {
                Ok(pause) => pause,
                Err(StreamsError::Closed) => return,
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot compact; trying again later");
                    Some(EXPIRY_RETRY)
                }
            };
            let pause = pause.into_iter().chain(compacts).min();
            deadline = pause.and_then(|pause| Instant::now().checked_add(pause));
            match streams.snapshot_if_due() {
                Ok(()) | Err(StreamsError::Closed) => {}
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot write a snapshot; trying again later");
                }
            }
            match streams.move_living(SPARE_SEGMENTS) {
                Ok(0) | Err(StreamsError::Closed) => {}
                Ok(bytes) => tracing::debug!(bytes, "moved living batches to the journal's end"),
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "cannot move living batches; trying again later");
                }
            }
            let is_full = streams.shared().journal.is_full();
            keeper.is_full.store(is_full, Ordering::Relaxed);
            if is_full {
                let again = Instant::now() + FULL_RETRY;
                deadline = Some(deadline.map_or(again, |deadline| deadline.min(again)));
            }
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
    /// Does away with records and offsets that have expired; tells when to come again.
    fn expire_all(&self) -> Result<Option<Duration>, StreamsError> {
        // Each has its turn, whatever the others come to.
        let records = self.expire();
        let offsets = self.expire_offsets();
        let producers = self.expire_producers();
        let tenants = self.expire_tenants();
        let offsets = offsets?.map(|next| next.max(EXPIRY_PAUSE_MIN));
        let all = records?.into_iter().chain(offsets).chain(producers);
        Ok(all.chain(tenants?).min())
    }

    /// Forgets idempotent producers that have been silent for too long; tells how long from now
    /// the next may go. Nothing is written: their batches tell their times.
    pub(crate) fn expire_producers(&self) -> Option<Duration> {
        let age = self.config().producer_id_expiration.0;
        if age.is_zero() {
            return None;
        }
        let now = self.clock().now();
        let before = UnixMillis(now.0.saturating_sub(ms(age)));
        let topics = self.topics_snapshot();
        let partitions = topics.iter().flat_map(|topic| topic.partitions());
        let oldest = partitions
            .filter_map(|partition| partition.expire_producers(self.opened_at(), before))
            .min()?;
        // A little late, so that many that were silent together are forgotten in one look.
        Some(age.saturating_sub(now.since(oldest)) + age / PRODUCERS_LATE_SHARE)
    }

    /// Hides what has expired; tells how long from now the next may.
    pub(crate) fn expire(&self) -> Result<Option<Duration>, StreamsError> {
        let now = self.clock().now();
        let mut next: Option<Duration> = None;
        let mut setbacks = Setbacks::default();
        for topic in self.topics_snapshot() {
            let settings = topic.settings();
            if settings.deletion_bytes().is_some() {
                for partition in topic.partitions() {
                    setbacks.pass(partition, self.trim(partition))?;
                }
            }
            let Some(age) = settings.deletion_age() else {
                continue;
            };
            // What is written from now on expires no sooner than this.
            next = Some(next.map_or(age, |next| next.min(age)));
            // Looking a little late saves looking for every single batch of a long past.
            let late = (age / EXPIRY_LATE_SHARE).max(EXPIRY_PAUSE_MIN);
            let before = UnixMillis(now.0.saturating_sub(ms(age)));
            for partition in topic.partitions() {
                let made = self.until_not_busy(|| {
                    partition.expire(before, |standing| {
                        self.append_once(&Change::Partition(standing), Durability::Memory)
                    })
                });
                if let Some(made) = setbacks.pass(partition, made)?.flatten() {
                    let left = age.saturating_sub(now.since(made)).max(late);
                    next = next.map(|next| next.min(left));
                }
            }
        }
        setbacks.result()?;
        Ok(next.map(|next| next.max(EXPIRY_PAUSE_MIN)))
    }

    /// Hides the oldest batches of a partition that holds more bytes than it is to keep.
    pub(crate) fn trim(&self, partition: &Partition) -> Result<(), StreamsError> {
        let Some(keep) = partition.settings().deletion_bytes() else {
            return Ok(());
        };
        self.until_not_busy(|| {
            partition.trim(keep, |standing| {
                self.append_once(&Change::Partition(standing), Durability::Memory)
            })
        })
    }

    /// Writes a snapshot when the journal has grown enough since the last one: it bounds what an
    /// opening reads, and what the indexes take of memory.
    pub(crate) fn snapshot_if_due(&self) -> Result<(), StreamsError> {
        let _alone = self.reclaiming().lock();
        let began = self.snapshot_began();
        let end = self.shared().journal.end();
        // A snapshot of very many partitions is written the more seldom, the larger it is.
        if end.0 - began.0 < SNAPSHOT_AFTER_BYTES.max(4 * self.snapshot_bytes()) {
            return Ok(());
        }
        self.write_snapshot(CHUNK_BATCHES_MIN)
    }

    /// Writes a snapshot now.
    pub(crate) fn snapshot_now(&self) -> Result<(), StreamsError> {
        let _alone = self.reclaiming().lock();
        self.write_snapshot(CHUNK_BATCHES_MIN)
    }

    /// Writes a snapshot with chunks of this size.
    #[cfg(test)]
    pub(crate) fn snapshot(&self, chunk_batches: usize) -> Result<(), StreamsError> {
        let _alone = self.reclaiming().lock();
        self.write_snapshot(chunk_batches)
    }

    /// Frees what can be freed; tells how many segments went.
    pub(crate) fn reclaim(&self) -> Result<u32, StreamsError> {
        let _alone = self.reclaiming().lock();
        let journal = &self.shared().journal;
        // Whatever is appended from here on lies behind every segment that is looked at.
        let end = journal.end();
        let living = self.oldest_batch().map_or(end, |oldest| oldest.min(end));
        // What let go of a batch (a deletion, a later start) told the journal so before this.
        let told = journal.end();
        let segments = journal.segments();
        let freed = segments
            .iter()
            .take_while(|s| s.sealed && s.end <= living)
            .last();
        let Some(freed) = freed.map(|segment| segment.end) else {
            return Ok(0);
        };
        // One that knows where the living batches of these segments were moved.
        if self.snapshot_began() < freed.max(self.moved_until()) {
            match self.write_snapshot(CHUNK_BATCHES_MIN) {
                // The last one may do for some of the segments.
                Err(StreamsError::Full) if self.moved_until() <= self.snapshot_began() => {}
                written => written?,
            }
        }
        if journal.durable_end() < told {
            // Else a crash could bring back who needs what is gone.
            journal
                .append_blocking(&[], Durability::Disk)
                .map_err(storage)?;
        }
        let _alone = self.shared().freeing.lock();
        journal
            .reclaim(living.min(self.snapshot_began()))
            .map_err(storage)
    }

    /// Writes all that is not a batch once more and waits until it is on the disk.
    ///
    /// Chunks of the indexes with at least `chunk_batches` batches go out of memory first; openings
    /// begin here from now on.
    fn write_snapshot(&self, chunk_batches: usize) -> Result<(), StreamsError> {
        let journal = &self.shared().journal;
        // One that breaks off has taken the room of the next.
        if journal.is_full() && self.snapshot_estimate()? > journal.room_ahead() {
            return Err(StreamsError::Full);
        }
        for topic in self.topics_snapshot() {
            for partition in topic.partitions() {
                partition.put_chunks_away(chunk_batches)?;
            }
        }
        let began = self.shared().journal.end();
        self.snapshot_changes(&mut |change| self.append_once(change, Durability::Memory))?;
        let (kind, payload) = Change::SnapshotEnd { began: began.0 }.encode();
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &[&payload],
        };
        let placed = journal
            .append_vital_blocking(&[frame], Durability::Disk)
            .map_err(storage)?;
        self.set_snapshot(began, placed.end);
        // Twice, since it grows until the next, and as much again for what moves.
        let reserve = reserve_of(self.config());
        journal.set_reserve(reserve.max(3 * self.snapshot_bytes()));
        journal.mark(began).map_err(storage)
    }

    /// Bytes that a snapshot takes at most if it is written now.
    pub(crate) fn snapshot_estimate(&self) -> Result<u64, StreamsError> {
        let (mut bytes, mut largest) = (0, 0);
        self.snapshot_changes(&mut |change| {
            let (_, payload) = change.encode();
            let framed = payload.len() as u64 + journal::FRAME_OVERHEAD_BYTES;
            bytes += framed;
            largest = framed.max(largest);
            Ok(())
        })?;
        // Chunks that are put away have frames of their own, and where a segment ends there may be
        // no room for a frame.
        Ok(bytes + bytes / 8 + largest)
    }

    /// Appends one change at the end of the journal, or answers `Busy`.
    pub(crate) fn append_once(
        &self,
        change: &Change,
        need: Durability,
    ) -> Result<(), StreamsError> {
        let (kind, payload) = change.encode();
        let frame = Frame {
            kind,
            version: version_of(kind),
            parts: &[&payload],
        };
        // What the keeper writes frees segments, sooner or later.
        self.shared()
            .journal
            .append_vital(&[frame], need, Done::none())
            .map(drop)
            .map_err(storage)
    }
}

/// A duration in whole ms.
fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Records may stay visible longer by this share of the age at which they expire.
const EXPIRY_LATE_SHARE: u32 = 1_000;

/// Producers may be remembered longer by this share of the time after which they are forgotten.
const PRODUCERS_LATE_SHARE: u32 = 100;

/// Shortest pause between two looks for expired records: finer than anybody sets the age, and a
/// look passes over all partitions.
const EXPIRY_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Pause between two looks while the disk is full.
const FULL_RETRY: Duration = Duration::from_secs(10);

/// Pause after a look that failed.
const EXPIRY_RETRY: Duration = Duration::from_secs(60);
