//! Compressed bodies, both ways: the one place that knows them for all HTTP ports.
//!
//! A request's body is unpacked as it is read, a small piece at a time, so that whoever reads it
//! counts the bytes that come out against its own bound and a bomb stops there. An answer is packed
//! when its whole body is there and is worth it; one that comes bit by bit (receipts, events) goes
//! out as it is, so that nothing holds it back.

use std::cell::RefCell;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use http_body_util::BodyExt;
use hyper::body::Frame;
use libdeflater::Decompressor;
use memchr::memmem;
use tokio::sync::Semaphore;

use super::limits::{
    PACKED_AT_ONCE_MAX, PACKED_BYTES_MIN, PACKED_INLINE_BYTES_MAX, UNPACKED_AT_ONCE_BYTES_MAX,
};

/// How a request's body comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Unknown,
}

/// Reads `Content-Encoding`.
pub(super) fn coding(headers: &HeaderMap) -> Coding {
    let mut all = headers.get_all(CONTENT_ENCODING).iter();
    let coding = match all.next().map(|value| value.to_str().map(str::trim)) {
        None => Coding::Identity,
        Some(Ok(name)) if name.is_empty() || name.eq_ignore_ascii_case("identity") => {
            Coding::Identity
        }
        Some(Ok(name)) if is_gzip(name) => Coding::Gzip,
        Some(_) => Coding::Unknown,
    };
    // Packed twice, or by something in between.
    if all.next().is_some() {
        return Coding::Unknown;
    }
    coding
}

/// Makes a request's headers say what its unpacked body is.
pub(super) fn forget_coding(headers: &mut HeaderMap) {
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
}

/// Whether `Accept-Encoding` asks for gzip.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let mut found = false;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for part in value.to_str().unwrap_or_default().split(',') {
            let (name, parameters) = part.split_once(';').unwrap_or((part, ""));
            if !is_gzip(name.trim()) {
                continue;
            }
            let weight = parameters.trim().strip_prefix("q=");
            let weight = weight.map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0));
            found = weight > 0.0;
        }
    }
    found
}

fn is_gzip(name: &str) -> bool {
    name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip")
}

/// A compressed body as the bytes that it holds.
pub(super) struct Unpacked<B> {
    packed: B,
    /// Unpacks into a buffer that is emptied after each step, of some ten KiB. Made when the body
    /// turns out not to be one that is unpacked at once.
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    /// What has come and is not unpacked yet.
    arrived: Bytes,
    has_all: bool,
    is_over: bool,
}

impl<B> Unpacked<B> {
    pub fn new(packed: B) -> Self {
        Unpacked {
            packed,
            decoder: None,
            arrived: Bytes::new(),
            has_all: false,
            is_over: false,
        }
    }

    /// Unpacks a little of what has come; false when there is nothing to unpack.
    fn step(&mut self) -> io::Result<bool> {
        if self.arrived.is_empty() && !self.has_all {
            return Ok(false);
        }
        let fresh = || MultiGzDecoder::new(Vec::new());
        let decoder = self.decoder.get_or_insert_with(fresh);
        if !self.arrived.is_empty() {
            let taken = decoder.write(&self.arrived)?;
            if taken == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.arrived.advance(taken);
            if self.arrived.is_empty() && !self.has_all {
                // What a sender has flushed is not held back until it sends more.
                decoder.flush()?;
            }
            if !self.arrived.is_empty() || !self.has_all {
                return Ok(true);
            }
        }
        decoder.try_finish()?;
        self.is_over = true;
        Ok(true)
    }
}

