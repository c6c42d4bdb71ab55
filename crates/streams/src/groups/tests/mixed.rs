//! A group that changes its protocol, and clients of both protocols that behave as real ones do.

use std::collections::HashMap;

use base::{HumanDuration, Rng};
use bytes::{BufMut, BytesMut};

use super::super::entry::{Entry, Members};
use super::topics::Topics;
use super::*;
use crate::consumer::{self, Share};

/// One group with a clock that the test moves.
pub(super) struct Mixed {
    pub(super) config: Arc<GroupsConfig>,
    pub(super) entry: Entry,
    pub(super) now: UnixMillis,
    pub(super) topics: Topics,
    pub(super) joins: HashMap<Token, Result<Joined, GroupError>>,
    pub(super) syncs: HashMap<Token, Result<Synced, GroupError>>,
    ids: u64,
}

impl Mixed {
    pub(super) fn new() -> Self {
        Mixed::with_config(GroupsConfig::default())
    }

    /// A group whose members may tell so many bytes.
    pub(super) fn bounded_to(group_bytes_max: usize) -> Self {
        Mixed::with_config(GroupsConfig {
            group_bytes_max,
            ..GroupsConfig::default()
        })
    }

    /// A group whose partitions the coordinator shares at intervals of so many ms at the soonest.
    pub(super) fn sharing_every(ms: u64) -> Self {
        Mixed::with_config(GroupsConfig {
            consumer_assignment_interval: HumanDuration(Duration::from_millis(ms)),
            ..GroupsConfig::default()
        })
    }

    fn with_config(config: GroupsConfig) -> Self {
        let config = Arc::new(GroupsConfig {
            initial_rebalance_delay: HumanDuration(Duration::from_millis(50)),
            members_max: 8,
            ..config
        });
        let mut topics = Topics::default();
        topics.put("t", 4);
        Mixed {
            entry: classic(&config),
            config,
            now: UnixMillis(1_000_000),
            topics,
            joins: HashMap::new(),
            syncs: HashMap::new(),
            ids: 0,
        }
    }

    /// What the coordinator does around a request to a group.
    fn with<T>(
        &mut self,
        ask: impl FnOnce(&mut Entry, UnixMillis, &Topics, &mut Vec<Answer>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let answer = ask(&mut self.entry, self.now, &self.topics, &mut out);
        self.entry.see_to_kind(self.now, &mut out);
        for answer in out {
            let earlier = match answer {
                Answer::Join(token, joined) => self.joins.insert(token, joined).is_some(),
                Answer::Sync(token, synced) => self.syncs.insert(token, synced).is_some(),
            };
            assert!(!earlier, "a request was answered twice");
        }
        if self.entry.is_forgettable() {
            self.entry = classic(&self.config);
        }
        answer
    }

    pub(super) fn fresh(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(super) fn join(&mut self, request: JoinRequest) -> Token {
        let number = self.fresh();
        let (token, fresh_id) = (Token(number), format!("m{number}"));
        self.with(|entry, now, topics, out| entry.join(now, request, fresh_id, token, topics, out));
        token
    }

    pub(super) fn sync(&mut self, request: SyncRequest) -> Token {
        let token = Token(self.fresh());
        self.with(|entry, now, _, out| entry.sync(now, request, token, out));
        token
    }

    pub(super) fn heartbeat(&mut self, member: MemberRef<'_>) -> Result<(), GroupError> {
        self.with(|entry, now, _, _| entry.heartbeat(now, member))
    }

    pub(super) fn leave(&mut self, leaving: &Leaving) -> Result<(), GroupError> {
        self.with(|entry, now, _, out| entry.leave(now, leaving, out))
    }

    pub(super) fn beat(&mut self, beat: Beat) -> Result<BeatAnswer, GroupError> {
        self.with(|entry, now, topics, out| entry.beat(now, beat, topics, out))
    }

    pub(super) fn commit(&mut self, member_id: &str, generation: i32) -> Result<(), GroupError> {
        let member = member_ref(member_id, generation);
        self.with(|entry, now, _, _| match &mut entry.members {
            Members::Classic(group) => group.check_commit(now, member),
            Members::Consumer(group) => group.check_commit(now, member),
            Members::Share(_) | Members::Streams(_) => panic!("it is no group of consumers"),
        })
    }

    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some(due) = self.entry.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.with(|entry, now, _, out| entry.tick(now, out));
            assert!(
                self.entry.next_deadline() != Some(due),
                "a tick left its own deadline"
            );
        }
        self.now = end;
    }

    pub(super) fn described(&self) -> GroupDescription {
        self.entry.describe("g", true)
    }

