//! Sources: event types with filters, patterns, windows and joins.

use super::{Parsed, Parser, is_reserved};
use crate::epl::ast::{From, Ident, Join, Source, Stream, View};
use crate::epl::token::Token;
use crate::limits::SOURCES_MAX;

impl Parser {
    /// The sources after FROM.
    pub(super) fn sources(&mut self) -> Parsed<Vec<From>> {
        let mut sources = vec![self.source(Join::Inner)?];
        loop {
            let place = self.here();
            if self.sign(",") {
                sources.push(self.source(Join::Inner)?);
            } else if let Some(join) = self.join()? {
                let mut source = self.source(join)?;
                if self.word("on") {
                    source.on = Some(self.expr()?);
                }
                sources.push(source);
            } else {
                return Ok(sources);
            }
            if sources.len() > SOURCES_MAX {
                return Err(place.error(format!(
                    "more than {SOURCES_MAX} sources in one statement: join them in steps with \
                     insert into"
                )));
            }
        }
    }

    fn join(&mut self) -> Parsed<Option<Join>> {
        for (word, join) in [
            ("left", Join::Left),
            ("right", Join::Right),
            ("full", Join::Full),
        ] {
            if self.word(word) {
                self.word("outer");
                self.expect_word("join")?;
                return Ok(Some(join));
            }
        }
        if self.word("inner") {
            self.expect_word("join")?;
            return Ok(Some(Join::Inner));
        }
        if self.word("join") {
            return Ok(Some(Join::Inner));
        }
        Ok(None)
    }

    /// One source with its windows and name.
    pub(super) fn source(&mut self, join: Join) -> Parsed<From> {
        let source = self.event_source()?;
        let (views, is_union) = self.views()?;
        let mut unidirectional = self.word("unidirectional");
        let alias = self.alias()?;
        unidirectional |= self.word("unidirectional");
        Ok(From {
            join,
            source,
            views,
            is_union,
            alias,
            unidirectional,
            on: None,
        })
    }

    fn event_source(&mut self) -> Parsed<Source> {
        let place = self.here();
        if self.is_word("pattern") && matches!(self.peek_at(1), Token::Sign("[" | "@")) {
            self.skip();
            self.annotations()?;
            self.expect_sign("[")?;
            let pattern = self.pattern()?;
            self.expect_sign("]")?;
            return Ok(Source::Pattern(Box::new(pattern), place));
        }
        for (word, what) in [("sql", "an SQL table"), ("method", "a method's rows")] {
            if self.is_word(word) && matches!(self.peek_at(1), Token::Sign(":")) {
                return Err(place.error(format!(
                    "{what} is no source: keep what is looked up in a table (create table)"
                )));
            }
        }
        self.stream().map(Source::Stream)
    }

    /// An event type with its filters: `T`, `T(a > 1, b = 2)`, `"a/topic"(…)`.
    pub(super) fn stream(&mut self) -> Parsed<Stream> {
        let (name, is_quoted) = self.type_name("an event type, or a topic in quotes,")?;
        let filters = match self.sign("(") {
            true => self.list(")", Parser::expr)?,
            false => Vec::new(),
        };
        Ok(Stream {
            name,
            is_quoted,
            filters,
        })
    }

    /// An event type's name, which may have dots; or a topic in quotes.
    pub(super) fn type_name(&mut self, what: &str) -> Parsed<(Ident, bool)> {
        let place = self.here();
        if let Token::Text(text) = self.peek() {
            let text = text.clone();
            self.skip();
            return Ok((Ident { text, place }, true));
        }
        let mut name = self.name(what)?;
        while self.is_sign(".") {
            // `.win:length(5)` begins a window, `.length(5)` would be one too.
            let is_part = matches!(self.peek_at(1), Token::Word(word) if !is_reserved(word))
                && !matches!(self.peek_at(2), Token::Sign(":"));
            let is_quoted = matches!(self.peek_at(1), Token::Text(_) | Token::Name(_));
            if !is_part && !is_quoted {
                break;
            }
            self.skip();
            if let Token::Word(part) | Token::Name(part) | Token::Text(part) = self.peek() {
                name.text = format!("{}.{part}", name.text);
            }
            self.skip();
            if is_quoted {
                return Ok((name, true));
            }
        }
        Ok((name, false))
    }

    /// Windows: `#length(5)`, `.win:length(5)`, `#groupwin(k)#length(2)`; and whether they are a
    /// union.
    pub(super) fn views(&mut self) -> Parsed<(Vec<View>, bool)> {
        let mut views = Vec::new();
        let mut is_union = false;
        loop {
            let is_dotted = self.is_sign(".") && matches!(self.peek_at(2), Token::Sign(":"));
            if self.is_sign("#") || is_dotted {
                self.skip();
                views.push(self.view()?);
            } else if self.is_word("retain")
                && matches!(self.peek_at(1), Token::Sign("-"))
                && (self.is_word_at(2, "union") || self.is_word_at(2, "intersection"))
            {
                is_union = self.is_word_at(2, "union");
                self.at += 3;
            } else {
                return Ok((views, is_union));
            }
        }
    }

    fn view(&mut self) -> Parsed<View> {
        let place = self.here();
        let mut name = self
            .name("a window such as length, time or time_batch")?
            .text;
        if self.sign(":") {
            name = self
                .name("a window such as length, time or time_batch")?
                .text;
        }
        let arguments = match self.sign("(") {
            true => self.list(")", |parser| {
                let argument = parser.expr()?;
                let descending = parser.word("desc");
                if !descending {
                    parser.word("asc");
                }
                Ok((argument, descending))
            })?,
            false => Vec::new(),
        };
        let (arguments, descending) = arguments.into_iter().unzip();
        Ok(View {
            name: name.to_ascii_lowercase(),
            arguments,
            descending,
            place,
        })
    }
}
