//! `select` and its clauses.

use super::{Parsed, Parser};
use crate::epl::ast::{
    Amount, Expr, ExprKind, InsertInto, Item, Output, OutputKind, OutputWhen, Select, Step,
};
use crate::epl::token::Token;

impl Parser {
    /// `select … from …` with all its clauses.
    pub(super) fn select(&mut self) -> Parsed<Select> {
        let place = self.here();
        self.expect_word("select")?;
        let rows = self.rows().unwrap_or_default();
        let distinct = self.word("distinct");
        let items = self.items(Parser::item)?;
        let mut select = Select {
            rows,
            distinct,
            items,
            ..Select::empty(place)
        };
        if self.word("from") {
            select.sources = self.sources()?;
        }
        self.clauses(&mut select)?;
        Ok(select)
    }

    /// `insert [istream | rstream | irstream] into Name [(columns)]`.
    pub(super) fn insert_into(&mut self) -> Parsed<InsertInto> {
        self.expect_word("insert")?;
        let rows = self.rows().unwrap_or_default();
        self.expect_word("into")?;
        self.insert_target(rows)
    }

    pub(super) fn insert_target(&mut self, rows: crate::epl::ast::Rows) -> Parsed<InsertInto> {
        let (name, _) = self.type_name("the name of the stream, window or table")?;
        let columns = match self.sign("(") {
            true => self.list(")", |parser| parser.name("a column's name"))?,
            false => Vec::new(),
        };
        Ok(InsertInto {
            rows,
            name,
            columns,
        })
    }

    /// What follows the sources.
    pub(super) fn clauses(&mut self, select: &mut Select) -> Parsed<()> {
        if self.is_word("match_recognize") {
            self.skip();
            select.row_pattern = Some(Box::new(self.row_pattern()?));
        }
        select.filter = self.filter()?;
        if self.word("group") {
            self.expect_word("by")?;
            for unsupported in ["rollup", "cube", "grouping"] {
                if self.is_word(unsupported) {
                    return Err(self.here().error(format!(
                        "{unsupported} is not supported: add one statement per grouping"
                    )));
                }
            }
            select.group_by = self.items(Parser::expr)?;
        }
        if self.word("having") {
            select.having = Some(self.expr()?);
        }
        if self.is_word("output") {
            select.output = Some(self.output()?);
        }
        if self.word("order") {
            self.expect_word("by")?;
            select.order_by = self.items(|parser| {
                let key = parser.expr()?;
                let descending = parser.word("desc");
                if !descending {
                    parser.word("asc");
                }
                Ok((key, descending))
            })?;
        }
        if self.word("limit") {
            select.limit = Some(self.limit()?);
        }
        Ok(())
    }

    pub(super) fn filter(&mut self) -> Parsed<Option<Expr>> {
        match self.word("where") {
            true => self.expr().map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn item(&mut self) -> Parsed<Item> {
        let place = self.here();
        if self.is_sign("*") {
            self.skip();
            return Ok(Item::All(place));
        }
        let value = self.expr()?;
        if self.is_sign(".") && matches!(self.peek_at(1), Token::Sign("*")) {
            self.at += 2;
            let ExprKind::Path(steps) = &value.kind else {
                return Err(place.error("before .* stands the name of a source"));
            };
            let [Step::Name(name)] = steps.as_slice() else {
                return Err(place.error("before .* stands the name of a source"));
            };
            let source = crate::epl::ast::Ident {
                text: name.clone(),
                place,
            };
            return Ok(Item::AllOf(source, self.alias()?));
        }
        // `@eventbean` and the like say how rows are represented: here they are JSON.
        self.annotations()?;
        Ok(Item::Value(value, self.alias()?))
    }

    fn output(&mut self) -> Parsed<Output> {
        let place = self.here();
        self.skip();
        let after = match self.word("after") {
            true => Some(self.amount()?),
            false => None,
        };
        let mut kind = OutputKind::Default;
        for (word, found) in OUTPUT_KINDS {
            if self.word(word) {
                kind = *found;
                break;
            }
        }
        let when = if self.word("every") {
            Some(OutputWhen::Every(self.amount()?))
        } else if self.is_word("when") && self.is_word_at(1, "terminated") {
            None
        } else if self.word("when") {
            Some(OutputWhen::When(self.expr()?))
        } else if self.word("at") {
            self.expect_sign("(")?;
            Some(OutputWhen::At(self.list(")", Parser::schedule_part)?))
        } else {
            None
        };
        if when.is_some() && self.is_word("and") && self.is_word_at(1, "when") {
            self.skip();
        }
        let at_end = self.is_word("when") && self.is_word_at(1, "terminated");
        if at_end {
            self.at += 2;
        }
        if at_end && (self.is_word("and") || self.is_word("then")) {
            return Err(self.unexpected("when terminated has no further condition and no set"));
        }
        if when.is_none() && !at_end && (after.is_none() || kind != OutputKind::Default) {
            let hint = self.did_you_mean(&["every", "when", "all", "first", "last", "snapshot"]);
            return Err(self.unexpected(&format!(
                "write output [all | first | last | snapshot] every 10 sec, or every 5 \
                 events{hint}"
            )));
        }
        Ok(Output {
            place,
            after,
            kind,
            when,
            at_end,
        })
    }

    /// `5 events` or a time.
    fn amount(&mut self) -> Parsed<Amount> {
        if let Token::Int(count) = self.peek()
            && (self.is_word_at(1, "events") || self.is_word_at(1, "event"))
        {
            let count = u64::try_from(*count).unwrap_or(0);
            if count == 0 {
                return Err(self.here().error("a count of events is at least 1"));
            }
            self.at += 2;
            return Ok(Amount::Events(count));
        }
        // What `and` joins is no part of it.
        self.concatenation().map(Amount::Time)
    }

    /// A part of a schedule: a number, `*`, `*/5` or `1:5`.
    pub(super) fn schedule_part(&mut self) -> Parsed<Expr> {
        let place = self.here();
        if self.sign("*") {
            if !self.sign("/") {
                return Ok(Expr {
                    kind: ExprKind::Star,
                    place,
                });
            }
            let every = self.expr()?;
            let star = Expr {
                kind: ExprKind::Star,
                place,
            };
            let kind = ExprKind::Binary(
                crate::epl::ast::BinaryOperator::Divide,
                Box::new([star, every]),
            );
            return Ok(Expr { kind, place });
        }
        let part = self.expr()?;
        if self.sign(":") {
            let to = self.expr()?;
            let one = Expr {
                kind: ExprKind::Int(1),
                place,
            };
            return Ok(Expr {
                kind: ExprKind::Between(Box::new([one, part, to]), false),
                place,
            });
        }
        Ok(part)
    }

    fn limit(&mut self) -> Parsed<(u64, u64)> {
        let first = self.count("the number of rows")?;
        if self.word("offset") {
            return Ok((first, self.count("the number of rows to pass over")?));
        }
        if self.sign(",") {
            return Ok((self.count("the number of rows")?, first));
        }
        Ok((first, 0))
    }
}

const OUTPUT_KINDS: &[(&str, OutputKind)] = &[
    ("all", OutputKind::All),
    ("first", OutputKind::First),
    ("last", OutputKind::Last),
    ("snapshot", OutputKind::Snapshot),
];
