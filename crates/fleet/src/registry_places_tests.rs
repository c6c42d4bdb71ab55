//! Checks of how many agents are at an operation together.

use c2::Glance;

use super::*;
use crate::kept::Kept;
use crate::operation::Group;
use crate::resource::ResourceSet;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A world of agents that upload bundles and fetch resources.
fn uploading() -> World {
    let mut world = World::new();
    let text = r#"{"agentType":"minifi-java","version":"2.3.0","bundles":[],"supportedOperations":[
        {"type":"TRANSFER","properties":{"DEBUG":{}}},{"type":"SYNC","properties":{"RESOURCE":{}}}]}"#;
    let mut first = heartbeat(NAMES[0], None);
    first.agent_info.as_mut().unwrap().agent_manifest =
        Some(RawJson::parse(text.to_owned()).unwrap());
    world.beat_with(first);
    for name in NAMES {
        assert!(world.beat(name, None).is_empty());
    }
    world
}

impl World {
    /// Asks the class for bundles.
    fn ask_all(&mut self, at_once: u32) -> Arc<Request> {
        let body = format!(r#"{{"operation":"TRANSFER","operand":"debug","at_once":{at_once}}}"#);
        let target = Target::Class("edge".to_owned());
        let request = Request::parse(body.as_bytes(), target, self.at()).unwrap();
        let request = Arc::new(request);
        self.registry.keep_request(request.clone());
        for name in NAMES {
            let (now, registry) = (self.at(), &mut self.registry);
            registry.ask(now, name, &request).unwrap();
        }
        self.store();
        request
    }

    /// Who gets an operation when all call.
    fn served(&mut self) -> Vec<(&'static str, Handout)> {
        let mut served = Vec::new();
        for name in NAMES {
            let handouts = self.beat(name, None);
            served.extend(handouts.into_iter().map(|handout| (name, handout)));
        }
        self.store();
        served
    }

    fn at_it(&self) -> usize {
        let agents = self.registry.agents.values();
        let operations = agents.flat_map(|agent| &agent.operations);
        let at_it = operations.filter(|op| op.status == OperationStatus::Deployed);
        at_it.count()
    }
}

fn names(served: &[(&'static str, Handout)]) -> Vec<&'static str> {
    served.iter().map(|(name, _)| *name).collect()
}

#[test]
fn so_many_are_at_it_together_and_whoever_is_done_makes_room() {
    let mut world = uploading();
    let request = world.ask_all(2);
    let first = world.served();
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first.iter().all(|(_, handout)| handout.takes_place));
    world.pass(10);
    assert!(world.served().is_empty(), "it is full");
    // Done, and failed.
    world.ack(&first[0].1.id, AckState::FullyApplied);
    let second = world.served();
    assert_eq!(names(&second), ["c"]);
    world.ack(&first[1].1.id, AckState::NotApplied);
    assert_eq!(names(&world.served()), ["d"]);
    assert_eq!(world.at_it(), 2);
    // Given up, and away for good.
    let now = world.at();
    world.registry.cancel(now, &second[0].1.id).unwrap();
    assert_eq!(names(&world.served()), ["e"]);
    world.registry.remove("d");
    let last = world.served();
    assert_eq!(names(&last), ["f"]);
    // Not heard of in time.
    world.pass(301);
    assert_eq!(world.at_it(), 0);
    let group = Group::Request(request.id.clone());
    assert_eq!(world.registry.places.taken(&group), 0);
}

#[test]
fn what_is_sent_again_keeps_its_place_and_takes_no_other() {
    let mut world = uploading();
    world.ask_all(1);
    assert_eq!(names(&world.served()), ["a"]);
    world.pass(61);
    let again = world.served();
    assert_eq!(names(&again), ["a"]);
    assert!(!again[0].1.takes_place);
    assert_eq!(world.at_it(), 1);
}

#[test]
fn who_waits_for_a_place_times_out_only_when_it_is_away() {
    let mut world = uploading();
    let request = world.ask_all(1);
    assert_eq!(names(&world.served()), ["a"]);
    for _ in 0..9 {
        world.pass(100);
        for name in NAMES.iter().filter(|name| **name != "b") {
            world.beat(name, None);
        }
        world.store();
    }
    let states = NAMES.map(|name| world.last_operation(name).status);
    assert_eq!(states[0], OperationStatus::TimedOut, "it never answered");
    assert_eq!(states[1], OperationStatus::TimedOut, "it never called");
    let at_it = |state: &&OperationStatus| **state == OperationStatus::Deployed;
    assert_eq!(states.iter().filter(at_it).count(), 1, "{states:?}");
    let waits = |state: &&OperationStatus| **state == OperationStatus::Queued;
    assert_eq!(states.iter().filter(waits).count(), 3, "{states:?}");
    let group = Group::Request(request.id.clone());
    assert_eq!(world.registry.places.taken(&group), 1);
}

#[test]
fn who_waits_for_a_place_is_heard_at_a_glance() {
    let mut world = uploading();
    world.ask_all(1);
    assert_eq!(names(&world.served()), ["a"]);
    let glance_of = |world: &mut World, name: &str| {
        let text = heartbeat(name, None).to_vec().unwrap();
        let glance = Glance::at(&text).unwrap();
        let (now, registry) = (world.at(), &mut world.registry);
        let kept = Kept::at_a_glance(&glance, &text, &registry.samples);
        registry.beat(now, &POLICY, &glance, None, kept).is_some()
    };
    world.pass(10);
    assert!(!glance_of(&mut world, "a"), "it may have to hear it again");
    assert!(glance_of(&mut world, "b"), "there is nothing for it yet");
    let operation = world.last_operation("a").id.clone();
    world.ack(&operation, AckState::FullyApplied);
    assert!(!glance_of(&mut world, "b"), "it is its turn");
    assert!(glance_of(&mut world, "a"), "it is done");
    // So is one that timed out, from then on.
    assert_eq!(names(&world.served()), ["b"]);
    world.pass(301);
    assert_eq!(world.last_operation("b").status, OperationStatus::TimedOut);
    assert!(glance_of(&mut world, "b"));
}

#[test]
fn the_resources_of_a_class_are_fetched_by_so_many_at_once_whoever_asked() {
    let mut world = uploading();
    let set = ResourceSet {
        digest: Arc::from("digest"),
        items: Vec::new(),
        at_once: 2,
    };
    let class: Arc<str> = Arc::from("edge");
    let sets = &mut world.registry.resource_sets;
    sets.insert(class.clone(), Arc::new(set.clone()));
    let tell = |name: &str, hash: Option<&str>| {
        let mut beat = heartbeat(name, None);
        beat.resource_info = Some(c2::ResourceInfo {
            hash: hash.map(str::to_owned),
            ..c2::ResourceInfo::default()
        });
        beat
    };
    let mut fetching = Vec::new();
    for name in NAMES {
        let handouts = world.beat_with(tell(name, Some("other")));
        fetching.extend(handouts.iter().map(|_| name));
    }
    assert_eq!(fetching, ["a", "b"]);
    // It has them, whether it says so or not.
    assert!(world.beat_with(tell("a", Some("digest"))).is_empty());
    assert_eq!(world.beat_with(tell("c", Some("other"))).len(), 1);
    // More may, from now on.
    let more = ResourceSet { at_once: 0, ..set };
    let sets = &mut world.registry.resource_sets;
    sets.insert(class, Arc::new(more));
    for name in ["d", "e", "f"] {
        assert_eq!(world.beat_with(tell(name, Some("other"))).len(), 1);
    }
}

#[test]
fn places_are_counted_anew_from_what_is_stored() {
    let mut world = uploading();
    let request = world.ask_all(2);
    let first = world.served();
    assert_eq!(first.len(), 2);
    let agents: Vec<Agent> = world.registry.agents.values().cloned().collect();
    let mut after = World::new();
    after.registry.keep_request(request.clone());
    let operations = agents.iter().flat_map(|agent| {
        let of_agent = agent.operations.iter();
        of_agent.map(|operation| (agent.id.clone(), operation.clone()))
    });
    let operations = operations.collect();
    after.registry.adopt(News {
        manifests: world.registry.manifests.clone().into_iter().collect(),
        agents: agents
            .iter()
            .map(|agent| Agent {
                operations: std::collections::VecDeque::new(),
                ..agent.clone()
            })
            .collect(),
        operations,
        ..News::default()
    });
    after.now = world.now + 10;
    let group = Group::Request(request.id.clone());
    assert_eq!(after.registry.places.taken(&group), 2);
    assert!(after.served().is_empty());
    after.ack(&first[0].1.id, AckState::FullyApplied);
    assert_eq!(names(&after.served()), ["c"]);
}

#[test]
fn a_place_that_another_node_gave_away_is_given_back() {
    let mut world = uploading();
    let request = world.ask_all(2);
    let handed = world.beat("a", None);
    assert_eq!(handed.len(), 1);
    let batch = world.registry.take_batch();
    assert_eq!(batch.place_claims.len(), 1);
    assert!(world.registry.is_handed_out(&handed[0].id));
    world.registry.give_places_back(&batch.place_claims);
    world.registry.committed(&batch);
    assert!(!world.registry.is_handed_out(&handed[0].id));
    let operation = world.last_operation("a");
    assert_eq!(
        (operation.status, operation.attempts, operation.handed_out),
        (OperationStatus::Queued, 0, None)
    );
    let group = Group::Request(request.id.clone());
    assert_eq!(world.registry.places.taken(&group), 0);
    // It is handed out when there is room again.
    assert_eq!(world.beat("a", None).len(), 1);
    // What could not be written is claimed again.
    let batch = world.registry.take_batch();
    world.registry.put_back(batch);
    assert_eq!(world.registry.take_batch().place_claims.len(), 1);
}

#[test]
fn one_look_for_time_outs_takes_a_piece() {
    let mut world = described();
    let count = limits::LOOKED_AT_ONCE + 10;
    let body = br#"{"operation": "DESCRIBE", "operand": "manifest"}"#;
    for n in 0..count {
        let name = format!("n{n}");
        world.beat(&name, None);
        let target = Target::Agent(name.clone());
        let request = Arc::new(Request::parse(body, target, world.at()).unwrap());
        let (now, registry) = (world.at(), &mut world.registry);
        registry.ask(now, &name, &request).unwrap();
    }
    world.now += 1_000;
    let swept = world.registry.sweep(None, world.at(), &POLICY);
    assert_eq!(swept.expired, limits::LOOKED_AT_ONCE);
    let after = swept.next.unwrap();
    let swept = world.registry.sweep(Some(&after), world.at(), &POLICY);
    assert_eq!((swept.expired, swept.next), (10, None));
}

#[test]
fn news_come_in_pieces_of_which_none_is_lost() {
    let count = 2 * limits::LOOKED_AT_ONCE + 10;
    let agents = (0..count).map(|n| Agent::new(Arc::from(format!("n{n}")), UnixMillis(0)));
    let news = News {
        agents: agents.collect(),
        removed: vec![Arc::from("gone")],
        ..News::default()
    };
    let pieces: Vec<News> = news.pieces().collect();
    let sizes: Vec<usize> = pieces.iter().map(|piece| piece.agents.len()).collect();
    assert_eq!(
        sizes,
        [0, limits::LOOKED_AT_ONCE, limits::LOOKED_AT_ONCE, 10]
    );
    assert_eq!(pieces[0].removed.len(), 1);
}
