//! Classes and manifests that nobody uses, out of the database.

use std::collections::HashSet;
use std::sync::Arc;

use base::UnixMillis;
use sql::{SqlError, Statement, Transaction};

use super::{CLASS_GONE, MANIFEST_GONE, Store, in_list};

impl Store {
    /// Removes those of the manifests that no agent has and no class is held to, and tells which they
    /// are; durable when this returns. Under a lease: only while its fence still stands there.
    pub async fn remove_manifests(
        &self,
        keys: &[Arc<str>],
        fence: Option<i64>,
        now: UnixMillis,
    ) -> Result<Vec<Arc<str>>, SqlError> {
        let what = "remove manifests";
        let (mut tx, seq) = self.begin().await?;
        if let Some(fence) = fence
            && !self.holds(&mut tx, fence).await?
        {
            return Ok(Vec::new());
        }
        let mut used = HashSet::new();
        for text in USE_OF_MANIFESTS {
            used.extend(used_of(&mut tx, what, in_list(Statement::new(text), keys)).await?);
        }
        let gone = without(keys, &used);
        if gone.is_empty() {
            return Ok(gone);
        }
        for text in [
            "DELETE FROM manifests WHERE hash IN ",
            "DELETE FROM class_manifests WHERE hash IN ",
        ] {
            tx.run(what, &in_list(Statement::new(text), &gone)).await?;
        }
        let changes: Vec<_> = gone
            .iter()
            .map(|key| (MANIFEST_GONE, key.clone()))
            .collect();
        self.note(&mut tx, seq, now, &changes).await?;
        tx.commit(what).await?;
        Ok(gone)
    }

    /// Removes those of the classes that appeared by themselves before a time and have nothing at all,
    /// and tells which they are; durable when this returns, and only while the fence stands there.
    pub async fn remove_empty_classes(
        &self,
        names: &[Arc<str>],
        before: UnixMillis,
        fence: i64,
        now: UnixMillis,
    ) -> Result<Vec<Arc<str>>, SqlError> {
        let what = "remove empty classes";
        let (mut tx, seq) = self.begin().await?;
        if !self.holds(&mut tx, fence).await? {
            return Ok(Vec::new());
        }
        // What operators made has a description, an empty one at least.
        let own = Statement::new(
            "SELECT name AS used FROM classes
             WHERE (created_ms > ? OR description IS NOT NULL OR flow_id IS NOT NULL
                    OR rollout_id IS NOT NULL) AND name IN ",
        );
        let own = in_list(own.bind(before.0), names);
        let mut used = used_of(&mut tx, what, own).await?;
        for text in USE_OF_CLASSES {
            used.extend(used_of(&mut tx, what, in_list(Statement::new(text), names)).await?);
        }
        let gone = without(names, &used);
        if gone.is_empty() {
            return Ok(gone);
        }
        for text in [
            "DELETE FROM class_manifests WHERE class IN ",
            "DELETE FROM classes WHERE name IN ",
        ] {
            tx.run(what, &in_list(Statement::new(text), &gone)).await?;
        }
        let changes: Vec<_> = gone.iter().map(|name| (CLASS_GONE, name.clone())).collect();
        self.note(&mut tx, seq, now, &changes).await?;
        tx.commit(what).await?;
        Ok(gone)
    }
}

async fn used_of(
    tx: &mut Transaction,
    what: &'static str,
    select: Statement,
) -> Result<HashSet<String>, SqlError> {
    let rows = tx.rows(what, &select).await?;
    let names: Result<_, sqlx::Error> = rows.iter().map(|row| row.text("used")).collect();
    names.map_err(|error| tx.error(what, error))
}

fn without(names: &[Arc<str>], used: &HashSet<String>) -> Vec<Arc<str>> {
    let unused = names.iter().filter(|name| !used.contains(&***name));
    unused.cloned().collect()
}

const USE_OF_MANIFESTS: [&str; 2] = [
    "SELECT DISTINCT manifest_hash AS used FROM agents WHERE manifest_hash IN ",
    "SELECT DISTINCT hash AS used FROM class_resolutions WHERE hash IN ",
];

const USE_OF_CLASSES: [&str; 8] = [
    "SELECT DISTINCT class AS used FROM agents WHERE class IN ",
    "SELECT DISTINCT given_class AS used FROM agents WHERE given_class IN ",
    "SELECT DISTINCT class AS used FROM flows WHERE class IN ",
    "SELECT DISTINCT class AS used FROM rollouts WHERE class IN ",
    "SELECT class AS used FROM resource_sets WHERE class IN ",
    "SELECT DISTINCT class AS used FROM class_resources WHERE class IN ",
    "SELECT class AS used FROM class_resolutions WHERE class IN ",
    "SELECT DISTINCT owner AS used FROM parameters WHERE level = 'class' AND owner IN ",
];
