//! `select` onto a plan.

use super::expressions::Lower;
use super::names::{Fields, Names};
use super::{Checked, Environment, contexts, inputs, output, patterns};
use crate::epl::ast::{self, Expr, ExprKind, Ident, Item, Rows, Select, Step};
use crate::epl::text::text_of;
use crate::epl::token::Place;
use crate::expression::Expression;
use crate::limits::COLUMNS_MAX;
use crate::plan::{
    Column, Context, History, Input, Limit, OrderKey, Plan, Query, QueryTime, Shape, Sink, Slot,
    Stage, StreamSelect,
};

/// Lowers a select, in a context perhaps.
///
/// # Errors
/// It names what is not there, or is not supported.
pub fn select(
    select: &Select,
    context: Option<&Ident>,
    environment: &Environment<'_>,
) -> Checked<Plan> {
    let Some(first) = select.sources.first() else {
        return Err(select
            .place
            .error("a statement needs a source: write from Type, or from \"a/topic\""));
    };
    let reads_kept = match &first.source {
        ast::Source::Stream(stream) => environment.catalog().kept(&stream.name.text).is_some(),
        ast::Source::Pattern(..) => false,
    };
    if context.is_none() && !reads_kept && is_single_event(select) {
        return single_event(select, first, environment);
    }
    let mut names = Names::new(Fields::Slots, environment.binder());
    let mut parts = if let ast::Source::Pattern(pattern, place) = &first.source {
        patterns::source(select, pattern, *place, &mut names, environment)?
    } else if let Some(rows) = &select.row_pattern {
        patterns::rows(select, rows, &mut names, environment)?
    } else {
        inputs::events(select, &mut names, environment)?
    };
    let lowered = match context {
        None => None,
        Some(name) => Some(contexts::context(
            name,
            &mut parts.inputs,
            &mut names,
            environment,
        )?),
    };
    parts.context = lowered;
    let plan = query(select, parts, names, environment)?;
    if let (Some(name), Stage::Query(query)) = (context, &plan.stage) {
        let own = query.inputs.len() - query.subqueries.len();
        contexts::check_subqueries(name, &query.inputs[own..], environment)?;
    }
    Ok(plan)
}

/// What the sources of a query are lowered to.
pub struct Parts {
    /// The inputs.
    pub inputs: Vec<crate::plan::Input>,
    /// How they become events of the select list.
    pub shape: Shape,
    /// The context.
    pub context: Option<crate::plan::Context>,
}

/// Lowers what stands before and after the sources.
///
/// # Errors
/// As [`select`].
pub fn query(
    select: &Select,
    parts: Parts,
    mut names: Names,
    environment: &Environment<'_>,
) -> Checked<Plan> {
    let mut aggregates = Vec::new();
    if !matches!(parts.shape, Shape::Recognize(_)) {
        names.set_catalog(Some(environment.catalog().clone()));
    }
    let mut lower = Lower {
        names: &mut names,
        aggregates: None,
        is_row_pattern: matches!(parts.shape, Shape::Recognize(_)),
        depth: 0,
    };
    lower.names.set_asked_twice(true);
    let filter = match &select.filter {
        None => None,
        Some(filter) => Some(lower.expr(filter)?),
    };
    let group_by = lower.all(&select.group_by)?;
    lower.names.set_asked_twice(false);
    lower.aggregates = Some(&mut aggregates);
    let mut columns = columns(select, &mut lower)?;
    let mut having = match &select.having {
        None => None,
        Some(having) => Some(lower.expr(having)?),
    };
    let mut order_by = order_by(select, &mut lower)?;
    lower.aggregates = None;
    let output = match &select.output {
        None => None,
        Some(clause) => Some(output::rate(clause, &mut lower)?),
    };
    if let Some(clause) = select.output.as_ref().filter(|clause| clause.at_end)
        && !matches!(parts.context, Some(Context::Span { .. }))
    {
        return Err(clause.place.error(
            "when terminated needs a context that ends: write create context … start … end …, or \
             initiated by … terminated by …",
        ));
    }
    if let (Some(Context::Partition { keys }), [_]) = (&parts.context, parts.inputs.as_slice())
        && group_by.is_empty()
        && !aggregates.is_empty()
    {
        // The context's keys are known without an event.
        let named = columns.iter_mut().filter_map(|column| match column {
            Column::Named { expression, .. } => Some(expression),
            Column::All { .. } => None,
        });
        let ordered = order_by.iter_mut().map(|key| &mut key.expression);
        for expression in named.chain(ordered).chain(&mut having) {
            contexts::know_keys(expression, &keys[0], &mut names, select.place)?;
        }
    }
    let (sink, columns) = target(select, columns, environment)?;
    let mut inputs = parts.inputs;
    let Some(source) = inputs.first().map(|input| input.source.clone()) else {
        return Err(select
            .place
            .error("a statement needs a source: write from Type"));
    };
    let mut subqueries = Vec::new();
    for (mut subquery, input) in names.take_subqueries() {
        subquery.input = inputs.len() as u16;
        inputs.push(input);
        subqueries.push(subquery);
    }
    let (fields, slots) = names.into_parts();
    check_history(&slots, &inputs, &parts.shape, select.place)?;
    Ok(Plan {
        source,
        sink,
        fields,
        filter,
        columns,
        stage: Stage::Query(Box::new(Query {
            inputs,
            slots,
            shape: parts.shape,
            group_by,
            aggregates,
            having,
            stream: stream_of(select),
            distinct: select.distinct,
            order_by,
            limit: limit(select)?,
            output,
            subqueries,
            context: parts.context,
            time: QueryTime::Arrival,
        })),
        calls: None,
    })
}

