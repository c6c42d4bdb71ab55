//! MARCXML: `<record>` with `<leader>`, `<controlfield tag>` and `<datafield tag ind1 ind2>` of
//! `<subfield code>`, in whatever elements around it, with whatever namespace prefix.
//!
//! A file is not read as one document: records are found by their tags alone, so a broken one costs
//! itself. What lies between records (declarations, comments, envelopes) is passed over; fields
//! outside of any record are damage. Only the entities that XML itself has are known.
//! See "MARC 21 XML Schema" of the Library of Congress.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::{Field, LEADER_BYTES, MarcRecord, SUBFIELD};
use crate::format::Framed;

/// Finds the first record of `buffer`; `last` says that the file ends with the buffer.
pub(crate) fn frame_xml(buffer: &[u8], last: bool) -> Framed<'_> {
    let mut open: Option<Open> = None;
    let mut passed = 0;
    let tags = Tags {
        buffer,
        at: 0,
        last,
    };
    for tag in tags {
        match (&mut open, tag.kind) {
            (None, Kind::Start) if tag.name == RECORD => open = Some(Open::record(tag.at)),
            (None, Kind::Start) if is_part(tag.name) => open = Some(Open::orphan(tag.at)),
            (None, _) => passed = tag.end,
            (Some(record), Kind::Start) if tag.name == RECORD => {
                if record.has_parts {
                    return record.damaged(tag.at, "another record begins inside of it");
                }
                // What began was an envelope of the same name, as OAI-PMH has.
                open = Some(Open::record(tag.at));
            }
            (Some(record), Kind::Start) => record.has_parts |= is_part(tag.name),
            (Some(record), Kind::End) if tag.name == RECORD => {
                if record.is_orphan {
                    return record.damaged(tag.end, "its fields are outside of any record");
                }
                return Framed::Record {
                    before: record.at,
                    bytes: &buffer[record.at..tag.end],
                    note: None,
                };
            }
            (Some(record), Kind::End) if tag.name == COLLECTION => {
                return record.damaged(tag.at, "the record's end is missing");
            }
            (Some(_), _) => {}
        }
    }
    match open {
        Some(record) if last => record.damaged(buffer.len(), "the file ends inside of the record"),
        None if last => Framed::End,
        None if passed > 0 => Framed::Blank {
            len: passed,
            counts: false,
        },
        _ => Framed::Incomplete,
    }
}

/// Whether there is an element that holds records, be it none.
pub(crate) fn has_collection(head: &[u8]) -> bool {
    let mut tags = Tags {
        buffer: head,
        at: 0,
        last: true,
    };
    tags.any(|tag| tag.name == COLLECTION)
}

/// Where the next record may begin, from the buffer's second byte on.
pub(crate) fn next_xml(buffer: &[u8]) -> Option<usize> {
    let mut tags = Tags {
        buffer,
        at: 1,
        last: true,
    };
    tags.find(|tag| tag.name == RECORD && tag.kind == Kind::Start)
        .map(|tag| tag.at)
}

