//! Topics.

use std::collections::BTreeMap;

use access::Operation;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use streams::{
    PartitionReplicas, Replication, StreamsError, TopicConfig, TopicInfo, TopicName, TopicSpec,
};

use super::Here;
use super::form::{Object, Place, Related, json};
use super::refusal::Refusal;
use crate::answer::{self, JsonObject, Parameters, Segments, or_default};
use crate::body::HeldBody;
use crate::error::RestError;
use crate::media;

#[derive(Deserialize)]
pub(super) struct TopicPath {
    pub topic: String,
}

#[derive(Deserialize)]
pub(super) struct TopicParameters {
    /// Whether to tell what the caller may do to a topic.
    #[serde(default)]
    include_authorized_operations: bool,
}

/// `GET …/topics`
pub(super) async fn list(
    here: Here,
    Parameters(asked): Parameters<TopicParameters>,
) -> Result<Response, Refusal> {
    let lying = here.shared.store.replicas(None).await?;
    let mut objects = Vec::with_capacity(lying.len());
    for (name, lying) in &lying {
        let mut fields = here.topic_fields(name, lying);
        if asked.include_authorized_operations {
            fields.authorized_operations = here.operations(name).await?;
        }
        objects.push(here.topic_place(name).object("KafkaTopic", fields));
    }
    Ok(here.place.list("topics", "KafkaTopic", objects))
}

