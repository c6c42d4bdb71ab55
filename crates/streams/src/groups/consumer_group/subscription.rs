//! What a member reads: topics by name, and all whose names match a regular expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::super::{GroupError, Sight};

/// A member's topics.
#[derive(Clone, Debug, Default)]
pub(super) struct Subscription {
    names: BTreeSet<String>,
    pattern: Option<Pattern>,
    /// What the pattern may find, or a classic member's names could be.
    sight: Sight,
}

/// A regular expression that a whole name must match; RE2's syntax, without backtracking.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    regex: Arc<Regex>,
}

impl Subscription {
    pub(super) fn new(names: BTreeSet<String>, pattern: Option<Pattern>, sight: Sight) -> Self {
        Subscription {
            names,
            pattern,
            sight,
        }
    }

    /// What a classic member reads: of the names that it tells, nobody has asked yet whether it may
    /// know of them.
    pub(super) fn of_classic(mut names: BTreeSet<String>, sight: Sight) -> Self {
        names.retain(|name| sight.sees(name));
        Subscription::new(names, None, sight)
    }

    pub(super) fn sight(&self) -> &Sight {
        &self.sight
    }

    /// Has the pattern find what `sight` allows; true when that may be something else than before.
    pub(super) fn look_with(&mut self, sight: &Sight) -> bool {
        // What a member of the process before was told of is no less than it may be.
        let is_other = self.sight != *sight && !self.sight.is_kept();
        self.sight = sight.clone();
        is_other && self.pattern.is_some()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(super) fn name_set(&self) -> &BTreeSet<String> {
        &self.names
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    pub(super) fn regex(&self) -> Option<&str> {
        self.pattern.as_ref().map(|p| p.text.as_str())
    }

    /// Whether the member reads the topic of this name.
    pub(super) fn wants(&self, name: &str) -> bool {
        let finds = |pattern: &Pattern| pattern.fits(name) && self.sight.sees(name);
        self.names.contains(name) || self.pattern.as_ref().is_some_and(finds)
    }

    /// Whether both read the same, however the topics come and go.
    pub(super) fn is_like(&self, other: &Subscription) -> bool {
        self.names == other.names && self.regex() == other.regex()
    }

    /// About what it takes in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        names_bytes(&self.names) + self.regex().map_or(0, str::len)
    }
}

impl Pattern {
    /// Reads an expression; `InvalidRegex` when it is none or would take too much memory.
    pub(super) fn new(text: &str) -> Result<Self, GroupError> {
        let whole = format!("^(?:{text})$");
        let regex = RegexBuilder::new(&whole)
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|error| GroupError::InvalidRegex(error.to_string()))?;
        Ok(Pattern {
            text: text.to_owned(),
            regex: Arc::new(regex),
        })
    }

    pub(super) fn fits(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }
}

/// About what subscribed names take in memory, in bytes.
pub(in super::super) fn names_bytes<'n>(names: impl IntoIterator<Item = &'n String>) -> usize {
    let each = names.into_iter();
    each.map(|name| name.len() + NAME_OVERHEAD_BYTES).sum()
}

/// What a subscribed name takes beside its bytes.
const NAME_OVERHEAD_BYTES: usize = 32;

/// Memory of one compiled expression, and as much again for matching with it, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