/// Takes a framed record apart.
///
/// # Errors
/// A sentence that says what is damaged.
pub(crate) fn parse_xml(text: &str) -> Result<MarcRecord<'static>, Cow<'static, str>> {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let refused = |error: &dyn std::fmt::Display| Cow::Owned(format!("it is not XML: {error}"));
    let mut leader = None;
    let mut fields: Vec<Field<'static>> = Vec::new();
    let mut inside = Inside::Record;
    let mut content = String::new();
    loop {
        match reader.read_event().map_err(|error| refused(&error))? {
            Event::Start(start) => {
                content.clear();
                inside = match start.local_name().as_ref() {
                    "leader" => Inside::Leader,
                    "controlfield" => {
                        let tag = Cow::Owned(attribute(&start, "tag")?);
                        let data = Cow::Borrowed("");
                        fields.push(Field { tag, data });
                        Inside::Text
                    }
                    "datafield" => {
                        let tag = Cow::Owned(attribute(&start, "tag")?);
                        let mut data = String::new();
                        for name in ["ind1", "ind2"] {
                            data.push(one(&attribute(&start, name)?, "an indicator")?);
                        }
                        let data = Cow::Owned(data);
                        fields.push(Field { tag, data });
                        Inside::Datafield
                    }
                    "subfield" if inside == Inside::Datafield => {
                        let code = one(&attribute(&start, "code")?, "a subfield's code")?;
                        if let Some(field) = fields.last_mut() {
                            field.data.to_mut().extend([SUBFIELD, code]);
                        }
                        Inside::Subfield
                    }
                    "subfield" => return Err("a subfield is outside of any field".into()),
                    _ => inside,
                };
            }
            Event::Text(text) => content.push_str(&text.xml10_content()),
            Event::CData(text) => content.push_str(&text.xml10_content()),
            Event::GeneralRef(reference) => {
                let resolved = reference.resolve_char_ref();
                match resolved.map_err(|error| refused(&error))? {
                    Some(letter) => content.push(letter),
                    None => {
                        let name = reference.xml10_content();
                        let known = resolve_predefined_entity(&name);
                        content.push_str(
                            known.ok_or_else(|| format!("the entity '{name}' is not known"))?,
                        );
                    }
                }
            }
            Event::End(_) => {
                if content.bytes().any(|byte| matches!(byte, 0x1d..=0x1f)) {
                    return Err("a delimiter of ISO 2709 is in its text".into());
                }
                inside = match inside {
                    Inside::Leader => {
                        leader = Some(bare_leader(&content).to_owned());
                        Inside::Record
                    }
                    Inside::Text | Inside::Subfield => {
                        if let Some(field) = fields.last_mut() {
                            field.data.to_mut().push_str(&content);
                        }
                        if inside == Inside::Text {
                            Inside::Record
                        } else {
                            Inside::Datafield
                        }
                    }
                    Inside::Datafield | Inside::Record => Inside::Record,
                };
                content.clear();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let record = MarcRecord {
        leader: leader.ok_or("the record has no leader")?.into(),
        fields,
        note: None,
    };
    record.check()?;
    Ok(record)
}

/// A leader without what was put around it to be read by people; it may begin with blanks itself.
fn bare_leader(content: &str) -> &str {
    let lines = content.trim_matches(['\n', '\r', '\t']);
    let bare = content.trim();
    match bare.len() == LEADER_BYTES {
        true => bare,
        false => lines,
    }
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Result<String, Cow<'static, str>> {
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| format!("it is not XML: {error}"))?;
        if attribute.key.as_ref() == name {
            let value = attribute.normalized_value(XmlVersion::Explicit1_0);
            let value = value.map_err(|error| format!("it is not XML: {error}"))?;
            return Ok(value.into_owned());
        }
    }
    match name {
        "tag" => Err("a field has no tag".into()),
        "code" => Err("a subfield has no code".into()),
        // Some writers leave blanks out.
        _ => Ok(" ".to_owned()),
    }
}

fn one(text: &str, what: &str) -> Result<char, Cow<'static, str>> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Ok(letter),
        (None, _) if what == "an indicator" => Ok(' '),
        _ => Err(format!("{what} is not one character").into()),
    }
}

/// Which element's text is read.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Record,
    Leader,
    Text,
    Datafield,
    Subfield,
}

/// A record whose end is looked for.
struct Open {
    at: usize,
    has_parts: bool,
    is_orphan: bool,
}

impl Open {
    fn record(at: usize) -> Self {
        Open {
            at,
            has_parts: false,
            is_orphan: false,
        }
    }

    fn orphan(at: usize) -> Self {
        Open {
            at,
            has_parts: true,
            is_orphan: true,
        }
    }

    fn damaged(&self, end: usize, reason: &'static str) -> Framed<'static> {
        Framed::Damaged {
            before: self.at,
            len: end - self.at,
            reason,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Start,
    End,
}

struct Tag<'a> {
    at: usize,
    end: usize,
    kind: Kind,
    /// Without its namespace prefix.
    name: &'a [u8],
}

/// The whole tags of a buffer, broken ones and comments passed over. Ends before one that is cut by
/// the buffer's end.
struct Tags<'a> {
    buffer: &'a [u8],
    at: usize,
    /// The file ends with the buffer.
    last: bool,
}

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        loop {
            let rest = self.buffer.get(self.at..)?;
            let at = self.at + memchr::memchr(b'<', rest)?;
            let tag = &self.buffer[at..];
            let hidden = [(&b"<!--"[..], &b"-->"[..]), (b"<![CDATA[", b"]]>")];
            if let Some((open, close)) = hidden.iter().find(|(open, _)| tag.starts_with(open)) {
                self.at = at
                    + match memchr::memmem::find(tag, close) {
                        Some(end) => end + close.len(),
                        // It never closes, so it hides nothing.
                        None if self.last => open.len(),
                        None => return None,
                    };
                continue;
            }
            // No tag has another one inside of it.
            let close = 1 + memchr::memchr2(b'<', b'>', &tag[1..])?;
            if tag[close] == b'<' {
                self.at = at + close;
                continue;
            }
            self.at = at + close + 1;
            let (kind, name) = match tag[1..close].strip_prefix(b"/") {
                Some(name) => (Kind::End, name),
                None => (Kind::Start, &tag[1..close]),
            };
            let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'/';
            let name = &name[..name.iter().position(is_end).unwrap_or(name.len())];
            let name = match memchr::memchr(b':', name) {
                Some(colon) => &name[colon + 1..],
                None => name,
            };
            return Some(Tag {
                at,
                end: self.at,
                kind,
                name,
            });
        }
    }
}

