//! The records of one share partition (a group's view of a partition) that are on their way, as a
//! state machine: who fetches, acknowledges or goes away, and the time, come in.
//!
//! Three things follow each other in a partition: what is finished for good (before `start`), what is
//! known (`start..end`, in runs of offsets that stand alike) and what nobody has asked for yet. A
//! record that is known is available, acquired by a member until a time, or finished while one before
//! it is not. The runs cover `start..end` without a gap, the first is never finished, and the last is
//! never one that nobody was given yet: so what is kept is bounded by how many records may be in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;

use super::{AcknowledgeError, Acknowledgement, Acquired, Fate};

/// The state of one share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    start: i64,
    end: i64,
    /// By first offset.
    runs: BTreeMap<i64, Run>,
}

/// Consecutive offsets that stand alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    last: i64,
    state: RunState,
    /// How often they were given to a member; of no account once they are finished.
    deliveries: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RunState {
    Available,
    Acquired { member: Arc<str>, until: UnixMillis },
    Finished,
}

/// What survives the process of a share partition: what was acquired is available again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The first offset that is not finished.
    pub(crate) start: i64,
    /// First and last offset, deliveries; none of those that are finished.
    pub(crate) runs: Vec<(i64, i64, Option<u16>)>,
}

/// Who acquires, and how much.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The member.
    pub(crate) member: Arc<str>,
    /// Until when what it acquires is its own.
    pub(crate) until: UnixMillis,
    /// How many records at most.
    pub(crate) records_max: i64,
    /// How many records of the partition may be on their way at a time.
    pub(crate) in_flight_max: i64,
}

/// How often a record is delivered at most.
pub(crate) type DeliveriesMax = u16;

impl InFlight {
    /// Nothing is on its way; the first record to deliver is the one at `start`.
    pub(crate) fn new(start: i64) -> Self {
        InFlight {
            start,
            end: start,
            runs: BTreeMap::new(),
        }
    }

    pub(crate) fn of_standing(standing: &Standing) -> Self {
        let mut in_flight = InFlight::new(standing.start);
        for (first, last, deliveries) in &standing.runs {
            // Whatever was written: what is known has no gap.
            if *first != in_flight.end || last < first {
                break;
            }
            let run = Run {
                last: *last,
                state: match deliveries {
                    Some(_) => RunState::Available,
                    None => RunState::Finished,
                },
                deliveries: deliveries.unwrap_or(0),
            };
            in_flight.runs.insert(*first, run);
            in_flight.end = last + 1;
        }
        in_flight.tidy();
        in_flight
    }

    pub(crate) fn standing(&self) -> Standing {
        let mut runs: Vec<(i64, i64, Option<u16>)> = Vec::with_capacity(self.runs.len());
        for (first, run) in &self.runs {
            let deliveries = match run.state {
                RunState::Finished => None,
                RunState::Available | RunState::Acquired { .. } => Some(run.deliveries),
            };
            match runs.last_mut() {
                // Who holds what is over with the process.
                Some((_, last, before)) if *before == deliveries => *last = run.last,
                _ => runs.push((*first, run.last, deliveries)),
            }
        }
        Standing {
            start: self.start,
            runs,
        }
    }

    /// The first offset that is not finished.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// How many records before `end` are still to be delivered to the end.
    pub(crate) fn unfinished_before(&self, end: i64) -> i64 {
        let finished = self.runs.iter().filter(|(_, run)| run.is_finished());
        let finished: i64 = finished.map(|(first, run)| run.last - first + 1).sum();
        (end - self.start - finished).max(0)
    }

    /// How many runs are kept.
    #[cfg(test)]
    pub(crate) fn runs_count(&self) -> usize {
        self.runs.len()
    }

    /// Where to read on for what may be acquired; none while as many records are on their way as may
    /// be.
    pub(crate) fn next(&self, in_flight_max: i64) -> Option<i64> {
        let mut runs = self.runs.iter();
        let available = runs.find(|(_, run)| run.state == RunState::Available);
        match available {
            Some((first, _)) => Some(*first),
            None => (self.end - self.start < in_flight_max).then_some(self.end),
        }
    }

