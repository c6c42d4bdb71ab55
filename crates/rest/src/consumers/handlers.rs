//! The calls on consumer instances, as kafka-rest documents them for version 2; version 1 shares
//! creation, deletion and commits, and has the rest in [`super::v1`].

use std::collections::BTreeMap;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use streams::{SeekTo, TopicName};

use super::request::{
    AnyBody, Found, FoundAny, Offsets, Partitions, Position, Positions, V2Body, bounded,
    instance_config, named, whole_name,
};
use super::{Instance, InstanceConfig, InstanceKey, Interest, elsewhere, patterns, read, v1};
use crate::answer::{self, AnswerType, Parameters, Segments};
use crate::answers::kept;
use crate::error::RestError;
use crate::limits;
use crate::login::{Asked, Owner};
use crate::media::{self, ApiVersion};
use crate::routes::Shared;

/// `POST /consumers/{group}`
pub(crate) async fn create(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments(group): Segments<String>,
    headers: HeaderMap,
    Owner(owner): Owner,
    body: AnyBody,
) -> Result<Response, RestError> {
    let isolation = shared.config.isolation;
    let (name, config) = instance_config(body.version, &body.bytes, isolation)?;
    for name in [&group, &name] {
        if name.is_empty() || name.len() > limits::NAME_BYTES_MAX {
            return Err(RestError::Constraint(format!(
                "group and instance names are 1 to {} bytes long",
                limits::NAME_BYTES_MAX
            )));
        }
    }
    let authority = answer::authority(&shared.config, &headers);
    let base_uri = format!(
        "{authority}/consumers/{}/instances/{}",
        answer::segment(&group),
        answer::segment(&name)
    );
    let key = InstanceKey {
        group,
        instance: name.clone(),
    };
    shared
        .consumers
        .create(&shared.store, owner, key, config, &body.bytes)
        .await?;
    let body = Created {
        instance_id: name,
        base_uri,
    };
    Ok(answer::json(StatusCode::OK, media, &body))
}

