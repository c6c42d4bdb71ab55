//! UnpackContent: the files of an archive as FlowFiles of their own.
//!
//! What stands plainly in an archive is not copied: its FlowFile views the archive's content.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use regex::Regex;

use super::archive::{ArchiveError, Packed, tar_files, zip_files};
use super::files::{CopyError, content_failed, import};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, flow_file_stream,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::{EXPRESSION_RESULT_BYTES_MAX, SESSION_FLOW_FILES_MAX};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "UnpackContent",
    description: "Makes a FlowFile of each file in an archive.",
    properties: &[
        PropertyKind::new(
            "Packaging Format",
            "What the archive is; by the attribute mime.type where that is asked for.",
        )
        .default(BY_MIME)
        .allowed(&[BY_MIME, "tar", "zip", "flowfile-stream-v3"]),
        PropertyKind::new(
            "File Filter",
            "A regular expression; only files whose whole name it matches come out, of a tar or \
             zip.",
        )
        .default(".*"),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "The files.",
        },
        RelationshipKind {
            name: "original",
            description: "The archive.",
        },
        RelationshipKind {
            name: "failure",
            description: "What is no archive, or a damaged one.",
        },
    ],
    writes: &[
        AttributeKind::new("filename", "The file's name."),
        AttributeKind::new("path", "Its folder in the archive with a slash at the end."),
        AttributeKind::new("fragment.identifier", "The archive's uuid."),
        AttributeKind::new(
            "fragment.index",
            "The file's number in the archive, from 1.",
        ),
        AttributeKind::new("fragment.count", "How many came out of the archive."),
        AttributeKind::new("segment.original.filename", "The archive's name."),
    ],
    input: Input::Required,
    make: |settings| UnpackContent::new(settings).map(|made| Box::new(made) as _),
};

struct UnpackContent {
    format: Option<Format>,
    names: Regex,
}

#[derive(Clone, Copy)]
enum Format {
    Tar,
    Zip,
    FlowFileStream,
}

/// Why nothing comes out.
enum UnpackError {
    /// The archive's fault.
    Archive(String),
    Session(ProcessorError),
}

impl UnpackContent {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let names = settings.text("File Filter")?.unwrap_or_default();
        Ok(UnpackContent {
            format: match settings.needed("Packaging Format")?.as_str() {
                "tar" => Some(Format::Tar),
                "zip" => Some(Format::Zip),
                "flowfile-stream-v3" => Some(Format::FlowFileStream),
                _ => None,
            },
            names: Regex::new(&format!("^(?:{names})$"))
                .map_err(|error| format!("File Filter: {error}"))?,
        })
    }

    /// Contents and attributes of what is in the archive.
    fn unpack(
        &self,
        session: &mut ProcessSession<'_>,
        archive: &FlowFile,
    ) -> Result<Vec<(Attributes, Content)>, UnpackError> {
        let format = match self.format {
            Some(format) => format,
            None => by_mime(archive.attributes())?,
        };
        let mut reader = session.reader(archive);
        let files = match format {
            Format::FlowFileStream => return stream(session, archive),
            Format::Tar => tar_files(&mut reader)?,
            Format::Zip => zip_files(&mut reader)?,
        };
        let mut out = Vec::new();
        for file in files {
            let name = Path::new(&file.name);
            let own = name.file_name().unwrap_or_default().to_string_lossy();
            if !self.names.is_match(&own) {
                continue;
            }
            let folder = name.parent().unwrap_or(Path::new("")).to_string_lossy();
            let path = match folder.as_ref() {
                "" => "./".to_owned(),
                folder => format!("{folder}/"),
            };
            let attributes = [("filename", own.into_owned()), ("path", path)];
            let content = content_of(session, archive, &file)?;
            out.push((Attributes::new(attributes), content));
        }
        Ok(out)
    }

    fn emit(
        session: &mut ProcessSession<'_>,
        archive: &FlowFile,
        files: Vec<(Attributes, Content)>,
    ) -> Result<(), ProcessorError> {
        let count = files.len().to_string();
        let identifier = session.uuid(archive);
        let original = session.filename(archive);
        for (index, (own, content)) in files.into_iter().enumerate() {
            let mut attributes = archive.attributes().as_ref().clone();
            attributes.remove(|name| name == "mime.type");
            for (name, value) in own.iter() {
                attributes.set(name, value);
            }
            attributes.set("fragment.identifier", identifier.as_str());
            attributes.set("fragment.index", (index + 1).to_string());
            attributes.set("fragment.count", count.as_str());
            attributes.set("segment.original.filename", original.as_ref());
            let mut flow_file = session.create_child(&[archive], Arc::new(attributes));
            session.set_content(&mut flow_file, content)?;
            session.transfer(flow_file, SUCCESS);
        }
        Ok(())
    }
}

