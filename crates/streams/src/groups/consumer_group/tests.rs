//! What members of the newer protocol see, step by step and under random schedules.

use std::collections::BTreeMap;

use base::{HumanDuration, Rng};

use super::super::Sight;
use super::super::tests::topics::Topics;
use super::*;

/// One group with a clock that the test moves.
struct Bench {
    group: ConsumerGroup,
    now: UnixMillis,
    topics: Topics,
}

impl Bench {
    fn new() -> Self {
        Bench::sharing_every(0)
    }

    /// A group whose partitions are shared at intervals of so many ms at the soonest.
    fn sharing_every(ms: u64) -> Self {
        let config = GroupsConfig {
            consumer_session_timeout: HumanDuration(Duration::from_secs(45)),
            consumer_assignment_interval: HumanDuration(Duration::from_millis(ms)),
            members_max: 8,
            ..GroupsConfig::default()
        };
        Bench {
            group: ConsumerGroup::new(Arc::new(config), 0),
            now: UnixMillis(1_000_000),
            topics: Topics::default(),
        }
    }

    fn beat(&mut self, beat: Beat) -> Result<BeatAnswer, GroupError> {
        self.group.beat(self.now, beat, &self.topics)
    }

    fn join(&mut self, id: &str, topic: &str) -> BeatAnswer {
        self.beat(join(id, topic)).unwrap()
    }

    /// A heartbeat that says nothing new but what is held.
    fn hold(&mut self, id: &str, epoch: i32, owned: &Partitions) -> Result<BeatAnswer, GroupError> {
        self.beat(Beat {
            owned: Some(owned.clone()),
            ..Beat::of(id, epoch)
        })
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.group.tick(self.now);
    }

    /// A first member that holds all four partitions of `t`, and a second that waits for some.
    fn pair(&mut self) -> (BeatAnswer, BeatAnswer) {
        self.topics.put("t", 4);
        let first = self.join("a", "t");
        let second = self.join("b", "t");
        (first, second)
    }
}

impl Beat {
    fn of(id: &str, epoch: i32) -> Beat {
        Beat {
            group: "g".into(),
            member_id: id.into(),
            epoch,
            ..Beat::default()
        }
    }
}

fn join(id: &str, topic: &str) -> Beat {
    Beat {
        rebalance_timeout: Some(Duration::from_secs(30)),
        topics: Some(vec![topic.into()]),
        owned: Some(Partitions::default()),
        ..Beat::of(id, 0)
    }
}

fn join_static(id: &str, instance: &str) -> Beat {
    Beat {
        instance_id: Some(instance.into()),
        ..join(id, "t")
    }
}

fn held(answer: &BeatAnswer) -> Partitions {
    answer.assignment.clone().unwrap()
}

#[test]
fn members_follow_other_settings_with_their_next_heartbeats() {
    let mut bench = Bench::new();
    bench.topics.put("t", 1);
    let second = Duration::from_secs(1);
    let joined = bench.join("a", "t");
    assert_eq!(joined.heartbeat_interval, 5 * second);
    bench.group.follow(Arc::new(GroupsConfig {
        consumer_heartbeat_interval: HumanDuration(2 * second),
        consumer_session_timeout: HumanDuration(10 * second),
        ..GroupsConfig::default()
    }));
    // It was told that it may be silent for so long.
    bench.pass(44_000);
    let told = bench.beat(Beat::of("a", 1)).unwrap();
    assert_eq!((told.epoch, told.heartbeat_interval), (1, 2 * second));
    bench.pass(9_000);
    bench.beat(Beat::of("a", 1)).unwrap();
    bench.pass(10_000);
    let gone = bench.beat(Beat::of("a", 1));
    assert_eq!(gone, Err(GroupError::UnknownMember));
}

