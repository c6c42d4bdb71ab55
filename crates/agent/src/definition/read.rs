//! Reads a text into raw components, without knowing what processors there are.

use std::time::Duration;

use serde_yaml_ng::Value;

use super::keys::{JSON, Keys, YAML};
use super::node::{Node, scalar};
use super::{ConnectionDefinition, Prioritizer, Problems};
use crate::bulletins::Level;
use crate::limits::{
    CONNECTION_BYTES_DEFAULT, CONNECTION_FLOW_FILES_DEFAULT, FLOW_TEXT_BYTES_MAX, GROUP_DEPTH_MAX,
    TASKS_MAX,
};
use crate::units;

/// A flow as written.
pub(super) struct RawFlow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) services: Vec<RawService>,
    pub(super) processors: Vec<RawProcessor>,
    pub(super) connections: Vec<RawConnection>,
}

/// A controller service as written.
pub(super) struct RawService {
    pub(super) id: String,
    pub(super) other_id: Option<String>,
    pub(super) name: String,
    pub(super) path: String,
    pub(super) group_id: String,
    pub(super) class: String,
    pub(super) properties: Vec<(String, String)>,
}

/// A processor as written; funnels and ports have the class [`FUNNEL`].
pub(super) struct RawProcessor {
    pub(super) id: String,
    pub(super) other_id: Option<String>,
    pub(super) name: String,
    pub(super) path: String,
    pub(super) group_id: String,
    pub(super) class: String,
    pub(super) strategy: String,
    pub(super) period: Option<String>,
    pub(super) penalization: Duration,
    pub(super) yield_period: Duration,
    pub(super) run_duration: Duration,
    pub(super) tasks_max: u32,
    pub(super) bulletin_level: Level,
    pub(super) auto_terminated: Vec<String>,
    pub(super) properties: Vec<(String, String)>,
}

/// A connection whose ends may still be names.
pub(super) struct RawConnection {
    pub(super) definition: ConnectionDefinition,
    pub(super) source: End,
    pub(super) destination: End,
}

/// How a connection names an end.
pub(super) enum End {
    Id(String),
    Name(String),
    Missing,
}

/// The class of funnels and ports, which no text can spell.
pub(super) const FUNNEL: &str = "\u{0}funnel";

/// Reads `text`; `None` when it is too broken to look for more problems.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<RawFlow> {
    if text.len() > FLOW_TEXT_BYTES_MAX {
        problems.add(
            "flow",
            format!("is longer than {FLOW_TEXT_BYTES_MAX} bytes"),
        );
        return None;
    }
    let is_json = text.trim_start().starts_with('{');
    let value: Result<Value, String> = if is_json {
        serde_json::from_str(text).map_err(|error| error.to_string())
    } else {
        serde_yaml_ng::from_str(text).map_err(|error| error.to_string())
    };
    let value = match value {
        Ok(value) => value,
        Err(error) => {
            let format = if is_json { "JSON" } else { "YAML" };
            problems.add("flow", format!("is no {format}: {error}"));
            return None;
        }
    };
    let root = Node::root(&value);
    if is_json {
        read_json(&root, problems)
    } else {
        read_yaml(&root, problems)
    }
}

fn read_yaml(root: &Node<'_>, problems: &mut Problems) -> Option<RawFlow> {
    if root.value.as_mapping().is_none() {
        problems.add(
            "flow",
            "must be a map with 'Flow Controller', 'Processors', 'Connections'",
        );
        return None;
    }
    if let Some(version) = root.text(&["MiNiFi Config Version"], problems)
        && !["1", "2", "3"].contains(&version.as_str())
    {
        problems.add(
            "MiNiFi Config Version",
            format!("'{version}' is none of 1, 2, 3"),
        );
    }
    let controller = root.find(&["Flow Controller"]);
    let read = |key: &str, problems: &mut Problems| {
        controller
            .as_ref()
            .and_then(|node| node.text(&[key], problems))
            .unwrap_or_default()
    };
    let (id, name) = (read("id", problems), read("name", problems));
    let mut reader = Reader::new(&YAML, problems);
    reader.group(root, &id, 0);
    Some(reader.finish(id, name))
}

