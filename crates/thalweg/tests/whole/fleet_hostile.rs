//! What means harm to the fleet's port: bombs, endless and deep bodies, names that climb, slow
//! senders, other agents' certificates, other classes' tokens. Each is refused with the field or the
//! reason named, memory stays within bounds, and another connection is served.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::access::Certificates;
use crate::fleet_roles::Fleet;
use crate::harness::{Up, curl, folder, succeed};
use crate::transport::start as start_with;
use crate::watched::{Watched, answer};

fn watched(dir: &Path) -> Watched {
    let up = Up::start_with(&dir.join("data"), &["--role", "fleet"]);
    let probe = |watched: &Watched| {
        let beat = heartbeat("served", "edge").to_string();
        let (status, told) = watched.post(HEARTBEAT, JSON, beat.as_bytes());
        assert_eq!(status, 200, "{told}");
    };
    Watched::over(up, "management", probe)
}

fn heartbeat(agent: &str, class: &str) -> Value {
    json!({"agentInfo": {"identifier": agent, "agentClass": class, "agentManifestHash": "h",
        "agentManifest": {"agentType": "minifi-java", "buildInfo": {"version": "2.3.0"},
            "supportedOperations": [{"type": "UPDATE", "properties": {"ASSET": {}}}]}}})
}

/// Checks that a request is refused with a word of why, and that nobody else notices.
fn refused(
    watched: &Watched,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
    why: (u16, &str),
) {
    let (status, told) = watched.send(method, path, headers, body);
    assert_eq!(status, why.0, "{method} {path}: {told}");
    let message = told["message"].as_str().unwrap_or_default();
    assert!(message.contains(why.1), "{method} {path}: {told}");
    assert!(told.get("requestedOperations").is_none(), "{told}");
    watched.check();
}

#[test]
fn bombs_and_endless_bodies_are_cut_short() {
    let dir = folder();
    let watched = watched(dir.path());
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let piece = vec![b' '; 1 << 20];
    for _ in 0..1_024 {
        bomb.write_all(&piece).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 2 << 20, "{}", bomb.len());
    let packed = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
    for path in [HEARTBEAT, ACKNOWLEDGE, FLOWS, "/efm/api/operations"] {
        refused(
            &watched,
            "POST",
            path,
            packed,
            &bomb,
            (413, "67108864 bytes"),
        );
    }
    refused(
        &watched,
        "PATCH",
        PARAMETERS,
        packed,
        &bomb,
        (413, "67108864 bytes"),
    );
    // Half a stream, and no stream at all.
    refused(
        &watched,
        "POST",
        HEARTBEAT,
        packed,
        &bomb[..1_000],
        (400, "broke off"),
    );
    refused(
        &watched,
        "POST",
        HEARTBEAT,
        packed,
        b"{}",
        (400, "broke off"),
    );
    for path in [HEARTBEAT, FLOWS] {
        watched.refuses_a_gigabyte(path, JSON, 160 << 20);
    }
    let grown = watched.grown();
    assert!(grown < 512 << 20, "{} MiB more", grown >> 20);
}

#[test]
fn deep_and_twisted_messages_name_their_place() {
    let dir = folder();
    let watched = watched(dir.path());
    let deep =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let json = "Content-Type: application/json\r\n";
    for deep in [deep("[", "]"), deep("{\"a\":", "}")] {
        let custom = format!("{{\"agentInfo\":{{\"identifier\":\"a\"}},\"custom\":{deep}}}");
        let args =
            format!("{{\"operation\":\"UPDATE\",\"operand\":\"properties\",\"args\":{deep}}}");
        let flow = format!("{{\"rootGroup\":{deep}}}");
        for (method, path, body) in [
            ("POST", HEARTBEAT, &deep),
            ("POST", HEARTBEAT, &custom),
            ("POST", ACKNOWLEDGE, &deep),
            ("POST", ASK, &args),
            ("POST", FLOWS, &flow),
            ("PATCH", PARAMETERS, &deep),
            ("POST", ROLLOUTS, &deep),
            ("PUT", "/api/v1/classes/edge/resources", &deep),
            ("PUT", "/api/v1/classes/edge", &deep),
            ("POST", "/efm/api/agent-classes", &deep),
            ("POST", "/efm/api/designer/edge/flows/import", &flow),
        ] {
            refused(
                &watched,
                method,
                path,
                json,
                body.as_bytes(),
                (400, "column"),
            );
        }
    }
    let yaml = "Content-Type: application/yaml\r\n";
    // The second would take its parser very long.
    for (depth, told) in [
        (1_000, "the flow is not valid at line 1 column"),
        (100_000, "line 1 column 4109: its brackets nest too deep"),
    ] {
        let deep = format!("Processors: {}1{}", "[".repeat(depth), "]".repeat(depth));
        refused(&watched, "POST", FLOWS, yaml, deep.as_bytes(), (400, told));
    }
    // Each name stands for ten of the one before.
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        laughs.push_str(&format!(
            "a{n}: &a{n} [{}]\n",
            before.trim_end_matches(", ")
        ));
    }
    laughs.push_str("Processors: *a11\n");
    refused(
        &watched,
        "POST",
        FLOWS,
        yaml,
        laughs.as_bytes(),
        (400, "the flow is not valid"),
    );
    refused(
        &watched,
        "POST",
        HEARTBEAT,
        json,
        b"{\"agentInfo\":",
        (400, "column"),
    );
    refused(
        &watched,
        "POST",
        HEARTBEAT,
        json,
        b"{}",
        (400, "agentInfo.identifier"),
    );
    refused(
        &watched,
        "POST",
        HEARTBEAT,
        json,
        b"\xff\xfe",
        (400, "column"),
    );
    let long = json!({"agentInfo": {"identifier": "x".repeat(100_000)}}).to_string();
    refused(
        &watched,
        "POST",
        HEARTBEAT,
        json,
        long.as_bytes(),
        (400, "1 to 255 bytes"),
    );
}

