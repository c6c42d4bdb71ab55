//! Files of every format that imports read.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| imports::fuzzing::file(input));
