//! Profiles: which of a record's values are its id, title and fields, by which value it is found
//! again, and what becomes of it then.
//!
//! A selector names values. In MARC it is a tag (`001`) or a tag and subfield codes (`245$ab`); in
//! objects (JSON lines, CSV) a field's name, or one with dots into inner ones (`author.name`).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::format::{Content, Encoding, facts};
use crate::job::Format;
use crate::keys::{Key, Selectors};
use crate::limits;
use crate::marc::{MarcRecord, quote, write_json};

/// How a file's records are read and stored. Everything may be left out: MARC has its own id and
/// title, and a record that is there already is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// The record's id within its tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The values by which a record is found that is there already; by its id, where absent.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_on: Option<String>,
    /// Values that are stored beside the record, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
    /// How a CSV or MARCXML file is encoded, as `windows-1252`; what it declares itself or UTF-8, where
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// What becomes of a record that is there already.
    pub on_match: OnMatch,
    /// What becomes of one that is not.
    pub on_no_match: OnNoMatch,
}

/// What becomes of a record that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMatch {
    /// It replaces what is there.
    #[default]
    Update,
    /// What is there stays, and the journal says so.
    Skip,
    /// It is rejected.
    Fail,
}

/// What becomes of a record that is not there yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNoMatch {
    /// It is added.
    #[default]
    Create,
    /// It is left out, and the journal says so.
    Skip,
    /// It is rejected.
    Fail,
}

/// What a selector selects of a record.
pub(crate) type Values<'v> = Vec<Cow<'v, str>>;

/// What a profile made of a record.
#[derive(Debug, PartialEq)]
pub(crate) struct Mapped {
    /// None where neither profile nor format has one.
    pub id: Option<String>,
    pub title: Option<String>,
    /// By which it is found again.
    pub keys: Vec<Key>,
    /// A JSON object's text.
    pub fields: Option<String>,
    /// The record's JSON.
    pub body: String,
}

impl Profile {
    /// Checks the selectors against the format that they are for.
    ///
    /// # Errors
    /// A sentence that names the selector.
    pub fn check(&self, format: Format) -> Result<(), String> {
        if self.fields.len() > limits::PROFILE_FIELDS_MAX {
            let most = limits::PROFILE_FIELDS_MAX;
            return Err(format!("a profile has at most {most} fields"));
        }
        if let Some(encoding) = &self.encoding {
            if !matches!(format, Format::Csv | Format::MarcXml) {
                let name = format.name();
                return Err(format!(
                    "encoding is of csv and marcxml; {name} has its own"
                ));
            }
            if Encoding::told(encoding).is_none() {
                return Err(format!(
                    "the encoding '{encoding}' is not read; use one of those of the web, as windows-1252 or \
                     iso-8859-2, but for UTF-16, or convert the file, as by iconv -t UTF-8"
                ));
            }
        }
        let named = self
            .fields
            .iter()
            .map(|(name, selector)| (name.as_str(), selector));
        let own = [
            ("id", &self.id),
            ("title", &self.title),
            ("match", &self.match_on),
        ];
        let own = own
            .into_iter()
            .filter_map(|(name, selector)| Some((name, selector.as_ref()?)));
        for (name, selector) in own.chain(named) {
            if selector.is_empty() || selector.len() > limits::NAME_BYTES_MAX {
                let most = limits::NAME_BYTES_MAX;
                return Err(format!(
                    "the selector of '{name}' is 1 to {most} bytes long"
                ));
            }
            if format.is_marc() && marc_selector(selector).is_none() {
                return Err(format!(
                    "'{selector}' of '{name}' selects nothing of MARC; use a tag as 001, or a tag \
                     and subfields as 245$ab"
                ));
            }
        }
        Ok(())
    }

