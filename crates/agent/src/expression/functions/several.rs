//! Functions over several attributes or values at once: `anyAttribute` and its kin.
//!
//! The functions behind one are applied to each value; `join` and `count` make one value of them
//! again, and without these the answer is whether any or all came out true. `join` leaves out
//! values that are not there; nothing at all is not "all".

use super::is_true;
use crate::expression::{Frame, Value};
use crate::flowfile::OWN;
use crate::patterns::Pattern;

/// Where the values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::expression) struct Source {
    /// As flows write it.
    pub(in crate::expression) name: &'static str,
    /// What its arguments are.
    pub(in crate::expression) kind: Kind,
    /// Whether one true value is enough.
    pub(in crate::expression) is_any: bool,
}

/// What a source's arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::expression) enum Kind {
    /// Names of attributes.
    Names,
    /// Patterns of whole names.
    Patterns,
    /// A text and what separates its values.
    Delineated,
}

/// How several values become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::expression) enum End {
    /// Whether any is true.
    Any,
    /// Whether all are.
    All,
    /// All of them, with a text in between.
    Join,
    /// How many are neither missing nor false.
    Count,
}

/// The source of this name.
pub(in crate::expression) fn source(name: &str) -> Option<Source> {
    SOURCES.iter().copied().find(|source| source.name == name)
}

/// What `join` and `count` are, and how many arguments they take.
pub(in crate::expression) fn end(name: &str) -> Option<(End, usize)> {
    match name {
        "join" => Some((End::Join, 1)),
        "count" => Some((End::Count, 0)),
        _ => None,
    }
}

impl Source {
    /// Least and most arguments.
    pub(in crate::expression) fn arguments(self) -> (usize, usize) {
        match self.kind {
            Kind::Delineated => (2, 2),
            Kind::Names | Kind::Patterns => (1, super::ARGUMENTS_MAX),
        }
    }

    /// The values; patterns that are no literals are compiled now.
    pub(in crate::expression) fn values(
        self,
        arguments: Vec<Value>,
        compiled: &[Option<crate::patterns::Pattern>],
        frame: Frame<'_>,
    ) -> Result<Vec<Value>, String> {
        match self.kind {
            Kind::Names => Ok(arguments
                .into_iter()
                .map(|name| frame.scope.attribute(&name.into_text()))
                .collect()),
            Kind::Patterns => {
                let mut fresh = Vec::new();
                for (argument, compiled) in arguments.into_iter().zip(compiled) {
                    if compiled.is_none() {
                        fresh.push(Pattern::whole(&argument.into_text())?);
                    }
                }
                let all = || compiled.iter().flatten().chain(&fresh);
                let Some(attributes) = frame.scope.attributes else {
                    return Ok(Vec::new());
                };
                let mut values = Vec::new();
                let own = OWN.iter().copied();
                let own = own.filter(|name| attributes.get(name).is_none());
                for name in attributes.iter().map(|(name, _)| name).chain(own) {
                    for pattern in all() {
                        if pattern.is_match(name)? {
                            values.push(frame.scope.attribute(name));
                            break;
                        }
                    }
                }
                values.retain(|value| *value != Value::Null);
                Ok(values)
            }
            Kind::Delineated => {
                let mut arguments = arguments.into_iter();
                let text = arguments.next().unwrap_or(Value::Null);
                let delimiter = arguments.next().unwrap_or(Value::Null).into_text();
                if text == Value::Null {
                    return Ok(Vec::new());
                }
                let text = text.into_text();
                if delimiter.is_empty() {
                    return Ok(vec![Value::Text(text)]);
                }
                Ok(text
                    .split(delimiter.as_str())
                    .map(|value| Value::Text(value.to_owned()))
                    .collect())
            }
        }
    }
}

impl End {
    /// Makes one value; `delimiter` is what [`End::Join`] writes in between.
    pub(in crate::expression) fn of(
        self,
        values: Vec<Value>,
        delimiter: &str,
    ) -> Result<Value, String> {
        Ok(match self {
            End::Any => Value::Flag(values.iter().any(is_true)),
            End::All => Value::Flag(!values.is_empty() && values.iter().all(is_true)),
            End::Count => super::whole(
                values
                    .iter()
                    .filter(|value| !matches!(value, Value::Null | Value::Flag(false)))
                    .count(),
            ),
            End::Join => {
                let mut out = String::new();
                let present = values.into_iter().filter(|value| *value != Value::Null);
                for (index, value) in present.enumerate() {
                    if index > 0 {
                        out.push_str(delimiter);
                    }
                    out.push_str(&value.into_text());
                    super::bounded(out.len())?;
                }
                Value::Text(out)
            }
        })
    }
}

const SOURCES: &[Source] = &[
    of("anyAttribute", Kind::Names, true),
    of("allAttributes", Kind::Names, false),
    of("anyMatchingAttribute", Kind::Patterns, true),
    of("allMatchingAttributes", Kind::Patterns, false),
    of("anyDelineatedValue", Kind::Delineated, true),
    of("allDelineatedValues", Kind::Delineated, false),
];

const fn of(name: &'static str, kind: Kind, is_any: bool) -> Source {
    Source { name, kind, is_any }
}
