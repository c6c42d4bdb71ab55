//! What goes wrong in daily life gets an error that says what to do, and harms nothing.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;

use crate::harness::{Up, curl, eventually, folder, post, text, thalweg_command};

#[test]
fn a_second_instance_on_the_same_folder_is_told_whose_it_is() {
    let dir = folder();
    let data = dir.path().join("data");
    let up = Up::start(&data);
    let said = failure(&[
        "up",
        "--data",
        data.to_str().unwrap(),
        "--set",
        "fleet.listen=127.0.0.1:0",
    ]);
    assert!(said.contains("is in use by another thalweg"), "{said}");
    assert!(
        said.contains(&format!("process {}", up.pid())) && said.contains("--data"),
        "{said}"
    );
    // The first one is unharmed.
    assert_eq!(curl(&[&up.url("fleet", "/health")]).status, 200);
    let topic = json!({"name": "still-works"}).to_string();
    assert_eq!(
        post(
            &up.url("fleet", "/api/v1/topics"),
            "application/json",
            &topic
        )
        .status,
        201
    );
}

#[test]
fn a_taken_port_is_named_with_the_setting_that_moves_it() {
    let dir = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let setting = format!("streams.listen=127.0.0.1:{port}");
    let data = dir.path().join("data");
    let said = failure(&["up", "--data", data.to_str().unwrap(), "--set", &setting]);
    assert!(said.contains(&format!("port {port} is taken")), "{said}");
    assert!(
        said.contains("--set streams.listen=127.0.0.1:PORT"),
        "{said}"
    );
}

