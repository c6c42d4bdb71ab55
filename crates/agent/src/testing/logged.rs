//! What is written to the log, by the thread of one test.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// The lines of a test's own log.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Adds what `run` writes to the log on this thread.
    pub fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        // With a single subscriber, a line that another thread reaches first is silent for all threads.
        let _second = Dispatch::new(NoSubscriber::new());
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, run)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
