//! Calls: aggregates, functions of the history, scalar functions and methods of values.

use super::Checked;
use super::expressions::{Lower, not};
use super::names::Fields;
use crate::epl::CLOCK;
use crate::epl::ast::{Call, Expr, ExprKind, Step};
use crate::epl::token::Place;
use crate::expression::{Arithmetic, CastTo, Comparison, Expression};
use crate::functions::user::Binder;
use crate::functions::{PATTERN_TEXT, TO_TEXT, java_function, scalar_function};
use crate::limits::COLUMNS_MAX;
use crate::plan::{Aggregate, AggregateFunction, History, Slot};
use crate::suggest::did_you_mean;
use crate::value::OwnedValue;

/// Whether a call with so many arguments is an aggregate.
pub fn is_aggregate(call: &Call) -> bool {
    let [Step::Name(name)] = call.path.as_slice() else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    // Of several values, min and max are plain functions.
    let is_scalar = matches!(name.as_str(), "min" | "max") && call.arguments.len() > 1;
    !is_scalar && AGGREGATES.iter().any(|(known, _)| *known == name)
}

impl Lower<'_> {
    /// A call, and what is asked of its value.
    ///
    /// # Errors
    /// There is no such function, or it takes other arguments.
    pub(super) fn call(&mut self, call: &Call, place: Place) -> Checked<Expression> {
        if self.is_row_pattern
            && let Some(picked) = self.picked(call, place)?
        {
            return Ok(picked);
        }
        if is_aggregate(call) {
            return self.aggregate(call, place);
        }
        let plain = !call.distinct && call.filter.is_none();
        let Some((Step::Name(last), before)) = call.path.split_last() else {
            return Err(place.error("a function's name is missing"));
        };
        if !plain {
            return Err(place.error(format!("{last} is no aggregate: no distinct, no filter")));
        }
        let name = last.to_ascii_lowercase();
        let before = match before {
            [Step::Name(java), Step::Name(lang), space] if java == "java" && lang == "lang" => {
                std::slice::from_ref(space)
            }
            before => before,
        };
        let value = match before {
            [] => self.function(&name, call, place)?,
            [Step::Name(system)]
                if system == "System"
                    && last == "currentTimeMillis"
                    && call.arguments.is_empty() =>
            {
                self.names.now(place)?
            }
            [Step::Name(space)] if is_namespace(space) => {
                self.namespaced(&space.to_ascii_lowercase(), &name, &call.arguments, place)?
            }
            [Step::Name(space)] if !is_method(last) && self.names.binder().has(space) => {
                self.user_function(space, last, &call.arguments, place)?
            }
            receiver => {
                let receiver = self.names.resolve(receiver, place)?;
                self.method(receiver, last, &call.arguments, place)?
            }
        };
        self.chain(value, &call.then, place)
    }

    fn chain(
        &mut self,
        mut value: Expression,
        then: &[(String, Option<Vec<Expr>>)],
        place: Place,
    ) -> Checked<Expression> {
        for (name, arguments) in then {
            let Some(arguments) = arguments else {
                return Err(place.error(format!("a function's value has no field {name}")));
            };
            value = self.method(value, name, arguments, place)?;
        }
        Ok(value)
    }

    fn aggregate(&mut self, call: &Call, place: Place) -> Checked<Expression> {
        let name = match call.path.as_slice() {
            [Step::Name(name)] => name.to_ascii_lowercase(),
            _ => String::new(),
        };
        let Some((_, function)) = AGGREGATES.iter().find(|(known, _)| *known == name) else {
            return Err(place.error(format!("{name} is no aggregate")));
        };
        let function = *function;
        let Some(aggregates) = self.aggregates.take() else {
            return Err(place.error(format!(
                "{name} is an aggregate and has no place here: conditions on aggregates go into \
                 having"
            )));
        };
        let before = self.names.set_asked_twice(true);
        let lowered = self.aggregate_parts(function, &name, call, place);
        self.names.set_asked_twice(before);
        let result = lowered.and_then(|(aggregate, rest)| {
            let index = aggregates.iter().position(|known| *known == aggregate);
            let index = match index {
                Some(index) => index,
                None if aggregates.len() >= COLUMNS_MAX => {
                    let message = format!("more than {COLUMNS_MAX} aggregates: use fewer");
                    return Err(place.error(message));
                }
                None => {
                    aggregates.push(aggregate);
                    aggregates.len() - 1
                }
            };
            Ok((Expression::Aggregate(index as u16), rest))
        });
        self.aggregates = Some(aggregates);
        let (value, rest) = result?;
        self.chain(value, &call.then[rest..], place)
    }

    /// The aggregate, and how many of the steps behind the call it has taken.
    fn aggregate_parts(
        &mut self,
        function: AggregateFunction,
        name: &str,
        call: &Call,
        place: Place,
    ) -> Checked<(Aggregate, usize)> {
        let mut aggregate = Aggregate {
            function,
            argument: None,
            parameter: None,
            is_distinct: call.distinct,
            filter: None,
        };
        if let Some(filter) = &call.filter {
            aggregate.filter = Some(self.expr(filter)?);
        }
        let arguments = call.arguments.as_slice();
        let usage = || place.error(format!("{name} is written {}", aggregate_usage(name)));
        match function {
            AggregateFunction::Rate => {
                let [time] = arguments else {
                    return Err(usage());
                };
                let millis = i64::try_from(self.millis(time)?).unwrap_or(i64::MAX);
                aggregate.parameter = Some(Expression::Literal(OwnedValue::Int(millis)));
                return Ok((aggregate, 0));
            }
            AggregateFunction::MaxBy | AggregateFunction::MinBy => {
                let [key] = arguments else {
                    return Err(usage());
                };
                aggregate.parameter = Some(self.expr(key)?);
                let mut path = Vec::new();
                let mut taken = 0;
                for (step, arguments) in &call.then {
                    if arguments.is_some() {
                        break;
                    }
                    path.push(Step::Name(step.clone()));
                    taken += 1;
                }
                aggregate.argument = Some(match path.is_empty() {
                    true => self
                        .names
                        .resolve(&[Step::Name("payload".to_owned())], place)?,
                    false => self.names.resolve(&path, place)?,
                });
                return Ok((aggregate, taken));
            }
            AggregateFunction::Nth | AggregateFunction::Percentile => {
                let [value, parameter] = arguments else {
                    return Err(usage());
                };
                aggregate.argument = Some(self.expr(value)?);
                let parameter = self.constant(parameter, "the second argument")?;
                aggregate.parameter = Some(Expression::Literal(parameter));
                return Ok((aggregate, 0));
            }
            _ => {}
        }
        let [value, rest @ ..] = arguments else {
            if matches!(function, AggregateFunction::CountEver) {
                return Ok((aggregate, 0));
            }
            return Err(usage());
        };
        match rest {
            [] => {}
            [filter] if aggregate.filter.is_none() => aggregate.filter = Some(self.expr(filter)?),
            _ => return Err(usage()),
        }
        let counts = matches!(
            function,
            AggregateFunction::Count | AggregateFunction::CountEver
        );
        aggregate.argument = match value.kind {
            ExprKind::Star if counts => None,
            ExprKind::Star => Some(
                self.names
                    .resolve(&[Step::Name("payload".to_owned())], place)?,
            ),
            _ => Some(self.expr(value)?),
        };
        Ok((aggregate, 0))
    }

    fn function(&mut self, name: &str, call: &Call, place: Place) -> Checked<Expression> {
        let arguments = call.arguments.as_slice();
        match (name, arguments) {
            ("coalesce", [_, ..]) => return Ok(Expression::Coalesce(self.all(arguments)?)),
            ("max", [_, _, ..]) => return self.folded("greatest", arguments),
            ("min", [_, _, ..]) => return self.folded("least", arguments),
            ("exists", [value]) => return Ok(not(Expression::IsNull(self.boxed(value)?))),
            (CLOCK, []) => return self.names.now(place),
            ("prev" | "prior" | "prevtail" | "prevcount", _) => {
                return self.history(name, arguments, place);
            }
            ("prevwindow" | "typeof" | "instanceof" | "istream" | "grouping", _) => {
                return Err(place.error(format!("{name} is not supported")));
            }
            _ => {}
        }
        let arguments = self.all(arguments)?;
        if scalar_function(name).is_none() {
            return Err(place.error(unknown_function(name, self.names.binder())));
        }
        scalar(name, arguments, place)
    }

    /// `module.function(…)`.
    fn user_function(
        &mut self,
        module: &str,
        function: &str,
        arguments: &[Expr],
        place: Place,
    ) -> Checked<Expression> {
        let lowered = self.all(arguments)?;
        match self.names.binder().call(module, function, lowered) {
            Some(called) => called.map_err(|why| place.error(why)),
            None => Err(place.error(format!("there is no module {module}"))),
        }
    }

    /// A function of two values over more of them.
    fn folded(&mut self, name: &str, arguments: &[Expr]) -> Checked<Expression> {
        let mut folded: Option<Expression> = None;
        for argument in arguments {
            let value = self.expr(argument)?;
            folded = Some(match folded {
                None => value,
                Some(before) => scalar(name, vec![before, value], argument.place)?,
            });
        }
        folded.ok_or_else(|| Place::default().error(format!("{name} takes values")))
    }

    /// `Math.abs(x)` and the like. What gives a double in Java gives one here.
    fn namespaced(
        &mut self,
        space: &str,
        name: &str,
        arguments: &[Expr],
        place: Place,
    ) -> Checked<Expression> {
        let lowered = self.all(arguments)?;
        if space != "math" {
            let cast = match name {
                "parseint" | "parselong" => CastTo::Int,
                "parsedouble" | "parsefloat" => CastTo::Float,
                "parseboolean" => CastTo::Bool,
                "valueof" | "tostring" if space == "string" => CastTo::Text,
                _ => return Err(place.error(format!("there is no function {space}.{name}"))),
            };
            let mut lowered = lowered;
            return match (lowered.pop(), lowered.is_empty()) {
                (Some(value), true) => cast_value(value, cast, place),
                _ => Err(place.error(format!("{space}.{name} takes one value"))),
            };
        }
        let (function, is_double) = match name {
            "abs" => ("abs", false),
            "max" => ("greatest", false),
            "min" => ("least", false),
            "round" => ("java round", false),
            "floor" => ("floor", true),
            "ceil" => ("ceil", true),
            "pow" => ("power", true),
            "log" => ("ln", true),
            "signum" => ("sign", true),
            other => (other, true),
        };
        let value = scalar(function, lowered, place)?;
        Ok(match (name, is_double) {
            ("round", _) => Expression::Cast(Box::new(value), CastTo::Int),
            (_, true) => Expression::Cast(Box::new(value), CastTo::Float),
            _ => value,
        })
    }

    /// A method of a value, as Java names them.
    fn method(
        &mut self,
        receiver: Expression,
        name: &str,
        arguments: &[Expr],
        place: Place,
    ) -> Checked<Expression> {
        if let Some(value) = self.special_method(&receiver, name, arguments, place)? {
            return Ok(value);
        }
        let Some((_, function, count)) = METHODS
            .iter()
            .find(|(known, _, _)| known.eq_ignore_ascii_case(name))
        else {
            let known = METHODS.iter().map(|(known, _, _)| *known);
            let hint = did_you_mean(name, known.chain(SPECIAL_METHODS.iter().copied()));
            return Err(place.error(format!("values have no method {name}{hint}")));
        };
        if !count.contains(&arguments.len()) {
            return Err(place.error(format!(
                "{name} does not take {} arguments",
                arguments.len()
            )));
        }
        let mut all = vec![receiver];
        all.extend(self.all(arguments)?);
        match *function {
            function @ "java equals" => {
                let equal = scalar(function, all, place)?;
                Ok(Expression::Cast(Box::new(equal), CastTo::Bool))
            }
            "concat" => Ok(Expression::Concat(all)),
            "tostring" => match all.pop() {
                Some(value) => cast_value(value, CastTo::Text, place),
                None => Err(place.error("a value is missing")),
            },
            "isempty" => {
                let length = scalar("length", all, place)?;
                let zero = Expression::Literal(OwnedValue::Int(0));
                Ok(Expression::Compare(
                    Comparison::Equal,
                    Box::new([length, zero]),
                ))
            }
            function => scalar(function, all, place),
        }
    }

    /// A method that is more than a function of its values: of times, which are milliseconds, and of
    /// patterns.
    fn special_method(
        &mut self,
        receiver: &Expression,
        name: &str,
        arguments: &[Expr],
        place: Place,
    ) -> Checked<Option<Expression>> {
        let own = receiver.clone();
        let usage = |usage: &str| place.error(format!("{name} is written {usage}"));
        Ok(Some(
            match (name.to_ascii_lowercase().as_str(), arguments) {
                ("plus", [amount]) => {
                    let sides = [own, self.span_ms(amount)?];
                    Expression::Arithmetic(Arithmetic::Add, Box::new(sides))
                }
                ("minus", [amount]) => {
                    let sides = [own, self.span_ms(amount)?];
                    Expression::Arithmetic(Arithmetic::Subtract, Box::new(sides))
                }
                ("plus" | "minus", _) => {
                    return Err(usage("time.plus(10 sec) or time.minus(10 sec)"));
                }
                ("before", [other]) => {
                    let sides = [own, self.expr(other)?];
                    Expression::Compare(Comparison::Less, Box::new(sides))
                }
                ("after", [other]) => {
                    let sides = [own, self.expr(other)?];
                    Expression::Compare(Comparison::Greater, Box::new(sides))
                }
                ("before" | "after", _) => {
                    return Err(usage("time.before(other) or time.after(other)"));
                }
                ("tomillisec", []) => own,
                ("roundfloor", [unit]) => {
                    let length_ms = match self.constant(unit, "the unit")? {
                        OwnedValue::Text(unit) => unit_ms(&unit),
                        _ => None,
                    };
                    let Some(length_ms) = length_ms else {
                        return Err(usage(
                            "time.roundFloor('hour'): in UTC, from 'msec' to 'day'",
                        ));
                    };
                    let length = Expression::Literal(OwnedValue::Int(length_ms));
                    let sides = [own.clone(), length];
                    let rest = Expression::Arithmetic(Arithmetic::Remainder, Box::new(sides));
                    Expression::Arithmetic(Arithmetic::Subtract, Box::new([own, rest]))
                }
                ("matches", [pattern]) => {
                    let pattern = self.regexp(pattern)?;
                    Expression::Regexp(pattern_text(own, place)?, pattern)
                }
                ("equalsignorecase", [other]) => {
                    let all = vec![own, self.expr(other)?];
                    let equal = scalar("java equals ignoring case", all, place)?;
                    Expression::Cast(Box::new(equal), CastTo::Bool)
                }
                ("lastindexof", [part]) => {
                    scalar("java last index", vec![own, self.expr(part)?], place)?
                }
                _ => return Ok(None),
            },
        ))
    }

    /// A length of time, or a number of milliseconds, as such.
    fn span_ms(&mut self, amount: &Expr) -> Checked<Expression> {
        let lowered = self.expr(amount)?;
        if !matches!(amount.kind, ExprKind::Period(_)) {
            return Ok(lowered);
        }
        let thousand = Expression::Literal(OwnedValue::Int(1_000));
        let millis = Expression::Arithmetic(Arithmetic::Multiply, Box::new([lowered, thousand]));
        Ok(Expression::Cast(Box::new(millis), CastTo::Int))
    }

    /// `prev(2, x)`, `prev(x)`, `prior(1, x)`, `prevtail(0, x)`, `prevcount(x)`.
    fn history(&mut self, name: &str, arguments: &[Expr], place: Place) -> Checked<Expression> {
        if self.names.kind() == Fields::Payload {
            return Err(place.error(format!("{name} needs a window or earlier events")));
        }
        let (kind, default) = match name {
            "prev" => (History::Prev, 1),
            "prior" => (History::Prior, 1),
            "prevtail" => (History::PrevTail, 0),
            _ => (History::PrevCount, 0),
        };
        let (steps, value) = match arguments {
            [value] => (default, value),
            [a, b] if matches!(a.kind, ExprKind::Int(_)) => (self.steps(a)?, b),
            [a, b] => (self.steps(b)?, a),
            _ => return Err(place.error(format!("write {name}(1, field)"))),
        };
        let before = self.names.set_history(Some((kind, steps)));
        let lowered = match value.kind {
            ExprKind::Star => self
                .names
                .resolve(&[Step::Name("payload".to_owned())], place),
            _ => self.expr(value),
        };
        self.names.set_history(before);
        lowered
    }

    fn steps(&mut self, expr: &Expr) -> Checked<u32> {
        match expr.kind {
            ExprKind::Int(steps) if (0..=i64::from(HISTORY_STEPS_MAX)).contains(&steps) => {
                Ok(steps as u32)
            }
            _ => Err(expr.place.error(format!(
                "how many events back is a number from 0 to {HISTORY_STEPS_MAX}"
            ))),
        }
    }

    /// `first(B.v)`, `last(B.v)` over the rows of a row pattern's variable.
    fn picked(&mut self, call: &Call, place: Place) -> Checked<Option<Expression>> {
        let ([Step::Name(name)], [argument]) = (call.path.as_slice(), call.arguments.as_slice())
        else {
            return Ok(None);
        };
        let ExprKind::Path(path) = &argument.kind else {
            return Ok(None);
        };
        let is_first = name.eq_ignore_ascii_case("first");
        if !is_first && !name.eq_ignore_ascii_case("last") {
            return Ok(None);
        }
        let Some(Step::Name(variable)) = path.first() else {
            return Ok(None);
        };
        if self.names.number(variable).is_none() {
            return Err(place.error(format!("{variable} is no variable of the pattern")));
        }
        let mut path = path.clone();
        if is_first {
            path.insert(1, Step::Index(0));
        }
        self.names.resolve(&path, place).map(Some)
    }
}

