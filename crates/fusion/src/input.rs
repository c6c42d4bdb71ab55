//! The input of a durable statement: what it took from MQTT, on a journal of its own.
//!
//! Messages are numbered as they come. A statement computes with a message at once; the message is
//! then appended here, and only when it stands here does its publisher get its PUBACK or PUBREC, and
//! may a checkpoint that counts it be kept. Checkpoints hold the number of the next message, so a
//! restarted statement takes what stands here from there on and has had each message once. What lies
//! before its last checkpoint is given back, whole segments at a time.
//!
//! [`frames`] says what a frame holds. An opening goes on with the number behind the last frame, or
//! with the statement's own where that is greater: what a crash cut off was acknowledged to nobody.
//!
//! The log is bounded: at [`INPUT_BYTES_MAX`](crate::limits::INPUT_BYTES_MAX) publishers are held back until a checkpoint is kept.

pub mod frames;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use journal::{
    Disk, Done, Durability, Frame, FrameRef, Journal, JournalError, JournalOptions, OnDone,
    Position,
};
use mqtt::{Message, Settled};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::FusionError;
use crate::limits::{INPUT_MARK_BYTES, INPUT_TURN_BYTES, JOURNAL_SEGMENT_BYTES, RETRY_WAIT};
use frames::{MESSAGES, VERSION};

/// The messages that one statement took.
pub struct InputLog {
    journal: Journal,
    need: Durability,
    bytes_max: u64,
    segment_bytes: u64,
    state: Mutex<State>,
    reached: Arc<watch::Sender<Reached>>,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct InputOptions {
    /// What an acknowledgement promises.
    pub need: Durability,
    /// The largest message, bytes.
    pub message_bytes_max: u64,
    /// How much is held before publishers are held back, bytes.
    pub bytes_max: u64,
}

struct State {
    /// The next message's number.
    next: u64,
    /// A frame that the journal had no room for, and the number behind it.
    unsent: Option<(Vec<u8>, u64)>,
    /// Where some of the frames stand, by the numbers that they begin with.
    marks: VecDeque<(u64, Position)>,
    /// What lies before is in a checkpoint.
    low: Position,
    is_closed: bool,
}

/// How far the journal has come.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// Messages before this number are as durable as they have to be.
    before: u64,
    /// Nothing more will be.
    is_broken: bool,
}

