//! The way out of the store: one task reads the topic as a member of the rule's consumer group and
//! publishes; the position is committed after the messages are with the server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Clock;
use mqtt::{Message, MqttError, Qos, Server};
use streams::{
    ConsumedRecord, Consumer, ConsumerConfig, EventStore, OffsetReset, StreamsError, TopicName,
};
use tokio_util::sync::CancellationToken;

use crate::limits::{CLOSE_WAIT, POLL_BYTES_MAX, POLL_WAIT, RETRY_WAIT, RULE_COMMIT_WAIT};
use crate::retry::Retries;
use crate::rules::Rule;
use crate::rules::carry::{header, path_of_record};
use crate::rules::config::Taken;
use crate::rules::template::{Piece, Template};
use crate::statement::Start;

/// Publishes the records of one rule.
pub(super) struct Outlet {
    pub(super) rule: Arc<Rule>,
    pub(super) group: String,
    pub(super) topic: TopicName,
    pub(super) to: Template,
    pub(super) store: Arc<dyn EventStore>,
    pub(super) server: Server,
    pub(super) clock: Arc<dyn Clock>,
}

/// Has the group know where it starts, unless it does: what comes from now on is then read even if
/// the process ends before the first commit.
pub(super) async fn prepare(
    store: &dyn EventStore,
    topic: &TopicName,
    group: &str,
    start: Start,
) -> Result<(), StreamsError> {
    let info = store.topic_or_create(topic).await?;
    if start == Start::Earliest {
        return Ok(());
    }
    let partitions: Vec<(TopicName, i32)> = (0..info.partitions)
        .map(|partition| (topic.clone(), partition))
        .collect();
    let committed = store.committed(group, &partitions).await?;
    let ends = info.partition_offsets.iter().map(|range| range.end);
    let unknown: Vec<(TopicName, i32, i64)> = partitions
        .into_iter()
        .zip(committed)
        .zip(ends)
        .filter(|((_, committed), _)| committed.is_none())
        .map(|(((topic, partition), _), end)| (topic, partition, end))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    match store.set_group_offsets(group, unknown).await {
        // The reader then starts with what comes after it has joined.
        Err(StreamsError::Unsupported(_)) => Ok(()),
        // Another node's rule reads in the same group already.
        Err(StreamsError::Group { .. }) => Ok(()),
        set => set,
    }
}

