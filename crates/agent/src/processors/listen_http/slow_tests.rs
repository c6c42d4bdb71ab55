//! Clients that are slow, each in its way, beside others that are not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::inlet::InletSettings;
use super::tests::wait_for_port;
use super::{ListenHttp, Processor};
use crate::definition::Flow;
use crate::engine::{Engine, Prepared, trigger};
use crate::net::http_bounds::HttpBounds;
use crate::testing::{free_port, ground, runtime, wait_until};

/// A listener that is triggered again and again, and the queue behind it.
struct Listener {
    port: u16,
    engine: Engine,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

impl Listener {
    fn start(bounds: HttpBounds) -> Listener {
        let (dir, runtime, port) = (tempfile::tempdir().unwrap(), runtime(), free_port());
        let ground = ground(dir.path(), &runtime);
        let flow = Flow::parse(FLOW).unwrap_or_else(|problems| panic!("{problems}"));
        let prepared = Prepared::new(ground.clock.now(), flow).unwrap();
        let (engine, mut workers) = Engine::assemble(ground, prepared);
        let context = workers.remove(0).context;
        let mut listen = ListenHttp {
            port,
            tls: None,
            settings: InletSettings {
                base: "/in".to_owned(),
                authorized: None,
                headers: None,
                bounds,
            },
            batch: 5,
            buffer: 64,
            running: None,
        };
        let is_over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                trigger(&context, &mut listen).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            listen.stop();
        });
        wait_for_port(port);
        Listener {
            port,
            engine,
            is_over,
            thread: Some(thread),
            _runtime: runtime,
            _dir: dir,
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// Sends this, of a request of its own or of a part of one.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// Sends a small request and waits for its answer's first line.
    fn post(&self) -> String {
        first_line(&mut self.send(&post(2, b"ok")))
    }

    /// FlowFiles behind it, and their bytes.
    fn kept(&self) -> (u64, u64) {
        let queue = &self.engine.queues()[0];
        (queue.flow_files, queue.bytes)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A request that announces `len` bytes and begins with these.
fn post(len: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("POST /in HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn first_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap_or(0) == 1 && byte[0] != b'\r' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn has_ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_err() || rest.is_empty()
}

#[test]
fn who_waits_for_a_request_gives_way_the_longest_first() {
    let listener = Listener::start(HttpBounds {
        connections_max: 2,
        ..HttpBounds::default()
    });
    let mut silent = listener.connect();
    let mut begun = listener.send(b"POST /in HTTP/1.1\r\nho");
    assert_eq!(listener.post(), OK);
    assert!(has_ended(&mut silent));
    // Of a request whose body is on its way nobody takes the place.
    let mut under_way = listener.send(&post(4, b"sl"));
    let mut lasting = listener.send(&post(2, b"ok"));
    assert_eq!(first_line(&mut lasting), OK);
    assert!(has_ended(&mut begun));
    assert_eq!(listener.post(), OK);
    under_way.write_all(b"ow").unwrap();
    assert_eq!(first_line(&mut under_way), OK);
    assert_eq!(listener.kept(), (4, 10));
}

#[test]
fn a_header_is_not_waited_for_long() {
    let listener = Listener::start(HttpBounds {
        header_wait: SHORT,
        ..HttpBounds::default()
    });
    for begins in ["", "POST /in HTTP/1.1\r\nho"] {
        let mut stream = listener.send(begins.as_bytes());
        let line = first_line(&mut stream);
        assert!(line.is_empty() || line.contains("408"), "{line}");
    }
    assert_eq!(listener.post(), OK);
}

#[test]
fn a_body_that_stops_or_drips_is_not_waited_for() {
    let listener = Listener::start(HttpBounds {
        body_wait: SHORT,
        body_bytes_per_second_min: 1 << 20,
        ..HttpBounds::default()
    });
    let begin = vec![b'x'; 150_000];
    for begins in [&begin[..10], &begin] {
        let mut stops = listener.send(&post(300_000, begins));
        assert_eq!(first_line(&mut stops), "HTTP/1.1 408 Request Timeout");
    }
    let mut drips = listener.send(&post(300_000, b"x"));
    let mut dripping = drips.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while dripping.write_all(b"x").is_ok() {
            std::thread::sleep(SHORT / 10);
        }
    });
    assert_eq!(first_line(&mut drips), "HTTP/1.1 408 Request Timeout");
    drop(drips);
    drip.join().unwrap();
    assert_eq!(listener.post(), OK);
    assert_eq!(listener.kept(), (1, 2));
}

#[test]
fn large_bodies_under_way_hold_nobody_up() {
    let listener = Listener::start(HttpBounds::default());
    let bytes = vec![b'x'; 3 << 20];
    let half = bytes.len() / 2;
    let mut slow: Vec<TcpStream> = (0..12)
        .map(|_| listener.send(&post(bytes.len(), &bytes[..half])))
        .collect();
    assert_eq!(listener.post(), OK);
    assert_eq!(listener.kept(), (1, 2));
    drop(slow.pop());
    for stream in &mut slow {
        stream.write_all(&bytes[half..]).unwrap();
        assert_eq!(first_line(stream), OK);
    }
    assert_eq!(listener.kept(), (12, 11 * bytes.len() as u64 + 2));
}

#[test]
fn what_is_too_large_is_answered_413_announced_or_not() {
    let listener = Listener::start(HttpBounds {
        body_bytes_max: 100_000,
        ..HttpBounds::default()
    });
    let mut announced = listener.send(&post(100_001, b""));
    assert_eq!(first_line(&mut announced), "HTTP/1.1 413 Payload Too Large");
    let head = "POST /in HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n186A1\r\n";
    let mut chunked = listener.send(&[head.as_bytes(), &vec![b'x'; 100_001]].concat());
    assert_eq!(first_line(&mut chunked), "HTTP/1.1 413 Payload Too Large");
    let mut most = listener.send(&post(100_000, &vec![b'x'; 100_000]));
    assert_eq!(first_line(&mut most), OK);
    wait_until("only that is kept", || listener.kept() == (1, 100_000));
}

const OK: &str = "HTTP/1.1 200 OK";

/// A wait that is over in no time.
const SHORT: Duration = Duration::from_millis(100);

const FLOW: &str = "
MiNiFi Config Version: 3
Flow Controller: {name: slow}
Processors:
- {name: listen, id: listen, class: ListenHTTP}
- {name: log, id: log, class: LogAttribute, auto-terminated relationships list: [success]}
Connections:
- {id: q, source name: listen, source relationship name: success, destination name: log}
";
