//! A read: records out of the store into a JSON array.
//!
//! A read answers as soon as data is there; its time-out only bounds the wait for the first record
//! (or for `fetch.min.bytes`), unless the configuration asks for kafka-rest's way, which waits the
//! time out. A record larger than `max_bytes` is answered alone.
//!
//! A key or value that is not JSON in a JSON read, or not of its schema in a read with schemas, never
//! blocks what follows: its record is answered in its place with `null` for that part and two more
//! fields, `error_code` 50002 and `error`, so that a reader can tell it from a tombstone and fetch its bytes with a binary
//! instance.

use std::ops::Range;
use std::time::Duration;

use base::UnixMillis;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use streams::ConsumedRecord;
use tokio::time::Instant;
use uuid::Uuid;

use super::unanswered::beginnings;
use super::{Instance, Interest, Reader, not_found, patterns};
use crate::answers::{Answers, Share};
use crate::embedded::Readers;
use crate::error::RestError;
use crate::limits;
use crate::media::Embedded;
use crate::routes::Shared;
use crate::working;

/// The parameters of `GET …/records`; negative values mean their defaults.
#[derive(Debug, Deserialize)]
pub(crate) struct ReadLimits {
    /// Milliseconds.
    #[serde(alias = "consumer.request.timeout.ms")]
    timeout: Option<i64>,
    /// Bytes of keys and values.
    pub(super) max_bytes: Option<i64>,
    /// What records are to tell beside the usual: `headers`, `timestamp` or both.
    include: Option<String>,
}

/// What the objects of a read tell of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub topic: bool,
    pub timestamp: bool,
    pub headers: Headers,
}

/// Which records' headers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    None,
    /// Those of records that have some.
    WhereThere,
    All,
}

impl Shape {
    /// What kafka-rest tells, and no more.
    pub const USUAL: Shape = Shape {
        topic: true,
        timestamp: false,
        headers: Headers::None,
    };

    /// The usual and what `include` asks for. Strimzi's bridge tells the headers that records have.
    fn with(include: Option<&str>, is_strimzis: bool) -> Result<Shape, RestError> {
        let mut shape = Shape::USUAL;
        if is_strimzis {
            shape.headers = Headers::WhereThere;
        }
        for word in include.into_iter().flat_map(|text| text.split(',')) {
            match word.trim() {
                "timestamp" => shape.timestamp = true,
                "headers" => shape.headers = Headers::All,
                _ => {
                    let text = "include is headers, timestamp or headers,timestamp";
                    return Err(RestError::BadRequest(text.to_owned()));
                }
            }
        }
        Ok(shape)
    }
}

/// Reads the next records as a JSON array, with its share of the room for answers. A read that comes
/// again with its `mark` is answered with the same records.
pub(crate) async fn records(
    shared: &Shared,
    instance: &Instance,
    asked: ReadLimits,
    mark: Option<Uuid>,
) -> Result<(Vec<u8>, Option<Share>), RestError> {
    let shape = Shape::with(asked.include.as_deref(), instance.config.commits_next)?;
    let default_wait = shared.config.consumer_request_timeout.0;
    let wait = match asked.timeout.map(u64::try_from) {
        Some(Ok(ms)) => Duration::from_millis(ms),
        _ => instance.config.wait_max.unwrap_or(default_wait),
    };
    let wait = wait.min(instance.config.wait_max.unwrap_or(limits::READ_WAIT_MAX));
    let bytes_min = match (
        instance.config.bytes_min,
        shared.config.read_waits_for_timeout,
    ) {
        (Some(bytes), _) => bytes,
        (None, false) => 1,
        (None, true) => usize::MAX,
    };
    let max_bytes = match asked.max_bytes.map(usize::try_from) {
        Some(Ok(bytes)) => bytes.min(limits::READ_BYTES_MAX),
        _ => limits::READ_BYTES_DEFAULT,
    };
    let deadline = Instant::now() + wait;
    let mut reader = instance.reader().await?;
    if matches!(reader.interest, Interest::Nothing) {
        return Err(RestError::IllegalState(
            "the instance reads nothing yet; subscribe it to topics or assign it partitions"
                .to_owned(),
        ));
    }
    reader.repeat(mark).await?;
    let now = shared.clock.now();
    reader.commit_when_due(instance, now).await?;
    patterns::refresh(shared, instance, &mut reader).await?;
    shared
        .consumers
        .note_answered(&*shared.store, instance, &mut reader)
        .await?;
    let mut share = None;
    let bytes = bytes_min.min(max_bytes)..max_bytes;
    let collected = async {
        loop {
            let now = shared.clock.now();
            let look = reader.look(deadline);
            let bytes = bytes.clone();
            let found = collect(&mut reader, now, look..deadline, bytes, &mut share).await?;
            if !found.0.is_empty() || Instant::now() >= deadline {
                return Ok::<_, RestError>(found);
            }
            // Other topics may match by now.
            patterns::refresh_waiting(shared, instance, &mut reader).await?;
        }
    };
    let (mut records, fitting) = tokio::select! {
        collected = collected => collected?,
        // Deleting an instance does not wait for its reads.
        () = instance.gone.cancelled() => return Err(not_found(&instance.key)),
    };
    let surplus = records.split_off(fitting);
    let format = instance.config.format;
    let readers = readers(shared, &records, format).await;
    let (body, told) = encoded_beside(&records, format, shape, &readers).await;
    let untold = records.split_off(told);
    shared
        .consumers
        .note_begun(instance, &mut reader, &records)
        .await?;
    let left = beginnings(&[&untold, &surplus]);
    reader.answer(mark, &records, left).await;
    drop(reader);
    metrics::counter!("thalweg_rest_records_out_total").increment(told as u64);
    metrics::counter!("thalweg_rest_bytes_out_total").increment(body.len() as u64);
    if let Some(share) = &mut share {
        share.shrink(body.len());
    }
    Ok((body, share))
}

