//! Groups that change their protocol while they have members, step by step.

use base::Rng;

use super::mixed::{Client, Mixed, Speaks, Step, beat_of, join_beat, subscription};
use super::*;
use crate::consumer::{self, Share};

/// Clients that take turns until nothing changes any more.
pub(super) fn calm(mixed: &mut Mixed, clients: &mut [&mut Client]) {
    let mut rng = Rng::from_seed(1);
    for _ in 0..30 {
        for client in clients.iter_mut() {
            client.act(mixed, &mut rng, true);
        }
        mixed.pass(100);
    }
    assert_eq!(mixed.kind_and_state().1, GroupState::Stable);
}

/// Two classic members in a stable generation, with two partitions each.
pub(super) fn classic_pair(speaks: Speaks) -> (Mixed, Client, Client) {
    let mut mixed = Mixed::new();
    let (mut a, mut b) = (Client::new(speaks), Client::new(speaks));
    calm(&mut mixed, &mut [&mut a, &mut b]);
    assert_eq!((a.holds.len(), b.holds.len()), (2, 2));
    assert_eq!(mixed.described().kind, GroupKind::Classic);
    (mixed, a, b)
}

fn of(client: &Client) -> MemberRef<'_> {
    member_ref(&client.id, client.generation)
}

#[test]
fn a_member_of_the_newer_protocol_makes_the_group_one_of_that_and_the_others_stay() {
    let (mut mixed, mut a, mut b) = classic_pair(Speaks::Cooperative);
    let generation = a.generation;
    let answer = mixed.beat(join_beat("n")).unwrap();
    // All that there is, is held; it gets its part when the others have given it back.
    assert_eq!(answer.epoch, generation + 1);
    assert_eq!(answer.assignment, Some(Partitions::default()));
    assert_eq!(
        mixed.kind_and_state(),
        (GroupKind::Consumer, GroupState::Reconciling)
    );
    let types: Vec<(bool, i32, usize)> = mixed
        .consumer()
        .members
        .iter()
        .map(|m| (m.is_classic, m.epoch, m.assigned.len()))
        .collect();
    assert_eq!(
        types,
        [
            (true, generation, 2),
            (true, generation, 2),
            (false, generation + 1, 0)
        ]
    );
    // Until they have joined again the others commit as ever, and hear that they must.
    assert_eq!(mixed.commit(&a.id, generation), Ok(()));
    assert_eq!(
        mixed.commit(&a.id, generation - 1),
        Err(GroupError::IllegalGeneration)
    );
    for client in [&a, &b] {
        assert_eq!(
            mixed.heartbeat(of(client)),
            Err(GroupError::RebalanceInProgress)
        );
    }
    let mut n = Client::new(Speaks::Newer);
    n.id = "n".into();
    calm(&mut mixed, &mut [&mut a, &mut b, &mut n]);
    let mut held = [a.holds.len(), b.holds.len(), n.holds.len()];
    held.sort_unstable();
    assert_eq!(held, [1, 1, 2]);
    let epoch = mixed.consumer().epoch;
    assert_eq!([a.generation, b.generation, n.generation], [epoch; 3]);
    assert_eq!(mixed.heartbeat(of(&a)), Ok(()));
}

#[test]
fn a_classic_member_that_comes_within_the_interval_is_called_when_it_is_over() {
    let mut mixed = Mixed::sharing_every(5_000);
    mixed.beat(join_beat("n")).unwrap();
    let mut a = Client::new(Speaks::Cooperative);
    let mut rng = Rng::from_seed(1);
    // It joins, has a share of nothing, and is not asked to join again and again.
    for _ in 0..6 {
        a.act(&mut mixed, &mut rng, true);
    }
    assert_eq!((a.step, a.holds.len()), (Step::In, 0));
    mixed.pass(4_999);
    assert_eq!(mixed.heartbeat(of(&a)), Ok(()));
    mixed.pass(1);
    let called = mixed.heartbeat(of(&a));
    assert_eq!(called, Err(GroupError::RebalanceInProgress));
}

