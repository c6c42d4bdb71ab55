//! kill -9 of REST proxies under load: every record that was answered is there once, and so is every
//! one that was sent again under an idempotency key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::Rng;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Up, folder, http_client};
use crate::kafka_broker::kafka;
use crate::rest_survival::{JSON_V2, lines, proxy_before, until};

/// How often a proxy is killed; more rounds by hand with `THALWEG_TEST_KILLS=200`.
const KILLS: u64 = 4;

/// Senders at a time; those with even numbers send under keys.
const SENDERS: usize = 16;

/// What one sender was answered.
#[derive(Default)]
struct Sent {
    /// Sent once.
    plain: BTreeSet<String>,
    /// Sent under a key, again and again until it was answered.
    keyed: BTreeSet<String>,
}

/// What all senders of a test look at.
#[derive(Default)]
struct Senders {
    /// Where to send to.
    urls: Mutex<Vec<String>>,
    stop: AtomicBool,
    answered: AtomicUsize,
}

impl Senders {
    fn start(self: &Arc<Self>, each: impl Fn(usize) -> bool) -> JoinSet<Sent> {
        let numbers = (0..SENDERS).filter(|number| each(*number));
        numbers
            .map(|number| Arc::clone(self).send(number))
            .collect()
    }

    /// Posts three records at a time, of several partitions.
    async fn send(self: Arc<Self>, number: usize) -> Sent {
        let client = http_client();
        let mut rng = Rng::from_entropy();
        let mut sent = Sent::default();
        for nth in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let names: Vec<String> = (0..3).map(|it| format!("{number}.{nth}.{it}")).collect();
            let record = |name: &String| json!({"key": name, "value": name});
            let records: Vec<Value> = names.iter().map(record).collect();
            let body = json!({"records": records}).to_string();
            let key = number
                .is_multiple_of(2)
                .then(|| format!("sender-{number}-{nth}"));
            loop {
                let url = {
                    let urls = self.urls.lock().unwrap();
                    urls[rng.below(urls.len() as u64) as usize].clone()
                };
                let mut request = client.post(url).header(CONTENT_TYPE, JSON_V2);
                if let Some(key) = &key {
                    request = request.header("Idempotency-Key", key);
                }
                if is_stored(request.body(body.clone())).await {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    match key {
                        Some(_) => sent.keyed.extend(names),
                        None => sent.plain.extend(names),
                    }
                    break;
                }
                // Without a key nobody knows whether it is stored, so it is not sent again.
                if key.is_none() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        sent
    }

    async fn more_answered(&self, count: usize) {
        let before = self.answered.load(Ordering::Relaxed);
        until("posts are answered again", || {
            self.answered.load(Ordering::Relaxed) > before + count
        })
        .await;
    }
}

async fn is_stored(request: reqwest::RequestBuilder) -> bool {
    let Ok(answer) = request.send().await else {
        return false;
    };
    if answer.status() != 200 {
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap_or_default();
        assert!(status >= 500, "{status}: {text}");
        return false;
    }
    let Ok(told) = answer.json::<Value>().await else {
        return false;
    };
    let offsets = told["offsets"].as_array().unwrap();
    offsets.iter().all(|it| it["offset"].is_i64())
}

/// Each record that was answered is there, and none twice.
async fn check(senders: JoinSet<Sent>, streams: &str, topic: &str, context: &str) -> Sent {
    let mut sent = Sent::default();
    for of_one in senders.join_all().await {
        sent.plain.extend(of_one.plain);
        sent.keyed.extend(of_one.keyed);
    }
    let mut stored: BTreeMap<String, usize> = BTreeMap::new();
    for key in lines(streams, topic, "%k\n") {
        let name = serde_json::from_str(&key).unwrap();
        *stored.entry(name).or_default() += 1;
    }
    let doubled: Vec<_> = stored.iter().filter(|(_, count)| **count > 1).collect();
    assert!(doubled.is_empty(), "{context}: doubled: {doubled:?}");
    let answered = sent.plain.union(&sent.keyed);
    let lost: Vec<_> = answered.filter(|it| !stored.contains_key(*it)).collect();
    assert!(lost.is_empty(), "{context}: lost: {lost:?}");
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_once_however_often_the_store_is_killed() {
    let seed = Rng::from_entropy().next_u64();
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "kept", "--partitions", "4"]);
    let senders = Arc::new(Senders::default());
    senders
        .urls
        .lock()
        .unwrap()
        .push(up.url("rest", "/topics/kept"));
    let sending = senders.start(|_| true);
    for _ in 0..kills() {
        senders.more_answered(100).await;
        tokio::time::sleep(Duration::from_millis(rng.below(300))).await;
        up.kill();
        up = up.start_again(&[]);
    }
    senders.more_answered(100).await;
    senders.stop.store(true, Ordering::Relaxed);
    let context = format!("seed {seed}");
    let sent = check(sending, &up.address("streams"), "kept", &context).await;
    assert!(sent.keyed.len() > 100 && sent.plain.len() > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_hold_over_two_proxies_before_a_thalweg() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    keys_hold_over_two_proxies(&store.address("streams"), dir.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_hold_over_two_proxies_before_a_kafka() {
    let dir = folder();
    let address = tokio::task::spawn_blocking(kafka).await.unwrap();
    keys_hold_over_two_proxies(address, dir.path()).await;
}

/// Senders try either proxy at random while one after the other is killed.
async fn keys_hold_over_two_proxies(streams: &str, dir: &Path) {
    let topic = format!("keyed{}", std::process::id());
    let start = |nth: u64| {
        let up = proxy_before(streams, &dir.join(format!("proxy{nth}")), &[]);
        let url = up.url("rest", &format!("/topics/{topic}"));
        (up, url)
    };
    let (mut proxies, urls): (Vec<Up>, Vec<String>) = [start(0), start(1)].into_iter().unzip();
    let senders = Arc::new(Senders::default());
    *senders.urls.lock().unwrap() = urls;
    let sending = senders.start(|number| number.is_multiple_of(2));
    for nth in 0..kills().min(10) {
        senders.more_answered(20).await;
        let of = (nth % 2) as usize;
        proxies[of].kill();
        let (up, url) = start(2 + nth);
        proxies[of] = up;
        senders.urls.lock().unwrap()[of] = url;
    }
    senders.more_answered(20).await;
    senders.stop.store(true, Ordering::Relaxed);
    let sent = check(sending, streams, &topic, "two proxies").await;
    assert!(sent.keyed.len() > 100);
}

fn kills() -> u64 {
    let kills = std::env::var("THALWEG_TEST_KILLS").ok();
    kills.and_then(|n| n.parse().ok()).unwrap_or(KILLS)
}
