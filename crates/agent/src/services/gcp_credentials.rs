//! GCPCredentialsControllerService: who the agent is to Google's cloud.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ServiceKind;
use crate::object_storage::gcs::{Identity, Source};
use crate::processors::{Dynamic, PropertyKind, Settings};

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "GCPCredentialsControllerService",
    provides: "GCPCredentialsControllerService",
    description: "Who the agent is to Google's cloud, for the processors of its storage.",
    properties: &[
        PropertyKind::new(
            "Credentials Location",
            "Where that comes from. The default: the file that GOOGLE_APPLICATION_CREDENTIALS \
             names, else gcloud's own, else the machine's metadata server.",
        )
        .default(DEFAULT)
        .required()
        .allowed(&[DEFAULT, MACHINE, FILE, CONTENTS, ANONYMOUS]),
        PropertyKind::new(FILE, "Path of a service account's key file."),
        PropertyKind::new(CONTENTS, "The content of such a file.").sensitive(),
    ],
    dynamic: Dynamic::None,
    make: |settings| Ok(Arc::new(Identity::new(source(settings)?))),
};

fn source(settings: &Settings<'_>) -> Result<Source, String> {
    match settings.needed("Credentials Location")?.as_str() {
        ANONYMOUS => Ok(Source::Anonymous),
        MACHINE => Ok(machine()),
        FILE => of_file(FILE, Path::new(&settings.needed(FILE)?)),
        CONTENTS => {
            let contents = settings.needed(CONTENTS)?;
            Source::parse(&contents).map_err(|reason| format!("{CONTENTS}: {reason}"))
        }
        _ => default(),
    }
}

/// Google's application default credentials, as far as they are files or the machine's.
fn default() -> Result<Source, String> {
    if let Some(path) = variable(FILE_VARIABLE) {
        return of_file(FILE_VARIABLE, Path::new(&path));
    }
    let folder = variable("CLOUDSDK_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&variable("HOME")?).join(".config/gcloud")));
    let file = folder.map(|folder| folder.join("application_default_credentials.json"));
    match file.filter(|file| file.is_file()) {
        Some(file) => of_file(DEFAULT, &file),
        None => Ok(machine()),
    }
}

fn machine() -> Source {
    let host = variable("GCE_METADATA_HOST");
    let host = host.as_deref().unwrap_or("metadata.google.internal");
    Source::Machine(format!("http://{host}"))
}

fn of_file(property: &str, path: &Path) -> Result<Source, String> {
    let at = |reason: String| format!("{property} '{}': {reason}", path.display());
    let len = std::fs::metadata(path).map_err(|error| at(error.to_string()))?;
    if len.len() > FILE_BYTES_MAX {
        return Err(at(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
    Source::parse(&text).map_err(at)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

const DEFAULT: &str = "Google Application Default Credentials";
const MACHINE: &str = "Use Compute Engine Credentials";
const FILE: &str = "Service Account JSON File";
const CONTENTS: &str = "Service Account JSON";
const ANONYMOUS: &str = "Use Anonymous credentials";

const FILE_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Bytes of a key file; Google's have two thousand.
const FILE_BYTES_MAX: u64 = 64 << 10;
