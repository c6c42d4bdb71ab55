//! A query's plan with what is worked out once: where slots stand, what kind of rows it gives.

use std::sync::Arc;

use crate::aggregate::Windowed;
use crate::expression::Expression;
use crate::plan::{
    Aggregate, AggregateFunction, Column, Context, Create, Input, JoinKind, OUTPUT_COUNT_FIRST,
    OutputEvery, OutputKind, Plan, Query, QueryTime, Recognize, Shape, Slot, SlotField, Source,
    Stage, Subquery, View, WindowShape,
};
use crate::query::chain::{Chain, Views};
use crate::query::kept::{Kept, KeptByName};
use crate::query::layout::Layout;
use crate::query::lookup::keys_of;
use crate::query::recognize::{PROGRAM_MAX, Program};
use crate::query::tuple::Tuple;
use crate::query::window::Reading;
use crate::row::prefixes;

/// The static side of a query.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The plan; its stage is a query.
    pub plan: Arc<Plan>,
    /// Where slots stand.
    pub layout: Layout,
    /// The same of each subquery.
    pub subqueries: Vec<Layout>,
    /// The named window or table that each input reads.
    pub kept: Vec<Option<Arc<Kept>>>,
    /// What the key is of the row that an `on` looks for, where its condition gives it.
    pub found_by: Option<Vec<Expression>>,
    /// The same of each subquery.
    pub subqueries_found_by: Vec<Option<Vec<Expression>>>,
    /// How many of the inputs are the query's own; those of subqueries follow.
    pub own_inputs: usize,
    /// How many of those its rows are of; what starts and ends a context's spans follows.
    pub sources: usize,
    /// What stands in a row before each column's value.
    pub prefixes: Vec<Vec<u8>>,
    /// What rows stand for.
    pub kind: RowKind,
    /// What an output waits for, reading the counts as fields from 0 on.
    pub when: Option<Expression>,
    /// Of each of the plan's sources, the inputs that read it.
    pub readers: Vec<Vec<usize>>,
    /// Groups keep their latest row, since outputs come without an event.
    pub keeps_latest: bool,
    /// Groups whose events have all left are told on.
    pub keeps_groups: bool,
    /// What groups aggregate may outlive their events: it is about what was ever, or of a time of
    /// its own, or of an outer join, in which an event that comes alone does not leave when another
    /// joins it.
    pub outlives: bool,
    /// The program of a row pattern; empty for others.
    pub program: Program,
    /// Nothing that enters ever leaves.
    pub is_forever: bool,
}

/// What rows stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// An event; nothing is aggregated.
    Event,
    /// Everything together.
    All,
    /// An event, with what everything together gives.
    EventOfAll,
    /// A group.
    Group,
    /// An event, with what its group gives.
    EventOfGroup,
}

impl Compiled {
    /// Works out what is needed of a plan whose stage is a query.
    pub fn new(plan: Arc<Plan>, kept: &KeptByName) -> Option<Self> {
        let Stage::Query(query) = &plan.stage else {
            return None;
        };
        let kept: Vec<Option<Arc<Kept>>> = query
            .inputs
            .iter()
            .map(|input| match &input.source {
                Source::Stream(name) => kept.get(name).cloned(),
                _ => None,
            })
            .collect();
        let (layout, subqueries) = Layout::all(&plan, query, &kept);
        let kind = row_kind(&plan, query);
        let when = match query.output.as_ref().map(|output| &output.every) {
            Some(OutputEvery::When(condition)) => Some(rebased(condition)),
            _ => None,
        };
        let readers = plan
            .sources()
            .into_iter()
            .map(|source| {
                let inputs = query.inputs.iter().enumerate();
                inputs
                    .filter(|(_, input)| input.source == *source)
                    .map(|(place, _)| place)
                    .collect()
            })
            .collect();
        let keeps_latest = query
            .output
            .as_ref()
            .is_some_and(|output| matches!(output.kind, OutputKind::All | OutputKind::Snapshot));
        let kept_at = |input: usize| kept.get(input).and_then(Option::as_ref);
        let found_by = match query.shape {
            Shape::On(_) => kept_at(1).and_then(|kept| {
                let condition = plan.filter.as_ref();
                keys_of(kept, 1, &query.slots, &plan.fields, condition)
            }),
            _ => None,
        };
        let of_subquery = |subquery: &Subquery| {
            let kept = kept_at(usize::from(subquery.input))?;
            let condition = subquery.filter.as_ref();
            let slots = &subquery.slots;
            keys_of(kept, subquery.alias, slots, &plan.fields, condition)
        };
        let subqueries_found_by = query.subqueries.iter().map(of_subquery).collect();
        let own_inputs = query.inputs.len() - query.subqueries.len();
        Some(Compiled {
            found_by,
            subqueries_found_by,
            layout,
            subqueries,
            own_inputs,
            sources: match &query.shape {
                Shape::Events { joins } => own_inputs.min(joins.len() + 1),
                _ => own_inputs,
            },
            prefixes: prefixes(&plan.columns),
            kind,
            program: match &query.shape {
                Shape::Recognize(recognize) => Program::new(&recognize.pattern)?,
                _ => Program::default(),
            },
            keeps_groups: query
                .output
                .as_ref()
                .is_some_and(|output| output.kind == OutputKind::All),
            outlives: has_ever(query) || has_outer_join(query),
            is_forever: match &query.shape {
                Shape::Events { .. } => {
                    let mut inputs = query.inputs.iter().zip(&kept);
                    inputs.all(|(input, kept)| input.views.is_empty() && kept.is_none())
                }
                Shape::Pattern(_) | Shape::Recognize(_) | Shape::On(_) => true,
            },
            when,
            readers,
            keeps_latest,
            kept,
            plan: plan.clone(),
        })
    }

