//! Agents, classes, flows and operations as the management API shows them.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;

use crate::agent::Agent;
use crate::error::FleetError;
use crate::fleet::{Fleet, Inner, unknown_class};
use crate::operation::FleetOperation;
use crate::registry::{Class, Flow, Registry};
use crate::views::{AgentDetail, AgentView, ClassView, FlowView, OperationView};

impl Fleet {
    /// An agent in full.
    pub(crate) fn agent(&self, id: &str) -> Result<AgentDetail, FleetError> {
        let now = self.inner.clock.now();
        let registry = self.inner.registry.lock();
        let unknown = || FleetError::Unknown {
            what: "agent",
            name: id.to_owned(),
            list: "/api/v1/agents",
        };
        let agent = registry.agents.get(id).ok_or_else(unknown)?;
        Ok(AgentDetail {
            agent: self.inner.agent_view(&registry, agent, now),
            operations: agent
                .operations
                .iter()
                .rev()
                .map(|op| view(&registry, agent, op))
                .collect(),
            heartbeat: agent
                .last
                .as_ref()
                .and_then(|kept| kept.read())
                .map(Box::new),
        })
    }

    /// All classes.
    pub(crate) fn classes(&self) -> Vec<ClassView> {
        let now = self.inner.clock.now();
        let mut counts: HashMap<Arc<str>, Count> = HashMap::new();
        self.inner.each_agent(|registry, agent| {
            if let Some(name) = agent.class.clone() {
                let count = counts.entry(name).or_default();
                self.inner.count(count, registry, agent, now);
            }
        });
        let registry = self.inner.registry.lock();
        let views = registry.classes.iter().map(|(name, class)| {
            let count = counts.get(name).copied().unwrap_or_default();
            class_view(name, class, count)
        });
        views.collect()
    }

    /// One class.
    ///
    /// # Errors
    /// [`FleetError::Unknown`].
    pub(crate) fn class(&self, name: &str) -> Result<ClassView, FleetError> {
        let now = self.inner.clock.now();
        let mut count = Count::default();
        self.inner.each_agent_of(name, |registry, agent| {
            self.inner.count(&mut count, registry, agent, now);
        });
        let registry = self.inner.registry.lock();
        let class = registry.classes.get(name);
        let class = class.ok_or_else(|| unknown_class(name))?;
        Ok(class_view(name, class, count))
    }

    /// One flow version.
    pub(crate) fn flow_view(&self, id: &str) -> Result<FlowView, FleetError> {
        let registry = self.inner.registry.lock();
        let flow = registry.flows.get(id).ok_or_else(|| FleetError::Unknown {
            what: "flow",
            name: id.to_owned(),
            list: "/api/v1/classes",
        })?;
        let class = registry.classes.get(&flow.class);
        let current = class.and_then(|class| class.desired.as_ref());
        Ok(flow_view(
            flow,
            current.is_some_and(|current| current.id == flow.id),
        ))
    }

    /// The flow versions of a class, newest first.
    pub(crate) fn flows(&self, class: &str) -> Result<Vec<FlowView>, FleetError> {
        let registry = self.inner.registry.lock();
        let found = registry
            .classes
            .get(class)
            .ok_or_else(|| unknown_class(class))?;
        let current = found.desired.as_ref().map(|flow| &flow.id);
        Ok(found
            .flows
            .iter()
            .rev()
            .map(|flow| flow_view(flow, current == Some(&flow.id)))
            .collect())
    }
}

/// Agents of a class, those of them that are there, and those that run its flow.
#[derive(Clone, Copy, Default)]
struct Count {
    agents: usize,
    online: usize,
    deployed: usize,
}

impl Inner {
    fn count(&self, count: &mut Count, registry: &Registry, agent: &Agent, now: UnixMillis) {
        let desired = registry.desired_of(agent).map(|flow| &flow.id);
        count.agents += 1;
        count.online += usize::from(self.is_online(agent, now));
        count.deployed += usize::from(desired.is_some() && agent.flow.as_ref() == desired);
    }

    pub(crate) fn is_online(&self, agent: &Agent, now: UnixMillis) -> bool {
        agent.is_online(now, self.config.patience(agent))
    }

    pub(crate) fn state(&self, agent: &Agent, now: UnixMillis) -> &'static str {
        if self.is_online(agent, now) {
            "online"
        } else {
            "missing"
        }
    }

    pub(crate) fn agent_view(
        &self,
        registry: &Registry,
        agent: &Agent,
        now: UnixMillis,
    ) -> AgentView {
        let head = agent
            .manifest
            .as_ref()
            .and_then(|key| registry.manifests.get(key));
        let desired = registry.desired_of(agent).map(|flow| flow.id.to_string());
        AgentView {
            id: agent.id.to_string(),
            class: agent.class.as_deref().map(str::to_owned),
            class_given: agent.given_class().is_some(),
            agent_type: head.and_then(|head| head.agent_type.clone()),
            agent_version: head.and_then(|head| head.agent_version().map(str::to_owned)),
            state: self.state(agent, now),
            last_seen_ms: agent.last_seen.0,
            first_seen_ms: agent.first_seen.0,
            hostname: agent.hostname.clone(),
            manifest_hash: agent.manifest.as_deref().map(str::to_owned),
            flow_id: agent.flow.as_deref().map(str::to_owned),
            resource_state: registry.resource_state(agent).as_str(),
            flow_state: agent.flow_state(desired.as_deref(), &self.policy).as_str(),
            desired_flow_id: desired,
            heartbeats_total: agent.heartbeats,
            heartbeat_interval_ms: (agent.interval_ms > 0).then_some(agent.interval_ms),
            certificate_ends_ms: agent.certificate_until.map(|until| until.0),
            duplicate_device: agent.duplicate(now).map(str::to_owned),
        }
    }
}

pub(crate) fn view(
    registry: &Registry,
    agent: &Agent,
    operation: &FleetOperation,
) -> OperationView {
    let request = operation.request.as_ref();
    let asked = request.and_then(|id| registry.requests.get(id));
    OperationView {
        request_id: request.map(|id| id.to_string()),
        args: asked.map(|asked| asked.shown_args()).unwrap_or_default(),
        at_once: registry.at_once(agent, operation),
        id: operation.id.to_string(),
        agent_id: agent.id.to_string(),
        operation: operation.kind.to_string(),
        operand: operation.operand.to_string(),
        flow_id: operation.flow.as_deref().map(str::to_owned),
        state: operation.status.as_str(),
        created_ms: operation.created.0,
        updated_ms: operation.updated.0,
        attempts: operation.attempts,
        acknowledged: operation.acknowledged,
        details: operation.details.clone(),
    }
}

fn class_view(name: &str, class: &Class, count: Count) -> ClassView {
    ClassView {
        name: name.to_owned(),
        description: class.description.clone(),
        agents: count.agents,
        agents_online: count.online,
        agents_deployed: count.deployed,
        flow_id: class.desired.as_ref().map(|flow| flow.id.to_string()),
        flow_version: class.desired.as_ref().map(|flow| flow.version),
    }
}

fn flow_view(flow: &Flow, current: bool) -> FlowView {
    FlowView {
        flow_id: flow.id.to_string(),
        version: flow.version,
        class: flow.class.to_string(),
        shape: flow.shape.as_str(),
        sha256: flow.sha256.clone(),
        bytes: flow.bytes,
        created_ms: flow.created.0,
        current,
    }
}
