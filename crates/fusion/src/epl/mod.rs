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
//! schema; where one is declared, there are no others. Every construct that is not taken is refused
//! at its place, never ignored.

mod ast;
mod lower;
mod parser;
mod text;
mod token;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use lower::{is_method, is_namespace};

use crate::error::TextError;
use crate::functions::user::{Binder, Modules};
use crate::plan::{Plan, Source};

/// The event types that statements can name without saying where they come from, and the named
/// windows and tables that there are. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    sources: BTreeMap<String, Source>,
    kept: BTreeMap<String, KeptType>,
    modules: Modules,
}

/// What rows of a named window or table look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptType {
    /// The columns; none where rows are whatever is inserted.
    pub columns: Option<Vec<String>>,
    /// True for a table.
    pub is_table: bool,
}

impl Catalog {
    /// A catalog of these names and their sources.
    pub fn new(sources: impl IntoIterator<Item = (String, Source)>) -> Self {
        let inner = Inner {
            sources: sources.into_iter().collect(),
            ..Inner::default()
        };
        Catalog {
            inner: Arc::new(inner),
        }
    }

    /// The same with these named windows and tables.
    pub fn with_kept(self, kept: impl IntoIterator<Item = (String, KeptType)>) -> Self {
        let inner = Inner {
            sources: self.inner.sources.clone(),
            kept: kept.into_iter().collect(),
            modules: self.inner.modules.clone(),
        };
        Catalog {
            inner: Arc::new(inner),
        }
    }

    /// The same with these modules, whose functions can be called.
    pub(crate) fn with_modules(self, modules: Modules) -> Self {
        let inner = Inner {
            modules,
            ..(*self.inner).clone()
        };
        Catalog {
            inner: Arc::new(inner),
        }
    }

    /// The modules whose functions can be called.
    pub(crate) fn modules(&self) -> &Modules {
        &self.inner.modules
    }

    /// The source of that name.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.inner.sources.get(name)
    }

    /// The named window or table of that name.
    pub fn kept(&self, name: &str) -> Option<&KeptType> {
        self.inner.kept.get(name)
    }
}

/// Compiles one statement, with the declarations before it.
///
/// # Errors
/// The text is no statement, or one that is not supported; the error points at the place.
pub fn compile(text: &str, catalog: &Catalog) -> Result<Plan, TextError> {
    bound(catalog, |binder| {
        lower::lower(&parser::parse(text)?, catalog, binder)
    })
}

/// Compiles a text that is run once over named windows and tables: a select, a delete, an update or
/// an insert of values. A select's plan asks for all that is held; the others' act without a
/// trigger.
///
/// # Errors
/// As [`compile`], and what does not work on demand.
pub fn compile_once(text: &str, catalog: &Catalog) -> Result<Plan, TextError> {
    bound(catalog, |binder| {
        lower::lower_once(&parser::parse(text)?, catalog, binder)
    })
}

fn bound(
    catalog: &Catalog,
    lower: impl FnOnce(Binder) -> Result<Plan, TextError>,
) -> Result<Plan, TextError> {
    let binder = Binder::new(catalog.modules());
    let mut plan = lower(binder.clone())?;
    plan.calls = binder.into_calls();
    Ok(plan)
}

/// The function that is called with or without brackets: the time at which an expression is asked.
const CLOCK: &str = "current_timestamp";
