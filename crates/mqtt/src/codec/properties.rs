//! Properties of MQTT 5.0 (section 2.2.2): a block of identifiers and values.
//!
//! A block is checked once, when its packet is decoded, against the table of what the packet may
//! carry; it then stays the bytes that came, and is walked again where somebody asks.

use super::DecodeError;
use super::reader::Reader;
use crate::topic::check_name;

/// The properties of a message or packet: a checked block of MQTT 5.0, borrowed. Empty for what
/// came by 3.1.1.
///
/// Of a message that is delivered, only those count that travel with it: payload format, content
/// type, response topic, correlation data, user properties, and the message expiry.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a>(&'a [u8]);

/// One property: its identifier, its value, and all its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Property<'a> {
    pub(crate) id: u8,
    pub(crate) value: Value<'a>,
    pub(crate) raw: &'a [u8],
}

/// A property's value, by its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Byte(u8),
    Two(u16),
    Four(u32),
    Variable(u32),
    Text(&'a str),
    Bytes(&'a [u8]),
    Pair(&'a str, &'a str),
}

/// The packets that carry properties and come from clients, as bits of [`Rule::packets`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Carrier {
    Connect = 1,
    Will = 2,
    Publish = 4,
    Subscribe = 8,
    Unsubscribe = 16,
    Acknowledgement = 32,
    Disconnect = 64,
    Auth = 128,
}

impl<'a> Properties<'a> {
    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The user properties, in the order in which they came; names may repeat.
    pub fn user(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.walk().filter_map(|p| match p.value {
            Value::Pair(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// Whether the publisher says that the payload is UTF-8 text.
    pub fn is_text(&self) -> bool {
        self.find(PAYLOAD_FORMAT) == Some(Value::Byte(1))
    }

    /// The publisher's description of the payload, a MIME type as a rule.
    pub fn content_type(&self) -> Option<&'a str> {
        self.text(CONTENT_TYPE)
    }

    /// The topic that an answer should be published to.
    pub fn response_topic(&self) -> Option<&'a str> {
        self.text(RESPONSE_TOPIC)
    }

    /// What an answer should carry back.
    pub fn correlation_data(&self) -> Option<&'a [u8]> {
        self.data(CORRELATION_DATA)
    }

    /// Seconds that the message was worth keeping for when it came.
    pub fn message_expiry_s(&self) -> Option<u32> {
        self.four(MESSAGE_EXPIRY)
    }

    /// The block as it came, to be walked again by [`Properties::stored`].
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Bytes that were checked before they were stored; of anything else as much as is whole.
    pub(crate) fn stored(bytes: &'a [u8]) -> Properties<'a> {
        Properties(bytes)
    }

    /// Reads a block with its length from the front of `reader` and checks it.
    pub(super) fn read(
        reader: &mut Reader<'a>,
        carrier: Carrier,
    ) -> Result<Properties<'a>, DecodeError> {
        let length = reader.variable()?;
        if length == 0 {
            return Ok(Properties::default());
        }
        let block = reader.take(length as usize)?;
        let (mut rest, mut seen) = (Reader(block), 0u64);
        while !rest.is_empty() {
            let property = property(&mut rest)?;
            let rule = rule(property.id).ok_or(UNKNOWN)?;
            if rule.packets & carrier as u8 == 0 {
                return Err(DecodeError::Protocol(
                    "a property that the packet may not have",
                ));
            }
            let once = property.id != USER_PROPERTY;
            if once && seen & (1 << property.id) != 0 {
                return Err(DecodeError::Protocol("a property twice"));
            }
            seen |= 1 << property.id;
            check_value(&property)?;
        }
        if seen & (1 << AUTH_DATA) != 0 && seen & (1 << AUTH_METHOD) == 0 {
            return Err(DecodeError::Protocol(
                "authentication data without a method",
            ));
        }
        Ok(Properties(block))
    }

    pub(crate) fn walk(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let mut rest = Reader(self.0);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            property(&mut rest).ok()
        })
    }

    pub(crate) fn find(&self, id: u8) -> Option<Value<'a>> {
        if self.0.is_empty() {
            return None;
        }
        self.walk().find(|p| p.id == id).map(|p| p.value)
    }

    pub(crate) fn text(&self, id: u8) -> Option<&'a str> {
        match self.find(id) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn data(&self, id: u8) -> Option<&'a [u8]> {
        match self.find(id) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn byte(&self, id: u8) -> Option<u8> {
        match self.find(id) {
            Some(Value::Byte(byte)) => Some(byte),
            _ => None,
        }
    }

    pub(crate) fn two(&self, id: u8) -> Option<u16> {
        match self.find(id) {
            Some(Value::Two(number)) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn four(&self, id: u8) -> Option<u32> {
        match self.find(id) {
            Some(Value::Four(number)) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn variable(&self, id: u8) -> Option<u32> {
        match self.find(id) {
            Some(Value::Variable(number)) => Some(number),
            _ => None,
        }
    }

    /// The block with another response topic in the place of its own, or with none.
    pub(crate) fn readdressed(&self, response_topic: Option<&str>) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.0.len() + TOPIC_BYTES_ADDED);
        for property in self.walk() {
            if property.id != RESPONSE_TOPIC {
                block.extend_from_slice(property.raw);
                continue;
            }
            let length = |topic: &str| u16::try_from(topic.len()).ok();
            if let Some((topic, length)) =
                response_topic.and_then(|topic| Some((topic, length(topic)?)))
            {
                block.push(RESPONSE_TOPIC);
                block.extend_from_slice(&length.to_be_bytes());
                block.extend_from_slice(topic.as_bytes());
            }
        }
        block
    }

    /// What travels on with the message, as one block; the expiry is left out, since it is told
    /// anew with each delivery.
    pub(crate) fn travelling(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.walk().filter_map(|p| travels(p.id).then_some(p.raw))
    }
}

impl std::fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.walk().map(|p| (p.id, p.value)))
            .finish()
    }
}

