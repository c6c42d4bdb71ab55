//! SplitContent: pieces of content at a sequence of bytes, as views of the content that is there.

use std::io;

use super::fragments::{self, Fragments};
use super::refused::{Refused, taken};
use super::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind, RelationshipKind,
    Settings, Shape,
};
use crate::content::ContentReader;
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "SplitContent",
    description: "Splits content at each occurrence of a sequence of bytes. Pieces are views of \
                  the content: no byte is copied. Empty pieces are left out.",
    properties: &[
        PropertyKind::new("Byte Sequence Format", "How the Byte Sequence is written.")
            .default("Hexadecimal")
            .allowed(&["Hexadecimal", "Text"]),
        PropertyKind::new("Byte Sequence", "The bytes to split at.").required(),
        PropertyKind::new(
            "Keep Byte Sequence",
            "Whether the sequence stays with the pieces.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Byte Sequence Location",
            "Whether a sequence that stays ends the piece before it or begins the one behind it.",
        )
        .default("Trailing")
        .allowed(&["Trailing", "Leading"]),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were split, or have too many pieces.",
        },
        RelationshipKind {
            name: "splits",
            description: "The pieces.",
        },
    ],
    writes: &[
        fragments::IDENTIFIER,
        fragments::INDEX,
        fragments::COUNT,
        fragments::ORIGINAL,
    ],
    input: Input::Required,
    make: |settings| SplitContent::new(settings).map(|made| Box::new(made) as _),
};

struct SplitContent {
    sequence: memchr::memmem::Finder<'static>,
    keeps: Option<Keeps>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Trailing,
    Leading,
}

impl SplitContent {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let text = settings.needed("Byte Sequence")?;
        let sequence = match settings.needed("Byte Sequence Format")?.as_str() {
            "Text" => text.into_bytes(),
            _ => from_hex(&text)
                .ok_or_else(|| format!("Byte Sequence: '{text}' is not hexadecimal"))?,
        };
        if sequence.len() > SEQUENCE_BYTES_MAX {
            return Err(format!(
                "Byte Sequence has more than {SEQUENCE_BYTES_MAX} bytes"
            ));
        }
        let keeps = settings.flag("Keep Byte Sequence")?;
        let is_leading = settings.needed("Byte Sequence Location")? == "Leading";
        let keeps = keeps.then_some(if is_leading {
            Keeps::Leading
        } else {
            Keeps::Trailing
        });
        Ok(SplitContent {
            sequence: memchr::memmem::Finder::new(&sequence).into_owned(),
            keeps,
        })
    }

    fn split(&self, session: &mut ProcessSession<'_>, flow_file: &FlowFile) -> Result<(), Refused> {
        let mut fragments = Fragments::of(session, flow_file);
        let len = self.sequence.needle().len() as u64;
        let mut start = 0;
        let mut push = |from: u64, to: u64| {
            let piece = flow_file.content().slice(from, to - from);
            if piece.is_empty() {
                return Ok(());
            }
            fragments.push(piece, Vec::new())
        };
        self.find(session.reader(flow_file), |at| {
            let (end, next) = match self.keeps {
                Some(Keeps::Trailing) => (at + len, at + len),
                Some(Keeps::Leading) => (at, at),
                None => (at, at + len),
            };
            push(start, end)?;
            start = next;
            Ok(())
        })?;
        push(start, flow_file.size())?;
        fragments.send(session, flow_file, 1, SPLITS)?;
        Ok(())
    }

    /// Tells where the sequence occurs, each behind the end of the one before.
    fn find(
        &self,
        mut reader: ContentReader,
        mut found: impl FnMut(u64) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let len = self.sequence.needle().len();
        // The end of what was read before, where a sequence may have begun, and the next piece.
        let mut window: Vec<u8> = Vec::new();
        let mut window_start = 0;
        loop {
            let piece = reader
                .piece()
                .map_err(|error: io::Error| Refused::from(error))?;
            if piece.is_empty() {
                return Ok(());
            }
            reader.consume(piece.len());
            window.extend_from_slice(&piece);
            let mut done = 0;
            while let Some(at) = self.sequence.find(&window[done..]) {
                found(window_start + (done + at) as u64)?;
                done += at + len;
            }
            let gone = done.max(window.len().saturating_sub(len - 1));
            window.drain(..gone);
            window_start += gone as u64;
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    // Two hexadecimal digits are below 256.
    let bytes = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
    Some(bytes.collect())
}

impl Processor for SplitContent {
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
        // MiNiFi's processor has no way for failures.
        taken(context, self.split(session, &flow_file))?;
        session.transfer(flow_file, ORIGINAL);
        Ok(Next::Scheduled)
    }
}

const ORIGINAL: usize = 0;
const SPLITS: usize = 1;

/// Bytes of a sequence at most.
const SEQUENCE_BYTES_MAX: usize = 4_096;
