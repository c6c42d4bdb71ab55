//! A Lua state with one script in it: its libraries, its bounds, and its errors as people read them.
//!
//! What looks at the bounds is called each so many instructions ([`SCRIPT_STEPS_BETWEEN_LOOKS`]). Once
//! they are passed it raises an error with each further instruction, so that a script which catches
//! one has the next where it catches. The one place where nobody looks is the `__close` of what is open in
//! the very function that is ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlua::chunk::ChunkMode;
use mlua::debug::Debug;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, VmState};
use parking_lot::Mutex;

use super::hand::{Hand, Relationship, Sessions, States, Surroundings};
use super::log::Log;
use crate::engine::Context;
use crate::limits::SCRIPT_STEPS_BETWEEN_LOOKS;

/// What a script may use.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Memory of its Lua state.
    pub(super) memory_bytes: usize,
    /// Time of one trigger.
    pub(super) time: Duration,
}

/// A Lua state with a script.
pub(super) struct Machine {
    lua: Lua,
    script: Function,
    watch: Arc<Watch>,
    /// Whether the script's `onSchedule` was called.
    is_scheduled: bool,
}

/// What a script failed of.
pub(super) struct Fault {
    /// Its message, with file and line where there is one.
    pub(super) why: String,
    /// Whether the state cannot be used any more.
    pub(super) is_over: bool,
}

/// Looks at the clock while a script runs.
struct Watch {
    is_stopping: Box<dyn Fn() -> bool + Send + Sync>,
    time: Duration,
    deadline: Mutex<Instant>,
    ended: Mutex<Option<String>>,
}

/// Whether `text` is a script at all; the error says on which line it is not.
pub(super) fn check(name: &str, text: &[u8]) -> Result<(), String> {
    let lua = Lua::new_with(StdLib::NONE, LuaOptions::new()).map_err(|error| told(&error))?;
    load(&lua, name, text)
        .map(drop)
        .map_err(|error| told(&error))
}

impl Machine {
    /// A state with the script `text`, which errors call `name`; `modules` is added to the places
    /// where modules are. The error says what is wrong with the script.
    pub(super) fn new(
        context: &Context,
        name: &str,
        text: &[u8],
        modules: &str,
        bounds: Bounds,
    ) -> Result<Self, String> {
        let watch = Arc::new(Watch {
            is_stopping: Box::new(context.stop_look()),
            time: bounds.time,
            deadline: Mutex::new(Instant::now() + bounds.time),
            ended: Mutex::new(None),
        });
        let made = || {
            let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new())?;
            lua.set_memory_limit(bounds.memory_bytes)?;
            let globals = lua.globals();
            globals.set("log", Log::new(context))?;
            globals.set("REL_SUCCESS", Relationship(super::SUCCESS))?;
            globals.set("REL_FAILURE", Relationship(super::FAILURE))?;
            let over = Arc::clone(&watch);
            let is_over = lua.create_function(move |lua, ()| {
                let is_over = over.ended.lock().is_some();
                if is_over {
                    look(lua, &over, 1)?;
                }
                Ok(is_over)
            })?;
            lua.load(BEFORE).set_name("=agent").call::<()>(is_over)?;
            let package: Table = globals.get("package")?;
            let path: String = package.get("path")?;
            package.set("path", path + modules)?;
            let script = load(&lua, name, text)?;
            look(&lua, &watch, SCRIPT_STEPS_BETWEEN_LOOKS)?;
            Ok((lua, script))
        };
        let (lua, script) = made().map_err(|error: Error| told(&error))?;
        Ok(Machine {
            lua,
            script,
            watch,
            is_scheduled: false,
        })
    }

    /// Runs the script, then its `onTrigger`.
    pub(super) fn run(
        &mut self,
        hand: &Hand<'_, '_>,
        properties: &BTreeMap<String, String>,
    ) -> Result<(), Fault> {
        *self.watch.deadline.lock() = Instant::now() + self.watch.time;
        let is_scheduled = &mut self.is_scheduled;
        let ran = self.lua.scope(|scope| {
            let states = scope.create_userdata(States(hand))?;
            let context = scope.create_userdata(Surroundings { properties, states })?;
            let session = scope.create_userdata(Sessions(hand))?;
            self.script.call::<()>(())?;
            let globals = self.lua.globals();
            if !*is_scheduled {
                if let Some(on_schedule) = globals.get::<Option<Function>>("onSchedule")? {
                    on_schedule.call::<()>(&context)?;
                }
                *is_scheduled = true;
            }
            match globals.get::<Option<Function>>("onTrigger")? {
                Some(on_trigger) => on_trigger.call::<()>((context, session)),
                None => Err(Error::runtime("the script defines no onTrigger")),
            }
        });
        if let Some(why) = self.watch.ended.lock().take() {
            return Err(Fault { why, is_over: true });
        }
        ran.map_err(|error| Fault {
            why: told(&error),
            is_over: is_of_memory(&error),
        })
    }
}

