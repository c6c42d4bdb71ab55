//! A lane that writes what has no sequence of its own.
//!
//! It takes a round of what waits ([`super::waiting`]), sends it ([`super::round`]), and answers; then
//! the next. So a lone batch waits for one round trip and a crowd shares it, and while one lane
//! waits for its round trip the others fill theirs. Each lane has a producer of its own, since a flush
//! is for all that a producer holds. librdkafka is idempotent beneath: what it retries is stored once,
//! in order. While the cluster is away the rounds wait for it, up to the delivery's time-out, and
//! everybody behind them waits for room.

use std::collections::HashMap;

use base::{Clock, SystemClock};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;

use super::calls::Calls;
use super::error::{self, About};
use super::round::{Deliveries, Round, RoundProducer};
use super::waiting::{Lane, Next};
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};
use crate::topic::TopicName;

/// What became of a batch.
pub(super) type Outcome = Result<Placed, StreamsError>;

/// The state of one lane.
pub(super) struct Writer {
    calls: Calls,
    partition_bytes_max: u64,
    lane: Lane,
    /// None when there could be none, after it broke, and while the lane rests.
    producer: Option<(RoundProducer, Deliveries)>,
}

impl Writer {
    pub(super) fn new(calls: Calls, partition_bytes_max: u64, lane: Lane) -> Self {
        Writer {
            calls,
            partition_bytes_max,
            lane,
            producer: None,
        }
    }

    /// Writes until nobody can send any more.
    pub(super) fn run(mut self) {
        while self.turn() {}
    }

    /// Does what is next; false when there is nothing more to come.
    fn turn(&mut self) -> bool {
        match self.lane.next(self.partition_bytes_max) {
            Next::Connect => self.connect_ahead(),
            Next::Round(round) => self.write(round),
            Next::Idle if self.lane.is_first() => self.calls.serve(),
            Next::Idle => self.producer = None,
            Next::Over => return false,
        }
        true
    }

    /// Connects before there is a round, which shall not wait for it. What is wrong is told with the
    /// round.
    fn connect_ahead(&mut self) {
        let is_first = self.lane.is_first();
        let timeout = self.calls.config().call_timeout();
        match self.connect() {
            // While this one waits for the cluster to be there, the first writes.
            Ok((producer, _)) if !is_first => drop(producer.client().fetch_cluster_id(timeout)),
            Ok(_) => {}
            Err(error) => tracing::debug!(error = base::report(&error), "no producer yet"),
        }
    }

    fn write(&mut self, round: Round) {
        let batches: Vec<&ProduceBatch> = round.jobs.iter().map(|job| &job.batch).collect();
        let mut sent = self.send(&batches);
        match &mut sent {
            Ok(outcomes) => self.send_apart(&batches, outcomes),
            Err(error) => tracing::warn!(error = base::report(error), "a round was not sent"),
        }
        for (index, job) in round.jobs.into_iter().enumerate() {
            let outcome = match &sent {
                Ok(outcomes) => outcomes
                    .get(index)
                    .cloned()
                    .unwrap_or(Err(StreamsError::Closed)),
                Err(error) => Err(error.clone()),
            };
            // Who asked may have gone away; the records are stored all the same.
            let _ = job.answer.send(outcome);
            drop(job.room);
        }
    }

    fn send(&mut self, batches: &[&ProduceBatch]) -> Result<Vec<Outcome>, StreamsError> {
        let timeout = self.calls.config().flush_timeout();
        let (producer, deliveries) = self.connect()?;
        let sent = deliveries.send(producer, batches, SystemClock.now(), timeout);
        let is_broken = sent.is_err() || producer.client().fatal_error().is_some();
        if is_broken {
            // What it still holds was answered with an error; a new one begins with nothing.
            self.producer = None;
        }
        sent.map_err(|error| self.told(&error))
    }

    /// Sends those once more, each by itself, that the cluster found too large together with others
    /// of their partition: its topic may take less than a round joins.
    fn send_apart(&mut self, batches: &[&ProduceBatch], outcomes: &mut [Outcome]) {
        let is_refused =
            |outcome: &Outcome| matches!(outcome, Err(StreamsError::MessageTooLarge { .. }));
        if !outcomes.iter().any(is_refused) {
            return;
        }
        let place = |batch: &ProduceBatch| (batch.topic.clone(), batch.partition);
        let mut together: HashMap<(TopicName, i32), usize> = HashMap::new();
        for batch in batches {
            *together.entry(place(batch)).or_default() += 1;
        }
        let mut away: Option<StreamsError> = None;
        for (batch, outcome) in batches.iter().zip(outcomes) {
            let count = together.get(&place(batch)).copied().unwrap_or(0);
            if count < 2 || !is_refused(outcome) {
                continue;
            }
            *outcome = match &away {
                Some(error) => Err(error.clone()),
                None => self.send_alone(batch),
            };
            if let Err(error @ StreamsError::Unavailable(_)) = &*outcome {
                // The others would wait as long, one behind the other.
                away = Some(error.clone());
            }
        }
    }

