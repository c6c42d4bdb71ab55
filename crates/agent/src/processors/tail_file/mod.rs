//! TailFile: lines of growing files, over rotation, truncation and crashes, each once.
//!
//! # Invariants
//!
//! - Positions move in the same commit that makes the FlowFiles, so after a crash they are neither
//!   ahead of them nor behind.
//! - A file is known by device, inode and checksums of its first and its last read bytes, not by
//!   its name. When the name leads to another file, the known one is read to its end first, then
//!   rolled files that are newer, then the new one. A known file that is gone is looked for among
//!   the rolled ones, compressed ones too.
//! - Only whole lines leave, with their delimiter where it is kept; the last line of a file that
//!   was rolled or moved away or removed leaves without one.
//!
//! Left out: a last line that is still unfinished when its file is truncated in place without a
//! copy.

mod follow;
mod known;
mod lines;
mod places;
mod source;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use memchr::memmem::Finder;
use regex::Regex;

use self::follow::{LEAVE_AFTER, Rule, Start, Step, Tail};
use self::known::Known;
use self::lines::Lines;
pub(super) use self::lines::unescape;
use self::places::{BASE_DIRECTORY, PROVIDER, Places};
use super::buffers::Buffers;
use super::files::Walk;
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::{FRAGMENT_BASE_NAME, FRAGMENT_OFFSET, FRAGMENT_POST_NAME};
use crate::limits::{SESSION_FLOW_FILES_MAX, TAIL_FILES_MAX, TAIL_RECHECK, TAIL_SESSION_BYTES};
use crate::services::ATTRIBUTE_PROVIDER;
use crate::session::ProcessSession;
use crate::watch::Watch;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "TailFile",
    description: "Follows text files: one FlowFile for each line. The kernel tells it of new \
                  lines; the scheduling period is the shortest time between two looks. Rotation \
                  by renaming, by copying and truncating and by compressing loses no line.",
    properties: &[
        PropertyKind::new(
            "File to Tail",
            "The file's whole path. With several files: a regular expression for their whole \
             names; a rolled file of another one that matches is not followed by itself.",
        )
        .required()
        .expressions(Expressions::Once),
        PropertyKind::new("tail-mode", "Whether one file is followed or several.")
            .default("Single file")
            .allowed(&["Single file", "Multiple file"]),
        PropertyKind::new(
            BASE_DIRECTORY,
            "The folder in which several files are looked for; with an Attribute Provider Service \
             it is evaluated for each container.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new(
            PROVIDER,
            "Which containers' logs are followed, in folders as \
             /var/log/pods/${namespace}_${pod}_${uid}/${container}; with several files only.",
        )
        .shape(Shape::Service(ATTRIBUTE_PROVIDER)),
        PropertyKind::new(
            "Recursive lookup",
            "Whether they are looked for in folders of that folder too.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Lookup frequency",
            "How often new files are looked for, when the kernel does not tell of them before.",
        )
        .default("10 min")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Input Delimiter",
            "What ends a line; \\n, \\r and \\t are understood. Empty: whatever is there becomes one \
             FlowFile.",
        )
        .default("\\n"),
        PropertyKind::new(
            "Keep Delimiter",
            "Whether a line's FlowFile ends with the delimiter. Where it does not, the attributes \
             TextFragmentAttribute.* are left out: the lines are no whole text any more.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Rolling Filename Pattern",
            "Names of rolled files in the same folder; * and ? stand for any characters, \
             ${filename} for the name without its extension, as in MiNiFi. What is compressed is \
             read too, where its name ends with .gz, .bz2, .xz, .lzma or .zst.",
        )
        .default("${filename}.*"),
        PropertyKind::new(
            "Initial Start Position",
            "Where to begin when nothing is known. Files that appear later are read whole.",
        )
        .default("Beginning of File")
        .allowed(&["Beginning of File", "Beginning of Time", "Current Time"]),
        PropertyKind::new(
            "Batch Size",
            "Lines in one commit at most; 0 means any number.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Result Mode",
            "Whether each line becomes a FlowFile, or all the lines that are read at once, with \
             their delimiters.",
        )
        .default("Flow file per delimiter")
        .allowed(&["Flow file per delimiter", "Flow file per batch"]),
        PropertyKind::new(
            "State File",
            "Has no meaning: positions are kept in the repository. Taken, since flows name it.",
        ),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Every line.",
    }],
    writes: &[
        AttributeKind::new(
            "filename",
            "The file's name with the positions of the first and last byte, as app.0-1023.log.",
        ),
        AttributeKind::new("path", "The file's folder."),
        AttributeKind::new("absolute.path", "The file's whole path."),
        AttributeKind::new(
            FRAGMENT_BASE_NAME,
            "The file's name without its ending, where delimiters are kept.",
        ),
        AttributeKind::new(
            FRAGMENT_POST_NAME,
            "The file's ending, where delimiters are kept.",
        ),
        AttributeKind::new(
            FRAGMENT_OFFSET,
            "The position of the first byte, where delimiters are kept.",
        ),
        AttributeKind::new(
            "kubernetes.<namespace, pod, uid, container>",
            "Whose log it is, with an Attribute Provider Service.",
        ),
    ],
    input: Input::Forbidden,
    make: |settings| TailFile::new(settings).map(|made| Box::new(made) as _),
};

