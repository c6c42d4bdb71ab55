//! MARC-8 text into Unicode: sets of one byte and EACC, chosen by escape sequences.
//!
//! A text begins with ASCII in the lower half and ANSEL in the upper one. An escape sequence puts
//! another set into one of the halves, up to the end of the subfield. Marks that combine stand
//! before their letter in MARC-8 and behind it in Unicode. See "MARC 21 Specifications for Record
//! Structure, Character Sets, and Exchange Media", code tables of the Library of Congress.
//!
//! `marc8.table` is written by `scripts/marc8-table`: entries of six bytes, sorted by their first
//! three (the code: 0, set and byte, or the three bytes of EACC); the other three are the Unicode
//! character, whose highest bit says that it combines.

/// Text, and how many of its codes are not in the tables.
#[derive(Debug, PartialEq)]
pub(crate) struct Converted {
    pub text: String,
    /// Each stands as U+FFFD in the text.
    pub unknown: usize,
}

/// Converts one piece of text: a control field, or a subfield without its delimiter.
pub(crate) fn convert(bytes: &[u8]) -> Converted {
    let mut reader = Reader {
        rest: bytes,
        lower: ASCII,
        upper: ANSEL,
        marks: Vec::new(),
        out: Converted {
            text: String::with_capacity(bytes.len() + bytes.len() / 8),
            unknown: 0,
        },
    };
    while let Some(byte) = reader.rest.first().copied() {
        match byte {
            ESCAPE => reader.escape(),
            // Controls and the space are outside of every set.
            0..=0x20 => {
                reader.rest = &reader.rest[1..];
                reader.put(char::from(byte));
            }
            _ => reader.letter(byte),
        }
    }
    reader.flush();
    reader.out
}

struct Reader<'a> {
    rest: &'a [u8],
    /// The set of codes below 0x80.
    lower: u8,
    /// The set of codes from 0x80.
    upper: u8,
    /// Marks that wait for their letter.
    marks: Vec<char>,
    out: Converted,
}

impl Reader<'_> {
    fn escape(&mut self) {
        let (half, used) = match self.rest[1..] {
            [set @ (b'g' | b'b' | b'p'), ..] => (Half::Lower(set), 2),
            [b's', ..] => (Half::Lower(ASCII), 2),
            [b'$', b',', set, ..] => (Half::Lower(set), 4),
            [b'$', b')' | b'-', set, ..] => (Half::Upper(set), 4),
            [b'$', set, ..] => (Half::Lower(set), 3),
            [b'(' | b',', b'!', set, ..] => (Half::Lower(set), 4),
            [b')' | b'-', b'!', set, ..] => (Half::Upper(set), 4),
            [b'(' | b',', set, ..] => (Half::Lower(set), 3),
            [b')' | b'-', set, ..] => (Half::Upper(set), 3),
            _ => (Half::None, 1),
        };
        self.rest = &self.rest[used..];
        match half {
            Half::Lower(set) => self.lower = set,
            Half::Upper(set) => self.upper = set,
            Half::None => self.miss(),
        }
    }

    fn letter(&mut self, byte: u8) {
        let set = if byte < 0x80 { self.lower } else { self.upper };
        let (key, used) = match (set, self.rest) {
            (EACC, [a, b, c, ..]) => ([a & 0x7f, b & 0x7f, c & 0x7f], 3),
            (EACC, _) => ([0, EACC, byte], self.rest.len()),
            _ => ([0, set, byte], 1),
        };
        self.rest = &self.rest[used..];
        // A set may stand in the half for which its table was not written.
        let found = find(key).or_else(|| find([key[0], key[1], key[2] ^ 0x80]));
        match found {
            Some((mark, true)) => self.marks.push(mark),
            Some((letter, false)) => self.put(letter),
            None => self.miss(),
        }
    }

    fn put(&mut self, letter: char) {
        self.out.text.push(letter);
        self.flush();
    }

    fn miss(&mut self) {
        self.out.unknown += 1;
        self.put(char::REPLACEMENT_CHARACTER);
    }

    fn flush(&mut self) {
        self.out.text.extend(self.marks.drain(..));
    }
}

enum Half {
    Lower(u8),
    Upper(u8),
    None,
}

/// The character of a code, and whether it combines.
fn find(key: [u8; 3]) -> Option<(char, bool)> {
    let (entries, _) = TABLE.as_chunks::<6>();
    let at = entries
        .binary_search_by(|entry| entry[..3].cmp(&key))
        .ok()?;
    let [_, _, _, high, middle, low] = entries[at];
    let point = u32::from_be_bytes([0, high & 0x7f, middle, low]);
    Some((char::from_u32(point)?, high & 0x80 != 0))
}

static TABLE: &[u8] = include_bytes!("marc8.table");

const ESCAPE: u8 = 0x1b;
const ASCII: u8 = b'B';
const ANSEL: u8 = b'E';
const EACC: u8 = b'1';

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        let converted = convert(bytes);
        assert_eq!(converted.unknown, 0, "{bytes:x?}");
        converted.text
    }

    #[test]
    fn marks_of_ansel_move_behind_their_letter() {
        assert_eq!(text(b"litt\xe2erature"), "litte\u{301}rature");
        assert_eq!(text(b"\xe8\xe5u"), "u\u{308}\u{304}");
        assert_eq!(text(b"\xa1od\xb2z"), "\u{141}od\u{f8}z");
        assert_eq!(text(b"end\xe2"), "end\u{301}");
    }

    #[test]
    fn escapes_choose_sets_for_either_half() {
        // Basic Cyrillic below, then ASCII again; Basic Hebrew above.
        assert_eq!(
            text(b"\x1b(NtEST\x1b(B ok"),
            "\u{422}\u{435}\u{441}\u{442} ok"
        );
        assert_eq!(text(b"\x1b)2\xe0\xe1"), "\u{5d0}\u{5d1}");
        assert_eq!(text(b"H\x1bb2\x1bsO"), "H\u{2082}O");
        assert_eq!(text(b"\x1bga\x1bs"), "\u{3b1}");
    }

    #[test]
    fn eacc_takes_three_bytes_a_character() {
        assert_eq!(
            text(b"\x1b$1\x21\x30\x21\x21\x30\x22\x1b(B!"),
            "\u{4e00}\u{4e01}!"
        );
    }

    #[test]
    fn unknown_codes_are_counted_and_nothing_panics() {
        assert_eq!(
            convert(b"a\xffb\x1b"),
            Converted {
                text: "a\u{fffd}b\u{fffd}".to_owned(),
                unknown: 2
            }
        );
        assert_eq!(convert(b"\x1b$1\x21").unknown, 1);
        let mut rng = base::Rng::from_seed(3);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.below(12))
                .map(|_| match rng.below(4) {
                    0 => ESCAPE,
                    1 => b"(),-$!1BEgs"[usize::try_from(rng.below(11)).unwrap()],
                    _ => u8::try_from(rng.below(256)).unwrap(),
                })
                .collect();
            convert(&bytes);
        }
    }

    #[test]
    fn the_table_is_sorted_and_whole() {
        let (entries, rest) = TABLE.as_chunks::<6>();
        assert!(rest.is_empty() && entries.len() > 16_000);
        assert!(entries.is_sorted_by(|a, b| a[..3] < b[..3]));
        assert!(entries.iter().all(|e| find([e[0], e[1], e[2]]).is_some()));
    }
}
