//! What can be configured of the statement engine, with its defaults.

use std::time::Duration;

use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::deploy::{ControlConfig, NodeConfig};
use crate::formats::EventTypes;
use crate::limits::{
    FUNCTION_FUEL, FUNCTION_FUEL_MAX, FUNCTION_MEMORY_BYTES, FUNCTION_MEMORY_BYTES_MAX, GROUPS_MAX,
    KEYED_STATE_BYTES, KEYED_STATE_BYTES_MAX, LETTERS_PER_SECOND_MAX, STATEMENTS, STATEMENTS_MAX,
};
use crate::plan::Sink;
use crate::polls::PollsConfig;
use crate::rules::TopicRule;

/// The statement engine's part of the configuration (`fusion.…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FusionConfig {
    /// How often changed state is checkpointed, at most; a large state less often.
    pub checkpoint_interval: HumanDuration,
    /// How long after its end by the wall clock a window without newer events is closed.
    pub close_delay: HumanDuration,
    /// Most open groups of one statement.
    pub groups_max: usize,
    /// Most bytes of keyed state of one statement over windows.
    pub state_bytes_max: ByteSize,
    /// Most statements.
    pub statements_max: usize,
    /// What one call of a function of a module may use.
    pub functions: FunctionsConfig,
    /// Where events go that a statement could not use.
    pub errors: ErrorsConfig,
    /// The table of event types: name, MQTT topic filter, format.
    pub types: EventTypes,
    /// Who this node is.
    pub node: NodeConfig,
    /// Whose control messages count.
    pub control: ControlConfig,
    /// How servers are asked for events.
    pub polls: PollsConfig,
    /// MQTT topics that are topics of the event store too, without a statement.
    pub rules: Vec<TopicRule>,
}

/// Dead letters (`fusion.errors.…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorsConfig {
    /// A topic as `mqtt:a/b` (each statement's id follows) or `kafka:t`; empty for none.
    pub target: String,
    /// Most letters of one statement per second.
    pub per_second: u32,
}

impl Default for ErrorsConfig {
    fn default() -> Self {
        ErrorsConfig {
            target: "mqtt:errors/statements".to_owned(),
            per_second: 10,
        }
    }
}

/// Functions of one's own (`fusion.functions.…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionsConfig {
    /// Fuel of one call: about one for each instruction.
    pub fuel: u64,
    /// Most memory of one call.
    pub memory_max: ByteSize,
}

impl Default for FunctionsConfig {
    fn default() -> Self {
        FunctionsConfig {
            fuel: FUNCTION_FUEL,
            memory_max: ByteSize(FUNCTION_MEMORY_BYTES),
        }
    }
}

impl ErrorsConfig {
    /// The target, when there is one.
    ///
    /// # Errors
    /// It is no topic.
    pub fn sink(&self) -> Result<Option<Sink>, String> {
        if self.target.is_empty() {
            return Ok(None);
        }
        match crate::sinks::target(&self.target) {
            Ok(Sink::Http(_) | Sink::Bridge(..) | Sink::Table(_) | Sink::Poll(_)) => {
                Err("write mqtt:a/b or kafka:t".to_owned())
            }
            Ok(sink) => Ok(Some(sink)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Default for FusionConfig {
    fn default() -> Self {
        FusionConfig {
            checkpoint_interval: HumanDuration(Duration::from_secs(1)),
            close_delay: HumanDuration(Duration::from_millis(500)),
            groups_max: GROUPS_MAX,
            state_bytes_max: ByteSize(KEYED_STATE_BYTES),
            statements_max: STATEMENTS,
            functions: FunctionsConfig::default(),
            errors: ErrorsConfig::default(),
            types: EventTypes::default(),
            node: NodeConfig::default(),
            control: ControlConfig::default(),
            polls: PollsConfig::default(),
            rules: Vec::new(),
        }
    }
}

impl FusionConfig {
    /// All that is wrong with the values, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.checkpoint_interval.0 < Duration::from_millis(10) {
            problems.push("fusion.checkpoint_interval: at least 10ms".to_owned());
        }
        if self.close_delay.0 > Duration::from_secs(3_600) {
            problems.push("fusion.close_delay: at most 1h".to_owned());
        }
        if self.groups_max == 0 || self.groups_max > GROUPS_MAX {
            problems.push(format!("fusion.groups_max: 1 to {GROUPS_MAX}"));
        }
        if self.state_bytes_max.0 == 0 || self.state_bytes_max.0 > KEYED_STATE_BYTES_MAX {
            let most = ByteSize(KEYED_STATE_BYTES_MAX);
            problems.push(format!("fusion.state_bytes_max: 1B to {most}"));
        }
        if self.statements_max == 0 || self.statements_max > STATEMENTS_MAX {
            problems.push(format!("fusion.statements_max: 1 to {STATEMENTS_MAX}"));
        }
        if self.functions.fuel == 0 || self.functions.fuel > FUNCTION_FUEL_MAX {
            problems.push(format!("fusion.functions.fuel: 1 to {FUNCTION_FUEL_MAX}"));
        }
        let memory = self.functions.memory_max.0;
        if memory == 0 || memory > FUNCTION_MEMORY_BYTES_MAX {
            let most = ByteSize(FUNCTION_MEMORY_BYTES_MAX);
            problems.push(format!("fusion.functions.memory_max: 1B to {most}"));
        }
        if let Err(why) = self.errors.sink() {
            problems.push(format!("fusion.errors.target: {why}"));
        }
        if self.errors.per_second > LETTERS_PER_SECOND_MAX {
            problems.push(format!(
                "fusion.errors.per_second: at most {LETTERS_PER_SECOND_MAX}"
            ));
        }
        problems.extend(crate::deploy::problems(&self.node, &self.control));
        problems.extend(self.polls.problems());
        for rule in &self.rules {
            if let Err(error) = rule.check() {
                problems.push(format!("fusion.rules: {error}"));
            }
        }
        let wrong = self.types.problems().into_iter();
        problems.extend(wrong.map(|why| format!("fusion.types: {why}")));
        problems
    }
}
