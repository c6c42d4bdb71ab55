//! Rows of a named window or table found by their key, where a condition gives it, instead of by
//! looking through all of them.

use crate::expression::{Comparison, Expression};
use crate::json::FieldPath;
use crate::plan::{Slot, SlotField};
use crate::query::kept::Kept;

/// What the key of a row is that a condition can be true of: an expression per key column, none of
/// which reads the row itself.
pub fn keys_of(
    kept: &Kept,
    alias: u16,
    slots: &[Slot],
    fields: &[FieldPath],
    condition: Option<&Expression>,
) -> Option<Vec<Expression>> {
    let columns = kept.keys()?;
    if columns.is_empty() {
        return None;
    }
    let parts = match condition? {
        Expression::And(parts) => parts.as_slice(),
        part => std::slice::from_ref(part),
    };
    let is_column = |expression: &Expression, column: &FieldPath| {
        let Expression::Field(slot) = expression else {
            return false;
        };
        matches!(
            slots.get(usize::from(*slot)),
            Some(Slot::Event { alias: own, field: SlotField::Payload(field), .. })
                if *own == alias && fields.get(usize::from(*field)) == Some(column)
        )
    };
    let other_side = |part: &Expression, column: &FieldPath| match part {
        Expression::Compare(Comparison::Equal, sides) => {
            let [a, b] = &**sides;
            let other = match (is_column(a, column), is_column(b, column)) {
                (true, _) => b,
                (_, true) => a,
                _ => return None,
            };
            is_outside(other, alias, slots).then(|| other.clone())
        }
        _ => None,
    };
    columns
        .into_iter()
        .map(|column| parts.iter().find_map(|part| other_side(part, column)))
        .collect()
}

/// Whether an expression reads fields of other aliases' events alone.
fn is_outside(expression: &Expression, alias: u16, slots: &[Slot]) -> bool {
    if let Expression::Field(slot) = expression {
        return matches!(
            slots.get(usize::from(*slot)),
            Some(Slot::Event { alias: own, .. }) if *own != alias
        );
    }
    let mut is_all = !matches!(expression, Expression::Aggregate(_));
    let mut own = expression.clone();
    own.for_each_child(&mut |child| is_all &= is_outside(child, alias, slots));
    is_all
}
