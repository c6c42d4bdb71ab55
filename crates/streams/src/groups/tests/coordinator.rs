//! The coordinator around the groups: waiting members, forgotten groups, bounds.

use base::{ManualClock, SystemClock};

use super::topics::Topics;
use super::*;
use crate::group_config::GroupConfig;

/// Remembers nothing.
struct NoLedger;

impl Ledger for NoLedger {
    fn standing(&self, _: &str) -> Option<GroupStanding> {
        None
    }

    fn note(&self, _: &str, _: &GroupStanding) {}

    fn keep(&self, _: &str, _: Vec<u8>) {}

    fn settings(&self, _: &str) -> GroupConfig {
        GroupConfig::default()
    }

    fn kept(&self) -> Vec<(Arc<str>, Vec<u8>)> {
        Vec::new()
    }
}

fn coordinator(config: GroupsConfig) -> Arc<Coordinator> {
    Coordinator::new(config, Arc::new(SystemClock), Arc::new(NoLedger))
}

#[tokio::test]
async fn the_coordinator_wakes_members_and_forgets_empty_groups() {
    let coordinator = coordinator(config());
    let ask = |client: &str| JoinRequest {
        member_id_required: false,
        ..request(client, "", &["range"])
    };
    let (a, b) = (
        coordinator.join_group(ask("a"), &Topics::default()),
        coordinator.join_group(ask("b"), &Topics::default()),
    );
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    assert_eq!(a.leader, b.leader);
    assert_eq!(coordinator.list().len(), 1);
    let leaving = [a.member_id, b.member_id].map(|member_id| Leaving {
        member_id,
        instance_id: None,
    });
    assert_eq!(coordinator.check_delete("g"), Err(GroupError::NotEmpty));
    assert_eq!(coordinator.leave_group("g", &leaving), vec![Ok(()), Ok(())]);
    assert_eq!(coordinator.list(), vec![]);
    assert_eq!(coordinator.describe("g"), None);
    assert_eq!(coordinator.check_delete("g"), Ok(()));
}

#[tokio::test]
async fn a_join_that_is_dropped_holds_up_nobody() {
    let coordinator = coordinator(config());
    let ask = |client: &str| JoinRequest {
        member_id_required: false,
        ..request(client, "", &["range"])
    };
    let gone = coordinator.join_group(ask("gone"), &Topics::default());
    let stays = coordinator.join_group(ask("stays"), &Topics::default());
    drop(gone);
    let joined = stays.await.unwrap();
    assert_eq!(joined.members.len(), 1);
}

#[tokio::test]
async fn bounds_of_the_coordinator_are_told() {
    let coordinator = Coordinator::new(
        GroupsConfig {
            groups_max: 1,
            ..config()
        },
        Arc::new(ManualClock::at(UnixMillis(5))),
        Arc::new(NoLedger),
    );
    let first = coordinator
        .join_group(request("a", "", &["range"]), &Topics::default())
        .await;
    assert!(
        matches!(first, Err(GroupError::MemberIdRequired { .. })),
        "{first:?}"
    );
    let other = JoinRequest {
        group: "h".into(),
        ..request("a", "", &["range"])
    };
    assert_eq!(
        coordinator.join_group(other, &Topics::default()).await,
        Err(GroupError::TooManyGroups)
    );
    let nameless = JoinRequest {
        group: String::new(),
        ..request("a", "", &["range"])
    };
    assert_eq!(
        coordinator.join_group(nameless, &Topics::default()).await,
        Err(GroupError::InvalidGroupId)
    );
    let hasty = JoinRequest {
        session_timeout: Duration::from_millis(1),
        ..request("a", "", &["range"])
    };
    assert_eq!(
        coordinator.join_group(hasty, &Topics::default()).await,
        Err(GroupError::InvalidSessionTimeout)
    );
}

/// With neither time-outs nor pauses a group whose only member is away is due again at once.
#[tokio::test]
async fn a_group_that_is_always_due_leaves_the_others_their_turn() {
    let clock = Arc::new(ManualClock::at(UnixMillis(5)));
    let bare = GroupsConfig {
        session_timeout_min: HumanDuration(Duration::ZERO),
        initial_rebalance_delay: HumanDuration(Duration::ZERO),
        ..config()
    };
    let coordinator = Coordinator::new(bare, clock, Arc::new(NoLedger));
    let join = |instance: &str| {
        let hasty = JoinRequest {
            rebalance_timeout: Duration::ZERO,
            ..static_request(instance, "")
        };
        coordinator.join_group(hasty, &Topics::default())
    };
    let one = join("one").await.unwrap();
    let sync = SyncRequest {
        group: "g".into(),
        member_id: one.member_id.clone(),
        instance_id: None,
        generation: one.generation,
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    };
    coordinator.sync_group(sync).await.unwrap();
    let two = join("two").await.unwrap();
    let leaving = Leaving {
        member_id: two.member_id,
        instance_id: None,
    };
    assert_eq!(coordinator.leave_group("g", &[leaving]), vec![Ok(())]);
    // The timer has its turns between these.
    for _ in 0..10 {
        tokio::task::yield_now().await;
        let described = coordinator.describe("g").expect("the group is gone");
        assert_eq!(described.state, GroupState::PreparingRebalance);
    }
}
