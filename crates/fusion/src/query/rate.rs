//! When rows leave: at once, or held and told together by count, time or condition.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::codec::{Decoder, Encoder};
use crate::plan::{OutputAfter, OutputEvery, OutputKind, OutputRate, Schedule};
use crate::query::compiled::RowKind;
use crate::query::select::{GroupKey, Made, Step};
use crate::query::tuple::Row;
use crate::query::window::{decode_time, encode_time, millis};
use crate::value::{OwnedValue, Value};

/// What an output rate holds.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    /// When the next output is due, ms.
    due: Option<i64>,
    /// When the statement started, ms.
    started: i64,
    /// Entered and left since the last output, and ever.
    counts: [i64; 4],
    last_output: Option<i64>,
    /// Rows that wait.
    held: Vec<Made>,
    held_bytes: usize,
    /// Of `last`, the place in `held` of each group's row; new and old.
    places: HashMap<(GroupKey, bool), usize>,
    /// Of `first`, that the next rows are left out until the next output.
    is_muted: bool,
    /// Of `first` by groups: until when, or for how many events more, each is left out.
    muted: BTreeMap<GroupKey, i64>,
}

/// What has to happen after rows were given to a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// Nothing leaves.
    Wait,
    /// The rows given leave at once.
    Pass,
    /// An output is due.
    Output,
}

impl Rate {
    /// The state at a statement's start.
    pub fn start(now: i64) -> Self {
        Rate {
            started: now,
            ..Rate::default()
        }
    }

    /// When an output is due by time.
    pub fn deadline(&self) -> Option<i64> {
        self.due
    }

    /// Moves on to the next time; call it when an output was due by time.
    pub fn next(&mut self, rate: &OutputRate, now: i64) {
        self.due = self.next_due(rate, now);
        self.is_muted = false;
    }

    fn next_due(&self, rate: &OutputRate, now: i64) -> Option<i64> {
        match &rate.every {
            OutputEvery::Time(length) => Some(now + millis(*length)),
            OutputEvery::At(schedule) => next_time(schedule, now),
            _ => None,
        }
    }

    /// Takes rows, of so many events that entered and left, and says what happens.
    pub fn take(
        &mut self,
        step: Step<'_>,
        rate: &OutputRate,
        entered: usize,
        left: usize,
        made: &mut Vec<Made>,
    ) -> Now {
        let (entered, left) = (entered as i64, left as i64);
        self.counts[2] += entered;
        self.counts[3] += left;
        if !self.is_begun(rate, step.now) {
            self.hold_back(step, rate, made);
            return Now::Wait;
        }
        let is_by_group = matches!(step.compiled.kind, RowKind::Group | RowKind::EventOfGroup);
        if rate.kind == OutputKind::First && !is_by_group && !self.is_muted && made.is_empty() {
            // The interval begins with its first row.
            return Now::Pass;
        }
        self.counts[0] += entered;
        self.counts[1] += left;
        // Outputs by time are counted from the first event on.
        if self.due.is_none() {
            self.due = self.next_due(rate, step.now);
        }
        match rate.kind {
            OutputKind::First => return self.first(step, rate, made),
            OutputKind::Snapshot => made.clear(),
            OutputKind::Each => self.hold(made),
            OutputKind::All => match step.compiled.kind {
                // Their rows are made when they leave.
                RowKind::Group => made.clear(),
                _ => self.hold(made),
            },
            OutputKind::Last => self.hold_last(step.compiled.kind, made),
        }
        let is_due = match &rate.every {
            OutputEvery::Always => return self.pass(made),
            OutputEvery::Events(count) => {
                let count = i64::from(*count);
                self.counts[0] >= count || self.counts[1] >= count
            }
            OutputEvery::Never | OutputEvery::Time(_) | OutputEvery::At(_) => false,
            OutputEvery::When(_) => self.is_met(step),
        };
        if is_due { Now::Output } else { Now::Wait }
    }

