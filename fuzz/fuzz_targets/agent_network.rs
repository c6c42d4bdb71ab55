//! Site-to-site, fetched Kafka records, syslog and OPC UA, as the agent reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| agent::fuzzing::network(input));
