//! A process whose memory is watched while one of its HTTP ports is sent what means harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Up;

/// The process, and the port that is sent to.
pub struct Watched {
    pub up: Up,
    role: &'static str,
    /// Sends what must always be answered well.
    probe: fn(&Watched),
    before: u64,
}

impl Watched {
    /// Watches a process from now on.
    pub fn over(up: Up, role: &'static str, probe: fn(&Watched)) -> Watched {
        let mut watched = Watched {
            up,
            role,
            probe,
            before: 0,
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

    /// Bytes of memory more than at the start.
    pub fn grown(&self) -> u64 {
        self.resident().saturating_sub(self.before)
    }

    /// Another connection is served at once, and the memory is within bounds.
    pub fn check(&self) {
        let began = Instant::now();
        self.is_served();
        assert!(began.elapsed() < Duration::from_secs(5), "others wait");
        let grown = self.grown();
        assert!(grown < GROWTH_MAX, "{} MiB more", grown >> 20);
    }

    /// Another connection is served.
    pub fn is_served(&self) {
        (self.probe)(self);
    }

    /// Posts bytes, whatever they are.
    pub fn post(&self, path: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
        let kind = format!("Content-Type: {content_type}\r\n");
        self.send("POST", path, &kind, body)
    }

    /// Sends a request with these headers, each with its line's end.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Value) {
        let mut socket = self.connect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        // It may be refused before it is whole.
        let _ = socket.write_all(body);
        answer(socket)
    }

    /// A connection of its own.
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.up.address(self.role)).unwrap();
        let wait = Some(Duration::from_secs(60));
        socket.set_read_timeout(wait).unwrap();
        socket.set_write_timeout(wait).unwrap();
        socket
    }

    /// Sends a gigabyte to `path` by its length and, four times at once, by chunks: each is answered
    /// 413 with this error code, and little of it is taken.
    pub fn refuses_a_gigabyte(&self, path: &str, content_type: &str, taken_max: u64) {
        // By its length it is refused before any of it is read.
        let mut socket = self.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Content-Type: {content_type}\r\n"
        );
        let length = format!("Content-Length: {}\r\n\r\n", 1_u64 << 30);
        socket
            .write_all((head.clone() + &length).as_bytes())
            .unwrap();
        let (status, told) = answer(socket);
        assert_eq!(
            (status, &told["error_code"]),
            (413, &Value::from(413)),
            "{told}"
        );
        self.check();
        // By chunks it is refused when it is too much; four at once hold no more than four may.
        let mut senders = Vec::new();
        for _ in 0..4 {
            let (mut socket, head) = (self.connect(), head.clone());
            senders.push(std::thread::spawn(move || {
                let head = head + "Transfer-Encoding: chunked\r\n\r\n";
                socket.write_all(head.as_bytes()).unwrap();
                let piece = [b"100000\r\n", &b" ".repeat(1 << 20)[..], b"\r\n"].concat();
                let mut sent = 0_u64;
                while sent < 1 << 30 && socket.write_all(&piece).is_ok() {
                    sent += 1 << 20;
                }
                (sent, answer(socket))
            }));
        }
        self.is_served();
        for sender in senders {
            let (sent, (status, told)) = sender.join().unwrap();
            assert_eq!(
                (status, &told["error_code"]),
                (413, &Value::from(413)),
                "{told}"
            );
            assert!(sent < taken_max, "{} MiB were taken", sent >> 20);
        }
    }
}

/// The answer on a connection that ends with it.
pub fn answer(mut socket: TcpStream) -> (u16, Value) {
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

/// What memory may grow by: as much as all bodies together may hold, and the stores' own buffers.
const GROWTH_MAX: u64 = 160 << 20;
