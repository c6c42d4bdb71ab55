//! Patterns at work: a tree of states beside the pattern's tree.
//!
//! Each step gives the matches that became complete and says how the part stands: open (more may
//! come), quit (its last match is among them) or failed. A state that is started by an event does
//! not see that event. Time comes first: a caller stops at every deadline before it gives an event.

mod checkpoint;
mod until;

pub use checkpoint::{decode, encode};

use std::sync::Arc;

use crate::plan::PatternNode;
use crate::query::rate::next_time;
use crate::query::tuple::{Captured, Tuple};
use crate::query::window::millis;

/// What stands for each tag so far.
pub type Bindings = Arc<[Captured]>;

/// What a pattern asks of its surroundings.
pub trait Matcher {
    /// The event as the tag keeps it, where it is of that input and the filter is true.
    fn event(&self, node: &PatternNode, begin: &Bindings) -> Option<Arc<Tuple>>;
    /// Whether a condition is true of tags; none where that is unknown.
    fn truth(&self, condition: &crate::expression::Expression, tags: &Bindings) -> Option<bool>;
    /// The encoded keys over tags.
    fn key(&self, keys: &[crate::expression::Expression], tags: &Bindings) -> Vec<u8>;
    /// The time, ms.
    fn now(&self) -> i64;
    /// Whether an event is given; else time has come.
    fn is_event(&self) -> bool;
}

/// A part of a pattern at work.
#[derive(Clone, Debug)]
pub enum State {
    /// Waits for an event.
    Event(Bindings),
    /// The children that were started.
    Every {
        begin: Bindings,
        children: Vec<State>,
        seen: Vec<(Vec<u8>, Option<i64>)>,
    },
    /// The place and state of each branch.
    FollowedBy(Vec<(usize, State)>),
    /// The children, and what each has matched.
    And {
        children: Vec<Option<State>>,
        matched: Vec<Vec<Bindings>>,
    },
    /// The children.
    Or(Vec<Option<State>>),
    /// The child; none when it can match no more.
    Not(Option<Box<State>>),
    /// What repeats, what ends it, and what was collected.
    Until {
        begin: Bindings,
        node: Option<Box<State>>,
        end: Option<Box<State>>,
        collected: Bindings,
        count: u32,
    },
    /// The child, until when, and how many matches more.
    Within {
        child: Box<State>,
        until: i64,
        left: Option<u32>,
    },
    /// The child.
    While(Box<State>),
    /// When it is true.
    Timer { begin: Bindings, at: Option<i64> },
}

/// How a part stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// More may come.
    Open,
    /// Nothing more comes.
    Quit,
    /// It can not become true.
    Failed,
}

/// What a step gave.
#[derive(Debug)]
pub struct Stepped {
    /// The matches, in order.
    pub matches: Vec<Bindings>,
    /// How the part stands.
    pub end: End,
}

impl Stepped {
    fn open() -> Self {
        Stepped {
            matches: Vec::new(),
            end: End::Open,
        }
    }

    fn failed() -> Self {
        Stepped {
            matches: Vec::new(),
            end: End::Failed,
        }
    }
}

