//! Tenants in the event store: whose a batch is, whether it may come, and what it costs.
//!
//! The quotas and their meters are those of [`access`]; here stands what needs to know of topics
//! and batches. Nothing is looked at until a tenant is kept.

mod census;
mod collections;
mod named;
mod names;
mod payer;
mod purge;
mod sift;
mod switch;
mod usage;

pub use census::Run;
pub(crate) use census::{Census, counted, named_by, whose};
pub(crate) use collections::Collections;
pub(crate) use payer::{Origin, Payer};
pub use purge::Purge;
pub(crate) use sift::only;
#[cfg(test)]
pub(crate) use switch::Attempt;
pub use usage::{GroupBacklog, TenantUse, TopicUse, stored_bytes};
