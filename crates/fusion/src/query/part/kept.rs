//! A part as checkpoints hold it.

use super::Part;
use crate::codec::{Decoder, Encoder};
use crate::plan::{OutputKind, Shape};
use crate::query::chain::{Chain, Views};
use crate::query::compiled::Compiled;
use crate::query::pattern;
use crate::query::rate::Rate;
use crate::query::recognize::Recognizer;
use crate::query::select::Groups;
use crate::query::tuple::{TupleReader, TupleWriter};
use crate::query::within::Within;

impl Part {
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
        if compiled.query().within().is_some() {
            self.within.encode(tuples, out);
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
        let within = match query.within() {
            Some((join, bounds)) => Within::decode(join, bounds, tuples, from)?,
            None => Within::default(),
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
            within,
            groups: Groups::decode(compiled, tuples, from)?,
            rate: Rate::decode(is_last, from)?,
        })
    }
}
