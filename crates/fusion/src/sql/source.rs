//! FROM, INSERT INTO and windows: where events come from, where rows go, and for how long.

use std::time::Duration;

use mqtt::{TopicFilter as MqttFilter, TopicName as MqttTopic};
use sqlparser::ast::{
    DateTimeField, Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, Interval, ObjectName,
    Select, Spanned, TableFactor, Value as SqlValue,
};
use sqlparser::tokenizer::Span;
use streams::TopicName as KafkaTopic;

use super::names::Names;
use super::{Checked, at, expressions};
use crate::limits::{HOPS_MAX, WINDOW_MAX, WINDOW_MIN};
use crate::plan::{EventTime, Sink, Source, Tumbling, WindowShape};

/// A window as FROM writes it.
pub struct WindowText<'q> {
    /// Whose time counts, where it is not the source's own.
    pub time_column: Option<&'q Expr>,
    /// How long it is.
    pub length: Duration,
    /// How windows lie to each other.
    pub shape: WindowShape,
}

/// The target of INSERT INTO.
pub fn sink(name: &ObjectName) -> Checked<Sink> {
    let idents = idents_of(name)?;
    let (kind, topic, span) = endpoint(&idents)?;
    match kind {
        Kind::Mqtt => match topic.parse::<MqttTopic>() {
            Ok(_) => Ok(Sink::Mqtt(topic)),
            Err(error) => Err(at(span, format!("no MQTT topic to publish to: {error}"))),
        },
        Kind::Kafka => Ok(Sink::Kafka(kafka_topic(&topic, span)?)),
        Kind::Stream => Ok(Sink::Stream(topic)),
    }
}

/// The one source of FROM, its window when it has one, and what FROM calls it.
pub fn source(select: &Select) -> Checked<(Source, Option<WindowText<'_>>, Option<String>)> {
    match select.from.first() {
        Some(table) => relation(&table.relation),
        None => Err(at(
            select.select_token.0.span,
            "a statement needs a source: write FROM mqtt.\"a/+/b\" or FROM kafka.\"topic\"",
        )),
    }
}

/// One source, its window when it has one, and what FROM calls it.
pub fn relation(
    relation: &TableFactor,
) -> Checked<(Source, Option<WindowText<'_>>, Option<String>)> {
    let TableFactor::Table {
        name,
        alias,
        args,
        sample: None,
        ..
    } = relation
    else {
        return Err(at(relation.span(), SOURCE_USAGE));
    };
    let alias = alias.as_ref().map(|alias| alias.name.value.clone());
    let idents = idents_of(name)?;
    let Some(args) = args else {
        return Ok((endpoint_source(&idents)?, None, alias));
    };
    let function = idents.first().map_or("", |ident| ident.value.as_str());
    let Some(form) = FORMS
        .iter()
        .find(|form| idents.len() == 1 && function.eq_ignore_ascii_case(form.name))
    else {
        let message = format!("the window {function} is not supported: {TUMBLE_USAGE}");
        return Err(at(name.span(), message));
    };
    let mut expressions = Vec::with_capacity(4);
    for arg in &args.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else {
            return Err(at(arg.span(), form.usage));
        };
        expressions.push(expr);
    }
    let lengths_from = expressions.len().saturating_sub(form.lengths).max(1);
    let (before, lengths) = expressions.split_at(lengths_from.min(expressions.len()));
    let (source, time_column) = match before {
        [source] => (source, None),
        [source, column] => (source, Some(*column)),
        _ => return Err(at(name.span(), form.usage)),
    };
    let source = match source {
        Expr::Identifier(ident) => endpoint_source(std::slice::from_ref(ident))?,
        Expr::CompoundIdentifier(idents) => endpoint_source(idents)?,
        other => return Err(at(other.span(), SOURCE_USAGE)),
    };
    let mut millis = Vec::with_capacity(lengths.len());
    for length in lengths {
        let Expr::Interval(interval) = length else {
            return Err(at(length.span(), form.usage));
        };
        millis.push(checked_length(
            interval_millis(interval)?,
            interval.value.span(),
        )?);
    }
    let (length, shape) = match (form.name, millis.as_slice()) {
        ("hop", [step, length]) => (*length, hop(*step, *length, name.span())?),
        ("session", [gap]) => (*gap, WindowShape::Session),
        ("tumble", [length]) => (*length, WindowShape::Tumble),
        _ => return Err(at(name.span(), form.usage)),
    };
    Ok((
        source,
        Some(WindowText {
            time_column,
            length,
            shape,
        }),
        alias,
    ))
}

