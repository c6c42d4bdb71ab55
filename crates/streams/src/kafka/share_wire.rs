//! The bytes of ShareFetch and ShareAcknowledge (KIP-932).
//!
//! Answers are written by hand, as those of fetches: between their fields lie batches of the journal.
//! The codec knows the first version of both requests only: what the second has more is taken out here.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ShareAcknowledgeRequest, ShareFetchRequest};
use kafka_protocol::protocol::Decodable;
use uuid::Uuid;

use super::reply::{Answer, Call, Ending};
use super::share_acknowledge::{Asking, OfPartition, Refused, Said};
use super::share_fetch::{Read, Target};
use super::unsent::pieces_of;
use super::writer::Writer;

/// What the second version of a request has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    /// No record is to be taken beyond the number that was asked for, whatever batches they lie in.
    pub(super) is_exact: bool,
    /// Some records are to be held for longer.
    pub(super) is_renewal: bool,
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

/// Reads a fetch: what both requests have, and the rest.
pub(super) fn fetch_request(call: &Call) -> Result<(Asking, ShareFetchRequest, More), Ending> {
    let (more, body) = fetch_as_first(call.version, &call.body)?;
    let mut request: ShareFetchRequest = decoded(call, body, "ShareFetch")?;
    let topics = std::mem::take(&mut request.topics)
        .into_iter()
        .map(|topic| {
            let partitions = topic.partitions.into_iter().map(|partition| {
                let batches = partition.acknowledgement_batches.into_iter();
                let batches = batches.map(|b| (b.first_offset, b.last_offset, b.acknowledge_types));
                (partition.partition_index, batches.collect())
            });
            (topic.topic_id, partitions.collect())
        });
    let topics: Vec<Said> = topics.collect();
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.iter().map(move |index| (id, *index))
    });
    let asking = Asking {
        group: request.group_id.as_ref().map(|group| group.to_string()),
        member: request.member_id.as_ref().map(|member| member.to_string()),
        epoch: request.share_session_epoch,
        topics,
        forgotten: forgotten.collect(),
        is_fetch: true,
        may_renew: more.is_renewal,
    };
    Ok((asking, request, more))
}

/// Reads acknowledgements.
pub(super) fn acknowledge_request(call: &Call) -> Result<Asking, Ending> {
    let (more, body) = acknowledge_as_first(call.version, &call.body)?;
    let request: ShareAcknowledgeRequest = decoded(call, body, "ShareAcknowledge")?;
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            let batches = partition.acknowledgement_batches.into_iter();
            let batches = batches.map(|b| (b.first_offset, b.last_offset, b.acknowledge_types));
            (partition.partition_index, batches.collect())
        });
        (topic.topic_id, partitions.collect())
    });
    Ok(Asking {
        group: request.group_id.map(|group| group.to_string()),
        member: request.member_id.map(|member| member.to_string()),
        epoch: request.share_session_epoch,
        topics: topics.collect(),
        forgotten: Vec::new(),
        is_fetch: false,
        may_renew: more.is_renewal,
    })
}

pub(super) fn refused_fetch(call: &Call, refused: Refused) -> Answer {
    let mut writer = begin(call, refused);
    writer.head.put_i32(0);
    writer.count(0);
    writer.count(0);
    writer.no_tags();
    writer.finish()
}

/// Encodes the answer to a fetch, versions 1 and 2; source: Kafka's `ShareFetchResponse.json`.
pub(super) fn encode(
    call: &Call,
    lock_ms: i32,
    said: &[OfPartition],
    reads: &[(&Target, Read)],
) -> Answer {
    let mut parts: BTreeMap<(Uuid, i32), Part<'_>> = BTreeMap::new();
    for of in said {
        let part = parts.entry((of.topic, of.index)).or_default();
        part.acknowledged = of.code;
    }
    for (target, read) in reads {
        let part = parts.entry((target.topic, target.index)).or_default();
        part.read = Some(read);
    }
    let nothing = Read::default();
    let parts: Vec<_> = parts.into_iter().collect();
    let mut writer = begin(call, Refused::NONE);
    writer.head.put_i32(lock_ms);
    let topics = || parts.chunk_by(|((a, _), _), ((b, _), _)| a == b);
    writer.count(topics().count());
    for topic in topics() {
        // No chunk is empty.
        writer.head.put_slice(topic[0].0.0.as_bytes());
        writer.count(topic.len());
        for ((_, index), part) in topic {
            let read = part.read.unwrap_or(&nothing);
            writer.head.put_i32(*index);
            writer.head.put_i16(read.code);
            writer.optional_text(None);
            writer.head.put_i16(part.acknowledged);
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
pub(super) fn acknowledged(
    call: &Call,
    refused: Refused,
    lock_ms: i32,
    said: &[OfPartition],
) -> Answer {
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

/// A partition's part of an answer: the code of what was acknowledged, and what was acquired.
#[derive(Clone, Copy, Default)]
struct Part<'a> {
    acknowledged: i16,
    read: Option<&'a Read>,
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

/// A fetch that takes no record more than it says, whatever batches they lie in.
const RECORD_LIMIT: u8 = 1;
