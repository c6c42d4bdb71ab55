//! Transactions between a session and a connection, whichever side began them.

use std::io::{self, Read, Write};
use std::sync::Arc;

use flate2::Crc;

use super::http::Transaction;
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::TRANSACTION_ATTRIBUTE_BYTES_MAX;
use crate::processors::ProcessorError;
use crate::provenance::EventKind;
use crate::s2s::codec::PacketHead;
use crate::s2s::transaction::{End, Receiving, Sending, put_packet, take_packet};
use crate::session::ProcessSession;

/// Why a transaction did not come to its end.
pub(super) enum Broken {
    /// The line, or the peer.
    Line(io::Error),
    /// Our own repository.
    Ours(ProcessorError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Line(error)
    }
}

impl From<ProcessorError> for Broken {
    fn from(error: ProcessorError) -> Self {
        Broken::Ours(error)
    }
}

impl Broken {
    /// The error of a processor that calls; `what` names the peer.
    pub(super) fn into_error(self, what: &str) -> ProcessorError {
        match self {
            Broken::Line(error) => ProcessorError::Failed(format!("{what}: {error}")),
            Broken::Ours(error) => error,
        }
    }
}

/// Sends FlowFiles; when this returns, the peer has them and they are ended in the session.
pub(super) fn send<W: Read + Write>(
    session: &mut ProcessSession<'_>,
    wire: &mut W,
    is_packed: bool,
    flow_files: Vec<FlowFile>,
    peer: &str,
) -> Result<End, Broken> {
    let mut sending = Sending::new(wire, is_packed);
    for flow_file in &flow_files {
        let attributes = outgoing(session, flow_file);
        let mut reader = session.reader(flow_file);
        sending.push(attributes.iter(), &mut reader, flow_file.size())?;
    }
    let end = sending.finish()?;
    forget(session, flow_files, peer)?;
    Ok(end)
}

/// Receives FlowFiles; when this returns, they are durable and the peer has confirmed their
/// checksum, but does not know yet that it may forget them: `finish` of what is returned says so.
pub(super) fn receive<'w, W: Read + Write>(
    session: &mut ProcessSession<'_>,
    wire: &'w mut W,
    is_packed: bool,
    peer: &str,
) -> Result<Receiving<'w, W>, Broken> {
    let mut receiving = Receiving::new(wire, is_packed);
    while receiving.goes_on()? {
        receiving.packet(|head, content| keep(session, head, content, peer))?;
    }
    receiving.confirm()?;
    session.commit_and_wait()?;
    Ok(receiving)
}

/// Sends FlowFiles in a transaction over HTTP; they are ended in the session after it.
pub(super) fn send_http(
    session: &mut ProcessSession<'_>,
    transaction: &Transaction,
    is_packed: bool,
    flow_files: Vec<FlowFile>,
    peer: &str,
) -> Result<End, Broken> {
    let end = transaction.send(|upload| {
        let mut crc = Crc::new();
        for flow_file in &flow_files {
            let attributes = outgoing(session, flow_file);
            let mut reader = session.reader(flow_file);
            let (pairs, size) = (attributes.iter(), flow_file.size());
            put_packet(upload, is_packed, &mut crc, pairs, &mut reader, size)?;
        }
        Ok(crc)
    })?;
    forget(session, flow_files, peer)?;
    Ok(end)
}

/// Receives FlowFiles over HTTP; whether there were any. They are durable before the remote
/// hears so.
pub(super) fn receive_http(
    session: &mut ProcessSession<'_>,
    transaction: &Transaction,
    is_packed: bool,
    peer: &str,
) -> Result<bool, Broken> {
    let mut crc = Crc::new();
    let mut is_empty = true;
    if let Some(mut download) = transaction.receive()? {
        while download.has_more()? {
            is_empty = false;
            take_packet(&mut download, is_packed, &mut crc, |head, content| {
                keep(session, head, content, peer)
            })?;
        }
    }
    if is_empty {
        // It would be ended by its age anyway.
        return transaction.end(15, None).map(|_| false).or(Ok(false));
    }
    session.commit_and_wait()?;
    transaction.end(12, Some(&crc))?;
    Ok(true)
}

/// A FlowFile's attributes as they go out; the receiver knows it by its uuid, as NiFi's do.
fn outgoing(session: &ProcessSession<'_>, flow_file: &FlowFile) -> Arc<Attributes> {
    let mut attributes = session.all_attributes(flow_file);
    Arc::make_mut(&mut attributes).set("uuid", session.uuid(flow_file));
    attributes
}

/// Ends FlowFiles that the peer has. If this is lost, they are only sent once more.
fn forget(
    session: &mut ProcessSession<'_>,
    flow_files: Vec<FlowFile>,
    peer: &str,
) -> Result<(), Broken> {
    for flow_file in &flow_files {
        session.note(flow_file, EventKind::Send, peer);
    }
    session.remove_all(flow_files);
    Ok(session.commit()?)
}

/// Makes a FlowFile of a packet.
fn keep(
    session: &mut ProcessSession<'_>,
    head: PacketHead,
    content: &mut dyn Read,
    peer: &str,
) -> Result<(), Broken> {
    if session.attribute_bytes() > TRANSACTION_ATTRIBUTE_BYTES_MAX {
        return Err(Broken::Line(io::Error::other(format!(
            "a transaction has more than {TRANSACTION_ATTRIBUTE_BYTES_MAX} bytes of attributes: \
             lower the sender's batch size"
        ))));
    }
    let mut writer = session.writer();
    io::copy(content, &mut writer)?;
    let content = writer.finish()?;
    let attributes = head
        .attributes
        .into_iter()
        .filter(|(name, _)| name != "uuid");
    let mut flow_file = session.create(Arc::new(Attributes::new(attributes)));
    if !content.is_empty() {
        session.set_content(&mut flow_file, content)?;
    }
    session.note(&flow_file, EventKind::Receive, peer);
    session.transfer(flow_file, 0);
    Ok(())
}

/// FlowFiles of one transaction where nobody says how many.
pub(super) const BATCH_COUNT: u64 = 100;
