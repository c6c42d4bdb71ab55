//! Commits whose operations are more than one frame should hold.
//!
//! What a session did may be of any size: a million pieces of one text, FlowFiles with large
//! attributes. Its operations are then cut into pieces, each a frame that says nothing by itself;
//! the commit's own frame comes last, names them, and with it all of them are true. A crash between
//! them leaves pieces that nobody names. One commit at a time places pieces, and no snapshot comes
//! between, so that replaying never holds more than one commit's.

use journal::{Durability, Frame, JournalError, Position};

use super::Repository;
use super::commit::append_when_room;
use crate::records::{self, Writer};

/// A commit's operations while they are written down.
pub(super) struct Operations {
    full: Vec<Writer>,
    last: Writer,
    bytes_max: usize,
}

/// Pieces that were read, in their order.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    first: Position,
    parts: Vec<Vec<u8>>,
}

impl Operations {
    /// None yet; each piece will have about so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Operations {
            full: Vec::new(),
            last: Writer::default(),
            bytes_max,
        }
    }

    /// Where the next operations go: there is room for some.
    pub(super) fn writer(&mut self) -> &mut Writer {
        if self.last.len() >= self.bytes_max {
            self.full.push(std::mem::take(&mut self.last));
        }
        &mut self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.len() == 0
    }

    /// The operations of one frame, or those of several.
    pub(super) fn into_one(self) -> Result<Writer, Vec<Writer>> {
        if self.full.is_empty() && self.last.len() < self.bytes_max {
            return Ok(self.last);
        }
        let mut pieces = self.full;
        pieces.push(self.last);
        Err(pieces)
    }
}

impl Pieces {
    /// Takes a piece that stands at `position` and says that piece zero is at `first`.
    pub(super) fn push(
        &mut self,
        position: Position,
        index: u64,
        first: Position,
        operations: Vec<u8>,
    ) {
        if index == 0 {
            self.first = position;
            self.parts = vec![operations];
        } else if first == self.first && index == self.parts.len() as u64 {
            self.parts.push(operations);
        } else {
            self.parts.clear();
        }
    }

    /// All the pieces of a commit that has so many, the first one at `first`; none if one is
    /// missing.
    pub(super) fn take(&mut self, first: Position, count: u64) -> Option<Vec<Vec<u8>>> {
        let pieces = std::mem::take(self);
        (pieces.first == first && pieces.parts.len() as u64 == count).then_some(pieces.parts)
    }
}

impl Repository {
    /// Bytes of a commit's operations from which on they are cut into pieces.
    pub(super) fn piece_bytes(&self) -> usize {
        let limits = &self.options.limits;
        let bytes = limits.piece_bytes.min(limits.segment_bytes / 16);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Places pieces one after the other; what the commit's own frame begins with. The gate is held
    /// for reading until that is placed, and no other pieces come in between.
    pub(super) fn place_pieces(
        &self,
        pieces: Vec<Writer>,
        is_vital: bool,
    ) -> Result<Writer, JournalError> {
        self.check_pieces(&pieces)?;
        let count = pieces.len() as u64;
        let mut first = Position(0);
        for (index, operations) in pieces.into_iter().enumerate() {
            let mut piece = Writer::default();
            piece.piece(index as u64, first);
            piece.append(operations);
            let head = self.head(piece);
            let parts = head.parts();
            let frame = Frame {
                kind: records::PIECE,
                version: records::VERSION,
                parts: &parts,
            };
            // It is carried with the commit's own frame, which comes behind it.
            let placed = append_when_room(&self.journal, frame, Durability::Os, is_vital)?;
            if index == 0 {
                first = placed;
            }
        }
        let mut names = Writer::default();
        names.pieces(first, count);
        Ok(names)
    }

    /// One FlowFile's attributes may be too large for every frame that it will ever be in: those
    /// of snapshots and swapped batches have others before it.
    fn check_pieces(&self, pieces: &[Writer]) -> Result<(), JournalError> {
        let bytes_max = self.options.limits.segment_bytes / 2;
        let bytes = pieces.iter().map(Writer::len).max().unwrap_or(0) as u64;
        if bytes > bytes_max {
            return Err(JournalError::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}
