//! A log file that begins anew when it is full: `NAME`, then `NAME.1` and so on, older each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open log file.
#[derive(Debug)]
pub struct RollingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    files_max: usize,
}

impl RollingFile {
    /// Opens `path` at its end. There are at most `files_max` files of `bytes_max` each.
    ///
    /// # Errors
    /// A file, or its folder, that cannot be made.
    pub fn open(path: &Path, bytes_max: u64, files_max: usize) -> io::Result<RollingFile> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder)?;
        }
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(RollingFile {
            path: path.to_owned(),
            file,
            bytes,
            bytes_max,
            files_max: files_max.max(1),
        })
    }

    fn roll(&mut self) -> io::Result<()> {
        if self.files_max == 1 {
            self.file.set_len(0)?;
        } else {
            for number in (1..self.files_max).rev() {
                let from = match number {
                    1 => self.path.clone(),
                    _ => numbered(&self.path, number - 1),
                };
                match fs::rename(&from, numbered(&self.path, number)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.file = append(&self.path)?;
        }
        self.bytes = 0;
        Ok(())
    }
}

/// What is written at once stays in one file.
impl Write for RollingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            self.roll()?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The files of a [`RollingFile`] that exist, newest first.
pub(super) fn rolled_files(path: &Path, files_max: usize) -> Vec<PathBuf> {
    let older = (1..files_max).map(|number| numbered(path, number));
    std::iter::once(path.to_owned())
        .chain(older)
        .filter(|path| path.exists())
        .collect()
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_files_are_numbered_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/agent.log");
        let mut log = RollingFile::open(&path, 10, 3).unwrap();
        for line in [
            "aaaa\n", "bbbb\n", "cccc\n", "dddd\n", "eeee\n", "ffff\n", "gggg\n",
        ] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let texts: Vec<String> = rolled_files(&path, 3)
            .iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        assert_eq!(texts, ["gggg\n", "eeee\nffff\n", "cccc\ndddd\n"]);
        drop(log);
        let mut again = RollingFile::open(&path, 10, 3).unwrap();
        again.write_all(b"hhhh\n").unwrap();
        again.write_all(b"iiii\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "iiii\n");
    }
}
