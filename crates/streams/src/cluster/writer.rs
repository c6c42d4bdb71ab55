//! A lane that writes what has no sequence of its own.
//!
//! It takes a round of what waits ([`super::waiting`]), sends it ([`super::round`]), and answers; then
//! the next. So a lone batch waits for one round trip and a crowd shares it, and while one lane
//! waits for its round trip the others fill theirs. Each lane has a producer of its own, since a flush
//! is for all that a producer holds. librdkafka is idempotent beneath: what it retries is stored once,
//! in order. While the cluster is away the rounds wait for it, up to the delivery's time-out, and
//! everybody behind them waits for room.

use base::{Clock, SystemClock};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;

use super::calls::Calls;
use super::error::{self, About};
use super::round::{Deliveries, Round, RoundProducer};
use super::waiting::{Lane, Next};
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};

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
        let sent = self.send(&batches);
        if let Err(error) = &sent {
            tracing::warn!(error = base::report(error), "a round was not sent");
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

    use super::super::calls::Trouble;
    use super::super::tests::{config, job};
    use super::super::waiting::queue;
    use super::*;
    use crate::limits::CLUSTER_ROUND_BESIDE_BYTES_MIN as BESIDE;

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
