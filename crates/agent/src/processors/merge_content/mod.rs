//! MergeContent: many FlowFiles into one.
//!
//! # Invariants
//!
//! - What waits in a bin is kept by the processor but stays in its queue's custody (see
//!   [`ProcessSession::keep`]): a crash, a stop and an update of the flow find it there, and it is
//!   put into bins anew.
//! - A bin becomes one FlowFile in one commit, with its originals.

mod bins;
mod formats;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::bins::{Bin, BinRule, Bins};
use self::formats::{AttributeStrategy, Format, Frame};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::fail_point::fail_point;
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::{CLAIM_BYTES_MAX, MERGE_KEPT_MAX};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "MergeContent",
    description: "Puts FlowFiles together into one: as many as fit into a bin, or the pieces of \
                  one that was split. What waits in a bin survives a crash.",
    properties: PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "merged",
            description: "FlowFiles that were put together.",
        },
        RelationshipKind {
            name: "original",
            description: "FlowFiles that they were made of.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be put together: pieces of which some are missing, \
                          or contents that the format cannot hold.",
        },
    ],
    writes: &[
        AttributeKind::new(
            "filename",
            "The name of the only FlowFile, or of the file that was split, with .tar or .zip.",
        ),
        AttributeKind::new(
            "mime.type",
            "application/octet-stream, application/tar, application/zip or \
             application/flowfile-v3.",
        ),
        AttributeKind::new("merge.count", "How many were put together."),
        AttributeKind::new(
            "merge.bin.age",
            "Milliseconds from the entry of the oldest of them into the flow.",
        ),
    ],
    input: Input::Required,
    make: |settings| MergeContent::new(settings).map(|made| Box::new(made) as _),
};

const PROPERTIES: &[PropertyKind] = &[
    PropertyKind::new(
        "Merge Strategy",
        "Whether pieces of one are put together, by their attributes fragment.identifier, \
         fragment.index and fragment.count (or segment. instead), or whatever comes.",
    )
    .default("Bin-Packing Algorithm")
    .allowed(&[DEFRAGMENT, "Bin-Packing Algorithm"]),
    PropertyKind::new("Merge Format", "What they become.")
        .default("Binary Concatenation")
        .allowed(&["Binary Concatenation", "TAR", "ZIP", "FlowFile Stream, v3"]),
    PropertyKind::new(
        "Correlation Attribute Name",
        "With Bin-Packing: only FlowFiles with the same value of this attribute are put together.",
    ),
    PropertyKind::new(
        "Attribute Strategy",
        "Which attributes the one gets: those that all have alike, or those that none has \
         otherwise.",
    )
    .default("Keep Only Common Attributes")
    .allowed(&["Keep Only Common Attributes", "Keep All Unique Attributes"]),
    PropertyKind::new("Minimum Number of Entries", "FlowFiles in a bin at least.")
        .default("1")
        .shape(Shape::Integer(1)),
    PropertyKind::new(
        "Maximum Number of Entries",
        "FlowFiles in a bin at most; empty means any number.",
    )
    .shape(Shape::Integer(1)),
    PropertyKind::new("Minimum Group Size", "Bytes in a bin at least.")
        .default("0")
        .shape(Shape::Size),
    PropertyKind::new(
        "Maximum Group Size",
        "Bytes in a bin at most; empty means any number.",
    )
    .shape(Shape::Size),
    PropertyKind::new(
        "Max Bin Age",
        "A bin of this age is merged whatever it has; empty means never.",
    )
    .shape(Shape::Duration),
    PropertyKind::new(
        "Maximum number of Bins",
        "When there are more, the oldest is merged.",
    )
    .default("100")
    .shape(Shape::Integer(1)),
    PropertyKind::new(
        "Batch Size",
        "FlowFiles that are put into bins before these are looked at.",
    )
    .default("1")
    .shape(Shape::Integer(1)),
    PropertyKind::new(
        "Delimiter Strategy",
        "Whether Header, Footer and Demarcator File name files or are texts.",
    )
    .default("Filename")
    .allowed(&["Filename", "Text"]),
    PropertyKind::new(
        "Header File",
        "What stands before contents, with Binary Concatenation.",
    ),
    PropertyKind::new("Footer File", "What stands behind them."),
    PropertyKind::new("Demarcator File", "What stands between them."),
    PropertyKind::new(
        "Keep Path",
        "Whether names in a TAR or ZIP have the attribute path before them.",
    )
    .default("false")
    .shape(Shape::Flag),
];

struct MergeContent {
    defragments: bool,
    correlation: Option<String>,
    format: Format,
    frame: Frame,
    attributes: AttributeStrategy,
    keeps_path: bool,
    batch: usize,
    bins: Bins<FlowFile>,
}

/// What becomes of a bin.
type Outcome = Result<FlowFile, String>;

