//! Checks of the registry: presence, classes, drift and hand-outs, with time as an argument.

use std::time::Duration;

use c2::{AckState, Acknowledge, AgentInfo, FlowInfo, OperationKind, RawJson};
use uuid::Uuid;

use super::acknowledge::AckResult;
use super::*;
use crate::agent::FlowState;
use crate::manifest::{Known, brought};
use crate::operation::{FleetOperation, OperationStatus};
use crate::request::{Request, Target};

#[path = "registry_beat_tests.rs"]
mod beat;
#[path = "registry_manifest_tests.rs"]
mod manifests;
#[path = "registry_places_tests.rs"]
mod places;
#[path = "registry_property_tests.rs"]
mod property;

const POLICY: Policy = Policy {
    resend_after: Duration::from_secs(60),
    failed_after_attempts: 3,
    queued_timeout: Duration::from_secs(300),
    deployed_timeout: Duration::from_secs(300),
    describe_timeout: Duration::from_secs(90),
    certificate_warning: Duration::ZERO,
};

/// A registry with a store that always succeeds, and a clock.
struct World {
    registry: Registry,
    now: i64,
}

/// Of a heartbeat that came without a certificate.
fn source(text: &[u8]) -> Source<'_> {
    Source {
        text,
        certificate: None,
    }
}

impl World {
    fn new() -> World {
        World {
            registry: Registry::default(),
            now: 1_000,
        }
    }

    fn at(&self) -> UnixMillis {
        UnixMillis(self.now * 1_000)
    }

    fn pass(&mut self, seconds: i64) {
        self.now += seconds;
        self.registry.sweep(None, self.at(), &POLICY);
    }

    fn store(&mut self) {
        let batch = self.registry.take_batch();
        self.registry.committed(&batch);
    }

    fn publish(&mut self, class: &str, id: &str) {
        let flow = Flow {
            id: Arc::from(id),
            class: Arc::from(class),
            version: 1,
            shape: FlowShape::Yaml,
            sha256: String::new(),
            bytes: 0,
            created: self.at(),
        };
        self.registry.publish(flow);
    }

    /// One heartbeat with its response.
    fn beat(&mut self, agent: &str, flow: Option<&str>) -> Vec<Handout> {
        self.beat_with(heartbeat(agent, flow))
    }

    fn beat_with(&mut self, heartbeat: Heartbeat) -> Vec<Handout> {
        let known = |by: Known<'_>| self.registry.known_manifest(None, by);
        let manifest = brought(heartbeat.agent_info.as_ref(), known);
        let text = heartbeat.to_vec().unwrap();
        let (now, registry) = (self.at(), &mut self.registry);
        let taken = registry
            .heartbeat(now, &POLICY, heartbeat, source(&text), manifest)
            .unwrap();
        if taken.wait_for.is_some() {
            self.store();
        }
        let agent = taken.agent.unwrap();
        self.registry.hand_out(self.at(), &POLICY, &agent).0
    }

    fn ack(&mut self, operation: &str, state: AckState) -> AckResult {
        let ack = Acknowledge::new(operation, state);
        self.registry.acknowledge(self.at(), &ack, None).unwrap().1
    }

    fn agent(&self, id: &str) -> &Agent {
        &self.registry.agents[id]
    }

    fn room_for_request(&mut self) -> Result<Vec<Arc<str>>, FleetError> {
        let operations = self.registry.agents.values().flat_map(|a| &a.operations);
        let open = operations.filter(|op| op.is_open());
        let needed = open.filter_map(|op| op.request.clone()).collect();
        self.registry.room_for_request(self.at(), &needed)
    }

    fn last_operation(&self, agent: &str) -> &FleetOperation {
        self.agent(agent).operations.back().unwrap()
    }
}

fn heartbeat(agent: &str, flow: Option<&str>) -> Heartbeat {
    Heartbeat {
        agent_info: Some(AgentInfo {
            identifier: Some(agent.to_owned()),
            agent_class: Some("edge".to_owned()),
            agent_manifest_hash: Some("hash".to_owned()),
            ..AgentInfo::default()
        }),
        flow_info: Some(FlowInfo {
            flow_id: flow.map(str::to_owned),
            ..FlowInfo::default()
        }),
        ..Heartbeat::default()
    }
}

