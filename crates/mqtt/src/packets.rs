//! What a link does with the packets that it reads, once it is open.

use std::sync::Arc;

use crate::codec::{self, DecodeError, Packet, Publish, RetainHandling, Version};
use crate::core::Core;
use crate::gate::{Hello, Origin};
use crate::ingest::{Batch, Ingest};
use crate::link::LinkEnd;
use crate::login::{Answer, Login};
use crate::message::Qos;
use crate::mount::{Carried, Carrier};
use crate::reason::ReasonCode;
use crate::records::Subscription;
use crate::session::Session;
use crate::topic::{TopicError, TopicFilter};

/// What a link knows of its conversation.
pub(crate) struct Talk {
    core: Arc<Core>,
    session: Arc<Session>,
    link: u64,
    version: Version,
    login: Option<Login>,
    /// The session's life as the CONNECT had it.
    expiry_s: u32,
    origin: Origin,
    /// The topics that the client's numbers stand for, from 1.
    aliases: Vec<Option<Box<str>>>,
    /// PUBLISH packets since they were asked for.
    published: u64,
}

/// What follows a run of publishes.
enum Next<'a> {
    /// The next packet needs so many bytes in all.
    Bytes(usize),
    /// The last of them gave a number to its topic.
    Alias(u16, Box<str>),
    Packet(Packet<'a>),
}

