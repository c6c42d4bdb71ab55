//! NiFi's expression language: texts with `${…}` in them, over a FlowFile's attributes.
//!
//! A text is parsed once, when the flow is loaded; an unknown function, a wrong number of
//! arguments or a bad regular expression is refused then. `$$` stands for one dollar sign. A name
//! that is no attribute is looked for in the process' environment.
//!
//! As in MiNiFi C++ a date is a number: milliseconds since 1970. What is no number where one is
//! needed is an error, never zero; only comparisons answer false, as documented.
//!
//! Left out: the functions that [`functions::FUNCTIONS`] does not name.

mod functions;
mod parse;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use base::UnixMillis;

use crate::flowfile::{Attributes, FILENAME, FRAGMENT_OFFSET, FlowFile};
use crate::limits::{EXPRESSION_RESULT_BYTES_MAX, EXPRESSION_STRINGS_DEPTH_MAX};

pub use functions::{FUNCTIONS, Function};

/// A parsed text.
#[derive(Clone, Debug)]
pub struct Expression {
    parts: Vec<Part>,
    purity: Purity,
}

/// Whether equal attributes always give an equal result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purity {
    Never,
    /// If they name the content, not where it lies.
    Named,
    Always,
}

/// What an expression may look at.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The FlowFile's attributes; none where a property is evaluated once, at the start.
    pub attributes: Option<&'a Attributes>,
    /// The FlowFile itself, for what is not an attribute but can be named: `uuid`, `fileSize`.
    pub flow_file: Option<(&'a FlowFile, u64)>,
    /// The time now.
    pub now: UnixMillis,
}

/// A text that is no expression, or one that has no value; the flow's author's fault.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text does not parse.
    #[error("'{text}' is no expression at character {at}: {reason}")]
    Parse {
        /// The whole text.
        text: String,
        /// Character, counted from zero.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// A function has no value for what it was given.
    #[error("{function}: {reason}")]
    Value {
        /// The function.
        function: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The result is too long to be an attribute.
    #[error("an expression's result is longer than {EXPRESSION_RESULT_BYTES_MAX} bytes")]
    TooLong,
}

/// A value on its way through an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No such attribute.
    Null,
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number with a fraction.
    Fraction(f64),
    /// True or false.
    Flag(bool),
}

#[derive(Clone, Debug)]
enum Part {
    Text(Box<str>),
    Node(Node),
}

#[derive(Clone, Debug)]
enum Node {
    Literal(Value),
    /// A quoted text with expressions in it.
    Quoted(Vec<Part>),
    Chain(Box<Chain>),
}

/// A start and the functions applied to it, one after the other.
#[derive(Clone, Debug)]
struct Chain {
    start: Start,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
enum Start {
    Attribute(Box<str>),
    Call(Call),
    Several(Several),
}

#[derive(Clone, Debug)]
struct Call {
    function: &'static Function,
    arguments: Vec<Node>,
    pattern: Option<crate::patterns::Pattern>,
}

/// Several values, the functions applied to each, and how they become one.
#[derive(Clone, Debug)]
struct Several {
    source: functions::Source,
    arguments: Vec<Node>,
    /// The arguments that are patterns, where they are literals.
    patterns: Vec<Option<crate::patterns::Pattern>>,
    each: Vec<Call>,
    end: functions::End,
    delimiter: Option<Node>,
}

/// What an evaluation sees, and how deep it is in expressions that were made of texts.
#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    scope: Scope<'a>,
    depth: usize,
}

