//! One processor alone on a real repository: a test puts FlowFiles in, triggers it, looks at what
//! came out, at its state and its bulletins, and kills it in the middle.
//!
//! The processor is part of a whole flow that is checked as any other: a funnel feeds it and each
//! of its relationships leads to an end of its own. Nothing has a thread; the clock moves only
//! when told to.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, ManualClock, SystemClock, UnixMillis};
use bytes::Bytes;
use serde_json::json;
use tempfile::TempDir;

use crate::definition::Flow;
use crate::engine::{Engine, Ground, Prepared, Worker, trigger};
use crate::fail_point;
use crate::flowfile::Attributes;
use crate::processors::{self, Input, Next, ProcessorError};
use crate::repository::{RepositoryLimits, RepositoryOptions};
use crate::session::ProcessSession;

/// One processor on a repository in a folder of its own.
pub(crate) struct Rig {
    dir: TempDir,
    text: String,
    relationships: Vec<String>,
    clock: ManualClock,
    options: RepositoryOptions,
    limits: Option<RepositoryLimits>,
    running: Option<Running>,
    runtime: tokio::runtime::Runtime,
}

/// A FlowFile that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) uuid: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) content: Bytes,
}

struct Running {
    ground: Ground,
    engine: Engine,
    workers: Vec<Worker>,
}

