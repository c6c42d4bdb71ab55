//! Reads processors, services, funnels, ports and connections, as they are written.

use std::time::Duration;

use serde_yaml_ng::Value;

use super::keys::Keys;
use super::node::{Node, scalar};
use super::read::{End, ROOT_INPUT, RawConnection, RawProcessor, RawService, Reader};
use super::{ConnectionDefinition, Prioritizer, Problems};
use crate::bulletins::Level;
use crate::limits::{
    CONNECTION_BYTES_DEFAULT, CONNECTION_FLOW_FILES_DEFAULT, SWAP_THRESHOLD_DEFAULT, TASKS_MAX,
};
use crate::units;

impl Reader<'_> {
    pub(super) fn processor(&mut self, node: &Node<'_>, group_id: &str) {
        let keys = self.keys;
        if node.map(self.problems).is_none() {
            return;
        }
        let lists = [
            keys.id,
            keys.name,
            keys.class,
            keys.properties,
            keys.auto_terminated,
            keys.strategy,
            keys.period,
            keys.tasks,
            keys.penalization,
            keys.yield_period,
            keys.run_duration,
            keys.bulletin_level,
            keys.idle.processor,
        ];
        self.only(node, &lists);
        let problems = &mut *self.problems;
        let tasks_max = node.parsed(
            keys.tasks,
            1u32,
            TASKS,
            |text| text.parse().ok().filter(|n| (1..=TASKS_MAX).contains(n)),
            problems,
        );
        // NiFi's JSON counts milliseconds, MiNiFi's YAML nanoseconds.
        let unit = if keys.run_duration[0].ends_with("Millis") {
            Duration::from_millis
        } else {
            Duration::from_nanos
        };
        let run_duration = node.parsed(
            keys.run_duration,
            Duration::ZERO,
            "whole number",
            |text| text.trim().parse().ok().map(unit),
            problems,
        );
        let bulletin_level = node.parsed(
            keys.bulletin_level,
            Level::Warning,
            "bulletin level: write DEBUG, INFO, WARN, ERROR or NONE",
            Level::parse,
            problems,
        );
        let class = node.text(keys.class, problems).unwrap_or_default();
        if class.is_empty() {
            problems.add(&node.join(keys.class[0]), "is missing");
        }
        let (penalty, rest) = (Duration::from_secs(30), Duration::from_secs(1));
        let penalization = node.parsed(
            keys.penalization,
            penalty,
            DURATION,
            units::duration,
            problems,
        );
        let yield_period =
            node.parsed(keys.yield_period, rest, DURATION, units::duration, problems);
        let strategy = node
            .text(keys.strategy, problems)
            .unwrap_or_else(|| "TIMER_DRIVEN".to_owned());
        let processor = RawProcessor {
            other_id: node.text(&["instanceIdentifier"], problems),
            name: node
                .text(keys.name, problems)
                .unwrap_or_else(|| class.clone()),
            path: node.path.clone(),
            group_id: group_id.to_owned(),
            class,
            strategy,
            period: node.text(keys.period, problems),
            penalization,
            yield_period,
            run_duration,
            tasks_max,
            bulletin_level,
            auto_terminated: node.texts(keys.auto_terminated, problems),
            properties: properties(node, keys, problems),
            id: self.id(node, group_id, "processor"),
        };
        self.raw.processors.push(processor);
    }

    /// A controller service, or a parameter provider, which is written the same.
    pub(super) fn service(
        &mut self,
        node: &Node<'_>,
        group_id: &str,
        what: &str,
    ) -> Option<RawService> {
        let keys = self.keys;
        node.map(self.problems)?;
        let lists = [
            keys.id,
            keys.name,
            keys.class,
            keys.properties,
            keys.idle.port,
        ];
        self.only(node, &lists);
        let id = self.id(node, group_id, what);
        let problems = &mut *self.problems;
        let class = node.text(keys.class, problems).unwrap_or_default();
        if class.is_empty() {
            problems.add(&node.join(keys.class[0]), "is missing");
        }
        Some(RawService {
            other_id: node.text(&["instanceIdentifier"], problems),
            name: node
                .text(keys.name, problems)
                .unwrap_or_else(|| class.clone()),
            path: node.path.clone(),
            group_id: group_id.to_owned(),
            class,
            properties: properties(node, keys, problems),
            id,
        })
    }

    pub(super) fn funnel(&mut self, node: &Node<'_>, group_id: &str, class: &str) {
        if node.map(self.problems).is_none() {
            return;
        }
        self.only(node, &[self.keys.id, self.keys.name, self.keys.idle.port]);
        let id = self.id(node, group_id, "funnel");
        let is_source = class == ROOT_INPUT;
        self.raw.processors.push(RawProcessor {
            other_id: node.text(&["instanceIdentifier"], self.problems),
            name: node
                .text(self.keys.name, self.problems)
                .unwrap_or_else(|| "funnel".to_owned()),
            path: node.path.clone(),
            group_id: group_id.to_owned(),
            class: class.to_owned(),
            strategy: if is_source {
                "TIMER_DRIVEN"
            } else {
                "EVENT_DRIVEN"
            }
            .to_owned(),
            period: is_source.then(|| "0 ms".to_owned()),
            penalization: Duration::ZERO,
            yield_period: Duration::from_secs(1),
            run_duration: Duration::ZERO,
            tasks_max: 1,
            bulletin_level: Level::Warning,
            auto_terminated: Vec::new(),
            properties: Vec::new(),
            id,
        });
    }

    pub(super) fn connection(&mut self, node: &Node<'_>, group_id: &str) {
        let keys = self.keys;
        if node.map(self.problems).is_none() {
            return;
        }
        let lists = [
            keys.id,
            keys.name,
            keys.relationships,
            keys.flow_files_max,
            keys.bytes_max,
            keys.expiration,
            keys.drop_empty,
            keys.swap_threshold,
            keys.prioritizers,
            keys.idle.connection,
        ];
        self.only(node, &lists);
        let id = self.id(node, group_id, "connection");
        let problems = &mut *self.problems;
        let number = |text: &str| text.trim().parse().ok();
        let definition = ConnectionDefinition {
            name: node.text(keys.name, problems).unwrap_or_else(|| id.clone()),
            id,
            path: node.path.clone(),
            source: String::new(),
            relationships: node.texts(keys.relationships, problems),
            destination: String::new(),
            flow_files_max: node.parsed(
                keys.flow_files_max,
                CONNECTION_FLOW_FILES_DEFAULT,
                "number of FlowFiles",
                number,
                problems,
            ),
            bytes_max: node.parsed(
                keys.bytes_max,
                CONNECTION_BYTES_DEFAULT,
                "size: write a number and B, KB, MB, GB or TB",
                units::size,
                problems,
            ),
            expiration: node.parsed(
                keys.expiration,
                Duration::ZERO,
                DURATION,
                units::duration,
                problems,
            ),
            drop_empty: node.parsed(
                keys.drop_empty,
                false,
                "true or false",
                units::flag,
                problems,
            ),
            swap_threshold: node.parsed(
                keys.swap_threshold,
                SWAP_THRESHOLD_DEFAULT,
                "number of FlowFiles",
                number,
                problems,
            ),
            prioritizers: prioritizers(node, keys, problems),
        };
        let source = self.end(node, "source");
        let destination = self.end(node, "destination");
        self.raw.connections.push(RawConnection {
            definition,
            source,
            destination,
        });
    }

    /// `source id` and `source name` in YAML, `source: {id, name}` in JSON.
    pub(super) fn end(&mut self, node: &Node<'_>, which: &str) -> End {
        let (id_key, name_key) = (format!("{which} id"), format!("{which} name"));
        let (id, name) = match node.find(&[which]) {
            Some(end) => (
                end.text(&["id"], self.problems),
                end.text(&["name"], self.problems),
            ),
            None => (
                node.text(&[id_key.as_str()], self.problems),
                node.text(&[name_key.as_str()], self.problems),
            ),
        };
        match (id, name) {
            (Some(id), _) => End::Id(id),
            (None, Some(name)) => End::Name(name),
            (None, None) => {
                self.problems.add(&node.path, format!("has no {which}"));
                End::Missing
            }
        }
    }
}

