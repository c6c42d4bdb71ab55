//! One round: batches that are taken, put on record, sent and settled together.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;

use super::state::{Doubt, Place, ids, next_sequence, runs, to_bytes};
use super::{FAILURE, PublishKafka, SUCCESS, unreachable_broker};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::ExpressionError;
use crate::flowfile::{FlowFile, FlowFileId};
use crate::kafka::{self, BatchBuilder, Outcome, Sent, UnderWay};
use crate::limits::{CONTENT_READ_BYTES_MAX, KAFKA_PARTITIONS_MAX, SESSION_FLOW_FILES_MAX};
use crate::processors::ProcessorError;
use crate::repository::CommitWait;
use crate::session::ProcessSession;

/// Batches that are sent one behind the other, in their order.
#[derive(Default)]
pub(super) struct Round {
    pub(super) pending: Vec<Pending>,
    /// Packed for sending, until they are sent.
    packed: Option<Vec<Sent>>,
    under_way: Option<UnderWay>,
    /// What the broker said to each, until that is judged.
    answers: Option<Vec<Outcome>>,
}

/// A batch and the FlowFiles in it.
pub(super) struct Pending {
    pub(super) doubt: Doubt,
    pub(super) flow_files: Vec<FlowFile>,
    keys: Option<Vec<String>>,
    /// Whether it was sent and what was said to it is not known: it may be stored.
    pub(super) is_tried: bool,
}

/// A record on its way to the disk.
struct Recording {
    wait: CommitWait,
    /// What was in doubt before it.
    before: Vec<Doubt>,
}

impl Round {
    /// Whether it was sent and what is said to it was not judged yet.
    pub(super) fn is_sent(&self) -> bool {
        self.under_way.is_some() || self.answers.is_some()
    }

    /// Whether the broker said that it has all of it.
    pub(super) fn is_stored(&self) -> bool {
        let mut answers = self.answers.iter().flatten();
        self.answers.is_some() && answers.all(|answer| *answer == Outcome::Stored)
    }

    /// Takes what the broker said to each of its batches.
    pub(super) fn judged(&mut self) -> impl Iterator<Item = (Pending, Outcome)> + use<> {
        let batches = std::mem::take(&mut self.pending).into_iter();
        batches.zip(self.answers.take().unwrap_or_default())
    }
}

impl Pending {
    fn new((topic, partition): Place, keys: Option<Vec<String>>) -> Pending {
        Pending {
            doubt: Doubt {
                topic,
                partition,
                first_sequence: 0,
                runs: Vec::new(),
            },
            flow_files: Vec::new(),
            keys,
            is_tried: false,
        }
    }

    /// Where it goes.
    pub(super) fn place(&self) -> Place {
        (self.doubt.topic.clone(), self.doubt.partition)
    }

    /// The sequence of what follows it.
    pub(super) fn next_sequence(&self) -> i32 {
        next_sequence(self.doubt.first_sequence, self.flow_files.len())
    }
}

