//! The engine: statements added, listed and removed while it runs, and started again with their
//! state when it opens.

mod recovered;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use base::{Clock, Rng};
use journal::RealDisk;
use metrics::gauge;
use mqtt::{Server, SubscriptionId};
use parking_lot::RwLock;
use streams::EventStore;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::FusionConfig;
use crate::epl::{self, Catalog};
use crate::error::FusionError;
use crate::feed::Feed;
use crate::lane::{Lane, LaneState, Restored, Sequence, Target, decode, encode, keeps_outbox};
use crate::limits::NAME_BYTES_MAX;
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{OnError, Plan, Sink, Source};
use crate::reader;
use crate::sql;
use crate::statement::{Definition, Language, NewStatement, Start, StatementInfo, Status};
use crate::store::StatementStore;
use crate::writer::Writer;

/// The statement engine.
pub struct Fusion {
    config: FusionConfig,
    store: Arc<dyn EventStore>,
    mqtt: Option<Server>,
    clock: Arc<dyn Clock>,
    journal: Arc<StatementStore>,
    statements: RwLock<BTreeMap<String, Arc<Statement>>>,
    /// Held while a statement is added or removed.
    sources: Mutex<Sources>,
    reading: CancellationToken,
    writing: CancellationToken,
    readers: TaskTracker,
    writers: TaskTracker,
}

/// A statement and, when it could be started, its lane.
struct Statement {
    definition: Definition,
    source: String,
    sink: String,
    run: Result<Running, String>,
}

struct Running {
    lane: Arc<Lane>,
    key: SourceKey,
}

/// The sources that are read.
#[derive(Default)]
struct Sources {
    open: HashMap<SourceKey, OpenSource>,
    is_closed: bool,
}

struct OpenSource {
    feed: Arc<Feed>,
    input: Input,
}

enum Input {
    Mqtt(SubscriptionId),
    Kafka(CancellationToken),
}

/// What statements share a source by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SourceKey {
    source: Source,
    /// A statement that reads a topic from its start reads by itself: the others need not wait.
    alone: Option<String>,
}

