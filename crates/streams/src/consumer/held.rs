//! One partition that a consumer holds: its position, and the batches read ahead of it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::BatchHeader;
use crate::decode::{BatchRecord, BatchRecords};
use crate::error::StreamsError;
use crate::event_store::{Isolation, OffsetReset, SeekTo};
use crate::limits::CONSUMER_READ_BYTES;
use crate::partition::{Partition, Watch};
use crate::record::ConsumedRecord;
use crate::signal::Signal;
use crate::store::Streams;
use crate::topic::TopicName;

/// A partition that a consumer holds.
pub(super) struct Held {
    topic: TopicName,
    partition: Arc<Partition>,
    isolation: Isolation,
    _watch: Watch,
    position: Option<i64>,
    /// Whether records were taken since it is held.
    polled: bool,
    /// Whether the latest look found nothing more.
    is_at_end: bool,
    ahead: VecDeque<Bytes>,
    current: Option<Current>,
}

struct Current {
    records: BatchRecords,
    /// A record that did not fit into the last answer.
    kept: Option<BatchRecord>,
    /// Where the batch ends.
    end: i64,
}

impl Held {
    /// Holds a partition without a position; `notify` is told when more can be read.
    pub(super) fn new(
        streams: &Streams,
        topic: &TopicName,
        index: i32,
        isolation: Isolation,
        notify: &Arc<Signal>,
    ) -> Result<Self, StreamsError> {
        let found = streams.topic_by_name(topic);
        let found = found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))?;
        let Some(partition) = found.partition(index).cloned() else {
            return Err(StreamsError::UnknownPartition {
                topic: topic.clone(),
                partition: index,
            });
        };
        Ok(Held {
            topic: topic.clone(),
            _watch: partition.watch(notify)?,
            partition,
            isolation,
            position: None,
            polled: false,
            is_at_end: false,
            ahead: VecDeque::new(),
            current: None,
        })
    }

    pub(super) fn is(&self, topic: &TopicName, index: i32) -> bool {
        self.partition.index() == index && self.topic == *topic
    }

    /// Whether the store still has it; another topic of its name is not it.
    pub(super) fn is_in(&self, streams: &Streams) -> bool {
        let found = streams.topic_by_name(&self.topic);
        let found = found.and_then(|topic| topic.partition(self.index()).cloned());
        found.is_some_and(|partition| Arc::ptr_eq(&partition, &self.partition))
    }

    pub(super) fn topic(&self) -> &TopicName {
        &self.topic
    }

    pub(super) fn index(&self) -> i32 {
        self.partition.index()
    }

    pub(super) fn position(&self) -> Option<i64> {
        self.position
    }

    /// Whether the latest look found nothing more.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// The position, when records were taken.
    pub(super) fn polled_position(&self) -> Option<i64> {
        self.position.filter(|_| self.polled)
    }

    /// Finds the first position: what the group has committed, or else by `reset`.
    pub(super) fn start(&mut self, streams: &Streams, group: Option<&str>, reset: OffsetReset) {
        let index = self.partition.index();
        let committed = group.and_then(|group| streams.committed_offset(group, &self.topic, index));
        match committed {
            Some(committed) => self.seek(SeekTo::Offset(committed.offset)),
            None => self.seek(reset.seek()),
        }
    }

    /// Moves the position and forgets what was read ahead.
    pub(super) fn seek(&mut self, to: SeekTo) {
        self.position = Some(match to {
            SeekTo::Offset(offset) => offset,
            SeekTo::Beginning => self.partition.log_start_offset(),
            SeekTo::End => self.partition.end_offset(self.isolation),
        });
        self.is_at_end = false;
        self.ahead.clear();
        self.current = None;
    }

    /// Moves records into `out` while `left` bytes allow; the very first always goes. Leaves
    /// `left` at zero when a record had to wait.
    pub(super) fn take(
        &mut self,
        reset: OffsetReset,
        left: &mut usize,
        out: &mut Vec<ConsumedRecord>,
    ) -> Result<(), StreamsError> {
        loop {
            if self.current.is_none() && !self.next_batch(reset, *left)? {
                return Ok(());
            }
            let Some(current) = &mut self.current else {
                return Ok(());
            };
            let record = match current.kept.take() {
                Some(record) => Some(Ok(record)),
                None => current.records.next(),
            };
            let Some(record) = record else {
                self.finish_batch();
                continue;
            };
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    // The rest of the batch is lost to this consumer, which is told so; what
                    // follows must not be lost with it.
                    self.finish_batch();
                    return Err(error);
                }
            };
            if self
                .position
                .is_some_and(|position| record.offset < position)
            {
                continue;
            }
            let bytes = size(&record);
            if bytes > *left && !out.is_empty() {
                current.kept = Some(record);
                *left = 0;
                return Ok(());
            }
            *left = left.saturating_sub(bytes);
            self.position = Some(record.offset.saturating_add(1));
            self.polled = true;
            out.push(record.consumed(&self.topic, self.partition.index()));
            if *left == 0 {
                return Ok(());
            }
        }
    }

    /// Opens the next batch; false when there is none yet.
    fn next_batch(&mut self, reset: OffsetReset, left: usize) -> Result<bool, StreamsError> {
        let Some(position) = self.position else {
            return Ok(false);
        };
        if self.ahead.is_empty() {
            let max_bytes = left.min(CONSUMER_READ_BYTES);
            match self
                .partition
                .read(self.isolation, position, max_bytes, true)
            {
                Ok(batches) => self.ahead.extend(batches),
                Err(StreamsError::OffsetOutOfRange { .. }) => {
                    self.seek(reset.seek());
                    // Only once: the end is always in range, the start unless it just moved on.
                    let position = self.position.unwrap_or(position);
                    let batches =
                        self.partition
                            .read(self.isolation, position, CONSUMER_READ_BYTES, true)?;
                    self.ahead.extend(batches);
                }
                Err(error) => return Err(error),
            }
        }
        self.is_at_end = self.ahead.is_empty();
        let Some(batch) = self.ahead.pop_front() else {
            return Ok(false);
        };
        let header = BatchHeader::read(&batch)?;
        let end = header.base_offset.saturating_add(header.offsets());
        // Control batches have no records to begin with.
        // The start is looked at last: what was aborted is forgotten with what is deleted.
        let is_hidden = self.isolation == Isolation::Committed
            && (self.partition.is_aborted(&header) || end <= self.partition.log_start_offset());
        let records = if is_hidden {
            Ok(BatchRecords::none(header))
        } else {
            BatchRecords::of(&batch)
        };
        match records {
            Ok(records) => {
                self.current = Some(Current {
                    records,
                    kept: None,
                    end,
                })
            }
            Err(error) => {
                self.position = Some(end);
                return Err(error);
            }
        }
        Ok(true)
    }

    fn finish_batch(&mut self) {
        if let Some(current) = self.current.take() {
            self.position = self.position.map(|position| position.max(current.end));
        }
    }
}

/// What a record counts against `max_bytes`: its bytes and a little for each.
fn size(record: &BatchRecord) -> usize {
    let headers = record.headers.iter();
    let headers: usize = headers
        .map(|(n, v)| n.len() + v.as_ref().map_or(0, Bytes::len))
        .sum();
    let (key, value) = (record.key.as_ref(), record.value.as_ref());
    key.map_or(0, Bytes::len) + value.map_or(0, Bytes::len) + headers + RECORD_OVERHEAD_BYTES
}

/// What a record without key, value and headers counts, in bytes.
const RECORD_OVERHEAD_BYTES: usize = 16;
