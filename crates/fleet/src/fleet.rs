//! The fleet: the registry with its clock, its store and its write-behind.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use access::CertificateFacts;
use base::Clock;
use bytes::Bytes;
use c2::{Acknowledge, Glance, Heartbeat, HeartbeatResponse};
use metrics::{counter, histogram};
use parking_lot::Mutex;
use sql::{Place, SqlError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::asking::Requests;
use crate::audit::Audit;
use crate::config::{FleetConfig, SecretUrl};
use crate::error::FleetError;
use crate::events::alerts::Alerts;
use crate::events::{self, Ages, Event, EventFilter, EventView};
use crate::expiry::{Own, ShownCertificate};
use crate::feed::{self, CatchingUp};
use crate::files::Files;
use crate::flow::FlowShape;
use crate::forward::{self, Forward, Topics};
use crate::kept::{Kept, Samples};
use crate::lease::{self, Lease};
use crate::limits;
use crate::manifest;
use crate::observe::{self, Beat, Counters, Meters};
use crate::operation::Policy;
use crate::registry::{Batch, Beaten, Handout, Registry, Source};
use crate::resource;
use crate::rights::Rights;
use crate::seal::Sealer;
use crate::store::{Noted, Store, Written};
use crate::tables::Tables;
use crate::writer::{self, Signals};

/// The C2 server. Share it in an `Arc`; close it to write what is left.
#[derive(Debug)]
pub struct Fleet {
    pub(crate) inner: Arc<Inner>,
    stop: CancellationToken,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What requests and the write-behind share.
pub(crate) struct Inner {
    pub(crate) config: Arc<FleetConfig>,
    /// See [`Registry::samples`].
    pub(crate) samples: Arc<Samples>,
    pub(crate) counters: Counters,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) signals: Signals,
    pub(crate) requests: Requests,
    pub(crate) tables: Tables,
    pub(crate) audit: Audit,
    pub(crate) files: Files,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) policy: Policy,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Store,
    /// What only one node may do.
    pub(crate) lease: Lease,
    pub(crate) ages: Ages,
    /// Our own certificates, by whoever serves the ports.
    pub(crate) own: Mutex<(Own, Option<OwnCertificates>)>,
    pub(crate) alerts: Alerts,
    pub(crate) forward: Arc<Forward>,
    pub(crate) meters: Mutex<Meters>,
    /// The number up to which other nodes' changes are known.
    pub(crate) feed: AtomicI64,
    pub(crate) catching_up: CatchingUp,
    /// Publications one after the other, so that versions count without gaps.
    pub(crate) publishing: tokio::sync::Mutex<()>,
    /// One write at a time, so that generations commit in order.
    pub(crate) writing: tokio::sync::Mutex<()>,
    texts: Mutex<FlowTexts>,
}

/// Where the agent reached the fleet, for the addresses in operations, and how.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    /// Scheme and host with port.
    pub origin: String,
    /// The path before `/heartbeat`.
    pub prefix: String,
    /// The certificate that its connection showed.
    pub certificate: Option<ShownCertificate>,
}

/// Which agents a list wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentFilter {
    pub class: Option<String>,
    /// Whether it has a class.
    pub parked: Option<bool>,
    pub state: Option<String>,
    pub flow_state: Option<String>,
    pub resource_state: Option<String>,
    /// Its manifest: the key, or an agent's hash.
    pub manifest: Option<String>,
    /// A part of its identifier or its host's name.
    pub search: Option<String>,
    pub after: Option<String>,
    pub limit: usize,
    /// What its caller may see.
    pub rights: Rights,
}

