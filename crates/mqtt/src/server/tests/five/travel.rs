//! What travels with a message: properties and its expiry.

use std::time::Duration;

use super::super::Running;
use super::{Connect, four, named, one, publish, user};
use crate::config::MqttConfig;

fn all() -> Vec<u8> {
    let mut all = one(1, 1);
    all.extend(named(3, "text/plain"));
    all.extend(named(8, "answer/here"));
    all.extend(named(9, "correlated"));
    all.extend(user("b", "1"));
    all.extend(user("a", "2"));
    all.extend(user("b", "3"));
    all
}

#[tokio::test]
pub(in crate::server) async fn properties_arrive_unaltered_and_in_order() {
    let running = Running::start(MqttConfig::default()).await;
    let mut live = Connect::new("live").go(running.port).await;
    live.subscribe5(&[], &[("t", 1)]).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.subscribe5(&[], &[("t", 1)]).await;
    keeper.leave().await;
    let mut old = running.client("old").await;
    old.subscribe("t", 1).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x33, "t", 1, &all(), "x")).await;
    publisher.packet().await;
    assert_eq!(live.got().await.block, all());
    // Who speaks 3.1.1 gets the message without them.
    assert_eq!(old.message().await.1, b"x");
    let running = running.restart(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    assert_eq!(keeper.got().await.block, all());
    let mut late = Connect::new("late").go(running.port).await;
    late.subscribe5(&[], &[("t", 0)]).await;
    let got = late.got().await;
    assert_eq!((got.block.clone(), got.is_retained()), (all(), true));
    let user: Vec<_> = got.properties().user().collect();
    assert_eq!(user, [("b", "1"), ("a", "2"), ("b", "3")]);
    assert_eq!(got.properties().response_topic(), Some("answer/here"));
    assert_eq!(got.properties().content_type(), Some("text/plain"));
    assert_eq!(
        got.properties().correlation_data(),
        Some(b"correlated".as_slice())
    );
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_message_expires_while_it_waits_and_its_rest_is_told() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.subscribe5(&[], &[("#", 2)]).await;
    keeper.leave().await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("t", "brief", &four(2, 1)).await;
    publisher.publish5("t", "long", &four(2, 100)).await;
    publisher
        .send(&publish(0x33, "r/brief", 1, &four(2, 1), "x"))
        .await;
    publisher.packet().await;
    publisher
        .send(&publish(0x33, "r/long", 1, &four(2, 100), "y"))
        .await;
    publisher.packet().await;
    assert_eq!(running.server.stats().retained, 2);
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    for payload in ["long", "y"] {
        let got = keeper.got().await;
        let left = got.properties().four(2).unwrap();
        assert_eq!(got.payload, payload);
        assert!((90..100).contains(&left), "{left} s are left");
    }
    keeper.expect_nothing().await;
    let mut late = Connect::new("late").go(running.port).await;
    late.subscribe5(&[], &[("r/#", 0)]).await;
    assert_eq!(late.got().await.topic, "r/long");
    late.expect_nothing().await;
    assert_eq!(running.server.stats().retained, 1);
    let running = running.restart(MqttConfig::default()).await;
    assert_eq!(running.server.stats().retained, 1);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_message_that_was_sent_is_delivered_past_its_expiry() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    keeper.subscribe5(&[], &[("t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher
        .send(&publish(0x34, "t", 1, &four(2, 1), "x"))
        .await;
    publisher.packet().await;
    let sent = keeper.got().await;
    assert_eq!(sent.properties().four(2), Some(1));
    drop(keeper);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let mut keeper = Connect::kept("k", 600).go(running.port).await;
    let again = keeper.got().await;
    assert_eq!((again.id, again.is_dup()), (sent.id, true));
    keeper.ack(0x50, again.id).await;
    assert_eq!(keeper.packet().await.0, 0x62);
    // And the publisher's own sequence goes on as well.
    publisher.ack(0x62, 1).await;
    assert_eq!(publisher.packet().await, (0x70, vec![0, 1]));
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn text_that_is_none_is_refused() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = Connect::new("w").go(running.port).await;
    watcher.subscribe5(&[], &[("#", 0)]).await;
    let mut client = Connect::new("c").go(running.port).await;
    for (first, ack) in [(0x32, 0x40), (0x34, 0x50)] {
        let mut bytes = publish(first, "t", 1, &one(1, 1), "x");
        *bytes.last_mut().unwrap() = 0xff;
        client.send(&bytes).await;
        assert_eq!(client.packet().await, (ack, vec![0, 1, 0x99]));
        // The identifier stands for another message now.
        client.send(&publish(first, "t", 1, &one(1, 1), "ok")).await;
        assert_eq!(client.packet().await, (ack, vec![0, 1]));
        assert_eq!(watcher.got().await.payload, "ok");
    }
    assert_eq!(running.server.stats().refused_total, 2);
    let mut bytes = publish(0x30, "t", 0, &one(1, 1), "x");
    *bytes.last_mut().unwrap() = 0xff;
    client.send(&bytes).await;
    client.told_to_go(0x99).await;
    watcher.expect_nothing().await;
    running.stop().await;
}
