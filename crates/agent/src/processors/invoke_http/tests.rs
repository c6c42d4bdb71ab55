//! Requests to a server of the test's own.

use std::time::Duration;

use crate::engine::Engine;
use crate::services::ClientAuthentication;
use crate::testing::{
    Answer, Certificates, HttpPeer, Rig, Seen, ground, runtime, start, wait_or_tell,
};

/// GenerateFlowFile to InvokeHTTP, its relationships to LogAttributes of their names, and answers
/// to another InvokeHTTP that shows their attributes and content to `/shown`.
fn flow(peer: &HttpPeer, source: &str, properties: &str, services: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: http}}
{services}
Processors:
- name: make
  id: make
  class: GenerateFlowFile
  scheduling period: 1 hour
  Properties: {{Data Format: Text, Unique FlowFiles: false, {source}}}
- name: mark
  id: mark
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {{x-kind: fast, bad name: blank, other: no}}
- name: invoke
  id: invoke
  class: InvokeHTTP
  scheduling strategy: EVENT_DRIVEN
  penalization period: 1 hour
  Properties: {{{properties}}}
- name: show
  id: show
  class: InvokeHTTP
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, response, retry, no retry, failure]
  Properties: {{HTTP Method: POST, Remote URL: 'http://{address}/shown', Attributes to Send: '.*'}}
- {{name: success, id: success, class: LogAttribute, scheduling strategy: EVENT_DRIVEN, auto-terminated relationships list: [success]}}
- {{name: other, id: other, class: LogAttribute, scheduling strategy: EVENT_DRIVEN, auto-terminated relationships list: [success]}}
Connections:
- {{source name: make, source relationship name: success, destination name: mark}}
- {{source name: mark, source relationship name: success, destination name: invoke}}
- {{source name: invoke, source relationship name: success, destination name: success}}
- {{source name: invoke, source relationship name: response, destination name: show}}
- {{id: retry, source name: invoke, source relationship name: retry, destination name: other}}
- {{id: no-retry, source name: invoke, source relationship name: no retry, destination name: other}}
- {{id: failure, source name: invoke, source relationship name: failure, destination name: other}}
",
        address = peer.address()
    )
}

fn count_in(engine: &Engine, id: &str) -> u64 {
    let nodes = engine.nodes();
    nodes
        .iter()
        .find(|node| node.id == id)
        .unwrap()
        .flow_files_in
}

fn queued(engine: &Engine, id: &str) -> u64 {
    let queues = engine.queues();
    queues
        .iter()
        .find(|queue| queue.id == id)
        .unwrap()
        .flow_files
}

/// Runs a flow until `done` and returns what its counts say.
fn run(text: &str, mut done: impl FnMut(&Engine) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let engine = start(&ground, text);
    wait_or_tell(&ground, "the requests are made", || done(&engine));
    engine.stop();
}

#[test]
fn content_and_attributes_go_out_and_the_answer_comes_back() {
    let peer = HttpPeer::start(None, |seen: &Seen| {
        let body = [b"got ", seen.body.as_slice()].concat();
        Answer::new(201, body)
            .with("content-type", "text/told")
            .with("x-answer", "yes")
    });
    let address = peer.address();
    let properties = format!(
        "HTTP Method: POST, Remote URL: 'http://{address}/in/${{x-kind}}?n=1', \
         Attributes to Send: 'x-.*|bad.*', Content-type: text/plain"
    );
    run(
        &flow(&peer, "Custom Text: hello, Batch Size: 3", &properties, ""),
        |engine| peer.at("/shown").len() == 3 && count_in(engine, "success") == 3,
    );
    for request in peer.at("/in/fast?n=1") {
        assert_eq!(
            (request.method.as_str(), request.body.as_slice()),
            ("POST", &b"hello"[..])
        );
        assert_eq!(request.header("x-kind"), Some("fast"));
        assert_eq!(
            request.header("bad-name"),
            Some("blank"),
            "the name is transformed"
        );
        assert_eq!(
            request.header("other"),
            None,
            "an attribute that was not asked for"
        );
        assert_eq!(request.header("content-type"), Some("text/plain"));
        assert_eq!(request.header("content-length"), Some("5"));
        assert!(
            request
                .header("date")
                .is_some_and(|date| date.ends_with("GMT"))
        );
    }
    assert_eq!(peer.at("/in/fast?n=1").len(), 3);
    for answer in peer.at("/shown") {
        assert_eq!(answer.body, b"got hello");
        assert_eq!(answer.header("invokehttp.status.code"), Some("201"));
        let url = format!("http://{address}/in/fast?n=1");
        assert_eq!(answer.header("invokehttp.request.url"), Some(url.as_str()));
        assert_eq!(answer.header("mime.type"), Some("text/told"));
        assert_eq!(answer.header("x-answer"), Some("yes"));
        assert_eq!(
            answer.header("x-kind"),
            Some("fast"),
            "attributes of the original stay"
        );
    }
}

