//! Consumer instances of the REST proxy over the loss of proxies, and what forgotten ones leave behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base::Rng;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Up, eventually, folder, http_client, succeed, whole_topic};
use crate::kafka_broker::kafka;

pub const JSON_V2: &str = "application/vnd.kafka.json.v2+json";
const V2: &str = "application/vnd.kafka.v2+json";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_outlive_one_of_two_proxies_before_a_thalweg() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    survive_the_loss_of_a_proxy(&store.address("streams"), dir.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_outlive_one_of_two_proxies_before_a_kafka() {
    let dir = folder();
    let address = tokio::task::spawn_blocking(kafka).await.unwrap();
    survive_the_loss_of_a_proxy(address, dir.path()).await;
}

/// Two proxies, and a client that talks to either at random.
struct Pair {
    proxies: [Option<Up>; 2],
    /// The only one that is called; none for either.
    only: Option<u64>,
    client: reqwest::Client,
    rng: Rng,
}

impl Pair {
    fn before(store: &str, dir: &Path) -> Pair {
        let proxy = |name: &str| proxy_before(store, &dir.join(name), &[]);
        Pair {
            proxies: [Some(proxy("a")), Some(proxy("b"))],
            only: None,
            client: http_client(),
            rng: Rng::from_entropy(),
        }
    }

    /// Calls one of them, or the other when that one is gone, as a load balancer does.
    async fn call(&mut self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let first = self.rng.below(2);
        let deadline = Instant::now() + Duration::from_secs(60);
        for nth in first.. {
            assert!(Instant::now() < deadline, "{method} {path} is not answered");
            let nth = self.only.unwrap_or(nth % 2);
            let Some(up) = &self.proxies[nth as usize] else {
                continue;
            };
            let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
            let mut request = self.client.request(method, up.url("rest", path));
            request = request.header("Accept", format!("{JSON_V2}, {V2}"));
            if let Some(body) = body.as_ref().filter(|body| !body.is_null()) {
                let content_type = match path.starts_with("/topics") {
                    true => JSON_V2,
                    false => V2,
                };
                request = request
                    .header(CONTENT_TYPE, content_type)
                    .body(body.to_string());
            }
            let Ok(answer) = request.send().await else {
                continue;
            };
            let status = answer.status().as_u16();
            assert_ne!(status, 404, "{path}: {}", answer.text().await.unwrap());
            if status == 503 {
                // Told to come again; what a client does.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            let text = answer.text().await.unwrap();
            return (status, serde_json::from_str(&text).unwrap_or(Value::Null));
        }
        unreachable!("the numbers do not end")
    }

    async fn done(&mut self, method: &str, path: &str, body: Value) -> Value {
        let (status, told) = self.call(method, path, Some(body)).await;
        assert!(status < 300, "{method} {path}: {status} {told}");
        told
    }
}

/// A proxy of its own before a store that others use too.
pub fn proxy_before(store: &str, data: &Path, more: &[&str]) -> Up {
    let servers = format!("streams.kafka.bootstrap_servers={store}");
    let mut arguments = vec!["--role", "rest", "--set", &servers];
    arguments.extend(more);
    Up::start_with(data, &arguments)
}

async fn survive_the_loss_of_a_proxy(store: &str, dir: &Path) {
    let run = format!("survive{}", std::process::id());
    let mut pair = Pair::before(store, dir);
    let topic = format!("/topics/{run}");
    for n in 0..200 {
        pair.done("POST", &topic, json!({"records": [{"value": n}]}))
            .await;
    }
    // Two instances of either kind; their names are known to both proxies.
    let group = format!("/consumers/{run}");
    let mut instances = Vec::new();
    for name in ["subscribed", "assigned", "forgotten"] {
        let asked = json!({"name": name, "format": "json", "auto.offset.reset": "earliest",
            "auto.commit.enable": "false"});
        let group = match name {
            "assigned" => format!("{group}-2"),
            _ => group.clone(),
        };
        // The one that will be killed has them.
        pair.only = Some(0);
        pair.done("POST", &group, asked.clone()).await;
        pair.only = None;
        let (status, told) = pair.call("POST", &group, Some(asked)).await;
        assert_eq!(
            (status, &told["error_code"]),
            (409, &json!(40902)),
            "{told}"
        );
        instances.push(format!("{group}/instances/{name}"));
    }
    pair.done("DELETE", &instances[2], Value::Null).await;
    let topics = json!({"topics": [run]});
    pair.done("POST", &format!("{}/subscription", instances[0]), topics)
        .await;
    let partitions = json!({"partitions": [{"topic": run, "partition": 0}]});
    pair.done("POST", &format!("{}/assignments", instances[1]), partitions)
        .await;

    let mut seen = vec![Vec::<i64>::new(); 2];
    for instance in [0, 1] {
        read_until(&mut pair, &instances[instance], &mut seen[instance], 120).await;
    }
    // The subscribed one commits what it has got, the other was sent back to the middle.
    pair.done("POST", &format!("{}/offsets", instances[0]), json!(null))
        .await;
    let back = json!({"offsets": [{"topic": run, "partition": 0, "offset": 40}]});
    pair.done("POST", &format!("{}/positions", instances[1]), back)
        .await;
    let committed = seen[0].iter().max().copied().unwrap();

    let mut killed = pair.proxies[0].take().unwrap();
    killed.kill();
    for n in 200..300 {
        pair.done("POST", &topic, json!({"records": [{"value": n}]}))
            .await;
    }
    seen[1].clear();
    for instance in [0, 1] {
        read_until(&mut pair, &instances[instance], &mut seen[instance], 300).await;
    }
    let all: BTreeSet<i64> = seen[0].iter().copied().collect();
    assert_eq!(all, (0..300).collect(), "a record was not read");
    let again = seen[0].len() - 300;
    let uncommitted = usize::try_from(300 - committed).unwrap();
    assert!(
        again <= uncommitted,
        "{again} of {uncommitted} were read again"
    );
    assert_eq!(
        seen[1],
        (40..300).collect::<Vec<i64>>(),
        "what was sought was lost"
    );

    // The second proxy goes in order, and a third one goes on.
    let third = proxy_before(store, &dir.join("c"), &[]);
    assert!(pair.proxies[1].replace(third).unwrap().stop().success());
    pair.done("POST", &format!("{}/offsets", instances[0]), json!(null))
        .await;
    pair.done("POST", &topic, json!({"records": [{"value": 300}]}))
        .await;
    read_until(&mut pair, &instances[0], &mut seen[0], 301).await;
    for instance in &instances[..2] {
        pair.done("DELETE", instance, Value::Null).await;
    }
}

/// Reads until so many of the numbers from 0 on were seen; the topic has one partition, so that they
/// come in order.
async fn read_until(pair: &mut Pair, instance: &str, seen: &mut Vec<i64>, count: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen.last().is_none_or(|last| *last + 1 < count) {
        assert!(Instant::now() < deadline, "{instance} has seen {seen:?}");
        let path = format!("{instance}/records?timeout=500&max_bytes=100");
        let (status, records) = pair.call("GET", &path, None).await;
        assert_eq!(status, 200, "{records}");
        for record in records.as_array().unwrap() {
            seen.push(record["value"].as_i64().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_forgotten_instances_leave_nothing_behind() {
    let dir = folder();
    let up = Up::start_with(
        &dir.path().join("data"),
        &["--set", "rest.consumer_instance_timeout=4s"],
    );
    up.cli_json(&["topics", "create", "t", "--partitions", "4"]);
    let client = http_client();
    let call = |path: String, body: Value| {
        let request = client.post(up.url("rest", &path)).header(CONTENT_TYPE, V2);
        let request = request.body(body.to_string());
        async move { request.send().await.unwrap().status().as_u16() }
    };
    // One round warms what memory keeps for good.
    let mut after_first = 0;
    for round in 0..2 {
        let mut made = JoinSet::new();
        for n in 0..10_000 {
            let group = format!("/consumers/g{}", n % 2_500);
            let create = call(group.clone(), json!({"name": format!("i{n}")}));
            // A tenth are members of groups.
            let path = format!("{group}/instances/i{n}/subscription");
            let subscribe = (n % 10 == 0).then(|| call(path, json!({"topics": ["t"]})));
            made.spawn(async move {
                let created = create.await;
                let subscribed = match subscribe {
                    Some(subscribe) => subscribe.await,
                    None => 204,
                };
                (created, subscribed)
            });
            if made.len() >= 64 {
                let told = made.join_next().await.unwrap().unwrap();
                assert_eq!(told, (200, 204));
            }
        }
        for told in made.join_all().await {
            assert_eq!(told, (200, 204));
        }
        let metrics =
            || succeed(Command::new("curl").args(["-s", &up.url("management", "/metrics")]));
        until("the instances are gone", || {
            metrics().contains("\nthalweg_rest_consumer_instances 0\n")
        })
        .await;
        until("no group has members", || {
            let groups = up.get("/api/v1/groups");
            let groups = groups["groups"].as_array().unwrap().clone();
            groups
                .iter()
                .all(|group| group["members"].as_array().is_none_or(Vec::is_empty))
        })
        .await;
        match round {
            0 => after_first = resident(&up),
            _ => {
                let grown = resident(&up).saturating_sub(after_first) >> 20;
                assert!(grown < 16, "{grown} MiB more after the second ten thousand");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_proxy_that_is_gone_leave_the_roll_after_their_time() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    let streams = store.address("streams");
    let short = ["--set", "rest.consumer_instance_timeout=2s"];
    let [mut first, second] =
        ["a", "b"].map(|name| proxy_before(&streams, &dir.path().join(name), &short));
    let client = http_client();
    for n in 0..50 {
        let up = if n % 2 == 0 { &first } else { &second };
        let request = client
            .post(up.url("rest", "/consumers/g"))
            .header(CONTENT_TYPE, V2);
        let body = json!({"name": format!("i{n}")}).to_string();
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    }
    let on_roll = || {
        let mut listed = BTreeSet::new();
        for line in lines(&streams, "__rest_instances", "%k\t%S\n") {
            let (key, size) = line.split_once('\t').unwrap();
            if key == "mark" {
                // Of a proxy that was slow to read the roll; no instance.
                continue;
            }
            match size {
                "-1" => listed.remove(key),
                _ => listed.insert(key.to_owned()),
            };
        }
        listed.len()
    };
    assert_eq!(on_roll(), 50);
    first.kill();
    until("all are off the roll", || on_roll() == 0).await;
    let request = client
        .post(second.url("rest", "/consumers/g"))
        .header(CONTENT_TYPE, V2);
    let again = request.body(r#"{"name":"i0"}"#).send().await.unwrap();
    assert_eq!(again.status(), 200, "the name is not free");
}

fn resident(up: &Up) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

pub fn lines(streams: &str, topic: &str, format: &str) -> Vec<String> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", streams])
        .args(whole_topic(topic))
        .args(["-f", format]);
    succeed(&mut kcat).lines().map(str::to_owned).collect()
}

/// Waits on a condition beside the runtime's work.
pub async fn until(what: &str, condition: impl FnMut() -> bool) {
    let mut condition = condition;
    tokio::task::block_in_place(|| eventually(what, || condition().then_some(())));
}
