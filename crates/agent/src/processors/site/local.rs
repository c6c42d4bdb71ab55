//! Ports of the root group: peers call and send to an input port or receive from an output port.
//!
//! Without a site-to-site listener nobody calls: an input port does nothing, and what comes to
//! an output port waits.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::common::{BATCH_COUNT, Broken, receive, send};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::net::limits::S2S_BATCH_BYTES_MAX;
use crate::processors::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, RelationshipKind,
};
use crate::s2s::codec::{Code, write_response};
use crate::s2s::server::{Ready, Turn};
use crate::s2s::transaction::End;
use crate::session::ProcessSession;

/// What an input port of the root group is run as; no flow can spell it.
pub(in crate::processors) const INPUT: ProcessorKind = ProcessorKind {
    name: "RootInputPort",
    description: "Takes FlowFiles that peers send by site-to-site.",
    properties: &[],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "FlowFiles that came.",
    }],
    writes: &[],
    input: Input::Forbidden,
    make: |_| Ok(Box::new(InputPort { turns: None })),
};

/// What an output port of the root group is run as; no flow can spell it.
pub(in crate::processors) const OUTPUT: ProcessorKind = ProcessorKind {
    name: "RootOutputPort",
    description: "Gives FlowFiles to peers that fetch them by site-to-site.",
    properties: &[],
    dynamic: Dynamic::None,
    relationships: &[],
    writes: &[],
    input: Input::Allowed,
    make: |_| Ok(Box::new(OutputPort { turns: None })),
};

struct InputPort {
    turns: Option<Open>,
}

struct OutputPort {
    turns: Option<Open>,
}

/// A port that peers can reach as long as it is here.
struct Open {
    turns: Receiver<Turn>,
    ports: crate::s2s::Ports,
    id: String,
}

impl Open {
    fn new(context: &Context, is_input: bool) -> Self {
        let ports = context.ports().clone();
        let id = context.id().to_owned();
        let ready: Ready = match is_input {
            true => Arc::new(context.has_room()),
            false => Arc::new(context.has_waiting()),
        };
        let turns = ports.open(&id, context.name(), is_input, ready, context.waker());
        Open { turns, ports, id }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.ports.close(&self.id);
    }
}

impl Processor for InputPort {
    fn before_first_trigger(&mut self, context: &Context) {
        self.turns = Some(Open::new(context, true));
    }

    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let open = self.turns.get_or_insert_with(|| Open::new(context, true));
        let Ok(mut turn) = open.turns.try_recv() else {
            return Ok(Next::Listening(IDLE));
        };
        turn.wire.heed(Some(Box::new(context.stop_look())));
        let (is_packed, peer) = (turn.is_packed, turn.peer.clone());
        let has_room = context.has_room();
        let received = receive(session, &mut turn.wire, is_packed, &peer).and_then(|receiving| {
            let end = if has_room() {
                End::Finished
            } else {
                End::FinishedButFull
            };
            receiving.finish(end).map_err(Broken::Line)
        });
        conclude(context, session, turn, received)
    }

    fn stop(&mut self) {
        self.turns = None;
    }
}

impl Processor for OutputPort {
    fn before_first_trigger(&mut self, context: &Context) {
        self.turns = Some(Open::new(context, false));
    }

    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let open = self.turns.get_or_insert_with(|| Open::new(context, false));
        let Ok(mut turn) = open.turns.try_recv() else {
            return Ok(Next::Woken(IDLE));
        };
        turn.wire.heed(Some(Box::new(context.stop_look())));
        let outcome = give(session, &mut turn);
        conclude(context, session, turn, outcome)
    }

    fn stop(&mut self) {
        self.turns = None;
    }
}

/// Gives a peer what waits.
fn give(session: &mut ProcessSession<'_>, turn: &mut Turn) -> Result<(), Broken> {
    let (count, bytes) = turn.batch;
    let count = if count == 0 { BATCH_COUNT } else { count };
    let bytes = if bytes == 0 {
        S2S_BATCH_BYTES_MAX
    } else {
        bytes.min(S2S_BATCH_BYTES_MAX)
    };
    let flow_files = session.take(usize::try_from(count).unwrap_or(usize::MAX), bytes);
    if flow_files.is_empty() {
        write_response(&mut turn.wire, Code::NoMoreData, "")?;
        return Ok(turn.wire.flush()?);
    }
    write_response(&mut turn.wire, Code::MoreData, "")?;
    let (is_packed, peer) = (turn.is_packed, turn.peer.clone());
    send(session, &mut turn.wire, is_packed, flow_files, &peer).map(drop)
}

/// Gives the connection back, or lets it go when it is broken.
fn conclude(
    context: &Context,
    session: &mut ProcessSession<'_>,
    turn: Turn,
    outcome: Result<(), Broken>,
) -> Result<Next, ProcessorError> {
    match outcome {
        Ok(()) => turn.give_back(),
        Err(Broken::Line(error)) => {
            session.rollback();
            context.post(
                Level::Warning,
                &format!("a transaction with {} broke: {error}", turn.peer),
            );
        }
        Err(Broken::Ours(error)) => return Err(error),
    }
    Ok(Next::Again)
}

/// Without peers it looks again after this long; peers wake it.
const IDLE: Duration = Duration::from_secs(3_600);
