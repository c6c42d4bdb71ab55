//! Produce: a body's records to the store, answered when they are as durable as their topic asks.
//!
//! JSON keys and values are cut out of the body and stored as they came: a large integer or a space
//! survives. Binary ones are base64. `null` or nothing is no key, or a tombstone. An unknown topic
//! is created by its stream's or the store's policy; where that says no, the answer is 40401.
//!
//! Every request awaits its own records only; that requests of all connections share a sync is the
//! store's group commit. Records for one partition are stored in the request's order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use streams::{EventStore, ProduceBatch, Record, StreamsError, TopicName};
use tokio::task::JoinSet;

use crate::answer::{self, AnswerType, Segments};
use crate::error::{NOT_ALLOWED, RestError, record_code};
use crate::login::Asked;
use crate::media::{self, Embedded};
use crate::routes::Shared;
use crate::{limits, partitioner};

/// `POST /topics/{topic}`
pub(crate) async fn to_topic(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments(topic): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let topic = answer::topic_name(&topic)?;
    produce(&shared, media, topic, None, &headers, body).await
}

/// `POST /topics/{topic}/partitions/{partition}`
pub(crate) async fn to_partition(
    Asked(shared): Asked,
    AnswerType(media): AnswerType,
    Segments((topic, partition)): Segments<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let topic = answer::topic_name(&topic)?;
    produce(&shared, media, topic, Some(partition), &headers, body).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProduceRequest<'a> {
    #[serde(borrow)]
    records: Records<'a>,
    // Schemas belong to formats that are refused by their content type; clients send the keys
    // empty with the other formats too, so they are known and not read.
    #[serde(default, rename = "key_schema")]
    _key_schema: IgnoredAny,
    #[serde(default, rename = "key_schema_id")]
    _key_schema_id: IgnoredAny,
    #[serde(default, rename = "value_schema")]
    _value_schema: IgnoredAny,
    #[serde(default, rename = "value_schema_id")]
    _value_schema_id: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordEntry<'a> {
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
    #[serde(default)]
    partition: Option<i32>,
}

struct Records<'a>(Vec<RecordEntry<'a>>);

/// Where a record went, or why it did not.
#[derive(Clone)]
enum Outcome {
    Placed { partition: i32, offset: i64 },
    Refused { code: u32, reason: Arc<str> },
}

async fn produce(
    shared: &Shared,
    media: &'static str,
    topic: TopicName,
    partition: Option<String>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let body_type = media::body_type(answer::text(headers, header::CONTENT_TYPE))?;
    let held = shared.gate.read(headers, body).await?;
    let request: ProduceRequest<'_> = answer::entity(&held.bytes)?;
    let entries = request.records.0;
    if entries.is_empty() {
        return Err(RestError::InvalidEntity(
            "records may not be empty".to_owned(),
        ));
    }
    let fixed_partition = partition.is_some();
    if fixed_partition && entries.iter().any(|entry| entry.partition.is_some()) {
        return Err(RestError::InvalidEntity(
            "partition is given by the path, leave it out of the records".to_owned(),
        ));
    }
    // Every record is decoded before any is stored: a request that does not fit stores nothing.
    let records = decode(&held.bytes, &entries, body_type.embedded)?;
    let partitions =
        shared
            .store
            .partitions_or_create(&topic)
            .await
            .map_err(|error| match error {
                StreamsError::AutoCreateOff(name) => {
                    RestError::TopicNotFound(name.display().to_owned())
                }
                error => RestError::Store(error),
            })?;
    let fixed = match &partition {
        Some(text) => Some(existing_partition(&topic, partitions, text)?),
        None => None,
    };
    let count = records.len();
    let bytes: usize = records.iter().map(record_bytes).sum();
    let mut outcomes = vec![None; count];
    let parts = place(shared, partitions, &entries, records, fixed, &mut outcomes);
    store_all(&shared.store, &topic, parts, &mut outcomes).await;
    metrics::counter!("thalweg_rest_records_in_total").increment(count as u64);
    metrics::counter!("thalweg_rest_bytes_in_total").increment(bytes as u64);
    Ok(answer::bytes(
        status_of(&outcomes),
        media,
        receipts(&outcomes),
    ))
}

