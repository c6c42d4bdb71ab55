//! What a rule is made with.

use mqtt::TopicFilter;
use serde::{Deserialize, Serialize};
use streams::TopicName;

use crate::limits::{RULE_NAME_BYTES_MAX, RULE_TEXT_BYTES_MAX};
use crate::rules::RuleError;
use crate::rules::template::{Side, Template};
use crate::statement::Start;

/// A rule that maps MQTT topics to topics of the event store, or back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRule {
    /// Its name, of letters, digits, `-` and `_`.
    pub name: String,
    /// Where messages come from: `mqtt:FILTER` or `kafka:TOPIC`.
    pub from: String,
    /// Where they go, on the other side: `kafka:TOPIC` or `mqtt:TOPIC`, a template.
    pub to: String,
    /// The records' key, a template; the MQTT topic when absent, and empty for none. Only into the
    /// store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The quality of messages, 0 or 1. Only out of the store.
    #[serde(default = "qos_default")]
    pub qos: u8,
    /// Whether messages are retained. Only out of the store.
    #[serde(default)]
    pub retain: bool,
    /// Which records are the first. Only out of the store.
    #[serde(default)]
    pub start: Start,
    /// The consumer group that keeps the position; made of this installation and the name when
    /// absent. Nodes that name the same one share the records. Only out of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// What a rule does.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// From MQTT into the event store.
    ToStore {
        filter: TopicFilter,
        topic: Template,
        key: Option<Template>,
    },
    /// From the event store to MQTT.
    ToMqtt { topic: TopicName, to: Template },
}

/// From where a rule takes.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    Mqtt(TopicFilter),
    Store(TopicName),
}

impl Way {
    pub(super) fn taken(&self) -> Taken {
        match self {
            Way::ToStore { filter, .. } => Taken::Mqtt(filter.clone()),
            Way::ToMqtt { topic, .. } => Taken::Store(topic.clone()),
        }
    }
}

impl TopicRule {
    /// Checks what was written.
    ///
    /// # Errors
    /// [`RuleError::Invalid`] says what is wrong and what would be right.
    pub fn check(&self) -> Result<(), RuleError> {
        self.way().map(|_| ())
    }

    /// The group that keeps the position in the store.
    pub(super) fn group(&self, installation: &str) -> String {
        let own = || format!("thalweg-rule-{installation}-{}", self.name);
        self.group.clone().unwrap_or_else(own)
    }

    pub(super) fn way(&self) -> Result<Way, RuleError> {
        self.read().map_err(|problem| RuleError::Invalid {
            name: self.name.chars().take(RULE_NAME_BYTES_MAX).collect(),
            problem,
        })
    }