struct TailFile {
    rule: Arc<Rule>,
    mode: Mode,
    per_batch: bool,
    batch: usize,
    tails: Vec<Tail>,
    /// Where the next round begins, so that no file waits for ever behind a busy one.
    next: usize,
    is_begun: bool,
    last_lookup: Option<UnixMillis>,
    block: Vec<u8>,
    buffers: Buffers,
    watch: Option<Watch>,
    /// What lines have of the folders that their files lie in.
    told: HashMap<PathBuf, Vec<(String, String)>>,
    /// Folders in which files appear.
    watched: Vec<PathBuf>,
    /// Whether files are to be looked for though nothing tells of any.
    looks_again: bool,
}

enum Mode {
    Single(PathBuf),
    Multiple {
        places: Places,
        names: Regex,
        recurses: bool,
        frequency: Duration,
    },
}

/// What a round over all files came to.
#[derive(Default)]
struct Round {
    has_lines: bool,
    /// Something changed that is to be looked at at once.
    again: bool,
    /// Something is to be looked at soon.
    soon: bool,
    gone: HashSet<usize>,
}

impl TailFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let file = settings.needed("File to Tail")?;
        let mode = if settings.needed("tail-mode")? == "Single file" {
            let path = PathBuf::from(&file);
            if path.file_name().is_none() {
                return Err(format!("File to Tail: '{file}' names no file"));
            }
            Mode::Single(path)
        } else {
            let names = Regex::new(&format!("^(?:{file})$"));
            Mode::Multiple {
                places: Places::new(settings)?,
                names: names.map_err(|error| format!("File to Tail: {error}"))?,
                recurses: settings.flag("Recursive lookup")?,
                frequency: settings.duration("Lookup frequency")?,
            }
        };
        let delimiter = unescape(&settings.text("Input Delimiter")?.unwrap_or_default());
        let per_batch = settings.needed("Result Mode")? == "Flow file per batch";
        let rule = Rule {
            keeps_delimiter: per_batch || settings.flag("Keep Delimiter")?,
            delimiter: (!delimiter.is_empty())
                .then(|| Finder::new(delimiter.as_bytes()).into_owned()),
            rolled_names: settings
                .text("Rolling Filename Pattern")?
                .unwrap_or_default(),
            start: match settings.needed("Initial Start Position")?.as_str() {
                "Beginning of Time" => Start::Time,
                "Current Time" => Start::Now,
                _ => Start::File,
            },
        };
        let batch = match settings.integer("Batch Size")? {
            0 => SESSION_FLOW_FILES_MAX,
            count => SESSION_FLOW_FILES_MAX.min(count),
        };
        Ok(TailFile {
            rule: Arc::new(rule),
            mode,
            per_batch,
            batch,
            tails: Vec::new(),
            next: 0,
            is_begun: false,
            last_lookup: None,
            block: Vec::new(),
            buffers: Buffers::default(),
            watch: None,
            told: HashMap::new(),
            watched: Vec::new(),
            looks_again: false,
        })
    }

    /// Begins with what is remembered.
    fn begin(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<(), ProcessorError> {
        let state = session.state();
        let single = match &self.mode {
            Mode::Single(path) => path.clone(),
            Mode::Multiple { .. } => PathBuf::new(),
        };
        let known = known::from_bytes(&state, &single).map_err(ProcessorError::Failed)?;
        let start = if state.is_empty() {
            self.rule.start
        } else {
            Start::File
        };
        match &self.mode {
            Mode::Single(path) => {
                let known = known.into_iter().find(|(of, _)| of == path);
                let known = known.map(|(_, known)| known);
                let tail = Tail::new(path.clone(), &self.rule, start, known);
                self.tails.push(tail);
            }
            Mode::Multiple { .. } => {
                self.tails = known
                    .into_iter()
                    .map(|(path, known)| Tail::new(path, &self.rule, Start::File, Some(known)))
                    .collect();
                self.look_up(context, session.now(), start)?;
            }
        }
        self.is_begun = true;
        Ok(())
    }

    /// Looks for files that are not followed yet.
    fn look_up(
        &mut self,
        context: &Context,
        now: UnixMillis,
        start: Start,
    ) -> Result<(), ProcessorError> {
        let Mode::Multiple {
            places,
            names,
            recurses,
            ..
        } = &self.mode
        else {
            return Ok(());
        };
        let look = places.look(now).map_err(ProcessorError::Failed)?;
        let followed: HashSet<&Path> = self.tails.iter().map(Tail::path).collect();
        let mut found = Vec::new();
        for place in look.places {
            let folder = place.folder;
            let failed = |error: std::io::Error| {
                ProcessorError::Failed(format!("cannot list {}: {error}", folder.display()))
            };
            if let Some(walk) = places.walk(&folder, *recurses).map_err(failed)? {
                found.append(&mut wanted(context, walk, names, &followed));
            }
            if !place.attributes.is_empty() {
                self.told.insert(folder, place.attributes);
            }
        }
        // A container that is gone may have lines that were not read yet.
        let here: HashSet<&PathBuf> = look.watched.iter().collect();
        let is_followed = |folder: &PathBuf| followed.iter().any(|path| path.starts_with(folder));
        self.told
            .retain(|folder, _| here.contains(folder) || is_followed(folder));
        self.watched = look.watched;
        if let Some(watch) = &mut self.watch {
            watch.forget_gone();
        }
        for path in found {
            if self.tails.len() >= TAIL_FILES_MAX {
                let message = format!(
                    "more than {TAIL_FILES_MAX} files match; {} and others are not followed",
                    path.display()
                );
                context.post(Level::Error, &message);
                break;
            }
            self.tails.push(Tail::new(path, &self.rule, start, None));
        }
        self.last_lookup = Some(now);
        Ok(())
    }

    /// Looks at each file once, as far as there is room in the session.
    fn round(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Round, ProcessorError> {
        let mut round = Round::default();
        let (mut lines_left, mut bytes_left) = (self.batch, TAIL_SESSION_BYTES);
        for index in 0..self.tails.len() {
            let at = (self.next + index) % self.tails.len();
            if lines_left == 0 || bytes_left == 0 {
                self.next = at;
                return Ok(round);
            }
            let step = match self.tails[at].step(context, &mut self.block, lines_left) {
                // One file in trouble does not hold up the others.
                Err(ProcessorError::Failed(problem)) if self.tails.len() > 1 => {
                    context.post(Level::Error, &problem);
                    continue;
                }
                step => step?,
            };
            match step {
                Step::Lines(lines) => {
                    lines_left -= lines.ranges.len().min(lines_left);
                    bytes_left -= lines.consumed.min(bytes_left);
                    self.emit(session, at, lines)?;
                    round.has_lines = true;
                }
                Step::Again => round.again = true,
                Step::Soon => round.soon = true,
                Step::Gone => {
                    round.gone.insert(at);
                }
                Step::Wait => {}
            }
        }
        Ok(round)
    }

    fn emit(
        &mut self,
        session: &mut ProcessSession<'_>,
        at: usize,
        lines: Lines,
    ) -> Result<(), ProcessorError> {
        let tail = &self.tails[at];
        let mut attributes = tail.attributes();
        let mut folders = tail.path().ancestors();
        if let Some(told) = folders.find_map(|folder| self.told.get(folder)) {
            for (name, value) in told {
                attributes.set(name, value.as_str());
            }
        }
        let attributes = Arc::new(attributes);
        let lines = if self.per_batch {
            lines.together()
        } else {
            lines
        };
        let block = &self.block[..lines.consumed];
        let bytes = self
            .buffers
            .bytes(block.len(), |bytes| bytes.copy_from_slice(block));
        let block = session.block(bytes)?;
        let made = session.create_views(&attributes, &block, lines.ranges.iter().copied());
        session.transfer_all(made, 0);
        Ok(())
    }

    /// Commits what was read together with how far it was read.
    fn commit(&mut self, session: &mut ProcessSession<'_>) -> Result<(), ProcessorError> {
        let remembered = self.tails.iter();
        let remembered = remembered.filter_map(|tail| {
            let known: &Known = tail.remembered()?;
            Some((tail.path(), known))
        });
        session.set_state(known::to_bytes(remembered))?;
        let outcome = session.commit();
        for tail in &mut self.tails {
            tail.settle(outcome.is_ok());
        }
        outcome
    }

    /// Has the kernel watch; without it (too many watches) the timer does.
    fn watch(&mut self, context: &Context) {
        if self.watch.is_none() {
            match Watch::start(context.waker()) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => tracing::debug!(%error, "files are not watched"),
            }
        }
        let Some(watch) = &mut self.watch else {
            return;
        };
        for tail in &mut self.tails {
            if tail.take_unwatched() {
                watch.follow(tail.path());
            }
        }
        for folder in &self.watched {
            if !watch.follows_folder(folder) && folder.is_dir() {
                watch.follow_folder(folder);
                // What appeared before that was not told.
                self.looks_again |= watch.follows_folder(folder);
            }
        }
    }

    fn wait(&self) -> Duration {
        let is_watched = self.watch.as_ref().is_some_and(|watch| !watch.has_gaps());
        let wait = if is_watched { TAIL_RECHECK } else { POLL };
        match &self.mode {
            Mode::Single(_) => wait,
            Mode::Multiple { frequency, .. } => wait.min(*frequency),
        }
    }
}

