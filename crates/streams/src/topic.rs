//! Topic names: Kafka's own, and stream paths as MapR writes them.
//!
//! A name is either plain (`[A-Za-z0-9._-]`, 1 to 249 of them, not `.` or `..`) or a topic of a
//! stream: `/path/to/stream:topic`. Kafka clients refuse the second form before they send it, so
//! each such name has one legal alias on the wire, and both forms are the same [`TopicName`]:
//!
//! ```text
//! path part    '/' -> '.'    [A-Za-z0-9-] -> itself    any other byte -> '_xx' (lower-case hex)
//! ':'          -> '..'
//! topic part   as it is
//!
//! /streams/test:topic1   <->   .streams.test..topic1
//! /a_b/c.d:t.1           <->   .a_5fb.c_2ed..t.1
//! ```
//!
//! The alias is reversible since a path has no empty segment: the first `..` is the colon. A
//! plain name that happens to start with a dot but decodes to nothing stays plain.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::TOPIC_NAME_BYTES_MAX;

/// The name of a Kafka topic, plain or under a stream path; equal whichever form it came in.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicName {
    wire: Arc<str>,
    /// The path form of a stream's topic.
    path: Option<Arc<str>>,
}

/// A text that is no topic name; the caller's fault, not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// Nothing, `.` or `..`.
    #[error("'{0}' is no topic name: write at least one character, and more than dots")]
    Empty(String),
    /// A character that Kafka does not allow.
    #[error("'{0}' is no topic name: use A-Z, a-z, 0-9, '.', '_' and '-', or '/path/stream:topic'")]
    Character(String),
    /// A path form with an empty segment, or without its `:topic`.
    #[error("'{0}' is no stream's topic: write '/path/stream:topic' with no empty part")]
    Path(String),
    /// Longer than Kafka allows, in the form that Kafka clients see.
    #[error("topic name of {bytes} bytes on the wire is too long: at most {TOPIC_NAME_BYTES_MAX}")]
    Length {
        /// Bytes of the wire form.
        bytes: usize,
    },
}

impl TopicName {
    /// Where Kafka keeps the offsets of groups.
    pub fn group_offsets() -> Self {
        TopicName {
            wire: Arc::from(GROUP_OFFSETS),
            path: None,
        }
    }

    /// Where Kafka keeps the state of transactions.
    pub fn transaction_state() -> Self {
        TopicName {
            wire: Arc::from(TRANSACTION_STATE),
            path: None,
        }
    }

    /// A name for a topic that is being restored, which nobody else has.
    pub(crate) fn restoring() -> Self {
        TopicName {
            wire: format!("{RESTORING}{}", uuid::Uuid::new_v4().simple()).into(),
            path: None,
        }
    }

    /// Whether it is such a name.
    pub(crate) fn is_restoring(&self) -> bool {
        self.wire.starts_with(RESTORING)
    }

    /// The name that Kafka clients see: legal in Kafka whatever form it came in.
    pub fn wire_name(&self) -> &str {
        &self.wire
    }

    /// How the wire names begin of the topics whose path form begins with `text`. The topics of the
    /// stream `/a` begin like those under the folder `/a/`.
    ///
    /// # Errors
    /// [`TopicNameError::Path`] when no path form begins so.
    pub fn wire_prefix(text: &str) -> Result<String, TopicNameError> {
        alias_of_prefix(text).ok_or_else(|| TopicNameError::Path(shortened(text)))
    }

    /// The stream's path (`/path/stream`) when the topic is under one.
    pub fn stream(&self) -> Option<&str> {
        self.path
            .as_deref()
            .and_then(|path| path.rsplit_once(':'))
            .map(|(stream, _)| stream)
    }

    /// Whether Kafka keeps its own state under this name. Here such a topic holds nothing: clients
    /// and their tools look for it, and only the node itself may write to it.
    pub fn is_internal(&self) -> bool {
        [GROUP_OFFSETS, TRANSACTION_STATE].contains(&&*self.wire) || self.is_restoring()
    }

