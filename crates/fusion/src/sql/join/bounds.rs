//! The bounds in time among a join's conditions.

use sqlparser::ast::{
    BinaryOperator, Expr, Function, Ident, Select, Spanned, UnaryOperator, Value as SqlValue,
};
use sqlparser::tokenizer::Span;

use crate::limits::WINDOW_MAX;
use crate::sql::expressions::{arguments, children};
use crate::sql::source::{interval_millis, unit_millis};
use crate::sql::{Checked, at};

/// How far the second side's events are behind the first side's, and by what times.
pub struct Bounds<'q> {
    /// What is counted, ms.
    pub unit_ms: i64,
    /// The least distance.
    pub from: i64,
    /// The greatest.
    pub to: i64,
    /// The column that says each side's time, without the side's name.
    pub times: [Option<&'q [Ident]>; 2],
    /// The conditions that said so.
    taken: Vec<&'q Expr>,
}

/// A side's time, moved by so many milliseconds.
struct Point<'q> {
    side: usize,
    path: &'q [Ident],
    span: Span,
    offset_ms: i64,
}

struct Finder<'q, 'a> {
    aliases: &'a [String; 2],
    unit_ms: Option<i64>,
    from: Option<i64>,
    to: Option<i64>,
    times: [Option<&'q [Ident]>; 2],
}

impl<'q> Bounds<'q> {
    /// Looks for the bounds among the conditions of the join; `afterwards` are those of WHERE where
    /// they are no part of them.
    ///
    /// # Errors
    /// There are none, on one side only, or they are of several kinds.
    pub fn find(
        aliases: &[String; 2],
        window_ms: Option<i64>,
        conditions: &[&'q Expr],
        afterwards: &[&'q Expr],
        select: &Select,
    ) -> Checked<Self> {
        let mut finder = Finder {
            aliases,
            unit_ms: None,
            from: None,
            to: None,
            times: [None; 2],
        };
        let mut taken: Vec<&'q Expr> = Vec::new();
        // What names an interval says which columns are times; comparisons of those bound too.
        for is_sure in [true, false] {
            for condition in conditions.iter().copied() {
                let is_taken = taken.iter().any(|known| std::ptr::eq(*known, condition));
                if is_taken || is_sure != says_time(condition) {
                    continue;
                }
                if finder.take(condition, is_sure)? || is_window(condition, window_ms) {
                    taken.push(condition);
                }
            }
        }
        if let Some(late) = afterwards.iter().find(|condition| says_time(condition)) {
            let message = "the bound in time of an outer join stands in ON, not in WHERE";
            return Err(at(place(late), message));
        }
        let start = select.from.first().map_or(Span::empty(), Spanned::span);
        let (unit_ms, from, to) = finder.bounds(window_ms, place_of_join(select, start))?;
        Ok(Bounds {
            unit_ms,
            from,
            to,
            times: finder.times,
            taken,
        })
    }

    /// The conditions that are no bounds.
    pub fn others(&self, conditions: Vec<&'q Expr>) -> Vec<&'q Expr> {
        let is_taken = |condition: &Expr| {
            self.taken
                .iter()
                .any(|known| std::ptr::eq(*known, condition))
        };
        let others = conditions.into_iter();
        others.filter(|condition| !is_taken(condition)).collect()
    }
}

impl<'q> Finder<'q, '_> {
    /// Takes a condition that bounds the join in time; false for another. A sure one names an
    /// interval or DATEDIFF, and is refused where it is no bound.
    fn take(&mut self, condition: &'q Expr, is_sure: bool) -> Checked<bool> {
        let is_bound = match bare(condition) {
            Expr::Between {
                expr,
                negated: false,
                low,
                high,
            } => {
                self.compare(expr, &BinaryOperator::GtEq, low, is_sure)?
                    && self.compare(expr, &BinaryOperator::LtEq, high, is_sure)?
            }
            Expr::BinaryOp { left, op, right } => self.compare(left, op, right, is_sure)?,
            _ => false,
        };
        match is_bound || !is_sure {
            true => Ok(is_bound),
            false => Err(at(place(condition), self.usage())),
        }
    }

    fn compare(
        &mut self,
        left: &'q Expr,
        op: &BinaryOperator,
        right: &'q Expr,
        is_sure: bool,
    ) -> Checked<bool> {
        if let Some(function) = datediff(left) {
            return self.differ(function, op, right);
        }
        if let Some(function) = datediff(right) {
            return match flipped(op) {
                Some(op) => self.differ(function, &op, left),
                None => Ok(false),
            };
        }
        let (Some(left), Some(right)) = (self.point(left)?, self.point(right)?) else {
            return Ok(false);
        };
        let is_time = is_sure || (self.knows(&left) && self.knows(&right));
        if left.side == right.side || !is_time {
            return Ok(false);
        }
        // Of the second side's time less the first side's.
        let (op, distance) = match left.side {
            1 => (Some(op.clone()), right.offset_ms - left.offset_ms),
            _ => (flipped(op), left.offset_ms - right.offset_ms),
        };
        let Some(op) = op else {
            return Ok(false);
        };
        let span = left.span;
        self.name(left)?;
        self.name(right)?;
        self.bound(1, &op, distance, span)
    }

    /// `DATEDIFF(unit, a, b)`: how many borders of units lie between.
    fn differ(
        &mut self,
        function: &'q Function,
        op: &BinaryOperator,
        count: &Expr,
    ) -> Checked<bool> {
        let span = function.name.span();
        let arguments = arguments(function)?;
        let [Expr::Identifier(unit), first, second] = arguments.as_slice() else {
            return Err(at(span, DATEDIFF_USAGE));
        };
        let unit_ms = match unit.value.to_ascii_lowercase().as_str() {
            "ss" => Some(1_000),
            "mi" | "n" => Some(60_000),
            "hh" => Some(3_600_000),
            "dd" => Some(86_400_000),
            other => unit_millis(other),
        };
        let (Some(unit_ms), Some(count)) = (unit_ms, whole(count)) else {
            return Err(at(span, DATEDIFF_USAGE));
        };
        let (Some(first), Some(second)) = (self.event(first), self.event(second)) else {
            return Err(at(span, DATEDIFF_USAGE));
        };
        if first.side == second.side {
            return Err(at(span, DATEDIFF_USAGE));
        }
        let (op, count) = match second.side {
            1 => (Some(op.clone()), count),
            _ => (flipped(op), -count),
        };
        let Some(op) = op else {
            return Ok(false);
        };
        self.name(first)?;
        self.name(second)?;
        self.bound(unit_ms, &op, count, span)
    }

    fn bound(
        &mut self,
        unit_ms: i64,
        op: &BinaryOperator,
        distance: i64,
        span: Span,
    ) -> Checked<bool> {
        let most = i64::try_from(WINDOW_MAX.as_millis()).unwrap_or(i64::MAX) / unit_ms;
        if distance.abs() > most {
            return Err(at(span, "events of a join are at most 366 days apart"));
        }
        if *self.unit_ms.get_or_insert(unit_ms) != unit_ms {
            return Err(at(
                span,
                "the bounds of a join are all intervals, or DATEDIFF in one unit",
            ));
        }
        let (from, to) = match op {
            BinaryOperator::GtEq => (Some(distance), None),
            BinaryOperator::Gt => (Some(distance + 1), None),
            BinaryOperator::LtEq => (None, Some(distance)),
            BinaryOperator::Lt => (None, Some(distance - 1)),
            BinaryOperator::Eq => (Some(distance), Some(distance)),
            _ => return Ok(false),
        };
        self.from = self.from.max(from);
        self.to = match (self.to, to) {
            (Some(known), Some(to)) => Some(known.min(to)),
            (known, to) => known.or(to),
        };
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            return Err(at(
                span,
                "the bounds in time leave no pair: let the lower one be below the upper one",
            ));
        }
        Ok(true)
    }

    /// Notes the column of a side's time.
    fn name(&mut self, point: Point<'q>) -> Checked<()> {
        let known = *self.times[point.side].get_or_insert(point.path);
        if is_same(known, point.path) {
            return Ok(());
        }
        let message = format!(
            "the events of {} have one time: this names {}, and before it was {}; name one of them",
            self.aliases[point.side],
            shown(point.path),
            shown(known)
        );
        Err(at(point.span, message))
    }

    fn knows(&self, point: &Point<'_>) -> bool {
        self.times[point.side].is_some_and(|known| is_same(known, point.path))
    }

    /// A side's column, more or less an interval.
    fn point(&self, expr: &'q Expr) -> Checked<Option<Point<'q>>> {
        let moved = |point: &'q Expr, interval: &'q Expr, sign: i64| {
            let Expr::Interval(interval) = bare(interval) else {
                return Ok(None);
            };
            let span = interval.value.span();
            let millis = interval_millis(interval)?;
            let most = WINDOW_MAX.as_millis() as f64;
            if millis.fract() != 0.0 || !(0.0..=most).contains(&millis) {
                let message = "an interval is a whole number of milliseconds up to 366 days";
                return Err(at(span, message));
            }
            let point = self.point(point)?;
            Ok(point.map(|point| Point {
                offset_ms: point.offset_ms + sign * millis as i64,
                ..point
            }))
        };
        match bare(expr) {
            Expr::CompoundIdentifier(_) => Ok(self.event(expr)),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Plus,
                right,
            } => match bare(left) {
                Expr::Interval(_) => moved(right, left, 1),
                _ => moved(left, right, 1),
            },
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Minus,
                right,
            } => moved(left, right, -1),
            _ => Ok(None),
        }
    }

