//! The flow that the control plane gave last, as the data folder keeps it: whole or not at all, its
//! secrets sealed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Supervisor, read};
use crate::AgentError;
use crate::definition::seal;
use crate::parameters::SecretKey;
use crate::whole_file;

/// The flow that the control plane gave last, as the data folder keeps it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppliedFlow {
    version: u8,
    pub(super) flow_id: Option<String>,
    applied_ms: i64,
    pub(super) text: String,
}

impl Supervisor {
    pub(super) fn applied(&self) -> Result<Option<AppliedFlow>, AgentError> {
        let path = self.applied_path();
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| AgentError::File {
                action: "read",
                path,
                source: source.into(),
            })
    }

    /// The text with its secrets sealed; it was read before, so it can be read.
    fn sealed(&self, text: &str) -> Result<String, AgentError> {
        let key = match &self.ground.outside.key {
            Some(key) => key.clone(),
            // The next start finds it there.
            None => SecretKey::make_in_folder(&self.dir)?,
        };
        let sealed = seal(text, &key).map_err(AgentError::Setting)?;
        Ok(sealed.unwrap_or_else(|| text.to_owned()))
    }

    pub(super) fn persist(&self, flow_id: Option<String>, text: &str) -> Result<(), AgentError> {
        let applied = AppliedFlow {
            version: 1,
            flow_id,
            applied_ms: self.ground.clock.now().0,
            text: self.sealed(text)?,
        };
        let path = self.applied_path();
        serde_json::to_vec_pretty(&applied)
            .map_err(std::io::Error::from)
            .and_then(|bytes| whole_file::write(&path, &bytes))
            .map_err(|source| AgentError::File {
                action: "write",
                path: path.clone(),
                source,
            })
    }

    pub(super) fn applied_path(&self) -> PathBuf {
        self.dir.join("applied-flow.json")
    }
}
