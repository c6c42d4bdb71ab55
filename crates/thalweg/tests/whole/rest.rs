//! curl against the REST proxy.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Up, curl, eventually, folder, post, succeed};

#[test]
fn the_article_call_creates_the_topic_by_its_streams_policy() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let url = up.url("rest", "/topics/%2Fstreams%2Ftest%3Atopic1");
    let body = r#"{"records":[{"value":{"foo":"bar"}}]}"#;
    let answer = post(&url, "application/vnd.kafka.json.v1+json", body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let placed = answer.json();
    assert_eq!(placed["offsets"][0]["partition"], 0, "{placed}");
    assert_eq!(placed["offsets"][0]["offset"], 0, "{placed}");
    // The same data under the name that Kafka clients can write.
    let mut kcat = Command::new("kcat");
    kcat.args([
        "-b",
        &up.address("streams"),
        "-C",
        "-t",
        ".streams.test..topic1",
        "-e",
        "-q",
    ]);
    assert_eq!(succeed(&mut kcat), "{\"foo\":\"bar\"}\n");
}

#[test]
fn version_3_tells_takes_and_reads() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    use_version_3(&up, dir.path());
}

/// Makes a topic, streams records into it and reads them, all by version 3.
pub fn use_version_3(up: &Up, dir: &Path) {
    let clusters = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = clusters["data"][0]["metadata"]["self"].as_str().unwrap();
    let brokers = curl(&[&format!("{cluster}/brokers")]).json();
    assert!(brokers["data"][0]["port"].is_u64(), "{brokers}");
    let topic = json!({"topic_name": "version-3", "partitions_count": 2});
    let topics = format!("{cluster}/topics");
    let made = post(&topics, "application/json", &topic.to_string());
    assert_eq!(made.status, 201, "{}", made.body);
    let topic = made.json()["metadata"]["self"].as_str().unwrap().to_owned();
    eventually("the topic is listed", || {
        let listed = curl(&[&topics]).body;
        listed.contains("\"version-3\"").then_some(())
    });

    // A file of records, one in the middle of which is none.
    let count = 20_000;
    let record = |n: usize| {
        let data = if n == count / 2 {
            json!("no base64!")
        } else {
            json!("aGVsbG8=")
        };
        json!({"partition_id": n % 2, "value": {"type": "BINARY", "data": data}}).to_string()
    };
    let lines: Vec<String> = (0..count).map(record).collect();
    let file = dir.join("records");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let answer = curl(&[
        "--request",
        "POST",
        "--header",
        "Content-Type: application/json",
        "--header",
        "Transfer-Encoding: chunked",
        "--upload-file",
        file.to_str().unwrap(),
        &format!("{topic}/records"),
    ]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let receipts: Vec<Value> = answer
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(receipts.len(), count);
    let mut next = [0, 0];
    for (n, receipt) in receipts.iter().enumerate() {
        if n == count / 2 {
            assert_eq!(receipt["error_code"], 400, "{receipt}");
            continue;
        }
        assert_eq!(receipt["partition_id"], n % 2, "{receipt}");
        assert_eq!(receipt["offset"], next[n % 2], "{n}: {receipt}");
        next[n % 2] += 1;
    }

    // Read page by page, each record once.
    let mut seen = [0, 0];
    let mut page = format!("{topic}/records?max_bytes=10000&timeout_ms=1000");
    while seen != next {
        let list = curl(&[&page]).json();
        for record in list["data"].as_array().unwrap() {
            let partition = usize::try_from(record["partition_id"].as_u64().unwrap()).unwrap();
            assert_eq!(record["offset"], seen[partition], "{record}");
            assert_eq!(record["value"]["data"], "hello", "{record}");
            seen[partition] += 1;
        }
        page = list["metadata"]["next"].as_str().unwrap().to_owned();
    }
    // And as events, of which curl prints what comes before it gives up.
    let mut events = Command::new("curl");
    events.args(["--silent", "--no-buffer", "--max-time", "3"]);
    events.args(["--header", "Accept: text/event-stream"]);
    events.arg(format!(
        "{topic}/records?positions=0:{},1:{}",
        next[0] - 1,
        next[1]
    ));
    let told = String::from_utf8(events.output().unwrap().stdout).unwrap();
    let id = format!("id: 0:{},1:{}\n", next[0], next[1]);
    assert!(told.contains(&id) && told.contains("\"hello\""), "{told}");
}

#[test]
fn a_consumer_instance_reads_what_was_posted_and_goes_on_after_its_commit() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let rest = up.url("rest", "");
    let v2 = "application/vnd.kafka.v2+json";
    let accept_json = "Accept: application/vnd.kafka.json.v2+json";
    let produce = |values: &[i64]| {
        let records: Vec<_> = values
            .iter()
            .map(|v| json!({"key": "k", "value": {"n": v}}))
            .collect();
        let body = json!({"records": records}).to_string();
        let answer = post(
            &format!("{rest}/topics/rest-t"),
            "application/vnd.kafka.json.v2+json",
            &body,
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    produce(&[1, 2, 3]);
    let create = |name: &str| {
        let body = json!({"name": name, "format": "json", "auto.offset.reset": "earliest"});
        let answer = post(&format!("{rest}/consumers/g"), v2, &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let uri = answer.json()["base_uri"].as_str().unwrap().to_owned();
        let answer = post(
            &format!("{uri}/subscription"),
            v2,
            r#"{"topics":["rest-t"]}"#,
        );
        assert_eq!(answer.status, 204, "{}", answer.body);
        uri
    };
    let read = |uri: &str| {
        let began = Instant::now();
        let answer = curl(&[
            "--header",
            accept_json,
            &format!("{uri}/records?timeout=20000"),
        ]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        // A read answers as soon as data is there instead of waiting its time out.
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "the read waited out its time"
        );
        let numbers: Vec<i64> = answer
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["value"]["n"].as_i64().unwrap())
            .collect();
        numbers
    };
    let first = create("one");
    assert_eq!(read(&first), [1, 2, 3]);
    assert_eq!(post(&format!("{first}/offsets"), v2, "").status, 200);
    assert_eq!(curl(&["--request", "DELETE", &first]).status, 204);
    assert_eq!(
        curl(&["--header", accept_json, &format!("{first}/records")]).json()["error_code"],
        40403
    );
    produce(&[4]);
    let second = create("two");
    assert_eq!(read(&second), [4]);
    assert_eq!(curl(&["--request", "DELETE", &second]).status, 204);
}

#[test]
fn metadata_of_topics_is_answered() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "meta", "--partitions", "2"]);
    let rest = up.url("rest", "");
    let topics = curl(&[&format!("{rest}/topics")]).json();
    assert!(
        topics.as_array().unwrap().contains(&json!("meta")),
        "{topics}"
    );
    let topic = curl(&[&format!("{rest}/topics/meta")]).json();
    assert_eq!(topic["partitions"].as_array().unwrap().len(), 2, "{topic}");
    let offsets = curl(&[&format!("{rest}/topics/meta/partitions/1/offsets")]).json();
    assert_eq!(offsets, json!({"beginning_offset": 0, "end_offset": 0}));
    let missing = curl(&[&format!("{rest}/topics/nowhere")]);
    assert_eq!(
        (missing.status, missing.json()["error_code"].as_i64()),
        (404, Some(40401))
    );
}