#[test]
fn the_last_member_of_the_newer_protocol_leaves_and_the_others_share_among_themselves() {
    for by_leaving in [true, false] {
        let (mut mixed, mut a, mut b) = classic_pair(Speaks::Cooperative);
        let mut n = Client::new(Speaks::Newer);
        calm(&mut mixed, &mut [&mut a, &mut b, &mut n]);
        let generation = a.generation;
        if by_leaving {
            mixed.beat(beat_of(&n.id, LEAVE_EPOCH)).unwrap();
        } else {
            // It falls silent.
            for _ in 0..9 {
                mixed.pass(5_000);
                drop(mixed.heartbeat(of(&a)));
                drop(mixed.heartbeat(of(&b)));
            }
        }
        assert_eq!(
            mixed.kind_and_state(),
            (GroupKind::Classic, GroupState::PreparingRebalance)
        );
        // They are known by what they were told last, and commit it before they join again.
        assert_eq!(mixed.commit(&a.id, generation), Ok(()));
        assert_eq!(
            mixed.heartbeat(of(&a)),
            Err(GroupError::RebalanceInProgress)
        );
        calm(&mut mixed, &mut [&mut a, &mut b]);
        assert_eq!((a.holds.len(), b.holds.len()), (2, 2));
        assert!(a.generation > generation);
        assert_eq!(mixed.described().kind, GroupKind::Classic);
        // One that was taken for dead comes back.
        let late = mixed.beat(beat_of(&n.id, n.generation));
        assert_eq!(late, Err(GroupError::UnknownMember));
        calm(&mut mixed, &mut [&mut a, &mut b, &mut n]);
        assert_eq!(mixed.described().kind, GroupKind::Consumer);
    }
}

#[test]
fn a_rolling_restart_to_the_newer_protocol_and_back_loses_no_partition() {
    for speaks in [Speaks::Eager, Speaks::Cooperative] {
        for is_static in [false, true] {
            let mut mixed = Mixed::new();
            let mut clients: Vec<Client> = (0..3)
                .map(|n| Client {
                    instance: is_static.then(|| format!("i{n}")),
                    ..Client::new(speaks)
                })
                .collect();
            let settle = |mixed: &mut Mixed, clients: &mut Vec<Client>| {
                calm(mixed, &mut clients.iter_mut().collect::<Vec<_>>());
                let held: usize = clients.iter().map(|c| c.holds.len()).sum();
                assert_eq!(held, 4, "{clients:?}");
                assert_eq!(mixed.described().members.len(), 3);
            };
            settle(&mut mixed, &mut clients);
            for to in [Speaks::Newer, speaks] {
                for at in 0..3 {
                    let before: Vec<Partitions> = clients.iter().map(|c| c.holds.clone()).collect();
                    if !is_static {
                        clients[at].leave(&mut mixed);
                    }
                    clients[at].restart(to);
                    settle(&mut mixed, &mut clients);
                    let is_last = to == speaks && at == 2;
                    if is_static && !is_last {
                        // A static member finds what was kept for it, and nobody else moves.
                        let after: Vec<Partitions> =
                            clients.iter().map(|c| c.holds.clone()).collect();
                        assert_eq!(before, after, "{at} to {to:?}");
                    }
                }
            }
            assert_eq!(mixed.described().kind, GroupKind::Classic);
        }
    }
}

