//! Runs a flow: a thread for each task of each processor, asleep unless there is something to do.
//!
//! Before each run a task asks its [`schedule`]. Whatever is missing rings the processor's
//! [`Signal`] when it comes, so an idle flow wakes for nothing but its timers.
//!
//! A processor whose incoming connection is part of a loop and full itself may run in spite of a
//! full outgoing one, or retry loops would lock up.
//!
//! Concurrent tasks are several processors made from one definition, each on a thread of its own,
//! on the same queues: a session takes from a queue under its lock, and gives back what it took
//! alone. Only kinds that say so ([`Processor::is_concurrent`]) are made more than once.

mod schedule;
mod steering;
mod task;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::{Clock, UnixMillis};
use parking_lot::Mutex;

use crate::AgentError;
use crate::bulletins::{Bulletins, Level, Source};
use crate::connection::{Available, Connection};
use crate::definition::{Flow, ProcessorDefinition, Scheduling};
use crate::limits::PROCESSOR_STACK_BYTES;
use crate::parameters::Outside;
use crate::processors::{Input, Processor, Settings};
use crate::repository::Repository;
use crate::s2s::Ports;
use crate::services::Services;
use crate::signal::{Heard, Signal};

#[cfg(test)]
pub(crate) use task::{is_passing, trigger};

/// What a flow runs on; outlives it.
#[derive(Clone)]
pub struct Ground {
    /// The repository.
    pub repository: Arc<Repository>,
    /// The bulletin board.
    pub bulletins: Arc<Bulletins>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where processors may run futures.
    pub runtime: tokio::runtime::Handle,
    /// Set when the repository failed for good, and rung.
    pub failure: Arc<Failure>,
    /// Ports of the root group that site-to-site peers can reach.
    pub ports: Ports,
    /// How flows are run.
    pub options: EngineOptions,
    /// What flows may look at outside of their texts.
    pub outside: Outside,
}

/// How flows are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Rest of a processor that panicked.
    pub administrative_yield: Duration,
    /// How long a session of an event-driven processor may span triggers.
    pub event_driven_slice: Duration,
}

/// Why the agent cannot go on.
#[derive(Debug, Default)]
pub struct Failure {
    error: Mutex<Option<AgentError>>,
    happened: tokio::sync::Notify,
}

/// A running flow.
pub struct Engine {
    flow: Flow,
    nodes: Vec<Arc<Node>>,
    connections: Vec<Arc<Connection>>,
    /// Kept for as long as the flow runs.
    _services: Services,
    threads: Vec<JoinHandle<()>>,
    ground: Ground,
}

/// A flow whose processors are made but do not run.
pub struct Prepared {
    flow: Flow,
    services: Services,
    /// One for each task of each processor, in the flow's order.
    processors: Vec<Vec<Box<dyn Processor>>>,
}

/// A processor with all that it needs to run.
pub(crate) struct Worker {
    pub(crate) context: Context,
    pub(crate) processor: Box<dyn Processor>,
}

/// A processor's place in a running flow.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) group_id: String,
    pub(crate) inputs: Vec<Arc<Connection>>,
    /// Connections by the index of the relationship; none where it is auto-terminated.
    pub(crate) outputs: Vec<Vec<Arc<Connection>>>,
    pub(crate) penalization: Duration,
    pub(crate) stats: NodeStats,
    definition: ProcessorDefinition,
    wake: Arc<Wake>,
    /// Tasks that are at work.
    active: AtomicU32,
}

/// What a processor did since the flow started.
#[derive(Debug, Default)]
pub(crate) struct NodeStats {
    pub(crate) flow_files_in: AtomicU64,
    pub(crate) flow_files_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) invocations: AtomicU64,
    pub(crate) nanos: AtomicU64,
}

/// What a processor sees of the agent.
pub struct Context {
    pub(crate) node: Arc<Node>,
    ground: Ground,
    heard: Mutex<Heard>,
}

/// Wakes a processor from outside of its flow.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wake>);

#[derive(Debug, Default)]
struct Wake {
    signal: Arc<Signal>,
    is_woken: AtomicBool,
    is_stopping: AtomicBool,
    /// Whether it rests until it is told to go on.
    is_held: AtomicBool,
}

