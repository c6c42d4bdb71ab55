//! What the server does unasked: snapshots of its journal, and `$SYS` topics while someone
//! subscribes to them. Sleeps until there is a reason.

use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::sys;

/// Runs until the server is closed.
pub(crate) async fn run(core: Arc<Core>) {
    tokio::select! {
        () = snapshots(&core) => {}
        () = sys::publish_while_wanted(&core) => {}
        () = deadlines(&core) => {}
        () = core.closed.cancelled() => {}
    }
}

async fn snapshots(core: &Core) {
    loop {
        core.store.snapshot_wanted.notified().await;
        match core.snapshot().await {
            Ok(segments) => tracing::debug!(segments, "MQTT journal condensed"),
            Err(error) => {
                tracing::error!(error = %base::report(&error), "MQTT journal not condensed");
                return std::future::pending().await;
            }
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
