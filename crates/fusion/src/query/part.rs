//! The state of one context of a query, or of the whole where it has no context: windows, joins,
//! pattern, groups and output.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use base::UnixMillis;

use crate::codec::{Decoder, Encoder};
use crate::expression::{Expression, Scope};
use crate::output::{self, Output};
use crate::plan::{OutputKind, PatternNode, Recognize, Shape};
use crate::query::chain::{Chain, Views};
use crate::query::compiled::{Compiled, RowKind};
use crate::query::join;
use crate::query::layout::Around;
use crate::query::pattern::{self, Bindings, End, Matcher, State};
use crate::query::rate::{Now, Rate};
use crate::query::recognize::Recognizer;
use crate::query::select::{Faults, Groups, Made, Step};
use crate::query::tuple::{Captured, Meter, Row, Tuple, TupleReader, TupleWriter};
use crate::query::window::{Delta, Reading};
use crate::value::OwnedValue;

/// What a step of a part works with beside its own state.
pub struct Work<'w> {
    /// The query.
    pub compiled: &'w Compiled,
    /// The query's time, ms.
    pub now: i64,
    /// Counts kept bytes.
    pub meter: &'w Arc<Meter>,
    /// The number of the next kept event.
    pub number: &'w Cell<u64>,
    /// Where rows go.
    pub out: &'w mut Output,
    /// Rows that cannot be made.
    pub faults: &'w mut Faults,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Part {
    /// The context's keys.
    keys: Vec<OwnedValue>,
    /// The context's span.
    span: Option<(i64, Option<i64>)>,
    chains: Vec<Chain>,
    /// Of each input, the latest events that `prior` may ask for, newest first.
    recent: Vec<VecDeque<Arc<Tuple>>>,
    pattern: Option<State>,
    recognizer: Recognizer,
    groups: Groups,
    rate: Rate,
}

impl Part {
    /// The state at the start of a statement or context.
    pub fn start(
        work: &mut Work<'_>,
        keys: Vec<OwnedValue>,
        span: Option<(i64, Option<i64>)>,
    ) -> Self {
        let compiled = work.compiled;
        let query = compiled.query();
        let now = work.now;
        let mut part = Part {
            keys,
            span,
            chains: query
                .inputs
                .iter()
                .map(|input| Chain::start(Views::of(input), now))
                .collect(),
            recent: vec![VecDeque::new(); query.inputs.len()],
            pattern: None,
            recognizer: Recognizer::default(),
            groups: Groups::default(),
            rate: Rate::start(query.output.as_ref(), now),
        };
        if let Shape::Pattern(plan) = &query.shape {
            let begin: Bindings = vec![Captured::None; usize::from(plan.tags)].into();
            let env = Env::of(work, None, &part.keys, part.span);
            let (state, stepped) = pattern::start(&plan.root, &begin, &env);
            part.pattern = (stepped.end == End::Open).then_some(state);
            part.matched(work, stepped.matches);
        }
        part
    }