    /// Applies the profile to a record, which has keys of `selectors`.
    ///
    /// # Errors
    /// A sentence that says what of it is missing or cannot be read.
    pub(crate) fn map(
        &self,
        content: &Content<'_>,
        selectors: &Selectors,
    ) -> Result<Mapped, Cow<'static, str>> {
        match content {
            Content::Marc(record) => self.map_marc(record, selectors),
            Content::Object(text) if self.needs_value() => self.map_object(text, selectors),
            Content::Object(text) => {
                let facts = facts(text, self.id.as_deref())?;
                Ok(Mapped {
                    id: facts.key,
                    title: facts.title,
                    keys: selectors.keys_of_object(text),
                    fields: None,
                    body: text.to_string(),
                })
            }
        }
    }

    /// Whether more than top-level fields is asked for, so that the object must be taken apart.
    fn needs_value(&self) -> bool {
        let is_deep = self.id.as_ref().is_some_and(|id| id.contains('.'));
        is_deep || self.title.is_some() || self.match_on.is_some() || !self.fields.is_empty()
    }

    fn map_marc(
        &self,
        record: &MarcRecord<'_>,
        selectors: &Selectors,
    ) -> Result<Mapped, Cow<'static, str>> {
        let select = |selector: &str| marc_values(record, selector);
        let id = match &self.id {
            Some(selector) => select(selector).first().map(|id| id.to_string()),
            None => record.id().map(str::to_owned),
        };
        let id = id
            .filter(|id| !id.is_empty())
            .ok_or_else(|| match &self.id {
                Some(selector) => Cow::Owned(format!("the record has no {selector}")),
                None => Cow::Borrowed("the record has no id: neither 001 nor 010 $a"),
            })?;
        let title = match &self.title {
            Some(selector) => select(selector).first().map(|title| title.to_string()),
            None => record.title(),
        };
        self.check_match(&select)?;
        let mut body = String::with_capacity(2_048);
        write_json(record, &mut body);
        Ok(Mapped {
            id: Some(id),
            title,
            keys: selectors.keys(select),
            fields: self.fields_of(&select),
            body,
        })
    }

    fn map_object(&self, text: &str, selectors: &Selectors) -> Result<Mapped, Cow<'static, str>> {
        let object = Object::read(text)?;
        let select = |selector: &str| object.values(selector);
        let id = match &self.id {
            Some(selector) => {
                let id = select(selector).first().map(|id| id.to_string());
                Some(id.filter(|id| !id.is_empty()).ok_or_else(|| {
                    format!("the line has no field '{selector}' with text or a number in it")
                })?)
            }
            None => None,
        };
        self.check_match(&select)?;
        let title = select(self.title.as_deref().unwrap_or("title"));
        Ok(Mapped {
            id,
            title: title.first().map(|title| title.to_string()),
            keys: selectors.keys(select),
            fields: self.fields_of(&select),
            body: text.to_owned(),
        })
    }

    fn check_match<'v>(
        &self,
        select: &impl Fn(&str) -> Values<'v>,
    ) -> Result<(), Cow<'static, str>> {
        let Some(selector) = &self.match_on else {
            return Ok(());
        };
        let values = select(selector);
        let is_long = |value: &Cow<'_, str>| value.trim().len() > limits::ID_BYTES_MAX;
        match values.iter().any(is_long) {
            true => Err("the value to match is longer than 1024 bytes".into()),
            false => Ok(()),
        }
    }

    fn fields_of<'v>(&self, select: &impl Fn(&str) -> Values<'v>) -> Option<String> {
        if self.fields.is_empty() {
            return None;
        }
        let mut text = String::from("{");
        for (name, selector) in &self.fields {
            let values = select(selector);
            let Some(first) = values.first() else {
                continue;
            };
            if text.len() > 1 {
                text.push(',');
            }
            quote(name, &mut text);
            text.push(':');
            if values.len() == 1 {
                quote(first, &mut text);
                continue;
            }
            for (index, value) in values.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                quote(value, &mut text);
            }
            text.push(']');
        }
        text.push('}');
        Some(text)
    }
}

/// What a selector selects of a MARC record, one of each field.
pub(crate) fn marc_values<'r>(record: &'r MarcRecord<'_>, selector: &str) -> Values<'r> {
    let Some((tag, codes)) = marc_selector(selector) else {
        return Vec::new();
    };
    let fields = record.fields.iter().filter(|field| field.tag == tag);
    let values = fields.filter_map(|field| match codes {
        None if field.is_text() => Some(Cow::Borrowed(field.data.trim())),
        None => joined(field.subfields().map(|(_, text)| text)).map(Cow::Owned),
        Some(codes) => {
            let wanted = field.subfields().filter(|(code, _)| codes.contains(*code));
            joined(wanted.map(|(_, text)| text)).map(Cow::Owned)
        }
    });
    values.collect()
}

