//! Records in: an endless stream of them with a receipt for each, and batches.
//!
//! A stream is JSON objects one after another in one body, which may stay open as long as its
//! sender likes. What has arrived while the records before were stored is stored together; the
//! receipts leave in the order of the records. A record that cannot be stored has its error for a
//! receipt and holds up nobody; text that is no JSON ends the stream, since nobody can tell where
//! the next record begins. Who does not read receipts is not read from either.

use std::borrow::Cow;
use std::collections::HashSet;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::{UnixMillis, format_rfc3339, parse_rfc3339};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use streams::{Record, TopicName};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::Here;
use super::form::{JSON, json};
use super::refusal::Refusal;
use super::splitter::{SplitError, Splitter};
use super::topics::TopicPath;
use crate::answer::{self, Segments};
use crate::error::RestError;
use crate::limits::{
    BATCH_BYTES, BATCH_ENTRIES_MAX, BATCH_ID_CHARS_MAX, RECEIPTS_PIPE_BYTES,
    STREAM_READ_AHEAD_BYTES, STREAM_RECORDS_AT_ONCE,
};
use crate::media;
use crate::produce::from_base64;
use crate::storing::{self, Asked, Outcome};

/// `POST …/topics/{topic}/records`
pub(super) async fn stream(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    media::check_json(answer::text(&headers, header::CONTENT_TYPE))?;
    let topic = answer::topic_name(&topic)?;
    let partitions = storing::partitions_of(&here.shared, &topic).await?;
    if body.is_end_stream() {
        return Err(RestError::Payload("the body has no records").into());
    }
    let object_bytes_max = usize::try_from(here.shared.config.body_bytes_max.0);
    let receipts = answer::piped(RECEIPTS_PIPE_BYTES, move |receipts| {
        let streaming = Streaming {
            here,
            topic,
            partitions,
            body,
            arrived: Splitter::new(object_bytes_max.unwrap_or(usize::MAX)),
            has_all: false,
            receipts,
        };
        streaming.run()
    });
    Ok(([(header::CONTENT_TYPE, JSON)], receipts).into_response())
}

/// `POST …/topics/{topic}/records:batch` with `{"entries": [{"id", …record}]}`: 207
pub(super) async fn batch(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Batch<'a> {
        #[serde(borrow)]
        entries: Vec<&'a RawValue>,
    }
    let held = here.entity(&headers, body).await?;
    let topic = answer::topic_name(&topic)?;
    let Batch { entries } = answer::entity(&held.bytes)?;
    if entries.is_empty() || entries.len() > BATCH_ENTRIES_MAX {
        let reason = format!("a batch has 1 to {BATCH_ENTRIES_MAX} entries");
        return Err(Refusal::Batch(reason));
    }
    let mut ids = Vec::with_capacity(entries.len());
    let mut told = HashSet::new();
    let mut read = Vec::with_capacity(entries.len());
    for entry in entries {
        let text = held.bytes.slice_ref(entry.get().as_bytes());
        let entry: Entry<'_> = answer::entity(entry.get().as_bytes())?;
        let id = entry.id.as_deref().unwrap_or_default().to_owned();
        let is_id = (1..=BATCH_ID_CHARS_MAX).contains(&id.chars().count());
        if !is_id || !told.insert(id.clone()) {
            let reason = format!(
                "every entry has an id of its own, of 1 to {BATCH_ID_CHARS_MAX} characters"
            );
            return Err(Refusal::Batch(reason));
        }
        ids.push(id);
        read.push(entry.decode(&text, here.shared.clock.now()));
    }
    let partitions = storing::partitions_of(&here.shared, &topic).await?;
    let receipts = here.store(&topic, partitions, read).await;
    let mut answer = BatchAnswer::default();
    for (id, receipt) in ids.into_iter().zip(receipts) {
        match receipt {
            Ok(receipt) => answer.successes.push(Success { id, receipt }),
            Err(Failed {
                error_code,
                message,
            }) => answer.failures.push(Failure {
                id,
                error_code,
                message,
            }),
        }
    }
    Ok(json(StatusCode::MULTI_STATUS, &answer))
}

/// A stream of records under way.
struct Streaming {
    here: Here,
    topic: TopicName,
    partitions: i32,
    body: Body,
    arrived: Splitter,
    /// The body has ended.
    has_all: bool,
    receipts: DuplexStream,
}

/// Records that came together, and what ends the stream behind them.
#[derive(Default)]
struct Next {
    read: Vec<Result<Ready, Failed>>,
    end: Option<Failed>,
}

