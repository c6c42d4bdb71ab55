//! The socket's asking end: `thalweg-agent status`, `flow` and `debug`.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::status::StatusView;
use super::table::render;
use super::{Answer, ProvenanceQuestion, Question, address, lineage};
use crate::AgentError;
use crate::cli::{Output, print, print_on};
use crate::limits::BUNDLE_BYTES_MAX;
use crate::whole_file;

/// Shows how the agent on `dir` is doing, again and again unless `once`.
pub(crate) fn status(
    dir: &Path,
    output: Output,
    once: bool,
    every: Duration,
) -> Result<(), AgentError> {
    let mut before: Option<StatusView> = None;
    loop {
        let value = ask(dir, &Question::Status)?.0;
        let is_read = if output == Output::Json {
            print_on(&format!("{value}\n"))?
        } else {
            let now: StatusView = serde_json::from_value(value).map_err(garbled)?;
            // A terminal is drawn over; what is piped on is written one after the other.
            let clear = if std::io::stdout().is_terminal() && !once {
                "\x1b[H\x1b[J"
            } else {
                ""
            };
            let drawn = format!("{clear}{}\n", render(&now, before.as_ref()));
            before = Some(now);
            print_on(&drawn)?
        };
        if once || !is_read {
            return Ok(());
        }
        std::thread::sleep(every);
    }
}

/// Shows or steers the flow of the agent on `dir`.
pub(crate) fn flow(dir: &Path, question: &Question, output: Output) -> Result<(), AgentError> {
    let value = ask(dir, question)?.0;
    let text = match (question, output) {
        (_, Output::Json) => value.to_string(),
        (Question::Flow, Output::Table) => match &value {
            Value::Null => "the agent has no flow".to_owned(),
            _ => serde_yaml_ng::to_string(&value["flow"])
                .map_err(|error| AgentError::Refused(error.to_string()))?,
        },
        _ if value["changed"] == Value::Bool(true) => "done".to_owned(),
        _ => "it was so already".to_owned(),
    };
    print(&format!("{}\n", text.trim_end()))
}

/// Shows provenance events of the agent on `dir`.
pub(crate) fn provenance(
    dir: &Path,
    question: ProvenanceQuestion,
    output: Output,
) -> Result<(), AgentError> {
    let value = ask(dir, &Question::Provenance(question))?.0;
    if output == Output::Json {
        return print(&format!("{value}\n"));
    }
    let view = serde_json::from_value(value).map_err(garbled)?;
    print(&lineage::lines(&view))
}

/// Writes a debug bundle of the agent on `dir` to `path`.
pub(crate) fn debug(dir: &Path, path: &Path) -> Result<(), AgentError> {
    let bundle = ask(dir, &Question::Debug)?.1;
    whole_file::write(path, &bundle).map_err(|source| AgentError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })?;
    print(&format!("{}: {} bytes\n", path.display(), bundle.len()))
}

/// Asks the agent; its answer and what comes after it.
fn ask(dir: &Path, question: &Question) -> Result<(Value, Vec<u8>), AgentError> {
    let away = |source| AgentError::System {
        action: "ask the agent",
        source,
    };
    let (_folder, address) = address(dir)?;
    let stream = UnixStream::connect(&address).map_err(|error| {
        let dir = dir.display();
        AgentError::Refused(format!(
            "no agent answers on the data folder {dir} ({error}): is it running, is --data its \
             folder, and are you its user?"
        ))
    })?;
    let mut line = serde_json::to_vec(question).map_err(garbled)?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(away)?;
    let mut reader = BufReader::new(stream).take(ANSWER_BYTES_MAX);
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).map_err(away)?;
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).map_err(away)?;
    match serde_json::from_slice(&line).map_err(garbled)? {
        Answer::Ok(value) => Ok((value, rest)),
        Answer::Error(reason) => Err(AgentError::Refused(reason)),
    }
}

fn garbled(error: serde_json::Error) -> AgentError {
    AgentError::Refused(format!("the agent's answer cannot be read: {error}"))
}

/// Bytes of an answer: a bundle, or the status of a large flow.
const ANSWER_BYTES_MAX: u64 = 2 * BUNDLE_BYTES_MAX as u64;
