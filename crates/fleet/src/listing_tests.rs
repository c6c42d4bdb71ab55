//! Checks of what a list costs and of what a restless agent leaves behind.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, HumanDuration, ManualClock, UnixMillis};
use c2::Heartbeat;
use serde_json::json;

use super::*;
use crate::config::FleetConfig;
use crate::events::EventFilter;
use crate::fleet::Reached;
use crate::history::{OperationFilter, Place};
use crate::operation::FleetOperation;

const START: UnixMillis = UnixMillis(1_800_000_000_000);

struct World {
    folder: tempfile::TempDir,
    clock: ManualClock,
    fleet: Arc<Fleet>,
}

impl World {
    async fn new(config: FleetConfig) -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(START);
        let fleet = Fleet::open(folder.path(), config, Arc::new(clock.clone()));
        World {
            fleet: fleet.await.unwrap(),
            clock,
            folder,
        }
    }

    /// Agents as the database would have them: `count` of them in `classes` classes.
    async fn of(count: usize, classes: usize) -> World {
        let world = World::new(FleetConfig::default()).await;
        let mut registry = world.fleet.inner.registry.lock();
        let agents = (0..count).map(|n| {
            let mut agent = Agent::new(Arc::from(format!("agent-{n:07}")), START);
            agent.class = Some(Arc::from(format!("class-{:03}", n % classes)));
            agent.hostname = Some(format!("host-{}", n % 1_000));
            agent
        });
        registry.adopt(crate::registry::News {
            agents: agents.collect(),
            ..crate::registry::News::default()
        });
        drop(registry);
        world
    }

    fn page(&self, filter: AgentFilter) -> (Vec<String>, Option<String>) {
        let page = self.fleet.agents(&filter);
        let ids = page.agents.into_iter().map(|agent| agent.id);
        (ids.collect(), page.next)
    }
}

fn filter(limit: usize) -> AgentFilter {
    AgentFilter {
        limit,
        ..AgentFilter::default()
    }
}

#[tokio::test]
async fn pages_follow_each_other_to_the_end() {
    let world = World::of(2_500, 5).await;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = world.page(AgentFilter {
            class: Some("class-003".to_owned()),
            after: after.clone(),
            ..filter(70)
        });
        assert!(page.0.len() <= 70);
        found.extend(page.0);
        after = page.1;
        if after.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = (0..2_500)
        .filter(|n| n % 5 == 3)
        .map(|n| format!("agent-{n:07}"))
        .collect();
    assert_eq!(found, wanted);
    assert_eq!(world.page(filter(10)).0.len(), 10);
    let all = world.page(filter(10_000));
    assert_eq!((all.0.len(), all.1), (2_500, None));
}

#[tokio::test]
async fn a_request_looks_at_a_bounded_number_and_the_next_one_goes_on() {
    let count = limits::LOOKED_AT_MAX + 10;
    let world = World::of(count, 1_000).await;
    let last = format!("agent-{:07}", count - 1);
    let search = |after: Option<String>| AgentFilter {
        search: Some(last.clone()),
        after,
        ..filter(10)
    };
    let (found, next) = world.page(search(None));
    let edge = format!("agent-{:07}", limits::LOOKED_AT_MAX - 1);
    assert_eq!((found.len(), next.as_ref()), (0, Some(&edge)));
    assert_eq!(world.page(search(next)), (vec![last], None));
    // A class is found by its own index, however many agents others have.
    let (found, next) = world.page(AgentFilter {
        class: Some("class-007".to_owned()),
        ..filter(10_000)
    });
    assert_eq!((found.len(), next), (count.div_ceil(1_000), None));
}

#[tokio::test]
async fn one_lock_looks_at_one_piece() {
    let world = World::of(3 * limits::LOOKED_AT_ONCE, 2).await;
    let inner = &world.fleet.inner;
    let registry = inner.registry.lock();
    let pieces = [None, Some("class-001")].map(|class| registry.piece(class, None).count());
    assert_eq!(pieces, [limits::LOOKED_AT_ONCE; 2]);
    drop(registry);
    let mut looked_at = 0;
    inner.each_agent(|_, _| looked_at += 1);
    assert_eq!(looked_at, 3 * limits::LOOKED_AT_ONCE);
    looked_at = 0;
    inner.each_agent_of("class-001", |_, _| looked_at += 1);
    assert_eq!(looked_at, 3 * limits::LOOKED_AT_ONCE / 2);
}

