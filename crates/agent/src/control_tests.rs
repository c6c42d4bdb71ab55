//! The C2 client against a control plane in a few lines of HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::HumanDuration;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::control::{Control, ControlConfig};
use crate::supervisor::Supervisor;
use crate::testing::{ground, runtime, wait_until};

/// Keeps what it was sent, and answers heartbeats with what it was told.
#[derive(Clone)]
struct Plane(Arc<Shared>);

struct Shared {
    address: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    heartbeats: Vec<Value>,
    acknowledgements: Vec<Value>,
    operations: Vec<Value>,
    flow: String,
    refuses_acknowledgements: bool,
    is_away: bool,
}

impl Plane {
    fn start() -> Plane {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let plane = Plane(Arc::new(Shared {
            address,
            state: Mutex::default(),
        }));
        let acceptor = plane.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let plane = acceptor.clone();
                std::thread::spawn(move || plane.serve(stream));
            }
        });
        plane
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.state.lock())
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let (status, answer) = self.answer(&head, &body);
            let length = answer.len();
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{answer}");
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, head: &str, body: &[u8]) -> (&'static str, String) {
        self.with(|state| {
            if state.is_away {
                ("503 Service Unavailable", String::new())
            } else if head.contains("/heartbeat ") {
                state.heartbeats.push(serde_json::from_slice(body).unwrap());
                let operations = std::mem::take(&mut state.operations);
                (
                    "200 OK",
                    json!({ "requestedOperations": operations }).to_string(),
                )
            } else if head.contains("/acknowledge ") && state.refuses_acknowledgements {
                ("500 Internal Server Error", String::new())
            } else if head.contains("/acknowledge ") {
                state
                    .acknowledgements
                    .push(serde_json::from_slice(body).unwrap());
                ("200 OK", String::new())
            } else if head.contains("/flows/") {
                ("200 OK", state.flow.clone())
            } else {
                ("404 Not Found", String::new())
            }
        })
    }

    fn control(&self, supervisor: &Arc<Supervisor>) -> Control {
        let base = format!("http://{}/efm/api/c2-protocol", self.0.address);
        let config = ControlConfig {
            heartbeat_url: format!("{base}/heartbeat"),
            acknowledge_url: format!("{base}/acknowledge"),
            flow_base_url: base,
            identifier: "agent-1".to_owned(),
            class: Some("edge".to_owned()),
            period: HumanDuration(Duration::from_millis(20)),
        };
        Control::new(config, Arc::clone(supervisor)).unwrap()
    }

    fn state_of(&self, operation: &str) -> Option<String> {
        self.with(|state| {
            let ack = state
                .acknowledgements
                .iter()
                .find(|ack| ack["operationId"] == operation)?;
            Some(ack["operationState"]["state"].as_str().unwrap().to_owned())
        })
    }
}

fn operation(id: &str, kind: &str, operand: &str, args: Value) -> Value {
    json!({ "identifier": id, "operation": kind, "operand": operand, "args": args })
}

fn flow(name: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: {name}}}
Processors:
- {{name: make, class: GenerateFlowFile, scheduling period: 10 ms}}
- {{name: log, class: LogAttribute, auto-terminated relationships list: [success],
   Properties: {{Log Level: trace, FlowFiles To Log: 0}}}}
Connections:
- {{id: q, source name: make, source relationship name: success, destination name: log}}
"
    )
}

fn supervisor(dir: &Path, runtime: &tokio::runtime::Runtime) -> Arc<Supervisor> {
    Arc::new(Supervisor::new(ground(dir, runtime), dir))
}

