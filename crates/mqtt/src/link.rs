//! One client's link: a task that reads and decides, and one that writes.
//!
//! The reader may stand still for a subscriber that has no room; the writer does not care. Either
//! ends the other through the link's token.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use journal::JournalError;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::codec::{self, DecodeError, Version};
use crate::core::{Core, Leave};
use crate::error::MqttError;
use crate::gate::Origin;
use crate::ingest::Ingest;
use crate::limits::{
    ACKNOWLEDGEMENT_BYTES_MAX, FAREWELL_MS_MAX, LINK_TURN_BYTES, READ_BYTES, READ_BYTES_IDLE,
};
use crate::opening::{Opening, open};
use crate::packets::{Talk, process};
use crate::reason::ReasonCode;
use crate::session::Session;
use crate::topic::TopicError;
use crate::wire::{ReadHalf, WriteHalf};
use crate::writer::write_link;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkEnd {
    #[error("the client disconnected")]
    Disconnected {
        with_will: bool,
        /// What the DISCONNECT made of the session's life.
        expiry_s: Option<u32>,
    },
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
    #[error("ended with reason code {:#04x}", .0.byte())]
    Told(ReasonCode),
    #[error("invalid filter")]
    Filter(#[source] TopicError),
    #[error("refused")]
    Refused(#[source] MqttError),
    #[error("the journal does not take more")]
    Journal(#[source] JournalError),
}

/// The reading half of a link.
pub(crate) struct Reader {
    core: Arc<Core>,
    wire: ReadHalf,
    origin: Origin,
    buffer: BytesMut,
    /// Bytes to make room for in the next read.
    read_bytes: usize,
    links: CancellationToken,
}

/// Serves one connection until it ends. `allowed`: the peer may connect at all. `links` ends it,
/// as it ends all links of its listener.
pub(crate) async fn serve_link(
    core: Arc<Core>,
    (read, mut write): (ReadHalf, WriteHalf),
    origin: Origin,
    allowed: Result<(), ReasonCode>,
    links: CancellationToken,
) {
    let mut reader = Reader {
        core: core.clone(),
        wire: read,
        origin: origin.clone(),
        buffer: BytesMut::new(),
        read_bytes: READ_BYTES_IDLE,
        links: links.clone(),
    };
    let deadline = Instant::now() + core.config.connect_timeout.0;
    let opening = tokio::select! {
        opened = timeout_at(deadline, Box::pin(open(&mut reader, &mut write, allowed))) => opened,
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
    serve_session(core, reader, write, opening).await;
}

async fn serve_session(core: Arc<Core>, mut reader: Reader, write: WriteHalf, opening: Opening) {
    let Opening {
        session,
        link,
        version,
        pass,
        login,
        cancel,
        cut,
        keep_alive,
        expiry_s,
    } = opening;
    let connected = &core.counters.clients_connected;
    connected.fetch_add(1, Ordering::Relaxed);
    let writer = tokio::spawn(write_link(
        core.clone(),
        session.clone(),
        link,
        cancel.clone(),
        write,
    ));
    let mut ingest = Ingest::new(core.clone(), session.clone(), link, cancel.clone(), pass);
    let mut talk = Talk::new(
        &core,
        &session,
        link,
        version,
        login,
        expiry_s,
        &reader.origin,
    );
    let end = reader
        .run(&mut ingest, &mut talk, &cancel, keep_alive)
        .await;
    connected.fetch_sub(1, Ordering::Relaxed);
    let is_stopped = reader.links.is_cancelled();
    let leave = match end {
        LinkEnd::Disconnected {
            with_will,
            expiry_s,
        } => Leave {
            is_goodbye: !with_will,
            expiry_s,
        },
        // Nobody died: the server stops.
        _ => Leave {
            is_goodbye: is_stopped,
            expiry_s: None,
        },
    };
    let rest = core.detach(&session, link, leave);
    cancel.cancel();
    log_end(&session, &end);
    let reason = match end {
        LinkEnd::CutOff if is_stopped => Some(ReasonCode::ServerShuttingDown),
        LinkEnd::CutOff => cut.get().copied(),
        ref end => end.reason(),
    };
    match writer.await {
        Ok(Some(wire)) => say_goodbye(wire, rest, version, reason).await,
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "the writer of a link failed"),
    }
}

/// Writes what was owed, and to a client of 5.0 why its link ends.
async fn say_goodbye(
    mut wire: WriteHalf,
    mut out: Vec<u8>,
    version: Version,
    reason: Option<ReasonCode>,
) {
    if let (Version::V5, Some(reason)) = (version, reason) {
        codec::disconnect(&mut out, reason, None);
    }
    let written = async {
        if !out.is_empty() {
            wire.write_all(&out).await?;
        }
        wire.shutdown().await
    };
    // The client may be gone or not read: it is not waited for long.
    let _ = timeout(Duration::from_millis(FAREWELL_MS_MAX), written).await;
}

fn log_end(session: &Session, end: &LinkEnd) {
    let client = &*session.client_id;
    match end {
        LinkEnd::Disconnected { .. }
        | LinkEnd::Closed(_)
        | LinkEnd::CutOff
        | LinkEnd::Told(ReasonCode::MaximumConnectTime) => {
            tracing::debug!(client, reason = %base::report(end), "link ended");
        }
        _ => tracing::warn!(client, reason = %base::report(end), "link ended by the server"),
    }
}

impl LinkEnd {
    /// What a client of 5.0 is told; `None` when it ended the link itself.
    pub(crate) fn reason(&self) -> Option<ReasonCode> {
        match self {
            LinkEnd::Disconnected { .. } | LinkEnd::Closed(_) | LinkEnd::CutOff => None,
            LinkEnd::KeepAlive => Some(ReasonCode::KeepAliveTimeout),
            LinkEnd::Decode(error) => Some(error.reason()),
            LinkEnd::Protocol(_) => Some(ReasonCode::ProtocolError),
            LinkEnd::Told(reason) => Some(*reason),
            LinkEnd::Filter(_) => Some(ReasonCode::TopicFilterInvalid),
            LinkEnd::Refused(MqttError::RetainedFull { .. }) => Some(ReasonCode::QuotaExceeded),
            LinkEnd::Refused(_) => Some(ReasonCode::ImplementationSpecificError),
            LinkEnd::Journal(_) => Some(ReasonCode::UnspecifiedError),
        }
    }
}

impl Reader {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn links(&self) -> &CancellationToken {
        &self.links
    }

    pub(crate) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes the packet at the front of the buffer; reads more and gives `None` when there is no
    /// whole one yet.
    pub(crate) async fn next_packet(&mut self) -> Result<Option<Bytes>, LinkEnd> {
        let bytes_max = usize::try_from(self.core.config.packet_bytes_max.0).unwrap_or(usize::MAX);
        match codec::frame(&self.buffer, bytes_max)? {
            Ok(frame) => {
                let len = frame.len;
                Ok(Some(self.buffer.split_to(len).freeze()))
            }
            Err(needed) => {
                self.read(needed).await?;
                Ok(None)
            }
        }
    }

    async fn run(
        &mut self,
        ingest: &mut Ingest,
        talk: &mut Talk,
        cancel: &CancellationToken,
        keep_alive: Option<Duration>,
    ) -> LinkEnd {
        let session = talk.session().clone();
        let mut heard = Instant::now();
        let silence = sleep_until(heard + keep_alive.unwrap_or(FOR_EVER));
        tokio::pin!(silence);
        let ends = ingest.pass().ends();
        let until = ends.map(|at| at.since(self.core.clock.now()).min(FOR_EVER));
        let over = sleep_until(heard + until.unwrap_or(FOR_EVER));
        tokio::pin!(over);
        let mut turn_bytes = 0;
        loop {
            let buffer = std::mem::take(&mut self.buffer);
            let before = buffer.len();
            let processed = process(talk, ingest, &buffer).await;
            self.buffer = buffer;
            let needed = match processed {
                Ok((used, needed)) => {
                    self.buffer.advance(used);
                    needed
                }
                Err(end) => return end,
            };
            let used = (before - self.buffer.len()) as u64;
            turn_bytes += used;
            if turn_bytes >= LINK_TURN_BYTES {
                turn_bytes = 0;
                tokio::task::yield_now().await;
            }
            let hold = ingest
                .pass()
                .charge(self.core.clock.now(), talk.take_published(), used);
            if !hold.is_zero() {
                // Who sends more than it may is not read meanwhile.
                self.core.counters.held.add(1);
                tokio::select! {
                    () = sleep(hold) => {}
                    () = cancel.cancelled() => return LinkEnd::CutOff,
                }
            }
            if let Err(end) = wait_for_acks(&session, cancel).await {
                return end;
            }
            // A link that was held back was not silent: it was not listened to.
            heard = heard.max(Instant::now());
            loop {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return LinkEnd::CutOff,
                    // Before what comes: who always sends must not outlive it.
                    () = &mut over, if ends.is_some() => {
                        return LinkEnd::Told(ReasonCode::MaximumConnectTime);
                    }
                    read = self.read(needed) => match read {
                        Ok(()) => break,
                        Err(end) => return end,
                    },
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

    /// Waits for bytes. `needed`: bytes that the packet at the front of the buffer needs in all.
    async fn read(&mut self, needed: usize) -> Result<(), LinkEnd> {
        // Grows as bytes come, not as a header claims.
        let missing = needed.saturating_sub(self.buffer.len());
        let room = self.read_bytes.max(missing.min(self.buffer.len()));
        match self.wire.read(&mut self.buffer, room).await {
            Ok(0) => Err(LinkEnd::Closed(None)),
            Ok(n) => {
                self.core.counters.bytes_received.add(n as u64);
                self.read_bytes = match n {
                    n if n >= self.read_bytes => (self.read_bytes * 4).min(READ_BYTES),
                    n if n < self.read_bytes / 16 => (self.read_bytes / 2).max(READ_BYTES_IDLE),
                    _ => self.read_bytes,
                };
                Ok(())
            }
            Err(error) => Err(LinkEnd::Closed(Some(error))),
        }
    }
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

/// A timer that stands for none.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
