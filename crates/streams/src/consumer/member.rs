//! Membership in a group: joins, shares partitions when it leads, keeps the session alive.
//!
//! A task of its own does all that, so that a consumer that is polled seldom (a REST client's) is
//! no brake for its group. The consumer takes over what the task has got at its next poll.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::assignor::{self, ASSIGNORS, Share};
use crate::error::StreamsError;
use crate::groups::{
    GroupError, JoinRequest, Joined, Leaving, MemberRef, Protocol, Sight, SyncRequest,
};
use crate::signal::Signal;
use crate::store::Streams;
use crate::topic::TopicName;

/// A consumer's place in its group; dropping it leaves the group.
pub(crate) struct Membership {
    streams: Arc<Streams>,
    group: String,
    standing: Arc<Mutex<Standing>>,
    task: JoinHandle<()>,
}

/// Where the member stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Counts what happened, so that the consumer sees whether anything did.
    pub(crate) version: u64,
    /// The member's id; empty before the first join.
    pub(crate) member_id: String,
    /// The generation that the share belongs to; none while the group rebalances.
    pub(crate) generation: Option<i32>,
    /// What the member holds.
    pub(crate) share: Share,
    /// Why the task has given up.
    pub(crate) failed: Option<GroupError>,
}

struct Member {
    streams: Arc<Streams>,
    group: String,
    client_id: String,
    topics: Vec<TopicName>,
    session_timeout: Duration,
    standing: Arc<Mutex<Standing>>,
    /// Told when the standing changes.
    notify: Arc<Signal>,
}

impl Membership {
    /// Joins `group` for `topics` in the background; `notify` is told of every change.
    pub(crate) fn start(
        streams: Arc<Streams>,
        group: String,
        client_id: String,
        topics: Vec<TopicName>,
        session_timeout: Duration,
        notify: Arc<Signal>,
    ) -> Self {
        let standing = Arc::new(Mutex::new(Standing::default()));
        let member = Member {
            streams: Arc::clone(&streams),
            group: group.clone(),
            client_id,
            topics,
            session_timeout,
            standing: Arc::clone(&standing),
            notify,
        };
        let task = tokio::spawn(member.run());
        Membership {
            streams,
            group,
            standing,
            task,
        }
    }

    /// Where the member stands now, when that changed since `version`.
    pub(crate) fn changed_since(&self, version: u64) -> Option<Standing> {
        let standing = self.standing.lock();
        (standing.version != version).then(|| standing.clone())
    }

