//! A connection to a peer, buffered both ways, that gives up after a silence or a while after a
//! stop, however much the peer sends meanwhile.

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
    stops: Stops,
    /// As well, for as long as a port has it.
    port_stops: Option<Stops>,
    stop_seen: Option<Instant>,
}

type Stops = Box<dyn Fn() -> bool + Send>;

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
            port_stops: None,
            stop_seen: None,
        }
    }

    /// Gives up a while after this stops, too; none takes back the one before.
    pub(crate) fn heed(&mut self, port_stops: Option<Stops>) {
        self.port_stops = port_stops;
        self.stop_seen = None;
    }

    /// Whether a stop was seen long enough ago.
    fn is_stopped(&mut self) -> bool {
        let stops = (self.stops)() || self.port_stops.as_ref().is_some_and(|stops| stops());
        stops && self.stop_seen.get_or_insert_with(Instant::now).elapsed() > STOP_WAIT
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
        loop {
            if self.is_stopped() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            match self.stream.read(&mut self.buffer) {
                Ok(read) => {
                    (self.at, self.end) = (0, read);
                    return Ok(());
                }
                Err(error) if is_waiting(&error) => {
                    if started.elapsed() >= self.wait {
                        return Err(io::ErrorKind::TimedOut.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that always has another byte, each after a while.
    struct Trickle;

    impl Read for Trickle {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(10));
            into[0] = 7;
            Ok(1)
        }
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_that_never_ends_is_left_when_its_port_stops() {
        let mut wire = Wire::new(Trickle, Duration::from_secs(3_600), || false);
        let mut some = [0; 20];
        wire.heed(Some(Box::new(|| true)));
        // A while is left to come to an end.
        wire.read_exact(&mut some).unwrap();
        // Half an hour's worth.
        let mut much = vec![0; 180_000];
        let error = wire.read_exact(&mut much).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        // The next port is another one.
        wire.heed(None);
        wire.read_exact(&mut some).unwrap();
    }
}