pub(super) fn properties(
    node: &Node<'_>,
    keys: &Keys,
    problems: &mut Problems,
) -> Vec<(String, String)> {
    let Some(properties) = node.find(keys.properties) else {
        return Vec::new();
    };
    let Some(map) = properties.map(problems) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for (key, value) in map {
        let Some(key) = scalar(key) else {
            problems.add(&properties.path, "has a key that is no text");
            continue;
        };
        let text = match value {
            Value::Null => continue,
            // MiNiFi writes a property with several values as a list of maps.
            Value::Sequence(items) => items
                .iter()
                .map(|item| scalar(item.get("value").unwrap_or(item)))
                .collect::<Option<Vec<_>>>()
                .map(|values| values.join(",")),
            single => scalar(single),
        };
        match text {
            Some(text) => out.push((key, text)),
            None => problems.add(&properties.join(&key), "must be a single value"),
        }
    }
    out
}

fn prioritizers(node: &Node<'_>, keys: &Keys, problems: &mut Problems) -> Vec<Prioritizer> {
    let mut found = Vec::new();
    for class in node.texts(keys.prioritizers, problems) {
        for class in class.split(',').map(str::trim).filter(|c| !c.is_empty()) {
            match Prioritizer::parse(class) {
                Some(prioritizer) => found.push(prioritizer),
                None => problems.add(
                    &node.join(keys.prioritizers[0]),
                    format!("there is no prioritizer '{class}'; there are: {PRIORITIZERS}"),
                ),
            }
        }
    }
    found
}

pub(super) const TASKS: &str = "number of tasks: write 1 to 255";

pub(super) const PRIORITIZERS: &str = "FirstInFirstOutPrioritizer, NewestFlowFileFirstPrioritizer, OldestFlowFileFirstPrioritizer, \
     PriorityAttributePrioritizer";

pub(super) const DURATION: &str = "duration: write a number and ms, sec, min, hour or day";
