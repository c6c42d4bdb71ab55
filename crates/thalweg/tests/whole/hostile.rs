//! Clients that mean harm, or know no better: what they send takes bounded memory, and another
//! connection works on meanwhile.
//!
//! `THALWEG_HOSTILE=1` makes the crowds as large as an operator may meet them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
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
        Client::connect_to(&up.address("streams"))
    }

    fn connect_to(address: &str) -> Client {
        let socket = TcpStream::connect(address).unwrap();
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

    /// Whether a call on this connection is answered at all.
    fn is_served(&mut self) -> bool {
        let request = metadata_of(&["t"]);
        let sent = self.socket.write_all(&request);
        sent.is_ok() && matches!(self.socket.read(&mut [0; 64]), Ok(read) if read > 0)
    }

    /// Sends `requests`, many at a time, and reads all answers; each is a whole frame.
    fn call_all(&mut self, requests: impl Iterator<Item = Vec<u8>>) {
        let requests: Vec<Vec<u8>> = requests.collect();
        for requests in requests.chunks(200) {
            self.send(&requests.concat());
            for _ in requests {
                self.answer();
            }
        }
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

/// A member with a large description of itself joins a group of its own.
fn join_group(nth: usize) -> Vec<u8> {
    let metadata = vec![b'm'; 10_000];
    let body = [
        &text(&format!("joined-{nth}"))[..],
        &int(300_000), // session time-out
        &int(300_000), // rebalance time-out
        &text(""),
        &text("consumer"),
        &int(1),
        &text("range"),
        &int(10_000),
        &metadata,
    ];
    request(11, 2, &body.concat())
}

fn init_producer_id(nth: usize) -> Vec<u8> {
    let id = text(&format!("transactional-{nth}"));
    request(22, 0, &[&id[..], &int(60_000)].concat())
}

fn commit_offset(nth: usize) -> Vec<u8> {
    let body = [
        &text(&format!("committed-{nth}"))[..],
        &int(-1),
        &text(""),
        &(-1_i64).to_be_bytes(),
        &int(1),
        &text("t"),
        &int(1),
        &int(0),
        &7_i64.to_be_bytes(),
        &text(&"m".repeat(1_000)),
    ];
    request(8, 2, &body.concat())
}

fn create_topic(nth: usize) -> Vec<u8> {
    let body = [
        &int(1)[..],
        &text(&format!("created-{nth}")),
        &int(1),
        &1_i16.to_be_bytes(),
        &int(0),
        &int(0),
        &int(60_000),
        &[0],
    ];
    request(19, 2, &body.concat())
}

/// A batch of one record that unpacks to `mib` MiB of zeros.
fn bomb(mib: u64) -> Vec<u8> {
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "-c"]);
    let mut gzip = gzip
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut zeros = gzip.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        std::io::copy(&mut std::io::repeat(0).take(mib << 20), &mut zeros).unwrap();
    });
    let packed = gzip.wait_with_output().unwrap().stdout;
    feeding.join().unwrap();
    let mut bomb = batch(1);
    bomb.truncate(RECORDS_AT);
    bomb.extend(packed);
    let length = int(i32::try_from(bomb.len() - LENGTH_END).unwrap());
    bomb[LENGTH_END - 4..LENGTH_END].copy_from_slice(&length);
    bomb[ATTRIBUTES_AT + 1] = GZIP;
    let crc = crc32c::crc32c(&bomb[ATTRIBUTES_AT..]);
    bomb[ATTRIBUTES_AT - 4..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
    bomb
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
fn who_tries_for_ever_pushes_nothing_out_of_the_log() {
    let dir = folder();
    let up = Up::start(dir.path());
    for _ in 0..300 {
        let mut client = Client::connect(&up);
        client.send(&int(-1));
        assert!(client.is_ended());
    }
    let log = std::fs::read_to_string(up.inside("thalweg.log")).unwrap();
    let told = log.matches("Kafka connection closed").count();
    // A minute may have ended between.
    assert!((60..=120).contains(&told), "{told} lines");
    let metrics = curl(&[&up.url("management", "/metrics")]).body;
    let counted = "thalweg_streams_kafka_refused_requests_total 300";
    assert!(metrics.contains(counted), "{metrics}");
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
    watched.check(8 * 1024 * count as u64 + (24 << 20));
    for client in clients.iter_mut().skip(2).step_by(3) {
        assert_eq!(client.answer()[..4], int(7), "whoever is slow is served");
    }
}

#[test]
fn ten_thousand_idle_connections_keep_nobody_out() {
    let mut watched = Watched::start(1);
    // Where the system gives less handles than that, as many as it gives: they only sit there.
    let handles = usize::try_from(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX));
    let count = handles
        .unwrap_or(usize::MAX)
        .saturating_sub(1_000)
        .min(10_000);
    let address = watched.up.address("streams");
    let bytes = 16 * 1024 * count as u64 + (32 << 20);
    let mut crowd = Vec::with_capacity(count);
    while crowd.len() < count {
        crowd.extend((0..250).map(|_| Client::connect_to(&address)));
        // The witness is at work all the while: one that sits there too may have to go.
        watched.check(bytes);
    }
    eventually("a newcomer is served", || {
        watched.check(bytes);
        Client::connect_to(&address).is_served().then_some(())
    });
    watched.check(bytes);
    drop(crowd);
}