    /// An event of these inputs; true when one of them takes it.
    pub fn on_event(&mut self, work: &mut Work<'_>, inputs: &[usize], source: &Scope<'_>) -> bool {
        let compiled = work.compiled;
        let query = compiled.query();
        if matches!(query.shape, Shape::Pattern(_)) {
            return self.on_pattern(work, Some((inputs, source)));
        }
        if let Shape::Recognize(plan) = &query.shape {
            return self.on_row(work, plan, source);
        }
        let mut deltas: Vec<Delta> = query.inputs.iter().map(|_| Delta::default()).collect();
        let mut is_taken = false;
        for &place in inputs {
            let input = &query.inputs[place];
            if !enters(work, place, source) {
                continue;
            }
            is_taken = true;
            let recent = &self.recent[place];
            let values = compiled
                .layout
                .keep(place, source, |steps| recent.get(steps).map(Arc::as_ref));
            let tuple = new_tuple(work, values);
            let steps = compiled.layout.prior_steps(place);
            if steps > 0 {
                let recent = &mut self.recent[place];
                recent.push_front(tuple.clone());
                recent.truncate(steps);
            }
            let reading = Reading {
                layout: &compiled.layout,
                alias: place,
            };
            let views = Views::of(input);
            self.chains[place].insert(views, reading, work.now, tuple, &mut deltas[place]);
        }
        self.flow(work, deltas);
        is_taken
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<i64> {
        let chains = self.chains.iter().filter_map(Chain::deadline);
        let pattern = self.pattern.as_ref().and_then(pattern::deadline);
        chains.chain(pattern).chain(self.rate.deadline()).min()
    }

    /// Does what is due at `work.now`.
    pub fn advance(&mut self, work: &mut Work<'_>) {
        let compiled = work.compiled;
        let query = compiled.query();
        let mut deltas: Vec<Delta> = Vec::with_capacity(query.inputs.len());
        for (place, input) in query.inputs.iter().enumerate() {
            let mut delta = Delta::default();
            let reading = Reading {
                layout: &compiled.layout,
                alias: place,
            };
            self.chains[place].advance(Views::of(input), reading, work.now, &mut delta);
            deltas.push(delta);
        }
        self.flow(work, deltas);
        if self
            .pattern
            .as_ref()
            .and_then(pattern::deadline)
            .is_some_and(|due| due <= work.now)
        {
            self.on_pattern(work, None);
        }
        if let Some(rate) = &query.output
            && self.rate.deadline().is_some_and(|due| due <= work.now)
        {
            self.rate.next(rate, work.now);
            if rate.kind != OutputKind::First && self.rate.is_begun(rate, work.now) {
                self.output(work);
            }
        }
    }

    /// Bytes beside the kept events, about.
    pub fn bytes(&self) -> usize {
        let states = self.pattern_states();
        let sets: usize = self.chains.iter().map(Chain::sets).sum();
        self.groups.bytes() + self.rate.bytes() + states * STATE_BYTES + sets * SET_BYTES
    }

    /// Groups and keyed windows.
    pub fn groups(&self) -> usize {
        let sets = self.chains.iter().map(Chain::sets).max().unwrap_or(0);
        self.groups.len() + sets + self.recognizer.partitions()
    }

    /// How many states of a pattern wait.
    pub fn pattern_states(&self) -> usize {
        self.pattern.as_ref().map_or(0, pattern::count) + self.recognizer.runs()
    }

    /// True when events are held that no row has stood for yet, or may stand for again.
    pub fn holds_any(&self) -> bool {
        self.chains.iter().any(Chain::holds_any) || self.rate.holds_any() || self.groups.holds_any()
    }

    /// Writes the state.
    pub fn encode(&self, compiled: &Compiled, tuples: &mut TupleWriter, out: &mut Encoder) {
        let shape = &compiled.query().shape;
        out.count(self.keys.len());
        for key in &self.keys {
            crate::aggregate::encode_value(key, out);
        }
        let span = self.span.map(|(start, _)| start);
        crate::query::window::encode_time(span, out);
        crate::query::window::encode_time(self.span.and_then(|(_, end)| end), out);
        self.chains
            .iter()
            .for_each(|chain| chain.encode(tuples, out));
        for recent in &self.recent {
            tuples.tuples(recent.iter(), out);
        }
        out.u8(u8::from(self.pattern.is_some()));
        if let Some(state) = &self.pattern {
            pattern::encode(state, tuples, out);
        }
        if matches!(shape, Shape::Recognize(_)) {
            self.recognizer.encode(tuples, out);
        }
        self.groups.encode(tuples, out);
        self.rate.encode(out);
    }

    /// Reads it back.
    pub fn decode(
        compiled: &Compiled,
        tuples: &mut TupleReader,
        from: &mut Decoder<'_>,
    ) -> Option<Self> {
        let query = compiled.query();
        let mut keys = Vec::new();
        for _ in 0..from.count()? {
            keys.push(crate::aggregate::decode_value(from)?);
        }
        let start = crate::query::window::decode_time(from)?;
        let end = crate::query::window::decode_time(from)?;
        let mut chains = Vec::new();
        for input in &query.inputs {
            chains.push(Chain::decode(Views::of(input), tuples, from)?);
        }
        let mut recent = Vec::new();
        for _ in &query.inputs {
            recent.push(tuples.tuples(from)?);
        }
        let pattern = match (from.u8()?, &query.shape) {
            (0, _) => None,
            (_, Shape::Pattern(plan)) => {
                let tags = usize::from(plan.tags);
                Some(pattern::decode(&plan.root, tags, tuples, from)?)
            }
            _ => return None,
        };
        let recognizer = match &query.shape {
            Shape::Recognize(plan) => Recognizer::decode(plan, tuples, from)?,
            _ => Recognizer::default(),
        };
        let is_last = query
            .output
            .as_ref()
            .is_some_and(|rate| rate.kind == OutputKind::Last);
        Some(Part {
            keys,
            span: start.map(|start| (start, end)),
            chains,
            recent,
            pattern,
            recognizer,
            groups: Groups::decode(compiled, tuples, from)?,
            rate: Rate::decode(is_last, from)?,
        })
    }

    /// Takes what windows did to the rows.
    fn flow(&mut self, work: &mut Work<'_>, mut deltas: Vec<Delta>) {
        if deltas.iter().all(Delta::is_empty) {
            return;
        }
        let query = work.compiled.query();
        let Shape::Events { joins } = &query.shape else {
            return;
        };
        let is_forced = deltas.iter().any(|delta| delta.is_forced);
        let (new, old) = if let [delta] = deltas.as_mut_slice() {
            let of = |tuples: &mut Vec<Arc<Tuple>>| tuples.drain(..).map(Row::One).collect();
            (of(&mut delta.new), of(&mut delta.old))
        } else {
            self.joined(work, joins, &deltas)
        };
        self.select(work, new, old, is_forced);
    }

    fn joined(
        &self,
        work: &Work<'_>,
        joins: &[crate::plan::Join],
        deltas: &[Delta],
    ) -> (Vec<Row>, Vec<Row>) {
        let query = work.compiled.query();
        let step = self.step(work);
        let contents: Vec<Vec<Arc<Tuple>>> = query
            .inputs
            .iter()
            .zip(&self.chains)
            .map(|(input, chain)| chain.contents(Views::of(input)))
            .collect();
        let has_leader = query.inputs.iter().any(|input| input.is_unidirectional);
        let leads = |place: usize| !has_leader || query.inputs[place].is_unidirectional;
        let (mut new, mut old) = (Vec::new(), Vec::new());
        if deltas.iter().any(|delta| !delta.old.is_empty()) {
            // What left is joined with what was there before anything changed.
            let before: Vec<Vec<Arc<Tuple>>> = contents
                .iter()
                .zip(deltas)
                .map(|(contents, delta)| {
                    let is_new =
                        |tuple: &Arc<Tuple>| delta.new.iter().any(|new| new.number == tuple.number);
                    let left = delta.old.iter().filter(|tuple| !is_new(tuple));
                    let stays = contents.iter().filter(|tuple| !is_new(tuple));
                    left.chain(stays).cloned().collect()
                })
                .collect();
            let mut seen = HashSet::new();
            for (place, delta) in deltas.iter().enumerate().filter(|(place, _)| leads(*place)) {
                join::rows(step, joins, &before, place, &delta.old, &mut seen, &mut old);
            }
        }
        let mut seen = HashSet::new();
        for (place, delta) in deltas.iter().enumerate().filter(|(place, _)| leads(*place)) {
            join::rows(
                step, joins, &contents, place, &delta.new, &mut seen, &mut new,
            );
        }
        (new, old)
    }

    /// Gives rows that enter and leave to the groups and the output.
    fn select(&mut self, work: &mut Work<'_>, new: Vec<Row>, old: Vec<Row>, is_forced: bool) {
        let compiled = work.compiled;
        let query = compiled.query();
        let condition = compiled.plan.filter.as_ref();
        let keep = |rows: Vec<Row>| -> Vec<Row> {
            match condition {
                None => rows,
                Some(_) => {
                    let step = self.step(work);
                    rows.into_iter()
                        .filter(|row| step.passes(condition, row))
                        .collect()
                }
            }
        };
        let (new, old) = (keep(new), keep(old));
        if new.is_empty() && old.is_empty() && !is_forced {
            return;
        }
        let mut made = Vec::new();
        let around = Around {
            keys: &self.keys,
            span: self.span,
            current: None,
            history: Some((compiled, &self.chains)),
        };
        let step = Step {
            compiled,
            now: work.now,
            around,
        };
        self.groups.apply(step, &new, &old, &mut made, work.faults);
        let now = match &query.output {
            None => Now::Pass,
            Some(rate) => self.rate.take(step, rate, new.len(), old.len(), &mut made),
        };
        match now {
            Now::Wait => {}
            Now::Pass => leave(work, made),
            Now::Output => self.output(work),
        }
    }

    /// Lets what waits leave.
    fn output(&mut self, work: &mut Work<'_>) {
        let compiled = work.compiled;
        let query = compiled.query();
        let Some(rate) = &query.output else {
            return;
        };
        let mut made = self.rate.take_held(work.now);
        let rows = match rate.kind {
            OutputKind::Snapshot => self.held_rows(work),
            _ => Vec::new(),
        };
        let step = Step {
            compiled,
            now: work.now,
            around: Around {
                keys: &self.keys,
                span: self.span,
                current: None,
                history: Some((compiled, &self.chains)),
            },
        };
        match (rate.kind, compiled.kind) {
            (OutputKind::Snapshot, _) => {
                self.groups.snapshot(step, &rows, &mut made, work.faults);
            }
            (OutputKind::All, RowKind::All) => {
                self.groups.snapshot(step, &[], &mut made, work.faults);
            }
            (OutputKind::All, RowKind::Group) => self.groups.all(step, &mut made, work.faults),
            (OutputKind::All, RowKind::EventOfGroup) => {
                let told: HashSet<_> = made.iter().filter_map(|row| row.group.clone()).collect();
                let mut all = Vec::new();
                self.groups.all(step, &mut all, work.faults);
                all.retain(|row| {
                    row.group
                        .as_ref()
                        .is_some_and(|group| !told.contains(group))
                });
                made.append(&mut all);
            }
            _ => {}
        }
        leave(work, made);
    }

    /// The rows of everything that is held.
    fn held_rows(&self, work: &Work<'_>) -> Vec<Row> {
        let query = work.compiled.query();
        let step = self.step(work);
        let contents: Vec<Vec<Arc<Tuple>>> = query
            .inputs
            .iter()
            .zip(&self.chains)
            .map(|(input, chain)| chain.contents(Views::of(input)))
            .collect();
        let mut rows = match (&query.shape, contents.as_slice()) {
            (_, [contents]) => contents.iter().cloned().map(Row::One).collect(),
            (Shape::Events { joins }, contents) => join::all(step, joins, contents),
            _ => Vec::new(),
        };
        let condition = work.compiled.plan.filter.as_ref();
        rows.retain(|row| step.passes(condition, row));
        rows
    }

    fn step<'a>(&'a self, work: &Work<'a>) -> Step<'a> {
        Step {
            compiled: work.compiled,
            now: work.now,
            around: Around {
                keys: &self.keys,
                span: self.span,
                current: None,
                history: None,
            },
        }
    }

    /// Gives an event, or the time, to the pattern; true when a part of it takes the event.
    fn on_pattern(&mut self, work: &mut Work<'_>, event: Option<(&[usize], &Scope<'_>)>) -> bool {
        let Shape::Pattern(plan) = &work.compiled.query().shape else {
            return false;
        };
        let Some(mut state) = self.pattern.take() else {
            return false;
        };
        let (stepped, is_taken) = {
            let env = Env::of(work, event, &self.keys, self.span);
            let stepped = pattern::step(&plan.root, &mut state, &env);
            (stepped, env.is_taken.get())
        };
        self.pattern = (stepped.end == End::Open).then_some(state);
        self.matched(work, stepped.matches);
        is_taken
    }

