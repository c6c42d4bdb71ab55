//! The life of one operation, without IO.
//!
//! ```text
//!            handed out           acknowledged, or its flow seen running
//!   queued ------------> deployed ------------------------------------> done | failed
//!      \                  |  ^  \
//!       \   no answer for |  |   \ nothing heard
//!        \  resend_after  +--+    v
//!         +--------------------> timed_out --(agent calls again)--> deployed, same id
//! ```
//! One intent has one id for ever: what is lost on the way is sent again under the same id, so an
//! agent that did get it answers NO_OPERATION at worst. The waits between double each time, and
//! a flow is never given up for losses alone. A late acknowledge still counts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use c2::{AckState, Operand, OperationKind};

use crate::capability;
use crate::limits;

/// An operation asked of one agent.
#[derive(Clone, Debug)]
pub struct FleetOperation {
    /// What the acknowledge names: a UUID.
    pub id: Arc<str>,
    /// What to do.
    pub kind: OperationKind,
    /// To what.
    pub operand: Operand,
    /// The flow of an UPDATE configuration.
    pub flow: Option<Arc<str>>,
    /// The digest of the resources of a SYNC; the mark of the hash that a DESCRIBE manifest is about.
    pub goal: Option<Arc<str>>,
    /// The operator's request that it came from.
    pub request: Option<Arc<str>>,
    /// Where it stands.
    pub status: OperationStatus,
    /// When it was made.
    pub created: UnixMillis,
    /// When it last changed.
    pub updated: UnixMillis,
    /// When it was last handed out.
    pub handed_out: Option<UnixMillis>,
    /// How often it was handed out.
    pub attempts: u32,
    /// Whether the agent answered.
    pub acknowledged: bool,
    /// What is known about the outcome.
    pub details: String,
    /// Whether its row is durable; before that it is not handed out.
    pub stored: bool,
    /// Whether it is counted among those of its group that agents are at.
    pub counted: bool,
}

/// Operations of which only so many may be under way together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Those of an operator's request.
    Request(Arc<str>),
    /// Those that bring agents the resources of this digest, whoever asked for them.
    Resources(Arc<str>),
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationStatus {
    /// Waits for its agent to call.
    Queued,
    /// Was handed out.
    Deployed,
    /// Is done: acknowledged, or its effect was seen.
    Done,
    /// The agent said that it could not.
    Failed,
    /// Nothing was heard in time.
    TimedOut,
    /// Another one took its place.
    Cancelled,
}

/// The waits of operations.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Silence after which an operation is sent again.
    pub resend_after: Duration,
    /// How often one is sent in vain before it counts as failed; it is tried on all the same.
    pub failed_after_attempts: u32,
    /// Wait for the agent's call.
    pub queued_timeout: Duration,
    /// Wait for the outcome.
    pub deployed_timeout: Duration,
    /// Wait for a DESCRIBE's outcome.
    pub describe_timeout: Duration,
    /// How long before its end a certificate is told of; zero: not at all.
    pub certificate_warning: Duration,
}

/// What an acknowledge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckEffect {
    /// Decided the operation.
    Decided,
    /// Decided it after the time-out, or told of one that was given up.
    Late,
    /// Repeated what was known.
    Duplicate,
}

impl FleetOperation {
    /// A new operation that waits for its agent.
    pub fn new(
        id: Arc<str>,
        kind: OperationKind,
        operand: Operand,
        flow: Option<Arc<str>>,
        now: UnixMillis,
    ) -> FleetOperation {
        FleetOperation {
            id,
            kind,
            operand,
            flow,
            goal: None,
            request: None,
            status: OperationStatus::Queued,
            created: now,
            updated: now,
            handed_out: None,
            attempts: 0,
            acknowledged: false,
            details: String::new(),
            stored: false,
            counted: false,
        }
    }

    /// What it shares its bound with; none where it stands alone.
    pub fn group(&self) -> Option<Group> {
        match &self.goal {
            Some(digest) if self.kind == OperationKind::Sync => {
                Some(Group::Resources(digest.clone()))
            }
            _ => self.request.clone().map(Group::Request),
        }
    }

    /// Whether it may still be handed out or answered.
    pub fn is_active(&self) -> bool {
        matches!(
            self.status,
            OperationStatus::Queued | OperationStatus::Deployed
        )
    }

    /// Whether it may still be handed out at some time.
    pub fn is_open(&self) -> bool {
        self.is_active() || (self.status == OperationStatus::TimedOut && self.flow.is_some())
    }

    /// Whether it counts as failed: refused, or sent in vain too often.
    pub fn is_hopeless(&self, policy: &Policy) -> bool {
        match self.status {
            OperationStatus::Failed => true,
            OperationStatus::TimedOut => self.attempts >= policy.failed_after_attempts,
            _ => false,
        }
    }

    /// Whether it may be handed out more than once.
    pub fn repeats(&self) -> bool {
        capability::row_of(&self.kind, &self.operand).is_some_and(|row| row.repeats)
    }

    /// Takes the agent's next call as the end of an operation that agents do not answer.
    pub fn settle_silent(&mut self, now: UnixMillis) -> bool {
        let is_silent =
            capability::row_of(&self.kind, &self.operand).is_some_and(|row| !row.acknowledged);
        if !is_silent || self.status != OperationStatus::Deployed {
            return false;
        }
        self.status = OperationStatus::Done;
        self.updated = now;
        self.details = "it was handed out; agents give no acknowledge for it".to_owned();
        true
    }

