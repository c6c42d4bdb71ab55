//! The engine with the real event store and the real MQTT server in one process, for tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::SystemClock;
use mqtt::{Delivery, Message, MessageSink, MqttConfig, Qos, Server};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use streams::{
    ConsumerConfig, EventStore, ProduceBatch, Record, Streams, StreamsConfig, TopicName,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::machine::MachineOptions;
use crate::plan::OnError;
use crate::window::Choices;
use crate::{Fusion, FusionConfig, NewStatement, StatementInfo, Status};

/// The engine with its stores in one folder.
pub struct House {
    folder: tempfile::TempDir,
    pub store: Arc<dyn EventStore>,
    pub mqtt: Server,
    pub fusion: Arc<Fusion>,
}

impl House {
    pub async fn open() -> House {
        let folder = tempfile::tempdir().unwrap();
        let (store, mqtt) = stores(folder.path());
        let fusion = reopened(&folder.path().join("fusion"), &store, &mqtt).await;
        House {
            folder,
            store,
            mqtt,
            fusion,
        }
    }

    pub async fn reopen(&mut self) {
        self.fusion = reopened(&self.fusion_dir(), &self.store, &self.mqtt).await;
    }

    /// Where the engine's files lie.
    pub fn fusion_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("fusion")
    }

    /// What opening again gives, without going on with it.
    pub async fn try_reopen(&self) -> Result<Arc<Fusion>, crate::FusionError> {
        let config = FusionConfig::default();
        let (store, mqtt) = (self.store.clone(), Some(self.mqtt.clone()));
        let clock = Arc::new(SystemClock);
        Fusion::open(&self.inside("fusion"), config, store, mqtt, clock).await
    }

    /// A path in the folder.
    pub fn inside(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    pub async fn close(self) {
        self.fusion.close().await;
        self.mqtt.close().await;
    }

    pub async fn add(&self, text: &str) -> StatementInfo {
        self.add_named("m", text).await
    }

    pub async fn add_named(&self, name: &str, text: &str) -> StatementInfo {
        let info = self.fusion.add(new(name, text)).await.unwrap();
        assert_eq!(info.status, Status::Running);
        info
    }

    pub fn publish(&self, topic: &str, payload: &str) {
        let topic = topic.parse().unwrap();
        self.mqtt
            .publish(&topic, payload.as_bytes(), Qos::AtLeastOnce, false)
            .unwrap();
    }

    pub async fn create(&self, topic: &str, partitions: i32) {
        let spec = streams::TopicSpec::of(topic.parse().unwrap()).with_partitions(partitions);
        self.store.create_topic(spec).await.unwrap();
    }

    pub async fn produce(&self, topic: &str, partition: i32, value: &str) {
        produce_batch(&self.store, topic, partition, vec![value.to_owned()]).await;
    }

    pub async fn rows(&self, topic: &str, count: usize) -> Vec<Json> {
        rows(&self.store, topic, count).await
    }

    pub async fn until(
        &self,
        name: &str,
        reached: impl Fn(&StatementInfo) -> bool,
    ) -> StatementInfo {
        until(&self.fusion, name, reached).await
    }
}

/// What most tests' machines go by.
pub fn options() -> MachineOptions {
    MachineOptions {
        lateness_ms: 0,
        groups_max: 1_000,
        state_bytes_max: 1 << 30,
        partitions: 1,
        close_delay_ms: 500,
        idle_ms: 0,
        on_error: OnError::Drop,
        choices: Choices::default(),
    }
}

/// Takes what is published.
#[derive(Default)]
pub struct Collector(pub Mutex<Vec<Json>>);

impl MessageSink for Collector {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let rows = batch
            .iter()
            .map(|message| serde_json::from_slice(message.payload).unwrap());
        self.0.lock().extend(rows);
        Delivery::Taken
    }
}

pub fn stores(dir: &Path) -> (Arc<dyn EventStore>, Server) {
    let clock = Arc::new(SystemClock);
    let (streams, _) = Streams::open(
        &dir.join("streams"),
        StreamsConfig::default(),
        clock.clone(),
    )
    .unwrap();
    let server = Server::open(&dir.join("mqtt"), MqttConfig::default(), clock).unwrap();
    (streams.store(), server)
}

pub async fn reopened(dir: &Path, store: &Arc<dyn EventStore>, mqtt: &Server) -> Arc<Fusion> {
    let clock = Arc::new(SystemClock);
    let config = FusionConfig::default();
    Fusion::open(dir, config, store.clone(), Some(mqtt.clone()), clock)
        .await
        .unwrap()
}

pub fn new(name: &str, text: &str) -> NewStatement {
    serde_json::from_value(json!({ "name": name, "text": text })).unwrap()
}

pub async fn produce_numbered(store: &Arc<dyn EventStore>, produced: &mut u64) {
    let ids = *produced..*produced + 100;
    *produced = ids.end;
    let values = ids
        .map(|id| format!("{{\"id\":{id},\"ts\":{}}}", id * 10))
        .collect();
    produce_batch(store, "in", 0, values).await;
}

pub async fn produce_batch(
    store: &Arc<dyn EventStore>,
    topic: &str,
    partition: i32,
    values: Vec<String>,
) {
    let records = values.into_iter().map(Record::of_value).collect();
    let topic: TopicName = topic.parse().unwrap();
    store.topic_or_create(&topic).await.unwrap();
    let batch = ProduceBatch {
        topic,
        partition,
        records,
        sequence: None,
    };
    store.produce(batch).await.unwrap();
}

/// Everything in the first partition of a topic, once at least `count` records are there.
pub async fn rows(store: &Arc<dyn EventStore>, topic: &str, count: usize) -> Vec<Json> {
    let topic: TopicName = topic.parse().unwrap();
    let deadline = Instant::now() + DEADLINE;
    while store.topic(&topic).await.unwrap().partition_offsets[0].end < count as i64 {
        assert!(
            Instant::now() < deadline,
            "{topic} never had {count} records"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut consumer = store.consumer(ConsumerConfig::alone("test")).await.unwrap();
    consumer.assign(vec![(topic.clone(), 0)]).await.unwrap();
    consumer
        .seek(&topic, 0, streams::SeekTo::Beginning)
        .await
        .unwrap();
    let mut rows = Vec::new();
    loop {
        let records = consumer
            .poll(Duration::from_millis(20), 1 << 20)
            .await
            .unwrap();
        if records.is_empty() {
            return rows;
        }
        rows.extend(
            records.iter().map(|record| {
                serde_json::from_slice::<Json>(record.value.as_ref().unwrap()).unwrap()
            }),
        );
    }
}

pub async fn until(
    fusion: &Arc<Fusion>,
    name: &str,
    reached: impl Fn(&StatementInfo) -> bool,
) -> StatementInfo {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let info = fusion.statement(name).unwrap();
        if reached(&info) {
            return info;
        }
        assert!(Instant::now() < deadline, "never reached: {info:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub async fn wait(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what} never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub async fn http(
    address: std::net::SocketAddr,
    method: &str,
    path: String,
    body: String,
) -> (u16, Json) {
    let mut link = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    link.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses the body may close before it has read it.
    let _ = link.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = link.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Json::Null))
}

pub const DEADLINE: Duration = Duration::from_secs(120);
