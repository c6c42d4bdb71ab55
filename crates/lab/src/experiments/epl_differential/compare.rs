//! Outcomes of one script, compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::deviations::{Allows, DEVIATIONS};

/// What two outcomes are to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The peer does not take a statement of it, or fails on an event.
    NoScript,
    /// The same rows.
    Same,
    /// The same rows but for these deliberate deviations.
    Deviates(BTreeSet<&'static str>),
    /// Other rows.
    Different,
    /// Ours does not take what the peer takes.
    Refused,
}

/// One row: instant, new or old, columns.
pub type Row<'t> = (&'t str, &'t str, &'t str);

/// Compares the peer's outcome of a script with ours.
pub fn verdict(script: &str, theirs: &[&str], ours: &[&str]) -> Verdict {
    let is_error = |line: &&str| line.starts_with("error ");
    if theirs.iter().any(is_error) {
        return Verdict::NoScript;
    }
    if ours.iter().any(is_error) {
        return Verdict::Refused;
    }
    let statements: Vec<&str> = script
        .lines()
        .filter_map(|line| line.strip_prefix("statement "))
        .collect();
    let (theirs, ours) = (calls(theirs), calls(ours));
    let numbers: BTreeSet<&str> = theirs.keys().chain(ours.keys()).copied().collect();
    let mut met = BTreeSet::new();
    for number in numbers {
        let theirs = theirs.get(number).map_or(&[][..], Vec::as_slice);
        let ours = ours
            .get(number)
            .map(|rows| rows.concat())
            .unwrap_or_default();
        let statement = number.parse().ok().and_then(|n: usize| statements.get(n));
        let Some(found) = deviations(script, statement.copied().unwrap_or(""), theirs, &ours)
        else {
            return Verdict::Different;
        };
        met.extend(found);
    }
    if met.is_empty() {
        Verdict::Same
    } else {
        Verdict::Deviates(met)
    }
}

