//! Heartbeats and acknowledges on their way into topics, as they came, keyed by their agent.
//!
//! Whoever answers an agent puts the bytes into a bounded buffer and goes on: no answer waits for
//! the event store. One task empties the buffer in order, one batch at a time, so an agent's
//! messages stay in theirs; it lets messages gather for a moment, since a batch of hundreds costs
//! the store little more than one of one; a batch that is not taken is tried again, with growing waits, and may so
//! be stored twice. When the buffer is full its oldest messages make room and are counted; so is a
//! message that the store will never take.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use base::{ByteSize, HumanDuration, UnixMillis};
use bytes::{Bytes, BytesMut};
use metrics::counter;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// Keys under `fleet.forward`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardConfig {
    /// The topic of heartbeats; none: they are not forwarded.
    pub heartbeats: Option<String>,
    /// The topic of acknowledges; none: they are not forwarded.
    pub acknowledges: Option<String>,
    /// Bytes that may wait for the event store.
    pub buffer_bytes_max: ByteSize,
    /// How long messages gather before they are stored together.
    pub linger: HumanDuration,
}

impl Default for ForwardConfig {
    fn default() -> ForwardConfig {
        ForwardConfig {
            heartbeats: None,
            acknowledges: None,
            buffer_bytes_max: ByteSize(32 << 20),
            linger: HumanDuration(limits::FORWARD_LINGER),
        }
    }
}

impl ForwardConfig {
    /// Whether anything is forwarded.
    pub fn is_on(&self) -> bool {
        self.heartbeats.is_some() || self.acknowledges.is_some()
    }
}

/// A message for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The agent.
    pub key: Arc<str>,
    /// The message as the agent sent it, unpacked.
    pub value: Bytes,
    /// When it came.
    pub at: UnixMillis,
}

/// Where messages go: topics of the event store.
#[async_trait]
pub trait Topics: Send + Sync {
    /// Stores messages in a topic, those of one key in their order; durable when this returns.
    async fn store(&self, topic: &str, messages: Vec<Message>) -> Result<(), TopicsError>;
}

/// Why messages were not stored.
#[derive(Debug)]
pub enum TopicsError {
    /// It may work later.
    Later(String),
    /// The store will never take it, such as a message that is too large.
    Never(String),
}

/// The messages that wait.
#[derive(Debug)]
pub struct Forward {
    config: ForwardConfig,
    waiting: Mutex<Waiting>,
    /// Nothing waited before.
    begun: Notify,
    /// A whole batch waits.
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<(Kind, Message)>,
    bytes: usize,
    /// Where the next message's bytes go.
    piece: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Heartbeat,
    Acknowledge,
}

impl Forward {
    /// Nothing waits yet.
    pub fn new(config: ForwardConfig) -> Forward {
        Forward {
            config,
            waiting: Mutex::default(),
            begun: Notify::new(),
            filled: Notify::new(),
        }
    }

    /// Takes a heartbeat.
    pub fn heartbeat(&self, agent: &Arc<str>, body: &Bytes, now: UnixMillis) {
        if self.config.heartbeats.is_some() {
            self.take(Kind::Heartbeat, agent, body, now);
        }
    }

    /// Takes an acknowledge.
    pub fn acknowledge(&self, agent: &Arc<str>, body: &Bytes, now: UnixMillis) {
        if self.config.acknowledges.is_some() {
            self.take(Kind::Acknowledge, agent, body, now);
        }
    }

    fn take(&self, kind: Kind, agent: &Arc<str>, body: &[u8], now: UnixMillis) {
        let message = Message {
            key: agent.clone(),
            value: Bytes::new(),
            at: now,
        };
        let max = usize::try_from(self.config.buffer_bytes_max.0).unwrap_or(usize::MAX);
        let (dropped, before, after) = {
            let mut waiting = self.waiting.lock();
            let before = waiting.bytes;
            let dropped = waiting.push(kind, message, body, max);
            (dropped, before, waiting.bytes)
        };
        if dropped > 0 {
            count("dropped", dropped);
        }
        // Only what changes something wakes the task.
        if before == 0 {
            self.begun.notify_one();
        }
        let is_batch = |bytes: usize| bytes >= limits::FORWARD_BATCH_BYTES_MAX;
        if is_batch(after) && !is_batch(before) {
            self.filled.notify_one();
        }
    }

