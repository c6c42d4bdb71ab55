//! A topic's records as people look at them through the management port,
//! `/api/v1/topics/{name}/records`: the newest, the oldest, or those from an offset or a time on.
//!
//! Whoever looks needs the right to read the topic beside a role: where ACLs are followed, records are
//! read as their caller may read them, which leaves out what other tenants have in a topic that several
//! share. A look is bounded in records, bytes and time, and says where it ended before it was done;
//! nothing is kept between two, and nobody's group is touched.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use base::{UnixMillis, parse_rfc3339};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use streams::{
    Caller, ConsumedRecord, Consumer, ConsumerConfig, EventStore, OffsetRange, SeekTo,
    StreamsError, TopicName, as_caller,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::answer::{self, Parameters, Segments};
use crate::answers::{Answers, kept};
use crate::consumers::record_bytes;
use crate::embedded::{Embedding, Readers};
use crate::error::RestError;
use crate::limits::{
    LOOK_BYTES_MAX, LOOK_POLL_BYTES, LOOK_POLL_WAIT, LOOK_RECORDS_DEFAULT, LOOK_RECORDS_MAX,
    LOOK_SHOWN_BYTES, LOOK_TIME_MAX, LOOKS_MAX, PARTITION_READ_PLACE_WAIT,
};
use crate::login::Logins;
use crate::produce::existing_partition;
use crate::schemas::SchemaRegistry;
use crate::v3::{DatumObject, Form, Format};
use crate::working;

struct Looks {
    store: Arc<dyn EventStore>,
    embedding: Embedding,
    follows_acls: bool,
    places: Semaphore,
}

/// The route of looks at records over `store`; keys and values with schemas of `registry` are shown by
/// them. `logins` are those who call the port.
///
/// `GET /api/v1/topics/{name}/records?partition=&from=&limit=&format=`: `{"records": [{partition,
/// offset, timestamp_ms, headers: [{name, value}], headers_left_out, key, value}], "is_whole"}`. A key,
/// a value or a header's value is null or `{type, schema_id?, data, bytes, is_cut}` with `data` as text:
/// JSON as it was stored, or base64 where `type` is `BINARY`. `from` is `newest` (the default),
/// `oldest`, `offset:N`, `before:N` or a time; the newest stand first in the answer to `newest` and
/// `before`, the oldest in others. Of several partitions each gives its part of `limit`.
pub fn records_management(
    store: Arc<dyn EventStore>,
    registry: Option<Arc<SchemaRegistry>>,
    logins: Option<&Logins>,
) -> Router {
    let looks = Arc::new(Looks {
        store,
        embedding: Embedding::new(registry),
        follows_acls: logins.is_some_and(Logins::follows_acls),
        places: Semaphore::new(LOOKS_MAX),
    });
    Router::new()
        .route("/api/v1/topics/{name}/records", get(records))
        .with_state(looks)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    partition: Option<String>,
    from: Option<String>,
    limit: Option<usize>,
    format: Option<Format>,
}

