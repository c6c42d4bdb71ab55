//! DefragmentText: pieces of text put together until they are whole messages.
//!
//! # Invariants
//!
//! - What waits is kept but stays in its queue's custody (see [`ProcessSession::keep`]).
//! - Of a FlowFile that ends a message in its middle only the rest waits; from where on is durable
//!   state, committed with the message, so that no byte goes twice or is lost.
//! - What goes on is views of the content: no byte is copied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;

use super::refused::Refused;
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::{
    FILENAME, FRAGMENT_BASE_NAME, FRAGMENT_OFFSET, FRAGMENT_POST_NAME, FlowFile, FlowFileId,
    fragment_name,
};
use crate::limits::{CONTENT_READ_BYTES_MAX, DEFRAGMENT_KEPT_MAX};
use crate::patterns::ContentPattern;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "DefragmentText",
    description: "Puts pieces of text from one source together, and cuts them, so that messages \
                  that begin or end with a pattern are whole. Sources are told apart by the \
                  attribute absolute.path. What waits survives a crash.",
    properties: &[
        PropertyKind::new(
            "Pattern",
            "A regular expression for the start or the end of messages.",
        )
        .required(),
        PropertyKind::new("Pattern Location", "Where in messages the pattern is.")
            .default("Start of Message")
            .allowed(&["Start of Message", "End of Message"]),
        PropertyKind::new(
            "Max Buffer Age",
            "What waits for so long, or until another file of its name begins, goes on as it is: \
             to 'success' where the pattern is at the start, else to 'failure'.",
        )
        .default("10 min")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Max Buffer Size",
            "More than this of one source does not wait but goes to 'failure'.",
        )
        .shape(Shape::Size),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "Whole messages, one or more in each FlowFile.",
        },
        RelationshipKind {
            name: "failure",
            description: "What waited too long or grew too large, and pieces that do not follow \
                          each other.",
        },
    ],
    writes: &[AttributeKind::new(
        FRAGMENT_OFFSET,
        "Where in its source the text begins, where the pieces say so.",
    )],
    input: Input::Required,
    make: |settings| DefragmentText::new(settings).map(|made| Box::new(made) as _),
};

struct DefragmentText {
    pattern: ContentPattern,
    is_at_start: bool,
    age_max: Duration,
    bytes_max: Option<u64>,
    waiting: BTreeMap<String, Waiting>,
    /// Of FlowFiles of which only a rest waits: where that begins, by source.
    rests: Option<BTreeMap<String, Rest>>,
}

/// What waits of one source.
struct Waiting {
    flow_files: Vec<FlowFile>,
    /// Where the first FlowFile's rest begins.
    skip: u64,
    since: UnixMillis,
}

/// A FlowFile of which only a rest waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    id: FlowFileId,
    skip: u64,
}

impl Waiting {
    fn contents(&self) -> impl Iterator<Item = Content> {
        let skips = [self.skip].into_iter().chain(std::iter::repeat(0));
        let all = self.flow_files.iter().zip(skips);
        all.map(|(flow_file, skip)| flow_file.content().slice(skip, u64::MAX))
    }

    fn bytes(&self) -> u64 {
        let all: u64 = self.flow_files.iter().map(FlowFile::size).sum();
        all - self.skip
    }

    /// Where the next piece has to begin, where pieces say so.
    fn next_offset(&self) -> Option<u64> {
        offset_of(self.flow_files.first()?).map(|offset| offset + self.skip + self.bytes())
    }
}

