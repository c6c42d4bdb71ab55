//! FetchFile: gives FlowFiles the content of files, and removes or moves these once that is
//! durable.
//!
//! What is to become of a file stands in the processor's state from the commit of its FlowFile
//! until it is done, see [`super::files`].

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::files::{CopyError, Leftovers, Settle, Taken, file_uri, import, raw_path};
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "FetchFile",
    description: "Gives each FlowFile the content of a file, most often one that ListFile told \
                  of. The file is moved or removed when the FlowFile is on the disk, not before.",
    properties: &[
        PropertyKind::new(
            "File to Fetch",
            "The file's whole path; empty means ${absolute.path}/${filename}.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Completion Strategy",
            "What becomes of the file when it was fetched.",
        )
        .default("None")
        .allowed(&["None", "Move File", "Delete File"]),
        PropertyKind::new(
            "Move Destination Directory",
            "Where fetched files are moved; it is made when it is missing.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Move Conflict Strategy",
            "What becomes of a fetched file when the name is taken where it is moved: it gets the \
             FlowFile's uuid before its name, it replaces the other, it is removed, or nothing is \
             fetched and the FlowFile fails.",
        )
        .default("Rename")
        .allowed(&["Rename", "Replace File", "Keep Existing", "Fail"]),
        PropertyKind::new(
            "Log level when file not found",
            "How loud it is told that a file is not there.",
        )
        .default("ERROR")
        .allowed(LEVELS),
        PropertyKind::new(
            "Log level when permission denied",
            "How loud it is told that a file may not be read.",
        )
        .default("ERROR")
        .allowed(LEVELS),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with their file's content.",
        },
        RelationshipKind {
            name: "not.found",
            description: "FlowFiles whose file is not there, or is none.",
        },
        RelationshipKind {
            name: "permission.denied",
            description: "FlowFiles whose file may not be read.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose file cannot be read or moved for another reason.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| FetchFile::new(settings).map(|made| Box::new(made) as _),
};

