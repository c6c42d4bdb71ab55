//! The plan of a statement with state of its own: windows over one or several inputs, joins,
//! patterns, row patterns, named windows and tables, contexts and output rates.
//!
//! [`Plan::filter`](super::Plan::filter) is the condition after windows and joins (EPL's `where`),
//! [`Plan::columns`](super::Plan::columns) are the columns of a row; both read [`Query::slots`]:
//! within a query `Expression::Field(i)` is slot `i`, and slots say whose payload field that is.
//! Aggregates and HAVING stand here. Lengths of time are whole milliseconds.

use std::time::Duration;

use super::pattern::{Pattern, Recognize};
use super::{Aggregate, Source};
use crate::expression::{Expression, Pseudo};

/// What a statement with windows, joins, patterns or tables does.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Where events come from. The first one's source is also the plan's.
    pub inputs: Vec<Input>,
    /// What `Expression::Field(i)` reads.
    pub slots: Vec<Slot>,
    /// How inputs become events that the select list sees.
    pub shape: Shape,
    /// Keys of a group; none for one group of everything.
    pub group_by: Vec<Expression>,
    /// What each group accumulates; `Expression::Aggregate` indexes this list.
    pub aggregates: Vec<Aggregate>,
    /// Rows for which this is not true are left out.
    pub having: Option<Expression>,
    /// Whether rows come of events that enter, that leave, or of both.
    pub stream: StreamSelect,
    /// True for `select distinct`: of equal rows of one output the first is kept.
    pub distinct: bool,
    /// The order of the rows that leave together.
    pub order_by: Vec<OrderKey>,
    /// At most so many of the rows that leave together, after so many skipped.
    pub limit: Option<Limit>,
    /// When rows leave; none for at once.
    pub output: Option<OutputRate>,
    /// The selects inside its expressions; each has an input of its own, after the query's.
    pub subqueries: Vec<Subquery>,
    /// State apart by key or by span.
    pub context: Option<Context>,
    /// What time it is.
    pub time: QueryTime,
}

impl Query {
    /// Each event of `shape` as it comes, without anything else that a query can do.
    pub fn of(inputs: Vec<Input>, slots: Vec<Slot>, shape: Shape) -> Self {
        Query {
            inputs,
            slots,
            shape,
            group_by: Vec::new(),
            aggregates: Vec::new(),
            having: None,
            stream: StreamSelect::Insert,
            distinct: false,
            order_by: Vec::new(),
            limit: None,
            output: None,
            subqueries: Vec::new(),
            context: None,
            time: QueryTime::Arrival,
        }
    }

    /// The join that time bounds, and its bounds.
    pub fn within(&self) -> Option<(&Join, &Within)> {
        match &self.shape {
            Shape::Events { joins } => {
                let join = joins.first()?;
                Some((join, join.within.as_ref()?))
            }
            _ => None,
        }
    }
}

/// One input of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Whether its filter asks what other inputs hold.
    pub asks: bool,
    /// Where its events come from; [`Source::Stream`] may be a stream, a named window or a table.
    pub source: Source,
    /// Events for which this is not true never enter the windows. Reads slots of this input only.
    /// Patterns give each atom its own instead.
    pub filter: Option<Expression>,
    /// The data windows in order; none keeps nothing. What follows [`View::Group`] is kept per key.
    pub views: Vec<View>,
    /// With several data windows: true keeps what any keeps, false what all keep.
    pub is_union: bool,
    /// In a join: only this input's events give rows.
    pub is_unidirectional: bool,
}

/// What one place of a query's row holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// A field of an event: of the input with that number, or of the pattern's tag (or the row
    /// pattern's variable) with that number.
    Event {
        /// The input or tag.
        alias: u16,
        /// Which event, where a tag holds several.
        pick: Pick,
        /// Which field.
        field: SlotField,
    },
    /// A field of another event of the same input, counted from this one.
    History {
        /// The input; in a row pattern 0.
        input: u16,
        /// How it is counted.
        kind: History,
        /// How many steps.
        steps: u32,
        /// Which field.
        field: SlotField,
    },
    /// The key of the context that the row belongs to, by place.
    ContextKey(u16),
    /// Start of the context's span, milliseconds.
    ContextStart,
    /// End of the context's span, milliseconds; null while it is not known.
    ContextEnd,
    /// What a subquery gives for the row, by its place in the query's list.
    Subquery(u16),
    /// The query's time when the row is made, milliseconds.
    Now,
}

