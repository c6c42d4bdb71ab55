//! Statements and their checkpoints on a journal.
//!
//! | frame kind | payload, version 1 |
//! | --- | --- |
//! | 1, statement added or changed | JSON of [`Definition`], and `checkpoint_after`: checkpoints up to that number belong to a form that was replaced |
//! | 2, statement removed | its id, UTF-8 |
//! | 3, part of a whole checkpoint | id (u32 length, UTF-8), number u64, part u32, parts u32, then bytes |
//! | 4, part of changes | the same |
//!
//! All integers are little-endian. A checkpoint counts when all its parts are there; of several
//! whole ones the one with the greatest number does, so a copy made later by a rewrite never wins
//! over a newer one, and after it the changes whose numbers follow without a gap. What the bytes of
//! a checkpoint are is written in `lane::checkpoint`.
//!
//! The journal holds little that is live and much that is not: when the difference passes a bound
//! the live frames are appended once more and everything before them is reclaimed.

mod found;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use journal::{
    Disk, Done, Durability, DurableWait, Frame, Journal, JournalError, JournalOptions, Position,
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::codec::Encoder;
use crate::error::FusionError;
use crate::lane::checkpoint::{Checkpoint, KeptState};
use crate::limits::{
    CHECKPOINT_PART_BYTES, JOURNAL_PENDING_BYTES, JOURNAL_SEGMENT_BYTES, JOURNAL_SLACK_BYTES,
};
use crate::statement::Definition;

use found::{Found, Kept};

/// The journal of statements.
pub struct StatementStore {
    journal: Journal,
    live: Mutex<BTreeMap<String, Live>>,
}

/// A statement as recovery found it.
pub struct Recovered {
    /// What it is.
    pub definition: Definition,
    /// Its latest whole checkpoint, and the changes since.
    pub checkpoint: Option<KeptState>,
}

/// Where the frames of one statement stand.
#[derive(Default)]
struct Live {
    definition: Option<(Position, u64)>,
    /// Checkpoints up to this number belong to a form that was replaced.
    checkpoint_after: u64,
    number: u64,
    /// Of the last whole checkpoint, then of the changes since.
    parts: Vec<(Position, u8)>,
    bytes: u64,
}

impl StatementStore {
    /// Opens the journal in `dir` and reads every statement, in the order they were added.
    ///
    /// # Errors
    /// The journal cannot be opened, or holds what this version does not know.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(StatementStore, Vec<Recovered>), FusionError> {
        let options = JournalOptions {
            segment_bytes: JOURNAL_SEGMENT_BYTES,
            preallocate_bytes: JOURNAL_SEGMENT_BYTES / 8,
            pending_bytes_max: JOURNAL_PENDING_BYTES,
            ..JournalOptions::default()
        };
        let mut found = Found::default();
        let (journal, recovery) = Journal::open(disk, dir, options, &mut |frame| {
            found.visit(frame);
            Ok(())
        })
        .map_err(FusionError::journal("open"))?;
        if let Some(cut) = &recovery.cut {
            tracing::info!(?cut, "statement journal: an unfinished tail was cut");
        }
        if let Some(what) = found.unreadable {
            return Err(FusionError::Unreadable(what));
        }
        let mut live = BTreeMap::new();
        let mut recovered = Vec::new();
        for (id, statement) in found.statements {
            let Some((kept, place)) = statement.definition else {
                continue;
            };
            let Kept {
                definition,
                checkpoint_after,
            } = kept;
            let mut entry = Live {
                definition: Some(place),
                checkpoint_after,
                number: checkpoint_after,
                ..Live::default()
            };
            let checkpoint = statement.checkpoints.read(&journal, &mut entry)?;
            live.insert(id, entry);
            recovered.push(Recovered {
                definition,
                checkpoint,
            });
        }
        recovered.sort_by(|a, b| {
            let key = |r: &Recovered| (r.definition.created_ms, r.definition.id.clone());
            key(a).cmp(&key(b))
        });
        Ok((
            StatementStore {
                journal,
                live: Mutex::new(live),
            },
            recovered,
        ))
    }

