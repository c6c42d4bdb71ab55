//! What names in a statement stand for.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Span;

use super::{Checked, at};
use crate::error::TextError;
use crate::expression::{Arithmetic, Expression, Pseudo};
use crate::functions::user::Binder;
use crate::json::FieldPath;
use crate::limits::FIELDS_MAX;
use crate::plan::{Pick, Slot, SlotField};
use crate::value::OwnedValue;

/// The payload fields that a statement reads, and what else names can mean.
pub struct Names {
    fields: Vec<FieldPath>,
    alias: Option<String>,
    /// Whether `window_start` and `window_end` mean anything.
    pub has_window: bool,
    /// Names of columns that are not visible here, where a reader would expect them to be.
    pub hidden: Vec<String>,
    /// The functions of one's own that can be called.
    pub binder: Binder,
    /// In a join, whose names are whose.
    pub joined: Option<Joined>,
}

/// The two sides of a join.
pub struct Joined {
    /// What FROM calls them.
    pub aliases: [String; 2],
    /// The length of the windows that both are in, ms.
    pub window_ms: Option<i64>,
    /// What the join's expressions read.
    pub slots: Vec<Slot>,
    /// The sides that were named since it was last cleared.
    pub named: [bool; 2],
    /// Whether an event's time was named since then.
    pub names_time: bool,
}

impl Names {
    /// No fields yet; `alias` is what FROM calls the source, and `binder` has the functions of
    /// one's own.
    pub fn new(alias: Option<String>, binder: Binder) -> Self {
        Names {
            fields: Vec::new(),
            alias,
            has_window: false,
            hidden: Vec::new(),
            binder,
            joined: None,
        }
    }

    /// No fields yet, of two sides.
    pub fn of_join(aliases: [String; 2], window_ms: Option<i64>, binder: Binder) -> Self {
        Names {
            has_window: window_ms.is_some(),
            joined: Some(Joined {
                aliases,
                window_ms,
                slots: Vec::new(),
                named: [false; 2],
                names_time: false,
            }),
            ..Names::new(None, binder)
        }
    }

    /// The fields in order.
    pub fn into_fields(self) -> Vec<FieldPath> {
        self.fields
    }

    /// How many fields there are, to go back to with [`Names::forget_after`].
    pub fn mark(&self) -> usize {
        self.fields.len()
    }

    /// Forgets the fields that were named since `mark`.
    pub fn forget_after(&mut self, mark: usize) {
        self.fields.truncate(mark);
    }

    /// The place of a field, which is added when it is new.
    pub fn field(&mut self, path: Vec<String>, span: Span) -> Checked<u16> {
        let path = FieldPath(path);
        if let Some(place) = self.fields.iter().position(|field| *field == path) {
            return Ok(place as u16);
        }
        if self.fields.len() >= FIELDS_MAX {
            let message = format!("more than {FIELDS_MAX} fields in one statement: use fewer");
            return Err(at(span, message));
        }
        self.fields.push(path);
        Ok((self.fields.len() - 1) as u16)
    }

    /// What `a.b.c` stands for.
    pub fn resolve(&mut self, idents: &[Ident]) -> Checked<Expression> {
        let span = idents.first().map_or(Span::empty(), |ident| ident.span);
        if self.joined.is_some() {
            return self.resolve_joined(idents, span);
        }
        let idents = match (&self.alias, idents) {
            (Some(alias), [first, rest @ ..]) if !rest.is_empty() && first.value == *alias => rest,
            _ => idents,
        };
        if let [ident] = idents
            && ident.quote_style.is_none()
            && let Some(known) = self.reserved(&ident.value, span)?
        {
            return Ok(known);
        }
        let path = match idents {
            [first, rest @ ..] if first.quote_style.is_none() && first.value == "payload" => rest,
            _ => idents,
        };
        let path = path.iter().map(|ident| ident.value.clone()).collect();
        self.field(path, span).map(Expression::Field)
    }

    /// What a name of one side stands for, as a field of its events.
    pub fn side_field(&mut self, idents: &[Ident], span: Span) -> Checked<SlotField> {
        if let [ident] = idents
            && ident.quote_style.is_none()
            && let Some(pseudo) = Pseudo::named(&ident.value)
        {
            return Ok(SlotField::Pseudo(pseudo));
        }
        let path = match idents {
            [first, rest @ ..] if first.quote_style.is_none() && first.value == "payload" => rest,
            _ => idents,
        };
        let path = path.iter().map(|ident| ident.value.clone()).collect();
        self.field(path, span).map(SlotField::Payload)
    }

