//! Which earlier versions a new schema is held against, and in which direction.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::format::{ParsedSchema, Policy};

/// What a subject's next schema has to be to the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)] // The names are the registry's own words; `rule` says what they mean.
pub enum Level {
    None,
    Backward,
    BackwardTransitive,
    Forward,
    ForwardTransitive,
    Full,
    FullTransitive,
}

/// What a level asks for.
struct Rule {
    /// The new schema reads what the earlier ones wrote.
    reads_old: bool,
    /// The earlier schemas read what the new one writes.
    is_read_by_old: bool,
    /// All earlier versions count, not the last one alone.
    is_transitive: bool,
}

/// An earlier version of a subject.
#[derive(Clone)]
pub(super) struct Earlier {
    pub version: i32,
    pub schema: Arc<ParsedSchema>,
}

impl Level {
    /// Every level, as errors list them.
    pub(super) const ALL: [Level; 7] = [
        Level::None,
        Level::Backward,
        Level::BackwardTransitive,
        Level::Forward,
        Level::ForwardTransitive,
        Level::Full,
        Level::FullTransitive,
    ];

    /// Its name on the wire.
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::None => "NONE",
            Level::Backward => "BACKWARD",
            Level::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Level::Forward => "FORWARD",
            Level::ForwardTransitive => "FORWARD_TRANSITIVE",
            Level::Full => "FULL",
            Level::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    /// The level of this name, in whatever case.
    pub(super) fn named(name: &str) -> Option<Level> {
        let mut all = Level::ALL.into_iter();
        all.find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// Whether only the last version counts.
    pub(super) fn asks_last_only(self) -> bool {
        !self.rule().is_transitive
    }

    fn rule(self) -> Rule {
        let (reads_old, is_read_by_old, is_transitive) = match self {
            Level::None => (false, false, false),
            Level::Backward => (true, false, false),
            Level::BackwardTransitive => (true, false, true),
            Level::Forward => (false, true, false),
            Level::ForwardTransitive => (false, true, true),
            Level::Full => (true, true, false),
            Level::FullTransitive => (true, true, true),
        };
        Rule {
            reads_old,
            is_read_by_old,
            is_transitive,
        }
    }
}

/// Why `new` may not follow `earlier`, which is in the order of versions: the reasons of the newest
/// version that it does not fit. Empty when it may.
pub(super) fn reasons(
    level: Level,
    policy: Policy,
    new: &ParsedSchema,
    earlier: &[Earlier],
) -> Vec<String> {
    let rule = level.rule();
    let count = if rule.is_transitive { earlier.len() } else { 1 };
    for old in earlier.iter().rev().take(count) {
        let mut reasons = Vec::new();
        if !rule.reads_old && !rule.is_read_by_old {
            continue;
        }
        if new.kind() != old.schema.kind() {
            reasons.push("the schemas are of different types".to_owned());
        } else {
            if rule.reads_old {
                reasons.extend(ParsedSchema::incompatibilities(new, &old.schema, policy));
            }
            if rule.is_read_by_old {
                reasons.extend(ParsedSchema::incompatibilities(&old.schema, new, policy));
            }
        }
        if !reasons.is_empty() {
            let version = old.version;
            reasons.push(format!(
                "compared with version {version} by {}",
                level.name()
            ));
            return reasons;
        }
    }
    Vec::new()
}