#[test]
fn an_agent_introduces_itself_takes_a_flow_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    let supervisor = supervisor(dir.path(), &runtime);
    let control = runtime.spawn(plane.control(&supervisor).run());
    wait_until("three heartbeats came", || {
        plane.with(|state| state.heartbeats.len() >= 3)
    });
    plane.with(|state| {
        let (first, third) = (&state.heartbeats[0], &state.heartbeats[2]);
        assert_eq!(first["agentInfo"]["agentManifest"]["agentType"], "thalweg");
        assert_eq!(third["agentInfo"]["agentManifest"], Value::Null);
        assert_eq!(
            first["agentInfo"]["agentManifestHash"],
            third["agentInfo"]["agentManifestHash"]
        );
        assert_eq!(third["agentInfo"]["identifier"], "agent-1");
        assert_eq!(third["agentInfo"]["agentClass"], "edge");
        assert_eq!(third["flowInfo"]["runStatus"], "STOPPED");
        assert!(
            third["deviceInfo"]["systemInfo"]["physicalMem"]
                .as_i64()
                .unwrap()
                > 0
        );
        state.flow = flow("first");
        let args = json!({ "flowId": "f1", "relativeFlowUrl": "/flows/f1", "persist": "true" });
        state.operations = vec![
            operation("o1", "DESCRIBE", "manifest", json!({})),
            operation("o2", "UPDATE", "configuration", args.clone()),
            operation("o3", "UPDATE", "configuration", args),
            operation("o4", "CLEAR", "connection", json!({})),
        ];
    });
    wait_until("all are acknowledged", || plane.state_of("o4").is_some());
    for (id, state) in [
        ("o1", "FULLY_APPLIED"),
        ("o2", "FULLY_APPLIED"),
        ("o3", "NO_OPERATION"),
        ("o4", "OPERATION_NOT_UNDERSTOOD"),
    ] {
        assert_eq!(plane.state_of(id).as_deref(), Some(state), "{id}");
    }
    plane.with(|state| {
        let described = &state.acknowledgements[0];
        assert!(described["agentInfo"]["agentManifest"]["bundles"].is_array());
    });
    wait_until("the flow's figures are shown", || {
        plane.with(|state| {
            let flow = &state.heartbeats.last().unwrap()["flowInfo"];
            flow["flowId"] == "f1"
                && flow["runStatus"] == "RUNNING"
                && flow["queues"]["q"]["sizeMax"] == 2_000
                && flow["processorStatuses"][0]["flowFilesOut"]
                    .as_i64()
                    .unwrap_or(0)
                    > 0
        })
    });
    // A bad flow is refused with its mistakes, and the good one goes on.
    plane.with(|state| {
        state.flow = flow("bad").replace("GenerateFlowFile", "GenerateFowl");
        let args = json!({ "flowId": "f2", "location": "/flows/f2" });
        state.operations = vec![operation("o5", "UPDATE", "configuration", args)];
    });
    wait_until("the refusal came", || plane.state_of("o5").is_some());
    assert_eq!(plane.state_of("o5").as_deref(), Some("NOT_APPLIED"));
    let details = plane.with(|state| state.acknowledgements.last().unwrap().to_string());
    assert!(
        details.contains("there is no processor 'GenerateFowl'"),
        "{details}"
    );
    assert!(supervisor.is_running());
    assert_eq!(supervisor.flow_id().as_deref(), Some("f1"));
    control.abort();
    supervisor.stop();
}

#[test]
fn acknowledgements_outlive_the_agent_and_a_plane_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let plane = Plane::start();
    plane.with(|state| {
        state.refuses_acknowledgements = true;
        state.flow = flow("first");
        let args = json!({ "flowId": "f1", "flowUrl": "/flows/f1" });
        state.operations = vec![operation("o1", "UPDATE", "configuration", args)];
    });
    let first = supervisor(dir.path(), &runtime);
    let control = runtime.spawn(plane.control(&first).run());
    wait_until("the flow runs", || first.is_running());
    let out = || first.nodes()[0].flow_files_out;
    plane.with(|state| state.is_away = true);
    let before = out();
    wait_until("the flow goes on alone", || out() > before + 3);
    control.abort();
    wait_until("the client is gone", || control.is_finished());
    first.stop();
    first.repository().close().unwrap();
    drop(first);
    plane.with(|state| (state.is_away, state.refuses_acknowledgements) = (false, false));
    let second = supervisor(dir.path(), &runtime);
    second.start(None).unwrap();
    let control = runtime.spawn(plane.control(&second).run());
    wait_until("the old acknowledgement came", || {
        plane.state_of("o1").is_some()
    });
    assert_eq!(plane.state_of("o1").as_deref(), Some("FULLY_APPLIED"));
    assert_eq!(second.flow_id().as_deref(), Some("f1"));
    control.abort();
    second.stop();
}
