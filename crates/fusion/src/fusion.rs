//! The engine: statements added, listed and removed while it runs, and started again with their
//! state when it opens.

mod life;
mod recovered;
mod types;

pub use life::Explained;
pub use types::ShownType;
use types::TypeTable;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;

use base::{Clock, Rng};
use journal::RealDisk;
use metrics::gauge;
use mqtt::{Server, SubscriptionId};
use parking_lot::RwLock;
use streams::EventStore;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::chains::{Chains, closes_loop, streams_of};
use crate::config::FusionConfig;
use crate::epl::{self, Catalog};
use crate::error::FusionError;
use crate::feed::Feed;
use crate::formats::Format;
use crate::lane::{Lane, LaneState, Restored, Sequence, Target, decode, encode, keeps_outbox};
use crate::limits::{NAME_BYTES_MAX, TARGETS_MAX};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{OnError, Plan, Policies, Sink, Source, Stage};
use crate::reader;
use crate::sinks::{Budget, Letters, Poster};
use crate::sql;
use crate::statement::{Definition, Language, NewStatement, Origin, Start, StatementInfo, Status};
use crate::store::StatementStore;
use crate::writer::Writer;

/// The statement engine.
pub struct Fusion {
    config: FusionConfig,
    store: Arc<dyn EventStore>,
    mqtt: Option<Server>,
    clock: Arc<dyn Clock>,
    chains: Arc<Chains>,
    journal: Arc<StatementStore>,
    statements: RwLock<BTreeMap<String, Arc<Statement>>>,
    types: RwLock<TypeTable>,
    letters: Option<Arc<Letters>>,
    poster: Arc<Poster>,
    /// Held while a statement is added or removed.
    sources: Mutex<Sources>,
    reading: CancellationToken,
    writing: CancellationToken,
    readers: TaskTracker,
    writers: TaskTracker,
}

/// A statement and, when it could be started, its lane.
#[derive(Clone)]
struct Statement {
    definition: Definition,
    source: String,
    sink: String,
    run: Result<Running, String>,
}

#[derive(Clone)]
struct Running {
    lane: Arc<Lane>,
    key: SourceKey,
    /// Further sources.
    more: Vec<SourceKey>,
}

/// The sources that are read.
#[derive(Default)]
struct Sources {
    open: HashMap<SourceKey, OpenSource>,
    /// The feeds that statements hold, also of sources that no running one reads.
    feeds: HashMap<SourceKey, Weak<Feed>>,
    is_closed: bool,
}

struct OpenSource {
    feed: Arc<Feed>,
    input: Input,
}

enum Input {
    Mqtt(SubscriptionId),
    Kafka(CancellationToken),
    /// Statements give it its events.
    Stream,
}

/// What statements share a source by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SourceKey {
    source: Source,
    format: Format,
    /// A statement that reads a topic from its start reads by itself: the others need not wait.
    alone: Option<String>,
}

/// A statement that is ready to join its source.
struct Prepared {
    lane: Arc<Lane>,
    key: SourceKey,
    more: Vec<SourceKey>,
    sequence: Sequence,
    outbox: Output,
}

