//! EPL text to tokens, each with its place.
//!
//! Texts stand in single or double quotes, names with signs in them in backquotes. `\'`, `\"`,
//! `\\`, `\n`, `\t`, `\r` and `\uXXXX` are escapes; any other backslash stands for itself, so that
//! regular expressions need no doubling. `//` and `/* */` are comments. A number is an integer
//! where it is written as one and fits 64 bits; `10L`, `1.5f`, `2d` and `0xff` are numbers too.

use crate::error::TextError;
use crate::limits::{STATEMENT_TEXT_BYTES_MAX, STATEMENT_TOKENS_MAX};

/// A place in the text: line and column in characters, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Place {
    /// An error here.
    pub fn error(self, message: impl Into<String>) -> TextError {
        TextError {
            message: message.into(),
            line: u64::from(self.line.max(1)),
            column: u64::from(self.column.max(1)),
        }
    }
}

/// One word, value or sign.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A keyword or name as it is written.
    Word(String),
    /// A name in backquotes: never a keyword.
    Name(String),
    /// A text without its quotes.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// An operator or bracket.
    Sign(&'static str),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "'{word}'"),
            Token::Name(name) => write!(f, "`{name}`"),
            Token::Text(text) => write!(f, "the text '{text}'"),
            Token::Int(number) => write!(f, "{number}"),
            Token::Float(number) => write!(f, "{number}"),
            Token::Sign(sign) => write!(f, "'{sign}'"),
            Token::End => write!(f, "the end"),
        }
    }
}

/// Reads all tokens; the last is [`Token::End`].
///
/// # Errors
/// The text is too long, a text or comment is not closed, a sign or number is none.
pub fn tokens(text: &str) -> Result<Vec<(Token, Place)>, TextError> {
    let start = Place { line: 1, column: 1 };
    if text.len() > STATEMENT_TEXT_BYTES_MAX {
        return Err(start.error(format!(
            "the statement has {} bytes, more than {STATEMENT_TEXT_BYTES_MAX}: shorten it",
            text.len()
        )));
    }
    let mut cursor = Cursor {
        rest: text,
        place: start,
    };
    let mut tokens = Vec::new();
    loop {
        cursor.skip_blanks()?;
        let place = cursor.place;
        let token = cursor.token()?;
        let is_end = token == Token::End;
        tokens.push((token, place));
        if is_end {
            return Ok(tokens);
        }
        if tokens.len() > STATEMENT_TOKENS_MAX {
            return Err(start.error(format!(
                "the statement has more than {STATEMENT_TOKENS_MAX} words and signs: split it"
            )));
        }
    }
}

struct Cursor<'t> {
    rest: &'t str,
    place: Place,
}

impl<'t> Cursor<'t> {
    fn next(&mut self) -> Option<char> {
        let char = self.rest.chars().next()?;
        self.rest = &self.rest[char.len_utf8()..];
        if char == '\n' {
            self.place.line += 1;
            self.place.column = 1;
        } else {
            self.place.column += 1;
        }
        Some(char)
    }

    /// Takes so many bytes, which must end between two characters.
    fn skip(&mut self, bytes: usize) -> &'t str {
        let (taken, _) = self.rest.split_at(bytes);
        let end = self.rest.len() - bytes;
        while self.rest.len() > end {
            self.next();
        }
        taken
    }

    fn skip_blanks(&mut self) -> Result<(), TextError> {
        loop {
            let place = self.place;
            if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.skip(end);
            } else if self.rest.starts_with("/*") {
                let Some(end) = self.rest[2..].find("*/") else {
                    return Err(place.error("the comment is not closed: write */ after it"));
                };
                self.skip(end + 4);
            } else if self.rest.starts_with(char::is_whitespace) {
                self.next();
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token, TextError> {
        let place = self.place;
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token::End);
        };
        match first {
            '\'' | '"' => self.quoted(first).map(Token::Text),
            '`' => self.quoted(first).map(Token::Name),
            '0'..='9' => self.number(),
            '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            _ if is_name_char(first) => {
                let end = self
                    .rest
                    .find(|c| !is_name_char(c))
                    .unwrap_or(self.rest.len());
                Ok(Token::Word(self.skip(end).to_owned()))
            }
            _ => match SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) {
                Some(sign) => {
                    self.skip(sign.len());
                    Ok(Token::Sign(sign))
                }
                None => Err(place.error(format!(
                    "'{first}' means nothing here; texts stand in quotes, names with signs in \
                     them in backquotes"
                ))),
            },
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, TextError> {
        let place = self.place;
        let mut text = String::new();
        self.next();
        while let Some(char) = self.next() {
            match char {
                _ if char == quote => return Ok(text),
                '\\' if quote != '`' => self.escape(&mut text)?,
                _ => text.push(char),
            }
        }
        Err(place.error(format!("the text is not closed: write {quote} after it")))
    }

    fn escape(&mut self, text: &mut String) -> Result<(), TextError> {
        let place = self.place;
        match self.rest.chars().next() {
            Some(char @ ('\'' | '"' | '\\')) => text.push(char),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('u') => {
                let code = self
                    .rest
                    .get(1..5)
                    .and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let Some(char) = code.and_then(char::from_u32) else {
                    return Err(place.error("\\u takes the four hex digits of a character"));
                };
                self.skip(5);
                text.push(char);
                return Ok(());
            }
            _ => {
                text.push('\\');
                return Ok(());
            }
        }
        self.next();
        Ok(())
    }

    fn number(&mut self) -> Result<Token, TextError> {
        let place = self.place;
        if self.rest.starts_with("0x") || self.rest.starts_with("0X") {
            let digits = self.rest[2..].find(|c: char| !c.is_ascii_hexdigit());
            let end = digits.map_or(self.rest.len(), |digits| digits + 2);
            let text = self.skip(end);
            return i64::from_str_radix(&text[2..], 16)
                .map(Token::Int)
                .map_err(|_| place.error(format!("'{text}' is no number of 64 bits")));
        }
        let bytes = self.rest.as_bytes();
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut end = digits(0);
        let mut is_float = false;
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1);
            is_float = true;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent > end + 1 + sign {
                end = exponent;
                is_float = true;
            }
        }
        let text = self.skip(end);
        let mut after = self.rest.chars();
        let suffix = after
            .next()
            .filter(|_| !after.as_str().starts_with(is_name_char));
        match suffix {
            Some('l' | 'L') if !is_float => drop(self.next()),
            Some('f' | 'F' | 'd' | 'D') => {
                self.next();
                is_float = true;
            }
            _ => {}
        }
        if self.rest.starts_with(is_name_char) {
            return Err(place.error(format!(
                "the number {text} runs into a name: put a blank between them"
            )));
        }
        if !is_float && let Ok(number) = text.parse() {
            return Ok(Token::Int(number));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Float(number)),
            _ => Err(place.error(format!("{text} is larger than a double can be"))),
        }
    }
}

fn is_name_char(char: char) -> bool {
    char.is_alphanumeric() || char == '_' || char == '$'
}

/// Signs, longer ones before those that they begin with.
const SIGNS: &[&str] = &[
    "->", "||", "<=", ">=", "<>", "!=", "=>", "::", "(", ")", "[", "]", "{", "}", ",", ".", ";",
    ":", "#", "@", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "?", "!",
];
