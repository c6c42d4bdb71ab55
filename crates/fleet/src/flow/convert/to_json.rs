//! MiNiFi's YAML as NiFi's flow JSON: what MiNiFi Java 2 reads.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{Bundles, LeftOut, is_empty, items, number, put, scalar, text, texts, truth};
use crate::registry::operation_id;

/// Writes the flow.
pub(super) fn flow(flow: &Value, bundles: &Bundles, left_out: &mut LeftOut) -> Value {
    let controller = &flow["Flow Controller"];
    let mut writer = Writer {
        bundles,
        left_out,
        ends: HashMap::new(),
        names: HashMap::new(),
    };
    let root_id = text(controller, &["id"])
        .or_else(|| text(flow, &["id"]))
        .unwrap_or_else(|| made_id("root", "", 0));
    writer.index(flow, &root_id);
    let mut root = writer.group(flow, &root_id);
    let name = text(controller, &["name"]).or_else(|| text(flow, &["name"]));
    root["name"] = json!(name.unwrap_or_default());
    root["comments"] = json!(text(controller, &["comment"]).unwrap_or_default());
    for (section, reason) in [
        ("Parameter Providers", "flow JSON for MiNiFi has none"),
        ("Provenance Reporting", "write a reporting task by hand"),
    ] {
        if flow.get(section).is_some_and(|section| !is_empty(section)) {
            writer.left_out.whole(section, reason);
        }
    }
    let contexts = items(flow, &["Parameter Contexts"]).iter().map(context);
    json!({
        "encodingVersion": {"majorVersion": 2, "minorVersion": 0},
        "maxTimerDrivenThreadCount": 10,
        "maxEventDrivenThreadCount": 1,
        "registries": [],
        "parameterContexts": contexts.collect::<Vec<_>>(),
        "parameterProviders": [],
        "controllerServices": [],
        "reportingTasks": [],
        "templates": [],
        "rootGroup": root,
    })
}

struct Writer<'w> {
    bundles: &'w Bundles,
    left_out: &'w mut LeftOut,
    /// What a connection's end can be, by id: its type, its group and its name.
    ends: HashMap<String, (&'static str, String, String)>,
    /// Ids by name; none for a name that two have.
    names: HashMap<String, Option<String>>,
}

