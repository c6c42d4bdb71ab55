//! What members of an application see, step by step and under random schedules.

use std::collections::BTreeSet;

use base::{HumanDuration, Rng};

use super::super::tests::topics::Topics;
use super::*;

/// One group with a clock that the test moves.
struct Bench {
    group: StreamsGroup,
    now: UnixMillis,
    topics: Topics,
}

impl Bench {
    fn with(config: GroupsConfig) -> Self {
        Bench {
            group: StreamsGroup::new(Arc::new(config), 0),
            now: UnixMillis(1_000_000),
            topics: Topics::default(),
        }
    }

    /// A group that waits for nobody, with so many stand-bys.
    fn new(standbys: u32) -> Self {
        Bench::with(GroupsConfig {
            streams_initial_rebalance_delay: HumanDuration(Duration::ZERO),
            streams_standby_replicas: standbys,
            ..GroupsConfig::default()
        })
    }

    fn beat(&mut self, beat: StreamsBeat) -> Result<StreamsAnswer, GroupError> {
        self.group.beat(self.now, beat, &self.topics)
    }

    /// A heartbeat that says what the member has.
    fn hold(&mut self, id: &str, epoch: i32, owned: &TaskShare) -> StreamsAnswer {
        let owned = Some(owned.clone());
        self.beat(StreamsBeat {
            owned,
            ..of(id, epoch)
        })
        .unwrap()
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.group.tick(self.now);
    }

    /// The topics of [`counting`], with so many partitions.
    fn put_all(&mut self, partitions: i32) {
        for topic in ["lines", "app-by-word", "app-counts"] {
            self.topics.put(topic, partitions);
        }
    }
}

fn of(id: &str, epoch: i32) -> StreamsBeat {
    StreamsBeat {
        group: "g".into(),
        member_id: id.into(),
        epoch,
        ..StreamsBeat::default()
    }
}

fn internal(name: &str) -> InternalTopic {
    InternalTopic {
        name: name.into(),
        ..InternalTopic::default()
    }
}

/// An application that splits lines into words and counts these.
fn counting() -> Topology {
    Topology {
        epoch: 0,
        subtopologies: vec![
            Subtopology {
                id: "0".into(),
                sources: vec!["lines".into()],
                repartition_sinks: vec!["app-by-word".into()],
                ..Subtopology::default()
            },
            Subtopology {
                id: "1".into(),
                repartition_sources: vec![internal("app-by-word")],
                changelogs: vec![internal("app-counts")],
                ..Subtopology::default()
            },
        ],
    }
}

fn join(id: &str, process: &str) -> StreamsBeat {
    StreamsBeat {
        rebalance_timeout: Some(Duration::from_secs(30)),
        topology: Some(counting()),
        process_id: Some(process.into()),
        owned: Some(TaskShare::default()),
        ..of(id, 0)
    }
}

fn share(answer: &StreamsAnswer) -> TaskShare {
    answer.share.clone().unwrap()
}

fn kinds(answer: &StreamsAnswer) -> Vec<NoticeKind> {
    answer.notices.iter().map(|notice| notice.kind).collect()
}

#[test]
fn internal_topics_are_asked_for_before_tasks_are_given_out() {
    let mut bench = Bench::new(0);
    let answer = bench.beat(join("a", "p")).unwrap();
    assert_eq!(kinds(&answer), [NoticeKind::MissingSourceTopics]);
    assert!(answer.notices[0].detail.contains("lines"));
    assert_eq!(
        (answer.missing.len(), bench.group.state()),
        (0, GroupState::NotReady)
    );
    bench.topics.put("lines", 3);
    let answer = bench.beat(of("a", answer.epoch)).unwrap();
    assert_eq!(kinds(&answer), [NoticeKind::MissingInternalTopics]);
    let missing: Vec<_> = answer
        .missing
        .iter()
        .map(|t| (&*t.name, t.partitions))
        .collect();
    assert_eq!(missing, [("app-by-word", 3), ("app-counts", 3)]);
    bench.put_all(3);
    let answer = bench.beat(of("a", answer.epoch)).unwrap();
    assert_eq!((answer.notices.len(), share(&answer).active.len()), (0, 6));
    assert_eq!(bench.group.state(), GroupState::Stable);
    // One of them goes: nothing can be done until it is back.
    bench.topics.put("app-counts", 2);
    let answer = bench.hold("a", answer.epoch, &share(&answer));
    assert_eq!(kinds(&answer), [NoticeKind::IncorrectlyPartitionedTopics]);
    assert!(share(&answer).is_empty());
}