impl Fusion {
    /// Opens the engine in `dir` and starts every statement that is there, with its state.
    ///
    /// Call it within a tokio runtime. A statement that cannot be started (its MQTT server or its
    /// topic is gone) is listed as failed and harms nobody else; one whose event store is away
    /// starts when that is back.
    ///
    /// # Errors
    /// The folder cannot be opened or holds what this version does not know; the configuration
    /// cannot work.
    pub async fn open(
        dir: &Path,
        config: FusionConfig,
        store: Arc<dyn EventStore>,
        mqtt: Option<Server>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Fusion>, FusionError> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(FusionError::Refused(problems.join("; ")));
        }
        let (journal, recovered) = StatementStore::open(Arc::new(RealDisk), dir)?;
        let letters = letters_of(&config, mqtt.is_some());
        let types = RwLock::new(TypeTable::open(dir, config.types.clone())?);
        let fusion = Arc::new(Fusion {
            config,
            store,
            mqtt,
            clock,
            chains: Arc::default(),
            journal: Arc::new(journal),
            statements: RwLock::default(),
            types,
            letters,
            poster: Arc::default(),
            sources: Mutex::default(),
            reading: CancellationToken::new(),
            writing: CancellationToken::new(),
            readers: TaskTracker::new(),
            writers: TaskTracker::new(),
        });
        if let Some(letters) = &fusion.letters {
            let (mqtt, store) = (fusion.mqtt.clone(), fusion.store.clone());
            let writing = fusion.writing.clone();
            fusion
                .writers
                .spawn(letters.clone().run(mqtt, store, writing));
        }
        fusion.start_again(recovered).await;
        Ok(fusion)
    }

    /// Adds a statement; it is durable and takes events when this returns.
    ///
    /// # Errors
    /// [`FusionError::Text`] points at what does not compile; `Refused`, `NameTaken` and `Limit`
    /// say what to change; others are the engine's or its stores' own.
    pub async fn add(&self, new: NewStatement) -> Result<StatementInfo, FusionError> {
        self.add_from(new, Origin::Api, false).await
    }

    /// As [`Fusion::add`], for one that came another way, and may begin paused.
    pub(crate) async fn add_from(
        &self,
        new: NewStatement,
        origin: Origin,
        is_paused: bool,
    ) -> Result<StatementInfo, FusionError> {
        let mut sources = self.sources.lock().await;
        if sources.is_closed {
            return Err(FusionError::Closed);
        }
        let definition = Definition {
            origin,
            is_paused,
            ..self.define(new)?
        };
        let (definition, plan) = self.compiled(definition)?;
        let prepared = self
            .prepare(definition.clone(), Arc::new(plan), None)
            .await?;
        let checkpoint = {
            let state = prepared.lane.state.lock();
            encode(
                &state.machine,
                (0, 0),
                &state.positions,
                prepared.sequence,
                &Output::default(),
            )
        };
        self.journal.add(&definition, &checkpoint).await?;
        let id = definition.id.clone();
        self.start(&mut sources, vec![prepared])?;
        tracing::info!(statement = definition.name, id, "a statement was added");
        self.statement(&id)
    }

    /// Removes a statement, by id or name, with its state; rows on their way are given up.
    ///
    /// # Errors
    /// `Unknown`, or the journal failed: then it is stopped, but may be back after a restart.
    pub async fn remove(&self, id_or_name: &str) -> Result<(), FusionError> {
        let mut sources = self.sources.lock().await;
        let statement = self.find(id_or_name)?;
        if let Ok(running) = &statement.run {
            running.lane.removed.cancel();
            self.leave(&mut sources, running);
        }
        let id = &statement.definition.id;
        self.statements.write().remove(id);
        self.set_gauge();
        self.journal.remove(id).await?;
        tracing::info!(
            statement = statement.definition.name,
            id,
            "a statement was removed"
        );
        Ok(())
    }

    /// What the engine was configured with.
    pub fn config(&self) -> &FusionConfig {
        &self.config
    }

    /// The time by the engine's clock.
    pub(crate) fn now(&self) -> base::UnixMillis {
        self.clock.now()
    }

    /// One statement, by id or name.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn statement(&self, id_or_name: &str) -> Result<StatementInfo, FusionError> {
        self.find(id_or_name).map(|statement| statement.info())
    }

    /// All statements, in the order they were added.
    pub fn statements(&self) -> Vec<StatementInfo> {
        let statements: Vec<Arc<Statement>> = self.statements.read().values().cloned().collect();
        let mut infos: Vec<StatementInfo> = statements
            .iter()
            .map(|statement| statement.info())
            .collect();
        infos.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        infos
    }

    /// Stops the sources, lets the sinks take what waits, keeps a last checkpoint of every
    /// statement, and releases the folder. Close it before the MQTT server and the event store.
    pub async fn close(&self) {
        {
            let mut sources = self.sources.lock().await;
            sources.is_closed = true;
            for (_, open) in sources.open.drain() {
                self.stop(&open);
            }
        }
        self.reading.cancel();
        self.readers.close();
        self.readers.wait().await;
        self.writing.cancel();
        self.writers.close();
        self.writers.wait().await;
        self.journal.close().await;
    }

    /// Compiles a new form and says how its payloads are read.
    fn compiled(&self, mut definition: Definition) -> Result<(Definition, Plan), FusionError> {
        let plan = compile(&definition, &self.types.read().catalog())?;
        check_inputs(&plan)?;
        check_loop(&definition, &plan)?;
        if definition.format.is_none() {
            definition.format = Some(match &plan.source {
                Source::Mqtt(filter) => self.types.read().rows().format_of(filter),
                Source::Kafka(_) | Source::Stream(_) => Format::Json,
            });
        }
        Ok((definition, plan))
    }

    fn define(&self, new: NewStatement) -> Result<Definition, FusionError> {
        let statements = self.statements.read();
        if statements.len() >= self.config.statements_max {
            return Err(FusionError::Limit(format!(
                "there are {} statements already: remove one, or raise fusion.statements_max",
                statements.len()
            )));
        }
        let id = match &new.id {
            Some(id) => id.clone(),
            None => format!("{:016x}", Rng::from_entropy().next_u64()),
        };
        if statements.contains_key(&id) {
            return Err(FusionError::NameTaken(id));
        }
        let name = new.name.clone().unwrap_or_else(|| id.clone());
        if statements.values().any(|known| known.is_called(&name)) {
            return Err(FusionError::NameTaken(name));
        }
        self.definition(id, name, new)
    }

    /// A new definition, whose name is nobody else's.
    fn definition(
        &self,
        id: String,
        name: String,
        new: NewStatement,
    ) -> Result<Definition, FusionError> {
        let is_legal = |name: &str| {
            let is_wrong = |char: char| char.is_control() || matches!(char, '/' | '+' | '#');
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(is_wrong)
        };
        if !is_legal(&name) || !is_legal(&id) {
            return Err(FusionError::Refused(format!(
                "the name or the id is not legal: use 1 to {NAME_BYTES_MAX} bytes without '/', '+', \
                 '#' and control characters"
            )));
        }
        for text in &new.targets {
            crate::sinks::target(text)?;
        }
        if new.targets.len() > TARGETS_MAX {
            return Err(FusionError::Refused(format!(
                "the statement has {} targets: name at most {TARGETS_MAX}",
                new.targets.len()
            )));
        }
        check_policies(new.policies.as_ref())?;
        let lateness_ms = i64::try_from(new.lateness.0.as_millis()).unwrap_or(i64::MAX);
        if new.lateness.0 > crate::limits::WINDOW_MAX {
            return Err(FusionError::Refused("lateness: at most 366d".to_owned()));
        }
        Ok(Definition {
            id,
            name,
            text: new.text,
            language: new.language,
            start: new.start,
            lateness_ms,
            created_ms: self.clock.now(),
            format: new.format,
            output: new.output,
            targets: new.targets,
            policies: new.policies,
            generation: 0,
            is_paused: false,
            origin: Origin::Api,
        })
    }

    /// Resolves a statement's source and sink and makes its lane; `checkpoint` is what it goes on
    /// from, none for a new one.
    async fn prepare(
        &self,
        definition: Definition,
        plan: Arc<Plan>,
        checkpoint: Option<Vec<u8>>,
    ) -> Result<Prepared, FusionError> {
        crate::query::compiled::check(&plan).map_err(FusionError::Refused)?;
        self.check_chain(&definition, &plan)?;
        let mut starts = Vec::new();
        for source in plan.sources() {
            starts.extend(self.source_starts(source, definition.start).await?);
        }
        let (targets, can_sequence) = self.targets(&definition, &plan).await?;
        let policies = definition.policies.clone().unwrap_or_default();
        // Who says that bad events are dropped wants no letters about them.
        let is_silent = definition.policies.is_some() && policies.on_error == OnError::Drop;
        let options = MachineOptions {
            lateness_ms: definition.lateness_ms,
            groups_max: self.config.groups_max,
            partitions: starts.len().max(1),
            close_delay_ms: i64::try_from(self.config.close_delay.0.as_millis())
                .unwrap_or(i64::MAX),
            idle_ms: i64::try_from(policies.idle_timeout.0.as_millis()).unwrap_or(i64::MAX),
            on_error: policies.on_error,
        };
        let machine = Machine::new(plan.clone(), options);
        let restored = match checkpoint {
            Some(bytes) => decode(machine, &bytes).ok_or_else(|| {
                FusionError::Unreadable(format!(
                    "a checkpoint of statement '{}' that does not fit it",
                    definition.name
                ))
            })?,
            None => Restored {
                machine,
                positions: starts,
                sequence: Sequence {
                    producer_id: match can_sequence {
                        true => Some(self.store.producer_id().await.map_err(
                            FusionError::streams("get a producer id for the statement"),
                        )?),
                        false => None,
                    },
                    next: 0,
                },
                outbox: Output::default(),
            },
        };
        let Restored {
            machine,
            positions,
            sequence,
            outbox,
        } = restored;
        let reads_records = plan.kafka_topics().next().is_some();
        let keys = plan.sources().into_iter().map(|source| SourceKey {
            source: source.clone(),
            format: match source {
                Source::Stream(_) => Format::Json,
                _ => definition.format.unwrap_or_default(),
            },
            alone: (definition.start == Start::Earliest && matches!(source, Source::Kafka(_)))
                .then(|| definition.id.clone()),
        });
        let mut more: Vec<SourceKey> = keys.collect();
        let key = more.remove(0);
        let is_caught_up = !reads_records && !definition.is_paused;
        let mut state = LaneState::new(machine, positions, is_caught_up);
        state.sequence = sequence;
        state.is_sending = !outbox.is_empty();
        state.budget = Budget::new(self.config.errors.per_second);
        let lane = Arc::new(Lane {
            definition,
            plan,
            targets,
            letters: self.letters.clone().filter(|_| !is_silent),
            tap: std::sync::OnceLock::new(),
            state: parking_lot::Mutex::new(state),
            wake: tokio::sync::Notify::new(),
            idle: tokio::sync::Notify::new(),
            removed: CancellationToken::new(),
        });
        Ok(Prepared {
            lane,
            key,
            more,
            sequence,
            outbox,
        })
    }

    /// Refuses what would make internal streams run in a circle, and two topics of records.
    fn check_chain(&self, definition: &Definition, plan: &Plan) -> Result<(), FusionError> {
        if plan.kafka_topics().count() > 1 {
            return Err(FusionError::Refused(
                "a statement reads one Kafka topic at most: bring the others in by statements that \
                 insert into an internal stream or an MQTT topic"
                    .to_owned(),
            ));
        }
        let writes = |definition: &Definition, plan: &Plan| -> Result<Vec<String>, FusionError> {
            let sinks = effective_sinks(definition, plan)?.into_iter();
            Ok(sinks
                .filter_map(|sink| match sink {
                    Sink::Stream(name) => Some(name),
                    _ => None,
                })
                .collect())
        };
        let own = writes(definition, plan)?;
        if own.is_empty() {
            return Ok(());
        }
        let mut edges = Vec::new();
        for known in self.statements.read().values() {
            if let Ok(running) = &known.run
                && known.definition.id != definition.id
            {
                let plan = &running.lane.plan;
                edges.push((streams_of(plan), writes(&known.definition, plan)?));
            }
        }
        if closes_loop(&streams_of(plan), &own, &edges) {
            return Err(FusionError::Refused(
                "the statement's rows would come back to it over internal streams: insert into \
                 another stream"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Where a new statement starts in each partition; none for MQTT.
    async fn source_starts(&self, source: &Source, start: Start) -> Result<Vec<i64>, FusionError> {
        match source {
            Source::Stream(_) => Ok(Vec::new()),
            Source::Mqtt(_) if self.mqtt.is_none() => Err(no_mqtt("reads from")),
            Source::Mqtt(_) => Ok(Vec::new()),
            Source::Kafka(topic) => {
                let topic = kafka_name(topic)?;
                let doing = format!("open the source kafka.\"{topic}\"");
                let info = self
                    .store
                    .topic_or_create(&topic)
                    .await
                    .map_err(FusionError::streams(doing))?;
                let ranges = info.partition_offsets.iter();
                Ok(ranges
                    .map(|range| match start {
                        Start::Latest => range.end,
                        Start::Earliest => range.start,
                    })
                    .collect())
            }
        }
    }

    /// Where rows go, and whether they are sequenced.
    async fn targets(
        &self,
        definition: &Definition,
        plan: &Plan,
    ) -> Result<(Vec<Target>, bool), FusionError> {
        let mut targets = Vec::new();
        for sink in effective_sinks(definition, plan)? {
            targets.push(self.target(definition, sink).await?);
        }
        let can_sequence = keeps_outbox(plan, &targets);
        Ok((targets, can_sequence))
    }

    async fn target(&self, definition: &Definition, sink: Sink) -> Result<Target, FusionError> {
        match sink {
            Sink::Stream(name) => Ok(Target::Stream(name)),
            Sink::Mqtt(_) if self.mqtt.is_none() => Err(no_mqtt("writes to")),
            Sink::Mqtt(topic) => match topic.parse() {
                Ok(topic) => Ok(Target::Mqtt(topic)),
                Err(error) => Err(FusionError::Refused(format!("mqtt.\"{topic}\": {error}"))),
            },
            Sink::Http(url) => Ok(Target::Http(url)),
            Sink::Kafka(topic) => {
                let topic = kafka_name(&topic)?;
                let doing = format!("open the target kafka.\"{topic}\"");
                let info = self
                    .store
                    .topic_or_create(&topic)
                    .await
                    .map_err(FusionError::streams(doing))?;
                // All rows of one statement go to one partition: their order is the result's.
                let hash = definition.id.bytes().fold(FNV_START, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
                });
                let count = u64::try_from(info.partitions.max(1)).unwrap_or(1);
                let partition = i32::try_from(hash % count).unwrap_or(0);
                Ok(Target::Kafka { topic, partition })
            }
        }
    }

    /// Lists the statements, joins them to their sources, opens those that are not open, and
    /// starts a writer for each.
    fn start(&self, sources: &mut Sources, prepared: Vec<Prepared>) -> Result<(), FusionError> {
        let mut by_source: Vec<(SourceKey, Vec<Arc<Lane>>)> = Vec::new();
        let mut places: HashMap<SourceKey, usize> = HashMap::new();
        for Prepared {
            key, more, lane, ..
        } in &prepared
        {
            for key in std::iter::once(key).chain(more) {
                let place = *places.entry(key.clone()).or_insert_with(|| {
                    by_source.push((key.clone(), Vec::new()));
                    by_source.len() - 1
                });
                by_source[place].1.push(lane.clone());
            }
            if !lane.definition.is_paused {
                self.chains.join(lane);
            }
            let (source, sink) = shown(&lane.definition, &lane.plan);
            self.list(Statement {
                definition: lane.definition.clone(),
                source,
                sink,
                run: Ok(Running {
                    lane: lane.clone(),
                    key: key.clone(),
                    more: more.clone(),
                }),
            });
        }
        let mut to_open = Vec::new();
        let mut feeds: HashMap<SourceKey, Arc<Feed>> = HashMap::new();
        for (key, mut lanes) in by_source {
            let feed = self.feed(sources, &key);
            lanes.retain(|lane| !lane.definition.is_paused);
            if !lanes.is_empty() {
                feed.join(lanes);
                if !sources.open.contains_key(&key) {
                    to_open.push((key.clone(), feed.clone()));
                }
            }
            feeds.insert(key, feed);
        }
        for Prepared {
            key,
            more: _,
            lane,
            sequence,
            outbox,
        } in prepared
        {
            let writer = Writer {
                lane,
                feed: feeds[&key].clone(),
                chains: self.chains.clone(),
                store: self.store.clone(),
                mqtt: self.mqtt.clone(),
                poster: self.poster.clone(),
                journal: self.journal.clone(),
                clock: self.clock.clone(),
                checkpoint_interval: self.config.checkpoint_interval.0,
                sequence,
                closing: self.writing.clone(),
            };
            self.writers.spawn(writer.run(outbox));
        }
        for (key, feed) in to_open {
            let input = self.open_source(&key, &feed)?;
            sources.open.insert(key, OpenSource { feed, input });
        }
        Ok(())
    }

    /// The feed of a source: the one that statements hold already, or a new one.
    fn feed(&self, sources: &mut Sources, key: &SourceKey) -> Arc<Feed> {
        if let Some(feed) = sources.feeds.get(key).and_then(Weak::upgrade) {
            return feed;
        }
        let prefix = self
            .letters
            .as_ref()
            .and_then(|letters| letters.mqtt_prefix());
        let skipped = prefix.filter(|prefix| match &key.source {
            // Who names the topics of dead letters wants them.
            Source::Mqtt(filter) => !filter.starts_with(prefix.as_str()),
            Source::Kafka(_) | Source::Stream(_) => false,
        });
        let feed = Feed::of(key.format, skipped);
        let feed = Arc::new(feed.linked(key.source.clone(), self.chains.clone()));
        sources.feeds.retain(|_, feed| feed.strong_count() > 0);
        sources.feeds.insert(key.clone(), Arc::downgrade(&feed));
        feed
    }

    fn open_source(&self, key: &SourceKey, feed: &Arc<Feed>) -> Result<Input, FusionError> {
        match &key.source {
            Source::Stream(_) => Ok(Input::Stream),
            Source::Mqtt(filter) => {
                let server = self.mqtt.as_ref().ok_or_else(|| no_mqtt("reads from"))?;
                let filter = filter
                    .parse()
                    .map_err(|error| FusionError::Refused(format!("mqtt.\"{filter}\": {error}")))?;
                Ok(Input::Mqtt(server.subscribe(filter, feed.clone())))
            }
            Source::Kafka(topic) => {
                let stop = self.reading.child_token();
                let topic = kafka_name(topic)?;
                self.readers.spawn(reader::run(
                    feed.clone(),
                    self.store.clone(),
                    topic,
                    stop.clone(),
                ));
                Ok(Input::Kafka(stop))
            }
        }
    }

    fn leave(&self, sources: &mut Sources, running: &Running) {
        for key in std::iter::once(&running.key).chain(&running.more) {
            let Some(open) = sources.open.get(key) else {
                continue;
            };
            if open.feed.leave(&running.lane) {
                self.stop(open);
                sources.open.remove(key);
            }
        }
        self.chains.leave(&running.lane);
    }

    fn stop(&self, open: &OpenSource) {
        match (&open.input, &self.mqtt) {
            (Input::Mqtt(subscription), Some(server)) => server.unsubscribe(*subscription),
            (Input::Mqtt(_), None) | (Input::Stream, _) => {}
            (Input::Kafka(stop), _) => stop.cancel(),
        }
    }

    fn list_failed(&self, definition: Definition, error: &FusionError) {
        let why = base::report(error);
        tracing::error!(
            statement = definition.name,
            why,
            "a statement could not be started"
        );
        let (source, sink) = match compile(&definition, &self.types.read().catalog()) {
            Ok(plan) => shown(&definition, &plan),
            Err(_) => (String::new(), String::new()),
        };
        self.list(Statement {
            definition,
            source,
            sink,
            run: Err(why),
        });
    }

    fn list(&self, statement: Statement) {
        let id = statement.definition.id.clone();
        self.statements.write().insert(id, Arc::new(statement));
        self.set_gauge();
    }

    fn set_gauge(&self) {
        gauge!("thalweg_fusion_statements_count").set(self.statements.read().len() as f64);
    }

    fn find(&self, id_or_name: &str) -> Result<Arc<Statement>, FusionError> {
        let statements = self.statements.read();
        statements
            .get(id_or_name)
            .or_else(|| {
                statements
                    .values()
                    .find(|statement| statement.is_called(id_or_name))
            })
            .cloned()
            .ok_or_else(|| FusionError::Unknown(id_or_name.to_owned()))
    }
}

impl Statement {
    fn is_called(&self, name: &str) -> bool {
        self.definition.name == name || self.definition.id == name
    }

    fn info(&self) -> StatementInfo {
        let definition = &self.definition;
        let mut info = StatementInfo {
            id: definition.id.clone(),
            name: definition.name.clone(),
            language: definition.language,
            text: definition.text.clone(),
            source: self.source.clone(),
            sink: self.sink.clone(),
            status: Status::Failed,
            error: None,
            created_ms: definition.created_ms,
            received_total: 0,
            filtered_total: 0,
            emitted_total: 0,
            emitted_from_total: 0,
            errored_total: 0,
            late_total: 0,
            dropped_total: 0,
            in_flight: 0,
            state_bytes: 0,
            format: definition.format.unwrap_or_default(),
            output: definition.output,
            targets: definition.targets.clone(),
            generation: definition.generation,
            waiting_rows: 0,
            lag_records: None,
            latency_p50_us: None,
            latency_p99_us: None,
            cpu_seconds_total: 0.0,
            cpu_share: 0.0,
        };
        let running = match &self.run {
            Ok(running) => running,
            Err(why) => {
                info.error = Some(why.clone());
                return info;
            }
        };
        let mut state = running.lane.state.lock();
        let books = state.machine.books();
        info.status = match (state.machine.is_suspended(), &state.trouble) {
            (true, _) => Status::Suspended,
            (false, _) if definition.is_paused => Status::Paused,
            (false, Some(_)) => Status::Retrying,
            (false, None) => Status::Running,
        };
        info.error = state
            .trouble
            .clone()
            .or_else(|| state.machine.error().map(str::to_owned));
        info.received_total = books.received;
        info.filtered_total = books.filtered;
        info.emitted_total = books.emitted;
        info.emitted_from_total = books.emitted_from;
        info.errored_total = books.errored;
        info.late_total = books.late;
        info.dropped_total = books.dropped;
        info.in_flight = books.in_flight();
        info.state_bytes = state.machine.state_bytes() as u64;
        info.waiting_rows = state.output.rows.len() as u64;
        let now = Instant::now();
        info.latency_p50_us = state.meter.percentile(now, 0.5);
        info.latency_p99_us = state.meter.percentile(now, 0.99);
        info.cpu_seconds_total = state.meter.spent_total().as_secs_f64();
        info.cpu_share = state.meter.share(now);
        info
    }
}

fn compile(definition: &Definition, catalog: &Catalog) -> Result<Plan, FusionError> {
    match definition.language {
        Language::Sql => sql::compile(&definition.text),
        Language::Epl => epl::compile(&definition.text, catalog),
    }
    .map_err(FusionError::Text)
}

/// Refuses a statement of several sources: events would come of the first alone.
fn check_inputs(plan: &Plan) -> Result<(), FusionError> {
    let Stage::Query(query) = &plan.stage else {
        return Ok(());
    };
    let mut inputs = query.inputs.iter();
    match inputs.find(|input| input.source != plan.source) {
        None => Ok(()),
        Some(input) => Err(FusionError::Refused(format!(
            "the statement reads {} beside {}: one source per statement",
            input.source, plan.source
        ))),
    }
}

/// Refuses a statement that would feed itself.
fn check_loop(definition: &Definition, plan: &Plan) -> Result<(), FusionError> {
    for sink in effective_sinks(definition, plan)? {
        for source in plan.sources() {
            let feeds_itself = match (source, &sink) {
                (Source::Mqtt(filter), Sink::Mqtt(topic)) => filter
                    .parse::<mqtt::TopicFilter>()
                    .is_ok_and(|filter| filter.matches(topic)),
                (Source::Kafka(from), Sink::Kafka(to)) => kafka_name(from)? == kafka_name(to)?,
                _ => false,
            };
            if !feeds_itself {
                continue;
            }
            let is_own = plan.sink.is_none() && definition.targets.is_empty();
            return Err(FusionError::Refused(match is_own {
                false => format!(
                    "the statement would read its own rows: {sink} is part of {}; choose another target",
                    source
                ),
                true => format!(
                    "the statement would read its own rows, which go to mqtt.\"{OWN_TOPIC}…\" without \
                 an INSERT INTO: that is part of {}; name a target",
                    source
                ),
            }));
        }
    }
    Ok(())
}

/// Where rows go: to what INSERT INTO names and to the further targets, or to the statement's own
/// topic.
fn effective_sinks(definition: &Definition, plan: &Plan) -> Result<Vec<Sink>, FusionError> {
    let mut sinks: Vec<Sink> = plan.sink.clone().into_iter().collect();
    for text in &definition.targets {
        let sink = crate::sinks::target(text)?;
        if !sinks.contains(&sink) {
            sinks.push(sink);
        }
    }
    if sinks.is_empty() {
        sinks.push(Sink::Mqtt(format!("{OWN_TOPIC}{}", definition.id)));
    }
    Ok(sinks)
}

fn shown(definition: &Definition, plan: &Plan) -> (String, String) {
    let sinks = effective_sinks(definition, plan).unwrap_or_default();
    let sinks: Vec<String> = sinks.iter().map(Sink::to_string).collect();
    let sources: Vec<String> = plan.sources().into_iter().map(Source::to_string).collect();
    (sources.join(", "), sinks.join(", "))
}

/// Where dead letters go, when there is such a place.
fn letters_of(config: &FusionConfig, has_mqtt: bool) -> Option<Arc<Letters>> {
    let target = config.errors.sink().ok().flatten()?;
    let is_there = has_mqtt || !matches!(target, Sink::Mqtt(_));
    is_there.then(|| Arc::new(Letters::new(target, config.errors.per_second)))
}

/// Refuses choices that nothing follows yet.
fn check_policies(policies: Option<&Policies>) -> Result<(), FusionError> {
    let Some(policies) = policies else {
        return Ok(());
    };
    let default = Policies::default();
    for (name, is_default) in [
        (
            "backpressure",
            policies.backpressure == default.backpressure,
        ),
        (
            "empty_windows",
            policies.empty_windows == default.empty_windows,
        ),
        ("align", policies.align == default.align),
    ] {
        if !is_default {
            return Err(FusionError::Refused(format!(
                "policies.{name}: only the default is followed"
            )));
        }
    }
    Ok(())
}

fn kafka_name(topic: &str) -> Result<streams::TopicName, FusionError> {
    topic
        .parse()
        .map_err(|error| FusionError::Refused(format!("kafka.\"{topic}\": {error}")))
}

fn no_mqtt(does: &str) -> FusionError {
    FusionError::Refused(format!(
        "the statement {does} MQTT, but no MQTT server runs in this process: start one with \
         --role mqtt, or use kafka.\"topic\" (INSERT INTO names the target)"
    ))
}

/// Where the rows of a statement without INSERT INTO go, before its id.
const OWN_TOPIC: &str = "statements/";

/// FNV-1a, as published: spreads ids over partitions the same way on every machine.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
