//! A consumer of the cluster behind the trait.
//!
//! Subscribed, it is a member of a real consumer group, whose coordinator says what it holds.
//! Assigned, it keeps the positions itself: they are worked out before the first poll (committed
//! offset, else the reset; what is out of range falls back to the reset), so that a seek is only a
//! note and any number of them costs one assignment.
//!
//! A poll that is given up loses nothing: its only wait is for the first record, and that one is
//! handed over in the same step that ends the wait.

mod going_on;
mod placing;
mod resting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use base::UnixMillis;
use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance, RebalanceProtocol,
    StreamConsumer,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientContext, util::Timeout};
use tokio::time::Instant;

use super::calls::{self, Calls, Trouble};
use super::error::{self, About};
use super::readers::Readers;
use super::topics::Topics;
use crate::error::StreamsError;
use crate::event_store::{Consumer, ConsumerConfig, OffsetReset, SeekTo};
use crate::groups::GroupError;
use crate::limits::{CLUSTER_FETCH_WAIT, CLUSTER_PREFETCH_KBYTES, CONSUMER_PARTITIONS_MAX};
use crate::record::ConsumedRecord;
use crate::topic::TopicName;

pub(super) type Place = (TopicName, i32);
pub(super) type Client = StreamConsumer<Member>;

/// A consumer of the cluster.
pub(super) struct ClusterConsumer {
    topics: Topics,
    calls: Calls,
    config: ConsumerConfig,
    /// Where its client goes, and may come from, when it is in no group.
    readers: Readers,
    /// None after it was closed, and, of one without a group, before it is needed.
    client: Option<Arc<Client>>,
    /// Whether reading ended in an error: nobody goes on with its client.
    has_failed: bool,
    member: Member,
    mode: Mode,
    positions: BTreeMap<Place, Position>,
    /// Records that did not fit into the last poll, or came while it rested.
    kept: VecDeque<ConsumedRecord>,
    /// How often it was tended since it was polled.
    tended: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nothing,
    Subscribed,
    /// `is_placed` once the cluster's client reads from our positions.
    Assigned {
        is_placed: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// The next offset, once it is known.
    next: Option<i64>,
    /// Where it was moved to and has not gone yet.
    moved: Option<SeekTo>,
    /// Whether a record of it was answered.
    is_polled: bool,
    /// Whether the cluster said that nothing more is there, and no record came since.
    is_at_end: bool,
}

impl Position {
    /// The offset that is read next, once it is known.
    fn at(&self) -> Option<i64> {
        match self.moved {
            Some(SeekTo::Offset(offset)) => Some(offset),
            Some(SeekTo::Beginning | SeekTo::End) => None,
            None => self.next,
        }
    }
}

/// What the group's coordinator gave, as the client's callbacks tell it.
#[derive(Clone)]
pub(super) struct Member {
    held: Arc<Mutex<BTreeSet<Place>>>,
    /// What was taken away since the last poll.
    revoked: Arc<Mutex<BTreeSet<Place>>>,
    /// Whether it is given records.
    reads: bool,
    /// Whether nobody polls it, so that what it holds is paused.
    rests: Arc<AtomicBool>,
    trouble: Trouble,
}

impl ClusterConsumer {
    /// Makes a consumer, which reaches for nothing yet.
    pub(super) async fn new(
        topics: Topics,
        calls: Calls,
        config: ConsumerConfig,
        readers: Readers,
    ) -> Result<Self, StreamsError> {
        let member = Member {
            held: Arc::default(),
            revoked: Arc::default(),
            reads: config.reads,
            rests: Arc::default(),
            trouble: calls.trouble().clone(),
        };
        let is_in_group = config.group.is_some();
        let mut consumer = ClusterConsumer {
            topics,
            calls,
            config,
            readers,
            client: None,
            has_failed: false,
            member,
            mode: Mode::Nothing,
            positions: BTreeMap::new(),
            kept: VecDeque::new(),
            tended: 0,
        };
        if is_in_group {
            consumer.ready().await?;
        }
        Ok(consumer)
    }

    fn client(&self) -> Result<Arc<Client>, StreamsError> {
        self.client.clone().ok_or(StreamsError::Closed)
    }

    fn group(&self) -> Result<&str, StreamsError> {
        let group = self.config.group.as_deref();
        group.ok_or(StreamsError::IllegalState("it was made without a group"))
    }

    fn holds(&self, place: &Place) -> bool {
        match self.mode {
            Mode::Nothing => false,
            Mode::Subscribed => self.member.held.lock().contains(place),
            Mode::Assigned { .. } => self.positions.contains_key(place),
        }
    }

    /// Forgets what the group took away.
    fn adopt(&mut self) {
        let revoked = std::mem::take(&mut *self.member.revoked.lock());
        for place in revoked {
            self.positions.remove(&place);
            self.drop_kept(&place);
        }
    }

