//! The journal of what outlives the process; [`crate::records`] says what lies in it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::{
    Disk, Done, Durability, DurableWait, Frame, FrameRef, Journal, JournalError, JournalOptions,
    Position,
};
use tokio::sync::Notify;

use crate::config::{MqttConfig, StoreDurability};
use crate::error::MqttError;
use crate::limits::{
    JOURNAL_PREALLOCATE_BYTES, JOURNAL_RESERVE_BYTES, JOURNAL_SEGMENT_BYTES, SNAPSHOT_AFTER_BYTES,
};
use crate::records::{Change, Recovered, VERSION};

/// The journal of one server.
pub(crate) struct Store {
    journal: Journal,
    need: Durability,
    next_number: AtomicU64,
    appended_bytes: AtomicU64,
    snapshot_at_bytes: AtomicU64,
    /// Told when enough was appended for a snapshot.
    pub(crate) snapshot_wanted: Notify,
}

impl Store {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &MqttConfig,
    ) -> Result<(Store, Recovered), MqttError> {
        let mut recovered = Recovered::new();
        // The largest packets must fit in a segment, and what one client may have waiting among
        // the pending bytes.
        let floor_bytes = 4 * config.packet_bytes_max.0;
        let pending_bytes = floor_bytes.max(2 * config.queue_bytes_max.0);
        let options = JournalOptions {
            segment_bytes: JOURNAL_SEGMENT_BYTES.max(floor_bytes.next_power_of_two()),
            preallocate_bytes: JOURNAL_PREALLOCATE_BYTES,
            pending_bytes_max: JOURNAL_SEGMENT_BYTES.max(pending_bytes),
            reserve_bytes: JOURNAL_RESERVE_BYTES,
            ..JournalOptions::default()
        };
        let mut visit = |frame: FrameRef<'_>| {
            recovered.apply(&frame);
            Ok(())
        };
        let (journal, recovery) =
            Journal::open(disk, dir, options, &mut visit).map_err(|source| MqttError::Journal {
                doing: "open",
                source,
            })?;
        if let Some(cut) = &recovery.cut {
            tracing::warn!(
                ?cut,
                "the MQTT journal ended in an unfinished write, which was cut"
            );
        }
        let store = Store {
            need: match config.durability {
                StoreDurability::Memory => Durability::Memory,
                StoreDurability::Os => Durability::Os,
                StoreDurability::Disk => Durability::Disk,
            },
            next_number: AtomicU64::new(recovered.next_number),
            appended_bytes: AtomicU64::new(recovery.bytes),
            snapshot_at_bytes: AtomicU64::new(SNAPSHOT_AFTER_BYTES),
            snapshot_wanted: Notify::new(),
            journal,
        };
        Ok((store, recovered))
    }

    /// The configured durability.
    pub(crate) fn need(&self) -> Durability {
        self.need
    }

    /// A number that no session or queued message has had.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends a change without waiting; it is with the operating system soon.
    ///
    /// # Errors
    /// `JournalError::Busy` when there is no room for now: nothing was written, wait for
    /// [`Store::room`].
    pub(crate) fn put(&self, change: Change<'_>) -> Result<(), JournalError> {
        self.put_all(&[change])
    }

    /// As [`Store::put`], of at most [`PUT_AT_ONCE`] changes: all of them or, on `Busy`, none.
    pub(crate) fn put_all(&self, changes: &[Change<'_>]) -> Result<(), JournalError> {
        let need = Durability::Os.min_level(self.need);
        self.append(false, changes, need, Done::none())
    }

    /// As [`Store::put_all`], of what lives and is put once more for a snapshot: it may take the reserve.
    pub(crate) fn put_again(&self, changes: &[Change<'_>]) -> Result<(), JournalError> {
        let need = Durability::Os.min_level(self.need);
        self.append(true, changes, need, Done::none())
    }

    /// A wait for the configured durability of all changes so far.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub(crate) fn mark(&self) -> Result<DurableWait, JournalError> {
        self.mark_as(false)
    }

    fn mark_as(&self, is_vital: bool) -> Result<DurableWait, JournalError> {
        let (done, wait) = Done::channel(self.need);
        self.append(is_vital, &[Change::Mark], self.need, done)?;
        Ok(wait)
    }

    /// Waits for the configured durability of all changes so far, for room too.
    ///
    /// # Errors
    /// As [`Store::put`], but never `Busy`.
    pub(crate) async fn durable(&self) -> Result<(), JournalError> {
        self.durable_as(false).await
    }

    async fn durable_as(&self, is_vital: bool) -> Result<(), JournalError> {
        loop {
            match self.mark_as(is_vital) {
                Ok(wait) => return wait.await,
                Err(JournalError::Busy) => self.room(0).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until a message of the largest size fits among the pending bytes.
    pub(crate) async fn room(&self, bytes: usize) {
        self.journal.room(bytes as u64 + 1024).await;
    }

    /// The position before which nothing is needed once all that lives now is put again.
    pub(crate) fn end(&self) -> Position {
        self.journal.end()
    }

    /// Ends a snapshot that began at `low_water`, once it is durable: removes what lies before it.
    pub(crate) async fn reclaim(&self, low_water: Position) -> Result<u32, JournalError> {
        self.durable_as(true).await?;
        let written = self.journal.end().0.saturating_sub(low_water.0);
        // The next one is due when the journal has doubled, so that the cost of snapshots stays
        // in proportion to what is appended.
        self.appended_bytes.store(0, Ordering::Relaxed);
        self.snapshot_at_bytes
            .store(SNAPSHOT_AFTER_BYTES.max(written), Ordering::Relaxed);
        self.journal.reclaim(low_water)
    }

    /// Whether a failed write or sync has stopped it until it is opened again.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.journal.is_poisoned()
    }

    pub(crate) fn close(&self) -> Result<(), JournalError> {
        self.journal.close()
    }

    /// Appends the changes together; `is_vital`: they help to free space.
    fn append(
        &self,
        is_vital: bool,
        changes: &[Change<'_>],
        need: Durability,
        done: Done,
    ) -> Result<(), JournalError> {
        assert!(changes.len() <= PUT_AT_ONCE, "{} at once", changes.len());
        let mut heads: [Vec<u8>; PUT_AT_ONCE] = Default::default();
        let mut encoded = [(0, [&b""[..]; 3]); PUT_AT_ONCE];
        for ((change, head), encoded) in changes.iter().zip(&mut heads).zip(&mut encoded) {
            head.reserve(64);
            *encoded = change.encode(head);
        }
        let parts: [[&[u8]; 4]; PUT_AT_ONCE] = std::array::from_fn(|at| {
            let [first, second, third] = encoded[at].1;
            [heads[at].as_slice(), first, second, third]
        });
        let frames: [Frame<'_>; PUT_AT_ONCE] = std::array::from_fn(|at| Frame {
            kind: encoded[at].0,
            version: VERSION,
            parts: &parts[at],
        });
        let frames = &frames[..changes.len()];
        let bytes: u64 = frames.iter().map(Frame::framed_len).sum();
        if is_vital {
            self.journal.append_vital(frames, need, done)?;
        } else {
            self.journal.append(frames, need, done)?;
        }
        let appended = self.appended_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if appended > self.snapshot_at_bytes.load(Ordering::Relaxed) {
            self.snapshot_wanted.notify_one();
        }
        Ok(())
    }
}

/// Changes that are appended together at most: a message, and what became of it.
pub(crate) const PUT_AT_ONCE: usize = 3;

/// The lower of two levels, without relying on an order of the journal's type.
trait MinLevel {
    fn min_level(self, other: Durability) -> Durability;
}

impl MinLevel for Durability {
    fn min_level(self, other: Durability) -> Durability {
        match (self, other) {
            (Durability::Memory, _) | (_, Durability::Memory) => Durability::Memory,
            (Durability::Os, _) | (_, Durability::Os) => Durability::Os,
            _ => Durability::Disk,
        }
    }
}
