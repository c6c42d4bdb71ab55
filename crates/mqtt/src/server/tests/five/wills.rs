//! Wills with delay and properties.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, ManualClock, SystemClock};

use super::super::client::Client;
use super::super::{Running, until};
use super::{Connect, disconnect, four, user};
use crate::config::MqttConfig;
use crate::server::Server;

async fn watcher(running: &Running) -> Client {
    let mut watcher = Connect::new("watcher").go(running.port).await;
    watcher.subscribe5(&[], &[("w/#", 2 | 8)]).await;
    watcher
}

#[tokio::test]
pub(in crate::server) async fn a_will_comes_with_all_that_was_said_of_it() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = watcher(&running).await;
    let mut properties = user("a", "1");
    properties.extend(four(2, 60));
    let will = Connect::new("c").will("w/c", 0b0010_1000, properties);
    drop(will.go(running.port).await);
    let got = watcher.got().await;
    assert_eq!((got.topic.as_str(), got.payload.as_str()), ("w/c", "gone"));
    assert_eq!((got.qos(), got.is_retained()), (1, true));
    assert_eq!(got.properties().user().collect::<Vec<_>>(), [("a", "1")]);
    assert_eq!(got.properties().four(2), Some(60));
    assert_eq!(running.server.stats().retained, 1);
    drop(
        Connect::new("d")
            .will("w/d", 0, Vec::new())
            .go(running.port)
            .await,
    );
    let got = watcher.got().await;
    assert_eq!((got.topic.as_str(), got.is_retained()), ("w/d", false));
    assert_eq!(running.server.stats().retained, 1);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_goodbye_voids_the_will_and_a_goodbye_with_will_does_not() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = watcher(&running).await;
    for (topic, reason) in [("w/polite", 0), ("w/asked", 4), ("w/broken", 0x80)] {
        let mut client = Connect::new("c")
            .will(topic, 0, Vec::new())
            .go(running.port)
            .await;
        client.send(&disconnect(reason, &[])).await;
        client.expect_end().await;
    }
    for topic in ["w/asked", "w/broken"] {
        assert_eq!(watcher.got().await.topic, topic);
    }
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_will_waits_for_its_delay_unless_its_client_comes_back() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = watcher(&running).await;
    let delayed = |topic| Connect::kept("c", 600).will(topic, 0, four(24, 1));
    drop(delayed("w/void").go(running.port).await);
    let back = delayed("w/late").go(running.port).await;
    let begun = Instant::now();
    drop(back);
    assert_eq!(watcher.got().await.topic, "w/late");
    let after = begun.elapsed();
    assert!(after.as_millis() >= 900, "after {after:?}");
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn a_will_that_is_due_is_published_also_when_its_client_is_back_first() {
    let clock = ManualClock::at(SystemClock.now());
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let config = MqttConfig::default();
    let server = Server::open(dir.path(), config, Arc::new(clock.clone())).unwrap();
    let running = Running::of(dir, server).await;
    let mut watcher = watcher(&running).await;
    let connect = || Connect::kept("c", 600).will("w/due", 0, four(24, 60));
    drop(connect().go(running.port).await);
    until("its client is away", || {
        let clients = running.server.clients();
        clients.iter().any(|c| c.client_id == "c" && !c.connected)
    })
    .await;
    // The server, which sleeps by another clock, does not notice.
    clock.advance(Duration::from_secs(61));
    let _back = connect().go(running.port).await;
    assert_eq!(watcher.got().await.topic, "w/due");
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_will_does_not_outwait_its_session() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = watcher(&running).await;
    let delay = four(24, 1_000);
    drop(
        Connect::new("a")
            .will("w/at-once", 0, delay.clone())
            .go(running.port)
            .await,
    );
    assert_eq!(watcher.got().await.topic, "w/at-once");
    drop(
        Connect::kept("b", 1)
            .will("w/expired", 0, delay.clone())
            .go(running.port)
            .await,
    );
    assert_eq!(watcher.got().await.topic, "w/expired");
    let _first = Connect::kept("c", 600)
        .will("w/replaced", 0, delay)
        .go(running.port)
        .await;
    let _second = Connect::new("c").go(running.port).await;
    assert_eq!(watcher.got().await.topic, "w/replaced");
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_protocol_error_and_silence_are_deaths() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = watcher(&running).await;
    let mut rude = Connect::new("rude")
        .will("w/rude", 0, Vec::new())
        .go(running.port)
        .await;
    rude.send(&[0xc1, 0]).await;
    rude.told_to_go(0x81).await;
    assert_eq!(watcher.got().await.topic, "w/rude");
    let silent = Connect::new("silent")
        .keep_alive(1)
        .will("w/silent", 0, Vec::new());
    let _silent = silent.go(running.port).await;
    assert_eq!(watcher.got().await.topic, "w/silent");
    running.stop().await;
}