/// A processor's numbers, for the control plane.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are C2's own")]
pub struct NodeStatus {
    pub id: String,
    pub name: String,
    pub kind: &'static str,
    pub group_id: String,
    pub flow_files_in: u64,
    pub flow_files_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub invocations: u64,
    pub nanos: u64,
    pub is_active: bool,
    pub is_running: bool,
}

/// A connection's numbers, for the control plane.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are C2's own")]
pub struct QueueStatus {
    pub id: String,
    pub name: String,
    pub flow_files: u64,
    pub flow_files_max: u64,
    pub bytes: u64,
    pub bytes_max: u64,
}

impl Prepared {
    /// Makes the processors of `flow`; nothing runs yet.
    ///
    /// Errors: `Start`, when a processor's settings do not fit together.
    pub fn new(now: UnixMillis, flow: Flow) -> Result<Self, AgentError> {
        let services = Services::make(now, &flow.services)?;
        let mut processors = Vec::new();
        for definition in &flow.processors {
            let settings = Settings::new(now, definition).with_services(&services);
            let make = || {
                let made = (definition.kind.make)(&settings);
                made.map_err(|reason| AgentError::Start {
                    processor: definition.name.clone(),
                    reason,
                })
            };
            let mut tasks = vec![make()?];
            let tasks_max = definition.tasks_max as usize;
            if tasks_max > 1 && !tasks[0].is_concurrent() {
                let (path, kind) = (&definition.path, definition.kind.name);
                tracing::warn!(
                    path,
                    tasks_max,
                    "{kind} runs as one task: it cannot be shared"
                );
            }
            while tasks.len() < tasks_max && tasks[0].is_concurrent() {
                tasks.push(make()?);
            }
            processors.push(tasks);
        }
        Ok(Prepared {
            flow,
            services,
            processors,
        })
    }

    /// The flow, without what was made of it.
    pub fn flow(self) -> Flow {
        self.flow
    }

    /// The flow's own id, empty where it has none.
    pub fn flow_id(&self) -> String {
        self.flow.id.clone()
    }
}

impl Engine {
    /// Starts a prepared flow on what its connections held before.
    pub fn start(ground: Ground, prepared: Prepared) -> Result<Engine, AgentError> {
        Engine::start_held(ground, prepared, |_| false)
    }

    /// As [`Self::start`], but the processors that `is_held` names rest from the beginning.
    pub(crate) fn start_held(
        ground: Ground,
        prepared: Prepared,
        is_held: impl Fn(&str) -> bool,
    ) -> Result<Engine, AgentError> {
        let (mut engine, workers) = Engine::assemble(ground, prepared);
        engine.hold(is_held);
        for Worker { context, processor } in workers {
            let thread = std::thread::Builder::new()
                .name(context.name().chars().take(THREAD_NAME_CHARS).collect())
                .stack_size(PROCESSOR_STACK_BYTES)
                .spawn(move || task::run(&context, processor));
            match thread {
                Ok(thread) => engine.threads.push(thread),
                Err(source) => {
                    engine.stop();
                    return Err(AgentError::System {
                        action: "start a processor's thread",
                        source,
                    });
                }
            }
        }
        Ok(engine)
    }

    /// Puts a prepared flow on its connections; nothing runs yet.
    pub(crate) fn assemble(ground: Ground, prepared: Prepared) -> (Engine, Vec<Worker>) {
        let Prepared {
            flow,
            services,
            processors,
        } = prepared;
        let wakes: HashMap<&str, Arc<Wake>> = flow
            .processors
            .iter()
            .map(|p| (p.id.as_str(), Arc::<Wake>::default()))
            .collect();
        let cycles = cycles(&flow);
        let connections: Vec<Arc<Connection>> = flow
            .connections
            .iter()
            .map(|definition| {
                let source = Arc::clone(&wakes[definition.source.as_str()].signal);
                let destination = Arc::clone(&wakes[definition.destination.as_str()].signal);
                let in_cycle = cycles.contains(&definition.id);
                Arc::new(Connection::new(
                    definition.clone(),
                    in_cycle,
                    source,
                    destination,
                ))
            })
            .collect();
        let nodes: Vec<Arc<Node>> = flow
            .processors
            .iter()
            .map(|p| {
                Arc::new(Node::new(
                    p,
                    &connections,
                    Arc::clone(&wakes[p.id.as_str()]),
                ))
            })
            .collect();
        ground.repository.activate(&connections);
        let workers = nodes.iter().zip(processors).flat_map(|(node, tasks)| {
            tasks.into_iter().map(|processor| Worker {
                context: Context {
                    node: Arc::clone(node),
                    ground: ground.clone(),
                    heard: Mutex::default(),
                },
                processor,
            })
        });
        let workers = workers.collect();
        let engine = Engine {
            flow,
            nodes,
            connections,
            _services: services,
            threads: Vec::new(),
            ground,
        };
        (engine, workers)
    }

