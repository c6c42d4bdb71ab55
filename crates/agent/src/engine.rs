//! Runs a flow: a thread for each task of each processor, asleep unless there is something to do.
//!
//! Before each run a task asks its [`schedule`]. Whatever is missing rings the processor's
//! [`Signal`](crate::signal::Signal) when it comes, so an idle flow wakes for nothing but its
//! timers.
//!
//! A processor whose incoming connection is part of a loop and full itself may run in spite of a
//! full outgoing one, or retry loops would lock up.
//!
//! Concurrent tasks are several processors made from one definition, each on a thread of its own,
//! on the same queues: a session takes from a queue under its lock, and gives back what it took
//! alone. Only kinds that say so ([`Processor::is_concurrent`]) are made more than once.

mod context;
mod node;
mod schedule;
mod steering;
mod task;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Clock, UnixMillis};
use parking_lot::Mutex;

use crate::AgentError;
use crate::bulletins::Bulletins;
use crate::connection::Connection;
use crate::definition::Flow;
use crate::limits::PROCESSOR_STACK_BYTES;
use crate::parameters::Outside;
use crate::processors::{Processor, Settings};
use crate::repository::Repository;
use crate::s2s::Ports;
use crate::services::Services;

use context::Wake;
pub use context::{Context, Waker};
pub(crate) use node::Node;
pub use node::{NodeStatus, QueueStatus};
pub(crate) use task::is_passing;
#[cfg(test)]
pub(crate) use task::trigger;

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
        is_held: impl Fn(&Node) -> bool,
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

    /// Whether there is one that nobody waited for yet.
    pub(crate) fn is_reported(&self) -> bool {
        self.error.lock().is_some()
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
