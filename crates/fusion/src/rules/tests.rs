//! Rules between the real MQTT server and the real event store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, SystemClock};
use bytes::Bytes;
use mqtt::{Delivery, Message, MessageSink, PATH, PropertyBlock, Qos, Server};
use parking_lot::Mutex;
use serde_json::json;
use streams::{
    ConsumedRecord, ConsumerConfig, EventStore, ProduceBatch, Record, SeekTo, TopicName,
};

use super::*;
use crate::rules::config::Way;
use crate::tests::house::{DEADLINE, stores, wait};

struct Place {
    folder: tempfile::TempDir,
    store: Arc<dyn EventStore>,
    mqtt: Server,
    rules: Arc<Rules>,
}

impl Place {
    async fn open(configured: &[TopicRule]) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let (store, mqtt) = stores(folder.path());
        let rules = opened(folder.path(), configured, &store, &mqtt);
        Place {
            folder,
            store,
            mqtt,
            rules,
        }
    }

    async fn reopen(&mut self) {
        self.rules.close().await;
        self.rules = opened(self.folder.path(), &[], &self.store, &self.mqtt);
    }

    async fn add(&self, rule: serde_json::Value) {
        self.rules.add(of(rule)).await.unwrap();
    }

    fn publish(&self, topic: &str, payload: &str) {
        let topic = topic.parse().unwrap();
        let payload = payload.as_bytes();
        let published = self.mqtt.publish(&topic, payload, Qos::AtLeastOnce, false);
        published.unwrap();
    }

    async fn produce(&self, topic: &str, key: &str, value: Option<&str>) {
        let topic: TopicName = topic.parse().unwrap();
        self.store.topic_or_create(&topic).await.unwrap();
        let batch = ProduceBatch {
            topic,
            partition: 0,
            records: vec![Record {
                key: Some(Bytes::copy_from_slice(key.as_bytes())),
                value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
                headers: vec![("h".to_owned(), Some(Bytes::from_static(b"1")))],
                timestamp: None,
            }],
            sequence: None,
        };
        self.store.produce(batch).await.unwrap();
    }

    /// The records of a topic's partitions, once there are at least so many.
    async fn records(&self, topic: &str, count: usize) -> Vec<ConsumedRecord> {
        let topic: TopicName = topic.parse().unwrap();
        let info = self.store.topic_or_create(&topic).await.unwrap();
        let all: Vec<_> = (0..info.partitions).map(|p| (topic.clone(), p)).collect();
        let config = ConsumerConfig::alone("test");
        let mut consumer = self.store.consumer(config).await.unwrap();
        consumer.assign(all.clone()).await.unwrap();
        for (topic, partition) in &all {
            consumer
                .seek(topic, *partition, SeekTo::Beginning)
                .await
                .unwrap();
        }
        let (mut found, deadline) = (Vec::new(), Instant::now() + DEADLINE);
        while found.len() < count {
            assert!(
                Instant::now() < deadline,
                "{topic} never had {count} records"
            );
            found.extend(
                consumer
                    .poll(Duration::from_millis(50), 1 << 20)
                    .await
                    .unwrap(),
            );
        }
        found
    }

    fn status(&self, name: &str) -> RuleStatus {
        let mut all = self.rules.list().into_iter();
        all.find(|status| status.rule.name == name).unwrap()
    }

    async fn until(&self, name: &str, what: &str, reached: impl Fn(&RuleStatus) -> bool) {
        wait(what, || reached(&self.status(name))).await;
    }
}

/// Keeps what is published: topic, payload, user properties, and whether it was to be retained.
#[derive(Default)]
struct Heard(Mutex<Vec<Published>>);

type Published = (String, String, Vec<(String, String)>, bool);

impl Heard {
    fn on(mqtt: &Server, filter: &str) -> Arc<Heard> {
        let heard = Arc::new(Heard::default());
        mqtt.subscribe(filter.parse().unwrap(), heard.clone());
        heard
    }

    fn topics(&self) -> Vec<String> {
        self.0
            .lock()
            .iter()
            .map(|(topic, ..)| topic.clone())
            .collect()
    }
}

