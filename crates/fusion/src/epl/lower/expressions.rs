//! EPL expressions onto [`Expression`] trees.
//!
//! Where EPL means something else than SQL, the tree says so: `/` is IEEE division (x/0 is
//! infinite), `is` knows null, a range's ends may stand the wrong way round, patterns take numbers.

use super::Checked;
use super::calls::{cast_value, pattern_text};
use super::names::Names;
use super::subqueries::Asked;
use crate::epl::ast::{BinaryOperator, Choices, Expr, ExprKind, UnaryOperator, Unit};
use crate::epl::token::Place;
use crate::expression::{
    Arithmetic, CastTo, Comparison, Expression, LikePattern, Scope, TextPattern,
};
use crate::limits::EXPRESSION_DEPTH_MAX;
use crate::plan::Aggregate;
use crate::value::{OwnedValue, Value};

/// Lowers expressions over the names of a statement.
pub struct Lower<'n> {
    /// The names.
    pub names: &'n mut Names,
    /// Where aggregates go; none where they have no place.
    pub aggregates: Option<&'n mut Vec<Aggregate>>,
    /// Whether names are variables of a row pattern.
    pub is_row_pattern: bool,
    /// How deep it is at the moment.
    pub depth: usize,
}

impl Lower<'_> {
    /// One expression.
    ///
    /// # Errors
    /// It names what is not there, or is not supported; the error points at it.
    pub fn expr(&mut self, expr: &Expr) -> Checked<Expression> {
        self.depth += 1;
        if self.depth > EXPRESSION_DEPTH_MAX {
            return Err(expr.place.error(format!(
                "the expression nests deeper than {EXPRESSION_DEPTH_MAX}: put brackets around \
                 parts of the chain, or name parts of it by insert into"
            )));
        }
        let lowered = self.lowered(expr);
        self.depth -= 1;
        lowered
    }

    fn lowered(&mut self, expr: &Expr) -> Checked<Expression> {
        Ok(match &expr.kind {
            ExprKind::Null => Expression::Literal(OwnedValue::Null),
            ExprKind::Bool(truth) => Expression::Literal(OwnedValue::Bool(*truth)),
            ExprKind::Int(number) => Expression::Literal(OwnedValue::Int(*number)),
            ExprKind::Float(number) => Expression::Literal(OwnedValue::Float(*number)),
            ExprKind::Text(text) => Expression::Literal(OwnedValue::Text(text.clone())),
            ExprKind::Period(parts) => self.period(parts)?,
            ExprKind::Path(path) => self.names.resolve(path, expr.place)?,
            ExprKind::Call(call) => self.call(call, expr.place)?,
            ExprKind::Star => return Err(expr.place.error("* has no place here")),
            ExprKind::Unary(UnaryOperator::Minus, inner) => Expression::Negate(self.boxed(inner)?),
            ExprKind::Unary(UnaryOperator::Not, inner) => not(self.expr(inner)?),
            ExprKind::Binary(operator, sides) => self.binary(*operator, expr, sides)?,
            ExprKind::IsNull(inner, negated) => {
                not_if(*negated, Expression::IsNull(self.boxed(inner)?))
            }
            ExprKind::In(inner, choices, negated) => self.membership(inner, choices, *negated)?,
            ExprKind::Between(parts, negated) => self.between(parts, *negated)?,
            ExprKind::Like(sides, escape, negated) => {
                let pattern = self.like(&sides[1], escape.as_deref())?;
                let text = pattern_text(self.expr(&sides[0])?, expr.place)?;
                not_if(*negated, Expression::Like(text, pattern))
            }
            ExprKind::Regexp(sides, negated) => {
                let pattern = self.regexp(&sides[1])?;
                let text = pattern_text(self.expr(&sides[0])?, expr.place)?;
                not_if(*negated, Expression::Regexp(text, pattern))
            }
            ExprKind::Case {
                operand,
                branches,
                otherwise,
            } => {
                let mut lowered = Vec::with_capacity(branches.len());
                for (condition, result) in branches {
                    let condition = match operand {
                        None => self.expr(condition)?,
                        Some(operand) => {
                            let sides = [self.expr(operand)?, self.expr(condition)?];
                            same(sides)
                        }
                    };
                    lowered.push((condition, self.expr(result)?));
                }
                let otherwise = match otherwise {
                    None => None,
                    Some(otherwise) => Some(self.boxed(otherwise)?),
                };
                Expression::Case(lowered, otherwise)
            }
            ExprKind::Cast(inner, type_name) => {
                let to = cast_to(type_name, expr.place)?;
                cast_value(self.expr(inner)?, to, expr.place)?
            }
            ExprKind::Subquery(select) => self.subquery(select, &Asked::Value, expr.place)?,
            ExprKind::Exists(select) => self.subquery(select, &Asked::Exists, expr.place)?,
        })
    }

    /// The condition of an ON: where it asks for equal fields, nulls are equal too.
    ///
    /// # Errors
    /// As [`Lower::expr`].
    pub fn matching(&mut self, expr: &Expr) -> Checked<Expression> {
        let mut parts = Vec::new();
        let mut rest = expr;
        while let ExprKind::Binary(BinaryOperator::And, sides) = &rest.kind {
            parts.push(&sides[1]);
            rest = &sides[0];
        }
        parts.push(rest);
        let mut lowered = Vec::with_capacity(parts.len());
        for part in parts.into_iter().rev() {
            lowered.push(match &part.kind {
                ExprKind::Binary(BinaryOperator::Equal, sides) => {
                    same([self.expr(&sides[0])?, self.expr(&sides[1])?])
                }
                _ => self.expr(part)?,
            });
        }
        Ok(Expression::And(lowered))
    }

    /// A constant's value.
    ///
    /// # Errors
    /// It reads an event.
    pub fn constant(&mut self, expr: &Expr, what: &str) -> Checked<OwnedValue> {
        let mut lowered = self.expr(expr)?;
        if reads_event(&mut lowered) {
            return Err(expr
                .place
                .error(format!("{what} is a constant: it reads no event")));
        }
        let mut value = OwnedValue::Null;
        value.assign(&lowered.evaluate(&Scope::empty()));
        Ok(value)
    }

    /// A time as milliseconds; a number is seconds.
    ///
    /// # Errors
    /// It is no constant, or out of bounds.
    pub fn millis(&mut self, expr: &Expr) -> Checked<u64> {
        let value = self.constant(expr, "a length of time")?;
        let seconds = value.as_value().as_f64();
        let millis = seconds.map(|seconds| (seconds * 1_000.0).round());
        match millis {
            Some(millis) if (0.0..=TIME_MS_MAX).contains(&millis) => Ok(millis as u64),
            _ => Err(expr
                .place
                .error("write a length of time such as 10 sec, up to 366 days")),
        }
    }

    /// A whole number above zero.
    ///
    /// # Errors
    /// It is none.
    pub fn count(&mut self, expr: &Expr, what: &str) -> Checked<u32> {
        match self.constant(expr, what)? {
            OwnedValue::Int(count) if count > 0 => u32::try_from(count)
                .map_err(|_| expr.place.error(format!("{what} is at most {}", u32::MAX))),
            _ => Err(expr
                .place
                .error(format!("{what} is a whole number above zero"))),
        }
    }

    pub(super) fn boxed(&mut self, expr: &Expr) -> Checked<Box<Expression>> {
        self.expr(expr).map(Box::new)
    }

    pub(super) fn all(&mut self, exprs: &[Expr]) -> Checked<Vec<Expression>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    /// Seconds.
    fn period(&mut self, parts: &[(Expr, Unit)]) -> Checked<Expression> {
        let mut sum: Option<Expression> = None;
        for (amount, unit) in parts {
            let factor = match unit {
                Unit::Microsecond => Value::Float(1e-6),
                Unit::Millisecond => Value::Float(1e-3),
                Unit::Second => Value::Int(1),
                Unit::Minute => Value::Int(60),
                Unit::Hour => Value::Int(3_600),
                Unit::Day => Value::Int(86_400),
                Unit::Week => Value::Int(7 * 86_400),
                Unit::Month | Unit::Year => {
                    return Err(amount
                        .place
                        .error("months and years differ in length: write the length in days"));
                }
            };
            let mut owned = OwnedValue::Null;
            owned.assign(&factor);
            let sides = [self.expr(amount)?, Expression::Literal(owned)];
            let part = Expression::Arithmetic(Arithmetic::Multiply, Box::new(sides));
            sum = Some(match sum {
                None => part,
                Some(sum) => Expression::Arithmetic(Arithmetic::Add, Box::new([sum, part])),
            });
        }
        Ok(sum.unwrap_or(Expression::Literal(OwnedValue::Int(0))))
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        expr: &Expr,
        sides: &[Expr; 2],
    ) -> Checked<Expression> {
        let arithmetic = match operator {
            BinaryOperator::And => return Ok(Expression::And(self.spine(expr, operator)?)),
            BinaryOperator::Or => return Ok(Expression::Or(self.spine(expr, operator)?)),
            BinaryOperator::Concat => return Ok(Expression::Concat(self.spine(expr, operator)?)),
            BinaryOperator::Add => Arithmetic::Add,
            BinaryOperator::Subtract => Arithmetic::Subtract,
            BinaryOperator::Multiply => Arithmetic::Multiply,
            BinaryOperator::Divide => Arithmetic::DivideIeee,
            BinaryOperator::Remainder => Arithmetic::Remainder,
            BinaryOperator::BitAnd => Arithmetic::BitAnd,
            BinaryOperator::BitOr => Arithmetic::BitOr,
            BinaryOperator::BitXor => Arithmetic::BitXor,
            _ => return self.comparison(operator, sides),
        };
        let sides = Box::new([self.expr(&sides[0])?, self.expr(&sides[1])?]);
        Ok(Expression::Arithmetic(arithmetic, sides))
    }

    fn comparison(&mut self, operator: BinaryOperator, sides: &[Expr; 2]) -> Checked<Expression> {
        let lowered = [self.expr(&sides[0])?, self.expr(&sides[1])?];
        let comparison = match operator {
            BinaryOperator::Is => return Ok(same(lowered)),
            BinaryOperator::IsNot => return Ok(not(same(lowered))),
            BinaryOperator::Equal => Comparison::Equal,
            BinaryOperator::NotEqual => Comparison::NotEqual,
            BinaryOperator::Less => Comparison::Less,
            BinaryOperator::LessOrEqual => Comparison::LessOrEqual,
            BinaryOperator::Greater => Comparison::Greater,
            _ => Comparison::GreaterOrEqual,
        };
        if let Some(side) = sides.iter().find(|side| side.kind == ExprKind::Null) {
            return Err(side
                .place
                .error("a comparison with null is never true: write is null or is not null"));
        }
        Ok(Expression::Compare(comparison, Box::new(lowered)))
    }

    /// The parts of a chain of one operator, without nesting once per part.
    fn spine(&mut self, expr: &Expr, wanted: BinaryOperator) -> Checked<Vec<Expression>> {
        let mut parts = Vec::new();
        let mut rest = expr;
        while let ExprKind::Binary(operator, sides) = &rest.kind
            && *operator == wanted
        {
            parts.push(&sides[1]);
            rest = &sides[0];
        }
        parts.push(rest);
        parts
            .into_iter()
            .rev()
            .map(|part| self.expr(part))
            .collect()
    }

    fn membership(
        &mut self,
        inner: &Expr,
        choices: &Choices,
        negated: bool,
    ) -> Checked<Expression> {
        match choices {
            Choices::List(list) => {
                let list = self.all(list)?;
                Ok(not_if(negated, Expression::In(self.boxed(inner)?, list)))
            }
            Choices::Range {
                ends,
                has_low,
                has_high,
            } => {
                let low = if *has_low {
                    Comparison::GreaterOrEqual
                } else {
                    Comparison::Greater
                };
                let high = if *has_high {
                    Comparison::LessOrEqual
                } else {
                    Comparison::Less
                };
                let value = self.expr(inner)?;
                let (from, to) = (self.expr(&ends[0])?, self.expr(&ends[1])?);
                let within = Expression::And(vec![
                    Expression::Compare(low, Box::new([value.clone(), from])),
                    Expression::Compare(high, Box::new([value, to])),
                ]);
                Ok(known_truth(within, negated))
            }
            Choices::Subquery(select) => {
                let found = self.subquery(select, &Asked::In(inner), inner.place)?;
                Ok(not_if(negated, found))
            }
        }
    }

    /// Either end may be the greater one.
    fn between(&mut self, parts: &[Expr; 3], negated: bool) -> Checked<Expression> {
        let [value, low, high] = [&parts[0], &parts[1], &parts[2]].map(|part| self.expr(part));
        let (value, low, high) = (value?, low?, high?);
        let either = Expression::Or(vec![
            Expression::Between(Box::new([value.clone(), low.clone(), high.clone()])),
            Expression::Between(Box::new([value, high, low])),
        ]);
        Ok(known_truth(either, negated))
    }

    fn like(&mut self, pattern: &Expr, escape: Option<&Expr>) -> Checked<LikePattern> {
        let escape = match escape {
            None => Some('\\'),
            // With none in the quotes every sign stands for itself.
            Some(expr) => match &expr.kind {
                ExprKind::Text(text) if text.chars().count() <= 1 => text.chars().next(),
                _ => return Err(expr.place.error("escape takes one character in quotes")),
            },
        };
        match self.constant(pattern, "the pattern of like")? {
            OwnedValue::Text(text) => Ok(LikePattern::new(&text, escape, false)),
            _ => Err(pattern
                .place
                .error("like takes a text in quotes, such as 'a%'")),
        }
    }

    pub(super) fn regexp(&mut self, pattern: &Expr) -> Checked<TextPattern> {
        match self.constant(pattern, "the pattern of regexp")? {
            OwnedValue::Text(text) => TextPattern::new(&text).map_err(|why| {
                pattern
                    .place
                    .error(format!("this is no regular expression: {why}"))
            }),
            _ => Err(pattern
                .place
                .error("regexp takes a text in quotes, such as '[a-z]+'")),
        }
    }
}

