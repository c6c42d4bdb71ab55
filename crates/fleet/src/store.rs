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

mod events;
mod resolution;
mod rows;
mod schema;
mod told;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use flate2::read::GzDecoder;
use sql::{Database, Options, Place, SqlError, Statement, Transaction};

use crate::agent::Agent;
use crate::error::FleetError;
use crate::events::Once;
use crate::limits;
use crate::manifest::NewManifest;
use crate::operation::FleetOperation;
use crate::registry::{Batch, ClassRow, Flow, News};
use crate::rollout::{Rollout, RolloutState};
use crate::sighting::{self, Sighting};

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
    /// What another node, or this one before it was started, has told already.
    pub told: HashSet<Once>,
    /// New operations that were not written: another agent is describing the same manifest.
    pub refused: Vec<Arc<str>>,
}

impl Store {
    /// Opens the database for the node `node`.
    pub async fn open(place: &Place, node: i64) -> Result<Store, SqlError> {
        let options = Options {
            readers: limits::CONNECTIONS,
            ..Options::default()
        };
        let database = Database::open(place, options, &schema::SCHEMA).await?;
        database.migrate(&resolution::SCHEMA).await?;
        database.migrate(&told::SCHEMA).await?;
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

    /// Waits for what is under way and closes the database.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Everything but texts, as news; the feed goes on from its number.
    pub async fn everything(&self) -> Result<News, FleetError> {
        let seq = self.seq().await?;
        let flows = format!("SELECT {FLOW_COLUMNS} FROM flows ORDER BY class, version");
        let all = |text: &str| Statement::new(text);
        Ok(News {
            seq,
            flows: self.flows(all(&flows)).await?,
            rollouts: self
                .rollouts(all("SELECT * FROM rollouts ORDER BY created_ms, id"))
                .await?,
            classes: self.classes(all("SELECT * FROM classes")).await?,
            seen: self.seen(all(resolution::SEEN)).await?,
            resolutions: self.resolutions(all(resolution::OWN)).await?,
            manifests: self
                .manifests(all("SELECT hash, head FROM manifests"))
                .await?,
            agents: self.agents(all("SELECT * FROM agents")).await?,
            operations: self
                .operations(all("SELECT * FROM operations ORDER BY created_ms, id"))
                .await?,
            sightings: self
                .sightings(all("SELECT body FROM sightings ORDER BY seq"))
                .await?,
            removed: Vec::new(),
            removed_rollouts: Vec::new(),
        })
    }

    /// Writes a batch in one transaction: durable when this returns.
    pub async fn write(&self, batch: &Batch, now: UnixMillis) -> Result<Written, SqlError> {
        let (mut tx, seq) = self.begin().await?;
        let mut written = Written::default();
        let mut changes: Vec<(&'static str, Arc<str>)> = Vec::new();
        let classes = batch.classes.iter().map(rows::class).collect();
        tx.insert("write classes", &rows::CLASSES, classes).await?;
        changes.extend(batch.classes.iter().map(|(name, _)| (CLASS, name.clone())));
        for manifest in &batch.manifests {
            self.write_manifest(&mut tx, manifest).await?;
            changes.push((MANIFEST, manifest.hash.clone()));
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
        let row = |(agent, operation): &(Arc<str>, FleetOperation)| {
            rows::operation(agent, operation, seq, self.node)
        };
        let operations = operations.iter().map(row).collect();
        tx.insert("write operations", &rows::OPERATIONS, operations)
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
        written.told = self.note_told(&mut tx, &batch.told).await?;
        self.write_events(&mut tx, &batch.events, &written.told)
            .await?;
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

    /// Writes a new roll-out, which decides for its class from now on.
    pub async fn begin_rollout(&self, rollout: &Rollout) -> Result<(), SqlError> {
        let what = "begin a roll-out";
        let (mut tx, seq) = self.begin().await?;
        tx.insert(what, &rows::ROLLOUTS, vec![rows::rollout(rollout)])
            .await?;
        let class = Statement::new("UPDATE classes SET rollout_id = ? WHERE name = ?");
        let class = class.bind(&*rollout.id).bind(&*rollout.class);
        tx.run(what, &class).await?;
        self.note_rollout(tx, seq, rollout, rollout.created).await
    }

    /// Writes a roll-out's next state, unless another node changed it meanwhile; one that is done
    /// or rolled back decides no longer, and its class wants one flow again.
    pub async fn change_rollout(
        &self,
        rollout: &Rollout,
        now: UnixMillis,
    ) -> Result<bool, SqlError> {
        let what = "change a roll-out";
        let (mut tx, seq) = self.begin().await?;
        let change = Statement::new(
            "UPDATE rollouts SET state = ?, reach = ?, reached_ms = ?, failures_percent = ?,
             reason = ?, version = ? WHERE id = ? AND version = ?",
        );
        let change = change
            .bind(rollout.state.as_str())
            .bind(rollout.reach.cast_signed())
            .bind(rollout.reached.0)
            .bind(i64::from(rollout.plan.failures_percent))
            .bind(rollout.reason.as_str())
            .bind(rollout.version)
            .bind(&*rollout.id)
            .bind(rollout.version - 1);
        if tx.run(what, &change).await? == 0 {
            return Ok(false);
        }
        let flow = match rollout.state {
            RolloutState::Done => Some(Some(&*rollout.flow)),
            RolloutState::RolledBack => Some(rollout.previous.as_deref()),
            _ => None,
        };
        if let Some(flow) = flow {
            let class = Statement::new(
                "UPDATE classes SET flow_id = ?, rollout_id = NULL
                 WHERE name = ? AND rollout_id = ?",
            );
            let class = class.bind(flow).bind(&*rollout.class).bind(&*rollout.id);
            tx.run(what, &class).await?;
        }
        self.note_rollout(tx, seq, rollout, now).await?;
        Ok(true)
    }

    async fn note_rollout(
        &self,
        mut tx: Transaction,
        seq: i64,
        rollout: &Rollout,
        now: UnixMillis,
    ) -> Result<(), SqlError> {
        let changes = [
            (ROLLOUT, rollout.id.clone()),
            (CLASS, rollout.class.clone()),
        ];
        self.note(&mut tx, seq, now, &changes).await?;
        tx.commit("commit a roll-out").await
    }

    /// Removes roll-outs that are over; durable when this returns. Nothing is removed unless the
    /// lease's fence still stands there.
    pub async fn remove_rollouts(
        &self,
        ids: &[Arc<str>],
        fence: i64,
        now: UnixMillis,
    ) -> Result<bool, SqlError> {
        let (mut tx, seq) = self.begin().await?;
        if !self.holds(&mut tx, fence).await? {
            return Ok(false);
        }
        for chunk in ids.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let delete = Statement::new("DELETE FROM rollouts WHERE id IN ");
            let delete = delete.list(chunk.iter().map(|id| &**id));
            tx.run("remove roll-outs", &delete).await?;
        }
        let gone: Vec<(&'static str, Arc<str>)> =
            ids.iter().map(|id| (ROLLOUT_GONE, id.clone())).collect();
        self.note(&mut tx, seq, now, &gone).await?;
        tx.commit("remove roll-outs").await?;
        Ok(true)
    }

    /// Whether this node's lease still has this fence.
    async fn holds(&self, tx: &mut Transaction, fence: i64) -> Result<bool, SqlError> {
        if !self.is_shared() {
            return Ok(true);
        }
        let held = Statement::new("SELECT name FROM leases WHERE holder = ? AND fence = ?");
        let held = held.bind(self.node).bind(fence);
        let row = tx.row("see that the lease holds", &held).await?;
        Ok(row.is_some())
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

    /// What other nodes changed after the number `since`; none while nobody changed anything.
    pub async fn news(&self, since: i64) -> Result<Option<News>, FleetError> {
        let seq = self.seq().await?;
        if seq <= since {
            return Ok(None);
        }
        let window = |text: &str| {
            let text = format!("{text} WHERE seq > ? AND seq <= ? AND node <> ? ORDER BY seq");
            Statement::new(text).bind(since).bind(seq).bind(self.node)
        };
        let what = "read what other nodes changed";
        let mut by_kind: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        let changes = window("SELECT seq, kind, item FROM changes");
        for row in self.database.rows(what, &changes).await? {
            let read = || Ok((row.text("kind")?, row.text("item")?));
            let (kind, item) = read().map_err(|e| self.database.error(what, e))?;
            by_kind.entry(kind).or_default().push(Arc::from(item));
        }
        let mut news = News {
            seq,
            removed: by_kind.remove(REMOVED).unwrap_or_default(),
            removed_rollouts: by_kind.remove(ROLLOUT_GONE).unwrap_or_default(),
            ..News::default()
        };
        let named = |kind: &str| by_kind.get(kind).cloned().unwrap_or_default();
        for chunk in named(CLASS).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list("SELECT * FROM classes WHERE name IN ", chunk);
            news.classes.extend(self.classes(select).await?);
            self.resolutions_of(chunk, &mut news).await?;
        }
        for chunk in named(ROLLOUT).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list("SELECT * FROM rollouts WHERE id IN ", chunk);
            let select = select.push(" ORDER BY created_ms, id");
            news.rollouts.extend(self.rollouts(select).await?);
        }
        for chunk in named(FLOW).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = format!("SELECT {FLOW_COLUMNS} FROM flows WHERE id IN ");
            let select = in_list(&select, chunk).push(" ORDER BY class, version");
            news.flows.extend(self.flows(select).await?);
        }
        for chunk in named(MANIFEST).chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let select = in_list("SELECT hash, head FROM manifests WHERE hash IN ", chunk);
            news.manifests.extend(self.manifests(select).await?);
        }
        news.agents = self.agents(window("SELECT * FROM agents")).await?;
        news.operations = self.operations(window("SELECT * FROM operations")).await?;
        news.sightings = self
            .sightings(window("SELECT seq, body FROM sightings"))
            .await?;
        Ok(Some(news))
    }

    /// An operation that this node has not heard of yet, with its agent.
    pub async fn operation(&self, id: &str) -> Result<News, FleetError> {
        let select = Statement::new("SELECT * FROM operations WHERE id = ?").bind(id);
        let operations = self.operations(select).await?;
        let Some((owner, _)) = operations.first() else {
            return Ok(News::default());
        };
        let select = Statement::new("SELECT * FROM agents WHERE id = ?").bind(&**owner);
        Ok(News {
            agents: self.agents(select).await?,
            operations,
            ..News::default()
        })
    }

    /// Asks for a lease, or renews it: the fence if this node holds it now.
    pub async fn lease(&self, name: &str, wait: Duration) -> Result<Option<i64>, SqlError> {
        if !self.is_shared() {
            return Ok(Some(0));
        }
        let what = "ask for a lease";
        let now = self.database.now_ms().await?;
        let until = now + i64::try_from(wait.as_millis()).unwrap_or(i64::MAX / 2);
        let mut tx = self.database.begin().await?;
        let first = vec![name.into(), self.node.into(), 1_i64.into(), until.into()];
        tx.insert(what, &rows::LEASES, vec![first]).await?;
        let renew = Statement::new("UPDATE leases SET until_ms = ? WHERE name = ? AND holder = ?");
        let renew = renew.bind(until).bind(name).bind(self.node);
        if tx.run(what, &renew).await? == 0 {
            let take = Statement::new(
                "UPDATE leases SET holder = ?, fence = fence + 1, until_ms = ?
                 WHERE name = ? AND until_ms < ?",
            );
            let take = take.bind(self.node).bind(until).bind(name).bind(now);
            tx.run(what, &take).await?;
        }
        let select = Statement::new("SELECT fence FROM leases WHERE name = ? AND holder = ?");
        let held = tx.row(what, &select.bind(name).bind(self.node)).await?;
        let fence = held.map(|row| row.number("fence")).transpose();
        let fence = fence.map_err(|e| tx.error(what, e))?;
        tx.commit(what).await?;
        Ok(fence)
    }

    /// Lets the next node have the lease at once.
    pub async fn give_back(&self, name: &str) -> Result<(), SqlError> {
        let give = Statement::new("UPDATE leases SET until_ms = 0 WHERE name = ? AND holder = ?");
        let give = give.bind(name).bind(self.node);
        self.database.run("give a lease back", &give).await?;
        Ok(())
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

    /// The batch's agents, each joined with what another node wrote of it.
    async fn joined_agents(
        &self,
        tx: &mut Transaction,
        batch: &Batch,
        written: &mut Written,
    ) -> Result<Vec<Agent>, SqlError> {
        let mut agents = batch.agents.clone();
        if !self.is_shared() {
            return Ok(agents);
        }
        for chunk in agents.chunks_mut(limits::ROWS_PER_STATEMENT_MAX) {
            let select = Statement::new("SELECT * FROM agents WHERE id IN ");
            let select = select.list(chunk.iter().map(|agent| &*agent.id));
            let mut stored = HashMap::new();
            for row in tx.rows("read agents", &select).await? {
                let agent = rows::read_agent(&row).map_err(|e| tx.error("read an agent", e))?;
                stored.insert(agent.id.clone(), agent);
            }
            for agent in chunk {
                if let Some(stored) = stored.remove(&agent.id) {
                    // The registry's own joining tells of it.
                    let _ = agent.join(&stored);
                    written.news.agents.push(agent.clone());
                }
            }
        }
        Ok(agents)
    }

    /// The batch's operations, each joined with what another node wrote of it.
    async fn joined_operations(
        &self,
        tx: &mut Transaction,
        batch: &Batch,
        written: &mut Written,
    ) -> Result<Vec<(Arc<str>, FleetOperation)>, SqlError> {
        let mut operations = batch.operations.clone();
        if !self.is_shared() {
            return Ok(operations);
        }
        for chunk in operations.chunks_mut(limits::ROWS_PER_STATEMENT_MAX) {
            let select = Statement::new("SELECT * FROM operations WHERE id IN ");
            let select = select.list(chunk.iter().map(|(_, op)| &*op.id));
            let mut stored = HashMap::new();
            for row in tx.rows("read operations", &select).await? {
                let (_, operation) =
                    rows::read_operation(&row).map_err(|e| tx.error("read an operation", e))?;
                stored.insert(operation.id.clone(), operation);
            }
            for (agent, operation) in chunk {
                if let Some(stored) = stored.remove(&operation.id) {
                    operation.join(&stored);
                    let news = (agent.clone(), operation.clone());
                    written.news.operations.push(news);
                }
            }
        }
        Ok(operations)
    }

    /// Leaves out new descriptions of manifests that another agent is describing already, on
    /// whatever node, or that are known meanwhile.
    async fn without_rivals(
        &self,
        tx: &mut Transaction,
        batch: &Batch,
        mut operations: Vec<(Arc<str>, FleetOperation)>,
        written: &mut Written,
        now: UnixMillis,
    ) -> Result<Vec<(Arc<str>, FleetOperation)>, SqlError> {
        if !self.is_shared() {
            return Ok(operations);
        }
        let what = "see who describes a manifest";
        for claim in &batch.claims {
            let known = Statement::new("SELECT hash FROM manifests WHERE hash = ?");
            let known = tx.row(what, &known.bind(&*claim.hash)).await?.is_some();
            let rival = Statement::new(
                "SELECT operation_id FROM describing
                 WHERE hash = ? AND operation_id <> ? AND until_ms > ?",
            );
            let rival = rival.bind(&*claim.hash).bind(&*claim.operation).bind(now.0);
            if known || tx.row(what, &rival).await?.is_some() {
                operations.retain(|(_, operation)| operation.id != claim.operation);
                written.refused.push(claim.operation.clone());
                continue;
            }
            let row = vec![
                (&*claim.hash).into(),
                (&*claim.operation).into(),
                claim.until.0.into(),
            ];
            tx.insert("claim a manifest", &rows::DESCRIBING, vec![row])
                .await?;
        }
        Ok(operations)
    }

    async fn write_manifest(
        &self,
        tx: &mut Transaction,
        manifest: &NewManifest,
    ) -> Result<(), SqlError> {
        tx.insert(
            "write the manifest",
            &rows::MANIFESTS,
            vec![rows::manifest(manifest)],
        )
        .await?;
        let done = Statement::new("DELETE FROM describing WHERE hash = ?");
        tx.run("note that a manifest is known", &done.bind(&*manifest.hash))
            .await?;
        Ok(())
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

    async fn classes(&self, select: Statement) -> Result<Vec<ClassRow>, FleetError> {
        self.read(select, rows::read_class).await
    }

    async fn rollouts(&self, select: Statement) -> Result<Vec<Rollout>, FleetError> {
        self.read(select, rows::read_rollout).await
    }

    async fn flows(&self, select: Statement) -> Result<Vec<Flow>, FleetError> {
        self.read(select, rows::read_flow).await
    }

    async fn manifests(
        &self,
        select: Statement,
    ) -> Result<Vec<(Arc<str>, Arc<c2::AgentManifest>)>, FleetError> {
        self.read(select, rows::read_manifest).await
    }

    async fn agents(&self, select: Statement) -> Result<Vec<Agent>, FleetError> {
        self.read(select, rows::read_agent).await
    }

    async fn operations(
        &self,
        select: Statement,
    ) -> Result<Vec<(Arc<str>, FleetOperation)>, FleetError> {
        self.read(select, rows::read_operation).await
    }

    async fn sightings(&self, select: Statement) -> Result<Vec<Sighting>, FleetError> {
        let bodies = self.read(select, |row| row.bytes("body")).await?;
        Ok(bodies
            .iter()
            .flat_map(|body| sighting::unpack(body))
            .collect())
    }

    async fn read<T>(
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

fn in_list(text: &str, names: &[Arc<str>]) -> Statement {
    Statement::new(text).list(names.iter().map(|name| &**name))
}

const FLOW_COLUMNS: &str = "id, class, version, shape, sha256, bytes, created_ms";

// Kinds of changes.
const CLASS: &str = "class";
const FLOW: &str = "flow";
const MANIFEST: &str = "manifest";
const ROLLOUT: &str = "rollout";
const REMOVED: &str = "agent-removed";
const ROLLOUT_GONE: &str = "rollout-gone";
