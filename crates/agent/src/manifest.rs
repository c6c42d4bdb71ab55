//! The agent manifest: what this build can do, from the table of processors, for the control
//! plane's designers and for its checks of flows.

use std::collections::BTreeMap;

use base::report;
use c2::{AgentManifest, BuildInfo, OperationKind, RawJson, SupportedOperation};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::configuration::{Effect, KEYS, Key};
use crate::processors::{self, Dynamic, Expressions, Input, ProcessorKind, PropertyKind, Shape};
use crate::services::{SERVICES, ServiceKind};

/// A manifest and the hash that stands for it.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) json: RawJson,
    pub(crate) hash: String,
}

impl Manifest {
    /// The manifest of this build.
    pub(crate) fn of_this_build() -> Result<Manifest, crate::AgentError> {
        let failed = |error: c2::C2Error| {
            crate::AgentError::Setting(format!("no agent manifest: {}", report(&error)))
        };
        let manifest = build().map_err(failed)?;
        let json = RawJson::of(&manifest).map_err(failed)?;
        let digest: [u8; 32] = Sha256::digest(json.as_str().as_bytes()).into();
        let hash = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Manifest { json, hash })
    }
}

/// The processors and controller services whose names are wanted, as a manifest tells them.
pub(crate) fn components(is_wanted: impl Fn(&str) -> bool) -> Value {
    let processors = processors::all().filter(|kind| is_wanted(kind.name));
    let services = SERVICES.iter().filter(|kind| is_wanted(kind.name));
    json!({
        "processors": processors.map(processor).collect::<Vec<Value>>(),
        "controllerServices": services.map(|kind| service(kind)).collect::<Vec<Value>>(),
    })
}

fn build() -> Result<AgentManifest, c2::C2Error> {
    let bundles = json!([{
        "group": "thalweg",
        "artifact": "thalweg-agent",
        "version": VERSION,
        "componentManifest": components(|_| true),
    }]);
    let scheduling = json!({
        "defaultSchedulingStrategy": "TIMER_DRIVEN",
        "defaultSchedulingPeriodMillis": 1000,
        "penalizationPeriodMillis": 30000,
        "yieldDurationMillis": 1000,
        "defaultRunDurationNanos": 0,
        "defaultMaxConcurrentTasks": "1",
    });
    Ok(AgentManifest {
        identifier: Some(format!("thalweg-agent-{VERSION}")),
        agent_type: Some(AGENT_TYPE.to_owned()),
        version: Some(VERSION.to_owned()),
        build_info: Some(BuildInfo {
            version: Some(VERSION.to_owned()),
            target_arch: Some(crate::host::architecture()),
            compiler: Some("rustc".to_owned()),
            ..BuildInfo::default()
        }),
        bundles: Some(RawJson::of(&bundles)?),
        scheduling_defaults: Some(RawJson::of(&scheduling)?),
        supported_operations: operations()?,
        ..AgentManifest::default()
    })
}

/// What the agent does when it is asked, each with what it is done to.
fn operations() -> Result<Vec<SupportedOperation>, c2::C2Error> {
    let lists: [(OperationKind, &[&str]); 11] = [
        (
            OperationKind::Clear,
            &["connection", "repositories", "corecomponentstate"],
        ),
        (
            OperationKind::Describe,
            &[
                "manifest",
                "configuration",
                "metrics",
                "jstack",
                "corecomponentstate",
            ],
        ),
        (OperationKind::Heartbeat, &[]),
        (OperationKind::Pause, &[]),
        (OperationKind::Restart, &[]),
        (OperationKind::Resume, &[]),
        (OperationKind::Start, &["flow", "processor"]),
        (OperationKind::Stop, &["flow", "processor"]),
        (OperationKind::Sync, &["resource"]),
        (OperationKind::Transfer, &["debug"]),
        (
            OperationKind::Update,
            &["configuration", "asset", "properties"],
        ),
    ];
    let all = lists
        .into_iter()
        .map(|(kind, operands)| supported(kind, operands));
    all.collect()
}

fn supported(kind: OperationKind, operands: &[&str]) -> Result<SupportedOperation, c2::C2Error> {
    let mut properties = BTreeMap::new();
    for operand in operands {
        let told = match *operand {
            "properties" => json!({ "availableProperties": settings() }),
            _ => json!({}),
        };
        properties.insert((*operand).to_owned(), RawJson::of(&told)?);
    }
    Ok(SupportedOperation {
        kind: Some(kind),
        properties,
        ..SupportedOperation::default()
    })
}

