//! The bytes of StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071), which the codec does not know.
//!
//! Both have compact lengths and tagged fields in all versions. Source: Kafka's
//! `StreamsGroupHeartbeatRequest.json` and its neighbours, release 4.3.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};

use super::reply::{Answer, Call, Ending};
use super::writer::Writer;
use crate::groups::{
    Endpoint, EndpointShare, GroupNotice, InternalTopic, NoticeKind, StreamsAnswer, StreamsBeat,
    StreamsMemberDescription, Subtopology, TaskOffset, TaskShare, Tasks, Topology,
};

/// What a heartbeat asks for that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// A member with a name that it keeps over restarts.
    StaticMember,
    /// Topics by a regular expression.
    Regex,
    /// Topics of a set that the subtopology does not read.
    Copartitioned,
}

/// Reads a heartbeat.
pub(super) fn heartbeat(call: &Call) -> Result<Result<StreamsBeat, Unserved>, Ending> {
    let (beat, _) = heartbeat_in(&call.body)?;
    Ok(beat.map(|beat| StreamsBeat {
        client_id: call.client_id.to_string(),
        client_host: call.context.client_host.clone(),
        ..beat
    }))
}

/// Reads a heartbeat out of a body; how many bytes are left after it.
pub(super) fn heartbeat_in(body: &Bytes) -> Result<(Result<StreamsBeat, Unserved>, usize), Ending> {
    let mut reader = Reader::of(body, "StreamsGroupHeartbeat");
    let beat = reader.heartbeat()?;
    Ok((beat, reader.rest.len()))
}

/// Reads which groups are to be described, and whether with what the caller may do with them.
pub(super) fn describe(call: &Call) -> Result<(Vec<String>, bool), Ending> {
    let (groups, with_operations, _) = describe_in(&call.body)?;
    Ok((groups, with_operations))
}

/// As [`describe`] out of a body; how many bytes are left after it.
pub(super) fn describe_in(body: &Bytes) -> Result<(Vec<String>, bool, usize), Ending> {
    let mut reader = Reader::of(body, "StreamsGroupDescribe");
    let groups = reader.array(Reader::text)?.unwrap_or_default();
    let with_operations = reader.i8()? != 0;
    reader.tags()?;
    Ok((groups, with_operations, reader.rest.len()))
}

/// Encodes the answer to a heartbeat that was taken.
pub(super) fn answer(call: &Call, member: &str, answer: &StreamsAnswer) -> Answer {
    let mut out = Writer::new(call, true);
    out.head.put_i32(0); // throttle time
    out.head.put_i16(0);
    out.optional_text(None);
    out.text(member);
    out.head.put_i32(answer.epoch);
    let interval = answer.heartbeat_interval.as_millis();
    out.head
        .put_i32(i32::try_from(interval).unwrap_or(i32::MAX));
    out.head.put_i32(ACCEPTABLE_RECOVERY_LAG);
    out.head.put_i32(TASK_OFFSET_INTERVAL_MS);
    match answer.notices.is_empty() {
        true => absent(&mut out),
        false => notices(&mut out, &answer.notices),
    }
    match &answer.share {
        None => (0..3).for_each(|_| absent(&mut out)),
        Some(share) => put_share(&mut out, share),
    }
    out.head.put_i32(answer.endpoints_epoch);
    match &answer.endpoints {
        None => absent(&mut out),
        Some(endpoints) => {
            out.count(endpoints.len());
            endpoints
                .iter()
                .for_each(|of| put_endpoint_share(&mut out, of));
        }
    }
    out.no_tags();
    out.finish()
}

/// Encodes the answer to a heartbeat that was refused.
pub(super) fn refused(call: &Call, code: i16, reason: &str) -> Answer {
    let mut out = Writer::new(call, true);
    out.head.put_i32(0);
    out.head.put_i16(code);
    out.optional_text(Some(reason));
    out.text("");
    (0..4).for_each(|_| out.head.put_i32(0));
    (0..4).for_each(|_| absent(&mut out));
    out.head.put_i32(0);
    absent(&mut out);
    out.no_tags();
    out.finish()
}

/// A group as it is described, or why it is not.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) group: String,
    pub(super) code: i16,
    pub(super) reason: Option<String>,
    pub(super) state: &'static str,
    pub(super) epoch: i32,
    pub(super) assignment_epoch: i32,
    pub(super) topology: Option<Topology>,
    pub(super) members: Vec<StreamsMemberDescription>,
    /// What the caller may do with it, as bits.
    pub(super) operations: i32,
}

