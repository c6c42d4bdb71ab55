//! Reads one Kafka topic for all the statements on it, from their own positions.
//!
//! The reader is assigned every partition without a group: where to read on stands in the
//! statements' checkpoints, beside the state that those records made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use streams::{
    Consumer, ConsumerConfig, EventStore, Isolation, SeekTo, StreamsError, TopicInfo, TopicName,
};
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
    /// The ends when reading began, or went back: up to there records surely wait.
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
        let mut progress = Progress::of(&info);
        let mut generation = self.seek(consumer.as_mut(), &info).await?;
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
                generation = self.go_back(consumer.as_mut(), &mut progress).await?;
                wait = PARTITION_IDLE;
                continue;
            };
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
            let mut is_caught_up = bytes < POLL_BYTES_MAX / 2;
            for record in &records {
                progress.see(record.partition);
            }
            if !self.tell(false, &progress, consumer.as_mut()).await {
                return Ok(());
            }
            let mut at = 0;
            while at < records.len() {
                let Some(applied) = self.feed.apply_records(generation, &records[at..]) else {
                    // These and perhaps many before them are to be read again.
                    generation = self.go_back(consumer.as_mut(), &mut progress).await?;
                    is_caught_up = false;
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
            if !self.tell(is_caught_up, &progress, consumer.as_mut()).await {
                return Ok(());
            }
        }
    }

    /// Says what waits, once that may be said; false where it was told to stop before.
    async fn tell(
        &self,
        is_caught_up: bool,
        progress: &Progress,
        consumer: &mut dyn Consumer,
    ) -> bool {
        loop {
            let waits = |partition| progress.waits(partition, &*consumer, self.topic);
            if self.feed.set_waiting(is_caught_up, waits) {
                return true;
            }
            tokio::select! {
                () = self.stop.cancelled() => return false,
                () = self.feed.wait_for_room() => {}
            }
        }
    }

    /// Goes to where the statements are now. Where that is back, what the partition holds by now
    /// surely waits.
    async fn go_back(
        &self,
        consumer: &mut dyn Consumer,
        progress: &mut Progress,
    ) -> Result<u64, StreamsError> {
        let info = self.store.topic(self.topic).await?;
        let before: Vec<Option<i64>> = (0..info.partitions)
            .map(|partition| consumer.position(self.topic, partition))
            .collect();
        let generation = self.seek(consumer, &info).await?;
        let ends = info.partition_offsets.iter().map(|range| range.end);
        for ((partition, before), end) in (0..).zip(before).zip(ends) {
            if consumer.position(self.topic, partition) < before {
                progress.expect(partition, end);
            }
        }
        Ok(generation)
    }

    /// Goes to the least positions that the statements want; a position that the topic no longer
    /// holds moves up to where the topic starts.
    async fn seek(
        &self,
        consumer: &mut dyn Consumer,
        info: &TopicInfo,
    ) -> Result<u64, StreamsError> {
        let (generation, positions) = self.feed.positions();
        let starts = info.partition_offsets.iter().map(|range| range.start);
        for (partition, start) in starts.enumerate() {
            let Ok(number) = i32::try_from(partition) else {
                continue;
            };
            // A partition that came after every statement is read from its start.
            let position = positions.get(partition).copied().unwrap_or(0);
            consumer
                .seek(self.topic, number, SeekTo::Offset(position.max(start)))
                .await?;
        }
        Ok(generation)
    }
}

impl Progress {
    /// Nothing was read yet.
    fn of(info: &TopicInfo) -> Progress {
        let ranges = info.partition_offsets.iter();
        Progress {
            ends: ranges.map(|range| range.end).collect(),
            seen: vec![None; info.partition_offsets.len()],
        }
    }

    /// Records wait on a partition up to there.
    fn expect(&mut self, partition: i32, end: i64) {
        let partition = usize::try_from(partition).unwrap_or(0);
        if let Some(known) = self.ends.get_mut(partition) {
            *known = end;
        }
    }

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
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let position = consumer.position(topic, number);
        let is_behind = match (position, self.ends.get(partition)) {
            // What lies before the end need not be a record.
            (Some(position), Some(end)) => position < *end && !consumer.is_at_end(topic, number),
            _ => false,
        };
        is_active || is_behind
    }
}

/// How the store lists this reader.
const CLIENT_ID: &str = "thalweg-statements";

/// A partition that had no record for so long does not hold the watermark of the others.
const PARTITION_IDLE: Duration = Duration::from_secs(1);
