//! The state of one context of a query, or of the whole where it has no context: windows, joins,
//! pattern, groups and output.

mod kept;
mod leaving;
mod matching;

pub(super) use leaving::leave;

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::expression::Scope;
use crate::output::Output;
use crate::plan::{OutputKind, Shape};
use crate::query::chain::{Chain, Views};
use crate::query::compiled::Compiled;
use crate::query::join;
use crate::query::kept::Change;
use crate::query::layout::Around;
use crate::query::part::matching::Env;
use crate::query::pattern::{self, Bindings, End, State};
use crate::query::rate::Rate;
use crate::query::recognize::Recognizer;
use crate::query::select::{Faults, Groups, Step};
use crate::query::tuple::{Captured, Meter, Row, Tuple};
use crate::query::window::{Delta, Reading};
use crate::query::within::Within;
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
    /// Of a join that time bounds, what waits for its other side.
    within: Within,
    pub(super) groups: Groups,
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
            within: Within::default(),
            groups: Groups::default(),
            rate: Rate::start(now),
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
        // A filter asks what windows hold before the event comes to them.
        let is_kept_out = inputs.contains(&0) && !self.may_enter(work, source);
        let is_looked_into = self.look_into(work, inputs, source);
        if matches!(query.shape, Shape::Pattern(_)) {
            return self.on_pattern(work, Some((inputs, source))) || is_looked_into;
        }
        if let Shape::Recognize(plan) = &query.shape {
            return inputs.contains(&0) && self.on_row(work, plan, source);
        }
        if let Shape::On(action) = &query.shape {
            return (inputs.contains(&0) && self.on_trigger(work, action, source))
                || is_looked_into;
        }
        let inputs = &inputs[..inputs.partition_point(|input| *input < compiled.sources)];
        let mut deltas: Vec<Delta> = vec![Delta::default(); compiled.sources];
        let mut is_taken = false;
        for &place in inputs.iter().filter(|_| !is_kept_out) {
            is_taken |= self.enter(work, place, source, &mut deltas[place]);
        }
        self.flow(work, deltas);
        is_taken || is_looked_into
    }

    /// Rows entered and left the named window that an input reads.
    pub fn on_change(&mut self, work: &mut Work<'_>, inputs: &[usize], change: &Change) {
        let compiled = work.compiled;
        let query = compiled.query();
        if !matches!(query.shape, Shape::Events { .. }) {
            return;
        }
        let mut deltas: Vec<Delta> = vec![Delta::default(); compiled.sources];
        for &place in inputs {
            let Some(delta) = deltas.get_mut(place) else {
                continue;
            };
            let (input, reading) = (&query.inputs[place], compiled.reading(place));
            let passes = |row: &&Arc<Tuple>| {
                let filter = input.filter.as_ref();
                filter.is_none_or(|filter| reading.passes(row, filter))
            };
            let new = change.new.iter().filter(passes).cloned();
            let old = change.old.iter().filter(passes);
            if input.views.is_empty() {
                delta.new.extend(new);
                delta.old.extend(old.cloned());
                continue;
            }
            let (views, chain) = (Views::of(input), &mut self.chains[place]);
            for row in old {
                chain.remove(views, reading, row, delta);
            }
            for row in new {
                chain.insert(views, reading, work.now, row, delta);
            }
        }
        self.flow(work, deltas);
    }

    /// Whether the first input's filter lets an event pass, where it asks what other inputs hold.
    fn may_enter(&self, work: &Work<'_>, source: &Scope<'_>) -> bool {
        let input = &work.compiled.query().inputs[0];
        if !input.asks {
            return true;
        }
        let Reading { layout, alias } = work.compiled.reading(0);
        let row = Row::One(new_tuple(work, layout.keep(alias, source, |_| None)));
        self.step(work).passes(input.filter.as_ref(), &row)
    }

    /// Gives an event to the windows of subqueries; true when one takes it.
    fn look_into(&mut self, work: &mut Work<'_>, inputs: &[usize], source: &Scope<'_>) -> bool {
        let mut is_taken = false;
        for &place in inputs
            .iter()
            .filter(|place| **place >= work.compiled.own_inputs)
        {
            is_taken |= self.enter(work, place, source, &mut Delta::default());
        }
        is_taken
    }

    /// Gives an event to the windows of an input; false when its filter does not let it pass.
    fn enter(
        &mut self,
        work: &mut Work<'_>,
        place: usize,
        source: &Scope<'_>,
        delta: &mut Delta,
    ) -> bool {
        if !enters(work, place, source) {
            return false;
        }
        let compiled = work.compiled;
        let reading = compiled.reading(place);
        let recent = &self.recent[place];
        let before = |steps: usize| recent.get(steps).map(Arc::as_ref);
        let values = reading.layout.keep(reading.alias, source, before);
        let tuple = new_tuple(work, values);
        let steps = reading.layout.prior_steps(reading.alias);
        if steps > 0 {
            let recent = &mut self.recent[place];
            recent.push_front(tuple.clone());
            recent.truncate(steps);
        }
        let views = Views::of(&compiled.query().inputs[place]);
        self.chains[place].insert(views, reading, work.now, tuple, delta);
        true
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<i64> {
        let chains = self.chains.iter().filter_map(Chain::deadline);
        let pattern = self.pattern.as_ref().and_then(pattern::deadline);
        let within = self.within.deadline();
        let own = pattern
            .into_iter()
            .chain(within)
            .chain(self.rate.deadline());
        chains.chain(own).min()
    }

    /// Does what is due at `work.now`.
    pub fn advance(&mut self, work: &mut Work<'_>) {
        let compiled = work.compiled;
        let query = compiled.query();
        let mut deltas: Vec<Delta> = Vec::with_capacity(query.inputs.len());
        for (place, input) in query.inputs.iter().enumerate() {
            let mut delta = Delta::default();
            let reading = compiled.reading(place);
            self.chains[place].advance(Views::of(input), reading, work.now, &mut delta);
            deltas.push(delta);
        }
        deltas.truncate(compiled.sources);
        self.flow(work, deltas);
        if self.within.deadline().is_some_and(|due| due <= work.now) {
            let alone = self.within.advance(work.now);
            self.select(work, alone, Vec::new(), false);
        }
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

    /// The context ends: tells what is told then.
    pub fn end(&mut self, work: &mut Work<'_>) {
        let output = work.compiled.query().output.as_ref();
        if let Some(rate) = output.filter(|rate| rate.at_end)
            && self.rate.is_begun(rate, work.now)
        {
            self.output(work);
        }
    }

    /// Bytes beside the kept events, about.
    pub fn bytes(&self) -> usize {
        let states = self.pattern_states();
        let sets: usize = self.chains.iter().map(Chain::sets).sum();
        self.groups.bytes()
            + self.rate.bytes()
            + self.within.bytes()
            + states * STATE_BYTES
            + sets * SET_BYTES
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
        self.chains.iter().any(Chain::holds_any)
            || self.within.holds_any()
            || self.rate.holds_any()
            || self.groups.holds_any()
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
        if let Some((join, bounds)) = query.within() {
            let mut within = std::mem::take(&mut self.within);
            let mut rows = Vec::new();
            for (side, delta) in deltas.into_iter().enumerate() {
                for tuple in delta.new {
                    within.take(self.step(work), (join, bounds), side, tuple, &mut rows);
                }
            }
            self.within = within;
            return self.select(work, rows, Vec::new(), false);
        }
        let is_forced = deltas.iter().any(|delta| delta.is_forced);
        let (new, old) = if let [delta] = deltas.as_mut_slice() {
            let of = |tuples: &mut Vec<Arc<Tuple>>| tuples.drain(..).map(Row::One).collect();
            (of(&mut delta.new), of(&mut delta.old))
        } else {
            self.joined(work, joins, &deltas)
        };
        // What one event drives is about that event alone.
        if query.output.is_none() && query.inputs.iter().any(|input| input.is_unidirectional) {
            self.groups = Groups::default();
        }
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
        let contents = self.contents(work);
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

    /// What each of the query's own inputs holds.
    fn contents(&self, work: &Work<'_>) -> Vec<Vec<Arc<Tuple>>> {
        let inputs = 0..work.compiled.sources;
        inputs
            .map(|input| work.compiled.contents(input, &self.chains))
            .collect()
    }

    pub(super) fn step<'a>(&'a self, work: &Work<'a>) -> Step<'a> {
        Step {
            compiled: work.compiled,
            now: work.now,
            around: around(
                &self.keys,
                (self.span, work.now),
                work.compiled,
                &self.chains,
            ),
        }
    }
}

/// What slots may ask beside a row of a part.
fn around<'a>(
    keys: &'a [OwnedValue],
    (span, now): (Option<(i64, Option<i64>)>, i64),
    compiled: &'a Compiled,
    chains: &'a [Chain],
) -> Around<'a> {
    Around {
        keys,
        span,
        now: Some(now),
        history: Some((compiled, chains)),
        ..Around::NONE
    }
}

/// Whether an input's filter lets an event pass.
pub(super) fn enters(work: &Work<'_>, place: usize, source: &Scope<'_>) -> bool {
    let input = &work.compiled.query().inputs[place];
    let Some(filter) = input.filter.as_ref().filter(|_| !input.asks) else {
        return true;
    };
    let Reading { layout, alias } = work.compiled.reading(place);
    let mut values = Vec::new();
    layout.of_event(alias, source, work.now, None, &mut values);
    filter.truth(&layout.scope(&values)) == Some(true)
}

pub(super) fn new_tuple(work: &Work<'_>, values: Box<[OwnedValue]>) -> Arc<Tuple> {
    let number = work.number.get();
    work.number.set(number + 1);
    Tuple::new(values, work.now, number, work.meter)
}

/// What a state of a pattern costs, bytes, estimated.
const STATE_BYTES: usize = 160;

/// What the windows of one key cost, bytes, estimated.
const SET_BYTES: usize = 400;
