//! One partition of a group's statement: its machine, the rows that it has made, and the name under
//! which both are written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::UnixMillis;
use bytes::Bytes;
use metrics::counter;
use streams::{ConsumedRecord, FencedWriter, ProduceBatch, StreamsError, TopicName};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::log;
use crate::feed::Feed;
use crate::formats::Format;
use crate::lane::checkpoint::Checkpoint;
use crate::lane::{Lane, LaneState, Sequence};
use crate::limits::{CHECKPOINT_BYTES_PER_SECOND, GROUP_COMMIT_WAIT, GROUP_LOG_BYTES};
use crate::machine::Machine;
use crate::output::{Output, Row};
use crate::plan::Stage;
use crate::sinks::{Budget, formed};
use crate::writer::cut;

/// Where a share's rows and state go.
#[derive(Clone)]
pub(super) struct Places {
    /// The log of the group's state.
    pub(super) log: TopicName,
    /// The form of the statement, as the log holds it.
    pub(super) form: Arc<[u8]>,
    /// A partition of each topic that takes rows.
    pub(super) targets: Vec<(TopicName, i32)>,
}

/// One partition at work.
pub(super) struct Share {
    pub(super) partition: i32,
    pub(super) lane: Arc<Lane>,
    /// The lane that the statement is listed by.
    shell: Arc<Lane>,
    feed: Feed,
    writer: Box<dyn FencedWriter>,
    places: Places,
    /// Up to there records surely wait, as it was when the partition was taken.
    end: i64,
    /// When it last had records, or was taken.
    seen: Instant,
    committed: Instant,
    /// What the latest checkpoint held, bytes.
    size: usize,
    /// Bytes in the log since the older ones were deleted.
    logged: u64,
    /// Nothing at all was written for this statement yet.
    is_new: bool,
}

/// What one transaction holds.
struct Turn {
    output: Output,
    since: Instant,
    checkpoint: Checkpoint,
}

impl Share {
    /// A share that goes on from there.
    pub(super) fn new(
        shell: &Arc<Lane>,
        partition: i32,
        (machine, position): (Machine, i64),
        (writer, places): (Box<dyn FencedWriter>, Places),
        (end, is_new): (i64, bool),
    ) -> Self {
        let index = usize::try_from(partition).unwrap_or(0);
        let mut positions = vec![0; index + 1];
        positions[index] = position;
        let mut state = LaneState::new(machine, positions, false);
        let letters = shell.letters.as_ref();
        state.budget = Budget::new(letters.map_or(0, |letters| letters.per_second));
        let lane = Arc::new(Lane {
            definition: shell.definition.clone(),
            plan: shell.plan.clone(),
            targets: Vec::new(),
            changes: None,
            letters: shell.letters.clone(),
            tap: std::sync::OnceLock::new(),
            state: parking_lot::Mutex::new(state),
            wake: Notify::new(),
            idle: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            removed: CancellationToken::new(),
        });
        let feed = Feed::of(shell.definition.format.unwrap_or(Format::Json), None);
        feed.join([lane.clone()]);
        feed.set_waiting(false, |of| of == index);
        let now = Instant::now();
        Share {
            partition,
            lane,
            shell: shell.clone(),
            feed,
            writer,
            places,
            end,
            seen: now,
            committed: now,
            size: 0,
            logged: 0,
            is_new,
        }
    }

    /// The next offset to read.
    pub(super) fn position(&self) -> i64 {
        let index = usize::try_from(self.partition).unwrap_or(0);
        self.lane.state.lock().positions[index]
    }

    /// Applies records of its partition from the front; answers how many, which is less than all
    /// when its rows have to be written first.
    pub(super) fn apply(&mut self, records: &[ConsumedRecord]) -> usize {
        self.seen = Instant::now();
        let (generation, _) = self.feed.positions();
        // Nobody joins or leaves the feed.
        let applied = self.feed.apply_records(generation, records);
        applied.unwrap_or(records.len())
    }

    /// Says whether the source has nothing more waiting, as far as the last look at it told.
    pub(super) fn set_caught_up(&mut self, is_caught_up: bool) {
        let is_behind = self.position() < self.end && self.seen.elapsed() < BEHIND_WAIT;
        let index = usize::try_from(self.partition).unwrap_or(0);
        self.feed
            .set_waiting(is_caught_up && !is_behind, |of| of == index);
    }

    /// Does what is due by the wall clock.
    pub(super) fn tick(&self, now: UnixMillis) {
        self.lane.state.lock().tick(now);
    }

