//! What a fleet's operators do by the command line, and what they are told: manifests, agents that are
//! removed, certificates near their end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::access::Certificates;
use crate::harness::{Up, curl, eventually, folder, post, succeed, text};
use crate::transport::start;

/// A heartbeat of an agent of a build of its own, whose only processor is `org.BUILD`.
fn beat(up: &Up, agent: &str, build: &str) {
    let processor = json!({"type": format!("org.{build}"), "propertyDescriptors": {}});
    let body = json!({"agentInfo": {"identifier": agent, "agentClass": "edge",
        "agentManifestHash": build, "agentManifest": {"agentType": "minifi-java",
            "buildInfo": {"version": "1.18.0"}, "bundles": [{"group": "g", "artifact": build,
                "version": "1", "componentManifest": {"processors": [processor]}}]}}});
    let url = up.url("fleet", "/c2/heartbeat");
    let answer = curl(&["--json", &body.to_string(), &url]);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Publishes a flow with the processor `org.BUILD`.
fn publish(up: &Up, folder: &Path, build: &str) -> Output {
    let file = folder.join("flow.yml");
    let flow = format!(
        "MiNiFi Config Version: 3\nProcessors:\n- {{id: p, name: P, class: org.{build}}}\n"
    );
    std::fs::write(&file, flow).unwrap();
    up.cli(&[
        "flows",
        "publish",
        "--class",
        "edge",
        file.to_str().unwrap(),
    ])
}

#[test]
fn the_command_line_says_which_manifest_flows_are_checked_against() {
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    beat(&up, "a", "Old");
    beat(&up, "b", "Mid");
    beat(&up, "c", "Mid");
    beat(&up, "d", "New");
    // Agents' hashes may be theirs alone; the fleet has a key for what each build says.
    let keys: Vec<(String, &str)> = [("a", "Old"), ("b", "Mid"), ("d", "New")]
        .map(|(agent, build)| {
            let told = up.cli_json(&["agents", "show", agent]);
            (told["manifest_hash"].as_str().unwrap().to_owned(), build)
        })
        .into();
    let build_of = |key: &Value| {
        let found = keys.iter().find(|(known, _)| key == known);
        found.unwrap_or_else(|| panic!("{key}")).1
    };
    let manifest = |more: &[&str]| {
        let told = up.cli_json(&[&["classes", "manifest", "edge"], more].concat());
        let resolution = told["resolution"].as_str().unwrap().to_owned();
        (resolution, build_of(&told["hash"]).to_owned())
    };
    let ways: [(&[&str], &str, &str); 6] = [
        (&[], "most", "Mid"),
        (&["--rule", "first"], "first", "Old"),
        (&["--rule", "last"], "last", "New"),
        (&["--pin", "Mid"], "pinned", "Mid"),
        (&["--rule", "most"], "most", "Mid"),
        (&["--default"], "most", "Mid"),
    ];
    for (arguments, resolution, build) in ways {
        let wanted = (resolution.to_owned(), build.to_owned());
        assert_eq!(manifest(arguments), wanted, "{arguments:?}");
        // It is still so when it is asked again, and flows are checked against it.
        assert_eq!(manifest(&[]), wanted, "{arguments:?}");
        for other in ["Old", "Mid", "New"] {
            let published = publish(&up, dir.path(), other);
            let said = text(&published.stderr);
            assert_eq!(
                published.status.success(),
                other == build,
                "{build} {other}: {said}"
            );
            assert!(
                other == build || said.contains(&format!("org.{other}")),
                "{said}"
            );
        }
    }
    let unknown = up.cli(&["classes", "manifest", "edge", "--pin", "none"]);
    assert!(!unknown.status.success());
    assert!(
        text(&unknown.stderr).contains("none"),
        "{}",
        text(&unknown.stderr)
    );
    let both = up.cli(&[
        "classes", "manifest", "edge", "--pin", "Mid", "--rule", "last",
    ]);
    assert!(!both.status.success(), "one of them");
    // A rule of its own outlives the process.
    manifest(&["--rule", "last"]);
    up.kill();
    let up = up.start_again(&[]);
    let told = up.cli_json(&["classes", "manifest", "edge"]);
    assert_eq!(
        (&told["resolution"], build_of(&told["hash"])),
        (&json!("last"), "New")
    );

    let listed = up.cli_json(&["agents", "manifests", "--class", "edge"]);
    let listed = listed["manifests"].as_array().unwrap();
    let mut counts: Vec<(&str, u64)> = listed
        .iter()
        .map(|of| (build_of(&of["hash"]), of["agents"].as_u64().unwrap()))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [("Mid", 2), ("New", 1), ("Old", 1)]);
    let diff = up.cli_json(&["agents", "manifests", "New", "--against", "Old"]);
    let places: Vec<&str> = diff["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["place"].as_str().unwrap())
        .collect();
    assert_eq!(
        places,
        ["processors[\"org.New\"]", "processors[\"org.Old\"]"]
    );

    up.cli_json(&["agents", "remove", "a"]);
    assert!(!up.cli(&["agents", "show", "a"]).status.success());
    assert!(!up.cli(&["agents", "remove", "a"]).status.success());
    // The manifest that nobody has any more goes, that of others stays.
    let key_of = |build: &str| {
        let found = keys.iter().find(|(_, of)| *of == build);
        found.unwrap().0.clone()
    };
    let kept = up.cli(&["fleet", "manifests", &key_of("Mid"), "--remove"]);
    assert!(!kept.status.success());
    assert!(
        text(&kept.stderr).contains("2 agents have it"),
        "{}",
        text(&kept.stderr)
    );
    let old = key_of("Old");
    assert!(up.cli(&["fleet", "manifests", &old]).status.success());
    let removed = up.cli(&["fleet", "manifests", &old, "--remove"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    assert!(!up.cli(&["fleet", "manifests", &old]).status.success());
    beat(&up, "a", "Old");
    assert!(up.cli(&["agents", "show", "a"]).status.success());
}

#[test]
fn an_operator_says_how_many_agents_are_at_it_at_once_and_sees_how_far_they_are() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &["--role", "fleet"]);
    for agent in ["a", "b", "c"] {
        beat(&up, agent, "Old");
    }
    let ask = [
        "agents",
        "ask",
        "--class",
        "edge",
        "--at-once",
        "1",
        "DESCRIBE",
        "manifest",
    ];
    let asked = up.cli_json(&ask);
    assert_eq!(asked["at_once"], 1);
    let request = asked["request_id"].as_str().unwrap();
    for agent in ["a", "b", "c"] {
        beat(&up, agent, "Old");
    }
    let states = |told: &Value| {
        let count = |state: &str| told[state].as_u64().unwrap();
        [count("queued"), count("deployed"), count("done")]
    };
    let shown = up.cli_json(&["agents", "requests", request]);
    assert_eq!((states(&shown), &shown["at_once"]), ([2, 1, 0], &json!(1)));
    let waiting = [
        "agents",
        "operations",
        "--request",
        request,
        "--state",
        "queued",
        "--limit",
        "1",
    ];
    let first = up.cli_json(&waiting);
    assert_eq!(first["operations"][0]["at_once"], 1);
    let next = first["next"].as_str().unwrap();
    let rest = up.cli_json(&[&waiting[..], &["--after", next]].concat());
    assert_ne!(rest["operations"][0]["id"], first["operations"][0]["id"]);
    assert_eq!(rest["next"], Value::Null);
    let paced = up.cli_json(&["agents", "requests", request, "--at-once", "0"]);
    assert_eq!(paced["at_once"], 0);
    for agent in ["a", "b", "c"] {
        beat(&up, agent, "Old");
    }
    let listed = up.cli_json(&["agents", "requests", "--class", "edge"]);
    assert_eq!(states(&listed["requests"][0]), [0, 3, 0]);
    let one = [
        "agents",
        "ask",
        "--agent",
        "a",
        "--at-once",
        "1",
        "DESCRIBE",
        "manifest",
    ];
    assert!(!up.cli(&one).status.success());
    let set = up.cli_json(&["classes", "resources", "edge", "--at-once", "7"]);
    assert_eq!(set["at_once"], 7);
}

/// Takes the alerts of a webhook.
struct Webhook {
    url: String,
    alerts: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    fn start() -> Webhook {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let alerts: Arc<Mutex<Vec<Value>>> = Arc::default();
        let taken = alerts.clone();
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let mut link = BufReader::new(link.unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while link.read_line(&mut line).unwrap_or(0) > 2 {
                    let told = line.to_lowercase();
                    if let Some(value) = told.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                link.read_exact(&mut body).unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let told = body["alerts"].as_array().unwrap().clone();
                taken.lock().unwrap().extend(told);
                let answer = b"HTTP/1.1 204 Taken\r\nConnection: close\r\n\r\n";
                let _ = link.get_mut().write_all(answer);
            }
        });
        Webhook { url, alerts }
    }

    /// Of a kind: the agent, or `-`, and what is told.
    fn told(&self, kind: &str) -> Vec<String> {
        let alerts = self.alerts.lock().unwrap();
        let of_kind = alerts.iter().filter(|alert| alert["kind"] == kind);
        let mut told: Vec<String> = of_kind
            .map(|alert| {
                let agent = alert["agent_id"].as_str().unwrap_or("-");
                format!("{agent} {}", alert["message"].as_str().unwrap())
            })
            .collect();
        told.sort();
        told
    }
}

