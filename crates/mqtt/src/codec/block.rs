//! Properties of MQTT 5.0 as they are put together for a message that comes from within the process.

use base::UnixMillis;

use crate::codec::properties::{
    CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY, PAYLOAD_FORMAT, Properties, RESPONSE_TOPIC,
    USER_PROPERTY,
};
use crate::topic::check_name;

/// Properties of one message, in the order in which they were put.
///
/// What the standard does not allow is left out, and answered with false: a text with a null
/// character or of more than 65,535 bytes, a response topic that is no name, a second value of what
/// may stand once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyBlock {
    bytes: Vec<u8>,
    /// A bit per identifier.
    seen: u64,
}

impl PropertyBlock {
    /// Says whether the payload is UTF-8 text.
    pub fn payload_is_text(&mut self, is_text: bool) -> bool {
        self.once(PAYLOAD_FORMAT, &[u8::from(is_text)])
    }

    /// Seconds that the message is worth keeping for.
    pub fn message_expiry_s(&mut self, seconds: u32) -> bool {
        self.once(MESSAGE_EXPIRY, &seconds.to_be_bytes())
    }

    /// The same by the instant from which on it is worth nothing.
    pub fn expires(&mut self, at: UnixMillis, now: UnixMillis) -> bool {
        let left_ms = at.since(now).as_millis();
        self.message_expiry_s(u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX))
    }

    /// What the payload is, a MIME type as a rule.
    pub fn content_type(&mut self, text: &str) -> bool {
        is_text(text) && self.once(CONTENT_TYPE, &sized(text.as_bytes()))
    }

    /// The topic that an answer should be published to.
    pub fn response_topic(&mut self, topic: &str) -> bool {
        check_name(topic).is_ok() && self.once(RESPONSE_TOPIC, &sized(topic.as_bytes()))
    }

    /// What an answer should carry back.
    pub fn correlation_data(&mut self, data: &[u8]) -> bool {
        data.len() <= VALUE_BYTES_MAX && self.once(CORRELATION_DATA, &sized(data))
    }

    /// A user property; a name may repeat.
    pub fn user(&mut self, name: &str, value: &str) -> bool {
        if !is_text(name) || !is_text(value) {
            return false;
        }
        self.bytes.push(USER_PROPERTY);
        self.bytes.extend(sized(name.as_bytes()));
        self.bytes.extend(sized(value.as_bytes()));
        true
    }

    /// The properties, for a message.
    pub fn properties(&self) -> Properties<'_> {
        Properties::stored(&self.bytes)
    }

    /// The block as it travels, without its length.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn once(&mut self, id: u8, value: &[u8]) -> bool {
        if self.seen & (1 << id) != 0 {
            return false;
        }
        self.seen |= 1 << id;
        self.bytes.push(id);
        self.bytes.extend_from_slice(value);
        true
    }
}

/// A value behind its two-byte length, which the caller has checked.
fn sized(value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(&value[..usize::from(length)]);
    out
}

fn is_text(text: &str) -> bool {
    text.len() <= VALUE_BYTES_MAX && !text.contains('\0')
}

/// What a two-byte length can say.
const VALUE_BYTES_MAX: usize = u16::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read_back() {
        let mut block = PropertyBlock::default();
        assert!(block.payload_is_text(true));
        assert!(block.expires(UnixMillis(3_500), UnixMillis(1_000)));
        assert!(block.content_type("text/plain"));
        assert!(block.response_topic("answers/1"));
        assert!(block.correlation_data(b"\0\x01"));
        assert!(block.user("k", "1") && block.user("k", "2"));
        let properties = block.properties();
        assert!(properties.is_text());
        assert_eq!(properties.message_expiry_s(), Some(3));
        assert_eq!(properties.content_type(), Some("text/plain"));
        assert_eq!(properties.response_topic(), Some("answers/1"));
        assert_eq!(properties.correlation_data(), Some(&b"\0\x01"[..]));
        let user: Vec<_> = properties.user().collect();
        assert_eq!(user, [("k", "1"), ("k", "2")]);
    }

    #[test]
    fn what_the_standard_forbids_is_left_out() {
        let mut block = PropertyBlock::default();
        assert!(!block.content_type("a\0b"));
        assert!(!block.response_topic("a/+"));
        assert!(!block.correlation_data(&vec![0; VALUE_BYTES_MAX + 1]));
        assert!(!block.user("k", &"x".repeat(VALUE_BYTES_MAX + 1)));
        assert_eq!(block, PropertyBlock::default());
        assert!(block.content_type("a") && !block.content_type("b"));
        assert_eq!(block.properties().content_type(), Some("a"));
    }
}
