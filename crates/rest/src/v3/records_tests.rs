//! How a stream of records ends when its sender does not end it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use base::{HumanDuration, SystemClock};
use http_body_util::BodyExt;
use serde_json::Value;
use streams::{Streams, StreamsConfig};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::io::ReaderStream;
use tower::ServiceExt;

use crate::limits::RECORD_STREAMS_MAX;
use crate::{RestConfig, RestHandle, routes};

struct Proxy {
    router: Router,
    handle: RestHandle,
    streams: Arc<Streams>,
    _folder: tempfile::TempDir,
}

/// A stream under way: what is written goes into its body.
struct Sent {
    body: DuplexStream,
    answer: Body,
}

impl Proxy {
    fn open(config: RestConfig) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let opened = Streams::open(folder.path(), StreamsConfig::default(), clock.clone());
        let (streams, _) = opened.unwrap();
        let (router, handle) = routes(streams.store(), config, clock, None, None, None);
        Proxy {
            router,
            handle,
            streams,
            _folder: folder,
        }
    }

    async fn begin(&self) -> Sent {
        let cluster = self.streams.store().cluster().await.unwrap().id;
        let (body, read) = tokio::io::duplex(1 << 20);
        let request = Request::post(format!("/v3/clusters/{cluster}/topics/t/records"))
            .header("Content-Type", "application/json")
            .body(Body::from_stream(ReaderStream::new(read)))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Sent {
            body,
            answer: response.into_body(),
        }
    }
}

impl Sent {
    async fn send(&mut self, text: &str) {
        self.body.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next receipts.
    async fn receipts(&mut self) -> Vec<Value> {
        let mut text = String::new();
        // A frame may end within one.
        while !text.ends_with("\r\n") {
            let frame = self.answer.frame().await.unwrap().unwrap();
            text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
        let lines = text.split_terminator("\r\n");
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The last receipt, behind which nothing comes.
    async fn end(mut self, error_code: u32, says: &str) {
        let receipts = self.receipts().await;
        let last = receipts.last().unwrap();
        assert_eq!(last["error_code"], error_code, "{last}");
        assert!(last["message"].as_str().unwrap().contains(says), "{last}");
        assert!(self.answer.frame().await.is_none());
    }
}

const RECORD: &str = r#"{"value": {"type": "JSON", "data": 1}}"#;

#[tokio::test]
async fn a_stop_of_the_proxy_ends_a_stream_with_a_receipt() {
    let proxy = Proxy::open(RestConfig::default());
    let mut sent = proxy.begin().await;
    sent.send(RECORD).await;
    assert_eq!(sent.receipts().await[0]["error_code"], 200);
    let begun = tokio::time::Instant::now();
    proxy.handle.end_streams();
    sent.end(503, "stopping").await;
    // The sender was let go on for a moment, so that it could read this, and no longer.
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    proxy.streams.close().await;
}

#[tokio::test]
async fn a_stream_that_is_silent_or_open_for_too_long_ends() {
    let short = HumanDuration(Duration::from_millis(150));
    let silent = RestConfig {
        streaming_connection_idle_timeout: short,
        ..RestConfig::default()
    };
    let proxy = Proxy::open(silent);
    let mut sent = proxy.begin().await;
    sent.send(RECORD).await;
    assert_eq!(sent.receipts().await[0]["error_code"], 200);
    sent.send("{\"value\": ").await;
    sent.end(408, "no record came for 150ms").await;
    proxy.streams.close().await;

    let old = RestConfig {
        streaming_connection_max_duration: short,
        ..RestConfig::default()
    };
    let proxy = Proxy::open(old);
    let mut sent = proxy.begin().await;
    let mut stored = 0;
    // A sender that never pauses; each receipt is waited for.
    let last = loop {
        sent.send(RECORD).await;
        let receipts = sent.receipts().await;
        match receipts.last().unwrap() {
            last if last["error_code"] == 200 => stored += 1,
            last => break last.clone(),
        }
    };
    assert!(stored > 0 && last["error_code"] == 408, "{stored} {last}");
    assert!(
        last["message"].as_str().unwrap().contains("open for 150ms"),
        "{last}"
    );
    proxy.streams.close().await;
}

#[tokio::test]
async fn what_came_before_a_body_broke_off_is_stored_and_told() {
    let proxy = Proxy::open(RestConfig::default());
    let cluster = proxy.streams.store().cluster().await.unwrap().id;
    let path = format!("/v3/clusters/{cluster}/topics/t/records");
    let broken = tokio_util::io::ReaderStream::new(tokio::io::AsyncReadExt::chain(
        std::io::Cursor::new(RECORD),
        Breaks,
    ));
    let request = Request::post(path)
        .header("Content-Type", "application/json")
        .body(Body::from_stream(broken))
        .unwrap();
    let response = proxy.router.clone().oneshot(request).await.unwrap();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let lines: Vec<Value> = text
        .split_terminator("\r\n")
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (lines.len(), &lines[0]["error_code"]),
        (2, &Value::from(200)),
        "{text}"
    );
    assert_eq!(lines[1]["error_code"], 400, "{text}");
    assert!(text.contains("the link is cut"), "{text}");
    proxy.streams.close().await;
}

/// Has tasks run until that is so.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_large_record_that_does_not_become_whole_ends_its_stream() {
    let proxy = Proxy::open(RestConfig::default());
    let gate = &proxy.handle.shared.gate;
    let all = gate.left();
    let mut sent = proxy.begin().await;
    // A small part of a record holds nothing, and may wait.
    sent.send("{\"value\": {\"type\": \"STRING\", \"data\": \"")
        .await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(100)).await;
    sent.send(&"x".repeat(500_000)).await;
    until(|| gate.left() < all).await;
    assert!(all - gate.left() >= 400_000, "{}", gate.left());
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(29)).await;
        sent.send("x").await;
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_secs(3)).await;
    sent.end(408, "did not arrive within 1m").await;
    until(|| gate.left() == all).await;
    tokio::time::resume();
    proxy.streams.close().await;
}

