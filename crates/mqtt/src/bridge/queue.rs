//! What waits to go to the other server, on a journal of its own.
//!
//! A message is appended when a publisher brings it and given away when the other server has
//! acknowledged it; until then it outlives the process and every connection. In memory stands
//! where each one lies, 24 bytes. At its bound the queue holds publishers back for a grace time;
//! after that it drops what comes, and counts it, until there is room. On a full disk publishers of
//! QoS 1 are held back for as long as that lasts. A journal that has failed takes nothing any more,
//! so nobody waits for it: what was promised to last counts as settled then.
//!
//! | kind | payload, version 1, numbers little-endian |
//! | --- | --- |
//! | 1 message | QoS u8, retain u8, expires ms i64 (0: never), topic length u16, topic, property length u32, properties, payload |
//! | 2 done | position u64: every message before it has gone |

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use journal::{
    Disk, Done, Durability, DurableWait, Frame, FrameRef, Journal, JournalError, JournalOptions,
    Position,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::limits::{BRIDGE_DONE_EVERY, JOURNAL_PREALLOCATE_BYTES, JOURNAL_SEGMENT_BYTES};
use crate::message::{Qos, Settled};

/// The queue of one bridge.
pub(super) struct Queue {
    journal: Journal,
    need: Durability,
    bounds: Bounds,
    state: Mutex<State>,
    /// Told when there is something to send.
    pub(super) wake: Arc<Notify>,
    /// Told when messages have gone.
    pub(super) room: Notify,
    pub(super) dropped: AtomicU64,
    /// How many of those that are promised to last do.
    settled: Arc<watch::Sender<u64>>,
}

/// How much may wait, and how long publishers are held back for more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) messages_max: usize,
    pub(super) bytes_max: u64,
    pub(super) packet_bytes_max: u64,
    pub(super) grace: Duration,
}

/// A message to go over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) expires: Option<UnixMillis>,
    pub(super) topic: String,
    /// Checked properties of MQTT 5.0.
    pub(super) properties: Bytes,
    pub(super) payload: Bytes,
}

/// How long the journal has taken nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// It did until now.
    pub(super) is_new: bool,
    /// For the whole grace time.
    pub(super) is_over: bool,
}

/// How an offer ended.
pub(super) enum Offered {
    /// It waits now, or was dropped and counted; the wait is for its durability.
    Taken(Option<DurableWait>),
    /// There is no room: the publisher is to be held back.
    Full,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// How many of the entries are with the link.
    sent: usize,
    bytes: u64,
    full_since: Option<UnixMillis>,
    /// How many were taken whose publishers are told when they are durable.
    promised: u64,
    /// Gone since the last frame that says so.
    unsaid: usize,
}

struct Entry {
    position: Position,
    bytes: u32,
    is_done: bool,
}

