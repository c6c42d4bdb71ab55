//! The two halves of a link's connection: TCP, which has a fast path, or anything else that
//! carries bytes in order (TLS, WebSocket).

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Where a link's bytes come from.
pub(crate) enum ReadHalf {
    Tcp(OwnedReadHalf),
    Other(Box<dyn AsyncRead + Send + Unpin>),
}

/// Where a link's bytes go.
pub(crate) enum WriteHalf {
    Tcp(OwnedWriteHalf),
    Other(Box<dyn AsyncWrite + Send + Unpin>),
}

/// Parts a TCP connection.
pub(crate) fn of_tcp(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let (read, write) = stream.into_split();
    (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
}

/// Parts any other connection.
pub(crate) fn of_stream(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> (ReadHalf, WriteHalf) {
    let (read, write) = tokio::io::split(stream);
    (
        ReadHalf::Other(Box::new(read)),
        WriteHalf::Other(Box::new(write)),
    )
}

impl ReadHalf {
    /// Waits for bytes and appends them, after making room for `room` of them; 0 at the end of
    /// the connection. Nothing is lost when it is not waited for to the end.
    pub(crate) async fn read(&mut self, buffer: &mut BytesMut, room: usize) -> io::Result<usize> {
        match self {
            ReadHalf::Tcp(read) => loop {
                // Room is made only when there is something, so that idle links hold no memory.
                read.readable().await?;
                make_room(buffer, room);
                match read.try_read_buf(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            },
            ReadHalf::Other(read) => {
                make_room(buffer, room);
                read.read_buf(buffer).await
            }
        }
    }
}

impl WriteHalf {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            WriteHalf::Tcp(write) => write.write(bytes).await,
            // What is not TCP may hold bytes back until it is flushed.
            WriteHalf::Other(write) => {
                let wrote = write.write(bytes).await?;
                if wrote == bytes.len() {
                    write.flush().await?;
                }
                Ok(wrote)
            }
        }
    }

    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                wrote => bytes = &bytes[wrote..],
            }
        }
        Ok(())
    }

    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(write) => write.shutdown().await,
            WriteHalf::Other(write) => write.shutdown().await,
        }
    }
}

fn make_room(buffer: &mut BytesMut, room: usize) {
    if buffer.capacity() - buffer.len() < room {
        buffer.reserve(room);
    }
}
