//! Peers of the HTTP ports that are slow or mean harm, and streams that end because the proxy does.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Up, curl, eventually, folder, text};
use crate::transport::{JSON_V2, resident_kib};

#[test]
fn a_stop_ends_a_stream_of_records_with_a_receipt() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let cluster = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = cluster["data"][0]["metadata"]["self"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut sender = Command::new("curl");
    sender.args(["-s", "--no-buffer", "-T", "-", "-X", "POST", "-H"]);
    sender.args([
        "Content-Type: application/json",
        &format!("{cluster}/topics/open/records"),
    ]);
    let mut sender = sender
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut into = sender.stdin.take().unwrap();
    into.write_all(br#"{"value":{"type":"JSON","data":1}}"#)
        .unwrap();
    into.flush().unwrap();
    eventually("the record is stored", || {
        (up.records_in("open") == 1).then_some(())
    });
    let begun = Instant::now();
    let status = up.stop();
    assert!(status.success(), "{status}");
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    drop(into);
    let told = text(&sender.wait_with_output().unwrap().stdout);
    let receipts: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(receipts.len(), 2, "{told}");
    assert_eq!(
        (&receipts[0]["error_code"], &receipts[1]["error_code"]),
        (&200.into(), &503.into())
    );
}

#[test]
fn ten_thousand_requests_that_are_taken_back_end_their_connection_only() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let before = resident_kib(&up);
    let mut link = TcpStream::connect(up.address("rest")).unwrap();
    link.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    // GET http / of the host x, by indices of HPACK's own table.
    let head = [0x82, 0x86, 0x84, 0x01, 1, b'x'];
    for n in 0..10_000 {
        let stream = 2 * n + 1;
        sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
        sent.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    // The server may hang up before it has read all of it.
    let _ = link.write_all(&sent);
    let mut got = Vec::new();
    let ended = link.read_to_end(&mut got);
    let is_cut = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(ended.as_ref().map_or_else(is_cut, |_| true), "{ended:?}");
    assert_eq!(
        curl(&["--http2-prior-knowledge", &up.url("rest", "/topics")]).status,
        200
    );
    let grown = resident_kib(&up).saturating_sub(before);
    assert!(grown < 50 << 10, "{grown} KiB more");
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[test]
fn who_sends_or_reads_too_slowly_loses_the_connection() {
    let dir = folder();
    let set = ["--set", "rest.idle_timeout=5s"];
    let up = Up::start_with(&dir.path().join("data"), &set);
    let topic = up.url("rest", "/topics/large");
    let value = "x".repeat(500_000);
    let body = format!(r#"{{"records":[{{"value":"{value}"}}]}}"#);
    let file = dir.path().join("large");
    std::fs::write(&file, body).unwrap();
    let data = format!("@{}", file.display());
    let media = format!("Content-Type: {JSON_V2}");
    for _ in 0..40 {
        let answer = curl(&["--data-binary", &data, "--header", &media, &topic]);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let cluster = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = cluster["data"][0]["cluster_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let connect = || {
        let link = TcpStream::connect(up.address("rest")).unwrap();
        link.set_nonblocking(true).unwrap();
        link
    };
    let host = up.address("rest");
    // One whose head never ends, one that says nothing, one that asks for much and reads nothing, by
    // either version.
    let (mut endless, mut silent, mut deaf) = (connect(), connect(), connect());
    let path = format!("/v3/clusters/{cluster}/topics/large/records?max_bytes=20000000");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    endless
        .write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n").as_bytes())
        .unwrap();
    deaf.write_all(request.as_bytes()).unwrap();
    let mut deaf_2 = connect();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    let mut head = vec![0x82, 0x86];
    for (index, text) in [(4, &path), (1, &host)] {
        head.extend([index, u8::try_from(text.len()).unwrap()]);
        head.extend(text.as_bytes());
    }
    sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
    deaf_2.write_all(&sent).unwrap();
    let begun = Instant::now();
    let mut more = 0;
    eventually("the endless head is given up", || {
        more += 1;
        let sent = endless.write_all(format!("X-{more}: 1\r\n").as_bytes());
        std::thread::sleep(Duration::from_millis(200));
        (sent.is_err() || has_ended(&mut endless)).then_some(())
    });
    eventually("the silent one is given up", || {
        has_ended(&mut silent).then_some(())
    });
    let given_up = begun.elapsed();
    assert!(given_up > Duration::from_secs(4), "{given_up:?}");
    eventually("nobody is connected who does not read", || {
        (connections(&up) == 0).then_some(())
    });
    assert_eq!(curl(&[&up.url("rest", "/topics")]).status, 200);
    drop((deaf, deaf_2));
}

/// Whether the other side has hung up; reads what there is.
fn has_ended(link: &mut TcpStream) -> bool {
    match link.read(&mut [0; 64 << 10]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// How many connections the REST port has whose peer has not hung up.
fn connections(up: &Up) -> usize {
    let port = format!(":{:04X}", up.port("rest").parse::<u16>().unwrap());
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", up.pid())).unwrap();
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Local address, peer, state 01 for an established one.
    rows.filter(|row| row[1].ends_with(&port) && row[3] == "01")
        .count()
}
