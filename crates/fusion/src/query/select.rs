//! From events that enter and leave to rows: groups, aggregates, HAVING and the columns.

mod group;

pub use group::change;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::aggregate::Windowed;
use crate::codec::{Decoder, Encoder};
use crate::expression::Expression;
use crate::functions::user::Calls;
use crate::limits::KEPT_VALUE_BYTES_MAX;
use crate::plan::{OutputRate, StreamSelect};
use crate::query::compiled::{Compiled, RowKind};
use crate::query::kept::KeptFull;
use crate::query::layout::{Around, owned};
use crate::query::rate::Rate;
use crate::query::tuple::{Row, TupleReader, TupleWriter};
use crate::value::OwnedValue;
use crate::window::encode_key;

use group::{Group, group_bytes};

/// The encoded keys of a group.
pub type GroupKey = Arc<[u8]>;

/// The groups of a query.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: HashMap<GroupKey, Group>,
    /// Those whose events have all left; what they were ever is forgotten when the next event
    /// enters.
    emptied: Vec<GroupKey>,
    next: u64,
    bytes: usize,
}

/// A row that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Its JSON.
    pub text: Vec<u8>,
    /// What it is ordered by.
    pub order: Vec<OwnedValue>,
    /// Whether it stands for what left.
    pub is_old: bool,
    /// Its group, of grouped rows.
    pub group: Option<GroupKey>,
}

/// What happens to rows that cannot be made.
#[derive(Debug, Default)]
pub struct Faults {
    /// Rows larger than a record may be.
    pub too_large: u64,
    /// Values too long for a key.
    pub long_keys: u64,
    /// Why a named window or table did not take a row.
    pub full: Option<KeptFull>,
    /// Why a function of a module failed.
    pub failed: Option<String>,
    /// Whether one has since this was last asked.
    pub has_failed: bool,
}

impl Faults {
    /// Takes note of a function of a module that failed; whether one did.
    pub fn note(&mut self, calls: Option<&Calls>) -> bool {
        let failed = calls.and_then(Calls::take);
        let has_failed = failed.is_some();
        self.has_failed |= has_failed;
        self.failed = failed.or(self.failed.take());
        has_failed
    }
}

/// Everything that a step reads.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The query.
    pub compiled: &'a Compiled,
    /// The query's time, ms.
    pub now: i64,
    /// What slots ask beside the row.
    pub around: Around<'a>,
}

impl Step<'_> {
    /// Whether a condition is true of a row.
    pub fn passes(&self, condition: Option<&Expression>, row: &Row) -> bool {
        condition.is_none_or(|condition| self.truth(condition, row) == Some(true))
    }

    /// Whether a condition is true of a row; none where that is unknown.
    pub fn truth(&self, condition: &Expression, row: &Row) -> Option<bool> {
        let mut values = Vec::new();
        self.compiled.layout.of_row(row, &self.around, &mut values);
        let scope = self.compiled.layout.scope(&values);
        condition.truth(&scope)
    }

    /// The value of an expression over a row.
    pub fn value(&self, expression: &Expression, row: &Row) -> OwnedValue {
        let mut values = Vec::new();
        self.compiled.layout.of_row(row, &self.around, &mut values);
        owned(&expression.evaluate(&self.compiled.layout.scope(&values)))
    }

    /// The encoded keys of a row.
    pub fn key(&self, keys: &[Expression], row: &Row) -> Vec<u8> {
        let mut key = Vec::new();
        if !keys.is_empty() {
            let mut values = Vec::new();
            self.compiled.layout.of_row(row, &self.around, &mut values);
            let scope = self.compiled.layout.scope(&values);
            for expression in keys {
                encode_key(&expression.evaluate(&scope), &mut key);
            }
        }
        key
    }
}

