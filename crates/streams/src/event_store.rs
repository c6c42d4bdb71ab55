//! The seam of the event store: what every other crate knows of it.
//!
//! The embedded store ([`crate::Streams`]) is one implementation, a Kafka cluster
//! ([`crate::Cluster`]) the other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use access::Snapshot;
use async_trait::async_trait;
use base::{TenantId, UnixMillis};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::administration::Administration;
use crate::backup::{BackupHead, TopicBackup, TopicRestore};
use crate::cluster::RetentionChange;
use crate::config::Durability;
use crate::error::StreamsError;
use crate::fenced::FencedWriter;
use crate::offsets::GroupOffset;
use crate::once::{ProduceOnce, StoredOnce};
use crate::record::{ConsumedRecord, Record};
use crate::replication::Replication;
use crate::tenants::Run;
use crate::topic::TopicName;
use crate::topic_config::{ConfigChange, TopicConfig};

/// A store of topics.
#[async_trait]
pub trait EventStore: Administration {
    /// Who the store is to Kafka's clients: its id and its servers.
    async fn cluster(&self) -> Result<ClusterInfo, StreamsError>;

    /// Creates a topic; it is durable when this returns. Answers `TopicExists` when it is there.
    async fn create_topic(&self, spec: TopicSpec) -> Result<TopicInfo, StreamsError>;

    /// Deletes a topic with its records and its groups' offsets.
    async fn delete_topic(&self, topic: &TopicName) -> Result<(), StreamsError>;

    /// All topics, by wire name.
    async fn topics(&self) -> Result<Vec<TopicInfo>, StreamsError>;

    /// The names of all topics, by wire name: less to ask for than [`EventStore::topics`].
    async fn topic_names(&self) -> Result<Vec<TopicName>, StreamsError> {
        let topics = self.topics().await?.into_iter();
        Ok(topics.map(|info| info.name).collect())
    }

    /// One topic; answers `UnknownTopic` when it is not there.
    async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError>;

    /// One topic, created by the store's or its stream's policy when it is not there; answers
    /// `AutoCreateOff` when the policy forbids that.
    async fn topic_or_create(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError>;

    /// How many partitions a topic has.
    ///
    /// # Errors
    /// `UnknownTopic` when it is not there.
    async fn partitions(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        Ok(self.topic(topic).await?.partitions)
    }

    /// How many partitions a topic has, which is created as by [`EventStore::topic_or_create`] when
    /// it is not there; what a producer asks before every batch.
    async fn partitions_or_create(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        Ok(self.topic_or_create(topic).await?.partitions)
    }

    /// The settings that hold for a topic, by name.
    async fn topic_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        let _ = topic;
        Err(StreamsError::Unsupported("telling a topic's settings"))
    }

