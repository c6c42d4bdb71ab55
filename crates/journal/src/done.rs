//! How an append's outcome comes back: callbacks on the journal's threads, or a wait on top of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::carry;
use crate::error::JournalError;
use crate::options::Durability;

/// A callback that is told the outcome once.
pub type OnDone = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// What to run when an append has reached a level.
///
/// Callbacks run on the journal's threads and must not block: those of each level in journal order,
/// the `os` one of an append before its `disk` one. When an append fails its callbacks are dropped
/// unrun.
#[derive(Default)]
pub struct Done {
    /// Run when the bytes are with the operating system.
    pub os: Option<OnDone>,
    /// Run when the bytes are on the disk.
    pub disk: Option<OnDone>,
}

impl Done {
    /// Nothing to run.
    pub fn none() -> Self {
        Done::default()
    }

    /// A wait that resolves when the append has reached `need`; give the same need to the append.
    pub fn channel(need: Durability) -> (Done, DurableWait) {
        let slot = Arc::new(Slot::default());
        let wait = DurableWait { slot: slot.clone() };
        let sender = Sender { slot: Some(slot) };
        let on_done: OnDone = Box::new(move |outcome| sender.send(outcome));
        let done = match need {
            Durability::Memory => {
                on_done(Ok(()));
                Done::none()
            }
            Durability::Os => Done {
                os: Some(on_done),
                disk: None,
            },
            Durability::Disk => Done {
                os: None,
                disk: Some(on_done),
            },
        };
        (done, wait)
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done")
            .field("os", &self.os.is_some())
            .field("disk", &self.disk.is_some())
            .finish()
    }
}

/// Resolves with an append's outcome; an append that was refused resolves it with `Closed`.
#[derive(Debug)]
pub struct DurableWait {
    slot: Arc<Slot>,
}

impl DurableWait {
    /// Waits on this thread; not for a thread that runs futures.
    pub fn wait_blocking(self) -> Result<(), JournalError> {
        // What this thread has left to itself would not be done.
        carry::forgo();
        let mut state = self.slot.state.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            self.slot.ready.wait(&mut state);
        }
    }
}

impl Future for DurableWait {
    type Output = Result<(), JournalError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<SlotState>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    outcome: Option<Result<(), JournalError>>,
    waker: Option<Waker>,
}

impl Slot {
    fn fill(&self, outcome: Result<(), JournalError>) {
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        self.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Fills the slot; a sender dropped unsent says `Closed`, so that no wait hangs.
struct Sender {
    slot: Option<Arc<Slot>>,
}

impl Sender {
    fn send(mut self, outcome: Result<(), JournalError>) {
        if let Some(slot) = self.slot.take() {
            slot.fill(outcome);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.fill(Err(JournalError::Closed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_gets_the_outcome_from_another_thread() {
        let (done, wait) = Done::channel(Durability::Disk);
        let thread = std::thread::spawn(move || wait.wait_blocking());
        done.disk.expect("the need was disk")(Ok(()));
        assert!(thread.join().unwrap().is_ok());
    }

    #[test]
    fn a_dropped_completion_ends_the_wait() {
        let (done, wait) = Done::channel(Durability::Os);
        drop(done);
        assert!(matches!(wait.wait_blocking(), Err(JournalError::Closed)));
    }

    #[test]
    fn memory_is_reached_at_once() {
        let (done, wait) = Done::channel(Durability::Memory);
        assert!(done.os.is_none() && done.disk.is_none());
        assert!(wait.wait_blocking().is_ok());
    }
}