/// Starts a part after `begin`; it may be true at once.
pub fn start(node: &PatternNode, begin: &Bindings, env: &dyn Matcher) -> (State, Stepped) {
    match node {
        PatternNode::Event { .. } => (State::Event(begin.clone()), Stepped::open()),
        PatternNode::Every(child) | PatternNode::EveryDistinct { node: child, .. } => {
            let mut children = Vec::new();
            spawn(child, begin, env, &mut children);
            let state = State::Every {
                begin: begin.clone(),
                children,
                seen: Vec::new(),
            };
            (state, Stepped::open())
        }
        PatternNode::FollowedBy(parts) => {
            let mut branches = Vec::new();
            let mut matches = Vec::new();
            follow(parts, 0, begin, env, &mut branches, &mut matches);
            let end = ended(branches.is_empty(), &matches);
            (State::FollowedBy(branches), Stepped { matches, end })
        }
        PatternNode::And(parts) => {
            let mut state = State::And {
                children: vec![None; parts.len()],
                matched: vec![Vec::new(); parts.len()],
            };
            let mut stepped = Stepped::open();
            if let State::And { children, matched } = &mut state {
                for (place, part) in parts.iter().enumerate() {
                    let (child, own) = start(part, begin, env);
                    children[place] = Some(child);
                    if !all_of(parts, children, matched, place, own, &mut stepped.matches) {
                        stepped.end = End::Failed;
                        return (state, stepped);
                    }
                }
                stepped.end = and_end(parts, children, &stepped.matches);
            }
            (state, stepped)
        }
        PatternNode::Or(parts) => {
            let mut children: Vec<Option<State>> = Vec::with_capacity(parts.len());
            let mut stepped = Stepped::open();
            for part in parts {
                let (child, mut own) = start(part, begin, env);
                children.push((own.end == End::Open).then_some(child));
                stepped.matches.append(&mut own.matches);
                if own.end == End::Quit {
                    stepped.end = End::Quit;
                }
            }
            if children.iter().all(Option::is_none) && stepped.end == End::Open {
                stepped.end = End::Failed;
            }
            (State::Or(children), stepped)
        }
        PatternNode::Not(child) => {
            let (state, own) = start(child, begin, env);
            if own.matches.is_empty() {
                let child = (own.end == End::Open).then(|| Box::new(state));
                let matches = vec![begin.clone()];
                let end = End::Open;
                return (State::Not(child), Stepped { matches, end });
            }
            (State::Not(None), Stepped::failed())
        }
        PatternNode::Until { node, end, .. } => {
            let (child, own) = start(node, begin, env);
            let ender = end.as_ref().map(|end| Box::new(start(end, begin, env).0));
            let state = State::Until {
                begin: begin.clone(),
                node: (own.end == End::Open).then(|| Box::new(child)),
                end: ender,
                collected: begin.clone(),
                count: 0,
            };
            (state, Stepped::open())
        }
        PatternNode::Within {
            node,
            length,
            count,
        } => {
            let (child, own) = start(node, begin, env);
            let state = State::Within {
                child: Box::new(child),
                until: env.now() + millis(*length),
                left: *count,
            };
            (state, own)
        }
        PatternNode::While { node, .. } => {
            let (child, own) = start(node, begin, env);
            (State::While(Box::new(child)), own)
        }
        PatternNode::Interval(length) => {
            let at = Some(env.now() + millis(*length));
            let begin = begin.clone();
            (State::Timer { begin, at }, Stepped::open())
        }
        PatternNode::At(schedule) => {
            let at = next_time(schedule, env.now());
            let begin = begin.clone();
            (State::Timer { begin, at }, Stepped::open())
        }
    }
}

