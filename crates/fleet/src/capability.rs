//! Which agent takes which operation, from one table.
//!
//! A Java agent throws a whole response away for one operation or operand that its version does
//! not know, so what is not in the table for an agent's kind and version is never sent to it,
//! whatever its manifest says; and what its manifest leaves out is not sent either.

use std::collections::BTreeMap;

use c2::{AgentManifest, Operand, Operation, OperationKind};
use serde_json::Value;

/// The kinds of agents that differ in what they can parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// NiFi and MiNiFi Java: strict enums.
    Java,
    /// MiNiFi C++: any case, arguments are strings.
    Cpp,
    /// Anybody else: what the manifest says.
    Other,
    /// Not described yet.
    Unknown,
}

/// What decides about an agent's operations.
#[derive(Clone, Copy, Debug)]
pub struct Profile<'m> {
    manifest: Option<&'m AgentManifest>,
}

/// Where an agent finds a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowPlace<'a> {
    /// Scheme and host with port, such as `http://127.0.0.1:10090`.
    pub origin: &'a str,
    /// The path before `/flows/…`, such as `/efm/api/c2-protocol`.
    pub prefix: &'a str,
    /// The flow.
    pub flow: &'a str,
    /// The agent that will ask.
    pub agent: &'a str,
}

impl<'m> Profile<'m> {
    /// The profile of an agent with this manifest; `None` while it is not known.
    pub fn of(manifest: Option<&'m AgentManifest>) -> Profile<'m> {
        Profile { manifest }
    }

    /// The agent's kind.
    pub fn family(&self) -> Family {
        let Some(manifest) = self.manifest else {
            return Family::Unknown;
        };
        match manifest
            .agent_type
            .as_deref()
            .map(str::to_ascii_lowercase)
            .as_deref()
        {
            Some("cpp") => Family::Cpp,
            Some("minifi-java" | "nifi" | "java" | "minifi") => Family::Java,
            _ => Family::Other,
        }
    }

    /// Checks that the agent can parse and do this; the error says why not.
    pub fn check(&self, kind: &OperationKind, operand: &Operand) -> Result<(), String> {
        let what = || format!("{kind} {operand}");
        let Some(row) = TABLE
            .iter()
            .find(|row| row.kind == *kind && row.operand == *operand)
        else {
            return Err(format!("{} is no operation that agents know", what()));
        };
        match self.family() {
            Family::Unknown if !row.always => {
                return Err(format!(
                    "the agent has not yet said whether it takes {}",
                    what()
                ));
            }
            Family::Cpp if !row.cpp => {
                return Err(format!("C++ agents do not take {}", what()));
            }
            Family::Java if row.java_since.is_none_or(|since| self.version() < since) => {
                return Err(format!(
                    "Java agents of this version do not take {}",
                    what()
                ));
            }
            _ => {}
        }
        match self
            .manifest
            .and_then(|manifest| manifest.supports(kind, Some(operand)))
        {
            Some(false) => Err(format!("the agent's manifest does not list {}", what())),
            None if !row.always => Err(format!(
                "the agent's manifest lists no operations, so no {}",
                what()
            )),
            Some(true) | None => Ok(()),
        }
    }

    /// Major and minor version; the oldest that speaks C2 where the agent does not say.
    fn version(&self) -> (u32, u32) {
        let text = self
            .manifest
            .and_then(AgentManifest::agent_version)
            .unwrap_or_default();
        let mut numbers = text.split(['.', '-']).map_while(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => (major, minor),
            _ => JAVA_OLDEST,
        }
    }
}

/// The DESCRIBE manifest operation.
pub fn describe_manifest(id: &str) -> Operation {
    Operation {
        identifier: id.to_owned(),
        kind: OperationKind::Describe,
        operand: Some(Operand::Manifest),
        args: BTreeMap::new(),
        dependencies: Vec::new(),
    }
}

/// The UPDATE configuration operation, in the one shape that every agent takes: all of the
/// addresses, since NiFi 1.18 goes silent for ever without `location`, newer Java agents prefer
/// `relativeFlowUrl` or `flowUrl`; all of them strings; `persist` so that the flow outlives a
/// restart of a C++ agent; `flowId` since the agents cut it out of the address differently.
pub fn update_configuration(id: &str, place: FlowPlace<'_>) -> Operation {
    let relative = format!("/flows/{}?aid={}", place.flow, percent_encode(place.agent));
    let absolute = format!("{}{}{relative}", place.origin, place.prefix);
    let operation = Operation {
        identifier: id.to_owned(),
        kind: OperationKind::Update,
        operand: Some(Operand::Configuration),
        args: BTreeMap::from([("flowUrl".to_owned(), Value::String(absolute.clone()))]),
        dependencies: Vec::new(),
    };
    operation
        .with_arg("flowId", place.flow)
        .with_arg("location", absolute)
        .with_arg("relativeFlowUrl", relative)
        .with_arg("persist", "true")
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

struct Row {
    kind: OperationKind,
    operand: Operand,
    /// The first Java version that has the operation's and the operand's words and a handler.
    java_since: Option<(u32, u32)>,
    cpp: bool,
    /// Taken by every agent that speaks C2, also one that lists nothing.
    always: bool,
}

const JAVA_OLDEST: (u32, u32) = (1, 18);

const fn row(
    kind: OperationKind,
    operand: Operand,
    java_since: Option<(u32, u32)>,
    cpp: bool,
    always: bool,
) -> Row {
    Row {
        kind,
        operand,
        java_since,
        cpp,
        always,
    }
}

const TABLE: &[Row] = &[
    row(
        OperationKind::Describe,
        Operand::Manifest,
        Some(JAVA_OLDEST),
        true,
        true,
    ),
    row(
        OperationKind::Update,
        Operand::Configuration,
        Some(JAVA_OLDEST),
        true,
        true,
    ),
    row(OperationKind::Describe, Operand::Metrics, None, true, false),
    row(
        OperationKind::Describe,
        Operand::Configuration,
        None,
        true,
        false,
    ),
    row(OperationKind::Describe, Operand::Jstack, None, true, false),
    row(
        OperationKind::Describe,
        Operand::CoreComponentState,
        None,
        true,
        false,
    ),
    row(
        OperationKind::Update,
        Operand::Properties,
        Some((1, 20)),
        true,
        false,
    ),
    row(
        OperationKind::Update,
        Operand::Asset,
        Some((1, 22)),
        true,
        false,
    ),
    row(
        OperationKind::Transfer,
        Operand::Debug,
        Some(JAVA_OLDEST),
        true,
        false,
    ),
    row(
        OperationKind::Sync,
        Operand::Resource,
        Some((2, 0)),
        true,
        false,
    ),
    row(
        OperationKind::Start,
        Operand::Flow,
        Some((2, 3)),
        true,
        false,
    ),
    row(
        OperationKind::Stop,
        Operand::Flow,
        Some((2, 3)),
        true,
        false,
    ),
    row(
        OperationKind::Start,
        Operand::Processor,
        Some((2, 7)),
        true,
        false,
    ),
    row(
        OperationKind::Stop,
        Operand::Processor,
        Some((2, 7)),
        true,
        false,
    ),
    row(OperationKind::Clear, Operand::Connection, None, true, false),
    row(
        OperationKind::Clear,
        Operand::Repositories,
        None,
        true,
        false,
    ),
    row(
        OperationKind::Clear,
        Operand::CoreComponentState,
        None,
        true,
        false,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(json: &str) -> AgentManifest {
        let raw = c2::RawJson::parse(json.to_owned()).unwrap();
        AgentManifest::parse(&raw).unwrap()
    }

    fn takes(json: &str, kind: OperationKind, operand: Operand) -> bool {
        Profile::of(Some(&manifest(json)))
            .check(&kind, &operand)
            .is_ok()
    }

    #[test]
    fn an_agent_that_nobody_knows_gets_only_what_all_take() {
        let profile = Profile::of(None);
        assert!(
            profile
                .check(&OperationKind::Describe, &Operand::Manifest)
                .is_ok()
        );
        assert!(
            profile
                .check(&OperationKind::Update, &Operand::Configuration)
                .is_ok()
        );
        assert!(
            profile
                .check(&OperationKind::Start, &Operand::Flow)
                .is_err()
        );
    }

    #[test]
    fn a_java_agent_gets_nothing_that_its_version_cannot_parse() {
        // The manifest of 1.18 lists no operations; one that claims more is not believed.
        let old = r#"{"agentType":"nifi","version":"1.18.0"}"#;
        assert!(takes(old, OperationKind::Update, Operand::Configuration));
        assert!(!takes(old, OperationKind::Update, Operand::Asset));
        let boastful = r#"{"agentType":"minifi-java","buildInfo":{"version":"1.18.0"},
            "supportedOperations":[{"type":"SYNC","properties":{"RESOURCE":{}}}]}"#;
        assert!(!takes(boastful, OperationKind::Sync, Operand::Resource));
        let new = r#"{"agentType":"minifi-java","buildInfo":{"version":"2.3.0"},
            "supportedOperations":[{"type":"SYNC","properties":{"RESOURCE":{}}},
                {"type":"START","properties":{"FLOW":{}, "PROCESSOR":{}}}]}"#;
        assert!(takes(new, OperationKind::Sync, Operand::Resource));
        assert!(takes(new, OperationKind::Start, Operand::Flow));
        assert!(
            !takes(new, OperationKind::Start, Operand::Processor),
            "2.7 was the first"
        );
        assert!(
            !takes(new, OperationKind::Update, Operand::Configuration),
            "not listed"
        );
        assert!(!takes(new, OperationKind::Clear, Operand::Connection));
    }

    #[test]
    fn a_cpp_agent_lists_its_operations_in_lower_case() {
        let cpp = r#"{"agentType":"cpp","supportedOperations":[
            {"type":"update","properties":{"configuration":{},"properties":{}}},
            {"type":"clear","properties":{"connection":{}}}]}"#;
        assert!(takes(cpp, OperationKind::Update, Operand::Configuration));
        assert!(takes(cpp, OperationKind::Clear, Operand::Connection));
        assert!(!takes(cpp, OperationKind::Describe, Operand::Jstack));
    }

    #[test]
    fn a_flow_update_has_every_address_and_only_strings() {
        let place = FlowPlace {
            origin: "http://127.0.0.1:10090",
            prefix: "/efm/api/c2-protocol",
            flow: "f-1",
            agent: "a b/c",
        };
        let sent = serde_json::to_value(update_configuration("op-1", place)).unwrap();
        let url = "http://127.0.0.1:10090/efm/api/c2-protocol/flows/f-1?aid=a%20b%2Fc";
        let expected = serde_json::json!({
            "identifier": "op-1", "operation": "UPDATE", "operand": "configuration",
            "args": {"flowId": "f-1", "location": url, "flowUrl": url, "persist": "true",
                "relativeFlowUrl": "/flows/f-1?aid=a%20b%2Fc"},
        });
        assert_eq!(sent, expected);
    }
}
