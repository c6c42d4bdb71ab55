//! One client's link: a task that reads and decides, and one that writes.
//!
//! The reader may stand still for a subscriber that has no room; the writer does not care. Either
//! ends the other through the link's token.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use journal::JournalError;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::codec::{self, Connect, ConnectCode, DecodeError, Packet};
use crate::core::Core;
use crate::error::MqttError;
use crate::ingest::{Batch, Ingest};
use crate::limits::{ACKNOWLEDGEMENT_BYTES_MAX, CLIENT_ID_BYTES_MAX, READ_BYTES, READ_BYTES_IDLE};
use crate::message::{Message, Qos};
use crate::session::{LinkRef, Session};
use crate::store::Stored;
use crate::topic::{TopicError, TopicFilter};
use crate::wire::{ReadHalf, WriteHalf};
use crate::gate::{Hello, Origin, Pass, Password};
use crate::reason::ReasonCode;
use crate::writer::write_link;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkEnd {
    #[error("the client disconnected")]
    Disconnected,
    #[error("the connection was closed without DISCONNECT")]
    Closed(#[source] Option<std::io::Error>),
    #[error("cut off: taken over, too slow, or the server stops")]
    CutOff,
    #[error("silent for longer than 1.5 times its keep-alive")]
    KeepAlive,
    #[error("protocol error")]
    Decode(#[from] DecodeError),
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    #[error("invalid filter")]
    Filter(#[source] TopicError),
    #[error("refused")]
    Refused(#[source] MqttError),
    #[error("the journal does not take more")]
    Journal(#[source] JournalError),
}

/// What a CONNECT leaves behind for the time of the link.
struct Opening {
    session: Arc<Session>,
    link: u64,
    cancel: CancellationToken,
    pass: Arc<dyn Pass>,
    keep_alive: Option<Duration>,
    will: Option<(Arc<Stored>, bool)>,
}

struct Reader {
    core: Arc<Core>,
    stream: ReadHalf,
    buffer: BytesMut,
    /// Bytes to make room for in the next read.
    read_bytes: usize,
    links: CancellationToken,
    origin: Origin,
}

/// Serves one accepted connection until it ends. `allowed`: the peer may connect at all.
/// `links` ends it, as it ends all links of its listener.
pub(crate) async fn serve_link(
    core: Arc<Core>,
    (read, mut write): (ReadHalf, WriteHalf),
    origin: Origin,
    allowed: Result<(), ReasonCode>,
    links: CancellationToken,
) {
    let allowed = allowed.map_err(|_| ConnectCode::ServerUnavailable);
    let mut reader = Reader {
        core: core.clone(),
        stream: read,
        buffer: BytesMut::new(),
        read_bytes: READ_BYTES_IDLE,
        links: links.clone(),
        origin,
    };
    let deadline = Instant::now() + core.config.connect_timeout.0;
    let opening = tokio::select! {
        opened = timeout_at(deadline, reader.open(&mut write, allowed)) => opened,
        () = links.cancelled() => return,
    };
    let opening = match opening {
        Ok(Ok(opening)) => opening,
        Ok(Err(end)) => {
            tracing::debug!(reason = %base::report(&end), "a connection came to no session");
            return;
        }
        Err(_) => {
            tracing::debug!("a connection sent no CONNECT in time");
            return;
        }
    };
    let Opening {
        session,
        link,
        cancel,
        pass,
        keep_alive,
        will,
    } = opening;
    core.counters
        .clients_connected
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let writer = tokio::spawn(write_link(
        core.clone(),
        session.clone(),
        link,
        cancel.clone(),
        write,
    ));
    let mut ingest = Ingest::new(core.clone(), session.clone(), link, cancel.clone(), pass);
    let end = reader
        .run(&mut ingest, &session, link, &cancel, keep_alive)
        .await;
    core.counters
        .clients_connected
        .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    core.detach(&session, link);
    cancel.cancel();
    log_end(&session, &end);
    if let (Some((will, retain)), false) = (will, matches!(end, LinkEnd::Disconnected))
        && !links.is_cancelled()
    {
        publish_will(&core, &will, retain).await;
    }
    if let Err(error) = writer.await {
        tracing::error!(%error, "the writer of a link failed");
    }
}

fn log_end(session: &Session, end: &LinkEnd) {
    let client = &*session.client_id;
    match end {
        LinkEnd::Disconnected | LinkEnd::Closed(_) | LinkEnd::CutOff => {
            tracing::debug!(client, reason = %base::report(end), "link ended");
        }
        _ => tracing::warn!(client, reason = %base::report(end), "link ended by the server"),
    }
}

/// A will that finds a subscriber behind waits as a publisher would.
async fn publish_will(core: &Core, will: &Stored, retain: bool) {
    let message = Message {
        received: core.clock.now(),
        ..will.message(false)
    };
    loop {
        match core.publish(&message, retain) {
            Ok(()) => return,
            Err(MqttError::Busy) => core.room(message.topic).await,
            Err(error) => {
                tracing::warn!(topic = message.topic, error = %base::report(&error), "will lost");
                return;
            }
        }
    }
}

impl Reader {
    /// Reads the CONNECT and answers it.
    async fn open(
        &mut self,
        write: &mut WriteHalf,
        allowed: Result<(), ConnectCode>,
    ) -> Result<Opening, LinkEnd> {
        loop {
            let bytes_max =
                usize::try_from(self.core.config.packet_bytes_max.0).unwrap_or(usize::MAX);
            if self
                .buffer
                .first()
                .is_some_and(|first| *first != codec::CONNECT << 4)
            {
                return Err(LinkEnd::Protocol("the first packet is no CONNECT"));
            }
            let Ok(frame) = codec::frame(&self.buffer, bytes_max)? else {
                self.read(0).await?;
                continue;
            };
            let len = frame.len;
            let opened = match codec::decode(frame) {
                Ok(Packet::Connect(connect)) => self.admit(&connect, allowed).await,
                Ok(_) => return Err(LinkEnd::Protocol("the first packet is no CONNECT")),
                Err(error @ DecodeError::UnsupportedVersion(_)) => {
                    Err((ConnectCode::UnacceptableProtocol, LinkEnd::Decode(error)))
                }
                Err(error) => return Err(LinkEnd::Decode(error)),
            };
            match opened {
                Ok(opening) => {
                    self.buffer.advance(len);
                    return Ok(opening);
                }
                Err((code, end)) => {
                    let mut out = Vec::new();
                    codec::connack(&mut out, false, code);
                    // The peer may be gone already; the link ends either way.
                    let _ = write.write_all(&out).await;
                    let _ = write.shutdown().await;
                    return Err(end);
                }
            }
        }
    }

    async fn admit(
        &self,
        connect: &Connect<'_>,
        allowed: Result<(), ConnectCode>,
    ) -> Result<Opening, (ConnectCode, LinkEnd)> {
        let core = &self.core;
        if let Err(code) = allowed {
            let reason = match code {
                _ => "as many clients as mqtt.clients_max allows are connected",
            };
            return Err((code, LinkEnd::Protocol(reason)));
        }
        if connect
            .will
            .as_ref()
            .is_some_and(|will| will.topic.starts_with("$SYS"))
        {
            let end = LinkEnd::Protocol("$SYS topics are the server's own");
            return Err((ConnectCode::NotAuthorized, end));
        }
        let (clean, mut client_id) = (connect.clean_session, connect.client_id.to_owned());
        if client_id.is_empty() && clean {
            client_id = format!("auto-{:016x}{:016x}", core.opened.0, core.next_link());
        }
        if client_id.is_empty() || client_id.len() > CLIENT_ID_BYTES_MAX {
            let end = LinkEnd::Protocol("a client id is needed, of at most 1024 bytes");
            return Err((ConnectCode::IdentifierRejected, end));
        }
        let hello = Hello {
            client_id: &client_id,
            username: connect.username,
            password: connect.password.map(Password),
            origin: &self.origin,
        };
        let refused = |code| {
            let end = LinkEnd::Protocol("the client is refused: see mqtt.security");
            (connect_code(code), end)
        };
        let pass = core.gate.admit(&hello).await.map_err(refused)?;
        if let Some(will) = &connect.will {
            pass.may_publish(will.topic, will.qos, will.retain)
                .map_err(refused)?;
        }
        core.expire_sessions_by_the_minute();
        if !clean && !core.has_room_for_session(&client_id) {
            let end = LinkEnd::Protocol("as many sessions as mqtt.sessions_max allows are kept");
            return Err((ConnectCode::ServerUnavailable, end));
        }
        let (link, cancel) = (core.next_link(), self.links.child_token());
        let link_ref = LinkRef {
            number: link,
            version: connect.version,
            pass: pass.clone(),
            cancel: cancel.clone(),
        };
        let connack = |present| {
            let mut out = Vec::new();
            codec::connack(&mut out, present, ConnectCode::Accepted);
            out
        };
        let session = core
            .attach(&client_id, clean, link_ref, connack)
            .map_err(|error| (ConnectCode::ServerUnavailable, LinkEnd::Journal(error)))?;
        let will = connect.will.as_ref().map(|will| {
            let (topic, payload, qos) = (will.topic, will.payload, will.qos);
            let received = core.clock.now();
            let message = Message {
                topic,
                payload,
                qos,
                retain: false,
                received,
            };
            (Stored::of(&message), will.retain)
        });
        let keep_alive = match connect.keep_alive_s {
            0 => None,
            seconds => Some(Duration::from_millis(u64::from(seconds) * 1_500)),
        };
        Ok(Opening {
            session,
            link,
            cancel,
            pass,
            keep_alive,
            will,
        })
    }

    async fn run(
        &mut self,
        ingest: &mut Ingest,
        session: &Arc<Session>,
        link: u64,
        cancel: &CancellationToken,
        keep_alive: Option<Duration>,
    ) -> LinkEnd {
        let mut heard = Instant::now();
        let silence = sleep_until(heard + keep_alive.unwrap_or(FOR_EVER));
        tokio::pin!(silence);
        loop {
            let buffer = std::mem::take(&mut self.buffer);
            let processed = self.process(&buffer, ingest, session, link).await;
            self.buffer = buffer;
            let needed = match processed {
                Ok(done) => {
                    self.buffer.advance(done.used);
                    let now = self.core.clock.now();
                    let wait = ingest
                        .pass()
                        .charge(now, done.messages, done.used as u64);
                    if !wait.is_zero() {
                        // Who sends more than allowed is not read meanwhile.
                        self.core.counters.held.add(1);
                        tokio::select! {
                            () = tokio::time::sleep(wait) => {}
                            () = cancel.cancelled() => return LinkEnd::CutOff,
                        }
                    }
                    done.needed
                }
                Err(end) => return end,
            };
            if let Err(end) = wait_for_acks(session, cancel).await {
                return end;
            }
            // A link that was held back was not silent: it was not listened to.
            heard = heard.max(Instant::now());
            loop {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return LinkEnd::CutOff,
                    read = self.read(needed) => {
                        match read {
                            Ok(0) => {}
                            Ok(_) => break,
                            Err(end) => return end,
                        }
                    }
                    () = &mut silence => {
                        let Some(keep_alive) = keep_alive else { continue };
                        if heard.elapsed() >= keep_alive {
                            return LinkEnd::KeepAlive;
                        }
                        // Moved only when it fires, so that reading costs no timer.
                        silence.as_mut().reset(heard + keep_alive);
                    }
                }
            }
            heard = Instant::now();
        }
    }

    /// Takes what is there; 0 when nothing was after all. `needed`: bytes that the packet at the
    /// front of the buffer needs in all.
    async fn read(&mut self, needed: usize) -> Result<usize, LinkEnd> {
        // Grows as bytes come, not as a header claims.
        let missing = needed.saturating_sub(self.buffer.len());
        let room = self.read_bytes.max(missing.min(self.buffer.len()));
        match self.stream.read(&mut self.buffer, room).await {
            Ok(0) => Err(LinkEnd::Closed(None)),
            Ok(n) => {
                self.core.counters.bytes_received.add(n as u64);
                self.read_bytes = match n {
                    n if n >= self.read_bytes => (self.read_bytes * 4).min(READ_BYTES),
                    n if n < self.read_bytes / 16 => (self.read_bytes / 2).max(READ_BYTES_IDLE),
                    _ => self.read_bytes,
                };
                Ok(n)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(LinkEnd::Closed(Some(error))),
        }
    }

    /// Handles all whole packets of the buffer.
    async fn process(
        &self,
        buffer: &[u8],
        ingest: &mut Ingest,
        session: &Arc<Session>,
        link: u64,
    ) -> Result<Processed, LinkEnd> {
        let bytes_max = usize::try_from(self.core.config.packet_bytes_max.0).unwrap_or(usize::MAX);
        let received = self.core.clock.now();
        let mut batch = Batch::new(received);
        let (mut used, mut known) = (0, "");
        let mut messages = 0;
        loop {
            let frame = match codec::frame(&buffer[used..], bytes_max) {
                Ok(Ok(frame)) => frame,
                Ok(Err(needed)) => {
                    messages += batch.len() as u64;
                    ingest.take(batch).await?;
                    return Ok(Processed {
                        used,
                        needed,
                        messages,
                    });
                }
                Err(error) => {
                    ingest.take(batch).await?;
                    return Err(error.into());
                }
            };
            used += frame.len;
            if frame.first >> 4 == codec::PUBLISH {
                match codec::decode_publish(frame.first, frame.body, known) {
                    // `$` topics are the server's own (section 4.7.2).
                    Ok(publish) if publish.topic.starts_with("$SYS") => {
                        ingest
                            .take(std::mem::replace(&mut batch, Batch::new(received)))
                            .await?;
                        return Err(LinkEnd::Protocol("$SYS topics are the server's own"));
                    }
                    Ok(publish) if !ingest.may_publish(&publish) => {
                        messages += 1;
                        batch.push_refused(&publish);
                    }
                    Ok(publish) => {
                        known = publish.topic;
                        let taken = publish.qos == Qos::ExactlyOnce
                            && session.exactly_once_taken(publish.id);
                        batch.push(&publish, taken);
                    }
                    Err(error) => {
                        ingest.take(batch).await?;
                        return Err(error.into());
                    }
                }
                continue;
            }
            messages += batch.len() as u64;
            ingest
                .take(std::mem::replace(&mut batch, Batch::new(received)))
                .await?;
            handle(&self.core, codec::decode(frame)?, ingest, session, link).await?;
        }
    }
}

/// Handles a packet that is no PUBLISH.
async fn handle(
    core: &Arc<Core>,
    packet: Packet<'_>,
    ingest: &Ingest,
    session: &Arc<Session>,
    link: u64,
) -> Result<(), LinkEnd> {
    match packet {
        Packet::Puback(id) => session.acknowledged(&core.store, id),
        Packet::Pubrel(id) => {
            while let Err(error) = session.release_exactly_once(&core.store, id) {
                ingest.journal_room(error).await?;
            }
            session.write(link, |out, version| {
                codec::ack(out, version, codec::PUBCOMP, id)
            });
        }
        Packet::Subscribe { id, filters } => {
            subscribe(core, id, filters, ingest, session, link).await?
        }
        Packet::Unsubscribe { id, filters } => {
            for (text, _) in filters {
                let filter: TopicFilter = text.parse().map_err(LinkEnd::Filter)?;
                while let Err(error) = core.unsubscribe_client(session, &filter) {
                    ingest.journal_room(error).await?;
                }
            }
            session.write(link, |out, version| codec::unsuback(out, version, id));
        }
        Packet::Pingreq => {
            session.write(link, |out, _| codec::pingresp(out));
        }
        Packet::Disconnect => return Err(LinkEnd::Disconnected),
        Packet::Connect(_) => return Err(LinkEnd::Protocol("a second CONNECT")),
        // We never send QoS 2, so nobody can acknowledge it; harmless.
        Packet::Pubrec(_) | Packet::Pubcomp(_) => {}
        Packet::Publish(_) => unreachable!("publishes are batched by the caller"),
    }
    Ok(())
}

async fn subscribe(
    core: &Arc<Core>,
    id: u16,
    filters: codec::Filters<'_>,
    ingest: &Ingest,
    session: &Arc<Session>,
    link: u64,
) -> Result<(), LinkEnd> {
    let mut parsed = Vec::new();
    for (text, qos) in filters {
        match text.parse::<TopicFilter>() {
            Ok(filter) => parsed.push((Some(filter), qos)),
            // A limit of ours, not an error of the protocol.
            Err(TopicError::TooDeep(_)) => parsed.push((None, qos)),
            Err(error) => return Err(LinkEnd::Filter(error)),
        }
    }
    let mut codes = Vec::with_capacity(parsed.len());
    let mut granted = Vec::new();
    for (filter, asked) in &parsed {
        let allowed = filter.as_ref().and_then(|filter| {
            let qos = ingest.pass().may_subscribe(filter, *asked).ok()?;
            Some((filter, qos))
        });
        let Some((filter, asked)) = allowed else {
            codes.push(codec::SUBSCRIBE_FAILED);
            continue;
        };
        let qos = loop {
            match core.subscribe_client(session, filter, asked) {
                Ok(qos) => break qos,
                Err(error) => ingest.journal_room(error).await?,
            }
        };
        codes.push(qos.map_or(codec::SUBSCRIBE_FAILED, Qos::bits));
        granted.extend(qos.map(|qos| (filter, qos)));
    }
    if session.persistent {
        ingest.durable().await?;
    }
    session.write(link, |out, version| codec::suback(out, version, id, &codes));
    for (filter, qos) in granted {
        if !core.replay_retained(session, filter, qos) {
            return Err(LinkEnd::Protocol(
                "subscribes faster than it reads retained messages",
            ));
        }
    }
    Ok(())
}

/// Waits while the peer does not read its acknowledgements.
async fn wait_for_acks(session: &Session, cancel: &CancellationToken) -> Result<(), LinkEnd> {
    loop {
        let told = session.room.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if session.acknowledgement_bytes() <= ACKNOWLEDGEMENT_BYTES_MAX {
            return Ok(());
        }
        tokio::select! {
            () = told => {}
            () = cancel.cancelled() => return Err(LinkEnd::CutOff),
        }
    }
}

/// What one look through the buffer did.
struct Processed {
    /// Bytes used.
    used: usize,
    /// Bytes that the next packet needs in all.
    needed: usize,
    /// PUBLISH packets among them.
    messages: u64,
}

fn connect_code(code: ReasonCode) -> ConnectCode {
    match code {
        ReasonCode::BadUserNameOrPassword => ConnectCode::BadUserNameOrPassword,
        ReasonCode::NotAuthorized | ReasonCode::Banned => ConnectCode::NotAuthorized,
        _ => ConnectCode::ServerUnavailable,
    }
}

/// A timer that stands for none.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
