//! The storage engine: one segmented, append-only journal per folder, shared by all who store.
//!
//! # Promises
//!
//! - A [`Position`] is a logical byte address. Positions grow over the life of the folder and are
//!   never given out twice for bytes that were acknowledged.
//! - An append that was answered at [`Durability::Os`] survives the end of the process, one
//!   answered at [`Durability::Disk`] the end of the machine.
//! - Recovery visits a prefix of what was appended, in order, whole frames only.
//! - A failed write or sync poisons the journal: every call answers an error until the folder is
//!   opened again. A full disk does not poison: nothing is assigned that has no room, and a
//!   reserve that was allocated before is left for what frees space ([`Journal::append_vital`]).
//! - A file system that is read-only poisons too, and is told by its name
//!   ([`JournalError::is_read_only`]); what stands there can be opened to be read
//!   ([`Journal::open_to_read`]).
//!
//! # Bytes on disk (all integers little-endian)
//!
//! A folder holds `journal.lock` and segments `BASE.journal`, BASE being the position of the
//! segment's first byte in sixteen hexadecimal digits. Byte `i` of a segment has position
//! BASE + `i`; the next segment's base is BASE + size, wherever the frames of this one end.
//!
//! | segment header, 64 bytes | |
//! | --- | --- |
//! | 0..8 | magic `THALWEGJ` |
//! | 8..10 | format version, 1 |
//! | 12..16 | CRC32C of bytes 0..12 and 16..64 |
//! | 16..24 | base position |
//! | 24..32 | size: positions that the segment spans |
//! | 32..40 | created, Unix milliseconds |
//!
//! | frame, 24 bytes and its payload | |
//! | --- | --- |
//! | 0..4 | payload length |
//! | 4..8 | CRC32C of the payload, then bytes 0..4, then bytes 8..24 |
//! | 8..16 | the frame's own position: bytes that once stood elsewhere never pass |
//! | 16..20 | distance back to the end of what was synced when this frame was placed |
//! | 20, 21 | kind and version, the caller's own |
//! | 22..24 | flags: bit 0 says that this frame seals its segment and the next one goes on |
//!
//! # Recovery
//!
//! Segments are read in order. Where no whole frame stands, the later frames decide:
//!
//! - A later frame was placed after a sync that covered this spot: the bytes had been durable and
//!   have gone bad since. They are reported as [`Damage`], left where they are, and reading goes
//!   on at the next whole frame; losing all that follows as well would only add to the harm.
//! - Otherwise the spot belongs to a tail that was never acknowledged at `disk`. The journal ends
//!   here; what stood behind it is removed and, unless it was all zeros, reported as [`Cut`].
//!   A last frame that rots away with nothing after it cannot be told from a torn one.
//!
//! The cut is truncated away and synced before anything new is written, so no stale frame can be
//! read later. The tail that no frame proves to be synced is written once more and synced, since
//! after a failed sync the page cache may show bytes that the disk does not have.
//!
//! # Spares
//!
//! A reclaimed segment may be kept as `BASE.spare` and become a new segment: its header is written
//! first, then it gets its name. Behind what is written since then stand frames of before, with
//! positions that are no longer theirs, so that none of them counts. Only what was reclaimed and
//! has durable frames behind it is kept, and an opening removes all spares: positions of a tail
//! that was cut are given out again.
//!
//! A caller that snapshots its state into the journal may mark where the snapshot begins
//! ([`Journal::mark`], see `mark`): frames before the mark are neither read nor shown then, though
//! they can still be read by position. What a mark hides is not checked for damage either.
//!
//! # Left out
//!
//! An append of several frames is not atomic over a crash (one frame is). Nothing is compressed or
//! encrypted.

mod append;
#[cfg(test)]
mod behavior;
mod carry;
#[cfg(test)]
mod carry_tests;
mod checksum;
mod commit;
mod direct;
mod disk;
mod done;
mod error;
mod format;
mod journal;
#[cfg(test)]
mod kill_test;
pub mod limits;
mod mark;
#[cfg(test)]
mod measure;
mod options;
mod pace;
mod pages;
mod reader;
mod recovery;
#[cfg(test)]
mod rest_tests;
mod segment;
mod sim;
#[cfg(test)]
mod simulation;
mod space;
mod spares;
mod state;
mod syncer;
mod telemetry;
#[cfg(test)]
mod unasked_tests;
mod writer;

pub use append::Placed;
pub use carry::Carrier;
pub use checksum::Checksum;
pub use disk::{Disk, DiskLock, File, LockError, RealDisk};
pub use done::{Done, DurableWait, OnDone};
pub use error::JournalError;
pub use format::{FRAME_OVERHEAD_BYTES, Frame, FrameRef, Position};
pub use journal::Journal;
pub use options::{Durability, JournalOptions};
pub use recovery::{Cut, CutReason, Damage, Recovery};
pub use segment::{SegmentInfo, Stretch};
pub use sim::SimDisk;
pub use telemetry::Telemetry;
