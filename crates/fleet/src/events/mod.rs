//! Events: what happened to agents, roll-outs and operations, and the bulletins of agents' own.
//!
//! An event is written with the batch that it belongs to, unless its level is not kept
//! (`fleet.events_max_age.<level> = "0s"`). A bulletin's id is made from its agent and its number
//! there, so that one that is repeated for minutes, or told to two nodes, is one event. What is
//! older than its level's age is removed, and so is what is over the bound of all.
//!
//! Some kinds are alerts as well: see `alerts.rs`.

pub mod alerts;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base::{HumanDuration, UnixMillis};
use c2::{Heartbeat, ProcessorBulletin};
use metrics::counter;
use serde::Serialize;
use uuid::Uuid;

use crate::agent::Agent;
use crate::limits;
use crate::operation::{FleetOperation, truncate};
use crate::registry::operation_id;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// A UUID.
    pub id: Arc<str>,
    /// When.
    pub at: UnixMillis,
    /// How grave it is.
    pub level: Level,
    /// What it is about, such as `agent-missing`.
    pub kind: Kind,
    /// The class.
    pub class: Option<Arc<str>>,
    /// The agent.
    pub agent: Option<Arc<str>>,
    /// What happened, for people.
    pub message: String,
    /// What it tells once, over all nodes and their starts.
    pub once: Option<Once>,
}

/// How near its end a certificate is told to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Once {
    /// A UUID that stands for the certificate.
    pub key: Arc<str>,
    /// Counts up as the end comes nearer; each is told once, and none after a later one.
    pub stage: u8,
    /// The end of its validity.
    pub until: UnixMillis,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For who looks for a fault.
    Debug,
    /// In the run of things.
    Info,
    /// To be looked at.
    Warn,
    /// Something failed.
    Error,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An agent called for the first time.
    AgentRegistered,
    /// An agent was silent for too long.
    AgentMissing,
    /// An agent that was missing called.
    AgentBack,
    /// An agent was removed.
    AgentRemoved,
    /// An operation failed.
    OperationFailed,
    /// A roll-out halted.
    RolloutHalted,
    /// A roll-out reached all.
    RolloutDone,
    /// Two call by one agent's identifier.
    DuplicateIdentifier,
    /// An agent brought too many new classes or manifests.
    AgentOverBounds,
    /// A certificate is about to end.
    CertificateEnding,
    /// An agent's own.
    Bulletin,
}

/// How long events are kept, by their level.
#[derive(Clone, Debug)]
pub struct Ages(pub BTreeMap<String, HumanDuration>);

impl Event {
    /// An event that happens now.
    pub fn new(kind: Kind, agent: Option<&Agent>, message: String, now: UnixMillis) -> Event {
        Event {
            id: Arc::from(Uuid::new_v4().to_string()),
            at: now,
            level: kind.level(),
            kind,
            class: agent.and_then(|agent| agent.class.clone()),
            agent: agent.map(|agent| agent.id.clone()),
            message,
            once: None,
        }
    }

    /// Whether it is among what was told before.
    pub fn is_told(&self, told: &HashSet<Once>) -> bool {
        self.once.as_ref().is_some_and(|once| told.contains(once))
    }

    /// An agent's first call; on whatever nodes it is seen as such, it is one event.
    pub fn registered(agent: &Agent, now: UnixMillis) -> Event {
        let message = match &agent.class {
            Some(class) => format!("of the class {class}"),
            None => "without a class".to_owned(),
        };
        Event {
            id: operation_id(&agent.id, "registered", None),
            ..Event::new(Kind::AgentRegistered, Some(agent), message, now)
        }
    }

    /// An operation that failed; on whatever nodes it is seen as such, it is one event.
    pub fn failed(
        agent: &Arc<str>,
        class: Option<Arc<str>>,
        operation: &FleetOperation,
        now: UnixMillis,
    ) -> Event {
        let what = format!("{} {}", operation.kind, operation.operand);
        let message = format!("{what} {}: {}", operation.id, operation.details);
        Event {
            id: operation_id(agent, "failed", Some(&operation.id)),
            class,
            agent: Some(agent.clone()),
            ..Event::new(Kind::OperationFailed, None, message, now)
        }
    }