/// Encodes groups.
pub(super) fn described(call: &Call, groups: &[Described]) -> Answer {
    let mut out = Writer::new(call, true);
    out.head.put_i32(0); // throttle time
    out.count(groups.len());
    for of in groups {
        out.head.put_i16(of.code);
        out.optional_text(of.reason.as_deref());
        out.text(&of.group);
        out.text(of.state);
        out.head.put_i32(of.epoch);
        out.head.put_i32(of.assignment_epoch);
        match &of.topology {
            Some(topology) => put_topology(&mut out, topology),
            None => out.head.put_i8(-1),
        }
        out.count(of.members.len());
        let members = of.members.iter();
        members.for_each(|member| put_member(&mut out, member));
        out.head.put_i32(of.operations);
        out.no_tags();
    }
    out.no_tags();
    out.finish()
}

fn notices(out: &mut Writer, notices: &[GroupNotice]) {
    out.count(notices.len());
    for notice in notices {
        out.head.put_i8(match notice.kind {
            NoticeKind::StaleTopology => 0,
            NoticeKind::MissingSourceTopics => 1,
            NoticeKind::IncorrectlyPartitionedTopics => 2,
            NoticeKind::MissingInternalTopics => 3,
            NoticeKind::ShutdownApplication => 4,
            NoticeKind::AssignmentDelayed => 5,
        });
        out.text(&notice.detail);
        out.no_tags();
    }
}

/// Tasks that are done and followed; none are ever warmed up.
fn put_share(out: &mut Writer, share: &TaskShare) {
    put_tasks(out, &share.active);
    put_tasks(out, &share.standby);
    put_tasks(out, &Tasks::default());
}

fn put_tasks(out: &mut Writer, tasks: &Tasks) {
    out.count(tasks.by_topic().count());
    for (of, numbers) in tasks.by_topic() {
        out.text(of);
        put_numbers(out, numbers);
        out.no_tags();
    }
}

fn put_numbers(out: &mut Writer, numbers: &BTreeSet<i32>) {
    out.count(numbers.len());
    numbers.iter().for_each(|number| out.head.put_i32(*number));
}

fn put_endpoint(out: &mut Writer, endpoint: &Endpoint) {
    out.text(&endpoint.host);
    out.head.put_u16(endpoint.port);
    out.no_tags();
}

fn put_endpoint_share(out: &mut Writer, share: &EndpointShare) {
    put_endpoint(out, &share.endpoint);
    put_partitions(out, &share.active);
    put_partitions(out, &share.standby);
    out.no_tags();
}

fn put_partitions(out: &mut Writer, topics: &BTreeMap<String, BTreeSet<i32>>) {
    out.count(topics.len());
    for (topic, partitions) in topics {
        out.text(topic);
        put_numbers(out, partitions);
        out.no_tags();
    }
}

fn put_topology(out: &mut Writer, topology: &Topology) {
    out.head.put_i8(1);
    out.head.put_i32(topology.epoch);
    out.count(topology.subtopologies.len());
    for of in &topology.subtopologies {
        out.text(&of.id);
        put_texts(out, &of.sources);
        put_texts(out, &of.repartition_sinks);
        put_internal(out, &of.changelogs);
        put_internal(out, &of.repartition_sources);
        out.no_tags();
    }
    out.no_tags();
}

fn put_texts(out: &mut Writer, texts: &[String]) {
    out.count(texts.len());
    texts.iter().for_each(|text| out.text(text));
}

fn put_internal(out: &mut Writer, topics: &[InternalTopic]) {
    out.count(topics.len());
    for topic in topics {
        out.text(&topic.name);
        out.head.put_i32(topic.partitions);
        out.head.put_i16(topic.replication_factor);
        put_pairs(out, &topic.configs);
        out.no_tags();
    }
}

fn put_pairs(out: &mut Writer, pairs: &[(String, String)]) {
    out.count(pairs.len());
    for (name, value) in pairs {
        out.text(name);
        out.text(value);
        out.no_tags();
    }
}

fn put_member(out: &mut Writer, member: &StreamsMemberDescription) {
    out.text(&member.member_id);
    out.head.put_i32(member.epoch);
    out.optional_text(None);
    out.optional_text(member.rack_id.as_deref());
    out.text(&member.client_id);
    out.text(&member.client_host);
    out.head.put_i32(member.topology_epoch);
    out.text(&member.process_id);
    match &member.endpoint {
        None => out.head.put_i8(-1),
        Some(endpoint) => {
            out.head.put_i8(1);
            put_endpoint(out, endpoint);
        }
    }
    put_pairs(out, &member.tags);
    for offsets in [&member.offsets, &member.end_offsets] {
        out.count(offsets.len());
        for of in offsets {
            out.text(&of.subtopology);
            out.head.put_i32(of.partition);
            out.head.put_i64(of.offset);
            out.no_tags();
        }
    }
    for share in [&member.assigned, &member.target] {
        put_share(out, share);
        out.no_tags();
    }
    // No member of such a group speaks the classic protocol.
    out.head.put_u8(0);
    out.no_tags();
}

