//! What comes between two steps of another task: statements that are replaced, removed and closed
//! while events, clocks and writers go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use base::{SystemClock, UnixMillis};
use mqtt::{Delivery, Message, MessageSink, Qos};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use streams::ConsumedRecord;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::durable::engine;
use super::house::{Collector, DEADLINE, House, new, options, produce_batch, stores, until, wait};
use super::speed::lane_of;
use crate::chains::Chains;
use crate::feed::Feed;
use crate::formats::Format;
use crate::lane::{Lane, LaneState, Sequence, Target};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::Source;
use crate::store::StatementStore;
use crate::writer::Writer;
use crate::{FusionError, Language, NewStatement, ReplacedState, Replacement, Status};

fn epl(name: &str, text: &str, targets: &[&str]) -> NewStatement {
    NewStatement {
        language: Language::Epl,
        targets: targets.iter().map(ToString::to_string).collect(),
        ..new(name, text)
    }
}

fn kept(new: NewStatement) -> Replacement {
    Replacement {
        new,
        state: ReplacedState::Keep,
        origin: None,
    }
}

/// Publishes, and waits where somebody is behind.
async fn send(server: &mqtt::Server, topic: &str, payload: &Json) {
    let (topic, payload) = (topic.parse().unwrap(), payload.to_string());
    while server
        .publish(&topic, payload.as_bytes(), Qos::AtLeastOnce, false)
        .is_err()
    {
        server.room(&topic).await;
    }
}

