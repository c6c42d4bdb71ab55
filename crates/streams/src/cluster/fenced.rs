//! Transactions of the cluster, and writing under a name by them.
//!
//! A producer that introduces itself under a transactional id fences whoever had it before, and has
//! the cluster take back what that one left open.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use base::{Clock, SystemClock};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer;

use super::calls::Calls;
use super::error::{self, About};
use super::round::{Deliveries, RoundProducer, batch_bytes};
use super::writer::together_bytes;
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};
use crate::fenced::{self, FencedWriter};
use crate::topic::TopicName;
use crate::transactions::TransactionError;

/// A producer of transactions and what becomes of its records.
pub(super) type Introduced = (RoundProducer, Deliveries);

/// A name's holder over a cluster.
pub(super) struct ClusterWriter {
    calls: Calls,
    name: String,
    partition_bytes_max: u64,
    /// None after a call that failed or was given up.
    producer: Option<Introduced>,
}

/// Introduces a producer under a transactional id; waits for the cluster.
pub(super) fn introduce(
    calls: &Calls,
    transactional_id: &str,
    partition_bytes_max: u64,
) -> Result<Introduced, KafkaError> {
    let config = calls.config();
    let together = together_bytes(partition_bytes_max);
    let transaction_ms = config.flush_timeout().max(fenced::TIMEOUT).as_millis();
    let mut client = config.producer();
    client
        .set("message.max.bytes", &together)
        .set("batch.size", &together)
        .set("transactional.id", transactional_id)
        .set("transaction.timeout.ms", transaction_ms.to_string());
    let deliveries = Deliveries::new(calls.trouble().clone());
    let producer = RoundProducer::new(&client, deliveries.clone())?;
    producer.init_transactions(config.flush_timeout())?;
    Ok((producer, deliveries))
}

/// Sends batches, at once no more for one partition than one batch may hold; answers what became of
/// each until one failed.
pub(super) fn send(
    (producer, deliveries): &Introduced,
    batches: &[&ProduceBatch],
    partition_bytes_max: u64,
    timeout: Duration,
) -> Result<Vec<Result<Placed, StreamsError>>, KafkaError> {
    let mut outcomes = Vec::with_capacity(batches.len());
    let mut rest = batches;
    while !rest.is_empty() && outcomes.iter().all(Result::is_ok) {
        let mut held: HashMap<(&TopicName, i32), u64> = HashMap::new();
        let mut count = 0;
        for batch in rest {
            let held = held.entry((&batch.topic, batch.partition)).or_insert(0);
            *held = held.saturating_add(batch_bytes(&batch.records));
            if count > 0 && *held > partition_bytes_max {
                break;
            }
            count += 1;
        }
        let (now, later) = rest.split_at(count);
        outcomes.extend(deliveries.send(producer, now, SystemClock.now(), timeout)?);
        rest = later;
    }
    Ok(outcomes)
}

impl ClusterWriter {
    /// Takes the name.
    pub(super) async fn take(
        calls: Calls,
        name: &str,
        partition_bytes_max: u64,
    ) -> Result<Self, StreamsError> {
        let (asked, id) = (calls.clone(), name.to_owned());
        let taken = calls.blocking(About::Cluster, move |_, _| {
            introduce(&asked, &id, partition_bytes_max)
        });
        Ok(ClusterWriter {
            producer: Some(taken.await?),
            name: name.to_owned(),
            calls,
            partition_bytes_max,
        })
    }
}

#[async_trait]
impl FencedWriter for ClusterWriter {
    async fn store(&mut self, batches: Vec<ProduceBatch>) -> Result<Vec<Placed>, StreamsError> {
        let held = self.producer.take().ok_or_else(fenced::over)?;
        let (calls, max) = (self.calls.clone(), self.partition_bytes_max);
        let name = self.name.clone();
        // Each writer waits for itself, so calls of others need not be counted with it.
        let stored = tokio::task::spawn_blocking(move || {
            let error = match transact(&calls, &held, &batches, max) {
                Ok(placed) => return Ok((held, placed)),
                Err(error) => error,
            };
            let is_fenced = held.0.client().fatal_error().is_some();
            if let Err(error) = held.0.abort_transaction(calls.config().flush_timeout()) {
                tracing::debug!(name, %error, "a transaction was not aborted: its name is taken anew");
            }
            Err(match is_fenced {
                true => StreamsError::Transaction {
                    id: name,
                    reason: TransactionError::Fenced,
                },
                false => error,
            })
        });
        // Otherwise the runtime is going down.
        let (held, placed) = stored.await.unwrap_or(Err(StreamsError::Closed))?;
        self.producer = Some(held);
        Ok(placed)
    }
}

fn transact(
    calls: &Calls,
    held: &Introduced,
    batches: &[ProduceBatch],
    partition_bytes_max: u64,
) -> Result<Vec<Placed>, StreamsError> {
    let told = |error: KafkaError| {
        let trouble = calls.trouble().told();
        error::of_call(&error, About::Cluster, trouble.as_deref())
    };
    let timeout = calls.config().flush_timeout();
    held.0.begin_transaction().map_err(told)?;
    let batches: Vec<&ProduceBatch> = batches.iter().collect();
    let outcomes = send(held, &batches, partition_bytes_max, timeout).map_err(told)?;
    let placed = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    held.0.commit_transaction(timeout).map_err(told)?;
    Ok(placed)
}
