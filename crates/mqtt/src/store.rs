//! What outlives the process: retained messages, persistent sessions, their queued messages.
//!
//! Every change is one frame of the journal; replaying the frames in order gives the state. Each
//! kind puts or removes one thing by its key, so a frame that is read twice changes nothing, and
//! a snapshot is merely every living thing put once more behind a noted position, below which
//! the journal is then reclaimed. Numbers are little-endian.
//!
//! | kind | payload, version 1 |
//! | --- | --- |
//! | 1 retained | QoS u8, received ms i64, topic length u16, topic, payload |
//! | 2 retained message cleared | topic |
//! | 3 session | session u64, last seen ms i64, client id |
//! | 4 session ended | session u64 |
//! | 5 subscribed | session u64, QoS u8, filter |
//! | 6 unsubscribed | session u64, filter |
//! | 7 queued | session u64, number u64, retain u8, then as kind 1 |
//! | 8 delivered | session u64, number u64 |
//! | 9 exactly-once identifier taken | session u64, packet id u16 |
//! | 10 exactly-once identifier released | session u64, packet id u16 |
//! | 11 mark | none: its durability is that of all before it |
//!
//! Queued messages keep the order of their numbers. A frame of a session that has ended, or of
//! none, is skipped: the end was written later than it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::UnixMillis;
use journal::{
    Disk, Done, Durability, DurableWait, Frame, FrameRef, Journal, JournalError, JournalOptions,
    Position,
};
use tokio::sync::Notify;

use crate::config::{MqttConfig, StoreDurability};
use crate::error::MqttError;
use crate::limits::{JOURNAL_PREALLOCATE_BYTES, JOURNAL_SEGMENT_BYTES, SNAPSHOT_AFTER_BYTES};
use crate::message::{Message, Qos};
use crate::topic::{TopicFilter, check_name};

/// A message that the server owns.
#[derive(Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) qos: Qos,
    pub(crate) received: UnixMillis,
}

/// The journal of one server.
pub(crate) struct Store {
    journal: Journal,
    need: Durability,
    next_number: AtomicU64,
    appended_bytes: AtomicU64,
    snapshot_at_bytes: AtomicU64,
    /// Told when enough was appended for a snapshot.
    pub(crate) snapshot_wanted: Notify,
}

/// What the journal held.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) retained: BTreeMap<Box<str>, Arc<Stored>>,
    pub(crate) sessions: HashMap<u64, RecoveredSession>,
    next_number: u64,
}

/// One persistent session.
#[derive(Debug, Default)]
pub(crate) struct RecoveredSession {
    pub(crate) client_id: String,
    pub(crate) last_seen: UnixMillis,
    pub(crate) subscriptions: HashMap<TopicFilter, Qos>,
    pub(crate) queue: BTreeMap<u64, (Arc<Stored>, bool)>,
    pub(crate) exactly_once: HashSet<u16>,
}

/// One change to what is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Retained(&'a Stored),
    RetainedCleared(&'a str),
    Session {
        session: u64,
        last_seen: UnixMillis,
        client_id: &'a str,
    },
    SessionEnded {
        session: u64,
    },
    Subscribed {
        session: u64,
        qos: Qos,
        filter: &'a TopicFilter,
    },
    Unsubscribed {
        session: u64,
        filter: &'a TopicFilter,
    },
    Queued {
        session: u64,
        number: u64,
        retain: bool,
        message: &'a Stored,
    },
    Delivered {
        session: u64,
        number: u64,
    },
    ExactlyOnceTaken {
        session: u64,
        id: u16,
    },
    ExactlyOnceReleased {
        session: u64,
        id: u16,
    },
    Mark,
}

impl Stored {
    pub(crate) fn of(message: &Message<'_>) -> Arc<Stored> {
        Arc::new(Stored {
            topic: message.topic.into(),
            payload: message.payload.into(),
            qos: message.qos,
            received: message.received,
        })
    }

    /// The message as subscribers see it.
    pub(crate) fn message(&self, retain: bool) -> Message<'_> {
        Message {
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain,
            received: self.received,
        }
    }

    /// Bytes that it counts for in queues.
    pub(crate) fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + STORED_OVERHEAD_BYTES
    }
}

