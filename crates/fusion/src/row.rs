//! One row as JSON.

use crate::expression::{Expression, Scope};
use crate::limits::ROW_BYTES_MAX;
use crate::plan::Column;
use crate::value::{Value, write_text};

/// What stands in a row before each column's value.
pub fn prefixes(columns: &[Column]) -> Vec<Vec<u8>> {
    let mut prefixes = Vec::with_capacity(columns.len());
    for column in columns {
        let mut prefix = Vec::new();
        match column {
            Column::All { .. } => write_text(&mut prefix, "payload"),
            Column::Named { name, .. } => write_text(&mut prefix, name),
        }
        prefix.push(b':');
        prefixes.push(prefix);
    }
    prefixes
}

/// Appends one row; false, and nothing appended, when it is larger than a record may be.
pub fn write_row(
    columns: &[Column],
    prefixes: &[Vec<u8>],
    scope: &Scope<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    out.push(b'{');
    for (column, prefix) in columns.iter().zip(prefixes) {
        let after = out.len();
        if after > start + 1 {
            out.push(b',');
        }
        match column {
            Column::Named { expression, .. } => {
                out.extend_from_slice(prefix);
                expression.evaluate(scope).write_json(out);
            }
            Column::All { payload } => {
                let payload = Expression::Field(*payload);
                if !write_members(&payload.evaluate(scope), prefix, out) {
                    out.truncate(after);
                }
            }
        }
    }
    out.push(b'}');
    let fits = out.len() - start <= ROW_BYTES_MAX;
    if !fits {
        out.truncate(start);
    }
    fits
}

/// The members of an object, or what is no object under the prefix's name; false for no members.
fn write_members(payload: &Value<'_>, prefix: &[u8], out: &mut Vec<u8>) -> bool {
    if let Value::Json(text) = payload
        && let Some(members) = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'))
    {
        let members = members.trim();
        out.extend_from_slice(members.as_bytes());
        return !members.is_empty();
    }
    out.extend_from_slice(prefix);
    payload.write_json(out);
    true
}
