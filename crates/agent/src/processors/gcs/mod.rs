//! PutGCSObject, FetchGCSObject, DeleteGCSObject and ListGCSBucket, and what they have in common.

mod common;
mod delete;
mod fetch;
mod list;
mod put;
#[cfg(test)]
mod tests;

pub(super) use delete::KIND as DELETE;
pub(super) use fetch::KIND as FETCH;
pub(super) use list::KIND as LIST;
pub(super) use put::KIND as PUT;
