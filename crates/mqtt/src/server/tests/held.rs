//! Subscribers that are slow, and what it costs the others.

use std::time::Duration;

use base::{ByteSize, HumanDuration};

use super::client::{Client, publish};
use super::{Running, until};
use crate::config::MqttConfig;
use crate::stats::ClientStats;

/// Small queues, so that the sockets' own buffers matter less, and little patience.
fn small() -> MqttConfig {
    MqttConfig {
        packet_bytes_max: ByteSize::kib(64),
        queue_bytes_max: ByteSize::kib(64),
        slow_subscriber_grace: HumanDuration(Duration::from_millis(300)),
        ..MqttConfig::default()
    }
}

fn of(running: &Running, id: &str) -> ClientStats {
    running
        .server
        .clients()
        .into_iter()
        .find(|c| c.client_id == id)
        .unwrap_or_default()
}

/// Sends numbered messages of 1 kB as fast as the server reads.
fn flood(mut client: Client, topic: &'static str, count: u32) -> tokio::task::JoinHandle<Client> {
    tokio::spawn(async move {
        let mut payload = [b'.'; 1_000];
        for n in 0..count {
            payload[..4].copy_from_slice(&n.to_be_bytes());
            client.send(&publish(topic, &payload, 0, false, 0)).await;
        }
        client
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn a_slow_reader_holds_back_its_publisher_and_loses_nothing() {
    let grace = HumanDuration(Duration::from_secs(60));
    let running = Running::start(MqttConfig {
        slow_subscriber_grace: grace,
        ..small()
    })
    .await;
    let mut slow = running.client("slow").await;
    slow.subscribe("a", 0).await;
    let publisher = flood(running.client("p").await, "a", 20_000);
    until("the publisher is held", || {
        running.server.stats().held_total > 0
    })
    .await;
    assert!(
        of(&running, "slow").queued_bytes < 256 * 1024,
        "the queue outgrew its bound"
    );
    for n in 0..20_000u32 {
        assert_eq!(slow.message().await.1[..4], n.to_be_bytes());
    }
    publisher.await.unwrap();
    assert_eq!(running.server.stats().dropped_total, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn a_subscriber_that_stops_reading_loses_counted_messages_and_others_none() {
    let running = Running::start(small()).await;
    let mut dead = running.client("dead").await;
    dead.subscribe("a", 0).await;
    let mut live = running.client("live").await;
    live.subscribe("a", 0).await;
    let publisher = flood(running.client("p").await, "a", 20_000);
    for n in 0..20_000u32 {
        assert_eq!(live.message().await.1[..4], n.to_be_bytes());
    }
    let _publisher = publisher.await.unwrap();
    let (dropped, of_dead) = (running.server.stats().dropped_total, of(&running, "dead"));
    assert!(dropped > 1_000, "only {dropped} were dropped");
    assert_eq!(of_dead.dropped_total, dropped);
    assert_eq!(of(&running, "live").dropped_total, 0);
    // What was not dropped is all there, in order, when it reads again.
    let mut last = None;
    for _ in 0..20_000 - dropped {
        let n = dead.message().await.1[..4].to_vec();
        assert!(last < Some(n.clone()), "out of order");
        last = Some(n);
    }
    dead.expect_nothing().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn a_qos_1_subscriber_that_acknowledges_nothing_is_cut_off_and_keeps_its_queue() {
    let running = Running::start(small()).await;
    let mut dead = Client::connect(running.port, "dead", false).await;
    dead.subscribe("a", 1).await;
    let mut publisher = running.client("p").await;
    for id in 1..=200u16 {
        publisher
            .send(&publish("a", &[b'.'; 1_000], 1, false, id))
            .await;
        assert_eq!(publisher.packet().await.0, 0x40);
    }
    until("the slow one is cut off", || {
        !of(&running, "dead").connected
    })
    .await;
    let away = of(&running, "dead");
    assert!(
        away.dropped_total > 0 && away.queued_bytes <= 66 * 1024,
        "{away:?}"
    );
    drop(dead);
    let mut dead = Client::connect(running.port, "dead", false).await;
    for _ in 0..200 - away.dropped_total {
        let (_, _, _, id) = dead.message().await;
        dead.send(&[0x40, 2, (id >> 8) as u8, id as u8]).await;
    }
    dead.expect_nothing().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn a_client_that_takes_no_byte_for_too_long_is_disconnected() {
    let patience = HumanDuration(Duration::from_millis(400));
    let running = Running::start(MqttConfig {
        stalled_subscriber_timeout: patience,
        ..small()
    })
    .await;
    let mut dead = running.client("dead").await;
    dead.subscribe("a", 0).await;
    let publisher = flood(running.client("p").await, "a", 20_000);
    until("it is gone", || {
        of(&running, "dead") == ClientStats::default()
    })
    .await;
    publisher.await.unwrap();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn retained_messages_beyond_the_queues_bound_all_arrive() {
    let running = Running::start(small()).await;
    let mut publisher = running.client("p").await;
    for n in 0..2_000u32 {
        let topic = format!("r/{n:05}");
        publisher
            .send(&publish(&topic, &[b'.'; 500], 0, true, 0))
            .await;
    }
    publisher.expect_nothing().await;
    let mut subscriber = running.client("s").await;
    subscriber.subscribe("r/#", 1).await;
    publisher
        .send(&publish("r/00000", b"newer", 0, false, 0))
        .await;
    for n in 0..2_000u32 {
        assert_eq!(subscriber.message().await.0, format!("r/{n:05}"));
    }
    // The old value never follows the new one.
    subscriber.expect("r/00000", "newer").await;
    running.stop().await;
}
