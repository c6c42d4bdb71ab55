//! Expressions over one event: a small tree, evaluated without allocating unless a function builds
//! a text.

use std::borrow::Cow;
use std::cmp::Ordering;

use base::UnixMillis;
use bytes::Bytes;

use crate::functions::user::UserCall;
use crate::functions::{ARGUMENTS_MAX, ScalarFunction};
use crate::limits::REGEX_BYTES_MAX;
use crate::value::{OwnedValue, Value, parse_number};

/// One event as a source hands it over; everything borrows from the source's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The MQTT or Kafka topic it came on.
    pub topic: &'a str,
    /// The payload; none for a Kafka record without a value.
    pub payload: Option<&'a [u8]>,
    /// The Kafka record's key.
    pub key: Option<&'a Bytes>,
    /// The Kafka partition; zero for MQTT.
    pub partition: i32,
    /// The offset in that partition; none for MQTT.
    pub offset: Option<i64>,
    /// The record's timestamp, or the message's arrival.
    pub timestamp: UnixMillis,
}

/// A tree of operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A constant.
    Literal(OwnedValue),
    /// A payload field, by its place in the plan's list.
    Field(u16),
    /// What the source knows of the event.
    Pseudo(Pseudo),
    /// The start of the event's or group's window, milliseconds.
    WindowStart,
    /// Its end.
    WindowEnd,
    /// A key of the group, by place.
    GroupKey(u16),
    /// An aggregate of the group, by place.
    Aggregate(u16),
    /// `-x`.
    Negate(Box<Expression>),
    /// `not x`.
    Not(Box<Expression>),
    /// Arithmetic.
    Arithmetic(Arithmetic, Box<[Expression; 2]>),
    /// Comparison.
    Compare(Comparison, Box<[Expression; 2]>),
    /// All true; false beats null.
    And(Vec<Expression>),
    /// Any true; true beats null.
    Or(Vec<Expression>),
    /// `x is null`.
    IsNull(Box<Expression>),
    /// `x is true` or `x is false`.
    IsTruth(Box<Expression>, bool),
    /// `x in (a, b)`.
    In(Box<Expression>, Vec<Expression>),
    /// `x between a and b`.
    Between(Box<[Expression; 3]>),
    /// `x like 'a%'`.
    Like(Box<Expression>, LikePattern),
    /// `x regexp '[a-z]+'`: the whole text matches.
    Regexp(Box<Expression>, TextPattern),
    /// The first value that is not null.
    Coalesce(Vec<Expression>),
    /// Texts joined; null when one of them is.
    Concat(Vec<Expression>),
    /// The value of the first true condition.
    Case(Vec<(Expression, Expression)>, Option<Box<Expression>>),
    /// A value made another type's; null where that cannot be.
    Cast(Box<Expression>, CastTo),
    /// A scalar function of the table.
    Call(&'static ScalarFunction, Vec<Expression>),
    /// A function of a module of one's own.
    User(Box<UserCall>, Vec<Expression>),
}

/// What the source knows of an event, beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// `_topic`.
    Topic,
    /// `_timestamp`, milliseconds.
    Timestamp,
    /// `_key`, as text.
    Key,
    /// `_partition`.
    Partition,
    /// `_offset`.
    Offset,
}

impl Pseudo {
    /// The one that statements call `name`.
    pub fn named(name: &str) -> Option<Pseudo> {
        Some(match name {
            "_topic" => Pseudo::Topic,
            "_timestamp" => Pseudo::Timestamp,
            "_key" => Pseudo::Key,
            "_partition" => Pseudo::Partition,
            "_offset" => Pseudo::Offset,
            _ => return None,
        })
    }
}

/// The arithmetic operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`; null for a zero divisor.
    Divide,
    /// `/` by IEEE 754: a zero divisor gives an infinity.
    DivideIeee,
    /// `%`.
    Remainder,
    /// `&` of integers or truth values.
    BitAnd,
    /// `|` of integers or truth values.
    BitOr,
    /// `^` of integers or truth values.
    BitXor,
}

/// The comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`.
    Equal,
    /// `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
}

/// What a cast gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastTo {
    /// A 64-bit integer; decimals are cut off.
    Int,
    /// A double.
    Float,
    /// A text.
    Text,
    /// A truth value.
    Bool,
}

/// Everything an expression can name.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The scanned fields of the source.
    pub values: &'a [Value<'a>],
    /// Where in `values` each field of the plan stands.
    pub slots: &'a [usize],
    /// The event.
    pub event: Option<&'a Event<'a>>,
    /// Start and end of the window, milliseconds.
    pub window: Option<(i64, i64)>,
    /// The group's keys.
    pub group: &'a [Value<'a>],
    /// The group's aggregates.
    pub aggregates: &'a [Value<'a>],
}

