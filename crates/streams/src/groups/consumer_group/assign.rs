//! How the coordinator itself shares partitions among the members of a group.
//!
//! `uniform` gives everybody as many partitions as the subscriptions allow and leaves each where
//! it was as far as that goes; `range` gives neighbors of each topic to each member, so that equal
//! numbers of topics with equal counts meet at one member. Both give the same answer for the same
//! input.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::Partitions;

/// A member that wants partitions.
#[derive(Clone, Debug)]
pub(super) struct Taker<'a> {
    /// Its id.
    pub(super) id: &'a str,
    /// What it is sorted by under `range`: a static member keeps its place over restarts.
    pub(super) name: &'a str,
    /// The topics that it reads.
    pub(super) topics: BTreeSet<Uuid>,
    /// What it was to have before.
    pub(super) before: Option<&'a Partitions>,
}

/// The assignors by the names that members ask for, the default first.
pub(crate) const ASSIGNORS: [&str; 2] = [UNIFORM, RANGE];

/// Shares the partitions of `topics` (id, count); answers each taker's share, in their order.
pub(super) fn assign(
    assignor: &str,
    takers: &[Taker<'_>],
    topics: &BTreeMap<Uuid, i32>,
) -> Vec<Partitions> {
    if takers.is_empty() {
        return Vec::new();
    }
    if assignor == RANGE {
        return range(takers, topics);
    }
    let alike = takers
        .windows(2)
        .all(|pair| pair[0].topics == pair[1].topics);
    if alike {
        even(takers, topics)
    } else {
        balanced(takers, topics)
    }
}

fn range(takers: &[Taker<'_>], topics: &BTreeMap<Uuid, i32>) -> Vec<Partitions> {
    let mut shares = vec![Partitions::default(); takers.len()];
    for (topic, count) in topics {
        let mut readers = readers_of(takers, *topic);
        readers.sort_by_key(|at| takers[*at].name);
        let Ok(readers_count) = i32::try_from(readers.len()) else {
            continue;
        };
        if readers_count == 0 {
            continue;
        }
        let (each, longer) = (count / readers_count, count % readers_count);
        for (nth, reader) in (0..).zip(readers) {
            let start = nth * each + longer.min(nth);
            let end = start + each + i32::from(nth < longer);
            shares[reader].extend((start..end).map(|partition| (*topic, partition)));
        }
    }
    shares
}

/// Everybody reads the same topics: shares differ by one at most.
fn even(takers: &[Taker<'_>], topics: &BTreeMap<Uuid, i32>) -> Vec<Partitions> {
    let wanted = |topic: &Uuid| takers[0].topics.contains(topic);
    let all: Partitions = topics
        .iter()
        .filter(|(topic, _)| wanted(topic))
        .flat_map(|(topic, count)| (0..*count).map(|p| (*topic, p)))
        .collect();
    let (each, mut longer) = (all.len() / takers.len(), all.len() % takers.len());
    let mut free = all.clone();
    let mut shares = vec![Partitions::default(); takers.len()];
    let mut kept: Vec<Vec<(Uuid, i32)>> = kept_before(takers, &mut free, |_, topic| {
        topics.contains_key(&topic) && wanted(&topic)
    });
    // Those that have most keep the places of the longer shares, so that the fewest move.
    let mut order: Vec<usize> = (0..takers.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(kept[*at].len()));
    let mut rooms = vec![each; takers.len()];
    for at in &order {
        if longer > 0 && kept[*at].len() > each {
            rooms[*at] += 1;
            longer -= 1;
        }
    }
    for at in &order {
        if longer > 0 && rooms[*at] == each {
            rooms[*at] += 1;
            longer -= 1;
        }
    }
    for (at, kept) in kept.iter_mut().enumerate() {
        let over = kept.split_off(kept.len().min(rooms[at]));
        free.extend(over);
        shares[at].extend(kept.drain(..));
        rooms[at] -= shares[at].len();
    }
    // Turn by turn, so that one topic's partitions spread over the members.
    let mut free = free.iter();
    while rooms.iter().any(|room| *room > 0) {
        for (at, room) in rooms.iter_mut().enumerate().filter(|(_, room)| **room > 0) {
            let Some((topic, partition)) = free.next() else {
                return shares;
            };
            shares[at].insert(topic, partition);
            *room -= 1;
        }
    }
    shares
}

/// Members read different topics: the least laden reader takes, then moves even out the rest.
fn balanced(takers: &[Taker<'_>], topics: &BTreeMap<Uuid, i32>) -> Vec<Partitions> {
    let mut free: Partitions = topics
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(|p| (*topic, p)))
        .collect();
    let kept = kept_before(takers, &mut free, |at, topic| {
        topics.contains_key(&topic) && takers[at].topics.contains(&topic)
    });
    let mut shares: Vec<Partitions> = kept.into_iter().map(Partitions::from_iter).collect();
    let mut loads: Vec<usize> = shares.iter().map(Partitions::len).collect();
    let by_topic: Vec<(Uuid, Vec<i32>)> = free
        .by_topic()
        .map(|(topic, partitions)| (*topic, partitions.iter().copied().collect()))
        .collect();
    for (topic, partitions) in by_topic {
        let mut readers: BTreeSet<(usize, usize)> = readers_of(takers, topic)
            .into_iter()
            .map(|at| (loads[at], at))
            .collect();
        for partition in partitions {
            let Some((load, at)) = readers.pop_first() else {
                break;
            };
            shares[at].insert(topic, partition);
            loads[at] = load + 1;
            readers.insert((loads[at], at));
        }
    }
    for _ in 0..EVENING_ROUNDS_MAX {
        let mut moved = false;
        for topic in topics.keys() {
            moved |= even_out(*topic, takers, &mut shares, &mut loads);
        }
        if !moved {
            break;
        }
    }
    shares
}

/// Moves partitions of one topic from the most to the least laden of its readers.
fn even_out(
    topic: Uuid,
    takers: &[Taker<'_>],
    shares: &mut [Partitions],
    loads: &mut [usize],
) -> bool {
    let mut readers: BTreeSet<(usize, usize)> = readers_of(takers, topic)
        .into_iter()
        .map(|at| (loads[at], at))
        .collect();
    let mut moved = false;
    loop {
        let Some(least) = readers.first().copied() else {
            return moved;
        };
        let of_topic = |at: usize| {
            let mut found = shares[at].by_topic().filter(|(id, _)| **id == topic);
            found.next().and_then(|(_, p)| p.last().copied())
        };
        let most = readers
            .iter()
            .rev()
            .take_while(|(load, _)| *load >= least.0 + 2)
            .find_map(|(load, at)| of_topic(*at).map(|partition| (*load, *at, partition)));
        let Some((load, from, partition)) = most else {
            return moved;
        };
        moved = true;
        shares[from].remove(&topic, partition);
        shares[least.1].insert(topic, partition);
        for (was, at, is) in [(load, from, load - 1), (least.0, least.1, least.0 + 1)] {
            readers.remove(&(was, at));
            readers.insert((is, at));
            loads[at] = is;
        }
    }
}

/// What each taker had and may keep; takes it out of `free`, so that nothing is kept twice.
fn kept_before(
    takers: &[Taker<'_>],
    free: &mut Partitions,
    may_keep: impl Fn(usize, Uuid) -> bool,
) -> Vec<Vec<(Uuid, i32)>> {
    let each = takers.iter().enumerate().map(|(at, taker)| {
        let before = taker.before.into_iter().flat_map(Partitions::iter);
        before
            .filter(|(topic, p)| may_keep(at, *topic) && free.remove(topic, *p))
            .collect()
    });
    each.collect()
}

fn readers_of(takers: &[Taker<'_>], topic: Uuid) -> Vec<usize> {
    (0..takers.len())
        .filter(|at| takers[*at].topics.contains(&topic))
        .collect()
}

const UNIFORM: &str = "uniform";
const RANGE: &str = "range";

/// Rounds of evening out over all topics: each makes the shares more alike, and most inputs need
/// one or two.
const EVENING_ROUNDS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn topic(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn taker<'a>(id: &'a str, topics: &[u128], before: Option<&'a Partitions>) -> Taker<'a> {
        Taker {
            id,
            name: id,
            topics: topics.iter().map(|n| topic(*n)).collect(),
            before,
        }
    }

    fn lengths(shares: &[Partitions]) -> Vec<usize> {
        shares.iter().map(Partitions::len).collect()
    }

    #[test]
    fn range_gives_neighbors_and_the_first_get_the_longer_ranges() {
        let takers = [taker("b", &[1, 2], None), taker("a", &[1, 2], None)];
        let topics = [(topic(1), 3), (topic(2), 2)].into();
        let shares = assign("range", &takers, &topics);
        let of_a: Vec<(Uuid, i32)> = shares[1].iter().collect();
        assert_eq!(of_a, [(topic(1), 0), (topic(1), 1), (topic(2), 0)]);
        assert_eq!(shares[0].len(), 2);
    }

    #[test]
    fn uniform_moves_only_what_a_new_member_needs() {
        let topics = [(topic(1), 7)].into();
        let first = assign("uniform", &[taker("a", &[1], None)], &topics);
        assert_eq!(lengths(&first), [7]);
        let takers = [taker("a", &[1], Some(&first[0])), taker("b", &[1], None)];
        let second = assign("uniform", &takers, &topics);
        assert_eq!(lengths(&second), [4, 3]);
        assert!(second[0].is_within(&first[0]));
        // The second leaves again: the first gets back what it gave.
        let back = assign("uniform", &[taker("a", &[1], Some(&second[0]))], &topics);
        assert_eq!(back, first);
    }

    #[test]
    fn uniform_evens_out_what_different_subscriptions_allow() {
        let had: Partitions = (0..6).map(|p| (topic(1), p)).collect();
        let takers = [
            taker("a", &[1, 2], Some(&had)),
            taker("b", &[1], None),
            taker("c", &[2], None),
        ];
        let topics = [(topic(1), 6), (topic(2), 3)].into();
        let shares = assign("uniform", &takers, &topics);
        assert_eq!(lengths(&shares), [3, 3, 3]);
        assert!(shares[2].iter().all(|(id, _)| id == topic(2)));
    }

    /// Whatever the subscriptions: every partition that has a reader has exactly one, who reads
    /// its topic; a second run with the first as past moves nothing.
    #[test]
    fn random_inputs_are_shared_out_wholly_and_stick() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let topics: BTreeMap<Uuid, i32> = (0..5_u8)
                .map(|n| (topic(n.into()), i32::try_from(rng.below(9)).unwrap()))
                .collect();
            let ids: Vec<String> = (0..=rng.below(5)).map(|n| format!("m{n}")).collect();
            let mixed = rng.one_in(2);
            let wishes: Vec<Vec<u128>> = ids
                .iter()
                .map(|_| (0..5).filter(|_| !mixed || rng.one_in(2)).collect())
                .collect();
            for assignor in ASSIGNORS {
                let takers = |before: Option<&'_ [Partitions]>| -> Vec<Partitions> {
                    let takers: Vec<Taker<'_>> = ids
                        .iter()
                        .zip(&wishes)
                        .enumerate()
                        .map(|(at, (id, wish))| taker(id, wish, before.map(|b| &b[at])))
                        .collect();
                    assign(assignor, &takers, &topics)
                };
                let shares = takers(None);
                let mut given = BTreeSet::new();
                for (share, wish) in shares.iter().zip(&wishes) {
                    for (id, partition) in share.iter() {
                        assert!(wish.contains(&id.as_u128()), "seed {seed}: unwanted topic");
                        assert!(given.insert((id, partition)), "seed {seed}: given twice");
                    }
                }
                let read = |id: &Uuid| wishes.iter().any(|wish| wish.contains(&id.as_u128()));
                let all = topics.iter().filter(|(id, _)| read(id));
                let all: i32 = all.map(|(_, count)| *count).sum();
                assert_eq!(given.len(), usize::try_from(all).unwrap(), "seed {seed}");
                assert_eq!(
                    takers(Some(&shares)),
                    shares,
                    "seed {seed}: {assignor} moved"
                );
            }
        }
    }
}