impl Expression {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let parts = parse::parse(text)?;
        let purity = least(parts.iter().map(Part::purity));
        Ok(Expression { parts, purity })
    }

    /// A text that is taken as it stands.
    pub fn literal(text: &str) -> Self {
        Expression {
            parts: vec![Part::Text(text.into())],
            purity: Purity::Always,
        }
    }

    /// The whole text, when it needs no evaluation.
    pub fn as_literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether all FlowFiles with these attributes give an equal result.
    pub fn is_pure(&self, attributes: &Attributes) -> bool {
        match self.purity {
            Purity::Never => false,
            Purity::Named => attributes.get(FILENAME).is_some() && !attributes.has_origin(),
            Purity::Always => true,
        }
    }

    /// Evaluates to a text; a missing attribute is the empty text.
    pub fn evaluate(&self, scope: Scope<'_>) -> Result<Cow<'_, str>, ExpressionError> {
        self.evaluate_in(Frame { scope, depth: 0 })
    }

    /// Evaluates to true or false: the text `true` in any case is true.
    pub fn evaluate_flag(&self, scope: Scope<'_>) -> Result<bool, ExpressionError> {
        Ok(self.evaluate(scope)?.eq_ignore_ascii_case("true"))
    }

    fn evaluate_in(&self, frame: Frame<'_>) -> Result<Cow<'_, str>, ExpressionError> {
        match self.as_literal() {
            Some(text) => Ok(Cow::Borrowed(text)),
            None => joined(&self.parts, frame).map(Cow::Owned),
        }
    }
}

fn joined(parts: &[Part], frame: Frame<'_>) -> Result<String, ExpressionError> {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Node(node) => node.evaluate(frame)?.write(&mut out),
        }
        if out.len() > EXPRESSION_RESULT_BYTES_MAX {
            return Err(ExpressionError::TooLong);
        }
    }
    Ok(out)
}

fn least(all: impl Iterator<Item = Purity>) -> Purity {
    all.min().unwrap_or(Purity::Always)
}

fn purity_of(attribute: &str) -> Purity {
    match attribute {
        FILENAME | FRAGMENT_OFFSET => Purity::Named,
        "uuid" | "fileSize" | "entryDate" | "lineageStartDate" => Purity::Never,
        _ => Purity::Always,
    }
}

fn evaluate_all(nodes: &[Node], frame: Frame<'_>) -> Result<Vec<Value>, ExpressionError> {
    nodes.iter().map(|node| node.evaluate(frame)).collect()
}

impl Part {
    fn purity(&self) -> Purity {
        match self {
            Part::Text(_) => Purity::Always,
            Part::Node(node) => node.purity(),
        }
    }
}

impl Node {
    fn evaluate(&self, frame: Frame<'_>) -> Result<Value, ExpressionError> {
        match self {
            Node::Literal(value) => Ok(value.clone()),
            Node::Quoted(parts) => joined(parts, frame).map(Value::Text),
            Node::Chain(chain) => {
                let mut value = match &chain.start {
                    Start::Attribute(name) => frame.scope.attribute(name),
                    Start::Call(call) => call.apply(Value::Null, frame)?,
                    Start::Several(several) => several.evaluate(frame)?,
                };
                for call in &chain.calls {
                    value = call.apply(value, frame)?;
                }
                Ok(value)
            }
        }
    }

    fn purity(&self) -> Purity {
        match self {
            Node::Literal(_) => Purity::Always,
            Node::Quoted(parts) => least(parts.iter().map(Part::purity)),
            Node::Chain(chain) => {
                let start = match &chain.start {
                    Start::Attribute(name) => purity_of(name),
                    Start::Call(call) => call.purity(),
                    Start::Several(several) => several.purity(),
                };
                start.min(least(chain.calls.iter().map(Call::purity)))
            }
        }
    }
}

impl Call {
    fn apply(&self, subject: Value, frame: Frame<'_>) -> Result<Value, ExpressionError> {
        let given = functions::Given {
            subject,
            arguments: evaluate_all(&self.arguments, frame)?,
            pattern: self.pattern.as_ref(),
            frame,
        };
        let function = self.function.name;
        let value = (self.function.run)(given)
            .map_err(|reason| ExpressionError::Value { function, reason })?;
        match &value {
            Value::Text(text) if text.len() > EXPRESSION_RESULT_BYTES_MAX => {
                Err(ExpressionError::TooLong)
            }
            _ => Ok(value),
        }
    }

