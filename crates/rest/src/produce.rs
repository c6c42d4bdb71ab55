//! Produce: a body's records to the store, answered when they are as durable as their topic asks.
//!
//! JSON keys and values are cut out of the body and stored as they came: a large integer or a space
//! survives. Binary ones are base64, text is what it reads. With a schema, JSON becomes the payload of its format. `null` or
//! nothing is no key, or a tombstone. An unknown topic is created by its stream's or the store's
//! policy; where that says no, the answer is 40401.
//!
//! How records find their partitions and the store is in [`crate::storing`].

use std::borrow::Cow;
use std::fmt;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::UnixMillis;
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http_body::Body as HttpBody;
use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use streams::{Record, TopicName};

use crate::answer::{self, AnswerType, JsonObject, Segments, or_default};
use crate::bridge::Unreceipted;
use crate::embedded::{Given, Writer};
use crate::error::{NOT_ALLOWED, RestError};
use crate::idempotency::{self, Wanted};
use crate::limits;
use crate::login;
use crate::media::{self, BodyType, Embedded};
use crate::routes::Shared;
use crate::scan;
use crate::schemas::format::{SchemaType, Work};
use crate::storing::{self, Asked, Outcome};
use crate::working::Worked;

/// `POST /topics/{topic}`
pub(crate) async fn to_topic(
    login::Asked(shared): login::Asked,
    AnswerType(media): AnswerType,
    Segments(topic): Segments<String>,
    headers: HeaderMap,
    Unreceipted(unreceipted): Unreceipted,
    wanted: Wanted,
    body: Body,
) -> Result<Response, RestError> {
    let to = To {
        topic: shared.config.topic_name(&topic)?,
        partition: None,
        unreceipted,
    };
    produce(&shared, media, to, &headers, wanted, body).await
}

/// `POST /topics/{topic}/partitions/{partition}`
pub(crate) async fn to_partition(
    login::Asked(shared): login::Asked,
    AnswerType(media): AnswerType,
    Segments((topic, partition)): Segments<(String, String)>,
    headers: HeaderMap,
    Unreceipted(unreceipted): Unreceipted,
    wanted: Wanted,
    body: Body,
) -> Result<Response, RestError> {
    let to = To {
        topic: shared.config.topic_name(&topic)?,
        partition: Some(partition),
        unreceipted,
    };
    produce(&shared, media, to, &headers, wanted, body).await
}

/// Where a path has its records go.
pub(crate) struct To {
    pub topic: TopicName,
    /// As it is written.
    pub partition: Option<String>,
    /// Whether an answer without receipts will do where all are stored.
    pub unreceipted: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProduceRequest<'a> {
    #[serde(borrow)]
    records: Records<'a>,
    // Clients send these empty with the formats without schemas too, which don't read them.
    #[serde(borrow, default)]
    key_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key_schema_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    value_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    value_schema_id: Option<&'a RawValue>,
}

/// What keys and values are written with, in formats with schemas.
#[derive(Default)]
struct Writers {
    key: Option<Writer>,
    value: Option<Writer>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordEntry<'a> {
    #[serde(borrow, default, deserialize_with = "raw")]
    key: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "raw")]
    value: Option<&'a str>,
    #[serde(default)]
    partition: Option<i32>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    headers: Vec<JsonObject<HeaderEntry<'a>>>,
    /// Milliseconds since 1970; the store's clock without it.
    #[serde(default)]
    timestamp: Option<i64>,
}

/// A record's header as Strimzi's bridge takes it; its value is base64.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderEntry<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

#[derive(Default)]
struct Records<'a>(Vec<RecordEntry<'a>>);

/// Stores a body's records and answers in `media`.
pub(crate) async fn produce<B>(
    shared: &Shared,
    media: &'static str,
    to: To,
    headers: &HeaderMap,
    wanted: Wanted,
    body: B,
) -> Result<Response, RestError>
where
    B: HttpBody<Data = Bytes, Error: fmt::Display> + Unpin,
{
    let body_type = media::body_type(answer::text(headers, header::CONTENT_TYPE))?;
    storing::check_topic(shared, &to.topic)?;
    let held = shared.gate.read(headers, body).await?;
    store(shared, media, to, body_type, wanted, &held.bytes).await
}