/// A world whose agents' manifest is known, so that no DESCRIBE gets in the way.
fn described() -> World {
    let mut world = World::new();
    let mut first = heartbeat("first", None);
    let text = r#"{"agentType":"minifi-java","version":"1.18.0","bundles":[]}"#.to_owned();
    first.agent_info.as_mut().unwrap().agent_manifest = Some(RawJson::parse(text).unwrap());
    assert!(world.beat_with(first).is_empty());
    world
}

#[test]
fn one_agent_of_many_is_asked_to_describe_an_unknown_manifest() {
    let mut world = World::new();
    let asked: Vec<Handout> = (0..50)
        .flat_map(|n| world.beat(&format!("a{n}"), None))
        .collect();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].kind, OperationKind::Describe);
    // The one that was asked dies; another one is asked in its place.
    world.pass(90);
    let again: Vec<Handout> = (1..50)
        .flat_map(|n| world.beat(&format!("a{n}"), None))
        .collect();
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].id, asked[0].id);
}

#[test]
fn a_described_manifest_is_kept_once_and_asked_for_no_more() {
    let mut world = World::new();
    let asked = world.beat("a", None).remove(0);
    let mut ack = Acknowledge::new(&asked.id, AckState::FullyApplied);
    let text = r#"{"agentType":"cpp","bundles":{"artifact":"x"}}"#.to_owned();
    ack.agent_info = heartbeat("a", None).agent_info;
    ack.agent_info.as_mut().unwrap().agent_manifest = Some(RawJson::parse(text).unwrap());
    let manifest = brought(ack.agent_info.as_ref(), |_| None);
    let (taken, result) = world
        .registry
        .acknowledge(world.at(), &ack, manifest)
        .unwrap();
    assert!(
        taken.wait_for.is_some(),
        "a manifest must be durable before its acknowledge is"
    );
    assert_eq!(result, AckResult::Decided);
    let batch = world.registry.take_batch();
    assert_eq!(batch.manifests.len(), 1);
    world.registry.committed(&batch);
    assert!(world.beat("a", None).is_empty());
    assert!(world.beat("b", None).is_empty());
    let again = brought(ack.agent_info.as_ref(), |by| {
        world.registry.known_manifest(None, by)
    });
    assert!(again.unwrap().new.is_none());
}

#[test]
fn agents_without_a_hash_describe_themselves_once() {
    let mut world = World::new();
    let mut beat = heartbeat("a", None);
    beat.agent_info.as_mut().unwrap().agent_manifest_hash = None;
    let asked = world.beat_with(beat.clone()).remove(0);
    let mut ack = Acknowledge::new(&asked.id, AckState::FullyApplied);
    let mut info = beat.agent_info.clone().unwrap();
    info.agent_manifest = Some(RawJson::parse("{\"agentType\":\"own\"}".to_owned()).unwrap());
    ack.agent_info = Some(info);
    let manifest = brought(ack.agent_info.as_ref(), |_| None);
    world
        .registry
        .acknowledge(world.at(), &ack, manifest)
        .unwrap();
    assert!(world.beat_with(beat).is_empty());
    assert!(
        world
            .agent("a")
            .manifest
            .as_ref()
            .unwrap()
            .starts_with("m1-")
    );
}

#[test]
fn a_flow_reaches_each_agent_of_its_class_once() {
    let mut world = described();
    world.publish("edge", "f1");
    let sent = world.beat("first", None);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].flow.as_deref(), Some("f1"));
    assert!(world.beat("first", None).is_empty());
    assert_eq!(
        world.ack(&sent[0].id, AckState::FullyApplied),
        AckResult::Decided
    );
    for _ in 0..50 {
        world.pass(30);
        assert!(world.beat("first", Some("f1")).is_empty());
    }
    let first = world.agent("first");
    assert_eq!(first.operations.len(), 1);
    assert_eq!(first.operations[0].status, OperationStatus::Done);
    assert_eq!(first.flow_state(Some("f1"), &POLICY), FlowState::Deployed);
}

