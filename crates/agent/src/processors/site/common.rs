//! Transactions between a session and a connection, whichever side began them.

use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::flowfile::{Attributes, FlowFile};
use crate::processors::ProcessorError;
use crate::provenance::EventKind;
use crate::s2s::transaction::{End, Receiving, Sending};
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
        let mut attributes = Attributes::clone(flow_file.attributes());
        let uuid = session.uuid(flow_file);
        // The receiver knows the FlowFile by it, as NiFi's do.
        attributes.set("uuid", uuid);
        let mut reader = session.reader(flow_file);
        sending.push(attributes.iter(), &mut reader, flow_file.size())?;
    }
    let end = sending.finish()?;
    for flow_file in &flow_files {
        session.note(flow_file, EventKind::Send, peer);
    }
    session.remove_all(flow_files);
    // If this is lost, the FlowFiles are only sent once more.
    session.commit()?;
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
        let flow_file = receiving.packet(|head, content| -> Result<FlowFile, Broken> {
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
            Ok(flow_file)
        })?;
        session.note(&flow_file, EventKind::Receive, peer);
        session.transfer(flow_file, 0);
    }
    receiving.confirm()?;
    session.commit_and_wait()?;
    Ok(receiving)
}

/// FlowFiles of one transaction where nobody says how many.
pub(super) const BATCH_COUNT: u64 = 100;
