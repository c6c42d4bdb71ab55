//! The write-behind: carries the registry's changes to the store, one transaction for all.
//!
//! Sleeps until something changed, then gathers for the configured time unless somebody waits
//! for a commit; those who wait while one runs share the next. Looks for time-outs only while
//! operations are under way, so an idle fleet wakes for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fleet::Inner;
use crate::limits;

/// What wakes the write-behind, and what it tells.
#[derive(Debug)]
pub struct Signals {
    changed: Notify,
    hurry: Notify,
    hurried: AtomicBool,
    /// Whether the last write failed: then nobody waits for the next one.
    failing: AtomicBool,
    /// One more than the last generation that is durable.
    committed: watch::Sender<u64>,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals {
            changed: Notify::new(),
            hurry: Notify::new(),
            hurried: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            committed: watch::Sender::new(0),
        }
    }
}

impl Signals {
    /// Tells that something changed.
    pub fn change(&self) {
        self.changed.notify_one();
    }

    /// Asks for a commit at once and waits until `generation` is durable; false when that takes
    /// longer than `COMMIT_WAIT`, or at once while the database is away.
    pub async fn durable(&self, generation: u64) -> bool {
        let mut committed = self.committed.subscribe();
        if self.failing.load(Ordering::Acquire) {
            self.changed.notify_one();
            return *committed.borrow() > generation;
        }
        self.hurried.store(true, Ordering::Release);
        self.changed.notify_one();
        self.hurry.notify_one();
        let wait = committed.wait_for(|next| *next > generation);
        matches!(
            tokio::time::timeout(limits::COMMIT_WAIT, wait).await,
            Ok(Ok(_))
        )
    }

    /// Tells that the database took nothing.
    pub fn fail(&self) {
        self.failing.store(true, Ordering::Release);
    }

    /// Tells that everything up to `generation` is durable.
    pub fn commit(&self, generation: u64) {
        self.failing.store(false, Ordering::Release);
        self.committed
            .send_modify(|next| *next = (*next).max(generation + 1));
    }
}

/// Runs until `stop`; the caller writes what is left after that.
pub async fn run(fleet: Arc<Inner>, stop: CancellationToken) {
    let (mut swept, mut sweep_after) = (Instant::now(), None);
    loop {
        let sweeping = fleet.registry.lock().has_active();
        let woken = async {
            if sweeping {
                let _ =
                    tokio::time::timeout(limits::SWEEP_INTERVAL, fleet.signals.changed.notified())
                        .await;
            } else {
                fleet.signals.changed.notified().await;
            }
        };
        tokio::select! {
            () = woken => {}
            () = stop.cancelled() => return,
        }
        // Not with each write: many are made a second while agents are at work.
        if swept.elapsed() >= limits::SWEEP_INTERVAL {
            sweep_after = fleet.sweep(sweep_after);
            swept = Instant::now();
        }
        gather(&fleet, fleet.config.write_behind.0, &stop).await;
        if let Err(error) = fleet.flush().await {
            fleet.signals.fail();
            tracing::error!(error = %base::report(&error), "cannot write what agents said");
            tokio::select! {
                () = tokio::time::sleep(limits::WRITE_RETRY) => {}
                () = stop.cancelled() => return,
            }
            // What was put back is a change again.
            fleet.signals.change();
        }
    }
}

/// Waits for more to write, but not when somebody waits for this.
async fn gather(fleet: &Inner, wait: Duration, stop: &CancellationToken) {
    let until = Instant::now() + wait;
    while !fleet.signals.hurried.swap(false, Ordering::AcqRel) {
        tokio::select! {
            () = fleet.signals.hurry.notified() => {}
            () = tokio::time::sleep_until(until) => return,
            () = stop.cancelled() => return,
        }
    }
}