async fn store(
    shared: &Shared,
    media: &'static str,
    to: To,
    body_type: BodyType,
    Wanted(wanted): Wanted,
    body: &Bytes,
) -> Result<Response, RestError> {
    let To {
        topic,
        partition,
        unreceipted,
    } = to;
    let read = || ProduceRequest::read(body);
    let reading = shared.gate.for_records(read, |it| it.records.0.len());
    let (request, _room) = reading.await?;
    let writers = match body_type.embedded {
        Embedded::Schema(kind) => Writers::of(shared, &topic, &request, kind).await?,
        Embedded::Binary | Embedded::Json | Embedded::Text => Writers::default(),
    };
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
    let embedded = body_type.embedded;
    let records = match embedded {
        Embedded::Schema(_) => {
            let decode = |work: &mut Work| decode(body, &entries, embedded, &writers, work);
            Worked::of_request().run(decode).await??
        }
        Embedded::Binary | Embedded::Json | Embedded::Text => plainly(body, &entries, embedded)?,
    };
    let partitions = storing::partitions_of(shared, &topic).await?;
    let fixed = match &partition {
        Some(text) => Some(existing_partition(&topic, partitions, text)?),
        None => None,
    };
    let is_free = |entry: &RecordEntry<'_>| entry.partition.is_none() && entry.key.is_none();
    let goes_together = fixed_partition || entries.iter().all(is_free);
    let asked = |records: Vec<Record>| -> Vec<Asked> {
        let asked = entries.iter().zip(records).map(|(entry, record)| Asked {
            record,
            partition: fixed.or(entry.partition),
        });
        asked.collect()
    };
    let (outcomes, is_recalled) = match wanted {
        None if goes_together => {
            let stored = match embedded {
                // What schemas made of them is not made again.
                Embedded::Schema(_) => {
                    let kept = records.clone();
                    let again = || kept.clone();
                    storing::store_together(shared, &topic, partitions, records, &again, fixed)
                        .await
                }
                Embedded::Binary | Embedded::Json | Embedded::Text => {
                    let again = || plainly(body, &entries, embedded).unwrap_or_default();
                    storing::store_together(shared, &topic, partitions, records, &again, fixed)
                        .await
                }
            };
            (stored, false)
        }
        None => (
            storing::store(shared, &topic, partitions, asked(records)).await,
            false,
        ),
        Some(wanted) => {
            let asked = asked(records);
            let once = wanted.of(&topic, body, shared.clock.now());
            let stored = storing::store_once(shared, &topic, partitions, asked, &once).await;
            stored.map(|(outcomes, recalled)| (outcomes, recalled.is_recalled))?
        }
    };
    let are_stored = |outcome: &Outcome| matches!(outcome, Outcome::Placed { .. });
    if unreceipted && outcomes.iter().all(are_stored) {
        let answer = StatusCode::NO_CONTENT.into_response();
        return Ok(idempotency::marked(answer, is_recalled));
    }
    let answer = answer::bytes(status_of(&outcomes), media, receipts(&outcomes, &writers));
    Ok(idempotency::marked(answer, is_recalled))
}

impl<'a> ProduceRequest<'a> {
    fn read(body: &'a [u8]) -> Result<Self, RestError> {
        let is_large = body.len() >= limits::SCANNED_BYTES_MIN;
        let entry = |scan::Strings { key, value }| RecordEntry {
            key,
            value,
            ..RecordEntry::default()
        };
        let scanned = is_large.then(|| scan::records(body, limits::RECORDS_MAX, entry));
        let Some(records) = scanned.flatten() else {
            return answer::entity(body);
        };
        Ok(ProduceRequest {
            records: Records(records),
            ..ProduceRequest::default()
        })
    }
}

