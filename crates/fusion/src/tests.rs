//! Statement tests as data files, and properties over random events.

mod cases;
mod engine;
mod epl;
mod properties;
mod speed;
