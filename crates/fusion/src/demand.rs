//! Queries on demand: what runs once over named windows and tables.

use std::sync::Arc;

use base::UnixMillis;

use crate::epl::{self, Catalog, KeptType};
use crate::error::{FusionError, TextError};
use crate::limits::{DEMAND_ROWS_MAX, GROUPS_MAX, STATEMENT_TEXT_BYTES_MAX};
use crate::output::Output;
use crate::query::QueryState;
use crate::query::kept::{Kept, KeptByName};
use crate::query::select::Faults;

/// Runs a text once; its rows are in the answer, and what it changed is noted where it stands. The
/// caller holds the gate of the chains.
///
/// # Errors
/// `Text` points at what does not compile; `Limit` where the answer would be too long.
pub fn once(
    text: &str,
    catalog: &Catalog,
    kept: &KeptByName,
    now: UnixMillis,
) -> Result<Output, FusionError> {
    if text.len() > STATEMENT_TEXT_BYTES_MAX {
        return Err(FusionError::Text(TextError {
            message: format!("the query is longer than {STATEMENT_TEXT_BYTES_MAX} bytes"),
            line: 1,
            column: 1,
        }));
    }
    let plan = Arc::new(epl::compile_once(text, catalog).map_err(FusionError::Text)?);
    let mut out = Output::default();
    let Some(mut query) = QueryState::new(plan, 0, GROUPS_MAX, kept) else {
        return Ok(out);
    };
    query.once(now.0, &mut out);
    let Faults {
        too_large,
        full,
        failed,
        ..
    } = query.take_faults();
    if let Some(why) = failed {
        return Err(FusionError::Refused(why));
    }
    if too_large > 0 {
        return Err(FusionError::Limit(
            "a row is larger than a record may be: select fewer columns".to_owned(),
        ));
    }
    if let Some(full) = full {
        return Err(FusionError::Limit(format!(
            "a row was not inserted: {full}"
        )));
    }
    if out.rows.len() > DEMAND_ROWS_MAX {
        return Err(FusionError::Limit(format!(
            "the answer has {} rows, and {DEMAND_ROWS_MAX} at most are given: ask for fewer by \
             where, or write limit",
            out.rows.len()
        )));
    }
    Ok(out)
}

/// What the catalog has to know of named windows and tables.
pub fn types_of(kept: &KeptByName) -> impl Iterator<Item = (String, KeptType)> + '_ {
    kept.iter()
        .map(|(name, kept)| (name.clone(), type_of(kept)))
}

fn type_of(kept: &Arc<Kept>) -> KeptType {
    KeptType {
        columns: kept.columns().map(<[String]>::to_vec),
        is_table: kept.is_table(),
    }
}
