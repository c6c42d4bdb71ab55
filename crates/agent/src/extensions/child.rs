//! What runs an extension, a process or a module: started confined, spoken to with a bound on every
//! wait, ended with all that it started.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::frames::{self, Frame};
#[cfg(feature = "wasm")]
use super::module::Sandbox;
use super::{Program, Runs};
use crate::limits::{EXTENSION_FILES_MAX, EXTENSION_FRAMES_WAITING_MAX, EXTENSION_LINE_BYTES_MAX};

/// A running program or module; dropping it ends it.
pub(super) struct Running {
    life: Life,
    pub(super) input: File,
    frames: Receiver<std::io::Result<Frame>>,
    wait: Duration,
}

enum Life {
    /// Held for its end.
    Process(#[allow(dead_code, reason = "dropping it ends the process")] Process),
    #[cfg(feature = "wasm")]
    Module(Sandbox),
}

/// A process that ends with this, and all that it started.
struct Process(Child);

/// What the agent writes into, and what it reads from.
struct Pipes {
    input: File,
    output: File,
    errors: File,
}

impl Running {
    /// Starts the program; the error says why that cannot be.
    pub(super) fn start(program: &Program, processor: &str) -> Result<Running, String> {
        let (life, pipes) = match &program.runs {
            Runs::Command(command) => process(program, command)?,
            Runs::Module(path) => module(program, path)?,
        };
        let Pipes {
            input,
            output,
            errors,
        } = pipes;
        let (sender, frames) = sync_channel(EXTENSION_FRAMES_WAITING_MAX);
        let running = Running {
            life,
            input,
            frames,
            wait: program.answer_wait,
        };
        let failed = |error: std::io::Error| format!("cannot run {}: {error}", program.runs);
        thread("extension", move || pass_on(output, &sender)).map_err(failed)?;
        let processor = processor.to_owned();
        thread("extension-log", move || log(errors, &processor)).map_err(failed)?;
        Ok(running)
    }

    /// Another handle of what the program reads.
    pub(super) fn pipe(&self) -> std::io::Result<File> {
        self.input.try_clone()
    }

