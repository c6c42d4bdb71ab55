//! Clients of both protocols that come, change their protocol, fall silent and leave at random.

use std::collections::BTreeMap;

use base::Rng;
use uuid::Uuid;

use super::mixed::{Client, Mixed, Speaks, Step};
use super::*;

/// Whatever the schedule, no partition is held by two members that the group takes for current;
/// and once the survivors behave every partition is held by exactly one, in a group whose kind is
/// that of its members.
#[test]
fn random_schedules_of_both_protocols_never_share_a_partition_and_end_with_all_held() {
    let seeds = std::env::var("GROUPS_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let mut kinds = [0; 2];
    for seed in 0..seeds {
        kinds[usize::from(simulate(seed) == GroupKind::Consumer)] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 10), "{kinds:?}");
}

fn simulate(seed: u64) -> GroupKind {
    let mut rng = Rng::from_seed(seed);
    let mut mixed = Mixed::sharing_every(seed % 2 * 3_000);
    let mut clients: Vec<Client> = (0..5_u8)
        .map(|n| Client {
            instance: (n < 2).then(|| format!("i{n}")),
            ..Client::new(some_protocol(&mut rng))
        })
        .collect();
    for step in 0..500 {
        let calm = step > 400;
        if step == 400 && seed.is_multiple_of(3) {
            // All are replaced by classic ones in the end.
            for client in clients.iter_mut().filter(|c| c.speaks == Speaks::Newer) {
                client.leave(&mut mixed);
                client.restart(Speaks::Cooperative);
            }
        }
        if !calm && rng.one_in(80) {
            let name = if rng.one_in(2) { "t" } else { "u" };
            mixed.topics.put(name, 4 + step / 60);
        }
        let at = usize::try_from(rng.below(5)).unwrap();
        let client = &mut clients[at];
        match rng.below(if calm { 30 } else { 40 }) {
            30 => client.leave(&mut mixed),
            // It crashes, and is started again with either protocol.
            31 => client.restart(some_protocol(&mut rng)),
            // It is replaced by one with the other protocol, as in a rolling restart.
            32 | 33 => {
                if client.instance.is_none() {
                    client.leave(&mut mixed);
                }
                client.restart(some_protocol(&mut rng));
            }
            34 => mixed.pass(rng.below(20_000)),
            _ => client.act(&mut mixed, &mut rng, calm),
        }
        mixed.pass(rng.below(500));
        check_exclusive(&mixed, &clients, seed);
    }
    for _ in 0..120 {
        for client in &mut clients {
            client.act(&mut mixed, &mut rng, true);
        }
        mixed.pass(1_000);
        check_exclusive(&mixed, &clients, seed);
    }
    let described = mixed.described();
    assert_eq!(
        described.state,
        GroupState::Stable,
        "seed {seed}: {described:?}"
    );
    let all: i32 = mixed.topics.by_name.values().map(|(_, count)| *count).sum();
    let held: usize = clients.iter().map(|client| client.holds.len()).sum();
    assert_eq!(
        held,
        usize::try_from(all).unwrap(),
        "seed {seed}: {clients:?}"
    );
    let kind = match clients.iter().any(|c| c.speaks == Speaks::Newer) {
        true => GroupKind::Consumer,
        false => GroupKind::Classic,
    };
    assert_eq!(described.kind, kind, "seed {seed}");
    assert_eq!(described.members.len(), 5, "seed {seed}");
    kind
}

fn some_protocol(rng: &mut Rng) -> Speaks {
    match rng.below(4) {
        0 | 1 => Speaks::Newer,
        2 => Speaks::Eager,
        _ => Speaks::Cooperative,
    }
}

/// Members that the group takes for current hold nothing twice. One that was put out, or whose
/// generation has passed, and has not heard of it, may still believe to hold something.
fn check_exclusive(mixed: &Mixed, clients: &[Client], seed: u64) {
    let described = mixed.described();
    let epochs: BTreeMap<String, i32> = match described.kind {
        GroupKind::Classic | GroupKind::Share | GroupKind::Streams => BTreeMap::new(),
        GroupKind::Consumer => {
            let members = mixed.consumer().members.into_iter();
            members.map(|m| (m.member_id, m.epoch)).collect()
        }
    };
    let mut holders: BTreeMap<(Uuid, i32), &str> = BTreeMap::new();
    for client in clients {
        let is_member = described.members.iter().any(|m| m.member_id == client.id);
        let is_current = match described.kind {
            GroupKind::Classic | GroupKind::Share | GroupKind::Streams => {
                described.generation == client.generation
                    || described.state == GroupState::PreparingRebalance
            }
            GroupKind::Consumer if client.speaks == Speaks::Newer => {
                let epoch = epochs.get(&client.id).copied();
                !matches!(epoch, None | Some(0 | LEAVE_STATIC_EPOCH))
            }
            GroupKind::Consumer => {
                let epoch = epochs.get(&client.id);
                epoch == Some(&client.generation) || matches!(client.step, Step::Joining(_))
            }
        };
        if !is_member || !is_current {
            continue;
        }
        for partition in client.holds.iter() {
            let other = holders.insert(partition, &client.id);
            assert_eq!(
                other, None,
                "seed {seed}: {partition:?} is held twice: {clients:?}"
            );
        }
    }
}