    fn purity(&self) -> Purity {
        match self.function.pure {
            true => least(self.arguments.iter().map(Node::purity)),
            false => Purity::Never,
        }
    }
}

impl Several {
    fn evaluate(&self, frame: Frame<'_>) -> Result<Value, ExpressionError> {
        let function = self.source.name;
        let failed = |reason| ExpressionError::Value { function, reason };
        let arguments = evaluate_all(&self.arguments, frame)?;
        let mut values = self
            .source
            .values(arguments, &self.patterns, frame)
            .map_err(failed)?;
        for value in &mut values {
            for call in &self.each {
                *value = call.apply(std::mem::replace(value, Value::Null), frame)?;
            }
        }
        let delimiter = match &self.delimiter {
            Some(node) => node.evaluate(frame)?.into_text(),
            None => String::new(),
        };
        self.end.of(values, &delimiter).map_err(failed)
    }

    fn purity(&self) -> Purity {
        let argument = |node: &Node| match (self.source.kind, node) {
            // A name that is computed may turn out to be a field of the FlowFile's own.
            (functions::Kind::Names, Node::Literal(Value::Text(name))) => purity_of(name),
            (functions::Kind::Names, _) => Purity::Never,
            (functions::Kind::Patterns, node) => node.purity().min(Purity::Named),
            (functions::Kind::Delineated, node) => node.purity(),
        };
        let parts = self.each.iter().map(Call::purity);
        let parts = parts.chain(self.delimiter.as_ref().map(Node::purity));
        least(self.arguments.iter().map(argument).chain(parts))
    }
}

impl<'a> Frame<'a> {
    /// The same, one expression made of a text deeper.
    fn deeper(self) -> Result<Frame<'a>, String> {
        let depth = self.depth + 1;
        if depth > EXPRESSION_STRINGS_DEPTH_MAX {
            return Err("texts that are expressions are nested too deeply".to_owned());
        }
        Ok(Frame { depth, ..self })
    }
}

impl Scope<'_> {
    fn attribute(&self, name: &str) -> Value {
        if let Some(value) = self.attributes.and_then(|attributes| attributes.get(name)) {
            return Value::Text(value.to_owned());
        }
        if let Some((flow_file, namespace)) = self.flow_file {
            if let Some(value) = flow_file.own_attribute(name) {
                return Value::Text(value);
            }
            match name {
                "uuid" | FILENAME => {
                    let uuid = crate::flowfile::uuid(namespace, flow_file.id());
                    return Value::Text(uuid.to_string());
                }
                "fileSize" => {
                    return Value::Whole(i64::try_from(flow_file.size()).unwrap_or(i64::MAX));
                }
                "entryDate" | "lineageStartDate" => return Value::Whole(flow_file.entry().0),
                _ => {}
            }
        }
        match environment().get(name) {
            Some(value) => Value::Text(value.clone()),
            None => Value::Null,
        }
    }
}

/// The process' environment as it was when an expression first asked for it.
fn environment() -> &'static HashMap<String, String> {
    static VARIABLES: OnceLock<HashMap<String, String>> = OnceLock::new();
    VARIABLES.get_or_init(|| {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    })
}

impl Value {
    fn write(&self, out: &mut String) {
        use std::fmt::Write;
        let written = match self {
            Value::Null => Ok(()),
            Value::Text(text) => out.write_str(text),
            Value::Whole(number) => write!(out, "{number}"),
            Value::Fraction(number) => write!(out, "{number}"),
            Value::Flag(flag) => write!(out, "{flag}"),
        };
        written.expect("writing into a String cannot fail");
    }

    fn into_text(self) -> String {
        match self {
            Value::Text(text) => text,
            other => {
                let mut out = String::new();
                other.write(&mut out);
                out
            }
        }
    }
}

#[cfg(test)]
mod tests;
