//! One client's session: its queue, what it has not acknowledged, and how it is held or dropped.
//!
//! No IO and no clock here: publishers [`Session::deliver`] into it, its link's writer takes
//! bytes out by [`Session::take_output`], its link's reader reports acknowledgements.
//!
//! # A subscriber that is behind
//!
//! While its bytes or messages are at their bound, its publishers are held back. If it does not
//! get below half of the bound within the grace time it is *lagging*: publishers no longer wait,
//! QoS 0 messages that find no room are dropped and counted, and a message of QoS 1 or 2 that
//! finds none ends its link (a persistent session keeps what is queued). Once its queue was empty
//! it may hold publishers again. For a client that is away messages of QoS 1 and 2 queue up to
//! the bounds and newer ones are dropped and counted.
//!
//! # Order
//!
//! Messages of QoS 1 and 2 leave in the order in which they came. `inflight[..resend_at]` was
//! sent on this link, the rest of it on an earlier one and is to be sent again (with DUP) before
//! the queue goes on. While retained messages of a new subscription wait in the queue, newer
//! QoS 0 messages queue behind them, so that an old value never follows a new one.
//!
//! # Exactly once
//!
//! For a persistent session a QoS 2 PUBLISH leaves only when its packet identifier is journaled,
//! and PUBREL only when it is journaled that PUBREC came; so after a restart the same message
//! goes out under the same identifier, or none.

use std::sync::{Arc, OnceLock};

use base::UnixMillis;
use journal::JournalError;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::{Outgoing, PUBCOMP, PUBREL, Version};
use crate::config::MqttConfig;
use crate::gate::Pass;
use crate::message::{Message, Qos};
use crate::outbox::{Inflight, Outbox, Queued, bytes_max};
use crate::reason::ReasonCode;
use crate::records::{Change, RecoveredSession, Subscription};
use crate::route::{Grant, Picks};
use crate::stats::ClientStats;
use crate::store::Store;
use crate::stored::Stored;
use crate::topic::TopicFilter;
use crate::will::Will;

/// A session, shared by its link, its publishers and the map of sessions.
pub(crate) struct Session {
    /// Unique for ever; the session's name in the journal.
    pub(crate) key: u64,
    pub(crate) client_id: Arc<str>,
    /// May outlive its link, and is journaled.
    pub(crate) persistent: bool,
    pub(super) state: Mutex<Outbox>,
    /// The user whose clients alone may have it, once one had it.
    owner: Mutex<Option<Box<str>>>,
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
    /// Messages of QoS 1 and 2 that the client takes at once.
    pub(crate) receive_maximum: u16,
    /// Bytes of the largest packet that the client takes.
    pub(crate) packet_bytes_max: u32,
    /// Numbers for topics that the client remembers, and we use.
    pub(crate) topic_alias_maximum: u16,
    pub(crate) cancel: CancellationToken,
    /// Why it was cut off, for its client to be told.
    pub(crate) cut: Arc<OnceLock<ReasonCode>>,
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
#[derive(Debug)]
pub(crate) enum Output {
    /// Bytes to write; `after_journal`: once what was journaled so far is durable.
    Bytes { after_journal: bool },
    /// Nothing now.
    Idle,
    /// Nothing until the journal takes more.
    Refused(JournalError),
    /// The link is no longer the session's.
    Gone,
}

/// How able a session is to take a message, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Ready,
    Behind,
    Away,
    Gone,
}

/// What delivering needs to know, and what it counts.
pub(crate) struct Terms<'a> {
    pub(crate) config: &'a MqttConfig,
    pub(crate) store: &'a Store,
    pub(crate) now: UnixMillis,
    /// The session whose client published; 0 for the process itself.
    pub(crate) publisher: u64,
    /// Indexes, ascending, of the messages that asked to be retained.
    pub(crate) retained: &'a [u32],
    /// Take messages beyond the bound: the caller cannot wait and has asked before.
    pub(crate) force: bool,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    /// Something was journaled that acknowledgements have to wait for.
    pub(crate) journaled: bool,
}

