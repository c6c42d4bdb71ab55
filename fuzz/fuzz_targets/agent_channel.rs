//! What a hostile OPC UA server says to the agent behind signatures and encryption.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| agent::fuzzing::channel(&KEYS, input));

const KEYS: [[&[u8]; 2]; 2] = [
    [include_bytes!("../keys/small.der"), include_bytes!("../keys/small.key")],
    [include_bytes!("../keys/large.der"), include_bytes!("../keys/large.key")],
];