    /// How long until there is something to do without another event; none when there is nothing.
    pub(super) fn next(&self, now: UnixMillis, interval: Duration) -> Option<Duration> {
        let clock = {
            let state = self.lane.state.lock();
            match state.is_caught_up {
                true => state.machine.next_clock().map(|due| due.since(now)),
                false => None,
            }
        };
        [self.commit_in(interval), clock]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether a transaction is due.
    pub(super) fn is_due(&self, interval: Duration) -> bool {
        self.commit_in(interval) == Some(Duration::ZERO)
    }

    fn commit_in(&self, interval: Duration) -> Option<Duration> {
        let state = self.lane.state.lock();
        if state.machine.is_suspended() {
            return None;
        }
        if self.is_new || state.output.is_full() {
            return Some(Duration::ZERO);
        }
        let wait = match (state.output.is_empty(), state.is_dirty) {
            (true, false) => return None,
            (true, true) => interval,
            (false, _) => GROUP_COMMIT_WAIT,
        };
        // What a large state takes bounds how often it is written.
        let pause = Duration::from_secs_f64(self.size as f64 / CHECKPOINT_BYTES_PER_SECOND as f64);
        Some(wait.max(pause).saturating_sub(self.committed.elapsed()))
    }

    /// Writes rows, state and position in one transaction; answers from where on the log is needed
    /// when it is time to delete what lies before. After an error the share is of no more
    /// use: what is written may be more than it knows, or somebody else's.
    pub(super) async fn commit(&mut self) -> Result<Option<i64>, StreamsError> {
        let Some(turn) = self.turn() else {
            return Ok(None);
        };
        let Turn {
            output,
            since,
            checkpoint,
        } = turn;
        let (rows, events) = (output.rows.len() as u64, output.events());
        let definition = &self.lane.definition;
        let is_grouped = !matches!(self.lane.plan.stage, Stage::PerEvent { .. });
        let output = formed(definition.output, output, &definition.id, is_grouped);
        let bytes = Bytes::from(output.bytes);
        let Places { log, form, targets } = &self.places;
        let mut batches = Vec::new();
        for (topic, partition) in targets {
            batches.extend(cut(&bytes, &output.rows).map(|(records, _)| ProduceBatch {
                topic: topic.clone(),
                partition: *partition,
                records,
                sequence: None,
            }));
        }
        let state_from = batches.len();
        batches.extend(log::batches(log, self.partition, form, &checkpoint));
        let placed = self.writer.store(batches).await?;
        self.is_new = false;
        self.committed = Instant::now();
        self.size = checkpoint.bytes.len();
        self.logged += self.size as u64;
        if rows > 0 {
            let mut state = self.lane.state.lock();
            state.machine.delivered(rows, events);
            let now = Instant::now();
            state
                .meter
                .waited(now, now.saturating_duration_since(since), rows);
        }
        counter!("thalweg_fusion_rows_emitted_total").increment(rows);
        self.show(&bytes, &output.rows);
        let cuts = checkpoint.is_whole && self.logged > GROUP_LOG_BYTES;
        if cuts {
            self.logged = 0;
        }
        let at = placed.get(state_from).map(|placed| placed.base_offset);
        Ok(at.filter(|_| cuts))
    }

    /// Shows rows to those who look at the statement; nobody is waited for.
    fn show(&self, bytes: &Bytes, rows: &[Row]) {
        let Some(tap) = self.shell.tap.get() else {
            return;
        };
        let mut start = 0;
        tap.show(rows.iter().map(|row| {
            let text = bytes.slice(start..row.end);
            start = row.end;
            text
        }));
    }

    /// Takes what one transaction is to hold; none when nothing changed, or the statement is
    /// suspended: it starts over from what is written.
    fn turn(&self) -> Option<Turn> {
        let mut state = self.lane.state.lock();
        let output = std::mem::take(&mut state.output);
        if state.machine.is_suspended() {
            state.machine.given_up(output.events(), "suspended");
            return None;
        }
        if output.is_empty() && !state.is_dirty && !self.is_new {
            return None;
        }
        (state.routed, state.kept, state.is_dirty) = (0, None, false);
        let since = state.waiting_since.take().unwrap_or_else(Instant::now);
        let sent = (output.rows.len() as u64, output.events());
        let checkpoint = state.checkpoint(sent, Sequence::default(), &Output::default());
        Some(Turn {
            output,
            since,
            checkpoint,
        })
    }
}

/// So long after its partition was taken a share waits for the records that were there then.
const BEHIND_WAIT: Duration = Duration::from_secs(1);
