//! A processor of an extension, as the engine runs it.
//!
//! The program is started with the first trigger and kept; when it breaks the protocol, is silent
//! for too long or ends, it is ended, the session is rolled back, and the next trigger starts it
//! anew: after the yield period, which the engine doubles with each failure in a row.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use super::Program;
use super::child::{Running, send};
use super::frames::{
    self, CONTENT, CONTENT_END, DONE, Done, FAILED, Fault, Frame, Given, Kept, LOG, Log, OUTPUT,
    Output, PROTOCOL, READY, START, Start, TRIGGER, Trigger,
};
use crate::bulletins::Level;
use crate::content::{Content, ContentReader};
use crate::engine::Context;
use crate::expression::{Expression, Scope};
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::EXTENSION_OUTPUTS_MAX;
use crate::processors::{Expressions, Input, Next, Processor, ProcessorError, Settings};
use crate::session::ProcessSession;

/// Makes a processor of an extension.
pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Processor>, String> {
    let name = settings.processor_kind().unwrap_or_default();
    let mut known = super::loaded().iter();
    let external = known.find(|external| external.kind.name == name);
    let external = external.ok_or_else(|| format!("there is no extension with '{name}'"))?;
    let mut fixed = BTreeMap::new();
    let mut varying = Vec::new();
    for property in external.kind.properties {
        if property.expressions == Expressions::FlowFile {
            if let Some(expression) = settings.expression(property.name)? {
                varying.push((property.name, expression));
            }
        } else if let Some(value) = settings.text(property.name)? {
            fixed.insert(property.name.to_owned(), value);
        }
    }
    Ok(Box::new(Extension {
        program: external.program,
        name: external.kind.name,
        input: external.kind.input,
        is_concurrent: external.program.concurrent.contains(&name),
        relationships: settings.relationships(),
        fixed,
        varying,
        running: None,
    }))
}

struct Extension {
    program: &'static Program,
    name: &'static str,
    input: Input,
    is_concurrent: bool,
    relationships: Vec<String>,
    /// Properties that are told once.
    fixed: BTreeMap<String, String>,
    /// Properties that are told with each FlowFile.
    varying: Vec<(&'static str, Expression)>,
    running: Option<Running>,
}

/// What one piece of work came to.
enum Worked {
    Done {
        yields: bool,
    },
    /// The program says that it failed; it goes on.
    Failed(String),
}

/// A FlowFile that the program gives.
struct Made {
    relationship: usize,
    attributes: BTreeMap<String, Option<String>>,
    /// None for that of the FlowFile that came.
    content: Option<Content>,
    is_original: bool,
}

impl Extension {
    /// The running program, started if it is not.
    fn running(&mut self, context: &Context) -> Result<Running, String> {
        if let Some(running) = self.running.take() {
            return Ok(running);
        }
        let mut running = Running::start(self.program, self.name)?;
        let start = Start {
            protocol: PROTOCOL,
            processor: self.name,
            properties: &self.fixed,
        };
        let sent = send(&mut running.input, START, &start).and_then(|()| running.input.flush());
        sent.map_err(|error| format!("it does not listen: {error}"))?;
        loop {
            let frame = running.next(|| context.is_stopping())?;
            match frame.letter {
                READY => return Ok(running),
                LOG => tell(context, &frame)?,
                FAILED => return Err(read::<Fault>(&frame)?.message),
                _ => return Err("it said something else than that it is ready".to_owned()),
            }
        }
    }

