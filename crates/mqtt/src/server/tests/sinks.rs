//! In-process subscribers: order, hold-back, publishing from inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::{Client, publish};
use super::{Running, until};
use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::message::{Delivery, Message, MessageSink, Qos, Room, Settled};
use crate::server::Server;
use crate::topic::TopicName;

/// Takes as many messages as it has room for.
#[derive(Default)]
struct Bounded {
    room: AtomicUsize,
    taken: Mutex<Vec<(String, String, bool)>>,
    more: Notify,
    calls: AtomicUsize,
}

impl Bounded {
    fn with_room(room: usize) -> Arc<Bounded> {
        Arc::new(Bounded {
            room: AtomicUsize::new(room),
            ..Bounded::default()
        })
    }

    fn make_room(&self, room: usize) {
        self.room.fetch_add(room, Ordering::SeqCst);
        self.more.notify_one();
    }

    fn payloads(&self) -> Vec<String> {
        self.taken
            .lock()
            .iter()
            .map(|(_, payload, _)| payload.clone())
            .collect()
    }
}

impl MessageSink for Bounded {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let taken = self.room.load(Ordering::SeqCst).min(batch.len());
        self.room.fetch_sub(taken, Ordering::SeqCst);
        let own = |m: &Message<'_>| {
            (
                m.topic.to_owned(),
                String::from_utf8(m.payload.to_vec()).unwrap(),
                m.retain,
            )
        };
        self.taken.lock().extend(batch[..taken].iter().map(own));
        if taken == batch.len() {
            Delivery::Taken
        } else {
            Delivery::HoldBack { taken }
        }
    }

    fn room(&self) -> Room<'_> {
        Box::pin(self.more.notified())
    }
}

/// Publishes what it gets to another topic, as a statement does.
struct Relay {
    server: Server,
    to: TopicName,
}

impl MessageSink for Relay {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        for (taken, message) in batch.iter().enumerate() {
            match self
                .server
                .publish(&self.to, message.payload, message.qos, false)
            {
                Ok(()) => {}
                Err(MqttError::Busy) => return Delivery::HoldBack { taken },
                Err(error) => panic!("{error}"),
            }
        }
        Delivery::Taken
    }

    fn room(&self) -> Room<'_> {
        Box::pin(self.server.room(&self.to))
    }
}

fn numbers(range: std::ops::RangeInclusive<u16>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

async fn send_numbers(client: &mut Client, topic: &str, range: std::ops::RangeInclusive<u16>) {
    let mut bytes = Vec::new();
    for n in range {
        bytes.extend(publish(topic, n.to_string().as_bytes(), 1, false, n));
    }
    client.send(&bytes).await;
}

#[tokio::test]
async fn a_sink_that_holds_back_gets_the_rest_once_and_only_then_come_the_acks() {
    let running = Running::start(MqttConfig::default()).await;
    let (bounded, free) = (Bounded::with_room(3), Bounded::with_room(1_000));
    running
        .server
        .subscribe("a/#".parse().unwrap(), bounded.clone());
    running.server.subscribe("#".parse().unwrap(), free.clone());
    let mut client = running.client("p").await;
    send_numbers(&mut client, "a/b", 1..=10).await;
    until("the bounded sink is full", || bounded.payloads().len() == 3).await;
    // The other sink is not behind, and other links go on.
    until("the free sink has all", || {
        free.payloads() == numbers(1..=10)
    })
    .await;
    let mut other = running.client("o").await;
    other.send(&publish("elsewhere", b"x", 1, false, 1)).await;
    assert_eq!(other.packet().await, (0x40, vec![0, 1]));
    let mut one = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), client.stream.peek(&mut one));
    assert!(early.await.is_err(), "acknowledged before the sink took it");
    bounded.make_room(4);
    until("four more", || bounded.payloads().len() == 7).await;
    bounded.make_room(100);
    for n in 1..=10 {
        assert_eq!(client.packet().await, (0x40, vec![0, n]));
    }
    assert_eq!(bounded.payloads(), numbers(1..=10));
    assert!(running.server.stats().held_total >= 1);
    running.stop().await;
}

