//! The table of experiments, in the order in which `thalweg lab list` prints them.

mod agent_idle;
mod agent_soak;
mod backlog;
mod epl_differential;
mod fleet;
mod line;
mod repositories;
mod rest_proxy;
mod shared_topics;
mod store_restart;
mod store_topics;
mod store_vs_kafka;
mod tail;

use crate::experiment::Experiment;

/// Every experiment.
pub const ALL: &[Experiment] = &[
    line::EXPERIMENT,
    store_vs_kafka::EXPERIMENT,
    store_topics::EXPERIMENT,
    store_restart::EXPERIMENT,
    rest_proxy::EXPERIMENT,
    shared_topics::EXPERIMENT,
    fleet::register::EXPERIMENT,
    fleet::heartbeat::EXPERIMENT,
    tail::EXPERIMENT,
    repositories::EXPERIMENT,
    repositories::small::EXPERIMENT,
    backlog::EXPERIMENT,
    agent_soak::EXPERIMENT,
    agent_idle::EXPERIMENT,
    epl_differential::EXPERIMENT,
];
