//! What repeats, by count or until something else comes.

use std::sync::Arc;

use super::{Bindings, End, Matcher, State, Stepped, merge, start, step};
use crate::plan::PatternNode;
use crate::query::tuple::{Captured, Tuple};

/// Gives an event, or the time, to a part that repeats.
pub fn until(node: &PatternNode, state: &mut State, env: &dyn Matcher) -> Stepped {
    let (
        PatternNode::Until {
            node: repeated,
            low,
            high,
            end: end_node,
        },
        State::Until {
            begin,
            node: child,
            end,
            collected,
            count,
        },
    ) = (node, state)
    else {
        return Stepped::open();
    };
    if let (Some(end_node), Some(ender)) = (end_node, end.as_mut()) {
        let own = step(end_node, ender, env);
        if let Some(found) = own.matches.first() {
            if *count < low.unwrap_or(0) {
                return Stepped::failed();
            }
            return Stepped {
                matches: vec![merge(collected, found)],
                end: End::Quit,
            };
        }
        if own.end == End::Failed {
            return Stepped::failed();
        }
    }
    let Some(own) = child else {
        return Stepped::open();
    };
    let result = step(repeated, own, env);
    for found in &result.matches {
        *collected = collect(begin, collected, found);
        *count += 1;
    }
    let is_full = high.is_some_and(|high| *count >= high);
    if is_full && end_node.is_none() {
        return Stepped {
            matches: vec![collected.clone()],
            end: End::Quit,
        };
    }
    if is_full || result.end == End::Failed {
        *child = None;
        if end_node.is_none() {
            return Stepped::failed();
        }
    } else if result.end == End::Quit {
        let (again, _) = start(repeated, begin, env);
        **own = again;
    }
    Stepped::open()
}

/// Adds what was found to what was collected, tag by tag.
fn collect(begin: &Bindings, collected: &Bindings, found: &Bindings) -> Bindings {
    collected
        .iter()
        .zip(found.iter())
        .zip(begin.iter())
        .map(|((all, found), before)| {
            let (Some(found), None) = (found.last(), before.last()) else {
                return all.clone();
            };
            let mut many: Vec<Arc<Tuple>> = match all {
                Captured::None => Vec::new(),
                Captured::One(tuple) => vec![tuple.clone()],
                Captured::Many(tuples) => tuples.to_vec(),
            };
            many.push(found.clone());
            Captured::Many(many.into())
        })
        .collect()
}
