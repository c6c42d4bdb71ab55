//! A group as the coordinator holds it: one of either kind, its timer, and how it was noted last.

use std::sync::Arc;

use base::UnixMillis;

use super::consumer_group::ConsumerGroup;
use super::group::{Answer, Group, Token};
use super::roll::{Mark, Roll, Stillness};
use super::share_group::ShareGroup;
use super::streams_group::StreamsGroup;
use super::{
    Beat, BeatAnswer, CONSUMER_PROTOCOL_TYPE, Catalog, ConsumerGroupDescription, GroupDescription,
    GroupError, GroupKind, GroupStanding, GroupsConfig, JoinRequest, Leaving, MemberDescription,
    MemberRef, SHARE_PROTOCOL_TYPE, STREAMS_PROTOCOL_TYPE, StreamsAnswer, StreamsBeat, SyncRequest,
    migration,
};
use crate::error::StreamsError;

/// A group that has members or is about to have some.
pub(super) struct Entry {
    config: Arc<GroupsConfig>,
    pub(super) members: Members,
    /// The group's place among the deadlines; may be earlier than what is due, never later.
    pub(super) armed: Option<UnixMillis>,
    noted: Option<GroupStanding>,
    /// The group's memory and members as counted last.
    counted_bytes: usize,
    counted_members: usize,
    /// How its members stood when they were kept last, if they are.
    kept: Option<(GroupKind, Mark)>,
    /// A member has told something or was given something since.
    pub(super) has_grown: bool,
}

/// The group's members, by the protocol that the group speaks.
pub(super) enum Members {
    Classic(Group),
    /// Some of the members may speak the classic protocol.
    Consumer(ConsumerGroup),
    Share(ShareGroup),
    Streams(StreamsGroup),
}

impl Entry {
    pub(super) fn new(config: &Arc<GroupsConfig>, members: Members) -> Self {
        Entry {
            config: Arc::clone(config),
            members,
            armed: None,
            noted: None,
            counted_bytes: 0,
            counted_members: 0,
            kept: None,
            has_grown: false,
        }
    }

    /// A group with the members that were kept of it.
    pub(super) fn of_kept(
        config: &Arc<GroupsConfig>,
        floor: i32,
        kept: &[u8],
        now: UnixMillis,
    ) -> Result<Self, StreamsError> {
        let members = match Roll::decode(kept)? {
            Roll::Classic(roll) => {
                Members::Classic(Group::of_roll(Arc::clone(config), floor, roll, now))
            }
            Roll::Consumer(roll) => {
                Members::Consumer(ConsumerGroup::of_roll(Arc::clone(config), floor, roll, now))
            }
        };
        let mut entry = Entry::new(config, members);
        entry.has_grown = true;
        if let Stillness::Still(mark) = entry.stillness() {
            entry.kept = Some((entry.kind(), mark));
        }
        Ok(entry)
    }

    /// Goes on by another configuration.
    pub(super) fn follow(&mut self, config: &Arc<GroupsConfig>) {
        self.config = Arc::clone(config);
        match &mut self.members {
            Members::Classic(_) => {}
            Members::Consumer(group) => group.follow(Arc::clone(config)),
            Members::Share(group) => group.follow(Arc::clone(config)),
            Members::Streams(group) => group.follow(Arc::clone(config)),
        }
    }

    /// Takes a join of the classic protocol.
    pub(super) fn join(
        &mut self,
        now: UnixMillis,
        request: JoinRequest,
        fresh_id: String,
        token: Token,
        catalog: &dyn Catalog,
        out: &mut Vec<Answer>,
    ) {
        self.has_grown = true;
        let group = match &mut self.members {
            Members::Classic(group) => return group.join(now, request, fresh_id, token, out),
            Members::Consumer(group) => group,
            Members::Share(_) | Members::Streams(_) => {
                let refused = Err(GroupError::InconsistentProtocol);
                return out.push(Answer::Join(token, refused));
            }
        };
        let Some(former) = group.last_replaced_by(&request) else {
            let joined = group.join_classic(now, request, fresh_id, catalog);
            return out.push(Answer::Join(token, joined));
        };
        if let Err(error) = group.check_join(&request) {
            return out.push(Answer::Join(token, Err(error)));
        }
        // The last one of the newer protocol is replaced by one that speaks the classic one.
        group.remove(&former);
        let mut classic = migration::downgraded(group, now, &self.config, out);
        classic.join(now, request, fresh_id, token, out);
        self.members = Members::Classic(classic);
    }

    /// Takes a member's request for its share.
    pub(super) fn sync(
        &mut self,
        now: UnixMillis,
        request: SyncRequest,
        token: Token,
        out: &mut Vec<Answer>,
    ) {
        match &mut self.members {
            Members::Classic(group) => {
                self.has_grown |= !request.assignments.is_empty();
                group.sync(now, request, token, out);
            }
            Members::Consumer(group) => {
                out.push(Answer::Sync(token, group.sync_classic(now, &request)));
            }
            Members::Share(_) | Members::Streams(_) => {
                out.push(Answer::Sync(token, Err(GroupError::UnknownMember)));
            }
        }
    }

