//! What settings come to, in the words of those who are set up by them.

use std::path::PathBuf;
use std::time::Duration;

use super::{Configuration, find};
use crate::AgentError;
use crate::engine::EngineOptions;
use crate::limits::{
    VOLATILE_BYTES_DEFAULT, VOLATILE_COUNT_DEFAULT, VOLATILE_PROVENANCE_BYTES_DEFAULT,
};
use crate::repository::{ContentKind, FlowFileKind, ProvenanceKind, RepositoryOptions};
use crate::units;

impl Configuration {
    /// Which repositories there are.
    ///
    /// Errors: a class name that is none.
    pub fn repository(&self) -> Result<RepositoryOptions, AgentError> {
        Ok(RepositoryOptions {
            flow_files: self.flow_files()?,
            content: self.content()?,
            provenance: self.provenance()?,
            is_synced: self.text(SYNCHRONOUS) == "true",
            ..RepositoryOptions::default()
        })
    }

    /// How flows are run.
    pub fn engine(&self) -> EngineOptions {
        let default = EngineOptions::default();
        EngineOptions {
            administrative_yield: self
                .duration("nifi.administrative.yield.duration")
                .unwrap_or(default.administrative_yield),
            event_driven_slice: self
                .duration("nifi.flow.engine.event.driven.time.slice")
                .unwrap_or(default.event_driven_slice),
        }
    }

    /// A folder or file that a key names. `minifidb://` in front, which put several repositories
    /// of MiNiFi C++ into one database, is left out.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.get(name)?;
        let path = PathBuf::from(text.strip_prefix("minifidb://").unwrap_or(&text));
        let at_home = self.home.as_ref().map(|home| home.join(&path));
        Some(match at_home {
            Some(at_home) if !path.exists() && at_home.exists() => at_home,
            _ => path,
        })
    }

    fn flow_files(&self) -> Result<FlowFileKind, AgentError> {
        let known: &[(&[&str], FlowFileKind)] = &[
            (&["FlowFileRepository"], FlowFileKind::Disk),
            (
                &["VolatileFlowFileRepository", "NoOpRepository"],
                FlowFileKind::Volatile,
            ),
        ];
        self.class(FLOW_FILES, known)
    }

    fn content(&self) -> Result<ContentKind, AgentError> {
        let volatile = ContentKind::Volatile {
            bytes_max: self.size(CONTENT_BYTES).unwrap_or(VOLATILE_BYTES_DEFAULT),
            count_max: self.number(CONTENT_COUNT).unwrap_or(VOLATILE_COUNT_DEFAULT),
        };
        let known: &[(&[&str], ContentKind)] = &[
            (&["DatabaseContentRepository"], ContentKind::Database),
            (&["FileSystemRepository"], ContentKind::FileSystem),
            (&["VolatileContentRepository"], volatile),
            (&["NoOpRepository"], ContentKind::None),
        ];
        self.class(CONTENT, known)
    }

    fn provenance(&self) -> Result<ProvenanceKind, AgentError> {
        let disk = ProvenanceKind::Disk {
            bytes_max: self.size(PROVENANCE_BYTES).unwrap_or(1 << 20),
            age_max: self
                .duration(PROVENANCE_AGE)
                .unwrap_or(Duration::from_secs(60)),
        };
        let volatile = ProvenanceKind::Volatile {
            bytes_max: self
                .size(VOLATILE_PROVENANCE_BYTES)
                .unwrap_or(VOLATILE_PROVENANCE_BYTES_DEFAULT),
            count_max: self
                .number(VOLATILE_PROVENANCE_COUNT)
                .unwrap_or(VOLATILE_COUNT_DEFAULT),
        };
        let known: &[(&[&str], ProvenanceKind)] = &[
            (&["ProvenanceRepository"], disk),
            (&["VolatileProvenanceRepository"], volatile),
            (&["NoOpRepository"], ProvenanceKind::None),
        ];
        self.class(PROVENANCE, known)
    }

    /// What a class name stands for; its case says nothing, and neither does its package.
    fn class<T: Copy>(&self, name: &str, known: &[(&[&str], T)]) -> Result<T, AgentError> {
        let text = self.text(name);
        let class = text.rsplit(['.', ':']).next().unwrap_or_default();
        let is_meant = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(class));
        let found = known.iter().find(|(names, _)| is_meant(names));
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let names: Vec<&str> = known
                .iter()
                .flat_map(|(names, _)| *names)
                .copied()
                .collect();
            AgentError::Setting(format!(
                "{name}: there is no repository '{text}'; write one of {}",
                names.join(", ")
            ))
        })
    }

    /// The value that is set, else the table's default.
    fn text(&self, name: &str) -> String {
        let default = || find(name).and_then(|key| key.kind.default);
        self.get(name)
            .unwrap_or_else(|| default().unwrap_or_default().to_owned())
    }

    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        units::duration(&self.text(name))
    }

    fn size(&self, name: &str) -> Option<u64> {
        units::size(&self.text(name))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).trim().parse().ok()
    }
}

const FLOW_FILES: &str = "nifi.flowfile.repository.class.name";
const CONTENT: &str = "nifi.content.repository.class.name";
const PROVENANCE: &str = "nifi.provenance.repository.class.name";
const SYNCHRONOUS: &str = "nifi.content.repository.rocksdb.use.synchronous.writes";
const CONTENT_BYTES: &str = "nifi.volatile.repository.options.content.max.bytes";
const CONTENT_COUNT: &str = "nifi.volatile.repository.options.content.max.count";
const PROVENANCE_BYTES: &str = "nifi.provenance.repository.max.storage.size";
const PROVENANCE_AGE: &str = "nifi.provenance.repository.max.storage.time";
const VOLATILE_PROVENANCE_BYTES: &str = "nifi.volatile.repository.options.provenance.max.bytes";
const VOLATILE_PROVENANCE_COUNT: &str = "nifi.volatile.repository.options.provenance.max.count";
