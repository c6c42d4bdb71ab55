//! What members of groups see, step by step.

mod classic_joins;
mod coordinator;
mod kept;
mod migration;
mod mixed;
mod mixed_schedules;
mod schedules;
pub(super) mod topics;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::{HumanDuration, UnixMillis};
use bytes::Bytes;

use super::group::{Answer, Group, Token};
use super::*;

/// One group with a clock that the test moves, and the answers it has given so far.
struct Bench {
    group: Group,
    now: UnixMillis,
    tokens: u64,
    joins: HashMap<Token, Result<Joined, GroupError>>,
    syncs: HashMap<Token, Result<Synced, GroupError>>,
}

impl Bench {
    fn new(config: GroupsConfig) -> Self {
        Bench {
            group: Group::new(Arc::new(config), 0),
            now: UnixMillis(1_000_000),
            tokens: 0,
            joins: HashMap::new(),
            syncs: HashMap::new(),
        }
    }

    fn keep(&mut self, out: Vec<Answer>) {
        for answer in out {
            let earlier = match answer {
                Answer::Join(token, joined) => self.joins.insert(token, joined).is_some(),
                Answer::Sync(token, synced) => self.syncs.insert(token, synced).is_some(),
            };
            assert!(!earlier, "a request was answered twice");
        }
    }

    fn join(&mut self, request: JoinRequest) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let mut out = Vec::new();
        let fresh_id = format!("{}-{}", request.client_id, self.tokens);
        self.group
            .join(self.now, request, fresh_id, token, &mut out);
        self.keep(out);
        token
    }

    /// Joins as Kafka clients do, in two steps; answers the member id and the second token.
    fn join_new(&mut self, client: &str) -> (String, Token) {
        let first = self.join(request(client, "", &["range"]));
        let Some(Err(GroupError::MemberIdRequired { member_id })) = self.joins.remove(&first)
        else {
            panic!("a first join was not told its id");
        };
        let token = self.join(request(client, &member_id, &["range"]));
        (member_id, token)
    }

    fn sync(&mut self, member: &str, generation: i32, shares: &[(&str, &'static str)]) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let mut out = Vec::new();
        let request = SyncRequest {
            group: "g".into(),
            member_id: member.into(),
            instance_id: None,
            generation,
            protocol_type: Some("consumer".into()),
            protocol: None,
            assignments: shares
                .iter()
                .map(|(id, share)| ((*id).to_owned(), Bytes::from_static(share.as_bytes())))
                .collect(),
        };
        self.group.sync(self.now, request, token, &mut out);
        self.keep(out);
        token
    }

    fn pass(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some(due) = self.group.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut out = Vec::new();
            self.group.tick(self.now, &mut out);
            self.keep(out);
            assert!(
                self.group.next_deadline() != Some(due),
                "a tick left its own deadline"
            );
        }
        self.now = end;
    }

    fn heartbeat(&mut self, member: &str, generation: i32) -> Result<(), GroupError> {
        self.group
            .heartbeat(self.now, member_ref(member, generation))
    }

    fn joined(&self, token: Token) -> Joined {
        self.joins[&token].clone().unwrap()
    }

    fn state(&self) -> GroupState {
        self.group.describe("g", false).state
    }

    /// Two members in a stable generation: (leader, follower, generation).
    fn stable_pair(&mut self) -> (String, String, i32) {
        let (a, join_a) = self.join_new("a");
        let (b, join_b) = self.join_new("b");
        self.pass(10_000);
        let (joined_a, joined_b) = (self.joined(join_a), self.joined(join_b));
        assert_eq!(joined_a.generation, joined_b.generation);
        assert_eq!(joined_a.leader, joined_b.leader);
        let (leader, follower) = if joined_a.leader == a { (a, b) } else { (b, a) };
        let waiting = self.sync(&follower, joined_a.generation, &[]);
        assert!(
            !self.syncs.contains_key(&waiting),
            "a follower was answered before the leader"
        );
        let led = self.sync(
            &leader,
            joined_a.generation,
            &[(&leader, "L"), (&follower, "F")],
        );
        assert_eq!(self.syncs[&led].as_ref().unwrap().assignment, "L");
        assert_eq!(self.syncs[&waiting].as_ref().unwrap().assignment, "F");
        assert_eq!(self.state(), GroupState::Stable);
        (leader, follower, joined_a.generation)
    }
}

