//! Tenants as their administrators and callers meet them: command line, REST and Kafka.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Up, add_offline, curl, eventually, folder, succeed, whole_topic};

/// An installation where ann belongs to acme, bob to beta, and admin may do everything.
pub struct House {
    pub up: Up,
    password: String,
}

/// ACLs hold for whom they name.
const SETTINGS: [&str; 6] = [
    "--set",
    "streams.authorization=acl",
    "--set",
    "streams.allow_if_no_acl=true",
    "--set",
    "streams.super_users=[\"User:admin\"]",
];

impl House {
    pub fn start(dir: &Path) -> House {
        let mechanisms = "streams.sasl.mechanisms=[\"PLAIN\", \"SCRAM-SHA-256\"]";
        House::start_with(dir, &["--set", mechanisms])
    }

    /// One with more arguments, whose settings win.
    pub fn start_with(dir: &Path, more: &[&str]) -> House {
        let data = dir.join("data");
        for name in ["admin", "ann", "bob"] {
            add_offline(&data, name, "secret");
        }
        let password = dir.join("password");
        std::fs::write(&password, "secret\n").unwrap();
        let house = House {
            up: Up::start_with(&data, &[&SETTINGS, more].concat()),
            password: password.display().to_string(),
        };
        for (name, member) in [("acme", "User:ann"), ("beta", "User:bob")] {
            house.admin(&["tenants", "set", name, "--member", member]);
        }
        house
    }

    pub fn admin(&self, arguments: &[&str]) -> Value {
        let login = ["--login", "admin", "--login-password-file", &self.password];
        self.up.cli_json(&[&login, arguments].concat())
    }

    /// Status and body of a call by somebody.
    pub fn call(&self, who: &str, role: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let (url, user) = (self.up.url(role, path), format!("{who}:secret"));
        let body = body.map(|body| body.to_string());
        let mut arguments = vec!["--user", &user, &url];
        if let Some(body) = &body {
            let header = "Content-Type: application/vnd.kafka.json.v2+json";
            arguments.extend(["--header", header, "--data-binary", body]);
        }
        let answer = curl(&arguments);
        (
            answer.status,
            serde_json::from_str(&answer.body).unwrap_or_default(),
        )
    }

    /// Runs kcat as somebody.
    pub fn kcat(&self, who: &str, arguments: &[&str]) -> Command {
        let mut kcat = Command::new("kcat");
        kcat.args(["-b", &self.up.address("streams")]);
        for setting in [
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=PLAIN",
            &format!("sasl.username={who}"),
            "sasl.password=secret",
        ] {
            kcat.args(["-X", setting]);
        }
        kcat.args(arguments);
        kcat
    }
}

#[test]
fn a_tenants_callers_are_kept_to_it_over_kafka_and_rest_and_weights_reach_the_imports() {
    let dir = folder();
    let house = House::start(dir.path());
    let acme = "env.ns.acme.ORDERS";
    house.admin(&["topics", "create", acme]);
    let file = dir.path().join("values");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let file = file.display().to_string();
    succeed(&mut house.kcat("ann", &["-P", "-t", acme, "-l", &file]));
    let forged = house
        .kcat(
            "ann",
            &["-P", "-t", acme, "-H", "folio.tenantId=beta", "-l", &file],
        )
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&forged.stderr);
    assert!(told.contains("Topic authorization failed"), "{told}");
    let record = json!({"records": [{"value": 1}]});
    let topic = format!("/topics/{acme}");
    let (status, told) = house.call("bob", "rest", &topic, Some(record.clone()));
    assert_eq!(status, 403, "{told}");
    let (status, told) = house.call("ann", "rest", &topic, Some(record));
    assert_eq!(
        (status, told["offsets"][0]["error_code"].clone()),
        (200, Value::Null),
        "{told}"
    );
    let refusals = house.admin(&["tenants", "refusals", "acme"]);
    assert_eq!(refusals["refusals"][0]["claimed"], "beta", "{refusals}");
    let usage = house.admin(&["tenants", "usage", "acme"]);
    assert_eq!(usage["topics"][0]["records"], 3, "{usage}");
    assert_eq!(usage["totals"]["records"], 3, "{usage}");
    // Without an ACL everybody may do everything at the management port, but for this.
    for (path, status) in [
        ("/api/v1/tenants/acme", 200),
        ("/api/v1/tenants/beta", 404),
        ("/api/v1/imports?tenant=acme", 200),
        ("/api/v1/imports?tenant=beta", 403),
        ("/api/v1/imports", 403),
        ("/api/v1/topics", 403),
    ] {
        let (told, body) = house.call("ann", "management", path, None);
        assert_eq!(told, status, "{path}: {body}");
    }
    house.admin(&[
        "tenants",
        "set",
        "acme",
        "--weight",
        "4",
        "--records",
        "5000",
    ]);
    let shown = house.admin(&["tenants", "show", "acme"]);
    assert_eq!(
        (&shown["weight"], &shown["quotas"]["records_per_second"]),
        (&json!(4), &json!(5000))
    );
    eventually("the weight at the imports", || {
        let (_, page) = house.call("admin", "management", "/api/v1/imports/tenants", None);
        (page["tenants"][0]["weight"] == 4).then_some(())
    });
}

