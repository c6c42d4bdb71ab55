//! Records out: by long poll, or as an endless stream of events (server-sent events).
//!
//! The published API has no way to read; this one is in its style and keeps nothing in the proxy.
//! Where a reader stands is a text, `positions`, with the next offset of each partition: a list's
//! `next` link carries it, and every event has it as its `id`, which a browser's `EventSource` sends
//! back as `Last-Event-ID` when it reconnects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base::{Clock, UnixMillis, parse_rfc3339};
use serde::Deserialize;
use streams::{
    Caller, ConsumedRecord, Consumer, ConsumerConfig, Isolation, SeekTo, StreamsError, TopicName,
};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::Here;
use super::form::list_with_next;
use super::partitions::{PartitionPath, in_topic};
use super::record_object::{Format, RecordObject};
use super::refusal::Refusal;
use super::topics::TopicPath;
use crate::answer::{self, Parameters, Segments};
use crate::answers::{Answers, Share, kept};
use crate::consumers::record_bytes;
use crate::embedded::{Embedding, Readers};
use crate::error::{LOGGED_OUT, RestError};
use crate::limits::{
    ANSWER_BYTES_FREE, EVENTS_PIPE_BYTES, EVENTS_REST, READ_ANSWER_BYTES_MAX, READ_BYTES_DEFAULT,
    READ_BYTES_MAX, READ_WAIT_MAX,
};
use crate::media;
use crate::working;

/// The parameters of a read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParameters {
    /// Next offset by partition, `0:17,1:4`.
    positions: Option<String>,
    /// Where to begin a partition without a position: `earliest`, `latest` or a time.
    from: Option<String>,
    /// How long to wait for the first record.
    timeout_ms: Option<u64>,
    /// Bytes of keys and values of one answer; a larger record comes alone.
    max_bytes: Option<usize>,
    /// How keys and values are to stand; without it as they are best read.
    format: Option<Format>,
    /// Which records are shown; without it as the configuration says.
    isolation: Option<Isolation>,
}

/// `GET …/topics/{topic}/records`
pub(super) async fn of_topic(
    here: Here,
    Segments(TopicPath { topic }): Segments<TopicPath>,
    Parameters(asked): Parameters<ReadParameters>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let info = here.topic(&topic).await?;
    let partitions = (0..info.partitions).collect();
    let url = here.topic_place(&info.name).related_under("records").url();
    read(here, url, info.name, partitions, asked, &headers).await
}

/// `GET …/topics/{topic}/partitions/{partition}/records`
pub(super) async fn of_partition(
    here: Here,
    Segments(PartitionPath { topic, partition }): Segments<PartitionPath>,
    Parameters(asked): Parameters<ReadParameters>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let info = here.topic(&topic).await?;
    let (index, _) = in_topic(&info, &partition)?;
    let path = format!("partitions/{index}/records");
    let url = here.topic_place(&info.name).related_under(&path).url();
    read(here, url, info.name, vec![index], asked, &headers).await
}

async fn read(
    here: Here,
    url: String,
    topic: TopicName,
    partitions: Vec<i32>,
    mut asked: ReadParameters,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let accept = answer::joined(headers, header::ACCEPT);
    let wants_events = accept.is_some_and(|accept| media::accepts_events(&accept));
    if let Some(last) = answer::text(headers, "last-event-id").filter(|_| wants_events) {
        asked.positions = Some(last.to_owned());
    }
    let max_bytes = asked.max_bytes.unwrap_or(READ_BYTES_DEFAULT);
    let mut reading = Reading::open(&here, topic, partitions, &asked).await?;
    reading.max_bytes = max_bytes.clamp(1, READ_BYTES_MAX);
    if wants_events {
        let place = Arc::clone(&here.shared.event_streams).try_acquire_owned();
        let place = place.map_err(|_| RestError::TooManyEventStreams)?;
        return Ok(reading.events(here.shared.closing.clone(), place));
    }
    let default_wait = here.shared.config.consumer_request_timeout.0;
    let wait = asked.timeout_ms.map_or(default_wait, Duration::from_millis);
    let (records, mut share) = tokio::select! {
        collected = reading.collect(wait.min(READ_WAIT_MAX)) => collected?,
        () = here.shared.closing.cancelled() => (Vec::new(), None),
    };
    let readers = reading.schemas.readers(reading.format, &records).await;
    let objects = || objects(&records, reading.format, &readers);
    let objects = match Format::may_have_schemas(reading.format) {
        true => working::read(records.len(), size_of(&records), objects).await,
        false => objects(),
    };
    reading.pass(&records[..objects.len()]);
    let at = reading.positions();
    // The next read is to be as this one.
    let mut next = format!("{url}?positions={at}");
    let parameters = [
        ("timeout_ms", asked.timeout_ms.map(|ms| ms.to_string())),
        ("max_bytes", asked.max_bytes.map(|bytes| bytes.to_string())),
        (
            "format",
            asked.format.map(|format| format.name().to_owned()),
        ),
        ("isolation", asked.isolation.map(|of| of.name().to_owned())),
    ];
    for (name, value) in parameters {
        if let Some(value) = value {
            // Writing to a String does not fail.
            let _ = write!(next, "&{name}={value}");
        }
    }
    let answer = list_with_next(url, "KafkaRecord", objects, next);
    let size = http_body::Body::size_hint(answer.body()).lower();
    if let Some(share) = &mut share {
        share.shrink(usize::try_from(size).unwrap_or(usize::MAX));
    }
    Ok(kept(answer, share))
}

