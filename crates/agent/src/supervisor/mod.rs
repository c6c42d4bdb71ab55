//! Keeps one flow running: the file's at first, then whatever the control plane gives.
//!
//! # Rules
//!
//! - A new flow is read, checked and made before the old one is stopped.
//! - FlowFiles queued in a connection stay with its id over an update.
//! - A flow that does not start is followed by the old one.
//! - An applied flow that cannot be read any more is set aside, and the file's runs.
//! - An applied flow is written to the data folder before it counts as applied, and is what the
//!   next start runs.
//! - A flow runs unless an operator stopped it; an update lifts that.
//! - While the disk is nearly full the flow's sources rest, whatever flow it is and whoever starts
//!   it; all else goes on, since what is sent on is what makes room.
//! - While the repository's file system is read-only the whole flow rests, and nothing starts or
//!   changes it.
//! - Who stops or starts something lifts only a stop of its own.

mod applied;
mod asked;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::Clock;
use parking_lot::Mutex;

use crate::AgentError;
use crate::bulletins::{Bulletins, Level, Source};
use crate::definition::Flow;
use crate::engine::{Engine, Ground, Node, NodeStatus, Prepared, QueueStatus, is_passing};
use crate::limits::FLOW_STOP_WAIT_DEFAULT;
use crate::processors::Settings;
use crate::repository::Repository;
use crate::services::UpdatePolicy;

/// Runs the current flow.
pub(crate) struct Supervisor {
    ground: Ground,
    dir: PathBuf,
    times: StopTimes,
    started: Instant,
    /// Held while the flow is changed, so that changes come one after another; what only looks
    /// does not wait for it.
    changing: Mutex<()>,
    running: Mutex<Running>,
}

/// How long stopping may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopTimes {
    /// At the agent's end: for what is queued to flow out, with the sources stopped.
    pub(crate) drain: Duration,
    /// For what processors are doing to come to its end.
    pub(crate) grace: Duration,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Updated {
    Applied,
    Same,
}

/// Why a flow does not run, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// All of it is stopped.
    Operator,
    /// Its sources rest: the disk is nearly full.
    Disk,
    /// All of it is stopped: the repository's file system is read-only. Only a start of the agent
    /// lifts this.
    ReadOnly,
}

#[derive(Default)]
struct Running {
    engine: Option<Engine>,
    /// The flow that will run when nothing stops it any more.
    resting: Option<Flow>,
    flow_id: Option<String>,
    /// Where the flow's text lies.
    text: Option<PathBuf>,
    stops: BTreeSet<Stop>,
    /// Processors that an operator stopped.
    held: BTreeSet<String>,
    is_paused: bool,
}

impl Default for StopTimes {
    fn default() -> Self {
        StopTimes {
            drain: Duration::ZERO,
            grace: FLOW_STOP_WAIT_DEFAULT,
        }
    }
}

