//! Which manifests a class's agents had, and how the class's own is found, in the database.

use std::collections::HashSet;
use std::sync::Arc;

use base::UnixMillis;
use sql::{Conflict, Insert, Migration, Row, Schema, SqlError, Statement, Transaction};

use super::{CLASS, Store, in_list};
use crate::error::FleetError;
use crate::registry::{News, Resolution, SeenManifest};

impl Store {
    /// Writes which manifests classes' agents came with.
    pub(super) async fn write_seen(
        &self,
        tx: &mut Transaction,
        seen: &[(Arc<str>, SeenManifest)],
    ) -> Result<(), SqlError> {
        let (mut rows, mut named) = (Vec::new(), HashSet::new());
        // One statement may not name a row twice: the last word counts.
        for (class, seen) in seen.iter().rev() {
            if named.insert((class, &seen.hash)) {
                rows.push(vec![
                    (&**class).into(),
                    (&*seen.hash).into(),
                    seen.first.0.into(),
                    seen.last.0.into(),
                ]);
            }
        }
        tx.insert("write classes' manifests", &CLASS_MANIFESTS, rows)
            .await
    }

    /// Writes how a class's manifest is found; none: by the general rule. Durable when this
    /// returns.
    pub async fn set_resolution(
        &self,
        class: &str,
        resolution: Option<&Resolution>,
        now: UnixMillis,
    ) -> Result<(), SqlError> {
        let what = "write how a class's manifest is found";
        let (mut tx, seq) = self.begin().await?;
        let remove = Statement::new("DELETE FROM class_resolutions WHERE class = ?");
        tx.run(what, &remove.bind(class)).await?;
        if let Some(resolution) = resolution {
            let (word, hash) = resolution.parts();
            let row = vec![
                class.into(),
                word.into(),
                hash.map_or("", |hash| &**hash).into(),
                now.0.into(),
            ];
            tx.insert(what, &CLASS_RESOLUTIONS, vec![row]).await?;
        }
        self.note(&mut tx, seq, now, &[(CLASS, Arc::from(class))])
            .await?;
        tx.commit(what).await
    }

    /// Reads both of these classes; a class without a way of its own has none.
    pub(super) async fn resolutions_of(
        &self,
        classes: &[Arc<str>],
        news: &mut News,
    ) -> Result<(), FleetError> {
        let select = in_list(CLASS_MANIFESTS.select(OF_CLASSES), classes);
        news.seen.extend(self.seen(select).await?);
        let select = in_list(CLASS_RESOLUTIONS.select(OF_CLASSES), classes);
        let own = self.resolutions(select).await?;
        let without = classes.iter().map(|class| (class.clone(), None));
        news.resolutions.extend(without);
        news.resolutions.extend(own);
        Ok(())
    }

    pub(super) async fn seen(
        &self,
        select: Statement,
    ) -> Result<Vec<(Arc<str>, SeenManifest)>, FleetError> {
        self.read(select, |row: &Row| {
            let seen = SeenManifest {
                hash: Arc::from(row.text("hash")?),
                first: UnixMillis(row.number("first_ms")?),
                last: UnixMillis(row.number("last_ms")?),
            };
            Ok((Arc::from(row.text("class")?), seen))
        })
        .await
    }

    pub(super) async fn resolutions(
        &self,
        select: Statement,
    ) -> Result<Vec<(Arc<str>, Option<Resolution>)>, FleetError> {
        self.read(select, |row: &Row| {
            let (word, hash) = (row.text("resolution")?, row.text("hash")?);
            let hash = (!hash.is_empty()).then_some(&*hash);
            // A word of a later version is the general rule here.
            Ok((
                Arc::from(row.text("class")?),
                Resolution::of_parts(&word, hash),
            ))
        })
        .await
    }
}

const OF_CLASSES: &str = " WHERE class IN ";

pub const CLASS_MANIFESTS: Insert = Insert {
    table: "class_manifests",
    columns: &["class", "hash", "first_ms", "last_ms"],
    conflict: Conflict::Replace {
        key: &["class", "hash"],
        columns: &["last_ms"],
    },
};

pub const CLASS_RESOLUTIONS: Insert = Insert {
    table: "class_resolutions",
    columns: &["class", "resolution", "hash", "changed_ms"],
    conflict: Conflict::Fail,
};

pub const SCHEMA: Schema = Schema {
    name: "fleet_manifests",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "classes' manifests",
        text: FIRST,
    }],
};

const FIRST: &str = "
CREATE TABLE class_manifests (
    class VARCHAR(255) NOT NULL,
    hash VARCHAR(255) NOT NULL,
    first_ms BIGINT NOT NULL,
    last_ms BIGINT NOT NULL,
    PRIMARY KEY (class, hash)
);
CREATE TABLE class_resolutions (
    class VARCHAR(255) NOT NULL PRIMARY KEY,
    resolution VARCHAR(16) NOT NULL,
    hash VARCHAR(255) NOT NULL,
    changed_ms BIGINT NOT NULL
);
";
