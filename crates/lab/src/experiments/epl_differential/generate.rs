//! Scripts of statements and events from a seed, by family of constructs.
//!
//! What the two engines are known to see differently is not generated: whole numbers past 32 bits,
//! remainders by zero, 0/0, spreads of equal values, lists with a value twice, and what docs/epl.md
//! lists.

use base::Rng;

/// A family of constructs.
pub struct Family {
    /// Its name in the report.
    pub name: &'static str,
    /// A script of it, without its end.
    pub script: fn(&mut Rng) -> Vec<String>,
}

/// Every family.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "expressions",
        script: expressions,
    },
    Family {
        name: "windows",
        script: windows,
    },
    Family {
        name: "groups",
        script: groups,
    },
    Family {
        name: "batches",
        script: batches,
    },
    Family {
        name: "external time",
        script: external,
    },
    Family {
        name: "output rates",
        script: rates,
    },
    Family {
        name: "history",
        script: history,
    },
    Family {
        name: "patterns",
        script: patterns,
    },
    Family {
        name: "row patterns",
        script: row_patterns,
    },
    Family {
        name: "joins",
        script: joins,
    },
    Family {
        name: "streams",
        script: streams,
    },
    Family {
        name: "named windows",
        script: named_windows,
    },
    Family {
        name: "subqueries",
        script: subqueries,
    },
    Family {
        name: "contexts",
        script: contexts,
    },
];

/// One of these.
fn pick<'t>(rng: &mut Rng, choices: &[&'t str]) -> &'t str {
    choices[rng.below(choices.len() as u64) as usize]
}

fn number(rng: &mut Rng, low: i64, high: i64) -> i64 {
    low + rng.below((high - low + 1) as u64) as i64
}

fn statement(text: &str) -> String {
    format!("statement {text}")
}