#[test]
fn a_lost_response_keeps_its_id() {
    let mut world = described();
    world.publish("edge", "f1");
    let sent = world.beat("first", None).remove(0);
    world.pass(60);
    let again = world.beat("first", None).remove(0);
    assert_eq!(again.id, sent.id);
    // The agent goes away for hours; the operation times out; it comes back.
    world.pass(10_000);
    assert_eq!(
        world.last_operation("first").status,
        OperationStatus::TimedOut
    );
    let back = world.beat("first", None).remove(0);
    assert_eq!(back.id, sent.id);
    assert_eq!(world.agent("first").operations.len(), 1);
}

#[test]
fn a_lost_acknowledge_is_seen_by_the_flow_and_recorded() {
    let mut world = described();
    world.publish("edge", "f1");
    let sent = world.beat("first", None).remove(0);
    world.pass(30);
    assert!(world.beat("first", Some("f1")).is_empty());
    let operation = world.last_operation("first");
    assert_eq!(
        (operation.status, operation.acknowledged),
        (OperationStatus::Done, false)
    );
    assert_eq!(
        world.ack(&sent.id, AckState::FullyApplied),
        AckResult::Decided
    );
    assert!(world.last_operation("first").acknowledged);
}

#[test]
fn duplicate_late_and_foreign_acknowledges_do_no_harm() {
    let mut world = described();
    world.publish("edge", "f1");
    let sent = world.beat("first", None).remove(0);
    let mut foreign = Acknowledge::new(&sent.id, AckState::NotApplied);
    foreign.agent_info = heartbeat("other", None).agent_info;
    let (_, result) = world
        .registry
        .acknowledge(world.at(), &foreign, None)
        .unwrap();
    assert_eq!(result, AckResult::Foreign);
    assert_eq!(
        world.last_operation("first").status,
        OperationStatus::Deployed
    );
    assert_eq!(
        world.ack("nobody's", AckState::FullyApplied),
        AckResult::Unknown
    );
    world.pass(400);
    assert_eq!(world.ack(&sent.id, AckState::FullyApplied), AckResult::Late);
    assert_eq!(
        world.ack(&sent.id, AckState::NotApplied),
        AckResult::Duplicate
    );
    assert_eq!(world.last_operation("first").status, OperationStatus::Done);
}

#[test]
fn a_flow_that_failed_is_tried_again_but_not_for_ever() {
    let mut world = described();
    world.publish("edge", "f1");
    let sent = world.beat("first", Some("old")).remove(0);
    world.ack(&sent.id, AckState::NotApplied);
    let mut tries = Vec::new();
    for minute in 1..=30 {
        world.pass(59);
        assert!(world.beat("first", Some("old")).is_empty());
        world.pass(1);
        for again in world.beat("first", Some("old")) {
            let state = world.agent("first").flow_state(Some("f1"), &POLICY);
            assert_eq!(state, FlowState::Failed, "under way once more");
            assert_ne!(again.id, sent.id);
            world.ack(&again.id, AckState::NotApplied);
            tries.push(minute);
        }
    }
    assert_eq!(tries, [1, 3]);
    assert_eq!(
        world.agent("first").flow_state(Some("f1"), &POLICY),
        FlowState::Failed
    );
    world.publish("edge", "f2");
    assert_eq!(
        world.beat("first", Some("old"))[0].flow.as_deref(),
        Some("f2")
    );
}

/// As Java agents before 2.0 do: they keep a flow's name before they try to take it.
#[test]
fn a_flow_that_an_agent_refused_is_not_deployed_because_it_reports_it() {
    let mut world = described();
    world.publish("edge", "f1");
    let sent = world.beat("first", Some("old")).remove(0);
    world.ack(&sent.id, AckState::NotApplied);
    world.pass(600);
    assert!(world.beat("first", Some("f1")).is_empty());
    assert_eq!(
        world.agent("first").flow_state(Some("f1"), &POLICY),
        FlowState::Failed
    );
}