#[test]
fn who_comes_within_the_interval_is_shared_for_together_when_it_is_over() {
    let mut bench = Bench::sharing_every(1_000);
    bench.topics.put("t", 4);
    // The first members wait for nobody.
    let first = bench.join("a", "t");
    assert_eq!((first.epoch, held(&first).len()), (1, 4));
    assert_eq!(first.heartbeat_interval, Duration::from_secs(5));
    bench.pass(400);
    for id in ["b", "c"] {
        let early = bench.join(id, "t");
        assert_eq!((early.epoch, held(&early).len()), (1, 0));
        // It is called when there is something for it.
        assert_eq!(early.heartbeat_interval, Duration::from_millis(600));
    }
    assert_eq!(bench.group.state(), GroupState::Assigning);
    bench.pass(599);
    let told = bench.hold("a", 1, &held(&first)).unwrap();
    assert_eq!((told.epoch, told.assignment), (1, None));
    assert_eq!(told.heartbeat_interval, Duration::from_millis(1));
    bench.pass(1);
    let due = bench.beat(Beat::of("b", 1)).unwrap();
    // Two changes are one assignment, of the group's epoch.
    assert_eq!((due.epoch, bench.group.describe().assignment_epoch), (3, 3));
    assert_eq!(due.heartbeat_interval, Duration::from_secs(5));
    let told = bench.hold("a", 1, &held(&first)).unwrap();
    assert_eq!(held(&told).len(), 2);
    // A clock that steps back holds nobody up.
    bench.now = UnixMillis(0);
    assert_eq!(bench.join("d", "t").epoch, 4);
}

