//! Schemas of every type, and payloads and JSON that are read with them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rest::fuzzing::schema_payload(input));
