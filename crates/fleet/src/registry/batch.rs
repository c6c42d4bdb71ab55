//! What must be written: gathered into a batch of a numbered generation, and put back whole when it
//! could not be written.

use std::collections::HashSet;
use std::sync::Arc;

use base::UnixMillis;

use super::{PlaceClaim, Registry, SeenManifest};
use crate::agent::Agent;
use crate::events::Event;
use crate::manifest::{Mark, NewManifest};
use crate::operation::FleetOperation;
use crate::sighting::Sighting;

/// What must be written, as it was at one moment.
#[derive(Debug, Default)]
pub struct Batch {
    pub generation: u64,
    pub agents: Vec<Agent>,
    pub operations: Vec<(Arc<str>, FleetOperation)>,
    pub removed_operations: Vec<Arc<str>>,
    pub classes: Vec<(Arc<str>, UnixMillis)>,
    pub manifests: Vec<NewManifest>,
    pub sightings: Vec<Sighting>,
    pub claims: Vec<Claim>,
    pub place_claims: Vec<PlaceClaim>,
    pub events: Vec<Event>,
    pub seen: Vec<(Arc<str>, SeenManifest)>,
}

/// A wish to have a manifest described by one agent alone.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Of the manifest's hash.
    pub mark: Mark,
    /// The operation that asks for it.
    pub operation: Arc<str>,
    /// When another agent may be asked.
    pub until: UnixMillis,
}

impl Registry {
    /// Whether anything waits to be written.
    pub fn is_dirty(&self) -> bool {
        !(self.dirty.is_empty()
            && self.sighted.is_empty()
            && self.events.is_empty()
            && self.new_classes.is_empty()
            && self.new_manifests.is_empty()
            && self.seen.is_empty()
            && self.removed_operations.is_empty())
    }

    /// Takes what must be written; the next change belongs to the next generation.
    pub fn take_batch(&mut self) -> Batch {
        let mut batch = Batch {
            generation: self.generation,
            removed_operations: std::mem::take(&mut self.removed_operations),
            manifests: std::mem::take(&mut self.new_manifests),
            claims: std::mem::take(&mut self.claims),
            place_claims: std::mem::take(&mut self.place_claims),
            events: std::mem::take(&mut self.events),
            seen: std::mem::take(&mut self.seen),
            ..Batch::default()
        };
        self.generation += 1;
        self.take_sightings(&mut batch);
        for name in self.new_classes.drain(..) {
            if let Some(class) = self.classes.get(&name) {
                batch.classes.push((name, class.created));
            }
        }
        let operations = std::mem::take(&mut self.dirty_operations);
        for id in self.dirty.drain(..) {
            let Some(agent) = self.agents.get_mut(&id) else {
                continue;
            };
            agent.dirty = false;
            agent.row_seen = agent.last_seen;
            for operation in &agent.operations {
                if operations.contains(&operation.id) {
                    batch.operations.push((id.clone(), operation.clone()));
                }
            }
            batch.agents.push(row_of(agent));
        }
        batch
    }

    /// Notes that a batch is durable.
    pub fn committed(&mut self, batch: &Batch) {
        for (agent, operation) in &batch.operations {
            let agent = self.agents.get_mut(agent);
            if let Some(stored) = agent.and_then(|agent| agent.operation_mut(&operation.id)) {
                stored.stored = true;
            }
        }
    }

    /// Puts a batch back that could not be written; a later generation will carry it.
    pub fn put_back(&mut self, batch: Batch) {
        self.removed_operations.extend(batch.removed_operations);
        self.new_manifests.splice(0..0, batch.manifests);
        self.claims.splice(0..0, batch.claims);
        self.place_claims.splice(0..0, batch.place_claims);
        self.seen.splice(0..0, batch.seen);
        batch.events.into_iter().for_each(|event| self.tell(event));
        self.put_sightings_back(batch.sightings);
        self.new_classes
            .splice(0..0, batch.classes.into_iter().map(|(name, _)| name));
        for (agent, operation) in batch.operations {
            self.dirty_operations.insert(operation.id);
            self.mark(&agent);
        }
        for agent in batch.agents {
            self.mark(&agent.id);
        }
    }
}

