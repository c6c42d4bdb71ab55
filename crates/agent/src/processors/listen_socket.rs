//! What ListenTCP, ListenUDP, ListenSyslog and GetTCP have in common: messages out of a bounded
//! queue become FlowFiles.
//!
//! The protocols know no acknowledgement: what a peer has sent and the agent has not committed
//! is lost with the agent. What was taken out of the queue stays in hand until it is committed, so
//! that a repository without room holds the peers back, as far as the protocol can.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Next, ProcessorError};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::queue::{Inlet, Outlet, Received, queue};
use crate::net::streams::Sockets;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// A queue and the sockets that fill it.
pub(super) struct Source {
    outlet: Outlet,
    /// Taken out of the queue, and not committed yet.
    taken: Vec<Received>,
    /// How many of them may come together: fewer where the repository never has room for more.
    together_max: usize,
    _sockets: Sockets,
}

/// Where a message goes, and with what.
pub(super) struct Placed {
    pub(super) relationship: usize,
    pub(super) attributes: Arc<Attributes>,
}

impl Source {
    /// A queue for so many messages, and the sockets that `open` fills it from.
    pub(super) fn open(
        context: &Context,
        messages_max: usize,
        open: impl FnOnce(Inlet) -> Result<Sockets, ProcessorError>,
    ) -> Result<Source, ProcessorError> {
        let (inlet, outlet) = queue(messages_max, context.waker());
        Ok(Source {
            outlet,
            taken: Vec::new(),
            together_max: usize::MAX,
            _sockets: open(inlet)?,
        })
    }

    /// Makes FlowFiles of what waits, each as `place` says.
    pub(super) fn take(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        batch: usize,
        protocol: &str,
        mut place: impl FnMut(&Received) -> Placed,
    ) -> Result<Next, ProcessorError> {
        let dropped = self.outlet.dropped();
        if dropped > 0 {
            context.post(
                Level::Warning,
                &format!("{dropped} messages came faster than the flow took them and are lost"),
            );
        }
        if self.taken.is_empty() {
            self.taken = self.outlet.take(batch, BATCH_BYTES_MAX);
            self.together_max = usize::MAX;
        }
        if self.taken.is_empty() {
            return Ok(Next::Listening(IDLE));
        }
        let count = self.taken.len().min(self.together_max);
        let messages = &self.taken[..count];
        let all: Vec<&[u8]> = messages
            .iter()
            .map(|message| message.bytes.as_ref())
            .collect();
        let block = match session.block(Bytes::from(all.concat())) {
            Err(ProcessorError::Failed(_)) if count > 1 => {
                self.together_max = count / 2;
                return Ok(Next::Again);
            }
            // It fits by no means: it is told, and does not stand in the way of the others.
            Err(error @ ProcessorError::Failed(_)) => {
                self.taken.remove(0);
                return Err(error);
            }
            block => block?,
        };
        let mut offset = 0;
        let mut run: Vec<(u32, u32)> = Vec::new();
        let mut of_run: Option<Placed> = None;
        let mut transit = String::new();
        for message in messages {
            let placed = place(message);
            let goes_on = of_run.as_ref().is_some_and(|last| {
                last.relationship == placed.relationship && last.attributes == placed.attributes
            });
            if !goes_on && let Some(last) = of_run.replace(placed) {
                emit(session, &block, &mut run, &last, &transit);
            }
            transit = format!("{protocol}://{}", message.sender);
            // A batch is bounded below 4 GiB.
            let len = message.bytes.len() as u32;
            run.push((offset, len));
            offset += len;
        }
        if let Some(last) = of_run {
            emit(session, &block, &mut run, &last, &transit);
        }
        session.commit()?;
        self.taken.drain(..count);
        Ok(Next::Again)
    }
}

fn emit(
    session: &mut ProcessSession<'_>,
    block: &crate::session::Block,
    run: &mut Vec<(u32, u32)>,
    placed: &Placed,
    transit: &str,
) {
    let ranges = std::mem::take(run);
    let views = session.create_views(&placed.attributes, block, ranges.into_iter());
    for flow_file in &views {
        session.note(flow_file, EventKind::Receive, transit);
    }
    session.transfer_all(views, placed.relationship);
}

/// Says that a port cannot be listened on.
pub(super) fn unheard(port: u16, error: &std::io::Error) -> ProcessorError {
    ProcessorError::Failed(format!(
        "cannot listen on port {port}: {error}; is another program there?"
    ))
}

/// Without messages it looks again after this long; messages wake it.
const IDLE: Duration = Duration::from_secs(3_600);

/// Content bytes of one session.
const BATCH_BYTES_MAX: usize = 4 << 20;
