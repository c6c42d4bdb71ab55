//! ReplaceText: content changed by patterns, texts or attributes, whole or line by line.

use std::io::{self, BufReader, Write};
use std::sync::{Arc, LazyLock};

use super::lines::{chomp, read_line};
use super::refused::{Refused, taken};
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::patterns::{ContentPattern, Replacement};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ReplaceText",
    description: "Changes content: parts of it, its start or end, or all of it. Line by line, \
                  content may have any size; as one text, up to 64 MB.",
    properties: &[
        PropertyKind::new(
            "Evaluation Mode",
            "Whether each line is changed on its own, its ending left as it is, or the whole.",
        )
        .default("Line-by-Line")
        .allowed(&["Line-by-Line", "Entire text"]),
        PropertyKind::new(
            "Line-by-Line Evaluation Mode",
            "Which lines are changed, where each is on its own.",
        )
        .default("All")
        .allowed(&[
            "All",
            "First-Line",
            "Last-Line",
            "Except-First-Line",
            "Except-Last-Line",
        ]),
        PropertyKind::new(
            "Replacement Strategy",
            "What is changed. Substitute Variables puts attributes in the place of ${name}; \
             names that are no attributes stay.",
        )
        .default("Regex Replace")
        .allowed(&[
            "Prepend",
            "Append",
            "Regex Replace",
            "Literal Replace",
            "Always Replace",
            "Substitute Variables",
        ]),
        PropertyKind::new(
            "Search Value",
            "What Regex Replace and Literal Replace look for; no expressions in the former.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Replacement Value",
            "What is put there. In Regex Replace, where there are no expressions, $& is the whole \
             match, $1, $2... are its groups (empty where there are none), and $$ a dollar sign.",
        )
        .default("")
        .expressions(Expressions::FlowFile),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose content was changed, or had nothing to change.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose content cannot be changed.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| ReplaceText::new(settings).map(|made| Box::new(made) as _),
};

struct ReplaceText {
    lines: Option<Lines>,
    strategy: Strategy,
}

/// Which lines are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    All,
    First,
    Last,
    ExceptFirst,
    ExceptLast,
}

enum Strategy {
    Prepend(Expression),
    Append(Expression),
    Pattern(ContentPattern, String),
    Literal(Expression, Expression),
    Always(Expression),
    Variables,
}

/// A strategy with the values for one FlowFile.
enum Change<'s> {
    Prepend(String),
    Append(String),
    Pattern(&'s ContentPattern, Replacement<'s>),
    Literal(Box<memchr::memmem::Finder<'static>>, String),
    Always(String),
    Variables(Arc<Attributes>),
}

impl ReplaceText {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let lines = match settings.needed("Evaluation Mode")?.as_str() {
            "Entire text" => None,
            _ => Some(
                match settings.needed("Line-by-Line Evaluation Mode")?.as_str() {
                    "First-Line" => Lines::First,
                    "Last-Line" => Lines::Last,
                    "Except-First-Line" => Lines::ExceptFirst,
                    "Except-Last-Line" => Lines::ExceptLast,
                    _ => Lines::All,
                },
            ),
        };
        let value = settings.expression("Replacement Value")?;
        let value = value.unwrap_or_else(|| Expression::literal(""));
        let missing = "Search Value is missing: say what to look for";
        let strategy = match settings.needed("Replacement Strategy")?.as_str() {
            "Prepend" => Strategy::Prepend(value),
            "Append" => Strategy::Append(value),
            "Always Replace" => Strategy::Always(value),
            "Substitute Variables" => Strategy::Variables,
            "Literal Replace" => {
                Strategy::Literal(settings.expression("Search Value")?.ok_or(missing)?, value)
            }
            _ => {
                let search = settings.text("Search Value")?.ok_or(missing)?;
                let pattern = ContentPattern::new(&search, false)
                    .map_err(|why| format!("Search Value: {why}"))?;
                let mut text = settings.text("Replacement Value")?.unwrap_or_default();
                if lines.is_some() {
                    text = chomped(text);
                }
                Strategy::Pattern(pattern, text)
            }
        };
        Ok(ReplaceText { lines, strategy })
    }

    fn replace(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Content, Refused> {
        let change = self.change(session, flow_file)?;
        let reader = session.reader(flow_file);
        let Some(lines) = self.lines else {
            let whole = session.read(flow_file)?;
            let mut writer = session.writer();
            change.write(&whole, &mut writer)?;
            return Ok(writer.finish()?);
        };
        let mut reader = BufReader::with_capacity(READ_BYTES, reader);
        let mut writer = session.writer();
        let (mut line, mut next) = (Vec::new(), Vec::new());
        let mut is_first = true;
        let mut is_there = read(&mut reader, &mut line)?;
        while is_there {
            let is_next_there = read(&mut reader, &mut next)?;
            if lines.has(is_first, !is_next_there) {
                change.write(&line, &mut writer)?;
            } else {
                writer.write_all(&line)?;
            }
            std::mem::swap(&mut line, &mut next);
            (is_first, is_there) = (false, is_next_there);
        }
        Ok(writer.finish()?)
    }

    fn change<'s>(
        &'s self,
        session: &ProcessSession<'_>,
        flow_file: &'s FlowFile,
    ) -> Result<Change<'s>, Refused> {
        let value = |expression: &Expression| -> Result<String, Refused> {
            let text = expression.evaluate(session.scope(flow_file))?.into_owned();
            Ok(match self.lines {
                Some(_) => chomped(text),
                None => text,
            })
        };
        Ok(match &self.strategy {
            Strategy::Prepend(expression) => Change::Prepend(value(expression)?),
            Strategy::Append(expression) => Change::Append(value(expression)?),
            Strategy::Always(expression) => Change::Always(value(expression)?),
            Strategy::Variables => Change::Variables(session.all_attributes(flow_file)),
            Strategy::Pattern(pattern, text) => {
                Change::Pattern(pattern, Replacement::script(text, pattern.groups()))
            }
            Strategy::Literal(search, expression) => {
                let search = search.evaluate(session.scope(flow_file))?;
                if search.is_empty() {
                    return Err(Refused::flow_file(
                        "Search Value is empty for this FlowFile",
                    ));
                }
                let finder = memchr::memmem::Finder::new(search.as_bytes()).into_owned();
                Change::Literal(Box::new(finder), value(expression)?)
            }
        })
    }
}

