//! Content claims: ranges of the journal that FlowFiles view, with the newest bytes in memory.
//!
//! A claim is made in memory by a session, gets its position when the session is committed, and
//! ends with the last FlowFile that views it. Memory is bounded: the oldest claims lose their
//! bytes first and are read back by range. The lowest position of a living claim is what the
//! journal must keep.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use journal::{Journal, JournalError, Position};
use parking_lot::Mutex;

use crate::limits::HOT_CONTENT_BYTES_MAX;
use crate::records::ClaimAt;

/// One piece of content in the journal; views of it are [`crate::flowfile::FlowFile`]s' content.
#[derive(Debug)]
pub(crate) struct Claim {
    len: u32,
    place: Mutex<Place>,
    contents: Arc<Contents>,
}

/// All living claims of a repository.
#[derive(Debug)]
pub(crate) struct Contents {
    journal: OnceLock<Journal>,
    index: Mutex<Index>,
    hot_bytes_max: u64,
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
}

impl Claim {
    /// Bytes of it.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Where it is in the journal, or will be in its session's frame.
    pub(crate) fn locate(&self) -> ClaimAt {
        let place = self.place.lock();
        match place.position {
            Some(position) => ClaimAt::At {
                position,
                len: self.len,
            },
            None => ClaimAt::Here {
                offset: place.offset,
                len: self.len,
            },
        }
    }

    /// The bytes of a claim that is not committed yet.
    pub(crate) fn fresh(&self) -> Bytes {
        self.place.lock().hot.clone().unwrap_or_default()
    }

    /// Reads a range, from memory where it is there. A small part of a claim brings the whole
    /// claim back to memory, since its neighbors are read next.
    pub(crate) fn read(self: &Arc<Self>, offset: u32, len: u32) -> Result<Bytes, JournalError> {
        let (start, end) = (offset as usize, offset as usize + len as usize);
        let position = {
            let place = self.place.lock();
            if let Some(hot) = &place.hot {
                return Ok(hot.slice(start..end));
            }
            place.position
        };
        let (Some(journal), Some(position)) = (self.contents.journal.get(), position) else {
            return Err(JournalError::Closed);
        };
        if len == self.len {
            return journal.read(position, len as usize);
        }
        let whole = journal.read(position, self.len as usize)?;
        let was_cold = self.place.lock().hot.replace(whole.clone()).is_none();
        if was_cold {
            self.contents.warm(self);
        }
        Ok(whole.slice(start..end))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let place = self.place.get_mut();
        let hot_bytes = place.hot.as_ref().map_or(0, |_| u64::from(self.len));
        let Some(position) = place.position else {
            return;
        };
        let mut index = self.contents.index.lock();
        index.hot_bytes = index.hot_bytes.saturating_sub(hot_bytes);
        index.live_bytes = index.live_bytes.saturating_sub(u64::from(self.len));
        index.claims.remove(&position);
    }
}

impl Contents {
    /// No claims yet; the journal comes with [`Contents::attach`].
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Contents {
            journal: OnceLock::new(),
            index: Mutex::default(),
            hot_bytes_max: HOT_CONTENT_BYTES_MAX,
        })
    }

    /// Names the journal that claims are read from.
    pub(crate) fn attach(&self, journal: &Journal) {
        // Set once per repository; a second call would name the same journal.
        let _ = self.journal.set(journal.clone());
    }

    /// A claim of new bytes, not yet in the journal, at `offset` of its session's content.
    pub(crate) fn create(self: &Arc<Self>, bytes: Bytes, offset: u64) -> Arc<Claim> {
        let len = u32::try_from(bytes.len()).expect("a session's content is bounded below 4 GiB");
        let place = Mutex::new(Place {
            position: None,
            offset,
            hot: Some(bytes),
        });
        Arc::new(Claim {
            len,
            place,
            contents: Arc::clone(self),
        })
    }

    /// A claim that recovery found; the same one for the same position.
    pub(crate) fn recovered(self: &Arc<Self>, position: Position, len: u32) -> Arc<Claim> {
        let known = self
            .index
            .lock()
            .claims
            .get(&position)
            .and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.len == len) {
            return known;
        }
        let place = Mutex::new(Place {
            position: Some(position),
            offset: 0,
            hot: None,
        });
        let claim = Arc::new(Claim {
            len,
            place,
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
        self.warm(claim);
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

    /// The lowest position that a living claim needs.
    pub(crate) fn lowest(&self) -> Option<Position> {
        self.index.lock().claims.keys().next().copied()
    }

    /// Bytes of all living claims.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.index.lock().live_bytes
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

    /// Counts `claim` as hot, and takes the bytes of the oldest where there are too many.
    fn warm(&self, claim: &Arc<Claim>) {
        // Upgraded claims are let go only after the lock: the last one's drop takes it again.
        let mut let_go = Vec::new();
        let mut index = self.index.lock();
        index.hot_bytes += u64::from(claim.len);
        index.hot.push_back(Arc::downgrade(claim));
        if index.hot.len() > HOT_ENTRIES_SWEEP && index.hot.len() > 2 * index.claims.len() {
            index.hot.retain(|entry| entry.strong_count() > 0);
        }
        while index.hot_bytes > self.hot_bytes_max {
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

/// Entries of dead claims are swept out when there are more than this.
const HOT_ENTRIES_SWEEP: usize = 1_024;