/// `POST …/topics`: 201, or 200 when it is only to be checked
pub(super) async fn create(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NewTopic {
        topic_name: String,
        partitions_count: Option<i32>,
        replication_factor: Option<i16>,
        #[serde(default, deserialize_with = "or_default")]
        replicas_assignments: BTreeMap<String, Vec<i32>>,
        #[serde(default, deserialize_with = "or_default")]
        configs: Vec<JsonObject<Setting>>,
        #[serde(default, deserialize_with = "or_default")]
        validate_only: bool,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Setting {
        name: String,
        value: Option<String>,
    }
    let held = here.entity(&headers, body).await?;
    let asked: NewTopic = answer::entity(&held.bytes)?;
    let named = here.shared.config.name_of(&asked.topic_name);
    let name: TopicName = named.map_err(StreamsError::InvalidTopic)?;
    let leader = here.leader()?;
    let replication = replication(asked.replication_factor, &asked.replicas_assignments)?;
    if !here.shared.store.is_shared() && !replication.fits_one(leader) {
        let reason = "there is one broker: one replica of each partition, on that broker";
        return Err(StreamsError::Unsupported(reason).into());
    }
    let partitions = match &replication {
        Replication::Assigned(assigned) => i32::try_from(assigned.len()).ok(),
        _ => asked.partitions_count,
    };
    let set = asked.configs.iter().map(|JsonObject(setting)| setting);
    let set = set.filter_map(|setting| Some((&*setting.name, setting.value.as_deref()?)));
    let spec = TopicSpec {
        name: name.clone(),
        partitions,
        durability: None,
        replication: replication.clone(),
        config: TopicConfig::of(set).map_err(StreamsError::InvalidConfig)?,
    };
    if !asked.validate_only {
        here.shared.store.create_topic(spec).await?;
        let mut response = json(StatusCode::CREATED, &here.topic_object(&name).await?);
        if let Ok(at) = HeaderValue::try_from(here.topic_place(&name).related().url()) {
            response.headers_mut().insert(header::LOCATION, at);
        }
        return Ok(response);
    }
    if here.shared.store.topic(&name).await.is_ok() {
        return Err(StreamsError::TopicExists(name).into());
    }
    let count = usize::try_from(spec.partitions.unwrap_or(1)).unwrap_or(0);
    let fields = here.topic_fields(&name, &vec![as_asked(leader, &replication); count]);
    let object = here.topic_place(&name).object("KafkaTopic", fields);
    Ok(json(StatusCode::OK, &object))
}

/// Where the partitions of a new topic are to lie.
fn replication(
    factor: Option<i16>,
    assignments: &BTreeMap<String, Vec<i32>>,
) -> Result<Replication, RestError> {
    if assignments.is_empty() {
        return Ok(match factor {
            None | Some(-1) => Replication::Usual,
            Some(factor) => Replication::Factor(factor.into()),
        });
    }
    let by_index = assignments
        .iter()
        .filter_map(|(index, on)| Some((index.parse::<usize>().ok()?, on.clone())));
    let by_index: BTreeMap<usize, Vec<i32>> = by_index.collect();
    let is_whole =
        by_index.len() == assignments.len() && by_index.keys().copied().eq(0..by_index.len());
    match is_whole {
        true => Ok(Replication::Assigned(by_index.into_values().collect())),
        false => Err(RestError::InvalidEntity(
            "replicas_assignments names every partition from 0 on, once".to_owned(),
        )),
    }
}

/// How a partition would lie that is not made.
fn as_asked(leader: i32, replication: &Replication) -> PartitionReplicas {
    let first = |assigned: &[Vec<i32>]| assigned.first().cloned().unwrap_or_default();
    let replicas = match replication {
        Replication::Usual => vec![leader],
        // Nobody knows on which.
        Replication::Factor(factor) => vec![leader; usize::try_from(*factor).unwrap_or(0)],
        Replication::Assigned(assigned) => first(assigned),
    };
    PartitionReplicas {
        leader: Some(leader),
        in_sync: replicas.clone(),
        replicas,
    }
}

/// `GET …/topics/{topic}`
pub(super) async fn one(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    Parameters(asked): Parameters<TopicParameters>,
) -> Result<Response, Refusal> {
    let name = here.shared.config.topic_name(&topic)?;
    let mut object = here.topic_object(&name).await?;
    if asked.include_authorized_operations {
        object.fields.authorized_operations = here.operations(&name).await?;
    }
    Ok(json(StatusCode::OK, &object))
}

/// `PATCH …/topics/{topic}` with `{"partitions_count"}`
pub(super) async fn grow(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Growth {
        partitions_count: i32,
    }
    let held = here.entity(&headers, body).await?;
    let Growth { partitions_count } = answer::entity(&held.bytes)?;
    let info = here.topic(&topic).await?;
    let store = &here.shared.store;
    store
        .create_partitions(&info.name, partitions_count)
        .await?;
    Ok(json(StatusCode::OK, &here.topic_object(&info.name).await?))
}

/// `DELETE …/topics/{topic}`
pub(super) async fn delete(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let name = here.shared.config.topic_name(&topic)?;
    here.shared.store.delete_topic(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Serialize)]
struct Topic {
    cluster_id: String,
    topic_name: String,
    is_internal: bool,
    replication_factor: usize,
    partitions_count: usize,
    partitions: Related,
    configs: Related,
    partition_reassignments: Related,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorized_operations: Option<Vec<Operation>>,
}

impl Here {
    /// Reads a body of JSON.
    pub(super) async fn entity(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<HeldBody, RestError> {
        media::check_json(answer::text(headers, axum::http::header::CONTENT_TYPE))?;
        self.shared.gate.read(headers, body).await
    }

    pub(super) async fn topic(&self, name: &str) -> Result<TopicInfo, RestError> {
        let name = self.shared.config.topic_name(name)?;
        Ok(self.shared.store.topic(&name).await?)
    }

    pub(super) fn topic_place(&self, name: &TopicName) -> Place {
        self.place.under("topics", "topic", name.display())
    }

    async fn topic_object(&self, name: &TopicName) -> Result<Object<Topic>, Refusal> {
        let lying = self.shared.store.replicas(Some(name)).await?;
        let (name, lying) = lying.first_key_value().ok_or_else(|| {
            // It is gone again.
            Refusal::from(StreamsError::UnknownTopic(name.clone()))
        })?;
        let fields = self.topic_fields(name, lying);
        Ok(self.topic_place(name).object("KafkaTopic", fields))
    }

    fn topic_fields(&self, name: &TopicName, lying: &[PartitionReplicas]) -> Topic {
        let at = self.topic_place(name);
        Topic {
            cluster_id: self.cluster.id.clone(),
            topic_name: name.display().to_owned(),
            is_internal: name.is_internal(),
            replication_factor: lying.first().map_or(0, |lies| lies.replicas.len()),
            partitions_count: lying.len(),
            partitions: at.related_under("partitions"),
            configs: at.related_under("configs"),
            partition_reassignments: at.related_under("partitions/-/reassignment"),
            authorized_operations: None,
        }
    }

    async fn operations(&self, name: &TopicName) -> Result<Option<Vec<Operation>>, Refusal> {
        Ok(self.shared.store.topic_operations(name).await?)
    }
}
