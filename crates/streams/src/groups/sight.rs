//! Which topics a member may know of.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The topics that a member's regular expression may find, or that a classic member may be told of;
/// all of them by default.
#[derive(Clone, Default)]
pub struct Sight {
    /// Another number whenever `sees` may answer otherwise than before.
    revision: u64,
    sees: Option<Arc<Seeing>>,
}

/// Says of a topic's wire name whether it may be known.
type Seeing = dyn Fn(&str) -> bool + Send + Sync;

impl Sight {
    /// The topics for which `sees` says so, until the number changes.
    pub fn new(revision: u64, sees: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Sight {
            revision,
            sees: Some(Arc::new(sees)),
        }
    }

    /// The topics that a member of the process before was told of, until it comes.
    pub(super) fn kept(names: BTreeSet<String>) -> Self {
        Sight::new(KEPT, move |name| names.contains(name))
    }

    /// Whether the member has not come since.
    pub(super) fn is_kept(&self) -> bool {
        self.revision == KEPT
    }

    /// Whether the member may know of the topic with this wire name.
    pub(super) fn sees(&self, name: &str) -> bool {
        self.sees.as_ref().is_none_or(|sees| sees(name))
    }
}

impl PartialEq for Sight {
    /// Two sights of one revision are taken for the same: they are compared for one member only.
    fn eq(&self, other: &Sight) -> bool {
        self.revision == other.revision && self.sees.is_some() == other.sees.is_some()
    }
}

impl Eq for Sight {}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sight")
            .field("revision", &self.revision)
            .field("is_bounded", &self.sees.is_some())
            .finish()
    }
}

/// No sight of a member that has come has such a number.
const KEPT: u64 = u64::MAX;