impl MergeContent {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let optional = |name: &str| settings.text(name).map(|text| text.is_some());
        let rule = BinRule {
            entries_min: settings.integer("Minimum Number of Entries")?,
            entries_max: match optional("Maximum Number of Entries")? {
                true => settings.integer("Maximum Number of Entries")?,
                false => usize::MAX,
            },
            bytes_min: settings.size("Minimum Group Size")?,
            bytes_max: match optional("Maximum Group Size")? {
                true => settings.size("Maximum Group Size")?,
                false => u64::MAX,
            },
            age_max: match optional("Max Bin Age")? {
                true => Some(settings.duration("Max Bin Age")?),
                false => None,
            },
            bins_max: settings.integer("Maximum number of Bins")?,
            held_max: MERGE_KEPT_MAX,
        };
        if rule.entries_min > rule.entries_max || rule.bytes_min > rule.bytes_max {
            return Err("a bin's minimum is above its maximum".to_owned());
        }
        if rule.entries_min > MERGE_KEPT_MAX {
            return Err(format!(
                "Minimum Number of Entries is at most {MERGE_KEPT_MAX}"
            ));
        }
        let are_files = settings.needed("Delimiter Strategy")? == "Filename";
        let delimiter = |name: &str| read_delimiter(settings, name, are_files);
        Ok(MergeContent {
            defragments: settings.needed("Merge Strategy")? == DEFRAGMENT,
            correlation: settings.text("Correlation Attribute Name")?,
            format: match settings.needed("Merge Format")?.as_str() {
                "TAR" => Format::Tar,
                "ZIP" => Format::Zip,
                "FlowFile Stream, v3" => Format::FlowFileStream,
                _ => Format::Concatenation,
            },
            frame: Frame {
                header: delimiter("Header File")?,
                demarcator: delimiter("Demarcator File")?,
                footer: delimiter("Footer File")?,
            },
            attributes: match settings.needed("Attribute Strategy")?.as_str() {
                "Keep All Unique Attributes" => AttributeStrategy::Unique,
                _ => AttributeStrategy::Common,
            },
            keeps_path: settings.flag("Keep Path")?,
            batch: settings.integer("Batch Size")?,
            bins: Bins::new(rule),
        })
    }

    /// Puts a FlowFile into its bin; it comes back when it belongs nowhere.
    fn add(&mut self, session: &mut ProcessSession<'_>, flow_file: FlowFile) -> Option<FlowFile> {
        let (group, whole) = if self.defragments {
            let count = piece(&flow_file, COUNT).and_then(|text| text.parse().ok());
            let index = index_of(&flow_file);
            match (piece(&flow_file, IDENTIFIER), count, index) {
                (Some(identifier), Some(count), Some(_)) if count > 0 => {
                    (identifier.to_owned(), Some(count))
                }
                _ => return Some(flow_file),
            }
        } else {
            let correlation = self.correlation.as_deref();
            let value = correlation.and_then(|name| flow_file.attribute(name));
            (value.unwrap_or_default().into_owned(), None)
        };
        let bytes = flow_file.size();
        session.keep(std::slice::from_ref(&flow_file));
        self.bins
            .add(session.now(), &group, whole, flow_file, bytes);
        None
    }

    /// Merges a bin; its FlowFiles are in the session.
    fn merge(
        &self,
        session: &mut ProcessSession<'_>,
        bin: &mut Bin<FlowFile>,
    ) -> Result<Outcome, ProcessorError> {
        if self.defragments {
            if !bin.is_whole() {
                let (group, count) = (&bin.group, bin.things.len());
                let message = format!("of '{group}' only {count} pieces came; others are missing");
                return Ok(Err(message));
            }
            bin.things.sort_by_key(index_of);
            let twice = bin.things.windows(2);
            let mut twice = twice.filter(|pair| index_of(&pair[0]) == index_of(&pair[1]));
            if twice.next().is_some() {
                let message = format!("of '{}' a piece came twice", bin.group);
                return Ok(Err(message));
            }
        }
        let flow_files = &bin.things;
        let names: Vec<String> = flow_files
            .iter()
            .map(|flow_file| self.name_of(session, flow_file))
            .collect();
        let content = match self.format {
            Format::Concatenation => formats::concatenate(session, &self.frame, flow_files)?,
            Format::FlowFileStream => formats::stream(session, flow_files)?,
            Format::Tar => formats::tar(session, flow_files, &names)?,
            Format::Zip => match formats::zip(session, flow_files, &names)? {
                Ok(content) => content,
                Err(message) => return Ok(Err(message)),
            },
        };
        let parents: Vec<&FlowFile> = flow_files.iter().collect();
        let attributes = self.attributes_of(session, flow_files);
        let mut merged = session.create_child(&parents, Arc::new(attributes));
        session.set_content(&mut merged, content)?;
        Ok(Ok(merged))
    }

    fn attributes_of(&self, session: &ProcessSession<'_>, flow_files: &[FlowFile]) -> Attributes {
        let mut attributes = formats::attributes(self.attributes, flow_files);
        let name = match flow_files {
            [one] => Some(session.filename(one)),
            [first, ..] => {
                let original = first.attributes().get("segment.original.filename");
                original.map(Cow::Borrowed)
            }
            [] => None,
        };
        if let Some(name) = name {
            attributes.set("filename", format!("{name}{}", self.format.extension()));
        }
        attributes.set("mime.type", self.format.mime());
        attributes.set("merge.count", flow_files.len().to_string());
        let oldest = flow_files.iter().map(FlowFile::entry).min();
        let age = oldest.map_or(Duration::ZERO, |oldest| session.now().since(oldest));
        attributes.set("merge.bin.age", age.as_millis().to_string());
        attributes
    }

    /// A FlowFile's name in an archive.
    fn name_of(&self, session: &ProcessSession<'_>, flow_file: &FlowFile) -> String {
        let attribute = |name: &str| flow_file.attributes().get(name);
        let name = session.filename(flow_file);
        match attribute("path").filter(|_| self.keeps_path) {
            Some(path) => {
                let path = path.trim_start_matches("./").trim_matches('/');
                if path.is_empty() {
                    name.into_owned()
                } else {
                    format!("{path}/{name}")
                }
            }
            None => name.into_owned(),
        }
    }

    /// Merges what is ready, each bin in a commit of its own.
    fn finish(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<(), ProcessorError> {
        while let Some(bin) = self.bins.next_ready(session.now()) {
            // Where this fails, its FlowFiles go back into their queue.
            self.finish_bin(context, session, bin)?;
        }
        Ok(())
    }

    fn finish_bin(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        mut bin: Bin<FlowFile>,
    ) -> Result<(), ProcessorError> {
        session.take_up(&bin.things);
        match self.merge(session, &mut bin)? {
            Ok(merged) => {
                session.transfer(merged, MERGED);
                session.transfer_all(bin.things, ORIGINAL);
            }
            Err(message) => {
                context.post(Level::Error, &message);
                session.transfer_all(bin.things, FAILURE);
            }
        }
        fail_point("merge_content.merged");
        session.commit()
    }
}

