//! The engine with the real event store and the real MQTT server in one process.

use std::sync::Arc;
use std::time::Duration;

use base::{Rng, SystemClock};
use mqtt::{Delivery, Message, MessageSink as _, Qos};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::house::{
    Collector, DEADLINE, House, http, new, produce_batch, produce_numbered, reopened, rows, stores,
    until, wait,
};
use crate::lane::checkpoint::Checkpoint;
use crate::{Fusion, FusionConfig, FusionError, NewStatement};

#[tokio::test(flavor = "multi_thread")]
async fn mqtt_messages_become_rows_of_windows_in_a_kafka_topic() {
    let house = House::open().await;
    house
        .add(
            "INSERT INTO kafka.means SELECT device, avg(v) AS mean, count(*) AS n, window_start \
             FROM TUMBLE(mqtt.\"site/+/temp\", ts, INTERVAL '10 seconds') GROUP BY device",
        )
        .await;
    for (topic, payload) in [
        ("site/1/temp", r#"{"device":"a","v":1,"ts":1000}"#),
        ("site/2/temp", r#"{"device":"b","v":5,"ts":2000}"#),
        ("site/2/noise", r#"{"device":"b","v":99,"ts":2000}"#),
        ("site/1/temp", r#"{"device":"a","v":2,"ts":9000}"#),
        ("site/1/temp", "no json"),
        ("site/1/temp", r#"{"device":"a","v":7,"ts":10000}"#),
    ] {
        house.publish(topic, payload);
    }
    let rows = house.rows("means", 2).await;
    assert_eq!(
        rows,
        [
            json!({"device": "a", "mean": 1.5, "n": 2, "window_start": 0}),
            json!({"device": "b", "mean": 5.0, "n": 1, "window_start": 0}),
        ]
    );
    let info = house.until("m", |info| info.emitted_total == 2).await;
    assert_eq!(
        (
            info.received_total,
            info.errored_total,
            info.emitted_from_total
        ),
        (5, 1, 3)
    );
    assert_eq!(
        info.in_flight, 1,
        "the event that closed the window waits in the next one"
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_lie_ahead_of_the_clock_are_stored_all_the_same() {
    let house = House::open().await;
    house
        .add(
            "INSERT INTO kafka.ahead SELECT count(*) AS n FROM TUMBLE(mqtt.\"a\", ts, INTERVAL \
             '10 seconds')",
        )
        .await;
    for ts in [4_000_000_000_000_i64, 4_000_000_020_000] {
        house.publish("a", &json!({"ts": ts}).to_string());
    }
    assert_eq!(house.rows("ahead", 1).await, [json!({"n": 1})]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arrival_windows_close_by_the_wall_clock() {
    let house = House::open().await;
    house
        .add(
            "INSERT INTO kafka.counts SELECT count(*) AS n FROM TUMBLE(mqtt.\"a\", INTERVAL \
             '100 milliseconds')",
        )
        .await;
    house.publish("a", "{}");
    assert_eq!(house.rows("counts", 1).await, [json!({"n": 1})]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_records_are_filtered_onto_an_mqtt_topic() {
    let house = House::open().await;
    house.create("raw", 3).await;
    house
        .add("INSERT INTO mqtt.\"alarms/hot\" SELECT id, t FROM kafka.raw WHERE t > 50")
        .await;
    let sink = Arc::new(Collector::default());
    house
        .mqtt
        .subscribe("alarms/#".parse().unwrap(), sink.clone());
    for index in 0..300 {
        house
            .produce(
                "raw",
                index % 3,
                &format!("{{\"id\":{index},\"t\":{}}}", index % 100),
            )
            .await;
    }
    let info = house
        .until("m", |info| {
            info.received_total == 300 && info.in_flight == 0
        })
        .await;
    assert_eq!((info.filtered_total, info.emitted_total), (153, 147));
    wait("the rows", || sink.0.lock().len() == 147).await;
    let mut ids: Vec<i64> = sink
        .0
        .lock()
        .iter()
        .map(|row| row["id"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    let expected: Vec<i64> = (0..300).filter(|index| index % 100 > 50).collect();
    assert_eq!(ids, expected);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_without_a_target_writes_to_its_own_mqtt_topic() {
    let house = House::open().await;
    let info = house.add("SELECT a * 2 AS b FROM mqtt.\"in\"").await;
    assert_eq!(info.sink, format!("mqtt.\"statements/{}\"", info.id));
    let sink = Arc::new(Collector::default());
    house
        .mqtt
        .subscribe("statements/+".parse().unwrap(), sink.clone());
    house.publish("in", "{\"a\":21}");
    wait("the row", || sink.0.lock().len() == 1).await;
    assert_eq!(sink.0.lock()[0], json!({"b": 42}));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_in_epl_runs_beside_those_in_sql() {
    let house = House::open().await;
    let text = "insert into \"alarms/hot\" select id, t / 0 > 1 as hot from \"in/+\"(t > 50) \
                where id is not null";
    let new = json!({ "name": "hot", "language": "epl", "text": text });
    let new: NewStatement = serde_json::from_value(new).unwrap();
    let info = house.fusion.add(new).await.unwrap();
    assert_eq!(
        (info.source.as_str(), info.sink.as_str()),
        ("mqtt.\"in/+\"", "mqtt.\"alarms/hot\"")
    );
    let sink = Arc::new(Collector::default());
    house
        .mqtt
        .subscribe("alarms/#".parse().unwrap(), sink.clone());
    for payload in [
        "{\"id\":1,\"t\":51}",
        "{\"id\":2,\"t\":50}",
        "{\"t\":60}",
        "{\"id\":3,\"t\":99}",
    ] {
        house.publish("in/a", payload);
    }
    wait("the rows", || sink.0.lock().len() == 2).await;
    let rows = sink.0.lock().clone();
    assert_eq!(
        rows,
        [json!({"id": 1, "hot": true}), json!({"id": 3, "hot": true})]
    );
    let refused: NewStatement =
        serde_json::from_value(json!({ "language": "epl", "text": "selct a from E" })).unwrap();
    let error = house.fusion.add(refused).await.unwrap_err();
    assert!(base::report(&error).contains("line 1, column 1"), "{error}");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_feed_each_other_and_are_removed_while_they_run() {
    let house = House::open().await;
    let first = house
        .add_named(
            "first",
            "INSERT INTO mqtt.\"b\" SELECT v + 1 AS v FROM mqtt.\"a\"",
        )
        .await;
    house
        .add_named(
            "second",
            "INSERT INTO kafka.c SELECT v + 1 AS v FROM mqtt.\"b\"",
        )
        .await;
    house.publish("a", "{\"v\":1}");
    assert_eq!(house.rows("c", 1).await, [json!({"v": 3})]);
    house.fusion.remove(&first.id).await.unwrap();
    house.publish("a", "{\"v\":10}");
    house.publish("b", "{\"v\":20}");
    assert_eq!(
        house.rows("c", 2).await,
        [json!({"v": 3}), json!({"v": 21})]
    );
    assert!(matches!(
        house.fusion.statement("first"),
        Err(FusionError::Unknown(_))
    ));
    assert_eq!(house.fusion.statements().len(), 1);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_starts_after_what_is_there_and_earliest_with_it() {
    let house = House::open().await;
    house.create("raw", 1).await;
    house.produce("raw", 0, "{\"v\":1}").await;
    house
        .add_named("late", "INSERT INTO kafka.l SELECT v FROM kafka.raw")
        .await;
    let early = NewStatement {
        start: crate::Start::Earliest,
        ..new("early", "INSERT INTO kafka.e SELECT v FROM kafka.raw")
    };
    house.fusion.add(early).await.unwrap();
    house.produce("raw", 0, "{\"v\":2}").await;
    assert_eq!(house.rows("l", 1).await, [json!({"v": 2})]);
    assert_eq!(house.rows("e", 2).await, [json!({"v": 1}), json!({"v": 2})]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_with_state_and_books() {
    let mut house = House::open().await;
    house.create("raw", 1).await;
    house
        .add(
            "INSERT INTO kafka.sums SELECT k, sum(v) AS s FROM TUMBLE(kafka.raw, ts, INTERVAL '1 \
             minute') GROUP BY k",
        )
        .await;
    house.add_named("arrivals", "INSERT INTO kafka.n SELECT sum(v) AS s FROM TUMBLE(mqtt.\"x\", ts, INTERVAL '1 minute')").await;
    for v in 1..=10 {
        house
            .produce(
                "raw",
                0,
                &format!("{{\"k\":{},\"v\":{v},\"ts\":{v}}}", v % 2),
            )
            .await;
        house.publish("x", &format!("{{\"v\":{v},\"ts\":{v}}}"));
    }
    house.until("m", |info| info.received_total == 10).await;
    house
        .until("arrivals", |info| info.received_total == 10)
        .await;
    house.fusion.close().await;
    // What comes meanwhile waits in the topic.
    house
        .produce("raw", 0, "{\"k\":0,\"v\":100,\"ts\":50}")
        .await;
    house.reopen().await;
    let info = house.until("m", |info| info.received_total == 11).await;
    assert_eq!((info.in_flight, info.emitted_total), (11, 0));
    house
        .produce("raw", 0, "{\"k\":9,\"v\":0,\"ts\":60000}")
        .await;
    house.publish("x", "{\"v\":0,\"ts\":60000}");
    assert_eq!(
        house.rows("sums", 2).await,
        [json!({"k": 1, "s": 25}), json!({"k": 0, "s": 130})]
    );
    assert_eq!(house.rows("n", 1).await, [json!({"s": 55})]);
    house.close().await;
}

/// Kills the engine at random moments, with everything it was about to do: each record counts
/// exactly once in the rows, and each row stands once in the topic.
#[test]
fn killed_at_random_moments_every_record_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let (store, server) = runtime.block_on(async { stores(folder.path()) });
    let total = 6_000;
    let mut rng = Rng::from_seed(11);
    let mut produced = 0;
    let mut kills = 0;
    while produced < total || kills < 12 {
        let engine = Runtime::new().unwrap();
        let fusion = engine.block_on(async {
            let config = FusionConfig {
                checkpoint_interval: base::HumanDuration(Duration::from_millis(20)),
                ..FusionConfig::default()
            };
            let clock = Arc::new(SystemClock);
            let dir = folder.path().join("fusion");
            let fusion =
                Fusion::open(&dir, config, store.clone(), Some(server.clone()), clock).await;
            let fusion = fusion.unwrap();
            if fusion.statements().is_empty() {
                fusion.add(new("each", EACH)).await.unwrap();
                fusion.add(new("counts", COUNTS)).await.unwrap();
            }
            fusion
        });
        runtime.block_on(async {
            for _ in 0..10 {
                if produced < total {
                    produce_numbered(&store, &mut produced).await;
                }
                tokio::time::sleep(Duration::from_millis(rng.below(8))).await;
            }
        });
        // Every task is dropped where it stands.
        engine.shutdown_timeout(DEADLINE);
        drop(fusion);
        kills += 1;
    }
    runtime.block_on(async {
        let dir = folder.path().join("fusion");
        let fusion = reopened(&dir, &store, &server).await;
        produce_batch(
            &store,
            "in",
            0,
            vec!["{\"id\":-1,\"ts\":1000000000}".to_owned()],
        )
        .await;
        let info = until(&fusion, "each", |info| {
            info.received_total == total + 1 && info.in_flight == 0
        });
        assert_eq!(info.await.emitted_total, total + 1);
        until(&fusion, "counts", |info| info.in_flight == 1).await;
        let each = rows(&store, "each", total as usize + 1).await;
        let ids: Vec<i64> = each.iter().map(|row| row["id"].as_i64().unwrap()).collect();
        let expected: Vec<i64> = (0..total as i64).chain([-1]).collect();
        assert_eq!(ids, expected, "each record gave one row, in order");
        let counts = rows(&store, "counts", total as usize / 25).await;
        let starts: Vec<i64> = counts
            .iter()
            .map(|row| row["w"].as_i64().unwrap())
            .collect();
        assert!(
            starts.is_sorted_by(|a, b| a < b),
            "a window was sent twice: {starts:?}"
        );
        assert!(counts.iter().all(|row| row["n"] == 25), "{counts:?}");
        fusion.close().await;
    });
}

const EACH: &str = "INSERT INTO kafka.each SELECT id FROM kafka.in";
const COUNTS: &str = "INSERT INTO kafka.counts SELECT count(*) AS n, window_start AS w FROM \
                      TUMBLE(kafka.in, ts, INTERVAL '250 milliseconds')";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_sink_holds_the_source_back_and_loses_nothing() {
    let plan = Arc::new(crate::sql::compile("SELECT * FROM mqtt.\"t\"").unwrap());
    let feed = crate::feed::Feed::new();
    let lane = super::speed::lane_of(plan);
    feed.join([lane.clone()]);
    let payload = format!("{{\"pad\":\"{}\"}}", "x".repeat(10_000));
    let message = Message {
        topic: "t",
        payload: payload.as_bytes(),
        qos: Qos::AtLeastOnce,
        received: base::UnixMillis(0),
        ..Message::default()
    };
    let batch = vec![message; 1_000];
    let Delivery::HoldBack { taken } = feed.deliver(&batch) else {
        panic!("nothing was held back")
    };
    let waiting = std::mem::take(&mut lane.state.lock().output);
    assert_eq!(waiting.rows.len(), taken);
    assert!(waiting.bytes.len() < crate::limits::OUTPUT_BYTES_MAX + 2 * payload.len());
    feed.made_room();
    tokio::time::timeout(Duration::from_secs(5), feed.room())
        .await
        .unwrap();
    let mut rest = &batch[taken..];
    while let Delivery::HoldBack { taken } = feed.deliver(rest) {
        rest = &rest[taken..];
        lane.state.lock().output = Default::default();
    }
    assert_eq!(lane.state.lock().machine.books().received, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_api_adds_lists_shows_and_removes() {
    let house = House::open().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = crate::http::routes(house.fusion.clone());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let call = |method: &'static str, path: String, body: String| http(address, method, path, body);
    let statements = || "/api/v1/statements".to_owned();

    let text = "SELECT a,\n  b + FROM mqtt.\"t\"";
    let (status, body) = call("POST", statements(), json!({ "text": text }).to_string()).await;
    assert_eq!((status, &body["error_code"]), (400, &json!(400)));
    assert_eq!(
        (&body["line"], &body["column"]),
        (&json!(2), &json!(7)),
        "{body}"
    );
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("a value is missing"),
        "{body}"
    );

    for (body, says) in [
        ("{".to_owned(), "cannot be used"),
        (
            json!({"text": "SELECT 1", "color": "red"}).to_string(),
            "color",
        ),
        (
            json!({"text": "INSERT INTO mqtt.\"a/b\" SELECT x FROM mqtt.\"a/+\""}).to_string(),
            "its own rows",
        ),
        (
            json!({"text": "INSERT INTO kafka.t SELECT x FROM kafka.t"}).to_string(),
            "its own rows",
        ),
        (
            json!({"text": "SELECT x FROM mqtt.\"#\""}).to_string(),
            "its own rows",
        ),
    ] {
        let (status, answer) = call("POST", statements(), body).await;
        assert_eq!(status, 400, "{answer}");
        assert!(
            answer["message"].as_str().unwrap().contains(says),
            "{answer}"
        );
    }
    let (status, _) = call("POST", statements(), "x".repeat(200_000)).await;
    assert_eq!(status, 413);

    let good = json!({"name": "mine", "text": "SELECT x FROM mqtt.\"t\""}).to_string();
    let (status, added) = call("POST", statements(), good.clone()).await;
    assert_eq!(
        (status, &added["status"], &added["source"]),
        (201, &json!("running"), &json!("mqtt.\"t\""))
    );
    assert_eq!(call("POST", statements(), good).await.0, 409);
    house.publish("t", "{\"x\":1}");
    house.until("mine", |info| info.emitted_total == 1).await;
    let (status, list) = call("GET", statements(), String::new()).await;
    assert_eq!(
        (status, list["statements"].as_array().unwrap().len()),
        (200, 1)
    );
    assert_eq!(list["statements"][0]["received_total"], 1);
    assert_eq!(list["statements"][0]["error"], Json::Null);
    let id = added["id"].as_str().unwrap();
    let (status, shown) = call("GET", format!("/api/v1/statements/{id}"), String::new()).await;
    assert_eq!((status, &shown["name"]), (200, &json!("mine")));
    assert_eq!(
        call("DELETE", format!("/api/v1/statements/{id}"), String::new())
            .await
            .0,
        204
    );
    assert_eq!(
        call("DELETE", format!("/api/v1/statements/{id}"), String::new())
            .await
            .0,
        404
    );
    server.abort();
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_statements_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(journal::RealDisk);
    let (store, _) = crate::store::StatementStore::open(disk.clone(), folder.path()).unwrap();
    let definition = definition();
    let idle = crate::Definition {
        id: "idle".to_owned(),
        ..definition.clone()
    };
    store.add(&idle, b"idle state").await.unwrap();
    store.add(&definition, b"").await.unwrap();
    let (mut state, there) = (vec![0; 3 << 20], CancellationToken::new());
    for round in 0..60u8 {
        state[0] = round;
        store
            .checkpoint("a", &whole(&state), journal::Durability::Os, &there)
            .await
            .unwrap();
    }
    store.close().await;
    drop(store);
    let files = std::fs::read_dir(folder.path()).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(
        bytes < 90 << 20,
        "180 MiB were written and {bytes} bytes kept"
    );
    let (store, recovered) = crate::store::StatementStore::open(disk, folder.path()).unwrap();
    assert_eq!(recovered.len(), 2);
    assert_eq!(kept(&recovered[0]), Some(&state[..]));
    assert_eq!(kept(&recovered[1]), Some(&b"idle state"[..]));
    store.remove("a").await.unwrap();
    store.close().await;
}

/// A whole checkpoint of those bytes.
pub fn whole(bytes: &[u8]) -> Checkpoint {
    Checkpoint {
        bytes: bytes.to_vec(),
        is_whole: true,
    }
}

/// The whole checkpoint that was recovered, where no changes follow it.
pub fn kept(recovered: &crate::store::Recovered) -> Option<&[u8]> {
    let kept = recovered.checkpoint.as_ref()?;
    kept.changes.is_empty().then_some(&kept.whole)
}

/// A statement as it is kept, without anything special.
pub fn definition() -> crate::Definition {
    crate::Definition {
        id: "a".to_owned(),
        name: "a".to_owned(),
        text: "SELECT x FROM mqtt.\"t\"".to_owned(),
        language: crate::Language::Sql,
        start: crate::Start::Latest,
        lateness_ms: 0,
        created_ms: base::UnixMillis(1),
        format: None,
        output: crate::sinks::OutputForm::Rows,
        targets: Vec::new(),
        policies: None,
        generation: 0,
        is_paused: false,
        origin: crate::statement::Origin::Api,
    }
}
