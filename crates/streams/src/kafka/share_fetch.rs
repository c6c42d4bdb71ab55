//! ShareFetch and ShareAcknowledge (KIP-932): members acquire records, and say what became of them.
//!
//! What a request acknowledges counts before what it fetches, in the order of the requests on the
//! connection, and is on the disk before it is answered. A fetch is answered when it has acquired
//! something, when something is wrong with a partition, when its time is over or when the listener
//! stops; it waits for new records, for records that others give back and for those that others have
//! held for too long. Nothing is acquired before it is answered.
//!
//! Answers hold whole batches, as fetches do, and say which of their records are the member's. The
//! codec knows the first version of both APIs only: what the second has more is read here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use access::Operation;
use base::UnixMillis;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ShareAcknowledgeRequest, ShareFetchRequest};
use kafka_protocol::protocol::Decodable;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::streams_error_code;
use super::group_admin::NOT_ALLOWED;
use super::limits::{FETCH_BATCHES_MAX, FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use super::reply::{Answer, Call, Ending, Reply};
use super::share_sessions::{Asked, FINAL_EPOCH, INITIAL_EPOCH, Opened, Refusal};
use super::unsent::pieces_of;
use super::writer::Writer;
use crate::group_config::ShareTerms;
use crate::partition::Watch;
use crate::share::{AcknowledgeError, Acknowledgement, Acquired, Fate, ShareWatch, joined};
use crate::store::{CHANGE_ROOM_BYTES, DurableWait, ShareRoom, Taken};
use crate::tenants::only as only_of;
use crate::{BatchRecords, Partition, Signal, StreamsError};

/// Takes acknowledgements, then acquires records.
pub(super) fn fetch(call: Call) -> Result<Reply, Ending> {
    let (more, body) = fetch_as_first(call.version, &call.body)?;
    let request: ShareFetchRequest = decoded(&call, body, "ShareFetch")?;
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            let batches = partition.acknowledgement_batches.into_iter();
            let batches = batches.map(|b| (b.first_offset, b.last_offset, b.acknowledge_types));
            (partition.partition_index, batches.collect())
        });
        (topic.topic_id, partitions.collect())
    });
    let topics: Vec<Said> = topics.collect();
    let forgotten = request.forgotten_topics_data.iter();
    let forgotten = forgotten.flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.iter().map(move |index| (id, *index))
    });
    let asking = Asking {
        group: request
            .group_id
            .map(|group| group.to_string())
            .unwrap_or_default(),
        member: request
            .member_id
            .map(|member| member.to_string())
            .unwrap_or_default(),
        epoch: request.share_session_epoch,
        topics,
        forgotten: forgotten.collect(),
        is_fetch: true,
        may_renew: more.is_renewal,
    };
    let begun = match Begun::of(&call, asking) {
        Ok(begun) => begun,
        Err(refused) => return Ok(Reply::Now(refused_fetch(&call, refused))),
    };
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let fetching = Fetching {
        begun,
        records_max: i64::from(request.max_records),
        whole_batches: !more.is_exact,
        max_bytes: max_bytes.min(FETCH_BYTES_MAX).min(call.fetch_bytes_max()),
        // Whoever only needs longer for what it has wants no more meanwhile.
        until: match more.is_renewal || request.min_bytes <= 0 {
            true => Instant::now(),
            false => Instant::now() + wait.min(FETCH_WAIT_MAX),
        },
        takes: !more.is_renewal,
        call,
    };
    Ok(Reply::HeldBack(Box::pin(async move {
        let fetching = fetching.acknowledged().await;
        Reply::later(async move { Ok(fetching.answer().await) })
    })))
}

/// Takes acknowledgements alone.
pub(super) fn acknowledge(call: Call) -> Result<Reply, Ending> {
    let (more, body) = acknowledge_as_first(call.version, &call.body)?;
    let request: ShareAcknowledgeRequest = decoded(&call, body, "ShareAcknowledge")?;
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            let batches = partition.acknowledgement_batches.into_iter();
            let batches = batches.map(|b| (b.first_offset, b.last_offset, b.acknowledge_types));
            (partition.partition_index, batches.collect())
        });
        (topic.topic_id, partitions.collect())
    });
    let asking = Asking {
        group: request
            .group_id
            .map(|group| group.to_string())
            .unwrap_or_default(),
        member: request
            .member_id
            .map(|member| member.to_string())
            .unwrap_or_default(),
        epoch: request.share_session_epoch,
        topics: topics.collect(),
        forgotten: Vec::new(),
        is_fetch: false,
        may_renew: more.is_renewal,
    };
    let mut begun = match Begun::of(&call, asking) {
        Ok(begun) => begun,
        Err(refused) => return Ok(Reply::Now(acknowledged(&call, refused, 0, &[]))),
    };
    Ok(Reply::HeldBack(Box::pin(async move {
        begun.acknowledge(&call).await;
        Reply::later(async move {
            begun.settle().await;
            let lock = lock_ms(&begun.terms);
            Ok(acknowledged(&call, Refused::NONE, lock, &begun.said))
        })
    })))
}

