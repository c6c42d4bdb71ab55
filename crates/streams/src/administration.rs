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
use crate::groups::{ASSIGNORS, GroupsConfig};
use crate::limits::OFFSET_METADATA_BYTES_MAX;
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

/// The node's settings, by name: those behind the topics' and the groups', and what only it has.
pub(crate) fn node_settings(config: &StreamsConfig) -> Vec<NodeSetting> {
    let behind = SETTINGS.iter().filter_map(|setting| {
        Some(NodeSetting {
            name: setting.node_name?,
            value: setting.default(config, None),
            is_configured: setting.is_configured(),
            kind: setting.kind,
            doc: setting.doc,
        })
    });
    let of_groups = GROUP_SETTINGS.iter().filter_map(|setting| {
        Some(NodeSetting {
            name: setting.node_name?,
            value: setting.default(&config.groups),
            is_configured: setting.is_configured(),
            kind: setting.kind(),
            doc: setting.doc,
        })
    });
    let own = |is_configured| {
        move |(name, value, kind, doc)| NodeSetting {
            name,
            value,
            is_configured,
            kind,
            doc,
        }
    };
    let mut settings: Vec<NodeSetting> = behind.chain(of_groups).collect();
    settings.extend(own_settings(config).into_iter().map(own(true)));
    settings.extend(bounds_of_groups(&config.groups).into_iter().map(own(true)));
    settings.extend(fixed_settings().into_iter().map(own(false)));
    settings.sort_by_key(|setting| setting.name);
    settings
}

/// A setting's name, value, kind and meaning.
type Told = (&'static str, String, ValueKind, &'static str);

/// What the configuration file says of the node alone.
fn own_settings(config: &StreamsConfig) -> Vec<Told> {
    use ValueKind::{Boolean, Int};
    let offsets_minutes = for_ever(config.groups.offsets_retention, 60_000);
    vec![
        (
            "auto.create.topics.enable",
            config.auto_create_topics.to_string(),
            Boolean,
            "Whether plain topics are created when first asked for.",
        ),
        (
            "broker.id",
            config.node_id.to_string(),
            Int,
            "This node's id.",
        ),
        (
            "max.connections",
            config.connections_max.to_string(),
            Int,
            "Most connections of each listener.",
        ),
        (
            "node.id",
            config.node_id.to_string(),
            Int,
            "This node's id.",
        ),
        (
            "num.partitions",
            config.default_partitions.to_string(),
            Int,
            "Partitions of a plain topic when none are asked for.",
        ),
        (
            "offsets.retention.minutes",
            offsets_minutes,
            Int,
            "How long the offsets of a group are kept after its last member left.",
        ),
        (
            "producer.id.expiration.ms",
            for_ever(config.producer_id_expiration, 1),
            Int,
            "How long a producer is remembered that writes nothing.",
        ),
        (
            "transaction.max.timeout.ms",
            ms(config.transaction_timeout_max),
            Int,
            "The longest time-out that a transaction may ask for.",
        ),
        (
            "transactional.id.expiration.ms",
            for_ever(config.transactional_id_expiration, 1),
            Int,
            "How long a transactional id is kept that nobody uses.",
        ),
    ]
}

/// What the configuration file lets groups and their members ask for.
fn bounds_of_groups(groups: &GroupsConfig) -> Vec<Told> {
    use ValueKind::Int;
    vec![
        (
            "group.consumer.max.assignment.interval.ms",
            ms(groups.consumer_assignment_interval_max),
            Int,
            "The longest interval between two assignments that may be set for a group.",
        ),
        (
            "group.consumer.max.heartbeat.interval.ms",
            ms(groups.consumer_heartbeat_interval_max),
            Int,
            "The longest interval between heartbeats that may be set for a group.",
        ),
        (
            "group.consumer.max.session.timeout.ms",
            ms(groups.consumer_session_timeout_max),
            Int,
            "The longest session time-out that may be set for a group.",
        ),
        (
            "group.consumer.max.size",
            groups.members_max.to_string(),
            Int,
            "Most members of a group of the newer protocol.",
        ),
        (
            "group.consumer.min.assignment.interval.ms",
            ms(groups.consumer_assignment_interval_min),
            Int,
            "The shortest interval between two assignments that may be set for a group.",
        ),
        (
            "group.consumer.min.heartbeat.interval.ms",
            ms(groups.consumer_heartbeat_interval_min),
            Int,
            "The shortest interval between heartbeats that may be set for a group.",
        ),
        (
            "group.consumer.min.session.timeout.ms",
            ms(groups.consumer_session_timeout_min),
            Int,
            "The shortest session time-out that may be set for a group.",
        ),
        (
            "group.initial.rebalance.delay.ms",
            ms(groups.initial_rebalance_delay),
            Int,
            "How long a group that was empty waits for more members.",
        ),
        (
            "group.max.session.timeout.ms",
            ms(groups.session_timeout_max),
            Int,
            "The longest session time-out that a classic member may ask for.",
        ),
        (
            "group.max.size",
            groups.members_max.to_string(),
            Int,
            "Most members of a classic group.",
        ),
        (
            "group.min.session.timeout.ms",
            ms(groups.session_timeout_min),
            Int,
            "The shortest session time-out that a classic member may ask for.",
        ),
    ]
}

/// What holds whatever the configuration file says.
fn fixed_settings() -> Vec<Told> {
    use ValueKind::{Boolean, Int, List, String};
    vec![
        (
            "default.replication.factor",
            "1".to_owned(),
            Int,
            "One node keeps one replica.",
        ),
        (
            "delete.topic.enable",
            "true".to_owned(),
            Boolean,
            "Topics may be deleted.",
        ),
        (
            "group.consumer.assignors",
            ASSIGNORS.join(","),
            List,
            "How partitions are shared by the newer protocol, the default first.",
        ),
        (
            "group.consumer.migration.policy",
            "bidirectional".to_owned(),
            String,
            "Groups move between the protocols in either direction.",
        ),
        (
            "offset.metadata.max.bytes",
            OFFSET_METADATA_BYTES_MAX.to_string(),
            Int,
            "Longest text with a committed offset.",
        ),
    ]
}

fn ms(time: HumanDuration) -> String {
    time.0.as_millis().to_string()
}

/// A time in units of so many ms; for ever, which is zero here, is the most that Kafka's kind of
/// number holds.
fn for_ever(time: HumanDuration, unit_ms: u128) -> String {
    let most = i32::MAX.unsigned_abs().into();
    match time.0.as_millis() / unit_ms {
        _ if time.0.is_zero() => most,
        units => units.clamp(1, most),
    }
    .to_string()
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