    fn read(&self) -> Result<Way, String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty()
            || self.name.len() > RULE_NAME_BYTES_MAX
            || !self.name.chars().all(is_name)
        {
            return Err(format!(
                "name it with 1 to {RULE_NAME_BYTES_MAX} letters, digits, - and _"
            ));
        }
        let key = self.key.as_deref().unwrap_or_default();
        for text in [&self.from, &self.to, key] {
            if text.len() > RULE_TEXT_BYTES_MAX {
                return Err(format!("a text is longer than {RULE_TEXT_BYTES_MAX} bytes"));
            }
        }
        if self.qos > 1 {
            return Err("qos is 0 or 1".to_owned());
        }
        if self.group.as_deref() == Some("") {
            return Err("group needs a name, or leave it out".to_owned());
        }
        let both = (self.from.split_once(':'), self.to.split_once(':'));
        match both {
            (Some(("mqtt", filter)), Some(("kafka", topic))) => self.to_store(filter, topic),
            (Some(("kafka", topic)), Some(("mqtt", to))) => self.to_mqtt(topic, to),
            _ => Err("write from = \"mqtt:FILTER\" and to = \"kafka:TOPIC\", or \
                 from = \"kafka:TOPIC\" and to = \"mqtt:TOPIC\""
                .to_owned()),
        }
    }

    fn to_store(&self, filter: &str, topic: &str) -> Result<Way, String> {
        let parsed: TopicFilter = filter
            .parse()
            .map_err(|error| format!("'{filter}' is no MQTT filter: {error}"))?;
        if filter.starts_with("$share/") {
            return Err("a shared subscription is for clients: write the filter alone".to_owned());
        }
        if self.retain || self.group.is_some() || self.start != Start::default() {
            return Err("retain, start and group are for rules from = \"kafka:…\"".to_owned());
        }
        let topic = Template::read(topic, Side::Mqtt)?;
        if let Some(literal) = topic.literal() {
            let name: Result<TopicName, _> = literal.parse();
            let name = name.map_err(|error| error.to_string())?;
            if name.is_internal() {
                return Err(format!("'{name}' is the store's own"));
            }
        }
        let key = match self.key.as_deref() {
            Some("") => None,
            key => Some(Template::read(key.unwrap_or("{topic}"), Side::Mqtt)?),
        };
        Ok(Way::ToStore {
            filter: parsed,
            topic,
            key,
        })
    }

    fn to_mqtt(&self, topic: &str, to: &str) -> Result<Way, String> {
        let topic: TopicName = topic
            .parse()
            .map_err(|error: streams::TopicNameError| error.to_string())?;
        if self.key.is_some() {
            return Err("key is for rules from = \"mqtt:…\"".to_owned());
        }
        let to = Template::read(to, Side::Store)?;
        if let Some(literal) = to.literal() {
            let name = literal.parse::<mqtt::TopicName>();
            name.map_err(|error| format!("'{literal}' is no MQTT topic: {error}"))?;
            if literal.starts_with("$SYS") {
                return Err("$SYS topics are the server's own".to_owned());
            }
        }
        Ok(Way::ToMqtt { topic, to })
    }
}

fn qos_default() -> u8 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<(), String> {
        let rule: TopicRule = serde_json::from_str(text).map_err(|error| error.to_string())?;
        rule.check().map_err(|error| error.to_string())
    }

    #[test]
    fn rules_that_can_work_are_taken() {
        for text in [
            r#"{"name": "a", "from": "mqtt:a/#", "to": "kafka:t"}"#,
            r#"{"name": "a", "from": "mqtt:a/+/b", "to": "kafka:p.{2}", "key": ""}"#,
            r#"{"name": "a", "from": "mqtt:a/+/b", "to": "kafka:/s/t:{2}", "key": "{header:k}"}"#,
            r#"{"name": "a", "from": "kafka:t", "to": "mqtt:b/{key}", "qos": 0, "retain": true}"#,
            r#"{"name": "a", "from": "kafka:t", "to": "mqtt:b", "start": "earliest", "group": "g"}"#,
        ] {
            assert_eq!(told(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn rules_that_cannot_work_say_why() {
        for (text, why) in [
            (
                r#"{"name": "a/b", "from": "mqtt:a", "to": "kafka:t"}"#,
                "letters",
            ),
            (
                r#"{"name": "a", "from": "mqtt:a", "to": "mqtt:b"}"#,
                "from =",
            ),
            (r#"{"name": "a", "from": "a", "to": "kafka:t"}"#, "from ="),
            (
                r##"{"name": "a", "from": "mqtt:a#", "to": "kafka:t"}"##,
                "filter",
            ),
            (
                r#"{"name": "a", "from": "mqtt:$share/g/a", "to": "kafka:t"}"#,
                "shared",
            ),
            (
                r#"{"name": "a", "from": "mqtt:a", "to": "kafka:a b"}"#,
                "topic name",
            ),
            (
                r#"{"name": "a", "from": "mqtt:a", "to": "kafka:__consumer_offsets"}"#,
                "own",
            ),
            (
                r#"{"name": "a", "from": "mqtt:a", "to": "kafka:{x}"}"#,
                "{x}",
            ),
            (
                r#"{"name": "a", "from": "mqtt:a", "to": "kafka:t", "retain": true}"#,
                "retain",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:a/+"}"#,
                "MQTT topic",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:$SYS/a"}"#,
                "$SYS",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:a/{2}"}"#,
                "{2}",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:a", "key": "k"}"#,
                "key",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:a", "qos": 2}"#,
                "qos",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:a", "group": ""}"#,
                "group",
            ),
            (
                r#"{"name": "a", "from": "kafka:t", "to": "mqtt:a", "more": 1}"#,
                "more",
            ),
        ] {
            let said = told(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
