//! PutFile: writes content to files, each under its final name only when it is whole and on the
//! disk.
//!
//! # Invariants
//!
//! - A file is written under a hidden name of its FlowFile (`.<uuid>.part`) in its folder, synced,
//!   and then linked to its final name, so that nobody sees a part of it and no other file is
//!   replaced unless that is asked for. The folder is synced before the FlowFile is passed on.
//! - The hidden name goes only when the commit is on the disk. A FlowFile that is written once
//!   more after a crash finds it, sees that the file of the final name is its own, and is done: a
//!   crash neither loses a file nor lets a FlowFile fail on its own file.
//! - Where the file system knows no links, the file is renamed, and a crash just then makes a
//!   FlowFile meet its own file as if it were another's.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::files::{CopyError, Leftovers, Settle, Taken, file_uri, sync_folder, write_out};
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::fail_point::fail_point;
use crate::flowfile::FlowFile;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "PutFile",
    description: "Writes each FlowFile's content to a file named by its attribute 'filename', or \
                  by its uuid where it has none. The file is on the disk before the FlowFile goes \
                  on.",
    properties: &[
        PropertyKind::new("Directory", "Where files are written.")
            .default(".")
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Conflict Resolution Strategy",
            "What becomes of a FlowFile whose file is there: it replaces the file, it is passed \
             on unwritten, or it fails.",
        )
        .default("fail")
        .allowed(&["fail", "ignore", "replace"]),
        PropertyKind::new(
            "Create Missing Directories",
            "Whether missing folders are made.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Maximum File Count",
            "Files in the folder at most; -1 means any.",
        )
        .default("-1")
        .shape(Shape::Integer(-1)),
        PropertyKind::new(
            "Permissions",
            "Who may what with a file, in octal digits as 644; empty leaves it to the agent's \
             umask.",
        ),
        PropertyKind::new(
            "Directory Permissions",
            "The same for folders that are made.",
        ),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles that are written.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be written.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| PutFile::new(settings).map(|made| Box::new(made) as _),
};

struct PutFile {
    directory: Expression,
    conflict: Conflict,
    makes_directories: bool,
    count_max: Option<usize>,
    permissions: Option<u32>,
    directory_permissions: Option<u32>,
    leftovers: Option<Leftovers>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conflict {
    Fail,
    Ignore,
    Replace,
}

/// A file on its way: where it is written, and where it belongs.
struct Target {
    folder: PathBuf,
    partial: PathBuf,
    path: PathBuf,
}

impl PutFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let count: i64 = settings.integer("Maximum File Count")?;
        let mode = |name: &str| -> Result<Option<u32>, String> {
            let Some(text) = settings.text(name)? else {
                return Ok(None);
            };
            match u32::from_str_radix(text.trim(), 8) {
                Ok(mode) if mode <= 0o777 => Ok(Some(mode)),
                _ => Err(format!(
                    "{name}: '{text}' is none; write three octal digits, as 644"
                )),
            }
        };
        Ok(PutFile {
            directory: settings
                .expression("Directory")?
                .ok_or("Directory is empty")?,
            conflict: match settings.needed("Conflict Resolution Strategy")?.as_str() {
                "replace" => Conflict::Replace,
                "ignore" => Conflict::Ignore,
                _ => Conflict::Fail,
            },
            makes_directories: settings.flag("Create Missing Directories")?,
            count_max: usize::try_from(count).ok(),
            permissions: mode("Permissions")?,
            directory_permissions: mode("Directory Permissions")?,
            leftovers: None,
        })
    }

    /// Writes the file; its hidden name, where that is to be removed later.
    fn put(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Option<Taken>, PutError> {
        let target = self.target(session, flow_file)?;
        let refused = |error: io::Error| {
            PutError::File(format!("cannot write {}: {error}", target.path.display()))
        };
        if self.makes_directories {
            self.make_folder(&target.folder).map_err(refused)?;
        }
        if let Some(own) = target.is_written().map_err(refused)? {
            return Ok(Some(own));
        }
        if target.path.symlink_metadata().is_ok() {
            match self.conflict {
                Conflict::Replace => {}
                Conflict::Ignore => return Ok(None),
                Conflict::Fail => {
                    return Err(PutError::File(format!("{} exists", target.path.display())));
                }
            }
        } else if let Some(max) = self.count_max
            && files_in(&target.folder, max).map_err(refused)? >= max
        {
            return Err(PutError::File(format!(
                "{} holds {max} files already",
                target.folder.display()
            )));
        }
        self.write(session, flow_file, &target)
            .inspect_err(|_| remove_partial(&target.partial))?;
        fail_point("put_file.written");
        let own = self.name(&target).map_err(|error| {
            remove_partial(&target.partial);
            match error.kind() {
                ErrorKind::AlreadyExists => {
                    PutError::File(format!("{} exists", target.path.display()))
                }
                _ => refused(error),
            }
        })?;
        fail_point("put_file.named");
        Ok(own)
    }

    fn target(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Target, PutError> {
        let folder = self
            .directory
            .evaluate(session.scope(flow_file))
            .map_err(|error| PutError::File(error.to_string()))?;
        let folder = PathBuf::from(folder.as_ref());
        let uuid = session.uuid(flow_file);
        let name = session.filename(flow_file);
        let name = name.as_ref();
        // A name with a path in it would leave the folder.
        let is_plain = Path::new(name)
            .file_name()
            .is_some_and(|plain| plain == name);
        if !is_plain {
            return Err(PutError::File(format!("'{name}' is no name of a file")));
        }
        Ok(Target {
            partial: folder.join(format!(".{uuid}{PARTIAL}")),
            path: folder.join(name),
            folder,
        })
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        let Some(mode) = self.directory_permissions else {
            return builder.create(folder);
        };
        if folder.is_dir() {
            return Ok(());
        }
        builder.mode(mode).create(folder)?;
        // The umask may have taken some away.
        fs::set_permissions(folder, Permissions::from_mode(mode))
    }

    fn write(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        target: &Target,
    ) -> Result<(), PutError> {
        let refused = |error: io::Error| {
            PutError::File(format!("cannot write {}: {error}", target.path.display()))
        };
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&target.partial);
        let mut file = opened.map_err(refused)?;
        match write_out(session, flow_file, &mut file) {
            Ok(()) => {}
            Err(CopyError::Outside(error)) => return Err(refused(error)),
            Err(CopyError::Session(error)) => return Err(PutError::Session(error)),
        }
        if let Some(mode) = self.permissions {
            let permissions = Permissions::from_mode(mode);
            file.set_permissions(permissions).map_err(refused)?;
        }
        file.sync_all().map_err(refused)
    }

    /// Gives the written file its final name.
    fn name(&self, target: &Target) -> io::Result<Option<Taken>> {
        if self.conflict == Conflict::Replace {
            fs::rename(&target.partial, &target.path)?;
            return Ok(None);
        }
        match fs::hard_link(&target.partial, &target.path) {
            Ok(()) => target.own().map(Some),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            Err(_) => fs::rename(&target.partial, &target.path).map(|()| None),
        }
    }
}

