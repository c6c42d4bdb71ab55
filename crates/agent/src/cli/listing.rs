//! The processors and controller services, for people at a terminal.

use super::{Output, print};
use crate::AgentError;
use crate::manifest;
use crate::processors::{self, Dynamic, Input, ProcessorKind, PropertyKind};
use crate::services::{SERVICES, ServiceKind};

/// Prints all of them, or the one of this name.
pub(super) fn list(name: Option<&str>, output: Output) -> Result<(), AgentError> {
    let is_wanted = |known: &str| name.is_none_or(|name| known == name);
    let mut out = String::new();
    for kind in processors::all().filter(|kind| is_wanted(kind.name)) {
        processor(&mut out, kind);
    }
    for kind in SERVICES.iter().filter(|kind| is_wanted(kind.name)) {
        service(&mut out, kind);
    }
    if out.is_empty() {
        let name = name.unwrap_or_default();
        return Err(AgentError::Setting(format!(
            "there is no processor or controller service '{name}'; `thalweg-agent processors` \
             lists all"
        )));
    }
    match output {
        Output::Table => print(&out),
        Output::Json => print(&format!("{:#}\n", manifest::components(is_wanted))),
    }
}

fn processor(out: &mut String, kind: &ProcessorKind) {
    out.push_str(&format!("{}: {}\n", kind.name, kind.description));
    properties(out, kind.properties, kind.dynamic);
    let relationships: Vec<&str> = kind.relationships.iter().map(|r| r.name).collect();
    let input = match kind.input {
        Input::Required => "takes input",
        Input::Allowed => "may take input",
        Input::Forbidden => "is a source",
    };
    out.push_str(&format!(
        "    -> {} ({input})\n\n",
        relationships.join(", ")
    ));
}

fn service(out: &mut String, kind: &ServiceKind) {
    out.push_str(&format!("{} (service): {}\n", kind.name, kind.description));
    properties(out, kind.properties, kind.dynamic);
    out.push('\n');
}

fn properties(out: &mut String, properties: &[PropertyKind], dynamic: Dynamic) {
    for property in properties {
        let mut notes = Vec::new();
        if property.required {
            notes.push("required".to_owned());
        }
        if property.is_sensitive {
            notes.push("sensitive".to_owned());
        }
        notes.extend(property.also.map(|also| format!("or {also}")));
        notes.extend(property.default.map(|value| format!("default {value}")));
        if !property.allowed.is_empty() {
            notes.push(format!("one of: {}", property.allowed.join(", ")));
        }
        let notes = match notes.is_empty() {
            true => String::new(),
            false => format!(" [{}]", notes.join("; ")),
        };
        let (name, description) = (property.name, property.description);
        out.push_str(&format!("    {name}{notes}: {description}\n"));
    }
    match dynamic {
        Dynamic::None => {}
        Dynamic::Attributes => out.push_str("    any other name: an attribute to set\n"),
        Dynamic::Named { prefix, meaning } => {
            let names = match prefix {
                "" => "any other name".to_owned(),
                prefix => format!("{prefix}..."),
            };
            out.push_str(&format!("    {names}: {meaning}\n"));
        }
        Dynamic::Relationships | Dynamic::RelationshipsIf { .. } => {
            out.push_str("    any other name: a relationship with its condition\n");
        }
    }
}
