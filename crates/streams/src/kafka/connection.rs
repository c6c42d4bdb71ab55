//! One connection: frames in, answers out in the order of the requests.
//!
//! Requests are begun in the order of arrival, so what a client pipelines reaches the journal in
//! its order. Answers that have to wait stand in a queue; only its front is sent. While answers
//! pile up, unsent or unfinished, nothing is read: the client feels it in its own socket.
//!
//! A connection without traffic holds no buffer and, once its client is known, no timer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::Poll;

use access::Socket;
use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;

use super::Context;
use super::limits::{
    DRAIN_WAIT, FRAME_STALL_MAX, LOGIN_REQUEST_BYTES_MAX, LOGIN_WAIT, READ_STEP_BYTES,
    REQUEST_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX, UNSENT_BYTES_MAX, WRITE_PIECES_MAX,
};
use super::reply::{Answer, Ending, Reply};

/// Serves the client on `socket` until it goes, misbehaves or the listener stops.
pub(super) async fn run(socket: Socket, context: Arc<Context>) {
    context.shared.telemetry.connections.increment(1.0);
    let mut link = Link {
        context: Arc::clone(&context),
        socket,
        received: Frames::default(),
        replies: VecDeque::new(),
        unsent: Unsent::default(),
        is_ending: false,
        login_until: Instant::now() + LOGIN_WAIT,
    };
    match link.serve().await {
        Ok(()) => {}
        // Clients break connections as they please; that is nobody's news.
        Err(Ending::Socket(error)) => {
            tracing::debug!(client = %context.client_host, %error, "Kafka connection broke");
        }
        Err(ending) => {
            context.shared.telemetry.refused.increment(1);
            tracing::warn!(client = %context.client_host, "Kafka connection closed: {ending}");
        }
    }
    context.shared.telemetry.connections.decrement(1.0);
}

struct Link {
    context: Arc<Context>,
    socket: Socket,
    received: Frames,
    replies: VecDeque<Reply>,
    unsent: Unsent,
    /// The last answer is on its way; nothing more is begun.
    is_ending: bool,
    /// When a client that must log in has to have done so.
    login_until: Instant,
}

/// What wakes a connection.
enum Event {
    Readable(io::Result<usize>),
    Answered(Result<Answer, Ending>),
    Stop,
}

impl Link {
    async fn serve(&mut self) -> Result<(), Ending> {
        loop {
            self.begin_requests().await?;
            self.collect_answers()?;
            if !self.unsent.is_empty() {
                self.send().await?;
                continue;
            }
            if self.is_ending && self.replies.is_empty() {
                self.socket.shutdown().await?;
                return Ok(());
            }
            match self.next_event().await? {
                Event::Readable(Ok(0)) => return Ok(()),
                Event::Readable(Ok(bytes)) => {
                    self.context
                        .shared
                        .telemetry
                        .bytes_in
                        .increment(bytes as u64);
                }
                Event::Readable(Err(error)) => return Err(error.into()),
                Event::Answered(answer) => {
                    self.replies.pop_front();
                    self.unsent.push(answer?);
                }
                Event::Stop => return self.drain().await,
            }
        }
    }

    /// Begins the requests that have arrived whole, as far as there is room for their answers.
    async fn begin_requests(&mut self) -> Result<(), Ending> {
        while self.replies.len() < REQUESTS_IN_FLIGHT_MAX
            && self.unsent.bytes < UNSENT_BYTES_MAX
            && !self.is_ending
        {
            self.received.bytes_max = match self.context.session.is_open() {
                true => REQUEST_BYTES_MAX,
                false => LOGIN_REQUEST_BYTES_MAX,
            };
            let Some(frame) = self.received.next()? else {
                break;
            };
            let mut reply = super::api::begin(&self.context, frame)?;
            while let Reply::HeldBack(begun) = reply {
                reply = begun.await?;
            }
            if let Reply::Last(answer) = reply {
                self.is_ending = true;
                reply = Reply::Now(answer);
            }
            match reply {
                Reply::Nothing | Reply::HeldBack(_) | Reply::Last(_) => {}
                Reply::Now(answer) if self.replies.is_empty() => self.unsent.push(answer),
                reply => self.replies.push_back(reply),
            }
        }
        Ok(())
    }

    /// Moves the answers at the front of the queue that need no waiting to those to be sent.
    fn collect_answers(&mut self) -> Result<(), Ending> {
        while self.unsent.bytes < UNSENT_BYTES_MAX
            && matches!(self.replies.front(), Some(Reply::Now(_)))
        {
            if let Some(Reply::Now(answer)) = self.replies.pop_front() {
                self.unsent.push(answer);
            }
        }
        Ok(())
    }

