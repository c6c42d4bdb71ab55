//! Tests, comparisons and logic.

use std::cmp::Ordering;

use super::{ARGUMENTS_MAX, Function, Given, Number, is_true, number, on, with_pattern};
use crate::expression::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    on("isNull", 0, 0, |given| flag(given.subject == Value::Null)),
    on("notNull", 0, 0, |given| flag(given.subject != Value::Null)),
    on("isEmpty", 0, 0, |given| {
        flag(given.text().trim().is_empty())
    }),
    on("equals", 1, 1, |mut given| {
        let other = given.argument(0);
        flag(given.subject != Value::Null && given.text() == other)
    }),
    on("equalsIgnoreCase", 1, 1, |mut given| {
        let other = given.argument(0).to_lowercase();
        flag(given.subject != Value::Null && given.text().to_lowercase() == other)
    }),
    on("gt", 1, 1, |given| given.compare(Ordering::is_gt)),
    on("ge", 1, 1, |given| given.compare(Ordering::is_ge)),
    on("lt", 1, 1, |given| given.compare(Ordering::is_lt)),
    on("le", 1, 1, |given| given.compare(Ordering::is_le)),
    on("in", 1, ARGUMENTS_MAX, |given| {
        let Given {
            subject, arguments, ..
        } = given;
        let text = subject.into_text();
        flag(
            arguments
                .into_iter()
                .any(|argument| argument.into_text() == text),
        )
    }),
    on("and", 1, 1, |given| {
        flag(is_true(&given.subject) && is_true(&given.arguments[0]))
    }),
    on("or", 1, 1, |given| {
        flag(is_true(&given.subject) || is_true(&given.arguments[0]))
    }),
    on("not", 0, 0, |given| flag(!is_true(&given.subject))),
    on("ifElse", 2, 2, |mut given| {
        let index = usize::from(!is_true(&given.subject));
        Ok(Value::Text(given.argument(index)))
    }),
    on("startsWith", 1, 1, |mut given| {
        let part = given.argument(0);
        flag(given.text().starts_with(&part))
    }),
    on("endsWith", 1, 1, |mut given| {
        let part = given.argument(0);
        flag(given.text().ends_with(&part))
    }),
    on("contains", 1, 1, |mut given| {
        let part = given.argument(0);
        flag(given.text().contains(&part))
    }),
    with_pattern("matches", 1, |mut given| {
        let text = given.text();
        flag(given.subject != Value::Null && given.pattern("matches")?.is_match(&text)?)
    }),
    with_pattern("find", 1, |mut given| {
        let text = given.text();
        flag(given.subject != Value::Null && given.pattern("find")?.is_match(&text)?)
    }),
];

fn flag(value: bool) -> Result<Value, String> {
    Ok(Value::Flag(value))
}

impl Given<'_> {
    /// Compares numbers; what is none compares as false, as documented.
    fn compare(self, holds: fn(Ordering) -> bool) -> Result<Value, String> {
        let (Ok(subject), Ok(other)) = (number(&self.subject), number(&self.arguments[0])) else {
            return flag(false);
        };
        flag(holds(match (subject, other) {
            (Number::Whole(a), Number::Whole(b)) => a.cmp(&b),
            (a, b) => a.fraction().total_cmp(&b.fraction()),
        }))
    }
}
