//! One connection: frames in, answers out in the order of the requests.
//!
//! Requests are begun in the order of arrival, so what a client pipelines reaches the journal in
//! its order. Answers that have to wait stand in a queue; only its front is sent. While answers
//! pile up, unsent or unfinished, nothing is read: the client feels it in its own socket.
//!
//! It is served on one lane, and may be moved to another between two requests (see [`super::lanes`]).
//!
//! A connection without traffic holds no buffer (it borrows one, see [`super::buffers`]) and, once
//! its client is known, no timer.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use access::{AddressPlace, DetachedSocket, Socket};
use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::TaskTracker;

use super::Context;
use super::api::{Begun, PRODUCE_KEY, Timing};
use super::buffers::Buffers;
use super::lanes::LanePlace;
use super::limits::{
    ALONE_MIN, DRAIN_WAIT, FRAME_STALL_MAX, LOGIN_REQUEST_BYTES_MAX, LOGIN_WAIT, READ_STEP_BYTES,
    REQUEST_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX, UNSENT_BYTES_MAX, WAITING_BYTES_PER_BYTE,
};
use super::reply::{Answer, Ending, Reply};
use super::room::Held;
use super::seats::Seat;
use super::throttle::Toll;
use super::unsent::Unsent;
use crate::telemetry::Entered;

/// A connection without its socket.
pub(super) struct Link {
    context: Arc<Context>,
    received: Frames,
    replies: VecDeque<Begun>,
    /// What the answers among the replies that are there already take in memory.
    queued_bytes: usize,
    unsent: Unsent,
    /// The last answer is on its way; nothing more is begun.
    is_ending: bool,
    /// When a client that must log in has to have done so.
    login_until: Instant,
    /// Over when the listener stops.
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// A request that waits until its client's tenant may have it begun.
    parked: Option<Bytes>,
    /// Requests one after another that each came when all before were answered, and nothing with it.
    alone: u8,
    /// Until when the client is held back for what it has used: nothing is read or begun.
    muted_until: Option<Instant>,
    /// The memory that this connection holds beyond what is free.
    held: Held,
    seat: Arc<Seat>,
    lane: LanePlace,
    /// Its place among the connections of its address.
    _place: AddressPlace,
    /// It counts as one of the listener's.
    _entered: Entered,
    /// All connections of the listener, for who waits for their end.
    connections: TaskTracker,
}

/// Serves the client on `socket`, on the lane that the link is on, until it goes, misbehaves or the
/// listener stops.
pub(super) fn serve(mut link: Link, socket: DetachedSocket) {
    let (connections, runtime) = (link.connections.clone(), link.lane.runtime());
    let serving = async move {
        let context = Arc::clone(&link.context);
        match link.serve_on_lane(socket).await {
            Ok(Some(socket)) => serve(link, socket),
            Ok(None) => {}
            // Clients break connections as they please; that is nobody's news.
            Err(Ending::Socket(error)) => {
                tracing::debug!(client = %context.client_host, %error, "Kafka connection broke");
            }
            Err(Ending::Idle) => {
                tracing::debug!(client = %context.client_host, "Kafka connection closed that was idle, or waited while others wanted its place");
            }
            Err(ending) => {
                context.shared.telemetry().refused.increment(1);
                if context.shared.logs_refusal() {
                    tracing::warn!(client = %context.client_host, "Kafka connection closed: {ending}");
                }
            }
        }
    };
    runtime.spawn(connections.track_future(serving));
}

/// What wakes a connection.
enum Event {
    Readable(io::Result<usize>),
    Answered(Result<Answer, Ending>),
    Unmuted,
    Stop,
}

