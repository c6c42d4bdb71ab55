//! Chunks of OPC UA's TCP mapping (Part 6, 6.7 and 7.1); what protects them is `guard`'s.
//!
//! | chunk | bytes behind its head |
//! | --- | --- |
//! | `HEL`, `ACK` | version, bytes of a chunk either way, bytes and chunks of a message; `HEL`: the endpoint |
//! | `ERR` | status, reason |
//! | `OPN` | channel, policy, sender's certificate, receiver's thumbprint (both absent without security), sequence, request, message |
//! | `MSG`, `CLO` | channel, token, sequence, request, a part of the message |
//!
//! A head is three letters, `F` for the last chunk of a message, `C` for one before or `A` for a
//! message given up, and the chunk's whole length.

use std::borrow::Cow;

use super::Fault;
use super::guard::Guard;
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

impl Head {
    /// The letter that says which part of a message follows.
    pub(crate) fn part(&self) -> u8 {
        match (self.is_aborted, self.is_last) {
            (true, _) => b'A',
            (false, true) => b'F',
            (false, false) => b'C',
        }
    }
}

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

/// The chunk that opens a channel.
pub(crate) fn open(
    guard: Option<&Guard>,
    sequence: u32,
    request: u32,
    message: &[u8],
) -> Result<Vec<u8>, Fault> {
    let mut rest = Writer::default();
    rest.u32(sequence);
    rest.u32(request);
    rest.raw(message);
    let rest = rest.into_bytes();
    if let Some(guard) = guard {
        return guard.seal_opening(0, &rest);
    }
    let mut body = Writer::default();
    body.u32(0);
    body.text(POLICY_NONE);
    body.null();
    body.null();
    body.raw(&rest);
    Ok(chunk(*b"OPN", b'F', &body.into_bytes()))
}

/// Reads the answer to it: the message, which says the channel once more.
pub(crate) fn opened<'b>(
    guard: Option<&mut Guard>,
    body: &'b [u8],
) -> Result<Cow<'b, [u8]>, Fault> {
    if let Some(guard) = guard {
        return guard.open_opening(body).map(Cow::Owned);
    }
    let mut body = Reader::new(body);
    body.u32()?;
    let policy = body.text()?;
    body.bytes()?;
    body.bytes()?;
    body.u32()?;
    body.u32()?;
    match policy == POLICY_NONE {
        true => Ok(Cow::Borrowed(body.rest())),
        false => Err(Damaged("the channel has another policy than was asked for").into()),
    }
}

/// A message in as many chunks as the server wants; `sequence` is counted on.
///
/// # Errors
/// When the server does not take so much.
pub(crate) fn message(
    guard: Option<&Guard>,
    letters: [u8; 3],
    way: Way,
    sequence: &mut u32,
    request: u32,
    message: &[u8],
    bounds: &Bounds,
) -> Result<Vec<u8>, Fault> {
    let room = match guard {
        Some(guard) => guard.room(bounds.chunk_bytes),
        None => bounds.chunk_bytes - HEAD_BYTES - WAY_BYTES - SEQUENCE_HEAD_BYTES,
    };
    let count = message.len().div_ceil(room).max(1);
    let is_over = |most: usize, is: usize| most != 0 && is > most;
    if is_over(bounds.message_bytes, message.len()) || is_over(bounds.chunks, count) {
        return Err(Fault::TooLarge);
    }
    let mut bytes = Vec::with_capacity(message.len() + count * (bounds.chunk_bytes - room));
    for (index, part) in message.chunks(room).enumerate() {
        let mut clear = Writer::default();
        clear.u32(way.channel);
        clear.u32(way.token);
        let mut rest = Writer::default();
        rest.u32(*sequence);
        rest.u32(request);
        rest.raw(part);
        *sequence = sequence.wrapping_add(1);
        let last = if index + 1 == count { b'F' } else { b'C' };
        let (mut clear, rest) = (clear.into_bytes(), rest.into_bytes());
        bytes.extend(match guard {
            Some(guard) => guard.seal(letters, last, &clear, &rest),
            None => {
                clear.extend(rest);
                chunk(letters, last, &clear)
            }
        });
    }
    Ok(bytes)
}

impl Assembly {
    /// Takes a chunk of the answer to `request`; gives the message when it is whole.
    pub(crate) fn add(
        &mut self,
        guard: Option<&mut Guard>,
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
        let body = match guard {
            Some(guard) => Cow::Owned(guard.open(head, body)?),
            None => Cow::Borrowed(body),
        };
        let mut body = Reader::new(&body);
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
    let mut bytes = chunk_head(letters, part, body.len());
    bytes.extend_from_slice(body);
    bytes
}

/// A chunk's beginning: so many bytes follow it.
pub(crate) fn chunk_head(letters: [u8; 3], part: u8, body_bytes: usize) -> Vec<u8> {
    let mut bytes = Writer::with_capacity(HEAD_BYTES + body_bytes);
    bytes.raw(&letters);
    bytes.u8(part);
    // Chunks are bounded far below.
    bytes.u32((HEAD_BYTES + body_bytes) as u32);
    bytes.into_bytes()
}

/// Bytes of a chunk's head.
pub(crate) const HEAD_BYTES: usize = 8;

/// No security.
pub(crate) const POLICY_NONE: &str = "http://opcfoundation.org/UA/SecurityPolicy#None";

/// Bytes of channel and token.
pub(crate) const WAY_BYTES: usize = 8;

/// Bytes of sequence and request.
pub(crate) const SEQUENCE_HEAD_BYTES: usize = 8;

/// Bytes of a chunk that every server takes.
const CHUNK_BYTES_LEAST: usize = 1_024;