    /// Gives an event to the row pattern; true when its filter lets it pass.
    fn on_row(&mut self, work: &mut Work<'_>, plan: &Recognize, source: &Scope<'_>) -> bool {
        if !enters(work, 0, source) {
            return false;
        }
        let layout = &work.compiled.layout;
        let looks_back = layout.prior_steps(0);
        let variables = usize::from(plan.variables).max(1);
        let mut tuple = new_tuple(work, layout.keep(0, source, |_| None));
        let as_all = Row::Parts(vec![Captured::One(tuple.clone()); variables].into());
        let key = self.step(work).key(&plan.partition_by, &as_all);
        drop(as_all);
        if looks_back > 0 {
            let recent = self.recognizer.recent(&key);
            let values = layout.keep(0, source, |steps| {
                recent.and_then(|recent| recent.get(steps)).map(Arc::as_ref)
            });
            tuple = new_tuple(work, values);
        }
        let step = Step {
            compiled: work.compiled,
            now: work.now,
            around: Around {
                keys: &self.keys,
                span: self.span,
                current: None,
                history: None,
            },
        };
        let key_bytes = key.clone();
        let rows = self.recognizer.on_row(step, plan, key, &tuple, looks_back);
        self.recognizer.forget_idle(&key_bytes);
        drop(tuple);
        for row in rows {
            self.select(work, vec![row], Vec::new(), false);
        }
        true
    }

