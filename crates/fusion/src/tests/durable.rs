//! Durable statements over MQTT: what was acknowledged counts once, whatever the moment of a crash.
//!
//! A crash is a copy of the folder as it lies while nothing is under way.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{HumanDuration, SystemClock};
use mqtt::{Bridges, MqttConfig, MqttError, Qos, Server};
use serde_json::{Value as Json, json};
use streams::EventStore;

use super::house::{House, new, rows, stores, until};
use crate::{
    Around, Fusion, FusionConfig, FusionError, NewStatement, ReplacedState, Replacement, Status,
};

const SUMS: &str = "INSERT INTO kafka.sums SELECT k, sum(v) AS s, count(*) AS n FROM \
                    TUMBLE(mqtt.\"in/+\", ts, INTERVAL '1 minute') GROUP BY k";
const EACH: &str = "INSERT INTO kafka.each SELECT v FROM mqtt.\"in/+\"";

fn durable(name: &str, text: &str) -> NewStatement {
    let form = json!({ "name": name, "text": text, "policies": { "input": "durable" } });
    serde_json::from_value(form).unwrap()
}

async fn send(server: &Server, v: i64, ts: i64) {
    let topic = format!("in/{}", v % 3).parse().unwrap();
    let payload = json!({ "k": 1, "v": v, "ts": ts }).to_string();
    loop {
        match server.publish(&topic, payload.as_bytes(), Qos::AtLeastOnce, false) {
            Ok(()) => return,
            Err(mqtt::MqttError::Busy) => server.room(&topic).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// An engine on `dir` that keeps checkpoints of itself every so often.
pub(super) async fn engine(
    dir: &Path,
    store: &Arc<dyn EventStore>,
    server: &Server,
    interval: Duration,
) -> Arc<Fusion> {
    let config = FusionConfig {
        checkpoint_interval: HumanDuration(interval),
        ..FusionConfig::default()
    };
    let clock = Arc::new(SystemClock);
    Fusion::open(dir, config, store.clone(), Some(server.clone()), clock)
        .await
        .unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_since_the_last_checkpoint_counts_once_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut server) = stores(folder.path());
    let mut dir = folder.path().join("0");
    let mut fusion = engine(&dir, &store, &server, NEVER).await;
    fusion.add(durable("sums", SUMS)).await.unwrap();
    fusion.add(durable("each", EACH)).await.unwrap();
    let passing = SUMS.replace("sums", "passing");
    fusion.add(new("passing", &passing)).await.unwrap();
    let mut engines = Vec::new();
    for crash in 0..4_u64 {
        for n in 0..5 {
            send(&server, n, 1_000).await;
        }
        // A publisher has its acknowledgement here.
        server.all_stored().await.unwrap();
        for name in ["sums", "each"] {
            let wanted = 5 * (crash + 1);
            until(&fusion, name, |info| info.received_total == wanted).await;
        }
        until(&fusion, "each", |info| info.in_flight == 0).await;
        until(&fusion, "passing", |info| info.received_total == 5).await;
        let next = folder.path().join((crash + 1).to_string());
        copy(&dir, &next);
        // What crashed hears nothing more and says nothing more.
        let clock = Arc::new(SystemClock);
        server = Server::open(&next.join("mqtt"), MqttConfig::default(), clock).unwrap();
        let after = engine(&next, &store, &server, NEVER).await;
        let wanted = 5 * (crash + 1);
        until(&after, "sums", |info| info.received_total == wanted).await;
        until(&after, "each", |info| info.received_total == wanted).await;
        assert_eq!(after.statement("passing").unwrap().received_total, 0);
        engines.push(std::mem::replace(&mut fusion, after));
        dir = next;
    }
    send(&server, 0, 60_000).await;
    let expected = json!({ "k": 1, "s": 40, "n": 20 });
    assert_eq!(rows(&store, "sums", 1).await, [expected]);
    let each = rows(&store, "each", 21).await;
    let expected: Vec<Json> = (0..20).map(|n| json!({ "v": n % 5 })).collect();
    assert_eq!(each[..20], expected);
    assert_eq!(each[20..], [json!({ "v": 0 })]);
    let info = until(&fusion, "sums", |info| info.emitted_total == 1).await;
    assert_eq!(
        (info.received_total, info.late_total, info.in_flight),
        (21, 0, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_fills_up_asks_for_checkpoints_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, server) = stores(folder.path());
    let dir = folder.path().join("fusion");
    let fusion = engine(&dir, &store, &server, NEVER).await;
    fusion.add(durable("sums", SUMS)).await.unwrap();
    // Many times what the input holds in tests.
    let count = 30_000;
    for _ in 0..count {
        send(&server, 1, 1_000).await;
    }
    server.all_stored().await.unwrap();
    until(&fusion, "sums", |info| info.received_total == count).await;
    let crashed = folder.path().join("crashed");
    fusion.close().await;
    copy(&dir, &crashed);
    let clock = Arc::new(SystemClock);
    let server = Server::open(&crashed.join("mqtt"), MqttConfig::default(), clock).unwrap();
    let fusion = engine(&crashed, &store, &server, NEVER).await;
    send(&server, 0, 60_000).await;
    let expected = json!({ "k": 1, "s": count, "n": count });
    assert_eq!(rows(&store, "sums", 1).await, [expected]);
    fusion.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_statement_is_paused_resumed_replaced_and_removed_as_others_are() {
    let mut house = House::open().await;
    let inputs = |house: &House| {
        let entries = std::fs::read_dir(house.fusion_dir().join("inputs"));
        entries.map_or(0, Iterator::count)
    };
    house.fusion.add(durable("m", SUMS)).await.unwrap();
    send(&house.mqtt, 1, 1_000).await;
    house.until("m", |info| info.received_total == 1).await;
    house.fusion.pause("m").await.unwrap();
    // Missed, as by others.
    send(&house.mqtt, 2, 1_000).await;
    house.fusion.resume("m").await.unwrap();
    send(&house.mqtt, 4, 1_000).await;
    house.until("m", |info| info.received_total == 2).await;
    house.fusion.pause("m").await.unwrap();
    house.fusion.close().await;
    house.reopen().await;
    send(&house.mqtt, 8, 1_000).await;
    let info = house.fusion.resume("m").await.unwrap();
    assert_eq!((info.status, info.received_total), (Status::Running, 2));
    send(&house.mqtt, 16, 1_000).await;
    house.until("m", |info| info.received_total == 3).await;
    let mut form = durable("m", &SUMS.replace("sums", "others"));
    form.name = None;
    let replacement = |new, state| Replacement {
        new,
        state,
        origin: None,
    };
    let kept = replacement(form, ReplacedState::Keep);
    assert!(house.fusion.replace("m", kept).await.unwrap().1);
    send(&house.mqtt, 32, 1_000).await;
    house.until("m", |info| info.received_total == 4).await;
    house.fusion.close().await;
    house.reopen().await;
    assert_eq!(house.fusion.statement("m").unwrap().received_total, 4);
    send(&house.mqtt, 0, 60_000).await;
    let expected = json!({ "k": 1, "s": 53, "n": 4 });
    assert_eq!(house.rows("others", 1).await, [expected]);
    assert_eq!(inputs(&house), 1);
    // Another source is another input.
    let mut form = durable("m", &SUMS.replace("in/+", "in/1"));
    form.name = None;
    let reset = replacement(form, ReplacedState::Reset);
    house.fusion.replace("m", reset).await.unwrap();
    send(&house.mqtt, 1, 1_000).await;
    house.until("m", |info| info.received_total == 6).await;
    assert_eq!(inputs(&house), 1);
    house.fusion.remove("m").await.unwrap();
    assert_eq!(inputs(&house), 0);
    // One that is added under the same name has nothing of it.
    let id = json!({ "id": "same", "text": EACH, "policies": { "input": "durable" } });
    for received in 0..2 {
        let added = serde_json::from_value(id.clone()).unwrap();
        assert_eq!(house.fusion.add(added).await.unwrap().received_total, 0);
        send(&house.mqtt, received, 1_000).await;
        house.until("same", |info| info.received_total == 1).await;
        house.fusion.remove("same").await.unwrap();
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_of_statements_that_are_gone_is_removed() {
    let mut house = House::open().await;
    house.fusion.add(durable("m", EACH)).await.unwrap();
    let inputs = house.fusion_dir().join("inputs");
    house.fusion.close().await;
    let stray = inputs.join("0123-4567");
    std::fs::create_dir(&stray).unwrap();
    house.reopen().await;
    assert!(!stray.exists());
    assert_eq!(std::fs::read_dir(&inputs).unwrap().count(), 1);
    house.close().await;
}

/// An input that cannot be read holds its own publishers back and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_cannot_be_read_is_told_and_harms_no_other_statement() {
    let mut house = House::open().await;
    house.fusion.add(durable("m", EACH)).await.unwrap();
    house
        .add_named("other", "SELECT v FROM mqtt.\"else\"")
        .await;
    let inputs = house.fusion_dir().join("inputs");
    house.fusion.close().await;
    for input in std::fs::read_dir(&inputs).unwrap() {
        let input = input.unwrap().path();
        std::fs::remove_dir_all(&input).unwrap();
        std::fs::write(&input, "no folder").unwrap();
    }
    house.reopen().await;
    let info = house.fusion.statement("m").unwrap();
    assert_eq!(info.status, Status::Retrying);
    assert!(
        info.error.as_ref().is_some_and(|why| why.contains("input")),
        "{info:?}"
    );
    house.publish("else", "{\"v\":1}");
    house.until("other", |info| info.received_total == 1).await;
    house.publish("in/1", "{\"v\":1}");
    assert_eq!(house.fusion.statement("m").unwrap().received_total, 0);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_durable_is_refused() {
    let house = House::open().await;
    for (language, text) in [
        ("sql", "INSERT INTO kafka.out SELECT v FROM kafka.raw"),
        ("epl", "insert into Stream select v from \"in\""),
        (
            "epl",
            "select a.v from \"in\"#lastevent as a, \"too\"#lastevent as b",
        ),
    ] {
        let mut form = durable("m", text);
        form.language = serde_json::from_value(json!(language)).unwrap();
        match house.fusion.add(form).await {
            Err(FusionError::Refused(why)) => assert!(why.contains("policies.input"), "{why}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    house.close().await;
}

/// A bridge is gone that its rows go to: what is acknowledged meanwhile would never count.
#[tokio::test(flavor = "multi_thread")]
async fn publishers_wait_for_a_durable_statement_that_could_not_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("fusion");
    let (store, server) = stores(&folder.path().join("first"));
    let clock = Arc::new(SystemClock);
    let bridges = folder.path().join("bridges");
    let config = MqttConfig::default();
    let bridges = Bridges::open(&bridges, server.clone(), &config, clock.clone()).unwrap();
    let bridge = json!({
        "name": "cloud", "address": "mqtt://127.0.0.1:9", "topics": [{ "filter": "unused" }],
    });
    let bridge = serde_json::from_value(bridge).unwrap();
    bridges.add(bridge).await.unwrap();
    let around = Around {
        mqtt: Some(server),
        bridges: Some(bridges.clone()),
        tables: None,
    };
    let fusion = Fusion::open_with(&dir, FusionConfig::default(), store, around, clock);
    let fusion = fusion.await.unwrap();
    for (name, filter) in [("m", "in"), ("gone", "else")] {
        let mut form = durable(name, &format!("SELECT v FROM mqtt.\"{filter}\""));
        form.targets = vec!["mqtt@cloud:rows".to_owned()];
        fusion.add(form).await.unwrap();
    }
    fusion.close().await;
    bridges.close().await;

    let (store, server) = stores(&folder.path().join("second"));
    let fusion = engine(&dir, &store, &server, NEVER).await;
    let info = fusion.statement("m").unwrap();
    let why = info.error.as_deref().unwrap_or_default();
    assert!(why.contains("cloud"), "{info:?}");
    let publish = |topic: &str| {
        let topic = topic.parse().unwrap();
        server.publish(&topic, b"{\"v\":1}", Qos::AtLeastOnce, false)
    };
    // The server keeps what the process itself publishes, as much as fits.
    publish("in").unwrap();
    let is_held = (0..100_000).any(|_| matches!(publish("else"), Err(MqttError::Busy)));
    assert!(is_held, "nobody waits for the statement");
    fusion.remove("gone").await.unwrap();
    publish("else").unwrap();
    let new = durable("m", "INSERT INTO mqtt.\"rows\" SELECT v FROM mqtt.\"in\"");
    let replacement = Replacement {
        new: NewStatement { name: None, ..new },
        state: ReplacedState::Reset,
        origin: None,
    };
    fusion.replace("m", replacement).await.unwrap();
    until(&fusion, "m", |info| info.received_total == 1).await;
    fusion.close().await;
}

const NEVER: Duration = Duration::from_secs(3_600);

/// The old form's input goes when it leaves, and the new one's stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_durable_statement_of_another_format_has_an_input_of_its_own() {
    let house = House::open().await;
    house.fusion.add(durable("m", EACH)).await.unwrap();
    let mut new = durable("m", EACH);
    (new.name, new.format) = (None, Some(crate::formats::Format::Raw));
    let replacement = Replacement {
        new,
        state: ReplacedState::Reset,
        origin: None,
    };
    house.fusion.replace("m", replacement).await.unwrap();
    send(&house.mqtt, 1, 1_000).await;
    house.until("m", |info| info.received_total == 1).await;
    let inputs = std::fs::read_dir(house.fusion_dir().join("inputs")).unwrap();
    assert_eq!(inputs.count(), 1);
    house.close().await;
}

/// What a batch told of is told once, although the server's last checkpoint still holds the batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_told_before_a_crash_is_not_told_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, server) = stores(folder.path());
    let dir = folder.path().join("fusion");
    let fusion = engine(&dir, &store, &server, NEVER).await;
    let text = "insert into kafka.batches select v from \"in/+\"#time_batch(2 sec)";
    let form = json!({ "name": "m", "text": text, "language": "epl" });
    fusion
        .add(serde_json::from_value(form).unwrap())
        .await
        .unwrap();
    for v in [1, 2] {
        send(&server, v, 0).await;
    }
    until(&fusion, "m", |info| info.received_total == 2).await;
    // Its last checkpoint holds the batch as it waits.
    fusion.close().await;
    let fusion = engine(&dir, &store, &server, NEVER).await;
    let told = [json!({ "v": 1 }), json!({ "v": 2 })];
    assert_eq!(rows(&store, "batches", 2).await, told);
    until(&fusion, "m", |info| info.in_flight == 0).await;
    let crashed = folder.path().join("crashed");
    copy(&dir, &crashed);
    fusion.close().await;
    let fusion = engine(&crashed, &store, &server, NEVER).await;
    send(&server, 7, 0).await;
    let told = [json!({ "v": 1 }), json!({ "v": 2 }), json!({ "v": 7 })];
    assert_eq!(rows(&store, "batches", 3).await, told);
    fusion.close().await;
}
