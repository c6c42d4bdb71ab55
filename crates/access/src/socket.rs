//! A TCP connection with or without TLS, for connections that hold no buffer while idle.
//!
//! [`Socket::ready`] waits until there is something to read and takes no memory while it waits,
//! so that thousands of idle connections cost next to nothing; [`Socket::read_into`] then reads it.
//! TLS is rustls without anything between it and the socket: what it decrypts is copied once, what
//! it is to send is encrypted at most [`TLS_UNSENT_BYTES`] at a time. Without TLS the operating
//! system sends ranges of files by itself ([`Socket::send_file`]).

use std::future::Future;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::task::Poll;

use base::{Clock, SystemClock};
use bytes::{BufMut, BytesMut};
use rustix::net::SendFlags;
use rustls::ServerConnection;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;
use tokio::task::unconstrained;

use crate::Principal;
use crate::limits::HANDSHAKE_WAIT;
use crate::tls::{PrincipalName, Tls, subject_principal};

/// A connection of a client.
pub enum Socket {
    /// As it comes.
    Plain(TcpStream),
    /// Through TLS.
    Tls(Box<TlsSocket>),
}

/// A connection through TLS, with its handshake behind it.
pub struct TlsSocket {
    tcp: TcpStream,
    tls: ServerConnection,
    /// Nothing more comes.
    is_ended: bool,
}

/// A connection on its way from one runtime to another.
pub struct DetachedSocket {
    tcp: std::net::TcpStream,
    /// TLS, and whether nothing more comes through it.
    tls: Option<(Box<ServerConnection>, bool)>,
}

impl Socket {
    /// Does the TLS handshake on an accepted connection.
    ///
    /// # Errors
    /// Whatever the client did wrong, or that it took too long.
    pub async fn accept_tls(tcp: TcpStream, tls: &Tls) -> io::Result<Self> {
        let session = ServerConnection::new(tls.server_config()).map_err(io::Error::other)?;
        let mut socket = TlsSocket {
            tcp,
            tls: session,
            is_ended: false,
        };
        tokio::time::timeout(HANDSHAKE_WAIT, socket.handshake())
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        tls.check_resumed(&socket.tls, SystemClock.now())?;
        Ok(Socket::Tls(Box::new(socket)))
    }

    /// Takes the connection off the runtime that it is on.
    ///
    /// # Errors
    /// What the system reports; the connection is lost then.
    pub fn detach(self) -> io::Result<DetachedSocket> {
        let (tcp, tls) = match self {
            Socket::Plain(tcp) => (tcp, None),
            Socket::Tls(socket) => {
                let TlsSocket { tcp, tls, is_ended } = *socket;
                (tcp, Some((Box::new(tls), is_ended)))
            }
        };
        let tcp = tcp.into_std()?;
        Ok(DetachedSocket { tcp, tls })
    }

    /// Who the client's certificate says that it is; none without a certificate.
    pub fn principal(&self, naming: PrincipalName) -> Option<Principal> {
        let Socket::Tls(socket) = self else {
            return None;
        };
        let certificate = socket.tls.peer_certificates()?.first()?;
        subject_principal(certificate, naming)
    }

    /// Waits until reading gives bytes, the end, or an error. May be dropped while it waits.
    ///
    /// # Errors
    /// What the socket or TLS reports.
    pub async fn ready(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(tcp) => tcp.readable().await,
            Socket::Tls(socket) => socket.ready().await,
        }
    }

    /// Reads what is there into the room that `buffer` has, at most `len` bytes; zero bytes are the
    /// end. Does not wait.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is nothing after all; else what the socket reports.
    pub async fn read_into(&mut self, buffer: &mut BytesMut, len: usize) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => {
                // Unlike `try_read_buf` it notes that a short read has emptied the socket, which
                // saves asking the system once more only to hear so. Whether the task has had its
                // turn must not look like an empty socket: `ready` would say otherwise at once.
                let mut room = buffer.limit(len);
                let mut read = pin!(unconstrained(tcp.read_buf(&mut room)));
                std::future::poll_fn(|context| {
                    Poll::Ready(match read.as_mut().poll(context) {
                        Poll::Ready(read) => read,
                        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                    })
                })
                .await
            }
            Socket::Tls(socket) => socket.read_into(buffer, len),
        }
    }

    /// Writes some of `bytes`; answers how many. When `more_follows`, the system may wait for it
    /// before it sends.
    ///
    /// # Errors
    /// What the socket or TLS reports.
    pub async fn write(&mut self, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => {
                let more = if more_follows {
                    SendFlags::MORE
                } else {
                    SendFlags::empty()
                };
                let flags = SendFlags::NOSIGNAL | more;
                when_writable(tcp, || Ok(rustix::net::send(&*tcp, bytes, flags)?)).await
            }
            Socket::Tls(socket) => {
                let taken = socket.tls.writer().write(bytes)?;
                socket.flush().await?;
                Ok(taken)
            }
        }
    }

    /// Whether [`Socket::send_file`] works: it does where nothing is encrypted.
    pub fn sends_files(&self) -> bool {
        matches!(self, Socket::Plain(_))
    }

    /// Sends up to `len` bytes of `file` from `offset` on, which never pass through this process;
    /// answers how many, none at the end of the file.
    ///
    /// # Errors
    /// `Unsupported` through TLS, else what socket or file report.
    pub async fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let Socket::Plain(tcp) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        when_writable(tcp, || {
            let mut offset = offset;
            Ok(rustix::fs::sendfile(&*tcp, file, Some(&mut offset), len)?)
        })
        .await
    }

    /// Says that nothing more will be written.
    ///
    /// # Errors
    /// What the socket reports.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        use tokio::io::AsyncWriteExt;
        match self {
            Socket::Plain(tcp) => tcp.shutdown().await,
            Socket::Tls(socket) => {
                socket.tls.send_close_notify();
                socket.flush().await?;
                socket.tcp.shutdown().await
            }
        }
    }
}

