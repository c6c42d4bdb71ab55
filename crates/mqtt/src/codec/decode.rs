//! Bytes to packets.

use super::{
    CONNECT, Connect, DISCONNECT, DecodeError, PINGREQ, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL,
    Packet, Publish, SUBSCRIBE, UNSUBSCRIBE, Version, Will,
};
use crate::message::Qos;
use crate::topic::check_name;

/// A packet's first byte and the bytes after its fixed header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame<'a> {
    pub(crate) first: u8,
    pub(crate) body: &'a [u8],
    /// Bytes of the whole packet in the buffer.
    pub(crate) len: usize,
}

/// The filters of a SUBSCRIBE or UNSUBSCRIBE, checked when the packet was decoded: the quality
/// asked for stands beside each filter (QoS 0 in UNSUBSCRIBE).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Filters<'a> {
    bytes: &'a [u8],
    with_qos: bool,
}

/// Finds the packet at the front of `buffer`: `Ok(Err(n))` when at least `n` bytes in all are
/// needed to go on.
///
/// # Errors
/// [`DecodeError`] as soon as the header alone shows that the packet will not be taken.
pub(crate) fn frame(
    buffer: &[u8],
    bytes_max: usize,
) -> Result<Result<Frame<'_>, usize>, DecodeError> {
    let Some((&first, rest)) = buffer.split_first() else {
        return Ok(Err(2));
    };
    let mut length = 0usize;
    for index in 0..4 {
        let Some(&byte) = rest.get(index) else {
            return Ok(Err(index + 2));
        };
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            if length > bytes_max {
                return Err(DecodeError::TooLarge {
                    bytes: length,
                    bytes_max,
                });
            }
            let start = index + 2;
            let end = start + length;
            return Ok(match buffer.get(start..end) {
                Some(body) => Ok(Frame {
                    first,
                    body,
                    len: end,
                }),
                None => Err(end),
            });
        }
    }
    Err(DecodeError::Malformed(
        "remaining length of more than four bytes",
    ))
}

/// Decodes one framed packet.
///
/// # Errors
/// [`DecodeError`]: the link cannot go on.
pub(crate) fn decode(frame: Frame<'_>) -> Result<Packet<'_>, DecodeError> {
    let (kind, flags) = (frame.first >> 4, frame.first & 0x0f);
    if kind == PUBLISH {
        return decode_publish(frame.first, frame.body, "").map(Packet::Publish);
    }
    let flags_expected = match kind {
        PUBREL | SUBSCRIBE | UNSUBSCRIBE => 0b0010,
        _ => 0,
    };
    if flags != flags_expected {
        return Err(DecodeError::Malformed("reserved flags of the fixed header"));
    }
    let mut body = Reader(frame.body);
    let packet = match kind {
        CONNECT => Packet::Connect(connect(&mut body)?),
        PUBACK => Packet::Puback(body.packet_id()?),
        PUBREC => Packet::Pubrec(body.packet_id()?),
        PUBREL => Packet::Pubrel(body.packet_id()?),
        PUBCOMP => Packet::Pubcomp(body.packet_id()?),
        SUBSCRIBE => Packet::Subscribe {
            id: body.packet_id()?,
            filters: filters(&mut body, true)?,
        },
        UNSUBSCRIBE => Packet::Unsubscribe {
            id: body.packet_id()?,
            filters: filters(&mut body, false)?,
        },
        PINGREQ => Packet::Pingreq,
        DISCONNECT => Packet::Disconnect,
        other => return Err(DecodeError::UnexpectedType(other)),
    };
    if !body.0.is_empty() {
        return Err(DecodeError::Malformed("bytes after the end of the packet"));
    }
    Ok(packet)
}

/// Decodes a PUBLISH: the hot path. The topic is checked to be a name, unless it is `known`, the
/// topic of an earlier packet: checking text again costs more than all else here.
///
/// # Errors
/// [`DecodeError`]: the link cannot go on.
pub(crate) fn decode_publish<'a>(
    first: u8,
    body: &'a [u8],
    known: &'a str,
) -> Result<Publish<'a>, DecodeError> {
    let qos = Qos::from_bits((first >> 1) & 0b11).ok_or(DecodeError::Malformed("QoS 3"))?;
    let (retain, dup) = (first & 1 != 0, first & 8 != 0);
    if dup && qos == Qos::AtMostOnce {
        return Err(DecodeError::Malformed("DUP on QoS 0"));
    }
    let mut body = Reader(body);
    let bytes = body.bytes()?;
    let topic = if bytes == known.as_bytes() && !known.is_empty() {
        known
    } else {
        let topic = std::str::from_utf8(bytes).map_err(|_| NOT_UTF8)?;
        // Which also finds U+0000.
        check_name(topic).map_err(|_| DecodeError::Malformed("topic of a PUBLISH"))?;
        topic
    };
    let id = if qos == Qos::AtMostOnce {
        0
    } else {
        body.packet_id()?
    };
    Ok(Publish {
        topic,
        payload: body.0,
        qos,
        retain,
        dup,
        id,
    })
}

