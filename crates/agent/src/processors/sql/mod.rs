//! SQL databases: ExecuteSQL, QueryDatabaseTable and PutSQL.

mod common;
mod execute;
mod put;
mod query_table;
#[cfg(test)]
mod tests;

pub(super) use execute::KIND as EXECUTE;
pub(super) use put::KIND as PUT;
pub(super) use query_table::KIND as QUERY_TABLE;
