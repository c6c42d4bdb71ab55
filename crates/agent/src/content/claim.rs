//! Content claims: pieces of bytes that FlowFiles view, and the index of all that live.
//!
//! A claim is made in memory by a session. Where content is kept on the disk it gets its position
//! when it is written, and ends with the last FlowFile that views it; memory is bounded then: the
//! oldest claims lose their bytes first and are read back, checked against their CRC32C. The
//! lowest position of a living claim is what the journal must keep. In volatile content a claim's
//! bytes are reserved before it is made and stay as long as it lives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use journal::{Durability, Journal, JournalError, Position};
use parking_lot::Mutex;

use super::arena::Arena;
use crate::records::{Check, ClaimAt};
use crate::sealing::{Keyring, Piece, SEAL_BYTES, SealError};

/// One piece of content; views of it are [`crate::flowfile::FlowFile`]s' content.
#[derive(Debug)]
pub(crate) struct Claim {
    len: u32,
    check: Check,
    place: Mutex<Place>,
    contents: Arc<Contents>,
}

/// All living claims of a repository, and where their bytes are.
#[derive(Debug)]
pub(crate) struct Contents {
    store: OnceLock<Store>,
    index: Mutex<Index>,
    hot_bytes_max: u64,
    keyring: Arc<Keyring>,
}

/// Where content is kept.
#[derive(Debug)]
pub(crate) enum Store {
    /// On the disk: in the frames of the records' journal or in those of one of its own.
    Journal(Journal),
    /// In memory only.
    Volatile(Arena),
    /// Nowhere: only its size is known.
    None,
}

/// Why a claim cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum DamagedClaim {
    /// The bytes on the disk are not those that were written.
    #[error("the content at position {0} of the content repository is damaged")]
    Rot(Position),
    /// The journal does not have them any more: the segment was taken away.
    #[error("the content at position {position} of the content repository is gone")]
    Gone {
        /// Where it was.
        position: Position,
        /// What the journal says.
        #[source]
        source: JournalError,
    },
    /// The disk cannot read the bytes any more.
    #[error("the content at position {position} of the content repository cannot be read")]
    Unreadable {
        /// Where it is.
        position: Position,
        /// What the disk says.
        #[source]
        source: JournalError,
    },
    /// The content repository keeps nothing.
    #[error("content is not kept: choose another content repository than none")]
    NotKept,
    /// Its key was not given.
    #[error(transparent)]
    Sealed(SealError),
    /// The disk refused.
    #[error("cannot read content")]
    Read(#[source] JournalError),
}

#[derive(Debug, Default)]
struct Place {
    position: Option<Position>,
    /// Offset in its session's content, until it has a position.
    offset: u64,
    hot: Option<Bytes>,
}

#[derive(Debug, Default)]
struct Index {
    claims: BTreeMap<Position, Weak<Claim>>,
    live_bytes: u64,
    hot: VecDeque<Weak<Claim>>,
    hot_bytes: u64,
    /// Positions that swapped FlowFiles need, each with how often.
    pinned: BTreeMap<Position, u32>,
    /// Frames of the records' journal that hold swapped FlowFiles.
    frames: BTreeMap<Position, u32>,
}

/// Keeps a frame with swapped FlowFiles and their content; dropping it lets go of both.
#[derive(Debug)]
pub(crate) struct Pin {
    contents: Arc<Contents>,
    frame: Position,
    lowest: Option<Position>,
    bytes: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut index = self.contents.index.lock();
        unpin(&mut index.frames, self.frame);
        if let Some(lowest) = self.lowest {
            unpin(&mut index.pinned, lowest);
        }
        index.live_bytes = index.live_bytes.saturating_sub(self.bytes);
    }
}

fn unpin(pinned: &mut BTreeMap<Position, u32>, position: Position) {
    if let Some(count) = pinned.get_mut(&position) {
        *count -= 1;
        if *count == 0 {
            pinned.remove(&position);
        }
    }
}

