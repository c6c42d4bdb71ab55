//! The syntax tree of expressions.

use super::Select;
use crate::epl::token::Place;

/// An expression and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it begins.
    pub place: Place,
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `null`.
    Null,
    /// `true` and `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// A time: `1 min 30 sec`, in seconds per unit.
    Period(Vec<(Expr, Unit)>),
    /// `a.b[0].c`.
    Path(Vec<Step>),
    /// `f(x)`.
    Call(Call),
    /// `*` as an argument.
    Star,
    /// `-x`, `not x`.
    Unary(UnaryOperator, Box<Expr>),
    /// `a + b`.
    Binary(BinaryOperator, Box<[Expr; 2]>),
    /// `x is null`; true for `is not null`.
    IsNull(Box<Expr>, bool),
    /// `x in (a, b)` or `x in [a:b]`; true for `not in`.
    In(Box<Expr>, Choices, bool),
    /// `x between a and b`; true for `not between`.
    Between(Box<[Expr; 3]>, bool),
    /// `x like 'a%' escape '!'`; true for `not like`.
    Like(Box<[Expr; 2]>, Option<Box<Expr>>, bool),
    /// `x regexp '[a-z]'`; true for `not regexp`.
    Regexp(Box<[Expr; 2]>, bool),
    /// `case …`.
    Case {
        /// What WHENs are compared with.
        operand: Option<Box<Expr>>,
        /// Conditions and results.
        branches: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// `cast(x, long)`; the type in lower case.
    Cast(Box<Expr>, String),
    /// `(select …)`.
    Subquery(Box<Select>),
    /// `exists (select …)`.
    Exists(Box<Select>),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A name.
    Name(String),
    /// `[0]`.
    Index(u64),
}

/// What `in` looks through.
#[derive(Clone, Debug, PartialEq)]
pub enum Choices {
    /// A list of values.
    List(Vec<Expr>),
    /// `[a:b]`, `(a:b]`, …
    Range {
        /// Both ends.
        ends: Box<[Expr; 2]>,
        /// Whether the low end is in it.
        has_low: bool,
        /// Whether the high end is.
        has_high: bool,
    },
    /// A subquery.
    Subquery(Box<Select>),
}

/// A call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// The function's name as it is written; before it, a namespace or what its method is called
    /// on.
    pub path: Vec<Step>,
    /// `distinct` before the arguments.
    pub distinct: bool,
    /// The arguments.
    pub arguments: Vec<Expr>,
    /// `filter: condition`.
    pub filter: Option<Box<Expr>>,
    /// What `.name` and `.name(…)` after the call ask for.
    pub then: Vec<(String, Option<Vec<Expr>>)>,
}

/// Units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A thousandth of a millisecond.
    Microsecond,
    /// A thousandth of a second.
    Millisecond,
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// Seven days.
    Week,
    /// A calendar month.
    Month,
    /// A calendar year.
    Year,
}

/// Operators on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    /// `-`.
    Minus,
    /// `not`.
    Not,
}

/// Operators on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    /// `or`.
    Or,
    /// `and`.
    And,
    /// `=`.
    Equal,
    /// `!=` and `<>`.
    NotEqual,
    /// `is`: as `=`, and null is null.
    Is,
    /// `is not`.
    IsNot,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `||`.
    Concat,
    /// `&`.
    BitAnd,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `%`.
    Remainder,
}

impl Expr {
    /// The expressions directly below.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Null
            | ExprKind::Bool(_)
            | ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Text(_)
            | ExprKind::Path(_)
            | ExprKind::Star
            | ExprKind::Subquery(_)
            | ExprKind::Exists(_) => Vec::new(),
            ExprKind::Period(parts) => parts.iter().map(|(amount, _)| amount).collect(),
            ExprKind::Call(call) => {
                let then = call
                    .then
                    .iter()
                    .filter_map(|(_, arguments)| arguments.as_ref());
                call.arguments
                    .iter()
                    .chain(call.filter.as_deref())
                    .chain(then.flatten())
                    .collect()
            }
            ExprKind::Unary(_, inner) | ExprKind::IsNull(inner, _) | ExprKind::Cast(inner, _) => {
                vec![inner]
            }
            ExprKind::Binary(_, sides) | ExprKind::Regexp(sides, _) => sides.iter().collect(),
            ExprKind::Like(sides, escape, _) => sides.iter().chain(escape.as_deref()).collect(),
            ExprKind::Between(parts, _) => parts.iter().collect(),
            ExprKind::In(inner, choices, _) => {
                let choices: &[Expr] = match choices {
                    Choices::List(list) => list,
                    Choices::Range { ends, .. } => ends.as_slice(),
                    Choices::Subquery(_) => &[],
                };
                std::iter::once(&**inner).chain(choices).collect()
            }
            ExprKind::Case {
                operand,
                branches,
                otherwise,
            } => operand
                .as_deref()
                .into_iter()
                .chain(branches.iter().flat_map(|(when, then)| [when, then]))
                .chain(otherwise.as_deref())
                .collect(),
        }
    }
}
