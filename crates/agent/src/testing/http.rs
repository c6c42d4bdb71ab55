//! An HTTP server for tests: it keeps what it saw and answers as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// Path and query, or the whole address where it came as to a proxy.
    pub(crate) target: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// From its first byte to its last.
    pub(crate) took: Duration,
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_chunked: bool,
}

/// A server; it runs as long as the test.
#[derive(Clone)]
pub(crate) struct HttpPeer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Answer {
            status,
            body: body.into(),
            ..Answer::default()
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

impl HttpPeer {
    pub(crate) fn start(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = HttpPeer {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let (seen, answer) = (Arc::clone(&peer.seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer, tls) = (Arc::clone(&seen), Arc::clone(&answer), tls.clone());
                std::thread::spawn(move || match tls {
                    None => converse(stream, &seen, answer.as_ref()),
                    Some(tls) => {
                        let session = ServerConnection::new(tls).unwrap();
                        converse(StreamOwned::new(session, stream), &seen, answer.as_ref());
                    }
                });
            }
        });
        peer
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The requests to this target.
    pub(crate) fn at(&self, target: &str) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|request| request.target == target);
        seen
    }
}

fn converse(stream: impl Read + Write, all: &Mutex<Vec<Seen>>, answer: &impl Fn(&Seen) -> Answer) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = request(&mut stream) {
        let answer = answer(&seen);
        let is_head = seen.method == "HEAD";
        all.lock().push(seen);
        let mut head = format!("HTTP/1.1 {} Told\r\n", answer.status);
        for (name, value) in &answer.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let mut body = answer.body;
        if answer.is_chunked {
            head += "transfer-encoding: chunked\r\n";
            let mut chunks = Vec::new();
            for chunk in body.chunks(10_000) {
                chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                chunks.extend_from_slice(chunk);
                chunks.extend_from_slice(b"\r\n");
            }
            chunks.extend_from_slice(b"0\r\n\r\n");
            body = chunks;
        } else {
            head += &format!("content-length: {}\r\n", body.len());
        }
        if is_head {
            body.clear();
        }
        let whole = [head.as_bytes(), b"\r\n", &body].concat();
        if stream
            .get_mut()
            .write_all(&whole)
            .and_then(|()| stream.get_mut().flush())
            .is_err()
        {
            return;
        }
    }
}

fn request(stream: &mut BufReader<impl Read>) -> Option<Seen> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let started = Instant::now();
    let mut parts = line.split_whitespace();
    let (method, target) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut seen = Seen {
        method,
        target,
        headers,
        body: Vec::new(),
        took: Duration::ZERO,
    };
    if seen.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let len = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; len + 2];
            stream.read_exact(&mut chunk).ok()?;
            if len == 0 {
                break;
            }
            seen.body.extend_from_slice(&chunk[..len]);
        }
    } else if let Some(len) = seen.header("content-length") {
        seen.body = vec![0; len.parse().ok()?];
        stream.read_exact(&mut seen.body).ok()?;
    }
    seen.took = started.elapsed();
    Some(seen)
}
