//! Publishes of one link, from its read buffer to everybody who subscribes: the hot path.
//!
//! What one read brought is one batch of borrowed messages. A batch goes, in this order: retained
//! messages into the store; every sink that matches gets its messages in one call; every client
//! that matches gets them encoded under one lock; who had no room is waited for (this link is not
//! read meanwhile); what was journaled is waited for; then the acknowledgements leave. The topics
//! of a link are looked up once per change of the subscriptions.

use std::sync::Arc;

use base::UnixMillis;
use tokio_util::sync::CancellationToken;

use crate::codec::{self, PUBACK, PUBREC, Publish};
use crate::core::Core;
use crate::error::MqttError;
use crate::gate::Pass;
use crate::link::LinkEnd;
use crate::message::{Message, Qos};
use crate::route::{Route, RouteCache};
use crate::session::{Delivered, Session};
use crate::sink::SinkSlot;
use crate::store::Stored;

/// What one link needs to hand on messages.
pub(crate) struct Ingest {
    core: Arc<Core>,
    session: Arc<Session>,
    link: u64,
    cancel: CancellationToken,
    pass: Arc<dyn Pass>,
    /// Whether the pass need not be asked for each topic.
    is_free: bool,
    routes: RouteCache,
}

/// The publishes of one read.
pub(crate) struct Batch<'a> {
    messages: Vec<Message<'a>>,
    /// Which of the messages asked to be retained.
    retain: Vec<u32>,
    /// Kind and packet identifier, in the order of the publishes.
    acks: Vec<(u8, u16)>,
    received: UnixMillis,
}

/// Messages of the batch by index, each with the quality that is granted for it.
type Picks = Vec<(u32, Qos)>;

/// A subscriber that did not take all, and the messages that it has to be offered still.
enum Waiting<'a> {
    Sink(Arc<SinkSlot>, Vec<Message<'a>>),
    Session(Arc<Session>, Picks, Why),
}

enum Why {
    Full,
    JournalBusy,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(received: UnixMillis) -> Self {
        let (messages, retain, acks) = (Vec::new(), Vec::new(), Vec::new());
        Batch {
            messages,
            retain,
            acks,
            received,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.messages.is_empty()
    }

    /// Adds the acknowledgement of a publish that is not handed on.
    pub(crate) fn push_refused(&mut self, publish: &Publish<'_>) {
        match publish.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.acks.push((PUBACK, publish.id)),
            Qos::ExactlyOnce => self.acks.push((PUBREC, publish.id)),
        }
    }

    /// How many messages it holds.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a publish. `known`: its QoS 2 identifier is taken, so it was handed on before.
    pub(crate) fn push(&mut self, publish: &Publish<'a>, known: bool) {
        match publish.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.acks.push((PUBACK, publish.id)),
            Qos::ExactlyOnce => {
                let again = known || self.acks.contains(&(PUBREC, publish.id));
                self.acks.push((PUBREC, publish.id));
                if again {
                    return;
                }
            }
        }
        if publish.retain {
            self.retain
                .push(u32::try_from(self.messages.len()).unwrap_or(u32::MAX));
        }
        let (topic, payload, qos) = (publish.topic, publish.payload, publish.qos);
        let received = self.received;
        self.messages.push(Message {
            topic,
            payload,
            qos,
            retain: false,
            received,
        });
    }
}

impl Ingest {
    pub(crate) fn new(
        core: Arc<Core>,
        session: Arc<Session>,
        link: u64,
        cancel: CancellationToken,
        pass: Arc<dyn Pass>,
    ) -> Self {
        Ingest {
            is_free: pass.publishes_anything(),
            pass,
            core,
            session,
            link,
            cancel,
            routes: RouteCache::default(),
        }
    }

    /// What the client may do.
    pub(crate) fn pass(&self) -> &Arc<dyn Pass> {
        &self.pass
    }

    /// Whether the client may publish this. A refusal is counted; 3.1.1 has no word for it, so
    /// that the message is acknowledged and goes to nobody (section 3.3.5).
    pub(crate) fn may_publish(&self, publish: &Publish<'_>) -> bool {
        if self.is_free {
            return true;
        }
        let asked = self
            .pass
            .may_publish(publish.topic, publish.qos, publish.retain);
        if asked.is_err() {
            self.core.counters.refused.add(1);
        }
        asked.is_ok()
    }