impl Batch {
    /// Both halves of it, so that what the database takes of it gets there: what belongs together
    /// stays together. One part alone where it cannot be divided.
    pub fn halves(mut self) -> (Batch, Option<Batch>) {
        let mut other = Batch {
            generation: self.generation,
            ..Batch::default()
        };
        let kinds = [
            !self.manifests.is_empty(),
            !self.events.is_empty(),
            !(self.agents.is_empty() && self.operations.is_empty()),
        ];
        let has_rest = !(self.classes.is_empty()
            && self.seen.is_empty()
            && self.removed_operations.is_empty()
            && self.sightings.is_empty());
        let kinds_there = kinds.iter().filter(|is_there| **is_there).count();
        if kinds_there + usize::from(has_rest) > 1 {
            // What may be large or strange goes by itself; agents after the classes that they name.
            if kinds[0] {
                other.manifests = std::mem::take(&mut self.manifests);
            } else if kinds[1] {
                other.events = std::mem::take(&mut self.events);
            } else {
                other.agents = std::mem::take(&mut self.agents);
                other.operations = std::mem::take(&mut self.operations);
                self.move_claims(&mut other);
            }
            return (self, Some(other));
        }
        if self.manifests.len() > 1 {
            other.manifests = self.manifests.split_off(self.manifests.len() / 2);
        } else if self.events.len() > 1 {
            other.events = self.events.split_off(self.events.len() / 2);
        } else if self.agents.len() > 1 {
            other.agents = self.agents.split_off(self.agents.len() / 2);
            let moved: HashSet<Arc<str>> = other.agents.iter().map(|a| a.id.clone()).collect();
            let (moves, stays) = std::mem::take(&mut self.operations)
                .into_iter()
                .partition(|(agent, _)| moved.contains(agent));
            (other.operations, self.operations) = (moves, stays);
        } else if !self.agents.is_empty() && !self.operations.is_empty() {
            other.operations = std::mem::take(&mut self.operations);
        } else if self.operations.len() > 1 {
            other.operations = self.operations.split_off(self.operations.len() / 2);
        } else {
            return (self, None);
        }
        self.move_claims(&mut other);
        (self, Some(other))
    }

    /// Moves the claims of operations that moved to another batch.
    fn move_claims(&mut self, other: &mut Batch) {
        let moved = other.operations.iter().map(|(_, op)| op.id.clone());
        let moved: HashSet<Arc<str>> = moved.collect();
        let (moves, stays) = std::mem::take(&mut self.claims)
            .into_iter()
            .partition(|claim| moved.contains(&claim.operation));
        (other.claims, self.claims) = (moves, stays);
        let (moves, stays) = std::mem::take(&mut self.place_claims)
            .into_iter()
            .partition(|claim| moved.contains(&claim.before.id));
        (other.place_claims, self.place_claims) = (moves, stays);
    }

    /// What it is about, for a line of the trace.
    pub fn about(&self) -> String {
        let manifests = self
            .manifests
            .iter()
            .map(|of| format!("manifest {}", of.key));
        let agents = self.agents.iter().map(|of| format!("agent {}", of.id));
        let events = self
            .events
            .iter()
            .map(|of| format!("event {}", of.kind.as_str()));
        let all: Vec<String> = manifests.chain(agents).chain(events).take(3).collect();
        all.join(", ")
    }
}

/// The agent as its row needs it: without operations and without the kept heartbeat.
fn row_of(agent: &Agent) -> Agent {
    Agent {
        class: agent.class.clone(),
        given: agent.given.clone(),
        mark: agent.mark,
        manifest: agent.manifest.clone(),
        hostname: agent.hostname.clone(),
        device: agent.device.clone(),
        flow: agent.flow.clone(),
        resources: agent.resources.clone(),
        last_seen: agent.last_seen,
        heartbeats: agent.heartbeats,
        row_seen: agent.row_seen,
        interval_ms: agent.interval_ms,
        place: agent.place,
        ..Agent::new(agent.id.clone(), agent.first_seen)
    }
}