    /// The settings that a new topic of this name would have, by name.
    async fn default_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        let _ = topic;
        Err(StreamsError::Unsupported("telling a new topic's settings"))
    }

    /// Changes settings of a topic, all or none; durable when this returns.
    async fn alter_topic(
        &self,
        topic: &TopicName,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        let _ = (topic, changes);
        Err(StreamsError::Unsupported("changing a topic's settings"))
    }

    /// Has a topic have `count` partitions, more than now; durable when this returns.
    async fn create_partitions(&self, topic: &TopicName, count: i32) -> Result<(), StreamsError> {
        let _ = (topic, count);
        Err(StreamsError::Unsupported("adding partitions"))
    }

    /// Deletes the records of a partition before `offset`, all that can be read now when it is
    /// none; durable when this returns. Answers where the partition begins then.
    async fn delete_records(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<i64, StreamsError> {
        let _ = (topic, partition, offset);
        Err(StreamsError::Unsupported("deleting records"))
    }

    /// Stores the records of one batch together; returns when they have the topic's durability.
    /// A batch whose sequence was stored already answers its old offset.
    async fn produce(&self, batch: ProduceBatch) -> Result<Placed, StreamsError>;

    /// Stores batches of one producer in their order, as [`EventStore::produce`] does, where the
    /// store can do so with one wait for all. After an error those before may be stored.
    async fn produce_in_order(
        &self,
        batches: Vec<ProduceBatch>,
    ) -> Result<Vec<Placed>, StreamsError> {
        let mut placed = Vec::with_capacity(batches.len());
        for batch in batches {
            placed.push(self.produce(batch).await?);
        }
        Ok(placed)
    }

    /// Stores records at most once under a key, all or none; returns when they have their topic's
    /// durability. A key that was stored under before, by whichever process on this store, answers
    /// where, and `KeyReused` when it came with another request; one that is under way is waited
    /// for. After an error the same request may be sent again.
    async fn produce_once(&self, asked: ProduceOnce) -> Result<StoredOnce, StreamsError> {
        let _ = asked;
        Err(StreamsError::Unsupported("storing once by a key"))
    }

    /// Takes a name, under which its last holder writes alone: those before are refused from now
    /// on, and what they left unfinished is taken back.
    async fn fenced_writer(&self, name: &str) -> Result<Box<dyn FencedWriter>, StreamsError> {
        let _ = name;
        Err(StreamsError::Unsupported("writing under a name"))
    }

    /// Whether other processes may work on the same store.
    fn is_shared(&self) -> bool {
        false
    }

    /// A producer id that nobody had before and nobody will get again; its first epoch is 0.
    async fn producer_id(&self) -> Result<i64, StreamsError>;

    /// A consumer, which holds nothing until it subscribes or is assigned partitions.
    async fn consumer(&self, config: ConsumerConfig) -> Result<Box<dyn Consumer>, StreamsError>;

    /// The offsets that a group has committed, in the order asked; none where it has not.
    async fn committed(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError>;

    /// All groups that have members or committed offsets.
    async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError>;

    /// One group with its members' partitions and its offsets; none when there is no such group.
    async fn group(&self, group: &str) -> Result<Option<GroupDetail>, StreamsError> {
        let _ = group;
        Err(StreamsError::Unsupported("describing a group"))
    }

    /// Has a group without members go on from these offsets (topic, partition, next offset to
    /// read), all or none; durable when this returns.
    async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        let _ = (group, offsets);
        Err(StreamsError::Unsupported("resetting a group's offsets"))
    }

    /// Forgets a group without members and its offsets; durable when this returns.
    async fn delete_group(&self, group: &str) -> Result<(), StreamsError> {
        let _ = group;
        Err(StreamsError::Unsupported("deleting a group"))
    }

    /// The settings of a group, by name, whether or not there is such a group.
    async fn group_settings(&self, group: &str) -> Result<Vec<HeldSetting>, StreamsError> {
        let _ = group;
        Err(StreamsError::Unsupported("telling a group's settings"))
    }

    /// Changes settings of a group, all or none; durable when this returns. The group need not be
    /// there yet.
    async fn alter_group(
        &self,
        group: &str,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        let _ = (group, changes);
        Err(StreamsError::Unsupported("changing a group's settings"))
    }

    /// Begins a backup of a topic as it is now, with what groups have committed if wanted.
    async fn back_up(
        &self,
        topic: &TopicName,
        with_groups: bool,
    ) -> Result<Box<dyn TopicBackup>, StreamsError> {
        let _ = (topic, with_groups);
        Err(StreamsError::Unsupported("backing a topic up"))
    }

    /// Begins to restore a topic under a name that no topic has.
    async fn restore(
        &self,
        head: BackupHead,
        topic: TopicName,
    ) -> Result<Box<dyn TopicRestore>, StreamsError> {
        let _ = (head, topic);
        Err(StreamsError::Unsupported("restoring a topic"))
    }

    /// The offset of the first record at or after `at`, or one that lies before it; none when all
    /// are older.
    async fn offset_for_time(
        &self,
        topic: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        let _ = (topic, partition, at);
        Err(StreamsError::Unsupported("finding offsets by time"))
    }

    /// For how long a part of this process has to leave a tenant's work alone, whose quotas it uses.
    ///
    /// # Errors
    /// [`StreamsError::TenantFull`] where the tenant keeps as much as it may.
    fn tenant_wait(&self, tenant: &TenantId) -> Result<Duration, StreamsError> {
        let _ = tenant;
        Ok(Duration::ZERO)
    }

    /// A tenant's runs of records in each partition of a topic that several share; none where the
    /// store does not tell.
    async fn tenant_runs(
        &self,
        topic: &TopicName,
        tenant: &TenantId,
    ) -> Result<Option<Vec<Vec<Run>>>, StreamsError> {
        let _ = (topic, tenant);
        Ok(None)
    }

    /// Bytes of each tenant's keys and values in a topic that several share; none where the store does
    /// not tell.
    async fn tenant_bytes(
        &self,
        topic: &TopicName,
    ) -> Result<Option<BTreeMap<TenantId, u64>>, StreamsError> {
        let _ = topic;
        Ok(None)
    }

    /// How many records a tenant has at these offsets of a partition of a topic that several share,
    /// and the time of the oldest; none where the store does not tell. Reads them.
    async fn count_tenant(
        &self,
        topic: &TopicName,
        partition: i32,
        tenant: &TenantId,
        within: Range<i64>,
    ) -> Result<(u64, Option<UnixMillis>), StreamsError> {
        let _ = (topic, partition, tenant, within);
        Ok((0, None))
    }

    /// Takes what a tenant wrote before `before`, or all of it, out of a topic that several share;
    /// answers how many records that were, none where the store cannot.
    async fn purge_tenant(
        &self,
        topic: &TopicName,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Option<u64>, StreamsError> {
        let _ = (topic, tenant, before);
        Ok(None)
    }

    /// Has a tenant's own topics follow a change of how long it keeps records, where their settings
    /// have to say so; does nothing where the store looks after that by itself. All or none.
    ///
    /// # Errors
    /// The store's, which names the topic.
    async fn follow_retention(
        &self,
        snapshot: &Snapshot,
        tenant: &TenantId,
        change: RetentionChange,
    ) -> Result<(), StreamsError> {
        let _ = (snapshot, tenant, change);
        Ok(())
    }

    /// The time of the batch that holds `offset`; none where there is no such batch, or the store
    /// does not tell.
    async fn time_at(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: i64,
    ) -> Result<Option<UnixMillis>, StreamsError> {
        let _ = (topic, partition, offset);
        Ok(None)
    }
}

/// A reader of partitions, alone or as a member of a group.
#[async_trait]
pub trait Consumer: Send {
    /// Joins the group for these topics, in place of what it held before. Needs a group.
    async fn subscribe(&mut self, topics: Vec<TopicName>) -> Result<(), StreamsError>;

    /// Takes exactly these partitions, without the group's coordinator.
    async fn assign(&mut self, partitions: Vec<(TopicName, i32)>) -> Result<(), StreamsError>;

    /// The partitions that it holds now.
    fn assignment(&self) -> Vec<(TopicName, i32)>;

    /// Answers as soon as records are there, or with none after `max_wait`. The first record is
    /// answered even when it alone is larger than `max_bytes`.
    async fn poll(
        &mut self,
        max_wait: Duration,
        max_bytes: usize,
    ) -> Result<Vec<ConsumedRecord>, StreamsError>;

    /// Commits offsets (topic, partition, next offset to read, metadata), durable on return; none
    /// commits everything polled. Answers what was committed.
    async fn commit(
        &mut self,
        offsets: Option<Vec<(TopicName, i32, i64, String)>>,
    ) -> Result<Vec<(TopicName, i32, i64)>, StreamsError>;

    /// The offset that the next poll starts from, once it is known.
    fn position(&self, topic: &TopicName, partition: i32) -> Option<i64>;

    /// Whether the latest look at a partition that it holds found nothing more to read. The position
    /// may then still lie before the end: what is between is no record (marks of transactions), or
    /// not committed yet.
    fn is_at_end(&self, topic: &TopicName, partition: i32) -> bool;

    /// Moves the position of a partition that it holds.
    async fn seek(
        &mut self,
        topic: &TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError>;

    /// Takes part in what its group does while nobody polls, and takes no records. Whoever may leave
    /// a consumer of a group alone for seconds calls it about once in each, so that the group does not
    /// wait for it; it does little, and nothing where members keep up by themselves.
    async fn tend(&mut self) -> Result<(), StreamsError> {
        Ok(())
    }

    /// Leaves the group at once; dropping does the same when it can.
    async fn close(self: Box<Self>) -> Result<(), StreamsError>;
}

/// A store as Kafka's clients know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Its id.
    pub id: String,
    /// The broker that decides, where the store tells.
    pub controller: Option<i32>,
    /// Its servers, by id.
    pub brokers: Vec<BrokerInfo>,
}

/// A server of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerInfo {
    /// Its id.
    pub id: i32,
    /// Where Kafka's clients connect to; none when nothing listens.
    pub address: Option<(String, u16)>,
}

