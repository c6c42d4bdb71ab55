//! ExecuteScript: a script in Lua that takes, changes and makes FlowFiles.
//!
//! As in MiNiFi C++ the whole script is run before each `onTrigger`, in a Lua state ([`machine`])
//! that stays: what the script sets at its top begins anew with each trigger, what only
//! `onTrigger` sets stays. Each concurrent task has a state of its own. What a script does is true
//! with the session's commit or not at all ([`hand`]); an error in it takes everything back.
//!
//! A state is bounded in memory and time, and ends with the agent. It ends also where a script
//! tries to catch that. What these bounds do not reach is one call of Lua's own libraries, which
//! nothing interrupts: a pattern over a long text, a file that is a pipe.

#[cfg(test)]
mod bounds_tests;
mod hand;
mod log;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::limits::{SCRIPT_BYTES_MAX, SCRIPT_MEMORY_BYTES_MIN, SCRIPT_TIME_MAX};
use crate::session::ProcessSession;
use hand::Hand;
use machine::{Bounds, Machine};

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ExecuteScript",
    description: "Runs a script in Lua, whose onTrigger(context, session) takes, changes, makes and \
                  sends on FlowFiles.",
    properties: &[
        PropertyKind::new(
            "Script Engine",
            "The language. 'python' is MiNiFi's default and refused here: a processor in Python is an \
             extension.",
        )
        .default("python")
        .required()
        .allowed(&["lua", "python"]),
        PropertyKind::new(
            "Script File",
            "The file of the script, read anew when it changes; either it or the body.",
        ),
        PropertyKind::new("Script Body", "The script; either it or the file."),
        PropertyKind::new(
            "Module Directory",
            "Files and folders, parted by commas, where 'require' finds modules.",
        ),
        PropertyKind::new(
            "Time Limit",
            "How long one trigger may take before it is ended; not in MiNiFi.",
        )
        .default("1 min")
        .required()
        .shape(Shape::Duration),
        PropertyKind::new(
            "Memory Limit",
            "What a script of one task may hold in memory; not in MiNiFi.",
        )
        .default("256 MB")
        .required()
        .shape(Shape::Size),
    ],
    dynamic: Dynamic::Named {
        prefix: "",
        meaning: "a value that the script finds with context:getProperty",
    },
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles that the script sends to REL_SUCCESS.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that the script sends to REL_FAILURE; no others.",
        },
    ],
    writes: &[AttributeKind::new(
        "filename",
        "The uuid, by FlowFiles that the script makes of nothing.",
    )],
    input: Input::Allowed,
    make: |settings| ExecuteScript::new(settings).map(|made| Box::new(made) as _),
};

struct ExecuteScript {
    source: Source,
    bounds: Bounds,
    /// Where modules are, as Lua writes it.
    modules: String,
    /// What `context:getProperty` finds.
    properties: BTreeMap<String, String>,
    running: Option<Running>,
}

/// Where the script is.
enum Source {
    Body(String),
    File(PathBuf),
}

/// A Lua state and which script it is of.
struct Running {
    version: Option<Version>,
    machine: Machine,
}

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    modified: SystemTime,
    len: u64,
    inode: u64,
}

