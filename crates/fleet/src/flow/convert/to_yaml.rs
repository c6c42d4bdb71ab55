//! NiFi's flow JSON as MiNiFi's YAML, Config Version 3: what MiNiFi Java 1 and older C++ agents read.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::to_json::REMOTE_KEYS;
use super::{LeftOut, is_empty, items, number, put, scalar, text, texts, truth};

/// Writes the flow.
pub(super) fn flow(flow: &Value, left_out: &mut LeftOut) -> Value {
    let root = &flow["rootGroup"];
    for (section, reason) in [
        ("reportingTasks", "MiNiFi's YAML has none of NiFi's"),
        ("parameterProviders", "write the parameters' values instead"),
        ("controllerServices", "put them into the root group"),
    ] {
        if flow.get(section).is_some_and(|section| !is_empty(section)) {
            left_out.whole(section, reason);
        }
    }
    let mut out = Map::new();
    put(&mut out, "MiNiFi Config Version", Some(3));
    let mut controller = Map::new();
    put(&mut controller, "id", text(root, &["identifier"]));
    put(&mut controller, "name", text(root, &["name"]));
    let comment = text(root, &["comments"]).unwrap_or_default();
    put(&mut controller, "comment", Some(comment));
    put(&mut out, "Flow Controller", Some(controller));
    let mut ports = HashMap::new();
    index(root, &mut ports);
    group(root, &mut out, &ports, left_out);
    let contexts = items(flow, &["parameterContexts"]).iter().map(context);
    let contexts: Vec<Value> = contexts.collect();
    put(
        &mut out,
        "Parameter Contexts",
        Some(contexts).filter(|all| !all.is_empty()),
    );
    Value::Object(out)
}

/// Remote ports by the ids that connections name them by, with those that YAML does.
type Ports = HashMap<String, String>;

fn index(group: &Value, ports: &mut Ports) {
    for remote in items(group, &["remoteProcessGroups"]) {
        for list in ["inputPorts", "outputPorts"] {
            for port in items(remote, &[list]) {
                let target = text(port, &["targetId"]);
                if let (Some(id), Some(target)) = (text(port, &["identifier"]), target) {
                    ports.insert(id, target);
                }
            }
        }
    }
    for child in items(group, &["processGroups"]) {
        index(child, ports);
    }
}

/// A group's lists into `out`.
fn group(group: &Value, out: &mut Map<String, Value>, ports: &Ports, left_out: &mut LeftOut) {
    for (key, reason) in [
        (
            "variables",
            "MiNiFi's YAML has no variables: use parameters",
        ),
        ("executionEngine", "MiNiFi's YAML has no stateless groups"),
        ("flowFileConcurrency", "MiNiFi's YAML cannot tell it"),
    ] {
        let value = group.get(key).filter(|value| !is_empty(value));
        let usual = ["INHERITED", "STANDARD", "UNBOUNDED"];
        if value.is_some_and(|value| !value.as_str().is_some_and(|word| usual.contains(&word))) {
            left_out.add(group, Some(key), reason);
        }
    }
    let mut processors = Vec::new();
    for item in items(group, &["processors"]) {
        processors.push(processor(item, left_out));
    }
    put(out, "Processors", Some(processors));
    for (json, yaml) in [
        ("inputPorts", "Input Ports"),
        ("outputPorts", "Output Ports"),
        ("funnels", "Funnels"),
    ] {
        let all = items(group, &[json]).iter().map(|item| {
            let mut port = named(item);
            if json == "funnels" {
                port.remove("name");
            }
            Value::Object(port)
        });
        let all: Vec<Value> = all.collect();
        put(out, yaml, Some(all).filter(|all| !all.is_empty()));
    }
    let mut services = Vec::new();
    for item in items(group, &["controllerServices"]) {
        if text(item, &["scheduledState"]).as_deref() == Some("DISABLED") {
            left_out.add(
                item,
                None,
                "it is disabled, which MiNiFi's YAML cannot tell",
            );
        }
        let mut service = named(item);
        put(&mut service, "class", text(item, &["type"]));
        put(&mut service, "Properties", Some(properties(item)));
        services.push(Value::Object(service));
    }
    put(
        out,
        "Controller Services",
        Some(services).filter(|all| !all.is_empty()),
    );
    let mut connections = Vec::new();
    for item in items(group, &["connections"]) {
        connections.push(connection(item, ports, left_out));
    }
    put(out, "Connections", Some(connections));
    let remote = items(group, &["remoteProcessGroups"]).iter().map(remote);
    let remote: Vec<Value> = remote.collect();
    put(
        out,
        "Remote Process Groups",
        Some(remote).filter(|all| !all.is_empty()),
    );
    let mut groups = Vec::new();
    for item in items(group, &["processGroups"]) {
        let mut child = named(item);
        self::group(item, &mut child, ports, left_out);
        groups.push(Value::Object(child));
    }
    put(
        out,
        "Process Groups",
        Some(groups).filter(|all| !all.is_empty()),
    );
    let context = text(group, &["parameterContextName"]).filter(|name| !name.is_empty());
    put(out, "Parameter Context Name", context);
}

