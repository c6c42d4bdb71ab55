//! The index against a plain list of batches.

use std::collections::HashMap;

use base::Rng;

use super::*;

fn batch(base_offset: i64, position: u64, max_timestamp: i64) -> Located {
    Located {
        base_offset,
        position: Position(position),
        bytes: 100,
        max_timestamp,
    }
}

/// An index and the plain list that it stands for.
fn sample(seed: u64) -> (BatchIndex, Vec<Located>, i64) {
    let mut rng = Rng::from_seed(seed);
    let (mut index, mut list) = (BatchIndex::default(), Vec::new());
    let (mut offset, mut position, mut time) = (0, 64, 1_700_000_000_000);
    for _ in 0..2_000 {
        let next = batch(offset, position, time);
        index.push(next);
        list.push(next);
        offset += 1 + i64::try_from(rng.below(9)).unwrap();
        position += if rng.one_in(300) {
            5 << 32
        } else {
            100 + rng.below(10_000)
        };
        time += i64::try_from(rng.below(2_000)).unwrap() - 900;
        if rng.one_in(400) {
            time = if time < 0 { 1_700_000_000_000 } else { -1 };
        }
    }
    (index, list, offset)
}

fn all_from(index: &BatchIndex, offset: i64) -> Vec<Located> {
    let (mut all, mut from) = (Vec::new(), Some(offset));
    while let Some(offset) = from {
        let Some((run, next)) = index.run_at(offset, usize::MAX) else {
            break;
        };
        let Run::Here(batches) = run else {
            panic!("a chunk is away");
        };
        all.extend(batches);
        from = next;
    }
    all
}

fn all_since(index: &BatchIndex, time: i64) -> Vec<Located> {
    let (mut all, mut from) = (Vec::new(), Some(i64::MIN));
    while let Some((run, next)) = from.and_then(|from| index.run_since_time(from, time)) {
        let Run::Here(batches) = run else {
            panic!("a chunk is away");
        };
        all.extend(batches.iter().filter(|b| b.max_timestamp >= time));
        from = next;
    }
    all
}

#[test]
fn a_chunk_goes_away_and_comes_back_and_an_index_stands_as_it_stood() {
    let (mut index, list, end) = sample(3);
    let mut kept = HashMap::new();
    let mut from = 0;
    while let Some((first, bytes, next)) = index.full_chunk(from, 64) {
        let away = Away {
            position: Position(9_000_000 + kept.len() as u64),
            bytes: u32::try_from(bytes.len()).unwrap(),
        };
        index.put_away(first, &bytes, away);
        kept.insert(away.position, bytes);
        from = next.unwrap_or(end);
    }
    assert!(kept.len() > 3 && kept.len() < list.len() / 64);
    let mut index = {
        let (mut pieces, mut standing, mut from) = (0, Vec::new(), Some(i64::MIN));
        while let Some(offset) = from {
            let (piece, next) = index.standing_from(offset, 1_000);
            standing.extend(piece);
            (pieces, from) = (pieces + 1, next);
        }
        assert!(pieces > 1);
        BatchIndex::restored(standing).unwrap()
    };
    assert_eq!(index.bytes(), 100 * list.len() as u64);
    let middle = list[list.len() / 2].base_offset;
    let Some((Run::Away(away), _)) = index.run_at(middle, 0) else {
        panic!("the chunk in the middle is at hand");
    };
    let found = Run::fetched(&kept[&away.position], middle).unwrap();
    assert_eq!(found[0], list[list.len() / 2]);
    while let Some(away) = index.away_before(Position(u64::MAX)) {
        index.bring_back(away, &kept[&away.position]);
    }
    assert_eq!(all_from(&index, 0), list);
}

#[test]
fn edits_of_what_is_gone_change_nothing() {
    let mut index = BatchIndex::default();
    index.edit(&[((5, Position(64)), None)].into());
    assert_eq!(index.bytes(), 0);
}

#[test]
fn lookups_are_those_of_a_plain_list() {
    for seed in 0..20 {
        let (index, list, end) = sample(seed);
        let mut rng = Rng::from_seed(seed);
        for _ in 0..50 {
            let offset = i64::try_from(rng.below(u64::try_from(end).unwrap())).unwrap();
            let at = list.partition_point(|b| b.base_offset <= offset) - 1;
            let found = all_from(&index, offset);
            assert_eq!(found, list[at..], "seed {seed}");
            let time = 1_700_000_000_000 + offset * 10;
            let wanted: Vec<Located> = list
                .iter()
                .filter(|b| b.max_timestamp >= time)
                .copied()
                .collect();
            assert_eq!(all_since(&index, time), wanted, "seed {seed}");
        }
    }
}

#[test]
fn whole_chunks_tell_the_bytes_of_their_batches() {
    for seed in 0..20 {
        let (index, list, end) = sample(seed);
        let (mut chunks, mut at) = (0, 0);
        while let Some((_, Some(next))) = index.run_at(at, 0) {
            let within = list.iter().filter(|b| (at..next).contains(&b.base_offset));
            let bytes = 100 * within.count();
            assert_eq!(index.whole_chunks(at, end, 1), (bytes, next), "seed {seed}");
            // Not when some of it is not visible, nor from its middle on.
            assert_eq!(index.whole_chunks(at, next - 1, 1), (0, at));
            if at + 1 < next {
                assert_eq!(index.whole_chunks(at + 1, end, 1), (0, at + 1));
            }
            (chunks, at) = (chunks + 1, next);
        }
        assert!(chunks > 0, "seed {seed}");
        let before = list.iter().filter(|b| b.base_offset < at).count();
        assert_eq!(index.whole_chunks(0, end, usize::MAX), (100 * before, at));
    }
}

#[test]
fn forgetting_leaves_the_batch_that_holds_the_offset() {
    for seed in 0..20 {
        let (mut index, list, end) = sample(seed);
        let mut rng = Rng::from_seed(seed);
        let mut offset = 0;
        while offset < end {
            offset += i64::try_from(rng.below(700)).unwrap();
            index.forget_before(offset, end);
            let at = list.partition_point(|b| b.base_offset <= offset) - 1;
            let rest = if offset >= end { &[] } else { &list[at..] };
            assert_eq!(all_from(&index, 0), rest, "seed {seed}");
            assert_eq!(index.bytes(), 100 * rest.len() as u64);
            assert_eq!(index.lowest(), rest.first().map(|batch| batch.position));
        }
    }
}
