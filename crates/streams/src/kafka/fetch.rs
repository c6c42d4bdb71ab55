//! Fetch: whole batches as they are stored, and the long poll.
//!
//! A fetch is answered when its partitions hold `min_bytes` to read, when one of them is in error,
//! when `max_wait` has passed or when the listener stops. While it waits it is woken by appends
//! only. The answer is encoded here, not by the codec: between its fields it names where batches
//! lie in the journal, and they go to the socket from there (see [`super::unsent`]).

use std::sync::Arc;
use std::time::Duration;

use access::Operation;
use base::TenantId;
use bytes::{BufMut, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{FetchRequest, TopicName as WireName};
use tokio::time::Instant;
use uuid::Uuid;

use super::error::streams_error_code;
use super::limits::{FETCH_BATCHES_MAX, FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use super::metadata::{self, isolation_of};
use super::reply::{Answer, Call, Ending, Reply};
use super::sessions::{Asked, Refusal, Said, TopicKey, Wanted};
use super::standby::Standby;
use super::unsent::{Piece, pieces_of};
use super::writer::Writer;
use crate::index::Located;
use crate::tenants::only as only_of;
use crate::{Isolation, Partition, Topic};

/// Reads record batches.
pub(super) fn fetch(call: Call) -> Result<Reply, Ending> {
    let request: FetchRequest = call.decode("Fetch")?;
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0);
    let max_bytes = max_bytes.min(FETCH_BYTES_MAX).min(call.fetch_bytes_max());
    // No answer can have more, so that none is waited for.
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let min_bytes = min_bytes.min(max_bytes.max(1));
    let isolation = isolation_of(request.isolation_level);
    let epoch = request.session_epoch;
    let until = deadline(&call, wait.min(FETCH_WAIT_MAX));
    let asks_the_same = request.topics.is_empty() && request.forgotten_topics_data.is_empty();
    if asks_the_same && min_bytes > 0 && !wait.is_zero() {
        let rules = call.rules();
        let holds = |standby: &mut Standby| standby.holds(isolation, rules.as_ref());
        let (session_id, by_id) = (request.session_id, call.version >= TOPIC_ID_FROM);
        let mut sessions = call.context.sessions.lock();
        let resumed = sessions.resume(session_id, epoch, by_id, holds);
        drop(sessions);
        if let Some(standby) = resumed {
            let fetching = Fetching {
                isolation,
                min_bytes,
                max_bytes,
                session_id,
                epoch,
                only_news: true,
                targets: Vec::new(),
                call,
            };
            return Reply::later(async move { Ok(fetching.resume(until, standby).await) });
        }
    }
    let opened = call.context.sessions.lock().open(asked(&call, request));
    let opened = match opened {
        Ok(opened) => opened,
        Err(refusal) => {
            let code = match refusal {
                Refusal::Unknown => ResponseError::FetchSessionIdNotFound,
                Refusal::Epoch => ResponseError::InvalidFetchSessionEpoch,
                Refusal::TopicIds => ResponseError::FetchSessionTopicIdError,
            };
            return Ok(Reply::Now(encode(&call, code.code(), 0, &[])));
        }
    };
    let fetching = Fetching {
        isolation,
        min_bytes,
        max_bytes,
        session_id: opened.session_id,
        epoch: epoch.max(0),
        only_news: opened.only_news,
        targets: targets(&call, opened.wanted),
        call,
    };
    if wait.is_zero() || fetching.is_ready() {
        return Ok(Reply::Now(fetching.answer().0));
    }
    Reply::later(async move { Ok(fetching.wait(until, None).await) })
}

/// When a fetch that may wait so long is answered at the latest: up to a sixteenth earlier, so that
/// many who wait are answered together, at the cost of one wake-up.
fn deadline(call: &Call, wait: Duration) -> Instant {
    let began = call.context.shared.began;
    let due = Instant::now() - began + wait;
    let step = (wait / DEADLINE_STEPS).as_millis().checked_ilog2();
    let step = step.map_or(1, |bits| 1_u128 << bits);
    let early = due.as_millis() % step;
    // Below the step, which is below the wait.
    began + due - Duration::from_millis(u64::try_from(early).unwrap_or(0))
}

struct Fetching {
    call: Call,
    isolation: Isolation,
    min_bytes: usize,
    max_bytes: usize,
    session_id: i32,
    /// The epoch of the request in its session.
    epoch: i32,
    /// Partitions that have nothing new are left out of the answer.
    only_news: bool,
    targets: Vec<Target>,
}

struct Target {
    topic: TopicKey,
    index: i32,
    offset: i64,
    max_bytes: usize,
    /// The partition, or the code that says why there is none.
    partition: Result<Arc<Partition>, i16>,
    /// The tenant whose records alone are shown.
    only: Option<TenantId>,
}

/// What a partition's part of an answer says.
#[derive(Default)]
struct Read {
    code: i16,
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
    /// Producer and first offset of aborted transactions among the batches.
    aborted: Vec<(i64, i64)>,
    batches: Vec<Located>,
    /// What is shown in the place of the batches.
    shown: Option<Vec<Bytes>>,
}

impl Fetching {
    /// Whether there is enough to read, or an error to tell.
    fn is_ready(&self) -> bool {
        let mut bytes = 0;
        for target in &self.targets {
            let Ok(partition) = &target.partition else {
                return true;
            };
            let enough = self.min_bytes.saturating_sub(bytes).max(1);
            match partition.readable_bytes(self.isolation, target.offset, enough) {
                // What one partition may contribute is bounded by its own limit, yet a single
                // batch counts whatever its size.
                Ok(readable) => bytes += readable,
                Err(_) => return true,
            }
            if bytes >= self.min_bytes.max(1) {
                return true;
            }
        }
        self.min_bytes == 0
    }

    /// Waits as the request before did, and looks at the partitions only when one has changed.
    async fn resume(mut self, until: Instant, standby: Standby) -> Answer {
        let shared = &self.call.context.shared;
        let waiting = shared.telemetry().fetches_waiting.hold();
        let changed = standby.changed(until, &shared.shutdown).await;
        drop(waiting);
        if changed || standby.is_told() {
            let wanted = self.call.context.sessions.lock().wanted(self.session_id);
            self.targets = targets(&self.call, wanted);
            return self.wait(until, Some(standby)).await;
        }
        shared.telemetry().fetch_waits.increment(1);
        let answer = encode(&self.call, 0, self.session_id, &[]);
        self.keep(standby);
        answer
    }

    async fn wait(self, until: Instant, standby: Option<Standby>) -> Answer {
        let shared = &self.call.context.shared;
        shared.telemetry().fetch_waits.increment(1);
        let partitions = || {
            self.targets
                .iter()
                .filter_map(|t| t.partition.as_ref().ok())
        };
        let standby = match standby.filter(|standby| standby.watches(partitions())) {
            Some(standby) => standby,
            None => match Standby::on(partitions(), self.isolation, self.call.rules()) {
                Ok(standby) => standby,
                // A partition is gone or has too many waiters: the answer tells.
                Err(_) => return self.answer().0,
            },
        };
        let waiting = shared.telemetry().fetches_waiting.hold();
        loop {
            // Something may have arrived before the watches stood, or since.
            standby.clear();
            if self.is_ready() || !standby.changed(until, &shared.shutdown).await {
                break;
            }
        }
        drop(waiting);
        let (answer, is_empty) = self.answer();
        if is_empty {
            self.keep(standby);
        }
        answer
    }

    /// Has the session keep what was watched for its next request.
    fn keep(&self, standby: Standby) {
        if self.session_id != 0 {
            let mut sessions = self.call.context.sessions.lock();
            sessions.stand_by(self.session_id, self.epoch, standby);
        }
    }

    /// Reads the partitions in the order asked. The first batch comes whatever its size, so that
    /// no client stalls before a large one. Answers also whether there were neither records nor
    /// errors.
    fn answer(&self) -> (Answer, bool) {
        let mut left = Left {
            bytes: self.max_bytes,
            batches: FETCH_BATCHES_MAX,
            is_first: true,
        };
        let mut reads = Vec::with_capacity(self.targets.len());
        let telemetry = self.call.context.shared.telemetry();
        for target in &self.targets {
            let read = target.read(self.isolation, &left);
            let bytes = read.bytes();
            if let (Ok(partition), true) = (&target.partition, bytes > 0) {
                telemetry.fetched_bytes.increment(bytes as u64);
                partition.note_fetched(bytes);
            }
            telemetry.fetch_errors.note(read.code);
            left.bytes = left.bytes.saturating_sub(bytes);
            left.batches = left.batches.saturating_sub(read.batches.len());
            left.is_first &= read.batches.is_empty();
            reads.push((target, read));
        }
        let is_empty = reads
            .iter()
            .all(|(_, read)| read.code == 0 && read.batches.is_empty());
        if self.session_id != 0 {
            self.leave_out_known(&mut reads);
        }
        let answer = encode(&self.call, 0, self.session_id, &reads);
        (answer, is_empty)
    }

    /// Tells the session what the answer says, and leaves out what the client knows from there.
    fn leave_out_known(&self, reads: &mut Vec<(&Target, Read)>) {
        let mut sessions = self.call.context.sessions.lock();
        reads.retain(|(target, read)| {
            let said = Said {
                is_error: read.code != 0,
                has_records: !read.batches.is_empty(),
                high_watermark: read.high_watermark,
                log_start_offset: read.log_start_offset,
            };
            let is_news = sessions.tell(self.session_id, &target.topic, target.index, said);
            is_news || !self.only_news
        });
    }
}

/// What the partitions before have left of an answer.
struct Left {
    bytes: usize,
    batches: usize,
    is_first: bool,
}

impl Target {
    fn read(&self, isolation: Isolation, left: &Left) -> Read {
        let partition = match &self.partition {
            Ok(partition) => partition,
            Err(code) => return Read::refused(*code),
        };
        let max_bytes = self.max_bytes.min(left.bytes);
        let batches = if (max_bytes == 0 && !left.is_first) || left.batches == 0 {
            // No room is left, yet an offset out of range is told.
            let readable = partition.readable_bytes(isolation, self.offset, 1);
            readable.map(|_| Vec::new())
        } else {
            let batches = left.batches;
            partition.find(isolation, self.offset, max_bytes, batches, left.is_first)
        };
        let shown = |batches: &[Located]| {
            let only = self.only.as_ref()?;
            let stored: Result<Vec<Bytes>, _> = batches
                .iter()
                .map(|batch| partition.fetch(*batch))
                .collect();
            Some(stored.and_then(|stored| only_of(only, stored)))
        };
        let batches = batches.and_then(|batches| match shown(&batches) {
            Some(shown) => Ok((batches, Some(shown?))),
            None => Ok((batches, None)),
        });
        let (batches, shown) = match batches {
            Ok(found) => found,
            Err(error) => return Read::refused(streams_error_code(&error)),
        };
        let aborted = aborted_among(partition, isolation, self.offset, &batches);
        // Only now: what was aborted is forgotten with what is deleted, so that batches found before
        // that would pass for committed ones.
        let log_start_offset = partition.log_start_offset();
        if log_start_offset > self.offset && !batches.is_empty() {
            return Read::refused(ResponseError::OffsetOutOfRange.code());
        }
        Read {
            code: 0,
            shown,
            high_watermark: partition.high_watermark(),
            last_stable_offset: partition.end_offset(Isolation::Committed),
            log_start_offset,
            aborted,
            batches,
        }
    }
}

impl Read {
    fn refused(code: i16) -> Self {
        Read {
            code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            ..Read::default()
        }
    }

    fn bytes(&self) -> usize {
        match &self.shown {
            Some(shown) => shown.iter().map(Bytes::len).sum(),
            None => self.batches.iter().map(|batch| batch.bytes as usize).sum(),
        }
    }

    fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        pieces_of(&self.batches, self.shown.as_deref())
    }
}

