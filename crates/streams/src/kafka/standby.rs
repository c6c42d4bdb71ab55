//! What a fetch session watches, kept from one fetch of it to the next.
//!
//! A client that waits for records asks again whenever its wait is over, and mostly nothing has
//! happened. As long as none of the session's partitions has told of a change since the last
//! answer, and the client asks for nothing else, the answer is the same: nothing. It needs neither
//! a look at the partitions nor watches of its own.

use std::sync::Arc;

use access::Snapshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::partition::Watch;
use crate::{Isolation, Partition, Signal, StreamsError};

/// Watches on partitions.
pub(super) struct Standby {
    signal: Arc<Signal>,
    watches: Vec<Watch>,
    isolation: Isolation,
    /// What decided that the client may read them.
    rules: Option<Arc<Snapshot>>,
}

impl Standby {
    /// Watches these partitions. Errors: one is deleted or has too many who watch it.
    pub(super) fn on<'p>(
        partitions: impl Iterator<Item = &'p Arc<Partition>>,
        isolation: Isolation,
        rules: Option<Arc<Snapshot>>,
    ) -> Result<Self, StreamsError> {
        let signal = Arc::new(Signal::new());
        let watches: Result<Vec<Watch>, StreamsError> = partitions
            .map(|partition| partition.watch(&signal))
            .collect();
        Ok(Standby {
            signal,
            watches: watches?,
            isolation,
            rules,
        })
    }

    /// Whether it watches exactly these.
    pub(super) fn watches<'p>(
        &self,
        mut partitions: impl Iterator<Item = &'p Arc<Partition>>,
    ) -> bool {
        let mut watched = self.watches.iter().map(Watch::partition);
        loop {
            match (watched.next(), partitions.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {}
                _ => return false,
            }
        }
    }

    /// Whether nothing has changed that could change the answer to the same question.
    pub(super) fn holds(&self, isolation: Isolation, rules: Option<&Arc<Snapshot>>) -> bool {
        let same_rules = match (&self.rules, rules) {
            (None, None) => true,
            (Some(then), Some(now)) => Arc::ptr_eq(then, now),
            _ => false,
        };
        same_rules && self.isolation == isolation && !self.signal.is_set()
    }

    /// Forgets what was told before the partitions are looked at.
    pub(super) fn clear(&self) {
        self.signal.clear();
    }

    /// Waits for a change; false when the time is over or the listener stops.
    pub(super) async fn changed(&self, until: Instant, stop: &CancellationToken) -> bool {
        tokio::select! {
            () = self.signal.told() => true,
            () = tokio::time::sleep_until(until) => false,
            () = stop.cancelled() => false,
        }
    }

    /// Whether a change was told since it was cleared.
    pub(super) fn is_told(&self) -> bool {
        self.signal.is_set()
    }
}

impl std::fmt::Debug for Standby {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Standby").field(&self.watches).finish()
    }
}
