//! A tolerant reader of MARC 21 in ISO 2709, on borrowed bytes.
//!
//! A record is a leader of 24 bytes (0..5 length, 12..17 base address of the data), a directory of
//! 12-byte entries (tag, field length, field start), and fields that end with 0x1E, all ended by
//! 0x1D. See "MARC 21 Specifications for Record Structure, Character Sets, and Exchange Media".
//!
//! Files in the field are damaged. The terminator says where a record ends, the leader's length
//! only confirms it or, where the terminator is missing, replaces it. So damage costs the damaged
//! record and never its neighbours. A record whose directory or lengths are off but whose fields
//! still match its directory one to one is taken, with a note.
//!
//! MARC-8 text becomes Unicode (`marc8.rs`), and the leader then says so. Many writers forget to
//! say that a text is UTF-8 already; it is taken as what it is. The same records in MARCXML
//! (`xml.rs`) and in JSON (`from_json.rs`) are read into the same form.

mod from_json;
mod json;
mod marc8;
mod xml;

use std::borrow::Cow;

pub(crate) use from_json::{frame_json, next_json, parse_json};
pub(crate) use json::{quote, write_json};
pub(crate) use xml::{frame_xml, has_collection, next_xml, parse_xml};

use crate::format::{BYTE_ORDER_MARK, Framed};

/// A record's leader and fields, as slices of its bytes where these are text already.
#[derive(Debug)]
pub(crate) struct MarcRecord<'a> {
    pub leader: Cow<'a, str>,
    pub fields: Vec<Field<'a>>,
    /// Why it is not quite right, though all of it was read.
    pub note: Option<Cow<'static, str>>,
}

/// A field without its terminator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field<'a> {
    pub tag: Cow<'a, str>,
    /// As in ISO 2709: a control field's text, or two indicators and subfields, each after a 0x1F
    /// and its code.
    pub data: Cow<'a, str>,
}

/// Finds the first record of `buffer`; `last` says that the file ends with the buffer.
pub(crate) fn frame(buffer: &[u8], last: bool) -> Framed<'_> {
    let before = filler(buffer);
    let rest = &buffer[before..];
    if rest.is_empty() {
        return if last {
            Framed::End
        } else {
            Framed::Incomplete
        };
    }
    let terminator = memchr::memchr(RECORD_END, rest);
    let length = length_of(rest);
    // A lost terminator or piece joins a record to the tail of another, or to the whole of it; the
    // second one's leader shows where. The length of the first is no proof of the contrary.
    if let Some(second) = terminator.and_then(|at| leader_whose_record_ends(&rest[..=at])) {
        let reason = "another record begins inside of it";
        return Framed::Damaged {
            before,
            len: second,
            reason,
        };
    }
    if let Some((at, end)) = terminator.zip(length)
        && at + 1 < end
    {
        match holds_terminator(rest, end, last) {
            Holds::No => {}
            // Its length is told by no more than five digits, so that a buffer has room for it.
            Holds::Unknown => return Framed::Incomplete,
            Holds::Yes => {
                let reason = "a record terminator is inside of it";
                return Framed::Damaged {
                    before,
                    len: end,
                    reason,
                };
            }
        }
    }
    if let Some(end) = length.filter(|end| terminator.is_none_or(|at| at + 1 > *end)) {
        for end in [end, end - 1] {
            if leader_at(rest, end) {
                let reason = "the record terminator is missing";
                return Framed::Damaged {
                    before,
                    len: end,
                    reason,
                };
            }
        }
    }
    match terminator {
        Some(at) => {
            let bytes = &rest[..=at];
            if bytes.len() < SHORTEST {
                let reason = "too short for a leader and a directory";
                return Framed::Damaged {
                    before,
                    len: bytes.len(),
                    reason,
                };
            }
            if let Some(second) = leader_after_field(bytes) {
                let reason = "another record begins inside of it";
                return Framed::Damaged {
                    before,
                    len: second,
                    reason,
                };
            }
            let note = match length {
                Some(length) if length == bytes.len() => None,
                _ => Some("the leader's record length is wrong"),
            };
            Framed::Record {
                before,
                bytes,
                note,
            }
        }
        None if last => {
            let reason = "the file ends inside of the record";
            Framed::Damaged {
                before,
                len: rest.len(),
                reason,
            }
        }
        None => Framed::Incomplete,
    }
}