    pub(super) fn kind_and_state(&self) -> (GroupKind, GroupState) {
        let described = self.described();
        (described.kind, described.state)
    }

    pub(super) fn consumer(&self) -> ConsumerGroupDescription {
        match &self.entry.members {
            Members::Consumer(group) => group.describe(),
            Members::Classic(_) | Members::Share(_) | Members::Streams(_) => {
                panic!("it is no consumer group")
            }
        }
    }

    /// The partitions by name.
    fn named(&self, partitions: &Partitions) -> Share {
        let mut share = Share::new();
        for (name, (id, _)) in &self.topics.by_name {
            let of_topic = partitions.iter().filter(|(topic, _)| topic == id);
            let of_topic: Vec<i32> = of_topic.map(|(_, p)| p).collect();
            if !of_topic.is_empty() {
                share.insert(name.clone(), of_topic);
            }
        }
        share
    }

    fn unnamed(&self, share: &Share) -> Partitions {
        let topics = share.iter().flat_map(|(name, partitions)| {
            let (id, _) = self.topics.by_name[name];
            partitions.iter().map(move |p| (id, *p))
        });
        topics.collect()
    }
}

fn classic(config: &Arc<GroupsConfig>) -> Entry {
    Entry::new(config, Members::Classic(Group::new(Arc::clone(config), 0)))
}

/// A subscription to `t` and `u` of version 1.
pub(super) fn subscription(owned: &Share) -> Bytes {
    let mut out = BytesMut::new();
    let text = |out: &mut BytesMut, text: &str| {
        out.put_i16(i16::try_from(text.len()).unwrap());
        out.put_slice(text.as_bytes());
    };
    out.put_i16(1);
    out.put_i32(2);
    text(&mut out, "t");
    text(&mut out, "u");
    out.put_i32(-1);
    out.put_i32(i32::try_from(owned.len()).unwrap());
    for (topic, partitions) in owned {
        text(&mut out, topic);
        out.put_i32(i32::try_from(partitions.len()).unwrap());
        partitions.iter().for_each(|p| out.put_i32(*p));
    }
    out.freeze()
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Newer,
    /// Classic, and gives all back before it joins.
    Eager,
    /// Classic, and goes on holding what it holds while it joins.
    Cooperative,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Out,
    Joining(Token),
    Syncing(Token),
    In,
}

/// A consumer.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) speaks: Speaks,
    pub(super) instance: Option<String>,
    pub(super) id: String,
    pub(super) generation: i32,
    /// What it really reads.
    pub(super) holds: Partitions,
    /// What it was told to hold.
    pub(super) told: Partitions,
    pub(super) step: Step,
}

impl Client {
    pub(super) fn new(speaks: Speaks) -> Self {
        Client {
            speaks,
            instance: None,
            id: String::new(),
            generation: 0,
            holds: Partitions::default(),
            told: Partitions::default(),
            step: Step::Out,
        }
    }

    /// It starts anew, as another process; with the same instance id.
    pub(super) fn restart(&mut self, speaks: Speaks) {
        let instance = self.instance.take();
        *self = Client {
            instance,
            ..Client::new(speaks)
        };
    }

    /// Does the next thing that such a client does.
    pub(super) fn act(&mut self, mixed: &mut Mixed, rng: &mut Rng, prompt: bool) {
        if self.speaks == Speaks::Newer {
            return self.act_newer(mixed, rng, prompt);
        }
        match self.step {
            Step::Out => {
                if self.speaks == Speaks::Eager {
                    self.holds = Partitions::default();
                }
                let request = self.join_request(mixed);
                self.step = Step::Joining(mixed.join(request));
            }
            Step::Joining(token) => match mixed.joins.remove(&token) {
                None => {}
                Some(Ok(joined)) => self.on_joined(mixed, joined),
                Some(Err(GroupError::MemberIdRequired { member_id })) => {
                    self.id = member_id;
                    self.step = Step::Out;
                }
                Some(Err(error)) => self.on_refusal(&error),
            },
            Step::Syncing(token) => match mixed.syncs.remove(&token) {
                None => {}
                Some(Ok(synced)) => {
                    let share = mixed.unnamed(&consumer::assigned(&synced.assignment));
                    let gives_back = !self.holds.is_within(&share);
                    self.holds = share;
                    self.step = match gives_back {
                        true => Step::Out,
                        false => Step::In,
                    };
                }
                Some(Err(error)) => self.on_refusal(&error),
            },
            Step::In => {
                let id = self.id.clone();
                let instance = self.instance.clone();
                let member = MemberRef {
                    instance_id: instance.as_deref(),
                    ..member_ref(&id, self.generation)
                };
                if let Err(error) = mixed.heartbeat(member) {
                    self.on_refusal(&error);
                }
            }
        }
    }