impl<B> HttpBody for Unpacked<B>
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        loop {
            let decoder = self.decoder.as_mut();
            let piece = decoder.map(|decoder| std::mem::take(decoder.get_mut()));
            let piece = piece.unwrap_or_default();
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.step() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.is_over = true;
                    let reason = format!("it is not the gzip that its header says: {error}");
                    return Poll::Ready(Some(Err(reason.into())));
                }
            }
            match ready!(Pin::new(&mut self.packed).poll_frame(cx)) {
                // Trailers are of no use to anybody here.
                Some(Ok(frame)) => {
                    self.arrived = frame.into_data().unwrap_or_default();
                    // Nearly every body comes whole, and then goes on whole.
                    self.has_all = self.packed.is_end_stream();
                    if self.has_all
                        && self.decoder.is_none()
                        && let Some(whole) = at_once(&self.arrived)
                    {
                        self.is_over = true;
                        return Poll::Ready(Some(Ok(Frame::data(whole))));
                    }
                }
                Some(Err(error)) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => self.has_all = true,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_empty = |decoder: &MultiGzDecoder<Vec<u8>>| decoder.get_ref().is_empty();
        self.is_over && self.decoder.as_ref().is_none_or(is_empty)
    }
}

/// Unpacks a small body by the thread's own decoder: what agents send all the time is not worth
/// making one. None for what is large or in any way unusual, or wrong: that goes the long way, which
/// knows what to say.
fn at_once(packed: &[u8]) -> Option<Bytes> {
    thread_local! {
        static DECODER: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    }
    let body = packed.strip_prefix(&PLAIN_HEAD)?.get(HEAD_REST..)?;
    let (deflated, tail) = body.split_last_chunk::<8>()?;
    let [c0, c1, c2, c3, s0, s1, s2, s3] = *tail;
    let sum = u32::from_le_bytes([c0, c1, c2, c3]);
    let size = usize::try_from(u32::from_le_bytes([s0, s1, s2, s3])).ok()?;
    if size.max(packed.len()) > UNPACKED_AT_ONCE_BYTES_MAX {
        return None;
    }
    // The decoder stops at the first member's end and does not say where that was.
    if memmem::find(deflated, &PLAIN_HEAD[..MEMBER_MARK]).is_some() {
        return None;
    }
    let mut whole = vec![0; size];
    let decoded = DECODER.with_borrow_mut(|it| it.deflate_decompress(deflated, &mut whole));
    (decoded == Ok(size) && libdeflater::crc32(&whole) == sum).then(|| whole.into())
}

/// Packs an answer for somebody who takes gzip, if it is whole and worth it.
pub(super) async fn pack(response: Response<Body>) -> Response<Body> {
    let Some(size) = worth(&response) else {
        return response;
    };
    let place = PLACES.try_acquire();
    if size > PACKED_INLINE_BYTES_MAX && place.is_err() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // A body of known size that is there whole: this does not wait.
    let bytes = match body.collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) => {
            tracing::warn!(%error, "an answer broke off before it was packed");
            parts.status = StatusCode::INTERNAL_SERVER_ERROR;
            parts.headers.remove(CONTENT_LENGTH);
            return Response::from_parts(parts, Body::empty());
        }
    };
    let packed = if size > PACKED_INLINE_BYTES_MAX {
        let bytes = bytes.clone();
        let packing = tokio::task::spawn_blocking(move || packed(&bytes));
        packing.await.ok().flatten()
    } else {
        packed(&bytes)
    };
    let Some(packed) = packed else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.headers.remove(CONTENT_LENGTH);
    let gzip = HeaderValue::from_static("gzip");
    parts.headers.insert(CONTENT_ENCODING, gzip);
    let asked = HeaderValue::from_static("accept-encoding");
    parts.headers.append(VARY, asked);
    Response::from_parts(parts, Body::from(packed))
}

/// The size of an answer that is worth packing.
fn worth(response: &Response<Body>) -> Option<u64> {
    let headers = response.headers();
    if headers.contains_key(CONTENT_ENCODING) || headers.contains_key(CONTENT_RANGE) {
        return None;
    }
    let media = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let media = media.split(';').next().unwrap_or_default().trim();
    let is_text = media.starts_with("text/")
        || media.ends_with("json")
        || media.ends_with("yaml")
        || media == "image/svg+xml";
    let size = response.body().size_hint().exact()?;
    (is_text && size >= PACKED_BYTES_MIN).then_some(size)
}

