//! A statement as it is asked for, kept and shown.

use base::{HumanDuration, UnixMillis};
use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewStatement {
    /// Its name, which no other statement may have; its id when absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The text.
    pub text: String,
    /// The text's language.
    #[serde(default)]
    pub language: Language,
    /// Where to start in a Kafka topic.
    #[serde(default)]
    pub start: Start,
    /// How long after the watermark a window stays open for late events.
    #[serde(default = "no_lateness")]
    pub lateness: HumanDuration,
}

/// The languages of statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// See [`crate::sql`].
    #[default]
    Sql,
    /// See [`crate::epl`].
    Epl,
}

/// Where a new statement starts in a Kafka topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// With the first record after it was added.
    #[default]
    Latest,
    /// With the oldest record that the topic has.
    Earliest,
}

/// A statement as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The text's language.
    pub language: Language,
    /// Where it started.
    pub start: Start,
    /// Lateness in milliseconds.
    pub lateness_ms: i64,
    /// When it was added.
    pub created_ms: UnixMillis,
}

/// A statement as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatementInfo {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The text's language.
    pub language: Language,
    /// Its text.
    pub text: String,
    /// Where events come from, as SQL writes it.
    pub source: String,
    /// Where rows go, as SQL writes it.
    pub sink: String,
    /// What it does.
    pub status: Status,
    /// The latest error: why it does not run, or the latest event that could not be computed with.
    pub error: Option<String>,
    /// When it was added.
    pub created_ms: UnixMillis,
    /// Events taken.
    pub received_total: u64,
    /// Events not let pass by WHERE or HAVING.
    pub filtered_total: u64,
    /// Rows that the sink took.
    pub emitted_total: u64,
    /// Events that those rows stand for.
    pub emitted_from_total: u64,
    /// Events that could not be computed with.
    pub errored_total: u64,
    /// Events of closed windows.
    pub late_total: u64,
    /// Events given up.
    pub dropped_total: u64,
    /// Events in open windows and in rows on their way to the sink.
    pub in_flight: u64,
    /// Bytes of keyed state, about.
    pub state_bytes: u64,
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It takes events.
    Running,
    /// Its source or sink fails and is tried again.
    Retrying,
    /// It met a bound and takes nothing until it is added anew or the process restarts.
    Suspended,
    /// It could not be started.
    Failed,
}

fn no_lateness() -> HumanDuration {
    HumanDuration(std::time::Duration::ZERO)
}
