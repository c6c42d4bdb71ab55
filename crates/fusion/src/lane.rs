//! One running statement between its source and its sink: the machine, the rows that wait, and the
//! positions up to which its source was read.
//!
//! A checkpoint is, all integers little-endian: the next offsets (u32 count, i64 each), producer
//! id (i64, -1 for none), next sequence (u32), the machine (see [`Machine::encode`]), and the
//! outbox: rows that may or may not have reached the sink (see [`Output::encode`]).

use std::sync::Arc;

use base::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::{Decoder, Encoder};
use crate::machine::Machine;
use crate::output::Output;
use crate::plan::{Plan, Source, Stage};
use crate::statement::Definition;

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
}

/// A running statement.
pub struct Lane {
    /// What it is.
    pub definition: Definition,
    /// Its compiled form.
    pub plan: Arc<Plan>,
    /// Where its rows go.
    pub target: Target,
    /// What changes.
    pub state: Mutex<LaneState>,
    /// Wakes the writer.
    pub wake: Notify,
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
}

/// What sequenced batches continue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        keeps_outbox(&self.plan, &self.target)
    }
}

/// See [`Lane::keeps_outbox`].
pub fn keeps_outbox(plan: &Plan, target: &Target) -> bool {
    let is_replayed = matches!(plan.source, Source::Kafka(_));
    let has_state = matches!(plan.stage, Stage::Windowed { .. });
    matches!(target, Target::Kafka { .. }) && (is_replayed || has_state)
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
