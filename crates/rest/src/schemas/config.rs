//! What an operator may set for the schema registry (the configuration's `schemas` table).

use base::ByteSize;
use serde::{Deserialize, Serialize};

use super::compatibility::Level;
use super::limits;

/// The schema registry's settings; every key has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchemasConfig {
    /// Address and port to listen on; port 0 picks a free one.
    pub listen: String,
    /// The topic that holds the schemas: of one partition, compacted; made when it is first needed.
    pub topic: String,
    /// The compatibility of subjects for which nobody has set one, as `PUT /config` writes it.
    pub compatibility: Level,
    /// The most bytes of one request body; a larger one is answered 413.
    pub body_bytes_max: ByteSize,
}

impl Default for SchemasConfig {
    fn default() -> Self {
        SchemasConfig {
            listen: "127.0.0.1:8081".to_owned(),
            topic: "_schemas".to_owned(),
            compatibility: Level::Backward,
            body_bytes_max: ByteSize(limits::BODY_BYTES_MAX),
        }
    }
}
