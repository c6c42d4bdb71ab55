//! Frames of the event store's journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::fuzzing::frame(input));
