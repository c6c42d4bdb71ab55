//! PutFile: writes content to files, each under its final name only when it is whole.
//!
//! At least once: a FlowFile whose file was written just before a crash is written again.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "PutFile",
    description: "Writes each FlowFile's content to a file named by its attribute 'filename', or \
                  by its uuid where it has none.",
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
    conflict: String,
    makes_directories: bool,
    count_max: Option<usize>,
}

impl PutFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let count: i64 = settings.integer("Maximum File Count")?;
        Ok(PutFile {
            directory: settings
                .expression("Directory")?
                .ok_or("Directory is empty")?,
            conflict: settings.needed("Conflict Resolution Strategy")?,
            makes_directories: settings.flag("Create Missing Directories")?,
            count_max: usize::try_from(count).ok(),
        })
    }

    fn put(&self, session: &ProcessSession<'_>, flow_file: &FlowFile) -> Result<(), PutError> {
        let directory = self
            .directory
            .evaluate(session.scope(flow_file))
            .map_err(|error| PutError::File(error.to_string()))?;
        let directory = Path::new(directory.as_ref());
        let name = match flow_file.attributes().get("filename") {
            Some(name) => name.to_owned(),
            None => session.uuid(flow_file),
        };
        // A name with a path in it would leave the folder.
        let is_plain = Path::new(&name)
            .file_name()
            .is_some_and(|plain| plain == name.as_str());
        if !is_plain {
            return Err(PutError::File(format!("'{name}' is no name of a file")));
        }
        let refused = |path: &Path, error: std::io::Error| {
            PutError::File(format!("cannot write {}: {error}", path.display()))
        };
        if self.makes_directories {
            fs::create_dir_all(directory).map_err(|error| refused(directory, error))?;
        }
        let path: PathBuf = directory.join(&name);
        if path.exists() {
            match self.conflict.as_str() {
                "replace" => {}
                "ignore" => return Ok(()),
                _ => return Err(PutError::File(format!("{} exists", path.display()))),
            }
        } else if let Some(max) = self.count_max {
            let entries = fs::read_dir(directory).map_err(|error| refused(directory, error))?;
            if entries.take(max).count() >= max {
                return Err(PutError::File(format!(
                    "{} holds {max} files already",
                    directory.display()
                )));
            }
        }
        let content = session.read(flow_file).map_err(PutError::Session)?;
        let partial = directory.join(format!(".{name}.part"));
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(&partial)?;
            file.write_all(&content)?;
            file.sync_data()?;
            fs::rename(&partial, &path)
        };
        write().map_err(|error| refused(&path, error))
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
        for flow_file in session.take(BATCH, u64::MAX) {
            match self.put(session, &flow_file) {
                Ok(()) => session.transfer(flow_file, SUCCESS),
                Err(PutError::File(message)) => {
                    context.post(Level::Error, &message);
                    session.transfer_penalized(flow_file, FAILURE);
                }
                Err(PutError::Session(error)) => return Err(error),
            }
        }
        Ok(Next::Scheduled)
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles written before their commit.
const BATCH: usize = 100;
