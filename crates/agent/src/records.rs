//! The bytes of a repository's frames. No IO.
//!
//! All frames of kinds [`COMMIT`] and [`SNAPSHOT`] hold a `u32` length, so many bytes of
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

use std::sync::Arc;

use base::UnixMillis;
use journal::Position;

use crate::content::{Claim, View};
use crate::flowfile::{Attributes, FlowFile, FlowFileId};

/// Frame kind: a session's commit.
pub(crate) const COMMIT: u8 = 1;
/// Frame kind: part of a snapshot.
pub(crate) const SNAPSHOT: u8 = 2;
/// Frame kind: content alone, in a content journal.
pub(crate) const CONTENT: u8 = 3;
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
    pub(crate) attributes: Attributes,
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

/// Builds a frame's operations.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

/// Where one claim stands, as the repository knows it while it writes a frame.
pub(crate) type Locate<'a> = &'a dyn Fn(&Arc<Claim>) -> ClaimAt;

impl Writer {
    pub(crate) fn state(&mut self, processor: &str, bytes: &[u8]) {
        self.out.push(OP_STATE);
        self.bytes(processor.as_bytes());
        self.bytes(bytes);
    }

    /// FlowFiles that are gone; ids in any order.
    pub(crate) fn remove(&mut self, ids: &[FlowFileId]) {
        if ids.is_empty() {
            return;
        }
        self.out.push(OP_REMOVE);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for id in ids {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == id.0 => *count += 1,
                _ => runs.push((id.0, 1)),
            }
        }
        self.number(runs.len() as u64);
        let mut end = 0u64;
        for (first, count) in runs {
            self.signed(first.wrapping_sub(end) as i64);
            self.number(count);
            end = first + count;
        }
    }

    /// FlowFiles that now stand in `connection`, in this order.
    pub(crate) fn put<'f>(
        &mut self,
        connection: &str,
        flow_files: impl IntoIterator<Item = &'f FlowFile>,
        locate: Locate<'_>,
    ) {
        let mut group: Option<&FlowFile> = None;
        let mut runs = Vec::new();
        let (mut count, mut id_end, mut offset_end) = (0u64, 0u64, 0u64);
        for flow_file in flow_files {
            let view = match flow_file.content.views() {
                [] => None,
                [view] => Some(view),
                views => {
                    self.end_group(count, &mut runs);
                    (group, count) = (None, 0);
                    self.rope(connection, flow_file, views, locate);
                    continue;
                }
            };
            let same = group.is_some_and(|first| same_group(first, flow_file));
            if !same {
                self.end_group(count, &mut runs);
                self.out.push(OP_PUT);
                self.group(connection, flow_file);
                self.claim(view.map(|view| &view.claim), locate);
                (group, count, id_end, offset_end) = (Some(flow_file), 0, 0, 0);
            }
            let (offset, len) = view.map_or((0, 0), |view| (view.offset, view.len));
            signed(&mut runs, flow_file.id.0.wrapping_sub(id_end) as i64);
            signed(&mut runs, u64::from(offset).wrapping_sub(offset_end) as i64);
            number(&mut runs, u64::from(len));
            id_end = flow_file.id.0 + 1;
            offset_end = u64::from(offset) + u64::from(len);
            count += 1;
        }
        self.end_group(count, &mut runs);
    }

    /// The same, and the content journal's end that it needs, which stands first.
    pub(crate) fn behind_content(self, end: Position) -> Self {
        let mut first = Writer::default();
        first.out.push(OP_CONTENT);
        first.number(end.0);
        first.out.extend_from_slice(&self.out);
        first
    }

    pub(crate) fn copied(&mut self, from: Position, to: Position, len: u32) {
        self.out.push(OP_COPY);
        self.number(from.0);
        self.number(to.0);
        self.number(u64::from(len));
    }

    /// FlowFiles that leave memory; `puts` are theirs.
    pub(crate) fn swap_out(&mut self, swap: SwapAt<'_>, puts: &Writer) {
        self.out.push(OP_SWAP_OUT);
        self.swap(swap);
        self.bytes(&puts.out);
    }

    /// FlowFiles that were written away before.
    pub(crate) fn swapped(&mut self, position: Position, swap: SwapAt<'_>) {
        self.out.push(OP_SWAPPED);
        self.number(position.0);
        self.swap(swap);
    }

    /// FlowFiles that come back, or are dropped.
    pub(crate) fn swap_in(&mut self, position: Position) {
        self.out.push(OP_SWAP_IN);
        self.number(position.0);
    }

    fn swap(&mut self, swap: SwapAt<'_>) {
        self.bytes(swap.connection.as_bytes());
        self.number(swap.count);
        self.number(swap.bytes);
        self.number(swap.lowest.map_or(0, |lowest| lowest.0 + 1));
    }

    /// Provenance events, already written down.
    pub(crate) fn events(&mut self, events: &[u8]) {
        self.out.push(OP_EVENTS);
        self.bytes(events);
    }

    pub(crate) fn counter(&mut self, next: u64) {
        self.out.push(OP_COUNTER);
        self.number(next);
    }

    /// Which frame of its snapshot this is, from zero on.
    pub(crate) fn part(&mut self, index: u64) {
        self.out.push(OP_PART);
        self.number(index);
    }

    pub(crate) fn moved(&mut self, from: Position, offset: u64, len: u32) {
        self.out.push(OP_MOVE);
        self.number(from.0);
        self.number(offset);
        self.number(u64::from(len));
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn into_operations(self) -> Vec<u8> {
        self.out
    }

    fn group(&mut self, connection: &str, flow_file: &FlowFile) {
        self.bytes(connection.as_bytes());
        let attributes = flow_file.attributes.iter();
        self.number(attributes.len() as u64);
        for (name, value) in attributes {
            self.bytes(name.as_bytes());
            self.bytes(value.as_bytes());
        }
        self.signed(flow_file.entry.0);
    }

    fn claim(&mut self, claim: Option<&Arc<Claim>>, locate: Locate<'_>) {
        let Some(claim) = claim else {
            self.out.push(0);
            return;
        };
        let check = claim.check();
        let (here, at) = match check {
            Check::None => (1, 2),
            Check::Crc(_) => (4, 5),
            Check::Sealed => (6, 7),
        };
        match locate(claim) {
            ClaimAt::None => self.out.push(0),
            ClaimAt::Here { offset, len } => {
                self.out.push(here);
                self.number(offset);
                self.number(u64::from(len));
            }
            ClaimAt::At { position, len } => {
                self.out.push(at);
                self.number(position.0);
                self.number(u64::from(len));
            }
            ClaimAt::Memory { len } => {
                self.out.push(3);
                self.number(u64::from(len));
                return;
            }
        }
        if let Check::Crc(crc) = check {
            self.out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    fn rope(&mut self, connection: &str, flow_file: &FlowFile, views: &[View], locate: Locate<'_>) {
        self.out.push(OP_ROPE);
        self.group(connection, flow_file);
        self.number(flow_file.id.0);
        self.number(views.len() as u64);
        for view in views {
            self.claim(Some(&view.claim), locate);
            self.number(u64::from(view.offset));
            self.number(u64::from(view.len));
        }
    }

    fn end_group(&mut self, count: u64, runs: &mut Vec<u8>) {
        if count > 0 {
            self.number(count);
            self.out.append(runs);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn number(&mut self, value: u64) {
        number(&mut self.out, value);
    }

    fn signed(&mut self, value: i64) {
        signed(&mut self.out, value);
    }
}

fn same_group(a: &FlowFile, b: &FlowFile) -> bool {
    let same_claim = match (a.content.views(), b.content.views()) {
        ([], []) => true,
        ([a], [b]) => Arc::ptr_eq(&a.claim, &b.claim),
        _ => false,
    };
    same_claim
        && a.entry == b.entry
        && (Arc::ptr_eq(&a.attributes, &b.attributes) || a.attributes == b.attributes)
}

/// Writes a number.
pub(crate) fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a text, its length first.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn signed(out: &mut Vec<u8>, value: i64) {
    number(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// The content journal's end that a frame with these operations needs; it stands first.
pub(crate) fn needed_content(operations: &[u8]) -> Result<Option<Position>, RecordError> {
    match operations.split_first() {
        Some((&OP_CONTENT, rest)) => {
            let end = Reader { rest }.number()?;
            Ok(Some(Position(end)))
        }
        _ => Ok(None),
    }
}

/// Reads operations, telling `visit` each.
pub(crate) fn read(operations: &[u8], visit: &mut dyn Visit) -> Result<(), RecordError> {
    let mut reader = Reader { rest: operations };
    while let Some((&op, rest)) = reader.rest.split_first() {
        reader.rest = rest;
        match op {
            OP_STATE => {
                let processor = reader.text()?;
                let bytes = reader.bytes()?;
                visit.state(processor, bytes);
            }
            OP_REMOVE => {
                let mut end = 0u64;
                for _ in 0..reader.number()? {
                    let first = end.wrapping_add_signed(reader.signed()?);
                    let count = reader.number()?;
                    visit.remove(first, count);
                    end = first.wrapping_add(count);
                }
            }
            OP_PUT => reader.put(visit)?,
            OP_COUNTER => visit.counter(reader.number()?),
            OP_MOVE => {
                let from = Position(reader.number()?);
                let offset = reader.number()?;
                visit.moved(from, offset, reader.length()?);
            }
            OP_ROPE => reader.rope(visit)?,
            OP_CONTENT => {
                reader.number()?;
            }
            OP_COPY => {
                let (from, to) = (reader.number()?, reader.number()?);
                reader.length()?;
                visit.copied(Position(from), Position(to));
            }
            OP_EVENTS => visit.events(reader.bytes()?),
            OP_PART => visit.part(reader.number()?),
            OP_SWAP_OUT => {
                let swap = reader.swap()?;
                visit.swap_out(swap, reader.bytes()?);
            }
            OP_SWAPPED => {
                let position = Position(reader.number()?);
                let swap = reader.swap()?;
                visit.swapped(position, swap);
            }
            OP_SWAP_IN => visit.swap_in(Position(reader.number()?)),
            _ => return Err(RecordError("it has an unknown operation")),
        }
    }
    Ok(())
}

/// Reads numbers and texts one after the other.
pub(crate) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Reader { rest: bytes }
    }

    fn group(&mut self) -> Result<Group<'b>, RecordError> {
        let connection = self.text()?;
        let mut attributes = Attributes::default();
        for _ in 0..self.number()? {
            let name = self.text()?;
            attributes.set(name, self.text()?);
        }
        let entry = UnixMillis(self.signed()?);
        Ok(Group {
            connection,
            attributes,
            entry,
        })
    }

    fn claim(&mut self) -> Result<(ClaimAt, Check), RecordError> {
        let tag = self.number()?;
        let at = match tag {
            0 => ClaimAt::None,
            1 | 4 | 6 => ClaimAt::Here {
                offset: self.number()?,
                len: self.length()?,
            },
            2 | 5 | 7 => ClaimAt::At {
                position: Position(self.number()?),
                len: self.length()?,
            },
            3 => ClaimAt::Memory {
                len: self.length()?,
            },
            _ => return Err(RecordError("it has an unknown claim")),
        };
        match tag {
            0..4 => return Ok((at, Check::None)),
            6.. => return Ok((at, Check::Sealed)),
            _ => {}
        }
        let cut = RecordError("it is cut short");
        let (crc, rest) = self.rest.split_first_chunk::<4>().ok_or(cut)?;
        self.rest = rest;
        Ok((at, Check::Crc(u32::from_le_bytes(*crc))))
    }

    fn rope(&mut self, visit: &mut dyn Visit) -> Result<(), RecordError> {
        let group = self.group()?;
        let id = self.number()?;
        let mut views = Vec::new();
        for _ in 0..self.number()? {
            let (at, check) = self.claim()?;
            let (offset, len) = (self.length()?, self.length()?);
            if offset.checked_add(len).is_none_or(|end| end > at.len()) {
                return Err(RecordError("a view lies outside its claim"));
            }
            views.push(ViewAt {
                at,
                check,
                offset,
                len,
            });
        }
        visit.rope(group, id, &views);
        Ok(())
    }

    fn swap(&mut self) -> Result<SwapAt<'b>, RecordError> {
        Ok(SwapAt {
            connection: self.text()?,
            count: self.number()?,
            bytes: self.number()?,
            lowest: self.number()?.checked_sub(1).map(Position),
        })
    }

    fn put(&mut self, visit: &mut dyn Visit) -> Result<(), RecordError> {
        let group = self.group()?;
        let (at, check) = self.claim()?;
        let claim_len = u64::from(at.len());
        visit.group(group, at, check);
        let (mut id_end, mut offset_end) = (0u64, 0u64);
        for _ in 0..self.number()? {
            let id = id_end.wrapping_add_signed(self.signed()?);
            let offset = offset_end.wrapping_add_signed(self.signed()?);
            let len = self.length()?;
            let end = offset.checked_add(u64::from(len));
            if end.is_none_or(|end| end > claim_len) {
                return Err(RecordError("a FlowFile lies outside its claim"));
            }
            id_end = id.wrapping_add(1);
            offset_end = offset + u64::from(len);
            visit.put(id, offset as u32, len);
        }
        Ok(())
    }

    pub(crate) fn text(&mut self) -> Result<&'b str, RecordError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| RecordError("a text is no UTF-8"))
    }

    fn bytes(&mut self) -> Result<&'b [u8], RecordError> {
        let len = usize::try_from(self.number()?).map_err(|_| RecordError("it is cut short"))?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(RecordError("it is cut short"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn length(&mut self) -> Result<u32, RecordError> {
        u32::try_from(self.number()?).map_err(|_| RecordError("a length is beyond 4 GiB"))
    }

    fn signed(&mut self) -> Result<i64, RecordError> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn number(&mut self) -> Result<u64, RecordError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self
                .rest
                .split_first()
                .ok_or(RecordError("it is cut short"))?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordError("a number is too long"))
    }
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
