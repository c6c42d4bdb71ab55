//! Two tenants who share topics, ports and tables: what one has no answer shows the other, whatever
//! is asked, by whatever API; and one's quota is nobody else's.

use std::time::{Duration, Instant};

use base::Rng;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{eventually, folder, number_of, succeed, text, whole_topic};
use crate::tenants::House;

/// In everything that is beta's, and in nothing that is asked.
const SECRET: &str = "zqxsecret";

/// Beta's names, which acme's caller knows, and its own ones.
struct Names {
    topics: Vec<String>,
    jobs: Vec<String>,
}

fn settle(house: &House, tenant: &str) {
    eventually("the switch", || {
        let shown = house.admin(&["tenants", "show", tenant]);
        shown["switching_to"].is_null().then_some(())
    });
}

/// Fills both tenants with records of every kind.
fn fill(house: &House, dir: &std::path::Path) -> Names {
    let mut jobs = Vec::new();
    for (tenant, who, word) in [("acme", "ann", "own"), ("beta", "bob", SECRET)] {
        let own = format!("env.ns.{tenant}.ORDERS");
        house.admin(&["topics", "create", &own]);
        let file = dir.join(format!("{tenant}.values"));
        std::fs::write(&file, format!("{word} one\n{word} two\n")).unwrap();
        let file = file.display().to_string();
        succeed(&mut house.kcat(who, &["-P", "-t", &own, "-l", &file]));
        house.admin(&["tenants", "set", tenant, "--collection", "ALL"]);
        settle(house, tenant);
        succeed(&mut house.kcat(who, &["-P", "-t", &own, "-l", &file]));
        let record = json!({"records": [{"key": word, "value": word}]});
        let (status, told) = house.call(who, "rest", &format!("/topics/{own}"), Some(record));
        assert_eq!(status, 200, "{told}");
        let profile = json!({"match": "isbn", "fields": {"kept": word}});
        let path = format!("/api/v1/profiles/{word}?tenant={tenant}");
        let (status, told) = house.send(who, "PUT", "management", &path, &profile.to_string());
        assert!(status < 300, "{status} {told}");
        let lines: String = (0..300)
            .map(|n| format!("{{\"id\":\"r{n}\",\"title\":\"history {word}\"}}\n"))
            .collect();
        let lines = format!("{lines}{{broken {word}\n");
        let path = format!(
            "/api/v1/imports?tenant={tenant}&format=jsonl&key=id&name={word}&topic=env.ns.{tenant}.BOOKS"
        );
        let (status, job) = house.send(who, "POST", "management", &path, &lines);
        assert_eq!(status, 201, "{job}");
        jobs.push(job["id"].as_str().unwrap().to_owned());
        succeed(&mut house.kcat(who, &["-G", &format!("{tenant}-{word}"), "-e", "-q", &own]));
    }
    for job in &jobs {
        eventually("the import", || {
            let (_, job) = house.call(
                "admin",
                "management",
                &format!("/api/v1/imports/{job}"),
                None,
            );
            job["state"]
                .as_str()?
                .starts_with("completed")
                .then_some(())
        });
    }
    let search = "/api/v1/search?tenant=beta&q=history";
    eventually("beta's records in the index", || {
        let (_, found) = house.call("bob", "management", search, None);
        (found["total"] == 300).then_some(())
    });
    let topics = [
        "acme.ORDERS",
        "beta.ORDERS",
        "ALL.ORDERS",
        "acme.BOOKS",
        "beta.BOOKS",
        "ALL.BOOKS",
    ];
    Names {
        topics: topics.map(|name| format!("env.ns.{name}")).to_vec(),
        jobs,
    }
}

