//! Writes small files whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes `bytes` to `path`, durably: whoever reads it finds what was there before, or all of it.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = partial(path);
    let mut file = create(&partial)?;
    file.write_all(bytes)?;
    publish(file, &partial, path)
}

/// Begins a file that only its owner may read: flows and settings may hold secrets.
pub(crate) fn create(partial: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(partial)
}

/// Gives a file that was written under another name its own name, durably.
pub(crate) fn publish(file: File, partial: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    drop(file);
    fs::rename(partial, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The name under which a file is written before it is whole.
pub(crate) fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}
