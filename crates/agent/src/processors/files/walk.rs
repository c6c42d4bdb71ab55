//! The files of a folder that a processor wants, one after the other.
//!
//! Nothing of a folder is held in memory but where the reading stands. Links to folders are not
//! followed, so that no loop of links can be entered; links to files are.

use std::fs::{self, Metadata, ReadDir};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::UnixMillis;
use regex::Regex;

use crate::limits::FOLDER_DEPTH_MAX;
use crate::processors::{PropertyKind, Settings, Shape};

/// The properties that [`Filter`] and [`Walk`] read, after the folder itself.
pub(in crate::processors) const FOLDER_PROPERTIES: [PropertyKind; 7] = [
    PropertyKind::new(
        "Recurse Subdirectories",
        "Whether files of folders in the folder are taken too.",
    )
    .default("true")
    .shape(Shape::Flag),
    PropertyKind::new(
        "Ignore Hidden Files",
        "Whether files whose name begins with a dot are left.",
    )
    .default("true")
    .shape(Shape::Flag),
    PropertyKind::new(
        "Minimum File Age",
        "Files that changed more recently are left.",
    )
    .default("0 sec")
    .shape(Shape::Duration),
    PropertyKind::new(
        "Maximum File Age",
        "Files that changed longer ago are left; 0 sec means none.",
    )
    .default("0 sec")
    .shape(Shape::Duration),
    PropertyKind::new("Minimum File Size", "Smaller files are left.")
        .default("0 B")
        .shape(Shape::Size),
    PropertyKind::new(
        "Maximum File Size",
        "Larger files are left; 0 B means none.",
    )
    .default("0 B")
    .shape(Shape::Size),
    PropertyKind::new(
        "File Filter",
        "A regular expression; only files whose whole name it matches are taken.",
    )
    .default(".*"),
];

/// Which files are wanted.
pub(in crate::processors) struct Filter {
    recurses: bool,
    ignores_hidden: bool,
    age_min: Duration,
    age_max: Option<Duration>,
    size_min: u64,
    size_max: Option<u64>,
    name: Regex,
    folder: Option<Regex>,
}

/// A reading of a folder that is under way.
pub(in crate::processors) struct Walk {
    root: PathBuf,
    /// Open folders, innermost last, each with its path below the root.
    folders: Vec<(ReadDir, PathBuf)>,
    recurses: bool,
}

/// A file that was found.
#[derive(Debug)]
pub(in crate::processors) struct Entry {
    /// The whole path.
    pub(in crate::processors) path: PathBuf,
    /// The folder below the root, empty in the root itself.
    pub(in crate::processors) folder: PathBuf,
    pub(in crate::processors) metadata: Metadata,
}

impl Filter {
    /// Reads [`FOLDER_PROPERTIES`], and `Path Filter` where `has_path_filter`.
    pub(in crate::processors) fn new(
        settings: &Settings<'_>,
        has_path_filter: bool,
    ) -> Result<Self, String> {
        let pattern = |name: &str| -> Result<Option<Regex>, String> {
            let Some(text) = settings.text(name)? else {
                return Ok(None);
            };
            let pattern = Regex::new(&format!("^(?:{text})$"));
            pattern
                .map(Some)
                .map_err(|error| format!("{name}: {error}"))
        };
        let age_max = settings.duration("Maximum File Age")?;
        let size_max = settings.size("Maximum File Size")?;
        let name = pattern("File Filter")?;
        Ok(Filter {
            recurses: settings.flag("Recurse Subdirectories")?,
            ignores_hidden: settings.flag("Ignore Hidden Files")?,
            age_min: settings.duration("Minimum File Age")?,
            age_max: (!age_max.is_zero()).then_some(age_max),
            size_min: settings.size("Minimum File Size")?,
            size_max: (size_max > 0).then_some(size_max),
            name: name.unwrap_or_else(|| Regex::new("").expect("the empty pattern is one")),
            folder: if has_path_filter {
                pattern("Path Filter")?
            } else {
                None
            },
        })
    }

