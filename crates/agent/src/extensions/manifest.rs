//! `extension.json`: a program and what its processors are.
//!
//! ```json
//! { "version": 1,
//!   "command": ["./reverse.py"],
//!   "user": "nobody",
//!   "memory": "256 MB",
//!   "answerWait": "30 sec",
//!   "processors": [{
//!     "name": "ReverseText",
//!     "description": "Reverses content.",
//!     "input": "required",
//!     "isConcurrent": true,
//!     "properties": [{ "name": "Prefix", "description": "…", "default": "", "shape": "text",
//!                      "expressions": "flowFile" }],
//!     "relationships": [{ "name": "success", "description": "…" }],
//!     "writes": [{ "name": "reversed", "description": "…" }] }] }
//! ```
//!
//! What is left out has the default that MiNiFi gives it: no default value, not required, any text,
//! no expressions. Keys that are not known are refused. A program's name with a `/` is taken from
//! the extension's folder. In place of `command`, `module` names a WebAssembly module there, and
//! `fuel` how much it may do between two reads of its input.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::External;
use super::processor::make;
use crate::limits::{EXTENSION_MANIFEST_BYTES_MAX, EXTENSION_PROCESSORS_MAX};
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, ProcessorKind, PropertyKind, RelationshipKind,
    Shape,
};
use crate::units;

/// How an extension's program is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// What runs.
    pub(super) runs: Runs,
    /// The extension's folder, in which it runs.
    pub(super) folder: PathBuf,
    /// Who it runs as, by name.
    pub(super) user: Option<String>,
    /// Bytes of memory that it can ask for.
    pub(super) memory_bytes: u64,
    /// How long it may be silent while it is asked something.
    pub(super) answer_wait: Duration,
    /// What a module may do between two reads of its input; about one for each instruction.
    pub(super) fuel: u64,
    /// Whether several tasks of a processor may run at once, each with a process of its own.
    pub(super) concurrent: Vec<&'static str>,
}

/// What an extension is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// A program's name or path, then its arguments.
    Command(Vec<String>),
    /// The file of a WebAssembly module.
    Module(PathBuf),
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runs::Command(words) => f.write_str(&words.join(" ")),
            Runs::Module(path) => {
                f.write_str(&path.file_name().unwrap_or_default().to_string_lossy())
            }
        }
    }
}

