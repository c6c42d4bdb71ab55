//! ExecuteProcess: what a command writes, as FlowFiles.
//!
//! The command is run anew at each trigger and killed when the flow stops. What it wrote until
//! then still becomes a FlowFile.

use std::io::{PipeReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::expression::{Expression, Scope};
use crate::flowfile::Attributes;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ExecuteProcess",
    description: "Runs a command and makes a FlowFile of what it writes.",
    properties: &[
        PropertyKind::new(
            "Command",
            "The program, by its path or by its name where PATH leads to it.",
        )
        .required()
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Command Arguments",
            "Its arguments, parted by blanks; a blank within double quotes parts nothing.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new("Working Directory", "The folder in which it runs.")
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Batch Duration",
            "What was written in this time becomes a FlowFile while the command runs on; 0 sec \
             makes one of all that it writes.",
        )
        .default("0 sec")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Redirect Error Stream",
            "Whether what it writes as errors is taken too; otherwise it goes to the agent's.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Everything that the command wrote.",
    }],
    writes: &[
        AttributeKind::new("command", "The program."),
        AttributeKind::new("command.arguments", "Its arguments."),
    ],
    input: Input::Forbidden,
    make: |settings| ExecuteProcess::new(settings).map(|made| Box::new(made) as _),
};

struct ExecuteProcess {
    command: Expression,
    arguments: Option<Expression>,
    folder: Option<Expression>,
    batch: Duration,
    takes_errors: bool,
}

/// A command that runs; dropping it kills it.
struct Running {
    child: Child,
    output: Receiver<std::io::Result<Vec<u8>>>,
}

impl ExecuteProcess {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ExecuteProcess {
            command: settings.expression("Command")?.ok_or("Command is empty")?,
            arguments: settings.expression("Command Arguments")?,
            folder: settings.expression("Working Directory")?,
            batch: settings.duration("Batch Duration")?,
            takes_errors: settings.flag("Redirect Error Stream")?,
        })
    }

    fn start(
        &self,
        session: &ProcessSession<'_>,
    ) -> Result<(Running, Arc<Attributes>), ProcessorError> {
        let scope = Scope {
            attributes: None,
            flow_file: None,
            now: session.now(),
        };
        let evaluate = |expression: &Expression| {
            let text = expression.evaluate(scope);
            text.map(|text| text.into_owned())
                .map_err(|error| ProcessorError::Failed(error.to_string()))
        };
        let optional = |expression: &Option<Expression>| match expression {
            Some(expression) => evaluate(expression),
            None => Ok(String::new()),
        };
        let program = evaluate(&self.command)?;
        let arguments = optional(&self.arguments)?;
        let folder = optional(&self.folder)?;
        let failed = |error: std::io::Error| {
            ProcessorError::Failed(format!("cannot run {program}: {error}"))
        };
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new(&program);
        command.args(split(&arguments)).stdin(Stdio::null());
        if !folder.is_empty() {
            command.current_dir(folder);
        }
        if self.takes_errors {
            command.stderr(writer.try_clone().map_err(failed)?);
        }
        command.stdout(writer);
        let child = command.spawn().map_err(failed)?;
        // The command's own ends of the pipe close with it, ours here.
        drop(command);
        let (sender, output) = sync_channel(CHUNKS_MAX);
        let running = Running { child, output };
        std::thread::Builder::new()
            .name("output".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || pass_on(reader, &sender))
            .map_err(failed)?;
        let attributes = Attributes::new([("command", program), ("command.arguments", arguments)]);
        Ok((running, Arc::new(attributes)))
    }

    /// Reads until the batch is over or the command is; says whether there is more to come.
    fn read(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        running: &Running,
    ) -> Result<(Content, bool), ProcessorError> {
        let deadline = (!self.batch.is_zero()).then(|| Instant::now() + self.batch);
        let mut parts = Vec::new();
        loop {
            if context.is_stopping() {
                return Ok((Content::join(parts), false));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok((Content::join(parts), true));
            }
            let wait = left.unwrap_or(STOP_CHECK).min(STOP_CHECK);
            match running.output.recv_timeout(wait) {
                Ok(Ok(bytes)) => parts.push(session.content(Bytes::from(bytes))?),
                Ok(Err(error)) => {
                    let message = format!("cannot read what the command writes: {error}");
                    return Err(ProcessorError::Failed(message));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok((Content::join(parts), false)),
            }
        }
    }
}