/// What a request says of a topic: partitions with first offset, last offset and fates.
type Said = (Uuid, Vec<(i32, Vec<(i64, i64, Vec<i8>)>)>);

/// The parts that both requests have.
struct Asking {
    group: String,
    member: String,
    epoch: i32,
    topics: Vec<Said>,
    forgotten: Vec<(Uuid, i32)>,
    is_fetch: bool,
    may_renew: bool,
}

/// Why a request is refused as a whole.
#[derive(Clone, Copy)]
struct Refused {
    code: i16,
    reason: Option<&'static str>,
}

/// A request whose session goes on.
struct Begun {
    group: String,
    opened: Opened,
    terms: ShareTerms,
    is_last: bool,
    /// What is acknowledged, and what came of it.
    said: Vec<OfPartition>,
}

/// What is acknowledged of a partition.
struct OfPartition {
    topic: Uuid,
    index: i32,
    found: Result<Arc<Partition>, i16>,
    /// None when what was said makes no sense.
    said: Option<Vec<Acknowledgement>>,
    outcome: Result<DurableWait, i16>,
    code: i16,
}

/// A fetch that has begun.
struct Fetching {
    call: Call,
    begun: Begun,
    records_max: i64,
    whole_batches: bool,
    max_bytes: usize,
    until: Instant,
    /// Whether it acquires anything.
    takes: bool,
}

/// A partition to acquire records of.
struct Target {
    topic: Uuid,
    index: i32,
    found: Result<Arc<Partition>, i16>,
}

/// What a partition's part of an answer says.
#[derive(Default)]
struct Read {
    code: i16,
    taken: Taken,
    /// What is shown in the place of the batches.
    shown: Option<Vec<Bytes>>,
}

impl Refused {
    const NONE: Refused = Refused {
        code: 0,
        reason: None,
    };

    fn of(code: ResponseError, reason: &'static str) -> Self {
        Refused {
            code: code.code(),
            reason: Some(reason),
        }
    }
}

impl Begun {
    /// Checks a request and has its session go on.
    fn of(call: &Call, asking: Asking) -> Result<Self, Refused> {
        if asking.group.is_empty() || asking.member.is_empty() {
            let reason = "a member of a share group has an id and a group";
            return Err(Refused::of(ResponseError::InvalidRequest, reason));
        }
        if !call.may_group(Operation::Read, &asking.group) {
            return Err(Refused {
                code: NOT_ALLOWED,
                reason: None,
            });
        }
        let mut partitions = asking.topics.iter().flat_map(|(_, partitions)| partitions);
        let is_first = asking.epoch == INITIAL_EPOCH;
        if is_first && partitions.any(|(_, batches)| !batches.is_empty()) {
            let reason = "a session that begins has nothing to acknowledge";
            return Err(Refused::of(ResponseError::InvalidRequest, reason));
        }
        if is_first && !asking.is_fetch {
            let reason = "a session begins with a fetch";
            return Err(Refused::of(ResponseError::InvalidShareSessionEpoch, reason));
        }
        let streams = call.context.streams();
        let added = asking.topics.iter().flat_map(|(id, partitions)| {
            let id = *id;
            partitions.iter().map(move |(index, _)| (id, *index))
        });
        let asked = Asked {
            group: &asking.group,
            member: &asking.member,
            epoch: asking.epoch,
            added: match asking.is_fetch {
                true => added.collect(),
                false => Vec::new(),
            },
            forgotten: asking.forgotten,
        };
        let opened = call.context.share_sessions.lock().open(streams, asked);
        let opened = opened.map_err(|refusal| match refusal {
            Refusal::Unknown => {
                let reason = "the connection has no such share session";
                Refused::of(ResponseError::ShareSessionNotFound, reason)
            }
            Refusal::Epoch => {
                let reason = "the share session is at another epoch";
                Refused::of(ResponseError::InvalidShareSessionEpoch, reason)
            }
            Refusal::Limit => {
                let reason = "the connection has too many share sessions, or partitions in one";
                Refused::of(ResponseError::ShareSessionLimitReached, reason)
            }
        })?;
        let terms = streams.share_terms(&asking.group);
        let may_renew = asking.may_renew && terms.may_renew;
        let mut said = Vec::new();
        for (topic, partitions) in asking.topics {
            for (index, batches) in partitions {
                // A fetch names partitions of which it acknowledges nothing.
                if batches.is_empty() && asking.is_fetch {
                    continue;
                }
                said.push(OfPartition {
                    topic,
                    index,
                    found: find(call, topic, index),
                    said: acknowledgements(batches, may_renew),
                    outcome: Ok(DurableWait::over()),
                    code: 0,
                });
            }
        }
        Ok(Begun {
            group: asking.group,
            opened,
            terms,
            is_last: asking.epoch == FINAL_EPOCH,
            said,
        })
    }