/// The partition that a path names, when the topic has it.
pub(crate) fn existing_partition(
    topic: &TopicName,
    partitions: i32,
    text: &str,
) -> Result<i32, RestError> {
    text.parse::<i32>()
        .ok()
        .filter(|number| (0..partitions).contains(number))
        .ok_or_else(|| RestError::PartitionNotFound {
            topic: topic.display().to_owned(),
            partition: text.chars().take(20).collect(),
            partitions,
        })
}

fn decode(
    body: &Bytes,
    entries: &[RecordEntry<'_>],
    embedded: Embedded,
) -> Result<Vec<Record>, RestError> {
    let part = |index: usize, name: &str, raw: Option<&RawValue>| match (raw, embedded) {
        (None, _) => Ok(None),
        (Some(raw), Embedded::Json) => Ok(Some(body.slice_ref(raw.get().as_bytes()))),
        (Some(raw), Embedded::Binary) => from_base64(raw).map(Some).map_err(|reason| {
            RestError::InvalidEntity(format!("records[{index}].{name} {reason}"))
        }),
    };
    let mut records = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        records.push(Record {
            key: part(index, "key", entry.key)?,
            value: part(index, "value", entry.value)?,
            headers: Vec::new(),
            timestamp: None,
        });
    }
    Ok(records)
}

fn from_base64(raw: &RawValue) -> Result<Bytes, &'static str> {
    let text = raw.get();
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .ok_or("is not text: binary records are base64 text (for JSON, say so in Content-Type)")?;
    let decoded = if inner.contains('\\') {
        // Some writers escape the slash of the base64 alphabet.
        let plain: String = serde_json::from_str(text).map_err(|_| "is not JSON text")?;
        BASE64.decode(plain)
    } else {
        BASE64.decode(inner)
    };
    decoded.map(Bytes::from).map_err(|_| "is not base64")
}

type Part = Vec<(usize, Record)>;

/// Chooses each record's partition; what names a partition that is not there gets its outcome.
fn place(
    shared: &Shared,
    partitions: i32,
    entries: &[RecordEntry<'_>],
    records: Vec<Record>,
    fixed: Option<i32>,
    outcomes: &mut [Option<Outcome>],
) -> BTreeMap<i32, Part> {
    let turn = shared.turns.fetch_add(1, Ordering::Relaxed);
    let sticky = partitioner::of_turn(turn, partitions);
    let mut parts: BTreeMap<i32, Part> = BTreeMap::new();
    for (index, record) in records.into_iter().enumerate() {
        let partition = match (fixed, entries[index].partition, &record.key) {
            (Some(fixed), _, _) => fixed,
            (None, Some(asked), _) => asked,
            (None, None, Some(key)) => partitioner::of_key(key, partitions),
            (None, None, None) => sticky,
        };
        if (0..partitions).contains(&partition) {
            parts.entry(partition).or_default().push((index, record));
        } else {
            let reason = format!("partition {partition} not found; there are {partitions}");
            outcomes[index] = Some(Outcome::Refused {
                code: 40402,
                reason: reason.into(),
            });
        }
    }
    parts
}

async fn store_all(
    store: &Arc<dyn EventStore>,
    topic: &TopicName,
    mut parts: BTreeMap<i32, Part>,
    outcomes: &mut [Option<Outcome>],
) {
    if parts.len() == 1
        && let Some((partition, part)) = parts.pop_first()
    {
        for (index, outcome) in store_part(&**store, topic.clone(), partition, part).await {
            outcomes[index] = Some(outcome);
        }
        return;
    }
    // Tasks, so that the partitions' records meet in one sync. They end with the request.
    let mut tasks = JoinSet::new();
    for (partition, part) in parts {
        let (store, topic) = (store.clone(), topic.clone());
        tasks.spawn(async move { store_part(&*store, topic, partition, part).await });
    }
    while let Some(done) = tasks.join_next().await {
        for (index, outcome) in done.unwrap_or_default() {
            outcomes[index] = Some(outcome);
        }
    }
}

/// Stores one partition's records in order, in batches that the store takes.
async fn store_part(
    store: &dyn EventStore,
    topic: TopicName,
    partition: i32,
    part: Part,
) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::with_capacity(part.len());
    let mut waiting: Vec<Part> = batches(part);
    waiting.reverse();
    let mut failure: Option<(u32, Arc<str>)> = None;
    while let Some(mut batch) = waiting.pop() {
        if let Some((code, reason)) = &failure {
            let refused = Outcome::Refused {
                code: *code,
                reason: reason.clone(),
            };
            outcomes.extend(batch.iter().map(|(index, _)| (*index, refused.clone())));
            continue;
        }
        let indices: Vec<usize> = batch.iter().map(|(index, _)| *index).collect();
        let records: Vec<Record> = batch.iter_mut().map(|(_, record)| record.clone()).collect();
        let request = ProduceBatch {
            topic: topic.clone(),
            partition,
            records,
            sequence: None,
        };
        match store.produce(request).await {
            Ok(placed) => {
                let offsets = placed.base_offset..;
                outcomes.extend(indices.into_iter().zip(offsets).map(|(index, offset)| {
                    (
                        index,
                        Outcome::Placed {
                            partition: placed.partition,
                            offset,
                        },
                    )
                }));
            }
            Err(StreamsError::MessageTooLarge { .. }) if batch.len() > 1 => {
                let back = batch.split_off(batch.len() / 2);
                waiting.push(back);
                waiting.push(batch);
            }
            Err(error) => {
                let (code, reason) = (record_code(&error), Arc::from(base::report(&error)));
                let refused = Outcome::Refused {
                    code,
                    reason: Arc::clone(&reason),
                };
                outcomes.extend(indices.into_iter().map(|index| (index, refused.clone())));
                // One record that is too large says nothing about those after it; any other
                // failure does, and storing them now would tear the request's order.
                if !matches!(error, StreamsError::MessageTooLarge { .. }) {
                    failure = Some((code, reason));
                }
            }
        }
    }
    outcomes
}

