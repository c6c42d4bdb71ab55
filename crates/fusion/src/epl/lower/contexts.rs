//! Contexts: state apart by key or by span.

use std::time::Duration;

use super::expressions::Lower;
use super::names::Names;
use super::select::all_of;
use super::{Checked, Environment, output, patterns};
use crate::epl::ast::{Context as Text, Edge, Expr, Ident, Stream};
use crate::epl::token::Place;
use crate::expression::Expression;
use crate::plan::{Boundary, Context, Input, Slot, Source};

/// Lowers the context of that name for a query with these inputs.
///
/// # Errors
/// There is no such context, it has no key for an input, or it is not supported.
pub fn context(
    name: &Ident,
    inputs: &mut Vec<Input>,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Context> {
    let Some(declared) = environment.context(&name.text) else {
        return Err(name.place.error(format!(
            "there is no context {0}: write create context {0} … ; before the statement, in the \
             same text",
            name.text
        )));
    };
    match &declared.kind {
        Text::Partition(parts, end) => {
            if end.is_some() {
                return Err(declared.name.place.error(
                    "a partition's end is not supported: write initiated by … terminated by …",
                ));
            }
            partition(parts, inputs, names, environment, name.place)
        }
        Text::Category(..) => Err(declared.name.place.error(
            "contexts by category are not supported: group by a case that names the category",
        )),
        Text::Single(start, end) => span(start, end.as_ref(), false, inputs, names, environment),
        Text::Overlapping(start, end) => {
            span(start, end.as_ref(), true, inputs, names, environment)
        }
    }
}

/// Puts the context's keys in place of the expressions that they are made of.
///
/// # Errors
/// The statement has too many fields.
pub fn know_keys(
    expression: &mut Expression,
    keys: &[Expression],
    names: &mut Names,
    place: Place,
) -> Checked<()> {
    if let Some(number) = keys.iter().position(|key| key == expression) {
        *expression = names.slot(Slot::ContextKey(number as u16), place)?;
        return Ok(());
    }
    let mut known = Ok(());
    expression.for_each_child(&mut |child| {
        if known.is_ok() {
            known = know_keys(child, keys, names, place);
        }
    });
    known
}

/// Refuses subqueries over streams that a context has a key for: they would be apart by it.
///
/// # Errors
/// There is one.
pub fn check_subqueries(
    name: &Ident,
    inputs: &[Input],
    environment: &Environment<'_>,
) -> Checked<()> {
    let Some(Text::Partition(parts, _)) = environment.context(&name.text).map(|known| &known.kind)
    else {
        return Ok(());
    };
    for (_, stream) in parts {
        let source = environment.source(&stream.name, stream.is_quoted)?;
        if inputs.iter().any(|input| input.source == source) {
            return Err(name.place.error(format!(
                "a subquery over {source} is not supported here, since the context has a key for \
                 it: insert what it looks for into a named window"
            )));
        }
    }
    Ok(())
}

fn partition(
    parts: &[(Vec<Expr>, Stream)],
    inputs: &mut [Input],
    names: &mut Names,
    environment: &Environment<'_>,
    place: Place,
) -> Checked<Context> {
    let mut keys: Vec<Vec<Expression>> = Vec::with_capacity(inputs.len());
    for (number, input) in inputs.iter_mut().enumerate() {
        if let Source::Stream(name) = &input.source
            && environment.catalog().kept(name).is_some()
        {
            // It is the same for every key.
            keys.push(Vec::new());
            continue;
        }
        let mut found = None;
        for (key, stream) in parts {
            if environment.source(&stream.name, stream.is_quoted)? == input.source {
                found = Some((key, stream));
                break;
            }
        }
        let Some((key, stream)) = found else {
            return Err(place.error(format!(
                "the context has no key for {}: add it as partition by key from it",
                input.source
            )));
        };
        let own = names.set_own(Some(number as u16));
        let mut lower = Lower {
            names,
            aggregates: None,
            is_row_pattern: false,
            depth: 0,
        };
        let lowered = lower.all(key);
        let filters = lower.all(&stream.filters);
        names.set_own(own);
        keys.push(lowered?);
        let conditions = input.filter.take().into_iter().chain(filters?);
        input.filter = all_of(conditions.collect());
    }
    Ok(Context::Partition { keys })
}

fn span(
    start: &Edge,
    end: Option<&Edge>,
    is_overlapping: bool,
    inputs: &mut Vec<Input>,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Context> {
    let start = boundary(start, inputs, names, environment)?;
    let end = match end {
        None => Boundary::Immediately,
        Some(edge) => boundary(edge, inputs, names, environment)?,
    };
    Ok(Context::Span {
        start,
        end,
        is_overlapping,
    })
}

fn boundary(
    edge: &Edge,
    inputs: &mut Vec<Input>,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Boundary> {
    let mut lower = Lower {
        names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    Ok(match edge {
        Edge::Now => Boundary::Immediately,
        Edge::After(time) => Boundary::After(Duration::from_millis(lower.millis(time)?)),
        Edge::At(parts) => {
            let place = parts.first().map_or(Place::default(), |part| part.place);
            Boundary::At(output::schedule(parts, place)?)
        }
        Edge::Pattern(_) => {
            return Err(Place::default().error(
                "a context starts and ends with events and times: name a pattern's match with \
                 insert into, and use that",
            ));
        }
        Edge::Event(stream, _) => {
            let source: Source = environment.source(&stream.name, stream.is_quoted)?;
            let input = match inputs.iter().position(|input| input.source == source) {
                Some(input) => input,
                None => {
                    inputs.push(patterns::plain_input(source));
                    inputs.len() - 1
                }
            };
            lower.names.reserve(inputs.len() as u16);
            let own = lower.names.set_own(Some(input as u16));
            let condition = lower.all(&stream.filters);
            lower.names.set_own(own);
            Boundary::Event {
                input: input as u16,
                condition: all_of(condition?),
            }
        }
    })
}
