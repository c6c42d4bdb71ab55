//! Share sessions (KIP-932): a member names its partitions once and then only what changes.
//!
//! A session belongs to the connection that began it. With it ends what its member has acquired, unless
//! the member has gone on with another session elsewhere meanwhile. What sessions remember is bounded
//! as that of fetch sessions.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::limits::{FETCH_SESSION_PARTITIONS_MAX, SHARE_SESSIONS_PER_CONNECTION_MAX};
use super::sessions::Room;
use crate::Streams;

/// The share sessions of one connection.
#[derive(Debug)]
pub(super) struct ShareSessions {
    room: Arc<Room>,
    held: Vec<ShareSession>,
}

/// The partitions of a session, which take room from all others.
#[derive(Debug)]
struct Partitions {
    room: Arc<Room>,
    held: BTreeSet<(Uuid, i32)>,
}

#[derive(Debug)]
struct ShareSession {
    /// The epoch that the next request must have.
    epoch: i32,
    partitions: Partitions,
    /// How many requests it has had: each partition has its turn to come first.
    turn: usize,
    hold: Hold,
}

/// A member's session; what the member has acquired is given back when it is dropped.
#[derive(Debug)]
struct Hold {
    streams: Arc<Streams>,
    group: Arc<str>,
    member: Arc<str>,
    token: u64,
}

/// Why a request has no session to go on with; the member begins a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No such session on this connection.
    Unknown,
    /// A request is missing before this one, or it came twice.
    Epoch,
    /// There are as many as there may be.
    Limit,
}

/// What a session is asked for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) group: &'a str,
    pub(super) member: &'a str,
    pub(super) epoch: i32,
    pub(super) added: Vec<(Uuid, i32)>,
    pub(super) forgotten: Vec<(Uuid, i32)>,
}

/// The session that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) member: Arc<str>,
    pub(super) partitions: Vec<(Uuid, i32)>,
}

impl ShareSessions {
    pub(super) fn new(room: Arc<Room>) -> Self {
        ShareSessions {
            room,
            held: Vec::new(),
        }
    }

    /// Takes in a request; answers what its session is about. The last one of a session is about
    /// nothing, and [`ShareSessions::end`] is to be called once it has had its effect.
    pub(super) fn open(
        &mut self,
        streams: &Arc<Streams>,
        asked: Asked<'_>,
    ) -> Result<Opened, Refusal> {
        let at = self.position(asked.group, asked.member);
        if asked.epoch == INITIAL_EPOCH {
            if at.is_none() && self.held.len() >= SHARE_SESSIONS_PER_CONNECTION_MAX {
                return Err(Refusal::Limit);
            }
            let mut partitions = Partitions {
                room: Arc::clone(&self.room),
                held: BTreeSet::new(),
            };
            partitions.add(asked.added)?;
            let (group, member) = (Arc::from(asked.group), Arc::from(asked.member));
            let hold = Hold::new(streams, group, member);
            let session = ShareSession {
                epoch: 1,
                partitions,
                turn: 0,
                hold,
            };
            let opened = session.opened();
            match at {
                Some(at) => self.held[at] = session,
                None => self.held.push(session),
            }
            return Ok(opened);
        }
        let session = at.and_then(|at| self.held.get_mut(at));
        let session = session.ok_or(Refusal::Unknown)?;
        if asked.epoch == FINAL_EPOCH {
            return Ok(Opened {
                member: Arc::clone(&session.hold.member),
                partitions: Vec::new(),
            });
        }
        if session.epoch != asked.epoch {
            return Err(Refusal::Epoch);
        }
        session.partitions.add(asked.added)?;
        session.partitions.remove(&asked.forgotten);
        session.epoch = if asked.epoch == i32::MAX {
            1
        } else {
            asked.epoch + 1
        };
        session.turn = session.turn.wrapping_add(1);
        Ok(session.opened())
    }

    /// Ends a session: what its member has acquired is given back.
    pub(super) fn end(&mut self, group: &str, member: &str) {
        if let Some(at) = self.position(group, member) {
            self.held.swap_remove(at);
        }
    }

    fn position(&self, group: &str, member: &str) -> Option<usize> {
        let mut held = self.held.iter();
        held.position(|session| &*session.hold.group == group && &*session.hold.member == member)
    }
}

impl Partitions {
    fn add(&mut self, added: Vec<(Uuid, i32)>) -> Result<(), Refusal> {
        for partition in added {
            if self.held.contains(&partition) {
                continue;
            }
            if self.held.len() >= FETCH_SESSION_PARTITIONS_MAX || !self.room.take(1) {
                return Err(Refusal::Limit);
            }
            self.held.insert(partition);
        }
        Ok(())
    }

    fn remove(&mut self, forgotten: &[(Uuid, i32)]) {
        for partition in forgotten {
            self.room
                .give_back(usize::from(self.held.remove(partition)));
        }
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        self.room.give_back(self.held.len());
    }
}

impl ShareSession {
    fn opened(&self) -> Opened {
        let mut partitions: Vec<(Uuid, i32)> = self.partitions.held.iter().copied().collect();
        if !partitions.is_empty() {
            let first = self.turn % partitions.len();
            partitions.rotate_left(first);
        }
        Opened {
            member: Arc::clone(&self.hold.member),
            partitions,
        }
    }
}

impl Hold {
    fn new(streams: &Arc<Streams>, group: Arc<str>, member: Arc<str>) -> Self {
        let token = streams.begin_share_session(&group, &member);
        Hold {
            streams: Arc::clone(streams),
            group,
            member,
            token,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.streams
            .end_share_session(&self.group, &self.member, self.token);
    }
}

/// The epoch of a request that begins a session.
pub(super) const INITIAL_EPOCH: i32 = 0;

/// The epoch of the last request of a session.
pub(super) const FINAL_EPOCH: i32 = -1;
