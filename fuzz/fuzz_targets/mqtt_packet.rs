//! MQTT packets of all versions: see `mqtt::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mqtt::fuzzing::packet(bytes));
