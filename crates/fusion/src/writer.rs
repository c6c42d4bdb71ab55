//! Carries one statement's rows to its sink and its state to the journal; one task per statement.
//!
//! For rows into Kafka and tables that come from a source that is read again or from windows, the order is: keep a
//! checkpoint that holds positions, state *and the rows* (synced), produce the rows under the
//! statement's producer id and the sequences that the checkpoint names, go on. After a crash the
//! same rows are produced again in the same batches, and the store answers those it has with their
//! old offsets. So each result is stored once, also one that the wall clock closed.
//!
//! All other rows are sent first and checkpoints follow, at most one per interval: after a crash
//! the events since the last checkpoint are computed again where the source can be read again
//! (rows over MQTT may then come twice), and are lost where it cannot (MQTT sources, unless the
//! statement is durable: see [`crate::input`]).

mod messages;
mod records;
mod tables;

pub use records::{cut, is_stored};

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, UnixMillis};
use bytes::Bytes;
use journal::Durability;
use metrics::counter;
use mqtt::{Bridges, Server};
use streams::EventStore;
use tokio_util::sync::CancellationToken;

use crate::chains::Chains;
use crate::error::FusionError;
use crate::feed::Feed;
use crate::lane::checkpoint::Checkpoint;
use crate::lane::{Lane, LaneState, Sequence, Target};
use crate::limits::{CHECKPOINT_BYTES_PER_SECOND, CLOSE_WAIT, RETRY_WAIT};
use crate::output::{Output, Row};
use crate::plan::Stage;
use crate::sinks::{Poster, Tables, formed};
use crate::store::StatementStore;

/// What a writer works with.
pub struct Writer {
    /// The statement.
    pub lane: Arc<Lane>,
    /// Its source.
    pub feed: Arc<Feed>,
    /// Where rows for internal streams go.
    pub chains: Arc<Chains>,
    /// The event store.
    pub store: Arc<dyn EventStore>,
    /// The MQTT server, where there is one.
    pub mqtt: Option<Server>,
    /// What leads to other brokers.
    pub bridges: Option<Arc<Bridges>>,
    /// The databases whose tables take rows.
    pub tables: Option<Arc<dyn Tables>>,
    /// What posts rows.
    pub poster: Arc<Poster>,
    /// Where checkpoints go.
    pub journal: Arc<StatementStore>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Checkpoints at most this often.
    pub checkpoint_interval: Duration,
    /// What sequenced batches continue with.
    pub sequence: Sequence,
    /// Ends the writer after what waits is sent and a last checkpoint is kept.
    pub closing: CancellationToken,
}

/// A checkpoint, and up to which number of its input it holds a durable statement's messages.
struct Due {
    checkpoint: Checkpoint,
    input: Option<u64>,
}

/// What one turn has to do.
struct Turn {
    output: Output,
    /// Since when its first row waits.
    since: Instant,
    checkpoint: Option<Due>,
}

/// Rows as they are sent.
struct Sent {
    bytes: Bytes,
    rows: Vec<Row>,
}

impl Sent {
    /// The rows' texts in order.
    fn texts(&self) -> impl Iterator<Item = Bytes> + '_ {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let text = self.bytes.slice(start..row.end);
            start = row.end;
            text
        })
    }
}

/// One target's part in sending rows.
#[derive(Clone, Copy)]
struct Part {
    /// Since when the first row waits.
    since: Instant,
    /// Whether the rows are delivered when this target has them.
    is_last: bool,
}

/// The statement was removed, or closing has no more time.
struct Stopped;