    /// The layout of an input's events, and their alias there.
    pub fn reading(&self, input: usize) -> Reading<'_> {
        let number = input.checked_sub(self.own_inputs);
        let of = |number: usize| {
            let subquery = self.query().subqueries.get(number)?;
            let layout = self.subqueries.get(number)?;
            Some(Reading {
                layout,
                alias: usize::from(subquery.alias),
            })
        };
        number.and_then(of).unwrap_or(Reading {
            layout: &self.layout,
            alias: input,
        })
    }

    /// What an input holds: its windows, or the named window or table that it reads.
    pub fn contents(&self, input: usize, chains: &[Chain]) -> Vec<Arc<Tuple>> {
        let Some(plan) = self.query().inputs.get(input) else {
            return Vec::new();
        };
        match self.kept.get(input) {
            Some(Some(kept)) if plan.views.is_empty() => {
                let mut rows = kept.told();
                if let Some(filter) = &plan.filter {
                    let reading = self.reading(input);
                    rows.retain(|row| reading.passes(row, filter));
                }
                rows
            }
            _ => chains
                .get(input)
                .map_or_else(Vec::new, |chain| chain.contents(Views::of(plan))),
        }
    }

    /// The empty state of an aggregate.
    pub fn accumulator(&self, aggregate: &Aggregate) -> Windowed {
        Windowed::new(aggregate.function, aggregate.is_distinct, self.is_forever)
    }

    /// The query.
    pub fn query(&self) -> &Query {
        match &self.plan.stage {
            Stage::Query(query) => query,
            _ => unreachable!("it is compiled of queries only"),
        }
    }
}

/// What cannot be run, with what to write instead; `kept` are the named windows and tables that
/// there are.
///
/// # Errors
/// The first thing that this version does not run, or a named window or table that is not there.
pub fn check(plan: &Plan, kept: &KeptByName) -> Result<(), String> {
    let query = match &plan.stage {
        Stage::Query(query) => query,
        Stage::Create(create) => return check_create(create, kept),
        Stage::PerEvent {
            window: Some(window),
        } if window.shape != WindowShape::Tumble => {
            return Err(
                "rows of single events have no HOP or SESSION window: select aggregates".to_owned(),
            );
        }
        Stage::PerEvent { .. } | Stage::Windowed { .. } => {
            return check_streams(&[&plan.source], kept);
        }
    };
    if query.within().is_some() {
        check_streams(&plan.sources(), kept)?;
    }
    if let Shape::Recognize(recognize) = &query.shape {
        check_recognize(recognize)?;
    }
    check_kept(query, kept)?;
    let fields = plan.fields.len();
    for slot in &query.slots {
        if let Slot::Event { field, .. } | Slot::History { field, .. } = slot
            && let SlotField::Payload(field) = field
            && usize::from(*field) >= fields
        {
            return Err("the plan names a field that it does not list".to_owned());
        }
    }
    if let Shape::Pattern(pattern) = &query.shape
        && pattern.discard_overlapping
    {
        return Err("overlapping matches cannot be discarded: leave that out".to_owned());
    }
    query
        .inputs
        .iter()
        .try_for_each(|input| check_views(&input.views))
}

/// Refuses what keeps rows where streams of events are read.
fn check_streams(sources: &[&Source], kept: &KeptByName) -> Result<(), String> {
    for source in sources {
        if let Source::Stream(name) = source
            && kept.contains_key(name)
        {
            return Err(format!(
                "{source} is a named window or table, which SQL does not read: write the statement \
                 in EPL, or insert what it keeps into a stream"
            ));
        }
    }
    Ok(())
}

fn check_recognize(recognize: &Recognize) -> Result<(), String> {
    if recognize.interval.is_some() {
        return Err(
            "a row pattern has no INTERVAL here: write a condition on the rows' times".to_owned(),
        );
    }
    if Program::new(&recognize.pattern).is_none() {
        return Err(format!(
            "the row pattern has more than {PROGRAM_MAX} parts: repeat fewer times"
        ));
    }
    Ok(())
}

