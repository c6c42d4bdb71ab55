//! What becomes of a job after its turn: it is put back, waits, rests, ends, or is left to others.

use std::sync::Arc;
use std::time::Duration;

use streams::StreamsError;

use crate::error::ImportsError;
use crate::imports::Core;
use crate::job::JobState;
use crate::limits;
use crate::live::gauge;
use crate::schedule::{Cost, JobNumber};
use crate::worker::Outcome;

/// What a job waits for after its turn.
enum After {
    /// Its turn.
    Next,
    /// Its tenant's quotas, for so long.
    Held(Duration),
    /// Another try, as there was this trouble.
    Failed(String),
}

impl Core {
    /// Puts a job back, or ends it, after its turn.
    pub async fn after_turn(
        self: &Arc<Self>,
        number: JobNumber,
        cost: Cost,
        outcome: Result<Outcome, ImportsError>,
    ) {
        let is_final = |error: &ImportsError| !error.may_retry();
        if outcome.as_ref().is_err_and(is_final) && self.stands_aside().await {
            return self.let_go(number, cost);
        }
        let after = match outcome {
            Ok(Outcome::State(JobState::Running)) => After::Next,
            Ok(Outcome::State(_)) => return self.end_job(number, cost, None).await,
            Ok(Outcome::Lost) => return self.let_go(number, cost),
            Ok(Outcome::Held(wait)) => After::Held(wait),
            Err(ImportsError::Store(StreamsError::TenantFull(tenant))) => {
                let full = StreamsError::TenantFull(tenant);
                return self.rest_job(number, cost, base::report(&full)).await;
            }
            Err(error) if error.may_retry() => After::Failed(base::report(&error)),
            Err(error) => return self.end_job(number, cost, Some(base::report(&error))).await,
        };
        if let After::Failed(trouble) = &after {
            tracing::warn!(
                job = number.0,
                error = trouble,
                "an import waits to try again"
            );
            let now = self.clock.now();
            let noted = self.behind.note(number, &self.node, trouble, now).await;
            if let Err(error) = noted {
                tracing::warn!(
                    error = base::report(&error),
                    "the trouble was not noted either"
                );
            }
        }
        let pause = {
            let mut live = self.live.lock();
            let waits = !matches!(after, After::Next);
            let stopped = live.jobs.get_mut(&number).is_none_or(|job| {
                job.failures = match after {
                    After::Failed(_) => job.failures + 1,
                    After::Next | After::Held(_) => 0,
                };
                job.running = false;
                job.waits = waits;
                job.turn_over.notify_waiters();
                job.stopped
            });
            match after {
                After::Held(_) => live.schedule.not_run(number),
                _ => live.turn_ended(number, cost, !waits && !stopped),
            }
            let waiting = live.jobs.get(&number).filter(|_| waits && !stopped);
            waiting.map(|job| match after {
                After::Held(wait) => wait.min(limits::RETRY_PAUSE_MAX),
                _ => RETRY_PAUSE_MIN
                    .saturating_mul(1 << job.failures.min(10))
                    .min(limits::RETRY_PAUSE_MAX),
            })
        };
        if let Some(pause) = pause {
            let core = self.clone();
            // At most one per unfinished job; it ends with the pause or the process.
            tokio::spawn(async move {
                let sleep = tokio::time::sleep(pause);
                if core.shutdown.run_until_cancelled(sleep).await.is_some() {
                    core.try_again(number);
                }
            });
        }
    }

    /// Pauses a job whose tenant has no room for its records.
    async fn rest_job(&self, number: JobNumber, cost: Cost, reason: String) {
        let now = self.clock.now();
        let (from, to) = ([JobState::Running], JobState::Paused);
        let paused = self.behind.change(number, &from, to, Some(&reason), now);
        if let Err(error) = paused.await {
            // Its row still says running, so that it is taken up again.
            tracing::warn!(
                job = number.0,
                error = base::report(&error),
                "an import was not paused"
            );
        }
        self.let_go(number, cost);
    }

    /// Works no more on a job that was stopped or that another process has.
    fn let_go(&self, number: JobNumber, cost: Cost) {
        let mut live = self.live.lock();
        live.schedule.done(number, cost, false);
        if let Some(job) = live.jobs.remove(&number) {
            job.turn_over.notify_waiters();
        }
        gauge(&live);
    }

    fn try_again(&self, number: JobNumber) {
        if self.live.lock().try_again(number) {
            self.wake.notify_one();
        }
    }

    /// Ends a job whose last slice is committed, or that cannot go on because of `failure`.
    async fn end_job(&self, number: JobNumber, cost: Cost, failure: Option<String>) {
        if let Some(failure) = &failure {
            tracing::error!(job = number.0, error = failure, "an import failed");
            let now = self.clock.now();
            let ended = self.behind.fail(number, &self.node, failure, now).await;
            if let Err(error) = ended {
                // Its row still says running, so that it is taken up again.
                tracing::error!(error = base::report(&error), "the failure was not recorded");
            }
        }
        {
            let mut live = self.live.lock();
            live.schedule.done(number, cost, false);
            if let Some(job) = live.jobs.remove(&number) {
                job.turn_over.notify_waiters();
            }
            gauge(&live);
        }
        if let Ok(job) = self.behind.job_numbered(number).await
            && job.state.has_ended()
            // A failed one may be resumed.
            && job.state != JobState::Failed
        {
            self.remove_file(&job.id);
        }
    }
}

/// The first pause after a failed turn.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);
