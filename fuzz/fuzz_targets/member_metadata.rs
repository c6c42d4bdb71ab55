//! What members of a group tell each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::fuzzing::member_metadata(input));
