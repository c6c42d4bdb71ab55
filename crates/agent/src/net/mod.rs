//! What the network processors share: TLS by files, sockets with deadlines, HTTP both ways.

pub(crate) mod frames;
pub(crate) mod http_bounds;
pub(crate) mod http_client;
pub(crate) mod http_server;
pub(crate) mod limits;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod socket;
pub(crate) mod streams;
pub(crate) mod tls;

use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::engine::Context;
use crate::limits::STOP_WAIT;

/// Runs `future` on the processor's own thread; gives up a while after a stop was asked for.
///
/// `None` when it was given up: what the peer made of it is then not known.
pub(crate) fn run_until_stop<T>(context: &Context, future: impl Future<Output = T>) -> Option<T> {
    let mut value = None;
    let keeping = async { value = Some(future.await) };
    drive_until_stop(context, std::pin::pin!(keeping));
    value
}

/// The same for every future, so that the program has it once.
fn drive_until_stop(context: &Context, mut future: Pin<&mut dyn Future<Output = ()>>) {
    context.runtime().block_on(async {
        let mut stop_seen: Option<Instant> = None;
        loop {
            match tokio::time::timeout(STOP_LOOK, future.as_mut()).await {
                Ok(()) => return,
                Err(_) if context.is_stopping() => {
                    let since = *stop_seen.get_or_insert_with(Instant::now);
                    if since.elapsed() > STOP_WAIT {
                        return;
                    }
                }
                Err(_) => {}
            }
        }
    });
}

/// How often something that waits for a peer looks whether it should stop.
pub(crate) const STOP_LOOK: Duration = Duration::from_millis(200);
