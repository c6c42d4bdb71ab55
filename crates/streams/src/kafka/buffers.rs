//! The buffers that connections receive into and gather answers in.
//!
//! A connection takes one when its socket has something for it and gives it back before it waits:
//! idle connections hold none, and busy ones find memory whose pages are there already, where a
//! fresh megabyte costs hundreds of page faults. What is kept is bounded, and of that whatever
//! nobody took for a while is freed, by a task that ends when nothing is kept any more.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;

use super::limits::{BUFFERS_KEPT_BYTES, BUFFERS_REST, GATHERED_BYTES_MAX};

/// The buffers of all connections of a listener.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    receiving: Stack<BytesMut>,
    gathering: Stack<Vec<u8>>,
    bytes: usize,
    /// Whether the task that frees what is not used runs.
    is_watched: bool,
}

/// The one given last is taken first, so that those at the bottom are the ones not needed.
#[derive(Debug)]
struct Stack<T> {
    buffers: Vec<T>,
    /// The fewest that there were since somebody looked: so many were not needed.
    fewest: usize,
}

impl Buffers {
    /// A buffer to receive into, empty; it may have no room yet.
    pub(super) fn take_receiving(&self) -> BytesMut {
        let mut kept = self.kept.lock();
        let taken = kept.receiving.pop().unwrap_or_default();
        kept.bytes -= taken.capacity();
        taken
    }

    /// Takes back a buffer of `capacity` bytes. One that requests still refer to is left to them.
    pub(super) fn give_receiving(self: &Arc<Self>, mut buffer: BytesMut, capacity: usize) {
        buffer.clear();
        if capacity == 0 || !buffer.try_reclaim(capacity) {
            return;
        }
        let bytes = buffer.capacity();
        self.keep(bytes, |kept| kept.receiving.push(buffer));
    }

    /// A buffer of [`GATHERED_BYTES_MAX`] bytes, whatever they are.
    pub(super) fn take_gathering(&self) -> Vec<u8> {
        let mut kept = self.kept.lock();
        let Some(taken) = kept.gathering.pop() else {
            drop(kept);
            return vec![0; GATHERED_BYTES_MAX];
        };
        kept.bytes -= taken.len();
        taken
    }

    /// Takes back a buffer.
    pub(super) fn give_gathering(self: &Arc<Self>, buffer: Vec<u8>) {
        self.keep(buffer.len(), |kept| kept.gathering.push(buffer));
    }

    fn keep(self: &Arc<Self>, bytes: usize, push: impl FnOnce(&mut Kept)) {
        // A process that ends has no more use for it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut kept = self.kept.lock();
        if kept.bytes + bytes > BUFFERS_KEPT_BYTES {
            return;
        }
        kept.bytes += bytes;
        push(&mut kept);
        let was_watched = std::mem::replace(&mut kept.is_watched, true);
        drop(kept);
        if !was_watched {
            let buffers = Arc::clone(self);
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(BUFFERS_REST).await;
                    if buffers.free_unused() {
                        return;
                    }
                }
            });
        }
    }

    /// Frees what nobody took since the last call; true when nothing is kept any more.
    fn free_unused(&self) -> bool {
        let mut kept = self.kept.lock();
        let receiving = kept.receiving.unused();
        let gathering = kept.gathering.unused();
        let freed: usize = receiving.iter().map(BytesMut::capacity).sum();
        kept.bytes -= freed + gathering.iter().map(Vec::len).sum::<usize>();
        let is_empty = kept.receiving.buffers.is_empty() && kept.gathering.buffers.is_empty();
        kept.is_watched = !is_empty;
        is_empty
    }
}

impl<T> Stack<T> {
    fn push(&mut self, buffer: T) {
        self.buffers.push(buffer);
    }

    fn pop(&mut self) -> Option<T> {
        let popped = self.buffers.pop();
        self.fewest = self.fewest.min(self.buffers.len());
        popped
    }

    fn unused(&mut self) -> Vec<T> {
        let unused = self.buffers.drain(..self.fewest).collect();
        self.fewest = self.buffers.len();
        unused
    }
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Stack {
            buffers: Vec::new(),
            fewest: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_given_back_is_taken_again_and_freed_when_nobody_does() {
        let buffers = Arc::new(Buffers::default());
        buffers.give_receiving(BytesMut::with_capacity(1_000), 1_000);
        buffers.give_receiving(BytesMut::with_capacity(2_000), 2_000);
        buffers.give_gathering(vec![0; GATHERED_BYTES_MAX]);
        assert!(!buffers.free_unused());
        let taken = buffers.take_receiving();
        assert_eq!(taken.capacity(), 2_000);
        buffers.give_receiving(taken, 2_000);
        // The other two were not needed meanwhile.
        assert!(!buffers.free_unused());
        assert_eq!(buffers.kept.lock().bytes, 2_000);
        assert!(buffers.free_unused());
        assert_eq!(buffers.kept.lock().bytes, 0);
        assert_eq!(buffers.take_receiving().capacity(), 0);
    }

    #[tokio::test]
    async fn a_buffer_that_is_still_referred_to_is_not_kept() {
        let buffers = Arc::new(Buffers::default());
        let mut buffer = BytesMut::with_capacity(1_000);
        buffer.extend_from_slice(&[7; 600]);
        let frame = buffer.split().freeze();
        buffers.give_receiving(buffer, 1_000);
        assert_eq!(buffers.take_receiving().capacity(), 0);
        assert_eq!(frame, [7; 600][..]);
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        for _ in 0..3 {
            let half = BUFFERS_KEPT_BYTES / 2;
            buffers.give_receiving(BytesMut::with_capacity(half), half);
        }
        assert!(buffers.kept.lock().bytes <= BUFFERS_KEPT_BYTES);
    }
}
