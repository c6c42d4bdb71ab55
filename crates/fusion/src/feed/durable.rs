//! A durable statement's source: what it takes from MQTT stands in its input ([`crate::input`]) before
//! publishers are told, and after a restart it begins with what stands there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::report;
use journal::Position;
use mqtt::{Delivery, Message};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Feed, Placed, event_of};
use crate::input::InputLog;
use crate::input::frames::{self, Taken};
use crate::limits::{EVENTS_PER_TURN_MAX, INPUT_TURN_BYTES};

/// What a durable source has beside others.
#[derive(Default)]
pub(super) struct Durable {
    /// None before it was first opened; closed while nobody reads it.
    log: Mutex<Option<Arc<InputLog>>>,
    /// Whether the statement is being given what the input holds: publishers wait.
    is_repeating: AtomicBool,
}

impl Durable {
    pub(super) fn log(&self) -> Option<Arc<InputLog>> {
        self.log.lock().clone()
    }

    pub(super) fn holds_back(&self) -> bool {
        self.is_repeating() || !self.log().is_some_and(|log| log.is_ready())
    }

    fn is_repeating(&self) -> bool {
        self.is_repeating.load(Ordering::Acquire)
    }
}

impl Feed {
    /// The same for a durable statement; it takes nothing before [`Feed::open_input`].
    pub fn made_durable(mut self) -> Self {
        self.durable = Some(Durable::default());
        self
    }

    /// What its statement's messages are kept in; none where it is not durable, or was never opened.
    pub fn input(&self) -> Option<Arc<InputLog>> {
        self.durable.as_ref()?.log()
    }

    /// Takes messages into this log from now on, after [`Feed::repeat`].
    pub fn open_input(&self, log: Arc<InputLog>) {
        if let Some(durable) = &self.durable {
            durable.is_repeating.store(true, Ordering::Release);
            *durable.log.lock() = Some(log);
        }
    }

    /// Takes nothing more; what was taken is in the log. Blocks on the disk.
    pub fn close_input(&self) {
        let Some(log) = self.input() else { return };
        {
            // Nobody is in the middle of taking something.
            let _inner = self.inner.lock();
            log.close();
        }
        self.room.notify_waiters();
    }

    /// Gives the statements what these frames of the log hold and they have not had, then takes
    /// messages; ends at `stop`.
    pub async fn repeat(&self, frames: Vec<Position>, stop: CancellationToken) {
        let (Some(durable), Some(log)) = (&self.durable, self.input()) else {
            return;
        };
        for position in frames {
            let payload = match log.read(position) {
                Ok(payload) => payload,
                Err(error) if stop.is_cancelled() => {
                    tracing::debug!(error = %report(&error), "an input was closed while it was read");
                    return;
                }
                Err(error) => return self.give_up(&report(&error)),
            };
            let Some((first, messages)) = frames::decode(&payload) else {
                return self.give_up(&format!("a frame at {} is no input", position.0));
            };
            let mut at = 0;
            while at < messages.len() {
                let number = first.saturating_add(at as u64);
                let applied = self.apply_taken(number, &messages[at..]);
                at += applied;
                match applied {
                    0 => tokio::select! {
                        () = stop.cancelled() => return,
                        () = self.wait_for(|| self.is_full_of_rows()) => {}
                    },
                    _ => tokio::task::yield_now().await,
                }
            }
            if stop.is_cancelled() {
                return;
            }
        }
        durable.is_repeating.store(false, Ordering::Release);
        // Time goes by what comes, as with any source of MQTT.
        self.set_waiting(true, |_| true);
        self.room.notify_waiters();
    }

    /// Says of statements that join while the source is read that nothing more waits for them.
    pub fn set_repeated(&self) {
        let is_read = |durable: &Durable| !durable.is_repeating() && durable.log().is_some();
        if self.durable.as_ref().is_some_and(is_read) {
            self.set_waiting(true, |_| true);
        }
    }

    /// Waits until the journal of its input has taken what it had no room for.
    pub(super) async fn flush_input(&self) {
        // What fails for good holds publishers back; the next checkpoint says so.
        if let Some(log) = self.input()
            && log.flush().await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn deliver_durable(&self, durable: &Durable, batch: &[Message<'_>]) -> Delivery {
        let mut taken = 0;
        while taken < batch.len() {
            let mut inner = self.inner.lock();
            let Some(log) = durable.log().filter(|_| !durable.holds_back()) else {
                return Delivery::HoldBack { taken };
            };
            let turn = turn_of(&batch[taken..]);
            // One that met a bound takes nothing more until it is started again, and then goes on
            // with what it had not had by then.
            let mut lanes = inner.lanes.iter();
            let is_kept = lanes.any(|lane| !lane.state.lock().machine.is_suspended());
            let mut number = i64::try_from(log.next()).unwrap_or(i64::MAX);
            let applied = inner.apply_all(turn.iter().map(|message| -> Option<Placed<'_>> {
                let is_event = self.is_event(message);
                number += i64::from(is_event);
                let event = || event_of(message.topic, message.payload, message.received);
                is_event.then(|| (event(), Some(number - 1)))
            }));
            let is_event = |message: &&Message<'_>| self.is_event(message);
            if is_kept {
                log.take(turn[..applied].iter().filter(is_event));
            }
            if log.is_filling() {
                for lane in &inner.lanes {
                    lane.state.lock().is_pressed = true;
                    lane.wake.notify_one();
                }
            }
            taken += applied;
            if applied < turn.len() {
                return Delivery::HoldBack { taken };
            }
        }
        Delivery::Taken
    }

    /// Applies messages of the input, the first of that number; answers how many.
    fn apply_taken(&self, first: u64, messages: &[Taken<'_>]) -> usize {
        let mut inner = self.inner.lock();
        let turn = &messages[..messages.len().min(EVENTS_PER_TURN_MAX)];
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        inner.apply_all(turn.iter().zip(first..).map(|(message, number)| {
            let event = event_of(message.topic, message.payload, message.received);
            Some((event, Some(number)))
        }))
    }

    fn give_up(&self, why: &str) {
        let why = format!("cannot read the statement's input: {why}");
        tracing::error!(why, "a durable statement takes nothing");
        self.set_trouble(Some(&why));
    }
}

/// As many messages from the front as one frame holds.
fn turn_of<'b, 'm>(batch: &'b [Message<'m>]) -> &'b [Message<'m>] {
    let mut bytes = 0;
    let fits = |message: &&Message<'_>| {
        bytes += message.topic.len() + message.payload.len();
        bytes <= INPUT_TURN_BYTES
    };
    let count = batch.iter().take(EVENTS_PER_TURN_MAX).take_while(fits);
    &batch[..count.count().max(1)]
}
