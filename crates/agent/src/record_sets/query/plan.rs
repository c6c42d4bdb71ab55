//! From SQL's text to a plan; what is not supported is refused by name.

use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, LimitClause, OrderByKind,
    Query as SqlQuery, SelectItem, SetExpr, TableFactor, UnaryOperator, Value,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::aggregate::{self, Aggregate};
use super::functions::{self, Function};
use super::words::{kind, literal, operator, unsupported};
use super::{Item, Order, Query};
use crate::json::Json;

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Literal(Json),
    Field(Vec<String>),
    Aggregate(usize),
    /// A value of the result's row.
    Output(usize),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Box<Expr>, Operator, Box<Expr>),
    IsNull(Box<Expr>, bool),
    IsFlag(Box<Expr>, bool, bool),
    In(Box<Expr>, Vec<Expr>, bool),
    Like(Box<Expr>, Box<Expr>, bool),
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Cast(Box<Expr>, Kind),
    Call(&'static Function, Vec<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    And,
    Or,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Multiply,
    Divide,
    Modulo,
    Concat,
}

/// What a value is cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Fraction,
    Flag,
}

/// Reads a query.
pub(super) fn parse(text: &str) -> Result<Query, String> {
    let refused = |error: &dyn std::fmt::Display| format!("no SQL: {error}");
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize()
        .map_err(|error| refused(&error))?;
    if tokens.len() > TOKENS_MAX {
        return Err(format!(
            "the query has more than {TOKENS_MAX} words and signs"
        ));
    }
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_MAX)
        .with_tokens(tokens);
    let query = parser.parse_query().map_err(|error| refused(&error))?;
    while parser.consume_token(&Token::SemiColon) {}
    match parser.peek_token_ref().token {
        Token::EOF => plan(*query),
        ref other => Err(refused(&format!(
            "nothing may follow the SELECT, but {other} does"
        ))),
    }
}

fn plan(query: SqlQuery) -> Result<Query, String> {
    if query.with.is_some() || query.fetch.is_some() || !query.pipe_operators.is_empty() {
        return Err("WITH, FETCH and pipes are not supported".to_owned());
    }
    let SetExpr::Select(select) = *query.body else {
        return Err("UNION and its kin are not supported: the query must be a SELECT".to_owned());
    };
    let select = *select;
    let mut planner = Planner {
        table: table(&select.from)?,
        aggregates: Vec::new(),
        place: Place::Values,
    };
    let mut items = Vec::new();
    for item in select.projection {
        items.push(planner.item(item)?);
    }
    let filter = planner.condition(select.selection, Place::Where)?;
    let keys = match select.group_by {
        GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() => {
            planner.place = Place::Groups;
            let keys = keys.into_iter().map(|key| planner.by_alias(key, &items));
            keys.collect::<Result<Vec<_>, _>>()?
        }
        _ => return Err("GROUP BY ALL and its modifiers are not supported".to_owned()),
    };
    let having = planner.condition(select.having, Place::Values)?;
    let mut order = Vec::new();
    match query.order_by.map(|order| order.kind) {
        None => {}
        Some(OrderByKind::Expressions(all)) => {
            for one in all {
                order.push(planner.order(one, &items)?);
            }
        }
        Some(OrderByKind::All(_)) => return Err("ORDER BY ALL is not supported".to_owned()),
    }
    let (limit, offset) = bounds(query.limit_clause)?;
    let is_grouped = !keys.is_empty() || !planner.aggregates.is_empty() || having.is_some();
    Ok(Query {
        items,
        filter,
        groups: is_grouped.then_some(keys),
        aggregates: planner.aggregates,
        having,
        is_distinct: match select.distinct {
            None | Some(ast::Distinct::All) => false,
            Some(ast::Distinct::Distinct) => true,
            Some(_) => return Err("DISTINCT ON is not supported".to_owned()),
        },
        order,
        limit,
        offset,
    })
}