impl Expression {
    /// The value in `scope`.
    pub fn evaluate<'a>(&'a self, scope: &Scope<'a>) -> Value<'a> {
        match self {
            Expression::Literal(value) => value.as_value(),
            Expression::Field(field) => scope.field(*field),
            Expression::Pseudo(pseudo) => scope.pseudo(*pseudo),
            Expression::WindowStart => scope
                .window
                .map_or(Value::Null, |(start, _)| Value::Int(start)),
            Expression::WindowEnd => scope.window.map_or(Value::Null, |(_, end)| Value::Int(end)),
            Expression::GroupKey(key) => item(scope.group, *key),
            Expression::Aggregate(aggregate) => item(scope.aggregates, *aggregate),
            Expression::Negate(inner) => inner.evaluate(scope).negate(),
            Expression::Arithmetic(operator, sides) => {
                operator.apply(&sides[0].evaluate(scope), &sides[1].evaluate(scope))
            }
            Expression::Coalesce(choices) => choices
                .iter()
                .map(|choice| choice.evaluate(scope))
                .find(|value| !value.is_null())
                .unwrap_or(Value::Null),
            Expression::Concat(parts) => concat(parts, scope),
            Expression::Case(branches, otherwise) => branches
                .iter()
                .find(|(condition, _)| condition.truth(scope) == Some(true))
                .map(|(_, result)| result)
                .or(otherwise.as_deref())
                .map_or(Value::Null, |result| result.evaluate(scope)),
            Expression::Cast(inner, to) => to.apply(inner.evaluate(scope)),
            Expression::Call(function, arguments) => call(function, arguments, scope),
            Expression::User(call, arguments) => {
                call.run(arguments.iter().map(|argument| argument.evaluate(scope)))
            }
            _ => self.truth(scope).map_or(Value::Null, Value::Bool),
        }
    }

    /// The truth in `scope`, by three-valued logic; unknown for what is no truth value.
    pub fn truth(&self, scope: &Scope<'_>) -> Option<bool> {
        match self {
            Expression::Not(inner) => inner.truth(scope).map(|truth| !truth),
            Expression::Compare(operator, sides) => sides[0]
                .evaluate(scope)
                .compare(&sides[1].evaluate(scope))
                .map(|ordering| operator.holds(ordering)),
            Expression::And(parts) => first_of(parts, scope, false),
            Expression::Or(parts) => first_of(parts, scope, true),
            Expression::IsNull(inner) => Some(inner.evaluate(scope).is_null()),
            Expression::IsTruth(inner, expected) => Some(inner.truth(scope) == Some(*expected)),
            Expression::In(inner, choices) => is_in(&inner.evaluate(scope), choices, scope),
            Expression::Between(parts) => {
                let value = parts[0].evaluate(scope);
                let low = value
                    .compare(&parts[1].evaluate(scope))
                    .map(Ordering::is_ge);
                let high = value
                    .compare(&parts[2].evaluate(scope))
                    .map(Ordering::is_le);
                match (low, high) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }
            }
            Expression::Like(inner, pattern) => match inner.evaluate(scope) {
                Value::Text(text) => Some(pattern.matches(&text)),
                _ => None,
            },
            Expression::Regexp(inner, pattern) => match inner.evaluate(scope) {
                Value::Text(text) => Some(pattern.matches(&text)),
                _ => None,
            },
            _ => self.evaluate(scope).truth(),
        }
    }
}

impl Expression {
    /// Calls `visit` with each expression directly below.
    pub fn for_each_child(&mut self, visit: &mut dyn FnMut(&mut Expression)) {
        match self {
            Expression::Literal(_)
            | Expression::Field(_)
            | Expression::Pseudo(_)
            | Expression::WindowStart
            | Expression::WindowEnd
            | Expression::GroupKey(_)
            | Expression::Aggregate(_) => {}
            Expression::Negate(inner)
            | Expression::Not(inner)
            | Expression::IsNull(inner)
            | Expression::IsTruth(inner, _)
            | Expression::Like(inner, _)
            | Expression::Regexp(inner, _)
            | Expression::Cast(inner, _) => visit(inner),
            Expression::Arithmetic(_, sides) | Expression::Compare(_, sides) => {
                sides.iter_mut().for_each(visit);
            }
            Expression::Between(parts) => parts.iter_mut().for_each(visit),
            Expression::And(parts)
            | Expression::Or(parts)
            | Expression::Coalesce(parts)
            | Expression::Concat(parts)
            | Expression::Call(_, parts)
            | Expression::User(_, parts) => parts.iter_mut().for_each(visit),
            Expression::In(inner, choices) => {
                visit(inner);
                choices.iter_mut().for_each(visit);
            }
            Expression::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    visit(condition);
                    visit(result);
                }
                if let Some(otherwise) = otherwise {
                    visit(otherwise);
                }
            }
        }
    }
}

