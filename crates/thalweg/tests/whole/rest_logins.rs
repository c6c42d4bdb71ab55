//! Who calls the REST proxy and the schema registry before a Kafka cluster, which knows the proxy
//! alone: users, tokens, certificates and ACLs are those of the proxy's folder.

use std::path::Path;

use serde_json::json;

use crate::access::Certificates;
use crate::harness::{Answer, Up, curl, eventually, folder};
use crate::kafka_broker::kafka;
use crate::rest_survival::{JSON_V2, proxy_before};
use crate::tenants::House;

const V2: &str = "application/vnd.kafka.v2+json";

#[test]
fn callers_before_a_kafka_are_held_to_the_acls_of_the_folder() {
    hold_callers(kafka(), folder().path());
}

#[test]
fn callers_before_a_thalweg_are_held_to_the_acls_of_the_folder() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    hold_callers(&store.address("streams"), dir.path());
}

fn hold_callers(store: &str, dir: &Path) {
    let run = std::process::id();
    let servers = format!("streams.kafka.bootstrap_servers={store}");
    let schemas = format!("schemas.topic=schemas-{run}");
    let mut arguments = vec!["--role", "rest,schemas"];
    for setting in [&servers, &schemas, "streams.allow_if_no_acl=false"] {
        arguments.extend(["--set", setting]);
    }
    let house = House::start_with(dir, &arguments);
    let allow = |who: &str, operation: &str, kind: &str, name: &str| {
        let granted = ["--user", who, "--operation", operation, kind, name];
        house.admin(&[&["acls", "add"], &granted[..]].concat());
    };

    // Every port asks who calls, but for those who only ask whether it lives.
    for (role, path) in [
        ("rest", "/topics"),
        ("schemas", "/subjects"),
        ("management", "/api/v1/topics"),
    ] {
        let url = house.up.url(role, path);
        assert_eq!(curl(&[&url]).status, 401, "{role}");
        assert_eq!(curl(&["--user", "ann:wrong", &url]).status, 401, "{role}");
        let (status, told) = house.call("admin", role, path, None);
        assert_eq!(status, 200, "{role}: {told}");
    }
    assert_eq!(curl(&[&house.up.url("rest", "/ready")]).status, 204);

    // Topics, by ACLs that the cluster knows nothing of.
    let (orders, group) = (format!("orders{run}"), format!("group{run}"));
    let new = json!({"topic_name": orders, "partitions_count": 1});
    let (status, told) = house.call("ann", "rest", "/admin/topics", Some(new.clone()));
    assert_eq!(status, 403, "{told}");
    let (status, told) = house.call("admin", "rest", "/admin/topics", Some(new));
    assert_eq!(status, 201, "{told}");
    let path = format!("/topics/{orders}");
    let records = || Some(json!({"records": [{"value": 1}, {"value": 2}]}));
    allow("ann", "write", "--topic", &orders);
    allow("ann", "read", "--topic", &orders);
    allow("ann", "read", "--group", &group);
    let (status, told) = house.call("ann", "rest", &path, records());
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["offsets"][1]["offset"], 1, "{told}");
    let (status, told) = house.call("bob", "rest", &path, records());
    assert_eq!(
        (status, &told["error_code"]),
        (403, &json!(40301)),
        "{told}"
    );
    // Who may not create a topic does not do so by producing.
    let other = format!("/topics/other{run}");
    let (status, told) = house.call("ann", "rest", &other, records());
    assert_eq!(status, 403, "{told}");
    assert_eq!(house.call("admin", "rest", &other, None).0, 404);
    let (_, listed) = house.call("ann", "rest", "/topics", None);
    assert_eq!(listed, json!([orders]));

    // A token stands for its user.
    let issued = house.admin(&["tokens", "add", "ann"]);
    let bearer = format!(
        "Authorization: Bearer {}",
        issued["token"].as_str().unwrap()
    );
    let by_token = curl(&["--header", &bearer, &house.up.url("rest", &path)]);
    assert_eq!(by_token.status, 200, "{}", by_token.body);

    // An instance is its maker's, whatever rights others have.
    let made = json!({"name": "i", "format": "json", "auto.offset.reset": "earliest"});
    let group_path = format!("/consumers/{group}");
    let (status, told) = house.call("ann", "rest", &group_path, Some(made.clone()));
    assert_eq!(status, 200, "{told}");
    let instance = format!("{group_path}/instances/i");
    let assigned = json!({"partitions": [{"topic": orders, "partition": 0}]});
    let assignments = format!("{instance}/assignments");
    let (status, told) = house.call("ann", "rest", &assignments, Some(assigned));
    assert_eq!(status, 204, "{told}");
    let read = format!("{instance}/records?timeout=2000");
    eventually("ann reads both records", || {
        let (status, told) = house.call("ann", "rest", &read, None);
        assert_eq!(status, 200, "{told}");
        (told.as_array().unwrap().last()?["value"] == 2).then_some(())
    });
    allow("bob", "all", "--topic", &orders);
    allow("bob", "all", "--group", &group);
    let (status, told) = house.call("bob", "rest", &read, None);
    assert_eq!(
        (status, &told["error_code"]),
        (404, &json!(40403)),
        "{told}"
    );
    // Rights that were taken end its reads.
    house.admin(&[
        "acls",
        "remove",
        "--user",
        "ann",
        "--operation",
        "read",
        "--topic",
        &orders,
    ]);
    let (status, told) = house.call("ann", "rest", &read, None);
    assert_eq!(
        (status, &told["error_code"]),
        (403, &json!(40301)),
        "{told}"
    );

    // Tenants are kept apart: ann is of acme, bob of beta.
    let of_acme = format!("env.ns.acme.E{run}");
    for who in ["ann", "bob"] {
        allow(who, "all", "--topic", &of_acme);
    }
    let path = format!("/topics/{of_acme}");
    let (status, told) = house.call("ann", "rest", &path, records());
    assert_eq!(status, 200, "{told}");
    let (status, told) = house.call("bob", "rest", &path, records());
    assert_eq!(status, 403, "{told}");

    // The registry goes by rights on the topic of schemas.
    let (status, told) = house.call("ann", "schemas", "/subjects", None);
    assert_eq!(
        (status, &told["error_code"]),
        (403, &json!(40301)),
        "{told}"
    );
    allow("ann", "read", "--topic", &format!("schemas-{run}"));
    let (status, told) = house.call("ann", "schemas", "/subjects", None);
    assert_eq!((status, told), (200, json!([])));
    let register = |who: &str| {
        let user = format!("{who}:secret");
        let url = house.up.url("schemas", "/subjects/s/versions");
        let json = "Content-Type: application/json";
        let schema = r#"{"schema": "\"int\""}"#;
        curl(&[
            "--user",
            &user,
            "--header",
            json,
            "--data-binary",
            schema,
            &url,
        ])
    };
    assert_eq!(register("ann").status, 403);
    let registered = register("admin");
    assert_eq!(registered.status, 200, "{}", registered.body);
}