/// A value as it stands in the body.
fn raw<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de str>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.map(RawValue::get))
}

impl Writers {
    /// The writers that a request names. Missing ones are told where a key or a value needs them.
    async fn of(
        shared: &Shared,
        topic: &TopicName,
        request: &ProduceRequest<'_>,
        kind: SchemaType,
    ) -> Result<Writers, RestError> {
        let records = &request.records.0;
        let (embedding, caller) = (&shared.embedding, shared.caller.as_ref());
        let key = Given {
            text: request.key_schema,
            id: request.key_schema_id,
        };
        let value = Given {
            text: request.value_schema,
            id: request.value_schema_id,
        };
        if key.is_nothing() && records.iter().any(|record| record.key.is_some()) {
            return Err(RestError::KeySchemaMissing);
        }
        if value.is_nothing() && records.iter().any(|record| record.value.is_some()) {
            return Err(RestError::ValueSchemaMissing);
        }
        // What cannot be produced to registers nothing.
        storing::partitions_of(shared, topic).await?;
        let name = topic.display();
        let (key_subject, value_subject) = (format!("{name}-key"), format!("{name}-value"));
        Ok(Writers {
            key: key.writer(embedding, caller, &key_subject, kind).await?,
            value: value
                .writer(embedding, caller, &value_subject, kind)
                .await?,
        })
    }
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

/// Records in a format without schemas.
fn plainly(
    body: &Bytes,
    entries: &[RecordEntry<'_>],
    embedded: Embedded,
) -> Result<Vec<Record>, RestError> {
    decode(
        body,
        entries,
        embedded,
        &Writers::default(),
        &mut Work::of(0, 0),
    )
}

fn decode(
    body: &Bytes,
    entries: &[RecordEntry<'_>],
    embedded: Embedded,
    writers: &Writers,
    work: &mut Work,
) -> Result<Vec<Record>, RestError> {
    let mut part = |index: usize, name: &str, raw: Option<&str>| match (raw, embedded) {
        (None, _) => Ok(None),
        (Some(raw), Embedded::Json) => Ok(Some(body.slice_ref(raw.as_bytes()))),
        (Some(raw), Embedded::Binary) => from_base64(raw).map(Some).map_err(|reason| {
            RestError::InvalidEntity(format!("records[{index}].{name} {reason}"))
        }),
        (Some(raw), Embedded::Text) => text_of(body, raw).map(Some).ok_or_else(|| {
            let text = format!("records[{index}].{name} is not text");
            RestError::InvalidEntity(text)
        }),
        (Some(raw), Embedded::Schema(_)) => {
            let (writer, missing) = match name {
                "key" => (&writers.key, RestError::KeySchemaMissing),
                _ => (&writers.value, RestError::ValueSchemaMissing),
            };
            let writer = writer.as_ref().ok_or(missing)?;
            let written = writer.write(raw.as_bytes(), work);
            written
                .map(Some)
                .map_err(|fault| RestError::Conversion(format!("records[{index}].{name}: {fault}")))
        }
    };
    let mut records = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        if entry.timestamp.is_some_and(|at| at < 0) {
            let text = format!("records[{index}].timestamp is before 1970");
            return Err(RestError::InvalidEntity(text));
        }
        let header = |JsonObject(header): &JsonObject<HeaderEntry<'_>>| {
            let value = header
                .value
                .map(|value| from_base64(value.get()))
                .transpose();
            let value = value.map_err(|reason| {
                let name = &header.key;
                RestError::InvalidEntity(format!("records[{index}].headers '{name}' {reason}"))
            })?;
            Ok((header.key.clone().into_owned(), value))
        };
        records.push(Record {
            key: part(index, "key", entry.key)?,
            value: part(index, "value", entry.value)?,
            headers: match entry.headers.is_empty() {
                true => Vec::new(),
                false => entry
                    .headers
                    .iter()
                    .map(header)
                    .collect::<Result<_, RestError>>()?,
            },
            timestamp: entry.timestamp.map(UnixMillis),
        });
    }
    Ok(records)
}

/// What JSON text reads, as a part of the body where it stands there so.
fn text_of(body: &Bytes, raw: &str) -> Option<Bytes> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Bytes::from);
    }
    Some(body.slice_ref(inner.as_bytes()))
}