/// Takes a framed record apart.
///
/// # Errors
/// A sentence that says what is damaged.
pub(crate) fn parse(bytes: &[u8]) -> Result<MarcRecord<'_>, &'static str> {
    let body = bytes
        .strip_suffix(&[RECORD_END])
        .ok_or("the record terminator is missing")?;
    let leader = body.get(..LEADER_BYTES).ok_or("too short for a leader")?;
    let leader = str::from_utf8(leader).ok().filter(|text| text.is_ascii());
    let leader = leader.ok_or("the leader is not ASCII")?;
    let directory_end = memchr::memchr(FIELD_END, &body[LEADER_BYTES..])
        .map(|at| LEADER_BYTES + at)
        .ok_or("the directory has no end")?;
    let directory = &body[LEADER_BYTES..directory_end];
    if directory.len() % ENTRY_BYTES != 0 {
        return Err("the directory is no whole number of entries");
    }
    let base_is_right = digits(&leader.as_bytes()[12..17]) == Some(directory_end + 1);
    let data = &body[directory_end + 1..];
    let (charset, mut note) = charset(data, leader)?;
    let strict = if base_is_right {
        by_directory(directory, data)
    } else {
        None
    };
    let tagged = match strict {
        Some(fields) => fields,
        None => {
            note = Some("the directory's offsets are wrong; fields taken in their order");
            let is_whole = length_of(bytes) == Some(bytes.len());
            by_order(directory, data, is_whole).ok_or("the directory does not fit the fields")?
        }
    };
    let mut unknown = 0;
    let mut fields = Vec::with_capacity(tagged.len());
    for (tag, field) in tagged {
        let tag = str::from_utf8(tag).ok().filter(|tag| tag.is_ascii());
        let tag = Cow::Borrowed(tag.ok_or("a tag is not ASCII")?);
        let data = match charset {
            // Checked as a whole above; a directory may still cut a character in two.
            Charset::Utf8 => {
                Cow::Borrowed(str::from_utf8(field).map_err(|_| "a field's text is cut")?)
            }
            Charset::Marc8 => Cow::Owned(from_marc8(field, &mut unknown)),
        };
        fields.push(Field { tag, data });
    }
    let mut leader = Cow::Borrowed(leader);
    if charset == Charset::Marc8 {
        leader.to_mut().replace_range(9..10, "a");
    }
    let note = match unknown {
        0 => note
            .map(Cow::Borrowed)
            .or_else(|| fields.iter().find_map(Field::oddity).map(Cow::Owned)),
        _ => Some(Cow::Owned(format!(
            "{unknown} MARC-8 codes are not in the code tables"
        ))),
    };
    Ok(MarcRecord {
        leader,
        fields,
        note,
    })
}

impl MarcRecord<'_> {
    /// The record's id: its control number (001), or else the Library of Congress's (010 $a).
    pub fn id(&self) -> Option<&str> {
        let control = self.fields.iter().find(|field| field.tag == "001");
        let library = || self.subfields("010", "a").next();
        control
            .map(|field| field.data.trim())
            .filter(|id| !id.is_empty())
            .or_else(|| library().map(str::trim).filter(|id| !id.is_empty()))
    }

    /// The title: 245 $a, $n, $p and $b in their order, without the closing punctuation.
    pub fn title(&self) -> Option<String> {
        let field = self.fields.iter().find(|field| field.tag == "245")?;
        let mut title = String::new();
        for (code, text) in field.subfields() {
            if matches!(code, 'a' | 'b' | 'n' | 'p') {
                if !title.is_empty() {
                    title.push(' ');
                }
                title.push_str(text.trim());
            }
        }
        let plain = title.trim_end_matches([' ', '/', ':', ';', ',', '=']).len();
        title.truncate(plain);
        (!title.is_empty()).then_some(title)
    }

    /// The texts of a tag's subfields whose code is one of `codes`, in the record's order.
    pub fn subfields<'s>(&'s self, tag: &'s str, codes: &'s str) -> impl Iterator<Item = &'s str> {
        let fields = self.fields.iter().filter(move |field| field.tag == tag);
        fields
            .flat_map(Field::subfields)
            .filter(|(code, _)| codes.contains(*code))
            .map(|(_, text)| text)
    }

    /// Checks what ISO 2709 checks by its structure: for records of other containers.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.leader.len() != LEADER_BYTES || !self.leader.is_ascii() {
            return Err("the leader is not 24 ASCII characters");
        }
        for field in &self.fields {
            if field.tag.len() != 3 || !field.tag.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err("a tag is not three letters or digits");
            }
        }
        Ok(())
    }
}

