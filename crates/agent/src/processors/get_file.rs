//! GetFile: takes the files of a folder, and removes them once their FlowFiles are durable.
//!
//! # Invariants
//!
//! - A file is removed only after the commit of its FlowFile is on the disk. What is committed and
//!   not yet removed stands in the processor's state, written by that commit; after a crash it is
//!   removed first, so that it is neither lost nor taken twice.
//! - A file that changes while it is read is left for the next time; one that changed after it was
//!   read is not removed but taken anew.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::files::{
    CopyError, Entry, FOLDER_PROPERTIES, Filter, Leftovers, Settle, Taken, Walk, file_uri, import,
};
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape, joined,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::SESSION_FLOW_FILES_MAX;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "GetFile",
    description: "Takes files out of a folder, one FlowFile for each. A file is removed when its \
                  FlowFile is on the disk, not before.",
    properties: &PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Every file.",
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
    ],
    input: Input::Forbidden,
    make: |settings| GetFile::new(settings).map(|made| Box::new(made) as _),
};

const PROPERTIES: [PropertyKind; 11] = joined(
    [
        PropertyKind::new("Input Directory", "The folder to take files from.")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new(
            "Keep Source File",
            "Whether files stay where they are; then they are taken again each time.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Polling Interval",
            "Shortest time between two readings of the folder.",
        )
        .default("0 sec")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Batch Size",
            "Files taken in one commit at most; 0 means any number.",
        )
        .default("10")
        .shape(Shape::Integer(0)),
    ],
    FOLDER_PROPERTIES,
);

struct GetFile {
    directory: PathBuf,
    filter: Filter,
    keeps: bool,
    interval: Duration,
    batch: usize,
    walk: Option<Walk>,
    last_walk: Option<UnixMillis>,
    leftovers: Option<Leftovers>,
}

impl GetFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(GetFile {
            directory: PathBuf::from(settings.needed("Input Directory")?),
            filter: Filter::new(settings, false)?,
            keeps: settings.flag("Keep Source File")?,
            interval: settings.duration("Polling Interval")?,
            batch: match settings.integer("Batch Size")? {
                0 => SESSION_FLOW_FILES_MAX,
                count => SESSION_FLOW_FILES_MAX.min(count),
            },
            walk: None,
            last_walk: None,
            leftovers: None,
        })
    }

    /// Begins a reading of the folder when none is under way and it is time for one.
    fn look(&mut self, now: UnixMillis) -> Result<(), ProcessorError> {
        let is_due = self
            .last_walk
            .is_none_or(|last| now.since(last) >= self.interval);
        if self.walk.is_none() && is_due {
            let walk = self.filter.walk(&self.directory).map_err(|error| {
                ProcessorError::Failed(format!("cannot list {}: {error}", self.directory.display()))
            })?;
            self.walk = Some(walk);
            self.last_walk = Some(now);
        }
        Ok(())
    }

    /// The next wanted file.
    fn find(&mut self, context: &Context, now: UnixMillis, leftovers: &Leftovers) -> Option<Entry> {
        loop {
            match self.walk.as_mut()?.next() {
                None => self.walk = None,
                Some(Err(problem)) => context.post(Level::Warning, &problem),
                Some(Ok(entry)) => {
                    if self.filter.takes(now, &entry)
                        && !leftovers.has(&entry.path, &entry.metadata)
                    {
                        return Some(entry);
                    }
                }
            }
        }
    }

    /// Reads a file; `None` when it cannot be had now.
    fn read(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        entry: &Entry,
    ) -> Result<Option<(FlowFile, Taken)>, ProcessorError> {
        let path = &entry.path;
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let message = format!("cannot read {}: {error}; it is left", path.display());
                context.post(Level::Warning, &message);
                return Ok(None);
            }
        };
        let failed = |error: std::io::Error| {
            ProcessorError::Failed(format!("cannot read {}: {error}", path.display()))
        };
        let before = Taken::new(path, &file.metadata().map_err(failed)?, Settle::Remove);
        let content = match import(session, &mut file) {
            Ok(content) => content,
            Err(CopyError::Outside(error)) => {
                context.post(Level::Warning, &failed(error).to_string());
                return Ok(None);
            }
            Err(CopyError::Session(error)) => return Err(error),
        };
        let after = Taken::new(path, &file.metadata().map_err(failed)?, Settle::Remove);
        if before != after {
            // Its writer is still at it.
            return Ok(None);
        }
        let mut flow_file = session.create(Arc::new(Attributes::new(entry.attributes())));
        session.set_content(&mut flow_file, content)?;
        session.note(&flow_file, EventKind::Receive, &file_uri(path));
        Ok(Some((flow_file, after)))
    }
}

impl Processor for GetFile {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut leftovers = match self.leftovers.take() {
            Some(leftovers) => leftovers,
            None => Leftovers::from_bytes(&session.state()).map_err(ProcessorError::Failed)?,
        };
        if self.walk.is_none() {
            leftovers.finish(context, session)?;
        }
        let now = session.now();
        self.look(now)?;
        let mut taken = Vec::new();
        let mut count = 0;
        while count < self.batch {
            let Some(entry) = self.find(context, now, &leftovers) else {
                break;
            };
            if let Some((flow_file, file)) = self.read(context, session, &entry)? {
                session.transfer(flow_file, 0);
                taken.push(file);
                count += 1;
            }
        }
        if self.keeps {
            taken.clear();
        }
        leftovers.commit(context, session, taken)?;
        self.leftovers = Some(leftovers);
        Ok(match &self.walk {
            Some(_) => Next::Again,
            None if count > 0 => Next::Scheduled,
            None => Next::Woken(IDLE),
        })
    }
}

/// Time between two readings of a folder that has nothing, whatever the schedule says.
const IDLE: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "get_file_tests.rs"]
mod tests;
