//! Topics' settings.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use streams::{ConfigChange, HeldSetting, StreamsError, TopicConfig, TopicName};

use super::Here;
use super::configs::{Alteration, Config, Synonym};
use super::form::{Object, json};
use super::refusal::{OrNothing, Refusal};
use super::topics::TopicPath;
use crate::answer::Segments;

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
    if is_check {
        here.topic(&topic).await?;
        let none = TopicConfig::default();
        let changed = none.changed(&changes, |_| String::new());
        changed.map_err(StreamsError::InvalidConfig)?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    here.alter(&topic, changes).await
}

#[derive(Serialize)]
struct OfTopic {
    topic_name: String,
}

impl Here {
    async fn alter(&self, topic: &str, changes: Vec<ConfigChange>) -> Result<Response, Refusal> {
        let topic = self.shared.config.topic_name(topic)?;
        self.shared.store.alter_topic(&topic, changes).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
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
