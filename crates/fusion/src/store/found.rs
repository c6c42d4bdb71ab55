//! What the journal of statements holds, frame by frame.

use std::collections::BTreeMap;

use journal::{FrameRef, Journal, Position};
use serde::{Deserialize, Serialize};

use super::{ADDED, CHANGES, Live, REMOVED, VERSION, WHOLE};
use crate::codec::Decoder;
use crate::error::FusionError;
use crate::lane::checkpoint::KeptState;
use crate::statement::Definition;

/// A definition as a frame holds it.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    /// The statement.
    #[serde(flatten)]
    pub definition: Definition,
    /// See [`Live::checkpoint_after`].
    #[serde(default)]
    pub checkpoint_after: u64,
}

/// What recovery sees, statement by statement.
#[derive(Default)]
pub struct Found {
    /// By their ids.
    pub statements: BTreeMap<String, FoundStatement>,
    /// What this version does not know, if anything.
    pub unreadable: Option<String>,
}

/// What recovery finds of one statement.
#[derive(Default)]
pub struct FoundStatement {
    /// Its latest form and where that stands, with its size.
    pub definition: Option<(Kept, (Position, u64))>,
    /// Its checkpoints.
    pub checkpoints: Checkpoints,
}

/// The checkpoints of one statement by their numbers, as far as they were found.
#[derive(Default)]
pub struct Checkpoints(BTreeMap<u64, Parts>);

/// The parts of one checkpoint.
struct Parts {
    kind: u8,
    positions: Vec<Option<Position>>,
}

impl Checkpoints {
    /// Reads the latest whole checkpoint behind the entry's first number and the changes that follow
    /// it; the entry then stands behind them.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read(
        self,
        journal: &Journal,
        entry: &mut Live,
    ) -> Result<Option<KeptState>, FusionError> {
        let Checkpoints(mut found) = self;
        let whole = found
            .iter()
            .rev()
            .find(|(_, parts)| parts.kind == WHOLE && parts.are_all())
            .map(|(number, _)| *number)
            .filter(|number| *number > entry.number);
        let Some(whole) = whole else {
            return Ok(None);
        };
        let mut kept = KeptState::default();
        for number in whole.. {
            let follows = |parts: &Parts| number == whole || parts.kind == CHANGES;
            let parts = found.remove(&number);
            let Some(parts) = parts.filter(|parts| parts.are_all() && follows(parts)) else {
                break;
            };
            let bytes = parts.read(journal)?;
            entry.number = number;
            entry.bytes += bytes.len() as u64;
            let positions = parts.positions.into_iter().flatten();
            entry
                .parts
                .extend(positions.map(|position| (position, parts.kind)));
            match number == whole {
                true => kept.whole = bytes,
                false => kept.changes.push(bytes),
            }
        }
        Ok(Some(kept))
    }
}

impl Parts {
    fn are_all(&self) -> bool {
        !self.positions.is_empty() && self.positions.iter().all(Option::is_some)
    }

    fn read(&self, journal: &Journal) -> Result<Vec<u8>, FusionError> {
        let mut bytes = Vec::new();
        for position in self.positions.iter().flatten() {
            let frame = journal
                .read_frame(*position)
                .map_err(FusionError::journal("read"))?;
            bytes.extend_from_slice(Part::decode(&frame).map_or(&[][..], |part| part.bytes));
        }
        Ok(bytes)
    }
}

impl Found {
    /// Takes up one frame.
    pub fn visit(&mut self, frame: FrameRef<'_>) {
        let known = frame.version == VERSION
            && match frame.kind {
                ADDED => self.added(&frame),
                REMOVED => self.removed(&frame),
                WHOLE | CHANGES => self.part(&frame),
                _ => false,
            };
        if !known && self.unreadable.is_none() {
            self.unreadable = Some(format!(
                "a frame of kind {} and version {} at {}",
                frame.kind, frame.version, frame.position.0
            ));
        }
    }

    fn added(&mut self, frame: &FrameRef<'_>) -> bool {
        let Ok(kept) = serde_json::from_slice::<Kept>(frame.payload) else {
            return false;
        };
        let place = (frame.position, frame.payload.len() as u64);
        let id = kept.definition.id.clone();
        let statement = self.statements.entry(id).or_default();
        statement.definition = Some((kept, place));
        true
    }

    fn removed(&mut self, frame: &FrameRef<'_>) -> bool {
        let Ok(id) = std::str::from_utf8(frame.payload) else {
            return false;
        };
        self.statements.remove(id);
        true
    }

    fn part(&mut self, frame: &FrameRef<'_>) -> bool {
        let Some(part) = Part::decode(frame.payload) else {
            return false;
        };
        let statement = self.statements.entry(part.id.to_owned()).or_default();
        let found = &mut statement.checkpoints.0;
        let parts = found.entry(part.number).or_insert_with(|| Parts {
            kind: frame.kind,
            positions: Vec::new(),
        });
        // A count of parts is believed only as far as parts come: each is a frame.
        if part.part >= parts.positions.len() {
            parts.positions.resize(part.part + 1, None);
        }
        parts.positions[part.part] = Some(frame.position);
        if part.part + 1 < part.parts && parts.positions.len() == part.part + 1 {
            parts.positions.push(None);
        }
        if parts.kind == WHOLE && parts.are_all() {
            found.retain(|other, _| *other >= part.number);
        }
        true
    }
}

struct Part<'a> {
    id: &'a str,
    number: u64,
    part: usize,
    parts: usize,
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    fn decode(payload: &'a [u8]) -> Option<Part<'a>> {
        let mut from = Decoder::new(payload);
        let id = std::str::from_utf8(from.bytes()?).ok()?;
        let number = from.u64()?;
        let part = usize::try_from(from.u32()?).ok()?;
        let parts = usize::try_from(from.u32()?).ok()?;
        (part < parts && parts <= PARTS_MAX).then_some(Part {
            id,
            number,
            part,
            parts,
            bytes: from.0,
        })
    }
}

/// Far above what `limits::KEYED_STATE_BYTES_MAX` and an outbox can need, in parts.
const PARTS_MAX: usize = 16_384;
