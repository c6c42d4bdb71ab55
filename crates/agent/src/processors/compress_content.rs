//! CompressContent: contents compressed, and plain again.

use std::io::Read;
use std::sync::Arc;

use super::archive::{Member, TAR_BLOCK_BYTES, tar_end, tar_first, tar_header};
use super::files::{CopyError, content_failed, import};
use super::packing::Format;
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::content::{Content, ContentReader};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "CompressContent",
    description: "Compresses contents, or makes them plain again.",
    properties: &[
        PropertyKind::new("Mode", "What is done.")
            .default("compress")
            .allowed(&["compress", "decompress"]),
        PropertyKind::new(
            "Compression Format",
            "How contents are compressed; by the attribute mime.type where that is asked for.",
        )
        .default(BY_MIME)
        .allowed(&[BY_MIME, "gzip", "bzip2", "xz-lzma2", "lzma"]),
        PropertyKind::new("Compression Level", "From 0, fast, to 9, small.")
            .default("1")
            .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Update Filename",
            "Whether the attribute filename gets the format's ending, or loses it.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Encapsulate in TAR",
            "Whether a content becomes the one file of a tar that is then compressed, and is \
             looked for in one when it is made plain, as MiNiFi C++ did at first; false is what \
             NiFi does.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new("Batch Size", "FlowFiles handled in one commit.")
            .default("1")
            .shape(Shape::Integer(1)),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with their new content, and those of a mime.type that is no \
                          format's, as they came.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles without a mime.type, where that is to say the format, or whose \
                          content is not of the format.",
        },
    ],
    writes: &[
        AttributeKind::new(
            "mime.type",
            "The format's media type; gone from contents made plain.",
        ),
        AttributeKind::new("filename", "With its new ending, where that is asked for."),
    ],
    input: Input::Required,
    make: |settings| CompressContent::new(settings).map(|made| Box::new(made) as _),
};

struct CompressContent {
    compresses: bool,
    format: Option<Format>,
    level: u32,
    updates_name: bool,
    in_tar: bool,
    batch: usize,
}

impl CompressContent {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let format = settings.needed("Compression Format")?;
        let level = settings.integer("Compression Level")?;
        if level > 9 {
            return Err("Compression Level is from 0 to 9".to_owned());
        }
        Ok(CompressContent {
            compresses: settings.needed("Mode")? == "compress",
            format: Format::WRITTEN
                .into_iter()
                .find(|known| known.name() == format),
            level,
            updates_name: settings.flag("Update Filename")?,
            in_tar: settings.flag("Encapsulate in TAR")?,
            batch: settings.integer("Batch Size")?,
        })
    }

    /// The new content; the inner error says why there is none.
    fn convert(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
        format: Format,
    ) -> Result<Result<Content, String>, ProcessorError> {
        if self.compresses {
            return self.compress(session, flow_file, format).map(Ok);
        }
        match self.unpack(session, flow_file, format) {
            Ok(Some(plain)) => Ok(Ok(plain)),
            Ok(None) => Ok(Err(
                "a content has no tar in it; set Encapsulate in TAR to false where there is none"
                    .to_owned(),
            )),
            Err(CopyError::Outside(error)) => {
                let name = format.name();
                Ok(Err(format!("a content is no {name} or damaged: {error}")))
            }
            Err(CopyError::Session(error)) => Err(error),
        }
    }

    /// The plain content; `None` when it should be in a tar and is not.
    fn unpack(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
        format: Format,
    ) -> Result<Option<Content>, CopyError> {
        let reader = session.reader(flow_file);
        let mut plain = format.unpack(reader).map_err(CopyError::Outside)?;
        let mut start = Vec::new();
        let mut limited = (&mut plain).take(TAR_HEAD_BYTES);
        limited
            .read_to_end(&mut start)
            .map_err(CopyError::Outside)?;
        let first = tar_first(&start);
        if self.in_tar && first.is_none() {
            return Ok(None);
        }
        let all = import(session, &mut start.as_slice().chain(plain))?;
        Ok(match first.filter(|_| self.in_tar) {
            None => Some(all),
            Some((offset, len)) => {
                let is_whole = offset.checked_add(len).is_some_and(|end| end <= all.len());
                is_whole.then(|| all.slice(offset, len))
            }
        })
    }

    fn compress(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
        format: Format,
    ) -> Result<Content, ProcessorError> {
        let size = flow_file.size();
        let reader: ContentReader = session.reader(flow_file);
        let (before, after) = if self.in_tar {
            let header = tar_header(&Member {
                name: &session.filename(flow_file),
                size,
                mode: 0o755,
                modified: u64::try_from(session.now().0 / 1_000).unwrap_or(0),
            });
            let over = (size % TAR_BLOCK_BYTES as u64) as usize;
            let mut end = vec![0; (TAR_BLOCK_BYTES - over) % TAR_BLOCK_BYTES];
            end.append(&mut tar_end());
            (header, end)
        } else {
            (Vec::new(), Vec::new())
        };
        let mut from = before.as_slice().chain(reader).chain(after.as_slice());
        let mut writer = session.writer();
        format
            .pack(self.level, &mut from, &mut writer)
            .map_err(content_failed)?;
        writer.finish()
    }

    /// None where the media type is that of no format.
    fn format_of(&self, flow_file: &FlowFile) -> Result<Option<Format>, String> {
        if self.format.is_some() {
            return Ok(self.format);
        }
        let mime = flow_file.attributes().get("mime.type");
        let mime = mime.filter(|mime| !mime.is_empty());
        let mime = mime.ok_or("a FlowFile has no mime.type that could say its format")?;
        Ok(Format::of_mime(mime))
    }

    fn rename(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        format: Format,
    ) -> crate::flowfile::Attributes {
        let mut attributes = flow_file.attributes().as_ref().clone();
        if self.compresses {
            attributes.set("mime.type", format.mime());
        } else {
            attributes.remove(|name| name == "mime.type");
        }
        if self.updates_name {
            let name = session.filename(flow_file);
            let ending = if self.in_tar && self.compresses {
                format!(".tar{}", format.extension())
            } else {
                format.extension().to_owned()
            };
            let name = if self.compresses {
                format!("{name}{ending}")
            } else {
                let plain = name.strip_suffix(format.extension()).unwrap_or(&name);
                let is_tar = self.in_tar && plain.len() < name.len();
                let inner = plain.strip_suffix(".tar").filter(|_| is_tar);
                inner.unwrap_or(plain).to_owned()
            };
            attributes.set("filename", name);
        }
        attributes
    }
}

