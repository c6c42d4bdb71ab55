//! Bounds of the lab, each with unit and reason.

use std::time::Duration;

/// How long a process under test may take until it says what listens where.
pub const READY_MAX: Duration = Duration::from_secs(20);
/// How long a process may take to stop by itself before it is killed.
pub const STOP_MAX: Duration = Duration::from_secs(15);
/// How often a condition is looked at; shorter would itself cost measurable CPU.
pub const POLL: Duration = Duration::from_millis(20);
/// A counter that stands still this long while more is expected ends the run as failed.
pub const STALL_MAX: Duration = Duration::from_secs(20);
/// How long a server of Kafka's protocol may take until it answers: a JVM on a busy machine, or a
/// store with a hundred thousand topics to recover.
pub const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Time between two heartbeats of an agent under test: fine enough for runs of seconds, and far from
/// costing it a percent.
pub const BEAT: Duration = Duration::from_millis(50);
/// How often a starting server is asked; finer than what it is measured to.
pub const READY_POLL: Duration = Duration::from_millis(2);
/// How long one load may take, set-up and last flush included, beyond the time it was given.
pub const LOAD_MAX: Duration = Duration::from_secs(300);
/// How long the scripts of a comparison may take on either side: thousands, each with a compiler's
/// work.
pub const SCRIPTS_MAX: Duration = Duration::from_secs(3_600);
/// How long Maven may take to fetch what is not there yet.
pub const FETCH_MAX: Duration = Duration::from_secs(900);
/// Largest answer read from a server under test, in bytes: a list of 100,000 created topics.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;