    /// One piece of work; on an error the program is ended.
    fn work(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_file: Option<&FlowFile>,
    ) -> Result<(Worked, Vec<Made>), Refusal> {
        let mut varying = BTreeMap::new();
        for (name, expression) in &self.varying {
            let scope = match flow_file {
                Some(flow_file) => session.scope(flow_file),
                None => Scope {
                    attributes: None,
                    flow_file: None,
                    now: session.now(),
                },
            };
            let value = expression.evaluate(scope);
            let value = value.map_err(|error| Refusal::FlowFile(format!("{name}: {error}")))?;
            varying.insert((*name).to_owned(), value.into_owned());
        }
        let running = self.running(context).map_err(Refusal::Program)?;
        let attributes = flow_file.map(|flow_file| session.all_attributes(flow_file));
        let trigger = Trigger {
            flow_file: flow_file.map(|flow_file| Given {
                uuid: session.uuid(flow_file),
                size: flow_file.size(),
                attributes: attributes.iter().flat_map(|all| all.iter()).collect(),
            }),
            properties: &varying,
        };
        let reader = flow_file.map(|flow_file| session.reader(flow_file));
        let mut conversation = Conversation {
            context,
            session,
            relationships: &self.relationships,
            has_original: flow_file.is_some(),
            made: Vec::new(),
        };
        // The program may write before it has read all, so that both go on at once.
        let worked = std::thread::scope(|scope| {
            let mut input = running.pipe().map_err(|error| error.to_string())?;
            let trigger = serde_json::to_vec(&trigger).map_err(|error| error.to_string())?;
            let speaking = scope.spawn(move || speak(&mut input, &trigger, reader));
            let listened = conversation.listen(&running);
            if listened.is_err() {
                // Ends the program, and with it the waiting of who speaks.
                drop(running);
                return listened.map(|worked| (worked, None));
            }
            let spoken = speaking
                .join()
                .map_err(|_| "speaking to it failed".to_owned())?;
            spoken.map_err(|error| format!("it does not listen: {error}"))?;
            listened.map(|worked| (worked, Some(running)))
        });
        let (worked, running) = worked.map_err(Refusal::Program)?;
        self.running = running;
        Ok((worked, conversation.made))
    }

    /// Gives on what the program made.
    fn give(
        &self,
        session: &mut ProcessSession<'_>,
        mut original: Option<FlowFile>,
        made: Vec<Made>,
    ) -> Result<(), ProcessorError> {
        let parent = original.as_ref().map(FlowFile::twin);
        for made in made {
            let mut attributes = match &parent {
                Some(parent) => parent.attributes().as_ref().clone(),
                None => Attributes::default(),
            };
            for (name, value) in made.attributes {
                match value {
                    Some(value) => attributes.set(&name, value),
                    None => attributes.remove(|known| known == name),
                }
            }
            let attributes = Arc::new(attributes);
            let given = match (&parent, made.is_original) {
                (_, true) => original.take(),
                _ => None,
            };
            let mut flow_file = match (given, &parent) {
                (Some(mut given), _) => {
                    if given.attributes() != &attributes {
                        session.set_attributes(&mut given, attributes);
                    }
                    given
                }
                (None, Some(parent)) => {
                    let mut child = session.create_child(&[parent], attributes);
                    if made.content.is_none() {
                        session.set_content(&mut child, parent.content().clone())?;
                    }
                    child
                }
                (None, None) => session.create(attributes),
            };
            if let Some(content) = made.content {
                session.set_content(&mut flow_file, content)?;
            }
            session.transfer(flow_file, made.relationship);
        }
        session.remove_all(original.into_iter().collect());
        Ok(())
    }
}

/// Why a piece of work came to nothing.
enum Refusal {
    /// A property cannot be evaluated for this FlowFile.
    FlowFile(String),
    /// The program; it is ended.
    Program(String),
}

/// What the program says to one piece of work.
struct Conversation<'c, 's, 'n> {
    context: &'c Context,
    session: &'s mut ProcessSession<'n>,
    relationships: &'c [String],
    /// Whether a FlowFile came that can be given on.
    has_original: bool,
    made: Vec<Made>,
}

