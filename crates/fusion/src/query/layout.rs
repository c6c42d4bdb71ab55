//! Where each slot of a query finds its value.

use std::sync::Arc;

use crate::expression::Scope;
use crate::json::FieldPath;
use crate::plan::{History, Pick, Plan, Query, Shape, Slot, SlotField};
use crate::query::chain::{Chain, Views};
use crate::query::compiled::Compiled;
use crate::query::kept::{Kept, KeptField, write_columns};
use crate::query::subquery;
use crate::query::tuple::{Row, Tuple};
use crate::query::window::Reading;
use crate::value::{OwnedValue, Value};

/// The fields kept of each alias's events, and the place of each slot among them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Alias by alias, the fields that its events keep; shared with the subqueries' layouts.
    aliases: Arc<[Alias]>,
    places: Vec<Place>,
    /// Slot numbers as they are: what `Scope` wants.
    identity: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Alias {
    fields: Vec<SlotField>,
    /// Steps back and the field, kept after the fields.
    priors: Vec<(u32, usize)>,
    /// The named window or table whose rows these are: they are as it keeps them.
    kept: Option<Arc<Kept>>,
}

#[derive(Clone, Debug)]
enum Place {
    Event {
        alias: usize,
        pick: Pick,
        index: usize,
    },
    Kept {
        alias: usize,
        field: KeptField,
    },
    /// When an event came, or a named window's row.
    Time {
        alias: usize,
    },
    History {
        input: usize,
        kind: History,
        steps: usize,
        index: usize,
    },
    ContextKey(usize),
    ContextStart,
    ContextEnd,
    Subquery(usize),
    Now,
}

/// What slots may ask beside the row.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Keys of the context.
    pub keys: &'a [OwnedValue],
    /// Start and end of the context's span.
    pub span: Option<(i64, Option<i64>)>,
    /// The query's time, ms.
    pub now: Option<i64>,
    /// The row that a condition of a row pattern is asked about.
    pub current: Option<&'a Arc<Tuple>>,
    /// For `prev` and subqueries: the query and what its inputs hold.
    pub history: Option<(&'a Compiled, &'a [Chain])>,
    /// In a subquery, its alias and the event that it is asked about.
    pub inner: Option<(usize, &'a Tuple)>,
}

/// What a history function finds.
pub enum Found<'a> {
    /// An event.
    Event(Option<&'a Tuple>),
    /// A number of events.
    Count(usize),
}

impl Around<'_> {
    /// Nothing.
    pub const NONE: Around<'static> = Around {
        keys: &[],
        span: None,
        now: None,
        current: None,
        history: None,
        inner: None,
    };
}

impl Layout {
    /// The layout of events whose values are so many fields, slot by slot.
    pub fn of_fields(count: usize) -> Self {
        let place = |index| Place::Event {
            alias: 0,
            pick: Pick::Last,
            index,
        };
        let field = |field: usize| SlotField::Payload(u16::try_from(field).unwrap_or(u16::MAX));
        let alias = Alias {
            fields: (0..count).map(field).collect(),
            ..Alias::default()
        };
        Layout {
            aliases: Arc::new([alias]),
            places: (0..count).map(place).collect(),
            identity: (0..count).collect(),
        }
    }