impl Queue {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        bounds: Bounds,
        need: Durability,
    ) -> Result<Queue, JournalError> {
        let floor_bytes = 4 * bounds.packet_bytes_max;
        let options = JournalOptions {
            segment_bytes: JOURNAL_SEGMENT_BYTES.max(floor_bytes.next_power_of_two()),
            preallocate_bytes: JOURNAL_PREALLOCATE_BYTES,
            pending_bytes_max: JOURNAL_SEGMENT_BYTES.max(floor_bytes),
            ..JournalOptions::default()
        };
        let mut state = State::default();
        let mut visit = |frame: FrameRef<'_>| {
            state.recover(&frame);
            Ok(())
        };
        let (journal, _) = Journal::open(disk, dir, options, &mut visit)?;
        Ok(Queue {
            journal,
            need,
            bounds,
            state: Mutex::new(state),
            wake: Arc::default(),
            room: Notify::new(),
            dropped: AtomicU64::new(0),
            settled: Arc::new(watch::Sender::new(0)),
        })
    }

    /// Whether a failed write or sync has stopped its journal until it is opened again.
    pub(super) fn is_poisoned(&self) -> bool {
        self.journal.is_poisoned()
    }

    /// Puts a message behind the others.
    pub(super) fn offer(&self, now: UnixMillis, parcel: &Parcel) -> Result<Offered, JournalError> {
        let mut state = self.state.lock();
        let bytes = parcel.bytes();
        // For room in a journal that has failed nobody waits.
        if state.is_full(&self.bounds, bytes) && !self.is_poisoned() {
            let since = *state.full_since.get_or_insert(now);
            if now.since(since) < self.bounds.grace {
                return Ok(Offered::Full);
            }
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(Offered::Taken(None));
        }
        let head = parcel.head();
        let length = u32::try_from(parcel.properties.len()).unwrap_or(u32::MAX);
        let parts: [&[u8]; 5] = [
            &head,
            parcel.topic.as_bytes(),
            &length.to_le_bytes(),
            &parcel.properties,
            &parcel.payload,
        ];
        let frame = Frame {
            kind: MESSAGE,
            version: VERSION,
            parts: &parts,
        };
        let need = self.need.max(Durability::Os);
        // At `Os` the frame can be read; then the link may have it.
        let wake = Arc::clone(&self.wake);
        let (mut done, wait) = match parcel.qos {
            Qos::AtMostOnce => (Done::none(), None),
            _ => {
                let (done, wait) = Done::channel(self.need);
                (done, Some(wait))
            }
        };
        let told = done.os.take();
        done.os = Some(Box::new(move |outcome| {
            wake.notify_one();
            if let Some(told) = told {
                told(outcome);
            }
        }));
        let is_promised = wait.is_some() && self.need > Durability::Memory;
        if is_promised {
            let (settled, promised) = (Arc::clone(&self.settled), state.promised + 1);
            let level = match self.need {
                Durability::Disk => &mut done.disk,
                _ => &mut done.os,
            };
            let told = level.take();
            *level = Some(Box::new(move |outcome| {
                // A journal that has failed settles nothing any more: nobody is to wait for it.
                let until = outcome.as_ref().map_or(u64::MAX, |()| promised);
                settled.send_modify(|settled| *settled = until.max(*settled));
                if let Some(told) = told {
                    told(outcome);
                }
            }));
        }
        let placed = match self.journal.append(&[frame], need, done) {
            Ok(placed) => placed,
            Err(JournalError::Busy) => return Ok(Offered::Full),
            Err(error) => return Err(error),
        };
        state.full_since = None;
        state.promised += u64::from(is_promised);
        state.bytes += u64::from(bytes);
        state.entries.push_back(Entry {
            position: placed.first,
            bytes,
            is_done: false,
        });
        Ok(Offered::Taken(wait))
    }

    /// Resolves when all that was taken so far and is promised to last does, or the journal has failed.
    /// `None`: it does already.
    pub(super) fn settled(&self) -> Option<Settled> {
        let promised = self.state.lock().promised;
        let mut settled = self.settled.subscribe();
        if *settled.borrow() >= promised {
            return None;
        }
        Some(Box::pin(async move {
            if settled.wait_for(|now| *now >= promised).await.is_err() {
                std::future::pending().await
            }
        }))
    }

    /// Notes that the journal refuses messages.
    pub(super) fn hold(&self, now: UnixMillis) -> Hold {
        let mut state = self.state.lock();
        let is_new = state.full_since.is_none();
        let since = *state.full_since.get_or_insert(now);
        Hold {
            is_new,
            is_over: now.since(since) >= self.bounds.grace,
        }
    }

    /// Whether messages have room.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state.lock();
        !state.is_full(&self.bounds, 0)
    }

    /// Whether its journal refuses messages since the disk is full.
    pub(super) fn is_on_full_disk(&self) -> bool {
        self.journal.is_full()
    }

    /// Waits until an offer is worth another try; not for long, since the grace time may end, or the
    /// disk have room, while nothing goes.
    pub(super) async fn wait_for_room(&self) {
        let told = self.room.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if self.is_on_full_disk() || !self.has_room() {
            let _ = tokio::time::timeout(ASK_AGAIN, told).await;
            return;
        }
        // Room for the largest message, with its frame.
        let bytes = self.bounds.packet_bytes_max + 1_024;
        let _ = tokio::time::timeout(ASK_AGAIN, self.journal.room(bytes)).await;
    }

    /// The next message that the link does not have, with its number, if `may` says so of that; none
    /// for now.
    pub(super) fn next(
        &self,
        may: impl Fn(u64) -> bool,
    ) -> Result<Option<(u64, Parcel)>, JournalError> {
        let mut state = self.state.lock();
        let (number, position) = loop {
            let Some(entry) = state.entries.get(state.sent) else {
                return Ok(None);
            };
            if !entry.is_done {
                break (state.first + state.sent as u64, entry.position);
            }
            state.sent += 1;
        };
        if !may(number) {
            return Ok(None);
        }
        let payload = match self.journal.read_frame(position) {
            Ok(payload) => payload,
            // Not with the operating system yet: its callback wakes us.
            Err(JournalError::OutOfRange { .. }) => return Ok(None),
            Err(error @ JournalError::Damaged { .. }) => {
                tracing::error!(error = %base::report(&error), "a message for a bridge is lost");
                self.dropped.fetch_add(1, Ordering::Relaxed);
                state.done(number);
                self.wake.notify_one();
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        state.sent += 1;
        match Parcel::read(&payload) {
            Some(parcel) => Ok(Some((number, parcel))),
            None => {
                tracing::error!("a message for a bridge cannot be read and is lost");
                self.dropped.fetch_add(1, Ordering::Relaxed);
                state.done(number);
                self.wake.notify_one();
                Ok(None)
            }
        }
    }

    /// The other server has the message of this number.
    pub(super) fn done(&self, number: u64) {
        let mut state = self.state.lock();
        state.done(number);
        if state.unsaid >= BRIDGE_DONE_EVERY || (state.unsaid > 0 && state.entries.is_empty()) {
            self.say_done(&mut state);
        }
        drop(state);
        self.room.notify_waiters();
    }

    /// The link is gone: what it had not delivered goes again.
    pub(super) fn rewind(&self) {
        self.state.lock().sent = 0;
    }

    /// Messages and bytes that wait.
    pub(super) fn depth(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.entries.len() as u64, state.bytes)
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        if state.unsaid > 0 {
            self.say_done(&mut state);
        }
        drop(state);
        if let Err(error) = self.journal.close() {
            tracing::error!(error = %base::report(&error), "a bridge's journal not closed cleanly");
        }
    }

    /// Notes in the journal what has gone, and gives its space back. Without the note the messages go
    /// again after a restart, which QoS 1 allows.
    fn say_done(&self, state: &mut State) {
        if self.is_poisoned() {
            return;
        }
        let low_water = match state.entries.front() {
            Some(entry) => entry.position,
            None => self.journal.end(),
        };
        let position = low_water.0.to_le_bytes();
        let frame = Frame {
            kind: DONE,
            version: VERSION,
            parts: &[&position],
        };
        let said = self
            .journal
            .append_vital(&[frame], Durability::Os, Done::none());
        match said {
            Ok(_) => state.unsaid = 0,
            Err(error) => tracing::debug!(%error, "a bridge's progress is not journaled"),
        }
        if let Err(error) = self.journal.reclaim(low_water) {
            tracing::warn!(error = %base::report(&error), "a bridge's journal keeps its space");
        }
    }
}

