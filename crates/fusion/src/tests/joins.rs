//! Joins of SQL in the engine: kept over restarts, of records and of streams, explained.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::house::{Collector, House, new, wait};
use crate::FusionError;

async fn send(house: &House, topic: &str, payload: Json, statement: &str, received: u64) {
    house.publish(topic, &payload.to_string());
    house
        .until(statement, |info| info.received_total >= received)
        .await;
}

fn hear(house: &House, topic: &str) -> Arc<Collector> {
    let rows = Arc::new(Collector::default());
    house.mqtt.subscribe(topic.parse().unwrap(), rows.clone());
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_other_side_is_there_after_a_restart() {
    let mut house = House::open().await;
    let text = "INSERT INTO mqtt.\"out\" SELECT a.id, b.v FROM mqtt.\"a\" AS a LEFT JOIN mqtt.\"b\" AS b \
                ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND";
    house.add_named("m", text).await;
    send(&house, "a", json!({"id": 1, "ts": 1_000}), "m", 1).await;
    send(&house, "a", json!({"id": 2, "ts": 1_100}), "m", 2).await;
    send(&house, "b", json!({"id": 0, "ts": 1_200}), "m", 3).await;
    house.fusion.close().await;
    house.reopen().await;
    let rows = hear(&house, "out");
    send(&house, "b", json!({"id": 1, "v": 7, "ts": 1_500}), "m", 4).await;
    send(&house, "a", json!({"id": 3, "ts": 5_000}), "m", 5).await;
    send(&house, "b", json!({"id": 0, "ts": 5_001}), "m", 6).await;
    wait("both rows", || rows.0.lock().len() == 2).await;
    let expected = [json!({"id": 1, "v": 7}), json!({"id": 2, "v": null})];
    assert_eq!(*rows.0.lock(), expected);
    house.close().await;
}

/// Two topics of records are joined by way of a stream, and the pairs counted by another.
#[tokio::test(flavor = "multi_thread")]
async fn streams_bring_what_one_statement_cannot_read() {
    let house = House::open().await;
    house.create("orders", 1).await;
    house.create("shipments", 1).await;
    let pairs = hear(&house, "pairs");
    let sums = hear(&house, "sums");
    for (name, text) in [
        (
            "bring",
            "INSERT INTO stream.\"shipped\" SELECT * FROM kafka.shipments",
        ),
        (
            "join",
            "INSERT INTO stream.\"pairs\" SELECT o.id, s.at - o.at AS took, s.at FROM kafka.orders AS o \
             JOIN stream.\"shipped\" AS s ON o.id = s.id AND s.at BETWEEN o.at AND o.at + INTERVAL '1' \
             MINUTE",
        ),
        (
            "pairs",
            "INSERT INTO mqtt.\"pairs\" SELECT id, took FROM stream.\"pairs\"",
        ),
        (
            "sums",
            "INSERT INTO mqtt.\"sums\" SELECT count(*) AS n, sum(took) AS took FROM \
             TUMBLE(stream.\"pairs\", at, INTERVAL '10 seconds')",
        ),
    ] {
        house.add_named(name, text).await;
    }
    for (topic, value) in [
        ("orders", json!({"id": 1, "at": 1_000})),
        ("shipments", json!({"id": 1, "at": 2_000})),
        ("orders", json!({"id": 2, "at": 3_000})),
        ("shipments", json!({"id": 2, "at": 9_000})),
        ("orders", json!({"id": 3, "at": 12_000})),
        ("shipments", json!({"id": 3, "at": 12_500})),
        ("orders", json!({"id": 4, "at": 90_000})),
        ("shipments", json!({"id": 0, "at": 90_001})),
    ] {
        let before = house.until("join", |_| true).await.received_total;
        house.produce(topic, 0, &value.to_string()).await;
        house
            .until("join", |info| info.received_total > before)
            .await;
    }
    wait("the pairs", || pairs.0.lock().len() == 3).await;
    wait("the sum of a window", || !sums.0.lock().is_empty()).await;
    let took: Vec<i64> = pairs
        .0
        .lock()
        .iter()
        .map(|row| row["took"].as_i64().unwrap())
        .collect();
    assert_eq!(took, [1_000, 6_000, 500]);
    assert_eq!(sums.0.lock()[0], json!({"n": 2, "took": 7_000}));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_is_explained_and_takes_no_other_time() {
    let house = House::open().await;
    let text = "SELECT a.v AS x FROM mqtt.\"a\" AS a JOIN mqtt.\"b\" AS b ON a.id = b.id AND b.at = a.ts + \
                INTERVAL '1' SECOND";
    let explained = house.fusion.explain(new("m", text)).unwrap();
    assert_eq!(explained.source, "mqtt.\"a\", mqtt.\"b\"");
    assert_eq!(explained.fields, ["ts", "at", "id", "v"]);
    assert!(explained.keeps_state);
    let mut form = new("m", text);
    form.policies = serde_json::from_value(json!({"time": "ts"})).unwrap();
    match house.fusion.add(form).await {
        Err(FusionError::Refused(why)) => assert!(why.contains("condition"), "{why}"),
        other => panic!("{other:?}"),
    }
    let create = serde_json::from_value(json!({"name": "W", "language": "epl",
        "text": "create window W#keepall as (v long)"}));
    house.fusion.add(create.unwrap()).await.unwrap();
    for text in [
        "SELECT v FROM stream.\"W\"",
        "SELECT a.v FROM mqtt.\"a\" AS a JOIN stream.\"W\" AS b ON b._timestamp = a._timestamp + INTERVAL '1' \
         SECOND",
    ] {
        match house.fusion.add(new("m", text)).await {
            Err(FusionError::Refused(why)) => assert!(why.contains("named window"), "{why}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    house.close().await;
}

/// Where the new form reads another topic, positions in the old one say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_is_replaced_reads_another_topic_from_where_it_is() {
    let house = House::open().await;
    let text = |topic: &str| {
        format!(
            "SELECT m.id FROM mqtt.\"m\" AS m JOIN kafka.{topic} AS k ON m.id = k.id AND \
             DATEDIFF(second, m, k) BETWEEN 0 AND 10"
        )
    };
    for topic in ["a", "b"] {
        house.create(topic, 1).await;
    }
    house.add_named("m", &text("a")).await;
    for _ in 0..3 {
        house.produce("a", 0, "{\"id\":1}").await;
    }
    house.until("m", |info| info.received_total == 3).await;
    let mut form = new("m", &text("b"));
    form.name = None;
    let replacement = crate::Replacement {
        new: form,
        state: crate::ReplacedState::Reset,
        origin: None,
    };
    house.fusion.replace("m", replacement).await.unwrap();
    house.produce("b", 0, "{\"id\":1}").await;
    house.until("m", |info| info.received_total == 4).await;
    house.close().await;
}