fn read_json(root: &Node<'_>, problems: &mut Problems) -> Option<RawFlow> {
    // A flow exported from NiFi's registry holds its group as `flowContents`.
    let Some(group) = root.find(&["rootGroup", "flowContents"]) else {
        problems.add(
            "rootGroup",
            "is missing: this is no flow definition of NiFi's",
        );
        return None;
    };
    let id = group.text(JSON.id, problems).unwrap_or_default();
    let name = group.text(JSON.name, problems).unwrap_or_default();
    let mut reader = Reader::new(&JSON, problems);
    reader.refuse(root);
    reader.group(&group, &id, 0);
    Some(reader.finish(id, name))
}

struct Reader<'p> {
    keys: &'static Keys,
    problems: &'p mut Problems,
    services: Vec<RawService>,
    processors: Vec<RawProcessor>,
    connections: Vec<RawConnection>,
}

impl<'p> Reader<'p> {
    fn new(keys: &'static Keys, problems: &'p mut Problems) -> Self {
        Reader {
            keys,
            problems,
            services: Vec::new(),
            processors: Vec::new(),
            connections: Vec::new(),
        }
    }

    fn finish(self, id: String, name: String) -> RawFlow {
        RawFlow {
            id,
            name,
            services: self.services,
            processors: self.processors,
            connections: self.connections,
        }
    }

    fn group(&mut self, group: &Node<'_>, group_id: &str, depth: usize) {
        if depth > GROUP_DEPTH_MAX {
            self.problems
                .add(&group.path, "process groups are nested too deeply");
            return;
        }
        let keys = self.keys;
        if group.map(self.problems).is_none() {
            return;
        }
        self.refuse(group);
        if let Some(idle) = &keys.idle {
            let lists = [
                keys.services,
                keys.processors,
                keys.connections,
                keys.groups,
                keys.funnels,
                keys.input_ports,
                keys.output_ports,
                keys.id,
                keys.name,
                idle.group,
            ];
            let refused: Vec<&str> = keys.refused.iter().map(|(key, _)| *key).collect();
            self.only(group, &[lists.as_slice(), &[refused.as_slice()]].concat());
        }
        for node in group.list(keys.services, self.problems) {
            self.service(&node, group_id);
        }
        for node in group.list(keys.processors, self.problems) {
            self.processor(&node, group_id);
        }
        for list in [keys.funnels, keys.input_ports, keys.output_ports] {
            for node in group.list(list, self.problems) {
                self.funnel(&node, group_id);
            }
        }
        for node in group.list(keys.connections, self.problems) {
            self.connection(&node, group_id);
        }
        for node in group.list(keys.groups, self.problems) {
            let id = self.id(&node, group_id, "group");
            self.group(&node, &id, depth + 1);
        }
    }

    fn refuse(&mut self, group: &Node<'_>) {
        for (key, words) in self.keys.refused {
            let Some(node) = group.find(&[*key]) else {
                continue;
            };
            let is_empty = match node.value {
                Value::Sequence(items) => items.is_empty(),
                Value::Mapping(map) => map.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            };
            if !is_empty {
                self.problems.add(
                    &node.path,
                    format!("{words} are not supported yet; remove them"),
                );
            }
        }
    }