impl ExecuteScript {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        if settings.needed("Script Engine")? != "lua" {
            return Err(NO_PYTHON.to_owned());
        }
        let source = match (settings.text("Script File")?, settings.text("Script Body")?) {
            (Some(file), None) => Source::File(PathBuf::from(file)),
            (None, Some(body)) => {
                machine::check(BODY_NAME, body.as_bytes())?;
                Source::Body(body)
            }
            (Some(_), Some(_)) => {
                return Err("Script File and Script Body are both set: leave one out".to_owned());
            }
            (None, None) => {
                return Err("neither Script File nor Script Body is set".to_owned());
            }
        };
        let memory_bytes = settings.size("Memory Limit")?;
        if memory_bytes < SCRIPT_MEMORY_BYTES_MIN {
            return Err(format!(
                "Memory Limit: Lua needs at least {SCRIPT_MEMORY_BYTES_MIN} bytes"
            ));
        }
        let time = settings.duration("Time Limit")?;
        if time.is_zero() || time > SCRIPT_TIME_MAX {
            let hours = SCRIPT_TIME_MAX.as_secs() / 3600;
            return Err(format!(
                "Time Limit: a script has some time, and no more than {hours} hours"
            ));
        }
        let mut properties = BTreeMap::new();
        for property in KIND.properties {
            if let Some(value) = settings.text(property.name)? {
                properties.insert(property.name.to_owned(), value);
            }
        }
        properties.extend(settings.dynamic_texts());
        let modules = settings.text("Module Directory")?.unwrap_or_default();
        Ok(ExecuteScript {
            source,
            bounds: Bounds {
                memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
                time,
            },
            modules: module_path(&modules),
            properties,
            running: None,
        })
    }

    /// The Lua state with the script as it now is.
    fn running(&mut self, context: &Context) -> Result<Running, String> {
        let version = match &self.source {
            Source::Body(_) => None,
            Source::File(path) => Some(version(path)?),
        };
        if let Some(running) = self.running.take()
            && running.version == version
        {
            return Ok(running);
        }
        let machine = match &self.source {
            Source::Body(body) => {
                let text = body.as_bytes();
                Machine::new(context, BODY_NAME, text, &self.modules, self.bounds)?
            }
            Source::File(path) => {
                let name = format!("@{}", path.display());
                let text = read(path)?;
                Machine::new(context, &name, &text, &self.modules, self.bounds)?
            }
        };
        Ok(Running { version, machine })
    }
}

impl Processor for ExecuteScript {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        // One that does not come back, by a panic or by its bounds, has an unknown state.
        let mut running = self.running(context).map_err(ProcessorError::Failed)?;
        let hand = Hand::new(session);
        let ran = running.machine.run(&hand, &self.properties);
        let is_usable = ran.as_ref().err().is_none_or(|fault| !fault.is_over);
        if is_usable {
            self.running = Some(running);
        }
        match (hand.fault(), ran) {
            (Some(error @ ProcessorError::Repository(_)), _) => return Err(error),
            (_, Err(fault)) => return Err(ProcessorError::Failed(fault.why)),
            // The script went on as if nothing had happened.
            (Some(error), Ok(())) => return Err(error),
            (None, Ok(())) => {}
        }
        let is_idle = hand.is_empty();
        hand.finish();
        let (waiting, _) = session.waiting();
        // A script that takes nothing of what waits would be run again at once.
        Ok(match is_idle && waiting > 0 {
            true => Next::Yield,
            false => Next::Scheduled,
        })
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

fn version(path: &Path) -> Result<Version, String> {
    let metadata = std::fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    if !metadata.is_file() {
        return Err(format!("the script {} is no file", path.display()));
    }
    Ok(Version {
        modified: metadata
            .modified()
            .map_err(|error| cannot_read(path, &error))?,
        len: metadata.len(),
        inode: metadata.ino(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    let mut text = Vec::new();
    let read = file.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| cannot_read(path, &error))?;
    if text.len() as u64 > SCRIPT_BYTES_MAX {
        return Err(format!(
            "the script {} has more than {SCRIPT_BYTES_MAX} bytes",
            path.display()
        ));
    }
    Ok(text)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read the script {}: {error}", path.display())
}

/// A list of files and folders as Lua looks for modules: a file is taken for whatever is required.
fn module_path(list: &str) -> String {
    let mut path = String::new();
    for place in list.split(',').map(str::trim) {
        if place.is_empty() {
            continue;
        }
        path.push(';');
        path.push_str(place);
        if !Path::new(place).is_file() {
            path.push_str("/?.lua");
        }
    }
    path
}

/// How errors call a script that has no file.
const BODY_NAME: &str = "=Script Body";

const NO_PYTHON: &str = "Script Engine: 'python', which is also what it is when it is left out, is not \
                         run here; set it to 'lua', or make the script an extension, a processor \
                         that is a program of its own (docs/agent.md, Extensions)";

const SUCCESS: usize = 0;
const FAILURE: usize = 1;
