//! PublishKafka: FlowFiles as records, each once over crashes of the agent.
//!
//! # How a record gets there once
//!
//! What will be sent - topic, partition, producer id and epoch, first sequence, FlowFiles in their
//! order - is durable before it is sent. After a crash the batches in doubt are sent again with
//! the same sequences, so a broker that has them answers that it has. FlowFiles leave the
//! repository in a commit that also ends the doubt. That commit need not be durable before the
//! next batch is: if it is lost, the batch is only sent once more.
//!
//! A broker that no longer knows the producer gets a new producer id and the batch again; whether
//! it had it is then not known, so that is put up as a bulletin.
//!
//! Batches in doubt are never given up: Message Timeout bounds one try, not all.

mod kind;
mod state;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use regex::Regex;

pub(super) use self::kind::KIND;
use self::state::{Doubt, ProducerState, ids, runs, to_bytes};
use super::kafka_properties::{brokers, security};
use super::{Next, Processor, ProcessorError, Settings};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::{Expression, ExpressionError};
use crate::flowfile::{FlowFile, FlowFileId};
use crate::kafka::{self, BatchBuilder, Cluster, Codec, KafkaError, Outcome, Sent};
use crate::limits::{KAFKA_PARTITIONS_MAX, SESSION_FLOW_FILES_MAX};
use crate::patterns;
use crate::session::ProcessSession;

struct PublishKafka {
    topic: Expression,
    key: Option<Expression>,
    acks: i16,
    batch: usize,
    batch_bytes: u64,
    linger: Duration,
    timeout: Duration,
    request_timeout: Duration,
    fails_empty: bool,
    codec: Codec,
    /// Names of attributes that become headers.
    headers: Option<Regex>,
    cluster: Cluster,
    /// What is on record; read at the first trigger.
    state: Option<ProducerState>,
    turn: i32,
}

/// A batch and the FlowFiles in it.
struct Pending {
    doubt: Doubt,
    flow_files: Vec<FlowFile>,
    keys: Option<Vec<String>>,
}

