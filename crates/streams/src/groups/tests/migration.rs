//! Groups that change their protocol while they have members, step by step.

use base::Rng;

use super::mixed::{Client, Mixed, Speaks, Step, beat_of, join_beat, subscription};
use super::*;
use crate::consumer::{self, Share};

/// Clients that take turns until nothing changes any more.
fn calm(mixed: &mut Mixed, clients: &mut [&mut Client]) {
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
fn classic_pair(speaks: Speaks) -> (Mixed, Client, Client) {
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
    for (kind, metadata, assignment, refused) in [
        ("consumer", good.clone(), plain.clone(), None),
        (
            "consumer",
            Bytes::from_static(b"m"),
            plain.clone(),
            Some(GroupError::NotFound),
        ),
        (
            "connect",
            good.clone(),
            plain.clone(),
            Some(GroupError::NotFound),
        ),
        (
            "consumer",
            good.clone(),
            with_data.into(),
            Some(GroupError::NotFound),
        ),
        (
            "consumer",
            good.clone(),
            Bytes::from_static(b"m"),
            Some(GroupError::NotFound),
        ),
    ] {
        let mut mixed = Mixed::new();
        let token = mixed.join(JoinRequest {
            protocol_type: kind.into(),
            protocols: vec![Protocol {
                name: "range".into(),
                metadata,
            }],
            member_id_required: false,
            ..request("c", "", &["range"])
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

/// A member that lost its place while it joins goes on telling what it held, also with the id that
/// it is given then.
#[test]
fn a_classic_member_joins_with_an_id_just_given_out_and_what_it_held_is_not_its_own() {
    let mut mixed = Mixed::new();
    let mut n = Client::new(Speaks::Newer);
    calm(&mut mixed, &mut [&mut n]);
    assert_eq!(n.holds.len(), 4);
    let t = mixed.topics.by_name["t"].0;
    let mut late = Client::new(Speaks::Cooperative);
    late.holds = [(t, 0), (t, 1)].into_iter().collect();
    let mut rng = Rng::from_seed(1);
    for _ in 0..3 {
        late.act(&mut mixed, &mut rng, true);
    }
    let Step::Joining(token) = late.step else {
        panic!("{late:?}");
    };
    assert!(!late.id.is_empty(), "it was given no id");
    assert!(matches!(mixed.joins.get(&token), Some(Ok(_))), "{late:?}");
    let held = |mixed: &Mixed, id: &str| {
        let members = mixed.consumer().members;
        let member = members.into_iter().find(|m| m.member_id == id);
        member.map(|m| m.assigned.len())
    };
    assert_eq!(held(&mixed, &late.id), Some(0));
    assert_eq!(held(&mixed, &n.id), Some(4));
    calm(&mut mixed, &mut [&mut n, &mut late]);
    assert_eq!((n.holds.len(), late.holds.len()), (2, 2));
}

#[test]
fn ids_given_out_are_few_and_hold_for_a_session() {
    let mut mixed = Mixed::new();
    mixed.beat(join_beat("n")).unwrap();
    let owned: Share = [("t".to_owned(), vec![0])].into();
    let ask = |mixed: &mut Mixed, member_id: &str| {
        let token = mixed.join(JoinRequest {
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: subscription(&owned),
            }],
            ..request("c", member_id, &["range"])
        });
        mixed.joins.remove(&token).expect("a join waited")
    };
    let mut ids = Vec::new();
    for _ in 0..7 {
        match ask(&mut mixed, "") {
            Err(GroupError::MemberIdRequired { member_id }) => ids.push(member_id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ask(&mut mixed, ""), Err(GroupError::GroupFull));
    assert!(ask(&mut mixed, &ids[0]).is_ok());
    let leaving = Leaving {
        member_id: ids[1].clone(),
        instance_id: None,
    };
    assert_eq!(mixed.leave(&leaving), Ok(()));
    assert_eq!(mixed.leave(&leaving), Err(GroupError::UnknownMember));
    mixed.pass(20_000);
    // All that was held for those who did not come is free again.
    assert_eq!(ask(&mut mixed, &ids[2]), Err(GroupError::UnknownMember));
    assert!(
        matches!(
            ask(&mut mixed, ""),
            Err(GroupError::MemberIdRequired { .. })
        ),
        "an id is held for ever"
    );
}

#[test]
fn an_id_given_out_is_good_after_the_group_changed_its_protocol() {
    let (mut mixed, _, _) = classic_pair(Speaks::Cooperative);
    let given = |mixed: &mut Mixed| {
        let token = mixed.join(request("c", "", &["range"]));
        match mixed.joins.remove(&token) {
            Some(Err(GroupError::MemberIdRequired { member_id })) => member_id,
            other => panic!("{other:?}"),
        }
    };
    let owned: Share = [("t".to_owned(), vec![0])].into();
    let ask = |member_id: &str| JoinRequest {
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: subscription(&owned),
        }],
        ..request("c", member_id, &["range"])
    };
    let id = given(&mut mixed);
    mixed.beat(join_beat("n")).unwrap();
    let token = mixed.join(ask(&id));
    assert!(matches!(mixed.joins.remove(&token), Some(Ok(_))), "{id}");
    let token = mixed.join(JoinRequest {
        member_id: String::new(),
        ..ask("")
    });
    let Some(Err(GroupError::MemberIdRequired { member_id })) = mixed.joins.remove(&token) else {
        panic!("a first join was not told its id");
    };
    mixed.beat(beat_of("n", LEAVE_EPOCH)).unwrap();
    assert_eq!(mixed.described().kind, GroupKind::Classic);
    let token = mixed.join(ask(&member_id));
    // It waits for the others.
    assert_eq!(mixed.joins.get(&token), None);
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

#[test]
fn a_classic_member_tells_a_consumer_group_no_more_than_fits() {
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text.as_bytes());
    };
    let told_of = |count: u32, rest: &[u8]| {
        let mut bytes = vec![0, 0];
        bytes.extend(count.to_be_bytes());
        (0..count).for_each(|n| text(&mut bytes, &format!("{n:03}")));
        bytes.extend(rest);
        Bytes::from(bytes)
    };
    let no_data = (-1_i32).to_be_bytes();
    let mut mixed = Mixed::bounded_to(2_000);
    mixed.beat(join_beat("n")).unwrap();
    for (metadata, refused) in [
        (told_of(20, &no_data), None),
        // 100 names take 500 bytes on the wire and 3,500 when they are read.
        (told_of(100, &no_data), Some(GroupError::TooLarge)),
        // What is too long is not read, so nobody finds that it cannot be.
        (Bytes::from_static(&[7; 2_000]), Some(GroupError::TooLarge)),
        (
            Bytes::from_static(&[7; 100]),
            Some(GroupError::InconsistentProtocol),
        ),
    ] {
        let token = mixed.join(JoinRequest {
            protocols: vec![Protocol {
                name: "range".into(),
                metadata,
            }],
            member_id_required: false,
            ..request("c", "", &["range"])
        });
        let joined = mixed.joins.remove(&token).expect("a join waited");
        assert_eq!(joined.err(), refused);
    }
}

/// So many that a search through all of them for each partition would be noticed.
#[test]
fn a_classic_member_is_told_of_many_topics() {
    let mut mixed = Mixed::new();
    let names: Vec<String> = (0..20_000).map(|n| format!("many-{n}")).collect();
    for name in &names {
        mixed.topics.put(name, 1);
    }
    mixed.beat(join_beat("n")).unwrap();
    let token = mixed.join(JoinRequest {
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: consumer::subscription(names.iter().map(String::as_str)),
        }],
        member_id_required: false,
        ..request("c", "", &["range"])
    });
    let joined = mixed.joins.remove(&token).unwrap().unwrap();
    let member = member_ref(&joined.member_id, joined.generation);
    assert_eq!(mixed.heartbeat(member), Ok(()));
    let token = mixed.sync(SyncRequest {
        group: "g".into(),
        member_id: joined.member_id.clone(),
        instance_id: None,
        generation: joined.generation,
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    });
    let synced = mixed.syncs.remove(&token).unwrap().unwrap();
    let share = consumer::assigned(&synced.assignment);
    assert_eq!(share.len(), names.len());
    assert!(share.values().all(|partitions| *partitions == [0]));
}

