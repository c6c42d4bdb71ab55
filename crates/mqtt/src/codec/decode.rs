//! Bytes to packets.

use super::connect::connect;
use super::properties::{
    AUTH_DATA, AUTH_METHOD, Carrier, Properties, SESSION_EXPIRY, SUBSCRIPTION_IDENTIFIER,
};
use super::reader::{NOT_UTF8, Reader};
use super::{
    AUTH, CONNECT, DISCONNECT, DecodeError, Options, PINGREQ, PUBACK, PUBCOMP, PUBLISH, PUBREC,
    PUBREL, Packet, Publish, SUBSCRIBE, UNSUBSCRIBE, Version,
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

/// The filters of a SUBSCRIBE or UNSUBSCRIBE, checked when the packet was decoded: what is asked
/// for stands beside each filter (nothing in UNSUBSCRIBE).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Filters<'a> {
    bytes: &'a [u8],
    with_options: bool,
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
pub(crate) fn decode(version: Version, frame: Frame<'_>) -> Result<Packet<'_>, DecodeError> {
    let (kind, flags) = (frame.first >> 4, frame.first & 0x0f);
    if kind == PUBLISH {
        return decode_publish(version, frame.first, frame.body, "").map(Packet::Publish);
    }
    check_flags(version, kind, flags)?;
    let mut body = Reader(frame.body);
    let packet = match kind {
        CONNECT => Packet::Connect(Box::new(connect(&mut body)?)),
        PUBACK | PUBREC | PUBREL | PUBCOMP => {
            let id = body.packet_id()?;
            let reason = reason(version, kind, &mut body)?;
            Packet::Ack { kind, id, reason }
        }
        SUBSCRIBE => {
            let id = body.packet_id()?;
            let properties = properties(version, &mut body, Carrier::Subscribe)?;
            Packet::Subscribe {
                id,
                identifier: properties.variable(SUBSCRIPTION_IDENTIFIER),
                filters: filters(version, &mut body, true)?,
            }
        }
        UNSUBSCRIBE => {
            let id = body.packet_id()?;
            properties(version, &mut body, Carrier::Unsubscribe)?;
            Packet::Unsubscribe {
                id,
                filters: filters(version, &mut body, false)?,
            }
        }
        PINGREQ => Packet::Pingreq,
        DISCONNECT => disconnect(version, &mut body)?,
        AUTH if version == Version::V5 => auth(&mut body)?,
        other => return Err(DecodeError::UnexpectedType(other)),
    };
    if !body.is_empty() {
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
    version: Version,
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
    } else if bytes.is_empty() && version == Version::V5 {
        ""
    } else {
        let topic = std::str::from_utf8(bytes).map_err(|_| NOT_UTF8)?;
        // Which also finds U+0000.
        check_name(topic).map_err(|_| DecodeError::Topic)?;
        topic
    };
    let id = if qos == Qos::AtMostOnce {
        0
    } else {
        body.packet_id()?
    };
    let properties = properties(version, &mut body, Carrier::Publish)?;
    if topic.is_empty() && properties.two(super::TOPIC_ALIAS).is_none() {
        return Err(DecodeError::Protocol("neither a topic nor an alias"));
    }
    Ok(Publish {
        topic,
        payload: body.0,
        qos,
        retain,
        dup,
        id,
        properties,
    })
}

impl<'a> Iterator for Filters<'a> {
    type Item = (&'a str, Options);

    fn next(&mut self) -> Option<(&'a str, Options)> {
        let mut reader = Reader(self.bytes);
        let filter = reader.text().ok()?;
        let byte = if self.with_options {
            reader.byte().ok()?
        } else {
            0
        };
        self.bytes = reader.0;
        Options::from_byte(byte).map(|options| (filter, options))
    }
}

/// The low four bits, which say nothing but in a PUBLISH. In 3.1 the retry of a packet set DUP.
fn check_flags(version: Version, kind: u8, flags: u8) -> Result<(), DecodeError> {
    let asks = matches!(kind, PUBREL | SUBSCRIBE | UNSUBSCRIBE);
    let expected = if asks { 0b0010 } else { 0 };
    let again = asks && version == Version::V31 && flags == 0b1010;
    if flags != expected && !again {
        return Err(DecodeError::Malformed("reserved flags of the fixed header"));
    }
    Ok(())
}

fn properties<'a>(
    version: Version,
    body: &mut Reader<'a>,
    carrier: Carrier,
) -> Result<Properties<'a>, DecodeError> {
    match version {
        Version::V5 => Properties::read(body, carrier),
        Version::V31 | Version::V311 => Ok(Properties::default()),
    }
}

/// The reason code of an acknowledgement, and its properties; both may be left out in 5.0.
fn reason(version: Version, kind: u8, body: &mut Reader<'_>) -> Result<u8, DecodeError> {
    if version != Version::V5 || body.is_empty() {
        return Ok(0);
    }
    let reason = body.byte()?;
    let known = match kind {
        PUBACK | PUBREC => matches!(
            reason,
            0 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99
        ),
        _ => matches!(reason, 0 | 0x92),
    };
    if !known {
        return Err(DecodeError::Protocol(
            "a reason code that the packet may not have",
        ));
    }
    if !body.is_empty() {
        Properties::read(body, Carrier::Acknowledgement)?;
    }
    Ok(reason)
}

fn disconnect<'a>(version: Version, body: &mut Reader<'a>) -> Result<Packet<'a>, DecodeError> {
    let (mut reason, mut session_expiry_s) = (0, None);
    if version == Version::V5 && !body.is_empty() {
        reason = body.byte()?;
        let known = matches!(
            reason,
            0 | 0x04 | 0x80..=0x83 | 0x90 | 0x93..=0x99
        );
        if !known {
            return Err(DecodeError::Protocol(
                "a reason code that the packet may not have",
            ));
        }
        if !body.is_empty() {
            session_expiry_s = Properties::read(body, Carrier::Disconnect)?.four(SESSION_EXPIRY);
        }
    }
    Ok(Packet::Disconnect {
        reason,
        session_expiry_s,
    })
}

