//! SQL expressions onto [`Expression`] trees.

use sqlparser::ast::{
    BinaryOperator, CastKind, CeilFloorKind, DataType, DateTimeField, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Spanned, TrimWhereField, UnaryOperator, Value as SqlValue,
    ValueWithSpan,
};
use sqlparser::tokenizer::Span;

use super::aggregates::{Grouping, aggregate_function};
use super::names::Names;
use super::{Checked, at};
use crate::expression::{Arithmetic, CastTo, Comparison, Expression, LikePattern};
use crate::functions::user::Binder;
use crate::functions::{SCALAR_FUNCTIONS, scalar_function};
use crate::limits::EXPRESSION_DEPTH_MAX;
use crate::plan::AGGREGATE_FUNCTIONS;
use crate::value::{OwnedValue, Value, parse_number};

/// Lowers an expression over one event.
pub fn lower(expr: &Expr, names: &mut Names) -> Checked<Expression> {
    Lower {
        names,
        grouping: None,
        depth: 0,
    }
    .expr(expr)
}

/// Lowers an expression over a group.
pub fn lower_grouped(
    expr: &Expr,
    names: &mut Names,
    grouping: &mut Grouping<'_>,
) -> Checked<Expression> {
    Lower {
        names,
        grouping: Some(grouping),
        depth: 0,
    }
    .expr(expr)
}

/// What a column without AS is called.
pub fn column_name(expr: &Expr, index: usize) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(idents) => idents
            .last()
            .map_or_else(String::new, |ident| ident.value.clone()),
        Expr::Nested(inner) => column_name(inner, index),
        Expr::Function(function) => {
            let name = function.name.to_string().to_ascii_lowercase();
            name.rsplit('.').next().unwrap_or_default().to_owned()
        }
        Expr::Cast { expr, .. } => column_name(expr, index),
        _ => format!("column{}", index + 1),
    }
}

/// The arguments of a call that has nothing but plain ones.
pub fn arguments(function: &Function) -> Checked<Vec<&Expr>> {
    let span = function.name.span();
    let list = match &function.args {
        FunctionArguments::None => return Ok(Vec::new()),
        FunctionArguments::List(list) => list,
        FunctionArguments::Subquery(_) => return Err(at(span, "subqueries are not supported")),
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        let message = format!(
            "{} takes plain arguments: no DISTINCT, no ORDER BY",
            function.name
        );
        return Err(at(span, message));
    }
    let mut arguments = Vec::with_capacity(list.args.len());
    for arg in &list.args {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
            _ => return Err(at(span, format!("{} takes plain values", function.name))),
        }
    }
    Ok(arguments)
}

/// The expressions directly below, of every kind that can be lowered.
pub fn children(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Nested(inner)
        | Expr::UnaryOp { expr: inner, .. }
        | Expr::Cast { expr: inner, .. }
        | Expr::Ceil { expr: inner, .. }
        | Expr::Floor { expr: inner, .. }
        | Expr::Trim { expr: inner, .. }
        | Expr::Extract { expr: inner, .. }
        | Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner)
        | Expr::Like { expr: inner, .. }
        | Expr::ILike { expr: inner, .. } => vec![inner],
        Expr::BinaryOp { left, right, .. } => vec![left, right],
        Expr::Position { expr, r#in } => vec![expr, r#in],
        Expr::Substring {
            expr,
            substring_from,
            substring_for,
            ..
        } => std::iter::once(&**expr)
            .chain(substring_from.as_deref())
            .chain(substring_for.as_deref())
            .collect(),
        Expr::Between {
            expr, low, high, ..
        } => vec![expr, low, high],
        Expr::InList { expr, list, .. } => std::iter::once(&**expr).chain(list).collect(),
        Expr::Case {
            operand,
            conditions,
            else_result,
            ..
        } => operand
            .iter()
            .map(|operand| &**operand)
            .chain(
                conditions
                    .iter()
                    .flat_map(|when| [&when.condition, &when.result]),
            )
            .chain(else_result.iter().map(|result| &**result))
            .collect(),
        Expr::Function(function) => arguments(function).unwrap_or_default(),
        _ => Vec::new(),
    }
}

struct Lower<'n, 'g, 'q> {
    names: &'n mut Names,
    grouping: Option<&'g mut Grouping<'q>>,
    depth: usize,
}