impl<'a> Iterator for Filters<'a> {
    type Item = (&'a str, Qos);

    fn next(&mut self) -> Option<(&'a str, Qos)> {
        let mut reader = Reader(self.bytes);
        let filter = reader.text().ok()?;
        let bits = if self.with_qos {
            reader.byte().ok()?
        } else {
            0
        };
        self.bytes = reader.0;
        Qos::from_bits(bits).map(|qos| (filter, qos))
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u16, DecodeError> {
        let (bytes, rest) = self.0.split_first_chunk::<2>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    fn packet_id(&mut self) -> Result<u16, DecodeError> {
        match self.number()? {
            0 => Err(DecodeError::Malformed("packet identifier 0")),
            id => Ok(id),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::from(self.number()?);
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Text as section 1.5.3 allows it: UTF-8 without surrogates and without U+0000.
    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes).map_err(|_| NOT_UTF8)?;
        if memchr::memchr(0, bytes).is_some() {
            return Err(DecodeError::Malformed("U+0000 in a text"));
        }
        Ok(text)
    }
}

fn connect<'a>(body: &mut Reader<'a>) -> Result<Connect<'a>, DecodeError> {
    let name = body.bytes()?;
    let level = body.byte()?;
    let version = match (name, level) {
        (b"MQTT", 4) => Version::V311,
        (b"MQIsdp", 3) => Version::V31,
        (b"MQTT" | b"MQIsdp", other) => return Err(DecodeError::UnsupportedVersion(other)),
        _ => return Err(DecodeError::Malformed("protocol name")),
    };
    let flags = body.byte()?;
    let keep_alive_s = body.number()?;
    let bit = |n: u8| flags & (1 << n) != 0;
    if bit(0) {
        return Err(DecodeError::Malformed("reserved flag of CONNECT"));
    }
    let client_id = body.text()?;
    let will_qos = Qos::from_bits((flags >> 3) & 0b11);
    let will = if bit(2) {
        let qos = will_qos.ok_or(DecodeError::Malformed("will of QoS 3"))?;
        let topic = body.text()?;
        if check_name(topic).is_err() {
            return Err(DecodeError::Malformed("topic of the will"));
        }
        Some(Will {
            topic,
            payload: body.bytes()?,
            qos,
            retain: bit(5),
        })
    } else if will_qos != Some(Qos::AtMostOnce) || bit(5) {
        return Err(DecodeError::Malformed("will flags without a will"));
    } else {
        None
    };
    if bit(6) && !bit(7) && version == Version::V311 {
        return Err(DecodeError::Malformed("password without user name"));
    }
    let username = if bit(7) { Some(body.text()?) } else { None };
    let password = if bit(6) { Some(body.bytes()?) } else { None };
    let clean_session = bit(1);
    Ok(Connect {
        version,
        clean_session,
        keep_alive_s,
        client_id,
        will,
        username,
        password,
    })
}

/// Checks all filters now, so that a packet is taken whole or not at all.
fn filters<'a>(body: &mut Reader<'a>, with_qos: bool) -> Result<Filters<'a>, DecodeError> {
    let bytes = body.0;
    if bytes.is_empty() {
        return Err(DecodeError::Malformed("no filter"));
    }
    while !body.0.is_empty() {
        body.text()?;
        if with_qos && Qos::from_bits(body.byte()?).is_none() {
            return Err(DecodeError::Malformed("QoS of a filter"));
        }
    }
    Ok(Filters { bytes, with_qos })
}

const SHORT: DecodeError = DecodeError::Malformed("a field reaches past the end");
const NOT_UTF8: DecodeError = DecodeError::Malformed("not UTF-8");
