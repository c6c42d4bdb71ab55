//! The published quick starts, byte for byte by curl, on both backends.
//!
//! They are the exchange files of the REST proxy's own tests. Their answers are compared but for
//! what a backend may tell otherwise: times, settings, and who coordinates.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Up, curl, eventually, folder, repository, succeed};
use crate::kafka_broker::{Broker, PLAIN};

#[test]
fn the_quick_starts_work_on_the_store() {
    for name in NAMES {
        // Each begins with a store of its own, as its reader does.
        let dir = folder();
        let up = Up::start(&dir.path().join("data"));
        follow(&up, name);
    }
}

#[test]
fn the_quick_starts_work_on_a_kafka_cluster() {
    for name in NAMES {
        let broker = Broker::start(PLAIN, &[]);
        let dir = folder();
        let servers = format!("streams.kafka.bootstrap_servers={}", broker.address);
        let up = Up::start_with(&dir.path().join("data"), &["--set", &servers]);
        follow(&up, name);
    }
}

/// Sends a file's requests and compares the answers.
fn follow(up: &Up, name: &str) {
    let path = repository().join("crates/rest/exchanges").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let rest = up.url("rest", "");
    let clusters = curl(&[&format!("{rest}/v3/clusters")]).json();
    let cluster = clusters["data"][0]["cluster_id"].as_str().unwrap();
    let host = up.address("rest");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(order) = line.strip_prefix("! topic ") {
            let (topic, partitions) = order.split_once(' ').unwrap();
            up.cli_json(&["topics", "create", topic, "--partitions", partitions]);
        }
        let Some(line) = line.strip_prefix("> ") else {
            continue;
        };
        let mut request = vec![line];
        while let Some(more) = lines.next_if(|line| line.starts_with('>') && !begins(line)) {
            request.push(more.strip_prefix("> ").unwrap_or_default());
        }
        let mut expected = Vec::new();
        while let Some(more) = lines.next_if(|line| line.starts_with('<')) {
            let told = more.strip_prefix("< ").unwrap_or_default();
            expected.push(
                told.replace("CLUSTER", cluster)
                    .replace("proxy:8082", &host),
            );
        }
        let request: Vec<String> = request
            .iter()
            .map(|line| line.replace("CLUSTER", cluster))
            .collect();
        // The first read of a group may be over before the group has formed; people call again.
        let is_empty = |told: &[String]| told.len() == 2 && told[1] == "[]";
        let actual = eventually("records are read", || {
            let actual = send(&rest, &request);
            (is_empty(&expected) || !is_empty(&actual)).then_some(actual)
        });
        compare(name, &request[0], &expected, &actual);
    }
}

/// Sends a request by curl; answers status and media type, then the body's lines.
fn send(rest: &str, request: &[String]) -> Vec<String> {
    let (method, path) = request[0].split_once(' ').unwrap();
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60"]);
    command.args(["--write-out", "\n%{http_code} %{content_type}"]);
    command.args(["--request", method]);
    let mut rest_of = request[1..].iter();
    for header in rest_of.by_ref().take_while(|line| !line.is_empty()) {
        command.args(["--header", header]);
    }
    let body: Vec<&str> = rest_of.map(String::as_str).collect();
    if !body.is_empty() {
        command.args(["--data-binary", &body.join("\n")]);
    }
    let told = succeed(command.arg(format!("{rest}{path}")));
    let (body, head) = told.rsplit_once('\n').unwrap();
    let head = match head.trim_end() {
        head if head.contains(' ') => head.to_owned(),
        status => format!("{status} -"),
    };
    let body = body.lines().filter(|line| !line.is_empty());
    std::iter::once(head)
        .chain(body.map(str::to_owned))
        .collect()
}

fn compare(name: &str, call: &str, expected: &[String], actual: &[String]) {
    assert_eq!(expected[0], actual[0], "{name}: {call}: {actual:?}");
    assert_eq!(expected.len(), actual.len(), "{name}: {call}: {actual:?}");
    for (expected, actual) in expected[1..].iter().zip(&actual[1..]) {
        let read = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        let (expected, actual) = (read(expected), read(actual));
        assert_eq!(masked(expected), masked(actual), "{name}: {call}");
    }
}

/// The same without what backends and moments tell differently.
fn masked(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(key, _)| !OWN.contains(&&**key));
            Value::Object(fields.map(|(key, value)| (key, masked(value))).collect())
        }
        Value::Array(items) => {
            // Proxies on one cluster keep topics of their own there.
            let is_ours = |item: &Value| item.as_str().is_some_and(|it| it.starts_with("__"));
            let items = items.into_iter().filter(|item| !is_ours(item));
            Value::Array(items.map(masked).collect())
        }
        other => other,
    }
}

/// Whether a line begins a request.
fn begins(line: &str) -> bool {
    let methods = ["GET /", "POST /", "PUT /", "PATCH /", "DELETE /"];
    let line = line.strip_prefix("> ").unwrap_or_default();
    methods.iter().any(|method| line.starts_with(method))
}

const NAMES: [&str; 7] = [
    "quickstart-v1.txt",
    "quickstart-v1-schemas.txt",
    "quickstart-v2.txt",
    "quickstart-v2-schemas.txt",
    "quickstart-v3.txt",
    "quickstart-v3-schemas.txt",
    "quickstart-mapr.txt",
];

/// Fields that are not compared.
const OWN: [&str; 3] = ["timestamp", "configs", "controller"];
