//! Patterns over events and time, and row patterns (`match_recognize`).

use std::time::Duration;

use super::query::Schedule;
use crate::expression::Expression;

/// A pattern and its tags.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The expression.
    pub root: PatternNode,
    /// How many tags there are; slots name them as aliases.
    pub tags: u16,
    /// Of matches that share an event only the first counts.
    pub discard_overlapping: bool,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum PatternNode {
    /// An event of an input.
    Event {
        /// The input.
        input: u16,
        /// Under which tag it is kept; none when nothing reads it.
        tag: Option<u16>,
        /// Which events count; it reads the slots of `filter_tag` as the event's own, and earlier
        /// tags.
        filter: Option<Expression>,
        /// The tag whose slots the filter reads the event by; the same as `tag` where that is.
        filter_tag: Option<u16>,
    },
    /// `every`: starts anew after each match.
    Every(Box<PatternNode>),
    /// `every-distinct(keys, time)`: matches with a key that was seen do not count.
    EveryDistinct {
        /// What repeats.
        node: Box<PatternNode>,
        /// The keys, over the match's tags.
        keys: Vec<Expression>,
        /// How long a key is remembered; none for ever.
        expires: Option<Duration>,
    },
    /// `a -> b -> c`.
    FollowedBy(Vec<PatternNode>),
    /// All, in any order.
    And(Vec<PatternNode>),
    /// The first of them.
    Or(Vec<PatternNode>),
    /// True while it does not match.
    Not(Box<PatternNode>),
    /// `[low:high] a until b`.
    Until {
        /// What repeats.
        node: Box<PatternNode>,
        /// Fewest; none for any number.
        low: Option<u32>,
        /// Most; none for any number.
        high: Option<u32>,
        /// What ends it; without, it ends at `high`.
        end: Option<Box<PatternNode>>,
    },
    /// `a where timer:within(t)`; with a count, also ends after so many matches.
    Within {
        /// What must come in time.
        node: Box<PatternNode>,
        /// The time.
        length: Duration,
        /// `timer:withinmax`: most matches.
        count: Option<u32>,
    },
    /// `a while (condition)`: ends with the first match for which it is not true.
    While {
        /// What is watched.
        node: Box<PatternNode>,
        /// The condition, over the match's tags.
        condition: Expression,
    },
    /// `timer:interval(t)`.
    Interval(Duration),
    /// `timer:at(…)`.
    At(Schedule),
}

/// `match_recognize`: matches of a regular expression over the rows of input 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognize {
    /// Rows are taken apart by these keys.
    pub partition_by: Vec<Expression>,
    /// Every match; false for only the next one after a match's end.
    pub all_matches: bool,
    /// Where the search goes on after a match.
    pub skip: Skip,
    /// How many variables there are; slots name them as aliases.
    pub variables: u16,
    /// Conditions: of variable i the i-th. They read slots of the variable as the row's own, and
    /// the rows matched before. No condition is always true.
    pub define: Vec<Option<Expression>>,
    /// The expression.
    pub pattern: RowPattern,
    /// A match ends at the latest so long after its first row.
    pub interval: Option<RecognizeInterval>,
}

/// The time that a match has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecognizeInterval {
    /// From the first row on.
    pub length: Duration,
    /// True when a match that can grow no more comes at once.
    pub or_terminated: bool,
}

/// Where a row pattern's search goes on after a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// After its last row.
    PastLast,
    /// With the row after its first.
    ToNext,
    /// With the row that is current.
    ToCurrent,
}

/// A part of a row pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum RowPattern {
    /// One row.
    Variable(u16),
    /// One after the other.
    Sequence(Vec<RowPattern>),
    /// One of them.
    Alternatives(Vec<RowPattern>),
    /// Again and again; greedy takes as many as it can.
    Repeat {
        /// What.
        node: Box<RowPattern>,
        /// Fewest.
        low: u32,
        /// Most; none for any number.
        high: Option<u32>,
        /// Whether as many as possible.
        is_greedy: bool,
    },
}