impl Streaming {
    async fn run(mut self) {
        let mut total = 0_usize;
        loop {
            let mut next = self.take();
            if next.read.is_empty() && next.end.is_none() {
                if !self.has_all {
                    self.receive().await;
                    continue;
                }
                next.end = match (self.arrived.is_within(), total) {
                    (true, _) => Some(Failed::of(400, "the body ends within a record")),
                    (false, 0) => Some(Failed::of(42206, "the body has no records")),
                    (false, _) => None,
                };
                if next.end.is_none() {
                    break;
                }
            }
            total += next.read.len();
            let mut told = Vec::new();
            for receipt in self.store(next.read).await {
                match receipt {
                    Ok(receipt) => tell(&mut told, &receipt),
                    Err(failed) => tell(&mut told, &failed),
                }
            }
            if let Some(failed) = &next.end {
                tell(&mut told, failed);
            }
            // The caller may have gone; what is stored stays stored.
            if self.receipts.write_all(&told).await.is_err() || next.end.is_some() {
                return;
            }
        }
    }

    /// Takes the records that have arrived, as many as are stored at once.
    fn take(&mut self) -> Next {
        let mut next = Next::default();
        let mut bytes = 0;
        while next.read.len() < STREAM_RECORDS_AT_ONCE && bytes < BATCH_BYTES {
            match self.arrived.next() {
                Ok(None) => break,
                Ok(Some(text)) => {
                    bytes += text.len();
                    match serde_json::from_slice::<Entry<'_>>(&text) {
                        Ok(entry) => {
                            let now = self.here.shared.clock.now();
                            next.read.push(entry.decode(&text, now));
                        }
                        Err(error) if error.is_data() => {
                            let reason = format!("the record does not fit: {error}");
                            next.read.push(Err(Failed::of(400, &reason)));
                        }
                        Err(error) => {
                            let reason = format!("the body is no JSON: {error}");
                            next.end = Some(Failed::of(400, &reason));
                            break;
                        }
                    }
                }
                Err(error) => {
                    next.end = Some(match error {
                        SplitError::NoObject => Failed::of(400, "a record is a JSON object"),
                        SplitError::TooLarge => Failed::of(413, "the record is too large"),
                    });
                    break;
                }
            }
        }
        next
    }

    /// Stores records, and receives what comes meanwhile.
    async fn store(
        &mut self,
        read: Vec<Result<Ready, Failed>>,
    ) -> Vec<Result<Receipt<'_>, Failed>> {
        let Streaming {
            here,
            topic,
            partitions,
            body,
            arrived,
            has_all,
            ..
        } = self;
        let storing = here.store(topic, *partitions, read);
        tokio::pin!(storing);
        loop {
            let has_room = !*has_all && arrived.len() < STREAM_READ_AHEAD_BYTES;
            tokio::select! {
                receipts = &mut storing => return receipts,
                more = receive(body, arrived), if has_room => *has_all = !more,
            }
        }
    }

    async fn receive(&mut self) {
        self.has_all = !receive(&mut self.body, &mut self.arrived).await;
    }
}

/// Takes what comes next; false when that is the end.
async fn receive(body: &mut Body, arrived: &mut Splitter) -> bool {
    match body.frame().await {
        Some(Ok(frame)) => {
            if let Some(bytes) = frame.data_ref() {
                arrived.push(bytes);
            }
            true
        }
        // A body that breaks off has an end too: what came whole is stored and told.
        Some(Err(_)) | None => false,
    }
}

/// A record as it stands in the body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    partition_id: Option<i32>,
    #[serde(borrow, default)]
    headers: Vec<Header<'a>>,
    #[serde(borrow)]
    key: Option<Datum<'a>>,
    #[serde(borrow)]
    value: Option<Datum<'a>>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

/// A key or a value. What names a schema is not taken yet.
#[derive(Deserialize)]
struct Datum<'a> {
    r#type: Option<Form>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// How a key or a value stands in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Form {
    Binary,
    Json,
    String,
    Avro,
    Jsonschema,
    Protobuf,
}

/// A record that can be stored, and what its receipt says of it.
struct Ready {
    asked: Asked,
    at: UnixMillis,
    key: Option<Told>,
    value: Option<Told>,
}

/// What a receipt says of a key or a value.
#[derive(Serialize)]
struct Told {
    r#type: Form,
    size: usize,
}

#[derive(Serialize)]
struct Receipt<'a> {
    error_code: u32,
    cluster_id: &'a str,
    topic_name: &'a str,
    partition_id: i32,
    offset: i64,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Told>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Told>,
}

/// The receipt of a record that was not stored.
#[derive(Serialize)]
struct Failed {
    error_code: u32,
    message: String,
}

#[derive(Default, Serialize)]
struct BatchAnswer<'a> {
    successes: Vec<Success<'a>>,
    failures: Vec<Failure>,
}

