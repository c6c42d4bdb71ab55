//! One running statement between its source and its sink: the machine, the rows that wait, and the
//! positions up to which its source was read.
//!
//! A checkpoint is, all integers little-endian: the next offsets (u32 count, i64 each), producer
//! id (i64, -1 for none), next sequence (u32), the machine (see [`Machine::encode`]), and the
//! outbox: rows that may or may not have reached the sink (see [`Output::encode`]).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use base::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::{Decoder, Encoder};
use crate::machine::Machine;
use crate::meter::Meter;
use crate::output::Output;
use crate::plan::{Plan, Source, Stage};
use crate::sinks::{Budget, Kind, Letter, Letters};
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
    /// A URL.
    Http(String),
    /// An internal stream.
    Stream(String),
}

/// A running statement.
pub struct Lane {
    /// What it is.
    pub definition: Definition,
    /// Its compiled form.
    pub plan: Arc<Plan>,
    /// Where its rows go: each row to every one.
    pub targets: Vec<Target>,
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
    /// Ends the writer without a last checkpoint.
    pub removed: CancellationToken,
}

/// What changes in a lane.
pub struct LaneState {
    /// The statement's state.
    pub machine: Machine,
    /// Rows that wait for the writer.
    pub output: Output,
    /// The next offset of each partition; empty for MQTT.
    pub positions: Vec<i64>,
    /// Whether the source has nothing more waiting; always for MQTT.
    pub is_caught_up: bool,
    /// Whether something changed since the last checkpoint.
    pub is_dirty: bool,
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
}

/// What sequenced batches continue with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The statement's own producer id; none where rows need none.
    pub producer_id: Option<i64>,
    /// The next row's sequence.
    pub next: i32,
}

/// What a checkpoint holds beside the machine.
pub struct Restored {
    /// The statement's state.
    pub machine: Machine,
    /// The next offset of each partition.
    pub positions: Vec<i64>,
    /// What sequenced batches continue with.
    pub sequence: Sequence,
    /// Rows that may or may not have reached the sink.
    pub outbox: Output,
}

impl Lane {
    /// Whether rows are kept before they are produced, so that they are stored once whatever
    /// crashes: for rows into Kafka that come from a replayed source or from state.
    pub fn keeps_outbox(&self) -> bool {
        keeps_outbox(&self.plan, &self.targets)
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

    /// Whether it writes or reads an internal stream.
    pub fn is_chained(&self) -> bool {
        let mut sources = self.plan.sources().into_iter();
        self.inserts() || sources.any(|source| matches!(source, Source::Stream(_)))
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
pub fn keeps_outbox(plan: &Plan, targets: &[Target]) -> bool {
    let is_replayed = plan.kafka_topics().next().is_some();
    let has_state = matches!(plan.stage, Stage::Windowed { .. });
    let has_kafka = targets
        .iter()
        .any(|target| matches!(target, Target::Kafka { .. }));
    has_kafka && (is_replayed || has_state)
}

impl LaneState {
    /// A lane that starts from there.
    pub fn new(machine: Machine, positions: Vec<i64>, is_caught_up: bool) -> Self {
        LaneState {
            machine,
            output: Output::default(),
            positions,
            is_caught_up,
            is_dirty: false,
            alarm: None,
            trouble: None,
            waiting_since: None,
            is_sending: false,
            sequence: Sequence::default(),
            meter: Meter::new(Instant::now()),
            budget: Budget::new(0),
            routed: 0,
        }
    }
}

/// Writes a checkpoint of the machine as it stands after so many more rows, which stand for so many
/// events, were delivered.
pub fn encode(
    machine: &Machine,
    sent: (u64, u64),
    positions: &[i64],
    sequence: Sequence,
    outbox: &Output,
) -> Vec<u8> {
    let mut out = Encoder::default();
    out.count(positions.len());
    for position in positions {
        out.i64(*position);
    }
    out.i64(sequence.producer_id.unwrap_or(-1));
    out.u32(sequence.next.cast_unsigned());
    machine.encode(sent, &mut out);
    outbox.encode(&mut out);
    out.0
}

/// Reads a checkpoint into a fresh machine of the same statement; `None` when it does not fit.
pub fn decode(machine: Machine, checkpoint: &[u8]) -> Option<Restored> {
    let mut from = Decoder(checkpoint);
    let mut positions = Vec::new();
    for _ in 0..from.count()? {
        positions.push(from.i64()?);
    }
    let producer_id = Some(from.i64()?).filter(|id| *id >= 0);
    let next = from.u32()?.cast_signed();
    let machine = machine.decode(&mut from)?;
    let outbox = Output::decode(&mut from)?;
    let sequence = Sequence { producer_id, next };
    from.0.is_empty().then_some(Restored {
        machine,
        positions,
        sequence,
        outbox,
    })
}
