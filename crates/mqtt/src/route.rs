//! Who gets a topic's messages, remembered per link until any subscription changes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::limits::ROUTES_CACHED;
use crate::message::Qos;
use crate::records::Subscription;
use crate::session::Session;
use crate::share::Share;
use crate::sink::SinkSlot;

/// A subscription's owner in the trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subscriber {
    Sink(u64),
    Session(u64),
    Share(u64),
}

/// What a subscription leads to.
#[derive(Clone)]
pub(crate) enum Target {
    Sink(Arc<SinkSlot>),
    Session(Arc<Session>, Subscription),
    Share(Arc<Share>),
}

/// On what terms a client gets a message: those of all its subscriptions that match, together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant {
    pub(crate) qos: Qos,
    /// The quality for what the client itself published; `None`: it does not want that.
    pub(crate) own: Option<Qos>,
    pub(crate) retain_as_published: bool,
    pub(crate) identifiers: Vec<u32>,
    /// The shared subscription that chose the client.
    pub(crate) share: Option<Weak<Share>>,
}

/// The subscribers of one topic: a session stands once, however many of its filters match; a sink
/// stands once per subscription.
#[derive(Default)]
pub(crate) struct Route {
    pub(crate) sinks: Vec<Arc<SinkSlot>>,
    pub(crate) sessions: Vec<(Arc<Session>, Arc<Grant>)>,
    pub(crate) shares: Vec<Arc<Share>>,
}

/// Messages of a batch that one session gets: their indexes, each with the index of its terms.
#[derive(Clone, Default)]
pub(crate) struct Picks {
    grants: Vec<Arc<Grant>>,
    list: Vec<(u32, u32)>,
}

/// Routes by topic, as of one generation of the subscriptions.
#[derive(Default)]
pub(crate) struct RouteCache {
    generation: u64,
    routes: HashMap<Box<str>, Arc<Route>>,
}

impl Grant {
    pub(crate) fn of(subscription: &Subscription) -> Self {
        let mut grant = Grant::default();
        grant.join(subscription);
        grant
    }

    fn join(&mut self, subscription: &Subscription) {
        let options = subscription.options;
        self.qos = self.qos.max(options.qos);
        if !options.no_local {
            self.own = self.own.max(Some(options.qos));
        }
        self.retain_as_published |= options.retain_as_published;
        self.identifiers.extend(subscription.identifier);
    }
}

impl Route {
    pub(crate) fn add(&mut self, target: &Target) {
        match target {
            Target::Sink(slot) => self.sinks.push(slot.clone()),
            Target::Share(share) => self.shares.push(share.clone()),
            Target::Session(session, subscription) => {
                match self.sessions.iter_mut().find(|(s, _)| s.key == session.key) {
                    Some((_, grant)) => Arc::make_mut(grant).join(subscription),
                    None => {
                        let grant = Arc::new(Grant::of(subscription));
                        self.sessions.push((session.clone(), grant));
                    }
                }
            }
        }
    }
}

impl Picks {
    /// All of a batch's `count` messages on the same terms.
    pub(crate) fn all(grant: &Arc<Grant>, count: usize) -> Self {
        Picks {
            grants: vec![grant.clone()],
            list: (0..count as u32).map(|index| (index, 0)).collect(),
        }
    }

    pub(crate) fn push(&mut self, index: u32, grant: &Arc<Grant>) {
        let known = self.grants.iter().rposition(|g| Arc::ptr_eq(g, grant));
        let at = known.unwrap_or_else(|| {
            self.grants.push(grant.clone());
            self.grants.len() - 1
        });
        self.list.push((index, at as u32));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Grant>)> {
        let grant = |at: u32| &self.grants[at as usize];
        self.list
            .iter()
            .map(move |(index, at)| (*index, grant(*at)))
    }

    /// Forgets the first `taken`.
    pub(crate) fn done(&mut self, taken: usize) {
        self.list.drain(..taken);
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