/// Collects records until there are as many bytes as `wanted` begins with, or it is time: at the
/// beginning of `until` while there is nothing, else at its end. Never more than `wanted` ends with,
/// but for a first record that is larger; answers how many records that leaves, since more may have
/// come. More than a little is only taken with a share of the room for answers.
pub(super) async fn collect(
    reader: &mut Reader,
    now: UnixMillis,
    until: Range<Instant>,
    wanted: Range<usize>,
    share: &mut Option<Share>,
) -> Result<(Vec<ConsumedRecord>, usize), RestError> {
    if let Some(failure) = reader.taken.failure() {
        return Err(failure.into());
    }
    let mut records: Vec<ConsumedRecord> = Vec::new();
    let mut bytes = 0;
    // Room was found for what is there already.
    let mut is_there = false;
    loop {
        let granted = match share {
            Some(_) => wanted.end,
            None => wanted.end.min(limits::ANSWER_BYTES_FREE),
        };
        let end = match records.is_empty() {
            true => until.start,
            false => until.end,
        };
        let left = match is_there {
            true => Duration::ZERO,
            false => end.saturating_duration_since(Instant::now()),
        };
        let bytes_left = granted.saturating_sub(bytes).max(1);
        // A partition that comes meanwhile is to be moved before it is read.
        let is_resuming = reader.is_resuming(now);
        let look = match is_resuming {
            true => left.min(limits::RESUME_LOOK),
            false => left,
        };
        let mut more = match reader.consumer()?.poll(look, bytes_left).await {
            Ok(more) => more,
            Err(error) if records.is_empty() => return Err(error.into()),
            Err(error) => {
                reader.taken.fail_later(error);
                break;
            }
        };
        reader.taken.note(&more);
        if is_resuming {
            more = reader.resume(more).await?;
            if more.is_empty() && left > look {
                continue;
            }
        }
        let is_enough = |bytes: usize| bytes >= wanted.start || Instant::now() >= until.end;
        if more.is_empty() {
            if is_there && !is_enough(bytes) {
                is_there = false;
                continue;
            }
            break;
        }
        let more_bytes: usize = more.iter().map(record_bytes).sum();
        if !records.is_empty() && bytes + more_bytes > wanted.end {
            // A large record came as the first of its poll; it waits for the next read.
            let fitting = records.len();
            records.extend(more);
            return Ok((records, fitting));
        }
        bytes += more_bytes;
        records.extend(more);
        // Half of what was free: there may be more.
        if share.is_none() && granted < wanted.end && bytes >= granted / 2 {
            *share = Answers::of_process()
                .for_records(wanted.end.max(bytes))
                .await;
            is_there = share.is_some() && bytes < wanted.end;
            match is_there {
                true => continue,
                false => break,
            }
        }
        if is_enough(bytes) {
            break;
        }
    }
    let fitting = records.len();
    Ok((records, fitting))
}

impl Reader {
    /// Until when a read of this one waits for its first record before it looks what to read.
    fn look(&self, deadline: Instant) -> Instant {
        match self.interest {
            Interest::Pattern { .. } => deadline.min(Instant::now() + limits::PATTERN_AGE_MAX),
            _ => deadline,
        }
    }
}

/// What a record counts towards `max_bytes`.
pub(crate) fn record_bytes(record: &ConsumedRecord) -> usize {
    let part = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    part(&record.key) + part(&record.value)
}

/// The schemas that records' keys and values have, in formats with schemas.
pub(crate) async fn readers(
    shared: &Shared,
    records: &[ConsumedRecord],
    format: Embedded,
) -> Readers {
    if !matches!(format, Embedded::Schema(_)) {
        return Readers::default();
    }
    let caller = shared.caller.as_ref();
    shared.embedding.readers(caller, records).await
}

