//! The table of event types at run time: rows that were set by the API stand before those of the
//! configuration, and are kept in a file of their own.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Fusion;
use crate::epl::Catalog;
use crate::error::FusionError;
use crate::file;
use crate::formats::{EventType, EventTypes};
use crate::plan::Source;

/// The table, and where its own rows are kept.
pub struct TypeTable {
    path: PathBuf,
    /// Set at run time.
    set: EventTypes,
    /// Of the configuration.
    configured: EventTypes,
}

/// A row as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct ShownType {
    /// The row.
    #[serde(flatten)]
    pub row: EventType,
    /// Whether it stands in the configuration.
    pub is_configured: bool,
}

impl TypeTable {
    /// Reads the rows that belong to the journal in `dir`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(dir: &Path, configured: EventTypes) -> Result<TypeTable, FusionError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let path = dir.with_file_name(format!("{name}-types.json"));
        let rows: Vec<EventType> = file::read(&path).map_err(|error| {
            FusionError::Refused(format!("cannot read {}: {error}", path.display()))
        })?;
        Ok(TypeTable {
            path,
            set: EventTypes(rows),
            configured,
        })
    }

    /// All rows, in the order in which they count.
    pub fn rows(&self) -> EventTypes {
        let hidden = |row: &&EventType| self.set.named(&row.alias).is_none();
        let configured = self.configured.0.iter().filter(hidden);
        EventTypes(self.set.0.iter().chain(configured).cloned().collect())
    }
}

impl TypeTable {
    /// The names, for texts that read from them.
    pub fn catalog(&self) -> Catalog {
        let rows = self.rows().0.into_iter();
        Catalog::new(rows.map(|row| (row.alias, Source::Mqtt(row.filter))))
    }
}

impl Fusion {
    /// The table of event types, in the order in which rows count.
    pub fn types(&self) -> Vec<ShownType> {
        let types = self.types.read();
        let rows = types.rows().0.into_iter();
        let shown = rows.map(|row| ShownType {
            is_configured: types.set.named(&row.alias).is_none(),
            row,
        });
        shown.collect()
    }

    /// Sets a row; durable on return. Statements that are there read on as they did.
    ///
    /// # Errors
    /// `Refused` says what is wrong with it, or why it could not be kept.
    pub async fn set_type(&self, row: EventType) -> Result<(), FusionError> {
        self.change_types(|set| set.set(row).map_err(FusionError::Refused))
            .await
    }

    /// Removes a row that was set; one of the configuration with its name counts again.
    ///
    /// # Errors
    /// `Unknown` when none was set by that name.
    pub async fn remove_type(&self, alias: &str) -> Result<(), FusionError> {
        self.change_types(|set| match set.remove(alias) {
            true => Ok(()),
            false => Err(FusionError::Unknown(alias.to_owned())),
        })
        .await
    }

    async fn change_types(
        &self,
        change: impl FnOnce(&mut EventTypes) -> Result<(), FusionError>,
    ) -> Result<(), FusionError> {
        // One change at a time, as of statements.
        let _sources = self.sources.lock().await;
        let (path, mut set) = {
            let types = self.types.read();
            (types.path.clone(), types.set.clone())
        };
        change(&mut set)?;
        let kept = tokio::task::spawn_blocking(move || file::write(&path, &set.0).map(|()| set));
        let set = kept
            .await
            .map_err(|_| FusionError::Closed)?
            .map_err(|error| FusionError::Refused(format!("cannot keep the types: {error}")))?;
        self.types.write().set = set;
        Ok(())
    }
}