/// What is left of a link when it is taken from its session.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Output that its writer had not taken and that may leave.
    pub(crate) out: Vec<u8>,
    /// The will, if it is due at once.
    pub(crate) will: Option<Will>,
    /// When to look at the session again.
    pub(crate) look_at: Option<UnixMillis>,
    /// The session ends with the link.
    pub(crate) is_over: bool,
}

impl Session {
    pub(crate) fn new(key: u64, client_id: Arc<str>, persistent: bool, now: UnixMillis) -> Self {
        let (wake, room) = (Notify::new(), Notify::new());
        Session {
            key,
            client_id,
            persistent,
            state: Mutex::new(Outbox::new(now)),
            owner: Mutex::default(),
            wake,
            room,
        }
    }

    /// The session as the journal held it, with no link.
    pub(crate) fn recovered(
        key: u64,
        from: RecoveredSession,
        default_expiry_s: u32,
        now: UnixMillis,
    ) -> Self {
        let last_seen = from.last_seen.unwrap_or(now);
        let session = Session::new(key, from.client_id.into(), true, last_seen);
        {
            let mut state = session.state.lock();
            state.expiry_s = from.expiry_s.unwrap_or(default_expiry_s);
            state.subscriptions = from.subscriptions;
            state.exactly_once = from.exactly_once;
            for (number, known) in from.queue {
                let grant = Grant {
                    identifiers: known.identifiers,
                    ..Grant::default()
                };
                let queued = Queued {
                    message: known.message,
                    qos: known.qos,
                    retain: known.retain,
                    is_replay: false,
                    number,
                    grant: Arc::new(grant),
                };
                let Some(id) = known.sent else {
                    state.enqueue(queued);
                    continue;
                };
                state.queue_bytes += queued.message.bytes();
                let received = known.received;
                state.inflight.push_back(Inflight {
                    id,
                    queued,
                    received,
                });
            }
        }
        session
    }

    /// Gives the session a new link; the one it had is cut off. `first` (its CONNACK) goes out
    /// before everything else. Gives the will of the link before, if it is to be published.
    pub(crate) fn attach(
        &self,
        store: &Store,
        link: LinkRef,
        will: Option<Will>,
        expiry_s: u32,
        first: &[u8],
    ) -> Result<Option<Will>, JournalError> {
        let mut state = self.state.lock();
        if self.persistent {
            store.put(Change::Session {
                session: self.key,
                last_seen: None,
                expiry_s,
                client_id: &self.client_id,
            })?;
        }
        if let Some(old) = state.link.replace(link) {
            old.cut_off(ReasonCode::SessionTakenOver);
        }
        // A will with a delay is not published when its client is back in time (MQTT-3.1.3-9).
        let old_will = std::mem::replace(&mut state.will, will).filter(|will| will.delay_s == 0);
        state.will_at = None;
        state.expiry_s = expiry_s;
        state.reset_link();
        state.out.extend_from_slice(first);
        drop(state);
        self.wake.notify_one();
        self.room.notify_waiters();
        Ok(old_will)
    }