/// Refuses `prev` over what keeps nothing.
fn check_history(slots: &[Slot], inputs: &[Input], shape: &Shape, place: Place) -> Checked<()> {
    let keeps_nothing = |slot: &Slot| match slot {
        Slot::History { input, kind, .. } => {
            *kind != History::Prior
                && matches!(shape, Shape::Events { .. })
                && inputs
                    .get(usize::from(*input))
                    .is_none_or(|input| input.views.is_empty())
        }
        _ => false,
    };
    match slots.iter().any(keeps_nothing) {
        true => Err(place.error(
            "prev counts in a window: give the source one, such as #length(2), or write prior",
        )),
        false => Ok(()),
    }
}

/// Whether each event gives its row without regard to any other.
fn is_single_event(select: &Select) -> bool {
    let [source] = select.sources.as_slice() else {
        return false;
    };
    let plain_source = match &source.source {
        ast::Source::Stream(stream) => {
            source.views.is_empty() && !stream.filters.iter().any(needs_state)
        }
        ast::Source::Pattern(..) => false,
    };
    let plain_clauses = select.row_pattern.is_none()
        && select.group_by.is_empty()
        && select.having.is_none()
        && select.output.is_none()
        && select.order_by.is_empty()
        && select.limit.is_none()
        && rows_of(select) != Rows::Old;
    plain_source
        && plain_clauses
        && !select.filter.as_ref().is_some_and(needs_state)
        && !select.items.iter().any(|item| match item {
            Item::Value(value, _) => needs_state(value),
            _ => false,
        })
}

/// Whether an expression has an aggregate or reads earlier events.
fn needs_state(expr: &Expr) -> bool {
    let is_subquery = matches!(
        &expr.kind,
        ExprKind::Subquery(_) | ExprKind::Exists(_) | ExprKind::In(_, ast::Choices::Subquery(_), _)
    );
    if is_subquery {
        return true;
    }
    if let ExprKind::Call(call) = &expr.kind {
        let is_history = matches!(
            call.path.as_slice(),
            [Step::Name(name)] if ["prev", "prior", "prevtail", "prevcount"]
                .iter()
                .any(|history| name.eq_ignore_ascii_case(history))
        );
        if is_history || super::calls::is_aggregate(call) {
            return true;
        }
    }
    expr.children().into_iter().any(needs_state)
}

