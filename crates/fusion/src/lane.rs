//! One running statement between its source and its sink: the machine, the rows that wait, and the
//! positions up to which its source was read.
//!
//! What is written of it stands in [`checkpoint`].

pub mod checkpoint;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use base::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::lane::checkpoint::Noted;
use crate::machine::Machine;
use crate::meter::Meter;
use crate::output::Output;
use crate::plan::{Backpressure, Plan, Source};
use crate::polls::Poll;
use crate::query::kept::Kept;
use crate::sinks::{Budget, Kind, Letter, Letters, Table};
use crate::statement::Definition;
use crate::tap::Tap;

/// Where a statement's rows go, resolved.
#[derive(Clone, Debug)]
pub enum Target {
    /// An MQTT topic.
    Mqtt(mqtt::TopicName),
    /// One partition of a Kafka topic.
    Kafka {
        /// The topic.
        topic: streams::TopicName,
        /// The partition.
        partition: i32,
    },
    /// A topic of another broker.
    Bridge {
        /// The bridge that leads there.
        bridge: String,
        /// The topic there.
        topic: mqtt::TopicName,
    },
    /// A URL.
    Http(String),
    /// A table of a SQL database.
    Table(Table),
    /// An internal stream.
    Stream(String),
    /// Servers that are asked for events.
    Poll(Arc<Poll>),
}

impl Target {
    /// The internal stream, where it is one.
    pub fn stream(&self) -> Option<&str> {
        match self {
            Target::Stream(name) => Some(name),
            _ => None,
        }
    }
}

/// A running statement.
pub struct Lane {
    /// What it is.
    pub definition: Definition,
    /// Its compiled form.
    pub plan: Arc<Plan>,
    /// Where its rows go: each row to every one.
    pub targets: Vec<Target>,
    /// The named window or table that it creates or changes.
    pub changes: Option<Arc<Kept>>,
    /// Where events go that could not be used.
    pub letters: Option<Arc<Letters>>,
    /// Who looks at the rows.
    pub tap: OnceLock<Arc<Tap>>,
    /// What changes.
    pub state: Mutex<LaneState>,
    /// Wakes the writer.
    pub wake: Notify,
    /// Told when the writer has nothing more to send.
    pub idle: Notify,
    /// Held by the writer from the moment it takes rows or state until they are where they go, and
    /// by whoever puts another form in the statement's place.
    pub turn: tokio::sync::Mutex<()>,
    /// Ends the writer without a last checkpoint.
    pub removed: CancellationToken,
}

/// What changes in a lane.
pub struct LaneState {
    /// The statement's state.
    pub machine: Machine,
    /// Rows that wait for the writer.
    pub output: Output,
    /// The next offset of each partition; for MQTT empty, or the number of the next message of a
    /// durable statement's input.
    pub positions: Vec<i64>,
    /// Whether the source has nothing more waiting; always for MQTT, once a durable statement has
    /// what its input holds.
    pub is_caught_up: bool,
    /// Whether its clock stands still: a statement to which its rows go is being replaced.
    pub is_held: bool,
    /// Whether something changed since the last checkpoint.
    pub is_dirty: bool,
    /// Whether a checkpoint is wanted before the next one is due.
    pub is_pressed: bool,
    /// When the writer will look by itself, once it knows that there is a checkpoint to come.
    pub alarm: Option<UnixMillis>,
    /// Why the source or the sink does not work at the moment.
    pub trouble: Option<String>,
    /// Since when rows wait for the writer.
    pub waiting_since: Option<Instant>,
    /// Whether the writer has rows that the sinks do not have yet.
    pub is_sending: bool,
    /// What sequenced batches continue with, as far as sinks have taken rows.
    pub sequence: Sequence,
    /// What the statement costs, and how long its rows wait.
    pub meter: Meter,
    /// How many dead letters it may write.
    pub budget: Budget,
    /// How many of the rows that wait internal streams have already.
    pub routed: usize,
    /// What happens when the sinks take nothing more.
    pub overflow: Backpressure,
    /// How many rows waited when the sinks took nothing more; those behind them are dropped.
    pub kept: Option<usize>,
    /// What the journal holds of it, where only changes are written.
    pub noted: Option<Noted>,
}

/// What sequenced batches continue with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The statement's own producer id; none where rows need none.
    pub producer_id: Option<i64>,
    /// The next row's sequence.
    pub next: i32,
}

impl Lane {
    /// Whether rows are kept before they are produced, so that they are stored once whatever
    /// crashes: for rows into Kafka and tables that come from a replayed source, or that tell many
    /// events together.
    pub fn keeps_outbox(&self) -> bool {
        keeps_outbox(&self.definition, &self.plan, &self.targets)
    }