/// A topic to be created.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    /// Its name.
    pub name: TopicName,
    /// How many partitions; none takes the store's or the stream's default.
    pub partitions: Option<i32>,
    /// What acknowledgements promise; none takes the store's default.
    pub durability: Option<Durability>,
    /// On which brokers its partitions lie.
    pub replication: Replication,
    /// Its settings but for those above.
    pub config: TopicConfig,
}

/// A setting of a topic or a group as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSetting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Whether it was set for this one, and not left to the store's default.
    pub is_set: bool,
}

/// A topic as it stands.
#[derive(Clone, Debug)]
pub struct TopicInfo {
    /// Its name.
    pub name: TopicName,
    /// Its id, which a topic of the same name created later does not share; none where the store
    /// does not tell.
    pub id: Option<Uuid>,
    /// How many partitions.
    pub partitions: i32,
    /// Records taken since it was created, as far as their offsets tell.
    pub records_in_total: u64,
    /// Bytes of record batches taken since it was created; none where the store does not tell.
    pub bytes_in_total: Option<u64>,
    /// Bytes of record batches held now; none where the store does not tell.
    pub bytes_stored: Option<u64>,
    /// What acknowledgements promise.
    pub durability: Durability,
    /// What each partition holds, by partition.
    pub partition_offsets: Vec<OffsetRange>,
}

