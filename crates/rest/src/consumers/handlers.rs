//! The calls on consumer instances, as kafka-rest documents them for version 2.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use regex::RegexBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use streams::{OffsetReset, SeekTo, StreamsError, TopicName};
use uuid::Uuid;

use super::{InstanceConfig, InstanceKey, Interest, read};
use crate::answer::{self, AnswerType, Parameters, Segments};
use crate::error::RestError;
use crate::limits;
use crate::media::{self, ApiVersion, Embedded};
use crate::routes::Shared;

type InstancePath = Segments<(String, String)>;

/// `POST /consumers/{group}`
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    AnswerType(media): AnswerType,
    Segments(group): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let body = v2_body(&shared, &headers, body).await?;
    let (name, config) = instance_config(&body)?;
    for name in [&group, &name] {
        if name.is_empty() || name.len() > limits::NAME_BYTES_MAX {
            return Err(RestError::Constraint(format!(
                "group and instance names are 1 to {} bytes long",
                limits::NAME_BYTES_MAX
            )));
        }
    }
    let host = answer::text(&headers, header::HOST).unwrap_or(&shared.config.listen);
    let authority = shared
        .config
        .advertised
        .clone()
        .unwrap_or_else(|| format!("http://{host}"));
    let base_uri = format!(
        "{authority}/consumers/{}/instances/{}",
        segment(&group),
        segment(&name)
    );
    let key = InstanceKey {
        group,
        instance: name.clone(),
    };
    shared.consumers.create(key, config).await?;
    let body = Created {
        instance_id: name,
        base_uri,
    };
    Ok(answer::json(StatusCode::OK, media, &body))
}