#[test]
fn what_unpacks_to_very_much_fails_for_its_reader_alone() {
    let mut watched = Watched::start(1);
    let mut client = Client::connect(&watched.up);
    // 600 MiB in 600 KB; the store keeps it as it came, since nobody has asked for what is in it.
    client.call(&produce("t", &bomb(600)));
    client.call(&produce("t", &batch(100)));
    let rest = watched.up.url("rest", "");
    let v2 = "application/vnd.kafka.v2+json";
    let instance = json!({"name": "c", "format": "binary", "auto.offset.reset": "earliest"});
    let made = post(&format!("{rest}/consumers/g"), v2, &instance.to_string());
    let uri = made.json()["base_uri"].as_str().unwrap().to_owned();
    let topics = r#"{"topics":["t"]}"#;
    post(&format!("{uri}/subscription"), v2, topics);
    let accept = "Accept: application/vnd.kafka.binary.v2+json";
    let mut offsets = Vec::new();
    eventually("what follows it is read", || {
        let url = format!("{uri}/records?timeout=5000");
        let read = curl(&["--header", accept, &url]);
        if read.status == 200 {
            let read = read.json();
            let read = read.as_array().unwrap().iter();
            offsets.extend(read.map(|record| record["offset"].as_i64().unwrap()));
        }
        offsets.contains(&2).then_some(())
    });
    assert!(!offsets.contains(&1), "the bomb at 1 was read: {offsets:?}");
    watched.check(256 << 20);
}

#[test]
fn floods_of_topics_groups_offsets_and_producers_take_bounded_memory() {
    let mut watched = Watched::start(1);
    let count = crowd(3_000, 100_000);
    for make in [create_topic, commit_offset, init_producer_id] {
        let mut client = Client::connect(&watched.up);
        client.call_all((0..count).map(make));
        watched.check(500 << 20);
    }
    // Who joins is answered late, and is not read any further meanwhile.
    let joins: Vec<u8> = (0..count).flat_map(join_group).collect();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..crowd(20, 100) {
        let mut client = Client::connect(&watched.up);
        client.push(&joins);
        clients.push(client);
        watched.check(500 << 20);
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

/// Places in a record batch.
const LENGTH_END: usize = 12;
const ATTRIBUTES_AT: usize = 21;
const RECORDS_AT: usize = 61;

/// The number of gzip in a batch's attributes.
const GZIP: u8 = 1;
