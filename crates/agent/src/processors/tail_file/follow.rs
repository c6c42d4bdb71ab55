//! One file that is followed by its name, over all that can become of it.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use memchr::memmem::Finder;

use super::known::Known;
use super::lines::{Lines, Pattern, cut};
use super::source::Source;
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::{Attributes, FRAGMENT_BASE_NAME, FRAGMENT_POST_NAME};
use crate::limits::{TAIL_BLOCK_BYTES, TAIL_LINE_BYTES_MAX, TAIL_ROLLED_FILES_MAX};
use crate::processors::ProcessorError;

/// How files are followed.
pub(super) struct Rule {
    /// What ends a line; without one, whatever is there is one.
    pub(super) delimiter: Option<Finder<'static>>,
    pub(super) keeps_delimiter: bool,
    /// With `${filename}` for a file's name without its extension.
    pub(super) rolled_names: String,
    pub(super) start: Start,
}

/// Where to begin when nothing is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    File,
    Time,
    Now,
}

/// One file that is followed.
pub(super) struct Tail {
    path: PathBuf,
    /// The file's name without its ending, and its ending.
    name: (String, String),
    rule: Arc<Rule>,
    rolled_names: Pattern,
    start: Start,
    /// What is known from before the start.
    known: Option<Known>,
    open: Option<Open>,
    /// Where it will stand when what was read is committed.
    pending: Option<Known>,
    /// Whether the kernel watches the file that the name leads to now.
    is_watched: bool,
}

/// The file being read.
struct Open {
    source: Source,
    known: Known,
    /// Since when its name leads elsewhere and it did not grow.
    left_since: Option<Instant>,
}

/// What a look at a file came to.
pub(super) enum Step {
    /// Whole lines at the start of the block.
    Lines(Lines),
    /// It went on to another file; look again.
    Again,
    /// There is nothing now.
    Wait,
    /// There is nothing, and soon it is certain that there will be nothing more.
    Soon,
    /// The file is gone, and all that it had was read.
    Gone,
}

/// What a look at the end of the open file found.
enum AtEnd {
    /// It is still the named file.
    Same,
    /// The name leads elsewhere; its writer may still have it open.
    Leaving,
    /// It is finished; whether there is another under its name.
    Left { has_heir: bool },
    /// It was truncated.
    Truncated,
}

