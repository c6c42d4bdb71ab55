//! Formats in, and rows to several targets, as Observations, by POST, and dead letters.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::house::{Collector, House, new, wait};
use crate::formats::{EventType, Format};
use crate::sinks::OutputForm;
use crate::{FusionError, NewStatement};

fn heard(house: &House, filter: &str) -> Arc<Collector> {
    let sink = Arc::new(Collector::default());
    house.mqtt.subscribe(filter.parse().unwrap(), sink.clone());
    sink
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_of_a_senml_pack_is_an_event() {
    let house = House::open().await;
    let text = "INSERT INTO kafka.out SELECT n, v, time FROM mqtt.\"packs\" WHERE v > 1";
    let statement = NewStatement {
        format: Some(Format::Senml),
        ..new("m", text)
    };
    house.fusion.add(statement).await.unwrap();
    let pack = json!([{"bn": "d:", "bt": 1_700_000_000, "n": "a", "v": 1}, {"n": "b", "v": 2}, {"n": "c", "v": 3}]);
    house.publish("packs", &pack.to_string());
    house.publish("packs", "{\"v\":9}");
    let rows = house.rows("out", 2).await;
    assert_eq!(
        rows[0],
        json!({"n": "d:b", "v": 2, "time": 1_700_000_000_000_i64})
    );
    assert_eq!(rows[1]["n"], "d:c");
    let info = house.until("m", |info| info.received_total == 4).await;
    assert_eq!((info.filtered_total, info.errored_total), (1, 1));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_several_events_counts_once_over_a_restart() {
    let mut house = House::open().await;
    house.create("raw", 1).await;
    let text = "INSERT INTO kafka.out SELECT n, v, _offset AS at FROM kafka.raw";
    let statement = NewStatement {
        format: Some(Format::Senml),
        ..new("m", text)
    };
    house.fusion.add(statement).await.unwrap();
    let pack = |name| json!([{"n": name, "v": 1}, {"n": name, "v": 2}]).to_string();
    house.produce("raw", 0, &pack("a")).await;
    house.until("m", |info| info.emitted_total == 2).await;
    house.fusion.close().await;
    house.produce("raw", 0, &pack("b")).await;
    house.reopen().await;
    house.until("m", |info| info.emitted_total == 4).await;
    let rows = house.rows("out", 4).await;
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row["n"].as_str().unwrap(), row["at"].as_i64()))
        .collect();
    assert_eq!(
        told,
        [
            ("a", Some(0)),
            ("a", Some(0)),
            ("b", Some(1)),
            ("b", Some(1))
        ]
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_types_says_how_a_topic_is_read() {
    let house = House::open().await;
    let text = "INSERT INTO kafka.out SELECT id, result FROM mqtt.\"LS/+/+/OGC/1.0/Datastreams/#\"";
    let info = house.add(text).await;
    assert_eq!(info.format, Format::Observation);
    house.publish("LS/a/b/OGC/1.0/Datastreams/ds", "{\"result\":4.5}");
    assert_eq!(
        house.rows("out", 1).await,
        [json!({"id": "ds", "result": 4.5})]
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_goes_to_every_target_once() {
    let mut house = House::open().await;
    house.create("raw", 1).await;
    let sink = heard(&house, "rows/+");
    let statement = NewStatement {
        targets: vec!["kafka.two".to_owned(), "mqtt.\"rows/x\"".to_owned()],
        ..new("m", "INSERT INTO kafka.one SELECT v FROM kafka.raw")
    };
    let info = house.fusion.add(statement).await.unwrap();
    assert_eq!(info.sink, "kafka.\"one\", kafka.\"two\", mqtt.\"rows/x\"");
    for v in 0..50 {
        house
            .produce("raw", 0, &json!({ "v": v }).to_string())
            .await;
        if v == 20 {
            house.until("m", |info| info.emitted_total == 21).await;
            house.fusion.close().await;
            house.reopen().await;
        }
    }
    let expected: Vec<Json> = (0..50).map(|v| json!({ "v": v })).collect();
    assert_eq!(house.rows("one", 50).await, expected);
    assert_eq!(house.rows("two", 50).await, expected);
    wait("the messages", || sink.0.lock().len() == 50).await;
    let info = house.until("m", |info| info.emitted_total == 50).await;
    assert_eq!((info.emitted_from_total, info.in_flight), (50, 0));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_window_are_one_observation() {
    let house = House::open().await;
    let statement = NewStatement {
        output: OutputForm::Observations,
        ..new(
            "m",
            "INSERT INTO kafka.out SELECT k, sum(v) AS v FROM TUMBLE(mqtt.\"in\", ts, INTERVAL '1 \
             second') GROUP BY k",
        )
    };
    let info = house.fusion.add(statement).await.unwrap();
    for (k, v, ts) in [("a", 1, 0), ("b", 2, 10), ("a", 3, 20), ("a", 9, 1_000)] {
        house.publish("in", &json!({"k": k, "v": v, "ts": ts}).to_string());
    }
    let rows = house.rows("out", 1).await;
    assert_eq!(rows[0]["result"], json!({"a": [4], "b": [2]}));
    assert_eq!(rows[0]["resultTime"], "1970-01-01T00:00:00.999Z");
    assert_eq!(rows[0]["Datastream"]["@iot.id"], info.id);
    let info = house.until("m", |info| info.emitted_from_total == 3).await;
    assert_eq!((info.emitted_total, info.in_flight), (1, 1));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posted_rows_are_tried_again_until_the_server_has_them_or_refuses() {
    let house = House::open().await;
    let taken: Arc<Mutex<Vec<Json>>> = Arc::default();
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (kept, tried) = (taken.clone(), tries.clone());
    let take = move |body: String| {
        let row: Json = serde_json::from_str(&body).unwrap();
        let status = match tried.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 | 1 => 503,
            _ if row["v"] == 2 => 422,
            _ => {
                kept.lock().push(row);
                200
            }
        };
        async move { axum::http::StatusCode::from_u16(status).unwrap() }
    };
    let routes = axum::Router::new().route("/rows", axum::routing::post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/rows", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let letters = heard(&house, "errors/statements/+");
    let statement = NewStatement {
        targets: vec![url.clone()],
        ..new("m", "SELECT v FROM mqtt.\"in\"")
    };
    let info = house.fusion.add(statement).await.unwrap();
    assert_eq!(info.sink, url);
    for v in 1..=3 {
        house.publish("in", &json!({ "v": v }).to_string());
    }
    let info = house
        .until("m", |info| info.emitted_total + info.dropped_total == 3)
        .await;
    assert_eq!(
        (info.emitted_total, info.dropped_total, info.in_flight),
        (2, 1, 0)
    );
    assert_eq!(*taken.lock(), [json!({"v": 1}), json!({"v": 3})]);
    assert!(info.error.unwrap().contains("422"));
    wait("the letter", || letters.0.lock().len() == 1).await;
    assert_eq!(letters.0.lock()[0]["kind"], "sink");
    server.abort();
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_told_on_the_error_topic_and_never_on_the_data_topic() {
    let house = House::open().await;
    let letters = heard(&house, "errors/statements/+");
    let info = house
        .add(
            "INSERT INTO mqtt.\"data\" SELECT sum(v) AS s FROM TUMBLE(mqtt.\"in/+\", ts, INTERVAL \
             '1 second')",
        )
        .await;
    let data = heard(&house, "data");
    house.publish("in/a", "{\"v\":1,\"ts\":5000}");
    house.publish("in/b", "no json");
    house.publish("in/c", "{\"v\":1,\"ts\":7000}");
    house.publish("in/d", "{\"v\":1,\"ts\":5000}");
    wait("the letters", || letters.0.lock().len() == 2).await;
    let told = letters.0.lock().clone();
    assert_eq!(
        (&told[0]["kind"], &told[1]["kind"]),
        (&json!("error"), &json!("late"))
    );
    assert_eq!(
        (&told[0]["topic"], &told[0]["payload"]),
        (&json!("in/b"), &json!("no json"))
    );
    assert_eq!(told[0]["statement"], info.id);
    assert!(
        told[0]["reason"].as_str().unwrap().contains("JSON"),
        "{}",
        told[0]
    );
    wait("the row", || data.0.lock().len() == 1).await;
    assert_eq!(data.0.lock()[0], json!({"s": 1}));
    for _ in 0..100 {
        house.publish("in/b", "no json");
    }
    house.until("m", |info| info.errored_total == 101).await;
    assert!(
        letters.0.lock().len() < 40,
        "a statement writes ten letters a second"
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_on_every_topic_reads_no_dead_letters() {
    let house = House::open().await;
    let letters = heard(&house, "errors/#");
    let text = "INSERT INTO kafka.all SELECT ts FROM TUMBLE(mqtt.\"#\", ts, INTERVAL '1 second') GROUP BY ts";
    house.add(text).await;
    house.publish("in", "{}");
    wait("the letter", || letters.0.lock().len() == 1).await;
    house.publish("in", "{}");
    wait("the letter", || letters.0.lock().len() == 2).await;
    assert_eq!(house.fusion.statement("m").unwrap().received_total, 2);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_that_cannot_be_are_refused() {
    let house = House::open().await;
    for (targets, says) in [
        (vec!["nowhere".to_owned()], "names no kind"),
        (vec!["mqtt.\"in\"".to_owned()], "its own rows"),
        (vec!["https://user:secret@host/".to_owned()], "password"),
        (
            (0..17).map(|n| format!("kafka.t{n}")).collect(),
            "at most 16",
        ),
    ] {
        let statement = NewStatement {
            targets,
            ..new("m", "SELECT v FROM mqtt.\"in\"")
        };
        let error = house.fusion.add(statement).await.unwrap_err();
        assert!(matches!(error, FusionError::Refused(_)));
        assert!(error.to_string().contains(says), "{error}");
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn types_set_at_run_time_count_first_and_stay() {
    let mut house = House::open().await;
    let row = |filter: &str, format| EventType {
        alias: "Meter".to_owned(),
        filter: filter.to_owned(),
        format,
    };
    house
        .fusion
        .set_type(row("meters/+", Format::Cbor))
        .await
        .unwrap();
    assert!(house.fusion.set_type(row("a#", Format::Raw)).await.is_err());
    let raw = EventType {
        alias: "Raw".to_owned(),
        ..row("/raw/#", Format::Json)
    };
    house.fusion.set_type(raw).await.unwrap();
    house.fusion.close().await;
    house.reopen().await;
    let info = house
        .add("INSERT INTO kafka.out SELECT a FROM mqtt.\"meters/7\"")
        .await;
    assert_eq!(info.format, Format::Cbor);
    let topic = "meters/7".parse().unwrap();
    let cbor = [0xa1, 0x61, b'a', 0x05];
    house
        .mqtt
        .publish(&topic, &cbor, mqtt::Qos::AtLeastOnce, false)
        .unwrap();
    assert_eq!(house.rows("out", 1).await, [json!({"a": 5})]);
    let format_of = |alias: &str| {
        let types = house.fusion.types();
        let mut rows = types.iter().filter(|shown| shown.row.alias == alias);
        rows.next()
            .map(|shown| (shown.row.format, shown.is_configured))
    };
    assert_eq!(format_of("Raw"), Some((Format::Json, false)));
    house.fusion.remove_type("Raw").await.unwrap();
    assert_eq!(format_of("Raw"), Some((Format::Raw, true)));
    let gone = house.fusion.remove_type("Raw").await;
    assert!(
        matches!(gone, Err(FusionError::Unknown(_))),
        "the configuration's own stays"
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_says_what_becomes_of_bad_events() {
    let house = House::open().await;
    let letters = heard(&house, "errors/statements/+");
    let add = |name: &'static str, on_error: &'static str| {
        let text = format!("INSERT INTO kafka.{name} SELECT v FROM mqtt.\"in\"");
        let form = json!({"name": name, "text": text, "policies": {"on_error": on_error}});
        house.fusion.add(serde_json::from_value(form).unwrap())
    };
    add("silent", "drop").await.unwrap();
    let told = add("told", "dead_letter").await.unwrap();
    add("empty", "null").await.unwrap();
    house.publish("in", "no json");
    assert_eq!(house.rows("empty", 1).await, [json!({"v": null})]);
    wait("the letter", || letters.0.lock().len() == 1).await;
    assert_eq!(letters.0.lock()[0]["statement"], told.id);
    let info = house.until("silent", |info| info.errored_total == 1).await;
    assert_eq!(info.in_flight, 0);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn epl_reads_from_the_types_by_their_names() {
    let house = House::open().await;
    let form = json!({"name": "m", "language": "epl", "targets": ["kafka.out"],
        "text": "select n, v from SenML(v > 1)"});
    let info = house
        .fusion
        .add(serde_json::from_value(form).unwrap())
        .await
        .unwrap();
    assert_eq!(info.format, Format::Senml);
    let pack = json!([{"n": "a", "v": 1}, {"n": "b", "v": 2}]).to_string();
    house.publish("LS/x/y/SenML/10/Event/z", &pack);
    assert_eq!(house.rows("out", 1).await, [json!({"n": "b", "v": 2})]);
    house.close().await;
}