fn is_part(name: &[u8]) -> bool {
    matches!(name, b"leader" | b"controlfield" | b"datafield")
}

const RECORD: &[u8] = b"record";
const COLLECTION: &[u8] = b"collection";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marc::tests::{book, cut_by, to_xml};
    use crate::marc::{parse, write_json};

    fn cut(file: &str) -> Vec<Result<String, Cow<'static, str>>> {
        cut_by(file.as_bytes(), frame_xml, |bytes| {
            parse_xml(str::from_utf8(bytes).unwrap())
        })
    }

    fn xml(n: usize) -> String {
        to_xml(&parse(&book(n)).unwrap(), "marc:")
    }

    #[test]
    fn a_record_is_the_same_as_in_iso_2709() {
        let bytes = book(7);
        let twin = parse(&bytes).unwrap();
        let xml = to_xml(&twin, "");
        let record = parse_xml(&xml).unwrap();
        let (mut one, mut two) = (String::new(), String::new());
        write_json(&twin, &mut one);
        write_json(&record, &mut two);
        assert_eq!(one, two);
    }

    #[test]
    fn a_leader_may_have_blanks_around_it() {
        let twin = xml(1);
        let leader = parse_xml(&twin).unwrap().leader.into_owned();
        for (around, expected) in [
            (format!("\n    {leader}\n  "), leader.clone()),
            (
                format!("\n     {}\n", &leader[5..]),
                format!("     {}", &leader[5..]),
            ),
        ] {
            let text = twin.replace(&leader, &around);
            assert_eq!(parse_xml(&text).unwrap().leader, expected);
        }
    }

    #[test]
    fn records_are_found_in_any_envelope_and_damage_costs_one() {
        let ok = |n: usize| Ok(format!("{n:08}"));
        let head = "<?xml version='1.0'?><!-- <record> --><marc:collection xmlns:marc='x'>\n";
        let file = format!("{head}{}\n{}</marc:collection>\n", xml(1), xml(2));
        assert_eq!(cut(&file), [ok(1), ok(2)]);
        let oai = format!(
            "<ListRecords><record><header/>{}</record></ListRecords>",
            xml(1)
        );
        assert_eq!(cut(&oai), [ok(1)]);
        let broken = |damage: &dyn Fn(String) -> String| {
            let file = format!(
                "{head}{}{}{}</marc:collection>",
                xml(1),
                damage(xml(2)),
                xml(3)
            );
            let found = cut(&file);
            assert_eq!((&found[0], &found[2]), (&ok(1), &ok(3)), "{found:?}");
            assert_eq!(found.len(), 3, "{found:?}");
            found[1].clone().unwrap_err()
        };
        let reason = broken(&|x| x.replace("</marc:record>", ""));
        assert!(reason.contains("another record"), "{reason}");
        let reason = broken(&|x| x.replace("<marc:record>", ""));
        assert!(reason.contains("outside"), "{reason}");
        let reason = broken(&|x| x.replacen("</marc:subfield>", "", 1));
        assert!(reason.contains("subfield"), "{reason}");
        let reason = broken(&|x| x.replacen("</marc:leader>", "</marc:lead>", 1));
        assert!(reason.contains("not XML"), "{reason}");
        let reason = broken(&|x| x.replace("book", "&nbsp;"));
        assert!(reason.contains("nbsp"), "{reason}");
        let reason = broken(&|x| x.replace("tag=\"245\"", "tag=\"24\""));
        assert!(reason.contains("tag"), "{reason}");
        let reason = broken(&|x| x.replacen("<marc:leader>", "<marc:leader>0", 1));
        assert!(reason.contains("leader"), "{reason}");
    }

    #[test]
    fn a_cut_file_is_damage_at_its_end_only() {
        let file = format!("<collection>{}{}", xml(1), xml(2));
        for end in file.len() - xml(2).len() + 20..file.len() {
            if !file.is_char_boundary(end) {
                continue;
            }
            let found = cut(&file[..end]);
            assert_eq!(found.len(), 2, "{end}: {found:?}");
            assert!(found[0].is_ok() && found[1].is_err());
        }
        let text = xml(1);
        assert_eq!(frame_xml(&text.as_bytes()[..40], false), Framed::Incomplete);
    }
}
