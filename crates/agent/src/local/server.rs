//! The socket's listening end.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Answer, Question, StatusView, address, lineage};
use crate::AgentError;
use crate::limits::{QUESTION_BYTES_MAX, QUESTION_WAIT, QUESTIONS_AT_ONCE_MAX};
use crate::properties::Told;
use crate::secrets;
use crate::supervisor::{Stop, Supervisor, Updated};

/// The listening socket; its file goes with it.
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
}

/// Whom questions are about.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) told: Arc<Told>,
}

/// What is sent back.
struct Reply {
    answer: Answer,
    /// Bytes after the line.
    rest: Vec<u8>,
}

impl Server {
    /// Listens in the data folder, on a runtime. One agent at a time has a data folder, so a
    /// socket that is there was left behind.
    pub(crate) fn bind(dir: &Path) -> Result<Server, AgentError> {
        let (_folder, address) = address(dir)?;
        let path = dir.join(super::SOCKET);
        let listen = || -> io::Result<UnixListener> {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let socket = UnixSocket::new_stream()?;
            socket.bind(&address)?;
            // Nobody can connect before it listens.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            socket.listen(QUESTIONS_AT_ONCE_MAX as u32)
        };
        let listener = listen().map_err(|source| AgentError::File {
            action: "listen on",
            path: path.clone(),
            source,
        })?;
        Ok(Server { listener, path })
    }

    /// Answers until it is dropped.
    pub(crate) async fn run(self, served: Served) {
        let places = Arc::new(Semaphore::new(QUESTIONS_AT_ONCE_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no question can be taken");
                    tokio::time::sleep(QUESTION_WAIT).await;
                    continue;
                }
            };
            let served = served.clone();
            tokio::spawn(async move {
                if let Err(error) = converse(stream, served).await {
                    tracing::debug!(%error, "a question was not answered");
                }
                drop(place);
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What stays is removed by the next start.
        let _ = fs::remove_file(&self.path);
    }
}

async fn converse(stream: UnixStream, served: Served) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let mut bounded = (&mut stream).take(QUESTION_BYTES_MAX as u64);
    timeout(QUESTION_WAIT, bounded.read_until(b'\n', &mut line)).await??;
    let reply = match serde_json::from_slice::<Question>(&line) {
        // Changes of a flow wait for its processors.
        Ok(question) => tokio::task::spawn_blocking(move || answer(&question, &served))
            .await
            .map_err(io::Error::other)?,
        Err(error) => Reply::error(format!("this is no question: {error}")),
    };
    let mut bytes = serde_json::to_vec(&reply.answer)?;
    bytes.push(b'\n');
    bytes.extend(reply.rest);
    timeout(QUESTION_WAIT, stream.get_mut().write_all(&bytes)).await??;
    stream.get_mut().shutdown().await
}

fn answer(question: &Question, served: &Served) -> Reply {
    let supervisor = &served.supervisor;
    let replied = match question {
        Question::Status => Ok(Reply::ok(json!(StatusView::of(supervisor)))),
        Question::Flow => Ok(Reply::ok(match supervisor.flow_text() {
            Some((path, text)) => json!({
                "from": path.display().to_string(),
                "flow": secrets::masked_flow(&text),
            }),
            None => json!(null),
        })),
        Question::Stop { processor: None } => Ok(changed(supervisor.stop_for(Stop::Operator))),
        Question::Start { processor: None } => supervisor.start_for(Stop::Operator).map(changed),
        Question::Stop {
            processor: Some(name),
        } => supervisor.set_processor(name, false).map(changed),
        Question::Start {
            processor: Some(name),
        } => supervisor.set_processor(name, true).map(changed),
        Question::Provenance(question) => {
            lineage::answer(supervisor.repository(), question).map(|view| Reply::ok(json!(view)))
        }
        Question::Debug => crate::bundle::make(supervisor, &served.told).map(|bundle| Reply {
            answer: Answer::Ok(json!({ "bytes": bundle.len() })),
            rest: bundle,
        }),
    };
    replied.unwrap_or_else(|error| Reply::error(base::report(&error)))
}

fn changed(updated: Updated) -> Reply {
    Reply::ok(json!({ "changed": updated == Updated::Applied }))
}

impl Reply {
    fn ok(value: serde_json::Value) -> Reply {
        Reply {
            answer: Answer::Ok(value),
            rest: Vec::new(),
        }
    }

    fn error(reason: String) -> Reply {
        Reply {
            answer: Answer::Error(reason),
            rest: Vec::new(),
        }
    }
}