/// The names by which fields can be said to be of the table.
fn table(from: &[ast::TableWithJoins]) -> Result<Vec<String>, String> {
    let wanted = "the query must be FROM FLOWFILE".to_owned();
    let [table] = from else {
        return Err(wanted);
    };
    if !table.joins.is_empty() {
        return Err("joins are not supported".to_owned());
    }
    let TableFactor::Table { name, alias, .. } = &table.relation else {
        return Err(wanted);
    };
    if !name
        .to_string()
        .trim_matches('"')
        .eq_ignore_ascii_case(TABLE)
    {
        return Err(wanted);
    }
    let alias = alias.as_ref().map(|alias| alias.name.value.clone());
    Ok([TABLE.to_owned()].into_iter().chain(alias).collect())
}

fn bounds(clause: Option<LimitClause>) -> Result<(Option<u64>, u64), String> {
    let number = |expr: ast::Expr| -> Result<u64, String> {
        let text = expr.to_string();
        text.parse()
            .map_err(|_| format!("'{text}' is no number of rows"))
    };
    match clause {
        None => Ok((None, 0)),
        Some(LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        }) if limit_by.is_empty() => {
            let limit = limit.map(number).transpose()?;
            let offset = offset.map(|offset| number(offset.value)).transpose()?;
            Ok((limit, offset.unwrap_or(0)))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            Ok((Some(number(limit)?), number(offset)?))
        }
        Some(_) => Err("LIMIT BY is not supported".to_owned()),
    }
}

struct Planner {
    table: Vec<String>,
    aggregates: Vec<Aggregate>,
    place: Place,
}

/// Where an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Values,
    Where,
    Groups,
    Aggregate,
}

impl Planner {
    fn item(&mut self, item: SelectItem) -> Result<Item, String> {
        match item {
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => Ok(Item::All),
            SelectItem::UnnamedExpr(expr) => {
                let name = match &expr {
                    ast::Expr::Identifier(name) => name.value.clone(),
                    ast::Expr::CompoundIdentifier(names) => names
                        .last()
                        .map_or_else(String::new, |name| name.value.clone()),
                    other => other.to_string(),
                };
                Ok(Item::Value(name, self.expr(expr, 0)?))
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                Ok(Item::Value(alias.value, self.expr(expr, 0)?))
            }
            other => Err(unsupported(&other)),
        }
    }

    fn condition(&mut self, expr: Option<ast::Expr>, place: Place) -> Result<Option<Expr>, String> {
        self.place = place;
        let planned = expr.map(|expr| self.expr(expr, 0)).transpose();
        self.place = Place::Values;
        planned
    }

    /// An expression that may be the name or number of an item.
    fn by_alias(&mut self, expr: ast::Expr, items: &[Item]) -> Result<Expr, String> {
        match named_item(&expr, items) {
            Some(index) => match &items[index] {
                Item::Value(_, expr) => Ok(expr.clone()),
                Item::All => Err(unsupported(&expr)),
            },
            None => self.expr(expr, 0),
        }
    }

    fn order(&mut self, order: ast::OrderByExpr, items: &[Item]) -> Result<Order, String> {
        let is_descending = match order.options.sort {
            None | Some(ast::OrderBySort::Asc) => false,
            Some(ast::OrderBySort::Desc) => true,
            Some(_) => return Err("ORDER BY ... USING is not supported".to_owned()),
        };
        let key = match named_item(&order.expr, items) {
            Some(index) => Expr::Output(index),
            None => self.expr(order.expr, 0)?,
        };
        Ok(Order {
            key,
            is_descending,
            // Nothing counts as higher than anything, as in NiFi.
            nulls_first: order.options.nulls_first.unwrap_or(is_descending),
        })
    }

    fn boxed(&mut self, expr: ast::Expr, depth: usize) -> Result<Box<Expr>, String> {
        self.expr(expr, depth + 1).map(Box::new)
    }

    fn all(&mut self, exprs: Vec<ast::Expr>, depth: usize) -> Result<Vec<Expr>, String> {
        exprs
            .into_iter()
            .map(|expr| self.expr(expr, depth + 1))
            .collect()
    }

