//! Chunks of OPC UA's TCP mapping without security (Part 6, 6.7 and 7.1).
//!
//! | chunk | bytes behind its head |
//! | --- | --- |
//! | `HEL`, `ACK` | version, bytes of a chunk either way, bytes and chunks of a message; `HEL`: the endpoint |
//! | `ERR` | status, reason |
//! | `OPN` | channel, policy, two absent certificates, sequence, request, message |
//! | `MSG`, `CLO` | channel, token, sequence, request, a part of the message |
//!
//! A head is three letters, `F` for the last chunk of a message, `C` for one before or `A` for a
//! message given up, and the chunk's whole length.

use super::Fault;
use super::wire::{Damaged, Reader};
use super::writer::Writer;
use crate::net::limits::{OPC_CHUNK_BYTES_MAX, OPC_MESSAGE_BYTES_MAX};

/// A chunk's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) letters: [u8; 3],
    pub(crate) is_last: bool,
    /// Whether the message is given up.
    pub(crate) is_aborted: bool,
    /// Bytes that follow.
    pub(crate) len: usize,
}

/// What the server takes; zero is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    chunk_bytes: usize,
    message_bytes: usize,
    chunks: usize,
}

/// Where messages go: the channel and its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) channel: u32,
    pub(crate) token: u32,
}

/// Parts of an answer.
#[derive(Debug, Default)]
pub(crate) struct Assembly(Vec<u8>);

/// Reads a head.
pub(crate) fn head(bytes: [u8; HEAD_BYTES]) -> Result<Head, Damaged> {
    let [a, b, c, part, len @ ..] = bytes;
    let len = u32::from_le_bytes(len) as usize;
    if !matches!(part, b'F' | b'C' | b'A') {
        return Err(Damaged("it is no OPC UA"));
    }
    if !(HEAD_BYTES..=OPC_CHUNK_BYTES_MAX).contains(&len) {
        return Err(Damaged("a chunk has a length that cannot be"));
    }
    Ok(Head {
        letters: [a, b, c],
        is_last: part == b'F',
        is_aborted: part == b'A',
        len: len - HEAD_BYTES,
    })
}

/// The first chunk of a link.
pub(crate) fn hello(endpoint: &str) -> Vec<u8> {
    let mut body = Writer::default();
    body.u32(0);
    body.u32(OPC_CHUNK_BYTES_MAX as u32);
    body.u32(OPC_CHUNK_BYTES_MAX as u32);
    body.u32(OPC_MESSAGE_BYTES_MAX as u32);
    body.u32(0);
    body.text(endpoint);
    chunk(*b"HEL", b'F', &body.into_bytes())
}

/// Reads the answer to it.
pub(crate) fn acknowledged(body: &[u8]) -> Result<Bounds, Damaged> {
    let mut body = Reader::new(body);
    body.u32()?;
    let takes = body.u32()? as usize;
    body.u32()?;
    let bounds = Bounds {
        chunk_bytes: takes.min(OPC_CHUNK_BYTES_MAX),
        message_bytes: body.u32()? as usize,
        chunks: body.u32()? as usize,
    };
    // The specification's least; some servers for tiny devices take less.
    if bounds.chunk_bytes < CHUNK_BYTES_LEAST {
        return Err(Damaged("the server takes next to nothing"));
    }
    Ok(bounds)
}

/// Reads what an `ERR` says.
pub(crate) fn refusal(body: &[u8]) -> Fault {
    let mut body = Reader::new(body);
    let Ok(status) = body.status() else {
        return Fault::Link("the server ends the connection".to_owned());
    };
    let reason = body.text().unwrap_or_default();
    Fault::Link(format!("the server ends the connection: {status} {reason}"))
}

/// The chunk that opens a channel without security.
pub(crate) fn open(sequence: u32, request: u32, message: &[u8]) -> Vec<u8> {
    let mut body = Writer::default();
    body.u32(0);
    body.text(POLICY_NONE);
    body.null();
    body.null();
    body.u32(sequence);
    body.u32(request);
    body.raw(message);
    chunk(*b"OPN", b'F', &body.into_bytes())
}

/// Reads the answer to it: the message, which says the channel once more.
pub(crate) fn opened(body: &[u8]) -> Result<&[u8], Fault> {
    let mut body = Reader::new(body);
    body.u32()?;
    let policy = body.text()?;
    body.bytes()?;
    body.bytes()?;
    body.u32()?;
    body.u32()?;
    match policy == POLICY_NONE {
        true => Ok(body.rest()),
        false => Err(Damaged("the channel has another policy than was asked for").into()),
    }
}

/// A message in as many chunks as the server wants; `sequence` is counted on.
///
/// # Errors
/// When the server does not take so much.
pub(crate) fn message(
    letters: [u8; 3],
    way: Way,
    sequence: &mut u32,
    request: u32,
    message: &[u8],
    bounds: &Bounds,
) -> Result<Vec<u8>, Fault> {
    let room = bounds.chunk_bytes - HEAD_BYTES - PART_HEAD_BYTES;
    let count = message.len().div_ceil(room).max(1);
    let is_over = |most: usize, is: usize| most != 0 && is > most;
    if is_over(bounds.message_bytes, message.len()) || is_over(bounds.chunks, count) {
        return Err(Fault::TooLarge);
    }
    let mut bytes = Vec::with_capacity(message.len() + count * (HEAD_BYTES + PART_HEAD_BYTES));
    for (index, part) in message.chunks(room).enumerate() {
        let mut body = Writer::default();
        body.u32(way.channel);
        body.u32(way.token);
        body.u32(*sequence);
        body.u32(request);
        body.raw(part);
        *sequence = sequence.wrapping_add(1);
        let last = if index + 1 == count { b'F' } else { b'C' };
        bytes.extend(chunk(letters, last, &body.into_bytes()));
    }
    Ok(bytes)
}

impl Assembly {
    /// Takes a chunk of the answer to `request`; gives the message when it is whole.
    pub(crate) fn add(
        &mut self,
        head: &Head,
        body: &[u8],
        way: Way,
        request: u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        match &head.letters {
            b"MSG" => {}
            b"ERR" => return Err(refusal(body)),
            _ => return Err(Damaged("a chunk is none of an answer").into()),
        }
        let mut body = Reader::new(body);
        let channel = body.u32()?;
        body.u32()?;
        body.u32()?;
        if channel != way.channel || body.u32()? != request {
            return Err(Damaged("it answers something else").into());
        }
        if head.is_aborted {
            return Err(Fault::Refused(body.status()?));
        }
        let part = body.rest();
        if self.0.len() + part.len() > OPC_MESSAGE_BYTES_MAX {
            return Err(Damaged("it is too large").into());
        }
        self.0.extend_from_slice(part);
        Ok(head.is_last.then(|| std::mem::take(&mut self.0)))
    }
}

/// Writes one chunk.
pub(crate) fn chunk(letters: [u8; 3], part: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Writer::default();
    bytes.raw(&letters);
    bytes.u8(part);
    // Chunks are bounded far below.
    bytes.u32((HEAD_BYTES + body.len()) as u32);
    bytes.raw(body);
    bytes.into_bytes()
}

/// Bytes of a chunk's head.
pub(crate) const HEAD_BYTES: usize = 8;

/// No security.
pub(crate) const POLICY_NONE: &str = "http://opcfoundation.org/UA/SecurityPolicy#None";

/// Bytes between a head and a part of a message.
const PART_HEAD_BYTES: usize = 16;

/// Bytes of a chunk that every server takes.
const CHUNK_BYTES_LEAST: usize = 1_024;
