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
