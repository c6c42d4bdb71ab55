//! Packets to bytes, appended to a connection's output buffer.

use super::{CONNACK, ConnectCode, PINGRESP, PUBLISH, PUBREL, SUBACK, UNSUBACK, Version};
use crate::message::Qos;

/// Writes a PUBLISH. `id` is ignored for QoS 0.
///
/// `topic` is at most 65,535 bytes and the whole packet within MQTT's four length bytes, which
/// whoever took the message in has checked.
#[allow(clippy::too_many_arguments)]
pub(crate) fn publish(
    out: &mut Vec<u8>,
    _version: Version,
    topic: &str,
    payload: &[u8],
    qos: Qos,
    retain: bool,
    dup: bool,
    id: u16,
) {
    let first = PUBLISH << 4 | u8::from(dup) << 3 | qos.bits() << 1 | u8::from(retain);
    let id_bytes = if qos == Qos::AtMostOnce { 0 } else { 2 };
    fixed_header(out, first, 2 + topic.len() + id_bytes + payload.len());
    text(out, topic);
    if qos != Qos::AtMostOnce {
        out.extend_from_slice(&id.to_be_bytes());
    }
    out.extend_from_slice(payload);
}

/// Bytes that [`publish`] writes at most, for a topic and payload of these lengths.
pub(crate) fn publish_bytes(topic: usize, payload: usize) -> usize {
    topic + payload + 9
}

/// Writes a PUBACK, PUBREC, PUBREL or PUBCOMP.
pub(crate) fn ack(out: &mut Vec<u8>, _version: Version, kind: u8, id: u16) {
    let flags = if kind == PUBREL { 0b0010 } else { 0 };
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[kind << 4 | flags, 2, high, low]);
}

/// Writes a CONNACK; a refused one never has a session present.
pub(crate) fn connack(out: &mut Vec<u8>, session_present: bool, code: ConnectCode) {
    let present = u8::from(session_present && code == ConnectCode::Accepted);
    out.extend_from_slice(&[CONNACK << 4, 2, present, code as u8]);
}

/// Writes a SUBACK with one code for each filter.
pub(crate) fn suback(out: &mut Vec<u8>, _version: Version, id: u16, codes: &[u8]) {
    fixed_header(out, SUBACK << 4, 2 + codes.len());
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(codes);
}

/// Writes an UNSUBACK.
pub(crate) fn unsuback(out: &mut Vec<u8>, _version: Version, id: u16) {
    fixed_header(out, UNSUBACK << 4, 2);
    out.extend_from_slice(&id.to_be_bytes());
}

/// Writes a PINGRESP.
pub(crate) fn pingresp(out: &mut Vec<u8>) {
    out.extend_from_slice(&[PINGRESP << 4, 0]);
}

/// Writes a first byte and a remaining length.
pub(crate) fn fixed_header(out: &mut Vec<u8>, first: u8, mut length: usize) {
    out.push(first);
    loop {
        let byte = (length & 0x7f) as u8;
        length >>= 7;
        if length == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("topics are checked to fit their length field");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
