//! Which repositories an agent has: MiNiFi's choice, on two engines (a journal and memory).

use std::time::Duration;

use journal::JournalOptions;

use crate::limits::{
    CLAIM_BYTES_MAX, COMMIT_PIECE_BYTES, CONTENT_PINNED_BYTES_MAX, HOT_CONTENT_BYTES_MAX,
    JOURNAL_PENDING_BYTES_MAX, PINNED_BYTES_MAX, PROVENANCE_BYTES_DEFAULT, SNAPSHOT_BYTES_MIN,
    VOLATILE_BYTES_DEFAULT, VOLATILE_COUNT_DEFAULT,
};

/// What an agent's repositories are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepositoryOptions {
    /// Where FlowFiles are kept. Processors' states are on the disk whatever this says.
    pub flow_files: FlowFileKind,
    /// Where content is kept.
    pub content: ContentKind,
    /// Where provenance events are kept.
    pub provenance: ProvenanceKind,
    /// Whether commits are synced to the disk, or left to the operating system: the process may
    /// die then, the machine may not.
    pub is_synced: bool,
    /// When it is tidied up.
    pub limits: RepositoryLimits,
}

/// Where FlowFiles are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowFileKind {
    /// In the journal: they are there after a crash.
    Disk,
    /// In memory: a restart begins with empty queues. Connections bound them.
    Volatile,
}

/// Where content is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// In a journal of its own: large segments, claims as views of them.
    FileSystem,
    /// In the FlowFiles' own journal: one file to write and to sync, for small flash.
    Database,
    /// In memory, bounded exactly; whoever finds no room waits.
    Volatile {
        /// Bytes of content.
        bytes_max: u64,
        /// Claims: pieces of content that were written together.
        count_max: u64,
    },
    /// Nowhere: only sizes are known.
    None,
}

/// Where provenance events are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenanceKind {
    /// On the disk, as long as they are neither too old nor too many.
    Disk {
        /// Bytes of them.
        bytes_max: u64,
        /// Their age.
        age_max: Duration,
    },
    /// In memory; the oldest goes first.
    Volatile {
        /// Bytes of them.
        bytes_max: u64,
        /// Blocks: what one session did.
        count_max: u64,
    },
    /// Nowhere.
    None,
}

/// When a repository tidies up; tests make it tidy often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepositoryLimits {
    /// Positions that a segment of the journal spans, in bytes.
    pub segment_bytes: u64,
    /// Journal bytes between two snapshots at least.
    pub snapshot_bytes_min: u64,
    /// Journal bytes that old content may pin before it is moved.
    pub pinned_bytes_max: u64,
    /// As that, of the content journal, which also grows so much between two tidyings at most.
    pub content_pinned_bytes_max: u64,
    /// Bytes on the disk that only what frees room may take.
    pub reserve_bytes: u64,
    /// Bytes of what a session did from which on it is written in several frames.
    pub piece_bytes: u64,
    /// Bytes that wait for each journal's writer.
    pub pending_bytes_max: u64,
    /// Bytes of content on the disk that stay in memory too; above what waits to be written.
    pub hot_bytes_max: u64,
}

impl Default for RepositoryOptions {
    fn default() -> Self {
        RepositoryOptions {
            flow_files: FlowFileKind::Disk,
            content: ContentKind::Database,
            provenance: ProvenanceKind::None,
            is_synced: true,
            limits: RepositoryLimits::default(),
        }
    }
}

impl ContentKind {
    /// Volatile content with the default bounds.
    pub const VOLATILE: ContentKind = ContentKind::Volatile {
        bytes_max: VOLATILE_BYTES_DEFAULT,
        count_max: VOLATILE_COUNT_DEFAULT,
    };

    /// As it is written into the repository, so that another kind is noticed.
    pub(super) fn mark(self) -> &'static str {
        match self {
            ContentKind::FileSystem => "file system",
            ContentKind::Database => "database",
            ContentKind::Volatile { .. } | ContentKind::None => "memory",
        }
    }
}

impl ProvenanceKind {
    /// On the disk with the default bounds.
    pub const DISK: ProvenanceKind = ProvenanceKind::Disk {
        bytes_max: PROVENANCE_BYTES_DEFAULT,
        age_max: Duration::from_secs(30 * 24 * 3_600),
    };
}

impl Default for RepositoryLimits {
    fn default() -> Self {
        RepositoryLimits {
            segment_bytes: JournalOptions::default().segment_bytes,
            snapshot_bytes_min: SNAPSHOT_BYTES_MIN,
            pinned_bytes_max: PINNED_BYTES_MAX,
            content_pinned_bytes_max: CONTENT_PINNED_BYTES_MAX,
            reserve_bytes: 4 << 20,
            piece_bytes: COMMIT_PIECE_BYTES,
            pending_bytes_max: JOURNAL_PENDING_BYTES_MAX,
            hot_bytes_max: HOT_CONTENT_BYTES_MAX,
        }
    }
}

impl RepositoryLimits {
    /// Limits for a file system and a memory of so many bytes: on a small disk the journals must
    /// turn round often, in a small memory little may wait for the disk.
    pub fn for_machine(disk: u64, memory: u64) -> Self {
        let all = RepositoryLimits::default();
        let part = |share: u64, least: u64, most: u64| (disk / share).clamp(least, most.max(least));
        let segment_bytes = part(32, SEGMENT_BYTES_MIN, all.segment_bytes).next_power_of_two();
        RepositoryLimits {
            segment_bytes,
            snapshot_bytes_min: part(32, 1 << 20, all.snapshot_bytes_min),
            pinned_bytes_max: part(8, 4 << 20, all.pinned_bytes_max),
            content_pinned_bytes_max: part(8, 4 << 20, all.content_pinned_bytes_max),
            reserve_bytes: (segment_bytes / 4).min(all.reserve_bytes),
            piece_bytes: all.piece_bytes,
            pending_bytes_max: (memory / 32).clamp(1 << 20, all.pending_bytes_max),
            hot_bytes_max: (memory / 16).clamp(2 << 20, all.hot_bytes_max),
        }
    }
}

/// A segment holds the largest claim with what stands around it.
const SEGMENT_BYTES_MIN: u64 = 2 * CLAIM_BYTES_MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_has_small_limits_and_a_large_one_the_usual() {
        let small = RepositoryLimits::for_machine(256 << 20, 64 << 20);
        assert_eq!(
            (small.segment_bytes, small.pinned_bytes_max),
            (16 << 20, 32 << 20)
        );
        assert_eq!(
            (small.pending_bytes_max, small.hot_bytes_max),
            (2 << 20, 4 << 20)
        );
        assert_eq!(
            RepositoryLimits::for_machine(1 << 40, 8 << 30),
            RepositoryLimits::default()
        );
    }
}
