//! The fleet in a few numbers, for whoever looks at it as a whole.

use serde::Serialize;

use crate::agent::FlowState;
use crate::fleet::Fleet;
use crate::rights::Rights;

/// The fleet in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FleetView {
    /// Agents known.
    pub agents: usize,
    /// Those that called in time.
    pub online: usize,
    /// Those that did not.
    pub missing: usize,
    /// Those without a class.
    pub parked: usize,
    /// Those that run the flow that their class wants.
    pub flows_deployed: usize,
    /// Those that should get it, or are at it.
    pub flows_pending: usize,
    /// Those that could not take it.
    pub flows_failed: usize,
    /// Classes known.
    pub classes: usize,
    /// Heartbeats of all these agents so far.
    pub heartbeats_total: u64,
}

impl Fleet {
    /// The fleet in numbers.
    pub(crate) fn summary(&self, rights: &Rights) -> FleetView {
        let inner = &self.inner;
        let now = inner.clock.now();
        let mut view = FleetView {
            classes: {
                let registry = inner.registry.lock();
                let names = registry.classes.keys();
                names.filter(|name| rights.sees(Some(name))).count()
            },
            ..FleetView::default()
        };
        inner.each_agent(|registry, agent| {
            if !rights.sees(agent.class.as_deref()) {
                return;
            }
            view.agents += 1;
            match inner.is_online(agent, now) {
                true => view.online += 1,
                false => view.missing += 1,
            }
            view.parked += usize::from(agent.class.is_none());
            view.heartbeats_total += agent.heartbeats;
            let desired = registry.desired_of(agent).map(|flow| &*flow.id);
            match agent.flow_state(desired, &inner.policy) {
                FlowState::Deployed => view.flows_deployed += 1,
                FlowState::Pending => view.flows_pending += 1,
                FlowState::Failed => view.flows_failed += 1,
                FlowState::None => {}
            }
        });
        view
    }
}
