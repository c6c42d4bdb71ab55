//! Patterns of events, from the weakest binding to the strongest: `->`, `or`, `and`, repeats and
//! `until`, `every` and `not`, guards (`where timer:within`), single events.

use super::{Parsed, Parser};
use crate::epl::ast::{ExprKind, Ident, Pattern};
use crate::epl::token::Token;

impl Parser {
    /// A whole pattern.
    pub(super) fn pattern(&mut self) -> Parsed<Pattern> {
        self.deeper(|parser| {
            let mut steps = vec![parser.or_pattern()?];
            loop {
                if parser.is_sign("-") && matches!(parser.peek_at(1), Token::Sign("[")) {
                    return Err(parser
                        .here()
                        .error("-[n]> is not supported: write -> and bound it by timer:within"));
                }
                if !parser.sign("->") {
                    break;
                }
                steps.push(parser.or_pattern()?);
            }
            Ok(one_or(steps, Pattern::FollowedBy))
        })
    }

    fn or_pattern(&mut self) -> Parsed<Pattern> {
        let mut choices = vec![self.and_pattern()?];
        while self.word("or") {
            choices.push(self.and_pattern()?);
        }
        Ok(one_or(choices, Pattern::Or))
    }

    fn and_pattern(&mut self) -> Parsed<Pattern> {
        let mut parts = vec![self.repeat()?];
        while self.word("and") {
            parts.push(self.repeat()?);
        }
        Ok(one_or(parts, Pattern::And))
    }

    fn repeat(&mut self) -> Parsed<Pattern> {
        let range = self.range()?;
        let inner = self.qualified()?;
        let until = match self.word("until") {
            true => Some(Box::new(self.qualified()?)),
            false => None,
        };
        Ok(match (range, until) {
            (None, None) => inner,
            (range, until) => {
                let (least, most) = range.unwrap_or_default();
                Pattern::Repeat {
                    least,
                    most,
                    inner: Box::new(inner),
                    until,
                }
            }
        })
    }

    /// `[3]`, `[1:3]`, `[:3]`, `[1:]`.
    fn range(&mut self) -> Parsed<Option<(Option<u64>, Option<u64>)>> {
        let place = self.here();
        if !self.sign("[") {
            return Ok(None);
        }
        let least = match self.is_sign(":") {
            true => None,
            false => Some(self.count("how often")?),
        };
        let most = if !self.sign(":") {
            least
        } else if self.is_sign("]") {
            None
        } else {
            Some(self.count("how often")?)
        };
        self.expect_sign("]")?;
        match (least, most) {
            (_, Some(0)) => Err(place.error("a repeat happens at least once")),
            (Some(least), Some(most)) if least > most => {
                Err(place.error(format!("[{least}:{most}] has its ends the wrong way round")))
            }
            range => Ok(Some(range)),
        }
    }

    fn qualified(&mut self) -> Parsed<Pattern> {
        self.deeper(|parser| {
            if parser.is_word("every") && matches!(parser.peek_at(1), Token::Sign("-")) {
                parser.at += 2;
                parser.expect_word("distinct")?;
                parser.expect_sign("(")?;
                let keys = parser.list(")", Parser::expr)?;
                return Ok(Pattern::EveryDistinct(keys, Box::new(parser.repeat()?)));
            }
            if parser.word("every") {
                return Ok(Pattern::Every(Box::new(parser.qualified_repeat()?)));
            }
            if parser.word("not") {
                return Ok(Pattern::Not(Box::new(parser.qualified_repeat()?)));
            }
            parser.guarded()
        })
    }

    /// What `every` and `not` apply to: a range may stand before it.
    fn qualified_repeat(&mut self) -> Parsed<Pattern> {
        let Some((least, most)) = self.range()? else {
            return self.qualified();
        };
        let inner = Box::new(self.qualified()?);
        let until = match self.word("until") {
            true => Some(Box::new(self.qualified()?)),
            false => None,
        };
        Ok(Pattern::Repeat {
            least,
            most,
            inner,
            until,
        })
    }

    fn guarded(&mut self) -> Parsed<Pattern> {
        let mut pattern = self.single()?;
        loop {
            if self.is_word("while") && matches!(self.peek_at(1), Token::Sign("(")) {
                self.at += 2;
                let condition = self.expr()?;
                self.expect_sign(")")?;
                pattern = Pattern::While(Box::new(pattern), condition);
            } else if self.is_word("where") {
                self.skip();
                pattern = self.guard(pattern)?;
            } else {
                return Ok(pattern);
            }
        }
    }

    fn guard(&mut self, pattern: Pattern) -> Parsed<Pattern> {
        let place = self.here();
        let is_bounded = self.timer("withinmax");
        if !is_bounded && !self.timer("within") {
            return Err(place.error("a pattern's where takes timer:within(10 sec)"));
        }
        let mut arguments = self.list(")", Parser::expr)?.into_iter();
        let expected = if is_bounded { 2 } else { 1 };
        let (count, time) = (arguments.len(), arguments.next());
        let Some(time) = time.filter(|_| count == expected) else {
            return Err(place.error("write timer:within(10 sec), or timer:withinmax(10 sec, 5)"));
        };
        let most = match arguments.next().map(|most| (most.kind, most.place)) {
            None => None,
            Some((ExprKind::Int(most), _)) if most > 0 => u64::try_from(most).ok(),
            Some((_, place)) => {
                return Err(place.error("how many matches is a whole number above zero"));
            }
        };
        Ok(Pattern::Within(Box::new(pattern), time, most))
    }

    /// Takes `timer:name(` when it is next.
    fn timer(&mut self, name: &str) -> bool {
        let found = self.is_word("timer")
            && matches!(self.peek_at(1), Token::Sign(":"))
            && self.is_word_at(2, name)
            && matches!(self.peek_at(3), Token::Sign("("));
        self.at += if found { 4 } else { 0 };
        found
    }

    fn single(&mut self) -> Parsed<Pattern> {
        if self.sign("(") {
            let pattern = self.pattern()?;
            self.expect_sign(")")?;
            return Ok(pattern);
        }
        let place = self.here();
        if self.timer("interval") {
            let mut arguments = self.list(")", Parser::expr)?.into_iter();
            return match (arguments.next(), arguments.next()) {
                (Some(time), None) => Ok(Pattern::Interval(time)),
                _ => Err(place.error("write timer:interval(10 sec)")),
            };
        }
        if self.timer("at") {
            return Ok(Pattern::At(self.list(")", Parser::schedule_part)?));
        }
        if self.is_word("timer") && matches!(self.peek_at(1), Token::Sign(":")) {
            return Err(place.error("the timers are timer:interval(10 sec) and timer:at(…)"));
        }
        let tag: Option<Ident> = match self.peek_at(1) {
            Token::Sign("=") => {
                let tag = self.name("a name for the event")?;
                self.skip();
                Some(tag)
            }
            _ => None,
        };
        Ok(Pattern::Filter(tag, self.stream()?))
    }
}

fn one_or(mut parts: Vec<Pattern>, many: fn(Vec<Pattern>) -> Pattern) -> Pattern {
    match (parts.len(), parts.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            parts.extend(last);
            many(parts)
        }
    }
}