impl<'a> Scope<'a> {
    /// The scope of constants.
    pub fn empty() -> Self {
        Scope {
            values: &[],
            slots: &[],
            event: None,
            window: None,
            group: &[],
            aggregates: &[],
        }
    }

    /// The scope of an event.
    pub fn of_event(values: &'a [Value<'a>], slots: &'a [usize], event: &'a Event<'a>) -> Self {
        Scope {
            values,
            slots,
            event: Some(event),
            window: None,
            group: &[],
            aggregates: &[],
        }
    }

    /// A field of the plan.
    pub fn field(&self, field: u16) -> Value<'a> {
        let slot = self.slots.get(usize::from(field));
        slot.and_then(|slot| self.values.get(*slot))
            .map_or(Value::Null, |value| value.reborrow())
    }

    /// What the source knows of the event.
    pub fn pseudo(&self, pseudo: Pseudo) -> Value<'a> {
        let Some(event) = self.event else {
            return Value::Null;
        };
        match pseudo {
            Pseudo::Topic => Value::text(event.topic),
            Pseudo::Timestamp => Value::Int(event.timestamp.0),
            Pseudo::Key => event
                .key
                .map_or(Value::Null, |key| Value::Text(String::from_utf8_lossy(key))),
            Pseudo::Partition if event.offset.is_none() => Value::Null,
            Pseudo::Partition => Value::Int(i64::from(event.partition)),
            Pseudo::Offset => event.offset.map_or(Value::Null, Value::Int),
        }
    }
}

impl Arithmetic {
    fn apply(self, a: &Value<'_>, b: &Value<'_>) -> Value<'static> {
        match self {
            Arithmetic::Add => a.add(b),
            Arithmetic::Subtract => a.subtract(b),
            Arithmetic::Multiply => a.multiply(b),
            Arithmetic::Divide => a.divide(b),
            Arithmetic::DivideIeee => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => Value::Float(a / b),
                _ => Value::Null,
            },
            Arithmetic::BitAnd => bits(a, b, |a, b| a & b),
            Arithmetic::BitOr => bits(a, b, |a, b| a | b),
            Arithmetic::BitXor => bits(a, b, |a, b| a ^ b),
            Arithmetic::Remainder => a.remainder(b),
        }
    }
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

impl CastTo {
    fn apply(self, value: Value<'_>) -> Value<'_> {
        match (self, value) {
            (CastTo::Int, value @ Value::Int(_))
            | (CastTo::Float, value @ Value::Float(_))
            | (CastTo::Text, value @ Value::Text(_))
            | (CastTo::Bool, value @ Value::Bool(_)) => value,
            (CastTo::Int, Value::Float(number)) => float_to_int(number),
            (CastTo::Int, Value::Bool(truth)) => Value::Int(i64::from(truth)),
            (CastTo::Int, Value::Text(text)) => match number_of_text(&text) {
                Value::Float(number) => float_to_int(number),
                number => number,
            },
            (CastTo::Float, Value::Int(number)) => Value::Float(number as f64),
            (CastTo::Float, Value::Text(text)) => number_of_text(&text)
                .as_f64()
                .map_or(Value::Null, Value::float),
            (CastTo::Text, value) => match value.to_text() {
                Some(text) => Value::Text(Cow::Owned(text.into_owned())),
                None => Value::Null,
            },
            (CastTo::Bool, Value::Text(text)) => match text.trim() {
                word if word.eq_ignore_ascii_case("true") => Value::Bool(true),
                word if word.eq_ignore_ascii_case("false") => Value::Bool(false),
                _ => Value::Null,
            },
            (CastTo::Bool, Value::Int(number)) => Value::Bool(number != 0),
            _ => Value::Null,
        }
    }
}

/// A compiled LIKE pattern: `%` is any text, `_` any one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikePattern {
    tokens: Vec<LikeToken>,
    ignore_case: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LikeToken {
    Any,
    One,
    Char(char),
}

impl LikePattern {
    /// Compiles `pattern`; what follows `escape` stands for itself.
    pub fn new(pattern: &str, escape: Option<char>, ignore_case: bool) -> Self {
        let mut tokens = Vec::new();
        let mut chars = pattern.chars();
        while let Some(char) = chars.next() {
            tokens.push(match char {
                _ if Some(char) == escape => LikeToken::Char(chars.next().unwrap_or(char)),
                '%' => LikeToken::Any,
                '_' => LikeToken::One,
                _ => LikeToken::Char(char),
            });
        }
        LikePattern {
            tokens,
            ignore_case,
        }
    }