    fn expr(&mut self, expr: ast::Expr, depth: usize) -> Result<Expr, String> {
        if depth > DEPTH_MAX {
            return Err("the query is nested too deeply".to_owned());
        }
        use ast::Expr as Sql;
        Ok(match expr {
            Sql::Nested(inner) => self.expr(*inner, depth + 1)?,
            Sql::Identifier(name) => Expr::Field(vec![name.value]),
            Sql::CompoundIdentifier(names) => {
                Expr::Field(self.path(names.into_iter().map(|name| name.value).collect()))
            }
            Sql::Value(value) => Expr::Literal(literal(value.value)?),
            Sql::UnaryOp { op, expr } => match op {
                UnaryOperator::Plus => self.expr(*expr, depth + 1)?,
                UnaryOperator::Minus => Expr::Negate(self.boxed(*expr, depth)?),
                UnaryOperator::Not => Expr::Not(self.boxed(*expr, depth)?),
                other => return Err(unsupported(&other)),
            },
            Sql::BinaryOp { left, op, right } => {
                let operator = operator(&op)?;
                let left = self.boxed(*left, depth)?;
                Expr::Binary(left, operator, self.boxed(*right, depth)?)
            }
            Sql::IsNull(expr) => Expr::IsNull(self.boxed(*expr, depth)?, false),
            Sql::IsNotNull(expr) => Expr::IsNull(self.boxed(*expr, depth)?, true),
            Sql::IsTrue(expr) => Expr::IsFlag(self.boxed(*expr, depth)?, true, false),
            Sql::IsNotTrue(expr) => Expr::IsFlag(self.boxed(*expr, depth)?, true, true),
            Sql::IsFalse(expr) => Expr::IsFlag(self.boxed(*expr, depth)?, false, false),
            Sql::IsNotFalse(expr) => Expr::IsFlag(self.boxed(*expr, depth)?, false, true),
            Sql::InList {
                expr,
                list,
                negated,
            } => {
                let inner = self.boxed(*expr, depth)?;
                Expr::In(inner, self.all(list, depth)?, negated)
            }
            Sql::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let inner = self.boxed(*expr, depth)?;
                let (low, high) = (self.boxed(*low, depth)?, self.boxed(*high, depth)?);
                let above = Expr::Binary(inner.clone(), Operator::GreaterOrEqual, low);
                let below = Expr::Binary(inner, Operator::LessOrEqual, high);
                let both = Expr::Binary(Box::new(above), Operator::And, Box::new(below));
                if negated {
                    Expr::Not(Box::new(both))
                } else {
                    both
                }
            }
            Sql::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => {
                let inner = self.boxed(*expr, depth)?;
                Expr::Like(inner, self.boxed(*pattern, depth)?, negated)
            }
            Sql::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand, conditions, else_result, depth)?,
            Sql::Cast {
                expr, data_type, ..
            } => Expr::Cast(self.boxed(*expr, depth)?, kind(&data_type)?),
            other => self.call(other, depth)?,
        })
    }

    fn case(
        &mut self,
        operand: Option<Box<ast::Expr>>,
        conditions: Vec<ast::CaseWhen>,
        otherwise: Option<Box<ast::Expr>>,
        depth: usize,
    ) -> Result<Expr, String> {
        let operand = operand
            .map(|operand| self.boxed(*operand, depth))
            .transpose()?;
        let mut planned = Vec::new();
        for when in conditions {
            let condition = self.expr(when.condition, depth + 1)?;
            let condition = match &operand {
                None => condition,
                Some(operand) => {
                    Expr::Binary(operand.clone(), Operator::Equal, Box::new(condition))
                }
            };
            planned.push((condition, self.expr(when.result, depth + 1)?));
        }
        let otherwise = otherwise.map(|expr| self.boxed(*expr, depth)).transpose()?;
        Ok(Expr::Case(planned, otherwise))
    }

    /// What is a function, however it is written.
    fn call(&mut self, expr: ast::Expr, depth: usize) -> Result<Expr, String> {
        use ast::Expr as Sql;
        let (name, arguments) = match expr {
            Sql::Function(function) => return self.function(function, depth),
            Sql::Ceil { expr, .. } => ("ceil", vec![*expr]),
            Sql::Floor { expr, .. } => ("floor", vec![*expr]),
            Sql::Position { expr, r#in } => ("position", vec![*expr, *r#in]),
            Sql::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => {
                let one = ast::Expr::value(Value::Number("1".to_owned(), false));
                let from = substring_from.map_or(one, |from| *from);
                let len = substring_for.map(|len| *len);
                ("substring", [*expr, from].into_iter().chain(len).collect())
            }
            Sql::Trim {
                trim_where: None,
                trim_what: None,
                trim_characters: None,
                expr,
            } => ("trim", vec![*expr]),
            other => return Err(unsupported(&other)),
        };
        let function = functions::find(name).ok_or_else(|| format!("there is no {name}()"))?;
        Ok(Expr::Call(function, self.all(arguments, depth)?))
    }

    fn function(&mut self, call: ast::Function, depth: usize) -> Result<Expr, String> {
        let name = call.name.to_string().to_lowercase();
        if call.over.is_some() || call.filter.is_some() || !call.within_group.is_empty() {
            return Err(format!("windows and filters of {name}() are not supported"));
        }
        let FunctionArguments::List(list) = call.args else {
            return Err(format!("there is no function '{name}' without arguments"));
        };
        let is_distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let mut arguments = Vec::new();
        let mut is_all = false;
        for argument in list.args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => is_all = true,
                other => return Err(unsupported(&other)),
            }
        }
        if let Some(kind) = aggregate::Kind::named(&name) {
            let argument = match (arguments.len(), is_all, kind) {
                (0, true, aggregate::Kind::Count) => None,
                (1, false, _) => arguments.pop(),
                _ => return Err(format!("the aggregate {name}() takes one argument")),
            };
            return self.aggregate(kind, argument, is_distinct, depth);
        }
        let function =
            functions::find(&name).ok_or_else(|| format!("there is no function '{name}'"))?;
        let (least, most) = function.arguments;
        if is_all || !(least..=most).contains(&arguments.len()) {
            return Err(format!("{name}() takes {least} to {most} arguments"));
        }
        Ok(Expr::Call(function, self.all(arguments, depth)?))
    }

    fn aggregate(
        &mut self,
        kind: aggregate::Kind,
        argument: Option<ast::Expr>,
        is_distinct: bool,
        depth: usize,
    ) -> Result<Expr, String> {
        if self.place != Place::Values {
            return Err("an aggregate has no place in WHERE, GROUP BY or an aggregate".to_owned());
        }
        self.place = Place::Aggregate;
        let argument = argument
            .map(|expr| self.expr(expr, depth + 1))
            .transpose()?;
        self.place = Place::Values;
        self.aggregates.push(Aggregate {
            kind,
            argument,
            is_distinct,
        });
        Ok(Expr::Aggregate(self.aggregates.len() - 1))
    }

    fn path(&self, mut names: Vec<String>) -> Vec<String> {
        let is_table = |name: &String| self.table.iter().any(|own| own.eq_ignore_ascii_case(name));
        if names.len() > 1 && names.first().is_some_and(is_table) {
            names.remove(0);
        }
        names
    }
}

/// The item that an expression names by its alias, or by its number from one.
fn named_item(expr: &ast::Expr, items: &[Item]) -> Option<usize> {
    match expr {
        ast::Expr::Identifier(name) => items.iter().position(|item| match item {
            Item::Value(alias, _) => alias.eq_ignore_ascii_case(&name.value),
            Item::All => false,
        }),
        ast::Expr::Value(value) => match &value.value {
            Value::Number(number, _) => {
                let number: usize = number.parse().ok()?;
                (1..=items.len()).contains(&number).then(|| number - 1)
            }
            _ => None,
        },
        _ => None,
    }
}

const TABLE: &str = "FLOWFILE";

/// Words and signs of one query: bounds the depth of chains like `a AND b AND c`.
const TOKENS_MAX: usize = 2_000;

/// Depth of parentheses, as the parser counts it.
const RECURSION_MAX: usize = 50;

/// Depth of expressions.
const DEPTH_MAX: usize = 100;