/// As [`encoded`], where it holds up nobody.
pub(crate) async fn encoded_beside(
    records: &[ConsumedRecord],
    format: Embedded,
    shape: Shape,
    readers: &Readers,
) -> (Vec<u8>, usize) {
    let encode = || encoded(records, format, shape, readers);
    match format {
        Embedded::Binary | Embedded::Json | Embedded::Text => encode(),
        Embedded::Schema(_) => {
            let bytes = records.iter().map(record_bytes).sum();
            working::read(records.len(), bytes, encode).await
        }
    }
}

/// Records as a JSON array, and how many of them it has: JSON of a schema may be much larger than its
/// payload, so that not all may fit into one answer.
fn encoded(
    records: &[ConsumedRecord],
    format: Embedded,
    shape: Shape,
    readers: &Readers,
) -> (Vec<u8>, usize) {
    let bytes: usize = records.iter().map(record_bytes).sum();
    let mut out = Vec::with_capacity(bytes + bytes / 3 + records.len() * 96 + 2);
    out.push(b'[');
    let mut told = records.len();
    for (index, record) in records.iter().enumerate() {
        if index > 0 && out.len() > limits::READ_ANSWER_BYTES_MAX {
            told = index;
            break;
        }
        if index > 0 {
            out.push(b',');
        }
        out.push(b'{');
        if shape.topic {
            out.extend_from_slice(b"\"topic\":");
            out.extend_from_slice(quoted(record.topic.display()).as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(b"\"key\":");
        let key = part(&mut out, record.key.as_deref(), format, readers);
        out.extend_from_slice(b",\"value\":");
        let value = part(&mut out, record.value.as_deref(), format, readers);
        out.extend_from_slice(
            format!(
                ",\"partition\":{},\"offset\":{}",
                record.partition, record.offset
            )
            .as_bytes(),
        );
        if shape.timestamp {
            out.extend_from_slice(format!(",\"timestamp\":{}", record.timestamp.0).as_bytes());
        }
        let are_told = match shape.headers {
            Headers::None => false,
            Headers::WhereThere => !record.headers.is_empty(),
            Headers::All => true,
        };
        if are_told {
            out.extend_from_slice(b",\"headers\":");
            out.extend_from_slice(headers(record).as_bytes());
        }
        let unread = match (key, value) {
            (Ok(()), Ok(())) => None,
            (Err(reason), Ok(())) => Some(format!("key {reason}")),
            (Ok(()), Err(reason)) => Some(format!("value {reason}")),
            (Err(key), Err(value)) if key == NOT_JSON && value == NOT_JSON => {
                Some("key and value are not JSON".to_owned())
            }
            (Err(key), Err(value)) => Some(format!("key {key}; value {value}")),
        };
        if let Some(unread) = unread {
            let error = format!("{unread}; read this offset with a binary instance");
            out.extend_from_slice(
                format!(",\"error_code\":50002,\"error\":{}", quoted(&error)).as_bytes(),
            );
        }
        out.push(b'}');
    }
    out.push(b']');
    (out, told)
}

/// Writes a key or value. What does not have the format has `null` for it, and a reason.
fn part(
    out: &mut Vec<u8>,
    bytes: Option<&[u8]>,
    format: Embedded,
    readers: &Readers,
) -> Result<(), String> {
    match (bytes, format) {
        (None, _) => out.extend_from_slice(b"null"),
        (Some(bytes), Embedded::Binary) => {
            out.push(b'"');
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.push(b'"');
        }
        (Some(bytes), Embedded::Json) => {
            // As stored, so that a large integer or a space survives the way back too. The walk
            // does not recurse, so that deep nesting costs nothing.
            match serde_json::from_slice::<&RawValue>(bytes) {
                Ok(raw) => out.extend_from_slice(raw.get().as_bytes()),
                Err(_) => {
                    out.extend_from_slice(b"null");
                    return Err(NOT_JSON.to_owned());
                }
            }
        }
        (Some(bytes), Embedded::Text) => match std::str::from_utf8(bytes) {
            Ok(text) => out.extend_from_slice(quoted(text).as_bytes()),
            Err(_) => {
                out.extend_from_slice(b"null");
                return Err("is not text in UTF-8".to_owned());
            }
        },
        (Some(bytes), Embedded::Schema(kind)) => match readers.read(bytes, Some(kind)) {
            Ok(decoded) => out.extend_from_slice(&decoded.json),
            Err(reason) => {
                out.extend_from_slice(b"null");
                return Err(reason);
            }
        },
    }
    Ok(())
}

/// A record's headers as produced ones are written.
fn headers(record: &ConsumedRecord) -> String {
    let objects = record.headers.iter().map(|(name, value)| {
        let value = value.as_ref().map(|value| STANDARD.encode(value));
        serde_json::json!({"key": name, "value": value})
    });
    serde_json::Value::Array(objects.collect()).to_string()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

const NOT_JSON: &str = "is not JSON";