    /// A side's column, or a side itself, whose time is the source's own.
    fn event(&self, expr: &'q Expr) -> Option<Point<'q>> {
        let idents = match bare(expr) {
            Expr::CompoundIdentifier(idents) => idents.as_slice(),
            Expr::Identifier(ident) => std::slice::from_ref(ident),
            _ => return None,
        };
        let (alias, path) = idents.split_first()?;
        let side = self.aliases.iter().position(|name| *name == alias.value)?;
        Some(Point {
            side,
            path,
            span: alias.span,
            offset_ms: 0,
        })
    }

    fn bounds(&self, window_ms: Option<i64>, span: Span) -> Checked<(i64, i64, i64)> {
        let bounds = (self.unit_ms, self.from, self.to);
        match (window_ms, bounds) {
            (Some(window_ms), (None, ..)) => Ok((window_ms, 0, 0)),
            (Some(_), _) => Err(at(
                span,
                "the windows bound the join already: leave out the intervals, or the windows",
            )),
            (None, (Some(unit_ms), Some(from), Some(to))) => Ok((unit_ms, from, to)),
            (None, (None, ..)) => Err(at(span, self.usage())),
            (None, _) => {
                let message = format!(
                    "the join is bounded on one side of time only: {}",
                    self.usage()
                );
                Err(at(span, message))
            }
        }
    }

    fn usage(&self) -> String {
        let [a, b] = self.aliases;
        let time = |side: usize| match self.times[side] {
            Some(path) if !path.is_empty() => shown(path),
            _ => "ts".to_owned(),
        };
        let (of_a, of_b) = (time(0), time(1));
        format!(
            "streams have no end, so a join has a bound in time: write ON … AND {b}.{of_b} BETWEEN \
             {a}.{of_a} - INTERVAL '5' SECOND AND {a}.{of_a} + INTERVAL '5' SECOND, with the fields \
             that say when events happened, or _timestamp"
        )
    }
}

/// What stands in brackets.
pub fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// `a.window_start = b.window_start`, which windows of both sides say already.
fn is_window(condition: &Expr, window_ms: Option<i64>) -> bool {
    let bound = |expr: &Expr| match bare(expr) {
        Expr::CompoundIdentifier(idents) => match idents.as_slice() {
            [_, name] if matches!(name.value.as_str(), "window_start" | "window_end") => {
                Some(name.value.clone())
            }
            _ => None,
        },
        _ => None,
    };
    match bare(condition) {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } if window_ms.is_some() => bound(left).is_some() && bound(left) == bound(right),
        _ => false,
    }
}

fn says_time(expr: &Expr) -> bool {
    matches!(expr, Expr::Interval(_))
        || datediff(expr).is_some()
        || children(expr).into_iter().any(says_time)
}

fn datediff(expr: &Expr) -> Option<&Function> {
    match bare(expr) {
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("datediff") => {
            Some(function)
        }
        _ => None,
    }
}

fn flipped(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Gt => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::LtEq,
        BinaryOperator::Lt => BinaryOperator::Gt,
        BinaryOperator::LtEq => BinaryOperator::GtEq,
        BinaryOperator::Eq => BinaryOperator::Eq,
        _ => return None,
    })
}

