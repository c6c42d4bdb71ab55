//! What agents should do: operations are made, handed out, and timed out.

use std::ops::Bound;
use std::sync::Arc;

use base::UnixMillis;
use c2::{AgentManifest, Operand, OperationKind};
use uuid::Uuid;

use super::places::Bounds;
use super::{Claim, PlaceClaim, Registry, join};
use crate::agent::FlowNeed;
use crate::capability::Profile;
use crate::events::Event;
use crate::limits;
use crate::manifest::Mark;
use crate::operation::{FleetOperation, Policy};
use crate::request::Request;
use crate::resource::ResourceSet;

/// An operation to put into a response.
#[derive(Clone, Debug)]
pub struct Handout {
    pub id: Arc<str>,
    pub kind: OperationKind,
    pub operand: Operand,
    pub flow: Option<Arc<str>>,
    /// The operator's request that it came from.
    pub request: Option<Arc<str>>,
    /// That request, if it is in memory.
    pub asked: Option<Arc<Request>>,
    /// The resources of a SYNC.
    pub resources: Option<Arc<ResourceSet>>,
    /// What the agent can do.
    pub head: Option<Arc<AgentManifest>>,
    /// Whether it may be handed out again; what may not has to be durable as handed out first.
    pub repeats: bool,
    /// Whether it takes one of a few places: then it has to be durable first, too, since another node
    /// may have given the last one away.
    pub takes_place: bool,
}

/// What a look for time-outs came to.
#[derive(Debug)]
pub struct Swept {
    /// Operations that timed out.
    pub expired: usize,
    /// The agent to go on after; none: all were looked at.
    pub next: Option<Arc<str>>,
}

impl Registry {
    /// Makes the operations that the agent needs; returns whether one must be stored before it
    /// can be handed out.
    pub(super) fn plan(&mut self, id: &Arc<str>, now: UnixMillis, policy: &Policy) -> bool {
        let Some(agent) = self.agents.get_mut(id) else {
            return false;
        };
        let class = agent
            .class
            .as_ref()
            .and_then(|class| self.classes.get(class));
        let desired = class.and_then(|class| class.wanted(id));
        let silent = agent.settle_silent(now);
        let mut settled = silent;
        if agent.settle(desired.as_deref(), now) || silent {
            settled = true;
            let ids = agent
                .operations
                .iter()
                .map(|operation| operation.id.clone());
            self.dirty_operations.extend(ids);
        }
        let head = agent
            .manifest
            .as_ref()
            .and_then(|key| self.manifests.get(key))
            .cloned();
        let mut fresh = Vec::new();
        if head.is_none() {
            // Agents of one hash are described by one of them; those without a hash answer for
            // themselves.
            let goal = agent.mark.map(Mark::word);
            let key = goal
                .clone()
                .unwrap_or_else(|| Arc::from(format!("agent:{id}")));
            if !self.describing.contains_key(&key)
                && self.describing.len() < limits::DESCRIBING_MAX
                && agent.may_describe(goal.as_ref(), now, policy)
            {
                let before = agent.operations.iter().rev();
                let before = before.filter(|op| op.kind == OperationKind::Describe);
                let about = (&*key, before.map(|op| &*op.id).next());
                let mut operation =
                    new_operation(OperationKind::Describe, Operand::Manifest, None, now);
                operation.id = join::operation_id(id, about.0, about.1);
                // Who has no hash describes nobody but itself.
                if let Some(mark) = agent.mark {
                    self.claims.push(Claim {
                        mark,
                        operation: operation.id.clone(),
                        until: now + policy.describe_timeout,
                    });
                }
                operation.goal = goal;
                self.describing
                    .insert(key, (id.clone(), operation.id.clone()));
                fresh.push(operation);
            }
        }
        if agent.flow_need(desired.as_deref(), now, policy) == FlowNeed::Update {
            let (kind, operand) = (OperationKind::Update, Operand::Configuration);
            let profile = Profile::of(head.as_deref());
            let verdict = profile.check(&kind, &operand);
            let about = desired.clone().unwrap_or_default();
            let before = agent.operations.iter().rev();
            let before = before.filter(|op| op.flow == desired).map(|op| &*op.id);
            let planned = join::operation_id(id, &about, before.into_iter().next());
            let mut operation = new_operation(kind, operand, desired, now);
            operation.id = planned;
            if let Err(reason) = verdict {
                operation.refuse(reason, now);
            }
            fresh.push(operation);
        }
        let waits = agent
            .operations
            .iter()
            .any(|op| op.is_active() && !op.stored);
        let mut created = !fresh.is_empty();
        for operation in fresh {
            self.add(id, operation);
        }
        created |= self.plan_resources(id, now, policy);
        if created || settled {
            self.mark(id);
        }
        self.follow_operations(id);
        created || waits
    }

