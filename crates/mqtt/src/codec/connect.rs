//! CONNECT: the packet that tells which protocol a link speaks.

use super::properties::{
    AUTH_DATA, AUTH_METHOD, Carrier, PACKET_BYTES_MAX, Properties, RECEIVE_MAXIMUM,
    REQUEST_PROBLEM, REQUEST_RESPONSE, SESSION_EXPIRY, TOPIC_ALIAS_MAXIMUM, WILL_DELAY,
};
use super::reader::Reader;
use super::{Connect, DecodeError, Version, Will};
use crate::message::Qos;
use crate::topic::check_name;

/// Decodes the body of a CONNECT.
pub(super) fn connect<'a>(body: &mut Reader<'a>) -> Result<Connect<'a>, DecodeError> {
    let name = body.bytes()?;
    let level = body.byte()?;
    let version = match (name, level) {
        (b"MQTT", 4) => Version::V311,
        (b"MQTT", 5) => Version::V5,
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
    let properties = if version == Version::V5 {
        Properties::read(body, Carrier::Connect)?
    } else {
        Properties::default()
    };
    let client_id = body.text()?;
    let will_qos = Qos::from_bits((flags >> 3) & 0b11);
    let will = if bit(2) {
        let qos = will_qos.ok_or(DecodeError::Malformed("will of QoS 3"))?;
        Some(will(body, version, qos, bit(5))?)
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
    Ok(Connect {
        version,
        clean_start: bit(1),
        keep_alive_s,
        client_id,
        will,
        username,
        password,
        session_expiry_s: properties.four(SESSION_EXPIRY),
        receive_maximum: properties.two(RECEIVE_MAXIMUM).unwrap_or(u16::MAX),
        packet_bytes_max: properties.four(PACKET_BYTES_MAX).unwrap_or(u32::MAX),
        topic_alias_maximum: properties.two(TOPIC_ALIAS_MAXIMUM).unwrap_or(0),
        wants_response_information: properties.byte(REQUEST_RESPONSE) == Some(1),
        wants_problem_information: properties.byte(REQUEST_PROBLEM) != Some(0),
        auth_method: properties.text(AUTH_METHOD),
        auth_data: properties.data(AUTH_DATA).unwrap_or_default(),
    })
}

fn will<'a>(
    body: &mut Reader<'a>,
    version: Version,
    qos: Qos,
    retain: bool,
) -> Result<Will<'a>, DecodeError> {
    let properties = if version == Version::V5 {
        Properties::read(body, Carrier::Will)?
    } else {
        Properties::default()
    };
    let topic = body.text()?;
    if check_name(topic).is_err() {
        return Err(DecodeError::Malformed("topic of the will"));
    }
    let payload = body.bytes()?;
    if properties.is_text() && std::str::from_utf8(payload).is_err() {
        return Err(DecodeError::Protocol(
            "the will's payload is not the text that it claims",
        ));
    }
    Ok(Will {
        topic,
        payload,
        qos,
        retain,
        delay_s: properties.four(WILL_DELAY).unwrap_or(0),
        properties,
    })
}
