//! A control plane in a few lines of HTTP: it keeps what it was sent, and answers heartbeats with
//! what it was told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::HumanDuration;
use c2::{Acknowledge, Heartbeat};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::super::{Control, ControlConfig, Means, Root};
use crate::assets::Assets;
use crate::properties::Told;
use crate::services::SslFiles;
use crate::supervisor::Supervisor;
use crate::testing::wait_until;

#[derive(Clone)]
pub(super) struct Plane(Arc<Shared>);

struct Shared {
    address: String,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) heartbeats: Vec<Heartbeat>,
    pub(super) acknowledgements: Vec<Acknowledge>,
    pub(super) operations: Vec<Value>,
    pub(super) flow: String,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// Whether whoever asks for a file waits.
    pub(super) holds_files: bool,
    pub(super) uploads: Vec<Vec<u8>>,
    /// Heads of requests, as they came.
    pub(super) heads: Vec<String>,
    /// How acknowledgements are answered, if not well.
    pub(super) refuses_acknowledgements: Option<&'static str>,
    pub(super) is_away: bool,
}

/// An agent's side of C2 at work.
pub(super) struct Client {
    pub(super) restart: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Plane {
    pub(super) fn start() -> Plane {
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

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.state.lock())
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.address)
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
            if head.to_ascii_lowercase().contains("content-encoding: gzip") {
                let mut plain = Vec::new();
                let mut unpacker = flate2::read::GzDecoder::new(body.as_slice());
                unpacker.read_to_end(&mut plain).unwrap();
                body = plain;
            }
            let (status, answer) = self.answer(&head, body);
            let length = answer.len();
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            if stream
                .write_all(&[text.as_bytes(), &answer].concat())
                .is_err()
            {
                return;
            }
        }
    }

    fn answer(&self, head: &str, body: Vec<u8>) -> (&'static str, Vec<u8>) {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        while path.contains("/files/") && self.with(|state| state.holds_files) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.with(|state| {
            state.heads.push(head.to_owned());
            if state.is_away {
                return ("503 Service Unavailable", Vec::new());
            }
            match path.rsplit('/').next().unwrap_or_default() {
                "heartbeat" => {
                    state.heartbeats.push(Heartbeat::parse(&body).unwrap());
                    let operations = std::mem::take(&mut state.operations);
                    let answer = json!({ "requestedOperations": operations });
                    ("200 OK", answer.to_string().into_bytes())
                }
                "acknowledge" => match state.refuses_acknowledgements {
                    Some(status) => (status, Vec::new()),
                    None => {
                        let ack = Acknowledge::parse(&body).unwrap();
                        state.acknowledgements.push(ack);
                        ("200 OK", Vec::new())
                    }
                },
                name if path.contains("/flows/") && !name.is_empty() => {
                    ("200 OK", state.flow.clone().into_bytes())
                }
                name if path.contains("/files/") => match state.files.get(name) {
                    Some(bytes) => ("200 OK", bytes.clone()),
                    None => ("404 Not Found", Vec::new()),
                },
                _ if path.contains("/bundles/") => {
                    state.uploads.push(body);
                    ("200 OK", Vec::new())
                }
                _ => ("404 Not Found", Vec::new()),
            }
        })
    }

    pub(super) fn config(&self) -> ControlConfig {
        let base = self.url("/efm/api/c2-protocol");
        ControlConfig {
            heartbeat_url: format!("{base}/heartbeat"),
            acknowledge_url: format!("{base}/acknowledge"),
            flow_base_url: base,
            identifier: "agent-1".to_owned(),
            class: Some("edge".to_owned()),
            period: HumanDuration(Duration::from_millis(20)),
            is_full: false,
            roots: vec![Root::Device, Root::Agent, Root::Flow, Root::Assets],
            bulletins_max: usize::MAX,
            is_gzip: false,
            is_minimized: false,
            asset_wait: Duration::from_secs(30),
            tls: SslFiles::default(),
        }
    }

    /// An agent that calls this control plane.
    pub(super) fn client(
        &self,
        supervisor: &Arc<Supervisor>,
        runtime: &tokio::runtime::Runtime,
    ) -> Client {
        self.client_with(self.config(), Told::default(), supervisor, runtime)
    }

    pub(super) fn client_with(
        &self,
        config: ControlConfig,
        told: Told,
        supervisor: &Arc<Supervisor>,
        runtime: &tokio::runtime::Runtime,
    ) -> Client {
        let restart = Arc::new(Notify::new());
        let dir = supervisor.dir().join("asset");
        let means = Means {
            supervisor: Arc::clone(supervisor),
            assets: Arc::new(Assets::open(dir)),
            told: Arc::new(told),
            restart: Arc::clone(&restart),
        };
        let control = Control::new(config, means).unwrap();
        Client {
            restart,
            task: runtime.spawn(control.run()),
        }
    }

    /// Asks for an operation and waits for its acknowledgement: the state, and all of it.
    pub(super) fn ask(
        &self,
        id: &str,
        kind: &str,
        operand: &str,
        args: Value,
    ) -> (String, Acknowledge) {
        self.with(|state| state.operations.push(operation(id, kind, operand, args)));
        self.acknowledged(id)
    }

    pub(super) fn acknowledged(&self, id: &str) -> (String, Acknowledge) {
        wait_until(&format!("{id} is acknowledged"), || self.find(id).is_some());
        let ack = self.find(id).unwrap();
        (ack.state().as_str().to_owned(), ack)
    }

    fn find(&self, id: &str) -> Option<Acknowledge> {
        self.with(|state| {
            let mut acks = state.acknowledgements.iter();
            acks.find(|ack| ack.operation() == Some(id)).cloned()
        })
    }

    /// The newest heartbeat that came after this.
    pub(super) fn next_heartbeat(&self) -> Heartbeat {
        let before = self.with(|state| state.heartbeats.len());
        wait_until("a heartbeat comes", || {
            self.with(|state| state.heartbeats.len() > before + 1)
        });
        self.with(|state| state.heartbeats.last().unwrap().clone())
    }
}

impl Client {
    /// Ends the calls, as the end of the process does.
    pub(super) fn end(self) {
        self.task.abort();
        wait_until("the client is gone", || self.task.is_finished());
    }
}

pub(super) fn operation(id: &str, kind: &str, operand: &str, args: Value) -> Value {
    json!({ "identifier": id, "operation": kind, "operand": operand, "args": args })
}
