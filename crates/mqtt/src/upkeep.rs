//! What the server does unasked: snapshots of its journal, and `$SYS` topics while someone
//! subscribes to them. Sleeps until there is a reason.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::Core;
use crate::error::MqttError;
use crate::message::{Message, Qos};

/// Runs until the server is closed.
pub(crate) async fn run(core: Arc<Core>) {
    tokio::select! {
        () = snapshots(&core) => {}
        () = sys_topics(&core) => {}
        () = deadlines(&core) => {}
        () = core.closed.cancelled() => {}
    }
}

async fn snapshots(core: &Core) {
    loop {
        core.store.snapshot_wanted.notified().await;
        match core.snapshot().await {
            Ok(segments) => tracing::debug!(segments, "MQTT journal condensed"),
            Err(error) => {
                tracing::error!(error = %base::report(&error), "MQTT journal not condensed");
                return std::future::pending().await;
            }
        }
    }
}

/// Publishes wills and ends sessions when they are due; sleeps until the next is.
async fn deadlines(core: &Arc<Core>) {
    loop {
        let next = core.act_on_deadlines();
        let sleep_ms = next.map_or(u64::MAX, |at| {
            u64::try_from(at.since(core.clock.now()).as_millis()).unwrap_or(u64::MAX)
        });
        // No longer than an hour, since the wall clock may be set meanwhile.
        let sleep = Duration::from_millis(sleep_ms.clamp(1, 3_600_000));
        tokio::select! {
            () = tokio::time::sleep(sleep), if next.is_some() => {}
            () = core.deadline_wanted.notified() => {}
        }
    }
}

async fn sys_topics(core: &Core) {
    loop {
        if core.sys_subscriptions.load(Ordering::Relaxed) == 0 {
            core.sys_wanted.notified().await;
            continue;
        }
        publish_sys_topics(core);
        tokio::select! {
            () = tokio::time::sleep(core.config.sys_interval.0) => {}
            // A new subscriber gets its first figures at once.
            () = core.sys_wanted.notified() => {}
        }
    }
}

fn publish_sys_topics(core: &Core) {
    let stats = core.stats();
    let away = stats.sessions.saturating_sub(stats.clients_connected);
    let numbers = [
        ("clients/connected", stats.clients_connected),
        ("clients/disconnected", away),
        ("clients/total", stats.sessions),
        ("messages/received", stats.messages_received_total),
        ("messages/sent", stats.messages_sent_total),
        ("publish/messages/received", stats.messages_received_total),
        ("publish/messages/sent", stats.messages_sent_total),
        ("publish/messages/dropped", stats.dropped_total),
        ("publish/messages/held", stats.held_total),
        ("bytes/received", stats.bytes_received_total),
        ("bytes/sent", stats.bytes_sent_total),
        ("retained messages/count", stats.retained),
        ("subscriptions/count", stats.subscriptions),
    ];
    publish(
        core,
        "version",
        concat!("thalweg ", env!("CARGO_PKG_VERSION")),
    );
    publish(
        core,
        "uptime",
        &format!("{} seconds", stats.uptime_ms / 1_000),
    );
    for (name, number) in numbers {
        publish(core, name, &number.to_string());
    }
    // Only clients that lost something, so that a healthy server with many stays quiet.
    for session in core.sessions() {
        let client = session.stats();
        let nameable = !client.client_id.contains(['+', '#', '/']);
        if client.dropped_total > 0 && nameable {
            let name = format!("clients/{}/messages/dropped", client.client_id);
            publish(core, &name, &client.dropped_total.to_string());
        }
    }
}

fn publish(core: &Core, name: &str, payload: &str) {
    let topic = format!("$SYS/broker/{name}");
    let (topic, payload) = (topic.as_str(), payload.as_bytes());
    let received = core.clock.now();
    let message = Message {
        topic,
        payload,
        qos: Qos::AtMostOnce,
        received,
        ..Message::default()
    };
    match core.publish(&message, false) {
        // A figure that finds no room is replaced by the next one.
        Ok(()) | Err(MqttError::Busy | MqttError::Closed) => {}
        Err(error) => tracing::warn!(topic, error = %base::report(&error), "figure not published"),
    }
}
