//! QoS 2 both ways, over reconnects and restarts.

use super::super::Running;
use super::{Connect, publish, two};
use crate::config::MqttConfig;

#[tokio::test]
pub(in crate::server) async fn a_message_to_a_client_goes_through_four_packets_once() {
    let running = Running::start(MqttConfig::default()).await;
    let mut subscriber = Connect::new("s").go(running.port).await;
    assert_eq!(subscriber.subscribe5(&[], &[("t", 2)]).await, [2]);
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x34, "t", 5, &[], "once")).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 5]));
    let got = subscriber.got().await;
    assert_eq!(
        (got.qos(), got.is_dup(), got.payload.as_str()),
        (2, false, "once")
    );
    subscriber.ack(0x50, got.id).await;
    let id = got.id.to_be_bytes().to_vec();
    assert_eq!(subscriber.packet().await, (0x62, id.clone()));
    // A PUBREC that comes twice is answered twice, and PUBLISH does not come back.
    subscriber.ack(0x50, got.id).await;
    assert_eq!(subscriber.packet().await, (0x62, id));
    subscriber.ack(0x70, got.id).await;
    subscriber.expect_nothing().await;
    let clients = running.server.clients();
    let own = clients.iter().find(|c| c.client_id == "s").unwrap();
    assert_eq!((own.inflight, own.queued_bytes), (0, 0));
    publisher.ack(0x62, 5).await;
    assert_eq!(publisher.packet().await, (0x70, vec![0, 5]));
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn delivery_goes_on_where_it_was_after_reconnect_and_restart() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.subscribe5(&[], &[("t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for (id, payload) in [(1, "a"), (2, "b"), (3, "c")] {
        publisher.send(&publish(0x34, "t", id, &[], payload)).await;
        publisher.packet().await;
    }
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(keeper.got().await.id);
    }
    keeper.ack(0x50, ids[0]).await;
    assert_eq!(keeper.packet().await, (0x62, ids[0].to_be_bytes().to_vec()));
    drop(keeper);
    let running = running.restart(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    // The first was received: only PUBREL comes. The others come with DUP and their identifiers.
    assert_eq!(keeper.packet().await, (0x62, ids[0].to_be_bytes().to_vec()));
    for (id, payload) in [(ids[1], "b"), (ids[2], "c")] {
        let got = keeper.got().await;
        assert_eq!(
            (got.id, got.payload.as_str(), got.is_dup()),
            (id, payload, true)
        );
    }
    keeper.ack(0x70, ids[0]).await;
    for id in &ids[1..] {
        keeper.ack(0x50, *id).await;
        assert_eq!(keeper.packet().await, (0x62, id.to_be_bytes().to_vec()));
        keeper.ack(0x70, *id).await;
    }
    keeper.expect_nothing().await;
    keeper.leave().await;
    let running = running.restart(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn retained_messages_go_on_where_they_were_after_a_restart() {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    // All that is above a megabyte together is journaled as it leaves.
    let large = "x".repeat(12_000);
    let many = (0..100).map(|number| (format!("many/{number:03}"), large.as_str()));
    let few = ["few/1", "few/2", "few/3"].map(|topic| (topic.to_owned(), "x"));
    for (topic, payload) in many.chain(few) {
        publisher
            .send(&publish(0x35, &topic, 1, &[], payload))
            .await;
        assert_eq!(publisher.packet().await, (0x50, vec![0, 1]));
        publisher.ack(0x62, 1).await;
        assert_eq!(publisher.packet().await.0, 0x70);
    }
    for (filter, topics) in [
        ("few/#", ["few/1", "few/2", "few/3"]),
        ("many/#", ["many/000", "many/001", "many/002"]),
    ] {
        // Two at once.
        let connect = || Connect::kept(filter, 600).with(two(33, 2));
        let mut keeper = connect().go(running.port).await;
        keeper.subscribe5(&[], &[(filter, 2)]).await;
        for topic in &topics[..2] {
            assert_eq!(keeper.got().await.topic, *topic);
        }
    }
    let running = running.restart(MqttConfig::default()).await;
    for (filter, waited) in [("few/#", Some("few/3")), ("many/#", None)] {
        let mut keeper = Connect::kept(filter, 600).go(running.port).await;
        let (first, second) = (keeper.got().await, keeper.got().await);
        assert!(first.is_dup() && second.is_dup() && first.is_retained());
        assert_eq!((first.id, second.id), (1, 2), "of {filter}");
        if let Some(topic) = waited {
            let third = keeper.got().await;
            assert_eq!((third.topic.as_str(), third.is_dup()), (topic, false));
            assert!(third.id > 2, "its identifier is under way");
        }
        keeper.expect_nothing().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_retained_message_that_was_received_is_released_after_a_restart() {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x35, "t", 1, &[], "old")).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 1]));
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.subscribe5(&[], &[("t", 2)]).await;
    let old = keeper.got().await;
    let id = old.id.to_be_bytes().to_vec();
    keeper.ack(0x50, old.id).await;
    assert_eq!(keeper.packet().await, (0x62, id.clone()));
    let running = running.restart(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    assert_eq!(keeper.packet().await, (0x62, id));
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x34, "t", 1, &[], "new")).await;
    let new = keeper.got().await;
    assert_eq!((new.payload.as_str(), new.is_dup()), ("new", false));
    assert_ne!(new.id, old.id, "the client would take it for the old one");
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_publisher_may_repeat_itself_until_it_released_the_identifier() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = Connect::new("w").go(running.port).await;
    watcher.subscribe5(&[], &[("t", 0)]).await;
    let mut publisher = Connect::kept("p", 600).go(running.port).await;
    publisher.send(&publish(0x34, "t", 5, &[], "x")).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 5]));
    drop(publisher);
    let mut publisher = Connect::kept("p", 600).go(running.port).await;
    publisher.send(&publish(0x3c, "t", 5, &[], "x")).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 5]));
    for reason in [vec![0, 5], vec![0, 5, 0x92]] {
        publisher.ack(0x62, 5).await;
        assert_eq!(
            publisher.packet().await,
            (0x70, reason),
            "the second finds nothing"
        );
    }
    publisher.send(&publish(0x34, "t", 5, &[], "y")).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 5]));
    for payload in ["x", "y"] {
        assert_eq!(watcher.got().await.payload, payload);
    }
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_client_may_refuse_a_message_and_does_not_get_it_again() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.subscribe5(&[], &[("t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for first in [0x32, 0x34] {
        publisher.send(&publish(first, "t", 1, &[], "no")).await;
        publisher.packet().await;
        let got = keeper.got().await;
        let [high, low] = got.id.to_be_bytes();
        let kind = if got.qos() == 1 { 0x40 } else { 0x50 };
        keeper.send(&[kind, 3, high, low, 0x97]).await;
        keeper.expect_nothing().await;
    }
    drop(keeper);
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.expect_nothing().await;
    // Nothing is known of this identifier.
    keeper.ack(0x50, 99).await;
    assert_eq!(keeper.packet().await, (0x62, vec![0, 99, 0x92]));
    running.stop().await;
}
