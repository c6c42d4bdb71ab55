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
use crate::limits::{JOURNAL_PREALLOCATE_BYTES, JOURNAL_SEGMENT_BYTES, SNAPSHOT_AFTER_BYTES};
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
        // The largest packets must fit in a segment, and a whole session among the pending
        // bytes, so that a snapshot of it succeeds at last.
        let floor_bytes = 4 * config.packet_bytes_max.0;
        let pending_bytes = floor_bytes.max(2 * config.queue_bytes_max.0);
        let options = JournalOptions {
            segment_bytes: JOURNAL_SEGMENT_BYTES.max(floor_bytes.next_power_of_two()),
            preallocate_bytes: JOURNAL_PREALLOCATE_BYTES,
            pending_bytes_max: JOURNAL_SEGMENT_BYTES.max(pending_bytes),
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
        self.append(change, Durability::Os.min_level(self.need), Done::none())
    }

    /// A wait for the configured durability of all changes so far.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub(crate) fn mark(&self) -> Result<DurableWait, JournalError> {
        let (done, wait) = Done::channel(self.need);
        self.append(Change::Mark, self.need, done)?;
        Ok(wait)
    }

    /// Waits until a message of the largest size fits among the pending bytes.
    pub(crate) async fn room(&self, bytes: usize) {
        self.journal.room(bytes as u64 + 1024).await;
    }

    /// The position before which nothing is needed once all that lives now is put again.
    pub(crate) fn end(&self) -> Position {
        self.journal.end()
    }

    /// Ends a snapshot that began at `low_water`: removes what lies before it.
    pub(crate) fn reclaim(&self, low_water: Position) -> Result<u32, JournalError> {
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

    fn append(&self, change: Change<'_>, need: Durability, done: Done) -> Result<(), JournalError> {
        let mut head = Vec::with_capacity(64);
        let (kind, tail) = change.encode(&mut head);
        let parts: [&[u8]; 4] = [&head, tail[0], tail[1], tail[2]];
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &parts,
        };
        let bytes = frame.payload_len();
        self.journal.append(&[frame], need, done)?;
        let appended = self.appended_bytes.fetch_add(bytes + 24, Ordering::Relaxed) + bytes + 24;
        if appended > self.snapshot_at_bytes.load(Ordering::Relaxed) {
            self.snapshot_wanted.notify_one();
        }
        Ok(())
    }
}

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
