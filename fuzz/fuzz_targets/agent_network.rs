//! Site-to-site, fetched Kafka records and syslog, as the agent reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| agent::fuzzing::network(input));