impl Groups {
    /// Takes in what entered and left and makes the rows of it; of rows by group, only those that
    /// are the first of their interval, where `first` says what the intervals are.
    pub fn apply(
        &mut self,
        step: Step<'_>,
        [new, old]: [&[Row]; 2],
        first: Option<(&mut Rate, &OutputRate)>,
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        let stream = step.compiled.query().stream;
        let wants_old = stream != StreamSelect::Insert;
        let wants_new = stream != StreamSelect::Remove;
        let is_old = stream == StreamSelect::Both;
        match step.compiled.kind {
            RowKind::Event => {
                let nothing = Group::nothing();
                if wants_old {
                    for row in old {
                        nothing.make(step, Some(row), is_old, None, made, faults);
                    }
                }
                if wants_new {
                    for row in new {
                        nothing.make(step, Some(row), false, None, made, faults);
                    }
                }
            }
            RowKind::All => {
                if wants_old {
                    self.of(step, &[])
                        .make(step, None, is_old, None, made, faults);
                }
                self.count(step, new, old, faults);
                if wants_new {
                    self.of(step, &[])
                        .make(step, None, false, None, made, faults);
                }
            }
            RowKind::EventOfAll | RowKind::EventOfGroup => {
                let keys = self.count(step, new, old, faults);
                let (new_keys, old_keys) = keys.split_at(new.len());
                let old = old.iter().zip(old_keys).filter(|_| wants_old);
                let new = new.iter().zip(new_keys).filter(|_| wants_new);
                let rows = old
                    .map(|(row, key)| (row, key, is_old))
                    .chain(new.map(|(row, key)| (row, key, false)));
                for (row, key, is_old) in rows {
                    if let Some(key) = key {
                        let group = self.of(step, key);
                        group.make(step, Some(row), is_old, Some(key), made, faults);
                    }
                }
            }
            RowKind::Group => self.apply_by_group(step, [new, old], first, made, faults),
        }
        if !step.compiled.outlives {
            self.forget_emptied(step);
        }
    }

    fn apply_by_group(
        &mut self,
        step: Step<'_>,
        [new, old]: [&[Row]; 2],
        first: Option<(&mut Rate, &OutputRate)>,
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        let query = step.compiled.query();
        let wants_old = query.stream != StreamSelect::Insert;
        let is_old = query.stream == StreamSelect::Both;
        let rows: Vec<&Row> = new.iter().chain(old).collect();
        let told = match first {
            None => {
                let told = changed(step, &rows);
                if wants_old {
                    self.make_all(step, &rows, &told, is_old, made, faults);
                }
                self.count(step, new, old, faults);
                told
            }
            // An interval begins with what meets the condition after all of this.
            Some((rate, output)) if query.having.is_some() => {
                self.count(step, new, old, faults);
                let told = rate.firsts(step, output, [new, old], |key, row| {
                    let group = self.groups.get(key);
                    group.is_some_and(|group| group.has(step, Some(row)))
                });
                if wants_old {
                    self.make_all(step, &rows, &told, is_old, made, faults);
                }
                told
            }
            // What a group was is told as of before the event that begins its interval.
            Some((rate, output)) => {
                let told = rate.firsts(step, output, [new, old], |_, _| true);
                let mut due = told.iter().peekable();
                for (place, row) in rows.iter().enumerate() {
                    if let Some(one) = due.next_if(|(first, _)| *first == place)
                        && wants_old
                    {
                        let one = std::slice::from_ref(one);
                        self.make_all(step, &rows, one, is_old, made, faults);
                    }
                    self.count_one(step, row, place < new.len(), faults);
                }
                told
            }
        };
        if query.stream != StreamSelect::Remove {
            self.make_all(step, &rows, &told, false, made, faults);
        }
    }

    /// The rows of these groups, each at the place of one of these events.
    fn make_all(
        &mut self,
        step: Step<'_>,
        rows: &[&Row],
        groups: &[(usize, GroupKey)],
        is_old: bool,
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        for (place, key) in groups {
            let row = rows.get(*place).copied();
            let group = self.of(step, key);
            group.make(step, row, is_old, Some(key), made, faults);
        }
    }

    /// Rows of everything that is held: a snapshot of `rows`.
    pub fn snapshot(
        &mut self,
        step: Step<'_>,
        rows: &[Row],
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        match step.compiled.kind {
            RowKind::Event => {
                let nothing = Group::nothing();
                for row in rows {
                    nothing.make(step, Some(row), false, None, made, faults);
                }
            }
            RowKind::All => self
                .of(step, &[])
                .make(step, None, false, None, made, faults),
            RowKind::EventOfAll | RowKind::EventOfGroup => {
                for row in rows {
                    let key: GroupKey = step.key(&step.compiled.query().group_by, row).into();
                    self.of(step, &key)
                        .make(step, Some(row), false, Some(&key), made, faults);
                }
            }
            RowKind::Group => self.all(step, made, faults),
        }
    }

