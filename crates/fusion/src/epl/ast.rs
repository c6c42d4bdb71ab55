//! The syntax tree of EPL statements.
//!
//! It says what was written and where; what names mean is settled when the tree is lowered
//! ([`super::lower`]).

mod expression;

pub use expression::{BinaryOperator, Call, Choices, Expr, ExprKind, Step, UnaryOperator, Unit};

pub use crate::plan::Skip;

use super::token::Place;

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Where it begins.
    pub place: Place,
    /// The context whose partitions it runs in: `context Name …`.
    pub context: Option<Ident>,
    /// Its name by `@name('…')`.
    pub name: Option<String>,
    /// What it does.
    pub body: Body,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// `select`, with an `insert into` before it perhaps.
    Select(Box<Select>),
    /// `insert into W (a, b) values (1, 2)`: on demand.
    InsertValues(InsertInto, Vec<Expr>),
    /// `create window`.
    CreateWindow(CreateWindow),
    /// `create table`.
    CreateTable(CreateTable),
    /// `create schema`.
    CreateSchema(CreateSchema),
    /// `create context`.
    CreateContext(CreateContext),
    /// `on … select | delete | update | merge | insert`.
    On(Box<On>),
    /// `delete from W where …`: on demand.
    Delete(Target, Option<Expr>),
    /// `update W set … where …`: on demand.
    Update(Target, Vec<Assignment>, Option<Expr>),
}

/// A name and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Ident {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub place: Place,
}

/// `select … from …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// Where it begins.
    pub place: Place,
    /// The target of `insert into`.
    pub insert_into: Option<InsertInto>,
    /// Which rows are reported.
    pub rows: Rows,
    /// Whether equal rows of one output count once.
    pub distinct: bool,
    /// The columns.
    pub items: Vec<Item>,
    /// The sources; several are joined.
    pub sources: Vec<From>,
    /// `match_recognize (…)` on the only source.
    pub row_pattern: Option<Box<RowPattern>>,
    /// `where`.
    pub filter: Option<Expr>,
    /// `group by`.
    pub group_by: Vec<Expr>,
    /// `having`.
    pub having: Option<Expr>,
    /// `output`.
    pub output: Option<Output>,
    /// `order by`; true for descending.
    pub order_by: Vec<(Expr, bool)>,
    /// `limit n offset m`.
    pub limit: Option<(u64, u64)>,
}

/// `insert [istream | rstream | irstream] into Name [(columns)]`.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertInto {
    /// Which rows are inserted.
    pub rows: Rows,
    /// The stream, window or table.
    pub name: Ident,
    /// The columns' names there, when they are given.
    pub columns: Vec<Ident>,
}

/// Which rows of a change are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// What came in: `istream`, or nothing said.
    #[default]
    New,
    /// What left: `rstream`.
    Old,
    /// Both: `irstream`.
    Both,
}

/// One item of a select list.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `*`.
    All(Place),
    /// `a.*`, with a name perhaps.
    AllOf(Ident, Option<Ident>),
    /// An expression, with a name perhaps.
    Value(Expr, Option<Ident>),
}

/// One source.
#[derive(Clone, Debug, PartialEq)]
pub struct From {
    /// How it is joined to those before it.
    pub join: Join,
    /// What it reads.
    pub source: Source,
    /// Its windows: `#length(5)`, `.win:length(5)`.
    pub views: Vec<View>,
    /// `retain-union`: with several windows, an event stays while one of them has it.
    pub is_union: bool,
    /// Its name in the statement.
    pub alias: Option<Ident>,
    /// Whether only its events give rows.
    pub unidirectional: bool,
    /// `on` of an outer or inner join.
    pub on: Option<Expr>,
}

/// How a source is joined to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// By a comma or `inner join`.
    #[default]
    Inner,
    /// `left outer join`.
    Left,
    /// `right outer join`.
    Right,
    /// `full outer join`.
    Full,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The events of a type that the filter lets pass.
    Stream(Stream),
    /// The matches of a pattern.
    Pattern(Box<Pattern>, Place),
}

