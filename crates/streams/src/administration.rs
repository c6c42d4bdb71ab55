//! What an administrator asks of a store beside its topics: its brokers' settings, where partitions
//! lie, and who may do what.
//!
//! The store in this process is one broker, whose settings stand in its configuration file and are
//! only read here. Its ACLs are kept by `access`, and belong to a store that is used as somebody
//! ([`crate::as_caller`]): where nobody is asked who they are, there are none.

use std::collections::BTreeMap;

use access::{Acl, AclFilter, Operation};
use async_trait::async_trait;
use base::HumanDuration;

use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::group_config::GROUP_SETTINGS;
use crate::topic::TopicName;
use crate::topic_config::{ConfigChange, SETTINGS, ValueKind};

/// A store to its administrators.
#[async_trait]
pub trait Administration: Send + Sync + 'static {
    /// Where the partitions of a topic lie, or of all topics when none is named.
    async fn replicas(
        &self,
        topic: Option<&TopicName>,
    ) -> Result<BTreeMap<TopicName, Vec<PartitionReplicas>>, StreamsError>;

    /// Answers when no partition is on its way from one broker to another; `Unsupported` where the
    /// store cannot tell.
    async fn expect_settled(&self) -> Result<(), StreamsError>;

    /// The settings of a broker; without a broker those that are the same for all of them.
    /// Answers `UnknownBroker` when there is no such broker.
    async fn broker_settings(
        &self,
        broker: Option<i32>,
    ) -> Result<Vec<BrokerSetting>, StreamsError>;

    /// Changes settings of a broker, or of all brokers together, all or none; durable when this
    /// returns. Only looks whether it could when `is_check`.
    async fn alter_broker(
        &self,
        broker: Option<i32>,
        changes: Vec<ConfigChange>,
        is_check: bool,
    ) -> Result<(), StreamsError>;

    /// The operations that the caller may do to a topic, none where the store does not tell.
    async fn topic_operations(
        &self,
        topic: &TopicName,
    ) -> Result<Option<Vec<Operation>>, StreamsError> {
        let _ = topic;
        Ok(None)
    }

    /// The ACLs that a filter means, in order.
    async fn acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, StreamsError> {
        let _ = filter;
        Err(NO_ACLS)
    }

    /// Adds ACLs, all or none; durable when this returns.
    async fn add_acls(&self, acls: Vec<Acl>) -> Result<(), StreamsError> {
        let _ = acls;
        Err(NO_ACLS)
    }

    /// Removes the ACLs that a filter means, durably, and tells them.
    async fn remove_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, StreamsError> {
        let _ = filter;
        Err(NO_ACLS)
    }
}

/// Where a partition lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReplicas {
    /// The broker that leads it; none for the moment.
    pub leader: Option<i32>,
    /// The brokers that have a replica, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those of them that have all that is acknowledged.
    pub in_sync: Vec<i32>,
}

/// A setting of a broker as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerSetting {
    /// Its name.
    pub name: String,
    /// Its value; none where it is kept secret or not set.
    pub value: Option<String>,
    /// Whether it cannot be changed while the broker runs.
    pub is_read_only: bool,
    /// Whether its value is kept secret.
    pub is_sensitive: bool,
    /// Where the value comes from.
    pub source: SettingSource,
}

/// Where a broker's setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// It was changed for this broker while it ran.
    DynamicBroker,
    /// It was changed for all brokers while they ran.
    DynamicDefaultBroker,
    /// It stands in the broker's configuration file.
    StaticBroker,
    /// Nobody set it.
    Default,
}

impl SettingSource {
    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            SettingSource::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            SettingSource::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            SettingSource::StaticBroker => "STATIC_BROKER_CONFIG",
            SettingSource::Default => "DEFAULT_CONFIG",
        }
    }
}

/// A setting of the node under Kafka's name, with the value that really holds.
pub(crate) struct NodeSetting {
    pub name: &'static str,
    pub value: String,
    /// Whether the configuration file can say otherwise.
    pub is_configured: bool,
    pub kind: ValueKind,
    pub doc: &'static str,
}

/// The node's settings, by name: those behind the topics', and a few that only it has.
pub(crate) fn node_settings(config: &StreamsConfig) -> Vec<NodeSetting> {
    let own = |name, value: String, kind, doc| NodeSetting {
        name,
        value,
        is_configured: true,
        kind,
        doc,
    };
    let behind = SETTINGS.iter().filter_map(|setting| {
        let value = setting.default(config, None);
        Some(NodeSetting {
            is_configured: setting.is_configured(),
            ..own(setting.node_name?, value, setting.kind, setting.doc)
        })
    });
    let mut settings: Vec<NodeSetting> = behind.collect();
    let of_groups = GROUP_SETTINGS.iter().map(|setting| {
        let value = setting.default_ms(&config.groups).to_string();
        own(setting.node_name, value, ValueKind::Int, setting.doc)
    });
    settings.extend(of_groups);
    let ms = |time: HumanDuration| time.0.as_millis().to_string();
    settings.extend([
        own(
            "auto.create.topics.enable",
            config.auto_create_topics.to_string(),
            ValueKind::Boolean,
            "Whether plain topics are created when first asked for.",
        ),
        own(
            "default.replication.factor",
            "1".to_owned(),
            ValueKind::Int,
            "One node keeps one replica.",
        ),
        own(
            "group.consumer.max.heartbeat.interval.ms",
            ms(config.groups.consumer_heartbeat_interval_max),
            ValueKind::Int,
            "The longest interval between heartbeats that may be set for a group.",
        ),
        own(
            "group.consumer.max.session.timeout.ms",
            ms(config.groups.consumer_session_timeout_max),
            ValueKind::Int,
            "The longest session time-out that may be set for a group.",
        ),
        own(
            "group.consumer.min.heartbeat.interval.ms",
            ms(config.groups.consumer_heartbeat_interval_min),
            ValueKind::Int,
            "The shortest interval between heartbeats that may be set for a group.",
        ),
        own(
            "group.consumer.min.session.timeout.ms",
            ms(config.groups.consumer_session_timeout_min),
            ValueKind::Int,
            "The shortest session time-out that may be set for a group.",
        ),
        own(
            "max.connections",
            config.connections_max.to_string(),
            ValueKind::Int,
            "Most connections of each listener.",
        ),
        own(
            "node.id",
            config.node_id.to_string(),
            ValueKind::Int,
            "This node's id.",
        ),
        own(
            "num.partitions",
            config.default_partitions.to_string(),
            ValueKind::Int,
            "Partitions of a plain topic when none are asked for.",
        ),
        own(
            "transaction.max.timeout.ms",
            ms(config.transaction_timeout_max),
            ValueKind::Int,
            "The longest time-out that a transaction may ask for.",
        ),
    ]);
    settings.sort_by_key(|setting| setting.name);
    settings
}

/// The operations that a topic knows.
pub(crate) const TOPIC_OPERATIONS: &[Operation] = &[
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];

const NO_ACLS: StreamsError = StreamsError::Unsupported(
    "keeping ACLs (access control is off: set streams.authorization = \"acl\")",
);
