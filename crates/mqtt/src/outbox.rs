//! What waits for one client and what it has not acknowledged: the state inside a session.
//!
//! `inflight[..resend_at]` was sent on this link; the rest of it on an earlier one, and is sent
//! again before the queue goes on. See [`crate::session`] for the rules of order and of holding.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use base::UnixMillis;

use crate::codec::{self, Version};
use crate::config::MqttConfig;
use crate::limits::WRITE_BYTES_FILL;
use crate::message::Qos;
use crate::session::LinkRef;
use crate::store::Stored;
use crate::topic::TopicFilter;

/// A session's state: what it subscribes to, what waits for it, what it has not acknowledged.
pub(crate) struct Outbox {
    pub(crate) link: Option<LinkRef>,
    pub(crate) subscriptions: HashMap<TopicFilter, Qos>,
    pub(crate) out: Vec<u8>,
    /// Of the output, what answers the client's own packets.
    pub(crate) acknowledgement_bytes: usize,
    pub(crate) queue: VecDeque<Queued>,
    /// Of the queue, those that are retained messages, which cost no memory of their own.
    pub(crate) queue_retained: usize,
    /// Of the queue (but its retained ones) and of what is in flight.
    pub(crate) queue_bytes: usize,
    pub(crate) inflight: VecDeque<Inflight>,
    pub(crate) resend_at: usize,
    pub(crate) next_id: u16,
    pub(crate) exactly_once: HashSet<u16>,
    pub(crate) full_since: Option<UnixMillis>,
    pub(crate) lagging: bool,
    pub(crate) last_seen: UnixMillis,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) ended: bool,
}

/// A message in the queue or in flight.
pub(crate) struct Queued {
    pub(crate) message: Arc<Stored>,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    /// Its number in the journal; 0 when it is not there.
    pub(crate) number: u64,
}

/// A QoS 1 message that was sent and is not acknowledged.
pub(crate) struct Inflight {
    pub(crate) id: u16,
    pub(crate) queued: Queued,
}

impl Outbox {
    pub(crate) fn new(now: UnixMillis) -> Self {
        Outbox {
            link: None,
            subscriptions: HashMap::new(),
            out: Vec::new(),
            acknowledgement_bytes: 0,
            queue: VecDeque::new(),
            queue_retained: 0,
            queue_bytes: 0,
            inflight: VecDeque::new(),
            resend_at: 0,
            next_id: 1,
            exactly_once: HashSet::new(),
            full_since: None,
            lagging: false,
            last_seen: now,
            sent: 0,
            dropped: 0,
            ended: false,
        }
    }

    pub(crate) fn is_link(&self, number: u64) -> bool {
        self.link.as_ref().is_some_and(|l| l.number == number)
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
        if queued.retain {
            self.queue_retained += 1;
        } else {
            self.queue_bytes += queued.message.bytes();
        }
        self.queue.push_back(queued);
    }

    /// Moves messages from the queue to the output, as far as both have room; tells how many.
    pub(crate) fn fill(&mut self, config: &MqttConfig) -> u64 {
        let Some(version) = self.link.as_ref().map(|l| l.version) else {
            return 0;
        };
        let mut sent = 0;
        while self.out.len() < WRITE_BYTES_FILL {
            if let Some(again) = self.inflight.get(self.resend_at) {
                again.queued.encode(&mut self.out, version, true, again.id);
                self.resend_at += 1;
                sent += 1;
                continue;
            }
            let window_full = self.inflight.len() >= usize::from(config.inflight_max);
            match self.queue.front() {
                Some(next) if next.qos == Qos::AtMostOnce || !window_full => {}
                _ => break,
            }
            let Some(next) = self.queue.pop_front() else {
                break;
            };
            self.queue_retained -= usize::from(next.retain);
            sent += 1;
            if next.qos == Qos::AtMostOnce {
                next.encode(&mut self.out, version, false, 0);
                if !next.retain {
                    self.queue_bytes -= next.message.bytes();
                }
                continue;
            }
            let id = self.free_id();
            next.encode(&mut self.out, version, false, id);
            self.inflight.push_back(Inflight { id, queued: next });
            self.resend_at += 1;
        }
        self.sent += sent;
        sent
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

impl Queued {
    fn encode(&self, out: &mut Vec<u8>, version: Version, dup: bool, id: u16) {
        let Stored { topic, payload, .. } = &*self.message;
        codec::publish(out, version, topic, payload, self.qos, self.retain, dup, id);
    }
}

/// The bound on the bytes that wait for one client.
pub(crate) fn bytes_max(config: &MqttConfig) -> usize {
    usize::try_from(config.queue_bytes_max.0).unwrap_or(usize::MAX)
}