/// `DELETE /consumers/{group}/instances/{instance}`
pub(crate) async fn delete(
    Asked(shared): Asked,
    FoundAny(instance): FoundAny,
) -> Result<Response, RestError> {
    shared.consumers.delete(&instance).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/subscription`
pub(crate) async fn subscribe(
    Asked(shared): Asked,
    Found(instance): Found,
    V2Body(body): V2Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Subscription {
        topics: Option<Vec<String>>,
        topic_pattern: Option<String>,
    }
    let asked: Subscription = answer::entity(&body)?;
    let mut reader = instance.reader().await?;
    if matches!(reader.interest, Interest::Partitions) {
        return Err(illegal(
            "the instance has assigned partitions; delete it to subscribe",
        ));
    }
    let interest = match (asked.topics, asked.topic_pattern) {
        // As Kafka's consumers take it.
        (Some(topics), None) if topics.is_empty() => {
            drop(reader);
            return unsubscribe(Asked(shared), Found(instance)).await;
        }
        (Some(topics), None) => {
            bounded(topics.len())?;
            let topics = topics
                .iter()
                .map(|name| named(&shared.config, name))
                .collect::<Result<_, _>>()?;
            Interest::Topics(topics)
        }
        (None, Some(pattern)) => {
            let pattern = whole_name(&pattern)?;
            let topics = patterns::matching(&shared, &pattern).await?;
            Interest::Pattern {
                pattern,
                topics,
                looked_at: shared.clock.now(),
            }
        }
        (Some(_), Some(_)) => {
            return Err(illegal(
                "topics and topic_pattern exclude each other; send one",
            ));
        }
        (None, None) => {
            return Err(RestError::InvalidEntity(
                "send topics or topic_pattern".to_owned(),
            ));
        }
    };
    let consumer = reader.consumer()?;
    match &interest {
        Interest::Pattern { topics, .. } => {
            patterns::follow(consumer.as_mut(), topics.clone()).await?;
        }
        Interest::Topics(topics) => consumer.subscribe(topics.clone()).await?,
        Interest::Nothing | Interest::Partitions => {}
    }
    reader.begin(interest);
    shared.consumers.note(&instance, &mut reader).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/subscription`
pub(crate) async fn subscription(
    AnswerType(media): AnswerType,
    Found(instance): Found,
) -> Result<Response, RestError> {
    let mut reader = instance.reader().await?;
    let topics: Vec<&str> = match &reader.interest {
        Interest::Topics(topics) | Interest::Pattern { topics, .. } => {
            topics.iter().map(TopicName::display).collect()
        }
        Interest::Nothing | Interest::Partitions => Vec::new(),
    };
    let mut body = json!({"topics": topics});
    // Strimzi's bridge tells here what is assigned, too: of each topic the numbers.
    if instance.config.commits_next {
        let mut assigned: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in reader.consumer()?.assignment() {
            let of_topic = assigned.entry(topic.display().to_owned()).or_default();
            of_topic.push(partition);
        }
        let partitions = assigned.into_iter();
        let partitions = partitions.map(|(topic, numbers)| json!({topic: numbers}));
        body["partitions"] = partitions.collect();
    }
    Ok(answer::json(StatusCode::OK, media, &body))
}

/// `DELETE …/subscription`: gives up assigned partitions too, as Kafka's unsubscribe does.
pub(crate) async fn unsubscribe(
    Asked(shared): Asked,
    Found(instance): Found,
) -> Result<Response, RestError> {
    let mut reader = instance.reader().await?;
    if !matches!(reader.interest, Interest::Nothing) {
        reader.consumer()?.assign(Vec::new()).await?;
        reader.begin(Interest::Nothing);
        shared.consumers.note(&instance, &mut reader).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/assignments`
pub(crate) async fn assign(
    Asked(shared): Asked,
    Found(instance): Found,
    V2Body(body): V2Body,
) -> Result<Response, RestError> {
    let partitions = answer::entity::<Partitions>(&body)?.named(&shared.config)?;
    let mut reader = instance.reader().await?;
    if matches!(
        reader.interest,
        Interest::Topics(_) | Interest::Pattern { .. }
    ) {
        return Err(illegal(
            "the instance has a subscription; delete that first",
        ));
    }
    reader.consumer()?.assign(partitions).await?;
    reader.begin(Interest::Partitions);
    shared.consumers.note(&instance, &mut reader).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/assignments`
pub(crate) async fn assignments(
    AnswerType(media): AnswerType,
    Found(instance): Found,
) -> Result<Response, RestError> {
    let mut reader = instance.reader().await?;
    let partitions: Vec<Value> = reader
        .consumer()?
        .assignment()
        .iter()
        .map(|(topic, partition)| json!({"topic": topic.display(), "partition": partition}))
        .collect();
    Ok(answer::json(
        StatusCode::OK,
        media,
        &json!({"partitions": partitions}),
    ))
}

/// `POST …/positions`
pub(crate) async fn seek(
    Asked(shared): Asked,
    Found(instance): Found,
    V2Body(body): V2Body,
) -> Result<Response, RestError> {
    let positions = answer::entity::<Positions>(&body)?.named(&shared.config)?;
    let mut reader = instance.reader().await?;
    for (topic, partition, position) in positions {
        let to = match position {
            Position::Offset(offset) => SeekTo::Offset(offset),
            Position::Time(at) => {
                let found = shared.store.offset_for_time(&topic, partition, at).await?;
                found.map_or(SeekTo::End, SeekTo::Offset)
            }
        };
        reader.seek(topic, partition, to).await?;
    }
    shared.consumers.note(&instance, &mut reader).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/positions/beginning`
pub(crate) async fn seek_to_beginning(
    Asked(shared): Asked,
    Found(instance): Found,
    V2Body(body): V2Body,
) -> Result<Response, RestError> {
    seek_all(&shared, &instance, &body, SeekTo::Beginning).await
}

/// `POST …/positions/end`
pub(crate) async fn seek_to_end(
    Asked(shared): Asked,
    Found(instance): Found,
    V2Body(body): V2Body,
) -> Result<Response, RestError> {
    seek_all(&shared, &instance, &body, SeekTo::End).await
}

async fn seek_all(
    shared: &Shared,
    instance: &Instance,
    body: &[u8],
    to: SeekTo,
) -> Result<Response, RestError> {
    let partitions = answer::entity::<Partitions>(body)?.named(&shared.config)?;
    let mut reader = instance.reader().await?;
    for (topic, partition) in partitions {
        reader.seek(topic, partition, to).await?;
    }
    shared.consumers.note(instance, &mut reader).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/records`
pub(crate) async fn records(
    Asked(shared): Asked,
    Found(instance): Found,
    Parameters(limits): Parameters<read::ReadLimits>,
    headers: HeaderMap,
) -> Result<Response, RestError> {
    let accept = answer::joined(&headers, header::ACCEPT);
    let InstanceConfig {
        format, version, ..
    } = instance.config;
    let media = media::read_type(accept.as_deref(), format, version)?;
    let (body, share) =
        read::records(&shared, &instance, limits, elsewhere::mark_of(&headers)).await?;
    instance.touch(shared.clock.now());
    Ok(kept(answer::bytes(StatusCode::OK, media, body), share))
}

/// `POST …/offsets`: commits what the body names, or with an empty body everything read.
///
/// An offset in the body is that of the last record that is done with, as in kafka-rest: what is
/// committed, and answered by `GET …/offsets`, is the next one. An instance that was made in the words
/// of Strimzi's bridge commits offsets as they are, and is answered as there.
pub(crate) async fn commit(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    FoundAny(instance): FoundAny,
    headers: HeaderMap,
    AnyBody { bytes: body, .. }: AnyBody,
) -> Result<Response, RestError> {
    if instance.config.version == ApiVersion::V1 {
        return v1::commit(&shared, &instance, &headers, &body).await;
    }
    let commits_next = instance.config.commits_next;
    let mut reader = instance.reader().await?;
    let offsets = if body.trim_ascii().is_empty() {
        None
    } else {
        let mut offsets = answer::entity::<Offsets>(&body)?.named(&shared.config)?;
        for (_, _, offset, _) in offsets.iter_mut().filter(|_| !commits_next) {
            *offset = offset.checked_add(1).ok_or_else(|| {
                RestError::InvalidEntity("an offset is below 2^63 - 1".to_owned())
            })?;
        }
        Some(offsets)
    };
    let everything = offsets.is_none();
    let committed = reader.consumer()?.commit(offsets).await?;
    reader.committed_at = shared.clock.now();
    reader.uncommitted &= !everything;
    if commits_next {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let answers: Vec<Value> = committed
        .iter()
        .map(|(topic, partition, offset)| {
            let topic = topic.display();
            json!({"topic": topic, "partition": partition, "consumed": offset, "committed": offset})
        })
        .collect();
    Ok(answer::json(StatusCode::OK, media, &answers))
}

/// `GET …/offsets`, with a body that names the partitions.
pub(crate) async fn committed(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Found(instance): Found,
    V2Body(body): V2Body,
) -> Result<Response, RestError> {
    #[derive(Serialize)]
    struct Committed<'a> {
        topic: &'a str,
        partition: i32,
        offset: i64,
        metadata: &'a str,
    }
    if body.trim_ascii().is_empty() {
        return Err(RestError::PartitionsMissing);
    }
    let partitions = answer::entity::<Partitions>(&body)?.named(&shared.config)?;
    let found = shared
        .store
        .committed(&instance.key.group, &partitions)
        .await?;
    let offsets: Vec<Committed<'_>> = partitions
        .iter()
        .zip(&found)
        .filter_map(|((topic, partition), committed)| {
            let committed = committed.as_ref()?;
            Some(Committed {
                topic: topic.display(),
                partition: *partition,
                offset: committed.offset,
                metadata: &committed.metadata,
            })
        })
        .collect();
    Ok(answer::json(
        StatusCode::OK,
        media,
        &json!({"offsets": offsets}),
    ))
}

#[derive(Serialize)]
struct Created {
    instance_id: String,
    base_uri: String,
}

fn illegal(reason: &str) -> RestError {
    RestError::IllegalState(reason.to_owned())
}
