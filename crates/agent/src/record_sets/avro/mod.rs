//! Avro: object container files and bare datums, by the specification's version 1.12.
//!
//! A schema is an arena of nodes that refer to each other by index ([`schema`]); values are read
//! from and written to one block in memory ([`decode`], [`encode`]); files frame the blocks and pack
//! them ([`file`]). Where no schema is given, one is found from the first records ([`guess`]).
//!
//! Records have no types but JSON's: `bytes` and `fixed` are texts of one character for each byte,
//! as in Avro's own JSON encoding; decimals are numbers where these are exact, else texts; dates
//! and times stay the numbers that they are stored as. Left out: reading by another schema than the
//! one that was written by, and protocols.

mod decode;
mod encode;
mod file;
mod guess;
mod schema;

use std::sync::Arc;

pub(super) use file::Packing;
pub(super) use schema::AvroSchema;

/// Opens readers of Avro.
#[derive(Debug)]
pub(super) struct AvroReaders {
    /// The schema of bare datums, one after the other; files bring their own, where this is none.
    pub(super) schema: Option<Arc<AvroSchema>>,
}

/// Opens writers of Avro.
#[derive(Clone, Debug)]
pub(super) struct AvroWriters {
    /// What is written by; found from the first records, where this is none.
    pub(super) schema: Option<Arc<AvroSchema>>,
    /// How a file's blocks are packed.
    pub(super) packing: Packing,
    /// Datums alone, without a file around them; needs a schema.
    pub(super) is_bare: bool,
}

#[cfg(test)]
mod tests;
