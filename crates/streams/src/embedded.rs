//! The store in this process behind the trait that the other crates use.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use access::Operation;
use async_trait::async_trait;
use base::{TenantId, UnixMillis};

use crate::administration::{
    Administration, BrokerSetting, PartitionReplicas, SettingSource, TOPIC_OPERATIONS,
    node_settings,
};
use crate::backup::{BackupHead, TopicBackup, TopicRestore};
use crate::batch;
use crate::consumer::EmbeddedConsumer;
use crate::error::StreamsError;
use crate::event_store::{
    BrokerInfo, ClusterInfo, CommittedOffset, Consumer, ConsumerConfig, EventStore, GroupDetail,
    GroupInfo, GroupMember, HeldSetting, Isolation, Placed, ProduceBatch, TopicInfo, TopicSpec,
};
use crate::fenced::{EmbeddedWriter, FencedWriter};
use crate::groups::{CONSUMER_PROTOCOL_TYPE, GroupDescription, GroupKind};
use crate::once::{ProduceOnce, StoredOnce};
use crate::partition::{Ack, Append};
use crate::store::Streams;
use crate::tenants::{Run, counted};
use crate::topic::TopicName;
use crate::topic_config::ConfigChange;

/// [`Streams`] as an [`EventStore`].
pub(crate) struct Embedded {
    streams: Arc<Streams>,
}

impl Embedded {
    pub(crate) fn new(streams: Arc<Streams>) -> Self {
        Embedded { streams }
    }
}

#[async_trait]
impl EventStore for Embedded {
    async fn cluster(&self) -> Result<ClusterInfo, StreamsError> {
        let node = self.streams.node_id();
        Ok(ClusterInfo {
            id: self.streams.cluster_id().to_owned(),
            controller: Some(node),
            brokers: vec![BrokerInfo {
                id: node,
                address: self.streams.listener(),
            }],
        })
    }