fn processor(item: &Value, left_out: &mut LeftOut) -> Value {
    if text(item, &["scheduledState"]).as_deref() == Some("DISABLED") {
        left_out.add(
            item,
            None,
            "it is disabled, which MiNiFi's YAML cannot tell",
        );
    }
    if item
        .get("retriedRelationships")
        .is_some_and(|list| !is_empty(list))
    {
        let reason = "MiNiFi's YAML has no retries";
        left_out.add(item, Some("retriedRelationships"), reason);
    }
    let mut out = named(item);
    let kind = text(item, &["type"]);
    if text(item, &["name"]).is_none_or(|name| name.is_empty()) {
        // A processor without a name is none in YAML.
        put(&mut out, "name", kind.clone());
    }
    put(&mut out, "class", kind);
    let tasks = number(item, "concurrentlySchedulableTaskCount").unwrap_or(1);
    put(&mut out, "max concurrent tasks", Some(tasks));
    let or = |key: &str, default: &str| {
        let found = text(item, &[key]).filter(|text| !text.is_empty());
        Some(found.unwrap_or_else(|| default.to_owned()))
    };
    put(
        &mut out,
        "scheduling strategy",
        or("schedulingStrategy", "TIMER_DRIVEN"),
    );
    put(
        &mut out,
        "scheduling period",
        or("schedulingPeriod", "0 sec"),
    );
    put(
        &mut out,
        "penalization period",
        or("penaltyDuration", "30 sec"),
    );
    put(&mut out, "yield period", or("yieldDuration", "1 sec"));
    let nanos = number(item, "runDurationMillis")
        .unwrap_or(0)
        .saturating_mul(1_000_000);
    put(&mut out, "run duration nanos", Some(nanos));
    let ended = texts(item, &["autoTerminatedRelationships"]);
    put(&mut out, "auto-terminated relationships list", Some(ended));
    let annotation = text(item, &["annotationData"]).filter(|text| !text.is_empty());
    put(&mut out, "annotation data", annotation);
    put(&mut out, "Properties", Some(properties(item)));
    Value::Object(out)
}

fn connection(item: &Value, ports: &Ports, left_out: &mut LeftOut) -> Value {
    let strategy = text(item, &["loadBalanceStrategy"]);
    if strategy.is_some_and(|strategy| strategy != "DO_NOT_LOAD_BALANCE" && !strategy.is_empty()) {
        let reason = "an agent is alone: there is nobody to share the load with";
        left_out.add(item, Some("loadBalanceStrategy"), reason);
    }
    let prioritizers = texts(item, &["prioritizers"]);
    if prioritizers.len() > 1 {
        let reason = "MiNiFi's YAML has one: the first one stays";
        left_out.add(item, Some("prioritizers"), reason);
    }
    let mut out = named(item);
    for which in ["source", "destination"] {
        let end = &item[which];
        let id = text(end, &["id"]);
        let id = id.map(|id| ports.get(&id).cloned().unwrap_or(id));
        put(&mut out, &format!("{which} id"), id);
    }
    let relationships = texts(item, &["selectedRelationships"]);
    put(&mut out, "source relationship names", Some(relationships));
    let count = number(item, "backPressureObjectThreshold").unwrap_or(10_000);
    put(&mut out, "max work queue size", Some(count));
    let size = text(item, &["backPressureDataSizeThreshold"]);
    put(&mut out, "max work queue data size", size);
    put(
        &mut out,
        "flowfile expiration",
        text(item, &["flowFileExpiration"]),
    );
    put(
        &mut out,
        "queue prioritizer class",
        prioritizers.into_iter().next(),
    );
    put(
        &mut out,
        "drop empty",
        truth(item, "dropEmpty").filter(|drops| *drops),
    );
    Value::Object(out)
}