/// A select inside an expression: what it gives for one row of the query around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subquery {
    /// Its input, among the query's.
    pub input: u16,
    /// The alias of its events; those of the query around it come before.
    pub alias: u16,
    /// What its expressions read.
    pub slots: Vec<Slot>,
    /// Which of the events that its input holds count.
    pub filter: Option<Expression>,
    /// What it accumulates over them.
    pub aggregates: Vec<Aggregate>,
    /// What is asked of them.
    pub kind: SubqueryKind,
}

/// What a subquery is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum SubqueryKind {
    /// The value of the only event, or of the aggregates; null for no event or several.
    Value(Expression),
    /// Whether there is any.
    Exists,
    /// Whether a value is among theirs, by three-valued logic.
    In {
        /// The value, of the row around it.
        value: Expression,
        /// The others.
        choice: Expression,
    },
}

/// A field of one event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SlotField {
    /// A payload field, by its place in the plan's `fields`.
    Payload(u16),
    /// What the source knows of the event.
    Pseudo(Pseudo),
    /// When it came by the query's time, ms.
    Time,
}

/// Which of the events that a repeated tag or variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pick {
    /// The latest; the only one where there is one.
    Last,
    /// The n-th, from 0.
    Nth(u16),
}

/// How the history functions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum History {
    /// `prev(n, x)`: back in the window's order, 0 is the newest.
    Prev,
    /// `prevtail(n, x)`: from the window's oldest on.
    PrevTail,
    /// `prior(n, x)`: back in the order of arrival from this event, whatever the window holds.
    Prior,
    /// `prevcount(x)`: how many events the window holds.
    PrevCount,
}

/// How inputs become events of the select list.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// The events of the one input; with several inputs, their join.
    Events {
        /// Join `i` connects input `i + 1` to those before it; empty for one input.
        joins: Vec<Join>,
    },
    /// The matches of a pattern; aliases are its tags.
    Pattern(Pattern),
    /// The matches of a row pattern over input 0; aliases are its variables.
    Recognize(Recognize),
    /// Events of input 0 work on the named window or table that is input 1.
    On(OnAction),
}

/// How one more input is joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// Which side's events also come alone.
    pub kind: JoinKind,
    /// Pairs for which this is not true are none; more may stand in the plan's filter.
    pub on: Option<Expression>,
    /// How far apart in time a pair's events may be, where time bounds the join instead of the
    /// inputs' windows.
    pub within: Option<Within>,
}

/// Bounds in time of a join of two inputs without windows: a pair comes with the later of its
/// events, and an event of an outer side alone once nothing can join it any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Within {
    /// Time is counted in whole units of so many milliseconds since the epoch: 1 for differences,
    /// a window's length for events of one window.
    pub unit_ms: i64,
    /// The joined input's event is at least so many units behind the other one; may be negative.
    pub from: i64,
    /// And at most so many.
    pub to: i64,
    /// What has to be equal: of the first input's events, and of the joined one's.
    pub keys: Vec<[Expression; 2]>,
}

/// The kinds of joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs only.
    Inner,
    /// Events of the inputs before also come alone.
    Left,
    /// Events of the input joined also come alone.
    Right,
    /// Both.
    Full,
}