    /// Stops every processor after what it is doing, and parks what is queued.
    pub fn stop(mut self) -> Flow {
        for node in &self.nodes {
            node.wake.is_stopping.store(true, Ordering::Release);
            node.wake.signal.ring();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a processor's thread ended by a panic");
            }
        }
        self.ground.repository.park(&self.connections);
        self.flow
    }

    /// The flow that runs.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Each processor's numbers.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.nodes.iter().map(|node| node.status()).collect()
    }

    /// Each connection's numbers.
    pub fn queues(&self) -> Vec<QueueStatus> {
        let status = |connection: &Arc<Connection>| QueueStatus {
            id: connection.definition.id.clone(),
            name: connection.definition.name.clone(),
            flow_files: connection.count(),
            flow_files_max: connection.definition.flow_files_max,
            bytes: connection.bytes(),
            bytes_max: connection.definition.bytes_max,
        };
        self.connections.iter().map(status).collect()
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            administrative_yield: Duration::from_secs(30),
            event_driven_slice: Duration::from_millis(500),
        }
    }
}

impl Failure {
    /// The first failure stays.
    pub(crate) fn report(&self, error: AgentError) {
        self.error.lock().get_or_insert(error);
        self.happened.notify_one();
    }

    /// Waits for a failure.
    pub async fn wait(&self) -> AgentError {
        loop {
            if let Some(error) = self.error.lock().take() {
                return error;
            }
            self.happened.notified().await;
        }
    }
}

impl Context {
    /// The processor's id.
    pub fn id(&self) -> &str {
        &self.node.id
    }

    /// The processor's name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Whether any connection leads to the processor.
    pub fn has_incoming(&self) -> bool {
        !self.node.inputs.is_empty()
    }

    /// The ports that site-to-site peers can reach.
    pub fn ports(&self) -> &Ports {
        &self.ground.ports
    }

    /// What tells, at any time, whether no outgoing connection is full.
    pub(crate) fn has_room(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let node = Arc::clone(&self.node);
        move || !node.has_no_room()
    }

    /// What tells, at any time, whether FlowFiles wait for the processor.
    pub(crate) fn has_waiting(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let node = Arc::clone(&self.node);
        move || node.inputs.iter().any(|input| input.count() > 0)
    }

    /// What tells, at any time, whether the processor should come to an end soon.
    pub(crate) fn stop_look(&self) -> impl Fn() -> bool + Send + use<> {
        let wake = Arc::clone(&self.node.wake);
        move || wake.is_stopping.load(Ordering::Acquire)
    }

    /// Whether the processor should come to an end soon.
    pub fn is_stopping(&self) -> bool {
        self.node.wake.is_stopping.load(Ordering::Acquire)
    }

    /// Sleeps, but not beyond a stop; says whether the whole time went by.
    pub fn sleep(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        while !self.is_stopping() {
            if Instant::now() >= deadline {
                return true;
            }
            self.rest_until(Some(deadline));
        }
        false
    }

    /// Sleeps until it is rung or `deadline`.
    fn rest_until(&self, deadline: Option<Instant>) {
        let mut heard = self.heard.lock();
        self.node.wake.signal.sleep(&mut heard, deadline);
    }

