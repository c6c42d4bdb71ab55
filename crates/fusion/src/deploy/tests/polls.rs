//! Statements that get their events from HTTP servers, with a real one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::{ByteSize, HumanDuration};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::io::ReaderStream;

use super::{Operation, Yard, wait};
use crate::{FusionConfig, PollInfo, StatementInfo, Status};

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_reads_answers_asks_by_the_clock_also_after_a_restart() {
    let shop = Shop::open().await;
    let mut yard = yard(&shop).await;
    let (rows, events) = (yard.hear("rows"), yard.hear(&own("p")));
    let text = "INSERT INTO mqtt.\"rows\" SELECT result FROM mqtt.\"LS/thalweg/node-0/#\"";
    let form = json!({"id": "p", "name": "p", "statement": text, "publisher": "HTTP_GET",
        "scope": ["shop"], "output": ["/count"]});
    assert_eq!(put(&yard, Operation::Add(None), form.clone()).await, 201);
    wait("three rows", || rows.count() >= 3).await;
    let seen: Vec<Json> = rows.0.lock().iter().map(|(_, row)| row.clone()).collect();
    for (index, row) in seen.iter().enumerate() {
        assert_eq!(row["result"], index, "each answer is one event, in order");
    }
    assert_eq!(events.0.lock()[0].1, json!({"result": 0}), "as it came");
    let info = info(&yard, "p");
    let polls = info.polls.clone().unwrap();
    assert_eq!((info.status, info.error), (Status::Running, None));
    assert_eq!((polls.topic, polls.interval_ms), (own("p"), Some(10)));
    assert_eq!(info.sink, "mqtt.\"rows\", get@shop:/count");

    // The same again is nothing new; another publisher is another statement.
    let update = || Operation::Update("p".to_owned());
    assert_eq!(put(&yard, update(), form.clone()).await, 304);
    let mut published = form.clone();
    published["publisher"] = json!("MQTT_PUB");
    published["scope"] = json!([]);
    assert_eq!(put(&yard, update(), published).await, 400);
    let mut other = form.clone();
    other["output"] = json!(["/other"]);
    assert_eq!(put(&yard, update(), other).await, 200);
    wait("the other path", || shop.hits("other") > 0).await;

    // A restart asks again; a server that is no longer named is not asked.
    let node = yard.nodes.pop().unwrap();
    node.close().await;
    node.fusion().close().await;
    drop(node);
    let before = shop.hits("other");
    let node = yard.node(0, true).await;
    wait("more", || shop.hits("other") > before).await;
    node.close().await;
    node.fusion().close().await;
    drop(node);
    yard.config.control.servers.clear();
    let node = yard.node(0, true).await;
    let info = node.fusion().statement("p").unwrap();
    assert_eq!(info.status, Status::Failed);
    assert!(info.error.unwrap().contains("no server"));
    yard.nodes.push(node);
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_ask_and_those_that_come_meanwhile_ask_together() {
    let shop = Shop::open().await;
    let yard = yard(&shop).await;
    let events = yard.hear(&own("r"));
    let read = json!({"id": "all", "name": "all", "output": ["all"],
        "statement": "select result from Observation(attributeId = 'r')"});
    assert_eq!(put(&yard, Operation::Add(None), read).await, 201);
    let all = yard.hear("all");
    let form = json!({"id": "r", "name": "r", "statement": "SELECT v FROM mqtt.\"in\"",
        "publisher": "REST_GET", "scope": "shop", "output": ["held", "count"]});
    assert_eq!(put(&yard, Operation::Add(None), form).await, 201);
    assert_eq!(
        polls(&yard, "r"),
        PollInfo {
            topic: own("r"),
            ..PollInfo::default()
        }
    );
    yard.publish("in", b"{\"v\":1}", false);
    wait("the first request", || shop.hits("held") == 1).await;
    // The other path does not wait for the one that does not answer.
    wait("the other answer", || events.count() == 1).await;
    for v in 0..10 {
        yard.publish("in", format!("{{\"v\":{v}}}").as_bytes(), false);
    }
    wait("eleven rows", || info(&yard, "r").emitted_total == 11).await;
    assert_eq!(shop.hits("held"), 1, "it is asked once at a time");
    shop.0.release.add_permits(1);
    wait("the second request", || shop.hits("held") == 2).await;
    shop.0.release.add_permits(2);
    wait("two answers", || shop.answered("held") == 2).await;
    // Ten rows were one request: the next one is the third.
    yard.publish("in", b"{\"v\":1}", false);
    wait("three answers", || shop.answered("held") == 3).await;
    assert_eq!(shop.hits("held"), 3);
    wait("the books", || {
        polls(&yard, "r").answered_total == shop.total()
    })
    .await;
    wait("another statement's rows", || {
        all.count() as u64 == shop.total()
    })
    .await;
    let info = info(&yard, "r");
    assert_eq!((info.received_total, info.in_flight), (12, 0));
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_of_epl_asks() {
    let shop = Shop::open().await;
    let yard = yard(&shop).await;
    let text = "select count(*) as c from pattern [every timer:interval(20 msec)]";
    let form = json!({"id": "t", "name": "t", "statement": text, "publisher": "HTTP_GET",
        "scope": ["shop"], "output": ["count"]});
    assert_eq!(put(&yard, Operation::Add(None), form).await, 201);
    wait("three requests", || shop.hits("count") >= 3).await;
    assert_eq!(polls(&yard, "t").interval_ms, None);
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_is_said_and_tried_again() {
    let shop = Shop::open().await;
    let mut hasty = config(&shop);
    hasty.polls.timeout = HumanDuration(Duration::from_millis(50));
    let hasty = Yard::open_with(1, true, hasty).await;
    let yard = yard(&shop).await;
    let heard = [hasty.hear("LS/#"), yard.hear("LS/#")];
    for (yard, path, says) in [
        (&hasty, "held", "no answer in time"),
        (&yard, "fault", "500"),
        (&yard, "moved", "not followed"),
        (&yard, "large", "more than 1KiB"),
        (&yard, "endless", "more than 1KiB"),
        (&yard, "cut", "body"),
    ] {
        assert_eq!(put(yard, Operation::Add(None), timed("f", path)).await, 201);
        wait(says, || {
            let info = info(yard, "f");
            let error = info.error.unwrap_or_default();
            info.status == Status::Retrying && error.contains(says) && error.contains(path)
        })
        .await;
        wait("another try", || polls(yard, "f").failed_total >= 2).await;
        // The new form asks for another path: nothing is left of the trouble.
        let update = Operation::Update("f".to_owned());
        assert_eq!(put(yard, update, timed("f", "empty")).await, 200);
        wait("an empty answer", || {
            let info = info(yard, "f");
            let is_well = info.status == Status::Running && info.error.is_none();
            is_well && info.polls.unwrap().empty_total >= 1
        })
        .await;
        let delete = Operation::Delete("f".to_owned());
        assert!(yard.nodes[0].execute(delete, None).await.is_good());
    }
    for heard in heard {
        assert_eq!(heard.count(), 0, "none of it is an event");
    }
    assert_eq!(shop.hits("elsewhere"), 0);
    hasty.close().await;

    // A fault that passes.
    assert_eq!(
        put(&yard, Operation::Add(None), timed("g", "fault")).await,
        201
    );
    wait("the fault", || info(&yard, "g").status == Status::Retrying).await;
    shop.0.is_well.store(true, Ordering::SeqCst);
    wait("an answer", || polls(&yard, "g").answered_total >= 1).await;
    wait("no trouble", || info(&yard, "g").error.is_none()).await;
    let mut out = base::Exposition::default();
    yard.nodes[0].fusion().observe(&mut out);
    let text = out.into_text();
    for name in ["polls_total", "polls_failed_total"] {
        let line = format!("thalweg_fusion_statement_{name}{{statement=\"g\"}} ");
        assert!(text.contains(&line), "{text}");
    }
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_ends_with_the_statement_and_none_follows() {
    let shop = Shop::open().await;
    let mut config = config(&shop);
    config.polls.timeout = HumanDuration(Duration::from_secs(300));
    let yard = Yard::open_with(1, true, config).await;
    for is_removed in [false, true] {
        let before = shop.hits("held");
        if !is_removed {
            assert_eq!(
                put(&yard, Operation::Add(None), timed("s", "held")).await,
                201
            );
        } else {
            let update = Operation::Update("s".to_owned());
            assert_eq!(put(&yard, update, timed("s", "held")).await, 200);
        }
        wait("a request", || shop.hits("held") == before + 1).await;
        if is_removed {
            let delete = Operation::Delete("s".to_owned());
            assert!(yard.nodes[0].execute(delete, None).await.is_good());
        } else {
            let mut paused = timed("s", "held");
            paused["stateLifecycle"] = json!("PAUSE");
            let update = Operation::Update("s".to_owned());
            assert_eq!(put(&yard, update, paused).await, 200);
        }
        wait("its end", || shop.0.under_way.load(Ordering::SeqCst) == 0).await;
        // Another statement asks many times meanwhile.
        let reference = timed("other", "count");
        assert_eq!(put(&yard, Operation::Add(None), reference).await, 201);
        wait("twenty", || polls(&yard, "other").answered_total >= 20).await;
        assert_eq!(shop.hits("held"), before + 1);
        let delete = Operation::Delete("other".to_owned());
        assert!(yard.nodes[0].execute(delete, None).await.is_good());
    }
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_has_no_rows_that_ask_and_bounds_are_checked() {
    let shop = Shop::open().await;
    let yard = yard(&shop).await;
    let window = json!({"name": "w", "statement": "create window W#keepall as (k string)",
        "publisher": "HTTP_GET", "scope": ["shop"]});
    assert_eq!(put(&yard, Operation::Add(None), window).await, 400);
    let mut config = FusionConfig::default();
    assert!(config.problems().is_empty());
    config.polls.interval = HumanDuration(Duration::ZERO);
    config.polls.timeout = HumanDuration(Duration::from_secs(301));
    config.polls.answer_max = ByteSize(2 << 20);
    let problems = config.problems();
    for (problem, key) in problems.iter().zip(["interval", "timeout", "answer_max"]) {
        assert!(
            problem.contains(&format!("fusion.polls.{key}: ")),
            "{problem}"
        );
    }
    assert_eq!(problems.len(), 3);
    yard.close().await;
}

/// A statement that reads what it gets from a path of the shop.
fn timed(id: &str, path: &str) -> Json {
    let text = format!("SELECT result FROM mqtt.\"{}\"", own(id));
    json!({"id": id, "name": id, "statement": text, "publisher": "HTTP_GET", "scope": ["shop"],
        "output": [path]})
}

/// The topic of a statement's answers.
fn own(id: &str) -> String {
    format!("LS/thalweg/node-0/OGC/1.0/Datastreams/{id}")
}

fn info(yard: &Yard, id: &str) -> StatementInfo {
    yard.nodes[0].fusion().statement(id).unwrap()
}

fn polls(yard: &Yard, id: &str) -> PollInfo {
    info(yard, id).polls.unwrap()
}

async fn put(yard: &Yard, operation: Operation, form: Json) -> u16 {
    let resource = super::dfm::resource(form.to_string().as_bytes()).unwrap();
    let outcome = yard.nodes[0].execute(operation, Some(&resource)).await;
    outcome.status
}

fn config(shop: &Shop) -> FusionConfig {
    let mut config = FusionConfig::default();
    config.control.servers = BTreeMap::from([("shop".to_owned(), shop.0.url.clone())]);
    config.polls.interval = HumanDuration(Duration::from_millis(10));
    config.polls.gap = HumanDuration(Duration::from_millis(10));
    config.polls.timeout = HumanDuration(Duration::from_secs(300));
    config.polls.answer_max = ByteSize(1 << 10);
    config
}

async fn yard(shop: &Shop) -> Yard {
    Yard::open_with(1, true, config(shop)).await
}

/// A server that answers each path in its way, and counts.
struct Shop(Arc<Shelf>, JoinHandle<()>);

struct Shelf {
    url: String,
    /// Requests and answers by path.
    hits: Mutex<BTreeMap<String, (u64, u64)>>,
    /// Permits to answer `held`.
    release: Semaphore,
    /// Requests that are not answered yet.
    under_way: AtomicUsize,
    /// Whether `fault` is none.
    is_well: AtomicBool,
}

/// One request that is not answered yet.
struct UnderWay<'s>(&'s AtomicUsize);

impl<'s> UnderWay<'s> {
    fn new(count: &'s AtomicUsize) -> UnderWay<'s> {
        count.fetch_add(1, Ordering::SeqCst);
        UnderWay(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shop {
    async fn open() -> Shop {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shelf = Arc::new(Shelf {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            hits: Mutex::default(),
            release: Semaphore::new(0),
            under_way: AtomicUsize::new(0),
            is_well: AtomicBool::new(false),
        });
        let routes = Router::new()
            .route("/{path}", axum::routing::get(answer))
            .with_state(shelf.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Shop(shelf, serving)
    }

    fn hits(&self, path: &str) -> u64 {
        self.0.hits.lock().get(path).map_or(0, |(hits, _)| *hits)
    }

    fn answered(&self, path: &str) -> u64 {
        self.0.hits.lock().get(path).map_or(0, |(_, done)| *done)
    }

    /// All answers.
    fn total(&self) -> u64 {
        self.0.hits.lock().values().map(|(_, done)| done).sum()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn answer(State(shelf): State<Arc<Shelf>>, Path(path): Path<String>) -> Response {
    let _under_way = UnderWay::new(&shelf.under_way);
    let number = {
        let mut hits = shelf.hits.lock();
        let hits = hits.entry(path.clone()).or_default();
        hits.0 += 1;
        hits.0 - 1
    };
    let good = || json!({"result": number}).to_string().into_response();
    let response = match path.as_str() {
        "held" => {
            shelf.release.acquire().await.unwrap().forget();
            good()
        }
        "fault" if !shelf.is_well.load(Ordering::SeqCst) => {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        "moved" => {
            let to = [(header::LOCATION, format!("{}elsewhere", shelf.url))];
            (StatusCode::FOUND, to).into_response()
        }
        "large" => vec![b'1'; 2 << 10].into_response(),
        // Without a length, it does not end.
        "endless" => Body::from_stream(ReaderStream::new(tokio::io::repeat(b'1'))).into_response(),
        // It ends before it is whole.
        "cut" => {
            let (mut near, far) = tokio::io::duplex(16);
            tokio::spawn(async move {
                near.write_all(b"{").await.unwrap();
                // By then its head was sent.
                tokio::time::sleep(Duration::from_millis(20)).await;
            });
            let body = Body::from_stream(ReaderStream::new(far));
            ([(header::CONTENT_LENGTH, "10")], body).into_response()
        }
        "empty" => StatusCode::NO_CONTENT.into_response(),
        _ => good(),
    };
    if let Some(hits) = shelf.hits.lock().get_mut(&path) {
        hits.1 += 1;
    }
    response
}
