//! EFM's own paths for reading and publishing, so that scripts made for it carry over.
//!
//! Each answers from what the paths under `/api/v1/` answer from, by EFM's words. What EFM edits in
//! its designer is here the newest flow version of a class: publishing it publishes that version
//! again, importing stores a new one. Lists are `{"elements", "page": {"size", "number",
//! "hasNext"}}`; parameters that are not known are refused.

mod classes;
mod flows;
mod manifest_config;
mod parameters;
mod resources;

use std::sync::Arc;

use access::Role;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json as object};

use crate::events::{EventFilter, EventView, Level};
use crate::fleet::{AgentFilter, Fleet};
use crate::history::OperationFilter;
use crate::http::audit::Details;
use crate::http::management::{asked, need_class, remove_agent};
use crate::http::manifests::{ManifestsQuery, listed, manifest, remove as remove_manifest};
use crate::http::operations::listed as listed_operations;
use crate::http::{Failure, body, json};
use crate::limits;
use crate::request::Target;
use crate::rights::Rights;
use crate::views::{AgentView, OperationView};

/// EFM's paths but for those that agents call.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/efm/api/agents", get(agents))
        .route("/efm/api/agents/page", get(agents))
        .route("/efm/api/agents/{id}", get(agent).delete(remove_agent))
        .route("/efm/api/monitor/agents/{id}", get(agent))
        .route("/efm/api/agent-manifests", get(manifests))
        .route(
            "/efm/api/agent-manifests/{hash}",
            get(manifest).delete(remove_manifest),
        )
        .route("/efm/api/operations", get(operations).post(ask))
        .route("/efm/api/operations/{id}", get(operation))
        .route("/efm/api/events", get(events))
        .merge(classes::routes())
        .merge(flows::routes())
        .merge(manifest_config::routes())
        .merge(parameters::routes())
        .merge(resources::routes())
        .with_state(fleet)
}

/// Which page of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PageQuery {
    page_size: Option<usize>,
    page_num: Option<usize>,
    agent_class: Option<String>,
    /// `FIELD:eq:VALUE`, several with commas between them.
    filter: Option<String>,
}

/// A page of a list.
#[derive(Serialize)]
struct Page {
    elements: Vec<Value>,
    page: PageInfo,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    size: usize,
    number: usize,
    has_next: bool,
}

impl PageQuery {
    fn size(&self) -> usize {
        let size = self.page_size.unwrap_or(PAGE_ITEMS_DEFAULT);
        size.clamp(1, limits::PAGE_ITEMS_MAX)
    }

    /// How many items are to be read for this page: one more than it holds, to know of the next.
    fn wanted(&self) -> Result<usize, Failure> {
        let pages = self.page_num.unwrap_or(0).saturating_add(1);
        let wanted = pages.saturating_mul(self.size()).saturating_add(1);
        match wanted <= limits::PAGE_ITEMS_MAX + 1 {
            true => Ok(wanted.min(limits::PAGE_ITEMS_MAX)),
            false => {
                let message = format!(
                    "pageNum: pages end at {} items; go through more by the path under /api/v1/",
                    limits::PAGE_ITEMS_MAX
                );
                Err(Failure::new(StatusCode::BAD_REQUEST, message))
            }
        }
    }

    /// The page out of what was read.
    fn page(&self, all: Vec<Value>) -> Page {
        let (size, number) = (self.size(), self.page_num.unwrap_or(0));
        let has_next = all.len() > (number + 1) * size;
        Page {
            elements: all.into_iter().skip(number * size).take(size).collect(),
            page: PageInfo {
                size,
                number,
                has_next,
            },
        }
    }

    /// The values of the filter's fields, of which only `known` may be named.
    fn filtered(&self, known: &[&str]) -> Result<Map<String, Value>, Failure> {
        let mut values = Map::new();
        let parts = self.filter.as_deref().unwrap_or_default().split(',');
        for part in parts.filter(|part| !part.is_empty()) {
            let mut words = part.splitn(3, ':');
            let (field, how, value) = (words.next(), words.next(), words.next());
            let (Some(field), Some("eq"), Some(value)) = (field, how, value) else {
                let message = format!("filter: '{part}' is not known: write FIELD:eq:VALUE");
                return Err(Failure::new(StatusCode::BAD_REQUEST, message));
            };
            if !known.contains(&field) {
                let message = format!("filter: '{field}' is not known: use {}", known.join(", "));
                return Err(Failure::new(StatusCode::BAD_REQUEST, message));
            }
            values.insert(field.to_owned(), Value::from(value));
        }
        if let Some(class) = &self.agent_class {
            values.insert("agentClass".to_owned(), Value::from(class.as_str()));
        }
        Ok(values)
    }
}

type Asked = Result<Query<PageQuery>, QueryRejection>;

async fn agents(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Asked,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let values = query.filtered(&["agentClass", "state"])?;
    let class = text(&values, "agentClass");
    need_class(&rights, class.as_deref())?;
    let filter = AgentFilter {
        class,
        state: text(&values, "state").map(|state| state.to_lowercase()),
        limit: query.wanted()?,
        rights,
        ..AgentFilter::default()
    };
    let found = fleet.agents(&filter).agents;
    json(
        StatusCode::OK,
        &query.page(found.iter().map(agent_object).collect()),
    )
}

