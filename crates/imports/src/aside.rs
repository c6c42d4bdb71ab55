//! A process that is older than its database stands aside: once a newer version has made the tables
//! into what this one does not fit, it takes no more slices, commits none and fails no job. Its jobs
//! wait for it to be upgraded, or for a process that has their files.
//!
//! Each lease and each commit asks in its own statement whether the process still fits; what fails
//! for another reason, such as a column that is gone, is no job's fault then either.

use std::sync::atomic::Ordering;

use sql::{SqlError, Statement};

use crate::imports::Core;
use crate::registry::Registry;
use crate::schema::schema;

impl Core {
    /// Whether this process was seen to be too old.
    pub fn is_aside(&self) -> bool {
        self.is_aside.load(Ordering::Relaxed)
    }

    /// Looks whether this process is too old for a database that it shares, and says so once.
    pub async fn stands_aside(&self) -> bool {
        for registry in [&self.registry, &self.behind] {
            match registry.still_fits().await {
                Ok(()) => {}
                Err(error @ SqlError::NewerSchema { .. }) => {
                    if !self.is_aside.swap(true, Ordering::Relaxed) {
                        tracing::error!(
                            error = base::report(&error),
                            "this process takes no more slices of imports; upgrade it"
                        );
                    }
                }
                // What is known holds.
                Err(error) => {
                    tracing::debug!(error = base::report(&error), "the schema was not looked at");
                }
            }
        }
        self.is_aside()
    }
}

impl Registry {
    /// Refuses a database that others share and that this process does not fit any more.
    pub async fn still_fits(&self) -> Result<(), SqlError> {
        match self.is_shared() {
            true => {
                let schema = schema(self.database.dialect());
                self.database.still_fits(&[*schema]).await
            }
            false => Ok(()),
        }
    }

    /// Has a statement with a condition change nothing once this process does not fit.
    pub fn while_it_fits(&self, statement: Statement) -> Statement {
        if !self.is_shared() {
            return statement;
        }
        let schema = schema(self.database.dialect());
        let newest = schema.migrations.last().map_or(0, |last| last.number);
        let fits = " AND NOT EXISTS (SELECT 1 FROM schema_floors f
             WHERE f.schema_name = ? AND f.oldest > ?)";
        statement.push(fits).bind(schema.name).bind(newest)
    }
}
