//! What agents answer.

use std::sync::Arc;

use base::UnixMillis;
use c2::{Acknowledge, Operand, OperationKind};

use super::{Registry, Taken};
use crate::error::FleetError;
use crate::events::Event;
use crate::manifest::{Brought, Mark};
use crate::operation::{AckEffect, OperationStatus};

/// What an acknowledge came to, as a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckResult {
    Decided,
    Late,
    Duplicate,
    Foreign,
    Unknown,
}

impl Registry {
    /// Takes an acknowledge; what it says of the agent counts like a heartbeat's sections.
    pub fn acknowledge(
        &mut self,
        now: UnixMillis,
        ack: &Acknowledge,
        manifest: Option<Brought>,
    ) -> Result<(Taken, AckResult), FleetError> {
        let operation = ack.operation().ok_or(FleetError::NoOperation)?;
        let info = ack.agent_info.as_ref();
        let says = info.and_then(|agent| agent.identifier.as_deref());
        let Some(owner) = self.owners.get(operation).cloned() else {
            return Ok((Taken::of_nobody(), AckResult::Unknown));
        };
        if says.is_some_and(|says| *says != *owner) {
            return Ok((Taken::of_nobody(), AckResult::Foreign));
        }
        let mut wait = false;
        if let Some(manifest) = manifest {
            wait = self.described(&owner, operation, manifest, now);
        }
        let Some(agent) = self.agents.get_mut(&owner) else {
            return Ok((Taken::of_nobody(), AckResult::Unknown));
        };
        agent.observe(ack.device_info.as_ref(), ack.flow_info.as_ref(), now);
        self.due.follow(agent, &self.config);
        let class = agent.class.clone();
        let Some(found) = agent.operation_mut(operation) else {
            return Ok((Taken::of_nobody(), AckResult::Unknown));
        };
        let effect = found.acknowledge(&ack.state(), &ack.details(), now);
        let id = found.id.clone();
        let is_news = effect != AckEffect::Duplicate && found.status == OperationStatus::Failed;
        let failed = is_news.then(|| Event::failed(&owner, class, found, now));
        if effect != AckEffect::Duplicate {
            self.dirty_operations.insert(id.clone());
            wait = true;
        }
        self.describing
            .retain(|_, (_, describing)| *describing != id);
        if let Some(event) = failed {
            self.tell(event);
        }
        self.mark(&owner);
        self.follow_operations(&owner);
        let result = match effect {
            AckEffect::Decided => AckResult::Decided,
            AckEffect::Late => AckResult::Late,
            AckEffect::Duplicate => AckResult::Duplicate,
        };
        Ok((
            Taken {
                agent: Some(owner),
                class: None,
                wait_for: wait.then_some(self.generation),
            },
            result,
        ))
    }

    /// Takes over the manifest that an agent brought with an answer; tells whether it is new.
    ///
    /// It stands for the hash that came with it, and for the one that the operation is about: a C++
    /// agent's heartbeats go on saying a hash of before its flow was in place, and its answers another.
    fn described(
        &mut self,
        owner: &Arc<str>,
        operation: &str,
        manifest: Brought,
        now: UnixMillis,
    ) -> bool {
        let said = manifest.mark;
        let Some((key, is_new)) = self.shelve(owner, manifest, now) else {
            return false;
        };
        self.name_manifest(said, &key);
        let Some(agent) = self.agents.get_mut(owner) else {
            return is_new;
        };
        let describes = agent
            .operation_mut(operation)
            .filter(|op| op.kind == OperationKind::Describe && op.operand == Operand::Manifest);
        let about = describes.map(|op| op.goal.as_deref().and_then(Mark::of_word));
        let own = *agent.mark.get_or_insert(said);
        // An answer to what is not about another hash than the agent's is about its own.
        let is_its = own == said || about.is_some_and(|about| about.is_none_or(|of| of == own));
        if is_its {
            agent.manifest = Some(key.clone());
            self.see_manifest(owner, now);
        }
        if let Some(about) = about.flatten() {
            self.name_manifest(about, &key);
        }
        is_new
    }
}

impl Taken {
    fn of_nobody() -> Taken {
        Taken {
            agent: None,
            class: None,
            wait_for: None,
        }
    }
}

impl AckResult {
    /// Whether it told what became of an operation.
    pub fn is_news(self) -> bool {
        matches!(self, AckResult::Decided | AckResult::Late)
    }

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            AckResult::Decided => "decided",
            AckResult::Late => "late",
            AckResult::Duplicate => "duplicate",
            AckResult::Foreign => "foreign",
            AckResult::Unknown => "unknown",
        }
    }
}