/// One data window.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// `keepall`.
    KeepAll,
    /// `length(n)`: the last n.
    Length(u32),
    /// `length_batch(n)`: every n together.
    LengthBatch(u32),
    /// `firstlength(n)`: the first n, for ever.
    FirstLength(u32),
    /// `time(t)`: an event leaves exactly t after it came.
    Time(Duration),
    /// `time_batch(t)`: what came in t together.
    TimeBatch {
        /// The batches' length.
        length: Duration,
        /// Batches start at this time plus a multiple of the length, ms; with the first event
        /// when absent.
        reference_ms: Option<i64>,
        /// Empty batches are told on and on.
        force_update: bool,
        /// The first batch starts with the statement.
        start_eager: bool,
    },
    /// `time_length_batch(t, n)`: what came in t together, or n if they come sooner.
    TimeLengthBatch {
        /// The batches' length.
        length: Duration,
        /// Events that end a batch early.
        count: u32,
        /// Empty batches are told on and on.
        force_update: bool,
        /// The first batch starts with the statement.
        start_eager: bool,
    },
    /// `firsttime(t)`: what comes within t of the statement's start, for ever.
    FirstTime(Duration),
    /// `time_accum(t)`: what came before t of silence leaves together.
    TimeAccum(Duration),
    /// `ext_timed(ts, t)`: as `time`, by the events' own time.
    ExtTimed {
        /// The event's time, ms.
        time: Expression,
        /// The window's length.
        length: Duration,
    },
    /// `ext_timed_batch(ts, t)`: as `time_batch`, by the events' own time.
    ExtTimedBatch {
        /// The event's time, ms.
        time: Expression,
        /// The batches' length.
        length: Duration,
        /// Batches start at this time plus a multiple of the length, ms; with the first event
        /// when absent.
        reference_ms: Option<i64>,
    },
    /// `time_order(ts, t)`: ordered by their own time, leaving when the clock is t past it.
    TimeOrder {
        /// The event's time, ms.
        time: Expression,
        /// The window's length.
        length: Duration,
    },
    /// `unique(k)`: the last of each key.
    Unique(Vec<Expression>),
    /// `firstunique(k)`: the first of each key.
    FirstUnique(Vec<Expression>),
    /// `lastevent`.
    LastEvent,
    /// `firstevent`.
    FirstEvent,
    /// `sort(n, keys)`: the n that come first by the keys.
    Sort {
        /// How many.
        count: u32,
        /// The order.
        keys: Vec<OrderKey>,
    },
    /// `rank(unique, n, keys)`: as `sort`, the last of each unique key only.
    Rank {
        /// The unique key.
        unique: Vec<Expression>,
        /// How many.
        count: u32,
        /// The order.
        keys: Vec<OrderKey>,
    },
    /// `groupwin(k)`: the windows that follow are kept apart for each key.
    Group(Vec<Expression>),
}

impl View {
    /// Whether it gathers events and tells them together.
    pub fn is_batch(&self) -> bool {
        matches!(
            self,
            View::LengthBatch(_)
                | View::TimeBatch { .. }
                | View::TimeLengthBatch { .. }
                | View::ExtTimedBatch { .. }
        )
    }
}

/// A key of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey {
    /// What is compared; nulls come first.
    pub expression: Expression,
    /// Greatest first.
    pub is_descending: bool,
}

/// Which stream a select takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamSelect {
    /// `istream`: what enters.
    #[default]
    Insert,
    /// `rstream`: what leaves.
    Remove,
    /// `irstream`: both; a row of what leaves is marked old.
    Both,
}

/// A bound on the rows that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Most rows.
    pub rows: u32,
    /// Rows left out before.
    pub offset: u32,
}

/// When rows leave.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputRate {
    /// What leaves.
    pub kind: OutputKind,
    /// When.
    pub every: OutputEvery,
    /// Nothing leaves before that.
    pub after: Option<OutputAfter>,
    /// An output comes when the context ends, too.
    pub at_end: bool,
}

/// What leaves at an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Every row since the last output (no keyword).
    Each,
    /// `all`: of groups, all that there ever were; else as `Each`.
    All,
    /// `last`: the last row, of groups the last of each that changed.
    Last,
    /// `first`: the first row at once, then nothing for the interval; of groups each for itself.
    First,
    /// `snapshot`: a row for everything that the windows hold.
    Snapshot,
}

/// When an output comes.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputEvery {
    /// At once (with `after` only).
    Always,
    /// Not by itself (with `at_end` only).
    Never,
    /// After so many events that entered, or that left.
    Events(u32),
    /// So often, from the first event on.
    Time(Duration),
    /// At the times of a calendar.
    At(Schedule),
    /// Whenever this is true after an event. `Expression::Field` may read [`OutputCount`]s: slot
    /// numbers from [`OUTPUT_COUNT_FIRST`] on.
    When(Expression),
}

/// Slot number of [`OutputCount::Insert`]; the others follow.
pub const OUTPUT_COUNT_FIRST: u16 = 0xff00;

