//! Rows for another broker, over a bridge.

use std::sync::Arc;

use base::SystemClock;
use mqtt::{BridgeConfig, Bridges, MqttConfig, Qos, Server};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::house::{Collector, stores, until, wait};
use crate::{Around, Fusion, FusionConfig, FusionError, NewStatement};

fn statement(target: &str) -> NewStatement {
    let text = "SELECT n FROM mqtt.\"in\"";
    serde_json::from_value(json!({"name": "m", "text": text, "targets": [target]})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_reach_another_broker_and_wait_while_it_is_away() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(SystemClock);
    let (store, server) = stores(here.path());
    // The port of a broker that comes later.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = MqttConfig::default();
    let dir = here.path().join("bridges");
    let bridges = Bridges::open(&dir, server.clone(), &config, clock.clone()).unwrap();
    let bridge: BridgeConfig = serde_json::from_value(json!({
        "name": "cloud", "address": format!("mqtt://{address}"),
        "topics": [{"filter": "unused"}],
    }))
    .unwrap();
    bridges.add(bridge).await.unwrap();
    let folder = here.path().join("fusion");
    let fusion = Fusion::open_with(
        &folder,
        FusionConfig::default(),
        store,
        Around {
            mqtt: Some(server.clone()),
            bridges: Some(bridges.clone()),
            tables: None,
        },
        clock.clone(),
    );
    let fusion = fusion.await.unwrap();
    match fusion.add(statement("mqtt@mars:rows")).await {
        Err(FusionError::Refused(why)) => assert!(why.contains("no bridge 'mars'"), "{why}"),
        other => panic!("{other:?}"),
    }
    fusion.add(statement("mqtt@cloud:rows")).await.unwrap();
    let topic = "in".parse().unwrap();
    for n in 0..50 {
        let payload = format!("{{\"n\":{n}}}");
        let published = server.publish(&topic, payload.as_bytes(), Qos::AtLeastOnce, false);
        published.unwrap();
    }
    // They are with the bridge, which keeps them for the broker that is not there.
    until(&fusion, "m", |info| info.emitted_total == 50).await;
    assert_eq!(bridges.list()[0].queued, 50);
    let other = Server::open(there.path(), config, clock).unwrap();
    let heard = Arc::new(Collector::default());
    other.subscribe("rows".parse().unwrap(), heard.clone());
    let (listener, shutdown) = (
        TcpListener::bind(address).await.unwrap(),
        CancellationToken::new(),
    );
    let serving = {
        let (other, shutdown) = (other.clone(), shutdown.clone());
        tokio::spawn(async move { other.serve(listener, shutdown).await })
    };
    wait("the other broker has all rows", || {
        heard.0.lock().len() >= 50
    })
    .await;
    let expected: Vec<_> = (0..50).map(|n| json!({ "n": n })).collect();
    assert_eq!(*heard.0.lock(), expected);
    fusion.close().await;
    bridges.close().await;
    shutdown.cancel();
    serving.await.unwrap();
    other.close().await;
    server.close().await;
}
