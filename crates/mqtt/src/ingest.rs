//! Publishes of one link, from its read buffer to everybody who subscribes: the hot path.
//!
//! What one read brought is one batch of borrowed messages. A batch goes, in this order: retained
//! messages into the store; every sink that matches gets its messages in one call; every client
//! that matches gets them encoded under one lock; who had no room is waited for (this link is not
//! read meanwhile); what was journaled is waited for; then the acknowledgements leave. The topics
//! of a link are looked up once per change of the subscriptions.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use tokio_util::sync::CancellationToken;

use crate::codec::{self, PUBACK, PUBREC, Publish};
use crate::core::Core;
use crate::error::MqttError;
use crate::gate::Pass;
use crate::link::LinkEnd;
use crate::message::{Message, Qos, Settled};
use crate::reason::ReasonCode;
use crate::route::{Grant, Picks, Route, RouteCache};
use crate::session::{Delivered, Session, Terms};
use crate::share::Share;
use crate::sink::SinkSlot;
use crate::stored::Stored;

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
    /// Kind, packet identifier and reason, in the order of the publishes.
    acks: Vec<(u8, u16, ReasonCode)>,
    received: UnixMillis,
}

/// What acknowledgements of a batch wait for.
#[derive(Default)]
struct Owed {
    /// Whether anything was journaled.
    journaled: bool,
    /// Sinks that have taken it and not yet brought it where they promise to.
    unsettled: Vec<Settled>,
}

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

    /// Acknowledgements that the batch owes.
    pub(crate) fn owed(&self) -> usize {
        self.acks.len()
    }

    /// Adds a publish to `topic`, which an alias may have stood for. `known`: its QoS 2
    /// identifier is taken, so it was handed on before.
    pub(crate) fn push(&mut self, publish: &Publish<'a>, topic: &'a str, known: bool) {
        match publish.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.acks.push((PUBACK, publish.id, ReasonCode::Success)),
            Qos::ExactlyOnce => {
                let ack = (PUBREC, publish.id, ReasonCode::Success);
                let again = known || self.acks.contains(&ack);
                self.acks.push(ack);
                if again {
                    return;
                }
            }
        }
        if publish.retain {
            self.retain
                .push(u32::try_from(self.messages.len()).unwrap_or(u32::MAX));
        }
        let (payload, qos, properties) = (publish.payload, publish.qos, publish.properties);
        let received = self.received;
        let expiry_s = properties.message_expiry_s();
        self.messages.push(Message {
            topic,
            payload,
            qos,
            retain: false,
            retain_asked: publish.retain,
            received,
            expires: expiry_s.map(|s| received + Duration::from_secs(u64::from(s))),
            properties,
        });
    }

    /// Adds a publish that goes to nobody.
    pub(crate) fn refuse(&mut self, publish: &Publish<'a>, reason: ReasonCode) {
        match publish.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.acks.push((PUBACK, publish.id, reason)),
            Qos::ExactlyOnce => self.acks.push((PUBREC, publish.id, reason)),
        }
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
            core,
            session,
            link,
            cancel,
            pass,
            routes: RouteCache::default(),
        }
    }

    /// What the client may do.
    pub(crate) fn pass(&self) -> &Arc<dyn Pass> {
        &self.pass
    }

    /// Replaces what the client may do, after it logged in again.
    pub(crate) fn renew_pass(&mut self, pass: Arc<dyn Pass>) {
        self.is_free = pass.publishes_anything();
        self.session.renew_pass(self.link, &pass);
        self.pass = pass;
    }

    /// Whether the client may publish this.
    pub(crate) fn may_publish(&self, topic: &str, publish: &Publish<'_>) -> Result<(), ReasonCode> {
        if self.is_free {
            return Ok(());
        }
        self.pass.may_publish(topic, publish.qos, publish.retain)
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
        let owed = self.hand_on(&batch).await?;
        journaled |= owed.journaled;
        // Before a QoS 2 identifier is known: what comes again after a crash must not be passed over.
        for settled in owed.unsettled {
            tokio::select! {
                () = settled => {}
                () = self.cancel.cancelled() => return Err(LinkEnd::CutOff),
            }
        }
        let is_new = |(kind, _, reason): &&(u8, u16, ReasonCode)| {
            *kind == PUBREC && *reason == ReasonCode::Success
        };
        for (_, id, _) in batch.acks.iter().filter(is_new) {
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
                for (kind, id, reason) in &batch.acks {
                    codec::ack(out, version, *kind, *id, *reason);
                }
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

    /// Returns what acknowledgements must wait for.
    async fn hand_on(&mut self, batch: &Batch<'_>) -> Result<Owed, LinkEnd> {
        let messages = &batch.messages;
        let mut owed = Owed::default();
        let Some(first) = messages.first() else {
            return Ok(owed);
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
        let choose = |share: &Share, message: &Message<'_>| core.choose(share, message);
        let route = route_of(first.topic);
        if route.shares.is_empty() && messages.iter().all(|m| m.topic == first.topic) {
            let same = Spread::of_one(&route, messages);
            self.offer(same, batch, &mut stored, (&mut waiting, &mut owed))?;
        } else {
            let mut spread = Spread::default();
            let (mut last_topic, mut last) = (first.topic, route);
            for (index, message) in messages.iter().enumerate() {
                if message.topic != last_topic {
                    last = route_of(message.topic);
                    last_topic = message.topic;
                }
                spread.add(&last, index as u32, message, &choose);
            }
            self.offer(spread, batch, &mut stored, (&mut waiting, &mut owed))?;
        }
        if !waiting.is_empty() {
            self.core.counters.held.add(1);
            for subscriber in waiting {
                self.wait_for(subscriber, batch, &mut stored, &mut owed)
                    .await?;
            }
        }
        Ok(owed)
    }

    /// Offers every subscriber its part once; those who did not take all come into `waiting`.
    fn offer<'m>(
        &self,
        spread: Spread<'_, 'm>,
        batch: &Batch<'m>,
        stored: &mut [Option<Arc<Stored>>],
        (waiting, owed): (&mut Vec<Waiting<'m>>, &mut Owed),
    ) -> Result<(), LinkEnd> {
        let mut to_sinks = 0;
        for (slot, own) in spread.sinks {
            let own: &[Message<'m>] = own.as_deref().unwrap_or(spread.all);
            if !batch.retain.is_empty() {
                slot.let_replaced_pass();
            }
            let taken = slot.offer(own);
            to_sinks += own.len() as u64;
            if taken < own.len() {
                waiting.push(Waiting::Sink(slot, own[taken..].to_vec()));
            } else if !batch.acks.is_empty() {
                owed.unsettled.extend(slot.settled());
            }
        }
        self.core.counters.messages_to_sinks.add(to_sinks);
        for (session, picks) in spread.sessions {
            let now = batch.received;
            let rest = self.deliver(&session, picks, batch, stored, now, &mut owed.journaled)?;
            if let Some((picks, why)) = rest {
                waiting.push(Waiting::Session(session, picks, why));
            }
        }
        Ok(())
    }

    /// Gives what the session did not take.
    fn deliver(
        &self,
        session: &Arc<Session>,
        mut picks: Picks,
        batch: &Batch<'_>,
        stored: &mut [Option<Arc<Stored>>],
        now: UnixMillis,
        journaled: &mut bool,
    ) -> Result<Option<(Picks, Why)>, LinkEnd> {
        let mut terms = Terms {
            publisher: self.session.key,
            retained: &batch.retain,
            ..self.core.terms(now)
        };
        let outcome = session.deliver(&mut terms, &batch.messages, &picks, stored);
        *journaled |= terms.journaled;
        self.core.count(&terms);
        match outcome {
            Delivered::All => Ok(None),
            Delivered::Full(taken) => {
                picks.done(taken);
                Ok(Some((picks, Why::Full)))
            }
            Delivered::Refused(taken, journal::JournalError::Busy) => {
                picks.done(taken);
                Ok(Some((picks, Why::JournalBusy)))
            }
            Delivered::Refused(_, error) => Err(LinkEnd::Journal(error)),
        }
    }

    async fn wait_for(
        &self,
        subscriber: Waiting<'_>,
        batch: &Batch<'_>,
        stored: &mut [Option<Arc<Stored>>],
        owed: &mut Owed,
    ) -> Result<(), LinkEnd> {
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
                if !batch.acks.is_empty() {
                    owed.unsettled.extend(slot.settled());
                }
                Ok(())
            }
            Waiting::Session(session, mut picks, mut why) => {
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
                    let journaled = &mut owed.journaled;
                    let rest = self.deliver(&session, picks, batch, stored, now, journaled)?;
                    match rest {
                        None => return Ok(()),
                        Some((rest, reason)) => (picks, why) = (rest, reason),
                    }
                }
            }
        }
    }
}

