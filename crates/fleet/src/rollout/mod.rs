//! Roll-outs: a flow goes to a class in batches, and halts where too much fails. Without IO.
//!
//! Every agent has a rank in a roll-out, drawn from both their names, the same on every node. A
//! roll-out reaches the agents below one number, its reach, so all that is stored of it is that
//! number, however many agents there are; whoever is away gets the flow when it comes back and holds
//! up nobody, and who is new gets the one or the other flow by its rank.
//!
//! ```text
//!   running <--> paused            done: reaches all and nobody who is there still works on it
//!      |  \__ halted __ resumed    aborted: reaches nobody further
//!      +--> done | aborted | rolled_back (all go back to the flow before)
//! ```

mod control;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use sha2::{Digest, Sha256};

pub use control::{RolloutView, Wish};

/// A roll-out of one flow to one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// A UUID.
    pub id: Arc<str>,
    /// The class.
    pub class: Arc<str>,
    /// The flow that its agents get.
    pub flow: Arc<str>,
    /// The flow that they had.
    pub previous: Option<Arc<str>>,
    /// How it goes about.
    pub plan: Plan,
    /// Where it stands.
    pub state: RolloutState,
    /// Agents with a rank below this get the flow.
    pub reach: u64,
    /// When the reach last grew.
    pub reached: UnixMillis,
    /// When it was made.
    pub created: UnixMillis,
    /// Why it is not running, where there is more to say.
    pub reason: String,
    /// Counts its changes, so that two nodes never change it at once.
    pub version: i64,
}

/// How a roll-out goes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Agents that may be at it at a time.
    pub batch_agents: u32,
    /// The least time between two batches.
    pub batch_interval: Duration,
    /// The share of agents, in percent, that goes first; the rest waits for its outcome.
    pub canary_percent: u8,
    /// The share of reached agents, in percent, that may fail before the roll-out halts.
    pub failures_percent: u8,
}

/// Where a roll-out stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutState {
    /// It goes on by itself.
    Running,
    /// An operator stopped it for a while.
    Paused,
    /// Too much failed.
    Halted,
    /// An operator ended it: who has the flow keeps it.
    Aborted,
    /// An operator undid it: all get the flow before.
    RolledBack,
    /// Everybody got it.
    Done,
}

/// How an agent of the class stands to the roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its rank.
    pub rank: u32,
    /// Whether it is there.
    pub is_online: bool,
    /// What became of the flow.
    pub outcome: Outcome,
}

/// What became of a flow on an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// It runs.
    Deployed,
    /// It could not be taken.
    Failed,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing for now.
    Wait,
    /// Reach further.
    Reach(u64),
    /// Stop: too much failed.
    Halt(String),
    /// All is done.
    Finish,
}

/// How far a roll-out has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Progress {
    /// Agents of the class.
    pub agents: usize,
    /// Those that are to get the flow by now.
    pub reached: usize,
    /// Those that run it.
    pub deployed: usize,
    /// Those that could not take it.
    pub failed: usize,
    /// Those that are there and at it.
    pub pending: usize,
    /// Those that are to get it and are away.
    pub offline: usize,
}

impl Rollout {
    /// An agent's rank.
    pub fn rank(&self, agent: &str) -> u32 {
        let mut digest = Sha256::new();
        digest.update(self.id.as_bytes());
        digest.update(agent.as_bytes());
        let digest = digest.finalize();
        u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
    }

    /// The flow that `agent` should run.
    pub fn flow_for(&self, agent: &str) -> Option<&Arc<str>> {
        if u64::from(self.rank(agent)) < self.reach {
            Some(&self.flow)
        } else {
            self.previous.as_ref()
        }
    }

    /// Whether another one may take its place.
    pub fn is_over(&self) -> bool {
        matches!(
            self.state,
            RolloutState::Aborted | RolloutState::RolledBack | RolloutState::Done
        )
    }

