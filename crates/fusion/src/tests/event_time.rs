//! Event time: any order within the lateness gives the same bytes, and bad events change nothing
//! for the others.

use base::Rng;
use serde_json::{Value as Json, json};

use super::cases;
use super::house::{self, Collector, House, wait};
use crate::epl::{self, Catalog};
use crate::machine::MachineOptions;
use crate::plan::Plan;
use crate::{FusionError, NewStatement, sql};

/// Statements in EPL of every kind that goes by time. Sums of doubles, firsts and lasts tell one order
/// from another.
const EPL: [&str; 11] = [
    "select k, sum(f) as s, avg(f) as a, stddev(f) as d, first(v) as x, last(v) as y, count(*) as n \
     from \"t\"#time_batch(1 sec) group by k",
    "select k, sum(f) as s, window(v) as w from \"t\"#time(2 sec) group by k",
    "select irstream k, v from \"t\"(v > 2)#length(5)",
    "select k, median(f) as m from \"t\"#groupwin(k)#length(3) group by k",
    "select a.v as a, b.v as b from pattern [every a=\"t\"(v > 6) -> b=\"t\"(k = a.k) where \
     timer:within(1 sec)]",
    "select a.k as k, a.v as x, b.v as y from \"t\"#length(4) as a, \"t\"#unique(k) as b where a.k = b.k",
    "select * from \"t\" match_recognize (partition by k measures A.v as a, B.v as b pattern (A B) \
     define B as B.v > A.v)",
    "select k, sum(f) as s from \"t\"#time(1 sec) group by k output last every 500 msec",
    "create context C partition by k from \"t\"; context C select k, sum(f) as s from \"t\"#time_batch(1 \
     sec)",
    "select k, sum(m) as a, avg(m) as b, min(m) as c, max(m) as d, first(m) as e, last(m) as f, stddev(m) \
     as g, avedev(f) as h, median(f) as i, percentile(f, 0.9) as j, nth(m, 1) as l, window(m) as n, \
     count(distinct m) as o, sum(f, filter: v > 3) as p, rate(1 sec) as q from \"t\"#time(1 sec) group by k",
    "select k, countever(*) as a, firstever(m) as b, lastever(m) as c, minever(m) as d, maxever(m) as e, \
     maxby(f).m as f, minby(f).m as g, sum(m) as h from \"t\"#length(20) group by k",
];

/// In SQL every aggregate, of values of mixed kinds too, and joins.
const SQL: [&str; 9] = [
    "SELECT k, count(m) AS n, sum(m) AS s, avg(m) AS a, min(m) AS lo, max(m) AS hi, first(m) AS f, last(m) \
     AS l, stddev(m) AS d FROM TUMBLE(mqtt.\"t\", ts, INTERVAL '1 second') GROUP BY k",
    "SELECT sum(f) AS s, avg(f) AS a, stddev(f) AS d, first(f) AS x, last(f) AS y, sum(f) FILTER (WHERE v > \
     3) AS p FROM HOP(mqtt.\"t\", ts, INTERVAL '500 milliseconds', INTERVAL '2 seconds')",
    "SELECT k, sum(f) AS s, avg(m) AS a, stddev(f) AS d, first(m) AS x, last(m) AS y, min(m) AS lo, max(m) \
     AS hi FROM SESSION(mqtt.\"t\", ts, INTERVAL '300 milliseconds') GROUP BY k",
    "SELECT a.k, a.m AS x, b.m AS y FROM mqtt.\"t/0\" AS a JOIN mqtt.\"t/1\" AS b ON a.k = b.k AND b.ts \
     BETWEEN a.ts - INTERVAL '300' MILLISECOND AND a.ts + INTERVAL '200' MILLISECOND",
    "SELECT a.k AS k, b.k AS l, a.m AS x, b.m AS y FROM mqtt.\"t/0\" AS a FULL JOIN mqtt.\"t/1\" AS b ON \
     a.v = b.v AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '100' MILLISECOND",
    "SELECT a.m AS x, b.m AS y, window_start AS w FROM TUMBLE(mqtt.\"t\", ts, INTERVAL '1 second') AS a \
     LEFT JOIN TUMBLE(mqtt.\"t\", ts, INTERVAL '1 second') AS b ON a.k = b.k AND a.v < b.v",
    "SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS a, min(f) AS lo, max(f) AS hi, window_start AS w \
     FROM TUMBLE(mqtt.\"t\", ts, INTERVAL '1 second') GROUP BY k",
    "SELECT k, v, count(*) AS n FROM HOP(mqtt.\"t\", ts, INTERVAL '500 milliseconds', INTERVAL '2 \
     seconds') GROUP BY k, v",
    "SELECT k, sum(v) AS s, window_end AS w FROM SESSION(mqtt.\"t\", ts, INTERVAL '300 milliseconds') \
     GROUP BY k HAVING count(*) > 1",
];

