//! The functions, as data in one table.

use std::borrow::Cow;

use super::{Scope, Value};

/// A function of the expression language.
#[derive(Debug)]
pub struct Function {
    /// As flows write it.
    pub name: &'static str,
    /// Whether it stands after a colon.
    pub subject: Subject,
    /// Least and most arguments.
    pub arguments: (usize, usize),
    /// Whether equal input always gives equal output.
    pub pure: bool,
    /// Whether its first argument is a regular expression.
    pub has_pattern: bool,
    pub(super) run: fn(Given<'_>) -> Result<Value, String>,
}

/// Whether a function works on what stands before its colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// It does.
    Needed,
    /// It stands alone.
    None,
}

/// What a function is given.
pub(super) struct Given<'a> {
    pub(super) subject: Value,
    pub(super) arguments: Vec<Value>,
    pub(super) pattern: Option<&'a regex::Regex>,
    pub(super) scope: Scope<'a>,
}

/// Every function, in the order of NiFi's guide.
pub const FUNCTIONS: &[Function] = &[
    // Tests.
    on("isNull", 0, 0, |given| {
        Ok(Value::Flag(given.subject == Value::Null))
    }),
    on("notNull", 0, 0, |given| {
        Ok(Value::Flag(given.subject != Value::Null))
    }),
    on("isEmpty", 0, 0, |given| {
        Ok(Value::Flag(given.text().trim().is_empty()))
    }),
    on("equals", 1, 1, |mut given| {
        let other = given.argument(0);
        Ok(Value::Flag(
            given.subject != Value::Null && given.text() == other,
        ))
    }),
    on("equalsIgnoreCase", 1, 1, |mut given| {
        let other = given.argument(0).to_lowercase();
        Ok(Value::Flag(
            given.subject != Value::Null && given.text().to_lowercase() == other,
        ))
    }),
    on("gt", 1, 1, |given| given.compare(|order| order.is_gt())),
    on("ge", 1, 1, |given| given.compare(|order| order.is_ge())),
    on("lt", 1, 1, |given| given.compare(|order| order.is_lt())),
    on("le", 1, 1, |given| given.compare(|order| order.is_le())),
    on("in", 1, ARGUMENTS_MAX, |given| {
        let Given {
            subject, arguments, ..
        } = given;
        let text = subject.into_text();
        Ok(Value::Flag(
            arguments
                .into_iter()
                .any(|argument| argument.into_text() == text),
        ))
    }),
    on("and", 1, 1, |given| {
        Ok(Value::Flag(
            is_true(&given.subject) && is_true(&given.arguments[0]),
        ))
    }),
    on("or", 1, 1, |given| {
        Ok(Value::Flag(
            is_true(&given.subject) || is_true(&given.arguments[0]),
        ))
    }),
    on("not", 0, 0, |given| {
        Ok(Value::Flag(!is_true(&given.subject)))
    }),
    on("ifElse", 2, 2, |mut given| {
        let index = usize::from(!is_true(&given.subject));
        Ok(Value::Text(given.argument(index)))
    }),
    // Texts.
    on("toUpper", 0, 0, |given| {
        Ok(Value::Text(given.text().to_uppercase()))
    }),
    on("toLower", 0, 0, |given| {
        Ok(Value::Text(given.text().to_lowercase()))
    }),
    on("trim", 0, 0, |given| {
        Ok(Value::Text(given.text().trim().to_owned()))
    }),
    on("length", 0, 0, |given| {
        Ok(whole(given.text().chars().count()))
    }),
    on("append", 1, 1, |mut given| {
        let tail = given.argument(0);
        Ok(Value::Text(given.text() + &tail))
    }),
    on("prepend", 1, 1, |mut given| {
        Ok(Value::Text(given.argument(0) + &given.text()))
    }),
    on("substring", 1, 2, |given| {
        let text: Vec<char> = given.text().chars().collect();
        let start = given.index(0)?;
        let end = if given.arguments.len() == 2 {
            given.index(1)?
        } else {
            text.len()
        };
        match text.get(start..end.min(text.len())) {
            Some(range) => Ok(Value::Text(range.iter().collect())),
            None => Err(format!(
                "{start} to {end} is no part of {} characters",
                text.len()
            )),
        }
    }),
    on("substringBefore", 1, 1, |given| {
        given.cut(|text, mark| text.split_once(mark), |before, _| before)
    }),
    on("substringBeforeLast", 1, 1, |given| {
        given.cut(|text, mark| text.rsplit_once(mark), |before, _| before)
    }),
    on("substringAfter", 1, 1, |given| {
        given.cut(|text, mark| text.split_once(mark), |_, after| after)
    }),
    on("substringAfterLast", 1, 1, |given| {
        given.cut(|text, mark| text.rsplit_once(mark), |_, after| after)
    }),
    on("startsWith", 1, 1, |mut given| {
        let part = given.argument(0);
        Ok(Value::Flag(given.text().starts_with(&part)))
    }),
    on("endsWith", 1, 1, |mut given| {
        let part = given.argument(0);
        Ok(Value::Flag(given.text().ends_with(&part)))
    }),
    on("contains", 1, 1, |mut given| {
        let part = given.argument(0);
        Ok(Value::Flag(given.text().contains(&part)))
    }),
    on("indexOf", 1, 1, |mut given| {
        let part = given.argument(0);
        let text = given.text();
        Ok(text
            .find(&part)
            .map_or(Value::Whole(-1), |at| whole(text[..at].chars().count())))
    }),
    on("replace", 2, 2, |mut given| {
        let (from, to) = (given.argument(0), given.argument(1));
        Ok(Value::Text(given.text().replace(&from, &to)))
    }),
    with_pattern("replaceAll", 2, |mut given| {
        let to = given.argument(1);
        let text = given.text();
        let pattern = given.pattern("replaceAll")?;
        Ok(Value::Text(
            pattern.replace_all(&text, to.as_str()).into_owned(),
        ))
    }),
    with_pattern("replaceFirst", 2, |mut given| {
        let to = given.argument(1);
        let text = given.text();
        let pattern = given.pattern("replaceFirst")?;
        Ok(Value::Text(
            pattern.replace(&text, to.as_str()).into_owned(),
        ))
    }),
    with_pattern("matches", 1, |mut given| {
        let text = given.text();
        Ok(Value::Flag(given.pattern("matches")?.is_match(&text)))
    }),
    with_pattern("find", 1, |mut given| {
        let text = given.text();
        Ok(Value::Flag(given.pattern("find")?.is_match(&text)))
    }),
    on("replaceNull", 1, 1, |mut given| {
        let other = given.argument(0);
        Ok(if given.subject == Value::Null {
            Value::Text(other)
        } else {
            given.subject
        })
    }),
    on("replaceEmpty", 1, 1, |mut given| {
        let other = given.argument(0);
        Ok(if given.text().trim().is_empty() {
            Value::Text(other)
        } else {
            given.subject
        })
    }),
    // Numbers.
    on("plus", 1, 1, |given| {
        given.calculate(i64::checked_add, |a, b| a + b)
    }),
    on("minus", 1, 1, |given| {
        given.calculate(i64::checked_sub, |a, b| a - b)
    }),
    on("multiply", 1, 1, |given| {
        given.calculate(i64::checked_mul, |a, b| a * b)
    }),
    on("divide", 1, 1, |given| {
        given.calculate(i64::checked_div, |a, b| a / b)
    }),
    on("mod", 1, 1, |given| {
        given.calculate(i64::checked_rem, |a, b| a % b)
    }),
    // Without a subject.
    alone("now", 0, |given| Ok(Value::Whole(given.scope.now.0))),
    alone("hostname", 0, |_| Ok(Value::Text(crate::host::hostname()))),
    alone("UUID", 0, |_| {
        Ok(Value::Text(uuid::Uuid::new_v4().to_string()))
    }),
    Function {
        pure: true,
        ..alone("literal", 1, |mut given| Ok(Value::Text(given.argument(0))))
    },
];