impl Talk {
    pub(crate) fn new(
        core: &Arc<Core>,
        session: &Arc<Session>,
        link: u64,
        version: Version,
        login: Option<Login>,
        expiry_s: u32,
        origin: &Origin,
    ) -> Self {
        Talk {
            core: core.clone(),
            session: session.clone(),
            link,
            version,
            login,
            expiry_s,
            origin: origin.clone(),
            aliases: Vec::new(),
            published: 0,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// PUBLISH packets that were read since the last call.
    pub(crate) fn take_published(&mut self) -> u64 {
        std::mem::take(&mut self.published)
    }

    /// The topic of a publish, and the number that it gives to it anew.
    fn topic_of<'t>(
        &'t self,
        publish: &Publish<'t>,
    ) -> Result<(&'t str, Option<u16>), DecodeError> {
        let alias = match publish.properties.is_empty() {
            true => None,
            false => publish.properties.two(codec::TOPIC_ALIAS),
        };
        let Some(alias) = alias else {
            return Ok((publish.topic, None));
        };
        if alias > self.core.config.topic_aliases_max {
            return Err(DecodeError::Alias);
        }
        let known = self.aliases.get(usize::from(alias) - 1);
        let known = known.and_then(|topic| topic.as_deref());
        match known {
            Some(known) if publish.topic.is_empty() || publish.topic == known => Ok((known, None)),
            None if publish.topic.is_empty() => {
                Err(DecodeError::Protocol("an alias that stands for no topic"))
            }
            _ => Ok((publish.topic, Some(alias))),
        }
    }

    fn note_alias(&mut self, alias: u16, topic: Box<str>) {
        let at = usize::from(alias) - 1;
        if self.aliases.len() <= at {
            self.aliases.resize(at + 1, None);
        }
        self.aliases[at] = Some(topic);
    }

    /// Why a publish goes to nobody. An end of the link where its client cannot be told.
    fn objection(
        &self,
        ingest: &Ingest,
        topic: &str,
        publish: &Publish<'_>,
    ) -> Result<Option<ReasonCode>, LinkEnd> {
        // `$` topics are the server's own (section 4.7.2).
        if topic.starts_with("$SYS") {
            return Err(LinkEnd::Told(ReasonCode::NotAuthorized));
        }
        let is_false_text = || {
            !publish.properties.is_empty()
                && publish.properties.is_text()
                && std::str::from_utf8(publish.payload).is_err()
        };
        if is_false_text() {
            return match publish.qos {
                Qos::AtMostOnce => Err(LinkEnd::Told(ReasonCode::PayloadFormatInvalid)),
                _ => Ok(Some(ReasonCode::PayloadFormatInvalid)),
            };
        }
        let mut said = publish.properties.user();
        let refused = said.find_map(|(name, value)| ingest.pass().may_say(name, value).err());
        Ok(refused.or_else(|| ingest.may_publish(topic, publish).err()))
    }
}

/// Handles all whole packets of the buffer; gives the bytes used and the bytes that the next
/// packet needs in all.
pub(crate) async fn process(
    talk: &mut Talk,
    ingest: &mut Ingest,
    buffer: &[u8],
) -> Result<(usize, usize), LinkEnd> {
    let mut used = 0;
    loop {
        let mut published = 0;
        let next = publishes(talk, ingest, buffer, (&mut used, &mut published)).await;
        talk.published += published;
        match next? {
            Next::Bytes(needed) => return Ok((used, needed)),
            Next::Alias(alias, topic) => talk.note_alias(alias, topic),
            Next::Packet(packet) => handle(talk, packet, ingest).await?,
        }
    }
}

/// Hands on publishes until something else comes.
async fn publishes<'b>(
    talk: &Talk,
    ingest: &mut Ingest,
    buffer: &'b [u8],
    (used, published): (&mut usize, &mut u64),
) -> Result<Next<'b>, LinkEnd> {
    let config = &talk.core.config;
    let bytes_max = usize::try_from(config.packet_bytes_max.0).unwrap_or(usize::MAX);
    let (mount, carried) = (ingest.pass().mount().cloned(), Carried::default());
    let mut carrier = mount.as_ref().map(|mount| Carrier::new(mount, &carried));
    let mut batch = Batch::new(talk.core.clock.now());
    let mut known = "";
    // What the receive maximum bounds: QoS 2 messages under way on this link before this batch,
    // once it is known, and what of the batch comes on top.
    let (mut held, mut owed) = (None, 0);
    // Whether identifiers that are not known are new.
    let mut is_alone = false;
    let next = loop {
        let frame = match codec::frame(&buffer[*used..], bytes_max) {
            Ok(Ok(frame)) => frame,
            Ok(Err(needed)) => break Ok(Next::Bytes(needed)),
            Err(error) => break Err(error.into()),
        };
        *used += frame.len;
        if frame.first >> 4 != codec::PUBLISH {
            let decoded = codec::decode(talk.version, frame);
            break decoded.map(Next::Packet).map_err(LinkEnd::from);
        }
        *published += 1;
        let decoded = codec::decode_publish(talk.version, frame.first, frame.body, known);
        let publish = match decoded {
            Ok(publish) => publish,
            Err(error) => break Err(error.into()),
        };
        let (topic, alias) = match talk.topic_of(&publish) {
            Ok(topic) => topic,
            Err(error) => break Err(error.into()),
        };
        known = topic;
        if publish.qos == Qos::ExactlyOnce && !is_alone {
            if let Err(end) = ingest.earlier_links().await {
                break Err(end);
            }
            is_alone = true;
        }
        let (taken, counted) = match publish.qos {
            Qos::ExactlyOnce => talk.session.exactly_once_taken(publish.id),
            _ => (false, false),
        };
        let counted = counted || publish.qos == Qos::ExactlyOnce && batch.owes_pubrec(publish.id);
        if talk.version == Version::V5 && publish.qos != Qos::AtMostOnce && !counted {
            let held = *held.get_or_insert_with(|| talk.session.exactly_once_on_link());
            if held + owed >= usize::from(config.receive_maximum) {
                break Err(LinkEnd::Told(ReasonCode::ReceiveMaximumExceeded));
            }
            owed += 1;
        }
        let inside = match &mut carrier {
            Some(carrier) => carrier.carry(topic, publish.properties),
            None => Ok((topic, publish.properties)),
        };
        let objection = match inside {
            Ok((topic, properties)) => {
                let publish = Publish {
                    properties,
                    ..publish
                };
                let objection = talk.objection(ingest, topic, &publish);
                objection.map(|no| (no, topic, publish))
            }
            Err(reason) => Ok((Some(reason), topic, publish)),
        };
        match objection {
            Ok((None, topic, publish)) => batch.push(&publish, topic, taken),
            Ok((Some(reason), _, publish)) => {
                talk.core.counters.refused.add(1);
                batch.refuse(&publish, reason);
            }
            Err(end) => break Err(end),
        }
        if let Some(alias) = alias {
            break Ok(Next::Alias(alias, topic.into()));
        }
    };
    ingest.take(batch).await?;
    next
}

