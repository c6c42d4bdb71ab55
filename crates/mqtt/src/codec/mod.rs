//! MQTT packets: bytes in, borrowed values out, and back. No IO, no state, no allocation that a
//! peer can size.
//!
//! ```text
//! byte 0      packet type (high four bits) and flags (low four)
//! bytes 1..   remaining length, 7 bits a byte, low first, at most four bytes
//! then        variable header and payload, remaining length bytes
//! ```
//! Follows MQTT 3.1.1 (OASIS, 2014) and 5.0 (OASIS, 2019), sections 2 and 3; 3.1 shares the form
//! of 3.1.1 but for its protocol name and a few bits. A CONNECT tells its version; packets of 5.0
//! differ by their properties and reason codes, so whatever is read or written after CONNECT is
//! given the [`Version`].

mod block;
mod connect;
mod decode;
mod encode;
mod properties;
mod reader;

pub use block::PropertyBlock;
pub(crate) use decode::{Filters, decode, decode_publish, frame};
pub(crate) use encode::{
    Connack, Outgoing, ack, auth, connack, disconnect, pingresp, publish, publish_bytes, suback,
    unsuback,
};
pub use properties::Properties;
pub(crate) use properties::TOPIC_ALIAS;
#[cfg(test)]
pub(crate) use properties::Value;

use crate::message::Qos;
use crate::reason::ReasonCode;

/// The protocol that a link speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 3.1: `MQIsdp`, level 3.
    V31,
    /// 3.1.1: `MQTT`, level 4.
    V311,
    /// 5.0: `MQTT`, level 5.
    V5,
}

/// One packet that a client may send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Packet<'a> {
    Connect(Box<Connect<'a>>),
    Publish(Publish<'a>),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP, told apart by `kind`.
    Ack {
        kind: u8,
        id: u16,
        /// 0 before 5.0.
        reason: u8,
    },
    Subscribe {
        id: u16,
        identifier: Option<u32>,
        filters: Filters<'a>,
    },
    Unsubscribe {
        id: u16,
        filters: Filters<'a>,
    },
    Pingreq,
    Disconnect {
        /// 0 before 5.0.
        reason: u8,
        session_expiry_s: Option<u32>,
    },
    Auth {
        reason: u8,
        method: Option<&'a str>,
        data: &'a [u8],
    },
}

/// What a CONNECT says. What only 5.0 has stands at its default for the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Connect<'a> {
    pub(crate) version: Version,
    /// 5.0: begin anew; before: and end with the link.
    pub(crate) clean_start: bool,
    pub(crate) keep_alive_s: u16,
    pub(crate) client_id: &'a str,
    pub(crate) will: Option<Will<'a>>,
    pub(crate) username: Option<&'a str>,
    pub(crate) password: Option<&'a [u8]>,
    pub(crate) session_expiry_s: Option<u32>,
    pub(crate) receive_maximum: u16,
    pub(crate) packet_bytes_max: u32,
    pub(crate) topic_alias_maximum: u16,
    pub(crate) wants_response_information: bool,
    pub(crate) wants_problem_information: bool,
    pub(crate) auth_method: Option<&'a str>,
    pub(crate) auth_data: &'a [u8],
}

/// The message to publish when the link ends without DISCONNECT.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Will<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) delay_s: u32,
    pub(crate) properties: Properties<'a>,
}

/// What a PUBLISH says; `id` is 0 for QoS 0. The topic may be empty in 5.0, when an alias stands
/// for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Publish<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) id: u16,
    pub(crate) properties: Properties<'a>,
}

/// What a client asks for beside a filter; before 5.0 only the quality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) retain_handling: RetainHandling,
}

/// When retained messages come because of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetainHandling {
    #[default]
    Always = 0,
    IfNew = 1,
    Never = 2,
}

/// Why bytes are no packet; the peer's fault, and the end of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DecodeError {
    /// Bytes that cannot be read, or bits that the protocol reserves.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// Bytes that can be read and say what the protocol forbids.
    #[error("against the protocol: {0}")]
    Protocol(&'static str),
    /// A topic that no message can have.
    #[error("topic of a PUBLISH is no topic name")]
    Topic,
    /// A topic alias of 0, above the maximum, or never set.
    #[error("invalid topic alias")]
    Alias,
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

impl DecodeError {
    /// What a client of 5.0 is told.
    pub(crate) fn reason(self) -> ReasonCode {
        match self {
            DecodeError::Malformed(_) => ReasonCode::MalformedPacket,
            DecodeError::Protocol(_) | DecodeError::UnexpectedType(_) => ReasonCode::ProtocolError,
            DecodeError::Topic => ReasonCode::TopicNameInvalid,
            DecodeError::Alias => ReasonCode::TopicAliasInvalid,
            DecodeError::TooLarge { .. } => ReasonCode::PacketTooLarge,
            DecodeError::UnsupportedVersion(_) => ReasonCode::UnsupportedProtocolVersion,
        }
    }
}

impl Options {
    /// The byte as it travels in 5.0.
    pub(crate) fn byte(self) -> u8 {
        self.qos.bits()
            | u8::from(self.no_local) << 2
            | u8::from(self.retain_as_published) << 3
            | (self.retain_handling as u8) << 4
    }

    /// Reads the byte of 5.0; `None` when it sets what is reserved.
    pub(crate) fn from_byte(byte: u8) -> Option<Options> {
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Always,
            1 => RetainHandling::IfNew,
            2 => RetainHandling::Never,
            _ => return None,
        };
        Some(Options {
            qos: Qos::from_bits(byte & 0b11)?,
            no_local: byte & 0b100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }
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
pub(crate) const AUTH: u8 = 15;

#[cfg(test)]
pub(crate) mod tests;