    /// Waits for whatever comes first: bytes, the front's answer, or the end.
    async fn next_event(&mut self) -> Result<Event, Ending> {
        let may_read = self.replies.len() < REQUESTS_IN_FLIGHT_MAX && !self.is_ending;
        let must_log_in = !self.context.session.is_open();
        if !must_log_in {
            // Counts from when the client has to log in again.
            self.login_until = Instant::now() + LOGIN_WAIT;
        }
        let login_until = self.login_until;
        let is_stalling = may_read && !self.received.is_empty();
        let Link {
            context,
            socket,
            received,
            replies,
            ..
        } = self;
        let front = std::future::poll_fn(|cx| match replies.front_mut() {
            Some(Reply::Later(answer)) => answer.as_mut().poll(cx),
            _ => Poll::Pending,
        });
        tokio::select! {
            // A finished answer goes before new requests, so that answers never wait for them.
            biased;
            answer = front => Ok(Event::Answered(answer)),
            () = context.shared.shutdown.cancelled() => Ok(Event::Stop),
            bytes = received.fill(socket), if may_read => Ok(Event::Readable(bytes)),
            () = tokio::time::sleep(FRAME_STALL_MAX), if is_stalling => Err(Ending::Stalled),
            () = tokio::time::sleep_until(login_until), if must_log_in => Err(Ending::NoLogin),
        }
    }

    async fn send(&mut self) -> Result<(), Ending> {
        let sent = self.unsent.bytes;
        while !self.unsent.is_empty() {
            let mut slices = [IoSlice::new(&[]); WRITE_PIECES_MAX];
            let count = self.unsent.slices(&mut slices);
            let written = self.socket.write_vectored(&slices[..count]).await?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            self.unsent.advance(written);
        }
        self.context
            .shared
            .telemetry
            .bytes_out
            .increment(sent as u64);
        Ok(())
    }

    /// The listener stops: what has been begun is answered, as far as that takes no long wait.
    async fn drain(&mut self) -> Result<(), Ending> {
        let answers = async {
            while let Some(reply) = self.replies.pop_front() {
                match reply {
                    Reply::Now(answer) => self.unsent.push(answer),
                    Reply::Later(answer) => self.unsent.push(answer.await?),
                    Reply::Nothing | Reply::HeldBack(_) | Reply::Last(_) => {}
                }
                self.send().await?;
            }
            self.socket.shutdown().await?;
            Ok(())
        };
        tokio::time::timeout(DRAIN_WAIT, answers)
            .await
            .unwrap_or(Ok(()))
    }
}

/// Cuts what arrives into frames: a length of four bytes and that many bytes.
pub(super) struct Frames {
    buffer: BytesMut,
    /// The largest frame taken.
    bytes_max: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            buffer: BytesMut::new(),
            bytes_max: REQUEST_BYTES_MAX,
        }
    }
}

impl Frames {
    /// The next whole frame, without its length.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Ending> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        if self.buffer.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        let frame = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            // An idle connection keeps no buffer.
            self.buffer = BytesMut::new();
        }
        Ok(Some(frame))
    }

    /// Takes bytes as if they had come from a socket.
    #[cfg(test)]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    fn announced(&self) -> Result<Option<usize>, Ending> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        match usize::try_from(length) {
            Ok(bytes) if bytes <= self.bytes_max => Ok(Some(bytes)),
            _ => Err(Ending::FrameLength(length)),
        }
    }

    /// Reads what is there. The buffer grows with what has arrived, never to what is announced.
    async fn fill(&mut self, socket: &mut Socket) -> io::Result<usize> {
        loop {
            socket.ready().await?;
            let missing = match self.announced() {
                Ok(Some(bytes)) => (LENGTH_BYTES + bytes).saturating_sub(self.buffer.len()),
                _ => 0,
            };
            let step = missing.min(self.buffer.len()).max(READ_STEP_BYTES);
            self.buffer.reserve(step);
            match socket.read_into(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                }
                read => return read,
            }
        }
    }
}

/// Answers on their way to the socket.
#[derive(Default)]
struct Unsent {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn push(&mut self, answer: Answer) {
        match answer {
            Answer::Whole(bytes) => self.push_piece(bytes),
            Answer::Pieces(pieces) => {
                for piece in pieces {
                    self.push_piece(piece);
                }
            }
        }
    }

    fn push_piece(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written.min(self.bytes);
        while let Some(piece) = self.pieces.front_mut() {
            if written < piece.len() {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
    }
}

const LENGTH_BYTES: usize = 4;
