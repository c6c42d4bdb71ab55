//! ListFile: tells of the files of a folder, each once, for FetchFile to bring them.
//!
//! What was told of is known by the newest time of change so far and the files that changed at
//! that very instant; so a file that changes is told of again, and one that appears with an older
//! time is not, as in MiNiFi. Files are told of oldest first, so that a restart goes on where it was.

use std::collections::{BinaryHeap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{UnixMillis, format_rfc3339};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::{Entry, FOLDER_PROPERTIES, Filter};
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, joined,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::limits::{LISTED_AT_ONCE_MAX, LISTING_FLOW_FILES_MAX};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ListFile",
    description: "Tells of the files of a folder: one FlowFile without content for each file that \
                  is new or has changed, for FetchFile.",
    properties: &PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Every file told of.",
    }],
    writes: &[
        AttributeKind::new("filename", "The file's name."),
        AttributeKind::new(
            "path",
            "Its folder below the input directory with a slash at the end; ./ in the directory \
             itself.",
        ),
        AttributeKind::new(
            "absolute.path",
            "Its folder's whole path with a slash at the end.",
        ),
        AttributeKind::new(
            "file.owner",
            "Its owner's name, or number where it has none.",
        ),
        AttributeKind::new(
            "file.group",
            "Its group's name, or number where it has none.",
        ),
        AttributeKind::new("file.size", "Its bytes."),
        AttributeKind::new("file.permissions", "Who may what, as rw-r--r--."),
        AttributeKind::new(
            "file.lastModifiedTime",
            "When it changed, as 2026-01-31T12:00:00Z.",
        ),
    ],
    input: Input::Forbidden,
    make: |settings| ListFile::new(settings).map(|made| Box::new(made) as _),
};

const PROPERTIES: [PropertyKind; 9] = joined(
    [
        PropertyKind::new("Input Directory", "The folder to tell of.")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new(
            "Path Filter",
            "A regular expression; of folders in the folder, only those whose whole path below it \
             matches are told of.",
        ),
    ],
    FOLDER_PROPERTIES,
);

struct ListFile {
    directory: PathBuf,
    filter: Filter,
    told: Option<Told>,
}

/// Up to where files were told of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Told {
    version: u8,
    /// The newest time of change: seconds and nanoseconds.
    newest: (i64, i64),
    /// Marks of the files that changed then.
    marks: HashSet<u64>,
}

/// A file on the list, by age and then by path.
struct Listed {
    key: ((i64, i64), PathBuf),
    entry: Entry,
}

impl ListFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ListFile {
            directory: PathBuf::from(settings.needed("Input Directory")?),
            filter: Filter::new(settings, true)?,
            told: None,
        })
    }

    /// The oldest files that were not told of, and whether there are more.
    fn list(
        &self,
        context: &Context,
        now: UnixMillis,
        told: &Told,
    ) -> Result<(Vec<Listed>, bool), ProcessorError> {
        let mut walk = self.filter.walk(&self.directory).map_err(|error| {
            ProcessorError::Failed(format!("cannot list {}: {error}", self.directory.display()))
        })?;
        let mut oldest = BinaryHeap::new();
        let mut has_more = false;
        while let Some(found) = walk.next() {
            let entry = match found {
                Ok(entry) => entry,
                Err(problem) => {
                    context.post(Level::Warning, &problem);
                    continue;
                }
            };
            if !self.filter.takes(now, &entry) || told.has(&entry) {
                continue;
            }
            oldest.push(Listed {
                key: (changed(&entry), entry.path.clone()),
                entry,
            });
            if oldest.len() > LISTING_FLOW_FILES_MAX {
                oldest.pop();
                has_more = true;
            }
        }
        Ok((oldest.into_sorted_vec(), has_more))
    }
}

impl Processor for ListFile {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut told = match &self.told {
            Some(told) => told.clone(),
            None => Told::from_bytes(&session.state()).map_err(ProcessorError::Failed)?,
        };
        let (listed, has_more) = self.list(context, session.now(), &told)?;
        if listed.is_empty() {
            self.told = Some(told);
            return Ok(Next::Woken(IDLE));
        }
        let names = Names::read();
        for listed in &listed {
            let attributes = names.attributes(&listed.entry);
            let flow_file = session.create(Arc::new(attributes));
            session.transfer(flow_file, 0);
            told.add(&listed.entry);
        }
        if told.marks.len() > LISTED_AT_ONCE_MAX {
            return Err(ProcessorError::Failed(format!(
                "more than {LISTED_AT_ONCE_MAX} files in {} changed at the same instant; list its \
                 folders one by one",
                self.directory.display()
            )));
        }
        session.set_state(told.to_bytes())?;
        session.commit()?;
        self.told = Some(told);
        Ok(if has_more {
            Next::Again
        } else {
            Next::Scheduled
        })
    }
}

impl Told {
    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Told {
                newest: (i64::MIN, 0),
                ..Told::default()
            });
        }
        serde_json::from_slice(bytes).map_err(|error| format!("its state is no state: {error}"))
    }

    fn to_bytes(&self) -> Bytes {
        let text = serde_json::to_vec(self).expect("plain numbers are always JSON");
        Bytes::from(text)
    }

    fn has(&self, entry: &Entry) -> bool {
        let at = changed(entry);
        at < self.newest || at == self.newest && self.marks.contains(&mark(&entry.path))
    }

    fn add(&mut self, entry: &Entry) {
        let at = changed(entry);
        if at > self.newest {
            self.newest = at;
            self.marks.clear();
        }
        self.marks.insert(mark(&entry.path));
    }
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Listed {}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Listed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// When a file changed: seconds and nanoseconds.
fn changed(entry: &Entry) -> (i64, i64) {
    (entry.metadata.mtime(), entry.metadata.mtime_nsec())
}

/// Stands for a path in the state.
fn mark(path: &Path) -> u64 {
    let digest: [u8; 32] = Sha256::digest(path.as_os_str().as_bytes()).into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

/// Names of users and groups, by the host's own files.
struct Names {
    users: String,
    groups: String,
}

impl Names {
    fn read() -> Names {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Names {
            users: read("/etc/passwd"),
            groups: read("/etc/group"),
        }
    }

    fn attributes(&self, entry: &Entry) -> Attributes {
        let metadata = &entry.metadata;
        let mut attributes = Attributes::new(entry.attributes());
        attributes.set("file.owner", name_of(&self.users, metadata.uid()));
        attributes.set("file.group", name_of(&self.groups, metadata.gid()));
        attributes.set("file.size", metadata.len().to_string());
        attributes.set("file.permissions", permissions(metadata.mode()));
        let second = metadata.mtime().saturating_mul(1_000);
        attributes.set(
            "file.lastModifiedTime",
            format_rfc3339(UnixMillis(second)).replace(".000Z", "Z"),
        );
        attributes
    }
}

/// The name in the first field of the line whose third field is `id`.
fn name_of(table: &str, id: u32) -> String {
    let id = id.to_string();
    let line = table
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&id));
    match line.and_then(|line| line.split(':').next()) {
        Some(name) => name.to_owned(),
        None => id,
    }
}

fn permissions(mode: u32) -> String {
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    bits.map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' })
        .collect()
}

/// Time between two readings of a folder without news, whatever the schedule says.
const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "list_file_tests.rs"]
mod tests;
