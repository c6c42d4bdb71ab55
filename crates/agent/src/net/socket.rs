//! A blocking client socket with deadlines, plain or by TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::tls;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    /// As it is.
    Plain(TcpStream),
    /// In TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    /// Connects to `host:port`, trying each of the name's addresses. Reads give up after
    /// `read_wait` with an error that [`is_waiting`] knows, and can be tried again.
    pub(crate) fn connect(
        address: &str,
        tls: Option<&Arc<ClientConfig>>,
        connect_wait: Duration,
        read_wait: Duration,
        write_wait: Duration,
    ) -> io::Result<Socket> {
        let stream = connect(address, connect_wait)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(write_wait))?;
        let Some(config) = tls else {
            stream.set_read_timeout(Some(read_wait))?;
            return Ok(Socket::Plain(stream));
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = tls::server_name(host).map_err(io::Error::other)?;
        let mut session =
            ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let mut stream = stream;
        // The handshake is whole before the short read deadline begins.
        stream.set_read_timeout(Some(connect_wait))?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        stream.set_read_timeout(Some(read_wait))?;
        Ok(Socket::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    /// The socket under it all.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => &stream.sock,
        }
    }

    /// Whether the peer has closed the link, as far as can be seen without waiting.
    pub(crate) fn is_closed(&self) -> bool {
        let tcp = self.tcp();
        if tcp.set_nonblocking(true).is_err() {
            return true;
        }
        let mut byte = [0];
        let closed = match tcp.peek(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => !is_waiting(&error),
        };
        closed | tcp.set_nonblocking(false).is_err()
    }
}

/// Whether an error only says that nothing came in time.
pub(crate) fn is_waiting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Fills `buffer`, however long each read waits, until `deadline` or until `gives_up`.
pub(crate) fn read_exact_until(
    socket: &mut impl Read,
    buffer: &mut [u8],
    deadline: Instant,
    mut gives_up: impl FnMut() -> bool,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => filled += more,
            Err(error) if is_waiting(&error) => {
                if gives_up() {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                if Instant::now() >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.read(buffer),
            Socket::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.write(bytes),
            Socket::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(stream) => stream.flush(),
            Socket::Tls(stream) => stream.flush(),
        }
    }
}

fn connect(address: &str, wait: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, wait) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