/// A tag, and the subfield codes behind a `$`.
fn marc_selector(selector: &str) -> Option<(&str, Option<&str>)> {
    let (tag, codes) = match selector.split_once('$') {
        Some((_, "")) => return None,
        Some((tag, codes)) => (tag, Some(codes)),
        None => (selector, None),
    };
    let is_tag = tag.len() == 3 && tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_tag.then_some((tag, codes))
}

fn joined<'t>(texts: impl Iterator<Item = &'t str>) -> Option<String> {
    let texts: Vec<&str> = texts
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// An object's values by their names, as they are written; of several of one name the last.
pub(crate) struct Object<'t>(HashMap<Cow<'t, str>, &'t RawValue>);

impl<'t> Object<'t> {
    /// Reads an object's text.
    ///
    /// # Errors
    /// A sentence that says why it is none.
    pub fn read(text: &'t str) -> Result<Object<'t>, String> {
        let read = serde_json::from_str(text).map(Object);
        read.map_err(|error| match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => "the line is not a JSON object".to_owned(),
            Err(_) => format!("the line is not JSON: {error}"),
        })
    }

    /// What a selector selects of it: a value, or those of a list.
    pub fn values(&self, selector: &str) -> Values<'t> {
        let Some(found) = self.at(selector) else {
            return Vec::new();
        };
        match serde_json::from_str::<Vec<&RawValue>>(found) {
            Ok(items) => items.iter().filter_map(|item| scalar(item.get())).collect(),
            Err(_) => scalar(found).into_iter().collect(),
        }
    }

    /// The text of the value of a name, or of the one that a path of names leads to.
    fn at(&self, selector: &str) -> Option<&'t str> {
        if let Some(found) = self.0.get(selector) {
            return Some(found.get());
        }
        let (name, path) = selector.split_once('.')?;
        Object::read(self.0.get(name)?.get()).ok()?.at(path)
    }
}

