//! What goes into a session for its client, and out of it to the wire.

use std::sync::Arc;

use base::UnixMillis;
use journal::JournalError;
use parking_lot::MutexGuard;

use super::{Delivered, Output, Session, Standing, Terms};
use crate::codec::Outgoing;
use crate::config::MqttConfig;
use crate::limits::REPLAY_JOURNALED_BYTES_MAX;
use crate::message::{Message, Qos};
use crate::outbox::{Filled, Outbox, Queued, bytes_max};
use crate::reason::ReasonCode;
use crate::route::{Grant, Picks};
use crate::store::Store;
use crate::stored::Stored;

/// One message on its terms.
struct Offer<'o, 'm> {
    message: &'o Message<'m>,
    qos: Qos,
    retain: bool,
    grant: &'o Arc<Grant>,
}

impl Session {
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

    /// Whether its client may see messages of a topic; of one that is away, whether its owner may.
    pub(crate) fn may_receive(&self, topic: &str) -> bool {
        let state = self.state.lock();
        let pass = state.link.as_ref().map(|link| &link.pass);
        let pass = pass.or(state.away.as_ref()).cloned();
        drop(state);
        pass.is_none_or(|pass| pass.may_receive(topic))
    }

    /// Queues retained messages for a new subscription. Of a session that is kept, those of QoS 1
    /// and 2 are journaled: at once where they are few, else when they are sent.
    pub(crate) fn queue_retained(
        &self,
        store: &Store,
        messages: Vec<Arc<Stored>>,
        grant: &Arc<Grant>,
    ) {
        if messages.is_empty() {
            return;
        }
        let bytes: usize = messages.iter().map(|message| message.bytes()).sum();
        let are_few = bytes <= REPLAY_JOURNALED_BYTES_MAX;
        let mut state = self.state.lock();
        for message in messages {
            let mut queued = Queued {
                qos: message.qos.min(grant.qos),
                message,
                retain: true,
                is_replay: true,
                number: 0,
                place: 0,
                grant: grant.clone(),
            };
            if queued.qos != Qos::AtMostOnce && self.persistent {
                queued.place = store.next_number();
                if are_few && let Err(error) = queued.keep(store, self.key) {
                    tracing::debug!(%error, "a retained message is journaled when it is sent");
                }
            }
            state.enqueue(queued);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Retained messages that still wait in the queue.
    pub(crate) fn retained_waiting(&self) -> usize {
        self.state.lock().queue_retained
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
        terms.count(&filled);
        if state.out.is_empty() {
            if let Some(error) = filled.stopped {
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
            place: 0,
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
            terms.count(&filled);
        }
        Ok(true)
    }
}

impl Terms<'_> {
    fn count(&mut self, filled: &Filled) {
        self.sent += filled.sent;
        self.dropped += filled.dropped;
        self.refused += filled.refused;
    }
}
