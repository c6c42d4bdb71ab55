//! Sessions: begun, kept, taken over, expired.

use std::time::Duration;

use base::HumanDuration;

use super::super::{Running, until};
use super::{Connect, disconnect, four, publish};
use crate::config::MqttConfig;

#[tokio::test]
pub(in crate::server) async fn a_session_is_kept_for_its_expiry_and_found_again() {
    let running = Running::start(MqttConfig::default()).await;
    let (mut keeper, first) = Connect::kept("k", 60).told(running.port).await;
    assert!(!first.present, "nothing was kept yet");
    keeper.subscribe5(&[], &[("k", 1)]).await;
    keeper.leave().await;
    let mut publisher = Connect::new("p").go(running.port).await;
    assert_eq!(publisher.publish5("k", "meanwhile", &[]).await, 0);
    let (mut keeper, again) = Connect::kept("k", 60).told(running.port).await;
    assert!(again.present);
    let got = keeper.got().await;
    assert_eq!(
        (got.payload.as_str(), got.qos(), got.is_dup()),
        ("meanwhile", 1, false)
    );
    keeper.ack(0x40, got.id).await;
    keeper.leave().await;
    let (mut keeper, clean) = Connect::kept("k", 60).clean().told(running.port).await;
    assert!(!clean.present, "a clean start forgets");
    assert_eq!(publisher.publish5("k", "to nobody", &[]).await, 0);
    keeper.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_session_without_expiry_ends_with_its_link() {
    let running = Running::start(MqttConfig::default()).await;
    let mut short = Connect::kept("s", 0).go(running.port).await;
    short.subscribe5(&[], &[("s", 1)]).await;
    short.leave().await;
    until("it is gone", || running.server.stats().sessions == 0).await;
    let (_, connack) = Connect::kept("s", 0).told(running.port).await;
    assert!(!connack.present);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_session_expires_by_itself_and_over_a_restart() {
    let running = Running::start(MqttConfig::default()).await;
    Connect::kept("brief", 1)
        .go(running.port)
        .await
        .leave()
        .await;
    Connect::kept("long", 600)
        .go(running.port)
        .await
        .leave()
        .await;
    assert_eq!(running.server.stats().sessions, 2);
    until("the brief one is gone", || {
        running.server.stats().sessions == 1
    })
    .await;
    assert_eq!(running.server.stats().sessions_expired_total, 1);
    Connect::kept("brief", 1)
        .go(running.port)
        .await
        .leave()
        .await;
    let running = running.restart(MqttConfig::default()).await;
    until("it is gone again", || running.server.stats().sessions == 1).await;
    let (_, connack) = Connect::kept("long", 600).told(running.port).await;
    assert!(connack.present);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_disconnect_changes_how_long_a_session_is_kept() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::kept("c", 600).go(running.port).await;
    client.send(&disconnect(0, &four(17, 0))).await;
    client.expect_end().await;
    until("it is gone", || running.server.stats().sessions == 0).await;
    let mut client = Connect::kept("c", 0).go(running.port).await;
    client.send(&disconnect(0, &four(17, 5))).await;
    client.told_to_go(0x82).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn the_server_tells_when_it_keeps_a_session_for_less() {
    let config = MqttConfig {
        session_expiry: HumanDuration(Duration::from_secs(30)),
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let (_, connack) = Connect::kept("c", u32::MAX).told(running.port).await;
    assert_eq!(connack.properties().four(17), Some(30));
    let (_, connack) = Connect::kept("d", 30).told(running.port).await;
    assert_eq!(connack.properties().four(17), None);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_client_that_comes_again_takes_its_session_over() {
    let running = Running::start(MqttConfig::default()).await;
    let mut first = Connect::kept("c", 60).go(running.port).await;
    first.subscribe5(&[], &[("t", 1)]).await;
    let (mut second, connack) = Connect::kept("c", 60).told(running.port).await;
    assert!(connack.present);
    first.told_to_go(0x8e).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("t", "x", &[]).await;
    assert_eq!(second.got().await.payload, "x");
    let (_third, connack) = Connect::new("c").told(running.port).await;
    assert!(!connack.present);
    second.told_to_go(0x8e).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn an_operator_sends_a_client_away() {
    let running = Running::start(MqttConfig::default()).await;
    assert_eq!(running.server.disconnect("c", false).unwrap(), None);
    let mut watcher = Connect::new("w").go(running.port).await;
    watcher.subscribe5(&[], &[("gone", 0)]).await;
    let connect = Connect::kept("c", 60).will("gone", 0, Vec::new());
    let mut client = connect.go(running.port).await;
    client.subscribe5(&[], &[("t", 1)]).await;
    assert_eq!(running.server.disconnect("c", false).unwrap(), Some(true));
    client.told_to_go(0x98).await;
    // It did not say goodbye, so its will is published; its session is kept.
    assert_eq!(watcher.got().await.topic, "gone");
    until("it is away", || {
        running.server.stats().clients_connected == 1
    })
    .await;
    assert_eq!(running.server.disconnect("c", false).unwrap(), Some(false));
    let (mut client, connack) = Connect::kept("c", 60).told(running.port).await;
    assert!(connack.present);
    assert_eq!(running.server.disconnect("c", true).unwrap(), Some(true));
    client.told_to_go(0x98).await;
    let running = running.restart(MqttConfig::default()).await;
    let (_, connack) = Connect::kept("c", 60).told(running.port).await;
    assert!(!connack.present);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn the_server_says_that_it_stops() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("c").go(running.port).await;
    let stopping = tokio::spawn(running.stop());
    client.told_to_go(0x8b).await;
    stopping.await.unwrap();
}

#[tokio::test]
pub(in crate::server) async fn what_was_not_acknowledged_comes_again_in_order_with_its_identifier()
{
    let mut running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 60).go(running.port).await;
    keeper.subscribe5(&[], &[("k", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for (id, first) in [(1u16, 0x32u8), (2, 0x34), (3, 0x32), (4, 0x34)] {
        let payload = id.to_string();
        publisher
            .send(&publish(first, "k", id, &[], &payload))
            .await;
        publisher.packet().await;
    }
    let mut sent = Vec::new();
    for _ in 0..4 {
        let got = keeper.got().await;
        assert!(!got.is_dup());
        sent.push((got.id, got.payload));
    }
    // While the link stands nothing is sent again.
    keeper.expect_nothing().await;
    for is_restarted in [false, true] {
        drop(keeper);
        if is_restarted {
            running = running.restart(MqttConfig::default()).await;
        }
        keeper = Connect::kept("k", 60).go(running.port).await;
        for (id, payload) in &sent {
            let got = keeper.got().await;
            assert!(got.is_dup());
            assert_eq!((got.id, &got.payload), (*id, payload));
        }
        keeper.expect_nothing().await;
    }
    running.stop().await;
}