fn remote(item: &Value) -> Value {
    let mut out = named(item);
    let urls = text(item, &["targetUris", "targetUri"]);
    put(&mut out, "url", urls);
    put(&mut out, "timeout", text(item, &["communicationsTimeout"]));
    put(&mut out, "yield period", text(item, &["yieldDuration"]));
    put(
        &mut out,
        "transport protocol",
        text(item, &["transportProtocol"]),
    );
    for (yaml, json) in REMOTE_KEYS {
        let value = text(item, &[json]).filter(|value| !value.is_empty());
        put(&mut out, yaml, value);
    }
    for (json, yaml) in [
        ("inputPorts", "Input Ports"),
        ("outputPorts", "Output Ports"),
    ] {
        let ports = items(item, &[json]).iter().map(|port| {
            let mut made = named(port);
            // The remote NiFi's port is what agents look for.
            put(&mut made, "id", text(port, &["targetId", "identifier"]));
            let tasks = number(port, "concurrentlySchedulableTaskCount").unwrap_or(1);
            put(&mut made, "max concurrent tasks", Some(tasks));
            let packed = truth(port, "useCompression").unwrap_or(false);
            put(&mut made, "use compression", Some(packed));
            let batch = port.get("batchSize").filter(|batch| !is_empty(batch));
            put(&mut made, "batch size", batch.cloned());
            Value::Object(made)
        });
        let ports: Vec<Value> = ports.collect();
        put(&mut out, yaml, Some(ports).filter(|all| !all.is_empty()));
    }
    Value::Object(out)
}

/// Id and name, as far as the component has them.
fn named(item: &Value) -> Map<String, Value> {
    let mut out = Map::new();
    let id = text(item, &["identifier", "instanceIdentifier"]);
    put(&mut out, "id", id);
    put(&mut out, "name", text(item, &["name"]));
    out
}

fn properties(item: &Value) -> Value {
    let mut out = Map::new();
    if let Some(properties) = item.get("properties").and_then(Value::as_object) {
        for (name, value) in properties {
            put(&mut out, name, scalar(value));
        }
    }
    Value::Object(out)
}

fn context(item: &Value) -> Value {
    let parameters = items(item, &["parameters"]).iter().map(|parameter| {
        let mut out = Map::new();
        put(&mut out, "name", text(parameter, &["name"]));
        let description = text(parameter, &["description"]);
        put(
            &mut out,
            "description",
            description.filter(|text| !text.is_empty()),
        );
        let is_sensitive = truth(parameter, "sensitive").unwrap_or(false);
        put(&mut out, "sensitive", Some(is_sensitive));
        let is_provided = truth(parameter, "provided").unwrap_or(false);
        put(&mut out, "provided", Some(is_provided));
        put(&mut out, "value", text(parameter, &["value"]));
        Value::Object(out)
    });
    let parameters: Vec<Value> = parameters.collect();
    let mut out = named(item);
    let description = text(item, &["description"]).unwrap_or_default();
    put(&mut out, "description", Some(description));
    put(&mut out, "Parameters", Some(json!(parameters)));
    let inherited = texts(item, &["inheritedParameterContexts"]);
    let inherited = Some(inherited).filter(|all| !all.is_empty());
    put(&mut out, "Inherited Parameter Contexts", inherited);
    Value::Object(out)
}