impl Target {
    /// The hidden name of the file when the final name is the same file: a crash came after it
    /// was linked.
    fn is_written(&self) -> io::Result<Option<Taken>> {
        let (Ok(partial), Ok(whole)) = (fs::metadata(&self.partial), fs::metadata(&self.path))
        else {
            return Ok(None);
        };
        if (partial.dev(), partial.ino()) == (whole.dev(), whole.ino()) {
            self.own().map(Some)
        } else {
            Ok(None)
        }
    }

    fn own(&self) -> io::Result<Taken> {
        let metadata = fs::metadata(&self.partial)?;
        Ok(Taken::new(&self.partial, &metadata, Settle::Unlink))
    }
}

enum PutError {
    File(String),
    Session(ProcessorError),
}

impl Processor for PutFile {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut leftovers = match self.leftovers.take() {
            Some(leftovers) => leftovers,
            None => Leftovers::from_bytes(&session.state()).map_err(ProcessorError::Failed)?,
        };
        leftovers.finish(context, session)?;
        let mut folders = BTreeSet::new();
        let mut linked = Vec::new();
        for flow_file in session.take(BATCH, u64::MAX) {
            match self.put(session, &flow_file) {
                Ok(own) => {
                    linked.extend(own);
                    if let Ok(target) = self.target(session, &flow_file) {
                        session.note(&flow_file, EventKind::Send, &file_uri(&target.path));
                        folders.insert(target.folder);
                    }
                    session.transfer(flow_file, SUCCESS);
                }
                Err(PutError::File(message)) => {
                    context.post(Level::Error, &message);
                    session.transfer_penalized(flow_file, FAILURE);
                }
                Err(PutError::Session(error)) => return Err(error),
            }
        }
        for folder in folders {
            sync_folder(&folder).map_err(|error| {
                ProcessorError::Failed(format!("cannot sync {}: {error}", folder.display()))
            })?;
        }
        leftovers.commit(context, session, linked)?;
        self.leftovers = Some(leftovers);
        Ok(Next::Scheduled)
    }
}

/// Files in `folder`, up to `max`, without those that are being written.
fn files_in(folder: &Path, max: usize) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with('.') && name.ends_with(PARTIAL)) {
            count += 1;
        }
        if count >= max {
            break;
        }
    }
    Ok(count)
}

fn remove_partial(partial: &Path) {
    if let Err(error) = fs::remove_file(partial) {
        tracing::debug!(path = %partial.display(), %error, "not removed");
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// What the name of a file that is being written ends with.
const PARTIAL: &str = ".part";

/// FlowFiles written before their commit.
const BATCH: usize = 100;

#[cfg(test)]
#[path = "put_file_tests.rs"]
mod tests;