/// Tells the ports' certificates, by the ports' names.
pub type OwnCertificates = Box<dyn Fn() -> Vec<(&'static str, CertificateFacts)> + Send>;

#[derive(Default)]
struct FlowTexts {
    texts: HashMap<Arc<str>, Bytes>,
    bytes: usize,
}

impl Fleet {
    /// Opens the registry, in `dir`/`fleet.db` or where the configuration says, and starts the
    /// write-behind and what nodes share.
    pub async fn open(
        dir: &Path,
        config: FleetConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Fleet>, FleetError> {
        observe::describe();
        let address = config.database.as_ref().map(SecretUrl::reveal);
        let place = Place::read(address, &dir.join("fleet.db"))?;
        let node = uuid::Uuid::new_v4().as_u64_pair().0 >> 1;
        let store = Store::open(&place, node.cast_signed()).await?;
        let tables = Tables::open(store.database().clone()).await?;
        let audit = Audit::open(store.database().clone()).await?;
        let key = config.key_file.clone();
        let sealer = Arc::new(Sealer::open(&key.unwrap_or_else(|| dir.join("key")))?);
        let requests = Requests::new(tables.clone(), sealer.clone());
        let everything = store.everything().await?;
        let feed = AtomicI64::new(everything.seq);
        let config = Arc::new(config);
        let mut registry = Registry::new(config.clone());
        registry.adopt(everything);
        let asked = requests.all().await?.into_iter().map(Arc::new);
        asked.for_each(|request| registry.keep_request(request));
        resource::read(&tables).await?.put(&mut registry);
        tracing::debug!(
            agents = registry.agents.len(),
            "opened the fleet's registry"
        );
        let config_ages = config.events_max_age.clone();
        let webhook = config.alerts_webhook.as_ref().map(SecretUrl::reveal);
        let alerts = Alerts::new(webhook.map(str::to_owned));
        let forward = Arc::new(Forward::new(config.forward.clone()));
        let inner = Arc::new(Inner {
            policy: config.policy(),
            samples: registry.samples.clone(),
            counters: Counters::new(),
            config,
            registry: Mutex::new(registry),
            signals: Signals::default(),
            requests,
            files: Files::new(tables.clone()),
            tables,
            audit,
            sealer,
            clock,
            store,
            lease: Lease::default(),
            ages: Ages(config_ages),
            own: Mutex::default(),
            alerts,
            forward,
            meters: Mutex::default(),
            feed,
            catching_up: CatchingUp::default(),
            publishing: tokio::sync::Mutex::new(()),
            writing: tokio::sync::Mutex::new(()),
            texts: Mutex::default(),
        });
        inner.files.clean(inner.clock.now()).await?;
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(writer::run(inner.clone(), stop.clone())),
            tokio::spawn(feed::run(inner.clone(), stop.clone())),
            tokio::spawn(lease::run(inner.clone(), stop.clone())),
            tokio::spawn(events::alerts::run(inner.clone(), stop.clone())),
        ];
        Ok(Arc::new(Fleet {
            inner,
            stop,
            tasks: Mutex::new(tasks),
        }))
    }

    /// Stops the write-behind, writes what is left and closes the store.
    pub async fn close(&self) {
        self.stop_tasks().await;
        if let Err(error) = self.inner.flush().await {
            tracing::error!(error = %base::report(&error), "cannot write what agents said last");
        }
        self.inner.store.close().await;
    }

    /// Stops without writing what is left, as a crash would; for tests.
    #[cfg(test)]
    pub(crate) async fn stop_writing(&self) {
        self.stop_tasks().await;
        self.inner.store.close().await;
    }

    async fn stop_tasks(&self) {
        self.stop.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.await;
        }
    }

    /// Runs a task of this fleet until it is closed.
    pub(crate) fn keep(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().push(tokio::spawn(task));
    }

    /// Tells tasks of this fleet when to end.
    pub(crate) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The configuration.
    pub fn config(&self) -> &FleetConfig {
        &self.inner.config
    }

    /// Has agents' messages go to these topics, as far as the configuration says.
    pub fn forward_to(&self, topics: Arc<dyn Topics>) {
        if self.inner.config.forward.is_on() {
            let forward = self.inner.forward.clone();
            self.keep(forward::run(forward, topics, self.stopped()));
        }
    }

    /// Has the fleet tell when our own certificates are about to end.
    pub fn watch_certificates(&self, certificates: OwnCertificates) {
        self.inner.own.lock().1 = Some(certificates);
    }

    /// The text of a flow, with its shape and digest.
    pub async fn flow_text(&self, id: &str) -> Result<(Bytes, FlowShape, String), FleetError> {
        let inner = &self.inner;
        let unknown = || FleetError::Unknown {
            what: "flow",
            name: id.to_owned(),
            list: "/api/v1/classes",
        };
        let flow = inner
            .registry
            .lock()
            .flows
            .get(id)
            .cloned()
            .ok_or_else(unknown)?;
        let kept = inner.texts.lock().texts.get(id).cloned();
        let text = match kept {
            Some(text) => text,
            None => {
                let text = inner.store.flow_text(id).await?.ok_or_else(unknown)?;
                inner.texts.lock().keep(flow.id.clone(), text.clone());
                text
            }
        };
        Ok((text, flow.shape, flow.sha256.clone()))
    }

    /// The text of a manifest, without what is one agent's own; by its key, or by an agent's hash.
    pub async fn manifest_text(&self, hash: &str) -> Result<Bytes, FleetError> {
        let key = self.inner.registry.lock().manifest_named(hash);
        let text = match key {
            Some(key) => self.inner.store.manifest_text(&key).await?,
            None => None,
        };
        text.ok_or_else(|| unknown_manifest(hash))
    }

    /// Takes a heartbeat at a glance, where it says nothing new and asks for nothing; `None`: it has
    /// to be read whole.
    pub(crate) fn beat(
        &self,
        glance: &Glance<'_>,
        text: &[u8],
        certificate: Option<ShownCertificate>,
    ) -> Option<Beaten> {
        let inner = &self.inner;
        let began = std::time::Instant::now();
        let kept = Kept::at_a_glance(glance, text, &inner.samples);
        let now = inner.clock.now();
        let beaten = {
            let mut registry = inner.registry.lock();
            registry.beat(now, &inner.policy, glance, certificate, kept)?
        };
        inner.signals.change();
        let beat = Beat {
            at: now,
            bytes: text.len(),
            took: began.elapsed(),
        };
        let limits = &inner.config.metrics;
        let mut meters = inner.meters.lock();
        meters.count(limits, &beaten.agent, beaten.class.as_ref(), beat);
        Some(beaten)
    }

    /// Takes a heartbeat, which came as `text`, and answers it.
    pub(crate) async fn heartbeat(
        &self,
        heartbeat: Heartbeat,
        text: &[u8],
        reached: &Reached,
    ) -> Result<HeartbeatResponse, FleetError> {
        let inner = &self.inner;
        let began = std::time::Instant::now();
        let manifest = manifest::brought(heartbeat.agent_info.as_ref(), |by| {
            inner.registry.lock().known_manifest(heartbeat.sender(), by)
        });
        inner.learn_from(&heartbeat).await;
        let now = inner.clock.now();
        let source = Source {
            text,
            certificate: reached.certificate,
        };
        let taken =
            inner
                .registry
                .lock()
                .heartbeat(now, &inner.policy, heartbeat, source, manifest)?;
        if !inner.settle(taken.wait_for).await {
            return Err(FleetError::NotStored);
        }
        let Some(agent) = taken.agent else {
            return Ok(HeartbeatResponse::default());
        };
        inner.learn_requests_of(&agent).await;
        let (mut handouts, generation) =
            inner
                .registry
                .lock()
                .hand_out(inner.clock.now(), &inner.policy, &agent);
        // What may go out once only must be known to be out, or a crash sends it again; and that there
        // is a place is known when the other nodes are.
        let must_be_written = |handout: &Handout| !handout.repeats || handout.takes_place;
        if handouts.iter().any(must_be_written) {
            let is_written = inner.settle(Some(generation)).await;
            let registry = inner.registry.lock();
            handouts.retain(|handout| {
                !must_be_written(handout) || is_written && registry.is_handed_out(&handout.id)
            });
        }
        let mut response = HeartbeatResponse::default();
        for handout in handouts {
            if let Some(operation) = inner.operation_for(&agent, reached, &handout).await {
                response.requested_operations.push(operation);
            }
        }
        let beat = Beat {
            at: now,
            bytes: text.len(),
            took: began.elapsed(),
        };
        let limits = &inner.config.metrics;
        let mut meters = inner.meters.lock();
        meters.count(limits, &agent, taken.class.as_ref(), beat);
        Ok(response)
    }

    /// Takes an acknowledge: durable when this returns.
    pub(crate) async fn acknowledge(&self, ack: Acknowledge) -> Result<(), FleetError> {
        let inner = &self.inner;
        let manifest = manifest::brought(ack.agent_info.as_ref(), |by| {
            inner.registry.lock().known_manifest(None, by)
        });
        if let Some(operation) = ack.operation() {
            inner.learn_of(operation).await?;
        }
        let now = inner.clock.now();
        let (taken, result) = inner.registry.lock().acknowledge(now, &ack, manifest)?;
        counter!("thalweg_fleet_acknowledges_total", "result" => result.as_str()).increment(1);
        tracing::debug!(operation = ack.operation(), state = %ack.state(),
            result = result.as_str(), "took an acknowledge");
        if result.is_news() {
            inner.keep_result(&ack).await?;
        }
        if inner.settle(taken.wait_for).await {
            Ok(())
        } else {
            Err(FleetError::NotStored)
        }
    }

    /// One page of events, newest first.
    pub(crate) async fn events(&self, filter: &EventFilter) -> Result<Vec<EventView>, FleetError> {
        self.inner.store.events(filter).await
    }
}

