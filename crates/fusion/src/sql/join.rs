//! FROM with two sources: streams that are joined within a time of each other.
//!
//! The bound in time is an interval between the sides' times, DATEDIFF of them, or a TUMBLE window
//! of one length on both. What else ON says is looked up by key where it is an equation between the
//! sides, asked of one side's events before they are kept where that changes nothing, and else of
//! each pair. Without an outer side WHERE is read as a part of ON.

mod bounds;

use sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, Select, SelectItem, Spanned,
    TableFactor,
};
use sqlparser::tokenizer::Span;

use self::bounds::Bounds;
use super::names::{Joined, Names};
use super::source::WindowText;
use super::{Checked, Item, aggregates, at, columns, expressions, source};
use crate::expression::{Expression, Pseudo};
use crate::functions::user::Binder;
use crate::plan::{
    Column, Input, Join, JoinKind, Plan, Query, QueryTime, Shape, Sink, SlotField, Source, Stage,
    WindowShape, Within,
};

/// One side as FROM writes it.
struct Side<'q> {
    source: Source,
    window: Option<WindowText<'q>>,
    alias: String,
    span: Span,
}

/// True when FROM names several sources.
pub fn is_join(select: &Select) -> bool {
    select.from.len() > 1 || select.from.iter().any(|table| !table.joins.is_empty())
}

/// Lowers a SELECT over two sources.
///
/// # Errors
/// The join, or a part of it, is not supported.
pub fn of_select(sink: Option<Sink>, select: &Select, binder: Binder) -> Checked<Plan> {
    refuse_groups(select)?;
    let (relations, kind, on) = parts(select)?;
    let [first, second] = [side(relations[0])?, side(relations[1])?];
    if first.alias == second.alias {
        let message = format!("two sources are called '{}': name one with AS", first.alias);
        return Err(at(second.span, message));
    }
    refuse_topics(&first, &second)?;
    let window_ms = window_of(&first, &second)?;
    let aliases = [first.alias.clone(), second.alias.clone()];
    let mut names = Names::of_join(aliases.clone(), window_ms, binder);
    let [from_on, from_where] = [on, select.selection.as_ref()].map(conjuncts);
    let is_inner = kind == JoinKind::Inner;
    let mut conditions: Vec<&Expr> = from_on;
    let mut afterwards: Vec<&Expr> = Vec::new();
    match is_inner {
        true => conditions.extend(from_where),
        false => afterwards = from_where,
    }
    let bounds = Bounds::find(&aliases, window_ms, &conditions, &afterwards, select)?;
    let times = times([&first, &second], &bounds, &mut names)?;
    let mut lowered = Conditions::default();
    for condition in bounds.others(conditions) {
        lowered.add(condition, kind, &mut names)?;
    }
    let mut filter = Vec::new();
    for condition in afterwards {
        let (expression, named) = lower(condition, &mut names)?;
        match only(named).filter(|side| !is_outer(kind, 1 - side)) {
            Some(side) => lowered.filters[side].push(expression),
            None => filter.push(expression),
        }
    }
    let columns = columns(select, &mut |expr| expressions::lower(expr, &mut names))?;
    let columns = columns.into_iter().zip(&select.projection);
    let columns = columns
        .map(|(item, text)| named(item, text, &aliases))
        .collect::<Checked<Vec<Column>>>()?;
    let slots = names
        .joined
        .take()
        .map_or_else(Vec::new, |joined| joined.slots);
    let [first_filter, second_filter] = lowered.filters.map(all);
    let input = |source: &Source, filter| Input {
        asks: false,
        source: source.clone(),
        filter,
        views: Vec::new(),
        is_union: false,
        is_unidirectional: false,
    };
    let inputs = vec![
        input(&first.source, first_filter),
        input(&second.source, second_filter),
    ];
    let joins = vec![Join {
        kind,
        on: all(lowered.pairs),
        within: Some(Within {
            unit_ms: bounds.unit_ms,
            from: bounds.from,
            to: bounds.to,
            keys: lowered.keys,
        }),
    }];
    let query = Query {
        time: time_of(&first, &second, times)?,
        ..Query::of(inputs, slots, Shape::Events { joins })
    };
    Ok(Plan {
        source: first.source,
        sink,
        fields: names.into_fields(),
        filter: all(filter),
        stage: Stage::Query(Box::new(query)),
        columns,
        calls: None,
    })
}