impl Field<'_> {
    /// Whether it is a text without indicators and subfields: a control field (001 to 009), or one
    /// that a system added after their kind (`SYS`, `FMT`).
    pub fn is_text(&self) -> bool {
        self.tag.starts_with("00") || self.data.len() > INDICATORS && !self.data.contains(SUBFIELD)
    }

    /// What is not stored of it, or was not there.
    fn oddity(&self) -> Option<String> {
        if self.is_text() {
            return None;
        }
        let head = self.data.split(SUBFIELD).next().unwrap_or_default();
        let tag = &self.tag;
        match head.chars().count() {
            INDICATORS => None,
            0 | 1 => Some(format!(
                "field {tag} lacks an indicator; it is taken as blank"
            )),
            _ => Some(format!(
                "field {tag} has text before its first subfield, which is left out"
            )),
        }
    }

    /// The two indicators, blank where the field has none.
    pub fn indicators(&self) -> [char; 2] {
        let head = self.data.split(SUBFIELD).next().unwrap_or_default();
        let mut chars = head.chars();
        [chars.next().unwrap_or(' '), chars.next().unwrap_or(' ')]
    }

    /// The subfields: code and text.
    pub fn subfields(&self) -> impl Iterator<Item = (char, &str)> {
        self.data.split(SUBFIELD).skip(1).filter_map(|piece| {
            let code = piece.chars().next()?;
            Some((code, &piece[code.len_utf8()..]))
        })
    }
}

/// In what a record's text is written.
#[derive(Clone, Copy, PartialEq)]
enum Charset {
    Utf8,
    Marc8,
}