/// A call that somebody of acme could think of.
fn thought(rng: &mut Rng, names: &Names, cluster: &str) -> (&'static str, String) {
    let mut one = |of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
    let tenant = one(&[
        "acme",
        "beta",
        "beta",
        "default",
        "BETA",
        "beta/../beta",
        "%62eta",
    ]);
    let topics: Vec<&str> = names.topics.iter().map(String::as_str).collect();
    let topic = one(&topics);
    let jobs: Vec<&str> = names.jobs.iter().map(String::as_str).collect();
    let job = one(&jobs);
    let group = one(&["acme-own", "beta-zqx"]).replace("zqx", SECRET);
    let path = one(&[
        "m/api/v1/tenants",
        "m/api/v1/tenants?after=a&limit=9",
        "m/api/v1/tenants/{tenant}",
        "m/api/v1/tenants/{tenant}/usage",
        "m/api/v1/tenants/{tenant}/refusals",
        "m/api/v1/imports",
        "m/api/v1/imports?tenant={tenant}",
        "m/api/v1/imports?tenant={tenant}&tenant=acme",
        "m/api/v1/imports/tenants",
        "m/api/v1/imports/{job}",
        "m/api/v1/imports/{job}/journal",
        "m/api/v1/imports/{job}/rejects",
        "m/api/v1/profiles?tenant={tenant}",
        "m/api/v1/profiles",
        "m/api/v1/profiles/own?tenant={tenant}",
        "m/api/v1/records/{tenant}/r7",
        "m/api/v1/records/{tenant}/r7/history",
        "m/api/v1/search?tenant={tenant}&q=history",
        "m/api/v1/search?q=history",
        "m/api/v1/topics",
        "m/metrics",
        "r/topics",
        "r/topics/{topic}",
        "r/topics/{topic}/partitions/0/messages?offset=0&count=100",
        "r/topics/{topic}/partitions/0/offsets",
        "r/v3/clusters/{cluster}/topics",
        "r/v3/clusters/{cluster}/topics/{topic}",
        "r/v3/clusters/{cluster}/topics/{topic}/configs",
        "r/v3/clusters/{cluster}/consumer-groups",
        "r/v3/clusters/{cluster}/consumer-groups/{group}",
        "r/v3/clusters/{cluster}/consumer-groups/{group}/lags",
    ]);
    let (role, path) = path.split_at(1);
    let role = if role == "m" { "management" } else { "rest" };
    let path = path.replace("{tenant}", &tenant).replace("{topic}", &topic);
    let path = path.replace("{job}", &job).replace("{group}", &group);
    (role, path.replace("{cluster}", cluster))
}

#[test]
fn no_api_shows_a_tenant_what_another_one_has() {
    let dir = folder();
    let house = House::start(dir.path());
    let names = fill(&house, dir.path());
    let (_, clusters) = house.call("ann", "rest", "/v3/clusters", None);
    let cluster = clusters["data"][0]["cluster_id"]
        .as_str()
        .unwrap_or("x")
        .to_owned();
    let seed = number_of("THALWEG_SEED", 20_251);
    let mut rng = Rng::from_seed(seed);
    let (mut answered, mut refused) = (0, 0);
    for turn in 0..number_of("THALWEG_TURNS", 250) {
        let (role, path) = thought(&mut rng, &names, &cluster);
        let (status, body) = house.raw("ann", role, &path);
        // What was asked may be said back.
        let body = body.replace(&format!("beta-{SECRET}"), "");
        assert!(
            !body.contains(SECRET),
            "seed {seed}, turn {turn}: {path}: {status} {body}"
        );
        assert!(
            status < 500,
            "seed {seed}, turn {turn}: {path}: {status} {body}"
        );
        match status {
            200 => answered += 1,
            _ => refused += 1,
        }
    }
    assert!(
        answered > 20 && refused > 20,
        "{answered} answered, {refused} refused"
    );
    // Whole topics over Kafka: its own records of the shared one, nothing of beta's.
    for topic in &names.topics {
        let read = house
            .kcat("ann", &whole_topic(topic))
            .args(["-f", "%k %s %h\n"])
            .output()
            .unwrap();
        let (seen, told) = (text(&read.stdout), text(&read.stderr));
        assert!(!seen.contains(SECRET), "{topic}: {seen}");
        match topic.as_str() {
            "env.ns.ALL.ORDERS" => assert_eq!(seen.matches("own").count(), 4, "{seen}"),
            topic if topic.contains("beta") => assert!(!read.status.success(), "{topic}: {told}"),
            _ => {}
        }
    }
    // And over a REST consumer.
    let values = house.consumed("ann", "env.ns.ALL.ORDERS", 3);
    assert!(
        !values.contains(SECRET) && values.contains("own"),
        "{values}"
    );
    // The other tenant has seen all of its own the same way.
    let values = house.consumed("bob", "env.ns.ALL.ORDERS", 3);
    assert!(
        values.contains(SECRET) && !values.contains("own"),
        "{values}"
    );
}