/// Gives an event, or the time, to a part.
pub fn step(node: &PatternNode, state: &mut State, env: &dyn Matcher) -> Stepped {
    match (node, state) {
        (PatternNode::Event { tag, .. }, State::Event(begin)) => {
            let Some(tuple) = env.is_event().then(|| env.event(node, begin)).flatten() else {
                return Stepped::open();
            };
            let matched = match tag {
                Some(tag) => bind(begin, usize::from(*tag), Captured::One(tuple)),
                None => begin.clone(),
            };
            Stepped {
                matches: vec![matched],
                end: End::Quit,
            }
        }
        (
            PatternNode::Every(child) | PatternNode::EveryDistinct { node: child, .. },
            State::Every {
                begin,
                children,
                seen,
            },
        ) => {
            let mut stepped = Stepped::open();
            let is_event = matches!(**child, PatternNode::Event { .. });
            let mut spawned = Vec::new();
            let mut kept = Vec::new();
            for mut own in std::mem::take(children) {
                let result = step(child, &mut own, env);
                let again = match result.end {
                    End::Failed => 1,
                    _ if is_event => 0,
                    _ => result.matches.len(),
                };
                if result.end == End::Open || (is_event && result.end == End::Quit) {
                    kept.push(own);
                }
                stepped.matches.extend(result.matches);
                for _ in 0..again {
                    spawn(child, begin, env, &mut spawned);
                }
            }
            kept.append(&mut spawned);
            *children = kept;
            if let PatternNode::EveryDistinct { keys, expires, .. } = node {
                distinct(keys, expires.map(millis), env, seen, &mut stepped.matches);
            }
            stepped
        }
        (PatternNode::FollowedBy(parts), State::FollowedBy(branches)) => {
            let mut matches = Vec::new();
            let mut kept = Vec::new();
            let mut fresh = Vec::new();
            for (place, mut own) in std::mem::take(branches) {
                let result = step(&parts[place], &mut own, env);
                if result.end == End::Open {
                    kept.push((place, own));
                }
                for matched in result.matches {
                    follow(parts, place + 1, &matched, env, &mut fresh, &mut matches);
                }
            }
            kept.append(&mut fresh);
            *branches = kept;
            let end = ended(branches.is_empty(), &matches);
            Stepped { matches, end }
        }
        (PatternNode::And(parts), State::And { children, matched }) => {
            let mut stepped = Stepped::open();
            for (place, part) in parts.iter().enumerate() {
                let Some(child) = &mut children[place] else {
                    continue;
                };
                let own = step(part, child, env);
                if !all_of(parts, children, matched, place, own, &mut stepped.matches) {
                    return Stepped::failed();
                }
            }
            stepped.end = and_end(parts, children, &stepped.matches);
            stepped
        }
        (PatternNode::Or(parts), State::Or(children)) => {
            let mut stepped = Stepped::open();
            for (part, slot) in parts.iter().zip(children.iter_mut()) {
                let Some(child) = slot else {
                    continue;
                };
                let mut own = step(part, child, env);
                if own.end != End::Open {
                    *slot = None;
                }
                stepped.matches.append(&mut own.matches);
                if own.end == End::Quit {
                    stepped.end = End::Quit;
                    return stepped;
                }
            }
            if children.iter().all(Option::is_none) {
                stepped.end = ended(true, &stepped.matches);
            }
            stepped
        }
        (PatternNode::Not(part), State::Not(child)) => {
            let Some(own) = child else {
                return Stepped::open();
            };
            let result = step(part, own, env);
            if !result.matches.is_empty() {
                *child = None;
                return Stepped::failed();
            }
            if result.end != End::Open {
                *child = None;
            }
            Stepped::open()
        }
        (PatternNode::Until { .. }, state @ State::Until { .. }) => until::until(node, state, env),
        (PatternNode::Within { node, .. }, State::Within { child, until, left }) => {
            if env.now() >= *until {
                return Stepped::failed();
            }
            let mut own = step(node, child, env);
            if let Some(left) = left {
                own.matches.truncate(*left as usize);
                *left -= u32::try_from(own.matches.len()).unwrap_or(*left);
                if *left == 0 {
                    own.end = End::Quit;
                }
            }
            own
        }
        (PatternNode::While { node, condition }, State::While(child)) => {
            let mut own = step(node, child, env);
            // What is unknown lets a match go, and only what is false ends the whole.
            let truths = own
                .matches
                .iter()
                .map(|matched| env.truth(condition, matched));
            let truths: Vec<Option<bool>> = truths.collect();
            let first_false = truths.iter().position(|truth| *truth == Some(false));
            let mut known = truths.iter().take(first_false.unwrap_or(truths.len()));
            own.matches
                .retain(|_| known.next().is_some_and(Option::is_some));
            if first_false.is_some() {
                own.end = ended(true, &own.matches);
            }
            own
        }
        (PatternNode::Interval(_) | PatternNode::At(_), State::Timer { begin, at }) => {
            if at.is_some_and(|at| at <= env.now()) {
                return Stepped {
                    matches: vec![begin.clone()],
                    end: End::Quit,
                };
            }
            Stepped::open()
        }
        _ => unreachable!("a state stands beside its own part"),
    }
}

/// When time has to come to a part.
pub fn deadline(state: &State) -> Option<i64> {
    match state {
        State::Event(_) => None,
        State::Every { children, .. } => children.iter().filter_map(deadline).min(),
        State::FollowedBy(branches) => branches.iter().filter_map(|(_, own)| deadline(own)).min(),
        State::And { children, .. } | State::Or(children) => {
            children.iter().flatten().filter_map(deadline).min()
        }
        State::Not(child) => child.as_deref().and_then(deadline),
        State::Until { node, end, .. } => node
            .iter()
            .chain(end)
            .filter_map(|child| deadline(child))
            .min(),
        State::Within { child, until, .. } => {
            Some(deadline(child).map_or(*until, |due| due.min(*until)))
        }
        State::While(child) => deadline(child),
        State::Timer { at, .. } => *at,
    }
}