impl Writer {
    /// Works until the statement is removed or the engine closes. `outbox` are rows of the
    /// checkpoint that the statement was started from.
    pub async fn run(mut self, outbox: Output) {
        let lane = self.lane.clone();
        if !outbox.is_empty() {
            let _alone = lane.turn.lock().await;
            if self.send(outbox, Instant::now()).await.is_err() {
                return;
            }
            self.rest();
        }
        let mut checkpoint_due = self.clock.now() + self.checkpoint_interval;
        loop {
            let alone = lane.turn.lock().await;
            // Another form took its place meanwhile.
            if lane.removed.is_cancelled() {
                return;
            }
            match self.next_turn(checkpoint_due, false) {
                Ok(turn) => {
                    let kept = turn
                        .checkpoint
                        .as_ref()
                        .map(|due| due.checkpoint.bytes.len());
                    if self.work(turn, Durability::Os).await.is_err() {
                        return;
                    }
                    self.rest();
                    if let Some(bytes) = kept {
                        checkpoint_due = self.clock.now() + self.pause_after(bytes);
                    }
                }
                Err(alarm) => {
                    drop(alone);
                    // Rows may have gone without the writer: along a chain, or given up.
                    lane.idle.notify_waiters();
                    let pause = alarm.map(|alarm| alarm.since(self.clock.now()).max(TICK));
                    tokio::select! {
                        biased;
                        () = self.lane.removed.cancelled() => return,
                        () = self.closing.cancelled() => break,
                        () = self.lane.wake.notified() => {}
                        () = sleep(pause) => {}
                    }
                }
            }
            if self.lane.removed.is_cancelled() {
                return;
            }
            if self.closing.is_cancelled() {
                break;
            }
        }
        self.close().await;
    }

    /// The last turn: whatever is there, then a checkpoint on the disk.
    async fn close(&mut self) {
        if let Ok(turn) = self.next_turn(UnixMillis(i64::MIN), true) {
            let closed = tokio::time::timeout(CLOSE_WAIT, self.work(turn, Durability::Disk)).await;
            if !matches!(closed, Ok(Ok(()))) {
                let statement = &self.lane.definition.name;
                tracing::warn!(
                    statement,
                    "a statement was closed before its sink took its rows"
                );
            }
        }
    }

    /// Takes what there is to do, or says when to look again.
    fn next_turn(
        &self,
        checkpoint_due: UnixMillis,
        is_closing: bool,
    ) -> Result<Turn, Option<UnixMillis>> {
        let now = self.clock.now();
        let is_chained = self.lane.is_chained();
        // What waits was passed on to internal streams only when nobody is half-way through a chain.
        let gate = is_chained.then(|| self.chains.enter());
        if is_chained && !is_closing && !self.closing.is_cancelled() {
            self.insert_due(now);
        }
        let mut state = self.lane.state.lock();
        drop(gate);
        let at = Instant::now();
        if !is_closing && !is_chained && state.tick(now) {
            state.meter.spent(at, at.elapsed());
        }
        let LaneState {
            machine,
            output,
            is_caught_up,
            is_held,
            is_dirty,
            is_pressed,
            alarm,
            waiting_since,
            routed,
            kept,
            ..
        } = &mut *state;
        let clock_alarm = if *is_caught_up && !*is_held {
            machine.next_clock()
        } else {
            None
        };
        let is_due = *is_dirty && (now >= checkpoint_due || *is_pressed);
        if output.is_empty() && !is_due {
            let due = is_dirty.then_some(checkpoint_due);
            let next = [due, clock_alarm].into_iter().flatten().min();
            // Without a checkpoint to come, the next event has to set that alarm.
            *alarm = if *is_dirty { next } else { None };
            return Err(next);
        }
        let output = std::mem::take(output);
        (*routed, *kept) = (0, None);
        let since = waiting_since.take().unwrap_or(at);
        if machine.is_suspended() && self.lane.keeps_outbox() {
            // It starts over from its last checkpoint and will compute these rows again.
            *is_dirty = false;
            *alarm = None;
            machine.given_up(output.events(), "suspended");
            drop(state);
            self.make_room();
            return Err(None);
        }
        let keeps_outbox = self.lane.keeps_outbox() && !output.is_empty();
        // A suspended statement starts over from before what it could not hold.
        let is_wanted = (keeps_outbox || is_due) && !machine.is_suspended();
        let is_suspended = machine.is_suspended();
        let checkpoint = is_wanted.then(|| {
            let checkpoint = if keeps_outbox {
                state.checkpoint((0, 0), self.sequence, &output)
            } else {
                // It is written after the rows are sent, so it says that they were.
                let sent = (output.rows.len() as u64, output.events());
                state.checkpoint(sent, self.sequence, &Output::default())
            };
            let input = state.positions.first().copied();
            let input = input.filter(|_| self.lane.definition.is_durable());
            Due {
                checkpoint,
                input: input.and_then(|next| u64::try_from(next).ok()),
            }
        });
        if is_wanted || is_suspended {
            (state.is_dirty, state.is_pressed) = (false, false);
        }
        state.is_sending = !output.is_empty();
        Ok(Turn {
            output,
            since,
            checkpoint,
        })
    }