#[test]
fn names_that_climb_lead_nowhere() {
    let dir = folder();
    let watched = watched(dir.path());
    let plain = "Content-Type: application/octet-stream\r\n";
    for (query, field) in [
        ("name=..%2Fx", "name"),
        ("name=%2Fetc%2Fpasswd", "name"),
        ("name=..", "name"),
        ("name=x&path=..%2F..%2Fetc", "path"),
        ("name=x&path=%2Fetc", "path"),
        ("name=x&path=a%2F..%2F..%2Fb", "path"),
        ("name=a%5C..%5Cb", "name"),
        ("name=x%00y", "name"),
    ] {
        let path = format!("/api/v1/resources?{query}");
        refused(&watched, "POST", &path, plain, b"x", (400, field));
    }
    let form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--x--\r\n";
    let of_form = "Content-Type: multipart/form-data; boundary=x\r\n";
    let path = "/efm/api/resource-manager/resources/file?name=..%2Fx";
    refused(
        &watched,
        "POST",
        path,
        of_form,
        form.as_bytes(),
        (400, "name"),
    );
    let path = "/efm/api/resource-manager/resources/file?name=x&relativePathOnAgent=..%2Fx";
    refused(
        &watched,
        "POST",
        path,
        of_form,
        form.as_bytes(),
        (400, "path"),
    );
    let json = "Content-Type: application/json\r\n";
    for file in ["../x", "/etc/passwd", "a/../../b"] {
        let body = json!({"operation": "UPDATE", "operand": "asset",
            "args": {"file": file, "url": "/x"}});
        refused(
            &watched,
            "POST",
            ASK,
            json,
            body.to_string().as_bytes(),
            (400, "args.file"),
        );
    }
    for path in [
        "/c2/resources/..%2F..%2Fkey",
        "/efm/api/c2-protocol/flows/..%2Fkey",
        "/api/v1/manifests/..%2F..%2Ffleet.db",
        "/api/v1/bundles/..%2Fkey/content",
    ] {
        refused(&watched, "GET", path, "", b"", (404, "there is no"));
    }
    // These are no path of anything.
    for path in ["/../fleet/key", "/c2/../../fleet/key", "/%2e%2e/fleet/key"] {
        let (status, _) = watched.send("GET", path, "", b"");
        assert_eq!(status, 404, "{path}");
    }
}