impl State {
    fn recover(&mut self, frame: &FrameRef<'_>) {
        match (frame.kind, frame.version) {
            (MESSAGE, VERSION) => {
                let bytes = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
                self.bytes += u64::from(bytes);
                self.entries.push_back(Entry {
                    position: frame.position,
                    bytes,
                    is_done: false,
                });
            }
            (DONE, VERSION) => {
                let Some(position) = frame.payload.first_chunk::<8>() else {
                    return;
                };
                let before = u64::from_le_bytes(*position);
                while let Some(entry) = self.entries.front()
                    && entry.position.0 < before
                {
                    self.bytes -= u64::from(entry.bytes);
                    self.entries.pop_front();
                }
            }
            (kind, version) => tracing::warn!(
                kind,
                version,
                "skipped a frame of a bridge's journal that this version cannot read"
            ),
        }
    }

    fn is_full(&self, bounds: &Bounds, bytes: u32) -> bool {
        self.entries.len() >= bounds.messages_max
            || self.bytes + u64::from(bytes) > bounds.bytes_max
    }

    fn done(&mut self, number: u64) {
        let Some(index) = number.checked_sub(self.first) else {
            return;
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(entry) = self.entries.get_mut(index) {
            entry.is_done = true;
        }
        while let Some(entry) = self.entries.front()
            && entry.is_done
        {
            self.bytes -= u64::from(entry.bytes);
            self.entries.pop_front();
            self.first += 1;
            self.sent = self.sent.saturating_sub(1);
            self.unsaid += 1;
        }
    }
}

impl Parcel {
    /// Bytes that it counts for, as its frame's payload.
    fn bytes(&self) -> u32 {
        let bytes = HEAD_BYTES + self.topic.len() + 4 + self.properties.len() + self.payload.len();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = self.qos.bits();
        head[1] = u8::from(self.retain);
        let expires = self.expires.map_or(0, |at| at.0);
        head[2..10].copy_from_slice(&expires.to_le_bytes());
        // A topic's length fits: it was checked to be a name.
        let length = u16::try_from(self.topic.len()).unwrap_or(u16::MAX);
        head[10..12].copy_from_slice(&length.to_le_bytes());
        head
    }