impl Processor for TailFile {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let is_first = !self.is_begun;
        if is_first {
            self.begin(context, session)?;
        }
        for tail in &mut self.tails {
            // What an error left undone is read again.
            tail.settle(false);
        }
        let round = self.round(context, session)?;
        // The first positions are remembered at once: lines that are written before the first is
        // read count as new after a restart.
        if round.has_lines || round.again || is_first {
            self.commit(session)?;
        }
        self.watch(context);
        if round.has_lines || round.again {
            return Ok(Next::Again);
        }
        if let Mode::Multiple { frequency, .. } = &self.mode {
            let frequency = *frequency;
            if !round.gone.is_empty() {
                let mut index = 0;
                self.tails.retain(|_| {
                    index += 1;
                    !round.gone.contains(&(index - 1))
                });
                self.next = 0;
                self.commit(session)?;
            }
            let now = session.now();
            let is_told = self.watch.as_ref().is_some_and(Watch::take_appeared);
            let is_told = std::mem::take(&mut self.looks_again) || is_told;
            let is_due = self
                .last_lookup
                .is_none_or(|last| now.since(last) >= frequency);
            if is_told || is_due {
                let (tails, folders) = (self.tails.len(), self.watched.clone());
                self.look_up(context, now, Start::File)?;
                if self.tails.len() > tails || self.watched != folders {
                    return Ok(Next::Again);
                }
            }
        }
        Ok(Next::Woken(if round.soon {
            LEAVE_AFTER
        } else {
            self.wait()
        }))
    }

    fn stop(&mut self) {
        self.watch = None;
    }
}

