//! Statements over bridges, a control broker and two nodes in processes of their own: desired
//! state, where one is cut off while it changes and converges when it is back (signed with OpenSSL,
//! as an operator would), and a load of which both take their part.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{Up, eventually, folder, post, succeed};

/// A way to an address that can be cut: links end, and new ones are not let through.
#[derive(Clone)]
struct Way {
    address: String,
    links: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Way {
    fn to(address: String) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Way {
            address: listener.local_addr().unwrap().to_string(),
            links: Arc::new(Mutex::new(Some(Vec::new()))),
        };
        let links = Arc::clone(&way.links);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, mut links) = (near.unwrap(), links.lock().unwrap());
                let Some(links) = links.as_mut() else {
                    continue;
                };
                let far = TcpStream::connect(&address).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || carry(from, to));
                }
                links.extend([near, far]);
            }
        });
        way
    }

    fn cut(&self) {
        for link in self.links.lock().unwrap().take().unwrap() {
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        *self.links.lock().unwrap() = Some(Vec::new());
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 4_096];
    while let Ok(read) = from.read(&mut piece)
        && read > 0
        && to.write_all(&piece[..read]).is_ok()
    {}
    let _ = to.shutdown(Shutdown::Both);
}

/// An operator's key and what it signs.
struct Key<'a>(&'a Path);

impl Key<'_> {
    fn openssl(&self, arguments: &[&str]) -> String {
        succeed(Command::new("openssl").current_dir(self.0).args(arguments))
    }

    fn base64(&self, file: &str) -> String {
        self.openssl(&["base64", "-A", "-in", file])
    }

    fn make(&self) -> String {
        self.openssl(&["genpkey", "-algorithm", "ed25519", "-out", "key.pem"]);
        self.openssl(&[
            "pkey", "-in", "key.pem", "-pubout", "-outform", "DER", "-out", "key.der",
        ]);
        self.base64("key.der").trim().to_owned()
    }

    fn signed(&self, topic: &str, payload: &str) -> Value {
        std::fs::write(self.0.join("payload"), payload).unwrap();
        std::fs::write(self.0.join("signed"), format!("{topic}\n{payload}")).unwrap();
        self.openssl(&[
            "pkeyutl",
            "-sign",
            "-inkey",
            "key.pem",
            "-rawin",
            "-in",
            "signed",
            "-out",
            "signature",
        ]);
        json!({"key": "ops", "payload": self.base64("payload").trim(),
            "signature": self.base64("signature").trim()})
    }
}

fn say(up: &Up, topic: &str, message: &Value) {
    let body = json!({"topic": topic, "text": message.to_string(), "qos": 1, "retain": true});
    let url = up.url("management", "/api/v1/mqtt/publish");
    let said = post(&url, "application/json", &body.to_string());
    assert!(said.status < 300, "{}", said.body);
}

/// What runs as `desired.hot`.
fn running(node: &Up) -> Option<String> {
    let statements = node.get("/api/v1/statements");
    let mut all = statements["statements"].as_array().unwrap().iter();
    let found = all.find(|statement| statement["name"] == "desired.hot")?;
    Some(found["text"].as_str().unwrap().to_owned())
}

