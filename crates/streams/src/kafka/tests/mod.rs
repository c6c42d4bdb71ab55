//! Tests of the listener: its decoders by property, its conversations over real sockets.

mod access;
mod bounds;
mod client;
mod cluster;
mod configs;
mod coordination;
mod decoders;
mod groups;
mod homes;
mod login;
mod migration;
mod permissions;
mod quotas;
mod shares;
mod streams_groups;
mod tenants;
mod transactions;
mod versions;
mod wire;
