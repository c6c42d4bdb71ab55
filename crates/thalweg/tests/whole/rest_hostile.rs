//! Bodies that mean harm to the REST proxy: each gets its documented error, memory stays within
//! bounds, and another connection is served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Up, folder, post};

/// What memory may grow by: as much as all bodies together may hold, and the store's own buffers.
const GROWTH_MAX: u64 = 160 << 20;

struct Watched {
    up: Up,
    before: u64,
    _dir: tempfile::TempDir,
}

impl Watched {
    fn start() -> Watched {
        let dir = folder();
        let up = Up::start(&dir.path().join("data"));
        up.cli_json(&["topics", "create", "t"]);
        let mut watched = Watched {
            up,
            before: 0,
            _dir: dir,
        };
        watched.is_served();
        watched.before = watched.resident();
        watched
    }

    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.up.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Another connection is served at once, and the memory is within bounds.
    fn check(&self) {
        let began = Instant::now();
        self.is_served();
        assert!(began.elapsed() < Duration::from_secs(5), "others wait");
        let grown = self.resident().saturating_sub(self.before);
        assert!(grown < GROWTH_MAX, "{} MiB more", grown >> 20);
    }

    fn is_served(&self) {
        let answer = self.post(
            "/topics/t",
            JSON_V2,
            r#"{"records":[{"value":1}]}"#.as_bytes(),
        );
        assert_eq!(answer.0, 200, "{}", answer.1);
    }

    /// Posts bytes, whatever they are.
    fn post(&self, path: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
        let mut socket = self.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        // It may be refused before it is whole.
        let _ = socket.write_all(body);
        answer(socket)
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.up.address("rest")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        socket
            .set_write_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        socket
    }

    fn refused(&self, path: &str, content_type: &str, body: &[u8], code: u64) {
        let (status, told) = self.post(path, content_type, body);
        assert_eq!(told["error_code"], code, "{status} {told}");
        assert!(told["message"].is_string(), "{told}");
        self.check();
    }
}

/// The answer on a connection that ends with it.
fn answer(mut socket: TcpStream) -> (u16, Value) {
    let mut text = Vec::new();
    // Who sent too much may find the connection reset behind the answer.
    let _ = socket.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let json = body.find('{').zip(body.rfind('}'));
    let json = json.map(|(from, to)| serde_json::from_str(&body[from..=to]).unwrap());
    (status, json.unwrap_or(Value::Null))
}

#[test]
fn hostile_bodies_get_their_error_and_hold_up_nobody() {
    let watched = Watched::start();
    let nested =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    for deep in [nested("[", "]"), nested("{\"a\":", "}")] {
        // As a body it does not fit; as a value it is a value, and comes back as it went.
        watched.refused("/topics/t", JSON_V2, deep.as_bytes(), 422);
        let body = format!("{{\"records\":[{{\"value\":{deep}}}]}}");
        let (status, told) = watched.post("/topics/t", JSON_V2, body.as_bytes());
        assert_eq!(
            (status, &told["offsets"][0]["error"]),
            (200, &Value::Null),
            "{told}"
        );
        watched.check();
        let body = format!("{{\"records\":[{{\"value\":1}}],\"key_schema\":{deep}}}");
        let (_, told) = watched.post("/topics/t", JSON_V2, body.as_bytes());
        assert!(told.is_object(), "no answer");
        watched.check();
        let body = format!("{{\"name\":{deep}}}");
        watched.refused("/consumers/g", V2, body.as_bytes(), 422);
    }
    let bad_text = b"{\"records\":[{\"value\":\"\xc3\x28\"}]}";
    watched.refused("/topics/t", JSON_V2, bad_text, 422);
    watched.refused("/topics/t", JSON_V2, b"{\"records\":[{\"value\":1}", 422);
    let binary = "application/vnd.kafka.binary.v2+json";
    for data in ["***", "YQ===", "a", "YWJj\u{e4}"] {
        let body = json!({"records": [{"value": data}]}).to_string();
        watched.refused("/topics/t", binary, body.as_bytes(), 422);
    }
    // Half of a large value is fine, and the other half is not base64.
    let mut long = STANDARD.encode(vec![7; 4 << 20]);
    long.push('!');
    let body = json!({"records": [{"value": long}]}).to_string();
    watched.refused("/topics/t", binary, body.as_bytes(), 422);
    let many = format!("{{\"records\":[{}{{}}]}}", "{},".repeat(2_000_000));
    watched.refused("/topics/t", JSON_V2, many.as_bytes(), 422);
}

#[test]
fn a_gigabyte_is_413_by_length_and_by_chunks() {
    let watched = Watched::start();
    let cluster = post(
        &watched.up.url("rest", "/topics/t"),
        JSON_V2,
        r#"{"records":[{"value":1}]}"#,
    );
    assert_eq!(cluster.status, 200, "{}", cluster.body);
    // By its length it is refused before any of it is read.
    let mut socket = watched.connect();
    let head = format!(
        "POST /topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Type: {JSON_V2}\r\nContent-Length: {}\r\n\r\n",
        1_u64 << 30
    );
    socket.write_all(head.as_bytes()).unwrap();
    let (status, told) = answer(socket);
    assert_eq!((status, &told["error_code"]), (413, &json!(413)), "{told}");
    watched.check();
    // By chunks it is refused when it is too much; four at once hold no more than four may.
    let mut senders = Vec::new();
    for _ in 0..4 {
        let mut socket = watched.connect();
        senders.push(std::thread::spawn(move || {
            let head = format!(
                "POST /topics/t HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
                 Content-Type: {JSON_V2}\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            socket.write_all(head.as_bytes()).unwrap();
            let piece = [b"100000\r\n", &b" ".repeat(1 << 20)[..], b"\r\n"].concat();
            let mut sent = 0_u64;
            while sent < 1 << 30 && socket.write_all(&piece).is_ok() {
                sent += 1 << 20;
            }
            (sent, answer(socket))
        }));
    }
    watched.is_served();
    for sender in senders {
        let (sent, (status, told)) = sender.join().unwrap();
        assert_eq!((status, &told["error_code"]), (413, &json!(413)), "{told}");
        assert!(sent < 128 << 20, "{} MiB were taken", sent >> 20);
    }
    let grown = watched.resident().saturating_sub(watched.before);
    assert!(grown < 300 << 20, "{} MiB more", grown >> 20);
}

const JSON_V2: &str = "application/vnd.kafka.json.v2+json";
const V2: &str = "application/vnd.kafka.v2+json";
