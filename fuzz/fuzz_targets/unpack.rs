//! Compressed records of every codec.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::fuzzing::unpack(input));