    /// The group.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Fails when a commit as this member of `generation` is not to be taken.
    pub(crate) fn check_commit(
        &self,
        member_id: &str,
        generation: i32,
    ) -> Result<(), StreamsError> {
        let member = MemberRef {
            group: &self.group,
            member_id,
            instance_id: None,
            generation,
        };
        let checked = self.streams.groups().check_commit(member);
        checked.map_err(|reason| StreamsError::Group {
            group: self.group.clone(),
            reason,
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
        let member_id = self.standing.lock().member_id.clone();
        if !member_id.is_empty() {
            let leaving = [Leaving {
                member_id,
                instance_id: None,
            }];
            // It may have been thrown out before, which is as good.
            self.streams.groups().leave_group(&self.group, &leaving);
        }
    }
}

impl Member {
    async fn run(self) {
        loop {
            match self.one_generation().await {
                GroupError::UnknownMember => self.change(|s| s.member_id.clear()),
                GroupError::MemberIdRequired { member_id } => {
                    self.change(|s| s.member_id = member_id);
                }
                GroupError::RebalanceInProgress | GroupError::IllegalGeneration => {}
                GroupError::TooManyGroups | GroupError::GroupFull => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                error => {
                    self.change(|s| s.failed = Some(error));
                    return;
                }
            }
        }
    }

    /// Joins, syncs and keeps alive until the generation ends; says how it ended.
    async fn one_generation(&self) -> GroupError {
        let mut topics_changed = self.streams.topics_changed();
        self.change(|s| s.generation = None);
        let known = self.partition_counts();
        let heartbeat = (self.session_timeout / 3).min(HEARTBEAT_MAX);
        let joined = self.streams.groups();
        let joined = joined.join_group(self.join_request(), self.streams.as_ref());
        let joined = match joined.await {
            Ok(joined) => joined,
            Err(error) => return error,
        };
        self.change(|s| s.member_id.clone_from(&joined.member_id));
        let sync = SyncRequest {
            group: self.group.clone(),
            member_id: joined.member_id.clone(),
            instance_id: None,
            generation: joined.generation,
            protocol_type: None,
            protocol: None,
            assignments: self.assignments(&joined),
        };
        let synced = match self.streams.groups().sync_group(sync).await {
            Ok(synced) => synced,
            Err(error) => return error,
        };
        let share = assignor::assigned(&synced.assignment);
        self.change(|s| {
            s.generation = Some(joined.generation);
            s.share = share;
        });
        loop {
            tokio::select! {
                () = tokio::time::sleep(heartbeat) => {}
                changed = topics_changed.changed() => {
                    if changed.is_err() {
                        return GroupError::Stopped;
                    }
                    if self.partition_counts() != known {
                        return GroupError::RebalanceInProgress;
                    }
                    continue;
                }
            }
            let member = MemberRef {
                group: &self.group,
                member_id: &joined.member_id,
                instance_id: None,
                generation: joined.generation,
            };
            if let Err(error) = self.streams.groups().heartbeat(member) {
                return error;
            }
        }
    }

    fn join_request(&self) -> JoinRequest {
        let metadata = assignor::subscription(self.topics.iter().map(TopicName::wire_name));
        let protocols = ASSIGNORS.map(|name| Protocol {
            name: name.to_owned(),
            metadata: metadata.clone(),
        });
        JoinRequest {
            group: self.group.clone(),
            member_id: self.standing.lock().member_id.clone(),
            instance_id: None,
            client_id: self.client_id.clone(),
            client_host: String::new(),
            session_timeout: self.session_timeout,
            rebalance_timeout: self.session_timeout,
            protocol_type: "consumer".to_owned(),
            protocols: protocols.to_vec(),
            member_id_required: false,
            sight: Sight::default(),
            is_remote: false,
        }
    }

    /// Everybody's shares when this member leads.
    fn assignments(&self, joined: &Joined) -> Vec<(String, bytes::Bytes)> {
        if joined.leader != joined.member_id || joined.skip_assignment {
            return Vec::new();
        }
        let members: Vec<(String, BTreeSet<String>)> = joined
            .members
            .iter()
            .map(|member| {
                (
                    member.member_id.clone(),
                    assignor::subscribed(&member.metadata),
                )
            })
            .collect();
        let partitions_of = |topic: &str| self.partitions_of(topic);
        let shares = assignor::shares(&joined.protocol, &members, partitions_of);
        shares
            .into_iter()
            .map(|(id, share)| (id, assignor::assignment(&share)))
            .collect()
    }

    fn partitions_of(&self, topic: &str) -> i32 {
        let topic = topic
            .parse()
            .ok()
            .and_then(|name| self.streams.topic_by_name(&name));
        let count = topic.map_or(0, |topic| topic.partitions().len());
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    fn partition_counts(&self) -> Vec<i32> {
        self.topics
            .iter()
            .map(|topic| self.partitions_of(topic.wire_name()))
            .collect()
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        let mut standing = self.standing.lock();
        change(&mut standing);
        standing.version += 1;
        drop(standing);
        self.notify.tell();
    }
}

/// Longest pause between heartbeats. They are how a member hears that its group rebalances, and
/// they are calls within the process, so they come more often than Kafka's three seconds.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);

/// Pause before a full group is asked again.
const FULL_PAUSE: Duration = Duration::from_secs(1);