/// A statement that is ready to join its source.
struct Prepared {
    lane: Arc<Lane>,
    key: SourceKey,
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
        let fusion = Arc::new(Fusion {
            config,
            store,
            mqtt,
            clock,
            journal: Arc::new(journal),
            statements: RwLock::default(),
            sources: Mutex::default(),
            reading: CancellationToken::new(),
            writing: CancellationToken::new(),
            readers: TaskTracker::new(),
            writers: TaskTracker::new(),
        });
        fusion.start_again(recovered).await;
        Ok(fusion)
    }

    /// Adds a statement; it is durable and takes events when this returns.
    ///
    /// # Errors
    /// [`FusionError::Text`] points at what does not compile; `Refused`, `NameTaken` and `Limit`
    /// say what to change; others are the engine's or its stores' own.
    pub async fn add(&self, new: NewStatement) -> Result<StatementInfo, FusionError> {
        let mut sources = self.sources.lock().await;
        if sources.is_closed {
            return Err(FusionError::Closed);
        }
        let definition = self.define(new)?;
        let plan = compile(&definition)?;
        check_loop(&plan)?;
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

    fn define(&self, new: NewStatement) -> Result<Definition, FusionError> {
        let statements = self.statements.read();
        if statements.len() >= self.config.statements_max {
            return Err(FusionError::Limit(format!(
                "there are {} statements already: remove one, or raise fusion.statements_max",
                statements.len()
            )));
        }
        let id = format!("{:016x}", Rng::from_entropy().next_u64());
        let name = new.name.unwrap_or_else(|| id.clone());
        let is_legal = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.chars().any(|char| char.is_control() || char == '/');
        if !is_legal {
            return Err(FusionError::Refused(format!(
                "the name is not legal: use 1 to {NAME_BYTES_MAX} bytes without '/' and control \
                 characters"
            )));
        }
        if statements.values().any(|known| known.is_called(&name)) {
            return Err(FusionError::NameTaken(name));
        }
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
        let starts = self.source_starts(&plan.source, definition.start).await?;
        let (target, can_sequence) = self.target(&definition, &plan).await?;
        let options = MachineOptions {
            lateness_ms: definition.lateness_ms,
            groups_max: self.config.groups_max,
            partitions: starts.len().max(1),
            close_delay_ms: i64::try_from(self.config.close_delay.0.as_millis())
                .unwrap_or(i64::MAX),
            idle_ms: 0,
            on_error: OnError::Drop,
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
        let is_mqtt = matches!(plan.source, Source::Mqtt(_));
        let key = SourceKey {
            source: plan.source.clone(),
            alone: (definition.start == Start::Earliest && !is_mqtt).then(|| definition.id.clone()),
        };
        let lane = Arc::new(Lane {
            definition,
            plan,
            target,
            state: parking_lot::Mutex::new(LaneState::new(machine, positions, is_mqtt)),
            wake: tokio::sync::Notify::new(),
            removed: CancellationToken::new(),
        });
        Ok(Prepared {
            lane,
            key,
            sequence,
            outbox,
        })
    }

    /// Where a new statement starts in each partition; none for MQTT.
    async fn source_starts(&self, source: &Source, start: Start) -> Result<Vec<i64>, FusionError> {
        match source {
            Source::Stream(_) => Err(no_streams()),
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
    async fn target(
        &self,
        definition: &Definition,
        plan: &Plan,
    ) -> Result<(Target, bool), FusionError> {
        match effective_sink(definition, plan) {
            Sink::Stream(_) => Err(no_streams()),
            Sink::Mqtt(_) if self.mqtt.is_none() => Err(no_mqtt("writes to")),
            Sink::Mqtt(topic) => match topic.parse() {
                Ok(topic) => Ok((Target::Mqtt(topic), false)),
                Err(error) => Err(FusionError::Refused(format!("mqtt.\"{topic}\": {error}"))),
            },
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
                let target = Target::Kafka { topic, partition };
                let can_sequence = keeps_outbox(plan, &target);
                Ok((target, can_sequence))
            }
        }
    }

    /// Lists the statements, joins them to their sources, opens those that are not open, and
    /// starts a writer for each.
    fn start(&self, sources: &mut Sources, prepared: Vec<Prepared>) -> Result<(), FusionError> {
        let mut by_source: Vec<(SourceKey, Vec<Arc<Lane>>)> = Vec::new();
        let mut places: HashMap<SourceKey, usize> = HashMap::new();
        for Prepared { key, lane, .. } in &prepared {
            let place = *places.entry(key.clone()).or_insert_with(|| {
                by_source.push((key.clone(), Vec::new()));
                by_source.len() - 1
            });
            by_source[place].1.push(lane.clone());
            let (source, sink) = shown(&lane.definition, &lane.plan);
            self.list(Statement {
                definition: lane.definition.clone(),
                source,
                sink,
                run: Ok(Running {
                    lane: lane.clone(),
                    key: key.clone(),
                }),
            });
        }
        let mut to_open = Vec::new();
        let mut feeds: HashMap<SourceKey, Arc<Feed>> = HashMap::new();
        for (key, lanes) in by_source {
            let feed = match sources.open.get(&key) {
                Some(open) => open.feed.clone(),
                None => {
                    let feed = Arc::new(Feed::new());
                    to_open.push((key.clone(), feed.clone()));
                    feed
                }
            };
            feed.join(lanes);
            feeds.insert(key, feed);
        }
        for Prepared {
            key,
            lane,
            sequence,
            outbox,
        } in prepared
        {
            let writer = Writer {
                lane,
                feed: feeds[&key].clone(),
                store: self.store.clone(),
                mqtt: self.mqtt.clone(),
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

    fn open_source(&self, key: &SourceKey, feed: &Arc<Feed>) -> Result<Input, FusionError> {
        match &key.source {
            Source::Stream(_) => Err(no_streams()),
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
        let Some(open) = sources.open.get(&running.key) else {
            return;
        };
        if open.feed.leave(&running.lane.definition.id) {
            self.stop(open);
            sources.open.remove(&running.key);
        }
    }

    fn stop(&self, open: &OpenSource) {
        match (&open.input, &self.mqtt) {
            (Input::Mqtt(subscription), Some(server)) => server.unsubscribe(*subscription),
            (Input::Mqtt(_), None) => {}
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
        let (source, sink) = match compile(&definition) {
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
        };
        let running = match &self.run {
            Ok(running) => running,
            Err(why) => {
                info.error = Some(why.clone());
                return info;
            }
        };
        let state = running.lane.state.lock();
        let books = state.machine.books();
        info.status = match (state.machine.is_suspended(), &state.trouble) {
            (true, _) => Status::Suspended,
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
        info
    }
}

fn compile(definition: &Definition) -> Result<Plan, FusionError> {
    match definition.language {
        Language::Sql => sql::compile(&definition.text),
        Language::Epl => epl::compile(&definition.text, &Catalog::default()),
    }
    .map_err(FusionError::Text)
}

/// Refuses a statement that would feed itself.
fn check_loop(plan: &Plan) -> Result<(), FusionError> {
    let feeds_itself = match (&plan.source, &plan.sink) {
        (Source::Mqtt(filter), Some(Sink::Mqtt(topic))) => filter
            .parse::<mqtt::TopicFilter>()
            .is_ok_and(|filter| filter.matches(topic)),
        (Source::Kafka(from), Some(Sink::Kafka(to))) => kafka_name(from)? == kafka_name(to)?,
        // The statement's own topic, whose id nobody knows before it is added.
        (Source::Mqtt(filter), None) => filter
            .parse::<mqtt::TopicFilter>()
            .is_ok_and(|filter| filter.matches(&format!("{OWN_TOPIC}id"))),
        _ => false,
    };
    if !feeds_itself {
        return Ok(());
    }
    Err(FusionError::Refused(match &plan.sink {
        Some(sink) => format!(
            "the statement would read its own rows: {sink} is part of {}; choose another target",
            plan.source
        ),
        None => format!(
            "the statement would read its own rows, which go to mqtt.\"{OWN_TOPIC}…\" without an \
             INSERT INTO: that is part of {}; name a target",
            plan.source
        ),
    }))
}

fn effective_sink(definition: &Definition, plan: &Plan) -> Sink {
    plan.sink
        .clone()
        .unwrap_or_else(|| Sink::Mqtt(format!("{OWN_TOPIC}{}", definition.id)))
}

fn shown(definition: &Definition, plan: &Plan) -> (String, String) {
    (
        plan.source.to_string(),
        effective_sink(definition, plan).to_string(),
    )
}

fn kafka_name(topic: &str) -> Result<streams::TopicName, FusionError> {
    topic
        .parse()
        .map_err(|error| FusionError::Refused(format!("kafka.\"{topic}\": {error}")))
}

fn no_streams() -> FusionError {
    FusionError::Refused("this version runs no internal streams".to_owned())
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
