//! The contexts of a query: one state, one per key, or one per span.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::codec::{Decoder, Encoder};
use crate::expression::{Expression, Scope};
use crate::plan::{Boundary, Context};
use crate::query::compiled::Compiled;
use crate::query::kept::Change;
use crate::query::layout::owned;
use crate::query::part::{Part, Work};
use crate::query::rate::next_time;
use crate::query::tuple::{TupleReader, TupleWriter};
use crate::query::window::{decode_time, encode_time, millis};
use crate::value::OwnedValue;
use crate::window::{decode_key, encode_key};

/// The states of a query's contexts.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    parts: BTreeMap<u64, Open>,
    /// By key.
    keys: HashMap<Box<[u8]>, u64>,
    /// When each has something due.
    dues: BTreeSet<(i64, u64)>,
    next: u64,
    /// When the next span starts by time.
    start: Option<i64>,
}

#[derive(Clone, Debug)]
struct Open {
    part: Part,
    key: Box<[u8]>,
    /// When its span ends by time.
    end: Option<i64>,
    due: Option<i64>,
}

impl Parts {
    /// The contexts at a statement's start.
    pub fn start(work: &mut Work<'_>) -> Self {
        let mut parts = Parts::default();
        match &work.compiled.query().context {
            None => {
                parts.open(work, &[], Vec::new(), None);
            }
            Some(Context::Partition { .. }) => {}
            Some(Context::Span { start, .. }) => {
                parts.start = next_start(start, work.now);
                if parts.start == Some(work.now) {
                    parts.begin_span(work);
                }
            }
        }
        parts
    }

    /// An event of these inputs; true when one of them takes it.
    pub fn on_event(&mut self, work: &mut Work<'_>, inputs: &[usize], source: &Scope<'_>) -> bool {
        match &work.compiled.query().context {
            None => self.give(work, 0, inputs, source),
            Some(Context::Partition { keys }) => {
                // What has no key is looked into by every context.
                let has_key = |input: &usize| keys.get(*input).is_some_and(|own| !own.is_empty());
                let (keyed, others): (Vec<usize>, Vec<usize>) =
                    inputs.iter().copied().partition(has_key);
                let mut is_taken = false;
                let mut reached: Vec<u64> = Vec::new();
                // Inputs with other keys belong to other contexts.
                for same in keyed.chunk_by(|a, b| keys[*a] == keys[*b]) {
                    let id = self.of_key(work, same[0], &keys[same[0]], source);
                    let mut given = same.to_vec();
                    if !reached.contains(&id) {
                        reached.push(id);
                        given.extend(&others);
                        given.sort_unstable();
                    }
                    is_taken |= self.give(work, id, &given, source);
                }
                if !others.is_empty() {
                    let open: Vec<u64> = self.parts.keys().copied().collect();
                    for id in open.into_iter().filter(|id| !reached.contains(id)) {
                        is_taken |= self.give(work, id, &others, source);
                    }
                }
                is_taken
            }
            Some(Context::Span {
                start,
                end,
                is_overlapping,
            }) => {
                let is_end = is_boundary(work, end, inputs, source);
                if is_end {
                    let open: Vec<u64> = self.parts.keys().copied().collect();
                    open.into_iter().for_each(|id| self.close(work, id));
                }
                let is_start = is_boundary(work, start, inputs, source);
                if is_start && (*is_overlapping || self.parts.is_empty()) {
                    self.begin_span(work);
                }
                let open: Vec<u64> = self.parts.keys().copied().collect();
                let mut is_taken = is_start || is_end;
                for id in open {
                    is_taken |= self.give(work, id, inputs, source);
                }
                is_taken
            }
        }
    }

    /// Rows entered and left the named window that these inputs read.
    pub fn on_change(&mut self, work: &mut Work<'_>, inputs: &[usize], change: &Change) {
        let open: Vec<u64> = self.parts.keys().copied().collect();
        for id in open {
            if let Some(open) = self.parts.get_mut(&id) {
                open.part.on_change(work, inputs, change);
                self.register(id);
            }
        }
    }

