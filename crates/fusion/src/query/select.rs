//! From events that enter and leave to rows: groups, aggregates, HAVING and the columns.

use std::collections::{HashMap, HashSet};
use std::mem::size_of;
use std::sync::Arc;

use crate::aggregate::{Given, Windowed};
use crate::codec::{Decoder, Encoder};
use crate::expression::{Expression, Scope};
use crate::limits::KEPT_VALUE_BYTES_MAX;
use crate::plan::{Aggregate, StreamSelect};
use crate::query::compiled::{Compiled, RowKind};
use crate::query::kept::KeptFull;
use crate::query::layout::{Around, owned};
use crate::query::tuple::{Row, TupleReader, TupleWriter};
use crate::row::write_row;
use crate::value::{OwnedValue, Value};
use crate::window::encode_key;

/// The encoded keys of a group.
pub type GroupKey = Arc<[u8]>;

/// The groups of a query.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: HashMap<GroupKey, Group>,
    next: u64,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Group {
    /// Its place in the order in which groups came.
    place: u64,
    accumulators: Box<[Windowed]>,
    /// Events that entered and have not left.
    events: i64,
    /// Its latest row, where outputs come without an event.
    latest: Option<Row>,
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
        let Some(condition) = condition else {
            return true;
        };
        let mut values = Vec::new();
        self.compiled.layout.of_row(row, &self.around, &mut values);
        let scope = self.compiled.layout.scope(&values);
        condition.truth(&scope) == Some(true)
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
    /// Takes in what entered and left and makes the rows of it.
    pub fn apply(
        &mut self,
        step: Step<'_>,
        new: &[Row],
        old: &[Row],
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
                self.forget_empty(step, &keys);
            }
            RowKind::Group => {
                let mut changed: Vec<(GroupKey, &Row)> = Vec::new();
                let mut seen: HashSet<GroupKey> = HashSet::new();
                for row in new.iter().chain(old) {
                    let key: GroupKey = step.key(&step.compiled.query().group_by, row).into();
                    if seen.insert(key.clone()) {
                        changed.push((key, row));
                    }
                }
                if wants_old {
                    for (key, row) in &changed {
                        self.of(step, key)
                            .make(step, Some(row), is_old, Some(key), made, faults);
                    }
                }
                let keys = self.count(step, new, old, faults);
                if wants_new {
                    for (key, row) in &changed {
                        self.of(step, key)
                            .make(step, Some(row), false, Some(key), made, faults);
                    }
                }
                self.forget_empty(step, &keys);
            }
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
    pub fn all(&mut self, step: Step<'_>, made: &mut Vec<Made>, faults: &mut Faults) {
        let mut groups: Vec<(&GroupKey, &Group)> = self.groups.iter().collect();
        groups.sort_by_key(|(_, group)| group.place);
        for (key, group) in groups {
            group.make(step, group.latest.as_ref(), false, Some(key), made, faults);
        }
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
        !self.groups.is_empty()
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
        for (row, is_add) in new
            .iter()
            .map(|row| (row, true))
            .chain(old.iter().map(|row| (row, false)))
        {
            let key = step.key(&step.compiled.query().group_by, row);
            if key.len() > KEPT_VALUE_BYTES_MAX {
                faults.long_keys += u64::from(is_add);
                keys.push(None);
                continue;
            }
            let key = self.known(step, &key);
            let keeps_latest = step.compiled.keeps_latest;
            let Some(group) = self.groups.get_mut(&key) else {
                continue;
            };
            group.events += if is_add { 1 } else { -1 };
            if keeps_latest && is_add {
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
            keys.push(Some(key));
        }
        keys
    }

    /// Forgets the groups whose events have all left; they were told once more.
    fn forget_empty(&mut self, step: Step<'_>, keys: &[Option<GroupKey>]) {
        if step.compiled.keeps_groups {
            return;
        }
        for key in keys.iter().flatten() {
            if self.groups.get(key).is_some_and(|group| group.events <= 0)
                && let Some(gone) = self.groups.remove(key)
            {
                let kept: usize = gone.accumulators.iter().map(Windowed::bytes).sum();
                let bytes = group_bytes(key, gone.accumulators.len()) + kept;
                self.bytes = self.bytes.saturating_sub(bytes);
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

impl Group {
    fn nothing() -> Self {
        Group {
            place: 0,
            accumulators: Box::default(),
            events: 0,
            latest: None,
        }
    }

    fn empty(compiled: &Compiled, place: u64) -> Self {
        let aggregates = compiled.query().aggregates.iter();
        Group {
            place,
            accumulators: aggregates
                .map(|aggregate| compiled.accumulator(aggregate))
                .collect(),
            events: 0,
            latest: None,
        }
    }

    fn make(
        &self,
        step: Step<'_>,
        row: Option<&Row>,
        is_old: bool,
        group: Option<&GroupKey>,
        made: &mut Vec<Made>,
        faults: &mut Faults,
    ) {
        let compiled = step.compiled;
        let query = compiled.query();
        let empty = Row::Parts(Arc::new([]));
        let mut values = Vec::new();
        compiled
            .layout
            .of_row(row.unwrap_or(&empty), &step.around, &mut values);
        let aggregates: Vec<Value<'_>> = self.accumulators.iter().map(Windowed::value).collect();
        let scope = Scope {
            aggregates: &aggregates,
            ..compiled.layout.scope(&values)
        };
        if query
            .having
            .as_ref()
            .is_some_and(|having| having.truth(&scope) != Some(true))
        {
            return;
        }
        let mut text = Vec::new();
        if !write_row(
            &compiled.plan.columns,
            &compiled.prefixes,
            &scope,
            &mut text,
        ) {
            faults.too_large += 1;
            return;
        }
        let order = query
            .order_by
            .iter()
            .map(|key| owned(&key.expression.evaluate(&scope)))
            .collect();
        made.push(Made {
            text,
            order,
            is_old,
            group: group.cloned(),
        });
    }
}

/// Adds an event's values to an aggregate, or takes them away, at a time and by its number.
pub fn change(
    accumulator: &mut Windowed,
    aggregate: &Aggregate,
    scope: &Scope<'_>,
    (now, number): (i64, u64),
    is_add: bool,
) {
    if aggregate
        .filter
        .as_ref()
        .is_some_and(|filter| filter.truth(scope) != Some(true))
    {
        return;
    }
    let too_long = |value: &Value<'_>| matches!(value, Value::Text(text) | Value::Json(text) if text.len() > KEPT_VALUE_BYTES_MAX);
    let value = aggregate
        .argument
        .as_ref()
        .map(|argument| argument.evaluate(scope));
    if value.as_ref().is_some_and(too_long) {
        return;
    }
    let parameter = aggregate
        .parameter
        .as_ref()
        .map_or(Value::Null, |parameter| parameter.evaluate(scope));
    let given = Given {
        value,
        parameter,
        now,
        number,
    };
    if is_add {
        accumulator.add(&given);
    } else {
        accumulator.remove(&given);
    }
}

fn group_bytes(key: &[u8], aggregates: usize) -> usize {
    GROUP_OVERHEAD_BYTES + key.len() + aggregates * size_of::<Windowed>()
}

/// A group's share of the table, its record and its allocations, estimated.
const GROUP_OVERHEAD_BYTES: usize = 160;
