//! EPL text to a syntax tree, by recursive descent.
//!
//! Keywords are compared in any case. Every error points at the first token that cannot be, says
//! what could stand there, and suggests the keyword that a misspelt word resembles.

mod create;
mod expression;
mod from;
mod on;
mod pattern;
mod row_pattern;
mod select;

use super::ast::{Body, Ident, Rows, Statement};
use super::token::{Place, Token, tokens};
use crate::error::TextError;
use crate::limits::EPL_DEPTH_MAX;
use crate::suggest;

/// Parses the statements of a text, which stand apart by semicolons.
///
/// # Errors
/// The text is no statement; the error points at the place.
pub fn parse(text: &str) -> Result<Vec<Statement>, TextError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let mut statements = Vec::new();
    loop {
        statements.push(parser.statement()?);
        let is_ended = parser.sign(";");
        match parser.peek() {
            Token::End => return Ok(statements),
            _ if is_ended => {}
            _ => return Err(parser.unexpected("the statement ends before it")),
        }
    }
}

/// Parses one expression alone.
///
/// # Errors
/// The text is no expression.
#[cfg(test)]
pub fn parse_expression(text: &str) -> Result<super::ast::Expr, TextError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let expr = parser.expr()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.unexpected("the expression ends before it")),
    }
}

type Parsed<T> = Result<T, TextError>;

struct Parser {
    tokens: Vec<(Token, Place)>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn statement(&mut self) -> Parsed<Statement> {
        let place = self.here();
        let name = self.annotations()?;
        let mut context = None;
        if self.is_word("context") && !matches!(self.peek_at(1), Token::Sign("(")) {
            self.skip();
            context = Some(self.name("the context's name")?);
        }
        let name = match self.annotations()? {
            Some(inner) => Some(inner),
            None => name,
        };
        let body = if self.is_word("create") {
            self.create()?
        } else if self.word("on") {
            Body::On(Box::new(self.on()?))
        } else if self.word("delete") {
            self.expect_word("from")?;
            let target = self.target()?;
            Body::Delete(target, self.filter()?)
        } else if self.word("update") {
            if self.is_word("istream") {
                return Err(self.here().error(
                    "update istream is not supported: write insert into … select with the \
                     changed columns",
                ));
            }
            let target = self.target()?;
            self.expect_word("set")?;
            let assignments = self.assignments()?;
            Body::Update(target, assignments, self.filter()?)
        } else if self.is_word("insert") {
            self.insert()?
        } else if self.is_word("select") {
            Body::Select(Box::new(self.select()?))
        } else {
            let message = match self.peek() {
                Token::End => "the text is empty: write select … from …".to_owned(),
                token => format!(
                    "a statement begins with select, insert, create, on, context, update or \
                     delete, not with {token}{}",
                    self.did_you_mean(STATEMENT_WORDS)
                ),
            };
            return Err(self.here().error(message));
        };
        Ok(Statement {
            place,
            context,
            name,
            body,
        })
    }

    fn insert(&mut self) -> Parsed<Body> {
        let into = self.insert_into()?;
        if self.word("values") {
            self.expect_sign("(")?;
            let values = self.list(")", Parser::expr)?;
            return Ok(Body::InsertValues(into, values));
        }
        if !self.is_word("select") {
            return Err(self.unexpected("after insert into and its name a select has to follow"));
        }
        let mut select = self.select()?;
        select.insert_into = Some(into);
        Ok(Body::Select(Box::new(select)))
    }

    /// `@name('x')` gives a name; other annotations and what they hold are let be.
    fn annotations(&mut self) -> Parsed<Option<String>> {
        let mut name = None;
        while self.is_sign("@") {
            self.skip();
            let annotation = self.name("the annotation's name")?;
            if !self.sign("(") {
                continue;
            }
            if annotation.text.eq_ignore_ascii_case("name")
                && let Token::Text(text) = self.peek()
            {
                name = Some(text.clone());
            }
            let mut open = 1;
            while open > 0 {
                match self.peek() {
                    Token::End => return Err(self.unexpected("the annotation wants a )")),
                    Token::Sign("(") => open += 1,
                    Token::Sign(")") => open -= 1,
                    _ => {}
                }
                self.skip();
            }
        }
        Ok(name)
    }

    fn rows(&mut self) -> Option<Rows> {
        for (word, rows) in [
            ("istream", Rows::New),
            ("rstream", Rows::Old),
            ("irstream", Rows::Both),
        ] {
            if self.word(word) {
                return Some(rows);
            }
        }
        None
    }

    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Token {
        self.tokens
            .get(self.at + ahead)
            .map_or(&Token::End, |(token, _)| token)
    }

    fn here(&self) -> Place {
        let last = self.tokens.last().map(|(_, place)| *place);
        self.tokens
            .get(self.at)
            .map(|(_, place)| *place)
            .or(last)
            .unwrap_or_default()
    }

    fn skip(&mut self) {
        self.at += 1;
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    /// Takes the sign when it is next.
    fn sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        self.at += usize::from(found);
        found
    }

