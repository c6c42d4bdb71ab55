//! Fetch sessions (KIP-227): a client names its partitions once and then only what changes.
//!
//! A session belongs to the connection that began it and ends with it; a client that comes back on
//! another connection begins anew, as after any lost session. What all sessions together may
//! remember is bounded by [`Room`]: when it is taken, a session is declined by answering id 0 and
//! the client names everything each time, which is always right. Does no IO and needs no clock.
//!
//! Partitions are served in turns: one that gave records goes behind the others, so that a
//! partition with much to read starves none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use uuid::Uuid;

use super::limits::{
    FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_PARTITIONS_MAX, FETCH_SESSIONS_PER_CONNECTION_MAX,
};
use super::standby::Standby;

/// What a request calls a topic: its name, since version 13 its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TopicKey {
    /// Its name, apart from the request's frame, which a session must not keep in memory.
    Name(Arc<str>),
    Id(Uuid),
}

/// A partition that a client wants to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) topic: TopicKey,
    pub(super) index: i32,
    pub(super) offset: i64,
    pub(super) max_bytes: i32,
    pub(super) leader_epoch: i32,
}

/// A request's part about sessions.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session_id: i32,
    pub(super) epoch: i32,
    /// Whether topics go by their ids.
    pub(super) by_id: bool,
    pub(super) wanted: Vec<Wanted>,
    pub(super) forgotten: Vec<(TopicKey, i32)>,
}

/// What is to be read and how it is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// Zero when there is no session.
    pub(super) session_id: i32,
    /// Only partitions with news are answered.
    pub(super) only_news: bool,
    pub(super) wanted: Vec<Wanted>,
}

/// Why a request cannot go on with its session; the client begins a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No such session on this connection.
    Unknown,
    /// A request is missing before this one, or it came twice.
    Epoch,
    /// The session's topics go by names and this request's by ids, or the other way.
    TopicIds,
}

/// What an answer says of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) is_error: bool,
    pub(super) has_records: bool,
    pub(super) high_watermark: i64,
    pub(super) log_start_offset: i64,
}

/// What the sessions of all connections share, those of share groups included.
#[derive(Debug, Default)]
pub(super) struct Room {
    partitions: AtomicUsize,
    ids: AtomicI32,
}

/// The sessions of one connection.
#[derive(Debug)]
pub(super) struct Sessions {
    room: Arc<Room>,
    /// The oldest first.
    held: Vec<Session>,
}

#[derive(Debug)]
struct Session {
    id: i32,
    /// The epoch that the next request must have.
    epoch: i32,
    by_id: bool,
    /// By turn.
    entries: BTreeMap<u64, Entry>,
    turns: HashMap<(TopicKey, i32), u64>,
    next_turn: u64,
    /// Kept by the last answer, which told of nothing.
    standby: Option<Standby>,
}

#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    /// What was told last; -1 when nothing or an error was.
    high_watermark: i64,
    log_start_offset: i64,
}

