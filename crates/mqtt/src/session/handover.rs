//! Messages of shared subscriptions that go from one member's session to another's.

use std::sync::Arc;

use journal::JournalError;
use parking_lot::MutexGuard;

use super::{Session, Terms};
use crate::config::MqttConfig;
use crate::message::Qos;
use crate::outbox::{Inflight, Outbox, Queued, bytes_max};
use crate::records::Change;
use crate::route::Grant;

/// A message that a session has given up.
pub(crate) struct Surrendered {
    pub(crate) queued: Queued,
    /// The packet identifier under which its client may have it.
    id: Option<u16>,
}

/// Why a session does not take a message over; nothing was changed.
pub(crate) enum NotTaken {
    /// It has no room; lagging: not within its grace time either.
    Full { is_lagging: bool },
    /// The journal refused it.
    Journal(JournalError),
}

impl Session {
    /// Whether it has ended for good.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Gives up the messages of these shared subscriptions that its client has not received, in
    /// their order; none while the client is there. They stay in the journal until somebody else
    /// has them there.
    pub(crate) fn surrender(&self, shares: &[u64]) -> Vec<Surrendered> {
        let mut state = self.state.lock();
        if state.link.is_some() {
            return Vec::new();
        }
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
                let (queued, id) = (own.queued, Some(own.id));
                given.push(Surrendered { queued, id });
            }
        }
        for queued in std::mem::take(&mut state.queue) {
            if is_theirs(&queued) {
                given.push(Surrendered { queued, id: None });
            } else {
                state.queue.push_back(queued);
            }
        }
        for own in &given {
            state.queue_bytes -= own.queued.message.bytes();
        }
        state.unjudged = state.queue.len();
        given
    }

    /// Takes back what it gave up and nobody took: before what came since.
    pub(crate) fn take_back(&self, back: Vec<Surrendered>) {
        if back.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let at = state.resend_at;
        for own in back.into_iter().rev() {
            let queued = own.queued;
            state.queue_bytes += queued.message.bytes();
            // Another message may have the identifier, if the client was back in between.
            let is_free = |id: &u16| state.inflight.iter().all(|own| own.id != *id);
            match own.id.filter(is_free) {
                Some(id) => state.inflight.insert(
                    at,
                    Inflight {
                        id,
                        queued,
                        received: false,
                    },
                ),
                None => state.queue.push_front(queued),
            }
        }
        state.unjudged = state.queue.len();
        drop(state);
        self.wake.notify_one();
    }

    /// Takes a message of a shared subscription that another member gave up; `delivered` says to
    /// the journal that the other one no longer has it.
    pub(crate) fn take_over(
        &self,
        terms: &Terms<'_>,
        queued: &Queued,
        grant: &Arc<Grant>,
        delivered: Option<Change<'_>>,
    ) -> Result<(), NotTaken> {
        let mut state = self.state.lock();
        if state.is_full(terms.config) {
            let is_lagging = !state.is_connected() || state.is_lagging(terms.config, terms.now);
            return Err(NotTaken::Full { is_lagging });
        }
        let mut own = queued.handed_over(grant);
        if own.qos != Qos::AtMostOnce && self.persistent {
            own.number = terms.store.next_number();
            // Together, so that a restart finds it with one of the two.
            let changes = [own.change(self.key), delivered.unwrap_or(Change::Mark)];
            let changes = &changes[..1 + usize::from(delivered.is_some())];
            terms.store.put_all(changes).map_err(NotTaken::Journal)?;
        } else if let Some(delivered) = delivered
            && let Err(error) = terms.store.put(delivered)
        {
            // Without it the other one has it again after a restart.
            tracing::debug!(%error, "handing over a message is not journaled");
        }
        self.enqueue_handed(state, own);
        Ok(())
    }

    /// As [`Session::take_over`], without the journal and its session that has ended.
    pub(crate) fn take_over_unsaid(&self, queued: &Queued, grant: &Arc<Grant>) {
        let state = self.state.lock();
        self.enqueue_handed(state, queued.handed_over(grant));
    }

    /// Waits until no more than half of what may wait does, or its client is not there.
    pub(crate) async fn until_half(&self, config: &MqttConfig) {
        loop {
            let told = self.room.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            {
                let state = self.state.lock();
                let is_half = state.waiting_bytes() <= bytes_max(config) / 2
                    && state.queue.len() - state.queue_retained <= config.queue_messages_max / 2;
                if is_half || !state.is_connected() {
                    return;
                }
            }
            told.await;
        }
    }

    fn enqueue_handed(&self, mut state: MutexGuard<'_, Outbox>, own: Queued) {
        state.enqueue(own);
        drop(state);
        self.wake.notify_one();
    }
}

impl Queued {
    /// As another member has it, by its own terms.
    fn handed_over(&self, grant: &Arc<Grant>) -> Queued {
        Queued {
            message: self.message.clone(),
            qos: self.qos.min(grant.qos),
            retain: self.retain,
            is_replay: self.is_replay,
            number: 0,
            place: 0,
            grant: grant.clone(),
        }
    }
}
