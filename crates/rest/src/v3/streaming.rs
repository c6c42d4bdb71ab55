//! An endless stream of records in, with a receipt for each.
//!
//! A stream is JSON objects one after another in one body, which may stay open as long as its
//! sender likes. What has arrived while the records before were stored is stored together; the
//! receipts leave in the order of the records. A record that cannot be stored has its error for a
//! receipt and holds up nobody; text that is no JSON ends the stream, since nobody can tell where
//! the next record begins. Who does not read receipts is not read from either. A stream that is
//! silent or open for too long, or open when the proxy stops, ends with a receipt that says so;
//! records behind the last receipt are not stored.
//!
//! What a stream holds beyond a little has a share of the room for bodies. Where there is none, less is
//! received and stored at a time; a record that is too large for that ends the stream, as does one
//! that holds room and does not become whole.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Serialize;
use streams::{Caller, TopicName};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Here;
use super::bounds::Bounds;
use super::form::JSON;
use super::records::{Entry, Failed, Ready, Receipt};
use super::refusal::Refusal;
use super::splitter::{SplitError, Splitter};
use super::topics::TopicPath;
use crate::answer::{self, Segments};
use crate::body::Growing;
use crate::error::{LOGGED_OUT, RestError, UNAUTHENTICATED};
use crate::idempotency::{Wanted, WantedKey};
use crate::limits::{
    BATCH_BYTES, RECEIPTS_PIPE_BYTES, STREAM_BYTES_FREE, STREAM_END_GRACE, STREAM_KEYED_AT_ONCE,
    STREAM_READ_AHEAD_BYTES, STREAM_RECORD_HELD_BYTES, STREAM_RECORDS_AT_ONCE,
};
use crate::media;
use crate::storing;
use crate::working::Worked;

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
    storing::check_topic(&here.shared, &topic)?;
    let partitions = storing::partitions_of(&here.shared, &topic).await?;
    if body.is_end_stream() {
        return Err(RestError::Payload("the body has no records").into());
    }
    let place = Arc::clone(&here.shared.record_streams).try_acquire_owned();
    let place = place.map_err(|_| RestError::TooManyRecordStreams)?;
    let object_bytes_max = usize::try_from(here.shared.config.body_bytes_max.0);
    let receipts = answer::piped(RECEIPTS_PIPE_BYTES, move |receipts| {
        let streaming = Streaming {
            bounds: Bounds::of(&here.shared),
            room: here.shared.gate.growing(STREAM_BYTES_FREE),
            _place: place,
            here,
            topic,
            partitions,
            wanted,
            body,
            arrived: Splitter::new(object_bytes_max.unwrap_or(usize::MAX)),
            growing_since: None,
            taken_bytes: 0,
            has_all: false,
            broken: None,
            receipts,
        };
        streaming.run()
    });
    Ok(([(header::CONTENT_TYPE, JSON)], receipts).into_response())
}
/// A stream of records under way.
struct Streaming {
    here: Here,
    topic: TopicName,
    /// How many partitions there were when it began.
    partitions: i32,
    /// With a key, each record is stored under it and the record's number in the stream.
    wanted: Option<WantedKey>,
    body: Body,
    arrived: Splitter,
    /// Since when a record has been arriving that holds room.
    growing_since: Option<Instant>,
    /// What records take that were taken and whose receipts are not told.
    taken_bytes: usize,
    room: Growing,
    _place: OwnedSemaphorePermit,
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
            let mut next = match self.bounds.reached().or_else(|| self.logged_out()) {
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
            drop(told);
            self.taken_bytes = 0;
            self.room.shrink(self.arrived.len());
            if next.end.is_some() {
                self.see_off().await;
                return;
            }
        }
    }

    /// The end of a stream whose caller was let in by what has ended, or was taken back.
    fn logged_out(&self) -> Option<Failed> {
        let shared = &self.here.shared;
        let is_out = |caller: &Caller| caller.is_out(shared.clock.now());
        let is_out = shared.caller.as_ref().is_some_and(is_out);
        is_out.then(|| Failed::of(UNAUTHENTICATED, LOGGED_OUT))
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
        self.taken_bytes = 0;
        let count_max = match self.wanted {
            Some(_) => STREAM_KEYED_AT_ONCE,
            None => STREAM_RECORDS_AT_ONCE,
        };
        let mut has_room = true;
        while has_room && next.read.len() < count_max && bytes < BATCH_BYTES {
            match self.arrived.next() {
                Ok(None) => break,
                Ok(Some(text)) => {
                    bytes += text.len();
                    self.growing_since = None;
                    self.taken_bytes += text.len() + STREAM_RECORD_HELD_BYTES;
                    has_room = self.room.try_hold(self.taken_bytes + self.arrived.len());
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
            taken_bytes,
            room,
            has_all,
            broken,
            ..
        } = self;
        let storing = async {
            // The topic may have got more; without it, the store says what is wrong.
            let now = storing::partitions_of(&here.shared, topic).await;
            let partitions = now.unwrap_or(*partitions);
            match wanted {
                None => {
                    let worked = Worked::of_stream();
                    here.store(topic, partitions, read, worked).await
                }
                Some(wanted) => {
                    here.store_each_once(topic, partitions, first, read, wanted)
                        .await
                }
            }
        };
        tokio::pin!(storing);
        loop {
            let has_room = !*has_all
                && arrived.len() < STREAM_READ_AHEAD_BYTES
                && room.try_hold(*taken_bytes + arrived.len());
            tokio::select! {
                receipts = &mut storing => return receipts,
                more = receive(body, arrived), if has_room => (*has_all, *broken) = more.ended(),
            }
        }
    }

    /// Receives what comes next, or answers why nobody waits for it any longer.
    async fn receive(&mut self) -> Option<Failed> {
        let bytes = self.arrived.len();
        if !self.room.hold(bytes).await {
            let reason = "the proxy holds as much of what is sent to it as it may; send the records \
                          without a receipt by another call, later";
            return Some(Failed::of(503, reason));
        }
        if self.room.exceeds(bytes) {
            self.growing_since.get_or_insert_with(Instant::now);
        }
        tokio::select! {
            biased;
            end = self.bounds.grown(self.growing_since) => Some(end),
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
/// Adds a receipt to what goes out.
fn tell(out: &mut Vec<u8>, receipt: &impl Serialize) {
    // Only a map with keys that are no text fails, and a receipt has none.
    let _ = serde_json::to_writer(&mut *out, receipt);
    out.extend_from_slice(b"\r\n");
}
