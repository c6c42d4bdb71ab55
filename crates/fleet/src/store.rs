//! The fleet's tables: agents, classes, manifests, flow versions, operations, and the feed by which
//! nodes learn of each other's changes.
//!
//! Every transaction that writes begins by counting up `feed.seq`, and with that takes the lock
//! on its one row: writers of all nodes queue there, as they do in a SQLite file. So a number is
//! given out in the order of commits, and who has read the feed up to a number has missed nothing
//! below it; what is read after the lock is the newest there is, so two nodes' views of one
//! operation are joined before they are written; and no two transactions wait for each other.
//!
//! Rows of agents and operations carry the number of their last change and the node that made it.
//! Rarer changes stand in `changes` by kind and name. When agents called stands in `sightings`,
//! one packed row for all agents that called since the last one, and in the agents' own rows only
//! now and then.

mod alerts;
mod classes;
mod events;
mod giving;
mod joined;
mod leases;
mod news;
mod places;
mod resolution;
mod rollouts;
mod rows;
mod schema;
mod told;
mod unused;

use std::io::Read;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use flate2::read::GzDecoder;
use sql::{Database, Options, Place, SqlError, Statement, Transaction};

use crate::events::Ages;
use crate::registry::{Batch, Flow, News, PlaceClaim};
use crate::{limits, schemas, sighting};

pub use alerts::{ClaimedAlerts, Noted};
pub use giving::Giving;

/// The schemas that the store itself brings.
pub const SCHEMAS: [sql::Schema; 4] = [
    schema::SCHEMA,
    resolution::SCHEMA,
    told::SCHEMA,
    alerts::SCHEMA,
];

/// The fleet's database, as one node sees it.
#[derive(Clone, Debug)]
pub struct Store {
    database: Database,
    node: i64,
}

/// What a write came to where other nodes had written before.
#[derive(Debug, Default)]
pub struct Written {
    /// Agents and operations as they stand now.
    pub news: News,
    /// Its alerts.
    pub alerts: Noted,
    /// New operations that were not written: another agent is describing the same manifest.
    pub refused: Vec<Arc<str>>,
    /// Places that were not there any more: these operations stand as they did before.
    pub crowded: Vec<PlaceClaim>,
}