impl Outlet {
    /// Reads until `stop`; tries again after every failure.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut retries = Retries::new();
        loop {
            let Err(error) = self.read(&stop).await else {
                return;
            };
            let why = format!("cannot read kafka:{}: {}", self.topic, base::report(&error));
            self.rule.say(&why);
            tracing::warn!(rule = self.rule.config.name, why, "a rule is stuck");
            if !retries.rest(&stop).await {
                return;
            }
        }
    }

    /// Reads until told to stop (`Ok`) or something fails.
    async fn read(&self, stop: &CancellationToken) -> Result<(), StreamsError> {
        prepare(
            &*self.store,
            &self.topic,
            &self.group,
            self.rule.config.start,
        )
        .await?;
        let config = ConsumerConfig {
            auto_offset_reset: match self.rule.config.start {
                Start::Latest => OffsetReset::Latest,
                Start::Earliest => OffsetReset::Earliest,
            },
            ..ConsumerConfig::in_group(self.group.clone(), CLIENT_ID)
        };
        let mut consumer = self.store.consumer(config).await?;
        consumer.subscribe(vec![self.topic.clone()]).await?;
        self.rule.say("");
        let read = self.read_on(consumer.as_mut(), stop).await;
        // Others, or the next try, get the partitions at once.
        let left = consumer.close().await;
        read.and(left)
    }

    async fn read_on(
        &self,
        consumer: &mut dyn Consumer,
        stop: &CancellationToken,
    ) -> Result<(), StreamsError> {
        let mut last_commit = Instant::now();
        // The next offset of each partition, of what was published since the last commit.
        let mut passed: BTreeMap<i32, i64> = BTreeMap::new();
        loop {
            let wait = match passed.is_empty() {
                false => RULE_COMMIT_WAIT.saturating_sub(last_commit.elapsed()),
                true => POLL_WAIT,
            };
            let records = tokio::select! {
                biased;
                () = stop.cancelled() => Vec::new(),
                polled = consumer.poll(wait.max(TICK), POLL_BYTES_MAX) => polled?,
            };
            for record in &records {
                tokio::select! {
                    biased;
                    // What was not published is read again.
                    () = stop.cancelled() => break,
                    () = self.publish(record) => {}
                }
                passed.insert(record.partition, record.offset + 1);
            }
            let is_ending = stop.is_cancelled();
            if !passed.is_empty() && (is_ending || last_commit.elapsed() >= RULE_COMMIT_WAIT) {
                let stored = tokio::select! {
                    stored = self.server.all_stored() => stored,
                    () = end_of(stop) => return Ok(()),
                };
                if let Err(error) = stored {
                    tracing::error!(error = %base::report(&error), "messages are not kept");
                    return Err(StreamsError::IllegalState("the MQTT server keeps nothing"));
                }
                let topic = &self.topic;
                let of = |(partition, next)| (topic.clone(), partition, next, String::new());
                let offsets = std::mem::take(&mut passed).into_iter().map(of);
                consumer.commit(Some(offsets.collect())).await?;
                last_commit = Instant::now();
            }
            if is_ending {
                return Ok(());
            }
        }
    }

    /// Publishes a record's message, or counts why there is none.
    async fn publish(&self, record: &ConsumedRecord) {
        let rule = &self.rule;
        rule.count(&rule.taken, 1);
        let Some(topic) = self.to.fill(&|piece| place(record, piece)) else {
            return rule.refuse(
                1,
                &format!("offset {} lacks what the target names", record.offset),
            );
        };
        let name: mqtt::TopicName = match topic.parse() {
            Ok(name) => name,
            Err(error) => return rule.refuse(1, &format!("'{topic}' is no MQTT topic: {error}")),
        };
        if topic.starts_with('$') && !self.to.begins_fixed() {
            return rule.refuse(
                1,
                &format!("'{topic}' is no topic that a producer may choose"),
            );
        }
        let from = |taken: &Taken| matches!(taken, Taken::Mqtt(filter) if filter.matches(&topic));
        if rule.is_echo(path_of_record(record), &from) {
            return rule.count(&rule.looped, 1);
        }
        let now = self.clock.now();
        let told = rule.carrier.told(record, now);
        if told.expires.is_some_and(|at| at <= now) {
            return rule.refuse(1, &format!("offset {} has expired", record.offset));
        }
        let retain = rule.config.retain || told.retain;
        let message = Message {
            topic: &topic,
            payload: record.value.as_deref().unwrap_or_default(),
            qos: match rule.config.qos {
                0 => Qos::AtMostOnce,
                _ => Qos::AtLeastOnce,
            },
            retain_asked: retain,
            received: now,
            expires: told.expires,
            properties: told.block.properties(),
            ..Message::default()
        };
        let mut wait = RETRY_WAIT.0;
        loop {
            match self.server.publish_message(&message, retain) {
                Ok(()) => return rule.count(&rule.passed, 1),
                Err(MqttError::Busy) => self.server.room(&name).await,
                Err(error @ (MqttError::TooLarge { .. } | MqttError::Topic(_))) => {
                    return rule.refuse(1, &base::report(&error));
                }
                Err(error) => {
                    rule.say(&format!("cannot publish: {}", base::report(&error)));
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_WAIT.1);
                }
            }
        }
    }
}

/// Resolves when a rule that is to end has had its time.
async fn end_of(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(CLOSE_WAIT).await;
}

/// What a record has for a place of a template.
fn place<'r>(record: &'r ConsumedRecord, piece: &Piece) -> Option<Cow<'r, str>> {
    match piece {
        Piece::Topic => Some(record.topic.display().into()),
        Piece::Key => {
            let key = record.key.as_deref()?;
            std::str::from_utf8(key).ok().map(Cow::from)
        }
        Piece::Partition => Some(record.partition.to_string().into()),
        Piece::Offset => Some(record.offset.to_string().into()),
        Piece::Header(name) => header(record, name).map(Cow::from),
        Piece::Text(_) | Piece::Level(_) => None,
    }
}

/// How the store lists this reader.
const CLIENT_ID: &str = "thalweg-rule";

/// The shortest wait, so that a commit that is due at once does not spin.
const TICK: Duration = Duration::from_millis(1);
