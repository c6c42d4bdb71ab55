//! Rows as the tables hold them, and back.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use c2::{AgentManifest, Operand, OperationKind, RawJson};
use sql::{Conflict, Insert, Row, Statement, Value};

use crate::agent::{Agent, Given};
use crate::flow::FlowShape;
use crate::limits;
use crate::manifest::{Mark, NewManifest, is_former};
use crate::operation::{FleetOperation, OperationStatus, truncate};
use crate::registry::{ClassRow, Flow};
use crate::rollout::{Plan, Rollout};

pub const CLASSES: Insert = Insert {
    table: "classes",
    columns: &["name", "created_ms"],
    conflict: Conflict::Keep { key: &["name"] },
};

/// Classes that want a flow, all of them at once.
pub const WANTING_CLASSES: Insert = Insert {
    table: "classes",
    columns: &["name", "created_ms", "flow_id", "rollout_id"],
    conflict: Conflict::Replace {
        key: &["name"],
        columns: &["flow_id", "rollout_id"],
    },
};

/// A class with an operator's words.
pub const DESCRIBED_CLASSES: Insert = Insert {
    table: "classes",
    columns: &["name", "created_ms", "description"],
    conflict: Conflict::Replace {
        key: &["name"],
        columns: &["description"],
    },
};

pub const FLOWS: Insert = Insert {
    table: "flows",
    columns: &[
        "id",
        "class",
        "version",
        "shape",
        "sha256",
        "bytes",
        "created_ms",
        "content",
    ],
    conflict: Conflict::Fail,
};

pub const MANIFESTS: Insert = Insert {
    table: "manifests",
    columns: &["hash", "agent_type", "version", "bytes", "head", "content"],
    conflict: Conflict::Keep { key: &["hash"] },
};

pub const AGENTS: Insert = Insert {
    table: "agents",
    columns: &[
        "id",
        "class",
        "manifest_mark",
        "manifest_hash",
        "hostname",
        "device_id",
        "flow_id",
        "first_seen_ms",
        "last_seen_ms",
        "heartbeats",
        "interval_ms",
        "seq",
        "node",
    ],
    conflict: Conflict::Replace {
        key: &["id"],
        columns: &[
            "class",
            "manifest_mark",
            "manifest_hash",
            "hostname",
            "device_id",
            "flow_id",
            "first_seen_ms",
            "last_seen_ms",
            "heartbeats",
            "interval_ms",
            "seq",
            "node",
        ],
    },
};

/// Reads agents; `rest` follows the table's name. What operators said of an agent's class is written
/// by itself, and not with the rest.
pub fn agents(rest: &str) -> Statement {
    let columns = AGENTS.columns.join(", ");
    let text = format!("SELECT {columns}, given_class, given_seq FROM agents{rest}");
    Statement::new(text)
}

pub const OPERATIONS: Insert = Insert {
    table: "operations",
    columns: &[
        "id",
        "agent_id",
        "operation",
        "operand",
        "flow_id",
        "state",
        "created_ms",
        "updated_ms",
        "handed_out_ms",
        "attempts",
        "acknowledged",
        "details",
        "request_id",
        "goal",
        "seq",
        "node",
    ],
    conflict: Conflict::Replace {
        key: &["id"],
        columns: &[
            "state",
            "updated_ms",
            "handed_out_ms",
            "attempts",
            "acknowledged",
            "details",
            "seq",
            "node",
        ],
    },
};

pub const SIGHTINGS: Insert = Insert {
    table: "sightings",
    columns: &["seq", "node", "at_ms", "body"],
    conflict: Conflict::Fail,
};

pub const CHANGES: Insert = Insert {
    table: "changes",
    columns: &["seq", "kind", "item", "node", "at_ms"],
    conflict: Conflict::Keep {
        key: &["seq", "kind", "item"],
    },
};

pub const DESCRIBING: Insert = Insert {
    table: "describing",
    columns: &["hash", "operation_id", "until_ms"],
    conflict: Conflict::Replace {
        key: &["hash"],
        columns: &["operation_id", "until_ms"],
    },
};

pub const LEASES: Insert = Insert {
    table: "leases",
    columns: &["name", "holder", "fence", "until_ms"],
    conflict: Conflict::Keep { key: &["name"] },
};

pub const ROLLOUTS: Insert = Insert {
    table: "rollouts",
    columns: &[
        "id",
        "class",
        "flow_id",
        "previous_id",
        "batch_agents",
        "batch_interval_ms",
        "canary_percent",
        "failures_percent",
        "state",
        "reach",
        "reached_ms",
        "created_ms",
        "reason",
        "version",
    ],
    conflict: Conflict::Fail,
};

