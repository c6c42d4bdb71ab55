//! Reading a frame's operations.

use std::sync::Arc;

use base::UnixMillis;
use journal::Position;

use super::{
    Check, ClaimAt, Group, LIKE_BYTES_MAX, LIKE_COUNT_MAX, OP_CONTENT, OP_COPY, OP_COUNTER,
    OP_EVENTS, OP_MOVE, OP_PART, OP_PIECE, OP_PIECES, OP_PUT, OP_PUT_LIKE, OP_REMOVE, OP_ROPE,
    OP_STATE, OP_SWAP_IN, OP_SWAP_OUT, OP_SWAPPED, RecordError, SwapAt, ViewAt, Visit,
};
use crate::flowfile::Attributes;

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

/// Where the first of the pieces stands that a commit with these operations needs, and how many
/// there are; they are named before all but the content.
pub(crate) fn needed_pieces(operations: &[u8]) -> Result<Option<(Position, u64)>, RecordError> {
    let mut reader = Reader { rest: operations };
    if reader.is_next(OP_CONTENT) {
        reader.number()?;
    }
    match reader.is_next(OP_PIECES) {
        true => Ok(Some((Position(reader.number()?), reader.number()?))),
        false => Ok(None),
    }
}

/// Which piece a frame with these operations is, from zero on, and where it says that piece zero
/// stands.
pub(crate) fn piece_of(operations: &[u8]) -> Result<(u64, Position), RecordError> {
    let mut reader = Reader { rest: operations };
    match reader.is_next(OP_PIECE) {
        true => Ok((reader.number()?, Position(reader.number()?))),
        false => Err(RecordError("it is no piece of a commit")),
    }
}

/// Reads operations, telling `visit` each.
pub(crate) fn read(operations: &[u8], visit: &mut dyn Visit) -> Result<(), RecordError> {
    let mut reader = Reader { rest: operations };
    let mut before: Option<Group<'_>> = None;
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
            OP_PUT => {
                let group = reader.group()?;
                reader.put(&group, visit)?;
                before = Some(group);
            }
            OP_PUT_LIKE => {
                let unknown = RecordError("a group is like none");
                let group = reader.group_like(before.take().ok_or(unknown)?)?;
                reader.put(&group, visit)?;
                before = Some(group);
            }
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
            OP_PIECE | OP_PIECES => {
                reader.number()?;
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
            attributes: Arc::new(attributes),
            entry,
        })
    }

    /// The group before, changed.
    fn group_like(&mut self, before: Group<'b>) -> Result<Group<'b>, RecordError> {
        const OUTSIDE: RecordError = RecordError("a group differs where there is nothing");
        let mut group = before;
        let attributes = Arc::make_mut(&mut group.attributes);
        if attributes.records().len() > LIKE_COUNT_MAX {
            return Err(RecordError("a group is like a larger one than may be"));
        }
        group.entry.0 = group.entry.0.wrapping_add(self.signed()?);
        let mut next = 0usize;
        for _ in 0..self.number()? {
            let skipped = usize::try_from(self.number()?).map_err(|_| OUTSIDE)?;
            let index = next.checked_add(skipped).ok_or(OUTSIDE)?;
            let kept = usize::try_from(self.number()?).map_err(|_| OUTSIDE)?;
            let rest = self.text()?;
            let old = attributes.value_at(index).ok_or(OUTSIDE)?;
            let kept = old.get(..kept).ok_or(OUTSIDE)?;
            let value = [kept, rest].concat();
            attributes.set_at(index, value);
            next = index + 1;
        }
        if attributes.bytes() > LIKE_BYTES_MAX {
            return Err(RecordError("a group is like a larger one than may be"));
        }
        Ok(group)
    }

    /// Takes the next operation if it is this one.
    fn is_next(&mut self, op: u8) -> bool {
        match self.rest.split_first() {
            Some((next, rest)) if *next == op => {
                self.rest = rest;
                true
            }
            _ => false,
        }
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

    /// What follows a group's attributes: its claim and its FlowFiles.
    fn put(&mut self, group: &Group<'b>, visit: &mut dyn Visit) -> Result<(), RecordError> {
        let (at, check) = self.claim()?;
        let claim_len = u64::from(at.len());
        visit.group(group.clone(), at, check);
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
