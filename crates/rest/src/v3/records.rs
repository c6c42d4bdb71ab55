//! Records in: as they stand in bodies, and many at once in a batch. How they come one after another
//! is in [`super::streaming`].

use std::borrow::Cow;
use std::collections::HashSet;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base::{UnixMillis, parse_rfc3339};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use streams::Record;

use super::Here;
use super::datum::{Datum, Told};
use super::form::json;
use super::refusal::Refusal;
use super::schemas::Waiting;
use super::topics::TopicPath;
use crate::answer::{self, JsonObject, Segments, or_default};
use crate::idempotency::{self, Wanted};
use crate::limits::{BATCH_ENTRIES_MAX, BATCH_ID_CHARS_MAX};
use crate::produce::from_base64;
use crate::storing::{self, Asked};
use crate::working::Worked;

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
    storing::check_topic(&here.shared, &topic)?;
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
        None => {
            let worked = Worked::of_request();
            (here.store(&topic, partitions, read, worked).await, false)
        }
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
/// A record as it stands in the body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    partition_id: Option<i32>,
    #[serde(borrow, default, deserialize_with = "or_default")]
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
    pub(super) fn decode(self, text: &Bytes, now: UnixMillis) -> Result<Ready, Failed> {
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
