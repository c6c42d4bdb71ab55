//! REST exchanges.