impl Lower<'_, '_, '_> {
    fn expr(&mut self, expr: &Expr) -> Checked<Expression> {
        self.depth += 1;
        if self.depth > EXPRESSION_DEPTH_MAX {
            let message = format!("the expression nests deeper than {EXPRESSION_DEPTH_MAX}");
            return Err(TextErrorAt::start(message));
        }
        let lowered = self.checked_expr(expr);
        self.depth -= 1;
        lowered
    }

    fn checked_expr(&mut self, expr: &Expr) -> Checked<Expression> {
        if let Some(key) = self.group_key(expr) {
            return Ok(key);
        }
        match expr {
            Expr::Nested(inner) => self.expr(inner),
            Expr::Identifier(ident) => self.name(std::slice::from_ref(ident), expr),
            Expr::CompoundIdentifier(idents) => self.name(idents, expr),
            Expr::Value(value) => literal(value).map(Expression::Literal),
            Expr::UnaryOp { op, expr: inner } => self.unary(op, inner, expr),
            Expr::BinaryOp { left, op, right } => self.binary(expr, left, op, right),
            Expr::Function(function) => self.function(function),
            Expr::IsNull(inner) => Ok(Expression::IsNull(self.boxed(inner)?)),
            Expr::IsNotNull(inner) => Ok(not(Expression::IsNull(self.boxed(inner)?))),
            Expr::IsTrue(inner) => Ok(Expression::IsTruth(self.boxed(inner)?, true)),
            Expr::IsNotTrue(inner) => Ok(not(Expression::IsTruth(self.boxed(inner)?, true))),
            Expr::IsFalse(inner) => Ok(Expression::IsTruth(self.boxed(inner)?, false)),
            Expr::IsNotFalse(inner) => Ok(not(Expression::IsTruth(self.boxed(inner)?, false))),
            Expr::InList {
                expr,
                list,
                negated,
            } => {
                let choices = self.all(list)?;
                Ok(not_if(*negated, Expression::In(self.boxed(expr)?, choices)))
            }
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let parts = Box::new([self.expr(expr)?, self.expr(low)?, self.expr(high)?]);
                Ok(not_if(*negated, Expression::Between(parts)))
            }
            Expr::Like {
                negated,
                any: false,
                expr: text,
                pattern,
                escape_char,
            }
            | Expr::ILike {
                negated,
                any: false,
                expr: text,
                pattern,
                escape_char,
            } => {
                let ignores_case = matches!(expr, Expr::ILike { .. });
                let pattern = like(pattern, escape_char.as_deref(), ignores_case)?;
                Ok(not_if(
                    *negated,
                    Expression::Like(self.boxed(text)?, pattern),
                ))
            }
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => {
                let mut branches = Vec::with_capacity(conditions.len());
                for when in conditions {
                    let condition = match operand {
                        None => self.expr(&when.condition)?,
                        Some(operand) => Expression::Compare(
                            Comparison::Equal,
                            Box::new([self.expr(operand)?, self.expr(&when.condition)?]),
                        ),
                    };
                    branches.push((condition, self.expr(&when.result)?));
                }
                let otherwise = match else_result {
                    None => None,
                    Some(result) => Some(self.boxed(result)?),
                };
                Ok(Expression::Case(branches, otherwise))
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::TryCast | CastKind::DoubleColon,
                expr,
                data_type,
                ..
            } => {
                let to = cast_to(data_type, expr.span())?;
                Ok(Expression::Cast(self.boxed(expr)?, to))
            }
            Expr::Ceil { expr, field } => self.rounding("ceil", expr, field),
            Expr::Floor { expr, field } => self.rounding("floor", expr, field),
            Expr::Substring { .. }
            | Expr::Trim { .. }
            | Expr::Position { .. }
            | Expr::Extract { .. } => self.worded(expr),
            Expr::CompoundFieldAccess { .. } => Err(at(
                expr.span(),
                "brackets are not supported: write a.b for field b of a",
            )),
            _ => Err(at(
                expr.span(),
                format!("'{}' is not supported", shortened(expr)),
            )),
        }
    }

    /// The group's key that the whole expression is, in a grouped statement.
    fn group_key(&mut self, expr: &Expr) -> Option<Expression> {
        let grouping = self.grouping.as_deref()?;
        if matches!(expr, Expr::Value(_)) || super::aggregates::find_aggregate(expr).is_some() {
            return None;
        }
        let mark = self.names.mark();
        let lowered = Lower {
            names: self.names,
            grouping: None,
            depth: self.depth,
        }
        .expr(expr);
        let place = lowered.ok().and_then(|lowered| grouping.key(&lowered));
        self.names.forget_after(mark);
        place.map(Expression::GroupKey)
    }

    fn name(&mut self, idents: &[sqlparser::ast::Ident], expr: &Expr) -> Checked<Expression> {
        let mark = self.names.mark();
        let resolved = self.names.resolve(idents)?;
        let Some(grouping) = self.grouping.as_deref() else {
            return Ok(resolved);
        };
        if matches!(resolved, Expression::WindowStart | Expression::WindowEnd) {
            return Ok(resolved);
        }
        self.names.forget_after(mark);
        if let [ident] = idents
            && let Some(aliased) = grouping.alias(&ident.value)
        {
            return self.expr(aliased);
        }
        Err(at(
            expr.span(),
            format!(
                "{expr} is neither grouped nor aggregated: add it to GROUP BY, or write \
                     last({expr})"
            ),
        ))
    }

    fn unary(&mut self, op: &UnaryOperator, inner: &Expr, expr: &Expr) -> Checked<Expression> {
        match op {
            UnaryOperator::Plus => self.expr(inner),
            UnaryOperator::Not => Ok(not(self.expr(inner)?)),
            UnaryOperator::Minus => Ok(match self.expr(inner)? {
                Expression::Literal(value @ (OwnedValue::Int(_) | OwnedValue::Float(_))) => {
                    Expression::Literal(owned(&value.as_value().negate()))
                }
                inner => Expression::Negate(Box::new(inner)),
            }),
            _ => Err(at(
                expr.span(),
                format!("the operator {op} is not supported"),
            )),
        }
    }

    fn binary(
        &mut self,
        expr: &Expr,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
    ) -> Checked<Expression> {
        let arithmetic = match op {
            BinaryOperator::And => return Ok(Expression::And(self.spine(expr, op)?)),
            BinaryOperator::Or => return Ok(Expression::Or(self.spine(expr, op)?)),
            BinaryOperator::StringConcat => {
                return Ok(Expression::Concat(self.spine(expr, op)?));
            }
            BinaryOperator::Plus => Arithmetic::Add,
            BinaryOperator::Minus => Arithmetic::Subtract,
            BinaryOperator::Multiply => Arithmetic::Multiply,
            BinaryOperator::Divide => Arithmetic::Divide,
            BinaryOperator::Modulo => Arithmetic::Remainder,
            _ => return self.comparison(left, op, right),
        };
        let sides = Box::new([self.expr(left)?, self.expr(right)?]);
        Ok(Expression::Arithmetic(arithmetic, sides))
    }

    fn comparison(
        &mut self,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
    ) -> Checked<Expression> {
        let comparison = match op {
            BinaryOperator::Eq => Comparison::Equal,
            BinaryOperator::NotEq => Comparison::NotEqual,
            BinaryOperator::Lt => Comparison::Less,
            BinaryOperator::LtEq => Comparison::LessOrEqual,
            BinaryOperator::Gt => Comparison::Greater,
            BinaryOperator::GtEq => Comparison::GreaterOrEqual,
            _ => {
                let message = format!(
                    "the operator {op} is not supported: use + - * / % || = <> < <= > >= AND OR \
                     NOT, and a.b for field b of a"
                );
                return Err(at(right.span(), message));
            }
        };
        let is_null = |side: &Expr| {
            matches!(
                side,
                Expr::Value(ValueWithSpan {
                    value: SqlValue::Null,
                    ..
                })
            )
        };
        if is_null(left) || is_null(right) {
            let message = "a comparison with NULL is never true: write IS NULL or IS NOT NULL";
            return Err(at(right.span(), message));
        }
        Ok(Expression::Compare(
            comparison,
            Box::new([self.expr(left)?, self.expr(right)?]),
        ))
    }

    /// The parts of a chain of one operator, without nesting once per part.
    fn spine(&mut self, expr: &Expr, wanted: &BinaryOperator) -> Checked<Vec<Expression>> {
        let mut parts = Vec::new();
        let mut rest = expr;
        while let Expr::BinaryOp { left, op, right } = rest
            && op == wanted
        {
            parts.push(&**right);
            rest = left;
        }
        parts.push(rest);
        parts
            .into_iter()
            .rev()
            .map(|part| self.expr(part))
            .collect()
    }

    fn function(&mut self, function: &Function) -> Checked<Expression> {
        let name = function.name.to_string().to_ascii_lowercase();
        let span = function.name.span();
        if let Some(aggregate) = aggregate_function(&name) {
            return match self.grouping.as_deref_mut() {
                Some(grouping) => grouping.aggregate(aggregate, function, self.names),
                None => Err(at(
                    span,
                    format!(
                        "{name} is an aggregate and has no place here: conditions on \
                             aggregates go into HAVING"
                    ),
                )),
            };
        }
        let plain = function.filter.is_none()
            && function.over.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty();
        if !plain {
            return Err(at(
                span,
                format!("{name} takes arguments only: no OVER, FILTER or WITHIN"),
            ));
        }
        let arguments = arguments(function)?;
        if name == "coalesce" || name == "concat" {
            if arguments.is_empty() {
                return Err(at(span, format!("{name} needs at least one argument")));
            }
            let arguments = arguments.into_iter().map(|arg| self.expr(arg));
            let arguments = arguments.collect::<Checked<Vec<_>>>()?;
            return Ok(match name.as_str() {
                "coalesce" => Expression::Coalesce(arguments),
                _ => Expression::Concat(arguments),
            });
        }
        let Some(scalar) = scalar_function(&name) else {
            return self.user_function(function, &name, &arguments);
        };
        let (least, most) = scalar.arguments;
        if !(least..=most).contains(&arguments.len()) {
            return Err(at(span, format!("{name} is written {}", scalar.usage)));
        }
        let arguments = arguments.into_iter().map(|arg| self.expr(arg));
        Ok(Expression::Call(scalar, arguments.collect::<Checked<_>>()?))
    }

    /// `module.function(…)`.
    #[inline(never)]
    fn user_function(
        &mut self,
        function: &Function,
        name: &str,
        arguments: &[&Expr],
    ) -> Checked<Expression> {
        let span = function.name.span();
        let lowered = arguments.iter().map(|argument| self.expr(argument));
        let lowered = lowered.collect::<Checked<Vec<_>>>()?;
        let called = name
            .split_once('.')
            .and_then(|(module, function)| self.names.binder.call(module, function, lowered));
        match called {
            Some(called) => called.map_err(|why| at(span, why)),
            None => Err(at(span, unknown_function(name, &self.names.binder))),
        }
    }

    fn rounding(&mut self, name: &str, expr: &Expr, field: &CeilFloorKind) -> Checked<Expression> {
        let CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) = field else {
            return Err(at(expr.span(), format!("{name} takes one number")));
        };
        let function = scalar_function(name).expect("ceil and floor stand in the table");
        Ok(Expression::Call(function, vec![self.expr(expr)?]))
    }

    /// The functions that SQL writes with words between their arguments. Apart, so that nesting
    /// other expressions takes no more stack.
    #[inline(never)]
    fn worded(&mut self, expr: &Expr) -> Checked<Expression> {
        match expr {
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => {
                let Some(from) = substring_from else {
                    return Err(at(
                        expr.span(),
                        "write SUBSTRING(text FROM place FOR characters)",
                    ));
                };
                let parts = [Some(expr), Some(from), substring_for.as_ref()];
                self.scalar("substring", parts.into_iter().flatten().map(|part| &**part))
            }
            Expr::Trim {
                expr,
                trim_where,
                trim_what: None,
                trim_characters: None,
            } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "trim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                self.scalar(name, [&**expr])
            }
            Expr::Position { expr, r#in } => {
                let found = self.scalar("index_of", [&**r#in, &**expr])?;
                let one = Expression::Literal(OwnedValue::Int(1));
                Ok(Expression::Arithmetic(
                    Arithmetic::Add,
                    Box::new([found, one]),
                ))
            }
            Expr::Extract { field, expr, .. } => {
                let field_name = field.to_string().to_ascii_lowercase();
                let name = match field_name.as_str() {
                    "dow" | "dayofweek" => "day_of_week",
                    known @ ("year" | "month" | "day" | "hour" | "minute" | "second") => known,
                    _ => {
                        let message = format!(
                            "EXTRACT takes YEAR, MONTH, DAY, DOW, HOUR, MINUTE or SECOND, not \
                             {field_name}"
                        );
                        return Err(at(expr.span(), message));
                    }
                };
                let part = self.scalar(name, [&**expr])?;
                if name != "day_of_week" {
                    return Ok(part);
                }
                // SQL counts days from Sunday as 0.
                let one = Expression::Literal(OwnedValue::Int(1));
                Ok(Expression::Arithmetic(
                    Arithmetic::Subtract,
                    Box::new([part, one]),
                ))
            }
            _ => Err(at(
                expr.span(),
                format!("'{}' is not supported", shortened(expr)),
            )),
        }
    }

    /// A function of the table that the parser writes in words of its own.
    fn scalar<'x>(
        &mut self,
        name: &str,
        arguments: impl IntoIterator<Item = &'x Expr>,
    ) -> Checked<Expression> {
        let function = scalar_function(name).expect("the function stands in the table");
        let arguments = arguments.into_iter().map(|argument| self.expr(argument));
        Ok(Expression::Call(
            function,
            arguments.collect::<Checked<_>>()?,
        ))
    }

    fn all(&mut self, exprs: &[Expr]) -> Checked<Vec<Expression>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&mut self, expr: &Expr) -> Checked<Box<Expression>> {
        self.expr(expr).map(Box::new)
    }
}