    /// An agent's bulletin.
    pub fn bulletin(agent: &Agent, bulletin: &ProcessorBulletin, now: UnixMillis) -> Event {
        let id = bulletin.id.unwrap_or_default().to_string();
        let at = bulletin.timestamp.unwrap_or(now.0);
        let source = bulletin
            .source_name
            .as_deref()
            .or(bulletin.source_id.as_deref());
        let text = bulletin.message.as_deref().unwrap_or_default();
        let mut message = match source {
            Some(source) => format!("{source}: {text}"),
            None => text.to_owned(),
        };
        // Agents write what they like, and people read it in a terminal.
        message = message.replace(|c: char| c.is_control() && !c.is_whitespace(), "\u{fffd}");
        truncate(&mut message, limits::DETAILS_BYTES_MAX);
        let level = bulletin.level.as_deref().unwrap_or_default();
        let about = format!("bulletin {at}");
        Event {
            id: operation_id(&agent.id, &about, Some(&id)),
            // An agent whose clock is off does not outlive, or undercut, the ages.
            at: UnixMillis(at.clamp(now.0 - BULLETIN_SKEW_MS, now.0)),
            level: level.parse().unwrap_or(Level::Warn),
            message,
            ..Event::new(Kind::Bulletin, Some(agent), String::new(), now)
        }
    }

    /// Counts it.
    pub fn count(&self) {
        let level = self.level.as_str();
        counter!("thalweg_fleet_events_total", "level" => level).increment(1);
    }

    /// As the API shows it.
    pub fn view(&self) -> EventView {
        EventView {
            id: self.id.to_string(),
            at_ms: self.at.0,
            level: self.level.to_string(),
            kind: self.kind.as_str().to_owned(),
            class: self.class.as_deref().map(str::to_owned),
            agent_id: self.agent.as_deref().map(str::to_owned),
            message: self.message.clone(),
        }
    }

    /// What an alert of it tells once over all nodes: a UUID.
    pub fn alert_key(&self) -> Arc<str> {
        match (self.kind, &self.agent) {
            // Each node finds the two by itself, at a time of its own.
            (Kind::DuplicateIdentifier, Some(agent)) => operation_id(agent, "duplicate", None),
            _ => self.id.clone(),
        }
    }

    /// An agent that was not heard since `last_seen`; whatever nodes tell of it, it is one event.
    pub fn missing(agent: &Agent, silence: Duration, now: UnixMillis) -> Event {
        let message = format!("silent for {} s", silence.as_secs());
        let since = agent.last_seen.0.to_string();
        Event {
            id: operation_id(&agent.id, "missing", Some(&since)),
            ..Event::new(Kind::AgentMissing, Some(agent), message, now)
        }
    }
}

impl Agent {
    /// The bulletins of a heartbeat that the one before did not tell.
    pub fn new_bulletins(&mut self, heartbeat: &Heartbeat, now: UnixMillis) -> Vec<Event> {
        // An absent section says nothing.
        let Some(flow) = &heartbeat.flow_info else {
            return Vec::new();
        };
        let told = flow.processor_bulletins.iter().take(limits::BULLETINS_MAX);
        let is_new = |bulletin: &&ProcessorBulletin| {
            let id = bulletin.id.unwrap_or_default();
            self.bulletins.binary_search(&id).is_err()
        };
        let new: Vec<Event> = told
            .clone()
            .filter(is_new)
            .map(|bulletin| Event::bulletin(self, bulletin, now))
            .collect();
        if !(self.bulletins.is_empty() && flow.processor_bulletins.is_empty()) {
            let mut ids: Vec<i64> = told.map(|b| b.id.unwrap_or_default()).collect();
            ids.sort_unstable();
            self.bulletins = ids.into();
        }
        new
    }
}