impl Store {
    /// Opens the database for the node `node`.
    pub async fn open(place: &Place, node: i64) -> Result<Store, SqlError> {
        let options = Options {
            readers: limits::CONNECTIONS,
            ..Options::default()
        };
        let [first, others @ ..] = &SCHEMAS;
        let database = Database::open(place, options, first).await?;
        for schema in others {
            database.migrate(schema).await?;
        }
        Ok(Store { database, node })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Whether other nodes may use it too.
    pub fn is_shared(&self) -> bool {
        self.database.dialect().is_shared()
    }

    /// Looks whether this binary still fits to what newer ones made of the tables; from then on it
    /// writes nothing.
    pub async fn still_fits(&self) -> Result<(), SqlError> {
        if !self.is_shared() {
            return Ok(());
        }
        self.database.still_fits(&schemas::ALL).await
    }

    /// Waits for what is under way and closes the database.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Writes a batch in one transaction: durable when this returns.
    pub async fn write(
        &self,
        batch: &Batch,
        ages: &Ages,
        now: UnixMillis,
    ) -> Result<Written, SqlError> {
        let (mut tx, seq) = self.begin().await?;
        let mut written = Written::default();
        let mut changes: Vec<(&'static str, Arc<str>)> = Vec::new();
        let classes = batch.classes.iter().map(rows::class).collect();
        tx.insert("write classes", &rows::CLASSES, classes).await?;
        changes.extend(batch.classes.iter().map(|(name, _)| (CLASS, name.clone())));
        for manifest in &batch.manifests {
            let row = vec![rows::manifest(manifest)];
            tx.insert("write the manifest", &rows::MANIFESTS, row)
                .await?;
            changes.push((MANIFEST, manifest.key.clone()));
        }
        let agents = self.joined_agents(&mut tx, batch, &mut written).await?;
        let agents = agents
            .iter()
            .map(|agent| rows::agent(agent, seq, self.node))
            .collect();
        tx.insert("write agents", &rows::AGENTS, agents).await?;
        let operations = self.joined_operations(&mut tx, batch, &mut written).await?;
        let operations = self
            .without_rivals(&mut tx, batch, operations, &mut written, now)
            .await?;
        self.write_operations(&mut tx, seq, batch, operations, &mut written)
            .await?;
        for chunk in batch
            .removed_operations
            .chunks(limits::ROWS_PER_STATEMENT_MAX)
        {
            let delete = Statement::new("DELETE FROM operations WHERE id IN ");
            let delete = delete.list(chunk.iter().map(|id| &**id));
            tx.run("remove operations", &delete).await?;
        }
        if !batch.sightings.is_empty() {
            let body = sighting::pack(&batch.sightings);
            let row = vec![seq.into(), self.node.into(), now.0.into(), body.into()];
            tx.insert("write sightings", &rows::SIGHTINGS, vec![row])
                .await?;
        }
        self.write_seen(&mut tx, &batch.seen).await?;
        changes.extend(batch.seen.iter().map(|(class, _)| (CLASS, class.clone())));
        written.alerts = self.tell(&mut tx, &batch.events, ages).await?;
        self.note(&mut tx, seq, now, &changes).await?;
        tx.commit("commit what agents said").await?;
        Ok(written)
    }

    /// Writes a flow as the next version of its class and, if it `deploys`, as what the class
    /// wants; returns it with that version. Durable when this returns.
    pub async fn publish(
        &self,
        mut flow: Flow,
        text: &Bytes,
        deploys: bool,
    ) -> Result<Flow, SqlError> {
        let what = "publish the flow";
        let (mut tx, seq) = self.begin().await?;
        let newest = Statement::new("SELECT MAX(version) AS version FROM flows WHERE class = ?");
        if let Some(row) = tx.row(what, &newest.bind(&*flow.class)).await? {
            let newest = row.maybe_number("version").map_err(|e| tx.error(what, e))?;
            flow.version = newest.unwrap_or_default() + 1;
        }
        let (class, into) = match deploys {
            true => (rows::wanting_class(&flow), &rows::WANTING_CLASSES),
            false => (
                rows::class(&(flow.class.clone(), flow.created)),
                &rows::CLASSES,
            ),
        };
        tx.insert("write the class", into, vec![class]).await?;
        tx.insert(
            "write the flow",
            &rows::FLOWS,
            vec![rows::flow(&flow, text)],
        )
        .await?;
        let changes = [(FLOW, flow.id.clone()), (CLASS, flow.class.clone())];
        self.note(&mut tx, seq, flow.created, &changes).await?;
        tx.commit("commit the flow").await?;
        Ok(flow)
    }

    /// Removes agents with their operations; durable when this returns. Under a lease it tells
    /// whether its fence still stood there, and removes nothing otherwise.
    pub async fn remove_agents(
        &self,
        ids: &[Arc<str>],
        fence: Option<i64>,
        now: UnixMillis,
    ) -> Result<bool, SqlError> {
        let (mut tx, seq) = self.begin().await?;
        if let Some(fence) = fence
            && !self.holds(&mut tx, fence).await?
        {
            return Ok(false);
        }
        for chunk in ids.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            for table in [
                "DELETE FROM operations WHERE agent_id IN ",
                "DELETE FROM agents WHERE id IN ",
            ] {
                let delete = Statement::new(table).list(chunk.iter().map(|id| &**id));
                tx.run("remove agents", &delete).await?;
            }
        }
        let gone: Vec<(&'static str, Arc<str>)> =
            ids.iter().map(|id| (REMOVED, id.clone())).collect();
        self.note(&mut tx, seq, now, &gone).await?;
        tx.commit("remove agents").await?;
        Ok(true)
    }

    /// Forgets what every node has read long ago.
    pub async fn forget_before(&self, before: UnixMillis) -> Result<(), SqlError> {
        for text in [
            "DELETE FROM changes WHERE at_ms < ?",
            "DELETE FROM sightings WHERE at_ms < ?",
            "DELETE FROM describing WHERE until_ms < ?",
        ] {
            let delete = Statement::new(text).bind(before.0);
            self.database.run("forget old changes", &delete).await?;
        }
        Ok(())
    }

    /// The text of a flow.
    pub async fn flow_text(&self, id: &str) -> Result<Option<Bytes>, SqlError> {
        let select = Statement::new("SELECT content FROM flows WHERE id = ?").bind(id);
        Ok(self.content(select).await?.map(Bytes::from))
    }

    /// The text of a manifest.
    pub async fn manifest_text(&self, hash: &str) -> Result<Option<Bytes>, SqlError> {
        let select = Statement::new("SELECT content FROM manifests WHERE hash = ?").bind(hash);
        let Some(content) = self.content(select).await? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        // What stands there went through the same bound when it came.
        GzDecoder::new(content.as_slice())
            .take(limits::BODY_BYTES_MAX as u64)
            .read_to_end(&mut text)
            .map_err(|e| {
                self.database
                    .error("unpack the manifest", sqlx::Error::Io(e))
            })?;
        Ok(Some(Bytes::from(text)))
    }

    /// Begins a transaction that writes: with the feed's lock and its next number.
    async fn begin(&self) -> Result<(Transaction, i64), SqlError> {
        let what = "take the feed's next number";
        let mut tx = self.database.begin().await?;
        let next = Statement::new("UPDATE feed SET seq = seq + 1 WHERE id = 1");
        tx.run(what, &next).await?;
        let select = Statement::new("SELECT seq FROM feed WHERE id = 1");
        let seq = match tx.row(what, &select).await? {
            Some(row) => row.number("seq").map_err(|e| tx.error(what, e))?,
            None => 0,
        };
        Ok((tx, seq))
    }

    async fn seq(&self) -> Result<i64, SqlError> {
        let what = "read the feed's number";
        let select = Statement::new("SELECT seq FROM feed WHERE id = 1");
        match self.database.row(what, &select).await? {
            Some(row) => row.number("seq").map_err(|e| self.database.error(what, e)),
            None => Ok(0),
        }
    }

    async fn note(
        &self,
        tx: &mut Transaction,
        seq: i64,
        now: UnixMillis,
        changes: &[(&'static str, Arc<str>)],
    ) -> Result<(), SqlError> {
        if !self.is_shared() {
            return Ok(());
        }
        let row = |(kind, item): &(&'static str, Arc<str>)| {
            vec![
                seq.into(),
                (*kind).into(),
                (&**item).into(),
                self.node.into(),
                now.0.into(),
            ]
        };
        tx.insert(
            "note what changed",
            &rows::CHANGES,
            changes.iter().map(row).collect(),
        )
        .await
    }

    async fn content(&self, select: Statement) -> Result<Option<Vec<u8>>, SqlError> {
        let what = "read a text";
        let row = self.database.row(what, &select).await?;
        row.map(|row| {
            row.bytes("content")
                .map_err(|e| self.database.error(what, e))
        })
        .transpose()
    }
}

fn in_list(select: Statement, names: &[Arc<str>]) -> Statement {
    select.list(names.iter().map(|name| &**name))
}

/// Reads classes; `rest` follows the table's name.
fn classes(rest: &str) -> Statement {
    let columns = "name, created_ms, flow_id, rollout_id, description";
    Statement::new(format!("SELECT {columns} FROM classes{rest}"))
}

/// Reads flows without their texts; `rest` follows the table's name.
fn flows(rest: &str) -> Statement {
    let columns = "id, class, version, shape, sha256, bytes, created_ms";
    Statement::new(format!("SELECT {columns} FROM flows{rest}"))
}

// Kinds of changes.
const CLASS: &str = "class";
const FLOW: &str = "flow";
const MANIFEST: &str = "manifest";
const MANIFEST_GONE: &str = "manifest-gone";
const REQUEST: &str = "request";
const ROLLOUT: &str = "rollout";
const REMOVED: &str = "agent-removed";
const ROLLOUT_GONE: &str = "rollout-gone";
const CLASS_GONE: &str = "class-gone";
