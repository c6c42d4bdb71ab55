//! Classic members that join consumer groups: the ids that they are given, and what they may tell
//! and be told.

use base::Rng;

use super::migration::{calm, classic_pair};
use super::mixed::{Client, Mixed, Speaks, Step, beat_of, join_beat, subscription};
use super::*;
use crate::consumer::{self, Share};

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
