//! A connection: a queue between two processors, bounded by count and by bytes.
//!
//! Invariant: a FlowFile is in `ready`, in `penalized` or in `taken`. What a session has taken
//! stays in `taken` until it is committed or given back, so that a snapshot and a rollback see it
//! where it was. Each session of its destination has its own part of `taken`.
//!
//! Beyond the swap threshold FlowFiles wait in `tail`, from where the repository writes them away
//! in batches ([`crate::repository`]); a batch comes back when nothing is ready before it.

mod swapping;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::UnixMillis;
use parking_lot::Mutex;

use crate::definition::{ConnectionDefinition, Prioritizer};
use crate::flowfile::{FlowFile, FlowFileId, Weight};
use crate::limits::SESSION_ATTRIBUTE_BYTES_MAX;
use crate::prioritizer;
use crate::repository::{Stock, Swapped};
use crate::signal::Signal;

/// A queue between two processors.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) definition: ConnectionDefinition,
    /// Whether what leaves its destination can come back to it.
    pub(crate) in_cycle: bool,
    queue: Mutex<Queue>,
    count: AtomicU64,
    bytes: AtomicU64,
    /// What a session gave back and another one tries again, with its bytes: it counts as waiting,
    /// or a sink that fails again and again would let its source go on with each try.
    retried_count: AtomicU64,
    retried_bytes: AtomicU64,
    source: Arc<Signal>,
    destination: Arc<Signal>,
}

/// What a connection has for its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Available {
    /// Something now.
    Now,
    /// Something then, when its penalty ends.
    At(UnixMillis),
    /// Nothing.
    Nothing,
}

/// What was taken, and what was found too old.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) flow_files: Vec<FlowFile>,
    pub(crate) expired: Vec<FlowFileId>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<FlowFile>,
    penalized: BinaryHeap<Reverse<Penalized>>,
    /// Whether something came since `ready` was put in order.
    is_unordered: bool,
    /// FlowFiles and bytes that the last session gave back, until another one takes.
    given_back: (u64, u64),
    /// What each session holds, in the order in which they began to take.
    taken: Vec<(u64, Vec<FlowFile>)>,
    /// What is written away: behind `ready`, before `tail`.
    swapped: VecDeque<Swapped>,
    /// What came when more than enough was ready.
    tail: VecDeque<FlowFile>,
}

