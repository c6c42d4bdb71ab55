//! Tests of the listener: its decoders by property, its conversations over real sockets.

mod decoders;
mod wire;