/// An array that is not there.
fn absent(out: &mut Writer) {
    out.head.put_u8(0);
}

/// Reads a body that the guard has walked.
struct Reader {
    rest: Bytes,
    api: &'static str,
}

impl Reader {
    fn of(body: &Bytes, api: &'static str) -> Self {
        Reader {
            rest: body.clone(),
            api,
        }
    }

    fn heartbeat(&mut self) -> Result<Result<StreamsBeat, Unserved>, Ending> {
        let group = self.text()?;
        let member_id = self.text()?;
        let epoch = self.i32()?;
        let endpoints_epoch = self.i32()?;
        let is_static = self.optional_text()?.is_some();
        let rack_id = self.optional_text()?;
        let rebalance_timeout = u64::try_from(self.i32()?).ok().map(Duration::from_millis);
        let topology = match self.i8()? < 0 {
            true => Ok(None),
            false => self.topology()?.map(Some),
        };
        let owned = [self.tasks()?, self.tasks()?, self.tasks()?];
        let process_id = self.optional_text()?;
        let endpoint = match self.i8()? < 0 {
            true => None,
            false => Some(self.endpoint()?),
        };
        let tags = self.array(Reader::pair)?;
        let offsets = self.array(Reader::task_offset)?;
        let end_offsets = self.array(Reader::task_offset)?;
        let shuts_down = self.i8()? != 0;
        self.tags()?;
        if is_static {
            return Ok(Err(Unserved::StaticMember));
        }
        Ok(topology.map(|topology| StreamsBeat {
            group,
            member_id,
            epoch,
            endpoints_epoch,
            rack_id,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout,
            topology,
            owned: share_of(owned),
            process_id,
            endpoint,
            tags,
            offsets,
            end_offsets,
            shuts_down,
        }))
    }

    fn topology(&mut self) -> Result<Result<Topology, Unserved>, Ending> {
        let epoch = self.i32()?;
        let parts = self.array(Reader::subtopology)?.unwrap_or_default();
        self.tags()?;
        let parts: Result<Vec<Subtopology>, Unserved> = parts.into_iter().collect();
        Ok(parts.map(|subtopologies| Topology {
            epoch,
            subtopologies,
        }))
    }

    fn subtopology(&mut self) -> Result<Result<Subtopology, Unserved>, Ending> {
        let id = self.text()?;
        let sources = self.array(Reader::text)?.unwrap_or_default();
        let patterns = self.array(Reader::text)?.unwrap_or_default();
        let changelogs = self.array(Reader::internal)?.unwrap_or_default();
        let repartition_sinks = self.array(Reader::text)?.unwrap_or_default();
        let repartition_sources = self.array(Reader::internal)?.unwrap_or_default();
        let sets = self.array(Reader::set)?.unwrap_or_default();
        self.tags()?;
        if !patterns.is_empty() {
            return Ok(Err(Unserved::Regex));
        }
        // A place takes two bytes and may name much: sets share the names.
        let shared = |name: &String| Arc::from(name.as_str());
        let of_sources: Vec<Arc<str>> = sources.iter().map(shared).collect();
        let internal = repartition_sources.iter().map(|topic| &topic.name);
        let of_internal: Vec<Arc<str>> = internal.map(shared).collect();
        let named = |[sources, internal]: [Vec<i16>; 2]| -> Option<BTreeSet<Arc<str>>> {
            let at = |names: &[Arc<str>], place: i16| {
                let place = usize::try_from(place).ok()?;
                names.get(place).cloned()
            };
            let sources = sources.iter().map(|place| at(&of_sources, *place));
            let internal = internal.iter().map(|place| at(&of_internal, *place));
            sources.chain(internal).collect()
        };
        let copartitioned: Option<Vec<BTreeSet<Arc<str>>>> = sets.into_iter().map(named).collect();
        Ok(match copartitioned {
            None => Err(Unserved::Copartitioned),
            Some(copartitioned) => Ok(Subtopology {
                id: Arc::from(id),
                sources,
                repartition_sources,
                repartition_sinks,
                changelogs,
                copartitioned,
            }),
        })
    }

