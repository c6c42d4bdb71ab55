//! Reading keys and paths of a specification.

use super::{Index, Match, Node, Own, Piece, Reference, Segment, Then};
use crate::json::{Fields, Json};
use crate::limits::SHIFT_DEPTH_MAX;

/// Reads a level of a specification.
pub(super) fn node(fields: &Fields, depth: usize) -> Result<Node, String> {
    if depth > SHIFT_DEPTH_MAX {
        return Err(format!(
            "the specification is more than {SHIFT_DEPTH_MAX} deep"
        ));
    }
    let mut level = Node::default();
    for (key, value) in fields.iter() {
        let then = match value {
            Json::Object(inner) => Then::Node(node(inner, depth + 1)?),
            Json::Text(path) => Then::Paths(vec![segments(path)?]),
            Json::List(paths) => {
                let paths = paths.iter().map(|path| match path {
                    Json::Text(path) => segments(path),
                    other => Err(format!("'{key}': {} is no path", other.to_text())),
                });
                Then::Paths(paths.collect::<Result<_, _>>()?)
            }
            // Nothing: matched, and left out.
            Json::Null => Then::Paths(Vec::new()),
            other => return Err(format!("'{key}': {} is no path", other.to_text())),
        };
        let mut reader = Reader::new(key);
        match key.chars().next() {
            Some('$') => {
                reader.at += 1;
                let reference = reader.reference()?;
                level.own.push((Own::Key(reference), then));
            }
            Some('@') => {
                reader.at += 1;
                let (up, path) = reader.value()?;
                level.own.push((Own::Value(up, path), then));
            }
            Some('#') => level.own.push((Own::Text(key[1..].to_owned()), then)),
            _ => level.rules.push((matching(key)?, then)),
        }
    }
    // What is more exact comes first; sorting keeps the order of equals.
    level.rules.sort_by_key(|(matching, _)| match matching {
        Match::Literal(_) => (0, 0),
        Match::Computed(_) => (1, 0),
        Match::Pattern(parts) => (2, usize::MAX - parts.concat().len()),
    });
    Ok(level)
}

fn matching(key: &str) -> Result<Match, String> {
    if key.contains('&') {
        return Ok(Match::Computed(Reader::new(key).pieces(&[])?));
    }
    if key.contains('*') && !key.contains("\\*") {
        return Ok(Match::Pattern(key.split('*').map(str::to_owned).collect()));
    }
    let all = key.split('|').map(|key| key.replace('\\', ""));
    Ok(Match::Literal(all.collect()))
}

fn segments(path: &str) -> Result<Vec<Segment>, String> {
    let mut reader = Reader::new(path);
    let mut segments = Vec::new();
    loop {
        let name = reader.pieces(&['.', '['])?;
        let index = if reader.eats('[') {
            let index = if reader.eats('#') {
                Index::Count(reader.number()?.unwrap_or(0))
            } else {
                match reader.pieces(&[']'])? {
                    pieces if pieces.is_empty() => Index::Append,
                    pieces => Index::At(pieces),
                }
            };
            if !reader.eats(']') {
                return Err(reader.error("']' is missing"));
            }
            Some(index)
        } else {
            None
        };
        segments.push(Segment { name, index });
        if reader.rest().is_empty() {
            return Ok(segments);
        }
        if !reader.eats('.') && !reader.rest().starts_with('[') {
            return Err(reader.error("'.' is missing"));
        }
    }
}

/// Reads keys and paths of a specification.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Reader { text, at: 0 }
    }

    /// Text and references, up to one of `ends`.
    fn pieces(&mut self, ends: &[char]) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        while let Some(c) = self.rest().chars().next() {
            if ends.contains(&c) {
                break;
            }
            self.at += c.len_utf8();
            let piece = match c {
                '&' => Piece::Reference(self.reference()?),
                '@' => {
                    let (level, path) = self.value()?;
                    Piece::Value(level, path)
                }
                '\\' => {
                    let escaped = self.rest().chars().next();
                    plain.extend(escaped);
                    self.at += escaped.map_or(0, char::len_utf8);
                    continue;
                }
                _ => {
                    plain.push(c);
                    continue;
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(pieces)
    }

    /// What stands behind `&` or `$`: nothing, `1`, or `(1,2)`.
    fn reference(&mut self) -> Result<Reference, String> {
        if !self.eats('(') {
            let level = self.number()?.unwrap_or(0);
            return Ok(Reference { level, part: 0 });
        }
        let level = self.number()?.unwrap_or(0);
        let part = if self.eats(',') {
            self.number()?.unwrap_or(0)
        } else {
            0
        };
        if !self.eats(')') {
            return Err(self.error("')' is missing"));
        }
        Ok(Reference { level, part })
    }

    /// What stands behind `@`: nothing, `1`, `name`, or `(1,a.b)`.
    fn value(&mut self) -> Result<(usize, Vec<String>), String> {
        if !self.eats('(') {
            return Ok((self.number()?.unwrap_or(0), Vec::new()));
        }
        let level = self.number()?;
        if level.is_some() && self.eats(')') {
            return Ok((level.unwrap_or(0), Vec::new()));
        }
        if level.is_some() && !self.eats(',') {
            return Err(self.error("',' is missing"));
        }
        let end = self.rest().find(')');
        let end = end.ok_or_else(|| self.error("')' is missing"))?;
        let names = self.rest()[..end].split(['.', '[', ']']);
        let path = names.filter(|name| !name.is_empty()).map(str::to_owned);
        let path = path.collect();
        self.at += end + 1;
        Ok((level.unwrap_or(0), path))
    }

    fn number(&mut self) -> Result<Option<usize>, String> {
        let len = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return Ok(None);
        }
        let number = self.rest()[..len].parse();
        let number = number.map_err(|_| self.error("this number is too large"))?;
        self.at += len;
        Ok(Some(number))
    }

    fn eats(&mut self, sign: char) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len_utf8();
        }
        found
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn error(&self, reason: &str) -> String {
        let at = self.text[..self.at].chars().count();
        format!(
            "'{}' is no key or path at character {at}: {reason}",
            self.text
        )
    }
}