impl Link {
    pub(super) fn new(
        context: Arc<Context>,
        (seat, place, lane): (Seat, AddressPlace, LanePlace),
        connections: TaskTracker,
    ) -> Self {
        let shared = &context.shared;
        Link {
            received: Frames::new(Arc::clone(&shared.buffers)),
            replies: VecDeque::new(),
            queued_bytes: 0,
            unsent: Unsent::default(),
            is_ending: false,
            login_until: Instant::now() + LOGIN_WAIT,
            stopped: Box::pin(shared.shutdown.clone().cancelled_owned()),
            parked: None,
            alone: 0,
            muted_until: None,
            held: shared.room.enter(),
            seat: Arc::new(seat),
            lane,
            _place: place,
            _entered: shared.figures.enter(),
            connections,
            context,
        }
    }

    /// Serves the client on this lane; answers the socket when the link, which has another lane then,
    /// is to go on there.
    async fn serve_on_lane(
        &mut self,
        socket: DetachedSocket,
    ) -> Result<Option<DetachedSocket>, Ending> {
        let context = Arc::clone(&self.context);
        let Some(mut socket) = secured(socket.attach()?, &context).await else {
            return Ok(None);
        };
        let give_way = self.held.give_way();
        let seat = Arc::clone(&self.seat);
        let lane = tokio::select! {
            served = self.serve(&mut socket) => served?,
            () = give_way.notified() => return Err(Ending::GaveWay),
            () = seat.lost() => return Err(Ending::Idle),
        };
        let Some(lane) = lane else { return Ok(None) };
        self.lane = lane;
        Ok(Some(socket.detach()?))
    }

    /// Serves the client until it goes or another lane, which is answered, has more time for it.
    async fn serve(&mut self, socket: &mut Socket) -> Result<Option<LanePlace>, Ending> {
        loop {
            // A client that never lets its connection wait must not keep others from their turn.
            tokio::task::consume_budget().await;
            self.begin_requests(socket).await?;
            self.collect_answers();
            if !self.unsent.is_empty() {
                self.send(socket).await?;
                continue;
            }
            if self.is_ending && self.replies.is_empty() {
                socket.shutdown().await?;
                return Ok(None);
            }
            if self.replies.is_empty() {
                self.seat.note_idle();
            }
            match self.next_event(socket).await? {
                Event::Readable(Ok(0)) => return Ok(None),
                Event::Readable(Ok(bytes)) => {
                    self.context.shared.figures.bytes_in.increment(bytes as u64);
                    self.hold();
                    // Nothing is half-way here: all answers that were there are sent.
                    if let Some(lane) = self.lane.turn() {
                        return Ok(Some(lane));
                    }
                }
                Event::Readable(Err(error)) => return Err(error.into()),
                Event::Answered(answer) => {
                    self.answered(answer?);
                    self.collect_finished(socket).await?;
                    self.hold();
                }
                Event::Unmuted => self.muted_until = None,
                Event::Stop => return self.drain(socket).await.map(|()| None),
            }
        }
    }

    /// Begins the requests that have arrived whole, as far as there is room for their answers.
    async fn begin_requests(&mut self, socket: &mut Socket) -> Result<(), Ending> {
        while self.replies.len() < REQUESTS_IN_FLIGHT_MAX
            && self.unsent.bytes() + self.queued_bytes < UNSENT_BYTES_MAX
            && !self.is_ending
            && self.muted_until.is_none()
        {
            self.received.bytes_max = match self.context.session.is_open() {
                true => REQUEST_BYTES_MAX,
                false => LOGIN_REQUEST_BYTES_MAX,
            };
            let arrived = match self.parked.take() {
                Some(frame) => Some(frame),
                None => self.received.next()?,
            };
            let Some(frame) = arrived else {
                break;
            };
            let wait = self.context.gate(&frame);
            if !wait.is_zero() {
                self.parked = Some(frame);
                self.mute(wait);
                self.hold();
                break;
            }
            self.seat.note_busy();
            self.held.renew();
            self.hold();
            let waiting_bytes = waiting_bytes(&frame);
            if self.held.is_overfull() {
                // What is to be sent must not wait for itself.
                self.send(socket).await?;
                self.held.settled().await;
            }
            let Begun {
                mut reply,
                toll,
                timing,
            } = self.begin(frame)?;
            while let Reply::HeldBack(begun) = reply {
                reply = begun.await?;
            }
            if let Reply::Last(answer) = reply {
                self.is_ending = true;
                reply = Reply::Now(answer);
            }
            match reply {
                Reply::Nothing => {
                    let wait = toll.map(|toll| toll.wait(&self.context));
                    self.mute(wait.unwrap_or_default());
                }
                Reply::HeldBack(_) | Reply::Last(_) => {}
                Reply::Now(answer) if self.replies.is_empty() => {
                    self.note_answer(timing);
                    self.settle(answer, toll);
                }
                Reply::Later(answer) => {
                    if !self.replies.is_empty() && timing.is_of(PRODUCE_KEY) {
                        self.context.shared.streams.shared().journal.note_sent_on();
                    }
                    let answer = match self.held.lend(waiting_bytes) {
                        None => answer,
                        Some(lent) => Box::pin(async move {
                            let answer = answer.await;
                            drop(lent);
                            answer
                        }),
                    };
                    let reply = Reply::Later(answer);
                    self.replies.push_back(Begun {
                        reply,
                        toll,
                        timing,
                    });
                }
                reply => {
                    if let Reply::Now(answer) = &reply {
                        self.queued_bytes += answer.held_bytes();
                    }
                    self.replies.push_back(Begun {
                        reply,
                        toll,
                        timing,
                    });
                }
            }
            self.hold();
        }
        Ok(())
    }