#[test]
fn a_group_that_cannot_be_taken_over_stays_as_it_is() {
    let share: Share = [("t".to_owned(), vec![0])].into();
    let plain = consumer::assignment(&share);
    let mut with_data = plain[..plain.len() - 4].to_vec();
    with_data.extend([0, 0, 0, 1, 5]);
    let good = subscription(&Share::new());
    let with_data = Bytes::from(with_data);
    let bad = Bytes::from_static(b"m");
    let no = Some(GroupError::NotFound);
    for (kind, assignor, metadata, assignment, refused) in [
        ("consumer", "own", good.clone(), plain.clone(), None),
        ("consumer", "own", bad.clone(), plain.clone(), no.clone()),
        ("connect", "own", good.clone(), plain, no.clone()),
        (
            "consumer",
            "own",
            good.clone(),
            with_data.clone(),
            no.clone(),
        ),
        // librdkafka's leader of cooperative-sticky members writes some, which nobody needs.
        (
            "consumer",
            "cooperative-sticky",
            good.clone(),
            with_data,
            None,
        ),
        ("consumer", "range", good, bad, no),
    ] {
        let mut mixed = Mixed::new();
        let token = mixed.join(JoinRequest {
            protocol_type: kind.into(),
            protocols: vec![Protocol {
                name: assignor.into(),
                metadata,
            }],
            member_id_required: false,
            ..request("c", "", &[assignor])
        });
        mixed.pass(10_000);
        let joined = mixed.joins.remove(&token).unwrap().unwrap();
        mixed.sync(SyncRequest {
            group: "g".into(),
            member_id: joined.member_id.clone(),
            instance_id: None,
            generation: 1,
            protocol_type: None,
            protocol: None,
            assignments: vec![(joined.member_id.clone(), assignment)],
        });
        let member = member_ref(&joined.member_id, 1);
        let answer = mixed.beat(join_beat("n"));
        assert_eq!(answer.as_ref().err(), refused.as_ref(), "{kind}");
        let kept = mixed.heartbeat(member);
        if refused.is_some() {
            assert_eq!(
                mixed.kind_and_state(),
                (GroupKind::Classic, GroupState::Stable)
            );
            assert_eq!(kept, Ok(()));
        } else {
            assert_eq!(kept, Err(GroupError::RebalanceInProgress));
        }
    }
    // One whose first heartbeat is refused for itself changes nothing either.
    let (mut mixed, a, _) = classic_pair(Speaks::Eager);
    let nonsense = Beat {
        assignor: Some("cleverest".into()),
        ..join_beat("n")
    };
    assert_eq!(mixed.beat(nonsense), Err(GroupError::UnsupportedAssignor));
    assert_eq!(mixed.heartbeat(of(&a)), Ok(()));
}

#[test]
fn a_classic_member_joins_a_consumer_group_only_with_what_the_group_can_use() {
    let mut mixed = Mixed::new();
    mixed.beat(join_beat("n")).unwrap();
    let ask = |kind: &str, protocols: &[&str], metadata: Bytes| JoinRequest {
        protocol_type: kind.into(),
        protocols: protocols
            .iter()
            .map(|name| Protocol {
                name: (*name).into(),
                metadata: metadata.clone(),
            })
            .collect(),
        member_id_required: false,
        ..request("c", "", &["range"])
    };
    let good = subscription(&Share::new());
    let mut check = |request: JoinRequest, refused: Option<GroupError>| {
        let token = mixed.join(request);
        let answer = mixed.joins.remove(&token).expect("a join waited");
        assert_eq!(answer.err(), refused);
    };
    let inconsistent = || Some(GroupError::InconsistentProtocol);
    check(ask("connect", &["range"], good.clone()), inconsistent());
    check(
        ask("consumer", &["range"], Bytes::from_static(b"m")),
        inconsistent(),
    );
    check(ask("consumer", &["range", "sticky"], good.clone()), None);
    check(
        ask("consumer", &["roundrobin"], good.clone()),
        inconsistent(),
    );
    check(
        ask("consumer", &["sticky", "roundrobin"], good.clone()),
        None,
    );
    let stranger = JoinRequest {
        instance_id: Some("one".into()),
        member_id: "gone".into(),
        ..ask("consumer", &["sticky"], good.clone())
    };
    check(stranger, Some(GroupError::UnknownMember));
    let asked = JoinRequest {
        member_id_required: true,
        ..ask("consumer", &["sticky"], good)
    };
    let token = mixed.join(asked.clone());
    let Some(Err(GroupError::MemberIdRequired { member_id })) = mixed.joins.remove(&token) else {
        panic!("a first join was not told its id");
    };
    let token = mixed.join(JoinRequest { member_id, ..asked });
    assert!(mixed.joins.remove(&token).unwrap().is_ok());
    let members = mixed.consumer().members;
    assert_eq!(members.iter().filter(|m| m.is_classic).count(), 3);
}

#[test]
fn a_classic_member_that_does_not_come_when_called_is_put_out() {
    // Silent altogether; not joining again; not asking for its share.
    for lapse in 0..3 {
        let (mut mixed, mut a, mut b) = classic_pair(Speaks::Eager);
        let mut n = Client::new(Speaks::Newer);
        let mut rng = Rng::from_seed(1);
        n.act(&mut mixed, &mut rng, true);
        if lapse == 2 {
            a.act(&mut mixed, &mut rng, true);
            assert_eq!(a.step, Step::Out);
            a.act(&mut mixed, &mut rng, true);
        }
        for _ in 0..40 {
            n.act(&mut mixed, &mut rng, true);
            b.act(&mut mixed, &mut rng, true);
            match lapse {
                0 => {}
                1 => drop(mixed.heartbeat(of(&a))),
                _ => drop(mixed.commit(&a.id, mixed.consumer().epoch)),
            }
            mixed.pass(1_000);
        }
        assert_eq!(
            mixed.heartbeat(of(&a)),
            Err(GroupError::UnknownMember),
            "{lapse}"
        );
        calm(&mut mixed, &mut [&mut b, &mut n]);
        assert_eq!((b.holds.len(), n.holds.len()), (2, 2));
        calm(&mut mixed, &mut [&mut a, &mut b, &mut n]);
        assert_eq!(mixed.described().members.len(), 3);
    }
}