/// An event type with a filter: `T(a > 1)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The type, or a quoted topic.
    pub name: Ident,
    /// Whether the name stood in quotes: a topic.
    pub is_quoted: bool,
    /// The filters in parentheses; all must hold.
    pub filters: Vec<Expr>,
}

/// A window: its name in lower case without namespace, and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// `length`, `time_batch`, …
    pub name: String,
    /// What it is given.
    pub arguments: Vec<Expr>,
    /// Which of the arguments have `desc` behind them.
    pub descending: Vec<bool>,
    /// Where it stands.
    pub place: Place,
}

/// `output …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Where it stands.
    pub place: Place,
    /// Nothing before: `after 10 sec`, `after 5 events`.
    pub after: Option<Amount>,
    /// Which rows.
    pub kind: OutputKind,
    /// When.
    pub when: Option<OutputWhen>,
    /// `when terminated`, alone or behind the others.
    pub at_end: bool,
}

/// A count of events or a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// So many events.
    Events(u64),
    /// So long.
    Time(Expr),
}

/// Which rows an output clause reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputKind {
    /// What it is when nothing is said.
    #[default]
    Default,
    /// `all`.
    All,
    /// `first`.
    First,
    /// `last`.
    Last,
    /// `snapshot`.
    Snapshot,
}

/// When an output clause reports.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputWhen {
    /// `every n events` or `every 10 sec`.
    Every(Amount),
    /// `when condition`.
    When(Expr),
    /// `at (minutes, hours, days, months, weekdays [, seconds])`.
    At(Vec<Expr>),
}

/// `match_recognize (…)`.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPattern {
    /// `partition by`.
    pub partition_by: Vec<Expr>,
    /// `measures`.
    pub measures: Vec<(Expr, Ident)>,
    /// `all matches`.
    pub all_matches: bool,
    /// `after match skip`.
    pub skip: Skip,
    /// `pattern (…)`.
    pub pattern: RowRegex,
    /// `interval 10 sec`, and whether `or terminated` follows.
    pub interval: Option<(Expr, bool)>,
    /// `define`.
    pub defines: Vec<(Ident, Expr)>,
}

/// A pattern of rows.
#[derive(Clone, Debug, PartialEq)]
pub enum RowRegex {
    /// A variable.
    Variable(Ident),
    /// One after another.
    Sequence(Vec<RowRegex>),
    /// One of several, the first that can.
    Choice(Vec<RowRegex>),
    /// So many times; no upper bound when `most` is none.
    Repeat {
        /// What is repeated.
        inner: Box<RowRegex>,
        /// Least times.
        least: u32,
        /// Most times.
        most: Option<u32>,
        /// Whether as often as possible comes first.
        greedy: bool,
    },
}

/// A pattern of events.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// `a = T(…)`.
    Filter(Option<Ident>, Stream),
    /// `every p`.
    Every(Box<Pattern>),
    /// `every-distinct(keys[, expiry]) p`.
    EveryDistinct(Vec<Expr>, Box<Pattern>),
    /// `not p`.
    Not(Box<Pattern>),
    /// `p -> q`.
    FollowedBy(Vec<Pattern>),
    /// `p and q`.
    And(Vec<Pattern>),
    /// `p or q`.
    Or(Vec<Pattern>),
    /// `[n] p`, `[n:m] p until q`, `p until q`.
    Repeat {
        /// Least times.
        least: Option<u64>,
        /// Most times.
        most: Option<u64>,
        /// What is repeated.
        inner: Box<Pattern>,
        /// What ends it.
        until: Option<Box<Pattern>>,
    },
    /// `p where timer:within(10 sec)`.
    Within(Box<Pattern>, Expr, Option<u64>),
    /// `p while (condition)`.
    While(Box<Pattern>, Expr),
    /// `timer:interval(10 sec)`.
    Interval(Expr),
    /// `timer:at(…)`.
    At(Vec<Expr>),
}

/// A named window, table or stream that something is done to.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: Ident,
    /// Its name in the statement.
    pub alias: Option<Ident>,
}

/// `a = 1` in a SET.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The column.
    pub column: Ident,
    /// Its new value.
    pub value: Expr,
}

/// `on trigger …`.
#[derive(Clone, Debug, PartialEq)]
pub struct On {
    /// What triggers.
    pub trigger: From,
    /// What is done.
    pub action: Action,
}

