//! An operation as an agent of a certain kind gets it: operator's words in, wire words out.
//!
//! All arguments are strings, since C++ agents read nothing else and Java agents before 2.0 throw a
//! response with anything else away; but for SYNC and for a property's `persist` mark, which only
//! agents get that know them.

use std::collections::BTreeMap;

use c2::{Operand, Operation, OperationKind};
use serde_json::{Value, json};

use crate::capability::{Family, Profile};
use crate::kept::Kept;
use crate::resource::ResourceSet;

/// Where the agent reached the fleet.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Scheme and host with port, such as `http://127.0.0.1:10090`.
    pub origin: &'a str,
    /// The path before `/flows/…`, such as `/efm/api/c2-protocol`.
    pub prefix: &'a str,
    /// The agent that will ask.
    pub agent: &'a str,
}

/// What an agent is to do.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub id: &'a str,
    pub kind: &'a OperationKind,
    pub operand: &'a Operand,
    /// What the operator gave with it.
    pub args: Option<&'a BTreeMap<String, Value>>,
    /// The flow of an UPDATE configuration.
    pub flow: Option<&'a str>,
    /// The resources of a SYNC.
    pub resources: Option<&'a ResourceSet>,
    /// The agent's last heartbeat, where what is asked for is still to be judged: it tells the
    /// components that the agent has.
    pub runs: Option<&'a Kept>,
}

impl Place<'_> {
    /// The absolute address of a path on this fleet.
    fn absolute(&self, relative: &str) -> String {
        format!("{}{}{relative}", self.origin, self.prefix)
    }
}

/// The operation as the agent can read it; the error says why it cannot be had.
pub fn shape(
    profile: Profile<'_>,
    place: Place<'_>,
    wanted: Wanted<'_>,
) -> Result<Operation, String> {
    profile.check(wanted.kind, wanted.operand)?;
    let operand = wanted.operand.clone();
    let operation = Operation {
        identifier: wanted.id.to_owned(),
        kind: wanted.kind.clone(),
        operand: (operand != Operand::default()).then_some(operand),
        ..Operation::default()
    };
    let none = BTreeMap::new();
    let args = wanted.args.unwrap_or(&none);
    match (wanted.kind, wanted.operand) {
        (OperationKind::Update, Operand::Configuration) => {
            let flow = wanted.flow.ok_or("there is no flow to give")?;
            Ok(update_configuration(operation, place, flow))
        }
        (OperationKind::Update, Operand::Properties) => properties(profile, operation, args),
        (OperationKind::Update, Operand::Asset) => asset(profile, operation, place, args),
        (OperationKind::Sync, Operand::Resource) => {
            let set = wanted.resources.ok_or("there are no resources to give")?;
            Ok(sync(profile, operation, place, set))
        }
        (OperationKind::Transfer, Operand::Debug) => {
            let relative = format!("/bundles/{}", wanted.id);
            let absolute = place.absolute(&relative);
            Ok(operation
                .with_arg("target", absolute)
                .with_arg("relativeTarget", relative))
        }
        (OperationKind::Start | OperationKind::Stop, _) => {
            start_or_stop(profile, operation, wanted, args)
        }
        (OperationKind::Clear, _) => Ok(clear(operation, args)),
        _ => Ok(with_texts(operation, args)),
    }
}

/// The UPDATE configuration operation, in the one shape that every agent takes: all of the
/// addresses, since NiFi 1.18 goes silent for ever without `location`, newer Java agents prefer
/// `relativeFlowUrl` or `flowUrl`; `persist` so that the flow outlives a restart of a C++ agent;
/// `flowId` since the agents cut it out of the address differently.
fn update_configuration(operation: Operation, place: Place<'_>, flow: &str) -> Operation {
    let relative = format!("/flows/{flow}?aid={}", percent_encode(place.agent));
    let absolute = place.absolute(&relative);
    operation
        .with_arg("flowId", flow)
        .with_arg("location", absolute.clone())
        .with_arg("flowUrl", absolute)
        .with_arg("relativeFlowUrl", relative)
        .with_arg("persist", "true")
}

fn properties(
    profile: Profile<'_>,
    mut operation: Operation,
    args: &BTreeMap<String, Value>,
) -> Result<Operation, String> {
    let known = profile.properties();
    for (name, value) in args {
        if !known.is_empty() && !known.contains(name) {
            return Err(format!(
                "the agent's manifest knows no property '{name}'; it lists {}",
                known.join(", ")
            ));
        }
        let persist = value.get("persist").and_then(Value::as_bool);
        let text = text_of(value.get("value").unwrap_or(value));
        operation = match (persist, profile.family()) {
            (None, _) => operation.with_arg(name, text),
            (Some(persist), Family::Cpp) => {
                let value = json!({"value": text, "persist": persist});
                operation.args.insert(name.clone(), value);
                operation
            }
            // Java agents write what they get into their files, always.
            (Some(true), _) => operation.with_arg(name, text),
            (Some(false), _) => {
                return Err(format!(
                    "only C++ agents take a property for this run alone: give '{name}' without persist"
                ));
            }
        };
    }
    Ok(operation)
}

