//! A connection to a peer, buffered both ways, that gives up after a silence or a stop.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::limits::STOP_WAIT;
use crate::net::socket::is_waiting;

/// A buffered connection over a stream whose reads come back every now and then.
pub(crate) struct Wire<S> {
    stream: S,
    out: Vec<u8>,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    wait: Duration,
    stops: Box<dyn Fn() -> bool + Send>,
}

impl<S: Read + Write> Wire<S> {
    /// A connection that gives up when nothing comes for `wait`, or a while after `stops`.
    pub(crate) fn new(
        stream: S,
        wait: Duration,
        stops: impl Fn() -> bool + Send + 'static,
    ) -> Self {
        Wire {
            stream,
            out: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            at: 0,
            end: 0,
            wait,
            stops: Box::new(stops),
        }
    }

    /// The stream under it.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Waits for the first byte of what comes next; false when the peer has gone instead.
    pub(crate) fn has_more(&mut self) -> io::Result<bool> {
        if self.at == self.end {
            self.fill()?;
        }
        Ok(self.at < self.end)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.flush()?;
        let started = Instant::now();
        let mut stop_seen: Option<Instant> = None;
        loop {
            match self.stream.read(&mut self.buffer) {
                Ok(read) => {
                    (self.at, self.end) = (0, read);
                    return Ok(());
                }
                Err(error) if is_waiting(&error) => {
                    if started.elapsed() >= self.wait {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    let is_stopped = (self.stops)()
                        && stop_seen.get_or_insert_with(Instant::now).elapsed() > STOP_WAIT;
                    if is_stopped {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<S: Read + Write> Read for Wire<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.end && !into.is_empty() {
            self.fill()?;
        }
        let len = into.len().min(self.end - self.at);
        into[..len].copy_from_slice(&self.buffer[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

impl<S: Read + Write> Write for Wire<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out)?;
            self.out.clear();
            self.stream.flush()?;
        }
        Ok(())
    }
}

/// Bytes buffered each way.
const BUFFER_BYTES: usize = 64 << 10;