    fn processor(&mut self, node: &Node<'_>, group_id: &str) {
        let keys = self.keys;
        if node.map(self.problems).is_none() {
            return;
        }
        if let Some(idle) = &keys.idle {
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
                idle.processor,
            ];
            self.only(node, &lists);
        }
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
        self.processors.push(processor);
    }

    fn service(&mut self, node: &Node<'_>, group_id: &str) {
        let keys = self.keys;
        if node.map(self.problems).is_none() {
            return;
        }
        if let Some(idle) = &keys.idle {
            let lists = [keys.id, keys.name, keys.class, keys.properties, idle.port];
            self.only(node, &lists);
        }
        let id = self.id(node, group_id, "service");
        let problems = &mut *self.problems;
        let class = node.text(keys.class, problems).unwrap_or_default();
        if class.is_empty() {
            problems.add(&node.join(keys.class[0]), "is missing");
        }
        self.services.push(RawService {
            other_id: node.text(&["instanceIdentifier"], problems),
            name: node
                .text(keys.name, problems)
                .unwrap_or_else(|| class.clone()),
            path: node.path.clone(),
            group_id: group_id.to_owned(),
            class,
            properties: properties(node, keys, problems),
            id,
        });
    }

    fn funnel(&mut self, node: &Node<'_>, group_id: &str) {
        if node.map(self.problems).is_none() {
            return;
        }
        if let Some(idle) = &self.keys.idle {
            self.only(node, &[self.keys.id, self.keys.name, idle.port]);
        }
        let id = self.id(node, group_id, "funnel");
        self.processors.push(RawProcessor {
            other_id: node.text(&["instanceIdentifier"], self.problems),
            name: node
                .text(self.keys.name, self.problems)
                .unwrap_or_else(|| "funnel".to_owned()),
            path: node.path.clone(),
            group_id: group_id.to_owned(),
            class: FUNNEL.to_owned(),
            strategy: "EVENT_DRIVEN".to_owned(),
            period: None,
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

    fn connection(&mut self, node: &Node<'_>, group_id: &str) {
        let keys = self.keys;
        if node.map(self.problems).is_none() {
            return;
        }
        if let Some(idle) = &keys.idle {
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
                idle.connection,
            ];
            self.only(node, &lists);
        }
        let id = self.id(node, group_id, "connection");
        let problems = &mut *self.problems;
        let number = |text: &str| text.trim().parse().ok();
        let flag = |text: &str| text.to_ascii_lowercase().parse().ok();
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
            drop_empty: node.parsed(keys.drop_empty, false, "true or false", flag, problems),
            swap_threshold: node.parsed(
                keys.swap_threshold,
                0,
                "number of FlowFiles",
                number,
                problems,
            ),
            prioritizers: prioritizers(node, keys, problems),
        };
        let source = self.end(node, "source");
        let destination = self.end(node, "destination");
        self.connections.push(RawConnection {
            definition,
            source,
            destination,
        });
    }

    /// `source id` and `source name` in YAML, `source: {id, name}` in JSON.
    fn end(&mut self, node: &Node<'_>, which: &str) -> End {
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

    /// The id as written, or one made from what stays when the text is edited elsewhere.
    fn id(&mut self, node: &Node<'_>, group_id: &str, what: &str) -> String {
        if let Some(id) = node
            .text(self.keys.id, self.problems)
            .filter(|id| !id.is_empty())
        {
            return id;
        }
        let mut parts = vec![group_id.to_owned(), what.to_owned()];
        for key in [
            "name",
            "source name",
            "source id",
            "destination name",
            "destination id",
        ] {
            parts.push(node.text(&[key], self.problems).unwrap_or_default());
        }
        parts.extend(node.texts(self.keys.relationships, self.problems));
        stable_id(&parts)
    }

    fn only(&mut self, node: &Node<'_>, known: &[&[&str]]) {
        let Some(map) = node.value.as_mapping() else {
            return;
        };
        for key in map.keys() {
            let key = scalar(key).unwrap_or_else(|| "?".to_owned());
            if !known.iter().any(|list| list.contains(&key.as_str())) {
                self.problems
                    .add(&node.join(&key), "is no key that belongs here");
            }
        }
    }
}

fn properties(node: &Node<'_>, keys: &Keys, problems: &mut Problems) -> Vec<(String, String)> {
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

fn stable_id(parts: &[String]) -> String {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .to_string()
}

const TASKS: &str = "number of tasks: write 1 to 64";

const PRIORITIZERS: &str = "FirstInFirstOutPrioritizer, NewestFlowFileFirstPrioritizer, OldestFlowFileFirstPrioritizer, \
     PriorityAttributePrioritizer";

const DURATION: &str = "duration: write a number and ms, sec, min, hour or day";
