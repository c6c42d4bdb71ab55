//! The `$SYS` topics: the server's figures under Mosquitto's names, published while someone
//! subscribes to them.
//!
//! Counts are of PUBLISH packets where Mosquitto counts all. Loads are moving averages per minute
//! over 1, 5 and 15 minutes, as there; they are brought up to date when they are published, so that
//! a server that nobody looks at does nothing for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::UnixMillis;

use crate::core::Core;
use crate::error::MqttError;
use crate::limits::SYS_CLIENTS_MAX;
use crate::message::{Message, Qos};
use crate::stats::{ClientStats, ServerStats};

/// Publishes the figures whenever it is time, while someone subscribes to them.
pub(crate) async fn publish_while_wanted(core: &Arc<Core>) {
    let mut loads = Loads::new(core.opened);
    loop {
        if core.sys_subscriptions.load(Ordering::Relaxed) == 0 {
            core.sys_wanted.notified().await;
            continue;
        }
        publish_all(core, &mut loads);
        tokio::select! {
            () = tokio::time::sleep(core.config.sys_interval.0) => {}
            // A new subscriber gets its first figures at once.
            () = core.sys_wanted.notified() => {}
        }
    }
}

fn publish_all(core: &Core, loads: &mut Loads) {
    let stats = core.stats();
    let clients: Vec<ClientStats> = core.sessions().iter().map(|s| s.stats()).collect();
    publish(
        core,
        "version",
        concat!("thalweg ", env!("CARGO_PKG_VERSION")),
    );
    let uptime = format!("{} seconds", stats.uptime_ms / 1_000);
    publish(core, "uptime", &uptime);
    for (name, number) in numbers(&stats, &clients) {
        publish(core, name, &number.to_string());
    }
    loads.update(core.clock.now(), &stats);
    for (name, of_minutes) in loads.told() {
        for (minutes, load) in MINUTES.into_iter().zip(of_minutes) {
            publish(
                core,
                &format!("load/{name}/{minutes}min"),
                &format!("{load:.2}"),
            );
        }
    }
    // Only clients that lost something, so that a healthy server with many stays quiet.
    let losing = clients.iter().filter(|client| client.dropped_total > 0);
    let nameable = losing.filter(|client| !client.client_id.contains(['+', '#', '/']));
    for client in nameable.take(SYS_CLIENTS_MAX) {
        let name = format!("clients/{}/messages/dropped", client.client_id);
        publish(core, &name, &client.dropped_total.to_string());
    }
}

/// Name and value of every plain figure.
fn numbers(stats: &ServerStats, clients: &[ClientStats]) -> Vec<(&'static str, u64)> {
    let away = stats.sessions.saturating_sub(stats.clients_connected);
    let sum = |of: fn(&ClientStats) -> u64| clients.iter().map(of).sum::<u64>();
    vec![
        ("clients/connected", stats.clients_connected),
        ("clients/disconnected", away),
        ("clients/total", stats.sessions),
        ("clients/maximum", stats.clients_maximum),
        ("clients/expired", stats.sessions_expired_total),
        ("messages/received", stats.messages_received_total),
        ("messages/sent", stats.messages_sent_total),
        ("messages/inflight", sum(|client| client.inflight)),
        (
            "messages/stored",
            sum(|client| client.queued) + stats.retained,
        ),
        (
            "store/messages/count",
            sum(|client| client.queued) + stats.retained,
        ),
        (
            "store/messages/bytes",
            sum(|client| client.queued_bytes) + stats.retained_bytes,
        ),
        ("publish/messages/received", stats.messages_received_total),
        ("publish/messages/sent", stats.messages_sent_total),
        ("publish/messages/dropped", stats.dropped_total),
        ("publish/messages/refused", stats.refused_total),
        ("publish/messages/held", stats.held_total),
        ("bytes/received", stats.bytes_received_total),
        ("bytes/sent", stats.bytes_sent_total),
        ("connections/total", stats.connections_total),
        ("connections/failed", stats.handshakes_failed_total),
        ("retained messages/count", stats.retained),
        ("subscriptions/count", stats.subscriptions),
    ]
}

