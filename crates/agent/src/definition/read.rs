//! Reads a text into raw components, without knowing what processors there are.

use std::collections::HashMap;
use std::time::Duration;

use serde_yaml_ng::Value;

use super::idle::Notes;
use super::keys::{JSON, Keys, YAML};
use super::node::{Node, scalar};
use super::{ConnectionDefinition, Problems};
use crate::bulletins::Level;
use crate::limits::{FLOW_TEXT_BYTES_MAX, GROUP_DEPTH_MAX};
use crate::parameters::Context;

/// A flow as written.
#[derive(Default)]
pub(super) struct RawFlow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) services: Vec<RawService>,
    pub(super) processors: Vec<RawProcessor>,
    pub(super) connections: Vec<RawConnection>,
    pub(super) contexts: Vec<Context>,
    pub(super) providers: Vec<RawService>,
    /// The parameter context of each process group that names one, with the name's place.
    pub(super) group_contexts: HashMap<String, (String, String)>,
    /// What was passed over.
    pub(super) notes: Notes,
}

/// A controller service or parameter provider as written.
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

/// The classes of the root group's ports, which peers reach by site-to-site.
pub(super) const ROOT_INPUT: &str = "\u{0}input";
pub(super) const ROOT_OUTPUT: &str = "\u{0}output";

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
        parse_yaml(text)
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

/// Parses YAML that anybody may have written.
pub(super) fn parse_yaml(text: &str) -> Result<Value, String> {
    if let Some((line, column)) = base::nests_too_deep(text) {
        return Err(format!(
            "brackets nest too deep at line {line} column {column}"
        ));
    }
    serde_yaml_ng::from_str(text).map_err(|error| error.to_string())
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
    reader.contexts(root);
    reader.reporting(root);
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
    reader.top(root);
    reader.contexts(root);
    reader.reporting(root);
    reader.group(&group, &id, 0);
    Some(reader.finish(id, name))
}

/// Reads one text into a [`RawFlow`].
pub(super) struct Reader<'p> {
    pub(super) keys: &'static Keys,
    pub(super) problems: &'p mut Problems,
    pub(super) raw: RawFlow,
}

impl<'p> Reader<'p> {
    fn new(keys: &'static Keys, problems: &'p mut Problems) -> Self {
        Reader {
            keys,
            problems,
            raw: RawFlow::default(),
        }
    }

    fn finish(self, id: String, name: String) -> RawFlow {
        let mut raw = RawFlow {
            id,
            name,
            ..self.raw
        };
        raw.notes.is_lenient = !self.keys.is_strict;
        raw
    }

    /// The top of a JSON text, around its root group.
    fn top(&mut self, root: &Node<'_>) {
        let keys = self.keys;
        self.only(
            root,
            &[
                keys.parameters.contexts,
                keys.parameters.providers,
                keys.reporting.section,
                keys.idle.top,
            ],
        );
        for list in ["reportingTasks", "flowAnalysisRules"] {
            if let Some(node) = root.find(&[list])
                && node
                    .value
                    .as_sequence()
                    .is_some_and(|list| !list.is_empty())
            {
                self.raw.notes.add(&node.path, "is passed over");
            }
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
        let mut lists = vec![
            keys.services,
            keys.processors,
            keys.connections,
            keys.groups,
            keys.remote.list,
            keys.funnels,
            keys.input_ports,
            keys.output_ports,
            keys.parameters.context_name,
            keys.id,
            keys.name,
            keys.idle.group,
        ];
        if depth == 0 && keys.is_strict {
            lists.extend([
                keys.parameters.contexts,
                keys.parameters.providers,
                keys.reporting.section,
                keys.idle.top,
            ]);
        }
        self.only(group, &lists);
        if let Some(name) = group.text(keys.parameters.context_name, self.problems)
            && !name.is_empty()
        {
            let path = group.join(keys.parameters.context_name[0]);
            let contexts = &mut self.raw.group_contexts;
            contexts.insert(group_id.to_owned(), (name, path));
        }
        for node in group.list(keys.services, self.problems) {
            if let Some(service) = self.service(&node, group_id, "service") {
                self.raw.services.push(service);
            }
        }
        for node in group.list(keys.processors, self.problems) {
            self.processor(&node, group_id);
        }
        for node in group.list(keys.remote.list, self.problems) {
            self.remote_group(&node, group_id);
        }
        let is_root = depth == 0;
        for (list, class) in [
            (keys.funnels, FUNNEL),
            (keys.input_ports, if is_root { ROOT_INPUT } else { FUNNEL }),
            (
                keys.output_ports,
                if is_root { ROOT_OUTPUT } else { FUNNEL },
            ),
        ] {
            for node in group.list(list, self.problems) {
                self.funnel(&node, group_id, class);
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

    /// The id as written, or one made from what stays when the text is edited elsewhere.
    pub(super) fn id(&mut self, node: &Node<'_>, group_id: &str, what: &str) -> String {
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

    /// Names every key that is none of `known`, and settings that do not hold here.
    pub(super) fn only(&mut self, node: &Node<'_>, known: &[&[&str]]) {
        let Some(map) = node.value.as_mapping() else {
            return;
        };
        for (key, value) in map {
            let key = scalar(key).unwrap_or_else(|| "?".to_owned());
            let is_known = known.iter().any(|list| list.contains(&key.as_str()));
            let path = node.join(&key);
            if !is_known && self.keys.is_strict {
                self.problems.add(&path, "is no key that belongs here");
            } else if !is_known {
                self.raw.notes.add(&path, "is not known and passed over");
            }
            let mut unheeded = self.keys.unheeded.iter();
            if let Some((_, usual)) = unheeded.find(|(name, _)| *name == key)
                && let Some(value) = scalar(value)
                && !usual.contains(&value.as_str())
            {
                let message = format!("'{value}' has no effect here");
                self.raw.notes.add(&path, message);
            }
        }
    }
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