/// What an `on` does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `select [and delete] … from W`; the window is the select's only source.
    Select {
        /// The query.
        select: Box<Select>,
        /// Whether what was selected is deleted.
        and_delete: bool,
    },
    /// `insert into X select …` without a window: each with its own WHERE.
    Insert(Vec<Select>),
    /// `delete from W where …`.
    Delete(Target, Option<Expr>),
    /// `update W set … where …`.
    Update(Target, Vec<Assignment>, Option<Expr>),
    /// `merge into W where … when matched …`.
    Merge(Target, Option<Expr>, Vec<Branch>),
}

/// `when [not] matched [and …] then …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Whether it is for rows that matched.
    pub matched: bool,
    /// What else must hold.
    pub condition: Option<Expr>,
    /// What is done, in order.
    pub actions: Vec<MergeAction>,
}

/// What a branch of a merge does.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    /// `insert [into X] [(columns)] select …`.
    Insert {
        /// Another stream than the target.
        into: Option<Ident>,
        /// The columns' names there.
        columns: Vec<Ident>,
        /// The values.
        items: Vec<Item>,
        /// Only when this holds.
        filter: Option<Expr>,
    },
    /// `update set …`.
    Update(Vec<Assignment>, Option<Expr>),
    /// `delete`.
    Delete(Option<Expr>),
}

/// `create window W#time(10) as …`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateWindow {
    /// Its name.
    pub name: Ident,
    /// Its windows.
    pub views: Vec<View>,
    /// `retain-union`.
    pub is_union: bool,
    /// What its events look like.
    pub shape: Shape,
    /// `insert where …`: filled from the window it is shaped after.
    pub insert: Option<Option<Expr>>,
}

/// What the events of a named window look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Like that type.
    Like(Ident),
    /// Like a select of that type.
    Select(Vec<Item>, Ident),
    /// Like that.
    Columns(Vec<ColumnType>),
}

/// A column of a table or schema.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnType {
    /// Its name.
    pub name: Ident,
    /// Its type as written, in lower case; `[]` after it for an array.
    pub type_name: String,
    /// `primary key`.
    pub is_key: bool,
    /// An aggregate that the column keeps: `sum(long)`.
    pub aggregate: Option<Expr>,
}

/// `create table T (…)`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// Its name.
    pub name: Ident,
    /// Its columns.
    pub columns: Vec<ColumnType>,
}

/// `create schema S (…)`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSchema {
    /// Its name.
    pub name: Ident,
    /// Its columns.
    pub columns: Vec<ColumnType>,
    /// `inherits` or `copyfrom`.
    pub parents: Vec<Ident>,
}

/// `create context C …`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateContext {
    /// Its name.
    pub name: Ident,
    /// Its kind.
    pub kind: Context,
}

/// The kinds of context.
#[derive(Clone, Debug, PartialEq)]
pub enum Context {
    /// `partition by k from T, j from U [terminated by …]`.
    Partition(Vec<(Vec<Expr>, Stream)>, Option<Edge>),
    /// `group by a < 1 as low, group by a >= 1 as high from T`.
    Category(Vec<(Expr, Ident)>, Stream),
    /// `start … end …`: one at a time.
    Single(Edge, Option<Edge>),
    /// `initiated by … terminated by …`: many at once.
    Overlapping(Edge, Option<Edge>),
}

/// What starts or ends a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Edge {
    /// An event.
    Event(Stream, Option<Ident>),
    /// A pattern.
    Pattern(Box<Pattern>),
    /// `after 10 sec`.
    After(Expr),
    /// `(minutes, hours, …)`.
    At(Vec<Expr>),
    /// `@now`.
    Now,
}

impl Select {
    /// A select of nothing from nowhere.
    pub fn empty(place: Place) -> Self {
        Select {
            place,
            insert_into: None,
            rows: Rows::New,
            distinct: false,
            items: Vec::new(),
            sources: Vec::new(),
            row_pattern: None,
            filter: None,
            group_by: Vec::new(),
            having: None,
            output: None,
            order_by: Vec::new(),
            limit: None,
        }
    }
}
