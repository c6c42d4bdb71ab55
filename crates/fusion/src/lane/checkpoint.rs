//! Checkpoints of a lane.
//!
//! A whole one is: the mark [`SHORT`] (u32), the next offsets (count, i64 each), producer id (i64, -1 for none),
//! next sequence (u32), the machine (see [`Machine::encode`]), and the outbox: rows that may or may
//! not have reached the sink (see [`Output::encode`]). Integers behind the mark are as short as they
//! are; without the mark, as earlier versions wrote them, as wide as their type.
//!
//! Of a large state only what changed is written ([`Machine::encode_changes`] in the machine's
//! place) until the changes together are as large as the whole was; then the whole is written anew.

use crate::codec::{Decoder, Encoder};
use crate::lane::{LaneState, Sequence};
use crate::limits::{CHANGES_FROM_BYTES, LARGE_STATE_BYTES, MAPPED_BYTES};
use crate::machine::Machine;
use crate::output::Output;

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

/// What the journal holds of a lane, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    whole: usize,
    changes: usize,
}

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// False for the changes since the one before.
    pub is_whole: bool,
}

/// What was kept of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The latest whole checkpoint.
    pub whole: Vec<u8>,
    /// The changes since then, in order.
    pub changes: Vec<Vec<u8>>,
}

impl LaneState {
    /// Writes a checkpoint of the machine as it stands after so many more rows, which stand for so
    /// many events, were delivered: what changed where that is less.
    pub fn checkpoint(
        &mut self,
        sent: (u64, u64),
        sequence: Sequence,
        outbox: &Output,
    ) -> Checkpoint {
        let LaneState {
            machine,
            positions,
            noted,
            ..
        } = self;
        if let Some(noted) = noted
            && noted.changes < noted.whole
        {
            let mut out = Encoder::short(room(noted.whole));
            encode_head(positions, sequence, &mut out);
            machine.encode_changes(sent, &mut out);
            outbox.encode(&mut out);
            machine.note_changes(true);
            noted.changes += out.0.len();
            return Checkpoint {
                bytes: out.0,
                is_whole: false,
            };
        }
        let bytes = encode(machine, sent, positions, sequence, outbox);
        let is_large = bytes.len() >= CHANGES_FROM_BYTES;
        *noted = (machine.note_changes(is_large) && is_large).then_some(Noted {
            whole: bytes.len(),
            changes: 0,
        });
        Checkpoint {
            bytes,
            is_whole: true,
        }
    }

    /// A checkpoint was not kept: the next one has to be whole.
    pub fn lost_checkpoint(&mut self) {
        self.noted = None;
        self.machine.note_changes(false);
        self.is_dirty = true;
    }
}

/// Writes a whole checkpoint; see [`LaneState::checkpoint`].
pub fn encode(
    machine: &Machine,
    sent: (u64, u64),
    positions: &[i64],
    sequence: Sequence,
    outbox: &Output,
) -> Vec<u8> {
    let mut mark = room(machine.state_bytes());
    mark.extend_from_slice(&SHORT.to_le_bytes());
    let mut out = Encoder::short(mark);
    encode_head(positions, sequence, &mut out);
    machine.encode(sent, &mut out);
    outbox.encode(&mut out);
    out.0
}

/// Reads what was kept into a fresh machine of the same statement; `None` when it does not fit.
pub fn decode(machine: Machine, kept: &KeptState) -> Option<Restored> {
    let mut from = match kept.whole.strip_prefix(&SHORT.to_le_bytes()) {
        Some(short) => Decoder::short(short),
        None => Decoder::new(&kept.whole),
    };
    let mut restored = decode_part(&mut from, |from| machine.decode(from))?;
    for changes in &kept.changes {
        let machine = restored.machine;
        restored = decode_part(&mut Decoder::short(changes), |from| machine.apply(from))?;
    }
    Some(restored)
}

/// Room for the checkpoint of so large a state. A large one is made anew each second, and what it
/// leaves in the heap, all others' small pieces are then cut from: so it asks for enough that the
/// allocator maps pages for it alone, of which only those count that are written to.
fn room(state_bytes: usize) -> Vec<u8> {
    match state_bytes >= LARGE_STATE_BYTES {
        true => Vec::with_capacity(MAPPED_BYTES),
        false => Vec::new(),
    }
}

fn encode_head(positions: &[i64], sequence: Sequence, out: &mut Encoder) {
    out.count(positions.len());
    for position in positions {
        out.i64(*position);
    }
    out.i64(sequence.producer_id.unwrap_or(-1));
    out.u32(sequence.next.cast_unsigned());
}

fn decode_part(
    from: &mut Decoder<'_>,
    machine: impl FnOnce(&mut Decoder<'_>) -> Option<Machine>,
) -> Option<Restored> {
    let mut positions = Vec::new();
    for _ in 0..from.count()? {
        positions.push(from.i64()?);
    }
    let producer_id = Some(from.i64()?).filter(|id| *id >= 0);
    let next = from.u32()?.cast_signed();
    let machine = machine(from)?;
    let outbox = Output::decode(from)?;
    let sequence = Sequence { producer_id, next };
    from.0.is_empty().then_some(Restored {
        machine,
        positions,
        sequence,
        outbox,
    })
}

/// No count of offsets that an earlier version wrote first.
const SHORT: u32 = u32::MAX;
