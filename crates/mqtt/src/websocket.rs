//! MQTT over WebSocket (3.1.1 and 5.0, chapter 6): a stream of bytes in binary frames.
//!
//! A client asks for the sub-protocol `mqtt` (old ones for `mqttv3.1`). Packets and frames have
//! nothing to do with each other, so a frame is only bytes here. A browser says which page wants the
//! connection (`Origin`): it must be of this server or one that the configuration names, else any
//! page that somebody opens could speak to the MQTT server of their machine. Where nobody is asked who
//! they are, a page of this server is one that reached it by its address: any site may have its own
//! name lead here (DNS rebinding).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use access::is_this_machine;
use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use crate::limits::{WEBSOCKET_BUFFER_BYTES, WEBSOCKET_WRITE_BYTES};

/// Whose pages may connect.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Origins of pages of other servers, `*` for all.
    pub origins: Arc<[String]>,
    /// Whether pages of this server may have reached it by whatever name leads here.
    pub by_any_name: bool,
}

/// Does the WebSocket handshake on an accepted connection; `frame_bytes_max`: the largest frame taken.
///
/// # Errors
/// What the client did wrong; it was told by HTTP.
pub(crate) async fn accept<S>(
    stream: S,
    pages: &Pages,
    frame_bytes_max: usize,
) -> io::Result<WebSocket<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The error's size is the library's choice.
    #[allow(clippy::result_large_err)]
    let judge = |request: &Request, mut response: Response| {
        let protocol = judge(request.headers(), pages).map_err(|(status, reason)| {
            let mut refusal = ErrorResponse::new(Some(reason.to_owned()));
            *refusal.status_mut() = status;
            refusal
        })?;
        let headers = response.headers_mut();
        headers.insert(
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(protocol),
        );
        Ok(response)
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(WEBSOCKET_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * WEBSOCKET_WRITE_BYTES)
        .max_message_size(Some(frame_bytes_max))
        .max_frame_size(Some(frame_bytes_max));
    let inner = accept_hdr_async_with_config(stream, judge, Some(config))
        .await
        .map_err(io_error)?;
    Ok(WebSocket {
        inner,
        left: Bytes::new(),
    })
}

/// The sub-protocol to speak, or the status and words to refuse with.
fn judge(headers: &HeaderMap, pages: &Pages) -> Result<&'static str, (StatusCode, &'static str)> {
    if let Some(origin) = headers.get(header::ORIGIN)
        && !is_welcome(origin, headers.get(header::HOST), pages)
    {
        let reason = "pages of this origin may not connect: name it in mqtt.websocket.origins\n";
        return Err((StatusCode::FORBIDDEN, reason));
    }
    let asked = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let asked = asked
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim));
    let asked: Vec<&str> = asked.collect();
    PROTOCOLS
        .into_iter()
        .find(|known| asked.contains(known))
        .ok_or((
            StatusCode::BAD_REQUEST,
            "ask for the WebSocket sub-protocol mqtt\n",
        ))
}

fn is_welcome(origin: &HeaderValue, host: Option<&HeaderValue>, pages: &Pages) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    let named = |known: &String| known == "*" || known.eq_ignore_ascii_case(origin);
    if pages.origins.iter().any(named) {
        return true;
    }
    let from = origin.split_once("://").map(|(_, authority)| authority);
    let own = host.and_then(|host| host.to_str().ok());
    from.zip(own).is_some_and(|(from, own)| {
        from.eq_ignore_ascii_case(own) && (pages.by_any_name || is_this_machine(own))
    })
}