impl Writer<'_> {
    /// Learns what connections may lead to.
    fn index(&mut self, group: &Value, id: &str) {
        for (list, kind) in ENDS {
            for (index, item) in items(group, &[list]).iter().enumerate() {
                let item_id = id_of(item, id, list, index);
                self.end(item, item_id, kind, id);
            }
        }
        for (index, remote) in items(group, REMOTE_GROUPS).iter().enumerate() {
            let remote_id = id_of(remote, id, "remote", index);
            for (list, kind) in REMOTE_PORTS {
                for port in items(remote, &[list]) {
                    let port_id = text(port, &["id"]).unwrap_or_default();
                    self.end(port, port_id, kind, &remote_id);
                }
            }
        }
        for (index, child) in items(group, &["Process Groups"]).iter().enumerate() {
            self.index(child, &id_of(child, id, "Process Groups", index));
        }
    }

    fn end(&mut self, item: &Value, id: String, kind: &'static str, group: &str) {
        let name = text(item, &["name"]).unwrap_or_default();
        if !name.is_empty() {
            let known = self.names.entry(name.clone());
            known
                .and_modify(|known| *known = None)
                .or_insert_with(|| Some(id.clone()));
        }
        self.ends.insert(id, (kind, group.to_owned(), name));
    }

    fn group(&mut self, group: &Value, id: &str) -> Value {
        let mut lists: Map<String, Value> = Map::new();
        let mut all = |key: &str, values: Vec<Value>| {
            lists.insert(key.to_owned(), Value::Array(values));
        };
        let each = |list: &[&str]| items(group, list).to_vec();
        let mut made = Vec::new();
        for (index, item) in each(&["Processors"]).iter().enumerate() {
            made.push(self.processor(item, &id_of(item, id, "Processors", index), id));
        }
        all("processors", std::mem::take(&mut made));
        for (index, item) in each(&["Controller Services"]).iter().enumerate() {
            made.push(self.service(item, &id_of(item, id, "Controller Services", index), id));
        }
        all("controllerServices", std::mem::take(&mut made));
        for (list, key, kind) in [
            ("Input Ports", "inputPorts", "INPUT_PORT"),
            ("Output Ports", "outputPorts", "OUTPUT_PORT"),
            ("Funnels", "funnels", "FUNNEL"),
        ] {
            for (index, item) in each(&[list]).iter().enumerate() {
                let mut port = component(item, &id_of(item, id, list, index), id, kind);
                if kind != "FUNNEL" {
                    put(&mut port, "type", Some(kind));
                    put(&mut port, "scheduledState", Some("RUNNING"));
                    put(&mut port, "concurrentlySchedulableTaskCount", Some(1));
                }
                made.push(Value::Object(port));
            }
            all(key, std::mem::take(&mut made));
        }
        for (index, item) in each(REMOTE_GROUPS).iter().enumerate() {
            made.push(self.remote(item, &id_of(item, id, "remote", index), id));
        }
        all("remoteProcessGroups", std::mem::take(&mut made));
        for (index, item) in each(&["Connections"]).iter().enumerate() {
            let connection_id = id_of(item, id, "Connections", index);
            made.extend(self.connection(item, &connection_id, id));
        }
        all("connections", std::mem::take(&mut made));
        for (index, item) in each(&["Process Groups"]).iter().enumerate() {
            let child_id = id_of(item, id, "Process Groups", index);
            let mut child = self.group(item, &child_id);
            child["groupIdentifier"] = json!(id);
            made.push(child);
        }
        all("processGroups", made);
        let mut out = component(group, id, id, "PROCESS_GROUP");
        out.remove("groupIdentifier");
        out.extend(lists);
        put(&mut out, "labels", Some(json!([])));
        put(&mut out, "defaultFlowFileExpiration", Some("0 sec"));
        put(&mut out, "defaultBackPressureObjectThreshold", Some(10_000));
        put(
            &mut out,
            "defaultBackPressureDataSizeThreshold",
            Some("1 GB"),
        );
        put(&mut out, "flowFileConcurrency", Some("UNBOUNDED"));
        let policy = "STREAM_WHEN_AVAILABLE";
        put(&mut out, "flowFileOutboundPolicy", Some(policy));
        put(&mut out, "executionEngine", Some("INHERITED"));
        put(&mut out, "maxConcurrentTasks", Some(1));
        put(&mut out, "statelessFlowTimeout", Some("1 min"));
        let context = text(group, &["Parameter Context Name"]);
        put(
            &mut out,
            "parameterContextName",
            context.filter(|c| !c.is_empty()),
        );
        Value::Object(out)
    }

    fn processor(&mut self, item: &Value, id: &str, group: &str) -> Value {
        let mut out = component(item, id, group, "PROCESSOR");
        self.class(item, &mut out);
        put(&mut out, "properties", Some(self.properties(item)));
        put(&mut out, "propertyDescriptors", Some(json!({})));
        put(&mut out, "style", Some(json!({})));
        let or = |key: &str, default: &str| {
            let found = text(item, &[key]).filter(|text| !text.is_empty());
            Some(found.unwrap_or_else(|| default.to_owned()))
        };
        let strategy = or("scheduling strategy", "TIMER_DRIVEN");
        if strategy.as_deref() == Some("EVENT_DRIVEN") {
            // NiFi 2 has no event driven scheduling: by the timer, without a wait, is the same.
            put(&mut out, "schedulingStrategy", Some("TIMER_DRIVEN"));
            put(&mut out, "schedulingPeriod", Some("0 sec"));
        } else {
            put(&mut out, "schedulingStrategy", strategy);
            put(
                &mut out,
                "schedulingPeriod",
                or("scheduling period", "0 sec"),
            );
        }
        put(&mut out, "executionNode", Some("ALL"));
        put(
            &mut out,
            "penaltyDuration",
            or("penalization period", "30 sec"),
        );
        put(&mut out, "yieldDuration", or("yield period", "1 sec"));
        put(&mut out, "bulletinLevel", or("bulletin level", "WARN"));
        let nanos = number(item, "run duration nanos").unwrap_or(0);
        put(&mut out, "runDurationMillis", Some(nanos / 1_000_000));
        let tasks = number(item, "max concurrent tasks").unwrap_or(1);
        put(&mut out, "concurrentlySchedulableTaskCount", Some(tasks));
        let ended = texts(item, &["auto-terminated relationships list"]);
        put(&mut out, "autoTerminatedRelationships", Some(ended));
        put(&mut out, "annotationData", text(item, &["annotation data"]));
        put(&mut out, "scheduledState", Some("RUNNING"));
        put(&mut out, "retryCount", Some(10));
        put(&mut out, "retriedRelationships", Some(json!([])));
        put(&mut out, "backoffMechanism", Some("PENALIZE_FLOWFILE"));
        put(&mut out, "maxBackoffPeriod", Some("10 mins"));
        Value::Object(out)
    }

    fn service(&mut self, item: &Value, id: &str, group: &str) -> Value {
        let mut out = component(item, id, group, "CONTROLLER_SERVICE");
        self.class(item, &mut out);
        put(&mut out, "properties", Some(self.properties(item)));
        put(&mut out, "propertyDescriptors", Some(json!({})));
        put(&mut out, "controllerServiceApis", Some(json!([])));
        put(&mut out, "bulletinLevel", Some("WARN"));
        put(&mut out, "scheduledState", Some("ENABLED"));
        Value::Object(out)
    }

    /// The whole type with its bundle, as far as the agents' manifest tells.
    fn class(&mut self, item: &Value, out: &mut Map<String, Value>) {
        let kind = text(item, &["class", "type"]).unwrap_or_default();
        let (kind, bundle) = self.bundles.find(&kind);
        put(out, "type", Some(kind));
        put(out, "bundle", bundle);
    }

    fn properties(&mut self, item: &Value) -> Value {
        let mut out = Map::new();
        let Some(properties) = item.get("Properties").and_then(Value::as_object) else {
            return Value::Object(out);
        };
        for (name, value) in properties {
            let one = |value: &Value| scalar(value).or_else(|| scalar(value.get("value")?));
            match value {
                Value::Null => {}
                Value::Array(values) if values.len() == 1 => put(&mut out, name, one(&values[0])),
                Value::Array(_) => {
                    let reason = "it has several values: flow JSON has one";
                    self.left_out.add(item, Some(name), reason);
                }
                value => put(&mut out, name, one(value)),
            }
        }
        Value::Object(out)
    }

    fn remote(&mut self, item: &Value, id: &str, group: &str) -> Value {
        let mut out = component(item, id, group, "REMOTE_PROCESS_GROUP");
        put(&mut out, "targetUris", text(item, &["url"]));
        put(&mut out, "communicationsTimeout", text(item, &["timeout"]));
        put(&mut out, "yieldDuration", text(item, &["yield period"]));
        put(
            &mut out,
            "transportProtocol",
            text(item, &["transport protocol"]),
        );
        for (yaml, json) in REMOTE_KEYS {
            let value = text(item, &[yaml]).filter(|value| !value.is_empty());
            put(&mut out, json, value);
        }
        for (list, kind) in REMOTE_PORTS {
            let ports = items(item, &[list]).iter().map(|port| {
                let port_id = text(port, &["id"]).unwrap_or_default();
                let mut made = component(port, &port_id, id, kind);
                put(&mut made, "targetId", Some(port_id.clone()));
                put(&mut made, "remoteGroupId", Some(id));
                let tasks = number(port, "max concurrent tasks").unwrap_or(1);
                put(&mut made, "concurrentlySchedulableTaskCount", Some(tasks));
                let packed = truth(port, "use compression").unwrap_or(false);
                put(&mut made, "useCompression", Some(packed));
                let batch = port.get("batch size").filter(|batch| !is_empty(batch));
                put(&mut made, "batchSize", batch.cloned());
                put(&mut made, "scheduledState", Some("RUNNING"));
                Value::Object(made)
            });
            let key = if list == "Input Ports" {
                "inputPorts"
            } else {
                "outputPorts"
            };
            put(&mut out, key, Some(ports.collect::<Vec<_>>()));
        }
        Value::Object(out)
    }

    fn connection(&mut self, item: &Value, id: &str, group: &str) -> Option<Value> {
        let mut out = component(item, id, group, "CONNECTION");
        for which in ["source", "destination"] {
            let found = self.find(item, which);
            let Some(end_id) = found else {
                let reason = format!("its {which} is not in the flow: the connection is left out");
                self.left_out.add(item, Some(which), reason);
                return None;
            };
            let (kind, end_group, name) = &self.ends[&end_id];
            let end = json!({
                "id": end_id, "type": kind, "groupId": end_group, "name": name, "comments": "",
                "instanceIdentifier": end_id,
            });
            put(&mut out, which, Some(end));
        }
        let relationships = texts(
            item,
            &["source relationship names", "source relationship name"],
        );
        put(&mut out, "selectedRelationships", Some(relationships));
        let count = number(item, "max work queue size").unwrap_or(10_000);
        put(&mut out, "backPressureObjectThreshold", Some(count));
        let size = text(item, &["max work queue data size"]).filter(|size| !size.is_empty());
        let size = size.unwrap_or_else(|| "1 GB".to_owned());
        put(&mut out, "backPressureDataSizeThreshold", Some(size));
        let expiration = text(item, &["flowfile expiration"]).filter(|text| !text.is_empty());
        let expiration = expiration.unwrap_or_else(|| "0 sec".to_owned());
        put(&mut out, "flowFileExpiration", Some(expiration));
        let first = text(item, &["queue prioritizer class"]).filter(|class| !class.is_empty());
        put(&mut out, "prioritizers", Some(Vec::from_iter(first)));
        put(
            &mut out,
            "dropEmpty",
            truth(item, "drop empty").filter(|drops| *drops),
        );
        put(&mut out, "loadBalanceStrategy", Some("DO_NOT_LOAD_BALANCE"));
        put(&mut out, "loadBalanceCompression", Some("DO_NOT_COMPRESS"));
        put(&mut out, "partitioningAttribute", Some(""));
        put(&mut out, "labelIndex", Some(0));
        put(&mut out, "zIndex", Some(0));
        put(&mut out, "bends", Some(json!([])));
        Some(Value::Object(out))
    }

    /// The id of a connection's end, which may be given by its name.
    fn find(&self, item: &Value, which: &str) -> Option<String> {
        let id = text(item, &[&format!("{which} id")]).filter(|id| self.ends.contains_key(id));
        id.or_else(|| {
            let name = text(item, &[&format!("{which} name")])?;
            self.names.get(&name).cloned().flatten()
        })
    }
}