/// The settings that UPDATE properties takes.
fn settings() -> Vec<Value> {
    let can_be_set = |key: &&Key| {
        matches!(key.effect, Effect::Honoured | Effect::Refused(Some(_), _)) && !key.is_prefix
    };
    let names = KEYS.iter().filter(can_be_set).map(|key| key.kind.name);
    let settings = names.map(|name| json!({ "propertyName": name, "validator": "VALID" }));
    settings.collect()
}

fn service(kind: &ServiceKind) -> Value {
    json!({
        "group": "thalweg",
        "artifact": "thalweg-agent",
        "version": VERSION,
        "type": kind.name,
        "typeDescription": kind.description,
        "propertyDescriptors": descriptors(kind.properties),
        "supportsDynamicProperties": kind.dynamic != Dynamic::None,
        "providedApiImplementations": [{ "type": kind.provides }],
    })
}

fn descriptors(properties: &[PropertyKind]) -> serde_json::Map<String, Value> {
    let properties = properties.iter();
    let properties = properties.map(|property| (property.name.to_owned(), describe(property)));
    properties.collect()
}

fn processor(kind: &ProcessorKind) -> Value {
    let properties = descriptors(kind.properties);
    let relationships: Vec<Value> = kind
        .relationships
        .iter()
        .map(|r| json!({ "name": r.name, "description": r.description }))
        .collect();
    let writes: Vec<Value> = kind
        .writes
        .iter()
        .map(|a| json!({ "name": a.name, "description": a.description }))
        .collect();
    let input = match kind.input {
        Input::Required => "INPUT_REQUIRED",
        Input::Allowed => "INPUT_ALLOWED",
        Input::Forbidden => "INPUT_FORBIDDEN",
    };
    json!({
        "group": "thalweg",
        "artifact": "thalweg-agent",
        "version": VERSION,
        "type": kind.name,
        "typeDescription": kind.description,
        "propertyDescriptors": properties,
        "supportedRelationships": relationships,
        "writesAttributes": writes,
        "supportsDynamicProperties": kind.dynamic != Dynamic::None,
        "supportsDynamicRelationships": kind.dynamic.has_relationships(),
        "inputRequirement": input,
    })
}

fn describe(property: &PropertyKind) -> Value {
    let scope = match property.expressions {
        Expressions::None => "NONE",
        Expressions::Once => "ENVIRONMENT",
        Expressions::FlowFile => "FLOWFILE_ATTRIBUTES",
    };
    let mut out = json!({
        "name": property.name,
        "displayName": property.name,
        "description": property.description,
        "required": property.required,
        "expressionLanguageScope": scope,
    });
    if property.is_sensitive {
        out["sensitive"] = json!(true);
    }
    if let Shape::Service(role) = property.shape {
        out["typeProvidedByValue"] = json!({ "type": role });
    }
    if let Some(default) = property.default {
        out["defaultValue"] = json!(default);
    }
    if !property.allowed.is_empty() {
        let values = property
            .allowed
            .iter()
            .map(|v| json!({ "value": v, "displayName": v }));
        out["allowableValues"] = Value::Array(values.collect());
    }
    out
}

/// How the agent names its type: its own word, so that a control plane shapes operations for it
/// by `supportedOperations` and not by the rules for Java or C++ agents.
pub(crate) const AGENT_TYPE: &str = "thalweg";

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_shows_the_whole_table_and_its_hash_is_stable() {
        let manifest = Manifest::of_this_build().unwrap();
        assert_eq!(manifest.hash, Manifest::of_this_build().unwrap().hash);
        let read: Value = serde_json::from_str(manifest.json.as_str()).unwrap();
        let shown = &read["bundles"][0]["componentManifest"]["processors"];
        assert!(shown.as_array().unwrap().len() >= processors::PROCESSORS.len());
        let services = &read["bundles"][0]["componentManifest"]["controllerServices"];
        assert_eq!(services.as_array().unwrap().len(), SERVICES.len());
        let context = &services[0]["propertyDescriptors"]["Passphrase"];
        assert_eq!(context["sensitive"], json!(true));
        assert_eq!(
            shown[0]["propertyDescriptors"]["File to Tail"]["required"],
            json!(true)
        );
        assert_eq!(read["agentType"], json!("thalweg"));
    }
}
