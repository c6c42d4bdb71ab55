//! Every bound of the journal, with its unit and its reason.

use std::time::Duration;

/// Default span of a segment in bytes: small enough that reclaiming whole ones frees space soon,
/// large enough that rolling over costs nothing beside the writing.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Smallest span of a segment in bytes: one file-system block, so that tests can roll often.
pub const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// Largest span of a segment in bytes: a payload's length is a `u32`.
pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;

/// Default step of preallocation in bytes: one file-system transaction per so much data.
pub const PREALLOCATE_BYTES: u64 = 16 << 20;

/// Default bytes that may wait for the writer thread: about ten milliseconds of a fast disk.
pub const PENDING_BYTES_MAX: u64 = 16 << 20;

/// Completions that may wait for the writer, in appends: barriers have no bytes to be counted by.
pub const PENDING_DONE_MAX: usize = 1 << 18;

/// Bytes of a pending buffer that an idle journal keeps for the next burst; more is given back.
pub const BUFFER_KEEP_BYTES: usize = 4 << 20;

/// Completions that wait for a sync nobody asked for; at this count the writer syncs by itself.
pub const DISK_WAITERS_MAX: usize = 65_536;

/// Unsynced bytes from which on syncing has a thread of its own: with fewer the disk does not stand
/// still for long while the next ones are copied, and the way to another thread would cost more.
pub const HANDED_BYTES_MIN: u64 = 256 << 10;

/// Bytes that wait for a sync beside those that the writer holds: some syncs of a fast disk, so
/// that a slow one holds appends back instead of making them wait long.
pub const SYNC_BEHIND_BYTES_MAX: u64 = 64 << 20;

/// Default bytes that nobody waits for after which they are synced all the same: a disk that is
/// synced after so many is as fast as one that is not.
pub const UNASKED_BYTES: u64 = 16 << 20;

/// Appends that end a rest between two syncs: with so many, one more costs next to nothing.
pub const RESTING_APPENDS_MAX: usize = 64;

/// Bytes that end a rest between two syncs: writing them costs as much as the sync does.
pub const RESTING_BYTES_MAX: usize = 64 << 10;

/// Rests that may be good for nothing, one after another, until there are no more: what is sent at a
/// pace of its own is not sent evenly.
pub const REST_CREDIT: u8 = 4;

/// Syncs until a rest is tried, at first.
pub const TRIAL_AFTER_MIN: u32 = 16;

/// And at most, when none is good for anything: what is tried in vain costs less than a hundredth then.
pub const TRIAL_AFTER_MAX: u32 = 1_024;

/// Bytes that the caller of an append may write itself: the copying keeps it from nothing for long.
pub const CARRIED_BYTES_MAX: usize = 64 << 10;

/// Appends that their caller may write itself, together: of one request, hardly of several.
pub const CARRIED_APPENDS_MAX: usize = 16;

/// How long the disk may keep a caller that carries its append, by default: others may wait for that
/// thread.
pub const CARRIED_TIME_MAX: Duration = Duration::from_millis(1);

/// Appends that are not carried after one that took too long, or beside which others came, at first.
pub const DECLINED_MIN: u32 = 16;

/// And at most, when each further one is as bad.
pub const DECLINED_MAX: u32 = 1_024;

/// Segments that got their seals and wait for a sync, each with an open file: at the default size
/// as many bytes as a kernel lets one process leave unwritten.
pub const SEALED_BEHIND_MAX: usize = 64;

/// Sealed segments whose files stay open for reading, in files.
pub const READ_HANDLES_MAX: usize = 64;

/// Bytes that recovery reads at a time; the buffer grows only for a larger frame.
pub const RECOVERY_READ_BYTES: usize = 1 << 20;

/// Bytes from which on one write that is synced next may pass the system's cache: from here on a
/// disk takes them at its full rate.
pub const DIRECT_BYTES_MIN: usize = 256 << 10;

/// Bytes that go past the cache in one call: with fewer the disk rests while the writer is woken, with
/// more it is longer until others may come after them.
pub const DIRECT_WRITE_BYTES: usize = 4 << 20;

/// Bytes that go past the cache in one call where they have to be copied to lie in whole pages: what
/// is kept for it stays, and it is seldom needed.
pub const DIRECT_COPY_BYTES: usize = 1 << 20;

/// What a processor calls a large page, on nearly all of them; where it is another, less is gained.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes from which on a buffer of pending appends lies in large pages of its own: one of these is
/// at most half empty then.
pub const SMALL_BUFFER_BYTES_MAX: usize = 1 << 20;

/// What writing past the cache goes by, of places in files and in memory: a page, which every block
/// of a disk divides.
pub const DIRECT_BLOCK_BYTES: usize = 4 << 10;

/// Bytes after which large writes that nobody waits for try the slower of their two ways again, at
/// first: one try in 64 at the size that goes past the cache at once.
pub const SLOWER_AFTER_BYTES_MIN: u64 = 64 << 20;

/// And at most, when it stays the slower one: a try then costs next to nothing on the slowest disk.
pub const SLOWER_AFTER_BYTES_MAX: u64 = 4 << 30;

/// Damaged stretches that recovery lists one by one; further ones are only counted.
pub const DAMAGE_LISTED_MAX: usize = 1_024;

/// Bytes of zeros written at a time where the file system cannot preallocate.
pub const ZERO_FILL_BYTES: usize = 1 << 20;

/// What a disk gives and takes at once, at most, for all that is known here.
pub(crate) const DISK_BLOCK_BYTES: u64 = 4 << 10;

/// Blocks of a file, about, that are tried before it is believed that none can be read.
pub(crate) const PROBED_BLOCKS: u64 = 64;

/// Room that a segment has to have left for being sealed early: less would do nobody any good.
pub(crate) const SEALED_EARLY_LEFT_MIN: u64 = 4 * DISK_BLOCK_BYTES - 1024;
