//! The members of a group that stands still, as they are kept for the next process.
//!
//! Only members that live in other processes are kept: those of this one end with it. While a group
//! changes, what is kept is how it stood still last; whoever has come further since is told to join
//! again, as after any time without a coordinator.
//!
//! Byte for byte (integers little-endian, texts, bytes and lists behind a `u32` length or count):
//!
//! | kind | what follows its `u8` |
//! | --- | --- |
//! | 0 classic | generation `i32`, protocol type, protocol, leader, members: id, instance id, client id, client host, session and rebalance time-outs `u32` ms, protocols (name, metadata), assignment |
//! | 2 consumer | epoch `i32`, topics (name, id 16 bytes, partitions `i32`), members: id, instance id, rack id, client id, client host, rebalance time-out `u32` ms, names, regular expression, assignor, partitions (topic id, index `i32`), whether it has left for a while `u8` |
//! | 1 consumer | as 2, without the last, which nobody has |
//!
//! What may be absent is a list of one or none.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{Partitions, Protocol};
use crate::error::StreamsError;
use crate::frames::{DAMAGED, Payload, put_bytes, put_count, put_text, put_u32};

/// A group that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roll {
    Classic(ClassicRoll),
    Consumer(ConsumerRoll),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassicRoll {
    pub(super) generation: i32,
    pub(super) protocol_type: String,
    pub(super) protocol: String,
    pub(super) leader: String,
    pub(super) members: Vec<ClassicMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassicMember {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConsumerRoll {
    pub(super) epoch: i32,
    /// The topics that somebody reads.
    pub(super) topics: Vec<(String, Uuid, i32)>,
    pub(super) members: Vec<ConsumerMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConsumerMember {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout: Duration,
    pub(super) names: Vec<String>,
    pub(super) regex: Option<String>,
    pub(super) assignor: Option<String>,
    pub(super) partitions: Partitions,
    /// A static member said that it goes and comes back.
    pub(super) has_left: bool,
}

/// Whether a group's members are to be kept now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stillness {
    /// It changes: what was kept last stays.
    Moving,
    /// It stands still; two marks of one group are the same as long as nothing has changed.
    Still(Mark),
    /// Some member ends with this process.
    Bound,
}

/// The generation or epoch, and how often members have changed their ids, or left for a while and
/// come back, in the group's life.
pub(super) type Mark = (i32, u32);

impl Roll {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Roll::Classic(roll) => {
                out.push(0);
                put_u32(&mut out, roll.generation as u32);
                put_text(&mut out, &roll.protocol_type);
                put_text(&mut out, &roll.protocol);
                put_text(&mut out, &roll.leader);
                put_count(&mut out, roll.members.len());
                roll.members.iter().for_each(|member| member.put(&mut out));
            }
            Roll::Consumer(roll) => {
                out.push(2);
                put_u32(&mut out, roll.epoch as u32);
                put_count(&mut out, roll.topics.len());
                for (name, id, partitions) in &roll.topics {
                    put_text(&mut out, name);
                    out.extend_from_slice(id.as_bytes());
                    put_u32(&mut out, *partitions as u32);
                }
                put_count(&mut out, roll.members.len());
                roll.members.iter().for_each(|member| member.put(&mut out));
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Roll, StreamsError> {
        let mut from = Payload::of(bytes);
        let roll = match from.array()? {
            [0] => Roll::Classic(ClassicRoll {
                generation: from.i32()?,
                protocol_type: from.text()?,
                protocol: from.text()?,
                leader: from.text()?,
                members: list(&mut from, ClassicMember::read)?,
            }),
            [kind @ (1 | 2)] => Roll::Consumer(ConsumerRoll {
                epoch: from.i32()?,
                topics: list(&mut from, |from| {
                    Ok((from.text()?, from.id()?, from.i32()?))
                })?,
                members: list(&mut from, |from| ConsumerMember::read(from, kind == 2))?,
            }),
            _ => return Err(DAMAGED),
        };
        from.end()?;
        Ok(roll)
    }
}

impl ClassicMember {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.id);
        put_optional(out, self.instance_id.as_deref());
        put_text(out, &self.client_id);
        put_text(out, &self.client_host);
        put_time(out, self.session_timeout);
        put_time(out, self.rebalance_timeout);
        put_count(out, self.protocols.len());
        for protocol in &self.protocols {
            put_text(out, &protocol.name);
            put_bytes(out, &protocol.metadata);
        }
        put_bytes(out, &self.assignment);
    }

    fn read(from: &mut Payload<'_>) -> Result<Self, StreamsError> {
        Ok(ClassicMember {
            id: from.text()?,
            instance_id: optional(from)?,
            client_id: from.text()?,
            client_host: from.text()?,
            session_timeout: time(from)?,
            rebalance_timeout: time(from)?,
            protocols: list(from, |from| {
                Ok(Protocol {
                    name: from.text()?,
                    metadata: bytes(from)?,
                })
            })?,
            assignment: bytes(from)?,
        })
    }
}

impl ConsumerMember {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.id);
        put_optional(out, self.instance_id.as_deref());
        put_optional(out, self.rack_id.as_deref());
        put_text(out, &self.client_id);
        put_text(out, &self.client_host);
        put_time(out, self.rebalance_timeout);
        put_count(out, self.names.len());
        self.names.iter().for_each(|name| put_text(out, name));
        put_optional(out, self.regex.as_deref());
        put_optional(out, self.assignor.as_deref());
        put_count(out, self.partitions.len());
        for (topic, index) in self.partitions.iter() {
            out.extend_from_slice(topic.as_bytes());
            put_u32(out, index as u32);
        }
        out.push(u8::from(self.has_left));
    }

    fn read(from: &mut Payload<'_>, may_have_left: bool) -> Result<Self, StreamsError> {
        Ok(ConsumerMember {
            id: from.text()?,
            instance_id: optional(from)?,
            rack_id: optional(from)?,
            client_id: from.text()?,
            client_host: from.text()?,
            rebalance_timeout: time(from)?,
            names: list(from, Payload::text)?,
            regex: optional(from)?,
            assignor: optional(from)?,
            partitions: list(from, |from| Ok((from.id()?, from.i32()?)))?
                .into_iter()
                .collect(),
            has_left: may_have_left && from.flag()?,
        })
    }
}