    fn resolve_joined(&mut self, idents: &[Ident], span: Span) -> Checked<Expression> {
        let Some(joined) = &self.joined else {
            return Err(at(span, "there is no join"));
        };
        let side = match idents {
            [first, _, ..] => joined.aliases.iter().position(|name| *name == first.value),
            _ => None,
        };
        let bound = |ident: &Ident| match ident.value.as_str() {
            _ if ident.quote_style.is_some() => None,
            "window_start" => Some(false),
            "window_end" => Some(true),
            _ => None,
        };
        let (window_ms, aliases) = (joined.window_ms, joined.aliases.clone());
        match (side, idents) {
            (Some(side), [_, ident]) if bound(ident).is_some() => {
                let is_end = bound(ident) == Some(true);
                let length = window_ms.ok_or_else(|| no_window(&ident.value, ident.span))?;
                let time = self.slot(side, SlotField::Time);
                Ok(window_bound(time, length, is_end))
            }
            (None, [ident]) if bound(ident).is_some() => {
                let is_end = bound(ident) == Some(true);
                let length = window_ms.ok_or_else(|| no_window(&ident.value, ident.span))?;
                // Of an outer join one of the sides may be missing.
                let times = [0, 1].map(|side| self.slot(side, SlotField::Time));
                let time = Expression::Coalesce(times.into());
                Ok(window_bound(time, length, is_end))
            }
            (Some(side), [_, path @ ..]) => {
                let field = self.side_field(path, span)?;
                Ok(self.slot(side, field))
            }
            _ => {
                let name: Vec<&str> = idents.iter().map(|ident| ident.value.as_str()).collect();
                let (name, [a, b]) = (name.join("."), aliases);
                let message =
                    format!("in a join each name says whose it is: write {a}.{name} or {b}.{name}");
                Err(at(span, message))
            }
        }
    }

    /// The slot of a side's field, which is added when it is new.
    fn slot(&mut self, side: usize, field: SlotField) -> Expression {
        let Some(joined) = &mut self.joined else {
            return Expression::Field(0);
        };
        joined.named[side] = true;
        joined.names_time |= field == SlotField::Time;
        let slot = Slot::Event {
            alias: side as u16,
            pick: Pick::Last,
            field,
        };
        let known = joined.slots.iter().position(|known| *known == slot);
        let place = known.unwrap_or(joined.slots.len());
        if known.is_none() {
            joined.slots.push(slot);
        }
        Expression::Field(place as u16)
    }

    fn reserved(&self, name: &str, span: Span) -> Checked<Option<Expression>> {
        if let Some(pseudo) = Pseudo::named(name) {
            return Ok(Some(Expression::Pseudo(pseudo)));
        }
        match name {
            "window_start" | "window_end" if !self.has_window => Err(no_window(name, span)),
            "window_start" => Ok(Some(Expression::WindowStart)),
            "window_end" => Ok(Some(Expression::WindowEnd)),
            _ if self.hidden.iter().any(|hidden| hidden == name) => {
                let message = format!(
                    "WHERE sees fields, not the column {name}: repeat its expression, or write \
                     payload.{name} for a field of that name"
                );
                Err(at(span, message))
            }
            _ => Ok(None),
        }
    }
}

fn no_window(name: &str, span: Span) -> TextError {
    let message = format!(
        "{name} needs a window: write FROM TUMBLE(source, INTERVAL '10 seconds'), or payload.{name} \
         for a field of that name"
    );
    at(span, message)
}

/// Start or end of the window of that length that a time lies in, also before 1970.
fn window_bound(time: Expression, length_ms: i64, is_end: bool) -> Expression {
    let length = || Expression::Literal(OwnedValue::Int(length_ms));
    let of = |kind, a, b| Expression::Arithmetic(kind, Box::new([a, b]));
    let past = of(Arithmetic::Remainder, time.clone(), length());
    let past = of(Arithmetic::Add, past, length());
    let past = of(Arithmetic::Remainder, past, length());
    let start = of(Arithmetic::Subtract, time, past);
    match is_end {
        true => of(Arithmetic::Add, start, length()),
        false => start,
    }
}