#[derive(Serialize)]
struct Success<'a> {
    id: String,
    #[serde(flatten)]
    receipt: Receipt<'a>,
}

#[derive(Serialize)]
struct Failure {
    id: String,
    error_code: u32,
    message: String,
}

impl Failed {
    fn of(error_code: u32, message: &str) -> Failed {
        Failed {
            error_code,
            message: message.to_owned(),
        }
    }
}

impl Entry<'_> {
    /// The record, whose JSON text `text` is; it came in at `now`.
    fn decode(self, text: &Bytes, now: UnixMillis) -> Result<Ready, Failed> {
        let at = match &self.timestamp {
            None => now,
            Some(at) => parse_rfc3339(at).map(UnixMillis).ok_or_else(|| {
                Failed::of(400, "timestamp is no time: write 2026-01-31T12:00:00Z")
            })?,
        };
        let (key, key_told) = Datum::decode(self.key, "key", text)?;
        let (value, value_told) = Datum::decode(self.value, "value", text)?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for header in self.headers {
            let value = match header.value {
                None => None,
                Some(raw) => Some(from_base64(raw).map_err(|reason| {
                    Failed::of(400, &format!("header '{}' {reason}", header.name))
                })?),
            };
            headers.push((header.name.into_owned(), value));
        }
        let record = Record {
            key,
            value,
            headers,
            // Otherwise the store's clock, which is the proxy's but for a moment.
            timestamp: self.timestamp.map(|_| at),
        };
        Ok(Ready {
            asked: Asked {
                record,
                partition: self.partition_id,
            },
            at,
            key: key_told,
            value: value_told,
        })
    }
}

impl Datum<'_> {
    /// The bytes of a key or a value, and what the receipt says of it.
    fn decode(
        datum: Option<Datum<'_>>,
        name: &str,
        text: &Bytes,
    ) -> Result<(Option<Bytes>, Option<Told>), Failed> {
        let Some(datum) = datum else {
            return Ok((None, None));
        };
        let form = datum.r#type.ok_or_else(|| {
            Failed::of(400, &format!("{name} needs a type: BINARY, JSON or STRING"))
        })?;
        let Some(raw) = datum.data else {
            return Ok((
                None,
                Some(Told {
                    r#type: form,
                    size: 0,
                }),
            ));
        };
        let bytes = match form {
            Form::Json => text.slice_ref(raw.get().as_bytes()),
            Form::Binary => {
                from_base64(raw).map_err(|reason| Failed::of(400, &format!("{name} {reason}")))?
            }
            Form::String => {
                let text: Cow<'_, str> = serde_json::from_str(raw.get())
                    .map_err(|_| Failed::of(400, &format!("{name} is no text")))?;
                Bytes::from(text.into_owned())
            }
            Form::Avro | Form::Jsonschema | Form::Protobuf => {
                let reason = format!("{name} needs a schema registry, which is not there yet");
                return Err(Failed::of(42207, &reason));
            }
        };
        let size = bytes.len();
        Ok((Some(bytes), Some(Told { r#type: form, size })))
    }
}

impl Here {
    /// Stores the records among these that can be; answers the receipts in their order.
    async fn store<'a>(
        &'a self,
        topic: &'a TopicName,
        partitions: i32,
        read: Vec<Result<Ready, Failed>>,
    ) -> Vec<Result<Receipt<'a>, Failed>> {
        let mut asked = Vec::with_capacity(read.len());
        let mut rest = Vec::with_capacity(read.len());
        for entry in read {
            rest.push(entry.map(|ready| {
                asked.push(ready.asked);
                (ready.at, ready.key, ready.value)
            }));
        }
        let outcomes = storing::store(&self.shared, topic, partitions, asked).await;
        let mut outcomes = outcomes.into_iter();
        let receipts = rest.into_iter().map(|entry| {
            let (at, key, value) = entry?;
            match outcomes.next() {
                Some(Outcome::Placed { partition, offset }) => Ok(Receipt {
                    error_code: 200,
                    cluster_id: &self.cluster.id,
                    topic_name: topic.display(),
                    partition_id: partition,
                    offset,
                    timestamp: format_rfc3339(at),
                    key,
                    value,
                }),
                Some(Outcome::Refused { code, reason }) => Err(Failed::of(
                    // Here it is the broker that does not know the partition.
                    if code == 40402 { 40403 } else { code },
                    &reason,
                )),
                None => Err(Failed::of(50002, "the store broke off")),
            }
        });
        receipts.collect()
    }
}

/// Adds a receipt to what goes out.
fn tell(out: &mut Vec<u8>, receipt: &impl Serialize) {
    // Only a map with keys that are no text fails, and a receipt has none.
    let _ = serde_json::to_writer(&mut *out, receipt);
    out.extend_from_slice(b"\r\n");
}