/// A value as another type's; a text is as Java writes it.
///
/// # Errors
/// None: the functions are there.
pub(super) fn cast_value(value: Expression, to: CastTo, place: Place) -> Checked<Expression> {
    let value = match to {
        CastTo::Text => scalar(TO_TEXT, vec![value], place)?,
        _ => value,
    };
    Ok(Expression::Cast(Box::new(value), to))
}

/// What a pattern is held against: a number as its text.
///
/// # Errors
/// None: the function is there.
pub(super) fn pattern_text(value: Expression, place: Place) -> Checked<Box<Expression>> {
    scalar(PATTERN_TEXT, vec![value], place).map(Box::new)
}

/// A function of the table, or one of Java's.
pub fn scalar(name: &str, arguments: Vec<Expression>, place: Place) -> Checked<Expression> {
    let Some(function) = scalar_function(name).or_else(|| java_function(name)) else {
        return Err(place.error(unknown_function(name, &Binder::default())));
    };
    let (least, most) = function.arguments;
    if !(least..=most).contains(&arguments.len()) {
        return Err(place.error(format!("{name} is written {}", function.usage)));
    }
    Ok(Expression::Call(function, arguments))
}

fn unknown_function(name: &str, binder: &Binder) -> String {
    let known = crate::functions::SCALAR_FUNCTIONS
        .iter()
        .map(|function| function.name)
        .chain(AGGREGATES.iter().map(|(name, _)| *name))
        .chain(["coalesce", "prev", "prior", "cast", "prevtail", "prevcount"]);
    let hint = binder.modules().did_you_mean(name, known);
    format!("there is no function {name}{hint}")
}