/// What all components have.
fn component(item: &Value, id: &str, group: &str, kind: &str) -> Map<String, Value> {
    let mut out = Map::new();
    put(&mut out, "identifier", Some(id));
    put(&mut out, "instanceIdentifier", Some(id));
    put(&mut out, "groupIdentifier", Some(group));
    put(&mut out, "name", text(item, &["name"]));
    let comment = text(item, &["comment"]).unwrap_or_default();
    put(&mut out, "comments", Some(comment));
    put(&mut out, "position", Some(json!({"x": 0.0, "y": 0.0})));
    put(&mut out, "componentType", Some(kind));
    out
}

fn context(item: &Value) -> Value {
    let name = text(item, &["name"]).unwrap_or_default();
    let id = text(item, &["id"]).unwrap_or_else(|| made_id("context", &name, 0));
    let parameters = items(item, &["Parameters"]).iter().map(|parameter| {
        let mut out = Map::new();
        put(&mut out, "name", text(parameter, &["name"]));
        let description = text(parameter, &["description"]).unwrap_or_default();
        put(&mut out, "description", Some(description));
        let is_sensitive = truth(parameter, "sensitive").unwrap_or(false);
        put(&mut out, "sensitive", Some(is_sensitive));
        let is_provided = truth(parameter, "provided").unwrap_or(false);
        put(&mut out, "provided", Some(is_provided));
        put(&mut out, "value", text(parameter, &["value"]));
        Value::Object(out)
    });
    json!({
        "identifier": id,
        "instanceIdentifier": id,
        "name": name,
        "description": text(item, &["description"]).unwrap_or_default(),
        "parameters": parameters.collect::<Vec<_>>(),
        "inheritedParameterContexts": texts(item, &["Inherited Parameter Contexts"]),
        "componentType": "PARAMETER_CONTEXT",
    })
}