    /// Rows of what is held now, or what no event asks for; see [`Part::once`].
    pub fn once(&mut self, work: &mut Work<'_>) {
        for open in self.parts.values_mut() {
            open.part.once(work);
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<i64> {
        let due = self.dues.first().map(|(due, _)| *due);
        [due, self.start].into_iter().flatten().min()
    }

    /// Does what is due at `due`.
    pub fn advance(&mut self, work: &mut Work<'_>, due: i64) {
        while let Some((at, id)) = self.dues.first().copied()
            && at <= due
        {
            self.dues.pop_first();
            let Some(open) = self.parts.get_mut(&id) else {
                continue;
            };
            open.due = None;
            // What is due with the end is no more.
            if open.end.is_some_and(|end| end <= due) {
                self.close(work, id);
                continue;
            }
            if open.part.deadline().is_some_and(|at| at <= due) {
                open.part.advance(work);
            }
            self.register(id);
        }
        if self.start.is_some_and(|start| start <= due) {
            self.begin_span(work);
        }
    }

    /// Bytes beside the kept events, about.
    pub fn bytes(&self) -> usize {
        match self.parts.len() {
            1 => self.parts.values().map(|open| open.part.bytes()).sum(),
            // Of very many a full count at every event would cost more than it is worth.
            count if count > PARTS_COUNTED_MAX => count * PART_BYTES,
            count => {
                let own: usize = self.parts.values().map(|open| open.part.bytes()).sum();
                own + count * PART_BYTES
            }
        }
    }

    /// Groups, keyed windows and contexts.
    pub fn groups(&self) -> usize {
        match self.parts.len() {
            1 => self.parts.values().map(|open| open.part.groups()).sum(),
            count => count,
        }
    }

    /// States of patterns that wait.
    pub fn pattern_states(&self) -> usize {
        match self.parts.len() {
            count if count > PARTS_COUNTED_MAX => count,
            _ => self
                .parts
                .values()
                .map(|open| open.part.pattern_states())
                .sum(),
        }
    }

    /// True when events are held that rows may stand for later.
    pub fn holds_any(&self) -> bool {
        self.parts.values().any(|open| open.part.holds_any())
    }

    /// Writes the states.
    pub fn encode(&self, compiled: &Compiled, tuples: &mut TupleWriter, out: &mut Encoder) {
        encode_time(self.start, out);
        out.u64(self.next);
        out.count(self.parts.len());
        for (id, open) in &self.parts {
            out.u64(*id);
            out.bytes(&open.key);
            encode_time(open.end, out);
            open.part.encode(compiled, tuples, out);
        }
    }

    /// Reads them back.
    pub fn decode(
        compiled: &Compiled,
        tuples: &mut TupleReader,
        from: &mut Decoder<'_>,
    ) -> Option<Self> {
        let mut parts = Parts {
            start: decode_time(from)?,
            next: from.u64()?,
            ..Parts::default()
        };
        for _ in 0..from.count()? {
            let id = from.u64()?;
            let key: Box<[u8]> = from.bytes()?.into();
            let end = decode_time(from)?;
            let part = Part::decode(compiled, tuples, from)?;
            parts.keys.insert(key.clone(), id);
            let open = Open {
                part,
                key,
                end,
                due: None,
            };
            parts.parts.insert(id, open);
            parts.register(id);
        }
        Some(parts)
    }

    /// The context of an event of an input, which is opened when its key is new.
    fn of_key(
        &mut self,
        work: &mut Work<'_>,
        input: usize,
        keys: &[Expression],
        source: &Scope<'_>,
    ) -> u64 {
        let layout = &work.compiled.layout;
        let mut values = Vec::new();
        layout.of_event(input, source, work.now, None, &mut values);
        let scope = layout.scope(&values);
        let mut key = Vec::new();
        for expression in keys {
            encode_key(&expression.evaluate(&scope), &mut key);
        }
        match self.keys.get(key.as_slice()) {
            Some(id) => *id,
            None => {
                let values = decode_key(&key).iter().map(owned).collect();
                self.open(work, &key, values, None)
            }
        }
    }

    fn give(&mut self, work: &mut Work<'_>, id: u64, inputs: &[usize], source: &Scope<'_>) -> bool {
        let Some(open) = self.parts.get_mut(&id) else {
            return false;
        };
        let is_taken = open.part.on_event(work, inputs, source);
        self.register(id);
        is_taken
    }

    fn open(
        &mut self,
        work: &mut Work<'_>,
        key: &[u8],
        keys: Vec<OwnedValue>,
        span: Option<(i64, Option<i64>)>,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let part = Part::start(work, keys, span);
        let open = Open {
            part,
            key: key.into(),
            end: span.and_then(|(_, end)| end),
            due: None,
        };
        self.keys.insert(key.into(), id);
        self.parts.insert(id, open);
        self.register(id);
        id
    }

    fn begin_span(&mut self, work: &mut Work<'_>) {
        let Some(Context::Span {
            start,
            end,
            is_overlapping,
        }) = &work.compiled.query().context
        else {
            return;
        };
        let ends = match end {
            Boundary::After(length) => Some(work.now + millis(*length)),
            Boundary::At(schedule) => next_time(schedule, work.now),
            Boundary::Event { .. } | Boundary::Immediately => None,
        };
        let number = self.next.to_le_bytes();
        self.open(work, &number, Vec::new(), Some((work.now, ends)));
        self.start = match (is_overlapping, start) {
            (true, Boundary::At(_)) => next_start(start, work.now),
            _ => None,
        };
    }

    fn close(&mut self, work: &mut Work<'_>, id: u64) {
        let Some(mut gone) = self.parts.remove(&id) else {
            return;
        };
        gone.part.end(work);
        self.keys.remove(&gone.key);
        if let Some(due) = gone.due {
            self.dues.remove(&(due, id));
        }
        if let Some(Context::Span { start, .. }) = &work.compiled.query().context
            && self.parts.is_empty()
            && self.start.is_none()
        {
            self.start = next_start(start, work.now);
        }
    }

    fn register(&mut self, id: u64) {
        let Some(open) = self.parts.get_mut(&id) else {
            return;
        };
        let due = [open.part.deadline(), open.end].into_iter().flatten().min();
        if due == open.due {
            return;
        }
        if let Some(before) = open.due {
            self.dues.remove(&(before, id));
        }
        self.dues.extend(due.map(|due| (due, id)));
        open.due = due;
    }
}

/// When the next span starts by time, at the statement's start or after another.
fn next_start(start: &Boundary, now: i64) -> Option<i64> {
    match start {
        Boundary::Immediately => Some(now),
        Boundary::At(schedule) => next_time(schedule, now),
        Boundary::After(length) => Some(now + millis(*length)),
        Boundary::Event { .. } => None,
    }
}

fn is_boundary(work: &Work<'_>, boundary: &Boundary, inputs: &[usize], source: &Scope<'_>) -> bool {
    let Boundary::Event { input, condition } = boundary else {
        return false;
    };
    let input = usize::from(*input);
    if !inputs.contains(&input) {
        return false;
    }
    let Some(condition) = condition else {
        return true;
    };
    let layout = &work.compiled.layout;
    let mut values = Vec::new();
    layout.of_event(input, source, work.now, None, &mut values);
    condition.truth(&layout.scope(&values)) == Some(true)
}

/// What a context costs beside what it holds, bytes, estimated.
const PART_BYTES: usize = 700;

/// With more contexts their own state is no longer counted one by one at every event.
const PARTS_COUNTED_MAX: usize = 64;
