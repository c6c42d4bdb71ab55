//! The server's and the bridges' figures as metrics, beside the counters that are told as they grow.

use base::{Exposition, MetricKind};

use crate::bridge::Bridges;
use crate::limits::METRICS_CLIENTS_MAX;
use crate::server::Server;

impl Server {
    /// Tells how much there is now, and for which clients most was dropped.
    pub fn observe(&self, out: &mut Exposition) {
        let stats = self.stats();
        let gauges = [
            (
                "clients",
                "links that are past their CONNECT",
                stats.clients_connected,
            ),
            (
                "sessions",
                "sessions, those of clients that are away included",
                stats.sessions,
            ),
            (
                "subscriptions",
                "subscriptions, in-process ones included",
                stats.subscriptions,
            ),
            ("retained_messages", "retained messages", stats.retained),
            (
                "retained_bytes",
                "topic and payload bytes of retained messages",
                stats.retained_bytes,
            ),
        ];
        for (name, help, value) in gauges {
            out.gauge(&format!("thalweg_mqtt_{name}"), help, value as f64);
        }
        out.gauge(
            "thalweg_mqtt_journal_poisoned",
            "1 when a failed write or sync has stopped the server's journal until the next start",
            f64::from(u8::from(self.is_poisoned())),
        );
        out.counter(
            "thalweg_mqtt_connections_total",
            "connections that came, those without a CONNECT included",
            stats.connections_total,
        );
        let mut losing = self.clients();
        losing.retain(|client| client.dropped_total > 0);
        losing.sort_by_key(|client| std::cmp::Reverse(client.dropped_total));
        let name = "thalweg_mqtt_client_dropped_total";
        let help = "messages dropped for a client; the ones that lost most";
        let mut family = out.family(MetricKind::Counter, name, help);
        for client in losing.iter().take(METRICS_CLIENTS_MAX) {
            let labels = [("client_id", client.client_id.as_str())];
            family.value(&labels, client.dropped_total as f64);
        }
    }
}

impl Bridges {
    /// Tells how each bridge is.
    pub fn observe(&self, out: &mut Exposition) {
        out.gauge(
            "thalweg_mqtt_bridge_journals_poisoned",
            "1 when a failed write or sync has stopped a bridge's journal until the next start",
            f64::from(u8::from(self.is_poisoned())),
        );
        let bridges = self.list();
        type Of = fn(&crate::bridge::BridgeStatus) -> u64;
        let families: [(MetricKind, &str, &str, Of); 9] = [
            (
                MetricKind::Gauge,
                "connected",
                "1 when the other broker has taken it in",
                |b| u64::from(b.connected),
            ),
            (
                MetricKind::Gauge,
                "queued_messages",
                "messages that wait for the other broker",
                |b| b.queued,
            ),
            (MetricKind::Gauge, "queued_bytes", "bytes of these", |b| {
                b.queued_bytes
            }),
            (
                MetricKind::Counter,
                "sent_total",
                "messages that the other broker has",
                |b| b.sent_total,
            ),
            (
                MetricKind::Counter,
                "received_total",
                "messages that came in",
                |b| b.received_total,
            ),
            (
                MetricKind::Counter,
                "dropped_total",
                "messages that found no room, were refused, were set aside or had expired",
                |b| b.dropped_total,
            ),
            (
                MetricKind::Counter,
                "set_aside_total",
                "messages over which the other broker ended one connection after the other",
                |b| b.set_aside_total,
            ),
            (
                MetricKind::Gauge,
                "journal_poisoned",
                "1 when a failed write or sync has stopped its journal until the next start",
                |b| u64::from(b.failed),
            ),
            (
                MetricKind::Counter,
                "looped_total",
                "messages that had been here before",
                |b| b.looped_total,
            ),
        ];
        for (kind, name, help, of) in families {
            let name = format!("thalweg_mqtt_bridge_{name}");
            let mut family = out.family(kind, &name, help);
            for bridge in &bridges {
                let labels = [("bridge", bridge.config.name.as_str())];
                family.value(&labels, of(bridge) as f64);
            }
        }
    }
}
