//! Sessions of the core: who takes one up, what happens when a link ends, and when a session does.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use journal::JournalError;

use crate::core::Core;
use crate::gate::Owner;
use crate::limits::SESSION_END_RETRY;
use crate::message::Message;
use crate::reason::ReasonCode;
use crate::records::{Change, Subscription};
use crate::route::{Grant, Subscriber, Target};
use crate::session::{LinkRef, Session};
use crate::share::Share;
use crate::topic::TopicFilter;
use crate::will::Will;

/// The sessions by client id.
pub(crate) type Sessions = HashMap<Arc<str>, Arc<Session>>;

/// How a link takes up its session.
#[derive(Clone)]
pub(crate) struct Claim<'a> {
    pub(crate) client_id: &'a str,
    /// Whatever session there was ends.
    pub(crate) is_clean: bool,
    /// How long the session outlives this link; 0: not at all.
    pub(crate) expiry_s: u32,
    pub(crate) will: Option<Will>,
    pub(crate) owner: Owner,
    pub(crate) link: LinkRef,
}

/// Why a link did not get its session; that and others stay as they were.
#[derive(Debug)]
pub(crate) enum NotAttached {
    /// The session is another user's: it would bring messages that are not meant for this one.
    Foreign,
    /// As many sessions are kept as may be.
    NoRoom,
    /// The journal did not take it.
    Journal(JournalError),
}

impl From<JournalError> for NotAttached {
    fn from(error: JournalError) -> NotAttached {
        NotAttached::Journal(error)
    }
}

/// How a link leaves its session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leave {
    /// The client said goodbye, so its will is void.
    pub(crate) is_goodbye: bool,
    /// What its DISCONNECT made of the session's life.
    pub(crate) expiry_s: Option<u32>,
}

impl Core {
    /// Gives a link its session: a kept one, or a new one. The link that the client had before
    /// is cut off. `connack` is told whether a kept session was found.
    ///
    /// # Errors
    /// After [`JournalError::Busy`] the same claim may be tried again.
    pub(crate) fn attach(
        self: &Arc<Self>,
        claim: Claim<'_>,
        connack: impl FnOnce(bool) -> Vec<u8>,
    ) -> Result<Arc<Session>, NotAttached> {
        let mut wills = Vec::new();
        let session = self.take_up(claim, connack, &mut wills);
        self.publish_wills(wills);
        session
    }

    /// As [`Core::attach`]; the wills that are due come into `wills`, also when it fails.
    fn take_up(
        self: &Arc<Self>,
        claim: Claim<'_>,
        connack: impl FnOnce(bool) -> Vec<u8>,
        wills: &mut Vec<Will>,
    ) -> Result<Arc<Session>, NotAttached> {
        let Claim {
            client_id,
            is_clean,
            expiry_s,
            will,
            owner,
            link,
        } = claim;
        let now = self.clock.now();
        let mut sessions = self.sessions.lock();
        let found = sessions.get(client_id).cloned();
        if expiry_s > 0 && found.is_none() && sessions.len() >= self.config.sessions_max {
            return Err(NotAttached::NoRoom);
        }
        if let Some(old) = found {
            if old.is_foreign(owner.user.as_deref()) {
                return Err(NotAttached::Foreign);
            }
            let (due, has_expired, _) = old.due(now);
            wills.extend(due);
            if old.persistent && !is_clean && !has_expired {
                let out = connack(true);
                wills.extend(old.attach(self, link, (owner, will), expiry_s, &out)?);
                drop(sessions);
                self.subscriptions_changed();
                return Ok(old);
            }
            wills.extend(self.end_locked(&mut sessions, &old, ReasonCode::SessionTakenOver)?);
        }
        let (key, persistent) = (self.store.next_number(), expiry_s > 0);
        let session = Arc::new(Session::new(key, client_id.into(), persistent, now));
        session.attach(self, link, (owner, will), expiry_s, &connack(false))?;
        sessions.insert(session.client_id.clone(), session.clone());
        Ok(session)
    }

    /// Takes the link from its session, and ends the session if it is not to be kept. Gives the
    /// output that was left.
    pub(crate) fn detach(
        self: &Arc<Self>,
        session: &Arc<Session>,
        link: u64,
        leave: Leave,
    ) -> Vec<u8> {
        let now = self.clock.now();
        let Some(remains) = session.detach(link, now, leave.expiry_s, leave.is_goodbye) else {
            // A client that is back already has its own session or link; leave those alone.
            return Vec::new();
        };
        let mut wills: Vec<Will> = remains.will.into_iter().collect();
        if remains.is_over {
            let mut sessions = self.sessions.lock();
            match self.end_locked(&mut sessions, session, ReasonCode::Success) {
                Ok(will) => wills.extend(will),
                Err(error) => {
                    tracing::warn!(client = %session.client_id, %error, "session not ended yet");
                    self.look_again(session, Some(now + SESSION_END_RETRY));
                }
            }
        } else {
            let change = Change::Session {
                session: session.key,
                last_seen: Some(now),
                expiry_s: session.expiry_s(),
                client_id: &session.client_id,
            };
            if let Err(error) = self.store.put(change) {
                let client_id = &*session.client_id;
                tracing::debug!(client_id, %error, "last seen not journaled");
            }
            self.look_again(session, remains.look_at);
            self.redistribute(session);
        }
        self.publish_wills(wills);
        remains.out
    }

