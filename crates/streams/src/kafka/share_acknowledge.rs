//! ShareAcknowledge, and what it shares with ShareFetch (KIP-932): a session goes on, and what is said of
//! records counts.
//!
//! Acknowledgements count in the order of the requests on the connection, all of a partition or none,
//! and are on the disk before they are answered.

use std::sync::Arc;

use access::Operation;
use kafka_protocol::ResponseError;
use uuid::Uuid;

use super::error::streams_error_code;
use super::group_admin::NOT_ALLOWED;
use super::reply::{Call, Ending, Reply};
use super::share_sessions::{Asked, FINAL_EPOCH, INITIAL_EPOCH, Opened, Refusal};
use super::share_wire;
use crate::group_config::ShareTerms;
use crate::groups::{GROUP_ID_BYTES_MAX, MEMBER_ID_BYTES_MAX};
use crate::share::{AcknowledgeError, Acknowledgement, Fate};
use crate::store::{CHANGE_ROOM_BYTES, DurableWait};
use crate::{Partition, StreamsError};

/// Takes acknowledgements alone.
pub(super) fn acknowledge(call: Call) -> Result<Reply, Ending> {
    let mut begun = match Begun::of(&call, share_wire::acknowledge_request(&call)?) {
        Ok(begun) => begun,
        Err(refused) => {
            let answer = share_wire::acknowledged(&call, refused, 0, &[]);
            return Ok(Reply::Now(answer));
        }
    };
    Ok(Reply::HeldBack(Box::pin(async move {
        begun.acknowledge(&call).await;
        Reply::later(async move {
            settle(&mut begun.said).await;
            let (none, lock) = (Refused::NONE, begun.lock_ms());
            Ok(share_wire::acknowledged(&call, none, lock, &begun.said))
        })
    })))
}

/// What a request says of a topic: partitions with first offset, last offset and fates.
pub(super) type Said = (Uuid, Vec<(i32, Vec<(i64, i64, Vec<i8>)>)>);

/// The parts that both requests have.
pub(super) struct Asking {
    pub(super) group: Option<String>,
    pub(super) member: Option<String>,
    pub(super) epoch: i32,
    pub(super) topics: Vec<Said>,
    pub(super) forgotten: Vec<(Uuid, i32)>,
    pub(super) is_fetch: bool,
    pub(super) may_renew: bool,
}

/// Why a request is refused as a whole.
#[derive(Clone, Copy)]
pub(super) struct Refused {
    pub(super) code: i16,
    pub(super) reason: Option<&'static str>,
}

/// A request whose session goes on.
pub(super) struct Begun {
    pub(super) group: String,
    pub(super) opened: Opened,
    pub(super) terms: ShareTerms,
    pub(super) is_last: bool,
    /// What is acknowledged, and what came of it.
    pub(super) said: Vec<OfPartition>,
}

/// What is acknowledged of a partition.
pub(super) struct OfPartition {
    pub(super) topic: Uuid,
    pub(super) index: i32,
    pub(super) found: Result<Arc<Partition>, i16>,
    /// None when what was said makes no sense.
    pub(super) said: Option<Vec<Acknowledgement>>,
    pub(super) outcome: Result<DurableWait, i16>,
    pub(super) code: i16,
}

impl Refused {
    pub(super) const NONE: Refused = Refused {
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
    pub(super) fn of(call: &Call, asking: Asking) -> Result<Self, Refused> {
        let named = |name: Option<String>, most: usize| {
            let reason = "a member of a share group has an id and a group, neither of them long";
            let name = name.filter(|name| (1..=most).contains(&name.len()));
            name.ok_or(Refused::of(ResponseError::InvalidRequest, reason))
        };
        let group = named(asking.group, GROUP_ID_BYTES_MAX)?;
        let member = named(asking.member, MEMBER_ID_BYTES_MAX)?;
        if !call.may_group(Operation::Read, &group) {
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
            group: &group,
            member: &member,
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
        let terms = streams.share_terms(&group);
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
            group,
            opened,
            terms,
            is_last: asking.epoch == FINAL_EPOCH,
            said,
        })
    }

    /// Has what is acknowledged take effect.
    pub(super) async fn acknowledge(&mut self, call: &Call) {
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

    /// For how long records are a member's own, in ms.
    pub(super) fn lock_ms(&self) -> i32 {
        i32::try_from(self.terms.lock.as_millis()).unwrap_or(i32::MAX)
    }
}

/// Waits until what was acknowledged is on the disk.
pub(super) async fn settle(said: &mut [OfPartition]) {
    for of in said {
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
pub(super) fn find(call: &Call, topic: Uuid, index: i32) -> Result<Arc<Partition>, i16> {
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
