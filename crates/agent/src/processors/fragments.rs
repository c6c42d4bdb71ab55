//! Pieces of one FlowFile's content as FlowFiles of their own, which a MergeContent can put
//! together again: `fragment.identifier`, `.index`, `.count` and `segment.original.filename`.

use std::sync::Arc;

use super::refused::Refused;
use super::{AttributeKind, ProcessorError};
use crate::content::Content;
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::SPLITS_MAX;
use crate::session::ProcessSession;

/// The attributes that every splitting processor sets.
pub(super) const IDENTIFIER: AttributeKind = AttributeKind::new(
    "fragment.identifier",
    "A random UUID, the same for all pieces of one FlowFile.",
);
/// See [`IDENTIFIER`].
pub(super) const INDEX: AttributeKind =
    AttributeKind::new("fragment.index", "Which piece of its FlowFile this is.");
/// See [`IDENTIFIER`].
pub(super) const COUNT: AttributeKind = AttributeKind::new(
    "fragment.count",
    "How many pieces the FlowFile was split into.",
);
/// See [`IDENTIFIER`].
pub(super) const ORIGINAL: AttributeKind = AttributeKind::new(
    "segment.original.filename",
    "The filename of the FlowFile that was split.",
);

/// The pieces of one FlowFile.
pub(super) struct Fragments {
    /// What all pieces share.
    pub(super) identifier: String,
    original: String,
    base: Attributes,
    pieces: Vec<Piece>,
}

struct Piece {
    content: Content,
    attributes: Vec<(&'static str, String)>,
}

impl Fragments {
    /// No pieces of `parent` yet; they will have its attributes.
    pub(super) fn of(session: &ProcessSession<'_>, parent: &FlowFile) -> Self {
        Fragments {
            identifier: uuid::Uuid::new_v4().to_string(),
            original: session.filename(parent).into_owned(),
            base: parent.attributes().as_ref().clone(),
            pieces: Vec::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Adds a piece with attributes of its own.
    ///
    /// Errors: there are more than one session takes.
    pub(super) fn push(
        &mut self,
        content: Content,
        attributes: Vec<(&'static str, String)>,
    ) -> Result<(), Refused> {
        if self.pieces.len() >= SPLITS_MAX {
            return Err(Refused::flow_file(format!(
                "the content has more than {SPLITS_MAX} pieces: split it in two stages"
            )));
        }
        self.pieces.push(Piece {
            content,
            attributes,
        });
        Ok(())
    }

    /// Sends the pieces, counted from `first`, to a relationship.
    pub(super) fn send(
        self,
        session: &mut ProcessSession<'_>,
        parent: &FlowFile,
        first: usize,
        relationship: usize,
    ) -> Result<(), ProcessorError> {
        let count = self.pieces.len().to_string();
        for (index, piece) in self.pieces.into_iter().enumerate() {
            let mut attributes = self.base.clone();
            attributes.set(IDENTIFIER.name, self.identifier.as_str());
            attributes.set(INDEX.name, (first + index).to_string());
            attributes.set(COUNT.name, count.as_str());
            attributes.set(ORIGINAL.name, self.original.as_str());
            for (name, value) in piece.attributes {
                attributes.set(name, value);
            }
            let mut child = session.create_child(&[parent], Arc::new(attributes));
            session.set_content(&mut child, piece.content)?;
            session.transfer(child, relationship);
        }
        Ok(())
    }
}
