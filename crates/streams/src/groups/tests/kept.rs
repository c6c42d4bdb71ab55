//! Groups that stand still, and what the next process makes of them.

use std::collections::BTreeSet;

use super::super::entry::Entry;
use super::super::roll::{self, Roll};
use super::mixed::{Mixed, subscription};
use super::*;
use crate::consumer::{self, Share};

impl Mixed {
    /// The group as the next process has it, from what was kept last.
    fn begin_again(&mut self, kept: &[u8]) {
        self.entry = Entry::of_kept(&self.config, 0, kept, self.now).unwrap();
        assert_eq!(self.entry.changed_roll(), None, "it is kept already");
    }

    /// A classic member that has joined and has its share, leading a group of its own.
    fn settled(&mut self, instance: Option<&str>) -> (String, i32) {
        let share = Share::from([("t".to_owned(), vec![0, 1])]);
        let ask = |member_id: &str| JoinRequest {
            instance_id: instance.map(str::to_owned),
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: subscription(&Share::new()),
            }],
            member_id_required: false,
            ..request("c", member_id, &[])
        };
        let token = self.join(ask(""));
        self.pass(1_000);
        let joined = self.joins.remove(&token).unwrap().unwrap();
        assert_eq!(self.entry.changed_roll(), None, "it moves");
        let token = self.sync(SyncRequest {
            group: "g".into(),
            member_id: joined.member_id.clone(),
            instance_id: instance.map(str::to_owned),
            generation: joined.generation,
            protocol_type: None,
            protocol: None,
            assignments: vec![(joined.member_id.clone(), consumer::assignment(&share))],
        });
        assert!(self.syncs.remove(&token).unwrap().is_ok());
        (joined.member_id, joined.generation)
    }
}

fn joining(member: &str, topics_regex: Option<&str>) -> Beat {
    Beat {
        group: "g".into(),
        rebalance_timeout: Some(Duration::from_secs(30)),
        topics: topics_regex.is_none().then(|| vec!["t".to_owned()]),
        topics_regex: topics_regex.map(str::to_owned),
        owned: Some(Partitions::default()),
        ..beat(member, 0)
    }
}

fn beat(member: &str, epoch: i32) -> Beat {
    Beat {
        group: "g".into(),
        member_id: member.into(),
        epoch,
        ..Beat::default()
    }
}

#[test]
fn classic_members_go_on_as_if_nothing_had_been() {
    for instance in [None, Some("i")] {
        let mut group = Mixed::new();
        let (member, generation) = group.settled(instance);
        let kept = group.entry.changed_roll().expect("it stands still");
        assert_eq!(group.entry.changed_roll(), None, "once is enough");
        let before = group.described();
        group.begin_again(&kept);
        assert_eq!(group.described(), before);
        group.pass(10_000);
        group.heartbeat(member_ref(&member, generation)).unwrap();
        group.commit(&member, generation).unwrap();
        let unknown = group.heartbeat(member_ref("another", generation));
        assert_eq!(unknown, Err(GroupError::UnknownMember));
        let ahead = group.heartbeat(member_ref(&member, generation + 1));
        assert_eq!(ahead, Err(GroupError::IllegalGeneration));
        // Its answer may have been lost with the process.
        let token = group.sync(SyncRequest {
            group: "g".into(),
            member_id: member.clone(),
            instance_id: None,
            generation,
            protocol_type: None,
            protocol: None,
            assignments: Vec::new(),
        });
        let share = group.syncs.remove(&token).unwrap().unwrap().assignment;
        assert_eq!(share, before.members[0].assignment);
        // Who does not come is out, and the group with it.
        group.pass(20_000);
        assert_eq!(group.kind_and_state().1, GroupState::Empty);
    }
}

#[test]
fn who_was_kept_has_a_while_to_come_back() {
    let sessions = [(6, 6), (45, 25), (300, 110)];
    for (session, grace) in sessions.map(|(s, g)| (Duration::from_secs(s), Duration::from_secs(g)))
    {
        assert_eq!(roll::grace(session), grace);
    }
    let mut group = Mixed::new();
    let (member, generation) = group.settled(None);
    let kept = group.entry.changed_roll().unwrap();
    group.begin_again(&kept);
    let grace = roll::grace(Duration::from_secs(20)).as_millis();
    group.pass(u64::try_from(grace).unwrap() + 1);
    let late = group.heartbeat(member_ref(&member, generation));
    assert_eq!(late, Err(GroupError::UnknownMember));
}

#[test]
fn members_within_the_process_are_not_kept_nor_are_those_beside_them() {
    let mut group = Mixed::new();
    let (member, _) = group.settled(None);
    assert!(group.entry.changed_roll().is_some());
    let near = JoinRequest {
        is_remote: false,
        member_id_required: false,
        ..request("near", "", &["range"])
    };
    group.join(near);
    let again = request("c", &member, &["range"]);
    group.join(again);
    assert_eq!(
        group.entry.changed_roll(),
        Some(Vec::new()),
        "none are kept"
    );
    assert_eq!(group.entry.changed_roll(), None);
}

