//! Payload formats of statements: SenML, Observations, CBOR and whatever else.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fusion::fuzzing::formats(input));