    /// The rows that wait; they leave now.
    pub fn take_held(&mut self, now: i64) -> Vec<Made> {
        self.counts[0] = 0;
        self.counts[1] = 0;
        self.last_output = Some(now);
        self.held_bytes = 0;
        self.places.clear();
        std::mem::take(&mut self.held)
    }

    /// True once `after` has passed.
    pub fn is_begun(&self, rate: &OutputRate, now: i64) -> bool {
        self.is_begun_by(rate, now, 0)
    }

    /// The same when so many events more have entered.
    fn is_begun_by(&self, rate: &OutputRate, now: i64, entered: usize) -> bool {
        match rate.after {
            None => true,
            Some(OutputAfter::Events(count)) => self.counts[2] + entered as i64 > i64::from(count),
            Some(OutputAfter::Time(length)) => now >= self.started + millis(length),
        }
    }

    /// Bytes of rows that wait, about.
    pub fn bytes(&self) -> usize {
        self.held_bytes + self.muted.len() * MUTED_BYTES
    }

    /// True when rows wait.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Writes the state.
    pub fn encode(&self, out: &mut Encoder) {
        encode_time(self.due, out);
        out.i64(self.started);
        self.counts.iter().for_each(|count| out.i64(*count));
        encode_time(self.last_output, out);
        out.count(self.held.len());
        for made in &self.held {
            out.bytes(&made.text);
            out.count(made.order.len());
            for value in &made.order {
                crate::aggregate::encode_value(value, out);
            }
            out.u8(u8::from(made.is_old) | u8::from(made.group.is_some()) << 1);
            if let Some(group) = &made.group {
                out.bytes(group);
            }
        }
        out.u8(u8::from(self.is_muted));
        out.count(self.muted.len());
        for (key, until) in &self.muted {
            out.bytes(key);
            out.i64(*until);
        }
    }

    /// Reads it back; `is_last` where only the last row of each group waits.
    pub fn decode(is_last: bool, from: &mut Decoder<'_>) -> Option<Self> {
        let mut own = Rate {
            due: decode_time(from)?,
            started: from.i64()?,
            ..Rate::default()
        };
        for count in &mut own.counts {
            *count = from.i64()?;
        }
        own.last_output = decode_time(from)?;
        for _ in 0..from.count()? {
            let text = from.bytes()?.to_vec();
            let mut order: Vec<OwnedValue> = Vec::new();
            for _ in 0..from.count()? {
                order.push(crate::aggregate::decode_value(from)?);
            }
            let flags = from.u8()?;
            let group = match flags & 2 {
                0 => None,
                _ => Some(GroupKey::from(from.bytes()?)),
            };
            let made = Made {
                text,
                order,
                is_old: flags & 1 != 0,
                group,
            };
            own.held_bytes += held_bytes(&made);
            if is_last {
                let key = (made.group.clone().unwrap_or_default(), made.is_old);
                own.places.insert(key, own.held.len());
            }
            own.held.push(made);
        }
        own.is_muted = from.u8()? != 0;
        for _ in 0..from.count()? {
            let key = GroupKey::from(from.bytes()?);
            own.muted.insert(key, from.i64()?);
        }
        Some(own)
    }

    /// What comes before `after` is told with the first output; rows that stand for their event
    /// alone, or are told at once, are left out.
    fn hold_back(&mut self, step: Step<'_>, rate: &OutputRate, made: &mut Vec<Made>) {
        let is_grouped = step.compiled.kind == RowKind::Group;
        let is_plain = step.compiled.kind == RowKind::Event;
        match rate.kind {
            _ if matches!(rate.every, OutputEvery::Always) => made.clear(),
            OutputKind::Each if is_plain => made.clear(),
            OutputKind::Each => self.hold(made),
            OutputKind::All if !is_grouped => self.hold(made),
            OutputKind::First if is_grouped => self.hold(made),
            OutputKind::Last => self.hold_last(step.compiled.kind, made),
            OutputKind::All | OutputKind::First | OutputKind::Snapshot => made.clear(),
        }
    }

