//! NiFi's expression language: texts with `${…}` in them, over a FlowFile's attributes.
//!
//! A text is parsed once, when the flow is loaded; an unknown function, a wrong number of
//! arguments or a bad regular expression is refused then. `$$` stands for one dollar sign.
//!
//! Left out: the functions that [`functions::FUNCTIONS`] does not name, and NiFi's escapes in
//! string literals beyond `\\`, `\'`, `\"`, `\n`, `\r` and `\t`.

mod functions;
mod parse;

use std::borrow::Cow;

use base::UnixMillis;

use crate::flowfile::{Attributes, FlowFile};
use crate::limits::EXPRESSION_RESULT_BYTES_MAX;

pub use functions::{FUNCTIONS, Function};

/// A parsed text.
#[derive(Clone, Debug)]
pub struct Expression {
    parts: Vec<Part>,
    pure: bool,
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

#[derive(Clone, Debug)]
enum Part {
    Text(Box<str>),
    Node(Node),
}

#[derive(Clone, Debug)]
enum Node {
    Literal(Value),
    Attribute(Box<str>),
    Call(Box<Call>),
}

#[derive(Clone, Debug)]
struct Call {
    function: &'static Function,
    subject: Option<Node>,
    arguments: Vec<Node>,
    pattern: Option<regex::Regex>,
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

impl Expression {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        parse::parse(text)
    }

    /// A text that is taken as it stands.
    pub fn literal(text: &str) -> Self {
        Expression {
            parts: vec![Part::Text(text.into())],
            pure: true,
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

    /// Whether equal attributes always give an equal result.
    pub fn is_pure(&self) -> bool {
        self.pure
    }

    /// Evaluates to a text; a missing attribute is the empty text.
    pub fn evaluate(&self, scope: Scope<'_>) -> Result<Cow<'_, str>, ExpressionError> {
        if let Some(text) = self.as_literal() {
            return Ok(Cow::Borrowed(text));
        }
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Node(node) => node.evaluate(scope)?.write(&mut out),
            }
            if out.len() > EXPRESSION_RESULT_BYTES_MAX {
                return Err(ExpressionError::TooLong);
            }
        }
        Ok(Cow::Owned(out))
    }

    /// Evaluates to true or false: the text `true` in any case is true.
    pub fn evaluate_flag(&self, scope: Scope<'_>) -> Result<bool, ExpressionError> {
        Ok(self.evaluate(scope)?.eq_ignore_ascii_case("true"))
    }
}

impl Node {
    fn evaluate(&self, scope: Scope<'_>) -> Result<Value, ExpressionError> {
        match self {
            Node::Literal(value) => Ok(value.clone()),
            Node::Attribute(name) => Ok(scope.attribute(name)),
            Node::Call(call) => {
                let subject = match &call.subject {
                    Some(node) => node.evaluate(scope)?,
                    None => Value::Null,
                };
                let mut arguments = Vec::with_capacity(call.arguments.len());
                for argument in &call.arguments {
                    arguments.push(argument.evaluate(scope)?);
                }
                let value = (call.function.run)(functions::Given {
                    subject,
                    arguments,
                    pattern: call.pattern.as_ref(),
                    scope,
                });
                let function = call.function.name;
                value.map_err(|reason| ExpressionError::Value { function, reason })
            }
        }
    }

    fn is_pure(&self) -> bool {
        match self {
            Node::Literal(_) => true,
            Node::Attribute(name) => !OWN_FIELDS.contains(&name.as_ref()),
            Node::Call(call) => {
                call.function.pure
                    && call.subject.as_ref().is_none_or(Node::is_pure)
                    && call.arguments.iter().all(Node::is_pure)
            }
        }
    }
}

impl Scope<'_> {
    fn attribute(&self, name: &str) -> Value {
        if let Some(value) = self.attributes.and_then(|attributes| attributes.get(name)) {
            return Value::Text(value.to_owned());
        }
        let Some((flow_file, namespace)) = self.flow_file else {
            return Value::Null;
        };
        match name {
            "uuid" => Value::Text(crate::flowfile::uuid(namespace, flow_file.id()).to_string()),
            "fileSize" => Value::Whole(i64::try_from(flow_file.size()).unwrap_or(i64::MAX)),
            "entryDate" | "lineageStartDate" => Value::Whole(flow_file.entry().0),
            _ => Value::Null,
        }
    }
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

/// Names that are not attributes but fields of the FlowFile itself.
const OWN_FIELDS: [&str; 4] = ["uuid", "fileSize", "entryDate", "lineageStartDate"];

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(text: &str) -> String {
        let attributes = Attributes::new([
            ("filename", "Access.LOG"),
            ("size", "12"),
            ("empty", ""),
            ("with space", "yes"),
        ]);
        let scope = Scope {
            attributes: Some(&attributes),
            flow_file: None,
            now: UnixMillis(1_000),
        };
        Expression::parse(text)
            .unwrap()
            .evaluate(scope)
            .unwrap()
            .into_owned()
    }

