//! What clients may rely on from packet to packet.

use std::time::Duration;

use base::{HumanDuration, Rng};
use tokio::io::AsyncWriteExt;

use super::client::{Client, connect, packet, publish, subscribe};
use super::{Running, until};
use crate::config::MqttConfig;

#[tokio::test]
pub(super) async fn messages_of_all_qualities_reach_a_subscriber_once() {
    let running = Running::start(MqttConfig::default()).await;
    let mut subscriber = running.client("s").await;
    let filters = [("a/#", 2), ("a/+", 0), ("a/b", 1)];
    subscriber.send(&subscribe(5, &filters)).await;
    assert_eq!(subscriber.packet().await, (0x90, vec![0, 5, 2, 0, 1]));
    let mut publisher = running.client("p").await;
    publisher.send(&publish("a/b", b"zero", 0, false, 0)).await;
    publisher.send(&publish("a/b", b"one", 1, false, 7)).await;
    publisher.send(&publish("a/b", b"two", 2, false, 8)).await;
    assert_eq!(publisher.packet().await, (0x40, vec![0, 7]));
    assert_eq!(publisher.packet().await, (0x50, vec![0, 8]));
    // The same QoS 2 packet again is answered and not handed on again.
    publisher.send(&publish("a/b", b"two", 2, false, 8)).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 8]));
    publisher.send(&[0x62, 2, 0, 8]).await;
    assert_eq!(publisher.packet().await, (0x70, vec![0, 8]));
    // Overlapping filters: one copy, with the highest quality.
    subscriber.expect("a/b", "zero").await;
    for (payload, first, id) in [(b"one", 0x32, 1), (b"two", 0x34, 2)] {
        let got = subscriber.message().await;
        assert_eq!(got, ("a/b".to_owned(), payload.to_vec(), first, id));
    }
    subscriber.expect_nothing().await;
    subscriber
        .send(&packet(0xa2, b"\0\x06\0\x03a/#\0\x03a/+\0\x03a/b"))
        .await;
    assert_eq!(subscriber.packet().await, (0xb0, vec![0, 6]));
    publisher.send(&publish("a/b", b"late", 1, false, 9)).await;
    assert_eq!(publisher.packet().await, (0x40, vec![0, 9]));
    subscriber.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn retained_messages_are_set_replaced_and_deleted() {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = running.client("p").await;
    for payload in ["old", "new"] {
        publisher
            .send(&publish("r/a", payload.as_bytes(), 1, true, 1))
            .await;
        publisher.packet().await;
    }
    for (topic, payload) in [("r/b", "b"), ("r/c/d", "d"), ("rr", "other"), ("r/b", "")] {
        publisher
            .send(&publish(topic, payload.as_bytes(), 0, true, 0))
            .await;
    }
    publisher.expect_nothing().await;
    let mut subscriber = running.client("s").await;
    subscriber.subscribe("r/#", 0).await;
    for (topic, payload) in [("r/a", "new"), ("r/c/d", "d")] {
        let got = subscriber.message().await;
        assert_eq!(
            got,
            (topic.to_owned(), payload.into(), 0x31, 0),
            "the retain flag is set"
        );
    }
    // To who subscribes already the flag is clear.
    publisher.send(&publish("r/a", b"newer", 0, true, 0)).await;
    let got = subscriber.message().await;
    assert_eq!(got, ("r/a".to_owned(), b"newer".to_vec(), 0x30, 0));
    let running = running.restart(MqttConfig::default()).await;
    let mut subscriber = running.client("s").await;
    subscriber.subscribe("r/+", 1).await;
    subscriber.expect("r/a", "newer").await;
    subscriber.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn a_will_is_published_unless_the_client_says_goodbye() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = running.client("watcher").await;
    watcher.subscribe("w/#", 0).await;
    for (topic, goodbye) in [("w/polite", true), ("w/lost", false)] {
        let mut client = Client::open(running.port).await;
        client.send(&connect("mortal", true, 0, Some(topic))).await;
        client.packet().await;
        if goodbye {
            client.leave().await;
        }
    }
    watcher.expect("w/lost", "gone").await;
    let mut first = Client::open(running.port).await;
    first
        .send(&connect("mortal", true, 0, Some("w/replaced")))
        .await;
    first.packet().await;
    let _second = running.client("mortal").await;
    first.expect_end().await;
    watcher.expect("w/replaced", "gone").await;
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn a_silent_client_is_cut_off_after_one_and_a_half_keep_alives() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Client::open(running.port).await;
    let begun = std::time::Instant::now();
    client.send(&connect("silent", true, 1, None)).await;
    client.packet().await;
    client.expect_end().await;
    let after = begun.elapsed();
    assert!(after >= Duration::from_millis(1_450), "after {after:?}");
    running.stop().await;
}