    /// Has what is acknowledged take effect.
    async fn acknowledge(&mut self, call: &Call) {
        let streams = call.context.streams();
        for of in &mut self.said {
            of.outcome = match (&of.found, &of.said) {
                (Err(code), _) => Err(*code),
                (_, None) => Err(ResponseError::InvalidRequest.code()),
                (Ok(partition), Some(said)) => loop {
                    let member = &self.opened.member;
                    match streams.share_acknowledge(&self.group, partition, member, said) {
                        Err(AcknowledgeError::Store(StreamsError::Busy)) => {
                            streams.room(CHANGE_ROOM_BYTES).await;
                        }
                        outcome => break outcome.map_err(|error| code_of(&error)),
                    }
                },
            };
        }
        if self.is_last {
            let mut sessions = call.context.share_sessions.lock();
            sessions.end(&self.group, &self.opened.member);
        }
    }

    /// Waits until what was acknowledged is on the disk.
    async fn settle(&mut self) {
        for of in &mut self.said {
            let outcome = std::mem::replace(&mut of.outcome, Err(0));
            of.code = match outcome {
                Ok(wait) => wait
                    .await
                    .err()
                    .map_or(0, |error| streams_error_code(&error)),
                Err(code) => code,
            };
        }
    }
}

impl Fetching {
    async fn acknowledged(mut self) -> Self {
        self.begun.acknowledge(&self.call).await;
        self
    }

    async fn answer(mut self) -> Answer {
        let reads = self.take().await;
        self.begun.settle().await;
        let lock = lock_ms(&self.begun.terms);
        encode(&self.call, lock, &self.begun.said, &reads)
    }

    /// Acquires something, as soon as there is something.
    async fn take(&self) -> Vec<(Target, Read)> {
        if !self.takes || self.begun.is_last {
            return Vec::new();
        }
        let mut reads = self.try_take();
        let shared = &self.call.context.shared;
        if !reads.is_empty() || Instant::now() >= self.until {
            return reads;
        }
        shared.telemetry().fetch_waits.increment(1);
        let waiting = shared.telemetry().fetches_waiting.hold();
        let signal = Arc::new(Signal::new());
        let mut watches = None;
        loop {
            if watches.is_none() {
                match self.watch(&signal) {
                    Ok(made) => watches = Some(made),
                    // A partition is gone or has too many waiters: the answer tells.
                    Err(_) => return self.try_take(),
                }
            }
            signal.clear();
            reads = self.try_take();
            if !reads.is_empty() {
                break;
            }
            let until = self.next_look().min(self.until);
            tokio::select! {
                () = signal.told() => {}
                () = tokio::time::sleep_until(until) => {}
                () = shared.shutdown.cancelled() => break,
            }
            if Instant::now() >= self.until {
                reads = self.try_take();
                break;
            }
        }
        drop(waiting);
        reads
    }

    /// Watches all partitions for records that come, or come back.
    fn watch(
        &self,
        signal: &Arc<Signal>,
    ) -> Result<Vec<(Watch, Option<ShareWatch>)>, StreamsError> {
        let streams = self.call.context.streams();
        let mut watches = Vec::new();
        for partition in self.partitions() {
            let shared = streams.share_partition(&self.begun.group, &partition, &self.begun.terms);
            let shared = shared.ok().flatten().map(|shared| shared.watch(signal));
            watches.push((partition.watch(signal)?, shared));
        }
        Ok(watches)
    }

