//! The parser: one pass over the characters, bounded in depth.

use super::functions::{self, Function, Subject};
use super::{Call, Expression, ExpressionError, Node, Part, Value};
use crate::limits::EXPRESSION_DEPTH_MAX;

/// Parses a text with `${…}` in it.
pub(super) fn parse(text: &str) -> Result<Expression, ExpressionError> {
    let mut parser = Parser { text, at: 0 };
    let mut parts = Vec::new();
    let mut plain = String::new();
    while let Some(c) = parser.peek() {
        if parser.rest().starts_with("$$") {
            plain.push('$');
            parser.at += 2;
        } else if parser.rest().starts_with("${") {
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(Part::Node(parser.braces(0)?));
        } else {
            plain.push(c);
            parser.at += c.len_utf8();
        }
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain.into()));
    }
    let pure = parts.iter().all(|part| match part {
        Part::Text(_) => true,
        Part::Node(node) => node.is_pure(),
    });
    Ok(Expression { parts, pure })
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    /// `${ subject :function(arguments)* }`, standing on the dollar sign.
    fn braces(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(self.error("expressions are nested too deeply"));
        }
        self.at += 2;
        self.blanks();
        let mut node = self.subject(depth)?;
        loop {
            self.blanks();
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    return Ok(node);
                }
                Some(':') => {
                    self.at += 1;
                    self.blanks();
                    let name = self.word();
                    let function = self.function(name)?;
                    if function.subject == Subject::None {
                        return Err(self.error(&format!("{name}() takes no subject")));
                    }
                    node = self.call(function, Some(node), depth)?;
                }
                Some(c) => return Err(self.error(&format!("'{c}' is not expected here"))),
                None => return Err(self.error("'}' is missing")),
            }
        }
    }

    fn subject(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            return Ok(Node::Attribute(self.quoted(quote)?.into()));
        }
        let name = self.word();
        if name.is_empty() {
            return Err(self.error("a name is missing"));
        }
        self.blanks();
        if self.peek() != Some('(') {
            return Ok(Node::Attribute(name.into()));
        }
        let function = self.function(name)?;
        if function.subject == Subject::Needed {
            return Err(self.error(&format!(
                "{name}() needs a subject: ${{attribute:{name}(…)}}"
            )));
        }
        self.call(function, None, depth)
    }

    /// `(argument, …)`, standing on the parenthesis.
    fn call(
        &mut self,
        function: &'static Function,
        subject: Option<Node>,
        depth: usize,
    ) -> Result<Node, ExpressionError> {
        let mut arguments = Vec::new();
        self.blanks();
        if self.peek() != Some('(') {
            return Err(self.error(&format!("'(' is missing after {}", function.name)));
        }
        self.at += 1;
        loop {
            self.blanks();
            match self.peek() {
                Some(')') => break,
                Some(',') if !arguments.is_empty() => {
                    self.at += 1;
                    self.blanks();
                    arguments.push(self.argument(depth)?);
                }
                Some(_) if arguments.is_empty() => arguments.push(self.argument(depth)?),
                Some(c) => return Err(self.error(&format!("'{c}' is not expected here"))),
                None => return Err(self.error("')' is missing")),
            }
        }
        self.at += 1;
        let (least, most) = function.arguments;
        if arguments.len() < least || arguments.len() > most {
            let count = arguments.len();
            let plural = if least == 1 { "" } else { "s" };
            let name = function.name;
            let reason = format!("{name}() takes {least} argument{plural}, not {count}");
            return Err(self.error(&reason));
        }
        let pattern = match (function.has_pattern, arguments.first()) {
            (true, Some(Node::Literal(Value::Text(text)))) => {
                Some(functions::pattern(function.name, text).map_err(|why| self.error(&why))?)
            }
            _ => None,
        };
        Ok(Node::Call(Box::new(Call {
            function,
            subject,
            arguments,
            pattern,
        })))
    }

    fn argument(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if self.rest().starts_with("${") {
            return self.braces(depth + 1);
        }
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            return Ok(Node::Literal(Value::Text(self.quoted(quote)?)));
        }
        let word = self.word();
        match word {
            "" => Err(self.error("an argument is missing")),
            "true" => Ok(Node::Literal(Value::Flag(true))),
            "false" => Ok(Node::Literal(Value::Flag(false))),
            "null" => Ok(Node::Literal(Value::Null)),
            _ => {
                if let Ok(whole) = word.parse() {
                    Ok(Node::Literal(Value::Whole(whole)))
                } else if let Ok(fraction) = word.parse() {
                    Ok(Node::Literal(Value::Fraction(fraction)))
                } else {
                    Err(self.error(&format!("'{word}' needs quotes to be a text")))
                }
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, ExpressionError> {
        let mut out = String::new();
        let mut escaped = false;
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            match (escaped, c) {
                (true, 'n') => out.push('\n'),
                (true, 'r') => out.push('\r'),
                (true, 't') => out.push('\t'),
                (true, '\\' | '\'' | '"') => out.push(c),
                (true, _) => {
                    // Regular expressions are written with single backslashes too.
                    out.push('\\');
                    out.push(c);
                }
                (false, '\\') => {
                    escaped = true;
                    continue;
                }
                (false, _) if c == quote => return Ok(out),
                (false, _) => out.push(c),
            }
            escaped = false;
        }
        self.at = start;
        Err(self.error("the closing quote is missing"))
    }

    fn word(&mut self) -> &'t str {
        let rest = self.rest();
        let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
        let end = rest.find(|c: char| !legal(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn function(&self, name: &str) -> Result<&'static Function, ExpressionError> {
        functions::FUNCTIONS
            .iter()
            .find(|function| function.name == name)
            .ok_or_else(|| self.error(&format!("there is no function '{name}' (yet)")))
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn error(&self, reason: &str) -> ExpressionError {
        const SHOWN: usize = 200;
        ExpressionError::Parse {
            text: self.text.chars().take(SHOWN).collect(),
            at: self.text[..self.at].chars().count(),
            reason: reason.to_owned(),
        }
    }
}