    /// The operations for the response to `agent`, which calls now, and the generation in which
    /// they are durable as handed out.
    pub fn hand_out(
        &mut self,
        now: UnixMillis,
        policy: &Policy,
        agent: &str,
    ) -> (Vec<Handout>, u64) {
        let found = self.agents.get(agent);
        let (head, resources) = match found {
            Some(agent) => (self.head_of(agent), self.resources_of(agent)),
            None => return (Vec::new(), self.generation),
        };
        let Some(agent) = self.agents.get_mut(agent) else {
            return (Vec::new(), self.generation);
        };
        let class = agent
            .class
            .as_ref()
            .and_then(|class| self.classes.get(class));
        let desired = class.and_then(|class| class.wanted(&agent.id));
        let bounds = Bounds {
            requests: &self.requests,
            sets: &self.resource_sets,
        };
        let mut handouts = Vec::new();
        for operation in agent.operations.iter_mut().filter(|op| op.is_open()) {
            let at_once = bounds.of(agent.class.as_ref(), operation);
            if self.places.are_full_for(operation, at_once) {
                continue;
            }
            // What timed out is sent again only while it is still what the class wants.
            let wanted = operation.flow.is_none() || operation.flow == desired;
            let group = operation.group().filter(|_| at_once > 0);
            let group = group.filter(|_| !operation.counted);
            let before = group.is_some().then(|| operation.clone());
            if wanted && operation.hand_out(now, policy) {
                self.places.follow(operation);
                if let (Some(group), Some(before)) = (&group, before) {
                    self.place_claims.push(PlaceClaim {
                        group: group.clone(),
                        at_once,
                        agent: agent.id.clone(),
                        before,
                    });
                }
                let asked = operation.request.as_ref();
                let asked = asked.and_then(|id| self.requests.get(id)).cloned();
                handouts.push(Handout {
                    id: operation.id.clone(),
                    kind: operation.kind.clone(),
                    operand: operation.operand.clone(),
                    flow: operation.flow.clone(),
                    request: operation.request.clone(),
                    asked,
                    resources: resources
                        .clone()
                        .filter(|_| operation.kind == OperationKind::Sync),
                    head: head.clone(),
                    repeats: operation.repeats(),
                    takes_place: group.is_some(),
                });
                self.dirty_operations.insert(operation.id.clone());
            }
        }
        if !handouts.is_empty() {
            let id = agent.id.clone();
            self.mark(&id);
            self.follow_operations(&id);
        }
        (handouts, self.generation)
    }

    /// Times out what waited too long, of agents with operations under way after this one; as many as
    /// one lock should last for.
    pub fn sweep(&mut self, after: Option<&str>, now: UnixMillis, policy: &Policy) -> Swept {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let of_piece = self.active.range::<str, _>((start, Bound::Unbounded));
        let (mut expired, mut failed) = (Vec::new(), Vec::new());
        let (mut looked_at, mut last) = (0, None);
        for id in of_piece.take(limits::LOOKED_AT_ONCE) {
            looked_at += 1;
            last = Some(id.clone());
            let Some(agent) = self.agents.get_mut(id) else {
                continue;
            };
            let patience = self.config.patience(agent);
            for operation in &mut agent.operations {
                if operation.expire(now, policy, patience, agent.last_seen) {
                    if operation.is_hopeless(policy) {
                        failed.push(Event::failed(id, agent.class.clone(), operation, now));
                    }
                    let describes = operation.kind == OperationKind::Describe;
                    expired.push((id.clone(), operation.id.clone(), describes));
                }
            }
        }
        failed.into_iter().for_each(|event| self.tell(event));
        for (agent, operation, describes) in &expired {
            if *describes {
                self.describing
                    .retain(|_, (_, describing)| describing != operation);
            }
            self.dirty_operations.insert(operation.clone());
            self.mark(agent);
            self.follow_operations(agent);
        }
        Swept {
            expired: expired.len(),
            next: last.filter(|_| looked_at == limits::LOOKED_AT_ONCE),
        }
    }

    /// Gives the agent an operation; the bound may push old ones out.
    pub(super) fn add(&mut self, id: &Arc<str>, operation: FleetOperation) {
        let Some(agent) = self.agents.get_mut(id) else {
            return;
        };
        self.dirty_operations.insert(operation.id.clone());
        self.owners.insert(operation.id.clone(), id.clone());
        for mut removed in agent.add_operation(operation) {
            self.places.leave(&mut removed);
            self.owners.remove(&removed.id);
            self.dirty_operations.remove(&removed.id);
            self.removed_operations.push(removed.id);
        }
    }
}

/// An operation with an id of its own.
pub(super) fn new_operation(
    kind: OperationKind,
    operand: Operand,
    flow: Option<Arc<str>>,
    now: UnixMillis,
) -> FleetOperation {
    FleetOperation::new(
        Arc::from(Uuid::new_v4().to_string()),
        kind,
        operand,
        flow,
        now,
    )
}
