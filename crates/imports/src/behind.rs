//! The threads of what is done behind: slices and the search index, below those that serve people.
//!
//! Where all cores are busy, a thread that wakes up waits until one is free, some milliseconds, and
//! an operation at the counter wakes a dozen up. So bulk work has threads of its own, whose turn
//! comes after the others'. SQLite's own threads are begun by these and are as they are.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::error::ImportsError;
use crate::limits;

/// Threads of low priority; they end with this.
pub(crate) struct Behind(Option<Runtime>);

impl Behind {
    /// Starts them.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub fn start() -> Result<Behind, ImportsError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(limits::THREADS_BEHIND)
            .thread_name("imports")
            .on_thread_start(step_back)
            .enable_all()
            .build()
            .map_err(ImportsError::Read)?;
        Ok(Behind(Some(runtime)))
    }

    /// Has them do something.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        self.0.as_ref().map(|runtime| runtime.spawn(work))
    }

    /// Has them do something, and waits for it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ImportsError>> + Send + 'static,
    ) -> Result<T, ImportsError> {
        let broke = || ImportsError::Read(std::io::Error::other("a thread broke off"));
        match self.spawn(work) {
            Some(working) => working.await.map_err(|_| broke())?,
            None => Err(broke()),
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Whoever drops it may not wait; what runs there ends at its next pause.
            runtime.shutdown_background();
        }
    }
}

/// Takes the calling thread's turn behind the others': whoever wakes up does not wait for the end of
/// its time slice. On other systems a thread has no priority of its own.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn step_back() {
    // The kernel's structure is a single number; musl has no function for this.
    let none: libc::c_int = 0;
    let (call, this_thread) = (libc::SYS_sched_setscheduler, 0);
    // SAFETY: the number lives and is only read.
    let batch = unsafe { libc::syscall(call, this_thread, libc::SCHED_BATCH, &raw const none) };
    let nice = rustix::process::setpriority_process(None, limits::NICE_BEHIND);
    if batch != 0 || nice.is_err() {
        tracing::debug!("bulk work has the priority of everything else");
    }
}

#[cfg(not(target_os = "linux"))]
fn step_back() {}