    /// Lets messages gather, unless a batch is there or it is time to stop.
    async fn gathers(&self, stop: &CancellationToken) {
        let is_between = |bytes| (1..limits::FORWARD_BATCH_BYTES_MAX).contains(&bytes);
        let linger = self.config.linger.0;
        if linger.is_zero() || !is_between(self.waiting_bytes()) {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(linger) => {}
            () = self.filled.notified() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.lock().bytes
    }

    fn topic(&self, kind: Kind) -> &str {
        let topic = match kind {
            Kind::Heartbeat => &self.config.heartbeats,
            Kind::Acknowledge => &self.config.acknowledges,
        };
        topic.as_deref().unwrap_or_default()
    }
}

impl Waiting {
    /// Adds a message; tells how many were dropped for it.
    fn push(&mut self, kind: Kind, mut message: Message, body: &[u8], max: usize) -> u64 {
        let mut dropped = 0;
        let bytes = cost(&message) + body.len();
        if bytes > max {
            return 1;
        }
        while self.bytes + bytes > max {
            let Some((_, oldest)) = self.messages.pop_front() else {
                break;
            };
            self.bytes -= cost(&oldest);
            dropped += 1;
        }
        self.bytes += bytes;
        message.value = self.copied(body);
        self.messages.push_back((kind, message));
        dropped
    }

    /// The bytes in memory of the queue's own.
    fn copied(&mut self, body: &[u8]) -> Bytes {
        if body.len() > limits::FORWARD_PIECE_BYTES / 4 {
            return Bytes::copy_from_slice(body);
        }
        if self.piece.capacity() < body.len() {
            self.piece = BytesMut::with_capacity(limits::FORWARD_PIECE_BYTES);
        }
        self.piece.extend_from_slice(body);
        self.piece.split().freeze()
    }

