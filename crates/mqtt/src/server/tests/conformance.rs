//! The normative statements of MQTT 3.1.1 and 5.0, each with the tests that provoke it.
//!
//! The two tables are data: `docs/mqtt-conformance.md` is written from them (`UPDATE_EXPECT=1`)
//! and compared. A row names tests as functions, so that one which is gone does not compile.

mod statements_311;
mod statements_5;

use std::collections::BTreeSet;
use std::fmt::Write;

/// One normative statement, by its number in the standard.
struct Statement {
    id: &'static str,
    /// What it asks for, in short and in our own words.
    about: &'static str,
    by: By,
}

/// How a statement is covered.
enum By {
    Tests(Vec<&'static str>),
    /// Why no test of a server provokes it.
    NotTestable(&'static str),
}

/// A statement and the tests that provoke it.
fn tested(id: &'static str, about: &'static str, tests: &[&'static str]) -> Statement {
    Statement {
        id,
        about,
        by: By::Tests(tests.to_vec()),
    }
}

fn untestable(id: &'static str, about: &'static str, why: &'static str) -> Statement {
    Statement {
        id,
        about,
        by: By::NotTestable(why),
    }
}

/// Where a test stands, by the function itself.
fn name<T>(_test: T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.strip_prefix("mqtt::").unwrap_or(path)
}

const OF_CLIENTS: &str = "binds clients only";

fn write_table(out: &mut String, title: &str, statements: &[Statement]) {
    let tested = statements
        .iter()
        .filter(|s| matches!(s.by, By::Tests(_)))
        .count();
    let all = statements.len();
    let _ = writeln!(out, "\n## {title}\n");
    let _ = writeln!(
        out,
        "{all} statements: {tested} provoked by tests, {} not testable against a server.\n",
        all - tested
    );
    out.push_str("| statement | what it asks for | provoked by |\n| --- | --- | --- |\n");
    for statement in statements {
        let by = match &statement.by {
            By::Tests(tests) => tests
                .iter()
                .map(|t| format!("`{t}`"))
                .collect::<Vec<_>>()
                .join(", "),
            By::NotTestable(why) => format!("not testable: {why}"),
        };
        let _ = writeln!(out, "| {} | {} | {by} |", statement.id, statement.about);
    }
}

fn page() -> String {
    let mut out = String::from(HEAD);
    write_table(&mut out, "MQTT 5.0", &statements_5::all());
    write_table(&mut out, "MQTT 3.1.1", &statements_311::all());
    out
}

#[test]
fn the_page_says_what_the_tables_say() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/mqtt-conformance.md"
    );
    let page = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/mqtt-conformance.md is not what the tables say: run with UPDATE_EXPECT=1"
    );
}

#[test]
fn every_statement_stands_once_and_says_how_it_is_covered() {
    for statements in [statements_5::all(), statements_311::all()] {
        let mut ids = BTreeSet::new();
        for statement in &statements {
            assert!(ids.insert(statement.id), "{} stands twice", statement.id);
            assert!(statement.id.starts_with("MQTT-"), "{}", statement.id);
            match &statement.by {
                By::Tests(tests) => {
                    assert!(!tests.is_empty(), "{} names no test", statement.id);
                    for test in tests {
                        assert!(test.contains("::tests::"), "{test} is no test");
                    }
                }
                By::NotTestable(why) => assert!(!why.is_empty(), "{}", statement.id),
            }
        }
    }
}

const HEAD: &str = "# MQTT conformance

The normative statements of MQTT 5.0 and 3.1.1 by their numbers in the standards, each with the
tests of `crates/mqtt` that provoke it, or the reason why none can. The words are ours and short;
the standards' own are what counts. This page is written from the tables in
`crates/mqtt/src/server/tests/conformance/`, and a test compares the two.

Known deviation: wills of clients that were connected when the server stopped are not published.
";