impl InputLog {
    /// Opens the log in `dir`, which is made; `from` is the number of the message that the statement
    /// takes next. Gives where the frames stand that hold it and what follows. Blocks on the disk.
    ///
    /// # Errors
    /// The journal cannot be opened, or holds what this version does not know.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: InputOptions,
        from: u64,
    ) -> Result<(InputLog, Vec<Position>), FusionError> {
        let floor_bytes = 2 * (options.message_bytes_max + INPUT_TURN_BYTES as u64);
        let segment_bytes = JOURNAL_SEGMENT_BYTES.max(floor_bytes.next_power_of_two());
        let journal_options = JournalOptions {
            segment_bytes,
            preallocate_bytes: segment_bytes / 8,
            pending_bytes_max: segment_bytes,
            // What was given back is overwritten by what comes next.
            spares_max: 1,
            ..JournalOptions::default()
        };
        let (mut next, mut marks, mut wanted) = (from, VecDeque::new(), Vec::new());
        let mut is_known = true;
        let mut visit = |frame: FrameRef<'_>| {
            let Some((first, count)) = frames::numbers(&frame) else {
                is_known = false;
                return Ok(());
            };
            let end = first.saturating_add(count);
            mark(&mut marks, first, frame.position);
            if end > from {
                wanted.push(frame.position);
                next = next.max(end);
            }
            Ok(())
        };
        let (journal, recovery) = Journal::open(disk, dir, journal_options, &mut visit)
            .map_err(FusionError::journal("open an input beside"))?;
        if !is_known {
            let what = format!("beside it an input, in {},", dir.display());
            return Err(FusionError::Unreadable(what));
        }
        if let Some(cut) = &recovery.cut {
            tracing::info!(?cut, "a statement's input: an unfinished tail was cut");
        }
        let mut state = State {
            next,
            unsent: None,
            marks,
            low: journal.start(),
            is_closed: false,
        };
        state.pass(from, journal.end());
        let log = InputLog {
            need: options.need,
            bytes_max: options.bytes_max,
            segment_bytes,
            state: Mutex::new(state),
            reached: Arc::new(watch::Sender::new(Reached {
                before: next,
                is_broken: false,
            })),
            journal,
        };
        Ok((log, wanted))
    }

    /// What an acknowledgement promises.
    pub fn need(&self) -> Durability {
        self.need
    }

    /// The next message's number.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// Whether a failed write or sync has stopped the journal until it is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.journal.is_poisoned()
    }

    /// Whether it takes messages now.
    pub fn is_ready(&self) -> bool {
        let state = self.state.lock();
        !state.is_closed && state.unsent.is_none() && self.held_bytes(&state) < self.bytes_max
    }

    /// Whether it is time for a checkpoint, before publishers are held back.
    pub fn is_filling(&self) -> bool {
        let state = self.state.lock();
        self.held_bytes(&state) > self.bytes_max / 2
    }

    /// Takes messages, which are computed with already and have the numbers from [`InputLog::next`]
    /// on. Only a log that is ready may be given any.
    pub fn take<'m>(&self, messages: impl Iterator<Item = &'m Message<'m>>) {
        let mut state = self.state.lock();
        let (frame, count) = frames::encode(state.next, messages);
        if count == 0 {
            return;
        }
        state.next += count;
        let end = state.next;
        state.unsent = Some((frame, end));
        // What the journal does not take now waits; publishers are held back meanwhile.
        let _ = self.send(&mut state);
    }

    /// Waits until what did not fit into the journal is there.
    ///
    /// # Errors
    /// It never will be: the journal has failed, or is closed.
    pub async fn flush(&self) -> Result<(), JournalError> {
        loop {
            let (sent, bytes) = {
                let mut state = self.state.lock();
                let bytes = state.unsent.as_ref().map_or(0, |(frame, _)| frame.len());
                (self.send(&mut state), bytes as u64)
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(JournalError::Busy) => self.journal.room(bytes + FRAME_ROOM_BYTES).await,
                Err(JournalError::Full { source }) => {
                    tracing::warn!(error = %source, "the disk has no room for a statement's input");
                    tokio::time::sleep(RETRY_WAIT.1).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until messages before this number are as durable as they have to be.
    ///
    /// # Errors
    /// They never will be: the journal has failed, or is closed.
    pub async fn settle(&self, before: u64) -> Result<(), JournalError> {
        let mut reached = self.reached.subscribe();
        if reached.borrow().before >= before {
            return Ok(());
        }
        self.flush().await?;
        let done = reached
            .wait_for(|reached| reached.before >= before || reached.is_broken)
            .await;
        match done {
            Ok(reached) if reached.before >= before => Ok(()),
            _ => Err(self.journal.health().err().unwrap_or(JournalError::Closed)),
        }
    }

    /// What acknowledgements of all that was taken wait for; it never comes when the journal has
    /// failed.
    pub fn settled(self: &Arc<Self>) -> Option<Settled> {
        let before = self.next();
        if self.reached.borrow().before >= before {
            return None;
        }
        let log = self.clone();
        Some(Box::pin(async move {
            if log.settle(before).await.is_err() {
                std::future::pending::<()>().await;
            }
        }))
    }

    /// The payload of the frame at that position. Blocks on the disk.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read(&self, position: Position) -> Result<Bytes, JournalError> {
        self.journal.read_frame(position)
    }

    /// Gives back messages before this number, which a checkpoint holds that was kept.
    pub async fn release(self: &Arc<Self>, before: u64) {
        let low = {
            let mut state = self.state.lock();
            state.pass(before, self.journal.end());
            state.low
        };
        if low.0 - self.journal.start().0.min(low.0) < self.segment_bytes {
            return;
        }
        let log = self.clone();
        let reclaimed = tokio::task::spawn_blocking(move || log.journal.reclaim(low)).await;
        // What is left is given back later; closed, the next opening reads a little more.
        if let Ok(Err(error)) = reclaimed
            && !matches!(error, JournalError::Closed)
        {
            tracing::warn!(error = %base::report(&error), "cannot give back a statement's input");
        }
    }

    /// Writes what is pending and releases the folder; it takes nothing more. Blocks on the disk.
    pub fn close(&self) {
        let next = {
            let mut state = self.state.lock();
            state.is_closed = true;
            let _ = self.send(&mut state);
            match &state.unsent {
                Some(_) => None,
                None => Some(state.next),
            }
        };
        match self.journal.close() {
            Ok(()) => self.reached.send_modify(|reached| {
                reached.before = next.unwrap_or(reached.before);
                reached.is_broken = true;
            }),
            Err(error) => {
                tracing::warn!(error = %base::report(&error), "cannot close a statement's input");
                self.reached.send_modify(|reached| reached.is_broken = true);
            }
        }
    }

    fn held_bytes(&self, state: &State) -> u64 {
        self.journal.end().0.saturating_sub(state.low.0)
    }

    /// Gives the journal the frame that waits, if one does.
    fn send(&self, state: &mut State) -> Result<(), JournalError> {
        let Some((payload, end)) = &state.unsent else {
            return Ok(());
        };
        let frame = Frame {
            kind: MESSAGES,
            version: VERSION,
            parts: &[payload],
        };
        let fate = Arc::new(AtomicU8::new(0));
        let told = Told {
            reached: self.reached.clone(),
            before: *end,
            is_told: false,
            fate: fate.clone(),
        };
        let on_done: OnDone = Box::new(move |outcome| told.tell(outcome));
        let done = match self.need {
            Durability::Disk => Done {
                os: None,
                disk: Some(on_done),
            },
            Durability::Memory | Durability::Os => Done {
                os: Some(on_done),
                disk: None,
            },
        };
        match self.journal.append(&[frame], self.need, done) {
            Ok(placed) => {
                if fate.swap(PLACED, Ordering::AcqRel) == DROPPED {
                    self.reached.send_modify(|reached| reached.is_broken = true);
                }
                let first = frames::first(payload).unwrap_or(*end);
                mark(&mut state.marks, first, placed.first);
                state.unsent = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl State {
    /// Messages before this number are in a checkpoint; `end` is where the journal ends.
    fn pass(&mut self, before: u64, end: Position) {
        while self.marks.len() > 1 && self.marks[1].0 <= before {
            self.marks.pop_front();
        }
        self.low = match self.marks.front() {
            _ if before >= self.next && self.unsent.is_none() => end,
            Some((first, position)) if *first <= before => *position,
            _ => self.low,
        };
    }
}

/// Tells how far the journal has come, or that it comes no further: a callback is dropped unrun when
/// its append failed, and also when it was refused, which is no harm.
struct Told {
    reached: Arc<watch::Sender<Reached>>,
    before: u64,
    is_told: bool,
    fate: Arc<AtomicU8>,
}

impl Told {
    fn tell(mut self, outcome: Result<(), JournalError>) {
        self.is_told = outcome.is_ok();
        if self.is_told {
            let before = self.before;
            self.reached
                .send_modify(|reached| reached.before = reached.before.max(before));
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if !self.is_told && self.fate.swap(DROPPED, Ordering::AcqRel) == PLACED {
            self.reached.send_modify(|reached| reached.is_broken = true);
        }
    }
}

/// Notes where a frame stands, unless one near it is noted.
fn mark(marks: &mut VecDeque<(u64, Position)>, first: u64, position: Position) {
    let is_far = |(_, last): &(u64, Position)| position.0 - last.0 >= INPUT_MARK_BYTES;
    if marks.back().is_none_or(is_far) {
        marks.push_back((first, position));
    }
}

/// Room for a frame's own header.
const FRAME_ROOM_BYTES: u64 = 64;

/// What became of an append whose callback was not run yet: it stands in the journal's order.
const PLACED: u8 = 1;
/// Its callback was dropped.
const DROPPED: u8 = 2;

#[cfg(test)]
mod tests;
