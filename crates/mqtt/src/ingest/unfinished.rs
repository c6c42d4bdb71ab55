//! What a link had handed on in part when it was cut off.
//!
//! Of a batch some subscribers have their messages, and others are still waited for. Those of QoS 1
//! come again when their publisher is back. One of QoS 2 must not: who has it would have it twice.
//! So a task of its own brings these to everybody else, without the link, and takes their
//! identifiers; the publisher's next link is not heard with QoS 2 until then. A session has one such
//! task at most, which holds copies of one batch, and all of them together have a bound.

use std::sync::Arc;

use base::UnixMillis;
use tokio_util::sync::DropGuard;

use super::{Batch, Ingest, Open, Waiting, Why};
use crate::codec::PUBREC;
use crate::gate::OpenPass;
use crate::link::LinkEnd;
use crate::message::{Message, Qos, Settled};
use crate::reason::ReasonCode;
use crate::route::Picks;
use crate::session::Session;
use crate::sink::SinkSlot;
use crate::stored::Stored;

/// What is left of a batch.
struct Unfinished {
    rests: Vec<Rest>,
    unsettled: Vec<Settled>,
    ids: Vec<u16>,
    received: UnixMillis,
}

/// What one subscriber still has to get.
struct Rest {
    to: To,
    /// Each with whether its publisher asked to retain it.
    messages: Vec<(Arc<Stored>, bool)>,
}

enum To {
    Sink(Arc<SinkSlot>),
    Session(Arc<Session>, Picks),
}

/// Goes on with what is open of a batch. `under_way` ends when nothing is any more.
pub(super) fn go_on(ingest: &Ingest, batch: &Batch<'_>, open: Open<'_>, under_way: DropGuard) {
    let (core, session) = (ingest.core.clone(), ingest.session.clone());
    let unfinished = Unfinished::of(batch, open);
    let kilobytes = u32::try_from(unfinished.bytes().div_ceil(1024)).unwrap_or(u32::MAX);
    let Ok(room) = core.unfinished.clone().try_acquire_many_owned(kilobytes) else {
        let client = &*session.client_id;
        tracing::warn!(
            client,
            "too much is unfinished: some may get messages of QoS 2 again"
        );
        return;
    };
    let closed = core.closed.clone();
    let without_link = Ingest::new(core, session, NO_LINK, closed, Arc::new(OpenPass));
    tokio::spawn(async move {
        if let Err(end) = unfinished.finish(&without_link).await {
            let client = &*without_link.session.client_id;
            let reason = base::report(&end);
            tracing::warn!(client, %reason, "messages of QoS 2 did not reach all subscribers");
        }
        drop((under_way, room));
    });
}

impl Unfinished {
    fn of(batch: &Batch<'_>, mut open: Open<'_>) -> Self {
        let mut rests = Vec::new();
        for waiting in open.waiting {
            let rest = match waiting {
                Waiting::Sink(slot, rest) => Rest::of_sink(slot, &rest),
                Waiting::Session(session, picks, _) => {
                    Rest::of_session(session, &picks, batch, &mut open.stored)
                }
            };
            if !rest.messages.is_empty() {
                rests.push(rest);
            }
        }
        Unfinished {
            rests,
            unsettled: open.unsettled,
            ids: batch.taken_ids().collect(),
            received: batch.received,
        }
    }

    /// Bytes of the copies, those that several share as often as they do.
    fn bytes(&self) -> usize {
        let messages = self.rests.iter().flat_map(|rest| &rest.messages);
        messages.map(|(message, _)| message.bytes()).sum()
    }

    async fn finish(self, hands: &Ingest) -> Result<(), LinkEnd> {
        let mut unsettled = self.unsettled;
        for rest in &self.rests {
            let batch = rest.batch(&self.ids, self.received);
            let mut open = Open::default();
            open.stored.resize(batch.messages.len(), None);
            open.waiting.push_back(rest.waiting(&batch));
            hands.wait_for_all(&batch, &mut open).await?;
            unsettled.append(&mut open.unsettled);
        }
        hands.settle(&mut unsettled).await?;
        hands.take_ids(self.ids.iter().copied()).await
    }
}

impl Rest {
    fn of_sink(slot: Arc<SinkSlot>, rest: &[Message<'_>]) -> Self {
        let once = rest.iter().filter(|m| m.qos == Qos::ExactlyOnce);
        Rest {
            to: To::Sink(slot),
            messages: once.map(|m| (Stored::of(m), m.retain_asked)).collect(),
        }
    }

    fn of_session(
        session: Arc<Session>,
        picks: &Picks,
        batch: &Batch<'_>,
        stored: &mut [Option<Arc<Stored>>],
    ) -> Self {
        let (mut messages, mut own) = (Vec::new(), Picks::default());
        for (index, grant) in picks.iter() {
            let message = &batch.messages[index as usize];
            if message.qos == Qos::ExactlyOnce {
                own.push(messages.len() as u32, grant);
                let copy = stored[index as usize].get_or_insert_with(|| Stored::of(message));
                messages.push((copy.clone(), message.retain_asked));
            }
        }
        Rest {
            to: To::Session(session, own),
            messages,
        }
    }

    /// The messages as a link would have brought them.
    fn batch(&self, ids: &[u16], received: UnixMillis) -> Batch<'_> {
        let mut batch = Batch::new(received);
        for (index, (message, retain_asked)) in self.messages.iter().enumerate() {
            if *retain_asked {
                batch.retain.push(index as u32);
            }
            batch.messages.push(Message {
                retain_asked: *retain_asked,
                ..message.message(false)
            });
        }
        let ack = |id: &u16| (PUBREC, *id, ReasonCode::Success);
        batch.acks = ids.iter().map(ack).collect();
        batch
    }

    fn waiting<'m>(&self, batch: &Batch<'m>) -> Waiting<'m> {
        match &self.to {
            To::Sink(slot) => Waiting::Sink(slot.clone(), batch.messages.clone()),
            To::Session(session, picks) => {
                Waiting::Session(session.clone(), picks.clone(), Why::Full)
            }
        }
    }
}

/// No link has this number.
const NO_LINK: u64 = 0;