impl DefragmentText {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let pattern = settings.needed("Pattern")?;
        Ok(DefragmentText {
            pattern: ContentPattern::new(&pattern, false)
                .map_err(|why| format!("Pattern: {why}"))?,
            is_at_start: settings.needed("Pattern Location")? == "Start of Message",
            age_max: settings.duration("Max Buffer Age")?,
            bytes_max: match settings.text("Max Buffer Size")? {
                Some(_) => Some(settings.size("Max Buffer Size")?).filter(|bytes| *bytes > 0),
                None => None,
            },
            waiting: BTreeMap::new(),
            rests: None,
        })
    }

    /// Takes in what came, and sends on what is whole, too old or too large.
    fn work(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<(), ProcessorError> {
        let before = match &self.rests {
            Some(rests) => rests.clone(),
            None => rests_of(&session.state()),
        };
        self.rests = Some(before.clone());
        for flow_file in session.take(BATCH, BATCH_BYTES) {
            self.add(context, session, flow_file)?;
        }
        let now = session.now();
        let sources: Vec<String> = self.waiting.keys().cloned().collect();
        for source in sources {
            let Some(waiting) = self.waiting.get(&source) else {
                continue;
            };
            let bytes_max = self.bytes_max.unwrap_or(u64::MAX);
            let is_large =
                waiting.bytes() > bytes_max || waiting.flow_files.len() > DEFRAGMENT_KEPT_MAX;
            if is_large {
                context.post(Level::Warning, "more text waits than is allowed");
                self.flush(session, &source, FAILURE)?;
            } else if now.since(waiting.since) >= self.age_max {
                let to = self.end_of_wait(true);
                self.flush(session, &source, to)?;
            }
        }
        match &self.rests {
            Some(rests) if *rests != before => session.set_state(state_of(rests)),
            _ => Ok(()),
        }
    }

    fn add(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_file: FlowFile,
    ) -> Result<(), ProcessorError> {
        let source = flow_file.attributes().get("absolute.path");
        let source = source.unwrap_or_default().to_owned();
        let rest = self.rests.as_ref().and_then(|rests| rests.get(&source));
        let skip = rest.filter(|rest| rest.id == flow_file.id());
        let skip = skip.map_or(0, |rest| rest.skip);
        if let Some(waiting) = self.waiting.get(&source)
            && waiting.next_offset() != offset_of(&flow_file)
        {
            let begins_anew = offset_of(&flow_file) == Some(0);
            self.flush(session, &source, self.end_of_wait(begins_anew))?;
            if !begins_anew {
                context.post(
                    Level::Warning,
                    "a piece of text does not follow the one before",
                );
                session.transfer(flow_file, FAILURE);
                return Ok(());
            }
        }
        let cut = match self.cut(session, &flow_file, skip) {
            Ok(cut) => cut,
            Err(Refused::FlowFile(reason)) => {
                context.post(Level::Error, &reason);
                self.flush(session, &source, FAILURE)?;
                session.transfer(flow_file, FAILURE);
                return Ok(());
            }
            Err(Refused::Session(error)) => return Err(error),
        };
        let Some(cut) = cut else {
            session.keep(std::slice::from_ref(&flow_file));
            let now = session.now();
            let waiting = self.waiting.entry(source).or_insert_with(|| Waiting {
                flow_files: Vec::new(),
                skip,
                since: now,
            });
            waiting.flow_files.push(flow_file);
            return Ok(());
        };
        self.send_up_to(session, source, flow_file, skip, cut)
    }

    /// Where what waits goes when nothing comes that belongs to it; `is_whole` where nothing is
    /// missing before its end.
    fn end_of_wait(&self, is_whole: bool) -> usize {
        match self.is_at_start && is_whole {
            true => SUCCESS,
            false => FAILURE,
        }
    }

    /// Where the last message in a FlowFile begins or ends, none where there is no pattern.
    fn cut(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        skip: u64,
    ) -> Result<Option<u64>, Refused> {
        if flow_file.size() > CONTENT_READ_BYTES_MAX {
            return Err(Refused::flow_file(format!(
                "a piece of text of {} bytes is larger than {CONTENT_READ_BYTES_MAX}",
                flow_file.size()
            )));
        }
        let content = session.read(flow_file)?;
        let from = content.get(skip as usize..).unwrap_or_default();
        let mut at = None;
        for found in self.pattern.find_all(from) {
            let range = found.map_err(Refused::FlowFile)?.range();
            at = Some(match self.is_at_start {
                true => range.start,
                false => range.end,
            });
        }
        Ok(at.map(|at| skip + at as u64))
    }

    /// Sends what waits and a FlowFile up to `cut`; its rest waits from now on.
    fn send_up_to(
        &mut self,
        session: &mut ProcessSession<'_>,
        source: String,
        flow_file: FlowFile,
        skip: u64,
        cut: u64,
    ) -> Result<(), ProcessorError> {
        let waiting = self.waiting.remove(&source);
        let mut flow_files = Vec::new();
        let mut contents = Vec::new();
        let mut first_skip = skip;
        if let Some(waiting) = waiting {
            session.take_up(&waiting.flow_files);
            contents.extend(waiting.contents());
            first_skip = waiting.skip;
            flow_files = waiting.flow_files;
        }
        contents.push(flow_file.content().slice(skip, cut - skip));
        let content = Content::join(contents);
        flow_files.push(flow_file);
        if !content.is_empty() {
            let parents: Vec<&FlowFile> = flow_files.iter().collect();
            send(session, &parents, first_skip, content, SUCCESS)?;
        }
        let last = flow_files.pop();
        session.remove_all(flow_files);
        let rests = self.rests.get_or_insert_default();
        match last {
            Some(last) if cut < last.size() => {
                session.keep(std::slice::from_ref(&last));
                let rest = Rest {
                    id: last.id(),
                    skip: cut,
                };
                rests.insert(source.clone(), rest);
                let waiting = Waiting {
                    flow_files: vec![last],
                    skip: cut,
                    since: session.now(),
                };
                self.waiting.insert(source, waiting);
            }
            Some(last) => {
                rests.remove(&source);
                session.remove_all(vec![last]);
            }
            None => {}
        }
        Ok(())
    }

    /// Sends what waits of a source as it is.
    fn flush(
        &mut self,
        session: &mut ProcessSession<'_>,
        source: &str,
        to: usize,
    ) -> Result<(), ProcessorError> {
        let Some(waiting) = self.waiting.remove(source) else {
            return Ok(());
        };
        session.take_up(&waiting.flow_files);
        let content = Content::join(waiting.contents());
        let parents: Vec<&FlowFile> = waiting.flow_files.iter().collect();
        send(session, &parents, waiting.skip, content, to)?;
        session.remove_all(waiting.flow_files);
        self.rests.get_or_insert_default().remove(source);
        Ok(())
    }
}

