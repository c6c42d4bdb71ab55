//! Record batches: checked, walked, unpacked, rewritten, replayed.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::fuzzing::record_batch(input));
