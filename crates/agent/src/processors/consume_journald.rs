//! ConsumeJournald: messages of the host's journal, each once.
//!
//! The journal is read by `journalctl`, which knows its files and who may see what; where the
//! reading stands is a cursor in the processor's state, committed with the FlowFiles.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::dates::Pattern;
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::limits::{JOURNAL_MESSAGE_BYTES_MAX, SESSION_FLOW_FILES_MAX};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ConsumeJournald",
    description: "Reads the systemd journal with journalctl: one FlowFile for each message, its \
                  fields as attributes.",
    properties: &[
        PropertyKind::new("Batch Size", "Messages in one commit at most.")
            .default("1000")
            .shape(Shape::Integer(1)),
        PropertyKind::new(
            "Payload Format",
            "Whether the content is the message alone, or a line as in the system's log.",
        )
        .default("Syslog")
        .allowed(&["Raw", "Syslog"]),
        PropertyKind::new(
            "Include Timestamp",
            "Whether the attribute timestamp is set.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new("Journal Type", "Whose journal is read.")
            .default("System")
            .allowed(&["User", "System", "Both"]),
        PropertyKind::new(
            "Process Old Messages",
            "Whether to begin with the oldest message when nothing is known, and not with the \
             next one.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Timestamp Format",
            "How times are written, in UTC: as C does (%Y-%m-%d), as Java does (yyyy-MM-dd), or \
             ISO.",
        )
        .default("%x %X %Z"),
        PropertyKind::new(
            "Journal Reader",
            "The program that reads the journal, by its name or path.",
        )
        .default("journalctl"),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Every message.",
    }],
    writes: &[
        AttributeKind::new("<field>", "Each field of the message, as PRIORITY."),
        AttributeKind::new("timestamp", "When it was written, in UTC."),
    ],
    input: Input::Forbidden,
    make: |settings| ConsumeJournald::new(settings).map(|made| Box::new(made) as _),
};

struct ConsumeJournald {
    program: String,
    batch: usize,
    is_raw: bool,
    has_timestamp: bool,
    time: Pattern,
    journal: Option<&'static str>,
    takes_old: bool,
}

/// One message.
#[derive(Debug, PartialEq)]
struct Message {
    cursor: String,
    content: String,
    attributes: Attributes,
}