#[test]
fn a_new_member_gets_what_the_others_have_given_back() {
    let mut bench = Bench::new();
    let (first, second) = bench.pair();
    assert_eq!((first.epoch, held(&first).len()), (1, 4));
    assert_eq!((second.epoch, held(&second).len()), (2, 0));
    assert_eq!(bench.group.state(), GroupState::Reconciling);
    // The first is asked to give two back, and stays at its epoch until it has.
    let asked = bench.hold("a", 1, &held(&first)).unwrap();
    assert_eq!((asked.epoch, held(&asked).len()), (1, 2));
    assert_eq!(bench.beat(Beat::of("b", 2)).unwrap().assignment, None);
    let done = bench.hold("a", 1, &held(&asked)).unwrap();
    assert_eq!((done.epoch, done.assignment), (2, None));
    let got = bench.beat(Beat::of("b", 2)).unwrap();
    assert_eq!(held(&got).len(), 2);
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn a_member_that_keeps_what_it_must_give_back_is_put_out() {
    let mut bench = Bench::new();
    let (first, _) = bench.pair();
    bench.hold("a", 1, &held(&first)).unwrap();
    bench.pass(20_000);
    bench.hold("a", 1, &held(&first)).unwrap();
    bench.beat(Beat::of("b", 2)).unwrap();
    bench.pass(10_000);
    let put_out = bench.hold("a", 1, &held(&first));
    assert_eq!(put_out, Err(GroupError::UnknownMember));
    assert_eq!(held(&bench.beat(Beat::of("b", 2)).unwrap()).len(), 4);
}

#[test]
fn a_silent_member_is_put_out_and_its_partitions_go_to_the_others() {
    let mut bench = Bench::new();
    bench.pair();
    bench.pass(44_000);
    bench.beat(Beat::of("b", 2)).unwrap();
    bench.pass(1_000);
    let told = bench.beat(Beat::of("b", 2)).unwrap();
    assert_eq!((told.epoch, held(&told).len()), (3, 4));
    let alone = bench.beat(Beat::of("a", 1));
    assert_eq!(alone, Err(GroupError::UnknownMember));
}

#[test]
fn epochs_fence_whoever_is_ahead_or_behind() {
    let mut bench = Bench::new();
    let (first, _) = bench.pair();
    let ahead = bench.beat(Beat::of("a", 9));
    assert_eq!(ahead, Err(GroupError::FencedMemberEpoch));
    let asked = bench.hold("a", 1, &held(&first)).unwrap();
    bench.hold("a", 1, &held(&asked)).unwrap();
    // The answer with epoch 2 was lost: the member asks once more, at the epoch it knows.
    assert_eq!(bench.hold("a", 1, &held(&asked)).unwrap().epoch, 2);
    let behind = bench.hold("a", 1, &held(&first));
    assert_eq!(behind, Err(GroupError::FencedMemberEpoch));
    let member = |epoch| MemberRef {
        group: "g",
        member_id: "a",
        instance_id: None,
        generation: epoch,
    };
    assert_eq!(bench.group.check_fetch(member(2)), Ok(()));
    let stale = bench.group.check_fetch(member(1));
    assert_eq!(stale, Err(GroupError::StaleMemberEpoch));
    // What was committed on the way is taken for what the member has held all along.
    let kept: Vec<(Uuid, i32)> = held(&asked).iter().collect();
    let (_, lost) = held(&first).split_by(&held(&asked));
    let lost: Vec<(Uuid, i32)> = lost.iter().collect();
    let late = |partitions| bench.group.check_late_commit(member(1), partitions);
    assert_eq!(late(&kept), Ok(()));
    assert_eq!(late(&lost), Err(GroupError::StaleMemberEpoch));
    // A fenced member starts anew under its id.
    assert_eq!(held(&bench.join("a", "t")).len(), 2);
}

#[test]
fn a_static_member_finds_its_partitions_kept_and_may_not_be_taken_over() {
    let mut bench = Bench::new();
    bench.topics.put("t", 4);
    let first = bench.beat(join_static("a", "one")).unwrap();
    let taken = bench.beat(join_static("b", "one"));
    assert_eq!(taken, Err(GroupError::UnreleasedInstance));
    let away = Beat {
        instance_id: Some("one".into()),
        ..Beat::of("a", LEAVE_STATIC_EPOCH)
    };
    assert_eq!(bench.beat(away).unwrap().epoch, LEAVE_STATIC_EPOCH);
    let back = bench.beat(join_static("b", "one")).unwrap();
    assert_eq!((back.epoch, held(&back)), (first.epoch, held(&first)));
    let former = Beat {
        instance_id: Some("one".into()),
        ..Beat::of("a", 1)
    };
    assert_eq!(bench.beat(former), Err(GroupError::FencedInstance));
    bench.beat(Beat::of("b", LEAVE_EPOCH)).unwrap();
    assert_eq!(bench.group.state(), GroupState::Empty);
}

#[test]
fn topics_that_come_grow_and_go_change_the_shares() {
    let mut bench = Bench::new();
    let wish = Beat {
        topics: None,
        topics_regex: Some("t-[0-9]+".into()),
        ..join("a", "")
    };
    assert!(held(&bench.beat(wish).unwrap()).is_empty());
    bench.topics.put("t-1", 2);
    bench.topics.put("t-1x", 2);
    let told = bench.beat(Beat::of("a", 1)).unwrap();
    assert_eq!((told.epoch, held(&told).len()), (2, 2));
    bench.topics.put("t-1", 5);
    assert_eq!(held(&bench.beat(Beat::of("a", 2)).unwrap()).len(), 5);
    bench.topics.delete("t-1");
    let told = bench.hold("a", 3, &Partitions::default()).unwrap();
    assert_eq!((told.epoch, held(&told).len()), (4, 0));
    let bad = Beat {
        topics_regex: Some("t-[".into()),
        ..Beat::of("a", 4)
    };
    assert!(matches!(bench.beat(bad), Err(GroupError::InvalidRegex(_))));
}

#[test]
fn a_pattern_finds_only_what_its_member_may_know_of() {
    let mut bench = Bench::new();
    for name in ["t-1", "t-2"] {
        bench.topics.put(name, 1);
    }
    let wish = |id: &str, seen: &'static [&'static str]| Beat {
        topics: None,
        topics_regex: Some("t-[0-9]+".into()),
        sight: Sight::new(1, move |name| seen.contains(&name)),
        ..join(id, "")
    };
    assert_eq!(held(&bench.beat(wish("a", &["t-1"])).unwrap()).len(), 1);
    // A member with the same pattern may know of more, and is given that alone.
    let told = bench.beat(wish("b", &["t-2"])).unwrap();
    assert_eq!(held(&told).len(), 1);
    let told = bench.beat(Beat {
        sight: Sight::new(1, |name| name == "t-1"),
        ..Beat::of("a", 1)
    });
    assert_eq!(
        (told.as_ref().unwrap().epoch, told.unwrap().assignment),
        (2, None)
    );
    // The rules change: what may be known no more is taken away.
    let told = bench.beat(Beat {
        sight: Sight::new(2, |_| false),
        owned: Some(Partitions::default()),
        ..Beat::of("a", 2)
    });
    assert!(held(&told.unwrap()).is_empty());
}