/// A server that takes rows one by one as it is let, and says how often it was asked.
struct Gate {
    url: String,
    asked: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    async fn new(status: StatusCode) -> Gate {
        let (asked, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (telling, opening) = (asked.clone(), open.clone());
        let take = move || {
            let (telling, opening) = (telling.clone(), opening.clone());
            async move {
                telling.add_permits(1);
                opening.acquire().await.unwrap().forget();
                status
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/in", listener.local_addr().unwrap());
        let routes = Router::new().route("/in", post(take));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Gate { url, asked, open }
    }

    async fn is_asked(&self) {
        self.asked.acquire().await.unwrap().forget();
    }
}

/// Replaces a statement by its own form again and again until the work is done.
async fn replaced_during(house: &House, form: NewStatement, work: impl Future<Output = ()>) {
    let name = form.name.clone().unwrap();
    let form = NewStatement { name: None, ..form };
    let is_done = AtomicBool::new(false);
    let working = async {
        work.await;
        is_done.store(true, Ordering::Relaxed);
    };
    let replacing = async {
        while !is_done.load(Ordering::Relaxed) {
            let (_, is_kept) = house
                .fusion
                .replace(&name, kept(form.clone()))
                .await
                .unwrap();
            assert!(is_kept);
        }
    };
    tokio::join!(working, replacing);
}

fn counted(total: usize) -> Vec<Json> {
    (1..=total).map(|n| json!({ "n": n })).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_behind_a_stream_is_replaced_while_events_come_and_counts_each_once() {
    let house = House::open().await;
    let forms = [
        epl("first", "insert into H select v from \"in\"", &[]),
        epl("second", "insert into G select v from H", &[]),
        epl("third", "select count(*) as n from G", &["kafka.n"]),
    ];
    for form in &forms {
        house.fusion.add(form.clone()).await.unwrap();
    }
    let mut total = 0;
    for form in &forms[1..] {
        total += 3_000;
        let sending = async {
            for v in 0..3_000 {
                send(&house.mqtt, "in", &json!({ "v": v })).await;
                if v % 16 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        replaced_during(&house, form.clone(), sending).await;
    }
    assert_eq!(house.rows("n", total).await, counted(total));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_on_two_sources_is_replaced_while_events_come_and_counts_each_once() {
    let house = House::open().await;
    let text = "select count(*) as n from pattern [every (a=\"x\" or b=\"y\")]";
    let form = epl("m", text, &["kafka.n"]);
    house.fusion.add(form.clone()).await.unwrap();
    let sending = async {
        for v in 0..2_000 {
            for topic in ["x", "y"] {
                send(&house.mqtt, topic, &json!({ "v": v })).await;
            }
            if v % 16 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    replaced_during(&house, form, sending).await;
    assert_eq!(house.rows("n", 4_000).await, counted(4_000));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_the_clock_closes_while_a_statement_is_replaced_is_told_once() {
    let house = House::open().await;
    let text = "select count(*) as n from \"in\"#time_batch(5 msec)";
    let form = epl("m", text, &["kafka.n"]);
    house.fusion.add(form.clone()).await.unwrap();
    let sending = async {
        for v in 0..3_000 {
            send(&house.mqtt, "in", &json!({ "v": v })).await;
            if v % 8 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    replaced_during(&house, form, sending).await;
    let told = async || -> u64 {
        let rows = house.rows("n", 1).await;
        rows.iter().map(|row| row["n"].as_u64().unwrap()).sum()
    };
    let deadline = Instant::now() + DEADLINE;
    while told().await < 3_000 {
        assert!(Instant::now() < deadline, "{}", told().await);
    }
    house.fusion.close().await;
    assert_eq!(told().await, 3_000);
    house.mqtt.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_removed_statement_had_under_way_is_not_its_successors_state() {
    let folder = tempfile::tempdir().unwrap();
    let (store, server) = stores(folder.path());
    let dir = folder.path().join("fusion");
    let fusion = engine(&dir, &store, &server, Duration::from_millis(10)).await;
    let gate = Gate::new(StatusCode::OK).await;
    let form = NewStatement {
        id: Some("same".to_owned()),
        targets: vec![gate.url.clone()],
        ..new("m", "SELECT v FROM mqtt.\"in\"")
    };
    fusion.add(form.clone()).await.unwrap();
    // Then the turn that sends the row has a checkpoint too.
    tokio::time::sleep(Duration::from_millis(10)).await;
    send(&server, "in", &json!({ "v": 1 })).await;
    gate.is_asked().await;
    fusion.remove("m").await.unwrap();
    fusion.add(form).await.unwrap();
    gate.open.add_permits(10);
    // Closing waits for the writers of both.
    fusion.close().await;
    let fusion = engine(&dir, &store, &server, Duration::from_millis(10)).await;
    let info = fusion.statement("m").unwrap();
    assert_eq!((info.status, info.received_total), (Status::Running, 0));
    fusion.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_is_given_up_half_way_holds_nobody_back() {
    let house = House::open().await;
    let gate = Gate::new(StatusCode::OK).await;
    let form = NewStatement {
        targets: vec![gate.url.clone()],
        ..new("m", "SELECT v FROM mqtt.\"in\"")
    };
    house.fusion.add(form.clone()).await.unwrap();
    house.publish("in", "{\"v\":1}");
    gate.is_asked().await;
    let replacement = kept(NewStatement { name: None, ..form });
    let given_up = tokio::time::timeout(
        Duration::from_millis(50),
        house.fusion.replace("m", replacement),
    );
    assert!(given_up.await.is_err());
    for _ in 0..20 {
        house.publish("in", "{\"v\":2}");
    }
    house.until("m", |info| info.received_total == 21).await;
    gate.open.add_permits(30);
    house.until("m", |info| info.emitted_total == 21).await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_by_http_is_brought_to_its_end_when_its_client_goes_away() {
    use tokio::io::AsyncWriteExt;
    let house = House::open().await;
    let gate = Gate::new(StatusCode::OK).await;
    let text = "SELECT v FROM mqtt.\"in\"";
    let form = NewStatement {
        targets: vec![gate.url.clone()],
        ..new("m", text)
    };
    house.fusion.add(form).await.unwrap();
    house.publish("in", "{\"v\":1}");
    gate.is_asked().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = crate::http::routes(house.fusion.clone());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let body = json!({ "text": text, "targets": [gate.url] }).to_string();
    let head = format!(
        "PUT /api/v1/statements/m HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut link = tokio::net::TcpStream::connect(address).await.unwrap();
    link.write_all((head + &body).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(link);
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open.add_permits(10);
    house.until("m", |info| info.generation == 1).await;
    server.abort();
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_clock_has_closed_is_not_told_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (store, server) = stores(folder.path());
    let dir = folder.path().join("fusion");
    let told = Arc::new(Collector::default());
    server.subscribe("out".parse().unwrap(), told.clone());
    let interval = Duration::from_millis(10);
    let fusion = engine(&dir, &store, &server, interval).await;
    let text = "INSERT INTO mqtt.\"out\" SELECT count(*) AS n FROM TUMBLE(mqtt.\"in\", INTERVAL \
                '1 second')";
    fusion.add(new("m", text)).await.unwrap();
    send(&server, "in", &json!({})).await;
    wait("the first row", || told.0.lock().len() == 1).await;
    until(&fusion, "m", |info| info.emitted_total == 1).await;
    fusion.close().await;
    let fusion = engine(&dir, &store, &server, interval).await;
    assert_eq!(fusion.statement("m").unwrap().in_flight, 0);
    for topic in ["in", "in"] {
        send(&server, topic, &json!({})).await;
    }
    until(&fusion, "m", |info| info.emitted_from_total == 3).await;
    let told = told.0.lock().clone();
    let told: u64 = told.iter().map(|row| row["n"].as_u64().unwrap()).sum();
    assert_eq!(told, 3);
    fusion.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_about_the_last_row_is_written_before_the_engine_is_closed() {
    let house = House::open().await;
    let letters = Arc::new(Collector::default());
    let filter = "errors/statements/#".parse().unwrap();
    house.mqtt.subscribe(filter, letters.clone());
    let gate = Gate::new(StatusCode::BAD_REQUEST).await;
    let form = NewStatement {
        targets: vec![gate.url.clone()],
        ..new("m", "SELECT v FROM mqtt.\"in\"")
    };
    house.fusion.add(form).await.unwrap();
    house.publish("in", "{\"v\":1}");
    gate.is_asked().await;
    let fusion = house.fusion.clone();
    let closing = tokio::spawn(async move { fusion.close().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open.add_permits(10);
    closing.await.unwrap();
    wait("the letter", || letters.0.lock().len() == 1).await;
    house.mqtt.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_engine_changes_no_table() {
    let house = House::open().await;
    let table = epl("t", "create window W#keepall as (k string)", &[]);
    house.fusion.add(table).await.unwrap();
    house.fusion.close().await;
    let asked = house.fusion.query("insert into W select 'a' as k").await;
    assert!(matches!(asked, Err(FusionError::Closed)), "{asked:?}");
    house.mqtt.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_query_changed_is_told_although_its_answer_is_too_long() {
    let house = House::open().await;
    for form in [
        epl("w", "create window W#keepall as (v long)", &[]),
        epl("fill", "insert into W select v from \"in\"", &[]),
        epl("reads", "select v from W", &["mqtt.out"]),
    ] {
        house.fusion.add(form).await.unwrap();
    }
    let count = crate::limits::DEMAND_ROWS_MAX as u64 + 1;
    for v in 0..count {
        send(&house.mqtt, "in", &json!({ "v": v })).await;
    }
    house
        .until("reads", |info| info.received_total == count)
        .await;
    let asked = house.fusion.query("update W set v = v + 1").await;
    assert!(matches!(asked, Err(FusionError::Limit(_))), "{asked:?}");
    house
        .until("reads", |info| info.received_total == 2 * count)
        .await;
    house.close().await;
}

/// The reader goes back for a statement that is resumed: partitions on which much waits hold the
/// windows open, also those that had nothing for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_statement_waits_for_every_partition_that_it_has_not_read() {
    let house = House::open().await;
    house.create("in", 2).await;
    house
        .add_named(
            "other",
            "INSERT INTO kafka.o SELECT v FROM kafka.in WHERE v < 0",
        )
        .await;
    house
        .add("INSERT INTO kafka.n SELECT count(*) AS n FROM TUMBLE(kafka.in, ts, INTERVAL '1 second')")
        .await;
    house.fusion.pause("m").await.unwrap();
    let pad = "x".repeat(4_000);
    let count = 1_000;
    for partition in 0..2 {
        for at in 0..count / 100 {
            let values = (at * 100..(at + 1) * 100)
                .map(|n| json!({ "v": n, "ts": n * 1_000, "pad": pad }).to_string());
            produce_batch(&house.store, "in", partition, values.collect()).await;
        }
    }
    let all = 2 * count;
    house
        .until("other", |info| info.received_total == all)
        .await;
    // So long that nobody waits for a partition any more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    house.fusion.resume("m").await.unwrap();
    let info = house.until("m", |info| info.received_total == all).await;
    assert_eq!(info.late_total, 0, "{info:?}");
    house.close().await;
}

fn lane(text: &str, options: MachineOptions, target: Target) -> Arc<Lane> {
    let plan = Arc::new(crate::sql::compile(text).unwrap());
    let mut lane = Arc::into_inner(lane_of(plan.clone())).unwrap();
    let positions = vec![0; options.partitions];
    lane.targets = vec![target];
    lane.state = Mutex::new(LaneState::new(
        Machine::new(plan, options),
        positions,
        false,
    ));
    Arc::new(lane)
}

/// What a source's idle partition closes goes through the chain at once, and not when the writer
/// comes to it: an engine that closes would have it nowhere.
#[test]
fn what_a_source_closes_goes_through_the_chain_at_once() {
    let chains = Arc::new(Chains::default());
    let feed = Feed::of(Format::Json, None);
    let feed = feed.linked(Source::Kafka("t".to_owned()), chains.clone());
    let first = lane(
        "INSERT INTO stream.\"s\" SELECT count(*) AS n FROM TUMBLE(kafka.t, ts, INTERVAL '1 second')",
        MachineOptions {
            partitions: 2,
            ..options()
        },
        Target::Stream("s".to_owned()),
    );
    let out = Target::Mqtt("out".parse().unwrap());
    let second = lane("SELECT n FROM stream.\"s\"", options(), out);
    chains.join(&second);
    feed.join([first.clone()]);
    feed.set_waiting(false, |_| true);
    let records: Vec<ConsumedRecord> = [0_i64, 5_000]
        .into_iter()
        .map(|ts| ConsumedRecord {
            topic: "t".parse().unwrap(),
            partition: 0,
            offset: ts / 5_000,
            timestamp: UnixMillis(0),
            key: None,
            value: Some(json!({ "ts": ts }).to_string().into()),
            headers: Vec::new(),
        })
        .collect();
    let (generation, _) = feed.positions();
    assert_eq!(feed.apply_records(generation, &records), Some(2));
    assert_eq!(second.state.lock().machine.books().received, 0);
    feed.set_waiting(true, |_| false);
    assert_eq!(second.state.lock().machine.books().received, 1);
    // The state that follows has to be kept.
    assert!(first.state.lock().is_dirty);
}

/// A statement that met a bound with rows to write gives them up, and its source has room again.
#[tokio::test]
async fn rows_that_a_suspended_statement_gives_up_make_room() {
    let house = House::open().await;
    let text = "INSERT INTO kafka.out SELECT max(t) AS t FROM HOP(mqtt.\"in\", ts, INTERVAL \
                '1 second', INTERVAL '40 seconds')";
    let bounded = MachineOptions {
        state_bytes_max: 2_400_000,
        ..options()
    };
    let target = Target::Kafka {
        topic: "out".parse().unwrap(),
        partition: 0,
    };
    let lane = lane(text, bounded, target);
    let feed = Arc::new(Feed::new());
    feed.join([lane.clone()]);
    let payload = |ts: i64, bytes: usize| json!({ "ts": ts, "t": "x".repeat(bytes) }).to_string();
    let payloads = [
        payload(0, 55_000),
        payload(100_000, 64_000),
        payload(100_001, 1),
    ];
    let messages: Vec<Message<'_>> = payloads
        .iter()
        .map(|payload| Message {
            topic: "in",
            payload: payload.as_bytes(),
            ..Message::default()
        })
        .collect();
    assert_eq!(feed.deliver(&messages), Delivery::HoldBack { taken: 2 });
    {
        let state = lane.state.lock();
        assert!(state.machine.is_suspended() && state.output.is_full());
    }
    let waiting = feed.clone();
    let room = tokio::spawn(async move { waiting.room().await });
    // It waits before the writer begins: there is one thread.
    tokio::task::yield_now().await;
    let disk = Arc::new(journal::RealDisk);
    let (journal, _) = StatementStore::open(disk, &house.inside("journal")).unwrap();
    let closing = CancellationToken::new();
    let writer = Writer {
        lane,
        feed: feed.clone(),
        chains: Arc::default(),
        store: house.store.clone(),
        mqtt: None,
        bridges: None,
        tables: None,
        poster: Arc::default(),
        journal: Arc::new(journal),
        clock: Arc::new(SystemClock),
        checkpoint_interval: Duration::from_secs(3_600),
        sequence: Sequence::default(),
        closing: closing.clone(),
    };
    let writing = tokio::spawn(writer.run(Output::default()));
    let has_room = tokio::time::timeout(DEADLINE, room).await;
    assert!(has_room.is_ok(), "the source waits for ever");
    assert_eq!(feed.deliver(&messages[2..]), Delivery::Taken);
    closing.cancel();
    writing.await.unwrap();
    house.close().await;
}