/// How many states there are.
pub fn count(state: &State) -> usize {
    1 + match state {
        State::Event(_) | State::Timer { .. } => 0,
        State::Every { children, seen, .. } => {
            seen.len() + children.iter().map(count).sum::<usize>()
        }
        State::FollowedBy(branches) => branches.iter().map(|(_, own)| count(own)).sum(),
        State::And { children, matched } => {
            children.iter().flatten().map(count).sum::<usize>()
                + matched.iter().map(Vec::len).sum::<usize>()
        }
        State::Or(children) => children.iter().flatten().map(count).sum(),
        State::Not(child) => child.as_deref().map_or(0, count),
        State::Until { node, end, .. } => node.iter().chain(end).map(|child| count(child)).sum(),
        State::Within { child, .. } | State::While(child) => count(child),
    }
}

fn ended(is_empty: bool, matches: &[Bindings]) -> End {
    match (is_empty, matches.is_empty()) {
        (false, _) => End::Open,
        (true, false) => End::Quit,
        (true, true) => End::Failed,
    }
}

/// Starts a child of `every`; one that is true at once would be true for ever, and is left out.
fn spawn(node: &PatternNode, begin: &Bindings, env: &dyn Matcher, children: &mut Vec<State>) {
    let (state, stepped) = start(node, begin, env);
    if stepped.matches.is_empty() && stepped.end == End::Open {
        children.push(state);
    }
}

/// Goes on with the part at `place`, or matches when there is none.
fn follow(
    parts: &[PatternNode],
    place: usize,
    begin: &Bindings,
    env: &dyn Matcher,
    branches: &mut Vec<(usize, State)>,
    matches: &mut Vec<Bindings>,
) {
    let Some(part) = parts.get(place) else {
        matches.push(begin.clone());
        return;
    };
    let (state, stepped) = start(part, begin, env);
    if stepped.end == End::Open {
        branches.push((place, state));
    }
    for matched in stepped.matches {
        follow(parts, place + 1, &matched, env, branches, matches);
    }
}

/// Takes what child `place` gave; false when the whole has failed.
fn all_of(
    parts: &[PatternNode],
    children: &mut [Option<State>],
    matched: &mut [Vec<Bindings>],
    place: usize,
    own: Stepped,
    matches: &mut Vec<Bindings>,
) -> bool {
    if own.end == End::Failed {
        return false;
    }
    if own.end == End::Quit {
        children[place] = None;
    }
    for found in own.matches {
        let mut whole = vec![found.clone()];
        for (other, known) in matched.iter().enumerate() {
            if other != place {
                whole = whole
                    .iter()
                    .flat_map(|left| known.iter().map(move |right| merge(left, right)))
                    .collect();
            }
        }
        matches.append(&mut whole);
        matched[place].push(found);
    }
    debug_assert_eq!(parts.len(), matched.len());
    true
}

/// The whole is over when nothing but `not` still waits.
fn and_end(parts: &[PatternNode], children: &[Option<State>], matches: &[Bindings]) -> End {
    let waits = parts
        .iter()
        .zip(children)
        .any(|(part, child)| child.is_some() && !matches!(part, PatternNode::Not(_)));
    if waits {
        End::Open
    } else {
        ended(true, matches)
    }
}

/// Both sides' tags.
fn merge(left: &Bindings, right: &Bindings) -> Bindings {
    left.iter()
        .zip(right.iter())
        .map(|(left, right)| match left {
            Captured::None => right.clone(),
            _ => left.clone(),
        })
        .collect()
}

fn bind(begin: &Bindings, tag: usize, captured: Captured) -> Bindings {
    let mut parts = begin.to_vec();
    if let Some(part) = parts.get_mut(tag) {
        *part = captured;
    }
    parts.into()
}

/// Leaves out matches with a key that was seen.
fn distinct(
    keys: &[crate::expression::Expression],
    expires: Option<i64>,
    env: &dyn Matcher,
    seen: &mut Vec<(Vec<u8>, Option<i64>)>,
    matches: &mut Vec<Bindings>,
) {
    seen.retain(|(_, until)| until.is_none_or(|until| until > env.now()));
    matches.retain(|matched| {
        let key = env.key(keys, matched);
        if seen.iter().any(|(known, _)| *known == key) {
            return false;
        }
        seen.push((key, expires.map(|expires| env.now() + expires)));
        true
    });
}