#[test]
fn requests_that_say_too_little_or_nonsense_are_refused() {
    let mut bench = Bench::new();
    let invalid = [
        Beat::of("a", 0),
        Beat::of("a", -3),
        Beat::of("a", LEAVE_STATIC_EPOCH),
        Beat {
            member_id: String::new(),
            ..join("a", "t")
        },
        Beat {
            owned: Some([(Uuid::from_u128(1), 0)].into_iter().collect()),
            ..join("a", "t")
        },
    ];
    for beat in invalid {
        let refused = bench.beat(beat.clone());
        assert_eq!(refused, Err(GroupError::InvalidRequest), "{beat:?}");
    }
    let unknown = Beat {
        assignor: Some("cleverest".into()),
        ..join("a", "t")
    };
    let unknown = bench.beat(unknown);
    assert_eq!(unknown, Err(GroupError::UnsupportedAssignor));
    let stranger = bench.beat(Beat::of("a", 3));
    assert_eq!(stranger, Err(GroupError::UnknownMember));
    for n in 0..8 {
        bench.join(&format!("m{n}"), "t");
    }
    let ninth = bench.beat(join("m8", "t"));
    assert_eq!(ninth, Err(GroupError::GroupFull));
}

/// Random members join, take up and give back slowly, lose answers, go silent, leave and return
/// while topics grow: no partition is ever held by two members that the group knows, and once the
/// survivors behave every partition is held by exactly one.
#[test]
fn random_schedules_never_share_a_partition_and_end_with_all_held() {
    for seed in 0..300 {
        simulate(seed);
    }
}

#[derive(Default)]
struct Client {
    id: String,
    instance: Option<String>,
    epoch: i32,
    /// What it really holds; what it is told to give up it may go on holding for a while.
    holds: Partitions,
    told: Partitions,
    is_member: bool,
    /// An answer was lost, so the next request says everything and is answered in full.
    lost: bool,
}

fn simulate(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let mut bench = Bench::sharing_every(seed % 3 * 2_000);
    bench.topics.put("t", 5);
    let mut clients: Vec<Client> = (0..5_u8)
        .map(|n| Client {
            instance: (n < 2).then(|| format!("i{n}")),
            ..Client::default()
        })
        .collect();
    let mut ids = 0;
    for step in 0..400 {
        let calm = step > 300;
        if !calm && rng.one_in(60) {
            let partitions = 5 + step / 40;
            bench
                .topics
                .put(if rng.one_in(2) { "t" } else { "u" }, partitions);
        }
        let at = usize::try_from(rng.below(5)).unwrap();
        let client = &mut clients[at];
        match rng.below(if calm { 8 } else { 20 }) {
            8 => leave(&mut bench, client, &mut rng),
            // It crashes, or its link does; whatever it held it holds no more.
            9 if client.instance.is_none() => *client = Client::default(),
            10 => bench.pass(rng.below(20_000)),
            _ => act(&mut bench, client, &mut rng, &mut ids, calm),
        }
        bench.pass(rng.below(500));
        check_exclusive(&bench, &clients, seed);
    }
    for _ in 0..60 {
        for client in &mut clients {
            act(&mut bench, client, &mut rng, &mut ids, true);
        }
        bench.pass(1_000);
        check_exclusive(&bench, &clients, seed);
    }
    assert_eq!(bench.group.state(), GroupState::Stable, "seed {seed}");
    let all: i32 = bench.topics.by_name.values().map(|(_, count)| *count).sum();
    let held: usize = clients.iter().map(|client| client.holds.len()).sum();
    assert_eq!(
        held,
        usize::try_from(all).unwrap(),
        "seed {seed}: not all are held"
    );
}

