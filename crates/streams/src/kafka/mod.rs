//! The Kafka listener.
