//! Kafka requests: every API and version through the guard and the codec.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::fuzzing::request(input));
