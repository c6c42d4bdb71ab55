//! Keeps one flow running: the file's at first, then whatever the control plane gives.
//!
//! # Rules
//!
//! - A new flow is read, checked and made before the old one is stopped.
//! - FlowFiles queued in a connection stay with its id over an update.
//! - A flow that does not start is followed by the old one.
//! - An applied flow is written to the data folder before it counts as applied, and is what the
//!   next start runs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::bulletins::Bulletins;
use crate::definition::{Flow, seal};
use crate::engine::{Engine, Ground, NodeStatus, Prepared, QueueStatus};
use crate::parameters::SecretKey;
use crate::repository::Repository;

/// Runs the current flow.
pub(crate) struct Supervisor {
    ground: Ground,
    dir: PathBuf,
    running: Mutex<Running>,
}

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Updated {
    Applied,
    Same,
}

#[derive(Default)]
struct Running {
    engine: Option<Engine>,
    flow_id: Option<String>,
}

/// The flow that the control plane gave last, as the data folder keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct AppliedFlow {
    version: u8,
    flow_id: Option<String>,
    applied_ms: i64,
    text: String,
}

impl Supervisor {
    pub(crate) fn new(ground: Ground, dir: &Path) -> Self {
        Supervisor {
            ground,
            dir: dir.to_owned(),
            running: Mutex::default(),
        }
    }

    /// Starts the flow that was applied last, else the one in `file`, else none.
    pub(crate) fn start(&self, file: Option<&Path>) -> Result<(), AgentError> {
        if let Some(applied) = self.applied()? {
            let origin = self.applied_path().display().to_string();
            let flow_id = applied.flow_id.clone();
            match self.start_text(&applied.text, &origin, flow_id) {
                Ok(()) => return Ok(()),
                // The file's flow may still run; the control plane gives another one.
                Err(error) if file.is_some() => {
                    tracing::error!(error = base::report(&error), "the last flow does not start");
                }
                Err(error) => return Err(error),
            }
        }
        let Some(file) = file else { return Ok(()) };
        let text = read(file)?;
        self.start_text(&text, &file.display().to_string(), None)
    }

    /// Replaces the flow, if the new one can run.
    pub(crate) fn update(
        &self,
        flow_id: Option<String>,
        text: &str,
    ) -> Result<Updated, AgentError> {
        let mut running = self.running.lock();
        if flow_id.is_some() && running.flow_id == flow_id && running.engine.is_some() {
            return Ok(Updated::Same);
        }
        let prepared = self.prepare(text, "the control plane's answer")?;
        let flow_id = flow_id.or_else(|| Some(prepared.flow_id()).filter(|id| !id.is_empty()));
        let before = running.engine.take().map(Engine::stop);
        let started = Engine::start(self.ground.clone(), prepared).and_then(|engine| {
            match self.persist(flow_id.clone(), text) {
                Ok(()) => Ok(engine),
                Err(error) => {
                    engine.stop();
                    Err(error)
                }
            }
        });
        match started {
            Ok(engine) => {
                running.engine = Some(engine);
                running.flow_id = flow_id;
                Ok(Updated::Applied)
            }
            Err(error) => {
                if let Some(before) = before {
                    let again = Prepared::new(self.ground.clock.now(), before)
                        .and_then(|prepared| Engine::start(self.ground.clone(), prepared));
                    match again {
                        Ok(engine) => running.engine = Some(engine),
                        Err(again) => self.ground.failure.report(again),
                    }
                }
                Err(error)
            }
        }
    }

    /// Stops the flow; what is queued stays in the repository.
    pub(crate) fn stop(&self) {
        if let Some(engine) = self.running.lock().engine.take() {
            engine.stop();
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.lock().engine.is_some()
    }

    pub(crate) fn flow_id(&self) -> Option<String> {
        let running = self.running.lock();
        let own = running
            .engine
            .as_ref()
            .map(|engine| engine.flow().id.clone());
        running.flow_id.clone().or(own.filter(|id| !id.is_empty()))
    }

    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        self.running
            .lock()
            .engine
            .as_ref()
            .map(Engine::nodes)
            .unwrap_or_default()
    }

    pub(crate) fn queues(&self) -> Vec<QueueStatus> {
        self.running
            .lock()
            .engine
            .as_ref()
            .map(Engine::queues)
            .unwrap_or_default()
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.ground.repository
    }

    pub(crate) fn bulletins(&self) -> &Bulletins {
        &self.ground.bulletins
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.ground.clock.as_ref()
    }

    fn start_text(
        &self,
        text: &str,
        origin: &str,
        flow_id: Option<String>,
    ) -> Result<(), AgentError> {
        let prepared = self.prepare(text, origin)?;
        let engine = Engine::start(self.ground.clone(), prepared)?;
        let flow = engine.flow();
        tracing::info!(
            flow = flow.name,
            processors = flow.processors.len(),
            connections = flow.connections.len(),
            "flow started"
        );
        *self.running.lock() = Running {
            engine: Some(engine),
            flow_id,
        };
        Ok(())
    }

    fn prepare(&self, text: &str, origin: &str) -> Result<Prepared, AgentError> {
        let surroundings = self.ground.outside.surroundings()?;
        let flow = Flow::load(text, &surroundings).map_err(|problems| AgentError::Flow {
            origin: origin.to_owned(),
            problems,
        })?;
        for note in &flow.notes.0 {
            tracing::info!(path = note.path, "{}", note.message);
        }
        Prepared::new(self.ground.clock.now(), flow)
    }

    fn applied(&self) -> Result<Option<AppliedFlow>, AgentError> {
        let path = self.applied_path();
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| AgentError::File {
                action: "read",
                path,
                source: source.into(),
            })
    }

    /// The text with its secrets sealed; it was read before, so it can be read.
    fn sealed(&self, text: &str) -> Result<String, AgentError> {
        let key = match &self.ground.outside.key {
            Some(key) => key.clone(),
            // The next start finds it there.
            None => SecretKey::make_in_folder(&self.dir)?,
        };
        let sealed = seal(text, &key).map_err(AgentError::Setting)?;
        Ok(sealed.unwrap_or_else(|| text.to_owned()))
    }

    /// Writes the applied flow whole or not at all.
    fn persist(&self, flow_id: Option<String>, text: &str) -> Result<(), AgentError> {
        let applied = AppliedFlow {
            version: 1,
            flow_id,
            applied_ms: self.ground.clock.now().0,
            text: self.sealed(text)?,
        };
        let path = self.applied_path();
        let partial = path.with_extension("part");
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(&partial)?;
            file.write_all(&serde_json::to_vec_pretty(&applied)?)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        write().map_err(|source| AgentError::File {
            action: "write",
            path: path.clone(),
            source,
        })
    }

    fn applied_path(&self) -> PathBuf {
        self.dir.join("applied-flow.json")
    }
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, AgentError> {
    fs::read_to_string(path).map_err(|source| AgentError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}
