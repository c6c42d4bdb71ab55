//! Tests of the listener: its decoders by property, its conversations over real sockets.

mod access;
mod client;
mod cluster;
mod configs;
mod decoders;
mod groups;
mod login;
mod permissions;
mod quotas;
mod tenants;
mod transactions;
mod versions;
mod wire;