    /// True when the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        // Greedy with one point to return to: the last `%`. Linear in practice, never exponential.
        let mut rest = text;
        let mut token = 0;
        let mut retry: Option<(usize, &str)> = None;
        loop {
            match (self.tokens.get(token), rest.chars().next()) {
                (Some(LikeToken::Any), _) => {
                    token += 1;
                    retry = Some((token, rest));
                    continue;
                }
                (Some(LikeToken::One), Some(char)) => {
                    token += 1;
                    rest = &rest[char.len_utf8()..];
                    continue;
                }
                (Some(LikeToken::Char(wanted)), Some(char)) if self.same(*wanted, char) => {
                    token += 1;
                    rest = &rest[char.len_utf8()..];
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((at, from)) = retry else {
                return false;
            };
            let Some(skipped) = from.chars().next() else {
                return false;
            };
            rest = &from[skipped.len_utf8()..];
            token = at;
            retry = Some((at, rest));
        }
    }

    fn same(&self, a: char, b: char) -> bool {
        a == b || (self.ignore_case && a.to_lowercase().eq(b.to_lowercase()))
    }
}

/// Bits of integers; of truth values, as bits of one digit.
fn bits(a: &Value<'_>, b: &Value<'_>, of: fn(i64, i64) -> i64) -> Value<'static> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(of(*a, *b)),
        (Value::Bool(a), Value::Bool(b)) => Value::Bool(of(i64::from(*a), i64::from(*b)) != 0),
        _ => Value::Null,
    }
}

/// A compiled regular expression that a whole text has to match.
#[derive(Clone, Debug)]
pub struct TextPattern {
    text: String,
    regex: regex::Regex,
}

impl TextPattern {
    /// Compiles `text`. A dot is any character but one that ends a line.
    ///
    /// # Errors
    /// It is no regular expression, or too large; the text says why.
    pub fn new(text: &str) -> Result<Self, String> {
        regex::RegexBuilder::new(&format!("^(?:{text})$"))
            .crlf(true)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map(|regex| TextPattern {
                text: text.to_owned(),
                regex,
            })
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
                error => {
                    let text = error.to_string();
                    text.rsplit("error: ").next().unwrap_or_default().to_owned()
                }
            })
    }

    /// True when the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

fn item<'a>(values: &'a [Value<'a>], index: u16) -> Value<'a> {
    values
        .get(usize::from(index))
        .map_or(Value::Null, |value| value.reborrow())
}

/// `decisive` when a part is, unknown when a part is unknown, else the opposite.
fn first_of(parts: &[Expression], scope: &Scope<'_>, decisive: bool) -> Option<bool> {
    let mut unknown = false;
    for part in parts {
        match part.truth(scope) {
            Some(truth) if truth == decisive => return Some(decisive),
            Some(_) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(!decisive) }
}

fn is_in(value: &Value<'_>, choices: &[Expression], scope: &Scope<'_>) -> Option<bool> {
    if value.is_null() {
        return None;
    }
    let mut unknown = false;
    for choice in choices {
        let choice = choice.evaluate(scope);
        unknown |= choice.is_null();
        if value.compare(&choice) == Some(Ordering::Equal) {
            return Some(true);
        }
    }
    if unknown { None } else { Some(false) }
}

fn concat<'a>(parts: &'a [Expression], scope: &Scope<'a>) -> Value<'a> {
    let mut joined = String::new();
    for part in parts {
        match part.evaluate(scope).to_text() {
            Some(text) => joined.push_str(&text),
            None => return Value::Null,
        }
    }
    Value::Text(Cow::Owned(joined))
}

fn call<'a>(
    function: &'static ScalarFunction,
    arguments: &'a [Expression],
    scope: &Scope<'a>,
) -> Value<'a> {
    let mut values = [const { Value::Null }; ARGUMENTS_MAX];
    for (value, argument) in values.iter_mut().zip(arguments) {
        *value = argument.evaluate(scope);
    }
    let count = arguments.len().min(ARGUMENTS_MAX);
    (function.run)(&mut values[..count])
}

fn float_to_int(number: f64) -> Value<'static> {
    let whole = number.trunc();
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&whole) {
        Value::Int(whole as i64)
    } else {
        Value::Null
    }
}

/// A number written as JSON or SQL writes it; words such as `inf` are no numbers.
fn number_of_text(text: &str) -> Value<'static> {
    let text = text.trim();
    if text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
    {
        parse_number(text)
    } else {
        Value::Null
    }
}
