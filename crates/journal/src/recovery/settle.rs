//! Carrying out what the walk decided: segments removed, tails cut, and written once more.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Kept;
use crate::disk::{Disk, File, is_unreadable, reads_anywhere};
use crate::error::JournalError;
use crate::format::FRAME_OVERHEAD_BYTES;
use crate::limits;
use crate::segment::SegmentTable;
use crate::state::Tail;

/// Removes the segments from `keep` on, newest first, so that a crash leaves no hole.
pub(super) fn remove_from(
    disk: &dyn Disk,
    dir: &Path,
    table: &SegmentTable,
    bases: &[u64],
    keep: usize,
) -> Result<(), JournalError> {
    for base in bases[keep..].iter().rev() {
        let path = table.path(*base);
        disk.remove(&path)
            .map_err(|error| JournalError::io("remove", &path, error))?;
    }
    // Also without removals: a crash may have come between a creation and its sync.
    disk.sync_dir(dir)
        .map_err(|error| JournalError::io("sync", dir, error))
}

pub(super) fn settle_sealed(
    disk: &dyn Disk,
    table: &SegmentTable,
    kept: &Kept,
    synced: u64,
) -> Result<(), JournalError> {
    let path = table.path(kept.base);
    let mut len = kept.len;
    let too_long = kept.sealed && kept.len > kept.end - kept.base;
    if too_long || kept.end > synced {
        let file = disk
            .open(&path)
            .map_err(|error| JournalError::io("open", &path, error))?;
        write_again(&*file, kept.base, kept.end, synced)
            .and_then(|()| {
                if too_long {
                    len = kept.end - kept.base;
                    file.truncate(len)?;
                }
                file.sync()
            })
            .map_err(|error| JournalError::io("recover", &path, error))?;
    }
    let segment = Arc::new(kept.segment(kept.end, len));
    let base = segment.base;
    table.insert(segment, None);
    table.sealed(base);
    Ok(())
}

pub(super) fn settle_last(
    disk: &dyn Disk,
    table: &SegmentTable,
    kept: &Kept,
    synced: u64,
) -> Result<Tail, JournalError> {
    let path = table.path(kept.base);
    let file = disk
        .open(&path)
        .map_err(|error| JournalError::io("open", &path, error))?;
    // A seal without a next segment promises what is not there: appending goes on in its place.
    let end = if kept.sealed {
        kept.end - FRAME_OVERHEAD_BYTES
    } else {
        kept.end
    };
    let mut len = kept.len;
    let settled = write_again(&*file, kept.base, end, synced).and_then(|()| {
        let used = end - kept.base;
        // Space that was reserved before is kept if all of it reads as zeros.
        let reuse = len > used && !kept.ragged && !kept.sealed;
        if !reuse || file.allocate(used, len - used).is_err() {
            file.truncate(used)?;
            len = used;
        }
        file.sync()
    });
    settled.map_err(|error| JournalError::io("recover", &path, error))?;
    let segment = Arc::new(kept.segment(end, len));
    table.insert(segment.clone(), Some(file.clone()));
    Ok(Tail {
        segment,
        file,
        admitted: kept.base + len,
    })
}

/// Writes what stands between `synced` and `end` once more: after a failed sync the page cache
/// may show bytes, marked clean, that the disk never got.
fn write_again(file: &dyn File, base: u64, end: u64, synced: u64) -> io::Result<()> {
    let mut offset = synced.saturating_sub(base);
    let end = end - base;
    let mut bytes = vec![0; limits::RECOVERY_READ_BYTES.min(end.saturating_sub(offset) as usize)];
    while offset < end {
        let piece = bytes.len().min((end - offset) as usize);
        let copied = copy_over(file, &mut bytes[..piece], offset);
        match copied {
            Err(error) if is_unreadable(&error) && reads_anywhere(file) => {
                copy_blocks_over(file, &mut bytes[..piece], offset)?;
            }
            copied => copied?,
        }
        offset += piece as u64;
    }
    Ok(())
}

/// Writes each block that can be read once more. The others stay as they are: the walk may have
/// read good frames there.
fn copy_blocks_over(file: &dyn File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let place = offset + at as u64;
        let block = limits::DISK_BLOCK_BYTES - place % limits::DISK_BLOCK_BYTES;
        let end = bytes.len().min(at + block as usize);
        match copy_over(file, &mut bytes[at..end], place) {
            Err(error) if is_unreadable(&error) => {}
            copied => copied?,
        }
        at = end;
    }
    Ok(())
}

fn copy_over(file: &dyn File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    if file.read_at(bytes, offset)? < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.write_at(bytes, offset)
}