    #[test]
    fn expressions_give_the_documented_values() {
        for (text, value) in [
            ("plain", "plain"),
            ("", ""),
            ("a $$ and $${x}", "a $ and ${x}"),
            ("$5 and }", "$5 and }"),
            ("${filename}", "Access.LOG"),
            ("${missing}", ""),
            ("pre-${size}-post", "pre-12-post"),
            ("${'with space'}", "yes"),
            ("${filename:toLower()}", "access.log"),
            (
                "${filename:toUpper():append('!'):prepend('<')}",
                "<ACCESS.LOG!",
            ),
            ("${filename:substring(0, 6)}", "Access"),
            ("${filename:substring(7)}", "LOG"),
            ("${filename:substringBefore('.')}", "Access"),
            ("${filename:substringAfterLast('.')}", "LOG"),
            (
                "${filename:startsWith('Acc'):and(${filename:endsWith('LOG')})}",
                "true",
            ),
            ("${filename:contains('.'):not()}", "false"),
            ("${filename:equals('Access.LOG'):or(false)}", "true"),
            ("${filename:equalsIgnoreCase('access.log')}", "true"),
            (
                "${size:gt(11)}${size:ge(12)}${size:lt(12)}${size:le(12)}",
                "truetruefalsetrue",
            ),
            ("${size:plus(3):minus(1):multiply(2):divide(4):mod(4)}", "3"),
            (
                "${missing:isNull()}${missing:notNull()}${empty:isEmpty()}",
                "truefalsetrue",
            ),
            ("${filename:replaceAll('[A-Z]+', '_')}", "_ccess._"),
            ("${filename:replace('s', 'S')}", "AcceSS.LOG"),
            ("${filename:matches('Access\\\\..*')}", "true"),
            ("${filename:matches('Access')}", "false"),
            ("${filename:find('ccess')}", "true"),
            (
                "${missing:replaceNull('none')}${empty:replaceEmpty('blank')}",
                "noneblank",
            ),
            ("${literal('x'):append(${size})}", "x12"),
            ("${filename:length()}", "10"),
            ("${filename:indexOf('.')}", "6"),
            ("${size:in('11', '12')}", "true"),
            ("${size:equals(12):ifElse('dozen', 'other')}", "dozen"),
            ("${now():plus(1)}", "1001"),
        ] {
            assert_eq!(evaluate(text), value, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_when_the_flow_is_loaded() {
        for (text, part) in [
            ("${filename", "'}' is missing"),
            ("${filename:frobnicate()}", "no function 'frobnicate'"),
            ("${filename:equals()}", "takes 1 argument"),
            ("${filename:matches('(')}", "regular expression"),
            ("${now(1)}", "takes 0 arguments"),
            ("${filename:now()}", "takes no subject"),
            ("${}", "a name is missing"),
            ("${a:equals('x}", "closing"),
        ] {
            let error = Expression::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let deep = format!("{}x{}", "${a:equals(".repeat(1_000), ")}".repeat(1_000));
        assert!(
            Expression::parse(&deep)
                .unwrap_err()
                .to_string()
                .contains("nested")
        );
    }

    #[test]
    fn a_number_that_is_none_is_an_error_and_not_zero() {
        let attributes = Attributes::new([("a", "abc")]);
        let scope = Scope {
            attributes: Some(&attributes),
            flow_file: None,
            now: UnixMillis(0),
        };
        let error = Expression::parse("${a:plus(1)}")
            .unwrap()
            .evaluate(scope)
            .unwrap_err();
        assert_eq!(error.to_string(), "plus: 'abc' is no number");
    }

    #[test]
    fn purity_follows_the_parts() {
        assert!(Expression::parse("${a:append('x')}").unwrap().is_pure());
        assert!(
            !Expression::parse("${a:append(${now()})}")
                .unwrap()
                .is_pure()
        );
        assert!(!Expression::parse("${uuid}").unwrap().is_pure());
    }
}