/// The sources, how they are joined, and ON.
fn parts(select: &Select) -> Checked<(Vec<&TableFactor>, JoinKind, Option<&Expr>)> {
    let mut relations = Vec::new();
    let (mut kind, mut on) = (JoinKind::Inner, None);
    for table in &select.from {
        relations.push(&table.relation);
        for join in &table.joins {
            relations.push(&join.relation);
            let span = join.relation.span();
            let constraint;
            (kind, constraint) = match &join.join_operator {
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::CrossJoin(constraint) => (JoinKind::Inner, constraint),
                JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                    (JoinKind::Left, constraint)
                }
                JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                    (JoinKind::Right, constraint)
                }
                JoinOperator::FullOuter(constraint) => (JoinKind::Full, constraint),
                _ => return Err(at(span, KINDS)),
            };
            on = match constraint {
                JoinConstraint::On(on) => Some(on),
                JoinConstraint::None => None,
                JoinConstraint::Using(_) | JoinConstraint::Natural => {
                    let message = "write the join's condition as ON a.id = b.id AND …: no USING, no \
                                   NATURAL";
                    return Err(at(span, message));
                }
            };
        }
    }
    if let Some(third) = relations.get(2) {
        return Err(at(third.span(), TWO_SOURCES));
    }
    Ok((relations, kind, on))
}

fn side(relation: &TableFactor) -> Checked<Side<'_>> {
    let span = relation.span();
    let (source, window, alias) = source::relation(relation)?;
    let Some(alias) = alias else {
        let message = format!("each source of a join needs a name: write {source} AS a");
        return Err(at(span, message));
    };
    Ok(Side {
        source,
        window,
        alias,
        span,
    })
}

/// The length of the windows that both sides are in, ms.
fn window_of(first: &Side<'_>, second: &Side<'_>) -> Checked<Option<i64>> {
    let (one, other) = match (&first.window, &second.window) {
        (None, None) => return Ok(None),
        (Some(one), Some(other)) => (one, other),
        (Some(_), None) => return Err(at(second.span, ONE_WINDOW)),
        (None, Some(_)) => return Err(at(first.span, ONE_WINDOW)),
    };
    for side in [first, second] {
        let shape = side.window.as_ref().map(|window| window.shape);
        if shape.is_some_and(|shape| shape != WindowShape::Tumble) {
            let message = "HOP and SESSION windows are not joined: write TUMBLE, or leave the window \
                           out and bound the join by an INTERVAL in ON";
            return Err(at(side.span, message));
        }
    }
    if one.length != other.length {
        return Err(at(
            second.span,
            "both windows of a join have one length: give both TUMBLE the same interval",
        ));
    }
    Ok(i64::try_from(one.length.as_millis()).ok())
}

fn refuse_topics(first: &Side<'_>, second: &Side<'_>) -> Checked<()> {
    let is_records = |side: &Side<'_>| matches!(side.source, Source::Kafka(_));
    if is_records(first) && is_records(second) && first.source != second.source {
        let message = format!(
            "a statement reads one Kafka topic at most: add INSERT INTO stream.\"{}\" SELECT * FROM \
             {}, and join stream.\"{}\"",
            second.alias, second.source, second.alias
        );
        return Err(at(second.span, message));
    }
    Ok(())
}

/// What gives groups has no place in a join.
fn refuse_groups(select: &Select) -> Checked<()> {
    match aggregates::grouped_at(select) {
        None => Ok(()),
        Some(span) => Err(at(
            span,
            "a join gives pairs and no groups: INSERT the pairs INTO stream.\"pairs\", and aggregate \
             FROM TUMBLE(stream.\"pairs\", INTERVAL '10 seconds')",
        )),
    }
}

