//! How long a stream of records may go on: until the proxy stops, and not for ever.

use std::time::Duration;

use base::HumanDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::records::Failed;
use crate::limits::BODY_READ_MAX;
use crate::routes::Shared;

/// What bounds a stream in time.
pub(super) struct Bounds {
    closing: CancellationToken,
    open_max: Option<Duration>,
    idle_max: Option<Duration>,
    opened: Instant,
}

impl Bounds {
    pub fn of(shared: &Shared) -> Self {
        let bound = |set: HumanDuration| Some(set.0).filter(|time| !time.is_zero());
        Bounds {
            closing: shared.closing.clone(),
            open_max: bound(shared.config.streaming_connection_max_duration),
            idle_max: bound(shared.config.streaming_connection_idle_timeout),
            opened: Instant::now(),
        }
    }

    /// The end of a stream that may not go on.
    pub fn reached(&self) -> Option<Failed> {
        if self.closing.is_cancelled() {
            return Some(Bounds::stopping());
        }
        let open_max = self.open_max?;
        (self.opened.elapsed() >= open_max).then(|| Bounds::aged(open_max))
    }

    /// The end of a stream whose record has been arriving since then, if one has.
    pub async fn grown(&self, since: Option<Instant>) -> Failed {
        match since {
            Some(since) => until(Some(BODY_READ_MAX), since).await,
            None => std::future::pending().await,
        }
        let most = HumanDuration(BODY_READ_MAX);
        let reason = format!(
            "the record did not arrive within {most}; send it and those behind it by another call"
        );
        Failed::of(408, &reason)
    }

    /// The end of a stream on which nothing comes.
    pub async fn wait(&self) -> Failed {
        tokio::select! {
            () = self.closing.cancelled() => Bounds::stopping(),
            () = until(self.open_max, self.opened) => {
                Bounds::aged(self.open_max.unwrap_or_default())
            }
            () = until(self.idle_max, Instant::now()) => {
                let idle = HumanDuration(self.idle_max.unwrap_or_default());
                let reason = format!("no record came for {idle}; send the next ones by another call");
                Failed::of(408, &reason)
            }
        }
    }

    fn stopping() -> Failed {
        let reason = "the proxy is stopping; send the records without a receipt by another call";
        Failed::of(503, reason)
    }

    fn aged(open_max: Duration) -> Failed {
        let open_max = HumanDuration(open_max);
        let reason = format!(
            "the stream has been open for {open_max}; send the records without a receipt by another \
             call"
        );
        Failed::of(408, &reason)
    }
}

/// Returns when so much time has gone since then.
async fn until(time: Option<Duration>, from: Instant) {
    match time.and_then(|time| from.checked_add(time)) {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
