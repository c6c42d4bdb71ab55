//! What a node reads of the database: everything at its start, and then what other nodes changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use sql::{Insert, Statement};

use super::{
    CLASS, CLASS_GONE, FLOW, MANIFEST, MANIFEST_GONE, REMOVED, REQUEST, ROLLOUT, ROLLOUT_GONE,
    Store, classes, flows, in_list, resolution, rows,
};
use crate::agent::Agent;
use crate::error::FleetError;
use crate::limits;
use crate::operation::FleetOperation;
use crate::registry::{ClassRow, Flow, News};
use crate::rollout::Rollout;
use crate::sighting::{self, Sighting};

impl Store {
    /// Everything but texts, as news; the feed goes on from its number.
    pub async fn everything(&self) -> Result<News, FleetError> {
        let seq = self.seq().await?;
        let whole = |table: &Insert| table.select("");
        let in_order = |table: &Insert| table.select(" ORDER BY created_ms, id");
        Ok(News {
            seq,
            flows: self.flows(flows(" ORDER BY class, version")).await?,
            rollouts: self.rollouts(in_order(&rows::ROLLOUTS)).await?,
            classes: self.classes(classes("")).await?,
            seen: self.seen(whole(&resolution::CLASS_MANIFESTS)).await?,
            resolutions: self
                .resolutions(whole(&resolution::CLASS_RESOLUTIONS))
                .await?,
            manifests: self
                .manifests(Statement::new("SELECT hash, head FROM manifests"))
                .await?,
            agents: self.agents(rows::agents("")).await?,
            operations: self.operations(in_order(&rows::OPERATIONS)).await?,
            sightings: self
                .sightings(Statement::new("SELECT body FROM sightings ORDER BY seq"))
                .await?,
            ..News::default()
        })
    }

    /// What other nodes changed after the number `since`; none while nobody changed anything.
    pub async fn news(&self, since: i64) -> Result<Option<News>, FleetError> {
        let seq = self.seq().await?;
        if seq <= since {
            return Ok(None);
        }
        let window = |select: Statement| {
            let select = select.push(" WHERE seq > ? AND seq <= ? AND node <> ? ORDER BY seq");
            select.bind(since).bind(seq).bind(self.node)
        };
        let what = "read what other nodes changed";
        let mut by_kind: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        let changes = window(Statement::new("SELECT seq, kind, item FROM changes"));
        for row in self.database.rows(what, &changes).await? {
            let read = || Ok((row.text("kind")?, row.text("item")?));
            let (kind, item) = read().map_err(|e| self.database.error(what, e))?;
            by_kind.entry(kind).or_default().push(Arc::from(item));
        }
        let mut news = News {
            seq,
            removed: by_kind.remove(REMOVED).unwrap_or_default(),
            removed_rollouts: by_kind.remove(ROLLOUT_GONE).unwrap_or_default(),
            removed_classes: by_kind.remove(CLASS_GONE).unwrap_or_default(),
            removed_manifests: by_kind.remove(MANIFEST_GONE).unwrap_or_default(),
            requests: by_kind.remove(REQUEST).unwrap_or_default(),
            ..News::default()
        };
        self.made_again(&mut news).await?;
        let named = |kind: &str| by_kind.get(kind).cloned().unwrap_or_default();
        for chunk in named(CLASS).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list(classes(" WHERE name IN "), chunk);
            news.classes.extend(self.classes(select).await?);
            self.resolutions_of(chunk, &mut news).await?;
        }
        for chunk in named(ROLLOUT).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list(rows::ROLLOUTS.select(" WHERE id IN "), chunk);
            let select = select.push(" ORDER BY created_ms, id");
            news.rollouts.extend(self.rollouts(select).await?);
        }
        for chunk in named(FLOW).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list(flows(" WHERE id IN "), chunk).push(" ORDER BY class, version");
            news.flows.extend(self.flows(select).await?);
        }
        for chunk in named(MANIFEST).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = Statement::new("SELECT hash, head FROM manifests WHERE hash IN ");
            let select = in_list(select, chunk);
            news.manifests.extend(self.manifests(select).await?);
        }
        news.agents = self.agents(window(rows::agents(""))).await?;
        news.operations = self.operations(window(rows::OPERATIONS.select(""))).await?;
        news.sightings = self
            .sightings(window(Statement::new("SELECT seq, body FROM sightings")))
            .await?;
        Ok(Some(news))
    }

    /// An operation that this node has not heard of yet, with its agent.
    pub async fn operation(&self, id: &str) -> Result<News, FleetError> {
        let select = rows::OPERATIONS.select(" WHERE id = ?").bind(id);
        let operations = self.operations(select).await?;
        let Some((owner, _)) = operations.first() else {
            return Ok(News::default());
        };
        let select = rows::agents(" WHERE id = ?").bind(&**owner);
        Ok(News {
            agents: self.agents(select).await?,
            operations,
            ..News::default()
        })
    }

    pub(super) async fn classes(&self, select: Statement) -> Result<Vec<ClassRow>, FleetError> {
        self.read(select, rows::read_class).await
    }

    pub(super) async fn rollouts(&self, select: Statement) -> Result<Vec<Rollout>, FleetError> {
        self.read(select, rows::read_rollout).await
    }

    pub(super) async fn flows(&self, select: Statement) -> Result<Vec<Flow>, FleetError> {
        self.read(select, rows::read_flow).await
    }

    pub(super) async fn manifests(
        &self,
        select: Statement,
    ) -> Result<Vec<(Arc<str>, Arc<c2::AgentManifest>)>, FleetError> {
        self.read(select, rows::read_manifest).await
    }

    pub(super) async fn agents(&self, select: Statement) -> Result<Vec<Agent>, FleetError> {
        self.read(select, rows::read_agent).await
    }

    pub(super) async fn operations(
        &self,
        select: Statement,
    ) -> Result<Vec<(Arc<str>, FleetOperation)>, FleetError> {
        self.read(select, rows::read_operation).await
    }

    pub(super) async fn sightings(&self, select: Statement) -> Result<Vec<Sighting>, FleetError> {
        let bodies = self.read(select, |row| row.bytes("body")).await?;
        Ok(bodies
            .iter()
            .flat_map(|body| sighting::unpack(body))
            .collect())
    }

    pub(super) async fn read<T>(
        &self,
        select: Statement,
        read: fn(&sql::Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, FleetError> {
        let what = "read the fleet's tables";
        let rows = self.database.rows(what, &select).await?;
        let values: Result<Vec<T>, sqlx::Error> = rows.iter().map(read).collect();
        Ok(values.map_err(|e| self.database.error(what, e))?)
    }
}
