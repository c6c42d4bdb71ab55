//! Records in: an endless stream of them with a receipt for each, and batches.
//!
//! A stream is JSON objects one after another in one body, which may stay open as long as its
//! sender likes. What has arrived while the records before were stored is stored together; the
//! receipts leave in the order of the records. A record that cannot be stored has its error for a
//! receipt and holds up nobody; text that is no JSON ends the stream, since nobody can tell where
//! the next record begins. Who does not read receipts is not read from either. A stream that is
//! silent or open for too long, or open when the proxy stops, ends with a receipt that says so;
//! records behind the last receipt are not stored.

use std::borrow::Cow;
use std::collections::HashSet;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::{UnixMillis, parse_rfc3339};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use streams::{Record, TopicName};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::Here;
use super::bounds::Bounds;
use super::datum::{Datum, Told};
use super::form::{JSON, json};
use super::refusal::Refusal;
use super::schemas::Waiting;
use super::splitter::{SplitError, Splitter};
use super::topics::TopicPath;
use crate::answer::{self, JsonObject, Segments};
use crate::error::RestError;
use crate::idempotency::{self, Wanted, WantedKey};
use crate::limits::{
    BATCH_BYTES, BATCH_ENTRIES_MAX, BATCH_ID_CHARS_MAX, RECEIPTS_PIPE_BYTES, STREAM_END_GRACE,
    STREAM_KEYED_AT_ONCE, STREAM_READ_AHEAD_BYTES, STREAM_RECORDS_AT_ONCE,
};
use crate::media;
use crate::produce::from_base64;
use crate::storing::{self, Asked};

/// `POST …/topics/{topic}/records`
pub(super) async fn stream(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    headers: HeaderMap,
    Wanted(wanted): Wanted,
    body: Body,
) -> Result<Response, Refusal> {
    media::check_json(answer::text(&headers, header::CONTENT_TYPE))?;
    let topic = here.shared.config.topic_name(&topic)?;
    let partitions = storing::partitions_of(&here.shared, &topic).await?;
    if body.is_end_stream() {
        return Err(RestError::Payload("the body has no records").into());
    }
    let object_bytes_max = usize::try_from(here.shared.config.body_bytes_max.0);
    let receipts = answer::piped(RECEIPTS_PIPE_BYTES, move |receipts| {
        let streaming = Streaming {
            bounds: Bounds::of(&here.shared),
            here,
            topic,
            partitions,
            wanted,
            body,
            arrived: Splitter::new(object_bytes_max.unwrap_or(usize::MAX)),
            has_all: false,
            broken: None,
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
    Wanted(wanted): Wanted,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Batch<'a> {
        #[serde(borrow)]
        entries: Vec<&'a RawValue>,
    }
    let held = here.entity(&headers, body).await?;
    let topic = here.shared.config.topic_name(&topic)?;
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
    let once = wanted.map(|wanted| wanted.of(&topic, &held.bytes, here.shared.clock.now()));
    let (receipts, is_recalled) = match &once {
        None => (here.store(&topic, partitions, read).await, false),
        Some(once) => here.store_once(&topic, partitions, read, once).await?,
    };
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
    let answer = json(StatusCode::MULTI_STATUS, &answer);
    Ok(idempotency::marked(answer, is_recalled))
}

/// A stream of records under way.
struct Streaming {
    here: Here,
    topic: TopicName,
    partitions: i32,
    /// With a key, each record is stored under it and the record's number in the stream.
    wanted: Option<WantedKey>,
    body: Body,
    arrived: Splitter,
    /// The body has ended.
    has_all: bool,
    /// Why the body ended before its end.
    broken: Option<String>,
    bounds: Bounds,
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
            let mut next = match self.bounds.reached() {
                Some(end) => Next {
                    read: Vec::new(),
                    end: Some(end),
                },
                None => self.take(),
            };
            if next.read.is_empty() && next.end.is_none() {
                if !self.has_all {
                    next.end = self.receive().await;
                } else if let Some(end) = self.end(total) {
                    next.end = Some(end);
                } else {
                    return;
                }
                if next.end.is_none() {
                    continue;
                }
            }
            let first = total as u64;
            total += next.read.len();
            let mut told = Vec::new();
            for receipt in self.store(first, next.read).await {
                match receipt {
                    Ok(receipt) => tell(&mut told, &receipt),
                    Err(failed) => tell(&mut told, &failed),
                }
            }
            if let Some(failed) = &next.end {
                tell(&mut told, failed);
            }
            // The caller may have gone; what is stored stays stored.
            if self.receipts.write_all(&told).await.is_err() {
                return;
            }
            if next.end.is_some() {
                self.see_off().await;
                return;
            }
        }
    }

    /// What is wrong with the end of the body, after so many records.
    fn end(&mut self, total: usize) -> Option<Failed> {
        if let Some(reason) = self.broken.take() {
            return Some(Failed::of(400, &format!("the body broke off: {reason}")));
        }
        match (self.arrived.is_within(), total) {
            (true, _) => Some(Failed::of(400, "the body ends within a record")),
            (false, 0) => Some(Failed::of(42206, "the body has no records")),
            (false, _) => None,
        }
    }

    /// Lets a sender that goes on read the last receipt.
    async fn see_off(mut self) {
        let reading = async { while let Some(Ok(_)) = self.body.frame().await {} };
        // Whoever still sends after that is cut off.
        let _ = tokio::time::timeout(STREAM_END_GRACE, reading).await;
    }

    /// Takes the records that have arrived, as many as are stored at once.
    fn take(&mut self) -> Next {
        let mut next = Next::default();
        let mut bytes = 0;
        let count_max = match self.wanted {
            Some(_) => STREAM_KEYED_AT_ONCE,
            None => STREAM_RECORDS_AT_ONCE,
        };
        while next.read.len() < count_max && bytes < BATCH_BYTES {
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
        first: u64,
        read: Vec<Result<Ready, Failed>>,
    ) -> Vec<Result<Receipt<'_>, Failed>> {
        let Streaming {
            here,
            topic,
            partitions,
            wanted,
            body,
            arrived,
            has_all,
            broken,
            ..
        } = self;
        let storing = async {
            match wanted {
                None => here.store(topic, *partitions, read).await,
                Some(wanted) => {
                    here.store_each_once(topic, *partitions, first, read, wanted)
                        .await
                }
            }
        };
        tokio::pin!(storing);
        loop {
            let has_room = !*has_all && arrived.len() < STREAM_READ_AHEAD_BYTES;
            tokio::select! {
                receipts = &mut storing => return receipts,
                more = receive(body, arrived), if has_room => (*has_all, *broken) = more.ended(),
            }
        }
    }

    /// Receives what comes next, or answers why nobody waits for it any longer.
    async fn receive(&mut self) -> Option<Failed> {
        tokio::select! {
            biased;
            more = receive(&mut self.body, &mut self.arrived) => {
                (self.has_all, self.broken) = more.ended();
                None
            }
            end = self.bounds.wait() => Some(end),
        }
    }
}

