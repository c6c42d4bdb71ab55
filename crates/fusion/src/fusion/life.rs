//! What becomes of a statement while it is there: paused, resumed, replaced, looked at.
//!
//! A paused statement leaves its source and keeps its lane: rows on their way are still sent, state
//! and positions stay. From the event store it goes on where it stopped; of MQTT it misses what is
//! published meanwhile. A replacement holds the source back while the sinks take the old form's
//! rows, so that no event is missed and none counts twice.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::MutexGuard;

use super::Fusion;
use super::handover::HeldBack;
use super::listing::{Running, Statement};
use super::prepare::{kafka_name, shown};
use super::sources::{OpenSource, Prepared, Sources};
use crate::error::FusionError;
use crate::formats::Format;
use crate::lane::Lane;
use crate::lane::checkpoint::encode;
use crate::limits::{LAG_WAIT, TAIL_WAIT_MAX};
use crate::output::Output;
use crate::plan::{Plan, Stage};
use crate::statement::{Definition, NewStatement, ReplacedState, Replacement, StatementInfo};
use crate::tap::{Tail, Tap};

/// What a statement would do.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// Where events come from.
    pub source: String,
    /// Where rows go.
    pub sink: String,
    /// How payloads are read.
    pub format: Format,
    /// The fields that are picked out of them.
    pub fields: Vec<String>,
    /// Whether it keeps anything from one event to the next.
    pub keeps_state: bool,
    /// The compiled form, for those who look for what a text became; its form is no contract.
    pub plan: String,
}

impl Fusion {
    /// Stops taking events and keeps the state; durable on return. Paused already, it stays so.
    ///
    /// # Errors
    /// `Unknown`, or the journal failed: then it is paused until the next start.
    pub async fn pause(&self, id_or_name: &str) -> Result<StatementInfo, FusionError> {
        let mut sources = self.open_sources().await?;
        let statement = self.find(id_or_name)?;
        if !statement.definition.is_paused {
            match &statement.run {
                Ok(running) => {
                    self.leave(&mut sources, running);
                    // The wall clock closes no window of it.
                    running.lane.state.lock().is_caught_up = false;
                }
                Err(_) => self.let_publishers_go(&mut sources, &statement.definition.id),
            }
            self.change(&statement, true).await?;
        }
        self.statement(&statement.definition.id)
    }

    /// Takes events again, with the state that it had; durable on return.
    ///
    /// # Errors
    /// `Unknown`; `Refused` for one that could not be started; the journal failed.
    pub async fn resume(&self, id_or_name: &str) -> Result<StatementInfo, FusionError> {
        let mut sources = self.open_sources().await?;
        let statement = self.find(id_or_name)?;
        if statement.definition.is_paused {
            let running = statement.run.as_ref().map_err(|why| {
                FusionError::Refused(format!("the statement could not be started: {why}"))
            })?;
            self.change(&statement, false).await?;
            let reads_records = running.lane.plan.kafka_topics().next().is_some();
            let is_repeated = reads_records || running.lane.definition.is_durable();
            running.lane.state.lock().is_caught_up = !is_repeated;
            self.join(&mut sources, running)?;
            // Windows may have ended meanwhile.
            running.lane.wake.notify_one();
        }
        self.statement(&statement.definition.id)
    }

