//! Topics of the cluster: made by our policies, described in our words.
//!
//! A stream's topic goes by its alias, which is legal in Kafka. Its TTL is the topic's
//! `retention.ms`; a plain topic keeps the cluster's default unless `streams.retention` was changed.
//! Durability `disk` is `flush.messages=1` (Kafka syncs before it acknowledges), `os` is Kafka's
//! usual way, `memory` is refused.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::Access;
use base::UnixMillis;
use parking_lot::Mutex;
use rdkafka::admin::{NewPartitions, NewTopic, TopicReplication};
use rdkafka::consumer::{Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use super::calls::Calls;
use super::error::{self, About};
use super::settings;
use crate::config::{Durability, StreamsConfig};
use crate::error::StreamsError;
use crate::event_store::{OffsetRange, TopicInfo, TopicSpec};
use crate::limits::{CLUSTER_TOPICS_KNOWN_MAX, PARTITIONS_PER_TOPIC_MAX};
use crate::replication::Replication;
use crate::topic::TopicName;

type Place = (TopicName, i32);

/// What a partition holds, first offset and end, or why that is not known.
pub(super) type Range = Result<(i64, i64), KafkaError>;

/// What a group committed for a partition: offset and metadata.
pub(super) type Committed = Option<(i64, String)>;

/// The topics of the cluster.
#[derive(Clone)]
pub(super) struct Topics {
    calls: Calls,
    config: Arc<StreamsConfig>,
    /// Topics that were seen, with their partitions, so that a batch needs no question first.
    known: Arc<Mutex<HashMap<TopicName, i32>>>,
    /// Who keeps the tenants, where any are.
    tenants: Arc<OnceLock<Arc<Access>>>,
    /// Held by who changes settings of topics.
    setting_changes: Arc<tokio::sync::Mutex<()>>,
}

impl Topics {
    pub(super) fn new(calls: Calls, config: Arc<StreamsConfig>) -> Self {
        Topics {
            calls,
            config,
            known: Arc::default(),
            tenants: Arc::default(),
            setting_changes: Arc::default(),
        }
    }

    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Has new topics and changes of settings be within what the tenants of `access` want kept.
    pub(super) fn follow_tenants(&self, access: &Arc<Access>) {
        let _ = self.tenants.set(Arc::clone(access));
    }

    pub(super) fn setting_changes(&self) -> &tokio::sync::Mutex<()> {
        &self.setting_changes
    }

    pub(super) fn tenants(&self) -> Option<&Arc<Access>> {
        self.tenants.get()
    }

    /// Creates a topic; every partition has a leader when this returns.
    pub(super) async fn create(&self, spec: TopicSpec) -> Result<TopicInfo, StreamsError> {
        let name = spec.name.clone();
        if name.is_internal() {
            return Err(StreamsError::InternalTopic(name));
        }
        let policy = self.config.creation_policy(&name);
        let replication = spec.replication.clone();
        let partitions = match &replication {
            Replication::Assigned(assigned) => i32::try_from(assigned.len()).unwrap_or(i32::MAX),
            _ => spec.partitions.unwrap_or(policy.partitions),
        };
        if !(1..=PARTITIONS_PER_TOPIC_MAX).contains(&partitions) {
            let max = PARTITIONS_PER_TOPIC_MAX;
            return Err(StreamsError::InvalidPartitions { partitions, max });
        }
        let set = settings::of_new_topic(&self.config, spec, self.tenant_keeps(&name))?;
        let assigned: Vec<&[i32]> = match &replication {
            Replication::Assigned(assigned) => assigned.iter().map(Vec::as_slice).collect(),
            _ => Vec::new(),
        };
        let replication = match replication {
            Replication::Usual => TopicReplication::Fixed(self.calls.config().replication_factor),
            Replication::Factor(factor) => TopicReplication::Fixed(factor),
            Replication::Assigned(_) => TopicReplication::Variable(&assigned),
        };
        let mut topic = NewTopic::new(name.wire_name(), partitions, replication);
        for (key, value) in &set {
            topic = topic.set(key, value);
        }
        let created = self
            .calls
            .admin()
            .create_topics([&topic], &self.calls.options());
        let created = self.calls.judged(About::Topic(&name), created.await)?;
        self.one_result(&name, created)?;
        self.await_partitions(&name, partitions).await?;
        self.info(&name).await
    }

    pub(super) async fn delete(&self, name: &TopicName) -> Result<(), StreamsError> {
        let names = [name.wire_name()];
        let deleted = self
            .calls
            .admin()
            .delete_topics(&names, &self.calls.options());
        let deleted = self.calls.judged(About::Topic(name), deleted.await)?;
        self.known.lock().remove(name);
        self.one_result(name, deleted)?;
        self.eventually(|| async { Ok((self.looked_up(name).await?.is_none()).then_some(())) })
            .await
    }

    /// All topics but Kafka's own.
    pub(super) async fn all(&self) -> Result<Vec<TopicInfo>, StreamsError> {
        let found = self.partitions_of_all().await?;
        self.described(found).await
    }

    /// Every partition of every topic.
    pub(super) async fn places(&self) -> Result<Vec<Place>, StreamsError> {
        let topics = self.partitions_of_all().await?.into_iter();
        let places = topics
            .flat_map(|(name, partitions)| (0..partitions).map(move |index| (name.clone(), index)));
        Ok(places.collect())
    }

    /// The offset of the first record at or after `at`; none when all are older.
    pub(super) async fn offset_for_time(
        &self,
        name: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        self.check(name, partition).await?;
        let (about, wire_name) = (
            About::Partition(name, partition),
            name.wire_name().to_owned(),
        );
        let found = self.calls.blocking(about, move |asker, timeout| {
            let mut asked = TopicPartitionList::new();
            // A time stands where offsets do.
            asked.add_partition_offset(&wire_name, partition, Offset::Offset(at.0.max(0)))?;
            let found = asker.offsets_for_times(asked, timeout)?;
            let Some(element) = found.find_partition(&wire_name, partition) else {
                return Ok(None);
            };
            element.error()?;
            Ok(match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            })
        });
        found.await
    }

    pub(super) async fn partitions_of_all(&self) -> Result<BTreeMap<TopicName, i32>, StreamsError> {
        let found = self.calls.blocking(About::Cluster, |asker, timeout| {
            let metadata = asker.fetch_metadata(None, timeout)?;
            let topics = metadata.topics().iter();
            let whole = topics.filter(|topic| topic.error().is_none());
            let named = whole.filter_map(|topic| {
                let partitions = i32::try_from(topic.partitions().len()).ok()?;
                Some((topic.name().parse::<TopicName>().ok()?, partitions))
            });
            Ok(named.collect::<BTreeMap<TopicName, i32>>())
        });
        let mut found = found.await?;
        found.retain(|name, _| !name.is_internal());
        Ok(found)
    }

    /// One topic; `UnknownTopic` when it is not there.
    pub(super) async fn info(&self, name: &TopicName) -> Result<TopicInfo, StreamsError> {
        let unknown = || StreamsError::UnknownTopic(name.clone());
        let partitions = self.looked_up(name).await?.ok_or_else(unknown)?;
        let described = self.described(BTreeMap::from([(name.clone(), partitions)]));
        described.await?.pop().ok_or_else(unknown)
    }

    pub(super) async fn found_or_created(
        &self,
        name: &TopicName,
    ) -> Result<TopicInfo, StreamsError> {
        match self.info(name).await {
            Err(StreamsError::UnknownTopic(_)) => {}
            outcome => return outcome,
        }
        if !self.config.creation_policy(name).autocreate {
            return Err(StreamsError::AutoCreateOff(name.clone()));
        }
        match self.create(TopicSpec::of(name.clone())).await {
            Err(StreamsError::TopicExists(_)) => self.appeared(name).await,
            outcome => outcome,
        }
    }

    /// A topic that somebody else was faster to create: the cluster's brokers hear of it one by one.
    async fn appeared(&self, name: &TopicName) -> Result<TopicInfo, StreamsError> {
        let until = tokio::time::Instant::now() + APPEARS_WITHIN;
        loop {
            match self.info(name).await {
                Err(StreamsError::UnknownTopic(_)) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(APPEARS_LOOK).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// How many partitions a topic has, without a question to the cluster when it was seen.
    pub(super) async fn partitions(&self, name: &TopicName) -> Result<i32, StreamsError> {
        let known = self.known.lock().get(name).copied();
        let found = match known {
            Some(partitions) => Some(partitions),
            None => self.looked_up(name).await?,
        };
        found.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))
    }

    /// The same of a topic that is created when it is not there.
    pub(super) async fn partitions_or_create(&self, name: &TopicName) -> Result<i32, StreamsError> {
        match self.partitions(name).await {
            Err(StreamsError::UnknownTopic(_)) => Ok(self.found_or_created(name).await?.partitions),
            found => found,
        }
    }

    pub(super) async fn create_partitions(
        &self,
        name: &TopicName,
        count: i32,
    ) -> Result<(), StreamsError> {
        let max = PARTITIONS_PER_TOPIC_MAX;
        if count > max {
            let partitions = count;
            return Err(StreamsError::InvalidPartitions { partitions, max });
        }
        let now = self.looked_up(name).await?;
        let now = now.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))?;
        if count <= now {
            let topic = name.clone();
            return Err(StreamsError::PartitionsOnlyGrow { topic, now });
        }
        let wanted = usize::try_from(count).unwrap_or(0);
        let wanted = [NewPartitions::new(name.wire_name(), wanted)];
        let grown = self
            .calls
            .admin()
            .create_partitions(&wanted, &self.calls.options());
        let grown = self.calls.judged(About::Topic(name), grown.await)?;
        self.one_result(name, grown)?;
        self.await_partitions(name, count).await
    }

    /// Deletes records before an offset; answers where the partition begins then.
    pub(super) async fn delete_records(
        &self,
        name: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<i64, StreamsError> {
        self.check(name, partition).await?;
        let mut list = TopicPartitionList::new();
        let before = offset.map_or(Offset::End, Offset::Offset);
        let about = About::Partition(name, partition);
        let added = list.add_partition_offset(name.wire_name(), partition, before);
        self.calls.judged(About::Cluster, added)?;
        if let Some(offset) = offset {
            let range = self.range(name, partition).await?;
            if !(0..=range.end).contains(&offset) {
                let (start, end) = (range.start, range.end);
                return Err(StreamsError::OffsetOutOfRange { offset, start, end });
            }
            if offset <= range.start {
                return Ok(range.start);
            }
        }
        let deleted = self
            .calls
            .admin()
            .delete_records(&list, &self.calls.options());
        let deleted = self.calls.judged(about, deleted.await)?;
        for element in deleted.elements() {
            self.calls.judged(about, element.error())?;
            if let Offset::Offset(start) = element.offset() {
                return Ok(start);
            }
        }
        Ok(self.range(name, partition).await?.start)
    }

    /// Answers `UnknownTopic` or `UnknownPartition` unless the partition is there.
    pub(super) async fn check(&self, name: &TopicName, partition: i32) -> Result<(), StreamsError> {
        let is_within = |count: i32| (0..count).contains(&partition);
        if self
            .known
            .lock()
            .get(name)
            .is_some_and(|count| is_within(*count))
        {
            return Ok(());
        }
        match self.looked_up(name).await? {
            Some(count) if is_within(count) => Ok(()),
            Some(_) => {
                let topic = name.clone();
                Err(StreamsError::UnknownPartition { topic, partition })
            }
            None => Err(StreamsError::UnknownTopic(name.clone())),
        }
    }

    /// Forgets a topic that turned out to be gone.
    pub(super) fn forget(&self, name: &TopicName) {
        self.known.lock().remove(name);
    }

    /// How many partitions a topic has, when it is there.
    async fn looked_up(&self, name: &TopicName) -> Result<Option<i32>, StreamsError> {
        let found = self.metadata(name).await?.map(|(partitions, _)| partitions);
        let mut known = self.known.lock();
        match found {
            Some(partitions) => {
                if known.len() >= CLUSTER_TOPICS_KNOWN_MAX {
                    known.clear();
                }
                known.insert(name.clone(), partitions);
            }
            None => drop(known.remove(name)),
        }
        Ok(found)
    }

    /// A topic's partitions, and whether each has a leader; none when it is not there.
    async fn metadata(&self, name: &TopicName) -> Result<Option<(i32, bool)>, StreamsError> {
        let wire = name.wire_name().to_owned();
        let found = self
            .calls
            .blocking(About::Topic(name), move |asker, timeout| {
                let metadata = asker.fetch_metadata(Some(&wire), timeout)?;
                let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == wire)
                else {
                    return Ok(None);
                };
                if let Some(error) = topic.error() {
                    return Err(KafkaError::MetadataFetch(error.into()));
                }
                let partitions = topic.partitions();
                let is_led = partitions.iter().all(|partition| partition.leader() >= 0);
                Ok(i32::try_from(partitions.len())
                    .ok()
                    .map(|count| (count, is_led)))
            });
        match found.await {
            Err(StreamsError::UnknownTopic(_)) => Ok(None),
            outcome => outcome,
        }
    }

    async fn await_partitions(&self, name: &TopicName, count: i32) -> Result<(), StreamsError> {
        self.eventually(|| async {
            let found = self.metadata(name).await?;
            Ok(found
                .filter(|(partitions, is_led)| *partitions >= count && *is_led)
                .map(drop))
        })
        .await?;
        self.looked_up(name).await.map(drop)
    }

    /// Asks until the brokers, which learn of a change one after the other, agree.
    async fn eventually<F>(&self, mut asked: impl FnMut() -> F) -> Result<(), StreamsError>
    where
        F: Future<Output = Result<Option<()>, StreamsError>>,
    {
        let deadline = Instant::now() + self.calls.config().call_timeout();
        loop {
            if asked().await?.is_some() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(StreamsError::Unavailable(
                    "the brokers do not know of the change yet".to_owned(),
                ));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn range(&self, name: &TopicName, partition: i32) -> Result<OffsetRange, StreamsError> {
        let places = vec![(name.clone(), partition)];
        let found = self
            .calls
            .blocking(About::Partition(name, partition), move |asker, timeout| {
                ranges(asker, &places, timeout)
            });
        let found = found.await?.pop().map(|(_, range)| range);
        let unknown = || StreamsError::UnknownTopic(name.clone());
        let range = self.calls.judged(
            About::Partition(name, partition),
            found.ok_or_else(unknown)?,
        );
        range.map(|(start, end)| OffsetRange { start, end })
    }

    /// Topics with what their partitions hold.
    async fn described(
        &self,
        topics: BTreeMap<TopicName, i32>,
    ) -> Result<Vec<TopicInfo>, StreamsError> {
        let places: Vec<Place> = topics
            .iter()
            .flat_map(|(name, count)| (0..*count).map(|partition| (name.clone(), partition)))
            .collect();
        let found = self.calls.blocking(About::Cluster, move |asker, timeout| {
            ranges(asker, &places, timeout)
        });
        let found: HashMap<Place, _> = found.await?.into_iter().collect();
        let synced = settings::synced_topics(&self.calls, topics.keys()).await;
        let mut infos = Vec::with_capacity(topics.len());
        for (name, partitions) in topics {
            let range = |partition| match found.get(&(name.clone(), partition)) {
                Some(Ok((start, end))) => OffsetRange {
                    start: *start,
                    end: *end,
                },
                // A partition without a leader holds nothing that can be told of.
                _ => OffsetRange { start: 0, end: 0 },
            };
            let partition_offsets: Vec<OffsetRange> = (0..partitions).map(range).collect();
            let ends = partition_offsets
                .iter()
                .map(|range| range.end.unsigned_abs());
            infos.push(TopicInfo {
                id: None,
                partitions,
                records_in_total: ends.sum(),
                bytes_in_total: None,
                bytes_stored: None,
                durability: match synced.contains(&name) {
                    true => Durability::Disk,
                    false => Durability::Os,
                },
                partition_offsets,
                name,
            });
        }
        Ok(infos)
    }

    fn one_result(
        &self,
        name: &TopicName,
        results: Vec<rdkafka::admin::TopicResult>,
    ) -> Result<(), StreamsError> {
        for result in results {
            if let Err((_, code)) = result {
                let trouble = self.calls.trouble().told();
                return Err(error::of_code(code, About::Topic(name), trouble.as_deref()));
            }
        }
        Ok(())
    }
}

/// What partitions hold for a consumer: first offset, and the one after the last that it may see.
/// Asks again while a partition has no leader, as after its creation.
pub(super) fn ranges<C: ConsumerContext>(
    asker: &impl Consumer<C>,
    places: &[Place],
    timeout: Duration,
) -> Result<Vec<(Place, Range)>, KafkaError> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + timeout;
    loop {
        let found = ranges_now(asker, places, timeout);
        let is_moving = match &found {
            Ok(found) => found
                .iter()
                .any(|(_, range)| range.as_ref().is_err_and(error::is_moving)),
            Err(error) => error::is_moving(error),
        };
        if !is_moving || Instant::now() > deadline {
            return found;
        }
        // This is a thread on which waiting is allowed.
        std::thread::sleep(ASK_AGAIN);
    }
}