/// The bytes of JSON text in base64.
pub(crate) fn from_base64(text: &str) -> Result<Bytes, &'static str> {
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

/// Single failures stand with their records; that somebody may not write at all is for the whole.
fn status_of(outcomes: &[Outcome]) -> StatusCode {
    let is_forbidden = |outcome: &Outcome| matches!(outcome, Outcome::Refused { code, .. } if *code == NOT_ALLOWED);
    match outcomes.iter().any(is_forbidden) {
        true => StatusCode::FORBIDDEN,
        false => StatusCode::OK,
    }
}

fn receipts(outcomes: &[Outcome], writers: &Writers) -> Vec<u8> {
    use std::fmt::Write;
    let mut text = String::with_capacity(outcomes.len() * RECEIPT_BYTES + 64);
    text.push_str("{\"offsets\":[");
    // The receipts of thousands of records differ by their offsets only.
    let (mut of, mut before) = (None, String::new());
    for (index, outcome) in outcomes.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match outcome {
            Outcome::Placed { partition, offset } => {
                if of != Some(*partition) {
                    of = Some(*partition);
                    before = format!("{{\"partition\":{partition},\"offset\":");
                }
                text.push_str(&before);
                push_number(&mut text, *offset);
                text.push_str(",\"error_code\":null,\"error\":null}");
            }
            Outcome::Refused { code, reason } => {
                // Writing to a String does not fail.
                let _ = write!(
                    text,
                    "{{\"partition\":null,\"offset\":null,\"error_code\":{code},\"error\":{}}}",
                    serde_json::Value::from(&**reason)
                );
            }
        }
    }
    let id = |writer: &Option<Writer>| match writer {
        Some(writer) => writer.id.to_string(),
        None => "null".to_owned(),
    };
    let (key, value) = (id(&writers.key), id(&writers.value));
    let _ = write!(
        text,
        "],\"key_schema_id\":{key},\"value_schema_id\":{value}}}"
    );
    text.into_bytes()
}

/// Writes a number as `Display` does, in a third of its time.
fn push_number(text: &mut String, number: i64) {
    if number < 0 {
        text.push('-');
    }
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number.unsigned_abs());
    for digit in digits.iter_mut().rev() {
        at -= 1;
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // Digits are text.
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
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
                while let Some(JsonObject(entry)) = seq.next_element()? {
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

/// About what the receipt of a record takes.
const RECEIPT_BYTES: usize = 72;

/// Standard alphabet; padding as the writer likes, since clients differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_display_does() {
        for number in [0, 7, 10, 1_234_567_890_123, -1, i64::MAX, i64::MIN] {
            let mut text = "a".to_owned();
            push_number(&mut text, number);
            assert_eq!(text, format!("a{number}"));
        }
    }

    #[test]
    fn receipts_stand_in_the_order_of_their_records() {
        let placed = |partition, offset| Outcome::Placed { partition, offset };
        let refused = Outcome::Refused {
            code: 50003,
            reason: "a \"reason\"".into(),
        };
        let outcomes = [placed(3, 99), placed(3, 100), refused, placed(4, 0)];
        let text = receipts(&outcomes, &Writers::default());
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let placed = |partition: i32, offset: i64| {
            serde_json::json!({"partition": partition, "offset": offset,
                "error_code": null, "error": null})
        };
        let refused = serde_json::json!({"partition": null, "offset": null,
            "error_code": 50003, "error": "a \"reason\""});
        let expected = serde_json::json!({
            "offsets": [placed(3, 99), placed(3, 100), refused, placed(4, 0)],
            "key_schema_id": null,
            "value_schema_id": null,
        });
        assert_eq!(read, expected);
    }
}