    /// Gives a member what may be acquired of `first..=last`, which were read from the partition.
    pub(crate) fn acquire(&mut self, first: i64, last: i64, claim: &Claim) -> Vec<Acquired> {
        let mut left = claim.records_max;
        let mut taken: Vec<Acquired> = Vec::new();
        let mut from = first.max(self.start);
        while left > 0 && from <= last {
            let Some((at, until)) = self.available_within(from, last) else {
                break;
            };
            let until = until.min(at.saturating_add(left - 1));
            self.split(at);
            self.split(until + 1);
            let Some(run) = self.runs.get_mut(&at) else {
                break;
            };
            run.state = RunState::Acquired {
                member: Arc::clone(&claim.member),
                until: claim.until,
            };
            run.deliveries = run.deliveries.saturating_add(1);
            taken.push(Acquired {
                first: at,
                last: until,
                deliveries: run.deliveries,
            });
            left -= until - at + 1;
            from = until + 1;
        }
        // What nobody has been given yet begins at `end`, which no gap may come before.
        let room = self.start + claim.in_flight_max - self.end;
        let fresh = (last - self.end + 1).min(left).min(room);
        if first <= self.end && fresh > 0 {
            let run = Run {
                last: self.end + fresh - 1,
                state: RunState::Acquired {
                    member: Arc::clone(&claim.member),
                    until: claim.until,
                },
                deliveries: 1,
            };
            taken.push(Acquired {
                first: self.end,
                last: run.last,
                deliveries: 1,
            });
            let next = run.last + 1;
            self.runs.insert(self.end, run);
            self.end = next;
        }
        self.merge(first, last);
        joined(taken)
    }

    /// Takes note that of `first..=last` nothing can be delivered: there are no such records, or they
    /// are nobody's business.
    pub(crate) fn pass(&mut self, first: i64, last: i64) {
        let first = first.max(self.start);
        if first > last || first > self.end {
            return;
        }
        if last >= self.end {
            let run = Run {
                last,
                state: RunState::Available,
                deliveries: 0,
            };
            self.runs.insert(self.end, run);
            self.end = last + 1;
        }
        self.each_within(first, last, |run| {
            if run.state == RunState::Available {
                run.finish();
            }
        });
        self.tidy();
    }

    /// Takes what a member says of records that it has acquired, all or nothing. What lies before the
    /// start is finished already and may be acknowledged once more.
    pub(crate) fn acknowledge(
        &mut self,
        now: UnixMillis,
        member: &str,
        said: &[Acknowledgement],
        renewed_until: UnixMillis,
        deliveries_max: DeliveriesMax,
    ) -> Result<(), AcknowledgeError> {
        self.expire(now, deliveries_max);
        if !said
            .iter()
            .all(|said| self.holds(member, said.first, said.last))
        {
            return Err(AcknowledgeError::NotAcquired);
        }
        for said in said {
            for (first, last, fate) in said.fates() {
                self.each_within(first, last, |run| match fate {
                    Fate::Gap | Fate::Accept | Fate::Reject => run.finish(),
                    Fate::Release => run.release(deliveries_max),
                    Fate::Renew => run.renew(renewed_until),
                });
            }
        }
        self.tidy();
        Ok(())
    }

    /// Lets go of all that a member has acquired; whether that was something.
    pub(crate) fn release(&mut self, member: &str, deliveries_max: DeliveriesMax) -> bool {
        self.release_where(deliveries_max, |holder, _| holder == member)
    }

    /// Lets go of what was acquired until `now` or before; whether that was something.
    pub(crate) fn expire(&mut self, now: UnixMillis, deliveries_max: DeliveriesMax) -> bool {
        self.release_where(deliveries_max, |_, until| until <= now)
    }

    /// When [`InFlight::expire`] is to be called next.
    pub(crate) fn next_deadline(&self) -> Option<UnixMillis> {
        let until = self.runs.values().filter_map(|run| match run.state {
            RunState::Acquired { until, .. } => Some(until),
            _ => None,
        });
        until.min()
    }

    /// The partition begins at `start` now: nothing before it can be delivered. Whether that changes
    /// anything.
    pub(crate) fn begin_at(&mut self, start: i64) -> bool {
        if start <= self.start {
            return false;
        }
        self.split(start);
        self.runs = self.runs.split_off(&start);
        self.start = start;
        self.end = self.end.max(start);
        self.tidy();
        true
    }

    fn release_where(
        &mut self,
        deliveries_max: DeliveriesMax,
        goes: impl Fn(&str, UnixMillis) -> bool,
    ) -> bool {
        let mut any = false;
        for run in self.runs.values_mut() {
            if let RunState::Acquired { member, until } = &run.state
                && goes(member, *until)
            {
                run.release(deliveries_max);
                any = true;
            }
        }
        if any {
            self.tidy();
        }
        any
    }

