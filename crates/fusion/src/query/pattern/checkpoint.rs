//! The states of patterns in checkpoints: each beside its part of the pattern.

use super::State;
use crate::codec::{Decoder, Encoder};
use crate::plan::PatternNode;
use crate::query::tuple::{TupleReader, TupleWriter};
use crate::query::window::{decode_time, encode_time};

/// Writes a state.
pub fn encode(state: &State, tuples: &mut TupleWriter, out: &mut Encoder) {
    let list = |children: &[Option<State>], tuples: &mut TupleWriter, out: &mut Encoder| {
        out.count(children.len());
        for child in children {
            optional(child.as_ref(), tuples, out);
        }
    };
    match state {
        State::Event(begin) => {
            out.u8(0);
            tuples.parts(begin, out);
        }
        State::Every {
            begin,
            children,
            seen,
        } => {
            out.u8(1);
            tuples.parts(begin, out);
            out.count(children.len());
            children.iter().for_each(|child| encode(child, tuples, out));
            out.count(seen.len());
            for (key, until) in seen {
                out.bytes(key);
                encode_time(*until, out);
            }
        }
        State::FollowedBy(branches) => {
            out.u8(2);
            out.count(branches.len());
            for (place, own) in branches {
                out.count(*place);
                encode(own, tuples, out);
            }
        }
        State::And { children, matched } => {
            out.u8(3);
            list(children, tuples, out);
            for known in matched {
                out.count(known.len());
                known.iter().for_each(|parts| tuples.parts(parts, out));
            }
        }
        State::Or(children) => {
            out.u8(4);
            list(children, tuples, out);
        }
        State::Not(child) => {
            out.u8(5);
            optional(child.as_deref(), tuples, out);
        }
        State::Until {
            begin,
            node,
            end,
            collected,
            count,
        } => {
            out.u8(6);
            tuples.parts(begin, out);
            optional(node.as_deref(), tuples, out);
            optional(end.as_deref(), tuples, out);
            tuples.parts(collected, out);
            out.u32(*count);
        }
        State::Within { child, until, left } => {
            out.u8(7);
            encode(child, tuples, out);
            out.i64(*until);
            encode_time(left.map(i64::from), out);
        }
        State::While(child) => {
            out.u8(8);
            encode(child, tuples, out);
        }
        State::Timer { begin, at } => {
            out.u8(9);
            tuples.parts(begin, out);
            encode_time(*at, out);
        }
    }
}

fn optional(state: Option<&State>, tuples: &mut TupleWriter, out: &mut Encoder) {
    out.u8(u8::from(state.is_some()));
    if let Some(state) = state {
        encode(state, tuples, out);
    }
}

/// Reads a state back; none where it does not stand beside that part.
pub fn decode(
    node: &PatternNode,
    tags: usize,
    tuples: &mut TupleReader,
    from: &mut Decoder<'_>,
) -> Option<State> {
    let kind = from.u8()?;
    let bindings = |tuples: &mut TupleReader, from: &mut Decoder<'_>| {
        tuples.parts(from).filter(|parts| parts.len() == tags)
    };
    Some(match (kind, node) {
        (0, PatternNode::Event { .. }) => State::Event(bindings(tuples, from)?),
        (1, PatternNode::Every(child) | PatternNode::EveryDistinct { node: child, .. }) => {
            let begin = bindings(tuples, from)?;
            let mut children = Vec::new();
            for _ in 0..from.count()? {
                children.push(decode(child, tags, tuples, from)?);
            }
            let mut seen = Vec::new();
            for _ in 0..from.count()? {
                seen.push((from.bytes()?.to_vec(), decode_time(from)?));
            }
            State::Every {
                begin,
                children,
                seen,
            }
        }
        (2, PatternNode::FollowedBy(parts)) => {
            let mut branches = Vec::new();
            for _ in 0..from.count()? {
                let place = usize::try_from(from.u32()?).ok()?;
                branches.push((place, decode(parts.get(place)?, tags, tuples, from)?));
            }
            State::FollowedBy(branches)
        }
        (3, PatternNode::And(parts)) => {
            let children = decode_list(parts, tags, tuples, from)?;
            let mut matched = Vec::new();
            for _ in parts {
                let mut known = Vec::new();
                for _ in 0..from.count()? {
                    known.push(bindings(tuples, from)?);
                }
                matched.push(known);
            }
            State::And { children, matched }
        }
        (4, PatternNode::Or(parts)) => State::Or(decode_list(parts, tags, tuples, from)?),
        (5, PatternNode::Not(child)) => {
            State::Not(decode_optional(child, tags, tuples, from)?.map(Box::new))
        }
        (6, PatternNode::Until { node, end, .. }) => State::Until {
            begin: bindings(tuples, from)?,
            node: decode_optional(node, tags, tuples, from)?.map(Box::new),
            end: match end {
                Some(end) => decode_optional(end, tags, tuples, from)?.map(Box::new),
                None => (from.u8()? == 0).then_some(None)?,
            },
            collected: bindings(tuples, from)?,
            count: from.u32()?,
        },
        (7, PatternNode::Within { node, .. }) => State::Within {
            child: Box::new(decode(node, tags, tuples, from)?),
            until: from.i64()?,
            left: match decode_time(from)? {
                Some(left) => Some(u32::try_from(left).ok()?),
                None => None,
            },
        },
        (8, PatternNode::While { node, .. }) => {
            State::While(Box::new(decode(node, tags, tuples, from)?))
        }
        (9, PatternNode::Interval(_) | PatternNode::At(_)) => State::Timer {
            begin: bindings(tuples, from)?,
            at: decode_time(from)?,
        },
        _ => return None,
    })
}

fn decode_optional(
    node: &PatternNode,
    tags: usize,
    tuples: &mut TupleReader,
    from: &mut Decoder<'_>,
) -> Option<Option<State>> {
    match from.u8()? {
        0 => Some(None),
        _ => decode(node, tags, tuples, from).map(Some),
    }
}

fn decode_list(
    parts: &[PatternNode],
    tags: usize,
    tuples: &mut TupleReader,
    from: &mut Decoder<'_>,
) -> Option<Vec<Option<State>>> {
    if from.count()? != parts.len() {
        return None;
    }
    parts
        .iter()
        .map(|part| decode_optional(part, tags, tuples, from))
        .collect()
}