#[test]
fn topics_that_are_read_together_have_as_many_partitions_as_each_other() {
    let joined = |topics: &[(&str, i32)], said: i32| {
        let mut bench = Bench::new(0);
        for (topic, partitions) in topics {
            bench.topics.put(topic, *partitions);
        }
        let by_key = InternalTopic {
            partitions: said,
            ..internal("by-key")
        };
        let topology = Topology {
            epoch: 0,
            subtopologies: vec![
                Subtopology {
                    id: "0".into(),
                    sources: vec!["left".into()],
                    repartition_sinks: vec!["by-key".into()],
                    ..Subtopology::default()
                },
                Subtopology {
                    id: "1".into(),
                    sources: vec!["right".into()],
                    repartition_sources: vec![by_key],
                    copartitioned: vec![["right".into(), "by-key".into()].into()],
                    ..Subtopology::default()
                },
            ],
        };
        bench.beat(StreamsBeat {
            topology: Some(topology),
            ..join("a", "p")
        })
    };
    // It follows the topic that it is read together with, not the one that it is written from.
    let answer = joined(&[("left", 2), ("right", 5)], 0).unwrap();
    let missing: Vec<_> = answer
        .missing
        .iter()
        .map(|t| (&*t.name, t.partitions))
        .collect();
    assert_eq!(missing, [("by-key", 5)]);
    let answer = joined(&[("left", 2), ("right", 5)], 3).unwrap();
    assert_eq!(kinds(&answer), [NoticeKind::IncorrectlyPartitionedTopics]);
    let answer = joined(&[("left", 2), ("right", 5), ("by-key", 5)], 0).unwrap();
    assert_eq!(share(&answer).active.len(), 2 + 5);
}

#[test]
fn a_topology_that_nothing_decides_is_refused() {
    let mut bench = Bench::new(0);
    let mut topology = counting();
    topology.subtopologies.remove(0);
    let asked = StreamsBeat {
        topology: Some(topology),
        ..join("a", "p")
    };
    let refused = bench.beat(asked).unwrap_err();
    assert!(
        matches!(refused, GroupError::InvalidTopology(_)),
        "{refused}"
    );
    assert!(!bench.group.has_members());
    bench.put_all(1);
    bench.beat(join("a", "p")).unwrap();
    // The same epoch means the same topology.
    let mut other = join("b", "p");
    other.topology.as_mut().unwrap().subtopologies[1]
        .changelogs
        .clear();
    assert!(matches!(
        bench.beat(other.clone()),
        Err(GroupError::InvalidTopology(_))
    ));
    // A later one takes over, and who has the older one is told so and does nothing more.
    other.topology.as_mut().unwrap().epoch = 1;
    bench.beat(other).unwrap();
    let answer = bench.hold("a", 1, &TaskShare::default());
    assert_eq!(kinds(&answer), [NoticeKind::StaleTopology]);
    assert!(share(&answer).is_empty());
}

#[test]
fn what_a_topology_may_cost_is_bounded() {
    let mut bench = Bench::new(0);
    let told = |sources: usize, sinks: usize| StreamsBeat {
        topology: Some(Topology {
            epoch: 0,
            subtopologies: vec![Subtopology {
                id: "0".into(),
                sources: (0..sources).map(|n| format!("source-{n:04}")).collect(),
                repartition_sinks: (0..sinks).map(|n| format!("sink-{n}")).collect(),
                ..Subtopology::default()
            }],
        }),
        ..join("a", "p")
    };
    let refused = bench.beat(told(5_000, 5_001)).unwrap_err();
    assert!(
        matches!(refused, GroupError::InvalidTopology(_)),
        "{refused}"
    );
    // Not all that is missing stands in every answer.
    let waits = bench.beat(told(5_000, 5_000)).unwrap();
    let detail = &waits.notices[0].detail;
    assert!(detail.contains("source-0019 and 4980 more"), "{detail}");
    bench.topics.put("source-0000", 100_001);
    bench.beat(of("a", LEAVE_EPOCH)).unwrap();
    let mut bench = Bench {
        topics: bench.topics,
        ..Bench::new(0)
    };
    let refused = bench.beat(told(1, 0)).unwrap_err();
    assert!(
        matches!(refused, GroupError::InvalidTopology(_)),
        "{refused}"
    );
}

