//! Which agent may fetch which resource, where it is known who asks.

use std::sync::Arc;

use c2::Operand;

use crate::error::FleetError;
use crate::fleet::{Fleet, Inner};
use crate::request::Request;

impl Fleet {
    /// Whether the resource is for this agent: its class has it, or an operation that is under way
    /// names it.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub(crate) async fn may_fetch(&self, agent: &str, resource: &str) -> Result<bool, FleetError> {
        let inner = &self.inner;
        if inner.is_for(agent, resource).await? {
            return Ok(true);
        }
        if !inner.store.is_shared() {
            return Ok(false);
        }
        // Another node may have given it to the agent a moment ago.
        inner.read_feed(false).await?;
        inner.is_for(agent, resource).await
    }
}

impl Inner {
    async fn is_for(&self, agent: &str, resource: &str) -> Result<bool, FleetError> {
        let requests = {
            let registry = self.registry.lock();
            let Some(agent) = registry.agents.get(agent) else {
                return Ok(false);
            };
            let set = registry.resources_of(agent);
            if set.is_some_and(|set| set.items.iter().any(|item| *item.id == *resource)) {
                return Ok(true);
            }
            let asked = agent
                .operations
                .iter()
                .filter(|op| op.is_active() && op.operand == Operand::Asset);
            let requests = asked.filter_map(|op| op.request.clone());
            let known = |id: Arc<str>| (registry.requests.get(&id).cloned(), id);
            requests.map(known).collect::<Vec<_>>()
        };
        for (known, id) in requests {
            let request = match known {
                Some(request) => Some(request),
                None => self.requests.find(&id).await?.map(Arc::new),
            };
            if request.is_some_and(|request| names(&request, resource)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn names(request: &Request, resource: &str) -> bool {
    let named = request.args.get("resourceId");
    named.and_then(|id| id.as_str()) == Some(resource)
}