    /// Publishes the wills and ends the sessions that are due; gives the next deadline.
    pub(crate) fn act_on_deadlines(self: &Arc<Self>) -> Option<UnixMillis> {
        let now = self.clock.now();
        let mut wills = Vec::new();
        let mut refused = None;
        let take = || self.deadlines.lock().take(now);
        while let Some(client_id) = take() {
            let mut sessions = self.sessions.lock();
            let Some(session) = sessions.get(&client_id).cloned() else {
                continue;
            };
            let (will, has_expired, mut again) = session.due(now);
            wills.extend(will);
            if has_expired {
                match self.end_locked(&mut sessions, &session, ReasonCode::Success) {
                    Ok(will) => {
                        tracing::info!(client = %session.client_id, "session expired");
                        wills.extend(will);
                        self.counters.expired.add(1);
                    }
                    Err(error) => {
                        again = Some(now + SESSION_END_RETRY);
                        refused = Some(error);
                    }
                }
            }
            drop(sessions);
            self.look_again(&session, again);
        }
        if let Some(error) = refused {
            tracing::warn!(error = %base::report(&error), "sessions not ended yet");
        }
        self.publish_wills(wills);
        self.deadlines.lock().next()
    }

    /// Notes when a session that is away is to be looked at.
    pub(crate) fn look_again(&self, session: &Session, at: Option<UnixMillis>) {
        let Some(at) = at else {
            return;
        };
        let is_first = self.deadlines.lock().note(&session.client_id, at);
        if is_first {
            self.deadline_wanted.notify_one();
        }
    }

    fn publish_wills(self: &Arc<Self>, wills: Vec<Will>) {
        let Some(runtime) = self.note_runtime() else {
            return;
        };
        for will in wills {
            let core = self.clone();
            runtime.spawn(async move { will.publish(&core).await });
        }
    }

    /// Cuts a client off for an operator's sake, and ends its session if it is to be forgotten; says
    /// whether it was connected, or none when there is no such session.
    pub(crate) fn send_away(
        self: &Arc<Self>,
        client_id: &str,
        is_forgotten: bool,
    ) -> Result<Option<bool>, JournalError> {
        let mut sessions = self.sessions.lock();
        let Some(session) = sessions.get(client_id).cloned() else {
            return Ok(None);
        };
        let was_connected = session.cut_off(ReasonCode::AdministrativeAction);
        if !is_forgotten {
            return Ok(Some(was_connected));
        }
        let will = self.end_locked(&mut sessions, &session, ReasonCode::AdministrativeAction)?;
        drop(sessions);
        self.publish_wills(will.into_iter().collect());
        Ok(Some(was_connected))
    }

    /// Ends a session for good; gives its will, which is then due.
    fn end_locked(
        self: &Arc<Self>,
        sessions: &mut Sessions,
        session: &Arc<Session>,
        reason: ReasonCode,
    ) -> Result<Option<Will>, JournalError> {
        let will = session.end(&self.store, reason)?;
        self.redistribute(session);
        for (filter, _) in session.subscriptions() {
            self.leave(session, &filter);
        }
        let is_own = |s: &Arc<Session>| s.key == session.key;
        if sessions.get(&session.client_id).is_some_and(is_own) {
            sessions.remove(&session.client_id);
        }
        Ok(will)
    }

    // Subscriptions of clients.

    /// Subscribes a client; whether it is new, or `None` when it has as many as it may.
    pub(crate) fn subscribe_client(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
        subscription: Subscription,
    ) -> Result<Option<bool>, JournalError> {
        let is_new = session.subscribe(&self.config, &self.store, filter, subscription)?;
        if is_new.is_some() {
            self.enter(session, filter, subscription);
        }
        Ok(is_new)
    }

    /// Ends a subscription; false when there was none.
    pub(crate) fn unsubscribe_client(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
    ) -> Result<bool, JournalError> {
        let existed = session.unsubscribe(&self.store, filter)?;
        if existed {
            self.leave(session, filter);
        }
        Ok(existed)
    }

    /// Queues the retained messages of a filter; false when too many wait for the client already.
    pub(crate) fn replay_retained(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
        subscription: &Subscription,
    ) -> bool {
        let grant = Arc::new(Grant::of(subscription));
        // Under the lock, so that a message retained now is queued behind the one it replaces.
        let mut retained = self.retained.lock();
        let mut found = retained.matching(&self.store, filter, self.clock.now());
        found.retain(|message| session.may_receive(&message.topic));
        if session.retained_waiting() + found.len() > self.config.retained_messages_max {
            return false;
        }
        session.queue_retained(&self.store, found, &grant);
        true
    }

    /// Puts a client's subscription where messages find it.
    pub(crate) fn enter(
        &self,
        session: &Arc<Session>,
        filter: &TopicFilter,
        subscription: Subscription,
    ) {
        let Some((_, inner)) = filter.shared() else {
            let target = Target::Session(session.clone(), subscription);
            self.add(filter, Subscriber::Session(session.key), target);
            return;
        };
        let mut shares = self.shares.lock();
        let share = shares.entry(filter.clone()).or_insert_with(|| {
            let share = Arc::new(Share::new(self.store.next_number(), inner));
            let target = Target::Share(share.clone());
            self.add(&share.filter, Subscriber::Share(share.id), target);
            share
        });
        share.join(session, &subscription);
    }

    fn leave(&self, session: &Session, filter: &TopicFilter) {
        if filter.shared().is_none() {
            self.remove(filter, Subscriber::Session(session.key));
            return;
        }
        let mut shares = self.shares.lock();
        let Some(share) = shares.get(filter).cloned() else {
            return;
        };
        if share.leave(session.key) {
            shares.remove(filter);
            self.remove(&share.filter, Subscriber::Share(share.id));
        }
    }

    /// One message for whoever's turn it is in a group, outside of a link's batch.
    pub(crate) fn choose(
        &self,
        share: &Share,
        message: &Message<'_>,
    ) -> Option<(Arc<Session>, Arc<Grant>)> {
        share.choose(&self.config, message.received, message.topic, None)
    }
}