    /// What wakes this processor out of [`Next::Woken`].
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.node.wake))
    }

    /// Where futures run.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.ground.runtime
    }

    /// Puts up a bulletin.
    pub fn post(&self, level: Level, message: &str) {
        if level < self.node.definition.bulletin_level {
            tracing::debug!(processor = self.node.name, "{message}");
            return;
        }
        let source = Source {
            id: &self.node.id,
            name: &self.node.name,
            group_id: &self.node.group_id,
        };
        self.ground
            .bulletins
            .post(self.ground.clock.now(), level, source, message);
    }
}

impl Waker {
    /// Wakes it.
    pub fn wake(&self) {
        self.0.is_woken.store(true, Ordering::Release);
        self.0.signal.ring();
    }
}

impl Node {
    fn new(p: &ProcessorDefinition, all: &[Arc<Connection>], wake: Arc<Wake>) -> Self {
        let is_input = |c: &&Arc<Connection>| c.definition.destination == p.id;
        let outputs = p.relationships().into_iter().map(|relationship| {
            let is_output = |c: &&Arc<Connection>| {
                c.definition.source == p.id && c.definition.relationships.contains(&relationship)
            };
            all.iter().filter(is_output).cloned().collect()
        });
        Node {
            id: p.id.clone(),
            name: p.name.clone(),
            group_id: p.group_id.clone(),
            inputs: all.iter().filter(is_input).cloned().collect(),
            outputs: outputs.collect(),
            penalization: p.penalization,
            stats: NodeStats::default(),
            definition: p.clone(),
            wake,
            active: AtomicU32::new(0),
        }
    }

    /// What kind of processor it is.
    pub(crate) fn kind_name(&self) -> &'static str {
        self.definition.kind.name
    }

    /// Whether it runs on input only.
    fn has_input(&self) -> bool {
        match self.definition.kind.input {
            Input::Required => true,
            Input::Forbidden => false,
            // A funnel that nothing leads to has nothing to do, ever.
            Input::Allowed => {
                !self.inputs.is_empty() || self.definition.scheduling == Scheduling::EventDriven
            }
        }
    }

    fn input(&self, now: UnixMillis) -> Available {
        let mut best = Available::Nothing;
        for input in &self.inputs {
            match (input.available(now), best) {
                (Available::Now, _) => return Available::Now,
                (Available::At(at), Available::At(before)) if at >= before => {}
                (Available::At(at), _) => best = Available::At(at),
                (Available::Nothing, _) => {}
            }
        }
        best
    }

    /// Whether an outgoing connection is full, and no full loop must be let out.
    fn has_no_room(&self) -> bool {
        let is_full = |connection: &Arc<Connection>| connection.is_full();
        self.outputs.iter().flatten().any(is_full)
            && !self
                .inputs
                .iter()
                .any(|input| input.in_cycle && input.is_full())
    }

    fn status(&self) -> NodeStatus {
        let stats = &self.stats;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeStatus {
            id: self.id.clone(),
            name: self.name.clone(),
            kind: self.definition.kind.name,
            group_id: self.group_id.clone(),
            flow_files_in: load(&stats.flow_files_in),
            flow_files_out: load(&stats.flow_files_out),
            bytes_in: load(&stats.bytes_in),
            bytes_out: load(&stats.bytes_out),
            bytes_read: load(&stats.bytes_read),
            bytes_written: load(&stats.bytes_written),
            invocations: load(&stats.invocations),
            nanos: load(&stats.nanos),
            is_active: self.active.load(Ordering::Relaxed) > 0,
            is_running: !self.wake.is_held.load(Ordering::Relaxed),
        }
    }
}

/// Connections whose destination leads back to their source.
fn cycles(flow: &Flow) -> HashSet<String> {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    for connection in &flow.connections {
        next.entry(&connection.source)
            .or_default()
            .push(&connection.destination);
    }
    let reaches = |from: &str, to: &str| {
        let mut seen = HashSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if seen.insert(at.to_owned()) {
                open.extend(next.get(at).into_iter().flatten());
            }
        }
        false
    };
    let in_cycle = flow
        .connections
        .iter()
        .filter(|c| reaches(&c.destination, &c.source));
    in_cycle.map(|c| c.id.clone()).collect()
}

/// Linux shows so much of a thread's name.
const THREAD_NAME_CHARS: usize = 15;

#[cfg(test)]
mod tests;