/// The aborted transactions that a `read_committed` client has to leave out of these batches.
fn aborted_among(
    partition: &Partition,
    isolation: Isolation,
    from: i64,
    batches: &[Located],
) -> Vec<(i64, i64)> {
    match batches.last() {
        Some(last) if isolation == Isolation::Committed => {
            let end = || partition.end_of(last);
            partition.aborted_transactions_until(from, last.base_offset, end)
        }
        _ => Vec::new(),
    }
}

/// The part of a request that its session takes in.
fn asked(call: &Call, request: FetchRequest) -> Asked {
    let by_id = call.version >= TOPIC_ID_FROM;
    let key = |name: WireName, id: Uuid| {
        if by_id {
            TopicKey::Id(id)
        } else {
            TopicKey::Name(Arc::from(name.as_str()))
        }
    };
    let mut wanted = Vec::new();
    for topic in request.topics {
        let key = key(topic.topic, topic.topic_id);
        wanted.extend(topic.partitions.iter().map(|asked| Wanted {
            topic: key.clone(),
            index: asked.partition,
            offset: asked.fetch_offset,
            max_bytes: asked.partition_max_bytes,
            leader_epoch: asked.current_leader_epoch,
        }));
    }
    let mut forgotten = Vec::new();
    for topic in request.forgotten_topics_data {
        let key = key(topic.topic, topic.topic_id);
        forgotten.extend(topic.partitions.iter().map(|index| (key.clone(), *index)));
    }
    Asked {
        session_id: request.session_id,
        epoch: request.session_epoch,
        by_id,
        wanted,
        forgotten,
    }
}