    /// Whether several processes run it together.
    pub fn is_grouped(&self) -> bool {
        let policies = self.definition.policies.as_ref();
        policies.is_some_and(|policies| policies.group.is_some())
    }

    /// Whether rows go to internal streams.
    pub fn inserts(&self) -> bool {
        let mut targets = self.targets.iter();
        targets.any(|target| matches!(target, Target::Stream(_)))
    }

    /// Whether rows go to internal streams and nowhere else.
    pub fn inserts_only(&self) -> bool {
        let mut targets = self.targets.iter();
        targets.all(|target| matches!(target, Target::Stream(_)))
    }

    /// The servers that it asks for events, where there are such.
    pub fn poll(&self) -> Option<&Arc<Poll>> {
        self.targets.iter().find_map(|target| match target {
            Target::Poll(poll) => Some(poll),
            _ => None,
        })
    }

    /// Whether it writes or reads an internal stream, or has several sources: then each event goes
    /// through all statements before another source gives one.
    pub fn is_chained(&self) -> bool {
        let sources = self.plan.sources();
        let is_stream = |source: &&Source| matches!(source, Source::Stream(_));
        self.inserts() || sources.len() > 1 || sources.iter().any(is_stream)
    }

    /// Whether all rows that were computed are with the sinks.
    pub fn is_drained(&self) -> bool {
        let state = self.state.lock();
        state.output.is_empty() && !state.is_sending
    }

    /// Writes a dead letter about rows that were given up.
    pub fn letter_of_rows(&self, state: &mut LaneState, now: UnixMillis, why: &str) {
        let Some(letters) = &self.letters else {
            return;
        };
        if let Some(suppressed) = state.budget.take(Instant::now()) {
            let letter = Letter::of_sink(&self.definition, Kind::Sink, why, now, suppressed);
            if !letters.send(letter) {
                state.budget.lost();
            }
        }
    }
}

/// See [`Lane::keeps_outbox`].
pub fn keeps_outbox(definition: &Definition, plan: &Plan, targets: &[Target]) -> bool {
    let is_replayed = plan.kafka_topics().next().is_some() || definition.is_durable();
    let mut targets = targets.iter();
    // Of these it is known afterwards which rows they have.
    let counts = targets.any(|target| matches!(target, Target::Kafka { .. } | Target::Table(_)));
    counts && (is_replayed || plan.tells_together())
}

impl LaneState {
    /// A lane that starts from there.
    pub fn new(machine: Machine, positions: Vec<i64>, is_caught_up: bool) -> Self {
        LaneState {
            machine,
            output: Output::default(),
            positions,
            is_caught_up,
            is_held: false,
            is_dirty: false,
            is_pressed: false,
            alarm: None,
            trouble: None,
            waiting_since: None,
            is_sending: false,
            sequence: Sequence::default(),
            meter: Meter::new(Instant::now()),
            budget: Budget::new(0),
            routed: 0,
            overflow: Backpressure::Block,
            kept: None,
            noted: None,
        }
    }
}

impl LaneState {
    /// Does what is due by the wall clock, once the source has nothing more waiting; says whether
    /// there was anything.
    pub fn tick(&mut self, now: UnixMillis) -> bool {
        let is_due = self.machine.next_clock().is_some_and(|due| due <= now);
        let goes = self.is_caught_up && !self.is_held && is_due;
        if goes {
            self.machine.on_clock(now, &mut self.output);
            self.is_dirty = true;
        }
        goes
    }

    /// True when its sources have to be held back until the sinks have taken what waits.
    pub fn holds_back(&self) -> bool {
        self.overflow == Backpressure::Block && self.output.is_full()
    }

    /// Makes room in a full output where the statement drops rows rather than hold its source back;
    /// false where it holds it back. The oldest rows go an eighth at a time, so that a row does not
    /// cost a move of all others.
    #[cold]
    pub fn shed(&mut self) -> bool {
        let mut events = 0;
        match self.overflow {
            Backpressure::Block => return false,
            Backpressure::DropOldest => {
                while self.output.is_full() {
                    let count = self.output.rows.len().div_ceil(8);
                    events += self.output.give_up_first(count);
                }
            }
            Backpressure::DropNewest => {
                let kept = *self.kept.get_or_insert(self.output.rows.len());
                events += self.output.truncate(kept);
            }
        }
        if events > 0 {
            self.machine.shed(events);
        }
        true
    }
}
