//! Statement tests as data files, and properties over random events.

mod brokers;
mod cases;
mod chains;
mod changes;
mod cookbook;
mod durable;
mod engine;
mod epl;
mod event_time;
mod functions;
mod grouped;
pub mod house;
mod joins;
mod kept;
mod life;
mod outputs;
mod overflow;
mod properties;
mod queries;
mod races;
mod speed;
