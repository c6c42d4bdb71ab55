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
    /// Something else has to be done first: nothing was changed, and the same may be asked again.
    #[error("{0}")]
    Busy(String),
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
    /// Whether the same may go well later: nothing is wrong with what was asked, but the event store,
    /// the disk or a sink does not take it at the moment.
    pub fn is_passing(&self) -> bool {
        match self {
            FusionError::Busy(_) | FusionError::Closed => true,
            FusionError::Journal { source, .. } => !matches!(source, JournalError::TooLarge { .. }),
            FusionError::Streams { source, .. } => matches!(
                source.as_ref(),
                StreamsError::Unavailable(_)
                    | StreamsError::Denied(_)
                    | StreamsError::Refused(_)
                    | StreamsError::Busy
                    | StreamsError::Full
                    | StreamsError::Closed
                    | StreamsError::Storage(_)
                    | StreamsError::Switching(_)
                    | StreamsError::TenantFull(_)
                    | StreamsError::Throttled { .. }
            ),
            _ => false,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_may_be_back_and_what_cannot_be_stays_so() {
        let streams = |error| FusionError::streams("open the source")(error);
        let topic: streams::TopicName = "t".parse().unwrap();
        for (error, is_passing) in [
            (streams(StreamsError::Unavailable("away".to_owned())), true),
            (streams(StreamsError::Full), true),
            (streams(StreamsError::AutoCreateOff(topic)), false),
            (FusionError::journal("write")(JournalError::Busy), true),
            (FusionError::Busy("the sink is behind".to_owned()), true),
            (FusionError::Refused("no".to_owned()), false),
            (FusionError::Limit("too many".to_owned()), false),
        ] {
            assert_eq!(error.is_passing(), is_passing, "{error:?}");
        }
    }
}