/// A WebSocket as a stream of bytes.
pub(crate) struct WebSocket<S> {
    inner: WebSocketStream<S>,
    /// Of the last frame, what was not read yet.
    left: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.left.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.left = bytes,
                // Only binary frames carry MQTT (MQTT-6.0.0-1).
                Some(Ok(Message::Text(_))) => {
                    let reason = "a text frame on an MQTT WebSocket";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
                }
                // The library answers pings and closes.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_)) | Err(Error::ConnectionClosed)) | None => {
                    return Poll::Ready(Ok(()));
                }
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
            }
        }
        let len = self.left.len().min(into.remaining());
        into.put_slice(&self.left[..len]);
        self.left.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.inner).poll_ready(context)).map_err(io_error)?;
        let piece = &bytes[..bytes.len().min(WEBSOCKET_WRITE_BYTES)];
        let frame = Message::Binary(Bytes::copy_from_slice(piece));
        Pin::new(&mut self.inner)
            .start_send(frame)
            .map_err(io_error)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner)
            .poll_flush(context)
            .map_err(io_error)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.inner).poll_close(context)) {
            Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(io_error(error))),
        }
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// Sub-protocols that mean MQTT, the better one first.
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::{SinkExt, StreamExt};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;

    use super::*;

    const FRAME_BYTES_MAX: usize = 64 * 1024;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    pub(crate) fn a_client_speaks_mqtt_and_a_page_is_of_this_server_or_named() {
        let pages = |origins: &[&str], by_any_name| Pages {
            origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            by_any_name,
        };
        let (named, every) = (&pages(&["https://ui.example"], true), &pages(&["*"], true));
        let (none, by_address) = (&pages(&[], true), &pages(&[], false));
        let named_by_address = &pages(&["https://ui.example"], false);
        let (host, protocol) = (("host", "here:9001"), ("sec-websocket-protocol", "mqtt"));
        let origin = |text| ("origin", text);
        let cases = [
            (vec![host, protocol], none, Ok("mqtt")),
            (vec![host], none, Err(400)),
            (
                vec![host, ("sec-websocket-protocol", "chat, mqttv3.1")],
                none,
                Ok("mqttv3.1"),
            ),
            (
                vec![
                    host,
                    ("sec-websocket-protocol", "mqttv3.1"),
                    ("sec-websocket-protocol", "mqtt"),
                ],
                none,
                Ok("mqtt"),
            ),
            (
                vec![host, protocol, origin("http://here:9001")],
                none,
                Ok("mqtt"),
            ),
            (
                vec![host, protocol, origin("http://evil.example")],
                none,
                Err(403),
            ),
            (vec![host, protocol, origin("null")], named, Err(403)),
            (
                vec![host, protocol, origin("https://ui.example")],
                named,
                Ok("mqtt"),
            ),
            (
                vec![host, protocol, origin("http://ui.example")],
                named,
                Err(403),
            ),
            (
                vec![host, protocol, origin("http://any.example")],
                every,
                Ok("mqtt"),
            ),
            (
                vec![host, protocol, origin("http://here:9001")],
                by_address,
                Err(403),
            ),
            (vec![host, protocol], by_address, Ok("mqtt")),
            (
                vec![
                    ("host", "127.0.0.1:9001"),
                    protocol,
                    origin("http://127.0.0.1:9001"),
                ],
                by_address,
                Ok("mqtt"),
            ),
            (
                vec![
                    ("host", "[::1]:9001"),
                    protocol,
                    origin("http://[::1]:9001"),
                ],
                by_address,
                Ok("mqtt"),
            ),
            (
                vec![("host", "localhost"), protocol, origin("http://localhost")],
                by_address,
                Ok("mqtt"),
            ),
            (
                vec![host, protocol, origin("https://ui.example")],
                named_by_address,
                Ok("mqtt"),
            ),
        ];
        for (shown, pages, expected) in cases {
            let got = judge(&headers(&shown), pages).map_err(|(status, _)| status.as_u16());
            assert_eq!(got, expected, "{shown:?} with {pages:?}");
        }
    }

    /// Both ends of a WebSocket.
    async fn pair() -> (
        WebSocket<tokio::io::DuplexStream>,
        WebSocketStream<tokio::io::DuplexStream>,
    ) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let mut request = "ws://here/".into_client_request().unwrap();
        let protocol = HeaderValue::from_static("mqtt");
        request
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
        let pages = Pages::default();
        let (server, client) = tokio::join!(
            accept(near, &pages, FRAME_BYTES_MAX),
            client_async(request, far)
        );
        let (client, response) = client.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "mqtt");
        (server.unwrap(), client)
    }

    #[tokio::test]
    pub(crate) async fn bytes_go_both_ways_whatever_the_frames() {
        let (mut server, mut client) = pair().await;
        client.send(Message::binary(b"ab".to_vec())).await.unwrap();
        client.send(Message::Ping(Bytes::new())).await.unwrap();
        client
            .send(Message::binary(b"cdef".to_vec()))
            .await
            .unwrap();
        let mut got = [0; 6];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abcdef");
        server.write_all(b"xyz").await.unwrap();
        server.flush().await.unwrap();
        let mut answer = Vec::new();
        while answer.len() < 3 {
            match client.next().await.unwrap().unwrap() {
                Message::Binary(bytes) => answer.extend_from_slice(&bytes),
                Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(answer, b"xyz");
        client.close(None).await.unwrap();
        assert_eq!(server.read(&mut got).await.unwrap(), 0);
    }

    #[tokio::test]
    pub(crate) async fn a_text_frame_and_an_endless_one_end_the_link() {
        let (mut server, mut client) = pair().await;
        client.send(Message::text("hello")).await.unwrap();
        let error = server.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let (mut server, mut client) = pair().await;
        let endless = vec![0; FRAME_BYTES_MAX + 1];
        let mut got = [0; 8];
        // It is refused for its header, while most of it is still to be sent.
        let refused = tokio::select! {
            read = server.read(&mut got) => read.unwrap_err(),
            _ = async {
                let _ = client.send(Message::binary(endless)).await;
                std::future::pending::<()>().await
            } => unreachable!("it waits for ever"),
        };
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    pub(crate) async fn who_speaks_no_mqtt_is_told_by_http() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let request = "ws://here/".into_client_request().unwrap();
        let pages = Pages::default();
        let (server, client) = tokio::join!(
            accept(near, &pages, FRAME_BYTES_MAX),
            client_async(request, far)
        );
        assert!(server.is_err());
        let Err(Error::Http(response)) = client else {
            panic!("was let in");
        };
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    }
}