impl Processor for CompressContent {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(self.batch, BATCH_BYTES) {
            let outcome = match self.format_of(&flow_file) {
                Ok(Some(format)) => self
                    .convert(session, &flow_file, format)?
                    .map(|content| (content, format)),
                Ok(None) => {
                    session.transfer(flow_file, SUCCESS);
                    continue;
                }
                Err(message) => Err(message),
            };
            match outcome {
                Ok((content, format)) => {
                    let attributes = self.rename(session, &flow_file, format);
                    session.set_content(&mut flow_file, content)?;
                    session.set_attributes(&mut flow_file, Arc::new(attributes));
                    session.transfer(flow_file, SUCCESS);
                }
                Err(message) => {
                    context.post(Level::Error, &message);
                    session.transfer(flow_file, FAILURE);
                }
            }
        }
        Ok(Next::Scheduled)
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

const BY_MIME: &str = "use mime.type attribute";

/// Bytes of a tar in which its first file must begin.
const TAR_HEAD_BYTES: u64 = 64 << 10;

/// Bytes that are handled in one commit at most, so that a crash repeats little.
const BATCH_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use crate::testing::{Out, Rig};

    /// What becomes of a content, by the one relationship that it leaves by.
    fn run(
        properties: &[(&str, &str)],
        attributes: &[(&str, &str)],
        content: &[u8],
    ) -> (String, Out) {
        let mut rig = Rig::new("CompressContent", properties);
        rig.put(attributes, content);
        rig.run();
        let relationship = rig.counts()[0].0.to_owned();
        let out = rig.one(&relationship);
        (relationship, out)
    }

    #[test]
    fn there_and_back_again_in_every_format() {
        let text = "the thalweg ".repeat(300_000);
        for (format, mime, ending) in [
            ("gzip", "application/gzip", ".gz"),
            ("bzip2", "application/bzip2", ".bz2"),
            ("xz-lzma2", "application/x-xz", ".xz"),
            ("lzma", "application/x-lzma", ".lzma"),
        ] {
            for (in_tar, inner) in [("true", ".tar"), ("false", "")] {
                let common = [("Update Filename", "true"), ("Encapsulate in TAR", in_tar)];
                let there = [&[("Compression Format", format)], &common[..]].concat();
                let (to, packed) = run(&there, &[("filename", "a.txt")], text.as_bytes());
                assert_eq!(to, "success", "{format}");
                assert!(packed.content.len() < text.len() / 10, "{format}");
                assert_eq!(packed.attribute("mime.type"), mime);
                assert_eq!(
                    packed.attribute("filename"),
                    format!("a.txt{inner}{ending}")
                );
                let back = [&[("Mode", "decompress")], &common[..]].concat();
                let attributes: Vec<(&str, &str)> = packed
                    .attributes
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str()))
                    .collect();
                let (to, plain) = run(&back, &attributes, &packed.content);
                assert_eq!(to, "success", "{format}");
                assert!(plain.text() == text, "{format} in a tar: {in_tar}");
                assert_eq!(plain.attribute("filename"), "a.txt");
                assert_eq!(plain.attribute("mime.type"), "");
            }
        }
    }

    #[test]
    fn what_has_no_name_is_named_by_its_uuid() {
        let properties = [("Compression Format", "gzip"), ("Update Filename", "true")];
        let (_, packed) = run(&properties, &[], b"text");
        assert_eq!(
            packed.attribute("filename"),
            format!("{}.tar.gz", packed.uuid)
        );
    }

    #[test]
    fn what_is_not_of_the_format_fails_or_goes_on_as_it_is() {
        let unpack = ("Mode", "decompress");
        for (properties, mime) in [
            (vec![unpack, ("Compression Format", "gzip")], ""),
            (vec![unpack, ("Compression Format", "bzip2")], ""),
            (vec![unpack, ("Compression Format", "xz-lzma2")], ""),
            (vec![], ""),
            (vec![unpack], "application/x-lzma"),
        ] {
            let (to, out) = run(
                &properties,
                &[("mime.type", mime)],
                b"plain text, no archive",
            );
            assert_eq!(
                (to.as_str(), out.text()),
                ("failure", "plain text, no archive")
            );
            assert_eq!(out.attribute("mime.type"), mime);
        }
        let (to, out) = run(&[], &[("mime.type", "text/plain")], b"text");
        assert_eq!((to.as_str(), out.text()), ("success", "text"));
        assert_eq!(out.attribute("mime.type"), "text/plain");
        let gzip = [
            ("Compression Format", "gzip"),
            ("Encapsulate in TAR", "false"),
        ];
        let (_, packed) = run(&gzip, &[], b"no tar");
        let (to, _) = run(
            &[unpack, ("Compression Format", "gzip")],
            &[],
            &packed.content,
        );
        assert_eq!(to, "failure");
    }
}
