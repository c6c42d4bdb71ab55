//! Repositories of the agent: see `agent::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| agent::fuzzing::repository(input));