fn config() -> GroupsConfig {
    GroupsConfig {
        initial_rebalance_delay: HumanDuration(Duration::from_millis(50)),
        ..GroupsConfig::default()
    }
}

fn request(client: &str, member_id: &str, protocols: &[&str]) -> JoinRequest {
    JoinRequest {
        group: "g".into(),
        member_id: member_id.into(),
        instance_id: None,
        client_id: client.into(),
        client_host: "/127.0.0.1".into(),
        session_timeout: Duration::from_secs(20),
        rebalance_timeout: Duration::from_secs(30),
        protocol_type: "consumer".into(),
        protocols: protocols
            .iter()
            .map(|name| Protocol {
                name: (*name).into(),
                metadata: Bytes::from_static(b"m"),
            })
            .collect(),
        member_id_required: true,
        sight: Sight::default(),
        is_remote: true,
    }
}

fn static_request(instance: &str, member_id: &str) -> JoinRequest {
    JoinRequest {
        instance_id: Some(instance.into()),
        ..request(instance, member_id, &["range"])
    }
}

fn member_ref(member_id: &str, generation: i32) -> MemberRef<'_> {
    MemberRef {
        group: "g",
        member_id,
        instance_id: None,
        generation,
    }
}

#[test]
fn two_members_share_one_generation_and_only_the_leader_sees_both() {
    let mut bench = Bench::new(config());
    let (_, join_a) = bench.join_new("a");
    let (_, join_b) = bench.join_new("b");
    assert!(bench.joins.is_empty(), "the initial delay was not kept");
    bench.pass(10_000);
    let (a, b) = (bench.joined(join_a), bench.joined(join_b));
    assert_eq!((a.generation, b.generation), (1, 1));
    let mut seen = [a.members.len(), b.members.len()];
    seen.sort_unstable();
    assert_eq!(seen, [0, 2]);
    assert_eq!(a.protocol, "range");
}

#[test]
fn members_that_keep_arriving_extend_the_initial_delay() {
    let mut bench = Bench::new(config());
    let (_, first) = bench.join_new("a");
    for n in 0..5 {
        bench.pass(40);
        bench.join_new(&format!("b{n}"));
    }
    assert!(!bench.joins.contains_key(&first));
    bench.pass(200);
    assert_eq!(bench.joined(first).generation, 1);
    assert_eq!(bench.group.describe("g", true).members.len(), 6);
}

#[test]
fn the_initial_delay_holds_every_time_a_group_was_empty() {
    let mut bench = Bench::new(config());
    for _ in 0..3 {
        let (id, token) = bench.join_new("a");
        assert!(!bench.joins.contains_key(&token));
        bench.pass(49);
        assert!(!bench.joins.contains_key(&token));
        bench.pass(2);
        assert!(bench.joins.contains_key(&token));
        let leaving = Leaving {
            member_id: id,
            instance_id: None,
        };
        let mut out = Vec::new();
        bench.group.leave(bench.now, &leaving, &mut out).unwrap();
        assert_eq!(bench.state(), GroupState::Empty);
        assert!(bench.group.is_forgettable());
    }
}

#[test]
fn a_third_member_makes_the_others_join_again() {
    let mut bench = Bench::new(config());
    let (leader, follower, generation) = bench.stable_pair();
    assert_eq!(bench.heartbeat(&leader, generation), Ok(()));
    let (_, third) = bench.join_new("c");
    assert_eq!(
        bench.heartbeat(&leader, generation),
        Err(GroupError::RebalanceInProgress)
    );
    assert!(!bench.joins.contains_key(&third));
    let again = bench.join(request("a", &leader, &["range"]));
    bench.join(request("b", &follower, &["range"]));
    let joined = bench.joined(again);
    assert_eq!(joined.generation, generation + 1);
    assert_eq!(joined.members.len(), 3);
    assert_eq!(
        bench.heartbeat(&leader, generation),
        Err(GroupError::IllegalGeneration)
    );
}

