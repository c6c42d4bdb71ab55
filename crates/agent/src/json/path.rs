//! JSONPath as flows write it: RFC 9535 with what Jayway's and jsoncons' paths allow beside it
//! (names with `-`, `.length()`, `=~` and `in` in filters).

use super::Json;
use crate::patterns;

/// A path into a document.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(super) steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// What these select of each value.
    Children(Vec<Selector>),
    /// What these select of each value and of all below it.
    Descendants(Vec<Selector>),
    /// How many items or fields there are.
    Length,
}

/// What a step selects of one value.
#[derive(Clone, Debug)]
pub(super) enum Selector {
    Name(String),
    /// Counted from the end when below zero.
    Index(i64),
    All,
    Slice(Option<i64>, Option<i64>, i64),
    Filter(Condition),
}

/// What a filter asks of a value.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    Any(Vec<Condition>),
    All(Vec<Condition>),
    Not(Box<Condition>),
    Exists(Operand),
    Compare(Operand, Comparison, Operand),
    Matches(Operand, regex::Regex),
    In(Operand, Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Literal(Json),
    /// From the value that is filtered.
    Here(Path),
    /// From the root.
    Root(Path),
}

impl Path {
    /// Reads a path; the error says where it breaks.
    pub(crate) fn parse(text: &str) -> Result<Path, String> {
        let mut parser = Parser { text, at: 0 };
        parser.blanks();
        if !parser.eats("$") {
            return Err(parser.error("it must begin with '$'"));
        }
        let path = parser.path(0)?;
        parser.blanks();
        if parser.at < text.len() {
            return Err(parser.error("this is not expected here"));
        }
        Ok(path)
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    /// The steps behind `$` or `@`.
    fn path(&mut self, depth: usize) -> Result<Path, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("filters are nested too deeply"));
        }
        let mut steps = Vec::new();
        loop {
            if self.eats("..") {
                let selectors = if self.rest().starts_with('[') {
                    self.brackets(depth)?
                } else {
                    vec![self.name_or_all()?]
                };
                steps.push(Step::Descendants(selectors));
            } else if self.eats(".length()") {
                steps.push(Step::Length);
            } else if self.eats(".") {
                steps.push(Step::Children(vec![self.name_or_all()?]));
            } else if self.rest().starts_with('[') {
                steps.push(Step::Children(self.brackets(depth)?));
            } else {
                break;
            }
        }
        Ok(Path { steps })
    }

    fn name_or_all(&mut self) -> Result<Selector, String> {
        if self.eats("*") {
            return Ok(Selector::All);
        }
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@' | ':');
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.error("a name is missing"));
        }
        let name = rest[..end].to_owned();
        self.at += end;
        Ok(Selector::Name(name))
    }

    /// `[selector, …]`.
    fn brackets(&mut self, depth: usize) -> Result<Vec<Selector>, String> {
        self.at += 1;
        let mut selectors = Vec::new();
        loop {
            self.blanks();
            selectors.push(self.selector(depth)?);
            self.blanks();
            if self.eats("]") {
                return Ok(selectors);
            }
            if !self.eats(",") {
                return Err(self.error("']' is missing"));
            }
        }
    }

    fn selector(&mut self, depth: usize) -> Result<Selector, String> {
        if self.eats("*") {
            return Ok(Selector::All);
        }
        if self.eats("?") {
            self.blanks();
            return self.any(depth + 1).map(Selector::Filter);
        }
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            return self.quoted(quote).map(Selector::Name);
        }
        let start = self.whole()?;
        self.blanks();
        if !self.eats(":") {
            return start
                .map(Selector::Index)
                .ok_or_else(|| self.error("a name or a number is missing"));
        }
        self.blanks();
        let end = self.whole()?;
        self.blanks();
        let step = if self.eats(":") {
            self.blanks();
            self.whole()?.unwrap_or(1)
        } else {
            1
        };
        Ok(Selector::Slice(start, end, step))
    }

    /// A whole number, if there is one.
    fn whole(&mut self) -> Result<Option<i64>, String> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let len = digits.bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return Ok(None);
        }
        let end = rest.len() - digits.len() + len;
        let number = rest[..end].parse();
        let number = number.map_err(|_| self.error("this number is too large"))?;
        self.at += end;
        Ok(Some(number))
    }

    /// Conditions with `||` between them.
    fn any(&mut self, depth: usize) -> Result<Condition, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("filters are nested too deeply"));
        }
        let mut conditions = vec![self.all(depth)?];
        while self.eats_after_blanks("||") {
            conditions.push(self.all(depth)?);
        }
        Ok(match conditions.len() {
            1 => conditions.swap_remove(0),
            _ => Condition::Any(conditions),
        })
    }

    /// Conditions with `&&` between them.
    fn all(&mut self, depth: usize) -> Result<Condition, String> {
        let mut conditions = vec![self.condition(depth)?];
        while self.eats_after_blanks("&&") {
            conditions.push(self.condition(depth)?);
        }
        Ok(match conditions.len() {
            1 => conditions.swap_remove(0),
            _ => Condition::All(conditions),
        })
    }

    fn condition(&mut self, depth: usize) -> Result<Condition, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("filters are nested too deeply"));
        }
        self.blanks();
        if self.eats("!") {
            return Ok(Condition::Not(Box::new(self.condition(depth + 1)?)));
        }
        if self.eats("(") {
            let inner = self.any(depth + 1)?;
            if !self.eats_after_blanks(")") {
                return Err(self.error("')' is missing"));
            }
            return Ok(inner);
        }
        let left = self.operand(depth)?;
        self.blanks();
        if self.eats("=~") {
            self.blanks();
            return self
                .pattern()
                .map(|pattern| Condition::Matches(left, pattern));
        }
        if self.rest().starts_with("in ") || self.rest().starts_with("in[") {
            self.at += 2;
            return Ok(Condition::In(left, self.operand(depth)?));
        }
        let operators = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (sign, comparison) in operators {
            if self.eats(sign) {
                return Ok(Condition::Compare(left, comparison, self.operand(depth)?));
            }
        }
        Ok(Condition::Exists(left))
    }

    fn operand(&mut self, depth: usize) -> Result<Operand, String> {
        self.blanks();
        if self.eats("@") {
            return self.path(depth + 1).map(Operand::Here);
        }
        if self.eats("$") {
            return self.path(depth + 1).map(Operand::Root);
        }
        self.literal(depth).map(Operand::Literal)
    }

    fn literal(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("filters are nested too deeply"));
        }
        self.blanks();
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            return self.quoted(quote).map(Json::Text);
        }
        if self.eats("[") {
            let mut items = Vec::new();
            if self.eats_after_blanks("]") {
                return Ok(Json::List(items));
            }
            loop {
                items.push(self.literal(depth + 1)?);
                if self.eats_after_blanks("]") {
                    return Ok(Json::List(items));
                }
                if !self.eats_after_blanks(",") {
                    return Err(self.error("']' is missing"));
                }
            }
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let value = Json::parse(&rest[..end]).map_err(|_| self.error("a value is missing"))?;
        self.at += end;
        Ok(value)
    }

    /// `/pattern/` or `/pattern/i`, or the pattern in quotes.
    fn pattern(&mut self) -> Result<regex::Regex, String> {
        let quote = self.peek().unwrap_or(' ');
        if !matches!(quote, '/' | '\'' | '"') {
            return Err(self.error("a pattern between slashes is missing"));
        }
        let rest = &self.rest()[1..];
        let mut is_escaped = false;
        let end = rest.find(|c| {
            let ends = c == quote && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let end = end.ok_or_else(|| self.error("the pattern does not end"))?;
        let text = rest[..end].to_owned();
        self.at += end + 2;
        let flags = if quote == '/' && self.eats("i") {
            "(?i)"
        } else {
            ""
        };
        patterns::text(&format!("{flags}{text}")).map_err(|why| self.error(&why))
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let (mut out, mut is_escaped) = (String::new(), false);
        for (at, c) in self.rest().char_indices().skip(1) {
            match (is_escaped, c) {
                (true, 'n') => out.push('\n'),
                (true, 't') => out.push('\t'),
                (true, _) => out.push(c),
                (false, '\\') => {}
                (false, _) if c == quote => {
                    self.at += at + 1;
                    return Ok(out);
                }
                (false, _) => out.push(c),
            }
            is_escaped = c == '\\' && !is_escaped;
        }
        Err(self.error("the closing quote is missing"))
    }

    fn eats_after_blanks(&mut self, sign: &str) -> bool {
        self.blanks();
        self.eats(sign)
    }

    fn eats(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
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

    fn error(&self, reason: &str) -> String {
        let (text, at) = (self.text, self.text[..self.at].chars().count());
        format!("'{text}' is no JSON path at character {at}: {reason}")
    }
}

/// Depth of filters in filters, so that reading cannot overflow.
const DEPTH_MAX: usize = 16;
