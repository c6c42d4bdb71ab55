//! Who gets a topic's messages, remembered per link until any subscription changes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limits::ROUTES_CACHED;
use crate::message::Qos;
use crate::session::Session;
use crate::sink::SinkSlot;

/// A subscription's owner in the trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subscriber {
    Sink(u64),
    Session(u64),
}

/// What a subscription leads to.
#[derive(Clone)]
pub(crate) enum Target {
    Sink(Arc<SinkSlot>),
    Session(Arc<Session>, Qos),
}

/// The subscribers of one topic: a session stands once, with the highest quality that any of its
/// filters grants; a sink stands once per subscription.
#[derive(Default)]
pub(crate) struct Route {
    pub(crate) sinks: Vec<Arc<SinkSlot>>,
    pub(crate) sessions: Vec<(Arc<Session>, Qos)>,
}

/// Routes by topic, as of one generation of the subscriptions.
#[derive(Default)]
pub(crate) struct RouteCache {
    generation: u64,
    routes: HashMap<Box<str>, Arc<Route>>,
}

impl Route {
    pub(crate) fn add(&mut self, target: &Target) {
        match target {
            Target::Sink(slot) => self.sinks.push(slot.clone()),
            Target::Session(session, qos) => {
                match self.sessions.iter_mut().find(|(s, _)| s.key == session.key) {
                    Some((_, granted)) => *granted = (*granted).max(*qos),
                    None => self.sessions.push((session.clone(), *qos)),
                }
            }
        }
    }
}

impl RouteCache {
    /// The route of `topic`; `find` walks the subscriptions when it is not known.
    pub(crate) fn route(
        &mut self,
        generation: u64,
        topic: &str,
        find: impl FnOnce() -> Route,
    ) -> Arc<Route> {
        if self.generation != generation {
            self.routes.clear();
            self.generation = generation;
        }
        if let Some(route) = self.routes.get(topic) {
            return route.clone();
        }
        if self.routes.len() >= ROUTES_CACHED {
            self.routes.clear();
        }
        let route = Arc::new(find());
        self.routes.insert(topic.into(), route.clone());
        route
    }
}
