//! Topic names (what is published to) and topic filters (what is subscribed to).
//!
//! Rules of MQTT 3.1.1 section 4.7, the same in 5.0: at least one character, no U+0000, at most
//! 65,535 bytes of UTF-8, levels parted by `/`. A name has no wildcards. In a filter `+` fills a
//! whole level and `#` the whole last one. Topics that start with `$` are not met by a filter
//! that starts with a wildcard. Ours on top: at most [`TOPIC_LEVELS_MAX`] levels.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::limits::{FILTER_LEVEL_BYTES, TOPIC_BYTES_MAX, TOPIC_LEVELS_MAX};

/// The name of an MQTT topic: what a message is published to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// A pattern of topic names: what is subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicFilter(Arc<str>);

/// Why a text is no topic name or filter; the writer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// No character at all.
    #[error("a topic needs at least one character")]
    Empty,
    /// Does not fit the protocol's length field.
    #[error("a topic of {0} bytes is longer than 65535")]
    TooLong(usize),
    /// Deeper than we walk.
    #[error("a topic of {0} levels is deeper than {TOPIC_LEVELS_MAX}")]
    TooDeep(usize),
    /// Holds U+0000.
    #[error("a topic must not hold the character U+0000")]
    Null,
    /// A wildcard in a name.
    #[error("'{0}' has a wildcard: only filters may hold '+' and '#'")]
    Wildcard(String),
    /// A wildcard beside other characters, or `#` before the end.
    #[error("'{0}' misplaces a wildcard: '+' fills a whole level, '#' the whole last one")]
    MisplacedWildcard(String),
    /// A shared subscription without a group or without a filter.
    #[error("'{0}' is no shared subscription: write $share/GROUP/FILTER")]
    Share(String),
}

impl TopicName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TopicFilter {
    /// The filter as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a message published to `topic` is for a subscriber of this filter.
    pub fn matches(&self, topic: &str) -> bool {
        let (mut filter, mut name) = (self.0.split('/'), topic.split('/'));
        if topic.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        loop {
            match (filter.next(), name.next()) {
                (Some("#"), _) => return true,
                (Some("+"), Some(_)) => {}
                (Some(want), Some(have)) if want == have => {}
                (None, None) => return true,
                _ => return false,
            }
        }
    }

    /// Parts a shared subscription, `$share/group/filter`, into group and filter; `None` for any
    /// other filter.
    pub(crate) fn shared(&self) -> Option<(&str, TopicFilter)> {
        let (group, inner) = self.0.strip_prefix(SHARE)?.split_once('/')?;
        Some((group, TopicFilter(Arc::from(inner))))
    }

    /// The filter of the topics below `front` whose names behind it are this one's; of a shared
    /// subscription, in the same group. One of topics that begin with `$` stays as it is.
    ///
    /// # Errors
    /// When it is too long or too deep.
    pub(crate) fn below(&self, front: &str) -> Result<TopicFilter, TopicError> {
        match self.shared() {
            Some((_, inner)) if inner.0.starts_with('$') => Ok(self.clone()),
            Some((group, inner)) => format!("{SHARE}{group}/{front}{inner}").parse(),
            None if self.0.starts_with('$') => Ok(self.clone()),
            None => format!("{front}{self}").parse(),
        }
    }

    /// The part before the first wildcard: every topic that matches starts with it, but for the
    /// `/` that `a/#` does not need to match `a`.
    pub(crate) fn literal_prefix(&self) -> &str {
        match self.0.find(['+', '#']) {
            Some(at) => self.0[..at].trim_end_matches('/'),
            None => &self.0,
        }
    }

    /// Bytes that it counts for among those of its client.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() + self.0.split('/').count() * FILTER_LEVEL_BYTES
    }

    /// Whether any level is a wildcard.
    pub(crate) fn has_wildcard(&self) -> bool {
        self.0.contains(['+', '#'])
    }
}

impl FromStr for TopicName {
    type Err = TopicError;

    fn from_str(text: &str) -> Result<Self, TopicError> {
        check_name(text)?;
        Ok(TopicName(Arc::from(text)))
    }
}

