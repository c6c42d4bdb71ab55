//! The fleet's tables: agents, classes, manifests, flow versions, operations.
//!
//! Statements keep to what SQLite, PostgreSQL and MySQL share, but for `ON CONFLICT`, which a
//! second dialect will spell in its own way.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use c2::{AgentManifest, Operand, OperationKind, RawJson};
use flate2::read::GzDecoder;
use sql::{Database, Migration, Options, Schema, SqlError, Transaction};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::agent::Agent;
use crate::error::FleetError;
use crate::flow::FlowShape;
use crate::limits;
use crate::manifest::NewManifest;
use crate::operation::FleetOperation;
use crate::registry::{Batch, Class, Flow, Registry};

/// The fleet's database.
#[derive(Clone, Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the database at `path`.
    pub async fn open(path: &Path) -> Result<Store, SqlError> {
        Ok(Store {
            database: Database::open(path, Options::default(), &SCHEMA).await?,
        })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Waits for what is under way and closes the database.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Reads everything but texts back into memory.
    pub async fn load(&self) -> Result<Registry, FleetError> {
        let mut registry = Registry::default();
        for row in self
            .rows("SELECT name, created_ms, flow_id FROM classes")
            .await?
        {
            let name: Arc<str> = Arc::from(self.text(&row, "name")?);
            let created = UnixMillis(self.number(&row, "created_ms")?);
            registry.classes.insert(
                name,
                Class {
                    created,
                    flows: Vec::new(),
                    desired: None,
                },
            );
        }
        let flows = "SELECT id, class, version, shape, sha256, bytes, created_ms FROM flows
                     ORDER BY class, version";
        for row in self.rows(flows).await? {
            // Versions come in order, so the last one of a class is what it wants.
            registry.publish(self.flow(&row)?);
        }
        for row in self.rows("SELECT hash, head FROM manifests").await? {
            let text = self.text(&row, "head")?;
            let bad = || FleetError::BadRow {
                what: "manifest",
                value: text.clone(),
            };
            let raw = RawJson::parse(text.clone()).map_err(|_| bad())?;
            let head = AgentManifest::parse(&raw).map_err(|_| bad())?;
            registry
                .manifests
                .insert(Arc::from(self.text(&row, "hash")?), Arc::new(head));
        }
        let mut operations: HashMap<String, Vec<FleetOperation>> = HashMap::new();
        for row in self
            .rows("SELECT * FROM operations ORDER BY created_ms, id")
            .await?
        {
            let owner = self.text(&row, "agent_id")?;
            operations
                .entry(owner)
                .or_default()
                .push(self.operation(&row)?);
        }
        for row in self.rows("SELECT * FROM agents").await? {
            let mut agent = self.agent(&row)?;
            agent
                .operations
                .extend(operations.remove(&*agent.id).unwrap_or_default());
            registry.restore(agent);
        }
        Ok(registry)
    }

    /// Writes a batch in one transaction: durable when this returns.
    pub async fn write(&self, batch: &Batch) -> Result<(), SqlError> {
        let mut tx = self.database.begin().await?;
        for chunk in batch.classes.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let mut query = QueryBuilder::new("INSERT INTO classes (name, created_ms) ");
            query.push_values(chunk, |mut row, (name, created)| {
                row.push_bind(name.to_string()).push_bind(created.0);
            });
            query.push(" ON CONFLICT (name) DO NOTHING");
            self.run(&mut tx, query, "write classes").await?;
        }
        for manifest in &batch.manifests {
            self.write_manifest(&mut tx, manifest).await?;
        }
        for chunk in batch.agents.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            self.run(&mut tx, agents_query(chunk), "write agents")
                .await?;
        }
        for chunk in batch.operations.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            self.run(&mut tx, operations_query(chunk), "write operations")
                .await?;
        }
        for chunk in batch
            .removed_operations
            .chunks(limits::ROWS_PER_STATEMENT_MAX)
        {
            let mut query = QueryBuilder::new("DELETE FROM operations WHERE id IN (");
            let mut ids = query.separated(", ");
            for id in chunk {
                ids.push_bind(id.to_string());
            }
            query.push(")");
            self.run(&mut tx, query, "remove operations").await?;
        }
        self.database.commit(tx, "commit what agents said").await
    }

    /// Writes a flow version as what its class wants: durable when this returns.
    pub async fn publish(&self, flow: &Flow, text: &Bytes) -> Result<(), SqlError> {
        let mut tx = self.database.begin().await?;
        let class = "INSERT INTO classes (name, created_ms, flow_id) VALUES (?, ?, ?)
                     ON CONFLICT (name) DO UPDATE SET flow_id = excluded.flow_id";
        sqlx::query(class)
            .bind(flow.class.to_string())
            .bind(flow.created.0)
            .bind(flow.id.to_string())
            .execute(&mut *tx)
            .await
            .map_err(|e| self.database.error("write the class", e))?;
        let insert = "INSERT INTO flows
            (id, class, version, shape, sha256, bytes, created_ms, content)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        sqlx::query(insert)
            .bind(flow.id.to_string())
            .bind(flow.class.to_string())
            .bind(flow.version)
            .bind(flow.shape.as_str())
            .bind(&flow.sha256)
            .bind(flow.bytes)
            .bind(flow.created.0)
            .bind(text.as_ref())
            .execute(&mut *tx)
            .await
            .map_err(|e| self.database.error("write the flow", e))?;
        self.database.commit(tx, "commit the flow").await
    }

    /// The text of a flow.
    pub async fn flow_text(&self, id: &str) -> Result<Option<Bytes>, SqlError> {
        let content = self
            .blob("SELECT content FROM flows WHERE id = ?", id)
            .await?;
        Ok(content.map(Bytes::from))
    }

    /// The text of a manifest.
    pub async fn manifest_text(&self, hash: &str) -> Result<Option<Bytes>, SqlError> {
        let Some(content) = self
            .blob("SELECT content FROM manifests WHERE hash = ?", hash)
            .await?
        else {
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

    async fn write_manifest(
        &self,
        tx: &mut Transaction,
        manifest: &NewManifest,
    ) -> Result<(), SqlError> {
        let head = RawJson::of(&*manifest.head).map(|head| head.as_str().to_owned());
        let insert = "INSERT INTO manifests
            (hash, agent_type, version, bytes, head, content) VALUES (?, ?, ?, ?, ?, ?)
            ON CONFLICT (hash) DO NOTHING";
        sqlx::query(insert)
            .bind(manifest.hash.to_string())
            .bind(manifest.head.agent_type.clone())
            .bind(manifest.head.agent_version().map(str::to_owned))
            .bind(i64::try_from(manifest.bytes).unwrap_or(i64::MAX))
            .bind(head.unwrap_or_else(|_| "{}".to_owned()))
            .bind(manifest.content.as_ref())
            .execute(&mut **tx)
            .await
            .map_err(|e| self.database.error("write the manifest", e))?;
        Ok(())
    }

    async fn run(
        &self,
        tx: &mut Transaction,
        mut query: QueryBuilder<Sqlite>,
        what: &'static str,
    ) -> Result<(), SqlError> {
        let done = query.build().execute(&mut **tx).await;
        done.map(|_| ()).map_err(|e| self.database.error(what, e))
    }

    async fn rows(&self, text: &'static str) -> Result<Vec<SqliteRow>, SqlError> {
        let rows = sqlx::query(text).fetch_all(self.database.readers()).await;
        rows.map_err(|e| self.database.error("read the fleet's tables", e))
    }

    async fn blob(&self, text: &'static str, key: &str) -> Result<Option<Vec<u8>>, SqlError> {
        let failed = |e| self.database.error("read a text", e);
        let row = sqlx::query(text)
            .bind(key)
            .fetch_optional(self.database.readers())
            .await;
        row.map_err(failed)?
            .map(|row| row.try_get(0))
            .transpose()
            .map_err(failed)
    }

    fn agent(&self, row: &SqliteRow) -> Result<Agent, FleetError> {
        let id = Arc::from(self.text(row, "id")?);
        let mut agent = Agent::new(id, UnixMillis(self.number(row, "first_seen_ms")?));
        agent.last_seen = UnixMillis(self.number(row, "last_seen_ms")?);
        agent.heartbeats = self.number(row, "heartbeats")?.cast_unsigned();
        agent.class = self.maybe(row, "class")?.map(Arc::from);
        agent.manifest = self.maybe(row, "manifest_hash")?.map(Arc::from);
        agent.hostname = self.maybe(row, "hostname")?;
        agent.device = self.maybe(row, "device_id")?;
        agent.flow = self.maybe(row, "flow_id")?.map(Arc::from);
        Ok(agent)
    }

    fn flow(&self, row: &SqliteRow) -> Result<Flow, FleetError> {
        let shape = self.text(row, "shape")?;
        let shape: FlowShape = shape.parse().map_err(|()| FleetError::BadRow {
            what: "flow",
            value: shape,
        })?;
        Ok(Flow {
            id: Arc::from(self.text(row, "id")?),
            class: Arc::from(self.text(row, "class")?),
            version: self.number(row, "version")?,
            shape,
            sha256: self.text(row, "sha256")?,
            bytes: self.number(row, "bytes")?,
            created: UnixMillis(self.number(row, "created_ms")?),
        })
    }

    fn operation(&self, row: &SqliteRow) -> Result<FleetOperation, FleetError> {
        let status = self.text(row, "state")?;
        let status = status.parse().map_err(|()| FleetError::BadRow {
            what: "operation",
            value: status,
        })?;
        let mut operation = FleetOperation::new(
            Arc::from(self.text(row, "id")?),
            OperationKind::from(self.text(row, "operation")?.as_str()),
            Operand::from(self.text(row, "operand")?.as_str()),
            self.maybe(row, "flow_id")?.map(Arc::from),
            UnixMillis(self.number(row, "created_ms")?),
        );
        operation.status = status;
        operation.updated = UnixMillis(self.number(row, "updated_ms")?);
        let handed_out: Option<i64> = self.get(row, "handed_out_ms")?;
        operation.handed_out = handed_out.map(UnixMillis);
        operation.attempts = u32::try_from(self.number(row, "attempts")?).unwrap_or(u32::MAX);
        operation.acknowledged = self.number(row, "acknowledged")? != 0;
        operation.details = self.text(row, "details")?;
        operation.request = self.maybe(row, "request_id")?.map(Arc::from);
        operation.goal = self.maybe(row, "goal")?.map(Arc::from);
        operation.stored = true;
        Ok(operation)
    }

    fn text(&self, row: &SqliteRow, column: &str) -> Result<String, SqlError> {
        self.get(row, column)
    }

    fn maybe(&self, row: &SqliteRow, column: &str) -> Result<Option<String>, SqlError> {
        self.get(row, column)
    }

    fn number(&self, row: &SqliteRow, column: &str) -> Result<i64, SqlError> {
        self.get(row, column)
    }

    fn get<'r, T>(&self, row: &'r SqliteRow, column: &str) -> Result<T, SqlError>
    where
        T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        row.try_get(column)
            .map_err(|e| self.database.error("read a column", e))
    }
}

