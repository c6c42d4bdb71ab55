//! What is told once, whoever sees it and however often a node is started: how near its end each
//! certificate was told to be.
//!
//! A row is a certificate by its key, with the nearest stage that was told. Rows go a while after the
//! certificate's end, and before that when there are too many.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use sql::{Conflict, Insert, Migration, Schema, SqlError, Statement, Transaction};

use super::Store;
use crate::events::Once;
use crate::{limits, newest};

impl Store {
    /// Notes what is to be told in this transaction; returns those that were told before, which are
    /// not to be told again.
    pub(super) async fn note_told(
        &self,
        tx: &mut Transaction,
        all: &[Once],
    ) -> Result<HashSet<Once>, SqlError> {
        let what = "note what was told of certificates";
        let mut before = HashSet::new();
        for chunk in all.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = Statement::new("SELECT id, stage FROM certificates_told WHERE id IN ");
            let select = select.list(chunk.iter().map(|once| &*once.key));
            let mut told: HashMap<String, i64> = HashMap::new();
            for row in tx.rows(what, &select).await? {
                let read = || Ok((row.text("id")?, row.number("stage")?));
                let (id, stage) = read().map_err(|error| tx.error(what, error))?;
                told.insert(id, stage);
            }
            // One certificate may be there at several stages.
            let mut new: HashMap<Arc<str>, &Once> = HashMap::new();
            for once in chunk {
                let stage = i64::from(once.stage);
                if told.get(&*once.key).is_some_and(|told| *told >= stage) {
                    before.insert(once.clone());
                } else {
                    told.insert(once.key.to_string(), stage);
                    new.insert(once.key.clone(), once);
                }
            }
            let row = |once: &Once| {
                vec![
                    (&*once.key).into(),
                    i64::from(once.stage).into(),
                    once.until.0.into(),
                ]
            };
            tx.insert(what, &TOLD, new.into_values().map(row).collect())
                .await?;
        }
        Ok(before)
    }

    /// Forgets certificates that ended long ago, and those that end first of more than there may be.
    pub async fn prune_told(&self, now: UnixMillis) -> Result<(), SqlError> {
        let what = "forget old certificates";
        let old = Statement::new("DELETE FROM certificates_told WHERE until_ms <= ?");
        let old = old.bind((now - KEPT_AFTER_END).0);
        self.database.run(what, &old).await?;
        let rows = newest::Rows::of("certificates_told", "until_ms");
        let kept = newest::keep(&self.database, what, rows, limits::CERTIFICATES_TOLD_MAX);
        kept.await.map(drop)
    }
}

/// For so long after its end a certificate that is still shown is not told again.
const KEPT_AFTER_END: Duration = Duration::from_secs(365 * 24 * 3600);

const TOLD: Insert = Insert {
    table: "certificates_told",
    columns: &["id", "stage", "until_ms"],
    conflict: Conflict::Replace {
        key: &["id"],
        columns: &["stage", "until_ms"],
    },
};

pub const SCHEMA: Schema = Schema {
    name: "fleet_told",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "what was told of certificates",
        text: FIRST,
    }],
};

const FIRST: &str = "
CREATE TABLE certificates_told (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    stage BIGINT NOT NULL,
    until_ms BIGINT NOT NULL
);
CREATE INDEX certificates_told_until ON certificates_told (until_ms);
";
