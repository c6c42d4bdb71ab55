//! The cluster to its administrators: where partitions lie, and the brokers' settings.
//!
//! The wrapper of librdkafka knows no ACLs, no reassignments and no settings of all brokers together:
//! the former answer `Unsupported`, the latter are told as far as the brokers show them, and changed
//! broker by broker only.

use std::collections::BTreeMap;

use access::{Acl, AclFilter};
use async_trait::async_trait;
use rdkafka::admin::{ConfigEntry, ConfigSource, ResourceSpecifier};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::metadata::MetadataPartition;

use super::ClusterStore;
use super::alter::Resource;
use super::error::About;
use super::settings::{described_resource, replace};
use crate::administration::{Administration, BrokerSetting, PartitionReplicas, SettingSource};
use crate::error::StreamsError;
use crate::event_store::EventStore;
use crate::topic::TopicName;
use crate::topic_config::ConfigChange;

type Lying = BTreeMap<TopicName, Vec<PartitionReplicas>>;

#[async_trait]
impl Administration for ClusterStore {
    async fn replicas(&self, topic: Option<&TopicName>) -> Result<Lying, StreamsError> {
        let wire = topic.map(|topic| topic.wire_name().to_owned());
        let about = topic.map_or(About::Cluster, About::Topic);
        let found = self.0.calls.blocking(about, move |asker, timeout| {
            let metadata = asker.fetch_metadata(wire.as_deref(), timeout)?;
            let mut found = Lying::new();
            for topic in metadata.topics() {
                match topic.error() {
                    Some(error) if wire.is_some() => {
                        return Err(KafkaError::MetadataFetch(error.into()));
                    }
                    Some(_) => continue,
                    None => {}
                }
                let Ok(name) = topic.name().parse::<TopicName>() else {
                    continue;
                };
                let mut partitions: Vec<&MetadataPartition> = topic.partitions().iter().collect();
                partitions.sort_by_key(|partition| partition.id());
                found.insert(name, partitions.into_iter().map(lies).collect());
            }
            Ok(found)
        });
        let mut found = found.await?;
        if let Some(topic) = topic {
            if !found.contains_key(topic) {
                return Err(StreamsError::UnknownTopic(topic.clone()));
            }
        } else {
            found.retain(|name, _| !name.is_internal());
        }
        Ok(found)
    }

    async fn expect_settled(&self) -> Result<(), StreamsError> {
        Err(StreamsError::Unsupported(
            "telling of reassignments (the Kafka cluster's own: ask its tools)",
        ))
    }

    async fn broker_settings(
        &self,
        broker: Option<i32>,
    ) -> Result<Vec<BrokerSetting>, StreamsError> {
        let brokers = self.cluster().await?.brokers;
        let mut found: BTreeMap<String, BrokerSetting> = BTreeMap::new();
        let asked = brokers.iter().map(|known| known.id);
        for id in asked.filter(|id| broker.is_none_or(|broker| broker == *id)) {
            for entry in self.described(id).await?.into_values() {
                let setting = setting_of(entry);
                let is_for_all = setting.source == SettingSource::DynamicDefaultBroker;
                if broker.is_some() || is_for_all {
                    found.insert(setting.name.clone(), setting);
                }
            }
        }
        match broker {
            Some(id) if found.is_empty() => Err(StreamsError::UnknownBroker(id)),
            _ => Ok(found.into_values().collect()),
        }
    }

    async fn alter_broker(
        &self,
        broker: Option<i32>,
        changes: Vec<ConfigChange>,
        is_check: bool,
    ) -> Result<(), StreamsError> {
        let id = broker.ok_or(StreamsError::Unsupported(
            "changing settings of all brokers together (change those of each broker)",
        ))?;
        let brokers = self.cluster().await?.brokers;
        if brokers.iter().all(|known| known.id != id) {
            return Err(StreamsError::UnknownBroker(id));
        }
        let entries = self.described(id).await?;
        let set = changed(&entries, changes)?;
        if is_check {
            return Ok(());
        }
        replace(&self.0.calls, Resource::Broker(id), About::Cluster, set).await
    }

    async fn acls(&self, _: &AclFilter) -> Result<Vec<Acl>, StreamsError> {
        Err(OWN_ACLS)
    }

    async fn add_acls(&self, _: Vec<Acl>) -> Result<(), StreamsError> {
        Err(OWN_ACLS)
    }

    async fn remove_acls(&self, _: &AclFilter) -> Result<Vec<Acl>, StreamsError> {
        Err(OWN_ACLS)
    }
}

impl ClusterStore {
    async fn described(&self, broker: i32) -> Result<BTreeMap<String, ConfigEntry>, StreamsError> {
        let resource = ResourceSpecifier::Broker(broker);
        described_resource(&self.0.calls, resource, About::Cluster).await
    }
}

fn lies(partition: &MetadataPartition) -> PartitionReplicas {
    PartitionReplicas {
        leader: Some(partition.leader()).filter(|leader| *leader >= 0),
        replicas: partition.replicas().to_vec(),
        in_sync: partition.isr().to_vec(),
    }
}

fn setting_of(entry: ConfigEntry) -> BrokerSetting {
    BrokerSetting {
        source: match entry.source {
            ConfigSource::DynamicBroker => SettingSource::DynamicBroker,
            ConfigSource::DynamicDefaultBroker => SettingSource::DynamicDefaultBroker,
            ConfigSource::StaticBroker => SettingSource::StaticBroker,
            ConfigSource::Default | ConfigSource::DynamicTopic | ConfigSource::Unknown => {
                SettingSource::Default
            }
        },
        name: entry.name,
        value: entry.value,
        is_read_only: entry.is_read_only,
        is_sensitive: entry.is_sensitive,
    }
}

/// All that is to be set for a broker after some changes: the call that changes them forgets what
/// it is not told again.
fn changed(
    entries: &BTreeMap<String, ConfigEntry>,
    changes: Vec<ConfigChange>,
) -> Result<BTreeMap<String, String>, StreamsError> {
    let mut set = BTreeMap::new();
    let own = entries
        .values()
        .filter(|entry| entry.source == ConfigSource::DynamicBroker);
    for entry in own {
        let value = entry.value.clone().ok_or(StreamsError::Unsupported(
            "changing settings of a broker that has secret ones (they would be lost)",
        ))?;
        set.insert(entry.name.clone(), value);
    }
    for change in changes {
        match change {
            ConfigChange::Append(name, _) | ConfigChange::Subtract(name, _) => {
                let text = format!("{name}: only SET and DELETE are known for brokers");
                return Err(StreamsError::Refused(text));
            }
            ConfigChange::Set(name, _) | ConfigChange::Unset(name)
                if entries.get(&name).is_some_and(|entry| entry.is_read_only) =>
            {
                return Err(StreamsError::ReadOnlySetting(name));
            }
            ConfigChange::Set(name, value) => drop(set.insert(name, value)),
            ConfigChange::Unset(name) => drop(set.remove(&name)),
        }
    }
    Ok(set)
}

const OWN_ACLS: StreamsError = StreamsError::Unsupported(
    "keeping ACLs (the Kafka cluster's own hold; with streams.authorization = \"acl\" callers by HTTP \
     are held to this folder's)",
);