impl ConsumeJournald {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let batch: usize = settings.integer("Batch Size")?;
        Ok(ConsumeJournald {
            program: settings.needed("Journal Reader")?,
            batch: batch.min(SESSION_FLOW_FILES_MAX),
            is_raw: settings.needed("Payload Format")? == "Raw",
            has_timestamp: settings.flag("Include Timestamp")?,
            time: time_pattern(&settings.needed("Timestamp Format")?)?,
            journal: match settings.needed("Journal Type")?.as_str() {
                "User" => Some("--user"),
                "System" => Some("--system"),
                _ => None,
            },
            takes_old: settings.flag("Process Old Messages")?,
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--quiet", "--no-pager", "--all", "--output=json"])
            .args(self.journal)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Lines of the journal's reader, `count` at most.
    fn lines(&self, arguments: &[&str], count: usize) -> Result<Vec<String>, ProcessorError> {
        let failed = |error: std::io::Error| {
            ProcessorError::Failed(format!(
                "cannot read the journal by {}: {error}",
                self.program
            ))
        };
        let mut child = self.command(arguments).spawn().map_err(failed)?;
        let mut lines = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let mut reader = BufReader::new(stdout);
            while lines.len() < count {
                let mut line = Vec::new();
                let mut limited = (&mut reader).take(JOURNAL_MESSAGE_BYTES_MAX as u64);
                let len = limited.read_until(b'\n', &mut line).map_err(failed)?;
                if len == 0 {
                    break;
                }
                if len == JOURNAL_MESSAGE_BYTES_MAX {
                    // The rest of the line is no JSON and is passed over as such.
                    tracing::warn!(len, "a journal message is too long and left out");
                }
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        let is_whole = lines.len() < count;
        if !is_whole {
            // It would go on to the journal's end.
            child.kill().map_err(failed)?;
        }
        let mut problem = String::new();
        if let Some(stderr) = child.stderr.take() {
            let mut limited = stderr.take(PROBLEM_BYTES_MAX);
            limited.read_to_string(&mut problem).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        if is_whole && !status.success() {
            let message = format!("{} failed with {status}: {}", self.program, problem.trim());
            return Err(ProcessorError::Failed(message));
        }
        Ok(lines)
    }

    fn begin(&self, session: &mut ProcessSession<'_>) -> Result<(), ProcessorError> {
        let newest = self.lines(&["--lines=1"], 1)?;
        if let Some(message) = newest.first().and_then(|line| self.read(line)) {
            session.set_state(Bytes::from(message.cursor))?;
            session.commit()?;
        }
        Ok(())
    }

    /// A message from its JSON; `None` when the line is none.
    fn read(&self, line: &str) -> Option<Message> {
        let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
        let text = |name: &str| fields.get(name).and_then(text_of);
        let cursor = text("__CURSOR")?;
        let body = text("MESSAGE").unwrap_or_default();
        let micros: i64 = text("__REALTIME_TIMESTAMP")?.parse().ok()?;
        let time = Timestamp::from_microsecond(micros).ok()?;
        let timestamp = self.time.format(time, &TimeZone::UTC).ok()?;
        let content = if self.is_raw {
            body
        } else {
            let host = text("_HOSTNAME").unwrap_or_else(|| "unknown_host".to_owned());
            let who = text("SYSLOG_IDENTIFIER").unwrap_or_else(|| "unknown_process".to_owned());
            let pid = text("SYSLOG_PID").or_else(|| text("_PID"));
            let pid = pid.map_or(String::new(), |pid| format!("[{pid}]"));
            format!("{timestamp} {host} {who}{pid}: {body}")
        };
        let own = fields.iter().filter(|(name, _)| !name.starts_with("__"));
        let own = own.filter(|(name, _)| !self.is_raw || *name != "MESSAGE");
        let mut attributes =
            Attributes::new(own.filter_map(|(name, value)| Some((name.as_str(), text_of(value)?))));
        if self.has_timestamp {
            attributes.set("timestamp", timestamp);
        }
        Some(Message {
            cursor,
            content,
            attributes,
        })
    }
}

impl Processor for ConsumeJournald {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut cursor = String::from_utf8_lossy(&session.state()).into_owned();
        if cursor.is_empty() && !self.takes_old {
            self.begin(session)?;
            return Ok(Next::Scheduled);
        }
        let after = format!("--after-cursor={cursor}");
        let arguments: &[&str] = if cursor.is_empty() { &[] } else { &[&after] };
        let lines = self.lines(arguments, self.batch)?;
        let mut bad = 0;
        for line in &lines {
            let Some(message) = self.read(line) else {
                bad += 1;
                continue;
            };
            let mut flow_file = session.create(Arc::new(message.attributes));
            session.write(&mut flow_file, Bytes::from(message.content))?;
            session.transfer(flow_file, 0);
            cursor = message.cursor;
        }
        if bad > 0 {
            let message = format!("{bad} lines of {} are no messages", self.program);
            context.post(Level::Warning, &message);
        }
        if lines.is_empty() {
            return Ok(Next::Woken(IDLE));
        }
        session.set_state(Bytes::from(cursor))?;
        session.commit()?;
        Ok(if lines.len() == self.batch {
            Next::Again
        } else {
            Next::Scheduled
        })
    }
}

/// The pattern of times: the names of ISO 8601 stand for its own. They are in microseconds.
fn time_pattern(text: &str) -> Result<Pattern, String> {
    let pattern = match text {
        "ISO" | "ISO 8601" | "ISO8601" => "%FT%T%Ez",
        other => other,
    };
    let pattern = Pattern::with_digits(pattern, 6)?;
    // Some mistakes show only when a time is written.
    pattern.format(Timestamp::UNIX_EPOCH, &TimeZone::UTC)?;
    Ok(pattern)
}

/// A field's text; bytes that are no UTF-8 come as numbers, a field with several values as a list.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let bytes: Option<Vec<u8>> = items
                .iter()
                .map(|item| u8::try_from(item.as_u64()?).ok())
                .collect();
            match bytes {
                Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                None => items.first().and_then(text_of),
            }
        }
        _ => None,
    }
}