    pub(super) fn leave(&mut self, mixed: &mut Mixed) {
        if self.speaks == Speaks::Newer {
            let beat = Beat {
                instance_id: self.instance.clone(),
                ..beat_of(&self.id, LEAVE_EPOCH)
            };
            drop(mixed.beat(beat));
        } else {
            let leaving = Leaving {
                member_id: self.id.clone(),
                instance_id: self.instance.clone(),
            };
            drop(mixed.leave(&leaving));
        }
        self.restart(self.speaks);
    }

    fn join_request(&self, mixed: &Mixed) -> JoinRequest {
        JoinRequest {
            instance_id: self.instance.clone(),
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: subscription(&mixed.named(&self.holds)),
            }],
            ..request("c", &self.id, &["range"])
        }
    }

    fn on_joined(&mut self, mixed: &mut Mixed, joined: Joined) {
        self.id = joined.member_id;
        self.generation = joined.generation;
        let assignments = match joined.leader == self.id && !joined.skip_assignment {
            true => lead(mixed, &joined.members),
            false => Vec::new(),
        };
        self.step = Step::Syncing(mixed.sync(SyncRequest {
            group: "g".into(),
            member_id: self.id.clone(),
            instance_id: self.instance.clone(),
            generation: self.generation,
            protocol_type: Some(joined.protocol_type),
            protocol: Some(joined.protocol),
            assignments,
        }));
    }

    fn on_refusal(&mut self, error: &GroupError) {
        self.step = Step::Out;
        match error {
            GroupError::RebalanceInProgress | GroupError::GroupFull => {}
            GroupError::IllegalGeneration => self.holds = Partitions::default(),
            GroupError::UnknownMember | GroupError::FencedInstance => self.restart(self.speaks),
            other => panic!("unexpected refusal: {other}"),
        }
    }

    fn act_newer(&mut self, mixed: &mut Mixed, rng: &mut Rng, prompt: bool) {
        if prompt || rng.one_in(2) {
            self.holds = self.told.clone();
        }
        if self.id.is_empty() {
            self.id = format!("n{}", mixed.fresh());
        }
        let mut beat = beat_of(&self.id, self.generation);
        if self.generation == 0 {
            self.holds = Partitions::default();
            self.told = Partitions::default();
            beat = join_beat(&self.id);
        }
        beat.owned = Some(self.holds.clone());
        beat.instance_id.clone_from(&self.instance);
        match mixed.beat(beat) {
            Ok(answer) => {
                self.generation = answer.epoch;
                self.step = Step::In;
                if let Some(told) = answer.assignment {
                    self.told = told;
                }
            }
            Err(GroupError::UnreleasedInstance | GroupError::GroupFull) => {}
            Err(
                GroupError::UnknownMember
                | GroupError::FencedMemberEpoch
                | GroupError::FencedInstance,
            ) => {
                self.generation = 0;
                self.step = Step::Out;
                self.holds = Partitions::default();
                self.told = Partitions::default();
            }
            Err(other) => panic!("unexpected refusal: {other}"),
        }
    }
}

pub(super) fn beat_of(id: &str, epoch: i32) -> Beat {
    Beat {
        group: "g".into(),
        member_id: id.into(),
        epoch,
        ..Beat::default()
    }
}

pub(super) fn join_beat(id: &str) -> Beat {
    Beat {
        rebalance_timeout: Some(Duration::from_secs(30)),
        topics: Some(vec!["t".into(), "u".into()]),
        owned: Some(Partitions::default()),
        ..beat_of(id, 0)
    }
}

/// Shares all partitions turn by turn; what somebody else still holds it gives nobody.
fn lead(mixed: &Mixed, members: &[JoinedMember]) -> Vec<(String, Bytes)> {
    let told = |m: &JoinedMember| consumer::read_subscription(&m.metadata).unwrap();
    let mut shares: Vec<Share> = vec![Share::new(); members.len()];
    let topics = mixed.topics.by_name.iter();
    let all = topics.flat_map(|(name, (_, count))| (0..*count).map(move |p| (name, p)));
    for (nth, (name, partition)) in all.enumerate() {
        let at = nth % members.len();
        let holds = |m: &JoinedMember| {
            let owned = told(m).owned;
            owned.get(name).is_some_and(|p| p.contains(&partition))
        };
        let mut others = members.iter().enumerate().filter(|(other, _)| *other != at);
        if !others.any(|(_, m)| holds(m)) {
            shares[at].entry(name.clone()).or_default().push(partition);
        }
    }
    let ids = members.iter().map(|m| m.member_id.clone());
    let shares = shares.iter().map(consumer::assignment);
    ids.zip(shares).collect()
}