    /// Begins a request. What it stores for a client that sends nothing more until it is answered is
    /// written and synced here and now: nothing would be done meanwhile, and it spares the way to
    /// another thread and back (decision 36).
    fn begin(&mut self, frame: Bytes) -> Result<Begun, Ending> {
        let is_alone = self.replies.is_empty() && self.received.is_empty();
        self.alone = if is_alone {
            self.alone.saturating_add(1)
        } else {
            0
        };
        let may_carry = self.alone >= ALONE_MIN && self.lane.may_wait();
        let journal = &self.context.shared.streams.shared().journal;
        let carrier = may_carry.then(|| journal.carrier());
        let begun = super::api::begin(&self.context, frame)?;
        if matches!(begun.reply, Reply::Nothing) {
            // Who gets no answer waits for none.
            self.alone = 0;
        }
        if let Some(carrier) = carrier {
            carrier.carry();
        }
        Ok(begun)
    }

    /// Lets an answer go; whoever has used too much is held back after it.
    fn settle(&mut self, answer: Answer, toll: Option<Toll>) {
        let (answer, wait) = match toll {
            None => (answer, Duration::ZERO),
            Some(toll) => toll.settle(&self.context, answer),
        };
        self.unsent.push(answer);
        self.mute(wait);
    }

    fn mute(&mut self, wait: Duration) {
        if !wait.is_zero() {
            let until = Instant::now() + wait;
            self.muted_until = self.muted_until.max(Some(until));
        }
    }

    /// Counts what has arrived and is no request yet, and what is to be sent.
    fn hold(&mut self) {
        let parked = self.parked.as_ref().map_or(0, Bytes::len);
        let received = self.received.buffer.len() + parked;
        self.held
            .set(received + self.queued_bytes + self.unsent.held_bytes());
    }

    /// Moves the answers at the front of the queue that need no waiting to those to be sent.
    fn collect_answers(&mut self) {
        while self.unsent.bytes() < UNSENT_BYTES_MAX
            && matches!(self.replies.front(), Some(front) if matches!(front.reply, Reply::Now(_)))
        {
            if let Some(begun) = self.replies.pop_front()
                && let Reply::Now(answer) = begun.reply
            {
                self.queued_bytes -= answer.held_bytes();
                self.note_answer(begun.timing);
                self.settle(answer, begun.toll);
            }
        }
    }

    /// Takes the answer that the front has waited for.
    fn answered(&mut self, answer: Answer) {
        let begun = self.replies.pop_front();
        let (toll, timing) = begun.map(|begun| (begun.toll, begun.timing)).unzip();
        if let Some(timing) = timing {
            self.note_answer(timing);
        }
        self.settle(answer, toll.flatten());
    }