#[tokio::test]
pub(super) async fn connects_that_cannot_be_are_refused_in_the_protocols_words() {
    let timeout = HumanDuration(Duration::from_millis(400));
    let config = MqttConfig {
        connect_timeout: timeout,
        clients_max: 2,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut client = Client::open(running.port).await;
    client
        .send(b"\x10\x0f\0\x04MQTT\x03\x02\0\x3c\0\x03odd")
        .await;
    assert_eq!(client.packet().await, (0x20, vec![0, 1]));
    client.expect_end().await;
    let mut client = Client::open(running.port).await;
    client.send(&connect("", false, 0, None)).await;
    assert_eq!(client.packet().await, (0x20, vec![0, 2]));
    client.expect_end().await;
    // No CONNECT at all.
    Client::open(running.port).await.expect_end().await;
    let _kept = [running.client("").await, running.client("").await];
    until("both are in", || running.server.clients().len() == 2).await;
    let mut client = Client::open(running.port).await;
    client.send(&connect("third", true, 0, None)).await;
    assert_eq!(client.packet().await, (0x20, vec![0, 3]));
    running.stop().await;
}

#[tokio::test]
async fn an_address_has_no_more_connections_than_it_may() {
    let config = MqttConfig {
        max_connections_per_ip: 1,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let client = running.client("one").await;
    Client::open(running.port).await.ends_without_a_word().await;
    client.leave().await;
    // Its place is free a little later.
    loop {
        let mut again = Client::open(running.port).await;
        again.send(&connect("again", true, 0, None)).await;
        if again.read_packet().await.is_ok() {
            break;
        }
    }
    running.stop().await;
}

#[tokio::test]
pub(super) async fn more_subscriptions_than_allowed_fail_in_the_suback() {
    let config = MqttConfig {
        subscriptions_per_client_max: 2,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut client = running.client("c").await;
    let deep = "a/".repeat(200);
    client
        .send(&subscribe(
            1,
            &[("a", 0), ("b", 1), ("c", 0), ("a", 1), (&deep, 0)],
        ))
        .await;
    assert_eq!(
        client.packet().await,
        (0x90, vec![0, 1, 0, 1, 0x80, 1, 0x80])
    );
    running.stop().await;
}

#[tokio::test]
pub(super) async fn hostile_bytes_end_their_link_and_nothing_else() {
    let running = Running::start(MqttConfig::default()).await;
    let mut witness = running.client("witness").await;
    witness.subscribe("safe", 0).await;
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut client = Client::open(running.port).await;
        if rng.one_in(2) {
            client
                .send(&connect("hostile", rng.one_in(2), 0, None))
                .await;
        }
        let mut bytes = vec![0; 1 + rng.below(400) as usize];
        rng.fill(&mut bytes);
        if rng.one_in(2) {
            bytes[0] = 0x30 | bytes[0] & 0x0f;
        }
        let _ = client.stream.write_all(&bytes).await;
        let _ = client.stream.shutdown().await;
        client.expect_end().await;
    }
    let mut oversized = running.client("large").await;
    oversized.send(&[0x30, 0xff, 0xff, 0xff, 0x7f]).await;
    oversized.expect_end().await;
    let mut wild = running.client("wild").await;
    wild.send(&publish("safe", b"ok", 0, false, 0)).await;
    wild.send(b"\x30\x05\0\x03a/#").await;
    wild.expect_end().await;
    witness.expect("safe", "ok").await;
    until("the hostile are gone", || {
        running.server.stats().clients_connected == 1
    })
    .await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn figures_come_while_someone_subscribes_to_them() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = running.client("curious").await;
    client.subscribe("$SYS/broker/subscriptions/count", 0).await;
    client.expect("$SYS/broker/subscriptions/count", "1").await;
    client.subscribe("#", 0).await;
    client.expect_nothing().await;
    let mut forger = running.client("forger").await;
    forger
        .send(&publish("$SYS/broker/version", b"x", 0, false, 0))
        .await;
    forger.expect_end().await;
    running.stop().await;
}