    /// Begins to read `root`.
    pub(in crate::processors) fn walk(&self, root: &Path) -> io::Result<Walk> {
        Walk::new(root, self.recurses)
    }

    /// Whether `entry` is wanted.
    pub(in crate::processors) fn takes(&self, now: UnixMillis, entry: &Entry) -> bool {
        let name = entry.name();
        let is_hidden = self.ignores_hidden && name.starts_with('.');
        if is_hidden || !self.name.is_match(&name) {
            return false;
        }
        let below = &entry.folder;
        if let Some(folder) = &self.folder
            && !below.as_os_str().is_empty()
            && !folder.is_match(&below.to_string_lossy())
        {
            return false;
        }
        let size = entry.metadata.len();
        if size < self.size_min || self.size_max.is_some_and(|max| size > max) {
            return false;
        }
        let age = now.since(entry.modified());
        age >= self.age_min && self.age_max.is_none_or(|max| age <= max)
    }
}

impl Walk {
    /// Begins to read `root`, and the folders in it where `recurses`.
    pub(in crate::processors) fn new(root: &Path, recurses: bool) -> io::Result<Walk> {
        Ok(Walk {
            root: root.to_owned(),
            folders: vec![(fs::read_dir(root)?, PathBuf::new())],
            recurses,
        })
    }

    /// The next file; an error is about one folder or file, and the reading goes on behind it.
    pub(in crate::processors) fn next(&mut self) -> Option<Result<Entry, String>> {
        loop {
            let (reading, below) = self.folders.last_mut()?;
            let folder = below.clone();
            let found = match reading.next() {
                None => {
                    self.folders.pop();
                    continue;
                }
                Some(Ok(found)) => found,
                Some(Err(error)) => {
                    self.folders.pop();
                    return Some(Err(self.failed(&folder, &error)));
                }
            };
            let path = found.path();
            let is_folder = found.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                if self.recurses
                    && let Err(error) = self.enter(&path, folder.join(found.file_name()))
                {
                    return Some(Err(error));
                }
                continue;
            }
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    return Some(Ok(Entry {
                        path,
                        folder,
                        metadata,
                    }));
                }
                // Neither file nor folder, or gone since.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    return Some(Err(format!("cannot look at {}: {error}", path.display())));
                }
            }
        }
    }

    fn enter(&mut self, path: &Path, below: PathBuf) -> Result<(), String> {
        if self.folders.len() >= FOLDER_DEPTH_MAX {
            return Err(format!(
                "{} is nested more deeply than {FOLDER_DEPTH_MAX} folders and left out",
                path.display()
            ));
        }
        match fs::read_dir(path) {
            Ok(reading) => self.folders.push((reading, below)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(self.failed(&below, &error)),
        }
        Ok(())
    }

    fn failed(&self, below: &Path, error: &io::Error) -> String {
        format!("cannot list {}: {error}", self.root.join(below).display())
    }
}

impl Entry {
    /// The file's name.
    pub(in crate::processors) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// When the file was changed last.
    pub(in crate::processors) fn modified(&self) -> UnixMillis {
        let (seconds, nanos) = (self.metadata.mtime(), self.metadata.mtime_nsec());
        UnixMillis(
            seconds
                .saturating_mul(1_000)
                .saturating_add(nanos / 1_000_000),
        )
    }

    /// The attributes `filename`, `path` (below the folder that is read, `./` in it) and
    /// `absolute.path`, each path with a slash at its end.
    pub(in crate::processors) fn attributes(&self) -> [(&'static str, String); 3] {
        let with_slash = |path: &Path| match path.to_string_lossy() {
            text if text.ends_with('/') => text.into_owned(),
            text => format!("{text}/"),
        };
        let below = match self.folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => &self.folder,
        };
        let parent = self.path.parent().unwrap_or(Path::new("."));
        let absolute = std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned());
        [
            ("filename", self.name()),
            ("path", with_slash(below)),
            ("absolute.path", with_slash(&absolute)),
        ]
    }
}