pub fn rollout(rollout: &Rollout) -> Vec<Value> {
    let interval = rollout.plan.batch_interval.as_millis();
    vec![
        (&*rollout.id).into(),
        (&*rollout.class).into(),
        (&*rollout.flow).into(),
        rollout.previous.as_deref().into(),
        i64::from(rollout.plan.batch_agents).into(),
        i64::try_from(interval).unwrap_or(i64::MAX).into(),
        i64::from(rollout.plan.canary_percent).into(),
        i64::from(rollout.plan.failures_percent).into(),
        rollout.state.as_str().into(),
        rollout.reach.cast_signed().into(),
        rollout.reached.0.into(),
        rollout.created.0.into(),
        rollout.reason.as_str().into(),
        rollout.version.into(),
    ]
}

pub fn read_rollout(row: &Row) -> Result<Rollout, sqlx::Error> {
    let state = row.text("state")?;
    let percent = |column: &str| Ok::<u8, sqlx::Error>(row.number(column)?.clamp(0, 100) as u8);
    let interval = u64::try_from(row.number("batch_interval_ms")?).unwrap_or(0);
    Ok(Rollout {
        id: Arc::from(row.text("id")?),
        class: Arc::from(row.text("class")?),
        flow: Arc::from(row.text("flow_id")?),
        previous: row.maybe_text("previous_id")?.map(Arc::from),
        plan: Plan {
            batch_agents: u32::try_from(row.number("batch_agents")?).unwrap_or(1),
            batch_interval: Duration::from_millis(interval),
            canary_percent: percent("canary_percent")?,
            failures_percent: percent("failures_percent")?,
        },
        state: state.parse().map_err(|()| bad("roll-out", &state))?,
        reach: u64::try_from(row.number("reach")?).unwrap_or(0),
        reached: UnixMillis(row.number("reached_ms")?),
        created: UnixMillis(row.number("created_ms")?),
        reason: row.text("reason")?,
        version: row.number("version")?,
    })
}

pub fn class((name, created): &(Arc<str>, UnixMillis)) -> Vec<Value> {
    vec![(&**name).into(), created.0.into()]
}

pub fn wanting_class(flow: &Flow) -> Vec<Value> {
    vec![
        (&*flow.class).into(),
        flow.created.0.into(),
        (&*flow.id).into(),
        None::<&str>.into(),
    ]
}

pub fn flow(flow: &Flow, text: &Bytes) -> Vec<Value> {
    vec![
        (&*flow.id).into(),
        (&*flow.class).into(),
        flow.version.into(),
        flow.shape.as_str().into(),
        flow.sha256.as_str().into(),
        flow.bytes.into(),
        flow.created.0.into(),
        text.as_ref().into(),
    ]
}

pub fn manifest(manifest: &NewManifest) -> Vec<Value> {
    let head = RawJson::of(&*manifest.head).map(|head| head.as_str().to_owned());
    vec![
        (&*manifest.key).into(),
        fitting(manifest.head.agent_type.as_deref()),
        fitting(manifest.head.agent_version()),
        i64::try_from(manifest.bytes).unwrap_or(i64::MAX).into(),
        head.unwrap_or_else(|_| "{}".to_owned()).into(),
        manifest.content.as_ref().into(),
    ]
}

pub fn agent(agent: &Agent, seq: i64, node: i64) -> Vec<Value> {
    vec![
        (&*agent.id).into(),
        agent.class.as_deref().into(),
        agent.mark.map_or(0, Mark::number).into(),
        agent.manifest.as_deref().into(),
        fitting(agent.hostname.as_deref()),
        fitting(agent.device.as_deref()),
        fitting(agent.flow.as_deref()),
        agent.first_seen.0.into(),
        agent.last_seen.0.into(),
        agent.heartbeats.cast_signed().into(),
        i64::from(agent.interval_ms).into(),
        seq.into(),
        node.into(),
    ]
}

pub fn operation(agent: &str, operation: &FleetOperation, seq: i64, node: i64) -> Vec<Value> {
    vec![
        (&*operation.id).into(),
        agent.into(),
        operation.kind.as_str().into(),
        operation.operand.as_str().into(),
        operation.flow.as_deref().into(),
        operation.status.as_str().into(),
        operation.created.0.into(),
        operation.updated.0.into(),
        operation.handed_out.map(|at| at.0).into(),
        i64::from(operation.attempts).into(),
        i64::from(operation.acknowledged).into(),
        operation.details.as_str().into(),
        operation.request.as_deref().into(),
        operation.goal.as_deref().into(),
        seq.into(),
        node.into(),
    ]
}

