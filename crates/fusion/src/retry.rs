//! Rests between attempts at something that is to go on for as long as the process does.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::limits::RETRY_WAIT;

/// Attempts one after another, each after a longer rest than the one before.
pub struct Retries {
    wait: Duration,
    began: Instant,
}

impl Retries {
    /// The first attempt begins.
    pub fn new() -> Self {
        Retries {
            wait: RETRY_WAIT.0,
            began: Instant::now(),
        }
    }

    /// Rests after an attempt that failed, and begins the next one; false when `stop` came first.
    /// An attempt that went well for long is followed by a short rest.
    pub async fn rest(&mut self, stop: &CancellationToken) -> bool {
        if self.began.elapsed() > RETRY_WAIT.1 {
            self.wait = RETRY_WAIT.0;
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(self.wait) => {}
        }
        self.wait = (self.wait * 2).min(RETRY_WAIT.1);
        self.began = Instant::now();
        true
    }
}
