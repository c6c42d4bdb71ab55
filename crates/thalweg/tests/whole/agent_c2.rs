//! Our own agent under the fleet, over mutual TLS with gzip: what operators ask by the management
//! API reaches it, takes effect, and is told truthfully; and what its own commands show.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::fleet_agents::{Fleet, upload};
use crate::harness::{Running, eventually, sibling, succeed, text};

/// The agent as a process, with the files that it was given.
struct Agent {
    dir: PathBuf,
    log: PathBuf,
}

impl Agent {
    fn new(fleet: &Fleet) -> Agent {
        let dir = fleet.dir.path().join("native");
        let log = fleet.dir.path().join("native-logs/agent.log");
        let path = |name: &str| fleet.certificates.path(name);
        let lines = [
            format!(
                "nifi.c2.rest.url={}",
                fleet.url("/efm/api/c2-protocol/heartbeat")
            ),
            "nifi.c2.agent.identifier=native".to_owned(),
            "nifi.c2.agent.class=edge".to_owned(),
            "nifi.c2.agent.heartbeat.period=200 ms".to_owned(),
            "nifi.c2.rest.request.encoding=gzip".to_owned(),
            format!("nifi.security.client.certificate={}", path("native.pem")),
            format!("nifi.security.client.private.key={}", path("native.key")),
            format!("nifi.security.client.ca.certificate={}", path("ca.pem")),
            "nifi.log.logger.root=INFO,rolling".to_owned(),
            format!(
                "nifi.log.appender.rolling.directory={}",
                log.parent().unwrap().display()
            ),
            "nifi.log.appender.rolling.file_name=agent.log".to_owned(),
        ];
        std::fs::write(fleet.dir.path().join("minifi.properties"), lines.join("\n")).unwrap();
        Agent { dir, log }
    }

    fn start(&self, fleet: &Fleet) -> Running {
        let mut command = Command::new(sibling("thalweg-agent"));
        command.arg("--data").arg(&self.dir);
        command
            .arg("--properties")
            .arg(fleet.dir.path().join("minifi.properties"));
        Running::start(&mut command, &fleet.dir.path().join("native.log"))
    }

