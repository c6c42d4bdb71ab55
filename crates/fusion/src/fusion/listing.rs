//! The statements as they are listed and shown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::HumanDuration;
use metrics::gauge;

use super::Fusion;
use super::prepare::{compile, shown};
use super::sources::SourceKey;
use crate::error::FusionError;
use crate::group::Group;
use crate::lane::{Lane, LaneState};
use crate::statement::{Definition, StatementInfo, Status};

/// A statement and, when it could be started, its lane.
#[derive(Clone)]
pub(super) struct Statement {
    pub(super) definition: Definition,
    pub(super) source: String,
    pub(super) sink: String,
    pub(super) run: Result<Running, String>,
}

#[derive(Clone)]
pub(super) struct Running {
    pub(super) lane: Arc<Lane>,
    pub(super) key: SourceKey,
    /// Further sources.
    pub(super) more: Vec<SourceKey>,
    /// The group of processes that run it, where there is one.
    pub(super) group: Option<Arc<Group>>,
}

impl Fusion {
    pub(super) fn list_failed(&self, definition: Definition, error: &FusionError) {
        let why = base::report(error);
        tracing::error!(
            statement = definition.name,
            why,
            "a statement could not be started"
        );
        let (source, sink) = match compile(&definition, &self.catalog()) {
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

    pub(super) fn list(&self, statement: Statement) {
        let id = statement.definition.id.clone();
        self.statements.write().insert(id, Arc::new(statement));
        self.set_gauge();
    }

    pub(super) fn set_gauge(&self) {
        gauge!("thalweg_fusion_statements_count").set(self.statements.read().len() as f64);
    }

    pub(super) fn find(&self, id_or_name: &str) -> Result<Arc<Statement>, FusionError> {
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
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.definition.name == name || self.definition.id == name
    }

    pub(super) fn info(&self) -> StatementInfo {
        let definition = &self.definition;
        let lateness_ms = definition.lateness_ms.max(0).unsigned_abs();
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
            start: definition.start,
            lateness: HumanDuration(Duration::from_millis(lateness_ms)),
            policies: definition.policies.clone(),
            generation: definition.generation,
            waiting_rows: 0,
            lag_records: None,
            latency_p50_us: None,
            latency_p99_us: None,
            cpu_seconds_total: 0.0,
            cpu_share: 0.0,
            group: None,
            polls: None,
        };
        let running = match &self.run {
            Ok(running) => running,
            Err(why) => {
                info.error = Some(why.clone());
                return info;
            }
        };
        let shell = running.lane.state.lock().trouble.clone();
        let mut is_suspended = false;
        let mut told = None;
        for lane in running.lanes() {
            let mut state = lane.state.lock();
            is_suspended |= state.machine.is_suspended();
            told = told.or_else(|| state.machine.error().map(str::to_owned));
            add_figures(&mut info, &mut state);
        }
        info.status = match (is_suspended, &shell) {
            (true, _) => Status::Suspended,
            (false, _) if definition.is_paused => Status::Paused,
            (false, Some(_)) => Status::Retrying,
            (false, None) => Status::Running,
        };
        info.error = shell.or(told);
        info.group = running.group.as_ref().map(|group| group.info());
        info.polls = running.lane.poll().map(|poll| poll.info());
        info
    }
}

impl Running {
    /// What it computes in: one lane, or one for each partition that its group has given it.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        match &self.group {
            None => vec![self.lane.clone()],
            Some(group) => group.shares().into_values().collect(),
        }
    }

    /// The next offset of each of so many partitions of its topic; none of one that another process
    /// of its group reads.
    pub(super) fn positions(&self, partitions: usize) -> Vec<Option<i64>> {
        let shares = self.group.as_ref().map(|group| group.shares());
        (0..partitions)
            .map(|partition| match &shares {
                None => Some(position(&self.lane, partition)),
                Some(shares) => {
                    let lane = shares.get(&i32::try_from(partition).ok()?)?;
                    Some(position(lane, partition))
                }
            })
            .collect()
    }
}

/// The position of a lane in a partition.
fn position(lane: &Lane, partition: usize) -> i64 {
    let state = lane.state.lock();
    state.positions.get(partition).copied().unwrap_or(0)
}

fn add_figures(info: &mut StatementInfo, state: &mut LaneState) {
    let books = state.machine.books();
    info.received_total += books.received;
    info.filtered_total += books.filtered;
    info.emitted_total += books.emitted;
    info.emitted_from_total += books.emitted_from;
    info.errored_total += books.errored;
    info.late_total += books.late;
    info.dropped_total += books.dropped;
    info.in_flight += books.in_flight();
    info.state_bytes += state.machine.state_bytes() as u64;
    info.waiting_rows += state.output.rows.len() as u64;
    let now = Instant::now();
    let half = state.meter.percentile(now, 0.5);
    info.latency_p50_us = info.latency_p50_us.max(half);
    let most = state.meter.percentile(now, 0.99);
    info.latency_p99_us = info.latency_p99_us.max(most);
    info.cpu_seconds_total += state.meter.spent_total().as_secs_f64();
    info.cpu_share += state.meter.share(now);
}
