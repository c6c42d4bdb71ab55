//! Readers that were let go, kept for a while for whoever goes on where they stand.
//!
//! A read that keeps nothing between its calls makes a reader each time, and its next call begins where
//! this one ended. A client of librdkafka's costs threads and connections, and throws away what it
//! has read ahead: so it is given to who asks for just these positions. When nobody has, its positions
//! are taken from it and it goes to who begins anywhere else; not at once, as it would answer late while
//! a request of its waits for records of before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::consumer::Consumer as _;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::consumer::{Client, Member, Place};
use crate::event_store::ConsumerConfig;
use crate::limits::{
    CLUSTER_FETCH_WAIT, CLUSTER_READERS_KEPT_FOR, CLUSTER_READERS_KEPT_MAX,
    CLUSTER_READERS_SPARE_FOR, CLUSTER_READERS_SPARE_MAX,
};
use crate::record::ConsumedRecord;
use crate::topic::TopicName;

/// A reader without a group, between two who hold it.
pub(super) struct Standing {
    pub(super) config: ConsumerConfig,
    pub(super) client: Arc<Client>,
    pub(super) member: Member,
    /// The next offset of each of its partitions.
    pub(super) positions: BTreeMap<Place, i64>,
    /// Those of them of which its client has said that nothing more is there: it says so once.
    pub(super) at_end: BTreeSet<Place>,
    /// What was taken from its client and not answered.
    pub(super) kept: VecDeque<ConsumedRecord>,
}

/// A client that reads nothing.
struct Spare {
    config: ConsumerConfig,
    client: Arc<Client>,
    member: Member,
    /// Whose requests of before are answered by then.
    from: Instant,
    until: Instant,
}

/// Those that nobody holds.
#[derive(Clone, Default)]
pub(super) struct Readers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The oldest first.
    standing: VecDeque<(Instant, Standing)>,
    /// The oldest first.
    spare: VecDeque<Spare>,
    /// Whether somebody looks after those whose time is over.
    is_watched: bool,
    is_closed: bool,
}

/// Those whose time is over.
#[derive(Default)]
struct Over {
    standing: Vec<Standing>,
    spare: Vec<Spare>,
    /// When that of the next is.
    next: Option<Instant>,
}

impl Readers {
    /// The one that was made so and stands there, if there is one.
    pub(super) fn take(
        &self,
        config: &ConsumerConfig,
        positions: &BTreeMap<Place, i64>,
    ) -> Option<Standing> {
        let mut state = self.0.lock();
        let is_wanted = |(until, standing): &(Instant, Standing)| {
            *until > Instant::now()
                && standing.config == *config
                && standing.positions == *positions
        };
        // The newest has read ahead the least that is old.
        let at = state.standing.iter().rposition(is_wanted)?;
        let (_, found) = state.standing.remove(at)?;
        Some(found)
    }

    /// A client that was made so and reads nothing, with what hears of it, if there is one.
    pub(super) fn take_spare(&self, config: &ConsumerConfig) -> Option<(Arc<Client>, Member)> {
        let mut state = self.0.lock();
        let now = Instant::now();
        let is_fit =
            |spare: &Spare| (spare.from..spare.until).contains(&now) && spare.config == *config;
        let at = state.spare.iter().rposition(is_fit)?;
        let found = state.spare.remove(at)?;
        Some((found.client, found.member))
    }

    /// Keeps one for a while, in place of the oldest where there are too many.
    pub(super) fn keep(&self, runtime: &Handle, standing: Standing) {
        let mut state = self.0.lock();
        let until = Instant::now() + CLUSTER_READERS_KEPT_FOR;
        state.standing.push_back((until, standing));
        let is_over = state.is_closed || state.standing.len() > CLUSTER_READERS_KEPT_MAX;
        let over = is_over.then(|| state.standing.pop_front()).flatten();
        self.see_to(&mut state, runtime, until);
        drop(state);
        if let Some((_, over)) = over {
            self.retire(runtime, over);
        }
    }

