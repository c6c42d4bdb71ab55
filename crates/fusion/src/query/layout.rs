//! Where each slot of a query finds its value.

use std::sync::Arc;

use crate::expression::Scope;
use crate::plan::{History, Pick, Query, Shape, Slot, SlotField};
use crate::query::chain::{Chain, Views};
use crate::query::compiled::Compiled;
use crate::query::tuple::{Row, Tuple};
use crate::query::window::Reading;
use crate::value::{OwnedValue, Value};

/// The fields kept of each alias's events, and the place of each slot among them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Alias by alias, the fields that its events keep.
    aliases: Vec<Alias>,
    places: Vec<Place>,
    /// Slot numbers as they are: what `Scope` wants.
    identity: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Alias {
    fields: Vec<SlotField>,
    /// Steps back and the field, kept after the fields.
    priors: Vec<(u32, usize)>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Event {
        alias: usize,
        pick: Pick,
        index: usize,
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
}

/// What slots may ask beside the row.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Keys of the context.
    pub keys: &'a [OwnedValue],
    /// Start and end of the context's span.
    pub span: Option<(i64, Option<i64>)>,
    /// The row that a condition of a row pattern is asked about.
    pub current: Option<&'a Arc<Tuple>>,
    /// For `prev`: the query and what its inputs hold.
    pub history: Option<(&'a Compiled, &'a [Chain])>,
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
        current: None,
        history: None,
    };
}

impl Layout {
    /// The layout of a query.
    pub fn new(query: &Query) -> Self {
        let count = match &query.shape {
            Shape::Events { .. } | Shape::On(_) => query.inputs.len(),
            Shape::Pattern(pattern) => usize::from(pattern.tags),
            Shape::Recognize(recognize) => usize::from(recognize.variables),
        };
        let mut aliases = vec![Alias::default(); count.max(1)];
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
        let places = query.slots.iter().map(|slot| match slot {
            Slot::Event { alias, pick, field } => {
                let alias = usize::from(*alias);
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
        });
        let mut places: Vec<Place> = places.collect();
        // Priors stand after all the fields of their alias.
        for place in &mut places {
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
        Layout {
            identity: (0..places.len()).collect(),
            aliases,
            places,
        }
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

    /// The slots' values of an event that is not kept yet, by an alias; other slots are null.
    pub fn of_event<'a>(
        &self,
        alias: usize,
        source: &Scope<'a>,
        before: Option<&'a Row>,
        values: &mut Vec<Value<'a>>,
    ) {
        values.clear();
        values.extend(self.places.iter().map(|place| match place {
            Place::Event {
                alias: of, index, ..
            } if *of == alias => field_of(&self.aliases[alias].fields[*index], source),
            Place::Event { .. } => before.map_or(Value::Null, |row| place.of_row(row)),
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
                Place::Event { .. } => place.of_row(row),
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
    fn of_row<'a>(&self, row: &'a Row) -> Value<'a> {
        let Place::Event { alias, pick, index } = self else {
            return Value::Null;
        };
        let tuple = match pick {
            Pick::Last => row.last(*alias),
            Pick::Nth(nth) => row.nth(*alias, usize::from(*nth)),
        };
        tuple.map_or(Value::Null, |tuple| value_at(tuple, *index))
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

fn field_of<'a>(field: &SlotField, source: &Scope<'a>) -> Value<'a> {
    match field {
        SlotField::Payload(field) => source.field(*field),
        SlotField::Pseudo(pseudo) => source.pseudo(*pseudo),
    }
}
