//! Metadata: brokers, topics, partitions, offsets.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;
use streams::{StreamsError, TopicInfo, TopicName};

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
pub(crate) async fn brokers(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
) -> Result<Response, RestError> {
    let brokers = shared.store.cluster().await?.brokers;
    let ids: Vec<i32> = brokers.iter().map(|broker| broker.id).collect();
    let body = json!({"brokers": ids});
    Ok(answer::json(StatusCode::OK, media, &body))
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
    let (name, partitions) = lying(&shared, &topic).await?;
    let settings = match shared.store.topic_settings(&name).await {
        // Who may know of a topic need not know its settings.
        Err(StreamsError::NotAllowed { .. }) => Vec::new(),
        settings => settings?,
    };
    let settings = settings.into_iter();
    let body = TopicObject {
        name: name.display(),
        configs: settings.map(|it| (it.name, it.value)).collect(),
        partitions,
    };
    Ok(answer::json(StatusCode::OK, media, &body))
}

/// `GET /topics/{topic}/partitions`
pub(crate) async fn partitions(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments(topic): Segments<String>,
) -> Result<Response, RestError> {
    let (_, partitions) = lying(&shared, &topic).await?;
    Ok(answer::json(StatusCode::OK, media, &partitions))
}

/// `GET /topics/{topic}/partitions/{partition}`
pub(crate) async fn partition(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments((topic, partition)): Segments<(String, String)>,
) -> Result<Response, RestError> {
    let (name, partitions) = lying(&shared, &topic).await?;
    let count = i32::try_from(partitions.len()).unwrap_or(i32::MAX);
    let index = existing_partition(&name, count, &partition)?;
    let found = partitions.iter().find(|found| found.partition == index);
    Ok(answer::json(StatusCode::OK, media, &found))
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
    let name = shared.config.topic_name(topic)?;
    shared.store.topic(&name).await.map_err(RestError::from)
}

/// Where the partitions of a topic lie.
async fn lying(
    shared: &Shared,
    topic: &str,
) -> Result<(TopicName, Vec<PartitionObject>), RestError> {
    let name = shared.config.topic_name(topic)?;
    let found = shared.store.replicas(Some(&name)).await?;
    let (name, lying) = found
        .into_iter()
        .next()
        .ok_or(StreamsError::UnknownTopic(name))?;
    let objects = lying.iter().zip(0..).map(|(lies, partition)| {
        let replica = |broker: &i32| Replica {
            broker: *broker,
            leader: lies.leader == Some(*broker),
            in_sync: lies.in_sync.contains(broker),
        };
        PartitionObject {
            partition,
            leader: lies.leader.unwrap_or(NO_LEADER),
            replicas: lies.replicas.iter().map(replica).collect(),
        }
    });
    Ok((name, objects.collect()))
}

// Structures rather than maps: their fields go out in the order in which others document them.

#[derive(Serialize)]
struct TopicObject<'a> {
    name: &'a str,
    configs: BTreeMap<&'static str, String>,
    partitions: Vec<PartitionObject>,
}

#[derive(Serialize)]
struct PartitionObject {
    partition: i32,
    leader: i32,
    replicas: Vec<Replica>,
}

#[derive(Serialize)]
struct Replica {
    broker: i32,
    leader: bool,
    in_sync: bool,
}

/// In place of a leader while there is none.
const NO_LEADER: i32 = -1;
