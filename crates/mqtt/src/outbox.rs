//! What waits for one client and what it has not acknowledged: the state inside a session.
//!
//! `inflight[..resend_at]` was sent on this link; the rest of it on an earlier one, and is sent
//! again before the queue goes on. See [`crate::session`] for the rules of order and of holding.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use base::UnixMillis;
use journal::JournalError;
use tokio_util::sync::CancellationToken;

use crate::codec::{self, Outgoing, PUBREL, Properties};
use crate::config::MqttConfig;
use crate::gate::{Owner, Pass};
use crate::limits::WRITE_BYTES_FILL;
use crate::message::Qos;
use crate::reason::ReasonCode;
use crate::records::{Change, Subscription};
use crate::route::Grant;
use crate::session::LinkRef;
use crate::store::Store;
use crate::stored::Stored;
use crate::topic::TopicFilter;
use crate::will::Will;

/// A session's state: what it subscribes to, what waits for it, what it has not acknowledged.
pub(crate) struct Outbox {
    pub(crate) link: Option<LinkRef>,
    /// Whose it is, once one had it: other users' clients may not.
    pub(crate) owner: Option<Owner>,
    /// What its client may receive while it has no link.
    pub(crate) away: Option<Arc<dyn Pass>>,
    /// Seconds that the session outlives its link; `u32::MAX` for ever.
    pub(crate) expiry_s: u32,
    pub(crate) will: Option<Will>,
    /// When the will of a link that has ended is due.
    pub(crate) will_at: Option<UnixMillis>,
    pub(crate) subscriptions: HashMap<TopicFilter, Subscription>,
    /// Of their filters.
    pub(crate) subscription_bytes: usize,
    pub(crate) out: Vec<u8>,
    /// The output may leave only when what was journaled so far is durable.
    pub(crate) out_after_journal: bool,
    /// Of the output, what answers the client's own packets.
    pub(crate) acknowledgement_bytes: usize,
    pub(crate) queue: VecDeque<Queued>,
    /// Of the queue, the first so many that are judged again before they leave.
    pub(crate) unjudged: usize,
    /// Of the queue, those that are retained messages, which cost no memory of their own.
    pub(crate) queue_retained: usize,
    /// Of the queue (but its retained ones) and of what is in flight.
    pub(crate) queue_bytes: usize,
    pub(crate) inflight: VecDeque<Inflight>,
    pub(crate) resend_at: usize,
    pub(crate) next_id: u16,
    pub(crate) exactly_once: HashSet<u16>,
    /// Those of them whose PUBLISH came on this link: what the receive maximum bounds.
    pub(crate) exactly_once_on_link: HashSet<u16>,
    /// Ends when the client's QoS 2 messages that are being handed on are with everybody.
    pub(crate) handing_on: Option<CancellationToken>,
    pub(crate) full_since: Option<UnixMillis>,
    pub(crate) lagging: bool,
    pub(crate) last_seen: UnixMillis,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) ended: bool,
    /// The numbers that stand for topics on this link.
    aliases: HashMap<Box<str>, u16>,
}

/// A message in the queue or in flight.
pub(crate) struct Queued {
    pub(crate) message: Arc<Stored>,
    pub(crate) qos: Qos,
    /// The flag as it is sent.
    pub(crate) retain: bool,
    /// A retained message that a new subscription brought.
    pub(crate) is_replay: bool,
    /// Its number in the journal; 0 when it is not there.
    pub(crate) number: u64,
    /// Of a retained message that comes to be there when it is sent at the latest: the number
    /// that it will have, so that it keeps its place among the others. 0 for others.
    pub(crate) place: u64,
    pub(crate) grant: Arc<Grant>,
}

/// A QoS 1 or 2 message that was sent and is not acknowledged to the end.
pub(crate) struct Inflight {
    pub(crate) id: u16,
    pub(crate) queued: Queued,
    /// PUBREC came: only PUBREL may follow.
    pub(crate) received: bool,
}

/// What filling the output came to.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    pub(crate) sent: u64,
    /// Too large for the client, or worth nothing any more.
    pub(crate) dropped: u64,
    /// Of topics that the client may not see any more.
    pub(crate) refused: u64,
    /// Why it stopped before its time.
    pub(crate) stopped: Option<JournalError>,
}

impl Outbox {
    pub(crate) fn new(now: UnixMillis) -> Self {
        Outbox {
            link: None,
            owner: None,
            away: None,
            expiry_s: 0,
            will: None,
            will_at: None,
            subscriptions: HashMap::new(),
            subscription_bytes: 0,
            out: Vec::new(),
            out_after_journal: false,
            acknowledgement_bytes: 0,
            queue: VecDeque::new(),
            unjudged: 0,
            queue_retained: 0,
            queue_bytes: 0,
            inflight: VecDeque::new(),
            resend_at: 0,
            next_id: 1,
            exactly_once: HashSet::new(),
            exactly_once_on_link: HashSet::new(),
            handing_on: None,
            full_since: None,
            lagging: false,
            last_seen: now,
            sent: 0,
            dropped: 0,
            ended: false,
            aliases: HashMap::new(),
        }
    }

