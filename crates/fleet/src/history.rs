//! Lists of operations, newest first, in bounded memory and without holding heartbeats up.
//!
//! Agents are looked at in pieces, each under one short lock of the registry. What stays of them is no
//! more than a page: the newest operations that are older than where the page begins.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use base::UnixMillis;

use crate::agent::Agent;
use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::limits;
use crate::operation::FleetOperation;
use crate::registry::unknown_agent;
use crate::rights::Rights;
use crate::showing::view;
use crate::views::{OperationView, OperationsPage};

/// Which operations a list wants.
#[derive(Clone, Debug, Default)]
pub struct OperationFilter {
    pub agent: Option<String>,
    pub class: Option<String>,
    pub state: Option<String>,
    pub request: Option<String>,
    /// Where the page before ended.
    pub after: Option<Place>,
    pub limit: usize,
    /// What its caller may see.
    pub rights: Rights,
}

/// An operation's place in a list: those made later come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    created: UnixMillis,
    id: Arc<str>,
}

impl Place {
    fn of(operation: &FleetOperation) -> Place {
        Place {
            created: operation.created,
            id: operation.id.clone(),
        }
    }

    /// The place that a caller gives back.
    ///
    /// # Errors
    /// [`FleetError::BadField`]; the caller's fault.
    pub fn read(word: &str) -> Result<Place, FleetError> {
        let is_number = |text: &str| {
            (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_id = |text: &str| {
            let is_of_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=36).contains(&text.len()) && text.bytes().all(is_of_id)
        };
        let parts = word.split_once('.');
        let parts = parts.filter(|(created, id)| is_number(created) && is_id(id));
        let read = parts.and_then(|(created, id)| Some((created.parse().ok()?, id)));
        let (created, id) = read.ok_or_else(|| FleetError::BadField {
            field: "after".to_owned(),
            reason: "give what a page before had as next".to_owned(),
        })?;
        Ok(Place {
            created: UnixMillis(created),
            id: Arc::from(id),
        })
    }

    /// What a caller is given for it.
    fn word(&self) -> String {
        format!("{}.{}", self.created.0, self.id)
    }
}

impl OperationFilter {
    fn fits(&self, operation: &FleetOperation) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        is(&self.state, Some(operation.status.as_str()))
            && is(&self.request, operation.request.as_deref())
            && self
                .after
                .as_ref()
                .is_none_or(|after| Place::of(operation) < *after)
    }
}

impl Fleet {
    /// One page of operations, newest first.
    ///
    /// # Errors
    /// [`FleetError::Unknown`] of the agent that is asked for, or [`FleetError::Unseen`].
    pub(crate) fn operations(
        &self,
        filter: &OperationFilter,
    ) -> Result<OperationsPage, FleetError> {
        let limit = filter.limit.clamp(1, limits::PAGE_ITEMS_MAX);
        // The oldest of those that are kept is on top: the next one to go. One more than the page has
        // tells whether there is a next one.
        let mut newest: BinaryHeap<Reverse<Place>> = BinaryHeap::new();
        let mut look = |agent: &Agent| {
            let class = agent.class.as_deref();
            let is_of_class = filter.class.is_none() || filter.class.as_deref() == class;
            if !is_of_class || !filter.rights.sees(class) {
                return;
            }
            for operation in agent.operations.iter().filter(|op| filter.fits(op)) {
                newest.push(Reverse(Place::of(operation)));
                if newest.len() > limit + 1 {
                    newest.pop();
                }
            }
        };
        match (&filter.agent, &filter.class) {
            (Some(id), _) => {
                let registry = self.inner.registry.lock();
                let agent = registry.agents.get(id.as_str());
                let is_seen = |agent: &&Agent| filter.rights.sees(agent.class.as_deref());
                let seen = agent.filter(is_seen).ok_or_else(|| {
                    match agent.is_none() && filter.rights.sees_all() {
                        true => unknown_agent(id),
                        false => filter.rights.unseen("agent", id),
                    }
                });
                look(seen?);
            }
            (None, Some(class)) => self.inner.each_agent_of(class, |_, agent| look(agent)),
            (None, None) => self.inner.each_agent(|_, agent| look(agent)),
        }
        let mut places: Vec<Place> = newest
            .into_sorted_vec()
            .into_iter()
            .map(|of| of.0)
            .collect();
        let has_more = places.len() > limit;
        places.truncate(limit);
        Ok(OperationsPage {
            next: places.last().filter(|_| has_more).map(Place::word),
            operations: self.views_of(&places),
        })
    }

    /// The operations at these places; those that went meanwhile are left out.
    fn views_of(&self, places: &[Place]) -> Vec<OperationView> {
        let mut views = Vec::with_capacity(places.len());
        for some in places.chunks(limits::LOOKED_AT_ONCE) {
            let registry = self.inner.registry.lock();
            for place in some {
                if let Some((agent, operation)) = registry.operation(&place.id) {
                    views.push(view(&registry, agent, operation));
                }
            }
        }
        views
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_told_and_nothing_else_is() {
        let place = Place {
            created: UnixMillis(12),
            id: Arc::from("5f0c-1"),
        };
        assert_eq!(Place::read(&place.word()).unwrap(), place);
        for bad in ["", "12", "12.", "x.5f0c", ".5f0c", "+1.5f0c"] {
            let error = Place::read(bad).unwrap_err().to_string();
            assert!(error.contains("after"), "{bad}: {error}");
        }
    }
}