#[test]
fn an_instance_is_its_certificates_at_whatever_proxy() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let store = Up::start(&dir.path().join("store"));
    let streams = store.address("streams");
    let settings = [
        format!("rest.tls.certificate={}", certificates.path("server.pem")),
        format!("rest.tls.key={}", certificates.path("server.key")),
        format!("rest.tls.client_ca={}", certificates.path("ca.pem")),
        "rest.tls.client_auth=required".to_owned(),
        format!("rest.peer_ca={}", certificates.path("ca.pem")),
        "streams.authorization=acl".to_owned(),
        "streams.super_users=[\"User:CN=ann,O=Example\", \"User:CN=eve,O=Example\"]".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|set| ["--set", set]).collect();
    let [mut first, second] =
        ["first", "second"].map(|name| proxy_before(&streams, &dir.path().join(name), &settings));
    let call = |up: &Up, who: &str, path: &str, media: &str, more: &[&str]| -> Answer {
        let ca = certificates.path("ca.pem");
        let certificate = certificates.path(&format!("{who}.pem"));
        let key = certificates.path(&format!("{who}.key"));
        let media = format!("Content-Type: {media}");
        let accept = format!("Accept: {JSON_V2}, {V2}");
        let url = format!("https://{}{path}", up.address("rest"));
        let mut arguments = vec!["--cacert", &ca, "--cert", &certificate, "--key", &key];
        arguments.extend(["--header", &media, "--header", &accept]);
        arguments.extend(more);
        arguments.push(&url);
        curl(&arguments)
    };
    let expect = |answer: Answer, status: u16| {
        assert_eq!(answer.status, status, "{}", answer.body);
        answer
    };
    let produced = ["--data-binary", r#"{"records":[{"value":1}]}"#];
    expect(call(&first, "ann", "/topics/t", JSON_V2, &produced), 200);
    let made = [
        "--data-binary",
        r#"{"name":"i","format":"json","auto.offset.reset":"earliest"}"#,
    ];
    expect(call(&first, "ann", "/consumers/g", V2, &made), 200);
    let instance = "/consumers/g/instances/i";
    let assigned = [
        "--data-binary",
        r#"{"partitions":[{"topic":"t","partition":0}]}"#,
    ];
    let (assignments, records) = (
        format!("{instance}/assignments"),
        format!("{instance}/records?timeout=1000"),
    );
    // The other proxy says for whom it asks; a certificate cannot be sent on.
    expect(call(&second, "ann", &assignments, V2, &assigned), 204);
    eventually("the other proxy reads", || {
        let answer = expect(call(&second, "ann", &records, V2, &[]), 200);
        (answer.json().as_array().unwrap().len() == 1).then_some(())
    });
    for up in [&first, &second] {
        expect(call(up, "eve", &records, V2, &[]), 404);
        // Nobody but a proxy is believed to speak for others.
        let claimed = [
            "--header",
            "Thalweg-Caller: User:CN=ann,O=Example",
            "--header",
            "Thalweg-Caller-Host: 127.0.0.1",
        ];
        let told = expect(call(up, "eve", &records, V2, &claimed), 401);
        assert!(told.body.contains("rest.peer_names"), "{}", told.body);
    }
    // Without the first one it is its maker's still.
    first.kill();
    expect(call(&second, "eve", &records, V2, &[]), 404);
    eventually("it is taken over", || {
        let answer = call(&second, "ann", &records, V2, &[]);
        (answer.status == 200).then_some(())
    });
    expect(call(&second, "eve", &records, V2, &[]), 404);
}
