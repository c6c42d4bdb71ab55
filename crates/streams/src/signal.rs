//! A bell that partitions ring when something about them changes.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Told of the changes of the partitions that it watches ([`crate::Partition::watch`]), and
/// remembers that it was.
///
/// Clear it, look, then wait: a change that the look missed has set it again.
#[derive(Debug, Default)]
pub struct Signal {
    is_set: AtomicBool,
    bell: Notify,
}

impl Signal {
    /// One that was told nothing yet.
    pub fn new() -> Self {
        Signal::default()
    }

    /// Tells it.
    pub fn tell(&self) {
        self.is_set.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Waits until it is told; returns at once when it was since the last wait ended.
    pub async fn told(&self) {
        self.bell.notified().await;
    }

    /// Whether it was told since it was cleared.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Forgets that it was told.
    pub fn clear(&self) {
        // Reads what it overwrites, so that what was changed before is seen after.
        self.is_set.swap(false, Ordering::AcqRel);
    }
}
