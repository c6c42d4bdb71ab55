//! Large bodies of plain text values, read at the speed of memory.
//!
//! A general JSON parser looks at a string eight bytes at a time, which for values of a hundred
//! kilobytes costs more than sending them. This one knows one shape only: `{"records":[…]}` whose
//! records have a `key` and a `value` at most, each a string without escapes. It answers none as
//! soon as anything else stands there, right or wrong, and the parser has the word.

/// A record's key and value as they stand in the body, in their quotes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Strings<'a> {
    pub key: Option<&'a str>,
    pub value: Option<&'a str>,
}

/// The records of a body of that shape, at most `records_max` of them, as `of` makes them.
pub(crate) fn records<'a, T>(
    body: &'a [u8],
    records_max: usize,
    of: impl Fn(Strings<'a>) -> T,
) -> Option<Vec<T>> {
    let mut scan = Scan {
        rest: std::str::from_utf8(body).ok()?,
    };
    let mut records = Vec::new();
    scan.token(b'{')?;
    (scan.string()? == "\"records\"").then_some(())?;
    scan.token(b':')?;
    scan.token(b'[')?;
    loop {
        (records.len() < records_max).then_some(())?;
        records.push(of(scan.record()?));
        if scan.token(b',').is_none() {
            break;
        }
    }
    scan.token(b']')?;
    scan.token(b'}')?;
    scan.skip_space();
    scan.rest.is_empty().then_some(records)
}

struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    fn record(&mut self) -> Option<Strings<'a>> {
        let mut record = Strings::default();
        self.token(b'{')?;
        loop {
            let name = self.string()?;
            self.token(b':')?;
            let text = self.string()?;
            let field = match name {
                "\"key\"" => &mut record.key,
                "\"value\"" => &mut record.value,
                _ => return None,
            };
            // Twice the same name is for the parser to refuse.
            if field.replace(text).is_some() {
                return None;
            }
            if self.token(b',').is_none() {
                break;
            }
        }
        self.token(b'}')?;
        Some(record)
    }

    /// A string without escapes, with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        self.skip_space();
        let inner = self.rest.strip_prefix('"')?;
        let end = plain_bytes(inner.as_bytes());
        (inner.as_bytes().get(end) == Some(&b'"')).then_some(())?;
        let (string, rest) = self.rest.split_at(end + 2);
        self.rest = rest;
        Some(string)
    }

    fn token(&mut self, token: u8) -> Option<()> {
        self.skip_space();
        (self.rest.as_bytes().first() == Some(&token)).then_some(())?;
        // Tokens are of one byte each, as spaces are.
        self.rest = &self.rest[1..];
        Some(())
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let spaces = self.rest.as_bytes().iter().take_while(is_space).count();
        self.rest = &self.rest[spaces..];
    }
}

/// How many bytes stand before the first quote, backslash or control character.
fn plain_bytes(bytes: &[u8]) -> usize {
    let long = plain_chunks::<64>(bytes);
    let plain = long + plain_chunks::<16>(&bytes[long..]);
    let rest = &bytes[plain..];
    let special = rest.iter().position(|byte| is_special(*byte));
    plain + special.unwrap_or(rest.len())
}

/// How many bytes of whole chunks stand before the first chunk with something special. Without a way
/// out of the inner loop the compiler looks at a chunk at once.
fn plain_chunks<const BYTES: usize>(bytes: &[u8]) -> usize {
    let is_plain = |chunk: &&[u8; BYTES]| {
        !chunk
            .iter()
            .fold(false, |any, byte| any | is_special(*byte))
    };
    let (chunks, _) = bytes.as_chunks::<BYTES>();
    chunks.iter().take_while(is_plain).count() * BYTES
}

fn is_special(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<Vec<(Option<&str>, Option<&str>)>> {
        records(body.as_bytes(), 3, |it| (it.key, it.value))
    }

    #[test]
    fn the_one_shape_is_read() {
        assert_eq!(
            read(
                " { \"records\" :\n[ {\"value\":\"a b\"} ,{\"value\":\"\",\"key\":\"\u{e4}\"}]}\r\n"
            ),
            Some(vec![
                (None, Some("\"a b\"")),
                (Some("\"\u{e4}\""), Some("\"\""))
            ])
        );
        for bytes in [1, 63, 64, 65, 127, 128, 1_000] {
            let value = format!("\"{}\"", "x".repeat(bytes));
            let body = format!("{{\"records\":[{{\"value\":{value}}}]}}");
            assert_eq!(read(&body), Some(vec![(None, Some(&*value))]));
        }
    }

    #[test]
    fn all_else_is_left_to_the_parser() {
        for body in [
            "",
            "{}",
            "{\"records\":[]}",
            "{\"records\":[{}]}",
            "{\"records\":[{\"value\":1}]}",
            "{\"records\":[{\"value\":null}]}",
            "{\"records\":[{\"value\":{}}]}",
            "{\"records\":[{\"value\":\"a\\n\"}]}",
            "{\"records\":[{\"value\":\"a\u{1}\"}]}",
            "{\"records\":[{\"value\":\"a\",}]}",
            "{\"records\":[{\"value\":\"a\"},]}",
            "{\"records\":[{\"value\":\"a\",\"value\":\"b\"}]}",
            "{\"records\":[{\"value\":\"a\",\"partition\":1}]}",
            "{\"records\":[{\"value\":\"a\"}],\"value_schema_id\":1}",
            "{\"records\":[{\"value\":\"a\"}]",
            "{\"records\":[{\"value\":\"a\"}]} x",
            "{\"records\":[{\"value\":\"a}]}",
            "{\"Records\":[{\"value\":\"a\"}]}",
            "{\"records\":[{\"value\":\"a\"},{\"value\":\"a\"},{\"value\":\"a\"},{\"value\":\"a\"}]}",
        ] {
            assert_eq!(read(body), None, "{body}");
        }
        let not_text = b"{\"records\":[{\"value\":\"\xff\"}]}";
        assert_eq!(records(not_text, 3, |it| it), None);
    }
}