    fn send_alone(&mut self, batch: &ProduceBatch) -> Outcome {
        let sent = self.send(&[batch])?;
        sent.into_iter().next().unwrap_or(Err(StreamsError::Closed))
    }

    /// The producer, made unless it is there.
    fn connect(&mut self) -> Result<&(RoundProducer, Deliveries), StreamsError> {
        let made = match self.producer.take() {
            Some(made) => made,
            None => {
                let together = together_bytes(self.partition_bytes_max);
                let mut client = self.calls.config().producer();
                client
                    .set("message.max.bytes", &together)
                    .set("batch.size", &together);
                let deliveries = Deliveries::new(self.calls.trouble().clone());
                let producer = RoundProducer::new(&client, deliveries.clone());
                (producer.map_err(|error| self.told(&error))?, deliveries)
            }
        };
        Ok(self.producer.insert(made))
    }

    fn told(&self, error: &KafkaError) -> StreamsError {
        let trouble = self.calls.trouble().told();
        error::of_call(error, About::Cluster, trouble.as_deref())
    }
}

/// The size below which librdkafka keeps records together: it counts the worst case for each
/// record, which is up to three times of what is sent.
pub(super) fn together_bytes(partition_bytes_max: u64) -> String {
    (4 * partition_bytes_max + (64 << 10)).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::super::calls::Trouble;
    use super::super::tests::{config, job};
    use super::super::waiting::queue;
    use super::*;
    use crate::limits::CLUSTER_ROUND_BESIDE_BYTES_MIN as BESIDE;

    #[tokio::test]
    async fn what_is_too_large_together_is_sent_once_more_alone() {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("t", 1, 1).unwrap();
        let calls = Calls::new(config(&mock).kafka, Trouble::default()).unwrap();
        let (queue, mut lanes) = queue(1, Duration::from_millis(1));
        let mut writer = Writer::new(calls, 1 << 20, lanes.remove(0));
        assert!(writer.turn());
        let too_large = |count| {
            let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
            mock.request_errors(RDKafkaApiKey::Produce, &vec![error; count]);
        };
        let mut round = |count| {
            let jobs = (0..count).map(|_| job("t", 1_000));
            let answers: Vec<_> = jobs
                .map(|(job, answer)| {
                    queue.send(job).unwrap();
                    answer
                })
                .collect();
            assert!(writer.turn());
            let outcomes = answers.into_iter().map(|mut answer| {
                let outcome = answer.try_recv().unwrap();
                outcome.map(|placed| placed.base_offset)
            });
            outcomes.collect::<Vec<_>>()
        };
        // The two together.
        too_large(1);
        assert_eq!(round(2).into_iter().flatten().collect::<Vec<_>>(), [0, 1]);
        // The two together, and then the first alone.
        too_large(2);
        let outcomes = round(2);
        assert!(
            matches!(
                outcomes[..],
                [Err(StreamsError::MessageTooLarge { .. }), Ok(2)]
            ),
            "{outcomes:?}"
        );
        // One that was alone is not sent again.
        too_large(1);
        let outcomes = round(1);
        assert!(
            matches!(outcomes[..], [Err(StreamsError::MessageTooLarge { .. })]),
            "{outcomes:?}"
        );
    }

    #[tokio::test]
    async fn a_lane_beside_the_first_has_a_producer_while_there_is_enough_to_write() {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("t", 1, 1).unwrap();
        let calls = Calls::new(config(&mock).kafka, Trouble::default()).unwrap();
        let (queue, mut lanes) = queue(2, Duration::from_millis(1));
        let beside = lanes.pop().unwrap();
        let first = &mut lanes[0];
        assert!(matches!(first.next(1 << 20), Next::Connect));
        let (held, _answer) = job("t", BESIDE);
        queue.send(held).unwrap();
        let Next::Round(_held) = first.next(1 << 20) else {
            panic!("the first lane takes it")
        };
        let (written, answer) = job("t", BESIDE);
        queue.send(written).unwrap();
        let mut writer = Writer::new(calls, 1 << 20, beside);
        assert!(writer.turn());
        assert!(writer.producer.is_some(), "it connects ahead");
        assert!(writer.turn());
        assert_eq!(answer.await.unwrap().unwrap().base_offset, 0);
        assert!(writer.turn());
        assert!(writer.producer.is_none(), "it rests");
        drop(queue);
        assert!(!writer.turn());
    }
}
