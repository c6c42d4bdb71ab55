//! The short way of the heartbeat that comes by far the most: one that says what the one before said
//! but for its figures, of an agent from which nothing is wanted. It leaves what the whole way
//! would; all else goes that one.

use std::sync::Arc;

use base::UnixMillis;
use c2::Glance;

use super::places::Bounds;
use super::{Registry, resourced};
use crate::agent::{Agent, Told};
use crate::expiry::ShownCertificate;
use crate::kept::Kept;
use crate::limits;
use crate::manifest::{Mark, is_hash};
use crate::operation::{FleetOperation, OperationStatus, Policy};
use crate::resource::ResourceSet;

/// Whose heartbeat it was.
#[derive(Debug)]
pub struct Beaten {
    /// The agent.
    pub agent: Arc<str>,
    /// Its class.
    pub class: Option<Arc<str>>,
}

impl Registry {
    /// Takes a heartbeat that says nothing new and asks for nothing; `None`, with nothing changed,
    /// for any other. `kept` is what is to be kept of it.
    pub fn beat(
        &mut self,
        now: UnixMillis,
        policy: &Policy,
        glance: &Glance<'_>,
        shown: Option<ShownCertificate>,
        kept: Option<Kept>,
    ) -> Option<Beaten> {
        let agent = self.agents.get_mut(glance.sender()?)?;
        let covers = |before: &Kept| kept.as_ref().is_some_and(|kept| kept.covers(before));
        if !agent.says_again(glance, shown, now)
            || now.since(agent.row_seen) >= limits::ROW_SEEN_AGE
            || !agent.last.as_deref().is_none_or(covers)
        {
            return None;
        }
        let bounds = Bounds {
            requests: &self.requests,
            sets: &self.resource_sets,
        };
        let places = &self.places;
        let waits = |operation: &FleetOperation| {
            let is_ready = operation.status == OperationStatus::Queued && operation.stored;
            is_ready && places.are_full_for(operation, bounds.of(agent.class.as_ref(), operation))
        };
        let mut operations = agent.operations.iter();
        if !operations.all(|operation| is_over(agent, operation) || waits(operation)) {
            return None;
        }
        if !self.manifests.contains_key(agent.manifest.as_ref()?) {
            return None;
        }
        if let Some(class) = &agent.class {
            let desired = self
                .classes
                .get(class)
                .and_then(|class| class.wanted(&agent.id));
            let resources = self.resource_sets.get(class);
            let is_at_its_turn = |set: &ResourceSet| {
                let mut of_set = agent.operations.iter().filter(|op| op.is_active());
                !of_set.any(|op| op.goal.as_ref() == Some(&set.digest))
            };
            if desired.is_some_and(|desired| agent.flow.as_ref() != Some(&desired))
                || resources.is_some_and(|set| !resourced::has(agent, set) && is_at_its_turn(set))
            {
                return None;
            }
        }
        agent.learn_interval(now);
        agent.last_seen = agent.last_seen.max(now);
        agent.heartbeats += 1;
        agent.certificate = shown.map(|shown| shown.mark).or(agent.certificate);
        let event = agent.note_certificate(shown, policy, now);
        if agent.unsighted == 0 {
            self.sighted.push(agent.id.clone());
        }
        agent.unsighted += 1;
        let room = limits::KEPT_HEARTBEATS_BYTES_MAX.saturating_sub(self.kept_bytes);
        let grown = agent.keep(kept, room);
        self.kept_bytes = self.kept_bytes.saturating_add_signed(grown);
        self.due.follow(agent, &self.config);
        let beaten = Beaten {
            agent: agent.id.clone(),
            class: agent.class.clone(),
        };
        if let Some(event) = event {
            self.tell(event);
        }
        Some(beaten)
    }
}

impl Agent {
    /// Whether a heartbeat says of the agent and of its caller what is known.
    fn says_again(
        &self,
        glance: &Glance<'_>,
        shown: Option<ShownCertificate>,
        now: UnixMillis,
    ) -> bool {
        let Some(agent) = &glance.agent else {
            return false;
        };
        let hash = agent.manifest_hash.as_deref();
        let mark = hash.filter(|hash| is_hash(hash)).map(Mark::of);
        let has_manifest = mark.is_some() && mark == self.mark;
        let class = glance.class();
        let device = glance.device.as_ref().is_none_or(|device| {
            says(&self.device, device.identifier.as_deref())
                && says(&self.hostname, device.hostname.as_deref())
        });
        let flow = glance.flow.as_ref().is_none_or(|flow| {
            flow.as_deref() == self.flow.as_deref() && self.bulletins.is_empty()
        });
        let resources = match (&glance.resources, glance.digest(), &self.resources) {
            (None, _, _) | (_, None, Told::Nothing) => true,
            (_, Some(hash), Told::Hash(known)) => *hash == **known,
            _ => false,
        };
        self.heartbeats > 0
            && has_manifest
            && (class.is_none_or(|class| self.class.as_deref() == Some(class))
                || self.given_class().is_some())
            && device
            && flow
            && resources
            && self.is_caller(agent.uptime, shown.map(|shown| shown.mark), now)
    }
}

/// Whether what is told is what is known; who tells nothing says nothing new.
fn says(known: &Option<String>, told: Option<&str>) -> bool {
    told.is_none_or(|told| told.is_empty() || known.as_deref() == Some(told))
}

/// Whether nothing comes of an operation any more but by the agent's answer. What timed out may still be
/// seen to be done: its flow runs, its resources are there.
fn is_over(agent: &Agent, operation: &FleetOperation) -> bool {
    match operation.status {
        OperationStatus::Done | OperationStatus::Failed | OperationStatus::Cancelled => true,
        OperationStatus::TimedOut => {
            let runs = operation.flow.is_some() && operation.flow == agent.flow;
            let has = match (&agent.resources, &operation.goal) {
                (Told::Hash(hash), Some(goal)) => hash == goal,
                _ => false,
            };
            !runs && !has
        }
        OperationStatus::Queued | OperationStatus::Deployed => false,
    }
}