/// Files of a walk that are to be followed and are not yet.
fn wanted(
    context: &Context,
    mut walk: Walk,
    names: &Regex,
    followed: &HashSet<&Path>,
) -> Vec<PathBuf> {
    let mut by_folder: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    while let Some(found) = walk.next() {
        match found {
            Ok(entry) => {
                let name = entry.name();
                if names.is_match(&name) {
                    let folder = entry.path.parent().unwrap_or(Path::new(".")).to_owned();
                    by_folder.entry(folder).or_default().push(name);
                }
            }
            Err(problem) => context.post(Level::Warning, &problem),
        }
    }
    let mut wanted = Vec::new();
    for (folder, names) in by_folder {
        let live: Vec<&String> = names
            .iter()
            .filter(|name| !names.iter().any(|of| is_rolled_of(name, of)))
            .collect();
        let paths = live.into_iter().map(|name| folder.join(name));
        wanted.extend(paths.filter(|path| !followed.contains(path.as_path())));
    }
    wanted
}

/// Whether `name` is what rotation makes of `of`: `app.log.1`, `app.log-20260131.gz`.
fn is_rolled_of(name: &str, of: &str) -> bool {
    name.strip_prefix(of)
        .is_some_and(|rest| rest.starts_with(['.', '-', '_']))
}

/// Time between two looks where the kernel does not watch.
const POLL: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "../tail_file_tests.rs"]
mod tests;