/// Errors whose place is not worth a walk over a deep tree.
struct TextErrorAt;

impl TextErrorAt {
    fn start(message: String) -> crate::error::TextError {
        crate::error::TextError {
            message,
            line: 1,
            column: 1,
        }
    }
}

fn not(inner: Expression) -> Expression {
    Expression::Not(Box::new(inner))
}

fn not_if(negated: bool, inner: Expression) -> Expression {
    if negated { not(inner) } else { inner }
}

fn literal(value: &ValueWithSpan) -> Checked<OwnedValue> {
    Ok(match &value.value {
        SqlValue::Number(text, _) => match parse_number(text) {
            Value::Null => return Err(at(value.span, format!("'{text}' is no number"))),
            number => owned(&number),
        },
        SqlValue::SingleQuotedString(text) => OwnedValue::Text(text.clone()),
        SqlValue::Boolean(truth) => OwnedValue::Bool(*truth),
        SqlValue::Null => OwnedValue::Null,
        other => {
            let message = format!("'{other}' is not supported: texts stand in single quotes");
            return Err(at(value.span, message));
        }
    })
}

fn owned(value: &Value<'_>) -> OwnedValue {
    let mut owned = OwnedValue::Null;
    owned.assign(value);
    owned
}

fn like(pattern: &Expr, escape: Option<&Expr>, ignore_case: bool) -> Checked<LikePattern> {
    let text = |expr: &Expr| match expr {
        Expr::Value(ValueWithSpan {
            value: SqlValue::SingleQuotedString(text),
            ..
        }) => Ok(text.clone()),
        other => Err(at(
            other.span(),
            "LIKE takes a text in single quotes, such as 'a%'",
        )),
    };
    let escape = match escape {
        None => None,
        Some(expr) => {
            let text = text(expr)?;
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(char), None) => Some(char),
                _ => return Err(at(expr.span(), "ESCAPE takes one character")),
            }
        }
    };
    Ok(LikePattern::new(&text(pattern)?, escape, ignore_case))
}

