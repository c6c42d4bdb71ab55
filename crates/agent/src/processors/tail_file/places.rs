//! Where several files are looked for: in one folder, or in one for each container of the node.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::UnixMillis;

use crate::expression::{Expression, Scope};
use crate::processors::Settings;
use crate::processors::files::Walk;
use crate::services::Containers;

/// Where files are looked for.
pub(super) enum Places {
    Folder(PathBuf),
    /// A folder for each, by the attributes that are told of it.
    Containers {
        provider: Arc<Containers>,
        folder: Expression,
    },
}

/// What is there now.
#[derive(Default)]
pub(super) struct Look {
    pub(super) places: Vec<Place>,
    /// Folders in which new places appear.
    pub(super) watched: Vec<PathBuf>,
}

/// One folder.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    /// What lines of files in it have of it.
    pub(super) attributes: Vec<(String, String)>,
}

impl Places {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let missing = || format!("{BASE_DIRECTORY} is needed to follow several files");
        match settings.service(PROVIDER)? {
            None => {
                let folder = settings.text(BASE_DIRECTORY)?.ok_or_else(missing)?;
                Ok(Places::Folder(folder.into()))
            }
            Some(provider) => Ok(Places::Containers {
                provider,
                folder: settings.expression(BASE_DIRECTORY)?.ok_or_else(missing)?,
            }),
        }
    }

    /// Looks for the folders.
    ///
    /// # Errors
    /// They cannot be told.
    pub(super) fn look(&self, now: UnixMillis) -> Result<Look, String> {
        let (provider, expression) = match self {
            Places::Folder(folder) => {
                return Ok(Look {
                    places: vec![Place {
                        folder: folder.clone(),
                        attributes: Vec::new(),
                    }],
                    watched: vec![folder.clone()],
                });
            }
            Places::Containers { provider, folder } => (provider, folder),
        };
        let found = provider
            .find()
            .map_err(|error| format!("cannot look for containers: {error}"))?;
        let mut look = Look {
            places: Vec::with_capacity(found.containers.len()),
            watched: found.folders,
        };
        for container in &found.containers {
            let scope = Scope {
                attributes: Some(container),
                flow_file: None,
                now,
            };
            let folder = expression.evaluate(scope);
            let folder = folder.map_err(|error| format!("{BASE_DIRECTORY}: {error}"))?;
            let folder = PathBuf::from(folder.as_ref());
            if folder.is_dir() {
                look.watched.push(folder.clone());
            }
            let prefix = provider.prefix();
            let attributes = container.iter();
            let attributes =
                attributes.map(|(name, value)| (format!("{prefix}{name}"), value.to_owned()));
            look.places.push(Place {
                folder,
                attributes: attributes.collect(),
            });
        }
        Ok(look)
    }

    /// The files of one of the folders; none where a container's is not there.
    pub(super) fn walk(&self, folder: &Path, recurses: bool) -> io::Result<Option<Walk>> {
        match (Walk::new(folder, recurses), self) {
            (Err(error), Places::Containers { .. }) if error.kind() == ErrorKind::NotFound => {
                Ok(None)
            }
            (walk, _) => walk.map(Some),
        }
    }
}

/// The folder's property.
pub(super) const BASE_DIRECTORY: &str = "tail-base-directory";
/// The property of the service that tells containers.
pub(super) const PROVIDER: &str = "Attribute Provider Service";
