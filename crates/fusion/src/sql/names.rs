//! What names in a statement stand for.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Span;

use super::{Checked, at};
use crate::expression::{Expression, Pseudo};
use crate::functions::user::Binder;
use crate::json::FieldPath;
use crate::limits::FIELDS_MAX;

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

    fn reserved(&self, name: &str, span: Span) -> Checked<Option<Expression>> {
        let pseudo = match name {
            "_topic" => Pseudo::Topic,
            "_timestamp" => Pseudo::Timestamp,
            "_key" => Pseudo::Key,
            "_partition" => Pseudo::Partition,
            "_offset" => Pseudo::Offset,
            "window_start" | "window_end" if !self.has_window => {
                let message = format!(
                    "{name} needs a window: write FROM TUMBLE(source, INTERVAL '10 seconds'), or \
                     payload.{name} for a field of that name"
                );
                return Err(at(span, message));
            }
            "window_start" => return Ok(Some(Expression::WindowStart)),
            "window_end" => return Ok(Some(Expression::WindowEnd)),
            _ if self.hidden.iter().any(|hidden| hidden == name) => {
                let message = format!(
                    "WHERE sees fields, not the column {name}: repeat its expression, or write \
                     payload.{name} for a field of that name"
                );
                return Err(at(span, message));
            }
            _ => return Ok(None),
        };
        Ok(Some(Expression::Pseudo(pseudo)))
    }
}
