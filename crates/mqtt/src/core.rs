//! What links and the process share: subscriptions, sessions, retained messages, counters.
//!
//! Lock order: `sessions`, then `retained`, then one session or one backlog, then the journal's
//! own. `subscriptions` is taken alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Clock, UnixMillis};
use journal::JournalError;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::gate::Gate;
use crate::message::{Message, MessageSink, Qos, RetainedMessage};
use crate::retained::RetainedMessages;
use crate::route::{Route, RouteCache, Subscriber, Target};
use crate::seats::Seats;
use crate::session::{Delivered, LinkRef, Session, Terms};
use crate::sink::SinkSlot;
use crate::stats::{Counters, ServerStats};
use crate::store::{Change, Recovered, Store, Stored};
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
    /// Cancelled by `close`: every link ends.
    pub(crate) closed: CancellationToken,
    /// Told when someone subscribes to `$SYS`.
    pub(crate) sys_wanted: Notify,
    pub(crate) sys_subscriptions: AtomicUsize,
    subscriptions: RwLock<Trie<Subscriber, Target>>,
    /// Grows with every change of the subscriptions, after it.
    generation: AtomicU64,
    sinks: Mutex<HashMap<u64, (TopicFilter, Arc<SinkSlot>)>>,
    sessions: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    retained: Mutex<RetainedMessages>,
    /// Routes of what the process publishes.
    routes: Mutex<RouteCache>,
    runtime: OnceLock<Handle>,
    next_link: AtomicU64,
    expired_at_ms: AtomicI64,
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
        let mut trie = Trie::new();
        let mut sessions = HashMap::new();
        for (key, session) in recovered.sessions {
            let session = Arc::new(Session::recovered(key, session));
            for (filter, qos) in session.subscriptions() {
                let target = Target::Session(session.clone(), qos);
                trie.insert(&filter, Subscriber::Session(key), target);
            }
            sessions.insert(session.client_id.clone(), session);
        }
        let core = Core {
            opened: clock.now(),
            seats: Seats::default(),
            config,
            clock,
            gate,
            store,
            counters: Counters::new(),
            closed: CancellationToken::new(),
            sys_wanted: Notify::new(),
            sys_subscriptions: AtomicUsize::new(0),
            subscriptions: RwLock::new(trie),
            generation: AtomicU64::new(1),
            sinks: Mutex::default(),
            sessions: Mutex::new(sessions),
            retained: Mutex::new(RetainedMessages::new(recovered.retained)),
            routes: Mutex::default(),
            runtime: OnceLock::new(),
            next_link: AtomicU64::new(1),
            expired_at_ms: AtomicI64::new(0),
            upkeep_started: AtomicBool::new(false),
        };
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

    /// Makes every route be looked up anew.
    pub(crate) fn subscriptions_changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Walks the subscriptions for a topic.
    pub(crate) fn find_route(&self, topic: &str) -> Route {
        let mut route = Route::default();
        self.subscriptions
            .read()
            .matches(topic, &mut |_, target| match target {
                Target::Session(session, _) if !session.may_receive(topic) => {}
                target => route.add(target),
            });
        route
    }

    pub(crate) fn terms(&self, now: UnixMillis) -> Terms<'_> {
        let (config, store) = (&self.config, &self.store);
        Terms {
            config,
            store,
            now,
            force: false,
            sent: 0,
            dropped: 0,
            journaled: false,
        }
    }

    /// Adds what a delivery counted to the totals.
    pub(crate) fn count(&self, terms: &Terms<'_>) {
        self.counters.messages_sent.add(terms.sent);
        self.counters.dropped.add(terms.dropped);
    }

    // Sinks.

    pub(crate) fn subscribe_sink(&self, filter: TopicFilter, sink: Arc<dyn MessageSink>) -> u64 {
        let id = self.store.next_number();
        let slot = Arc::new(SinkSlot::new(id, sink));
        self.sinks.lock().insert(id, (filter.clone(), slot.clone()));
        self.add(&filter, Subscriber::Sink(id), Target::Sink(slot.clone()));
        let retained = self.retained.lock();
        let found = retained.matching(&filter);
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

    // Sessions.

    /// Gives a link its session: a kept one, or a new one. The link that the client had before
    /// is cut off. Tells whether a kept session was found.
    pub(crate) fn attach(
        &self,
        client_id: &str,
        clean: bool,
        link: LinkRef,
        connack: impl FnOnce(bool) -> Vec<u8>,
    ) -> Result<Arc<Session>, JournalError> {
        let now = self.clock.now();
        let is_judged = !link.pass.publishes_anything();
        let mut sessions = self.sessions.lock();
        if let Some(old) = sessions.get(client_id).cloned() {
            if old.persistent && !clean {
                old.attach(link, &connack(true), now);
                if is_judged {
                    // It may be another user's now.
                    self.subscriptions_changed();
                }
                return Ok(old);
            }
            self.end_locked(&mut sessions, &old)?;
        }
        let key = self.store.next_number();
        if !clean {
            self.store.put(Change::Session {
                session: key,
                last_seen: now,
                client_id,
            })?;
        }
        let session = Arc::new(Session::new(key, client_id.into(), !clean, now));
        session.attach(link, &connack(false), now);
        sessions.insert(session.client_id.clone(), session.clone());
        Ok(session)
    }

    /// Whether a new persistent session may be made.
    pub(crate) fn has_room_for_session(&self, client_id: &str) -> bool {
        let sessions = self.sessions.lock();
        sessions.len() < self.config.sessions_max || sessions.contains_key(client_id)
    }

    /// Takes the link from its session, and ends the session if it is not to be kept.
    pub(crate) fn detach(&self, session: &Arc<Session>, link: u64) {
        let now = self.clock.now();
        if session.detach(link, now) || !session.persistent {
            let mut sessions = self.sessions.lock();
            // A client that is back already has its own session or link; leave those alone.
            if session.persistent {
                let (session, client_id) = (session.key, &*session.client_id);
                let change = Change::Session {
                    session,
                    last_seen: now,
                    client_id,
                };
                if let Err(error) = self.store.put(change) {
                    tracing::debug!(client_id, %error, "last seen not journaled");
                }
            } else if let Err(error) = self.end_locked(&mut sessions, session) {
                tracing::warn!(client = %session.client_id, %error, "session not ended");
            }
        }
    }

    /// Ends persistent sessions whose clients are away for too long. Called when clients come,
    /// and works at most once a minute: an idle server wakes for nothing.
    pub(crate) fn expire_sessions_by_the_minute(&self) {
        let (now, expiry) = (self.clock.now(), self.config.session_expiry.0);
        let last = self.expired_at_ms.load(Ordering::Relaxed);
        if expiry.is_zero() || now.0 - last < 60_000 {
            return;
        }
        self.expired_at_ms.store(now.0, Ordering::Relaxed);
        let before = now - expiry;
        let mut sessions = self.sessions.lock();
        let expired: Vec<Arc<Session>> = sessions
            .values()
            .filter(|session| session.persistent && session.away_since_before(before))
            .cloned()
            .collect();
        for session in expired {
            tracing::info!(client = %session.client_id, "session expired");
            if let Err(error) = self.end_locked(&mut sessions, &session) {
                tracing::warn!(client = %session.client_id, %error, "session not ended");
            }
        }
    }

    fn end_locked(
        &self,
        sessions: &mut HashMap<Arc<str>, Arc<Session>>,
        session: &Arc<Session>,
    ) -> Result<(), JournalError> {
        session.end(&self.store)?;
        for (filter, _) in session.subscriptions() {
            self.remove(&filter, Subscriber::Session(session.key));
        }
        if sessions
            .get(&session.client_id)
            .is_some_and(|s| s.key == session.key)
        {
            sessions.remove(&session.client_id);
        }
        Ok(())
    }

    /// Subscribes a client; the quality granted, or `None` when it has as many as it may.
    pub(crate) fn subscribe_client(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
        asked: Qos,
    ) -> Result<Option<Qos>, JournalError> {
        let qos = asked.min(Qos::AtLeastOnce);
        if !session.subscribe(&self.config, &self.store, filter, qos)? {
            return Ok(None);
        }
        self.add(
            filter,
            Subscriber::Session(session.key),
            Target::Session(session.clone(), qos),
        );
        Ok(Some(qos))
    }

    /// Queues the retained messages of a filter; false when too many wait for the client already.
    pub(crate) fn replay_retained(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
        qos: Qos,
    ) -> bool {
        // Under the lock, so that a message retained now is queued behind the one it replaces.
        let retained = self.retained.lock();
        let mut found = retained.matching(filter);
        found.retain(|message| session.may_receive(&message.topic));
        if session.retained_waiting() + found.len() > self.config.retained_messages_max {
            return false;
        }
        let with_qos = |message: Arc<Stored>| {
            let qos = message.qos.min(qos);
            (message, qos)
        };
        session.queue_retained(found.into_iter().map(with_qos).collect());
        true
    }

    pub(crate) fn unsubscribe_client(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
    ) -> Result<(), JournalError> {
        if session.unsubscribe(&self.store, filter)? {
            self.remove(filter, Subscriber::Session(session.key));
        }
        Ok(())
    }

    fn add(&self, filter: &TopicFilter, subscriber: Subscriber, target: Target) {
        let old = self
            .subscriptions
            .write()
            .insert(filter, subscriber, target);
        self.generation.fetch_add(1, Ordering::Release);
        if is_sys(filter) {
            if old.is_none() {
                self.sys_subscriptions.fetch_add(1, Ordering::Relaxed);
            }
            self.sys_wanted.notify_one();
        }
    }

    fn remove(&self, filter: &TopicFilter, subscriber: Subscriber) {
        let old = self.subscriptions.write().remove(filter, &subscriber);
        self.generation.fetch_add(1, Ordering::Release);
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
        let mut terms = Terms {
            force: true,
            ..self.terms(message.received)
        };
        for (session, granted) in &route.sessions {
            let (messages, picks) = (std::slice::from_ref(message), [(0, *granted)]);
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
        let found = self.retained.lock().matching(filter);
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
            loop {
                match session.put_again(&mut |change| self.store.put(change)) {
                    Ok(()) => break,
                    Err(JournalError::Busy) => self.store.room(largest(&self.config)).await,
                    Err(error) => return Err(error),
                }
            }
        }
        self.store.mark()?.await?;
        self.store.reclaim(low_water)
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
