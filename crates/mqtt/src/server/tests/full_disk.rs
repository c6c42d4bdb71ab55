//! What goes on while the disk takes nothing more, and when it does again.

use std::sync::Arc;

use base::SystemClock;
use journal::SimDisk;

use super::five::{Connect, disconnect, four, two};
use super::{Running, until};
use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::gate::OpenGate;
use crate::message::Qos;
use crate::server::Server;
use crate::topic::TopicName;

async fn start(disk: &SimDisk) -> Running {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let (config, clock) = (MqttConfig::default(), Arc::new(SystemClock));
    let disk = Arc::new(disk.clone());
    let server = Server::open_on(disk, dir.path(), config, clock, Arc::new(OpenGate)).unwrap();
    Running::of(dir, server).await
}

/// Uses up what the journal has of the disk, to the last frame.
async fn fill(disk: &SimDisk, server: &Server) {
    disk.set_capacity(Some(disk.used()));
    let topic: TopicName = "fill".parse().unwrap();
    for bytes in [64 * 1024, 1024] {
        let payload = vec![b'.'; bytes];
        loop {
            match server.publish(&topic, &payload, Qos::AtMostOnce, true) {
                Ok(()) => {}
                Err(MqttError::Busy) => server.room(&topic).await,
                Err(error) => {
                    assert!(matches!(error, MqttError::Journal { .. }), "{error}");
                    break;
                }
            }
        }
    }
    // No frame is smaller than the mark of this.
    while server.all_stored().await.is_ok() {}
}

#[tokio::test]
async fn a_session_whose_end_finds_no_room_ends_when_there_is_some() {
    let disk = SimDisk::new(1);
    let running = start(&disk).await;
    let _keeper = Connect::kept("keeper", 600).go(running.port).await;
    let mut leaving = Connect::kept("leaving", 600).go(running.port).await;
    fill(&disk, &running.server).await;
    leaving.send(&disconnect(0, &four(17, 0))).await;
    leaving.expect_end().await;
    assert_eq!(running.server.clients().len(), 2, "its end is refused");
    disk.set_capacity(None);
    until("it has ended", || running.server.clients().len() == 1).await;
    running.stop().await;
}

#[tokio::test]
async fn what_waited_goes_to_a_client_that_is_there_with_qos_1() {
    let disk = SimDisk::new(2);
    let running = start(&disk).await;
    // One at a time.
    let connect = Connect::kept("keeper", 600).with(two(33, 1));
    let mut keeper = connect.go(running.port).await;
    keeper.subscribe5(&[], &[("t", 1)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for payload in ["1", "2", "3"] {
        assert_eq!(publisher.publish5("t", payload, &[]).await, 0);
    }
    fill(&disk, &running.server).await;
    for payload in ["1", "2", "3"] {
        let got = keeper.got().await;
        assert_eq!(got.payload, payload);
        keeper.ack(0x40, got.id).await;
    }
    keeper.expect_nothing().await;
    running.stop().await;
}