impl PublishKafka {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let brokers = brokers(settings, "Known Brokers")?;
        let acks = match settings.needed("Delivery Guarantee")?.as_str() {
            "all" | "-1" | "DELIVERY_REPLICATED" => -1,
            "0" | "DELIVERY_BEST_EFFORT" => 0,
            _ => 1,
        };
        let batch: usize = settings.integer("Batch Size")?;
        let batch_max = match settings.text("Queue Max Message")? {
            Some(_) => settings.integer("Queue Max Message")?,
            None => usize::MAX,
        };
        let bytes_max = match settings.text("Queue Max Buffer Size")? {
            Some(_) => settings.size("Queue Max Buffer Size")?,
            None => u64::MAX,
        };
        let codec = settings.needed("Compress Codec")?;
        let headers = settings.text("Attributes to Send as Headers")?;
        let headers = headers.map(|pattern| patterns::whole_text(&pattern));
        let headers = headers.transpose();
        Ok(PublishKafka {
            topic: settings
                .expression("Topic Name")?
                .ok_or("Topic Name is empty")?,
            key: settings.expression("Kafka Key")?,
            acks,
            batch: batch.min(SESSION_FLOW_FILES_MAX).min(batch_max),
            batch_bytes: settings
                .size("Target Batch Payload Size")?
                .min(bytes_max)
                .max(1),
            linger: settings.duration("Queue Buffering Max Time")?,
            timeout: settings.duration("Message Timeout")?,
            request_timeout: settings.duration("Request Timeout")?,
            fails_empty: settings.flag("Fail empty flow files")?,
            codec: Codec::of_name(&codec).ok_or("Compress Codec is unknown")?,
            headers: headers.map_err(|error| format!("Attributes to Send as Headers: {error}"))?,
            cluster: Cluster::new(
                brokers,
                settings.needed("Client Name")?,
                security(settings)?,
            ),
            state: None,
            turn: 0,
        })
    }

    fn load(&mut self, session: &ProcessSession<'_>) -> Result<(), ProcessorError> {
        if self.state.is_some() {
            return Ok(());
        }
        let bytes = session.state();
        let state = if bytes.is_empty() {
            ProducerState {
                version: 1,
                ..ProducerState::default()
            }
        } else {
            serde_json::from_slice(&bytes).map_err(|error| {
                ProcessorError::Failed(format!("its state is no state: {error}"))
            })?
        };
        self.state = Some(state);
        Ok(())
    }

    fn state(&mut self) -> &mut ProducerState {
        self.state.get_or_insert_with(ProducerState::default)
    }

    /// The batches that were in doubt when the agent stopped.
    fn doubtful(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Vec<Pending>, ProcessorError> {
        let doubts = self.state().doubt.clone();
        let stored: HashSet<FlowFileId> = ids(&self.state().stored.clone()).collect();
        let done = session.take_these(&stored);
        session.transfer_all(done, SUCCESS);
        let all = doubts.iter().flat_map(|doubt| ids(&doubt.runs));
        let wanted: HashSet<FlowFileId> = all.filter(|id| !stored.contains(id)).collect();
        let mut found: HashMap<FlowFileId, FlowFile> = session
            .take_these(&wanted)
            .into_iter()
            .map(|flow_file| (flow_file.id(), flow_file))
            .collect();
        let is_whole = found.len() == wanted.len();
        let mut pending = Vec::new();
        for doubt in doubts {
            let flow_files: Vec<FlowFile> = ids(&doubt.runs)
                .filter_map(|id| found.remove(&id))
                .collect();
            if !flow_files.is_empty() {
                let keys = self.keys(session, &flow_files)?;
                pending.push(Pending {
                    doubt,
                    flow_files,
                    keys,
                });
            }
        }
        if !is_whole {
            context.post(
                Level::Warning,
                "FlowFiles of a batch in doubt are gone (expired, or their connection was \
                 removed); the others are sent again and may be there twice",
            );
            self.state().producer = None;
        }
        Ok(pending)
    }

    /// Takes what waits and sorts it by partition.
    fn gather(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Vec<Pending>, ProcessorError> {
        let mut flow_files = session.take(self.batch, self.batch_bytes);
        let bytes: u64 = flow_files.iter().map(FlowFile::size).sum();
        if !self.linger.is_zero() && flow_files.len() < self.batch && bytes < self.batch_bytes / 2 {
            context.sleep(self.linger);
            let bytes_left = self.batch_bytes - bytes;
            flow_files.extend(session.take(self.batch - flow_files.len(), bytes_left));
        }
        if self.fails_empty {
            let (empty, full) = flow_files.into_iter().partition(|file| file.size() == 0);
            session.transfer_all(empty, FAILURE);
            flow_files = full;
        }
        let mut pending: Vec<Pending> = Vec::new();
        let mut slots: HashMap<(String, i32), usize> = HashMap::new();
        let stops = || context.is_stopping();
        self.turn = self.turn.wrapping_add(1);
        if let Some(topic) = self.topic.as_literal().map(str::to_owned)
            && self.key.is_none()
        {
            if flow_files.is_empty() {
                return Ok(pending);
            }
            let partition = self.partition(&topic, None, &stops)?;
            let doubt = Doubt {
                topic,
                partition,
                first_sequence: 0,
                runs: Vec::new(),
            };
            return Ok(vec![Pending {
                doubt,
                flow_files,
                keys: None,
            }]);
        }
        for flow_file in flow_files {
            let scope = session.scope(&flow_file);
            let named = self.topic.evaluate(scope).and_then(|topic| {
                let key = self
                    .key
                    .as_ref()
                    .map(|key| key.evaluate(scope))
                    .transpose()?;
                Ok((topic.into_owned(), key.map(|key| key.into_owned())))
            });
            let (topic, key) = match named {
                Ok((topic, _)) if topic.is_empty() => {
                    context.post(Level::Error, "Topic Name is empty for a FlowFile");
                    session.transfer(flow_file, FAILURE);
                    continue;
                }
                Ok(named) => named,
                Err(error) => {
                    context.post(Level::Error, &error.to_string());
                    session.transfer(flow_file, FAILURE);
                    continue;
                }
            };
            let partition = self.partition(&topic, key.as_deref(), &stops)?;
            let at = *slots
                .entry((topic.clone(), partition))
                .or_insert(pending.len());
            if at == pending.len() {
                let doubt = Doubt {
                    topic,
                    partition,
                    first_sequence: 0,
                    runs: Vec::new(),
                };
                let keys = self.key.as_ref().map(|_| Vec::new());
                pending.push(Pending {
                    doubt,
                    flow_files: Vec::new(),
                    keys,
                });
            }
            if let (Some(keys), Some(key)) = (&mut pending[at].keys, key) {
                keys.push(key);
            }
            pending[at].flow_files.push(flow_file);
        }
        Ok(pending)
    }

    fn keys(
        &self,
        session: &ProcessSession<'_>,
        flow_files: &[FlowFile],
    ) -> Result<Option<Vec<String>>, ProcessorError> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        let keys: Result<Vec<String>, ExpressionError> = flow_files
            .iter()
            .map(|flow_file| {
                key.evaluate(session.scope(flow_file))
                    .map(|key| key.into_owned())
            })
            .collect();
        keys.map(Some)
            .map_err(|error| ProcessorError::Failed(error.to_string()))
    }

    fn partition(
        &mut self,
        topic: &str,
        key: Option<&str>,
        stops: &dyn Fn() -> bool,
    ) -> Result<i32, ProcessorError> {
        let partitions = self
            .cluster
            .partitions(topic, stops)
            .map_err(unreachable_broker)?;
        if partitions == 0 {
            return Err(ProcessorError::Failed(format!(
                "topic '{topic}' has no partitions"
            )));
        }
        Ok(match key {
            Some(key) => kafka::partition_of(key.as_bytes(), partitions),
            None => self.turn.rem_euclid(partitions),
        })
    }

    /// Gives batches their sequences and puts them on record.
    fn record(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        pending: &mut [Pending],
    ) -> Result<(), ProcessorError> {
        if self.acks == 0 {
            return Ok(());
        }
        if self.state().producer.is_none() {
            let stops = || context.is_stopping();
            let fresh = self
                .cluster
                .producer_id(&stops)
                .map_err(unreachable_broker)?;
            let state = self.state();
            state.producer = Some(fresh);
            state.next.clear();
        }
        let state = self.state();
        state.doubt.clear();
        for batch in pending {
            let next = state.next.get(&batch.doubt.topic);
            let next = next.and_then(|topic| topic.get(&batch.doubt.partition));
            batch.doubt.first_sequence = next.copied().unwrap_or(0);
            batch.doubt.runs = runs(&batch.flow_files);
            state.doubt.push(batch.doubt.clone());
        }
        let partitions: usize = state.next.values().map(BTreeMap::len).sum();
        if partitions > KAFKA_PARTITIONS_MAX {
            return Err(ProcessorError::Failed(format!(
                "it writes to more than {KAFKA_PARTITIONS_MAX} partitions"
            )));
        }
        let bytes = to_bytes(state);
        let recorded = session.record_state(bytes);
        if recorded.is_err() {
            // Not on record, so not to be sent: the FlowFiles are still in their queue.
            self.state().doubt.clear();
        }
        recorded
    }

    /// Sends batches until each is stored or refused, or the processor is stopped.
    fn deliver(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        mut pending: Vec<Pending>,
    ) -> Result<Next, ProcessorError> {
        let stops = || context.is_stopping();
        let mut pause = RETRY_FIRST;
        while !pending.is_empty() {
            let mut batches = Vec::with_capacity(pending.len());
            for batch in &pending {
                batches.push(self.build(session, batch)?);
            }
            let wait = self.request_timeout.min(self.timeout);
            let outcomes = self.cluster.produce(self.acks, wait, &batches, &stops);
            drop(batches);
            let mut left = Vec::new();
            let mut is_unsequenced = false;
            let mut trouble = None;
            for (batch, outcome) in pending.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Stored => {
                        self.advance(&batch);
                        self.state().stored.extend(&batch.doubt.runs);
                        session.transfer_all(batch.flow_files, SUCCESS);
                    }
                    Outcome::Refused(reason) => {
                        let Doubt {
                            topic, partition, ..
                        } = &batch.doubt;
                        let count = batch.flow_files.len();
                        context.post(
                            Level::Error,
                            &format!("{topic}-{partition} refused {count} records: {reason}"),
                        );
                        session.transfer_all(batch.flow_files, FAILURE);
                    }
                    Outcome::Unsequenced(reason) => {
                        is_unsequenced = true;
                        trouble = Some(reason);
                        left.push(batch);
                    }
                    Outcome::Retry(reason) => {
                        trouble = Some(reason);
                        left.push(batch);
                    }
                }
            }
            pending = left;
            if pending.is_empty() {
                break;
            }
            let reason = trouble.unwrap_or_default();
            if is_unsequenced {
                context.post(
                    Level::Warning,
                    &format!(
                        "the broker lost this producer's sequence ({reason}); a new producer \
                              sends the batch again, so its records may be there twice"
                    ),
                );
                self.state().producer = None;
                self.record(context, session, &mut pending)?;
                continue;
            }
            context.post(
                Level::Warning,
                &format!("not sent yet, trying again: {reason}"),
            );
            if !context.sleep(pause) {
                // Stopped: what is left stays in doubt, on record, and in its queue.
                return Err(ProcessorError::Failed(
                    "stopped while a batch was in doubt".to_owned(),
                ));
            }
            pause = (pause * 2).min(RETRY_MAX);
            for batch in &pending {
                self.cluster.forget(&batch.doubt.topic);
            }
        }
        if self.acks != 0 {
            let state = self.state();
            state.doubt.clear();
            state.stored.clear();
            let bytes = to_bytes(state);
            session.set_state(bytes)?;
        }
        session.commit_lazily()?;
        Ok(Next::Scheduled)
    }

    fn build(
        &mut self,
        session: &ProcessSession<'_>,
        batch: &Pending,
    ) -> Result<Sent, ProcessorError> {
        let bytes: u64 = batch
            .flow_files
            .iter()
            .map(|f| f.size() + RECORD_OVERHEAD)
            .sum();
        let base = batch.flow_files.first().map_or(0, |first| first.entry().0);
        let mut builder = BatchBuilder::new(base, usize::try_from(bytes).unwrap_or(0));
        for (index, flow_file) in batch.flow_files.iter().enumerate() {
            let key = batch.keys.as_ref().map(|keys| keys[index].as_bytes());
            let value = session.read(flow_file)?;
            let headers = self.headers_of(flow_file);
            builder.push(flow_file.entry().0, key, Some(&value), &headers);
        }
        let (id, epoch) = match self.acks {
            0 => (-1, -1),
            _ => self.state().producer.unwrap_or((-1, -1)),
        };
        let sequence = if id < 0 {
            -1
        } else {
            batch.doubt.first_sequence
        };
        let batch_of_all = builder.finish(id, epoch, sequence, self.codec);
        Ok(Sent {
            topic: batch.doubt.topic.clone(),
            partition: batch.doubt.partition,
            batch: batch_of_all.map_err(|error| {
                ProcessorError::Failed(format!("the records cannot be packed: {error}"))
            })?,
        })
    }

    /// The attributes that go along; the same at each try, as they are on record.
    fn headers_of(&self, flow_file: &FlowFile) -> Vec<(String, Bytes)> {
        let Some(wanted) = &self.headers else {
            return Vec::new();
        };
        let attributes = flow_file.attributes().iter();
        attributes
            .filter(|(name, _)| wanted.is_match(name))
            .map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value.as_bytes())))
            .collect()
    }

    fn advance(&mut self, batch: &Pending) {
        let Doubt {
            topic,
            partition,
            first_sequence,
            ..
        } = &batch.doubt;
        // Sequences wrap from the largest to zero.
        let next = (i64::from(*first_sequence) + batch.flow_files.len() as i64) % (1 << 31);
        let next = i32::try_from(next).unwrap_or(0);
        self.state()
            .next
            .entry(topic.clone())
            .or_default()
            .insert(*partition, next);
    }
}

impl Processor for PublishKafka {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        self.load(session)?;
        if !self.state().doubt.is_empty() {
            let whole = self.state().producer;
            let mut pending = self.doubtful(context, session)?;
            if self.state().producer.is_none() || whole.is_none() {
                self.record(context, session, &mut pending)?;
            }
            return self.deliver(context, session, pending);
        }
        let mut pending = self.gather(context, session)?;
        if pending.is_empty() {
            return Ok(Next::Scheduled);
        }
        self.record(context, session, &mut pending)?;
        self.deliver(context, session, pending)
    }
}

fn unreachable_broker(error: KafkaError) -> ProcessorError {
    ProcessorError::Failed(error.to_string())
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// Bytes that a record takes beside its value, roughly.
const RECORD_OVERHEAD: u64 = 16;

/// First pause before a batch is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest pause before a batch is tried again.
const RETRY_MAX: Duration = Duration::from_secs(5);
