//! What can go wrong in the agent, in the agent's own words.

use std::path::PathBuf;

use journal::JournalError;

use crate::definition::Problems;

/// An error of the agent.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The flow definition has mistakes; its author's fault, a retry does not help.
    #[error("the flow in {origin} cannot run:\n{problems}")]
    Flow {
        /// File or address of the flow.
        origin: String,
        /// Every mistake found, each with its path.
        problems: Problems,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried: `read`, `write`, `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The repository failed; poisoned or full, see the source.
    #[error("cannot {action} the FlowFile repository")]
    Repository {
        /// What was tried: `open`, `append to`, `read from`.
        action: &'static str,
        /// Why not.
        #[source]
        source: JournalError,
    },
    /// Volatile content has no room now; a retry helps when FlowFiles have come to their end.
    #[error("the volatile content repository has no room; it is tried again")]
    NoRoom,
    /// A processor did not start; the flow's author's or a peer's fault.
    #[error("processor '{processor}' did not start: {reason}")]
    Start {
        /// The processor's name.
        processor: String,
        /// Why not.
        reason: String,
    },
    /// A setting on the command line or in a properties file is wrong.
    #[error("{0}")]
    Setting(String),
    /// What was asked of the running agent cannot be done; the asker's fault, the text says why.
    #[error("{0}")]
    Refused(String),
    /// The control plane could not be reached or answered nonsense; a retry helps.
    #[error("cannot {action} at the control plane")]
    Control {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system refused something that the agent cannot do without.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl AgentError {
    /// Whether the repository's file system is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, AgentError::Repository { source, .. } if source.is_read_only())
    }
}