/// Finds what is wanted. Every request looks again, since topics come and go.
fn targets(call: &Call, wanted: Vec<Wanted>) -> Vec<Target> {
    let mut last: Option<(TopicKey, Result<Arc<Topic>, i16>)> = None;
    let mut targets = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        // Partitions of one topic mostly come together.
        let (_, found) = match last.take() {
            Some((key, found)) if key == wanted.topic => last.insert((key, found)),
            _ => last.insert((wanted.topic.clone(), find(call, &wanted.topic))),
        };
        let partition = match found {
            // The leader epoch is always 0: who knows a later one has seen another store.
            _ if wanted.leader_epoch > 0 => Err(ResponseError::UnknownLeaderEpoch.code()),
            Ok(topic) => topic
                .partition(wanted.index)
                .cloned()
                .ok_or(ResponseError::UnknownTopicOrPartition.code()),
            Err(code) => Err(*code),
        };
        let only = partition.as_ref().ok();
        let only = only.and_then(|partition| call.only_of(partition.topic()));
        targets.push(Target {
            only,
            topic: wanted.topic,
            index: wanted.index,
            offset: wanted.offset,
            max_bytes: usize::try_from(wanted.max_bytes).unwrap_or(0),
            partition,
        });
    }
    targets
}

/// The topic, or the code that says why there is none.
fn find(call: &Call, topic: &TopicKey) -> Result<Arc<Topic>, i16> {
    match topic {
        TopicKey::Id(id) => {
            let found = call.context.streams().topic_by_id(*id);
            let topic = found.ok_or(ResponseError::UnknownTopicId.code())?;
            if !call.may_topic(Operation::Read, topic.name()) {
                call.context
                    .note_foreign_topic(Operation::Read, topic.name().wire_name());
                return Err(ResponseError::TopicAuthorizationFailed.code());
            }
            Ok(topic)
        }
        TopicKey::Name(name) => metadata::find(call, Operation::Read, name),
    }
}

