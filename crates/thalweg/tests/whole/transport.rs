//! The HTTP ports as connections meet them: both versions of HTTP, compression, other sites' pages
//! and rates. TLS and tokens are in `transport_tls`, peers that are slow or mean harm in
//! `transport_peers`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::access::Certificates;
use crate::harness::{Up, add_offline, curl, eventually, folder, post, python, succeed};

/// The media type of the records here.
pub const JSON_V2: &str = "application/vnd.kafka.json.v2+json";
const RECORD: &str = r#"{"records":[{"value":{"n":1}}]}"#;

/// Starts with settings.
pub fn start(data: &Path, settings: &[String]) -> Up {
    let arguments: Vec<&str> = settings.iter().flat_map(|set| ["--set", set]).collect();
    Up::start_with(data, &arguments)
}

/// An answer of curl with its head.
fn curl_head(arguments: &[&str]) -> (u16, String, String) {
    let answer = curl(&[&["--include"], arguments].concat());
    let (head, body) = answer.body.split_once("\r\n\r\n").unwrap();
    (answer.status, head.to_lowercase(), body.to_owned())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The memory that the process takes.
pub fn resident_kib(up: &Up) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn both_versions_of_http_are_spoken_on_the_same_port() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let topic = up.url("rest", "/topics/both");
    for (option, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let answer = curl(&[
            option,
            "--header",
            &format!("Content-Type: {JSON_V2}"),
            "--data",
            RECORD,
            &topic,
        ]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let url = up.url("management", "/api/v1/topics");
        let mut asked = Command::new("curl");
        asked.args([
            "-s",
            option,
            "-o",
            "/dev/null",
            "-w",
            "%{http_version} %{http_code}",
            &url,
        ]);
        assert_eq!(succeed(&mut asked), format!("{version} 200"));
    }
    // By HTTP/2 the host is in the target; what an instance is told of its address comes from it.
    let made = curl(&[
        "--http2-prior-knowledge",
        "--header",
        &format!("Content-Type: {JSON_V2}"),
        "--data",
        "{}",
        &up.url("rest", "/consumers/g"),
    ]);
    let base = made.json()["base_uri"].as_str().unwrap().to_owned();
    assert!(base.starts_with(&up.url("rest", "/consumers/g/")), "{base}");
    assert_eq!(up.records_in("both"), 2);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut link = TcpStream::connect(up.address("rest")).unwrap();
    link.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // Requests of many kinds: those that wait for the disk are not passed by those that do not.
    let count = 60;
    let mut sent = String::new();
    for n in 0..count {
        match n % 3 {
            0 => sent.push_str(&format!(
                "POST /topics/piped HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON_V2}\r\n\
                 Content-Length: {}\r\n\r\n{RECORD}",
                RECORD.len()
            )),
            1 => sent.push_str(&format!("GET /topics/none-{n} HTTP/1.1\r\nHost: x\r\n\r\n")),
            _ => sent.push_str("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        }
    }
    sent = sent.replace("Host: x", &format!("Host: {}", up.address("rest")));
    sent.push_str(&format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        up.address("rest")
    ));
    link.write_all(sent.as_bytes()).unwrap();
    let mut got = String::new();
    link.read_to_string(&mut got).unwrap();
    let answers: Vec<&str> = got.split("HTTP/1.1 ").skip(1).collect();
    assert_eq!(answers.len(), count + 1, "{got}");
    for (n, answer) in answers.iter().take(count).enumerate() {
        let expected = match n % 3 {
            0 => format!("\"offset\":{},", n / 3),
            1 => format!("none-{n}'"),
            _ => "\r\n\r\n{}".to_owned(),
        };
        assert!(answer.contains(&expected), "{n}: {answer}");
    }
}

#[test]
fn bodies_are_compressed_both_ways_on_every_port() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let send = |name: &str, bytes: &[u8], encoding: &str, media: &str, url: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let (data, media) = (
            format!("@{}", file.display()),
            format!("Content-Type: {media}"),
        );
        let encoding = format!("Content-Encoding: {encoding}");
        curl(&[
            "--data-binary",
            &data,
            "--header",
            &encoding,
            "--header",
            &media,
            url,
        ])
    };
    let topic = up.url("rest", "/topics/packed");
    let many = vec![r#"{"value":{"text":"the same again and again"}}"#; 5_000].join(",");
    let body = format!(r#"{{"records":[{many}]}}"#);
    let answer = send("good", &gzip(body.as_bytes()), "gzip", JSON_V2, &topic);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(up.records_in("packed"), 5_000);
    for (name, bytes, encoding, status) in [
        ("bad", &b"no gzip"[..], "gzip", 400),
        ("torn", &gzip(body.as_bytes())[..500], "gzip", 400),
        ("unknown", &b"x"[..], "br", 415),
    ] {
        let answer = send(name, bytes, encoding, JSON_V2, &topic);
        assert_eq!(answer.status, status, "{name}: {}", answer.body);
        assert_eq!(
            answer.json()["error_code"],
            status,
            "{name}: {}",
            answer.body
        );
    }
    // A gigabyte of nothing in a megabyte stops at the bound, and takes no memory.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..1_024 {
        bomb.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let before = resident_kib(&up);
    let heartbeat = up.url("fleet", "/efm/api/c2-protocol/heartbeat");
    for url in [&topic, &heartbeat, &up.url("fleet", "/api/v1/statements")] {
        let answer = send("bomb", &bomb, "gzip", JSON_V2, url);
        assert_eq!(answer.status, 413, "{url}: {}", answer.body);
    }
    let grown = resident_kib(&up).saturating_sub(before);
    assert!(grown < 250 << 10, "{grown} KiB more");
    // Agents compress too.
    let beat = json!({"operation": "heartbeat", "identifier": "1",
        "agentInfo": {"identifier": "gz", "agentClass": "edge"}});
    let answer = send(
        "beat",
        &gzip(beat.to_string().as_bytes()),
        "gzip",
        "application/json",
        &heartbeat,
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    eventually("the agent is known", || {
        let agents = up.get("/api/v1/agents").to_string();
        agents.contains("\"gz\"").then_some(())
    });
    answers_are_compressed(&up);
}

fn answers_are_compressed(up: &Up) {
    let metrics = up.url("management", "/metrics");
    let (_, plain, text) = curl_head(&[&metrics]);
    assert!(!plain.contains("content-encoding"), "{plain}");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let (status, packed, unpacked) = curl_head(&[version, "--compressed", &metrics]);
        assert_eq!(status, 200);
        assert!(packed.contains("content-encoding: gzip"), "{packed}");
        assert!(unpacked.len() > text.len() / 2 && unpacked.contains("thalweg_"));
    }
    // Receipts and events come as they are, so that nothing holds them back.
    let cluster = curl(&[&up.url("rest", "/v3/clusters")]).json();
    let cluster = cluster["data"][0]["metadata"]["self"]
        .as_str()
        .unwrap()
        .to_owned();
    let records = format!("{cluster}/topics/packed/records");
    let (_, receipts, _) = curl_head(&[
        "--compressed",
        "--header",
        "Content-Type: application/json",
        "--data-binary",
        r#"{"value":{"type":"JSON","data":1}}"#,
        &records,
    ]);
    assert!(!receipts.contains("content-encoding"), "{receipts}");
}

#[test]
fn pages_of_listed_sites_may_call_and_see_errors() {
    let dir = folder();
    let data = dir.path().join("data");
    add_offline(&data, "admin", "admin-secret");
    let up = start(
        &data,
        &[
            "streams.authorization=acl".to_owned(),
            "rest.cors.allowed_origins=[\"https://app.example.org\"]".to_owned(),
        ],
    );
    let topics = up.url("rest", "/topics");
    let origin = ["--header", "Origin: https://app.example.org"];
    let asked = [
        "--request",
        "OPTIONS",
        "--header",
        "Access-Control-Request-Method: POST",
    ];
    let (status, head, _) = curl_head(&[&asked[..], &origin, &[&topics]].concat());
    assert_eq!(status, 204, "{head}");
    for line in [
        "access-control-allow-origin: https://app.example.org",
        "access-control-allow-methods: get, post",
        "authorization",
        "vary: origin",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    // The errors of what stands before the routes are seen too.
    for (more, expected) in [(&[][..], 401), (&["--header", "Content-Encoding: br"], 415)] {
        let (status, head, body) = curl_head(&[&origin, more, &[&topics]].concat());
        assert_eq!(status, expected, "{body}");
        assert!(
            head.contains("access-control-allow-origin: https://app"),
            "{head}"
        );
    }
    let other = ["--header", "Origin: https://evil.example.org"];
    for more in [&asked[..], &["--user", "admin:admin-secret"]] {
        let (status, head, _) = curl_head(&[more, &other, &[&topics]].concat());
        assert_eq!(status, 403, "{head}");
        assert!(!head.contains("access-control-allow-origin"), "{head}");
    }
    // The other port lets no page in.
    let management = up.url("management", "/api/v1/topics");
    let (status, _, _) = curl_head(&[&origin[..], &[&management]].concat());
    assert_eq!(status, 403);
}

#[test]
fn who_asks_for_too_much_is_told_when_to_come_again() {
    let dir = folder();
    let settings = [
        "rest.rate_limit.requests_per_second=3".to_owned(),
        "fleet.rate_limit.bytes_per_second=1KiB".to_owned(),
    ];
    let up = start(&dir.path().join("data"), &settings);
    let topics = up.url("rest", "/topics");
    let refused = eventually("a request too many", || {
        let (status, head, body) = curl_head(&[&topics]);
        (status != 200).then_some((status, head, body))
    });
    let (status, head, body) = refused;
    assert_eq!(status, 429, "{body}");
    assert!(head.contains("retry-after: 1"), "{head}");
    assert!(head.contains("json"), "{head}");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(told["error_code"], 429, "{told}");
    eventually("the time is over", || {
        (curl(&[&topics]).status == 200).then_some(())
    });
    let statements = up.url("fleet", "/api/v1/statements");
    let first = post(&statements, "application/json", &"x".repeat(8 << 10));
    assert_ne!(first.status, 429, "{}", first.body);
    let (status, head, _) = curl_head(&[&statements]);
    assert_eq!(status, 429);
    let wait = head
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "));
    let wait: u64 = wait.unwrap().trim().parse().unwrap();
    assert!((4..=8).contains(&wait), "{head}");
}

#[test]
fn pythons_clients_speak_both_versions() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let settings = [
        format!("rest.tls.certificate={}", certificates.path("server.pem")),
        format!("rest.tls.key={}", certificates.path("server.key")),
    ];
    let up = start(&dir.path().join("data"), &settings);
    let url = format!("https://localhost:{}", up.port("rest"));
    succeed(python("http_clients.py").args([&url, &certificates.path("ca.pem")]));
}