    /// Takes a reader's positions from its client, which is spare then.
    fn retire(&self, runtime: &Handle, standing: Standing) {
        let (readers, on) = (self.clone(), runtime.clone());
        // Ending a client waits for its threads.
        runtime.spawn_blocking(move || {
            let Standing {
                config,
                client,
                member,
                ..
            } = standing;
            if let Err(error) = client.unassign() {
                return tracing::debug!(%error, "a reader could not be used again");
            }
            let now = Instant::now();
            let spare = Spare {
                config,
                client,
                member,
                from: now + CLUSTER_FETCH_WAIT * 2,
                until: now + CLUSTER_READERS_SPARE_FOR,
            };
            let mut state = readers.0.lock();
            if state.is_closed || state.spare.len() >= CLUSTER_READERS_SPARE_MAX {
                // Not the oldest: that can be taken sooner.
                drop(state);
                return drop(spare);
            }
            let until = spare.until;
            state.spare.push_back(spare);
            readers.see_to(&mut state, &on, until);
        });
    }

    /// Has somebody look after those whose time is over from `first` on.
    fn see_to(&self, state: &mut State, runtime: &Handle, first: Instant) {
        let is_needed = !state.standing.is_empty() || !state.spare.is_empty();
        if is_needed && !std::mem::replace(&mut state.is_watched, true) {
            runtime.spawn(self.clone().watch(first));
        }
    }

    /// Looks after those whose time is over, until there is none.
    async fn watch(self, first: Instant) {
        let runtime = Handle::current();
        let mut next = Some(first);
        while let Some(until) = next {
            tokio::time::sleep_until(until).await;
            let over = self.over();
            next = over.next;
            for standing in over.standing {
                self.retire(&runtime, standing);
            }
            if !over.spare.is_empty() {
                runtime.spawn_blocking(move || drop(over.spare));
            }
        }
    }

    /// Keeps none of a topic that is gone: one that is made anew under its name has other records.
    pub(super) fn forget(&self, topic: &TopicName) {
        let is_of_it = |(_, standing): &(Instant, Standing)| {
            standing.positions.keys().any(|(of, _)| of == topic)
        };
        let mut state = self.0.lock();
        let all = std::mem::take(&mut state.standing);
        let gone: VecDeque<(Instant, Standing)>;
        (gone, state.standing) = all.into_iter().partition(is_of_it);
        // Any of them may remember it.
        let spare = std::mem::take(&mut state.spare);
        drop(state);
        if !gone.is_empty() || !spare.is_empty() {
            // Ending a client waits for its threads.
            tokio::task::spawn_blocking(move || drop((gone, spare)));
        }
    }

    /// Keeps none any more, and ends those that it has.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let all = (
            std::mem::take(&mut state.standing),
            std::mem::take(&mut state.spare),
        );
        drop(state);
        drop(all);
    }

    /// Takes out those whose time is over; without a next one nobody watches.
    fn over(&self) -> Over {
        let mut state = self.0.lock();
        let now = Instant::now();
        let count = state.standing.partition_point(|(until, _)| *until <= now);
        let standing = state.standing.drain(..count);
        let standing = standing.map(|(_, standing)| standing).collect();
        let count = state.spare.partition_point(|spare| spare.until <= now);
        let spare = state.spare.drain(..count).collect();
        let next = state.standing.front().map(|(until, _)| *until);
        let next_spare = state.spare.front().map(|spare| spare.until);
        let next = next.into_iter().chain(next_spare).min();
        state.is_watched = next.is_some();
        Over {
            standing,
            spare,
            next,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().standing.len()
    }

    /// Those that could be taken now.
    #[cfg(test)]
    pub(super) fn spare_len(&self) -> usize {
        let (state, now) = (self.0.lock(), Instant::now());
        let is_ripe = |spare: &&Spare| spare.from <= now;
        state.spare.iter().filter(is_ripe).count()
    }
}
