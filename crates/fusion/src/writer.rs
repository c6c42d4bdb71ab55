//! Carries one statement's rows to its sink and its state to the journal; one task per statement.
//!
//! For rows into Kafka and tables that come from a Kafka source or from windows, the order is: keep a
//! checkpoint that holds positions, state *and the rows* (synced), produce the rows under the
//! statement's producer id and the sequences that the checkpoint names, go on. After a crash the
//! same rows are produced again in the same batches, and the store answers those it has with their
//! old offsets. So each result is stored once, also one that the wall clock closed.
//!
//! All other rows are sent first and checkpoints follow, at most one per interval: after a crash
//! the events since the last checkpoint are computed again where the source can be read again
//! (rows over MQTT may then come twice), and are lost where it cannot (MQTT sources).

mod tables;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, UnixMillis};
use bytes::Bytes;
use journal::Durability;
use metrics::counter;
use mqtt::{BridgeError, Bridges, Message, MqttError, Qos, Server};
use streams::{EventStore, ProduceBatch, ProducerSequence, Record, StreamsError};
use tokio_util::sync::CancellationToken;

use crate::chains::Chains;
use crate::feed::Feed;
use crate::lane::checkpoint::Checkpoint;
use crate::lane::{Lane, LaneState, Sequence, Target};
use crate::limits::{
    CHECKPOINT_BYTES_PER_SECOND, CLOSE_WAIT, PRODUCE_BYTES_MAX, PRODUCE_ROWS_MAX, RETRY_WAIT,
};
use crate::output::{Output, Row};
use crate::plan::Stage;
use crate::sinks::{Posted, Poster, Tables, formed};
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

