//! Packets to bytes, appended to a connection's output buffer.

use super::properties::{
    ASSIGNED_CLIENT_ID, AUTH_DATA, AUTH_METHOD, MESSAGE_EXPIRY, PACKET_BYTES_MAX, REASON_STRING,
    RECEIVE_MAXIMUM, RESPONSE_INFORMATION, SERVER_KEEP_ALIVE, SESSION_EXPIRY,
    SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, TOPIC_ALIAS_MAXIMUM,
};
use super::{
    AUTH, CONNACK, DISCONNECT, PINGRESP, PUBLISH, PUBREL, Properties, SUBACK, UNSUBACK, Version,
};
use crate::message::Qos;
use crate::reason::ReasonCode;

/// A PUBLISH to a client. What only 5.0 has is left out for the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    /// Empty when the alias is known to the client already.
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    /// Ignored for QoS 0.
    pub(crate) id: u16,
    /// Of these, those that travel with a message are written.
    pub(crate) properties: Properties<'a>,
    /// What is left of the message's life.
    pub(crate) expiry_s: Option<u32>,
    /// Of the subscriptions that the message is sent for.
    pub(crate) identifiers: &'a [u32],
    /// 0 for none.
    pub(crate) alias: u16,
}

/// A CONNACK; everything but the first two only in 5.0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connack<'a> {
    pub(crate) session_present: bool,
    pub(crate) session_expiry_s: Option<u32>,
    pub(crate) receive_maximum: u16,
    pub(crate) packet_bytes_max: u32,
    pub(crate) topic_alias_maximum: u16,
    pub(crate) assigned_client_id: Option<&'a str>,
    pub(crate) server_keep_alive_s: Option<u16>,
    pub(crate) response_information: Option<&'a str>,
    pub(crate) auth: Option<(&'a str, &'a [u8])>,
}

impl<'a> Outgoing<'a> {
    /// A message of its first delivery, with nothing of 5.0.
    #[cfg(test)]
    pub(crate) fn plain(
        topic: &'a str,
        payload: &'a [u8],
        qos: Qos,
        retain: bool,
        id: u16,
    ) -> Self {
        Outgoing {
            topic,
            payload,
            qos,
            retain,
            dup: false,
            id,
            properties: Properties::default(),
            expiry_s: None,
            identifiers: &[],
            alias: 0,
        }
    }

    fn property_bytes(&self) -> usize {
        let travelling: usize = self.properties.travelling().map(<[u8]>::len).sum();
        let expiry = if self.expiry_s.is_some() { 5 } else { 0 };
        let alias = if self.alias != 0 { 3 } else { 0 };
        let identifiers = self
            .identifiers
            .iter()
            .map(|id| 1 + variable_bytes(*id as usize));
        travelling + expiry + alias + identifiers.sum::<usize>()
    }

    fn write_properties(&self, out: &mut Vec<u8>) {
        for raw in self.properties.travelling() {
            out.extend_from_slice(raw);
        }
        if let Some(expiry_s) = self.expiry_s {
            four(out, MESSAGE_EXPIRY, expiry_s);
        }
        if self.alias != 0 {
            two(out, TOPIC_ALIAS, self.alias);
        }
        for identifier in self.identifiers {
            out.push(SUBSCRIPTION_IDENTIFIER);
            variable(out, *identifier as usize);
        }
    }
}

/// Writes a PUBLISH.
///
/// The topic is at most 65,535 bytes and the whole packet within MQTT's four length bytes, which
/// whoever took the message in has checked.
pub(crate) fn publish(out: &mut Vec<u8>, version: Version, message: &Outgoing<'_>) {
    let Outgoing { qos, id, .. } = *message;
    let first =
        PUBLISH << 4 | u8::from(message.dup) << 3 | qos.bits() << 1 | u8::from(message.retain);
    let id_bytes = if qos == Qos::AtMostOnce { 0 } else { 2 };
    let plain = 2 + message.topic.len() + id_bytes + message.payload.len();
    let is_v5 = version == Version::V5;
    let property_bytes = if is_v5 { message.property_bytes() } else { 0 };
    let block = if is_v5 {
        variable_bytes(property_bytes) + property_bytes
    } else {
        0
    };
    fixed_header(out, first, plain + block);
    text(out, message.topic);
    if qos != Qos::AtMostOnce {
        out.extend_from_slice(&id.to_be_bytes());
    }
    if is_v5 {
        variable(out, property_bytes);
        if property_bytes > 0 {
            message.write_properties(out);
        }
    }
    out.extend_from_slice(message.payload);
}

/// Bytes that [`publish`] writes at most, for a topic, payload and properties of these lengths;
/// subscription identifiers and an alias come on top.
pub(crate) fn publish_bytes(topic: usize, payload: usize, properties: usize) -> usize {
    topic + payload + properties + 18
}

/// Writes a PUBACK, PUBREC, PUBREL or PUBCOMP; before 5.0 without its reason.
pub(crate) fn ack(out: &mut Vec<u8>, version: Version, kind: u8, id: u16, reason: ReasonCode) {
    let flags = if kind == PUBREL { 0b0010 } else { 0 };
    let [high, low] = id.to_be_bytes();
    if version == Version::V5 && reason != ReasonCode::Success {
        out.extend_from_slice(&[kind << 4 | flags, 3, high, low, reason.byte()]);
    } else {
        out.extend_from_slice(&[kind << 4 | flags, 2, high, low]);
    }
}

