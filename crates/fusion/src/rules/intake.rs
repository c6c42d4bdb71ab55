//! The way into the store: messages wait in a bounded queue for one task, which stores all that waits
//! at once, so that the messages of many publishers share one sync.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::Rng;
use bytes::Bytes;
use mqtt::{Delivery, Message, MessageSink, Room, Settled};
use parking_lot::Mutex;
use streams::{EventStore, ProduceBatch, Record, StreamsError, TopicName, partition_of_key};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::limits::{
    CLOSE_WAIT, PRODUCE_BYTES_MAX, PRODUCE_ROWS_MAX, RETRY_WAIT, RULE_QUEUE_BYTES_MAX,
    RULE_QUEUE_RECORDS_MAX, RULE_TOPICS_MAX,
};
use crate::rules::Rule;
use crate::rules::carry::path_of_message;
use crate::rules::config::Taken;
use crate::rules::template::{Piece, Template};

/// Takes the messages of one rule.
pub(super) struct Intake {
    rule: Arc<Rule>,
    topic: Template,
    key: Option<Template>,
    queue: Mutex<Queue>,
    /// Tells the task that something waits.
    wake: Notify,
    /// Tells publishers that something was stored.
    room: Notify,
    /// How many messages are done with: stored, or refused by the store.
    done: watch::Sender<u64>,
}

/// What waits for the store, including what is being stored.
#[derive(Default)]
struct Queue {
    records: VecDeque<(TopicName, Record)>,
    /// Messages that were ever put here.
    taken: u64,
    /// Messages and bytes that are not done with.
    waiting: usize,
    bytes: usize,
    /// Topics that places of the target made; bounded, since publishers choose them.
    made: HashSet<TopicName>,
    is_closed: bool,
}

/// The records of one topic in one turn.
type ByTopic = BTreeMap<String, (TopicName, Vec<Record>)>;

/// The store does not take it while the rule ends.
struct Stopped;

impl Intake {
    pub(super) fn new(rule: Arc<Rule>, topic: Template, key: Option<Template>) -> Intake {
        Intake {
            rule,
            topic,
            key,
            queue: Mutex::default(),
            wake: Notify::new(),
            room: Notify::new(),
            done: watch::Sender::new(0),
        }
    }

    /// Messages that wait for the store.
    pub(super) fn waiting(&self) -> u64 {
        self.queue.lock().waiting as u64
    }

    /// Takes nothing more: publishers are held back until their links end.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Stores what comes until `stop`, then for a short while what waits.
    pub(super) async fn run(self: Arc<Self>, store: Arc<dyn EventStore>, stop: CancellationToken) {
        let giving_up = CancellationToken::new();
        let work = async {
            let mut turns = 0;
            loop {
                let turn = std::mem::take(&mut self.queue.lock().records);
                if turn.is_empty() {
                    if stop.is_cancelled() {
                        return;
                    }
                    self.wake.notified().await;
                    continue;
                }
                turns += 1;
                if self.store(&store, turn, turns, &giving_up).await.is_err() {
                    return;
                }
            }
        };
        let end = async {
            stop.cancelled().await;
            self.wake.notify_one();
            tokio::time::sleep(CLOSE_WAIT).await;
            giving_up.cancel();
            // A call that the store does not answer is left.
            tokio::time::sleep(CLOSE_WAIT).await;
        };
        tokio::select! {
            () = work => {}
            () = end => {}
        }
        let waiting = self.waiting();
        if waiting > 0 {
            let rule = &self.rule.config.name;
            tracing::warn!(
                rule,
                waiting,
                "a rule ended before the store took its messages"
            );
        }
    }

