//! One record in a hundred damaged, by a seed, in every format: every intact record is imported, every
//! other one journaled once with its place and reason, and the job ends.

use std::collections::BTreeSet;

use base::Rng;

use super::*;
use crate::marc::{parse, tests::to_xml, write_json};

/// What a damage does to a record's bytes, and whether it can be taken nevertheless.
struct Damage {
    name: &'static str,
    /// False where some readers could still tell what was meant, as by a wrong length.
    is_fatal: bool,
    change: fn(&mut Vec<u8>),
}

const fn fatal(name: &'static str, change: fn(&mut Vec<u8>)) -> Damage {
    Damage {
        name,
        is_fatal: true,
        change,
    }
}

const fn harmless(name: &'static str, change: fn(&mut Vec<u8>)) -> Damage {
    Damage {
        name,
        is_fatal: false,
        change,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn iso_2709_with_one_record_in_a_hundred_damaged() {
    let damages = [
        harmless("a wrong length", |bytes| {
            bytes[..5].copy_from_slice(b"00123")
        }),
        harmless("a length of letters", |bytes| {
            bytes[..5].copy_from_slice(b"abcde")
        }),
        harmless("wrong offsets", |bytes| {
            bytes[24 + 12 + 7..24 + 24].copy_from_slice(b"00007")
        }),
        harmless("a line's end before it", |bytes| {
            drop(bytes.splice(..0, *b"\r\n"))
        }),
        fatal("no terminator", |bytes| {
            bytes.pop();
        }),
        fatal("cut short", |bytes| bytes.truncate(bytes.len() * 2 / 3)),
        fatal("a directory of letters", |bytes| bytes[30..50].fill(b'x')),
        fatal("bytes that are no UTF-8", |bytes| {
            let at = bytes.len() - 8;
            bytes[at..at + 3].fill(0xff);
        }),
        harmless("a base that is outside", |bytes| {
            bytes[12..17].copy_from_slice(b"99999")
        }),
    ];
    check("marc", book, (b"", b"", b""), &damages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marcxml_with_one_record_in_a_hundred_damaged() {
    let record = |n| to_xml(&parse(&book(n)).unwrap(), "").into_bytes();
    let damages = [
        fatal("an end tag is missing", |bytes| {
            replace(bytes, "</datafield>", "")
        }),
        fatal("a record that never ends", |bytes| {
            replace(bytes, "</record>", "")
        }),
        fatal("an entity that nobody knows", |bytes| {
            replace(bytes, "book", "&nbsp;")
        }),
        fatal("a tag of two digits", |bytes| {
            replace(bytes, "tag=\"245\"", "tag=\"24\"")
        }),
        fatal("bytes that are no UTF-8", |bytes| {
            replace_bytes(bytes, b"book", b"\xff\xfe")
        }),
        fatal("a leader that is too long", |bytes| {
            replace(bytes, "<leader>", "<leader>0")
        }),
    ];
    let around: Around = (
        b"<?xml version=\"1.0\"?>\n<collection>\n",
        b"\n",
        b"</collection>\n",
    );
    check("marcxml", record, around, &damages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marc_in_json_with_one_record_in_a_hundred_damaged() {
    let record = |n| {
        let mut text = String::new();
        write_json(&parse(&book(n)).unwrap(), &mut text);
        text.into_bytes()
    };
    let damages = [
        fatal("a bracket is missing", |bytes| replace(bytes, "]}", "")),
        fatal("one brace too many", |bytes| {
            replace(bytes, "\"},{", "\"}},{")
        }),
        fatal("a quote is missing", |bytes| {
            replace(bytes, "\"001\"", "\"001")
        }),
        fatal("cut short", |bytes| bytes.truncate(bytes.len() - 9)),
        fatal("a field that is a number", |bytes| {
            replace(bytes, "\"fields\":[", "\"fields\":[7,")
        }),
        fatal("bytes that are no UTF-8", |bytes| {
            replace_bytes(bytes, b"book", b"\xff\xfe")
        }),
    ];
    check("marcjson", record, (b"[", b",\n", b"]\n"), &damages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_with_one_in_a_hundred_damaged() {
    let line = |n| format!("{{\"id\":\"{n:08}\",\"title\":\"The book number {n}\"}}").into_bytes();
    let damages = [
        fatal("a quote is missing", |bytes| {
            replace(bytes, "\"title\"", "\"title")
        }),
        fatal("cut short", |bytes| bytes.truncate(bytes.len() / 2)),
        fatal("bytes that are no UTF-8", |bytes| {
            replace_bytes(bytes, b"book", b"\xff\xfe")
        }),
        fatal("no id", |bytes| replace(bytes, "\"id\"", "\"no\"")),
        fatal("a list", |bytes| replace(bytes, "{", "[")),
        fatal("control characters", |bytes| {
            replace_bytes(bytes, b"book", b"\x00\x01")
        }),
    ];
    check("jsonl", line, (b"", b"\n", b"\n"), &damages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn csv_with_one_row_in_a_hundred_damaged() {
    let row = |n| format!("{n:08},\"The book, number {n}\",x").into_bytes();
    let damages = [
        fatal("a column is missing", |bytes| replace(bytes, ",x", "")),
        fatal("a column too many", |bytes| replace(bytes, ",x", ",x,y")),
        fatal("a quote that never closes", |bytes| {
            replace(bytes, "\",x", ",x")
        }),
        fatal("bytes that are no UTF-8", |bytes| {
            replace_bytes(bytes, b"book", b"\xff\xfe")
        }),
        fatal("text behind a quote", |bytes| {
            replace(bytes, "\",x", "\"y,x")
        }),
    ];
    check("csv", row, (b"id,title,note\n", b"\n", b"\n"), &damages).await;
}

/// What stands before, between and behind the records of a file.
type Around = (&'static [u8], &'static [u8], &'static [u8]);

async fn check(
    format: &str,
    record: impl Fn(usize) -> Vec<u8>,
    (open, between, close): Around,
    damages: &[Damage],
) {
    let seed = 20_240_501;
    let mut rng = Rng::from_seed(seed);
    let mut file = open.to_vec();
    let mut damaged = Vec::new();
    for n in 0..RECORDS {
        if n > 0 {
            file.extend_from_slice(between);
        }
        let mut bytes = record(n);
        // Two that follow each other could be one damage to whoever reads them.
        let may = damaged.last().is_none_or(|(last, _, _)| n - last > 2) && n > 0;
        if may && rng.one_in(100) {
            let damage = &damages[rng.below(damages.len() as u64) as usize];
            (damage.change)(&mut bytes);
            damaged.push((n, file.len(), damage));
        }
        file.extend_from_slice(&bytes);
    }
    file.extend_from_slice(close);
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(64)).await;
    let key = if ["jsonl", "csv"].contains(&format) {
        "&key=id"
    } else {
        ""
    };
    let query = format!("format={format}&tenant=t&sink=records{key}");
    let id = service.import(&query, file).await;
    let job = service.ended(&id).await;
    assert_eq!(job["state"], "completed_with_rejects", "{job}");
    let stored: BTreeSet<String> = sink(folder.path(), "t").await.into_keys().collect();
    let journal = service.journal(&id).await;
    let rejected: Vec<&Value> = journal
        .iter()
        .filter(|one| one["kind"] == "rejected")
        .collect();
    assert!(damaged.len() > RECORDS / 200, "{}", damaged.len());
    for (n, at, damage) in &damaged {
        let told = rejected.iter().filter(|one| one["offset"] == *at as u64);
        let told: Vec<_> = told.collect();
        let what = format!("{format}, record {n} with {}, seed {seed}", damage.name);
        let is_stored = stored.contains(&format!("{n:08}"));
        assert_eq!(
            told.len() + usize::from(is_stored),
            1,
            "{what}: {rejected:?}"
        );
        assert!(!(damage.is_fatal && is_stored), "{what} was imported");
        let reason = |one: &&&Value| one["reason"].as_str().unwrap().len() > 5;
        assert!(told.iter().all(reason), "{what}: {told:?}");
    }
    let bad: BTreeSet<usize> = damaged.iter().map(|(n, _, _)| *n).collect();
    let missing = (0..RECORDS).filter(|n| !bad.contains(n) && !stored.contains(&format!("{n:08}")));
    assert_eq!(
        missing.collect::<Vec<_>>(),
        Vec::<usize>::new(),
        "{format}: lost intact records"
    );
    let counts = ["records_done", "records_rejected"].map(|name| job[name].as_u64().unwrap());
    assert_eq!(
        counts,
        [stored.len() as u64, rejected.len() as u64],
        "{job}"
    );
    assert_eq!(stored.len() + rejected.len(), RECORDS, "{format}");
    service.close().await;
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    replace_bytes(bytes, from.as_bytes(), to.as_bytes());
}

/// Replaces the first place; a damage that does nothing would test nothing.
fn replace_bytes(bytes: &mut Vec<u8>, from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|part| part == from);
    let at = at.expect("the record has what the damage replaces");
    drop(bytes.splice(at..at + from.len(), to.iter().copied()));
}

const RECORDS: usize = 3_000;
