//! What the core costs in CPU time of one core, without sockets: run with
//! `cargo test -p fusion --release -- --ignored --nocapture speed`.

use std::sync::Arc;

use base::UnixMillis;
use mqtt::{Delivery, Message, MessageSink, Qos};

use super::house::options;
use crate::feed::Feed;
use crate::lane::{Lane, LaneState, Target};
use crate::machine::Machine;
use crate::plan::Plan;
use crate::sql;
use crate::statement::{Definition, Language, Start};

#[test]
#[ignore = "a measurement"]
fn speed_of_the_core() {
    for (name, text) in [
        (
            "filter and arithmetic, no row",
            "SELECT result * 1.8 + 32 AS f FROM mqtt.\"t\" WHERE result * 1.8 + 32 > 1000",
        ),
        (
            "filter and arithmetic, a row each",
            "SELECT id, result * 1.8 + 32 AS f FROM mqtt.\"t\" WHERE result > 0",
        ),
        (
            "window and group of 100",
            "SELECT id, count(*) AS n, avg(result) AS a FROM TUMBLE(mqtt.\"t\", INTERVAL '10 seconds') GROUP BY id",
        ),
        (
            "the same by the time in the payload",
            "SELECT id, count(*) AS n, avg(result) AS a FROM TUMBLE(mqtt.\"t\", time, INTERVAL '10 seconds') GROUP BY id",
        ),
        (
            "standard deviation of a group of 100",
            "SELECT id, stddev(result) AS d FROM TUMBLE(mqtt.\"t\", INTERVAL '10 seconds') GROUP BY id",
        ),
        (
            "the same by the time in the payload",
            "SELECT id, stddev(result) AS d FROM TUMBLE(mqtt.\"t\", time, INTERVAL '10 seconds') GROUP BY id",
        ),
        (
            "join that keeps 10,000 events and gives a pair each",
            "SELECT a.id, b.result AS r FROM mqtt.\"t\" AS a JOIN mqtt.\"t\" AS b ON a.id = b.id AND a.seq = b.seq AND b._timestamp BETWEEN a._timestamp + INTERVAL '10' MILLISECOND AND a._timestamp + INTERVAL '10' MILLISECOND",
        ),
    ] {
        let mut figures: Vec<f64> = (0..5).map(|_| measure(text)).collect();
        figures.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.2} M messages/s, {:.0} ns each",
            figures[2] / 1e6,
            1e9 / figures[2]
        );
    }
}

fn measure(text: &str) -> f64 {
    let payloads: Vec<String> = (0..1_000)
        .map(|index| {
            format!(
                "{{\"id\":\"sensor-{:04}\",\"seq\":{},\"result\":{}.{},\"time\":1700000000{:03},\"unit\":\"degC\",\"ok\":true}}",
                index % 100, index, 20 + index % 7, index % 10, index
            )
        })
        .collect();
    let feed = Feed::new();
    let lane = lane(text);
    feed.join([lane.clone()]);
    let rounds = 1_000;
    let start = cpu_nanos();
    for round in 0..rounds {
        let batch: Vec<Message<'_>> = payloads
            .iter()
            .map(|payload| Message {
                topic: "t",
                payload: payload.as_bytes(),
                qos: Qos::AtMostOnce,
                received: UnixMillis(round),
                ..Message::default()
            })
            .collect();
        for part in batch.chunks(64) {
            assert_eq!(feed.deliver(part), Delivery::Taken);
            let mut state = lane.state.lock();
            state.output.bytes.clear();
            state.output.rows.clear();
        }
    }
    (rounds * 1_000) as f64 * 1e9 / (cpu_nanos() - start) as f64
}

/// CPU time of this thread, so that a busy machine does not count.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

fn lane(text: &str) -> Arc<Lane> {
    lane_of(Arc::new(sql::compile(text).unwrap()))
}

/// A lane of an MQTT source that nobody writes out.
pub fn lane_of(plan: Arc<Plan>) -> Arc<Lane> {
    let machine = Machine::new(plan.clone(), options());
    Arc::new(Lane {
        definition: Definition {
            id: "speed".to_owned(),
            name: "speed".to_owned(),
            text: String::new(),
            language: Language::Sql,
            start: Start::Latest,
            lateness_ms: 0,
            created_ms: UnixMillis(0),
            format: None,
            output: crate::sinks::OutputForm::Rows,
            targets: Vec::new(),
            policies: None,
            generation: 0,
            is_paused: false,
            origin: crate::statement::Origin::Api,
        },
        plan,
        targets: vec![Target::Mqtt("out".parse().unwrap())],
        changes: None,
        letters: None,
        tap: std::sync::OnceLock::new(),
        state: parking_lot::Mutex::new(LaneState::new(machine, Vec::new(), true)),
        wake: tokio::sync::Notify::new(),
        idle: tokio::sync::Notify::new(),
        turn: tokio::sync::Mutex::default(),
        removed: tokio_util::sync::CancellationToken::new(),
    })
}