fn auth<'a>(body: &mut Reader<'a>) -> Result<Packet<'a>, DecodeError> {
    if body.is_empty() {
        // Reason code and properties may be left out together, and then mean success, which only
        // a server says.
        return Err(DecodeError::Protocol("an AUTH of success from a client"));
    }
    let reason = body.byte()?;
    if !matches!(reason, 0x18 | 0x19) {
        return Err(DecodeError::Protocol(
            "a reason code that the packet may not have",
        ));
    }
    let properties = if body.is_empty() {
        Properties::default()
    } else {
        Properties::read(body, Carrier::Auth)?
    };
    Ok(Packet::Auth {
        reason,
        method: properties.text(AUTH_METHOD),
        data: properties.data(AUTH_DATA).unwrap_or_default(),
    })
}

/// Checks all filters now, so that a packet is taken whole or not at all.
fn filters<'a>(
    version: Version,
    body: &mut Reader<'a>,
    with_options: bool,
) -> Result<Filters<'a>, DecodeError> {
    let bytes = body.0;
    if bytes.is_empty() {
        return Err(DecodeError::Protocol("no filter"));
    }
    while !body.is_empty() {
        let filter = body.text()?;
        if !with_options {
            continue;
        }
        let byte = body.byte()?;
        let options = Options::from_byte(byte).ok_or(OPTIONS)?;
        if version != Version::V5 && byte > 2 {
            return Err(OPTIONS);
        }
        if options.no_local && filter.starts_with("$share/") {
            return Err(DecodeError::Protocol("no-local on a shared subscription"));
        }
    }
    Ok(Filters {
        bytes,
        with_options,
    })
}

const OPTIONS: DecodeError = DecodeError::Malformed("QoS of a filter, or its reserved bits");