    /// When somebody will have held a record for too long.
    fn next_look(&self) -> Instant {
        let streams = self.call.context.streams();
        let deadlines = self.partitions().filter_map(|partition| {
            let shared = streams.share_partition(&self.begun.group, &partition, &self.begun.terms);
            streams.share_deadline(&*shared.ok()??)
        });
        let next = deadlines.min();
        let now = streams.clock().now();
        let wait = next.map_or(FETCH_WAIT_MAX, |at: UnixMillis| at.since(now));
        // A clock that stands still is not asked again and again.
        Instant::now() + wait.max(Duration::from_millis(1))
    }

    fn partitions(&self) -> impl Iterator<Item = Arc<Partition>> + '_ {
        let all = self.begun.opened.partitions.iter();
        all.filter_map(|(topic, index)| find(&self.call, *topic, *index).ok())
    }

    /// Acquires what is there. What has neither records nor errors is left out.
    fn try_take(&self) -> Vec<(Target, Read)> {
        let mut left = ShareRoom {
            records: self.records_max,
            bytes: self.max_bytes,
            batches: FETCH_BATCHES_MAX,
            at_least_one: true,
            whole_batches: self.whole_batches,
        };
        let mut reads = Vec::new();
        for (topic, index) in &self.begun.opened.partitions {
            if left.records <= 0 || left.batches == 0 || left.bytes == 0 && !left.at_least_one {
                break;
            }
            let target = Target {
                topic: *topic,
                index: *index,
                found: find(&self.call, *topic, *index),
            };
            let read = match &target.found {
                Err(code) => Read {
                    code: *code,
                    ..Read::default()
                },
                Ok(partition) => match self.read(partition, left) {
                    // It is looked at again: by this fetch, or the next.
                    Err(StreamsError::Busy) => continue,
                    Err(error) => Read {
                        code: streams_error_code(&error),
                        ..Read::default()
                    },
                    Ok(read) => read,
                },
            };
            if read.code == 0 && read.taken.acquired.is_empty() {
                continue;
            }
            let acquired = read.taken.acquired.iter();
            left.records -= acquired.map(|run| run.last - run.first + 1).sum::<i64>();
            left.bytes = left.bytes.saturating_sub(read.bytes());
            left.batches = left.batches.saturating_sub(read.taken.batches.len());
            left.at_least_one &= read.taken.batches.is_empty();
            reads.push((target, read));
        }
        reads
    }

    fn read(&self, partition: &Arc<Partition>, room: ShareRoom) -> Result<Read, StreamsError> {
        let streams = self.call.context.streams();
        let Begun {
            group,
            opened,
            terms,
            ..
        } = &self.begun;
        let Some(shared) = streams.share_partition(group, partition, terms)? else {
            return Ok(Read::default());
        };
        let take = || streams.share_acquire(&shared, partition, (&opened.member, terms), room);
        let mut taken = take()?;
        let mut shown = None;
        if let Some(only) = self.call.only_of(partition.topic()) {
            // What it is not to see, it is not to have: on to what it may.
            for _ in 0..SIFTED_MAX {
                if taken.acquired.is_empty() {
                    break;
                }
                let stored = taken.batches.iter().map(|batch| partition.fetch(*batch));
                let own = only_of(&only, stored.collect::<Result<Vec<Bytes>, _>>()?)?;
                let others = without(&mut taken.acquired, &own)?;
                streams.share_pass(&shared, &opened.member, &others);
                if !taken.acquired.is_empty() {
                    shown = Some(own);
                    break;
                }
                taken = take()?;
            }
        }
        let read = Read {
            code: 0,
            taken,
            shown,
        };
        let (bytes, telemetry) = (read.bytes(), self.call.context.shared.telemetry());
        if bytes > 0 {
            telemetry.fetched_bytes.increment(bytes as u64);
            partition.note_fetched(bytes);
        }
        Ok(read)
    }
}

impl Read {
    fn bytes(&self) -> usize {
        match &self.shown {
            Some(shown) => shown.iter().map(Bytes::len).sum(),
            None => {
                let batches = self.taken.batches.iter();
                batches.map(|batch| batch.bytes as usize).sum()
            }
        }
    }
}

/// What the second version of a request has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    /// No record is to be taken beyond the number that was asked for, whatever batches they lie in.
    is_exact: bool,
    /// Some records are to be held for longer.
    is_renewal: bool,
}