#[test]
fn each_answer_leads_its_way() {
    for (status, relationship) in [
        (204, "success"),
        (503, "retry"),
        (404, "no-retry"),
        (304, "no-retry"),
    ] {
        let peer = HttpPeer::start(None, move |seen: &Seen| match seen.target.as_str() {
            "/shown" => Answer::new(200, ""),
            _ => Answer::new(status, "text"),
        });
        let always = status == 404;
        let properties = format!(
            "Remote URL: 'http://{}/x', Always Output Response: {always}, \
             Penalize on \"No Retry\": true",
            peer.address()
        );
        run(&flow(&peer, "", &properties, ""), |engine| {
            let is_there = match relationship {
                "success" => count_in(engine, "success") == 1,
                // Penalized, so nobody takes it.
                waiting => queued(engine, waiting) == 1,
            };
            is_there && (!always || peer.at("/shown").len() == 1)
        });
        assert_eq!(peer.at("/x")[0].method, "GET");
        assert!(peer.at("/x")[0].body.is_empty(), "GET has no body");
        if !always && status != 204 {
            assert!(
                peer.at("/shown").is_empty(),
                "{status} gave an answer's FlowFile"
            );
        }
    }
}

#[test]
fn an_answer_can_become_an_attribute() {
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, "x".repeat(100_000)));
    let properties = format!(
        "Remote URL: 'http://{}/x', Put Response Body in Attribute: 'answer-${{x-kind}}'",
        peer.address()
    );
    let text = flow(&peer, "", &properties, "").replace(
        "source relationship name: success, destination name: success}",
        "source relationship name: success, destination name: success}\n\
         - {id: again, source name: invoke, source relationship name: success, \
         destination name: show}",
    );
    run(&text, |_| peer.at("/shown").len() == 1);
    let shown = &peer.at("/shown")[0];
    let limit = crate::net::limits::HTTP_ANSWER_ATTRIBUTE_BYTES_MAX;
    assert_eq!(shown.header("answer-fast").map(str::len), Some(limit));
    assert_eq!(shown.header("invokehttp.status.code"), Some("200"));
}

#[test]
fn what_cannot_be_asked_or_is_not_answered_fails() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent
        .local_addr()
        .map(|address| (address, silent))
        .unwrap();
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, ""));
    for properties in [
        format!("Remote URL: 'http://{}/x', Read Timeout: 200 ms", silent.0),
        "Remote URL: 'http://127.0.0.1:1/x'".to_owned(),
        "Remote URL: 'ftp://${x-kind}/x'".to_owned(),
        format!(
            "Remote URL: 'http://{}/x', Attributes to Send: 'bad.*', \
             Invalid HTTP Header Field Handling Strategy: fail",
            peer.address()
        ),
    ] {
        run(&flow(&peer, "", &properties, ""), |engine| {
            queued(engine, "failure") == 1
        });
    }
    assert!(peer.seen().is_empty());
}

#[test]
fn large_bodies_stream_both_ways_with_and_without_their_length() {
    for is_chunked in [false, true] {
        let big: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
        let peer = HttpPeer::start(None, move |seen: &Seen| Answer {
            is_chunked,
            ..match seen.target.as_str() {
                "/big" => Answer::new(200, big.clone()),
                _ => Answer::new(200, seen.body.clone()),
            }
        });
        let address = peer.address();
        let properties = format!(
            "HTTP Method: PUT, Remote URL: 'http://{address}/x', \
             Use Chunked Encoding: {is_chunked}"
        );
        // What is sent was fetched before.
        let text = flow(&peer, "", &properties, "")
            .replace(
                "class: GenerateFlowFile",
                "class: InvokeHTTP\n  auto-terminated relationships list: [success, retry, no retry, failure]",
            )
            .replace(
                "{Data Format: Text, Unique FlowFiles: false, }",
                &format!("{{Remote URL: 'http://{address}/big'}}"),
            )
            .replace("make, source relationship name: success", "make, source relationship name: response");
        run(&text, |_| peer.at("/shown").len() == 1);
        let (sent, shown) = (&peer.at("/x")[0], &peer.at("/shown")[0]);
        assert_eq!(sent.body.len(), 20_000_000);
        assert!(sent.body == shown.body, "it changed on its way");
        let length = sent.header("content-length").map(str::to_owned);
        assert_eq!(length, (!is_chunked).then(|| 20_000_000.to_string()));
        assert_eq!(
            sent.header("transfer-encoding"),
            is_chunked.then_some("chunked")
        );
    }
}

