//! A real client's idempotent producer, whose partitions are several and lie in one shared one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Access, TenantChange};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use serde_json::{Value, json};

use super::super::Security;
use super::client::Server;
use crate::batch::BatchHeader;
use crate::event_store::{Isolation, TopicSpec};
use crate::tenants::Attempt;
use crate::{BatchRecords, TopicName};

const TOPICS: [(&str, i32); 3] = [
    ("env.ns.acme.E", 3),
    ("env.ns.beta.E", 1),
    ("env.ns.ALL.E", 1),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotent_producer_loses_nothing_in_a_collection() {
    let mut opened = None;
    let server = Server::start_secured(|folder| {
        let access = Arc::new(Access::open(folder).unwrap());
        opened = Some(Arc::clone(&access));
        Security {
            access: Some(access),
            ..Security::default()
        }
    })
    .await;
    let access = opened.unwrap();
    let streams = Arc::clone(&server.streams);
    streams.follow_tenants(&access);
    for (topic, partitions) in TOPICS {
        let spec = TopicSpec::of(topic.parse().unwrap()).with_partitions(partitions);
        streams.create_topic(spec).await.unwrap();
    }
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", server.address.to_string())
        .set("enable.idempotence", "true")
        .set("linger.ms", "0")
        .create()
        .unwrap();
    let mut sent = Vec::new();
    for (round, home) in [Value::Null, json!("ALL"), Value::Null, json!("ALL")]
        .into_iter()
        .enumerate()
    {
        for tenant in ["acme", "beta"] {
            let change = json!({"collection": home});
            let change: TenantChange = serde_json::from_value(change).unwrap();
            let tenant = tenant.parse().unwrap();
            access.set_tenant(&tenant, &change).unwrap();
            if round > 0 {
                // How long a switch waits for others is counted in real time.
                let until = Instant::now() + Duration::from_secs(60);
                loop {
                    match streams.switch(&access, &tenant).await.unwrap() {
                        Attempt::Switched(_) => break,
                        other => assert!(Instant::now() < until, "{other:?}"),
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        for (topic, partitions) in &TOPICS[..2] {
            for (number, partition) in (0..20).flat_map(|n| (0..*partitions).map(move |p| (n, p))) {
                let value = format!("{topic}/{partition}/{round}/{number}");
                let record: FutureRecord<'_, (), _> =
                    FutureRecord::to(topic).partition(partition).payload(&value);
                let outcome = producer.send(record, Duration::from_secs(60)).await;
                outcome.map_err(|(error, _)| error).unwrap();
                sent.push(value);
            }
        }
        assert!(producer.client().fatal_error().is_none(), "round {round}");
    }
    let mut stored = Vec::new();
    for (topic, _) in TOPICS {
        let topic: TopicName = topic.parse().unwrap();
        let topic = streams.topic_by_name(&topic).unwrap();
        for partition in topic.partitions() {
            let mut at = 0;
            while at < partition.high_watermark() {
                let read = partition.read(Isolation::Uncommitted, at, 1 << 20, true);
                for batch in read.unwrap() {
                    at = BatchHeader::read(&batch).unwrap().last_offset() + 1;
                    let records = BatchRecords::of(&batch).unwrap();
                    let value = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                    stored.extend(records.map(|of| value(&of.unwrap().value.unwrap())));
                }
            }
        }
    }
    sent.sort();
    stored.sort();
    assert_eq!(stored, sent);
    drop(producer);
    server.stop().await;
}
