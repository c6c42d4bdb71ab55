//! Where work on keys and values with schemas is done.
//!
//! Little of it is done where it comes up. More waits for a turn, of which there are few at one time,
//! and while it is done others serve in this thread's stead: work of strangers' schemas must not hold up
//! who has nothing to do with them. All work of one request is bounded, and values of streams each by
//! themselves.

use std::sync::LazyLock;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::error::RestError;
use crate::limits::{
    LITTLE_WORK_BYTES, LITTLE_WORK_STEPS, RECORDS_ROOM_WAIT, REQUEST_PAYLOADS_BYTES_MAX,
    REQUEST_STEPS_MAX, VALIDATION_STEPS_MAX,
};
use crate::schemas::format::Work;

/// The work of a request, or of records of a stream that are stored together.
pub(crate) struct Worked {
    /// What is done at once.
    little: Work,
    /// What is done in turns.
    large: Work,
    is_of_stream: bool,
    turns: &'static Semaphore,
}

impl Worked {
    /// All values of a request together.
    pub fn of_request() -> Self {
        Worked {
            little: Work::of(LITTLE_WORK_STEPS, LITTLE_WORK_BYTES),
            large: Work::of(REQUEST_STEPS_MAX, REQUEST_PAYLOADS_BYTES_MAX),
            is_of_stream: false,
            turns: &WRITING,
        }
    }

    /// Values of which each takes its turn by itself.
    pub fn of_stream() -> Self {
        Worked {
            is_of_stream: true,
            ..Worked::of_request()
        }
    }

    /// Does a job, which is begun anew where it turns out not to be little.
    ///
    /// # Errors
    /// 429: its turn does not come.
    pub async fn run<T>(&mut self, job: impl Fn(&mut Work) -> T) -> Result<T, RestError> {
        if !self.little.is_spent() {
            let done = job(&mut self.little);
            if !self.little.is_spent() {
                return Ok(done);
            }
        }
        let turn = tokio::time::timeout(RECORDS_ROOM_WAIT, self.turns.acquire());
        let Ok(Ok(turn)) = turn.await else {
            return Err(RestError::NoRoom);
        };
        if self.is_of_stream {
            self.large.renew(VALIDATION_STEPS_MAX);
        }
        let done = beside(|| job(&mut self.large));
        drop(turn);
        if self.is_of_stream {
            // What follows may be little again. Others of this task's thread come first.
            self.little.renew(LITTLE_WORK_STEPS);
            tokio::task::yield_now().await;
        }
        Ok(done)
    }
}

/// Reads records of so many bytes, of which there are so many.
pub(crate) async fn read<T>(records: usize, bytes: usize, job: impl FnOnce() -> T) -> T {
    if records <= LITTLE_READ_RECORDS && bytes <= LITTLE_READ_BYTES {
        return job();
    }
    // It is never closed; who waits too long goes away.
    let _turn = READING.acquire().await;
    beside(job)
}

/// Does a job while another thread serves in this one's stead, where there are several.
fn beside<T>(job: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(job),
        _ => job(),
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Turns of who writes: with half of the processors, so that the others serve.
static WRITING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((processors() / 2).max(1)));
/// Turns of who reads, which is never much work.
static READING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));

/// What is read where it comes up: a record may become some ten KiB of JSON.
const LITTLE_READ_RECORDS: usize = 50;
const LITTLE_READ_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn little_is_done_at_once_and_more_in_its_turn() {
        let turns: &Semaphore = Box::leak(Box::new(Semaphore::new(1)));
        let mut worked = Worked {
            turns,
            ..Worked::of_request()
        };
        let steps = |steps: u64| move |work: &mut Work| work.step(steps).is_ok();
        let held = turns.acquire().await.unwrap();
        assert!(worked.run(steps(LITTLE_WORK_STEPS / 2)).await.unwrap());
        let waits = worked.run(steps(LITTLE_WORK_STEPS));
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), waits).await;
        assert!(waited.is_err(), "it had no turn");
        drop(held);
        assert!(worked.run(steps(REQUEST_STEPS_MAX / 2)).await.unwrap());
        assert!(!worked.run(steps(REQUEST_STEPS_MAX)).await.unwrap());
        // Values of streams have their bounds each.
        let mut worked = Worked::of_stream();
        for _ in 0..3 {
            assert!(worked.run(steps(VALIDATION_STEPS_MAX)).await.unwrap());
        }
        assert!(!worked.run(steps(VALIDATION_STEPS_MAX + 1)).await.unwrap());
        // What is little after something large is done at once again.
        let mut worked = Worked {
            turns,
            ..Worked::of_stream()
        };
        assert!(worked.run(steps(VALIDATION_STEPS_MAX)).await.unwrap());
        let _held = turns.acquire().await.unwrap();
        assert!(worked.run(steps(LITTLE_WORK_STEPS / 2)).await.unwrap());
    }
}
