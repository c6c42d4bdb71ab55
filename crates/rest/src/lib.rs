//! The Kafka REST proxy over the event store, in kafka-rest's versions 1, 2 and 3: produce, metadata,
//! consumer instances, administration, in binary, JSON, Avro, JSON Schema and Protobuf; a schema
//! registry; and topic management.
//!
//! Invariants: a produce is answered when its records have their topic's durability; nothing
//! lingers, requests of all connections share the store's group commit; every body, instance and
//! wait has a bound in `limits.rs`; an error is always `{"error_code", "message"}`.
//!
//! Left out: a registry elsewhere.

mod access;
mod acl_words;
mod answer;
mod answers;
mod backups;
mod body;
mod bridge;
mod config;
mod consumers;
mod embedded;
mod error;
mod groups;
mod idempotency;
mod importers;
mod limits;
mod login;
#[cfg(test)]
mod login_tests;
mod looking;
mod management;
mod media;
mod on_behalf;
mod openapi;
#[cfg(test)]
mod openapi_tests;
mod partition_reads;
mod partitioner;
mod produce;
mod properties;
mod rate;
mod rights;
mod roles;
mod routes;
mod scan;
mod schemas;
mod storing;
mod straight;
mod tenants;
#[cfg(test)]
mod tests;
mod tokens;
mod topic_groups;
mod topics;
mod turns;
mod v3;
mod wall;
mod working;

pub use access::{access_elsewhere, access_management};
pub use config::RestConfig;
pub use consumers::PeersError;
pub use error::RestError;
pub use login::{Logins, Peer};
pub use looking::records_management;
pub use management::management;
pub use rate::{RateLimit, RateLimitConfig, rate_limited};
pub use rights::{Openings, callers_known, nobody_asked, rights_asked};
pub use routes::{RestHandle, routes};
pub use schemas::management as schema_management;
pub use schemas::routes as schema_routes;
pub use schemas::{Level, SchemaError, SchemaRegistry, SchemasConfig};
pub use straight::Straight;
pub use tenants::{PurgeImports, tenant_management};
pub use wall::OwnerOfJob;

/// What fuzz targets drive.
pub mod fuzzing {
    pub use crate::schemas::format::fuzzing::schema_payload;
}
