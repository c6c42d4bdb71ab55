//! A new form of a statement: checked, compiled, its source and targets resolved.

use std::sync::Arc;

use base::Rng;
use tokio_util::sync::CancellationToken;

use super::Fusion;
use super::sources::{Prepared, SourceKey};
use crate::chains::{closes_loop, streams_of};
use crate::deploy::dfm;
use crate::epl::{self, Catalog};
use crate::error::FusionError;
use crate::formats::Format;
use crate::lane::checkpoint::{KeptState, Restored, decode};
use crate::lane::{Lane, LaneState, Sequence, Target, keeps_outbox};
use crate::limits::{GROUP_STATE_BYTES_MAX, NAME_BYTES_MAX, TARGETS_MAX};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{Backpressure, OnError, Plan, Sink, Source, Stage};
use crate::sinks::{Budget, OutputForm, Table};
use crate::sql;
use crate::statement::{Definition, Language, NewStatement, Origin, Start};
use crate::window::Choices;

impl Fusion {
    /// The event types, named windows and tables, and functions that statements can name.
    pub(super) fn catalog(&self) -> Catalog {
        let types = self.types.read().catalog();
        let kept = self.chains.kept();
        types
            .with_kept(crate::demand::types_of(&kept))
            .with_modules(self.functions.read().modules())
    }

    /// Compiles a new form and says how its payloads are read.
    pub(super) fn compiled(
        &self,
        mut definition: Definition,
    ) -> Result<(Definition, Plan), FusionError> {
        let plan = compile(&definition, &self.catalog())?;
        check_loop(&definition, &plan)?;
        check_overflow(&definition, &plan)?;
        check_durable(&definition, &plan)?;
        if let Some(policies) = &definition.policies {
            let sinks = effective_sinks(&definition, &plan)?;
            crate::group::check(policies, &plan, &sinks)?;
        }
        if definition.format.is_none() {
            definition.format = Some(match &plan.source {
                Source::Mqtt(filter) => self.types.read().rows().format_of(filter),
                Source::Kafka(_) | Source::Stream(_) => Format::Json,
            });
        }
        Ok((definition, plan))
    }