fn travels(id: u8) -> bool {
    matches!(
        id,
        PAYLOAD_FORMAT | CONTENT_TYPE | RESPONSE_TOPIC | CORRELATION_DATA | USER_PROPERTY
    )
}

fn property<'a>(reader: &mut Reader<'a>) -> Result<Property<'a>, DecodeError> {
    let before = reader.0;
    // Identifiers are variable byte integers, of which all that exist need one byte.
    let id = u8::try_from(reader.variable()?).map_err(|_| UNKNOWN)?;
    let rule = rule(id).ok_or(UNKNOWN)?;
    let value = match rule.kind {
        Kind::Byte => Value::Byte(reader.byte()?),
        Kind::Two => Value::Two(reader.number()?),
        Kind::Four => Value::Four(reader.four()?),
        Kind::Variable => Value::Variable(reader.variable()?),
        Kind::Text => Value::Text(reader.text()?),
        Kind::Bytes => Value::Bytes(reader.bytes()?),
        Kind::Pair => Value::Pair(reader.text()?, reader.text()?),
    };
    let raw = &before[..before.len() - reader.0.len()];
    Ok(Property { id, value, raw })
}

/// Values that the standard calls protocol errors.
fn check_value(property: &Property<'_>) -> Result<(), DecodeError> {
    let wrong = match (property.id, property.value) {
        (PAYLOAD_FORMAT | REQUEST_PROBLEM | REQUEST_RESPONSE, Value::Byte(n)) => n > 1,
        (RECEIVE_MAXIMUM, Value::Two(n)) => n == 0,
        (PACKET_BYTES_MAX, Value::Four(n)) => n == 0,
        (SUBSCRIPTION_IDENTIFIER, Value::Variable(n)) => n == 0,
        (RESPONSE_TOPIC, Value::Text(topic)) => check_name(topic).is_err(),
        (TOPIC_ALIAS, Value::Two(0)) => return Err(DecodeError::Alias),
        _ => false,
    };
    if wrong {
        return Err(DecodeError::Protocol(
            "a property's value is out of its range",
        ));
    }
    Ok(())
}

enum Kind {
    Byte,
    Two,
    Four,
    Variable,
    Text,
    Bytes,
    Pair,
}

struct Rule {
    kind: Kind,
    /// Bits of [`Carrier`]; none for what only servers send.
    packets: u8,
}