    /// Does what is due by the clock and passes its rows on to internal streams. The caller holds the
    /// gate.
    fn insert_due(&self, now: UnixMillis) {
        self.lane.state.lock().tick(now);
        self.chains.flow(std::slice::from_ref(&self.lane));
    }

    /// Says that the sinks have all rows that were taken.
    fn rest(&self) {
        self.lane.state.lock().is_sending = false;
        self.lane.idle.notify_waiters();
    }

    /// Says that what waited was taken.
    fn make_room(&self) {
        self.feed.made_room();
        if self.lane.is_chained() {
            self.chains.made_room();
        }
    }

    async fn work(&mut self, turn: Turn, durability: Durability) -> Result<(), Stopped> {
        self.make_room();
        let Turn {
            output,
            since,
            checkpoint,
        } = turn;
        if self.lane.keeps_outbox() && !output.is_empty() {
            // Without the checkpoint nothing may leave, however long that takes.
            if let Some(checkpoint) = &checkpoint {
                while !self.keep(checkpoint, Durability::Disk).await {
                    self.pause(RETRY_WAIT.1).await?;
                }
            }
            self.send(output, since).await?;
            let mut targets = self.lane.targets.iter();
            if targets.any(|target| !matches!(target, Target::Kafka { .. } | Target::Table(_))) {
                // Only topics of the store and tables know what they have: the next checkpoint says that the
                // others have the rows too.
                self.lane.state.lock().is_dirty = true;
            }
            return Ok(());
        }
        self.send(output, since).await?;
        if let Some(checkpoint) = &checkpoint
            && !self.keep(checkpoint, durability).await
        {
            self.lane.state.lock().lost_checkpoint();
        }
        Ok(())
    }

    /// Keeps a checkpoint; false, and said on the statement, when the journal did not take it.
    async fn keep(&self, due: &Due, durability: Durability) -> bool {
        match self.try_keep(due, durability).await {
            Ok(()) => true,
            Err(_) if self.lane.removed.is_cancelled() => false,
            Err(error) => {
                self.set_trouble(Some(format!(
                    "cannot keep the statement's state: {}",
                    base::report(&error)
                )));
                false
            }
        }
    }

    /// Keeps a checkpoint once all messages that it counts stand in the statement's input, of which it
    /// then gives back what lies before.
    async fn try_keep(&self, due: &Due, durability: Durability) -> Result<(), FusionError> {
        let Due { checkpoint, input } = due;
        let (id, removed) = (&self.lane.definition.id, &self.lane.removed);
        let keep = |durability| self.journal.checkpoint(id, checkpoint, durability, removed);
        let (Some(next), Some(log)) = (*input, self.feed.input()) else {
            return keep(durability).await;
        };
        tokio::select! {
            biased;
            () = removed.cancelled() => return Err(FusionError::Closed),
            settled = log.settle(next) => {
                settled.map_err(FusionError::journal("write an input beside"))?;
            }
        }
        // What it lets go has to be as durable as what was acknowledged.
        let durability = durability.max(log.need());
        keep(durability).await?;
        log.release(next).await;
        self.feed.made_room();
        Ok(())
    }