async fn records(
    State(looks): State<Arc<Looks>>,
    caller: Option<Extension<Caller>>,
    Segments(name): Segments<String>,
    Parameters(asked): Parameters<Asked>,
) -> Result<Response, RestError> {
    let from = From::parse(asked.from.as_deref())?;
    let limit = asked.limit.unwrap_or(LOOK_RECORDS_DEFAULT);
    if !(1..=LOOK_RECORDS_MAX).contains(&limit) {
        let text = format!("limit is 1 to {LOOK_RECORDS_MAX}");
        return Err(RestError::BadRequest(text));
    }
    let place = tokio::time::timeout(PARTITION_READ_PLACE_WAIT, looks.places.acquire());
    let Ok(Ok(_place)) = place.await else {
        return Err(RestError::TooManyPartitionReads(LOOKS_MAX));
    };
    let caller = caller.filter(|_| looks.follows_acls);
    let caller = caller.map(|Extension(caller)| caller);
    let store = match caller.clone() {
        Some(caller) => as_caller(Arc::clone(&looks.store), caller),
        None => Arc::clone(&looks.store),
    };
    let info = store.topic(&answer::topic_name(&name)?).await?;
    let one = asked.partition.as_deref();
    let one = one.map(|text| existing_partition(&info.name, info.partitions, text));
    let one = one.transpose()?;
    let held: Vec<(i32, OffsetRange)> = (0..)
        .zip(info.partition_offsets)
        .filter(|(index, range)| one.is_none_or(|one| one == *index) && range.start < range.end)
        .collect();
    let look = Look {
        consumer: store.consumer(ConsumerConfig::alone("console")).await?,
        store,
        shape: Shape {
            embedding: &looks.embedding,
            caller: caller.as_ref(),
            format: asked.format,
            bytes_max: LOOK_SHOWN_BYTES / limit,
        },
        topic: info.name,
        bytes_left: LOOK_BYTES_MAX,
        until: Instant::now() + LOOK_TIME_MAX,
    };
    let (records, is_whole) = look.at(held, from, limit).await?;
    let body = serde_json::to_vec(&json!({"records": records, "is_whole": is_whole}));
    let body = body.map_err(|error| RestError::BadRequest(error.to_string()))?;
    let share = Answers::of_process().for_answer(body.len());
    let share = share.ok_or(RestError::TooManyPartitionReads(LOOKS_MAX))?;
    let answer = answer::bytes(StatusCode::OK, "application/json", body);
    Ok(kept(answer, Some(share)))
}

/// Where a look begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// At the end, going back.
    Newest,
    /// Before an offset, going back.
    Before(i64),
    Oldest,
    Offset(i64),
    Time(UnixMillis),
}

impl From {
    fn parse(text: Option<&str>) -> Result<From, RestError> {
        let offset = |text: &str| text.parse().ok().filter(|offset: &i64| *offset >= 0);
        let read = match text {
            None | Some("newest") => Some(From::Newest),
            Some("oldest") => Some(From::Oldest),
            Some(text) => match text.split_once(':') {
                Some(("offset", text)) => offset(text).map(From::Offset),
                Some(("before", text)) => offset(text).map(From::Before),
                _ => parse_rfc3339(text).map(|at| From::Time(UnixMillis(at))),
            },
        };
        read.ok_or_else(|| {
            RestError::BadRequest(
                "from is newest, oldest, offset:17, before:17 or a time such as \
                 2026-01-31T12:00:00Z"
                    .to_owned(),
            )
        })
    }

    fn goes_back(self) -> bool {
        matches!(self, From::Newest | From::Before(_))
    }
}

/// A look that is under way.
struct Look<'l> {
    store: Arc<dyn EventStore>,
    consumer: Box<dyn Consumer>,
    topic: TopicName,
    shape: Shape<'l>,
    bytes_left: usize,
    until: Instant,
}

/// How records are shown.
#[derive(Clone, Copy)]
struct Shape<'l> {
    embedding: &'l Embedding,
    caller: Option<&'l Caller>,
    format: Option<Format>,
    /// Of each key, value and header.
    bytes_max: usize,
}

/// Which of some offsets' records are kept.
#[derive(Clone, Copy)]
enum Keep {
    First(usize),
    Last(usize),
}