/// Writes a CONNACK; a refused one never has a session present, and no properties.
pub(crate) fn connack(out: &mut Vec<u8>, version: Version, reason: ReasonCode, says: &Connack<'_>) {
    let accepted = reason == ReasonCode::Success;
    // 3.1 reserves the byte.
    let present = u8::from(says.session_present && accepted && version != Version::V31);
    if version != Version::V5 {
        out.extend_from_slice(&[CONNACK << 4, 2, present, reason.connect_return()]);
        return;
    }
    let mut properties = Vec::new();
    if accepted {
        connack_properties(&mut properties, says);
    }
    let length = 2 + variable_bytes(properties.len()) + properties.len();
    fixed_header(out, CONNACK << 4, length);
    out.extend_from_slice(&[present, reason.byte()]);
    variable(out, properties.len());
    out.extend_from_slice(&properties);
}

fn connack_properties(out: &mut Vec<u8>, says: &Connack<'_>) {
    if let Some(expiry_s) = says.session_expiry_s {
        four(out, SESSION_EXPIRY, expiry_s);
    }
    two(out, RECEIVE_MAXIMUM, says.receive_maximum);
    four(out, PACKET_BYTES_MAX, says.packet_bytes_max);
    if says.topic_alias_maximum > 0 {
        two(out, TOPIC_ALIAS_MAXIMUM, says.topic_alias_maximum);
    }
    if let Some(client_id) = says.assigned_client_id {
        out.push(ASSIGNED_CLIENT_ID);
        text(out, client_id);
    }
    if let Some(keep_alive_s) = says.server_keep_alive_s {
        two(out, SERVER_KEEP_ALIVE, keep_alive_s);
    }
    if let Some(information) = says.response_information {
        out.push(RESPONSE_INFORMATION);
        text(out, information);
    }
    if let Some((method, data)) = says.auth {
        auth_properties(out, method, data);
    }
}

/// Writes a SUBACK with one code for each filter.
pub(crate) fn suback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    coded(out, version, SUBACK, id, codes);
}

/// Writes an UNSUBACK; the codes, one for each filter, only in 5.0.
pub(crate) fn unsuback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    let codes = if version == Version::V5 { codes } else { &[] };
    coded(out, version, UNSUBACK, id, codes);
}

/// Writes a DISCONNECT of 5.0, which alone has one from the server.
pub(crate) fn disconnect(out: &mut Vec<u8>, reason: ReasonCode, reason_string: Option<&str>) {
    let Some(reason_string) = reason_string else {
        out.extend_from_slice(&[DISCONNECT << 4, 1, reason.byte()]);
        return;
    };
    let property_bytes = 3 + reason_string.len();
    fixed_header(
        out,
        DISCONNECT << 4,
        1 + variable_bytes(property_bytes) + property_bytes,
    );
    out.push(reason.byte());
    variable(out, property_bytes);
    out.push(REASON_STRING);
    text(out, reason_string);
}

/// Writes an AUTH.
pub(crate) fn auth(out: &mut Vec<u8>, reason: ReasonCode, method: &str, data: &[u8]) {
    let mut properties = Vec::new();
    auth_properties(&mut properties, method, data);
    let length = 1 + variable_bytes(properties.len()) + properties.len();
    fixed_header(out, AUTH << 4, length);
    out.push(reason.byte());
    variable(out, properties.len());
    out.extend_from_slice(&properties);
}

/// Writes a PINGRESP.
pub(crate) fn pingresp(out: &mut Vec<u8>) {
    out.extend_from_slice(&[PINGRESP << 4, 0]);
}

/// Writes a first byte and a remaining length.
pub(crate) fn fixed_header(out: &mut Vec<u8>, first: u8, length: usize) {
    out.push(first);
    variable(out, length);
}

fn coded(out: &mut Vec<u8>, version: Version, kind: u8, id: u16, codes: &[u8]) {
    let block = usize::from(version == Version::V5);
    fixed_header(out, kind << 4, 2 + block + codes.len());
    out.extend_from_slice(&id.to_be_bytes());
    if block > 0 {
        out.push(0);
    }
    out.extend_from_slice(codes);
}

fn auth_properties(out: &mut Vec<u8>, method: &str, data: &[u8]) {
    out.push(AUTH_METHOD);
    text(out, method);
    if !data.is_empty() {
        out.push(AUTH_DATA);
        bytes(out, data);
    }
}

/// A variable byte integer.
pub(super) fn variable(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

fn variable_bytes(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

fn two(out: &mut Vec<u8>, id: u8, number: u16) {
    out.push(id);
    out.extend_from_slice(&number.to_be_bytes());
}

fn four(out: &mut Vec<u8>, id: u8, number: u32) {
    out.push(id);
    out.extend_from_slice(&number.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    bytes(out, text.as_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length =
        u16::try_from(bytes.len()).expect("what is sent is checked to fit its length field");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}
