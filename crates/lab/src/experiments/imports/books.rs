//! MARC records: generated ones, as large as those of a library, or a library's own, from the file
//! that the environment names in `THALWEG_LAB_MARC`.

use std::fmt::Write;
use std::sync::OnceLock;

/// A file of `count` records from number `first` on; a library's are taken in turn.
pub fn file(first: usize, count: usize) -> Vec<u8> {
    let library = library();
    if library.ends.is_empty() {
        return generated(first, count);
    }
    let mut file = Vec::with_capacity(count * 1_000);
    for number in first..first + count {
        let number = number % library.ends.len();
        let from = number
            .checked_sub(1)
            .map_or(0, |before| library.ends[before]);
        file.extend_from_slice(&library.bytes[from..library.ends[number]]);
    }
    file
}

/// The library's file and where each of its records ends; empty without one.
#[derive(Default)]
struct Library {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let read = |path| std::fs::read(path).unwrap_or_default();
        let bytes = std::env::var_os(LIBRARY_VARIABLE).map_or_else(Vec::new, read);
        let marks = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0x1d);
        let ends = marks.map(|(at, _)| at + 1).collect();
        Library { bytes, ends }
    })
}

/// A file of `count` generated records from number `first` on.
pub fn generated(first: usize, count: usize) -> Vec<u8> {
    let mut file = Vec::with_capacity(count * 950);
    for number in first..first + count {
        append(number, &mut file);
    }
    file
}

/// A record's id.
pub fn id(number: usize) -> String {
    format!("b{number:09}")
}

fn append(number: usize, file: &mut Vec<u8>) {
    let note = "Includes bibliographical references and index. ".repeat(6 + number % 8);
    let fields = [
        ("001", id(number)),
        ("008", "980410s1997    fr     b    001 0 eng d".to_owned()),
        ("020", format!("  \u{1f}a97800000{number:05}")),
        (
            "100",
            format!("1 \u{1f}aAuthor, {}.", WORDS[number % WORDS.len()]),
        ),
        (
            "245",
            format!(
                "10\u{1f}aThe {} of {} :\u{1f}bvolume {number} /\u{1f}cby an author.",
                WORDS[number / 7 % WORDS.len()],
                WORDS[number % WORDS.len()]
            ),
        ),
        ("500", format!("  \u{1f}a{note}")),
        (
            "650",
            format!(
                " 0\u{1f}a{}\u{1f}xHistory.",
                WORDS[number / 3 % WORDS.len()]
            ),
        ),
    ];
    let (mut directory, mut data) = (String::new(), String::new());
    for (tag, text) in fields {
        // Writing to a text does not fail.
        let _ = write!(directory, "{tag}{:04}{:05}", text.len() + 1, data.len());
        data.push_str(&text);
        data.push('\u{1e}');
    }
    let base = 24 + directory.len() + 1;
    let length = base + data.len() + 1;
    let record = format!("{length:05}cam a22{base:05} a 4500{directory}\u{1e}{data}\u{1d}");
    file.extend_from_slice(record.as_bytes());
}

/// Names the library's file.
pub const LIBRARY_VARIABLE: &str = "THALWEG_LAB_MARC";

const WORDS: [&str; 11] = [
    "history",
    "rivers",
    "England",
    "music",
    "gardens",
    "law",
    "medicine",
    "islands",
    "printing",
    "railways",
    "astronomy",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_whole_and_as_large_as_those_of_a_library() {
        let file = generated(5, 100);
        let ends = file.iter().filter(|byte| **byte == 0x1d).count();
        assert_eq!(ends, 100);
        let length: usize = std::str::from_utf8(&file[..5]).unwrap().parse().unwrap();
        assert_eq!(file[length - 1], 0x1d);
        assert!(
            (700..1_200).contains(&(file.len() / 100)),
            "{}",
            file.len() / 100
        );
    }
}