/// Text, or a number's or truth value's text, which keeps a number as it was written, however many
/// digits it has.
fn scalar(value: &str) -> Option<Cow<'_, str>> {
    match value.as_bytes().first()? {
        b'"' => serde_json::from_str(value).ok().map(Cow::Owned),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::format::Layout;
    use crate::marc::tests::{book, built};

    fn profile(text: &str) -> Profile {
        serde_json::from_str(text).unwrap()
    }

    fn selectors(texts: &[&str]) -> Selectors {
        Selectors::entered("t", texts)
    }

    fn texts(mapped: &Mapped) -> Vec<&str> {
        mapped.keys.iter().map(|key| key.text.as_str()).collect()
    }

    #[test]
    fn a_marc_record_is_mapped_by_tags_and_subfields() {
        let profile = profile(
            r#"{"id": "001", "title": "245$a", "match": "008",
                "fields": {"who": "245$c", "all": "245", "none": "020$a", "notes": "500$a"},
                "on_match": "skip"}"#,
        );
        profile.check(Format::Marc).unwrap();
        let bytes = book(7);
        let content = Layout::Marc.read(&bytes).unwrap();
        let mapped = profile.map(&content, &selectors(&["008"])).unwrap();
        assert_eq!(mapped.id.as_deref(), Some("00000007"));
        assert_eq!(mapped.title.as_deref(), Some("The book number 7 :"));
        assert_eq!(texts(&mapped), ["t/1/980410s1997    fr"]);
        let fields: Value = serde_json::from_str(&mapped.fields.unwrap()).unwrap();
        assert_eq!(fields["who"], "A. N. Other.");
        assert!(fields["all"].as_str().unwrap().ends_with("A. N. Other."));
        assert!(fields.get("none").is_none());
    }

    #[test]
    fn an_object_is_mapped_by_paths() {
        let profile = profile(
            r#"{"id": "ids.own", "match": "isbn",
                "fields": {"by": "author.name", "tags": "tags"}}"#,
        );
        let text = r#"{"ids":{"own":12},"title":"T","isbn":" 9 ","author":{"name":"A"},"tags":["x",1,"x"]}"#;
        let of = selectors(&["isbn", "tags", "none"]);
        let mapped = profile.map(&Content::Object(text.into()), &of).unwrap();
        assert_eq!(mapped.id.as_deref(), Some("12"));
        assert_eq!(mapped.title.as_deref(), Some("T"));
        assert_eq!(texts(&mapped), ["t/1/9", "t/2/x", "t/2/1"]);
        let alike: Vec<i64> = mapped.keys.iter().map(|key| key.alike).collect();
        assert_eq!(alike, [1, 2, 2]);
        assert_eq!(
            mapped.fields.as_deref(),
            Some(r#"{"by":"A","tags":["x","1","x"]}"#)
        );
        assert_eq!(mapped.body, text);
        let empty = Content::Object("{}".into());
        let missing = profile.map(&empty, &of).unwrap_err();
        assert!(missing.contains("no field 'ids.own'"), "{missing}");
    }

    #[test]
    fn numbers_are_kept_as_they_are_written() {
        let profile = profile(r#"{"id": "n.id", "match": "list", "fields": {"f": "n.f"}}"#);
        let of = selectors(&["list"]);
        let text = r#"{"n":{"id":1,"f":1.50,"id":123456789012345678901},
            "list":["a",1e999,12345678901234567890123,null,[2]],"lone":"\ud800"}"#;
        let mapped = profile.map(&Content::Object(text.into()), &of).unwrap();
        assert_eq!(mapped.id.as_deref(), Some("123456789012345678901"));
        assert_eq!(
            texts(&mapped),
            ["t/1/a", "t/1/1e999", "t/1/12345678901234567890123"]
        );
        assert_eq!(mapped.fields.as_deref(), Some(r#"{"f":"1.50"}"#));
        let refused = |text: &'static str| {
            let content = Content::Object(text.into());
            profile.map(&content, &of).unwrap_err().into_owned()
        };
        assert_eq!(refused("[1]"), "the line is not a JSON object");
        assert!(refused("{\"n\":").starts_with("the line is not JSON: "));
    }

    #[test]
    fn a_name_with_a_dot_is_a_name_first() {
        let profile = profile(r#"{"id": "a.b", "title": "c.d.e"}"#);
        let text = r#"{"a":{"b":1},"a.b":2,"c":{"d.e":3}}"#;
        let mapped = profile.map(&Content::Object(text.into()), &selectors(&[]));
        let mapped = mapped.unwrap();
        assert_eq!(
            (mapped.id.as_deref(), mapped.title.as_deref()),
            (Some("2"), Some("3"))
        );
    }

    #[test]
    fn a_field_without_subfields_is_selected_as_a_text() {
        let bytes = built(
            "a",
            &[("001", "x"), ("SYS", "000123456"), ("245", "00\u{1f}aT")],
        );
        let profile = profile(r#"{"id": "SYS"}"#);
        let content = Layout::Marc.read(&bytes).unwrap();
        let mapped = profile.map(&content, &selectors(&[])).unwrap();
        assert_eq!(mapped.id.as_deref(), Some("000123456"));
    }

    #[test]
    fn selectors_that_select_nothing_are_refused_by_name() {
        let wrong = profile(r#"{"fields": {"x": "24$a"}}"#)
            .check(Format::Marc)
            .unwrap_err();
        assert!(wrong.contains("24$a") && wrong.contains("'x'"), "{wrong}");
        assert!(
            profile(r#"{"match": "245$"}"#)
                .check(Format::MarcXml)
                .is_err()
        );
        assert!(profile(r#"{"match": ""}"#).check(Format::Jsonl).is_err());
        assert!(profile(r#"{"match": "a.b"}"#).check(Format::Csv).is_ok());
        assert!(serde_json::from_str::<Profile>(r#"{"on_match": "shrug"}"#).is_err());
    }
}
