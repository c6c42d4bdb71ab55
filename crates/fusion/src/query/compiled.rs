//! A query's plan with what is worked out once: where slots stand, what kind of rows it gives.

use std::sync::Arc;

use crate::aggregate::Windowed;
use crate::expression::Expression;
use crate::plan::{
    Aggregate, Column, OUTPUT_COUNT_FIRST, OutputEvery, OutputKind, Plan, Query, Recognize, Shape,
    Slot, SlotField, Stage, WindowShape,
};
use crate::query::layout::Layout;
use crate::query::recognize::{PROGRAM_MAX, Program};
use crate::row::prefixes;

/// The static side of a query.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The plan; its stage is a query.
    pub plan: Arc<Plan>,
    /// Where slots stand.
    pub layout: Layout,
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
    pub fn new(plan: Arc<Plan>) -> Option<Self> {
        let Stage::Query(query) = &plan.stage else {
            return None;
        };
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
        Some(Compiled {
            layout: Layout::new(query),
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
            is_forever: match &query.shape {
                Shape::Events { .. } => query.inputs.iter().all(|input| input.views.is_empty()),
                Shape::Pattern(_) | Shape::Recognize(_) | Shape::On(_) => true,
            },
            when,
            readers,
            keeps_latest,
            plan: plan.clone(),
        })
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

/// What cannot be run, with what to write instead.
///
/// # Errors
/// The first thing that this version does not run.
pub fn check(plan: &Plan) -> Result<(), String> {
    let query = match &plan.stage {
        Stage::Query(query) => query,
        Stage::Create(_) => return Err(NO_TABLES.to_owned()),
        Stage::PerEvent {
            window: Some(window),
        }
        | Stage::Windowed { window, .. }
            if window.shape == WindowShape::Session =>
        {
            return Err("session windows are not run: write a TUMBLE or HOP window".to_owned());
        }
        Stage::PerEvent { .. } | Stage::Windowed { .. } => return Ok(()),
    };
    match &query.shape {
        Shape::On(_) => return Err(NO_TABLES.to_owned()),
        Shape::Recognize(recognize) => check_recognize(recognize)?,
        Shape::Events { .. } | Shape::Pattern(_) => {}
    }
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
    for input in &query.inputs {
        let batches = input.views.iter().filter(|view| is_batch(view)).count();
        let windows = input
            .views
            .iter()
            .filter(|view| !matches!(view, crate::plan::View::Group(_)))
            .count();
        if batches > 0 && windows > 1 {
            return Err(
                "a batch window stands alone: insert into a stream and put the second window there"
                    .to_owned(),
            );
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

/// What to do without named windows and tables.
const NO_TABLES: &str = "named windows and tables are not run: insert into a stream, and give each \
                         statement on it the window it needs";

fn is_batch(view: &crate::plan::View) -> bool {
    use crate::plan::View;
    matches!(
        view,
        View::LengthBatch(_)
            | View::TimeBatch { .. }
            | View::TimeLengthBatch { .. }
            | View::ExtTimedBatch { .. }
    )
}

fn row_kind(plan: &Plan, query: &Query) -> RowKind {
    if query.aggregates.is_empty() {
        return RowKind::Event;
    }
    let names_event = plan.columns.iter().any(|column| match column {
        Column::All { .. } => true,
        Column::Named { expression, .. } => reads_event(expression, &query.group_by),
    });
    match (query.group_by.is_empty(), names_event) {
        (true, false) => RowKind::All,
        (true, true) => RowKind::EventOfAll,
        (false, false) => RowKind::Group,
        (false, true) => RowKind::EventOfGroup,
    }
}

/// True when an expression reads a field that is no key of the group.
fn reads_event(expression: &Expression, keys: &[Expression]) -> bool {
    if keys.contains(expression) {
        return false;
    }
    match expression {
        Expression::Field(_) | Expression::Pseudo(_) => true,
        other => {
            let mut reads = false;
            let mut own = other.clone();
            own.for_each_child(&mut |child| reads |= reads_event(child, keys));
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