impl MessageSink for Heard {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let heard = batch.iter().map(|message| {
            let user = message.properties.user();
            let user = user.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let payload = String::from_utf8(message.payload.to_vec()).unwrap();
            (
                message.topic.to_owned(),
                payload,
                user.collect(),
                message.retain_asked,
            )
        });
        self.0.lock().extend(heard);
        Delivery::Taken
    }
}

fn opened(
    dir: &Path,
    configured: &[TopicRule],
    store: &Arc<dyn EventStore>,
    mqtt: &Server,
) -> Arc<Rules> {
    let (path, clock) = (dir.join("rules.json"), Arc::new(SystemClock));
    Rules::open(
        &path,
        "here",
        configured,
        store.clone(),
        mqtt.clone(),
        clock,
    )
    .unwrap()
}

fn of(rule: serde_json::Value) -> TopicRule {
    serde_json::from_value(rule).unwrap()
}

fn texts(records: &[ConsumedRecord]) -> Vec<(String, String)> {
    let text = |bytes: &Option<Bytes>| {
        let bytes = bytes.clone().unwrap_or_default();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let mut texts: Vec<_> = records
        .iter()
        .map(|r| (text(&r.key), text(&r.value)))
        .collect();
    texts.sort();
    texts
}

/// An intake that nobody empties.
fn intake(rule: serde_json::Value) -> Arc<Intake> {
    let config = of(rule);
    let Way::ToStore { topic, key, .. } = config.way().unwrap() else {
        panic!("a rule into the store");
    };
    let rule = Rule {
        carrier: Carrier::new("here", &config.name),
        ends: Arc::default(),
        config,
        problem: Mutex::default(),
        taken: AtomicU64::new(0),
        passed: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        looped: AtomicU64::new(0),
    };
    Arc::new(Intake::new(Arc::new(rule), topic, key))
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_become_records_with_key_and_headers() {
    let place = Place::open(&[]).await;
    place
        .add(json!({"name": "in", "from": "mqtt:plant/+/t", "to": "kafka:t.{2}", "key": "{2}/{header:unit}"}))
        .await;
    let mut block = PropertyBlock::default();
    block.user("unit", "C");
    block.content_type("text/plain");
    let message = Message {
        topic: "plant/a/t",
        payload: b"21",
        qos: Qos::AtLeastOnce,
        // A record of 1970 would be past its topic's retention.
        received: SystemClock.now(),
        properties: block.properties(),
        ..Message::default()
    };
    place.mqtt.publish_message(&message, false).unwrap();
    place.publish("plant/b/t", "22");
    place.publish("plant/b/u", "no");
    let records = place.records("t.a", 1).await;
    assert_eq!(texts(&records), [("a/C".to_owned(), "21".to_owned())]);
    let headers: Vec<(&str, &[u8])> = records[0]
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref().unwrap()))
        .collect();
    assert_eq!(
        headers,
        [
            ("mqtt-topic", &b"plant/a/t"[..]),
            ("mqtt-content-type", b"text/plain"),
            ("unit", b"C"),
            (PATH, b"here/rule:in"),
        ]
    );
    // Without the property that the key names, there is none.
    let records = place.records("t.b", 1).await;
    assert_eq!(records[0].key, None);
    place
        .until("in", "both", |status| status.passed_total == 2)
        .await;
    assert_eq!(place.status("in").taken_total, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_is_in_the_store() {
    let place = Place::open(&[]).await;
    place
        .add(json!({"name": "in", "from": "mqtt:a", "to": "kafka:t"}))
        .await;
    for n in 0..200 {
        place.publish("a", &n.to_string());
        place.mqtt.all_stored().await.unwrap();
        let info = place.store.topic(&"t".parse().unwrap()).await.unwrap();
        let stored: i64 = info.partition_offsets.iter().map(|range| range.end).sum();
        assert_eq!(stored, n + 1);
    }
    let records = place.records("t", 200).await;
    assert!(
        records
            .iter()
            .all(|record| record.key.as_deref() == Some(b"a"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_become_messages_and_the_position_is_kept() {
    let mut place = Place::open(&[]).await;
    place.produce("t", "before", Some("0")).await;
    let heard = Heard::on(&place.mqtt, "out/#");
    place
        .add(json!({"name": "out", "from": "kafka:t", "to": "mqtt:out/{key}", "retain": true}))
        .await;
    place.produce("t", "a", Some("1")).await;
    place.produce("t", "b", None).await;
    wait("two messages", || heard.0.lock().len() == 2).await;
    let user = |n: &str| {
        vec![
            ("h".to_owned(), n.to_owned()),
            (PATH.to_owned(), "here/rule:out".to_owned()),
        ]
    };
    assert_eq!(
        *heard.0.lock(),
        [
            ("out/a".to_owned(), "1".to_owned(), user("1"), true),
            ("out/b".to_owned(), String::new(), user("1"), true),
        ]
    );
    assert_eq!(place.mqtt.retained(&"#".parse().unwrap(), 9).len(), 1);
    place.reopen().await;
    place.produce("t", "c", Some("3")).await;
    wait("the third", || heard.0.lock().len() >= 3).await;
    assert_eq!(heard.topics(), ["out/a", "out/b", "out/c"]);
    // A reader of all, in a group of its own.
    place
        .add(json!({"name": "all", "from": "kafka:t", "to": "mqtt:all/{key}", "start": "earliest"}))
        .await;
    place
        .until("all", "all four", |status| status.passed_total == 4)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_against_each_other_bring_nothing_back() {
    let place = Place::open(&[]).await;
    place
        .add(json!({"name": "in", "from": "mqtt:a/+", "to": "kafka:t", "key": "{2}"}))
        .await;
    place
        .add(json!({"name": "out", "from": "kafka:t", "to": "mqtt:a/{key}"}))
        .await;
    let heard = Heard::on(&place.mqtt, "a/#");
    place.publish("a/x", "from a client");
    place
        .until("out", "the echo", |status| status.looped_total == 1)
        .await;
    place.produce("t", "y", Some("from a producer")).await;
    place
        .until("in", "the other echo", |status| status.looped_total == 1)
        .await;
    assert_eq!(heard.topics(), ["a/x", "a/y"]);
    assert_eq!(
        texts(&place.records("t", 2).await),
        [
            ("x".to_owned(), "from a client".to_owned()),
            ("y".to_owned(), "from a producer".to_owned())
        ]
    );
    let (way_in, out) = (place.status("in"), place.status("out"));
    assert_eq!((way_in.taken_total, way_in.passed_total), (2, 1));
    assert_eq!((out.taken_total, out.passed_total), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_of_rules_is_open_at_its_end() {
    let place = Place::open(&[]).await;
    for (name, from, to) in [
        ("one", "mqtt:a", "kafka:t1"),
        ("two", "kafka:t1", "mqtt:b"),
        ("three", "mqtt:b", "kafka:t2"),
        ("four", "kafka:t2", "mqtt:a"),
    ] {
        place
            .add(json!({"name": name, "from": from, "to": to}))
            .await;
    }
    let heard = Heard::on(&place.mqtt, "#");
    place.publish("a", "1");
    place
        .until("four", "the end of the ring", |status| {
            status.looped_total == 1
        })
        .await;
    assert_eq!(heard.topics(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_were_added_outlive_the_process() {
    let mut place = Place::open(&[]).await;
    place
        .add(json!({"name": "in", "from": "mqtt:a", "to": "kafka:t"}))
        .await;
    place
        .add(json!({"name": "gone", "from": "mqtt:b", "to": "kafka:t"}))
        .await;
    assert!(matches!(
        place
            .rules
            .add(of(json!({"name": "in", "from": "mqtt:c", "to": "kafka:t"})))
            .await,
        Err(RuleError::Exists(_))
    ));
    place.rules.remove("gone").await.unwrap();
    assert!(matches!(
        place.rules.remove("gone").await,
        Err(RuleError::Unknown(_))
    ));
    place.publish("b", "to nobody");
    place.reopen().await;
    let names: Vec<String> = place
        .rules
        .list()
        .into_iter()
        .map(|s| s.rule.name)
        .collect();
    assert_eq!(names, ["in"]);
    place.publish("a", "1");
    assert_eq!(
        texts(&place.records("t", 1).await),
        [("a".to_owned(), "1".to_owned())]
    );
    place.mqtt.all_stored().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_the_configuration_cannot_be_removed() {
    let rule = of(json!({"name": "in", "from": "mqtt:a", "to": "kafka:t"}));
    let place = Place::open(&[rule]).await;
    assert!(place.status("in").configured);
    assert!(matches!(
        place.rules.remove("in").await,
        Err(RuleError::Configured(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_choose_no_private_and_no_illegal_topic() {
    let place = Place::open(&[]).await;
    place
        .add(json!({"name": "in", "from": "mqtt:in/+", "to": "kafka:{2}"}))
        .await;
    for topic in [
        "in/_schemas",
        "in/__consumer_offsets",
        "in/a b",
        "in/",
        "in/good",
    ] {
        place.publish(topic, "1");
    }
    place
        .until("in", "the good one", |status| status.passed_total == 1)
        .await;
    assert_eq!(place.status("in").refused_total, 4);
    place.records("good", 1).await;
    let topics = place.store.topics().await.unwrap();
    assert_eq!(topics.len(), 1, "{topics:?}");
    // Out of the store as well.
    place
        .add(json!({"name": "out", "from": "kafka:t", "to": "mqtt:{key}"}))
        .await;
    for key in ["$SYS/x", "a/+", "good"] {
        place.produce("t", key, Some("1")).await;
    }
    place
        .until("out", "the good one", |status| status.passed_total == 1)
        .await;
    assert_eq!(place.status("out").refused_total, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_record_that_is_too_large_holds_no_other_back() {
    let place = Place::open(&[]).await;
    place
        .add(json!({"name": "in", "from": "mqtt:a", "to": "kafka:t", "key": ""}))
        .await;
    place.publish("a", "before");
    let large = "x".repeat((1 << 20) - 64);
    place.publish("a", &large);
    place.publish("a", "after");
    place
        .until("in", "all three", |s| s.passed_total + s.refused_total == 3)
        .await;
    let status = place.status("in");
    assert_eq!(
        (status.passed_total, status.refused_total),
        (2, 1),
        "{}",
        status.problem
    );
    assert!(status.problem.contains("too large"), "{}", status.problem);
}

#[test]
fn a_full_queue_holds_publishers_back_and_retained_messages_are_the_past() {
    let intake = intake(json!({"name": "in", "from": "mqtt:a", "to": "kafka:t"}));
    let message = Message {
        topic: "a",
        payload: b"1",
        ..Message::default()
    };
    let retained = Message {
        retain: true,
        ..message
    };
    assert_eq!(intake.deliver(&[retained]), Delivery::Taken);
    assert_eq!(intake.waiting(), 0);
    assert!(intake.settled().is_none());
    let batch = vec![message; crate::limits::RULE_QUEUE_RECORDS_MAX + 10];
    let taken = crate::limits::RULE_QUEUE_RECORDS_MAX;
    assert_eq!(intake.deliver(&batch), Delivery::HoldBack { taken });
    assert_eq!(intake.deliver(&batch), Delivery::HoldBack { taken: 0 });
    assert!(intake.settled().is_some());
    assert_eq!(intake.waiting(), taken as u64);
}

#[test]
fn topics_that_publishers_make_are_bounded() {
    let intake = intake(json!({"name": "in", "from": "mqtt:a/+", "to": "kafka:t{2}"}));
    for n in 0..crate::limits::RULE_TOPICS_MAX + 5 {
        let topic = format!("a/{n}");
        let message = Message {
            topic: &topic,
            ..Message::default()
        };
        assert_eq!(intake.deliver(&[message]), Delivery::Taken);
    }
    assert_eq!(intake.waiting(), crate::limits::RULE_TOPICS_MAX as u64);
    // Those that are known go on.
    let known = Message {
        topic: "a/1",
        ..Message::default()
    };
    intake.deliver(&[known]);
    assert_eq!(intake.waiting(), crate::limits::RULE_TOPICS_MAX as u64 + 1);
}
