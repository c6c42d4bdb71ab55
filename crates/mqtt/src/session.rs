//! One client's session: its queue, what it has not acknowledged, and how it is held or dropped.
//!
//! No IO and no clock here: publishers [`Session::deliver`] into it, its link's writer takes
//! bytes out by [`Session::take_output`], its link's reader reports acknowledgements.
//!
//! # A subscriber that is behind
//!
//! While its bytes or messages are at their bound, its publishers are held back. If it does not
//! get below half of the bound within the grace time it is *lagging*: publishers no longer wait,
//! QoS 0 messages that find no room are dropped and counted, and a QoS 1 message that finds none
//! ends its link (a persistent session keeps what is queued). Once its queue was empty it may
//! hold publishers again. For a client that is away QoS 1 messages queue up to the bounds and
//! newer ones are dropped and counted.
//!
//! # Order
//!
//! Messages of QoS 1 leave in the order in which they came. `inflight[..resend_at]` was sent on
//! this link, the rest of it on an earlier one and is to be sent again (with DUP) before the
//! queue goes on. While retained messages of a new subscription wait in the queue, newer QoS 0
//! messages queue behind them, so that an old value never follows a new one.

use std::sync::Arc;

use base::UnixMillis;
use journal::JournalError;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::{self, Version};
use crate::config::MqttConfig;
use crate::gate::Pass;
use crate::message::{Message, Qos};
use crate::outbox::{Outbox, Queued, bytes_max};
use crate::stats::ClientStats;
use crate::store::{Change, RecoveredSession, Store, Stored};
use crate::topic::TopicFilter;

/// A session, shared by its link, its publishers and the map of sessions.
pub(crate) struct Session {
    /// Unique for ever; the session's name in the journal.
    pub(crate) key: u64,
    pub(crate) client_id: Arc<str>,
    /// Kept when its link ends, and journaled.
    pub(crate) persistent: bool,
    state: Mutex<Outbox>,
    /// Told when there is something to write.
    pub(crate) wake: Notify,
    /// Told when bytes were taken or the link ended.
    pub(crate) room: Notify,
}

/// The link that a session has now.
#[derive(Clone)]
pub(crate) struct LinkRef {
    pub(crate) number: u64,
    pub(crate) version: Version,
    pub(crate) pass: Arc<dyn Pass>,
    pub(crate) cancel: CancellationToken,
}

/// How a delivery to a session ended.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// Everything was taken, or dropped and counted.
    All,
    /// The first so many were; for the next one its publisher should wait.
    Full(usize),
    /// The first so many were; the journal refused the next one.
    Refused(usize, JournalError),
}

/// What a session's writer gets.
#[derive(Debug, PartialEq)]
pub(crate) enum Output {
    /// Bytes to write.
    Bytes,
    /// Nothing now.
    Idle,
    /// The link is no longer the session's.
    Gone,
}

/// What delivering needs to know, and what it counts.
pub(crate) struct Terms<'a> {
    pub(crate) config: &'a MqttConfig,
    pub(crate) store: &'a Store,
    pub(crate) now: UnixMillis,
    /// Take messages beyond the bound: the caller cannot wait and has asked before.
    pub(crate) force: bool,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    /// Something was journaled that acknowledgements have to wait for.
    pub(crate) journaled: bool,
}

impl Session {
    pub(crate) fn new(key: u64, client_id: Arc<str>, persistent: bool, now: UnixMillis) -> Self {
        let (wake, room) = (Notify::new(), Notify::new());
        Session {
            key,
            client_id,
            persistent,
            state: Mutex::new(Outbox::new(now)),
            wake,
            room,
        }
    }

    /// The session as the journal held it, with no link.
    pub(crate) fn recovered(key: u64, from: RecoveredSession) -> Self {
        let session = Session::new(key, from.client_id.into(), true, from.last_seen);
        {
            let mut state = session.state.lock();
            state.subscriptions = from.subscriptions;
            state.exactly_once = from.exactly_once;
            for (number, (message, retain)) in from.queue {
                state.enqueue(Queued {
                    message,
                    qos: Qos::AtLeastOnce,
                    retain,
                    number,
                });
            }
        }
        session
    }

