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
//! # Rights
//!
//! What comes for a client that is away is judged by what its session's owner may receive. What
//! waited for it is judged again when it leaves: in the meantime rights may have changed.
//!
//! # Exactly once
//!
//! For a persistent session a QoS 2 PUBLISH leaves only when its packet identifier is journaled,
//! and PUBREL only when it is journaled that PUBREC came; so after a restart the same message
//! goes out under the same identifier, or none. Retained messages of a new subscription too: what
//! of them is not in the journal yet gets there before it leaves.

mod again;
mod answers;
mod deliver;
mod handover;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use base::UnixMillis;
use journal::JournalError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::Version;
use crate::config::MqttConfig;
use crate::core::Core;
use crate::gate::{Gate, Owner, Pass};
use crate::limits::SUBSCRIPTION_BYTES_MEAN_MAX;
use crate::outbox::{Inflight, Outbox, Queued};
use crate::reason::ReasonCode;
use crate::records::{Change, RecoveredSession, Subscription};
use crate::route::Grant;
use crate::stats::ClientStats;
use crate::store::Store;
use crate::topic::TopicFilter;
use crate::will::Will;

pub(crate) use handover::NotTaken;

/// A session, shared by its link, its publishers and the map of sessions.
pub(crate) struct Session {
    /// Unique for ever; the session's name in the journal.
    pub(crate) key: u64,
    pub(crate) client_id: Arc<str>,
    /// May outlive its link, and is journaled.
    pub(crate) persistent: bool,
    state: Mutex<Outbox>,
    /// Told when there is something to write.
    pub(crate) wake: Notify,
    /// Told when bytes were taken or the link ended.
    pub(crate) room: Notify,
    /// A task hands its messages of shared subscriptions to others.
    pub(crate) is_handing_over: AtomicBool,
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
    /// Messages that had waited for a client that may not see them any more.
    pub(crate) refused: u64,
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
            wake,
            room,
            is_handing_over: AtomicBool::new(false),
        }
    }

    /// The session as the journal held it, with no link.
    pub(crate) fn recovered(
        key: u64,
        from: RecoveredSession,
        gate: &dyn Gate,
        default_expiry_s: u32,
        now: UnixMillis,
    ) -> Self {
        let last_seen = from.last_seen.unwrap_or(now);
        let away = from.owner.as_ref();
        let away = away.and_then(|owner| gate.away(&from.client_id, owner));
        let session = Session::new(key, from.client_id.into(), true, last_seen);
        {
            let mut state = session.state.lock();
            state.expiry_s = from.expiry_s.unwrap_or(default_expiry_s);
            (state.owner, state.away) = (from.owner, away);
            state.subscription_bytes = from.subscriptions.keys().map(TopicFilter::bytes).sum();
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
                    place: 0,
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
        core: &Core,
        link: LinkRef,
        (owner, will): (Owner, Option<Will>),
        expiry_s: u32,
        first: &[u8],
    ) -> Result<Option<Will>, JournalError> {
        let (store, is_kept) = (&core.store, self.persistent);
        let mut state = self.state.lock();
        if is_kept && state.owner.as_ref() != Some(&owner) {
            let (session, owner) = (self.key, &owner);
            store.put(Change::Owned { session, owner })?;
        }
        if is_kept {
            state.away = core.gate.away(&self.client_id, &owner);
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
        state.owner = Some(owner);
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

    /// Cuts off the link that the client has, if any; says whether there was one.
    pub(crate) fn cut_off(&self, reason: ReasonCode) -> bool {
        let state = self.state.lock();
        let Some(link) = &state.link else {
            return false;
        };
        link.cut_off(reason);
        true
    }

    /// Cuts off the link whose client has shown what was taken back since.
    pub(crate) fn cut_off_if_void(&self) {
        let state = self.state.lock();
        let Some(link) = state.link.as_ref().filter(|link| link.pass.is_void()) else {
            return;
        };
        let (client, user) = (&*self.client_id, link.pass.user());
        tracing::info!(
            client,
            user,
            "a link ends: its password or token was taken back"
        );
        link.cut_off(ReasonCode::NotAuthorized);
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

    /// Whether it has a link.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().is_connected()
    }

    /// Whether it is another user's.
    pub(crate) fn is_foreign(&self, user: Option<&str>) -> bool {
        let state = self.state.lock();
        let owner = state.owner.as_ref().and_then(|of| of.user.as_deref());
        owner.is_some_and(|owner| user != Some(owner))
    }

    /// Has what waits for the client be judged again before it leaves.
    pub(crate) fn judge_again(&self) {
        let mut state = self.state.lock();
        state.unjudged = state.queue.len();
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
            state.unjudged = state.queue.len();
        }
    }

    /// Notes a subscription; `None` when the client has as many as it may, or as many bytes of
    /// filters, else whether it is new.
    pub(crate) fn subscribe(
        &self,
        config: &MqttConfig,
        store: &Store,
        filter: &TopicFilter,
        subscription: Subscription,
    ) -> Result<Option<bool>, JournalError> {
        let mut state = self.state.lock();
        let known = state.subscriptions.get(filter).copied();
        let (bytes, most) = (filter.bytes(), config.subscriptions_per_client_max);
        let bytes_max = most.saturating_mul(SUBSCRIPTION_BYTES_MEAN_MAX);
        let has_room = state.subscriptions.len() < most
            && state.subscription_bytes.saturating_add(bytes) <= bytes_max;
        if known.is_none() && !has_room {
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
        if known.is_none() {
            state.subscription_bytes += bytes;
        }
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
        state.subscription_bytes -= filter.bytes();
        Ok(true)
    }

    /// Its filters.
    pub(crate) fn subscriptions(&self) -> Vec<(TopicFilter, Subscription)> {
        let state = self.state.lock();
        let own = state.subscriptions.iter();
        own.map(|(filter, s)| (filter.clone(), *s)).collect()
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
    /// Puts it into the journal, in the place that it has.
    pub(crate) fn keep(&mut self, store: &Store, session: u64) -> Result<(), JournalError> {
        self.number = self.place;
        let kept = store.put(self.change(session));
        if kept.is_err() {
            self.number = 0;
        }
        kept
    }

    /// Notes in the journal that it goes out under this packet identifier.
    pub(crate) fn note_sent(
        &mut self,
        store: &Store,
        session: u64,
        id: u16,
    ) -> Result<(), JournalError> {
        if self.number == 0 {
            self.keep(store, session)?;
        }
        let number = self.number;
        store.put(Change::Sent {
            session,
            number,
            id,
        })
    }

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