#[test]
fn a_classic_member_reads_nothing_in_a_consumer_group_that_it_may_not_know_of() {
    // It joins a consumer group; it is in the group when that becomes one.
    for joins_first in [false, true] {
        let mut mixed = Mixed::new();
        mixed.topics.put("u", 3);
        let only_u = Beat {
            topics: Some(vec!["u".into()]),
            ..join_beat("n")
        };
        if !joins_first {
            mixed.beat(only_u.clone()).unwrap();
        }
        let bounded = |member_id: &str| JoinRequest {
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: subscription(&Share::new()),
            }],
            member_id_required: false,
            sight: Sight::new(1, |name| name == "t"),
            ..request("c", member_id, &["range"])
        };
        let token = mixed.join(bounded(""));
        mixed.pass(1_000);
        let joined = mixed.joins.remove(&token).unwrap().unwrap();
        if joins_first {
            mixed.beat(only_u).unwrap();
        }
        let read = |mixed: &Mixed| {
            let members = mixed.consumer().members;
            let member = members.into_iter().find(|m| m.is_classic);
            member.expect("the classic member is gone").topics
        };
        assert_eq!(read(&mixed), ["t"], "{joins_first}");
        let token = mixed.join(bounded(&joined.member_id));
        let joined = mixed.joins.remove(&token).unwrap().unwrap();
        assert_eq!(read(&mixed), ["t"], "{joins_first}");
        let token = mixed.sync(SyncRequest {
            group: "g".into(),
            member_id: joined.member_id,
            instance_id: None,
            generation: joined.generation,
            protocol_type: None,
            protocol: None,
            assignments: Vec::new(),
        });
        let synced = mixed.syncs.remove(&token).unwrap().unwrap();
        let share = consumer::assigned(&synced.assignment);
        assert_eq!(share, Share::from([("t".to_owned(), vec![0, 1, 2, 3])]));
    }
}