#[tokio::test]
async fn a_publisher_that_comes_back_while_it_is_held_back_is_heard_once() {
    let running = Running::start(MqttConfig::default()).await;
    let (bounded, free) = (Bounded::with_room(1), Bounded::with_room(1_000));
    running
        .server
        .subscribe("a/#".parse().unwrap(), bounded.clone());
    running.server.subscribe("#".parse().unwrap(), free.clone());
    let mut fast = running.client("fast").await;
    fast.subscribe("a/+", 2).await;
    let mut publisher = Client::connect(running.port, "p", false).await;
    let both = |dup: u8| {
        let mut bytes = Vec::new();
        for (topic, id) in [("a/1", 1), ("a/2", 2)] {
            let mut one = publish(topic, topic.as_bytes(), 2, false, id);
            one[0] |= dup;
            bytes.extend(one);
        }
        bytes
    };
    publisher.send(&both(0)).await;
    for topic in ["a/1", "a/2"] {
        fast.expect(topic, topic).await;
    }
    for _ in 0..3 {
        let (mut back, is_kept) = Client::connect_present(running.port, "p", false).await;
        assert!(is_kept);
        publisher.expect_end().await;
        // It is heard meanwhile, but for QoS 2.
        back.subscribe("other", 1).await;
        back.send(&both(8)).await;
        publisher = back;
    }
    bounded.make_room(100);
    for id in [1, 2] {
        assert_eq!(publisher.packet().await, (0x50, vec![0, id]));
    }
    // The next one follows, in its place.
    publisher.send(&publish("a/3", b"a/3", 2, false, 3)).await;
    assert_eq!(publisher.packet().await, (0x50, vec![0, 3]));
    fast.expect("a/3", "a/3").await;
    fast.expect_nothing().await;
    for sink in [bounded, free] {
        assert_eq!(sink.payloads(), ["a/1", "a/2", "a/3"]);
    }
    running.stop().await;
}

/// Takes everything, and brings it to where it belongs when it is told to.
#[derive(Default)]
struct Bringing {
    taken: AtomicUsize,
    brought: tokio::sync::watch::Sender<usize>,
}

impl MessageSink for Bringing {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        self.taken.fetch_add(batch.len(), Ordering::SeqCst);
        Delivery::Taken
    }

    fn settled(&self) -> Option<Settled> {
        let taken = self.taken.load(Ordering::SeqCst);
        let mut brought = self.brought.subscribe();
        Some(Box::pin(async move {
            let _ = brought.wait_for(|brought| *brought >= taken).await;
        }))
    }
}

#[tokio::test]
async fn acknowledgements_wait_until_a_sink_has_brought_messages_to_their_place() {
    let running = Running::start(MqttConfig::default()).await;
    let sink = Arc::new(Bringing::default());
    let id = running.server.subscribe("#".parse().unwrap(), sink.clone());
    let mut client = running.client("p").await;
    for (qos, ack) in [(1, 0x40), (2, 0x50)] {
        let before = sink.taken.load(Ordering::SeqCst);
        client.send(&publish("a", b"x", qos, false, 7)).await;
        until("it is taken", || sink.taken.load(Ordering::SeqCst) > before).await;
        let mut one = [0];
        let early = tokio::time::timeout(Duration::from_millis(100), client.stream.peek(&mut one));
        assert!(early.await.is_err(), "acknowledged too early: {qos}");
        let stored = tokio::time::timeout(Duration::from_millis(20), running.server.all_stored());
        assert!(stored.await.is_err(), "told as stored too early");
        sink.brought.send_replace(before + 1);
        assert_eq!(client.packet().await, (ack, vec![0, 7]));
        running.server.all_stored().await.unwrap();
    }
    // A QoS 0 message waits for nothing: the next packet is read.
    client.send(&publish("a", b"x", 0, false, 0)).await;
    client.expect_nothing().await;
    // A sink that goes away lets go.
    client.send(&publish("a", b"x", 1, false, 8)).await;
    until("it is taken", || sink.taken.load(Ordering::SeqCst) == 4).await;
    running.server.unsubscribe(id);
    assert_eq!(client.packet().await, (0x40, vec![0, 8]));
    running.stop().await;
}