impl Tail {
    pub(super) fn new(path: PathBuf, rule: &Arc<Rule>, start: Start, known: Option<Known>) -> Tail {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let name = (text(path.file_stem()), text(path.extension()));
        let rolled_names = Pattern(rule.rolled_names.replace("${filename}", &name.0));
        Tail {
            name,
            rule: Arc::clone(rule),
            rolled_names,
            start,
            known,
            open: None,
            pending: None,
            is_watched: false,
            path,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes of lines of the block that was read last.
    pub(super) fn attributes(&self) -> Attributes {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut attributes = Attributes::new([
            ("path", folder.to_string_lossy()),
            ("absolute.path", self.path.to_string_lossy()),
        ]);
        let (base, post) = &self.name;
        if self.rule.keeps_delimiter {
            attributes.set(FRAGMENT_BASE_NAME, base.as_str());
            attributes.set(FRAGMENT_POST_NAME, post.as_str());
        }
        let start = self.open.as_ref().map_or(0, |open| open.known.position);
        attributes.set_origin(start, base, post);
        attributes
    }

    /// Whether it is to be watched, which it is from now on.
    pub(super) fn take_unwatched(&mut self) -> bool {
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// What is to be remembered of it once what was read is committed.
    pub(super) fn remembered(&self) -> Option<&Known> {
        let open = self.open.as_ref().map(|open| &open.known);
        self.pending.as_ref().or(open).or(self.known.as_ref())
    }

    /// What was read is committed, or to be read again.
    pub(super) fn settle(&mut self, is_committed: bool) {
        if let (Some(pending), Some(open), true) =
            (self.pending.take(), &mut self.open, is_committed)
        {
            open.known = pending;
        }
    }

    /// Looks once; lines stand at the start of `block` then.
    pub(super) fn step(
        &mut self,
        context: &Context,
        block: &mut Vec<u8>,
        lines_max: usize,
    ) -> Result<Step, ProcessorError> {
        let failed = self.failing();
        if self.open.is_none() && !self.begin(context).map_err(&failed)? {
            return Ok(Step::Gone);
        }
        if self.has_more().map_err(&failed)? {
            // Looked at before the read, so that lines that were read rightly are kept, and a
            // truncation does not go unseen, however far the file has grown again.
            if self.is_other().map_err(&failed)? {
                self.restart(context).map_err(&failed)?;
                return Ok(Step::Again);
            }
            if let Some(lines) = self.read(block, lines_max).map_err(&failed)? {
                return Ok(Step::Lines(lines));
            }
        }
        match self.at_end().map_err(&failed)? {
            AtEnd::Same => Ok(Step::Wait),
            AtEnd::Leaving => Ok(Step::Soon),
            AtEnd::Left { has_heir } => {
                if let Some(lines) = self.read_rest(block).map_err(&failed)? {
                    return Ok(Step::Lines(lines));
                }
                if !has_heir {
                    return Ok(Step::Gone);
                }
                self.advance().map_err(&failed)?;
                Ok(Step::Again)
            }
            AtEnd::Truncated => {
                self.restart(context).map_err(&failed)?;
                Ok(Step::Again)
            }
        }
    }

    /// Finds the file to begin with, or to go on with after a start.
    fn begin(&mut self, context: &Context) -> io::Result<bool> {
        let Some(known) = self.known.clone() else {
            return self.begin_fresh();
        };
        if let Some(mut source) = Source::open(&self.path)?
            && known.is(&mut source)?
        {
            self.known = None;
            self.opened(source, known);
            return Ok(true);
        }
        if let Some(mut source) = self.rolled_away(&known)? {
            let known = Known::of(&mut source, known.position)?;
            self.known = None;
            self.opened(source, known);
            return Ok(true);
        }
        let Some(mut source) = Source::open(&self.path)? else {
            return Ok(false);
        };
        context.post(
            Level::Warning,
            &format!(
                "{}: the file that was read up to byte {} is gone; what it had after is lost",
                self.path.display(),
                known.position
            ),
        );
        let fresh = Known::of(&mut source, 0)?;
        self.known = None;
        self.opened(source, fresh);
        Ok(true)
    }

    /// The known file under another name: by its inode, or a copy, compressed or not, by its bytes.
    fn rolled_away(&self, known: &Known) -> io::Result<Option<Source>> {
        let mut copy = None;
        for path in self.rolled()? {
            // A rolled file may be gone again by now, or be no such file at all.
            let Ok(Some(mut source)) = Source::open(&path) else {
                continue;
            };
            if known.is(&mut source).unwrap_or(false) {
                return Ok(Some(source));
            }
            if known.can_be_copied() && known.has_bytes(&mut source).unwrap_or(false) {
                copy = Some(source);
            }
        }
        Ok(copy)
    }

    fn begin_fresh(&mut self) -> io::Result<bool> {
        let start = self.start;
        // From now on a file that appears is read whole. From the beginning of time on it may have
        // been rolled before it was seen.
        if start != Start::Time {
            self.start = Start::File;
        }
        if start == Start::Time
            && let Some(oldest) = self.rolled()?.first()
            && let Some(mut source) = Source::open(oldest)?
        {
            let known = Known::of(&mut source, 0)?;
            self.opened(source, known);
            return Ok(true);
        }
        let Some(mut source) = Source::open(&self.path)? else {
            return Ok(false);
        };
        let position = match start {
            Start::Now => source.metadata()?.len(),
            Start::File | Start::Time => 0,
        };
        let known = Known::of(&mut source, position)?;
        self.opened(source, known);
        Ok(true)
    }

    fn opened(&mut self, source: Source, known: Known) {
        self.is_watched = false;
        self.start = Start::File;
        self.open = Some(Open {
            source,
            known,
            left_since: None,
        });
    }

    /// Rolled files, oldest first: by when they were last written to; where the file system's clock
    /// saw no difference, by when they were made.
    fn rolled(&self) -> io::Result<Vec<PathBuf>> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut found: Vec<([SystemTime; 2], u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(folder)?.take(TAIL_ROLLED_FILES_MAX) {
            let entry = entry?;
            let name = entry.file_name();
            let is_rolled = name
                .to_str()
                .is_some_and(|name| self.rolled_names.matches(name));
            if !is_rolled || Some(name.as_os_str()) == self.path.file_name() {
                continue;
            }
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                let written = metadata.modified()?;
                // Not every file system knows it; then the number that it gave must do.
                let made = metadata.created().unwrap_or(written);
                found.push(([written, made], metadata.ino(), entry.path()));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(.., path)| path).collect())
    }

    /// Reads whole lines, or a piece of one that is too long.
    fn read(&mut self, block: &mut Vec<u8>, lines_max: usize) -> io::Result<Option<Lines>> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let mut wanted = TAIL_BLOCK_BYTES;
        let lines = loop {
            block.resize(wanted, 0);
            let len = open.source.fill(block, open.known.position)?;
            if len == 0 {
                return Ok(None);
            }
            let (delimiter, keeps) = (self.rule.delimiter.as_ref(), self.rule.keeps_delimiter);
            let lines = cut(&block[..len], delimiter, keeps, lines_max);
            if !lines.ranges.is_empty() {
                break lines;
            }
            if len < wanted {
                return Ok(None);
            }
            if wanted >= TAIL_LINE_BYTES_MAX {
                break Lines::whole(len);
            }
            wanted = TAIL_LINE_BYTES_MAX;
        };
        self.took(block, lines).map(Some)
    }

    /// Whether there may be something behind what was read.
    fn has_more(&self) -> io::Result<bool> {
        match &self.open {
            // How long a compressed one is shows in the reading only.
            Some(open) if !open.source.is_packed() => {
                Ok(open.source.metadata()?.len() > open.known.position)
            }
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Whether the open file is no more the one that was read so far.
    fn is_other(&mut self) -> io::Result<bool> {
        match &mut self.open {
            // A compressed one is never truncated, and looking would unpack it anew.
            Some(open) if !open.source.is_packed() => {
                Ok(!open.known.has_bytes(&mut open.source)?)
            }
            _ => Ok(false),
        }
    }

    /// The unfinished last line of a file that will not grow any more.
    fn read_rest(&mut self, block: &mut Vec<u8>) -> io::Result<Option<Lines>> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        block.resize(TAIL_LINE_BYTES_MAX, 0);
        let len = open.source.fill(block, open.known.position)?;
        if len == 0 {
            return Ok(None);
        }
        self.took(block, Lines::whole(len)).map(Some)
    }

    fn took(&mut self, block: &[u8], lines: Lines) -> io::Result<Lines> {
        if let Some(open) = &mut self.open {
            let bytes = &block[..lines.consumed];
            self.pending = Some(open.known.moved(&mut open.source, bytes)?);
        }
        Ok(lines)
    }

    fn at_end(&mut self) -> io::Result<AtEnd> {
        let Some(open) = &mut self.open else {
            return Ok(AtEnd::Same);
        };
        let own = open.source.metadata()?;
        let named = match fs::metadata(&self.path) {
            Ok(named) => Some((named.dev(), named.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if named == Some((own.dev(), own.ino())) {
            let is_same = open.known.has_bytes(&mut open.source)?;
            return Ok(if is_same {
                AtEnd::Same
            } else {
                AtEnd::Truncated
            });
        }
        let since = *open.left_since.get_or_insert_with(Instant::now);
        // A compressed file does not grow.
        if since.elapsed() < LEAVE_AFTER && !open.source.is_packed() {
            return Ok(AtEnd::Leaving);
        }
        let has_heir = named.is_some();
        if !has_heir && own.nlink() > 0 && since.elapsed() < HEIR_AFTER {
            // Moved away, and the new one is not there yet.
            return Ok(AtEnd::Leaving);
        }
        Ok(AtEnd::Left { has_heir })
    }

    /// Goes on to the file that came after the open one.
    fn advance(&mut self) -> io::Result<()> {
        let Some(before) = self.open.take() else {
            return Ok(());
        };
        let mut found = None;
        let mut is_after = false;
        for path in self.rolled()? {
            let Ok(Some(mut source)) = Source::open(&path) else {
                continue;
            };
            let is_it = before.known.has_inode(&source)?
                || source.is_packed() && before.known.has_bytes(&mut source).unwrap_or(false);
            if is_it {
                is_after = true;
            } else if is_after {
                found = Some(source);
                break;
            }
        }
        let next = match found {
            Some(source) => Some(source),
            None => Source::open(&self.path)?,
        };
        let Some(mut source) = next else {
            self.open = Some(before);
            return Ok(());
        };
        let known = Known::of(&mut source, 0)?;
        self.opened(source, known);
        Ok(())
    }

    /// The named file was truncated: its rest may stand in a copy, then it begins anew.
    fn restart(&mut self, context: &Context) -> io::Result<()> {
        let Some(mut before) = self.open.take() else {
            return Ok(());
        };
        for path in self.rolled()?.into_iter().rev() {
            let Ok(Some(mut source)) = Source::open(&path) else {
                continue;
            };
            let position = before.known.position;
            if before.known.can_be_copied()
                && source.reaches(position + 1).unwrap_or(false)
                && before.known.has_bytes(&mut source).unwrap_or(false)
            {
                let known = Known::of(&mut source, position)?;
                self.opened(source, known);
                return Ok(());
            }
        }
        context.post(
            Level::Info,
            &format!(
                "{} was truncated; reading it from its beginning",
                self.path.display()
            ),
        );
        let known = Known::of(&mut before.source, 0)?;
        self.opened(before.source, known);
        Ok(())
    }

    /// Says what could not be done with the file.
    fn failing(&self) -> impl Fn(io::Error) -> ProcessorError + Clone + use<> {
        let path = self.path.clone();
        move |error| ProcessorError::Failed(format!("cannot read {}: {error}", path.display()))
    }
}

/// A file that was renamed is left when it did not grow for so long: its writer may still have
/// it open.
pub(super) const LEAVE_AFTER: Duration = Duration::from_millis(500);

/// A file that was renamed is followed for so long while nothing has its old name.
const HEIR_AFTER: Duration = Duration::from_secs(30);
