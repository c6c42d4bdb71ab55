//! What only one node may do at a time: time-outs, clean-up, forgetting old changes.
//!
//! One node holds the lease, by the database's own clock, and renews it. Each change of hands
//! counts the fence up, and what is removed under the lease is removed only while the fence still
//! stands there: a node that was stopped in the middle and wakes late changes nothing. A node with
//! a database of its own always holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use sql::SqlError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fleet::Inner;
use crate::limits;

/// Whether this node holds the lease.
#[derive(Debug, Default)]
pub struct Lease {
    fence: AtomicI64,
    until: Mutex<Option<Instant>>,
}

impl Lease {
    /// The fence while this node holds the lease.
    pub fn held(&self) -> Option<i64> {
        let until = (*self.until.lock())?;
        (Instant::now() < until).then(|| self.fence.load(Ordering::Acquire))
    }

    /// Notes the outcome of a wish that was made at `asked`.
    fn note(&self, fence: Option<i64>, asked: Instant) {
        if let Some(fence) = fence {
            self.fence.store(fence, Ordering::Release);
        }
        // A little less than the database grants, so that it never seems longer than it is.
        let until = asked + limits::LEASE - limits::LEASE_MARGIN;
        *self.until.lock() = fence.map(|_| until);
    }
}

/// Runs until `stop`.
pub async fn run(fleet: Arc<Inner>, stop: CancellationToken) {
    let (mut cleaned, mut pruned) = (None::<Instant>, None::<Instant>);
    // Not at once: agents that were away with this node are to say first what they use.
    let mut unused = Instant::now();
    let mut is_left_behind = false;
    loop {
        let asked = Instant::now();
        let fits = fleet.store.still_fits().await;
        if let Err(error @ SqlError::NewerSchema { .. }) = &fits
            && !std::mem::replace(&mut is_left_behind, true)
        {
            tracing::error!(error = %base::report(error), "this node writes nothing any more");
        }
        let lease = match fits {
            Ok(()) => fleet.store.lease(LEADER, limits::LEASE).await,
            Err(SqlError::NewerSchema { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        match lease {
            Ok(fence) => {
                let before = fleet.lease.held();
                fleet.lease.note(fence, asked);
                if fence.is_some() && before != fence {
                    tracing::info!(fence, "this node does what only one node may do");
                }
            }
            Err(error) => {
                tracing::warn!(error = %base::report(&error), "cannot ask for the fleet's lease");
            }
        }
        if let Some(fence) = fleet.lease.held() {
            // That looks at all agents: each second only while there are many to remove.
            if cleaned.is_none_or(|at| at.elapsed() >= limits::CLEAN_INTERVAL) {
                cleaned = (!fleet.clean(fence).await).then_some(asked);
            }
            fleet.advance_rollouts().await;
            if pruned.is_none_or(|at| at.elapsed() >= limits::PRUNE_INTERVAL) {
                fleet.prune(fence).await;
                pruned = Some(asked);
            }
            if unused.elapsed() >= limits::UNUSED_INTERVAL {
                fleet.remove_unused(fence).await;
                unused = asked;
            }
        }
        fleet.sweep_names();
        fleet.look_at_certificates();
        fleet.look(fleet.lease.held().is_some());
        tokio::select! {
            () = tokio::time::sleep(limits::LEASE_RENEWAL) => {}
            () = stop.cancelled() => break,
        }
    }
    // The next node need not wait.
    if fleet.lease.held().is_some()
        && let Err(error) = fleet.store.give_back(LEADER).await
    {
        tracing::debug!(error = %base::report(&error), "the lease runs out by itself");
    }
}

const LEADER: &str = "leader";
