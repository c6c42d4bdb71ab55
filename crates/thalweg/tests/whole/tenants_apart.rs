//! Two tenants who share topics, ports and tables: what one has no answer shows the other, whatever
//! is asked, by whatever API; and one's quota is nobody else's.

use std::process::Command;
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
        // One names no topic, the other one its own.
        let topic = match tenant {
            "acme" => "&topic=env.ns.acme.BOOKS",
            _ => "",
        };
        let path =
            format!("/api/v1/imports?tenant={tenant}&format=jsonl&key=id&name={word}{topic}");
        let (status, job) = house.send(who, "POST", "management", &path, &lines);
        assert_eq!(status, 201, "{job}");
        jobs.push(job["id"].as_str().unwrap().to_owned());
        let group = format!("{tenant}-{word}");
        succeed(&mut house.kcat(who, &["-G", &group, "-e", "-q", &own]));
        let reset = ["groups", "reset-offsets", &group, "--topic", &own];
        house.admin(&[&reset[..], &["--to-earliest", "--execute"]].concat());
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
        "env.ns.acme.ORDERS",
        "env.ns.beta.ORDERS",
        "env.ns.ALL.ORDERS",
        "env.ns.acme.BOOKS",
        "env.ns.ALL.BOOKS",
        "imports-beta",
        "imports-ALL",
    ];
    Names {
        topics: topics.map(str::to_owned).to_vec(),
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
        "m/api/v1/topics/{topic}/records?from=oldest",
        "m/api/v1/topics/{topic}/groups",
        "m/api/v1/registry/subjects",
        "m/api/v1/registry/schemas?latestOnly=true",
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

fn cluster_of(house: &House) -> String {
    let (_, clusters) = house.call("ann", "rest", "/v3/clusters", None);
    let id = clusters["data"][0]["cluster_id"].as_str();
    id.unwrap_or("x").to_owned()
}

#[test]
fn no_api_shows_a_tenant_what_another_one_has() {
    let dir = folder();
    let house = House::start(dir.path());
    let names = fill(&house, dir.path());
    let cluster = cluster_of(&house);
    let seed = number_of("THALWEG_SEED", 20_251);
    let mut rng = Rng::from_seed(seed);
    let (mut answered, mut refused) = (0, 0);
    for turn in 0..number_of("THALWEG_TURNS", 250) {
        let (role, path) = thought(&mut rng, &names, &cluster);
        let (status, body) = house.raw("ann", role, &path);
        // What was asked may be said back.
        let is_said_back = path.contains(SECRET) || path.ends_with("/refusals");
        let body = match is_said_back {
            true => body.replace(&format!("beta-{SECRET}"), ""),
            false => body,
        };
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

#[test]
fn a_tenants_groups_and_mqtt_topics_are_its_own_by_their_names() {
    let dir = folder();
    let settings = [
        "streams.sasl.mechanisms=[\"PLAIN\"]",
        "mqtt.security.logins=true",
    ];
    let settings = settings.iter().flat_map(|it| ["--set", it]);
    let house = House::start_with(dir.path(), &settings.collect::<Vec<_>>());
    let topic = "env.ns.acme.ORDERS";
    house.admin(&["topics", "create", topic]);
    let read = |who: &str, group: &str| {
        let mut kcat = house.kcat(who, &["-G", group, "-e", "-q", topic]);
        let told = kcat.output().unwrap();
        (told.status.success(), text(&told.stderr))
    };
    let (is_read, told) = read("ann", "beta-orders");
    assert!(!is_read, "{told}");
    for group in ["acme-orders", "orders"] {
        let (is_read, told) = read("ann", group);
        assert!(is_read, "{told}");
    }
    let publish = |who: &str, topic: &str, payload: &str| {
        let mut publish = house.mosquitto("mosquitto_pub", who);
        publish.args(["-t", topic, "-m", payload, "-q", "1", "-r", "-V", "5"]);
        publish.output().unwrap().status.success()
    };
    assert!(publish("ann", "acme/up", "own") && publish("bob", "beta/up", SECRET));
    assert!(publish("bob", "plant", "everybody's"));
    publish("ann", "beta/forged", "forged");
    assert_eq!(
        house.heard("ann", "#", "3"),
        ["acme/up own", "plant everybody's"]
    );
    assert_eq!(house.heard("ann", "beta/#", "1"), [""; 0]);
    let of_bob = ["beta/up zqxsecret", "plant everybody's"];
    assert_eq!(house.heard("bob", "#", "3"), of_bob);
    // Who belongs to no tenant works for all of them.
    let all = ["acme/up own", "beta/up zqxsecret", "plant everybody's"];
    assert_eq!(house.heard("admin", "#", "3"), all);
    let refusals = house.admin(&["tenants", "refusals", "acme"]);
    let told = refusals["refusals"].as_array().unwrap();
    for (protocol, claimed) in [
        ("kafka", "beta-orders"),
        ("mqtt", "beta/forged"),
        ("mqtt", "beta/#"),
    ] {
        let is_it = |it: &&Value| it["protocol"] == protocol && it["claimed"] == claimed;
        assert_eq!(
            told.iter().filter(is_it).count().min(1),
            1,
            "{claimed}: {told:?}"
        );
    }
}

#[test]
fn for_a_member_that_is_away_nothing_of_another_tenant_waits() {
    let dir = folder();
    let house = House::start_with(dir.path(), &["--set", "mqtt.security.logins=true"]);
    let keeper = |who: &str, more: &[&str]| {
        let mut subscribe = house.mosquitto("mosquitto_sub", who);
        subscribe.args(["-i", "keeper", "-c", "-t", "#", "-q", "1", "-v"]);
        let told = subscribe.args(more).output().unwrap();
        text(&told.stdout)
    };
    keeper("ann", &["-E"]);
    for topic in ["beta/up", "plant"] {
        let mut publish = house.mosquitto("mosquitto_pub", "bob");
        succeed(publish.args(["-t", topic, "-m", SECRET, "-q", "1"]));
    }
    assert_eq!(keeper("bob", &["-W", "5", "-C", "1"]), "");
    let seen = keeper("ann", &["-W", "5", "-C", "2"]);
    assert_eq!(seen, format!("plant {SECRET}\n"));
}

#[test]
fn what_all_tenants_have_together_is_no_members() {
    let dir = folder();
    let house = House::start(dir.path());
    let acls = format!("/v3/clusters/{}/acls", cluster_of(&house));
    let (status, told) = house.call("ann", "rest", &acls, None);
    assert_eq!(status, 403, "{told}");
    let (status, told) = house.call("admin", "rest", &acls, None);
    assert_eq!(status, 200, "{told}");
    let acl = json!({
        "resource_type": "TOPIC", "resource_name": "*", "pattern_type": "LITERAL",
        "principal": "User:bob", "host": "*", "operation": "ALL", "permission": "DENY",
    });
    let acl = acl.to_string();
    assert_eq!(house.try_to("ann", "POST", "rest", &acls, &acl), 403);
    for path in [
        "/api/v1/agents",
        "/api/v1/audit",
        "/api/v1/operations",
        "/api/v1/users",
        "/efm/api/events",
    ] {
        let (status, told) = house.raw("ann", "management", path);
        assert_eq!(status, 403, "{path}: {told}");
        assert_eq!(house.raw("admin", "management", path).0, 200, "{path}");
    }
}

#[test]
fn who_belongs_to_a_removed_tenant_is_let_to_nothing_that_is_anybodys() {
    let dir = folder();
    let house = House::start(dir.path());
    let (acme, beta) = ("env.ns.acme.ORDERS", "env.ns.beta.ORDERS");
    for topic in [acme, beta, "orders"] {
        house.admin(&["topics", "create", topic]);
    }
    house.admin(&["tenants", "remove", "acme"]);
    for (topic, is_open) in [(acme, false), (beta, false), ("orders", true)] {
        let record = json!({"records": [{"value": 1}]});
        let (status, told) = house.call("ann", "rest", &format!("/topics/{topic}"), Some(record));
        assert_eq!(status == 200, is_open, "{topic}: {told}");
        let read = house.kcat("ann", &whole_topic(topic)).output().unwrap();
        assert_eq!(read.status.success(), is_open, "{topic}");
    }
    for path in [
        "/api/v1/tenants/acme",
        "/api/v1/imports?tenant=acme",
        "/api/v1/search?tenant=beta&q=history",
        "/api/v1/topics",
        "/api/v1/agents",
    ] {
        let (status, told) = house.raw("ann", "management", path);
        assert_eq!(status, 403, "{path}: {told}");
    }
    // What has its name is not bob's either.
    let record = json!({"records": [{"value": 1}]});
    let (status, _) = house.call("bob", "rest", &format!("/topics/{acme}"), Some(record));
    assert_eq!(status, 403);
}

/// A change that somebody of acme could try: method, role, path and body.
fn tried(rng: &mut Rng, names: &Names, cluster: &str) -> (String, &'static str, String, String) {
    let mut one = |of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
    let tenant = one(&["beta", "beta", "default", "BETA", "acme/../beta", "%62eta"]);
    let topics: Vec<&str> = names.topics.iter().map(String::as_str).collect();
    let topic = one(&topics);
    let jobs: Vec<&str> = names.jobs.iter().map(String::as_str).collect();
    let job = one(&jobs);
    let lines = r#"{"id":"r7","title":"forged"}"#;
    let record = r#"{"records":[{"value":"forged"}]}"#;
    let one_record = r#"{"value":{"type":"JSON","data":"forged"},"headers":[{"name":"thalweg.tenant","value":"YmV0YQ=="}]}"#;
    let tries = [
        (
            "POST m/api/v1/imports?tenant={tenant}&format=jsonl&key=id",
            lines,
        ),
        (
            "POST m/api/v1/imports?tenant=acme&format=jsonl&key=id&topic={topic}",
            lines,
        ),
        (
            "POST m/api/v1/imports?tenant=acme&format=jsonl&sink=topic&topic={topic}",
            lines,
        ),
        (
            "POST m/api/v1/imports?tenant=acme&tenant={tenant}&format=jsonl",
            lines,
        ),
        ("DELETE m/api/v1/imports/{job}", ""),
        ("DELETE m/api/v1/imports/{job}?forget=true&tenant=acme", ""),
        ("POST m/api/v1/imports/{job}/pause", ""),
        ("POST m/api/v1/imports/{job}/resume", ""),
        ("POST m/api/v1/imports/{job}/retry", lines),
        (
            "PATCH m/api/v1/imports/{job}/file?offset=0&last=true",
            lines,
        ),
        ("PUT m/api/v1/profiles/zqx?tenant={tenant}", "{}"),
        ("DELETE m/api/v1/profiles/zqx?tenant={tenant}", ""),
        ("PUT m/api/v1/tenants/{tenant}", r#"{"weight":9}"#),
        ("POST m/api/v1/tenants/{tenant}/purge", "{}"),
        ("DELETE m/api/v1/tenants/{tenant}", ""),
        (
            "POST m/api/v1/records/{tenant}/r7/check-out",
            r#"{"holder":"forged"}"#,
        ),
        ("POST m/api/v1/records/{tenant}/r7/check-in", ""),
        ("POST m/api/v1/search/rebuild", ""),
        ("DELETE m/api/v1/topics/{topic}", ""),
        ("POST r/topics/{topic}", record),
        (
            "POST r/v3/clusters/{cluster}/topics/{topic}/records",
            one_record,
        ),
        ("DELETE r/v3/clusters/{cluster}/topics/{topic}", ""),
        (
            "PUT r/v3/clusters/{cluster}/topics/{topic}/configs/retention.ms",
            r#"{"value":"1"}"#,
        ),
        ("POST r/consumers/beta-zqx", r#"{"name":"forged"}"#),
        (
            "POST r/consumers/beta-zqx/instances/c/offsets",
            r#"{"offsets":[{"topic":"env.ns.ALL.ORDERS","partition":0,"offset":0}]}"#,
        ),
    ];
    let (wish, body) = tries[rng.below(tries.len() as u64) as usize];
    let (method, path) = wish.split_once(' ').unwrap();
    let (role, path) = path.split_at(1);
    let role = if role == "m" { "management" } else { "rest" };
    let path = path.replace("{tenant}", &tenant).replace("{topic}", &topic);
    let path = path.replace("{job}", &job).replace("zqx", SECRET);
    let path = path.replace("{cluster}", cluster);
    (method.to_owned(), role, path, body.to_owned())
}

/// All that beta has, as its own caller and the administrator see it.
fn all_of_beta(house: &House, names: &Names) -> Vec<String> {
    let mut seen = Vec::new();
    for path in [
        &format!("/api/v1/imports/{}", names.jobs[1]),
        &format!("/api/v1/imports/{}/journal", names.jobs[1]),
        "/api/v1/imports?tenant=beta",
        "/api/v1/profiles?tenant=beta",
        "/api/v1/records/beta/r7",
        "/api/v1/records/beta/r7/history",
        "/api/v1/search?tenant=beta&q=history",
        "/api/v1/tenants/beta",
    ] {
        let (status, body) = house.raw("bob", "management", path);
        assert_eq!(status, 200, "{path}: {body}");
        seen.push(body);
    }
    let group = format!(
        "/v3/clusters/{}/consumer-groups/beta-{SECRET}",
        cluster_of(house)
    );
    for path in [
        &group,
        &format!("{group}/consumers"),
        &format!("{group}/lags"),
    ] {
        let (status, body) = house.raw("bob", "rest", path);
        assert_eq!(status, 200, "{path}: {body}");
        seen.push(body);
    }
    for topic in &names.topics {
        if topic.contains("acme") {
            continue;
        }
        // Of a topic that both share he sees his own alone.
        let read = house
            .kcat("bob", &whole_topic(topic))
            .args(["-f", "%p %o %k %s %h\n"])
            .output()
            .unwrap();
        assert!(read.status.success(), "{topic}: {}", text(&read.stderr));
        let mut lines: Vec<String> = text(&read.stdout).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        seen.push(format!("{topic}: {}", lines.join("\n")));
    }
    seen
}

#[test]
fn no_api_changes_what_another_tenant_has() {
    let dir = folder();
    let house = House::start(dir.path());
    let names = fill(&house, dir.path());
    let cluster = cluster_of(&house);
    let before = all_of_beta(&house, &names);
    let seed = number_of("THALWEG_SEED", 20_252);
    let mut rng = Rng::from_seed(seed);
    let (mut done, mut refused) = (0, 0);
    for _ in 0..number_of("THALWEG_TURNS", 250) {
        let (method, role, path, body) = tried(&mut rng, &names, &cluster);
        match house.try_to("ann", &method, role, &path, &body) {
            200..300 => done += 1,
            _ => refused += 1,
        }
    }
    assert!(done > 5 && refused > 50, "{done} done, {refused} refused");
    let jobs = "/api/v1/imports?tenant=acme";
    eventually("her own imports", || {
        let (_, listed) = house.call("ann", "management", jobs, None);
        let mut jobs = listed["jobs"].as_array()?.iter();
        jobs.all(|job| job["state"] != "running").then_some(())
    });
    for (before, after) in before.iter().zip(all_of_beta(&house, &names)) {
        assert_eq!(*before, after, "seed {seed}");
    }
    // What she named that is beta's is kept.
    let refusals = "/api/v1/tenants/acme/refusals";
    let (_, told) = house.call("admin", "management", refusals, None);
    let told = told["refusals"].as_array().unwrap();
    let named = |claimed: &str| told.iter().any(|it| it["claimed"] == claimed);
    assert!(named("beta") && named("imports-beta"), "{told:?}");
}

impl House {
    /// What somebody hears of a filter, sorted, until there are so many or it takes too long.
    pub fn heard(&self, who: &str, filter: &str, count: &str) -> Vec<String> {
        let mut subscribe = self.mosquitto("mosquitto_sub", who);
        subscribe.args(["-t", filter, "-q", "1", "-v", "-W", "5", "-C", count]);
        let told = subscribe.output().unwrap();
        let mut lines: Vec<String> = text(&told.stdout).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// One of Mosquitto's programs as somebody.
    pub fn mosquitto(&self, program: &str, who: &str) -> Command {
        let mut command = Command::new(program);
        let port = self.up.port("mqtt");
        command.args(["-h", "127.0.0.1", "-p", &port, "-u", who, "-P", "secret"]);
        command
    }

    /// The status of a change that somebody tries.
    fn try_to(&self, who: &str, method: &str, role: &str, path: &str, body: &str) -> u16 {
        let (url, user) = (self.up.url(role, path), format!("{who}:secret"));
        let kind = match role {
            "rest" if path.starts_with("/topics/") => "application/vnd.kafka.json.v2+json",
            _ => "application/json",
        };
        let kind = format!("Content-Type: {kind}");
        let (user, method) = (["--user", &user], ["--request", method]);
        let body = ["--header", &kind, "--data-binary", body, &url];
        let call = [&["--path-as-is"][..], &user, &method, &body].concat();
        crate::harness::curl(&call).status
    }

    /// Status and text of a call by somebody.
    fn raw(&self, who: &str, role: &str, path: &str) -> (u16, String) {
        let (url, user) = (self.up.url(role, path), format!("{who}:secret"));
        let answer = crate::harness::curl(&["--path-as-is", "--user", &user, &url]);
        (answer.status, answer.body)
    }

    /// Status and body of a call by somebody with a method and a body.
    pub fn send(
        &self,
        who: &str,
        method: &str,
        role: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
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