impl Inner {
    /// Writes everything that changed; durable when this returns.
    pub(crate) async fn flush(&self) -> Result<(), SqlError> {
        let _one = self.writing.lock().await;
        let batch = {
            let mut registry = self.registry.lock();
            if !registry.is_dirty() {
                return Ok(());
            }
            registry.take_batch()
        };
        let started = std::time::Instant::now();
        let now = self.clock.now();
        match self.store.write(&batch, &self.ages, now).await {
            Ok(written) => {
                self.wrote(&batch, written);
                self.signals.commit(batch.generation);
                histogram!("thalweg_fleet_write_behind_seconds").record(started.elapsed());
                Ok(())
            }
            Err(error) if error.is_of_values() => self.write_apart(batch).await,
            Err(error) => {
                self.registry.lock().put_back(batch);
                Err(error)
            }
        }
    }

    /// Writes a batch piece by piece, since there is a row in it that the database never takes:
    /// that one is dropped, so that it does not hold up all others. Durable when this returns.
    async fn write_apart(&self, batch: Batch) -> Result<(), SqlError> {
        let generation = batch.generation;
        let mut pieces = vec![batch];
        while let Some(piece) = pieces.pop() {
            let now = self.clock.now();
            match self.store.write(&piece, &self.ages, now).await {
                Ok(written) => self.wrote(&piece, written),
                Err(error) if error.is_of_values() => match piece.halves() {
                    // The first half comes first.
                    (first, Some(second)) => pieces.extend([second, first]),
                    (piece, None) => {
                        counter!("thalweg_fleet_rows_dropped_total").increment(1);
                        tracing::error!(error = %base::report(&error), what = piece.about(),
                            "the database does not take this, it is dropped");
                        let keys: Vec<_> = piece.manifests.into_iter().map(|of| of.key).collect();
                        self.registry.lock().forget_manifests(&keys);
                    }
                },
                Err(error) => {
                    let mut registry = self.registry.lock();
                    registry.put_back(piece);
                    pieces
                        .into_iter()
                        .rev()
                        .for_each(|piece| registry.put_back(piece));
                    return Err(error);
                }
            }
        }
        self.signals.commit(generation);
        Ok(())
    }