/// Encodes a fetch answer, versions 4 to 18; source: Kafka's `FetchResponse.json`.
fn encode(call: &Call, code: i16, session_id: i32, reads: &[(&Target, Read)]) -> Answer {
    let mut writer = Writer::new(call, call.version >= FLEXIBLE_FROM);
    writer.head.put_i32(0); // throttle time
    if call.version >= 7 {
        writer.head.put_i16(code);
        writer.head.put_i32(session_id);
    }
    let topics = || reads.chunk_by(|(a, _), (b, _)| a.topic == b.topic);
    writer.count(topics().count());
    for topic in topics() {
        match topic.first().map(|(target, _)| &target.topic) {
            Some(TopicKey::Name(name)) => writer.text(name),
            Some(TopicKey::Id(id)) => writer.head.put_slice(id.as_bytes()),
            None => {}
        }
        writer.count(topic.len());
        for (target, read) in topic {
            write_partition(&mut writer, call.version, target.index, read);
        }
        writer.no_tags();
    }
    writer.no_tags();
    writer.finish()
}

fn write_partition(writer: &mut Writer, version: i16, index: i32, read: &Read) {
    writer.head.put_i32(index);
    writer.head.put_i16(read.code);
    writer.head.put_i64(read.high_watermark);
    writer.head.put_i64(read.last_stable_offset);
    if version >= 5 {
        writer.head.put_i64(read.log_start_offset);
    }
    writer.count(read.aborted.len());
    for (producer_id, first_offset) in &read.aborted {
        writer.head.put_i64(*producer_id);
        writer.head.put_i64(*first_offset);
        writer.no_tags();
    }
    if version >= 11 {
        writer.head.put_i32(-1); // preferred read replica
    }
    writer.records(read.bytes(), read.pieces());
    writer.no_tags();
}

/// Steps of a wait that its end is brought forward to.
const DEADLINE_STEPS: u32 = 16;

const FLEXIBLE_FROM: i16 = 12;

/// The first version that names topics by id.
const TOPIC_ID_FROM: i16 = 13;