impl Store {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &MqttConfig,
    ) -> Result<(Store, Recovered), MqttError> {
        let mut recovered = Recovered {
            next_number: 1,
            ..Recovered::default()
        };
        // The largest packets must fit in a segment, and a whole session among the pending
        // bytes, so that a snapshot of it succeeds at last.
        let floor_bytes = 4 * config.packet_bytes_max.0;
        let pending_bytes = floor_bytes.max(2 * config.queue_bytes_max.0);
        let options = JournalOptions {
            segment_bytes: JOURNAL_SEGMENT_BYTES.max(floor_bytes.next_power_of_two()),
            preallocate_bytes: JOURNAL_PREALLOCATE_BYTES,
            pending_bytes_max: JOURNAL_SEGMENT_BYTES.max(pending_bytes),
            ..JournalOptions::default()
        };
        let mut visit = |frame: FrameRef<'_>| {
            recovered.apply(&frame);
            Ok(())
        };
        let (journal, recovery) =
            Journal::open(disk, dir, options, &mut visit).map_err(|source| MqttError::Journal {
                doing: "open",
                source,
            })?;
        if let Some(cut) = &recovery.cut {
            tracing::warn!(
                ?cut,
                "the MQTT journal ended in an unfinished write, which was cut"
            );
        }
        let store = Store {
            need: match config.durability {
                StoreDurability::Memory => Durability::Memory,
                StoreDurability::Os => Durability::Os,
                StoreDurability::Disk => Durability::Disk,
            },
            next_number: AtomicU64::new(recovered.next_number),
            appended_bytes: AtomicU64::new(recovery.bytes),
            snapshot_at_bytes: AtomicU64::new(SNAPSHOT_AFTER_BYTES),
            snapshot_wanted: Notify::new(),
            journal,
        };
        Ok((store, recovered))
    }

    /// A number that no session or queued message has had.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends a change without waiting; it is with the operating system soon.
    ///
    /// # Errors
    /// `JournalError::Busy` when there is no room for now: nothing was written, wait for
    /// [`Store::room`].
    pub(crate) fn put(&self, change: Change<'_>) -> Result<(), JournalError> {
        self.append(change, Durability::Os.min_level(self.need), Done::none())
    }

    /// A wait for the configured durability of all changes so far.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub(crate) fn mark(&self) -> Result<DurableWait, JournalError> {
        let (done, wait) = Done::channel(self.need);
        self.append(Change::Mark, self.need, done)?;
        Ok(wait)
    }

    /// Waits until a message of the largest size fits among the pending bytes.
    pub(crate) async fn room(&self, bytes: usize) {
        self.journal.room(bytes as u64 + 1024).await;
    }

    /// The position before which nothing is needed once all that lives now is put again.
    pub(crate) fn end(&self) -> Position {
        self.journal.end()
    }

    /// Ends a snapshot that began at `low_water`: removes what lies before it.
    pub(crate) fn reclaim(&self, low_water: Position) -> Result<u32, JournalError> {
        let written = self.journal.end().0.saturating_sub(low_water.0);
        // The next one is due when the journal has doubled, so that the cost of snapshots stays
        // in proportion to what is appended.
        self.appended_bytes.store(0, Ordering::Relaxed);
        self.snapshot_at_bytes
            .store(SNAPSHOT_AFTER_BYTES.max(written), Ordering::Relaxed);
        self.journal.reclaim(low_water)
    }

    pub(crate) fn close(&self) -> Result<(), JournalError> {
        self.journal.close()
    }

    fn append(&self, change: Change<'_>, need: Durability, done: Done) -> Result<(), JournalError> {
        let mut head = Head::default();
        let (kind, tail) = change.encode(&mut head);
        let parts: [&[u8]; 3] = [head.bytes(), tail[0], tail[1]];
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &parts,
        };
        let bytes = frame.payload_len();
        self.journal.append(&[frame], need, done)?;
        let appended = self.appended_bytes.fetch_add(bytes + 24, Ordering::Relaxed) + bytes + 24;
        if appended > self.snapshot_at_bytes.load(Ordering::Relaxed) {
            self.snapshot_wanted.notify_one();
        }
        Ok(())
    }
}

impl Recovered {
    fn apply(&mut self, frame: &FrameRef<'_>) {
        if frame.version != VERSION || self.read(frame.kind, frame.payload).is_none() {
            // The checksum was right, so another version of this program wrote it.
            tracing::warn!(
                kind = frame.kind,
                version = frame.version,
                "skipped a frame of the MQTT journal that this version cannot read"
            );
        }
    }

    fn read(&mut self, kind: u8, payload: &[u8]) -> Option<()> {
        let mut input = Input(payload);
        match kind {
            RETAINED => {
                let message = input.stored()?;
                self.retained.insert(message.topic.clone(), message);
                return Some(());
            }
            RETAINED_CLEARED => {
                self.retained.remove(input.text()?);
                return Some(());
            }
            MARK => return Some(()),
            _ => {}
        }
        let key = input.u64()?;
        self.next_number = self.next_number.max(key + 1);
        if kind == SESSION {
            let last_seen = UnixMillis(input.u64()? as i64);
            let session = self.sessions.entry(key).or_default();
            session.last_seen = last_seen;
            input.text()?.clone_into(&mut session.client_id);
            return Some(());
        }
        let session = self.sessions.get_mut(&key);
        match kind {
            SESSION_ENDED => drop(self.sessions.remove(&key)),
            SUBSCRIBED => {
                let (qos, filter) = (Qos::from_bits(input.u8()?)?, input.text()?.parse().ok()?);
                session.map(|s| s.subscriptions.insert(filter, qos));
            }
            UNSUBSCRIBED => {
                let filter = input.text()?.parse().ok()?;
                session.map(|s| s.subscriptions.remove(&filter));
            }
            QUEUED => {
                let (number, retain) = (input.u64()?, input.u8()? != 0);
                self.next_number = self.next_number.max(number + 1);
                let message = input.stored()?;
                session.map(|s| s.queue.insert(number, (message, retain)));
            }
            DELIVERED => {
                let number = input.u64()?;
                session.map(|s| s.queue.remove(&number));
            }
            EXACTLY_ONCE_TAKEN => {
                let id = input.u16()?;
                session.map(|s| s.exactly_once.insert(id));
            }
            EXACTLY_ONCE_RELEASED => {
                let id = input.u16()?;
                session.map(|s| s.exactly_once.remove(&id));
            }
            _ => return None,
        }
        Some(())
    }
}

