//! Shared words of the house: ids, sizes, durations, clock and random seams, error reports, how
//! near a misspelt word is, and how metrics are counted and told.
//!
//! Knows no sockets, no files and no protocol; every other crate may use it.

mod clock;
mod exposition;
mod histogram;
mod letters;
mod lines;
mod nesting;
mod output;
mod report;
mod rfc3339;
mod rng;
mod tenant;
mod units;

pub use clock::{Clock, ManualClock, SystemClock, UnixMillis};
pub use exposition::{Exposition, Family, MetricKind};
pub use histogram::{Histogram, HistogramReading};
pub use letters::letters_apart;
pub use lines::LinesPerMinute;
pub use nesting::nests_too_deep;
pub use output::still_read;
pub use report::report;
pub use rfc3339::{format_rfc3339, parse_rfc3339};
pub use rng::Rng;
pub use tenant::{TenantId, TenantIdError};
pub use units::{ByteSize, HumanDuration, UnitError};