/// Windows that hop; each event is in at most so many.
fn hop(step: Duration, length: Duration, span: Span) -> Checked<WindowShape> {
    let most = length.as_millis().div_ceil(step.as_millis().max(1));
    if most > HOPS_MAX {
        return Err(at(
            span,
            format!(
                "an event would be in {most} windows: hop by at least a {HOPS_MAX}th of the length"
            ),
        ));
    }
    Ok(WindowShape::Hop { step })
}

/// The window of FROM, or of a `TUMBLINGWINDOW(unit, length)` in GROUP BY.
pub fn window(
    text: Option<WindowText<'_>>,
    select: &Select,
    names: &mut Names,
) -> Checked<Option<Tumbling>> {
    let mut window = match text {
        None => None,
        Some(WindowText {
            time_column,
            length,
            shape,
        }) => {
            let time = match time_column {
                None => EventTime::Source,
                Some(column) => EventTime::Column(expressions::lower(column, names)?),
            };
            Some(Tumbling {
                length,
                shape,
                time,
            })
        }
    };
    let GroupByExpr::Expressions(keys, _) = &select.group_by else {
        return Ok(window);
    };
    for key in keys {
        let Some((length, shape)) = key_window(key)? else {
            continue;
        };
        if window.is_some() {
            return Err(at(
                key.span(),
                "one window per statement: write TUMBLE or TUMBLINGWINDOW",
            ));
        }
        window = Some(Tumbling {
            length,
            shape,
            time: EventTime::Source,
        });
    }
    Ok(window)
}

/// The window that a `TUMBLINGWINDOW(unit, length)` or `HOPPINGWINDOW(unit, length, step)` names;
/// none for any other key.
pub fn key_window(key: &Expr) -> Checked<Option<(Duration, WindowShape)>> {
    let Expr::Function(function) = key else {
        return Ok(None);
    };
    let name = function.name.to_string();
    if !name.to_ascii_lowercase().ends_with("window") {
        return Ok(None);
    }
    let is_hopping = name.eq_ignore_ascii_case("hoppingwindow");
    if !is_hopping && !name.eq_ignore_ascii_case("tumblingwindow") {
        let message = format!("the window {name} is not supported: {TUMBLING_USAGE}");
        return Err(at(function.name.span(), message));
    }
    let usage = if is_hopping {
        HOPPING_USAGE
    } else {
        TUMBLING_USAGE
    };
    let span = function.name.span();
    let arguments = expressions::arguments(function)?;
    let (unit, lengths) = match arguments.as_slice() {
        [Expr::Identifier(unit), lengths @ ..] => (unit, lengths),
        _ => return Err(at(span, usage)),
    };
    let unit_ms = match unit.value.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "ss" => 1_000,
        "mi" => 60_000,
        "hh" => 3_600_000,
        "dd" => 86_400_000,
        _ => return Err(at(unit.span, "the unit is one of ms, ss, mi, hh, dd")),
    };
    let mut millis = Vec::with_capacity(2);
    for length in lengths {
        let Expr::Value(length) = length else {
            return Err(at(span, usage));
        };
        let SqlValue::Number(count, _) = &length.value else {
            return Err(at(length.span, usage));
        };
        let count = count.parse::<f64>().unwrap_or(f64::NAN);
        millis.push(checked_length(count * unit_ms as f64, length.span)?);
    }
    match (is_hopping, millis.as_slice()) {
        (false, [length]) => Ok(Some((*length, WindowShape::Tumble))),
        (true, [length, step]) => Ok(Some((*length, hop(*step, *length, span)?))),
        _ => Err(at(span, usage)),
    }
}

/// A window function of FROM.
struct Form {
    /// In lower case.
    name: &'static str,
    /// How many intervals it takes.
    lengths: usize,
    usage: &'static str,
}

const FORMS: &[Form] = &[
    Form {
        name: "tumble",
        lengths: 1,
        usage: TUMBLE_USAGE,
    },
    Form {
        name: "hop",
        lengths: 2,
        usage: HOP_USAGE,
    },
    Form {
        name: "session",
        lengths: 1,
        usage: SESSION_USAGE,
    },
];

enum Kind {
    Mqtt,
    Kafka,
    Stream,
}

fn endpoint_source(idents: &[Ident]) -> Checked<Source> {
    let (kind, topic, span) = endpoint(idents)?;
    match kind {
        Kind::Mqtt => match topic.parse::<MqttFilter>() {
            Ok(_) => Ok(Source::Mqtt(topic)),
            Err(error) => Err(at(span, format!("no MQTT topic filter: {error}"))),
        },
        Kind::Kafka => Ok(Source::Kafka(kafka_topic(&topic, span)?)),
        Kind::Stream => Ok(Source::Stream(topic)),
    }
}