impl<'a> Change<'a> {
    /// Writes the numbers into `head` and gives the kind and the texts that follow.
    fn encode(&self, head: &mut Head) -> (u8, [&'a [u8]; 2]) {
        match *self {
            Change::Retained(message) => (RETAINED, head.stored(message)),
            Change::RetainedCleared(topic) => (RETAINED_CLEARED, [topic.as_bytes(), b""]),
            Change::Session {
                session,
                last_seen,
                client_id,
            } => {
                head.u64(session);
                head.u64(last_seen.0 as u64);
                (SESSION, [client_id.as_bytes(), b""])
            }
            Change::SessionEnded { session } => {
                head.u64(session);
                (SESSION_ENDED, [b"", b""])
            }
            Change::Subscribed {
                session,
                qos,
                filter,
            } => {
                head.u64(session);
                head.put(&[qos.bits()]);
                (SUBSCRIBED, [filter.as_str().as_bytes(), b""])
            }
            Change::Unsubscribed { session, filter } => {
                head.u64(session);
                (UNSUBSCRIBED, [filter.as_str().as_bytes(), b""])
            }
            Change::Queued {
                session,
                number,
                retain,
                message,
            } => {
                head.u64(session);
                head.u64(number);
                head.put(&[u8::from(retain)]);
                (QUEUED, head.stored(message))
            }
            Change::Delivered { session, number } => {
                head.u64(session);
                head.u64(number);
                (DELIVERED, [b"", b""])
            }
            Change::ExactlyOnceTaken { session, id } => {
                head.u64(session);
                head.put(&id.to_le_bytes());
                (EXACTLY_ONCE_TAKEN, [b"", b""])
            }
            Change::ExactlyOnceReleased { session, id } => {
                head.u64(session);
                head.put(&id.to_le_bytes());
                (EXACTLY_ONCE_RELEASED, [b"", b""])
            }
            Change::Mark => (MARK, [b"", b""]),
        }
    }
}

/// The lower of two levels, without relying on an order of the journal's type.
trait MinLevel {
    fn min_level(self, other: Durability) -> Durability;
}

impl MinLevel for Durability {
    fn min_level(self, other: Durability) -> Durability {
        match (self, other) {
            (Durability::Memory, _) | (_, Durability::Memory) => Durability::Memory,
            (Durability::Os, _) | (_, Durability::Os) => Durability::Os,
            _ => Durability::Disk,
        }
    }
}

/// The fixed part of a frame, on the stack.
#[derive(Default)]
struct Head {
    bytes: [u8; 32],
    len: usize,
}

impl Head {
    fn put(&mut self, bytes: &[u8]) {
        // The largest head is a queued message's: 8 + 8 + 1 + 1 + 8 + 2 bytes.
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    fn stored<'a>(&mut self, message: &'a Stored) -> [&'a [u8]; 2] {
        self.put(&[message.qos.bits()]);
        self.u64(message.received.0 as u64);
        let topic_len = u16::try_from(message.topic.len()).expect("topics are checked to fit");
        self.put(&topic_len.to_le_bytes());
        [message.topic.as_bytes(), &message.payload]
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(std::mem::take(&mut self.0)).ok()
    }

    fn stored(&mut self) -> Option<Arc<Stored>> {
        let (qos, received) = (Qos::from_bits(self.u8()?)?, UnixMillis(self.u64()? as i64));
        let topic_len = usize::from(self.u16()?);
        let (topic, payload) = self.0.split_at_checked(topic_len)?;
        let topic = std::str::from_utf8(topic)
            .ok()
            .filter(|t| check_name(t).is_ok())?;
        Some(Arc::new(Stored {
            topic: topic.into(),
            payload: payload.into(),
            qos,
            received,
        }))
    }
}

const VERSION: u8 = 1;
const RETAINED: u8 = 1;
const RETAINED_CLEARED: u8 = 2;
const SESSION: u8 = 3;
const SESSION_ENDED: u8 = 4;
const SUBSCRIBED: u8 = 5;
const UNSUBSCRIBED: u8 = 6;
const QUEUED: u8 = 7;
const DELIVERED: u8 = 8;
const EXACTLY_ONCE_TAKEN: u8 = 9;
const EXACTLY_ONCE_RELEASED: u8 = 10;
const MARK: u8 = 11;

/// Bytes that a message in memory costs beside its topic and payload, about.
const STORED_OVERHEAD_BYTES: usize = 64;
