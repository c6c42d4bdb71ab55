//! What consumer calls bring: the instance that they name, their body, and the shapes in it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use base::{UnixMillis, parse_rfc3339};
use bytes::Bytes;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, Value};
use streams::{Isolation, OffsetReset, StreamsError, TopicName};
use uuid::Uuid;

use super::{Instance, InstanceConfig, not_found};
use crate::answer::{self, JsonObject, Segments, or_default};
use crate::config::RestConfig;
use crate::error::RestError;
use crate::limits;
use crate::login::principal_of;
use crate::media::{self, ApiVersion, Embedded};
use crate::properties;
use crate::routes::Shared;

/// The instance of version 2 that the path names; calls on none are answered 40403 before their
/// body is read.
pub(crate) struct Found(pub Arc<Instance>);

/// The instance that the path names, of the version that the call names if it names one.
pub(crate) struct FoundAny(pub Arc<Instance>);

/// The body of a call of version 2, which speaks that version or nothing in particular.
pub(crate) struct V2Body(pub Bytes);

/// The body of a call that both versions have.
pub(crate) struct AnyBody {
    pub version: ApiVersion,
    pub bytes: Bytes,
}

impl FromRequestParts<Arc<Shared>> for Found {
    type Rejection = RestError;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, RestError> {
        find(parts, shared, Some(ApiVersion::V2)).await.map(Found)
    }
}

impl FromRequestParts<Arc<Shared>> for FoundAny {
    type Rejection = RestError;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, RestError> {
        let named = answer::named(&parts.headers);
        find(parts, shared, named).await.map(FoundAny)
    }
}

/// The instance that a path names, if it is of this version.
pub(super) async fn find(
    parts: &mut Parts,
    shared: &Arc<Shared>,
    version: Option<ApiVersion>,
) -> Result<Arc<Instance>, RestError> {
    #[derive(Deserialize)]
    struct InstancePath {
        group: String,
        instance: String,
    }
    let Segments(InstancePath { group, instance }) =
        Segments::from_request_parts(parts, shared).await?;
    let caller = principal_of(parts);
    let found = shared.consumers.find(caller.as_ref(), &group, &instance)?;
    match version.is_none_or(|version| version == found.config.version) {
        true => Ok(found),
        false => Err(not_found(&found.key)),
    }
}

impl FromRequest<Arc<Shared>> for V2Body {
    type Rejection = RestError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, RestError> {
        let content_type = answer::text(request.headers(), header::CONTENT_TYPE);
        if media::body_type(content_type)?.version == ApiVersion::V1 {
            // The call is one that the first version does not have.
            let content_type = content_type.unwrap_or_default().to_owned();
            return Err(RestError::UnsupportedMediaType(content_type));
        }
        let body = AnyBody::from_request(request, shared).await?;
        Ok(V2Body(body.bytes))
    }
}