impl Sessions {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Sessions {
            room,
            held: Vec::new(),
        }
    }

    /// Takes in a request; answers what it wants to read.
    pub(super) fn open(&mut self, asked: Asked) -> Result<Opened, Refusal> {
        match asked.epoch {
            FINAL_EPOCH | INITIAL_EPOCH => {
                self.end(asked.session_id);
                let session_id = if asked.epoch == INITIAL_EPOCH {
                    self.begin(&asked)
                } else {
                    0
                };
                Ok(Opened {
                    session_id,
                    only_news: false,
                    wanted: asked.wanted,
                })
            }
            _ => self.go_on(asked),
        }
    }

    /// Takes in a request that asks for nothing else than the one before it, where `holds` finds
    /// that there is nothing to answer either; none when it is to be opened as any other.
    pub(super) fn resume(
        &mut self,
        session_id: i32,
        epoch: i32,
        by_id: bool,
        holds: impl FnOnce(&mut Standby) -> bool,
    ) -> Option<Standby> {
        let session = self.held.iter_mut().find(|s| s.id == session_id)?;
        if session.epoch != epoch || session.by_id != by_id {
            return None;
        }
        let standby = session.standby.take_if(holds)?;
        session.epoch = epoch_after(epoch);
        Some(standby)
    }

    /// Keeps what the answer to the request of `epoch` watched, unless another request came after.
    pub(super) fn stand_by(&mut self, session_id: i32, epoch: i32, standby: Standby) {
        let session = self.held.iter_mut().find(|s| s.id == session_id);
        if let Some(session) = session.filter(|session| session.epoch == epoch_after(epoch)) {
            session.standby = Some(standby);
        }
    }

    /// What a session wants to read; nothing when it has ended.
    pub(super) fn wanted(&self, session_id: i32) -> Vec<Wanted> {
        let session = self.held.iter().find(|s| s.id == session_id);
        session.map_or_else(Vec::new, Session::wanted)
    }

    /// Remembers what an answer says of a partition; whether the client has to be told.
    pub(super) fn tell(&mut self, id: i32, topic: &TopicKey, index: i32, said: Said) -> bool {
        match self.held.iter_mut().find(|session| session.id == id) {
            Some(session) => session.tell(topic, index, said),
            // Ended by a later request: everything is told.
            None => true,
        }
    }

    fn begin(&mut self, asked: &Asked) -> i32 {
        if asked.wanted.is_empty() || asked.wanted.len() > FETCH_SESSION_PARTITIONS_MAX {
            return 0;
        }
        if self.held.len() >= FETCH_SESSIONS_PER_CONNECTION_MAX {
            let oldest = self.held[0].id;
            self.end(oldest);
        }
        if !self.room.take(asked.wanted.len()) {
            return 0;
        }
        let mut session = Session {
            id: self.room.next_id(),
            epoch: 1,
            by_id: asked.by_id,
            entries: BTreeMap::new(),
            turns: HashMap::new(),
            next_turn: 0,
            standby: None,
        };
        for wanted in &asked.wanted {
            session.want(wanted.clone());
        }
        // The same partition may have been named twice.
        self.room
            .give_back(asked.wanted.len() - session.entries.len());
        let id = session.id;
        self.held.push(session);
        id
    }

    fn go_on(&mut self, asked: Asked) -> Result<Opened, Refusal> {
        let found = self.held.iter_mut().find(|s| s.id == asked.session_id);
        let session = found.ok_or(Refusal::Unknown)?;
        if session.by_id != asked.by_id {
            return Err(Refusal::TopicIds);
        }
        if session.epoch != asked.epoch {
            return Err(Refusal::Epoch);
        }
        session.epoch = epoch_after(asked.epoch);
        // Given back by the answer when it still fits.
        session.standby = None;
        for (topic, index) in asked.forgotten {
            session.forget(topic, index, &self.room);
        }
        for wanted in asked.wanted {
            let is_known = session.knows(&wanted);
            let has_room = is_known
                || (session.entries.len() < FETCH_SESSION_PARTITIONS_MAX && self.room.take(1));
            if !has_room {
                let id = session.id;
                self.end(id);
                return Err(Refusal::Unknown);
            }
            session.want(wanted);
        }
        let wanted = session.wanted();
        let (mut session_id, mut only_news) = (session.id, true);
        if wanted.is_empty() {
            self.end(asked.session_id);
            (session_id, only_news) = (0, false);
        }
        Ok(Opened {
            session_id,
            only_news,
            wanted,
        })
    }

    fn end(&mut self, id: i32) {
        if let Some(at) = self.held.iter().position(|session| session.id == id) {
            let ended = self.held.remove(at);
            self.room.give_back(ended.entries.len());
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let partitions = self.held.iter().map(|session| session.entries.len()).sum();
        self.room.give_back(partitions);
    }
}

impl Session {
    /// What it wants to read, by turn.
    fn wanted(&self) -> Vec<Wanted> {
        let entries = self.entries.values();
        entries.map(|entry| entry.wanted.clone()).collect()
    }

    fn knows(&self, wanted: &Wanted) -> bool {
        self.turns
            .contains_key(&(wanted.topic.clone(), wanted.index))
    }

    /// Adds a partition, or changes what is wanted of it.
    fn want(&mut self, wanted: Wanted) {
        let key = (wanted.topic.clone(), wanted.index);
        if let Some(entry) = self
            .turns
            .get(&key)
            .and_then(|turn| self.entries.get_mut(turn))
        {
            entry.wanted = wanted;
            return;
        }
        let entry = Entry {
            wanted,
            high_watermark: -1,
            log_start_offset: -1,
        };
        self.entries.insert(self.next_turn, entry);
        self.turns.insert(key, self.next_turn);
        self.next_turn += 1;
    }

    fn forget(&mut self, topic: TopicKey, index: i32, room: &Room) {
        if let Some(turn) = self.turns.remove(&(topic, index)) {
            self.entries.remove(&turn);
            room.give_back(1);
        }
    }

