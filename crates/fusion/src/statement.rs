//! A statement as it is asked for, kept and shown.

use base::{HumanDuration, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::formats::Format;
use crate::plan::{InputPolicy, Policies};
use crate::sinks::OutputForm;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewStatement {
    /// Its id, which no other statement may have; made up when absent.
    #[serde(default)]
    pub id: Option<String>,
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
    /// How payloads are read; by the table of types when absent.
    #[serde(default)]
    pub format: Option<Format>,
    /// What a row becomes.
    #[serde(default)]
    pub output: OutputForm,
    /// Further targets, beside INSERT INTO or in its place; see [`crate::sinks::SinkText`].
    #[serde(default)]
    pub targets: Vec<String>,
    /// What it does where its text leaves a choice; without them it writes dead letters and waits.
    #[serde(default)]
    pub policies: Option<Policies>,
}

/// What takes the place of a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// The new form; without a name the old one stays.
    pub new: NewStatement,
    /// What becomes of the state.
    pub state: ReplacedState,
    /// Where the new form came from; where the old one did if absent.
    pub origin: Option<Origin>,
}

/// What becomes of a statement's state when its text is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplacedState {
    /// Kept where the new text means the same windows, groups and aggregates, else given up.
    #[default]
    Auto,
    /// Kept, or the replacement is refused.
    Keep,
    /// Given up.
    Reset,
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
    /// How payloads are read, where that was said.
    #[serde(default)]
    pub format: Option<Format>,
    /// What a row becomes.
    #[serde(default)]
    pub output: OutputForm,
    /// Further targets.
    #[serde(default)]
    pub targets: Vec<String>,
    /// What it does where its text leaves a choice.
    #[serde(default)]
    pub policies: Option<Policies>,
    /// How often it was replaced.
    #[serde(default)]
    pub generation: u64,
    /// True while it takes nothing and keeps its state.
    #[serde(default)]
    pub is_paused: bool,
    /// Who else knows it, and in what form.
    #[serde(default)]
    pub origin: Origin,
}

impl Definition {
    /// Whether what it takes from MQTT is kept until a checkpoint holds it.
    pub fn is_durable(&self) -> bool {
        let policies = self.policies.as_ref();
        policies.is_some_and(|policies| policies.input == InputPolicy::Durable)
    }
}

/// Where a statement came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The API of this process.
    #[default]
    Api,
    /// The DFM's API: the statement as it was sent there.
    Dfm(serde_json::Map<String, serde_json::Value>),
    /// Desired state: the name and the generation that it has there.
    Desired(String, u64),
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
    /// How payloads are read.
    pub format: Format,
    /// What a row becomes.
    pub output: OutputForm,
    /// Targets beside that of INSERT INTO.
    pub targets: Vec<String>,
    /// Where it was told to start in a Kafka topic.
    pub start: Start,
    /// How long windows stay open for late events.
    pub lateness: HumanDuration,
    /// What it was told to do where its text leaves a choice; none where nothing was said.
    pub policies: Option<Policies>,
    /// How often it was replaced.
    pub generation: u64,
    /// Rows that wait for the sink.
    pub waiting_rows: u64,
    /// Records that the source holds and the statement has not read; null for MQTT, and where the
    /// event store did not say in time.
    pub lag_records: Option<u64>,
    /// Time from a row's computing until the sink had it, microseconds, of the last one to two
    /// minutes: half of the rows took no longer.
    pub latency_p50_us: Option<u64>,
    /// As many as 99 of 100 took no longer.
    pub latency_p99_us: Option<u64>,
    /// Time spent in computing, seconds, estimated from every 32nd event.
    pub cpu_seconds_total: f64,
    /// The same as a share of one core, over the last one to two minutes.
    pub cpu_share: f64,
    /// The group that it is in, where it is in one; all figures above are those of the partitions
    /// that this process holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupInfo>,
    /// The servers that it asks for events, where there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polls: Option<PollInfo>,
}

/// How a statement's servers were asked for events, since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PollInfo {
    /// The MQTT topic on which answers are published.
    pub topic: String,
    /// How often it asks by the clock, milliseconds; none where its rows ask.
    pub interval_ms: Option<u64>,
    /// Requests.
    pub asked_total: u64,
    /// Answers that became events.
    pub answered_total: u64,
    /// Answers without a body, which become nothing.
    pub empty_total: u64,
    /// Requests that failed, and answers that could not be taken.
    pub failed_total: u64,
}

/// A process's part in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupInfo {
    /// The group's name.
    pub name: String,
    /// The partitions that this process computes, in order.
    pub partitions: Vec<i32>,
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
    /// It takes nothing, by request, and keeps its state.
    Paused,
    /// It could not be started.
    Failed,
}

fn no_lateness() -> HumanDuration {
    HumanDuration(std::time::Duration::ZERO)
}