#[test]
fn the_command_line_makes_describes_and_removes_classes() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let described = up.cli_json(&["classes", "describe", "edge", "the edge"]);
    assert_eq!(described["description"], "the edge");
    beat(&up, "a", "Old");
    let published = publish(&up, dir.path(), "Old");
    assert!(published.status.success(), "{}", text(&published.stderr));
    let refused = up.cli(&["classes", "remove", "edge"]);
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("1 agent is in it"),
        "{said}"
    );
    assert!(up.cli(&["agents", "remove", "a"]).status.success());
    let removed = up.cli(&["classes", "remove", "edge"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    let listed = up.cli_json(&["classes", "list"]);
    assert_eq!(listed["classes"], json!([]));
}

#[test]
fn the_command_line_gives_parked_agents_a_class() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["classes", "describe", "edge", "the edge"]);
    let url = up.url("fleet", "/c2/heartbeat");
    for agent in ["a", "b"] {
        let body = json!({"agentInfo": {"identifier": agent}});
        let told = post(&url, "application/json", &body.to_string());
        assert_eq!(told.status, 200, "{}", told.body);
    }
    let parked = || {
        let listed = up.cli_json(&["agents", "list", "--parked"]);
        listed["agents"].as_array().unwrap().len()
    };
    assert_eq!(parked(), 2);
    let given = up.cli_json(&["agents", "class", "a", "b", "--give", "edge"]);
    assert_eq!(given["agents"][1]["class"], "edge");
    assert_eq!(parked(), 0);
    let taken = up.cli_json(&["agents", "class", "b", "--take-back"]);
    assert_eq!(taken["agents"][0]["class"], Value::Null);
    assert_eq!(parked(), 1);
    let refused = up.cli(&["agents", "class", "b", "--give", "nowhere"]);
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("nowhere"),
        "{said}"
    );
    // What was done before the failure is told, and whom it is about.
    let broken = up.cli(&[
        "agents", "class", "b", "nobody", "a", "--give", "edge", "--output", "json",
    ]);
    let said = text(&broken.stderr);
    assert!(
        !broken.status.success() && said.contains("agent 'nobody': "),
        "{said}"
    );
    let moved: Value = serde_json::from_slice(&broken.stdout).unwrap();
    assert_eq!(moved["agents"].as_array().unwrap().len(), 1, "{moved}");
    assert_eq!(moved["agents"][0]["id"], "b", "{moved}");
    let unclear = up.cli(&["agents", "class", "b"]);
    assert!(!unclear.status.success());
}