/// The deviations that are all that keeps our rows of a statement apart from the peer's; none when
/// they are not.
fn deviations(
    script: &str,
    statement: &str,
    theirs: &[Vec<Row<'_>>],
    ours: &[Row<'_>],
) -> Option<BTreeSet<&'static str>> {
    let mut met = BTreeSet::new();
    if is_same_sequence(&theirs.concat(), ours) {
        return Some(met);
    }
    let known = DEVIATIONS
        .iter()
        .filter(|deviation| (deviation.applies)(statement));
    let mut theirs = theirs.to_vec();
    for deviation in known.clone() {
        if let Allows::Lack(without) = deviation.allows {
            let count = theirs.concat().len();
            theirs = without(script, statement, &theirs, ours);
            if theirs.concat().len() < count {
                met.insert(deviation.name);
            }
        }
    }
    if !is_same_sequence(&theirs.concat(), ours) {
        let other = known.clone().find(|deviation| match deviation.allows {
            Allows::Rows(allows) => differs_by(allows, &theirs, ours),
            Allows::Lack(_) => false,
        });
        met.insert(other?.name);
    }
    Some(met)
}

/// Whether what may differ is all that keeps our rows apart from the peer's, call by call.
fn differs_by(
    allows: fn(&[Row<'_>], &[Row<'_>]) -> bool,
    calls: &[Vec<Row<'_>>],
    ours: &[Row<'_>],
) -> bool {
    let mut rest = ours;
    for call in calls {
        let Some((own, others)) = rest.split_at_checked(call.len()) else {
            return false;
        };
        if !is_same_sequence(call, own) && !allows(call, own) {
            return false;
        }
        rest = others;
    }
    rest.is_empty()
}

/// Whether both have the same rows in the same order.
pub fn is_same_sequence(a: &[Row<'_>], b: &[Row<'_>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_row(a, b))
}

/// Whether every row has one that is the same, in whatever order.
pub fn is_same_set(a: &[Row<'_>], b: &[Row<'_>]) -> bool {
    let mut left: Vec<&Row<'_>> = b.iter().collect();
    let found = a.iter().all(|row| {
        let place = left.iter().position(|other| is_same_row(row, other));
        place.map(|place| left.remove(place)).is_some()
    });
    found && left.is_empty()
}

/// Whether ours is the peer's row without some of the columns that are null in it.
pub fn is_same_but_for_nulls(theirs: &Row<'_>, ours: &Row<'_>) -> bool {
    let read = |row: &Row<'_>| serde_json::from_str::<Map<String, Value>>(row.2).ok();
    let (Some(theirs_columns), Some(columns)) = (read(theirs), read(ours)) else {
        return false;
    };
    (theirs.0, theirs.1) == (ours.0, ours.1)
        && columns.keys().all(|name| theirs_columns.contains_key(name))
        && theirs_columns.iter().all(|(name, value)| {
            let own = columns.get(name);
            own.map_or(value.is_null(), |own| same(value, own))
        })
}

/// A column's value as text; empty where there is none.
pub fn column(row: &Row<'_>, name: &str) -> String {
    let value = serde_json::from_str::<Value>(row.2).ok();
    let value = value.and_then(|value| value.get(name).map(Value::to_string));
    value.unwrap_or_default()
}

/// The rows of each statement in order, by calls of its listener where those are told.
fn calls<'t>(lines: &[&'t str]) -> BTreeMap<&'t str, Vec<Vec<Row<'t>>>> {
    let mut statements: BTreeMap<&str, Vec<Vec<Row<'_>>>> = BTreeMap::new();
    let mut is_call = true;
    for line in lines {
        let mut parts = line.splitn(5, ' ');
        match parts.next() {
            Some("call") => is_call = true,
            Some("row") => {
                if let (Some(time), Some(statement), Some(kind), Some(json)) =
                    (parts.next(), parts.next(), parts.next(), parts.next())
                {
                    let calls = statements.entry(statement).or_default();
                    match calls.last_mut() {
                        Some(call) if !is_call => call.push((time, kind, json)),
                        _ => calls.push(vec![(time, kind, json)]),
                    }
                    is_call = false;
                }
            }
            _ => {}
        }
    }
    statements
}

/// Whether both are of one instant and kind, with the same columns.
pub fn is_same_row(a: &Row<'_>, b: &Row<'_>) -> bool {
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

    const PLAIN: &str = "statement select k from E\nstatement select k from F";
    const GROUPED: &str = "statement select k, sum(a) as s from E group by k";
    const PATTERN: &str = "statement select x.k as k from pattern [every x=E]";

    #[test]
    fn rows_are_compared_by_statement_instant_kind_and_value() {
        let theirs = [
            "call 0 0",
            "row 0 0 new {\"a\":1,\"b\":0.1}",
            "call 0 1",
            "row 0 1 old {\"k\":\"x y\"}",
        ];
        let ours = [
            "row 0 1 old {\"k\":\"x y\"}",
            "row 0 0 new {\"b\":0.10000000000001,\"a\":1.0}",
        ];
        let of = |ours: &[&str]| verdict(PLAIN, &theirs, ours);
        assert_eq!(of(&ours), Verdict::Same);
        assert_eq!(of(&ours[..1]), Verdict::Different);
        let late = ["row 1 1 old {\"k\":\"x y\"}", ours[1]];
        assert_eq!(of(&late), Verdict::Different);
        let new = ["row 0 1 new {\"k\":\"x y\"}", ours[1]];
        assert_eq!(of(&new), Verdict::Different);
        let other = ["row 0 1 old {\"k\":\"x z\"}", ours[1]];
        assert_eq!(of(&other), Verdict::Different);
    }

    #[test]
    fn only_groups_and_matches_of_one_call_may_stand_in_another_order() {
        let (p, q) = ("row 0 0 new {\"k\":\"p\"}", "row 0 0 new {\"k\":\"q\"}");
        let one_call = ["call 0 0", p, q];
        let two_calls = ["call 0 0", p, "call 0 0", q];
        for (script, name) in [
            (GROUPED, "groups that change at one instant"),
            (PATTERN, "matches that one event completes"),
        ] {
            let met = Verdict::Deviates([name].into());
            assert_eq!(verdict(script, &one_call, &[q, p]), met);
            assert_eq!(verdict(script, &two_calls, &[q, p]), Verdict::Different);
            assert_eq!(verdict(script, &one_call, &[q, q]), Verdict::Different);
        }
        assert_eq!(verdict(PLAIN, &one_call, &[q, p]), Verdict::Different);
    }

    #[test]
    fn the_rows_of_one_group_keep_their_order() {
        let rows = [
            "row 0 0 new {\"k\":\"p\",\"a\":1}",
            "row 0 0 new {\"k\":\"p\",\"a\":2}",
            "row 0 0 new {\"k\":\"q\",\"a\":3}",
        ];
        let theirs = ["call 0 0", rows[0], rows[1], rows[2]];
        let of = |ours: [&str; 3]| verdict(GROUPED, &theirs, &ours);
        assert_ne!(of([rows[2], rows[0], rows[1]]), Verdict::Different);
        assert_eq!(of([rows[2], rows[1], rows[0]]), Verdict::Different);
    }

    #[test]
    fn a_whole_event_may_lack_what_is_null_and_nothing_else() {
        let whole = "statement select * from E";
        let theirs = ["call 0 0", "row 0 0 new {\"a\":null,\"k\":\"p\"}"];
        let of = |ours: &str| verdict(whole, &theirs, &[ours]);
        let met = Verdict::Deviates(["`*` of an event that lacks fields"].into());
        assert_eq!(of("row 0 0 new {\"k\":\"p\"}"), met);
        assert_eq!(of("row 0 0 new {\"a\":null}"), Verdict::Different);
        assert_eq!(of("row 0 0 new {\"k\":\"p\",\"a\":1}"), Verdict::Different);
        assert_eq!(
            of("row 0 0 new {\"k\":\"p\",\"b\":null}"),
            Verdict::Different
        );
        assert_eq!(of("row 1 0 new {\"k\":\"p\"}"), Verdict::Different);
    }

    #[test]
    fn a_statement_that_one_side_refuses_is_told_apart() {
        assert_eq!(verdict(PLAIN, &["error 0 no"], &[]), Verdict::NoScript);
        assert_eq!(verdict(PLAIN, &[], &["error 0 no"]), Verdict::Refused);
    }
}
