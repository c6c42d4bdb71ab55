//! Ports by which flows of different machines are connected: those of a remote process group,
//! which call, and those of the root group, which are called.

mod common;
mod http;
mod local;
mod remote;
#[cfg(test)]
mod tests;

pub(super) use local::{INPUT as ROOT_INPUT, OUTPUT as ROOT_OUTPUT};
pub(super) use remote::{INPUT as REMOTE_INPUT, OUTPUT as REMOTE_OUTPUT};