/// One heartbeat of a client, whose answer may get lost.
fn act(bench: &mut Bench, client: &mut Client, rng: &mut Rng, ids: &mut u32, calm: bool) {
    // It gives up what it was told to, sooner or later; the rest it took up at once.
    if calm || rng.one_in(2) {
        client.holds = client.told.clone();
    }
    if client.id.is_empty() {
        *ids += 1;
        client.id = format!("m{ids}");
    }
    let mut beat = if client.epoch == 0 {
        client.holds = Partitions::default();
        client.told = Partitions::default();
        Beat {
            topics: Some(vec!["t".into(), "u".into()]),
            ..join(&client.id, "t")
        }
    } else {
        let owned = Some(client.holds.clone()).filter(|_| calm || rng.one_in(2));
        Beat {
            owned,
            ..Beat::of(&client.id, client.epoch)
        }
    };
    if client.lost && client.epoch > 0 {
        beat.owned = Some(client.holds.clone());
        beat.rebalance_timeout = Some(Duration::from_secs(30));
        beat.topics = Some(vec!["t".into(), "u".into()]);
    }
    beat.instance_id.clone_from(&client.instance);
    client.lost = false;
    let answer = bench.beat(beat);
    if !calm && rng.one_in(10) {
        client.lost = true;
        return;
    }
    match answer {
        Ok(answer) => {
            client.is_member = true;
            client.epoch = answer.epoch;
            if let Some(told) = answer.assignment {
                for (topic, partition) in told.iter() {
                    client.holds.insert(topic, partition);
                }
                client.told = told;
            }
        }
        // Others must leave or be put out first.
        Err(GroupError::UnreleasedInstance | GroupError::GroupFull) => {}
        Err(
            GroupError::UnknownMember | GroupError::FencedMemberEpoch | GroupError::FencedInstance,
        ) => {
            client.epoch = 0;
            client.is_member = false;
            client.holds = Partitions::default();
            client.told = Partitions::default();
        }
        Err(other) => panic!("unexpected refusal: {other}"),
    }
}

fn leave(bench: &mut Bench, client: &mut Client, rng: &mut Rng) {
    if client.epoch == 0 {
        return;
    }
    let for_a_while = client.instance.is_some() && rng.one_in(2);
    let epoch = match for_a_while {
        true => LEAVE_STATIC_EPOCH,
        false => LEAVE_EPOCH,
    };
    let beat = Beat {
        instance_id: client.instance.clone(),
        ..Beat::of(&client.id, epoch)
    };
    // It may have been put out before; gone is gone.
    drop(bench.beat(beat));
    *client = Client {
        instance: client.instance.take(),
        ..Client::default()
    };
}

/// Members that the group still knows hold nothing twice. One that was put out and has not heard
/// of it may still believe to hold something: that is what fencing its commits is for.
fn check_exclusive(bench: &Bench, clients: &[Client], seed: u64) {
    let mut holders: BTreeMap<(Uuid, i32), &str> = BTreeMap::new();
    for client in clients.iter().filter(|c| c.is_member) {
        let known = bench.group.members.get(&client.id);
        if known.is_none_or(|m| m.epoch == 0 || m.epoch == LEAVE_STATIC_EPOCH) {
            continue;
        }
        for partition in client.holds.iter() {
            let other = holders.insert(partition, &client.id);
            assert_eq!(other, None, "seed {seed}: {partition:?} is held twice");
        }
    }
    for member in bench.group.members.values() {
        assert!(!member.assigned.meets(&member.revoking), "seed {seed}");
    }
    let believed = bench.group.members.iter().flat_map(|(id, m)| {
        let both = m
            .assigned
            .iter()
            .chain(m.revoking.iter())
            .collect::<Vec<_>>();
        both.into_iter().map(move |partition| (partition, id))
    });
    let mut count = 0;
    for (partition, id) in believed {
        count += 1;
        let owner = bench.group.owners.get(&partition);
        assert_eq!(owner.map(|o| &o.id), Some(id), "seed {seed}");
    }
    assert_eq!(
        bench.group.owners.len(),
        count,
        "seed {seed}: an owner is gone"
    );
}
