//! Rows as records of the event store, in batches that it recognizes when they are repeated.

use bytes::Bytes;
use streams::{ProduceBatch, ProducerSequence, Record, StreamsError};

use super::{Part, Sent, Stopped, Writer};
use crate::lane::Sequence;
use crate::limits::{PRODUCE_BYTES_MAX, PRODUCE_ROWS_MAX, RETRY_WAIT};
use crate::output::Row;

impl Writer {
    pub(super) async fn produce(
        &mut self,
        topic: &streams::TopicName,
        partition: i32,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        for batch in cut(&output.bytes, &output.rows) {
            self.produce_batch(topic, partition, batch, part).await?;
        }
        Ok(())
    }

    async fn produce_batch(
        &mut self,
        topic: &streams::TopicName,
        partition: i32,
        (mut records, events): (Vec<Record>, u64),
        part: Part,
    ) -> Result<(), Stopped> {
        let count = records.len();
        let mut wait = RETRY_WAIT.0;
        let mut had_trouble = false;
        loop {
            let sequence = self
                .sequence
                .producer_id
                .map(|producer_id| ProducerSequence {
                    producer_id,
                    producer_epoch: 0,
                    first_sequence: self.sequence.next,
                });
            let batch = ProduceBatch {
                topic: topic.clone(),
                partition,
                records: records.clone(),
                sequence,
            };
            let error = match self.store.produce(batch).await {
                Ok(_) => break,
                Err(error) => error,
            };
            match &error {
                // A later batch is stored already, so this one is too: the store remembers only
                // the last few by name.
                StreamsError::OutOfOrderSequence { expected, .. }
                    if is_stored(self.sequence.next, count, *expected) =>
                {
                    break;
                }
                // The topic was made anew, or forgot its producers.
                StreamsError::OutOfOrderSequence { .. }
                | StreamsError::UnknownProducerId(_)
                | StreamsError::InvalidProducerEpoch { .. } => {
                    if let Ok(id) = self.store.producer_id().await {
                        self.sequence = Sequence {
                            producer_id: Some(id),
                            next: 0,
                        };
                    }
                }
                StreamsError::MessageTooLarge { .. } => {
                    self.give_up(
                        events,
                        &format!("cannot produce {count} rows: {error}"),
                        part,
                    );
                    return Ok(());
                }
                // What a statement tells of may lie ahead of the clock, or far back. Its rows are
                // worth more than their times.
                StreamsError::InvalidTimestamp(_)
                    if records.iter().any(|record| record.timestamp.is_some()) =>
                {
                    for record in &mut records {
                        record.timestamp = None;
                    }
                    continue;
                }
                StreamsError::UnknownTopic(_) => {
                    // Its own error, if there is one, is said at the next try.
                    let _ = self.store.topic_or_create(topic).await;
                }
                _ => {}
            }
            had_trouble = true;
            self.set_trouble(Some(format!(
                "cannot produce to kafka.\"{topic}\": {}",
                base::report(&error)
            )));
            self.pause(wait).await?;
            wait = (wait * 2).min(RETRY_WAIT.1);
        }
        self.sequence.next = next_sequence(self.sequence.next, count);
        self.delivered((count as u64, events), count as u64, part);
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }
}

/// Rows as the records of batches, each with the events that it stands for. The same rows are always
/// cut in the same batches: a repeated one is recognized.
pub fn cut<'r>(
    bytes: &'r Bytes,
    rows: &'r [Row],
) -> impl Iterator<Item = (Vec<Record>, u64)> + use<'r> {
    let (mut first, mut start) = (0, 0);
    std::iter::from_fn(move || {
        let mut last = first + 1;
        while last < rows.len()
            && last - first < PRODUCE_ROWS_MAX
            && rows[last].end - start <= PRODUCE_BYTES_MAX
        {
            last += 1;
        }
        let batch = rows.get(first..last)?;
        let mut records = Vec::with_capacity(batch.len());
        for row in batch {
            records.push(Record {
                key: row.key.clone(),
                value: Some(bytes.slice(start..row.end)),
                headers: Vec::new(),
                timestamp: Some(row.timestamp),
            });
            start = row.end;
        }
        first = last;
        Some((records, batch.iter().map(|row| row.events).sum()))
    })
}

/// The sequence after `count` rows; after the greatest comes zero, as in Kafka.
pub(super) fn next_sequence(first: i32, count: usize) -> i32 {
    let next = (i64::from(first) + count as i64) % SEQUENCES;
    i32::try_from(next).unwrap_or(0)
}

/// True when the store that expects `expected` next has the `count` rows from `first` on.
pub fn is_stored(first: i32, count: usize, expected: i32) -> bool {
    let ahead = (i64::from(expected) - i64::from(first)).rem_euclid(SEQUENCES);
    ahead >= count as i64 && ahead < SEQUENCES / 2
}

/// How many sequences there are: 0 to 2^31 - 1.
const SEQUENCES: i64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(next_sequence(i32::MAX, 1), 0);
        assert_eq!(next_sequence(i32::MAX - 1, 5), 3);
    }

    #[test]
    fn only_what_lies_before_the_expected_sequence_is_stored() {
        assert!(is_stored(0, 10, 10));
        assert!(is_stored(0, 10, 500));
        assert!(is_stored(i32::MAX, 2, 1));
        assert!(!is_stored(0, 10, 5));
        assert!(!is_stored(100, 10, 0));
    }
}