impl Processor for ExecuteProcess {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let (mut running, attributes) = self.start(session)?;
        let uri = format!("command:{}", attributes.get("command").unwrap_or_default());
        loop {
            let (content, has_more) = self.read(context, session, &running)?;
            if !content.is_empty() {
                let mut flow_file = session.create(Arc::clone(&attributes));
                session.set_content(&mut flow_file, content)?;
                session.note(&flow_file, EventKind::Receive, &uri);
                session.transfer(flow_file, 0);
                session.commit()?;
            }
            if !has_more {
                break;
            }
        }
        if let Some(problem) = running.end(context.is_stopping()) {
            context.post(Level::Warning, &problem);
        }
        Ok(Next::Scheduled)
    }
}

impl Running {
    /// Waits for the command's end; says when it was a bad one.
    fn end(&mut self, is_stopping: bool) -> Option<String> {
        if is_stopping {
            return None;
        }
        match self.child.wait() {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("the command ended with {status}")),
            Err(error) => Some(format!("the command's end is not known: {error}")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that ended already is no error.
        let outcome = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = outcome {
            tracing::debug!(%error, "a command could not be killed");
        }
    }
}

fn pass_on(mut reader: PipeReader, sender: &SyncSender<std::io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = match reader.read(&mut chunk) {
            Ok(0) => return,
            Ok(len) => {
                chunk.truncate(len);
                Ok(chunk)
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_error = read.is_err();
        if sender.send(read).is_err() || is_error {
            return;
        }
    }
}

/// Parts arguments at blanks that are not within double quotes.
fn split(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let (mut current, mut is_quoted, mut is_begun) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                is_begun = true;
            }
            c if c.is_whitespace() && !is_quoted => {
                if is_begun {
                    all.push(std::mem::take(&mut current));
                }
                is_begun = false;
            }
            c => {
                current.push(c);
                is_begun = true;
            }
        }
    }
    if is_begun {
        all.push(current);
    }
    all
}

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that wait to be taken; the command is held back by its pipe then.
const CHUNKS_MAX: usize = 16;

/// How often a stop is looked for.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Stack of a thread that only reads.
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;

    #[test]
    fn arguments_are_parted_at_blanks_outside_of_quotes() {
        for (text, parts) in [
            ("", vec![]),
            ("a  b", vec!["a", "b"]),
            (r#"-c "echo a b" x"y z""#, vec!["-c", "echo a b", "xy z"]),
            (r#""" ""#, vec!["", ""]),
        ] {
            assert_eq!(split(text), parts, "{text}");
        }
    }

    #[test]
    fn what_a_command_writes_becomes_a_flow_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let properties = [
            ("Command", "sh"),
            ("Command Arguments", r#"-c "pwd; echo wrong >&2""#),
            ("Working Directory", folder.to_str().unwrap()),
            ("Redirect Error Stream", "true"),
        ];
        let mut rig = Rig::new("ExecuteProcess", &properties);
        rig.trigger().unwrap();
        let out = rig.one("success");
        assert_eq!(out.text(), format!("{}\nwrong\n", folder.display()));
        assert_eq!(out.attribute("command"), "sh");
        assert_eq!(rig.bulletins(), Vec::<String>::new());
    }

    #[test]
    fn a_long_output_comes_whole_or_in_batches() {
        let one = [
            ("Command", "sh"),
            ("Command Arguments", "-c \"seq 200000\""),
        ];
        let mut rig = Rig::new("ExecuteProcess", &one);
        rig.trigger().unwrap();
        let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
        assert!(rig.one("success").text() == expected);
        let batches = [
            ("Command", "sh"),
            ("Command Arguments", "-c \"echo a; sleep 0.6; echo b\""),
            ("Batch Duration", "200 ms"),
        ];
        let mut rig = Rig::new("ExecuteProcess", &batches);
        rig.trigger().unwrap();
        let out = rig.out("success");
        let texts: Vec<&str> = out.iter().map(|out| out.text()).collect();
        assert_eq!(texts, ["a\n", "b\n"]);
    }

    #[test]
    fn a_command_that_fails_or_is_not_there_is_told() {
        let fails = [("Command", "sh"), ("Command Arguments", "-c \"exit 3\"")];
        let mut rig = Rig::new("ExecuteProcess", &fails);
        rig.trigger().unwrap();
        assert_eq!(rig.counts(), []);
        assert!(
            rig.bulletins()[0].contains("exit status: 3"),
            "{:?}",
            rig.bulletins()
        );
        let mut rig = Rig::new("ExecuteProcess", &[("Command", "/no/such/command")]);
        let error = rig.trigger().unwrap_err();
        assert!(error.contains("cannot run /no/such/command"), "{error}");
    }
}
