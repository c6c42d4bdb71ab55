//! CSV with a header line (RFC 4180): each row becomes a JSON object of the header's names.
//!
//! The delimiter (comma, semicolon, tab or bar) is the one that the header has most of, or what a
//! line `sep=;` before it names. Quoted fields may hold line breaks. A quote that never closes would take the rest of the file with it:
//! a row of several lines that does not fit the header is given up line by line.

use std::borrow::Cow;

use super::encoding::Encoding;
use super::{BYTE_ORDER_MARK, Framed};
use crate::marc::quote;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    names: Vec<String>,
    encoding: Encoding,
    delimiter: u8,
    /// What a line ends with: LF, or CR where the file has nothing else.
    line_end: u8,
    /// Bytes of the line with its end, and of what stands before it.
    pub len: usize,
}

impl Header {
    /// Reads the header at a file's start.
    ///
    /// # Errors
    /// When there is no whole line in `head`, or it is not in this encoding.
    pub fn read(head: &[u8], encoding: Encoding, last: bool) -> Result<Header, &'static str> {
        let has_cr_alone = memchr::memchr(b'\n', head).is_none() && head.contains(&b'\r');
        let line_end = if has_cr_alone { b'\r' } else { b'\n' };
        let mark = mark_len(head);
        let told = told_delimiter(&head[mark..], line_end);
        let before = mark + told.map_or(0, |(_, len)| len);
        let head = &head[before..];
        let delimiter = told.map_or_else(|| likely_delimiter(head), |(delimiter, _)| delimiter);
        let row = row(head, delimiter, line_end, last)
            .ok_or("the file does not begin with a header line")?;
        Ok(Header {
            names: names(&row.fields, encoding)?,
            encoding,
            delimiter,
            line_end,
            len: before + row.len,
        })
    }

    /// Finds the first row of `buffer`, which is behind the header. The header itself may come again,
    /// in a file that was put together of others.
    pub fn frame<'a>(&self, buffer: &'a [u8], last: bool) -> Framed<'a> {
        let line = match self.line(buffer) {
            Some(end) => end,
            None if buffer.is_empty() && last => return Framed::End,
            None if last => buffer.len(),
            None => return Framed::Incomplete,
        };
        let before = mark_len(buffer);
        if buffer[before..line].trim_ascii().is_empty() {
            return Framed::Blank {
                len: line,
                counts: true,
            };
        }
        let given_up = |reason| Framed::Damaged {
            before,
            len: line - before,
            reason,
        };
        match self.row(&buffer[before..], last) {
            None if last => given_up("a quoted field does not end"),
            None => Framed::Incomplete,
            Some(row) if row.is_broken => given_up("text follows a field's closing quote"),
            Some(row) if self.is_repeated_by(&row) => Framed::Blank {
                len: before + row.len,
                counts: true,
            },
            Some(row) if before + row.len > line && row.fields.len() != self.names.len() => {
                given_up("the row goes over several lines and does not fit the header")
            }
            Some(row) => Framed::Record {
                before,
                bytes: &buffer[before..before + row.len],
                note: None,
            },
        }
    }

    /// How far the first line of a buffer goes; none where it does not end there.
    pub fn line(&self, buffer: &[u8]) -> Option<usize> {
        memchr::memchr(self.line_end, buffer).map(|at| at + 1)
    }

    fn row<'a>(&self, buffer: &'a [u8], last: bool) -> Option<Row<'a>> {
        row(buffer, self.delimiter, self.line_end, last)
    }

    /// Whether a row is the header once more; a single word may be a record all the same.
    fn is_repeated_by(&self, row: &Row<'_>) -> bool {
        let begins_alike = |(name, field): (&String, &Cow<'_, [u8]>)| {
            let text = self.encoding.text(field, "a field");
            text.is_ok_and(|text| text.trim() == name)
        };
        self.names.len() > 1
            && self.names.len() == row.fields.len()
            && self
                .names
                .iter()
                .zip(&row.fields)
                .next()
                .is_some_and(begins_alike)
            && names(&row.fields, self.encoding).is_ok_and(|names| names == self.names)
    }

    /// Reads a framed row: a JSON object.
    ///
    /// # Errors
    /// A sentence that says why the row is no record.
    pub fn object(&self, bytes: &[u8]) -> Result<String, Cow<'static, str>> {
        let row = self.row(bytes, true).ok_or("a quoted field does not end")?;
        if row.fields.len() != self.names.len() {
            let (found, expected) = (row.fields.len(), self.names.len());
            return Err(format!("the row has {found} fields and the header {expected}").into());
        }
        let mut object = String::with_capacity(bytes.len() * 2);
        for (index, (name, field)) in self.names.iter().zip(&row.fields).enumerate() {
            object.push(if index == 0 { '{' } else { ',' });
            quote(name, &mut object);
            object.push(':');
            quote(&self.encoding.text(field, "the row")?, &mut object);
        }
        object.push('}');
        Ok(object)
    }
}