#[test]
fn a_node_that_was_cut_off_converges_when_it_is_back() {
    let dir = folder();
    let key = Key(dir.path());
    let public = format!("fusion.control.keys.ops={}", key.make());
    let control = Up::start(&dir.path().join("control"));
    let ways = [0; 2].map(|_| Way::to(control.address("mqtt")));
    let nodes: Vec<Up> = ["a", "b"]
        .into_iter()
        .zip(&ways)
        .map(|(name, way)| {
            let id = format!("fusion.node.id={name}");
            let set = ["--set", &public, "--set", &id];
            let node = Up::start_with(&dir.path().join(name), &set);
            let bridge = json!({"name": "control", "address": format!("mqtt://{}", way.address),
                "keep_alive": "5s", "topics": [
                    {"filter": "thalweg/desired/#", "direction": "in", "qos": 1},
                    {"filter": "thalweg/answers/#", "direction": "out", "qos": 1},
                    {"filter": "thalweg/audit/#", "direction": "out", "qos": 1}]});
            let url = node.url("management", "/api/v1/mqtt/bridges");
            let added = post(&url, "application/json", &bridge.to_string());
            assert!(added.status < 300, "{}", added.body);
            node
        })
        .collect();
    let desire = |generation: u64, text: Option<&str>| {
        let statement = text.map(|text| json!({"text": text}));
        let desired = json!({"name": "hot", "generation": generation, "statement": statement});
        let topic = "thalweg/desired/hot";
        say(&control, topic, &key.signed(topic, &desired.to_string()));
    };
    let text = |number: u64| format!("SELECT v + {number} AS v FROM mqtt.\"in\"");
    let runs = |node: &Up, wanted: Option<&str>| {
        eventually(&format!("the node runs {wanted:?}"), || {
            (running(node).as_deref() == wanted).then_some(())
        });
    };

    // One message, and both run it.
    desire(1, Some(&text(1)));
    nodes.iter().for_each(|node| runs(node, Some(&text(1))));

    // What is not signed by the key changes nothing, and is told.
    let forged = json!({"name": "hot", "generation": 9, "statement": null});
    let topic = "thalweg/desired/hot";
    let audit = dir.path().join("audit");
    let mut hear = Command::new("mosquitto_sub");
    hear.args([
        "-p",
        &control.port("mqtt"),
        "-i",
        "auditor",
        "-t",
        "thalweg/audit/+",
        "-v",
    ]);
    let _hearing = crate::harness::Running::start(&mut hear, &audit);
    eventually("somebody hears the audit", || {
        let clients = control.get("/api/v1/mqtt/clients");
        let mut all = clients["clients"].as_array()?.iter();
        let auditor = all.find(|client| client["client_id"] == "auditor")?;
        (auditor["subscriptions"] == 1).then_some(())
    });
    say(&control, topic, &forged);
    eventually("both refuse it", || {
        let told = std::fs::read_to_string(&audit).unwrap_or_default();
        let by = |node: &str| told.contains(&format!("thalweg/audit/{node} "));
        (by("a") && by("b") && told.contains("not signed")).then_some(())
    });
    nodes.iter().for_each(|node| runs(node, Some(&text(1))));

    // One is cut off over two changes: the other goes on, and it catches up with the last alone.
    ways[1].cut();
    desire(2, Some(&text(2)));
    desire(3, Some(&text(3)));
    runs(&nodes[0], Some(&text(3)));
    assert_eq!(running(&nodes[1]).as_deref(), Some(&*text(1)));
    ways[1].mend();
    runs(&nodes[1], Some(&text(3)));

    // And so it does when what ran is not wanted any more.
    ways[0].cut();
    desire(4, None);
    runs(&nodes[1], None);
    assert_eq!(running(&nodes[0]).as_deref(), Some(&*text(3)));
    ways[0].mend();
    runs(&nodes[0], None);
}

/// A client's messages, one a line, each acknowledged.
fn publish_lines(up: &Up, topic: &str, lines: &str) {
    let port = up.port("mqtt");
    let mut publish = Command::new("mosquitto_pub");
    publish.args(["-p", &port, "-t", topic, "-q", "1", "-l"]);
    let mut child = publish.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn nodes_part_a_load_by_a_shared_subscription_and_a_further_layer_sums_it() {
    let dir = folder();
    let control = Up::start(&dir.path().join("control"));
    let bridge = json!({"name": "control", "address": format!("mqtt://{}", control.address("mqtt")),
        "topics": [{"filter": "load/#", "direction": "in", "qos": 1, "share": "g"},
            {"filter": "part/#", "direction": "out", "qos": 1}]});
    let nodes = ["a", "b"].map(|name| {
        let node = Up::start(&dir.path().join(name));
        let url = node.url("management", "/api/v1/mqtt/bridges");
        let added = post(&url, "application/json", &bridge.to_string());
        assert!(added.status < 300, "{}", added.body);
        let count = format!(
            "INSERT INTO mqtt.\"part/{name}\" SELECT count(*) AS n, sum(v) AS s FROM \
             TUMBLE(mqtt.\"load/+\", INTERVAL '200 milliseconds')"
        );
        node.cli_json(&["statements", "add", "--name", "count", &count]);
        node
    });
    for (name, text) in [
        (
            "totals",
            "create table Totals (k string primary key, n long, s long)",
        ),
        (
            "sum",
            "on \"part/+\" as e merge Totals as t where t.k = e._topic when matched then update set \
             n = t.n + e.n, s = t.s + e.s when not matched then insert select e._topic as k, e.n as n, \
             e.s as s",
        ),
    ] {
        control.cli_json(&[
            "statements",
            "add",
            "--name",
            name,
            "--language",
            "epl",
            text,
        ]);
    }
    eventually("both nodes have subscribed", || {
        let clients = control.get("/api/v1/mqtt/clients");
        let all = clients["clients"].as_array()?.iter();
        (all.filter(|client| client["subscriptions"] == 1).count() == 2).then_some(())
    });
    let count = 2_000_u64;
    let lines: String = (0..count).map(|v| format!("{{\"v\":{v}}}\n")).collect();
    publish_lines(&control, "load/x", &lines);
    let told = eventually("the sums of both parts are there", || {
        let query = json!({"text": "select k, n, s from Totals"}).to_string();
        let url = control.url("management", "/api/v1/statements/query");
        let answer = post(&url, "application/json", &query).json();
        let rows = answer["rows"].as_array()?.clone();
        let sum = |column: &str| {
            rows.iter()
                .filter_map(|row| row[column].as_u64())
                .sum::<u64>()
        };
        assert!(sum("n") <= count, "{rows:?}");
        ((sum("n"), sum("s")) == (count, count * (count - 1) / 2)).then_some(rows)
    });
    assert_eq!(told.len(), 2, "each node had a part: {told:?}");
    drop(nodes);
}