/// Takes what the second version of a fetch has more out of one, which is one of the first then.
pub(super) fn fetch_as_first(version: i16, body: &Bytes) -> Result<(More, Bytes), Ending> {
    let (more, body) = as_first(version, body, FETCH_NUMBERS, 2)?;
    let more = More {
        is_exact: more.first() == Some(&RECORD_LIMIT),
        is_renewal: more.get(1).is_some_and(|flag| *flag != 0),
    };
    Ok((more, body))
}

/// As [`fetch_as_first`] of acknowledgements.
pub(super) fn acknowledge_as_first(version: i16, body: &Bytes) -> Result<(More, Bytes), Ending> {
    let (more, body) = as_first(version, body, ACKNOWLEDGE_NUMBERS, 1)?;
    let more = More {
        is_exact: false,
        is_renewal: more.first().is_some_and(|flag| *flag != 0),
    };
    Ok((more, body))
}

/// Takes `count` bytes out of a body that lie behind the group, the member and so many bytes of
/// numbers. The guard has walked it: all of this is there.
fn as_first(
    version: i16,
    body: &Bytes,
    numbers: usize,
    count: usize,
) -> Result<(Bytes, Bytes), Ending> {
    if version < 2 {
        return Ok((Bytes::new(), body.clone()));
    }
    let mut rest = body.clone();
    for _ in 0..2 {
        let bytes = varint(&mut rest).saturating_sub(1);
        rest.advance(bytes.min(rest.len()));
    }
    rest.advance(numbers.min(rest.len()));
    let at = body.len() - rest.len();
    if rest.len() < count {
        return Err(Ending::Undecodable {
            api: "a share group's",
            reason: "it is cut off".to_owned(),
        });
    }
    let mut first = BytesMut::with_capacity(body.len() - count);
    first.put_slice(&body[..at]);
    first.put_slice(&rest[count..]);
    Ok((rest.split_to(count), first.freeze()))
}

/// Decodes a request of the first version.
fn decoded<T: Decodable>(call: &Call, body: Bytes, api: &'static str) -> Result<T, Ending> {
    let first = Call {
        body,
        ..call.clone()
    };
    first.decode_in(1, api)
}

