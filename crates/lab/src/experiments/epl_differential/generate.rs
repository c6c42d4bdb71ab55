//! Scripts of statements and events from a seed, by family of constructs.
//!
//! What the two engines are known to see differently is not generated: whole numbers past 32 bits,
//! remainders by zero, 0/0, spreads of equal values, lists with a value twice, and what docs/epl.md
//! lists.

mod kept;
mod several;
mod single;
mod values;

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
    family("expressions", single::expressions),
    family("windows", single::windows),
    family("groups", single::groups),
    family("batches", single::batches),
    family("external time", single::external),
    family("output rates", single::rates),
    family("history", single::history),
    family("patterns", several::patterns),
    family("row patterns", single::row_patterns),
    family("joins", several::joins),
    family("streams", several::streams),
    family("named windows", kept::named_windows),
    family("tables", kept::tables),
    family("subqueries", several::subqueries),
    family("contexts", several::contexts),
];

const fn family(name: &'static str, script: fn(&mut Rng) -> Vec<String>) -> Family {
    Family { name, script }
}

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

/// A window that slides.
fn sliding(rng: &mut Rng) -> String {
    match rng.below(12) {
        0..=2 => format!("#length({})", number(rng, 1, 5)),
        3..=4 => format!("#time({} sec)", number(rng, 1, 6)),
        5 => "#unique(k)".to_owned(),
        6 => "#keepall".to_owned(),
        7 => format!("#groupwin(k)#length({})", number(rng, 1, 3)),
        8 => pick(rng, &["#lastevent", "#firstevent", "#firstunique(k)"]).to_owned(),
        9 => format!("#firstlength({})", number(rng, 1, 6)),
        10 => format!("#firsttime({} sec)", number(rng, 2, 9)),
        _ => format!(
            "#sort({}, {})",
            number(rng, 1, 4),
            pick(rng, &["a", "a desc", "k, a", "b desc, a"])
        ),
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
                "sum(distinct a) as sda",
                "sum(a, filter: b > 1) as fsa",
                "count(*, filter: a > 2) as fn",
                "countever(a) as cea",
                "minever(a) as lea",
                "maxever(b) as heb",
                "firstever(a) as fea",
                "lastever(k) as lek",
                "nth(a, 1) as ta",
                "maxby(a).b as hba",
                "window(a) as wa",
            ],
        );
        // Functions of the window's order need one; the names of columns differ.
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.join(", ")
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