    /// The next frame; the error says why there is none. `gives_up` is asked meanwhile.
    pub(super) fn next(&self, gives_up: impl Fn() -> bool) -> Result<Frame, String> {
        let deadline = Instant::now() + self.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.frames.recv_timeout(left.min(STOP_CHECK)) {
                Ok(Ok(frame)) => return Ok(frame),
                Ok(Err(error)) => return Err(format!("it broke the protocol: {error}")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
                Err(RecvTimeoutError::Timeout) if gives_up() => {
                    return Err("broken off by the stop".to_owned());
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(format!("it was silent for {} s", self.wait.as_secs_f32()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// How it ended.
    fn end(&self) -> String {
        let why: Option<String> = match &self.life {
            Life::Process(_) => None,
            #[cfg(feature = "wasm")]
            Life::Module(module) => module.why(),
        };
        why.map_or_else(|| "it ended".to_owned(), |why| format!("it ended: {why}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its children too; that they ended already is no error.
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed())
            && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
        {
            tracing::debug!(%error, "an extension's processes are gone");
        }
        if let Err(error) = self.0.wait() {
            tracing::debug!(%error, "an extension's end is not known");
        }
    }
}

/// Starts a process.
fn process(program: &Program, command: &[String]) -> Result<(Life, Pipes), String> {
    let mut confined = confined(program, command)?;
    let name = &program.runs;
    // What is set for this thread holds for what it starts, and for nothing else of the agent.
    let spawned = std::thread::scope(|scope| {
        let spawning = scope.spawn(|| {
            rustix::thread::set_no_new_privs(true)?;
            confined.spawn()
        });
        spawning.join()
    });
    let mut child = spawned
        .map_err(|_| format!("cannot run {name}"))?
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = pipes else {
        return Err(format!("cannot run {name}: it has no pipes"));
    };
    let pipes = Pipes {
        input: OwnedFd::from(input).into(),
        output: OwnedFd::from(output).into(),
        errors: OwnedFd::from(errors).into(),
    };
    Ok((Life::Process(Process(child)), pipes))
}

/// Starts a module.
#[cfg(feature = "wasm")]
fn module(program: &Program, path: &Path) -> Result<(Life, Pipes), String> {
    let pipe = || std::io::pipe().map_err(|error| format!("there are no pipes: {error}"));
    let (its_input, input) = pipe()?;
    let (output, its_output) = pipe()?;
    let (errors, its_errors) = pipe()?;
    let sandbox = Sandbox::start(program, path, (its_input, its_output, its_errors));
    let sandbox = sandbox.map_err(|why| format!("cannot run {}: {why}", program.runs))?;
    let pipes = Pipes {
        input: OwnedFd::from(input).into(),
        output: OwnedFd::from(output).into(),
        errors: OwnedFd::from(errors).into(),
    };
    Ok((Life::Module(sandbox), pipes))
}

/// Refuses a module.
#[cfg(not(feature = "wasm"))]
fn module(program: &Program, _: &Path) -> Result<(Life, Pipes), String> {
    Err(format!(
        "cannot run {}: this agent was built without WebAssembly",
        program.runs
    ))
}

/// The program's command, with a user, an environment and a process group of its own.
fn confined(program: &Program, words: &[String]) -> Result<Command, String> {
    let name = words.first().map_or("", String::as_str);
    let path = match name.contains('/') {
        true => program.folder.join(name),
        false => name.into(),
    };
    // The shell bounds itself and becomes the program, so that it never runs without bounds.
    let kilobytes = program.memory_bytes.div_ceil(1024);
    let bounds = format!("ulimit -c 0; ulimit -n {EXTENSION_FILES_MAX}; ulimit -v {kilobytes}");
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(format!("set -e; {bounds}; exec \"$0\" \"$@\""))
        .arg(path)
        .args(&words[1..])
        .current_dir(&program.folder)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let is_root = rustix::process::geteuid().is_root();
    match &program.user {
        None if is_root => {
            return Err(
                "the agent is root: say in extension.json as which user the extension \
                        runs"
                    .to_owned(),
            );
        }
        None => {}
        Some(name) => {
            let (user, group) = ids_of(name).ok_or_else(|| format!("there is no user '{name}'"))?;
            if is_root {
                // Other groups are left then too.
                command.uid(user).gid(group);
            } else if user != rustix::process::geteuid().as_raw() {
                return Err(format!("only root can run an extension as '{name}'"));
            }
        }
    }
    Ok(command)
}

/// A user's id and group.
fn ids_of(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = users.lines().map(|line| line.split(':'));
    let mut fields =
        lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    // Behind the name stands a password that is none.
    let user = fields.nth(1)?.parse().ok()?;
    Some((user, fields.next()?.parse().ok()?))
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Passes frames on until the program ends or nobody wants more.
fn pass_on(output: impl Read, sender: &SyncSender<std::io::Result<Frame>>) {
    let mut output = BufReader::new(output);
    loop {
        let (frame, is_last) = match frames::read(&mut output) {
            Ok(Some(frame)) => (Ok(frame), false),
            Ok(None) => return,
            Err(error) => (Err(error), true),
        };
        if sender.send(frame).is_err() || is_last {
            return;
        }
    }
}

/// Writes the program's own words into the log.
fn log(errors: impl Read, processor: &str) {
    let mut errors = BufReader::new(errors);
    loop {
        let mut line = Vec::new();
        let mut piece = errors.by_ref().take(EXTENSION_LINE_BYTES_MAX);
        match piece.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                tracing::info!(processor, "{}", line.trim_end());
            }
        }
    }
}

/// How a message goes to a program.
pub(super) fn send(
    input: &mut impl Write,
    letter: u8,
    message: &impl serde::Serialize,
) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    frames::write(input, letter, &bytes)
}

/// Where programs are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// How often a stop is looked for.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Stack of a thread that only reads.
const STACK_BYTES: usize = 128 << 10;
