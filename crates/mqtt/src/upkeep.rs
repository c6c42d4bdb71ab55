//! What the server does unasked: snapshots of its journal, and `$SYS` topics while someone
//! subscribes to them. Sleeps until there is a reason.

use std::sync::Arc;
use std::time::Duration;

use journal::JournalError;

use crate::core::Core;
use crate::limits::{SNAPSHOT_PAUSE_MAX, SNAPSHOT_PAUSE_MIN};
use crate::sys;

/// Runs until the server is closed.
pub(crate) async fn run(core: Arc<Core>) {
    tokio::select! {
        () = snapshots(&core, SNAPSHOT_PAUSE_MIN) => {}
        () = sys::publish_while_wanted(&core) => {}
        () = deadlines(&core) => {}
        () = core.closed.cancelled() => {}
    }
}

/// Condenses the journal whenever that is due. What fails is tried again after `pause_min`, and then
/// ever more slowly; only a journal that has stopped for good is left alone.
pub(crate) async fn snapshots(core: &Core, pause_min: Duration) {
    loop {
        core.store.snapshot_wanted.notified().await;
        let mut pause = pause_min;
        let segments = loop {
            let error = match core.snapshot().await {
                Ok(segments) => break segments,
                Err(error) => error,
            };
            let report = base::report(&error);
            if matches!(error, JournalError::Poisoned { .. } | JournalError::Closed) {
                tracing::error!(error = %report, "MQTT journal not condensed");
                return std::future::pending().await;
            }
            // Told once, not at each try.
            if pause == pause_min {
                tracing::error!(error = %report, "MQTT journal not condensed; it is tried again");
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(SNAPSHOT_PAUSE_MAX);
        };
        if pause > pause_min {
            tracing::info!(segments, "MQTT journal condensed after all");
        } else {
            tracing::debug!(segments, "MQTT journal condensed");
        }
    }
}

/// Publishes wills and ends sessions when they are due; sleeps until the next is.
async fn deadlines(core: &Arc<Core>) {
    loop {
        let next = core.act_on_deadlines();
        let sleep_ms = next.map_or(u64::MAX, |at| {
            u64::try_from(at.since(core.clock.now()).as_millis()).unwrap_or(u64::MAX)
        });
        // No longer than an hour, since the wall clock may be set meanwhile.
        let sleep = Duration::from_millis(sleep_ms.clamp(1, 3_600_000));
        tokio::select! {
            () = tokio::time::sleep(sleep), if next.is_some() => {}
            () = core.deadline_wanted.notified() => {}
        }
    }
}
