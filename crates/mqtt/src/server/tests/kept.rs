//! What is kept for clients that are away, and over restarts.

use base::ByteSize;

use super::Running;
use super::client::{Client, publish};
use crate::config::MqttConfig;

fn puback(id: u16) -> [u8; 4] {
    [0x40, 2, (id >> 8) as u8, id as u8]
}

#[tokio::test]
pub(super) async fn a_kept_session_gets_what_came_meanwhile_also_after_a_restart() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    keeper.subscribe("k/#", 1).await;
    keeper.leave().await;
    let mut publisher = running.client("p").await;
    let mut bytes = Vec::new();
    for id in 1..=300u16 {
        bytes.extend(publish("k/x", id.to_string().as_bytes(), 1, false, id));
        bytes.extend(publish("k/x", b"not kept", 0, false, 0));
    }
    publisher.send(&bytes).await;
    for id in 1..=300u16 {
        assert_eq!(publisher.packet().await, (0x40, id.to_be_bytes().to_vec()));
    }
    let running = running.restart(MqttConfig::default()).await;
    let (mut keeper, present) = Client::connect_present(running.port, "keeper", false).await;
    assert!(present);
    for number in 1..=120 {
        let (_, payload, _, id) = keeper.message().await;
        assert_eq!(payload, number.to_string().as_bytes());
        // The first hundred are acknowledged, the others are not.
        if number <= 100 {
            keeper.send(&puback(id)).await;
        }
    }
    keeper.leave().await;
    // The same process sends the unacknowledged again with DUP and their identifiers.
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    let (_, payload, first, id) = keeper.message().await;
    assert_eq!(
        (payload.as_slice(), first, id),
        (b"101".as_slice(), 0x3a, 101)
    );
    drop(keeper);
    let running = running.restart(MqttConfig::default()).await;
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    for number in 101..=300 {
        let (_, payload, _, id) = keeper.message().await;
        assert_eq!(payload, number.to_string().as_bytes());
        keeper.send(&puback(id)).await;
    }
    keeper.expect_nothing().await;
    let (fresh, present) = Client::connect_present(running.port, "keeper", true).await;
    assert!(!present);
    fresh.leave().await;
    let (_, present) = Client::connect_present(running.port, "keeper", false).await;
    assert!(!present, "a clean session ends the kept one");
    running.stop().await;
}

#[tokio::test]
pub(super) async fn a_client_that_is_away_keeps_up_to_its_bound_and_the_rest_is_counted() {
    let config = MqttConfig {
        queue_messages_max: 10,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    keeper.subscribe("k", 1).await;
    keeper.leave().await;
    let mut publisher = running.client("p").await;
    for id in 1..=25u16 {
        publisher
            .send(&publish("k", id.to_string().as_bytes(), 1, false, id))
            .await;
        assert_eq!(publisher.packet().await.0, 0x40);
    }
    let clients = running.server.clients();
    let keeper = clients.iter().find(|c| c.client_id == "keeper").unwrap();
    assert_eq!(
        (keeper.queued, keeper.dropped_total, keeper.connected),
        (10, 15, false)
    );
    assert_eq!(running.server.stats().dropped_total, 15);
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    for number in 1..=10 {
        assert_eq!(keeper.message().await.1, number.to_string().as_bytes());
    }
    keeper.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn a_qos_2_identifier_is_known_after_reconnect_and_restart() {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = Client::connect(running.port, "p", false).await;
    publisher.send(&publish("x", b"once", 2, true, 3)).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 3]));
    drop(publisher);
    let running = running.restart(MqttConfig::default()).await;
    let mut watcher = running.client("watcher").await;
    watcher.subscribe("x", 0).await;
    watcher.expect("x", "once").await;
    let mut publisher = Client::connect(running.port, "p", false).await;
    let mut again = publish("x", b"once", 2, true, 3);
    again[0] |= 8;
    publisher.send(&again).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 3]));
    watcher.expect_nothing().await;
    publisher.send(&[0x62, 2, 0, 3]).await;
    assert_eq!(publisher.packet().await, (0x70, vec![0, 3]));
    // Released: the identifier now stands for another message.
    publisher.send(&publish("x", b"two", 2, false, 3)).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 3]));
    watcher.expect("x", "two").await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn condensing_keeps_what_lives_and_gives_back_the_rest() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    keeper.subscribe("k", 1).await;
    keeper.leave().await;
    let mut publisher = running.client("p").await;
    publisher.send(&publish("k", b"kept", 1, false, 1)).await;
    publisher.packet().await;
    // More than a segment of values that replace each other.
    let mut payload = vec![b'v'; 200_000];
    for id in 1..=100u16 {
        payload[0] = id as u8;
        publisher.send(&publish("r", &payload, 1, true, id)).await;
        publisher.packet().await;
    }
    publisher.send(&publish("cleared", b"x", 1, true, 1)).await;
    publisher.send(&publish("cleared", b"", 1, true, 2)).await;
    publisher.packet().await;
    publisher.packet().await;
    let bytes = |dir: &std::path::Path| -> u64 {
        let files = std::fs::read_dir(dir).unwrap();
        files.map(|f| f.unwrap().metadata().unwrap().len()).sum()
    };
    let before = bytes(running.dir.path());
    running.server.condense().await.unwrap();
    let after = bytes(running.dir.path());
    assert!(after + 10_000_000 < before, "{before} bytes became {after}");
    let running = running.restart(MqttConfig::default()).await;
    let stats = running.server.stats();
    assert_eq!((stats.retained, stats.sessions), (1, 1));
    let mut watcher = running.client("w").await;
    watcher.subscribe("r", 0).await;
    assert_eq!(watcher.message().await.1[0], 100);
    let mut keeper = Client::connect(running.port, "keeper", false).await;
    assert_eq!(keeper.message().await.1, b"kept");
    running.stop().await;
}

#[tokio::test]
pub(super) async fn retained_messages_beyond_the_bound_end_the_link_unacknowledged() {
    let config = MqttConfig {
        retained_bytes_max: ByteSize(500),
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut publisher = running.client("p").await;
    publisher.send(&publish("a", &[1; 300], 1, true, 1)).await;
    assert_eq!(publisher.packet().await, (0x40, vec![0, 1]));
    publisher.send(&publish("b", &[1; 300], 1, true, 2)).await;
    publisher.expect_end().await;
    assert_eq!(running.server.stats().retained, 1);
    running.stop().await;
}