    async fn create_topic(&self, spec: TopicSpec) -> Result<TopicInfo, StreamsError> {
        if !spec.replication.fits_one(self.streams.node_id()) {
            let reason = "there is one broker: one replica of each partition, on that broker";
            return Err(StreamsError::Unsupported(reason));
        }
        self.streams
            .create_topic(spec)
            .await
            .map(|topic| topic.info())
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<(), StreamsError> {
        self.streams.delete_topic(topic).await
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>, StreamsError> {
        Ok(self
            .streams
            .topics_snapshot()
            .iter()
            // They stand there for Kafka's clients and hold nothing.
            .filter(|topic| !topic.name().is_internal())
            .map(|topic| topic.info())
            .collect())
    }

    async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        let found = self.streams.topic_by_name(topic).map(|topic| topic.info());
        found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))
    }

    async fn topic_or_create(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.streams
            .topic_or_create(topic)
            .await
            .map(|topic| topic.info())
    }

    async fn partitions(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        let found = self.streams.topic_by_name(topic);
        let found = found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))?;
        Ok(i32::try_from(found.partitions().len()).unwrap_or(i32::MAX))
    }

    async fn partitions_or_create(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        let found = self.streams.topic_or_create(topic).await?;
        Ok(i32::try_from(found.partitions().len()).unwrap_or(i32::MAX))
    }

    async fn topic_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        let found = self.streams.topic_by_name(topic);
        let found = found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))?;
        Ok(self.streams.settings_of(&found))
    }

    async fn default_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        Ok(self.streams.default_settings(topic))
    }

    async fn alter_topic(
        &self,
        topic: &TopicName,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        self.streams.alter_topic(topic, &changes).await
    }

    async fn create_partitions(&self, topic: &TopicName, count: i32) -> Result<(), StreamsError> {
        self.streams.create_partitions(topic, count).await
    }

    async fn delete_records(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<i64, StreamsError> {
        self.streams.delete_records(topic, partition, offset).await
    }

    async fn produce(&self, batch: ProduceBatch) -> Result<Placed, StreamsError> {
        self.append(batch).await?.stored().await
    }

    async fn produce_in_order(
        &self,
        batches: Vec<ProduceBatch>,
    ) -> Result<Vec<Placed>, StreamsError> {
        let mut appended = Vec::with_capacity(batches.len());
        for batch in batches {
            appended.push(self.append(batch).await?);
        }
        let mut placed = Vec::with_capacity(appended.len());
        for batch in appended {
            placed.push(batch.stored().await?);
        }
        Ok(placed)
    }

    async fn produce_once(&self, asked: ProduceOnce) -> Result<StoredOnce, StreamsError> {
        for batch in &asked.batches {
            self.streams.check_own_home(&batch.topic)?;
        }
        self.streams.produce_once(asked).await
    }

    async fn fenced_writer(&self, name: &str) -> Result<Box<dyn FencedWriter>, StreamsError> {
        let writer = EmbeddedWriter::take(Arc::clone(&self.streams), name);
        Ok(Box::new(writer.await?))
    }

    async fn producer_id(&self) -> Result<i64, StreamsError> {
        self.streams.next_producer_id().await
    }

    async fn consumer(&self, config: ConsumerConfig) -> Result<Box<dyn Consumer>, StreamsError> {
        Ok(Box::new(EmbeddedConsumer::new(
            Arc::clone(&self.streams),
            config,
        )))
    }

    async fn committed(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError> {
        let committed = partitions
            .iter()
            .map(|(topic, partition)| self.streams.committed_offset(group, topic, *partition));
        Ok(committed.collect())
    }

    async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError> {
        let empty = |group: &str, protocol_type: &str| GroupInfo {
            group: group.to_owned(),
            state: "Empty".to_owned(),
            protocol_type: protocol_type.to_owned(),
            members: Vec::new(),
        };
        let with_offsets = self.streams.groups_with_offsets();
        let mut sharing = self.streams.list_groups();
        sharing.retain(|group| matches!(group.kind, GroupKind::Share | GroupKind::Streams));
        let consumers = with_offsets
            .iter()
            .map(|group| empty(group, CONSUMER_PROTOCOL_TYPE));
        let sharers = sharing.iter().map(|of| empty(&of.group, &of.protocol_type));
        let mut groups: BTreeMap<String, GroupInfo> = consumers
            .chain(sharers)
            .map(|info| (info.group.clone(), info))
            .collect();
        for listed in self.streams.groups().list() {
            // It may have lost its last member since it was listed.
            let Some(described) = self.streams.groups().describe(&listed.group) else {
                continue;
            };
            groups.insert(described.group.clone(), group_info(described));
        }
        Ok(groups.into_values().collect())
    }

    async fn group(&self, group: &str) -> Result<Option<GroupDetail>, StreamsError> {
        Ok(self.streams.group_detail(group))
    }

    async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        self.streams.set_group_offsets(group, offsets).await
    }

    async fn delete_group(&self, group: &str) -> Result<(), StreamsError> {
        self.streams.forget_group(group).await
    }

    async fn group_settings(&self, group: &str) -> Result<Vec<HeldSetting>, StreamsError> {
        Ok(self.streams.group_settings(group))
    }

    async fn alter_group(
        &self,
        group: &str,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        self.streams.alter_group(group, &changes).await
    }

    async fn back_up(
        &self,
        topic: &TopicName,
        with_groups: bool,
    ) -> Result<Box<dyn TopicBackup>, StreamsError> {
        self.streams.back_up(topic, with_groups).await
    }

    async fn restore(
        &self,
        head: BackupHead,
        topic: TopicName,
    ) -> Result<Box<dyn TopicRestore>, StreamsError> {
        self.streams.restore(head, topic).await
    }

    async fn offset_for_time(
        &self,
        topic: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        self.streams.offset_at(topic, partition, at)
    }

    async fn tenant_runs(
        &self,
        topic: &TopicName,
        tenant: &TenantId,
    ) -> Result<Option<Vec<Vec<Run>>>, StreamsError> {
        let Some(topic) = self.streams.topic_by_name(topic) else {
            return Ok(None);
        };
        let (streams, tenant) = (Arc::clone(&self.streams), tenant.clone());
        let counted = tokio::task::spawn_blocking(move || {
            let each = topic.partitions().iter();
            let each = each.map(|partition| streams.tenant_runs(partition, &tenant));
            each.collect::<Result<Vec<_>, StreamsError>>()
        });
        let counted = counted.await.map_err(|_| StreamsError::Closed)?;
        counted.map(Some)
    }

    async fn tenant_bytes(
        &self,
        topic: &TopicName,
    ) -> Result<Option<BTreeMap<TenantId, u64>>, StreamsError> {
        let Some(topic) = self.streams.topic_by_name(topic) else {
            return Ok(None);
        };
        let streams = Arc::clone(&self.streams);
        let counted = tokio::task::spawn_blocking(move || {
            let mut bytes = BTreeMap::new();
            for partition in topic.partitions() {
                streams.ask_census(partition, |census| census.add_bytes(&mut bytes))?;
            }
            Ok(bytes)
        });
        let counted: Result<_, StreamsError> = counted.await.map_err(|_| StreamsError::Closed)?;
        counted.map(Some)
    }

    async fn count_tenant(
        &self,
        topic: &TopicName,
        partition: i32,
        tenant: &TenantId,
        within: Range<i64>,
    ) -> Result<(u64, Option<UnixMillis>), StreamsError> {
        let found = self.streams.topic_by_name(topic);
        let found = found.and_then(|topic| topic.partition(partition).cloned());
        let Some(found) = found else {
            return Ok((0, None));
        };
        let tenant = tenant.clone();
        let counted = tokio::task::spawn_blocking(move || counted(&found, &tenant, within));
        counted.await.map_err(|_| StreamsError::Closed)?
    }

    async fn purge_tenant(
        &self,
        topic: &TopicName,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Option<u64>, StreamsError> {
        let Some(topic) = self.streams.topic_by_name(topic) else {
            return Ok(Some(0));
        };
        let (streams, tenant) = (Arc::clone(&self.streams), tenant.clone());
        let purged =
            tokio::task::spawn_blocking(move || streams.purge_shared(&topic, &tenant, before));
        purged.await.map_err(|_| StreamsError::Closed)?.map(Some)
    }

    async fn time_at(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: i64,
    ) -> Result<Option<UnixMillis>, StreamsError> {
        let found = self.streams.topic_by_name(topic);
        let Some(found) = found.as_ref().and_then(|topic| topic.partition(partition)) else {
            return Ok(None);
        };
        match found.find(Isolation::Uncommitted, offset, 1, 1, true) {
            Ok(batches) => Ok(batches.first().map(|batch| UnixMillis(batch.max_timestamp))),
            // It has expired meanwhile.
            Err(StreamsError::OffsetOutOfRange { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Administration for Embedded {
    async fn replicas(
        &self,
        topic: Option<&TopicName>,
    ) -> Result<BTreeMap<TopicName, Vec<PartitionReplicas>>, StreamsError> {
        let node = self.streams.node_id();
        let only = PartitionReplicas {
            leader: Some(node),
            replicas: vec![node],
            in_sync: vec![node],
        };
        let topics = match topic {
            Some(topic) => vec![self.topic(topic).await?],
            None => self.topics().await?,
        };
        let lies = |info: TopicInfo| {
            let count = usize::try_from(info.partitions).unwrap_or(0);
            (info.name, vec![only.clone(); count])
        };
        Ok(topics.into_iter().map(lies).collect())
    }

    async fn expect_settled(&self) -> Result<(), StreamsError> {
        // There is nowhere to go.
        Ok(())
    }

    async fn broker_settings(
        &self,
        broker: Option<i32>,
    ) -> Result<Vec<BrokerSetting>, StreamsError> {
        self.check_broker(broker)?;
        let settings = node_settings(self.streams.config()).into_iter();
        let told = settings.map(|setting| BrokerSetting {
            name: setting.name.to_owned(),
            value: Some(setting.value),
            is_read_only: true,
            is_sensitive: false,
            source: match setting.is_configured {
                true => SettingSource::StaticBroker,
                false => SettingSource::Default,
            },
        });
        Ok(told.collect())
    }

    async fn alter_broker(
        &self,
        broker: Option<i32>,
        changes: Vec<ConfigChange>,
        _is_check: bool,
    ) -> Result<(), StreamsError> {
        self.check_broker(broker)?;
        match changes.into_iter().next() {
            Some(change) => Err(StreamsError::ReadOnlySetting(change.name().to_owned())),
            None => Ok(()),
        }
    }

    async fn topic_operations(
        &self,
        topic: &TopicName,
    ) -> Result<Option<Vec<Operation>>, StreamsError> {
        self.topic(topic).await?;
        Ok(Some(TOPIC_OPERATIONS.to_vec()))
    }
}

impl Embedded {
    /// Puts a batch into its partition, when there is room for it.
    async fn append(&self, batch: ProduceBatch) -> Result<Appended, StreamsError> {
        let ProduceBatch {
            topic,
            partition,
            records,
            sequence,
        } = batch;
        let found = self.streams.topic_by_name(&topic);
        let found = found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))?;
        if topic.is_internal() {
            return Err(StreamsError::InternalTopic(topic));
        }
        let Some(found) = found.partition(partition).cloned() else {
            return Err(StreamsError::UnknownPartition { topic, partition });
        };
        let batch = batch::build(&records, self.streams.clock().now(), sequence)?;
        drop(records);
        let append = loop {
            match (self.streams).append_at_home(&found, batch.clone(), Ack::All) {
                Err(StreamsError::Busy) => {
                    let bytes = self.streams.bytes_at_home(batch.len() as u64);
                    self.streams.room(bytes).await;
                }
                Err(StreamsError::Switching(tenant)) => {
                    self.streams.tenant_opened(&tenant, &topic).await?;
                }
                outcome => break outcome?,
            }
        };
        Ok(Appended { partition, append })
    }

    fn check_broker(&self, broker: Option<i32>) -> Result<(), StreamsError> {
        match broker {
            Some(id) if id != self.streams.node_id() => Err(StreamsError::UnknownBroker(id)),
            _ => Ok(()),
        }
    }
}

/// A batch in its partition, on its way to the disk.
struct Appended {
    partition: i32,
    append: Append,
}

impl Appended {
    /// Waits until it has its topic's durability.
    async fn stored(self) -> Result<Placed, StreamsError> {
        self.append.ack.await?;
        Ok(Placed {
            partition: self.partition,
            base_offset: self.append.base_offset,
        })
    }
}

fn group_info(described: GroupDescription) -> GroupInfo {
    let members = described.members.into_iter().map(|member| GroupMember {
        member_id: member.member_id,
        client_id: member.client_id,
        host: member.client_host,
    });
    GroupInfo {
        group: described.group,
        state: described.state.name().to_owned(),
        protocol_type: described.protocol_type,
        members: members.collect(),
    }
}
