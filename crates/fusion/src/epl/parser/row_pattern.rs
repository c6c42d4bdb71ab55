//! `match_recognize (…)`.

use super::{Parsed, Parser};
use crate::epl::ast::{RowPattern, RowRegex, Skip};
use crate::epl::token::Token;

impl Parser {
    /// What follows MATCH_RECOGNIZE.
    pub(super) fn row_pattern(&mut self) -> Parsed<RowPattern> {
        self.expect_sign("(")?;
        let partition_by = match self.words("partition", "by") {
            true => self.items(Parser::expr)?,
            false => Vec::new(),
        };
        self.expect_word("measures")?;
        let measures = self.items(|parser| {
            let value = parser.expr()?;
            match parser.alias()? {
                Some(name) => Ok((value, name)),
                None => Err(parser.unexpected("a measure needs a name: write … as name")),
            }
        })?;
        let all_matches = self.words("all", "matches");
        let skip = match self.words("after", "match") {
            true => self.after_match()?,
            false => Skip::PastLast,
        };
        self.expect_word("pattern")?;
        self.expect_sign("(")?;
        let pattern = self.row_choice()?;
        self.expect_sign(")")?;
        let interval = match self.word("interval") {
            true => {
                let time = self.concatenation()?;
                Some((time, self.words("or", "terminated")))
            }
            false => None,
        };
        let defines = match self.word("define") {
            true => self.items(|parser| {
                let variable = parser.name("a variable of the pattern")?;
                parser.expect_word("as")?;
                Ok((variable, parser.expr()?))
            })?,
            false => Vec::new(),
        };
        self.expect_sign(")")?;
        Ok(RowPattern {
            partition_by,
            measures,
            all_matches,
            skip,
            pattern,
            interval,
            defines,
        })
    }

    fn after_match(&mut self) -> Parsed<Skip> {
        self.expect_word("skip")?;
        if self.word("past") {
            self.expect_word("last")?;
            self.expect_word("row")?;
            return Ok(Skip::PastLast);
        }
        self.expect_word("to")?;
        let skip = if self.word("next") {
            Skip::ToNext
        } else if self.word("current") {
            Skip::ToCurrent
        } else {
            return Err(self.unexpected(
                "write after match skip past last row, to next row or to current row",
            ));
        };
        self.expect_word("row")?;
        Ok(skip)
    }

    fn row_choice(&mut self) -> Parsed<RowRegex> {
        self.deeper(|parser| {
            let mut choices = vec![parser.row_sequence()?];
            while parser.sign("|") {
                choices.push(parser.row_sequence()?);
            }
            Ok(match choices.len() {
                1 => choices.remove(0),
                _ => RowRegex::Choice(choices),
            })
        })
    }

    fn row_sequence(&mut self) -> Parsed<RowRegex> {
        let mut parts = Vec::new();
        while matches!(
            self.peek(),
            Token::Word(_) | Token::Name(_) | Token::Sign("(")
        ) {
            parts.push(self.row_repeat()?);
        }
        match parts.len() {
            0 => Err(self.unexpected("a variable of the pattern is missing before it")),
            1 => Ok(parts.remove(0)),
            _ => Ok(RowRegex::Sequence(parts)),
        }
    }

    fn row_repeat(&mut self) -> Parsed<RowRegex> {
        let inner = if self.sign("(") {
            let inner = self.row_choice()?;
            self.expect_sign(")")?;
            inner
        } else {
            RowRegex::Variable(self.name("a variable of the pattern")?)
        };
        let (least, most) = if self.sign("*") {
            (0, None)
        } else if self.sign("+") {
            (1, None)
        } else if self.sign("?") {
            (0, Some(1))
        } else if self.sign("{") {
            self.row_range()?
        } else {
            return Ok(inner);
        };
        let greedy = !self.sign("?");
        Ok(RowRegex::Repeat {
            inner: Box::new(inner),
            least,
            most,
            greedy,
        })
    }

    /// `n}`, `n, m}`, `n, }`, `, m}`.
    fn row_range(&mut self) -> Parsed<(u32, Option<u32>)> {
        let place = self.here();
        let least = match self.is_sign(",") {
            true => 0,
            false => self.count("how often")?,
        };
        let most = if !self.sign(",") {
            Some(least)
        } else if self.is_sign("}") {
            None
        } else {
            Some(self.count("how often")?)
        };
        self.expect_sign("}")?;
        let small = |count: u64| {
            u32::try_from(count)
                .ok()
                .filter(|count| *count <= REPEAT_MAX)
        };
        let is_range = most.is_none_or(|most| most >= least && most > 0);
        match (small(least), most.map(small)) {
            (Some(least), None) => Ok((least, None)),
            (Some(least), Some(Some(most))) if is_range => Ok((least, Some(most))),
            _ => Err(place.error(format!(
                "write how often as {{least, most}}, both at most {REPEAT_MAX}"
            ))),
        }
    }
}

/// Most repeats that a row pattern counts: each is a state of the matcher.
const REPEAT_MAX: u32 = 1_000;
