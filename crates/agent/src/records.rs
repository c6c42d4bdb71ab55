//! The bytes of a repository's frames. No IO.
//!
//! All frames of kinds [`COMMIT`] and [`SNAPSHOT`] hold a `u32` length, so many bytes of
//! operations, then content. Numbers in operations are LEB128, signed ones zigzagged; texts and
//! bytes have their length first.
//!
//! | operation | fields |
//! | --- | --- |
//! | 1 state | processor id, bytes |
//! | 2 remove | runs; for each the first id's difference to the last one's end, count |
//! | 3 put | connection id, attributes, entry ms, claim, FlowFiles; for each the differences of its id and offset to the end of the last, and its length |
//! | 4 counter | the next unused FlowFile id |
//! | 5 move | old position, offset in this frame's content, length |
//!
//! A claim is 0 (none), 1 and its offset and length in this frame's content, or 2 and its
//! position and length. A put replaces what was known of a FlowFile, and queues it last.
//!
//! A snapshot is one or more frames that stand one after the other, each a flag byte before its
//! operations' length: 1 begins, 2 ends. A whole snapshot replaces all that stood before it, one
//! without its end is passed over. Recovery takes frames in order; a commit is one frame, so it
//! is there whole or not at all.

use std::sync::Arc;

use base::UnixMillis;
use journal::Position;

use crate::flowfile::{Attributes, FlowFile, FlowFileId};

/// Frame kind: a session's commit.
pub(crate) const COMMIT: u8 = 1;
/// Frame kind: part of a snapshot.
pub(crate) const SNAPSHOT: u8 = 2;
/// Version of both.
pub(crate) const VERSION: u8 = 1;
/// Snapshot flag: everything before is replaced.
pub(crate) const BEGINS: u8 = 1;
/// Snapshot flag: the snapshot is whole.
pub(crate) const ENDS: u8 = 2;

/// Bytes that are no operations; the repository was written by something else, or rotted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a repository frame is not readable: {0}")]
pub(crate) struct RecordError(&'static str);

/// Where a put FlowFile's content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimAt {
    /// It has none.
    None,
    /// In this frame, from this offset of its content.
    Here { offset: u64, len: u32 },
    /// In an earlier frame.
    At { position: Position, len: u32 },
}

/// What a frame says, one after the other.
pub(crate) trait Visit {
    /// A processor's state is now this.
    fn state(&mut self, processor: &str, bytes: &[u8]);
    /// These FlowFiles are gone.
    fn remove(&mut self, first: u64, count: u64);
    /// A group of FlowFiles follows.
    fn group(&mut self, connection: &str, attributes: Attributes, entry: UnixMillis, at: ClaimAt);
    /// A FlowFile of the group.
    fn put(&mut self, id: u64, offset: u32, len: u32);
    /// Ids below this were used.
    fn counter(&mut self, next: u64);
    /// A claim was copied to an offset of this frame's content.
    fn moved(&mut self, from: Position, offset: u64, len: u32);
}

/// Builds a frame's operations.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

/// Where one claim stands, as the repository knows it while it writes a frame.
pub(crate) type Locate<'a> = &'a dyn Fn(&Arc<crate::content::Claim>) -> ClaimAt;

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
            let same = group.is_some_and(|first| same_group(first, flow_file));
            if !same {
                self.end_group(count, &mut runs);
                self.begin_group(connection, flow_file, locate);
                (group, count, id_end, offset_end) = (Some(flow_file), 0, 0, 0);
            }
            let (offset, len) = flow_file
                .content
                .as_ref()
                .map_or((0, 0), |view| (view.offset, view.len));
            signed(&mut runs, flow_file.id.0.wrapping_sub(id_end) as i64);
            signed(&mut runs, u64::from(offset).wrapping_sub(offset_end) as i64);
            number(&mut runs, u64::from(len));
            id_end = flow_file.id.0 + 1;
            offset_end = u64::from(offset) + u64::from(len);
            count += 1;
        }
        self.end_group(count, &mut runs);
    }

    pub(crate) fn counter(&mut self, next: u64) {
        self.out.push(OP_COUNTER);
        self.number(next);
    }

    pub(crate) fn moved(&mut self, from: Position, offset: u64, len: u32) {
        self.out.push(OP_MOVE);
        self.number(from.0);
        self.number(offset);
        self.number(u64::from(len));
    }

    /// The operations' length as a frame begins with it.
    pub(crate) fn header(&self) -> [u8; 4] {
        u32::try_from(self.out.len())
            .expect("operations are bounded far below 4 GiB")
            .to_le_bytes()
    }

    pub(crate) fn operations(&self) -> &[u8] {
        &self.out
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn clear(&mut self) {
        self.out.clear();
    }

    fn begin_group(&mut self, connection: &str, flow_file: &FlowFile, locate: Locate<'_>) {
        self.out.push(OP_PUT);
        self.bytes(connection.as_bytes());
        let attributes = flow_file.attributes.iter();
        self.number(attributes.len() as u64);
        for (name, value) in attributes {
            self.bytes(name.as_bytes());
            self.bytes(value.as_bytes());
        }
        self.signed(flow_file.entry.0);
        let at = flow_file
            .content
            .as_ref()
            .map_or(ClaimAt::None, |view| locate(&view.claim));
        match at {
            ClaimAt::None => self.out.push(0),
            ClaimAt::Here { offset, len } => {
                self.out.push(1);
                self.number(offset);
                self.number(u64::from(len));
            }
            ClaimAt::At { position, len } => {
                self.out.push(2);
                self.number(position.0);
                self.number(u64::from(len));
            }
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
    let same_claim = match (&a.content, &b.content) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(&a.claim, &b.claim),
        _ => false,
    };
    same_claim
        && a.entry == b.entry
        && (Arc::ptr_eq(&a.attributes, &b.attributes) || a.attributes == b.attributes)
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    number(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Splits a frame into its operations and where its content begins in the payload.
pub(crate) fn split(payload: &[u8]) -> Result<(&[u8], u64), RecordError> {
    let (header, rest) = payload
        .split_first_chunk::<4>()
        .ok_or(RecordError("it is shorter than its header"))?;
    let len = u32::from_le_bytes(*header) as usize;
    let operations = rest
        .get(..len)
        .ok_or(RecordError("its operations are cut short"))?;
    Ok((operations, 4 + len as u64))
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
            _ => return Err(RecordError("it has an unknown operation")),
        }
    }
    Ok(())
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn put(&mut self, visit: &mut dyn Visit) -> Result<(), RecordError> {
        let connection = self.text()?;
        let mut attributes = Attributes::default();
        for _ in 0..self.number()? {
            let name = self.text()?;
            attributes.set(name, self.text()?);
        }
        let entry = UnixMillis(self.signed()?);
        let at = match self.number()? {
            0 => ClaimAt::None,
            1 => ClaimAt::Here {
                offset: self.number()?,
                len: self.length()?,
            },
            2 => ClaimAt::At {
                position: Position(self.number()?),
                len: self.length()?,
            },
            _ => return Err(RecordError("it has an unknown claim")),
        };
        let claim_len = match at {
            ClaimAt::None => 0,
            ClaimAt::Here { len, .. } | ClaimAt::At { len, .. } => u64::from(len),
        };
        visit.group(connection, attributes, entry, at);
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

    fn text(&mut self) -> Result<&'b str, RecordError> {
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

    fn number(&mut self) -> Result<u64, RecordError> {
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