#[test]
fn a_tenants_records_go_to_a_collection_and_back() {
    let dir = folder();
    let house = House::start(dir.path());
    let (own, shared) = ("env.ns.acme.ORDERS", "env.ns.ALL.ORDERS");
    house.admin(&["topics", "create", own]);
    let send = |value: &str| {
        let file = dir.path().join(value);
        std::fs::write(&file, format!("{value}\n")).unwrap();
        let file = file.display().to_string();
        succeed(&mut house.kcat("ann", &["-P", "-t", own, "-l", &file]));
    };
    let switch = |to: &str| {
        house.admin(&["tenants", "set", "acme", "--collection", to]);
        eventually("the switch", || {
            let shown = house.admin(&["tenants", "show", "acme"]);
            shown["switching_to"].is_null().then_some(())
        });
    };
    let read = |topic: &str| {
        let mut lines: Vec<String> = succeed(
            house
                .kcat("admin", &whole_topic(topic))
                .args(["-f", "%s %h\n"]),
        )
        .lines()
        .map(|line| line.trim().to_owned())
        .collect();
        lines.sort();
        lines
    };
    send("a");
    switch("ALL");
    send("b");
    switch("own");
    send("c");
    assert_eq!(read(own), ["a", "c"]);
    assert_eq!(read(shared), ["b thalweg.tenant=acme"]);
    let usage = house.admin(&["tenants", "usage", "acme"]);
    let shared_part = &usage["topics"][0];
    assert_eq!(
        (&shared_part["topic"], &shared_part["records"]),
        (&json!(shared), &json!(1)),
        "{usage}"
    );
}

#[test]
fn what_a_tenant_keeps_in_a_shared_topic_counts_for_its_quota_after_a_restart_too() {
    let dir = folder();
    let mut house = House::start(dir.path());
    house.admin(&["topics", "create", "env.ns.acme.ORDERS"]);
    house.admin(&["tenants", "set", "acme", "--collection", "ALL"]);
    eventually("the switch", || {
        let shown = house.admin(&["tenants", "show", "acme"]);
        shown["switching_to"].is_null().then_some(())
    });
    let send = |house: &House, bytes: usize| {
        let body = json!({"records": [{"value": "x".repeat(bytes)}]});
        let path = "/topics/env.ns.acme.ORDERS";
        let (status, told) = house.call("ann", "rest", path, Some(body));
        let refused = told["error_code"].as_u64();
        refused
            .or(told["offsets"][0]["error_code"].as_u64())
            .unwrap_or(status.into())
    };
    assert_eq!(send(&house, 2_000), 200);
    house.admin(&["tenants", "set", "acme", "--stored", "1000"]);
    house.up.kill();
    house.up = house.up.start_again(&SETTINGS);
    eventually("the quota holds", || {
        (send(&house, 1) == 50701).then_some(())
    });
    assert_eq!(send(&house, 1), 50701);
    house.admin(&["tenants", "purge", "acme", "--everything"]);
    eventually("there is room", || (send(&house, 1) == 200).then_some(()));
}

#[test]
fn a_purged_tenants_namesake_inherits_nothing_that_was_imported() {
    let dir = folder();
    let house = House::start(dir.path());
    let file = dir.path().join("lines.jsonl");
    std::fs::write(&file, "{\"id\":\"r1\",\"title\":\"One\"}\n{\n").unwrap();
    let file = file.display().to_string();
    for tenant in ["acme", "beta"] {
        house.admin(&[
            "import",
            &file,
            "--tenant",
            tenant,
            "--key",
            "id",
            "--no-wait",
        ]);
        eventually("the import's end", || {
            let path = format!("/api/v1/imports?tenant={tenant}");
            let (_, jobs) = house.call("admin", "management", &path, None);
            (jobs["jobs"][0]["state"] == "completed_with_rejects").then_some(())
        });
    }
    let purged = house.admin(&["tenants", "purge", "acme", "--everything"]);
    let expected = json!({"jobs": 1, "entries": 1, "records": 1, "history": 0, "profiles": 0});
    assert_eq!(
        (&purged["records"], &purged["imports"]),
        (&json!(1), &expected),
        "{purged}"
    );
    house.admin(&["tenants", "remove", "acme"]);
    house.admin(&["tenants", "set", "acme", "--member", "User:ann"]);
    for (who, tenant, status, jobs) in [("ann", "acme", 404, 0), ("bob", "beta", 200, 1)] {
        let path = format!("/api/v1/records/{tenant}/r1");
        let (told, body) = house.call(who, "management", &path, None);
        assert_eq!(told, status, "{path}: {body}");
        let path = format!("/api/v1/imports?tenant={tenant}");
        let (_, told) = house.call(who, "management", &path, None);
        assert_eq!(told["jobs"].as_array().map(Vec::len), Some(jobs), "{told}");
    }
}