    /// Takes the link away if it is still this one. `expiry_s`: what a DISCONNECT changed;
    /// `is_goodbye`: the will is void.
    pub(crate) fn detach(
        &self,
        link: u64,
        now: UnixMillis,
        expiry_s: Option<u32>,
        is_goodbye: bool,
    ) -> Option<Remains> {
        let mut state = self.state.lock();
        if !state.is_link(link) {
            return None;
        }
        let mut remains = Remains::default();
        state.link = None;
        state.last_seen = now;
        state.expiry_s = expiry_s.unwrap_or(state.expiry_s);
        let out = std::mem::take(&mut state.out);
        if !state.out_after_journal {
            remains.out = out;
        }
        state.reset_link();
        if is_goodbye {
            state.will = None;
        }
        remains.is_over = state.expiry_s == 0;
        let delay_s = state.will.as_ref().map(|will| will.delay_s);
        let ends = remains.is_over || delay_s == Some(0);
        if ends {
            remains.will = state.will.take();
        }
        let after = |s: u32| now + std::time::Duration::from_secs(u64::from(s));
        if let (Some(delay_s), false) = (delay_s, ends) {
            state.will_at = Some(after(delay_s));
        }
        let expires = (state.expiry_s != u32::MAX).then(|| after(state.expiry_s));
        remains.look_at = match (expires, state.will_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        drop(state);
        self.wake.notify_one();
        self.room.notify_waiters();
        Some(remains)
    }

    /// Ends the session for good, with whatever link it has; gives its will, which is then due.
    pub(crate) fn end(
        &self,
        store: &Store,
        reason: ReasonCode,
    ) -> Result<Option<Will>, JournalError> {
        let mut state = self.state.lock();
        if self.persistent && !state.ended {
            store.put(Change::SessionEnded { session: self.key })?;
        }
        state.ended = true;
        if let Some(link) = state.link.take() {
            link.cut_off(reason);
        }
        state.out = Vec::new();
        let will = state.will.take();
        drop(state);
        self.wake.notify_one();
        self.room.notify_waiters();
        Ok(will)
    }

    /// What is due now for a session that is away: its will, and whether it expired. Gives when
    /// to look again.
    pub(crate) fn due(&self, now: UnixMillis) -> (Option<Will>, bool, Option<UnixMillis>) {
        let mut state = self.state.lock();
        if state.link.is_some() || state.ended {
            return (None, false, None);
        }
        let will = match state.will_at {
            Some(at) if at <= now => {
                state.will_at = None;
                state.will.take()
            }
            _ => None,
        };
        let life = std::time::Duration::from_secs(u64::from(state.expiry_s));
        let expires = (state.expiry_s != u32::MAX).then(|| state.last_seen + life);
        if expires.is_some_and(|at| at <= now) {
            return (will, true, None);
        }
        let again = match (expires, state.will_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        (will, false, again)
    }

    /// Offers the picked messages, each on its terms; `stored` keeps the owned copies that several
    /// sessions share, one place per message. Wakes the writer.
    pub(crate) fn deliver(
        &self,
        terms: &mut Terms<'_>,
        messages: &[Message<'_>],
        picks: &Picks,
        stored: &mut [Option<Arc<Stored>>],
    ) -> Delivered {
        let mut state = self.state.lock();
        let mut outcome = Delivered::All;
        for (taken, (index, grant)) in picks.iter().enumerate() {
            let (message, stored) = (&messages[index as usize], &mut stored[index as usize]);
            let granted = match terms.publisher == self.key {
                false => grant.qos,
                true => match grant.own {
                    Some(own) => own,
                    None => continue,
                },
            };
            let retain = grant.retain_as_published && terms.retained.binary_search(&index).is_ok();
            let offer = Offer {
                message,
                qos: message.qos.min(granted),
                retain,
                grant,
            };
            match self.deliver_one(&mut state, terms, &offer, stored) {
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

    /// How able it is to take a message of a shared subscription.
    pub(crate) fn standing(&self, config: &MqttConfig, now: UnixMillis) -> Standing {
        let mut state = self.state.lock();
        match (state.is_connected(), state.is_full(config)) {
            _ if state.ended => Standing::Gone,
            (true, false) => Standing::Ready,
            (true, true) if state.is_lagging(config, now) => Standing::Away,
            (true, true) => Standing::Behind,
            (false, false) if self.persistent => Standing::Away,
            (false, _) => Standing::Gone,
        }
    }

    /// Whether it has a link.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().is_connected()
    }

    /// Whether it is another user's.
    pub(crate) fn is_foreign(&self, user: Option<&str>) -> bool {
        let owner = self.owner.lock();
        owner.as_deref().is_some_and(|owner| user != Some(owner))
    }

    /// Makes it the user's.
    pub(crate) fn own(&self, user: Option<&str>) {
        *self.owner.lock() = user.map(Box::from);
    }

    /// Whether its client may see messages of a topic. One that is away was asked when it
    /// subscribed, and is asked again when it is back.
    pub(crate) fn may_receive(&self, topic: &str) -> bool {
        let state = self.state.lock();
        let pass = state.link.as_ref().map(|link| link.pass.clone());
        drop(state);
        pass.is_none_or(|pass| pass.may_receive(topic))
    }

    /// Seconds that it outlives its link.
    pub(crate) fn expiry_s(&self) -> u32 {
        self.state.lock().expiry_s
    }

    /// Gives the link another pass, after its client logged in again.
    pub(crate) fn renew_pass(&self, link: u64, pass: &Arc<dyn Pass>) {
        let mut state = self.state.lock();
        if let Some(own) = state.link.as_mut().filter(|l| l.number == link) {
            own.pass = pass.clone();
        }
    }

    /// Queues retained messages for a new subscription.
    pub(crate) fn queue_retained(&self, messages: Vec<Arc<Stored>>, grant: &Arc<Grant>) {
        if messages.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for message in messages {
            state.enqueue(Queued {
                qos: message.qos.min(grant.qos),
                message,
                retain: true,
                is_replay: true,
                number: 0,
                grant: grant.clone(),
            });
        }
        drop(state);
        self.wake.notify_one();
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
    /// queue. Counts into `terms`.
    pub(crate) fn take_output(
        &self,
        link: u64,
        terms: &mut Terms<'_>,
        spare: &mut Vec<u8>,
    ) -> Output {
        let mut state = self.state.lock();
        if !state.is_link(link) {
            return Output::Gone;
        }
        let filled = state.fill(terms.config, terms.store, self.key, terms.now);
        terms.sent += filled.sent;
        terms.dropped += filled.dropped;
        if state.out.is_empty() {
            if let Some(error) = filled.refused {
                return Output::Refused(error);
            }
            state.lagging &= !state.queue.is_empty();
            return Output::Idle;
        }
        std::mem::swap(&mut state.out, spare);
        let after_journal = std::mem::take(&mut state.out_after_journal);
        state.acknowledgement_bytes = 0;
        if state.waiting_bytes() < bytes_max(terms.config) / 2 {
            state.full_since = None;
        }
        drop(state);
        self.room.notify_waiters();
        Output::Bytes { after_journal }
    }

    /// The client acknowledged a message to the end (PUBACK, or PUBCOMP when `received`), or
    /// refused it; an identifier that is not in flight is ignored.
    pub(crate) fn acknowledged(&self, store: &Store, id: u16, received: bool) {
        let state = self.state.lock();
        let fits = |i: &Inflight| {
            let exactly_once = i.queued.qos == Qos::ExactlyOnce;
            i.id == id && i.received == received && exactly_once == received
        };
        if let Some(at) = state.inflight.iter().position(fits) {
            self.done(state, store, at);
        }
    }

    /// The client has a QoS 2 message (PUBREC), or refuses it: answers with PUBREL if it has it,
    /// or if nothing is known of the identifier.
    ///
    /// # Errors
    /// The journal does not take it now; nothing was changed.
    pub(crate) fn received(
        &self,
        store: &Store,
        link: u64,
        id: u16,
        is_refusal: bool,
    ) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        if !state.is_link(link) {
            return Ok(());
        }
        let fits = |i: &Inflight| i.id == id && i.queued.qos == Qos::ExactlyOnce;
        let Some(at) = state.inflight.iter().position(fits) else {
            if !is_refusal {
                state.acknowledge(PUBREL, id, ReasonCode::PacketIdentifierNotFound);
            }
            drop(state);
            self.wake.notify_one();
            return Ok(());
        };
        if is_refusal {
            self.done(state, store, at);
            return Ok(());
        }
        let number = state.inflight[at].queued.number;
        if number != 0 && !state.inflight[at].received {
            let session = self.key;
            store.put(Change::Received { session, number })?;
            state.out_after_journal = true;
        }
        state.inflight[at].received = true;
        state.acknowledge(PUBREL, id, ReasonCode::Success);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Whether a QoS 2 packet identifier of the client is taken.
    pub(crate) fn exactly_once_taken(&self, id: u16) -> bool {
        self.state.lock().exactly_once.contains(&id)
    }

    /// QoS 2 packet identifiers of the client that are taken.
    pub(crate) fn exactly_once_count(&self) -> usize {
        self.state.lock().exactly_once.len()
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

    /// Releases a QoS 2 packet identifier (PUBREL) and answers with PUBCOMP, which leaves only
    /// when the release is durable: else the next message under it could be taken for this one.
    ///
    /// # Errors
    /// The journal does not take it now; nothing was changed.
    pub(crate) fn released(&self, store: &Store, link: u64, id: u16) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        if !state.is_link(link) {
            return Ok(());
        }
        let mut reason = ReasonCode::PacketIdentifierNotFound;
        if state.exactly_once.contains(&id) {
            if self.persistent {
                store.put(Change::ExactlyOnceReleased {
                    session: self.key,
                    id,
                })?;
                state.out_after_journal = true;
            }
            state.exactly_once.remove(&id);
            reason = ReasonCode::Success;
        }
        state.acknowledge(PUBCOMP, id, reason);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Notes a subscription; `None` when the client has as many as it may, else whether it is new.
    pub(crate) fn subscribe(
        &self,
        config: &MqttConfig,
        store: &Store,
        filter: &TopicFilter,
        subscription: Subscription,
    ) -> Result<Option<bool>, JournalError> {
        let mut state = self.state.lock();
        let known = state.subscriptions.get(filter).copied();
        if known.is_none() && state.subscriptions.len() >= config.subscriptions_per_client_max {
            return Ok(None);
        }
        if self.persistent && known != Some(subscription) {
            store.put(Change::Subscribed {
                session: self.key,
                subscription,
                filter,
            })?;
        }
        state.subscriptions.insert(filter.clone(), subscription);
        Ok(Some(known.is_none()))
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
    pub(crate) fn subscriptions(&self) -> Vec<(TopicFilter, Subscription)> {
        let state = self.state.lock();
        let own = state.subscriptions.iter();
        own.map(|(filter, s)| (filter.clone(), *s)).collect()
    }

    /// Gives up the messages of these shared subscriptions that it has not received, in their
    /// order. They stay in the journal until somebody else has them there.
    pub(crate) fn surrender(&self, shares: &[u64]) -> Vec<Queued> {
        let mut state = self.state.lock();
        let is_theirs = |queued: &Queued| {
            let share = queued.grant.share.as_ref().and_then(|s| s.upgrade());
            share.is_some_and(|share| shares.contains(&share.id))
        };
        let mut given = Vec::new();
        let (resend_at, inflight) = (state.resend_at, std::mem::take(&mut state.inflight));
        for (at, own) in inflight.into_iter().enumerate() {
            // Of QoS 2 nobody else may get what was sent once (MQTT-4.8.2-5).
            let stays = own.queued.qos == Qos::ExactlyOnce || !is_theirs(&own.queued);
            if stays {
                state.inflight.push_back(own);
            } else {
                state.resend_at -= usize::from(at < resend_at);
                given.push(own.queued);
            }
        }
        for own in std::mem::take(&mut state.queue) {
            if is_theirs(&own) {
                given.push(own);
            } else {
                state.queue.push_back(own);
            }
        }
        for queued in &given {
            state.queue_bytes -= queued.message.bytes();
        }
        given
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
        let session = self.key;
        visit(Change::Session {
            session,
            last_seen: state.link.is_none().then_some(state.last_seen),
            expiry_s: state.expiry_s,
            client_id: &self.client_id,
        })?;
        for (filter, subscription) in &state.subscriptions {
            visit(Change::Subscribed {
                session,
                subscription: *subscription,
                filter,
            })?;
        }
        for id in &state.exactly_once {
            visit(Change::ExactlyOnceTaken { session, id: *id })?;
        }
        for own in state.inflight.iter().filter(|i| i.queued.number != 0) {
            let number = own.queued.number;
            visit(own.queued.change(session))?;
            if own.queued.qos == Qos::ExactlyOnce {
                let id = own.id;
                visit(Change::Sent {
                    session,
                    number,
                    id,
                })?;
            }
            if own.received {
                visit(Change::Received { session, number })?;
            }
        }
        for queued in state.queue.iter().filter(|q| q.number != 0) {
            visit(queued.change(session))?;
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

    /// Takes a message of a shared subscription that another member gave up.
    pub(crate) fn take_over(
        &self,
        store: &Store,
        queued: Queued,
        grant: &Arc<Grant>,
    ) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        let mut queued = Queued {
            qos: queued.qos.min(grant.qos),
            number: 0,
            grant: grant.clone(),
            ..queued
        };
        if queued.qos != Qos::AtMostOnce && self.persistent {
            queued.number = store.next_number();
            store.put(queued.change(self.key))?;
        }
        state.enqueue(queued);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// `inflight[at]` is delivered.
    fn done(&self, mut state: MutexGuard<'_, Outbox>, store: &Store, at: usize) {
        let Some(done) = state.inflight.remove(at) else {
            return;
        };
        state.resend_at -= usize::from(at < state.resend_at);
        state.forget(&done.queued, store, self.key);
        let more = !state.queue.is_empty() || state.resend_at < state.inflight.len();
        drop(state);
        if more {
            self.wake.notify_one();
        }
        self.room.notify_waiters();
    }

    /// `Ok(true)`: taken or dropped; `Ok(false)`: wait.
    fn deliver_one(
        &self,
        state: &mut MutexGuard<'_, Outbox>,
        terms: &mut Terms<'_>,
        offer: &Offer<'_, '_>,
        stored: &mut Option<Arc<Stored>>,
    ) -> Result<bool, JournalError> {
        let (message, qos) = (offer.message, offer.qos);
        let mut connected = state.is_connected();
        if connected && state.is_full(terms.config) {
            let lagging = state.is_lagging(terms.config, terms.now);
            if !lagging && !terms.force {
                return Ok(false);
            }
            if lagging && qos == Qos::AtMostOnce {
                state.dropped += 1;
                terms.dropped += 1;
                return Ok(true);
            }
            if lagging && let Some(link) = &state.link {
                tracing::warn!(client = %self.client_id, "disconnected: too slow for its messages \
                    of QoS 1 and 2");
                link.cut_off(ReasonCode::QuotaExceeded);
                connected = false;
            }
        }
        if !connected {
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
            let outgoing = Outgoing {
                topic: message.topic,
                payload: message.payload,
                qos,
                retain: offer.retain,
                dup: false,
                id: 0,
                properties: message.properties,
                expiry_s: message.expiry_s(terms.now),
                identifiers: &offer.grant.identifiers,
                alias: 0,
            };
            let went = state.write(outgoing);
            state.sent += u64::from(went);
            terms.sent += u64::from(went);
            state.dropped += u64::from(!went);
            terms.dropped += u64::from(!went);
            return Ok(true);
        }
        let message = stored.get_or_insert_with(|| Stored::of(message)).clone();
        let mut queued = Queued {
            message,
            qos,
            retain: offer.retain,
            is_replay: false,
            number: 0,
            grant: offer.grant.clone(),
        };
        if qos != Qos::AtMostOnce && self.persistent {
            queued.number = terms.store.next_number();
            terms.store.put(queued.change(self.key))?;
            terms.journaled = true;
        }
        state.enqueue(queued);
        if connected {
            let filled = state.fill(terms.config, terms.store, self.key, terms.now);
            terms.sent += filled.sent;
            terms.dropped += filled.dropped;
        }
        Ok(true)
    }
}

/// One message on its terms.
struct Offer<'o, 'm> {
    message: &'o Message<'m>,
    qos: Qos,
    retain: bool,
    grant: &'o Arc<Grant>,
}

impl LinkRef {
    /// Ends the link; its client is told why if it can be.
    pub(crate) fn cut_off(&self, reason: ReasonCode) {
        // The first reason is the one that counts.
        let _ = self.cut.set(reason);
        self.cancel.cancel();
    }
}

impl Queued {
    pub(crate) fn change(&self, session: u64) -> Change<'_> {
        Change::Queued {
            session,
            number: self.number,
            qos: self.qos,
            retain: self.retain,
            identifiers: &self.grant.identifiers,
            message: &self.message,
        }
    }
}