/// Table 2-4 of the standard, for packets that clients send.
fn rule(id: u8) -> Option<Rule> {
    const CONNECT: u8 = Carrier::Connect as u8;
    const MESSAGE: u8 = Carrier::Publish as u8 | Carrier::Will as u8;
    const LOGIN: u8 = Carrier::Connect as u8 | Carrier::Auth as u8;
    const REASON: u8 =
        Carrier::Acknowledgement as u8 | Carrier::Disconnect as u8 | Carrier::Auth as u8;
    let (kind, packets) = match id {
        PAYLOAD_FORMAT => (Kind::Byte, MESSAGE),
        MESSAGE_EXPIRY => (Kind::Four, MESSAGE),
        CONTENT_TYPE | RESPONSE_TOPIC => (Kind::Text, MESSAGE),
        CORRELATION_DATA => (Kind::Bytes, MESSAGE),
        // A PUBLISH has it only on its way from the server (MQTT-3.3.4-6).
        SUBSCRIPTION_IDENTIFIER => (Kind::Variable, Carrier::Subscribe as u8),
        SESSION_EXPIRY => (Kind::Four, CONNECT | Carrier::Disconnect as u8),
        ASSIGNED_CLIENT_ID | RESPONSE_INFORMATION => (Kind::Text, 0),
        SERVER_KEEP_ALIVE => (Kind::Two, 0),
        AUTH_METHOD => (Kind::Text, LOGIN),
        AUTH_DATA => (Kind::Bytes, LOGIN),
        REQUEST_PROBLEM | REQUEST_RESPONSE => (Kind::Byte, CONNECT),
        WILL_DELAY => (Kind::Four, Carrier::Will as u8),
        // From a server only (MQTT-3.14.2-2 names the other one that is).
        SERVER_REFERENCE => (Kind::Text, 0),
        REASON_STRING => (Kind::Text, REASON),
        RECEIVE_MAXIMUM | TOPIC_ALIAS_MAXIMUM => (Kind::Two, CONNECT),
        TOPIC_ALIAS => (Kind::Two, Carrier::Publish as u8),
        MAXIMUM_QOS | RETAIN_AVAILABLE => (Kind::Byte, 0),
        USER_PROPERTY => (Kind::Pair, 0xff),
        PACKET_BYTES_MAX => (Kind::Four, CONNECT),
        WILDCARD_AVAILABLE | IDENTIFIERS_AVAILABLE | SHARED_AVAILABLE => (Kind::Byte, 0),
        _ => return None,
    };
    Some(Rule { kind, packets })
}

/// About as much as a response topic grows by below a tenant's name.
const TOPIC_BYTES_ADDED: usize = 64;

const UNKNOWN: DecodeError = DecodeError::Malformed("a property that does not exist");

pub(crate) const PAYLOAD_FORMAT: u8 = 1;
pub(crate) const MESSAGE_EXPIRY: u8 = 2;
pub(crate) const CONTENT_TYPE: u8 = 3;
pub(crate) const RESPONSE_TOPIC: u8 = 8;
pub(crate) const CORRELATION_DATA: u8 = 9;
pub(crate) const SUBSCRIPTION_IDENTIFIER: u8 = 11;
pub(crate) const SESSION_EXPIRY: u8 = 17;
pub(crate) const ASSIGNED_CLIENT_ID: u8 = 18;
pub(crate) const SERVER_KEEP_ALIVE: u8 = 19;
pub(crate) const AUTH_METHOD: u8 = 21;
pub(crate) const AUTH_DATA: u8 = 22;
pub(crate) const REQUEST_PROBLEM: u8 = 23;
pub(crate) const WILL_DELAY: u8 = 24;
pub(crate) const REQUEST_RESPONSE: u8 = 25;
pub(crate) const RESPONSE_INFORMATION: u8 = 26;
pub(crate) const SERVER_REFERENCE: u8 = 28;
pub(crate) const REASON_STRING: u8 = 31;
pub(crate) const RECEIVE_MAXIMUM: u8 = 33;
pub(crate) const TOPIC_ALIAS_MAXIMUM: u8 = 34;
pub(crate) const TOPIC_ALIAS: u8 = 35;
const MAXIMUM_QOS: u8 = 36;
const RETAIN_AVAILABLE: u8 = 37;
pub(crate) const USER_PROPERTY: u8 = 38;
pub(crate) const PACKET_BYTES_MAX: u8 = 39;
const WILDCARD_AVAILABLE: u8 = 40;
const IDENTIFIERS_AVAILABLE: u8 = 41;
const SHARED_AVAILABLE: u8 = 42;