    /// Puts another form in a statement's place, under the same id; durable on return. Says too
    /// whether the state was kept.
    ///
    /// # Errors
    /// As [`Fusion::add`], and `Refused` where the state was to be kept and does not fit; the old
    /// form then goes on. `Busy` when the sinks do not take the old form's rows in time.
    pub async fn replace(
        &self,
        id_or_name: &str,
        replacement: Replacement,
    ) -> Result<(StatementInfo, bool), FusionError> {
        let mut sources = self.open_sources().await?;
        let statement = self.find(id_or_name)?;
        let definition = self.redefined(&statement, &replacement)?;
        let (definition, plan) = self.compiled(definition)?;
        let plan = Arc::new(plan);
        let old = statement.run.as_ref().ok();
        let creates = |plan: &Plan| matches!(plan.stage, Stage::Create(_));
        if creates(&plan) || old.is_some_and(|old| creates(&old.lane.plan)) {
            return Err(FusionError::Refused(
                "a named window or table is not replaced, since others read it: remove those and \
                 it, and add it anew"
                    .to_owned(),
            ));
        }
        let is_grouped = definition
            .policies
            .as_ref()
            .is_some_and(|p| p.group.is_some());
        if is_grouped || old.is_some_and(|old| old.group.is_some()) {
            return Err(FusionError::Refused(
                "a statement of a group is not replaced, since the others run it too: remove it \
                 everywhere, and add the new form with another group"
                    .to_owned(),
            ));
        }
        let keeps = replacement.state != ReplacedState::Reset
            && old.is_some_and(|old| fits(&old.lane, &definition, &plan));
        if replacement.state == ReplacedState::Keep && !keeps {
            return Err(FusionError::Refused(
                "the state does not fit the new text: it keeps its state when source, windows, \
                 groups and aggregates stay as they are; send \"state\": \"reset\" to give it up"
                    .to_owned(),
            ));
        }
        let prepared = self.prepare(definition.clone(), plan, None).await?;
        let is_moved = old.is_none_or(|old| old.key != prepared.key);
        if is_moved {
            self.forget_input(&prepared.key);
        }
        let Some(old) = old else {
            let checkpoint = first_checkpoint(&prepared);
            self.journal.replace(&definition, &checkpoint, true).await?;
            self.start(&mut sources, vec![prepared])?;
            self.let_publishers_go(&mut sources, &definition.id);
            return Ok((self.statement(&definition.id)?, false));
        };
        let held = HeldBack::new(self, &mut sources, old);
        // The old form's writer stands still from here on, and then finds that it is removed.
        let turn = self.take_over(&held, &prepared, old, keeps).await?;
        old.lane.removed.cancel();
        drop(turn);
        // Who looks goes on looking.
        if let Some(tap) = old.lane.tap.get() {
            prepared.lane.tap.get_or_init(|| tap.clone());
        }
        // The new form joins before the old one leaves: the source stays open between.
        let started = self.start(&mut sources, vec![prepared]);
        self.leave(&mut sources, old);
        if is_moved {
            self.forget_input(&old.key);
        }
        drop(held);
        started?;
        tracing::info!(
            statement = definition.name,
            id = definition.id,
            generation = definition.generation,
            keeps,
            "a statement was replaced"
        );
        Ok((self.statement(&definition.id)?, keeps))
    }

    /// The latest rows of a statement from number `after` on, or from now on; waits for the first.
    ///
    /// # Errors
    /// `Unknown`; `Refused` for one that could not be started.
    pub async fn tail(
        &self,
        id_or_name: &str,
        after: Option<u64>,
        wait: Duration,
    ) -> Result<Tail, FusionError> {
        let statement = self.find(id_or_name)?;
        let running = statement.run.as_ref().map_err(|why| {
            FusionError::Refused(format!("the statement could not be started: {why}"))
        })?;
        let tap = running.lane.tap.get_or_init(|| Arc::new(Tap::new()));
        Ok(tap.tail(after, wait.min(TAIL_WAIT_MAX)).await)
    }

    /// What a text would do, without adding it.
    ///
    /// # Errors
    /// As [`Fusion::add`].
    pub fn explain(&self, new: NewStatement) -> Result<Explained, FusionError> {
        let definition = self.definition("ID".to_owned(), "explained".to_owned(), new)?;
        let (definition, plan) = self.compiled(definition)?;
        let (source, sink) = shown(&definition, &plan);
        Ok(Explained {
            source,
            sink,
            format: definition.format.unwrap_or_default(),
            fields: plan.fields.iter().map(ToString::to_string).collect(),
            keeps_state: !matches!(plan.stage, Stage::PerEvent { .. }),
            plan: format!("{plan:#?}"),
        })
    }

    /// Says of statements on the event store how many records wait for them. What the store does
    /// not say in time stays unknown.
    pub async fn tell_lags(&self, infos: &mut [StatementInfo]) {
        let runs: Vec<Option<Running>> = {
            let statements = self.statements.read();
            let run = |info: &StatementInfo| statements.get(&info.id)?.run.clone().ok();
            infos.iter().map(run).collect()
        };
        let deadline = tokio::time::Instant::now() + LAG_WAIT;
        let mut ends = std::collections::HashMap::new();
        for (info, run) in infos.iter_mut().zip(runs) {
            let Some(run) = run else { continue };
            let Some(topic) = run.lane.plan.kafka_topics().next() else {
                continue;
            };
            if !ends.contains_key(topic) {
                let Ok(name) = kafka_name(topic) else {
                    continue;
                };
                let asked = tokio::time::timeout_at(deadline, self.store.topic(&name)).await;
                ends.insert(topic.to_owned(), asked.ok().and_then(Result::ok));
            }
            let Some(Some(known)) = ends.get(topic) else {
                continue;
            };
            let positions = run.positions(known.partition_offsets.len());
            let waiting = known.partition_offsets.iter().zip(positions);
            let waiting = waiting.filter_map(|(range, position)| {
                let position = position?.max(range.start);
                Some(u64::try_from(range.end - position).unwrap_or(0))
            });
            info.lag_records = Some(waiting.sum());
        }
    }