fn batches(part: Part) -> Vec<Part> {
    let mut batches = Vec::new();
    let (mut batch, mut bytes) = (Part::new(), 0);
    for (index, record) in part {
        let more = record_bytes(&record);
        if !batch.is_empty() && bytes + more > limits::BATCH_BYTES {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += more;
        batch.push((index, record));
    }
    batches.push(batch);
    batches
}

fn record_bytes(record: &Record) -> usize {
    let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    part(&record.key) + part(&record.value)
}

/// Single failures stand with their records; that somebody may not write at all is for the whole.
fn status_of(outcomes: &[Option<Outcome>]) -> StatusCode {
    let is_forbidden = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Refused { code, .. }) if *code == NOT_ALLOWED);
    match outcomes.iter().any(is_forbidden) {
        true => StatusCode::FORBIDDEN,
        false => StatusCode::OK,
    }
}

fn receipts(outcomes: &[Option<Outcome>]) -> Vec<u8> {
    use std::fmt::Write;
    let mut text = String::with_capacity(outcomes.len() * 64 + 64);
    text.push_str("{\"offsets\":[");
    for (index, outcome) in outcomes.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        // Writing to a String does not fail.
        let _ = match outcome {
            Some(Outcome::Placed { partition, offset }) => write!(
                text,
                "{{\"partition\":{partition},\"offset\":{offset},\
                 \"error_code\":null,\"error\":null}}"
            ),
            Some(Outcome::Refused { code, reason }) => write!(
                text,
                "{{\"partition\":null,\"offset\":null,\"error_code\":{code},\"error\":{}}}",
                serde_json::Value::from(&**reason)
            ),
            // Its task panicked; whether the record was stored is not known.
            None => text.write_str(
                "{\"partition\":null,\"offset\":null,\"error_code\":50002,\
                 \"error\":\"the store broke off\"}",
            ),
        };
    }
    text.push_str("],\"key_schema_id\":null,\"value_schema_id\":null}");
    text.into_bytes()
}

impl<'de: 'a, 'a> Deserialize<'de> for Records<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<RecordEntry<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of records")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    if entries.len() == limits::RECORDS_MAX {
                        return Err(serde::de::Error::custom(format_args!(
                            "more than {} records in one request",
                            limits::RECORDS_MAX
                        )));
                    }
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_seq(Collect).map(Records)
    }
}

/// Standard alphabet; padding as the writer likes, since clients differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);
