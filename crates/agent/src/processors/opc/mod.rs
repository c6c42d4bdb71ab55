//! FetchOPCProcessor and PutOPCProcessor, and what they have in common.

mod common;
mod fetch;
mod put;
#[cfg(test)]
mod tests;

pub(super) use fetch::KIND as FETCH;
pub(super) use put::KIND as PUT;
