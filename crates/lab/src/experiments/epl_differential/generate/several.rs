//! Statements that read several streams, or rows that others made.

use base::Rng;

use super::{KEYS, aggregates, events, number, pick, rows, statement};

/// See [`super::FAMILIES`].
pub fn patterns(rng: &mut Rng) -> Vec<String> {
    let seconds = number(rng, 2, 6);
    let (columns, pattern) = match rng.below(22) {
        0 => ("x.a as x, y.a as y", "every x=E -> y=F".to_owned()),
        1 => ("x.a as x, y.a as y", "every (x=E -> y=F)".to_owned()),
        2 => ("x.a as x, y.a as y", "every x=E -> y=F(k = x.k)".to_owned()),
        3 => (
            "x.a as x, y.a as y",
            format!("every x=E(a > 1) -> y=F(k = x.k) where timer:within({seconds} sec)"),
        ),
        4 => (
            "x.a as x",
            format!("every x=E -> (timer:interval({seconds} sec) and not F(k = x.k))"),
        ),
        5 => ("x.a as x, y.a as y", "every (x=E and y=F)".to_owned()),
        6 => (
            "x.a as x, y.a as y",
            "every (x=E(a > 2) or y=F(a < 2))".to_owned(),
        ),
        7 => (
            "x.a as x, y.a as y, z.a as z",
            "every x=E -> y=F -> z=G(k = y.k)".to_owned(),
        ),
        8 => (
            "x.a as x, y.a as y",
            "every x=E -> (y=F and not G)".to_owned(),
        ),
        9 => ("x[0].a as x, y.a as y", "every (x=E until y=F)".to_owned()),
        10 => (
            "x[0].a as x, x[1].a as z, y.a as y",
            "every ([1:2] x=E until y=F)".to_owned(),
        ),
        11 => ("x.a as x", "every-distinct(x.k) x=E".to_owned()),
        12 => (
            "x.a as x",
            format!("every-distinct(x.k, {seconds} sec) x=E"),
        ),
        13 => (
            "x.a as x",
            format!("every (timer:interval({seconds} sec) and x=E)"),
        ),
        14 => (
            "count(*) as n",
            "every timer:at(*, *, *, *, *, */5)".to_owned(),
        ),
        15 => (
            "x.a as x",
            format!("(every x=E) where timer:withinmax({seconds} sec, 2)"),
        ),
        16 => ("x.a as x", "(every x=E) while (x.a > 0)".to_owned()),
        17 => (
            "x.a as x, y.a as y",
            "every x=E -> every y=F(a > x.a)".to_owned(),
        ),
        18 => (
            "x.a as x, y.a as y",
            "x=E -> (every y=F and not G(k = x.k))".to_owned(),
        ),
        19 => (
            "x.a as x, y.a as y, z.a as z",
            format!("every (x=E -> (y=F or z=G)) where timer:within({seconds} sec)"),
        ),
        20 => (
            "x.a as x, y.a as y",
            format!("every x=E -> timer:interval({seconds} sec) -> y=F"),
        ),
        _ => (
            "x[0].a as x, x[1].a as y",
            format!(
                "every [{}] x=E(k = '{}')",
                number(rng, 2, 3),
                pick(rng, KEYS)
            ),
        ),
    };
    let mut lines = vec![statement(&format!(
        "select {columns} from pattern [{pattern}]"
    ))];
    events(rng, &["E", "F", "G"], 20, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn joins(rng: &mut Rng) -> Vec<String> {
    let window = |rng: &mut Rng| match rng.below(4) {
        0 => format!("#length({})", number(rng, 1, 3)),
        1 => format!("#time({} sec)", number(rng, 2, 6)),
        2 => "#unique(k)".to_owned(),
        _ => "#lastevent".to_owned(),
    };
    let (left, right) = (window(rng), window(rng));
    if rng.one_in(4) {
        let windows = [left, right, window(rng)];
        return three(rng, windows);
    }
    let text = match rng.below(5) {
        0 => format!("from E{left} as x, F{right} as y where x.k = y.k"),
        1 => format!("from E{left} as x, F{right} as y where x.a < y.a"),
        2 => {
            let kind = pick(rng, &["left", "full"]);
            format!("from E as x unidirectional {kind} outer join F{right} as y on x.k = y.k")
        }
        3 => {
            let kind = pick(rng, &["left", "right", "full"]);
            format!("from E{left} as x {kind} outer join F{right} as y on x.k = y.k")
        }
        _ => format!("from E as x unidirectional, F{right} as y where x.k = y.k"),
    };
    let rows = if text.contains("unidirectional") {
        ""
    } else {
        rows(rng)
    };
    let (columns, group) = match rng.below(5) {
        0 => ("count(*) as n, sum(x.a) as s, min(y.a) as m", ""),
        1 => ("x.k as k, count(*) as n, sum(y.a) as s", " group by x.k"),
        _ => ("x.k as xk, x.a as xa, y.k as yk, y.a as ya", ""),
    };
    let mut lines = vec![statement(&format!("select {rows} {columns} {text}{group}"))];
    events(rng, &["E", "F"], 15, &mut lines);
    lines
}

/// A join of three streams.
fn three(rng: &mut Rng, [e, f, g]: [String; 3]) -> Vec<String> {
    let (first, second) = match rng.below(2) {
        0 => ("inner join", "inner join"),
        _ => ("left outer join", "left outer join"),
    };
    let mut lines = vec![statement(&format!(
        "select x.a as x, y.a as y, z.a as z from E{e} as x {first} F{f} as y on x.k = y.k \
         {second} G{g} as z on x.k = z.k"
    ))];
    events(rng, &["E", "F", "G"], 15, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn streams(rng: &mut Rng) -> Vec<String> {
    let first = match rng.below(3) {
        0 => "insert into H select k, a + 1 as a from E(a > 0)".to_owned(),
        // Of a window two groups may change at once, in an order of their own.
        1 => "insert into H select k, sum(a) as a from E group by k".to_owned(),
        _ => format!(
            "insert into H select k, a from E#length_batch({})",
            number(rng, 1, 3)
        ),
    };
    let second = match rng.below(3) {
        0 => "select k, a from H where a > 2".to_owned(),
        1 => format!(
            "select {} k, count(*) as c, sum(a) as s from H#length(2) group by k",
            rows(rng)
        ),
        _ => "select x.a as x, y.a as y from pattern [every x=H -> y=F(k = x.k)]".to_owned(),
    };
    let mut lines = vec![statement(&first), statement(&second)];
    events(rng, &["E", "F"], 15, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn subqueries(rng: &mut Rng) -> Vec<String> {
    let inner = match rng.below(5) {
        0 => "#lastevent".to_owned(),
        1 => "#keepall".to_owned(),
        2 => format!("#length({})", number(rng, 1, 3)),
        3 => format!("#time({} sec)", number(rng, 2, 6)),
        _ => "#unique(k)".to_owned(),
    };
    let column = match rng.below(6) {
        0 => format!("(select a from F{inner})"),
        1 => format!("(select max(a) from F{inner} as f where f.k = e.k)"),
        2 => format!("exists (select * from F{inner} as f where f.a > e.a)"),
        3 => format!("a in (select a from F{inner})"),
        4 => format!("(select count(*) from F{inner})"),
        _ => format!("(select sum(a) from E{inner})"),
    };
    let condition = match rng.below(6) {
        0 => format!(" where exists (select * from F{inner} as g where g.k = e.k)"),
        1 => format!(" where a not in (select a from F{inner})"),
        _ => String::new(),
    };
    let window = match rng.below(2) {
        0 => String::new(),
        _ => format!("#length({})", number(rng, 1, 3)),
    };
    let filter = match rng.below(6) {
        0 => format!("(a >= (select min(a) from F{inner}))"),
        1 => format!("(a not in (select a from E{inner}))"),
        _ => String::new(),
    };
    let sum = pick(rng, &["", "sum(a) as t, "]);
    let mut lines = vec![statement(&format!(
        "select a, {sum}{column} as s from E{filter}{window} as e{condition}"
    ))];
    events(rng, &["E", "F"], 16, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn contexts(rng: &mut Rng) -> Vec<String> {
    let seconds = number(rng, 2, 6);
    let within = match rng.below(3) {
        0 => format!("select {} from E", aggregates(rng)),
        1 => format!("select {} a from E#length(2)", rows(rng)),
        _ => format!(
            "select {} k, sum(a) as s from E#time(2 sec) group by k",
            rows(rng)
        ),
    };
    let span = match rng.below(6) {
        0 => "start F end G".to_owned(),
        1 => "start F(a > 1) end F(a < 2)".to_owned(),
        2 => format!("start F end after {seconds} sec"),
        3 => "initiated by F terminated by G".to_owned(),
        4 => format!("initiated by F terminated after {seconds} sec"),
        _ => format!("start @now end after {seconds} sec"),
    };
    let (context, select) = match rng.below(8) {
        6 | 7 => return asking(rng, &span),
        0 => (
            "partition by k from E",
            format!("select k, {} from E", aggregates(rng)),
        ),
        1 => (
            "partition by k from E",
            format!("select {} k, a from E#length(2)", rows(rng)),
        ),
        2 => (
            "partition by k from E",
            format!(
                "select {} k, sum(a) as s from E#time({seconds} sec)",
                rows(rng)
            ),
        ),
        3 | 4 => (span.as_str(), within),
        _ => (
            "partition by k from E, k from F",
            "select x.k as k, x.a as x, y.a as y from pattern [every x=E -> y=F]".to_owned(),
        ),
    };
    let mut lines = vec![statement(&format!(
        "create context C {context}; context C {select}"
    ))];
    events(rng, &["E", "E", "F", "G"], 18, &mut lines);
    lines
}

/// Statements in contexts that ask what others hold.
fn asking(rng: &mut Rng, span: &str) -> Vec<String> {
    let context = match rng.below(2) {
        0 => "partition by k from E",
        _ => span,
    };
    let mut lines = vec![
        statement("create window W#length(3) as (k string, a long)"),
        statement("insert into W select k, a from G"),
    ];
    let select = match rng.below(4) {
        0 => "select k, a, (select sum(a) from W) as s from E",
        1 => "select k, a, (select max(a) from F#length(2)) as m from E",
        2 => "select a, exists (select * from F#keepall as f where f.k = e.k) as x from E as e",
        _ => {
            "select e.k as k, e.a as a, w.a as w from E as e unidirectional, W as w where w.k = e.k"
        }
    };
    lines.push(statement(&format!(
        "create context C {context}; context C {select}"
    )));
    events(rng, &["E", "E", "F", "G"], 18, &mut lines);
    lines
}
