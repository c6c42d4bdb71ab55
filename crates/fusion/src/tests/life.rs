//! Statements paused, resumed, replaced and removed while events come.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::engine::{kept, whole};
use super::house::{House, http, new, wait};
use crate::{FusionError, ReplacedState, Replacement, StatementInfo, Status};

const SUMS: &str = "INSERT INTO kafka.sums SELECT k, sum(v) AS s FROM TUMBLE(mqtt.\"in\", ts, \
                    INTERVAL '1 minute') GROUP BY k";

/// The books balance.
fn check_books(info: &StatementInfo) {
    let settled = info.filtered_total
        + info.emitted_from_total
        + info.errored_total
        + info.late_total
        + info.dropped_total
        + info.in_flight;
    assert_eq!(info.received_total, settled, "{info:?}");
}

fn replacement(text: &str, state: ReplacedState) -> Replacement {
    let mut new = new("m", text);
    new.name = None;
    Replacement {
        new,
        state,
        origin: None,
    }
}

async fn send(house: &House, payload: Json) {
    let payload = payload.to_string();
    loop {
        let topic = "in".parse().unwrap();
        let published =
            house
                .mqtt
                .publish(&topic, payload.as_bytes(), mqtt::Qos::AtLeastOnce, false);
        match published {
            Ok(()) => return,
            Err(mqtt::MqttError::Busy) => house.mqtt.room(&topic).await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_statement_takes_nothing_and_keeps_its_windows_over_a_restart() {
    let mut house = House::open().await;
    house.add(SUMS).await;
    send(&house, json!({"k": 1, "v": 1, "ts": 1_000})).await;
    house.until("m", |info| info.received_total == 1).await;
    assert_eq!(
        house.fusion.pause("m").await.unwrap().status,
        Status::Paused
    );
    assert_eq!(
        house.fusion.pause("m").await.unwrap().status,
        Status::Paused
    );
    send(&house, json!({"k": 1, "v": 10, "ts": 2_000})).await;
    house.fusion.close().await;
    house.reopen().await;
    let info = house.fusion.statement("m").unwrap();
    assert_eq!((info.status, info.received_total), (Status::Paused, 1));
    send(&house, json!({"k": 1, "v": 100, "ts": 3_000})).await;
    assert_eq!(
        house.fusion.resume("m").await.unwrap().status,
        Status::Running
    );
    send(&house, json!({"k": 1, "v": 1_000, "ts": 4_000})).await;
    send(&house, json!({"k": 1, "v": 0, "ts": 60_000})).await;
    assert_eq!(house.rows("sums", 1).await, [json!({"k": 1, "s": 1_001})]);
    let info = house.until("m", |info| info.emitted_total == 1).await;
    assert_eq!(info.received_total, 3);
    check_books(&info);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_statement_goes_on_in_its_topic_where_it_stopped() {
    let house = House::open().await;
    house.create("raw", 2).await;
    house
        .add("INSERT INTO kafka.out SELECT v FROM kafka.raw")
        .await;
    house
        .add_named("other", "INSERT INTO kafka.too SELECT v FROM kafka.raw")
        .await;
    house.produce("raw", 0, "{\"v\":1}").await;
    house.until("m", |info| info.emitted_total == 1).await;
    house.fusion.pause("m").await.unwrap();
    house.produce("raw", 0, "{\"v\":2}").await;
    house.produce("raw", 0, "{\"v\":3}").await;
    house.until("other", |info| info.emitted_total == 3).await;
    let mut told = [house.fusion.statement("m").unwrap()];
    house.fusion.tell_lags(&mut told).await;
    assert_eq!((told[0].received_total, told[0].lag_records), (1, Some(2)));
    house.fusion.resume("m").await.unwrap();
    let rows = house.rows("out", 3).await;
    assert_eq!(rows, [json!({"v": 1}), json!({"v": 2}), json!({"v": 3})]);
    let info = house.until("m", |info| info.emitted_total == 3).await;
    check_books(&info);
    assert!(info.latency_p99_us >= info.latency_p50_us && info.latency_p50_us.is_some());
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_a_paused_statement_close_when_it_is_resumed() {
    let house = House::open().await;
    house
        .add("INSERT INTO kafka.n SELECT count(*) AS n FROM TUMBLE(mqtt.\"in\", INTERVAL '1 second')")
        .await;
    send(&house, json!({})).await;
    house.until("m", |info| info.received_total == 1).await;
    house.fusion.pause("m").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_800)).await;
    assert_eq!(house.fusion.statement("m").unwrap().in_flight, 1);
    house.fusion.resume("m").await.unwrap();
    assert_eq!(house.rows("n", 1).await, [json!({"n": 1})]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_fits_keeps_windows_and_books() {
    let mut house = House::open().await;
    let added = house.add(SUMS).await;
    send(&house, json!({"k": 1, "v": 1, "ts": 1_000, "x": true})).await;
    house.until("m", |info| info.received_total == 1).await;
    // Other columns, another filter, another target: the same windows, groups and aggregates.
    let text = "INSERT INTO kafka.other SELECT sum(v) * 2 AS twice, k FROM TUMBLE(mqtt.\"in\", ts, \
                INTERVAL '1 minute') WHERE x GROUP BY k HAVING sum(v) > 0";
    let replaced = house
        .fusion
        .replace("m", replacement(text, ReplacedState::Keep))
        .await;
    let (info, kept) = replaced.unwrap();
    assert!(kept);
    assert_eq!(
        (&info.id, &info.name, info.generation),
        (&added.id, &added.name, 1)
    );
    send(&house, json!({"k": 1, "v": 2, "ts": 2_000, "x": true})).await;
    send(&house, json!({"k": 1, "v": 50, "ts": 2_000})).await;
    house.until("m", |info| info.received_total == 3).await;
    house.fusion.close().await;
    house.reopen().await;
    let info = house.fusion.statement("m").unwrap();
    assert_eq!((info.text.as_str(), info.generation), (text, 1));
    send(&house, json!({"k": 1, "v": 0, "ts": 60_000, "x": true})).await;
    assert_eq!(house.rows("other", 1).await, [json!({"twice": 6, "k": 1})]);
    check_books(&house.until("m", |info| info.emitted_total == 1).await);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_does_not_fit_starts_anew_or_is_refused() {
    let mut house = House::open().await;
    house.add(SUMS).await;
    send(&house, json!({"k": 1, "v": 1, "ts": 1_000})).await;
    house.until("m", |info| info.received_total == 1).await;
    let text = "INSERT INTO kafka.max SELECT k, max(v) AS m FROM TUMBLE(mqtt.\"in\", ts, INTERVAL \
                '1 minute') GROUP BY k";
    let refused = house
        .fusion
        .replace("m", replacement(text, ReplacedState::Keep))
        .await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("does not fit"), "{error}");
    let wrong = house
        .fusion
        .replace("m", replacement("SELECT FROM", ReplacedState::Auto))
        .await;
    assert!(matches!(wrong, Err(FusionError::Text(_))));
    assert_eq!(house.fusion.statement("m").unwrap().generation, 0);
    let replaced = house
        .fusion
        .replace("m", replacement(text, ReplacedState::Auto))
        .await;
    let (info, kept) = replaced.unwrap();
    assert!(!kept);
    assert_eq!(
        (info.received_total, info.dropped_total, info.in_flight),
        (1, 1, 0)
    );
    send(&house, json!({"k": 1, "v": 7, "ts": 2_000})).await;
    house.until("m", |info| info.received_total == 2).await;
    house.fusion.close().await;
    house.reopen().await;
    send(&house, json!({"k": 1, "v": 0, "ts": 60_000})).await;
    assert_eq!(house.rows("max", 1).await, [json!({"k": 1, "m": 7})]);
    check_books(&house.until("m", |info| info.emitted_total == 1).await);
    house.close().await;
}

/// The state of a join hangs on the fields that it reads, wherever they stand.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_reads_another_field_does_not_keep_the_state() {
    let house = House::open().await;
    let form = |field: &str| -> crate::NewStatement {
        let text = format!(
            "select x.k as k, y.k as l, sum(y.{field}) as s from \"x\"#length(2) as x, \
             \"y\"#length(2) as y"
        );
        let form = json!({"name": "m", "language": "epl", "text": text, "targets": ["kafka.sums"]});
        serde_json::from_value(form).unwrap()
    };
    house.fusion.add(form("a")).await.unwrap();
    let replaced = async |field: &str| {
        let replacement = Replacement {
            new: crate::NewStatement {
                name: None,
                ..form(field)
            },
            state: ReplacedState::Keep,
            origin: None,
        };
        house.fusion.replace("m", replacement).await
    };
    let refused = replaced("b").await.unwrap_err().to_string();
    assert!(refused.contains("does not fit"), "{refused}");
    assert!(replaced("a").await.unwrap().1, "the same keeps it");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_again_and_again_while_events_come_it_counts_each_once() {
    let house = House::open().await;
    let form = |columns: &str| {
        format!(
            "INSERT INTO kafka.sums SELECT {columns} FROM TUMBLE(mqtt.\"in\", ts, INTERVAL '1 \
             minute') GROUP BY k"
        )
    };
    house.add(&form("k, count(*) AS n")).await;
    let total = 3_000;
    let sending = async {
        for index in 0..total {
            send(&house, json!({"k": index % 7, "ts": 1_000 + index})).await;
            if index % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    let replacing = async {
        for round in 0..10 {
            let columns = if round % 2 == 0 {
                "count(*) AS n, k"
            } else {
                "k, count(*) AS n"
            };
            let form = replacement(&form(columns), ReplacedState::Keep);
            house.fusion.replace("m", form).await.unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::join!(sending, replacing);
    let info = house.until("m", |info| info.received_total == total).await;
    assert_eq!((info.generation, info.in_flight), (10, total));
    send(&house, json!({"k": 0, "ts": 60_000})).await;
    let rows = house.rows("sums", 7).await;
    let counted: u64 = rows.iter().map(|row| row["n"].as_u64().unwrap()).sum();
    assert_eq!((rows.len(), counted), (7, total));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_statement_takes_nothing_more_and_another_may_have_its_name() {
    let house = House::open().await;
    house
        .add("INSERT INTO kafka.out SELECT v FROM mqtt.\"in\"")
        .await;
    house.fusion.pause("m").await.unwrap();
    house.fusion.remove("m").await.unwrap();
    send(&house, json!({"v": 1})).await;
    house
        .add("INSERT INTO kafka.out SELECT v FROM mqtt.\"in\"")
        .await;
    send(&house, json!({"v": 2})).await;
    assert_eq!(house.rows("out", 1).await, [json!({"v": 2})]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_api_pauses_resumes_replaces_explains_and_shows_rows() {
    let house = House::open().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = crate::http::routes(house.fusion.clone());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let call = |method: &'static str, path: &str, body: Json| {
        http(
            address,
            method,
            format!("/api/v1/statements{path}"),
            body.to_string(),
        )
    };
    let text = "SELECT v FROM mqtt.\"in\"";
    let (status, _) = call("POST", "", json!({"name": "mine", "text": text})).await;
    assert_eq!(status, 201);

    let (status, paused) = call("POST", "/mine/pause", json!(null)).await;
    assert_eq!((status, &paused["status"]), (200, &json!("paused")));
    let (status, resumed) = call("POST", "/mine/resume", json!(null)).await;
    assert_eq!((status, &resumed["status"]), (200, &json!("running")));
    assert_eq!(call("POST", "/nobody/pause", json!(null)).await.0, 404);

    let (status, looked) = call("GET", "/mine/rows?wait_ms=0", json!(null)).await;
    assert_eq!(
        (status, &looked),
        (200, &json!({"rows": [], "next": 0, "missed": 0}))
    );
    send(&house, json!({"v": 5})).await;
    let (_, looked) = call("GET", "/mine/rows?after=0&wait_ms=20000", json!(null)).await;
    assert_eq!(looked, json!({"rows": [{"v": 5}], "next": 1, "missed": 0}));

    let form = json!({"text": "SELECT v + 1 AS w FROM mqtt.\"in\"", "state": "keep"});
    let (status, replaced) = call("PUT", "/mine", form).await;
    assert_eq!(
        (status, &replaced["state_kept"]),
        (200, &json!(true)),
        "{replaced}"
    );
    assert_eq!(
        (&replaced["name"], &replaced["generation"]),
        (&json!("mine"), &json!(1))
    );
    for wrong in [
        json!({"text": text, "state": "no"}),
        json!({"text": text, "color": 1}),
        json!(3),
    ] {
        let (status, answer) = call("PUT", "/mine", wrong).await;
        assert_eq!(
            (status, &answer["error_code"]),
            (400, &json!(400)),
            "{answer}"
        );
    }

    let form = json!({"text": "SELECT a.b FROM mqtt.\"LS/x/y/SenML/10/Event/#\""});
    let (status, explained) = call("POST", "/explain", form).await;
    assert_eq!((status, &explained["format"]), (200, &json!("senml")));
    assert_eq!(explained["fields"], json!(["a.b"]));
    let (status, refused) = call("POST", "/explain", json!({"text": "SELECT a FORM mqtt.x"})).await;
    assert_eq!((status, refused["column"].is_u64()), (400, true));
    let (_, list) = call("GET", "", json!(null)).await;
    assert_eq!(list["statements"].as_array().unwrap().len(), 1);

    // What is shown of a form, put back, changes nothing.
    let given = json!({"start": "earliest", "lateness": "5s", "policies": {"on_error": "null"}});
    let mut form = given.clone();
    form["text"] = "SELECT v + 1 AS w FROM mqtt.\"in\"".into();
    let (_, first) = call("PUT", "/mine", form.clone()).await;
    assert_eq!(
        (&first["start"], &first["lateness"]),
        (&given["start"], &given["lateness"])
    );
    assert_eq!(first["policies"]["on_error"], "null", "{first}");
    for key in [
        "start", "lateness", "policies", "language", "targets", "output",
    ] {
        form[key] = first[key].clone();
    }
    let (_, again) = call("PUT", "/mine", form).await;
    for key in ["start", "lateness", "policies"] {
        assert_eq!(again[key], first[key], "{again}");
    }

    let (status, document) = call("GET", "/openapi.json", json!(null)).await;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    let described = &document["components"]["schemas"]["Statement"]["properties"];
    let shown = list["statements"][0].as_object().unwrap();
    for key in shown.keys() {
        assert!(
            described.get(key).is_some(),
            "the document does not describe {key}"
        );
    }
    server.abort();
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_computes_tells_what_that_costs() {
    let house = House::open().await;
    house
        .add("INSERT INTO mqtt.\"out\" SELECT v FROM mqtt.\"in\"")
        .await;
    for _ in 0..200 {
        send(&house, json!({"v": 1})).await;
    }
    house.until("m", |info| info.emitted_total == 200).await;
    wait("the cost", || {
        let info = house.fusion.statement("m").unwrap();
        info.cpu_seconds_total > 0.0 && info.cpu_share > 0.0 && info.latency_p99_us.is_some()
    })
    .await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_holds_the_form_that_took_the_place_and_its_state_alone() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let disk = std::sync::Arc::new(journal::RealDisk);
        crate::store::StatementStore::open(disk, folder.path()).unwrap()
    };
    let old = super::engine::definition();
    let changed = crate::Definition {
        text: "SELECT y FROM mqtt.\"t\"".to_owned(),
        generation: 1,
        ..old.clone()
    };
    let there = CancellationToken::new();
    let (store, _) = open();
    store.add(&old, b"one").await.unwrap();
    store
        .checkpoint("a", &whole(b"two"), journal::Durability::Os, &there)
        .await
        .unwrap();
    store.replace(&changed, b"two, kept", false).await.unwrap();
    store.close().await;
    drop(store);
    let (store, recovered) = open();
    assert_eq!(recovered[0].definition, changed);
    assert_eq!(kept(&recovered[0]), Some(&b"two, kept"[..]));
    let reset = crate::Definition {
        generation: 2,
        ..changed.clone()
    };
    store.replace(&reset, b"", true).await.unwrap();
    let paused = crate::Definition {
        is_paused: true,
        ..reset.clone()
    };
    store.change(&paused).await.unwrap();
    store.close().await;
    drop(store);
    let (store, recovered) = open();
    assert_eq!(recovered[0].definition, paused);
    assert_eq!(
        kept(&recovered[0]),
        Some(&b""[..]),
        "earlier states are gone"
    );
    store
        .checkpoint("a", &whole(b"three"), journal::Durability::Os, &there)
        .await
        .unwrap();
    store.close().await;
    drop(store);
    let (store, recovered) = open();
    assert_eq!(kept(&recovered[0]), Some(&b"three"[..]));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_statements_come_and_go_while_others_run_undisturbed() {
    let house = House::open().await;
    house.add("INSERT INTO kafka.sums SELECT count(*) AS n FROM TUMBLE(mqtt.\"in\", ts, INTERVAL '1 hour')").await;
    let total = 2_000;
    let sending = async {
        for index in 0..total {
            send(&house, json!({"v": index, "ts": 1_000 + index})).await;
            tokio::task::yield_now().await;
        }
    };
    let living = async {
        for round in 0..40 {
            let name = format!("passing-{round}");
            house
                .add_named(&name, "INSERT INTO mqtt.\"out\" SELECT v FROM mqtt.\"in\"")
                .await;
            house.fusion.pause(&name).await.unwrap();
            house.fusion.resume(&name).await.unwrap();
            let form = Replacement {
                new: new(
                    &name,
                    "INSERT INTO mqtt.\"out\" SELECT v + 1 AS v FROM mqtt.\"in\"",
                ),
                state: ReplacedState::Keep,
                origin: None,
            };
            house.fusion.replace(&name, form).await.unwrap();
            check_books(&house.fusion.statement(&name).unwrap());
            house.fusion.remove(&name).await.unwrap();
        }
    };
    tokio::join!(sending, living);
    let info = house.until("m", |info| info.received_total == total).await;
    assert_eq!(
        (info.in_flight, house.fusion.statements().len()),
        (total, 1)
    );
    house.close().await;
}
