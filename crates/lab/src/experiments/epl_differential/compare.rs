//! Outcomes of one script, compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// What two outcomes are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The peer does not take a statement of it.
    NoScript,
    /// The same rows.
    Same,
    /// The same rows, of which some of one instant stand in another order: groups that changed
    /// together, matches that one event completes.
    Reordered,
    /// Other rows.
    Different,
    /// Ours does not take what the peer takes.
    Refused,
}

/// Compares the peer's outcome with ours.
pub fn verdict(theirs: &[&str], ours: &[&str]) -> Verdict {
    let is_error = |line: &&str| line.starts_with("error ");
    if theirs.iter().any(is_error) {
        return Verdict::NoScript;
    }
    if ours.iter().any(is_error) {
        return Verdict::Refused;
    }
    let (theirs, ours) = (rows(theirs), rows(ours));
    let is_same = theirs.len() == ours.len()
        && theirs
            .iter()
            .zip(&ours)
            .all(|((statement, a), (other, b))| {
                statement == other
                    && a.len() == b.len()
                    && a.iter().zip(b).all(|(a, b)| same_row(a, b))
            });
    if is_same {
        return Verdict::Same;
    }
    match is_reordered(&theirs, &ours) {
        true => Verdict::Reordered,
        false => Verdict::Different,
    }
}

/// Whether each statement has the same rows at each instant, in whatever order there.
fn is_reordered(
    theirs: &BTreeMap<&str, Vec<Row<'_>>>,
    ours: &BTreeMap<&str, Vec<Row<'_>>>,
) -> bool {
    theirs.len() == ours.len()
        && theirs
            .iter()
            .zip(ours)
            .all(|((statement, a), (other, b))| statement == other && same_set(a, b))
}

/// Whether every row has one that is the same, at its instant.
fn same_set(a: &[Row<'_>], b: &[Row<'_>]) -> bool {
    let mut left: Vec<&Row<'_>> = b.iter().collect();
    let found = a.iter().all(|row| {
        let place = left.iter().position(|other| same_row(row, other));
        place.map(|place| left.remove(place)).is_some()
    });
    found && left.is_empty()
}

/// One row: instant, new or old, columns.
type Row<'t> = (&'t str, &'t str, &'t str);

/// The rows of each statement in order.
fn rows<'t>(lines: &[&'t str]) -> BTreeMap<&'t str, Vec<Row<'t>>> {
    let mut rows: BTreeMap<&str, Vec<Row<'_>>> = BTreeMap::new();
    for line in lines {
        let mut parts = line.splitn(5, ' ');
        if parts.next() != Some("row") {
            continue;
        }
        if let (Some(time), Some(statement), Some(kind), Some(json)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        {
            rows.entry(statement).or_default().push((time, kind, json));
        }
    }
    rows
}

fn same_row(a: &Row<'_>, b: &Row<'_>) -> bool {
    if (a.0, a.1) != (b.0, b.1) {
        return false;
    }
    match (
        serde_json::from_str::<Value>(a.2),
        serde_json::from_str::<Value>(b.2),
    ) {
        (Ok(a), Ok(b)) => same(&a, &b),
        _ => false,
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
            _ => false,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, verdict};

    #[test]
    fn rows_are_compared_by_statement_instant_kind_and_value() {
        let theirs = [
            "call 0 0",
            "row 0 0 new {\"a\":1,\"b\":0.1}",
            "row 0 1 old {\"k\":\"x y\"}",
        ];
        let ours = [
            "row 0 1 old {\"k\":\"x y\"}",
            "row 0 0 new {\"b\":0.10000000000001,\"a\":1.0}",
        ];
        assert_eq!(verdict(&theirs, &ours), Verdict::Same);
        assert_eq!(verdict(&theirs, &ours[..1]), Verdict::Different);
        let late = ["row 1 1 old {\"k\":\"x y\"}", ours[1]];
        assert_eq!(verdict(&theirs, &late), Verdict::Different);
        let new = ["row 0 1 new {\"k\":\"x y\"}", ours[1]];
        assert_eq!(verdict(&theirs, &new), Verdict::Different);
        let other = ["row 0 1 old {\"k\":\"x z\"}", ours[1]];
        assert_eq!(verdict(&theirs, &other), Verdict::Different);
    }

    #[test]
    fn another_order_at_one_instant_is_told_apart() {
        let theirs = ["row 0 0 new {\"k\":\"p\"}", "row 0 0 new {\"k\":\"q\"}"];
        assert_eq!(
            verdict(&theirs, &[theirs[1], theirs[0]]),
            Verdict::Reordered
        );
        let twice = [theirs[1], theirs[1]];
        assert_eq!(verdict(&theirs, &twice), Verdict::Different);
        let later = ["row 1 0 new {\"k\":\"q\"}", theirs[0]];
        assert_eq!(verdict(&theirs, &later), Verdict::Different);
    }

    #[test]
    fn a_statement_that_one_side_refuses_is_told_apart() {
        assert_eq!(verdict(&["error 0 no"], &[]), Verdict::NoScript);
        assert_eq!(verdict(&[], &["error 0 no"]), Verdict::Refused);
    }
}
