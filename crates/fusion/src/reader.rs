//! Reads one Kafka topic for all the statements on it, from their own positions.
//!
//! The reader is assigned every partition without a group: where to read on stands in the
//! statements' checkpoints, beside the state that those records made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use streams::{Consumer, ConsumerConfig, EventStore, Isolation, SeekTo, StreamsError, TopicName};
use tokio_util::sync::CancellationToken;

use crate::feed::Feed;
use crate::limits::{POLL_BYTES_MAX, POLL_WAIT};
use crate::retry::Retries;

/// Reads until `stop`; tries again after every failure.
pub async fn run(
    feed: Arc<Feed>,
    store: Arc<dyn EventStore>,
    topic: TopicName,
    stop: CancellationToken,
) {
    let mut retries = Retries::new();
    loop {
        let reader = Reader {
            feed: &feed,
            store: &store,
            topic: &topic,
            stop: &stop,
        };
        let Err(error) = reader.read().await else {
            return;
        };
        let text = format!("cannot read kafka.\"{topic}\": {}", base::report(&error));
        tracing::warn!(error = text, "a statement source failed and is tried again");
        feed.set_trouble(Some(&text));
        if !retries.rest(&stop).await {
            return;
        }
    }
}

struct Reader<'r> {
    feed: &'r Arc<Feed>,
    store: &'r Arc<dyn EventStore>,
    topic: &'r TopicName,
    stop: &'r CancellationToken,
}

/// What is known of the partitions' progress.
struct Progress {
    /// The ends when reading began: up to there records surely wait.
    ends: Vec<i64>,
    /// When each partition last had records.
    seen: Vec<Option<Instant>>,
}

impl Reader<'_> {
    /// Reads until told to stop (`Ok`) or something fails.
    async fn read(&self) -> Result<(), StreamsError> {
        let info = self.store.topic(self.topic).await?;
        let config = ConsumerConfig {
            // What a transaction took back is no event: a statement before this one repeats it.
            isolation: Isolation::Committed,
            ..ConsumerConfig::alone(CLIENT_ID)
        };
        let mut consumer = self.store.consumer(config).await?;
        let partitions = (0..info.partitions).map(|partition| (self.topic.clone(), partition));
        consumer.assign(partitions.collect()).await?;
        let mut progress = Progress {
            ends: info
                .partition_offsets
                .iter()
                .map(|range| range.end)
                .collect(),
            seen: vec![None; info.partition_offsets.len()],
        };
        let starts: Vec<i64> = info
            .partition_offsets
            .iter()
            .map(|range| range.start)
            .collect();
        let mut generation = self.seek(consumer.as_mut(), &starts).await?;
        self.feed.set_trouble(None);
        let mut wait = PARTITION_IDLE;
        loop {
            let polled = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = self.feed.rewind.notified() => None,
                polled = consumer.poll(wait, POLL_BYTES_MAX) => Some(polled?),
            };
            let Some(records) = polled else {
                generation = self.seek(consumer.as_mut(), &starts).await?;
                continue;
            };
            if records.is_empty() && wait == POLL_WAIT {
                // What lies before the ends is no record: marks of transactions are none.
                progress.ends.fill(0);
            }
            // Records keep coming: look again soon, so that partitions without any are let go.
            wait = if records.is_empty() {
                POLL_WAIT
            } else {
                PARTITION_IDLE
            };
            let bytes: usize = records
                .iter()
                .map(|record| record.value.as_ref().map_or(0, |v| v.len()))
                .sum();
            let is_caught_up = bytes < POLL_BYTES_MAX / 2;
            for record in &records {
                progress.see(record.partition);
            }
            self.feed.set_waiting(false, |partition| {
                progress.waits(partition, consumer.as_ref(), self.topic)
            });
            let mut at = 0;
            while at < records.len() {
                let Some(applied) = self.feed.apply_records(generation, &records[at..]) else {
                    generation = self.seek(consumer.as_mut(), &starts).await?;
                    break;
                };
                at += applied;
                if applied == 0 {
                    tokio::select! {
                        () = self.stop.cancelled() => return Ok(()),
                        () = self.feed.wait_for_room() => {}
                    }
                } else {
                    tokio::task::yield_now().await;
                }
            }
            if records.is_empty() {
                progress.seen.fill(None);
            }
            self.feed.set_waiting(is_caught_up, |partition| {
                progress.waits(partition, consumer.as_ref(), self.topic)
            });
        }
    }

    /// Goes to the least positions that the statements want; a position that the topic no longer
    /// holds moves up to where the topic starts.
    async fn seek(&self, consumer: &mut dyn Consumer, starts: &[i64]) -> Result<u64, StreamsError> {
        let (generation, positions) = self.feed.positions();
        for (partition, start) in starts.iter().enumerate() {
            let Ok(number) = i32::try_from(partition) else {
                continue;
            };
            // A partition that came after every statement is read from its start.
            let position = positions.get(partition).copied().unwrap_or(0);
            consumer
                .seek(self.topic, number, SeekTo::Offset(position.max(*start)))
                .await?;
        }
        Ok(generation)
    }
}

impl Progress {
    fn see(&mut self, partition: i32) {
        let partition = usize::try_from(partition).unwrap_or(0);
        if let Some(seen) = self.seen.get_mut(partition) {
            *seen = Some(Instant::now());
        }
    }

    /// Whether records wait on a partition, or are likely to come at any moment.
    fn waits(&self, partition: usize, consumer: &dyn Consumer, topic: &TopicName) -> bool {
        let is_active = self
            .seen
            .get(partition)
            .is_some_and(|seen| seen.is_some_and(|at| at.elapsed() < PARTITION_IDLE));
        let position = i32::try_from(partition)
            .ok()
            .and_then(|partition| consumer.position(topic, partition));
        let is_behind = match (position, self.ends.get(partition)) {
            (Some(position), Some(end)) => position < *end,
            _ => false,
        };
        is_active || is_behind
    }
}

/// How the store lists this reader.
const CLIENT_ID: &str = "thalweg-statements";

/// A partition that had no record for so long does not hold the watermark of the others.
const PARTITION_IDLE: Duration = Duration::from_secs(1);
