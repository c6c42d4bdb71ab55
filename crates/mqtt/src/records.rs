//! What outlives the process: retained messages, sessions, their queued messages.
//!
//! Every change is one frame of the journal; replaying the frames in order gives the state. Each
//! kind puts or removes one thing by its key, so a frame that is read twice changes nothing, and
//! a snapshot is merely every living thing put once more behind a noted position, below which
//! the journal is then reclaimed. Numbers are little-endian.
//!
//! | kind | payload, version 2 |
//! | --- | --- |
//! | 1 retained | QoS u8, received ms i64, expires ms i64 (0: never), topic length u16, properties length u32, topic, properties, payload |
//! | 2 retained message cleared | topic |
//! | 3 session | session u64, last seen ms i64 (`i64::MAX`: has a link), expiry s u32, client id |
//! | 4 session ended | session u64 |
//! | 5 subscribed | session u64, options u8, identifier u32 (0: none), filter |
//! | 6 unsubscribed | session u64, filter |
//! | 7 queued | session u64, number u64, QoS granted u8, retain u8, count u8 of identifiers, each u32, then as kind 1 |
//! | 8 delivered | session u64, number u64 |
//! | 9 exactly-once identifier taken | session u64, packet id u16 |
//! | 10 exactly-once identifier released | session u64, packet id u16 |
//! | 11 mark | none: its durability is that of all before it |
//! | 12 sent | session u64, number u64, packet id u16: a message of QoS 1 or 2 that may have arrived |
//! | 13 received | session u64, number u64: PUBREC came, so only PUBREL may follow |
//! | 14 owned | session u64, user length u32 (0: nobody in particular), user, host; stands before the session |
//!
//! Version 1 is read as well: kinds 1 and 7 had neither expiry nor properties (7 was always
//! granted QoS 1 and had no identifiers), kind 3 no expiry, kind 5 a QoS u8 for the options and
//! no identifier. Older programs wrote no kind 14.
//!
//! Queued messages keep the order of their numbers. A frame of a session that has ended, or of
//! none, is skipped: the end was written later than it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base::UnixMillis;
use journal::FrameRef;

use crate::codec::Options;
use crate::gate::Owner;
use crate::message::Qos;
use crate::stored::Stored;
use crate::topic::{TopicFilter, check_name};

/// What the journal held.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) retained: BTreeMap<Box<str>, Arc<Stored>>,
    pub(crate) sessions: HashMap<u64, RecoveredSession>,
    pub(crate) next_number: u64,
}

/// One persistent session.
#[derive(Debug, Default)]
pub(crate) struct RecoveredSession {
    pub(crate) client_id: String,
    /// `None`: it had a link when the process ended.
    pub(crate) last_seen: Option<UnixMillis>,
    /// `None`: written before sessions had their own.
    pub(crate) expiry_s: Option<u32>,
    /// `None`: written before it was kept.
    pub(crate) owner: Option<Owner>,
    pub(crate) subscriptions: HashMap<TopicFilter, Subscription>,
    pub(crate) queue: BTreeMap<u64, RecoveredMessage>,
    pub(crate) exactly_once: HashSet<u16>,
}

/// What stands beside a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) options: Options,
    pub(crate) identifier: Option<u32>,
}

/// A message that waited for a client.
#[derive(Debug)]
pub(crate) struct RecoveredMessage {
    pub(crate) message: Arc<Stored>,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) identifiers: Vec<u32>,
    /// The packet identifier under which it may have arrived.
    pub(crate) sent: Option<u16>,
    /// Whether the client said that it has it.
    pub(crate) received: bool,
}