/// What came of a body.
enum Came {
    /// Bytes, or nothing that matters.
    Some,
    /// The end.
    All,
    /// The end before its time.
    Broken(String),
}

impl Came {
    /// Whether this is the end, and what was wrong with it.
    fn ended(self) -> (bool, Option<String>) {
        match self {
            Came::Some => (false, None),
            Came::All => (true, None),
            Came::Broken(reason) => (true, Some(reason)),
        }
    }
}

/// Takes what comes next.
async fn receive(body: &mut Body, arrived: &mut Splitter) -> Came {
    match body.frame().await {
        Some(Ok(frame)) => {
            if let Some(bytes) = frame.data_ref() {
                arrived.push(bytes);
            }
            Came::Some
        }
        // What came whole before it breaks off is stored and told.
        Some(Err(error)) => Came::Broken(base::report(&error)),
        None => Came::All,
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
    headers: Vec<JsonObject<Header<'a>>>,
    #[serde(borrow)]
    key: Option<JsonObject<Datum<'a>>>,
    #[serde(borrow)]
    value: Option<JsonObject<Datum<'a>>>,
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

/// A record that can be stored, and what its receipt says of it.
pub(super) struct Ready {
    /// Its JSON text.
    pub(super) text: Bytes,
    pub(super) asked: Asked,
    pub(super) at: UnixMillis,
    pub(super) key: Option<Told>,
    pub(super) value: Option<Told>,
    /// Keys and values that wait for their schemas.
    pub(super) key_schema: Option<Waiting>,
    pub(super) value_schema: Option<Waiting>,
}

#[derive(Serialize)]
pub(super) struct Receipt<'a> {
    pub(super) error_code: u32,
    pub(super) cluster_id: &'a str,
    pub(super) topic_name: &'a str,
    pub(super) partition_id: i32,
    pub(super) offset: i64,
    pub(super) timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Told>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<Told>,
}

/// The receipt of a record that was not stored.
#[derive(Serialize)]
pub(super) struct Failed {
    pub(super) error_code: u32,
    pub(super) message: String,
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
    pub(super) fn of(error_code: u32, message: &str) -> Failed {
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
            Some(at) => match parse_rfc3339(at) {
                Some(at) if at >= 0 => UnixMillis(at),
                Some(_) => return Err(Failed::of(400, "timestamp is before 1970")),
                None => {
                    let text = "timestamp is no time: write 2026-01-31T12:00:00Z";
                    return Err(Failed::of(400, text));
                }
            },
        };
        let key = Datum::decode(self.key, "key", text)?;
        let value = Datum::decode(self.value, "value", text)?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for JsonObject(header) in self.headers {
            let value = match header.value {
                None => None,
                Some(raw) => Some(from_base64(raw.get()).map_err(|reason| {
                    Failed::of(400, &format!("header '{}' {reason}", header.name))
                })?),
            };
            headers.push((header.name.into_owned(), value));
        }
        let record = Record {
            key: key.bytes,
            value: value.bytes,
            headers,
            // Otherwise the store's clock, which is the proxy's but for a moment.
            timestamp: self.timestamp.map(|_| at),
        };
        Ok(Ready {
            text: text.clone(),
            asked: Asked {
                record,
                partition: self.partition_id,
            },
            at,
            key: key.told,
            value: value.told,
            key_schema: key.waiting,
            value_schema: value.waiting,
        })
    }
}

/// Adds a receipt to what goes out.
fn tell(out: &mut Vec<u8>, receipt: &impl Serialize) {
    // Only a map with keys that are no text fails, and a receipt has none.
    let _ = serde_json::to_writer(&mut *out, receipt);
    out.extend_from_slice(b"\r\n");
}
