//! What a frame of a statement's input holds: the messages of one turn.
//!
//! | kind | payload, version 1 |
//! | --- | --- |
//! | 1 messages | number of the first u64, count u32, little-endian; then, integers as [`Encoder::short`] writes them, each: topic (bytes; none where it is that of the one before), received (i64, milliseconds since the one before, of the first since 1970), payload (bytes) |

use base::UnixMillis;
use journal::FrameRef;
use mqtt::Message;

use crate::codec::{Decoder, Encoder};

/// One message as it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<'a> {
    /// The topic it was published to.
    pub topic: &'a str,
    /// The payload as it came.
    pub payload: &'a [u8],
    /// When the server read it.
    pub received: UnixMillis,
}

/// The payload of messages with the numbers from `first` on, and how many they are.
pub fn encode<'m>(first: u64, messages: impl Iterator<Item = &'m Message<'m>>) -> (Vec<u8>, u64) {
    let mut head = first.to_le_bytes().to_vec();
    head.extend_from_slice(&[0; 4]);
    let mut out = Encoder::short(head);
    let (mut topic, mut received, mut count) = ("", 0, 0_u32);
    for message in messages {
        let is_same = message.topic == topic;
        out.bytes(if is_same {
            b""
        } else {
            message.topic.as_bytes()
        });
        out.i64(message.received.0.wrapping_sub(received));
        out.bytes(message.payload);
        (topic, received) = (message.topic, message.received.0);
        count += 1;
    }
    out.0[8..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
    (out.0, count.into())
}

/// The number of the first message and how many there are; `None` for another kind of frame.
pub fn numbers(frame: &FrameRef<'_>) -> Option<(u64, u64)> {
    if (frame.kind, frame.version) != (MESSAGES, VERSION) {
        return None;
    }
    let (first, count, _) = head(frame.payload)?;
    Some((first, count.into()))
}

/// The number of a payload's first message.
pub fn first(payload: &[u8]) -> Option<u64> {
    head(payload).map(|(first, ..)| first)
}

/// The number of the first message, and all messages; `None` when it is no such payload.
pub fn decode(payload: &[u8]) -> Option<(u64, Vec<Taken<'_>>)> {
    let (first, count, rest) = head(payload)?;
    let mut from = Decoder::short(rest);
    let (mut messages, mut topic, mut received) = (Vec::new(), "", 0_i64);
    for _ in 0..count {
        let named = from.bytes()?;
        if !named.is_empty() {
            topic = std::str::from_utf8(named).ok()?;
        }
        received = received.wrapping_add(from.i64()?);
        let payload = from.bytes()?;
        messages.push(Taken {
            topic,
            payload,
            received: UnixMillis(received),
        });
    }
    from.0.is_empty().then_some((first, messages))
}

fn head(payload: &[u8]) -> Option<(u64, u32, &[u8])> {
    let (first, rest) = payload.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*first), u32::from_le_bytes(*count), rest))
}

/// The kind of these frames.
pub const MESSAGES: u8 = 1;
/// Their version.
pub const VERSION: u8 = 1;

const HEAD_BYTES: usize = 12;