/// What `output when` may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputCount {
    /// `count_insert`: entered since the last output.
    Insert,
    /// `count_remove`: left since the last output.
    Remove,
    /// `count_insert_total`.
    InsertTotal,
    /// `count_remove_total`.
    RemoveTotal,
    /// `last_output_timestamp`, milliseconds; before the first, when the statement started.
    LastOutput,
    /// `current_timestamp`, milliseconds.
    Now,
}

/// When output begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputAfter {
    /// After so many events entered.
    Events(u32),
    /// So long after the statement's start.
    Time(Duration),
}

/// Times of a calendar, UTC; each list holds the values that match, empty for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// 0 to 59.
    pub minutes: Vec<u8>,
    /// 0 to 23.
    pub hours: Vec<u8>,
    /// 1 to 31; with weekdays too, a day that is one of either.
    pub days: Vec<u8>,
    /// 1 to 12.
    pub months: Vec<u8>,
    /// 0 (Sunday) to 6.
    pub weekdays: Vec<u8>,
    /// 0 to 59; with none at second 0.
    pub seconds: Vec<u8>,
}

/// What a triggering event does with a named window or table (input 1).
#[derive(Clone, Debug, PartialEq)]
pub enum OnAction {
    /// Rows of what it finds; the plan's filter says what it finds.
    Select {
        /// And takes that away.
        delete: bool,
    },
    /// Takes away what it finds.
    Delete,
    /// Sets fields of what it finds.
    Update(Vec<Assignment>),
    /// The first branch that applies, of those for a find or of those for none.
    Merge(Vec<MergeBranch>),
}

/// A field of a named window's row or a table's, and its new value.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The column.
    pub column: String,
    /// Its value.
    pub value: Expression,
}

/// One branch of a merge.
#[derive(Clone, Debug, PartialEq)]
pub struct MergeBranch {
    /// For what the filter found, or for events that it found nothing for.
    pub is_matched: bool,
    /// Only when this is true.
    pub condition: Option<Expression>,
    /// What is done, in order.
    pub actions: Vec<MergeAction>,
}

/// What a branch of a merge does.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    /// Takes the row away.
    Delete,
    /// Sets its columns.
    Update(Vec<Assignment>),
    /// Adds a row of these columns.
    Insert(Vec<Assignment>),
}

/// State apart by key or by span.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a statement has one at most")]
pub enum Context {
    /// One state per key; `keys[i]` are the keys of input i's events.
    Partition {
        /// The keys, input by input.
        keys: Vec<Vec<Expression>>,
    },
    /// State while a span is open: one at a time, or one more with each start.
    Span {
        /// What starts a span.
        start: Boundary,
        /// What ends it.
        end: Boundary,
        /// True when spans may overlap (`initiated by … terminated by`).
        is_overlapping: bool,
    },
}

/// What starts or ends a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Boundary {
    /// An event of a source for which the condition is true; it reads slots of input `input`. A
    /// source that is no other input of the query is listed as one without views.
    Event {
        /// The input.
        input: u16,
        /// The condition.
        condition: Option<Expression>,
    },
    /// So long after the statement's or the span's start.
    After(Duration),
    /// At the times of a calendar.
    At(Schedule),
    /// At once (as a start), never (as an end).
    Immediately,
}

/// What time it is in a query.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryTime {
    /// The clock, and the events' arrival.
    Arrival,
    /// The events' own, in milliseconds or as RFC 3339: a field of each of the plan's sources, or
    /// one that those of every source have. Events are ordered by it within the lateness.
    Event(Vec<SlotField>),
}

/// A statement that makes a named window or a table instead of rows. Its source and the stream of
/// its name are the same: what others insert comes in, and what enters and leaves goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Create {
    /// `create window`: rows kept by data windows. Expressions of the views read the plan's
    /// `fields`.
    Window {
        /// Its name.
        name: String,
        /// Its columns, which are the plan's `fields`; none where a row is whatever is inserted,
        /// and the first of the `fields` is the whole of it.
        columns: Option<Vec<String>>,
        /// What keeps its rows.
        views: Vec<View>,
        /// With several views: true keeps what any keeps.
        is_union: bool,
    },
    /// `create table`: rows by primary key, the latest of each; without keys, one row.
    Table {
        /// Its name.
        name: String,
        /// Its columns.
        columns: Vec<TableColumn>,
    },
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Whether it is part of the primary key.
    pub is_key: bool,
}
