//! What links and the process share: subscriptions, sessions, retained messages, counters.
//!
//! Lock order: a sink's `replaying`, then `sessions`, then `shares`, then `retained`, then one share's members, then one
//! session or one backlog, then the journal's own. `subscriptions` is taken alone.

mod handover;
mod members;

pub(crate) use members::{Claim, Leave, NotAttached};

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use access::Addresses;
use base::{Clock, UnixMillis};
use journal::JournalError;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::config::MqttConfig;
use crate::deadlines::Deadlines;
use crate::error::MqttError;
use crate::gate::Gate;
use crate::limits::UNFINISHED_BYTES_MAX;
use crate::message::{Message, MessageSink, RetainedMessage, Settled};
use crate::records::{Change, Recovered};
use crate::retained::RetainedMessages;
use crate::route::{Picks, Route, RouteCache, Subscriber, Target};
use crate::seats::Seats;
use crate::session::{Delivered, Session, Terms};
use crate::share::Share;
use crate::sink::SinkSlot;
use crate::stats::{Counters, ServerStats};
use crate::store::Store;
use crate::stored::Stored;
use crate::topic::TopicFilter;
use crate::trie::Trie;

pub(crate) struct Core {
    pub(crate) config: MqttConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) store: Store,
    pub(crate) counters: Counters,
    pub(crate) opened: UnixMillis,
    pub(crate) seats: Seats,
    pub(crate) addresses: Addresses,
    /// Kilobytes that there is room for of what links leave unfinished.
    pub(crate) unfinished: Arc<Semaphore>,
    /// Cancelled by `close`: every link ends.
    pub(crate) closed: CancellationToken,
    /// Told when someone subscribes to `$SYS`.
    pub(crate) sys_wanted: Notify,
    pub(crate) sys_subscriptions: AtomicUsize,
    subscriptions: RwLock<Trie<Subscriber, Target>>,
    /// Grows with every change of the subscriptions, after it.
    generation: AtomicU64,
    sinks: Mutex<HashMap<u64, (TopicFilter, Arc<SinkSlot>)>>,
    sessions: Mutex<members::Sessions>,
    /// Shared subscriptions by their whole filter.
    shares: Mutex<HashMap<TopicFilter, Arc<Share>>>,
    retained: Arc<Mutex<RetainedMessages>>,
    deadlines: Mutex<Deadlines>,
    /// Told when an earlier deadline came.
    pub(crate) deadline_wanted: Notify,
    /// Routes of what the process publishes.
    routes: Mutex<RouteCache>,
    runtime: OnceLock<Handle>,
    next_link: AtomicU64,
    upkeep_started: AtomicBool,
}

impl Core {
    pub(crate) fn new(
        config: MqttConfig,
        clock: Arc<dyn Clock>,
        gate: Arc<dyn Gate>,
        store: Store,
        recovered: Recovered,
    ) -> Self {
        let now = clock.now();
        let default_expiry_s = config.session_expiry_s();
        let recovered_sessions: Vec<Arc<Session>> = recovered
            .sessions
            .into_iter()
            .filter(|(_, from)| !from.client_id.is_empty())
            .map(|(key, from)| Session::recovered(key, from, &*gate, default_expiry_s, now))
            .map(Arc::new)
            .collect();
        let core = Core {
            opened: now,
            seats: Seats::default(),
            addresses: Addresses::default(),
            unfinished: Arc::new(Semaphore::new(UNFINISHED_BYTES_MAX / 1024)),
            config,
            clock,
            gate,
            store,
            counters: Counters::new(),
            closed: CancellationToken::new(),
            sys_wanted: Notify::new(),
            sys_subscriptions: AtomicUsize::new(0),
            subscriptions: RwLock::new(Trie::new()),
            generation: AtomicU64::new(1),
            sinks: Mutex::default(),
            sessions: Mutex::default(),
            shares: Mutex::default(),
            retained: Arc::new(Mutex::new(RetainedMessages::new(recovered.retained))),
            deadlines: Mutex::default(),
            deadline_wanted: Notify::new(),
            routes: Mutex::default(),
            runtime: OnceLock::new(),
            next_link: AtomicU64::new(1),
            upkeep_started: AtomicBool::new(false),
        };
        for session in recovered_sessions {
            for (filter, subscription) in session.subscriptions() {
                core.enter(&session, &filter, subscription);
            }
            let (_, _, look_at) = session.due(UnixMillis(i64::MIN));
            core.look_again(&session, look_at);
            core.sessions
                .lock()
                .insert(session.client_id.clone(), session);
        }
        core.note_runtime();
        core
    }

    /// Remembers the runtime that this is called on, if any, for the tasks of backlogs.
    pub(crate) fn note_runtime(&self) -> Option<&Handle> {
        if self.runtime.get().is_none()
            && let Ok(handle) = Handle::try_current()
        {
            let _ = self.runtime.set(handle);
        }
        self.runtime.get()
    }