fn cast_to(data_type: &DataType, span: Span) -> Checked<CastTo> {
    let name = data_type.to_string().to_ascii_uppercase();
    let base = name.split('(').next().unwrap_or_default().trim();
    Ok(match base {
        "INT" | "INTEGER" | "BIGINT" | "SMALLINT" | "TINYINT" | "INT2" | "INT4" | "INT8"
        | "INT64" => CastTo::Int,
        "DOUBLE" | "DOUBLE PRECISION" | "FLOAT" | "REAL" | "FLOAT4" | "FLOAT8" | "FLOAT64"
        | "DECIMAL" | "NUMERIC" => CastTo::Float,
        "TEXT" | "VARCHAR" | "CHAR" | "CHARACTER VARYING" | "STRING" => CastTo::Text,
        "BOOLEAN" | "BOOL" => CastTo::Bool,
        _ => {
            let message = format!("no cast to {name}: there are BIGINT, DOUBLE, TEXT and BOOLEAN");
            return Err(at(span, message));
        }
    })
}

fn unknown_function(name: &str, binder: &Binder) -> String {
    let scalars = SCALAR_FUNCTIONS.iter().map(|function| function.name);
    let aggregates: Vec<&str> = AGGREGATE_FUNCTIONS.iter().map(|(name, _)| *name).collect();
    let known = scalars
        .chain(["coalesce", "concat"])
        .chain(aggregates.iter().copied());
    let hint = binder.modules().did_you_mean(name, known);
    format!(
        "there is no function {name}{hint}; the aggregates are {}",
        aggregates.join(", ")
    )
}

fn shortened(expr: &Expr) -> String {
    let text = expr.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// How much of an expression an error repeats.
const SHOWN_CHARS: usize = 60;