/// A statement that works on one event at a time: the way of the least cost.
fn single_event(
    select: &Select,
    source: &ast::From,
    environment: &Environment<'_>,
) -> Checked<Plan> {
    let mut names = Names::new(Fields::Payload, environment.binder());
    let input = inputs::name_single(source, &mut names, environment)?;
    let mut lower = Lower {
        names: &mut names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    let mut conditions = Vec::new();
    if let ast::Source::Stream(stream) = &source.source {
        conditions = lower.all(&stream.filters)?;
    }
    if let Some(filter) = &select.filter {
        conditions.push(lower.expr(filter)?);
    }
    let columns = columns(select, &mut lower)?;
    let (sink, columns) = target(select, columns, environment)?;
    Ok(Plan {
        source: input,
        sink,
        fields: names.into_parts().0,
        filter: all_of(conditions),
        columns,
        stage: Stage::PerEvent { window: None },
        calls: None,
    })
}

/// All of the conditions, when there are any.
pub fn all_of(mut conditions: Vec<Expression>) -> Option<Expression> {
    match conditions.len() {
        0 => None,
        1 => conditions.pop(),
        _ => Some(Expression::And(conditions)),
    }
}

/// The columns of the select list.
pub fn columns(select: &Select, lower: &mut Lower<'_>) -> Checked<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::with_capacity(select.items.len());
    for item in &select.items {
        match item {
            Item::All(place) => all_columns(*place, lower, &mut columns)?,
            Item::AllOf(alias, name) => {
                let Some(number) = lower.names.number(&alias.text) else {
                    let message = format!("there is no source {}", alias.text);
                    return Err(alias.place.error(message));
                };
                let whole = lower.names.whole(number, alias.place)?;
                columns.push(match name {
                    None => whole_column(&whole, alias.place)?,
                    Some(name) => Column::Named {
                        name: name.text.clone(),
                        expression: whole,
                    },
                });
            }
            Item::Value(value, name) => {
                let expression = lower.expr(value)?;
                let (name, place) = match name {
                    Some(name) => (name.text.clone(), name.place),
                    None => (text_of(value), value.place),
                };
                add_column(&mut columns, name, expression, place)?;
            }
        }
        if columns.len() > COLUMNS_MAX {
            return Err(select
                .place
                .error(format!("more than {COLUMNS_MAX} columns: select fewer")));
        }
    }
    Ok(columns)
}

fn add_column(
    columns: &mut Vec<Column>,
    name: String,
    expression: Expression,
    place: Place,
) -> Checked<()> {
    let is_taken =
        |column: &Column| matches!(column, Column::Named { name: known, .. } if *known == name);
    if columns.iter().any(is_taken) {
        return Err(place.error(format!("two columns are called {name}: name one with as")));
    }
    columns.push(Column::Named { name, expression });
    Ok(())
}

/// `*`: the event itself; of several sources, a column for each; of a row pattern, its measures.
fn all_columns(place: Place, lower: &mut Lower<'_>, columns: &mut Vec<Column>) -> Checked<()> {
    if !lower.names.known().is_empty() {
        for (name, expression) in lower.names.known().to_vec() {
            add_column(columns, name, expression, place)?;
        }
        return Ok(());
    }
    if let Some(own) = lower.names.own() {
        let whole = lower.names.whole(own, place)?;
        columns.push(whole_column(&whole, place)?);
        return Ok(());
    }
    let aliases: Vec<(String, u16)> = lower
        .names
        .aliases()
        .map(|(name, number)| (name.to_owned(), number))
        .collect();
    for (name, number) in aliases {
        let whole = lower.names.whole(number, place)?;
        add_column(columns, name, whole, place)?;
    }
    Ok(())
}

fn whole_column(whole: &Expression, place: Place) -> Checked<Column> {
    match whole {
        Expression::Field(payload) => Ok(Column::All { payload: *payload }),
        _ => Err(place.error("* has no place here: name the columns")),
    }
}

fn order_by(select: &Select, lower: &mut Lower<'_>) -> Checked<Vec<OrderKey>> {
    let mut keys = Vec::with_capacity(select.order_by.len());
    for (expr, is_descending) in &select.order_by {
        let aliased = select.items.iter().find_map(|item| match (item, &expr.kind) {
            (Item::Value(value, Some(name)), ExprKind::Path(path))
                if matches!(path.as_slice(), [Step::Name(first)] if *first == name.text) =>
            {
                Some(value)
            }
            _ => None,
        });
        let expression = lower.expr(aliased.unwrap_or(expr))?;
        keys.push(OrderKey {
            expression,
            is_descending: *is_descending,
        });
    }
    Ok(keys)
}

/// Where rows go, and the columns by the names that they have there.
fn target(
    select: &Select,
    mut columns: Vec<Column>,
    environment: &Environment<'_>,
) -> Checked<(Option<Sink>, Vec<Column>)> {
    let Some(insert) = &select.insert_into else {
        return Ok((None, columns));
    };
    let sink = environment.sink(&insert.name)?;
    if insert.columns.is_empty() {
        return Ok((Some(sink), columns));
    }
    if insert.columns.len() != columns.len() {
        return Err(insert.name.place.error(format!(
            "insert into names {} columns, and the select has {}",
            insert.columns.len(),
            columns.len()
        )));
    }
    for (column, wanted) in columns.iter_mut().zip(&insert.columns) {
        match column {
            Column::Named { name, .. } => *name = wanted.text.clone(),
            Column::All { .. } => {
                return Err(wanted
                    .place
                    .error("* has no one name: leave out the list of columns"));
            }
        }
    }
    Ok((Some(sink), columns))
}

/// An insert takes the rows that it names, whatever the select reports.
fn rows_of(select: &Select) -> Rows {
    select
        .insert_into
        .as_ref()
        .map_or(select.rows, |insert| insert.rows)
}

fn stream_of(select: &Select) -> StreamSelect {
    match rows_of(select) {
        Rows::New => StreamSelect::Insert,
        Rows::Old => StreamSelect::Remove,
        Rows::Both => StreamSelect::Both,
    }
}

fn limit(select: &Select) -> Checked<Option<Limit>> {
    let Some((rows, offset)) = select.limit else {
        return Ok(None);
    };
    match (u32::try_from(rows), u32::try_from(offset)) {
        (Ok(rows), Ok(offset)) => Ok(Some(Limit { rows, offset })),
        _ => Err(select
            .place
            .error(format!("a limit is at most {} rows", u32::MAX))),
    }
}
