//! Clients that mean harm, or know no better: what they send takes bounded memory, and another
//! connection works on meanwhile.
//!
//! `THALWEG_HOSTILE=1` makes the crowds as large as an operator may meet them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base::UnixMillis;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use streams::Record;

use crate::harness::{Up, curl, eventually, folder, post};

/// A Kafka client that sends exactly what it is told.
struct Client {
    socket: TcpStream,
}

impl Client {
    fn connect(up: &Up) -> Client {
        let socket = TcpStream::connect(up.address("streams")).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        Client { socket }
    }

    fn send(&mut self, request: &[u8]) {
        self.socket.write_all(request).unwrap();
    }

    fn answer(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut answer).unwrap();
        answer
    }

    fn call(&mut self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        self.answer()
    }

    /// Whether the other side has ended the connection.
    fn is_ended(&mut self) -> bool {
        match self.socket.read(&mut [0; 64]) {
            Ok(read) => read == 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                true
            }
        }
    }

    /// Sends as much of `bytes` as is taken; answers how many.
    fn push(&mut self, bytes: &[u8]) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                // It is held back, or was ended.
                Err(_) => break,
            }
        }
        sent
    }
}

/// A request in an inflexible version, with its length in front.
fn request(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(7_i32.to_be_bytes());
    frame.extend(text("hostile"));
    frame.extend(body);
    [
        &u32::try_from(frame.len()).unwrap().to_be_bytes()[..],
        &frame[..],
    ]
    .concat()
}

fn text(text: &str) -> Vec<u8> {
    let length = i16::try_from(text.len()).unwrap();
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

fn int(number: i32) -> [u8; 4] {
    number.to_be_bytes()
}

fn metadata_of(topics: &[&str]) -> Vec<u8> {
    let count = int(i32::try_from(topics.len()).unwrap());
    let names: Vec<u8> = topics.iter().flat_map(|topic| text(topic)).collect();
    request(3, 1, &[&count[..], &names].concat())
}

fn produce(topic: &str, batch: &[u8]) -> Vec<u8> {
    let bytes = int(i32::try_from(batch.len()).unwrap());
    let body = [
        &(-1_i16).to_be_bytes()[..], // no transaction
        &(-1_i16).to_be_bytes(),     // acks=all
        &int(30_000),
        &int(1),
        &text(topic),
        &int(1),
        &int(0),
        &bytes,
        batch,
    ];
    request(0, 3, &body.concat())
}

fn fetch(topic: &str, max_bytes: i32) -> Vec<u8> {
    let body = [
        &int(-1)[..],
        &int(0), // no wait
        &int(1),
        &int(max_bytes),
        &[0],
        &int(1),
        &text(topic),
        &int(1),
        &int(0),
        &0_i64.to_be_bytes(),
        &int(max_bytes),
    ];
    request(1, 4, &body.concat())
}

fn batch(bytes: usize) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_millis()).unwrap();
    let record = Record::of_value("x".repeat(bytes));
    let batch = streams::batch::build(&[record], UnixMillis(now), None);
    batch.unwrap().to_vec()
}

/// A process, one of its clients that behaves, and the memory that it had before.
struct Watched {
    up: Up,
    witness: Client,
    before: u64,
    _dir: tempfile::TempDir,
}

impl Watched {
    fn start(partitions: u32) -> Watched {
        // The crowds need more than the usual 1,024.
        let mut handles = getrlimit(Resource::Nofile);
        handles.current = handles.maximum;
        setrlimit(Resource::Nofile, handles).unwrap();
        let dir = folder();
        let up = Up::start(&dir.path().join("data"));
        let spec = json!({"name": "t", "partitions": partitions}).to_string();
        let made = post(
            &up.url("fleet", "/api/v1/topics"),
            "application/json",
            &spec,
        );
        assert_eq!(made.status, 201, "{}", made.body);
        let mut witness = Client::connect(&up);
        witness.call(&produce("t", &batch(10)));
        let before = resident(&up);
        Watched {
            up,
            witness,
            before,
            _dir: dir,
        }
    }

    /// The witness is answered, and the memory is within `bytes` of what it was.
    fn check(&mut self, bytes: u64) {
        let answer = self.witness.call(&metadata_of(&[]));
        assert_eq!(answer[..4], int(7));
        let answer = self.witness.call(&produce("t", &batch(1_000)));
        let code = answer.len() - 4 - 8 - 8 - 2;
        assert_eq!(answer[code..code + 2], [0, 0], "the produce was refused");
        let resident = resident(&self.up);
        assert!(
            resident < self.before + bytes,
            "{} MiB resident, {} before",
            resident >> 20,
            self.before >> 20
        );
    }
}

fn resident(up: &Up) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

fn crowd(usual: usize, heavy: usize) -> usize {
    match std::env::var_os("THALWEG_HOSTILE") {
        Some(_) => heavy,
        None => usual,
    }
}

