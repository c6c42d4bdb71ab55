//! Recovery of a journal's folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::fuzzing::recovery(input));