    /// Hands on a batch and acknowledges it.
    pub(crate) async fn take(&mut self, batch: Batch<'_>) -> Result<(), LinkEnd> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut journaled = false;
        for index in &batch.retain {
            let message = &batch.messages[*index as usize];
            self.retain(message).await?;
            journaled |= message.qos != Qos::AtMostOnce;
        }
        journaled |= self.hand_on(&batch).await?;
        for (_, id) in batch.acks.iter().filter(|(kind, _)| *kind == PUBREC) {
            journaled |= self.session.persistent;
            while let Err(error) = self.session.take_exactly_once(&self.core.store, *id) {
                self.journal_room(error).await?;
            }
        }
        if journaled && !batch.acks.is_empty() {
            self.durable().await?;
        }
        if !batch.acks.is_empty() {
            self.session.write(self.link, |out, version| {
                batch
                    .acks
                    .iter()
                    .for_each(|(kind, id)| codec::ack(out, version, *kind, *id));
            });
        }
        Ok(())
    }

    /// Waits until all that was journaled so far has the configured durability.
    pub(crate) async fn durable(&self) -> Result<(), LinkEnd> {
        loop {
            match self.core.store.mark() {
                Ok(wait) => return wait.await.map_err(LinkEnd::Journal),
                Err(error) => self.journal_room(error).await?,
            }
        }
    }

    /// Waits for room in the journal when it is merely busy.
    pub(crate) async fn journal_room(&self, error: journal::JournalError) -> Result<(), LinkEnd> {
        if !matches!(error, journal::JournalError::Busy) {
            return Err(LinkEnd::Journal(error));
        }
        let bytes = usize::try_from(self.core.config.packet_bytes_max.0).unwrap_or(usize::MAX);
        tokio::select! {
            () = self.core.store.room(bytes) => Ok(()),
            () = self.cancel.cancelled() => Err(LinkEnd::CutOff),
        }
    }

    async fn retain(&self, message: &Message<'_>) -> Result<(), LinkEnd> {
        loop {
            match self.core.retain(message) {
                Ok(()) => return Ok(()),
                Err(MqttError::Busy) => self.journal_room(journal::JournalError::Busy).await?,
                Err(MqttError::Journal { source, .. }) => return Err(LinkEnd::Journal(source)),
                // 3.1.1 has no word for it but the end of the link; nothing was acknowledged.
                Err(error) => return Err(LinkEnd::Refused(error)),
            }
        }
    }

    /// Returns whether anything was journaled that acknowledgements must wait for.
    async fn hand_on(&mut self, batch: &Batch<'_>) -> Result<bool, LinkEnd> {
        let messages = &batch.messages;
        let Some(first) = messages.first() else {
            return Ok(false);
        };
        self.core
            .counters
            .messages_received
            .add(messages.len() as u64);
        let generation = self.core.generation();
        let core = &self.core;
        let routes = &mut self.routes;
        let mut route_of = |topic: &str| routes.route(generation, topic, || core.find_route(topic));
        let mut stored: Vec<Option<Arc<Stored>>> = Vec::new();
        stored.resize(messages.len(), None);
        let mut waiting = Vec::new();
        let mut journaled = false;
        let route = route_of(first.topic);
        if messages.iter().all(|m| m.topic == first.topic) {
            let same = Spread::of_one(&route, messages);
            journaled |= self.offer(same, messages, &mut stored, batch.received, &mut waiting)?;
        } else {
            let mut spread = Spread::default();
            let (mut last_topic, mut last) = (first.topic, route);
            for (index, message) in messages.iter().enumerate() {
                if message.topic != last_topic {
                    last = route_of(message.topic);
                    last_topic = message.topic;
                }
                spread.add(&last, index as u32, message);
            }
            journaled |= self.offer(spread, messages, &mut stored, batch.received, &mut waiting)?;
        }
        if !waiting.is_empty() {
            self.core.counters.held.add(1);
            for subscriber in waiting {
                journaled |= self.wait_for(subscriber, messages, &mut stored).await?;
            }
        }
        Ok(journaled)
    }