impl Processor for UnpackContent {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(archive) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        match self.unpack(session, &archive) {
            Ok(files) => {
                Self::emit(session, &archive, files)?;
                session.transfer(archive, ORIGINAL);
            }
            Err(UnpackError::Archive(message)) => {
                context.post(Level::Error, &message);
                session.transfer(archive, FAILURE);
            }
            Err(UnpackError::Session(error)) => return Err(error),
        }
        Ok(Next::Scheduled)
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

fn content_of(
    session: &mut ProcessSession<'_>,
    archive: &FlowFile,
    file: &Packed,
) -> Result<Content, UnpackError> {
    let Some(plain) = file.deflated else {
        return Ok(archive.content().slice(file.offset, file.len));
    };
    let mut reader = session.reader(archive);
    let sought = reader.seek(SeekFrom::Start(file.offset));
    sought.map_err(|error| UnpackError::Session(content_failed(error)))?;
    // One byte more shows that it is longer than it says.
    let mut inflated = DeflateDecoder::new(reader.take(file.len)).take(plain + 1);
    match import(session, &mut inflated) {
        Ok(content) if content.len() == plain => Ok(content),
        Ok(_) => Err(UnpackError::Archive(format!(
            "'{}' is not as long as the zip says",
            file.name
        ))),
        Err(CopyError::Outside(error)) => Err(UnpackError::Archive(format!(
            "'{}' is damaged: {error}",
            file.name
        ))),
        Err(CopyError::Session(error)) => Err(UnpackError::Session(error)),
    }
}

/// What is in a FlowFile stream, with its own attributes.
fn stream(
    session: &mut ProcessSession<'_>,
    archive: &FlowFile,
) -> Result<Vec<(Attributes, Content)>, UnpackError> {
    let mut reader = session.reader(archive);
    let (mut at, size) = (0, archive.size());
    let mut out = Vec::new();
    while at < size {
        let mut head = Vec::new();
        let failed = |error| UnpackError::Session(content_failed(error));
        reader.seek(SeekFrom::Start(at)).map_err(failed)?;
        // Headers are short, so little is read at first.
        let header = loop {
            let more = (head.len() as u64).max(HEADER_BYTES);
            let mut limited = (&mut reader).take(more);
            let read = limited.read_to_end(&mut head).map_err(failed)?;
            match flow_file_stream::read_header(&head).map_err(UnpackError::Archive)? {
                Some(header) => break header,
                None if read == 0 || head.len() > EXPRESSION_RESULT_BYTES_MAX => {
                    let message = "the FlowFile stream ends too early or has too long attributes";
                    return Err(UnpackError::Archive(message.to_owned()));
                }
                None => {}
            }
        };
        let (attributes, len, used) = header;
        at += used as u64;
        let end = at.checked_add(len).filter(|end| *end <= size);
        let Some(end) = end else {
            let message = "the FlowFile stream ends too early";
            return Err(UnpackError::Archive(message.to_owned()));
        };
        out.push((attributes, archive.content().slice(at, len)));
        if out.len() > SESSION_FLOW_FILES_MAX {
            let message = format!("it has more than {SESSION_FLOW_FILES_MAX} FlowFiles");
            return Err(UnpackError::Archive(message));
        }
        at = end;
    }
    Ok(out)
}

fn by_mime(attributes: &Attributes) -> Result<Format, UnpackError> {
    match attributes.get("mime.type") {
        Some("application/tar" | "application/x-tar") => Ok(Format::Tar),
        Some("application/zip") => Ok(Format::Zip),
        Some(flow_file_stream::MIME) => Ok(Format::FlowFileStream),
        other => Err(UnpackError::Archive(format!(
            "mime.type '{}' is no archive's",
            other.unwrap_or_default()
        ))),
    }
}

impl From<ArchiveError> for UnpackError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Read(error) => UnpackError::Session(content_failed(error)),
            ArchiveError::Damaged(message) => UnpackError::Archive(message),
        }
    }
}

