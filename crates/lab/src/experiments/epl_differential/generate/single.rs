//! Statements that read one stream.

use base::Rng;

use super::values::{numeric, text, truth};
use super::{KEYS, aggregates, events, number, pick, rows, sliding, statement};

/// See [`super::FAMILIES`].
pub fn expressions(rng: &mut Rng) -> Vec<String> {
    let columns: Vec<String> = (0..number(rng, 1, 4))
        .map(|column| {
            let value = match rng.below(3) {
                0 => numeric(rng, 3),
                1 => truth(rng, 3),
                _ => text(rng, 2),
            };
            format!("{value} as c{column}")
        })
        .collect();
    let filter = if rng.one_in(2) {
        format!("({})", truth(rng, 2))
    } else {
        String::new()
    };
    let condition = if rng.one_in(2) {
        format!(" where {}", truth(rng, 2))
    } else {
        String::new()
    };
    let mut lines = vec![statement(&format!(
        "select {} from E{filter}{condition}",
        columns.join(", ")
    ))];
    events(rng, &["E"], 12, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn windows(rng: &mut Rng) -> Vec<String> {
    let window = sliding(rng);
    let filter = if rng.one_in(3) { "(a > 1)" } else { "" };
    let condition = if rng.one_in(3) { " where a != 3" } else { "" };
    let columns = match rng.below(7) {
        0 | 1 => "k, a".to_owned(),
        2 | 3 => aggregates(rng),
        4 => "distinct k".to_owned(),
        5 => "*".to_owned(),
        _ => format!("a, {}", aggregates(rng)),
    };
    let mut lines = vec![statement(&format!(
        "select {} {columns} from E{filter}{window}{condition}",
        rows(rng)
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn groups(rng: &mut Rng) -> Vec<String> {
    let window = if rng.one_in(4) {
        String::new()
    } else {
        sliding(rng)
    };
    let having = if rng.one_in(3) {
        " having sum(a) > 3"
    } else {
        ""
    };
    let columns = match rng.below(2) {
        0 => format!("k, {}", aggregates(rng)),
        _ => format!("k, a, {}", aggregates(rng)),
    };
    let mut lines = vec![statement(&format!(
        "select {} {columns} from E{window} group by k{having}",
        rows(rng)
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn batches(rng: &mut Rng) -> Vec<String> {
    let seconds = number(rng, 2, 6);
    let window = match rng.below(5) {
        0 => format!("#length_batch({})", number(rng, 1, 4)),
        1 => format!("#time_batch({seconds} sec, 0L)"),
        2 => format!("#time_accum({seconds} sec)"),
        3 => format!("#time_length_batch({seconds} sec, {})", number(rng, 2, 4)),
        _ => format!("#time_batch({seconds} sec)"),
    };
    let (columns, group) = match rng.below(4) {
        0 => ("k, a".to_owned(), ""),
        1 => (aggregates(rng), ""),
        2 => (format!("k, {}", aggregates(rng)), " group by k"),
        _ => (format!("k, a, {}", aggregates(rng)), " group by k"),
    };
    let order = if rng.one_in(4) && group.is_empty() && columns == "k, a" {
        " order by a desc, k"
    } else {
        ""
    };
    let mut lines = vec![statement(&format!(
        "select {} {columns} from E{window}{group}{order}",
        rows(rng)
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn external(rng: &mut Rng) -> Vec<String> {
    let seconds = number(rng, 2, 6);
    let window = match rng.below(3) {
        0 => format!("#ext_timed(ts, {seconds} sec)"),
        1 => format!("#ext_timed_batch(ts, {seconds} sec)"),
        _ => format!("#ext_timed_batch(ts, {seconds} sec, 0L)"),
    };
    let columns = if rng.one_in(2) {
        "a, ts".to_owned()
    } else {
        aggregates(rng)
    };
    let mut lines = vec![statement(&format!(
        "select {} {columns} from E{window}",
        rows(rng)
    ))];
    let mut time = number(rng, 0, 5) * 500;
    for _ in 0..20 {
        time += number(rng, 0, 5) * 500;
        let late = if rng.one_in(5) {
            number(rng, 1, 4) * 500
        } else {
            0
        };
        lines.push(format!(
            "event E k=s:{} a=i:{} ts=i:{}",
            pick(rng, KEYS),
            number(rng, 0, 5),
            (time - late).max(0)
        ));
    }
    lines
}

/// See [`super::FAMILIES`].
pub fn rates(rng: &mut Rng) -> Vec<String> {
    let kind = pick(rng, &["", "all", "first", "last", "snapshot"]);
    let every = match rng.below(5) {
        0 | 1 if kind != "snapshot" => format!("every {} events", number(rng, 2, 4)),
        2 if kind != "snapshot" => format!("when count_insert >= {}", number(rng, 2, 4)),
        _ => format!("every {} sec", number(rng, 2, 5)),
    };
    let window = match rng.below(3) {
        0 if kind != "snapshot" => String::new(),
        1 => format!("#time({} sec)", number(rng, 2, 6)),
        _ => format!("#length({})", number(rng, 1, 4)),
    };
    let (columns, group) = match rng.below(3) {
        0 => ("k, a".to_owned(), ""),
        1 => (aggregates(rng), ""),
        _ => (format!("k, {}", aggregates(rng)), " group by k"),
    };
    let columns = match kind {
        // What was ever of a group that emptied: see docs/epl.md.
        "last" if !group.is_empty() && columns.contains("ever(") => "k, sum(a) as s".to_owned(),
        _ => columns,
    };
    let may_wait = kind != "first";
    let after = match rng.below(8) {
        0 if may_wait => format!("after {} events ", number(rng, 1, 3)),
        1 if may_wait => format!("after {} sec ", number(rng, 2, 6)),
        _ => String::new(),
    };
    let mut lines = vec![statement(&format!(
        "select {} {columns} from E{window}{group} output {after}{kind} {every}",
        pick(rng, &["", "", "irstream"])
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn history(rng: &mut Rng) -> Vec<String> {
    let columns: Vec<String> = (0..number(rng, 1, 3))
        .map(|column| {
            if rng.one_in(6) {
                return format!("prevcount(a) as c{column}");
            }
            let steps = number(rng, 0, 3);
            let function = pick(rng, &["prev", "prior", "prevtail"]);
            let field = pick(rng, &["a", "k", "b"]);
            format!("{function}({steps}, {field}) as c{column}")
        })
        .collect();
    let window = match rng.below(5) {
        0 | 1 => format!("#length({})", number(rng, 1, 4)),
        2 => format!("#time({} sec)", number(rng, 2, 5)),
        3 => format!("#length_batch({})", number(rng, 2, 4)),
        _ => "#keepall".to_owned(),
    };
    let mut lines = vec![statement(&format!(
        "select a, {} from E{window}",
        columns.join(", ")
    ))];
    events(rng, &["E"], 15, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn row_patterns(rng: &mut Rng) -> Vec<String> {
    let partition = if rng.one_in(2) { "partition by k " } else { "" };
    let body = match rng.below(8) {
        0 => "measures A.a as x, B.a as y pattern (A B) define B as B.a > A.a",
        1 => {
            "measures A.a as x, B[0].a as f, last(B.a) as l, C.a as z pattern (A B+ C) \
             define B as B.a > A.a, C as C.a <= A.a"
        }
        2 => {
            "measures A.a as x, B.a as y, C.a as z pattern (A (B | C)) define A as A.a > 2, \
             B as B.a = 0, C as C.a > A.a"
        }
        3 => "measures A.a as x, B.a as y all matches pattern (A B) define B as B.a >= A.a",
        4 => {
            "measures A.a as x, B.a as y after match skip to next row pattern (A B?) \
             define A as A.a > 1, B as B.a > A.a"
        }
        5 => {
            "measures A.a as x, B[1].a as y pattern (A B{2}) \
             define A as A.a > 0, B as B.a >= prev(B.a)"
        }
        6 => {
            "measures A.a as x, last(B.a) as l, C.a as z pattern (A B{1,2} C?) \
             define B as B.a < 3, C as C.a > A.a"
        }
        _ => {
            "measures A.a as x, last(B.a) as l, C.a as z pattern (A B* C) \
             define A as A.a > 1, B as B.a > 2, C as C.a < 2"
        }
    };
    let mut lines = vec![statement(&format!(
        "select * from E match_recognize ({partition}{body})"
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}