impl Watch {
    /// Why the script is over, if it is.
    fn verdict(&self, debug: &Debug<'_>) -> Option<String> {
        let mut ended = self.ended.lock();
        if ended.is_none() {
            let why = if (self.is_stopping)() {
                "the script is ended: the processor stops".to_owned()
            } else if Instant::now() >= *self.deadline.lock() {
                let seconds = self.time.as_secs_f64();
                format!("the script is ended: it took more than {seconds} s (Time Limit)")
            } else {
                return None;
            };
            let source = debug.source().short_src.unwrap_or_default().into_owned();
            *ended = Some(match debug.current_line() {
                Some(line) => format!("{source}:{line}: {why}"),
                None => why,
            });
        }
        ended.clone()
    }
}

/// Has `watch` look each `steps` instructions, in all coroutines.
fn look(lua: &Lua, watch: &Arc<Watch>, steps: u32) -> mlua::Result<()> {
    let watch = Arc::clone(watch);
    let triggers = HookTriggers::new().every_nth_instruction(steps);
    lua.set_global_hook(triggers, move |lua, debug| match watch.verdict(debug) {
        None => Ok(VmState::Continue),
        Some(why) => {
            look(lua, &watch, 1)?;
            Err(Error::runtime(why))
        }
    })
}

/// A script as a function; a mark of its encoding and a first line for the shell are no Lua.
fn load(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Function> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut script = Vec::with_capacity(text.len() + COMMENT.len());
    if text.starts_with(b"#") {
        script.extend_from_slice(COMMENT);
    }
    script.extend_from_slice(text);
    let chunk = lua.load(script).set_name(name).set_mode(ChunkMode::Text);
    chunk.into_function()
}

fn is_of_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_of_memory(cause),
        _ => false,
    }
}

/// An error as people read it, with the place in the script.
fn told(error: &Error) -> String {
    match error {
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            let line = text.split(TRACEBACK).next().unwrap_or_default();
            line.trim_end().to_owned()
        }
        Error::CallbackError { traceback, cause } => {
            let why = told(cause);
            match place(traceback) {
                Some(place) if !has_place(cause) => format!("{place}: {why}"),
                _ => why,
            }
        }
        Error::MemoryError(_) => {
            "the script needs more memory than it may have (Memory Limit)".to_owned()
        }
        other => other.to_string(),
    }
}

/// Whether an error was raised by a script, or tells already where it was.
fn has_place(error: &Error) -> bool {
    match error {
        Error::RuntimeError(text) => text.contains(TRACEBACK),
        Error::CallbackError { traceback, cause } => place(traceback).is_some() || has_place(cause),
        _ => false,
    }
}

/// The innermost line of a script that a traceback names: `Script Body:3`.
fn place(traceback: &str) -> Option<&str> {
    traceback.lines().map(str::trim).find_map(|line| {
        let (place, _) = line.split_once(": in ")?;
        let (_, number) = place.rsplit_once(':')?;
        number.parse::<u32>().ok().map(|_| place)
    })
}

const BEFORE: &str = include_str!("before.lua");

const COMMENT: &[u8] = b"--";

/// What Lua puts behind an error's message.
const TRACEBACK: &str = "\nstack traceback:";
