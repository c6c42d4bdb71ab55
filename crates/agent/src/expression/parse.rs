//! The parser: one pass over the characters, bounded in depth.

use super::functions::{self, End, Function, Kind, Subject};
use super::{Call, Chain, ExpressionError, Node, Part, Several, Start, Value};
use crate::limits::EXPRESSION_DEPTH_MAX;
use crate::patterns::Pattern;

/// Parses a text with `${…}` in it.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, ExpressionError> {
    parts(text, 0)
}

fn parts(text: &str, depth: usize) -> Result<Vec<Part>, ExpressionError> {
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
            parts.push(Part::Node(parser.braces(depth)?));
        } else {
            plain.push(c);
            parser.at += c.len_utf8();
        }
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain.into()));
    }
    Ok(parts)
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    /// `${ subject :function(arguments)* }`, standing on the dollar sign.
    fn braces(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(self.error("expressions are nested too deeply"));
        }
        self.at += 2;
        self.blanks();
        let mut start = self.start(depth)?;
        let mut calls = Vec::new();
        let mut is_open = matches!(start, Start::Several(_));
        loop {
            self.blanks();
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    if let (Start::Several(several), true) = (&mut start, is_open) {
                        several.each = std::mem::take(&mut calls);
                    }
                    return Ok(Node::Chain(Box::new(Chain { start, calls })));
                }
                Some(':') => {
                    self.at += 1;
                    self.blanks();
                    let name = self.word().to_owned();
                    match (functions::end(&name), &mut start) {
                        (Some((end, count)), Start::Several(several))
                            if is_open && !several.source.is_any =>
                        {
                            let arguments = self.arguments(&name, (count, count), depth)?;
                            several.end = end;
                            several.delimiter = arguments.into_iter().next();
                            several.each = std::mem::take(&mut calls);
                            is_open = false;
                        }
                        (Some(_), _) => {
                            let reason = format!(
                                "{name}() needs allAttributes(…), allMatchingAttributes(…) or \
                                 allDelineatedValues(…) before it"
                            );
                            return Err(self.error(&reason));
                        }
                        (None, _) => calls.push(self.call(&name, true, depth)?),
                    }
                }
                Some(c) => return Err(self.error(&format!("'{c}' is not expected here"))),
                None => return Err(self.error("'}' is missing")),
            }
        }
    }

    fn start(&mut self, depth: usize) -> Result<Start, ExpressionError> {
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            return Ok(Start::Attribute(self.quoted(quote)?.into()));
        }
        let name = self.attribute_name().to_owned();
        if name.is_empty() {
            return Err(self.error("a name is missing"));
        }
        self.blanks();
        if self.peek() != Some('(') {
            return Ok(Start::Attribute(name.into()));
        }
        let Some(source) = functions::source(&name) else {
            return self.call(&name, false, depth).map(Start::Call);
        };
        let arguments = self.arguments(&name, source.arguments(), depth)?;
        let mut compiled = Vec::new();
        for argument in &arguments {
            compiled.push(match (source.kind, argument) {
                (Kind::Patterns, Node::Literal(Value::Text(text))) => {
                    Some(Pattern::whole(text).map_err(|why| self.error(&why))?)
                }
                _ => None,
            });
        }
        Ok(Start::Several(Several {
            source,
            arguments,
            patterns: compiled,
            each: Vec::new(),
            end: if source.is_any { End::Any } else { End::All },
            delimiter: None,
        }))
    }

    /// A function's arguments, standing behind its name.
    fn call(
        &mut self,
        name: &str,
        has_subject: bool,
        depth: usize,
    ) -> Result<Call, ExpressionError> {
        let function = self.function(name)?;
        match (function.subject, has_subject) {
            (Subject::None, true) => {
                return Err(self.error(&format!("{name}() takes no subject")));
            }
            (Subject::Needed, false) => {
                return Err(self.error(&format!(
                    "{name}() needs a subject: ${{attribute:{name}(…)}}"
                )));
            }
            _ => {}
        }
        let arguments = self.arguments(name, function.arguments, depth)?;
        let pattern = match (function.has_pattern, arguments.first()) {
            (true, Some(Node::Literal(Value::Text(text)))) => {
                Some(functions::pattern(function.name, text).map_err(|why| self.error(&why))?)
            }
            _ => None,
        };
        Ok(Call {
            function,
            arguments,
            pattern,
        })
    }

    /// `(argument, …)`, as many as `(least, most)` says.
    fn arguments(
        &mut self,
        name: &str,
        (least, most): (usize, usize),
        depth: usize,
    ) -> Result<Vec<Node>, ExpressionError> {
        let mut arguments = Vec::new();
        self.blanks();
        if self.peek() != Some('(') {
            return Err(self.error(&format!("'(' is missing after {name}")));
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
        let count = arguments.len();
        if (least..=most).contains(&count) {
            return Ok(arguments);
        }
        let wanted = match (least, most) {
            (1, 1) => "1 argument".to_owned(),
            _ if least == most => format!("{least} arguments"),
            _ => format!("{least} to {most} arguments"),
        };
        Err(self.error(&format!("{name}() takes {wanted}, not {count}")))
    }

    fn argument(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if self.rest().starts_with("${") {
            return self.braces(depth + 1);
        }
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            let text = self.quoted(quote)?;
            if !text.contains("${") {
                return Ok(Node::Literal(Value::Text(text)));
            }
            if depth >= EXPRESSION_DEPTH_MAX {
                return Err(self.error("expressions are nested too deeply"));
            }
            return parts(&text, depth + 1).map(Node::Quoted);
        }
        let word = self.word();
        match word {
            "" => Err(self.error("an argument is missing")),
            "true" => Ok(Node::Literal(Value::Flag(true))),
            "false" => Ok(Node::Literal(Value::Flag(false))),
            "null" => Ok(Node::Literal(Value::Null)),
            _ => match functions::literal(word) {
                Some(number) => Ok(Node::Literal(number)),
                None => {
                    let reason = format!("'{word}' needs quotes to be a text");
                    Err(self.error(&reason))
                }
            },
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

    /// A function's name, a number, or one of the words that are values.
    fn word(&mut self) -> &str {
        self.take(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+'))
    }

    /// An attribute's name without quotes: what is not special.
    fn attribute_name(&mut self) -> &str {
        self.take(|c| !c.is_whitespace() && !SPECIAL.contains(c))
    }

    fn take(&mut self, is_legal: impl Fn(char) -> bool) -> &str {
        let start = self.at;
        let rest = self.rest();
        self.at += rest.find(|c| !is_legal(c)).unwrap_or(rest.len());
        &self.text[start..self.at]
    }

    fn function(&self, name: &str) -> Result<&'static Function, ExpressionError> {
        functions::find(name).ok_or_else(|| self.error(&format!("there is no function '{name}'")))
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &str {
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

/// Characters that end an attribute's name unless it is quoted.
const SPECIAL: &str = "$|{}()[],:;/*'\"";
