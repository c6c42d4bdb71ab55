//! Which agents have their class's resources, and which have to fetch them.

use std::sync::Arc;

use base::UnixMillis;
use c2::{Operand, OperationKind};

use super::plan::new_operation;
use super::{Registry, operation_id};
use crate::agent::{Agent, Told};
use crate::capability::Profile;
use crate::operation::{FleetOperation, OperationStatus, Policy};
use crate::resource::ResourceSet;

/// How an agent stands to the resources of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceState {
    /// Its class never had any, or it has no class.
    None,
    /// It should fetch them, or is at it.
    Pending,
    /// It has them all.
    Synced,
    /// It cannot fetch them: the last try failed, or it takes none.
    Failed,
}

impl ResourceState {
    /// All of them.
    pub const ALL: [ResourceState; 4] = [
        ResourceState::None,
        ResourceState::Pending,
        ResourceState::Synced,
        ResourceState::Failed,
    ];

    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ResourceState::None => "none",
            ResourceState::Pending => "pending",
            ResourceState::Synced => "synced",
            ResourceState::Failed => "failed",
        }
    }
}

impl Registry {
    /// The resources that the agent's class wants; none while nobody ever gave it any.
    pub fn resources_of(&self, agent: &Agent) -> Option<Arc<ResourceSet>> {
        self.resource_sets.get(agent.class.as_ref()?).cloned()
    }

    /// How the agent stands to the resources of its class.
    pub fn resource_state(&self, agent: &Agent) -> ResourceState {
        let Some(set) = self.resources_of(agent) else {
            return ResourceState::None;
        };
        if has(agent, &set) {
            return ResourceState::Synced;
        }
        match tries(agent, &set).next().map(|last| last.status) {
            Some(OperationStatus::Failed | OperationStatus::TimedOut) => ResourceState::Failed,
            _ => ResourceState::Pending,
        }
    }

    /// Settles the agent's SYNC operations by what it says it has, and makes one if it needs one;
    /// tells whether one was made.
    pub(super) fn plan_resources(
        &mut self,
        id: &Arc<str>,
        now: UnixMillis,
        policy: &Policy,
    ) -> bool {
        let Some(agent) = self.agents.get(id) else {
            return false;
        };
        let set = self.resources_of(agent);
        let head = self.head_of(agent);
        let Some(agent) = self.agents.get_mut(id) else {
            return false;
        };
        let echoed = match &agent.resources {
            Told::Hash(hash) => Some(hash.clone()),
            Told::Nothing | Told::Unknown => None,
        };
        let mut any_changed = false;
        for operation in &mut agent.operations {
            let Some(goal) = operation.goal.clone() else {
                continue;
            };
            if operation.kind != OperationKind::Sync {
                continue;
            }
            let changed = if echoed.as_ref() == Some(&goal) {
                operation.converge(now)
            } else if set.as_ref().map(|set| &set.digest) != Some(&goal) && operation.is_active() {
                operation.cancel("other resources took their place", now);
                true
            } else {
                false
            };
            if changed {
                any_changed = true;
                self.dirty_operations.insert(operation.id.clone());
            }
        }
        if any_changed {
            self.mark(id);
        }
        let Some(agent) = self.agents.get(id) else {
            return false;
        };
        let Some(set) = set.filter(|set| agent.needs(set, now, policy)) else {
            return false;
        };
        // Who has not described itself yet will have done so soon.
        let Some(head) = head else {
            return false;
        };
        let (kind, operand) = (OperationKind::Sync, Operand::Resource);
        let verdict = Profile::of(Some(&head)).check(&kind, &operand);
        let last = tries(agent, &set).next();
        let was_refused =
            last.is_some_and(|op| op.status == OperationStatus::Failed && op.attempts == 0);
        if was_refused && verdict.is_err() {
            return false;
        }
        // Every node gives the same try the same id.
        let planned = operation_id(id, &set.digest, last.map(|op| &*op.id));
        let mut operation = new_operation(kind, operand, None, now);
        operation.id = planned;
        operation.goal = Some(set.digest.clone());
        if let Err(reason) = verdict {
            operation.refuse(reason, now);
        }
        self.add(id, operation);
        true
    }
}

impl Agent {
    /// Whether the agent needs a SYNC now. After a failure the wait doubles each time, without end:
    /// the item that could not be had may be there later.
    fn needs(&self, set: &ResourceSet, now: UnixMillis, policy: &Policy) -> bool {
        let is_told = !matches!(self.resources, Told::Unknown);
        if has(self, set) || !(is_told || self.can_sync_unasked()) {
            return false;
        }
        let mut of_set = tries(self, set);
        let Some(last) = of_set.next() else {
            // An agent that has nothing needs not be told to have nothing.
            return !(set.items.is_empty() && matches!(self.resources, Told::Nothing));
        };
        if last.is_active() {
            return false;
        }
        if last.status == OperationStatus::Cancelled {
            return true;
        }
        let doublings = u32::try_from(of_set.count()).unwrap_or(u32::MAX);
        now.since(last.updated) >= policy.resend_after.saturating_mul(1 << doublings.min(6))
    }

    /// An agent that says nothing of resources at all is refused visibly, once.
    fn can_sync_unasked(&self) -> bool {
        self.heartbeats > 1
    }
}

/// Whether the agent has the resources.
pub(super) fn has(agent: &Agent, set: &ResourceSet) -> bool {
    match &agent.resources {
        Told::Hash(hash) => *hash == set.digest,
        Told::Nothing => set.items.is_empty(),
        // One that repeats nothing that it said before is believed its last answer.
        Told::Unknown => tries(agent, set)
            .next()
            .is_some_and(|last| last.status == OperationStatus::Done),
    }
}

/// The agent's tries to get this set, the last one first.
fn tries<'a>(agent: &'a Agent, set: &'a ResourceSet) -> impl Iterator<Item = &'a FleetOperation> {
    let of_set = |op: &&FleetOperation| op.goal.as_ref() == Some(&set.digest);
    agent.operations.iter().rev().filter(of_set)
}