/// `not x`.
pub fn not(inner: Expression) -> Expression {
    Expression::Not(Box::new(inner))
}

/// Whether anything of an event, group or window is read.
fn reads_event(expression: &mut Expression) -> bool {
    let mut found = matches!(
        expression,
        Expression::Field(_)
            | Expression::Pseudo(_)
            | Expression::GroupKey(_)
            | Expression::Aggregate(_)
            | Expression::WindowStart
            | Expression::WindowEnd
    );
    expression.for_each_child(&mut |child| found |= reads_event(child));
    found
}

fn not_if(negated: bool, inner: Expression) -> Expression {
    if negated { not(inner) } else { inner }
}

/// Equal, or both null.
fn same(sides: [Expression; 2]) -> Expression {
    let nulls = sides.clone().map(|side| Expression::IsNull(Box::new(side)));
    let equal = Expression::Compare(Comparison::Equal, Box::new(sides));
    Expression::Or(vec![
        Expression::And(nulls.into()),
        Expression::IsTruth(Box::new(equal), true),
    ])
}

/// False instead of unknown; negated, still false.
fn known_truth(inner: Expression, negated: bool) -> Expression {
    Expression::IsTruth(Box::new(inner), !negated)
}

fn cast_to(type_name: &str, place: Place) -> Checked<CastTo> {
    Ok(match type_name {
        "int" | "integer" | "long" | "short" | "byte" | "biginteger" => CastTo::Int,
        "double" | "float" | "bigdecimal" => CastTo::Float,
        "string" => CastTo::Text,
        "bool" | "boolean" => CastTo::Bool,
        _ => {
            return Err(place.error(format!(
                "no cast to {type_name}: there are int, long, double, string and boolean"
            )));
        }
    })
}

/// 366 days.
const TIME_MS_MAX: f64 = 366.0 * 86_400_000.0;