/// What one turn has to do.
struct Turn {
    output: Output,
    /// Since when its first row waits.
    since: Instant,
    checkpoint: Option<Checkpoint>,
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
        if !outbox.is_empty() {
            if self.send(outbox, Instant::now()).await.is_err() {
                return;
            }
            self.rest();
        }
        let mut checkpoint_due = self.clock.now() + self.checkpoint_interval;
        loop {
            match self.next_turn(checkpoint_due, false) {
                Ok(turn) => {
                    let kept = turn.checkpoint.as_ref().map(|kept| kept.bytes.len());
                    if self.work(turn, Durability::Os).await.is_err() {
                        return;
                    }
                    self.rest();
                    if let Some(bytes) = kept {
                        checkpoint_due = self.clock.now() + self.pause_after(bytes);
                    }
                }
                Err(alarm) => {
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
        if is_chained && !is_closing {
            self.insert_due(now);
        }
        let mut state = self.lane.state.lock();
        let LaneState {
            machine,
            output,
            is_caught_up,
            is_dirty,
            alarm,
            waiting_since,
            meter,
            routed,
            kept,
            ..
        } = &mut *state;
        let at = Instant::now();
        let may_tick = *is_caught_up && !is_closing && !is_chained;
        if may_tick && machine.next_clock().is_some_and(|due| due <= now) {
            machine.on_clock(now, output);
            meter.spent(at, at.elapsed());
        }
        let clock_alarm = if *is_caught_up {
            machine.next_clock()
        } else {
            None
        };
        let is_due = *is_dirty && now >= checkpoint_due;
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
            return Err(None);
        }
        let keeps_outbox = self.lane.keeps_outbox() && !output.is_empty();
        // A suspended statement starts over from before what it could not hold.
        let is_wanted = (keeps_outbox || is_due) && !machine.is_suspended();
        let is_suspended = machine.is_suspended();
        let checkpoint = is_wanted.then(|| {
            if keeps_outbox {
                return state.checkpoint((0, 0), self.sequence, &output);
            }
            // It is written after the rows are sent, so it says that they were.
            let sent = (output.rows.len() as u64, output.events());
            state.checkpoint(sent, self.sequence, &Output::default())
        });
        if is_wanted || is_suspended {
            state.is_dirty = false;
        }
        state.is_sending = !output.is_empty();
        Ok(Turn {
            output,
            since,
            checkpoint,
        })
    }

    /// Does what is due by the clock and passes its rows on to internal streams.
    fn insert_due(&self, now: UnixMillis) {
        let _gate = self.chains.enter();
        {
            let mut state = self.lane.state.lock();
            let LaneState {
                machine,
                output,
                is_caught_up,
                ..
            } = &mut *state;
            if *is_caught_up && machine.next_clock().is_some_and(|due| due <= now) {
                machine.on_clock(now, output);
            }
        }
        self.chains.flow(std::slice::from_ref(&self.lane));
    }

    /// Says that the sinks have all rows that were taken.
    fn rest(&self) {
        self.lane.state.lock().is_sending = false;
        self.lane.idle.notify_waiters();
    }

    async fn work(&mut self, turn: Turn, durability: Durability) -> Result<(), Stopped> {
        self.feed.made_room();
        if self.lane.is_chained() {
            self.chains.made_room();
        }
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
    async fn keep(&self, checkpoint: &Checkpoint, durability: Durability) -> bool {
        let kept = self
            .journal
            .checkpoint(&self.lane.definition.id, checkpoint, durability)
            .await;
        match kept {
            Ok(()) => true,
            Err(error) => {
                self.set_trouble(Some(format!(
                    "cannot keep the statement's state: {}",
                    base::report(&error)
                )));
                false
            }
        }
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
                Target::Stream(_) => {
                    let events = output.rows.iter().map(|row| row.events).sum();
                    self.delivered((output.rows.len() as u64, events), 0, part);
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

    async fn post(&self, url: &str, output: &Sent, part: Part) -> Result<(), Stopped> {
        let mut had_trouble = false;
        for (row, text) in output.rows.iter().zip(output.texts()) {
            let mut wait = RETRY_WAIT.0;
            loop {
                match self.poster.post(url, text.clone()).await {
                    Posted::Taken => {
                        self.delivered((1, row.events), 1, part);
                        break;
                    }
                    Posted::Never(why) => {
                        self.give_up(row.events, &format!("cannot post a row: {why}"), part);
                        break;
                    }
                    Posted::Later(why) => {
                        had_trouble = true;
                        self.set_trouble(Some(format!("cannot post to {url}: {why}")));
                        self.pause(wait).await?;
                        wait = (wait * 2).min(RETRY_WAIT.1);
                    }
                }
            }
        }
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }

    async fn publish(
        &self,
        topic: &mqtt::TopicName,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        let Some(server) = &self.mqtt else {
            return Err(Stopped);
        };
        let mut had_trouble = false;
        for (index, text) in output.texts().enumerate() {
            let events = output.rows[index].events;
            let timed = match index % TIMED_ROWS {
                0 => TIMED_ROWS.min(output.rows.len() - index) as u64,
                _ => 0,
            };
            loop {
                match server.publish(topic, &text, Qos::AtLeastOnce, false) {
                    Ok(()) => {
                        self.delivered((1, events), timed, part);
                        break;
                    }
                    Err(MqttError::Busy) => self.wait_for(server.room(topic)).await?,
                    Err(error @ MqttError::TooLarge { .. }) => {
                        self.give_up(events, &format!("cannot publish a row: {error}"), part);
                        break;
                    }
                    Err(error) => {
                        had_trouble = true;
                        self.set_trouble(Some(format!(
                            "cannot publish to mqtt.\"{topic}\": {}",
                            base::report(&error)
                        )));
                        self.pause(RETRY_WAIT.1).await?;
                    }
                }
            }
        }
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }

    /// Has rows wait for another broker; they are delivered when the bridge's journal has them.
    async fn send_over(
        &self,
        bridge: &str,
        topic: &mqtt::TopicName,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        let Some(bridges) = &self.bridges else {
            return Err(Stopped);
        };
        let (mut last, mut had_trouble) = (None, false);
        for text in output.texts() {
            let message = Message {
                topic: topic.as_str(),
                payload: &text,
                qos: Qos::AtLeastOnce,
                received: self.clock.now(),
                ..Message::default()
            };
            loop {
                match bridges.send(bridge, &message) {
                    Ok(wait) => {
                        last = wait.or(last);
                        break;
                    }
                    Err(BridgeError::Busy(_)) => self.wait_for(bridges.room(bridge)).await?,
                    Err(error) => {
                        had_trouble = true;
                        let why = base::report(&error);
                        self.set_trouble(Some(format!("cannot send over {bridge}: {why}")));
                        self.pause(RETRY_WAIT.1).await?;
                    }
                }
            }
        }
        if let Some(wait) = last
            && let Err(error) = wait.await
        {
            // They went into its memory; only a crash now loses them.
            tracing::error!(bridge, error = %base::report(&error), "a bridge's journal failed");
        }
        let (rows, events) = (
            output.rows.len() as u64,
            output.rows.iter().map(|row| row.events),
        );
        self.delivered((rows, events.sum()), rows, part);
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }

    async fn produce(
        &mut self,
        topic: &streams::TopicName,
        partition: i32,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        let Sent { bytes, rows } = output;
        let mut first = 0;
        let mut start = 0;
        while first < rows.len() {
            // The same rows are always cut in the same batches: a repeated one is recognized.
            let mut last = first + 1;
            while last < rows.len()
                && last - first < PRODUCE_ROWS_MAX
                && rows[last].end - start <= PRODUCE_BYTES_MAX
            {
                last += 1;
            }
            let batch = &rows[first..last];
            let mut from = start;
            let mut records = Vec::with_capacity(batch.len());
            for row in batch {
                records.push(Record {
                    key: row.key.clone(),
                    value: Some(bytes.slice(from..row.end)),
                    headers: Vec::new(),
                    timestamp: Some(row.timestamp),
                });
                from = row.end;
            }
            let events = batch.iter().map(|row| row.events).sum();
            self.produce_batch(topic, partition, (records, events), part)
                .await?;
            start = from;
            first = last;
        }
        Ok(())
    }

    async fn produce_batch(
        &mut self,
        topic: &streams::TopicName,
        partition: i32,
        (records, events): (Vec<Record>, u64),
        part: Part,
    ) -> Result<(), Stopped> {
        let count = records.len();
        let mut wait = RETRY_WAIT.0;
        let mut had_trouble = false;
        loop {
            let sequence = self
                .sequence
                .producer_id
                .map(|producer_id| ProducerSequence {
                    producer_id,
                    producer_epoch: 0,
                    first_sequence: self.sequence.next,
                });
            let batch = ProduceBatch {
                topic: topic.clone(),
                partition,
                records: records.clone(),
                sequence,
            };
            let error = match self.store.produce(batch).await {
                Ok(_) => break,
                Err(error) => error,
            };
            match &error {
                // A later batch is stored already, so this one is too: the store remembers only
                // the last few by name.
                StreamsError::OutOfOrderSequence { expected, .. }
                    if is_stored(self.sequence.next, count, *expected) =>
                {
                    break;
                }
                // The topic was made anew, or forgot its producers.
                StreamsError::OutOfOrderSequence { .. }
                | StreamsError::UnknownProducerId(_)
                | StreamsError::InvalidProducerEpoch { .. } => {
                    if let Ok(id) = self.store.producer_id().await {
                        self.sequence = Sequence {
                            producer_id: Some(id),
                            next: 0,
                        };
                    }
                }
                StreamsError::MessageTooLarge { .. } => {
                    self.give_up(
                        events,
                        &format!("cannot produce {count} rows: {error}"),
                        part,
                    );
                    return Ok(());
                }
                StreamsError::UnknownTopic(_) => {
                    // Its own error, if there is one, is said at the next try.
                    let _ = self.store.topic_or_create(topic).await;
                }
                _ => {}
            }
            had_trouble = true;
            self.set_trouble(Some(format!(
                "cannot produce to kafka.\"{topic}\": {}",
                base::report(&error)
            )));
            self.pause(wait).await?;
            wait = (wait * 2).min(RETRY_WAIT.1);
        }
        self.sequence.next = next_sequence(self.sequence.next, count);
        self.delivered((count as u64, events), count as u64, part);
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
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

/// Of so many messages one asks the clock how long it waited.
const TIMED_ROWS: usize = 64;

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// The sequence after `count` rows; after the greatest comes zero, as in Kafka.
fn next_sequence(first: i32, count: usize) -> i32 {
    let next = (i64::from(first) + count as i64) % SEQUENCES;
    i32::try_from(next).unwrap_or(0)
}

/// True when the store that expects `expected` next has the `count` rows from `first` on.
pub fn is_stored(first: i32, count: usize, expected: i32) -> bool {
    let ahead = (i64::from(expected) - i64::from(first)).rem_euclid(SEQUENCES);
    ahead >= count as i64 && ahead < SEQUENCES / 2
}

/// How many sequences there are: 0 to 2^31 - 1.
const SEQUENCES: i64 = 1 << 31;

/// The shortest sleep, so that a clock that lags behind its timer does not spin.
const TICK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(next_sequence(i32::MAX, 1), 0);
        assert_eq!(next_sequence(i32::MAX - 1, 5), 3);
    }

    #[test]
    fn only_what_lies_before_the_expected_sequence_is_stored() {
        assert!(is_stored(0, 10, 10));
        assert!(is_stored(0, 10, 500));
        assert!(is_stored(i32::MAX, 2, 1));
        assert!(!is_stored(0, 10, 5));
        assert!(!is_stored(100, 10, 0));
    }
}