    fn drop_kept(&mut self, (topic, partition): &Place) {
        let is_of = |kept: &ConsumedRecord| kept.partition == *partition && kept.topic == *topic;
        self.kept.retain(|kept| !is_of(kept));
    }

    /// Notes that a record is answered, or keeps it for the next poll.
    fn answer(
        &mut self,
        record: ConsumedRecord,
        left: &mut usize,
        records: &mut Vec<ConsumedRecord>,
    ) -> bool {
        let bytes = size(&record);
        if bytes > *left && !records.is_empty() {
            self.kept.push_front(record);
            return false;
        }
        *left = left.saturating_sub(bytes);
        let place = (record.topic.clone(), record.partition);
        let position = self.positions.entry(place).or_default();
        position.next = Some(record.offset.saturating_add(1));
        position.is_polled = true;
        position.is_at_end = false;
        records.push(record);
        *left > 0
    }

    /// Notes that nothing more is in a partition. The client does not say of which topic, so that only
    /// a consumer of one topic knows.
    fn note_end(&mut self, partition: i32) {
        let (first, last) = (
            self.positions.first_key_value(),
            self.positions.last_key_value(),
        );
        let (Some(((topic, _), _)), Some(((last, _), _))) = (first, last) else {
            return;
        };
        if topic != last {
            return;
        }
        let place = (topic.clone(), partition);
        if let Some(position) = self.positions.get_mut(&place) {
            position.is_at_end = true;
        }
    }

    /// What an error while reading means: an error for who polls, or nothing but a pause.
    fn read_error(&self, error: &KafkaError) -> Option<StreamsError> {
        let trouble = self.calls.trouble();
        match error::code_of(error) {
            // A member of a group waits for its topics, and for what the cluster mends by itself.
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic)
                if self.mode == Mode::Subscribed =>
            {
                None
            }
            Some(Code::PollExceeded) => None,
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
                let (topic, _) = self.positions.keys().next()?;
                Some(StreamsError::UnknownTopic(topic.clone()))
            }
            Some(code) if error::is_away(code) => {
                trouble.note(&code.to_string());
                Some(error::of_code(
                    code,
                    About::Cluster,
                    trouble.told().as_deref(),
                ))
            }
            _ => {
                let group = self.config.group.as_deref();
                let about = group.map_or(About::Cluster, About::Group);
                Some(error::of_call(error, about, trouble.told().as_deref()))
            }
        }
    }

    async fn commit_list(&self, list: TopicPartitionList) -> Result<(), StreamsError> {
        let group = self.group()?;
        let client = self.client()?;
        self.calls
            .blocking(About::Group(group), move |_, _| {
                client.commit(&list, CommitMode::Sync)
            })
            .await
    }

    /// Moves a position that the cluster's client keeps.
    async fn seek_member(&self, place: Place, to: SeekTo) -> Result<(), StreamsError> {
        let offset = match to {
            SeekTo::Offset(offset) => Offset::Offset(offset),
            SeekTo::Beginning => Offset::Beginning,
            SeekTo::End => Offset::End,
        };
        // While a partition is paused its client may not know where it is.
        self.wake().await?;
        let client = self.client()?;
        let (topic, partition) = place.clone();
        let sought = self
            .calls
            .blocking(About::Partition(&topic, partition), move |_, timeout| {
                let mut list = TopicPartitionList::new();
                list.add_partition_offset(place.0.wire_name(), place.1, offset)?;
                let sought = client.seek_partitions(list, Timeout::After(timeout))?;
                sought
                    .elements()
                    .iter()
                    .try_for_each(|element| element.error())
            });
        sought.await
    }
}

