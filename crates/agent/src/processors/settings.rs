//! A processor's or service's properties as it sees them when it is made: checked, with defaults.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::{Expressions, PropertyKind};
use crate::definition::{ProcessorDefinition, ServiceDefinition};
use crate::expression::{Expression, Scope};
use crate::services::Services;
use crate::units;

/// The checked properties of one processor or controller service.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    kinds: &'static [PropertyKind],
    values: &'a [(String, String)],
    now: UnixMillis,
    services: Option<&'a Services>,
    processor: Option<&'a ProcessorDefinition>,
}

impl<'a> Settings<'a> {
    /// The settings of `definition`; properties that are evaluated once see `now`.
    pub fn new(now: UnixMillis, definition: &'a ProcessorDefinition) -> Self {
        Settings {
            kinds: definition.kind.properties,
            values: &definition.properties,
            now,
            services: None,
            processor: Some(definition),
        }
    }

    /// The settings of a controller service.
    pub fn of_service(now: UnixMillis, definition: &'a ServiceDefinition) -> Self {
        Settings {
            kinds: definition.kind.properties,
            values: &definition.properties,
            now,
            services: None,
            processor: None,
        }
    }

    /// The same, with the services that properties can name.
    pub fn with_services(self, services: &'a Services) -> Self {
        Settings {
            services: Some(services),
            ..self
        }
    }

    /// The service that a property names, if it names one; `T` is the type of the service's role.
    pub fn service<T: Any + Send + Sync>(&self, name: &str) -> Result<Option<Arc<T>>, String> {
        let Some(id) = self.text(name)? else {
            return Ok(None);
        };
        let found = self.services.and_then(|services| services.find(&id));
        let missing = || format!("{name}: there is no service '{id}' of the right kind");
        found.map(Some).ok_or_else(missing)
    }

    /// The value of a text property, if it has one that is not empty.
    pub fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let is_evaluated = self
            .kinds
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
        let text = self.needed(name)?;
        units::flag(&text).ok_or_else(|| format!("{name}: '{text}' is neither true nor false"))
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

    /// Bytes a second, if the property has a value.
    pub fn speed(&self, name: &str) -> Result<Option<u64>, String> {
        let text = self.text(name)?;
        let read = |text: String| {
            units::speed(&text).ok_or_else(|| format!("{name}: '{text}' is no speed"))
        };
        text.map(read).transpose()
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

    /// The same as they stand: patterns and paths, which are no expressions.
    pub fn dynamic_texts(&self) -> Vec<(String, String)> {
        let is_own = |name: &str| self.kinds.iter().any(|property| property.name == name);
        let further = self.values.iter().filter(|(name, _)| !is_own(name));
        further.cloned().collect()
    }

    /// The properties that the kind does not name, in the flow's order.
    pub fn dynamic(&self) -> Result<Vec<(String, Expression)>, String> {
        let is_own = |name: &str| self.kinds.iter().any(|property| property.name == name);
        let mut found = Vec::new();
        for (name, value) in self.values {
            if !is_own(name) {
                let expression =
                    Expression::parse(value).map_err(|error| format!("{name}: {error}"))?;
                found.push((name.clone(), expression));
            }
        }
        Ok(found)
    }

    /// The name of the processor's kind; a service has none here.
    pub(crate) fn processor_kind(&self) -> Option<&'static str> {
        self.processor.map(|processor| processor.kind.name)
    }

    /// The names of the processor's relationships, by their index; a service has none.
    pub fn relationships(&self) -> Vec<String> {
        self.processor
            .map(ProcessorDefinition::relationships)
            .unwrap_or_default()
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        let set = self.values.iter().find(|(known, _)| known == name);
        match set {
            Some((_, value)) => Some(value),
            None => self.kinds.iter().find(|p| p.name == name)?.default,
        }
    }
}
