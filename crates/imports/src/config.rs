//! What an operator may set for bulk imports (the configuration's `imports` table).

use base::ByteSize;
use serde::{Deserialize, Serialize};

use crate::limits;

/// The settings of bulk imports; every key has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportsConfig {
    /// Slices worked on at the same time, 1 to 16.
    pub workers: usize,
    /// The most bytes of one upload; a larger one is answered 413.
    pub upload_bytes_max: ByteSize,
    /// The most records of one slice: how much a tenant may do before it is another's turn. A job
    /// keeps the value that it was created with.
    pub slice_records: u32,
}

impl Default for ImportsConfig {
    fn default() -> Self {
        ImportsConfig {
            workers: limits::WORKERS,
            upload_bytes_max: ByteSize(limits::UPLOAD_BYTES_MAX),
            slice_records: limits::SLICE_RECORDS_MAX,
        }
    }
}
