//! Checkpoints of which most are changes alone.

use std::sync::Arc;

use base::Rng;
use journal::Durability;
use tokio_util::sync::CancellationToken;

use super::engine::{definition, whole};
use super::properties::{STATEMENTS, apply, fresh, lane, options, outcome, random_records};
use crate::codec::{Decoder, Encoder};
use crate::feed::Feed;
use crate::lane::checkpoint::{Checkpoint, KeptState, decode};
use crate::lane::{Lane, Sequence};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::store::StatementStore;

/// What is kept after one more checkpoint.
fn keep(kept: &mut KeptState, checkpoint: Checkpoint) {
    match checkpoint.is_whole {
        true => {
            kept.whole = checkpoint.bytes;
            kept.changes.clear();
        }
        false => kept.changes.push(checkpoint.bytes),
    }
}

fn state_of(lane: &Lane) -> Vec<u8> {
    let mut out = Encoder::default();
    lane.state.lock().machine.encode((0, 0), &mut out);
    out.0
}

#[test]
fn a_state_and_its_changes_are_the_state() {
    let mut changes = 0;
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let records = random_records(&mut rng, 300);
        for text in STATEMENTS {
            let (feed, lane) = (Feed::new(), lane(text));
            feed.join([lane.clone()]);
            let (mut kept, mut at) = (KeptState::default(), 0);
            while at < records.len() {
                let next = (at + 1 + rng.below(30) as usize).min(records.len());
                apply(&feed, &records[at..next]);
                at = next;
                let nothing = Output::default();
                let mut state = lane.state.lock();
                let checkpoint = state.checkpoint((0, 0), Sequence::default(), &nothing);
                changes += usize::from(!checkpoint.is_whole);
                keep(&mut kept, checkpoint);
                if rng.one_in(10) {
                    state.lost_checkpoint();
                }
                drop(state);
                let restored = decode(fresh(text), &kept).unwrap();
                let mut out = Encoder::default();
                restored.machine.encode((0, 0), &mut out);
                assert_eq!(out.0, state_of(&lane), "seed {seed}, {at}: {text}");
                // Texts that were replaced by shorter ones keep their room until then.
                let bytes = lane.state.lock().machine.state_bytes();
                assert!(
                    restored.machine.state_bytes() <= bytes,
                    "seed {seed}: {text}"
                );
            }
            let restored = decode(fresh(text), &kept).unwrap();
            let twin = self::lane(text);
            {
                let mut state = twin.state.lock();
                state.machine = restored.machine;
                state.positions = restored.positions;
            }
            lane.state.lock().output = Output::default();
            let more = random_records(&mut rng, 50);
            let other = Feed::new();
            other.join([twin.clone()]);
            apply(&feed, &more);
            apply(&other, &more);
            assert_eq!(outcome(&lane), outcome(&twin), "seed {seed}: {text}");
        }
    }
    assert!(changes > 1_000, "only {changes} checkpoints were changes");
}

#[test]
fn damaged_changes_are_refused_without_harm() {
    let (feed, lane) = (Feed::new(), lane(STATEMENTS[1]));
    feed.join([lane.clone()]);
    let mut kept = KeptState::default();
    let records = random_records(&mut Rng::from_seed(5), 60);
    for part in records.chunks(30) {
        apply(&feed, part);
        let mut state = lane.state.lock();
        let nothing = Output::default();
        keep(
            &mut kept,
            state.checkpoint((0, 0), Sequence::default(), &nothing),
        );
    }
    let changes = kept.changes.pop().expect("the second holds changes alone");
    for end in 0..changes.len() {
        kept.changes = vec![changes[..end].to_vec()];
        assert!(decode(fresh(STATEMENTS[1]), &kept).is_none(), "{end}");
    }
    let mut rng = Rng::from_seed(9);
    for _ in 0..5_000 {
        let mut bytes = changes.clone();
        let place = rng.below(bytes.len() as u64) as usize;
        bytes[place] ^= 1 << rng.below(8);
        kept.changes = vec![bytes];
        // Whatever it gives, it must not panic nor allocate beyond what is there.
        let _ = decode(fresh(STATEMENTS[1]), &kept);
    }
}

#[test]
fn a_checkpoint_of_an_earlier_version_is_read() {
    let (feed, lane) = (Feed::new(), lane(STATEMENTS[1]));
    feed.join([lane.clone()]);
    apply(&feed, &random_records(&mut Rng::from_seed(4), 60));
    let state = lane.state.lock();
    let mut out = Encoder::default();
    out.count(state.positions.len());
    state.positions.iter().for_each(|at| out.i64(*at));
    out.i64(7);
    out.u32(8);
    state.machine.encode((0, 0), &mut out);
    Output::default().encode(&mut out);
    let kept = KeptState {
        whole: out.0,
        changes: Vec::new(),
    };
    let restored = decode(fresh(STATEMENTS[1]), &kept).unwrap();
    assert_eq!(restored.positions, state.positions);
    assert_eq!(
        (restored.sequence.producer_id, restored.sequence.next),
        (Some(7), 8)
    );
    assert_eq!(restored.machine.books(), state.machine.books());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_gives_the_last_whole_state_and_the_changes_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = || StatementStore::open(Arc::new(journal::RealDisk), folder.path()).unwrap();
    let changes = |bytes: &[u8]| Checkpoint {
        is_whole: false,
        ..whole(bytes)
    };
    let (store, _) = open();
    store.add(&definition(), b"first").await.unwrap();
    let (long, there) = (vec![5; 3 << 20], CancellationToken::new());
    for checkpoint in [
        changes(b"a"),
        whole(&long),
        changes(b"b"),
        changes(&long),
        changes(b"c"),
    ] {
        let kept = store.checkpoint("a", &checkpoint, Durability::Os, &there);
        kept.await.unwrap();
    }
    store.close().await;
    drop(store);
    let (store, recovered) = open();
    let expected = KeptState {
        whole: long.clone(),
        changes: vec![b"b".to_vec(), long, b"c".to_vec()],
    };
    assert_eq!(recovered[0].checkpoint.as_ref(), Some(&expected));
    // What follows goes on behind them, and stays together when the journal is written anew.
    let more = vec![6; 2 << 20];
    for round in 0..60_u8 {
        let checkpoint = match round % 20 {
            0 => whole(&more),
            _ => changes(&more),
        };
        let kept = store.checkpoint("a", &checkpoint, Durability::Os, &there);
        kept.await.unwrap();
    }
    store.close().await;
    drop(store);
    let (store, recovered) = open();
    let expected = KeptState {
        whole: more.clone(),
        changes: vec![more; 19],
    };
    assert_eq!(recovered[0].checkpoint.as_ref(), Some(&expected));
    store.close().await;
}

/// A version may take more for a group than the one before, and bounds are lowered.
#[test]
fn a_state_beyond_the_bounds_is_read() {
    let (feed, lane) = (Feed::new(), lane(STATEMENTS[1]));
    feed.join([lane.clone()]);
    apply(&feed, &random_records(&mut Rng::from_seed(4), 60));
    let mut out = Encoder::default();
    lane.state.lock().machine.encode((0, 0), &mut out);
    let bytes = lane.state.lock().machine.state_bytes();
    let options = MachineOptions {
        state_bytes_max: bytes / 2,
        ..options()
    };
    let narrow = Machine::new(lane.plan.clone(), options);
    let restored = narrow.decode(&mut Decoder::new(&out.0)).unwrap();
    assert!(restored.state_bytes() > bytes / 2);
}
