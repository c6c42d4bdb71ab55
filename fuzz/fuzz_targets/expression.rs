//! Expressions of flows: see `agent::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agent::fuzzing::expression(bytes));