    /// Stores one turn's records; they are done with when this returns.
    async fn store(
        &self,
        store: &Arc<dyn EventStore>,
        turn: VecDeque<(TopicName, Record)>,
        turns: u64,
        giving_up: &CancellationToken,
    ) -> Result<(), Stopped> {
        let count = turn.len();
        let bytes: usize = turn.iter().map(|(_, record)| bytes_of(record)).sum();
        let mut by_topic = ByTopic::new();
        for (topic, record) in turn {
            let name = topic.wire_name().to_owned();
            let (_, records) = by_topic.entry(name).or_insert_with(|| (topic, Vec::new()));
            records.push(record);
        }
        let mut tasks = JoinSet::new();
        for (topic, records) in by_topic.into_values() {
            let producer = Producer {
                rule: self.rule.clone(),
                store: store.clone(),
                is_made: self.topic.literal().is_none(),
                topic,
                giving_up: giving_up.clone(),
            };
            let Some(partitions) = producer.partitions(records.len()).await? else {
                continue;
            };
            let mut by_partition: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
            let keyless = Rng::from_seed(turns).below(partitions.max(1).unsigned_abs().into());
            let keyless = i32::try_from(keyless).unwrap_or(0);
            for record in records {
                let key = record.key.as_deref();
                let partition = key.map_or(keyless, |key| partition_of_key(key, partitions));
                by_partition.entry(partition).or_default().push(record);
            }
            for (partition, records) in by_partition {
                let producer = producer.clone();
                tasks.spawn(async move { producer.produce(partition, records).await });
            }
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|_| Stopped)??;
        }
        {
            let mut queue = self.queue.lock();
            queue.waiting -= count;
            queue.bytes -= bytes;
        }
        self.done.send_modify(|done| *done += count as u64);
        self.room.notify_waiters();
        Ok(())
    }

    /// The topic and the record of a message; `None`, and counted, when there is none.
    fn made(
        &self,
        message: &Message<'_>,
        made: &mut HashSet<TopicName>,
    ) -> Option<(TopicName, Record)> {
        let rule = &self.rule;
        let of = |piece: &Piece| place(message, piece);
        let named = self.topic.fill(&|piece| of(piece).map(in_a_name));
        let Some(named) = named else {
            rule.refuse(
                1,
                &format!("'{}' lacks what the target names", message.topic),
            );
            return None;
        };
        let topic: TopicName = match named.parse() {
            Ok(topic) => topic,
            Err(error) => {
                rule.refuse(1, &error.to_string());
                return None;
            }
        };
        if self.topic.literal().is_none() {
            let is_private = named.starts_with('_') && !self.topic.begins_fixed();
            if is_private || topic.is_internal() {
                rule.refuse(
                    1,
                    &format!("'{named}' is no topic that a publisher may choose"),
                );
                return None;
            }
            if !made.contains(&topic) {
                if made.len() >= RULE_TOPICS_MAX {
                    rule.refuse(1, &format!("the rule has {RULE_TOPICS_MAX} topics already"));
                    return None;
                }
                made.insert(topic.clone());
            }
        }
        let path = path_of_message(message);
        if rule.is_echo(
            path,
            &|taken| matches!(taken, Taken::Store(from) if *from == topic),
        ) {
            rule.count(&rule.looped, 1);
            return None;
        }
        let key = self.key.as_ref().and_then(|key| key.fill(&of));
        Some((topic, rule.carrier.record(message, key.map(Bytes::from))))
    }
}

impl MessageSink for Intake {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let mut queue = self.queue.lock();
        let mut outcome = Delivery::Taken;
        for (taken, message) in batch.iter().enumerate() {
            if queue.is_full() {
                outcome = Delivery::HoldBack { taken };
                break;
            }
            // What was retained is the past: it was stored when it flowed.
            if message.retain {
                continue;
            }
            self.rule.count(&self.rule.taken, 1);
            let Queue { made, .. } = &mut *queue;
            let Some((topic, record)) = self.made(message, made) else {
                continue;
            };
            queue.bytes += bytes_of(&record);
            queue.waiting += 1;
            queue.taken += 1;
            queue.records.push_back((topic, record));
        }
        drop(queue);
        self.wake.notify_one();
        outcome
    }

    fn room(&self) -> Room<'_> {
        Box::pin(async {
            let told = self.room.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.queue.lock().is_full() {
                told.await;
            }
        })
    }

    fn settled(&self) -> Option<Settled> {
        let taken = self.queue.lock().taken;
        let mut done = self.done.subscribe();
        if *done.borrow() >= taken {
            return None;
        }
        Some(Box::pin(async move {
            // Without its task nothing is stored any more: then the link's end is what comes.
            if done.wait_for(|done| *done >= taken).await.is_err() {
                std::future::pending::<()>().await;
            }
        }))
    }
}

impl Queue {
    fn is_full(&self) -> bool {
        self.is_closed
            || self.waiting >= RULE_QUEUE_RECORDS_MAX
            || self.bytes >= RULE_QUEUE_BYTES_MAX
    }
}

/// Stores records in one topic, and tries again until it is done.
#[derive(Clone)]
struct Producer {
    rule: Arc<Rule>,
    store: Arc<dyn EventStore>,
    topic: TopicName,
    /// Whether publishers chose the topic.
    is_made: bool,
    giving_up: CancellationToken,
}

impl Producer {
    /// How many partitions the topic has; none when so many records cannot go there, ever.
    async fn partitions(&self, records: usize) -> Result<Option<i32>, Stopped> {
        let mut wait = RETRY_WAIT.0;
        loop {
            match self.store.partitions_or_create(&self.topic).await {
                Ok(partitions) => return Ok(Some(partitions)),
                Err(error) if self.is_final(&error) => {
                    self.rule.refuse(records, &base::report(&error));
                    return Ok(None);
                }
                Err(error) => self.pause(&error, &mut wait).await?,
            }
        }
    }