fn kafka_topic(topic: &str, span: Span) -> Checked<String> {
    match topic.parse::<KafkaTopic>() {
        Ok(name) => Ok(name.display().to_owned()),
        Err(error) => Err(at(span, format!("no Kafka topic: {error}"))),
    }
}

/// `mqtt."topic"` or `kafka."topic"`; parts that follow unquoted belong to a dotted topic.
fn endpoint(idents: &[Ident]) -> Checked<(Kind, String, Span)> {
    let span = idents.first().map_or(Span::empty(), |ident| ident.span);
    let [kind, topic @ ..] = idents else {
        return Err(at(span, SOURCE_USAGE));
    };
    let Some(first) = topic.first() else {
        let message = format!(
            "'{}' does not say of what kind it is: {SOURCE_USAGE}",
            kind.value
        );
        return Err(at(span, message));
    };
    let parts: Vec<&str> = topic.iter().map(|ident| ident.value.as_str()).collect();
    let topic = parts.join(".");
    match kind.value.to_ascii_lowercase().as_str() {
        "mqtt" => Ok((Kind::Mqtt, topic, first.span)),
        "kafka" => Ok((Kind::Kafka, topic, first.span)),
        "stream" => Ok((Kind::Stream, topic, first.span)),
        other => Err(at(
            span,
            format!("'{other}' is no kind of source or target: {SOURCE_USAGE}"),
        )),
    }
}

fn idents_of(name: &ObjectName) -> Checked<Vec<Ident>> {
    let idents: Option<Vec<Ident>> = name.0.iter().map(|part| part.as_ident().cloned()).collect();
    idents.ok_or_else(|| at(name.span(), SOURCE_USAGE))
}

/// The length of an interval in milliseconds.
pub fn interval_millis(interval: &Interval) -> Checked<f64> {
    let span = interval.value.span();
    if interval.last_field.is_some() {
        return Err(at(span, INTERVAL_USAGE));
    }
    let text = match interval.value.as_ref() {
        Expr::Value(value) => match &value.value {
            SqlValue::SingleQuotedString(text) | SqlValue::Number(text, _) => text.trim(),
            _ => return Err(at(span, INTERVAL_USAGE)),
        },
        _ => return Err(at(span, INTERVAL_USAGE)),
    };
    let (count, unit_ms) = match &interval.leading_field {
        Some(field) => (text, field_millis(field)),
        None => {
            let split = text
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(text.len());
            (&text[..split], unit_millis(text[split..].trim()))
        }
    };
    match (count.parse::<f64>(), unit_ms) {
        (Ok(count), Some(unit_ms)) => Ok(count * unit_ms as f64),
        _ => Err(at(span, INTERVAL_USAGE)),
    }
}

fn field_millis(field: &DateTimeField) -> Option<i64> {
    unit_millis(&field.to_string())
}

/// The milliseconds of a unit, as intervals and DATEDIFF name it.
pub fn unit_millis(unit: &str) -> Option<i64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return None,
    })
}

fn checked_length(millis: f64, span: Span) -> Checked<Duration> {
    let (least, most) = (WINDOW_MIN.as_millis() as f64, WINDOW_MAX.as_millis() as f64);
    if !(least..=most).contains(&millis) || millis.fract() != 0.0 {
        return Err(at(
            span,
            "a window is a whole number of milliseconds from 1 ms to 366 days",
        ));
    }
    Ok(Duration::from_millis(millis as u64))
}

const SOURCE_USAGE: &str = "write mqtt.\"a/+/b\" for an MQTT topic, kafka.\"topic\" for a Kafka topic, stream.\"name\" \
     for what other statements insert into it";
const TUMBLE_USAGE: &str = "write TUMBLE(source, INTERVAL '10 seconds') or TUMBLE(source, \
                            time_column, INTERVAL '10 seconds')";
const HOP_USAGE: &str = "write HOP(source, INTERVAL '5 seconds', INTERVAL '10 seconds') with the \
                         step before the length, or HOP(source, time_column, step, length)";
const SESSION_USAGE: &str = "write SESSION(source, INTERVAL '10 seconds') or SESSION(source, \
                             time_column, INTERVAL '10 seconds')";
const HOPPING_USAGE: &str = "write HOPPINGWINDOW(ss, 10, 5): unit, length and step";
const TUMBLING_USAGE: &str = "write TUMBLINGWINDOW(ss, 10) with a unit of ms, ss, mi, hh or dd";
const INTERVAL_USAGE: &str = "write the interval as INTERVAL '10 seconds'; units are \
                              milliseconds, seconds, minutes, hours and days";