struct Row<'a> {
    fields: Vec<Cow<'a, [u8]>>,
    /// Bytes up to the next row.
    len: usize,
    /// Something stands between a closing quote and the delimiter.
    is_broken: bool,
}

/// Bytes of a byte order mark.
fn mark_len(buffer: &[u8]) -> usize {
    match buffer.starts_with(BYTE_ORDER_MARK) {
        true => BYTE_ORDER_MARK.len(),
        false => 0,
    }
}

/// The delimiter that a line `sep=;` before the header names, as Excel writes it, and that line's
/// bytes.
fn told_delimiter(head: &[u8], line_end: u8) -> Option<(u8, usize)> {
    let len = memchr::memchr(line_end, head)? + 1;
    // A tab is a blank.
    let line = head[..len - 1]
        .strip_suffix(b"\r")
        .unwrap_or(&head[..len - 1]);
    match line.strip_prefix(b"sep=") {
        Some(&[delimiter]) if !delimiter.is_ascii_alphanumeric() => Some((delimiter, len)),
        _ => None,
    }
}

/// The delimiter that the header has most of, but for what is quoted.
fn likely_delimiter(head: &[u8]) -> u8 {
    let (mut counts, mut at) = ([0; DELIMITERS.len()], 0);
    let mut begins_field = true;
    while let Some(byte) = head.get(at).filter(|byte| !b"\n\r".contains(byte)) {
        at = match byte {
            b'"' if begins_field => quoted(head, at + 1).map_or(head.len(), |(_, end)| end),
            _ => at + 1,
        };
        let found = DELIMITERS.iter().position(|delimiter| delimiter == byte);
        begins_field = found.is_some();
        if let Some(found) = found {
            counts[found] += 1;
        }
    }
    let most = counts
        .iter()
        .zip(DELIMITERS)
        .max_by_key(|(count, _)| **count);
    most.map_or(b',', |(_, delimiter)| *delimiter)
}