    /// Whether a failed write or sync has stopped the journal until it is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.journal.is_poisoned()
    }

    /// Keeps a statement and its first checkpoint; durable on return.
    ///
    /// # Errors
    /// The journal failed; the statement may or may not be there after a restart.
    pub async fn add(&self, definition: &Definition, checkpoint: &[u8]) -> Result<(), FusionError> {
        let wait = {
            let mut live = self.live.lock().await;
            // The checkpoint first: a statement that is there always has its positions.
            let mut entry = Live::default();
            self.append_parts(
                &definition.id,
                &mut entry,
                (WHOLE, checkpoint),
                Durability::Memory,
            )
            .await?;
            let wait = self.append_definition(&mut entry, definition).await?;
            live.insert(definition.id.clone(), entry);
            wait
        };
        wait.await.map_err(FusionError::journal("write"))
    }

    /// Keeps a statement's changed definition beside the state it has; durable on return.
    ///
    /// # Errors
    /// The journal failed; the change may or may not be there after a restart.
    pub async fn change(&self, definition: &Definition) -> Result<(), FusionError> {
        let wait = {
            let mut live = self.live.lock().await;
            let entry = live.entry(definition.id.clone()).or_default();
            self.append_definition(entry, definition).await?
        };
        wait.await.map_err(FusionError::journal("write"))
    }

    /// Keeps what takes a statement's place and the state that it starts from; durable on return.
    /// `is_reset` says that earlier checkpoints do not fit the new form: after a crash in between
    /// it starts without any.
    ///
    /// # Errors
    /// The journal failed; the old or the new form is there after a restart.
    pub async fn replace(
        &self,
        definition: &Definition,
        checkpoint: &[u8],
        is_reset: bool,
    ) -> Result<(), FusionError> {
        let wait = {
            let mut live = self.live.lock().await;
            let entry = live.entry(definition.id.clone()).or_default();
            if is_reset {
                entry.checkpoint_after = entry.number;
                self.append_definition(entry, definition).await?;
                self.append_parts(&definition.id, entry, (WHOLE, checkpoint), Durability::Disk)
                    .await?
            } else {
                self.append_parts(
                    &definition.id,
                    entry,
                    (WHOLE, checkpoint),
                    Durability::Memory,
                )
                .await?;
                self.append_definition(entry, definition).await?
            }
        };
        wait.await.map_err(FusionError::journal("write"))
    }

    /// Forgets a statement; durable on return.
    ///
    /// # Errors
    /// The journal failed; the statement may come back after a restart.
    pub async fn remove(&self, id: &str) -> Result<(), FusionError> {
        let wait = {
            let mut live = self.live.lock().await;
            let (_, wait) = self
                .append(REMOVED, &[id.as_bytes()], Durability::Disk)
                .await?;
            live.remove(id);
            wait
        };
        wait.await.map_err(FusionError::journal("write"))
    }

    /// Keeps a checkpoint of a statement that is there; returns at `durability`. `removed` says when
    /// it is there no more: by then another may have its id.
    ///
    /// # Errors
    /// `Closed` where it was removed, and nothing was kept; or the journal failed: the earlier
    /// checkpoint counts, and no changes may follow it.
    pub async fn checkpoint(
        &self,
        id: &str,
        checkpoint: &Checkpoint,
        durability: Durability,
        removed: &CancellationToken,
    ) -> Result<(), FusionError> {
        let Checkpoint { bytes, is_whole } = checkpoint;
        let wait = {
            let mut live = self.live.lock().await;
            // It is removed before the journal forgets it, which waits for this lock.
            let Some(entry) = live.get_mut(id).filter(|_| !removed.is_cancelled()) else {
                return Err(FusionError::Closed);
            };
            let kind = if *is_whole { WHOLE } else { CHANGES };
            self.append_parts(id, entry, (kind, bytes), durability)
                .await?
        };
        wait.await.map_err(FusionError::journal("write"))?;
        self.rewrite_when_due(&mut *self.live.lock().await).await
    }

    /// Writes what is pending and releases the folder.
    pub async fn close(&self) {
        let journal = self.journal.clone();
        let closed = tokio::task::spawn_blocking(move || journal.close()).await;
        if let Ok(Err(error)) = closed {
            tracing::warn!(error = %base::report(&error), "cannot close the statement journal");
        }
    }

    async fn append_definition(
        &self,
        entry: &mut Live,
        definition: &Definition,
    ) -> Result<DurableWait, FusionError> {
        let kept = Kept {
            definition: definition.clone(),
            checkpoint_after: entry.checkpoint_after,
        };
        let json = serde_json::to_vec(&kept).expect("a definition is plain data");
        let (position, wait) = self.append(ADDED, &[&json], Durability::Disk).await?;
        entry.definition = Some((position, json.len() as u64));
        Ok(wait)
    }

    async fn append_parts(
        &self,
        id: &str,
        entry: &mut Live,
        (kind, bytes): (u8, &[u8]),
        durability: Durability,
    ) -> Result<DurableWait, FusionError> {
        let number = entry.number + 1;
        let chunks: Vec<&[u8]> = match bytes {
            [] => vec![&[]],
            _ => bytes.chunks(CHECKPOINT_PART_BYTES).collect(),
        };
        let mut positions = Vec::with_capacity(chunks.len());
        let mut last = None;
        for (part, chunk) in chunks.iter().enumerate() {
            let mut head = Encoder::default();
            head.bytes(id.as_bytes());
            head.u64(number);
            head.count(part);
            head.count(chunks.len());
            let (position, wait) = self.append(kind, &[&head.0, chunk], durability).await?;
            positions.push((position, kind));
            last = Some(wait);
        }
        entry.number = number;
        if kind == WHOLE {
            entry.parts.clear();
            entry.bytes = 0;
        }
        entry.parts.extend(positions);
        entry.bytes += bytes.len() as u64;
        Ok(last.expect("a checkpoint has at least one part"))
    }

    async fn append(
        &self,
        kind: u8,
        parts: &[&[u8]],
        need: Durability,
    ) -> Result<(Position, DurableWait), FusionError> {
        let frame = Frame {
            kind,
            version: VERSION,
            parts,
        };
        loop {
            let (done, wait) = Done::channel(need);
            match self.journal.append(&[frame], need, done) {
                Ok(placed) => return Ok((placed.first, wait)),
                Err(JournalError::Busy) => self.journal.room(frame.framed_len()).await,
                Err(error) => return Err(FusionError::journal("write")(error)),
            }
        }
    }

    async fn rewrite_when_due(&self, live: &mut BTreeMap<String, Live>) -> Result<(), FusionError> {
        let Some(low) = live.values().filter_map(Live::low).min() else {
            return Ok(());
        };
        let live_bytes: u64 = live.values().map(Live::live_bytes).sum();
        let held = self.journal.end().0.saturating_sub(low.0);
        if held < JOURNAL_SLACK_BYTES + 4 * live_bytes {
            return Ok(());
        }
        let start = self.journal.end();
        let mut last = None;
        for (id, entry) in live.iter_mut() {
            if let Some((position, bytes)) = entry.definition {
                let payload = self.read(position)?;
                let (moved, wait) = self.append(ADDED, &[&payload], Durability::Disk).await?;
                entry.definition = Some((moved, bytes));
                last = Some(wait);
            }
            for (position, kind) in &mut entry.parts {
                if *position >= start {
                    continue;
                }
                let payload = match self.read(*position) {
                    Ok(payload) => payload,
                    // Not written yet, so it is new and stands near the end: it may stay.
                    Err(FusionError::Journal {
                        source: JournalError::OutOfRange { .. },
                        ..
                    }) => {
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let (moved, wait) = self.append(*kind, &[&payload], Durability::Disk).await?;
                *position = moved;
                last = Some(wait);
            }
            tracing::debug!(statement = id, "statement journal: moved to the end");
        }
        if let Some(wait) = last {
            wait.await.map_err(FusionError::journal("write"))?;
        }
        let Some(low) = live.values().filter_map(Live::low).min() else {
            return Ok(());
        };
        let journal = self.journal.clone();
        let reclaimed = tokio::task::spawn_blocking(move || journal.reclaim(low)).await;
        match reclaimed {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(FusionError::journal("reclaim")(error)),
            Err(_) => Err(FusionError::Closed),
        }
    }

    fn read(&self, position: Position) -> Result<bytes::Bytes, FusionError> {
        self.journal
            .read_frame(position)
            .map_err(FusionError::journal("read"))
    }
}

impl Live {
    fn low(&self) -> Option<Position> {
        let definition = self.definition.map(|(position, _)| position);
        let parts = self.parts.iter().map(|(position, _)| *position);
        parts.chain(definition).min()
    }

    fn live_bytes(&self) -> u64 {
        self.bytes + self.definition.map_or(0, |(_, bytes)| bytes)
    }
}

const ADDED: u8 = 1;
const REMOVED: u8 = 2;
const WHOLE: u8 = 3;
const CHANGES: u8 = 4;
const VERSION: u8 = 1;
