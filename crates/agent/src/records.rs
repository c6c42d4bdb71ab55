//! The bytes of a repository's frames. No IO.
//!
//! All frames of kinds [`COMMIT`], [`SNAPSHOT`] and [`PIECE`] hold a `u32` length, so many bytes of
//! operations, then content. The length's highest bit says that the operations are sealed (see
//! [`crate::sealing`]). Numbers in operations are LEB128, signed ones zigzagged; texts and bytes
//! have their length first.
//!
//! | operation | fields |
//! | --- | --- |
//! | 1 state | processor id, bytes |
//! | 2 remove | runs; for each the first id's difference to the last one's end, count |
//! | 3 put | connection id, attributes, entry ms, claim, FlowFiles; for each the differences of its id and offset to the end of the last, and its length |
//! | 4 counter | the next unused FlowFile id |
//! | 5 move | old position, offset in this frame's content, length |
//! | 6 rope | connection id, attributes, entry ms, id, views; for each its claim, offset and length in it |
//! | 7 content | end of the content journal: the frame counts only if that journal is durable so far |
//! | 8 copy | old and new position in the content journal, length |
//! | 9 events | length, provenance events (see [`crate::provenance`]) |
//! | 11 swap out | connection id, FlowFiles, their bytes, lowest content position plus one (0: none), length, the puts of them: they are here and nowhere else from now on |
//! | 12 swapped | as 11, with the frame's position first and without puts: a snapshot's word of it |
//! | 13 swap in | position of the frame: its FlowFiles are no longer there; puts that follow in this frame stand at their connection's front |
//! | 10 part | which frame of its snapshot this is, from zero on: where one is missing, all are |
//! | 14 piece | which piece of its commit this frame is, from zero on, and the position of piece zero (in piece zero itself: 0) |
//! | 15 pieces | position of piece zero, how many: their operations come first |
//! | 16 put like | as 3, without connection, attributes and entry: those of the group before it in this frame, changed by: entry's difference, attributes that differ; for each the difference of its index to the last one's, bytes of its value that stay, the rest of its value |
//!
//! A claim is 0 (none), 1 and its offset and length in this frame's content, 2 and its position
//! and length, 3 and the length of what was only in memory, 4 or 5: as 1 and 2, and the CRC32C
//! of its bytes, or 6 or 7: as 1 and 2, of what is sealed (see [`crate::sealing`]); its length is
//! then that of what was sealed. A put replaces what was known of a FlowFile, and queues it last.
//!
//! A snapshot is one or more frames that stand one after the other, each a flag byte before its
//! operations' length: 1 begins, 2 ends. A whole snapshot replaces all that stood before it, one
//! without its end is passed over. Recovery takes frames in order; a commit is one frame, so it
//! is there whole or not at all.
//!
//! Operations of a commit that are more than one frame should hold stand in pieces before it: these
//! say nothing by themselves, and all of it is true with the commit's own frame, which names them.
//! Frames of others may stand between them, but no snapshot and no pieces of another commit.

mod reader;
mod writer;

use std::sync::Arc;

use base::UnixMillis;
use journal::Position;

use crate::flowfile::Attributes;

pub(crate) use reader::{Reader, needed_content, needed_pieces, piece_of, read};
pub(crate) use writer::{Writer, number, text};

/// Frame kind: a session's commit.
pub(crate) const COMMIT: u8 = 1;
/// Frame kind: part of a snapshot.
pub(crate) const SNAPSHOT: u8 = 2;
/// Frame kind: content alone, in a content journal.
pub(crate) const CONTENT: u8 = 3;
/// Frame kind: operations of a commit that comes behind it.
pub(crate) const PIECE: u8 = 4;
/// Version of all.
pub(crate) const VERSION: u8 = 1;
/// Snapshot flag: everything before is replaced.
pub(crate) const BEGINS: u8 = 1;
/// Snapshot flag: the snapshot is whole.
pub(crate) const ENDS: u8 = 2;