#[test]
fn every_new_beginning_waits_for_more_members() {
    let mut bench = Bench::new(config());
    let (leader, follower, _) = bench.stable_pair();
    for member_id in [leader, follower] {
        let leaving = Leaving {
            member_id,
            instance_id: None,
        };
        let mut out = Vec::new();
        assert_eq!(bench.group.leave(bench.now, &leaving, &mut out), Ok(()));
        bench.keep(out);
    }
    assert_eq!(bench.state(), GroupState::Empty);
    let (_, join) = bench.join_new("c");
    bench.pass(49);
    assert!(!bench.joins.contains_key(&join), "it did not wait");
    let (_, other) = bench.join_new("d");
    bench.pass(100);
    assert_eq!(
        bench.joined(join).generation,
        bench.joined(other).generation
    );
}

#[test]
fn who_does_not_join_again_in_time_is_out() {
    let mut bench = Bench::new(config());
    let (leader, follower, generation) = bench.stable_pair();
    let (third, join_third) = bench.join_new("c");
    bench.join(request("a", &leader, &["range"]));
    // The follower's heartbeats keep its session, not its place.
    for _ in 0..6 {
        bench.pass(6_000);
        let _ = bench.heartbeat(&follower, generation);
    }
    assert_eq!(bench.joined(join_third).generation, generation + 1);
    assert_eq!(
        bench.heartbeat(&follower, generation),
        Err(GroupError::UnknownMember)
    );
    assert_eq!(bench.heartbeat(&third, generation + 1), Ok(()));
}

#[test]
fn a_silent_member_loses_its_session_and_the_group_rebalances() {
    let mut bench = Bench::new(config());
    let (leader, follower, generation) = bench.stable_pair();
    for _ in 0..4 {
        bench.pass(6_000);
        let _ = bench.heartbeat(&leader, generation);
    }
    assert_eq!(
        bench.heartbeat(&follower, generation),
        Err(GroupError::UnknownMember)
    );
    assert_eq!(
        bench.heartbeat(&leader, generation),
        Err(GroupError::RebalanceInProgress)
    );
}

#[test]
fn a_leader_that_never_assigns_is_put_out() {
    let mut bench = Bench::new(config());
    let (a, join_a) = bench.join_new("a");
    let (b, _) = bench.join_new("b");
    bench.pass(1_000);
    let joined = bench.joined(join_a);
    let (leader, follower) = if joined.leader == a { (a, b) } else { (b, a) };
    let waiting = bench.sync(&follower, joined.generation, &[]);
    for _ in 0..8 {
        bench.pass(5_000);
        let _ = bench.heartbeat(&leader, joined.generation);
    }
    assert_eq!(bench.syncs[&waiting], Err(GroupError::RebalanceInProgress));
    assert_eq!(
        bench.heartbeat(&leader, joined.generation),
        Err(GroupError::UnknownMember)
    );
}