#[test]
fn lengths_that_cannot_be_true_end_only_their_own_connection() {
    let mut watched = Watched::start(1);
    let lengths = [-1, i32::MIN, i32::MAX, (100 << 20) + 1].map(|n| int(n).to_vec());
    let counts = [i32::MAX, i32::MIN, -2].map(|n| request(3, 1, &int(n)));
    let texts = [i16::MAX, i16::MIN].map(|n| request(8, 2, &n.to_be_bytes()));
    // A compact count of 2^32-1 topics, and a number without an end.
    let compact = [
        request(3, 9, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        request(3, 9, &[0xff; 9]),
    ];
    for hostile in lengths.iter().chain(&counts).chain(&texts).chain(&compact) {
        let mut client = Client::connect(&watched.up);
        client.send(hostile);
        assert!(client.is_ended(), "{hostile:?} was taken");
    }
    watched.check(32 << 20);
}

#[test]
fn requests_that_never_come_whole_hold_a_bounded_part_of_the_memory() {
    let mut watched = Watched::start(1);
    let announced = int((100 << 20) - 1);
    let piece = vec![0; 1 << 20];
    let mut clients: Vec<Client> = Vec::new();
    let mut sent = 0;
    for _ in 0..crowd(60, 200) {
        let mut client = Client::connect(&watched.up);
        client.send(&announced);
        clients.push(client);
    }
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until && sent < 1 << 30 {
        for client in &mut clients {
            sent += client.push(&piece);
        }
        watched.check(400 << 20);
    }
    assert!(sent > 100 << 20, "only {sent} bytes were taken");
    drop(clients);
    watched.check(400 << 20);
}

#[test]
fn idle_half_open_and_slow_connections_cost_next_to_nothing() {
    let mut watched = Watched::start(1);
    let count = crowd(1_500, 9_000);
    let request = metadata_of(&["t"]);
    let mut clients: Vec<Client> = Vec::new();
    for nth in 0..count {
        let mut client = Client::connect(&watched.up);
        // A third stays silent, a third sends a part, a third does so byte by byte.
        match nth % 3 {
            0 => {}
            1 => client.send(&request[..request.len() / 2]),
            _ => client.send(&request[..1]),
        }
        clients.push(client);
    }
    for byte in 1..request.len() {
        for client in clients.iter_mut().skip(2).step_by(3) {
            client.send(&request[byte..=byte]);
        }
    }
    watched.check(16 * 1024 * count as u64 + (32 << 20));
    for client in clients.iter_mut().skip(2).step_by(3) {
        assert_eq!(client.answer()[..4], int(7), "whoever is slow is served");
    }
}

#[test]
fn answers_that_nobody_reads_hold_a_bounded_part_of_the_memory() {
    let mut watched = Watched::start(20_000);
    let all = metadata_of(&["t"]);
    // Named a thousand times it is told once.
    let mut client = Client::connect(&watched.up);
    let once = client.call(&all).len();
    assert!(once > 20_000 * 20, "{once} bytes tell 20,000 partitions");
    assert_eq!(client.call(&metadata_of(&vec!["t"; 100_000])).len(), once);
    let pipelined = all.repeat(100);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..crowd(60, 400) {
        let mut client = Client::connect(&watched.up);
        client.push(&pipelined);
        clients.push(client);
    }
    watched.check(450 << 20);
    drop(clients);
    watched.check(450 << 20);
}

#[test]
fn fetching_everything_without_reading_holds_a_bounded_part_of_the_memory() {
    let mut watched = Watched::start(1);
    let large = produce("t", &batch(1_000_000));
    let mut client = Client::connect(&watched.up);
    for _ in 0..40 {
        client.call(&large);
    }
    let greedy = fetch("t", i32::MAX).repeat(20);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..crowd(40, 300) {
        let mut client = Client::connect(&watched.up);
        client.push(&greedy);
        clients.push(client);
    }
    watched.check(600 << 20);
    drop(clients);
    // Nothing of it stays, and a client that reads gets everything.
    let fetched = client.call(&fetch("t", 50 << 20)).len();
    assert!(fetched > 40_000_000, "{fetched} bytes were fetched");
}

#[test]
fn http_heads_and_bodies_without_end_are_refused() {
    let watched = &mut Watched::start(1);
    let address = watched.up.address("rest");
    let connect = || TcpStream::connect(&address).unwrap();
    // Heads that never end, a few bytes each: the others are served meanwhile.
    let mut slow: Vec<TcpStream> = (0..crowd(300, 5_000)).map(|_| connect()).collect();
    for socket in &mut slow {
        socket
            .write_all(b"POST /topics/t HTTP/1.1\r\nHost: x\r\nX-")
            .unwrap();
    }
    let topics = curl(&[&watched.up.url("rest", "/topics")]);
    assert_eq!(topics.status, 200);
    // A head and a body without end: written until the other side has had enough.
    let heads = [
        "GET /topics HTTP/1.1\r\nHost: x\r\nX-Long: ",
        "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.kafka.json.v2+json\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    ];
    let chunk = [&b"10000\r\n"[..], &[b'['; 0x10000], b"\r\n"].concat();
    for (head, piece) in heads.into_iter().zip([&[b'a'; 0x10000][..], &chunk]) {
        let mut socket = connect();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        let mut sent = 0_usize;
        while sent < 1 << 30 && socket.write_all(piece).is_ok() {
            sent += piece.len();
        }
        assert!(sent < 200 << 20, "{sent} bytes were taken");
    }
    watched.check(256 << 20);
}

#[test]
fn mqtt_packets_that_never_come_whole_are_bounded() {
    let mut watched = Watched::start(1);
    let connect = || TcpStream::connect(watched.up.address("mqtt")).unwrap();
    let mut halves: Vec<TcpStream> = (0..crowd(300, 3_000)).map(|_| connect()).collect();
    for socket in &mut halves {
        socket.write_all(b"\x10\x0d\0\x04MQ").unwrap();
    }
    // A CONNECT of 268 MB is refused by its announcement.
    let mut huge = connect();
    huge.set_read_timeout(Some(DEADLINE)).unwrap();
    huge.write_all(b"\x10\xff\xff\xff\x7f\0\x04MQTT\x04")
        .unwrap();
    let read = huge.read(&mut [0; 16]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    eventually("the others are served", || {
        let up = &watched.up;
        let health = curl(&[&up.url("fleet", "/health")]);
        (health.status == 200).then_some(())
    });
    watched.check(64 << 20);
}

/// How long an answer may take: the machine is shared.
const DEADLINE: Duration = Duration::from_secs(60);
