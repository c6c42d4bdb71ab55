//! Counters: what came, what went, what was dropped and for whom.

use std::sync::atomic::{AtomicU64, Ordering};

/// The server's figures at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ServerStats {
    /// Links that are past their CONNECT.
    pub clients_connected: u64,
    /// Sessions, those of persistent clients that are away included.
    pub sessions: u64,
    /// PUBLISH packets taken from clients.
    pub messages_received_total: u64,
    /// PUBLISH packets sent, or queued to be sent at once, to clients.
    pub messages_sent_total: u64,
    /// Messages handed to in-process sinks, one per sink.
    pub messages_to_sinks_total: u64,
    /// Messages published by the process itself.
    pub messages_published_total: u64,
    /// Messages dropped for a client that was too slow or away too long.
    pub dropped_total: u64,
    /// Bytes read from clients.
    pub bytes_received_total: u64,
    /// Bytes written to clients.
    pub bytes_sent_total: u64,
    /// Retained messages now.
    pub retained: u64,
    /// Topic and payload bytes of the retained messages.
    pub retained_bytes: u64,
    /// Subscriptions now, in-process ones included.
    pub subscriptions: u64,
    /// How often a publisher was held back for a sink or a client.
    pub held_total: u64,
    /// Sessions that ended because their clients were away for too long.
    pub sessions_expired_total: u64,
    /// PUBLISH packets that were acknowledged with a failure and went to nobody, and messages that had
    /// waited for a client that may not see them any more.
    pub refused_total: u64,
    /// Connections that ended before their CONNECT: TLS or WebSocket failed, or took too long.
    pub handshakes_failed_total: u64,
    /// Connections that came, the failed ones included.
    pub connections_total: u64,
    /// The most connections at one time.
    pub clients_maximum: u64,
    /// Milliseconds since the server was opened.
    pub uptime_ms: u64,
}

/// One client's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ClientStats {
    /// The client's id.
    pub client_id: String,
    /// The user that it is; none when it is nobody in particular.
    pub user: Option<String>,
    /// Whether a link is open.
    pub connected: bool,
    /// Whether the session is kept when the link ends.
    pub persistent: bool,
    /// Its filters.
    pub subscriptions: u64,
    /// Messages of QoS 1 and 2 (and retained ones) waiting for it.
    pub queued: u64,
    /// Bytes waiting for it.
    pub queued_bytes: u64,
    /// Messages of QoS 1 and 2 sent and not acknowledged to the end.
    pub inflight: u64,
    /// Messages sent to it.
    pub sent_total: u64,
    /// Messages dropped for it.
    pub dropped_total: u64,
}

/// The counters behind [`ServerStats`], mirrored into the process's metrics.
pub(crate) struct Counters {
    pub(crate) clients_connected: AtomicU64,
    pub(crate) messages_received: Counter,
    pub(crate) messages_sent: Counter,
    pub(crate) messages_to_sinks: Counter,
    pub(crate) messages_published: Counter,
    pub(crate) dropped: Counter,
    pub(crate) bytes_received: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) held: Counter,
    pub(crate) expired: Counter,
    pub(crate) refused: Counter,
    pub(crate) handshakes_failed: Counter,
}

/// A number that only grows, readable here and exported as a metric.
pub(crate) struct Counter {
    total: AtomicU64,
    metric: metrics::Counter,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let counter = |name: &'static str, help: &'static str| {
            metrics::describe_counter!(name, help);
            Counter {
                total: AtomicU64::new(0),
                metric: metrics::counter!(name),
            }
        };
        let refused = "thalweg_mqtt_refused_total";
        metrics::describe_counter!(refused, "refusals of the guard");
        for what in ["connect", "publish", "subscribe", "receive"] {
            metrics::counter!(refused, "what" => what).increment(0);
        }
        Counters {
            clients_connected: AtomicU64::new(0),
            messages_received: counter(
                "thalweg_mqtt_messages_received_total",
                "PUBLISH packets from clients",
            ),
            messages_sent: counter(
                "thalweg_mqtt_messages_sent_total",
                "PUBLISH packets to clients",
            ),
            messages_to_sinks: counter(
                "thalweg_mqtt_messages_to_sinks_total",
                "messages to subscribers in the process",
            ),
            messages_published: counter(
                "thalweg_mqtt_messages_published_total",
                "messages that the process published",
            ),
            dropped: counter(
                "thalweg_mqtt_messages_dropped_total",
                "messages dropped for clients that were too slow or away too long",
            ),
            bytes_received: counter("thalweg_mqtt_received_bytes_total", "bytes from clients"),
            bytes_sent: counter("thalweg_mqtt_sent_bytes_total", "bytes to clients"),
            held: counter(
                "thalweg_mqtt_publishers_held_total",
                "how often a publisher was held back",
            ),
            expired: counter(
                "thalweg_mqtt_sessions_expired_total",
                "sessions whose clients were away for too long",
            ),
            handshakes_failed: counter(
                "thalweg_mqtt_handshakes_failed_total",
                "connections whose TLS or WebSocket failed or took too long",
            ),
            refused: counter(
                "thalweg_mqtt_messages_refused_total",
                "PUBLISH packets that were acknowledged with a failure, and messages that their client may \
                 not see any more",
            ),
        }
    }
}

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        if n > 0 {
            self.total.fetch_add(n, Ordering::Relaxed);
            self.metric.increment(n);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}
