//! Has the kernel tell when files or folders change.

use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::engine::Waker;

/// Watched files; dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    fd: Arc<OwnedFd>,
    shared: Arc<Shared>,
    folders: HashSet<PathBuf>,
    /// A watch that is removed at the end.
    last: i32,
    has_gaps: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_ended: AtomicBool,
    /// Something came into a folder.
    has_appeared: AtomicBool,
}

impl Watch {
    /// Wakes `waker` whenever something that is followed grows, moves or appears.
    pub(crate) fn start(waker: Waker) -> io::Result<Watch> {
        let fd = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
        let last = inotify::add_watch(&*fd, "/", WatchFlags::DELETE_SELF)?;
        let shared = Arc::new(Shared::default());
        let (thread_fd, thread_shared) = (Arc::clone(&fd), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || listen(&thread_fd, &thread_shared, &waker))?;
        Ok(Watch {
            fd,
            shared,
            folders: HashSet::new(),
            last,
            has_gaps: false,
            thread: Some(thread),
        })
    }

    /// Follows whatever file has the name now, and its folder.
    pub(crate) fn follow(&mut self, path: &Path) {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        self.follow_folder(folder);
        let changes = WatchFlags::MODIFY
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF
            | WatchFlags::ATTRIB;
        match inotify::add_watch(&*self.fd, path, changes) {
            Ok(_) => {}
            // It is not there yet; the folder's watch tells when it is.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => self.missed(path, error),
        }
    }

    /// Whether what appears in a folder is followed.
    pub(crate) fn follows_folder(&self, folder: &Path) -> bool {
        self.folders.contains(folder)
    }

    /// Follows what appears in a folder.
    pub(crate) fn follow_folder(&mut self, folder: &Path) {
        if self.follows_folder(folder) {
            return;
        }
        let appears = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        match inotify::add_watch(&*self.fd, folder, appears) {
            Ok(_) => {
                self.folders.insert(folder.to_owned());
            }
            Err(error) => self.missed(folder, error),
        }
    }

    /// Lets go of folders that are not there any more.
    pub(crate) fn forget_gone(&mut self) {
        self.folders.retain(|folder| folder.exists());
    }

    /// Whether something is not watched: too many watches, or a folder that is not there.
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// Whether something came into a folder since this was asked last.
    pub(crate) fn take_appeared(&self) -> bool {
        self.shared.has_appeared.swap(false, Ordering::AcqRel)
    }

    fn missed(&mut self, path: &Path, error: rustix::io::Errno) {
        tracing::debug!(path = %path.display(), %error, "not watched");
        self.has_gaps = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Release);
        // The end of a watch is itself an event, which wakes the thread out of its read.
        let ended = inotify::remove_watch(&*self.fd, self.last);
        if let (Ok(()), Some(thread)) = (ended, self.thread.take())
            && thread.join().is_err()
        {
            tracing::debug!("a watching thread ended by a panic");
        }
    }
}

fn listen(fd: &OwnedFd, shared: &Shared, waker: &Waker) {
    let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
    let mut reader = Reader::new(fd, &mut buffer);
    loop {
        let event = reader.next();
        if shared.is_ended.load(Ordering::Acquire) {
            return;
        }
        match event {
            Ok(event) => {
                let appeared = ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::QUEUE_OVERFLOW;
                if event.events().intersects(appeared) {
                    shared.has_appeared.store(true, Ordering::Release);
                }
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                tracing::warn!(%error, "the kernel stopped telling of changes");
                return;
            }
        }
        if reader.is_buffer_empty() {
            waker.wake();
            // A busy writer makes an event for each write: take them by the handful.
            std::thread::sleep(COALESCE);
        }
    }
}

/// Room for dozens of events; a longer queue is read in turns.
const EVENT_BYTES: usize = 4_096;

/// Events within this time wake once.
const COALESCE: Duration = Duration::from_millis(2);

/// Stack of a thread that only reads events.
const STACK_BYTES: usize = 64 << 10;
