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
use crate::limits::{WINDOW_MAX, WINDOW_MIN};
use crate::plan::{EventTime, Sink, Source, Tumbling, WindowShape};

/// A window as FROM writes it.
pub struct WindowText<'q> {
    time_column: Option<&'q Expr>,
    length: Duration,
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
    }
}

/// The source of FROM, its window when it has one, and what FROM calls it.
pub fn source(select: &Select) -> Checked<(Source, Option<WindowText<'_>>, Option<String>)> {
    let [table] = select.from.as_slice() else {
        let span = select
            .from
            .get(1)
            .map_or(select.select_token.0.span, Spanned::span);
        let message = if select.from.is_empty() {
            "a statement needs a source: write FROM mqtt.\"a/+/b\" or FROM kafka.\"topic\""
        } else {
            "one source per statement: joins are not supported"
        };
        return Err(at(span, message));
    };
    if let Some(join) = table.joins.first() {
        return Err(at(
            join.relation.span(),
            "joins are not supported: name one source",
        ));
    }
    let TableFactor::Table {
        name,
        alias,
        args,
        sample: None,
        ..
    } = &table.relation
    else {
        return Err(at(table.relation.span(), SOURCE_USAGE));
    };
    let alias = alias.as_ref().map(|alias| alias.name.value.clone());
    let idents = idents_of(name)?;
    let Some(args) = args else {
        return Ok((endpoint_source(&idents)?, None, alias));
    };
    let function = idents.first().map_or("", |ident| ident.value.as_str());
    if idents.len() != 1 || !function.eq_ignore_ascii_case("tumble") {
        let message = format!("the window {function} is not supported: {TUMBLE_USAGE}");
        return Err(at(name.span(), message));
    }
    let mut expressions = Vec::with_capacity(3);
    for arg in &args.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else {
            return Err(at(arg.span(), TUMBLE_USAGE));
        };
        expressions.push(expr);
    }
    let (source, time_column, length) = match expressions.as_slice() {
        [source, length] => (source, None, length),
        [source, column, length] => (source, Some(*column), length),
        _ => return Err(at(name.span(), TUMBLE_USAGE)),
    };
    let source = match source {
        Expr::Identifier(ident) => endpoint_source(std::slice::from_ref(ident))?,
        Expr::CompoundIdentifier(idents) => endpoint_source(idents)?,
        other => return Err(at(other.span(), SOURCE_USAGE)),
    };
    let Expr::Interval(interval) = length else {
        return Err(at(length.span(), TUMBLE_USAGE));
    };
    let length = checked_length(interval_millis(interval)?, interval.value.span())?;
    Ok((
        source,
        Some(WindowText {
            time_column,
            length,
        }),
        alias,
    ))
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
            time_column: None,
            length,
        }) => Some(Tumbling {
            length,
            shape: WindowShape::Tumble,
            time: EventTime::Source,
        }),
        Some(WindowText {
            time_column: Some(column),
            length,
        }) => {
            let column = expressions::lower(column, names)?;
            Some(Tumbling {
                length,
                shape: WindowShape::Tumble,
                time: EventTime::Column(column),
            })
        }
    };
    let GroupByExpr::Expressions(keys, _) = &select.group_by else {
        return Ok(window);
    };
    for key in keys {
        let Some(length) = tumbling_window(key)? else {
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
            shape: WindowShape::Tumble,
            time: EventTime::Source,
        });
    }
    Ok(window)
}

/// The length that a `TUMBLINGWINDOW(unit, length)` names; none for any other key.
pub fn tumbling_window(key: &Expr) -> Checked<Option<Duration>> {
    let Expr::Function(function) = key else {
        return Ok(None);
    };
    let name = function.name.to_string();
    if !name.to_ascii_lowercase().ends_with("window") {
        return Ok(None);
    }
    if !name.eq_ignore_ascii_case("tumblingwindow") {
        let message = format!("the window {name} is not supported: {TUMBLING_USAGE}");
        return Err(at(function.name.span(), message));
    }
    let span = function.name.span();
    let arguments = expressions::arguments(function)?;
    let [Expr::Identifier(unit), Expr::Value(length)] = arguments.as_slice() else {
        return Err(at(span, TUMBLING_USAGE));
    };
    let unit_ms = match unit.value.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "ss" => 1_000,
        "mi" => 60_000,
        "hh" => 3_600_000,
        "dd" => 86_400_000,
        _ => return Err(at(unit.span, "the unit is one of ms, ss, mi, hh, dd")),
    };
    let SqlValue::Number(count, _) = &length.value else {
        return Err(at(length.span, TUMBLING_USAGE));
    };
    let millis = count.parse::<f64>().unwrap_or(f64::NAN) * unit_ms as f64;
    checked_length(millis, length.span).map(Some)
}

enum Kind {
    Mqtt,
    Kafka,
}

fn endpoint_source(idents: &[Ident]) -> Checked<Source> {
    let (kind, topic, span) = endpoint(idents)?;
    match kind {
        Kind::Mqtt => match topic.parse::<MqttFilter>() {
            Ok(_) => Ok(Source::Mqtt(topic)),
            Err(error) => Err(at(span, format!("no MQTT topic filter: {error}"))),
        },
        Kind::Kafka => Ok(Source::Kafka(kafka_topic(&topic, span)?)),
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

fn interval_millis(interval: &Interval) -> Checked<f64> {
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

fn unit_millis(unit: &str) -> Option<i64> {
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

const SOURCE_USAGE: &str =
    "write mqtt.\"a/+/b\" for an MQTT topic, kafka.\"topic\" for a Kafka topic";
const TUMBLE_USAGE: &str = "write TUMBLE(source, INTERVAL '10 seconds') or TUMBLE(source, \
                            time_column, INTERVAL '10 seconds')";
const TUMBLING_USAGE: &str = "write TUMBLINGWINDOW(ss, 10) with a unit of ms, ss, mi, hh or dd";
const INTERVAL_USAGE: &str = "write the interval as INTERVAL '10 seconds'; units are \
                              milliseconds, seconds, minutes, hours and days";
