//! What Strimzi's bridge has beside kafka-rest: probes, a topic made by one call, records whose
//! receipts nobody waits for. Its format `text` is one of the formats ([`crate::media`]).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use streams::{Replication, StreamsError, TopicSpec};

use crate::answer;
use crate::error::RestError;
use crate::login::Asked;
use crate::media;
use crate::routes::Shared;

/// `GET /healthy`: the proxy runs.
pub(crate) async fn healthy() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// `GET /ready`: the proxy takes requests, which is over as soon as it is told to stop. It asks the
/// store nothing: whoever calls before the store is there is told so, and to come again.
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> StatusCode {
    match shared.closing.is_cancelled() {
        false => StatusCode::NO_CONTENT,
        true => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// `POST /admin/topics` with `{"topic_name", "partitions_count"?, "replication_factor"?}`
pub(crate) async fn create_topic(
    Asked(shared): Asked,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NewTopic {
        topic_name: String,
        partitions_count: Option<i32>,
        replication_factor: Option<i16>,
    }
    media::body_type(answer::text(&headers, header::CONTENT_TYPE))?;
    let held = shared.gate.read(&headers, body).await?;
    let asked: NewTopic = answer::entity(&held.bytes)?;
    let name = shared.config.name_of(&asked.topic_name);
    let replication = match asked.replication_factor {
        None | Some(-1) => Replication::Usual,
        Some(factor) => Replication::Factor(factor.into()),
    };
    if !shared.store.is_shared()
        && !matches!(replication, Replication::Usual | Replication::Factor(1))
    {
        let reason = "more than one replica (there is one broker)";
        return Err(StreamsError::Unsupported(reason).into());
    }
    let spec = TopicSpec {
        partitions: asked.partitions_count,
        replication,
        ..TopicSpec::of(name.map_err(StreamsError::InvalidTopic)?)
    };
    shared.store.create_topic(spec).await?;
    Ok(StatusCode::CREATED.into_response())
}

/// Whether the sender of records wants no receipts: `?async=true`.
pub(crate) struct Unreceipted(pub bool);

impl<S: Sync> FromRequestParts<S> for Unreceipted {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, RestError> {
        #[derive(Deserialize)]
        struct Switch {
            #[serde(rename = "async")]
            is_async: Option<String>,
        }
        if parts.uri.query().is_none() {
            return Ok(Unreceipted(false));
        }
        let found = Query::<Switch>::try_from_uri(&parts.uri);
        let Query(switch) = found.map_err(|error| RestError::BadRequest(error.body_text()))?;
        match switch.is_async.as_deref() {
            None | Some("" | "false") => Ok(Unreceipted(false)),
            Some("true") => Ok(Unreceipted(true)),
            Some(_) => Err(RestError::BadRequest("async is true or false".to_owned())),
        }
    }
}

/// What needs no login, as those who ask have none.
pub(crate) const PROBES: [&str; 2] = ["/healthy", "/ready"];