    /// Decides whether the agent that calls now gets it, and notes so.
    pub fn hand_out(&mut self, now: UnixMillis, policy: &Policy) -> bool {
        let doublings = self.attempts.saturating_sub(1).min(RESEND_DOUBLINGS_MAX);
        let wait = policy.resend_after.saturating_mul(1 << doublings);
        let waited = self.handed_out.is_none_or(|at| now.since(at) >= wait);
        let due = match self.status {
            OperationStatus::Queued => true,
            OperationStatus::Deployed => waited && self.repeats(),
            // Its agent was away. A description may come from any agent of the build instead.
            OperationStatus::TimedOut => waited && self.flow.is_some(),
            OperationStatus::Done | OperationStatus::Failed | OperationStatus::Cancelled => false,
        };
        if !due || !self.stored {
            return false;
        }
        self.status = OperationStatus::Deployed;
        self.handed_out = Some(now);
        self.attempts += 1;
        self.updated = now;
        true
    }

    /// Takes the agent's answer.
    pub fn acknowledge(&mut self, state: &AckState, said: &str, now: UnixMillis) -> AckEffect {
        let effect = match self.status {
            _ if self.acknowledged => return AckEffect::Duplicate,
            OperationStatus::Queued | OperationStatus::Deployed | OperationStatus::Done => {
                AckEffect::Decided
            }
            OperationStatus::TimedOut | OperationStatus::Cancelled | OperationStatus::Failed => {
                AckEffect::Late
            }
        };
        self.acknowledged = true;
        self.updated = now;
        let mut details = state.to_string();
        if effect == AckEffect::Late {
            details.push_str(&format!(" after it was {}", self.status));
        }
        if !said.is_empty() {
            details.push_str(": ");
            details.push_str(said);
        }
        truncate(&mut details, limits::DETAILS_BYTES_MAX);
        self.details = details;
        if self.status != OperationStatus::Cancelled {
            self.status = match state {
                AckState::FullyApplied | AckState::NoOperation => OperationStatus::Done,
                _ => OperationStatus::Failed,
            };
        }
        effect
    }

    /// Takes the agent's report that it runs this operation's flow as success, and keeps in mind
    /// that no answer came.
    pub fn converge(&mut self, now: UnixMillis) -> bool {
        let open = self.is_active() || self.status == OperationStatus::TimedOut;
        // What was never handed out cannot be the cause of what is seen, but it is not needed
        // any more either.
        if !open {
            return false;
        }
        self.status = OperationStatus::Done;
        self.updated = now;
        let seen = match self.goal {
            Some(_) => "its resources were seen in place",
            None => "its flow was seen running",
        };
        self.details = format!("{seen}, no acknowledge came yet");
        true
    }

    /// Fails it before it was handed out: the agent could not take it.
    pub fn refuse(&mut self, reason: String, now: UnixMillis) {
        self.status = OperationStatus::Failed;
        self.updated = now;
        self.details = reason;
    }

    /// Gives it up because another one took its place.
    pub fn cancel(&mut self, reason: &str, now: UnixMillis) {
        self.status = OperationStatus::Cancelled;
        self.updated = now;
        self.details = reason.to_owned();
    }

    /// Times it out when its wait is over. Agents hear and answer with their calls, so what waits for
    /// one waits `patience` at least, and what its agent did not get with its last call, `called`,
    /// waits for the next one.
    pub fn expire(
        &mut self,
        now: UnixMillis,
        policy: &Policy,
        patience: Duration,
        called: UnixMillis,
    ) -> bool {
        let describes = self.kind == OperationKind::Describe;
        let (since, wait, details) = match self.status {
            OperationStatus::Queued => (
                self.created.max(called),
                policy.queued_timeout,
                "its agent did not call in time",
            ),
            OperationStatus::Deployed => (
                self.handed_out.unwrap_or(self.updated),
                if describes {
                    policy.describe_timeout
                } else {
                    policy.deployed_timeout
                },
                "its agent did not answer in time",
            ),
            _ => return false,
        };
        if now.since(since) < wait.max(patience) {
            return false;
        }
        self.status = OperationStatus::TimedOut;
        self.updated = now;
        self.details = details.to_owned();
        true
    }
}

impl OperationStatus {
    /// The word in the API and in the database.
    pub fn as_str(self) -> &'static str {
        WORDS
            .iter()
            .find(|(status, _)| *status == self)
            .map_or("", |(_, word)| word)
    }
}

impl fmt::Display for OperationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OperationStatus {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        WORDS
            .iter()
            .find(|(_, word)| *word == text)
            .map(|(status, _)| *status)
            .ok_or(())
    }
}

/// Cuts `text` to at most `bytes_max` bytes, never inside a character.
pub fn truncate(text: &mut String, bytes_max: usize) {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// The wait between two attempts grows to 64 times the first one: an hour and a half by default.
const RESEND_DOUBLINGS_MAX: u32 = 6;

const WORDS: [(OperationStatus, &str); 6] = [
    (OperationStatus::Queued, "queued"),
    (OperationStatus::Deployed, "deployed"),
    (OperationStatus::Done, "done"),
    (OperationStatus::Failed, "failed"),
    (OperationStatus::TimedOut, "timed_out"),
    (OperationStatus::Cancelled, "cancelled"),
];

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
