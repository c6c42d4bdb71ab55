//! Readers of the REST proxy that lose answers and proxies: every record reaches them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use base::Rng;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{Up, folder, http_client, number_of};
use crate::kafka_broker::kafka;
use crate::rest_survival::{JSON_V2, proxy_before};

const V2: &str = "application/vnd.kafka.v2+json";

/// Stands between two proxies, and swallows answers when it is told to.
struct Relay {
    to: OnceLock<String>,
    swallows: AtomicUsize,
}

impl Relay {
    /// Begins to listen; answers where.
    async fn start() -> (Arc<Relay>, String) {
        let relay = Arc::new(Relay {
            to: OnceLock::new(),
            swallows: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let of_task = Arc::clone(&relay);
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let relay = Arc::clone(&of_task);
                tokio::spawn(async move { relay.carry(from).await });
            }
        });
        (relay, address)
    }

    async fn carry(&self, mut from: TcpStream) {
        let Ok(mut to) = TcpStream::connect(self.to.get().unwrap()).await else {
            return;
        };
        let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        loop {
            let carried = tokio::select! {
                read = from.read(&mut asked) => match read {
                    Ok(count @ 1..) => to.write_all(&asked[..count]).await,
                    _ => return,
                },
                read = to.read(&mut answered) => match read {
                    Ok(count @ 1..) => {
                        let less = |left: usize| left.checked_sub(1);
                        if self.swallows.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                            return;
                        }
                        from.write_all(&answered[..count]).await
                    }
                    _ => return,
                },
            };
            if carried.is_err() {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_is_lost_between_proxies_comes_to_the_same() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    let streams = store.address("streams");
    let (relay, address) = Relay::start().await;
    let peer_address = format!("rest.peer_address={address}");
    let owner = proxy_before(&streams, &dir.path().join("a"), &["--set", &peer_address]);
    relay.to.set(owner.address("rest")).unwrap();
    let other = proxy_before(&streams, &dir.path().join("b"), &[]);
    let client = http_client();
    let call = async |up: &Up, method: Method, path: &str, body: Value| {
        let media = if path.starts_with("/topics") {
            JSON_V2
        } else {
            V2
        };
        let mut request = client.request(method, up.url("rest", path));
        request = request.header(ACCEPT, format!("{JSON_V2}, {V2}"));
        if !body.is_null() {
            request = request.header(CONTENT_TYPE, media).body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str::<Value>(&text).unwrap_or_default()
    };
    let records: Vec<Value> = (0..3).map(|n| json!({"value": n})).collect();
    call(
        &other,
        Method::POST,
        "/topics/t",
        json!({"records": records}),
    )
    .await;
    let asked = json!({"name": "i", "format": "json", "auto.offset.reset": "earliest"});
    call(&owner, Method::POST, "/consumers/g", asked).await;
    let at = "/consumers/g/instances/i";
    let partitions = json!({"partitions": [{"topic": "t", "partition": 0}]});
    call(
        &other,
        Method::POST,
        &format!("{at}/assignments"),
        partitions,
    )
    .await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        relay.swallows.store(seen.len() % 2, Ordering::SeqCst);
        // One record at a time.
        let path = format!("{at}/records?timeout=20000&max_bytes=1");
        let records = call(&other, Method::GET, &path, Value::Null).await;
        seen.extend(
            records
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["value"].clone()),
        );
    }
    assert_eq!(seen, [json!(0), json!(1), json!(2)]);
    assert_eq!(
        relay.swallows.load(Ordering::SeqCst),
        0,
        "no answer was lost"
    );
    relay.swallows.store(1, Ordering::SeqCst);
    call(&other, Method::DELETE, at, Value::Null).await;
    assert_eq!(
        relay.swallows.load(Ordering::SeqCst),
        0,
        "no answer was lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_miss_nothing_over_kills_before_a_thalweg() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    readers_miss_nothing_over_kills(&store.address("streams"), dir.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_miss_nothing_over_kills_before_a_kafka() {
    let dir = folder();
    let address = tokio::task::spawn_blocking(kafka).await.unwrap();
    readers_miss_nothing_over_kills(address, dir.path()).await;
}

/// How often a proxy is killed; more by hand with `THALWEG_TEST_KILLS=10`.
const KILLS: u64 = 4;

/// What readers and the sender of a test share.
struct World {
    client: Client,
    /// Where the proxies are.
    urls: Mutex<Vec<String>>,
    /// Values that were stored, and in whose topic.
    sent: Mutex<BTreeMap<i64, String>>,
    /// What each group was answered.
    seen: Mutex<BTreeMap<String, BTreeSet<i64>>>,
    stop: AtomicBool,
}

impl World {
    /// Calls one proxy after the other, with the same mark, until one of them answers.
    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mut rng = Rng::from_entropy();
        let mark = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            assert!(Instant::now() < deadline, "{method} {path} is not answered");
            let url = {
                let urls = self.urls.lock().unwrap();
                let nth = usize::try_from(rng.below(urls.len() as u64)).unwrap();
                format!("{}{path}", urls[nth])
            };
            let mut request = self.client.request(method.clone(), url);
            request = request
                .header(ACCEPT, format!("{JSON_V2}, {V2}, application/json"))
                .header("Thalweg-Call", &mark)
                .header("Idempotency-Key", &mark);
            if !body.is_null() {
                let media = if path.starts_with("/topics") {
                    JSON_V2
                } else {
                    V2
                };
                request = request.header(CONTENT_TYPE, media).body(body.to_string());
            }
            if let Ok(answer) = request.send().await {
                let status = answer.status().as_u16();
                match answer.text().await {
                    Ok(text) if status != 503 => {
                        return (status, serde_json::from_str(&text).unwrap_or_default());
                    }
                    // Told to come again, or the rest of the answer is lost.
                    _ => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn done(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, told) = self.call(method, path, body).await;
        assert!(status < 300, "{path}: {status} {told}");
        told
    }

    /// Reads as an instance until the test is over; commits now and then where it is to.
    async fn read(self: Arc<Self>, group: String, at: String, commits: bool) {
        for nth in 1.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let path = format!("{at}/records?timeout=200&max_bytes=500");
            let (status, records) = self.call(Method::GET, &path, Value::Null).await;
            assert_eq!(status, 200, "{path}: {records}");
            let values = records.as_array().unwrap().iter();
            let values: Vec<i64> = values.map(|it| it["value"].as_i64().unwrap()).collect();
            self.note(&group, values);
            if commits && nth % 20 == 0 {
                // A group that shares anew takes no commits for a moment.
                let (status, told) = self
                    .call(Method::POST, &format!("{at}/offsets"), json!(null))
                    .await;
                assert!(
                    status == 200 || told["error_code"] == 50003,
                    "{status} {told}"
                );
            }
        }
    }

    fn note(&self, group: &str, values: Vec<i64>) {
        let mut seen = self.seen.lock().unwrap();
        seen.entry(group.to_owned()).or_default().extend(values);
    }

    /// Stores numbers in one topic or the other, until the test is over.
    async fn send(self: Arc<Self>, topics: Arc<Mutex<Vec<String>>>) {
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let topic = {
                let topics = topics.lock().unwrap();
                topics[usize::try_from(number).unwrap() % topics.len()].clone()
            };
            let records = json!({"records": [{"key": number, "value": number}]});
            let told = self
                .done(Method::POST, &format!("/topics/{topic}"), records)
                .await;
            if told["offsets"][0]["offset"].is_i64() {
                self.sent.lock().unwrap().insert(number, topic);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many more values are stored.
    async fn more_sent(&self, count: usize) {
        let wanted = self.sent.lock().unwrap().len() + count;
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.sent.lock().unwrap().len() < wanted {
            assert!(Instant::now() < deadline, "nothing is stored any more");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What a group has not seen of topics with this name.
    fn missing(&self, group: &str, of: impl Fn(&str) -> bool) -> Vec<i64> {
        let (sent, seen) = (self.sent.lock().unwrap(), self.seen.lock().unwrap());
        let missing = sent.iter().filter(|(value, topic)| {
            of(topic) && !seen.get(group).is_some_and(|seen| seen.contains(value))
        });
        missing.map(|(value, _)| *value).collect()
    }
}

async fn readers_miss_nothing_over_kills(streams: &str, dir: &Path) {
    let run = format!("readers{}", std::process::id());
    let start = |nth: u64| {
        let up = proxy_before(streams, &dir.join(format!("proxy{nth}")), &[]);
        let url = up.url("rest", "");
        (up, url)
    };
    let (mut proxies, urls): (Vec<Up>, Vec<String>) = [start(0), start(1)].into_iter().unzip();
    let world = Arc::new(World {
        client: http_client(),
        urls: Mutex::new(urls),
        sent: Mutex::default(),
        seen: Mutex::default(),
        stop: AtomicBool::new(false),
    });
    let clusters = world.done(Method::GET, "/v3/clusters", Value::Null).await;
    let cluster = clusters["data"][0]["cluster_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let make = async |topic: &str| {
        let path = format!(
            "{}/v3/clusters/{cluster}/topics",
            world.urls.lock().unwrap()[0]
        );
        let spec = json!({"topic_name": topic, "partitions_count": 4, "replication_factor": 1});
        let request = world
            .client
            .post(path)
            .header(CONTENT_TYPE, "application/json");
        let answer = request.body(spec.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    };
    let (first, added) = (format!("{run}-a"), format!("{run}-b"));
    make(&first).await;
    let mut reading = JoinSet::new();
    let topics = json!({"topics": [first]});
    let pattern = json!({"topic_pattern": format!("{run}-.*")});
    // Groups: one that commits by itself, one that is told to, one of two, one with a pattern.
    let groups = [
        ("auto", vec![("one", true)], &topics),
        ("told", vec![("one", false)], &topics),
        ("two", vec![("one", true), ("other", false)], &topics),
        ("pattern", vec![("one", true)], &pattern),
    ];
    for (group, instances, reads) in groups {
        for (name, auto) in instances {
            let path = format!("/consumers/{run}-{group}");
            let asked = json!({"name": name, "format": "json", "auto.offset.reset": "earliest",
                "auto.commit.enable": auto.to_string()});
            world.done(Method::POST, &path, asked).await;
            let at = format!("{path}/instances/{name}");
            let subscription = format!("{at}/subscription");
            world.done(Method::POST, &subscription, reads.clone()).await;
            reading.spawn(Arc::clone(&world).read(group.to_owned(), at, !auto));
        }
    }
    let targets = Arc::new(Mutex::new(vec![first.clone()]));
    let mut sending = JoinSet::new();
    sending.spawn(Arc::clone(&world).send(Arc::clone(&targets)));
    world.more_sent(100).await;
    let kills = number_of("THALWEG_TEST_KILLS", KILLS).min(10);
    for nth in 0..kills {
        let of = (nth % 2) as usize;
        proxies[of].kill();
        let (up, url) = start(2 + nth);
        proxies[of] = up;
        world.urls.lock().unwrap()[of] = url;
        if nth == kills / 2 {
            make(&added).await;
            targets.lock().unwrap().push(added.clone());
        }
        world.more_sent(100).await;
    }
    let is_any = |_: &str| true;
    let is_first = |topic: &str| topic == first;
    let deadline = Instant::now() + Duration::from_secs(180);
    // Nothing more is sent, and all is read.
    sending.abort_all();
    while sending.join_next().await.is_some() {}
    loop {
        let missing = [
            ("auto", world.missing("auto", is_first)),
            ("told", world.missing("told", is_first)),
            ("two", world.missing("two", is_first)),
            ("pattern", world.missing("pattern", is_any)),
        ];
        if missing.iter().all(|(_, missing)| missing.is_empty()) {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "records were missed: {missing:?}"
        );
        if let Some(ended) = reading.try_join_next() {
            ended.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = reading.join_next().await {
        ended.unwrap();
    }
}
