//! A group as the coordinator holds it: one of either kind, its timer, and how it was noted last.

use base::UnixMillis;

use super::consumer_group::ConsumerGroup;
use super::group::Group;
use super::{
    CONSUMER_PROTOCOL_TYPE, GroupDescription, GroupKind, GroupStanding, MemberDescription,
};

/// A group that has members or is about to have some.
pub(super) struct Entry {
    pub(super) members: Members,
    /// The group's place among the deadlines; may be earlier than what is due, never later.
    pub(super) armed: Option<UnixMillis>,
    noted: Option<GroupStanding>,
    /// The group's memory and members as counted last.
    counted_bytes: usize,
    counted_members: usize,
    /// A member has told something or was given something since.
    pub(super) has_grown: bool,
}

/// The group's members, by the protocol that they speak.
pub(super) enum Members {
    Classic(Group),
    Consumer(ConsumerGroup),
}

impl Entry {
    pub(super) fn new(members: Members) -> Self {
        Entry {
            members,
            armed: None,
            noted: None,
            counted_bytes: 0,
            counted_members: 0,
            has_grown: false,
        }
    }

    pub(super) fn has_members(&self) -> bool {
        match &self.members {
            Members::Classic(group) => group.has_members(),
            Members::Consumer(group) => group.has_members(),
        }
    }

    pub(super) fn members_count(&self) -> usize {
        match &self.members {
            Members::Classic(group) => group.members_count(),
            Members::Consumer(group) => group.members_count(),
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
        }
    }

    pub(super) fn next_deadline(&self) -> Option<UnixMillis> {
        match &self.members {
            Members::Classic(group) => group.next_deadline(),
            Members::Consumer(group) => group.next_deadline(),
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
                epoch: 0,
                has_members,
            },
            Members::Consumer(group) => GroupStanding {
                kind: GroupKind::Consumer,
                protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
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

    pub(super) fn describe(&self, name: &str, with_members: bool) -> GroupDescription {
        let group = match &self.members {
            Members::Classic(group) => return group.describe(name, with_members),
            Members::Consumer(group) => group,
        };
        if !with_members {
            return GroupDescription {
                group: name.to_owned(),
                kind: GroupKind::Consumer,
                state: group.state(),
                protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
                protocol: group.assignor().to_owned(),
                generation: group.epoch(),
                members: Vec::new(),
            };
        }
        let described = group.describe();
        let members = described.members.into_iter().map(|m| MemberDescription {
            member_id: m.member_id,
            instance_id: m.instance_id,
            client_id: m.client_id,
            client_host: m.client_host,
            metadata: bytes::Bytes::new(),
            assignment: bytes::Bytes::new(),
        });
        GroupDescription {
            group: name.to_owned(),
            kind: GroupKind::Consumer,
            state: described.state,
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            protocol: described.assignor,
            generation: described.epoch,
            members: members.collect(),
        }
    }
}