    fn pass(&mut self, made: &mut Vec<Made>) -> Now {
        if self.held.is_empty() {
            return Now::Pass;
        }
        self.held.append(made);
        *made = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        self.places.clear();
        Now::Pass
    }

    /// Has rows wait for the next output.
    pub fn hold(&mut self, made: &mut Vec<Made>) {
        self.held_bytes += made.iter().map(held_bytes).sum::<usize>();
        self.held.append(made);
    }

    fn hold_last(&mut self, kind: RowKind, made: &mut Vec<Made>) {
        for made in made.drain(..) {
            let key = (made.group.clone().unwrap_or_default(), made.is_old);
            match self.places.get(&key).copied() {
                // Of what a group or everything was before, the first counts: it is what the last
                // output told.
                Some(_) if made.is_old && matches!(kind, RowKind::All | RowKind::Group) => {}
                Some(place) => {
                    self.held_bytes -= held_bytes(&self.held[place]);
                    self.held_bytes += held_bytes(&made);
                    self.held[place] = made;
                }
                None => {
                    self.places.insert(key, self.held.len());
                    self.held_bytes += held_bytes(&made);
                    self.held.push(made);
                }
            }
        }
    }

    fn first(&mut self, step: Step<'_>, rate: &OutputRate, made: &mut Vec<Made>) -> Now {
        if step.compiled.kind == RowKind::Group {
            return self.pass(made);
        }
        if step.compiled.kind == RowKind::EventOfGroup {
            made.retain(|made| {
                let key = made.group.clone().unwrap_or_default();
                self.lets_pass(step.now, rate, key)
            });
            return Now::Pass;
        }
        if self.is_muted {
            made.clear();
        } else if !made.is_empty() {
            self.is_muted = true;
            self.last_output = Some(step.now);
        }
        let ends = match &rate.every {
            OutputEvery::Events(count) => {
                let count = i64::from(*count);
                self.counts[0] >= count || self.counts[1] >= count
            }
            OutputEvery::When(_) => self.is_met(step),
            OutputEvery::Always => true,
            OutputEvery::Never | OutputEvery::Time(_) | OutputEvery::At(_) => false,
        };
        if ends {
            self.counts[0] = 0;
            self.counts[1] = 0;
            self.is_muted = false;
        }
        Now::Pass
    }

    /// Of `first` by groups: the groups that one of these events, which entered and then left,
    /// makes the first of their interval, each with the place of the event that does. Only events
    /// that `counts` lets pass count; what entered and what left are counted apart.
    pub fn firsts(
        &mut self,
        step: Step<'_>,
        rate: &OutputRate,
        [new, old]: [&[Row]; 2],
        counts: impl Fn(&GroupKey, &Row) -> bool,
    ) -> Vec<(usize, GroupKey)> {
        let mut is_begun = true;
        if let OutputEvery::Time(length) = &rate.every {
            is_begun = self.is_begun_by(rate, step.now, new.len());
            if is_begun {
                let held = self.held.iter().filter_map(|made| made.group.clone());
                let until = step.now + millis(*length);
                self.muted.extend(held.map(|key| (key, until)));
            }
        }
        let keys = &step.compiled.query().group_by;
        let mut firsts = Vec::new();
        let mut seen: HashSet<GroupKey> = HashSet::new();
        for (place, row) in new.iter().chain(old).enumerate() {
            let key = GroupKey::from(step.key(keys, row));
            if !counts(&key, row) {
                continue;
            }
            let passes = if is_begun {
                self.counts_pass(step.now, rate, &key, place >= new.len())
            } else {
                // Each interval begins when the first output comes.
                !self
                    .held
                    .iter()
                    .any(|held| held.group.as_ref() == Some(&key))
            };
            if passes && seen.insert(key.clone()) {
                firsts.push((place, key));
            }
        }
        firsts
    }