    /// A row for every group that there is, in the order in which they came.
    pub fn all(&self, step: Step<'_>, made: &mut Vec<Made>, faults: &mut Faults) {
        for (key, group) in self.told(step) {
            group.make(step, group.latest.as_ref(), false, Some(key), made, faults);
        }
    }

    /// What [`Groups::all`] gave last, as what was before; a group that was not there was empty.
    pub fn all_before(
        &self,
        step: Step<'_>,
        last: &[Made],
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        let last: HashMap<&GroupKey, &Made> = last
            .iter()
            .filter_map(|row| Some((row.group.as_ref()?, row)))
            .collect();
        for (key, group) in self.told(step) {
            match last.get(key) {
                Some(row) => made.push(Made {
                    is_old: true,
                    ..(*row).clone()
                }),
                None => Group::empty(step.compiled, 0).make(
                    step,
                    group.latest.as_ref(),
                    true,
                    Some(key),
                    made,
                    faults,
                ),
            }
        }
    }

    /// The groups that outputs tell of, in the order in which they came.
    fn told(&self, step: Step<'_>) -> Vec<(&GroupKey, &Group)> {
        let keeps = step.compiled.keeps_groups;
        let mut groups: Vec<(&GroupKey, &Group)> = self
            .groups
            .iter()
            .filter(|(_, group)| keeps || group.events > 0)
            .collect();
        groups.sort_by_key(|(_, group)| group.place);
        groups
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Bytes of keys and accumulators, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when groups stand for events that no window holds.
    pub fn holds_any(&self) -> bool {
        self.groups.len() > self.emptied.len()
    }

    /// Writes the state.
    pub fn encode(&self, tuples: &mut TupleWriter, out: &mut Encoder) {
        let mut groups: Vec<(&GroupKey, &Group)> = self.groups.iter().collect();
        groups.sort_by_key(|(_, group)| group.place);
        out.count(groups.len());
        for (key, group) in groups {
            out.bytes(key);
            out.i64(group.events);
            group
                .accumulators
                .iter()
                .for_each(|accumulator| accumulator.encode(out));
            out.u8(u8::from(group.latest.is_some()));
            if let Some(row) = &group.latest {
                tuples.row(row, out);
            }
        }
    }

    /// Reads it back.
    pub fn decode(
        compiled: &Compiled,
        tuples: &mut TupleReader,
        from: &mut Decoder<'_>,
    ) -> Option<Self> {
        let mut own = Groups::default();
        for _ in 0..from.count()? {
            let key: GroupKey = from.bytes()?.into();
            let events = from.i64()?;
            let mut accumulators = Vec::new();
            for aggregate in &compiled.query().aggregates {
                let mut accumulator = compiled.accumulator(aggregate);
                accumulator.read(from)?;
                accumulators.push(accumulator);
            }
            let latest = match from.u8()? {
                0 => None,
                _ => Some(tuples.row(from)?),
            };
            own.bytes += group_bytes(&key, accumulators.len())
                + accumulators.iter().map(Windowed::bytes).sum::<usize>();
            let group = Group {
                place: own.next,
                accumulators: accumulators.into(),
                events,
                latest,
            };
            own.next += 1;
            if group.events <= 0 && forgets(compiled) {
                own.emptied.push(key.clone());
            }
            own.groups.insert(key, group);
        }
        Some(own)
    }

    /// Adds what entered to its groups and takes away what left; gives the groups, of what entered
    /// first. A row whose key is too long has none.
    fn count(
        &mut self,
        step: Step<'_>,
        new: &[Row],
        old: &[Row],
        faults: &mut Faults,
    ) -> Vec<Option<GroupKey>> {
        let mut keys = Vec::with_capacity(new.len() + old.len());
        for (place, row) in new.iter().chain(old).enumerate() {
            keys.push(self.count_one(step, row, place < new.len(), faults));
        }
        keys
    }

    /// Adds to its group one that entered, or takes away one that left; gives the group.
    fn count_one(
        &mut self,
        step: Step<'_>,
        row: &Row,
        is_add: bool,
        faults: &mut Faults,
    ) -> Option<GroupKey> {
        let calls = step.compiled.plan.calls.as_deref();
        faults.note(calls);
        let group = self.count_row(step, row, is_add, faults);
        if !is_add && let Some(calls) = calls {
            // It failed when it entered, and was told then.
            calls.take();
        }
        group
    }

    fn count_row(
        &mut self,
        step: Step<'_>,
        row: &Row,
        is_add: bool,
        faults: &mut Faults,
    ) -> Option<GroupKey> {
        if is_add {
            self.forget_emptied(step);
        }
        let key = step.key(&step.compiled.query().group_by, row);
        if key.len() > KEPT_VALUE_BYTES_MAX {
            faults.long_keys += u64::from(is_add);
            return None;
        }
        let key = self.known(step, &key);
        let group = self.groups.get_mut(&key)?;
        group.events += if is_add { 1 } else { -1 };
        // Of an outer join a row may leave that never entered.
        if !is_add
            && group.events <= 0
            && forgets(step.compiled)
            && (group.events == 0 || !self.emptied.contains(&key))
        {
            self.emptied.push(key.clone());
        }
        if step.compiled.keeps_latest && is_add {
            group.latest = Some(row.clone());
        }
        let mut values = Vec::new();
        step.compiled.layout.of_row(row, &step.around, &mut values);
        let scope = step.compiled.layout.scope(&values);
        let number = row.number();
        let aggregates = &step.compiled.query().aggregates;
        for (accumulator, aggregate) in group.accumulators.iter_mut().zip(aggregates) {
            let before = accumulator.bytes();
            let of = (step.now, number);
            change(accumulator, aggregate, &scope, of, is_add);
            self.bytes = (self.bytes + accumulator.bytes()).saturating_sub(before);
        }
        Some(key)
    }

    /// Forgets the groups whose events have all left: they were told once more. Where groups are told
    /// on, they begin anew.
    fn forget_emptied(&mut self, step: Step<'_>) {
        for key in std::mem::take(&mut self.emptied) {
            let Some(mut gone) = self.groups.remove(&key) else {
                continue;
            };
            let kept: usize = gone.accumulators.iter().map(Windowed::bytes).sum();
            let bytes = group_bytes(&key, gone.accumulators.len()) + kept;
            self.bytes = self.bytes.saturating_sub(bytes);
            if step.compiled.keeps_groups {
                gone.accumulators = Group::empty(step.compiled, gone.place).accumulators;
                gone.events = 0;
                self.bytes += group_bytes(&key, gone.accumulators.len());
                self.groups.insert(key, gone);
            }
        }
    }

    /// The key of a group that is there.
    fn known(&mut self, step: Step<'_>, key: &[u8]) -> GroupKey {
        if let Some((known, _)) = self.groups.get_key_value(key) {
            return known.clone();
        }
        let known: GroupKey = key.into();
        let group = Group::empty(step.compiled, self.next);
        self.next += 1;
        self.bytes += group_bytes(key, group.accumulators.len());
        self.groups.insert(known.clone(), group);
        known
    }

    fn of(&mut self, step: Step<'_>, key: &[u8]) -> &Group {
        let key = self.known(step, key);
        &self.groups[&key]
    }
}

/// The groups that these events are of, each with the place of its first.
fn changed(step: Step<'_>, rows: &[&Row]) -> Vec<(usize, GroupKey)> {
    let keys = &step.compiled.query().group_by;
    let mut changed = Vec::new();
    let mut seen: HashSet<GroupKey> = HashSet::new();
    for (place, row) in rows.iter().enumerate() {
        let key = GroupKey::from(step.key(keys, row));
        if seen.insert(key.clone()) {
            changed.push((place, key));
        }
    }
    changed
}

/// Whether groups are forgotten when their events have left; what is about all is for ever.
fn forgets(compiled: &Compiled) -> bool {
    !compiled.query().group_by.is_empty()
}
