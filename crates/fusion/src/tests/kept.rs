//! Named windows, tables and subqueries in the engine: shared, kept over restarts, asked on demand.

use serde_json::{Value as Json, json};

use super::house::{House, http, new};
use crate::{FusionError, Language, NewStatement, Status};

fn epl(name: &str, text: &str) -> NewStatement {
    NewStatement {
        language: Language::Epl,
        ..new(name, text)
    }
}

async fn add(house: &House, name: &str, text: &str) {
    let info = house.fusion.add(epl(name, text)).await.unwrap();
    assert_eq!(info.status, Status::Running, "{info:?}");
}

async fn refused(house: &House, text: &str) -> String {
    match house.fusion.add(epl("refused", text)).await {
        Err(FusionError::Refused(why)) => why,
        other => panic!("{text}: {other:?}"),
    }
}

/// Publishes and waits until the statement has had so many events.
async fn send(house: &House, topic: &str, payload: &Json, statement: &str, received: u64) {
    house.publish(topic, &payload.to_string());
    house
        .until(statement, |info| info.received_total >= received)
        .await;
}

fn sorted(mut rows: Vec<Json>) -> Vec<Json> {
    rows.sort_by_key(Json::to_string);
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_counts_is_asked_and_stands_after_a_restart() {
    let mut house = House::open().await;
    add(&house, "t", "create table T (k string primary key, n long)").await;
    let merge = "on \"in\" as e merge T as t where t.k = e.k \
                 when matched then update set n = t.n + 1 \
                 when not matched then insert select e.k as k, 1 as n";
    add(&house, "counts", merge).await;
    for (number, k) in ["x", "y", "x", "x"].into_iter().enumerate() {
        send(&house, "in", &json!({"k": k}), "counts", number as u64 + 1).await;
    }
    let ask = async |house: &House| {
        let text = "select k, n from T order by k";
        house.fusion.query(text).await.unwrap()
    };
    let rows = [json!({"k": "x", "n": 3}), json!({"k": "y", "n": 1})];
    assert_eq!(ask(&house).await, rows);

    house.fusion.close().await;
    house.reopen().await;
    assert_eq!(ask(&house).await, rows, "the table is kept");
    let before = house.fusion.statement("counts").unwrap().received_total;
    send(&house, "in", &json!({"k": "y"}), "counts", before + 1).await;
    assert_eq!(ask(&house).await[1], json!({"k": "y", "n": 2}));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_selects_changes_and_inserts() {
    let house = House::open().await;
    add(&house, "w", "create window W#keepall as (k string, a long)").await;
    add(
        &house,
        "sums",
        "insert into kafka.sums select sum(a) as s from W",
    )
    .await;
    let query = async |text: &str| house.fusion.query(text).await.unwrap();
    for (k, a) in [("x", 1), ("y", 2), ("x", 3)] {
        query(&format!("insert into W (k, a) values ('{k}', {a})")).await;
    }
    let grouped = "select k, sum(a) as s, count(*) as c from W group by k having count(*) > 1";
    assert_eq!(query(grouped).await, [json!({"k": "x", "s": 4, "c": 2})]);
    assert_eq!(
        query("select count(*) as c from W where a > 9").await,
        [json!({"c": 0})]
    );
    let joined = "select p.a as p, q.a as q from W as p, W as q where p.k = q.k and p.a < q.a";
    assert_eq!(query(joined).await, [json!({"p": 1, "q": 3})]);
    let biggest = "select k from W where a = (select max(a) from W)";
    assert_eq!(query(biggest).await, [json!({"k": "x"})]);
    let updated = query("update W set a = a * 10 where k = 'x'").await;
    assert_eq!(
        sorted(updated),
        [json!({"k": "x", "a": 10}), json!({"k": "x", "a": 30})]
    );
    query("delete from W where k = 'y'").await;
    assert_eq!(
        query("select a from W order by a desc limit 1").await,
        [json!({"a": 30})]
    );
    // Statements that read the window saw every change.
    let sums: Vec<Json> = house.rows("sums", 5).await;
    let sums: Vec<i64> = sums.iter().map(|row| row["s"].as_i64().unwrap()).collect();
    assert_eq!(sums, [1, 3, 6, 42, 40]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_with_what_to_do() {
    let house = House::open().await;
    add(
        &house,
        "w",
        "create window W#length(3) as (k string, a long)",
    )
    .await;
    let text = async |query: &str| house.fusion.query(query).await.unwrap_err();
    for (query, wanted) in [
        ("select k from V", "no named window or table V"),
        ("select b from W", "no column b: there are k, a"),
        ("select k from W#length(2)", "leave out the window"),
        (
            "insert into W (k) values ('x', 1)",
            "2 values for 1 columns",
        ),
        ("insert into V select k from W", "leave out insert into"),
        (
            "create window X#keepall as (k string)",
            "a statement, not a query",
        ),
        ("select k from pattern [every W]", "no patterns"),
    ] {
        let FusionError::Text(error) = text(query).await else {
            panic!("{query}");
        };
        assert!(error.message.contains(wanted), "{query}: {error}");
    }
    for (statement, wanted) in [
        (
            "on \"in\" as e delete from V where V.k = e.k",
            "named window or table",
        ),
        ("create window W#keepall as (k string)", "W already"),
    ] {
        let why = refused(&house, statement).await;
        assert!(why.contains(wanted), "{statement}: {why}");
    }
    add(&house, "t", "create table T (k string primary key)").await;
    let why = refused(&house, "select k from T").await;
    assert!(why.contains("tells nobody"), "{why}");
    add(&house, "reader", "insert into kafka.out select k from W").await;
    let error = house.fusion.remove("w").await.unwrap_err();
    assert!(error.to_string().contains("'reader'"), "{error}");
    house.fusion.remove("reader").await.unwrap();
    house.fusion.remove("w").await.unwrap();
    assert!(house.fusion.query("select k from W").await.is_err());
    house.close().await;
}

/// Adds statements that tell an id, of this type, at its first event only.
async fn tell_each_once(house: &House, kind: &str) {
    let window = format!("create window Seen#keepall as (id {kind})");
    add(house, "w", &window).await;
    let first = "insert into Seen select id from \"in\" as e \
                 where not exists (select * from Seen as s where s.id = e.id)";
    add(house, "first", first).await;
    add(house, "out", "insert into kafka.out select id from Seen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subquery_keeps_what_comes_twice_out() {
    let house = House::open().await;
    tell_each_once(&house, "string").await;
    for (number, id) in ["a", "b", "a", "b", "c"].into_iter().enumerate() {
        send(&house, "in", &json!({"id": id}), "first", number as u64 + 1).await;
    }
    let rows = house.rows("out", 3).await;
    assert_eq!(rows, ["a", "b", "c"].map(|id| json!({"id": id})));
    let info = house.fusion.statement("first").unwrap();
    let settled = info.filtered_total + info.emitted_from_total + info.in_flight;
    assert_eq!(info.received_total, settled, "{info:?}");
    house.close().await;
}

/// While the writers of the statements on the way run beside the events, in no order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_its_writer_does_a_row_goes_on_through_the_chain() {
    let house = House::open().await;
    tell_each_once(&house, "long").await;
    let events = 4_000;
    for id in 0..events {
        house.publish("in", &json!({"id": id}).to_string());
        if id % 50 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    let rows = house.rows("out", events).await;
    let wanted: Vec<Json> = (0..events).map(|id| json!({"id": id})).collect();
    assert_eq!(rows, wanted);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_in_brackets_asks_what_windows_hold_before_the_event_comes_to_them() {
    let house = House::open().await;
    add(
        &house,
        "w",
        "create window Limits#unique(k) as (k string, top double)",
    )
    .await;
    add(
        &house,
        "limits",
        "insert into Limits select k, top from \"limits\"",
    )
    .await;
    let text = "insert into kafka.over select k, sum(v) as s \
                from \"in\"(v > (select top from Limits as l where l.k = e.k))#length(2) as e";
    add(&house, "over", text).await;
    let rises = "insert into kafka.rises select v \
                 from \"in\"(v > coalesce((select max(v) from \"in\"#keepall), 0))";
    add(&house, "rises", rises).await;
    send(&house, "limits", &json!({"k": "a", "top": 5}), "limits", 1).await;
    for (number, (k, v)) in [("a", 6), ("a", 4), ("b", 9), ("a", 7), ("a", 8)]
        .into_iter()
        .enumerate()
    {
        send(
            &house,
            "in",
            &json!({"k": k, "v": v}),
            "over",
            number as u64 + 1,
        )
        .await;
    }
    let sums = [6, 13, 15].map(|s| json!({"k": "a", "s": s}));
    assert_eq!(house.rows("over", 3).await, sums);
    let rows = house.rows("rises", 2).await;
    assert_eq!(rows, [6, 9].map(|v| json!({"v": v})));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_topics_are_joined() {
    let house = House::open().await;
    let text = "insert into kafka.out select a.v as a, b.v as b \
                from \"left\"#lastevent as a, \"right\"#lastevent as b";
    add(&house, "j", text).await;
    send(&house, "left", &json!({"v": 1}), "j", 1).await;
    send(&house, "right", &json!({"v": 2}), "j", 2).await;
    send(&house, "left", &json!({"v": 3}), "j", 3).await;
    assert_eq!(
        house.rows("out", 2).await,
        [json!({"a": 1, "b": 2}), json!({"a": 3, "b": 2})]
    );
    house.close().await;
}

/// Sources of several statements are given events at once from many tasks: nobody waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_share_two_topics_do_not_block_each_other() {
    let house = House::open().await;
    for name in ["one", "two"] {
        let text =
            "select a.v as a, b.v as b from \"left\"#lastevent as a, \"right\"#lastevent as b";
        add(&house, name, text).await;
    }
    let publish = |topic: &'static str| {
        let mqtt = house.mqtt.clone();
        tokio::task::spawn_blocking(move || {
            for v in 0..2_000 {
                let payload = format!("{{\"v\":{v}}}");
                let topic = topic.parse().unwrap();
                let qos = mqtt::Qos::AtMostOnce;
                mqtt.publish(&topic, payload.as_bytes(), qos, false)
                    .unwrap();
            }
        })
    };
    let (left, right) = tokio::join!(publish("left"), publish("right"));
    left.unwrap();
    right.unwrap();
    for name in ["one", "two"] {
        house.until(name, |info| info.received_total == 4_000).await;
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_api_answers_queries() {
    let house = House::open().await;
    add(&house, "w", "create window W#keepall as (k string)").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = crate::http::routes(house.fusion.clone());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let ask = |body: Json| {
        let path = "/api/v1/statements/query".to_owned();
        http(address, "POST", path, body.to_string())
    };
    let insert = json!({"text": "insert into W (k) values ('x')"});
    assert_eq!(ask(insert).await.0, 200);
    let (status, answer) = ask(json!({"text": "select k from W"})).await;
    assert_eq!((status, answer), (200, json!({"rows": [{"k": "x"}]})));
    let (status, answer) = ask(json!({"text": "select k from V"})).await;
    assert_eq!((status, &answer["column"]), (400, &json!(15)));
    assert_eq!(ask(json!({"txt": "select"})).await.0, 400);
    server.abort();
    house.close().await;
}
