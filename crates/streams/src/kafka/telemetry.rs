//! What the listener counts.

use metrics::{Counter, Gauge, counter, gauge};

use super::api::Api;

/// The listener's metrics, looked up once.
pub(super) struct Telemetry {
    requests: Vec<Counter>,
    pub(super) bytes_in: Counter,
    pub(super) bytes_out: Counter,
    pub(super) connections: Gauge,
    pub(super) fetch_waits: Counter,
    pub(super) refused: Counter,
    pub(super) throttled: Counter,
}

impl Telemetry {
    pub(super) fn new(apis: &'static [Api]) -> Self {
        let requests = apis
            .iter()
            .map(|api| counter!("thalweg_streams_kafka_requests_total", "api" => api.name))
            .collect();
        Telemetry {
            requests,
            bytes_in: counter!("thalweg_streams_kafka_received_bytes_total"),
            bytes_out: counter!("thalweg_streams_kafka_sent_bytes_total"),
            connections: gauge!("thalweg_streams_kafka_connections_count"),
            fetch_waits: counter!("thalweg_streams_kafka_fetch_waits_total"),
            refused: counter!("thalweg_streams_kafka_refused_requests_total"),
            throttled: counter!("thalweg_streams_kafka_throttled_requests_total"),
        }
    }

    /// Counts a request of the API at `index` of the table.
    pub(super) fn count_request(&self, index: usize) {
        if let Some(requests) = self.requests.get(index) {
            requests.increment(1);
        }
    }
}