    fn matched(&mut self, work: &mut Work<'_>, matches: Vec<Bindings>) {
        for parts in matches {
            self.select(work, vec![Row::Parts(parts)], Vec::new(), false);
        }
    }
}

/// What a pattern sees of an event.
struct Env<'e> {
    compiled: &'e Compiled,
    now: i64,
    meter: &'e Arc<Meter>,
    number: &'e Cell<u64>,
    event: Option<(&'e [usize], &'e Scope<'e>)>,
    keys: &'e [OwnedValue],
    span: Option<(i64, Option<i64>)>,
    is_taken: Cell<bool>,
}

impl<'e> Env<'e> {
    fn of(
        work: &Work<'e>,
        event: Option<(&'e [usize], &'e Scope<'e>)>,
        keys: &'e [OwnedValue],
        span: Option<(i64, Option<i64>)>,
    ) -> Self {
        Env {
            compiled: work.compiled,
            now: work.now,
            meter: work.meter,
            number: work.number,
            event,
            keys,
            span,
            is_taken: Cell::new(false),
        }
    }

    fn step(&self) -> Step<'_> {
        Step {
            compiled: self.compiled,
            now: self.now,
            around: Around {
                keys: self.keys,
                span: self.span,
                current: None,
                history: None,
            },
        }
    }
}

