//! The messages of agents: see `c2::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| c2::fuzzing::c2_message(bytes));
