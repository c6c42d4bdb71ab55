//! What only version 1 does with a consumer instance: it reads topic by topic, where the first read
//! subscribes, and commits whatever it has read.
//!
//! An instance reads one topic, as kafka-rest's of version 1 do; more topics need more instances.
//! The offsets in a commit's answer are those of the last records, not of the next ones.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::read::{self, ReadLimits};
use super::request::find;
use super::{Instance, InstanceConfig, Interest, elsewhere};
use crate::answer::{self, Parameters, Segments};
use crate::answers::kept;
use crate::error::RestError;
use crate::login::Asked;
use crate::media::{self, ApiVersion};
use crate::routes::Shared;

/// The instance of version 1 that the path names.
pub(crate) struct Found(Arc<Instance>);

impl FromRequestParts<Arc<Shared>> for Found {
    type Rejection = RestError;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, RestError> {
        find(parts, shared, Some(ApiVersion::V1)).await.map(Found)
    }
}

/// `GET …/topics/{topic}?max_bytes=`
pub(crate) async fn read(
    Asked(shared): Asked,
    Found(instance): Found,
    Segments((_, _, topic)): Segments<(String, String, String)>,
    Parameters(limits): Parameters<ReadLimits>,
    headers: HeaderMap,
) -> Result<Response, RestError> {
    let accept = answer::joined(&headers, header::ACCEPT);
    let InstanceConfig {
        format, version, ..
    } = instance.config;
    let media = media::read_type(accept.as_deref(), format, version)?;
    let topic = shared.config.topic_name(&topic)?;
    let mut reader = instance.reader().await?;
    match &reader.interest {
        Interest::Nothing => {
            shared.store.topic(&topic).await?;
            reader.consumer()?.subscribe(vec![topic.clone()]).await?;
            reader.begin(Interest::Topics(vec![topic]));
            shared.consumers.note(&instance, &mut reader).await?;
        }
        Interest::Topics(topics) if *topics == [topic] => {}
        _ => return Err(RestError::SubscribedElsewhere),
    }
    // What it reads does not change any more.
    drop(reader);
    let (body, share) =
        read::records(&shared, &instance, limits, elsewhere::mark_of(&headers)).await?;
    instance.touch(shared.clock.now());
    Ok(kept(answer::bytes(StatusCode::OK, media, body), share))
}

/// `POST …/offsets`: commits all that was read.
pub(super) async fn commit(
    shared: &Shared,
    instance: &Instance,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, RestError> {
    #[derive(Serialize)]
    struct Committed<'a> {
        topic: &'a str,
        partition: i32,
        consumed: i64,
        committed: i64,
    }
    let accept = answer::joined(headers, header::ACCEPT);
    let media = media::answer_type(accept.as_deref(), ApiVersion::V1)?;
    if !matches!(body.trim_ascii(), b"" | b"{}") {
        let text = "version 1 commits all that was read: send an empty body";
        return Err(RestError::InvalidEntity(text.to_owned()));
    }
    let mut reader = instance.reader().await?;
    let committed = reader.consumer()?.commit(None).await?;
    reader.committed_at = shared.clock.now();
    reader.uncommitted = false;
    let answers: Vec<Committed<'_>> = committed
        .iter()
        .map(|(topic, partition, next)| Committed {
            topic: topic.display(),
            partition: *partition,
            consumed: next - 1,
            committed: next - 1,
        })
        .collect();
    Ok(answer::json(StatusCode::OK, media, &answers))
}
