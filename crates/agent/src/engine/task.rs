//! The life of a task: one thread that runs one processor when its schedule says so.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::UnixMillis;
use jiff::tz::TimeZone;
use journal::JournalError;

use super::schedule::{Decision, Outcome, Plan, Schedule, Surroundings};
use super::{Context, Node};
use crate::AgentError;
use crate::bulletins::Level;
use crate::connection::Available;
use crate::definition::Scheduling;
use crate::processors::{Next, Processor, ProcessorError};
use crate::session::ProcessSession;

impl Surroundings for Node {
    fn available(&self, now: UnixMillis) -> Option<Available> {
        self.has_input().then(|| self.input(now))
    }

    fn is_held_back(&self) -> bool {
        self.has_no_room()
    }
}

/// Runs until the flow is stopped or its repository fails.
pub(super) fn run(context: &Context, mut processor: Box<dyn Processor>) {
    let node = &context.node;
    let clock = &context.ground.clock;
    let plan = Plan {
        scheduling: node.definition.scheduling,
        yield_period: node.definition.yield_period,
        administrative_yield: context.ground.options.administrative_yield,
        zone: TimeZone::system(),
    };
    let mut schedule = Schedule::new(plan, Instant::now(), clock.now());
    processor.before_first_trigger(context);
    while !context.is_stopping() {
        if node.is_held() {
            context.rest_until(None);
            continue;
        }
        let is_woken = node.wake.is_woken.swap(false, Ordering::AcqRel);
        let started = Instant::now();
        match schedule.decide(started, clock.now(), is_woken, node.as_ref()) {
            Decision::Run => {}
            Decision::Sleep => {
                context.rest_until(None);
                continue;
            }
            Decision::SleepUntil(deadline) => {
                context.rest_until(Some(deadline));
                continue;
            }
        }
        if !node.begins() {
            continue;
        }
        let attempt = AssertUnwindSafe(|| session(context, processor.as_mut(), schedule.is_well()));
        let outcome = std::panic::catch_unwind(attempt);
        node.active.fetch_sub(1, Ordering::SeqCst);
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        node.stats.nanos.fetch_add(nanos, Ordering::Relaxed);
        let Some(outcome) = judge(context, outcome) else {
            break;
        };
        schedule.after(started, Instant::now(), clock.now(), outcome, node.as_ref());
    }
    processor.stop();
}

/// What became of a run, said where people see it; `None` when nothing can go on.
fn judge(
    context: &Context,
    outcome: std::thread::Result<Result<Next, ProcessorError>>,
) -> Option<Outcome> {
    match outcome {
        Ok(Ok(next)) => Some(Outcome::Done(next)),
        Ok(Err(ProcessorError::Failed(message))) if context.is_stopping() => {
            tracing::debug!(
                processor = context.name(),
                message,
                "broken off by the stop"
            );
            Some(Outcome::Failed)
        }
        Ok(Err(ProcessorError::Failed(message))) => {
            context.post(Level::Error, &message);
            Some(Outcome::Failed)
        }
        // It waited for room already; what it holds back is the sources.
        Ok(Err(ProcessorError::Repository(error @ AgentError::NoRoom))) => {
            context.post(Level::Warning, &base::report(&error));
            Some(Outcome::Done(Next::Again))
        }
        Ok(Err(ProcessorError::Repository(error))) if is_passing(&error) => {
            context.post(Level::Error, &base::report(&error));
            Some(Outcome::Failed)
        }
        Ok(Err(ProcessorError::Repository(error))) => {
            context.ground.failure.report(error);
            None
        }
        Err(_) => {
            let rest = context.ground.options.administrative_yield.as_secs_f64();
            context.post(
                Level::Error,
                &format!("the processor panicked; it rests for {rest} s"),
            );
            Some(Outcome::Panicked)
        }
    }
}

/// One session of a processor, as the engine runs it when all is well.
#[cfg(test)]
pub(crate) fn trigger(
    context: &Context,
    processor: &mut dyn Processor,
) -> Result<Next, ProcessorError> {
    session(context, processor, true)
}

/// One session of a processor, committed, or rolled back on an error. After a failure it spans one
/// trigger (`spans` is false), so that what can go on does.
fn session(
    context: &Context,
    processor: &mut dyn Processor,
    spans: bool,
) -> Result<Next, ProcessorError> {
    let ground = &context.ground;
    let mut session = ProcessSession::new(&context.node, &ground.repository, ground.clock.as_ref());
    let outcome = span(context, processor, &mut session, spans)
        .and_then(|next| session.commit().map(|()| next));
    if outcome.is_err() {
        session.rollback();
    }
    for id in session.drop_damaged()? {
        let uuid = ground.repository.uuid(id);
        let message = format!("FlowFile {uuid} was dropped: its content on the disk is damaged");
        context.post(Level::Error, &message);
    }
    outcome
}

/// Triggers once, or again and again for as long as one session may span: until nothing waits,
/// there is no room, or the session is large.
fn span(
    context: &Context,
    processor: &mut dyn Processor,
    session: &mut ProcessSession<'_>,
    spans: bool,
) -> Result<Next, ProcessorError> {
    let node = &context.node;
    let slice = match spans {
        true => slice(context, processor),
        false => Duration::ZERO,
    };
    let started = Instant::now();
    loop {
        node.stats.invocations.fetch_add(1, Ordering::Relaxed);
        let next = processor.trigger(context, session)?;
        let goes_on = matches!(next, Next::Scheduled | Next::Again)
            && started.elapsed() < slice
            && !context.is_stopping()
            && !node.is_held()
            && !session.is_large()
            && node.input(session.now()) == Available::Now
            && !node.has_no_room();
        if !goes_on {
            return Ok(next);
        }
    }
}

/// How long one session may span triggers.
fn slice(context: &Context, processor: &dyn Processor) -> Duration {
    let definition = &context.node.definition;
    if !processor.is_batching() {
        return Duration::ZERO;
    }
    match definition.scheduling {
        Scheduling::EventDriven => {
            let slice = context.ground.options.event_driven_slice;
            definition.run_duration.max(slice)
        }
        _ => definition.run_duration,
    }
}

/// Whether the repository may do it when asked again.
pub(crate) fn is_passing(error: &AgentError) -> bool {
    matches!(
        error,
        AgentError::NoRoom
            | AgentError::Repository {
                // What is too large is so for this session alone; the others go on.
                source: JournalError::Full { .. } | JournalError::TooLarge { .. },
                ..
            }
    )
}