/// How long a member that was kept has to come back after `now`: a third of its session, which is
/// the longest that clients are told to be silent, and as long as they may wait before they connect
/// anew; never longer than its session.
pub(super) fn grace(session_timeout: Duration) -> Duration {
    session_timeout.min(session_timeout / 3 + RECONNECT_MAX)
}

fn list<'b, T>(
    from: &mut Payload<'b>,
    mut read: impl FnMut(&mut Payload<'b>) -> Result<T, StreamsError>,
) -> Result<Vec<T>, StreamsError> {
    let mut items = Vec::new();
    for _ in 0..from.count()? {
        items.push(read(from)?);
    }
    Ok(items)
}

fn optional(from: &mut Payload<'_>) -> Result<Option<String>, StreamsError> {
    Ok(list(from, Payload::text)?.pop())
}

fn bytes(from: &mut Payload<'_>) -> Result<Bytes, StreamsError> {
    Ok(Bytes::copy_from_slice(from.list_of_bytes()?))
}

fn time(from: &mut Payload<'_>) -> Result<Duration, StreamsError> {
    Ok(Duration::from_millis(from.u32()?.into()))
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    put_count(out, usize::from(text.is_some()));
    if let Some(text) = text {
        put_text(out, text);
    }
}

fn put_time(out: &mut Vec<u8>, time: Duration) {
    put_u32(out, u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
}

/// librdkafka's `reconnect.backoff.max.ms`; the Java client waits a second.
const RECONNECT_MAX: Duration = Duration::from_secs(10);
