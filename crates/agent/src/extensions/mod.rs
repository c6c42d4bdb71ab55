//! Extensions: processors that are programs of their own, or WebAssembly modules.
//!
//! The folder of extensions has a folder for each; its `extension.json` ([`manifest`]) names the
//! program and defines its processors, which from then on are in the table of processors like the
//! built-in ones: in the checking of flows, the agent manifest and the listing. The program speaks
//! framed messages over its standard input and output ([`frames`]), one conversation for each
//! processor's task ([`processor`]).
//!
//! A module is kept from everything else ([`module`]). A program is confined as far as the platform gives that without privileges of ours ([`child`]): a user
//! of its own where the agent is root, no new privileges, no environment, bounds on memory, files
//! and waiting. It is not kept from the network or from files that its user may read.
//!
//! Extensions are read once, before any flow.

mod child;
mod frames;
mod manifest;
#[cfg(feature = "wasm")]
mod module;
#[cfg(test)]
#[cfg(feature = "wasm")]
mod module_tests;
mod processor;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::OnceLock;

use crate::AgentError;
use crate::limits::EXTENSIONS_MAX;
use crate::processors::{self, ProcessorKind};

pub(crate) use manifest::{Program, Runs};

/// A processor of an extension.
pub(crate) struct External {
    /// What it is.
    pub(crate) kind: &'static ProcessorKind,
    /// What runs it.
    pub(crate) program: &'static Program,
}

/// Reads bytes as what an extension says, for the fuzz targets.
pub(crate) fn read_anything(mut bytes: &[u8]) {
    while let Ok(Some(frame)) = frames::read(&mut bytes) {
        // An error is an answer too.
        let _ = serde_json::from_slice::<frames::Output>(&frame.bytes);
        let _ = serde_json::from_slice::<frames::Done>(&frame.bytes);
    }
}

static LOADED: OnceLock<Vec<External>> = OnceLock::new();

/// Reads all extensions in `folder`; once in the life of a process.
///
/// Errors: an extension that cannot be one, or a processor that is there already; nothing is taken
/// then. The operator's fault.
pub(crate) fn load(folder: &Path) -> Result<usize, AgentError> {
    let failed = |source| AgentError::File {
        action: "read",
        path: folder.to_owned(),
        source,
    };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.join(manifest::FILE).is_file() {
            folders.push(path);
        }
    }
    if folders.len() > EXTENSIONS_MAX {
        return Err(AgentError::Setting(format!(
            "{} has more than {EXTENSIONS_MAX} extensions",
            folder.display()
        )));
    }
    folders.sort();
    let mut all: Vec<External> = Vec::new();
    for path in folders {
        let wrong = |why: String| {
            let file = path.join(manifest::FILE);
            AgentError::Setting(format!("the extension {}: {why}", file.display()))
        };
        for external in manifest::read(&path).map_err(wrong)? {
            let name = external.kind.name;
            let is_known = processors::find(name).is_some();
            if is_known || all.iter().any(|other| other.kind.name == name) {
                return Err(wrong(format!("there is a processor '{name}' already")));
            }
            all.push(external);
        }
    }
    let count = all.len();
    // A restart reads them in a new process.
    match LOADED.set(all) {
        Ok(()) => Ok(count),
        Err(_) => Err(AgentError::Setting("extensions are read once".to_owned())),
    }
}

/// The processors of all extensions that were read.
pub(crate) fn loaded() -> &'static [External] {
    LOADED.get().map_or(&[], Vec::as_slice)
}
