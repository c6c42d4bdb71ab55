//! Settings of MapR's and Confluent's proxies under their own names, for `[rest.properties]` and for
//! the bodies that make consumer instances.
//!
//! One table says what each means here. Those about waiting and threads are taken and have no effect:
//! nothing here lingers, and no pool has to be sized.

use std::time::Duration;

use base::HumanDuration;
use streams::{Isolation, TopicName};

use crate::config::RestConfig;

/// What a property means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// `rest.default_stream`.
    DefaultStream,
    /// `rest.consumer_request_timeout`.
    RequestTimeout,
    /// `rest.consumer_instance_timeout`.
    InstanceTimeout,
    /// `rest.isolation`.
    Isolation,
    /// A number that changes nothing.
    NoEffect,
}

/// The configuration with its `properties` carried out; all that is wrong with them otherwise.
pub(crate) fn settled(mut config: RestConfig) -> Result<RestConfig, Vec<String>> {
    let mut problems = Vec::new();
    for (name, value) in config.properties.clone().iter() {
        let Some(meaning) = meaning(name) else {
            let names: Vec<&str> = PROPERTIES.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            problems.push(format!("properties.{name} is not known; there are {names}"));
            continue;
        };
        let number = value.trim().parse::<i64>();
        match (meaning, number) {
            (Meaning::DefaultStream, _) => config.default_stream = Some(value.to_owned()),
            (Meaning::Isolation, _) => match isolation(value) {
                Some(isolation) => config.isolation = isolation,
                None => problems.push(format!(
                    "properties.{name} is '{value}': write read_committed or read_uncommitted"
                )),
            },
            (_, Err(_)) => problems.push(format!("properties.{name} is '{value}': write a number")),
            (Meaning::NoEffect, Ok(_)) => {}
            (Meaning::RequestTimeout | Meaning::InstanceTimeout, Ok(..0)) => {
                problems.push(format!("properties.{name} is {value}: write 0 or more"));
            }
            (Meaning::RequestTimeout, Ok(ms)) => config.consumer_request_timeout = millis(ms),
            (Meaning::InstanceTimeout, Ok(ms)) => config.consumer_instance_timeout = millis(ms),
        }
    }
    if let Some(stream) = config.default_stream.as_deref() {
        let is_stream = |name: TopicName| name.stream() == Some(stream);
        if !format!("{stream}:t").parse().is_ok_and(is_stream) {
            problems.push(format!(
                "default_stream is '{stream}': write a stream's path, such as /streams/test"
            ));
        }
    }
    match problems.is_empty() {
        true => Ok(config),
        false => Err(problems),
    }
}

/// Whether a name in the body that makes a consumer instance is one that changes nothing.
pub(crate) fn has_no_effect(name: &str) -> bool {
    meaning(name) == Some(Meaning::NoEffect)
}

/// Which records are shown, by Kafka's name.
pub(crate) fn isolation(name: &str) -> Option<Isolation> {
    let all = [Isolation::Committed, Isolation::Uncommitted];
    all.into_iter().find(|isolation| isolation.name() == name)
}

fn meaning(name: &str) -> Option<Meaning> {
    let found = PROPERTIES.iter().find(|(known, _)| *known == name);
    found.map(|(_, meaning)| *meaning)
}

fn millis(ms: i64) -> HumanDuration {
    HumanDuration(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

const PROPERTIES: &[(&str, Meaning)] = &[
    ("streams.default.stream", Meaning::DefaultStream),
    // As MapR's first articles spelled it.
    ("streams.default.streams", Meaning::DefaultStream),
    ("streams.admin.default.stream", Meaning::DefaultStream),
    ("streams.consumer.default.stream", Meaning::DefaultStream),
    ("streams.producer.default.stream", Meaning::DefaultStream),
    ("consumer.request.timeout.ms", Meaning::RequestTimeout),
    ("consumer.instance.timeout.ms", Meaning::InstanceTimeout),
    ("consumer.isolation.level", Meaning::Isolation),
    ("streams.buffer.max.time.ms", Meaning::NoEffect),
    ("consumer.iterator.backoff.ms", Meaning::NoEffect),
    ("consumer.iterator.timeout.ms", Meaning::NoEffect),
    ("consumer.threads", Meaning::NoEffect),
    ("producer.threads", Meaning::NoEffect),
    ("simpleconsumer.pool.size.max", Meaning::NoEffect),
    ("simpleconsumer.pool.timeout.ms", Meaning::NoEffect),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<RestConfig, Vec<String>> {
        settled(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn properties_are_carried_out_by_their_makers_names() {
        let config = of(r#"{"properties": {"consumer": {"request.timeout.ms": 125},
            "streams.default.stream": "/streams/test", "streams.buffer.max.time.ms": "0",
            "producer.threads": 5, "consumer.instance.timeout.ms": 60000,
            "consumer.isolation.level": "read_committed"}}"#)
        .unwrap();
        assert_eq!(
            config.consumer_request_timeout.0,
            Duration::from_millis(125)
        );
        assert_eq!(config.consumer_instance_timeout.0, Duration::from_secs(60));
        assert_eq!(config.default_stream.as_deref(), Some("/streams/test"));
        assert_eq!(config.isolation, Isolation::Committed);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (json, named) in [
            (r#"{"properties": {"no.such": 1}}"#, "no.such"),
            (
                r#"{"properties": {"consumer.threads": "many"}}"#,
                "consumer.threads",
            ),
            (
                r#"{"properties": {"consumer.request.timeout.ms": -1}}"#,
                "consumer.request.timeout.ms",
            ),
            (
                r#"{"properties": {"consumer.isolation.level": "committed"}}"#,
                "consumer.isolation.level",
            ),
            (r#"{"default_stream": "test"}"#, "default_stream"),
            (
                r#"{"default_stream": "/streams/test:topic"}"#,
                "default_stream",
            ),
        ] {
            let problems = of(json).unwrap_err();
            assert!(
                problems.len() == 1 && problems[0].contains(named),
                "{problems:?}"
            );
        }
    }
}
