//! Texts with places that each message fills.
//!
//! | place | of an MQTT message | of a record |
//! | --- | --- | --- |
//! | `{topic}` | its topic | its topic in the store |
//! | `{1}`, `{2}`, … | that level of its topic | – |
//! | `{key}` | – | its key, as text |
//! | `{partition}`, `{offset}` | – | where it stands |
//! | `{header:NAME}` | its first user property of that name | its first header of that name |
//!
//! A message that has nothing for a place does not fill the template.

use crate::limits::RULE_PLACES_MAX;

/// A text with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

/// What fills a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// An MQTT message.
    Mqtt,
    /// A record.
    Store,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// It stands there as it is.
    Text(String),
    /// The whole topic.
    Topic,
    /// A level of the topic, from 1.
    Level(usize),
    /// The record's key.
    Key,
    /// The record's partition.
    Partition,
    /// The record's offset.
    Offset,
    /// A user property or a header.
    Header(String),
}

impl Template {
    /// Reads a template that such messages fill.
    ///
    /// # Errors
    /// Says which place there is not.
    pub(super) fn read(text: &str, side: Side) -> Result<Template, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (place, behind) = after
                .split_once('}')
                .ok_or_else(|| format!("'{text}' has a {{ without its }}"))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let piece = Piece::read(place, side).ok_or_else(|| {
                let places = match side {
                    Side::Mqtt => "{topic}, {1}, {2}, … for its levels, {header:NAME}",
                    Side::Store => "{key}, {topic}, {partition}, {offset}, {header:NAME}",
                };
                format!("'{text}' has no place {{{place}}} here: there are {places}")
            })?;
            pieces.push(piece);
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if pieces.is_empty() {
            return Err("a topic is missing".to_owned());
        }
        if pieces.len() > RULE_PLACES_MAX {
            return Err(format!("'{text}' has more than {RULE_PLACES_MAX} parts"));
        }
        Ok(Template(pieces))
    }

    /// The text, when no message changes it.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether its first character is always the same.
    pub(super) fn begins_fixed(&self) -> bool {
        matches!(self.0.first(), Some(Piece::Text(_)))
    }

    /// The text with its places filled; none when one stays empty.
    pub(super) fn fill<'v>(
        &self,
        of: &dyn Fn(&Piece) -> Option<std::borrow::Cow<'v, str>>,
    ) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                place => filled.push_str(&of(place).filter(|value| !value.is_empty())?),
            }
        }
        Some(filled)
    }
}

impl Piece {
    fn read(place: &str, side: Side) -> Option<Piece> {
        if let Some(name) = place.strip_prefix("header:") {
            return (!name.is_empty()).then(|| Piece::Header(name.to_owned()));
        }
        match (place, side) {
            ("topic", _) => Some(Piece::Topic),
            ("key", Side::Store) => Some(Piece::Key),
            ("partition", Side::Store) => Some(Piece::Partition),
            ("offset", Side::Store) => Some(Piece::Offset),
            (number, Side::Mqtt) => {
                let level: usize = number.parse().ok()?;
                (1..=mqtt::limits::TOPIC_LEVELS_MAX)
                    .contains(&level)
                    .then_some(Piece::Level(level))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_order() {
        let template = Template::read("plant.{2}-{header:k}!", Side::Mqtt).unwrap();
        assert_eq!(template.literal(), None);
        assert!(template.begins_fixed());
        let filled = template.fill(&|piece| match piece {
            Piece::Level(2) => Some("b".into()),
            Piece::Header(name) => Some(format!("<{name}>").into()),
            _ => None,
        });
        assert_eq!(filled.as_deref(), Some("plant.b-<k>!"));
        assert_eq!(template.fill(&|_| None), None);
        assert_eq!(template.fill(&|_| Some("".into())), None);
        let fixed = Template::read("a/b", Side::Store).unwrap();
        assert_eq!(fixed.literal(), Some("a/b"));
        assert_eq!(fixed.fill(&|_| None).as_deref(), Some("a/b"));
    }

    #[test]
    fn places_belong_to_a_side() {
        for (text, side) in [
            ("{0}", Side::Mqtt),
            ("{1}", Side::Store),
            ("{key}", Side::Mqtt),
            ("{", Side::Mqtt),
            ("{header:}", Side::Store),
            ("{129}", Side::Mqtt),
            ("", Side::Mqtt),
        ] {
            assert!(Template::read(text, side).is_err(), "{text}");
        }
    }
}
