//! How many agents are at an operation together, where only so many may. Without IO.
//!
//! What a class is asked for has a bound ([`Request::at_once`]), and so have its resources
//! ([`ResourceSet::at_once`]). An agent that calls while fewer are at it is handed its operation and
//! holds a place until that is over, however it ends; the others find it waiting at a later call. So
//! a place is never kept for one that is away.
//!
//! Places are counted from the operations themselves: nothing is stored that could differ from them.
//! A node counts those that it has heard of. Where nodes share a database, the transaction that
//! writes an operation as handed out counts once more, and an operation for which there is no room
//! goes back to what it was ([`PlaceClaim`]): agents get it after that.

use std::collections::HashMap;
use std::sync::Arc;

use c2::OperationKind;

use super::Registry;
use crate::agent::Agent;
use crate::capability;
use crate::operation::{FleetOperation, Group, OperationStatus};
use crate::request::Request;
use crate::resource::ResourceSet;

/// How many agents are at the operations of each group.
#[derive(Debug, Default)]
pub struct Places {
    taken: HashMap<Group, u32>,
}

/// A place that was taken, until the database says that there was one.
#[derive(Clone, Debug)]
pub struct PlaceClaim {
    /// At what.
    pub group: Group,
    /// How many places there are.
    pub at_once: u32,
    /// Who took it.
    pub agent: Arc<str>,
    /// The operation as it was before.
    pub before: FleetOperation,
}

/// What says how many may be at what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'r> {
    pub requests: &'r HashMap<Arc<str>, Arc<Request>>,
    pub sets: &'r HashMap<Arc<str>, Arc<ResourceSet>>,
}

impl Places {
    /// Follows what became of an operation.
    pub(super) fn follow(&mut self, operation: &mut FleetOperation) {
        let is_at_it = operation.status == OperationStatus::Deployed;
        if operation.counted == is_at_it {
            return;
        }
        let Some(group) = operation.group() else {
            return;
        };
        if is_at_it {
            *self.taken.entry(group).or_default() += 1;
            operation.counted = true;
        } else {
            self.leave(operation);
        }
    }

    /// Gives up the place of an operation that is over, or forgotten.
    pub(super) fn leave(&mut self, operation: &mut FleetOperation) {
        if !std::mem::take(&mut operation.counted) {
            return;
        }
        if let Some(group) = operation.group()
            && let Some(taken) = self.taken.get_mut(&group)
        {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(&group);
            }
        }
    }

    /// How many are at the operations of a group.
    pub fn taken(&self, group: &Group) -> u32 {
        self.taken.get(group).copied().unwrap_or_default()
    }

    /// Whether an operation of this bound finds no place now; one that has a place keeps it.
    pub(super) fn are_full_for(&self, operation: &FleetOperation, at_once: u32) -> bool {
        at_once > 0
            && !operation.counted
            && operation
                .group()
                .is_some_and(|group| self.taken(&group) >= at_once)
    }
}

impl Bounds<'_> {
    /// How many agents may be at an operation of an agent of this class at the same time; 0: all.
    pub(super) fn of(self, class: Option<&Arc<str>>, operation: &FleetOperation) -> u32 {
        let known = match (&operation.request, &operation.goal) {
            (Some(request), _) => self.requests.get(request).map(|request| request.at_once),
            (None, Some(_)) if operation.kind == OperationKind::Sync => {
                let set = class.and_then(|class| self.sets.get(class));
                set.map(|set| set.at_once)
            }
            (None, _) => return 0,
        };
        let usual = || capability::row_of(&operation.kind, &operation.operand);
        known.unwrap_or_else(|| usual().map_or(0, |row| row.at_once))
    }
}

impl Registry {
    /// How many agents may be at this operation of an agent at the same time; 0: all.
    pub fn at_once(&self, agent: &Agent, operation: &FleetOperation) -> u32 {
        let bounds = Bounds {
            requests: &self.requests,
            sets: &self.resource_sets,
        };
        bounds.of(agent.class.as_ref(), operation)
    }

    /// The requests of an agent's operations that may be handed out and that this node knows nothing
    /// of: another one was asked.
    pub fn unknown_requests(&self, agent: &str) -> Vec<Arc<str>> {
        let operations = self.agents.get(agent).map(|agent| &agent.operations);
        let open = operations.into_iter().flatten().filter(|op| op.is_open());
        let requests = open.filter_map(|op| op.request.as_ref());
        let unknown = requests.filter(|id| !self.requests.contains_key(*id));
        unknown.cloned().collect()
    }

    /// Whether an operation is still handed out.
    pub fn is_handed_out(&self, id: &str) -> bool {
        self.operation(id)
            .is_some_and(|(_, operation)| operation.status == OperationStatus::Deployed)
    }

    /// Follows what became of an agent's operations.
    pub(super) fn follow_operations(&mut self, id: &Arc<str>) {
        let Some(agent) = self.agents.get_mut(id) else {
            self.active.remove(id);
            return;
        };
        for operation in &mut agent.operations {
            self.places.follow(operation);
        }
        match agent.has_active() {
            true => self.active.insert(id.clone()),
            false => self.active.remove(id),
        };
    }

    /// Takes operations back for which there was no place any more: they were not given to agents.
    pub fn give_places_back(&mut self, claims: &[PlaceClaim]) {
        for claim in claims {
            let agent = self.agents.get_mut(&claim.agent);
            let found = agent.and_then(|agent| agent.operation_mut(&claim.before.id));
            let Some(operation) = found else {
                continue;
            };
            // Whatever came of it meanwhile stands.
            if operation.status == OperationStatus::Deployed
                && operation.attempts == claim.before.attempts + 1
            {
                let counted = operation.counted;
                *operation = FleetOperation {
                    counted,
                    stored: true,
                    ..claim.before.clone()
                };
                self.follow_operations(&claim.agent);
            }
        }
    }
}