#[test]
fn the_first_tasks_wait_for_more_members() {
    let mut bench = Bench::with(GroupsConfig::default());
    bench.put_all(1);
    let first = bench.beat(join("a", "p")).unwrap();
    assert_eq!(kinds(&first), [NoticeKind::AssignmentDelayed]);
    assert_eq!(first.heartbeat_interval, Duration::from_millis(100));
    // Epoch 0 would have it join again.
    assert!(first.epoch > 0);
    bench.pass(40);
    let second = bench.beat(join("b", "p")).unwrap();
    assert_eq!(second.heartbeat_interval, Duration::from_millis(60));
    assert!(share(&second).is_empty());
    bench.pass(60);
    let first = bench.beat(of("a", first.epoch)).unwrap();
    let second = bench.beat(of("b", second.epoch)).unwrap();
    assert_eq!(
        (share(&first).active.len(), share(&second).active.len()),
        (1, 1)
    );
    assert_eq!(first.heartbeat_interval, Duration::from_secs(5));
}

#[test]
fn a_task_moves_when_it_was_given_back() {
    let mut bench = Bench::new(0);
    bench.put_all(2);
    let first = bench.beat(join("a", "p")).unwrap();
    let all = share(&first);
    let second = bench.beat(join("b", "q")).unwrap();
    assert!(share(&second).is_empty());
    // It waits for the first, and asks again soon.
    assert_eq!(second.heartbeat_interval, SOON);
    let asked = bench.hold("a", first.epoch, &all);
    let kept = share(&asked);
    assert_eq!((asked.epoch, kept.active.len()), (first.epoch, 2));
    assert_eq!(bench.group.state(), GroupState::Reconciling);
    assert!(bench.beat(of("b", second.epoch)).unwrap().share.is_none());
    let given = bench.hold("a", first.epoch, &kept);
    assert_eq!(given.epoch, second.epoch);
    let taken = share(&bench.beat(of("b", second.epoch)).unwrap());
    assert_eq!(taken, all.split_by(&kept).1);
    assert_eq!(bench.group.state(), GroupState::Stable);
    // One who says nothing for too long loses all of it.
    bench.pass(40_000);
    bench.beat(of("b", second.epoch)).unwrap();
    bench.pass(5_000);
    let answer = bench.beat(of("b", second.epoch)).unwrap();
    assert_eq!(share(&answer), all);
    assert_eq!(
        bench.beat(of("a", given.epoch)),
        Err(GroupError::UnknownMember)
    );
}

#[test]
fn a_commit_that_an_epoch_overtook_is_taken_for_tasks_held_since() {
    let mut bench = Bench::new(0);
    bench.put_all(2);
    let first = bench.beat(join("a", "p")).unwrap();
    let all = share(&first);
    let second = bench.beat(join("b", "q")).unwrap();
    let kept = share(&bench.hold("a", first.epoch, &all));
    bench.hold("a", first.epoch, &kept);
    let member = |generation| MemberRef {
        group: "g",
        member_id: "a",
        instance_id: None,
        generation,
    };
    let stale = Err(GroupError::StaleMemberEpoch);
    assert_eq!(bench.group.check_commit(member(second.epoch)), Ok(()));
    assert_eq!(bench.group.check_commit(member(first.epoch)), stale);
    let partitions = |tasks: &Tasks| -> Vec<(Uuid, i32)> {
        let read = |of: &str| if of == "0" { "lines" } else { "app-by-word" };
        let each = tasks.iter();
        each.map(|(of, n)| (bench.topics.topic(read(&of)).unwrap().0, n))
            .collect()
    };
    let late = |tasks: &Tasks| {
        let partitions = partitions(tasks);
        assert!(!partitions.is_empty());
        bench
            .group
            .check_late_commit(member(first.epoch), &partitions)
    };
    assert_eq!(late(&kept.active), Ok(()));
    assert_eq!(late(&all.active), stale);
    let lost = all.split_by(&kept).1.active;
    assert_eq!(late(&lost), stale);
}