impl Supervisor {
    pub(crate) fn new(ground: Ground, dir: &Path, times: StopTimes) -> Self {
        Supervisor {
            ground,
            dir: dir.to_owned(),
            times,
            started: Instant::now(),
            changing: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// Starts the flow that was applied last, else the one in `file`, else none.
    pub(crate) fn start(&self, file: Option<&Path>) -> Result<(), AgentError> {
        let _changing = self.changing.lock();
        let applied = match self.applied() {
            Err(error) if file.is_some() && applied::is_damage(&error) => {
                self.set_aside(&error);
                None
            }
            applied => applied?,
        };
        if let Some(applied) = applied {
            let path = self.applied_path();
            let flow_id = applied.flow_id.clone();
            match self.start_text(&applied.text, &path, flow_id) {
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
        self.start_text(&text, file, None)
    }

    /// Replaces the flow, if the new one can run.
    pub(crate) fn update(
        &self,
        flow_id: Option<String>,
        text: &str,
    ) -> Result<Updated, AgentError> {
        let _changing = self.changing.lock();
        if flow_id.is_some() && self.has(flow_id.as_deref()) {
            return Ok(Updated::Same);
        }
        self.running.lock().check_writable()?;
        let prepared = self.prepare(text, "the control plane's answer")?;
        let flow_id = flow_id.or_else(|| Some(prepared.flow_id()).filter(|id| !id.is_empty()));
        let was_running = self.is_running();
        let before = self.stop_engine();
        let is_full = self.running.lock().stops.contains(&Stop::Disk);
        let is_held = |node: &Node| is_full && node.is_source();
        let started = Engine::start_held(self.ground.clone(), prepared, is_held);
        let started = started.and_then(|engine| match self.persist(flow_id.clone(), text) {
            Ok(()) => Ok(engine),
            Err(error) => {
                engine.stop();
                Err(error)
            }
        });
        match started {
            Ok(engine) => {
                let mut running = self.running.lock();
                running.engine = Some(engine);
                running.resting = None;
                running.flow_id = flow_id;
                running.text = Some(self.applied_path());
                running.stops.remove(&Stop::Operator);
                running.held.clear();
                running.is_paused = false;
                Ok(Updated::Applied)
            }
            Err(error) => {
                self.resume_after_failure(before, was_running);
                Err(error)
            }
        }
    }

    /// Stops the flow, or its sources, for `reason`; what is queued stays in the repository.
    pub(crate) fn stop_for(&self, reason: Stop) -> Updated {
        let _changing = self.changing.lock();
        if !self.running.lock().stops.insert(reason) {
            return Updated::Same;
        }
        if reason == Stop::Disk {
            self.running.lock().hold();
            return Updated::Applied;
        }
        let before = self.stop_engine();
        self.running.lock().resting = before;
        Updated::Applied
    }

    /// Lifts the stop of `reason`; the flow starts if it does not run and nothing else stops it.
    ///
    /// Errors: there is no flow, or it does not start.
    pub(crate) fn start_for(&self, reason: Stop) -> Result<Updated, AgentError> {
        let _changing = self.changing.lock();
        let was_stopped = self.running.lock().stops.remove(&reason);
        if reason == Stop::Disk {
            // Whoever stopped the whole flow starts it, too.
            self.running.lock().hold();
            return Ok(match was_stopped {
                true => Updated::Applied,
                false => Updated::Same,
            });
        }
        if self.is_running() {
            return Ok(Updated::Same);
        }
        self.running.lock().check_writable()?;
        let Some(flow) = self.running.lock().resting.take() else {
            return Err(AgentError::Refused("there is no flow to start".to_owned()));
        };
        match self.start_flow(flow.clone()) {
            Ok(()) => Ok(Updated::Applied),
            Err(error) => {
                let mut running = self.running.lock();
                running.resting = Some(flow);
                if was_stopped {
                    running.stops.insert(reason);
                }
                Err(error)
            }
        }
    }

    /// Ends the flow with the agent: first what is queued may flow out, then what processors do
    /// may end. What is queued after that stays in the repository.
    pub(crate) fn stop(&self) {
        let _changing = self.changing.lock();
        let Some(engine) = self.running.lock().engine.take() else {
            return;
        };
        if !self.times.drain.is_zero() && !engine.drain(self.times.drain) {
            tracing::warn!("queues were not empty at the end of the drain; they are kept");
        }
        if engine.ask_to_stop(self.times.grace) {
            engine.stop();
        } else {
            // What it does not commit is as if it had not begun.
            let processors = engine.busy().join(", ");
            tracing::warn!(
                processors,
                "processors are left behind: they did not stop in time"
            );
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.lock().engine.is_some()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.running.lock().is_paused
    }

    /// Whether there is a flow at all, running or stopped.
    pub(crate) fn has_flow(&self) -> bool {
        let running = self.running.lock();
        running.engine.is_some() || running.resting.is_some()
    }

    pub(crate) fn stops(&self) -> Vec<Stop> {
        self.running.lock().stops.iter().copied().collect()
    }

    pub(crate) fn flow_id(&self) -> Option<String> {
        let running = self.running.lock();
        let own = running.flow().map(|flow| flow.id.clone());
        running.flow_id.clone().or(own.filter(|id| !id.is_empty()))
    }

    /// What the flow says of settings that the control plane may change.
    ///
    /// Errors: the flow's word for it cannot be read.
    pub(crate) fn update_policy(&self) -> Result<Option<UpdatePolicy>, AgentError> {
        let running = self.running.lock();
        let mut services = running.flow().into_iter().flat_map(|flow| &flow.services);
        let Some(service) = services.find(|service| service.name == POLICY) else {
            return Ok(None);
        };
        let settings = Settings::of_service(self.ground.clock.now(), service);
        let policy = UpdatePolicy::new(&settings);
        policy.map(Some).map_err(AgentError::Setting)
    }

    pub(crate) fn flow_name(&self) -> Option<String> {
        self.running.lock().flow().map(|flow| flow.name.clone())
    }

    /// The text of the flow, and where it lies.
    pub(crate) fn flow_text(&self) -> Option<(PathBuf, String)> {
        let path = self.running.lock().text.clone()?;
        if path != self.applied_path() {
            return read(&path).ok().map(|text| (path, text));
        }
        let applied = self.applied().ok().flatten()?;
        Some((path, applied.text))
    }

    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        let running = self.running.lock();
        running
            .engine
            .as_ref()
            .map(Engine::nodes)
            .unwrap_or_default()
    }

    pub(crate) fn queues(&self) -> Vec<QueueStatus> {
        let running = self.running.lock();
        running
            .engine
            .as_ref()
            .map(Engine::queues)
            .unwrap_or_default()
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.ground.repository
    }

    /// Says that the repository failed, unless it may do better when asked again.
    pub(crate) fn note_failure(&self, error: AgentError) {
        if !is_passing(&error) {
            self.ground.failure.report(error);
        }
    }

    pub(crate) fn bulletins(&self) -> &Bulletins {
        &self.ground.bulletins
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.ground.clock.as_ref()
    }

    /// Since the agent started.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    #[cfg(test)]
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Puts up a bulletin of the agent itself.
    pub(crate) fn post(&self, level: Level, message: &str) {
        let source = Source {
            id: CONTROLLER,
            name: CONTROLLER,
            group_id: "",
        };
        let now = self.ground.clock.now();
        self.ground.bulletins.post(now, level, source, message);
    }

    /// Whether the flow of this id is the current one.
    fn has(&self, flow_id: Option<&str>) -> bool {
        let running = self.running.lock();
        running.flow().is_some() && running.flow_id.as_deref() == flow_id
    }

    fn stop_engine(&self) -> Option<Flow> {
        let (engine, resting) = {
            let mut running = self.running.lock();
            (running.engine.take(), running.resting.take())
        };
        let Some(engine) = engine else { return resting };
        if !engine.ask_to_stop(self.times.grace) {
            let processors = engine.busy().join(", ");
            let message = format!("the flow cannot be stopped: {processors} did not end in time");
            self.post(Level::Warning, &message);
        }
        Some(engine.stop())
    }

    /// The flow of before goes on, as if nothing had been tried.
    fn resume_after_failure(&self, before: Option<Flow>, was_running: bool) {
        let Some(flow) = before else { return };
        if !was_running || self.running.lock().is_stopped() {
            self.running.lock().resting = Some(flow);
            return;
        }
        if let Err(error) = self.start_flow(flow.clone()) {
            self.running.lock().resting = Some(flow);
            self.ground.failure.report(error);
        }
    }

    fn start_flow(&self, flow: Flow) -> Result<(), AgentError> {
        let prepared = Prepared::new(self.ground.clock.now(), flow)?;
        let mut running = self.running.lock();
        let is_held = |node: &Node| running.rests(node);
        let engine = Engine::start_held(self.ground.clone(), prepared, is_held)?;
        running.engine = Some(engine);
        Ok(())
    }

    fn start_text(
        &self,
        text: &str,
        path: &Path,
        flow_id: Option<String>,
    ) -> Result<(), AgentError> {
        let prepared = self.prepare(text, &path.display().to_string())?;
        let mut running = self.running.lock();
        let (engine, resting) = match running.is_stopped() {
            true => (None, Some(prepared.flow())),
            false => {
                let is_held = |node: &Node| running.rests(node);
                let engine = Engine::start_held(self.ground.clone(), prepared, is_held)?;
                (Some(engine), None)
            }
        };
        running.engine = engine;
        running.resting = resting;
        running.flow_id = flow_id;
        running.text = Some(path.to_owned());
        if let Some(engine) = &running.engine {
            let flow = engine.flow();
            tracing::info!(
                flow = flow.name,
                processors = flow.processors.len(),
                connections = flow.connections.len(),
                "flow started"
            );
        }
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
}

impl Running {
    fn flow(&self) -> Option<&Flow> {
        let running = self.engine.as_ref().map(Engine::flow);
        running.or(self.resting.as_ref())
    }

    /// Whether the whole flow is to stand still.
    fn is_stopped(&self) -> bool {
        self.stops.contains(&Stop::Operator) || self.stops.contains(&Stop::ReadOnly)
    }

    /// Errors: nothing that has to be durable can be done now.
    fn check_writable(&self) -> Result<(), AgentError> {
        match self.stops.contains(&Stop::ReadOnly) {
            true => Err(AgentError::Refused(
                "the repository's file system is read-only; the flow goes on when it is writable"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Whether a processor rests while the flow runs.
    fn rests(&self, node: &Node) -> bool {
        self.is_paused
            || self.held.contains(&node.id)
            || (node.is_source() && self.stops.contains(&Stop::Disk))
    }

    /// Has the processors rest that should, and lets the others go on.
    fn hold(&self) {
        if let Some(engine) = &self.engine {
            engine.hold(|node| self.rests(node));
        }
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

/// The service that says which settings may be changed, as C++ agents look for it.
const POLICY: &str = "C2UpdatePolicy";

/// The agent's own name among its components, as C++ agents have it.
pub(crate) const CONTROLLER: &str = "FlowController";
