//! The flow that the control plane gave last, as the data folder keeps it: whole or not at all, its
//! secrets sealed.

use std::path::PathBuf;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Supervisor, read};
use crate::AgentError;
use crate::bulletins::Level;
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
    /// Of the text; none in files of before.
    #[serde(default)]
    crc32c: Option<u32>,
}

/// Whether the file itself is damaged; any other error may pass.
pub(super) fn is_damage(error: &AgentError) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    let AgentError::File { source, .. } = error else {
        return false;
    };
    matches!(source.kind(), InvalidData | UnexpectedEof)
        || source.raw_os_error() == Some(Errno::IO.raw_os_error())
}

impl Supervisor {
    pub(super) fn applied(&self) -> Result<Option<AppliedFlow>, AgentError> {
        let path = self.applied_path();
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        let damaged = |source| AgentError::File {
            action: "read",
            path,
            source,
        };
        let applied: AppliedFlow = match serde_json::from_str(&text) {
            Ok(applied) => applied,
            Err(error) => return Err(damaged(error.into())),
        };
        let sum = crc32c::crc32c(applied.text.as_bytes());
        if applied.crc32c.is_some_and(|known| known != sum) {
            let reason = "the flow in it is not the one that was written";
            return Err(damaged(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                reason,
            )));
        }
        Ok(Some(applied))
    }

    /// Keeps a file that cannot be read for whoever wants to look, out of the way of the next one.
    pub(super) fn set_aside(&self, error: &AgentError) {
        let path = self.applied_path();
        let aside = path.with_extension("json.damaged");
        let message = format!(
            "the last flow of the control plane is damaged, and kept as {}: {}",
            aside.display(),
            base::report(error)
        );
        if let Err(error) = std::fs::rename(&path, &aside) {
            tracing::warn!(%error, "it cannot be set aside");
        }
        self.post(Level::Error, &message);
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
        let text = self.sealed(text)?;
        let applied = AppliedFlow {
            version: 1,
            flow_id,
            applied_ms: self.ground.clock.now().0,
            crc32c: Some(crc32c::crc32c(text.as_bytes())),
            text,
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
