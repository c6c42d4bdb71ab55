//! The writing half of a link: takes what waits in the session and gives it to the socket.

use std::sync::Arc;

use journal::JournalError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::limits::WRITE_BYTES_KEPT;
use crate::session::{Output, Session};
use crate::wire::WriteHalf;

/// Writes a session's output until the link is cut off or no longer the session's. Gives the
/// wire back if it stands between two packets, so that a last one may follow.
pub(crate) async fn write_link(
    core: Arc<Core>,
    session: Arc<Session>,
    link: u64,
    cancel: CancellationToken,
    mut wire: WriteHalf,
) -> Option<WriteHalf> {
    let mut bytes = Vec::new();
    let patience = core.config.stalled_subscriber_timeout.0;
    loop {
        let mut terms = core.terms(core.clock.now());
        let output = session.take_output(link, &mut terms, &mut bytes);
        core.count(&terms);
        let after_journal = match output {
            Output::Gone => {
                // The wake-up may have been meant for the writer of the session's new link.
                session.wake.notify_one();
                return Some(wire);
            }
            Output::Idle => {
                tokio::select! {
                    () = session.wake.notified() => {}
                    () = cancel.cancelled() => return Some(wire),
                }
                continue;
            }
            Output::Refused(error) => {
                tokio::select! {
                    waited = wait_for_journal(&core, error) => {
                        if waited.is_none() {
                            cancel.cancel();
                            return Some(wire);
                        }
                    }
                    () = cancel.cancelled() => return Some(wire),
                }
                continue;
            }
            Output::Bytes { after_journal } => after_journal,
        };
        if after_journal {
            tokio::select! {
                durable = all_durable(&core) => {
                    if durable.is_none() {
                        cancel.cancel();
                        return Some(wire);
                    }
                }
                () = cancel.cancelled() => return Some(wire),
            }
        }
        let mut at = 0;
        while at < bytes.len() {
            let wrote = tokio::select! {
                wrote = timeout(patience, wire.write(&bytes[at..])) => wrote,
                () = cancel.cancelled() => return None,
            };
            match wrote {
                Ok(Ok(n)) if n > 0 => at += n,
                Err(_) => {
                    tracing::warn!(client = %session.client_id, "disconnected: took no byte for \
                        mqtt.stalled_subscriber_timeout");
                    cancel.cancel();
                    return None;
                }
                Ok(_) => {
                    cancel.cancel();
                    return None;
                }
            }
        }
        core.counters.bytes_sent.add(bytes.len() as u64);
        bytes.clear();
        bytes.shrink_to(WRITE_BYTES_KEPT);
    }
}

/// Waits until all that was journaled so far has the configured durability; `None` when it never
/// will.
async fn all_durable(core: &Core) -> Option<()> {
    loop {
        match core.store.mark() {
            Ok(wait) => match wait.await {
                Ok(()) => return Some(()),
                Err(error) => {
                    tracing::warn!(error = %base::report(&error), "the MQTT journal failed");
                    return None;
                }
            },
            Err(error) => wait_for_journal(core, error).await?,
        }
    }
}

/// Waits for room in the journal when it is merely busy; `None` when it does not work.
async fn wait_for_journal(core: &Core, error: JournalError) -> Option<()> {
    if !matches!(error, JournalError::Busy) {
        tracing::warn!(error = %base::report(&error), "the MQTT journal does not take more");
        return None;
    }
    core.store.room(0).await;
    Some(())
}