impl FromRequest<Arc<Shared>> for AnyBody {
    type Rejection = RestError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, RestError> {
        let (parts, body) = request.into_parts();
        let content_type = answer::text(&parts.headers, header::CONTENT_TYPE);
        let version = media::body_type(content_type)?.version;
        let bytes = shared.gate.read(&parts.headers, body).await?.bytes;
        Ok(AnyBody { version, bytes })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Partitions {
    partitions: Vec<JsonObject<PartitionName>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitionName {
    topic: String,
    partition: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Offsets {
    offsets: Vec<JsonObject<OffsetName>>,
}

/// Where to read on, by offset and by time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Positions {
    #[serde(default, deserialize_with = "or_default")]
    offsets: Vec<JsonObject<OffsetName>>,
    #[serde(default, deserialize_with = "or_default")]
    timestamps: Vec<JsonObject<TimeName>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeName {
    topic: String,
    partition: i32,
    timestamp: String,
    // What a commit would keep; a position keeps nothing.
    #[serde(default, rename = "metadata")]
    _metadata: Option<String>,
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
    pub(super) fn named(self, config: &RestConfig) -> Result<Vec<(TopicName, i32)>, RestError> {
        bounded(self.partitions.len())?;
        self.partitions
            .iter()
            .map(|JsonObject(entry)| Ok((named(config, &entry.topic)?, entry.partition)))
            .collect()
    }
}

/// A place in a partition: an offset, or the first record of a time or later.
pub(crate) enum Position {
    Offset(i64),
    Time(UnixMillis),
}

impl Positions {
    pub(super) fn named(
        self,
        config: &RestConfig,
    ) -> Result<Vec<(TopicName, i32, Position)>, RestError> {
        let (offsets, times) = (self.offsets, self.timestamps);
        bounded(offsets.len() + times.len())?;
        if offsets.is_empty() && times.is_empty() {
            let text = "name offsets or timestamps to go to";
            return Err(RestError::InvalidEntity(text.to_owned()));
        }
        let offsets = Offsets { offsets }.named(config)?.into_iter();
        let offsets = offsets
            .map(|(topic, partition, offset, _)| Ok((topic, partition, Position::Offset(offset))));
        let times = times.into_iter().map(|JsonObject(entry)| {
            let at = parse_rfc3339(&entry.timestamp).ok_or_else(|| {
                let text = "a timestamp is a time such as 2026-01-31T12:00:00Z";
                RestError::InvalidEntity(text.to_owned())
            })?;
            let at = Position::Time(UnixMillis(at));
            Ok((named(config, &entry.topic)?, entry.partition, at))
        });
        offsets.chain(times).collect()
    }
}

impl Offsets {
    pub(super) fn named(
        self,
        config: &RestConfig,
    ) -> Result<Vec<(TopicName, i32, i64, String)>, RestError> {
        bounded(self.offsets.len())?;
        let one = |JsonObject(entry): JsonObject<OffsetName>| {
            if entry.offset < 0 {
                return Err(RestError::InvalidEntity(
                    "an offset is 0 or more".to_owned(),
                ));
            }
            let metadata = entry.metadata.unwrap_or_default();
            Ok((
                named(config, &entry.topic)?,
                entry.partition,
                entry.offset,
                metadata,
            ))
        };
        self.offsets.into_iter().map(one).collect()
    }
}

pub(super) fn named(config: &RestConfig, topic: &str) -> Result<TopicName, RestError> {
    config
        .name_of(topic)
        .map_err(|error| RestError::Store(StreamsError::InvalidTopic(error)))
}

pub(super) fn bounded(named: usize) -> Result<(), RestError> {
    if named <= limits::NAMED_PARTITIONS_MAX {
        return Ok(());
    }
    Err(RestError::InvalidEntity(format!(
        "more than {} topics or partitions in one request",
        limits::NAMED_PARTITIONS_MAX
    )))
}

/// A pattern that whole names match.
pub(super) fn whole_name(pattern: &str) -> Result<Regex, RestError> {
    // Alone it is one as well, so that no parenthesis of it ends what is around it.
    pattern_of(pattern)?;
    pattern_of(&format!("^(?:{pattern})$"))
}

/// A pattern as it stands.
pub(super) fn pattern_of(text: &str) -> Result<Regex, RestError> {
    RegexBuilder::new(text)
        .size_limit(limits::PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| RestError::InvalidEntity(format!("topic_pattern is no pattern: {error}")))
}

/// Reads the settings of a new instance; an empty body asks for the defaults, `isolation` among
/// them. Version 1 has other
/// words for where to begin, no settings of reads, and commits only what it is told to.
pub(super) fn instance_config(
    version: ApiVersion,
    body: &[u8],
    isolation: Isolation,
) -> Result<(String, InstanceConfig), RestError> {
    let is_v2 = version == ApiVersion::V2;
    let (earliest, latest) = match version {
        ApiVersion::V1 => ("smallest", "largest"),
        ApiVersion::V2 => ("earliest", "latest"),
    };
    let fields: Map<String, Value> = if body.trim_ascii().is_empty() {
        Map::new()
    } else {
        answer::entity(body)?
    };
    let (mut id, mut name) = (None, None);
    let mut config = InstanceConfig {
        version,
        format: Embedded::Binary,
        reset: OffsetReset::Latest,
        auto_commit: is_v2,
        commits_next: false,
        isolation,
        bytes_min: None,
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
                let format = Embedded::of_name(&text.to_ascii_lowercase());
                config.format = format.ok_or_else(|| {
                    RestError::InvalidEntity(format!(
                        "format '{text}' is not served; choose binary, json, text, avro, jsonschema \
                         or protobuf"
                    ))
                })?;
            }
            "auto.offset.reset" => {
                config.reset = match text.to_ascii_lowercase().as_str() {
                    word if word == earliest => OffsetReset::Earliest,
                    word if word == latest => OffsetReset::Latest,
                    _ => return Err(invalid()),
                }
            }
            "auto.commit.enable" => {
                config.auto_commit = text.to_ascii_lowercase().parse().map_err(|_| invalid())?;
            }
            // Strimzi's bridge calls it so, and who calls it so means offsets as that does.
            "enable.auto.commit" if is_v2 => {
                config.auto_commit = text.to_ascii_lowercase().parse().map_err(|_| invalid())?;
                config.commits_next = true;
            }
            "isolation.level" => {
                config.isolation = properties::isolation(&text).ok_or_else(invalid)?;
            }
            "fetch.min.bytes" | "responseMinBytes" if is_v2 => {
                let bytes: i64 = text.parse().map_err(|_| invalid())?;
                if !(-1..=limits::FETCH_MIN_BYTES_MAX).contains(&bytes) {
                    return Err(RestError::Constraint(format!(
                        "{field} is -1 to {}",
                        limits::FETCH_MIN_BYTES_MAX
                    )));
                }
                // -1 is kafka-rest's word for no such bound.
                config.bytes_min = usize::try_from(bytes).ok().map(|bytes| bytes.max(1));
            }
            "consumer.request.timeout.ms" | "requestWaitMs" if is_v2 => {
                let ms: u64 = text.parse().map_err(|_| invalid())?;
                config.wait_max = Some(Duration::from_millis(ms).min(limits::READ_WAIT_MAX));
            }
            name if properties::has_no_effect(name) => {
                text.parse::<i64>().map_err(|_| invalid())?;
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