#[tokio::test]
async fn the_index_of_classes_follows_agents_that_move_and_go() {
    let world = World::of(3, 1).await;
    let reached = Reached {
        origin: "http://fleet".to_owned(),
        prefix: "/c2".to_owned(),
        certificate: None,
    };
    let of = |class: &str| {
        let class = Some(class.to_owned());
        world
            .page(AgentFilter {
                class,
                ..filter(10)
            })
            .0
    };
    let body = json!({"agentInfo": {"identifier": "agent-0000001", "agentClass": "other"}});
    let text = body.to_string();
    let beat = Heartbeat::parse(text.as_bytes()).unwrap();
    world
        .fleet
        .heartbeat(beat, text.as_bytes(), &reached)
        .await
        .unwrap();
    assert_eq!(of("class-000"), ["agent-0000000", "agent-0000002"]);
    assert_eq!(of("other"), ["agent-0000001"]);
    let mut registry = world.fleet.inner.registry.lock();
    registry.remove("agent-0000001");
    assert!(!registry.by_class.contains_key("other"));
    drop(registry);
    assert!(of("other").is_empty());
}

/// An agent that crashes five seconds after each start, for a week, with an error each time.
#[tokio::test]
async fn an_agent_that_crashes_for_a_week_stays_within_bounds() {
    let ages = [
        ("debug", 0),
        ("info", 3_600),
        ("warn", 24 * 3_600),
        ("error", 3_600),
    ];
    let ages = ages.map(|(level, seconds): (&str, u64)| {
        let age = HumanDuration(Duration::from_secs(seconds));
        (level.to_owned(), age)
    });
    let config = FleetConfig {
        events_max_age: ages.into(),
        write_behind: HumanDuration(Duration::from_millis(1)),
        ..FleetConfig::default()
    };
    let world = World::new(config).await;
    let inner = &world.fleet.inner;
    let reached = Reached {
        origin: "http://fleet".to_owned(),
        prefix: "/c2".to_owned(),
        certificate: None,
    };
    let beats = 7 * 24 * 3_600 / 5;
    let mut largest = 0;
    for number in 0..beats {
        world.clock.advance(Duration::from_secs(5));
        let bulletin = json!({"id": number, "timestamp": world.clock.now().0, "level": "ERROR",
            "message": format!("crash {number}")});
        let body = json!({
            "deviceInfo": {"identifier": "d", "networkInfo": {"hostname": "h"}},
            "agentInfo": {"identifier": "loop", "agentClass": "edge", "agentManifestHash": "h",
                "agentManifest": {"agentType": "cpp"}, "status": {"uptime": 1_000}},
            "flowInfo": {"flowId": null, "processorBulletins": [bulletin]},
        });
        let text = body.to_string();
        let beat = Heartbeat::parse(text.as_bytes()).unwrap();
        let sent = world.fleet.heartbeat(beat, text.as_bytes(), &reached).await;
        sent.unwrap();
        if number % 720 == 0 {
            inner.flush().await.unwrap();
            let fence = inner.lease.held().unwrap();
            inner.look(true);
            inner.sweep(None);
            inner.prune(fence).await;
            let all = EventFilter {
                limit: 10_000,
                ..EventFilter::default()
            };
            largest = largest.max(world.fleet.events(&all).await.unwrap().len());
        }
    }
    inner.flush().await.unwrap();
    // An hour of errors, one every five seconds, and what came since the last look.
    assert!((700..=2_200).contains(&largest), "{largest} events");
    let agent = inner.registry.lock().agents["loop"].clone();
    assert_eq!(agent.heartbeats, beats);
    assert!(agent.operations.len() <= limits::OPERATIONS_PER_AGENT_MAX);
    assert!(agent.kept_bytes() < 1_000);
    assert!(agent.duplicate(world.clock.now()).is_none(), "it is alone");
    world.fleet.close().await;
    let size = std::fs::metadata(world.folder.path().join("fleet.db")).unwrap();
    assert!(size.len() < 8 << 20, "{} bytes", size.len());
}