impl From<std::net::TcpStream> for DetachedSocket {
    fn from(tcp: std::net::TcpStream) -> Self {
        DetachedSocket { tcp, tls: None }
    }
}

impl DetachedSocket {
    /// Puts the connection on the runtime that this is called on.
    ///
    /// # Errors
    /// What the system reports.
    pub fn attach(self) -> io::Result<Socket> {
        let tcp = TcpStream::from_std(self.tcp)?;
        Ok(match self.tls {
            None => Socket::Plain(tcp),
            Some((tls, is_ended)) => {
                let tls = *tls;
                Socket::Tls(Box::new(TlsSocket { tcp, tls, is_ended }))
            }
        })
    }
}

/// Calls `write` whenever the socket can be written to, until it does not have to wait.
async fn when_writable(
    tcp: &TcpStream,
    write: impl Fn() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        tcp.writable().await?;
        match tcp.try_io(Interest::WRITABLE, &write) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return written,
        }
    }
}

impl TlsSocket {
    async fn handshake(&mut self) -> io::Result<()> {
        self.tls.set_buffer_limit(Some(TLS_UNSENT_BYTES));
        while self.tls.is_handshaking() {
            self.receive().await?;
            if self.is_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush().await
    }

    async fn ready(&mut self) -> io::Result<()> {
        while !self.has_plaintext()? && !self.is_ended {
            self.receive().await?;
        }
        Ok(())
    }

    fn has_plaintext(&mut self) -> io::Result<bool> {
        match self.tls.reader().fill_buf() {
            Ok(bytes) => Ok(!bytes.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The client went without saying so in TLS: there is nothing more to read.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes what has come, and answers it as far as TLS itself has to.
    async fn receive(&mut self) -> io::Result<()> {
        // A flush that was dropped half-way goes on here.
        self.flush().await?;
        self.tcp.readable().await?;
        match self.tls.read_tls(&mut NonBlocking(&self.tcp)) {
            Ok(0) => self.is_ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // The client is told why, as far as the socket takes it at once.
                let _ = self.tls.write_tls(&mut NonBlocking(&self.tcp));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        self.is_ended |= state.peer_has_closed();
        self.flush().await
    }

    fn read_into(&mut self, buffer: &mut BytesMut, len: usize) -> io::Result<usize> {
        let room = (buffer.capacity() - buffer.len()).min(len);
        let mut read = 0;
        while read < room && self.has_plaintext()? {
            let mut reader = self.tls.reader();
            let bytes = reader.fill_buf()?;
            let taken = bytes.len().min(room - read);
            buffer.extend_from_slice(&bytes[..taken]);
            reader.consume(taken);
            read += taken;
        }
        if read == 0 && !self.is_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(read)
    }

    async fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tcp.writable().await?;
            match self.tls.write_tls(&mut NonBlocking(&self.tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The socket as rustls wants it: reads and writes that say so when they would have to wait.
struct NonBlocking<'s>(&'s TcpStream);

impl Read for NonBlocking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that are encrypted and wait for the socket, at most: four records of TLS.
const TLS_UNSENT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::task::consume_budget;

    use super::*;

    #[tokio::test]
    async fn what_is_there_is_read_though_the_task_has_had_its_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        let mut socket = Socket::Plain(tcp);
        client.write_all(b"request").await.unwrap();
        socket.ready().await.unwrap();
        // Uses up what the runtime lets a task do before it has to yield.
        std::future::poll_fn(|context| {
            while pin!(consume_budget()).poll(context).is_ready() {}
            Poll::Ready(())
        })
        .await;
        let mut buffer = BytesMut::with_capacity(64);
        assert_eq!(socket.read_into(&mut buffer, 64).await.unwrap(), 7);
        let empty = socket.read_into(&mut buffer, 64).await.unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}
