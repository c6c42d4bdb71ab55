//! Agents that are removed: by an operator, or because nobody heard them for long.

use std::sync::Arc;

use base::UnixMillis;
use metrics::counter;

use crate::error::FleetError;
use crate::events::{Event, Kind};
use crate::fleet::{Fleet, Inner};
use crate::limits;
use crate::parameter;
use crate::registry::unknown_agent;

impl Fleet {
    /// Removes an agent with its operations and parameters; durable when this returns. One that still
    /// calls comes back with its next heartbeat, as a new one.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn remove_agent(&self, id: &str) -> Result<(), FleetError> {
        let inner = &self.inner;
        let found = inner.registry.lock().agents.get(id).map(|a| a.id.clone());
        let agents = [found.ok_or_else(|| unknown_agent(id))?];
        // A batch that is under way would write it again.
        let _one = inner.writing.lock().await;
        let now = inner.clock.now();
        inner.store.remove_agents(&agents, None, now).await?;
        let parameters = vec![parameter::remove_all(parameter::Level::Agent, id)];
        let what = "remove an agent's parameters";
        inner.tables.write(what, parameters).await?;
        inner.forget(&agents, "an operator removed it", now);
        Ok(())
    }
}

impl Inner {
    /// Removes agents that nobody has heard for longer than the configuration allows, some of them; tells
    /// whether there may be more.
    pub(crate) async fn clean(&self, fence: i64) -> bool {
        if !self.config.cleans_up() {
            return false;
        }
        let now = self.clock.now();
        let mut stale: Vec<Arc<str>> = Vec::new();
        self.each_agent(|_, agent| {
            let after = self.config.cleanup_after(agent.class.as_deref());
            let is_stale = after.is_some_and(|after| now.since(agent.last_seen) > after);
            if is_stale && stale.len() < limits::CLEANED_AT_ONCE {
                stale.push(agent.id.clone());
            }
        });
        if stale.is_empty() {
            return false;
        }
        match self.store.remove_agents(&stale, Some(fence), now).await {
            Ok(true) => {
                self.forget(&stale, "it was silent for too long", now);
                tracing::info!(
                    agents = stale.len(),
                    "removed agents that were silent for long"
                );
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = %base::report(&error), "cannot remove silent agents");
            }
        }
        stale.len() == limits::CLEANED_AT_ONCE
    }

    /// Forgets agents that the database has no more, and tells why.
    fn forget(&self, agents: &[Arc<str>], why: &str, now: UnixMillis) {
        let mut registry = self.registry.lock();
        for id in agents {
            if let Some(agent) = registry.agents.get(id) {
                let event = Event::new(Kind::AgentRemoved, Some(agent), why.to_owned(), now);
                registry.tell(event);
            }
            registry.remove(id);
        }
        drop(registry);
        self.signals.change();
        counter!("thalweg_fleet_agents_removed_total").increment(agents.len() as u64);
    }
}
