//! Classes that operators make, describe and remove.

use std::sync::Arc;

use base::UnixMillis;
use sql::{SqlError, Statement};

use super::{CLASS, CLASS_GONE, Store, classes, flows, in_list, rows};
use crate::error::FleetError;
use crate::limits;
use crate::registry::News;

impl Store {
    /// Writes a class with its description; durable when this returns.
    pub async fn describe_class(
        &self,
        name: &Arc<str>,
        description: &str,
        now: UnixMillis,
    ) -> Result<(), SqlError> {
        let what = "write a class's description";
        let (mut tx, seq) = self.begin().await?;
        let row = vec![(&**name).into(), now.0.into(), description.into()];
        tx.insert(what, &rows::DESCRIBED_CLASSES, vec![row]).await?;
        self.note(&mut tx, seq, now, &[(CLASS, name.clone())])
            .await?;
        tx.commit(what).await
    }

    /// Removes a class with everything that is its own; durable when this returns. False, and nothing
    /// is removed, where an agent is in it.
    pub async fn remove_class(&self, name: &Arc<str>, now: UnixMillis) -> Result<bool, SqlError> {
        let what = "remove a class";
        let (mut tx, seq) = self.begin().await?;
        let agents = Statement::new("SELECT id FROM agents WHERE class = ? LIMIT 1");
        if tx.row(what, &agents.bind(&**name)).await?.is_some() {
            return Ok(false);
        }
        for text in OF_A_CLASS {
            let delete = Statement::new(text).bind(&**name);
            tx.run(what, &delete).await?;
        }
        self.note(&mut tx, seq, now, &[(CLASS_GONE, name.clone())])
            .await?;
        tx.commit(what).await?;
        Ok(true)
    }

    /// Reads what was made under the names of removed classes since.
    pub(super) async fn made_again(&self, news: &mut News) -> Result<(), FleetError> {
        let gone = news.removed_classes.clone();
        for chunk in gone.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list(classes(" WHERE name IN "), chunk);
            let again = self.classes(select).await?;
            let named: Vec<Arc<str>> = again.iter().map(|row| row.name.clone()).collect();
            news.classes.extend(again);
            if named.is_empty() {
                continue;
            }
            self.resolutions_of(&named, news).await?;
            let select =
                in_list(flows(" WHERE class IN "), &named).push(" ORDER BY class, version");
            news.flows.extend(self.flows(select).await?);
            let select = in_list(rows::ROLLOUTS.select(" WHERE class IN "), &named);
            let select = select.push(" ORDER BY created_ms, id");
            news.rollouts.extend(self.rollouts(select).await?);
        }
        Ok(())
    }
}

/// Deletes all rows of a class; parameters of its flows before these.
const OF_A_CLASS: [&str; 9] = [
    "DELETE FROM parameters WHERE level = 'flow'
     AND owner IN (SELECT id FROM flows WHERE class = ?)",
    "DELETE FROM parameters WHERE level = 'class' AND owner = ?",
    "DELETE FROM class_resources WHERE class = ?",
    "DELETE FROM resource_sets WHERE class = ?",
    "DELETE FROM class_manifests WHERE class = ?",
    "DELETE FROM class_resolutions WHERE class = ?",
    "DELETE FROM rollouts WHERE class = ?",
    "DELETE FROM flows WHERE class = ?",
    "DELETE FROM classes WHERE name = ?",
];