    /// Keeps the session of a member that speaks the classic protocol.
    pub(super) fn heartbeat(
        &mut self,
        now: UnixMillis,
        member: MemberRef<'_>,
    ) -> Result<(), GroupError> {
        match &mut self.members {
            Members::Classic(group) => group.heartbeat(now, member),
            Members::Consumer(group) => group.heartbeat_classic(now, member),
            Members::Share(_) | Members::Streams(_) => Err(GroupError::UnknownMember),
        }
    }

    /// Takes a member that speaks the classic protocol out.
    pub(super) fn leave(
        &mut self,
        now: UnixMillis,
        leaving: &Leaving,
        out: &mut Vec<Answer>,
    ) -> Result<(), GroupError> {
        match &mut self.members {
            Members::Classic(group) => group.leave(now, leaving, out),
            Members::Consumer(group) => group.leave_classic(leaving),
            Members::Share(_) | Members::Streams(_) => Err(GroupError::UnknownMember),
        }
    }

    /// Takes a heartbeat of the newer protocol; one that joins makes a classic group one of that.
    pub(super) fn beat(
        &mut self,
        now: UnixMillis,
        beat: Beat,
        catalog: &dyn Catalog,
        out: &mut Vec<Answer>,
    ) -> Result<BeatAnswer, GroupError> {
        self.has_grown |= beat.topics.is_some();
        let group = match &mut self.members {
            Members::Classic(group) => group,
            Members::Consumer(group) => return group.beat(now, beat, catalog),
            Members::Share(_) | Members::Streams(_) => return Err(GroupError::NotFound),
        };
        if beat.epoch != 0 {
            // It was a member before the process restarted, or before it was put out as the last
            // of its kind: it joins again.
            return Err(match group.protocol_type() {
                "" | CONSUMER_PROTOCOL_TYPE => GroupError::UnknownMember,
                _ => GroupError::NotFound,
            });
        }
        let mut consumer = migration::upgraded(group, now, &self.config, catalog)?;
        let answer = consumer.beat(now, beat, catalog)?;
        group.dissolve(out);
        self.members = Members::Consumer(consumer);
        Ok(answer)
    }

    /// Takes a heartbeat of a member of a share group.
    pub(super) fn share_beat(
        &mut self,
        now: UnixMillis,
        beat: Beat,
        catalog: &dyn Catalog,
    ) -> Result<BeatAnswer, GroupError> {
        self.has_grown |= beat.topics.is_some();
        match &mut self.members {
            Members::Share(group) => group.beat(now, beat, catalog),
            _ => Err(GroupError::NotFound),
        }
    }