#[test]
fn a_static_member_that_came_back_is_kept_under_its_new_id() {
    let mut group = Mixed::new();
    let (former, generation) = group.settled(Some("i"));
    group.entry.changed_roll().unwrap();
    let token = group.join(JoinRequest {
        instance_id: Some("i".into()),
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: subscription(&Share::new()),
        }],
        ..request("c", "", &[])
    });
    let joined = group.joins.remove(&token).unwrap().unwrap();
    assert_eq!(joined.generation, generation);
    assert_ne!(joined.member_id, former);
    let kept = group.entry.changed_roll().expect("another id");
    group.begin_again(&kept);
    group
        .heartbeat(member_ref(&joined.member_id, generation))
        .unwrap();
    let gone = group.heartbeat(member_ref(&former, generation));
    assert_eq!(gone, Err(GroupError::UnknownMember));
}

#[test]
fn members_of_the_newer_protocol_go_on_at_their_epoch_with_what_they_hold() {
    for regex in [None, Some("t.*")] {
        let mut group = Mixed::new();
        group.beat(joining("a", regex)).unwrap();
        let second = group.beat(joining("b", regex)).unwrap();
        assert_eq!(group.entry.changed_roll(), None, "a has to give back first");
        let told = group.beat(beat("a", 1)).unwrap();
        let owned = told.assignment.expect("it is told what to keep");
        let first = group.beat(Beat {
            owned: Some(owned.clone()),
            ..beat("a", told.epoch)
        });
        let first = first.unwrap();
        let second = group.beat(beat("b", second.epoch)).unwrap();
        assert_eq!(first.epoch, second.epoch);
        let kept = group.entry.changed_roll().expect("it stands still");
        let before = group.consumer();
        assert_eq!(before.state, GroupState::Stable);
        group.begin_again(&kept);
        assert_eq!(group.consumer(), before);
        group.pass(10_000);
        for (id, epoch) in [("a", first.epoch), ("b", second.epoch)] {
            group.commit(id, epoch).unwrap();
            let answer = group.beat(beat(id, epoch)).unwrap();
            assert_eq!(answer.epoch, epoch, "nothing is to be shared anew");
            assert_eq!(answer.assignment, None);
        }
        assert_eq!(group.entry.changed_roll(), None);
        // Topics that have grown meanwhile are seen.
        let mut later = Mixed::new();
        later.topics.put("t", 6);
        later.now = group.now;
        later.begin_again(&kept);
        let answer = later.beat(beat("a", first.epoch)).unwrap();
        assert!(answer.epoch > first.epoch);
    }
}

#[test]
fn a_static_member_that_left_for_a_while_may_come_back_to_the_next_process() {
    for comes_as in ["a", "b"] {
        let mut group = Mixed::new();
        let of_instance = |beat: Beat| Beat {
            instance_id: Some("i".into()),
            ..beat
        };
        let joined = group.beat(of_instance(joining("a", None))).unwrap();
        assert!(group.entry.changed_roll().is_some());
        let leaving = beat("a", LEAVE_STATIC_EPOCH);
        group.beat(of_instance(leaving)).unwrap();
        let kept = group.entry.changed_roll().expect("it has left");
        let before = group.consumer();
        group.begin_again(&kept);
        assert_eq!(group.consumer(), before);
        // It said so, and has its session's whole time.
        group.pass(44_000);
        let again = group.beat(of_instance(joining(comes_as, None))).unwrap();
        assert_eq!(again.epoch, joined.epoch, "nothing is shared anew");
        assert_eq!(again.assignment, joined.assignment);
        let kept = group.entry.changed_roll().expect("it is back");
        group.begin_again(&kept);
        group.beat(beat(comes_as, again.epoch)).unwrap();
    }
}

#[test]
fn damaged_members_are_an_error() {
    let mut group = Mixed::new();
    group.settled(Some("i"));
    let classic = group.entry.changed_roll().unwrap();
    let mut group = Mixed::new();
    group.beat(joining("a", Some("t.*"))).unwrap();
    let consumer = group.entry.changed_roll().unwrap();
    for kept in [classic, consumer] {
        let read = Roll::decode(&kept).unwrap();
        assert_eq!(read.encode(), kept);
        for len in 0..kept.len() {
            assert!(Roll::decode(&kept[..len]).is_err(), "{len} bytes");
        }
        let mut seen = BTreeSet::new();
        for at in 0..kept.len() {
            let mut changed = kept.clone();
            changed[at] ^= 0x80;
            // Whatever it says, the worst is an error.
            seen.insert(Roll::decode(&changed).is_err());
        }
        assert_eq!(seen.len(), 2);
        assert!(Roll::decode(&[kept, vec![0]].concat()).is_err());
    }
}
