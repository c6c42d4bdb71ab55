//! Runs the files of `testdata/epl/`: scripts of statements and events (see [`crate::trial`]) with
//! the rows that Esper 9.0.0 gives for them.
//!
//! Where ours differ on purpose, a case has a second section, `--- ours REASON`, with our rows;
//! docs/epl.md lists the reasons. Numbers are compared by value. Rows are compared statement by
//! statement.

use std::path::{Path, PathBuf};

use base::Rng;

use crate::epl::{Catalog, KeptType};
use crate::query::kept::Kept;
use crate::trial;

/// Cases whose rows are others than Esper's, with the reason.
const OTHERS: &[(&str, &str)] = &[
    ("groups that leave a time window", GROUPS),
    ("an aggregate of a join", GROUPS),
    ("a group that vanished from a length batch", GROUPS),
    (
        "a group that emptied is what it was until the next event enters",
        GROUPS,
    ),
    (
        "two windows keep what both keep",
        "the order of what leaves two windows at once",
    ),
];

/// Groups that change at one instant come in the order in which what changed them came; Esper's in
/// that of a hash table.
const GROUPS: &str = "the order of groups";

#[test]
fn rows_are_those_of_esper() {
    let mut cases = 0;
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for case in text.split("=== ").skip(1) {
            cases += 1;
            let name = case.lines().next().unwrap_or_default();
            let is_other = OTHERS.iter().any(|(known, _)| *known == name);
            match (check(case), is_other) {
                (Err(difference), false) => failures.push(format!("{file}: {difference}")),
                (Ok(()), true) => {
                    failures.push(format!("{file}: {name} is level: list it no more"))
                }
                _ => {}
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {cases} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(cases >= 160, "only {cases} cases were found");
}

/// What every construct lowers to is at least a plan.
#[test]
fn every_script_compiles() {
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for case in text.split("=== ").skip(1) {
            let mut kept = Vec::new();
            let statements = case
                .lines()
                .filter_map(|line| line.strip_prefix("statement "));
            for statement in statements {
                let catalog = Catalog::default().with_kept(kept.clone());
                match crate::epl::compile(statement, &catalog) {
                    Ok(plan) => kept.extend(Kept::new(&plan).map(|kept| {
                        let columns = kept.columns().map(<[String]>::to_vec);
                        let is_table = kept.is_table();
                        (kept.name().to_owned(), KeptType { columns, is_table })
                    })),
                    Err(error) => failures.push(format!("{statement}\n    {error}")),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What the fuzzer begins with, and what it found.
#[test]
fn the_corpus_of_statements_compiles_or_is_refused_at_a_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/statement");
    let mut texts = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        check_places(&String::from_utf8_lossy(&bytes));
        texts += 1;
    }
    assert!(texts >= 30, "only {texts} texts were found");
}

/// Words of statements in any order.
#[test]
fn no_text_makes_the_compiler_panic() {
    let mut words: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let statements = text
            .lines()
            .filter_map(|line| line.strip_prefix("statement "));
        words.extend(statements.flat_map(|text| {
            text.split_inclusive([' ', '(', ')', ',', '[', ']', '#'])
                .map(str::to_owned)
        }));
    }
    words.extend(
        [
            "'",
            "\"",
            "`",
            "/*",
            "//",
            "\\u12",
            "é",
            "-",
            "{",
            "99999999999",
            "1e999",
        ]
        .map(str::to_owned),
    );
    for seed in 0..4_000 {
        let mut rng = Rng::from_seed(seed);
        let start = rng.below(words.len() as u64 - 20) as usize;
        let mut text: Vec<&str> = words[start..start + 20]
            .iter()
            .map(String::as_str)
            .collect();
        for _ in 0..rng.below(5) {
            let word = &words[rng.below(words.len() as u64) as usize];
            let place = rng.below(text.len() as u64) as usize;
            match rng.below(3) {
                0 => text.insert(place, word),
                1 => text[place] = word,
                _ => drop(text.remove(place)),
            }
        }
        check_places(&text.concat());
    }
}

fn check_places(text: &str) {
    if let Err(error) = crate::epl::compile(text, &crate::epl::Catalog::default()) {
        let lines = text.split('\n').count() as u64;
        assert!(
            (1..=lines).contains(&error.line) && error.column >= 1,
            "{text}: {error}"
        );
        assert!(!error.message.is_empty(), "{text}");
    }
}

fn check(case: &str) -> Result<(), String> {
    let (name, rest) = case.split_once('\n').unwrap();
    let mut sections = rest.split("--- ");
    let script = sections.next().unwrap();
    let mut expected = Vec::new();
    for section in sections {
        let (_, rows) = section.split_once('\n').unwrap_or((section, ""));
        expected = rows
            .lines()
            .filter(|row| !row.is_empty())
            .map(str::to_owned)
            .collect();
    }
    let mut out = Vec::new();
    trial::run(script.as_bytes(), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let rows: Vec<String> = out
        .lines()
        .filter(|line| *line != "end")
        .map(|line| line.strip_prefix("row ").unwrap_or(line).to_owned())
        .collect();
    // Each statement's own sequence counts: at one instant others may come between.
    let by_statement = |rows: &[String]| {
        let mut sorted: Vec<String> = rows.to_vec();
        sorted.sort_by_key(|row| row.split(' ').nth(1).map(str::to_owned));
        sorted
    };
    let (own, wanted) = (by_statement(&rows), by_statement(&expected));
    let is_same = own.len() == wanted.len()
        && own
            .iter()
            .zip(&wanted)
            .all(|(row, expected)| same_row(row, expected));
    if is_same {
        return Ok(());
    }
    let ours = rows.join("\n  ");
    Err(format!(
        "{name}\n  {}\n but ours are\n  {ours}",
        expected.join("\n  ")
    ))
}

/// `MS STATEMENT new|old {…}`.
fn same_row(a: &str, b: &str) -> bool {
    let split = |row: &str| {
        let at = row.find('{').unwrap_or(row.len());
        (row[..at].to_owned(), row[at..].to_owned())
    };
    let ((head, json), (other_head, other)) = (split(a), split(b));
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text);
    head == other_head
        && match (parse(&json), parse(&other)) {
            (Ok(a), Ok(b)) => same(&a, &b),
            _ => json == other,
        }
}

fn same(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
            _ => false,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (a, b) => a == b,
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join("epl")
}