    /// Takes a heartbeat of a member of a Kafka Streams application.
    pub(super) fn streams_beat(
        &mut self,
        now: UnixMillis,
        beat: StreamsBeat,
        catalog: &dyn Catalog,
    ) -> Result<StreamsAnswer, GroupError> {
        self.has_grown = true;
        match &mut self.members {
            Members::Streams(group) => group.beat(now, beat, catalog),
            _ => Err(GroupError::NotFound),
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        match &mut self.members {
            Members::Classic(group) => group.tick(now, out),
            Members::Consumer(group) => group.tick(now),
            Members::Share(group) => group.tick(now),
            Members::Streams(group) => group.tick(now),
        }
    }

    /// Makes a group that the last member of the newer protocol has left a classic one again.
    pub(super) fn see_to_kind(&mut self, now: UnixMillis, out: &mut Vec<Answer>) {
        if let Members::Consumer(group) = &self.members
            && group.is_classic()
        {
            let classic = migration::downgraded(group, now, &self.config, out);
            self.members = Members::Classic(classic);
            self.has_grown = true;
        }
    }

    pub(super) fn has_members(&self) -> bool {
        match &self.members {
            Members::Classic(group) => group.has_members(),
            Members::Consumer(group) => group.has_members(),
            Members::Share(group) => group.has_members(),
            Members::Streams(group) => group.has_members(),
        }
    }

    pub(super) fn members_count(&self) -> usize {
        match &self.members {
            Members::Classic(group) => group.members_count(),
            Members::Consumer(group) => group.members_count(),
            Members::Share(group) => group.members_count(),
            Members::Streams(group) => group.members_count(),
        }
    }

    /// Counts about the memory that the group's members take, when that may have changed; answers
    /// how many bytes it was and is.
    pub(super) fn count(&mut self) -> (usize, usize) {
        let (before, members) = (self.counted_bytes, self.members_count());
        if self.has_grown || members != self.counted_members {
            self.counted_bytes = match &self.members {
                Members::Classic(group) => group.bytes(),
                Members::Consumer(group) => group.bytes(),
                Members::Share(group) => group.bytes(),
                Members::Streams(group) => group.bytes(),
            };
            self.counted_members = members;
            self.has_grown = false;
        }
        (before, self.counted_bytes)
    }

    pub(super) fn is_forgettable(&self) -> bool {
        match &self.members {
            Members::Classic(group) => group.is_forgettable(),
            Members::Consumer(group) => !group.has_members(),
            Members::Share(group) => !group.has_members(),
            Members::Streams(group) => !group.has_members(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        match &self.members {
            Members::Classic(group) => group.next_deadline(),
            Members::Consumer(group) => group.next_deadline(),
            Members::Share(group) => group.next_deadline(),
            Members::Streams(group) => group.next_deadline(),
        }
    }

    /// How the group stands, when that is to be noted: it has its first member, another epoch, or
    /// no members any more.
    pub(super) fn changed_standing(&mut self) -> Option<GroupStanding> {
        let has_members = self.has_members();
        if !has_members && self.noted.is_none() {
            return None;
        }
        let standing = match &self.members {
            Members::Classic(group) => GroupStanding {
                kind: GroupKind::Classic,
                protocol_type: group.protocol_type().to_owned(),
                epoch: group.floor(),
                has_members,
            },
            Members::Consumer(group) => GroupStanding {
                kind: GroupKind::Consumer,
                protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
                epoch: group.epoch(),
                has_members,
            },
            Members::Share(group) => GroupStanding {
                kind: GroupKind::Share,
                protocol_type: SHARE_PROTOCOL_TYPE.to_owned(),
                epoch: group.epoch(),
                has_members,
            },
            Members::Streams(group) => GroupStanding {
                kind: GroupKind::Streams,
                protocol_type: STREAMS_PROTOCOL_TYPE.to_owned(),
                epoch: group.epoch(),
                has_members,
            },
        };
        if self.noted.as_ref() == Some(&standing) {
            return None;
        }
        self.noted = Some(standing.clone());
        Some(standing)
    }

    /// Its members as they are to be kept, when they stand still in another way than before; empty
    /// when none are to be kept any more.
    pub(super) fn changed_roll(&mut self) -> Option<Vec<u8>> {
        if let Members::Consumer(group) = &self.members
            && self.kept == Some((GroupKind::Consumer, group.mark()))
        {
            // Every heartbeat comes here.
            return None;
        }
        match self.stillness() {
            Stillness::Moving => None,
            Stillness::Bound => self.kept.take().map(|_| Vec::new()),
            Stillness::Still(mark) => {
                let kept = Some((self.kind(), mark));
                if self.kept == kept {
                    return None;
                }
                let roll = match &self.members {
                    Members::Classic(group) => Roll::Classic(group.roll()),
                    Members::Consumer(group) => Roll::Consumer(group.roll()),
                    Members::Share(_) | Members::Streams(_) => return None,
                };
                self.kept = kept;
                Some(roll.encode())
            }
        }
    }

    /// Whether what is kept of its members is of this process.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    fn stillness(&self) -> Stillness {
        match &self.members {
            Members::Classic(group) => group.stillness(),
            Members::Consumer(group) => group.stillness(),
            // Those who are told that they are unknown join again.
            Members::Share(_) | Members::Streams(_) => Stillness::Bound,
        }
    }

    pub(super) fn kind(&self) -> GroupKind {
        match &self.members {
            Members::Classic(_) => GroupKind::Classic,
            Members::Consumer(_) => GroupKind::Consumer,
            Members::Share(_) => GroupKind::Share,
            Members::Streams(_) => GroupKind::Streams,
        }
    }

    pub(super) fn describe(&self, name: &str, with_members: bool) -> GroupDescription {
        let (protocol_type, state, assignor, epoch) = match &self.members {
            Members::Classic(group) => return group.describe(name, with_members),
            Members::Consumer(group) => (
                CONSUMER_PROTOCOL_TYPE,
                group.state(),
                group.assignor(),
                group.epoch(),
            ),
            Members::Share(group) => (
                SHARE_PROTOCOL_TYPE,
                group.state(),
                group.assignor(),
                group.epoch(),
            ),
            Members::Streams(group) => (
                STREAMS_PROTOCOL_TYPE,
                group.state(),
                group.assignor(),
                group.epoch(),
            ),
        };
        let described = self.described().filter(|_| with_members);
        let members = described.into_iter().flat_map(|group| group.members);
        let members = members.map(|m| MemberDescription {
            member_id: m.member_id,
            instance_id: m.instance_id,
            client_id: m.client_id,
            client_host: m.client_host,
            metadata: bytes::Bytes::new(),
            assignment: bytes::Bytes::new(),
        });
        GroupDescription {
            group: name.to_owned(),
            kind: self.kind(),
            state,
            protocol_type: protocol_type.to_owned(),
            protocol: assignor.to_owned(),
            generation: epoch,
            members: members.collect(),
        }
    }

    /// The group with its epochs and shares; none of a classic one.
    pub(super) fn described(&self) -> Option<ConsumerGroupDescription> {
        match &self.members {
            Members::Classic(_) => None,
            Members::Consumer(group) => Some(group.describe()),
            Members::Share(group) => Some(group.describe()),
            Members::Streams(group) => Some(group.describe_as_consumers()),
        }
    }
}
