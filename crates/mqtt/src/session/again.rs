//! A session is put into the journal once more, so that what lies before can be given back.
//!
//! The journal may take only a part at a time. What was put is remembered, and the session is free
//! in between: whatever changes then is journaled by itself, behind the position at which the
//! snapshot began, so only what was there before and still is has to be put.

use std::collections::HashSet;

use journal::JournalError;

use super::Session;
use crate::records::Change;
use crate::topic::TopicFilter;

/// What of a session has to be put still.
pub(crate) struct Remainder {
    has_begun: bool,
    filters: Vec<TopicFilter>,
    exactly_once: Vec<u16>,
    /// Of messages that are in flight or queued.
    numbers: HashSet<u64>,
}

impl Session {
    /// All of it.
    pub(crate) fn remainder(&self) -> Remainder {
        let state = self.state.lock();
        let in_flight = state.inflight.iter().map(|own| own.queued.number);
        let queued = state.queue.iter().map(|queued| queued.number);
        Remainder {
            has_begun: false,
            filters: state.subscriptions.keys().cloned().collect(),
            exactly_once: state.exactly_once.iter().copied().collect(),
            numbers: in_flight.chain(queued).filter(|n| *n != 0).collect(),
        }
    }

    /// Puts what remains and still lives, as far as `put` takes it; that appends the changes of one
    /// call together. The session is locked meanwhile, so a change falls either before or behind
    /// its copy.
    ///
    /// # Errors
    /// What `put` answered; what was put until then no longer remains.
    pub(crate) fn put_again(
        &self,
        rest: &mut Remainder,
        put: &mut dyn FnMut(&[Change<'_>]) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let state = self.state.lock();
        if state.ended {
            return Ok(());
        }
        let session = self.key;
        if !rest.has_begun {
            let own = Change::Session {
                session,
                last_seen: state.link.is_none().then_some(state.last_seen),
                expiry_s: state.expiry_s,
                client_id: &self.client_id,
            };
            match &state.owner {
                Some(owner) => put(&[Change::Owned { session, owner }, own])?,
                None => put(&[own])?,
            }
            rest.has_begun = true;
        }
        while let Some(filter) = rest.filters.last() {
            if let Some(subscription) = state.subscriptions.get(filter) {
                put(&[Change::Subscribed {
                    session,
                    subscription: *subscription,
                    filter,
                }])?;
            }
            rest.filters.pop();
        }
        while let Some(id) = rest.exactly_once.last().copied() {
            if state.exactly_once.contains(&id) {
                put(&[Change::ExactlyOnceTaken { session, id }])?;
            }
            rest.exactly_once.pop();
        }
        for own in &state.inflight {
            let (number, id) = (own.queued.number, own.id);
            if !rest.numbers.contains(&number) {
                continue;
            }
            let changes = [
                own.queued.change(session),
                Change::Sent {
                    session,
                    number,
                    id,
                },
                Change::Received { session, number },
            ];
            put(&changes[..if own.received { 3 } else { 2 }])?;
            rest.numbers.remove(&number);
        }
        for queued in &state.queue {
            if rest.numbers.contains(&queued.number) {
                put(&[queued.change(session)])?;
                rest.numbers.remove(&queued.number);
            }
        }
        Ok(())
    }
}