    /// As [`Rate::lets_pass`], of events: by count, of those that entered or of those that left.
    fn counts_pass(&mut self, now: i64, rate: &OutputRate, key: &GroupKey, is_old: bool) -> bool {
        let OutputEvery::Events(count) = &rate.every else {
            return self.lets_pass(now, rate, key.clone());
        };
        let Some(counted) = self.muted.get_mut(key) else {
            self.muted.insert(key.clone(), 0);
            return true;
        };
        // The lower half counts what entered, the upper half what left.
        *counted += if is_old { 1 << 32 } else { 1 };
        let most = (*counted & 0xffff_ffff).max(*counted >> 32);
        let is_due = most >= i64::from(*count);
        if is_due {
            *counted = 0;
        }
        is_due
    }

    /// Whether a group's row is the first of its interval.
    fn lets_pass(&mut self, now: i64, rate: &OutputRate, key: GroupKey) -> bool {
        match &rate.every {
            OutputEvery::Events(count) => {
                let left = self.muted.entry(key).or_insert(0);
                if *left > 0 {
                    *left -= 1;
                    return false;
                }
                *left = i64::from(*count) - 1;
                true
            }
            OutputEvery::Time(length) => {
                if self.muted.get(&key).is_some_and(|until| now < *until) {
                    return false;
                }
                self.muted.insert(key, now + millis(*length));
                true
            }
            _ => true,
        }
    }

    fn is_met(&self, step: Step<'_>) -> bool {
        let Some(condition) = &step.compiled.when else {
            return false;
        };
        let values = [
            Value::Int(self.counts[0]),
            Value::Int(self.counts[1]),
            Value::Int(self.counts[2]),
            Value::Int(self.counts[3]),
            Value::Int(self.last_output.unwrap_or(self.started)),
            Value::Int(step.now),
        ];
        let slots = [0, 1, 2, 3, 4, 5];
        let scope = crate::expression::Scope {
            values: &values,
            slots: &slots,
            event: None,
            window: None,
            group: &[],
            aggregates: &[],
        };
        condition.truth(&scope) == Some(true)
    }
}

/// The first time of a calendar after `now`, ms; none within nine years. Where it names both days of
/// the month and weekdays, either will do.
pub fn next_time(schedule: &Schedule, now: i64) -> Option<i64> {
    let has = |values: &[u8], value: i64| {
        values.is_empty() || u8::try_from(value).is_ok_and(|value| values.contains(&value))
    };
    let seconds: &[u8] = if schedule.seconds.is_empty() {
        &[0]
    } else {
        &schedule.seconds
    };
    let mut second = now.div_euclid(1_000) + 1;
    let end = second + YEARS_AHEAD * 366 * 86_400;
    while second < end {
        let day = second.div_euclid(86_400);
        let of_day = second.rem_euclid(86_400);
        let (month, month_day) = civil(day);
        let weekday = (day + 4).rem_euclid(7);
        let is_weekday = has(&schedule.weekdays, weekday);
        let is_month_day = has(&schedule.days, month_day);
        let is_day = has(&schedule.months, month)
            && if schedule.days.is_empty() || schedule.weekdays.is_empty() {
                is_month_day && is_weekday
            } else {
                is_month_day || is_weekday
            };
        if !is_day {
            second = (day + 1) * 86_400;
        } else if !has(&schedule.hours, of_day / 3_600) {
            second += 3_600 - of_day % 3_600;
        } else if !has(&schedule.minutes, of_day / 60 % 60) {
            second += 60 - of_day % 60;
        } else if !has(seconds, of_day % 60) {
            second += 1;
        } else {
            return Some(second * 1_000);
        }
    }
    None
}

/// Month (1 to 12) and day of the month of a day since 1970, by the Gregorian calendar.
fn civil(day: i64) -> (i64, i64) {
    let day = day + 719_468;
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month_day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (month, month_day)
}

fn held_bytes(made: &Made) -> usize {
    made.text.capacity() + std::mem::size_of::<Made>()
}

/// What a muted group costs, estimated.
const MUTED_BYTES: usize = 96;

/// How far ahead a calendar is searched, years: 29 February comes within eight, most within one.
const YEARS_AHEAD: i64 = 9;