impl DamagedClaim {
    /// Whether these bytes will never be read again, whatever is tried.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(
            self,
            DamagedClaim::Rot(_) | DamagedClaim::Gone { .. } | DamagedClaim::Unreadable { .. }
        )
    }
}

impl Claim {
    /// Bytes of it.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// How its bytes on the disk are checked.
    pub(crate) fn check(&self) -> Check {
        self.check
    }

    /// Whether other bytes in its place would be found out.
    pub(crate) fn is_checked(&self) -> bool {
        !matches!(self.check, Check::None)
    }

    /// Bytes that it takes on the disk.
    pub(crate) fn disk_len(&self) -> u64 {
        let seal = match self.check {
            Check::Sealed => SEAL_BYTES as u64,
            Check::None | Check::Crc(_) => 0,
        };
        u64::from(self.len) + seal
    }

    /// Where it is in the journal, or will be in its session's frame.
    pub(crate) fn locate(&self) -> ClaimAt {
        let place = self.place.lock();
        match (place.position, self.contents.store.get()) {
            (Some(position), _) => ClaimAt::At {
                position,
                len: self.len,
            },
            (None, Some(Store::Volatile(_) | Store::None)) => ClaimAt::Memory { len: self.len },
            (None, _) => ClaimAt::Here {
                offset: place.offset,
                len: self.len,
            },
        }
    }

    /// The bytes of a claim that is not written yet, as they are to stand on the disk.
    pub(crate) fn fresh(&self) -> Bytes {
        self.in_memory().unwrap_or_default()
    }

    /// The bytes of a claim as they are to stand on the disk, where memory has them.
    pub(crate) fn in_memory(&self) -> Option<Bytes> {
        let plain = self.place.lock().hot.clone()?;
        Some(match self.check {
            Check::Sealed => Bytes::from(self.contents.keyring.seal(Piece::Content, &plain)),
            Check::None | Check::Crc(_) => plain,
        })
    }

    /// Reads a range, from memory where it is there. What is read from the disk is checked, and
    /// brought back to memory when only a part was asked for, since its neighbors are read next.
    pub(crate) fn read(self: &Arc<Self>, offset: u32, len: u32) -> Result<Bytes, DamagedClaim> {
        let (start, end) = (offset as usize, offset as usize + len as usize);
        let position = {
            let place = self.place.lock();
            if let Some(hot) = &place.hot {
                return Ok(hot.slice(start..end));
            }
            place.position
        };
        let (Some(Store::Journal(journal)), Some(position)) = (self.contents.store.get(), position)
        else {
            return Err(DamagedClaim::NotKept);
        };
        let whole = read_written(journal, position, self.disk_len() as usize)?;
        let whole = self.checked(whole, position)?;
        if len < self.len {
            let was_cold = self.place.lock().hot.replace(whole.clone()).is_none();
            if was_cold {
                self.contents.warm(self, true);
            }
        }
        Ok(whole.slice(start..end))
    }

    /// Has the disk begin to read it, if it is not in memory.
    pub(crate) fn read_ahead(&self) {
        let position = {
            let place = self.place.lock();
            place.position.filter(|_| place.hot.is_none())
        };
        if let (Some(position), Some(Store::Journal(journal))) =
            (position, self.contents.store.get())
        {
            journal.read_ahead(position, self.disk_len() as usize);
        }
    }