/// Whether a name before a call's dot stands for functions of EPL's own.
pub fn is_namespace(name: &str) -> bool {
    let mut known = NAMESPACES.iter();
    known.any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether values have a method of that name.
pub fn is_method(name: &str) -> bool {
    let mut known = METHODS.iter();
    known.any(|(known, _, _)| name.eq_ignore_ascii_case(known))
}

/// A slot of the context's.
pub fn context_slot(name: &str) -> Option<Slot> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "starttime" => Some(Slot::ContextStart),
        "endtime" => Some(Slot::ContextEnd),
        _ => {
            let number: u16 = name.strip_prefix("key")?.parse().ok()?;
            Some(Slot::ContextKey(number.checked_sub(1)?))
        }
    }
}

/// Milliseconds of a unit that is as long in every year, by the names that fields of a time have.
fn unit_ms(name: &str) -> Option<i64> {
    Some(match name.to_ascii_lowercase().as_str() {
        "msec" | "millisecond" | "milliseconds" => 1,
        "sec" | "second" | "seconds" => 1_000,
        "min" | "minute" | "minutes" => 60_000,
        "hour" | "hours" => 3_600_000,
        "day" | "days" => 86_400_000,
        _ => return None,
    })
}

fn aggregate_usage(name: &str) -> &'static str {
    match name {
        "rate" => "rate(10 sec)",
        "nth" => "nth(field, 2)",
        "percentile" => "percentile(field, 0.95)",
        "maxby" | "minby" => "maxby(key).field or minby(key).field",
        _ => "with one field, as in sum(field), and a condition perhaps: sum(field, condition)",
    }
}

