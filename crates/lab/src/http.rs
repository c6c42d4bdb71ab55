//! The load generator for HTTP: requests that are written out once, sent over kept sessions or over
//! a new connection each, and answers of which no more is read than is needed to know their end.
//!
//! It shares its machine with the server, so it costs as little as it can: a thread or two, and per
//! request a write and a read. Any HTTP library would cost more than the proxy that it measures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::experiment::LabError;
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MAX};
use crate::stats;

/// A request, whole.
#[derive(Clone)]
pub struct Call {
    bytes: Bytes,
}

impl Call {
    /// A request of a method, a path and a body of a media type; without a body, `media` is what is
    /// accepted.
    pub fn new(method: &str, path: &str, media: &str, body: &[u8]) -> Call {
        let name = if body.is_empty() {
            "Accept"
        } else {
            "Content-Type"
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{name}: {media}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut bytes = Vec::with_capacity(head.len() + body.len());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(body);
        Call {
            bytes: bytes.into(),
        }
    }
}

/// A load of calls.
pub struct Calls {
    /// Where to; the sessions are shared out among them.
    pub addresses: Vec<SocketAddr>,
    /// What each session sends; as many sessions as calls.
    pub calls: Vec<Call>,
    /// False for a new connection per call.
    pub keep: bool,
    /// Between two calls of a session; zero for one after the other.
    pub pause: Duration,
    /// Ends after this time, or
    pub length: Duration,
    /// after so many calls of all sessions.
    pub calls_max: u64,
}

/// What a load came to.
#[derive(Default)]
pub struct Answered {
    /// Calls answered well.
    pub calls: u64,
    /// From the first call to the last answer.
    pub seconds: f64,
    /// Bytes of answers' bodies.
    pub body_bytes: u64,
    /// Rising, one per call.
    pub latency_ms: Vec<f64>,
}

impl Answered {
    /// The latency that a share of the calls do not exceed.
    pub fn latency(&self, quantile: f64) -> f64 {
        stats::quantile(&self.latency_ms, quantile).unwrap_or(f64::NAN)
    }
}

impl Calls {
    /// Sends them.
    ///
    /// # Errors
    /// Of the first session that is refused, or gets no answer in time.
    pub async fn run(self) -> Result<Answered, LabError> {
        let each = self.calls_max.div_ceil(self.calls.len().max(1) as u64);
        let load = Arc::new(self);
        let began = Instant::now();
        let mut sessions = JoinSet::new();
        for index in 0..load.calls.len() {
            let session = session(load.clone(), index, each, began + load.length);
            // One clock for all calls of a session: one for each would cost as much as sending it.
            sessions.spawn(tokio::time::timeout(load.length + ANSWER_MAX, session));
        }
        let mut all = Answered::default();
        while let Some(ended) = sessions.join_next().await {
            let ended = match ended {
                Ok(Ok(ended)) => ended?,
                Ok(Err(_)) => {
                    let message = format!("a call was not answered within {ANSWER_MAX:?}");
                    return Err(LabError::Failed(message));
                }
                Err(error) => return Err(LabError::Failed(error.to_string())),
            };
            all.calls += ended.calls;
            all.body_bytes += ended.body_bytes;
            all.latency_ms.extend(ended.latency_ms);
        }
        all.seconds = began.elapsed().as_secs_f64();
        all.latency_ms.sort_by(f64::total_cmp);
        Ok(all)
    }
}

async fn session(
    load: Arc<Calls>,
    index: usize,
    calls_max: u64,
    until: Instant,
) -> Result<Answered, LabError> {
    let address = load.addresses[index % load.addresses.len()];
    let call = &load.calls[index];
    let mut link: Option<Link> = None;
    let mut answered = Answered::default();
    while answered.calls < calls_max && Instant::now() < until {
        let began = Instant::now();
        let mut open = match link.take() {
            Some(link) => link,
            None => Link::open(address).await?,
        };
        let body = open.ask(call).await?;
        answered
            .latency_ms
            .push(began.elapsed().as_secs_f64() * 1e3);
        answered.calls += 1;
        answered.body_bytes += body as u64;
        if load.keep {
            link = Some(open);
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
    Ok(answered)
}

/// A connection with what was read ahead.
pub struct Link {
    stream: TcpStream,
    read: BytesMut,
}

impl Link {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Result<Link, LabError> {
        let cannot = || LabError::system(format!("cannot reach {address}"));
        let stream = TcpStream::connect(address).await.map_err(cannot())?;
        stream.set_nodelay(true).map_err(cannot())?;
        Ok(Link {
            stream,
            read: BytesMut::with_capacity(READ_BYTES),
        })
    }

    /// Sends a call and reads its answer; returns the bytes of the answer's body.
    ///
    /// # Errors
    /// Of a refusal, with the answer's text.
    pub async fn ask(&mut self, call: &Call) -> Result<usize, LabError> {
        let body = self.exchange(call, false).await?;
        Ok(body.0)
    }

    /// Like [`Link::ask`], with the body.
    pub async fn ask_whole(&mut self, call: &Call) -> Result<Bytes, LabError> {
        let body = self.exchange(call, true).await?;
        Ok(body.1)
    }

    async fn exchange(&mut self, call: &Call, keep: bool) -> Result<(usize, Bytes), LabError> {
        let broken = |error| LabError::system("the proxy's connection broke")(error);
        self.stream.write_all(&call.bytes).await.map_err(broken)?;
        let head_ends = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let head = self.read.split_to(head_ends);
        let head = std::str::from_utf8(&head).unwrap_or_default();
        let length = content_length(head)
            .or(head.starts_with("HTTP/1.1 204").then_some(0))
            .filter(|length| *length <= ANSWER_BYTES_MAX)
            .ok_or_else(|| LabError::Failed(format!("an answer of unknown length: {head}")))?;
        let is_ok = head.starts_with("HTTP/1.1 2");
        let head = if is_ok {
            String::new()
        } else {
            head.to_owned()
        };
        let mut body = BytesMut::new();
        let mut left = length;
        while left > 0 {
            if self.read.is_empty() {
                self.read_more().await?;
            }
            let step = left.min(self.read.len());
            if keep || !is_ok {
                body.extend_from_slice(&self.read[..step]);
            }
            self.read.advance(step);
            left -= step;
        }
        if !is_ok {
            return Err(LabError::Failed(format!(
                "a call was refused: {}: {}",
                head.lines().next().unwrap_or_default(),
                String::from_utf8_lossy(&body)
            )));
        }
        Ok((length, body.freeze()))
    }

    async fn read_more(&mut self) -> Result<(), LabError> {
        self.read.reserve(READ_BYTES);
        let count = self
            .stream
            .read_buf(&mut self.read)
            .await
            .map_err(LabError::system("the proxy's connection broke"))?;
        if count == 0 {
            return Err(LabError::Failed(
                "the server closed a connection before its answer".to_owned(),
            ));
        }
        Ok(())
    }
}

fn content_length(head: &str) -> Option<usize> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
}

/// Room for most answers; larger ones are read in pieces of it.
const READ_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_written_out_with_its_length() {
        let call = Call::new("POST", "/topics/t", "application/json", b"{}");
        let text = std::str::from_utf8(&call.bytes).unwrap();
        assert!(text.starts_with("POST /topics/t HTTP/1.1\r\n"), "{text}");
        assert!(text.ends_with("Content-Length: 2\r\n\r\n{}"), "{text}");
        assert_eq!(
            content_length("HTTP/1.1 200 OK\r\ncontent-length: 17\r\n"),
            Some(17)
        );
        assert_eq!(content_length("HTTP/1.1 200 OK\r\n"), None);
    }
}
