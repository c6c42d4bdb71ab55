//! Where rows go beside what INSERT INTO names, and what they look like there.
//!
//! | target as text | what it is |
//! | --- | --- |
//! | `mqtt."a/b"` or `mqtt:a/b` | an MQTT topic, one message per row |
//! | `mqtt@cloud."a/b"` or `mqtt@cloud:a/b` | a topic of another broker, by the bridge of that name; rows wait on its journal |
//! | `kafka."t"` or `kafka:t` | a topic of the event store, one record per row |
//! | `sql@db:table`, `sql@db:table?key=a,b` | a table of a database that the configuration names; rows are added, or replace those of the same key |
//! | `http://host/path`, `https://…` | a POST per row; 5xx, 408, 429 and no answer are tried again, other refusals give the row up |
//!
//! Every row goes to every target, one target after another; a row counts as emitted when the last
//! has it. A target that takes nothing holds the statement's source back.

mod http;
mod letters;
mod observation;
pub mod tables;

use serde::{Deserialize, Serialize};

pub(crate) use http::client;
pub use http::{Posted, Poster};
pub use letters::{Budget, Kind, Letter, Letters};
pub use observation::observations;
pub use tables::{NotWritten, Rows, Table, Tables};

use crate::error::FusionError;
use crate::limits::TARGET_TEXT_BYTES_MAX;
use crate::output::Output;
use crate::plan::Sink;

/// What a row becomes on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputForm {
    /// A JSON object with a member per column.
    #[default]
    Rows,
    /// A SensorThings Observation whose result holds the row.
    Observations,
}

/// A target as text.
///
/// # Errors
/// `Refused`, with the forms there are.
pub fn target(text: &str) -> Result<Sink, FusionError> {
    let refused = |why: &str| {
        Err(FusionError::Refused(format!(
            "the target '{text}' {why}: write mqtt.\"topic\", kafka.\"topic\" or http://host/path"
        )))
    };
    if text.len() > TARGET_TEXT_BYTES_MAX {
        return refused("is too long");
    }
    if text.starts_with("http://") || text.starts_with("https://") {
        return match text.parse::<reqwest::Url>() {
            // It is shown in listings.
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                refused("holds a password, which everybody who lists statements would see")
            }
            Ok(_) => Ok(Sink::Http(text.to_owned())),
            Err(error) => refused(&format!("is no URL ({error})")),
        };
    }
    if let Some(table) = text.strip_prefix("sql@") {
        return match Table::parse(table) {
            Some(table) => Ok(Sink::Table(table)),
            None => refused("is no table: sql@DATABASE:table, or sql@DATABASE:table?key=a,b"),
        };
    }
    let parted = text.split_once(['.', ':']);
    let Some((kind, topic)) = parted else {
        return refused("names no kind");
    };
    let quoted = topic
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let topic = quoted.unwrap_or(topic);
    if let Some(bridge) = kind.strip_prefix("mqtt@") {
        return match topic.parse::<mqtt::TopicName>() {
            _ if bridge.is_empty() => refused("names no bridge: mqtt@NAME:topic"),
            Ok(_) => Ok(Sink::Bridge(bridge.to_owned(), topic.to_owned())),
            Err(error) => refused(&format!("is no MQTT topic ({error})")),
        };
    }
    match kind {
        "mqtt" => match topic.parse::<mqtt::TopicName>() {
            Ok(_) => Ok(Sink::Mqtt(topic.to_owned())),
            Err(error) => refused(&format!("is no MQTT topic ({error})")),
        },
        "kafka" => match topic.parse::<streams::TopicName>() {
            Ok(_) => Ok(Sink::Kafka(topic.to_owned())),
            Err(error) => refused(&format!("is no topic ({error})")),
        },
        _ => refused("is of no known kind"),
    }
}

/// The rows as they leave.
pub fn formed(form: OutputForm, output: Output, statement: &str, is_grouped: bool) -> Output {
    match form {
        OutputForm::Rows => output,
        OutputForm::Observations => observations(&output, statement, is_grouped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_they_are_shown() {
        for (text, expected) in [
            ("mqtt.\"a/b\"", Sink::Mqtt("a/b".to_owned())),
            ("mqtt:a.b/c", Sink::Mqtt("a.b/c".to_owned())),
            (
                "mqtt@cloud:a.b/c",
                Sink::Bridge("cloud".to_owned(), "a.b/c".to_owned()),
            ),
            ("kafka.t", Sink::Kafka("t".to_owned())),
            ("kafka.\"a.b\"", Sink::Kafka("a.b".to_owned())),
            (
                "sql@db:s.t?key=a,b",
                Sink::Table(Table {
                    database: "db".to_owned(),
                    table: "s.t".to_owned(),
                    key: vec!["a".to_owned(), "b".to_owned()],
                }),
            ),
            (
                "http://h:1/p?q=1",
                Sink::Http("http://h:1/p?q=1".to_owned()),
            ),
        ] {
            let sink = target(text).unwrap();
            assert_eq!(sink, expected);
            if !matches!(sink, Sink::Http(_)) {
                assert_eq!(target(&sink.to_string()).unwrap(), expected);
            }
        }
        for text in [
            "a/b",
            "mqtt.\"a/+\"",
            "mqtt@:a",
            "mqtt@cloud:a/#",
            "kafka.\"a b\"",
            "sql@db",
            "sql@db:",
            "sql@db:t?key=",
            "ftp.x",
            "http://",
            "https://u:p@h/",
        ] {
            let error = target(text).unwrap_err().to_string();
            assert!(error.contains("write mqtt."), "{error}");
        }
    }
}
