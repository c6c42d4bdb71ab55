//! Statements tried on events of a script, by the script's own clock: for people who write
//! statements, for tests, and for comparing with other engines.
//!
//! A script is lines, and ends with a line `end` or with the input:
//!
//! ```text
//! statement TEXT         added, in EPL, at the time that the clock shows
//! sql TEXT               the same in SQL
//! time MS                moves the clock, which begins at 0
//! event NAME k=v …       an event of that name: k=s:text, k=i:number, k=d:double; no blanks
//! event NAME {…}         the same as JSON
//! ```
//!
//! Names stand for streams of the script alone: `from E`. What comes is written per script, and
//! ends with `end` too:
//!
//! ```text
//! row MS STATEMENT new|old {…}   with the row's time; statements are numbered from 0
//! error STATEMENT TEXT           it does not compile, or an event could not be computed with
//! ```

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::Arc;

use base::UnixMillis;

use crate::epl::{self, Catalog};
use crate::expression::Event;
use crate::json::Scanner;
use crate::limits::{GROUPS_MAX, TRIAL_ROWS_MAX};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{OnError, Plan, Sink, Source};
use crate::sql;
use crate::value::Value;

/// Runs every script of `scripts` and writes what comes of each.
///
/// # Errors
/// Reading or writing failed, or a line is none of a script: `InvalidData` names it.
pub fn run(scripts: impl BufRead, mut out: impl Write) -> std::io::Result<()> {
    let mut trial = Trial::default();
    let mut is_empty = true;
    for line in scripts.lines() {
        let line = line?;
        is_empty = false;
        if line == "end" {
            trial.write(&mut out)?;
            trial = Trial::default();
            is_empty = true;
        } else if !line.trim().is_empty() {
            trial.line(&line).map_err(|why| {
                std::io::Error::new(std::io::ErrorKind::InvalidData, format!("'{line}': {why}"))
            })?;
        }
    }
    if is_empty {
        Ok(())
    } else {
        trial.write(&mut out)
    }
}

/// One script as far as it has run.
#[derive(Default)]
struct Trial {
    statements: Vec<Option<Tried>>,
    now: i64,
    lines: Vec<String>,
}

struct Tried {
    plan: Arc<Plan>,
    scanner: Scanner,
    machine: Machine,
    out: Output,
}

