//! FlowFiles of records: one each, or one for many with a demarcator.

use std::sync::Arc;

use bytes::Bytes;
use regex::Regex;

use crate::flowfile::Attributes;
use crate::kafka::Record;
use crate::limits::SESSION_FLOW_FILES_MAX;
use crate::net::limits::KAFKA_POLL_BYTES_MAX;
use crate::patterns;
use crate::processors::ProcessorError;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// How records become FlowFiles.
#[derive(Debug)]
pub(super) struct FileSettings {
    /// What stands between records that share a FlowFile.
    pub(super) demarcator: Option<Vec<u8>>,
    /// Names of headers that become attributes.
    pub(super) headers: Vec<Regex>,
    pub(super) duplicates: Duplicates,
    pub(super) header_encoding: Encoding,
    pub(super) key_encoding: Encoding,
}

/// What becomes of headers that a record has several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicates {
    KeepFirst,
    KeepLatest,
    Merge,
}

/// How bytes become an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Hex,
}

/// What one session still takes.
#[derive(Debug)]
pub(super) struct Room {
    records: usize,
    bytes: usize,
}

/// Records that share a FlowFile.
struct Bundle {
    attributes: Attributes,
    first_offset: i64,
    records: Vec<Record>,
}

impl Room {
    /// Room for so many records of so many bytes as one session takes.
    pub(super) fn new(records_max: usize) -> Self {
        Room {
            records: records_max.min(SESSION_FLOW_FILES_MAX),
            bytes: KAFKA_POLL_BYTES_MAX,
        }
    }

    /// Whether there was room for a record of `bytes`; it is taken.
    fn takes(&mut self, bytes: usize) -> bool {
        if self.records == 0 || self.bytes == 0 {
            return false;
        }
        self.records -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

impl FileSettings {
    /// Makes FlowFiles of a partition's records as far as there is room; where to go on, if it
    /// got anywhere. `next` is behind all of them.
    pub(super) fn make(
        &self,
        session: &mut ProcessSession<'_>,
        (topic, partition): &(String, i32),
        mut records: Vec<Record>,
        mut next: i64,
        room: &mut Room,
    ) -> Result<Option<i64>, ProcessorError> {
        let size = |record: &Record| record.value.as_ref().map_or(0, Bytes::len);
        if let Some(end) = records.iter().position(|record| !room.takes(size(record))) {
            next = records[end].offset;
            records.truncate(end);
            if records.is_empty() {
                return Ok(None);
            }
        }
        let mut bundles: Vec<Bundle> = Vec::new();
        for record in records {
            let headers = self.header_attributes(&record);
            let is_joined = self.demarcator.is_some();
            match bundles
                .last_mut()
                .filter(|last| is_joined && last.attributes == headers)
            {
                Some(last) => last.records.push(record),
                None => bundles.push(Bundle {
                    attributes: headers,
                    first_offset: record.offset,
                    records: vec![record],
                }),
            }
        }
        self.create(session, topic, *partition, bundles)?;
        Ok(Some(next))
    }

    fn create(
        &self,
        session: &mut ProcessSession<'_>,
        topic: &str,
        partition: i32,
        bundles: Vec<Bundle>,
    ) -> Result<(), ProcessorError> {
        let mut bytes = Vec::new();
        let mut files = Vec::with_capacity(bundles.len());
        for bundle in bundles {
            let start = bytes.len();
            for (index, record) in bundle.records.iter().enumerate() {
                if let Some(demarcator) = self.demarcator.as_ref().filter(|_| index > 0) {
                    bytes.extend_from_slice(demarcator);
                }
                bytes.extend_from_slice(record.value.as_deref().unwrap_or_default());
            }
            let len = bytes.len() - start;
            files.push((self.attributes(topic, partition, bundle), start, len));
        }
        let content = match bytes.is_empty() {
            true => None,
            false => Some(session.content(Bytes::from(bytes))?),
        };
        for (attributes, start, len) in files {
            let offset = attributes.get("kafka.offset").unwrap_or_default();
            let transit = format!("kafka:{topic}-{partition}/{offset}");
            let mut flow_file = session.create(Arc::new(attributes));
            if let Some(content) = content.as_ref().filter(|_| len > 0) {
                session.set_content(&mut flow_file, content.slice(start as u64, len as u64))?;
            }
            session.note(&flow_file, EventKind::Receive, &transit);
            session.transfer(flow_file, 0);
        }
        Ok(())
    }

    fn attributes(&self, topic: &str, partition: i32, bundle: Bundle) -> Attributes {
        let mut attributes = bundle.attributes;
        attributes.set("kafka.topic", topic);
        attributes.set("kafka.partition", partition.to_string());
        attributes.set("kafka.offset", bundle.first_offset.to_string());
        attributes.set("kafka.count", bundle.records.len().to_string());
        if let [record] = bundle.records.as_slice() {
            attributes.set("kafka.timestamp", record.timestamp.to_string());
            if let Some(key) = &record.key {
                attributes.set("kafka.key", self.key_encoding.text(key));
            }
        }
        attributes
    }

    fn header_attributes(&self, record: &Record) -> Attributes {
        let mut attributes = Attributes::default();
        if self.headers.is_empty() {
            return attributes;
        }
        for (name, value) in &record.headers {
            if !self.headers.iter().any(|pattern| pattern.is_match(name)) {
                continue;
            }
            let value = self
                .header_encoding
                .text(value.as_deref().unwrap_or_default());
            let known = attributes.get(name);
            let value = match (known, self.duplicates) {
                (None, _) | (Some(_), Duplicates::KeepLatest) => value,
                (Some(_), Duplicates::KeepFirst) => continue,
                (Some(known), Duplicates::Merge) => format!("{known}, {value}"),
            };
            attributes.set(name, value);
        }
        attributes
    }
}

impl Encoding {
    /// The encoding of this name.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "Hex" => Encoding::Hex,
            _ => Encoding::Utf8,
        }
    }

    fn text(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
            Encoding::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// The way of this name.
pub(super) fn duplicates(name: &str) -> Duplicates {
    match name {
        "Keep Latest" => Duplicates::KeepLatest,
        "Comma-separated Merge" => Duplicates::Merge,
        _ => Duplicates::KeepFirst,
    }
}

/// Regular expressions over whole names, separated by commas.
pub(super) fn names(text: Option<String>) -> Result<Vec<Regex>, String> {
    let text = text.unwrap_or_default();
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let patterns: Result<Vec<Regex>, String> = parts.map(patterns::whole_text).collect();
    patterns.map_err(|error| format!("Headers To Add As Attributes: {error}"))
}