const LEVELS: &[&str] = &["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "CRITICAL", "OFF"];

struct FetchFile {
    file: Option<Expression>,
    completion: Completion,
    missing: String,
    denied: String,
    leftovers: Option<Leftovers>,
}

enum Completion {
    None,
    Delete,
    Move { to: Expression, conflict: Conflict },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conflict {
    Rename,
    Replace,
    Keep,
    Fail,
}

/// Where a FlowFile goes that got no content.
struct Failed {
    relationship: usize,
    message: String,
}

impl FetchFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let completion = match settings.needed("Completion Strategy")?.as_str() {
            "Delete File" => Completion::Delete,
            "Move File" => Completion::Move {
                to: settings
                    .expression("Move Destination Directory")?
                    .ok_or("Move Destination Directory is needed to move files")?,
                conflict: match settings.needed("Move Conflict Strategy")?.as_str() {
                    "Replace File" => Conflict::Replace,
                    "Keep Existing" => Conflict::Keep,
                    "Fail" => Conflict::Fail,
                    _ => Conflict::Rename,
                },
            },
            _ => Completion::None,
        };
        Ok(FetchFile {
            file: settings.expression("File to Fetch")?,
            completion,
            missing: settings.needed("Log level when file not found")?,
            denied: settings.needed("Log level when permission denied")?,
            leftovers: None,
        })
    }

    /// Brings the content; says what becomes of the file.
    fn fetch(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &mut FlowFile,
    ) -> Result<Result<Option<Taken>, Failed>, ProcessorError> {
        let prepared = self.path(session, flow_file).and_then(|path| {
            let settle = self.settle(session, flow_file, &path)?;
            Ok((path, settle))
        });
        let (path, settle) = match prepared {
            Ok(prepared) => prepared,
            Err(failed) => return Ok(Err(failed)),
        };
        let opened = File::open(&path).and_then(|file| {
            let metadata = file.metadata()?;
            if metadata.is_file() {
                Ok((file, metadata))
            } else {
                Err(std::io::Error::new(ErrorKind::NotFound, "it is no file"))
            }
        });
        let failed = |error: &std::io::Error| {
            let relationship = match error.kind() {
                ErrorKind::NotFound => NOT_FOUND,
                ErrorKind::PermissionDenied => PERMISSION_DENIED,
                _ => FAILURE,
            };
            Failed {
                relationship,
                message: format!("cannot fetch {}: {error}", path.display()),
            }
        };
        let (mut file, metadata) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(failed(&error))),
        };
        let content = match import(session, &mut file) {
            Ok(content) => content,
            Err(CopyError::Outside(error)) => return Ok(Err(failed(&error))),
            Err(CopyError::Session(error)) => return Err(error),
        };
        session.set_content(flow_file, content)?;
        session.note(flow_file, EventKind::Fetch, &file_uri(&path));
        Ok(Ok(settle.map(|settle| Taken::new(&path, &metadata, settle))))
    }

    fn path(&self, session: &ProcessSession<'_>, flow_file: &FlowFile) -> Result<PathBuf, Failed> {
        let path = match &self.file {
            Some(file) => {
                let path = file.evaluate(session.scope(flow_file));
                PathBuf::from(
                    path.map_err(|error| Failed::because(error.to_string()))?
                        .as_ref(),
                )
            }
            None => {
                let attribute = |name: &str| flow_file.attribute(name);
                let (Some(folder), Some(name)) =
                    (attribute("absolute.path"), attribute("filename"))
                else {
                    return Err(Failed::because(
                        "the FlowFile has no attributes absolute.path and filename; set File to \
                         Fetch"
                            .to_owned(),
                    ));
                };
                Path::new(folder.as_ref()).join(name.as_ref())
            }
        };
        if path.as_os_str().is_empty() {
            return Err(Failed::because("File to Fetch is empty for it".to_owned()));
        }
        Ok(path)
    }

    fn settle(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        path: &Path,
    ) -> Result<Option<Settle>, Failed> {
        let (to, conflict) = match &self.completion {
            Completion::None => return Ok(None),
            Completion::Delete => return Ok(Some(Settle::Remove)),
            Completion::Move { to, conflict } => (to, *conflict),
        };
        let folder = to
            .evaluate(session.scope(flow_file))
            .map_err(|error| Failed::because(error.to_string()))?;
        let folder = Path::new(folder.as_ref());
        let name = path.file_name().unwrap_or_default();
        let to = folder.join(name);
        if conflict == Conflict::Fail && to.exists() {
            let message = format!("{} exists, so nothing is fetched", to.display());
            return Err(Failed::because(message));
        }
        let other = format!("{}-{}", session.uuid(flow_file), name.to_string_lossy());
        Ok(Some(Settle::Move {
            to: raw_path(&to),
            replaces: conflict == Conflict::Replace,
            else_to: match conflict {
                Conflict::Keep => None,
                _ => Some(raw_path(&folder.join(other))),
            },
        }))
    }

    fn tell(&self, context: &Context, failed: &Failed) {
        let level = match failed.relationship {
            NOT_FOUND => self.missing.as_str(),
            PERMISSION_DENIED => self.denied.as_str(),
            _ => "ERROR",
        };
        let level = match level {
            "INFO" => Level::Info,
            "WARN" => Level::Warning,
            "ERROR" | "CRITICAL" => Level::Error,
            "DEBUG" => return tracing::debug!("{}", failed.message),
            "TRACE" => return tracing::trace!("{}", failed.message),
            _ => return,
        };
        context.post(level, &failed.message);
    }
}

impl Processor for FetchFile {
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
        let mut taken = Vec::new();
        for mut flow_file in session.take(BATCH, BATCH_BYTES) {
            match self.fetch(session, &mut flow_file)? {
                Ok(file) => {
                    taken.extend(file);
                    session.transfer(flow_file, SUCCESS);
                }
                Err(failed) => {
                    self.tell(context, &failed);
                    session.transfer(flow_file, failed.relationship);
                }
            }
        }
        leftovers.commit(context, session, taken)?;
        self.leftovers = Some(leftovers);
        Ok(Next::Scheduled)
    }
}

impl Failed {
    fn because(message: String) -> Failed {
        Failed {
            relationship: FAILURE,
            message,
        }
    }
}

const SUCCESS: usize = 0;
const NOT_FOUND: usize = 1;
const PERMISSION_DENIED: usize = 2;
const FAILURE: usize = 3;

/// FlowFiles fetched for in one commit.
const BATCH: usize = 10;

/// Bytes that they hold before, which are most often none.
const BATCH_BYTES: u64 = u64::MAX;

#[cfg(test)]
#[path = "fetch_file_tests.rs"]
mod tests;
