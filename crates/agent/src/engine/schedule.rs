//! When a task of a processor may run: decided from what it is told, without looking or waiting
//! itself, so that it can be played through.
//!
//! In this order: does it rest, is it due, is there input, is there room behind every outgoing
//! connection? Whoever asks sleeps as long as the answer says, or until it is rung.
//!
//! - TIMER_DRIVEN counts from a start. A period that the flow sets holds whatever waits, after a
//!   failure too: one session, or a try at one, a period. Where it sets none, input that waits is
//!   worked off at once. A source that has more to take in goes on in both cases.
//! - CRON_DRIVEN is due at its times alone; what waits then is worked off.
//! - A yield and a failure rest for the yield period, doubled with each that follows at once, up
//!   to [`YIELD_FACTOR_MAX`] times; any success ends that. A panic rests for the administrative
//!   yield.
//! - There is no bored yield: who has nothing to do sleeps until something rings.

use std::time::{Duration, Instant};

use base::UnixMillis;
use jiff::tz::TimeZone;

use crate::connection::Available;
use crate::definition::Scheduling;
use crate::processors::Next;

/// When a task may run next.
#[derive(Debug)]
pub(super) struct Schedule {
    plan: Plan,
    due: Instant,
    /// The calendar's next time; never due when there is none any more.
    cron: Option<Calendar>,
    /// It waits to be woken until then.
    woken_until: Option<Instant>,
    /// It runs then without input too.
    alarm: Option<Instant>,
    /// Rests that followed each other without a success between them.
    rests: u32,
}

/// What a schedule goes by.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scheduling: Scheduling,
    pub(super) yield_period: Duration,
    pub(super) administrative_yield: Duration,
    /// The zone of cron times.
    pub(super) zone: TimeZone,
}

#[derive(Clone, Copy, Debug)]
struct Calendar {
    due: Option<UnixMillis>,
}

/// What a task sees around it.
pub(super) trait Surroundings {
    /// What there is to take; `None` for a task that needs no input.
    fn available(&self, now: UnixMillis) -> Option<Available>;

    /// Whether there is no room for what it would make.
    fn is_held_back(&self) -> bool;
}

/// How a run came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It said when it wants to run again.
    Done(Next),
    /// It failed and was rolled back.
    Failed,
    /// It panicked.
    Panicked,
}

/// What a task does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It runs.
    Run,
    /// It sleeps until then at the latest, or until it is rung.
    SleepUntil(Instant),
    /// It sleeps until it is rung.
    Sleep,
}

impl Schedule {
    pub(super) fn new(plan: Plan, now: Instant, wall: UnixMillis) -> Self {
        let cron = match plan.scheduling {
            Scheduling::CronDriven(cron) => Some(Calendar {
                due: cron.next_in(wall, &plan.zone),
            }),
            _ => None,
        };
        Schedule {
            plan,
            due: now,
            cron,
            woken_until: None,
            alarm: None,
            rests: 0,
        }
    }

    /// Whether the last run was no failure and no yield.
    pub(super) fn is_well(&self) -> bool {
        self.rests == 0
    }

    /// Whether to run; `is_woken` says whether the task was called by name since the last time.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        wall: UnixMillis,
        is_woken: bool,
        around: &impl Surroundings,
    ) -> Decision {
        if let Some(until) = self.woken_until {
            if !is_woken && now < until {
                return Decision::SleepUntil(until);
            }
            self.woken_until = None;
        }
        if now < self.due {
            return Decision::SleepUntil(self.due);
        }
        if let Some(calendar) = self.cron {
            match calendar.due {
                None => return Decision::Sleep,
                Some(due) if wall < due => {
                    // The host's clock may be set meanwhile: it is looked at again and again.
                    let wait = due.since(wall).min(CLOCK_RECHECK);
                    return Decision::SleepUntil(now + wait);
                }
                Some(_) => {}
            }
        }
        match around.available(wall) {
            None | Some(Available::Now) => {}
            Some(_) if self.alarm.is_some_and(|alarm| now >= alarm) => {}
            Some(Available::At(at)) => {
                let at = now + at.since(wall);
                return Decision::SleepUntil(self.alarm.map_or(at, |alarm| alarm.min(at)));
            }
            Some(Available::Nothing) => {
                self.pass_by(wall);
                return self.alarm.map_or(Decision::Sleep, Decision::SleepUntil);
            }
        }
        if around.is_held_back() {
            return Decision::Sleep;
        }
        Decision::Run
    }

    /// Takes in how a run came out that began at `started`.
    pub(super) fn after(
        &mut self,
        started: Instant,
        now: Instant,
        wall: UnixMillis,
        outcome: Outcome,
        around: &impl Surroundings,
    ) {
        let is_rest = matches!(outcome, Outcome::Failed | Outcome::Done(Next::Yield));
        self.rests = if is_rest {
            self.rests.saturating_add(1)
        } else {
            0
        };
        let (period, is_set) = match self.plan.scheduling {
            Scheduling::TimerDriven { period, is_set } => (period, is_set),
            Scheduling::EventDriven | Scheduling::CronDriven(_) => (Duration::ZERO, false),
        };
        let input = around.available(wall);
        let throttle = match is_set && input.is_some() {
            true => period,
            false => Duration::ZERO,
        };
        self.alarm = match outcome {
            Outcome::Done(Next::ScheduledOr(after)) => Some(now + after),
            _ => None,
        };
        let has_more = throttle.is_zero() && input == Some(Available::Now);
        let due = match outcome {
            Outcome::Panicked => now + self.plan.administrative_yield,
            Outcome::Failed | Outcome::Done(Next::Yield) => now + self.rest(),
            Outcome::Done(Next::Again) => return,
            Outcome::Done(Next::Scheduled | Next::ScheduledOr(_)) if has_more => return,
            Outcome::Done(Next::Listening(_)) => now,
            Outcome::Done(Next::Scheduled | Next::ScheduledOr(_) | Next::Woken(_)) => {
                started + period
            }
        };
        self.due = due.max(started + throttle);
        if let Outcome::Done(Next::Woken(at_the_latest) | Next::Listening(at_the_latest)) = outcome
        {
            self.woken_until = Some(now + at_the_latest);
        }
        if !is_rest {
            self.pass_by(wall);
        }
    }

    /// A time of the calendar that has come is over, whether there was work or not.
    fn pass_by(&mut self, wall: UnixMillis) {
        if let (Some(calendar), Scheduling::CronDriven(cron)) =
            (&mut self.cron, self.plan.scheduling)
            && calendar.due.is_some_and(|due| due <= wall)
        {
            calendar.due = cron.next_in(wall, &self.plan.zone);
        }
    }

    fn rest(&self) -> Duration {
        let factor = 1 << self.rests.saturating_sub(1).min(YIELD_FACTOR_MAX.ilog2());
        self.plan.yield_period * factor
    }
}

/// A rest grows up to so many yield periods.
pub(super) const YIELD_FACTOR_MAX: u32 = 8;

/// How long a calendar trusts that the host's clock was not set.
const CLOCK_RECHECK: Duration = Duration::from_secs(30);

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
