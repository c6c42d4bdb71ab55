//! Topics' settings.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use streams::{ConfigChange, HeldSetting, StreamsError, TopicConfig, TopicName};

use super::Here;
use super::configs::{Alteration, Config, Entry, Synonym, changes};
use super::form::{Object, json};
use super::refusal::{OrNothing, Refusal};
use super::topics::TopicPath;
use crate::answer::{self, JsonObject, Segments, or_default};
use crate::error::RestError;

#[derive(Deserialize)]
pub(super) struct ConfigPath {
    topic: String,
    name: String,
}

/// `GET …/topics/-/configs`
pub(super) async fn all(here: Here) -> Result<Response, Refusal> {
    let mut objects = Vec::new();
    for info in here.shared.store.topics().await? {
        let settings = here.shared.store.topic_settings(&info.name).await?;
        objects.extend(settings.iter().map(|it| here.config_object(&info.name, it)));
    }
    Ok(here
        .place
        .list("topics/-/configs", "KafkaTopicConfig", objects))
}

/// `GET …/topics/{topic}/configs`
pub(super) async fn list(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let name = here.shared.config.topic_name(&topic)?;
    let settings = here.shared.store.topic_settings(&name).await?;
    let objects = settings.iter().map(|it| here.config_object(&name, it));
    let at = here.topic_place(&name);
    Ok(at.list("configs", "KafkaTopicConfig", objects.collect()))
}

/// `GET …/topics/{topic}/configs/{name}`
pub(super) async fn one(
    here: Here,
    Segments(path): Segments<ConfigPath>,
) -> Result<Response, Refusal> {
    let topic = here.shared.config.topic_name(&path.topic)?;
    let settings = here.shared.store.topic_settings(&topic).await?;
    let found = settings.iter().find(|setting| setting.name == path.name);
    let found = found.or_nothing("setting", &path.name)?;
    Ok(json(StatusCode::OK, &here.config_object(&topic, found)))
}

/// `PUT …/topics/{topic}/configs/{name}` with `{"value"}`
pub(super) async fn set(
    here: Here,
    Segments(path): Segments<ConfigPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let changes = here.new_value(path.name, &headers, body).await?;
    here.alter(&path.topic, changes).await
}

/// `DELETE …/topics/{topic}/configs/{name}`: the default holds again
pub(super) async fn unset(
    here: Here,
    Segments(path): Segments<ConfigPath>,
) -> Result<Response, Refusal> {
    let change = ConfigChange::Unset(path.name);
    here.alter(&path.topic, vec![change]).await
}

/// `POST …/topics/{topic}/configs:alter`: all or none
pub(super) async fn alter(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let Alteration { changes, is_check } = here.alteration(&headers, body).await?;
    here.altered(&topic, changes, is_check).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST …/topics/-/configs:alter` with `{"data": [{"topic_name", "configs": [{"name", "value",
/// "operation"}]}], "validate_only"}`: of each topic all or none; 204, or 207 with those that failed
pub(super) async fn alter_all(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        data: Vec<JsonObject<OneTopic>>,
        #[serde(default, deserialize_with = "or_default")]
        validate_only: bool,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OneTopic {
        topic_name: String,
        configs: Vec<JsonObject<Entry>>,
    }
    #[derive(Serialize)]
    struct Failures {
        failures: Vec<Failure>,
    }
    #[derive(Serialize)]
    struct Failure {
        topic_name: String,
        error_code: u32,
        message: String,
    }
    let held = here.entity(&headers, body).await?;
    let asked: Asked = answer::entity(&held.bytes)?;
    let wanted = asked.data.into_iter();
    let wanted = wanted.map(|JsonObject(of)| Ok((of.topic_name, changes(of.configs)?)));
    let wanted: Vec<_> = wanted.collect::<Result<_, RestError>>()?;
    let mut failures = Vec::new();
    for (topic_name, changes) in wanted {
        let altered = here.altered(&topic_name, changes, asked.validate_only);
        if let Err(refusal) = altered.await {
            failures.push(Failure {
                topic_name,
                error_code: refusal.code().0,
                message: refusal.message(),
            });
        }
    }
    Ok(match failures.is_empty() {
        true => StatusCode::NO_CONTENT.into_response(),
        false => json(StatusCode::MULTI_STATUS, &Failures { failures }),
    })
}

/// `GET …/topics/{topic}/default-configs`: those that a new topic of this name would have
pub(super) async fn defaults(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
) -> Result<Response, Refusal> {
    let name = here.shared.config.topic_name(&topic)?;
    let settings = here.shared.store.default_settings(&name).await?;
    let objects = settings.iter().map(|it| here.config_object(&name, it));
    let at = here.topic_place(&name);
    Ok(at.list("default-configs", "KafkaTopicConfig", objects.collect()))
}

#[derive(Serialize)]
struct OfTopic {
    topic_name: String,
}

impl Here {
    async fn alter(&self, topic: &str, changes: Vec<ConfigChange>) -> Result<Response, Refusal> {
        self.altered(topic, changes, false).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Changes settings of a topic, or only looks whether they could be.
    async fn altered(
        &self,
        topic: &str,
        changes: Vec<ConfigChange>,
        is_check: bool,
    ) -> Result<(), Refusal> {
        if is_check {
            self.topic(topic).await?;
            let none = TopicConfig::default();
            let changed = none.changed(&changes, |_| String::new());
            changed.map_err(StreamsError::InvalidConfig)?;
            return Ok(());
        }
        let topic = self.shared.config.topic_name(topic)?;
        self.shared.store.alter_topic(&topic, changes).await?;
        Ok(())
    }

    fn config_object(&self, topic: &TopicName, setting: &HeldSetting) -> Object<Config<OfTopic>> {
        let source = match setting.is_set {
            true => "DYNAMIC_TOPIC_CONFIG",
            false => "DEFAULT_CONFIG",
        };
        let (name, value) = (setting.name.to_owned(), Some(setting.value.clone()));
        let at = self.topic_place(topic);
        let at = at.under("configs", "config", setting.name);
        let fields = Config {
            cluster_id: self.cluster.id.clone(),
            owner: OfTopic {
                topic_name: topic.display().to_owned(),
            },
            name: name.clone(),
            value: value.clone(),
            is_default: !setting.is_set,
            is_read_only: false,
            is_sensitive: false,
            source,
            synonyms: vec![Synonym {
                name,
                value,
                source,
            }],
        };
        at.object("KafkaTopicConfig", fields)
    }
}
