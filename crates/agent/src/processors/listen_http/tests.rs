//! Requests by a real client, and by sockets that break off.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};

use crate::flow_tests::agent;
use crate::net::http_client::{ClientSettings, client};
use crate::services::ClientAuthentication;
use crate::testing::{Broker, Certificates, free_port, ground, runtime, start, wait_until};

fn http_client() -> Client {
    client(&ClientSettings {
        connect_wait: Duration::from_secs(5),
        ..ClientSettings::default()
    })
    .unwrap()
}

/// ListenHTTP to PutFile under the name that the header `filename` or `x-name` says.
fn flow(port: u16, out: &Path, properties: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: listen}}
Processors:
- name: listen
  id: listen
  class: ListenHTTP
  scheduling period: 1 hour
  Properties:
    Listening Port: {port}
    Base Path: in
    HTTP Headers to receive as Attributes (Regex): 'x-.*'
    {properties}
- name: name
  id: name
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {{filename: '${{x-name:replaceNull(${{filename}})}}'}}
- name: put
  id: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
  Properties: {{Directory: {out}, Conflict Resolution Strategy: replace}}
Connections:
- {{source name: listen, source relationship name: success, destination name: name}}
- {{source name: name, source relationship name: success, destination name: put}}
",
        out = out.display()
    )
}

fn files(out: &Path) -> Vec<PathBuf> {
    let Ok(entries) = out.read_dir() else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.path());
    names
        .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'))
        .collect()
}

fn has(out: &Path, name: &str, content: &[u8]) -> bool {
    std::fs::read(out.join(name)).is_ok_and(|bytes| bytes == content)
}

pub(super) fn wait_for_port(port: u16) {
    wait_until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
}

#[test]
fn each_method_and_path_has_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (runtime(), dir.path().join("out"));
    let ground = ground(dir.path(), &runtime);
    let port = free_port();
    let engine = start(&ground, &flow(port, &out, ""));
    wait_for_port(port);
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let http = http_client();
    let big = vec![b'b'; 5 << 20];
    runtime.block_on(async {
        let post = http
            .post(url("/in/sub?q=1"))
            .header("filename", "a")
            .body("hello");
        assert_eq!(post.send().await.unwrap().status(), StatusCode::OK);
        let put = http
            .put(url("/in"))
            .header("x-name", "big")
            .body(big.clone());
        let put = put.send().await.unwrap();
        let status = put.status();
        assert_eq!(status, StatusCode::OK, "{}", put.text().await.unwrap());
        let get = http.get(url("/in")).header("filename", "empty");
        assert_eq!(get.send().await.unwrap().status(), StatusCode::OK);
        let head = http.head(url("/in")).header("filename", "head");
        assert_eq!(head.send().await.unwrap().status(), StatusCode::OK);
        let delete = http.delete(url("/in")).send().await.unwrap();
        assert_eq!(delete.status(), StatusCode::METHOD_NOT_ALLOWED);
        for elsewhere in ["/", "/inn", "/other"] {
            let post = http.post(url(elsewhere)).body("x").send().await.unwrap();
            assert_eq!(post.status(), StatusCode::NOT_FOUND, "{elsewhere}");
        }
    });
    wait_until("the files are there", || {
        has(&out, "a", b"hello") && has(&out, "big", &big) && has(&out, "empty", b"")
    });
    assert_eq!(files(&out).len(), 3);
    engine.stop();
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "it listens after its stop"
    );
}

#[test]
fn a_body_that_breaks_off_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (runtime(), dir.path().join("out"));
    let ground = ground(dir.path(), &runtime);
    let port = free_port();
    let engine = start(&ground, &flow(port, &out, ""));
    wait_for_port(port);
    for sent in [10, 200_000] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head =
            "POST /in HTTP/1.1\r\nhost: x\r\nfilename: broken\r\ncontent-length: 300000\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b'x'; sent]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let http = http_client();
    let post = http
        .post(format!("http://127.0.0.1:{port}/in"))
        .header("filename", "whole");
    let status = runtime.block_on(async { post.body("w").send().await.unwrap().status() });
    assert_eq!(status, StatusCode::OK);
    wait_until("the whole one is there", || has(&out, "whole", b"w"));
    engine.stop();
    assert_eq!(files(&out).len(), 1, "a broken body became a FlowFile");
}

#[test]
fn a_flow_that_is_held_back_answers_503() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let port = free_port();
    let broker = Broker::start(1);
    broker.set_away(true);
    let text = format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: full}}
Processors:
- name: listen
  class: ListenHTTP
  Properties: {{Listening Port: {port}, Base Path: in, Buffer Size: 2, Batch Size: 1}}