    fn tell(&mut self, topic: &TopicKey, index: i32, said: Said) -> bool {
        let Some(turn) = self.turns.get_mut(&(topic.clone(), index)) else {
            return true;
        };
        let Some(mut entry) = self.entries.remove(turn) else {
            return true;
        };
        let is_news = said.is_error
            || said.has_records
            || said.high_watermark != entry.high_watermark
            || said.log_start_offset != entry.log_start_offset;
        // An error is told again until it is gone, and so is what comes after it.
        (entry.high_watermark, entry.log_start_offset) = if said.is_error {
            (-1, -1)
        } else {
            (said.high_watermark, said.log_start_offset)
        };
        if said.has_records {
            *turn = self.next_turn;
            self.next_turn += 1;
        }
        self.entries.insert(*turn, entry);
        is_news
    }
}

impl Room {
    pub(super) fn take(&self, partitions: usize) -> bool {
        let taken = |now: usize| {
            let now = now.checked_add(partitions)?;
            (now <= FETCH_SESSIONS_PARTITIONS_MAX).then_some(now)
        };
        self.partitions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok()
    }

    pub(super) fn give_back(&self, partitions: usize) {
        self.partitions.fetch_sub(partitions, Ordering::Relaxed);
    }

    /// Above zero, and not given again while anybody could remember it.
    fn next_id(&self) -> i32 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        id.rem_euclid(i32::MAX) + 1
    }
}