fn expressions(rng: &mut Rng) -> Vec<String> {
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

fn windows(rng: &mut Rng) -> Vec<String> {
    let window = sliding(rng);
    let filter = if rng.one_in(3) { "(a > 1)" } else { "" };
    let condition = if rng.one_in(3) { " where a != 3" } else { "" };
    let columns = match rng.below(3) {
        0 => "k, a".to_owned(),
        1 => aggregates(rng),
        _ => format!("a, {}", aggregates(rng)),
    };
    let mut lines = vec![statement(&format!(
        "select {} {columns} from E{filter}{window}{condition}",
        rows(rng)
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}

fn groups(rng: &mut Rng) -> Vec<String> {
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

fn batches(rng: &mut Rng) -> Vec<String> {
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

fn external(rng: &mut Rng) -> Vec<String> {
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

fn rates(rng: &mut Rng) -> Vec<String> {
    let kind = pick(rng, &["", "all", "first", "last", "snapshot"]);
    let every = match rng.below(2) {
        0 if kind != "snapshot" => format!("every {} events", number(rng, 2, 4)),
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
    let mut lines = vec![statement(&format!(
        "select {columns} from E{window}{group} output {kind} {every}"
    ))];
    events(rng, &["E"], 20, &mut lines);
    lines
}

fn history(rng: &mut Rng) -> Vec<String> {
    let columns: Vec<String> = (0..number(rng, 1, 3))
        .map(|column| {
            let steps = number(rng, 0, 3);
            let function = pick(rng, &["prev", "prior", "prevtail"]);
            let field = pick(rng, &["a", "k", "b"]);
            format!("{function}({steps}, {field}) as c{column}")
        })
        .collect();
    let window = match rng.below(3) {
        0 => format!("#length({})", number(rng, 1, 4)),
        1 => format!("#time({} sec)", number(rng, 2, 5)),
        _ => "#keepall".to_owned(),
    };
    let mut lines = vec![statement(&format!(
        "select a, {} from E{window}",
        columns.join(", ")
    ))];
    events(rng, &["E"], 15, &mut lines);
    lines
}

fn patterns(rng: &mut Rng) -> Vec<String> {
    let seconds = number(rng, 2, 6);
    let (columns, pattern) = match rng.below(10) {
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

fn row_patterns(rng: &mut Rng) -> Vec<String> {
    let partition = if rng.one_in(2) { "partition by k " } else { "" };
    let body = match rng.below(4) {
        0 => "measures A.a as x, B.a as y pattern (A B) define B as B.a > A.a",
        1 => {
            "measures A.a as x, B[0].a as f, last(B.a) as l, C.a as z pattern (A B+ C) \
             define B as B.a > A.a, C as C.a <= A.a"
        }
        2 => {
            "measures A.a as x, B.a as y, C.a as z pattern (A (B | C)) define A as A.a > 2, \
             B as B.a = 0, C as C.a > A.a"
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

fn joins(rng: &mut Rng) -> Vec<String> {
    let window = |rng: &mut Rng| match rng.below(4) {
        0 => format!("#length({})", number(rng, 1, 3)),
        1 => format!("#time({} sec)", number(rng, 2, 6)),
        2 => "#unique(k)".to_owned(),
        _ => "#lastevent".to_owned(),
    };
    let (left, right) = (window(rng), window(rng));
    let text = match rng.below(3) {
        0 => format!("from E{left} as x, F{right} as y where x.k = y.k"),
        1 => {
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
    let mut lines = vec![statement(&format!(
        "select {rows} x.k as xk, x.a as xa, y.k as yk, y.a as ya {text}"
    ))];
    events(rng, &["E", "F"], 15, &mut lines);
    lines
}

fn streams(rng: &mut Rng) -> Vec<String> {
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

fn named_windows(rng: &mut Rng) -> Vec<String> {
    let window = match rng.below(4) {
        0 => "#keepall".to_owned(),
        1 => format!("#length({})", number(rng, 1, 4)),
        2 => format!("#time({} sec)", number(rng, 2, 6)),
        _ => "#unique(k)".to_owned(),
    };
    let mut lines = vec![
        statement(&format!("create window W{window} as (k string, a long)")),
        statement("insert into W select k, a from E"),
    ];
    lines.push(statement(&match rng.below(8) {
        0 => format!("select {} k, a from W", rows(rng)),
        1 => format!("select {} sum(a) as s, count(*) as c from W", rows(rng)),
        2 => "on F as f select w.k as k, w.a as a from W as w where w.k = f.k".to_owned(),
        3 => "on F as f update W as w set a = w.a + f.a where w.k = f.k".to_owned(),
        4 => "on F as f merge W as w where w.k = f.k when matched and f.a = 0 then delete \
              when matched then update set a = f.a \
              when not matched then insert select f.k as k, f.a as a"
            .to_owned(),
        5 => "select f.a as a, w.a as w from F as f unidirectional, W as w where w.k = f.k"
            .to_owned(),
        6 => "on F as f select and delete w.a as a from W as w where w.k = f.k".to_owned(),
        _ => "on F as f select sum(w.a) as s, count(*) as c from W as w where w.k = f.k".to_owned(),
    }));
    if rng.one_in(2) {
        lines.push(statement("on G as g delete from W as w where w.k = g.k"));
    }
    if rng.one_in(3) {
        lines.push(statement(
            "select a, (select max(a) from W) as m, \
             exists (select * from W where k = G.k) as e from G",
        ));
    }
    events(rng, &["E", "E", "F", "G"], 18, &mut lines);
    lines
}

fn subqueries(rng: &mut Rng) -> Vec<String> {
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

fn contexts(rng: &mut Rng) -> Vec<String> {
    let (context, select) = match rng.below(3) {
        0 => (
            "partition by k from E",
            format!("select k, {} from E", aggregates(rng)),
        ),
        1 => (
            "partition by k from E",
            format!("select {} k, a from E#length(2)", rows(rng)),
        ),
        _ => (
            "partition by k from E, k from F",
            "select x.k as k, x.a as x, y.a as y from pattern [every x=E -> y=F]".to_owned(),
        ),
    };
    let mut lines = vec![statement(&format!(
        "create context C {context}; context C {select}"
    ))];
    events(rng, &["E", "F"], 15, &mut lines);
    lines
}

/// A window that slides.
fn sliding(rng: &mut Rng) -> String {
    match rng.below(8) {
        0..=2 => format!("#length({})", number(rng, 1, 5)),
        3..=4 => format!("#time({} sec)", number(rng, 1, 6)),
        5 => "#unique(k)".to_owned(),
        6 => "#keepall".to_owned(),
        _ => format!("#groupwin(k)#length({})", number(rng, 1, 3)),
    }
}

fn rows(rng: &mut Rng) -> &'static str {
    pick(rng, &["", "", "irstream", "irstream", "rstream"])
}

/// One to three aggregates with names.
fn aggregates(rng: &mut Rng) -> String {
    let mut columns = Vec::new();
    for _ in 0..number(rng, 1, 3) {
        let column = pick(
            rng,
            &[
                "count(*) as n",
                "count(a) as na",
                "sum(a) as sa",
                "sum(b) as sb",
                "avg(a) as va",
                "min(a) as la",
                "max(b) as hb",
                "count(distinct a) as da",
                "first(a) as fa",
                "last(b) as eb",
                "avedev(a) as dva",
                "median(a) as ma",
            ],
        );
        // Functions of the window's order need one; the names of columns differ.
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.join(", ")
}

fn numeric(rng: &mut Rng, depth: u32) -> String {
    if depth == 0 || rng.one_in(3) {
        return match rng.below(4) {
            0 | 1 => "a".to_owned(),
            2 => "b".to_owned(),
            _ => number(rng, 1, 9).to_string(),
        };
    }
    let (x, y) = (numeric(rng, depth - 1), numeric(rng, depth - 1));
    match rng.below(8) {
        0 => format!("({x} + {y})"),
        1 => format!("({x} - {y})"),
        2 => format!("({x} * {y})"),
        3 => format!("({x} / {})", number(rng, 1, 5)),
        4 => format!("({x} % {})", number(rng, 2, 5)),
        5 => format!("coalesce(a, {})", number(rng, 0, 5)),
        6 => format!(
            "(case when {} then {x} else {y} end)",
            truth(rng, depth - 1)
        ),
        _ => format!("max({x}, {y})"),
    }
}

fn truth(rng: &mut Rng, depth: u32) -> String {
    if depth > 0 && rng.one_in(3) {
        let (x, y) = (truth(rng, depth - 1), truth(rng, depth - 1));
        return match rng.below(3) {
            0 => format!("({x} and {y})"),
            1 => format!("({x} or {y})"),
            _ => format!("(not {x})"),
        };
    }
    let depth = depth.min(1);
    let value = numeric(rng, depth);
    let sign = pick(rng, &["<", "<=", ">", ">=", "=", "!="]);
    match rng.below(9) {
        0..=2 => format!("({value} {sign} {})", number(rng, 0, 6)),
        3 => format!("({value} {sign} b)"),
        4 => format!(
            "({} is {}null)",
            pick(rng, &["a", "b", "k"]),
            pick(rng, &["", "not "])
        ),
        5 => format!(
            "(a {}in ({}, {}))",
            pick(rng, &["", "not "]),
            number(rng, 0, 2),
            number(rng, 3, 5)
        ),
        6 => format!(
            "(a {}between {} and {})",
            pick(rng, &["", "not "]),
            number(rng, 0, 5),
            number(rng, 0, 5)
        ),
        7 => format!(
            "(k {}like '{}')",
            pick(rng, &["", "not "]),
            pick(rng, &["p%", "%q", "_", "p_"])
        ),
        _ => format!("(k = '{}')", pick(rng, KEYS)),
    }
}

fn text(rng: &mut Rng, depth: u32) -> String {
    match rng.below(if depth == 0 { 2 } else { 5 }) {
        0 => "k".to_owned(),
        1 => format!("'{}'", pick(rng, KEYS)),
        2 => format!("({} || {})", text(rng, depth - 1), text(rng, depth - 1)),
        3 => "k.toUpperCase()".to_owned(),
        _ => format!(
            "(case when {} then {} end)",
            truth(rng, 1),
            text(rng, depth - 1)
        ),
    }
}

/// So many events with pauses, and a clock that moves on after the last.
fn events(rng: &mut Rng, names: &[&str], count: usize, lines: &mut Vec<String>) {
    let mut now = 0;
    for _ in 0..count {
        if rng.one_in(2) {
            now += number(rng, 1, 6) * 500;
            lines.push(format!("time {now}"));
        }
        let mut line = format!("event {}", pick(rng, names));
        if !rng.one_in(12) {
            line.push_str(&format!(" k=s:{}", pick(rng, KEYS)));
        }
        if !rng.one_in(10) {
            line.push_str(&format!(" a=i:{}", number(rng, 0, 5)));
        }
        if !rng.one_in(8) {
            line.push_str(&format!(
                " b=d:{}.{}",
                number(rng, 0, 4),
                pick(rng, &["25", "5", "75"])
            ));
        }
        lines.push(line);
    }
    for _ in 0..3 {
        now += number(rng, 2, 8) * 1_000;
        lines.push(format!("time {now}"));
    }
}

const KEYS: &[&str] = &["p", "q", "r"];