impl Look<'_> {
    /// The records of these partitions in the order of the answer, and whether those are all that were
    /// to be shown.
    async fn at(
        mut self,
        held: Vec<(i32, OffsetRange)>,
        from: From,
        limit: usize,
    ) -> Result<(Vec<Shown>, bool), StreamsError> {
        let each = limit.div_ceil(held.len().max(1));
        let is_mixed = held.len() > 1;
        let in_order = |shown: &mut Vec<Shown>| {
            if is_mixed {
                shown.sort_by_key(|one| (one.timestamp_ms, one.partition, one.offset));
                if from.goes_back() {
                    shown.reverse();
                }
            }
            shown.truncate(limit);
        };
        let (mut shown, mut is_whole) = (Vec::new(), true);
        for (index, range) in held {
            if self.is_spent() {
                is_whole = false;
                break;
            }
            self.consumer
                .assign(vec![(self.topic.clone(), index)])
                .await?;
            let begin = match from {
                From::Newest | From::Before(_) | From::Oldest => range.start,
                From::Offset(offset) => offset.max(range.start),
                From::Time(at) => {
                    let found = self.store.offset_for_time(&self.topic, index, at).await?;
                    found.map_or(range.end, |offset| offset.max(range.start))
                }
            };
            let end = match from {
                From::Before(offset) => offset.min(range.end),
                _ => range.end,
            };
            let (found, is_done) = match from.goes_back() {
                true => self.back(index, begin..end, each).await?,
                false => self.within(index, begin..end, Keep::First(each)).await?,
            };
            is_whole &= is_done;
            shown.extend(found);
            if shown.len() > 2 * limit {
                in_order(&mut shown);
            }
        }
        in_order(&mut shown);
        Ok((shown, is_whole))
    }

    /// The last records of these offsets, the newest first. Offsets may hold no record, so it goes
    /// back in steps that grow.
    async fn back(
        &mut self,
        index: i32,
        offsets: Range<i64>,
        count: usize,
    ) -> Result<(VecDeque<Shown>, bool), StreamsError> {
        let (mut found, mut end, mut step) = (VecDeque::new(), offsets.end, 1_i64);
        while found.len() < count && end > offsets.start {
            let begin = end.saturating_sub(step).max(offsets.start);
            let wanted = Keep::Last(count - found.len());
            let (part, is_done) = self.within(index, begin..end, wanted).await?;
            if !is_done {
                // Of this step the oldest were read, and not those that stand next.
                return Ok((found, false));
            }
            found.extend(part.into_iter().rev());
            (end, step) = (begin, step.saturating_mul(4));
        }
        Ok((found, true))
    }

    /// Some of the records of these offsets, in their order, and whether that is all of them.
    async fn within(
        &mut self,
        index: i32,
        offsets: Range<i64>,
        keep: Keep,
    ) -> Result<(VecDeque<Shown>, bool), StreamsError> {
        let mut found = VecDeque::new();
        if offsets.is_empty() {
            return Ok((found, true));
        }
        let begin = SeekTo::Offset(offsets.start);
        self.consumer.seek(&self.topic, index, begin).await?;
        let mut wait = Duration::ZERO;
        loop {
            let mut records = self.consumer.poll(wait, LOOK_POLL_BYTES).await?;
            let last = records.last().map(|record| record.offset + 1);
            let next = last.or_else(|| self.consumer.position(&self.topic, index));
            let is_at_end = records.is_empty() && self.consumer.is_at_end(&self.topic, index);
            records.retain(|record| offsets.contains(&record.offset));
            let bytes: usize = records.iter().map(record_bytes).sum();
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            for one in self.shape.show(&records, bytes).await {
                match keep {
                    Keep::First(count) if found.len() >= count => break,
                    Keep::Last(count) if found.len() >= count => {
                        found.pop_front();
                    }
                    _ => {}
                }
                found.push_back(one);
            }
            let has_enough = matches!(keep, Keep::First(count) if found.len() >= count);
            let is_past = next.is_some_and(|next| next >= offsets.end);
            if has_enough || is_past || is_at_end {
                return Ok((found, true));
            }
            if self.is_spent() {
                return Ok((found, false));
            }
            // What is at hand comes without a wait.
            wait = match last {
                Some(_) => Duration::ZERO,
                None => LOOK_POLL_WAIT,
            };
        }
    }

    fn is_spent(&self) -> bool {
        self.bytes_left == 0 || Instant::now() >= self.until
    }
}

impl Shape<'_> {
    async fn show(self, records: &[ConsumedRecord], bytes: usize) -> Vec<Shown> {
        let readers = Format::readers(self.format, self.embedding, self.caller, records).await;
        let shown = || {
            let each = records.iter();
            each.map(|record| Shown::of(record, self, &readers))
                .collect()
        };
        working::read(records.len(), bytes, shown).await
    }
}

/// A record as a page shows it.
#[derive(Serialize)]
struct Shown {
    partition: i32,
    offset: i64,
    timestamp_ms: UnixMillis,
    headers: Vec<HeaderShown>,
    headers_left_out: usize,
    key: Option<Part>,
    value: Option<Part>,
}

#[derive(Serialize)]
struct HeaderShown {
    name: String,
    value: Option<Part>,
}

