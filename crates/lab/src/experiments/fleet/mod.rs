//! The fleet under the load of its agents, each published experiment beside its figures.

pub mod heartbeat;
pub mod register;
mod server;

/// Whose figures stand beside ours.
const EFM: &str = "EFM sizing guide: 3 nodes of 6 cores, 12 GB";

/// A MiB.
const MIB: f64 = (1 << 20) as f64;
