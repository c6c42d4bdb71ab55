//! Runs the files of `testdata/`: cases of a statement, events, and expected rows or an error.
//! `UPDATE_EXPECT=1` writes what came out in place of what was expected.
//!
//! An event line is `TIME[@TOPIC][#PARTITION] PAYLOAD`; `clock TIME` moves the wall clock, `idle`
//! says that no partition has records waiting.

use std::path::PathBuf;
use std::sync::Arc;

use base::UnixMillis;

use super::house;
use crate::epl;
use crate::expression::Event;
use crate::json::Scanner;
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::Source;
use crate::sql;
use crate::value::Value;

#[test]
fn expressions() {
    check("expressions.txt");
}

#[test]
fn windows() {
    check("windows.txt");
}

#[test]
fn joins() {
    check("joins.txt");
}

#[test]
fn errors() {
    check("errors.txt");
}

#[test]
fn epl_errors() {
    check("epl_errors.txt");
}

fn check(file: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut written = String::new();
    for case in text.split("=== ").skip(1) {
        written.push_str(&format!(
            "=== {}\n\n",
            run(case, file.starts_with("epl")).trim_end()
        ));
    }
    let written = format!("{}\n", written.trim_end());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (written, expected) in written.split("=== ").zip(expected.split("=== ")) {
        assert_eq!(written.trim_end(), expected.trim_end(), "in {file}");
    }
    assert_eq!(written, expected, "{file} has other cases");
}

/// The case with its outcome in place of what the file expects.
fn run(case: &str, is_epl: bool) -> String {
    let (name, rest) = case.split_once('\n').unwrap();
    let mut sections = rest.split("--- ");
    let statement = sections.next().unwrap();
    let mut kept = format!("{name}\n{statement}");
    let mut options = house::options();
    let mut events = "";
    for section in sections {
        let (head, body) = section.split_once('\n').unwrap_or((section, ""));
        match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["options", settings @ ..] => settings.iter().for_each(|text| set(&mut options, text)),
            ["events"] => events = body,
            _ => continue,
        }
        kept.push_str(&format!("--- {section}"));
    }
    let text = statement.trim_end_matches('\n');
    let compiled = match is_epl {
        true => epl::compile(text, &epl::Catalog::default()),
        false => sql::compile(text),
    };
    let outcome = match compiled {
        Err(error) => format!(
            "--- error\n{}:{} {}",
            error.line, error.column, error.message
        ),
        Ok(plan) => format!("--- rows\n{}", rows(plan, options, events)),
    };
    format!("{}\n{outcome}", kept.trim_end())
}

pub fn rows(plan: crate::plan::Plan, options: MachineOptions, events: &str) -> String {
    let scanner = Scanner::new(&plan.fields);
    let plan = Arc::new(plan);
    let mut machine = Machine::new(plan.clone(), options);
    for number in 0..plan.sources().len() {
        machine.bind_source(number, (0..plan.fields.len()).collect());
    }
    let mut out = Output::default();
    let mut values: Vec<Value<'_>> = Vec::new();
    for (index, line) in events.lines().filter(|line| !line.is_empty()).enumerate() {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "clock" => machine.on_clock(UnixMillis(rest.parse().unwrap()), &mut out),
            "idle" => {
                for number in 0..plan.sources().len() {
                    machine.set_source_waiting(number, |_| false, &mut out);
                }
            }
            _ => {
                let (head, partition) = head.split_once('#').unwrap_or((head, "0"));
                let (time, topic) = head.split_once('@').unwrap_or((head, "t"));
                let event = Event {
                    topic,
                    payload: Some(rest.as_bytes()),
                    key: None,
                    partition: partition.parse().unwrap(),
                    offset: line.contains('#').then_some(index as i64),
                    timestamp: UnixMillis(time.parse().unwrap()),
                };
                let scanned = scanner.scan(rest.as_bytes(), &mut values);
                for number in sources_of(&plan, topic) {
                    let values = scanned.as_ref().map(|()| values.as_slice());
                    machine.on_source_event(number, &event, values, &mut out);
                }
            }
        }
    }
    let mut text = String::new();
    for row in out.texts() {
        let row = std::str::from_utf8(row).unwrap();
        serde_json::from_str::<serde_json::Value>(row).unwrap();
        text.push_str(&format!("{row}\n"));
    }
    machine.delivered(out.rows.len() as u64, out.events());
    let books = machine.books();
    for (name, count) in [
        ("filtered", books.filtered),
        ("errored", books.errored),
        ("late", books.late),
        ("dropped", books.dropped),
        ("in flight", books.in_flight()),
    ] {
        if count > 0 {
            text.push_str(&format!("# {count} {name}\n"));
        }
    }
    if let Some(error) = machine.error() {
        text.push_str(&format!("# {error}\n"));
    }
    text
}

/// The sources of a plan that a topic's events come from; one that is alone takes any.
fn sources_of(plan: &crate::plan::Plan, topic: &str) -> Vec<usize> {
    let sources = plan.sources();
    if sources.len() == 1 {
        return vec![0];
    }
    let is_it = |source: &&Source| match source {
        Source::Mqtt(filter) => filter.parse::<mqtt::TopicFilter>().unwrap().matches(topic),
        Source::Kafka(name) | Source::Stream(name) => name == topic,
    };
    let places = sources.iter().enumerate();
    let found: Vec<usize> = places
        .filter(|(_, source)| is_it(source))
        .map(|(place, _)| place)
        .collect();
    assert!(!found.is_empty(), "no source has {topic}");
    found
}

fn set(options: &mut MachineOptions, setting: &str) {
    let (name, value) = setting.split_once('=').unwrap();
    match name {
        "lateness" => options.lateness_ms = value.parse().unwrap(),
        "groups" => options.groups_max = value.parse().unwrap(),
        "partitions" => options.partitions = value.parse().unwrap(),
        "align" => options.choices.align = serde_json::from_value(value.into()).unwrap(),
        "empty" => options.choices.empty = serde_json::from_value(value.into()).unwrap(),
        _ => panic!("no option is called {name}"),
    }
}
