//! Classes that operators give agents: to one that names none and is parked, or over the one that it
//! names.

use std::sync::Arc;

use access::Role;
use base::UnixMillis;

use crate::agent::{Agent, Given};
use crate::error::FleetError;
use crate::fleet::{Fleet, unknown_class};
use crate::registry::{Registry, unknown_agent};
use crate::rights::Rights;
use crate::store::Giving;

impl Fleet {
    /// Gives an agent a class, whatever it says of its class itself; none takes back what was given,
    /// and the agent is parked until it names a class. Durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`] of the agent and of the class, [`FleetError::Store`];
    /// [`FleetError::Unseen`] and [`FleetError::NotAllowed`] to who has no role for the class that the
    /// agent has by now.
    pub(crate) async fn give_class(
        &self,
        agent: &str,
        class: Option<&str>,
        rights: &Rights,
    ) -> Result<(), FleetError> {
        let inner = &self.inner;
        // One that called for the first time a moment ago is to be in the database too.
        inner.flush().await?;
        if inner.store.is_shared() {
            // Another node may have made the class, or heard the agent, a moment ago.
            inner.read_feed(false).await?;
        }
        let _one = inner.publishing.lock().await;
        // A batch that is under way would write the class that it had.
        let _writing = inner.writing.lock().await;
        let (agent, class) = {
            let registry = inner.registry.lock();
            let found = registry.agents.get(agent);
            let found = found.ok_or_else(|| unknown_agent(agent))?;
            // It may be in another class than when the call came.
            let leaves = found.class.as_deref();
            if !rights.sees(leaves) {
                return Err(rights.unseen("agent", agent));
            }
            rights.need(Role::Operator, leaves)?;
            let known = class.map(|name| {
                let known = registry.classes.get_key_value(name);
                known
                    .map(|(name, _)| name.clone())
                    .ok_or_else(|| unknown_class(name))
            });
            (found.id.clone(), known.transpose()?)
        };
        let seq = match inner.store.give_class(&agent, class.as_deref()).await? {
            // This node may not know of the same, whose commit was not answered.
            Giving::Given(seq) | Giving::Same(seq) => seq,
            Giving::NoAgent => return Err(unknown_agent(&agent)),
            Giving::NoClass => return Err(unknown_class(class.as_deref().unwrap_or_default())),
        };
        let given = Given { class, seq };
        let now = inner.clock.now();
        inner.registry.lock().give(&agent, given, now);
        inner.signals.change();
        Ok(())
    }
}

impl Registry {
    /// Takes over what an operator said of an agent's class, unless something newer is known.
    fn give(&mut self, id: &Arc<str>, given: Given, now: UnixMillis) {
        let Some(agent) = self.agents.get_mut(id) else {
            return;
        };
        if given.seq <= agent.given_seq() {
            return;
        }
        let left = std::mem::replace(&mut agent.class, given.class.clone());
        agent.given = Some(Box::new(given));
        self.moved(id, left.as_ref(), now);
    }
}

impl Agent {
    /// The class that an operator gave it; it counts over the one that it names.
    pub fn given_class(&self) -> Option<&Arc<str>> {
        self.given.as_ref()?.class.as_ref()
    }

    /// The number of the change by which it was given a class, or that was taken back; 0: never.
    pub fn given_seq(&self) -> i64 {
        self.given.as_ref().map_or(0, |given| given.seq)
    }
}
