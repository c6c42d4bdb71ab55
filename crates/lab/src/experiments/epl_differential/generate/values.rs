//! Expressions over one event.

use base::Rng;

use super::{KEYS, number, pick};

/// A number of an event.
pub fn numeric(rng: &mut Rng, depth: u32) -> String {
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

/// A condition on an event.
pub fn truth(rng: &mut Rng, depth: u32) -> String {
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

/// A text of an event.
pub fn text(rng: &mut Rng, depth: u32) -> String {
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
