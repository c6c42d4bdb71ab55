//! A bound on the work of validating.
//!
//! A few schemas that refer to each other twice can ask for more steps than there will ever be time
//! for. So every schema gets one more keyword that comes before its others and counts: when the count
//! is used up, it finds every value wrong, and the validation ends.

use std::cell::Cell;

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value};

use crate::limits::VALIDATION_STEPS_MAX;
use crate::schemas::format::Work;

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// The keyword's name; objects are walked in the order of names, and this is the first.
pub(super) const KEYWORD: &str = "\u{1}steps";

/// Gives each schema in a document the keyword.
pub(super) fn count_steps(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            for (name, value) in entries.iter_mut() {
                match name.as_str() {
                    "enum" | "const" | "default" | "examples" | "example" | "required"
                    | "dependentRequired" | "$vocabulary" => {}
                    "properties" | "patternProperties" | "definitions" | "$defs"
                    | "dependentSchemas" | "dependencies" => {
                        if let Value::Object(named) = value {
                            named.values_mut().for_each(count_steps);
                        }
                    }
                    _ => count_steps(value),
                }
            }
            entries.insert(KEYWORD.to_owned(), Value::Bool(true));
        }
        Value::Array(items) => items.iter_mut().for_each(count_steps),
        _ => {}
    }
}

/// Does the validating within the bound; none when it would take more.
pub(super) fn bounded<T>(work: &mut Work, validate: impl FnOnce() -> T) -> Option<T> {
    let steps = work.steps_of_value();
    STEPS_LEFT.set(steps);
    let result = validate();
    let left = STEPS_LEFT.get();
    // What is left of the request's is at least as much as of the value's.
    let _ = work.step(steps - left);
    if left == 0 && steps < VALIDATION_STEPS_MAX {
        work.spend();
    }
    (left > 0).then_some(result)
}

/// Makes the keyword's check.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the shape that the library asks for"
)]
pub(super) fn keyword<'a>(
    _parent: &'a Map<String, Value>,
    _value: &'a Value,
    _path: jsonschema::paths::Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Steps))
}

struct Steps;

impl Steps {
    fn take() -> bool {
        let left = STEPS_LEFT.get().saturating_sub(1);
        STEPS_LEFT.set(left);
        left > 0
    }
}

impl<'i> Keyword<'i> for Steps {
    fn validate(&self, _instance: &'i Value) -> Result<(), ValidationError<'i>> {
        match Steps::take() {
            true => Ok(()),
            false => Err(ValidationError::custom("too many steps")),
        }
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        Steps::take()
    }
}
