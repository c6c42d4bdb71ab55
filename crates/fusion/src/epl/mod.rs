//! The EPL front end: text to a syntax tree ([`parser`]), and the tree onto a [`Plan`]
//! ([`lower`]).
//!
//! ```text
//! [create schema … ;] [create context … ;]
//! [context Name] [insert into Name | "mqtt/topic" | kafka.topic]
//! select columns from Type(filter)#window as a, … | pattern […] [where …] [group by …]
//! [having …] [output …] [order by …] [limit …]
//! ```
//!
//! or `create window`, `create table`, `on Type select | delete | update | merge`. A type is a
//! name of the [`Catalog`], a topic filter in quotes (`"site/+/temp"`, `kafka.topic`), or else the
//! name of a stream, named window or table that other statements insert into. Fields need no
//! schema. Every construct that is not taken is refused at its place, never ignored.

mod ast;
mod lower;
mod parser;
mod text;
mod token;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::error::TextError;
use crate::plan::{Plan, Source};

/// The event types that statements can name without saying where they come from.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    sources: BTreeMap<String, Source>,
}

impl Catalog {
    /// A catalog of these names and their sources.
    pub fn new(sources: impl IntoIterator<Item = (String, Source)>) -> Self {
        Catalog {
            sources: sources.into_iter().collect(),
        }
    }

    /// The source of that name.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.get(name)
    }
}

/// Compiles one statement, with the declarations before it.
///
/// # Errors
/// The text is no statement, or one that is not supported; the error points at the place.
pub fn compile(text: &str, catalog: &Catalog) -> Result<Plan, TextError> {
    lower::lower(&parser::parse(text)?, catalog)
}