/// Compiles the pattern of `function`; `matches` is about the whole text.
pub(super) fn pattern(function: &str, text: &str) -> Result<regex::Regex, String> {
    let whole;
    let text = if function == "matches" {
        whole = format!("^(?:{text})$");
        &whole
    } else {
        text
    };
    regex::RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| format!("no regular expression: {error}"))
}

impl Given<'_> {
    fn text(&self) -> String {
        self.subject.clone().into_text()
    }

    fn argument(&mut self, index: usize) -> String {
        std::mem::replace(&mut self.arguments[index], Value::Null).into_text()
    }

    /// The pattern: compiled at load where it is a literal, now where it is computed.
    fn pattern(&mut self, function: &str) -> Result<Cow<'_, regex::Regex>, String> {
        match self.pattern {
            Some(compiled) => Ok(Cow::Borrowed(compiled)),
            None => pattern(function, &self.argument(0)).map(Cow::Owned),
        }
    }

    fn index(&self, argument: usize) -> Result<usize, String> {
        match number(&self.arguments[argument])? {
            Number::Whole(value) => {
                usize::try_from(value).map_err(|_| format!("{value} is below zero"))
            }
            Number::Fraction(value) => Err(format!("{value} is no whole number")),
        }
    }

    fn compare(self, holds: fn(std::cmp::Ordering) -> bool) -> Result<Value, String> {
        let order = match (number(&self.subject)?, number(&self.arguments[0])?) {
            (Number::Whole(a), Number::Whole(b)) => a.cmp(&b),
            (a, b) => a.fraction().total_cmp(&b.fraction()),
        };
        Ok(Value::Flag(holds(order)))
    }

    fn calculate(
        self,
        whole: fn(i64, i64) -> Option<i64>,
        fraction: fn(f64, f64) -> f64,
    ) -> Result<Value, String> {
        match (number(&self.subject)?, number(&self.arguments[0])?) {
            (Number::Whole(a), Number::Whole(b)) => match whole(a, b) {
                Some(result) => Ok(Value::Whole(result)),
                None => Err(format!("{a} and {b} have no result in 64 bits")),
            },
            (a, b) => Ok(Value::Fraction(fraction(a.fraction(), b.fraction()))),
        }
    }

    fn cut(
        mut self,
        split: for<'t> fn(&'t str, &str) -> Option<(&'t str, &'t str)>,
        keep: for<'t> fn(&'t str, &'t str) -> &'t str,
    ) -> Result<Value, String> {
        let mark = self.argument(0);
        let text = self.text();
        let kept = match split(&text, &mark) {
            Some((before, after)) => keep(before, after).to_owned(),
            // NiFi's guide: without the mark the whole text is the answer.
            None => text,
        };
        Ok(Value::Text(kept))
    }
}

