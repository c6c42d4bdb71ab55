//! What is due in the window of a context at the instant at which the context ends: the peer keeps
//! both timers in a hash table, whose order says whether the window tells of it before it is gone;
//! ours never does.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{Row, column, is_same_row};

/// A statement with a time window in a context that ends by time.
struct Timed {
    starts: Starts,
    span_ms: i64,
    window_ms: i64,
}

enum Starts {
    /// With the statement, and again at each end.
    AtOnce,
    /// With an event, when none is open.
    WithEvent,
    /// With each event.
    WithEachEvent,
}

/// Whether a statement can meet it.
pub fn applies(statement: &str) -> bool {
    Timed::of(statement).is_some()
}

/// The peer's calls without what only the order of its timers tells of: at an end, for each context
/// that ends then, one row of a kind of each group of which an event is due.
pub fn without<'t>(
    script: &str,
    statement: &str,
    calls: &[Vec<Row<'t>>],
    ours: &[Row<'t>],
) -> Vec<Vec<Row<'t>>> {
    let Some(timed) = Timed::of(statement) else {
        return calls.to_vec();
    };
    let (ends, dues) = (timed.ends(script), timed.dues(script));
    let mut left: Vec<&Row<'_>> = ours.iter().collect();
    let mut spared: BTreeMap<(i64, &str, String), usize> = BTreeMap::new();
    let mut keeps = |row: &Row<'t>| {
        if let Some(place) = left.iter().position(|own| is_same_row(row, own)) {
            left.remove(place);
            return true;
        }
        let Ok(instant) = row.0.parse::<i64>() else {
            return true;
        };
        let due = (instant, column(row, "k"));
        if !dues.contains(&due) {
            return true;
        }
        let count = spared.entry((instant, row.1, due.1)).or_default();
        *count += 1;
        *count > ends.get(&instant).copied().unwrap_or(0)
    };
    let calls = calls.iter().map(|call| {
        let rows = call.iter().filter(|row| keeps(row));
        rows.copied().collect()
    });
    calls.collect()
}

impl Timed {
    fn of(statement: &str) -> Option<Timed> {
        let (context, select) = statement.split_once("; ")?;
        let (start, span) = context.rsplit_once(" after ")?;
        let starts = match start {
            "create context C start @now end" => Starts::AtOnce,
            "create context C start F end" => Starts::WithEvent,
            "create context C initiated by F terminated" => Starts::WithEachEvent,
            _ => return None,
        };
        let (_, window) = select.split_once(" from E#time(")?;
        let (window, rest) = window.split_once(')')?;
        let (span_ms, window_ms) = (millis(span)?, millis(window)?);
        // What a longer window holds is never due before its context ends.
        (rest == " group by k" && window_ms <= span_ms).then_some(Timed {
            starts,
            span_ms,
            window_ms,
        })
    }

    /// How many contexts end at each instant.
    fn ends(&self, script: &str) -> BTreeMap<i64, usize> {
        let mut ends: BTreeMap<i64, usize> = BTreeMap::new();
        if matches!(self.starts, Starts::AtOnce) {
            let last = timeline(script).map(|(now, _)| now).max().unwrap_or(0);
            let count = usize::try_from(last / self.span_ms).unwrap_or(0);
            ends.extend((1..).take(count).map(|span| (span * self.span_ms, 1)));
            return ends;
        }
        for (now, _) in timeline(script).filter(|(_, line)| is_event(line, "F")) {
            let is_open = ends.last_key_value().is_some_and(|(end, _)| *end > now);
            if matches!(self.starts, Starts::WithEachEvent) || !is_open {
                *ends.entry(now + self.span_ms).or_default() += 1;
            }
        }
        ends
    }

    /// When an event of which group is due.
    fn dues(&self, script: &str) -> BTreeSet<(i64, String)> {
        let events = timeline(script).filter(|(_, line)| is_event(line, "E"));
        let due = events.map(|(now, line)| {
            let key = line.split(' ').find_map(|part| part.strip_prefix("k=s:"));
            let key = key.map_or_else(|| "null".to_owned(), |key| format!("\"{key}\""));
            (now + self.window_ms, key)
        });
        due.collect()
    }
}