    /// The layout of a query, and those of its subqueries; `kept` are the named windows and tables
    /// among its inputs, by their places.
    pub fn all(plan: &Plan, query: &Query, kept: &[Option<Arc<Kept>>]) -> (Self, Vec<Self>) {
        let mut aliases = aliases_of(query, kept);
        let is_recognize = matches!(query.shape, Shape::Recognize(_));
        if is_recognize {
            // A row may become any variable's: all keep the same fields.
            for slot in &query.slots {
                if let Slot::Event { field, .. } | Slot::History { field, .. } = slot {
                    aliases.iter_mut().for_each(|alias| {
                        alias.place(field);
                    });
                }
            }
        }
        let mut places = |slots: &[Slot]| -> Vec<Place> {
            slots
                .iter()
                .map(|slot| place_of(slot, &plan.fields, &mut aliases, is_recognize))
                .collect()
        };
        let own = places(&query.slots);
        let mut all: Vec<Vec<Place>> = vec![own];
        for subquery in &query.subqueries {
            all.push(places(&subquery.slots));
        }
        // Priors stand after all the fields of their alias.
        for place in all.iter_mut().flatten() {
            if let Place::History {
                input,
                kind: History::Prior,
                index,
                ..
            } = place
            {
                *index += aliases[*input].fields.len();
            }
        }
        let aliases: Arc<[Alias]> = aliases.into();
        let mut layouts: Vec<Layout> = all
            .into_iter()
            .map(|places| Layout {
                aliases: aliases.clone(),
                identity: (0..places.len()).collect(),
                places,
            })
            .collect();
        let subqueries = layouts.split_off(1);
        let own = layouts.pop().expect("the query's own is the first");
        (own, subqueries)
    }

    /// The most steps that `prior` goes back over an alias's events.
    pub fn prior_steps(&self, alias: usize) -> usize {
        let priors = self
            .aliases
            .get(alias)
            .map_or(&[][..], |alias| &alias.priors);
        priors
            .iter()
            .map(|(steps, _)| *steps as usize)
            .max()
            .unwrap_or(0)
    }

    /// The slots' values of an event that comes `now` and is not kept yet, by an alias; other slots
    /// are null.
    pub fn of_event<'a>(
        &self,
        alias: usize,
        source: &Scope<'a>,
        now: i64,
        before: Option<&'a Row>,
        values: &mut Vec<Value<'a>>,
    ) {
        values.clear();
        values.extend(self.places.iter().map(|place| match place {
            Place::Event {
                alias: of, index, ..
            } if *of == alias => field_of(&self.aliases[alias].fields[*index], source),
            Place::Event { .. } | Place::Kept { .. } | Place::Time { .. } => {
                before.map_or(Value::Null, |row| place.of_row(row, None))
            }
            Place::Now => Value::Int(now),
            _ => Value::Null,
        }));
    }

    /// What is kept of an event under an alias; `recent` are the alias's events before, newest
    /// first.
    pub fn keep<'t>(
        &self,
        alias: usize,
        source: &Scope<'_>,
        recent: impl Fn(usize) -> Option<&'t Tuple>,
    ) -> Box<[OwnedValue]> {
        let Some(alias) = self.aliases.get(alias) else {
            return Box::default();
        };
        let fields = alias
            .fields
            .iter()
            .map(|field| owned(&field_of(field, source)));
        let priors = alias.priors.iter().map(|(steps, index)| match steps {
            0 => owned(&field_of(&alias.fields[*index], source)),
            _ => recent(*steps as usize - 1)
                .and_then(|tuple| tuple.values.get(*index).cloned())
                .unwrap_or_default(),
        });
        fields.chain(priors).collect()
    }

    /// The slots' values of a row.
    pub fn of_row<'a>(&self, row: &'a Row, around: &Around<'a>, values: &mut Vec<Value<'a>>) {
        values.clear();
        values.extend(self.places.iter().map(|place| {
            match place {
                Place::Event { .. } | Place::Kept { .. } | Place::Time { .. } => {
                    place.of_row(row, around.inner)
                }
                Place::Subquery(number) => around.history.map_or(Value::Null, |(compiled, _)| {
                    subquery::value(compiled, *number, row, around)
                }),
                Place::History {
                    input,
                    kind: History::Prior,
                    index,
                    ..
                } => around
                    .current
                    .or_else(|| row.last(*input))
                    .map_or(Value::Null, |tuple| value_at(tuple, *index)),
                Place::History {
                    input,
                    kind,
                    steps,
                    index,
                } => {
                    let (Some((compiled, chains)), Some(tuple)) =
                        (around.history, row.last(*input))
                    else {
                        return Value::Null;
                    };
                    let (Some(views), Some(chain)) =
                        (compiled.query().inputs.get(*input), chains.get(*input))
                    else {
                        return Value::Null;
                    };
                    let reading = Reading {
                        layout: self,
                        alias: *input,
                    };
                    match chain.history(Views::of(views), reading, *kind, *steps, tuple) {
                        Found::Event(found) => {
                            found.map_or(Value::Null, |tuple| value_at(tuple, *index))
                        }
                        Found::Count(count) => i64::try_from(count).map_or(Value::Null, Value::Int),
                    }
                }
                Place::ContextKey(key) => around
                    .keys
                    .get(*key)
                    .map_or(Value::Null, OwnedValue::as_value),
                Place::ContextStart => around
                    .span
                    .map_or(Value::Null, |(start, _)| Value::Int(start)),
                Place::ContextEnd => around
                    .span
                    .and_then(|(_, end)| end)
                    .map_or(Value::Null, Value::Int),
                Place::Now => around.now.map_or(Value::Null, Value::Int),
            }
        }));
    }

    /// A scope over slots' values.
    pub fn scope<'a>(&'a self, values: &'a [Value<'a>]) -> Scope<'a> {
        Scope {
            values,
            slots: &self.identity,
            event: None,
            window: None,
            group: &[],
            aggregates: &[],
        }
    }
}