impl Ages {
    /// How long events of this level are kept; `None`: not at all.
    pub fn of(&self, level: Level) -> Option<Duration> {
        let set = self.0.get(level.as_str()).map(|age| age.0);
        let age = set.unwrap_or(level.age());
        (!age.is_zero()).then_some(age)
    }
}

impl Kind {
    /// The word in the API and in the database.
    pub fn as_str(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self)
            .map_or("", |(_, word, _)| word)
    }

    /// The kind of this word.
    pub fn named(word: &str) -> Option<Kind> {
        KINDS
            .iter()
            .find(|(_, known, _)| *known == word)
            .map(|(kind, ..)| *kind)
    }

    fn level(self) -> Level {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self)
            .map_or(Level::Info, |(.., level)| *level)
    }

    /// How long after an alert another one tells the same; none: never.
    pub fn told_again_after(self) -> Option<Duration> {
        (self == Kind::DuplicateIdentifier).then_some(DUPLICATE_TOLD_AGAIN)
    }

    /// Whether somebody is to be told at once.
    pub fn is_alert(self) -> bool {
        matches!(
            self,
            Kind::AgentMissing
                | Kind::OperationFailed
                | Kind::RolloutHalted
                | Kind::DuplicateIdentifier
                | Kind::CertificateEnding
        )
    }
}

impl Level {
    /// All levels, the least grave first.
    pub const ALL: [Level; 4] = [Level::Debug, Level::Info, Level::Warn, Level::Error];

    /// The word in the API and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }

    /// How long events of this level are kept when nobody says.
    pub fn age(self) -> Duration {
        match self {
            Level::Debug => Duration::ZERO,
            Level::Info => Duration::from_secs(3600),
            Level::Warn => Duration::from_secs(24 * 3600),
            Level::Error => Duration::from_secs(7 * 24 * 3600),
        }
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Level, ()> {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            "warning" => Ok(Level::Warn),
            "trace" => Ok(Level::Debug),
            _ => Level::ALL
                .into_iter()
                .find(|level| level.as_str() == text)
                .ok_or(()),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    /// A UUID.
    pub id: String,
    /// When, milliseconds since 1970.
    pub at_ms: i64,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// What it is about, such as `agent-missing`.
    pub kind: String,
    /// The class.
    pub class: Option<String>,
    /// The agent.
    pub agent_id: Option<String>,
    /// What happened.
    pub message: String,
}

/// Which events a list wants, newest first.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// This level and graver ones.
    pub level: Option<Level>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this class.
    pub class: Option<String>,
    /// Of this agent.
    pub agent: Option<String>,
    /// Of these classes only.
    pub only_classes: Option<Vec<String>>,
    /// Before this time and id: where the page before ended.
    pub before: Option<(i64, String)>,
    /// At most so many.
    pub limit: usize,
}

const KINDS: [(Kind, &str, Level); 11] = [
    (Kind::AgentRegistered, "agent-registered", Level::Info),
    (Kind::AgentMissing, "agent-missing", Level::Warn),
    (Kind::AgentBack, "agent-back", Level::Info),
    (Kind::AgentRemoved, "agent-removed", Level::Info),
    (Kind::OperationFailed, "operation-failed", Level::Error),
    (Kind::RolloutHalted, "rollout-halted", Level::Error),
    (Kind::RolloutDone, "rollout-done", Level::Info),
    (
        Kind::DuplicateIdentifier,
        "duplicate-identifier",
        Level::Warn,
    ),
    (Kind::AgentOverBounds, "agent-over-bounds", Level::Warn),
    (Kind::CertificateEnding, "certificate-ending", Level::Warn),
    (Kind::Bulletin, "bulletin", Level::Warn),
];

/// Nodes find the two that use one identifier some heartbeats apart.
const DUPLICATE_TOLD_AGAIN: Duration = Duration::from_secs(3600);

/// Bulletins are repeated for five minutes; what is older was told by an agent with a wrong clock.
const BULLETIN_SKEW_MS: i64 = 3_600_000;