fn ranges_now<C: ConsumerContext>(
    asker: &impl Consumer<C>,
    places: &[Place],
    timeout: Duration,
) -> Result<Vec<(Place, Range)>, KafkaError> {
    let mut asked = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        asked.add_partition_offset(topic.wire_name(), *partition, Offset::Beginning)?;
    }
    let starts = asker.offsets_for_times(asked.clone(), timeout)?;
    asked.set_all_offsets(Offset::End)?;
    let ends = asker.offsets_for_times(asked, timeout)?;
    let offset_in =
        |list: &TopicPartitionList, (topic, partition): &Place| -> Result<i64, KafkaError> {
            let Some(element) = list.find_partition(topic.wire_name(), *partition) else {
                return Ok(0);
            };
            element.error()?;
            Ok(element.offset().to_raw().unwrap_or(0).max(0))
        };
    let range = |place: &Place| Ok((offset_in(&starts, place)?, offset_in(&ends, place)?));
    Ok(places
        .iter()
        .map(|place| (place.clone(), range(place)))
        .collect())
}

/// What a consumer's group has committed: offset and metadata, in the order asked.
pub(super) fn committed<C: ConsumerContext>(
    asker: &impl Consumer<C>,
    places: &[Place],
    timeout: Duration,
) -> Result<Vec<(Place, Committed)>, KafkaError> {
    let mut asked = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        asked.add_partition(topic.wire_name(), *partition);
    }
    let found = asker.committed_offsets(asked, timeout)?;
    let mut committed = Vec::with_capacity(places.len());
    for place in places {
        let element = found.find_partition(place.0.wire_name(), place.1);
        let offset = match element {
            Some(element) => {
                match element.error() {
                    Err(error) if error::is_no_topic(&error) => {}
                    outcome => outcome?,
                }
                match element.offset() {
                    Offset::Offset(offset) => Some((offset, element.metadata().to_owned())),
                    _ => None,
                }
            }
            None => None,
        };
        committed.push((place.clone(), offset));
    }
    Ok(committed)
}

/// How long a topic that exists may be unknown to the brokers that are asked.
const APPEARS_WITHIN: Duration = Duration::from_secs(5);
const APPEARS_LOOK: Duration = Duration::from_millis(50);
/// How soon to ask again whether the brokers know of a change.
const ASK_AGAIN: Duration = Duration::from_millis(20);
