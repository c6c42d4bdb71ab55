//! In-process subscribers: the direct call, and the backlog for what cannot be called directly.
//!
//! A message from a client's link is offered directly. Retained messages of a new subscription,
//! messages published from inside another sink, and messages that the process published while
//! the sink held back go through the backlog: owned copies, bounded, drained in order by a task
//! that lives only while there is something to drain.
//!
//! Of the retained messages in the backlog those are passed over that another one has replaced
//! meanwhile: it goes the direct way, and an old value never follows a new one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::{BACKLOG_BATCH, BACKLOG_BYTES_MAX, BACKLOG_MESSAGES_MAX};
use crate::message::{Delivery, Message, MessageSink, Settled};
use crate::retained::RetainedMessages;
use crate::stored::Stored;

/// One in-process subscription.
pub(crate) struct SinkSlot {
    pub(crate) id: u64,
    sink: Arc<dyn MessageSink>,
    /// Cancelled when the subscription is removed: whoever waits for the sink goes on.
    pub(crate) removed: CancellationToken,
    backlog: Mutex<Backlog>,
    retained: Arc<Mutex<RetainedMessages>>,
    /// Held while the backlog is looked through for what is still retained and given to the sink.
    replaying: Mutex<()>,
    /// Told when the backlog got shorter.
    pub(crate) room: Notify,
}

#[derive(Default)]
struct Backlog {
    messages: VecDeque<(Arc<Stored>, bool)>,
    bytes: usize,
    draining: bool,
}

impl SinkSlot {
    /// `retained`: those of the server, to which the sink's backlog is compared.
    pub(crate) fn new(
        id: u64,
        sink: Arc<dyn MessageSink>,
        retained: Arc<Mutex<RetainedMessages>>,
    ) -> Self {
        let removed = CancellationToken::new();
        SinkSlot {
            id,
            sink,
            removed,
            backlog: Mutex::default(),
            retained,
            replaying: Mutex::default(),
            room: Notify::new(),
        }
    }

    /// Returns when no message is on its way to the sink that a message retained before this call has
    /// replaced: the sink may have the new one now.
    pub(crate) fn let_replaced_pass(&self) {
        drop(self.replaying.lock());
    }

    /// Calls the sink with the batch; returns how many messages from its front are done with. A
    /// removed sink is done with all.
    pub(crate) fn offer(&self, batch: &[Message<'_>]) -> usize {
        if self.removed.is_cancelled() {
            return batch.len();
        }
        let _inside = Inside::enter();
        match self.sink.deliver(batch) {
            Delivery::Taken => batch.len(),
            // A sink that claims more than it was given has taken all.
            Delivery::HoldBack { taken } => taken.min(batch.len()),
        }
    }

    /// What acknowledgements of what the sink took have to wait for; it ends with the subscription.
    pub(crate) fn settled(&self) -> Option<Settled> {
        let settled = self.sink.settled()?;
        let removed = self.removed.clone();
        Some(Box::pin(async move {
            tokio::select! {
                () = settled => {}
                () = removed.cancelled() => {}
            }
        }))
    }

    /// Waits until the sink has room or is removed.
    pub(crate) async fn wait_for_room(&self) {
        tokio::select! {
            () = self.sink.room() => tokio::task::yield_now().await,
            () = self.removed.cancelled() => {}
        }
    }

    /// Whether messages have to queue here rather than be offered.
    pub(crate) fn must_queue(&self) -> bool {
        Inside::is_inside() || self.backlog.lock().draining
    }

    /// Whether the backlog takes another message.
    pub(crate) fn has_room(&self) -> bool {
        let backlog = self.backlog.lock();
        backlog.messages.len() < BACKLOG_MESSAGES_MAX && backlog.bytes < BACKLOG_BYTES_MAX
    }

    /// Queues messages and sees to it that they are drained. The bound is the caller's to check.
    pub(crate) fn queue(
        self: &Arc<Self>,
        runtime: &Handle,
        messages: impl Iterator<Item = (Arc<Stored>, bool)>,
    ) {
        let mut backlog = self.backlog.lock();
        for (message, retain) in messages {
            // Retained messages are shared with the store of them: they cost a pointer.
            backlog.bytes += if retain { 0 } else { message.bytes() };
            backlog.messages.push_back((message, retain));
        }
        if !backlog.draining && !backlog.messages.is_empty() {
            backlog.draining = true;
            runtime.spawn(self.clone().drain());
        }
    }

    async fn drain(self: Arc<Self>) {
        loop {
            let taken = self.drain_some();
            match taken {
                Some(true) => tokio::task::yield_now().await,
                Some(false) => self.wait_for_room().await,
                None => return,
            }
        }
    }

    /// Offers one batch; `None` when nothing is left, else whether all of it was taken.
    fn drain_some(&self) -> Option<bool> {
        let owned: Vec<(Arc<Stored>, bool)> = {
            let mut backlog = self.backlog.lock();
            if backlog.messages.is_empty() || self.removed.is_cancelled() {
                *backlog = Backlog::default();
                drop(backlog);
                self.room.notify_waiters();
                return None;
            }
            backlog
                .messages
                .iter()
                .take(BACKLOG_BATCH)
                .cloned()
                .collect()
        };
        let replaying = self.replaying.lock();
        // Those that go to the sink, with their places in the backlog.
        let mut places = Vec::with_capacity(owned.len());
        {
            let retained = self.retained.lock();
            let goes = |(message, is_retained): &(Arc<Stored>, bool)| {
                !is_retained || retained.is_current(message)
            };
            places.extend((0..owned.len()).filter(|at| goes(&owned[*at])));
        }
        let message = |at: &usize| owned[*at].0.message(owned[*at].1);
        let batch: Vec<Message<'_>> = places.iter().map(message).collect();
        let taken = match batch.is_empty() {
            true => 0,
            false => self.offer(&batch),
        };
        drop(replaying);
        // With those that were passed over before the first that was not taken.
        let done = places.get(taken).copied().unwrap_or(owned.len());
        let mut backlog = self.backlog.lock();
        for _ in 0..done {
            if let Some((message, retain)) = backlog.messages.pop_front()
                && !retain
            {
                backlog.bytes -= message.bytes();
            }
        }
        drop(backlog);
        if done > 0 {
            self.room.notify_waiters();
        }
        Some(done == owned.len())
    }
}

/// Marks the thread as being inside a sink, so that a publish made there does not call sinks.
struct Inside(bool);

impl Inside {
    fn enter() -> Inside {
        Inside(INSIDE.replace(true))
    }

    fn is_inside() -> bool {
        INSIDE.get()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}