impl Lines {
    fn has(self, is_first: bool, is_last: bool) -> bool {
        match self {
            Lines::All => true,
            Lines::First => is_first,
            Lines::Last => is_last,
            Lines::ExceptFirst => !is_first,
            Lines::ExceptLast => !is_last,
        }
    }
}

impl Change<'_> {
    /// Writes `text` as it is after the change; its ending stays.
    fn write(&self, text: &[u8], out: &mut impl Write) -> Result<(), Refused> {
        let (text, ending) = chomp(text);
        match self {
            Change::Prepend(value) => {
                out.write_all(value.as_bytes())?;
                out.write_all(text)?;
            }
            Change::Append(value) => {
                out.write_all(text)?;
                out.write_all(value.as_bytes())?;
            }
            Change::Always(value) => out.write_all(value.as_bytes())?,
            Change::Pattern(pattern, replacement) => {
                let (mut end, mut filled) = (0, Vec::new());
                for found in pattern.find_all(text) {
                    let found = found.map_err(Refused::FlowFile)?;
                    let all = found.range();
                    out.write_all(&text[end..all.start])?;
                    filled.clear();
                    replacement.write(|index| found.group(index), &mut filled);
                    out.write_all(&filled)?;
                    end = all.end;
                }
                out.write_all(&text[end..])?;
            }
            Change::Literal(search, value) => {
                let mut end = 0;
                for at in search.find_iter(text) {
                    out.write_all(&text[end..at])?;
                    out.write_all(value.as_bytes())?;
                    end = at + search.needle().len();
                }
                out.write_all(&text[end..])?;
            }
            Change::Variables(attributes) => {
                let mut end = 0;
                for captures in VARIABLE.captures_iter(text) {
                    let (Some(all), Some(name)) = (captures.get(0), captures.get(1)) else {
                        continue;
                    };
                    let name = std::str::from_utf8(name.as_bytes()).unwrap_or_default();
                    let value = attributes.get(name).map(str::as_bytes);
                    out.write_all(&text[end..all.start()])?;
                    out.write_all(value.unwrap_or(all.as_bytes()))?;
                    end = all.end();
                }
                out.write_all(&text[end..])?;
            }
        }
        Ok(out.write_all(ending)?)
    }
}

/// Reads a line; one that is too long is the FlowFile's fault.
fn read(reader: &mut impl io::BufRead, line: &mut Vec<u8>) -> Result<bool, Refused> {
    read_line(reader, line).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => Refused::FlowFile(error.to_string()),
        _ => error.into(),
    })
}

fn chomped(text: String) -> String {
    let (without, _) = chomp(text.as_bytes());
    let len = without.len();
    let mut text = text;
    text.truncate(len);
    text
}

impl Processor for ReplaceText {
    fn is_concurrent(&self) -> bool {
        true
    }

    fn is_batching(&self) -> bool {
        true
    }

    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(BATCH, BATCH_BYTES) {
            if self.lines.is_none() && flow_file.size() > crate::limits::CONTENT_READ_BYTES_MAX {
                let reason = "the content is too large for one text: choose Line-by-Line";
                context.post(Level::Error, reason);
                session.transfer(flow_file, FAILURE);
                continue;
            }
            match taken(context, self.replace(session, &flow_file))? {
                Some(content) => {
                    session.set_content(&mut flow_file, content)?;
                    session.transfer(flow_file, SUCCESS);
                }
                None => session.transfer(flow_file, FAILURE),
            }
        }
        Ok(Next::Scheduled)
    }
}

static VARIABLE: LazyLock<regex::bytes::Regex> = LazyLock::new(|| {
    regex::bytes::Regex::new(r"\$\{([^}]+)\}").expect("the pattern is a constant that compiles")
});

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
