//! Bounds, each with its unit and reason.

use std::time::Duration;

/// Reading connections: more than the cores of a small machine gain nothing on one file.
pub const READERS_DEFAULT: u32 = 4;

/// How long a statement waits for a lock that another process holds before it is an error:
/// longer than any commit on a slow disk, shorter than a client's patience.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);

/// How long a caller waits for a connection of the pool before it is an error.
pub const CONNECTION_WAIT: Duration = Duration::from_secs(30);

/// Pages (of 4 KiB) in the write-ahead log after which SQLite copies them into the file: 4 MiB.
pub const CHECKPOINT_PAGES: u32 = 1_000;
