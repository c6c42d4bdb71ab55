//! Messages of shared subscriptions that wait for a member which went away, and who gets them.
//!
//! They go to members that are there and have room. What finds no taker stays with the session it
//! waits in, in its order and under its packet identifiers: its client gets it when it comes back.
//! While a taker has no room, or the journal none, it is tried again, until the client is back.
//!
//! A session that has ended gets nothing back for good: of its messages those that nobody may have,
//! and those for which a taker has no room for the whole grace time, are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::JournalError;

use crate::core::{Core, largest};
use crate::limits::HANDOVER_PAUSE;
use crate::outbox::Queued;
use crate::records::Change;
use crate::session::{NotTaken, Session};
use crate::share::Share;

/// What a round of handing over is to wait for before the next one.
enum Left {
    /// Nothing is left that another member could take.
    Nothing,
    /// The journal's room.
    Busy,
    /// The disk's room.
    NoDisk,
    /// Room in this session.
    Taker(Arc<Session>),
}

impl Core {
    /// Hands the messages of shared subscriptions that wait for a client which went away to other
    /// members that are there; later, if they have no room now.
    pub(super) fn redistribute(self: &Arc<Self>, session: &Arc<Session>) {
        let left = self.hand_over(session);
        let Some(runtime) = self.note_runtime() else {
            return;
        };
        if !matches!(left, Left::Nothing) && !session.is_handing_over.swap(true, Ordering::AcqRel) {
            runtime.spawn(self.clone().hand_over_later(session.clone(), left));
        }
    }

    async fn hand_over_later(self: Arc<Self>, session: Arc<Session>, mut left: Left) {
        loop {
            tokio::select! {
                () = self.wait_for(&left) => {}
                () = self.closed.cancelled() => return,
            }
            left = self.hand_over(&session);
            if !matches!(left, Left::Nothing) {
                continue;
            }
            // Once more, since a call that found this task at work has left it to this task.
            session.is_handing_over.store(false, Ordering::Release);
            left = self.hand_over(&session);
            if matches!(left, Left::Nothing) || session.is_handing_over.swap(true, Ordering::AcqRel)
            {
                return;
            }
        }
    }

    async fn wait_for(&self, left: &Left) {
        match left {
            Left::Nothing => {}
            Left::Busy => self.store.room(largest(&self.config)).await,
            Left::NoDisk => tokio::time::sleep(HANDOVER_PAUSE).await,
            // Its grace time may end while nothing leaves.
            Left::Taker(taker) => {
                let half = taker.until_half(&self.config);
                let _ = tokio::time::timeout(HANDOVER_PAUSE, half).await;
            }
        }
    }

    /// One round of it.
    fn hand_over(&self, session: &Arc<Session>) -> Left {
        let shares = self.shares_with_others(session);
        if shares.is_empty() {
            return Left::Nothing;
        }
        let ids: Vec<u64> = shares.iter().map(|share| share.id).collect();
        let (mut left, mut back) = (Left::Nothing, Vec::new());
        // Groups that take no more in this round: their messages keep their order.
        let mut closed: Vec<u64> = Vec::new();
        for own in session.surrender(&ids) {
            let share = own.queued.grant.share.as_ref().and_then(|s| s.upgrade());
            let id = share.as_ref().map_or(0, |share| share.id);
            if closed.contains(&id) {
                back.push(own);
                continue;
            }
            match self.hand_one(session, share.as_deref(), &own.queued) {
                Ok(()) => {}
                Err(None) => back.push(own),
                Err(Some(why)) => {
                    match why {
                        Left::Taker(_) => closed.push(id),
                        _ => closed.clone_from(&ids),
                    }
                    left = why;
                    back.push(own);
                }
            }
        }
        session.take_back(back);
        left
    }

    /// Gives one message to a member of its group, or drops what a session that has ended leaves and
    /// nobody takes.
    ///
    /// # Errors
    /// It stays where it is: nobody else may have it, or with what there is to wait for.
    fn hand_one(
        &self,
        session: &Session,
        share: Option<&Share>,
        queued: &Queued,
    ) -> Result<(), Option<Left>> {
        let (now, has_ended) = (self.clock.now(), session.has_ended());
        let topic = &queued.message.topic;
        let taken = share.and_then(|s| s.choose(&self.config, now, topic, Some(session.key)));
        let Some((taker, grant)) = taken else {
            if !has_ended {
                return Err(None);
            }
            self.counters.dropped.add(1);
            return Ok(());
        };
        let (key, number) = (session.key, queued.number);
        let delivered = Change::Delivered {
            session: key,
            number,
        };
        let delivered = (number != 0 && !has_ended).then_some(delivered);
        match taker.take_over(&self.terms(now), queued, &grant, delivered) {
            Ok(()) => Ok(()),
            Err(NotTaken::Full { is_lagging: true }) if has_ended => {
                self.counters.dropped.add(1);
                Ok(())
            }
            Err(NotTaken::Full { .. }) => Err(Some(Left::Taker(taker))),
            Err(NotTaken::Journal(JournalError::Busy)) => Err(Some(Left::Busy)),
            // Better in memory alone than nowhere.
            Err(NotTaken::Journal(_)) if has_ended => {
                taker.take_over_unsaid(queued, &grant);
                Ok(())
            }
            Err(NotTaken::Journal(JournalError::Full { .. })) => Err(Some(Left::NoDisk)),
            Err(NotTaken::Journal(error)) => {
                tracing::debug!(client = %taker.client_id, %error, "messages not handed over");
                Err(Some(Left::Nothing))
            }
        }
    }

    /// The groups of a session that have another member which is there.
    fn shares_with_others(&self, session: &Session) -> Vec<Arc<Share>> {
        let mut shares = Vec::new();
        for (filter, _) in session.subscriptions() {
            if filter.shared().is_none() {
                continue;
            }
            let share = self.shares.lock().get(&filter).cloned();
            shares.extend(share.filter(|share| share.has_other(session.key)));
        }
        shares
    }
}
