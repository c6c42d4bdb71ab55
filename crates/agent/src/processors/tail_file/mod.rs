//! TailFile: lines of a growing file, over rotation, truncation and crashes, each once.
//!
//! # Invariants
//!
//! - The position moves in the same commit that makes the FlowFiles, so after a crash it is
//!   neither ahead of them nor behind.
//! - A file is known by device, inode and a checksum of its first bytes, not by its name. When the
//!   name leads to another file, the known one is read to its end first, then rolled files that
//!   are newer, then the new one.
//! - Only whole lines leave, without their delimiter; the last line of a file that was rolled
//!   away leaves without one.
//!
//! Left out: several files in one processor, and a last line that is still unfinished when its
//! file is truncated in place without a copy.

mod known;
mod lines;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use memchr::memmem::Finder;

use self::known::{Known, fill, open};
pub(super) use self::lines::unescape;
use self::lines::{Lines, Pattern, cut, is_compressed};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::{Context, Waker};
use crate::flowfile::Attributes;
use crate::limits::{
    SESSION_FLOW_FILES_MAX, TAIL_BLOCK_BYTES, TAIL_LINE_BYTES_MAX, TAIL_RECHECK,
    TAIL_ROLLED_FILES_MAX,
};
use crate::session::ProcessSession;
use crate::watch::Watch;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "TailFile",
    description: "Follows a text file: one FlowFile for each line. The kernel tells it of new \
                  lines; the scheduling period is the shortest time between two looks.",
    properties: &[
        PropertyKind::new("File to Tail", "The file's whole path.").required(),
        PropertyKind::new(
            "tail-mode",
            "Several files need several processors for now.",
        )
        .default("Single file")
        .allowed(&["Single file"]),
        PropertyKind::new(
            "Input Delimiter",
            "What ends a line; \\n, \\r and \\t are understood. It does not become part of the \
             FlowFile (in MiNiFi C++ it does). Empty: whatever is there becomes one FlowFile.",
        )
        .default("\\n"),
        PropertyKind::new(
            "Rolling Filename Pattern",
            "Names of rolled files in the same folder; * and ? stand for any characters, \
             ${filename} for the name without its extension, as in MiNiFi.",
        )
        .default("${filename}.*"),
        PropertyKind::new(
            "Initial Start Position",
            "Where to begin when nothing is known.",
        )
        .default("Beginning of File")
        .allowed(&["Beginning of File", "Beginning of Time", "Current Time"]),
        PropertyKind::new(
            "Batch Size",
            "Lines in one commit at most; 0 means any number.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Every line.",
    }],
    writes: &[
        AttributeKind::new("filename", "The file's name."),
        AttributeKind::new("path", "The file's folder."),
        AttributeKind::new("absolute.path", "The file's whole path."),
    ],
    input: Input::Forbidden,
    make: |settings| TailFile::new(settings).map(|made| Box::new(made) as _),
};

struct TailFile {
    path: PathBuf,
    delimiter: Option<Finder<'static>>,
    rolled_names: Pattern,
    start: Start,
    batch: usize,
    open: Option<Open>,
    block: Vec<u8>,
    watch: Option<Watch>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    File,
    Time,
    Now,
}

/// The file being read.
struct Open {
    file: File,
    known: Known,
    attributes: Arc<Attributes>,
    /// Since when its name leads elsewhere and it did not grow.
    left_since: Option<Instant>,
}

/// What a look at the end of the open file found.
enum AtEnd {
    /// It is still the named file; wait.
    Wait,
    /// The name leads elsewhere; look again soon.
    Leaving,
    /// It is finished.
    Left,
    /// It was truncated.
    Truncated,
}

