//! The writing half of a link: takes what waits in the session and gives it to the socket.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::limits::WRITE_BYTES_KEPT;
use crate::session::{Output, Session};
use crate::wire::WriteHalf;

/// Writes a session's output until the link is no longer the session's.
pub(crate) async fn write_link(
    core: Arc<Core>,
    session: Arc<Session>,
    link: u64,
    cancel: CancellationToken,
    mut write: WriteHalf,
) {
    let mut bytes = Vec::new();
    let patience = core.config.stalled_subscriber_timeout.0;
    loop {
        let (output, sent) = session.take_output(link, &core.config, &mut bytes);
        core.counters.messages_sent.add(sent);
        match output {
            Output::Gone => {
                // The wake-up may have been meant for the writer of the session's new link.
                session.wake.notify_one();
                break;
            }
            Output::Idle => {
                tokio::select! {
                    () = session.wake.notified() => {}
                    () = cancel.cancelled() => break,
                }
                continue;
            }
            Output::Bytes => {}
        }
        let mut at = 0;
        while at < bytes.len() {
            let wrote = tokio::select! {
                wrote = timeout(patience, write.write(&bytes[at..])) => wrote,
                () = cancel.cancelled() => return,
            };
            match wrote {
                Ok(Ok(n)) if n > 0 => at += n,
                Err(_) => {
                    tracing::warn!(client = %session.client_id, "disconnected: took no byte for \
                        mqtt.stalled_subscriber_timeout");
                    cancel.cancel();
                    return;
                }
                Ok(_) => {
                    cancel.cancel();
                    return;
                }
            }
        }
        core.counters.bytes_sent.add(bytes.len() as u64);
        bytes.clear();
        bytes.shrink_to(WRITE_BYTES_KEPT);
    }
    let _ = write.shutdown().await;
}
