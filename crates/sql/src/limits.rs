//! Bounds, each with its unit and reason.

use std::time::Duration;

/// Reading connections: more than the cores of a small machine gain nothing on one file.
pub const READERS_DEFAULT: u32 = 4;

/// How long a statement waits for a lock that another process holds before it is an error:
/// longer than any commit on a slow disk, shorter than a client's patience.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);

/// How long a caller waits for a connection of a file's pool before it is an error.
pub const CONNECTION_WAIT: Duration = Duration::from_secs(30);

/// How long a caller waits for a connection to a server: agents give up after five seconds, and
/// what they wait for may need two.
pub const SERVER_WAIT: Duration = Duration::from_secs(2);

/// How long a connection to a server may have rested and still be used without a look whether it is
/// alive: the look is a way there and back, and a server does not come up again as fast.
pub const TRUSTED_IDLE: Duration = Duration::from_millis(100);

/// How long a statement may take on a server before its connection is given up; a packet that is
/// lost for good shows in nothing else.
pub const STATEMENT_WAIT: Duration = Duration::from_secs(30);

/// How long a node waits while another one migrates the schema, or uses a table that it changes.
pub const MIGRATION_WAIT: Duration = Duration::from_secs(120);

/// How long a migration waits for a table's lock before it lets those through who queue behind it,
/// in whole seconds: agents' calls wait no longer than that, and their patience is five.
pub const MIGRATION_LOCK_WAIT: Duration = Duration::from_secs(1);

/// Pages (of 4 KiB) in the write-ahead log after which SQLite copies them into the file: 4 MiB.
pub const CHECKPOINT_PAGES: u32 = 1_000;

/// Rows in one statement: more gain nothing and take parsing.
pub const ROWS_PER_STATEMENT_MAX: usize = 256;

/// Values in one statement: SQLite takes 32,766, PostgreSQL and MySQL 65,535.
pub const VALUES_PER_STATEMENT_MAX: usize = 32_000;