/// The visible offsets of a partition: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// The first offset that can be read.
    pub start: i64,
    /// The offset that the next visible record will have.
    pub end: i64,
}

/// The place of a batch in its producer's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSequence {
    /// From [`EventStore::producer_id`].
    pub producer_id: i64,
    /// 0 unless an older instance is to be fenced off.
    pub producer_epoch: i16,
    /// The sequence of the first record; the next batch continues after the last.
    pub first_sequence: i32,
}

/// Records for one partition, stored together.
#[derive(Clone, Debug)]
pub struct ProduceBatch {
    /// The topic.
    pub topic: TopicName,
    /// The partition, from zero.
    pub partition: i32,
    /// The records, at least one.
    pub records: Vec<Record>,
    /// For storing once whatever is retried.
    pub sequence: Option<ProducerSequence>,
}

/// Where a batch was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The partition.
    pub partition: i32,
    /// The offset of its first record.
    pub base_offset: i64,
}

/// How a consumer is to behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// Its group; none for a consumer that is only assigned partitions and commits nothing.
    pub group: Option<String>,
    /// Its name in the group's member list.
    pub client_id: String,
    /// Where to start when the group has committed nothing, or what it committed is gone.
    pub auto_offset_reset: OffsetReset,
    /// How long the coordinator waits for its heartbeat before others get its partitions.
    pub session_timeout: Duration,
    /// Which records it is shown.
    pub isolation: Isolation,
    /// Whether a member of a group is given records; one that is not holds partitions and commits,
    /// and leaves the reading to others.
    pub reads: bool,
}

