//! A connection of an agent, plain or TLS: a request goes out, an answer comes back.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection with what was read ahead.
pub struct Link {
    stream: Box<dyn Stream>,
    read: BytesMut,
}

/// What an agent was answered.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Where operations are requested, the body; none for "nothing to do".
    pub operations: Option<Vec<u8>>,
}

/// Either kind of stream.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Link {
    /// Connects, with a full handshake where `tls` is given.
    pub async fn open(
        address: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
    ) -> std::io::Result<Link> {
        let plain = TcpStream::connect(address).await?;
        plain.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(plain),
            Some(config) => {
                let name = ServerName::from(address.ip());
                Box::new(
                    TlsConnector::from(config.clone())
                        .connect(name, plain)
                        .await?,
                )
            }
        };
        Ok(Link {
            stream,
            read: BytesMut::with_capacity(READ_BYTES),
        })
    }

    /// Sends a whole request and reads its answer.
    pub async fn ask(&mut self, request: &[u8]) -> std::io::Result<Reply> {
        self.stream.write_all(request).await?;
        // TLS may hold back the last record until it is told that there is no more.
        self.stream.flush().await?;
        let head_ends = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let head = self.read.split_to(head_ends);
        let (status, length) = status_and_length(&head)
            .ok_or_else(|| std::io::Error::other("an answer without status or length"))?;
        while self.read.len() < length {
            self.read_more().await?;
        }
        let body = &self.read[..length];
        let is_idle = status != 200 || body == NOTHING || body == b"{}";
        let operations = (!is_idle).then(|| body.to_vec());
        self.read.advance(length);
        Ok(Reply { status, operations })
    }

    async fn read_more(&mut self) -> std::io::Result<()> {
        self.read.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn status_and_length(head: &[u8]) -> Option<(u16, usize)> {
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    Some((status, length.1.trim().parse().ok()?))
}

const NOTHING: &[u8] = b"{\"requestedOperations\":[]}";
const READ_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answers_head_is_read() {
        let head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 17\r\n\r\n";
        assert_eq!(status_and_length(head), Some((503, 17)));
        assert_eq!(status_and_length(b"HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(status_and_length(b"nonsense"), None);
    }
}