/// What a member that was put out still holds may be somebody else's by now: it hears that before
/// it joins with it.
#[test]
fn a_classic_member_that_was_put_out_joins_without_what_it_held() {
    let (mut mixed, mut a, b) = classic_pair(Speaks::Cooperative);
    mixed.beat(join_beat("n")).unwrap();
    drop(mixed.heartbeat(of(&a)));
    let leaving = Leaving {
        member_id: a.id.clone(),
        instance_id: None,
    };
    assert_eq!(mixed.leave(&leaving), Ok(()));
    let mut rng = Rng::from_seed(1);
    a.step = Step::Out;
    a.act(&mut mixed, &mut rng, true);
    let Step::Joining(token) = a.step else {
        panic!("{a:?}");
    };
    assert_eq!(
        mixed.joins.get(&token),
        Some(&Err(GroupError::UnknownMember))
    );
    let mut n = Client::new(Speaks::Newer);
    n.id = "n".into();
    let mut b = b;
    calm(&mut mixed, &mut [&mut a, &mut b, &mut n]);
    assert_eq!(mixed.described().members.len(), 3);
}

#[test]
fn those_who_wait_for_a_generation_are_told_to_join_again() {
    let (mut mixed, a, mut b) = classic_pair(Speaks::Eager);
    let mut rng = Rng::from_seed(1);
    let mut c = Client::new(Speaks::Eager);
    c.act(&mut mixed, &mut rng, true);
    c.act(&mut mixed, &mut rng, true);
    c.act(&mut mixed, &mut rng, true);
    let Step::Joining(waiting) = c.step else {
        panic!("{c:?}");
    };
    b.act(&mut mixed, &mut rng, true);
    assert_eq!(b.step, Step::Out);
    mixed.beat(join_beat("n")).unwrap();
    let told = mixed.joins.get(&waiting);
    assert_eq!(told, Some(&Err(GroupError::RebalanceInProgress)));
    // Who never was in a generation may not know its id: it is no member until it comes again.
    let ids: Vec<String> = mixed
        .described()
        .members
        .into_iter()
        .map(|m| m.member_id)
        .collect();
    assert!(ids.contains(&a.id) && !ids.contains(&c.id), "{ids:?}");
    let mut n = Client::new(Speaks::Newer);
    n.id = "n".into();
    let mut a = a;
    calm(&mut mixed, &mut [&mut a, &mut b, &mut c, &mut n]);
    let held = [&a, &b, &c, &n].map(|client| client.holds.len());
    assert_eq!(held, [1; 4]);
}

#[test]
fn who_waits_for_the_first_classic_generation_commits_what_it_read_before() {
    let (mut mixed, mut a, mut b) = classic_pair(Speaks::Cooperative);
    let mut n = Client::new(Speaks::Newer);
    calm(&mut mixed, &mut [&mut a, &mut b, &mut n]);
    let generation = a.generation;
    mixed.beat(beat_of(&n.id, LEAVE_EPOCH)).unwrap();
    let mut rng = Rng::from_seed(1);
    a.act(&mut mixed, &mut rng, true);
    a.act(&mut mixed, &mut rng, true);
    let Step::Joining(token) = a.step else {
        panic!("{a:?}");
    };
    assert_eq!(mixed.joins.get(&token), None, "it did not wait for b");
    assert_eq!(mixed.commit(&a.id, generation), Ok(()));
    assert_eq!(
        mixed.commit(&a.id, generation - 1),
        Err(GroupError::IllegalGeneration)
    );
    calm(&mut mixed, &mut [&mut a, &mut b]);
    assert_eq!(
        mixed.commit(&a.id, generation),
        Err(GroupError::IllegalGeneration)
    );
}