/// What waits in a connection, as it is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting<'q> {
    /// In memory.
    FlowFile(&'q FlowFile),
    /// Written away.
    Swapped(&'q Swapped),
}

#[derive(Debug)]
struct Penalized {
    until: UnixMillis,
    flow_file: FlowFile,
}

impl Connection {
    pub(crate) fn new(
        definition: ConnectionDefinition,
        in_cycle: bool,
        source: Arc<Signal>,
        destination: Arc<Signal>,
    ) -> Self {
        let queue = Mutex::default();
        let (count, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Connection {
            definition,
            in_cycle,
            queue,
            count,
            bytes,
            retried_count: AtomicU64::new(0),
            retried_bytes: AtomicU64::new(0),
            source,
            destination,
        }
    }

    /// FlowFiles that wait.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of content that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether its source must rest.
    pub(crate) fn is_full(&self) -> bool {
        let (count_max, bytes_max) = (self.definition.flow_files_max, self.definition.bytes_max);
        let count = self.count() + self.retried_count.load(Ordering::Relaxed);
        let bytes = self.bytes() + self.retried_bytes.load(Ordering::Relaxed);
        (count_max > 0 && count >= count_max) || (bytes_max > 0 && bytes >= bytes_max)
    }

    /// What there is to take.
    pub(crate) fn available(&self, now: UnixMillis) -> Available {
        if self.count() == 0 {
            return Available::Nothing;
        }
        let queue = self.queue.lock();
        if !queue.ready.is_empty() || !queue.swapped.is_empty() || !queue.tail.is_empty() {
            return Available::Now;
        }
        match queue.penalized.peek() {
            Some(Reverse(next)) if next.until <= now => Available::Now,
            Some(Reverse(next)) => Available::At(next.until),
            None => Available::Nothing,
        }
    }

    /// Queues FlowFiles, penalized ones out of sight until then, and wakes the destination.
    pub(crate) fn push(&self, flow_files: Vec<FlowFile>, penalized: Option<UnixMillis>) {
        if flow_files.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        self.add(
            flow_files.len(),
            flow_files.iter().map(FlowFile::size).sum(),
        );
        match penalized {
            None if self.is_to_wait(&queue) => queue.tail.extend(flow_files),
            None => queue.ready.extend(flow_files),
            Some(until) => {
                let penalized = flow_files
                    .into_iter()
                    .map(|flow_file| Penalized { until, flow_file });
                queue.penalized.extend(penalized.map(Reverse));
            }
        }
        queue.is_unordered = true;
        drop(queue);
        self.destination.ring();
    }

    /// Takes up to `count_max` FlowFiles of up to `bytes_max` together (one at least), and of not too
    /// many bytes of attributes.
    pub(crate) fn take(
        &self,
        session: u64,
        now: UnixMillis,
        count_max: usize,
        bytes_max: u64,
    ) -> Taken {
        let mut taken = Taken::default();
        let mut held = Vec::new();
        let mut queue = self.queue.lock();
        // Under the lock: what a source filled just before must count, or nobody would ring it.
        let was_full = self.is_full();
        queue.release(now);
        queue.draw();
        queue.order(&self.definition.prioritizers);
        let mut bytes = 0;
        let mut attributes = Weight::default();
        while taken.flow_files.len() < count_max && attributes.bytes() < SESSION_ATTRIBUTE_BYTES_MAX
        {
            let Some(next) = queue.ready.front() else {
                break;
            };
            let expiration = self.definition.expiration;
            let is_expired = !expiration.is_zero() && next.entry + expiration <= now;
            if !is_expired && bytes + next.size() > bytes_max && !taken.flow_files.is_empty() {
                break;
            }
            let Some(next) = queue.ready.pop_front() else {
                break;
            };
            self.remove(1, next.size());
            held.push(next.twin());
            if is_expired {
                taken.expired.push(next.id);
            } else {
                bytes += next.size();
                attributes.add(&next);
                taken.flow_files.push(next);
            }
        }
        if !held.is_empty() && queue.given_back.0 > 0 {
            self.retry(std::mem::take(&mut queue.given_back));
        }
        queue.hold(session, held);
        drop(queue);
        if was_full && !self.is_full() {
            self.source.ring();
        }
        taken
    }

    /// Takes exactly these FlowFiles, penalized or not; those that are not here are left out.
    pub(crate) fn take_these(&self, session: u64, ids: &HashSet<FlowFileId>) -> Vec<FlowFile> {
        let mut queue = self.queue.lock();
        let was_full = self.is_full();
        queue.release(UnixMillis(i64::MAX));
        let Queue { ready, tail, .. } = &mut *queue;
        let mut found: VecDeque<FlowFile> = VecDeque::new();
        for part in [ready, tail] {
            let (these, others): (VecDeque<_>, VecDeque<_>) = part
                .drain(..)
                .partition(|flow_file| ids.contains(&flow_file.id));
            found.extend(these);
            *part = others;
        }
        self.remove(found.len(), found.iter().map(FlowFile::size).sum());
        if !found.is_empty() && queue.given_back.0 > 0 {
            self.retry(std::mem::take(&mut queue.given_back));
        }
        queue.hold(session, found.iter().map(FlowFile::twin).collect());
        drop(queue);
        if was_full && !self.is_full() {
            self.source.ring();
        }
        found.into()
    }

    /// Hands these FlowFiles, as far as `from` holds them here, to another holder.
    pub(crate) fn pass(&self, ids: &HashSet<FlowFileId>, from: u64, to: u64) {
        let mut queue = self.queue.lock();
        let held = queue.held_by(from);
        let (passed, others) = held
            .into_iter()
            .partition(|flow_file| ids.contains(&flow_file.id));
        queue.hold(from, others);
        queue.hold(to, passed);
    }

    /// What the session took is gone from here for good.
    pub(crate) fn let_go(&self, session: u64) {
        let mut queue = self.queue.lock();
        let was_full = self.is_full();
        let gone = queue.held_by(session);
        if !gone.is_empty() {
            self.retry((0, 0));
        }
        drop(queue);
        if was_full && !self.is_full() {
            self.source.ring();
        }
        // Dropped outside of the lock: it may end claims.
        drop(gone);
    }

    /// What the session took stands at the front again, in its order, or waits out a penalty.
    pub(crate) fn give_back(&self, session: u64, penalized: Option<UnixMillis>) {
        let mut queue = self.queue.lock();
        let back = queue.held_by(session);
        if back.is_empty() {
            return;
        }
        let bytes = back.iter().map(FlowFile::size).sum();
        queue.given_back = (back.len() as u64, bytes);
        self.retry((0, 0));
        queue.is_unordered = true;
        self.add(back.len(), bytes);
        for flow_file in back.into_iter().rev() {
            match penalized {
                None => queue.ready.push_front(flow_file),
                Some(until) => queue
                    .penalized
                    .push(Reverse(Penalized { until, flow_file })),
            }
        }
    }

    /// Shows all that is durably here, in its order: taken, ready, written away, the tail, and
    /// what is penalized.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&mut dyn Iterator<Item = Waiting<'_>>)) {
        let queue = self.queue.lock();
        let penalized = queue
            .penalized
            .iter()
            .map(|Reverse(penalized)| &penalized.flow_file);
        let taken = queue.taken.iter().flat_map(|(_, held)| held);
        let before = taken.chain(&queue.ready).map(Waiting::FlowFile);
        let swapped = queue.swapped.iter().map(Waiting::Swapped);
        let behind = queue.tail.iter().chain(penalized).map(Waiting::FlowFile);
        visit(&mut before.chain(swapped).chain(behind));
    }

    /// Takes out for good what waits, but for what a session holds.
    pub(crate) fn discard(&self) -> Stock {
        let mut queue = self.queue.lock();
        let was_full = self.is_full();
        queue.release(UnixMillis(i64::MAX));
        let gone = Stock {
            head: std::mem::take(&mut queue.ready),
            swapped: std::mem::take(&mut queue.swapped),
            tail: std::mem::take(&mut queue.tail),
        };
        self.remove(gone.count() as usize, gone.bytes());
        drop(queue);
        if was_full {
            self.source.ring();
        }
        gone
    }

    /// Empties it when its flow is stopped; what sessions held comes first.
    pub(crate) fn drain(&self) -> Stock {
        let mut queue = self.queue.lock();
        queue.release(UnixMillis(i64::MAX));
        let taken = std::mem::take(&mut queue.taken);
        self.retry((0, 0));
        let mut head: VecDeque<FlowFile> = taken.into_iter().flat_map(|(_, held)| held).collect();
        head.append(&mut queue.ready);
        self.count.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        Stock {
            head,
            swapped: std::mem::take(&mut queue.swapped),
            tail: std::mem::take(&mut queue.tail),
        }
    }

    /// Begins with what was here when its flow was stopped.
    pub(crate) fn restore(&self, stock: Stock) {
        let mut queue = self.queue.lock();
        self.add(stock.count() as usize, stock.bytes());
        append(&mut queue.ready, stock.head);
        queue.swapped.extend(stock.swapped);
        append(&mut queue.tail, stock.tail);
        queue.is_unordered = true;
        drop(queue);
        self.destination.ring();
    }

    fn retry(&self, (count, bytes): (u64, u64)) {
        self.retried_count.store(count, Ordering::Relaxed);
        self.retried_bytes.store(bytes, Ordering::Relaxed);
    }

    fn add(&self, count: usize, bytes: u64) {
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, count: usize, bytes: u64) {
        self.count.fetch_sub(count as u64, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Queue {
    fn hold(&mut self, session: u64, mut flow_files: Vec<FlowFile>) {
        if flow_files.is_empty() {
            return;
        }
        match self.taken.iter_mut().find(|(holder, _)| *holder == session) {
            Some((_, held)) => held.append(&mut flow_files),
            None => self.taken.push((session, flow_files)),
        }
    }

    fn held_by(&mut self, session: u64) -> Vec<FlowFile> {
        let at = self.taken.iter().position(|(holder, _)| *holder == session);
        at.map(|at| self.taken.remove(at).1).unwrap_or_default()
    }

    /// What waited behind is ready when nothing stands before it.
    fn draw(&mut self) {
        if self.ready.is_empty() && self.swapped.is_empty() && !self.tail.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.tail);
            self.is_unordered = true;
        }
    }

    /// Puts what is ready into the order that the flow asks for.
    fn order(&mut self, prioritizers: &[Prioritizer]) {
        if self.is_unordered && !prioritizers.is_empty() {
            let ready = self.ready.make_contiguous();
            ready.sort_by(|a, b| prioritizer::compare(prioritizers, a, b));
        }
        self.is_unordered = false;
    }

    /// FlowFiles whose penalty is over become ready.
    fn release(&mut self, now: UnixMillis) {
        while self
            .penalized
            .peek()
            .is_some_and(|Reverse(next)| next.until <= now)
        {
            if let Some(Reverse(next)) = self.penalized.pop() {
                self.ready.push_back(next.flow_file);
                self.is_unordered = true;
            }
        }
    }
}

/// Millions are moved as a whole where nothing stands before them.
fn append(queue: &mut VecDeque<FlowFile>, more: VecDeque<FlowFile>) {
    if queue.is_empty() {
        *queue = more;
    } else {
        queue.extend(more);
    }
}

impl Penalized {
    fn key(&self) -> (UnixMillis, FlowFileId) {
        (self.until, self.flow_file.id)
    }
}

impl PartialEq for Penalized {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Penalized {}

impl PartialOrd for Penalized {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Penalized {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests;