/// `DELETE /consumers/{group}/instances/{instance}`
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
) -> Result<Response, RestError> {
    shared.consumers.delete(&group, &instance).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/subscription`
pub(crate) async fn subscribe(
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Subscription {
        topics: Option<Vec<String>>,
        topic_pattern: Option<String>,
    }
    let instance = shared.consumers.find(&group, &instance)?;
    let body = v2_body(&shared, &headers, body).await?;
    let asked: Subscription = answer::entity(&body)?;
    let mut reader = instance.reader().await?;
    if matches!(reader.interest, Interest::Partitions) {
        return Err(illegal(
            "the instance has assigned partitions; delete it to subscribe",
        ));
    }
    let interest = match (asked.topics, asked.topic_pattern) {
        (Some(topics), None) => {
            bounded(topics.len())?;
            let topics = topics
                .iter()
                .map(|name| named(name))
                .collect::<Result<_, _>>()?;
            Interest::Topics(topics)
        }
        (None, Some(pattern)) => {
            let pattern = RegexBuilder::new(&format!("^(?:{pattern})$"))
                .size_limit(limits::PATTERN_BYTES_MAX)
                .build()
                .map_err(|error| {
                    RestError::InvalidEntity(format!("topic_pattern is no pattern: {error}"))
                })?;
            let topics = read::matching(&*shared.store, &pattern).await?;
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
    let topics = match &interest {
        Interest::Topics(topics) | Interest::Pattern { topics, .. } => topics.clone(),
        Interest::Nothing | Interest::Partitions => Vec::new(),
    };
    reader.consumer()?.subscribe(topics).await?;
    reader.interest = interest;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/subscription`
pub(crate) async fn subscription(
    State(shared): State<Arc<Shared>>,
    AnswerType(media): AnswerType,
    Segments((group, instance)): InstancePath,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let reader = instance.reader().await?;
    let topics: Vec<&str> = match &reader.interest {
        Interest::Topics(topics) | Interest::Pattern { topics, .. } => {
            topics.iter().map(TopicName::display).collect()
        }
        Interest::Nothing | Interest::Partitions => Vec::new(),
    };
    Ok(answer::json(
        StatusCode::OK,
        media,
        &json!({"topics": topics}),
    ))
}

/// `DELETE …/subscription`: gives up assigned partitions too, as Kafka's unsubscribe does.
pub(crate) async fn unsubscribe(
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let mut reader = instance.reader().await?;
    if !matches!(reader.interest, Interest::Nothing) {
        reader.consumer()?.assign(Vec::new()).await?;
        reader.interest = Interest::Nothing;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/assignments`
pub(crate) async fn assign(
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let body = v2_body(&shared, &headers, body).await?;
    let partitions = answer::entity::<Partitions>(&body)?.named()?;
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
    reader.interest = Interest::Partitions;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/assignments`
pub(crate) async fn assignments(
    State(shared): State<Arc<Shared>>,
    AnswerType(media): AnswerType,
    Segments((group, instance)): InstancePath,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
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
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let body = v2_body(&shared, &headers, body).await?;
    let offsets = answer::entity::<Offsets>(&body)?.named()?;
    let mut reader = instance.reader().await?;
    for (topic, partition, offset, _) in offsets {
        reader
            .consumer()?
            .seek(&topic, partition, SeekTo::Offset(offset))
            .await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/positions/beginning`
pub(crate) async fn seek_to_beginning(
    state: State<Arc<Shared>>,
    path: InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    seek_all(state, path, headers, body, SeekTo::Beginning).await
}

/// `POST …/positions/end`
pub(crate) async fn seek_to_end(
    state: State<Arc<Shared>>,
    path: InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    seek_all(state, path, headers, body, SeekTo::End).await
}

async fn seek_all(
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
    headers: HeaderMap,
    body: Body,
    to: SeekTo,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let body = v2_body(&shared, &headers, body).await?;
    let partitions = answer::entity::<Partitions>(&body)?.named()?;
    let mut reader = instance.reader().await?;
    for (topic, partition) in partitions {
        reader.consumer()?.seek(&topic, partition, to).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/records`
pub(crate) async fn records(
    State(shared): State<Arc<Shared>>,
    Segments((group, instance)): InstancePath,
    Parameters(limits): Parameters<read::ReadLimits>,
    headers: HeaderMap,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let accept = answer::joined(&headers, header::ACCEPT);
    let media = media::read_type(accept.as_deref(), instance.config.format)?;
    let body = read::records(&shared, &instance, limits).await?;
    instance.touch(shared.clock.now());
    Ok(answer::bytes(StatusCode::OK, media, body))
}

/// `POST …/offsets`: commits what the body names, or with an empty body everything read.
///
/// An offset in the body is that of the last record that is done with, as in kafka-rest: what is
/// committed, and answered by `GET …/offsets`, is the next one.
pub(crate) async fn commit(
    State(shared): State<Arc<Shared>>,
    AnswerType(media): AnswerType,
    Segments((group, instance)): InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let instance = shared.consumers.find(&group, &instance)?;
    let body = v2_body(&shared, &headers, body).await?;
    let mut reader = instance.reader().await?;
    let offsets = if body.trim_ascii().is_empty() {
        None
    } else {
        let mut offsets = answer::entity::<Offsets>(&body)?.named()?;
        for (_, _, offset, _) in &mut offsets {
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
    State(shared): State<Arc<Shared>>,
    AnswerType(media): AnswerType,
    Segments((group, instance)): InstancePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Serialize)]
    struct Committed<'a> {
        topic: &'a str,
        partition: i32,
        offset: i64,
        metadata: &'a str,
    }
    shared.consumers.find(&group, &instance)?;
    let body = v2_body(&shared, &headers, body).await?;
    if body.trim_ascii().is_empty() {
        return Err(RestError::PartitionsMissing);
    }
    let partitions = answer::entity::<Partitions>(&body)?.named()?;
    let found = shared.store.committed(&group, &partitions).await?;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Partitions {
    partitions: Vec<PartitionName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitionName {
    topic: String,
    partition: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Offsets {
    offsets: Vec<OffsetName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OffsetName {
    topic: String,
    partition: i32,
    offset: i64,
    #[serde(default)]
    metadata: Option<String>,
}

impl Partitions {
    fn named(self) -> Result<Vec<(TopicName, i32)>, RestError> {
        bounded(self.partitions.len())?;
        self.partitions
            .iter()
            .map(|entry| Ok((named(&entry.topic)?, entry.partition)))
            .collect()
    }
}

impl Offsets {
    fn named(self) -> Result<Vec<(TopicName, i32, i64, String)>, RestError> {
        bounded(self.offsets.len())?;
        let one = |entry: OffsetName| {
            if entry.offset < 0 {
                return Err(RestError::InvalidEntity(
                    "an offset is 0 or more".to_owned(),
                ));
            }
            let metadata = entry.metadata.unwrap_or_default();
            Ok((
                named(&entry.topic)?,
                entry.partition,
                entry.offset,
                metadata,
            ))
        };
        self.offsets.into_iter().map(one).collect()
    }
}

fn named(topic: &str) -> Result<TopicName, RestError> {
    topic
        .parse()
        .map_err(|error| RestError::Store(StreamsError::InvalidTopic(error)))
}

fn bounded(named: usize) -> Result<(), RestError> {
    if named <= limits::NAMED_PARTITIONS_MAX {
        return Ok(());
    }
    Err(RestError::InvalidEntity(format!(
        "more than {} topics or partitions in one request",
        limits::NAMED_PARTITIONS_MAX
    )))
}

fn illegal(reason: &str) -> RestError {
    RestError::IllegalState(reason.to_owned())
}

/// The body of a consumer call, which speaks version 2 or nothing in particular.
async fn v2_body(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<bytes::Bytes, RestError> {
    let content_type = answer::text(headers, header::CONTENT_TYPE);
    match media::body_type(content_type)?.version {
        ApiVersion::V2 => Ok(shared.gate.read(headers, body).await?.bytes),
        ApiVersion::V1 => Err(RestError::UnsupportedMediaType(
            // Consumers of the first version read by other paths; taking this one's settings for
            // those of version 2 would turn "smallest" into an error far from its cause.
            content_type.unwrap_or_default().to_owned(),
        )),
    }
}

/// Reads the settings of a new instance; an empty body asks for the defaults.
fn instance_config(body: &[u8]) -> Result<(String, InstanceConfig), RestError> {
    let fields: Map<String, Value> = if body.trim_ascii().is_empty() {
        Map::new()
    } else {
        answer::entity(body)?
    };
    let (mut id, mut name) = (None, None);
    let mut config = InstanceConfig {
        format: Embedded::Binary,
        reset: OffsetReset::Latest,
        auto_commit: true,
        bytes_min: 1,
        wait_max: None,
    };
    for (field, value) in &fields {
        let invalid = || RestError::InvalidConsumerConfig(format!("{field} cannot be {value}"));
        // Numbers and booleans come as text from many clients, since kafka-rest's examples do so.
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Array(_) | Value::Object(_) => return Err(invalid()),
        };
        match field.as_str() {
            "id" => id = Some(text),
            "name" => name = Some(text),
            "format" => {
                config.format = match text.to_ascii_lowercase().as_str() {
                    "binary" => Embedded::Binary,
                    "json" => Embedded::Json,
                    _ => {
                        return Err(RestError::InvalidEntity(format!(
                            "format '{text}' is not served; choose binary or json"
                        )));
                    }
                }
            }
            "auto.offset.reset" => {
                config.reset = match text.to_ascii_lowercase().as_str() {
                    "earliest" => OffsetReset::Earliest,
                    "latest" => OffsetReset::Latest,
                    _ => return Err(invalid()),
                }
            }
            "auto.commit.enable" => {
                config.auto_commit = text.to_ascii_lowercase().parse().map_err(|_| invalid())?;
            }
            "fetch.min.bytes" | "responseMinBytes" => {
                let bytes: i64 = text.parse().map_err(|_| invalid())?;
                if !(-1..=limits::FETCH_MIN_BYTES_MAX).contains(&bytes) {
                    return Err(RestError::Constraint(format!(
                        "{field} is -1 to {}",
                        limits::FETCH_MIN_BYTES_MAX
                    )));
                }
                config.bytes_min = usize::try_from(bytes.max(1)).unwrap_or(1);
            }
            "consumer.request.timeout.ms" | "requestWaitMs" => {
                let ms: u64 = text.parse().map_err(|_| invalid())?;
                config.wait_max = Some(Duration::from_millis(ms).min(limits::READ_WAIT_MAX));
            }
            _ => {
                return Err(RestError::InvalidEntity(format!(
                    "unrecognized field: {field}"
                )));
            }
        }
    }
    let name = name.or_else(|| {
        id.as_ref()
            .map(|id| format!("rest-consumer-{id}-{}", Uuid::new_v4()))
    });
    Ok((
        name.unwrap_or_else(|| format!("rest-consumer-{}", Uuid::new_v4())),
        config,
    ))
}

/// Percent-encodes a path segment.
fn segment(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
