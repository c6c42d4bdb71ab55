//! Rests between attempts at something that is to go on for as long as the process does.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::limits::RETRY_WAIT;

/// Attempts one after another, each after a longer rest than the one before.
pub struct Retries {
    /// The first and the longest rest.
    bounds: (Duration, Duration),
    wait: Duration,
    began: Instant,
}

impl Retries {
    /// The first attempt begins.
    pub fn new() -> Self {
        Retries::within(RETRY_WAIT)
    }

    /// The first attempt begins; rests are from the first of these to the second.
    pub fn within(bounds: (Duration, Duration)) -> Self {
        Retries {
            bounds,
            wait: bounds.0,
            began: Instant::now(),
        }
    }

    /// Rests after an attempt that failed, and begins the next one; false when `stop` came first.
    /// An attempt that went well for long is followed by a short rest.
    pub async fn rest(&mut self, stop: &CancellationToken) -> bool {
        let (first, longest) = self.bounds;
        if self.began.elapsed() > longest {
            self.wait = first;
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(self.wait) => {}
        }
        self.wait = (self.wait * 2).min(longest);
        self.began = Instant::now();
        true
    }
}