    /// The path form when the name is one, else the plain name.
    pub fn display(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.wire)
    }
}

impl FromStr for TopicName {
    type Err = TopicNameError;

    fn from_str(text: &str) -> Result<Self, TopicNameError> {
        if text.starts_with('/') {
            return from_path(text);
        }
        if text.is_empty() || text == "." || text == ".." {
            return Err(TopicNameError::Empty(text.to_owned()));
        }
        if text.len() > TOPIC_NAME_BYTES_MAX {
            return Err(TopicNameError::Length { bytes: text.len() });
        }
        if !text.bytes().all(is_plain) {
            return Err(TopicNameError::Character(text.to_owned()));
        }
        Ok(TopicName {
            wire: Arc::from(text),
            path: path_of_alias(text).map(Arc::from),
        })
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.display())
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl PartialEq for TopicName {
    fn eq(&self, other: &Self) -> bool {
        self.wire == other.wire
    }
}

impl Eq for TopicName {}

impl PartialOrd for TopicName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TopicName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.wire.cmp(&other.wire)
    }
}

impl Hash for TopicName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.wire.hash(state);
    }
}

impl TryFrom<String> for TopicName {
    type Error = TopicNameError;

    fn try_from(text: String) -> Result<Self, TopicNameError> {
        text.parse()
    }
}

impl From<TopicName> for String {
    fn from(name: TopicName) -> String {
        name.display().to_owned()
    }
}

fn from_path(text: &str) -> Result<TopicName, TopicNameError> {
    let wire = alias_of_path(text).ok_or_else(|| TopicNameError::Path(shortened(text)))?;
    if wire.len() > TOPIC_NAME_BYTES_MAX {
        return Err(TopicNameError::Length { bytes: wire.len() });
    }
    Ok(TopicName {
        wire: Arc::from(wire),
        path: Some(Arc::from(text)),
    })
}

/// The wire form of `/path/stream:topic`, or nothing when it is not of that shape.
fn alias_of_path(text: &str) -> Option<String> {
    let (_, topic) = text.rsplit_once(':')?;
    let is_whole = !topic.is_empty() && !topic.contains('/');
    is_whole.then(|| alias_of_prefix(text)).flatten()
}

