//! Arguments in statements.
//!
//! A place for an argument is a `?` outside of texts, names and comments. What is put there is the
//! argument's bytes as hexadecimal digits within what the database takes for a text, so that
//! nothing in it can end that text, wherever it comes to stand.

use std::fmt::Write;

use super::Kind;
use crate::flowfile::Attributes;

/// See [`super::Place::statement`].
pub(super) fn filled(kind: Kind, sql: &str, attributes: &Attributes) -> Result<String, String> {
    let mut out = String::with_capacity(sql.len());
    let mut from = 0;
    for (number, at) in places(kind, sql).into_iter().enumerate() {
        out.push_str(&sql[from..at]);
        from = at + 1;
        let name = format!("sql.args.{}.value", number + 1);
        let has_type = || attributes.get(&format!("sql.args.{}.type", number + 1));
        match attributes.get(&name) {
            Some(value) => out.push_str(&literal(kind, value)),
            None if has_type().is_some() => out.push_str("NULL"),
            None => {
                return Err(format!(
                    "the statement has a place for the attribute {name}, which is not set"
                ));
            }
        }
    }
    out.push_str(&sql[from..]);
    Ok(out)
}

/// A text as a value within a statement: a number, a time and so on where one is wanted.
pub(super) fn literal(kind: Kind, text: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    match kind {
        Kind::Postgres => {
            out.push_str("U&'");
            for c in text.chars() {
                let _ = write!(out, "\\+{:06x}", u32::from(c));
            }
            out.push('\'');
        }
        Kind::MySql => {
            out.push_str("_utf8mb4 X'");
            hex(text, &mut out);
            out.push('\'');
        }
        Kind::Sqlite => {
            out.push_str("CAST(x'");
            hex(text, &mut out);
            out.push_str("' AS TEXT)");
        }
    }
    out
}

fn hex(text: &str, out: &mut String) {
    for byte in text.bytes() {
        let _ = write!(out, "{byte:02x}");
    }
}

/// Where the `?` of a statement are that stand for arguments.
fn places(kind: Kind, sql: &str) -> Vec<usize> {
    let bytes = sql.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match rest {
            [b'?', ..] => {
                found.push(at);
                1
            }
            [b'\'', ..] => {
                let before = at.checked_sub(1).map(|at| bytes[at]);
                let escapes = match kind {
                    Kind::MySql => true,
                    Kind::Postgres => matches!(before, Some(b'e' | b'E')),
                    Kind::Sqlite => false,
                };
                quoted(rest, b'\'', escapes)
            }
            [b'"', ..] => quoted(rest, b'"', kind == Kind::MySql),
            [b'`', ..] if kind != Kind::Postgres => quoted(rest, b'`', false),
            [b'[', ..] if kind == Kind::Sqlite => quoted(rest, b']', false),
            [b'-', b'-', ..] => line(rest),
            [b'#', ..] if kind == Kind::MySql => line(rest),
            [b'/', b'*', ..] => comment(rest, kind == Kind::Postgres),
            [b'$', ..] if kind == Kind::Postgres => dollar(rest),
            _ => 1,
        };
    }
    found
}

/// Bytes of what stands in quotes, both counted in; a doubled quote is one within it.
fn quoted(rest: &[u8], quote: u8, escapes: bool) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' if escapes => at += 2,
            byte if byte == quote && rest.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn line(rest: &[u8]) -> usize {
    memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1)
}

fn comment(rest: &[u8], nests: bool) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else if rest[at..].starts_with(b"/*") && (nests || depth == 0) {
            depth += 1;
            at += 2;
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Bytes of `$tag$ … $tag$`, or of a lone dollar.
fn dollar(rest: &[u8]) -> usize {
    let is_tag = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let len = rest[1..].iter().take_while(|byte| is_tag(byte)).count();
    if rest.get(len + 1) != Some(&b'$') || rest[1..].first().is_some_and(u8::is_ascii_digit) {
        return 1;
    }
    let tag = &rest[..len + 2];
    match memchr::memmem::find(&rest[tag.len()..], tag) {
        Some(end) => tag.len() + end + tag.len(),
        None => rest.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stand_where_nothing_else_can() {
        for (kind, sql, count) in [
            (
                Kind::Sqlite,
                "SELECT ?, '?', \"?\", `?`, [?] -- ?\n, ? /* ? */",
                2,
            ),
            (Kind::Sqlite, "SELECT 'it''s ?', ?", 1),
            (Kind::Sqlite, "SELECT '\\', ?", 1),
            (Kind::MySql, "SELECT 'it\\'s ?', \"a\\\"?\", ? # ?\n, ?", 2),
            (
                Kind::Postgres,
                "SELECT E'it\\'s ?', '\\', ?, $$ ? $$, $a$ ? $b$ ? $a$, $1, ?",
                2,
            ),
            (Kind::Postgres, "SELECT /* ? /* ? */ ? */ ?", 1),
            (Kind::Sqlite, "SELECT /* ? /* ? */ ?", 1),
            (Kind::Postgres, "SELECT '?", 0),
            (Kind::Postgres, "SELECT $$ ?", 0),
            (Kind::Sqlite, "", 0),
        ] {
            assert_eq!(places(kind, sql).len(), count, "{sql}");
        }
    }

    #[test]
    fn no_byte_of_an_argument_means_anything() {
        let nasty = "'; DROP TABLE t; -- \\ \" ` $$ ? \u{0} \u{1F600}";
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::MySql] {
            let literal = literal(kind, nasty);
            assert_eq!(literal.matches('\'').count(), 2, "{literal}");
            let allowed = |c: char| c.is_ascii_alphanumeric() || " _&+\\()'".contains(c);
            assert!(literal.chars().all(allowed), "{literal}");
        }
    }

    #[test]
    fn a_place_without_an_argument_is_told() {
        let attributes = Attributes::new([("sql.args.1.value", "a"), ("sql.args.2.type", "12")]);
        let sql = filled(Kind::Sqlite, "VALUES (?, ?)", &attributes).unwrap();
        assert_eq!(sql, "VALUES (CAST(x'61' AS TEXT), NULL)");
        let error = filled(Kind::Sqlite, "VALUES (?, ?, ?)", &attributes).unwrap_err();
        assert!(error.contains("sql.args.3.value"), "{error}");
    }
}
