//! SASL conversations.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| access::fuzzing::login(input));
