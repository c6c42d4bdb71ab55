//! Writes an answer by hand that names where record batches lie between its fields.

use bytes::{BufMut, BytesMut};

use super::reply::{Answer, Call};
use super::unsent::Piece;

/// Gathers an answer: fields are written together, batches are named by where they lie.
pub(super) struct Writer {
    is_flexible: bool,
    /// Fields that are written since the last piece.
    pub(super) head: BytesMut,
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Writer {
    /// Begins the answer to a call, with all that stands before its body.
    pub(super) fn new(call: &Call, is_flexible: bool) -> Self {
        let mut head = BytesMut::with_capacity(HEAD_BYTES);
        head.put_i32(0);
        head.put_i32(call.correlation);
        if is_flexible {
            head.put_u8(0);
        }
        Writer {
            is_flexible,
            head,
            pieces: Vec::new(),
            bytes: 0,
        }
    }

    /// Bytes behind their length: pieces, which lie in the journal or in memory.
    pub(super) fn records(&mut self, bytes: usize, pieces: impl Iterator<Item = Piece>) {
        if self.is_flexible {
            self.varint(bytes + 1);
        } else {
            // The sum stays below the fetch's bound plus one batch.
            self.head.put_i32(i32::try_from(bytes).unwrap_or(i32::MAX));
        }
        if bytes > 0 {
            self.flush();
            self.bytes += bytes;
            self.pieces.extend(pieces);
        }
    }

    fn flush(&mut self) {
        if !self.head.is_empty() {
            let head = self.head.split().freeze();
            self.bytes += head.len();
            self.pieces.push(Piece::Bytes(head));
        }
    }

    pub(super) fn finish(mut self) -> Answer {
        let length = self.bytes + self.head.len() - LENGTH_BYTES;
        let length = i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
        if self.pieces.is_empty() {
            self.head[..LENGTH_BYTES].copy_from_slice(&length);
            return Answer::Whole(self.head.freeze());
        }
        self.flush();
        if let Some(Piece::Bytes(first)) = self.pieces.first_mut() {
            let mut bytes = match std::mem::take(first).try_into_mut() {
                Ok(bytes) => bytes,
                Err(bytes) => BytesMut::from(&bytes[..]),
            };
            bytes[..LENGTH_BYTES].copy_from_slice(&length);
            *first = bytes.freeze();
        }
        Answer::Pieces(self.pieces)
    }

    pub(super) fn count(&mut self, count: usize) {
        if self.is_flexible {
            self.varint(count + 1);
        } else {
            self.head.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.is_flexible {
            self.varint(text.len() + 1);
        } else {
            self.head
                .put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        }
        self.head.put_slice(text.as_bytes());
    }

    /// A text that may be absent.
    pub(super) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None if self.is_flexible => self.head.put_u8(0),
            None => self.head.put_i16(-1),
        }
    }

    pub(super) fn no_tags(&mut self) {
        if self.is_flexible {
            self.head.put_u8(0);
        }
    }

    fn varint(&mut self, value: usize) {
        let mut value = value;
        while value >= 0x80 {
            self.head.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.head.put_u8((value & 0x7f) as u8);
    }
}

/// Room for the fields around the batches of a usual answer.
const HEAD_BYTES: usize = 256;

/// The answer's length, in front of it.
const LENGTH_BYTES: usize = 4;