#[async_trait]
impl Consumer for ClusterConsumer {
    async fn subscribe(&mut self, topics: Vec<TopicName>) -> Result<(), StreamsError> {
        let group = self.group()?.to_owned();
        if group.is_empty() {
            let reason = GroupError::InvalidGroupId;
            return Err(StreamsError::Group { group, reason });
        }
        if topics.is_empty() {
            let why = "it subscribes to at least one topic";
            return Err(StreamsError::IllegalState(why));
        }
        for topic in &topics {
            match self.topics.found_or_created(topic).await {
                // Its partitions come with a rebalance once somebody creates it.
                Ok(_) | Err(StreamsError::AutoCreateOff(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let client = self.client()?;
        let was_assigned = matches!(self.mode, Mode::Assigned { .. });
        // What it held before is not answered any more, while the group has yet to take it back.
        self.member.held.lock().clear();
        self.positions.clear();
        self.kept.clear();
        self.mode = Mode::Subscribed;
        self.tended = 0;
        let subscribed = self.calls.blocking(About::Group(&group), move |_, _| {
            if was_assigned {
                client.unassign()?;
            }
            // Where members keep what they hold, no callback would tell of what is kept.
            if matches!(client.rebalance_protocol(), RebalanceProtocol::Cooperative) {
                client.unsubscribe();
            }
            let names: Vec<&str> = topics.iter().map(TopicName::wire_name).collect();
            client.subscribe(&names)
        });
        subscribed.await
    }

    async fn assign(&mut self, partitions: Vec<(TopicName, i32)>) -> Result<(), StreamsError> {
        if partitions.len() > CONSUMER_PARTITIONS_MAX {
            return Err(StreamsError::Limit {
                what: "partitions of one consumer",
                max: CONSUMER_PARTITIONS_MAX as u64,
            });
        }
        for (topic, partition) in &partitions {
            self.topics.check(topic, *partition).await?;
        }
        if self.mode == Mode::Subscribed {
            let client = self.client()?;
            let left = self.calls.blocking(About::Cluster, move |_, _| {
                client.unsubscribe();
                Ok(())
            });
            left.await?;
        }
        self.member.held.lock().clear();
        self.kept.clear();
        let fresh = partitions
            .into_iter()
            .map(|place| (place, Position::default()));
        self.positions = fresh.collect();
        self.mode = Mode::Assigned { is_placed: false };
        Ok(())
    }

    fn assignment(&self) -> Vec<(TopicName, i32)> {
        match self.mode {
            Mode::Nothing => Vec::new(),
            Mode::Subscribed => self.member.held.lock().iter().cloned().collect(),
            Mode::Assigned { .. } => self.positions.keys().cloned().collect(),
        }
    }

    async fn poll(
        &mut self,
        max_wait: Duration,
        max_bytes: usize,
    ) -> Result<Vec<ConsumedRecord>, StreamsError> {
        let deadline = Instant::now() + max_wait;
        self.place().await?;
        self.tended = 0;
        self.wake().await?;
        let client = self.ready().await?;
        let (mut records, mut left) = (Vec::new(), max_bytes.max(1));
        let mut trouble = None;
        loop {
            self.adopt();
            while let Some(kept) = self.kept.pop_front() {
                if !self.answer(kept, &mut left, &mut records) {
                    return Ok(records);
                }
            }
            // Once there is one record, what is there already is taken without any wait.
            let next = match records.is_empty() {
                true => tokio::time::timeout_at(deadline, client.recv()).await.ok(),
                false => at_once(client.recv()).await,
            };
            match next {
                None if records.is_empty() => return trouble.map_or(Ok(records), Err),
                None => return Ok(records),
                Some(Ok(message)) => {
                    self.adopt();
                    let record = consumed(&message)?;
                    let place = (record.topic.clone(), record.partition);
                    if self.member.reads
                        && self.holds(&place)
                        && !self.answer(record, &mut left, &mut records)
                    {
                        return Ok(records);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => self.note_end(partition),
                Some(Err(error)) => {
                    self.has_failed = true;
                    match self.read_error(&error) {
                        None => {}
                        Some(error @ StreamsError::Unavailable(_)) => trouble = Some(error),
                        Some(error) if records.is_empty() => return Err(error),
                        Some(_) => return Ok(records),
                    }
                }
            }
        }
    }

    async fn commit(
        &mut self,
        offsets: Option<Vec<(TopicName, i32, i64, String)>>,
    ) -> Result<Vec<(TopicName, i32, i64)>, StreamsError> {
        self.group()?;
        self.adopt();
        let offsets = offsets.unwrap_or_else(|| {
            let polled = self
                .positions
                .iter()
                .filter(|(_, position)| position.is_polled);
            polled
                .filter_map(|((topic, partition), position)| {
                    Some((topic.clone(), *partition, position.at()?, String::new()))
                })
                .collect()
        });
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (topic, partition, offset, metadata) in &offsets {
            let mut element = list.add_partition(topic.wire_name(), *partition);
            let set = element.set_offset(Offset::Offset(*offset));
            self.calls.judged(About::Cluster, set)?;
            element.set_metadata(metadata);
        }
        self.commit_list(list).await?;
        let committed = offsets.into_iter();
        Ok(committed
            .map(|(topic, partition, offset, _)| (topic, partition, offset))
            .collect())
    }

    fn position(&self, topic: &TopicName, partition: i32) -> Option<i64> {
        self.positions.get(&(topic.clone(), partition))?.at()
    }

    fn is_at_end(&self, topic: &TopicName, partition: i32) -> bool {
        let position = self.positions.get(&(topic.clone(), partition));
        position.is_some_and(|position| position.moved.is_none() && position.is_at_end)
    }

    async fn seek(
        &mut self,
        topic: &TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        self.adopt();
        let place = (topic.clone(), partition);
        if !self.holds(&place) {
            let topic = topic.clone();
            return Err(StreamsError::NotAssigned { topic, partition });
        }
        self.drop_kept(&place);
        if self.mode == Mode::Subscribed {
            self.seek_member(place.clone(), to).await?;
            let position = self.positions.entry(place).or_default();
            position.next = match to {
                SeekTo::Offset(offset) => Some(offset),
                SeekTo::Beginning | SeekTo::End => None,
            };
            return Ok(());
        }
        if let Some(position) = self.positions.get_mut(&place) {
            position.moved = Some(to);
        }
        // What was read ahead of other partitions goes too, and is read again.
        self.kept.clear();
        self.mode = Mode::Assigned { is_placed: false };
        Ok(())
    }

    async fn tend(&mut self) -> Result<(), StreamsError> {
        self.keep_up().await
    }

    async fn close(mut self: Box<Self>) -> Result<(), StreamsError> {
        if self.config.group.is_none() {
            self.let_go();
            return Ok(());
        }
        let Some(client) = self.client.take() else {
            return Ok(());
        };
        let closed = self.calls.blocking(About::Cluster, move |_, _| {
            drop(client);
            Ok(())
        });
        closed.await
    }
}

impl Drop for ClusterConsumer {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl ClientContext for Member {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        calls::log(level, facility, message);
    }

    fn error(&self, _: KafkaError, reason: &str) {
        self.trouble.note(reason);
    }
}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let (gone, all) = match rebalance {
            Rebalance::Revoke(list) => (places(list), false),
            Rebalance::Error(_) => (BTreeSet::new(), true),
            Rebalance::Assign(_) => return,
        };
        let mut held = self.held.lock();
        let gone = if all { held.clone() } else { gone };
        held.retain(|place| !gone.contains(place));
        self.revoked.lock().extend(gone);
    }

    fn post_rebalance(&self, client: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            if (!self.reads || self.rests.load(Ordering::Relaxed))
                && let Err(error) = client.pause(list)
            {
                // It fetches what nobody takes, until its queue is full.
                tracing::debug!(%error, "partitions were not paused");
            }
            self.held.lock().extend(places(list));
        }
    }
}

/// What a future has now. Never waits, not even for the runtime's sake: who gives a poll up between
/// two of its records would lose the first.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// What a client for this consumer is told.
fn properties(calls: &Calls, config: &ConsumerConfig) -> rdkafka::ClientConfig {
    let mut client = calls.config().client();
    let reset = match config.auto_offset_reset {
        OffsetReset::Earliest => "earliest",
        OffsetReset::Latest => "latest",
    };
    let prefetch = CLUSTER_PREFETCH_KBYTES.to_string();
    client
        // librdkafka wants a group even of a consumer that is in none; nothing is committed there.
        .set(
            "group.id",
            config.group.as_deref().unwrap_or("thalweg.none"),
        )
        .set("client.id", &config.client_id)
        .set(
            "session.timeout.ms",
            config.session_timeout.as_millis().to_string(),
        )
        .set("isolation.level", config.isolation.name())
        .set("auto.offset.reset", reset)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", config.group.is_none().to_string())
        // Who holds a consumer in this process is alive as long as the process is.
        .set("max.poll.interval.ms", "86400000")
        .set("queued.max.messages.kbytes", &prefetch)
        .set("fetch.queue.backoff.ms", "10")
        .set(
            "fetch.wait.max.ms",
            CLUSTER_FETCH_WAIT.as_millis().to_string(),
        );
    client
}

fn places(list: &TopicPartitionList) -> BTreeSet<Place> {
    let elements = list.elements();
    elements
        .iter()
        .filter_map(|element| Some((element.topic().parse().ok()?, element.partition())))
        .collect()
}

fn consumed(message: &BorrowedMessage<'_>) -> Result<ConsumedRecord, StreamsError> {
    let part = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
    let headers = message.headers().map(|headers| {
        headers
            .iter()
            .map(|header| (header.key.to_owned(), part(header.value)))
            .collect()
    });
    Ok(ConsumedRecord {
        topic: message.topic().parse()?,
        partition: message.partition(),
        offset: message.offset(),
        timestamp: UnixMillis(message.timestamp().to_millis().unwrap_or(-1)),
        key: part(message.key()),
        value: part(message.payload()),
        headers: headers.unwrap_or_default(),
    })
}

/// What a record counts against `max_bytes`: its bytes and a little for each.
fn size(record: &ConsumedRecord) -> usize {
    let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers = record.headers.iter();
    let headers: usize = headers.map(|(name, value)| name.len() + part(value)).sum();
    part(&record.key) + part(&record.value) + headers + RECORD_OVERHEAD_BYTES
}

/// What a record without key, value and headers counts, in bytes.
const RECORD_OVERHEAD_BYTES: usize = 16;