    /// Takes the answers behind the front that are there as well, so that all are sent at once: what
    /// one sync has made durable is answered together.
    async fn collect_finished(&mut self, socket: &mut Socket) -> Result<(), Ending> {
        loop {
            self.collect_answers();
            if self.unsent.bytes() >= UNSENT_BYTES_MAX {
                break;
            }
            let Some(Begun {
                reply: Reply::Later(answer),
                ..
            }) = self.replies.front_mut()
            else {
                break;
            };
            let polled = std::future::poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
            match polled {
                Poll::Ready(Ok(answer)) => self.answered(answer),
                Poll::Ready(Err(ending)) => {
                    // Those before it are true all the same.
                    self.send(socket).await?;
                    return Err(ending);
                }
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Waits for whatever comes first: bytes, the front's answer, or the end.
    async fn next_event(&mut self, socket: &mut Socket) -> Result<Event, Ending> {
        let is_muted = self.muted_until.is_some();
        let unmuted_at = self.muted_until.unwrap_or_else(Instant::now);
        let may_read = self.replies.len() < REQUESTS_IN_FLIGHT_MAX
            && self.queued_bytes < UNSENT_BYTES_MAX
            && !self.is_ending
            && !is_muted;
        let must_log_in = !self.context.session.is_open();
        if !must_log_in {
            // Counts from when the client has to log in again.
            self.login_until = Instant::now() + LOGIN_WAIT;
        }
        let login_until = self.login_until;
        let is_stalling = may_read && !self.received.is_empty();
        let Link {
            stopped,
            received,
            replies,
            unsent,
            held,
            ..
        } = self;
        let front = std::future::poll_fn(|cx| match replies.front_mut() {
            Some(Begun {
                reply: Reply::Later(answer),
                ..
            }) => answer.as_mut().poll(cx),
            _ => Poll::Pending,
        });
        tokio::select! {
            // A finished answer goes before new requests, so that answers never wait for them.
            biased;
            answer = front => Ok(Event::Answered(answer)),
            () = stopped.as_mut() => Ok(Event::Stop),
            () = tokio::time::sleep_until(unmuted_at), if is_muted => Ok(Event::Unmuted),
            bytes = received.fill_within(held, unsent.held_bytes(), socket), if may_read => {
                Ok(Event::Readable(bytes))
            }
            () = tokio::time::sleep(FRAME_STALL_MAX), if is_stalling => Err(Ending::Stalled),
            () = tokio::time::sleep_until(login_until), if must_log_in => Err(Ending::NoLogin),
        }
    }

    async fn send(&mut self, socket: &mut Socket) -> Result<(), Ending> {
        let sent = self.unsent.bytes();
        let shared = &self.context.shared;
        let journal = &shared.streams.shared().journal;
        self.unsent.send(socket, journal, &shared.buffers).await?;
        self.held.renew();
        self.hold();
        self.context.shared.figures.bytes_out.increment(sent as u64);
        Ok(())
    }

    fn note_answer(&self, of: Timing) {
        let telemetry = self.context.shared.telemetry();
        telemetry.note_answer(of.api, of.began.elapsed(), of.local);
    }

    /// The listener stops: what has been begun is answered, as far as that takes no long wait.
    async fn drain(&mut self, socket: &mut Socket) -> Result<(), Ending> {
        let answers = async {
            while let Some(begun) = self.replies.pop_front() {
                match begun.reply {
                    Reply::Now(answer) => self.unsent.push(answer),
                    Reply::Later(answer) => self.unsent.push(answer.await?),
                    Reply::Nothing | Reply::HeldBack(_) | Reply::Last(_) => {}
                }
                self.send(socket).await?;
            }
            socket.shutdown().await?;
            Ok(())
        };
        tokio::time::timeout(DRAIN_WAIT, answers)
            .await
            .unwrap_or(Ok(()))
    }
}

/// Does the TLS handshake where one is still to be done, and notes who the certificate says the client
/// is.
async fn secured(socket: Socket, context: &Context) -> Option<Socket> {
    let (socket, tls) = match (socket, &context.shared.security.tls) {
        (Socket::Plain(socket), Some(tls)) => (socket, tls),
        (socket, _) => return Some(socket),
    };
    let accepted = tokio::select! {
        accepted = Socket::accept_tls(socket, tls) => accepted,
        () = context.shared.shutdown.cancelled() => return None,
    };
    match accepted {
        Ok(socket) => {
            context
                .session
                .note_certificate(socket.principal(tls.naming()));
            Some(socket)
        }
        Err(error) => {
            context.shared.telemetry().refused.increment(1);
            tracing::debug!(client = %context.client_host, %error, "TLS handshake failed");
            None
        }
    }
}

/// Cuts what arrives into frames: a length of four bytes and that many bytes.
pub(super) struct Frames {
    buffer: BytesMut,
    /// What the buffer can hold when nothing is in it.
    capacity: usize,
    buffers: Arc<Buffers>,
    /// The largest frame taken.
    bytes_max: usize,
}

impl Frames {
    pub(super) fn new(buffers: Arc<Buffers>) -> Self {
        Frames {
            buffer: BytesMut::new(),
            capacity: 0,
            buffers,
            bytes_max: REQUEST_BYTES_MAX,
        }
    }

    /// The next whole frame, without its length.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Ending> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        if self.buffer.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
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

    /// As [`Frames::fill`], when there is room for what comes.
    async fn fill_within(
        &mut self,
        held: &mut Held,
        unsent_bytes: usize,
        socket: &mut Socket,
    ) -> io::Result<usize> {
        let coming = self.missing().min(self.step());
        held.grow_to(self.buffer.len() + coming + unsent_bytes)
            .await;
        self.fill(socket).await
    }

    /// Bytes that the next read makes place for.
    fn step(&self) -> usize {
        self.missing().min(self.buffer.len()).max(READ_STEP_BYTES)
    }

    /// Bytes that are still to come of the frame whose length is known.
    fn missing(&self) -> usize {
        match self.announced() {
            Ok(Some(bytes)) => (LENGTH_BYTES + bytes).saturating_sub(self.buffer.len()),
            _ => 0,
        }
    }

    /// Reads what is there. The buffer grows with what has arrived, never to what is announced.
    async fn fill(&mut self, socket: &mut Socket) -> io::Result<usize> {
        loop {
            self.rest();
            socket.ready().await?;
            if self.buffer.is_empty() {
                self.buffer = self.buffers.take_receiving();
                self.capacity = self.buffer.capacity();
            }
            let missing = self.missing();
            self.make_room(missing);
            self.capacity = self.capacity.max(self.buffer.capacity());
            // The end of a large frame is read by itself: what followed it in the buffer would
            // have to be moved to the buffer's front.
            let len = if missing > READ_STEP_BYTES {
                missing
            } else {
                usize::MAX
            };
            match socket.read_into(&mut self.buffer, len).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Makes place for the next read, unless what is missing fits: whoever sends a byte at a time is
    /// to have no larger buffer than others.
    fn make_room(&mut self, missing: usize) {
        let step = self.step();
        let room = self.buffer.capacity() - self.buffer.len();
        if room < missing.max(LENGTH_BYTES).min(step) {
            self.buffer.reserve(step);
        }
    }

    /// Gives the buffer back when nothing is in it.
    fn rest(&mut self) {
        if self.buffer.is_empty() && self.capacity > 0 {
            let buffer = std::mem::take(&mut self.buffer);
            self.buffers.give_receiving(buffer, self.capacity);
            self.capacity = 0;
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.buffer.clear();
        self.rest();
    }
}

/// What a request takes in memory while it waits. A produce request stays the bytes that it is.
fn waiting_bytes(frame: &Bytes) -> usize {
    match frame.first_chunk() {
        Some([0, 0]) => frame.len(),
        _ => frame.len().saturating_mul(WAITING_BYTES_PER_BYTE),
    }
}

const LENGTH_BYTES: usize = 4;
