//! A part's pattern and row pattern: events into matches.

use std::cell::Cell;
use std::sync::Arc;

use super::{Part, Work, around, enters, new_tuple};
use crate::expression::{Expression, Scope};
use crate::plan::{PatternNode, Recognize, Shape};
use crate::query::compiled::Compiled;
use crate::query::layout::Around;
use crate::query::pattern::{self, Bindings, End, Matcher};
use crate::query::select::Step;
use crate::query::tuple::{Captured, Meter, Row, Tuple};
use crate::value::OwnedValue;

impl Part {
    /// Gives an event, or the time, to the pattern; true when a part of it takes the event.
    pub(super) fn on_pattern(
        &mut self,
        work: &mut Work<'_>,
        event: Option<(&[usize], &Scope<'_>)>,
    ) -> bool {
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
    pub(super) fn on_row(
        &mut self,
        work: &mut Work<'_>,
        plan: &Recognize,
        source: &Scope<'_>,
    ) -> bool {
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
            around: around(
                &self.keys,
                (self.span, work.now),
                work.compiled,
                &self.chains,
            ),
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

    pub(super) fn matched(&mut self, work: &mut Work<'_>, matches: Vec<Bindings>) {
        for parts in matches {
            self.select(work, vec![Row::Parts(parts)], Vec::new(), false);
        }
    }
}

/// What a pattern sees of an event.
pub(super) struct Env<'e> {
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
    pub(super) fn of(
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
                now: Some(self.now),
                ..Around::NONE
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
                self.now,
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

    fn truth(&self, condition: &Expression, tags: &Bindings) -> Option<bool> {
        self.step().truth(condition, &Row::Parts(tags.clone()))
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