const LATENESS: u64 = 500;

fn by_event_time(text: &str) -> Plan {
    let plan = epl::compile(text, &Catalog::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
    plan.by_event_time("ts").unwrap()
}

fn options() -> MachineOptions {
    MachineOptions {
        lateness_ms: LATENESS as i64,
        ..house::options()
    }
}

/// Events in the order of their times, and each of them moved by less than the lateness.
fn events(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut rng = Rng::from_seed(seed);
    let mut events: Vec<(u64, String)> = (0..120)
        .map(|_| {
            let (ts, k) = (rng.below(12_000), rng.below(3));
            // Some happen at one time.
            let ts = ts / 40 * 40;
            let f = rng.below(1_000) as f64 / 7.0 * 10_f64.powi(rng.below(30) as i32 - 15);
            let v = rng.below(9);
            let m = [
                "1", "1.0", "0.1", "-2.5e7", "0", "-0.0", "\"a\"", "true", "null", "3e-9",
            ];
            let m = m[rng.below(m.len() as u64) as usize];
            let (topic, k) = (rng.below(2), format!("k{k}"));
            let text =
                format!("0@t/{topic} {{\"k\":\"{k}\",\"v\":{v},\"f\":{f},\"m\":{m},\"ts\":{ts}}}");
            (ts, text)
        })
        .collect();
    events.sort();
    let texts = |events: &[(u64, String)]| -> Vec<String> {
        let last = [0, 1].map(|topic| {
            format!("0@t/{topic} {{\"k\":\"z\",\"v\":0,\"f\":0.0,\"ts\":9999{topic}}}")
        });
        let texts = events.iter().map(|(_, text)| text.clone());
        texts.chain(last).collect()
    };
    let in_order = texts(&events);
    let mut moved: Vec<(u64, u64)> = (0..events.len() as u64)
        .map(|n| (events[n as usize].0 + rng.below(LATENESS), n))
        .collect();
    moved.sort();
    let moved: Vec<(u64, String)> = moved
        .into_iter()
        .map(|(_, n)| events[n as usize].clone())
        .collect();
    (in_order, texts(&moved))
}

#[test]
fn any_order_within_the_lateness_gives_the_same_bytes() {
    let plans: Vec<(&str, Plan)> = EPL
        .into_iter()
        .map(|text| (text, by_event_time(text)))
        .chain(SQL.map(|text| (text, sql::compile(text).unwrap())))
        .collect();
    for (text, plan) in plans {
        let mut rows = 0;
        for seed in 0..30 {
            let (in_order, moved) = events(seed);
            assert_ne!(in_order, moved);
            let outcome =
                |lines: &[String]| cases::rows(plan.clone(), options(), &lines.join("\n"));
            let expected = outcome(&in_order);
            assert!(
                !expected.contains("late"),
                "seed {seed}: {text}\n{expected}"
            );
            let moved = outcome(&moved);
            // Whether rows stand for an event that none is of hangs on what leaves with it.
            let told = |outcome: &str| -> Vec<String> {
                let lines = outcome.lines().filter(|line| !line.ends_with(" filtered"));
                lines.map(str::to_owned).collect()
            };
            assert_eq!(told(&moved), told(&expected), "seed {seed}: {text}");
            rows += expected
                .lines()
                .filter(|line| line.starts_with('{'))
                .count();
        }
        assert!(rows > 100, "{text}: {rows} rows");
    }
}

/// By their arrival the same events give other rows, so that the order of the test above counts.
#[test]
fn by_arrival_the_order_counts() {
    let plan = || epl::compile(EPL[1], &Catalog::default()).unwrap();
    let (in_order, moved) = events(1);
    let outcome = |lines: Vec<String>| cases::rows(plan(), options(), &lines.join("\n"));
    assert_ne!(outcome(in_order), outcome(moved));
}

fn form(name: &str, text: &str, more: Json) -> NewStatement {
    let mut form = json!({"name": name, "text": text, "language": "epl"});
    for (key, value) in more.as_object().unwrap() {
        form[key] = value.clone();
    }
    serde_json::from_value(form).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_names_the_field_that_a_statement_goes_by() {
    let mut house = House::open().await;
    let policies = json!({"time": "at.ms", "on_error": "dead_letter"});
    let text = "select sum(v) as s, first(v) as f from \"in\"#time_batch(1 sec)";
    let more = json!({"targets": ["mqtt:out"], "lateness": "1s", "policies": policies});
    house.fusion.add(form("m", text, more)).await.unwrap();
    let send =
        |v: u64, ms: u64| house.publish("in", &json!({"v": v, "at": {"ms": ms}}).to_string());
    send(4, 10_300);
    send(1, 10_000);
    send(2, 10_200);
    house.until("m", |info| info.received_total == 3).await;
    // What waits for its time is there after a restart.
    house.fusion.close().await;
    house.reopen().await;
    let rows = std::sync::Arc::new(Collector::default());
    let letters = std::sync::Arc::new(Collector::default());
    house.mqtt.subscribe("out".parse().unwrap(), rows.clone());
    house
        .mqtt
        .subscribe("errors/statements/+".parse().unwrap(), letters.clone());
    let send =
        |v: u64, ms: u64| house.publish("in", &json!({"v": v, "at": {"ms": ms}}).to_string());
    send(8, 12_500);
    send(16, 11_000);
    wait("the first batch", || rows.0.lock().len() == 1).await;
    assert_eq!(rows.0.lock()[0], json!({"s": 7, "f": 1}));
    wait("the late one's letter", || letters.0.lock().len() == 1).await;
    assert_eq!(letters.0.lock()[0]["kind"], "late");
    house.publish("in", "{\"v\":1}");
    wait("the letter of one without time", || {
        letters.0.lock().len() == 2
    })
    .await;
    let told = letters.0.lock()[1]["reason"].as_str().unwrap().to_owned();
    assert!(told.contains("time"), "{told}");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_falls_silent_lets_what_waits_go() {
    let house = House::open().await;
    let rows = std::sync::Arc::new(Collector::default());
    house.mqtt.subscribe("out".parse().unwrap(), rows.clone());
    let more = json!({"targets": ["mqtt:out"], "lateness": "1h",
        "policies": {"time": "ts", "idle_timeout": "200ms"}});
    let text = "select v from \"in\"#length(2)";
    house.fusion.add(form("m", text, more)).await.unwrap();
    for (v, ts) in [(2, 20), (1, 10)] {
        house.publish("in", &json!({"v": v, "ts": ts}).to_string());
    }
    wait("both rows", || rows.0.lock().len() == 2).await;
    assert_eq!(*rows.0.lock(), [json!({"v": 1}), json!({"v": 2})]);
    house.close().await;
}

/// One partition is read before the other: that makes nothing late.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_wait_for_each_other() {
    let house = House::open().await;
    house.create("raw", 2).await;
    for n in 0..400_i64 {
        let value = json!({"n": n, "ts": n * 1_000}).to_string();
        house.produce("raw", i32::from(n >= 200), &value).await;
    }
    // The second partition begins behind the first one's end; then both in turn.
    for n in 400..440_i64 {
        let value = json!({"n": n, "ts": n * 1_000}).to_string();
        house.produce("raw", (n % 2) as i32, &value).await;
    }
    let more = json!({"targets": ["kafka:out"], "start": "earliest", "policies": {"time": "ts"}});
    let text = "select n from kafka.raw#length(1)";
    house.fusion.add(form("m", text, more)).await.unwrap();
    let info = house.until("m", |info| info.received_total == 440).await;
    assert_eq!(info.late_total, 0, "{info:?}");
    let rows = house.rows("out", 430).await;
    let numbers: Vec<i64> = rows.iter().map(|row| row["n"].as_i64().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_goes_by_time_the_policy_is_refused() {
    let house = House::open().await;
    let create = form("W", "create window W#keepall as (v long)", json!({}));
    house.fusion.add(create).await.unwrap();
    for (text, language, field, says) in [
        ("select v from \"in\"", "epl", "ts", "no window"),
        ("create table T (v long)", "epl", "ts", "no window"),
        ("select v from W", "epl", "ts", "named windows"),
        ("on \"in\" as e delete from W", "epl", "ts", "no window"),
        ("select v from \"in\"#length(2)", "epl", "a..b", "no field"),
        (
            "SELECT sum(v) AS s FROM TUMBLE(mqtt.\"in\", ts, INTERVAL '1 second')",
            "sql",
            "ts",
            "TUMBLE",
        ),
    ] {
        let more = json!({"language": language, "policies": {"time": field}});
        match house.fusion.add(form("m", text, more)).await {
            Err(FusionError::Refused(why)) => assert!(why.contains(says), "{text}: {why}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    house.close().await;
}

/// One message in a hundred is no use: the rows are those without it, and each is described.
#[tokio::test(flavor = "multi_thread")]
async fn bad_events_leave_the_others_rows_as_they_are_and_are_described() {
    let house = House::open().await;
    let heard = |filter: &str| {
        let sink = std::sync::Arc::new(Collector::default());
        house.mqtt.subscribe(filter.parse().unwrap(), sink.clone());
        sink
    };
    let (clean, mixed, letters) = (heard("clean"), heard("mixed"), heard("errors/statements/+"));
    for name in ["clean", "mixed"] {
        let text = format!(
            "INSERT INTO mqtt.\"{name}\" SELECT k, count(*) AS n, sum(f) AS s, last(v) AS l FROM \
             TUMBLE(mqtt.\"in/{name}\", ts, INTERVAL '1 second') GROUP BY k"
        );
        house.add_named(name, &text).await;
        let text = format!("select k, sum(f) as s from \"in/{name}\"#length(10) group by k");
        let more = json!({"targets": [format!("mqtt:{name}")],
            "policies": {"on_error": "drop"}});
        let name = format!("{name} by length");
        house.fusion.add(form(&name, &text, more)).await.unwrap();
    }
    let mut rng = Rng::from_seed(7);
    let bad = [
        "{\"k\":",
        "no json",
        "\u{1}",
        "{\"k\":1}}",
        "[1,",
        "{\"k\":\"a\",\"ts\":1e}",
    ];
    let mut sent = Vec::new();
    for n in 0..1_000 {
        if n % 100 == 50 {
            let payload = bad[n / 100 % bad.len()];
            house.publish("in/mixed", payload);
            sent.push(payload);
        }
        let good = json!({"k": rng.below(5), "v": n, "f": rng.below(1_000) as f64 / 7.0,
            "ts": 1_000 + n * 10});
        house.publish("in/clean", &good.to_string());
        house.publish("in/mixed", &good.to_string());
    }
    for name in ["clean", "clean by length"] {
        house.until(name, |info| info.received_total == 1_000).await;
    }
    for name in ["mixed", "mixed by length"] {
        let info = house.until(name, |info| info.received_total == 1_010).await;
        assert_eq!(info.errored_total, 10, "{info:?}");
    }
    wait("all rows", || {
        let (clean, mixed) = (clean.0.lock().len(), mixed.0.lock().len());
        clean == mixed && clean > 1_040
    })
    .await;
    // The rows of two statements come in one order on both sides or in none: apart they do.
    let apart = |rows: &Collector, is_window: bool| -> Vec<String> {
        let rows = rows.0.lock();
        let rows = rows.iter().filter(|row| row["n"].is_u64() == is_window);
        rows.map(Json::to_string).collect()
    };
    for is_window in [true, false] {
        assert_eq!(apart(&mixed, is_window), apart(&clean, is_window));
    }
    wait("a letter for each", || letters.0.lock().len() == 10).await;
    let letters = letters.0.lock().clone();
    for (letter, payload) in letters.iter().zip(&sent) {
        assert_eq!(
            (&letter["name"], &letter["topic"], &letter["payload"]),
            (&json!("mixed"), &json!("in/mixed"), &json!(payload))
        );
        let reason = letter["reason"].as_str().unwrap();
        assert!(reason.contains("JSON"), "{letter}");
    }
    house.close().await;
}