async fn agent(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let found = fleet.agent(&id)?;
    let mut told = agent_object(&found.agent);
    if let Some(heartbeat) = &found.heartbeat {
        let sent = serde_json::to_value(heartbeat).unwrap_or_default();
        for section in ["deviceInfo", "agentInfo", "flowInfo"] {
            if let Some(value) = sent.get(section) {
                told[section] = value.clone();
            }
        }
    }
    json(StatusCode::OK, &told)
}

async fn manifests(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<ManifestsQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let manifests = listed(fleet, rights, query).await?;
    let told = manifests.iter().map(|manifest| {
        object!({
            "identifier": manifest.hash,
            "agentType": manifest.agent_type,
            "version": manifest.agent_version,
        })
    });
    json(StatusCode::OK, &told.collect::<Vec<Value>>())
}

async fn operations(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Asked,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let values = query.filtered(&["agentClass", "targetAgentId"])?;
    let class = text(&values, "agentClass");
    need_class(&rights, class.as_deref())?;
    let filter = OperationFilter {
        agent: text(&values, "targetAgentId"),
        class,
        limit: query.wanted()?,
        rights,
        ..OperationFilter::default()
    };
    let found = listed_operations(fleet, filter).await?.operations;
    json(
        StatusCode::OK,
        &query.page(found.iter().map(operation_object).collect()),
    )
}

async fn operation(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &operation_object(&fleet.operation(&id)?))
}

/// What EFM takes for an operation of one agent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OperationRequest {
    operation: Value,
    target_agent_id: String,
}

async fn ask(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let taken = body::take(request).await?;
    let asked: OperationRequest = taken.json()?;
    let agent = asked.target_agent_id;
    let class = fleet.class_of_agent(&agent);
    match class {
        Some(class) if rights.sees(class.as_deref()) => {
            rights.need(Role::Operator, class.as_deref())?;
        }
        None if rights.sees_all() => {}
        _ => return Err(rights.unseen("agent", &agent).into()),
    }
    let wanted = serde_json::to_vec(&asked.operation).unwrap_or_default();
    let done = fleet.ask(&rights, Target::Agent(agent), &wanted).await?;
    let id = done.operation_ids.first().cloned().unwrap_or_default();
    let mut response = json(
        StatusCode::CREATED,
        &operation_object(&fleet.operation(&id)?),
    )?;
    let details = format!("{}, request {}", done.operation, done.request_id);
    response.extensions_mut().insert(Details(details));
    Ok(response)
}

async fn events(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Asked,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let values = query.filtered(&["agentClass", "level", "eventType", "agentId"])?;
    let class = text(&values, "agentClass");
    need_class(&rights, class.as_deref())?;
    let level = text(&values, "level").map(|level| {
        level.parse::<Level>().map_err(|()| {
            let message = format!("filter: the level '{level}' is not known");
            Failure::new(StatusCode::BAD_REQUEST, message)
        })
    });
    let filter = EventFilter {
        level: level.transpose()?,
        kind: text(&values, "eventType"),
        class,
        agent: text(&values, "agentId"),
        only_classes: rights.only_classes(),
        limit: query.wanted()?,
        ..EventFilter::default()
    };
    let found = fleet.events(&filter).await?;
    json(
        StatusCode::OK,
        &query.page(found.iter().map(event_object).collect()),
    )
}

fn text(values: &Map<String, Value>, name: &str) -> Option<String> {
    values.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn agent_object(agent: &AgentView) -> Value {
    object!({
        "identifier": agent.id,
        "name": agent.id,
        "agentClass": agent.class,
        "agentManifestId": agent.manifest_hash,
        "agentType": agent.agent_type,
        "agentVersion": agent.agent_version,
        "state": agent.state.to_uppercase(),
        "firstSeen": agent.first_seen_ms,
        "lastSeen": agent.last_seen_ms,
        "hostname": agent.hostname,
        "flowId": agent.flow_id,
    })
}

fn operation_object(operation: &OperationView) -> Value {
    let state = match operation.state {
        "timed_out" => "FAILED".to_owned(),
        state => state.to_uppercase(),
    };
    object!({
        "identifier": operation.id,
        "operation": {
            "identifier": operation.id,
            "operation": operation.operation.to_uppercase(),
            "operand": operation.operand.to_lowercase(),
            "args": operation.args,
        },
        "targetAgentId": operation.agent_id,
        "flowId": operation.flow_id,
        "state": state,
        "details": operation.details,
        "created": operation.created_ms,
        "updated": operation.updated_ms,
    })
}

fn event_object(event: &EventView) -> Value {
    let source = match &event.agent_id {
        Some(agent) => object!({"type": "Agent", "id": agent}),
        None => object!({"type": "Server", "id": "thalweg"}),
    };
    object!({
        "id": event.id,
        "level": event.level.to_uppercase(),
        "eventType": event.kind,
        "message": event.message,
        "created": event.at_ms,
        "eventSource": source,
        "agentClass": event.class,
    })
}

impl Fleet {
    /// The class of an agent; none when there is no such agent.
    pub(crate) fn class_of_agent(&self, id: &str) -> Option<Option<Arc<str>>> {
        let registry = self.inner.registry.lock();
        registry.agents.get(id).map(|agent| agent.class.clone())
    }
}

/// Items of a page when the caller does not say: EFM's own.
const PAGE_ITEMS_DEFAULT: usize = 20;