/// An agent that comes back every five seconds for a week and never runs its flow: it refuses it, or
/// dies of it without a word.
#[tokio::test]
async fn an_agent_that_never_gets_its_flow_going_leaves_few_operations_behind() {
    let config = FleetConfig {
        write_behind: HumanDuration(Duration::from_millis(1)),
        ..FleetConfig::default()
    };
    let world = World::new(config).await;
    let inner = &world.fleet.inner;
    let reached = Reached {
        origin: "http://fleet".to_owned(),
        prefix: "/c2".to_owned(),
        certificate: None,
    };
    let flow = "MiNiFi Config Version: 3\nProcessors:\n- {id: p, name: P, class: org.P}\n";
    let (mut handed_out, mut ids) = (0_u32, std::collections::BTreeSet::new());
    for number in 0..7 * 24 * 3_600 / 5_u32 {
        world.clock.advance(Duration::from_secs(5));
        if number % (24 * 720) == 0 {
            // A new version each day: what was given up is tried again.
            let text = bytes::Bytes::from(format!("{flow}# {number}\n"));
            world.fleet.publish("edge", text, true).await.unwrap();
        }
        let body = json!({
            "agentInfo": {"identifier": "loop", "agentClass": "edge", "agentManifestHash": "h",
                "agentManifest": {"agentType": "cpp"}, "status": {"uptime": 1_000}},
            "flowInfo": {"flowId": null},
        });
        let text = body.to_string();
        let beat = Heartbeat::parse(text.as_bytes()).unwrap();
        let sent = world.fleet.heartbeat(beat, text.as_bytes(), &reached).await;
        for operation in sent.unwrap().requested_operations {
            handed_out += 1;
            ids.insert(operation.identifier.clone());
            if handed_out % 2 == 0 {
                let refusal = c2::AckState::NotApplied;
                let ack = c2::Acknowledge::new(&operation.identifier, refusal);
                world.fleet.acknowledge(ack).await.unwrap();
            }
        }
        if number % 720 == 0 {
            inner.look(true);
            inner.sweep(None);
        }
    }
    inner.flush().await.unwrap();
    assert!(ids.len() >= 7, "each version is tried: {}", ids.len());
    let count = sql::Statement::new("SELECT COUNT(*) AS rows_there FROM operations");
    let row = inner.store.database().row("count operations", &count);
    let rows = row.await.unwrap().unwrap().number("rows_there").unwrap();
    let max = i64::try_from(limits::OPERATIONS_PER_AGENT_MAX).unwrap();
    assert!((1..=max).contains(&rows), "{rows} rows, {} ids", ids.len());
    world.fleet.close().await;
}

fn operations_of(count: usize) -> impl Iterator<Item = (Arc<str>, FleetOperation)> {
    (0..count).map(|n| {
        // Three of each time, so that their ids decide.
        let made = START + Duration::from_secs(n as u64 / 3);
        let operation = FleetOperation::new(
            Arc::from(format!("{n:08}-0000")),
            c2::OperationKind::Restart,
            c2::Operand::default(),
            None,
            made,
        );
        (Arc::from(format!("agent-{:07}", n % 2_500)), operation)
    })
}

#[tokio::test]
async fn operations_are_listed_newest_first_page_by_page_to_the_end() {
    let world = World::of(2_500, 5).await;
    let news = crate::registry::News {
        operations: operations_of(5_000).collect(),
        ..crate::registry::News::default()
    };
    world.fleet.inner.adopt(news);
    let page = |class: Option<&str>, after: Option<String>, limit: usize| {
        let filter = OperationFilter {
            class: class.map(str::to_owned),
            after: after.map(|word| Place::read(&word).unwrap()),
            limit,
            ..OperationFilter::default()
        };
        let page = world.fleet.operations(&filter).unwrap();
        let ids = page.operations.into_iter().map(|operation| operation.id);
        (ids.collect::<Vec<_>>(), page.next)
    };
    for (class, of_class) in [(None, None), (Some("class-003"), Some(3))] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (some, next) = page(class, after, 700);
            assert!(some.len() <= 700);
            found.extend(some);
            after = next;
            if after.is_none() {
                break;
            }
        }
        let wanted: Vec<String> = (0..5_000_usize)
            .rev()
            .filter(|n| of_class.is_none_or(|class| n % 5 == class))
            .map(|n| format!("{n:08}-0000"))
            .collect();
        assert_eq!(found, wanted);
    }
    let (all, next) = page(None, None, 5_000);
    assert_eq!((all.len(), next), (5_000, None));
}

#[tokio::test]
async fn old_requests_make_room_but_not_those_that_agents_are_at() {
    let world = World::of(3, 1).await;
    let inner = &world.fleet.inner;
    let request = |id: String| {
        let body = br#"{"operation": "RESTART"}"#;
        let target = crate::request::Target::Class("class-000".to_owned());
        let mut request = crate::request::Request::parse(body, target, START).unwrap();
        request.id = Arc::from(id);
        Arc::new(request)
    };
    {
        let mut registry = inner.registry.lock();
        for n in 0..limits::REQUESTS_MAX {
            registry.keep_request(request(format!("r{n}")));
        }
    }
    let (agent, mut operation) = operations_of(1).next().unwrap();
    operation.request = Some(Arc::from("r7"));
    inner.adopt(crate::registry::News {
        operations: vec![(agent, operation)],
        ..crate::registry::News::default()
    });
    world.clock.advance(Duration::from_secs(61));
    let gone = inner.begin_request(&request("new".to_owned())).unwrap();
    assert_eq!(gone.len(), limits::REQUESTS_MAX / 10);
    let registry = inner.registry.lock();
    assert!(registry.requests.contains_key("r7"), "an agent is at it");
    assert!(registry.requests.contains_key("new"));
}