    /// A set of topics by their places among the sources and among the repartition sources.
    fn set(&mut self) -> Result<[Vec<i16>; 2], Ending> {
        let sources = self.array(Reader::i16)?.unwrap_or_default();
        // Those of regular expressions, which are refused.
        self.array(Reader::i16)?;
        let repartition = self.array(Reader::i16)?.unwrap_or_default();
        self.tags()?;
        Ok([sources, repartition])
    }

    fn internal(&mut self) -> Result<InternalTopic, Ending> {
        let topic = InternalTopic {
            name: self.text()?,
            partitions: self.i32()?,
            replication_factor: self.i16()?,
            configs: self.array(Reader::pair)?.unwrap_or_default(),
        };
        self.tags()?;
        Ok(topic)
    }

    fn pair(&mut self) -> Result<(String, String), Ending> {
        let pair = (self.text()?, self.text()?);
        self.tags()?;
        Ok(pair)
    }

    fn endpoint(&mut self) -> Result<Endpoint, Ending> {
        let endpoint = Endpoint {
            host: self.text()?,
            port: u16::from_be_bytes(self.fixed()?),
        };
        self.tags()?;
        Ok(endpoint)
    }

    fn task_offset(&mut self) -> Result<TaskOffset, Ending> {
        let of = TaskOffset {
            subtopology: self.text()?,
            partition: self.i32()?,
            offset: i64::from_be_bytes(self.fixed()?),
        };
        self.tags()?;
        Ok(of)
    }

    fn tasks(&mut self) -> Result<Option<Tasks>, Ending> {
        let each = self.array(|reader| {
            let of: Arc<str> = Arc::from(reader.text()?);
            let numbers = reader.array(Reader::i32)?.unwrap_or_default();
            reader.tags()?;
            Ok(numbers.into_iter().map(move |n| (Arc::clone(&of), n)))
        })?;
        Ok(each.map(|each| each.into_iter().flatten().collect()))
    }

    fn array<T>(
        &mut self,
        element: impl Fn(&mut Reader) -> Result<T, Ending>,
    ) -> Result<Option<Vec<T>>, Ending> {
        let Some(count) = self.varint()?.checked_sub(1) else {
            return Ok(None);
        };
        // Each element takes a byte at least, so this is no more than the request.
        let mut elements = Vec::with_capacity(count.min(self.rest.len()).min(ELEMENTS_AT_ONCE));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    fn text(&mut self) -> Result<String, Ending> {
        Ok(self.optional_text()?.unwrap_or_default())
    }

    fn optional_text(&mut self) -> Result<Option<String>, Ending> {
        let Some(length) = self.varint()?.checked_sub(1) else {
            return Ok(None);
        };
        let bytes = self.take(length)?;
        let text = String::from_utf8(bytes.to_vec());
        text.map(Some)
            .map_err(|_| self.undecodable("a text is not UTF-8"))
    }

    fn i8(&mut self) -> Result<i8, Ending> {
        Ok(i8::from_be_bytes(self.fixed()?))
    }

    fn i16(&mut self) -> Result<i16, Ending> {
        Ok(i16::from_be_bytes(self.fixed()?))
    }

    fn i32(&mut self) -> Result<i32, Ending> {
        Ok(i32::from_be_bytes(self.fixed()?))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Ending> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.take(N)?);
        Ok(bytes)
    }

    /// Passes over tagged fields: none are known.
    fn tags(&mut self) -> Result<(), Ending> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.take(length)?;
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<usize, Ending> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let [byte] = self.fixed()?;
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            if shift > 28 {
                return Err(self.undecodable("a number is too long"));
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<Bytes, Ending> {
        match self.rest.remaining() >= length {
            true => Ok(self.rest.split_to(length)),
            false => Err(self.undecodable("it is cut off")),
        }
    }

    fn undecodable(&self, reason: &str) -> Ending {
        Ending::Undecodable {
            api: self.api,
            reason: reason.to_owned(),
        }
    }
}

/// What a member has, when it says so: tasks that it does, follows and warms up, which it is never
/// told to.
fn share_of([active, standby, warmup]: [Option<Tasks>; 3]) -> Option<TaskShare> {
    match (active, standby, warmup) {
        (None, None, None) => None,
        (active, standby, _) => Some(TaskShare {
            active: active.unwrap_or_default(),
            standby: standby.unwrap_or_default(),
        }),
    }
}

/// Kafka's defaults for tasks that are warmed up, of which there are none.
const ACCEPTABLE_RECOVERY_LAG: i32 = 10_000;
const TASK_OFFSET_INTERVAL_MS: i32 = 60_000;

/// Room that is made for the elements of an array before they are read.
const ELEMENTS_AT_ONCE: usize = 64;
