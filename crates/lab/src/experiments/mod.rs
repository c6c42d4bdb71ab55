//! The table of experiments, in the order in which `thalweg lab list` prints them.

mod agent_idle;
mod agent_soak;
mod backlog;
mod epl_differential;
mod fleet;
mod fusion;
mod imports;
mod line;
mod repositories;
mod rest_proxy;
mod store_restart;
mod store_topics;
mod store_vs_kafka;
mod tail;

use crate::experiment::Experiment;
pub use imports::LIBRARY_VARIABLE;

/// Every experiment.
pub const ALL: &[Experiment] = &[
    line::EXPERIMENT,
    store_vs_kafka::EXPERIMENT,
    store_topics::EXPERIMENT,
    store_restart::EXPERIMENT,
    rest_proxy::EXPERIMENT,
    imports::shared_topics::EXPERIMENT,
    imports::rates::EXPERIMENT,
    imports::fairness::EXPERIMENT,
    fleet::register::EXPERIMENT,
    fleet::heartbeat::EXPERIMENT,
    tail::EXPERIMENT,
    repositories::EXPERIMENT,
    repositories::small::EXPERIMENT,
    backlog::EXPERIMENT,
    agent_soak::EXPERIMENT,
    agent_idle::EXPERIMENT,
    epl_differential::EXPERIMENT,
    fusion::burst::EXPERIMENT,
    fusion::layers::EXPERIMENT,
    fusion::keys::EXPERIMENT,
    fusion::statements::EXPERIMENT,
];