/// An unsigned number of variable length.
fn varint(from: &mut Bytes) -> usize {
    let (mut value, mut shift) = (0, 0);
    while from.has_remaining() && shift < 32 {
        let byte = from.get_u8();
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    value
}

/// Takes out of what was acquired the records that are not among these batches; answers those, first
/// and last offset.
fn without(
    acquired: &mut Vec<Acquired>,
    batches: &[Bytes],
) -> Result<Vec<(i64, i64)>, StreamsError> {
    let mut own = BTreeSet::new();
    for batch in batches {
        for record in BatchRecords::of(batch)? {
            own.insert(record?.offset);
        }
    }
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    for run in acquired.drain(..) {
        let mut from = run.first;
        for offset in own.range(run.first..=run.last) {
            if from < *offset {
                others.push((from, offset - 1));
            }
            from = offset + 1;
            kept.push(Acquired {
                first: *offset,
                last: *offset,
                ..run
            });
        }
        if from <= run.last {
            others.push((from, run.last));
        }
    }
    *acquired = joined(kept);
    Ok(others)
}

/// What is said of a partition's records; none when it makes no sense.
fn acknowledgements(
    batches: Vec<(i64, i64, Vec<i8>)>,
    may_renew: bool,
) -> Option<Vec<Acknowledgement>> {
    let mut all = Vec::with_capacity(batches.len());
    let mut from = 0;
    for (first, last, codes) in batches {
        let fates: Option<Vec<Fate>> = codes.into_iter().map(Fate::of_code).collect();
        let said = Acknowledgement {
            first,
            last,
            fates: fates?,
        };
        let renews = said.fates.contains(&Fate::Renew);
        if !said.is_whole() || first < from || renews && !may_renew {
            return None;
        }
        from = last.saturating_add(1);
        all.push(said);
    }
    Some(all)
}

/// The partition, or the code that says why there is none.
fn find(call: &Call, topic: Uuid, index: i32) -> Result<Arc<Partition>, i16> {
    let found = call.context.streams().topic_by_id(topic);
    let found = found.ok_or(ResponseError::UnknownTopicId.code())?;
    if !call.may_topic(Operation::Read, found.name()) {
        let name = found.name().wire_name();
        call.context.note_foreign_topic(Operation::Read, name);
        return Err(ResponseError::TopicAuthorizationFailed.code());
    }
    let partition = found.partition(index).cloned();
    partition.ok_or(ResponseError::UnknownTopicOrPartition.code())
}

fn code_of(error: &AcknowledgeError) -> i16 {
    match error {
        AcknowledgeError::NotAcquired => ResponseError::InvalidRecordState.code(),
        AcknowledgeError::Gone => ResponseError::UnknownTopicOrPartition.code(),
        AcknowledgeError::Store(error) => streams_error_code(error),
    }
}

fn lock_ms(terms: &ShareTerms) -> i32 {
    i32::try_from(terms.lock.as_millis()).unwrap_or(i32::MAX)
}

fn refused_fetch(call: &Call, refused: Refused) -> Answer {
    let mut writer = begin(call, refused);
    writer.head.put_i32(0);
    writer.count(0);
    writer.count(0);
    writer.no_tags();
    writer.finish()
}

/// Encodes the answer to a fetch, versions 1 and 2; source: Kafka's `ShareFetchResponse.json`.
fn encode(call: &Call, lock_ms: i32, said: &[OfPartition], reads: &[(Target, Read)]) -> Answer {
    let nothing = Read::default();
    let mut parts: BTreeMap<(Uuid, i32), (i16, &Read)> = BTreeMap::new();
    for of in said {
        parts.insert((of.topic, of.index), (of.code, &nothing));
    }
    for (target, read) in reads {
        let part = parts.entry((target.topic, target.index));
        part.or_insert((0, &nothing)).1 = read;
    }
    let parts: Vec<((Uuid, i32), (i16, &Read))> = parts.into_iter().collect();
    let mut writer = begin(call, Refused::NONE);
    writer.head.put_i32(lock_ms);
    let topics = || parts.chunk_by(|((a, _), _), ((b, _), _)| a == b);
    writer.count(topics().count());
    for topic in topics() {
        // No chunk is empty.
        writer.head.put_slice(topic[0].0.0.as_bytes());
        writer.count(topic.len());
        for ((_, index), (acknowledged, read)) in topic {
            writer.head.put_i32(*index);
            writer.head.put_i16(read.code);
            writer.optional_text(None);
            writer.head.put_i16(*acknowledged);
            writer.optional_text(None);
            leader(&mut writer);
            let pieces = pieces_of(&read.taken.batches, read.shown.as_deref());
            writer.records(read.bytes(), pieces);
            writer.count(read.taken.acquired.len());
            for run in &read.taken.acquired {
                writer.head.put_i64(run.first);
                writer.head.put_i64(run.last);
                writer.head.put_u16(run.deliveries);
                writer.no_tags();
            }
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.count(0);
    writer.no_tags();
    writer.finish()
}

/// Encodes the answer to acknowledgements; source: Kafka's `ShareAcknowledgeResponse.json`.
fn acknowledged(call: &Call, refused: Refused, lock_ms: i32, said: &[OfPartition]) -> Answer {
    let mut writer = begin(call, refused);
    if call.version >= 2 {
        writer.head.put_i32(lock_ms);
    }
    let topics = || said.chunk_by(|a, b| a.topic == b.topic);
    writer.count(topics().count());
    for topic in topics() {
        // No chunk is empty.
        writer.head.put_slice(topic[0].topic.as_bytes());
        writer.count(topic.len());
        for of in topic {
            writer.head.put_i32(of.index);
            writer.head.put_i16(of.code);
            writer.optional_text(None);
            leader(&mut writer);
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.count(0);
    writer.no_tags();
    writer.finish()
}

/// What both answers begin with.
fn begin(call: &Call, refused: Refused) -> Writer {
    let mut writer = Writer::new(call, true);
    writer.head.put_i32(0); // throttle time
    writer.head.put_i16(refused.code);
    writer.optional_text(refused.reason);
    writer
}

/// The partition's leader, which only who asks the wrong one is told.
fn leader(writer: &mut Writer) {
    writer.head.put_i32(-1);
    writer.head.put_i32(-1);
    writer.no_tags();
}

/// Bytes of the numbers between a request's member and what the second version has more: the epoch,
/// and of a fetch how long it waits and how much it takes.
const ACKNOWLEDGE_NUMBERS: usize = 4;
const FETCH_NUMBERS: usize = 6 * 4;

/// How often one look at a partition reads on when all that it found is other tenants'.
const SIFTED_MAX: usize = 16;

/// A fetch that takes no record more than it says, whatever batches they lie in.
const RECORD_LIMIT: u8 = 1;
