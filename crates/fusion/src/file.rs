//! Small files that are read and written whole.
//!
//! A file is written anew beside its place and renamed over it, synced before and after: after a
//! crash the old or the new content is there.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a file of JSON; what it holds by default where there is none.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, std::io::Error> {
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Writes a file of JSON; durable on return.
///
/// # Errors
/// The file cannot be written; the old one is there.
pub fn write<T: Serialize>(path: &Path, content: &T) -> Result<(), std::io::Error> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(&serde_json::to_vec(content)?)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    sync_folder(path)
}

/// Makes a folder; durable on return.
///
/// # Errors
/// The folder cannot be made.
pub fn create_folder(path: &Path) -> Result<(), std::io::Error> {
    std::fs::create_dir_all(path)?;
    sync_folder(path)
}

/// Removes a file; durable on return.
///
/// # Errors
/// The file cannot be removed.
pub fn remove(path: &Path) -> Result<(), std::io::Error> {
    std::fs::remove_file(path)?;
    sync_folder(path)
}

fn sync_folder(path: &Path) -> Result<(), std::io::Error> {
    match path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