#[test]
fn a_server_is_told_that_nothing_comes() {
    for (method, sends, content, length) in [
        ("POST", "true", "", Some("0")),
        ("PUT", "true", "", Some("0")),
        ("PATCH", "false", "abc", Some("0")),
        ("POST", "true", "abc", Some("3")),
        ("GET", "true", "", None),
        ("DELETE", "true", "abc", None),
    ] {
        let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, ""));
        let url = format!("http://{}/x", peer.address());
        let properties = [
            ("HTTP Method", method),
            ("Remote URL", &url),
            ("Send Message Body", sends),
        ];
        let mut rig = Rig::new("InvokeHTTP", &properties);
        rig.put(&[("mime.type", "text/plain")], content);
        rig.run();
        let sent = &peer.at("/x")[0];
        assert_eq!(sent.header("content-length"), length, "{method} {content}");
        // An answer that does not say what it is.
        let answer = rig.one("response");
        assert_eq!(answer.attribute("mime.type"), "application/octet-stream");
        assert_eq!(sent.header("transfer-encoding"), None, "{method} {content}");
    }
}

#[test]
fn speed_limits_hold() {
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, ""));
    let properties = format!(
        "HTTP Method: POST, Remote URL: 'http://{}/x', Upload Speed Limit: 500 KB, \
         Read Timeout: 500 ms",
        peer.address()
    );
    run(&flow(&peer, "File Size: 1 MB", &properties, ""), |engine| {
        count_in(engine, "success") == 1
    });
    let took = peer.at("/x")[0].took;
    assert!(
        took > Duration::from_millis(1_500),
        "1 MB at 500 KB a second took {took:?}"
    );
}

#[test]
fn tls_is_by_the_service_and_strangers_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path(), &["server", "client"]);
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, ""));
    let tls = certificates.server("server", ClientAuthentication::Required);
    let secure = HttpPeer::start(Some(tls), |_: &Seen| Answer::new(200, "secret"));
    let open = certificates.server("server", ClientAuthentication::None);
    let open = HttpPeer::start(Some(open), |_: &Seen| Answer::new(200, ""));
    let url = |peer: &HttpPeer| {
        format!(
            "Remote URL: 'https://localhost:{}/x'",
            peer.address().port()
        )
    };
    let service = certificates.service("client");
    let known = format!("{}, SSL Context Service: tls", url(&secure));
    run(&flow(&peer, "", &known, &service), |_| {
        peer.at("/shown").len() == 1
    });
    assert_eq!(peer.at("/shown")[0].body, b"secret");
    run(&flow(&peer, "", &url(&open), ""), |engine| {
        queued(engine, "failure") == 1
    });
    assert!(
        open.seen().is_empty(),
        "a server of a strange authority was believed"
    );
    let trusting = format!("{}, Disable Peer Verification: true", url(&open));
    run(&flow(&peer, "", &trusting, ""), |engine| {
        count_in(engine, "success") == 1
    });
}

#[test]
fn a_proxy_and_the_server_are_told_who_asks() {
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, ""));
    let proxy = peer.address();
    let properties = format!(
        "Remote URL: 'http://far.example/x', Proxy Host: '{}', Proxy Port: {}, \
         invokehttp-proxy-username: px, invokehttp-proxy-password: pw, \
         Request Username: user, Request Password: word",
        proxy.ip(),
        proxy.port()
    );
    run(&flow(&peer, "", &properties, ""), |engine| {
        count_in(engine, "success") == 1
    });
    let request = &peer.at("http://far.example/x")[0];
    assert_eq!(
        request.header("proxy-authorization"),
        Some("Basic cHg6cHc=")
    );
    assert_eq!(request.header("authorization"), Some("Basic dXNlcjp3b3Jk"));
}

#[test]
fn redirects_are_followed_or_not() {
    for follows in [true, false] {
        let peer = HttpPeer::start(None, |seen: &Seen| match seen.target.as_str() {
            "/x" => Answer::new(302, "").with("location", "/y"),
            _ => Answer::new(200, ""),
        });
        let properties = format!(
            "Remote URL: 'http://{}/x', Follow Redirects: {follows}",
            peer.address()
        );
        run(&flow(&peer, "", &properties, ""), |engine| match follows {
            true => count_in(engine, "success") == 1,
            false => count_in(engine, "other") == 1,
        });
        assert_eq!(peer.at("/y").len(), usize::from(follows));
    }
}

#[test]
fn without_incoming_connections_it_asks_by_its_schedule() {
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, "polled"));
    let text = format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: poll}}
Processors:
- name: poll
  class: InvokeHTTP
  scheduling period: 20 ms
  auto-terminated relationships list: [success, response, retry, no retry, failure]
  Properties: {{Remote URL: 'http://{}/polled'}}
Connections: []
",
        peer.address()
    );
    run(&text, |_| peer.at("/polled").len() >= 3);
}