/// A whole number with its sign.
fn whole(expr: &Expr) -> Option<i64> {
    match bare(expr) {
        Expr::Value(value) => match &value.value {
            SqlValue::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => whole(expr).and_then(i64::checked_neg),
        _ => None,
    }
}

/// `_timestamp` is what a side's own time is called.
fn is_same(a: &[Ident], b: &[Ident]) -> bool {
    let own = |path: &[Ident]| match path {
        [] => true,
        [name] => name.quote_style.is_none() && name.value == "_timestamp",
        _ => false,
    };
    let values =
        |path: &[Ident]| -> Vec<String> { path.iter().map(|ident| ident.value.clone()).collect() };
    (own(a) && own(b)) || values(a) == values(b)
}

fn shown(path: &[Ident]) -> String {
    match path {
        [] => "_timestamp".to_owned(),
        _ => {
            let parts: Vec<&str> = path.iter().map(|ident| ident.value.as_str()).collect();
            parts.join(".")
        }
    }
}

/// Where an expression starts; its first part that has a place.
fn place(expr: &Expr) -> Span {
    let span = expr.span();
    match span.start.line {
        0 => children(expr)
            .into_iter()
            .map(place)
            .find(|span| span.start.line > 0)
            .unwrap_or(span),
        _ => span,
    }
}

fn place_of_join(select: &Select, start: Span) -> Span {
    let joined = select.from.iter().flat_map(|table| &table.joins);
    let second = select.from.get(1).map(Spanned::span);
    let joined = joined.map(|join| join.relation.span()).next();
    joined.or(second).unwrap_or(start)
}

const DATEDIFF_USAGE: &str = "write DATEDIFF(second, a, b) BETWEEN 0 AND 10 with the names of both \
                              sources, or their time columns, and whole numbers";