/// The time of each side: what the bounds or its window name, else the source's own.
fn times(sides: [&Side<'_>; 2], bounds: &Bounds<'_>, names: &mut Names) -> Checked<[SlotField; 2]> {
    let mut times = [const { SlotField::Pseudo(Pseudo::Timestamp) }; 2];
    for (number, side) in sides.into_iter().enumerate() {
        let column = side.window.as_ref().and_then(|window| window.time_column);
        let path: &[Ident] = match (column, bounds.times[number]) {
            (Some(Expr::Identifier(ident)), _) => std::slice::from_ref(ident),
            (Some(Expr::CompoundIdentifier(idents)), _) => idents,
            (Some(other), _) => {
                let message = "the time column of a join is a field: compute it in a statement \
                               before, and INSERT that INTO a stream";
                return Err(at(other.span(), message));
            }
            (None, Some(path)) if !path.is_empty() => path,
            (None, _) => continue,
        };
        times[number] = names.side_field(path, side.span)?;
    }
    Ok(times)
}

/// What time it is: the clock's where both sides go by their arrival.
fn time_of(first: &Side<'_>, second: &Side<'_>, times: [SlotField; 2]) -> Checked<QueryTime> {
    let own = SlotField::Pseudo(Pseudo::Timestamp);
    let is_records = |side: &Side<'_>| matches!(side.source, Source::Kafka(_));
    if times == [own.clone(), own] && !is_records(first) && !is_records(second) {
        return Ok(QueryTime::Arrival);
    }
    if first.source != second.source {
        return Ok(QueryTime::Event(times.into()));
    }
    let [time, other] = times;
    if time != other {
        return Err(at(
            second.span,
            "both sides are one source, whose events have one time: name the same column on both",
        ));
    }
    Ok(QueryTime::Event(vec![time]))
}

/// Conditions of a join, lowered.
#[derive(Default)]
struct Conditions {
    keys: Vec<[Expression; 2]>,
    pairs: Vec<Expression>,
    filters: [Vec<Expression>; 2],
}

impl Conditions {
    fn add(&mut self, condition: &Expr, kind: JoinKind, names: &mut Names) -> Checked<()> {
        if let Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } = bounds::bare(condition)
        {
            let (left, of_left) = lower(left, names)?;
            let (right, of_right) = lower(right, names)?;
            match (only(of_left), only(of_right)) {
                (Some(0), Some(1)) => self.keys.push([left, right]),
                (Some(1), Some(0)) => self.keys.push([right, left]),
                _ => {}
            }
        }
        let (expression, named) = lower(condition, names)?;
        // What an outer side keeps without a match must not be kept out.
        match only(named).filter(|side| !is_outer(kind, *side)) {
            Some(side) => self.filters[side].push(expression),
            None => self.pairs.push(expression),
        }
        Ok(())
    }
}

/// Lowers a condition, and says which sides it names; both where it asks for an event's time,
/// which is not known before the event is taken.
fn lower(condition: &Expr, names: &mut Names) -> Checked<(Expression, [bool; 2])> {
    if let Some(joined) = &mut names.joined {
        joined.named = [false; 2];
        joined.names_time = false;
    }
    let expression = expressions::lower(condition, names)?;
    let named = |joined: &Joined| match joined.names_time {
        true => [true; 2],
        false => joined.named,
    };
    Ok((expression, names.joined.as_ref().map_or([true; 2], named)))
}

fn only(named: [bool; 2]) -> Option<usize> {
    match named {
        [true, false] => Some(0),
        [false, true] => Some(1),
        _ => None,
    }
}

fn is_outer(kind: JoinKind, side: usize) -> bool {
    match kind {
        JoinKind::Inner => false,
        JoinKind::Left => side == 0,
        JoinKind::Right => side == 1,
        JoinKind::Full => true,
    }
}

fn all(mut parts: Vec<Expression>) -> Option<Expression> {
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(Expression::And(parts)),
    }
}

/// What has to be true all together, in the order of the text.
fn conjuncts(condition: Option<&Expr>) -> Vec<&Expr> {
    let mut waiting: Vec<&Expr> = condition.into_iter().collect();
    let mut found = Vec::new();
    while let Some(condition) = waiting.pop() {
        match bounds::bare(condition) {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And,
                right,
            } => waiting.extend([&**right, &**left]),
            _ => found.push(condition),
        }
    }
    found
}

fn named(item: Item, text: &SelectItem, [a, _]: &[String; 2]) -> Checked<Column> {
    match item {
        Item::Named(name, expression) => Ok(Column::Named { name, expression }),
        Item::All => Err(at(
            text.span(),
            format!("* has no place in a join: name the columns, as in {a}.id"),
        )),
    }
}

const KINDS: &str = "streams are joined by INNER, LEFT, RIGHT or FULL JOIN … ON …";
const TWO_SOURCES: &str = "a join has two sources: INSERT its pairs INTO stream.\"pairs\", and join \
                           that with the third in a statement of its own";
const ONE_WINDOW: &str = "where one side of a join is in a TUMBLE window, the other is too: write \
                          TUMBLE(source, time_column, INTERVAL '10 seconds') here as well";
