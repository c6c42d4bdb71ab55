//! Long streams of records through the REST proxy: one POST that brings a million, and reads in
//! pieces that are smaller than what there is.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::harness::{Up, curl, folder, http_client, post, succeed};
use crate::kafka_broker::kafka;
use crate::rest_survival::JSON_V2;

/// Records of the long stream; the whole million by hand with
/// `THALWEG_TEST_STREAM_RECORDS=1000000`.
const RECORDS: u64 = 100_000;

/// What a stream may make the process hold, in bytes, beside what it holds at rest.
const GROWTH_MAX: u64 = 64 << 20;

#[test]
fn a_long_stream_has_its_receipts_in_order_and_little_memory() {
    let asked = std::env::var("THALWEG_TEST_STREAM_RECORDS").ok();
    let count = asked.and_then(|n| n.parse().ok()).unwrap_or(RECORDS);
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "long", "--partitions", "1"]);
    let clusters = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = clusters["data"][0]["cluster_id"].as_str().unwrap();
    let path = format!("/v3/clusters/{cluster}/topics/long/records");
    // One record first, so that what is made when it is first needed is not counted.
    let one = post(&up.url("rest", &path), "application/json", &record(0));
    assert_eq!(one.status, 200, "{}", one.body);
    let at_rest = memory(&up, "VmRSS");
    forget_peak(&up);

    let stream = TcpStream::connect(up.address("rest")).unwrap();
    let began = std::time::Instant::now();
    let reading = stream.try_clone().unwrap();
    let bad = count / 2;
    std::thread::scope(|scope| {
        let receipts = scope.spawn(move || read_receipts(reading, count, bad));
        send_stream(stream, &path, count, bad);
        receipts.join().unwrap();
    });
    let took = began.elapsed();
    let growth = memory(&up, "VmHWM").saturating_sub(at_rest);
    eprintln!(
        "{count} records in {took:?}; {} KiB at rest, at most {} KiB more",
        at_rest >> 10,
        growth >> 10
    );
    assert!(growth < GROWTH_MAX, "{growth} bytes more than at rest");

    // What the receipts say is there, in the order in which it was sent.
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", &up.address("streams"), "-C", "-t", "long", "-e", "-q"]);
    let stored = succeed(kcat.args(["-o", "1", "-f", "%s\n"]));
    let sent = (0..count).filter(|n| *n != bad);
    let mut stored = stored.lines();
    for n in sent {
        assert_eq!(stored.next(), Some(&*format!(r#"{{"n":{n}}}"#)));
    }
    assert_eq!(stored.next(), None);
}

#[tokio::test]
async fn records_come_once_each_in_order_however_small_the_pieces() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    read_in_pieces(&up).await;
}

#[tokio::test]
async fn records_come_once_each_in_order_before_a_kafka_too() {
    let dir = folder();
    let address = tokio::task::spawn_blocking(kafka).await.unwrap();
    let servers = format!("streams.kafka.bootstrap_servers={address}");
    let up = Up::start_with(&dir.path().join("data"), &["--set", &servers]);
    read_in_pieces(&up).await;
}

/// 1,000 records of 1 KB, read with `max_bytes=200000` by versions 2 and 3.
async fn read_in_pieces(up: &Up) {
    let topic = format!("pieces{}", std::process::id());
    up.cli_json(&["topics", "create", &topic, "--partitions", "1"]);
    let client = http_client();
    let text = |n: usize| format!("{n:04}{}", "x".repeat(994));
    let sent: Vec<String> = (0..1_000).map(text).collect();
    for hundred in sent.chunks(100) {
        let records: Vec<Value> = hundred.iter().map(|text| json!({"value": text})).collect();
        let request = client.post(up.url("rest", &format!("/topics/{topic}")));
        let request = request.header(CONTENT_TYPE, JSON_V2);
        let request = request.body(json!({"records": records}).to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    let get = async |url: String, accept: &'static str| -> Value {
        let answer = client.get(url).header(ACCEPT, accept).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    };

    let group = up.url("rest", &format!("/consumers/{topic}"));
    let v2 = "application/vnd.kafka.v2+json";
    let consumer = json!({"name": "c", "format": "json", "auto.offset.reset": "earliest"});
    let subscription = json!({"topics": [topic]});
    let instance = format!("{group}/instances/c");
    for (url, body) in [
        (group.clone(), consumer),
        (format!("{instance}/subscription"), subscription),
    ] {
        let request = client.post(url).header(CONTENT_TYPE, v2);
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success());
    }
    let mut read = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while read.len() < sent.len() && std::time::Instant::now() < deadline {
        let url = format!("{instance}/records?max_bytes=200000&timeout=1000");
        take(
            &mut read,
            &get(url, JSON_V2).await,
            |record| &record["value"],
        );
    }
    assert_eq!(read, sent);

    let clusters = get(up.url("rest", "/v3/clusters"), "application/json").await;
    let cluster = clusters["data"][0]["cluster_id"].as_str().unwrap();
    let path = format!("/v3/clusters/{cluster}/topics/{topic}/records?max_bytes=200000");
    let (mut read, mut next) = (Vec::new(), up.url("rest", &path));
    while read.len() < sent.len() && std::time::Instant::now() < deadline {
        let page = get(next, "application/json").await;
        take(&mut read, &page["data"], |record| &record["value"]["data"]);
        next = page["metadata"]["next"].as_str().unwrap().to_owned();
    }
    assert_eq!(read, sent);
}

/// Takes an answer's values, which have no more bytes than were asked for.
fn take(read: &mut Vec<String>, records: &Value, value: impl Fn(&Value) -> &Value) {
    let values = records.as_array().unwrap().iter();
    let values: Vec<String> = values
        .map(|record| value(record).as_str().unwrap().to_owned())
        .collect();
    let bytes: usize = values.iter().map(String::len).sum();
    assert!(bytes <= 200_000, "{bytes}");
    read.extend(values);
}

fn record(n: u64) -> String {
    format!(r#"{{"value":{{"type":"JSON","data":{{"n":{n}}}}}}}"#)
}

/// Sends records in one chunked body, as fast as they are taken.
fn send_stream(stream: TcpStream, path: &str, count: u64, bad: u64) {
    let host = stream.peer_addr().unwrap();
    let mut out = BufWriter::with_capacity(64 << 10, stream);
    write!(
        out,
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    for n in 0..count {
        let text = match n == bad {
            true => r#"{"value":{"type":"BINARY","data":"***"}}"#.to_owned(),
            false => record(n),
        };
        write!(out, "{:x}\r\n{text}\r\n", text.len()).unwrap();
    }
    write!(out, "0\r\n\r\n").unwrap();
    out.flush().unwrap();
}

/// Reads the receipts: offsets from 1 on without a gap, and the bad record's error in its place.
fn read_receipts(stream: TcpStream, count: u64, bad: u64) {
    let mut answer = BufReader::with_capacity(64 << 10, stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(answer.read_line(&mut head).unwrap(), 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut seen = 0;
    let mut text = Vec::new();
    let mut size = String::new();
    loop {
        size.clear();
        answer.read_line(&mut size).unwrap();
        let bytes = usize::from_str_radix(size.trim(), 16).unwrap();
        let from = text.len();
        text.resize(from + bytes + 2, 0);
        answer.read_exact(&mut text[from..]).unwrap();
        text.truncate(from + bytes);
        if bytes == 0 {
            break;
        }
        let mut taken = 0;
        while let Some(end) = text[taken..].windows(2).position(|two| two == b"\r\n") {
            let receipt: Value = serde_json::from_slice(&text[taken..taken + end]).unwrap();
            if seen == bad {
                assert_eq!(receipt["error_code"], 400, "{receipt}");
            } else {
                let offset = 1 + seen - u64::from(seen > bad);
                assert_eq!(receipt["offset"], offset, "{receipt}");
                assert_eq!(receipt["error_code"], 200, "{receipt}");
            }
            seen += 1;
            taken += end + 2;
        }
        text.drain(..taken);
    }
    assert!(text.is_empty());
    assert_eq!(seen, count);
}

/// A line of what the kernel says of the process, in bytes.
fn memory(up: &Up, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with(name)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// Has the kernel count the peak of the process's memory from now on.
fn forget_peak(up: &Up) {
    std::fs::write(format!("/proc/{}/clear_refs", up.pid()), "5").unwrap();
}