/// Handles a packet that is no PUBLISH.
async fn handle(talk: &mut Talk, packet: Packet<'_>, ingest: &mut Ingest) -> Result<(), LinkEnd> {
    let (core, session, link) = (talk.core.clone(), talk.session.clone(), talk.link);
    match packet {
        Packet::Ack { kind, id, reason } => {
            let is_refusal = reason >= 0x80;
            match kind {
                codec::PUBACK => session.acknowledged(&core.store, id, false),
                codec::PUBCOMP => session.acknowledged(&core.store, id, true),
                codec::PUBREC => {
                    while let Err(error) = session.received(&core.store, link, id, is_refusal) {
                        ingest.journal_room(error).await?;
                    }
                }
                _ => {
                    while let Err(error) = session.released(&core.store, link, id) {
                        ingest.journal_room(error).await?;
                    }
                }
            }
        }
        Packet::Subscribe {
            id,
            identifier,
            filters,
        } => subscribe(talk, id, identifier, filters, ingest).await?,
        Packet::Unsubscribe { id, filters } => unsubscribe(talk, id, filters, ingest).await?,
        Packet::Pingreq => {
            session.write(link, |out, _| codec::pingresp(out));
        }
        Packet::Disconnect {
            reason,
            session_expiry_s,
        } => {
            // MQTT-3.14.2-2 and section 3.1.2.11.2: a session that ends with its link stays so.
            if talk.expiry_s == 0 && session_expiry_s.unwrap_or(0) > 0 {
                return Err(LinkEnd::Protocol("a session of no length made longer"));
            }
            let most_s = core.config.session_expiry_s();
            return Err(LinkEnd::Disconnected {
                with_will: reason != 0,
                expiry_s: session_expiry_s.map(|s| s.min(most_s)),
            });
        }
        Packet::Auth {
            reason,
            method,
            data,
        } => repeat_login(talk, ingest, (reason, method, data))?,
        Packet::Connect(_) => return Err(LinkEnd::Protocol("a second CONNECT")),
        Packet::Publish(_) => unreachable!("publishes are batched by the caller"),
    }
    Ok(())
}

fn repeat_login(
    talk: &mut Talk,
    ingest: &mut Ingest,
    auth: (u8, Option<&str>, &[u8]),
) -> Result<(), LinkEnd> {
    let Some(login) = &mut talk.login else {
        return Err(LinkEnd::Protocol("an AUTH without a method in the CONNECT"));
    };
    let session_id = &*talk.session.client_id;
    let mount = ingest.pass().mount();
    let hello = Hello {
        client_id: mount.map_or(session_id, |mount| mount.client_outside(session_id)),
        username: None,
        password: None,
        origin: &talk.origin,
    };
    let out = match login.hear(&*talk.core.gate, &hello, auth)? {
        Answer::Ask(ask) => ask,
        Answer::In(data, pass) => {
            ingest.renew_pass(pass);
            talk.core.subscriptions_changed();
            let mut out = Vec::new();
            codec::auth(&mut out, ReasonCode::Success, login.method(), &data);
            out
        }
    };
    talk.session
        .write(talk.link, |to, _| to.extend_from_slice(&out));
    Ok(())
}