impl TailFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let path = PathBuf::from(settings.needed("File to Tail")?);
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(format!("File to Tail: '{}' names no file", path.display()));
        };
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or(name);
        let pattern = settings
            .text("Rolling Filename Pattern")?
            .unwrap_or_default();
        let delimiter = unescape(&settings.text("Input Delimiter")?.unwrap_or_default());
        let delimiter =
            (!delimiter.is_empty()).then(|| Finder::new(delimiter.as_bytes()).into_owned());
        let start = match settings.needed("Initial Start Position")?.as_str() {
            "Beginning of Time" => Start::Time,
            "Current Time" => Start::Now,
            _ => Start::File,
        };
        let batch = match settings.integer("Batch Size")? {
            0 => SESSION_FLOW_FILES_MAX,
            count => SESSION_FLOW_FILES_MAX.min(count),
        };
        Ok(TailFile {
            delimiter,
            rolled_names: Pattern(pattern.replace("${filename}", stem)),
            start,
            batch,
            open: None,
            block: Vec::new(),
            watch: None,
            path,
        })
    }

    /// Finds the file to go on with after a start.
    fn begin(&mut self, context: &Context, state: &[u8]) -> Result<bool, ProcessorError> {
        let failed = self.failing("look for");
        if state.is_empty() {
            return self.begin_fresh();
        }
        let known: Known = serde_json::from_slice(state)
            .map_err(|error| ProcessorError::Failed(format!("its state is no state: {error}")))?;
        if let Some(file) = open(&self.path).map_err(&failed)?
            && known.is(&file).map_err(&failed)?
        {
            self.open = Some(self.opened(file, known));
            return Ok(true);
        }
        if let Some(file) = self.rolled_away(&known).map_err(&failed)? {
            let known = Known::of(&file, known.position).map_err(&failed)?;
            self.open = Some(self.opened(file, known));
            return Ok(true);
        }
        let Some(file) = open(&self.path).map_err(&failed)? else {
            return Ok(false);
        };
        let read = known.position;
        context.post(
            Level::Warning,
            &format!("the file that was read up to byte {read} is gone; what it had after is lost"),
        );
        let fresh = Known::of(&file, 0).map_err(&failed)?;
        self.open = Some(self.opened(file, fresh));
        Ok(true)
    }

    /// The known file under another name: by its inode, or a copy by its first bytes.
    fn rolled_away(&self, known: &Known) -> io::Result<Option<File>> {
        let mut copy = None;
        for path in self.rolled()? {
            // A rolled file may be gone again by now.
            let Ok(Some(file)) = open(&path) else {
                continue;
            };
            if known.is(&file).unwrap_or(false) {
                return Ok(Some(file));
            }
            let is_long_enough = file.metadata()?.len() >= known.position;
            if is_long_enough && known.has_fingerprint(&file).unwrap_or(false) {
                copy = Some(file);
            }
        }
        Ok(copy)
    }

    fn begin_fresh(&mut self) -> Result<bool, ProcessorError> {
        let failed = self.failing("look for");
        if self.start == Start::Time
            && let Some(oldest) = self.rolled().map_err(&failed)?.first()
            && let Some(file) = open(oldest).map_err(&failed)?
        {
            let known = Known::of(&file, 0).map_err(&failed)?;
            self.open = Some(self.opened(file, known));
            return Ok(true);
        }
        let Some(file) = open(&self.path).map_err(&failed)? else {
            return Ok(false);
        };
        let position = match self.start {
            Start::Now => file.metadata().map_err(&failed)?.len(),
            Start::File | Start::Time => 0,
        };
        // From now on a file that appears is read whole.
        self.start = Start::File;
        let known = Known::of(&file, position).map_err(&failed)?;
        self.open = Some(self.opened(file, known));
        Ok(true)
    }

    fn opened(&self, file: File, known: Known) -> Open {
        let text = |path: Option<&Path>| {
            path.map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let attributes = Attributes::new([
            ("filename", text(self.path.file_name().map(Path::new))),
            ("path", text(self.path.parent())),
            ("absolute.path", text(Some(&self.path))),
        ]);
        Open {
            file,
            known,
            attributes: Arc::new(attributes),
            left_since: None,
        }
    }

    /// Rolled files, oldest first.
    fn rolled(&self) -> io::Result<Vec<PathBuf>> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(folder)?.take(TAIL_ROLLED_FILES_MAX) {
            let entry = entry?;
            let name = entry.file_name();
            let is_rolled = name
                .to_str()
                .is_some_and(|name| self.rolled_names.matches(name) && !is_compressed(name));
            if !is_rolled || Some(name.as_os_str()) == self.path.file_name() {
                continue;
            }
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                found.push((metadata.modified()?, entry.path()));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Reads a block and commits its lines; says whether there were any.
    fn read(&mut self, session: &mut ProcessSession<'_>) -> Result<bool, ProcessorError> {
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let mut wanted = TAIL_BLOCK_BYTES;
        let taken = loop {
            self.block.resize(wanted, 0);
            let filled = fill(&open.file, &mut self.block, open.known.position);
            let len = filled.map_err(|error| {
                ProcessorError::Failed(format!("cannot read {}: {error}", self.path.display()))
            })?;
            if len == 0 {
                return Ok(false);
            }
            let lines = cut(&self.block[..len], self.delimiter.as_ref(), self.batch);
            if !lines.ranges.is_empty() {
                break lines;
            }
            if len < wanted {
                return Ok(false);
            }
            if wanted >= TAIL_LINE_BYTES_MAX {
                break Lines::whole(len);
            }
            wanted = TAIL_LINE_BYTES_MAX;
        };
        self.emit(session, &taken)?;
        Ok(true)
    }

    /// The unfinished last line of a file that will not grow any more.
    fn read_rest(&mut self, session: &mut ProcessSession<'_>) -> Result<(), ProcessorError> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        self.block.resize(TAIL_LINE_BYTES_MAX, 0);
        let filled = fill(&open.file, &mut self.block, open.known.position);
        let len = filled.map_err(self.failing("read"))?;
        if len > 0 {
            self.emit(session, &Lines::whole(len))
        } else {
            Ok(())
        }
    }

    fn emit(
        &mut self,
        session: &mut ProcessSession<'_>,
        lines: &Lines,
    ) -> Result<(), ProcessorError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let bytes = Bytes::copy_from_slice(&self.block[..lines.consumed]);
        let block = session.block(bytes)?;
        let made = session.create_views(&open.attributes, &block, lines.ranges.iter().copied());
        session.transfer_all(made, 0);
        let mut known = open.known.clone();
        known.position += lines.consumed as u64;
        known.learn(&open.file);
        session.set_state(known.to_bytes())?;
        session.commit()?;
        // Only now: a commit that failed is read again.
        open.known = known;
        open.left_since = None;
        Ok(())
    }

    fn at_end(&mut self) -> Result<AtEnd, ProcessorError> {
        let failed = self.failing("look at");
        let Some(open) = &self.open else {
            return Ok(AtEnd::Wait);
        };
        let own = open.file.metadata().map_err(&failed)?;
        let position = open.known.position;
        let named = match fs::metadata(&self.path) {
            Ok(named) => Some((named.dev(), named.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let is_named = named == Some((own.dev(), own.ino()));
        if is_named {
            let is_same =
                own.len() >= position && open.known.has_fingerprint(&open.file).map_err(&failed)?;
            return Ok(if is_same {
                AtEnd::Wait
            } else {
                AtEnd::Truncated
            });
        }
        if named.is_none() {
            // Moved away; the new one is not there yet.
            return Ok(AtEnd::Wait);
        }
        let Some(open) = &mut self.open else {
            return Ok(AtEnd::Wait);
        };
        let since = *open.left_since.get_or_insert_with(Instant::now);
        Ok(if since.elapsed() >= LEAVE_AFTER {
            AtEnd::Left
        } else {
            AtEnd::Leaving
        })
    }

    /// Goes on to the file that came after the open one.
    fn advance(&mut self) -> Result<(), ProcessorError> {
        let failed = self.failing("look for");
        let Some(open_now) = self.open.take() else {
            return Ok(());
        };
        let mut found = None;
        let mut is_after = false;
        for path in self.rolled().map_err(&failed)? {
            let Ok(Some(file)) = open(&path) else {
                continue;
            };
            let metadata = file.metadata().map_err(&failed)?;
            if (metadata.dev(), metadata.ino()) == (open_now.known.device, open_now.known.inode) {
                is_after = true;
            } else if is_after {
                found = Some(file);
                break;
            }
        }
        let next = match found {
            Some(file) => Some(file),
            None => open(&self.path).map_err(&failed)?,
        };
        let Some(file) = next else {
            self.open = Some(open_now);
            return Ok(());
        };
        let known = Known::of(&file, 0).map_err(&failed)?;
        self.open = Some(self.opened(file, known));
        Ok(())
    }

    /// The named file was truncated: its rest may stand in a copy, then it begins anew.
    fn restart(&mut self, context: &Context) -> Result<(), ProcessorError> {
        let failed = self.failing("look for");
        let Some(open_now) = self.open.take() else {
            return Ok(());
        };
        for path in self.rolled().map_err(&failed)?.into_iter().rev() {
            let Ok(Some(file)) = open(&path) else {
                continue;
            };
            let len = file.metadata().map_err(&failed)?.len();
            if len > open_now.known.position
                && open_now.known.has_fingerprint(&file).unwrap_or(false)
            {
                let position = open_now.known.position;
                let known = Known::of(&file, position).map_err(&failed)?;
                self.open = Some(self.opened(file, known));
                return Ok(());
            }
        }
        context.post(
            Level::Info,
            "the file was truncated; reading it from its beginning",
        );
        let known = Known::of(&open_now.file, 0).map_err(&failed)?;
        self.open = Some(self.opened(open_now.file, known));
        Ok(())
    }

    /// Says what could not be done with the file.
    fn failing(
        &self,
        action: &'static str,
    ) -> impl Fn(io::Error) -> ProcessorError + Clone + use<> {
        let path = self.path.clone();
        move |error| ProcessorError::Failed(format!("cannot {action} {}: {error}", path.display()))
    }

    /// Has the kernel watch, once; without it (too many watches) the timer does.
    fn watch(&mut self, waker: Waker) {
        if self.watch.is_none() {
            match Watch::start(&self.path, waker) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => tracing::debug!(path = %self.path.display(), %error, "not watched"),
            }
        }
        if let Some(watch) = &self.watch {
            watch.renew();
        }
    }

    fn wait(&self) -> Next {
        Next::Woken(if self.watch.is_some() {
            TAIL_RECHECK
        } else {
            POLL
        })
    }
}

impl Processor for TailFile {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        if self.open.is_none() {
            self.watch(context.waker());
            let state = session.state();
            if !self.begin(context, &state)? {
                return Ok(self.wait());
            }
        }
        if self.read(session)? {
            return Ok(Next::Again);
        }
        match self.at_end()? {
            AtEnd::Wait => Ok(self.wait()),
            AtEnd::Leaving => Ok(Next::Woken(LEAVE_AFTER)),
            AtEnd::Left => {
                self.read_rest(session)?;
                self.advance()?;
                self.watch(context.waker());
                Ok(Next::Again)
            }
            AtEnd::Truncated => {
                self.restart(context)?;
                Ok(Next::Again)
            }
        }
    }

    fn stop(&mut self) {
        self.watch = None;
    }
}

/// A file that was renamed is left when it did not grow for so long: its writer may still have
/// it open.
const LEAVE_AFTER: Duration = Duration::from_millis(500);

/// Time between two looks where the kernel does not watch.
const POLL: Duration = Duration::from_secs(1);