    /// Sends rows to every target, one after another; they are delivered when the last has them.
    async fn send(&mut self, output: Output, since: Instant) -> Result<(), Stopped> {
        if output.is_empty() {
            return Ok(());
        }
        let form = self.lane.definition.output;
        let is_grouped = !matches!(self.lane.plan.stage, Stage::PerEvent { .. });
        let Output { bytes, rows } = formed(form, output, &self.lane.definition.id, is_grouped);
        let output = Sent {
            bytes: Bytes::from(bytes),
            rows,
        };
        self.show(&output);
        let targets = self.lane.targets.len();
        let (before, mut after) = (self.sequence, self.sequence);
        for index in 0..targets {
            let part = Part {
                since,
                is_last: index + 1 == targets,
            };
            match self.lane.targets[index].clone() {
                Target::Mqtt(topic) => self.publish(&topic, &output, part).await?,
                Target::Bridge { bridge, topic } => {
                    self.send_over(&bridge, &topic, &output, part).await?;
                }
                Target::Http(url) => self.post(&url, &output, part).await?,
                // It had them before the next event was taken.
                Target::Stream(_) => self.had(&output, part),
                Target::Poll(poll) => {
                    poll.ask();
                    self.had(&output, part);
                }
                Target::Table(table) => {
                    self.recount(before);
                    self.write_rows(&table, &output, part).await?;
                    after = self.sequence;
                }
                Target::Kafka { topic, partition } => {
                    self.recount(before);
                    self.produce(&topic, partition, &output, part).await?;
                    after = self.sequence;
                }
            }
        }
        self.sequence = after;
        // What follows goes on after what every topic has.
        self.lane.state.lock().sequence = self.sequence;
        Ok(())
    }

    /// Every topic and table counts the same rows by the same sequences; those of a producer that was
    /// made anew go on.
    fn recount(&mut self, before: Sequence) {
        if self.sequence.producer_id == before.producer_id {
            self.sequence = before;
        }
    }

    /// Shows rows to those who look; nobody is waited for.
    fn show(&self, output: &Sent) {
        let Some(tap) = self.lane.tap.get() else {
            return;
        };
        tap.show(output.texts());
    }

    /// A target has the rows without having waited for anybody.
    fn had(&self, output: &Sent, part: Part) {
        let events = output.rows.iter().map(|row| row.events).sum();
        self.delivered((output.rows.len() as u64, events), 0, part);
    }

    /// So many rows of so many events were taken; the waiting time counts for `timed` rows.
    fn delivered(&self, (rows, events): (u64, u64), timed: u64, part: Part) {
        if !part.is_last {
            return;
        }
        let mut state = self.lane.state.lock();
        state.machine.delivered(rows, events);
        if timed > 0 {
            let now = Instant::now();
            let waited = now.saturating_duration_since(part.since);
            state.meter.waited(now, waited, timed);
        }
        drop(state);
        counter!("thalweg_fusion_rows_emitted_total").increment(rows);
    }

    /// Rows that a target never takes; the books say so when it is the last.
    fn give_up(&self, events: u64, why: &str, part: Part) {
        let mut state = self.lane.state.lock();
        let counted = if part.is_last { events } else { 0 };
        state.machine.given_up(counted, why);
        self.lane.letter_of_rows(&mut state, self.clock.now(), why);
        counter!("thalweg_fusion_events_total", "outcome" => "dropped").increment(counted);
        tracing::warn!(
            statement = self.lane.definition.name,
            why,
            "rows were given up"
        );
    }

    fn set_trouble(&self, trouble: Option<String>) {
        if let Some(why) = &trouble {
            tracing::warn!(
                statement = self.lane.definition.name,
                why,
                "a statement is stuck"
            );
        }
        self.lane.state.lock().trouble = trouble;
    }

    /// Waits before another try; ends with the statement or the engine.
    async fn pause(&self, wait: Duration) -> Result<(), Stopped> {
        tokio::select! {
            biased;
            () = self.lane.removed.cancelled() => Err(Stopped),
            () = self.closing.cancelled() => Err(Stopped),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    /// Waits for the sink; when the engine closes, for a while only.
    async fn wait_for(&self, room: impl Future<Output = ()>) -> Result<(), Stopped> {
        let closed = async {
            self.closing.cancelled().await;
            tokio::time::sleep(CLOSE_WAIT).await;
        };
        tokio::select! {
            biased;
            () = self.lane.removed.cancelled() => Err(Stopped),
            () = room => Ok(()),
            () = closed => Err(Stopped),
        }
    }

    /// The pause after a checkpoint of that size, which bounds what checkpoints write.
    fn pause_after(&self, bytes: usize) -> Duration {
        let seconds = bytes as f64 / CHECKPOINT_BYTES_PER_SECOND as f64;
        self.checkpoint_interval
            .max(Duration::from_secs_f64(seconds))
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// The shortest sleep, so that a clock that lags behind its timer does not spin.
const TICK: Duration = Duration::from_millis(1);