fn publish(core: &Core, name: &str, payload: &str) {
    let topic = format!("$SYS/broker/{name}");
    let (topic, payload) = (topic.as_str(), payload.as_bytes());
    let message = Message {
        topic,
        payload,
        qos: Qos::AtMostOnce,
        received: core.clock.now(),
        ..Message::default()
    };
    match core.publish(&message, false) {
        // A figure that finds no room is replaced by the next one.
        Ok(()) | Err(MqttError::Busy | MqttError::Closed) => {}
        Err(error) => tracing::warn!(topic, error = %base::report(&error), "figure not published"),
    }
}

/// Moving averages per minute, after the manner of Unix's load.
struct Loads {
    at: UnixMillis,
    loads: [Load; 9],
}

struct Load {
    name: &'static str,
    total: fn(&ServerStats) -> u64,
    last: u64,
    of_minutes: [f64; 3],
}

impl Loads {
    fn new(at: UnixMillis) -> Self {
        let load = |name, total| Load {
            name,
            total,
            last: 0,
            of_minutes: [0.0; 3],
        };
        Loads {
            at,
            loads: [
                load("messages/received", |s| s.messages_received_total),
                load("messages/sent", |s| s.messages_sent_total),
                load("publish/received", |s| s.messages_received_total),
                load("publish/sent", |s| s.messages_sent_total),
                load("publish/dropped", |s| s.dropped_total),
                load("bytes/received", |s| s.bytes_received_total),
                load("bytes/sent", |s| s.bytes_sent_total),
                load("connections", |s| s.connections_total),
                load("sockets", |s| s.connections_total),
            ],
        }
    }

    fn update(&mut self, now: UnixMillis, stats: &ServerStats) {
        let minutes = now.since(self.at).as_secs_f64() / 60.0;
        if minutes <= 0.0 {
            return;
        }
        self.at = now;
        for load in &mut self.loads {
            let total = (load.total)(stats);
            let rate = total.saturating_sub(load.last) as f64 / minutes;
            load.last = total;
            for (span, of_span) in MINUTES.into_iter().zip(&mut load.of_minutes) {
                let kept = (-minutes / f64::from(span)).exp();
                *of_span = *of_span * kept + rate * (1.0 - kept);
            }
        }
    }

    fn told(&self) -> impl Iterator<Item = (&'static str, [f64; 3])> {
        self.loads.iter().map(|load| (load.name, load.of_minutes))
    }
}

/// The spans of the averages.
const MINUTES: [u32; 3] = [1, 5, 15];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_load_is_told_and_an_old_one_is_forgotten() {
        let mut loads = Loads::new(UnixMillis(0));
        let mut stats = ServerStats::default();
        for step in 1..=360 {
            stats.messages_received_total += 100;
            loads.update(UnixMillis(step * 10_000), &stats);
        }
        // 600 a minute for an hour.
        let (name, of_minutes) = loads.told().next().unwrap();
        assert_eq!(name, "messages/received");
        assert!((of_minutes[0] - 600.0).abs() < 0.01, "{of_minutes:?}");
        assert!((of_minutes[2] - 600.0).abs() < 12.0, "{of_minutes:?}");
        // Nobody looks for five minutes, and nothing came.
        loads.update(UnixMillis(3_900_000), &stats);
        let (_, of_minutes) = loads.told().next().unwrap();
        assert!(
            of_minutes[0] < 5.0 && of_minutes[1] > 200.0,
            "{of_minutes:?}"
        );
        // A clock that goes back changes nothing.
        loads.update(UnixMillis(1), &stats);
        assert_eq!(loads.told().next().unwrap().1, of_minutes);
    }

    #[test]
    fn figures_have_names_of_their_own() {
        let mut names: Vec<_> = numbers(&ServerStats::default(), &[])
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
