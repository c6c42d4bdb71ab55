//! Schedules played through on clocks that are moved by hand.

use std::cell::Cell;

use base::Rng;

use super::*;
use crate::cron::Cron;

struct World {
    available: Cell<Option<Available>>,
    is_held_back: Cell<bool>,
}

impl Surroundings for World {
    fn available(&self, _now: UnixMillis) -> Option<Available> {
        self.available.get()
    }

    fn is_held_back(&self) -> bool {
        self.is_held_back.get()
    }
}

fn world(available: Option<Available>) -> World {
    World {
        available: Cell::new(available),
        is_held_back: Cell::new(false),
    }
}

fn schedule(scheduling: Scheduling, now: Instant) -> Schedule {
    let plan = Plan {
        scheduling,
        yield_period: Duration::from_secs(1),
        administrative_yield: Duration::from_secs(30),
        zone: TimeZone::UTC,
    };
    Schedule::new(plan, now, UnixMillis(0))
}

/// A timer of a flow that sets this period.
fn timer(period: Duration) -> Scheduling {
    Scheduling::TimerDriven {
        period,
        is_set: true,
    }
}

/// The wall clock `ms` after the start.
fn wall(ms: u64) -> UnixMillis {
    UnixMillis(i64::try_from(ms).unwrap())
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn a_timer_counts_from_the_start_of_the_run_before() {
    let zero = Instant::now();
    let around = world(None);
    let mut schedule = schedule(timer(MS(100)), zero);
    assert_eq!(
        schedule.decide(zero, wall(0), false, &around),
        Decision::Run
    );
    let done = Outcome::Done(Next::Scheduled);
    schedule.after(zero, zero + MS(30), wall(30), done, &around);
    let due = zero + MS(100);
    let decision = schedule.decide(zero + MS(30), wall(30), false, &around);
    assert_eq!(decision, Decision::SleepUntil(due));
    assert_eq!(
        schedule.decide(due, wall(100), false, &around),
        Decision::Run
    );
    // One that has more to do does not wait for its period.
    schedule.after(
        due,
        due + MS(5),
        wall(105),
        Outcome::Done(Next::Again),
        &around,
    );
    assert_eq!(
        schedule.decide(due + MS(5), wall(105), false, &around),
        Decision::Run
    );
}

#[test]
fn a_period_that_is_set_holds_back_what_waits_and_tries_after_a_failure() {
    let zero = Instant::now();
    let around = world(Some(Available::Now));
    for outcome in [
        Outcome::Done(Next::Scheduled),
        Outcome::Done(Next::ScheduledOr(MS(50))),
        Outcome::Done(Next::Yield),
        Outcome::Failed,
        Outcome::Panicked,
    ] {
        let mut schedule = schedule(timer(MS(60_000)), zero);
        schedule.after(zero, zero + MS(5), wall(5), outcome, &around);
        let decision = schedule.decide(zero + MS(5), wall(5), false, &around);
        assert_eq!(
            decision,
            Decision::SleepUntil(zero + MS(60_000)),
            "{outcome:?}"
        );
    }
    // Longer rests hold too.
    let mut short = schedule(timer(MS(100)), zero);
    short.after(zero, zero, wall(0), Outcome::Failed, &around);
    let decision = short.decide(zero, wall(0), false, &around);
    assert_eq!(decision, Decision::SleepUntil(zero + MS(1_000)));
}

#[test]
fn without_a_period_in_the_flow_what_waits_is_worked_off() {
    let zero = Instant::now();
    let around = world(Some(Available::Now));
    let unset = Scheduling::TimerDriven {
        period: MS(1_000),
        is_set: false,
    };
    for scheduling in [unset, timer(Duration::ZERO)] {
        let mut schedule = schedule(scheduling, zero);
        let done = Outcome::Done(Next::Scheduled);
        schedule.after(zero, zero, wall(0), done, &around);
        let decision = schedule.decide(zero, wall(0), false, &around);
        assert_eq!(decision, Decision::Run, "{scheduling:?}");
    }
}

#[test]
fn who_has_no_input_or_no_room_sleeps_until_it_is_rung() {
    let now = Instant::now();
    let around = world(Some(Available::Nothing));
    let mut schedule = schedule(Scheduling::EventDriven, now);
    let decide = |schedule: &mut Schedule| schedule.decide(now, wall(0), false, &around);
    assert_eq!(decide(&mut schedule), Decision::Sleep);
    around.available.set(Some(Available::At(wall(70))));
    assert_eq!(decide(&mut schedule), Decision::SleepUntil(now + MS(70)));
    around.available.set(Some(Available::Now));
    assert_eq!(decide(&mut schedule), Decision::Run);
    around.is_held_back.set(true);
    assert_eq!(decide(&mut schedule), Decision::Sleep);
}

#[test]
fn rests_double_up_to_a_bound_and_a_success_ends_that() {
    let mut now = Instant::now();
    let around = world(None);
    let mut schedule = schedule(timer(Duration::ZERO), now);
    let mut rests = Vec::new();
    for outcome in [
        Outcome::Failed,
        Outcome::Done(Next::Yield),
        Outcome::Failed,
        Outcome::Failed,
        Outcome::Failed,
        Outcome::Done(Next::Scheduled),
        Outcome::Failed,
        Outcome::Panicked,
    ] {
        schedule.after(now, now, wall(0), outcome, &around);
        match schedule.decide(now, wall(0), false, &around) {
            Decision::SleepUntil(due) => {
                rests.push((due - now).as_secs());
                now = due;
            }
            decision => {
                assert_eq!(decision, Decision::Run);
                rests.push(0);
            }
        }
    }
    assert_eq!(rests, [1, 2, 4, 8, 8, 0, 1, 30]);
}

#[test]
fn a_calendar_is_due_at_its_times_alone_and_catches_nothing_up() {
    let zero = Instant::now();
    let around = world(None);
    let cron = Cron::parse("*/10 * * * * ?").unwrap();
    let mut schedule = schedule(Scheduling::CronDriven(cron), zero);
    let mut runs = Vec::new();
    let mut at = 0;
    while at < 45_000 {
        let now = zero + MS(at);
        match schedule.decide(now, wall(at), false, &around) {
            Decision::Run => {
                runs.push(at);
                // The second run takes longer than a period.
                let took = if runs.len() == 2 { 12_000 } else { 1 };
                at += took;
                let done = Outcome::Done(Next::Scheduled);
                schedule.after(now, zero + MS(at), wall(at), done, &around);
            }
            Decision::SleepUntil(due) => at = u64::try_from((due - zero).as_millis()).unwrap(),
            Decision::Sleep => panic!("it is due again"),
        }
    }
    assert_eq!(runs, [10_000, 20_000, 40_000]);
}

#[test]
fn a_calendars_time_without_input_is_over() {
    let zero = Instant::now();
    let around = world(Some(Available::Nothing));
    let cron = Cron::parse("0 * * * * ?").unwrap();
    let mut schedule = schedule(Scheduling::CronDriven(cron), zero);
    let minute = zero + MS(60_000);
    assert_eq!(
        schedule.decide(minute, wall(60_000), false, &around),
        Decision::Sleep
    );
    // Input that comes a second later waits for the next minute.
    around.available.set(Some(Available::Now));
    let decision = schedule.decide(minute + MS(1_000), wall(61_000), false, &around);
    assert!(matches!(decision, Decision::SleepUntil(_)), "{decision:?}");
    let next = zero + MS(120_000);
    assert_eq!(
        schedule.decide(next, wall(120_000), false, &around),
        Decision::Run
    );
}

#[test]
fn who_waits_to_be_woken_is_woken_or_comes_by_itself() {
    let now = Instant::now();
    let around = world(None);
    let mut schedule = schedule(timer(Duration::ZERO), now);
    let woken = Outcome::Done(Next::Woken(MS(500)));
    schedule.after(now, now, wall(0), woken, &around);
    let late = now + MS(499);
    let decision = schedule.decide(late, wall(499), false, &around);
    assert_eq!(decision, Decision::SleepUntil(now + MS(500)));
    assert_eq!(
        schedule.decide(late, wall(499), true, &around),
        Decision::Run
    );
    schedule.after(late, late, wall(499), woken, &around);
    assert_eq!(
        schedule.decide(late + MS(500), wall(999), false, &around),
        Decision::Run
    );
}

/// Whatever happens, a schedule never runs without input, without room or while it rests, and
/// always comes back by itself from what time alone holds up.
#[test]
fn no_schedule_runs_when_it_may_not_or_sleeps_for_ever_when_it_may() {
    let mut random = Rng::from_entropy();
    for _ in 0..300 {
        let zero = Instant::now();
        let scheduling = match random.below(3) {
            0 => Scheduling::EventDriven,
            1 => Scheduling::TimerDriven {
                period: MS(random.below(200)),
                is_set: random.one_in(2),
            },
            _ => Scheduling::CronDriven(Cron::parse("* * * * * ?").unwrap()),
        };
        let around = world(None);
        let mut schedule = schedule(scheduling, zero);
        let mut ms = 0;
        let mut rests_until = zero;
        for _ in 0..200 {
            let now = zero + MS(ms);
            around.is_held_back.set(random.one_in(4));
            around.available.set(match random.below(4) {
                0 => None,
                1 => Some(Available::Nothing),
                2 => Some(Available::At(wall(ms + 1 + random.below(300)))),
                _ => Some(Available::Now),
            });
            match schedule.decide(now, wall(ms), false, &around) {
                Decision::Run => {
                    assert!(!around.is_held_back.get(), "it ran without room");
                    let input = around.available.get();
                    assert!(
                        matches!(input, None | Some(Available::Now)),
                        "it ran on {input:?}"
                    );
                    assert!(now >= rests_until, "it ran while it should rest");
                    let took = random.below(50);
                    let outcome = match random.below(6) {
                        0 => Outcome::Failed,
                        1 => Outcome::Panicked,
                        2 => Outcome::Done(Next::Yield),
                        3 => Outcome::Done(Next::Again),
                        4 => Outcome::Done(Next::Woken(MS(random.below(100)))),
                        _ => Outcome::Done(Next::Scheduled),
                    };
                    ms += took;
                    let end = zero + MS(ms);
                    schedule.after(now, end, wall(ms), outcome, &around);
                    rests_until = match outcome {
                        Outcome::Panicked => end + Duration::from_secs(30),
                        Outcome::Failed | Outcome::Done(Next::Yield) => end + MS(1_000),
                        _ => rests_until,
                    };
                }
                Decision::SleepUntil(due) => {
                    assert!(due > now, "it would spin");
                    let until = u64::try_from((due - zero).as_millis()).unwrap();
                    // Rung early, or not.
                    ms = if random.one_in(3) {
                        ms + 1
                    } else {
                        until.max(ms + 1)
                    };
                }
                Decision::Sleep => {
                    let may = !around.is_held_back.get()
                        && matches!(
                            around.available.get(),
                            None | Some(Available::Now | Available::At(_))
                        );
                    assert!(!may, "it would never come back");
                    ms += 1 + random.below(100);
                }
            }
        }
    }
}

#[test]
fn what_comes_of_age_runs_without_input_and_only_once() {
    let zero = Instant::now();
    let around = world(Some(Available::Now));
    let mut schedule = schedule(Scheduling::EventDriven, zero);
    let keeps = Outcome::Done(Next::ScheduledOr(MS(50)));
    schedule.after(zero, zero, wall(0), keeps, &around);
    // Input is not kept waiting.
    assert_eq!(
        schedule.decide(zero, wall(0), false, &around),
        Decision::Run
    );
    schedule.after(zero, zero, wall(0), keeps, &around);
    around.available.set(Some(Available::Nothing));
    let due = zero + MS(50);
    assert_eq!(
        schedule.decide(zero, wall(0), false, &around),
        Decision::SleepUntil(due)
    );
    // A penalty that ends later does not hold it up.
    around.available.set(Some(Available::At(wall(90))));
    assert_eq!(
        schedule.decide(zero, wall(0), false, &around),
        Decision::SleepUntil(due)
    );
    assert_eq!(
        schedule.decide(due, wall(50), false, &around),
        Decision::Run
    );
    around.available.set(Some(Available::Nothing));
    let done = Outcome::Done(Next::Scheduled);
    schedule.after(due, due, wall(50), done, &around);
    assert_eq!(
        schedule.decide(due, wall(50), false, &around),
        Decision::Sleep
    );
}
