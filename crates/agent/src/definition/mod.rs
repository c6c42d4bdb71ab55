//! Flow definitions: MiNiFi's YAML (version 3, with version 1's spellings) and NiFi's flow JSON
//! on one loader, into one [`Flow`].
//!
//! Nothing is guessed: an unknown processor, property, relationship or key and every bad value
//! is a [`Problem`] with its path, and all problems of a text are reported at once. NiFi's JSON
//! carries much of its canvas, and properties that MiNiFi's processors do not have: what is passed
//! over there is noted with its path ([`idle`]). Ports of remote process groups become processors
//! ([`remote`]).

mod check;
mod components;
mod contexts;
mod idle;
mod keys;
mod node;
mod read;
pub mod remote;
mod resolve;
mod seal;
mod services;

use std::fmt;
use std::time::Duration;

use crate::bulletins::Level;
use crate::cron::Cron;
use crate::parameters::Surroundings;
use crate::processors::ProcessorKind;
use crate::services::ServiceKind;

pub use seal::seal;

/// A checked flow, process groups flattened.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The flow's id, empty where the text names none.
    pub id: String,
    /// The flow's name.
    pub name: String,
    /// Controller services, in the text's order.
    pub services: Vec<ServiceDefinition>,
    /// Processors, funnels and ports, in the text's order.
    pub processors: Vec<ProcessorDefinition>,
    /// Connections in the text's order.
    pub connections: Vec<ConnectionDefinition>,
    /// What was passed over, each with its path.
    pub notes: Problems,
}

/// One processor of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorDefinition {
    /// Its id; made from group and name where the text gives none, so that it stays the same.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it stands in the text, for messages.
    pub path: String,
    /// The id of its process group.
    pub group_id: String,
    /// What it is.
    pub kind: &'static ProcessorKind,
    /// When it runs.
    pub scheduling: Scheduling,
    /// How long a FlowFile that it could not handle waits.
    pub penalization: Duration,
    /// How long it rests after it said that it cannot go on.
    pub yield_period: Duration,
    /// How long one session may span triggers before it is committed; zero is one trigger.
    pub run_duration: Duration,
    /// How many threads work on it at most; one, where its kind cannot be shared.
    pub tasks_max: u32,
    /// The mildest bulletins that are put up.
    pub bulletin_level: Level,
    /// Relationships whose FlowFiles end here.
    pub auto_terminated: Vec<String>,
    /// Properties that the text sets, in its order.
    pub properties: Vec<(String, String)>,
}

/// One controller service of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceDefinition {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it stands in the text, for messages.
    pub path: String,
    /// The id of its process group.
    pub group_id: String,
    /// What it is.
    pub kind: &'static ServiceKind,
    /// Properties that the text sets, in its order; those that name services have their ids.
    pub properties: Vec<(String, String)>,
}

/// When a processor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// As soon as there is input.
    EventDriven,
    /// Not before this long after its last start.
    TimerDriven {
        /// So long.
        period: Duration,
        /// Whether the flow says so itself: then input waits for it too.
        is_set: bool,
    },
    /// At the times of a calendar, in the host's time zone.
    CronDriven(Cron),
}

/// In which order a connection hands out what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prioritizer {
    /// As it came into this connection.
    FirstInFirstOut,
    /// What entered the flow last comes first.
    NewestFlowFileFirst,
    /// What entered the flow first comes first.
    OldestFlowFileFirst,
    /// By the attribute `priority`: small numbers, then other texts, then none.
    PriorityAttribute,
}

/// One connection of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionDefinition {
    /// Its id; queued FlowFiles belong to it over restarts and flow updates.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it stands in the text, for messages.
    pub path: String,
    /// The source processor's id.
    pub source: String,
    /// The source's relationships that lead here.
    pub relationships: Vec<String>,
    /// The destination processor's id.
    pub destination: String,
    /// FlowFiles at which the source rests; 0 means no bound.
    pub flow_files_max: u64,
    /// Bytes at which the source rests; 0 means no bound.
    pub bytes_max: u64,
    /// Age at which a queued FlowFile is dropped; zero means never.
    pub expiration: Duration,
    /// Whether FlowFiles without content are dropped.
    pub drop_empty: bool,
    /// FlowFiles above which the queue's tail leaves memory; 0 means the agent's own bound.
    pub swap_threshold: u64,
    /// The order, the first that tells two FlowFiles apart; none is first in, first out.
    pub prioritizers: Vec<Prioritizer>,
}

/// One mistake in a flow definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as `Processors[2] 'tail' / Properties / Batch Size`.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Every mistake of one text; shown one to a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Flow {
    /// Reads and checks a flow definition, YAML or JSON, that needs nothing around it.
    pub fn parse(text: &str) -> Result<Flow, Problems> {
        Flow::load(text, &Surroundings::default())
    }

    /// Reads and checks a flow definition, YAML or JSON, with what it may look at outside.
    pub fn load(text: &str, surroundings: &Surroundings) -> Result<Flow, Problems> {
        let mut problems = Problems::default();
        let flow = read::read(text, &mut problems);
        let flow = flow.map(|raw| check::check(raw, surroundings, &mut problems));
        match flow {
            Some(flow) if problems.0.is_empty() => Ok(flow),
            _ => Err(problems),
        }
    }
}

impl Prioritizer {
    /// Reads a prioritizer's class; the last dotted part is what matters.
    pub fn parse(class: &str) -> Option<Self> {
        let name = class.rsplit('.').next()?;
        Some(match name.strip_suffix("Prioritizer").unwrap_or(name) {
            "FirstInFirstOut" => Prioritizer::FirstInFirstOut,
            "NewestFlowFileFirst" => Prioritizer::NewestFlowFileFirst,
            "OldestFlowFileFirst" => Prioritizer::OldestFlowFileFirst,
            "PriorityAttribute" => Prioritizer::PriorityAttribute,
            _ => return None,
        })
    }
}

impl Problems {
    pub(crate) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(Problem {
            path: path.to_owned(),
            message: message.into(),
        });
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}  {}: {}", problem.path, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests;