/// One change to what is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Retained(&'a Stored),
    RetainedCleared(&'a str),
    Session {
        session: u64,
        /// `None` while it has a link.
        last_seen: Option<UnixMillis>,
        expiry_s: u32,
        client_id: &'a str,
    },
    Owned {
        session: u64,
        owner: &'a Owner,
    },
    SessionEnded {
        session: u64,
    },
    Subscribed {
        session: u64,
        subscription: Subscription,
        filter: &'a TopicFilter,
    },
    Unsubscribed {
        session: u64,
        filter: &'a TopicFilter,
    },
    Queued {
        session: u64,
        number: u64,
        qos: Qos,
        retain: bool,
        identifiers: &'a [u32],
        message: &'a Stored,
    },
    Sent {
        session: u64,
        number: u64,
        id: u16,
    },
    Received {
        session: u64,
        number: u64,
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

impl Recovered {
    pub(crate) fn new() -> Self {
        Recovered {
            next_number: 1,
            ..Recovered::default()
        }
    }

    pub(crate) fn apply(&mut self, frame: &FrameRef<'_>) {
        let readable = matches!(frame.version, 1 | VERSION);
        if !readable
            || self
                .read(frame.kind, frame.version, frame.payload)
                .is_none()
        {
            // The checksum was right, so another version of this program wrote it.
            tracing::warn!(
                kind = frame.kind,
                version = frame.version,
                "skipped a frame of the MQTT journal that this version cannot read"
            );
        }
    }

    fn read(&mut self, kind: u8, version: u8, payload: &[u8]) -> Option<()> {
        let mut input = Input(payload);
        match kind {
            RETAINED => {
                let message = input.stored(version)?;
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
        self.next_number = self.next_number.max(key.saturating_add(1));
        if kind == SESSION {
            let last_seen = input.u64()? as i64;
            let expiry_s = if version == 1 {
                None
            } else {
                Some(input.u32()?)
            };
            let session = self.sessions.entry(key).or_default();
            session.last_seen = (last_seen != i64::MAX).then_some(UnixMillis(last_seen));
            session.expiry_s = expiry_s;
            input.text()?.clone_into(&mut session.client_id);
            return Some(());
        }
        if kind == OWNED {
            let owner = input.owner()?;
            self.sessions.entry(key).or_default().owner = Some(owner);
            return Some(());
        }
        if kind == SESSION_ENDED {
            self.sessions.remove(&key);
            return Some(());
        }
        if kind == QUEUED {
            let number = input.u64()?;
            self.next_number = self.next_number.max(number.saturating_add(1));
            let message = input.queued(version)?;
            if let Some(session) = self.sessions.get_mut(&key) {
                // One that is put again keeps what became of it, should the journal end here.
                session.queue.entry(number).or_insert(message);
            }
            return Some(());
        }
        let mut nobody = RecoveredSession::default();
        let session = self.sessions.get_mut(&key).unwrap_or(&mut nobody);
        session.read(kind, version, &mut input)
    }
}

impl RecoveredSession {
    fn read(&mut self, kind: u8, version: u8, input: &mut Input<'_>) -> Option<()> {
        match kind {
            SUBSCRIBED => {
                let options = Options::from_byte(input.u8()?)?;
                let identifier = match version {
                    1 => 0,
                    _ => input.u32()?,
                };
                let subscription = Subscription {
                    options,
                    identifier: (identifier != 0).then_some(identifier),
                };
                let filter = input.text()?.parse().ok()?;
                self.subscriptions.insert(filter, subscription);
            }
            UNSUBSCRIBED => {
                let filter = input.text()?.parse().ok()?;
                self.subscriptions.remove(&filter);
            }
            SENT => {
                let (number, id) = (input.u64()?, input.u16()?);
                if let Some(message) = self.queue.get_mut(&number) {
                    message.sent = Some(id);
                }
            }
            RECEIVED => {
                let number = input.u64()?;
                if let Some(message) = self.queue.get_mut(&number) {
                    message.received = true;
                }
            }
            DELIVERED => {
                let number = input.u64()?;
                self.queue.remove(&number);
            }
            EXACTLY_ONCE_TAKEN => {
                let id = input.u16()?;
                self.exactly_once.insert(id);
            }
            EXACTLY_ONCE_RELEASED => {
                let id = input.u16()?;
                self.exactly_once.remove(&id);
            }
            _ => return None,
        }
        Some(())
    }
}

impl<'a> Change<'a> {
    /// Writes the numbers into `head` and gives the kind and the texts that follow.
    pub(crate) fn encode(&self, head: &mut Vec<u8>) -> (u8, [&'a [u8]; 3]) {
        let mut u64 = |number: u64| head.extend_from_slice(&number.to_le_bytes());
        match *self {
            Change::Retained(message) => (RETAINED, stored(head, message)),
            Change::RetainedCleared(topic) => (RETAINED_CLEARED, tail(topic)),
            Change::Session {
                session,
                last_seen,
                expiry_s,
                client_id,
            } => {
                u64(session);
                u64(last_seen.map_or(i64::MAX, |at| at.0) as u64);
                head.extend_from_slice(&expiry_s.to_le_bytes());
                (SESSION, tail(client_id))
            }
            Change::Owned { session, owner } => {
                u64(session);
                let user = owner.user.as_deref().unwrap_or_default();
                let user_len = u32::try_from(user.len()).expect("users came in one packet");
                head.extend_from_slice(&user_len.to_le_bytes());
                (OWNED, [user.as_bytes(), owner.host.as_bytes(), b""])
            }
            Change::SessionEnded { session } => {
                u64(session);
                (SESSION_ENDED, tail(""))
            }
            Change::Subscribed {
                session,
                subscription,
                filter,
            } => {
                u64(session);
                head.push(subscription.options.byte());
                let identifier = subscription.identifier.unwrap_or(0);
                head.extend_from_slice(&identifier.to_le_bytes());
                (SUBSCRIBED, tail(filter.as_str()))
            }
            Change::Unsubscribed { session, filter } => {
                u64(session);
                (UNSUBSCRIBED, tail(filter.as_str()))
            }
            Change::Queued {
                session,
                number,
                qos,
                retain,
                identifiers,
                message,
            } => {
                u64(session);
                u64(number);
                // One byte counts them; a message that meets more subscriptions loses the rest.
                let count = identifiers.len().min(usize::from(u8::MAX));
                head.extend_from_slice(&[qos.bits(), u8::from(retain), count as u8]);
                for identifier in &identifiers[..count] {
                    head.extend_from_slice(&identifier.to_le_bytes());
                }
                (QUEUED, stored(head, message))
            }
            Change::Sent {
                session,
                number,
                id,
            } => {
                u64(session);
                u64(number);
                head.extend_from_slice(&id.to_le_bytes());
                (SENT, tail(""))
            }
            Change::Received { session, number } => {
                u64(session);
                u64(number);
                (RECEIVED, tail(""))
            }
            Change::Delivered { session, number } => {
                u64(session);
                u64(number);
                (DELIVERED, tail(""))
            }
            Change::ExactlyOnceTaken { session, id } => {
                u64(session);
                head.extend_from_slice(&id.to_le_bytes());
                (EXACTLY_ONCE_TAKEN, tail(""))
            }
            Change::ExactlyOnceReleased { session, id } => {
                u64(session);
                head.extend_from_slice(&id.to_le_bytes());
                (EXACTLY_ONCE_RELEASED, tail(""))
            }
            Change::Mark => (MARK, tail("")),
        }
    }
}

fn tail(text: &str) -> [&[u8]; 3] {
    [text.as_bytes(), b"", b""]
}

fn stored<'a>(head: &mut Vec<u8>, message: &'a Stored) -> [&'a [u8]; 3] {
    head.push(message.qos.bits());
    head.extend_from_slice(&message.received.0.to_le_bytes());
    let expires = message.expires.map_or(0, |at| at.0.max(1));
    head.extend_from_slice(&expires.to_le_bytes());
    let topic_len = u16::try_from(message.topic.len()).expect("topics are checked to fit");
    head.extend_from_slice(&topic_len.to_le_bytes());
    let properties_len =
        u32::try_from(message.properties.len()).expect("properties came in one packet");
    head.extend_from_slice(&properties_len.to_le_bytes());
    [
        message.topic.as_bytes(),
        &message.properties,
        &message.payload,
    ]
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

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(std::mem::take(&mut self.0)).ok()
    }

    fn owner(&mut self) -> Option<Owner> {
        let user_len = self.u32()?;
        let (user, host) = self.0.split_at_checked(user_len as usize)?;
        let user = std::str::from_utf8(user).ok()?;
        Some(Owner {
            user: (!user.is_empty()).then(|| user.into()),
            host: std::str::from_utf8(host).ok()?.into(),
        })
    }

    fn queued(&mut self, version: u8) -> Option<RecoveredMessage> {
        let qos = match version {
            1 => Qos::AtLeastOnce,
            _ => Qos::from_bits(self.u8()?)?,
        };
        let retain = self.u8()? != 0;
        let count = if version == 1 { 0 } else { self.u8()? };
        let mut identifiers = Vec::new();
        for _ in 0..count {
            identifiers.push(self.u32()?);
        }
        Some(RecoveredMessage {
            message: self.stored(version)?,
            qos,
            retain,
            identifiers,
            sent: None,
            received: false,
        })
    }

    fn stored(&mut self, version: u8) -> Option<Arc<Stored>> {
        let (qos, received) = (Qos::from_bits(self.u8()?)?, UnixMillis(self.u64()? as i64));
        let expires = if version == 1 { 0 } else { self.u64()? as i64 };
        let topic_len = usize::from(self.u16()?);
        let properties_len = if version == 1 { 0 } else { self.u32()? };
        let (topic, rest) = self.0.split_at_checked(topic_len)?;
        let (properties, payload) = rest.split_at_checked(properties_len as usize)?;
        let topic = std::str::from_utf8(topic)
            .ok()
            .filter(|t| check_name(t).is_ok())?;
        Some(Arc::new(Stored {
            topic: topic.into(),
            payload: payload.into(),
            qos,
            received,
            expires: (expires != 0).then_some(UnixMillis(expires)),
            properties: properties.into(),
        }))
    }
}

/// The version that is written.
pub(crate) const VERSION: u8 = 2;
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
const SENT: u8 = 12;
const RECEIVED: u8 = 13;
const OWNED: u8 = 14;

#[cfg(test)]
pub(crate) mod tests;
