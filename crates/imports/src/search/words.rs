//! The words of a stored record, read in one pass without a tree of its values.

use std::fmt::{self, Display, Write};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The words of a stored record: the subfields of MARC, every text and number of other objects. From
/// where it cannot be read (half of a surrogate pair, a number beyond all) it has no words.
pub(crate) fn text_of(body: &str, is_marc: bool) -> String {
    let mut text = String::with_capacity(body.len() / 2);
    let place = if is_marc {
        Place::Record
    } else {
        Place::Values
    };
    let mut reader = serde_json::Deserializer::from_str(body);
    let words = Words {
        place,
        text: &mut text,
    };
    // What was read before an error is found.
    let _ = words.deserialize(&mut reader);
    text
}

/// Where in a record a value stands: MARC-in-JSON is `{"fields": [{TAG: {"subfields": VALUES}}]}`.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Record,
    Fields,
    Field,
    Content,
    Values,
}

struct Words<'t> {
    place: Place,
    text: &'t mut String,
}

impl Words<'_> {
    fn take(self, word: impl Display) {
        if self.place == Place::Values {
            // Writing to a text does not fail.
            let _ = write!(self.text, "{word} ");
        }
    }
}

impl<'de> DeserializeSeed<'de> for Words<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Words<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a record")
    }

    fn visit_str<E>(self, word: &str) -> Result<(), E> {
        if self.place == Place::Values {
            self.text.push_str(word);
            self.text.push(' ');
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.take(number);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.take(number);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.take(number);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let place = match self.place {
            Place::Fields => Place::Field,
            place => place,
        };
        loop {
            let text = &mut *self.text;
            if items.next_element_seed(Words { place, text })?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        loop {
            let place = match self.place {
                // Whatever its tag is.
                Place::Field | Place::Values => match fields.next_key::<IgnoredAny>()? {
                    None => return Ok(()),
                    Some(_) if self.place == Place::Field => Some(Place::Content),
                    Some(_) => Some(Place::Values),
                },
                _ => match fields.next_key::<String>()?.as_deref() {
                    None => return Ok(()),
                    Some("fields") if self.place == Place::Record => Some(Place::Fields),
                    Some("subfields") if self.place == Place::Content => Some(Place::Values),
                    Some(_) => None,
                },
            };
            match place {
                Some(place) => {
                    let text = &mut *self.text;
                    fields.next_value_seed(Words { place, text })?;
                }
                None => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_words_are_its_subfields_or_its_values() {
        let marc = r#"{"leader":"x","fields":[{"001":"no"},{"245":{"subfields":[{"a":"One"},{"b":"two"}],"ind1":"9"}}]}"#;
        assert_eq!(text_of(marc, true), "One two ");
        let object = r#"{"a":{"b":["x",3,-4,2.5]},"c":true,"fields":[null,"y"]}"#;
        assert_eq!(text_of(object, false), "x 3 -4 2.5 y ");
        assert_eq!(text_of("{\"a\":\"x\",\"b\":\"\\ud800\"}", false), "x ");
        assert_eq!(text_of("x", false), "");
    }
}
