//! A queue of messages from the network to a processor, bounded by count and bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::limits::NET_QUEUE_BYTES_MAX;
use crate::engine::Waker;

/// A message that came.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    pub(crate) sender: SocketAddr,
    /// Whether its end was missing or too far.
    pub(crate) is_partial: bool,
    _room: OwnedSemaphorePermit,
}

/// The end that messages go into.
#[derive(Clone, Debug)]
pub(crate) struct Inlet {
    queue: mpsc::Sender<Received>,
    room: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
    waker: Waker,
}

/// The end that they come out of.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: mpsc::Receiver<Received>,
    dropped: Arc<AtomicU64>,
}

/// A queue for so many messages; for 0, as many as the bound on bytes lets in.
pub(crate) fn queue(count_max: usize, waker: Waker) -> (Inlet, Outlet) {
    let count_max = match count_max {
        0 => COUNT_MAX,
        count => count.min(COUNT_MAX),
    };
    let (sender, receiver) = mpsc::channel(count_max);
    let dropped = Arc::<AtomicU64>::default();
    let inlet = Inlet {
        queue: sender,
        room: Arc::new(Semaphore::new(NET_QUEUE_BYTES_MAX)),
        dropped: Arc::clone(&dropped),
        waker,
    };
    let outlet = Outlet {
        queue: receiver,
        dropped,
    };
    (inlet, outlet)
}

impl Inlet {
    /// Waits for room; false when nobody takes messages any more.
    pub(crate) async fn put(&self, bytes: Bytes, sender: SocketAddr, is_partial: bool) -> bool {
        let room = Arc::clone(&self.room)
            .acquire_many_owned(size(&bytes))
            .await;
        let Ok(room) = room else {
            return false;
        };
        let received = Received {
            bytes,
            sender,
            is_partial,
            _room: room,
        };
        let is_put = self.queue.send(received).await.is_ok();
        self.waker.wake();
        is_put
    }

    /// Puts a message in if there is room; it is dropped and counted otherwise.
    pub(crate) fn put_or_drop(&self, bytes: Bytes, sender: SocketAddr) {
        let is_first = self.try_put(bytes, sender).is_none()
            && self.dropped.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first {
            self.waker.wake();
        }
    }

    fn try_put(&self, bytes: Bytes, sender: SocketAddr) -> Option<()> {
        let room = Arc::clone(&self.room)
            .try_acquire_many_owned(size(&bytes))
            .ok()?;
        let received = Received {
            bytes,
            sender,
            is_partial: false,
            _room: room,
        };
        self.queue.try_send(received).ok()?;
        self.waker.wake();
        Some(())
    }
}

impl Outlet {
    /// What waits, up to so many messages and bytes (one message at least).
    pub(crate) fn take(&mut self, count_max: usize, bytes_max: usize) -> Vec<Received> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < count_max && bytes < bytes_max {
            let Ok(received) = self.queue.try_recv() else {
                break;
            };
            bytes += received.bytes.len();
            taken.push(received);
        }
        taken
    }

    /// Messages dropped since the last look.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// What a message counts in the bound, its bookkeeping with it.
fn size(bytes: &Bytes) -> u32 {
    let size = bytes
        .len()
        .saturating_add(MESSAGE_OVERHEAD_BYTES)
        .min(NET_QUEUE_BYTES_MAX);
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// What an empty message costs.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// No more messages than this can wait, whatever they are.
const COUNT_MAX: usize = NET_QUEUE_BYTES_MAX / MESSAGE_OVERHEAD_BYTES;