fn agents_query(agents: &[Agent]) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(
        "INSERT INTO agents (id, class, manifest_hash, hostname, device_id, flow_id,
         first_seen_ms, last_seen_ms, heartbeats) ",
    );
    query.push_values(agents, |mut row, agent| {
        row.push_bind(agent.id.to_string())
            .push_bind(agent.class.as_deref().map(str::to_owned))
            .push_bind(agent.manifest.as_deref().map(str::to_owned))
            .push_bind(agent.hostname.clone())
            .push_bind(agent.device.clone())
            .push_bind(agent.flow.as_deref().map(str::to_owned))
            .push_bind(agent.first_seen.0)
            .push_bind(agent.last_seen.0)
            .push_bind(agent.heartbeats.cast_signed());
    });
    query.push(
        " ON CONFLICT (id) DO UPDATE SET class = excluded.class,
         manifest_hash = excluded.manifest_hash, hostname = excluded.hostname,
         device_id = excluded.device_id, flow_id = excluded.flow_id,
         last_seen_ms = excluded.last_seen_ms, heartbeats = excluded.heartbeats",
    );
    query
}

fn operations_query(operations: &[(Arc<str>, FleetOperation)]) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(
        "INSERT INTO operations (id, agent_id, operation, operand, flow_id, state, created_ms,
         updated_ms, handed_out_ms, attempts, acknowledged, details, request_id, goal) ",
    );
    query.push_values(operations, |mut row, (agent, operation)| {
        row.push_bind(operation.id.to_string())
            .push_bind(agent.to_string())
            .push_bind(operation.kind.as_str().to_owned())
            .push_bind(operation.operand.as_str().to_owned())
            .push_bind(operation.flow.as_deref().map(str::to_owned))
            .push_bind(operation.status.as_str())
            .push_bind(operation.created.0)
            .push_bind(operation.updated.0)
            .push_bind(operation.handed_out.map(|at| at.0))
            .push_bind(i64::from(operation.attempts))
            .push_bind(i64::from(operation.acknowledged))
            .push_bind(operation.details.clone())
            .push_bind(operation.request.as_deref().map(str::to_owned))
            .push_bind(operation.goal.as_deref().map(str::to_owned));
    });
    query.push(
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state,
         updated_ms = excluded.updated_ms, handed_out_ms = excluded.handed_out_ms,
         attempts = excluded.attempts, acknowledged = excluded.acknowledged,
         details = excluded.details",
    );
    query
}