impl Trial {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "statement" => self.add(epl::compile(rest, &Catalog::default())),
            "sql" => self.add(sql::compile(rest)),
            "time" => self.move_clock(rest.parse().map_err(|_| "the time is in milliseconds")?),
            "event" => {
                let (name, fields) = rest.split_once(' ').unwrap_or((rest, ""));
                let payload = match fields.starts_with('{') {
                    true => fields.to_owned(),
                    false => payload_of(fields)?,
                };
                self.send(name, payload);
            }
            _ => return Err("a line begins with statement, sql, time, event or end".to_owned()),
        }
        Ok(())
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "end")?;
        out.flush()
    }

    fn say(&mut self, line: String) {
        if self.lines.len() < TRIAL_ROWS_MAX {
            self.lines.push(line);
        }
    }

    fn add(&mut self, compiled: Result<Plan, crate::error::TextError>) {
        let number = self.statements.len();
        let tried = match compiled {
            Ok(plan) => {
                let plan = Arc::new(plan);
                Some(Tried {
                    scanner: Scanner::new(&plan.fields),
                    machine: machine_of(&plan),
                    out: Output::default(),
                    plan,
                })
            }
            Err(error) => {
                self.say(format!("error {number} {error}"));
                None
            }
        };
        self.statements.push(tried);
        // Time begins for it now.
        if let Some(tried) = &mut self.statements[number] {
            tried.machine.on_clock(UnixMillis(self.now), &mut tried.out);
        }
    }

    fn move_clock(&mut self, now: i64) {
        self.now = now;
        let mut waiting = VecDeque::new();
        for number in 0..self.statements.len() {
            if let Some(tried) = &mut self.statements[number] {
                tried.machine.on_clock(UnixMillis(now), &mut tried.out);
            }
            self.take_rows(number, &mut waiting);
        }
        self.pass_on(waiting);
    }

    fn send(&mut self, name: &str, payload: String) {
        self.pass_on(VecDeque::from([(name.to_owned(), payload)]));
    }

    /// One event through all statements, with what they insert, before the next.
    fn pass_on(&mut self, mut waiting: VecDeque<(String, String)>) {
        while let Some((name, payload)) = waiting.pop_front() {
            if waiting.len() > TRIAL_ROWS_MAX {
                self.say("error 0 the statements feed each other without end".to_owned());
                return;
            }
            let source = Source::Stream(name.clone());
            for number in 0..self.statements.len() {
                let Some(tried) = &mut self.statements[number] else {
                    continue;
                };
                let place = tried
                    .plan
                    .sources()
                    .iter()
                    .position(|known| **known == source);
                if let Some(place) = place {
                    tried.apply(place, &name, &payload, self.now);
                    self.take_rows(number, &mut waiting);
                }
            }
        }
    }

    fn take_rows(&mut self, number: usize, waiting: &mut VecDeque<(String, String)>) {
        let Some(tried) = &mut self.statements[number] else {
            return;
        };
        let out = std::mem::take(&mut tried.out);
        let sink = tried.plan.sink.clone();
        for (text, row) in out.texts().zip(&out.rows) {
            let kind = if row.is_old { "old" } else { "new" };
            let time = row.timestamp.0;
            let row = String::from_utf8_lossy(text).into_owned();
            self.say(format!("row {time} {number} {kind} {row}"));
            if let Some(Sink::Stream(name)) = &sink {
                waiting.push_back((name.clone(), row));
            }
        }
    }
}

impl Tried {
    fn apply(&mut self, place: usize, name: &str, payload: &str, now: i64) {
        let mut values: Vec<Value<'_>> = Vec::new();
        let scanned = self.scanner.scan(payload.as_bytes(), &mut values);
        let event = Event {
            topic: name,
            payload: Some(payload.as_bytes()),
            key: None,
            partition: 0,
            offset: None,
            timestamp: UnixMillis(now),
        };
        let values = scanned.as_ref().map(|()| values.as_slice());
        self.machine
            .on_source_event(place, &event, values, &mut self.out);
    }
}

/// A machine that reads the same fields of every source of its statement.
fn machine_of(plan: &Arc<Plan>) -> Machine {
    let mut machine = Machine::new(plan.clone(), OPTIONS);
    for number in 0..plan.sources().len() {
        machine.bind_source(number, (0..plan.fields.len()).collect());
    }
    machine
}

/// `k=s:x a=i:1 b=d:2.5` as JSON.
fn payload_of(fields: &str) -> Result<String, String> {
    let mut json = Vec::from(b"{");
    for field in fields.split(' ').filter(|field| !field.is_empty()) {
        let parts = field.split_once('=').and_then(|(name, value)| {
            let (kind, value) = value.split_once(':')?;
            Some((name, kind, value))
        });
        let Some((name, kind, value)) = parts else {
            return Err(format!("{field} is no field such as a=i:1"));
        };
        if json.len() > 1 {
            json.push(b',');
        }
        crate::value::write_text(&mut json, name);
        json.push(b':');
        match kind {
            "s" => crate::value::write_text(&mut json, value),
            "i" | "d" => json.extend_from_slice(value.as_bytes()),
            _ => return Err(format!("{kind} is no kind of value: there are s, i and d")),
        }
    }
    json.push(b'}');
    String::from_utf8(json).map_err(|error| error.to_string())
}

const OPTIONS: MachineOptions = MachineOptions {
    lateness_ms: 0,
    groups_max: GROUPS_MAX,
    partitions: 1,
    close_delay_ms: 0,
    idle_ms: 0,
    on_error: OnError::Drop,
};
