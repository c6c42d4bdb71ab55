//! The edge agent as its own small binary.

fn main() {}
