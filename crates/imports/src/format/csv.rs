//! CSV with a header line (RFC 4180): each row becomes a JSON object of the header's names.
//!
//! The delimiter (comma, semicolon, tab or bar) is the one that the header has most of. Quoted
//! fields may hold line breaks. A quote that never closes would take the rest of the file with it:
//! a row of several lines that does not fit the header is given up line by line.

use std::borrow::Cow;

use super::Framed;
use crate::marc::quote;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    names: Vec<String>,
    delimiter: u8,
    /// Bytes of the line with its end, and of a byte order mark before it.
    pub len: usize,
}

impl Header {
    /// Reads the header at a file's start; none when there is no whole line in `head`.
    pub fn read(head: &[u8], last: bool) -> Option<Header> {
        let mark = if head.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        let head = &head[mark..];
        let line = &head[..memchr::memchr2(b'\n', b'\r', head).unwrap_or(head.len())];
        let most = DELIMITERS
            .iter()
            .max_by_key(|delimiter| memchr::memchr_iter(**delimiter, line).count());
        let delimiter = most.copied().unwrap_or(b',');
        let row = row(head, delimiter, last)?;
        let mut names: Vec<String> = Vec::with_capacity(row.fields.len());
        for (index, field) in row.fields.iter().enumerate() {
            let name = String::from_utf8_lossy(field).trim().to_owned();
            // Every column needs a name of its own.
            let is_taken = name.is_empty() || names.contains(&name);
            names.push(if is_taken {
                format!(
                    "{name}{}column_{}",
                    if name.is_empty() { "" } else { "_" },
                    index + 1
                )
            } else {
                name
            });
        }
        Some(Header {
            names,
            delimiter,
            len: mark + row.len,
        })
    }

    /// Finds the first row of `buffer`, which is behind the header.
    pub fn frame<'a>(&self, buffer: &'a [u8], last: bool) -> Framed<'a> {
        let line = match memchr::memchr(b'\n', buffer) {
            Some(end) => end + 1,
            None if buffer.is_empty() && last => return Framed::End,
            None if last => buffer.len(),
            None => return Framed::Incomplete,
        };
        if buffer[..line].trim_ascii().is_empty() {
            return Framed::Blank {
                len: line,
                counts: true,
            };
        }
        let given_up = |reason| Framed::Damaged {
            before: 0,
            len: line,
            reason,
        };
        match row(buffer, self.delimiter, last) {
            None if last => given_up("a quoted field does not end"),
            None => Framed::Incomplete,
            Some(row) if row.is_broken => given_up("text follows a field's closing quote"),
            Some(row) if row.len > line && row.fields.len() != self.names.len() => {
                given_up("the row goes over several lines and does not fit the header")
            }
            Some(row) => Framed::Record {
                before: 0,
                bytes: &buffer[..row.len],
                note: None,
            },
        }
    }

    /// Reads a framed row: a JSON object.
    ///
    /// # Errors
    /// A sentence that says why the row is no record.
    pub fn object(&self, bytes: &[u8]) -> Result<String, Cow<'static, str>> {
        let row = row(bytes, self.delimiter, true).ok_or("a quoted field does not end")?;
        if row.fields.len() != self.names.len() {
            let (found, expected) = (row.fields.len(), self.names.len());
            return Err(format!("the row has {found} fields and the header {expected}").into());
        }
        let mut object = String::with_capacity(bytes.len() * 2);
        for (index, (name, field)) in self.names.iter().zip(&row.fields).enumerate() {
            object.push(if index == 0 { '{' } else { ',' });
            quote(name, &mut object);
            object.push(':');
            quote(
                str::from_utf8(field).map_err(|_| "the row is not UTF-8")?,
                &mut object,
            );
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

/// The row that begins the buffer; none when it does not end there.
fn row(buffer: &[u8], delimiter: u8, last: bool) -> Option<Row<'_>> {
    let mut fields = Vec::new();
    let (mut at, mut is_broken) = (0, false);
    loop {
        let is_quoted = buffer.get(at) == Some(&b'"');
        let mut field = Cow::Borrowed(&buffer[at..at]);
        if is_quoted {
            (field, at) = quoted(buffer, at + 1)?;
        }
        let rest = &buffer[at..];
        let (text, next) = match memchr::memchr2(delimiter, b'\n', rest) {
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
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Result<String, String>> {
        let header = Header::read(text.as_bytes(), true).unwrap();
        let (mut found, mut at) = (Vec::new(), header.len);
        loop {
            match header.frame(&text.as_bytes()[at..], true) {
                Framed::End => return found,
                Framed::Blank { len, .. } => at += len,
                Framed::Damaged { len, reason, .. } => {
                    found.push(Err(reason.to_owned()));
                    at += len;
                }
                Framed::Record { bytes, .. } => {
                    found.push(header.object(bytes).map_err(Cow::into_owned));
                    at += bytes.len();
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
        let header = Header::read(b"a,b\n", true).unwrap();
        assert_eq!(header.frame(b"1,\"x\n", false), Framed::Incomplete);
        assert_eq!(header.frame(b"1,2", false), Framed::Incomplete);
        assert_eq!(Header::read(b"a,b", false), None);
    }
}
