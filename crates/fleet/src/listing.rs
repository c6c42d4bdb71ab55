//! Lists of agents: a page by filters, in bounded work and without holding heartbeats up.
//!
//! Agents are looked at in pieces, each under one short lock of the registry, in the order of their
//! identifiers; those of a class by the class's own index. A request looks at no more than
//! `LOOKED_AT_MAX` agents: what it has not found by then the next page goes on looking for.

use std::sync::Arc;

use base::UnixMillis;

use crate::agent::Agent;
use crate::fleet::{AgentFilter, Fleet, Inner};
use crate::limits;
use crate::registry::Registry;
use crate::views::AgentsPage;

impl Fleet {
    /// One page of agents.
    pub(crate) fn agents(&self, filter: &AgentFilter) -> AgentsPage {
        let inner = &self.inner;
        let now = inner.clock.now();
        let limit = filter.limit.clamp(1, limits::PAGE_ITEMS_MAX);
        let mut page = AgentsPage {
            agents: Vec::new(),
            next: None,
        };
        let named = filter.manifest.as_deref();
        let manifest = named.and_then(|name| inner.registry.lock().manifest_named(name));
        if named.is_some() && manifest.is_none() {
            return page;
        }
        let mut after = filter.after.as_deref().map(Arc::from);
        let mut looked_at = 0;
        loop {
            let registry = inner.registry.lock();
            let piece = registry.piece(filter.class.as_deref(), after.as_deref());
            let mut count = 0;
            for agent in piece {
                let has = manifest.is_none() || agent.manifest == manifest;
                if has && inner.fits(filter, &registry, agent, now) {
                    if page.agents.len() == limit {
                        page.next = page.agents.last().map(|last| last.id.clone());
                        return page;
                    }
                    page.agents.push(inner.agent_view(&registry, agent, now));
                }
                count += 1;
                after = Some(agent.id.clone());
            }
            looked_at += count;
            if count < limits::LOOKED_AT_ONCE {
                return page;
            }
            if looked_at >= limits::LOOKED_AT_MAX {
                page.next = after.map(|id| id.to_string());
                return page;
            }
        }
    }
}

impl Inner {
    fn fits(
        &self,
        filter: &AgentFilter,
        registry: &Registry,
        agent: &Agent,
        now: UnixMillis,
    ) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let is_in = |wanted: &str| registry.resource_state(agent).as_str() == wanted;
        filter.rights.sees(agent.class.as_deref())
            && filter.fits(agent)
            && filter.resource_state.as_deref().is_none_or(is_in)
            && (filter.state.is_none() || is(&filter.state, self.state(agent, now)))
            && self.fits_flow_state(filter, registry, agent)
    }

    fn fits_flow_state(&self, filter: &AgentFilter, registry: &Registry, agent: &Agent) -> bool {
        filter.flow_state.as_deref().is_none_or(|wanted| {
            let desired = registry.desired_of(agent).map(|flow| &*flow.id);
            agent.flow_state(desired, &self.policy).as_str() == wanted
        })
    }
}

impl AgentFilter {
    /// Whether what the agent itself says is what is looked for.
    fn fits(&self, agent: &Agent) -> bool {
        let has = |text: &str| {
            self.search
                .as_deref()
                .is_none_or(|part| text.contains(part))
        };
        self.parked
            .is_none_or(|parked| parked == agent.class.is_none())
            && (self.class.is_none() || self.class.as_deref() == agent.class.as_deref())
            && (has(&agent.id) || agent.hostname.as_deref().is_some_and(has))
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