const SCHEMA: Schema = Schema {
    name: "fleet",
    migrations: &[Migration {
        number: 1,
        name: "agents, classes, flows, operations",
        text: FIRST,
    }],
};

const FIRST: &str = "
CREATE TABLE classes (
    name VARCHAR(255) NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    flow_id VARCHAR(36)
);
CREATE TABLE agents (
    id VARCHAR(255) NOT NULL PRIMARY KEY,
    class VARCHAR(255),
    manifest_hash VARCHAR(255),
    hostname VARCHAR(255),
    device_id VARCHAR(255),
    flow_id VARCHAR(255),
    first_seen_ms BIGINT NOT NULL,
    last_seen_ms BIGINT NOT NULL,
    heartbeats BIGINT NOT NULL
);
CREATE TABLE manifests (
    hash VARCHAR(255) NOT NULL PRIMARY KEY,
    agent_type VARCHAR(255),
    version VARCHAR(255),
    bytes BIGINT NOT NULL,
    head TEXT NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE flows (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    class VARCHAR(255) NOT NULL,
    version BIGINT NOT NULL,
    shape VARCHAR(16) NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    bytes BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (class, version)
);
CREATE TABLE operations (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    agent_id VARCHAR(255) NOT NULL,
    operation VARCHAR(32) NOT NULL,
    operand VARCHAR(64) NOT NULL,
    flow_id VARCHAR(36),
    state VARCHAR(16) NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    handed_out_ms BIGINT,
    attempts BIGINT NOT NULL,
    acknowledged BIGINT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX operations_agent ON operations (agent_id);
";
