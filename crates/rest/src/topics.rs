//! Metadata: brokers, topics, partitions, offsets.
//!
//! There is one broker and it leads everything: the process itself.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use streams::TopicInfo;

use crate::answer::{self, AnswerType, Segments};
use crate::error::RestError;
use crate::login::Asked;
use crate::produce::existing_partition;
use crate::routes::Shared;

/// `GET /` and `POST /`: the proxy is alive.
pub(crate) async fn root(AnswerType(media): AnswerType) -> Response {
    answer::json(StatusCode::OK, media, &json!({}))
}

/// `GET /brokers`
pub(crate) async fn brokers(AnswerType(media): AnswerType) -> Response {
    answer::json(StatusCode::OK, media, &json!({"brokers": [BROKER_ID]}))
}

/// `GET /topics`
pub(crate) async fn list(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
) -> Result<Response, RestError> {
    let topics = shared.store.topics().await?;
    let names: Vec<&str> = topics.iter().map(|info| info.name.display()).collect();
    Ok(answer::json(StatusCode::OK, media, &names))
}

/// `GET /topics/{topic}`
pub(crate) async fn topic(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments(topic): Segments<String>,
) -> Result<Response, RestError> {
    let info = described(&shared, &topic).await?;
    let body = TopicObject {
        name: info.name.display(),
        configs: json!({"cleanup.policy": "delete"}),
        partitions: (0..info.partitions).map(partition_object).collect(),
    };
    Ok(answer::json(StatusCode::OK, media, &body))
}

/// `GET /topics/{topic}/partitions`
pub(crate) async fn partitions(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments(topic): Segments<String>,
) -> Result<Response, RestError> {
    let info = described(&shared, &topic).await?;
    let objects: Vec<PartitionObject> = (0..info.partitions).map(partition_object).collect();
    Ok(answer::json(StatusCode::OK, media, &objects))
}

/// `GET /topics/{topic}/partitions/{partition}`
pub(crate) async fn partition(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments((topic, partition)): Segments<(String, String)>,
) -> Result<Response, RestError> {
    let info = described(&shared, &topic).await?;
    let partition = existing_partition(&info.name, info.partitions, &partition)?;
    Ok(answer::json(
        StatusCode::OK,
        media,
        &partition_object(partition),
    ))
}

/// `GET /topics/{topic}/partitions/{partition}/offsets`
pub(crate) async fn offsets(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments((topic, partition)): Segments<(String, String)>,
) -> Result<Response, RestError> {
    let info = described(&shared, &topic).await?;
    let partition = existing_partition(&info.name, info.partitions, &partition)?;
    let range = usize::try_from(partition)
        .ok()
        .and_then(|index| info.partition_offsets.get(index))
        .ok_or_else(|| RestError::PartitionNotFound {
            topic: info.name.display().to_owned(),
            partition: partition.to_string(),
            partitions: info.partitions,
        })?;
    let body = json!({"beginning_offset": range.start, "end_offset": range.end});
    Ok(answer::json(StatusCode::OK, media, &body))
}

async fn described(shared: &Shared, topic: &str) -> Result<TopicInfo, RestError> {
    let name = answer::topic_name(topic)?;
    shared.store.topic(&name).await.map_err(RestError::from)
}

fn partition_object(partition: i32) -> PartitionObject {
    let replica = Replica {
        broker: BROKER_ID,
        leader: true,
        in_sync: true,
    };
    PartitionObject {
        partition,
        leader: BROKER_ID,
        replicas: [replica],
    }
}

// Structures rather than maps: their fields go out in the order in which others document them.

#[derive(Serialize)]
struct TopicObject<'a> {
    name: &'a str,
    configs: Value,
    partitions: Vec<PartitionObject>,
}

#[derive(Serialize)]
struct PartitionObject {
    partition: i32,
    leader: i32,
    replicas: [Replica; 1],
}

#[derive(Serialize)]
struct Replica {
    broker: i32,
    leader: bool,
    in_sync: bool,
}

/// The node id that the store's Kafka listener gives itself unless configured.
const BROKER_ID: i32 = 1;