/// Records as an answer has them, as many as fit.
fn objects<'r>(
    records: &'r [ConsumedRecord],
    format: Option<Format>,
    readers: &Readers,
) -> Vec<RecordObject<'r>> {
    let mut objects = Vec::with_capacity(records.len());
    let mut bytes = 0;
    for record in records {
        // JSON of schemas may be much larger than its records; the rest is for the next read.
        if bytes > READ_ANSWER_BYTES_MAX {
            break;
        }
        let object = RecordObject::of(record, format, readers);
        bytes += object.bytes();
        objects.push(object);
    }
    objects
}

/// A reader of some partitions of a topic.
struct Reading {
    schemas: Schemas,
    clock: Arc<dyn Clock>,
    consumer: Box<dyn Consumer>,
    topic: TopicName,
    /// The next offset by partition, once it is known.
    next: BTreeMap<i32, Option<i64>>,
    format: Option<Format>,
    max_bytes: usize,
}

/// Schemas as whoever reads may be shown records by them.
struct Schemas {
    embedding: Arc<Embedding>,
    caller: Option<Caller>,
}

impl Schemas {
    /// Those of records' keys and values, where they may be answered with them.
    async fn readers(&self, format: Option<Format>, records: &[ConsumedRecord]) -> Readers {
        Format::readers(format, &self.embedding, self.caller.as_ref(), records).await
    }
}

impl Reading {
    async fn open(
        here: &Here,
        topic: TopicName,
        partitions: Vec<i32>,
        asked: &ReadParameters,
    ) -> Result<Reading, Refusal> {
        let known = match &asked.positions {
            Some(text) => parse_positions(text)?,
            None => BTreeMap::new(),
        };
        let from = From::parse(asked.from.as_deref())?;
        let store = &here.shared.store;
        let config = ConsumerConfig {
            isolation: asked.isolation.unwrap_or(here.shared.config.isolation),
            ..ConsumerConfig::alone("rest")
        };
        let mut consumer = store.consumer(config).await?;
        let all = partitions.iter().map(|index| (topic.clone(), *index));
        consumer.assign(all.collect()).await?;
        let mut next = BTreeMap::new();
        for index in partitions {
            let to = match (known.get(&index), from) {
                (Some(offset), _) => SeekTo::Offset(*offset),
                (None, From::Earliest) => SeekTo::Beginning,
                (None, From::Latest) => SeekTo::End,
                (None, From::Time(at)) => {
                    let found = store.offset_for_time(&topic, index, at).await?;
                    found.map_or(SeekTo::End, SeekTo::Offset)
                }
            };
            consumer.seek(&topic, index, to).await?;
            next.insert(index, consumer.position(&topic, index));
        }
        Ok(Reading {
            schemas: Schemas {
                embedding: Arc::clone(&here.shared.embedding),
                caller: here.shared.caller.clone(),
            },
            clock: Arc::clone(&here.shared.clock),
            consumer,
            topic,
            next,
            format: asked.format,
            max_bytes: READ_BYTES_DEFAULT,
        })
    }