    /// What was written there, if these are its bytes.
    fn checked(&self, bytes: Bytes, position: Position) -> Result<Bytes, DamagedClaim> {
        match self.check {
            Check::Crc(crc) if crc != crc32c::crc32c(&bytes) => Err(DamagedClaim::Rot(position)),
            Check::None | Check::Crc(_) => Ok(bytes),
            Check::Sealed => match self.contents.keyring.open(Piece::Content, bytes) {
                Ok(plain) if plain.len() == self.len as usize => Ok(plain),
                Ok(_) | Err(SealError::Broken) => Err(DamagedClaim::Rot(position)),
                Err(error @ SealError::UnknownKey(_)) => Err(DamagedClaim::Sealed(error)),
            },
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let place = self.place.get_mut();
        let hot_bytes = place.hot.as_ref().map_or(0, |_| u64::from(self.len));
        let Some(position) = place.position else {
            if let Some(Store::Volatile(arena)) = self.contents.store.get() {
                // The bytes first: their room is not given away before it is free.
                place.hot = None;
                arena.release(u64::from(self.len));
            }
            return;
        };
        let mut index = self.contents.index.lock();
        index.hot_bytes = index.hot_bytes.saturating_sub(hot_bytes);
        index.live_bytes = index.live_bytes.saturating_sub(u64::from(self.len));
        index.forget(position);
    }
}

impl Index {
    /// Takes out the entry of a claim that has ended, unless another one is there by now.
    fn forget(&mut self, position: Position) {
        let entry = self.claims.get(&position);
        if entry.is_some_and(|entry| entry.strong_count() == 0) {
            self.claims.remove(&position);
        }
    }
}

impl Contents {
    /// No claims yet; the store comes with [`Contents::attach`]. So many bytes of what is on the
    /// disk stay in memory too.
    pub(crate) fn new(hot_bytes_max: u64, keyring: Arc<Keyring>) -> Arc<Self> {
        Arc::new(Contents {
            store: OnceLock::new(),
            index: Mutex::default(),
            hot_bytes_max,
            keyring,
        })
    }

    /// Names the store that claims are read from.
    pub(crate) fn attach(&self, store: Store) {
        // Set once per repository.
        let _ = self.store.set(store);
    }

    /// The room of volatile content, where that is the store.
    pub(crate) fn arena(&self) -> Option<&Arena> {
        match self.store.get() {
            Some(Store::Volatile(arena)) => Some(arena),
            _ => None,
        }
    }

    /// A claim of new bytes, not yet written, at `offset` of its session's content. In volatile
    /// content its room was reserved.
    pub(crate) fn create(self: &Arc<Self>, bytes: Bytes, offset: u64) -> Arc<Claim> {
        let len = u32::try_from(bytes.len()).expect("a claim is bounded below 4 GiB");
        let (check, hot) = match self.store.get() {
            Some(Store::Volatile(_)) => (Check::None, Some(bytes)),
            Some(Store::None) => (Check::None, None),
            _ if self.keyring.seals() => (Check::Sealed, Some(bytes)),
            _ => (Check::Crc(crc32c::crc32c(&bytes)), Some(bytes)),
        };
        Arc::new(Claim {
            len,
            check,
            place: Mutex::new(Place {
                position: None,
                offset,
                hot,
            }),
            contents: Arc::clone(self),
        })
    }

    /// A claim that recovery found; the same one for the same position.
    pub(crate) fn recovered(
        self: &Arc<Self>,
        position: Position,
        len: u32,
        check: Check,
    ) -> Arc<Claim> {
        let known = self
            .index
            .lock()
            .claims
            .get(&position)
            .and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.len == len) {
            return known;
        }
        let claim = Arc::new(Claim {
            len,
            check,
            place: Mutex::new(Place {
                position: Some(position),
                offset: 0,
                hot: None,
            }),
            contents: Arc::clone(self),
        });
        let mut index = self.index.lock();
        index.live_bytes += u64::from(len);
        index.claims.insert(position, Arc::downgrade(&claim));
        drop(index);
        claim
    }

    /// A new claim got its place.
    pub(crate) fn place(&self, claim: &Arc<Claim>, position: Position) {
        claim.place.lock().position = Some(position);
        let mut index = self.index.lock();
        index.live_bytes += u64::from(claim.len);
        index.claims.insert(position, Arc::downgrade(claim));
        drop(index);
        self.warm(claim, false);
    }

    /// A claim was copied forward.
    pub(crate) fn move_to(&self, claim: &Arc<Claim>, position: Position) {
        let old = claim.place.lock().position.replace(position);
        let mut index = self.index.lock();
        if let Some(old) = old {
            index.claims.remove(&old);
        }
        index.claims.insert(position, Arc::downgrade(claim));
    }