impl Rig {
    /// The processor `kind` with these properties.
    pub(crate) fn new(kind: &str, properties: &[(&str, &str)]) -> Rig {
        Rig::try_new(kind, properties, json!({})).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, with `more` keys of the flow (`{"Controller Services": [...]}`); the error is
    /// what a user reads.
    pub(crate) fn try_new(
        kind: &str,
        properties: &[(&str, &str)],
        more: serde_json::Value,
    ) -> Result<Rig, String> {
        let known = processors::find(kind).unwrap_or_else(|| panic!("there is no {kind}"));
        let pairs = properties.iter();
        let pairs: Vec<(String, String)> = pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let relationships = known.relationships_of(&pairs);
        let text = flow_text(kind, properties, &relationships, known.input, more);
        let mut rig = Rig {
            dir: tempfile::tempdir().unwrap(),
            text,
            relationships,
            clock: ManualClock::at(SystemClock.now()),
            options: RepositoryOptions::default(),
            limits: None,
            running: None,
            runtime: super::runtime(),
        };
        rig.open()?;
        Ok(rig)
    }

    /// The time that the processor sees.
    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// Lets time go by.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Queues a FlowFile for the processor.
    pub(crate) fn put(&mut self, attributes: &[(&str, &str)], content: impl AsRef<[u8]>) {
        let content = Bytes::copy_from_slice(content.as_ref());
        let attributes = Arc::new(Attributes::new(attributes.iter().copied()));
        self.session(FEED, |session| {
            let mut flow_file = session.create(attributes);
            session.write(&mut flow_file, content)?;
            session.transfer(flow_file, 0);
            session.commit()
        });
    }

    /// Triggers the processor once; the error is its bulletin.
    pub(crate) fn trigger(&mut self) -> Result<Next, String> {
        let worker = self.worker(IT);
        trigger(&worker.context, worker.processor.as_mut()).map_err(|error| base::report(&error))
    }

    /// Triggers it until nothing waits for it and it does not ask to go on, as the engine would.
    pub(crate) fn run(&mut self) {
        self.trigger_until_done()
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same, until a trigger fails.
    fn trigger_until_done(&mut self) -> Result<(), String> {
        for _ in 0..TRIGGERS_MAX {
            let next = self.trigger()?;
            let goes_on = match next {
                Next::Again => true,
                Next::Scheduled | Next::ScheduledOr(_) => self.waiting() > 0,
                _ => false,
            };
            if !goes_on {
                return Ok(());
            }
        }
        panic!("it was triggered {TRIGGERS_MAX} times and still has something to do");
    }

    /// Lets the processor do its work, then kills the agent before the session is committed; what
    /// the processor committed itself stands.
    pub(crate) fn kill_before_commit(&mut self) {
        let ground = self.running().ground.clone();
        let Worker { context, processor } = self.worker(IT);
        let mut session =
            ProcessSession::new(&context.node, &ground.repository, ground.clock.as_ref());
        processor
            .trigger(context, &mut session)
            .unwrap_or_else(|error| panic!("{error}"));
        drop(session);
        drop(ground);
        self.kill();
    }

    /// Triggers the processor until it comes to the fail point `name`, and kills the agent there.
    pub(crate) fn kill_at(&mut self, name: &'static str) {
        assert!(self.kill_at_nth(name, 1), "it never came to '{name}'");
    }

    /// As [`Rig::kill_at`], when the processor comes there for the `nth` time; false when it has done
    /// all before, and lives.
    pub(crate) fn kill_at_nth(&mut self, name: &'static str, nth: u32) -> bool {
        fail_point::arm(Some((name, nth)));
        let attempt = AssertUnwindSafe(|| self.run());
        let outcome = std::panic::catch_unwind(attempt);
        fail_point::arm(None);
        match outcome {
            Ok(()) => return false,
            Err(panic) => match panic.downcast::<fail_point::Crash>() {
                Ok(crash) => assert_eq!(crash.0, name),
                Err(other) => std::panic::resume_unwind(other),
            },
        }
        self.kill();
        true
    }

    /// Has the repository refuse what the processor commits for the `nth` time from now on, as a full
    /// disk does; runs it on until all is done, and tells how many triggers failed by it.
    pub(crate) fn run_refused(&mut self, nth: u32) -> usize {
        fail_point::refuse(Some(("repository.before_flush", nth)));
        let mut failed = 0;
        while let Err(error) = self.trigger_until_done() {
            assert!(error.contains("no room"), "{error}");
            failed += 1;
        }
        fail_point::refuse(None);
        failed
    }

    /// Kills the agent and starts it again on its repository.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.ground.repository.close().unwrap();
        }
        self.open().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Kills the agent and starts it again on other kinds of repositories.
    pub(crate) fn kill_into(&mut self, options: RepositoryOptions) {
        self.options = options;
        self.kill();
    }

    /// Kills the agent and starts it again with another value of one of the properties.
    pub(crate) fn kill_with(&mut self, property: &str, value: &str) {
        let mut flow: serde_yaml_ng::Value = serde_yaml_ng::from_str(&self.text).unwrap();
        flow["Processors"][0]["Properties"][property] = value.into();
        self.text = serde_yaml_ng::to_string(&flow).unwrap();
        self.kill();
    }

    /// Kills the agent and starts it again on a repository with these limits.
    pub(crate) fn kill_with_limits(&mut self, limits: RepositoryLimits) {
        self.limits = Some(limits);
        self.kill();
    }

    /// FlowFiles that wait for the processor, penalized ones too.
    pub(crate) fn waiting(&self) -> u64 {
        self.queued("in")
    }

    /// FlowFiles that wait behind `relationship`.
    pub(crate) fn count(&self, relationship: &str) -> u64 {
        self.queued(&queue_id(relationship))
    }

    /// Takes away what came out by `relationship`, in its order.
    pub(crate) fn out(&mut self, relationship: &str) -> Vec<Out> {
        self.some(relationship, usize::MAX)
    }

    /// As that, no more than so many and a session's worth.
    pub(crate) fn some(&mut self, relationship: &str, count_max: usize) -> Vec<Out> {
        let known = self.relationships.iter().any(|known| known == relationship);
        assert!(known, "there is no relationship '{relationship}'");
        let mut all = Vec::new();
        self.session(&end_id(relationship), |session| {
            while all.len() < count_max {
                let flow_files = session.take(usize::MAX, u64::MAX);
                if flow_files.is_empty() {
                    break;
                }
                for flow_file in &flow_files {
                    let attributes = flow_file.all_attributes();
                    all.push(Out {
                        uuid: session.uuid(flow_file),
                        attributes: attributes
                            .iter()
                            .map(|(name, value)| (name.to_owned(), value.to_owned()))
                            .collect(),
                        content: session.read(flow_file)?,
                    });
                }
                session.remove_all(flow_files);
                session.commit()?;
            }
            Ok(())
        });
        all
    }

    /// The one FlowFile that came out by `relationship`.
    pub(crate) fn one(&mut self, relationship: &str) -> Out {
        let mut all = self.out(relationship);
        assert_eq!(all.len(), 1, "{all:?} came out by '{relationship}'");
        all.remove(0)
    }

    /// How many came out by each relationship, those with none left out.
    pub(crate) fn counts(&self) -> Vec<(&str, u64)> {
        let counts = self
            .relationships
            .iter()
            .map(|r| (r.as_str(), self.count(r)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Bytes of new content that the processor wrote.
    pub(crate) fn bytes_written(&self) -> u64 {
        let nodes = self.running().engine.nodes();
        let node = nodes.iter().find(|node| node.id == IT);
        node.map_or(0, |node| node.bytes_written)
    }

    /// The processor's durable state.
    pub(crate) fn state(&self) -> Bytes {
        let repository = &self.running().ground.repository;
        repository.state(IT).unwrap_or_default()
    }

    /// The texts of all bulletins so far.
    pub(crate) fn bulletins(&self) -> Vec<String> {
        let bulletins = &self.running().ground.bulletins;
        let all = bulletins.since(self.now(), Duration::MAX);
        all.into_iter().map(|bulletin| bulletin.message).collect()
    }

    fn open(&mut self) -> Result<(), String> {
        let mut ground = match self.limits {
            None => super::ground_with(self.dir.path(), &self.runtime, self.options),
            Some(limits) => {
                let options = RepositoryOptions {
                    limits,
                    ..self.options
                };
                super::ground_as(self.dir.path(), &self.runtime, options)
            }
        };
        ground.clock = Arc::new(self.clock.clone());
        let flow = Flow::parse(&self.text).map_err(|problems| problems.to_string())?;
        let prepared =
            Prepared::new(self.clock.now(), flow).map_err(|error| base::report(&error))?;
        let (engine, workers) = Engine::assemble(ground.clone(), prepared);
        self.running = Some(Running {
            ground,
            engine,
            workers,
        });
        Ok(())
    }

    fn queued(&self, id: &str) -> u64 {
        let queues = self.running().engine.queues();
        let queue = queues.iter().find(|queue| queue.id == id);
        queue.map_or(0, |queue| queue.flow_files)
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    fn worker(&mut self, id: &str) -> &mut Worker {
        let running = self.running.as_mut().expect("it runs");
        let mut workers = running.workers.iter_mut();
        workers
            .find(|worker| worker.context.id() == id)
            .unwrap_or_else(|| panic!("the flow has no '{id}'"))
    }

    /// Does something in a session of the processor `id`.
    fn session(
        &mut self,
        id: &str,
        act: impl FnOnce(&mut ProcessSession<'_>) -> Result<(), ProcessorError>,
    ) {
        let ground = self.running().ground.clone();
        let node = Arc::clone(&self.worker(id).context.node);
        let mut session = ProcessSession::new(&node, &ground.repository, ground.clock.as_ref());
        act(&mut session).unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Out {
    /// Its content as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is no text")
    }

    /// An attribute, empty when it has none of this name.
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

fn flow_text(
    kind: &str,
    properties: &[(&str, &str)],
    relationships: &[String],
    input: Input,
    mut more: serde_json::Value,
) -> String {
    let properties: serde_json::Map<String, serde_json::Value> = properties
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let mut processors =
        vec![json!({ "id": IT, "name": kind, "class": kind, "Properties": properties })];
    let mut funnels = Vec::new();
    let mut connections = Vec::new();
    if input != Input::Forbidden {
        funnels.push(json!({ "id": FEED }));
        connections.push(json!({
            "id": "in",
            "source id": FEED,
            "source relationship name": "success",
            "destination id": IT,
        }));
    }
    for relationship in relationships {
        let end = end_id(relationship);
        processors.push(json!({
            "id": end,
            "name": end,
            "class": "LogAttribute",
            "auto-terminated relationships list": ["success"],
        }));
        connections.push(json!({
            "id": queue_id(relationship),
            "source id": IT,
            "source relationship name": relationship,
            "destination id": end,
        }));
    }
    let mut text = json!({
        "MiNiFi Config Version": 3,
        "Flow Controller": { "name": "rig" },
        "Processors": processors,
        "Funnels": funnels,
        "Connections": connections,
    });
    if let (Some(text), Some(more)) = (text.as_object_mut(), more.as_object_mut()) {
        text.append(more);
    }
    // Not as JSON, which is read as NiFi's format.
    serde_yaml_ng::to_string(&text).unwrap()
}

/// The processor behind a relationship; it is never triggered.
fn end_id(relationship: &str) -> String {
    format!("end of {relationship}")
}

/// The connection to it.
fn queue_id(relationship: &str) -> String {
    format!("queue of {relationship}")
}

const IT: &str = "it";
const FEED: &str = "feed";

/// More triggers than any test needs.
const TRIGGERS_MAX: usize = 10_000;
