//! Statements tried on events of a script, by the script's own clock: for people who write
//! statements, for tests, and for comparing with other engines.
//!
//! A script is lines, and ends with a line `end` or with the input:
//!
//! ```text
//! statement TEXT         added, in EPL, at the time that the clock shows
//! sql TEXT               the same in SQL
//! time MS                moves the clock, which begins at 0; it stops wherever something is due
//! query TEXT             runs once over named windows and tables
//! event NAME k=v …       an event of that name: k=s:text, k=i:number, k=d:double; no blanks
//! event NAME {…}         the same as JSON
//! ```
//!
//! Names stand for streams of the script alone: `from E`. What comes is written per script, and
//! ends with `end` too:
//!
//! ```text
//! row MS STATEMENT new|old {…}   with the row's time; statements are numbered from 0
//! row MS query new|old {…}       what a query answers
//! error STATEMENT TEXT           it does not compile, or an event could not be computed with
//! ```

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::Arc;

use base::UnixMillis;

use crate::demand::{once, types_of};
use crate::epl::{self, Catalog};
use crate::expression::Event;
use crate::json::Scanner;
use crate::limits::{GROUPS_MAX, STATE_BYTES_MAX, TRIAL_ROWS_MAX};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{Align, EmptyWindows, OnError, Plan, Sink, Source};
use crate::query::compiled::check;
use crate::query::kept::{Change, Kept, KeptByName};
use crate::sql;
use crate::value::Value;
use crate::window::Choices;

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
    kept: KeptByName,
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
            "statement" => self.add(epl::compile(rest, &self.catalog())),
            "query" => self.query(rest),
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

    fn catalog(&self) -> Catalog {
        Catalog::default().with_kept(types_of(&self.kept))
    }

    fn add(&mut self, compiled: Result<Plan, crate::error::TextError>) {
        let number = self.statements.len();
        let checked = compiled
            .map_err(|error| error.to_string())
            .and_then(|plan| {
                check(&plan, &self.kept)?;
                Ok(plan)
            });
        let tried = match checked {
            Ok(plan) => {
                let plan = Arc::new(plan);
                let machine = machine_of(&plan, &self.kept);
                if let Some(created) = machine.created() {
                    self.kept.insert(created.name().to_owned(), created.clone());
                }
                Some(Tried {
                    scanner: Scanner::new(&plan.fields),
                    machine,
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

    fn query(&mut self, text: &str) {
        let answered = once(text, &self.catalog(), &self.kept, UnixMillis(self.now));
        match answered {
            Ok(out) => {
                for (text, row) in out.texts().zip(&out.rows) {
                    let kind = if row.is_old { "old" } else { "new" };
                    let text = String::from_utf8_lossy(text).into_owned();
                    self.say(format!("row {} query {kind} {text}", self.now));
                }
                self.pass_on(VecDeque::new());
            }
            Err(error) => self.say(format!("error query {}", base::report(&error))),
        }
    }

    /// Moves the clock, stopping at every instant at which something is due.
    fn move_clock(&mut self, now: i64) {
        loop {
            let dues = self.statements.iter().flatten();
            let due = dues.filter_map(|tried| tried.machine.next_clock()).min();
            let stop = due.map_or(now, |due| due.0.min(now)).max(self.now);
            let is_last = stop >= now;
            self.now = stop;
            for number in 0..self.statements.len() {
                let mut waiting = VecDeque::new();
                if let Some(tried) = &mut self.statements[number] {
                    tried.machine.on_clock(UnixMillis(stop), &mut tried.out);
                }
                self.take_rows(number, &mut waiting);
                self.pass_on(waiting);
            }
            if is_last {
                return;
            }
            let dues = self.statements.iter().flatten();
            let next = dues.filter_map(|tried| tried.machine.next_clock()).min();
            if next == due {
                // Who is due and does nothing would hold the clock.
                self.now = self.now.max(stop + 1).min(now);
            }
        }
    }

    fn send(&mut self, name: &str, payload: String) {
        self.pass_on(VecDeque::from([(name.to_owned(), payload)]));
    }

    /// One event through all statements, with what they insert and change, before the next.
    fn pass_on(&mut self, mut waiting: VecDeque<(String, String)>) {
        loop {
            self.tell_changes(&mut waiting);
            let Some((name, payload)) = waiting.pop_front() else {
                return;
            };
            if waiting.len() > TRIAL_ROWS_MAX {
                self.say("error 0 the statements feed each other without end".to_owned());
                return;
            }
            let is_kept = self.kept.contains_key(&name);
            for number in 0..self.statements.len() {
                self.give(
                    number,
                    &name,
                    &payload,
                    is_kept.then_some(true),
                    &mut waiting,
                );
            }
        }
    }

    /// Gives an event to a statement that reads it: to all, or to those alone that create what is
    /// called so, or that do not.
    fn give(
        &mut self,
        number: usize,
        name: &str,
        payload: &str,
        creates: Option<bool>,
        waiting: &mut VecDeque<(String, String)>,
    ) {
        let Some(tried) = &mut self.statements[number] else {
            return;
        };
        if creates.is_some_and(|creates| creates != tried.machine.created().is_some()) {
            return;
        }
        if let Some(place) = tried.reads(name) {
            tried.apply(place, name, payload, self.now);
            self.take_rows(number, waiting);
        }
    }

    /// Tells of what changed in named windows.
    fn tell_changes(&mut self, waiting: &mut VecDeque<(String, String)>) {
        let kept: Vec<Arc<Kept>> = self.kept.values().cloned().collect();
        for kept in kept {
            for change in kept.take_changes() {
                for number in 0..self.statements.len() {
                    self.tell_change(number, &kept, &change, waiting);
                }
            }
        }
    }

    fn tell_change(
        &mut self,
        number: usize,
        kept: &Arc<Kept>,
        change: &Change,
        waiting: &mut VecDeque<(String, String)>,
    ) {
        let Some(tried) = &mut self.statements[number] else {
            return;
        };
        let created = tried.machine.created();
        if created.is_some_and(|created| Arc::ptr_eq(created, kept)) {
            tried.machine.tell_change(change, &mut tried.out);
            return self.take_rows(number, waiting);
        }
        let Some(place) = tried.reads(kept.name()) else {
            return;
        };
        if tried.machine.takes_changes(place) {
            tried.machine.on_change(place, change, &mut tried.out);
            return self.take_rows(number, waiting);
        }
        for row in &change.new {
            let payload = String::from_utf8_lossy(&kept.text(row)).into_owned();
            self.give(number, kept.name(), &payload, Some(false), waiting);
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
    /// Which of its sources is called so.
    fn reads(&self, name: &str) -> Option<usize> {
        let sources = self.plan.sources();
        let is_it = |known: &&Source| matches!(known, Source::Stream(stream) if stream == name);
        sources.iter().position(is_it)
    }

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
fn machine_of(plan: &Arc<Plan>, kept: &KeptByName) -> Machine {
    let mut machine = Machine::beside(plan.clone(), OPTIONS, kept);
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
    state_bytes_max: STATE_BYTES_MAX,
    partitions: 1,
    close_delay_ms: 0,
    idle_ms: 0,
    on_error: OnError::Drop,
    choices: Choices {
        align: Align::Epoch,
        empty: EmptyWindows::Never,
    },
};