    /// The oldest messages, as many as one batch may hold, those for the same topic only.
    fn batch(&mut self) -> Option<(Kind, Vec<Message>)> {
        let kind = self.messages.front()?.0;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((next, message)) = self.messages.front() {
            bytes += cost(message);
            let is_full = bytes > limits::FORWARD_BATCH_BYTES_MAX && !batch.is_empty();
            if *next != kind || is_full {
                break;
            }
            let Some((_, message)) = self.messages.pop_front() else {
                break;
            };
            self.bytes -= cost(&message);
            batch.push(message);
        }
        Some((kind, batch))
    }
}

/// Runs until `stop`; what waits then has a moment to go out.
pub async fn run(forward: Arc<Forward>, topics: Arc<dyn Topics>, stop: CancellationToken) {
    loop {
        forward.gathers(&stop).await;
        let batch = forward.waiting.lock().batch();
        let Some((kind, messages)) = batch else {
            tokio::select! {
                () = forward.begun.notified() => continue,
                () = stop.cancelled() => return,
            }
        };
        let topic = forward.topic(kind);
        let stored = store(topics.as_ref(), topic, messages);
        tokio::select! {
            () = stored => {}
            () = ends(&stop) => return,
        }
    }
}

/// A while after the stop.
async fn ends(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(limits::FORWARD_STOP_WAIT).await;
}

/// Stores a batch, however long that takes; a message that is never taken is left out.
async fn store(topics: &dyn Topics, topic: &str, messages: Vec<Message>) {
    let mut left: VecDeque<Vec<Message>> = VecDeque::from([messages]);
    let mut wait = limits::FORWARD_RETRY;
    while let Some(batch) = left.front() {
        let why = match topics.store(topic, batch.clone()).await {
            Ok(()) => {
                count("stored", batch.len() as u64);
                left.pop_front();
                wait = limits::FORWARD_RETRY;
                continue;
            }
            Err(TopicsError::Never(why)) => {
                let mut batch = left.pop_front().unwrap_or_default();
                match batch.len() {
                    0 | 1 => {
                        let agent = batch.first().map(|message| &*message.key);
                        tracing::warn!(topic, agent, why, "a message cannot be forwarded");
                        count("refused", 1);
                    }
                    // Only some of them may be at fault; the halves stay in order.
                    len => {
                        let second = batch.split_off(len / 2);
                        left.push_front(second);
                        left.push_front(batch);
                    }
                }
                continue;
            }
            Err(TopicsError::Later(why)) => why,
        };
        counter!("thalweg_fleet_forward_failures_total").increment(1);
        if wait == limits::FORWARD_RETRY {
            tracing::warn!(topic, why, "what agents say cannot be forwarded for now");
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(limits::FORWARD_RETRY_MAX);
    }
}

fn count(result: &'static str, messages: u64) {
    counter!("thalweg_fleet_forwarded_total", "result" => result).increment(messages);
}

/// Bytes that a message holds, its place in the queue included.
fn cost(message: &Message) -> usize {
    message.value.len() + message.key.len() + MESSAGE_BYTES
}

/// What a message takes beside its bytes.
const MESSAGE_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LINGER: Duration = Duration::from_millis(50);

    /// Topics that can be away, and take no message above a size.
    #[derive(Default)]
    struct Fake {
        is_away: Mutex<bool>,
        stored: Mutex<Vec<(String, Message)>>,
        tries: Mutex<usize>,
        max: usize,
    }

    #[async_trait]
    impl Topics for Fake {
        async fn store(&self, topic: &str, messages: Vec<Message>) -> Result<(), TopicsError> {
            *self.tries.lock() += 1;
            if *self.is_away.lock() {
                return Err(TopicsError::Later("away".to_owned()));
            }
            if messages
                .iter()
                .any(|message| message.value.len() > self.max)
            {
                return Err(TopicsError::Never("too large".to_owned()));
            }
            let stored = messages.into_iter().map(|m| (topic.to_owned(), m));
            self.stored.lock().extend(stored);
            Ok(())
        }
    }

    struct World {
        forward: Arc<Forward>,
        topics: Arc<Fake>,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    impl World {
        fn new(buffer: u64, is_away: bool) -> World {
            let forward = Arc::new(Forward::new(ForwardConfig {
                heartbeats: Some("beats".to_owned()),
                acknowledges: Some("acks".to_owned()),
                buffer_bytes_max: ByteSize(buffer),
                linger: HumanDuration(LINGER),
            }));
            let topics = Arc::new(Fake {
                is_away: Mutex::new(is_away),
                max: 1_000,
                ..Fake::default()
            });
            let stop = CancellationToken::new();
            let task = tokio::spawn(run(forward.clone(), topics.clone(), stop.clone()));
            World {
                forward,
                topics,
                stop,
                task,
            }
        }

        fn beat(&self, agent: &str, body: &str) {
            let (agent, body) = (Arc::from(agent), Bytes::from(body.to_owned()));
            self.forward.heartbeat(&agent, &body, UnixMillis(0));
        }

        fn stored(&self) -> Vec<String> {
            let stored = self.topics.stored.lock();
            let text = |(topic, message): &(String, Message)| {
                let value = std::str::from_utf8(&message.value).unwrap();
                format!("{topic} {} {value}", message.key)
            };
            stored.iter().map(text).collect()
        }

        async fn until(&self, count: usize) {
            let all = async {
                while self.topics.stored.lock().len() < count {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), all)
                .await
                .unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_while_the_store_was_away_is_stored_in_order_when_it_is_back() {
        let world = World::new(1 << 20, true);
        for n in 0..100 {
            world.beat("a", &n.to_string());
            world.forward.acknowledge(
                &Arc::from("a"),
                &Bytes::from(format!("ack {n}")),
                UnixMillis(0),
            );
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(world.stored().is_empty());
        let tries = *world.topics.tries.lock();
        assert!((5..100).contains(&tries), "{tries} tries in five minutes");
        *world.topics.is_away.lock() = false;
        world.until(200).await;
        let stored = world.stored();
        let beats: Vec<&String> = stored.iter().filter(|m| m.starts_with("beats")).collect();
        let wanted: Vec<String> = (0..100).map(|n| format!("beats a {n}")).collect();
        assert_eq!(beats, wanted.iter().collect::<Vec<_>>());
        assert!(stored.contains(&"acks a ack 99".to_owned()));
        assert_eq!(world.forward.waiting_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_gather_for_a_moment_or_until_a_batch_is_there() {
        let world = World::new(4 << 20, false);
        let begin = tokio::time::Instant::now();
        for n in 0..100 {
            world.beat("a", &n.to_string());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.until(100).await;
        let tries = *world.topics.tries.lock();
        assert!((10..=25).contains(&tries), "{tries} batches in a second");
        assert!(begin.elapsed() < Duration::from_millis(1_200));
        // Far more than a batch at once: nobody lingers for it.
        let begin = tokio::time::Instant::now();
        for n in 0..3_000 {
            world.beat("a", &format!("{n:0>900}"));
        }
        world.until(3_000).await;
        assert!(begin.elapsed() < 2 * LINGER, "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_buffer_is_bounded_and_the_oldest_make_room() {
        let world = World::new(10 * (MESSAGE_BYTES as u64 + 3), true);
        tokio::task::yield_now().await;
        // The first one is on its way already when the others come.
        world.beat("a", "00");
        tokio::time::sleep(LINGER + Duration::from_millis(1)).await;
        for n in 1..50 {
            world.beat("a", &format!("{n:02}"));
            assert!(world.forward.waiting_bytes() <= 10 * (MESSAGE_BYTES + 3));
        }
        *world.topics.is_away.lock() = false;
        world.until(11).await;
        let mut wanted = vec!["beats a 00".to_owned()];
        wanted.extend((40..50).map(|n| format!("beats a {n}")));
        assert_eq!(world.stored(), wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_never_taken_holds_nobody_up() {
        let world = World::new(1 << 20, false);
        for body in ["1", "2", &"x".repeat(2_000), "3", "4"] {
            world.beat("a", body);
        }
        world.until(4).await;
        let wanted = ["1", "2", "3", "4"].map(|n| format!("beats a {n}"));
        assert_eq!(world.stored(), wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_at_the_stop_has_a_moment_and_no_more() {
        let mut world = World::new(1 << 20, false);
        world.beat("a", "1");
        world.stop.cancel();
        (&mut world.task).await.unwrap();
        assert_eq!(world.stored(), ["beats a 1"]);
        let world = World::new(1 << 20, true);
        world.beat("a", "1");
        world.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(30), world.task);
        ended
            .await
            .expect("it does not wait for the store")
            .unwrap();
    }
}
