//! The agent's own socket: how its operator, on the same machine, sees and steers it.
//!
//! `DATA/agent.sock`, mode 0600, so that whoever may read the data folder's secrets may ask. A
//! question is one line of JSON, `{"ask": "status"}`; the answer is one line, `{"ok": …}` or
//! `{"error": "…"}`, after which the agent closes. `debug` has `{"ok": {"bytes": n}}` and then n
//! bytes.

mod client;
mod lineage;
mod server;
mod status;
mod table;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::client::{debug, flow, provenance, status};
pub(crate) use self::lineage::ProvenanceQuestion;
pub(crate) use self::server::{Served, Server};
pub(crate) use self::status::{ProcessorView, QueueView, StatusView};

use crate::AgentError;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Question {
    /// [`StatusView`].
    Status,
    /// The flow's definition, without its secrets.
    Flow,
    /// Stops the flow, or one processor by id or name.
    Stop { processor: Option<String> },
    /// Starts the flow, or one processor by id or name.
    Start { processor: Option<String> },
    /// A debug bundle.
    Debug,
    /// Provenance events.
    Provenance(ProvenanceQuestion),
}

/// An answer of one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// The socket's address, however long the folder's name is: an address has room for some hundred
/// bytes, so it goes by the open folder, which is returned to be kept meanwhile.
fn address(dir: &Path) -> Result<(File, PathBuf), AgentError> {
    use std::os::fd::AsRawFd;
    let folder = File::open(dir).map_err(|source| AgentError::File {
        action: "open",
        path: dir.to_owned(),
        source,
    })?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()));
    Ok((folder, path))
}

/// The socket's name in the data folder.
const SOCKET: &str = "agent.sock";