    fn read(payload: &Bytes) -> Option<Parcel> {
        let (head, rest) = payload.split_first_chunk::<HEAD_BYTES>()?;
        let expires = i64::from_le_bytes(head[2..10].try_into().ok()?);
        let topic_bytes = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let (topic, rest) = rest.split_at_checked(topic_bytes)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (properties, rest) = rest.split_at_checked(length)?;
        Some(Parcel {
            qos: Qos::from_bits(head[0])?,
            retain: head[1] != 0,
            expires: (expires != 0).then_some(UnixMillis(expires)),
            topic: std::str::from_utf8(topic).ok()?.to_owned(),
            properties: payload.slice_ref(properties),
            payload: payload.slice_ref(rest),
        })
    }
}

/// How often a publisher that is held back asks again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
const MESSAGE: u8 = 1;
const DONE: u8 = 2;
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use journal::SimDisk;

    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            messages_max: 1_000,
            bytes_max: 1 << 20,
            packet_bytes_max: 64 << 10,
            grace: Duration::from_secs(5),
        }
    }

    fn open(disk: &SimDisk, bounds: Bounds) -> Queue {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Queue::open(disk, Path::new("/queue"), bounds, Durability::Disk).unwrap()
    }

    fn parcel(n: u32) -> Parcel {
        Parcel {
            qos: Qos::AtLeastOnce,
            retain: n.is_multiple_of(2),
            expires: n.is_multiple_of(3).then_some(UnixMillis(i64::from(n) + 1)),
            topic: format!("a/{n}"),
            properties: Bytes::from_static(b"\x26\0\x01k\0\x01v"),
            payload: Bytes::from(vec![n as u8; n as usize % 100]),
        }
    }

    /// Waits until the message is on the disk.
    fn put(queue: &Queue, n: u32) {
        match queue.offer(UnixMillis(0), &parcel(n)).unwrap() {
            Offered::Taken(wait) => wait.unwrap().wait_blocking().unwrap(),
            Offered::Full => panic!("no room for {n}"),
        }
    }

    fn drain(queue: &Queue) -> Vec<(u64, Parcel)> {
        std::iter::from_fn(|| queue.next(|_| true).unwrap()).collect()
    }

    #[test]
    fn messages_come_in_order_and_go_when_done() {
        let disk = SimDisk::new(1);
        let queue = open(&disk, bounds());
        (0..10).for_each(|n| put(&queue, n));
        let got = drain(&queue);
        let expected: Vec<_> = (0..10).map(|n| (u64::from(n), parcel(n))).collect();
        assert_eq!(got, expected);
        // Done in another order: what is before stays.
        queue.done(1);
        assert_eq!(queue.depth().0, 10);
        queue.done(0);
        assert_eq!(queue.depth().0, 8);
        // A link that is lost: what was not done comes again.
        queue.done(4);
        queue.rewind();
        let numbers: Vec<u64> = drain(&queue).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 3, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_was_not_done_outlives_the_machine() {
        let disk = SimDisk::new(2);
        let queue = open(&disk, bounds());
        (0..300).for_each(|n| put(&queue, n));
        drain(&queue);
        (0..200).for_each(|n| queue.done(n));
        disk.crash();
        drop(queue);
        disk.power_on();
        let queue = open(&disk, bounds());
        let got: Vec<Parcel> = drain(&queue)
            .into_iter()
            .map(|(_, parcel)| parcel)
            .collect();
        // Nothing that was not done is missing; some that was may come again.
        let first = got.len();
        assert!((100..=300).contains(&first), "{first}");
        let expected: Vec<Parcel> = (300 - first as u32..300).map(parcel).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_closed_queue_brings_nothing_twice() {
        let disk = SimDisk::new(3);
        let queue = open(&disk, bounds());
        (0..20).for_each(|n| put(&queue, n));
        drain(&queue);
        (0..15).for_each(|n| queue.done(n));
        queue.close();
        drop(queue);
        let queue = open(&disk, bounds());
        assert_eq!(queue.depth().0, 5);
        assert_eq!(drain(&queue)[0].1, parcel(15));
    }

    #[test]
    fn a_full_queue_holds_back_then_drops_and_counts() {
        let disk = SimDisk::new(4);
        let few = Bounds {
            messages_max: 3,
            ..bounds()
        };
        let queue = open(&disk, few);
        (0..3).for_each(|n| put(&queue, n));
        assert!(!queue.has_room());
        let offer = |ms| queue.offer(UnixMillis(ms), &parcel(9)).unwrap();
        assert!(matches!(offer(1_000), Offered::Full));
        assert!(matches!(offer(5_900), Offered::Full));
        assert!(matches!(offer(6_000), Offered::Taken(None)));
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 1);
        drain(&queue);
        queue.done(0);
        assert!(queue.has_room());
        assert!(matches!(offer(7_000), Offered::Taken(Some(_))));
        // Held back again for the whole grace time.
        assert!(matches!(offer(8_000), Offered::Full));
    }

    #[test]
    fn space_is_given_back() {
        let disk = SimDisk::new(5);
        let queue = open(&disk, bounds());
        let big = Parcel {
            payload: Bytes::from(vec![7; 60_000]),
            ..parcel(1)
        };
        let mut most = 0;
        for number in 0..1_000 {
            match queue.offer(UnixMillis(0), &big).unwrap() {
                Offered::Taken(wait) => wait.unwrap().wait_blocking().unwrap(),
                Offered::Full => panic!("no room"),
            }
            drain(&queue);
            queue.done(number);
            most = most.max(queue.journal.bytes_on_disk());
        }
        assert!(most <= 4 * JOURNAL_SEGMENT_BYTES, "{most}");
    }

    #[test]
    fn bytes_that_are_no_parcel_are_none() {
        let whole = {
            let parcel = parcel(7);
            let mut bytes = parcel.head().to_vec();
            bytes.extend_from_slice(parcel.topic.as_bytes());
            bytes.extend_from_slice(&(parcel.properties.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&parcel.properties);
            bytes.extend_from_slice(&parcel.payload);
            bytes
        };
        assert_eq!(Parcel::read(&Bytes::from(whole.clone())), Some(parcel(7)));
        for end in 0..whole.len() - 7 {
            assert_eq!(Parcel::read(&Bytes::copy_from_slice(&whole[..end])), None);
        }
        let mut endless = whole;
        endless[10..12].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(Parcel::read(&Bytes::from(endless)), None);
    }
}