/// The aggregates by name.
const AGGREGATES: &[(&str, AggregateFunction)] = &[
    ("count", AggregateFunction::Count),
    ("sum", AggregateFunction::Sum),
    ("avg", AggregateFunction::Avg),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("fcount", AggregateFunction::Count),
    ("fsum", AggregateFunction::Sum),
    ("favg", AggregateFunction::Avg),
    ("fmin", AggregateFunction::Min),
    ("fmax", AggregateFunction::Max),
    ("stddev", AggregateFunction::Stddev),
    ("avedev", AggregateFunction::Avedev),
    ("median", AggregateFunction::Median),
    ("percentile", AggregateFunction::Percentile),
    ("first", AggregateFunction::FirstValue),
    ("last", AggregateFunction::LastValue),
    ("window", AggregateFunction::Window),
    ("nth", AggregateFunction::Nth),
    ("maxby", AggregateFunction::MaxBy),
    ("minby", AggregateFunction::MinBy),
    ("countever", AggregateFunction::CountEver),
    ("firstever", AggregateFunction::FirstEver),
    ("lastever", AggregateFunction::LastEver),
    ("minever", AggregateFunction::MinEver),
    ("maxever", AggregateFunction::MaxEver),
    ("rate", AggregateFunction::Rate),
];

const NAMESPACES: &[&str] = &[
    "Math", "String", "Long", "Integer", "Double", "Float", "Boolean",
];