    /// Whether the caller is the first, who starts the upkeep.
    pub(crate) fn claim_upkeep(&self) -> bool {
        !self.upkeep_started.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn next_link(&self) -> u64 {
        self.next_link.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Walks the subscriptions for a topic.
    pub(crate) fn find_route(&self, topic: &str) -> Route {
        let mut route = Route::default();
        self.subscriptions
            .read()
            .matches(topic, &mut |_, target| route.add(target));
        route
            .sessions
            .retain(|(session, _)| session.may_receive(topic));
        route
    }

    pub(crate) fn terms(&self, now: UnixMillis) -> Terms<'_> {
        let (config, store) = (&self.config, &self.store);
        Terms {
            config,
            store,
            now,
            publisher: 0,
            retained: &[],
            force: false,
            sent: 0,
            dropped: 0,
            refused: 0,
            journaled: false,
        }
    }

    /// Adds what a delivery counted to the totals.
    pub(crate) fn count(&self, terms: &Terms<'_>) {
        self.counters.messages_sent.add(terms.sent);
        self.counters.dropped.add(terms.dropped);
        self.counters.refused.add(terms.refused);
    }

    // Sinks.

    pub(crate) fn subscribe_sink(&self, filter: TopicFilter, sink: Arc<dyn MessageSink>) -> u64 {
        let id = self.store.next_number();
        let slot = Arc::new(SinkSlot::new(id, sink, self.retained.clone()));
        self.sinks.lock().insert(id, (filter.clone(), slot.clone()));
        self.add(&filter, Subscriber::Sink(id), Target::Sink(slot.clone()));
        let found = self
            .retained
            .lock()
            .matching(&self.store, &filter, self.clock.now());
        if let (Some(runtime), false) = (self.note_runtime(), found.is_empty()) {
            slot.queue(runtime, found.into_iter().map(|message| (message, true)));
        }
        id
    }

    pub(crate) fn unsubscribe_sink(&self, id: u64) {
        let Some((filter, slot)) = self.sinks.lock().remove(&id) else {
            return;
        };
        self.remove(&filter, Subscriber::Sink(id));
        slot.removed.cancel();
    }

    /// What sinks have taken and not yet brought where they promise to.
    pub(crate) fn unsettled(&self) -> Vec<Settled> {
        let sinks = self.sinks.lock();
        sinks
            .values()
            .filter_map(|(_, slot)| slot.settled())
            .collect()
    }

    // Subscriptions.

    /// Has everybody be judged again: who is there, who gets what, and what waits for them.
    pub(crate) fn permissions_changed(&self) {
        self.subscriptions_changed();
        for session in self.sessions() {
            session.judge_again();
            session.cut_off_if_void();
        }
    }

    /// Makes links look up anew who gets what.
    pub(crate) fn subscriptions_changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn add(&self, filter: &TopicFilter, subscriber: Subscriber, target: Target) {
        let old = self
            .subscriptions
            .write()
            .insert(filter, subscriber, target);
        self.subscriptions_changed();
        if is_sys(filter) {
            if old.is_none() {
                self.sys_subscriptions.fetch_add(1, Ordering::Relaxed);
            }
            self.sys_wanted.notify_one();
        }
    }

    fn remove(&self, filter: &TopicFilter, subscriber: Subscriber) {
        let old = self.subscriptions.write().remove(filter, &subscriber);
        self.subscriptions_changed();
        if is_sys(filter) && old.is_some() {
            self.sys_subscriptions.fetch_sub(1, Ordering::Relaxed);
        }
    }

    // Messages.

    /// Stores or clears a topic's retained message. `Busy` from the journal: nothing changed.
    pub(crate) fn retain(&self, message: &Message<'_>) -> Result<(), MqttError> {
        self.retained.lock().set(&self.config, &self.store, message)
    }

    /// Publishes from within the process: to all, or (`Busy`) to nobody.
    pub(crate) fn publish(&self, message: &Message<'_>, retain: bool) -> Result<(), MqttError> {
        if self.closed.is_cancelled() {
            return Err(MqttError::Closed);
        }
        let route = self.published_route(message.topic);
        if self.is_behind(&route, message.received) {
            return Err(MqttError::Busy);
        }
        if retain {
            self.retain(message)?;
        }
        let route = if retain {
            self.published_route(message.topic)
        } else {
            route
        };
        let mut stored = [None];
        for slot in &route.sinks {
            if !slot.must_queue() && slot.offer(std::slice::from_ref(message)) == 1 {
                continue;
            }
            let copy = stored[0].get_or_insert_with(|| Stored::of(message)).clone();
            if let Some(runtime) = self.note_runtime() {
                slot.queue(runtime, std::iter::once((copy, false)));
            }
        }
        self.counters
            .messages_to_sinks
            .add(route.sinks.len() as u64);
        let retained: &[u32] = if retain { &[0] } else { &[] };
        let mut terms = Terms {
            force: true,
            retained,
            ..self.terms(message.received)
        };
        let chosen = route
            .shares
            .iter()
            .filter_map(|share| self.choose(share, message));
        let own = route.sessions.iter().cloned();
        for (session, grant) in own.chain(chosen) {
            let (messages, picks) = (std::slice::from_ref(message), Picks::all(&grant, 1));
            let outcome = session.deliver(&mut terms, messages, &picks, &mut stored);
            if let Delivered::Refused(_, error) = outcome {
                // The others have it already, so the caller must not publish it again.
                terms.dropped += 1;
                tracing::warn!(client = %session.client_id, %error, "message not queued");
            }
        }
        self.count(&terms);
        self.counters.messages_published.add(1);
        Ok(())
    }

    /// Waits until a publish to `topic` is likely to find room.
    pub(crate) async fn room(&self, topic: &str) {
        let route = self.published_route(topic);
        for slot in &route.sinks {
            loop {
                let told = slot.room.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                if slot.has_room() || slot.removed.is_cancelled() {
                    break;
                }
                tokio::select! {
                    () = told => {}
                    () = slot.removed.cancelled() => {}
                    () = self.closed.cancelled() => return,
                }
            }
        }
        for (session, _) in &route.sessions {
            loop {
                let told = session.room.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                if !session.holds_back(&self.config, self.clock.now()) {
                    break;
                }
                tokio::select! {
                    () = told => {}
                    () = tokio::time::sleep(self.config.slow_subscriber_grace.0) => {}
                    () = self.closed.cancelled() => return,
                }
            }
        }
        self.store.room(0).await;
    }

    fn published_route(&self, topic: &str) -> Arc<Route> {
        self.routes
            .lock()
            .route(self.generation(), topic, || self.find_route(topic))
    }

    fn is_behind(&self, route: &Route, now: UnixMillis) -> bool {
        route.sinks.iter().any(|slot| !slot.has_room())
            || route
                .sessions
                .iter()
                .any(|(s, _)| s.holds_back(&self.config, now))
    }

    pub(crate) fn retained_messages(
        &self,
        filter: &TopicFilter,
        count: usize,
    ) -> Vec<RetainedMessage> {
        let now = self.clock.now();
        let found = self.retained.lock().matching(&self.store, filter, now);
        let told = |message: Arc<Stored>| RetainedMessage {
            topic: message.topic.to_string(),
            payload: message.payload.to_vec(),
            qos: message.qos,
            received: message.received,
        };
        found.into_iter().take(count).map(told).collect()
    }

    // Upkeep.

    /// Puts all that lives into the journal again and gives back what lies before.
    pub(crate) async fn snapshot(&self) -> Result<u32, JournalError> {
        let low_water = self.store.end();
        let mut after: Option<Box<str>> = None;
        loop {
            // In small steps, so that publishers of retained messages hardly wait.
            let step = self
                .retained
                .lock()
                .put_again(&self.store, after.as_deref());
            match step {
                Ok(None) => break,
                Ok(next) => after = next,
                Err((next, JournalError::Busy)) => {
                    after = next.or(after);
                    self.store.room(largest(&self.config)).await;
                }
                Err((_, error)) => return Err(error),
            }
            tokio::task::yield_now().await;
        }
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        for session in sessions.iter().filter(|s| s.persistent) {
            let mut rest = session.remainder();
            let mut put = |changes: &[Change<'_>]| self.store.put_again(changes);
            loop {
                match session.put_again(&mut rest, &mut put) {
                    Ok(()) => break,
                    Err(JournalError::Busy) => self.store.room(largest(&self.config)).await,
                    Err(error) => return Err(error),
                }
                tokio::task::yield_now().await;
            }
        }
        self.store.reclaim(low_water).await
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }

    pub(crate) fn stats(&self) -> ServerStats {
        let c = &self.counters;
        let (retained, retained_bytes) = {
            let retained = self.retained.lock();
            (retained.len() as u64, retained.bytes() as u64)
        };
        ServerStats {
            clients_connected: c.clients_connected.load(Ordering::Relaxed),
            sessions: self.sessions.lock().len() as u64,
            messages_received_total: c.messages_received.total(),
            messages_sent_total: c.messages_sent.total(),
            messages_to_sinks_total: c.messages_to_sinks.total(),
            messages_published_total: c.messages_published.total(),
            dropped_total: c.dropped.total(),
            bytes_received_total: c.bytes_received.total(),
            bytes_sent_total: c.bytes_sent.total(),
            retained,
            retained_bytes,
            subscriptions: self.subscriptions.read().len() as u64,
            held_total: c.held.total(),
            sessions_expired_total: c.expired.total(),
            refused_total: c.refused.total(),
            handshakes_failed_total: c.handshakes_failed.total(),
            connections_total: self.seats.total(),
            clients_maximum: self.seats.most(),
            uptime_ms: u64::try_from(self.clock.now().since(self.opened).as_millis())
                .unwrap_or(u64::MAX),
        }
    }
}

/// Bytes of room to wait for: the largest message with its topic.
fn largest(config: &MqttConfig) -> usize {
    usize::try_from(config.packet_bytes_max.0)
        .unwrap_or(usize::MAX)
        .saturating_add(256)
}

fn is_sys(filter: &TopicFilter) -> bool {
    filter.as_str().starts_with("$SYS")
}