    /// The definitions of all statements, for those who know them in another form.
    pub(crate) fn definitions(&self) -> Vec<Definition> {
        let statements = self.statements.read();
        statements
            .values()
            .map(|statement| statement.definition.clone())
            .collect()
    }

    /// The definition of a statement, by id.
    pub(crate) fn definition_of(&self, id: &str) -> Option<Definition> {
        self.statements
            .read()
            .get(id)
            .map(|statement| statement.definition.clone())
    }

    async fn open_sources(&self) -> Result<MutexGuard<'_, Sources>, FusionError> {
        let sources = self.sources.lock().await;
        match sources.is_closed {
            true => Err(FusionError::Closed),
            false => Ok(sources),
        }
    }

    /// Lists and keeps a statement as paused or not.
    async fn change(&self, statement: &Statement, is_paused: bool) -> Result<(), FusionError> {
        let mut changed = statement.clone();
        changed.definition.is_paused = is_paused;
        let definition = changed.definition.clone();
        self.list(changed);
        self.journal.change(&definition).await
    }

    /// Joins a lane to its source again.
    fn join(&self, sources: &mut Sources, running: &Running) -> Result<(), FusionError> {
        if running.group.is_some() {
            self.take_part(running);
            return Ok(());
        }
        let askers = self.askers(&running.lane);
        for key in std::iter::once(&running.key).chain(&running.more) {
            let feed = self.feed(sources, key);
            feed.join([running.lane.clone()]);
            if !sources.open.contains_key(key) {
                let input = self.open_source(sources, key, &feed)?;
                let open = OpenSource { feed, input };
                sources.open.insert(key.clone(), open);
            }
        }
        self.chains.join(&running.lane);
        self.start_polls(&running.lane, askers);
        Ok(())
    }

    /// The definition of a new form: id, age and pause stay, and the name where no other is given.
    fn redefined(
        &self,
        statement: &Statement,
        replacement: &Replacement,
    ) -> Result<Definition, FusionError> {
        let old = &statement.definition;
        let new = replacement.new.clone();
        let name = new.name.clone().unwrap_or_else(|| old.name.clone());
        let taken = self
            .find(&name)
            .is_ok_and(|known| known.definition.id != old.id);
        if taken {
            return Err(FusionError::NameTaken(name));
        }
        Ok(Definition {
            created_ms: old.created_ms,
            generation: old.generation + 1,
            is_paused: old.is_paused,
            origin: replacement
                .origin
                .clone()
                .unwrap_or_else(|| old.origin.clone()),
            ..self.definition(old.id.clone(), name, new)?
        })
    }
}

fn first_checkpoint(prepared: &Prepared) -> Vec<u8> {
    let state = prepared.lane.state.lock();
    let nothing = Output::default();
    encode(
        &state.machine,
        (0, 0),
        &state.positions,
        prepared.sequence,
        &nothing,
    )
}

/// Whether the state of a lane is one that the new form could have come to.
fn fits(old: &Lane, definition: &Definition, plan: &Plan) -> bool {
    let choices = |definition: &Definition| {
        let policies = definition.policies.clone().unwrap_or_default();
        (policies.align, policies.empty_windows)
    };
    shape(&old.plan) == shape(plan)
        && old.definition.format == definition.format
        && choices(&old.definition) == choices(definition)
}

/// What the state of a plan hangs on, as text: source, windows, groups and aggregates. Fields stand
/// in it by their paths, since their places depend on the columns.
fn shape(plan: &Plan) -> String {
    let mut stage = plan.stage.clone();
    if let Stage::Windowed { having, .. } = &mut stage {
        *having = None;
    }
    let mut text = format!("{:?} {stage:?}", plan.source);
    // From the last: Field(1) is no part of Field(12) then, and of no other path either.
    for (index, path) in plan.fields.iter().enumerate().rev() {
        for place in ["Field", "Payload"] {
            text = text.replace(
                &format!("{place}({index})"),
                &format!("{place} {:?}", path.0),
            );
        }
    }
    text
}