    /// Offers every subscriber its part once; those who did not take all come into `waiting`.
    fn offer<'m>(
        &self,
        spread: Spread<'_, 'm>,
        messages: &[Message<'m>],
        stored: &mut [Option<Arc<Stored>>],
        now: UnixMillis,
        waiting: &mut Vec<Waiting<'m>>,
    ) -> Result<bool, LinkEnd> {
        let mut to_sinks = 0;
        for (slot, own) in spread.sinks {
            let own: &[Message<'m>] = own.as_deref().unwrap_or(spread.all);
            let taken = slot.offer(own);
            to_sinks += own.len() as u64;
            if taken < own.len() {
                waiting.push(Waiting::Sink(slot, own[taken..].to_vec()));
            }
        }
        self.core.counters.messages_to_sinks.add(to_sinks);
        let mut journaled = false;
        for (session, picks) in spread.sessions {
            let rest = self.deliver(&session, picks, messages, stored, now, &mut journaled)?;
            if let Some((picks, why)) = rest {
                waiting.push(Waiting::Session(session, picks, why));
            }
        }
        Ok(journaled)
    }

    /// Gives what the session did not take.
    fn deliver(
        &self,
        session: &Arc<Session>,
        mut picks: Picks,
        messages: &[Message<'_>],
        stored: &mut [Option<Arc<Stored>>],
        now: UnixMillis,
        journaled: &mut bool,
    ) -> Result<Option<(Picks, Why)>, LinkEnd> {
        let mut terms = self.core.terms(now);
        let outcome = session.deliver(&mut terms, messages, &picks, stored);
        *journaled |= terms.journaled;
        self.core.count(&terms);
        match outcome {
            Delivered::All => Ok(None),
            Delivered::Full(taken) => {
                picks.drain(..taken);
                Ok(Some((picks, Why::Full)))
            }
            Delivered::Refused(taken, journal::JournalError::Busy) => {
                picks.drain(..taken);
                Ok(Some((picks, Why::JournalBusy)))
            }
            Delivered::Refused(_, error) => Err(LinkEnd::Journal(error)),
        }
    }

    async fn wait_for(
        &self,
        subscriber: Waiting<'_>,
        messages: &[Message<'_>],
        stored: &mut [Option<Arc<Stored>>],
    ) -> Result<bool, LinkEnd> {
        match subscriber {
            Waiting::Sink(slot, mut rest) => {
                while !rest.is_empty() {
                    tokio::select! {
                        () = slot.wait_for_room() => {}
                        () = self.cancel.cancelled() => {
                            // Nobody will send these again; the others were not acknowledged.
                            let lost = rest.iter().filter(|m| m.qos == Qos::AtMostOnce).count();
                            self.core.counters.dropped.add(lost as u64);
                            return Err(LinkEnd::CutOff);
                        }
                    }
                    let taken = slot.offer(&rest);
                    rest.drain(..taken);
                }
                Ok(false)
            }
            Waiting::Session(session, mut picks, mut why) => {
                let mut journaled = false;
                loop {
                    let told = session.room.notified();
                    tokio::pin!(told);
                    told.as_mut().enable();
                    let now = self.core.clock.now();
                    match why {
                        Why::JournalBusy => {
                            self.journal_room(journal::JournalError::Busy).await?;
                        }
                        // The check again, since room may have come before we listened.
                        Why::Full if session.holds_back(&self.core.config, now) => {
                            tokio::select! {
                                () = told => {}
                                () = tokio::time::sleep(self.core.config.slow_subscriber_grace.0)
                                    => {}
                                () = self.cancel.cancelled() => return Err(LinkEnd::CutOff),
                            }
                        }
                        Why::Full => {}
                    }
                    let now = self.core.clock.now();
                    let rest =
                        self.deliver(&session, picks, messages, stored, now, &mut journaled)?;
                    match rest {
                        None => return Ok(journaled),
                        Some((rest, reason)) => (picks, why) = (rest, reason),
                    }
                }
            }
        }
    }
}

/// A batch parted by subscriber. Order within a subscriber is that of the batch.
#[derive(Default)]
struct Spread<'b, 'm> {
    /// What sinks without a list of their own get.
    all: &'b [Message<'m>],
    sinks: Vec<(Arc<SinkSlot>, Option<Vec<Message<'m>>>)>,
    sessions: Vec<(Arc<Session>, Picks)>,
}

impl<'b, 'm> Spread<'b, 'm> {
    /// All messages have one topic: sinks get the batch as it lies.
    fn of_one(route: &Route, messages: &'b [Message<'m>]) -> Self {
        let picks = |qos: Qos| -> Picks {
            (0..messages.len() as u32)
                .map(|index| (index, qos))
                .collect()
        };
        Spread {
            all: messages,
            sinks: route
                .sinks
                .iter()
                .map(|slot| (slot.clone(), None))
                .collect(),
            sessions: route
                .sessions
                .iter()
                .map(|(s, q)| (s.clone(), picks(*q)))
                .collect(),
        }
    }

    fn add(&mut self, route: &Route, index: u32, message: &Message<'m>) {
        for slot in &route.sinks {
            match self.sinks.iter_mut().find(|(s, _)| s.id == slot.id) {
                Some((_, own)) => own.get_or_insert_default().push(*message),
                None => self.sinks.push((slot.clone(), Some(vec![*message]))),
            }
        }
        for (session, qos) in &route.sessions {
            match self.sessions.iter_mut().find(|(s, _)| s.key == session.key) {
                Some((_, picks)) => picks.push((index, *qos)),
                None => self.sessions.push((session.clone(), vec![(index, *qos)])),
            }
        }
    }
}
