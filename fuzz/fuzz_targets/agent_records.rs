//! Records, devices' answers and extensions' frames, as the agent reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| agent::fuzzing::records(input));