impl Conversation<'_, '_, '_> {
    fn listen(&mut self, running: &Running) -> Result<Worked, String> {
        loop {
            let frame = self.next(running)?;
            match frame.letter {
                OUTPUT => {
                    if self.made.len() >= EXTENSION_OUTPUTS_MAX {
                        return Err(format!(
                            "it gives more than {EXTENSION_OUTPUTS_MAX} FlowFiles"
                        ));
                    }
                    let output: Output = read(&frame)?;
                    let made = self.made(running, output)?;
                    self.made.push(made);
                }
                LOG => tell(self.context, &frame)?,
                DONE => {
                    let done: Done = read(&frame)?;
                    return Ok(Worked::Done {
                        yields: done.yields,
                    });
                }
                FAILED => return Ok(Worked::Failed(read::<Fault>(&frame)?.message)),
                letter => return Err(format!("it said '{}'", char::from(letter))),
            }
        }
    }

    fn next(&self, running: &Running) -> Result<Frame, String> {
        running.next(|| self.context.is_stopping())
    }

    fn made(&mut self, running: &Running, output: Output) -> Result<Made, String> {
        let name = &output.relationship;
        let relationship = self.relationships.iter().position(|known| known == name);
        let relationship =
            relationship.ok_or_else(|| format!("it gives to '{name}', which it does not have"))?;
        if output.is_original {
            if !self.has_original {
                return Err("it gives on a FlowFile that did not come".to_owned());
            }
            self.has_original = false;
        }
        let content = match output.content {
            Kept::Same => None,
            Kept::None => Some(Content::default()),
            Kept::New => Some(self.content(running)?),
        };
        Ok(Made {
            relationship,
            attributes: output.attributes,
            content,
            is_original: output.is_original,
        })
    }

    /// Content in pieces, to its end.
    fn content(&mut self, running: &Running) -> Result<Content, String> {
        let context = self.context;
        let mut writer = self.session.writer();
        loop {
            let frame = running.next(|| context.is_stopping())?;
            match frame.letter {
                CONTENT => writer.write_all(&frame.bytes).map_err(|e| e.to_string())?,
                CONTENT_END => return writer.finish().map_err(|error| error.to_string()),
                _ => return Err("it did not end the content".to_owned()),
            }
        }
    }
}

impl Processor for Extension {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let flow_file = match self.input {
            Input::Forbidden => None,
            _ => session.take_one(),
        };
        let needs_one = self.input == Input::Required || context.has_incoming();
        if flow_file.is_none() && self.input != Input::Forbidden && needs_one {
            return Ok(Next::Scheduled);
        }
        let (worked, made) = match self.work(context, session, flow_file.as_ref()) {
            Ok(done) => done,
            Err(Refusal::FlowFile(why)) => (Worked::Failed(why), Vec::new()),
            Err(Refusal::Program(why)) => {
                let name = &self.program.runs;
                return Err(ProcessorError::Failed(format!(
                    "the extension '{name}': {why}"
                )));
            }
        };
        match worked {
            Worked::Done { yields } => {
                self.give(session, flow_file, made)?;
                Ok(match yields {
                    true => Next::Yield,
                    false => Next::Scheduled,
                })
            }
            Worked::Failed(why) => {
                let failure = self.relationships.iter().position(|name| name == FAILURE);
                let (Some(failure), Some(mut flow_file)) = (failure, flow_file) else {
                    return Err(ProcessorError::Failed(why));
                };
                context.post(Level::Error, &why);
                let mut attributes = Arc::clone(flow_file.attributes());
                Arc::make_mut(&mut attributes).set("extension.error.message", why);
                session.set_attributes(&mut flow_file, attributes);
                session.transfer(flow_file, failure);
                Ok(Next::Scheduled)
            }
        }
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn is_concurrent(&self) -> bool {
        self.is_concurrent
    }
}

/// Says what is to be done, and the content that it is to be done to.
fn speak(
    input: &mut impl Write,
    trigger: &[u8],
    content: Option<ContentReader>,
) -> std::io::Result<()> {
    frames::write(input, TRIGGER, trigger)?;
    if let Some(mut content) = content {
        loop {
            let piece = content.piece()?;
            if piece.is_empty() {
                break;
            }
            let piece = &piece[..piece.len().min(PIECE_BYTES)];
            frames::write(input, CONTENT, piece)?;
            let len = piece.len();
            content.consume(len);
        }
        frames::write(input, CONTENT_END, b"")?;
    }
    input.flush()
}

/// Puts up what the program says to people.
fn tell(context: &Context, frame: &Frame) -> Result<(), String> {
    let log: Log = read(frame)?;
    let level = match log.level.as_str() {
        "error" => Level::Error,
        "warning" => Level::Warning,
        _ => {
            tracing::info!(processor = context.name(), "{}", log.message);
            return Ok(());
        }
    };
    context.post(level, &log.message);
    Ok(())
}

fn read<'f, T: serde::Deserialize<'f>>(frame: &'f Frame) -> Result<T, String> {
    serde_json::from_slice(&frame.bytes)
        .map_err(|error| format!("'{}' cannot be read: {error}", char::from(frame.letter)))
}

/// The relationship of FlowFiles that the program could not handle, where it has one.
const FAILURE: &str = "failure";

/// Bytes of one piece of content on its way to a program.
const PIECE_BYTES: usize = 64 << 10;
