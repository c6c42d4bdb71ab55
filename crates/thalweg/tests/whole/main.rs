//! The whole system as its users meet it: the built binary, real protocols, real clients.
//!
//! One binary for all of it. Each file is a subject; `harness` starts and stops what they need.
//! Run by `./test`, which first sets up the clients under `target/test-env`.

// Everything here is a test, helpers included: a panic is how it fails.
#![allow(clippy::unwrap_used)]

mod access;
mod agent;
mod agent_c2;
mod agent_kills;
mod agent_object_storage;
mod agent_opc;
mod backup;
mod cli;
mod clients;
mod console;
mod crash;
mod crash_keeping;
mod fleet;
mod fleet_agents;
mod fleet_convert;
mod fleet_forward;
mod fleet_hostile;
mod fleet_kills;
mod fleet_operators;
mod fleet_roles;
mod fleet_shared;
mod fleet_sign_in;
mod groups;
mod harness;
mod hostile;
mod house;
mod imports;
mod imports_kills;
mod imports_marc;
mod imports_search;
mod kafka;
mod kafka_broker;
mod kafka_cluster;
mod kafka_groups;
mod kafka_migration;
mod kafka_operators;
mod kafka_tools;
mod lab;
mod metrics;
mod mqtt;
mod mqtt_gate;
mod mqtt_load;
mod mqtt_rules;
mod openapi;
mod quickstarts;
mod refusals;
mod rest;
mod rest_formats;
mod rest_hostile;
mod rest_kills;
mod rest_logins;
mod rest_peers;
mod rest_readers;
mod rest_streams;
mod rest_survival;
mod schemas;
mod statement_functions;
mod statement_tables;
mod statements;
mod statements_far;
mod statements_kills;
mod statements_shared;
mod tenants;
mod tenants_apart;
mod tenants_own;
mod transactions;
mod transport;
mod transport_peers;
mod transport_tls;
mod up;
mod watched;