const SUCCESS: usize = 0;
const ORIGINAL: usize = 1;
const FAILURE: usize = 2;

const BY_MIME: &str = "use mime.type attribute";

/// Bytes in which a FlowFile's header is looked for at first.
const HEADER_BYTES: u64 = 4_096;

#[cfg(test)]
mod tests {
    use crate::testing::{Out, Rig};

    /// Three FlowFiles merged into an archive.
    fn archive(format: &str) -> Out {
        let properties = [
            ("Merge Strategy", "Bin-Packing Algorithm"),
            ("Merge Format", format),
            ("Minimum Number of Entries", "3"),
            ("Keep Path", "true"),
        ];
        let mut rig = Rig::new("MergeContent", &properties);
        let long = "long ".repeat(10_000);
        for (name, text) in [("a", "one"), ("b", &long), ("c", "")] {
            rig.put(&[("filename", name), ("path", "x/")], text);
        }
        rig.run();
        rig.one("merged")
    }

    #[test]
    fn what_was_merged_comes_apart_again() {
        let long = "long ".repeat(10_000);
        for format in ["TAR", "ZIP", "FlowFile Stream, v3"] {
            let merged = archive(format);
            let mut rig = Rig::new("UnpackContent", &[]);
            let mime = merged.attribute("mime.type").to_owned();
            rig.put(
                &[("mime.type", &mime), ("filename", "all")],
                &merged.content,
            );
            rig.run();
            assert_eq!(rig.count("original"), 1, "{format}: {:?}", rig.bulletins());
            let out = rig.out("success");
            let seen: Vec<[&str; 4]> = out
                .iter()
                .map(|out| {
                    let attribute = |name| out.attribute(name);
                    let index = attribute("fragment.index");
                    [attribute("filename"), attribute("path"), index, out.text()]
                })
                .collect();
            let expected = [
                ["a", "x/", "1", "one"],
                ["b", "x/", "2", &long],
                ["c", "x/", "3", ""],
            ];
            assert!(seen == expected, "{format}");
            assert_eq!(out[0].attribute("segment.original.filename"), "all");
            assert_eq!(out[0].attribute("fragment.count"), "3");
        }
    }

    #[test]
    fn a_filter_leaves_out_and_other_bytes_fail() {
        let merged = archive("TAR");
        let properties = [("Packaging Format", "tar"), ("File Filter", "[ac]")];
        let mut rig = Rig::new("UnpackContent", &properties);
        rig.put(&[], &merged.content);
        rig.put(&[], "no tar at all");
        rig.put(&[], &merged.content[..700]);
        rig.run();
        let counts = [("success", 2), ("original", 1), ("failure", 2)];
        assert_eq!(rig.counts(), counts);
        let mut rig = Rig::new("UnpackContent", &[]);
        rig.put(&[("mime.type", "application/zip")], &merged.content);
        rig.put(&[("mime.type", "text/plain")], "text");
        rig.put(&[("mime.type", "application/flowfile-v3")], "NiFiFF3\0");
        rig.run();
        assert_eq!(rig.counts(), [("failure", 3)]);
    }

    #[test]
    fn the_usual_tools_archives_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/f"), "file").unwrap();
        let tools: [(&str, &[&str]); 3] = [
            ("tar", &["tar", "--format=gnu", "-cf", "out", "d"]),
            ("tar", &["tar", "--format=pax", "-cf", "out", "d"]),
            ("zip", &["python3", "-m", "zipfile", "-c", "out", "d"]),
        ];
        for (format, command) in tools {
            let done = std::process::Command::new(command[0])
                .args(&command[1..])
                .current_dir(dir.path())
                .status();
            if !done.is_ok_and(|status| status.success()) {
                eprintln!("{} is not there to be tried", command[0]);
                continue;
            }
            let bytes = std::fs::read(dir.path().join("out")).unwrap();
            let mut rig = Rig::new("UnpackContent", &[("Packaging Format", format)]);
            rig.put(&[], bytes);
            rig.run();
            let out = rig.one("success");
            assert_eq!((out.text(), out.attribute("path")), ("file", "d/"));
        }
    }
}
