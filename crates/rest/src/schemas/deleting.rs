//! The end of versions and subjects: soft first, when they are only shown to those who ask for
//! deleted ones, then for good.

use super::error::SchemaError;
use super::limits::TRIES_MAX;
use super::record::{Entry, Expected};
use super::settings::check_writable;
use super::state::{State, last_live};
use super::{AskedVersion, SchemaRegistry, found_version};

impl SchemaRegistry {
    /// Deletes a version of a subject; answers its number.
    pub(super) async fn delete_version(
        &self,
        subject: &str,
        asked: AskedVersion,
        for_good: bool,
    ) -> Result<i32, SchemaError> {
        let mut deleted = None;
        self.delete(|state| {
            if let Some(number) = deleted {
                // Tried again: another process may have been there first, which is as good.
                let found = state.version(subject, number);
                let is_done = found.is_none_or(|version| version.is_deleted && !for_good);
                if is_done {
                    return Ok(Vec::new());
                }
            }
            let (number, entries) = version_deletion(state, subject, asked, for_good)?;
            deleted = Some(number);
            Ok(entries)
        })
        .await?;
        deleted.ok_or(SchemaError::Contended(TRIES_MAX))
    }

    /// Deletes a subject's versions; answers their numbers.
    pub(super) async fn delete_subject(
        &self,
        subject: &str,
        for_good: bool,
    ) -> Result<Vec<i32>, SchemaError> {
        let mut deleted: Option<Vec<i32>> = None;
        self.delete(|state| {
            let is_gone = state.versions(subject).is_none();
            if deleted.is_some() && is_gone {
                return Ok(Vec::new());
            }
            let (numbers, entries) = subject_deletion(state, subject, for_good)?;
            deleted.get_or_insert(numbers);
            Ok(entries)
        })
        .await?;
        deleted.ok_or(SchemaError::Contended(TRIES_MAX))
    }

    /// Writes what `plan` finds to be written, until it counts.
    async fn delete(
        &self,
        mut plan: impl FnMut(&State) -> Result<Vec<Entry>, SchemaError>,
    ) -> Result<(), SchemaError> {
        let _turn = self.turn().await?;
        for _ in 0..TRIES_MAX {
            let entries = plan(&self.log.state())?;
            if entries.is_empty() || self.log.write(entries).await? {
                return Ok(());
            }
        }
        Err(SchemaError::Contended(TRIES_MAX))
    }
}

fn version_deletion(
    state: &State,
    subject: &str,
    asked: AskedVersion,
    for_good: bool,
) -> Result<(i32, Vec<Entry>), SchemaError> {
    let asked = match (asked, state.versions(subject).and_then(last_live)) {
        // The last one that is not deleted, unless there is none.
        (AskedVersion::Last, Some((number, _))) if !for_good => AskedVersion::Number(number),
        (asked, _) => asked,
    };
    let (number, version) = found_version(state, subject, asked, true)?;
    check_writable(state, Some(subject))?;
    let named = || (subject.to_owned(), number);
    match (version.is_deleted, for_good) {
        (true, false) => {
            let (subject, version) = named();
            Err(SchemaError::VersionSoftDeleted { subject, version })
        }
        (false, true) => {
            let (subject, version) = named();
            Err(SchemaError::VersionNotSoftDeleted { subject, version })
        }
        (false, false) => {
            check_unnamed(state, subject, number)?;
            let value = version.value(subject, number, true);
            let entry = Entry::schema(&value, Expected::Id(version.schema.id));
            Ok((number, vec![entry]))
        }
        (true, true) => {
            check_unnamed(state, subject, number)?;
            let entry = Entry::no_schema(subject, number, version.schema.id);
            Ok((number, vec![Entry::noop(&state.id_maxima()), entry]))
        }
    }
}

fn subject_deletion(
    state: &State,
    subject: &str,
    for_good: bool,
) -> Result<(Vec<i32>, Vec<Entry>), SchemaError> {
    let versions = state.versions(subject);
    let versions = versions.ok_or_else(|| SchemaError::SubjectNotFound(subject.to_owned()))?;
    check_writable(state, Some(subject))?;
    let last = last_live(versions);
    if !for_good {
        let (last, _) = last.ok_or_else(|| SchemaError::SubjectSoftDeleted(subject.to_owned()))?;
        let live = versions.iter().filter(|(_, version)| !version.is_deleted);
        let numbers: Vec<i32> = live.map(|(number, _)| *number).collect();
        for number in &numbers {
            check_unnamed(state, subject, *number)?;
        }
        let mut entries = vec![Entry::delete_subject(subject, last)];
        // A subject's settings end with it.
        if state.config(Some(subject)).is_some() {
            entries.push(Entry::config(Some(subject), None));
        }
        if state.mode(Some(subject)).is_some() {
            entries.push(Entry::mode(Some(subject), None));
        }
        return Ok((numbers, entries));
    }
    if last.is_some() {
        return Err(SchemaError::SubjectNotSoftDeleted(subject.to_owned()));
    }
    // The highest ids are noted first, so that none is given twice after a restart.
    let mut entries = vec![Entry::noop(&state.id_maxima())];
    for (number, version) in versions {
        check_unnamed(state, subject, *number)?;
        entries.push(Entry::no_schema(subject, *number, version.schema.id));
    }
    Ok((versions.keys().copied().collect(), entries))
}

/// Refuses to delete what others name.
fn check_unnamed(state: &State, subject: &str, version: i32) -> Result<(), SchemaError> {
    let ids: Vec<i32> = state
        .referrers(subject, version)
        .into_iter()
        .map(|schema| schema.id)
        .collect();
    if ids.is_empty() {
        return Ok(());
    }
    Err(SchemaError::Referenced {
        subject: subject.to_owned(),
        version,
        ids,
    })
}