/// Sends `content` on with the attributes of the first of those that it comes from, of which
/// `skip` bytes went before.
fn send(
    session: &mut ProcessSession<'_>,
    parents: &[&FlowFile],
    skip: u64,
    content: Content,
    to: usize,
) -> Result<(), ProcessorError> {
    let Some(first) = parents.first() else {
        return Ok(());
    };
    let mut attributes = Arc::clone(first.attributes());
    if let Some(offset) = offset_of(first) {
        let offset = offset + skip;
        let changed = Arc::make_mut(&mut attributes);
        changed.set(FRAGMENT_OFFSET, offset.to_string());
        let part = |name: &str| first.attributes().get(name);
        if let Some((base, post)) = part(FRAGMENT_BASE_NAME).zip(part(FRAGMENT_POST_NAME)) {
            changed.set(FILENAME, fragment_name(base, post, offset, content.len()));
        }
    }
    let mut child = session.create_child(parents, attributes);
    session.set_content(&mut child, content)?;
    session.transfer(child, to);
    Ok(())
}

fn offset_of(flow_file: &FlowFile) -> Option<u64> {
    flow_file.attribute(FRAGMENT_OFFSET)?.parse().ok()
}

/// Rests as the processor's state: a line of id, place and source for each.
fn state_of(rests: &BTreeMap<String, Rest>) -> Bytes {
    let lines = rests
        .iter()
        .map(|(source, rest)| format!("{} {} {source}\0", rest.id.0, rest.skip));
    Bytes::from(lines.collect::<String>())
}

fn rests_of(state: &[u8]) -> BTreeMap<String, Rest> {
    let text = String::from_utf8_lossy(state);
    let lines = text.split_terminator('\0').filter_map(|line| {
        let mut parts = line.splitn(3, ' ');
        let rest = Rest {
            id: FlowFileId(parts.next()?.parse().ok()?),
            skip: parts.next()?.parse().ok()?,
        };
        Some((parts.next()?.to_owned(), rest))
    });
    lines.collect()
}

impl Processor for DefragmentText {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        if let Err(error) = self.work(context, session) {
            // All goes back to the queue, and is taken anew.
            for waiting in std::mem::take(&mut self.waiting).into_values() {
                session.take_up(&waiting.flow_files);
            }
            self.rests = None;
            return Err(error);
        }
        let now = session.now();
        let ages = self
            .waiting
            .values()
            .map(|waiting| now.since(waiting.since));
        Ok(match ages.max() {
            Some(age) => Next::ScheduledOr(self.age_max.saturating_sub(age)),
            None => Next::Scheduled,
        })
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles taken in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;
