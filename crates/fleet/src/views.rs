//! What the management API shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use c2::Heartbeat;
use serde::Serialize;
use serde_json::Value;

use crate::flow::check::Problem;
use crate::resource::Resource;

/// An agent in a list.
#[derive(Clone, Debug, Serialize)]
pub struct AgentView {
    /// Its identifier.
    pub id: String,
    /// Its class; null while it is parked without one.
    pub class: Option<String>,
    /// Whether an operator gave it that class.
    pub class_given: bool,
    /// `cpp`, `minifi-java`, `nifi`…; null until its manifest is known.
    pub agent_type: Option<String>,
    /// Its version; null until its manifest is known.
    pub agent_version: Option<String>,
    /// `online` or `missing`.
    pub state: &'static str,
    /// Its last call, milliseconds since 1970.
    pub last_seen_ms: i64,
    /// Its first call, milliseconds since 1970.
    pub first_seen_ms: i64,
    /// The host's name.
    pub hostname: Option<String>,
    /// Key of its manifest.
    pub manifest_hash: Option<String>,
    /// The flow that it says it runs.
    pub flow_id: Option<String>,
    /// The flow that its class wants.
    pub desired_flow_id: Option<String>,
    /// `none`, `pending`, `deployed` or `failed`.
    pub flow_state: &'static str,
    /// `none`, `pending`, `synced` or `failed`.
    pub resource_state: &'static str,
    /// Its heartbeats so far.
    pub heartbeats_total: u64,
    /// How often it calls, as its calls show; null until that is known.
    pub heartbeat_interval_ms: Option<u32>,
    /// The end of the certificate that its connection last showed, milliseconds since 1970.
    pub certificate_ends_ms: Option<i64>,
    /// Another one that calls under the same identifier: its device, or what else tells it apart.
    pub duplicate_device: Option<String>,
}

/// One page of agents, by identifier.
#[derive(Clone, Debug, Serialize)]
pub struct AgentsPage {
    /// The agents.
    pub agents: Vec<AgentView>,
    /// What to give as `after` for the next page; null on the last one.
    pub next: Option<String>,
}

/// An agent in full.
#[derive(Clone, Debug, Serialize)]
pub struct AgentDetail {
    /// What lists show.
    #[serde(flatten)]
    pub agent: AgentView,
    /// Its operations, newest first.
    pub operations: Vec<OperationView>,
    /// The last known value of each section of its heartbeats, unknown subtrees included.
    pub heartbeat: Option<Box<Heartbeat>>,
}

/// A class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassView {
    /// Its name.
    pub name: String,
    /// An operator's words; may be empty.
    pub description: Arc<str>,
    /// Its agents.
    pub agents: usize,
    /// Those that called in time.
    pub agents_online: usize,
    /// Those that run the class's flow.
    pub agents_deployed: usize,
    /// The flow that it wants.
    pub flow_id: Option<String>,
    /// That flow's version.
    pub flow_version: Option<i64>,
}

/// A flow version.
#[derive(Clone, Debug, Serialize)]
pub struct FlowView {
    /// A UUID.
    pub flow_id: String,
    /// One more than the version before.
    pub version: i64,
    /// The class.
    pub class: String,
    /// `yaml` or `json`.
    pub shape: &'static str,
    /// SHA-256 of the text, lower-case hex.
    pub sha256: String,
    /// Bytes of the text.
    pub bytes: i64,
    /// When it was published, milliseconds since 1970.
    pub created_ms: i64,
    /// Whether it is what the class wants.
    pub current: bool,
}

/// The answer to a publication.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// The flow's id.
    pub flow_id: String,
    /// Its version in the class.
    pub version: i64,
    /// The class.
    pub class: String,
    /// The manifest that it was checked against; null when none tells components.
    pub checked_against: Option<String>,
}

/// What a flow would meet in a class.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// `yaml` or `json`.
    pub shape: &'static str,
    /// The manifest that it was checked against; null when none tells components.
    pub manifest_hash: Option<String>,
    /// What does not fit.
    pub problems: Vec<Problem>,
}

/// An operation.
#[derive(Clone, Debug, Serialize)]
pub struct OperationView {
    /// A UUID.
    pub id: String,
    /// Whose it is.
    pub agent_id: String,
    /// Such as `UPDATE`.
    pub operation: String,
    /// Such as `configuration`.
    pub operand: String,
    /// The flow of an UPDATE configuration.
    pub flow_id: Option<String>,
    /// The operator's request that it came from.
    pub request_id: Option<String>,
    /// What the operator gave with it; values that look like secrets are not shown.
    pub args: BTreeMap<String, Value>,
    /// How many agents may be at it, or at those that were asked for with it, at the same time; 0: all.
    pub at_once: u32,
    /// `queued`, `deployed`, `done`, `failed`, `timed_out` or `cancelled`.
    pub state: &'static str,
    /// When it was made, milliseconds since 1970.
    pub created_ms: i64,
    /// When it last changed, milliseconds since 1970.
    pub updated_ms: i64,
    /// How often it was handed out.
    pub attempts: u32,
    /// Whether the agent answered.
    pub acknowledged: bool,
    /// What is known about the outcome.
    pub details: String,
}

/// One page of operations, newest first.
#[derive(Clone, Debug, Serialize)]
pub struct OperationsPage {
    /// The operations.
    pub operations: Vec<OperationView>,
    /// What to give as `after` for the next page; null on the last one.
    pub next: Option<String>,
}

/// The answer to a request for operations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AskedView {
    /// A UUID, under which the request's operations are listed and cancelled.
    pub request_id: String,
    /// What was asked for, such as `UPDATE configuration`.
    pub operation: String,
    /// How many agents may be at it at the same time; 0: all.
    pub at_once: u32,
    /// The operations' ids, one for each agent that can be asked.
    pub operation_ids: Vec<String>,
    /// Agents that cannot be asked, with the reason; the first thousand.
    pub refused: Vec<RefusedView>,
    /// How many cannot be asked.
    pub refused_total: usize,
}

/// An agent that cannot be asked for something.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedView {
    /// The agent.
    pub agent_id: String,
    /// Why not.
    pub reason: String,
}

/// A resource with the classes that have it.
#[derive(Clone, Debug, Serialize)]
pub struct ResourceView {
    /// The resource.
    #[serde(flatten)]
    pub resource: Arc<Resource>,
    /// The classes.
    pub classes: Vec<String>,
}

/// The resources of a class, and how far its agents are.
#[derive(Clone, Debug, Serialize)]
pub struct ClassResourcesView {
    /// What agents echo that have them all; null while the class was never given any.
    pub digest: Option<Arc<str>>,
    /// How many agents may fetch them at the same time, 0: all; null while the class was never given any.
    pub at_once: Option<u32>,
    /// The resources, by id.
    pub resources: Vec<Arc<Resource>>,
    /// Agents that have them all.
    pub agents_synced: usize,
    /// Agents that should fetch them, or are at it.
    pub agents_pending: usize,
    /// Agents that could not fetch them; their operations say why.
    pub agents_failed: usize,
}

/// A debug bundle that an agent sent.
#[derive(Clone, Debug, Serialize)]
pub struct BundleView {
    /// The id of the TRANSFER debug operation.
    pub id: String,
    /// The agent.
    pub agent_id: String,
    /// The file's name, as the agent gave it.
    pub name: String,
    /// Bytes of the file.
    pub bytes: i64,
    /// SHA-512 of the file, lower-case hexadecimal.
    pub sha512: String,
    /// When it came, milliseconds since 1970.
    pub created_ms: i64,
}
