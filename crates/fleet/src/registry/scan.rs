//! A look at all agents, in pieces, so that heartbeats wait for no more than one of them.

use std::ops::Bound;
use std::sync::Arc;

use crate::agent::Agent;
use crate::fleet::Inner;
use crate::limits;
use crate::registry::Registry;

impl Inner {
    /// Looks at every agent, by identifier; those that come or go meanwhile may be missed.
    pub(crate) fn each_agent(&self, look: impl FnMut(&Registry, &Agent)) {
        self.each(None, look);
    }

    /// Looks at every agent of a class.
    pub(crate) fn each_agent_of(&self, class: &str, look: impl FnMut(&Registry, &Agent)) {
        self.each(Some(class), look);
    }

    fn each(&self, class: Option<&str>, mut look: impl FnMut(&Registry, &Agent)) {
        let mut after: Option<Arc<str>> = None;
        loop {
            let registry = self.registry.lock();
            let (mut count, mut last) = (0, None);
            for agent in registry.piece(class, after.as_deref()) {
                look(&registry, agent);
                count += 1;
                last = Some(agent.id.clone());
            }
            if count < limits::LOOKED_AT_ONCE {
                return;
            }
            after = last;
        }
    }
}

impl Registry {
    /// The next agents, of a class or of all, after this one; no more than are looked at under one
    /// lock.
    pub(crate) fn piece<'r>(
        &'r self,
        class: Option<&str>,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'r Agent> + 'r> {
        let start = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let range = (start, Bound::Unbounded);
        let Some(class) = class else {
            let agents = self.agents.range::<str, _>(range).map(|(_, agent)| agent);
            return Box::new(agents.take(limits::LOOKED_AT_ONCE));
        };
        let Some(ids) = self.by_class.get(class) else {
            return Box::new(std::iter::empty());
        };
        let agents = ids.range::<str, _>(range);
        let agents = agents.filter_map(|id| self.agents.get(id));
        Box::new(agents.take(limits::LOOKED_AT_ONCE))
    }
}
