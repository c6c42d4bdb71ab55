//! Archives of several contents in one: tar and zip, written around contents that stay where they
//! are, as far as the format allows.

mod read;
mod tar;
mod zip;

pub(super) use read::{ArchiveError, Packed, tar_files, zip_files};
pub(super) use tar::{TAR_BLOCK_BYTES, tar_end, tar_first, tar_header};
pub(super) use zip::{ZipEntry, zip_end, zip_local_header};

/// One file of an archive.
#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    /// Its name, with folders or without.
    pub(super) name: &'a str,
    /// Its bytes.
    pub(super) size: u64,
    /// Who may what, `0o644`.
    pub(super) mode: u32,
    /// Seconds since 1970.
    pub(super) modified: u64,
}