impl Processor for MergeContent {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut count = 0;
        loop {
            let taken = session.take(self.batch, u64::MAX);
            count += taken.len();
            let is_last = taken.len() < self.batch || count >= TAKEN_MAX;
            for flow_file in taken {
                if let Some(stray) = self.add(session, flow_file) {
                    let message = "a FlowFile has no fragment.identifier, fragment.index and \
                                   fragment.count, so it is no piece of anything";
                    context.post(Level::Error, message);
                    session.transfer(stray, FAILURE);
                }
            }
            self.finish(context, session)?;
            if is_last {
                break;
            }
        }
        Ok(match self.bins.next_age(session.now()) {
            Some(age) => Next::ScheduledOr(age),
            None => Next::Scheduled,
        })
    }
}

/// What stands between contents: a text, or what a file has.
fn read_delimiter(settings: &Settings<'_>, name: &str, is_file: bool) -> Result<Bytes, String> {
    let Some(text) = settings.text(name)? else {
        return Ok(Bytes::new());
    };
    if !is_file {
        return Ok(Bytes::from(text));
    }
    let refused = |error: String| format!("{name}: cannot read {text}: {error}");
    let metadata = std::fs::metadata(&text).map_err(|error| refused(error.to_string()))?;
    if metadata.len() > CLAIM_BYTES_MAX as u64 {
        return Err(refused(format!("it has more than {CLAIM_BYTES_MAX} bytes")));
    }
    let bytes = std::fs::read(&text).map_err(|error| refused(error.to_string()))?;
    Ok(Bytes::from(bytes))
}

/// Which piece it is.
fn index_of(flow_file: &FlowFile) -> Option<u64> {
    piece(flow_file, INDEX)?.parse().ok()
}

/// What is said of a piece, by its attribute or by that of old flows.
fn piece<'f>(flow_file: &'f FlowFile, names: [&str; 2]) -> Option<&'f str> {
    let attributes = flow_file.attributes();
    names.into_iter().find_map(|name| attributes.get(name))
}

const MERGED: usize = 0;
const ORIGINAL: usize = 1;
const FAILURE: usize = 2;

const DEFRAGMENT: &str = "Defragment";

const IDENTIFIER: [&str; 2] = ["fragment.identifier", "segment.identifier"];
const INDEX: [&str; 2] = ["fragment.index", "segment.index"];
const COUNT: [&str; 2] = ["fragment.count", "segment.count"];

/// FlowFiles that are put into bins before the processor looks up.
const TAKEN_MAX: usize = 5_000;

#[cfg(test)]
#[path = "../merge_content_tests.rs"]
mod tests;