    /// Gives the session a new link; the one it had is cut off. `first` (its CONNACK) goes out
    /// before everything else.
    pub(crate) fn attach(&self, link: LinkRef, first: &[u8], now: UnixMillis) {
        let mut state = self.state.lock();
        if let Some(old) = state.link.replace(link) {
            old.cancel.cancel();
        }
        state.out.clear();
        state.acknowledgement_bytes = 0;
        state.out.extend_from_slice(first);
        state.resend_at = 0;
        state.full_since = None;
        state.lagging = false;
        state.last_seen = now;
        drop(state);
        self.wake.notify_one();
        self.room.notify_waiters();
    }

    /// Takes the link away if it is still this one; tells whether it was.
    pub(crate) fn detach(&self, link: u64, now: UnixMillis) -> bool {
        let mut state = self.state.lock();
        let own = state.is_link(link);
        if own {
            state.link = None;
            state.out = Vec::new();
            state.last_seen = now;
        }
        drop(state);
        self.wake.notify_one();
        self.room.notify_waiters();
        own
    }

    /// Ends the session for good, with whatever link it has.
    pub(crate) fn end(&self, store: &Store) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        if self.persistent && !state.ended {
            store.put(Change::SessionEnded { session: self.key })?;
        }
        state.ended = true;
        if let Some(link) = state.link.take() {
            link.cancel.cancel();
        }
        state.out = Vec::new();
        drop(state);
        self.wake.notify_one();
        self.room.notify_waiters();
        Ok(())
    }

    /// Offers the picked messages, each with the quality that the subscription grants; `stored`
    /// keeps the owned copies that several sessions share, one place per message. Wakes the
    /// writer.
    pub(crate) fn deliver(
        &self,
        terms: &mut Terms<'_>,
        messages: &[Message<'_>],
        picks: &[(u32, Qos)],
        stored: &mut [Option<Arc<Stored>>],
    ) -> Delivered {
        let mut state = self.state.lock();
        let mut outcome = Delivered::All;
        for (taken, (index, granted)) in picks.iter().enumerate() {
            let (message, stored) = (&messages[*index as usize], &mut stored[*index as usize]);
            let qos = message.qos.min(*granted).min(Qos::AtLeastOnce);
            match self.deliver_one(&mut state, terms, message, qos, stored) {
                Ok(true) => {}
                Ok(false) => {
                    outcome = Delivered::Full(taken);
                    break;
                }
                Err(error) => {
                    outcome = Delivered::Refused(taken, error);
                    break;
                }
            }
        }
        drop(state);
        self.wake.notify_one();
        outcome
    }

    /// Whether a publisher would have to wait now. Starts the grace time if so.
    pub(crate) fn holds_back(&self, config: &MqttConfig, now: UnixMillis) -> bool {
        let mut state = self.state.lock();
        state.link.is_some() && state.is_full(config) && !state.is_lagging(config, now)
    }

    /// Queues retained messages for a new subscription, each with the quality to send it with.
    pub(crate) fn queue_retained(&self, messages: Vec<(Arc<Stored>, Qos)>) {
        if messages.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for (message, qos) in messages {
            state.enqueue(Queued {
                message,
                qos,
                retain: true,
                number: 0,
            });
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Whether its client may see messages of a topic. One that is away was asked when it
    /// subscribed, and is asked again when it is back.
    pub(crate) fn may_receive(&self, topic: &str) -> bool {
        let state = self.state.lock();
        let pass = state.link.as_ref().map(|link| link.pass.clone());
        drop(state);
        pass.is_none_or(|pass| pass.may_receive(topic))
    }

    /// Retained messages that still wait in the queue.
    pub(crate) fn retained_waiting(&self) -> usize {
        self.state.lock().queue_retained
    }

    /// Appends to the output of this link; false when the link is no longer the session's.
    pub(crate) fn write(&self, link: u64, encode: impl FnOnce(&mut Vec<u8>, Version)) -> bool {
        let mut state = self.state.lock();
        let Some(version) = state
            .link
            .as_ref()
            .filter(|l| l.number == link)
            .map(|l| l.version)
        else {
            return false;
        };
        let before = state.out.len();
        encode(&mut state.out, version);
        state.acknowledgement_bytes += state.out.len() - before;
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Bytes of acknowledgements and answers that the writer has not taken yet.
    pub(crate) fn acknowledgement_bytes(&self) -> usize {
        self.state.lock().acknowledgement_bytes
    }

    /// Swaps the waiting output into `spare`, which must be empty, after filling it up from the
    /// queue. Returns how many PUBLISH packets came from the queue.
    pub(crate) fn take_output(
        &self,
        link: u64,
        config: &MqttConfig,
        spare: &mut Vec<u8>,
    ) -> (Output, u64) {
        let mut state = self.state.lock();
        if !state.is_link(link) {
            return (Output::Gone, 0);
        }
        let sent = state.fill(config);
        if state.out.is_empty() {
            state.lagging &= !state.queue.is_empty();
            return (Output::Idle, sent);
        }
        std::mem::swap(&mut state.out, spare);
        state.acknowledgement_bytes = 0;
        if state.waiting_bytes() < bytes_max(config) / 2 {
            state.full_since = None;
        }
        drop(state);
        self.room.notify_waiters();
        (Output::Bytes, sent)
    }

    /// The client acknowledged a QoS 1 message; an unknown identifier is ignored.
    pub(crate) fn acknowledged(&self, store: &Store, id: u16) {
        let mut state = self.state.lock();
        let Some(at) = state.inflight.iter().position(|i| i.id == id) else {
            return;
        };
        let Some(done) = state.inflight.remove(at) else {
            return;
        };
        state.resend_at -= usize::from(at < state.resend_at);
        if !done.queued.retain {
            state.queue_bytes -= done.queued.message.bytes();
        }
        if done.queued.number != 0 {
            let change = Change::Delivered {
                session: self.key,
                number: done.queued.number,
            };
            // Without it the message comes again after a restart, which QoS 1 allows.
            if let Err(error) = store.put(change) {
                tracing::debug!(client = %self.client_id, %error, "acknowledgement not journaled");
            }
        }
        let more = !state.queue.is_empty();
        drop(state);
        if more {
            self.wake.notify_one();
        }
        self.room.notify_waiters();
    }

    /// Whether a QoS 2 packet identifier of the client is taken.
    pub(crate) fn exactly_once_taken(&self, id: u16) -> bool {
        self.state.lock().exactly_once.contains(&id)
    }

    /// Takes a QoS 2 packet identifier: the message was handed on.
    pub(crate) fn take_exactly_once(&self, store: &Store, id: u16) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        if self.persistent {
            store.put(Change::ExactlyOnceTaken {
                session: self.key,
                id,
            })?;
        }
        state.exactly_once.insert(id);
        Ok(())
    }

    /// Releases a QoS 2 packet identifier (PUBREL).
    pub(crate) fn release_exactly_once(&self, store: &Store, id: u16) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        if state.exactly_once.contains(&id) {
            if self.persistent {
                store.put(Change::ExactlyOnceReleased {
                    session: self.key,
                    id,
                })?;
            }
            state.exactly_once.remove(&id);
        }
        Ok(())
    }

    /// Notes a subscription; false when the client has as many as it may.
    pub(crate) fn subscribe(
        &self,
        config: &MqttConfig,
        store: &Store,
        filter: &TopicFilter,
        qos: Qos,
    ) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        let known = state.subscriptions.contains_key(filter);
        if !known && state.subscriptions.len() >= config.subscriptions_per_client_max {
            return Ok(false);
        }
        if self.persistent && state.subscriptions.get(filter) != Some(&qos) {
            store.put(Change::Subscribed {
                session: self.key,
                qos,
                filter,
            })?;
        }
        state.subscriptions.insert(filter.clone(), qos);
        Ok(true)
    }

    /// Forgets a subscription; false when there was none.
    pub(crate) fn unsubscribe(
        &self,
        store: &Store,
        filter: &TopicFilter,
    ) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        if !state.subscriptions.contains_key(filter) {
            return Ok(false);
        }
        if self.persistent {
            store.put(Change::Unsubscribed {
                session: self.key,
                filter,
            })?;
        }
        state.subscriptions.remove(filter);
        Ok(true)
    }

    /// Its filters.
    pub(crate) fn subscriptions(&self) -> Vec<(TopicFilter, Qos)> {
        self.state
            .lock()
            .subscriptions
            .iter()
            .map(|(f, q)| (f.clone(), *q))
            .collect()
    }

    /// Whether it is away since before `instant`.
    pub(crate) fn away_since_before(&self, instant: UnixMillis) -> bool {
        let state = self.state.lock();
        state.link.is_none() && state.last_seen < instant
    }

    /// Puts everything that lives into the journal once more; `visit` appends. The session is
    /// locked meanwhile, so a change falls either before or behind its copy.
    pub(crate) fn put_again(
        &self,
        visit: &mut dyn FnMut(Change<'_>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let state = self.state.lock();
        if state.ended {
            return Ok(());
        }
        let (session, last_seen) = (self.key, state.last_seen);
        visit(Change::Session {
            session,
            last_seen,
            client_id: &self.client_id,
        })?;
        for (filter, qos) in &state.subscriptions {
            visit(Change::Subscribed {
                session,
                qos: *qos,
                filter,
            })?;
        }
        for id in &state.exactly_once {
            visit(Change::ExactlyOnceTaken { session, id: *id })?;
        }
        let queued = state.inflight.iter().map(|i| &i.queued).chain(&state.queue);
        for queued in queued.filter(|q| q.number != 0) {
            let (number, retain, message) = (queued.number, queued.retain, &*queued.message);
            visit(Change::Queued {
                session,
                number,
                retain,
                message,
            })?;
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let state = self.state.lock();
        let link = state.link.as_ref();
        ClientStats {
            user: link.and_then(|link| link.pass.user().map(str::to_owned)),
            client_id: self.client_id.to_string(),
            connected: state.link.is_some(),
            persistent: self.persistent,
            subscriptions: state.subscriptions.len() as u64,
            queued: state.queue.len() as u64,
            queued_bytes: state.waiting_bytes() as u64,
            inflight: state.inflight.len() as u64,
            sent_total: state.sent,
            dropped_total: state.dropped,
        }
    }

    /// `Ok(true)`: taken or dropped; `Ok(false)`: wait.
    fn deliver_one(
        &self,
        state: &mut MutexGuard<'_, Outbox>,
        terms: &mut Terms<'_>,
        message: &Message<'_>,
        qos: Qos,
        stored: &mut Option<Arc<Stored>>,
    ) -> Result<bool, JournalError> {
        if state.link.is_some() && state.is_full(terms.config) {
            let lagging = state.is_lagging(terms.config, terms.now);
            if !lagging && !terms.force {
                return Ok(false);
            }
            if lagging && qos == Qos::AtMostOnce {
                state.dropped += 1;
                terms.dropped += 1;
                return Ok(true);
            }
            if lagging && let Some(link) = state.link.take() {
                tracing::warn!(client = %self.client_id, "disconnected: too slow for its QoS 1 \
                    messages");
                link.cancel.cancel();
                state.out = Vec::new();
            }
        }
        if state.link.is_none() {
            if qos == Qos::AtMostOnce || !self.persistent {
                return Ok(true);
            }
            if state.is_full(terms.config) {
                state.dropped += 1;
                terms.dropped += 1;
                return Ok(true);
            }
        }
        if qos == Qos::AtMostOnce && state.queue_retained == 0 {
            let version = state.link.as_ref().map_or(Version::V311, |l| l.version);
            let out = &mut state.out;
            codec::publish(
                out,
                version,
                message.topic,
                message.payload,
                qos,
                false,
                false,
                0,
            );
            state.sent += 1;
            terms.sent += 1;
            return Ok(true);
        }
        let stored = stored.get_or_insert_with(|| Stored::of(message)).clone();
        let mut number = 0;
        if qos != Qos::AtMostOnce && self.persistent {
            number = terms.store.next_number();
            let (session, message) = (self.key, &*stored);
            terms.store.put(Change::Queued {
                session,
                number,
                retain: false,
                message,
            })?;
            terms.journaled = true;
        }
        state.enqueue(Queued {
            message: stored,
            qos,
            retain: false,
            number,
        });
        terms.sent += state.fill(terms.config);
        Ok(true)
    }
}
