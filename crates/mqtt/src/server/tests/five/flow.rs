//! Limits that one side tells the other: how many, how large, which numbers for topics.

use base::ByteSize;

use super::super::Running;
use super::{Connect, four, publish, two};
use crate::config::MqttConfig;

#[tokio::test]
pub(in crate::server) async fn no_more_is_under_way_than_the_client_takes() {
    let running = Running::start(MqttConfig::default()).await;
    let mut slow = Connect::new("s").with(two(33, 2)).go(running.port).await;
    slow.subscribe5(&[], &[("t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for number in 0..5 {
        assert_eq!(publisher.publish5("t", &number.to_string(), &[]).await, 0);
    }
    publisher.send(&publish(0x30, "t", 0, &[], "free")).await;
    publisher.expect_nothing().await;
    let first = slow.got().await;
    let second = slow.got().await;
    // QoS 0 and answers do not wait for room.
    assert_eq!(slow.got().await.payload, "free");
    slow.expect_nothing().await;
    slow.ack(0x40, second.id).await;
    assert_eq!(slow.got().await.payload, "2");
    slow.expect_nothing().await;
    slow.ack(0x40, first.id).await;
    assert_eq!(slow.got().await.payload, "3");
    slow.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_client_that_sends_more_at_once_than_it_may_is_disconnected() {
    let config = MqttConfig {
        receive_maximum: 3,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut client = Connect::new("c").go(running.port).await;
    for id in 1..=3 {
        client.send(&publish(0x34, "t", id, &[], "x")).await;
        assert_eq!(client.packet().await.0, 0x50);
    }
    client.ack(0x62, 1).await;
    assert_eq!(client.packet().await.0, 0x70);
    client.send(&publish(0x34, "t", 1, &[], "x")).await;
    assert_eq!(client.packet().await.0, 0x50);
    client
        .send(&publish(0x32, "t", 4, &[], "one too many"))
        .await;
    client.told_to_go(0x93).await;
    running.stop().await;
}

#[tokio::test]
async fn what_a_client_sends_again_counts_once_and_on_its_own_link_alone() {
    let config = MqttConfig {
        receive_maximum: 4,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut client = Connect::kept("c", 60).go(running.port).await;
    for id in 1..=3 {
        client.send(&publish(0x34, "t", id, &[], "x")).await;
        assert_eq!(client.packet().await.0, 0x50);
    }
    drop(client);
    let mut client = Connect::kept("c", 60).go(running.port).await;
    // Of the third one the client knows PUBREC. One comes twice, and all in one read.
    let mut bytes = Vec::new();
    for (first, id) in [(0x3c, 1), (0x3c, 2), (0x34, 4), (0x3c, 4), (0x32, 5)] {
        bytes.extend(publish(first, "t", id, &[], "x"));
    }
    client.send(&bytes).await;
    for (kind, id) in [(0x50, 1), (0x50, 2), (0x50, 4), (0x50, 4), (0x40, 5)] {
        let (first, body) = client.packet().await;
        assert_eq!((first, &body[..2]), (kind, &[0, id][..]));
    }
    client.send(&publish(0x34, "t", 6, &[], "x")).await;
    assert_eq!(client.packet().await.0, 0x50);
    client
        .send(&publish(0x34, "t", 7, &[], "one too many"))
        .await;
    client.told_to_go(0x93).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_message_too_large_for_its_client_is_dropped_and_counted() {
    let running = Running::start(MqttConfig::default()).await;
    let mut small = Connect::kept("s", 60)
        .with(four(39, 40))
        .go(running.port)
        .await;
    small.subscribe5(&[], &[("t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    let long = "x".repeat(60);
    for first in [0x30, 0x32, 0x34] {
        publisher.send(&publish(first, "t", 1, &[], &long)).await;
        publisher.send(&publish(first, "t", 2, &[], "fits")).await;
    }
    for _ in 0..3 {
        assert_eq!(small.got().await.payload, "fits");
    }
    small.expect_nothing().await;
    let clients = running.server.clients();
    let own = clients.iter().find(|c| c.client_id == "s").unwrap();
    assert_eq!((own.dropped_total, own.inflight, own.queued), (3, 2, 0));
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_packet_too_large_for_the_server_ends_the_link() {
    let config = MqttConfig {
        packet_bytes_max: ByteSize::kib(1),
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut client = Connect::new("c").go(running.port).await;
    client
        .send(&publish(0x30, "t", 0, &[], &"x".repeat(2_000)))
        .await;
    client.told_to_go(0x95).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn clients_give_numbers_to_topics() {
    let config = MqttConfig {
        topic_aliases_max: 2,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut watcher = Connect::new("w").go(running.port).await;
    watcher.subscribe5(&[], &[("#", 0)]).await;
    let mut client = Connect::kept("c", 60).go(running.port).await;
    let alias = |n| two(35, n);
    // All in one read: set, used, another, used, the first set anew, used.
    let mut bytes = Vec::new();
    for (topic, n, payload) in [
        ("one", 1, "a"),
        ("", 1, "b"),
        ("two", 2, "c"),
        ("", 2, "d"),
        ("three", 1, "e"),
        ("", 1, "f"),
        ("", 2, "g"),
    ] {
        bytes.extend(publish(0x30, topic, 0, &alias(n), payload));
    }
    client.send(&bytes).await;
    for (topic, payload) in [
        ("one", "a"),
        ("one", "b"),
        ("two", "c"),
        ("two", "d"),
        ("three", "e"),
        ("three", "f"),
        ("two", "g"),
    ] {
        let got = watcher.got().await;
        assert_eq!((got.topic.as_str(), got.payload.as_str()), (topic, payload));
        assert_eq!(
            got.properties().find(35),
            None,
            "the watcher takes no numbers"
        );
    }
    client.send(&publish(0x30, "x", 0, &alias(3), "")).await;
    client.told_to_go(0x94).await;
    // Another link knows nothing of them.
    let mut client = Connect::kept("c", 60).go(running.port).await;
    client.send(&publish(0x30, "", 0, &alias(1), "")).await;
    client.told_to_go(0x82).await;
    let mut client = Connect::new("c").go(running.port).await;
    client.send(&publish(0x30, "x", 0, &alias(0), "")).await;
    client.told_to_go(0x94).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn the_server_gives_numbers_to_topics_where_the_client_takes_them() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::kept("c", 60)
        .with(two(34, 2))
        .go(running.port)
        .await;
    client.subscribe5(&[], &[("#", 0)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for topic in ["a", "b", "c", "a", "b", "c"] {
        publisher.publish5(topic, topic, &[]).await;
    }
    for (topic, alias, payload) in [
        ("a", Some(1), "a"),
        ("b", Some(2), "b"),
        ("c", None, "c"),
        ("", Some(1), "a"),
        ("", Some(2), "b"),
        ("c", None, "c"),
    ] {
        let got = client.got().await;
        assert_eq!((got.topic.as_str(), got.payload.as_str()), (topic, payload));
        assert_eq!(got.properties().two(35), alias);
    }
    drop(client);
    let mut client = Connect::kept("c", 60)
        .with(two(34, 2))
        .go(running.port)
        .await;
    publisher.publish5("b", "b", &[]).await;
    let got = client.got().await;
    assert_eq!(
        (got.topic.as_str(), got.properties().two(35)),
        ("b", Some(1))
    );
    running.stop().await;
}
