//! What a client says of messages: that it has them, and under which identifiers it sends its own.

use journal::JournalError;
use parking_lot::MutexGuard;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Session;
use crate::codec::{PUBCOMP, PUBREL, Version};
use crate::message::Qos;
use crate::outbox::{Inflight, Outbox};
use crate::reason::ReasonCode;
use crate::records::Change;
use crate::store::Store;

impl Session {
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

    /// Notes that QoS 2 messages which came on `link` are being handed on, until the guard goes;
    /// `None` when the session's client is back on another link.
    pub(crate) fn hand_on(&self, link: u64) -> Option<DropGuard> {
        let mut state = self.state.lock();
        if !state.is_link(link) {
            return None;
        }
        let under_way = CancellationToken::new();
        state.handing_on = Some(under_way.clone());
        Some(under_way.drop_guard())
    }

    /// What ends when QoS 2 messages that are being handed on are with everybody.
    pub(crate) fn handing_on(&self) -> Option<CancellationToken> {
        let under_way = self.state.lock().handing_on.clone();
        under_way.filter(|under_way| !under_way.is_cancelled())
    }

    /// Whether a QoS 2 packet identifier of the client is taken, and whether its PUBLISH came on
    /// this link.
    pub(crate) fn exactly_once_taken(&self, id: u16) -> (bool, bool) {
        let state = self.state.lock();
        let is_taken = state.exactly_once.contains(&id);
        (is_taken, state.exactly_once_on_link.contains(&id))
    }

    /// QoS 2 packet identifiers that are taken and whose PUBLISH came on this link.
    pub(crate) fn exactly_once_on_link(&self) -> usize {
        self.state.lock().exactly_once_on_link.len()
    }

    /// Takes a QoS 2 packet identifier that came on `link`: the message was handed on. It is taken
    /// also where the journal refuses it, but may not be acknowledged then.
    pub(crate) fn take_exactly_once(
        &self,
        store: &Store,
        link: u64,
        id: u16,
    ) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.exactly_once.insert(id);
        if state.is_link(link) {
            state.exactly_once_on_link.insert(id);
        }
        if self.persistent {
            store.put(Change::ExactlyOnceTaken {
                session: self.key,
                id,
            })?;
        }
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
            state.exactly_once_on_link.remove(&id);
            reason = ReasonCode::Success;
        }
        state.acknowledge(PUBCOMP, id, reason);
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
}
