//! Tests of the listener: its decoders by property, its conversations over real sockets.

mod client;
mod configs;
mod decoders;
mod groups;
mod versions;
mod wire;
