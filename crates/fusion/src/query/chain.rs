//! The data windows of one input: one, several together, or one set per key.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::codec::{Decoder, Encoder};
use crate::expression::Expression;
use crate::plan::{History, Input, View};
use crate::query::layout::Found;
use crate::query::tuple::{Tuple, TupleReader, TupleWriter};
use crate::query::window::{Delta, Reading, Window};

/// What an input holds.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Without a key there is one set.
    sets: HashMap<u64, Set>,
    keys: HashMap<Box<[u8]>, u64>,
    /// When each set has something due.
    dues: BTreeSet<(i64, u64)>,
    next: u64,
    /// When the statement started.
    started: i64,
}

/// The windows of one key.
#[derive(Clone, Debug)]
struct Set {
    key: Box<[u8]>,
    windows: Vec<Window>,
    due: Option<i64>,
}

/// The static side of a chain.
#[derive(Clone, Copy)]
pub struct Views<'p> {
    /// The keys of `groupwin`.
    pub keys: &'p [Expression],
    /// The windows.
    pub views: &'p [View],
    /// Whether any keeping is enough.
    pub is_union: bool,
}

impl<'p> Views<'p> {
    /// The views of an input.
    pub fn of(input: &'p Input) -> Self {
        Views::new(&input.views, input.is_union)
    }

    /// The views of a list.
    pub fn new(views: &'p [View], is_union: bool) -> Self {
        match views {
            [View::Group(keys), views @ ..] => Views {
                keys,
                views,
                is_union,
            },
            views => Views {
                keys: &[],
                views,
                is_union,
            },
        }
    }
}

impl Chain {
    /// The windows at a statement's start.
    pub fn start(views: Views<'_>, now: i64) -> Self {
        let mut chain = Chain {
            sets: HashMap::new(),
            keys: HashMap::new(),
            dues: BTreeSet::new(),
            next: 0,
            started: now,
        };
        if views.keys.is_empty() && !views.views.is_empty() {
            chain.set(views, &[], now);
        }
        chain
    }

