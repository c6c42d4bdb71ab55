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
        let (router, handle) = routes(streams.store(), config, clock, None, None);
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
        let frame = self.answer.frame().await.unwrap().unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
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