    /// The first available offsets of `from..=last`.
    fn available_within(&self, from: i64, last: i64) -> Option<(i64, i64)> {
        let begins = self.runs.range(..=from).next_back();
        let begins = begins.map_or(from, |(first, _)| *first);
        let mut runs = self.runs.range(begins..=last);
        runs.find_map(|(first, run)| {
            let (first, until) = (from.max(*first), last.min(run.last));
            (run.state == RunState::Available && first <= until).then_some((first, until))
        })
    }

    /// Whether a member has acquired all of `first..=last` that are not before the start.
    fn holds(&self, member: &str, first: i64, last: i64) -> bool {
        let mut from = first.max(self.start);
        while from <= last {
            match self.runs.range(..=from).next_back() {
                Some((_, run)) if run.last >= from && run.is_of(member) => from = run.last + 1,
                _ => return false,
            }
        }
        true
    }

    /// Has a run begin at `at`, if there is one around it.
    fn split(&mut self, at: i64) {
        let Some((_, run)) = self.runs.range_mut(..at).next_back() else {
            return;
        };
        if run.last < at {
            return;
        }
        let mut second = run.clone();
        second.last = std::mem::replace(&mut run.last, at - 1);
        self.runs.insert(at, second);
    }

    fn each_within(&mut self, first: i64, last: i64, mut change: impl FnMut(&mut Run)) {
        let first = first.max(self.start);
        if first > last {
            return;
        }
        self.split(first);
        self.split(last + 1);
        self.runs
            .range_mut(first..=last)
            .for_each(|(_, run)| change(run));
    }

    /// Has what is finished at the front go, and at the end what nobody was given.
    fn tidy(&mut self) {
        self.merge(self.start, self.end);
        while let Some(first) = self.runs.first_entry().filter(|e| e.get().is_finished()) {
            self.start = first.remove().last + 1;
        }
        while let Some(last) = self.runs.last_entry().filter(|e| e.get().is_unknown()) {
            self.end = *last.key();
            last.remove();
        }
        self.end = self.end.max(self.start);
    }

    /// Makes one of runs that stand alike and lie side by side, of those that meet `first..=last`.
    fn merge(&mut self, first: i64, last: i64) {
        let before = self.runs.range(..first).next_back();
        let mut at = before.map_or(first, |(before, _)| *before);
        while at <= last {
            let Some((&here, run)) = self.runs.range(at..=last).next() else {
                return;
            };
            let after = self.runs.range(here + 1..).next();
            match after {
                Some((&next, other)) if run.is_like(other) => {
                    let end = other.last;
                    self.runs.remove(&next);
                    if let Some(run) = self.runs.get_mut(&here) {
                        run.last = end;
                    }
                    at = here;
                }
                Some((&next, _)) => at = next,
                None => return,
            }
        }
    }
}

impl Run {
    fn is_finished(&self) -> bool {
        self.state == RunState::Finished
    }

    fn is_of(&self, who: &str) -> bool {
        matches!(&self.state, RunState::Acquired { member, .. } if **member == *who)
    }

    /// Whether it stands as what nobody has asked for.
    fn is_unknown(&self) -> bool {
        self.state == RunState::Available && self.deliveries == 0
    }

    fn is_like(&self, other: &Run) -> bool {
        self.state == other.state && (self.is_finished() || self.deliveries == other.deliveries)
    }

    fn finish(&mut self) {
        self.state = RunState::Finished;
    }

    fn release(&mut self, deliveries_max: DeliveriesMax) {
        self.state = match self.deliveries >= deliveries_max {
            true => RunState::Finished,
            false => RunState::Available,
        };
    }

    fn renew(&mut self, until: UnixMillis) {
        if let RunState::Acquired { until: held, .. } = &mut self.state {
            *held = until;
        }
    }
}

/// Neighbours with as many deliveries together.
pub(crate) fn joined(taken: Vec<Acquired>) -> Vec<Acquired> {
    let mut all: Vec<Acquired> = Vec::with_capacity(taken.len());
    for next in taken {
        match all.last_mut() {
            Some(last) if last.last + 1 == next.first && last.deliveries == next.deliveries => {
                last.last = next.last;
            }
            _ => all.push(next),
        }
    }
    all
}
