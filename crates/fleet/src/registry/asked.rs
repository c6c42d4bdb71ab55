//! What operators ask of agents: their requests become operations here, or are refused at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use c2::{Operand, OperationKind};

use super::plan::new_operation;
use super::{Registry, operation_id};
use crate::agent::Agent;
use crate::capability::Profile;
use crate::error::FleetError;
use crate::limits;
use crate::operation::FleetOperation;
use crate::request::Request;
use crate::shape::{self, Place, Wanted};

impl Registry {
    /// Whether a request may come without that old ones go.
    pub fn has_room_for_request(&self) -> bool {
        self.requests.len() < limits::REQUESTS_MAX
    }

    /// Makes room for a request; tells which old ones go: the oldest of those that are not `needed`,
    /// since they have no open operations. Operations that are over lose the arguments that they were
    /// asked with.
    ///
    /// # Errors
    /// [`FleetError::Full`] when all requests still have open operations, or are of the last minute.
    pub fn room_for_request(
        &mut self,
        now: UnixMillis,
        needed: &HashSet<Arc<str>>,
    ) -> Result<Vec<Arc<str>>, FleetError> {
        if self.has_room_for_request() {
            return Ok(Vec::new());
        }
        // The operations of a new one may still have to be made, here or at another node; those of one
        // that was asked while `needed` was looked for, too.
        let is_free = |request: &&Arc<Request>| {
            !needed.contains(&request.id) && now.since(request.created) >= NEW
        };
        let mut free: Vec<&Arc<Request>> = self.requests.values().filter(is_free).collect();
        free.sort_by_key(|request| request.created);
        free.truncate(limits::REQUESTS_MAX / 10);
        let gone: Vec<Arc<str>> = free.into_iter().map(|request| request.id.clone()).collect();
        for id in &gone {
            self.requests.remove(id);
        }
        match gone.is_empty() {
            true => Err(FleetError::Full {
                what: "request",
                max: limits::REQUESTS_MAX,
            }),
            false => Ok(gone),
        }
    }

    /// Keeps a request, so that its operations can be handed out.
    pub fn keep_request(&mut self, request: Arc<Request>) {
        self.requests.insert(request.id.clone(), request);
    }

    /// Forgets a request that came to nothing.
    pub fn forget_request(&mut self, id: &str) {
        self.requests.remove(id);
    }

    /// Whether the agent can be asked for this; the error says why not.
    pub fn may_ask(&self, id: &str, request: &Request) -> Result<(), FleetError> {
        let agent = self.agents.get(id).ok_or_else(|| unknown_agent(id))?;
        let refused = |reason: String| FleetError::Unsupported {
            agent: id.to_owned(),
            reason,
        };
        let active = agent.operations.iter().filter(|op| op.is_active()).count();
        if active >= limits::ASKED_PER_AGENT_MAX {
            return Err(refused(format!(
                "{active} operations are under way already: cancel some, or wait"
            )));
        }
        let flow = self.desired_of(agent).map(|flow| flow.id.clone());
        let resources = self.resources_of(agent);
        if request.kind == OperationKind::Update && request.operand == Operand::Configuration {
            let Some(flow) = &flow else {
                return Err(refused(
                    "its class has no flow: publish one first".to_owned(),
                ));
            };
            let named = request.args.get("flowId").and_then(|id| id.as_str());
            if named.is_some_and(|named| named != &**flow) {
                return Err(refused(format!(
                    "its class wants the flow {flow}: publish another one to the class, or revert"
                )));
            }
        }
        if request.kind == OperationKind::Sync && resources.is_none() {
            return Err(refused("its class has never had resources".to_owned()));
        }
        if let Some(resource) = request.args.get("resourceId").and_then(|id| id.as_str())
            && request.operand == Operand::Asset
            && !self.resources.contains_key(resource)
        {
            return Err(FleetError::Unknown {
                what: "resource",
                name: resource.to_owned(),
                list: "/api/v1/resources",
            });
        }
        let head = self.head_of(agent);
        let place = Place {
            origin: "",
            prefix: "",
            agent: id,
        };
        let wanted = Wanted {
            id: "",
            kind: &request.kind,
            operand: &request.operand,
            args: Some(&request.args),
            flow: flow.as_deref(),
            resources: resources.as_deref(),
            runs: agent.last.as_deref(),
        };
        let shaped = shape::shape(Profile::of(head.as_deref()), place, wanted);
        shaped.map(|_| ()).map_err(refused)
    }