- name: publish
  class: PublishKafka
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
  Properties: {{Known Brokers: {}, Topic Name: t, Client Name: c}}
Connections:
- {{id: full, source name: listen, source relationship name: success, destination name: publish, max work queue size: 1}}
",
        broker.address()
    );
    let engine = start(&ground, &text);
    wait_for_port(port);
    let statuses = runtime.block_on(async {
        let url = format!("http://127.0.0.1:{port}/in");
        let http = http_client();
        let mut kept = 0;
        // The first is kept; then the queue of two fills up and the rest is sent away at once.
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let post = http.post(&url).body("x").send();
            waiting.push(tokio::spawn(async move { post.await.unwrap().status() }));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut refused = 0;
        for answer in waiting {
            match tokio::time::timeout(Duration::from_millis(500), answer).await {
                Ok(status) if status.as_ref().unwrap().is_success() => kept += 1,
                Ok(status) => {
                    assert_eq!(status.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
                    refused += 1;
                }
                Err(_) => {}
            }
        }
        (kept, refused)
    });
    assert!(
        statuses.0 >= 1 && statuses.1 >= 4,
        "kept and refused: {statuses:?}"
    );
    engine.stop();
}

#[test]
fn tls_lets_only_authorized_clients_in() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (runtime(), dir.path().join("out"));
    let certificates = Certificates::make(dir.path(), &["server", "edge-1", "visitor"]);
    let ground = ground(dir.path(), &runtime);
    let port = free_port();
    let properties = format!(
        "SSL Certificate: {}\n    SSL Certificate Authority: {}\n    SSL Verify Peer: 'yes'\n    \
         Authorized DN Pattern: 'CN=edge-.*'",
        certificates.path("server.pem"),
        certificates.path("ca.pem")
    );
    let engine = start(&ground, &flow(port, &out, &properties));
    wait_for_port(port);
    let post = |name: Option<&str>| {
        let settings = ClientSettings {
            connect_wait: Duration::from_secs(5),
            tls: name.map(|name| certificates.context(name).client()),
            ..ClientSettings::default()
        };
        let post = client(&settings)
            .unwrap()
            .post(format!("https://localhost:{port}/in"));
        let sent = runtime.block_on(post.header("filename", "a").body("x").send());
        sent.map(|answer| answer.status())
    };
    assert_eq!(post(Some("edge-1")).unwrap(), StatusCode::OK);
    assert_eq!(post(Some("visitor")).unwrap(), StatusCode::FORBIDDEN);
    assert!(
        post(None).is_err(),
        "a client without a certificate came in"
    );
    let _ = ClientAuthentication::None;
    engine.stop();
}

#[test]
fn what_was_answered_by_200_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (runtime(), dir.path().join("out"));
    let port = free_port();
    let text = flow(port, &out, "Batch Size: 0\n    Buffer Size: 0");
    let file = dir.path().join("flow.yml");
    std::fs::write(&file, &text).unwrap();
    let mut answered = Vec::new();
    for round in 0..6 {
        let mut child = agent(dir.path(), &file);
        wait_for_port(port);
        let http = http_client();
        let deadline = Instant::now() + Duration::from_millis(150 + 70 * round);
        let mut number = 0;
        while Instant::now() < deadline {
            let name = format!("{round}-{number}");
            let body = if number % 7 == 0 {
                name.repeat(30_000)
            } else {
                name.clone()
            };
            let post = http
                .post(format!("http://127.0.0.1:{port}/in"))
                .header("filename", &name)
                .body(body);
            let status = runtime.block_on(async { post.send().await.unwrap().status() });
            assert_eq!(status, StatusCode::OK);
            answered.push(name);
            number += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut child = agent(dir.path(), &file);
    assert!(answered.len() > 6, "hardly anything was tried");
    for name in &answered {
        wait_until(&format!("{name} is there"), || out.join(name).is_file());
        let bytes = std::fs::read(out.join(name)).unwrap();
        let expected = if name.ends_with("-0") || bytes.len() > 20 {
            name.repeat(30_000)
        } else {
            name.clone()
        };
        assert!(bytes == expected.as_bytes(), "{name} is not what was sent");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_second_request_goes_over_the_same_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (runtime(), dir.path().join("out"));
    let ground = ground(dir.path(), &runtime);
    let port = free_port();
    let engine = start(&ground, &flow(port, &out, ""));
    wait_for_port(port);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for name in ["one", "two"] {
        let request = format!(
            "POST /in HTTP/1.1\r\nhost: x\r\nfilename: {name}\r\ncontent-length: 2\r\n\r\nok"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        let mut rest = vec![0; 1_000];
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let _ = stream.read(&mut rest);
        stream.set_read_timeout(None).unwrap();
    }
    engine.stop();
    let _ = out;
}