#[tokio::test]
async fn removing_a_sink_releases_the_publishers_that_it_holds() {
    let running = Running::start(MqttConfig::default()).await;
    let full = Bounded::with_room(0);
    let id = running.server.subscribe("a".parse().unwrap(), full.clone());
    let mut client = running.client("p").await;
    send_numbers(&mut client, "a", 1..=2).await;
    until("the sink was asked", || {
        full.calls.load(Ordering::SeqCst) > 0
    })
    .await;
    running.server.unsubscribe(id);
    assert_eq!(client.packet().await, (0x40, vec![0, 1]));
    assert_eq!(client.packet().await, (0x40, vec![0, 2]));
    assert_eq!(full.payloads(), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn a_batch_of_many_topics_reaches_each_subscriber_in_order() {
    let running = Running::start(MqttConfig::default()).await;
    let (odd, all) = (Bounded::with_room(1_000), Bounded::with_room(1_000));
    running
        .server
        .subscribe("t/odd".parse().unwrap(), odd.clone());
    running
        .server
        .subscribe("t/+".parse().unwrap(), all.clone());
    let mut subscriber = running.client("s").await;
    subscriber.subscribe("t/odd", 0).await;
    let mut client = running.client("p").await;
    let mut bytes = Vec::new();
    for n in 1..=100u16 {
        let topic = if n % 2 == 1 { "t/odd" } else { "t/even" };
        bytes.extend(publish(topic, n.to_string().as_bytes(), 0, false, 0));
    }
    client.send(&bytes).await;
    until("all came", || all.payloads() == numbers(1..=100)).await;
    let expected: Vec<String> = (1..=100).step_by(2).map(|n: u16| n.to_string()).collect();
    until("the odd came", || odd.payloads() == expected).await;
    for payload in &expected {
        subscriber.expect("t/odd", payload).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_new_sink_gets_the_retained_messages_with_their_flag() {
    let running = Running::start(MqttConfig::default()).await;
    let topic: TopicName = "r/a".parse().unwrap();
    running
        .server
        .publish(&topic, b"kept", Qos::AtLeastOnce, true)
        .unwrap();
    let sink = Bounded::with_room(1_000);
    running
        .server
        .subscribe("r/#".parse().unwrap(), sink.clone());
    until("the retained message came", || {
        !sink.taken.lock().is_empty()
    })
    .await;
    running
        .server
        .publish(&topic, b"live", Qos::AtMostOnce, true)
        .unwrap();
    until("the live one came", || sink.taken.lock().len() == 2).await;
    let own = |text: &str, retain| ("r/a".to_owned(), text.to_owned(), retain);
    assert_eq!(*sink.taken.lock(), [own("kept", true), own("live", false)]);
    running.stop().await;
}

/// Takes what flows at once, and retained messages when it is told to.
#[derive(Default)]
struct Late {
    is_open: AtomicBool,
    taken: Mutex<Vec<(String, String)>>,
    opened: Notify,
}

impl Late {
    fn payloads(&self, topic: &str) -> Vec<String> {
        let taken = self.taken.lock();
        let own = taken.iter().filter(|(of, _)| of == topic);
        own.map(|(_, payload)| payload.clone()).collect()
    }
}

impl MessageSink for Late {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        for (taken, message) in batch.iter().enumerate() {
            if message.retain && !self.is_open.load(Ordering::SeqCst) {
                return Delivery::HoldBack { taken };
            }
            let payload = String::from_utf8(message.payload.to_vec()).unwrap();
            self.taken.lock().push((message.topic.to_owned(), payload));
        }
        Delivery::Taken
    }

    fn room(&self) -> Room<'_> {
        Box::pin(self.opened.notified())
    }
}

#[tokio::test]
async fn a_retained_message_does_not_follow_the_one_that_replaced_it() {
    let running = Running::start(MqttConfig::default()).await;
    let say = |topic: &str, payload: &str| {
        let (topic, payload) = (topic.parse().unwrap(), payload.as_bytes());
        let said = running
            .server
            .publish(&topic, payload, Qos::AtLeastOnce, true);
        said.unwrap();
    };
    // More than go to a sink at a time.
    for n in 0..3_000 {
        say(&format!("r/{n:04}"), "old");
    }
    let sink = Arc::new(Late::default());
    running
        .server
        .subscribe("r/#".parse().unwrap(), sink.clone());
    // The first that waits, the last, and one that is cleared.
    let replaced = [("r/0000", "new"), ("r/2999", "new"), ("r/2000", "")];
    let mut client = running.client("p").await;
    for (id, (topic, payload)) in (1..).zip(replaced) {
        let bytes = publish(topic, payload.as_bytes(), 1, true, id);
        client.send(&bytes).await;
        assert_eq!(client.packet().await, (0x40, id.to_be_bytes().to_vec()));
    }
    sink.is_open.store(true, Ordering::SeqCst);
    sink.opened.notify_one();
    say("r/end", "end");
    until("all have come", || !sink.payloads("r/end").is_empty()).await;
    for (topic, payload) in replaced {
        assert_eq!(sink.payloads(topic), [payload], "{topic}");
    }
    assert_eq!(sink.payloads("r/2001"), ["old"]);
    assert_eq!(sink.taken.lock().len(), 3_001);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_publish_to_sinks_and_hold_back_through_each_other() {
    let running = Running::start(MqttConfig::default()).await;
    let end = Bounded::with_room(10);
    let relay = |to: &str| {
        let (server, to) = (running.server.clone(), to.parse().unwrap());
        Arc::new(Relay { server, to })
    };
    running
        .server
        .subscribe("one".parse().unwrap(), relay("two"));
    running
        .server
        .subscribe("two".parse().unwrap(), relay("three"));
    running
        .server
        .subscribe("three".parse().unwrap(), end.clone());
    let mut subscriber = running.client("s").await;
    subscriber.subscribe("three", 0).await;
    let mut client = running.client("p").await;
    send_numbers(&mut client, "one", 1..=1_000).await;
    until("the end is full", || end.payloads().len() == 10).await;
    end.make_room(10_000);
    until("all came through", || end.payloads() == numbers(1..=1_000)).await;
    for n in 1..=1_000u16 {
        assert_eq!(client.packet().await.1, n.to_be_bytes());
        subscriber.expect("three", &n.to_string()).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_feeds_itself_neither_recurses_nor_blocks_others() {
    let running = Running::start(MqttConfig::default()).await;
    let (server, to) = (running.server.clone(), "loop".parse().unwrap());
    let id = running
        .server
        .subscribe("loop".parse().unwrap(), Arc::new(Relay { server, to }));
    running
        .server
        .publish(&"loop".parse().unwrap(), b"1", Qos::AtMostOnce, false)
        .unwrap();
    until("it goes round", || {
        running.server.stats().messages_published_total > 1_000
    })
    .await;
    let mut client = running.client("p").await;
    client.send(&publish("loop", b"2", 1, false, 1)).await;
    assert_eq!(client.packet().await, (0x40, vec![0, 1]));
    running.server.unsubscribe(id);
    running.stop().await;
}

#[tokio::test]
async fn the_process_is_told_to_wait_when_a_sink_is_far_behind() {
    let running = Running::start(MqttConfig::default()).await;
    let sink = Bounded::with_room(0);
    running.server.subscribe("a".parse().unwrap(), sink.clone());
    let topic: TopicName = "a".parse().unwrap();
    let mut published = 0;
    let outcome = loop {
        match running.server.publish(&topic, b"x", Qos::AtMostOnce, false) {
            Ok(()) => published += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(outcome, MqttError::Busy), "{outcome}");
    assert_eq!(published, crate::limits::BACKLOG_MESSAGES_MAX);
    sink.make_room(usize::MAX / 2);
    running.server.room(&topic).await;
    running
        .server
        .publish(&topic, b"x", Qos::AtMostOnce, false)
        .unwrap();
    until("all came", || sink.taken.lock().len() == published + 1).await;
    let large = vec![0; 2 << 20];
    let refused = running
        .server
        .publish(&topic, &large, Qos::AtMostOnce, false)
        .unwrap_err();
    assert!(matches!(refused, MqttError::TooLarge { .. }), "{refused}");
    running.stop().await;
}