    /// Gives the agent the operation that was asked for; durable with the current generation.
    ///
    /// # Errors
    /// As of [`Registry::may_ask`].
    pub fn ask(
        &mut self,
        now: UnixMillis,
        id: &str,
        request: &Arc<Request>,
    ) -> Result<(Arc<str>, u64), FleetError> {
        self.may_ask(id, request)?;
        let agent = self.agents.get(id).ok_or_else(|| unknown_agent(id))?;
        let owner = agent.id.clone();
        let desired = self.desired_of(agent).map(|flow| flow.id.clone());
        let flow = desired
            .filter(|_| request.operand == Operand::Configuration)
            .filter(|_| request.kind == OperationKind::Update);
        let goal = self.resources_of(agent).map(|set| set.digest.clone());
        let goal = goal.filter(|_| request.kind == OperationKind::Sync);
        // What is on its way to the same end already keeps its id.
        let same = |op: &&FleetOperation| {
            op.is_active()
                && ((flow.is_some() && op.flow == flow) || (goal.is_some() && op.goal == goal))
        };
        if let Some(under_way) = agent.operations.iter().find(same) {
            return Ok((under_way.id.clone(), self.generation));
        }
        let (kind, operand) = (request.kind.clone(), request.operand.clone());
        // What this node and another one want of themselves has one id.
        let about = flow.clone().or_else(|| goal.clone());
        let planned = about.map(|about| {
            let same = |op: &&FleetOperation| op.flow == flow && op.goal == goal;
            let before = agent.operations.iter().rev().find(same);
            operation_id(id, &about, before.map(|op| &*op.id))
        });
        let mut operation = new_operation(kind, operand, flow, now);
        operation.id = planned.unwrap_or(operation.id);
        operation.goal = goal;
        operation.request = Some(request.id.clone());
        let operation_id = operation.id.clone();
        self.add(&owner, operation);
        self.mark(&owner);
        self.follow_operations(&owner);
        Ok((operation_id, self.generation))
    }

    /// Whose operation this is, and where it stands.
    pub fn operation(&self, id: &str) -> Option<(&Agent, &FleetOperation)> {
        let agent = self.agents.get(self.owners.get(id)?)?;
        let operation = agent.operations.iter().find(|op| &*op.id == id)?;
        Some((agent, operation))
    }

    /// Gives an operation up; durable with the generation that this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Finished`]; the caller's fault.
    pub fn cancel(&mut self, now: UnixMillis, id: &str) -> Result<u64, FleetError> {
        let owner = self.owners.get(id).cloned();
        let owner = owner.ok_or_else(|| unknown_operation(id))?;
        let agent = self.agents.get_mut(&owner);
        let found = agent.and_then(|agent| agent.operation_mut(id));
        let operation = found.ok_or_else(|| unknown_operation(id))?;
        if !operation.is_active() {
            return Err(FleetError::Finished {
                id: id.to_owned(),
                state: operation.status.as_str(),
            });
        }
        let reason = match operation.attempts {
            0 => "cancelled by an operator before its agent got it",
            _ => "cancelled by an operator; its agent may have done it all the same",
        };
        operation.cancel(reason, now);
        self.note(&owner, id);
        Ok(self.generation)
    }

    /// Fails an operation that turned out not to fit its agent.
    pub fn refuse(&mut self, now: UnixMillis, id: &str, reason: String) {
        let Some(owner) = self.owners.get(id).cloned() else {
            return;
        };
        let agent = self.agents.get_mut(&owner);
        if let Some(operation) = agent.and_then(|agent| agent.operation_mut(id)) {
            operation.refuse(reason, now);
            self.note(&owner, id);
        }
    }

    /// Notes that an operation changed.
    fn note(&mut self, owner: &Arc<str>, id: &str) {
        self.describing
            .retain(|_, (_, describing)| &**describing != id);
        self.dirty_operations.insert(Arc::from(id));
        self.mark(owner);
        self.follow_operations(owner);
    }
}

/// The error for an agent that is not there.
pub fn unknown_agent(id: &str) -> FleetError {
    FleetError::Unknown {
        what: "agent",
        name: id.to_owned(),
        list: "/api/v1/agents",
    }
}

/// The error for an operation that is not there.
pub fn unknown_operation(id: &str) -> FleetError {
    FleetError::Unknown {
        what: "operation",
        name: id.to_owned(),
        list: "/api/v1/operations",
    }
}

/// How long a request counts as needed, whatever operations it has.
const NEW: Duration = Duration::from_secs(60);
