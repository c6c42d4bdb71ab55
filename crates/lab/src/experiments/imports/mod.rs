//! Bulk imports under load: how fast one is, how several tenants share, and who waits beside them.

mod bench;
mod books;
mod counter;
pub mod fairness;
pub mod rates;
pub mod shared_topics;

use crate::database::Kind;
pub use books::LIBRARY_VARIABLE;

/// Whose figures stand beside ours.
const PUBLISHED: &str = "FOLIO, published shared-topic tests";

/// Where records go: the kind of database that the published experiments had.
const SINK: Option<Kind> = Some(Kind::Postgres);

/// A MiB.
const MIB: f64 = (1 << 20) as f64;