/// The beginning of a wire form by that of its path form, which may end anywhere in a folder's, a
/// stream's or a topic's name.
fn alias_of_prefix(text: &str) -> Option<String> {
    let (path, topic) = match text.rsplit_once(':') {
        Some((path, topic)) if !topic.contains('/') => (path, Some(topic)),
        _ => (text, None),
    };
    // A colon in a folder's name is legal, one in the stream's own name is not.
    let stream = path.rsplit('/').next()?;
    if topic.is_some_and(|topic| !topic.bytes().all(is_plain) || stream.contains(':')) {
        return None;
    }
    let mut wire = String::with_capacity(text.len() + 8);
    let mut segments = path.strip_prefix('/')?.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_begun = topic.is_none() && segments.peek().is_none();
        if segment.is_empty() && !is_begun {
            return None;
        }
        wire.push('.');
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || byte == b'-' {
                wire.push(char::from(byte));
            } else {
                wire.push('_');
                wire.push(char::from(HEX[usize::from(byte >> 4)]));
                wire.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    if let Some(topic) = topic {
        wire.push_str("..");
        wire.push_str(topic);
    }
    Some(wire)
}

/// The path form of a wire name, when it is exactly the alias of one.
fn path_of_alias(wire: &str) -> Option<String> {
    let (path, topic) = wire.strip_prefix('.')?.split_once("..")?;
    let mut text = String::with_capacity(wire.len());
    for segment in path.split('.') {
        text.push('/');
        text.push_str(&unescaped(segment)?);
    }
    text.push(':');
    text.push_str(topic);
    // Only the canonical alias counts, so that two wire names never mean one path.
    (alias_of_path(&text)? == wire).then_some(text)
}

fn unescaped(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'_' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let (high, low) = (*tail.first()?, *tail.get(1)?);
        let digit = |byte: u8| HEX.iter().position(|hex| *hex == byte);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn shortened(text: &str) -> String {
    text.chars().take(TOPIC_NAME_BYTES_MAX).collect()
}

/// How the passing names of topics begin that are being restored.
const RESTORING: &str = "__thalweg_restoring_";

const GROUP_OFFSETS: &str = "__consumer_offsets";
const TRANSACTION_STATE: &str = "__transaction_state";

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TopicName {
        text.parse().unwrap()
    }

    #[test]
    fn a_stream_topic_has_one_alias_and_both_forms_are_equal() {
        for (path, wire) in [
            ("/streams/test:topic1", ".streams.test..topic1"),
            ("/a_b/c.d:t.1", ".a_5fb.c_2ed..t.1"),
            ("/s:..x", ".s....x"),
            ("/ä:t", "._c3_a4..t"),
            ("/a b/c:t", ".a_20b.c..t"),
            ("/a:b/c:t", ".a_3ab.c..t"),
        ] {
            assert_eq!(name(path).wire_name(), wire);
            assert_eq!(name(wire), name(path));
            assert_eq!(name(wire).display(), path);
            assert_eq!(
                name(wire).stream(),
                path.rsplit_once(':').map(|(stream, _)| stream)
            );
        }
    }

    #[test]
    fn what_begins_a_path_begins_its_alias() {
        for (path, wire) in [
            ("/", "."),
            ("/acme", ".acme"),
            ("/acme/", ".acme."),
            ("/acme/a_b", ".acme.a_5fb"),
            ("/streams/test:", ".streams.test.."),
            ("/streams/test:top", ".streams.test..top"),
            ("/a:b/c", ".a_3ab.c"),
        ] {
            let prefix = TopicName::wire_prefix(path).unwrap();
            assert_eq!(prefix, wire);
            let whole = match path.contains("test:") {
                true => format!("{path}x"),
                false => format!("{path}x/y:z"),
            };
            assert!(name(&whole).wire_name().starts_with(&prefix), "{path}");
        }
        for bad in [
            "", "acme/", "//", "/a//b", "/:", "/a/:t", "/a/b:c:d", "/s:t u",
        ] {
            assert!(TopicName::wire_prefix(bad).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn plain_names_stay_plain() {
        for plain in [
            "a", "a.b_c-D9", ".hidden", ".a..", "a..b", "._zz..t", ".a_41..t", ".a_..t",
        ] {
            assert_eq!(name(plain).display(), plain);
            assert_eq!(name(plain).wire_name(), plain);
            assert_eq!(name(plain).stream(), None);
        }
    }

    #[test]
    fn what_kafka_would_refuse_is_refused() {
        for bad in [
            "", ".", "..", "a b", "a:b", "ä", "a/b", "/", "/a", "/a:", "/:t", "//a:t",
        ] {
            assert!(bad.parse::<TopicName>().is_err(), "{bad} was taken");
        }
        for bad in ["/a//b:t", "/a/b:c:d", "/a:t/u", "/a/:t"] {
            assert!(bad.parse::<TopicName>().is_err(), "{bad} was taken");
        }
        assert!("a".repeat(249).parse::<TopicName>().is_ok());
        assert_eq!(
            "a".repeat(250).parse::<TopicName>(),
            Err(TopicNameError::Length { bytes: 250 })
        );
        // Twelve escaped bytes triple, so a path may be too long where its text is not.
        let long = format!("/{}:t", "_".repeat(90));
        assert_eq!(
            long.parse::<TopicName>(),
            Err(TopicNameError::Length { bytes: 274 })
        );
    }
}