#[tokio::test]
async fn a_stream_without_room_goes_on_with_little_and_ends_by_a_large_record() {
    let proxy = Proxy::open(RestConfig::default());
    let mut sent = proxy.begin().await;
    let others = proxy.handle.shared.gate.fill();
    let count = 3_000;
    sent.send(&RECORD.repeat(count)).await;
    let mut told = String::new();
    while told.matches("\"error_code\":200,").count() < count {
        let frame = sent.answer.frame().await.unwrap().unwrap();
        told += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    tokio::time::pause();
    let large = format!("{{\"value\": {{\"data\": \"{}", "x".repeat(500_000));
    sent.send(&large).await;
    sent.end(503, "as much of what is sent to it as it may")
        .await;
    drop(others);
    tokio::time::resume();
    proxy.streams.close().await;
}

#[tokio::test]
async fn as_many_streams_are_taken_as_may_be() {
    let proxy = Proxy::open(RestConfig::default());
    let sent = proxy.begin().await;
    let places = Arc::clone(&proxy.handle.shared.record_streams);
    assert_eq!(places.available_permits(), RECORD_STREAMS_MAX - 1);
    let others = u32::try_from(RECORD_STREAMS_MAX - 1).unwrap();
    let others = places.clone().acquire_many_owned(others).await.unwrap();
    let cluster = proxy.streams.store().cluster().await.unwrap().id;
    let request = || {
        Request::post(format!("/v3/clusters/{cluster}/topics/t/records"))
            .header("Content-Type", "application/json")
            .body(Body::from(RECORD))
            .unwrap()
    };
    let refused = proxy.router.clone().oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), 429);
    drop((sent, others));
    until(|| places.available_permits() == RECORD_STREAMS_MAX).await;
    let taken = proxy.router.clone().oneshot(request()).await.unwrap();
    assert_eq!(taken.status(), 200);
    proxy.streams.close().await;
}

#[tokio::test]
async fn a_stream_stores_in_partitions_that_came_while_it_was_open() {
    let proxy = Proxy::open(RestConfig::default());
    let mut sent = proxy.begin().await;
    let record = r#"{"partition_id": 1, "value": {"type": "JSON", "data": 1}}"#;
    sent.send(record).await;
    assert_eq!(sent.receipts().await[0]["error_code"], 40403);
    let topic = "t".parse().unwrap();
    let store = proxy.streams.store();
    store.create_partitions(&topic, 2).await.unwrap();
    sent.send(record).await;
    let receipt = &sent.receipts().await[0];
    assert_eq!(receipt["error_code"], 200, "{receipt}");
    assert_eq!(receipt["partition_id"], 1, "{receipt}");
    proxy.streams.close().await;
}

/// Reads as an error.
struct Breaks;

impl tokio::io::AsyncRead for Breaks {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(std::io::Error::other("the link is cut")))
    }
}
