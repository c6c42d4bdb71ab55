//! A processor's properties as it sees them when it is made: checked, with defaults.

use std::time::Duration;

use base::UnixMillis;

use super::{Expressions, ProcessorKind};
use crate::definition::ProcessorDefinition;
use crate::expression::{Expression, Scope};
use crate::units;

/// The checked properties of one processor.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    definition: &'a ProcessorDefinition,
    now: UnixMillis,
}

impl<'a> Settings<'a> {
    /// The settings of `definition`; properties that are evaluated once see `now`.
    pub fn new(now: UnixMillis, definition: &'a ProcessorDefinition) -> Self {
        Settings { definition, now }
    }

    /// The value of a text property, if it has one that is not empty.
    pub fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let is_evaluated = self
            .kind()
            .properties
            .iter()
            .any(|property| property.name == name && property.expressions == Expressions::Once);
        let text = if is_evaluated {
            let scope = Scope {
                attributes: None,
                flow_file: None,
                now: self.now,
            };
            Expression::parse(value)
                .and_then(|expression| expression.evaluate(scope).map(|text| text.into_owned()))
                .map_err(|error| format!("{name}: {error}"))?
        } else {
            value.to_owned()
        };
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// The value of a property that must have one.
    pub fn needed(&self, name: &str) -> Result<String, String> {
        self.text(name)?
            .ok_or_else(|| format!("{name} is required and empty"))
    }

    /// A whole number.
    pub fn integer<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.needed(name)?;
        text.trim()
            .parse()
            .map_err(|_| format!("{name}: '{text}' is out of range"))
    }

    /// True or false.
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        self.integer(name)
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Result<Duration, String> {
        let text = self.needed(name)?;
        units::duration(&text).ok_or_else(|| format!("{name}: '{text}' is no duration"))
    }

    /// A size in bytes.
    pub fn size(&self, name: &str) -> Result<u64, String> {
        let text = self.needed(name)?;
        units::size(&text).ok_or_else(|| format!("{name}: '{text}' is no size"))
    }

    /// An expression to evaluate for each FlowFile.
    pub fn expression(&self, name: &str) -> Result<Option<Expression>, String> {
        let Some(value) = self.value(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        Expression::parse(value)
            .map(Some)
            .map_err(|error| format!("{name}: {error}"))
    }

    /// The properties that the kind does not name, in the flow's order.
    pub fn dynamic(&self) -> Result<Vec<(String, Expression)>, String> {
        let kind = self.kind();
        let is_own = |name: &str| kind.properties.iter().any(|property| property.name == name);
        let mut found = Vec::new();
        for (name, value) in &self.definition.properties {
            if !is_own(name) {
                let expression =
                    Expression::parse(value).map_err(|error| format!("{name}: {error}"))?;
                found.push((name.clone(), expression));
            }
        }
        Ok(found)
    }

    /// The names of the processor's relationships, by their index.
    pub fn relationships(&self) -> Vec<String> {
        self.definition.relationships()
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        let set = self
            .definition
            .properties
            .iter()
            .find(|(known, _)| known == name);
        match set {
            Some((_, value)) => Some(value),
            None => {
                self.kind()
                    .properties
                    .iter()
                    .find(|p| p.name == name)?
                    .default
            }
        }
    }

    fn kind(&self) -> &'static ProcessorKind {
        self.definition.kind
    }
}