/// The bytes packed, when that makes them fewer.
fn packed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < bytes.len()).then_some(packed)
}

/// How a gzip member begins that has no more than deflated bytes (RFC 1952, section 2.3): magic,
/// method, flags; then comes what tells nothing of them: time, extra flags, system.
const PLAIN_HEAD: [u8; 4] = [0x1f, 0x8b, 8, 0];
/// As many of these bytes begin any member.
const MEMBER_MARK: usize = 3;
const HEAD_REST: usize = 6;

static PLACES: Semaphore = Semaphore::const_new(PACKED_AT_ONCE_MAX);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use axum::http::HeaderName;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// A body of these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = axum::BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    async fn unpack(bytes: &[u8], step: usize) -> Result<Vec<u8>, String> {
        let pieces = bytes.chunks(step).map(Bytes::copy_from_slice).collect();
        let mut body = Unpacked::new(Pieces(pieces));
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|error| error.to_string())?.into_data();
            whole.extend_from_slice(&data.unwrap());
        }
        Ok(whole)
    }

    #[tokio::test]
    async fn a_body_is_unpacked_wherever_its_bytes_break() {
        let text: Vec<u8> = (0..200_000_u32).map(|n| (n % 251 * n % 7) as u8).collect();
        // Two members are one body.
        let packed = [gzip(&text[..100_000]), gzip(&text[100_000..])].concat();
        for step in [1, 2, 3, 7, 1_000, packed.len()] {
            assert!(unpack(&packed, step).await.unwrap() == text, "{step}");
        }
        assert_eq!(unpack(&gzip(b""), 1).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_body_that_comes_whole_goes_on_whole() {
        let mut body = Unpacked::new(Pieces([Bytes::from(gzip(&[b'x'; 2_000]))].into()));
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().len(), 2_000);
        assert!(body.is_end_stream());
        assert!(body.decoder.is_none(), "nothing was made for it alone");
    }

    #[test]
    fn small_plain_bodies_are_unpacked_at_once_and_no_others() {
        for text in [&b""[..], b"{}", &[b'x'; UNPACKED_AT_ONCE_BYTES_MAX]] {
            assert!(at_once(&gzip(text)).unwrap() == text);
        }
        let good = gzip(b"{\"agentId\": 7}");
        let named = flate2::GzBuilder::new().filename("f");
        let mut named = named.write(Vec::new(), Compression::fast());
        named.write_all(b"{}").unwrap();
        for other in [
            Vec::new(),
            good[..good.len() - 1].to_vec(),
            [&good[..], b"behind"].concat(),
            [&good[..], &good[..]].concat(),
            named.finish().unwrap(),
            gzip(&[b'x'; UNPACKED_AT_ONCE_BYTES_MAX + 1]),
        ] {
            assert_eq!(at_once(&other), None, "{other:?}");
        }
        for at in 10..good.len() {
            let mut torn = good.clone();
            torn[at] ^= 1;
            assert_eq!(at_once(&torn), None, "byte {at}");
        }
        // What was wrong before it costs the next one nothing.
        assert!(at_once(&good).is_some());
    }

    #[tokio::test]
    async fn what_is_no_gzip_or_breaks_off_is_told() {
        let good = gzip(&[b'x'; 1_000]);
        let mut torn = good.clone();
        let end = torn.len() - 5;
        torn[end] ^= 1;
        let behind = [&good[..], b"behind"].concat();
        for bytes in [&b"no gzip"[..], &good[..good.len() - 1], &torn, &behind] {
            for step in [1, bytes.len()] {
                let error = unpack(bytes, step).await.unwrap_err();
                assert!(error.contains("not the gzip"), "{error}");
            }
        }
        for end in 1..good.len() {
            assert!(unpack(&good[..end], 3).await.is_err(), "{end}");
        }
    }

    #[tokio::test]
    async fn a_bomb_comes_out_in_small_pieces() {
        let bomb = gzip(&vec![b' '; 16 << 20]);
        assert!(bomb.len() < 20 << 10);
        let mut body = Unpacked::new(Pieces([Bytes::from(bomb)].into()));
        let mut seen = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= 128 << 10, "{}", data.len());
            seen += data.len();
        }
        assert_eq!(seen, 16 << 20);
    }

    #[tokio::test]
    async fn what_a_sender_flushed_is_not_held_back() {
        for size in [1, 32_768, 40_000, 90_000] {
            let text = vec![b'a'; size];
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&text).unwrap();
            encoder.flush().unwrap();
            // A body that is not over: it has these bytes and no more for now.
            let (mut open, read) = tokio::io::duplex(1 << 20);
            open.write_all(encoder.get_ref()).await.unwrap();
            let stream = tokio_util::io::ReaderStream::new(read);
            let mut body = Unpacked::new(Body::from_stream(stream));
            let mut seen = 0;
            while seen < size {
                let frame = body.frame().await.unwrap().unwrap();
                seen += frame.into_data().unwrap().len();
            }
            assert_eq!(seen, size);
        }
    }

    #[test]
    fn codings_are_read_as_they_are_written() {
        let headers = |name: &HeaderName, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name.clone(), value.parse().unwrap());
            }
            headers
        };
        for (values, expected) in [
            (&[][..], Coding::Identity),
            (&["identity"], Coding::Identity),
            (&["gzip"], Coding::Gzip),
            (&[" X-GZIP "], Coding::Gzip),
            (&["br"], Coding::Unknown),
            (&["gzip, gzip"], Coding::Unknown),
            (&["gzip", "gzip"], Coding::Unknown),
            (&["identity", "br"], Coding::Unknown),
        ] {
            assert_eq!(
                coding(&headers(&CONTENT_ENCODING, values)),
                expected,
                "{values:?}"
            );
        }
        for (values, expected) in [
            (&[][..], false),
            (&["br, gzip"], true),
            (&["deflate", "GZIP;q=0.5"], true),
            (&["gzip;q=0"], false),
            (&["gzip; q=0.000"], false),
            (&["*"], false),
            (&["gzipped"], false),
        ] {
            assert_eq!(
                is_accepted(&headers(&ACCEPT_ENCODING, values)),
                expected,
                "{values:?}"
            );
        }
    }

    #[tokio::test]
    async fn whole_texts_that_are_worth_it_are_packed() {
        let text = "{\"a\": 1}".repeat(1_000);
        let json = || Response::builder().header(CONTENT_TYPE, "application/vnd.kafka.v2+json");
        let answer = pack(json().body(Body::from(text.clone())).unwrap()).await;
        assert_eq!(answer.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(answer.headers()[VARY], "accept-encoding");
        let packed = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(unpack(&packed, 100).await.unwrap(), text.as_bytes());
        let large = text.repeat(100);
        let answer = pack(json().body(Body::from(large.clone())).unwrap()).await;
        let packed = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            unpack(&packed, packed.len()).await.unwrap(),
            large.as_bytes()
        );

        let stream = tokio_util::io::ReaderStream::new(io::Cursor::new(text.clone()));
        for answer in [
            json().body(Body::from("{}")),
            json().body(Body::from_stream(stream)),
            json()
                .header(CONTENT_ENCODING, "gzip")
                .body(Body::from(text.clone())),
            Response::builder().body(Body::from(text.clone())),
            Response::builder()
                .header(CONTENT_TYPE, "application/octet-stream")
                .body(Body::from(text.clone())),
        ] {
            let answer = answer.unwrap();
            let before = answer.headers().clone();
            assert_eq!(pack(answer).await.headers(), &before);
        }
    }
}
