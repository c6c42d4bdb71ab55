//! Texts: cutting, replacing, searching.

use super::{Function, Given, bounded, is_true, on, whole, with_pattern};
use crate::expression::Value;
use crate::limits::EXPRESSION_RESULT_BYTES_MAX;
use crate::patterns;

pub(super) const FUNCTIONS: &[Function] = &[
    on("toUpper", 0, 0, |given| text(given.text().to_uppercase())),
    on("toLower", 0, 0, |given| text(given.text().to_lowercase())),
    on("trim", 0, 0, |given| text(given.text().trim().to_owned())),
    on("toString", 0, 0, |given| text(given.text())),
    on("length", 0, 0, |given| {
        Ok(whole(given.text().chars().count()))
    }),
    on("append", 1, 1, |mut given| {
        let tail = given.argument(0);
        text(given.text() + &tail)
    }),
    on("prepend", 1, 1, |mut given| {
        text(given.argument(0) + &given.text())
    }),
    on("padLeft", 1, 2, |given| given.pad(true)),
    on("padRight", 1, 2, |given| given.pad(false)),
    on("repeat", 1, 1, |given| {
        let (subject, count) = (given.text(), given.index(0)?);
        bounded(subject.len().saturating_mul(count))?;
        text(subject.repeat(count))
    }),
    on("substring", 1, 2, |given| given.substring()),
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
    on("getDelimitedField", 1, 5, |given| given.delimited_field()),
    on("indexOf", 1, 1, |given| {
        given.index_of(|text, part| text.find(part))
    }),
    on("lastIndexOf", 1, 1, |given| {
        given.index_of(|text, part| text.rfind(part))
    }),
    on("replace", 2, 2, |mut given| {
        let (from, to) = (given.argument(0), given.argument(1));
        let subject = given.text();
        let added = subject.matches(&from).count().saturating_mul(to.len());
        bounded(subject.len().saturating_add(added))?;
        text(subject.replace(&from, &to))
    }),
    with_pattern("replaceAll", 2, |given| {
        given.replace("replaceAll", usize::MAX)
    }),
    with_pattern("replaceFirst", 2, |given| given.replace("replaceFirst", 1)),
    on("replaceNull", 1, 1, |mut given| {
        Ok(match given.subject {
            Value::Null => given.arguments.swap_remove(0),
            subject => subject,
        })
    }),
    on("replaceEmpty", 1, 1, |mut given| {
        Ok(if given.text().trim().is_empty() {
            given.arguments.swap_remove(0)
        } else {
            given.subject
        })
    }),
];

fn text(value: String) -> Result<Value, String> {
    Ok(Value::Text(value))
}

impl Given<'_> {
    fn replace(mut self, function: &str, count_max: usize) -> Result<Value, String> {
        let to = self.argument(1);
        let subject = self.text();
        let pattern = self.pattern(function)?;
        let bytes_max = EXPRESSION_RESULT_BYTES_MAX;
        patterns::replace(&subject, &pattern, &to, count_max, bytes_max)
            .and_then(|replaced| text(replaced.into_owned()))
    }

    fn substring(self) -> Result<Value, String> {
        let all: Vec<char> = self.text().chars().collect();
        let start = self.index(0)?;
        let end = if self.arguments.len() == 2 {
            self.index(1)?
        } else {
            all.len()
        };
        match all.get(start..end) {
            Some(range) => text(range.iter().collect()),
            None => Err(format!(
                "{start} to {end} is no part of {} characters",
                all.len()
            )),
        }
    }

    fn cut(
        mut self,
        split: for<'t> fn(&'t str, &str) -> Option<(&'t str, &'t str)>,
        keep: for<'t> fn(&'t str, &'t str) -> &'t str,
    ) -> Result<Value, String> {
        let mark = self.argument(0);
        let all = self.text();
        let kept = match split(&all, &mark) {
            Some((before, after)) => keep(before, after).to_owned(),
            // NiFi's guide: without the mark the whole text is the answer.
            None => all,
        };
        text(kept)
    }

    fn index_of(mut self, find: fn(&str, &str) -> Option<usize>) -> Result<Value, String> {
        let part = self.argument(0);
        let all = self.text();
        Ok(find(&all, &part).map_or(Value::Whole(-1), |at| whole(all[..at].chars().count())))
    }

    /// Pads to so many characters with `_`, or with the text that is given.
    fn pad(mut self, is_left: bool) -> Result<Value, String> {
        let len = self.index(0)?;
        let padding = self.optional(1).filter(|text| !text.is_empty());
        let padding = padding.unwrap_or_else(|| "_".to_owned());
        let subject = self.text();
        let missing = len.saturating_sub(subject.chars().count());
        bounded(missing.saturating_mul(4).saturating_add(subject.len()))?;
        let padding: String = padding.chars().cycle().take(missing).collect();
        text(if is_left {
            padding + &subject
        } else {
            subject + &padding
        })
    }

    fn delimited_field(mut self) -> Result<Value, String> {
        let index = self.index(0)?;
        let delimiter = self.character(1, ',')?;
        let quote = self.character(2, '"')?;
        let escape = self.character(3, '\\')?;
        let strips = self.arguments.get(4).is_some_and(is_true);
        let line = self.text();
        let (mut field, mut number) = (String::new(), 1);
        let (mut is_quoted, mut is_escaped) = (false, false);
        for c in line.chars() {
            let is_mark = !is_escaped && (c == quote || c == escape);
            if !is_escaped && !is_quoted && c == delimiter {
                if number == index {
                    break;
                }
                number += 1;
                field.clear();
                continue;
            }
            if !is_escaped && c == quote {
                is_quoted = !is_quoted;
            }
            is_escaped = !is_escaped && c == escape;
            if !(is_mark && strips) {
                field.push(c);
            }
        }
        if number == index && index > 0 {
            return text(field);
        }
        Err(format!("there is no field {index}, only {number}"))
    }

    fn character(&mut self, argument: usize, default: char) -> Result<char, String> {
        let Some(text) = self.optional(argument) else {
            return Ok(default);
        };
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(format!("'{text}' is not one character")),
        }
    }
}