enum Number {
    Whole(i64),
    Fraction(f64),
}

impl Number {
    fn fraction(&self) -> f64 {
        match self {
            Number::Whole(value) => *value as f64,
            Number::Fraction(value) => *value,
        }
    }
}

fn number(value: &Value) -> Result<Number, String> {
    match value {
        Value::Whole(whole) => Ok(Number::Whole(*whole)),
        Value::Fraction(fraction) => Ok(Number::Fraction(*fraction)),
        Value::Null => Err("a missing attribute is no number".to_owned()),
        Value::Flag(flag) => Err(format!("'{flag}' is no number")),
        Value::Text(text) => {
            let trimmed = text.trim();
            if let Ok(whole) = trimmed.parse() {
                Ok(Number::Whole(whole))
            } else {
                trimmed
                    .parse()
                    .map(Number::Fraction)
                    .map_err(|_| format!("'{text}' is no number"))
            }
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Flag(flag) => *flag,
        Value::Text(text) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}

fn whole(count: usize) -> Value {
    Value::Whole(i64::try_from(count).unwrap_or(i64::MAX))
}

const fn on(
    name: &'static str,
    least: usize,
    most: usize,
    run: fn(Given<'_>) -> Result<Value, String>,
) -> Function {
    let arguments = (least, most);
    Function {
        name,
        subject: Subject::Needed,
        arguments,
        pure: true,
        has_pattern: false,
        run,
    }
}

const fn alone(
    name: &'static str,
    count: usize,
    run: fn(Given<'_>) -> Result<Value, String>,
) -> Function {
    let arguments = (count, count);
    Function {
        name,
        subject: Subject::None,
        arguments,
        pure: false,
        has_pattern: false,
        run,
    }
}

const fn with_pattern(
    name: &'static str,
    count: usize,
    run: fn(Given<'_>) -> Result<Value, String>,
) -> Function {
    Function {
        has_pattern: true,
        ..on(name, count, count, run)
    }
}

/// More arguments than anyone writes.
const ARGUMENTS_MAX: usize = 100;

/// Bytes of a compiled pattern: a few KiB are usual, hostile ones explode.
const PATTERN_BYTES_MAX: usize = 1 << 20;