#[test]
fn the_oldest_requests_make_room_once_their_operations_are_over() {
    let mut world = described();
    let ask = |world: &mut World| {
        let body = br#"{"operation": "DESCRIBE", "operand": "manifest"}"#;
        let target = Target::Agent("first".to_owned());
        let request = Arc::new(Request::parse(body, target, world.at()).unwrap());
        world.registry.keep_request(request.clone());
        request
    };
    let request = ask(&mut world);
    let (open, _) = world.registry.ask(world.at(), "first", &request).unwrap();
    world.now += 1;
    for _ in 1..limits::REQUESTS_MAX {
        ask(&mut world);
    }
    let full = world.room_for_request();
    assert!(matches!(full, Err(FleetError::Full { .. })), "all are new");
    world.now += 61;
    let gone = world.room_for_request().unwrap();
    assert_eq!(gone.len(), limits::REQUESTS_MAX / 10);
    assert!(!gone.contains(&request.id), "its operation is open");
    world.ack(&open, AckState::FullyApplied);
    for _ in 0..gone.len() {
        ask(&mut world);
    }
    world.now += 61;
    let gone = world.room_for_request().unwrap();
    assert!(gone.contains(&request.id));
}

#[test]
fn a_newer_flow_takes_the_place_of_one_under_way() {
    let mut world = described();
    world.publish("edge", "f1");
    let old = world.beat("first", None).remove(0);
    world.publish("edge", "f2");
    let new = world.beat("first", None);
    assert_eq!(new.len(), 1, "only the new one is handed out");
    assert_eq!(new[0].flow.as_deref(), Some("f2"));
    assert_eq!(
        world.agent("first").operations[0].status,
        OperationStatus::Cancelled
    );
    assert_eq!(world.ack(&old.id, AckState::FullyApplied), AckResult::Late);
    world.pass(400);
    let again = world.beat("first", Some("f1"));
    assert_eq!(
        (again.len(), &again[0].id),
        (1, &new[0].id),
        "the old one is never sent again"
    );
}

#[test]
fn an_agent_that_falls_back_gets_its_flow_again_but_not_for_ever() {
    let mut world = described();
    world.publish("edge", "f1");
    let mut sent = 0;
    for _ in 0..100 {
        for handout in world.beat("first", Some("own")) {
            sent += 1;
            world.ack(&handout.id, AckState::FullyApplied);
        }
        world.pass(60);
    }
    assert_eq!(sent, POLICY.failed_after_attempts);
}

#[test]
fn an_agent_without_a_class_is_parked() {
    let mut world = described();
    world.publish("edge", "f1");
    let mut beat = heartbeat("stray", None);
    beat.agent_info.as_mut().unwrap().agent_class = None;
    assert!(world.beat_with(beat).is_empty());
    assert_eq!(world.agent("stray").class, None);
    assert_eq!(world.registry.classes.len(), 1);
}

#[test]
fn an_absent_section_means_unchanged() {
    let mut world = described();
    world.beat("first", Some("f0"));
    let mut beat = heartbeat("first", None);
    beat.flow_info = None;
    world.beat_with(beat);
    assert_eq!(world.agent("first").flow.as_deref(), Some("f0"));
    let kept = world.agent("first").last.as_ref().unwrap().read().unwrap();
    assert_eq!(
        kept.flow_info.as_ref().unwrap().flow_id.as_deref(),
        Some("f0")
    );
}

#[test]
fn an_agent_that_cannot_take_a_flow_is_told_apart_at_once() {
    let mut world = World::new();
    let mut first = heartbeat("first", None);
    let text = r#"{"agentType":"minifi-java","version":"2.3.0",
        "supportedOperations":[{"type":"DESCRIBE","properties":{"MANIFEST":{}}}]}"#;
    let raw = RawJson::parse(text.to_owned()).unwrap();
    first.agent_info.as_mut().unwrap().agent_manifest = Some(raw);
    world.beat_with(first);
    world.publish("edge", "f1");
    assert!(world.beat("first", None).is_empty());
    let operation = world.last_operation("first");
    assert_eq!(operation.status, OperationStatus::Failed);
    assert!(
        operation
            .details
            .contains("does not list UPDATE configuration")
    );
}

