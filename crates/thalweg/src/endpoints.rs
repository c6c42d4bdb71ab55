//! `DIR/endpoints.json`: what listens where, for scripts and the client commands.
//!
//! Written whole (to a temporary name, then renamed) once every port is open, removed at a clean
//! stop; after a crash the old one lies there until the next start.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Role name to the address that it listens on, such as `{"streams": "127.0.0.1:9092"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Endpoints(BTreeMap<String, SocketAddr>);

impl Endpoints {
    /// Notes that `role` listens on `address`.
    pub fn insert(&mut self, role: &str, address: SocketAddr) {
        self.0.insert(role.to_owned(), address);
    }

    /// The address of a role.
    pub fn get(&self, role: &str) -> Option<SocketAddr> {
        self.0.get(role).copied()
    }

    /// Every role with its address, in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.0
            .iter()
            .map(|(role, address)| (role.as_str(), *address))
    }

    /// What the data folder of a command without `--data` holds; none if nothing runs there.
    pub fn of_default_folder() -> Option<Self> {
        let folder = std::env::var_os("THALWEG_DATA").unwrap_or_else(|| DEFAULT_FOLDER.into());
        let text = std::fs::read(Path::new(&folder).join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Writes the file into `folder`.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        let temporary = folder.join(format!("{FILE}.new"));
        std::fs::write(&temporary, text)?;
        std::fs::rename(temporary, folder.join(FILE))
    }

    /// Removes the file from `folder`; a missing one is fine.
    pub fn remove(folder: &Path) {
        if let Err(error) = std::fs::remove_file(folder.join(FILE)) {
            tracing::debug!(%error, "no endpoints file to remove");
        }
    }
}

/// Where `up` keeps its data when not told.
pub const DEFAULT_FOLDER: &str = "thalweg-data";
const FILE: &str = "endpoints.json";