/// Whether what a query needs of named windows and tables is there.
fn check_kept(query: &Query, kept: &KeptByName) -> Result<(), String> {
    let find = |input: &Input| match &input.source {
        Source::Stream(name) => kept.get(name),
        _ => None,
    };
    if matches!(query.shape, Shape::On(_)) {
        let target = query.inputs.get(1);
        if target.is_none_or(|input| find(input).is_none()) {
            let name = target.map_or_else(String::new, |input| input.source.to_string());
            return Err(format!(
                "there is no named window or table {name}: add the statement that creates it first"
            ));
        }
    }
    let sources = match &query.shape {
        Shape::Events { joins } => joins.len() + 1,
        _ => query.inputs.len() - query.subqueries.len(),
    };
    let is_join = sources > 1 && matches!(query.shape, Shape::Events { .. });
    let reads_any = query
        .inputs
        .iter()
        .take(sources)
        .any(|input| find(input).is_some());
    if query.context.is_some() && reads_any && !is_join {
        return Err(
            "a statement in a context reads named windows and tables in joins and subqueries \
             alone: keep what it needs in a window of its own"
                .to_owned(),
        );
    }
    if reads_any && matches!(query.time, QueryTime::Event(_)) {
        return Err(
            "policies.time: what enters and leaves named windows and tables has no time of its own: \
             read the stream that fills them"
                .to_owned(),
        );
    }
    let is_keyed = matches!(query.context, Some(Context::Partition { .. }));
    if is_keyed && !query.subqueries.is_empty() && !matches!(query.shape, Shape::Events { .. }) {
        return Err(
            "a pattern in a context by key has no subqueries: insert its matches into a stream"
                .to_owned(),
        );
    }
    if let [input] = query.inputs.as_slice()
        && matches!(query.shape, Shape::Events { .. })
        && find(input).is_some_and(|kept| kept.is_table())
    {
        return Err(format!(
            "the table {} tells nobody of its changes: read it by on E select, in a join or a \
             subquery, or by a query on demand",
            input.source
        ));
    }
    Ok(())
}

fn check_create(create: &Create, kept: &KeptByName) -> Result<(), String> {
    let (name, views) = match create {
        Create::Window { name, views, .. } => (name, views.as_slice()),
        Create::Table { name, .. } => (name, &[][..]),
    };
    if kept.contains_key(name) {
        return Err(format!(
            "there is a named window or table {name} already: choose another name"
        ));
    }
    check_views(views)
}

fn check_views(views: &[View]) -> Result<(), String> {
    let batches = views.iter().filter(|view| view.is_batch()).count();
    let is_window = |view: &&View| !matches!(view, View::Group(_));
    if batches > 0 && views.iter().filter(is_window).count() > 1 {
        return Err(
            "a batch window stands alone: insert into a stream and put the second window there"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether something is aggregated that what leaves does not end.
fn has_ever(query: &Query) -> bool {
    use AggregateFunction as F;
    query.aggregates.iter().any(|aggregate| {
        let of = aggregate.function;
        matches!(
            of,
            F::CountEver | F::FirstEver | F::LastEver | F::MinEver | F::MaxEver | F::Rate
        )
    })
}

fn has_outer_join(query: &Query) -> bool {
    matches!(&query.shape, Shape::Events { joins }
        if joins.iter().any(|join| join.kind != JoinKind::Inner))
}

fn row_kind(plan: &Plan, query: &Query) -> RowKind {
    if query.aggregates.is_empty() {
        return RowKind::Event;
    }
    let names_event = plan.columns.iter().any(|column| match column {
        Column::All { .. } => true,
        Column::Named { expression, .. } => reads_event(expression, query),
    });
    match (query.group_by.is_empty(), names_event) {
        (true, false) => RowKind::All,
        (true, true) => RowKind::EventOfAll,
        (false, false) => RowKind::Group,
        (false, true) => RowKind::EventOfGroup,
    }
}

/// True when an expression reads a field that is no key of the group or the context.
fn reads_event(expression: &Expression, query: &Query) -> bool {
    if query.group_by.contains(expression) {
        return false;
    }
    match expression {
        Expression::Field(slot) => !matches!(
            query.slots.get(usize::from(*slot)),
            Some(Slot::ContextKey(_) | Slot::ContextStart | Slot::ContextEnd | Slot::Now)
        ),
        Expression::Pseudo(_) => true,
        other => {
            let mut reads = false;
            let mut own = other.clone();
            own.for_each_child(&mut |child| reads |= reads_event(child, query));
            reads
        }
    }
}

/// The same expression, with the counts of an output as fields from 0 on.
fn rebased(expression: &Expression) -> Expression {
    let mut own = expression.clone();
    rebase(&mut own);
    own
}

fn rebase(expression: &mut Expression) {
    if let Expression::Field(field) = expression {
        *field = field.saturating_sub(OUTPUT_COUNT_FIRST);
    }
    expression.for_each_child(&mut rebase);
}
