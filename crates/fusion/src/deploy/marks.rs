//! The generations that this node has seen, so that an older message does not count again.
//!
//! A JSON object of name to generation in one file. A file that cannot be read is an error: to begin
//! anew would let old messages count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::file;
use crate::limits::DESIRED_MAX;

/// The generations by name.
pub struct Marks {
    path: PathBuf,
    seen: BTreeMap<String, u64>,
}

impl Marks {
    /// Reads the file, or begins without one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &Path) -> Result<Marks, std::io::Error> {
        let seen = file::read(path)?;
        Ok(Marks {
            path: path.to_owned(),
            seen,
        })
    }

    /// The last generation of a name.
    pub fn seen(&self, name: &str) -> u64 {
        self.seen.get(name).copied().unwrap_or(0)
    }

    /// Keeps a generation; durable on return.
    ///
    /// # Errors
    /// The file cannot be written, or there are too many names.
    pub fn see(&mut self, name: &str, generation: u64) -> Result<(), std::io::Error> {
        if self.seen.len() >= DESIRED_MAX && !self.seen.contains_key(name) {
            let why = format!("there are {DESIRED_MAX} names of desired state already");
            return Err(std::io::Error::other(why));
        }
        let mut seen = self.seen.clone();
        seen.insert(name.to_owned(), generation);
        file::write(&self.path, &seen)?;
        self.seen = seen;
        Ok(())
    }
}