fn asset(
    profile: Profile<'_>,
    operation: Operation,
    place: Place<'_>,
    args: &BTreeMap<String, Value>,
) -> Result<Operation, String> {
    let file = text_of(args.get("file").unwrap_or(&Value::Null));
    let refused = |c: char| "~<>:|\"?*.".contains(c);
    if profile.is_java_since((2, 11))
        && let Some(found) = file.chars().find(|c| refused(*c))
    {
        // Such an agent answers NO_OPERATION and fetches nothing.
        return Err(format!(
            "Java agents from 2.11 on refuse asset names with '{found}', such as '{file}'; assign it to \
             the class as a resource instead"
        ));
    }
    let (url, relative) = match (args.get("resourceId"), args.get("url")) {
        (Some(id), _) => {
            let relative = format!("/resources/{}", percent_encode(&text_of(id)));
            (place.absolute(&relative), Some(relative))
        }
        (None, Some(url)) => match text_of(url) {
            path if path.starts_with('/') => (format!("{}{path}", place.origin), None),
            url => (url, None),
        },
        (None, None) => return Err("there is neither url nor resourceId".to_owned()),
    };
    let force = args
        .get("forceDownload")
        .map_or_else(|| "false".to_owned(), text_of);
    let operation = operation
        .with_arg("file", file)
        .with_arg("url", url)
        .with_arg("forceDownload", force);
    Ok(match relative {
        Some(relative) => operation.with_arg("relativeUrl", relative),
        None => operation,
    })
}

fn sync(
    profile: Profile<'_>,
    mut operation: Operation,
    place: Place<'_>,
    set: &ResourceSet,
) -> Operation {
    // C++ agents know assets only; what they echo is the digest of the whole set all the same.
    let takes = |kind: &str| profile.family() != Family::Cpp || kind == "ASSET";
    let items: Vec<Value> = set
        .items
        .iter()
        .filter(|item| takes(item.kind.as_str()))
        .map(|item| {
            let url = place.absolute(&format!("/resources/{}", item.id));
            json!({
                "resourceId": item.id,
                "resourceName": item.name,
                "resourceType": item.kind.as_str(),
                "resourcePath": item.path,
                "digest": item.sha512,
                "hashType": "SHA-512",
                "url": url,
            })
        })
        .collect();
    let hash = json!({"digest": set.digest, "hashType": "SHA-256"});
    operation.args.insert("globalHash".to_owned(), hash);
    operation
        .args
        .insert("resourceList".to_owned(), Value::Array(items));
    operation
}

fn start_or_stop(
    profile: Profile<'_>,
    mut operation: Operation,
    wanted: Wanted<'_>,
    args: &BTreeMap<String, Value>,
) -> Result<Operation, String> {
    let operand = wanted.operand;
    let lists = |word: &str| profile.lists_operand(&operation.kind, word);
    let is_older_cpp = profile.family() == Family::Cpp && !lists(operand.as_str());
    if !is_older_cpp {
        return Ok(with_texts(operation, args));
    }
    // Older C++ agents take the component itself as the operand.
    if *operand == Operand::Flow {
        operation.operand = Some(Operand::Unknown("FlowController".to_owned()));
        return Ok(operation);
    }
    let id = text_of(args.get("processorId").unwrap_or(&Value::Null));
    if wanted
        .runs
        .is_some_and(|runs| has_component(runs, &id) == Some(false))
    {
        return Err(format!(
            "the agent's heartbeats tell of no component '{id}'"
        ));
    }
    operation.operand = Some(Operand::Unknown(id));
    Ok(operation)
}

/// Whether the agent has the component; none where its heartbeats tell of none.
fn has_component(runs: &Kept, id: &str) -> Option<bool> {
    let last = runs.read()?;
    let status = last
        .agent_info
        .as_ref()
        .and_then(|agent| agent.status.as_ref());
    let of_agent = status.map(|status| &status.components);
    let of_flow = last.flow_info.as_ref().map(|flow| &flow.components);
    let mut told = of_agent.into_iter().chain(of_flow).flatten().peekable();
    told.peek()?;
    let is_it = |uuid: &str| uuid.eq_ignore_ascii_case(id);
    Some(told.any(|(_, component)| component.uuid.as_deref().is_some_and(is_it)))
}

/// The names as values; C++ agents do not look at the keys.
fn clear(mut operation: Operation, args: &BTreeMap<String, Value>) -> Operation {
    let names = args.values().filter_map(Value::as_array).flatten();
    for (index, name) in names.enumerate() {
        operation = operation.with_arg(&format!("name{}", index + 1), text_of(name));
    }
    operation
}

fn with_texts(mut operation: Operation, args: &BTreeMap<String, Value>) -> Operation {
    for (name, value) in args {
        operation = operation.with_arg(name, text_of(value));
    }
    operation
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Escapes everything but RFC 3986's unreserved characters.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
