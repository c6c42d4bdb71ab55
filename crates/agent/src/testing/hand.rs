//! A flow that is driven by hand: its sessions without its threads.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base::{ManualClock, UnixMillis};
use tokio::runtime::Runtime;

use crate::definition::Flow;
use crate::engine::{Engine, EngineOptions, Failure, Ground, Prepared, Worker};
use crate::parameters::Outside;
use crate::repository::Repository;
use crate::session::ProcessSession;

/// The processors of a flow on a repository, none of them running.
pub(crate) struct HandFlow {
    repository: Arc<Repository>,
    clock: ManualClock,
    workers: Vec<Worker>,
    _engine: Engine,
}

impl HandFlow {
    /// Wires up the flow of `text` with what its connections held before.
    pub(crate) fn new(repository: Arc<Repository>, text: &str) -> HandFlow {
        let clock = ManualClock::at(UnixMillis(1_000_000));
        let ground = Ground {
            repository: Arc::clone(&repository),
            bulletins: Arc::default(),
            clock: Arc::new(clock.clone()),
            runtime: RUNTIME.handle().clone(),
            failure: Arc::<Failure>::default(),
            ports: crate::s2s::Ports::default(),
            options: EngineOptions::default(),
            outside: Outside::default(),
        };
        let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
        let prepared = Prepared::new(UnixMillis(0), flow).unwrap();
        let (engine, workers) = Engine::assemble(ground, prepared);
        HandFlow {
            repository,
            clock,
            workers,
            _engine: engine,
        }
    }

    /// A session of the processor of this name; each a second after the last.
    pub(crate) fn session(&self, name: &str) -> ProcessSession<'_> {
        self.clock.advance(Duration::from_secs(1));
        let mut workers = self.workers.iter();
        let worker = workers.find(|worker| worker.context.name() == name);
        let worker = worker.unwrap_or_else(|| panic!("no processor {name}"));
        ProcessSession::new(&worker.context.node, &self.repository, &self.clock)
    }

    /// The repository below.
    pub(crate) fn repository(&self) -> &Arc<Repository> {
        &self.repository
    }
}

/// One for all: nothing runs on it here.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(super::runtime);