impl FromStr for TopicFilter {
    type Err = TopicError;

    fn from_str(text: &str) -> Result<Self, TopicError> {
        check_text(text)?;
        if let Some(shared) = text.strip_prefix(SHARE) {
            // 5.0 section 4.8.2: a group of at least one character, and a filter of its own.
            let parts = shared.split_once('/');
            let fits = |(group, inner): (&str, &str)| {
                !group.is_empty() && !inner.is_empty() && !group.contains(['+', '#'])
            };
            if !parts.is_some_and(fits) {
                return Err(TopicError::Share(text.to_owned()));
            }
        }
        let levels = text.bytes().filter(|b| *b == b'/').count() + 1;
        for (index, level) in text.split('/').enumerate() {
            let last = index + 1 == levels;
            let whole = level == "+" || (level == "#" && last);
            if level.contains(['+', '#']) && !whole {
                return Err(TopicError::MisplacedWildcard(text.to_owned()));
            }
        }
        Ok(TopicFilter(Arc::from(text)))
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a topic name without keeping it: what a PUBLISH packet brings.
pub(crate) fn check_name(text: &str) -> Result<(), TopicError> {
    check_text(text)?;
    if memchr::memchr2(b'+', b'#', text.as_bytes()).is_some() {
        return Err(TopicError::Wildcard(text.to_owned()));
    }
    Ok(())
}

fn check_text(text: &str) -> Result<(), TopicError> {
    if text.is_empty() {
        return Err(TopicError::Empty);
    }
    if text.len() > TOPIC_BYTES_MAX {
        return Err(TopicError::TooLong(text.len()));
    }
    if memchr::memchr(0, text.as_bytes()).is_some() {
        return Err(TopicError::Null);
    }
    let levels = memchr::memchr_iter(b'/', text.as_bytes()).count() + 1;
    if levels > TOPIC_LEVELS_MAX {
        return Err(TopicError::TooDeep(levels));
    }
    Ok(())
}

/// What a shared subscription begins with.
const SHARE: &str = "$share/";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, topic: &str, expected: bool) {
        let parsed: TopicFilter = filter.parse().unwrap();
        assert_eq!(parsed.matches(topic), expected, "{filter} on {topic}");
        if expected {
            assert!(
                topic.starts_with(parsed.literal_prefix()),
                "{filter} on {topic}"
            );
        }
    }

    #[test]
    pub(crate) fn filters_match_as_section_4_7_says() {
        for (filter, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/score/wimbledon",
                true,
            ),
            ("sport/#", "sport", true),
            ("sport/#", "sports", false),
            ("#", "a/b/c", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("+/tennis/#", "x/tennis", true),
            ("a", "a/", false),
            ("a/+/c", "a//c", true),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/a", true),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
            ("Å/+", "Å/x", true),
            ("accounts", "Accounts", false),
        ] {
            check(filter, topic, expected);
        }
    }

    #[test]
    pub(crate) fn misplaced_wildcards_are_refused() {
        for bad in [
            "sport/tennis#",
            "sport/tennis/#/ranking",
            "sport+",
            "a/+b",
            "#/",
            "",
            "a\0",
            "$share/g",
            "$share//a",
            "$share/g/",
            "$share/+/a",
        ] {
            assert!(bad.parse::<TopicFilter>().is_err(), "{bad:?} was taken");
        }
        for bad in ["a/+", "#", "", "a\0b"] {
            assert!(bad.parse::<TopicName>().is_err(), "{bad:?} was taken");
        }
        let deep = "a/".repeat(TOPIC_LEVELS_MAX);
        assert_eq!(
            deep.parse::<TopicName>(),
            Err(TopicError::TooDeep(TOPIC_LEVELS_MAX + 1))
        );
        let long = "a".repeat(TOPIC_BYTES_MAX + 1);
        assert_eq!(
            long.parse::<TopicName>(),
            Err(TopicError::TooLong(TOPIC_BYTES_MAX + 1))
        );
    }
}