pub fn read_class(row: &Row) -> Result<ClassRow, sqlx::Error> {
    Ok(ClassRow {
        name: Arc::from(row.text("name")?),
        created: UnixMillis(row.number("created_ms")?),
        description: Some(Arc::from(
            row.maybe_text("description")?.unwrap_or_default(),
        )),
        flow: row.maybe_text("flow_id")?.map(Arc::from),
        rollout: row.maybe_text("rollout_id")?.map(Arc::from),
    })
}

pub fn read_flow(row: &Row) -> Result<Flow, sqlx::Error> {
    let shape = row.text("shape")?;
    let shape: FlowShape = shape.parse().map_err(|()| bad("flow's shape", &shape))?;
    Ok(Flow {
        id: Arc::from(row.text("id")?),
        class: Arc::from(row.text("class")?),
        version: row.number("version")?,
        shape,
        sha256: row.text("sha256")?,
        bytes: row.number("bytes")?,
        created: UnixMillis(row.number("created_ms")?),
    })
}

pub fn read_manifest(row: &Row) -> Result<(Arc<str>, Arc<AgentManifest>), sqlx::Error> {
    let text = row.text("head")?;
    let head = RawJson::parse(text.clone()).and_then(|raw| AgentManifest::parse(&raw));
    let head = head.map_err(|_| bad("manifest", &text))?;
    Ok((Arc::from(row.text("hash")?), Arc::new(head)))
}

pub fn read_agent(row: &Row) -> Result<Agent, sqlx::Error> {
    let id = Arc::from(row.text("id")?);
    let mut agent = Agent::new(id, UnixMillis(row.number("first_seen_ms")?));
    agent.last_seen = UnixMillis(row.number("last_seen_ms")?);
    agent.row_seen = agent.last_seen;
    agent.heartbeats = row.number("heartbeats")?.cast_unsigned();
    agent.interval_ms = u32::try_from(row.number("interval_ms")?).unwrap_or(0);
    let given: Option<Arc<str>> = row.maybe_text("given_class")?.map(Arc::from);
    agent.class = match &given {
        Some(given) => Some(given.clone()),
        None => row.maybe_text("class")?.map(Arc::from),
    };
    let seq = row.number("given_seq")?;
    agent.given = (seq > 0).then(|| Box::new(Given { class: given, seq }));
    agent.manifest = row.maybe_text("manifest_hash")?.map(Arc::from);
    let former = agent.manifest.as_deref().filter(|key| is_former(key));
    agent.mark = match former {
        // Nodes of former versions write no mark.
        Some(key) => Some(Mark::of(key)),
        None => Mark::of_number(row.number("manifest_mark")?),
    };
    agent.hostname = row.maybe_text("hostname")?;
    agent.device = row.maybe_text("device_id")?;
    agent.flow = row.maybe_text("flow_id")?.map(Arc::from);
    Ok(agent)
}

pub fn read_operation(row: &Row) -> Result<(Arc<str>, FleetOperation), sqlx::Error> {
    let state = row.text("state")?;
    let status: OperationStatus = state.parse().map_err(|()| bad("operation", &state))?;
    let mut operation = FleetOperation::new(
        Arc::from(row.text("id")?),
        OperationKind::from(row.text("operation")?.as_str()),
        Operand::from(row.text("operand")?.as_str()),
        row.maybe_text("flow_id")?.map(Arc::from),
        UnixMillis(row.number("created_ms")?),
    );
    operation.status = status;
    operation.updated = UnixMillis(row.number("updated_ms")?);
    operation.handed_out = row.maybe_number("handed_out_ms")?.map(UnixMillis);
    operation.attempts = u32::try_from(row.number("attempts")?).unwrap_or(u32::MAX);
    operation.acknowledged = row.number("acknowledged")? != 0;
    operation.details = row.text("details")?;
    operation.request = row.maybe_text("request_id")?.map(Arc::from);
    operation.goal = row.maybe_text("goal")?.map(Arc::from);
    operation.stored = true;
    Ok((Arc::from(row.text("agent_id")?), operation))
}

/// What a column for names takes of a text. Databases know no NUL, and what stands for one has more
/// bytes.
fn fitting(text: Option<&str>) -> Value {
    Value::Text(text.map(|text| {
        let mut text = text.replace('\0', "\u{fffd}");
        truncate(&mut text, limits::NAME_BYTES_MAX);
        text
    }))
}

/// A value that this binary did not write.
fn bad(what: &str, value: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("the registry holds a {what} that cannot be read: {value}").into())
}
