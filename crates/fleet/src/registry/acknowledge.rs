//! What agents answer.

use base::UnixMillis;
use c2::Acknowledge;

use super::{Registry, Taken};
use crate::error::FleetError;
use crate::events::Event;
use crate::manifest::NewManifest;
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
        manifest: Option<NewManifest>,
    ) -> Result<(Taken, AckResult), FleetError> {
        let operation = ack.operation().ok_or(FleetError::NoOperation)?;
        let mut wait = false;
        if let Some(manifest) = manifest {
            self.add_manifest(manifest)?;
            wait = true;
        }
        let info = ack.agent_info.as_ref();
        let says = info.and_then(|agent| agent.identifier.as_deref());
        let Some(owner) = self.owners.get(operation).cloned() else {
            let wait_for = wait.then_some(self.generation);
            return Ok((Taken::of_nobody(wait_for), AckResult::Unknown));
        };
        if says.is_some_and(|says| *says != *owner) {
            let wait_for = wait.then_some(self.generation);
            return Ok((Taken::of_nobody(wait_for), AckResult::Foreign));
        }
        let Some(agent) = self.agents.get_mut(&owner) else {
            return Ok((Taken::of_nobody(None), AckResult::Unknown));
        };
        agent.observe(ack.device_info.as_ref(), info, ack.flow_info.as_ref(), now);
        self.due.follow(agent, &self.config);
        let class = agent.class.clone();
        let Some(found) = agent.operation_mut(operation) else {
            return Ok((Taken::of_nobody(None), AckResult::Unknown));
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
        self.refresh_active(&owner);
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
}

impl Taken {
    fn of_nobody(wait_for: Option<u64>) -> Taken {
        Taken {
            agent: None,
            class: None,
            wait_for,
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
