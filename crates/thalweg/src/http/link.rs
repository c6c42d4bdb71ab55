//! A connection's bytes, with or without TLS, and a bound on how slowly its peer may read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use access::{CertificateFacts, Principal, Tls};
use base::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::limits::{HANDSHAKE_MAX, WRITE_STALL_MAX, WRITTEN_BYTES_MIN};

/// What a listener that speaks both versions of HTTP offers in a TLS handshake.
pub const PROTOCOLS: &[&str] = &[HTTP2, "http/1.1"];

/// A connection whose version of HTTP is known.
pub(super) struct Link {
    io: Io,
    pub is_http2: bool,
    /// Who the client's certificate says it is.
    pub principal: Option<Principal>,
    /// What else is known of that certificate.
    pub certificate: Option<CertificateFacts>,
}

enum Io {
    Plain(Timed),
    Tls(Box<TlsStream<Timed>>),
}

/// A socket that gives up on a peer who does not read.
struct Timed {
    tcp: TcpStream,
    /// Runs while there is something that the socket does not take.
    deadline: Option<Pin<Box<Sleep>>>,
    /// What the socket took since the deadline was set.
    written: usize,
}

impl Link {
    /// Does the TLS handshake, if there is one, and finds out which version of HTTP is spoken: by
    /// the handshake, or without TLS by the first bytes, as clients with prior knowledge send them;
    /// these have to come within `idle_timeout`.
    ///
    /// # Errors
    /// What the client did wrong, or that it took too long.
    pub async fn establish(
        tcp: TcpStream,
        tls: Option<&Tls>,
        idle_timeout: Duration,
    ) -> io::Result<Link> {
        let timed = |tcp| Timed {
            tcp,
            deadline: None,
            written: 0,
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let Some(tls) = tls else {
            let is_http2 = tokio::time::timeout(idle_timeout, begins_with_http2(&tcp));
            let is_http2 = is_http2.await.map_err(late)??;
            return Ok(Link {
                io: Io::Plain(timed(tcp)),
                is_http2,
                principal: None,
                certificate: None,
            });
        };
        let acceptor = TlsAcceptor::from(tls.server_config());
        let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(timed(tcp)));
        let stream = handshake.await.map_err(late)??;
        let (_, session) = stream.get_ref();
        tls.check_resumed(session, SystemClock.now())?;
        Ok(Link {
            is_http2: session.alpn_protocol() == Some(HTTP2.as_bytes()),
            principal: tls.principal_of(session.peer_certificates()),
            certificate: session
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(CertificateFacts::of),
            io: Io::Tls(Box::new(stream)),
        })
    }
}

/// Looks at the first bytes without taking them.
async fn begins_with_http2(tcp: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    let mut wait = PREFACE_WAIT;
    loop {
        let seen = tcp.peek(&mut first).await?;
        if seen == PREFACE.len() || first[..seen] != PREFACE[..seen] || seen == 0 {
            return Ok(first == *PREFACE);
        }
        // A beginning of the preface, and nobody tells when there is more of it. Clients send it
        // in one piece, so this is rare; who does not is looked at less and less.
        tokio::time::sleep(wait).await;
        wait = (2 * wait).min(PREFACE_WAIT_MAX);
    }
}

impl Timed {
    /// Looks at what became of a write of `offered` bytes.
    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        offered: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(count)) => {
                self.written += count;
                if count == offered || self.written >= WRITTEN_BYTES_MIN {
                    self.deadline = None;
                }
                written
            }
            Poll::Ready(Err(_)) => written,
            Poll::Pending => {
                if self.deadline.is_none() {
                    self.written = 0;
                }
                let fresh = || Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_STALL_MAX));
                let deadline = self.deadline.get_or_insert_with(fresh);
                ready!(deadline.as_mut().poll(cx));
                let reason = "the peer does not read its answers";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
            }
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, into)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        self.judge(cx, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = pieces.iter().map(|piece| piece.len()).sum();
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, pieces);
        self.judge(cx, offered, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, into),
            Io::Tls(io) => Pin::new(io).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Io::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, pieces),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

/// What HTTP/2 is called in a TLS handshake (ALPN).
const HTTP2: &str = "h2";
/// What a client sends first that knows the server speaks HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PREFACE_WAIT: Duration = Duration::from_millis(5);
const PREFACE_WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, served) = tokio::join!(client, listener.accept());
        (client.unwrap(), served.unwrap().0)
    }

    #[tokio::test]
    async fn the_version_shows_in_the_first_bytes_which_stay_to_be_read() {
        for (pieces, is_http2) in [
            (vec![&PREFACE[..]], true),
            (vec![&PREFACE[..3], &PREFACE[3..20], &PREFACE[20..]], true),
            (vec![&b"PRI * HTTP/1.1\r\n\r\n"[..]], false),
            (vec![&b"P"[..], &b"OST / HTTP/1.1\r\n\r\n"[..]], false),
            (vec![&b"GET /"[..]], false),
        ] {
            let (mut client, served) = pair().await;
            let sent = pieces.concat();
            let establishing = Link::establish(served, None, WRITE_STALL_MAX);
            let sending = async {
                for piece in pieces {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let (link, ()) = tokio::join!(establishing, sending);
            let mut link = link.unwrap();
            assert_eq!(link.is_http2, is_http2);
            let mut read = vec![0; sent.len()];
            link.read_exact(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
        // Who goes without a word is no HTTP/2 client, and nobody waits for them.
        let (client, served) = pair().await;
        drop(client);
        let link = Link::establish(served, None, WRITE_STALL_MAX).await;
        assert!(!link.unwrap().is_http2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_given_up() {
        let (mut client, served) = pair().await;
        client.write_all(b"GET /").await.unwrap();
        let link = Link::establish(served, None, WRITE_STALL_MAX).await;
        let mut link = link.unwrap();
        let much = vec![0; 64 << 20];
        let begun = Instant::now();
        let error = link.write_all(&much).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= WRITE_STALL_MAX);
    }
}