/// The text's encoding: what leader/09 names, but for text that is plainly UTF-8, with a note.
fn charset(data: &[u8], leader: &str) -> Result<(Charset, Option<&'static str>), &'static str> {
    let is_utf8 = str::from_utf8(data).is_ok();
    match (leader.as_bytes()[9] == b'a', is_utf8) {
        (true, true) => Ok((Charset::Utf8, None)),
        (true, false) => Err("text is not UTF-8, though the leader says so"),
        (false, _) if data.contains(&ESCAPE) || !is_utf8 => Ok((Charset::Marc8, None)),
        (false, _) => {
            let note = "text is UTF-8, though the leader says MARC-8";
            Ok((Charset::Utf8, (!data.is_ascii()).then_some(note)))
        }
    }
}

/// A field's MARC-8 in Unicode. Sets that escapes chose end with their subfield.
fn from_marc8(field: &[u8], unknown: &mut usize) -> String {
    let mut text = String::with_capacity(field.len());
    for (index, piece) in field.split(|byte| *byte == SUBFIELD as u8).enumerate() {
        let mut piece = piece;
        if index > 0 {
            text.push(SUBFIELD);
            // The subfield's code is not part of its text.
            if let Some((code, rest)) = piece.split_first() {
                text.push(if code.is_ascii() {
                    char::from(*code)
                } else {
                    '?'
                });
                piece = rest;
            }
        }
        let converted = marc8::convert(piece);
        *unknown += converted.unknown;
        text.push_str(&converted.text);
    }
    text
}

type TaggedFields<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The fields as the directory says, if every entry fits a terminated field.
fn by_directory<'a>(directory: &'a [u8], data: &'a [u8]) -> Option<TaggedFields<'a>> {
    let mut fields = Vec::with_capacity(directory.len() / ENTRY_BYTES);
    for entry in directory.chunks_exact(ENTRY_BYTES) {
        let length = digits(&entry[3..7])?;
        let start = digits(&entry[7..12])?;
        let (last, field) = data.get(start..start.checked_add(length)?)?.split_last()?;
        if *last != FIELD_END || memchr::memchr(FIELD_END, field).is_some() {
            return None;
        }
        // A field begins where another ended, or it is the tail of one.
        if start > 0 && data[start - 1] != FIELD_END {
            return None;
        }
        fields.push((&entry[..3], field));
    }
    Some(fields)
}

/// The fields in the order in which they stand, if there are as many as directory entries. Entries
/// without numbers were overwritten, and what overwrote them may have gone over tags too. The last
/// field may lack its end in a record that `is_whole`; else it is cut.
fn by_order<'a>(directory: &'a [u8], data: &'a [u8], is_whole: bool) -> Option<TaggedFields<'a>> {
    let data = match data.strip_suffix(&[FIELD_END]) {
        Some(data) => data,
        None if is_whole => data,
        None => return None,
    };
    let entries = directory.chunks_exact(ENTRY_BYTES);
    if entries.clone().any(|entry| digits(&entry[3..]).is_none()) {
        return None;
    }
    let fields = data.split(|byte| *byte == FIELD_END);
    if fields.clone().count() != entries.len() || entries.len() == 0 {
        return None;
    }
    Some(entries.map(|entry| &entry[..3]).zip(fields).collect())
}

/// The record length that the leader gives, when it can be one.
fn length_of(record: &[u8]) -> Option<usize> {
    digits(record.get(..5)?).filter(|length| *length >= SHORTEST)
}

/// Whether a record has terminators inside of it, before that where its leader says it ends.
enum Holds {
    Yes,
    No,
    /// What is behind it is not in the buffer.
    Unknown,
}

/// Looks at a record that is to be `len` bytes long and has a terminator before that. Only where the
/// last of these bytes is one as well, the next record or the file's end follows, and no record
/// begins behind those before, its length is no lie.
fn holds_terminator(rest: &[u8], len: usize, last: bool) -> Holds {
    let record = &rest[..len.min(rest.len())];
    let inner = &record[..record.len().min(len - 1)];
    if memchr::memchr_iter(RECORD_END, inner).any(|at| leader_at(rest, at + 1)) {
        return Holds::No;
    }
    if record.len() < len {
        return if last { Holds::No } else { Holds::Unknown };
    }
    if !record.ends_with(&[RECORD_END]) {
        return Holds::No;
    }
    let behind = &rest[len..];
    let behind = &behind[filler(behind)..];
    match behind.len() < LEADER_BYTES + ENTRY_BYTES {
        true if !last => Holds::Unknown,
        true if behind.is_empty() => Holds::Yes,
        _ if is_leader(behind) => Holds::Yes,
        _ => Holds::No,
    }
}

/// Whether a leader and the first directory entry stand at `at`, filler before them skipped.
fn leader_at(buffer: &[u8], at: usize) -> bool {
    let rest = buffer.get(at..).unwrap_or_default();
    is_leader(&rest[filler(rest)..])
}

/// How many bytes at the start stand between records.
fn filler(buffer: &[u8]) -> usize {
    bytes_between(buffer, |byte| FILLER.contains(&byte))
}

/// How many bytes at the start are such as stand between records, or byte order marks, which files
/// have that were put together of others.
fn bytes_between(buffer: &[u8], is_one: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    loop {
        match buffer.get(at) {
            Some(byte) if is_one(*byte) => at += 1,
            Some(_) if buffer[at..].starts_with(BYTE_ORDER_MARK) => at += BYTE_ORDER_MARK.len(),
            _ => return at,
        }
    }
}

fn is_leader(bytes: &[u8]) -> bool {
    let Some(head) = bytes.get(..LEADER_BYTES + ENTRY_BYTES) else {
        return false;
    };
    // The type of record (06) is always a letter, and no directory has one there.
    length_of(head).is_some()
        && head[6].is_ascii_alphabetic()
        && digits(&head[12..17]).is_some_and(|base| base > LEADER_BYTES)
        && head[5..12].iter().all(|byte| (0x20..0x7f).contains(byte))
        && head[27..36].iter().all(u8::is_ascii_digit)
}

/// Where a second leader stands inside of a record, of a length that ends where the record does.
fn leader_whose_record_ends(record: &[u8]) -> Option<usize> {
    (1..record.len().saturating_sub(SHORTEST)).find(|at| {
        let rest = &record[*at..];
        length_of(rest) == Some(rest.len()) && is_leader(rest)
    })
}

/// Where a second leader stands right behind a field's end: its own length may be wrong.
fn leader_after_field(record: &[u8]) -> Option<usize> {
    memchr::memchr_iter(FIELD_END, record)
        .map(|at| at + 1)
        .find(|at| record.get(*at..).is_some_and(is_leader))
}

fn digits(bytes: &[u8]) -> Option<usize> {
    bytes.iter().try_fold(0_usize, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + usize::from(byte - b'0'))
    })
}

const RECORD_END: u8 = 0x1d;
const FIELD_END: u8 = 0x1e;
const SUBFIELD: char = '\u{1f}';
const ESCAPE: u8 = 0x1b;
const LEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 12;
/// What a data field begins with, in characters.
const INDICATORS: usize = 2;
/// A leader, the directory's end and the record's end.
const SHORTEST: usize = LEADER_BYTES + 2;
/// What stands between records of files that went through text tools or tapes.
const FILLER: [u8; 6] = [b'\n', b'\r', b' ', 0, b'^', 0x1a];

#[cfg(test)]
pub(crate) mod tests;