    fn expect_sign(&mut self, sign: &str) -> Parsed<()> {
        if self.sign(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{sign}' has to come before it")))
    }

    fn is_word(&self, word: &str) -> bool {
        self.is_word_at(0, word)
    }

    fn is_word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    /// Takes the keyword when it is next.
    fn word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    /// Takes both keywords when they are next.
    fn words(&mut self, first: &str, second: &str) -> bool {
        let found = self.is_word(first) && self.is_word_at(1, second);
        self.at += if found { 2 } else { 0 };
        found
    }

    fn expect_word(&mut self, word: &'static str) -> Parsed<()> {
        if self.word(word) {
            return Ok(());
        }
        let hint = self.did_you_mean(&[word]);
        Err(self.unexpected(&format!("{word} has to come before it{hint}")))
    }

    /// A name that is no keyword of a clause.
    fn name(&mut self, what: &str) -> Parsed<Ident> {
        let place = self.here();
        let text = match self.peek() {
            Token::Word(word) if !is_reserved(word) => word.clone(),
            Token::Name(name) => name.clone(),
            _ => return Err(self.unexpected(&format!("{what} is missing before it"))),
        };
        self.skip();
        Ok(Ident { text, place })
    }

    /// `as name`, or a name alone.
    fn alias(&mut self) -> Parsed<Option<Ident>> {
        if self.word("as") {
            let place = self.here();
            // After AS a keyword, or a quoted text, can be a name too.
            let text = match self.peek() {
                Token::Word(word) | Token::Name(word) | Token::Text(word) => word.clone(),
                _ => return Err(self.unexpected("the name after as is missing before it")),
            };
            self.skip();
            return Ok(Some(Ident { text, place }));
        }
        match self.peek() {
            Token::Word(word) if !is_reserved(word) => self.name("a name").map(Some),
            Token::Name(_) => self.name("a name").map(Some),
            _ => Ok(None),
        }
    }

    fn count(&mut self, what: &str) -> Parsed<u64> {
        let count = match self.peek() {
            Token::Int(count) => u64::try_from(*count).ok(),
            _ => None,
        };
        let Some(count) = count else {
            return Err(self.unexpected(&format!("{what} is missing before it")));
        };
        self.skip();
        Ok(count)
    }

    /// Items with commas between them up to `end`, which is taken too; there may be none.
    fn list<T>(&mut self, end: &str, item: fn(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        if self.sign(end) {
            return Ok(Vec::new());
        }
        let items = self.items(item)?;
        if self.sign(end) {
            return Ok(items);
        }
        Err(self.unexpected(&format!("a ',' or '{end}' has to come before it")))
    }

    /// Items with commas between them, at least one.
    fn items<T>(&mut self, item: fn(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.sign(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Runs `inner` one level deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Parser) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= EPL_DEPTH_MAX {
            return Err(self.here().error(format!(
                "the statement nests deeper than {EPL_DEPTH_MAX} here: flatten it"
            )));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// An error at the next token: what is there, and why it cannot be.
    fn unexpected(&self, why: &str) -> TextError {
        let hint = match self.peek() {
            Token::Word(_) => self.did_you_mean(CLAUSE_WORDS),
            _ => String::new(),
        };
        let hint = if why.contains("did you mean") {
            String::new()
        } else {
            hint
        };
        self.here()
            .error(format!("unexpected {}: {why}{hint}", self.peek()))
    }

    /// "; did you mean …?" when the next word nearly is one of these.
    fn did_you_mean(&self, words: &[&'static str]) -> String {
        match self.peek() {
            Token::Word(word) => suggest::did_you_mean(word, words.iter().copied()),
            _ => String::new(),
        }
    }
}

/// Words that end a name: none of them names anything without backquotes.
fn is_reserved(word: &str) -> bool {
    RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(word))
}

const RESERVED: &[&str] = &[
    "and",
    "as",
    "between",
    "by",
    "case",
    "create",
    "delete",
    "distinct",
    "else",
    "end",
    "every",
    "exists",
    "false",
    "from",
    "full",
    "group",
    "having",
    "in",
    "inner",
    "insert",
    "into",
    "is",
    "istream",
    "irstream",
    "rstream",
    "join",
    "left",
    "like",
    "limit",
    "merge",
    "not",
    "null",
    "on",
    "or",
    "order",
    "outer",
    "output",
    "regexp",
    "right",
    "select",
    "set",
    "then",
    "true",
    "unidirectional",
    "until",
    "update",
    "values",
    "when",
    "where",
    "while",
    "match_recognize",
];

const STATEMENT_WORDS: &[&str] = &[
    "select", "insert", "create", "on", "context", "update", "delete",
];

const CLAUSE_WORDS: &[&str] = &[
    "select",
    "from",
    "where",
    "group",
    "having",
    "output",
    "order",
    "limit",
    "insert",
    "into",
    "pattern",
    "every",
    "unidirectional",
    "outer",
    "join",
    "match_recognize",
    "measures",
    "partition",
    "define",
    "istream",
    "rstream",
    "irstream",
    "between",
    "like",
    "regexp",
];
