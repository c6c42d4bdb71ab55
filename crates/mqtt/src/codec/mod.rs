//! MQTT packets: bytes in, borrowed values out, and back. No IO, no state, no allocation that a
//! peer can size.
//!
//! ```text
//! byte 0      packet type (high four bits) and flags (low four)
//! bytes 1..   remaining length, 7 bits a byte, low first, at most four bytes
//! then        variable header and payload, remaining length bytes
//! ```
//! Follows MQTT 3.1.1 (OASIS, 2014) sections 2 and 3, which 3.1 shares but for its protocol name.
//! A CONNECT is read far enough to tell its version; packets of 5.0 differ by their properties,
//! so whatever is read or written after CONNECT is given the [`Version`].

mod decode;
mod encode;

pub(crate) use decode::{Filters, decode, decode_publish, frame};
pub(crate) use encode::{ack, connack, pingresp, publish, publish_bytes, suback, unsuback};

use crate::message::Qos;

/// The protocol that a link speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 3.1: `MQIsdp`, level 3.
    V31,
    /// 3.1.1: `MQTT`, level 4.
    V311,
}

/// One packet that a client may send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Packet<'a> {
    Connect(Connect<'a>),
    Publish(Publish<'a>),
    Puback(u16),
    Pubrec(u16),
    Pubrel(u16),
    Pubcomp(u16),
    Subscribe { id: u16, filters: Filters<'a> },
    Unsubscribe { id: u16, filters: Filters<'a> },
    Pingreq,
    Disconnect,
}

/// What a CONNECT says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Connect<'a> {
    pub(crate) version: Version,
    pub(crate) clean_session: bool,
    pub(crate) keep_alive_s: u16,
    pub(crate) client_id: &'a str,
    pub(crate) will: Option<Will<'a>>,
    pub(crate) username: Option<&'a str>,
    pub(crate) password: Option<&'a [u8]>,
}

/// The message to publish when the link ends without DISCONNECT.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Will<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
}

/// What a PUBLISH says; `id` is 0 for QoS 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Publish<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) id: u16,
}

/// Why bytes are no packet; the peer's fault, and the end of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DecodeError {
    /// A fifth length byte, or bits that the protocol reserves.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// Longer than this server takes.
    #[error("packet of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// A CONNECT of a protocol that this server does not speak.
    #[error("protocol level {0} is not spoken here")]
    UnsupportedVersion(u8),
    /// A packet that only servers send.
    #[error("packet type {0} does not come from clients")]
    UnexpectedType(u8),
}

/// CONNACK's return codes (3.1.1 section 3.2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectCode {
    Accepted = 0,
    UnacceptableProtocol = 1,
    IdentifierRejected = 2,
    ServerUnavailable = 3,
    BadUserNameOrPassword = 4,
    NotAuthorized = 5,
}

pub(crate) const CONNECT: u8 = 1;
pub(crate) const CONNACK: u8 = 2;
pub(crate) const PUBLISH: u8 = 3;
pub(crate) const PUBACK: u8 = 4;
pub(crate) const PUBREC: u8 = 5;
pub(crate) const PUBREL: u8 = 6;
pub(crate) const PUBCOMP: u8 = 7;
pub(crate) const SUBSCRIBE: u8 = 8;
pub(crate) const SUBACK: u8 = 9;
pub(crate) const UNSUBSCRIBE: u8 = 10;
pub(crate) const UNSUBACK: u8 = 11;
pub(crate) const PINGREQ: u8 = 12;
pub(crate) const PINGRESP: u8 = 13;
pub(crate) const DISCONNECT: u8 = 14;
/// SUBACK's word for a filter that was refused.
pub(crate) const SUBSCRIBE_FAILED: u8 = 0x80;

#[cfg(test)]
mod tests;