#[test]
fn who_answers_for_what_is_told_when_it_changed() {
    let mut bench = Bench::new(1);
    bench.put_all(2);
    let at = |port| Endpoint {
        host: "h".into(),
        port,
    };
    let first = StreamsBeat {
        endpoint: Some(at(1)),
        ..join("a", "p")
    };
    let first = bench.beat(first).unwrap();
    let told = first.endpoints.clone().unwrap();
    assert_eq!((told.len(), &told[0].endpoint), (1, &at(1)));
    let active: Vec<(&str, usize)> = told[0]
        .active
        .iter()
        .map(|(t, p)| (&**t, p.len()))
        .collect();
    assert_eq!(active, [("app-by-word", 2), ("lines", 2)]);
    let known = |answer: &StreamsAnswer| StreamsBeat {
        endpoints_epoch: answer.endpoints_epoch,
        ..of("a", answer.epoch)
    };
    let again = bench.beat(known(&first)).unwrap();
    assert!(again.endpoints.is_none());
    let second = StreamsBeat {
        endpoint: Some(at(2)),
        ..join("b", "q")
    };
    bench.beat(second).unwrap();
    let again = bench.beat(known(&again)).unwrap();
    assert_eq!(again.endpoints.unwrap().len(), 2);
    // One of them asks all to end.
    let ends = StreamsBeat {
        shuts_down: true,
        ..of("b", again.epoch)
    };
    let ends = StreamsBeat {
        epoch: bench.group.members["b"].epoch,
        ..ends
    };
    bench.beat(ends).unwrap();
    let answer = bench.beat(of("a", bench.group.members["a"].epoch)).unwrap();
    assert_eq!(kinds(&answer), [NoticeKind::ShutdownApplication]);
}

#[test]
fn what_is_no_heartbeat_is_refused() {
    let mut bench = Bench::new(0);
    bench.put_all(1);
    let sane = join("a", "p");
    let told = bench.beat(sane.clone()).unwrap();
    let spoilt = |spoil: fn(&mut StreamsBeat)| {
        let mut beat = sane.clone();
        spoil(&mut beat);
        beat
    };
    for beat in [
        spoilt(|beat| beat.member_id.clear()),
        spoilt(|beat| beat.topology = None),
        spoilt(|beat| beat.topology = Some(Topology::default())),
        spoilt(|beat| beat.process_id = None),
        spoilt(|beat| beat.rebalance_timeout = None),
        spoilt(|beat| beat.epoch = -2),
        spoilt(|beat| beat.epoch = 1),
    ] {
        assert_eq!(
            bench.beat(beat.clone()),
            Err(GroupError::InvalidRequest),
            "{beat:?}"
        );
    }
    assert_eq!(bench.beat(of("a", 7)), Err(GroupError::FencedMemberEpoch));
    assert_eq!(bench.beat(of("b", 1)), Err(GroupError::UnknownMember));
    assert_eq!(
        bench.beat(of("b", LEAVE_EPOCH)),
        Err(GroupError::UnknownMember)
    );
    bench.beat(of("a", told.epoch)).unwrap();
    assert_eq!(bench.beat(of("a", LEAVE_EPOCH)).unwrap().epoch, LEAVE_EPOCH);
    assert!(!bench.group.has_members());
}

/// A member as it is: what it has, what it was told, and by which epoch.
struct Thread {
    id: String,
    process: String,
    epoch: i32,
    holds: TaskShare,
    told: TaskShare,
}

impl Thread {
    /// Takes an answer in, if it arrives.
    fn hear(&mut self, answer: StreamsAnswer) {
        self.epoch = answer.epoch;
        if let Some(share) = answer.share {
            self.told = share;
        }
    }
}