#[test]
fn the_end_of_certificates_that_connections_show_is_told_once() {
    let dir = folder();
    // They end within two days.
    let certificates = Certificates::make(dir.path());
    let webhook = Webhook::start();
    let settings = [
        format!("fleet.tls.certificate={}", certificates.path("server.pem")),
        format!("fleet.tls.key={}", certificates.path("server.key")),
        format!("fleet.tls.client_ca={}", certificates.path("ca.pem")),
        "fleet.tls.client_auth=required".to_owned(),
        format!("fleet.alerts_webhook={}", webhook.url),
    ];
    let mut up = start(&dir.path().join("data"), &settings);
    let ca = certificates.path("ca.pem");
    let call = |up: &Up, certificate: &str, more: &[&str], path: &str| {
        let certificate = certificates.path(certificate);
        let (key, port) = (certificates.path("ann.key"), up.port("fleet"));
        let url = format!("https://localhost:{port}{path}");
        let known = ["--cacert", &ca, "--cert", &certificate, "--key", &key];
        curl(&[&known[..], more, &[&url]].concat())
    };
    let body = json!({"agentInfo": {"identifier": "ann", "agentClass": "edge"}}).to_string();
    let beat = |up: &Up, certificate: &str| {
        let told = call(up, certificate, &["--json", &body], "/c2/heartbeat");
        assert_eq!(told.status, 200, "{}", told.body);
    };
    beat(&up, "ann.pem");
    let kind = "certificate-ending";
    let first = eventually("the webhook is told of both certificates", || {
        let told = webhook.told(kind);
        (told.len() == 2).then_some(told)
    });
    assert!(
        first[0].starts_with("- the certificate of the port fleet ends in 4"),
        "{first:?}"
    );
    assert!(
        first[1].starts_with("ann the agent's certificate ends in 4"),
        "{first:?}"
    );
    let agent = call(&up, "ann.pem", &[], "/api/v1/agents/ann").json();
    let ends = agent["certificate_ends_ms"].as_i64().unwrap();
    let shown = succeed(Command::new("date").args(["+%s", "--date"]).arg({
        let mut command = Command::new("openssl");
        command.args([
            "x509",
            "-noout",
            "-enddate",
            "-in",
            &certificates.path("ann.pem"),
        ]);
        let told = succeed(&mut command);
        told.trim().trim_start_matches("notAfter=").to_owned()
    }));
    assert_eq!(ends, shown.trim().parse::<i64>().unwrap() * 1_000);
    let arguments: Vec<&str> = settings.iter().flat_map(|set| ["--set", set]).collect();
    up.kill();
    let again = up.start_again(&arguments);
    for _ in 0..3 {
        beat(&again, "ann.pem");
    }
    // Another certificate is told, after all that came before it.
    let mut renew = Command::new("openssl");
    renew.current_dir(dir.path()).args(
        "x509 -req -in ann.csr -out ann-2.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 \
         -copy_extensions copy"
            .split_whitespace(),
    );
    succeed(&mut renew);
    beat(&again, "ann-2.pem");
    let told = eventually("the webhook is told of the new certificate", || {
        let told = webhook.told(kind);
        (told.len() > 2).then_some(told)
    });
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[1].starts_with("ann the agent's certificate ends in 2"),
        "{told:?}"
    );
    let events = call(
        &again,
        "ann-2.pem",
        &[],
        &format!("/api/v1/events?kind={kind}"),
    )
    .json();
    assert_eq!(events["events"].as_array().unwrap().len(), 3, "{events}");
}