impl Alias {
    fn place(&mut self, field: &SlotField) -> usize {
        if let Some(place) = self.fields.iter().position(|known| known == field) {
            return place;
        }
        self.fields.push(field.clone());
        self.fields.len() - 1
    }

    fn prior(&mut self, steps: u32, field: usize) -> usize {
        if let Some(place) = self
            .priors
            .iter()
            .position(|known| *known == (steps, field))
        {
            return place;
        }
        self.priors.push((steps, field));
        self.priors.len() - 1
    }
}

impl Place {
    /// The value in a row, or of the event that a subquery is asked about.
    fn of_row<'a>(&self, row: &'a Row, inner: Option<(usize, &'a Tuple)>) -> Value<'a> {
        let of = |alias: usize| match inner {
            Some((own, tuple)) if own == alias => Some(tuple),
            _ => row.last(alias).map(Arc::as_ref),
        };
        match self {
            Place::Event {
                alias,
                pick: Pick::Last,
                index,
            } => of(*alias).map_or(Value::Null, |tuple| value_at(tuple, *index)),
            Place::Event {
                alias,
                pick: Pick::Nth(nth),
                index,
            } => {
                let tuple = row.nth(*alias, usize::from(*nth));
                tuple.map_or(Value::Null, |tuple| value_at(tuple, *index))
            }
            Place::Kept { alias, field } => {
                of(*alias).map_or(Value::Null, |tuple| kept_value(tuple, field))
            }
            Place::Time { alias } => of(*alias).map_or(Value::Null, |tuple| Value::Int(tuple.time)),
            _ => Value::Null,
        }
    }
}

/// The aliases of a query and of its subqueries, without their fields.
fn aliases_of(query: &Query, kept: &[Option<Arc<Kept>>]) -> Vec<Alias> {
    let count = match &query.shape {
        Shape::Events { .. } | Shape::On(_) => query.inputs.len() - query.subqueries.len(),
        Shape::Pattern(pattern) => usize::from(pattern.tags),
        Shape::Recognize(recognize) => usize::from(recognize.variables),
    };
    let subqueries = query.subqueries.iter();
    let most = subqueries
        .map(|subquery| usize::from(subquery.alias) + 1)
        .max();
    let mut aliases = vec![Alias::default(); count.max(most.unwrap_or(1))];
    let of = |input: usize| kept.get(input).cloned().flatten();
    if matches!(query.shape, Shape::Events { .. } | Shape::On(_)) {
        for (input, alias) in aliases.iter_mut().enumerate().take(count) {
            alias.kept = of(input);
        }
    }
    for subquery in &query.subqueries {
        aliases[usize::from(subquery.alias)].kept = of(usize::from(subquery.input));
    }
    aliases
}

/// Where a slot's value stands; a field that is new to its alias is added there. A prior's index
/// is one among the priors.
fn place_of(slot: &Slot, fields: &[FieldPath], aliases: &mut [Alias], is_recognize: bool) -> Place {
    match slot {
        Slot::Event { alias, pick, field } => {
            let alias = usize::from(*alias);
            if *field == SlotField::Time {
                return Place::Time { alias };
            }
            if let Some(kept) = aliases.get(alias).and_then(|known| known.kept.as_ref()) {
                return kept_place(alias, kept, field, fields);
            }
            let index = aliases.get_mut(alias).map_or(0, |known| known.place(field));
            Place::Event {
                alias,
                pick: *pick,
                index,
            }
        }
        // Over the rows of a row pattern's partition both count alike.
        Slot::History {
            input,
            kind,
            steps,
            field,
        } if *kind == History::Prior || is_recognize => {
            let alias = usize::from(*input);
            let prior = aliases.get_mut(alias).map_or(0, |known| {
                let field = known.place(field);
                known.prior(*steps, field)
            });
            Place::History {
                input: alias,
                kind: History::Prior,
                steps: 0,
                index: prior,
            }
        }
        Slot::History {
            input,
            kind,
            steps,
            field,
        } => {
            let input = usize::from(*input);
            let index = aliases.get_mut(input).map_or(0, |known| known.place(field));
            Place::History {
                input,
                kind: *kind,
                steps: *steps as usize,
                index,
            }
        }
        Slot::ContextKey(key) => Place::ContextKey(usize::from(*key)),
        Slot::ContextStart => Place::ContextStart,
        Slot::ContextEnd => Place::ContextEnd,
        Slot::Subquery(number) => Place::Subquery(usize::from(*number)),
        Slot::Now => Place::Now,
    }
}

fn kept_place(alias: usize, kept: &Kept, field: &SlotField, fields: &[FieldPath]) -> Place {
    let field = match field {
        SlotField::Payload(number) => match fields.get(usize::from(*number)) {
            Some(path) => kept.field(path),
            None => KeptField::Nowhere,
        },
        SlotField::Pseudo(crate::expression::Pseudo::Timestamp) | SlotField::Time => {
            return Place::Time { alias };
        }
        SlotField::Pseudo(_) => KeptField::Nowhere,
    };
    Place::Kept { alias, field }
}

fn kept_value<'a>(tuple: &'a Tuple, field: &KeptField) -> Value<'a> {
    match field {
        KeptField::Value(index) => value_at(tuple, *index),
        KeptField::Within(index, scanner) => match tuple.values.get(*index) {
            Some(OwnedValue::Json(text)) => {
                let mut values = Vec::new();
                match scanner.scan(text.as_bytes(), &mut values) {
                    Ok(()) => values.pop().unwrap_or(Value::Null),
                    Err(_) => Value::Null,
                }
            }
            _ => Value::Null,
        },
        KeptField::Whole(columns) => {
            let mut text = Vec::new();
            write_columns(columns, &tuple.values, &mut text);
            Value::Json(String::from_utf8_lossy(&text).into_owned().into())
        }
        KeptField::Nowhere => Value::Null,
    }
}

/// A value that owns its text.
pub fn owned(value: &Value<'_>) -> OwnedValue {
    let mut owned = OwnedValue::Null;
    owned.assign(value);
    owned
}

fn value_at(tuple: &Tuple, index: usize) -> Value<'_> {
    tuple
        .values
        .get(index)
        .map_or(Value::Null, OwnedValue::as_value)
}

/// A field of an event of a source.
pub fn field_of<'a>(field: &SlotField, source: &Scope<'a>) -> Value<'a> {
    match field {
        SlotField::Payload(field) => source.field(*field),
        SlotField::Pseudo(pseudo) => source.pseudo(*pseudo),
        // It is no part of what came.
        SlotField::Time => Value::Null,
    }
}
