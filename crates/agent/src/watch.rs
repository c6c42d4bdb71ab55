//! Has the kernel tell when a file or its folder changes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::engine::Waker;

/// A watched file; dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    folder: i32,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Wakes `waker` whenever `path` grows, moves or appears.
    pub(crate) fn start(path: &Path, waker: Waker) -> io::Result<Watch> {
        let fd = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let appears = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let folder = inotify::add_watch(&*fd, folder, appears)?;
        let is_ended = Arc::new(AtomicBool::new(false));
        let (thread_fd, thread_ended) = (Arc::clone(&fd), Arc::clone(&is_ended));
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || listen(&thread_fd, &thread_ended, &waker))?;
        let watch = Watch {
            fd,
            path: path.to_owned(),
            folder,
            is_ended,
            thread: Some(thread),
        };
        watch.renew();
        Ok(watch)
    }

    /// Watches whatever file has the name now.
    pub(crate) fn renew(&self) {
        let changes = WatchFlags::MODIFY
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF
            | WatchFlags::ATTRIB;
        if let Err(error) = inotify::add_watch(&*self.fd, &self.path, changes) {
            // It is not there yet; the folder's watch tells when it is.
            tracing::trace!(path = %self.path.display(), %error, "not there to be watched");
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        // The end of a watch is itself an event, which wakes the thread out of its read.
        let ended = inotify::remove_watch(&*self.fd, self.folder);
        if let (Ok(()), Some(thread)) = (ended, self.thread.take())
            && thread.join().is_err()
        {
            tracing::debug!("a watching thread ended by a panic");
        }
    }
}

fn listen(fd: &OwnedFd, is_ended: &AtomicBool, waker: &Waker) {
    let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
    loop {
        let read = rustix::io::read(fd, &mut buffer);
        if is_ended.load(Ordering::Acquire) {
            return;
        }
        match read {
            Ok(_) => waker.wake(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::warn!(%error, "the kernel stopped telling of changes");
                return;
            }
        }
        // A busy writer makes an event for each write: take them by the handful.
        std::thread::sleep(COALESCE);
    }
}

/// Room for dozens of events; a longer queue is read in turns.
const EVENT_BYTES: usize = 4_096;

/// Events within this time wake once.
const COALESCE: Duration = Duration::from_millis(2);

/// Stack of a thread that only reads events.
const STACK_BYTES: usize = 64 << 10;