/// Whose turn it is in a group, and on what terms.
type Chosen = (Arc<Session>, Arc<Grant>);

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
        let own = |(session, grant): &(Arc<Session>, Arc<Grant>)| {
            (session.clone(), Picks::all(grant, messages.len()))
        };
        Spread {
            all: messages,
            sinks: route
                .sinks
                .iter()
                .map(|slot| (slot.clone(), None))
                .collect(),
            sessions: route.sessions.iter().map(own).collect(),
        }
    }

    /// Adds a message for all subscribers of its topic; `choose` says whose turn it is in a group.
    fn add(
        &mut self,
        route: &Route,
        index: u32,
        message: &Message<'m>,
        choose: &dyn Fn(&Share, &Message<'m>) -> Option<Chosen>,
    ) {
        for slot in &route.sinks {
            match self.sinks.iter_mut().find(|(s, _)| s.id == slot.id) {
                Some((_, own)) => own.get_or_insert_default().push(*message),
                None => self.sinks.push((slot.clone(), Some(vec![*message]))),
            }
        }
        for (session, grant) in &route.sessions {
            self.pick(session, index, grant);
        }
        for share in &route.shares {
            if let Some((session, grant)) = choose(share, message) {
                self.pick(&session, index, &grant);
            }
        }
    }

    fn pick(&mut self, session: &Arc<Session>, index: u32, grant: &Arc<Grant>) {
        let known = self.sessions.iter_mut().find(|(s, _)| s.key == session.key);
        if let Some((_, picks)) = known {
            picks.push(index, grant);
            return;
        }
        let mut picks = Picks::default();
        picks.push(index, grant);
        self.sessions.push((session.clone(), picks));
    }
}