impl House {
    /// Status and text of a call by somebody.
    fn raw(&self, who: &str, role: &str, path: &str) -> (u16, String) {
        let (url, user) = (self.up.url(role, path), format!("{who}:secret"));
        let answer = crate::harness::curl(&["--path-as-is", "--user", &user, &url]);
        (answer.status, answer.body)
    }

    fn send(&self, who: &str, method: &str, role: &str, path: &str, body: &str) -> (u16, Value) {
        let (url, user) = (self.up.url(role, path), format!("{who}:secret"));
        let kind = "Content-Type: application/vnd.kafka.v2+json";
        let kind = if role == "rest" {
            kind
        } else {
            "Content-Type: application/json"
        };
        let answer = crate::harness::curl(&[
            "--user",
            &user,
            "--request",
            method,
            "--header",
            kind,
            "--data-binary",
            body,
            &url,
        ]);
        let body = serde_json::from_str(&answer.body).unwrap_or_default();
        (answer.status, body)
    }

    /// What a consumer of the REST proxy is given of a topic until it has seen `count` records.
    fn consumed(&self, who: &str, topic: &str, count: usize) -> String {
        let group = format!("/consumers/{who}-reads");
        let name = json!({"name": "c", "format": "binary", "auto.offset.reset": "earliest"});
        let (status, told) = self.send(who, "POST", "rest", &group, &name.to_string());
        assert_eq!(status, 200, "{told}");
        let at = format!("{group}/instances/c");
        let topics = json!({"topics": [topic]}).to_string();
        let (status, told) = self.send(who, "POST", "rest", &format!("{at}/subscription"), &topics);
        assert_eq!(status, 204, "{told}");
        let (url, user) = (
            self.up.url("rest", &format!("{at}/records?timeout=500")),
            format!("{who}:secret"),
        );
        let mut seen = Vec::new();
        eventually("the consumer's records", || {
            let accept = "Accept: application/vnd.kafka.binary.v2+json";
            let answer = crate::harness::curl(&["--user", &user, "--header", accept, &url]);
            assert_eq!(answer.status, 200, "{}", answer.body);
            let page = answer.json();
            for record in page.as_array().unwrap() {
                let value = record["value"].as_str().unwrap();
                seen.push(text(&STANDARD.decode(value).unwrap()));
            }
            (seen.len() >= count).then_some(())
        });
        seen.join(" ")
    }
}

#[test]
fn a_quota_holds_within_a_twentieth_over_ten_seconds_and_is_nobody_elses() {
    let dir = folder();
    let house = House::start(dir.path());
    let (own, other) = ("env.ns.acme.ORDERS", "env.ns.beta.ORDERS");
    for topic in [own, other] {
        house.admin(&["topics", "create", topic]);
    }
    house.admin(&["tenants", "set", "acme", "--records", "1000"]);
    let file = dir.path().join("values");
    std::fs::write(&file, "x\n".repeat(60_000)).unwrap();
    let file = file.display().to_string();
    // Two connections that send as fast as they may.
    let small = [
        "-X",
        "batch.num.messages=50",
        "-X",
        "queue.buffering.max.messages=200",
    ];
    let mut senders: Vec<_> = (0..2)
        .map(|_| {
            let mut kcat = house.kcat("ann", &small);
            kcat.args(["-P", "-t", own, "-l", &file]);
            kcat.stderr(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    let stored = || {
        let (_, used) = house.call("admin", "management", "/api/v1/tenants/acme/usage", None);
        used["totals"]["records"].as_u64().unwrap()
    };
    eventually("the first records", || (stored() > 500).then_some(()));
    let (from, began) = (stored(), Instant::now());
    let mut slowest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(10) {
        let record = json!({"records": [{"value": 1}]});
        let asked = Instant::now();
        let (status, told) = house.call("bob", "rest", &format!("/topics/{other}"), Some(record));
        assert_eq!(status, 200, "{told}");
        slowest = slowest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let rate = (stored() - from) as f64 / began.elapsed().as_secs_f64();
    for sender in &mut senders {
        sender.kill().unwrap();
        sender.wait().unwrap();
    }
    assert!((950.0..=1_050.0).contains(&rate), "{rate} records a second");
    assert!(
        slowest < Duration::from_secs(1),
        "another tenant waited {slowest:?}"
    );
}