impl Matcher for Env<'_> {
    fn event(&self, node: &PatternNode, begin: &Bindings) -> Option<Arc<Tuple>> {
        let PatternNode::Event {
            input,
            tag,
            filter,
            filter_tag,
        } = node
        else {
            return None;
        };
        let (inputs, source) = self.event?;
        if !inputs.contains(&usize::from(*input)) {
            return None;
        }
        let layout = &self.compiled.layout;
        let alias = filter_tag.or(*tag).map(usize::from);
        if let Some(filter) = filter {
            let before = Row::Parts(begin.clone());
            let mut values = Vec::new();
            layout.of_event(
                alias.unwrap_or(usize::MAX),
                source,
                Some(&before),
                &mut values,
            );
            if filter.truth(&layout.scope(&values)) != Some(true) {
                return None;
            }
        }
        self.is_taken.set(true);
        let values = match tag {
            Some(tag) => layout.keep(usize::from(*tag), source, |_| None),
            None => Box::default(),
        };
        let number = self.number.get();
        self.number.set(number + 1);
        Some(Tuple::new(values, self.now, number, self.meter))
    }

    fn is_true(&self, condition: &Expression, tags: &Bindings) -> bool {
        self.step()
            .passes(Some(condition), &Row::Parts(tags.clone()))
    }

    fn key(&self, keys: &[Expression], tags: &Bindings) -> Vec<u8> {
        self.step().key(keys, &Row::Parts(tags.clone()))
    }

    fn now(&self) -> i64 {
        self.now
    }

    fn is_event(&self) -> bool {
        self.event.is_some()
    }
}

/// Whether an input's filter lets an event pass.
fn enters(work: &Work<'_>, place: usize, source: &Scope<'_>) -> bool {
    let Some(filter) = &work.compiled.query().inputs[place].filter else {
        return true;
    };
    let layout = &work.compiled.layout;
    let mut values = Vec::new();
    layout.of_event(place, source, None, &mut values);
    filter.truth(&layout.scope(&values)) == Some(true)
}

fn new_tuple(work: &Work<'_>, values: Box<[OwnedValue]>) -> Arc<Tuple> {
    let number = work.number.get();
    work.number.set(number + 1);
    Tuple::new(values, work.now, number, work.meter)
}

/// Orders, bounds and writes the rows that leave together: what stands for what left comes first.
fn leave(work: &mut Work<'_>, mut made: Vec<Made>) {
    let query = work.compiled.query();
    if !query.order_by.is_empty() {
        made.sort_by(|a, b| {
            let keys = query.order_by.iter().zip(a.order.iter().zip(&b.order));
            for (key, (a, b)) in keys {
                let order = crate::aggregate::kept::rank_order(&a.as_value(), &b.as_value());
                let order = if key.is_descending {
                    order.reverse()
                } else {
                    order
                };
                if order.is_ne() {
                    return order;
                }
            }
            std::cmp::Ordering::Equal
        });
    }
    made.sort_by_key(|row| !row.is_old);
    if query.distinct {
        let mut seen: HashSet<(bool, Vec<u8>)> = HashSet::new();
        made.retain(|row| seen.insert((row.is_old, row.text.clone())));
    }
    if let Some(limit) = query.limit {
        for is_old in [true, false] {
            let mut place = 0;
            made.retain(|row| {
                if row.is_old != is_old {
                    return true;
                }
                place += 1;
                place > limit.offset && place - limit.offset <= limit.rows
            });
        }
    }
    for row in made {
        work.out.bytes.extend_from_slice(&row.text);
        work.out.rows.push(output::Row {
            end: work.out.bytes.len(),
            timestamp: UnixMillis(work.now),
            key: None,
            events: 0,
            is_old: row.is_old,
        });
    }
}

/// What a state of a pattern costs, bytes, estimated.
const STATE_BYTES: usize = 160;

/// What the windows of one key cost, bytes, estimated.
const SET_BYTES: usize = 400;