    pub(super) fn define(&self, new: NewStatement) -> Result<Definition, FusionError> {
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
    pub(super) fn definition(
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
    pub(super) async fn prepare(
        &self,
        definition: Definition,
        plan: Arc<Plan>,
        checkpoint: Option<&KeptState>,
    ) -> Result<Prepared, FusionError> {
        let kept = self.chains.kept();
        crate::query::compiled::check(&plan, &kept).map_err(FusionError::Refused)?;
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
            state_bytes_max: self
                .config
                .state_bytes_max
                .0
                .try_into()
                .unwrap_or(usize::MAX),
            partitions: starts.len().max(1),
            close_delay_ms: i64::try_from(self.config.close_delay.0.as_millis())
                .unwrap_or(i64::MAX),
            idle_ms: i64::try_from(policies.idle_timeout.0.as_millis()).unwrap_or(i64::MAX),
            on_error: policies.on_error,
            choices: Choices {
                align: policies.align,
                empty: policies.empty_windows,
            },
        };
        let options = match policies.group {
            None => options,
            Some(_) => MachineOptions {
                state_bytes_max: options.state_bytes_max.min(GROUP_STATE_BYTES_MAX),
                ..options
            },
        };
        let machine = Machine::beside(plan.clone(), options, &kept);
        let changes = match plan.changes() {
            Some(name) => kept.get(name).cloned(),
            None => machine.created().cloned(),
        };
        let mut restored = match checkpoint {
            Some(kept) => decode(machine, kept).ok_or_else(|| {
                FusionError::Unreadable(format!(
                    "a checkpoint of statement '{}' that does not fit it",
                    definition.name
                ))
            })?,
            None => Restored {
                machine,
                positions: starts,
                sequence: Sequence::default(),
                outbox: Output::default(),
            },
        };
        // A checkpoint may be older than what has its rows counted.
        if can_sequence && restored.sequence.producer_id.is_none() {
            let id = self.store.producer_id().await;
            let id = id.map_err(FusionError::streams("get a producer id for the statement"))?;
            restored.sequence.producer_id = Some(id);
        }
        let Restored {
            machine,
            positions,
            sequence,
            outbox,
        } = restored;
        let reads_records = plan.kafka_topics().next().is_some();
        let keys = plan.sources().into_iter();
        let keys = keys.map(|source| SourceKey::of(&definition, source));
        let mut more: Vec<SourceKey> = keys.collect();
        let key = more.remove(0);
        let is_repeated = reads_records || definition.is_durable();
        let is_caught_up = !is_repeated && !definition.is_paused;
        let mut state = LaneState::new(machine, positions, is_caught_up);
        state.sequence = sequence;
        state.overflow = policies.backpressure;
        state.is_sending = !outbox.is_empty();
        state.budget = Budget::new(self.config.errors.per_second);
        let lane = Arc::new(Lane {
            definition,
            plan,
            targets,
            changes,
            letters: self.letters.clone().filter(|_| !is_silent),
            tap: std::sync::OnceLock::new(),
            state: parking_lot::Mutex::new(state),
            wake: tokio::sync::Notify::new(),
            idle: tokio::sync::Notify::new(),
            turn: tokio::sync::Mutex::default(),
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
            let changes = plan.changes().map(str::to_owned);
            Ok(sinks
                .filter_map(|sink| match sink {
                    Sink::Stream(name) => Some(name),
                    _ => None,
                })
                .chain(changes)
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
            Source::Mqtt(_) if self.around.mqtt.is_none() => Err(no_mqtt("reads from")),
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
            if let Sink::Table(table) = &sink {
                self.check_table(definition, plan, table)?;
            }
            targets.push(self.target(definition, plan, sink).await?);
        }
        let can_sequence = keeps_outbox(definition, plan, &targets);
        Ok((targets, can_sequence))
    }

    fn check_table(
        &self,
        definition: &Definition,
        plan: &Plan,
        table: &Table,
    ) -> Result<(), FusionError> {
        let refused = |why: &str| Err(FusionError::Refused(format!("{table}: {why}")));
        if definition.output == OutputForm::Observations {
            return refused("a table takes rows: leave out \"output\"");
        }
        let Some(tables) = &self.around.tables else {
            return refused("no database is configured: [databases]");
        };
        let Some(columns) = plan.column_names() else {
            return refused("name the columns that the table has instead of *");
        };
        tables.check(table, &columns).or_else(|why| refused(&why))
    }

    async fn target(
        &self,
        definition: &Definition,
        plan: &Plan,
        sink: Sink,
    ) -> Result<Target, FusionError> {
        match sink {
            Sink::Poll(polled) => self.poll(definition, plan, &polled).map(Target::Poll),
            Sink::Stream(name) => Ok(Target::Stream(name)),
            Sink::Mqtt(_) if self.around.mqtt.is_none() => Err(no_mqtt("writes to")),
            Sink::Mqtt(topic) => match topic.parse() {
                Ok(topic) => Ok(Target::Mqtt(topic)),
                Err(error) => Err(FusionError::Refused(format!("mqtt.\"{topic}\": {error}"))),
            },
            Sink::Http(url) => Ok(Target::Http(url)),
            Sink::Table(table) => Ok(Target::Table(table)),
            Sink::Bridge(bridge, topic) => {
                let bridges = self.around.bridges.as_ref();
                if !bridges.is_some_and(|bridges| bridges.has(&bridge)) {
                    return Err(FusionError::Refused(format!(
                        "there is no bridge '{bridge}' here: thalweg mqtt bridges list names them"
                    )));
                }
                let topic = topic.parse().map_err(|error| {
                    FusionError::Refused(format!("mqtt@{bridge}.\"{topic}\": {error}"))
                })?;
                Ok(Target::Bridge { bridge, topic })
            }
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
}

pub(super) fn compile(definition: &Definition, catalog: &Catalog) -> Result<Plan, FusionError> {
    let plan = match definition.language {
        Language::Sql => sql::compile_with(&definition.text, catalog.modules()),
        Language::Epl => epl::compile(&definition.text, catalog),
    }
    .map_err(FusionError::Text)?;
    let policies = definition.policies.as_ref();
    match policies.and_then(|policies| policies.time.as_deref()) {
        Some(field) => plan
            .by_event_time(field)
            .map_err(|why| FusionError::Refused(format!("policies.time: {why}"))),
        None => Ok(plan),
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
pub(super) fn effective_sinks(
    definition: &Definition,
    plan: &Plan,
) -> Result<Vec<Sink>, FusionError> {
    let mut sinks: Vec<Sink> = plan.sink.clone().into_iter().collect();
    for text in &definition.targets {
        let sink = crate::sinks::target(text)?;
        if !sinks.contains(&sink) {
            sinks.push(sink);
        }
    }
    let polled = dfm::polled(&definition.origin);
    if matches!(plan.stage, Stage::Create(_)) {
        if polled.is_some() {
            return Err(FusionError::Refused(
                "a named window or table has no rows that ask a server: leave out the publisher"
                    .to_owned(),
            ));
        }
        // Its rows stay where they are; who looks at the statement sees them change.
        if !sinks.is_empty() && definition.origin == Origin::Api {
            return Err(FusionError::Refused(
                "a named window or table has no targets: insert from it by a statement of its own"
                    .to_owned(),
            ));
        }
        return Ok(Vec::new());
    }
    sinks.extend(polled.map(Sink::Poll));
    if sinks.is_empty() {
        sinks.push(Sink::Mqtt(format!("{OWN_TOPIC}{}", definition.id)));
    }
    Ok(sinks)
}

pub(super) fn shown(definition: &Definition, plan: &Plan) -> (String, String) {
    let sinks = effective_sinks(definition, plan).unwrap_or_default();
    let sinks: Vec<String> = sinks.iter().map(Sink::to_string).collect();
    let sources: Vec<String> = plan.sources().into_iter().map(Source::to_string).collect();
    (sources.join(", "), sinks.join(", "))
}

/// Refuses to drop rows that others compute with.
fn check_overflow(definition: &Definition, plan: &Plan) -> Result<(), FusionError> {
    let policies = definition.policies.clone().unwrap_or_default();
    let sinks = effective_sinks(definition, plan)?;
    let inserts = sinks.iter().any(|sink| matches!(sink, Sink::Stream(_)));
    match policies.backpressure {
        Backpressure::DropOldest | Backpressure::DropNewest if inserts => {
            Err(FusionError::Refused(
                "policies.backpressure: rows for internal streams are not dropped: choose it for \
                 the statements that read the stream"
                    .to_owned(),
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses to keep the input of what others compute with, or of what is read again anyway.
fn check_durable(definition: &Definition, plan: &Plan) -> Result<(), FusionError> {
    if !definition.is_durable() {
        return Ok(());
    }
    let refused = |why: &str| Err(FusionError::Refused(format!("policies.input: {why}")));
    if !matches!(plan.sources()[..], [Source::Mqtt(_)]) {
        return refused(
            "durable is for statements on one MQTT filter: what a topic of the event store gives is \
             read again anyway; bring several into one topic of the store by rules",
        );
    }
    let sinks = effective_sinks(definition, plan)?;
    let inserts = sinks.iter().any(|sink| matches!(sink, Sink::Stream(_)));
    if inserts || plan.changes().is_some() || matches!(plan.stage, Stage::Create(_)) {
        return refused(
            "durable is not for what other statements compute with in memory: insert into a topic \
             of the event store",
        );
    }
    Ok(())
}

pub(super) fn kafka_name(topic: &str) -> Result<streams::TopicName, FusionError> {
    topic
        .parse()
        .map_err(|error| FusionError::Refused(format!("kafka.\"{topic}\": {error}")))
}

pub(super) fn no_mqtt(does: &str) -> FusionError {
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
