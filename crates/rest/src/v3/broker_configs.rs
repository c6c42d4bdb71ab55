//! Settings of brokers, and those of all brokers together.
//!
//! The store in this process is one broker whose settings stand in its configuration file: they are
//! told and not changed.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use streams::{BrokerSetting, ConfigChange, SettingSource};

use super::Here;
use super::clusters::{BrokerPath, broker_place};
use super::configs::{Alteration, Config, Synonym};
use super::form::{Object, Place, json};
use super::refusal::{OrNothing, Refusal};
use crate::answer::Segments;

#[derive(Deserialize)]
pub(super) struct ClusterConfigPath {
    name: String,
}

#[derive(Deserialize)]
pub(super) struct BrokerConfigPath {
    broker: String,
    name: String,
}

/// `GET …/broker-configs`
pub(super) async fn list_of_all(here: Here) -> Result<Response, Refusal> {
    let settings = here.shared.store.broker_settings(None).await?;
    let objects = settings.into_iter().map(|it| here.cluster_config(it));
    let objects = objects.collect();
    Ok(here
        .place
        .list("broker-configs", "KafkaClusterConfig", objects))
}

/// `GET …/broker-configs/{name}`
pub(super) async fn one_of_all(
    here: Here,
    Segments(ClusterConfigPath { name }): Segments<ClusterConfigPath>,
) -> Result<Response, Refusal> {
    let setting = here.setting(None, &name).await?;
    Ok(json(StatusCode::OK, &here.cluster_config(setting)))
}

/// `PUT …/broker-configs/{name}` with `{"value"}`
pub(super) async fn set_of_all(
    here: Here,
    Segments(ClusterConfigPath { name }): Segments<ClusterConfigPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let changes = here.new_value(name, &headers, body).await?;
    here.alter_broker(None, changes, false).await
}

/// `DELETE …/broker-configs/{name}`
pub(super) async fn unset_of_all(
    here: Here,
    Segments(ClusterConfigPath { name }): Segments<ClusterConfigPath>,
) -> Result<Response, Refusal> {
    let change = ConfigChange::Unset(name);
    here.alter_broker(None, vec![change], false).await
}

/// `POST …/broker-configs:alter`
pub(super) async fn alter_of_all(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let Alteration { changes, is_check } = here.alteration(&headers, body).await?;
    here.alter_broker(None, changes, is_check).await
}

/// `GET …/brokers/-/configs`
pub(super) async fn list_of_each(here: Here) -> Result<Response, Refusal> {
    let mut objects = Vec::new();
    for broker in &here.cluster.brokers {
        let settings = here.shared.store.broker_settings(Some(broker.id)).await?;
        let told = settings.into_iter();
        objects.extend(told.map(|it| here.broker_config(broker.id, it)));
    }
    Ok(here
        .place
        .list("brokers/-/configs", "KafkaBrokerConfig", objects))
}

/// `GET …/brokers/{broker}/configs`
pub(super) async fn list(
    here: Here,
    Segments(BrokerPath { broker }): Segments<BrokerPath>,
) -> Result<Response, Refusal> {
    let id = here.broker_named(&broker)?.id;
    let settings = here.shared.store.broker_settings(Some(id)).await?;
    let objects = settings.into_iter().map(|it| here.broker_config(id, it));
    let at = broker_place(&here.place, id);
    Ok(at.list("configs", "KafkaBrokerConfig", objects.collect()))
}

/// `GET …/brokers/{broker}/configs/{name}`
pub(super) async fn one(
    here: Here,
    Segments(BrokerConfigPath { broker, name }): Segments<BrokerConfigPath>,
) -> Result<Response, Refusal> {
    let id = here.broker_named(&broker)?.id;
    let setting = here.setting(Some(id), &name).await?;
    Ok(json(StatusCode::OK, &here.broker_config(id, setting)))
}

/// `PUT …/brokers/{broker}/configs/{name}` with `{"value"}`
pub(super) async fn set(
    here: Here,
    Segments(BrokerConfigPath { broker, name }): Segments<BrokerConfigPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let id = here.broker_named(&broker)?.id;
    let changes = here.new_value(name, &headers, body).await?;
    here.alter_broker(Some(id), changes, false).await
}

/// `DELETE …/brokers/{broker}/configs/{name}`
pub(super) async fn unset(
    here: Here,
    Segments(BrokerConfigPath { broker, name }): Segments<BrokerConfigPath>,
) -> Result<Response, Refusal> {
    let id = here.broker_named(&broker)?.id;
    let change = ConfigChange::Unset(name);
    here.alter_broker(Some(id), vec![change], false).await
}

/// `POST …/brokers/{broker}/configs:alter`
pub(super) async fn alter(
    here: Here,
    Segments(BrokerPath { broker }): Segments<BrokerPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let id = here.broker_named(&broker)?.id;
    let Alteration { changes, is_check } = here.alteration(&headers, body).await?;
    here.alter_broker(Some(id), changes, is_check).await
}

#[derive(Serialize)]
struct OfBroker {
    broker_id: i32,
}

#[derive(Serialize)]
struct OfCluster {
    config_type: &'static str,
}

impl Here {
    async fn setting(&self, broker: Option<i32>, name: &str) -> Result<BrokerSetting, Refusal> {
        let settings = self.shared.store.broker_settings(broker).await?;
        let found = settings.into_iter().find(|setting| setting.name == name);
        found.or_nothing("setting", name)
    }

    async fn alter_broker(
        &self,
        broker: Option<i32>,
        changes: Vec<ConfigChange>,
        is_check: bool,
    ) -> Result<Response, Refusal> {
        let store = &self.shared.store;
        store.alter_broker(broker, changes, is_check).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    fn cluster_config(&self, setting: BrokerSetting) -> Object<Config<OfCluster>> {
        let at = self
            .place
            .under("broker-configs", "broker-config", &setting.name);
        let owner = OfCluster {
            config_type: "BROKER",
        };
        self.config("KafkaClusterConfig", &at, owner, setting)
    }

    fn broker_config(&self, broker: i32, setting: BrokerSetting) -> Object<Config<OfBroker>> {
        let at = broker_place(&self.place, broker).under("configs", "config", &setting.name);
        let owner = OfBroker { broker_id: broker };
        self.config("KafkaBrokerConfig", &at, owner, setting)
    }

    fn config<O>(
        &self,
        kind: &'static str,
        at: &Place,
        owner: O,
        setting: BrokerSetting,
    ) -> Object<Config<O>> {
        let source = setting.source.name();
        let fields = Config {
            cluster_id: self.cluster.id.clone(),
            owner,
            name: setting.name.clone(),
            value: setting.value.clone(),
            is_default: setting.source == SettingSource::Default,
            is_read_only: setting.is_read_only,
            is_sensitive: setting.is_sensitive,
            source,
            synonyms: vec![Synonym {
                name: setting.name,
                value: setting.value,
                source,
            }],
        };
        at.object(kind, fields)
    }
}
