//! Statement tests as data files, and properties over random events.

mod cases;
mod chains;
mod cookbook;
mod engine;
mod epl;
pub mod house;
mod life;
mod outputs;
mod properties;
mod queries;
mod speed;