/// The lines of a script, each at its instant.
fn timeline(script: &str) -> impl Iterator<Item = (i64, &str)> {
    let mut now = 0;
    script.lines().map(move |line| {
        if let Some(time) = line.strip_prefix("time ") {
            now = time.parse().unwrap_or(now);
        }
        (now, line)
    })
}

fn is_event(line: &str, name: &str) -> bool {
    let mut parts = line.split(' ');
    parts.next() == Some("event") && parts.next() == Some(name)
}

/// `3 sec`.
fn millis(text: &str) -> Option<i64> {
    let seconds: i64 = text.strip_suffix(" sec")?.parse().ok()?;
    (seconds > 0).then_some(seconds * 1_000)
}

#[cfg(test)]
mod tests {
    use crate::experiments::epl_differential::compare::{Verdict, verdict};

    const NAME: &str = "what is due in a window when its context ends";

    fn script(context: &str, select: &str) -> String {
        format!(
            "statement create context C {context}; context C select {select}\n\
             event F k=s:x\ntime 1000\nevent E k=s:p a=i:1\nevent E a=i:2\ntime 9000"
        )
    }

    const GROUPS: &str = "k, sum(a) as s from E#time(2 sec) group by k";
    const ROWS: [&str; 4] = [
        "call 1000 0",
        "row 1000 0 new {\"k\":\"p\",\"s\":1}",
        "call 1000 0",
        "row 1000 0 new {\"k\":null,\"s\":2}",
    ];

    /// The verdict where the peer tells these rows more.
    fn of(script: &str, more: &[&str]) -> Verdict {
        let theirs = [&ROWS[..], more].concat();
        verdict(script, &theirs, &[ROWS[1], ROWS[3]])
    }

    #[test]
    fn what_is_due_at_an_end_may_be_lacking() {
        let met = Verdict::Deviates([NAME].into());
        let more = ["call 3000 0", "row 3000 0 new {\"k\":\"p\",\"s\":null}"];
        let both = [&more[..], &["row 3000 0 new {\"k\":null,\"s\":null}"]].concat();
        for context in [
            "start @now end after 3 sec",
            "start F end after 3 sec",
            "initiated by F terminated after 3 sec",
        ] {
            let script = script(context, GROUPS);
            assert_eq!(of(&script, &more), met, "{context}");
            assert_eq!(of(&script, &both), met, "{context}");
            assert_eq!(of(&script, &[]), Verdict::Same, "{context}");
        }
    }

    #[test]
    fn nothing_else_may_be_lacking() {
        let due = ["call 3000 0", "row 3000 0 new {\"k\":\"p\",\"s\":null}"];
        for (context, select) in [
            // It does not end then.
            ("start F end after 4 sec", GROUPS),
            ("start F end G", GROUPS),
            // Nothing is due then.
            (
                "start F end after 3 sec",
                "k, sum(a) as s from E#time(3 sec) group by k",
            ),
            (
                "start F end after 3 sec",
                "k, sum(a) as s from E#length(2) group by k",
            ),
            (
                "start @now end after 1 sec",
                "k, sum(a) as s from E#time(2 sec) group by k",
            ),
        ] {
            let script = script(context, select);
            assert_eq!(of(&script, &due), Verdict::Different, "{context}; {select}");
        }
        let script = script("start F end after 3 sec", GROUPS);
        let other = ["call 3000 0", "row 3000 0 new {\"k\":\"q\",\"s\":null}"];
        assert_eq!(of(&script, &other), Verdict::Different);
        let late = ["call 3500 0", "row 3500 0 new {\"k\":\"p\",\"s\":null}"];
        assert_eq!(of(&script, &late), Verdict::Different);
        let twice = [due[0], due[1], due[1]];
        assert_eq!(of(&script, &twice), Verdict::Different);
        // Ours may not tell what the peer does not.
        let told = [ROWS[1], ROWS[3], due[1]];
        assert_eq!(verdict(&script, &ROWS, &told), Verdict::Different);
    }
}