    /// The next records; more than a little only with a share of the room for answers.
    async fn collect(
        &mut self,
        wait: Duration,
    ) -> Result<(Vec<ConsumedRecord>, Option<Share>), StreamsError> {
        let free = self.max_bytes.min(ANSWER_BYTES_FREE);
        let mut records = self.consumer.poll(wait, free).await?;
        if records.is_empty() {
            // Records of transactions that were taken back may have been passed.
            for (index, next) in &mut self.next {
                *next = self.consumer.position(&self.topic, *index).or(*next);
            }
        }
        let bytes = size_of(&records);
        // Less than half of what was free is all that is there.
        if free == self.max_bytes || bytes < free / 2 {
            return Ok((records, None));
        }
        let wanted = self.max_bytes.max(bytes);
        let share = Answers::of_process().for_records(wanted).await;
        let left = self.max_bytes.saturating_sub(bytes);
        if share.is_some() && left > 0 {
            let more = self.consumer.poll(Duration::ZERO, left).await?;
            let more_bytes = size_of(&more);
            if more_bytes <= left {
                records.extend(more);
            } else {
                // A large record came alone; the next read begins with it.
                for record in &more {
                    let next = self.next.entry(record.partition).or_default();
                    next.get_or_insert(record.offset);
                }
            }
        }
        Ok((records, share))
    }

    /// Notes that records were read.
    fn pass(&mut self, records: &[ConsumedRecord]) {
        for record in records {
            self.next.insert(record.partition, Some(record.offset + 1));
        }
        for (index, next) in &mut self.next {
            if next.is_none() {
                *next = self.consumer.position(&self.topic, *index);
            }
        }
    }

    /// The next offset of every partition, as a text.
    fn positions(&self) -> String {
        let known = self.next.iter();
        let known = known.filter_map(|(index, next)| Some(format!("{index}:{}", (*next)?)));
        known.collect::<Vec<_>>().join(",")
    }

    /// The answer that is a stream of events.
    fn events(self, closing: CancellationToken, place: OwnedSemaphorePermit) -> Response {
        let events = answer::piped(EVENTS_PIPE_BYTES, async move |out| {
            tokio::select! {
                () = closing.cancelled() => {}
                () = self.tell(out) => {}
            }
            drop(place);
        });
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, events).into_response()
    }

    /// Tells records until nobody listens any more. What waits for a slow listener is little, or has
    /// its share of the room for answers.
    async fn tell(mut self, mut out: DuplexStream) {
        let bytes_max = self.max_bytes.min(EVENTS_PIPE_BYTES);
        let mut share = None;
        loop {
            let polled = self.consumer.poll(EVENTS_REST, bytes_max).await;
            if self.is_over() {
                let refusal = RestError::Unauthenticated(LOGGED_OUT).into();
                let _ = self.tell_error(&refusal, &mut out).await;
                return;
            }
            let told = match polled {
                // A comment, so that nobody between takes the connection for dead.
                Ok(records) if records.is_empty() => out.write_all(REST).await,
                Ok(records) => {
                    let bytes = size_of(&records);
                    // Otherwise a large record, which came alone.
                    let is_little = bytes <= EVENTS_PIPE_BYTES;
                    if share.is_none() && !is_little {
                        share = Answers::of_process().for_records_now(bytes);
                    }
                    match share.is_some() || is_little {
                        true => {
                            let told = self.tell_all(&records, &mut out).await;
                            share = None;
                            told
                        }
                        false => match self.room(records, bytes, &mut out).await {
                            Some(room) => {
                                share = Some(room);
                                Ok(())
                            }
                            None => return,
                        },
                    }
                }
                Err(error) => {
                    let _ = self.tell_error(&error.into(), &mut out).await;
                    return;
                }
            };
            if told.is_err() {
                return;
            }
        }
    }

    /// Puts records back until there is room for so many bytes; none when nobody listens any more.
    async fn room(
        &mut self,
        records: Vec<ConsumedRecord>,
        bytes: usize,
        out: &mut DuplexStream,
    ) -> Option<Share> {
        // Backwards, so that each partition ends at its first record.
        for record in records.iter().rev() {
            let to = SeekTo::Offset(record.offset);
            let seeking = self.consumer.seek(&self.topic, record.partition, to);
            seeking.await.ok()?;
        }
        drop(records);
        loop {
            let share = Answers::of_process().for_records(bytes).await;
            if share.is_some() {
                return share;
            }
            out.write_all(REST).await.ok()?;
        }
    }

    async fn tell_all(
        &mut self,
        records: &[ConsumedRecord],
        out: &mut DuplexStream,
    ) -> std::io::Result<()> {
        let readers = self.schemas.readers(self.format, records).await;
        let mut told = String::new();
        for record in records {
            if told.len() > EVENTS_PIPE_BYTES {
                out.write_all(told.as_bytes()).await?;
                told.clear();
            }
            let object = || {
                let object = RecordObject::of(record, self.format, &readers);
                serde_json::to_string(&object).unwrap_or_default()
            };
            let data = match Format::may_have_schemas(self.format) {
                true => working::read(1, record_bytes(record), object).await,
                false => object(),
            };
            self.pass(std::slice::from_ref(record));
            event(&mut told, "record", &self.positions(), &data);
        }
        out.write_all(told.as_bytes()).await
    }

    /// Whether what the caller was let in by has ended, or was taken back.
    fn is_over(&self) -> bool {
        let caller = self.schemas.caller.as_ref();
        caller.is_some_and(|caller| caller.is_out(self.clock.now()))
    }

    async fn tell_error(
        &mut self,
        refusal: &Refusal,
        out: &mut DuplexStream,
    ) -> std::io::Result<()> {
        let (code, _) = refusal.code();
        let message = refusal.message();
        let data = serde_json::json!({"error_code": code, "message": message});
        let mut told = String::new();
        event(&mut told, "error", &self.positions(), &data.to_string());
        out.write_all(told.as_bytes()).await
    }
}