/// Whatever members come, go, fall silent and miss answers: no task is done twice, no process has two
/// members with one task, and when it is quiet all is done, with its stand-bys.
#[test]
fn random_schedules_never_do_a_task_twice() {
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let standbys = u32::try_from(rng.below(3)).unwrap();
        let mut bench = Bench::new(standbys);
        bench.put_all(4);
        let mut threads: Vec<Thread> = Vec::new();
        let mut named = 0;
        for step in 0..400 {
            let is_quiet = step > 300;
            match rng.below(12) {
                0 if !is_quiet && threads.len() < 6 => {
                    named += 1;
                    let (id, process) = (format!("m{named}"), format!("p{}", rng.below(3)));
                    let answer = bench.beat(join(&id, &process)).unwrap();
                    let mut thread = Thread {
                        id,
                        process,
                        epoch: 0,
                        holds: TaskShare::default(),
                        told: TaskShare::default(),
                    };
                    thread.hear(answer);
                    threads.push(thread);
                }
                1 if !is_quiet && !threads.is_empty() => {
                    let at = usize::try_from(rng.below(threads.len() as u64)).unwrap();
                    let thread = threads.swap_remove(at);
                    // Some go without a word.
                    if rng.one_in(2) {
                        bench.beat(of(&thread.id, LEAVE_EPOCH)).unwrap();
                    }
                }
                2 => bench.pass(rng.below(4_000)),
                _ if !threads.is_empty() => {
                    let at = usize::try_from(rng.below(threads.len() as u64)).unwrap();
                    let thread = &mut threads[at];
                    // It gives up at once what it is to have no more, and takes up the rest later.
                    thread.holds = match rng.one_in(2) {
                        true => thread.told.clone(),
                        false => thread.holds.split_by(&thread.told).0,
                    };
                    let beat = StreamsBeat {
                        owned: Some(thread.holds.clone()),
                        ..of(&thread.id, thread.epoch)
                    };
                    match bench.beat(beat) {
                        // An answer may be lost.
                        Ok(_) if !is_quiet && rng.one_in(8) => {}
                        Ok(answer) => thread.hear(answer),
                        Err(_) => {
                            thread.holds = TaskShare::default();
                            thread.told = TaskShare::default();
                            let again = join(&thread.id, &thread.process);
                            let answer = bench.beat(again).unwrap();
                            thread.hear(answer);
                        }
                    }
                }
                _ => {}
            }
            check_apart(&bench, &threads, seed);
        }
        for _ in 0..60 {
            bench.pass(1_000);
            for thread in &mut threads {
                thread.holds = thread.told.clone();
                let answer = bench.hold(&thread.id, thread.epoch, &thread.holds);
                thread.hear(answer);
            }
            check_apart(&bench, &threads, seed);
        }
        if threads.is_empty() {
            continue;
        }
        assert_eq!(bench.group.state(), GroupState::Stable, "seed {seed}");
        let done: usize = threads.iter().map(|thread| thread.told.active.len()).sum();
        let followed: usize = threads.iter().map(|thread| thread.told.standby.len()).sum();
        let processes: BTreeSet<&String> = threads.iter().map(|thread| &thread.process).collect();
        let standbys = usize::try_from(standbys).unwrap().min(processes.len() - 1);
        assert_eq!((done, followed), (8, 4 * standbys), "seed {seed}");
    }
}

fn check_apart(bench: &Bench, threads: &[Thread], seed: u64) {
    // Who was put out has not heard of it yet; what it does is refused.
    let is_member = |thread: &&Thread| bench.group.members.contains_key(&thread.id);
    let mut done = BTreeSet::new();
    let mut here = BTreeSet::new();
    for thread in threads.iter().filter(is_member) {
        for (of, n) in thread.holds.active.iter() {
            assert!(
                done.insert((of.clone(), n)),
                "seed {seed}: {of} {n} is done twice"
            );
            let is_first = here.insert((&thread.process, of.clone(), n));
            assert!(is_first, "seed {seed}: {of} {n} is twice in a process");
        }
        for (of, n) in thread.holds.standby.iter() {
            let is_first = here.insert((&thread.process, of.clone(), n));
            assert!(is_first, "seed {seed}: {of} {n} is twice in a process");
        }
    }
}