/// Bytes that are no operations; the repository was written by something else, or rotted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a repository frame is not readable: {0}")]
pub(crate) struct RecordError(&'static str);

impl RecordError {
    pub(crate) fn new(what: &'static str) -> Self {
        RecordError(what)
    }
}

/// Where a put FlowFile's content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimAt {
    /// It has none.
    None,
    /// In this frame, from this offset of its content.
    Here { offset: u64, len: u32 },
    /// In an earlier frame, or in the content journal.
    At { position: Position, len: u32 },
    /// In memory only.
    Memory { len: u32 },
}

/// How it is known that a claim's bytes on the disk are those that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It is not: an older version wrote them, or they are not on the disk.
    None,
    /// By their CRC32C.
    Crc(u32),
    /// By their seal.
    Sealed,
}

/// A view of a rope, as a frame has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ViewAt {
    pub(crate) at: ClaimAt,
    pub(crate) check: Check,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// What several FlowFiles have in common.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) connection: &'a str,
    pub(crate) attributes: Arc<Attributes>,
    pub(crate) entry: UnixMillis,
}

/// FlowFiles that were written away together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwapAt<'a> {
    pub(crate) connection: &'a str,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) lowest: Option<Position>,
}

impl ClaimAt {
    /// Bytes of the claim.
    pub(crate) fn len(self) -> u32 {
        match self {
            ClaimAt::None => 0,
            ClaimAt::Here { len, .. } | ClaimAt::At { len, .. } | ClaimAt::Memory { len } => len,
        }
    }
}

/// What a frame says, one after the other; what is of no interest is passed over.
pub(crate) trait Visit {
    /// A processor's state is now this.
    fn state(&mut self, _processor: &str, _bytes: &[u8]) {}
    /// These FlowFiles are gone.
    fn remove(&mut self, _first: u64, _count: u64) {}
    /// A group of FlowFiles follows that view one claim.
    fn group(&mut self, _group: Group<'_>, _at: ClaimAt, _check: Check) {}
    /// A FlowFile of the group.
    fn put(&mut self, _id: u64, _offset: u32, _len: u32) {}
    /// Ids below this were used.
    fn counter(&mut self, _next: u64) {}
    /// A FlowFile of several views.
    fn rope(&mut self, _group: Group<'_>, _id: u64, _views: &[ViewAt]) {}
    /// A claim was copied to an offset of this frame's content.
    fn moved(&mut self, _from: Position, _offset: u64, _len: u32) {}
    /// A claim was copied within the content journal.
    fn copied(&mut self, _from: Position, _to: Position) {}
    /// Provenance events.
    fn events(&mut self, _events: &[u8]) {}
    /// Which frame of its snapshot this is.
    fn part(&mut self, _index: u64) {}
    /// FlowFiles are in this frame, and no longer in memory.
    fn swap_out(&mut self, _swap: SwapAt<'_>, _puts: &[u8]) {}
    /// FlowFiles are in the frame at `position`.
    fn swapped(&mut self, _position: Position, _swap: SwapAt<'_>) {}
    /// They are no longer there; what this frame puts from here on stands in front.
    fn swap_in(&mut self, _position: Position) {}
}

const OP_STATE: u8 = 1;
const OP_REMOVE: u8 = 2;
const OP_PUT: u8 = 3;
const OP_COUNTER: u8 = 4;
const OP_MOVE: u8 = 5;
const OP_ROPE: u8 = 6;
const OP_CONTENT: u8 = 7;
const OP_COPY: u8 = 8;
const OP_EVENTS: u8 = 9;
const OP_PART: u8 = 10;
const OP_SWAP_OUT: u8 = 11;
const OP_SWAPPED: u8 = 12;
const OP_SWAP_IN: u8 = 13;
const OP_PIECE: u8 = 14;
const OP_PIECES: u8 = 15;
const OP_PUT_LIKE: u8 = 16;

/// Bytes of attributes up to which others are told by their differences: what is read takes so much
/// memory for a few bytes.
const LIKE_BYTES_MAX: usize = 16 << 10;

/// Attributes of one FlowFile up to which that is done.
const LIKE_COUNT_MAX: usize = 256;