/// Methods of values: the name, the function, and how many arguments beside the value.
const METHODS: &[(&str, &str, std::ops::RangeInclusive<usize>)] = &[
    ("toUpperCase", "upper", 0..=0),
    ("toLowerCase", "lower", 0..=0),
    ("trim", "trim", 0..=0),
    ("length", "length", 0..=0),
    ("substring", "slice", 1..=2),
    ("indexOf", "index_of", 1..=1),
    ("contains", "contains", 1..=1),
    ("startsWith", "starts_with", 1..=1),
    ("endsWith", "ends_with", 1..=1),
    ("replace", "replace", 2..=2),
    ("concat", "concat", 1..=1),
    ("equals", "java equals", 1..=1),
    ("isEmpty", "isempty", 0..=0),
    ("toString", "tostring", 0..=0),
    ("getYear", "year", 0..=0),
    ("getMonthOfYear", "java month", 0..=0),
    ("getDayOfMonth", "day", 0..=0),
    ("getDayOfWeek", "day_of_week", 0..=0),
    ("getHourOfDay", "hour", 0..=0),
    ("getMinuteOfHour", "minute", 0..=0),
    ("getSecondOfMinute", "second", 0..=0),
];

/// Methods that [`Lower::special_method`] knows beside those. No module's function is kept from being
/// called by them.
const SPECIAL_METHODS: &[&str] = &[
    "plus",
    "minus",
    "before",
    "after",
    "toMillisec",
    "roundFloor",
    "matches",
    "equalsIgnoreCase",
    "lastIndexOf",
];

/// How far back the history functions look.
const HISTORY_STEPS_MAX: u32 = 10_000;