async fn subscribe(
    talk: &Talk,
    id: u16,
    identifier: Option<u32>,
    filters: codec::Filters<'_>,
    ingest: &Ingest,
) -> Result<(), LinkEnd> {
    let (core, session) = (&talk.core, &talk.session);
    let mut codes = Vec::new();
    let mut granted = Vec::new();
    for (text, options) in filters {
        let filter = match parse(talk, ingest, text)? {
            Ok(filter) => filter,
            Err(reason) => {
                codes.push(reason);
                continue;
            }
        };
        let shared = filter.shared().map(|(_, inner)| inner);
        let may = ingest
            .pass()
            .may_subscribe(shared.as_ref().unwrap_or(&filter), options.qos);
        let qos = match may {
            Ok(qos) => qos.min(options.qos),
            Err(reason) => {
                codes.push(reason);
                continue;
            }
        };
        let mut subscription = Subscription {
            options,
            identifier,
        };
        subscription.options.qos = qos;
        let is_new = loop {
            match core.subscribe_client(session, &filter, subscription) {
                Ok(is_new) => break is_new,
                Err(error) => ingest.journal_room(error).await?,
            }
        };
        let Some(is_new) = is_new else {
            codes.push(ReasonCode::QuotaExceeded);
            continue;
        };
        codes.push(match qos {
            Qos::AtMostOnce => ReasonCode::Success,
            Qos::AtLeastOnce => ReasonCode::GrantedQos1,
            Qos::ExactlyOnce => ReasonCode::GrantedQos2,
        });
        let replay = match options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        };
        if replay && shared.is_none() {
            granted.push((filter, subscription));
        }
    }
    if session.persistent {
        ingest.durable().await?;
    }
    let byte = |code: &ReasonCode| match (talk.version, code.is_failure()) {
        (Version::V31 | Version::V311, true) => ReasonCode::UnspecifiedError.byte(),
        _ => code.byte(),
    };
    let bytes: Vec<u8> = codes.iter().map(byte).collect();
    session.write(talk.link, |out, version| {
        codec::suback(out, version, id, &bytes)
    });
    for (filter, subscription) in granted {
        if !core.replay_retained(session, &filter, &subscription) {
            return Err(LinkEnd::Told(ReasonCode::QuotaExceeded));
        }
    }
    Ok(())
}

async fn unsubscribe(
    talk: &Talk,
    id: u16,
    filters: codec::Filters<'_>,
    ingest: &Ingest,
) -> Result<(), LinkEnd> {
    let mut codes = Vec::new();
    for (text, _) in filters {
        let filter = match parse(talk, ingest, text)? {
            Ok(filter) => filter,
            Err(reason) => {
                codes.push(reason.byte());
                continue;
            }
        };
        let existed = loop {
            match talk.core.unsubscribe_client(&talk.session, &filter) {
                Ok(existed) => break existed,
                Err(error) => ingest.journal_room(error).await?,
            }
        };
        codes.push(match existed {
            true => ReasonCode::Success.byte(),
            false => ReasonCode::NoSubscriptionExisted.byte(),
        });
    }
    if talk.session.persistent {
        ingest.durable().await?;
    }
    talk.session.write(talk.link, |out, version| {
        codec::unsuback(out, version, id, &codes)
    });
    Ok(())
}

/// Reads a filter as it is inside of the server: one of them that is wrong ends the link before 5.0,
/// and is answered in it.
fn parse(
    talk: &Talk,
    ingest: &Ingest,
    text: &str,
) -> Result<Result<TopicFilter, ReasonCode>, LinkEnd> {
    match text.parse() {
        Ok(filter) => Ok(match ingest.pass().mount() {
            Some(mount) => mount.filter_inside(&filter),
            None => Ok(filter),
        }),
        // A limit of ours, not an error of the protocol.
        Err(TopicError::TooDeep(_)) => Ok(Err(ReasonCode::QuotaExceeded)),
        Err(_) if talk.version == Version::V5 => Ok(Err(ReasonCode::TopicFilterInvalid)),
        Err(error) => Err(LinkEnd::Filter(error)),
    }
}