    /// Runs a command about the running agent.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(sibling("thalweg-agent"));
        command.args(arguments).arg("--data").arg(&self.dir);
        command.output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.run(&["status", "--once", "--output", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn flow(name: &str, out: &Path) -> String {
    format!(
        "MiNiFi Config Version: 3
Flow Controller: {{name: {name}}}
Processors:
- {{id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000a, name: make, class: GenerateFlowFile,
   scheduling strategy: TIMER_DRIVEN, scheduling period: 20 ms}}
- {{id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000b, name: put, class: PutFile,
   scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [success, failure], Properties: {{Directory: {}}}}}
Connections:
- {{id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000c, name: between,
   source id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000a, source relationship names: [success],
   destination id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000b}}
",
        out.display()
    )
}

#[test]
fn what_the_fleet_asks_takes_effect_on_our_own_agent() {
    let fleet = Fleet::start();
    let agent = Agent::new(&fleet);
    let running = agent.start(&fleet);
    let view = || fleet.get("/api/v1/agents/native");
    eventually("the agent is described", || {
        let answer = fleet.call(&[], "/api/v1/agents/native");
        (answer.status == 200 && answer.json()["agent_type"] == "thalweg").then_some(())
    });
    let ask = |operation: &str, operand: &str, args: Value| {
        let mut body = json!({"operation": operation, "args": args});
        if !operand.is_empty() {
            body["operand"] = json!(operand);
        }
        let done = fleet.done("native", &body);
        assert_eq!(done["state"], "done", "{operation} {operand}: {done}");
        done
    };

    // A flow is published to the class and runs.
    let out = fleet.dir.path().join("out");
    let path = fleet.dir.path().join("flow.yml");
    std::fs::write(&path, flow("first", &out)).unwrap();
    let data = format!("@{}", path.display());
    let published = fleet.call(&["--data-binary", &data], "/api/v1/classes/edge/flows");
    assert_eq!(published.status, 201, "{}", published.body);
    let files = || std::fs::read_dir(&out).map_or(0, Iterator::count);
    eventually("the flow works and the fleet knows", || {
        (files() > 3 && view()["flow_state"] == "deployed").then_some(())
    });

    // Single processors, the flow, a pause.
    let put = "5d0d7a3e-6f0b-4c7e-8e43-00000000000b";
    ask("STOP", "processor", json!({"processorId": put}));
    let queued = || {
        agent.status()["queues"][0]["flow_files"]
            .as_u64()
            .unwrap_or(0)
    };
    eventually("the queue grows", || (queued() > 5).then_some(()));
    ask(
        "STOP",
        "processor",
        json!({"processorId": "5d0d7a3e-6f0b-4c7e-8e43-00000000000a"}),
    );
    let cleared = ask("CLEAR", "connection", json!({"connections": ["between"]}));
    assert!(
        cleared["details"]
            .as_str()
            .unwrap_or("")
            .contains("dropped"),
        "{cleared}"
    );
    assert_eq!(queued(), 0);
    ask("CLEAR", "corecomponentstate", json!({"components": [put]}));
    ask("STOP", "flow", json!({}));
    assert_eq!(agent.status()["stopped_by"], json!(["operator"]));
    ask("START", "flow", json!({}));
    ask("START", "processor", json!({"processorId": put}));
    ask(
        "START",
        "processor",
        json!({"processorId": "5d0d7a3e-6f0b-4c7e-8e43-00000000000a"}),
    );
    let before = files();
    eventually("it works again", || (files() > before + 3).then_some(()));

    // What it tells of itself.
    let result = |done: &Value| {
        let id = done["id"].as_str().unwrap();
        fleet
            .get(&format!("/api/v1/operations/{id}/result"))
            .to_string()
    };
    ask("DESCRIBE", "manifest", json!({}));
    let told = result(&ask("DESCRIBE", "configuration", json!({})));
    assert!(told.contains("nifi.c2.agent.class"), "{told}");
    let told = result(&ask(
        "DESCRIBE",
        "metrics",
        json!({"metricsClass": "QueueMetrics"}),
    ));
    assert!(told.contains("between"), "{told}");
    assert!(result(&ask("DESCRIBE", "jstack", json!({}))).contains("state "));

    // Files beside the flow: one by one, and the class's.
    let file = fleet.dir.path().join("model.bin");
    std::fs::write(&file, "weights").unwrap();
    let made = upload(&fleet, &file, "model.bin");
    ask(
        "UPDATE",
        "asset",
        json!({"file": "one/model.bin", "resourceId": made["id"]}),
    );
    let asset = |name: &str| std::fs::read_to_string(agent.dir.join("asset").join(name));
    assert_eq!(asset("one/model.bin").unwrap(), "weights");
    let class = "/api/v1/classes/edge/resources";
    fleet.send(
        "PUT",
        class,
        &json!({"assign": [made["id"]], "unassign": []}),
    );
    eventually("the class's resources are there", || {
        (view()["resource_state"] == "synced").then_some(())
    });
    assert_eq!(asset("model.bin").unwrap(), "weights");
    fleet.send(
        "PUT",
        class,
        &json!({"assign": [], "unassign": [made["id"]]}),
    );
    eventually("and go again", || asset("model.bin").is_err().then_some(()));

    // A bundle.
    let transfer = ask("TRANSFER", "debug", json!({}));
    let fetched = fleet.dir.path().join("debug.tar.gz");
    let content = format!(
        "/api/v1/bundles/{}/content",
        transfer["id"].as_str().unwrap()
    );
    let answer = fleet.call(&["--output", fetched.to_str().unwrap()], &content);
    assert_eq!(answer.status, 200);
    let held = succeed(Command::new("tar").arg("-xzOf").arg(&fetched));
    assert!(
        held.contains("nifi.c2.agent.class=edge") && held.contains("calling the control plane")
    );
    assert!(!held.contains("PRIVATE KEY"));

    // New settings start it anew, under the same process id, and stay over a start by hand.
    let id = agent.status()["pid"].clone();
    let uptime = || agent.run(&["status", "--once", "--output", "json"]);
    let uptime = || serde_json::from_slice::<Value>(&uptime().stdout).ok()?["uptime_ms"].as_u64();
    let before = uptime().unwrap();
    ask(
        "UPDATE",
        "properties",
        json!({"nifi.c2.full.heartbeat": "true"}),
    );
    eventually("it starts anew", || {
        uptime().filter(|now| *now < before).map(drop)
    });
    assert_eq!(agent.status()["pid"], id);
    let told = result(&ask("DESCRIBE", "configuration", json!({})));
    assert!(
        told.contains("\"nifi.c2.full.heartbeat\":\"true\""),
        "{told}"
    );
    let refused = json!({"operation": "UPDATE", "operand": "properties",
        "args": {"nifi.c2.agent.heartbeat.period": "soon"}});
    let refused = fleet.done("native", &refused);
    assert_eq!(refused["state"], "failed", "{refused}");
    assert!(refused.to_string().contains("no duration"), "{refused}");
    let before = uptime().unwrap();
    ask("RESTART", "", json!({}));
    eventually("it restarts", || {
        uptime().filter(|now| *now < before).map(drop)
    });

    // A bad flow by force is refused by the agent itself, and the good one goes on.
    let bad = flow("bad", &out).replace("GenerateFlowFile", "GenerateFowl");
    std::fs::write(&path, bad).unwrap();
    let forced = fleet.call(
        &["--data-binary", &data],
        "/api/v1/classes/edge/flows?force=true",
    );
    assert_eq!(forced.status, 201, "{}", forced.body);
    eventually("the refusal is known", || {
        let operations = fleet.get("/api/v1/operations?agent=native&state=failed");
        operations
            .to_string()
            .contains("GenerateFowl")
            .then_some(())
    });
    assert_eq!(agent.status()["flow_name"], "first");
    let before = files();
    eventually("the good flow works", || {
        (files() > before + 3).then_some(())
    });

    let log = std::fs::read_to_string(&agent.log).unwrap();
    assert!(log.contains("operation of the control plane"), "{log}");
    running.stop();
    assert!(!agent.dir.join("agent.sock").exists());
}

#[test]
fn an_agent_is_seen_and_steered_by_its_own_commands() {
    let dir = crate::harness::folder();
    let out = dir.path().join("out");
    let path = dir.path().join("flow.yml");
    std::fs::write(&path, flow("mine", &out)).unwrap();
    let properties = dir.path().join("minifi.properties");
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    std::fs::write(
        &properties,
        format!(
            "nifi.metrics.publisher.class=PrometheusMetricsPublisher\n\
             nifi.metrics.publisher.PrometheusMetricsPublisher.port={port}\n\
             nifi.metrics.publisher.agent.identifier=a1\n\
             nifi.provenance.repository.class.name=ProvenanceRepository\n\
             nifi.provenance.repository.max.storage.time=1 hour\n"
        ),
    )
    .unwrap();
    // Longer than a socket's address may be.
    let data = dir.path().join("d".repeat(120));
    let agent = Agent {
        dir: data.clone(),
        log: PathBuf::new(),
    };
    let absent = agent.run(&["status", "--once"]);
    assert!(!absent.status.success());
    let mut command = Command::new(sibling("thalweg-agent"));
    command.arg("--data").arg(&data).arg("--flow").arg(&path);
    command.arg("--properties").arg(&properties);
    let running = Running::start(&mut command, &dir.path().join("agent.log"));
    eventually("the agent answers", || {
        agent
            .run(&["status", "--once"])
            .status
            .success()
            .then_some(())
    });
    let made = || {
        agent.status()["processors"][0]["flow_files_out"]
            .as_u64()
            .unwrap()
    };
    eventually("it works", || (made() > 2).then_some(()));
    use std::os::unix::fs::MetadataExt;
    let mode = std::fs::metadata(data.join("agent.sock")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);

    let page = text(&agent.run(&["status", "--once"]).stdout);
    assert!(
        page.contains("mine: running") && page.contains("between"),
        "{page}"
    );
    let shown = text(&agent.run(&["flow", "show"]).stdout);
    assert!(shown.contains("class: PutFile"), "{shown}");
    assert_eq!(text(&agent.run(&["flow", "stop", "make"]).stdout), "done\n");
    assert_eq!(
        text(&agent.run(&["flow", "stop", "make"]).stdout),
        "it was so already\n"
    );
    assert_eq!(agent.status()["processors"][0]["is_running"], false);
    let before = made();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(made(), before);
    assert_eq!(
        text(&agent.run(&["flow", "start", "make"]).stdout),
        "done\n"
    );
    eventually("it works again", || (made() > before).then_some(()));
    let wrong = agent.run(&["flow", "stop", "nobody"]);
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("no processor 'nobody'"));
    assert_eq!(text(&agent.run(&["flow", "stop"]).stdout), "done\n");
    assert_eq!(agent.status()["is_running"], false);
    assert_eq!(text(&agent.run(&["flow", "start"]).stdout), "done\n");

    // What became of a FlowFile, from its making to its end.
    let events = |arguments: &[&str]| {
        let all = [&["provenance", "--output", "json"], arguments].concat();
        let output = agent.run(&all);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["events"].clone()
    };
    let kinds = |events: &Value| -> Vec<String> {
        let events = events.as_array().unwrap().iter();
        events
            .map(|event| event["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    let last = events(&["--kind", "DROP", "--count", "1"]);
    let uuid = last[0]["uuid"].as_str().unwrap();
    let lineage = kinds(&events(&[uuid]));
    assert_eq!(
        lineage.first().map(String::as_str),
        Some("CREATE"),
        "{lineage:?}"
    );
    assert_eq!(
        lineage.last().map(String::as_str),
        Some("DROP"),
        "{lineage:?}"
    );
    let page = text(&agent.run(&["provenance", uuid]).stdout);
    assert!(
        page.contains("GenerateFlowFile") && page.contains("PutFile"),
        "{page}"
    );

    let bundle = dir.path().join("bundle.tar.gz");
    let output = agent.run(&["debug", "--to", bundle.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names = succeed(Command::new("tar").arg("tzf").arg(&bundle));
    assert!(
        names.contains("status.json") && names.contains("logs/recent.log"),
        "{names}"
    );

    let metrics = crate::harness::curl(&[&format!("http://127.0.0.1:{port}/metrics")]);
    assert_eq!(metrics.status, 200);
    let queue = "minifi_queue_size{metric_class=\"QueueMetrics\"";
    assert!(metrics.body.contains(queue), "{}", metrics.body);
    running.stop();
}
