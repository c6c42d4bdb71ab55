//! The management API of topics, `/api/v1/topics`, with that of groups beside it.
//!
//! Plain JSON, for the console, the command line and scripts; the proxy's own paths are for Kafka
//! REST clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use streams::{
    ConfigChange, Durability, EventStore, HeldSetting, Replication, StreamsError, TopicConfig,
    TopicInfo, TopicName, TopicSpec,
};

use crate::answer::{self, Segments};
use crate::body::Gate;
use crate::error::RestError;
use crate::{backups, groups, topic_groups};

struct Management {
    store: Arc<dyn EventStore>,
    gate: Gate,
}

/// The management routes over `store`; the caller mounts them beside those of other roles.
///
/// - `GET /api/v1/topics`: `{"topics": [{name, wire_name, partitions, records_in_total,
///   bytes_in_total, bytes_stored, durability, offsets: [{partition, start, end}]}]}`
/// - `POST /api/v1/topics` with `{"name", "partitions"?, "durability"?, "config"?}`: 201 and that object
/// - `GET`, `DELETE /api/v1/topics/{name}`: the object with `config: [{name, value, is_set}]`, 204
/// - `PATCH /api/v1/topics/{name}` with `{"partitions"?, "config"?: {name: value or null}}`: that
///   object; null gives a setting its default back
/// - `POST /api/v1/topics/{name}/delete-records` with `{"partition", "offset"?}`: `{partition,
///   start}`; without an offset all that can be read goes
///
/// And those of backups, of a topic's groups and of groups, which `backups.rs`, `topic_groups.rs` and
/// `groups.rs` tell.
pub fn management(store: Arc<dyn EventStore>) -> Router {
    let management = Arc::new(Management {
        store: Arc::clone(&store),
        gate: Gate::new(BODY_BYTES_MAX),
    });
    Router::new()
        .route("/api/v1/topics", get(list).post(create))
        .route(
            "/api/v1/topics/{name}",
            get(topic).patch(alter).delete(delete),
        )
        .route("/api/v1/topics/{name}/delete-records", post(delete_records))
        .with_state(management)
        .merge(backups::routes(Arc::clone(&store)))
        .merge(topic_groups::routes(Arc::clone(&store)))
        .merge(groups::routes(store))
}

async fn list(State(management): State<Arc<Management>>) -> Result<Response, RestError> {
    let topics = management.store.topics().await?;
    let topics: Vec<Value> = topics.iter().map(topic_object).collect();
    Ok(answer::json(
        StatusCode::OK,
        JSON,
        &json!({"topics": topics}),
    ))
}

async fn create(
    State(management): State<Arc<Management>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NewTopic {
        name: String,
        partitions: Option<i32>,
        durability: Option<Durability>,
        #[serde(default)]
        config: BTreeMap<String, String>,
    }
    let asked: NewTopic = management.gate.entity(&headers, body).await?;
    let name: TopicName = asked.name.parse().map_err(StreamsError::InvalidTopic)?;
    let spec = TopicSpec {
        name,
        partitions: asked.partitions,
        durability: asked.durability,
        replication: Replication::Usual,
        config: TopicConfig::of(asked.config.iter().map(|(name, value)| (&**name, &**value)))
            .map_err(StreamsError::InvalidConfig)?,
    };
    let info = management.store.create_topic(spec).await?;
    Ok(answer::json(
        StatusCode::CREATED,
        JSON,
        &topic_object(&info),
    ))
}

async fn topic(
    State(management): State<Arc<Management>>,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    described(&management, &answer::topic_name(&name)?).await
}

async fn alter(
    State(management): State<Arc<Management>>,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Changes {
        partitions: Option<i32>,
        #[serde(default)]
        config: BTreeMap<String, Option<String>>,
    }
    let name = answer::topic_name(&name)?;
    let asked: Changes = management.gate.entity(&headers, body).await?;
    if !asked.config.is_empty() {
        management
            .store
            .alter_topic(&name, changes(asked.config))
            .await?;
    }
    if let Some(count) = asked.partitions {
        management.store.create_partitions(&name, count).await?;
    }
    described(&management, &name).await
}

async fn delete_records(
    State(management): State<Arc<Management>>,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Before {
        partition: i32,
        offset: Option<i64>,
    }
    let name = answer::topic_name(&name)?;
    let Before { partition, offset } = management.gate.entity(&headers, body).await?;
    let start = management
        .store
        .delete_records(&name, partition, offset)
        .await?;
    let body = json!({"partition": partition, "start": start});
    Ok(answer::json(StatusCode::OK, JSON, &body))
}

/// The topic's object with its settings, as far as the store tells them.
async fn described(management: &Management, name: &TopicName) -> Result<Response, RestError> {
    let info = management.store.topic(name).await?;
    let mut object = topic_object(&info);
    match management.store.topic_settings(name).await {
        Ok(settings) => {
            object["config"] = settings.iter().map(setting_object).collect();
        }
        Err(StreamsError::Unsupported(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(answer::json(StatusCode::OK, JSON, &object))
}

async fn delete(
    State(management): State<Arc<Management>>,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    management
        .store
        .delete_topic(&answer::topic_name(&name)?)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) fn setting_object(setting: &HeldSetting) -> Value {
    json!({"name": setting.name, "value": setting.value, "is_set": setting.is_set})
}

/// The changes that a map of values asks for, null for the defaults.
pub(crate) fn changes(config: BTreeMap<String, Option<String>>) -> Vec<ConfigChange> {
    let changes = config.into_iter().map(|(name, value)| match value {
        Some(value) => ConfigChange::Set(name, value),
        None => ConfigChange::Unset(name),
    });
    changes.collect()
}

pub(crate) fn topic_object(info: &TopicInfo) -> Value {
    let offsets: Vec<Value> = info
        .partition_offsets
        .iter()
        .enumerate()
        .map(|(partition, range)| {
            json!({"partition": partition, "start": range.start, "end": range.end})
        })
        .collect();
    json!({
        "name": info.name.display(),
        "wire_name": info.name.wire_name(),
        "partitions": info.partitions,
        "records_in_total": info.records_in_total,
        "bytes_in_total": info.bytes_in_total,
        "bytes_stored": info.bytes_stored,
        "durability": info.durability,
        "offsets": offsets,
    })
}

const JSON: &str = "application/json";

/// Bytes of a request to create or change a topic: names and settings are short.
const BODY_BYTES_MAX: u64 = 64 << 10;