    /// Keeps the frame at `frame`, and content from `lowest` on, for FlowFiles of so many bytes.
    pub(crate) fn pin(
        self: &Arc<Self>,
        frame: Position,
        lowest: Option<Position>,
        bytes: u64,
    ) -> Pin {
        let mut index = self.index.lock();
        *index.frames.entry(frame).or_default() += 1;
        if let Some(lowest) = lowest {
            *index.pinned.entry(lowest).or_default() += 1;
        }
        index.live_bytes += bytes;
        drop(index);
        Pin {
            contents: Arc::clone(self),
            frame,
            lowest,
            bytes,
        }
    }

    /// The lowest position that content is needed from.
    pub(crate) fn lowest(&self) -> Option<Position> {
        let index = self.index.lock();
        let claim = index.claims.keys().next().copied();
        let pinned = index.pinned.keys().next().copied();
        claim.into_iter().chain(pinned).min()
    }

    /// The lowest position of a living claim, which could be moved.
    pub(crate) fn lowest_claim(&self) -> Option<Position> {
        self.index.lock().claims.keys().next().copied()
    }

    /// The lowest frame that swapped FlowFiles are in.
    pub(crate) fn lowest_frame(&self) -> Option<Position> {
        self.index.lock().frames.keys().next().copied()
    }

    /// Bytes of all living claims.
    pub(crate) fn live_bytes(&self) -> u64 {
        match self.arena() {
            Some(arena) => arena.bytes(),
            None => self.index.lock().live_bytes,
        }
    }

    /// Living claims below `position`, lowest first.
    pub(crate) fn below(&self, position: Position) -> Vec<Arc<Claim>> {
        let index = self.index.lock();
        index
            .claims
            .range(..position)
            .filter_map(|(_, claim)| claim.upgrade())
            .collect()
    }

    /// Counts `claim` as hot, and takes the bytes of the oldest where there are too many. Of one
    /// whose neighbors are read next they stay, however many they are: each would read them all.
    fn warm(&self, claim: &Arc<Claim>, is_read: bool) {
        // Upgraded claims are let go only after the lock: the last one's drop takes it again.
        let mut let_go = Vec::new();
        let mut index = self.index.lock();
        index.hot_bytes += u64::from(claim.len);
        index.hot.push_back(Arc::downgrade(claim));
        if index.hot.len() > HOT_ENTRIES_SWEEP && index.hot.len() > 2 * index.claims.len() {
            index.hot.retain(|entry| entry.strong_count() > 0);
        }
        while index.hot_bytes > self.hot_bytes_max && !(is_read && index.hot.len() == 1) {
            let Some(oldest) = index.hot.pop_front() else {
                break;
            };
            let Some(oldest) = oldest.upgrade() else {
                continue;
            };
            let bytes = oldest.place.lock().hot.take();
            if bytes.is_some() {
                index.hot_bytes = index.hot_bytes.saturating_sub(u64::from(oldest.len));
            }
            let_go.push((oldest, bytes));
        }
        drop(index);
    }
}

/// Reads what may still be on its way to the file.
fn read_written(journal: &Journal, position: Position, len: usize) -> Result<Bytes, DamagedClaim> {
    let read = match journal.read(position, len) {
        Err(JournalError::OutOfRange { .. }) if journal.end() > position => {
            journal
                .append_blocking(&[], Durability::Os)
                .map_err(DamagedClaim::Read)?;
            journal.read(position, len)
        }
        // A controller that was busy with something else has another chance.
        Err(error) if error.is_unreadable() => journal.read(position, len),
        read => read,
    };
    read.map_err(|source| match source {
        JournalError::OutOfRange { .. } | JournalError::Reclaimed { .. } => {
            DamagedClaim::Gone { position, source }
        }
        source if journal.has_lost(&source) => DamagedClaim::Unreadable { position, source },
        source => DamagedClaim::Read(source),
    })
}

/// Entries of dead claims are swept out when there are more than this.
const HOT_ENTRIES_SWEEP: usize = 1_024;