#[test]
fn history_and_names_are_bounded() {
    let mut world = described();
    for n in 0..100 {
        world.publish("edge", &format!("f{n}"));
        world.beat("first", None);
    }
    assert_eq!(
        world.agent("first").operations.len(),
        limits::OPERATIONS_PER_AGENT_MAX
    );
    let owned = world.registry.owners.len();
    assert_eq!(owned, limits::OPERATIONS_PER_AGENT_MAX);
    for bad in ["", "a\nb", &"x".repeat(256)] {
        let beat = heartbeat(bad, None);
        let (now, registry) = (world.at(), &mut world.registry);
        assert!(
            registry
                .heartbeat(now, &POLICY, beat, source(b"{}"), None)
                .is_err(),
            "{bad:?}"
        );
    }
}

#[test]
fn a_batch_that_could_not_be_written_is_written_later() {
    let mut world = described();
    world.publish("edge", "f1");
    let (now, registry) = (world.at(), &mut world.registry);
    let taken = registry
        .heartbeat(now, &POLICY, heartbeat("first", None), source(b"{}"), None)
        .unwrap();
    assert!(taken.wait_for.is_some());
    let batch = registry.take_batch();
    registry.put_back(batch);
    assert!(
        registry.hand_out(now, &POLICY, "first").0.is_empty(),
        "it is not durable"
    );
    assert!(registry.is_dirty());
    let batch = registry.take_batch();
    assert!(batch.generation > taken.wait_for.unwrap());
    assert_eq!(batch.operations.len(), 1);
    registry.committed(&batch);
    assert_eq!(registry.hand_out(now, &POLICY, "first").0.len(), 1);
}

/// Random losses, duplicates, restarts from what was stored, and publications: every agent ends
/// with the last flow, and no flow is ever sent to an agent under two ids.
#[test]
fn agents_converge_whatever_is_lost() {
    for seed in 0..200 {
        let mut rng = base::Rng::from_seed(seed);
        let mut world = described();
        let mut flows = 0;
        let mut running: HashMap<String, Option<String>> =
            (0..5).map(|n| (format!("a{n}"), None)).collect();
        let mut ids: HashMap<(String, String), Arc<str>> = HashMap::new();
        for step in 0..400 {
            if step < 300 && rng.one_in(100) || step == 0 {
                flows += 1;
                world.publish("edge", &format!("f{flows}"));
            }
            let name = format!("a{}", rng.below(5));
            let flow = running[&name].clone();
            for handout in world.beat(&name, flow.as_deref()) {
                let flow = handout.flow.as_deref().unwrap().to_owned();
                let id = ids
                    .entry((name.clone(), flow.clone()))
                    .or_insert(handout.id.clone());
                assert_eq!(
                    *id, handout.id,
                    "seed {seed}: {flow} went to {name} under two ids"
                );
                if step < 300 && rng.one_in(3) {
                    continue; // The response was lost.
                }
                let again = running.insert(name.clone(), Some(flow.clone()));
                let state = if again.flatten().as_deref() == Some(&*flow) {
                    AckState::NoOperation
                } else {
                    AckState::FullyApplied
                };
                if !rng.one_in(3) {
                    world.ack(&handout.id, state);
                }
            }
            // Once nothing is lost any more, the longest wait must pass too.
            let seconds_max = if step < 300 { 60 } else { 2_000 };
            world.pass(i64::try_from(rng.below(seconds_max)).unwrap());
        }
        let last = format!("f{flows}");
        for (name, flow) in running {
            assert_eq!(flow.as_deref(), Some(&*last), "seed {seed}: {name}");
        }
    }
}
