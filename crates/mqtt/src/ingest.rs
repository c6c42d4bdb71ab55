//! Publishes of one link, from its read buffer to everybody who subscribes: the hot path.
//!
//! What one read brought is one batch of borrowed messages. A batch goes, in this order: retained
//! messages into the store; every sink that matches gets its messages in one call; every client
//! that matches gets them encoded under one lock; who had no room is waited for (this link is not
//! read meanwhile); what was journaled is waited for; then the acknowledgements leave. The topics
//! of a link are looked up once per change of the subscriptions.
//!
//! A link may be cut off while some have its messages and others do not: [`unfinished`].

mod unfinished;

use std::collections::VecDeque;
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

/// What is open of a batch that is being handed on.
#[derive(Default)]
struct Open<'m> {
    /// Copies that several sessions share, one place per message.
    stored: Vec<Option<Arc<Stored>>>,
    /// Who did not take all.
    waiting: VecDeque<Waiting<'m>>,
    /// Sinks that have taken it and not yet brought it where they promise to.
    unsettled: Vec<Settled>,
    /// Whether anything was journaled, for which acknowledgements wait.
    journaled: bool,
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

    /// The QoS 2 identifiers that it takes, or has taken before.
    fn taken_ids(&self) -> impl Iterator<Item = u16> {
        let acks = self.acks.iter();
        acks.filter(|(kind, _, reason)| (*kind, *reason) == (PUBREC, ReasonCode::Success))
            .map(|(_, id, _)| *id)
    }

    /// Whether the batch has a QoS 2 message under this identifier already.
    pub(crate) fn owes_pubrec(&self, id: u16) -> bool {
        self.acks.iter().any(|ack| (ack.0, ack.1) == (PUBREC, id))
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
        let has_ids = batch.taken_ids().next().is_some();
        let under_way = match has_ids && self.session.persistent {
            true => Some(self.session.hand_on(self.link).ok_or(LinkEnd::CutOff)?),
            false => None,
        };
        let mut open = Open::default();
        if let Err(end) = self.hand_on(&batch, &mut open).await {
            if let (LinkEnd::CutOff, Some(under_way)) = (&end, under_way) {
                unfinished::go_on(self, &batch, open, under_way);
            }
            return Err(end);
        }
        drop(under_way);
        journaled |= open.journaled || has_ids && self.session.persistent;
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

    /// Waits until what an earlier link of the session brought is handed on: until then nobody
    /// knows which QoS 2 identifiers are taken.
    pub(crate) async fn earlier_links(&self) -> Result<(), LinkEnd> {
        while let Some(under_way) = self.session.handing_on() {
            tokio::select! {
                () = under_way.cancelled() => {}
                () = self.cancel.cancelled() => return Err(LinkEnd::CutOff),
            }
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

    /// Brings a batch to everybody, and takes its QoS 2 identifiers. What is left of it when the
    /// link ends stands in `open`.
    async fn hand_on<'m>(&mut self, batch: &Batch<'m>, open: &mut Open<'m>) -> Result<(), LinkEnd> {
        self.offer_all(batch, open)?;
        if !open.waiting.is_empty() {
            self.core.counters.held.add(1);
        }
        self.wait_for_all(batch, open).await?;
        // Before a QoS 2 identifier is known: what comes again after a crash must not be passed over.
        self.settle(&mut open.unsettled).await?;
        self.take_ids(batch.taken_ids()).await
    }

    /// Offers a batch to all its subscribers once.
    fn offer_all<'m>(&mut self, batch: &Batch<'m>, open: &mut Open<'m>) -> Result<(), LinkEnd> {
        let messages = &batch.messages;
        let Some(first) = messages.first() else {
            return Ok(());
        };
        self.core
            .counters
            .messages_received
            .add(messages.len() as u64);
        let generation = self.core.generation();
        let core = &self.core;
        let routes = &mut self.routes;
        let mut route_of = |topic: &str| routes.route(generation, topic, || core.find_route(topic));
        open.stored.resize(messages.len(), None);
        let choose = |share: &Share, message: &Message<'_>| core.choose(share, message);
        let route = route_of(first.topic);
        if route.shares.is_empty() && messages.iter().all(|m| m.topic == first.topic) {
            let same = Spread::of_one(&route, messages);
            return self.offer(same, batch, open);
        }
        let mut spread = Spread::default();
        let (mut last_topic, mut last) = (first.topic, route);
        for (index, message) in messages.iter().enumerate() {
            if message.topic != last_topic {
                last = route_of(message.topic);
                last_topic = message.topic;
            }
            spread.add(&last, index as u32, message, &choose);
        }
        self.offer(spread, batch, open)
    }

    /// Offers every subscriber its part once; those who did not take all wait.
    fn offer<'m>(
        &self,
        spread: Spread<'_, 'm>,
        batch: &Batch<'m>,
        open: &mut Open<'m>,
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
                let rest = own[taken..].to_vec();
                open.waiting.push_back(Waiting::Sink(slot, rest));
            } else if !batch.acks.is_empty() {
                open.unsettled.extend(slot.settled());
            }
        }
        self.core.counters.messages_to_sinks.add(to_sinks);
        for (session, picks) in spread.sessions {
            let rest = self.deliver(&session, picks, batch, open, batch.received)?;
            if let Some((picks, why)) = rest {
                open.waiting
                    .push_back(Waiting::Session(session, picks, why));
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
        open: &mut Open<'_>,
        now: UnixMillis,
    ) -> Result<Option<(Picks, Why)>, LinkEnd> {
        let mut terms = Terms {
            publisher: self.session.key,
            retained: &batch.retain,
            ..self.core.terms(now)
        };
        let outcome = session.deliver(&mut terms, &batch.messages, &picks, &mut open.stored);
        open.journaled |= terms.journaled;
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

    /// Waits for those who did not take all, one after the other.
    async fn wait_for_all<'m>(
        &self,
        batch: &Batch<'m>,
        open: &mut Open<'m>,
    ) -> Result<(), LinkEnd> {
        while let Some(mut subscriber) = open.waiting.pop_front() {
            if let Err(end) = self.wait_for(&mut subscriber, batch, open).await {
                open.waiting.push_front(subscriber);
                return Err(end);
            }
        }
        Ok(())
    }

    async fn wait_for(
        &self,
        subscriber: &mut Waiting<'_>,
        batch: &Batch<'_>,
        open: &mut Open<'_>,
    ) -> Result<(), LinkEnd> {
        match subscriber {
            Waiting::Sink(slot, rest) => {
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
                    let taken = slot.offer(rest);
                    rest.drain(..taken);
                }
                if !batch.acks.is_empty() {
                    open.unsettled.extend(slot.settled());
                }
                Ok(())
            }
            Waiting::Session(session, picks, why) => loop {
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
                            () = tokio::time::sleep(self.core.config.slow_subscriber_grace.0) => {}
                            () = self.cancel.cancelled() => return Err(LinkEnd::CutOff),
                        }
                    }
                    Why::Full => {}
                }
                let now = self.core.clock.now();
                match self.deliver(session, std::mem::take(picks), batch, open, now)? {
                    None => return Ok(()),
                    Some((rest, reason)) => (*picks, *why) = (rest, reason),
                }
            },
        }
    }

    /// Waits until sinks have brought what they took to where they promise to.
    async fn settle(&self, unsettled: &mut Vec<Settled>) -> Result<(), LinkEnd> {
        while let Some(settled) = unsettled.last_mut() {
            tokio::select! {
                () = settled => {}
                () = self.cancel.cancelled() => return Err(LinkEnd::CutOff),
            }
            unsettled.pop();
        }
        Ok(())
    }

    /// Takes QoS 2 identifiers whose messages are handed on.
    async fn take_ids(&self, ids: impl Iterator<Item = u16>) -> Result<(), LinkEnd> {
        for id in ids {
            let take = || {
                let (store, link) = (&self.core.store, self.link);
                self.session.take_exactly_once(store, link, id)
            };
            while let Err(error) = take() {
                self.journal_room(error).await?;
            }
        }
        Ok(())
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