#[test]
fn all_taken_ports_are_told_at_once() {
    let dir = folder();
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [rest, mqtt] = taken.each_ref().map(|it| it.local_addr().unwrap());
    let data = dir.path().join("data");
    let (rest_listen, mqtt_listen) = (format!("rest.listen={rest}"), format!("mqtt.listen={mqtt}"));
    let mut arguments = vec!["up", "--data", data.to_str().unwrap()];
    for setting in [
        "streams.listen=127.0.0.1:0",
        &rest_listen,
        "schemas.listen=127.0.0.1:0",
        &mqtt_listen,
        "fleet.listen=127.0.0.1:0",
    ] {
        arguments.extend(["--set", setting]);
    }
    let said = failure(&arguments);
    for (key, address) in [("rest", rest), ("mqtt", mqtt)] {
        let told = format!("port {} is taken", address.port());
        let next = format!("--set {key}.listen=127.0.0.1:PORT");
        assert!(said.contains(&told) && said.contains(&next), "{said}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_file_and_the_likely_one() {
    let dir = folder();
    let file = dir.path().join("thalweg.toml");
    std::fs::write(
        &file,
        "[streams]\nlissten = \"127.0.0.1:0\"\n[rest]\nport = 1\n",
    )
    .unwrap();
    let data = dir.path().join("data");
    let arguments = [
        "up",
        "--data",
        data.to_str().unwrap(),
        "--config",
        file.to_str().unwrap(),
    ];
    let said = failure(&arguments);
    let expected = format!(
        "{}: unknown key 'streams.lissten'; did you mean 'streams.listen'?",
        file.display()
    );
    assert!(said.contains(&expected), "{said}");
    assert!(
        said.contains("unknown key 'rest.port'"),
        "both at once: {said}"
    );
    assert!(
        !data.join("streams").exists(),
        "a bad configuration touched the data folder"
    );
}

#[test]
fn a_port_beyond_this_machine_needs_a_word_of_consent() {
    let dir = folder();
    let data = dir.path().join("data");
    let arguments = [
        "up",
        "--data",
        data.to_str().unwrap(),
        "--set",
        "mqtt.listen=0.0.0.0:0",
    ];
    let said = failure(&arguments);
    assert!(
        said.contains("mqtt.listen") && said.contains("access.allow_remote=true"),
        "{said}"
    );
}

#[test]
fn a_statement_that_does_not_parse_is_answered_with_its_place() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let body = json!({"text": "SELECT a\nFORM mqtt.\"x\""}).to_string();
    let answer = post(
        &up.url("fleet", "/api/v1/statements"),
        "application/json",
        &body,
    );
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.json()["line"], 2, "{}", answer.body);
    let output = up.cli(&["statements", "add", "SELECT a\nFORM mqtt.\"x\""]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("line 2, column"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(up.get("/api/v1/statements"), json!({"statements": []}));
}

#[test]
fn a_topic_that_does_not_exist_is_told_in_each_protocols_words() {
    let dir = folder();
    let up = Up::start_with(
        &dir.path().join("data"),
        &["--set", "streams.auto_create_topics=false"],
    );
    let url = up.url("rest", "/topics/nowhere");
    let answer = post(
        &url,
        "application/vnd.kafka.json.v2+json",
        r#"{"records":[{"value":1}]}"#,
    );
    assert_eq!(
        (answer.status, answer.json()["error_code"].as_i64()),
        (404, Some(40401))
    );
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", &up.address("streams"), "-C", "-t", "nowhere", "-e"]);
    let output = kcat.output().unwrap();
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("Unknown topic"),
        "{}",
        text(&output.stderr)
    );
    let output = up.cli(&["topics", "describe", "nowhere"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("nowhere"),
        "{}",
        text(&output.stderr)
    );
    let listed = up.get("/api/v1/topics");
    assert_eq!(listed, json!({"topics": []}));
}

#[test]
fn a_client_command_without_a_server_says_how_to_get_one() {
    let mut command = thalweg_command();
    command.args(["--server", "http://127.0.0.1:9", "topics", "list"]);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("start `thalweg up`"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_command_of_a_role_that_does_not_run_says_so() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &["--role", "streams"]);
    let output = up.cli(&["agents", "list"]);
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("it runs without the role"),
        "{said}"
    );
}

#[test]
fn what_is_mistyped_is_told_with_what_to_write() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    for (arguments, expected) in [
        (
            "mqtt publish a/# -m x",
            "'a/#' is no topic to publish to: + and #",
        ),
        ("mqtt subscribe a/#/b", "'a/#/b' is no filter: + stands for"),
        (
            "mqtt publish a -m x --broker mqtt://127.0.0.1:1",
            "mqtt://127.0.0.1:1: ",
        ),
        ("mqtt rules remove x", "mqtt rules list"),
        ("acls add --user ann", "what (--operation)"),
        (
            "users add ann --password-file nowhere",
            "password in nowhere",
        ),
        (
            "users add ann",
            "standard input; name its file with --password-file",
        ),
        (
            "topics list --login ann --login-password-file /dev/null",
            "password in the first line of /dev/null",
        ),
        ("topics list --token-file nowhere", "token in nowhere"),
        (
            "topics list --token-file /dev/null",
            "token in the first line of /dev/null",
        ),
        (
            "topics create t --durability fast",
            "[possible values: memory, os, disk]",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = up.cli(&arguments);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains(expected),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_disk_that_is_full_at_the_start_is_told_whatever_failed_on_it() {
    for mebibytes in [2, 20] {
        let dir = folder();
        let said = Up::fail_on_small_disk(&dir.path().join("data"), mebibytes);
        assert!(
            said.contains("KiB are free on the disk of") && said.contains("--data"),
            "{said}"
        );
    }
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_was_acknowledged() {
    let dir = folder();
    let up = Up::start_on_small_disk(&dir.path().join("data"), 160);
    let body = dir.path().join("body");
    let value = "v".repeat(500_000);
    std::fs::write(&body, json!({"records": [{"value": value}]}).to_string()).unwrap();
    let data_argument = format!("@{}", body.display());
    let produce = || {
        let header = "Content-Type: application/vnd.kafka.json.v2+json";
        let target = up.url("rest", "/topics/full");
        curl(&["--header", header, "--data-binary", &data_argument, &target])
    };
    let mut acknowledged = 0_u64;
    let refused = eventually("the disk fills up", || {
        let answer = produce();
        let failed = answer.status != 200 || !answer.json()["offsets"][0]["error_code"].is_null();
        if !failed {
            acknowledged += 1;
        }
        failed.then_some(answer)
    });
    assert!(
        acknowledged > 10,
        "only {acknowledged} records fitted: {}",
        refused.body
    );
    assert!(
        refused.body.contains("disk") || refused.body.contains("full"),
        "{}",
        refused.body
    );
    // Everything acknowledged is there, the process lives, and it says why it refuses.
    let topic = curl(&[&up.url("fleet", "/api/v1/topics/full")]).json();
    assert_eq!(
        topic["offsets"][0]["end"].as_u64(),
        Some(acknowledged),
        "{topic}"
    );
    let read = curl(&[&up.url("rest", "/topics/full/partitions/0/offsets")]).json();
    assert_eq!(read["end_offset"].as_u64(), Some(acknowledged));
    assert_eq!(curl(&[&up.url("fleet", "/health")]).status, 200);
    // Deleting is taken on the full disk, and makes the room that it asks for.
    let deleted = curl(&["-X", "DELETE", &up.url("fleet", "/api/v1/topics/full")]);
    assert!(deleted.status < 300, "{}", deleted.body);
    eventually("there is room again", || {
        let answer = produce();
        let stored = answer.status == 200 && answer.json()["offsets"][0]["error_code"].is_null();
        stored.then_some(())
    });
    up.stop();
}

#[test]
fn a_failed_write_is_told_by_health_until_the_next_start() {
    let dir = folder();
    let up = Up::start_to_fail(&dir.path().join("data"));
    let health = |up: &Up| curl(&[&up.url("management", "/health")]);
    let body = dir.path().join("body");
    let records = json!({"records": [{"value": "v".repeat(300_000)}]});
    std::fs::write(&body, records.to_string()).unwrap();
    let data_argument = format!("@{}", body.display());
    let produce = |up: &Up| {
        let header = "Content-Type: application/vnd.kafka.json.v2+json";
        let target = up.url("rest", "/topics/kept");
        let answer = curl(&["--header", header, "--data-binary", &data_argument, &target]);
        answer.status == 200 && answer.json()["offsets"][0]["error_code"].is_null()
    };
    assert!(produce(&up));
    assert_eq!(health(&up).json(), json!({"status": "UP"}));

    up.limit_files(1 << 20);
    let mut acknowledged = 1;
    eventually("a write fails", || {
        let is_stored = produce(&up);
        acknowledged += u64::from(is_stored);
        (!is_stored).then_some(())
    });
    let told = health(&up);
    assert_eq!(told.status, 503, "{}", told.body);
    let told = told.json();
    assert_eq!(
        (&told["status"], &told["failed"]),
        (&json!("DOWN"), &json!(["streams"]))
    );
    assert!(
        told["message"].as_str().unwrap().contains("restart"),
        "{told}"
    );
    let metrics = curl(&[&up.url("management", "/metrics")]).body;
    assert!(metrics.contains("\nthalweg_streams_journal_poisoned 1\n"));
    assert!(metrics.contains("\nthalweg_mqtt_journal_poisoned 0\n"));

    let data = up.data().to_owned();
    drop(up);
    let up = Up::start(&data);
    assert_eq!(health(&up).status, 200);
    let topic = up.get("/api/v1/topics/kept");
    assert_eq!(topic["offsets"][0]["end"].as_u64(), Some(acknowledged));
    assert!(produce(&up));
}

#[test]
fn health_names_mqtt_and_fusion_when_it_is_their_stores_that_failed() {
    let message = |is_retained: bool| {
        let text = json!({"v": "v".repeat(100_000)}).to_string();
        json!({"topic": "kept", "text": text, "qos": 1, "retain": is_retained}).to_string()
    };
    for (role, message) in [("mqtt", message(true)), ("fusion", message(false))] {
        let dir = folder();
        let up = Up::start_to_fail(&dir.path().join("data"));
        let sql = "INSERT INTO mqtt.\"out\" SELECT v FROM mqtt.\"kept\"";
        if role == "fusion" {
            let durable = ["--name", "s", "--policy", "input=durable", sql];
            up.cli_json(&[&["statements", "add"][..], &durable].concat());
        }
        let told = |path: &str| curl(&[&up.url("management", path)]);
        // Where probes that were set up for EFM ask.
        for path in ["/health", "/efm/actuator/health"] {
            assert_eq!(told(path).json(), json!({"status": "UP"}));
        }
        // Within what is reserved of a file already: past that it would only be a full disk.
        up.limit_files(300_000);
        let url = up.url("management", "/api/v1/mqtt/publish");
        eventually("a write fails", || {
            post(&url, "application/json", &message);
            (told("/health").status == 503).then_some(())
        });
        for path in ["/health", "/efm/actuator/health"] {
            let told = told(path);
            assert_eq!(told.status, 503, "{path}: {}", told.body);
            assert_eq!(
                told.json()["failed"],
                json!([role]),
                "{path}: {}",
                told.body
            );
        }
    }
}

fn failure(arguments: &[&str]) -> String {
    let output = thalweg_command().args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} did not fail");
    text(&output.stderr)
}