/// The epoch that follows; after 2^31-1 comes 1.
fn epoch_after(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// The epoch of a request that begins a session.
const INITIAL_EPOCH: i32 = 0;

/// The epoch of a request that ends its session, or never had one.
const FINAL_EPOCH: i32 = -1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isolation;

    fn wanted(topic: &str, index: i32, offset: i64) -> Wanted {
        Wanted {
            topic: TopicKey::Name(topic.into()),
            index,
            offset,
            max_bytes: 100,
            leader_epoch: -1,
        }
    }

    fn asked(session_id: i32, epoch: i32, wanted: Vec<Wanted>) -> Asked {
        Asked {
            session_id,
            epoch,
            by_id: false,
            wanted,
            forgotten: Vec::new(),
        }
    }

    fn said(high_watermark: i64, has_records: bool) -> Said {
        Said {
            is_error: false,
            has_records,
            high_watermark,
            log_start_offset: 0,
        }
    }

    fn sessions() -> Sessions {
        Sessions::new(Arc::new(Room::default()))
    }

    #[test]
    fn a_session_remembers_what_was_asked_and_told() {
        let mut sessions = sessions();
        let both = vec![wanted("a", 0, 5), wanted("b", 1, 7)];
        let begun = sessions.open(asked(0, 0, both.clone())).unwrap();
        assert!(begun.session_id > 0 && !begun.only_news);
        assert_eq!(begun.wanted, both);
        let id = begun.session_id;
        let tell = |sessions: &mut Sessions, topic: &str, index, said| {
            sessions.tell(id, &TopicKey::Name(topic.into()), index, said)
        };
        assert!(tell(&mut sessions, "a", 0, said(5, false)));
        assert!(tell(&mut sessions, "b", 1, said(9, true)));
        let more = sessions
            .open(asked(id, 1, vec![wanted("b", 1, 9)]))
            .unwrap();
        assert!(more.only_news);
        assert_eq!(more.wanted, [wanted("a", 0, 5), wanted("b", 1, 9)]);
        assert!(!tell(&mut sessions, "a", 0, said(5, false)));
        assert!(tell(&mut sessions, "a", 0, said(6, false)));
        let error = Said {
            is_error: true,
            ..said(6, false)
        };
        assert!(tell(&mut sessions, "a", 0, error));
        assert!(tell(&mut sessions, "a", 0, said(6, false)));
        assert!(!tell(&mut sessions, "a", 0, said(6, false)));
    }

    #[test]
    fn a_partition_that_gave_records_goes_behind_the_others() {
        let mut sessions = sessions();
        let all: Vec<Wanted> = (0..3).map(|index| wanted("a", index, 0)).collect();
        let id = sessions.open(asked(0, 0, all)).unwrap().session_id;
        sessions.tell(id, &TopicKey::Name("a".into()), 0, said(1, true));
        let order = sessions.open(asked(id, 1, Vec::new())).unwrap().wanted;
        let order: Vec<i32> = order.iter().map(|wanted| wanted.index).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn what_does_not_follow_is_refused() {
        let mut sessions = sessions();
        let one = || vec![wanted("a", 0, 0)];
        assert_eq!(sessions.open(asked(3, 1, one())), Err(Refusal::Unknown));
        let id = sessions.open(asked(0, 0, one())).unwrap().session_id;
        assert_eq!(sessions.open(asked(id, 2, one())), Err(Refusal::Epoch));
        assert!(sessions.open(asked(id, 1, one())).is_ok());
        assert_eq!(sessions.open(asked(id, 1, one())), Err(Refusal::Epoch));
        let by_id = Asked {
            by_id: true,
            ..asked(id, 2, Vec::new())
        };
        assert_eq!(sessions.open(by_id), Err(Refusal::TopicIds));
        // The last request of a session reads once more and ends it.
        let last = sessions.open(asked(id, -1, one())).unwrap();
        assert_eq!((last.session_id, last.wanted.len()), (0, 1));
        assert_eq!(sessions.open(asked(id, 2, one())), Err(Refusal::Unknown));
        assert_eq!(epoch_after(i32::MAX), 1);
    }

    #[test]
    fn an_answer_of_nothing_is_kept_for_the_same_question_only() {
        let mut sessions = sessions();
        let none = || Standby::on(std::iter::empty(), Isolation::Uncommitted, None).unwrap();
        let resumed = |sessions: &mut Sessions, id, epoch, by_id| {
            let holds = |standby: &mut Standby| standby.holds(Isolation::Uncommitted, None);
            sessions.resume(id, epoch, by_id, holds).is_some()
        };
        let begun = sessions.open(asked(0, 0, vec![wanted("a", 0, 0)])).unwrap();
        let id = begun.session_id;
        assert!(!resumed(&mut sessions, id, 1, false));
        sessions.stand_by(id, 0, none());
        for (id, epoch, by_id) in [(id, 2, false), (id, 1, true), (id + 1, 1, false)] {
            assert!(!resumed(&mut sessions, id, epoch, by_id));
        }
        assert!(resumed(&mut sessions, id, 1, false));
        assert!(!resumed(&mut sessions, id, 2, false), "it was given twice");
        // Another request came before the answer: what was watched may not be what is wanted.
        sessions
            .open(asked(id, 2, vec![wanted("a", 0, 5)]))
            .unwrap();
        sessions.stand_by(id, 1, none());
        assert!(!resumed(&mut sessions, id, 3, false));
        sessions.stand_by(id, 2, none());
        let wants_more = sessions.open(asked(id, 3, vec![wanted("b", 0, 0)]));
        assert!(wants_more.is_ok() && !resumed(&mut sessions, id, 4, false));
    }

    #[test]
    fn a_session_without_partitions_is_none() {
        let mut sessions = sessions();
        assert_eq!(sessions.open(asked(0, 0, vec![])).unwrap().session_id, 0);
        let id = sessions
            .open(asked(0, 0, vec![wanted("a", 0, 0)]))
            .unwrap()
            .session_id;
        let emptied = Asked {
            forgotten: vec![(TopicKey::Name("a".into()), 0)],
            ..asked(id, 1, Vec::new())
        };
        assert_eq!(sessions.open(emptied).unwrap().session_id, 0);
        assert_eq!(sessions.room.partitions.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn room_is_bounded_and_given_back() {
        let room = Arc::new(Room::default());
        let many = |n: usize| -> Vec<Wanted> {
            (0..n)
                .map(|n| wanted("a", i32::try_from(n).unwrap(), 0))
                .collect()
        };
        // Others hold nearly all of it.
        assert!(room.take(FETCH_SESSIONS_PARTITIONS_MAX - 2));
        let mut sessions = Sessions::new(Arc::clone(&room));
        assert_eq!(sessions.open(asked(0, 0, many(3))).unwrap().session_id, 0);
        assert!(sessions.open(asked(0, 0, many(2))).unwrap().session_id > 0);
        drop(sessions);
        room.give_back(FETCH_SESSIONS_PARTITIONS_MAX - 2);
        assert_eq!(room.partitions.load(Ordering::Relaxed), 0);
        let mut sessions = Sessions::new(Arc::clone(&room));
        for _ in 0..2 * FETCH_SESSIONS_PER_CONNECTION_MAX {
            assert!(sessions.open(asked(0, 0, many(3))).unwrap().session_id > 0);
        }
        let held = 3 * FETCH_SESSIONS_PER_CONNECTION_MAX;
        assert_eq!(room.partitions.load(Ordering::Relaxed), held);
        // A session that would outgrow its bound ends.
        let id = sessions
            .open(asked(0, 0, many(FETCH_SESSION_PARTITIONS_MAX)))
            .unwrap()
            .session_id;
        let next = wanted("b", 0, 0);
        assert_eq!(
            sessions.open(asked(id, 1, vec![next])),
            Err(Refusal::Unknown)
        );
    }
}