#[test]
fn who_sends_too_slowly_is_told_so_and_holds_up_nobody() {
    let dir = folder();
    let watched = watched(dir.path());
    let began = Instant::now();
    // A byte a second keeps a connection from being silent, and is too slow all the same.
    let mut slow = watched.connect();
    let head = format!(
        "POST {HEARTBEAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).unwrap();
    let mut sender = slow.try_clone().unwrap();
    let trickle = std::thread::spawn(move || {
        while sender.write_all(b" ").is_ok() && began.elapsed() < Duration::from_secs(55) {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    // Whoever never ends their head is not answered at all.
    let mut silent = watched.connect();
    silent
        .write_all(b"POST /c2/heartbeat HTTP/1.1\r\nHost: 127")
        .unwrap();
    watched.check();
    let (status, told) = answer(slow);
    assert_eq!(status, 408, "{told}");
    assert!(
        told["message"].as_str().unwrap().contains("within 30s"),
        "{told}"
    );
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(50), "{waited:?}");
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    let text = String::from_utf8_lossy(&rest);
    assert!(rest.is_empty() || text.contains(" 408 "), "{text}");
    trickle.join().unwrap();
    watched.check();
}

#[test]
fn a_wrong_certificate_and_none_are_refused_by_name() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let settings = [
        format!("fleet.tls.certificate={}", certificates.path("server.pem")),
        format!("fleet.tls.key={}", certificates.path("server.key")),
        format!("fleet.tls.client_ca={}", certificates.path("ca.pem")),
        "fleet.tls.client_auth=required".to_owned(),
    ];
    let up = start_with(&dir.path().join("data"), &settings);
    let url = format!("https://localhost:{}{HEARTBEAT}", up.port("management"));
    let ca = certificates.path("ca.pem");
    let (pem, key) = (certificates.path("ann.pem"), certificates.path("ann.key"));
    let beat = |agent: &str| {
        let body = heartbeat(agent, "edge").to_string();
        curl(&[
            "--cacert", &ca, "--cert", &pem, "--key", &key, "--json", &body, &url,
        ])
    };
    let own = beat("ann");
    assert_eq!(own.status, 200, "{}", own.body);
    let other = beat("bob");
    assert_eq!(other.status, 403, "{}", other.body);
    assert!(
        other.body.contains("ann") && other.body.contains("bob"),
        "{}",
        other.body
    );
    // One that another authority signed, and none at all, do not get to say anything.
    let elsewhere = folder();
    let foreign = Certificates::make(elsewhere.path());
    let body = heartbeat("ann", "edge").to_string();
    let (pem, key) = (foreign.path("ann.pem"), foreign.path("ann.key"));
    for shown in [&["--cert", &*pem, "--key", &*key][..], &[]] {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--cacert",
            &ca,
        ]);
        command.args(shown).args(["--json", &body, &url]);
        // A client that is still writing when it is refused may not come to read why.
        let is_told = (0..20).any(|_| {
            let output = command.output().unwrap();
            assert!(!output.status.success(), "{shown:?} was served");
            let told = String::from_utf8_lossy(&output.stderr).to_lowercase();
            told.contains("alert") || told.contains("certificate")
        });
        assert!(is_told, "nobody says why");
    }
    // The agents' registry knows of nobody else.
    let mut list = Command::new("curl");
    let agents = format!("https://localhost:{}/api/v1/agents", up.port("management"));
    let (pem, key) = (certificates.path("ann.pem"), certificates.path("ann.key"));
    list.args([
        "--silent", "--cacert", &ca, "--cert", &pem, "--key", &key, &agents,
    ]);
    let listed: Value = serde_json::from_str(&succeed(&mut list)).unwrap();
    assert_eq!(listed["agents"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn another_classs_token_is_refused_with_the_reason() {
    let dir = folder();
    let fleet = Fleet::start(dir.path(), &[]);
    let edge = fleet.token("edge-operator", &["operator:edge"]);
    fleet.beat("e", "edge");
    fleet.beat("n", "north");
    let north = fleet.publish("north");
    let own = fleet.call(&edge, "GET", "/api/v1/agents/e", "");
    assert_eq!(own.status, 200, "{}", own.body);
    let ask = r#"{"operation": "TRANSFER", "operand": "debug"}"#;
    for (method, path, body, status) in [
        ("GET", "/api/v1/agents/n", "", 404),
        ("POST", "/api/v1/agents/n/operations", ask, 404),
        ("GET", "/api/v1/classes/north", "", 403),
        ("GET", "/api/v1/agents?class=north", "", 403),
        ("POST", "/api/v1/classes/north/operations", ask, 403),
        (
            "POST",
            "/api/v1/classes/north/flows",
            "MiNiFi Config Version: 3\n",
            403,
        ),
        ("GET", &format!("/api/v1/flows/{north}"), "", 404),
        (
            "POST",
            &format!("/efm/api/designer/flows/{north}/publish"),
            "",
            404,
        ),
        ("GET", "/efm/api/monitor/agents/n", "", 404),
    ] {
        let answer = fleet.call(&edge, method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("operator:edge"),
            "{method} {path}: {message}"
        );
    }
    for path in ["/api/v1/topics", "/api/v1/users", "/metrics"] {
        let answer = fleet.call(&edge, "GET", path, "");
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
        assert!(
            answer.body.contains("viewer for all classes"),
            "{path}: {}",
            answer.body
        );
    }
    for token in ["tw_nothing", "a.b.c", ""] {
        let answer = fleet.call(token, "GET", "/api/v1/agents", "");
        assert_eq!(answer.status, 401, "{token}: {}", answer.body);
    }
    let agents = fleet.call(&edge, "GET", "/api/v1/agents", "").json();
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1, "{agents}");
}

const JSON: &str = "application/json";
const HEARTBEAT: &str = "/efm/api/c2-protocol/heartbeat";
const ACKNOWLEDGE: &str = "/efm/api/c2-protocol/acknowledge";
const FLOWS: &str = "/api/v1/classes/edge/flows";
const ROLLOUTS: &str = "/api/v1/classes/edge/rollouts";
const PARAMETERS: &str = "/api/v1/agents/served/parameters";
const ASK: &str = "/api/v1/agents/served/operations";