/// What the columns of a header are called: every one has a name of its own.
fn names(fields: &[Cow<'_, [u8]>], encoding: Encoding) -> Result<Vec<String>, &'static str> {
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for (index, field) in fields.iter().enumerate() {
        let name = encoding.text(field, "the header line");
        let name = name.map_err(|_| NOT_IN_ENCODING)?.trim().to_owned();
        let is_taken = name.is_empty() || names.contains(&name);
        let mark = if name.is_empty() { "" } else { "_" };
        names.push(match is_taken {
            true => format!("{name}{mark}column_{}", index + 1),
            false => name,
        });
    }
    Ok(names)
}

/// The row that begins the buffer; none when it does not end there.
fn row(buffer: &[u8], delimiter: u8, line_end: u8, last: bool) -> Option<Row<'_>> {
    let mut fields = Vec::new();
    let (mut at, mut is_broken) = (0, false);
    loop {
        let is_quoted = buffer.get(at) == Some(&b'"');
        let mut field = Cow::Borrowed(&buffer[at..at]);
        if is_quoted {
            (field, at) = quoted(buffer, at + 1)?;
        }
        let rest = &buffer[at..];
        let (text, next) = match memchr::memchr2(delimiter, line_end, rest) {
            Some(end) => (&rest[..end], Some(rest[end])),
            None if last => (rest, None),
            None => return None,
        };
        at += text.len() + usize::from(next.is_some());
        // A line may end with CR and LF.
        let text = if next == Some(delimiter) {
            text
        } else {
            text.strip_suffix(b"\r").unwrap_or(text)
        };
        if is_quoted {
            is_broken |= !text.trim_ascii().is_empty();
        } else {
            field = Cow::Borrowed(text);
        }
        fields.push(field);
        if next != Some(delimiter) {
            return Some(Row {
                fields,
                len: at,
                is_broken,
            });
        }
    }
}

/// A quoted field from behind its opening quote, and where its closing one ends.
fn quoted(buffer: &[u8], from: usize) -> Option<(Cow<'_, [u8]>, usize)> {
    let (mut text, mut at) = (Vec::new(), from);
    loop {
        let end = at + memchr::memchr(b'"', &buffer[at..])?;
        // Two quotes stand for one.
        if buffer.get(end + 1) == Some(&b'"') {
            text.extend_from_slice(&buffer[at..=end]);
            at = end + 2;
            continue;
        }
        if text.is_empty() {
            return Some((Cow::Borrowed(&buffer[from..end]), end + 1));
        }
        text.extend_from_slice(&buffer[at..end]);
        return Some((Cow::Owned(text), end + 1));
    }
}

const DELIMITERS: &[u8] = b"|\t;,";
const NOT_IN_ENCODING: &str = "the header line is not UTF-8, nor in the encoding that was named; name it, as encoding=windows-1252";

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Result<String, String>> {
        let header = Header::read(text.as_bytes(), Encoding::DEFAULT, true).unwrap();
        let (mut found, mut at) = (Vec::new(), header.len);
        loop {
            match header.frame(&text.as_bytes()[at..], true) {
                Framed::End => return found,
                Framed::Blank { len, .. } => at += len,
                Framed::Damaged {
                    before,
                    len,
                    reason,
                } => {
                    found.push(Err(reason.to_owned()));
                    at += before + len;
                }
                Framed::Record { before, bytes, .. } => {
                    found.push(header.object(bytes).map_err(Cow::into_owned));
                    at += before + bytes.len();
                }
                Framed::Incomplete => panic!("nothing is incomplete at the end"),
            }
        }
    }

    fn ok(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    #[test]
    fn rows_become_objects_of_the_headers_names() {
        let found = rows(
            "\u{feff}id;title\r\n1;a \"plain\" one\r\n2;\"say \"\"no\"\"\"\n3\n3;\"x;\ny\"\n\n4;",
        );
        assert_eq!(found[0], ok(r#"{"id":"1","title":"a \"plain\" one"}"#));
        assert_eq!(found[1], ok(r#"{"id":"2","title":"say \"no\""}"#));
        assert!(
            found[2].as_ref().unwrap_err().contains("1 fields"),
            "{found:?}"
        );
        assert_eq!(found[3], ok(r#"{"id":"3","title":"x;\ny"}"#), "{found:?}");
        assert_eq!(found[4], ok(r#"{"id":"4","title":""}"#));
    }

    #[test]
    fn columns_without_a_name_of_their_own_get_one() {
        assert_eq!(
            rows("a,,a\n1,2,3\n"),
            [ok(r#"{"a":"1","column_2":"2","a_column_3":"3"}"#)]
        );
        assert_eq!(
            rows("a|b|c,d\n1|2|3\n"),
            [ok(r#"{"a":"1","b":"2","c,d":"3"}"#)]
        );
    }

    #[test]
    fn a_quote_that_never_closes_costs_its_line() {
        let found = rows("a,b\n1,\"open\n2,x\n3,\"shut\"\n4,y\n");
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].is_err());
        assert_eq!(found[1], ok(r#"{"a":"2","b":"x"}"#));
        assert_eq!(found[2], ok(r#"{"a":"3","b":"shut"}"#));
        let found = rows("a,b\n1,x\n2,\"open\n3,y\n");
        assert!(
            found[0].is_ok() && found[1].is_err() && found[2].is_ok(),
            "{found:?}"
        );
    }

    #[test]
    fn a_cut_row_waits_for_more() {
        let header = Header::read(b"a,b\n", Encoding::DEFAULT, true).unwrap();
        assert_eq!(header.frame(b"1,\"x\n", false), Framed::Incomplete);
        assert_eq!(header.frame(b"1,2", false), Framed::Incomplete);
        assert!(Header::read(b"a,b", Encoding::DEFAULT, false).is_err());
    }

    #[test]
    fn the_delimiter_is_told_by_what_is_not_quoted_or_by_a_line_of_its_own() {
        let found = rows("\"name, first, last\";x\n\"Lee, Ann\";2\n");
        assert_eq!(found, [ok(r#"{"name, first, last":"Lee, Ann","x":"2"}"#)]);
        let found = rows("\u{feff}sep=:\r\nid:a,b,c\r\n1:2\r\n");
        assert_eq!(found, [ok(r#"{"id":"1","a,b,c":"2"}"#)]);
        assert_eq!(rows("sep=\nx\n"), [ok(r#"{"sep=":"x"}"#)]);
        let found = rows("3\" pipe;\"a \"\",\"\" b\";c\n1;2;3\n");
        assert_eq!(found, [ok(r#"{"3\" pipe":"1","a \",\" b":"2","c":"3"}"#)]);
    }

    #[test]
    fn a_header_that_comes_again_is_no_record() {
        let found = rows("id,id,\n1,2,3\n\u{feff}id, id,\n4,5,6\nid,x,y\n");
        let row = |a, b, c| {
            ok(&format!(
                r#"{{"id":"{a}","id_column_2":"{b}","column_3":"{c}"}}"#
            ))
        };
        assert_eq!(
            found,
            [row("1", "2", "3"), row("4", "5", "6"), row("id", "x", "y")]
        );
        // A list of words may hold the one above it.
        assert_eq!(rows("word\nword\n"), [ok(r#"{"word":"word"}"#)]);
    }

    #[test]
    fn lines_may_end_with_a_carriage_return_alone() {
        let found = rows("id,text\r1,\"a\rb\"\r\r2,\"open\r3,c");
        assert_eq!(found[0], ok(r#"{"id":"1","text":"a\rb"}"#));
        assert!(found[1].is_err(), "{found:?}");
        assert_eq!(found[2..], [ok(r#"{"id":"3","text":"c"}"#)]);
    }

    #[test]
    fn a_byte_order_mark_before_a_row_is_no_part_of_it() {
        let found = rows("a,b\n\u{feff}1,2\n\u{feff}\n\u{feff}\"3\",4\n");
        let expected = [r#"{"a":"1","b":"2"}"#, r#"{"a":"3","b":"4"}"#];
        assert_eq!(found, expected.map(ok));
    }

    #[test]
    fn a_header_that_is_not_utf_8_is_refused() {
        let latin = b"Gr\xf6\xdfe,x\n\xe4,2\nGr\xf6\xdfe,x\n";
        let told = Header::read(latin, Encoding::DEFAULT, true).unwrap_err();
        assert!(told.contains("not UTF-8"), "{told}");
        let encoding = Encoding::told("windows-1252").unwrap();
        let header = Header::read(latin, encoding, true).unwrap();
        let row = header.object(&latin[header.len..header.len + 4]);
        assert_eq!(row, Ok("{\"Größe\":\"ä\",\"x\":\"2\"}".to_owned()));
        let again = header.frame(&latin[header.len + 4..], true);
        assert!(matches!(again, Framed::Blank { .. }), "{again:?}");
    }
}
