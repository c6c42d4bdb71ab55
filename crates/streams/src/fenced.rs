//! Writing under a name that one writer has at a time: who takes it last writes, and those before
//! are refused from then on.
//!
//! What several processes hand from one to another, such as a partition of a statement's state, is
//! so written by its latest owner only, whatever an earlier one still believes of itself. The name
//! is a transactional id of Kafka's, on a cluster as in this process, and each call of
//! [`FencedWriter::store`] is a transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::batch::{self, sequence_after};
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch, ProducerSequence};
use crate::partition::{Ack, Append, Partition};
use crate::store::Streams;
use crate::topic::TopicName;
use crate::transactions::{Outcome, ProducerIdentity, TransactionProtocol};

/// The holder of a name; see [`crate::EventStore::fenced_writer`].
#[async_trait]
pub trait FencedWriter: Send {
    /// Stores batches, all or none, and answers where each is; they are durable and readers of
    /// committed records see them on return. `Transaction` with `Fenced` when somebody else has
    /// taken the name. After any error, and after a call that was given up, it may be unknown
    /// whether they are stored, and the writer is of no more use: take the name again, which
    /// settles it, and read what is there.
    async fn store(&mut self, batches: Vec<ProduceBatch>) -> Result<Vec<Placed>, StreamsError>;
}

/// A name's holder over the store in this process.
pub(crate) struct EmbeddedWriter {
    streams: Arc<Streams>,
    name: String,
    who: ProducerIdentity,
    /// The next sequence in each partition.
    sequences: HashMap<(TopicName, i32), i32>,
    /// Whether a call failed or was given up.
    is_over: bool,
}

impl EmbeddedWriter {
    /// Takes the name; what its last holder left open is taken back.
    pub(crate) async fn take(streams: Arc<Streams>, name: &str) -> Result<Self, StreamsError> {
        let who = streams.init_transactions(name, TIMEOUT, None).await?;
        Ok(EmbeddedWriter {
            streams,
            name: name.to_owned(),
            who,
            sequences: HashMap::new(),
            is_over: false,
        })
    }

    async fn write(&mut self, batches: &[ProduceBatch]) -> Result<Vec<Placed>, StreamsError> {
        let mut partitions: Vec<(TopicName, i32)> = Vec::new();
        for batch in batches {
            let place = (batch.topic.clone(), batch.partition);
            if batch.topic.is_internal() {
                return Err(StreamsError::InternalTopic(place.0));
            }
            self.streams.check_own_home(&batch.topic)?;
            if !partitions.contains(&place) {
                partitions.push(place);
            }
        }
        self.streams
            .join_from_within(&self.name, self.who, &partitions)
            .await?;
        let mut placed = Vec::with_capacity(batches.len());
        let mut acks = Vec::with_capacity(batches.len());
        for batch in batches {
            let appended = self.append(batch).await?;
            placed.push(Placed {
                partition: batch.partition,
                base_offset: appended.base_offset,
            });
            acks.push(appended.ack);
        }
        for ack in acks {
            ack.await?;
        }
        let who = self.end(Outcome::Commit).await?;
        if who != self.who {
            self.who = who;
            self.sequences.clear();
        }
        Ok(placed)
    }

    async fn append(&mut self, batch: &ProduceBatch) -> Result<Append, StreamsError> {
        let place = (batch.topic.clone(), batch.partition);
        let partition = self.partition(&place.0, place.1)?;
        let next = self.sequences.entry(place).or_insert(0);
        let sequence = ProducerSequence {
            producer_id: self.who.id,
            producer_epoch: self.who.epoch,
            first_sequence: *next,
        };
        let now = self.streams.clock().now();
        let bytes = batch::build_transactional(&batch.records, now, sequence)?;
        let count = i32::try_from(batch.records.len()).unwrap_or(i32::MAX);
        *next = sequence_after(*next, count);
        loop {
            let appended = self.streams.append_in_transaction(
                TransactionProtocol::Explicit,
                &self.name,
                &partition,
                bytes.clone(),
                Ack::All,
            );
            match appended {
                Err(StreamsError::Busy) => self.streams.room(bytes.len() as u64).await,
                outcome => return outcome,
            }
        }
    }

    fn partition(&self, topic: &TopicName, index: i32) -> Result<Arc<Partition>, StreamsError> {
        let found = self.streams.topic_by_name(topic);
        let found = found.ok_or_else(|| StreamsError::UnknownTopic(topic.clone()))?;
        let partition = found.partition(index).cloned();
        partition.ok_or_else(|| StreamsError::UnknownPartition {
            topic: topic.clone(),
            partition: index,
        })
    }

    async fn end(&self, outcome: Outcome) -> Result<ProducerIdentity, StreamsError> {
        self.streams
            .end_transaction(TransactionProtocol::Explicit, &self.name, self.who, outcome)
            .await
    }
}

#[async_trait]
impl FencedWriter for EmbeddedWriter {
    async fn store(&mut self, batches: Vec<ProduceBatch>) -> Result<Vec<Placed>, StreamsError> {
        if std::mem::replace(&mut self.is_over, true) {
            return Err(over());
        }
        let stored = self.write(&batches).await;
        if stored.is_ok() {
            self.is_over = false;
        } else if let Err(error) = self.end(Outcome::Abort).await {
            // There may be none, or it is somebody else's; the next holder ends what is left.
            tracing::debug!(name = self.name, %error, "a transaction was not aborted");
        }
        stored
    }
}

/// What a writer answers after an error.
pub(crate) fn over() -> StreamsError {
    StreamsError::IllegalState("its last call failed: take the name again")
}

/// How long what one call stores may take, and stay open when its process dies.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
