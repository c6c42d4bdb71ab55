//! Bins in which FlowFiles wait for their company. No IO: what they hold is told by numbers.
//!
//! A bin is ready when it is full, or has what it needs at least, or is old enough. Of one group
//! only the newest bin takes more; what does not fit begins another one.

use std::collections::VecDeque;
use std::time::Duration;

use base::UnixMillis;

/// When bins are ready, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct BinRule {
    pub(super) entries_min: usize,
    pub(super) entries_max: usize,
    pub(super) bytes_min: u64,
    pub(super) bytes_max: u64,
    pub(super) age_max: Option<Duration>,
    pub(super) bins_max: usize,
    /// Things in all bins together.
    pub(super) held_max: usize,
}

/// Things of one group.
#[derive(Debug)]
pub(super) struct Bin<T> {
    pub(super) group: String,
    pub(super) things: Vec<T>,
    bytes: u64,
    born: UnixMillis,
    /// How many make it whole, where the things themselves say so.
    whole: Option<usize>,
}

/// All bins, oldest first.
#[derive(Debug)]
pub(super) struct Bins<T> {
    rule: BinRule,
    bins: VecDeque<Bin<T>>,
    held: usize,
}

impl<T> Bins<T> {
    pub(super) fn new(rule: BinRule) -> Self {
        Bins {
            rule,
            bins: VecDeque::new(),
            held: 0,
        }
    }

    /// Puts a thing of so many bytes into its group's bin; `whole` says how many of them make the
    /// group whole.
    pub(super) fn add(
        &mut self,
        now: UnixMillis,
        group: &str,
        whole: Option<usize>,
        thing: T,
        bytes: u64,
    ) {
        self.held += 1;
        let rule = self.rule;
        let newest = self.bins.iter_mut().rev().find(|bin| bin.group == group);
        if let Some(bin) = newest
            && bin.takes(&rule, bytes)
        {
            bin.things.push(thing);
            bin.bytes += bytes;
            return;
        }
        self.bins.push_back(Bin {
            group: group.to_owned(),
            things: vec![thing],
            bytes,
            born: now,
            whole,
        });
    }

    /// Takes out the oldest bin that is ready, or the oldest of all where there is too much. One at a
    /// time: whatever becomes of it, the others are still here.
    pub(super) fn next_ready(&mut self, now: UnixMillis) -> Option<Bin<T>> {
        let rule = self.rule;
        let is_too_much = self.bins.len() > rule.bins_max || self.held > rule.held_max;
        let ready = self.bins.iter().position(|bin| bin.is_ready(&rule, now));
        let bin = self.bins.remove(ready.or(is_too_much.then_some(0))?)?;
        self.held -= bin.things.len();
        Some(bin)
    }

    /// How long until the oldest bin is old enough, if bins age and there is one.
    pub(super) fn next_age(&self, now: UnixMillis) -> Option<Duration> {
        let oldest = self.bins.iter().map(|bin| bin.born).min()?;
        Some((oldest + self.rule.age_max?).since(now))
    }
}

impl<T> Bin<T> {
    /// Whether the things say that they are all of a whole.
    pub(super) fn is_whole(&self) -> bool {
        self.whole == Some(self.things.len())
    }

    fn takes(&self, rule: &BinRule, bytes: u64) -> bool {
        match self.whole {
            Some(whole) => self.things.len() < whole,
            None => {
                self.things.len() < rule.entries_max
                    && self.bytes.saturating_add(bytes) <= rule.bytes_max
            }
        }
    }

    fn is_ready(&self, rule: &BinRule, now: UnixMillis) -> bool {
        let is_old = rule
            .age_max
            .is_some_and(|age_max| now.since(self.born) >= age_max);
        let is_complete = match self.whole {
            Some(whole) => self.things.len() >= whole,
            None => {
                let is_full = self.things.len() >= rule.entries_max || self.bytes >= rule.bytes_max;
                is_full || self.things.len() >= rule.entries_min && self.bytes >= rule.bytes_min
            }
        };
        is_old || is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: BinRule = BinRule {
        entries_min: 3,
        entries_max: 4,
        bytes_min: 0,
        bytes_max: 100,
        age_max: Some(Duration::from_millis(50)),
        bins_max: 2,
        held_max: 10,
    };

    /// Adds things of a group's name, bytes and time, and says which came out when.
    fn play(rule: BinRule, things: &[(i64, &str, u64)]) -> Vec<(i64, Vec<usize>)> {
        let mut bins = Bins::new(rule);
        let mut out = Vec::new();
        for (index, (at, group, bytes)) in things.iter().enumerate() {
            let now = UnixMillis(*at);
            bins.add(now, group, None, index, *bytes);
            while let Some(bin) = bins.next_ready(now) {
                out.push((*at, bin.things));
            }
        }
        out
    }

    #[test]
    fn enough_is_enough() {
        let out = play(RULE, &[(0, "a", 1), (1, "b", 1), (2, "a", 1), (3, "a", 1)]);
        assert_eq!(out, [(3, vec![0, 2, 3])]);
        let rule = BinRule {
            bytes_min: 90,
            ..RULE
        };
        let things = [(0, "a", 1), (0, "a", 1), (0, "a", 1), (0, "a", 1)];
        assert_eq!(play(rule, &things), [(0, vec![0, 1, 2, 3])]);
    }

    #[test]
    fn what_does_not_fit_begins_another_bin() {
        let things = [(0, "a", 60), (0, "a", 60), (0, "a", 30), (0, "a", 5)];
        assert_eq!(play(RULE, &things), [(0, vec![1, 2, 3])]);
    }

    #[test]
    fn the_oldest_goes_when_it_is_old_or_there_are_too_many() {
        let out = play(
            RULE,
            &[(0, "a", 1), (10, "b", 1), (49, "b", 1), (50, "c", 1)],
        );
        assert_eq!(out, [(50, vec![0])]);
        let out = play(RULE, &[(0, "a", 1), (1, "b", 1), (2, "c", 1)]);
        assert_eq!(out, [(2, vec![0])]);
        let rule = BinRule {
            held_max: 1,
            ..RULE
        };
        assert_eq!(play(rule, &[(0, "a", 1), (1, "b", 1)]), [(1, vec![0])]);
    }

    #[test]
    fn a_whole_is_as_many_as_it_says() {
        let mut bins = Bins::new(RULE);
        for index in 0..6 {
            assert!(bins.next_ready(UnixMillis(0)).is_none());
            bins.add(UnixMillis(0), "a", Some(6), index, 50);
        }
        let ready = bins.next_ready(UnixMillis(0)).unwrap();
        assert!(ready.is_whole());
        assert_eq!(bins.held, 0);
        bins.add(UnixMillis(10), "a", Some(2), 0, 1);
        assert_eq!(
            bins.next_age(UnixMillis(20)),
            Some(Duration::from_millis(40))
        );
        assert!(!bins.next_ready(UnixMillis(60)).unwrap().is_whole());
        assert_eq!(bins.next_age(UnixMillis(60)), None);
    }
}
