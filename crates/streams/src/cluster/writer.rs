//! The thread that writes what has no sequence of its own.
//!
//! It takes all that waits, sends it as one round ([`super::round`]), and answers; then the next. So
//! a lone batch waits for one round trip and a crowd shares it. Two producers send a round: one holds
//! together what must not be cut; the other, made when it is first needed, cuts between large lone
//! records and so has several requests under way. librdkafka is idempotent beneath:
//! what it retries is stored once, in order. While the cluster is away the round waits for it, up
//! to the delivery's time-out, and everybody behind it waits for room.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use base::{Clock, SystemClock};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;

use super::calls::Calls;
use super::error::{self, About};
use super::round::{Cut, Deliveries, Job, Round, RoundProducer};
use crate::error::StreamsError;
use crate::event_store::Placed;

/// What became of a batch.
pub(super) type Outcome = Result<Placed, StreamsError>;

/// The writer's state.
pub(super) struct Writer {
    calls: Calls,
    partition_bytes_max: u64,
    deliveries: Deliveries,
    /// None when there could be none, and after one of them broke.
    together: Option<RoundProducer>,
    /// None while no round needs it.
    apart: Option<RoundProducer>,
}

impl Writer {
    pub(super) fn new(calls: Calls, partition_bytes_max: u64) -> Self {
        Writer {
            deliveries: Deliveries::new(calls.trouble().clone()),
            calls,
            partition_bytes_max,
            together: None,
            apart: None,
        }
    }

    /// Writes until nobody can send any more.
    pub(super) fn run(mut self, jobs: Receiver<Job>) {
        let mut waiting = Waiting::new(jobs);
        // Connecting takes half a second, which the first batch shall not wait for. What is wrong is
        // told when there is a batch.
        if let Err(error) = self.connect() {
            tracing::debug!(error = base::report(&error), "no producer yet");
        }
        loop {
            match waiting.next(self.partition_bytes_max, Cut::BetweenSingles) {
                Next::Round(round) => self.write(round),
                Next::Idle => {
                    self.apart = None;
                    self.calls.serve();
                }
                Next::Over => return,
            }
        }
    }

    fn write(&mut self, round: Round) {
        let sent = self.send(&round);
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

    fn connect(&mut self) -> Result<(), StreamsError> {
        if self.together.is_none() {
            let together = together_bytes(self.partition_bytes_max);
            let properties = [("message.max.bytes", &together), ("batch.size", &together)];
            self.together = Some(self.producer(&properties.map(|(name, value)| (name, &**value)))?);
        }
        Ok(())
    }

    /// Makes the producer that cuts, unless it is there.
    fn connect_apart(&mut self) -> Result<(), StreamsError> {
        if self.apart.is_none() {
            let (one, batch) = (
                together_bytes(self.partition_bytes_max),
                self.partition_bytes_max.to_string(),
            );
            self.apart = Some(self.producer(&[
                ("message.max.bytes", &one),
                ("batch.size", &batch),
                // A request goes out when it is full or none is under way.
                ("linger.ms", "0"),
            ])?);
        }
        Ok(())
    }

    fn producer(&self, properties: &[(&str, &str)]) -> Result<RoundProducer, StreamsError> {
        let mut client = self.calls.config().producer();
        for (name, value) in properties {
            client.set(*name, *value);
        }
        let made = RoundProducer::new(&client, self.deliveries.clone());
        made.map_err(|error| self.told(&error))
    }

    fn told(&self, error: &KafkaError) -> StreamsError {
        let trouble = self.calls.trouble().told();
        error::of_call(error, About::Cluster, trouble.as_deref())
    }

    fn send(&mut self, round: &Round) -> Result<Vec<Outcome>, StreamsError> {
        self.connect()?;
        let max = self.partition_bytes_max;
        let is_cut: Vec<bool> = round
            .jobs
            .iter()
            .map(|job| round.is_cut(&job.batch, max))
            .collect();
        if is_cut.contains(&true) {
            self.connect_apart()?;
        }
        let Some(together) = &self.together else {
            return Err(StreamsError::Closed);
        };
        let by = |is_cut: bool| match &self.apart {
            Some(apart) if is_cut => apart,
            _ => together,
        };
        let batches = round.jobs.iter().zip(is_cut);
        let batches: Vec<_> = batches
            .map(|(job, is_cut)| (by(is_cut), &job.batch))
            .collect();
        // The one that waits for its flush first; the other sends as it goes.
        let producers: Vec<_> = [together].into_iter().chain(&self.apart).collect();
        let timeout = self.calls.config().flush_timeout();
        let sent = self
            .deliveries
            .send_by(&producers, &batches, SystemClock.now(), timeout);
        let has_failed = |producer: &&RoundProducer| producer.client().fatal_error().is_some();
        let is_broken = sent.is_err() || producers.iter().any(has_failed);
        let sent = sent.map_err(|error| self.told(&error));
        if is_broken {
            // What they still hold was answered with an error; new ones begin with nothing.
            self.together = None;
            self.apart = None;
            self.deliveries = Deliveries::new(self.calls.trouble().clone());
        }
        sent
    }
}

/// What waits to be written.
pub(super) struct Waiting {
    jobs: Receiver<Job>,
    /// What did not fit into the last round.
    left: VecDeque<Job>,
}

/// What a writer is to do.
pub(super) enum Next {
    Round(Round),
    /// Nothing came for a while.
    Idle,
    /// Nothing will come any more.
    Over,
}

impl Waiting {
    pub(super) fn new(jobs: Receiver<Job>) -> Self {
        let left = VecDeque::new();
        Waiting { jobs, left }
    }

    /// Waits for a job, and takes all that is there with it.
    pub(super) fn next(&mut self, partition_bytes_max: u64, cut: Cut) -> Next {
        let mut round = Round::default();
        let mut left = VecDeque::new();
        for job in self.left.drain(..) {
            left.extend(round.take(job, partition_bytes_max, cut));
        }
        self.left = left;
        if round.jobs.is_empty() {
            match self.jobs.recv_timeout(IDLE) {
                Ok(job) => drop(round.take(job, partition_bytes_max, cut)),
                Err(RecvTimeoutError::Disconnected) => return Next::Over,
                Err(RecvTimeoutError::Timeout) => return Next::Idle,
            }
        }
        // Once one has to wait, those behind it do too: a partition's order is kept.
        while self.left.is_empty() {
            let Ok(job) = self.jobs.try_recv() else { break };
            self.left.extend(round.take(job, partition_bytes_max, cut));
        }
        Next::Round(round)
    }
}

/// How often an idle writer takes up what its clients complain of.
const IDLE: Duration = Duration::from_secs(30);

/// The size below which librdkafka keeps records together: it counts the worst case for each
/// record, which is up to three times of what is sent.
pub(super) fn together_bytes(partition_bytes_max: u64) -> String {
    (4 * partition_bytes_max + (64 << 10)).to_string()
}
