//! When the writer rests between two syncs, so that one serves more appends.
//!
//! A client that sends at its own pace, whether it was answered or not, is answered a little later
//! and costs a fraction: one write, one sync, and one wake-up of each thread for all that came
//! meanwhile. A client that waits for its answers would only be slowed down. Nothing tells the two
//! apart from outside, so the writer tries: it rests once in a while, and goes on resting as long as
//! most of what came in a rest was sent by somebody who had no answer yet, and did not all come at
//! once, as it does from a client that may have so many requests in flight and no more.

use crate::limits;

/// Whether the writer rests, by what its rests were good for.
pub(crate) struct Pace {
    /// Rests that may be good for nothing until there are no more.
    credit: u8,
    /// Syncs until the next trial.
    until_trial: u32,
    /// Syncs between this trial and the next.
    trial_after: u32,
}

/// What one sync was for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub appends: usize,
    /// Of these, how many came from somebody who waited for an answer already.
    pub sent_on: usize,
    /// Of these, how many did not come at the beginning of the rest.
    pub late: usize,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Pace {
            credit: 0,
            until_trial: limits::TRIAL_AFTER_MIN,
            trial_after: limits::TRIAL_AFTER_MIN,
        }
    }

    /// Whether a rest follows.
    pub(crate) fn rests(&self) -> bool {
        self.credit > 0
    }

    /// Judges the rest before a sync, if there was one.
    pub(crate) fn note(&mut self, taken: Taken) {
        let of_most = |count: usize| 2 * count >= taken.appends;
        if taken.appends > 1 && of_most(taken.sent_on) && of_most(taken.late) {
            self.credit = limits::REST_CREDIT;
            self.trial_after = limits::TRIAL_AFTER_MIN;
            return;
        }
        if self.credit > 0 {
            self.credit -= 1;
            if self.credit == 0 {
                self.until_trial = self.trial_after;
                self.trial_after = (2 * self.trial_after).min(limits::TRIAL_AFTER_MAX);
            }
            return;
        }
        self.until_trial -= 1;
        if self.until_trial == 0 {
            self.credit = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONE: Taken = Taken {
        appends: 1,
        sent_on: 0,
        late: 0,
    };

    /// Syncs until the next rest.
    fn syncs_until_rest(pace: &mut Pace, taken: Taken) -> u32 {
        let mut syncs = 0;
        while !pace.rests() {
            pace.note(taken);
            syncs += 1;
        }
        syncs
    }

    #[test]
    fn who_waits_for_answers_is_tried_ever_more_seldom() {
        let mut pace = Pace::new();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(syncs_until_rest(&mut pace, LONE));
            pace.note(LONE);
            assert!(!pace.rests());
        }
        assert_eq!(waits, [16, 16, 32, 64, 128, 256, 512, 1_024, 1_024]);
    }

    #[test]
    fn rests_go_on_while_they_are_good_for_something() {
        let (good, full) = (
            Taken {
                appends: 2,
                sent_on: 1,
                late: 1,
            },
            Taken {
                appends: 5,
                sent_on: 4,
                late: 0,
            },
        );
        let mut pace = Pace::new();
        syncs_until_rest(&mut pace, LONE);
        for _ in 0..100 {
            pace.note(good);
            // Not every rest has to be.
            for _ in 0..limits::REST_CREDIT - 1 {
                pace.note(LONE);
                assert!(pace.rests());
            }
        }
        // Five in flight and no more: all at once, then nothing.
        pace.note(good);
        for _ in 0..limits::REST_CREDIT {
            pace.note(full);
        }
        assert!(!pace.rests());
        assert_eq!(
            syncs_until_rest(&mut pace, full),
            limits::TRIAL_AFTER_MIN,
            "what was good once is tried again soon"
        );
    }

    #[test]
    fn many_who_wait_are_not_slowed_down() {
        let many = Taken {
            appends: 16,
            sent_on: 0,
            late: 16,
        };
        let mut pace = Pace::new();
        syncs_until_rest(&mut pace, many);
        pace.note(many);
        assert!(!pace.rests());
    }
}