    async fn produce(&self, partition: i32, records: Vec<Record>) -> Result<(), Stopped> {
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let (mut count, mut bytes) = (1, bytes_of(&rest[0]));
            while count < rest.len().min(PRODUCE_ROWS_MAX) {
                bytes += bytes_of(&rest[count]);
                if bytes > PRODUCE_BYTES_MAX {
                    break;
                }
                count += 1;
            }
            let (batch, behind) = rest.split_at(count);
            self.produce_batch(partition, batch).await?;
            rest = behind;
        }
        Ok(())
    }

    async fn produce_batch(&self, partition: i32, records: &[Record]) -> Result<(), Stopped> {
        let (mut wait, mut had_trouble) = (RETRY_WAIT.0, false);
        loop {
            let batch = ProduceBatch {
                topic: self.topic.clone(),
                partition,
                records: records.to_vec(),
                sequence: None,
            };
            match self.store.produce(batch).await {
                Ok(_) => break,
                // One of them is too large or damaged: the others are not.
                Err(error) if is_of_a_record(&error) && records.len() > 1 => {
                    for record in records {
                        Box::pin(self.produce_batch(partition, std::slice::from_ref(record)))
                            .await?;
                    }
                    return Ok(());
                }
                Err(error) if self.is_final(&error) => {
                    self.rule.refuse(records.len(), &base::report(&error));
                    return Ok(());
                }
                Err(error) => {
                    had_trouble = true;
                    if matches!(error, StreamsError::UnknownTopic(_)) {
                        // Its own error, if there is one, is said at the next try.
                        let _ = self.store.topic_or_create(&self.topic).await;
                    }
                    self.pause(&error, &mut wait).await?;
                }
            }
        }
        self.rule.count(&self.rule.passed, records.len());
        if had_trouble {
            self.rule.say("");
        }
        Ok(())
    }

    /// Whether trying again cannot help. Where publishers choose topics, one that cannot be had must
    /// not hold the others back; where the rule names it, its messages wait until it is there.
    fn is_final(&self, error: &StreamsError) -> bool {
        is_of_a_record(error)
            || self.is_made
                && matches!(
                    error,
                    StreamsError::AutoCreateOff(_)
                        | StreamsError::InternalTopic(_)
                        | StreamsError::InvalidTopic(_)
                        | StreamsError::NotAllowed { .. }
                        | StreamsError::Denied(_)
                        | StreamsError::Limit { .. }
                )
    }

    async fn pause(&self, error: &StreamsError, wait: &mut Duration) -> Result<(), Stopped> {
        let why = format!("cannot store in {}: {}", self.topic, base::report(error));
        self.rule.say(&why);
        if *wait == RETRY_WAIT.0 {
            tracing::warn!(rule = self.rule.config.name, why, "a rule is stuck");
        }
        tokio::select! {
            () = self.giving_up.cancelled() => Err(Stopped),
            () = tokio::time::sleep(*wait) => {
                *wait = (*wait * 2).min(RETRY_WAIT.1);
                Ok(())
            }
        }
    }
}

fn is_of_a_record(error: &StreamsError) -> bool {
    matches!(
        error,
        StreamsError::MessageTooLarge { .. }
            | StreamsError::InvalidRecord(_)
            | StreamsError::InvalidTimestamp(_)
            | StreamsError::CorruptMessage(_)
    )
}

/// What a message has for a place of a template.
fn place<'m>(message: &Message<'m>, piece: &Piece) -> Option<Cow<'m, str>> {
    match piece {
        Piece::Topic => Some(message.topic.into()),
        Piece::Level(level) => message.topic.split('/').nth(level - 1).map(Cow::from),
        Piece::Header(name) => {
            let mut user = message.properties.user();
            let found = user.find(|(known, _)| known == name);
            found.map(|(_, value)| value.into())
        }
        Piece::Text(_) | Piece::Key | Piece::Partition | Piece::Offset => None,
    }
}

/// The value as part of a topic's name in the store, where levels are parted by dots.
fn in_a_name(value: Cow<'_, str>) -> Cow<'_, str> {
    match value.contains('/') {
        true => value.replace('/', ".").into(),
        false => value,
    }
}

/// Bytes that a record counts for.
fn bytes_of(record: &Record) -> usize {
    let of = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    let headers = record.headers.iter();
    let headers: usize = headers.map(|(name, value)| name.len() + of(value)).sum();
    of(&record.key) + of(&record.value) + headers + RECORD_BYTES
}

/// A record's own fields.
const RECORD_BYTES: usize = 64;
