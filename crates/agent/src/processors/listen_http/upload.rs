//! A body that is larger than what waits in memory: taken in as it comes, over many sessions.
//!
//! Whoever sends slowly holds nobody up: the processor takes what is there and goes on. What it has
//! taken is written ahead of the session that makes the FlowFile; until then nothing but the
//! upload knows of it, so that it is as if it had never come when the upload ends.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::inlet::Answer;
use crate::content::Content;
use crate::flowfile::Attributes;
use crate::limits::CONTENT_PIECE_BYTES;
use crate::processors::ProcessorError;
use crate::session::ProcessSession;

/// A body that is on its way.
pub(super) struct Upload {
    pub(super) attributes: Arc<Attributes>,
    pub(super) from: String,
    pub(super) answer: Answer,
    rest: mpsc::Receiver<Bytes>,
    buffer: Vec<u8>,
    /// What was cut, in order.
    pub(super) parts: Vec<Content>,
}

/// How far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More comes later.
    Waits,
    /// More is there already.
    HasMore,
    Whole,
    /// Its client was told why, or is gone.
    Broken,
}

impl Upload {
    pub(super) fn new(
        attributes: Arc<Attributes>,
        from: String,
        answer: Answer,
        first: &Bytes,
        rest: mpsc::Receiver<Bytes>,
    ) -> Self {
        Upload {
            attributes,
            from,
            answer,
            rest,
            buffer: first.to_vec(),
            parts: Vec::new(),
        }
    }

    /// Bytes of it in memory.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Takes what is there, up to a piece.
    pub(super) fn take_in(&mut self) -> Progress {
        while self.buffer.len() < CONTENT_PIECE_BYTES {
            match self.rest.try_recv() {
                Ok(bytes) if bytes.is_empty() => return Progress::Whole,
                Ok(bytes) => self.buffer.extend_from_slice(&bytes),
                Err(TryRecvError::Empty) => return Progress::Waits,
                Err(TryRecvError::Disconnected) => return Progress::Broken,
            }
        }
        Progress::HasMore
    }

    /// Makes content of what is in memory.
    pub(super) fn cut(&mut self, session: &mut ProcessSession<'_>) -> Result<(), ProcessorError> {
        if !self.buffer.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.buffer));
            self.parts.push(session.content(bytes)?);
        }
        Ok(())
    }
}
