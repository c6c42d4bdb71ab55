//! Readers that were let go, kept for a while for whoever goes on where they stand.
//!
//! A read that keeps nothing between its calls makes a reader each time, and its next call begins where
//! this one ended. A client of librdkafka's costs threads and connections, and throws away what it
//! has read ahead: so it is given to who asks for just these positions, and to nobody else. One that
//! waits for records elsewhere would answer late.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::consumer::{Client, Member, Place};
use crate::event_store::ConsumerConfig;
use crate::limits::{CLUSTER_READERS_KEPT_FOR, CLUSTER_READERS_KEPT_MAX};
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

/// Those that nobody holds.
#[derive(Clone, Default)]
pub(super) struct Readers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The oldest first.
    standing: VecDeque<(Instant, Standing)>,
    /// Whether somebody ends those whose time is over.
    is_watched: bool,
    is_closed: bool,
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

    /// Keeps one for a while, in place of the oldest where there are too many.
    pub(super) fn keep(&self, runtime: &Handle, standing: Standing) {
        let mut state = self.0.lock();
        let until = Instant::now() + CLUSTER_READERS_KEPT_FOR;
        state.standing.push_back((until, standing));
        let is_over = state.is_closed || state.standing.len() > CLUSTER_READERS_KEPT_MAX;
        if let Some(gone) = is_over.then(|| state.standing.pop_front()) {
            // Ending a client waits for its threads.
            runtime.spawn_blocking(move || drop(gone));
        }
        if !state.standing.is_empty() && !std::mem::replace(&mut state.is_watched, true) {
            runtime.spawn(self.clone().watch(until));
        }
    }

    /// Ends those whose time is over, until there is none.
    async fn watch(self, first: Instant) {
        let mut next = Some(first);
        while let Some(until) = next {
            tokio::time::sleep_until(until).await;
            let over;
            (over, next) = self.over();
            if !over.is_empty() {
                tokio::task::spawn_blocking(move || drop(over));
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
        drop(state);
        if !gone.is_empty() {
            // Ending a client waits for its threads.
            tokio::task::spawn_blocking(move || drop(gone));
        }
    }

    /// Keeps none any more, and ends those that it has.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let all = std::mem::take(&mut state.standing);
        drop(state);
        drop(all);
    }

    /// Takes out those whose time is over; tells when that of the next is, or that nobody watches.
    fn over(&self) -> (Vec<Standing>, Option<Instant>) {
        let mut state = self.0.lock();
        let now = Instant::now();
        let count = state.standing.partition_point(|(until, _)| *until <= now);
        let over = state.standing.drain(..count);
        let over = over.map(|(_, standing)| standing).collect();
        let next = state.standing.front().map(|(until, _)| *until);
        state.is_watched = next.is_some();
        (over, next)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().standing.len()
    }
}