/// Bytes of records' keys and values.
fn size_of(records: &[ConsumedRecord]) -> usize {
    records.iter().map(record_bytes).sum()
}

/// Adds an event.
fn event(out: &mut String, kind: &str, id: &str, data: &str) {
    // Writing to a String does not fail.
    let _ = write!(out, "event: {kind}\nid: {id}\n");
    // JSON is stored as it came, line ends and all.
    for line in data.split(['\n', '\r']) {
        let _ = writeln!(out, "data: {line}");
    }
    out.push('\n');
}

/// Says nothing to who reads events.
const REST: &[u8] = b":\n\n";

/// Where to begin a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Earliest,
    Latest,
    Time(UnixMillis),
}

impl From {
    fn parse(text: Option<&str>) -> Result<From, RestError> {
        match text {
            None | Some("earliest") => Ok(From::Earliest),
            Some("latest") => Ok(From::Latest),
            Some(text) => match parse_rfc3339(text) {
                Some(at) => Ok(From::Time(UnixMillis(at))),
                None => Err(RestError::BadRequest(
                    "from is earliest, latest or a time such as 2026-01-31T12:00:00Z".to_owned(),
                )),
            },
        }
    }
}

/// Reads `0:17,1:4`.
fn parse_positions(text: &str) -> Result<BTreeMap<i32, i64>, RestError> {
    let pair = |pair: &str| -> Option<(i32, i64)> {
        let (index, offset) = pair.split_once(':')?;
        let offset: i64 = offset.trim().parse().ok()?;
        (offset >= 0).then_some((index.trim().parse().ok()?, offset))
    };
    let pairs = text.split(',').filter(|part| !part.trim().is_empty());
    let positions: Option<BTreeMap<i32, i64>> = pairs.map(pair).collect();
    positions.ok_or_else(|| {
        RestError::BadRequest("positions are partition:offset, such as 0:17,1:4".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_and_nonsense_is_refused() {
        let read = |text| {
            parse_positions(text)
                .ok()
                .map(|map| map.into_iter().collect())
        };
        assert_eq!(read("0:17, 2:4"), Some(vec![(0, 17), (2, 4)]));
        assert_eq!(read(""), Some(vec![]));
        for text in ["0", "0:-1", "a:1", "0:1;1:2", "0:99999999999999999999"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_event_holds_json_with_line_ends() {
        let mut out = String::new();
        event(&mut out, "record", "0:1", "{\n\"a\":1}");
        assert_eq!(out, "event: record\nid: 0:1\ndata: {\ndata: \"a\":1}\n\n");
    }
}
