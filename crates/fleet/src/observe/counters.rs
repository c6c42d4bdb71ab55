//! Handles of what is counted with every heartbeat: to look them up costs more than to count.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

/// What is counted with every heartbeat.
pub struct Counters {
    ok: Counter,
    error: Counter,
    bytes: Counter,
    seconds: Histogram,
}

impl Counters {
    /// Of the process's recorder, which has to be there by now.
    pub fn new() -> Counters {
        Counters {
            ok: counter!("thalweg_fleet_heartbeats_total", "result" => "ok"),
            error: counter!("thalweg_fleet_heartbeats_total", "result" => "error"),
            bytes: counter!("thalweg_fleet_heartbeat_bytes_total"),
            seconds: histogram!("thalweg_fleet_heartbeat_seconds"),
        }
    }

    /// Counts the bytes of a heartbeat, unpacked.
    pub fn heartbeat(&self, bytes: usize) {
        self.bytes.increment(bytes as u64);
    }

    /// Counts a heartbeat that was answered, or refused.
    pub fn answered(&self, is_ok: bool, took: Duration) {
        let result = if is_ok { &self.ok } else { &self.error };
        result.increment(1);
        self.seconds.record(took);
    }
}
