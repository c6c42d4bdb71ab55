//! What a tenant's people and programs do as if they were alone: imports by a role for these, and
//! MQTT topics below a mount point.

use std::process::Command;

use crate::harness::{Running, curl, eventually, folder, repository, succeed, text};
use crate::tenants::House;

#[test]
fn an_importer_does_its_tenants_imports_and_nothing_else_at_the_port() {
    let dir = folder();
    let house = House::start_with(dir.path(), &["--set", "streams.allow_if_no_acl=false"]);
    let lines =
        "{\"id\":\"r7\",\"title\":\"history\"}\n{\"id\":\"r8\",\"title\":\"geography\"}\n{\n";
    let new = |tenant: &str| format!("/api/v1/imports?tenant={tenant}&format=jsonl&key=id");
    let of_ann = |method: &str, path: &str, body: &str| {
        let (status, told) = house.send("ann", method, "management", path, body);
        assert!(status < 500, "{method} {path}: {status} {told}");
        (status, told)
    };
    assert_eq!(of_ann("POST", &new("acme"), lines).0, 403);
    house.admin(&["roles", "grant", "User:ann", "importer:acme"]);
    let listed = house.admin(&["roles", "list"]);
    assert_eq!(listed["roles"][0]["tenant"], "acme", "{listed}");
    let (_, me) = of_ann("GET", "/api/v1/me", "");
    assert_eq!(
        (&me["tenant"], &me["roles"][0]),
        (&"acme".into(), &"importer:acme".into())
    );
    let (status, job) = of_ann("POST", &new("acme"), lines);
    assert_eq!(status, 201, "{job}");
    let job = format!("/api/v1/imports/{}", job["id"].as_str().unwrap());
    eventually("the import", || {
        let (_, shown) = of_ann("GET", &job, "");
        (shown["state"] == "completed_with_rejects").then_some(())
    });
    eventually("the records in the index", || {
        let (_, found) = of_ann("GET", "/api/v1/search?tenant=acme&q=history", "");
        (found["total"] == 1).then_some(())
    });
    let check_out = "/api/v1/records/acme/r7/check-out";
    for (method, path, expected) in [
        ("GET", "/api/v1/imports?tenant=acme", 200),
        ("GET", &*format!("{job}/journal"), 200),
        ("GET", "/api/v1/records/acme/r7", 200),
        ("GET", "/api/v1/records/acme/r7/history", 200),
        ("GET", "/api/v1/profiles?tenant=acme", 200),
        ("GET", "/", 200),
        ("POST", check_out, 403),
        ("PUT", "/api/v1/profiles/p?tenant=acme", 403),
        ("DELETE", &*format!("{job}?forget=true"), 403),
        ("POST", &*new("beta"), 403),
        ("GET", "/api/v1/imports?tenant=beta", 403),
        ("GET", "/api/v1/imports", 403),
        ("GET", "/api/v1/tenants/acme", 403),
        ("GET", "/api/v1/topics", 403),
        ("GET", "/api/v1/topics/t/records", 403),
        ("GET", "/api/v1/registry/subjects", 403),
        ("GET", "/api/v1/agents", 403),
        ("GET", "/metrics", 403),
    ] {
        let (status, told) = of_ann(method, path, "{}");
        assert_eq!(status, expected, "{method} {path}: {told}");
    }
    let (status, paused) = of_ann("POST", &format!("{job}/pause"), "");
    assert_eq!(status, 409, "{paused}");
    let audit = house.admin(&["audit", "--principal", "User:ann"]);
    let entries = audit["entries"].as_array().unwrap();
    let was = |status: u16| {
        entries
            .iter()
            .any(|it| it["path"] == "/api/v1/imports" && it["status"] == status)
    };
    assert!(was(201) && was(403), "{audit}");
    house.admin(&["roles", "revoke", "User:ann", "importer:acme"]);
    assert_eq!(of_ann("GET", &job, "").0, 403);
}

#[test]
fn the_console_shows_an_importer_its_tenants_imports() {
    let dir = folder();
    let house = House::start_with(dir.path(), &["--set", "streams.allow_if_no_acl=false"]);
    house.admin(&["roles", "grant", "User:ann", "importer:acme"]);
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/importer.mjs"))
        .arg(house.up.url("management", "/"))
        .args(["ann", "secret", "acme"]);
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the console is as expected");
}

#[test]
fn mqtt_clients_of_two_tenants_use_the_same_topics_and_do_not_meet() {
    let dir = folder();
    let settings = ["mqtt.security.logins=true", "mqtt.tenants.mount=true"];
    let settings = settings.iter().flat_map(|it| ["--set", it]);
    let house = House::start_with(dir.path(), &settings.collect::<Vec<_>>());
    house.admin(&["topics", "create", "temperatures", "--partitions", "1"]);
    let rule = ["--from", "mqtt:+/plant/+/t", "--to", "kafka:temperatures"];
    let rule = [
        &["mqtt", "rules", "add", "t"],
        &rule[..],
        &["--key", "{1}-{3}"],
    ]
    .concat();
    house.admin(&rule);
    for (who, payload) in [("ann", "hers"), ("bob", "his")] {
        let mut publish = house.mosquitto("mosquitto_pub", who);
        succeed(publish.args(["-t", "plant/7/t", "-m", payload, "-q", "1", "-r", "-V", "5"]));
    }
    assert_eq!(house.heard("ann", "#", "1"), ["plant/7/t hers"]);
    assert_eq!(house.heard("bob", "plant/+/t", "1"), ["plant/7/t his"]);
    let all = ["acme/plant/7/t hers", "beta/plant/7/t his"];
    assert_eq!(house.heard("admin", "#", "2"), all);
    // One who asks and one who answers know of no tenant either.
    let mut asks = house.mosquitto("mosquitto_rr", "ann");
    asks.args([
        "-t",
        "ask",
        "-e",
        "answers/1",
        "-m",
        "?",
        "-V",
        "5",
        "-W",
        "30",
    ]);
    asks.args(["-F", "%t %p"]);
    let asked = std::thread::spawn(move || asks.output().unwrap());
    eventually("the question's answer", || {
        let mut answer = house.mosquitto("mosquitto_pub", "ann");
        succeed(answer.args(["-t", "answers/1", "-m", "!", "-V", "5"]));
        asked.is_finished().then_some(())
    });
    assert_eq!(text(&asked.join().unwrap().stdout).trim(), "answers/1 !");
    // What the rule stored names the tenant.
    let topics = || {
        let url = house.up.url(
            "rest",
            "/topics/temperatures/partitions/0/messages?offset=0&count=9",
        );
        curl(&["--user", "admin:secret", &url])
    };
    eventually("the rule's records", || {
        let body = topics().body;
        (body.contains("YWNtZS03") && body.contains("YmV0YS03")).then_some(())
    });
}
