//! Members that join, sync, fall silent and leave at random: they end in one generation.

use std::collections::{BTreeMap, BTreeSet};

use base::Rng;
use bytes::Bytes;

use super::*;

/// Random members join, sync, die and leave; whatever the schedule, every answer is given once,
/// all members of a generation agree on its leader and protocol, a share belongs to one member of
/// one generation, and once the survivors behave the group becomes stable.
#[test]
fn random_schedules_end_in_one_stable_generation() {
    for seed in 0..400 {
        simulate(seed);
    }
}

#[derive(Default)]
struct Client {
    id: String,
    generation: i32,
    leads: bool,
    join: Option<Token>,
    sync: Option<Token>,
    others: Vec<String>,
}

fn simulate(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let mut bench = Bench::new(config());
    let mut clients: Vec<Client> = (0..5).map(|_| Client::default()).collect();
    let mut seen: BTreeMap<i32, (String, String)> = BTreeMap::new();
    for step in 0..300 {
        let calm = step > 200;
        let index = usize::try_from(rng.below(5)).unwrap();
        let client = &mut clients[index];
        let gone = !calm && rng.one_in(40);
        if gone {
            if rng.one_in(2) {
                let leaving = Leaving {
                    member_id: client.id.clone(),
                    instance_id: None,
                };
                let mut out = Vec::new();
                let _ = bench.group.leave(bench.now, &leaving, &mut out);
                bench.keep(out);
            } else if let Some(token) = client.join.or(client.sync) {
                let mut out = Vec::new();
                bench.group.withdraw(bench.now, token, &mut out);
                bench.keep(out);
            }
            *client = Client::default();
        } else {
            step_client(&mut bench, client, &mut seen, seed);
        }
        let most = if calm { 200 } else { 5_000 };
        bench.pass(rng.below(most));
    }
    for _ in 0..200 {
        for client in &mut clients {
            step_client(&mut bench, client, &mut seen, seed);
        }
        bench.pass(1_000);
    }
    assert_eq!(
        bench.state(),
        GroupState::Stable,
        "seed {seed} never became stable"
    );
    let generations: BTreeSet<i32> = clients.iter().map(|c| c.generation).collect();
    assert_eq!(
        generations.len(),
        1,
        "seed {seed}: members in different generations"
    );
    let shares: BTreeSet<Bytes> = bench
        .group
        .describe("g", true)
        .members
        .into_iter()
        .map(|m| m.assignment)
        .collect();
    assert_eq!(
        shares.len(),
        5,
        "seed {seed}: a share is missing or given twice"
    );
}

fn step_client(
    bench: &mut Bench,
    client: &mut Client,
    seen: &mut BTreeMap<i32, (String, String)>,
    seed: u64,
) {
    if let Some(token) = client.join {
        match bench.joins.remove(&token) {
            None => return,
            Some(Ok(joined)) => {
                let facts = (joined.leader.clone(), joined.protocol.clone());
                let known = seen
                    .entry(joined.generation)
                    .or_insert_with(|| facts.clone());
                assert_eq!(*known, facts, "seed {seed}: members disagree");
                client.join = None;
                client.generation = joined.generation;
                client.leads = joined.leader == client.id;
                client.others = joined.members.into_iter().map(|m| m.member_id).collect();
                let shares: Vec<(String, Bytes)> = client
                    .others
                    .iter()
                    .map(|id| {
                        (
                            id.clone(),
                            Bytes::from(format!("{id}@{}", joined.generation)),
                        )
                    })
                    .collect();
                client.sync = Some(sync_shares(bench, client, shares));
            }
            Some(Err(error)) => on_refusal(client, error),
        }
    } else if let Some(token) = client.sync {
        match bench.syncs.remove(&token) {
            None => return,
            Some(Ok(synced)) => {
                let expected = format!("{}@{}", client.id, client.generation);
                assert_eq!(
                    synced.assignment, expected,
                    "seed {seed}: somebody else's share"
                );
                client.sync = None;
            }
            Some(Err(error)) => on_refusal(client, error),
        }
    } else if client.generation > 0
        && let Err(error) = bench.heartbeat(&client.id.clone(), client.generation)
    {
        on_refusal(client, error);
    }
    if client.generation == 0 && client.join.is_none() {
        client.join = Some(bench.join(request("c", &client.id, &["range"])));
    }
}

fn sync_shares(bench: &mut Bench, client: &Client, shares: Vec<(String, Bytes)>) -> Token {
    bench.tokens += 1;
    let token = Token(bench.tokens);
    let mut out = Vec::new();
    let request = SyncRequest {
        group: "g".into(),
        member_id: client.id.clone(),
        instance_id: None,
        generation: client.generation,
        protocol_type: None,
        protocol: None,
        assignments: shares,
    };
    bench.group.sync(bench.now, request, token, &mut out);
    bench.keep(out);
    token
}

fn on_refusal(client: &mut Client, error: GroupError) {
    let id = match error {
        GroupError::MemberIdRequired { member_id } => member_id,
        GroupError::UnknownMember => String::new(),
        GroupError::RebalanceInProgress | GroupError::IllegalGeneration => client.id.clone(),
        other => panic!("unexpected refusal: {other}"),
    };
    *client = Client {
        id,
        ..Client::default()
    };
}