impl PublishKafka {
    /// The batches that were in doubt when the agent stopped.
    pub(super) fn doubtful(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Round, ProcessorError> {
        let producer = self.state().producer;
        let doubts = self.state().doubt.clone();
        let stored: HashSet<FlowFileId> = ids(&self.state().stored.clone()).collect();
        let done = session.take_these(&stored);
        session.transfer_all(done, SUCCESS);
        let all = doubts.iter().flat_map(|doubt| ids(&doubt.runs));
        let wanted: HashSet<FlowFileId> = all.filter(|id| !stored.contains(id)).collect();
        let found = session.take_these(&wanted);
        let is_whole = found.len() == wanted.len();
        // A batch with such a one was on record once, and was never sent.
        let found = refuse_large(context, session, found);
        let mut found: HashMap<FlowFileId, FlowFile> = found
            .into_iter()
            .map(|flow_file| (flow_file.id(), flow_file))
            .collect();
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
                    is_tried: true,
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
        let mut round = Round {
            pending,
            ..Round::default()
        };
        if self.state().producer.is_none() || producer.is_none() {
            self.record(context, session, &mut round, &mut Round::default())?;
        }
        Ok(round)
    }

    /// Takes a round, packs it and puts it on record behind `before`, which is under way; none
    /// when there is nothing to send.
    pub(super) fn prepare(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        before: &mut Round,
    ) -> Result<Option<Round>, ProcessorError> {
        let mut round = self.gather(context, session, before.pending.is_empty())?;
        if round.pending.is_empty() {
            return Ok(None);
        }
        let recording = self.begin_to_record(context, session, before, &mut round)?;
        // The disk has the record meanwhile.
        match self.pack(session, &round) {
            Ok(packed) => round.packed = Some(packed),
            Err(error) => {
                // It is not sent, so it is in no doubt, whatever the record says.
                if let Some(recording) = recording {
                    self.state().doubt = recording.before;
                }
                return Err(error);
            }
        }
        self.end_recording(recording)?;
        Ok(Some(round))
    }

    /// Sends a round, packed ahead or not.
    pub(super) fn send(&mut self, context: &Context, round: &mut Round) {
        let batches = round.packed.take().unwrap_or_default();
        let stops = || context.is_stopping();
        let wait = self.request_timeout.min(self.timeout);
        let under_way = self
            .cluster
            .begin_produce(self.acks, wait, &batches, &stops);
        round.under_way = Some(under_way);
    }

    /// Waits for what the broker says to a round that was sent.
    pub(super) fn take_answers(&mut self, context: &Context, round: &mut Round) {
        if let Some(under_way) = round.under_way.take() {
            let stops = || context.is_stopping();
            let wait = self.request_timeout.min(self.timeout);
            round.answers = Some(self.cluster.end_produce(under_way, wait, &stops));
        }
    }

    /// Gives up a round that was sent: it stays in doubt.
    pub(super) fn abandon(&mut self, round: Round) {
        if let Some(under_way) = round.under_way {
            self.cluster.abandon(under_way);
        }
    }

    /// Packs a round that is to be sent once more.
    pub(super) fn pack_again(
        &mut self,
        session: &ProcessSession<'_>,
        round: &mut Round,
    ) -> Result<(), ProcessorError> {
        round.packed = Some(self.pack(session, round)?);
        Ok(())
    }

    /// Takes what waits: one batch, and more behind it while more than that waits.
    fn gather(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        lingers: bool,
    ) -> Result<Round, ProcessorError> {
        let mut round = Round::default();
        let flow_files = self.take(context, session, lingers);
        self.sort(context, session, flow_files, &mut round)?;
        let mut taken: u64 = 1;
        while self.has_room(&round, taken) && self.is_plenty(session) {
            let flow_files = self.take(context, session, false);
            if flow_files.is_empty() {
                // What waits is not to be had now: a penalty holds it, say.
                break;
            }
            self.sort(context, session, flow_files, &mut round)?;
            taken += 1;
        }
        Ok(round)
    }

    /// Whether the round takes a further batch of each of its partitions.
    fn has_room(&self, round: &Round, taken: u64) -> bool {
        if self.batch_bytes.saturating_mul(taken + 1) > ROUND_BYTES_MAX {
            return false;
        }
        let mut counts: HashMap<Place, usize> = HashMap::new();
        let mut flow_files = 0;
        for batch in &round.pending {
            flow_files += batch.flow_files.len();
            *counts.entry(batch.place()).or_default() += 1;
        }
        // A producer's first batch in a partition goes alone: before that the broker knows no order.
        flow_files + self.batch <= SESSION_FLOW_FILES_MAX
            && !counts.is_empty()
            && counts
                .iter()
                .all(|(place, count)| *count < ROUND_BATCHES_MAX && self.is_known(place))
    }

    fn take(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        lingers: bool,
    ) -> Vec<FlowFile> {
        let mut flow_files = session.take(self.batch, self.batch_bytes);
        for lingers in [false, lingers && !self.linger.is_zero()] {
            let bytes: u64 = flow_files.iter().map(FlowFile::size).sum();
            if flow_files.len() >= self.batch || bytes >= self.batch_bytes / 2 {
                break;
            }
            if lingers {
                context.sleep(self.linger);
            }
            // What is swapped out comes a batch at a time.
            if session.waiting().0 > 0 {
                let bytes_left = self.batch_bytes - bytes;
                flow_files.extend(session.take(self.batch - flow_files.len(), bytes_left));
            }
        }
        let flow_files = refuse_large(context, session, flow_files);
        if self.fails_empty && flow_files.iter().any(|file| file.size() == 0) {
            let (empty, full) = flow_files.into_iter().partition(|file| file.size() == 0);
            session.transfer_all(empty, FAILURE);
            return full;
        }
        flow_files
    }

    /// Sorts FlowFiles by partition, into batches behind those of the round.
    fn sort(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_files: Vec<FlowFile>,
        round: &mut Round,
    ) -> Result<(), ProcessorError> {
        let pending = &mut round.pending;
        let mut slots: HashMap<(String, i32), usize> = HashMap::new();
        let stops = || context.is_stopping();
        self.turn = self.turn.wrapping_add(1);
        if let Some(topic) = self.topic.as_literal().map(str::to_owned)
            && self.key.is_none()
        {
            if !flow_files.is_empty() {
                let partition = self.partition(&topic, None, &stops)?;
                let mut batch = Pending::new((topic, partition), None);
                batch.flow_files = flow_files;
                pending.push(batch);
            }
            return Ok(());
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
                let keys = self.key.as_ref().map(|_| Vec::new());
                pending.push(Pending::new((topic, partition), keys));
            }
            if let (Some(keys), Some(key)) = (&mut pending[at].keys, key) {
                keys.push(key);
            }
            pending[at].flow_files.push(flow_file);
        }
        Ok(())
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

    /// A producer id, asked for where there is none.
    fn need_producer(&mut self, context: &Context) -> Result<(), ProcessorError> {
        if self.acks != 0 && self.state().producer.is_none() {
            let stops = || context.is_stopping();
            let fresh = self
                .cluster
                .producer_id(&stops)
                .map_err(unreachable_broker)?;
            let state = self.state();
            state.producer = Some(fresh);
            state.next.clear();
        }
        Ok(())
    }

    /// Gives the batches of rounds that follow each other their sequences; one that is under way
    /// gets those that it has.
    fn number(&mut self, rounds: &mut [&mut Round]) {
        let state = self.state();
        let mut next: HashMap<Place, i32> = HashMap::new();
        let batches = rounds.iter_mut().flat_map(|round| round.pending.iter_mut());
        for batch in batches {
            let place = batch.place();
            let known = state.next.get(&place.0);
            let known = known.and_then(|topic| topic.get(&place.1)).copied();
            let first = next.get(&place).copied().or(known).unwrap_or(0);
            batch.doubt.first_sequence = first;
            batch.doubt.runs = runs(&batch.flow_files);
            next.insert(place, batch.next_sequence());
        }
    }

    /// Gives the batches of two rounds, one behind the other, their sequences and puts them on
    /// record.
    pub(super) fn record(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        round: &mut Round,
        behind: &mut Round,
    ) -> Result<(), ProcessorError> {
        let recording = self.begin_to_record(context, session, round, behind)?;
        self.end_recording(recording)
    }

    fn begin_to_record(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        round: &mut Round,
        behind: &mut Round,
    ) -> Result<Option<Recording>, ProcessorError> {
        if self.acks == 0 {
            return Ok(None);
        }
        self.need_producer(context)?;
        self.number(&mut [&mut *round, &mut *behind]);
        let batches = round.pending.iter().chain(&behind.pending);
        let doubt: Vec<Doubt> = batches.map(|batch| batch.doubt.clone()).collect();
        let state = self.state();
        let partitions: usize = state.next.values().map(BTreeMap::len).sum();
        if partitions > KAFKA_PARTITIONS_MAX {
            return Err(ProcessorError::Failed(format!(
                "it writes to more than {KAFKA_PARTITIONS_MAX} partitions"
            )));
        }
        let before = std::mem::replace(&mut state.doubt, doubt);
        let bytes = to_bytes(state);
        match session.begin_to_record_state(bytes) {
            Ok(wait) => Ok(Some(Recording { wait, before })),
            Err(error) => {
                // Not on record, so not to be sent: the FlowFiles are still in their queue.
                self.state().doubt = before;
                Err(error)
            }
        }
    }

    /// Waits until the record is on the disk.
    fn end_recording(&mut self, recording: Option<Recording>) -> Result<(), ProcessorError> {
        let Some(Recording { wait, before }) = recording else {
            return Ok(());
        };
        let recorded = wait.wait();
        if recorded.is_err() {
            self.state().doubt = before;
        }
        Ok(recorded?)
    }

    fn pack(
        &self,
        session: &ProcessSession<'_>,
        round: &Round,
    ) -> Result<Vec<Sent>, ProcessorError> {
        let mut firsts = HashSet::new();
        let batches = round.pending.iter();
        batches
            .map(|batch| {
                let place = batch.place();
                // A broker takes any batch as a producer's first in a partition, also the second.
                let goes = self.acks == 0 || self.is_known(&place) || firsts.insert(place);
                self.pack_batch(session, batch, !goes)
            })
            .collect()
    }

    /// Whether the producer has something in a partition, so that its broker knows its order.
    fn is_known(&self, (topic, partition): &Place) -> bool {
        let next = self.state.as_ref().and_then(|state| state.next.get(topic));
        next.is_some_and(|partitions| partitions.contains_key(partition))
    }

    fn pack_batch(
        &self,
        session: &ProcessSession<'_>,
        batch: &Pending,
        waits: bool,
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
            let headers = self.headers_of(session, flow_file);
            builder.push(flow_file.entry().0, key, Some(&value), &headers);
        }
        let (id, epoch) = match self.acks {
            0 => (-1, -1),
            _ => {
                let state = self.state.as_ref();
                state.and_then(|state| state.producer).unwrap_or((-1, -1))
            }
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
            waits,
        })
    }

    /// The attributes that go along; the same at each try, as they are on record.
    fn headers_of(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Vec<(String, Bytes)> {
        let Some(wanted) = &self.headers else {
            return Vec::new();
        };
        let attributes = session.all_attributes(flow_file);
        let attributes = attributes.iter();
        attributes
            .filter(|(name, _)| wanted.is_match(name))
            .map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value.as_bytes())))
            .collect()
    }
}