/// Time between two looks at a journal without news, whatever the schedule says.
const IDLE: Duration = Duration::from_secs(1);

/// Bytes of the reader's complaint that are shown.
const PROBLEM_BYTES_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use crate::testing::Rig;

    /// A journal of lines in a file, behind a reader that knows `--after-cursor` and `--lines=1`.
    fn reader(dir: &Path) -> String {
        let script = r#"#!/bin/sh
cd "$(dirname "$0")"
for argument in "$@"; do
  case "$argument" in
    --after-cursor=*) exec awk -v after="${argument#--after-cursor=}" \
      'shown { print } index($0, "\"" after "\"") { shown = 1 }' journal ;;
    --lines=1) exec tail -n 1 journal ;;
    --user) echo "no such journal" >&2; exit 1 ;;
  esac
done
exec cat journal
"#;
        let path = dir.join("reader");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn journal(dir: &Path, numbers: std::ops::Range<usize>) {
        let lines = numbers.map(|n| {
            format!(
                "{{\"__CURSOR\":\"c{n}\",\"__REALTIME_TIMESTAMP\":\"1700000000123456\",\
                 \"MESSAGE\":\"message {n}\",\"_HOSTNAME\":\"host\",\"PRIORITY\":\"6\",\
                 \"SYSLOG_IDENTIFIER\":\"app\",\"_PID\":\"7\",\"BINARY\":[104,105],\"NULL\":null}}\n"
            )
        });
        let text: String = lines.collect();
        let old = std::fs::read_to_string(dir.join("journal")).unwrap_or_default();
        std::fs::write(dir.join("journal"), old + &text).unwrap();
    }

    fn texts(rig: &mut Rig) -> Vec<String> {
        let out = rig.out("success");
        out.iter().map(|out| out.text().to_owned()).collect()
    }

    #[test]
    fn messages_come_once_in_batches_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let reader = reader(dir.path());
        journal(dir.path(), 0..5);
        let properties = [
            ("Journal Reader", reader.as_str()),
            ("Process Old Messages", "true"),
            ("Payload Format", "Raw"),
            ("Batch Size", "3"),
            ("Timestamp Format", "ISO 8601"),
        ];
        let mut rig = Rig::new("ConsumeJournald", &properties);
        rig.trigger().unwrap();
        assert_eq!(texts(&mut rig), ["message 0", "message 1", "message 2"]);
        rig.kill();
        rig.run();
        assert_eq!(texts(&mut rig), ["message 3", "message 4"]);
        journal(dir.path(), 5..6);
        rig.run();
        let out = rig.one("success");
        for (name, value) in [
            ("PRIORITY", "6"),
            ("BINARY", "hi"),
            ("timestamp", "2023-11-14T22:13:20.123456+00:00"),
            ("MESSAGE", ""),
            ("__CURSOR", ""),
        ] {
            assert_eq!(out.attribute(name), value, "{name}");
        }
    }

    #[test]
    fn old_messages_are_left_unless_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let reader = reader(dir.path());
        journal(dir.path(), 0..5);
        let mut rig = Rig::new("ConsumeJournald", &[("Journal Reader", &reader)]);
        rig.run();
        rig.kill();
        journal(dir.path(), 5..6);
        rig.run();
        let expected = "11/14/23 22:13:20 UTC host app[7]: message 5";
        let out = rig.one("success");
        assert_eq!(out.text(), expected);
        assert_eq!(out.attribute("MESSAGE"), "message 5");
    }

    #[test]
    fn a_reader_that_fails_is_told_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let reader = reader(dir.path());
        let properties = [
            ("Journal Reader", reader.as_str()),
            ("Journal Type", "User"),
        ];
        let mut rig = Rig::new("ConsumeJournald", &properties);
        let error = rig.trigger().unwrap_err();
        assert!(error.contains("no such journal"), "{error}");
    }
}
