//! What can go wrong with a statement, in the domain's words.

use std::sync::Arc;

use journal::JournalError;
use streams::StreamsError;

/// A statement text that does not compile; the writer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct TextError {
    /// What is wrong and what to do.
    pub message: String,
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

/// An error of the statement engine.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FusionError {
    /// The text does not compile; the caller's fault.
    #[error("the statement does not compile")]
    Text(#[source] TextError),
    /// The request cannot be met as it stands; the caller's fault.
    #[error("{0}")]
    Refused(String),
    /// No statement has that id or name.
    #[error("no statement is called '{0}': GET /api/v1/statements lists what there is")]
    Unknown(String),
    /// The name is taken.
    #[error("a statement is already called '{0}': choose another name or remove that one first")]
    NameTaken(String),
    /// No module of functions has that name.
    #[error("no module of functions is called '{0}': GET /api/v1/statement-functions lists them")]
    UnknownModule(String),
    /// A module of that name is there.
    #[error(
        "a module of functions is already called '{0}': statements that use it would change; add \
         this one by another name, or remove that one first"
    )]
    ModuleTaken(String),
    /// A module that statements call.
    #[error("functions of {module} are called by {users}: remove or replace those first")]
    ModuleUsed {
        /// The module.
        module: String,
        /// Who calls it, for people.
        users: String,
    },
    /// A bound is reached.
    #[error("{0}")]
    Limit(String),
    /// The engine is closing.
    #[error("the statement engine is closing")]
    Closed,
    /// The statement journal failed.
    #[error("cannot {doing} the statement journal")]
    Journal {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: JournalError,
    },
    /// The event store failed.
    #[error("cannot {doing}")]
    Streams {
        /// What was being done.
        doing: String,
        /// Why it failed.
        #[source]
        source: Arc<StreamsError>,
    },
    /// The statement journal, or what lies beside it, holds what this version cannot read.
    #[error("the folder of statements holds {0}: open the folder with the version that wrote it")]
    Unreadable(String),
}

impl FusionError {
    pub(crate) fn journal(doing: &'static str) -> impl FnOnce(JournalError) -> FusionError {
        move |source| FusionError::Journal { doing, source }
    }

    pub(crate) fn streams(doing: impl Into<String>) -> impl FnOnce(StreamsError) -> FusionError {
        let doing = doing.into();
        move |source| FusionError::Streams {
            doing,
            source: Arc::new(source),
        }
    }
}
