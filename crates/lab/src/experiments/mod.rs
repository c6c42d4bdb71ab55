//! The table of experiments, in the order in which `thalweg lab list` prints them.

mod line;

use crate::experiment::Experiment;

/// Every experiment.
pub const ALL: &[Experiment] = &[line::EXPERIMENT];