/// A key, a value or a header's value, or its beginning.
#[derive(Serialize)]
struct Part {
    r#type: Form,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_id: Option<i32>,
    data: String,
    /// Of all of it, as it is stored.
    bytes: usize,
    is_cut: bool,
}

impl Shown {
    fn of(record: &ConsumedRecord, shape: Shape<'_>, readers: &Readers) -> Shown {
        let bytes_max = shape.bytes_max;
        let part = |bytes: &Bytes| Part::of(bytes, shape.format, readers, bytes_max);
        let mut bytes_left = bytes_max;
        let headers = record.headers.iter().map_while(|(name, value)| {
            let bytes = name.len() + value.as_ref().map_or(0, Bytes::len);
            bytes_left = bytes_left.checked_sub(bytes)?;
            let text = Some(Format::String);
            let shown = |value| Part::of(value, text, &Readers::default(), bytes_max);
            Some(HeaderShown {
                name: name.clone(),
                value: value.as_ref().map(shown),
            })
        });
        let headers: Vec<HeaderShown> = headers.collect();
        Shown {
            partition: record.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp,
            headers_left_out: record.headers.len() - headers.len(),
            headers,
            key: record.key.as_ref().map(part),
            value: record.value.as_ref().map(part),
        }
    }
}

impl Part {
    fn of(bytes: &Bytes, format: Option<Format>, readers: &Readers, bytes_max: usize) -> Part {
        let is_cut = bytes.len() > bytes_max;
        let beginning = match is_cut {
            true => beginning(bytes, bytes_max),
            false => bytes.clone(),
        };
        let datum = match is_cut {
            // A part of it is neither JSON nor what its schema says.
            true if format != Some(Format::Binary) => {
                DatumObject::of(&beginning, Some(Format::String), &Readers::default())
            }
            _ => DatumObject::of(&beginning, format, readers),
        };
        let (form, schema_id, mut data) = datum.into_text();
        // What a schema makes of few bytes may be long.
        let is_long = schema_id.is_some() && data.len() > bytes_max;
        if is_long {
            data.truncate(data.floor_char_boundary(bytes_max));
        }
        Part {
            r#type: form,
            schema_id,
            data,
            bytes: bytes.len(),
            is_cut: is_cut || is_long,
        }
    }
}

/// As many bytes as are wanted, without half a character at the end of a text.
fn beginning(bytes: &Bytes, wanted: usize) -> Bytes {
    let end = match std::str::from_utf8(&bytes[..wanted]) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => wanted,
    };
    bytes.slice(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_look_begins_is_read_and_nonsense_is_refused() {
        let read = |text| From::parse(Some(text)).ok();
        assert_eq!(From::parse(None).ok(), Some(From::Newest));
        assert_eq!(read("oldest"), Some(From::Oldest));
        assert_eq!(read("offset:17"), Some(From::Offset(17)));
        assert_eq!(read("before:0"), Some(From::Before(0)));
        let at = From::Time(UnixMillis(1_000));
        assert_eq!(read("1970-01-01T00:00:01Z"), Some(at));
        for text in ["", "17", "offset:-1", "offset:x", "before:", "latest"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let shown = |bytes: &[u8], format| {
            let bytes = Bytes::copy_from_slice(bytes);
            Part::of(&bytes, format, &Readers::default(), 4)
        };
        let part = shown("aaaé".as_bytes(), None);
        assert_eq!((&*part.data, part.bytes, part.is_cut), ("aaa", 5, true));
        assert_eq!(part.r#type, Form::String);
        // No number becomes another one.
        let part = shown(b"12345", None);
        assert_eq!(
            (&*part.data, part.r#type, part.is_cut),
            ("1234", Form::String, true)
        );
        let part = shown(b"1234", None);
        assert_eq!(
            (&*part.data, part.r#type, part.is_cut),
            ("1234", Form::Json, false)
        );
        let part = shown(b"\xff\xfe\xfd\xfc\xfb", None);
        assert_eq!((&*part.data, part.r#type), ("//79/A==", Form::Binary));
        let part = shown(b"12345", Some(Format::Binary));
        assert_eq!((&*part.data, part.bytes), ("MTIzNA==", 5));
    }
}
