//! `thalweg up` with its records in a Kafka cluster.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::access::Certificates;
use crate::harness::{Up, curl, eventually, folder, post, succeed, text, thalweg_command};
use crate::kafka_broker::{Broker, PLAIN, free_address, kafka};

#[test]
fn rest_and_the_command_line_work_on_the_cluster() {
    let dir = folder();
    let up = on_cluster(&dir.path().join("data"));
    let log = std::fs::read_to_string(dir.path().join("data.up.log")).unwrap();
    assert!(
        log.contains("Kafka cluster; no Kafka listener of its own"),
        "{log}"
    );
    assert!(up.get("/api/v1/status")["endpoints"]["streams"].is_null());

    let url = up.url("rest", "/topics/%2Fcluster%2Frest%3Atopic1");
    let body = r#"{"records":[{"value":{"foo":"bar"}},{"value":2}]}"#;
    let answer = post(&url, "application/vnd.kafka.json.v1+json", body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["offsets"][1]["offset"], 1, "{}", answer.body);
    assert_eq!(
        kcat_lines(".cluster.rest..topic1"),
        ["{\"foo\":\"bar\"}", "2"]
    );

    let rest = up.url("rest", "");
    let v2 = "application/vnd.kafka.v2+json";
    let body = json!({"name": "i", "format": "json", "auto.offset.reset": "earliest"});
    let answer = post(
        &format!("{rest}/consumers/cluster-rest"),
        v2,
        &body.to_string(),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    let uri = answer.json()["base_uri"].as_str().unwrap().to_owned();
    let topics = r#"{"topics":["/cluster/rest:topic1"]}"#;
    assert_eq!(post(&format!("{uri}/subscription"), v2, topics).status, 204);
    let records = eventually("the instance reads", || {
        let accept = "Accept: application/vnd.kafka.json.v2+json";
        let answer = curl(&["--header", accept, &format!("{uri}/records?timeout=5000")]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        Some(answer.json()).filter(|records| records.as_array().is_some_and(|a| a.len() == 2))
    });
    assert_eq!(records[0]["value"]["foo"], "bar", "{records}");
    assert_eq!(post(&format!("{uri}/offsets"), v2, "").status, 200);
    let groups = up.get("/api/v1/groups");
    assert!(groups.to_string().contains("cluster-rest"), "{groups}");

    up.cli_json(&["topics", "create", "cluster-cli", "--partitions", "2"]);
    let listed = up.cli_json(&["topics", "list"]).to_string();
    assert!(
        listed.contains("cluster-cli") && listed.contains("/cluster/rest:topic1"),
        "{listed}"
    );
    let lines = dir.path().join("lines");
    std::fs::write(&lines, "one\ntwo\n").unwrap();
    let produced = up.cli(&["produce", "cluster-cli", lines.to_str().unwrap()]);
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let mut read = kcat_lines("cluster-cli");
    read.sort();
    assert_eq!(read, ["one", "two"]);
    let consumed = up.cli(&["consume", "cluster-cli", "--from-beginning", "--max", "2"]);
    let mut consumed: Vec<String> = text(&consumed.stdout).lines().map(str::to_owned).collect();
    consumed.sort();
    assert_eq!(consumed, ["one", "two"]);
    let refused = up.cli(&["users", "list"]);
    assert!(
        text(&refused.stderr).contains("Kafka cluster's own"),
        "{}",
        text(&refused.stderr)
    );
    assert!(up.stop().success());
}

#[test]
fn version_3_of_the_rest_proxy_works_on_the_cluster() {
    let dir = folder();
    let up = on_cluster(&dir.path().join("data"));
    crate::rest::use_version_3(&up, dir.path());
    administer(&up);
    assert!(up.stop().success());
}

/// Asks and changes what is the brokers' own, and is told what only the cluster's tools do.
fn administer(up: &Up) {
    let clusters = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = clusters["data"][0]["metadata"]["self"].as_str().unwrap();
    let brokers = curl(&[&format!("{cluster}/brokers")]).json();
    let broker = brokers["data"][0]["metadata"]["self"].as_str().unwrap();
    let ids = curl(&[&up.url("rest", "/brokers")]).json();
    assert_eq!(ids["brokers"][0], brokers["data"][0]["broker_id"], "{ids}");
    let threads = format!("{broker}/configs/background.threads");
    let put = |url: &str, value: &str| {
        let body = json!({"value": value}).to_string();
        let media = "Content-Type: application/json";
        curl(&["--request", "PUT", "--header", media, "--data", &body, url])
    };
    assert_eq!(put(&threads, "11").status, 204);
    // A broker tells of a change before it follows it.
    let holds = |source: &str, value: &str| {
        eventually("the setting holds", || {
            let setting = curl(&[&threads]).json();
            (setting["source"] == source && setting["value"] == value).then_some(setting)
        })
    };
    holds("DYNAMIC_BROKER_CONFIG", "11");
    assert_eq!(curl(&["--request", "DELETE", &threads]).status, 204);
    assert_eq!(holds("DEFAULT_CONFIG", "10")["is_default"], true);
    let refused = put(&format!("{broker}/configs/node.id"), "7");
    assert_eq!(refused.json()["error_code"], 40002, "{}", refused.body);
    let replicas = curl(&[&format!("{broker}/partition-replicas")]).json();
    let replica = &replicas["data"][0];
    assert_eq!(replica["is_leader"], true, "{replicas}");
    for path in ["acls", "topics/-/partitions/-/reassignment"] {
        let refused = curl(&[&format!("{cluster}/{path}")]);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error_code"], 40002, "{}", refused.body);
    }
    // Kafka itself sets one for all brokers together.
    let settings = curl(&[&format!("{cluster}/broker-configs")]).json();
    let settings = settings["data"].as_array().unwrap();
    let names: Vec<&Value> = settings.iter().map(|setting| &setting["name"]).collect();
    assert!(names.contains(&&json!("min.insync.replicas")), "{names:?}");
    let mut sources = settings.iter().map(|setting| &setting["source"]);
    assert!(sources.all(|source| source == "DYNAMIC_DEFAULT_BROKER_CONFIG"));
    let refused = put(
        &format!("{cluster}/broker-configs/min.insync.replicas"),
        "1",
    );
    assert_eq!(refused.json()["error_code"], 40002, "{}", refused.body);
    replicate(cluster, &brokers["data"][0]["broker_id"]);
}

/// Replicas are the cluster's to give: it has one broker here.
fn replicate(cluster: &str, broker: &Value) {
    let create = |name: &str, fields: Value| {
        let mut body = fields;
        body["topic_name"] = json!(format!("{name}{}", std::process::id()));
        post(
            &format!("{cluster}/topics"),
            "application/json",
            &body.to_string(),
        )
    };
    let refused = create("three", json!({"replication_factor": 3}));
    assert_eq!(refused.json()["error_code"], 40002, "{}", refused.body);
    let told = refused.json()["message"].as_str().unwrap().to_lowercase();
    assert!(told.contains("replication"), "{told}");
    let made = create(
        "one",
        json!({"partitions_count": 2, "replication_factor": 1}),
    );
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(made.json()["replication_factor"], 1, "{}", made.body);
    let assigned = json!({"replicas_assignments": {"1": [broker], "0": [broker]}});
    let made = create("assigned", assigned);
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(made.json()["partitions_count"], 2, "{}", made.body);
    let gap = json!({"replicas_assignments": {"1": [broker]}});
    assert_eq!(create("gap", gap).status, 400);
    let elsewhere = json!({"replicas_assignments": {"0": [4_000]}});
    let refused = create("elsewhere", elsewhere);
    assert_eq!(refused.json()["error_code"], 40002, "{}", refused.body);
}

#[test]
fn a_statement_goes_from_topic_to_topic_once_over_a_kill() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut up = on_cluster(&data);
    for topic in ["cluster-hot", "cluster-alarm"] {
        up.cli_json(&["topics", "create", topic]);
    }
    let statement = "INSERT INTO kafka.\"cluster-alarm\" SELECT id, f FROM kafka.\"cluster-hot\" \
                     WHERE f > 50";
    up.cli_json(&["statements", "add", statement]);
    let produce = |up: &Up, ids: std::ops::Range<i64>| {
        let records: Vec<Value> = ids
            .map(|id| json!({"value": {"id": id, "f": if id % 2 == 0 { 99 } else { 1 }}}))
            .collect();
        let body = json!({"records": records}).to_string();
        let url = up.url("rest", "/topics/cluster-hot");
        let answer = post(&url, "application/vnd.kafka.json.v2+json", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    produce(&up, 0..100);
    eventually("rows come out", || {
        Some(()).filter(|()| !rows("cluster-alarm").is_empty())
    });
    up.kill();
    let up = on_cluster(&data);
    produce(&up, 100..200);
    let read = eventually("every row is there", || {
        let ids = rows("cluster-alarm");
        Some(ids).filter(|ids| ids.contains(&198))
    });
    assert_eq!(read, (0..200).filter(|id| id % 2 == 0).collect::<Vec<_>>());
}

#[test]
fn an_import_arrives_whole_and_once() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut up = on_cluster(&data);
    let file = dir.path().join("many.jsonl");
    let lines: String = (0..3_000)
        .map(|n| format!("{{\"id\":\"r{n}\"}}\n"))
        .collect();
    std::fs::write(&file, lines).unwrap();
    let job = up.cli_json(&[
        "import",
        file.to_str().unwrap(),
        "--tenant",
        "t1",
        "--key",
        "id",
        "--topic",
        "cluster-import",
        "--no-wait",
    ]);
    let id = job["id"].as_str().unwrap().to_owned();
    up.kill();
    let up = on_cluster(&data);
    eventually("the import ends", || {
        let job = up.get(&format!("/api/v1/imports/{id}"));
        Some(()).filter(|()| job["state"] == "completed")
    });
    let mut keys = kcat(&["-t", "cluster-import", "-f", "%k\n"]);
    assert_eq!(keys.len(), 3_000);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3_000);
}

#[test]
fn a_cluster_that_is_away_is_told_and_stops_nothing() {
    let dir = folder();
    let arguments = [
        format!("streams.kafka.bootstrap_servers={}", free_address()),
        "streams.kafka.request_timeout=1s".to_owned(),
        "streams.kafka.delivery_timeout=2s".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().flat_map(|one| ["--set", one]).collect();
    let up = Up::start_with(&dir.path().join("data"), &arguments);
    let body = r#"{"records":[{"value":1}]}"#;
    let url = up.url("rest", "/topics/t");
    let answer = post(&url, "application/vnd.kafka.json.v2+json", body);
    assert_eq!(answer.json()["error_code"], 50302, "{}", answer.body);
    assert!(
        answer.body.contains("the Kafka cluster cannot be reached"),
        "{}",
        answer.body
    );
    assert_eq!(up.get("/health")["status"], "UP");
    assert!(up.stop().success());
}

#[test]
fn a_cluster_behind_tls_and_a_login_is_reached_with_librdkafkas_properties() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let mut keystore = std::fs::read_to_string(certificates.path("server.key")).unwrap();
    keystore += &std::fs::read_to_string(certificates.path("server.pem")).unwrap();
    std::fs::write(certificates.path("keystore.pem"), keystore).unwrap();
    let security = SASL_SSL
        .replace("{keystore}", &certificates.path("keystore.pem"))
        .replace("{truststore}", &certificates.path("ca.pem"));
    let user = "SCRAM-SHA-512=[name=thalweg,password=hush]";
    let broker = Broker::start(&security, &["--add-scram", user]);
    let start = |name: &str, password: &str| {
        let properties = "streams.kafka.properties";
        let settings = [
            format!("streams.kafka.bootstrap_servers={}", broker.address),
            format!("{properties}.security.protocol=SASL_SSL"),
            format!("{properties}.sasl.mechanism=SCRAM-SHA-512"),
            format!("{properties}.sasl.username=thalweg"),
            format!("{properties}.sasl.password={password}"),
            format!(
                "{properties}.ssl.ca.location={}",
                certificates.path("ca.pem")
            ),
            "streams.kafka.request_timeout=2s".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
        Up::start_with(&dir.path().join(name), &settings)
    };
    let body = r#"{"records":[{"value":{"n":1}}]}"#;
    let produce = |up: &Up| {
        let url = up.url("rest", "/topics/secured");
        post(&url, "application/vnd.kafka.json.v2+json", body)
    };
    let up = start("data", "hush");
    eventually("a record is taken", || {
        (produce(&up).status == 200).then_some(())
    });
    let read = up.cli(&["consume", "secured", "--from-beginning", "--max", "1"]);
    assert_eq!(text(&read.stdout), "{\"n\":1}\n", "{}", text(&read.stderr));
    assert!(up.stop().success());
    let log = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(!log("data.up.log").contains("hush"));

    // A wrong password is told as what it is, and is in no log.
    let up = start("other", "wrong-password");
    let answer = produce(&up);
    assert_eq!(answer.json()["error_code"], 50302, "{}", answer.body);
    assert!(up.stop().success());
    let log = log("other.up.log");
    assert!(
        log.contains("uthentication") && !log.contains("wrong-password"),
        "{log}"
    );
}

#[test]
fn a_broker_that_dies_and_comes_back_loses_and_doubles_nothing() {
    let dir = folder();
    let mut broker = Broker::start(PLAIN, &[]);
    let settings = [
        format!("streams.kafka.bootstrap_servers={}", broker.address),
        "streams.kafka.request_timeout=2s".to_owned(),
        "streams.kafka.delivery_timeout=3s".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
    let up = Up::start_with(&dir.path().join("data"), &settings);
    for topic in ["hot", "alarm"] {
        up.cli_json(&["topics", "create", topic]);
    }
    let statement = "INSERT INTO kafka.alarm SELECT id, f FROM kafka.hot WHERE f > 50";
    up.cli_json(&["statements", "add", statement]);
    // Whether the record was acknowledged; what was not may have been stored.
    let produce = |id: i64| {
        let body = json!({"records": [{"value": {"id": id, "f": 99}}]}).to_string();
        let url = up.url("rest", "/topics/hot");
        let answer = post(&url, "application/vnd.kafka.json.v2+json", &body);
        let stored = answer.status == 200 && answer.json()["offsets"][0]["error_code"].is_null();
        if !stored {
            let told = answer.body.contains("50302") || answer.body.contains("50003");
            assert!(told, "{}", answer.body);
        }
        stored
    };
    let mut acknowledged: Vec<i64> = (0..20).filter(|id| produce(*id)).collect();
    assert_eq!(acknowledged.len(), 20);
    broker.kill();
    assert!(!produce(20), "nobody could have taken it");
    assert_eq!(up.get("/health")["status"], "UP");
    broker.start_again();
    acknowledged.extend((21..40).filter(|id| {
        // The first ones may come before the cluster is found again.
        eventually("a record is taken", || produce(*id).then_some(()));
        true
    }));
    let address = broker.address.clone();
    let rows_of = |topic: &str| -> Vec<i64> {
        let mut kcat = Command::new("kcat");
        kcat.args(["-b", &address, "-C", "-e", "-q", "-t", topic]);
        kcat.args(["-X", "isolation.level=read_committed"]);
        let rows = succeed(&mut kcat);
        let row = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
        rows.lines()
            .map(|line| row(line).as_i64().unwrap())
            .collect()
    };
    let hot = rows_of("hot");
    for id in &acknowledged {
        assert!(hot.contains(id), "{id} was acknowledged and is gone");
    }
    // What the statement read, it told once, in order.
    let alarm = eventually("every row is there", || {
        Some(rows_of("alarm")).filter(|rows| rows.len() >= hot.len())
    });
    assert_eq!(alarm, hot);

    // Started while the cluster is away, the statement goes on when it is back.
    assert!(up.stop().success());
    broker.kill();
    let up = Up::start_with(&dir.path().join("data"), &settings);
    let state = || up.cli_json(&["statements", "list"]).to_string();
    assert!(state().contains("failed"), "{}", state());
    broker.start_again();
    eventually("the statement runs", || {
        state().contains("running").then_some(())
    });
    let url = up.url("rest", "/topics/hot");
    let body = r#"{"records":[{"value":{"id":1000,"f":99}}]}"#;
    eventually("a record is taken", || {
        let answer = post(&url, "application/vnd.kafka.json.v2+json", body);
        let stored = answer.status == 200 && answer.json()["offsets"][0]["error_code"].is_null();
        stored.then_some(())
    });
    eventually("its row is there", || {
        rows_of("alarm").contains(&1_000).then_some(())
    });
    let alarm = rows_of("alarm");
    assert_eq!(alarm[..hot.len()], hot, "nothing is told twice");
}

#[test]
fn what_is_not_the_users_to_set_is_refused_with_a_cluster() {
    let dir = folder();
    let mut command = thalweg_command();
    command.arg("up").arg("--data").arg(dir.path().join("data"));
    for setting in [
        "streams.kafka.bootstrap_servers=127.0.0.1:1",
        "streams.kafka.properties.acks=1",
        "streams.kafka.properties.enable.idempotence=false",
        "streams.kafka.properties.sasl.password=hush",
    ] {
        command.args(["--set", setting]);
    }
    let output = command.output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        told.contains("idempotence") && told.contains("acks"),
        "{told}"
    );
    assert!(!told.contains("hush"), "{told}");
}

fn on_cluster(data: &Path) -> Up {
    let servers = format!("streams.kafka.bootstrap_servers={}", kafka());
    Up::start_with(data, &["--set", &servers])
}

/// What a client of the cluster reads, committed records only.
fn kcat(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("kcat");
    command
        .args(["-b", kafka(), "-C", "-e", "-q"])
        .args(["-X", "isolation.level=read_committed"])
        .args(arguments);
    succeed(&mut command).lines().map(str::to_owned).collect()
}

fn kcat_lines(topic: &str) -> Vec<String> {
    kcat(&["-t", topic])
}

fn rows(topic: &str) -> Vec<i64> {
    let row = |line: &String| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["id"].as_i64().unwrap()
    };
    kcat_lines(topic).iter().map(row).collect()
}

/// A broker's listener with TLS and logins.
const SASL_SSL: &str = "\
listeners=SASL_SSL://{address},CONTROLLER://{controller}
advertised.listeners=SASL_SSL://{address}
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SASL_SSL
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
    org.apache.kafka.common.security.scram.ScramLoginModule required \
    username=\"thalweg\" password=\"hush\";
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
";