#[test]
fn the_protocol_is_one_that_all_members_know() {
    let mut bench = Bench::new(config());
    let ask = |client: &str, protocols: &[&str]| JoinRequest {
        member_id_required: false,
        ..request(client, "", protocols)
    };
    let first = bench.join(ask("a", &["sticky", "range"]));
    let alien = bench.join(ask("b", &["roundrobin"]));
    assert_eq!(bench.joins[&alien], Err(GroupError::InconsistentProtocol));
    let other = JoinRequest {
        protocol_type: "connect".into(),
        ..ask("c", &["range"])
    };
    let other = bench.join(other);
    assert_eq!(bench.joins[&other], Err(GroupError::InconsistentProtocol));
    bench.join(ask("d", &["range", "roundrobin"]));
    bench.pass(1_000);
    assert_eq!(bench.joined(first).protocol, "range");
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_fences_its_former_self() {
    let mut bench = Bench::new(config());
    let first = bench.join(static_request("one", ""));
    bench.pass(1_000);
    let joined = bench.joined(first);
    bench.sync(
        &joined.member_id,
        joined.generation,
        &[(&joined.member_id, "S")],
    );
    let back = bench.join(static_request("one", ""));
    let back = bench.joined(back);
    assert_eq!(back.generation, joined.generation);
    assert_ne!(back.member_id, joined.member_id);
    assert!(back.skip_assignment);
    let synced = bench.sync(&back.member_id, back.generation, &[]);
    assert_eq!(bench.syncs[&synced].as_ref().unwrap().assignment, "S");
    let former = MemberRef {
        instance_id: Some("one"),
        ..member_ref(&joined.member_id, joined.generation)
    };
    assert_eq!(
        bench.group.heartbeat(bench.now, former),
        Err(GroupError::FencedInstance)
    );
}

#[test]
fn static_members_that_are_away_are_waited_for_also_when_they_ask_for_no_wait() {
    let mut bench = Bench::new(config());
    let hasty = |instance: &str| JoinRequest {
        rebalance_timeout: Duration::ZERO,
        ..static_request(instance, "")
    };
    let one = bench.join(hasty("one"));
    let one = bench.joined(one);
    bench.sync(&one.member_id, one.generation, &[(&one.member_id, "S")]);
    // It waits for nobody: the first is left behind, and the second goes before it has asked.
    let two = bench.join(hasty("two"));
    let leaving = Leaving {
        member_id: bench.joined(two).member_id,
        instance_id: None,
    };
    let mut out = Vec::new();
    assert_eq!(bench.group.leave(bench.now, &leaving, &mut out), Ok(()));
    bench.keep(out);
    assert_eq!(bench.state(), GroupState::PreparingRebalance);
    let due = bench.group.next_deadline();
    assert!(due.is_some_and(|due| due > bench.now), "{due:?}");
    bench.pass(10_000);
    let back = bench.join(hasty("one"));
    assert_eq!(bench.joined(back).members.len(), 1);
}

#[test]
fn commits_need_the_generation_unless_the_group_is_empty() {
    let mut bench = Bench::new(config());
    assert_eq!(
        bench.group.check_commit(bench.now, member_ref("", -1)),
        Ok(())
    );
    let (leader, _, generation) = bench.stable_pair();
    let now = bench.now;
    assert_eq!(
        bench
            .group
            .check_commit(now, member_ref(&leader, generation)),
        Ok(())
    );
    assert_eq!(
        bench
            .group
            .check_commit(now, member_ref(&leader, generation - 1)),
        Err(GroupError::IllegalGeneration)
    );
    assert_eq!(
        bench.group.check_commit(now, member_ref("", -1)),
        Err(GroupError::UnknownMember)
    );
    assert_eq!(
        bench
            .group
            .check_commit(now, member_ref("stranger", generation)),
        Err(GroupError::UnknownMember)
    );
}

#[test]
fn an_id_that_was_never_used_holds_up_nobody_for_longer_than_its_session() {
    let mut bench = Bench::new(config());
    let (leader, follower, generation) = bench.stable_pair();
    bench.join(request("ghost", "", &["range"]));
    let (_, third) = bench.join_new("c");
    bench.join(request("a", &leader, &["range"]));
    bench.join(request("b", &follower, &["range"]));
    assert!(
        !bench.joins.contains_key(&third),
        "the ghost may still come"
    );
    bench.pass(20_001);
    assert_eq!(bench.joined(third).generation, generation + 1);
}

#[test]
fn bounds_are_told() {
    let small = GroupsConfig {
        members_max: 2,
        group_bytes_max: 15,
        ..config()
    };
    let mut bench = Bench::new(small);
    let big = bench.join(request("a", "", &["a protocol with a very long name"]));
    assert_eq!(bench.joins[&big], Err(GroupError::TooLarge));
    bench.join_new("a");
    bench.join_new("b");
    let third = bench.join(request("c", "", &["range"]));
    assert_eq!(bench.joins[&third], Err(GroupError::TooLarge));
    let mut bench = Bench::new(GroupsConfig {
        members_max: 2,
        ..config()
    });
    bench.join_new("a");
    bench.join_new("b");
    let third = bench.join(request("c", "", &["range"]));
    assert_eq!(bench.joins[&third], Err(GroupError::GroupFull));
}
