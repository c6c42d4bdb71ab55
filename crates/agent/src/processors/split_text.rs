//! SplitText: pieces of text on line boundaries, as views of the content that is there.

use super::fragments::{self, Fragments};
use super::lines::{Line, LineFinder};
use super::refused::{Refused, taken};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "SplitText",
    description: "Splits text on line boundaries, by a number of lines, by a size, or by both, \
                  whichever is reached first. Header lines stand at the head of each piece. \
                  Pieces are views of the content: no byte is copied.",
    properties: &[
        PropertyKind::new(
            "Line Split Count",
            "Lines of each piece, headers not counted. 0 leaves it to the Maximum Fragment Size.",
        )
        .required()
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Maximum Fragment Size",
            "Bytes of each piece at most, headers counted in; a longer line is a piece of its own.",
        )
        .shape(Shape::Size),
        PropertyKind::new(
            "Header Line Count",
            "Lines at the start that are repeated at the head of each piece.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Header Line Marker Characters",
            "Lines at the start that begin with this are headers, where Header Line Count is 0.",
        ),
        PropertyKind::new(
            "Remove Trailing Newlines",
            "Whether line endings at the end of each piece are left out. Pieces of nothing but \
             line endings are then left out too, unless they have headers.",
        )
        .default("true")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be split.",
        },
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were split.",
        },
        RelationshipKind {
            name: "splits",
            description: "The pieces.",
        },
    ],
    writes: &[
        AttributeKind::new(
            "text.line.count",
            "Lines of the piece, headers and empty lines not counted.",
        ),
        AttributeKind::new("fragment.size", "Bytes of the piece."),
        AttributeKind::new(
            "filename",
            "The original's name or uuid, '.fragment.', the identifier and the index.",
        ),
        fragments::IDENTIFIER,
        fragments::INDEX,
        fragments::COUNT,
        fragments::ORIGINAL,
    ],
    input: Input::Required,
    make: |settings| SplitText::new(settings).map(|made| Box::new(made) as _),
};

struct SplitText {
    lines_max: u64,
    bytes_max: Option<u64>,
    header_lines: u64,
    header_marker: Option<String>,
    trims: bool,
}

/// Lines that stand together.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    offset: u64,
    len: u64,
    lines: u64,
    /// Lines that are more than an ending.
    text_lines: u64,
    /// Bytes of line endings at the end.
    endings: u64,
}

impl SplitText {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let split = SplitText {
            lines_max: settings.integer("Line Split Count")?,
            bytes_max: match settings.text("Maximum Fragment Size")? {
                Some(_) => Some(settings.size("Maximum Fragment Size")?),
                None => None,
            },
            header_lines: settings.integer("Header Line Count")?,
            header_marker: settings.text("Header Line Marker Characters")?,
            trims: settings.flag("Remove Trailing Newlines")?,
        };
        if split.lines_max == 0 && split.bytes_max.is_none() {
            return Err(
                "Line Split Count is 0 and there is no Maximum Fragment Size: set one of them"
                    .to_owned(),
            );
        }
        Ok(split)
    }

    fn split(&self, session: &mut ProcessSession<'_>, flow_file: &FlowFile) -> Result<(), Refused> {
        let marker = self.header_marker.as_ref().map_or(0, String::len);
        let mut finder = LineFinder::new(session.reader(flow_file), marker);
        let mut ahead = None;
        let header = self.header(&mut finder, &mut ahead)?;
        let filename = session.filename(flow_file);
        let mut fragments = Fragments::of(session, flow_file);
        while let Some(piece) = self.piece(&mut finder, &mut ahead, header.len)? {
            let Some(content) = self.content(flow_file.content(), header, piece) else {
                continue;
            };
            let (identifier, index) = (&fragments.identifier, fragments.len() + 1);
            let attributes = vec![
                ("text.line.count", piece.text_lines.to_string()),
                ("fragment.size", content.len().to_string()),
                (
                    "filename",
                    format!("{filename}.fragment.{identifier}.{index}"),
                ),
            ];
            fragments.push(content, attributes)?;
        }
        fragments.send(session, flow_file, 1, SPLITS)?;
        Ok(())
    }

    /// Reads the headers; a line that is none is left in `ahead`.
    fn header(&self, finder: &mut LineFinder, ahead: &mut Option<Line>) -> Result<Piece, Refused> {
        let mut header = Piece::default();
        loop {
            if self.header_lines > 0 {
                if header.lines == self.header_lines {
                    return Ok(header);
                }
            } else if self.header_marker.is_none() {
                return Ok(header);
            }
            let Some(line) = finder.next()? else {
                if self.header_lines > 0 {
                    let lines = self.header_lines;
                    let reason = format!("the text has fewer lines than its {lines} headers");
                    return Err(Refused::flow_file(reason));
                }
                return Ok(header);
            };
            if let (0, Some(marker)) = (self.header_lines, &self.header_marker)
                && !finder.begins_with(marker.as_bytes())
            {
                *ahead = Some(line);
                return Ok(header);
            }
            if self.is_beyond(header.len + line.len) {
                return Err(Refused::flow_file(
                    "the headers are longer than the Maximum Fragment Size",
                ));
            }
            header.add(line);
        }
    }

    /// Reads the lines of the next piece; one that is too many is left in `ahead`.
    fn piece(
        &self,
        finder: &mut LineFinder,
        ahead: &mut Option<Line>,
        header_len: u64,
    ) -> Result<Option<Piece>, Refused> {
        let mut piece = Piece::default();
        loop {
            let line = match ahead.take() {
                Some(line) => line,
                None => match finder.next()? {
                    Some(line) => line,
                    None => return Ok((piece.lines > 0).then_some(piece)),
                },
            };
            if piece.lines > 0 && self.is_beyond(header_len + piece.len + line.len) {
                *ahead = Some(line);
                return Ok(Some(piece));
            }
            piece.add(line);
            if piece.lines == self.lines_max {
                return Ok(Some(piece));
            }
        }
    }

    fn is_beyond(&self, len: u64) -> bool {
        self.bytes_max.is_some_and(|max| len > max)
    }

    /// The piece behind its header; none where nothing is left of it.
    fn content(&self, all: &Content, header: Piece, piece: Piece) -> Option<Content> {
        if !self.trims {
            return Some(Content::join([
                all.slice(header.offset, header.len),
                all.slice(piece.offset, piece.len),
            ]));
        }
        let text = all.slice(piece.offset, piece.len - piece.endings);
        if text.is_empty() {
            let header = all.slice(header.offset, header.len - header.endings);
            return (!header.is_empty()).then_some(header);
        }
        Some(Content::join([all.slice(header.offset, header.len), text]))
    }
}

impl Piece {
    fn add(&mut self, line: Line) {
        if self.lines == 0 {
            self.offset = line.offset;
        }
        self.lines += 1;
        self.len += line.len;
        if line.len == line.ending {
            self.endings += line.ending;
        } else {
            self.endings = line.ending;
            self.text_lines += 1;
        }
    }
}

impl Processor for SplitText {
    fn is_concurrent(&self) -> bool {
        true
    }

    fn is_batching(&self) -> bool {
        true
    }

    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        match taken(context, self.split(session, &flow_file))? {
            Some(()) => session.transfer(flow_file, ORIGINAL),
            None => session.transfer(flow_file, FAILURE),
        }
        Ok(Next::Scheduled)
    }
}

const FAILURE: usize = 0;
const ORIGINAL: usize = 1;
const SPLITS: usize = 2;