    pub(crate) fn is_link(&self, number: u64) -> bool {
        self.link.as_ref().is_some_and(|l| l.number == number)
    }

    /// Whether it has a link that is not cut off already.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|l| !l.cancel.is_cancelled())
    }

    /// Forgets what belonged to the link before.
    pub(crate) fn reset_link(&mut self) {
        self.out = Vec::new();
        self.out_after_journal = false;
        self.acknowledgement_bytes = 0;
        self.resend_at = 0;
        // The quota of either side begins anew with each link (5.0 section 4.9).
        self.exactly_once_on_link = HashSet::new();
        self.full_since = None;
        self.lagging = false;
        self.aliases = HashMap::new();
        self.unjudged = self.queue.len();
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.out.len() + self.queue_bytes
    }

    pub(crate) fn is_full(&self, config: &MqttConfig) -> bool {
        self.waiting_bytes() >= bytes_max(config)
            || self.queue.len() - self.queue_retained >= config.queue_messages_max
    }

    /// Decides, for a full queue, whether its publishers need not wait any longer.
    pub(crate) fn is_lagging(&mut self, config: &MqttConfig, now: UnixMillis) -> bool {
        let since = *self.full_since.get_or_insert(now);
        if now.since(since) >= config.slow_subscriber_grace.0 {
            self.lagging = true;
        }
        self.lagging
    }

    pub(crate) fn enqueue(&mut self, queued: Queued) {
        if queued.is_replay {
            self.queue_retained += 1;
        } else {
            self.queue_bytes += queued.message.bytes();
        }
        self.queue.push_back(queued);
    }

    /// Moves messages from the queue to the output, as far as both have room.
    pub(crate) fn fill(
        &mut self,
        config: &MqttConfig,
        store: &Store,
        session: u64,
        now: UnixMillis,
    ) -> Filled {
        let mut filled = Filled::default();
        let Some(link) = &self.link else {
            return filled;
        };
        let window = usize::from(config.inflight_max.min(link.receive_maximum));
        while self.out.len() < WRITE_BYTES_FILL {
            if self.resend_at < self.inflight.len() {
                if self.resend_at >= window {
                    break;
                }
                self.send_again(store, session, now, &mut filled);
                continue;
            }
            let window_full = self.inflight.len() >= window;
            match self.queue.front() {
                Some(next) if next.qos == Qos::AtMostOnce || !window_full => {}
                _ => break,
            }
            let Some(next) = self.queue.pop_front() else {
                break;
            };
            if self.unjudged > 0 {
                self.unjudged -= 1;
                if !self.may_still_receive(&next.message.topic) {
                    self.queue_retained -= usize::from(next.is_replay);
                    filled.refused += 1;
                    self.forget(&next, store, session);
                    continue;
                }
            }
            if let Err((next, error)) = self.send_next(next, store, session, now, &mut filled) {
                self.queue.push_front(next);
                filled.stopped = Some(error);
                break;
            }
        }
        self.sent += filled.sent;
        self.dropped += filled.dropped;
        filled
    }

    /// Writes a PUBLISH to this link, as its version, its limits and its mount point have it; false
    /// when it is too large for the client or not below that point, and then nothing was written.
    pub(crate) fn write(&mut self, message: Outgoing<'_>) -> bool {
        let Some(link) = &self.link else {
            return false;
        };
        let mut properties = Vec::new();
        let seen = match link.pass.mount() {
            Some(mount) => mount.hand_back(message, &mut properties),
            None => Some(message),
        };
        let Some(mut message) = seen else {
            return false;
        };
        let before = self.out.len();
        let mut new_alias = None;
        let topic = message.topic;
        if link.topic_alias_maximum > 0 {
            let known = self.aliases.get(topic).copied();
            let next = self.aliases.len() + 1;
            if let Some(alias) = known {
                (message.alias, message.topic) = (alias, "");
            } else if next <= usize::from(link.topic_alias_maximum) {
                message.alias = next as u16;
                new_alias = Some(next as u16);
            }
        }
        codec::publish(&mut self.out, link.version, &message);
        if self.out.len() - before > link.packet_bytes_max as usize {
            self.out.truncate(before);
            return false;
        }
        if let Some(alias) = new_alias {
            self.aliases.insert(topic.into(), alias);
        }
        true
    }

    /// Sends `inflight[resend_at]`, which an earlier link had. Once it was sent it is sent until
    /// it is acknowledged, also past its expiry, since the client may know its identifier.
    fn send_again(&mut self, store: &Store, session: u64, now: UnixMillis, filled: &mut Filled) {
        let Some(again) = self.inflight.get(self.resend_at) else {
            return;
        };
        let (id, received) = (again.id, again.received);
        let (message, grant) = (again.queued.message.clone(), again.queued.grant.clone());
        let (qos, retain) = (again.queued.qos, again.queued.retain);
        if received {
            self.resend_at += 1;
            self.acknowledge(PUBREL, id, ReasonCode::Success);
            return;
        }
        let may = self.may_still_receive(&message.topic);
        if may && self.write(outgoing(&message, &grant, qos, retain, true, id, now)) {
            self.resend_at += 1;
            filled.sent += 1;
            return;
        }
        filled.dropped += u64::from(may);
        filled.refused += u64::from(!may);
        if let Some(done) = self.inflight.remove(self.resend_at) {
            self.forget(&done.queued, store, session);
        }
    }

    fn may_still_receive(&self, topic: &str) -> bool {
        let link = self.link.as_ref();
        link.is_none_or(|link| link.pass.may_still_receive(topic))
    }

    /// Is done with a message: its room and its place in the journal are free.
    pub(crate) fn forget(&mut self, queued: &Queued, store: &Store, session: u64) {
        if !queued.is_replay {
            self.queue_bytes -= queued.message.bytes();
        }
        let number = queued.number;
        if number != 0
            && let Err(error) = store.put(Change::Delivered { session, number })
        {
            // Without it the message comes again after a restart.
            tracing::debug!(%error, "the end of a delivery is not journaled");
        }
    }

    /// Sends what was the front of the queue, or drops it for good.
    fn send_next(
        &mut self,
        mut next: Queued,
        store: &Store,
        session: u64,
        now: UnixMillis,
        filled: &mut Filled,
    ) -> Result<(), (Queued, JournalError)> {
        let (message, grant) = (next.message.clone(), next.grant.clone());
        let (qos, retain) = (next.qos, next.retain);
        let id = match qos {
            Qos::AtMostOnce => 0,
            _ => self.free_id(),
        };
        let is_expired = message.expires.is_some_and(|at| at <= now);
        let is_kept = next.number != 0 || next.place != 0;
        if !is_expired && qos != Qos::AtMostOnce && is_kept {
            // A QoS 1 message that comes again under another identifier does no harm.
            match (next.note_sent(store, session, id), qos) {
                (Ok(()), _) => self.out_after_journal |= qos == Qos::ExactlyOnce,
                (Err(JournalError::Full { .. }), Qos::AtLeastOnce) => {}
                (Err(error), _) => return Err((next, error)),
            }
        }
        let went =
            !is_expired && self.write(outgoing(&message, &grant, qos, retain, false, id, now));
        self.queue_retained -= usize::from(next.is_replay);
        filled.sent += u64::from(went);
        filled.dropped += u64::from(!went);
        if went && qos != Qos::AtMostOnce {
            self.inflight.push_back(Inflight {
                id,
                queued: next,
                received: false,
            });
            self.resend_at += 1;
            return Ok(());
        }
        self.forget(&next, store, session);
        Ok(())
    }

    /// Writes an acknowledgement to this link.
    pub(crate) fn acknowledge(&mut self, kind: u8, id: u16, reason: ReasonCode) {
        if let Some(link) = &self.link {
            let before = self.out.len();
            codec::ack(&mut self.out, link.version, kind, id, reason);
            self.acknowledgement_bytes += self.out.len() - before;
        }
    }

    /// The next packet identifier that is not in flight; there is one, since fewer than 65,535
    /// messages are.
    fn free_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = if id == u16::MAX { 1 } else { id + 1 };
            if !self.inflight.iter().any(|i| i.id == id) {
                return id;
            }
        }
    }
}

fn outgoing<'a>(
    message: &'a Stored,
    grant: &'a Grant,
    qos: Qos,
    retain: bool,
    dup: bool,
    id: u16,
    now: UnixMillis,
) -> Outgoing<'a> {
    Outgoing {
        topic: &message.topic,
        payload: &message.payload,
        qos,
        retain,
        dup,
        id,
        properties: Properties::stored(&message.properties),
        expiry_s: message.message(false).expiry_s(now),
        identifiers: &grant.identifiers,
        alias: 0,
    }
}

/// The bound on the bytes that wait for one client.
pub(crate) fn bytes_max(config: &MqttConfig) -> usize {
    usize::try_from(config.queue_bytes_max.0).unwrap_or(usize::MAX)
}