/// The component's id; one of ours, the same each time, where it has none.
fn id_of(item: &Value, group: &str, list: &str, index: usize) -> String {
    let id = text(item, &["id"]).filter(|id| !id.is_empty());
    id.unwrap_or_else(|| made_id(group, list, index))
}

fn made_id(group: &str, list: &str, index: usize) -> String {
    operation_id(group, list, Some(&index.to_string())).to_string()
}

const REMOTE_GROUPS: &[&str] = &["Remote Process Groups", "Remote Processing Groups"];

const ENDS: [(&str, &str); 4] = [
    ("Processors", "PROCESSOR"),
    ("Input Ports", "INPUT_PORT"),
    ("Output Ports", "OUTPUT_PORT"),
    ("Funnels", "FUNNEL"),
];

const REMOTE_PORTS: [(&str, &str); 2] = [
    ("Input Ports", "REMOTE_INPUT_PORT"),
    ("Output Ports", "REMOTE_OUTPUT_PORT"),
];

/// Words of remote groups in both shapes.
pub(super) const REMOTE_KEYS: [(&str, &str); 5] = [
    ("local network interface", "localNetworkInterface"),
    ("proxy host", "proxyHost"),
    ("proxy port", "proxyPort"),
    ("proxy user", "proxyUser"),
    ("proxy password", "proxyPassword"),
];
