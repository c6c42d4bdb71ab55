//! What operators asked for, how far it has come, and how many agents may be at it together.
//!
//! Progress is counted from the agents' operations when it is asked for; nothing is kept that could
//! differ from them. An agent keeps its newest operations only, so old requests count fewer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::error::FleetError;
use crate::fleet::{Fleet, Inner};
use crate::limits;
use crate::operation::OperationStatus;
use crate::registry::Registry;
use crate::request::{Request, Target};
use crate::rights::Rights;

/// A request of an operator.
#[derive(Clone, Debug, Serialize)]
pub struct RequestView {
    /// A UUID.
    pub id: String,
    /// The class that was asked; null where it was one agent.
    pub class: Option<String>,
    /// The agent that was asked; null where it was a class.
    pub agent_id: Option<String>,
    /// Such as `UPDATE`.
    pub operation: String,
    /// Such as `asset`.
    pub operand: String,
    /// What was given with it; values that look like secrets are not shown.
    pub args: BTreeMap<String, Value>,
    /// How many agents may be at it at the same time; 0: all.
    pub at_once: u32,
    /// When it was made, milliseconds since 1970.
    pub created_ms: i64,
    /// How many operations came of it, by their states.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Operations by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Wait for their agents, or for a place.
    pub queued: usize,
    /// Agents are at them.
    pub deployed: usize,
    /// Are done.
    pub done: usize,
    /// Agents could not do them.
    pub failed: usize,
    /// Were not heard of in time.
    pub timed_out: usize,
    /// Were given up.
    pub cancelled: usize,
}

/// Which requests a list wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFilter {
    pub class: Option<String>,
    pub limit: usize,
    /// What its caller may see.
    pub rights: Rights,
}

impl Fleet {
    /// Requests, newest first.
    pub(crate) fn requests(&self, filter: &RequestFilter) -> Vec<RequestView> {
        let mut found: Vec<Arc<Request>> = {
            let registry = self.inner.registry.lock();
            let all = registry.requests.values();
            let fits = |request: &&Arc<Request>| {
                let class = class_of(&registry, &request.target);
                let is_of_class = filter.class.is_none() || filter.class.as_deref() == class;
                is_of_class && filter.rights.sees(class)
            };
            all.filter(fits).cloned().collect()
        };
        found.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        found.truncate(filter.limit.clamp(1, limits::PAGE_ITEMS_MAX));
        let mut counts = self.inner.counts_of(&found);
        let view = |request: &Arc<Request>| {
            let counts = counts.remove(&request.id).unwrap_or_default();
            RequestView::of(request, counts)
        };
        found.iter().map(view).collect()
    }

    /// One request, which another node may have been asked.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn request(&self, id: &str) -> Result<RequestView, FleetError> {
        let request = self.inner.known_request(id).await?;
        // All agents are looked at: not on their threads.
        let (inner, counted) = (self.inner.clone(), request.clone());
        let counts = move || inner.counts_of(&[counted]);
        let counts = tokio::task::spawn_blocking(counts).await;
        let counts = counts.map_err(|error| FleetError::Broken(error.to_string()))?;
        let counts = counts.get(&request.id).copied().unwrap_or_default();
        Ok(RequestView::of(&request, counts))
    }

    /// Changes how many agents may be at a request's operations at the same time, 0: all; durable when
    /// this returns, and known to other nodes a second later. Who is at it by now goes on.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::BadField`], [`FleetError::Store`].
    pub(crate) async fn pace_request(
        &self,
        id: &str,
        at_once: u32,
    ) -> Result<RequestView, FleetError> {
        let inner = &self.inner;
        let known = inner.known_request(id).await?;
        if let Target::Agent(_) = known.target {
            return Err(FleetError::BadField {
                field: "at_once".to_owned(),
                reason: "one agent was asked, not a class".to_owned(),
            });
        }
        let now = inner.clock.now();
        if !inner.store.pace_request(&known.id, at_once, now).await? {
            return Err(unknown_request(id));
        }
        let mut request = Request::clone(&known);
        request.at_once = at_once;
        inner.registry.lock().keep_request(Arc::new(request));
        tracing::info!(request = id, at_once, "an operator paced a request");
        self.request(id).await
    }
}

impl Inner {
    async fn known_request(&self, id: &str) -> Result<Arc<Request>, FleetError> {
        let known = self.registry.lock().requests.get(id).cloned();
        if let Some(request) = known {
            return Ok(request);
        }
        let found = self.requests.find(id).await?;
        let request = Arc::new(found.ok_or_else(|| unknown_request(id))?);
        self.registry.lock().keep_request(request.clone());
        Ok(request)
    }

    /// How far requests have come, by their ids.
    fn counts_of(&self, requests: &[Arc<Request>]) -> HashMap<Arc<str>, Counts> {
        let ids = requests.iter().map(|request| request.id.clone());
        let mut counts: HashMap<Arc<str>, Counts> = ids.map(|id| (id, Counts::default())).collect();
        if counts.is_empty() {
            return counts;
        }
        self.each_agent(|_, agent| {
            for operation in &agent.operations {
                let request = operation.request.as_ref();
                if let Some(counts) = request.and_then(|id| counts.get_mut(id)) {
                    counts.add(operation.status);
                }
            }
        });
        counts
    }
}

impl RequestView {
    fn of(request: &Request, counts: Counts) -> RequestView {
        let (class, agent_id) = match &request.target {
            Target::Class(name) => (Some(name.clone()), None),
            Target::Agent(id) => (None, Some(id.clone())),
        };
        RequestView {
            id: request.id.to_string(),
            class,
            agent_id,
            operation: request.kind.to_string(),
            operand: request.operand.to_string(),
            args: request.shown_args(),
            at_once: request.at_once,
            created_ms: request.created.0,
            counts,
        }
    }
}

impl Counts {
    fn add(&mut self, status: OperationStatus) {
        let count = match status {
            OperationStatus::Queued => &mut self.queued,
            OperationStatus::Deployed => &mut self.deployed,
            OperationStatus::Done => &mut self.done,
            OperationStatus::Failed => &mut self.failed,
            OperationStatus::TimedOut => &mut self.timed_out,
            OperationStatus::Cancelled => &mut self.cancelled,
        };
        *count += 1;
    }
}

/// The class that a request is about; of an agent's, the one that it has now.
fn class_of<'r>(registry: &'r Registry, target: &'r Target) -> Option<&'r str> {
    match target {
        Target::Class(name) => Some(name),
        Target::Agent(id) => registry.agents.get(id.as_str())?.class.as_deref(),
    }
}

/// The error for a request that is not there.
pub(crate) fn unknown_request(id: &str) -> FleetError {
    FleetError::Unknown {
        what: "request",
        name: id.to_owned(),
        list: "/api/v1/requests",
    }
}
