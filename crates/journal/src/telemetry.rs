//! What the journal counts for its operators.

use std::sync::atomic::AtomicU64;

use base::Histogram;

/// Figures of the group commits since the journal was opened.
#[derive(Debug)]
pub struct Telemetry {
    /// How long the disk took for each sync.
    pub sync_seconds: Histogram,
    /// Bytes that each pass of the writer wrote.
    pub commit_bytes: Histogram,
    /// Calls that each sync answered.
    pub commit_calls: Histogram,
    /// Commits of callers that carried what they appended (see [`Carrier`](crate::Carrier)).
    pub carried: AtomicU64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            sync_seconds: Histogram::of_durations(),
            commit_bytes: Histogram::of_sizes(),
            commit_calls: Histogram::of_counts(),
            carried: AtomicU64::new(0),
        }
    }
}
