//! The deliberate deviations that scripts meet: each is a row of docs/epl.md, under "Where rows
//! differ from Esper's", and is recognized by what that row says and nothing wider.

use std::collections::BTreeMap;

use super::compare::{Row, column, is_same_but_for_nulls, is_same_sequence, is_same_set};
use super::ends;

/// A deliberate deviation.
#[derive(Debug)]
pub struct Deviation {
    /// The first cell of its row in docs/epl.md.
    pub name: &'static str,
    /// Whether a statement can meet it.
    pub applies: fn(&str) -> bool,
    /// What it lets differ.
    pub allows: Allows,
}

/// What a deviation lets differ.
#[derive(Debug)]
pub enum Allows {
    /// Whether it is all that keeps apart the rows of one call of the peer's listener, which are
    /// of one statement, one instant and one event, and ours in their place.
    Rows(fn(&[Row<'_>], &[Row<'_>]) -> bool),
    /// The peer's calls without the rows that ours may lack; see [`ends::without`].
    Lack(Without),
}

/// Of a script, one of its statements, the peer's calls for it and our rows, what is left of the
/// calls.
pub type Without = for<'t> fn(&str, &str, &[Vec<Row<'t>>], &[Row<'t>]) -> Vec<Vec<Row<'t>>>;

/// Every deviation that is recognized.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        name: "groups that change at one instant",
        applies: |statement| statement.contains(" group by "),
        allows: Allows::Rows(is_same_by_group),
    },
    Deviation {
        name: "several contexts that change at one instant",
        applies: |statement| statement.starts_with("create context C partition by k "),
        allows: Allows::Rows(is_same_by_group),
    },
    Deviation {
        name: "overlapping contexts that change at one instant",
        applies: |statement| statement.starts_with("create context C initiated by "),
        allows: Allows::Rows(is_same_set),
    },
    Deviation {
        name: "matches that one event completes",
        applies: |statement| statement.contains(" from pattern ["),
        allows: Allows::Rows(is_same_set),
    },
    Deviation {
        name: "rows of a join that one event gives",
        applies: |statement| statement.contains(" as x, F") || statement.contains(" join F"),
        allows: Allows::Rows(is_same_set),
    },
    Deviation {
        name: "`*` of an event that lacks fields",
        applies: |statement| statement.contains(" * from E"),
        allows: Allows::Rows(|theirs, ours| {
            theirs.len() == ours.len()
                && theirs
                    .iter()
                    .zip(ours)
                    .all(|(theirs, ours)| is_same_but_for_nulls(theirs, ours))
        }),
    },
    Deviation {
        name: "what is due in a window when its context ends",
        applies: ends::applies,
        allows: Allows::Lack(ends::without),
    },
];

/// Whether the rows of each group are the same in the same order.
fn is_same_by_group(theirs: &[Row<'_>], ours: &[Row<'_>]) -> bool {
    let (theirs, ours) = (by_group(theirs), by_group(ours));
    theirs.len() == ours.len()
        && theirs
            .iter()
            .zip(&ours)
            .all(|(a, b)| a.0 == b.0 && is_same_sequence(a.1, b.1))
}

/// The rows of each group in their order; the group is the column `k`.
fn by_group<'t>(rows: &[Row<'t>]) -> BTreeMap<String, Vec<Row<'t>>> {
    let mut groups: BTreeMap<String, Vec<Row<'_>>> = BTreeMap::new();
    for row in rows {
        groups.entry(column(row, "k")).or_default().push(*row);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::DEVIATIONS;

    #[test]
    fn every_deviation_is_published() {
        let page = include_str!("../../../../../docs/epl.md");
        for deviation in DEVIATIONS {
            let row = format!("| {} |", deviation.name);
            assert!(page.contains(&row), "docs/epl.md has no row {row}");
        }
    }
}