/// Reads the extension in `folder`; the error says what is wrong with it.
///
/// What is read lives as long as the process: the table of processors refers to it.
pub(super) fn read(folder: &Path) -> Result<Vec<External>, String> {
    let file = folder.join(FILE);
    let size = std::fs::metadata(&file).map_err(|error| error.to_string())?;
    if size.len() > EXTENSION_MANIFEST_BYTES_MAX {
        return Err(format!(
            "it has more than {EXTENSION_MANIFEST_BYTES_MAX} bytes"
        ));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let told: Told = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if told.version != VERSION {
        return Err(format!(
            "it has version {}; this agent knows {VERSION}",
            told.version
        ));
    }
    if told.processors.is_empty() || told.processors.len() > EXTENSION_PROCESSORS_MAX {
        return Err(format!(
            "it has no processor, or more than {EXTENSION_PROCESSORS_MAX}"
        ));
    }
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    let runs = match (told.module, told.command) {
        (Some(module), command) if command.is_empty() && told.user.is_none() => {
            Runs::Module(folder.join(module))
        }
        (Some(_), _) => return Err("a module has no command and no user".to_owned()),
        (None, command) if command.first().is_none_or(String::is_empty) => {
            return Err("it has no command".to_owned());
        }
        (None, command) => Runs::Command(command),
    };
    let concurrent = told
        .processors
        .iter()
        .filter(|processor| processor.is_concurrent);
    let program: &'static Program = Box::leak(Box::new(Program {
        runs,
        folder,
        fuel: told.fuel,
        user: told.user,
        memory_bytes: units::size(&told.memory)
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| format!("memory: '{}' is no size", told.memory))?,
        answer_wait: units::duration(&told.answer_wait)
            .filter(|wait| !wait.is_zero())
            .ok_or_else(|| format!("answerWait: '{}' is no duration", told.answer_wait))?,
        concurrent: concurrent
            .map(|processor| leaked(&processor.name))
            .collect(),
    }));
    let mut all = Vec::new();
    for processor in told.processors {
        let name = processor.name.clone();
        let kind = processor.kind().map_err(|why| format!("{name}: {why}"))?;
        all.push(External {
            kind: Box::leak(Box::new(kind)),
            program,
        });
    }
    Ok(all)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Told {
    version: u32,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    module: Option<String>,
    #[serde(default = "fuel_default")]
    fuel: u64,
    #[serde(default)]
    user: Option<String>,
    #[serde(default = "memory_default")]
    memory: String,
    #[serde(default = "answer_wait_default")]
    answer_wait: String,
    processors: Vec<ToldProcessor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToldProcessor {
    name: String,
    description: String,
    input: ToldInput,
    #[serde(default)]
    is_concurrent: bool,
    #[serde(default)]
    properties: Vec<ToldProperty>,
    relationships: Vec<Named>,
    #[serde(default)]
    writes: Vec<Named>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum ToldInput {
    Required,
    Allowed,
    Forbidden,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToldProperty {
    name: String,
    description: String,
    #[serde(default)]
    default: Option<String>,
    #[serde(default)]
    is_required: bool,
    #[serde(default)]
    allowed: Vec<String>,
    #[serde(default)]
    shape: ToldShape,
    #[serde(default)]
    expressions: ToldExpressions,
    #[serde(default)]
    is_sensitive: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ToldShape {
    #[default]
    Text,
    Integer,
    Flag,
    Duration,
    Size,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ToldExpressions {
    #[default]
    None,
    Once,
    FlowFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    description: String,
}

impl ToldProcessor {
    fn kind(self) -> Result<ProcessorKind, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || !self.name.chars().all(fits) {
            return Err("a processor's name has letters, digits, - and _ only".to_owned());
        }
        if self.relationships.is_empty() {
            return Err("it has no relationship".to_owned());
        }
        let properties: Vec<PropertyKind> = self
            .properties
            .into_iter()
            .map(ToldProperty::kind)
            .collect();
        for property in &properties {
            if let Some(default) = property.default {
                let checked = property.check(default);
                checked.map_err(|why| format!("the default of {} {why}", property.name))?;
            }
        }
        let relationships = self.relationships.iter().map(|it| RelationshipKind {
            name: leaked(&it.name),
            description: leaked(&it.description),
        });
        let writes = self.writes.iter().map(|it| AttributeKind {
            name: leaked(&it.name),
            description: leaked(&it.description),
        });
        Ok(ProcessorKind {
            name: leaked(&self.name),
            description: leaked(&self.description),
            properties: properties.leak(),
            dynamic: Dynamic::None,
            relationships: relationships.collect::<Vec<_>>().leak(),
            writes: writes.collect::<Vec<_>>().leak(),
            input: match self.input {
                ToldInput::Required => Input::Required,
                ToldInput::Allowed => Input::Allowed,
                ToldInput::Forbidden => Input::Forbidden,
            },
            make,
        })
    }
}

impl ToldProperty {
    fn kind(self) -> PropertyKind {
        let allowed: Vec<&'static str> = self.allowed.iter().map(|it| leaked(it)).collect();
        PropertyKind {
            name: leaked(&self.name),
            also: None,
            description: leaked(&self.description),
            default: self.default.as_deref().map(leaked),
            required: self.is_required,
            allowed: allowed.leak(),
            shape: match self.shape {
                ToldShape::Text => Shape::Text,
                ToldShape::Integer => Shape::Integer(i64::MIN),
                ToldShape::Flag => Shape::Flag,
                ToldShape::Duration => Shape::Duration,
                ToldShape::Size => Shape::Size,
            },
            expressions: match self.expressions {
                ToldExpressions::None => Expressions::None,
                ToldExpressions::Once => Expressions::Once,
                ToldExpressions::FlowFile => Expressions::FlowFile,
            },
            is_sensitive: self.is_sensitive,
        }
    }
}

/// A text that lives as long as the process.
fn leaked(text: &str) -> &'static str {
    Box::leak(text.into())
}

fn memory_default() -> String {
    "512 MB".to_owned()
}

/// Some ten seconds of an interpreter.
fn fuel_default() -> u64 {
    5_000_000_000
}

fn answer_wait_default() -> String {
    "30 sec".to_owned()
}

/// What an extension's folder is known by.
pub(super) const FILE: &str = "extension.json";

const VERSION: u32 = 1;
