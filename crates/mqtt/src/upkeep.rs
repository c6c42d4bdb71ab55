//! What the server does unasked: snapshots of its journal, and `$SYS` topics while someone
//! subscribes to them. Sleeps until there is a reason.

use std::sync::Arc;

use crate::core::Core;
use crate::sys;

/// Runs until the server is closed.
pub(crate) async fn run(core: Arc<Core>) {
    tokio::select! {
        () = snapshots(&core) => {}
        () = sys::publish_while_wanted(&core) => {}
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
