//! Choices of a statement that are no part of its text.

use std::time::Duration;

use base::HumanDuration;
use serde::{Deserialize, Serialize};

/// What a statement does where its text leaves a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// What becomes of an event that cannot be computed with.
    pub on_error: OnError,
    /// What happens when the sink takes nothing more.
    pub backpressure: Backpressure,
    /// Whether windows without events give rows.
    pub empty_windows: EmptyWindows,
    /// Where time windows of the SQL forms start.
    pub align: Align,
    /// What becomes, over a crash, of messages of MQTT that it took since its last checkpoint.
    pub input: InputPolicy,
    /// A source (or partition) without events for so long does not hold the others' time back; 0
    /// waits for ever.
    pub idle_timeout: HumanDuration,
    /// The field that says when an event happened, for statements in EPL: they go by it, in its
    /// order, instead of by the events' arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The group of processes that run the statement together, each on partitions of its topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Default for Policies {
    fn default() -> Self {
        Policies {
            on_error: OnError::default(),
            backpressure: Backpressure::default(),
            empty_windows: EmptyWindows::default(),
            align: Align::default(),
            input: InputPolicy::default(),
            idle_timeout: HumanDuration(Duration::ZERO),
            time: None,
            group: None,
        }
    }
}

/// What becomes of an event that cannot be computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It is counted and dropped.
    #[default]
    Drop,
    /// Its fields are null.
    Null,
    /// It is counted and described on the error topic.
    DeadLetter,
}

/// What happens when the sink takes nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backpressure {
    /// The source is held back.
    #[default]
    Block,
    /// The oldest rows that wait are dropped and counted.
    DropOldest,
    /// New rows are dropped and counted.
    DropNewest,
}

/// Whether windows without events give rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyWindows {
    /// Never.
    #[default]
    Never,
    /// One after each that had events.
    Once,
    /// Always, from the first event on.
    Always,
}

/// What becomes, over a crash, of messages of MQTT that a statement took since its last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputPolicy {
    /// They are lost to the statement.
    #[default]
    Passing,
    /// They are in a journal before they are acknowledged, and count once.
    Durable,
}

/// Where time windows start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// At multiples of their length since 1970.
    #[default]
    Epoch,
    /// With the first event.
    First,
}