    fn wrote(&self, batch: &Batch, written: Written) {
        let mut registry = self.registry.lock();
        registry.refuse_claims(&written.refused);
        registry.give_places_back(&written.crowded);
        registry.committed(batch);
        drop(registry);
        self.adopt(written.news);
        self.told(&batch.events, written.alerts);
        counter!("thalweg_fleet_write_behind_agents_total").increment(batch.agents.len() as u64);
    }

    /// Counts events that are durable, and has their alerts sent.
    pub(crate) fn told(&self, events: &[Event], noted: Noted) {
        events.iter().for_each(Event::count);
        self.alerts.noted(&noted);
    }

    /// Hears of an operation that another node made a moment ago.
    pub(crate) async fn learn_of(&self, operation: &str) -> Result<(), FleetError> {
        if !self.store.is_shared() || self.registry.lock().knows_operation(operation) {
            return Ok(());
        }
        // All that came before it too: who knows the operation but not what it serves would take
        // the agent back to where it was.
        self.catch_up().await?;
        if !self.registry.lock().knows_operation(operation) {
            let news = self.store.operation(operation).await?;
            self.adopt(news);
        }
        Ok(())
    }

    /// Hears what operators asked of an agent at other nodes, and how many may be at it.
    async fn learn_requests_of(&self, agent: &str) {
        let unknown = self.registry.lock().unknown_requests(agent);
        for id in unknown {
            match self.requests.find(&id).await {
                Ok(Some(request)) => self.registry.lock().keep_request(Arc::new(request)),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(request = &*id, error = %base::report(&error),
                        "cannot read what an operator asked for");
                }
            }
        }
    }

    /// Hears of a flow that another node has told an agent to fetch, and of that agent.
    pub(crate) async fn learn_of_flow(
        &self,
        flow: &str,
        agent: Option<&str>,
    ) -> Result<(), FleetError> {
        let is_known = || {
            let registry = self.registry.lock();
            let describes = |id| {
                let agent = registry.agents.get(id);
                agent.is_some_and(|agent| registry.head_of(agent).is_some())
            };
            registry.flows.contains_key(flow) && agent.is_none_or(describes)
        };
        match self.store.is_shared() && !is_known() {
            true => self.catch_up().await,
            false => Ok(()),
        }
    }

    /// Hears of what another node had the agent do, when the agent says that it has done something.
    async fn learn_from(&self, heartbeat: &Heartbeat) {
        let is_news = self.store.is_shared() && self.registry.lock().is_news(heartbeat);
        if is_news && let Err(error) = self.catch_up().await {
            // Nothing that follows from old knowledge can be stored now either.
            tracing::debug!(error = %base::report(&error), "cannot read other nodes' changes");
        }
    }

    /// Tells the write-behind, and waits for the commit where there is one to wait for.
    pub(crate) async fn settle(&self, wait_for: Option<u64>) -> bool {
        match wait_for {
            Some(generation) => self.signals.durable(generation).await,
            None => {
                self.signals.change();
                true
            }
        }
    }

    /// A flow's text that is kept.
    pub(crate) fn kept_text(&self, id: &str) -> Option<Bytes> {
        self.texts.lock().texts.get(id).cloned()
    }

    /// Keeps a flow's text in memory while there is room.
    pub(crate) fn keep_text(&self, id: Arc<str>, text: Bytes) {
        self.texts.lock().keep(id, text);
    }

    pub(crate) fn next_version(&self, class: &str) -> Result<i64, FleetError> {
        let registry = self.registry.lock();
        let Some(class) = registry.classes.get(class) else {
            if registry.classes.len() >= limits::CLASSES_MAX {
                return Err(FleetError::Full {
                    what: "class",
                    max: limits::CLASSES_MAX,
                });
            }
            return Ok(1);
        };
        if class.flows.len() >= limits::CLASS_FLOWS_MAX {
            return Err(FleetError::Full {
                what: "flow",
                max: limits::CLASS_FLOWS_MAX,
            });
        }
        Ok(class.flows.last().map_or(1, |last| last.version + 1))
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl FlowTexts {
    /// Keeps a text while there is room; what does not fit is read from the store each time.
    fn keep(&mut self, id: Arc<str>, text: Bytes) {
        if text.len() > limits::FLOW_CACHE_BYTES_MAX {
            return;
        }
        if self.bytes + text.len() > limits::FLOW_CACHE_BYTES_MAX {
            self.texts.clear();
            self.bytes = 0;
        }
        let added = text.len();
        if self.texts.insert(id, text).is_none() {
            self.bytes += added;
        }
    }
}

/// The error for a manifest that is not there.
pub(crate) fn unknown_manifest(hash: &str) -> FleetError {
    FleetError::Unknown {
        what: "manifest",
        name: hash.to_owned(),
        list: "/api/v1/manifests",
    }
}

/// The error for a class that is not there.
pub(crate) fn unknown_class(name: &str) -> FleetError {
    FleetError::Unknown {
        what: "class",
        name: name.to_owned(),
        list: "/api/v1/classes",
    }
}
