//! Sources of events: one, or several that are joined.

use super::expressions::Lower;
use super::names::Names;
use super::select::{Parts, all_of};
use super::{Checked, Environment, views};
use crate::epl::ast::{self, From, Ident, Select};
use crate::plan::{Input, Join, JoinKind, Shape, Source};

/// Lowers the sources of a select; one source's names need no alias.
///
/// # Errors
/// A source, filter or window is not supported.
pub fn events(select: &Select, names: &mut Names, environment: &Environment<'_>) -> Checked<Parts> {
    for (number, source) in select.sources.iter().enumerate() {
        names.add(&name_of(source)?, number as u16)?;
        names.set_columns(number as u16, columns(source, environment));
    }
    let mut inputs = Vec::with_capacity(select.sources.len());
    for (number, source) in select.sources.iter().enumerate() {
        // A source that is alone may ask, before an event is let in, what windows hold.
        let may_ask = select.sources.len() == 1 && !reads_kept(source, environment);
        names.set_catalog(may_ask.then(|| environment.catalog().clone()));
        inputs.push(input(source, number as u16, names, environment)?);
    }
    let is_join = inputs.len() > 1;
    let mut joins = Vec::new();
    let mut lower = Lower {
        names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    for (source, input) in select.sources.iter().zip(&inputs) {
        // A stream's name may be that of a named window or table, which keeps its rows itself.
        let is_outside = !matches!(input.source, Source::Stream(_));
        if is_join && is_outside && source.views.is_empty() && !source.unidirectional {
            return Err(name_of(source)?.place.error(
                "each source of a join needs a window, such as #time(10 sec) or #lastevent, or is \
                 unidirectional",
            ));
        }
    }
    lower.names.set_asked_twice(true);
    // Where no row is kept without a match, a condition is one of where: null is not equal to null.
    let is_outer = |source: &From| source.on.is_some() && kind_of(source.join) != JoinKind::Inner;
    let is_any_outer = select.sources.iter().any(is_outer);
    for source in select.sources.iter().skip(1) {
        let on = match &source.on {
            None => None,
            Some(on) if is_any_outer => Some(lower.matching(on)?),
            Some(on) => Some(lower.expr(on)?),
        };
        joins.push(Join {
            kind: kind_of(source.join),
            on,
            within: None,
        });
    }
    names.set_asked_twice(false);
    if !is_join {
        names.set_own(Some(0));
    }
    Ok(Parts {
        inputs,
        shape: Shape::Events { joins },
        context: None,
    })
}

/// Whether a source is a named window or table.
fn reads_kept(source: &From, environment: &Environment<'_>) -> bool {
    match &source.source {
        ast::Source::Stream(stream) => environment.catalog().kept(&stream.name.text).is_some(),
        ast::Source::Pattern(..) => false,
    }
}

/// The columns of a source, where they are declared: by a schema in the same text, or of a named
/// window or table.
pub fn columns(source: &From, environment: &Environment<'_>) -> Option<Vec<String>> {
    match &source.source {
        ast::Source::Stream(stream) => environment.columns(&stream.name.text),
        ast::Source::Pattern(..) => None,
    }
}

/// Lowers one source whose names `names` has already.
///
/// # Errors
/// As [`events`].
pub fn input(
    source: &From,
    number: u16,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Input> {
    let ast::Source::Stream(stream) = &source.source else {
        return Err(name_of(source)?.place.error(
            "a pattern is the only source of its statement: name its matches with insert into, \
             and use those",
        ));
    };
    let before = names.set_own(Some(number));
    let mut lower = Lower {
        names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    let filter = all_of(lower.all(&stream.filters)?);
    lower.names.set_catalog(None);
    let is_asked_twice = lower.names.set_asked_twice(true);
    let views = views::views(&source.views, &mut lower)?;
    names.set_asked_twice(is_asked_twice);
    names.set_own(before);
    Ok(Input {
        asks: names.subqueries() > 0,
        source: environment.source(&stream.name, stream.is_quoted)?,
        filter,
        views,
        is_union: source.is_union,
        is_unidirectional: source.unidirectional,
    })
}

/// Names the only source of a statement that works on one event at a time.
///
/// # Errors
/// The source cannot be.
pub fn name_single(
    source: &From,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Source> {
    names.add(&name_of(source)?, 0)?;
    names.set_columns(0, columns(source, environment));
    names.set_own(Some(0));
    match &source.source {
        ast::Source::Stream(stream) => environment.source(&stream.name, stream.is_quoted),
        ast::Source::Pattern(_, place) => Err(place.error("a pattern has more than one event")),
    }
}

/// What the statement calls a source: its alias, or the last part of its type's name.
pub fn name_of(source: &From) -> Checked<Ident> {
    if let Some(alias) = &source.alias {
        return Ok(alias.clone());
    }
    Ok(match &source.source {
        ast::Source::Stream(stream) => {
            let text = match stream.is_quoted {
                true => stream.name.text.as_str(),
                false => stream.name.text.rsplit('.').next().unwrap_or_default(),
            };
            Ident {
                text: text.to_owned(),
                place: stream.name.place,
            }
        }
        ast::Source::Pattern(_, place) => Ident {
            text: "pattern".to_owned(),
            place: *place,
        },
    })
}

fn kind_of(join: ast::Join) -> JoinKind {
    match join {
        ast::Join::Inner => JoinKind::Inner,
        ast::Join::Left => JoinKind::Left,
        ast::Join::Right => JoinKind::Right,
        ast::Join::Full => JoinKind::Full,
    }
}