/// Sends what no record holds to `failure`, and gives back the others: one that stayed would be the
/// next to be taken for ever.
fn refuse_large(
    context: &Context,
    session: &mut ProcessSession<'_>,
    flow_files: Vec<FlowFile>,
) -> Vec<FlowFile> {
    let is_large = |flow_file: &FlowFile| flow_file.size() > CONTENT_READ_BYTES_MAX;
    if !flow_files.iter().any(is_large) {
        return flow_files;
    }
    let (large, others) = flow_files.into_iter().partition::<Vec<_>, _>(is_large);
    for flow_file in large {
        let bytes = flow_file.size();
        let message = format!(
            "a FlowFile of {bytes} bytes goes to failure: a record holds \
             {CONTENT_READ_BYTES_MAX} bytes at most"
        );
        context.post(Level::Error, &message);
        session.transfer_penalized(flow_file, FAILURE);
    }
    others
}

/// Bytes that a record takes beside its value, roughly.
const RECORD_OVERHEAD: u64 = 16;

/// Batches of one partition in a round: with the round behind it, fewer than the five that brokers
/// know of a producer.
const ROUND_BATCHES_MAX: usize = 2;

/// Content bytes of a round at most, which are packed in memory.
const ROUND_BYTES_MAX: u64 = 4 << 20;