    /// How far it has come.
    pub fn progress(&self, agents: &[Standing]) -> Progress {
        let mut progress = Progress {
            agents: agents.len(),
            ..Progress::default()
        };
        for agent in agents {
            match agent.outcome {
                Outcome::Deployed => progress.deployed += 1,
                _ if u64::from(agent.rank) >= self.reach => continue,
                Outcome::Failed => progress.failed += 1,
                Outcome::Pending if agent.is_online => progress.pending += 1,
                Outcome::Pending => progress.offline += 1,
            }
            progress.reached += usize::from(u64::from(agent.rank) < self.reach);
        }
        progress
    }

    /// What is to be done now.
    pub fn decide(&self, now: UnixMillis, agents: &[Standing]) -> Step {
        if self.state != RolloutState::Running {
            return Step::Wait;
        }
        let progress = self.progress(agents);
        let allowed = progress.reached * usize::from(self.plan.failures_percent);
        if progress.failed * 100 > allowed {
            return Step::Halt(format!(
                "{} of {} agents failed, more than {} percent",
                progress.failed, progress.reached, self.plan.failures_percent
            ));
        }
        let is_waiting = |agent: &&Standing| {
            agent.is_online
                && u64::from(agent.rank) >= self.reach
                && agent.outcome != Outcome::Deployed
        };
        let mut waiting: Vec<u32> = agents.iter().filter(is_waiting).map(|a| a.rank).collect();
        if waiting.is_empty() {
            return match (progress.pending, self.reach == EVERYBODY) {
                (0, true) => Step::Finish,
                (0, false) => Step::Reach(EVERYBODY),
                _ => Step::Wait,
            };
        }
        waiting.sort_unstable();
        let count = match (self.reach, self.plan.canary_percent) {
            (0, 1..) => canaries(agents.len(), self.plan.canary_percent).min(waiting.len()),
            (0, 0) => self.plan.batch_agents as usize,
            _ if now.since(self.reached) < self.plan.batch_interval => 0,
            // The rest waits for the canaries' outcome.
            _ if progress.pending > 0 && self.is_canary_stage(agents) => 0,
            _ => (self.plan.batch_agents as usize).saturating_sub(progress.pending),
        };
        // A canary share larger than a batch goes in batches too.
        let room = (self.plan.batch_agents as usize).saturating_sub(progress.pending);
        match waiting.get(count.min(room).min(waiting.len()).wrapping_sub(1)) {
            Some(last) => Step::Reach(u64::from(*last) + 1),
            None => Step::Wait,
        }
    }

    /// Whether no more than the canaries were reached.
    fn is_canary_stage(&self, agents: &[Standing]) -> bool {
        let reached = agents.iter().filter(|a| u64::from(a.rank) < self.reach);
        self.plan.canary_percent > 0
            && reached.count() <= canaries(agents.len(), self.plan.canary_percent)
    }
}

/// The agents of a share, one at least.
fn canaries(agents: usize, percent: u8) -> usize {
    (agents * usize::from(percent)).div_ceil(100).max(1)
}

impl RolloutState {
    /// The word in the API and in the database.
    pub fn as_str(self) -> &'static str {
        WORDS
            .iter()
            .find(|(state, _)| *state == self)
            .map_or("", |(_, word)| word)
    }
}

impl fmt::Display for RolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RolloutState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        WORDS
            .iter()
            .find(|(_, word)| *word == text)
            .map(|(state, _)| *state)
            .ok_or(())
    }
}

/// A reach above every rank.
pub const EVERYBODY: u64 = 1 << 32;

const WORDS: [(RolloutState, &str); 6] = [
    (RolloutState::Running, "running"),
    (RolloutState::Paused, "paused"),
    (RolloutState::Halted, "halted"),
    (RolloutState::Aborted, "aborted"),
    (RolloutState::RolledBack, "rolled_back"),
    (RolloutState::Done, "done"),
];

#[cfg(test)]
mod tests;