/// Where to start without a committed offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the oldest record.
    Earliest,
    /// After the newest record.
    #[default]
    Latest,
}

/// Which records a reader is shown, as Kafka's `isolation.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// All, those of open and aborted transactions too.
    #[default]
    #[serde(rename = "read_uncommitted")]
    Uncommitted,
    /// Up to the first open transaction, and none of an aborted one.
    #[serde(rename = "read_committed")]
    Committed,
}

impl Isolation {
    /// Its name in Kafka's settings.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Uncommitted => "read_uncommitted",
            Isolation::Committed => "read_committed",
        }
    }
}

/// Where to move a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// To this offset.
    Offset(i64),
    /// To the oldest record.
    Beginning,
    /// After the newest record.
    End,
}

/// An offset that a group has committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch that came with it, -1 when none did.
    pub leader_epoch: i32,
    /// The text that came with it.
    pub metadata: String,
    /// When it was committed; -1 where the store does not tell.
    pub at: UnixMillis,
}

/// A consumer group as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub group: String,
    /// Kafka's word for its state, such as `Stable` or `Empty`.
    pub state: String,
    /// Kafka's word for its kind of protocol, `consumer` for consumers.
    pub protocol_type: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the coordinator gave it.
    pub member_id: String,
    /// The name that it gave itself.
    pub client_id: String,
    /// Where it connected from; empty for a consumer in this process.
    pub host: String,
}

/// A consumer group with all that people want to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDetail {
    /// Its name.
    pub group: String,
    /// Which protocol its members speak: `Classic` or `Consumer` (KIP-848); `Unknown` of a group that
    /// is none yet, and only has settings.
    pub kind: String,
    /// Kafka's word for its state, such as `Stable` or `Empty`; `Dead` of one that only has settings.
    pub state: String,
    /// Kafka's word for its kind of protocol, `consumer` for consumers; empty when nobody joined.
    pub protocol_type: String,
    /// How partitions are shared, such as `range`; empty without members.
    pub assignor: String,
    /// Its members.
    pub members: Vec<GroupInstance>,
    /// What it has committed.
    pub committed: Vec<GroupOffset>,
}

/// A member of a group with its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInstance {
    /// The id that the coordinator gave it.
    pub member_id: String,
    /// The name that it keeps over restarts, when it is static.
    pub instance_id: Option<String>,
    /// The name that it gave itself.
    pub client_id: String,
    /// Where it connected from; empty for a consumer in this process.
    pub host: String,
    /// Whether it speaks the classic protocol; in a group of the newer one, too, some members may.
    pub is_classic: bool,
    /// The partitions that it reads.
    pub assigned: Vec<(TopicName, i32)>,
}

impl TopicSpec {
    /// A topic with the store's defaults.
    pub fn of(name: TopicName) -> Self {
        TopicSpec {
            name,
            partitions: None,
            durability: None,
            replication: Replication::Usual,
            config: TopicConfig::default(),
        }
    }

    /// The same with `partitions` partitions.
    pub fn with_partitions(mut self, partitions: i32) -> Self {
        self.partitions = Some(partitions);
        self
    }
}

impl ConsumerConfig {
    /// A consumer of `group` that starts at the oldest record.
    pub fn in_group(group: impl Into<String>, client_id: impl Into<String>) -> Self {
        ConsumerConfig {
            group: Some(group.into()),
            client_id: client_id.into(),
            auto_offset_reset: OffsetReset::Earliest,
            session_timeout: Duration::from_secs(30),
            isolation: Isolation::default(),
            reads: true,
        }
    }

    /// A consumer without a group that starts at the oldest record.
    pub fn alone(client_id: impl Into<String>) -> Self {
        ConsumerConfig {
            group: None,
            client_id: client_id.into(),
            auto_offset_reset: OffsetReset::Earliest,
            session_timeout: Duration::from_secs(30),
            isolation: Isolation::default(),
            reads: true,
        }
    }
}