    /// An event comes.
    pub fn insert(
        &mut self,
        views: Views<'_>,
        reading: Reading<'_>,
        now: i64,
        tuple: Arc<Tuple>,
        delta: &mut Delta,
    ) {
        if views.views.is_empty() {
            delta.new.push(tuple);
            return;
        }
        let id = match views.keys {
            [] => 0,
            keys => {
                let key = reading.key(&tuple, keys);
                self.set(views, &key, now)
            }
        };
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        match (views.views, set.windows.as_mut_slice()) {
            ([view], [window]) => window.insert(view, reading, now, tuple, delta),
            (several, windows) => {
                let mut all = Delta::default();
                let mut entered = 0;
                for (view, window) in several.iter().zip(windows.iter_mut()) {
                    let mut own = Delta::default();
                    window.insert(view, reading, now, tuple.clone(), &mut own);
                    entered += own.new.len();
                    all.old.append(&mut own.old);
                }
                let is_in = if views.is_union {
                    entered > 0
                } else {
                    entered == several.len()
                };
                if is_in {
                    all.new.push(tuple);
                } else {
                    // Who has taken it lets go of it: it was never in.
                    for (view, window) in several.iter().zip(windows.iter_mut()) {
                        window.remove(view, reading, &tuple);
                    }
                    all.old.retain(|gone| gone.number != tuple.number);
                }
                settle(views, reading, windows, all, delta);
            }
        }
        self.register(views, id);
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<i64> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// Lets go of what is due at `now`.
    pub fn advance(&mut self, views: Views<'_>, reading: Reading<'_>, now: i64, delta: &mut Delta) {
        while let Some((due, id)) = self.dues.first().copied()
            && due <= now
        {
            self.dues.pop_first();
            let Some(set) = self.sets.get_mut(&id) else {
                continue;
            };
            set.due = None;
            match (views.views, set.windows.as_mut_slice()) {
                ([view], [window]) => window.advance(view, reading, now, delta),
                (several, windows) => {
                    let mut all = Delta::default();
                    for (view, window) in several.iter().zip(windows.iter_mut()) {
                        window.advance(view, reading, now, &mut all);
                    }
                    settle(views, reading, windows, all, delta);
                }
            }
            self.register(views, id);
        }
    }

    /// What is held; of several windows what all (or any) hold, in the order of the first.
    pub fn contents(&self, views: Views<'_>) -> Vec<Arc<Tuple>> {
        let mut ids: Vec<&u64> = self.sets.keys().collect();
        ids.sort_unstable();
        let mut contents: Vec<Arc<Tuple>> = Vec::new();
        for id in ids {
            let windows = &self.sets[id].windows;
            let Some(first) = windows.first() else {
                continue;
            };
            contents.extend(first.contents().cloned());
            if views.is_union {
                for (place, window) in windows.iter().enumerate().skip(1) {
                    let earlier = &windows[..place];
                    contents.extend(
                        window
                            .contents()
                            .filter(|tuple| {
                                !earlier
                                    .iter()
                                    .zip(views.views)
                                    .any(|(window, view)| window.holds(view, tuple))
                            })
                            .cloned(),
                    );
                }
            }
        }
        contents
    }

    /// Takes one event away, as if its time were over; false when it is not here.
    pub fn remove(
        &mut self,
        views: Views<'_>,
        reading: Reading<'_>,
        tuple: &Arc<Tuple>,
        delta: &mut Delta,
    ) -> bool {
        let id = match views.keys {
            [] => Some(0),
            keys => self.keys.get(&reading.key(tuple, keys)).copied(),
        };
        let Some((id, set)) = id.and_then(|id| Some((id, self.sets.get_mut(&id)?))) else {
            return false;
        };
        let mut is_gone = false;
        for (view, window) in views.views.iter().zip(&mut set.windows) {
            is_gone |= window.remove(view, reading, tuple);
        }
        if is_gone {
            delta.old.push(tuple.clone());
            self.register(views, id);
        }
        is_gone
    }

    /// The event of a key, of one window that keeps one of each.
    pub fn by_key(&self, key: &[u8]) -> Option<&Arc<Tuple>> {
        self.sets.get(&0)?.windows.first()?.by_key(key)
    }

    /// How many events are held.
    pub fn len(&self) -> usize {
        let of = |set: &Set| set.windows.first().map_or(0, Window::len);
        self.sets.values().map(of).sum()
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// True when a batch is held for its removal only, or something is held.
    pub fn holds_any(&self) -> bool {
        self.sets.values().any(|set| {
            set.windows
                .iter()
                .any(|window| window.len() > 0 || !window.last_batch().is_empty())
        })
    }

    /// What a history function finds from an event.
    pub fn history(
        &self,
        views: Views<'_>,
        reading: Reading<'_>,
        kind: History,
        steps: usize,
        tuple: &Arc<Tuple>,
    ) -> Found<'_> {
        let set = match views.keys {
            [] => self.sets.get(&0),
            keys => self
                .keys
                .get(&reading.key(tuple, keys))
                .and_then(|id| self.sets.get(id)),
        };
        let Some(window) = set.and_then(|set| set.windows.first()) else {
            return match kind {
                History::PrevCount => Found::Count(0),
                _ => Found::Event(None),
            };
        };
        if views.views.first().is_some_and(View::is_batch) {
            let batch = window.last_batch();
            return match kind {
                History::PrevCount => Found::Count(batch.len()),
                History::PrevTail => Found::Event(batch.get(steps).map(Arc::as_ref)),
                History::Prev | History::Prior => {
                    let place = batch.iter().position(|kept| kept.number == tuple.number);
                    let place = place.and_then(|place| place.checked_sub(steps));
                    Found::Event(place.map(|place| batch[place].as_ref()))
                }
            };
        }
        // A sorted window is counted in its own order, from its front.
        let is_sorted = matches!(
            views.views.first(),
            Some(View::Sort { .. } | View::Rank { .. } | View::TimeOrder { .. })
        );
        let kind = match kind {
            History::Prev if is_sorted => History::PrevTail,
            History::PrevTail if is_sorted => History::Prev,
            kind => kind,
        };
        match kind {
            History::PrevCount => Found::Count(window.len()),
            History::PrevTail => Found::Event(window.nth(true, steps).map(Arc::as_ref)),
            History::Prev | History::Prior => {
                Found::Event(window.nth(false, steps).map(Arc::as_ref))
            }
        }
    }

    /// Writes the state.
    pub fn encode(&self, tuples: &mut TupleWriter, out: &mut Encoder) {
        out.i64(self.started);
        let mut ids: Vec<&u64> = self.sets.keys().collect();
        ids.sort_unstable();
        out.count(ids.len());
        for id in ids {
            let set = &self.sets[id];
            out.bytes(&set.key);
            for window in &set.windows {
                window.encode(tuples, out);
            }
        }
    }

    /// Reads it back.
    pub fn decode(
        views: Views<'_>,
        tuples: &mut TupleReader,
        from: &mut Decoder<'_>,
    ) -> Option<Self> {
        let started = from.i64()?;
        let mut chain = Chain {
            sets: HashMap::new(),
            keys: HashMap::new(),
            dues: BTreeSet::new(),
            next: 0,
            started,
        };
        for _ in 0..from.count()? {
            let key: Box<[u8]> = from.bytes()?.into();
            let id = chain.set(views, &key, started);
            let mut windows = Vec::with_capacity(views.views.len());
            for _ in views.views {
                windows.push(Window::decode(tuples, from)?);
            }
            if let Some(set) = chain.sets.get_mut(&id) {
                set.windows = windows;
            }
            chain.register(views, id);
        }
        Some(chain)
    }

    /// The set of a key, which is made when it is new.
    fn set(&mut self, views: Views<'_>, key: &[u8], now: i64) -> u64 {
        if let Some(id) = self.keys.get(key) {
            return *id;
        }
        let id = self.next;
        self.next += 1;
        let windows: Vec<Window> = views
            .views
            .iter()
            .map(|view| Window::start(view, now))
            .collect();
        let is_idle = windows.iter().all(Window::is_idle);
        self.keys.insert(key.into(), id);
        self.sets.insert(
            id,
            Set {
                key: key.into(),
                windows,
                due: None,
            },
        );
        // An idle set would be forgotten before its first event is in.
        if !is_idle {
            self.register(views, id);
        }
        id
    }

    /// Notes when a set has something due; forgets a key's set that holds nothing.
    fn register(&mut self, views: Views<'_>, id: u64) {
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        let dues = views
            .views
            .iter()
            .zip(&set.windows)
            .filter_map(|(view, window)| window.deadline(view));
        let due = dues.min();
        if due != set.due {
            if let Some(before) = set.due {
                self.dues.remove(&(before, id));
            }
            self.dues.extend(due.map(|due| (due, id)));
            set.due = due;
        }
        if due.is_none() && !views.keys.is_empty() && set.windows.iter().all(Window::is_idle) {
            let key = std::mem::take(&mut set.key);
            self.keys.remove(&key);
            self.sets.remove(&id);
        }
    }
}

/// Makes one delta of what several windows did: what left one leaves all (or, in a union, leaves
/// when no window holds it).
fn settle(
    views: Views<'_>,
    reading: Reading<'_>,
    windows: &mut [Window],
    mut all: Delta,
    delta: &mut Delta,
) {
    delta.new.append(&mut all.new);
    let mut gone: Vec<u64> = Vec::new();
    for tuple in all.old {
        if gone.contains(&tuple.number) {
            continue;
        }
        if views.is_union {
            let mut pairs = windows.iter().zip(views.views);
            if pairs.any(|(window, view)| window.holds(view, &tuple)) {
                continue;
            }
        } else {
            for (window, view) in windows.iter_mut().zip(views.views) {
                window.remove(view, reading, &tuple);
            }
        }
        gone.push(tuple.number);
        delta.old.push(tuple);
    }
}
