//! The way of a file's bytes into records, for fuzzing and for damage at random.

use crate::format::{Framed, Layout};
use crate::job::Format;
use crate::keys::Selectors;
use crate::profile::Profile;

/// Reads a file: its first byte chooses the format, the others are what it holds.
pub fn file(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let format = Format::ALL[usize::from(*choice) % Format::ALL.len()];
    read(format, bytes);
}

/// The ids of a file's intact records, in their order, and how many places are damaged.
fn read(format: Format, bytes: &[u8]) -> (Vec<Option<String>>, usize) {
    let (mut ids, mut damaged) = (Vec::new(), 0);
    let Ok(layout) = Layout::of(format, None, bytes, true) else {
        return (ids, 1);
    };
    let (profile, selectors) = (Profile::default(), Selectors::default());
    let mut at = 0;
    loop {
        let step = match layout.frame(&bytes[at..], at as u64, true) {
            Framed::End => return (ids, damaged),
            Framed::Incomplete => panic!("nothing is incomplete at the end of a file"),
            Framed::Blank { len, .. } => len,
            Framed::Damaged { before, len, .. } => {
                damaged += 1;
                before + len
            }
            Framed::Record { before, bytes, .. } => {
                match layout
                    .read(bytes)
                    .and_then(|content| profile.map(&content, &selectors))
                {
                    Ok(mapped) => ids.push(mapped.id.or(mapped.title)),
                    Err(_) => damaged += 1,
                }
                before + bytes.len()
            }
        };
        assert!(step > 0, "no progress at byte {at}");
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;
    use crate::marc::tests::{book, to_xml};
    use crate::marc::{parse, write_json};

    /// A file of records in a format, each by itself, and what stands before and behind them.
    fn records(format: Format, count: usize) -> (Vec<u8>, Vec<Vec<u8>>, Vec<u8>) {
        let of = |n: usize| match format {
            Format::Marc => book(n),
            Format::MarcXml => (to_xml(&parse(&book(n)).unwrap(), "") + "\n").into_bytes(),
            Format::MarcJson => {
                let mut text = String::new();
                write_json(&parse(&book(n)).unwrap(), &mut text);
                (text + ",\n").into_bytes()
            }
            Format::Jsonl => format!("{{\"title\":\"{n:08}\",\"x\":[1,{{}}]}}\n").into_bytes(),
            Format::Csv => format!("{n:08},\"some, \"\"text\"\"\"\n").into_bytes(),
        };
        let (head, tail): (&[u8], &[u8]) = match format {
            Format::MarcXml => (b"<?xml version=\"1.0\"?><collection>\n", b"</collection>\n"),
            Format::MarcJson => (b"[", b"]\n"),
            Format::Csv => (b"title,text\n", b""),
            _ => (b"", b""),
        };
        (
            head.to_owned(),
            (0..count).map(of).collect(),
            tail.to_owned(),
        )
    }

    fn id(n: usize) -> Option<String> {
        Some(format!("{n:08}"))
    }

    #[test]
    fn damage_to_one_record_leaves_all_others() {
        for format in Format::ALL {
            let (head, intact, tail) = records(format, 7);
            for seed in 0..400 {
                let mut rng = Rng::from_seed(seed);
                let mut file = head.clone();
                for (n, record) in intact.iter().enumerate() {
                    let mut record = record.clone();
                    let len = record.len() as u64 - 1;
                    for _ in 0..if n == 3 { 1 + rng.below(3) } else { 0 } {
                        let at = usize::try_from(rng.below(len)).unwrap();
                        record[at] = b"x<>\"{}[]0 ,\xff"[usize::try_from(rng.below(12)).unwrap()];
                    }
                    file.extend_from_slice(&record);
                }
                file.extend_from_slice(&tail);
                let (ids, damaged) = read(format, &file);
                for n in [0, 1, 2, 4, 5, 6] {
                    assert!(
                        ids.contains(&id(n)),
                        "{format:?} seed {seed}: {n} of {ids:?}"
                    );
                }
                assert!(
                    ids.len() == 7 || damaged > 0,
                    "{format:?} seed {seed}: {ids:?}"
                );
            }
        }
    }

    #[test]
    fn the_corpus_is_read_and_holds_a_record_of_every_format() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/import_file");
        let mut formats = std::collections::BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            file(&bytes);
            let format = Format::ALL[usize::from(bytes[0]) % Format::ALL.len()];
            if !read(format, &bytes[1..]).0.is_empty() {
                formats.insert(format.name());
            }
        }
        assert_eq!(formats.len(), Format::ALL.len(), "{formats:?}");
    }

    #[test]
    fn bytes_of_any_kind_are_read_to_their_end() {
        for seed in 0..4_000 {
            let mut rng = Rng::from_seed(seed);
            let format = Format::ALL[usize::try_from(seed).unwrap() % Format::ALL.len()];
            let (head, intact, tail) = records(format, 3);
            let mut bytes = [head, intact.concat(), tail].concat();
            for _ in 0..1 + rng.below(20) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                match rng.below(4) {
                    0 => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
                    1 => bytes.truncate(at.max(1)),
                    2 => {
                        let piece = bytes[at..bytes.len().min(at + 60)].to_vec();
                        let to = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                        bytes.splice(to..to, piece);
                    }
                    _ => {
                        bytes.remove(at.min(bytes.len() - 1));
                        bytes.push(b'\n');
                    }
                }
            }
            read(format, &bytes);
        }
        file(b"");
        file(b"\x02<record><leader>");
    }
}
