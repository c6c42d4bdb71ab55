//! Expressions, from the weakest binding to the strongest: or, and, not, equality, comparison
//! (with `in`, `between`, `like`, `regexp`), `||`, bits, sums, products, signs, values.

use super::{Parsed, Parser, is_reserved};
use crate::epl::CLOCK;
use crate::epl::ast::{BinaryOperator, Call, Choices, Expr, ExprKind, Step, UnaryOperator, Unit};
use crate::epl::token::Token;

impl Parser {
    /// One expression.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| {
            parser.chain(&[("or", BinaryOperator::Or)], |parser| {
                parser.chain(&[("and", BinaryOperator::And)], Parser::negation)
            })
        })
    }

    fn chain(
        &mut self,
        operators: &[(&str, BinaryOperator)],
        mut operand: impl FnMut(&mut Parser) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let mut left = operand(self)?;
        'more: loop {
            for (operator, kind) in operators {
                if self.sign(operator) || self.word(operator) {
                    left = binary(*kind, left, operand(self)?);
                    continue 'more;
                }
            }
            return Ok(left);
        }
    }

    fn negation(&mut self) -> Parsed<Expr> {
        let place = self.here();
        if !self.is_word("not") {
            return self.equality();
        }
        self.skip();
        let inner = self.deeper(Parser::negation)?;
        Ok(Expr {
            kind: ExprKind::Unary(UnaryOperator::Not, Box::new(inner)),
            place,
        })
    }

    fn equality(&mut self) -> Parsed<Expr> {
        let mut left = self.comparison()?;
        loop {
            let operator = match self.peek() {
                Token::Sign("=") => BinaryOperator::Equal,
                Token::Sign("!=" | "<>") => BinaryOperator::NotEqual,
                Token::Word(word) if word.eq_ignore_ascii_case("is") => {
                    self.skip();
                    let is_not = self.word("not");
                    if self.word("null") {
                        let place = left.place;
                        let kind = ExprKind::IsNull(Box::new(left), is_not);
                        left = Expr { kind, place };
                        continue;
                    }
                    let operator = if is_not {
                        BinaryOperator::IsNot
                    } else {
                        BinaryOperator::Is
                    };
                    left = binary(operator, left, self.comparison()?);
                    continue;
                }
                _ => return Ok(left),
            };
            self.skip();
            if matches!(self.peek(), Token::Sign("=")) {
                return Err(self.here().error("equality is one =, not two"));
            }
            left = match self.quantifier() {
                Some(joint) => self.quantified(operator, &left, joint)?,
                None => binary(operator, left, self.comparison()?),
            };
        }
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let mut left = self.concatenation()?;
        loop {
            let operator = match self.peek() {
                Token::Sign("<") => BinaryOperator::Less,
                Token::Sign("<=") => BinaryOperator::LessOrEqual,
                Token::Sign(">") => BinaryOperator::Greater,
                Token::Sign(">=") => BinaryOperator::GreaterOrEqual,
                _ => match self.word_comparison(left)? {
                    (left, false) => return Ok(left),
                    (compared, true) => {
                        left = compared;
                        continue;
                    }
                },
            };
            self.skip();
            left = match self.quantifier() {
                Some(joint) => self.quantified(operator, &left, joint)?,
                None => binary(operator, left, self.concatenation()?),
            };
        }
    }

    /// What joins the comparisons that `any (…)`, `some (…)` or `all (…)` stands for, when it is next.
    fn quantifier(&self) -> Option<BinaryOperator> {
        let is_called = matches!(self.peek_at(1), Token::Sign("("));
        let found = QUANTIFIERS.iter().find(|(word, _)| self.is_word(word));
        found.filter(|_| is_called).map(|(_, joint)| *joint)
    }

    /// `left = any (a, b)` is `left = a or left = b`.
    fn quantified(
        &mut self,
        operator: BinaryOperator,
        left: &Expr,
        joint: BinaryOperator,
    ) -> Parsed<Expr> {
        self.skip();
        self.expect_sign("(")?;
        if self.is_word("select") {
            return Err(self.here().error(
                "a subquery has no place here: write x in (select …), exists (select …), or compare \
                 with (select max(…) …)",
            ));
        }
        let mut compared = None;
        for choice in self.list(")", Parser::expr)? {
            let one = binary(operator, left.clone(), choice);
            compared = Some(match compared {
                None => one,
                Some(before) => binary(joint, before, one),
            });
        }
        compared.ok_or_else(|| self.unexpected("a value is missing before it"))
    }

    /// `[not] in`, `between`, `like` and `regexp`; false when none of them follows.
    fn word_comparison(&mut self, left: Expr) -> Parsed<(Expr, bool)> {
        let negated = self.is_word("not");
        let ahead = usize::from(negated);
        let Some(word) = COMPARING.iter().find(|word| self.is_word_at(ahead, word)) else {
            return Ok((left, false));
        };
        self.at += ahead + 1;
        let place = left.place;
        let left = Box::new(left);
        let kind = match *word {
            "in" => ExprKind::In(left, self.choices()?, negated),
            "between" => {
                let low = self.concatenation()?;
                self.expect_word("and")?;
                let high = self.concatenation()?;
                ExprKind::Between(Box::new([*left, low, high]), negated)
            }
            "like" => {
                let sides = Box::new([*left, self.concatenation()?]);
                let escape = match self.word("escape") {
                    true => Some(Box::new(self.primary()?)),
                    false => None,
                };
                ExprKind::Like(sides, escape, negated)
            }
            _ => ExprKind::Regexp(Box::new([*left, self.concatenation()?]), negated),
        };
        Ok((Expr { kind, place }, true))
    }

    fn choices(&mut self) -> Parsed<Choices> {
        let opened_with_bracket = self.is_sign("[");
        if !opened_with_bracket && !self.is_sign("(") {
            return Err(self.unexpected("after in, write (a, b, c) or a range [low:high]"));
        }
        self.skip();
        if self.is_word("select") {
            let select = self.deeper(Parser::select)?;
            self.expect_sign(")")?;
            return Ok(Choices::Subquery(Box::new(select)));
        }
        let first = self.expr()?;
        if self.sign(":") {
            let last = self.expr()?;
            let has_high = self.is_sign("]");
            if !has_high && !self.is_sign(")") {
                return Err(self.unexpected("a range ends with ] or )"));
            }
            self.skip();
            let ends = Box::new([first, last]);
            return Ok(Choices::Range {
                ends,
                has_low: opened_with_bracket,
                has_high,
            });
        }
        let mut choices = vec![first];
        while self.sign(",") {
            choices.push(self.expr()?);
        }
        self.expect_sign(if opened_with_bracket { "]" } else { ")" })?;
        Ok(Choices::List(choices))
    }

    /// What stands beside a comparison: `or` and `and` are no part of it.
    pub(super) fn concatenation(&mut self) -> Parsed<Expr> {
        self.chain(&[("||", BinaryOperator::Concat)], |parser| {
            let bits = [
                ("&", BinaryOperator::BitAnd),
                ("|", BinaryOperator::BitOr),
                ("^", BinaryOperator::BitXor),
            ];
            parser.chain(&bits, |parser| {
                let sums = [("+", BinaryOperator::Add), ("-", BinaryOperator::Subtract)];
                parser.chain(&sums, |parser| {
                    let products = [
                        ("*", BinaryOperator::Multiply),
                        ("/", BinaryOperator::Divide),
                        ("%", BinaryOperator::Remainder),
                    ];
                    parser.chain(&products, Parser::signed)
                })
            })
        })
    }

    fn signed(&mut self) -> Parsed<Expr> {
        let place = self.here();
        if self.sign("+") {
            return self.deeper(Parser::signed);
        }
        if !self.sign("-") {
            return self.primary();
        }
        let inner = self.deeper(Parser::signed)?;
        let kind = match inner.kind {
            ExprKind::Int(number) => ExprKind::Int(number.wrapping_neg()),
            ExprKind::Float(number) => ExprKind::Float(-number),
            _ => ExprKind::Unary(UnaryOperator::Minus, Box::new(inner)),
        };
        Ok(Expr { kind, place })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let place = self.here();
        let kind = match self.peek().clone() {
            Token::Int(number) => {
                self.skip();
                ExprKind::Int(number)
            }
            Token::Float(number) => {
                self.skip();
                ExprKind::Float(number)
            }
            Token::Text(text) => {
                self.skip();
                ExprKind::Text(text)
            }
            Token::Sign("(") => return self.bracketed(),
            Token::Sign("*") => {
                self.skip();
                ExprKind::Star
            }
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "null" => self.constant(ExprKind::Null),
                "true" => self.constant(ExprKind::Bool(true)),
                "false" => self.constant(ExprKind::Bool(false)),
                "case" => self.case()?,
                "cast" if matches!(self.peek_at(1), Token::Sign("(")) => self.cast()?,
                "exists" if self.is_word_at(2, "select") => {
                    self.at += 2;
                    let select = self.deeper(Parser::select)?;
                    self.expect_sign(")")?;
                    ExprKind::Exists(Box::new(select))
                }
                "exists" if matches!(self.peek_at(1), Token::Sign("(")) => self.path_or_call()?,
                "left" | "right" | "insert" if matches!(self.peek_at(1), Token::Sign("(")) => {
                    self.path_or_call()?
                }
                _ if is_reserved(&word) => {
                    return Err(self.unexpected("a value is missing before it"));
                }
                _ => self.path_or_call()?,
            },
            Token::Name(_) => self.path_or_call()?,
            _ => return Err(self.unexpected("a value is missing before it")),
        };
        self.period(Expr { kind, place })
    }

    fn constant(&mut self, kind: ExprKind) -> ExprKind {
        self.skip();
        kind
    }

    fn bracketed(&mut self) -> Parsed<Expr> {
        let place = self.here();
        self.skip();
        if self.is_word("select") {
            let select = self.deeper(Parser::select)?;
            self.expect_sign(")")?;
            return Ok(Expr {
                kind: ExprKind::Subquery(Box::new(select)),
                place,
            });
        }
        let inner = self.expr()?;
        self.expect_sign(")")?;
        self.period(inner)
    }

    /// A time when a unit follows the number: `1 min 30 sec`.
    fn period(&mut self, first: Expr) -> Parsed<Expr> {
        let place = first.place;
        let is_amount = matches!(
            first.kind,
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Path(_) | ExprKind::Binary(..)
        );
        let Some(unit) = self.unit().filter(|_| is_amount) else {
            return Ok(first);
        };
        self.skip();
        let mut parts = vec![(first, unit)];
        loop {
            let amount_place = self.here();
            let kind = match self.peek() {
                Token::Int(number) => ExprKind::Int(*number),
                Token::Float(number) => ExprKind::Float(*number),
                _ => break,
            };
            self.skip();
            let Some(unit) = self.unit() else {
                return Err(
                    self.unexpected("a unit of time (sec, min, hours …) is missing before it")
                );
            };
            self.skip();
            parts.push((
                Expr {
                    kind,
                    place: amount_place,
                },
                unit,
            ));
        }
        Ok(Expr {
            kind: ExprKind::Period(parts),
            place,
        })
    }

    fn unit(&self) -> Option<Unit> {
        let Token::Word(word) = self.peek() else {
            return None;
        };
        let word = word.to_ascii_lowercase();
        UNITS
            .iter()
            .find(|(names, _)| names.contains(&word.as_str()))
            .map(|(_, unit)| *unit)
    }

    fn case(&mut self) -> Parsed<ExprKind> {
        self.skip();
        let operand = match self.is_word("when") {
            true => None,
            false => Some(Box::new(self.expr()?)),
        };
        let mut branches = Vec::new();
        while self.word("when") {
            let condition = self.expr()?;
            self.expect_word("then")?;
            branches.push((condition, self.expr()?));
        }
        if branches.is_empty() {
            return Err(self.unexpected("case wants a when before it"));
        }
        let otherwise = match self.word("else") {
            true => Some(Box::new(self.expr()?)),
            false => None,
        };
        self.expect_word("end")?;
        Ok(ExprKind::Case {
            operand,
            branches,
            otherwise,
        })
    }

    fn cast(&mut self) -> Parsed<ExprKind> {
        self.at += 2;
        let value = self.expr()?;
        if !self.sign(",") {
            self.expect_word("as")
                .map_err(|_| self.unexpected("write cast(value, type)"))?;
        }
        let mut type_name = match self.peek() {
            Token::Word(word) | Token::Text(word) => word.to_ascii_lowercase(),
            _ => return Err(self.unexpected("a type such as long, double, string is missing")),
        };
        self.skip();
        while self.sign(".") {
            type_name = self.name("the type's name")?.text.to_ascii_lowercase();
        }
        self.expect_sign(")")?;
        Ok(ExprKind::Cast(Box::new(value), type_name))
    }

    /// `a.b[0]`, `f(x)`, `Math.abs(x)`, `a.b.lower()`.
    fn path_or_call(&mut self) -> Parsed<ExprKind> {
        let is_clock = self.is_word(CLOCK) && !matches!(self.peek_at(1), Token::Sign("("));
        let mut steps = vec![self.path_name()?];
        if is_clock {
            // The one function that is called without brackets too.
            let (path, then) = (steps, self.methods()?);
            return Ok(ExprKind::Call(Call {
                path,
                then,
                ..Call::default()
            }));
        }
        loop {
            if self.is_sign("(") {
                return self.call(steps);
            }
            if self.is_sign("[") && matches!(self.peek_at(1), Token::Int(_)) {
                self.skip();
                let index = self.count("an index")?;
                self.expect_sign("]")?;
                steps.push(Step::Index(index));
            } else if self.is_sign(".") && !matches!(self.peek_at(1), Token::Sign("*")) {
                self.skip();
                steps.push(self.path_name()?);
            } else {
                // `a?` is how optional fields are written: every field is optional here.
                self.sign("?");
                if !self.is_sign(".") || matches!(self.peek_at(1), Token::Sign("*")) {
                    return Ok(ExprKind::Path(steps));
                }
            }
        }
    }

    fn path_name(&mut self) -> Parsed<Step> {
        let name = match self.peek() {
            Token::Word(word) | Token::Name(word) => word.clone(),
            _ => return Err(self.unexpected("a name is missing before it")),
        };
        self.skip();
        Ok(Step::Name(name))
    }

    fn call(&mut self, path: Vec<Step>) -> Parsed<ExprKind> {
        if matches!(path.last(), Some(Step::Index(_))) {
            return Err(self.unexpected("only names are called"));
        }
        self.expect_sign("(")?;
        let distinct = self.word("distinct");
        let mut filter = None;
        let mut arguments = Vec::new();
        while !self.sign(")") {
            if !arguments.is_empty() && !self.sign(",") {
                return Err(self.unexpected("a ',' or ')' has to come before it"));
            }
            if self.is_word("filter") && matches!(self.peek_at(1), Token::Sign(":")) {
                self.at += 2;
                filter = Some(Box::new(self.expr()?));
                self.expect_sign(")")?;
                break;
            }
            arguments.push(self.argument()?);
        }
        let then = self.methods()?;
        Ok(ExprKind::Call(Call {
            path,
            distinct,
            arguments,
            filter,
            then,
        }))
    }

    /// What is asked of a call's value: `.a.lower()`.
    fn methods(&mut self) -> Parsed<Vec<(String, Option<Vec<Expr>>)>> {
        let mut then = Vec::new();
        while self.is_sign(".") && !matches!(self.peek_at(1), Token::Sign("*")) {
            self.skip();
            let Step::Name(name) = self.path_name()? else {
                return Err(self.unexpected("a name is missing before it"));
            };
            let arguments = match self.sign("(") {
                true => Some(self.list(")", Parser::expr)?),
                false => None,
            };
            then.push((name, arguments));
        }
        Ok(then)
    }

    /// An argument may be `*`, or `a.*`, which stands for the whole event.
    fn argument(&mut self) -> Parsed<Expr> {
        if self.is_sign("*") && matches!(self.peek_at(1), Token::Sign("," | ")")) {
            let place = self.here();
            self.skip();
            return Ok(Expr {
                kind: ExprKind::Star,
                place,
            });
        }
        let expr = self.expr()?;
        if self.is_sign(".") && matches!(self.peek_at(1), Token::Sign("*")) {
            self.at += 2;
        }
        Ok(expr)
    }
}

fn binary(operator: BinaryOperator, left: Expr, right: Expr) -> Expr {
    let place = left.place;
    Expr {
        kind: ExprKind::Binary(operator, Box::new([left, right])),
        place,
    }
}

const QUANTIFIERS: &[(&str, BinaryOperator)] = &[
    ("any", BinaryOperator::Or),
    ("some", BinaryOperator::Or),
    ("all", BinaryOperator::And),
];

const COMPARING: &[&str] = &["in", "between", "like", "regexp"];

const UNITS: &[(&[&str], Unit)] = &[
    (&["usec", "microsecond", "microseconds"], Unit::Microsecond),
    (&["msec", "millisecond", "milliseconds"], Unit::Millisecond),
    (&["sec", "second", "seconds"], Unit::Second),
    (&["min", "minute", "minutes"], Unit::Minute),
    (&["hour", "hours"], Unit::Hour),
    (&["day", "days"], Unit::Day),
    (&["week", "weeks"], Unit::Week),
    (&["month", "months"], Unit::Month),
    (&["year", "years"], Unit::Year),
];
