//! Checks of agents whose manifest's hash is their own, and of what one agent may bring.

use super::*;

/// What a C++ agent says of itself: its identifier is among its properties' values.
fn manifest_of(agent: &str, build: &str) -> RawJson {
    let text = format!(
        r#"{{"agentType":"cpp","buildInfo":{{"version":"{build}"}},"bundles":[],
        "supportedOperations":[{{"type":"describe","properties":{{"manifest":{{}}}}}},
        {{"type":"start","properties":{{"c2":{{}},"{}":{{}}}}}},
        {{"type":"update","properties":{{"configuration":{{}},"properties":{{"availableProperties":
        [{{"propertyName":"nifi.c2.agent.identifier","propertyValue":"{agent}"}}]}}}}}}]}}"#,
        Uuid::new_v4()
    );
    RawJson::parse(text).unwrap()
}

fn light(agent: &str, hash: &str, flow: Option<&str>) -> Heartbeat {
    let mut beat = heartbeat(agent, flow);
    beat.agent_info.as_mut().unwrap().agent_manifest_hash = Some(hash.to_owned());
    beat
}

fn full(agent: &str, hash: &str, build: &str) -> Heartbeat {
    let mut beat = light(agent, hash, None);
    beat.agent_info.as_mut().unwrap().agent_manifest = Some(manifest_of(agent, build));
    beat
}

impl World {
    /// The agent's answer to a DESCRIBE, with the hash that it has now.
    fn describe(&mut self, handout: &Handout, agent: &str, hash: &str, build: &str) {
        let mut ack = Acknowledge::new(&handout.id, AckState::FullyApplied);
        ack.agent_info = full(agent, hash, build).agent_info;
        let manifest = brought(ack.agent_info.as_ref(), |by| {
            self.registry.known_manifest(None, by)
        });
        let now = self.at();
        self.registry.acknowledge(now, &ack, manifest).unwrap();
        self.store();
    }

    fn rows(&mut self) -> usize {
        let batch = self.registry.take_batch();
        self.registry.committed(&batch);
        batch.manifests.len()
    }
}

#[test]
fn agents_of_one_build_have_one_manifest_whatever_their_hashes() {
    let mut world = World::new();
    let mut rows = 0;
    for n in 0..20 {
        let (agent, hash) = (format!("a{n}"), format!("hash-{n}"));
        let asked = world.beat_with(light(&agent, &hash, None)).remove(0);
        assert_eq!(asked.kind, OperationKind::Describe);
        let mut ack = Acknowledge::new(&asked.id, AckState::FullyApplied);
        ack.agent_info = full(&agent, &hash, "1").agent_info;
        let manifest = brought(ack.agent_info.as_ref(), |by| {
            world.registry.known_manifest(None, by)
        });
        rows += usize::from(manifest.as_ref().unwrap().new.is_some());
        let now = world.at();
        world.registry.acknowledge(now, &ack, manifest).unwrap();
        rows += world.rows() * 100;
        assert!(world.beat_with(light(&agent, &hash, None)).is_empty());
    }
    assert_eq!(rows, 101, "one is made ready and one is stored");
    assert_eq!(world.registry.classes["edge"].seen.len(), 1);
    let keys: BTreeSet<_> = world
        .registry
        .agents
        .values()
        .map(|a| a.manifest.clone())
        .collect();
    assert_eq!(keys.len(), 1);
}

#[test]
fn a_full_shelf_fails_no_heartbeat_and_no_answer() {
    let mut world = World::new();
    for n in 0..limits::MANIFESTS_MAX {
        let key: Arc<str> = Arc::from(format!("m1-{n}"));
        world.registry.manifests.insert(key, Arc::default());
    }
    for n in 0..3 {
        world.beat_with(full(
            &format!("f{n}"),
            &format!("own-{n}"),
            &format!("b{n}"),
        ));
    }
    // It is asked, and its answer settles what was asked.
    let asked = world.beat_with(light("l", "own", None)).remove(0);
    world.describe(&asked, "l", "own", "2");
    assert_eq!(world.last_operation("l").status, OperationStatus::Done);
    assert_eq!(world.registry.manifests.len(), limits::MANIFESTS_MAX);
    assert!(
        world
            .registry
            .agents
            .values()
            .all(|agent| agent.manifest.is_none())
    );
    // And it gets its flow all the same.
    world.publish("edge", "f1");
    let sent = world.beat_with(light("l", "own", None));
    assert_eq!(sent[0].flow.as_deref(), Some("f1"));
}

#[test]
fn a_hash_that_answers_never_say_is_asked_for_once() {
    let mut world = World::new();
    let asked = world.beat_with(light("a", "before", None)).remove(0);
    world.describe(&asked, "a", "after", "1");
    for _ in 0..10 {
        world.pass(30);
        assert!(world.beat_with(light("a", "before", None)).is_empty());
    }
    assert!(world.agent("a").manifest.is_some());
}

#[test]
fn answers_that_tell_nothing_are_asked_for_more_and_more_rarely() {
    let mut world = World::new();
    let mut asked = 0;
    for _ in 0..240 {
        for handout in world.beat_with(light("a", "h", None)) {
            asked += 1;
            world.ack(&handout.id, AckState::FullyApplied);
        }
        world.pass(30);
    }
    // Two hours: after 1, 2, 4, 8, 16, 32 minutes, and once an hour then.
    assert!((5..=8).contains(&asked), "{asked}");
}

#[test]
fn a_flow_that_the_fleet_gave_needs_no_new_description_and_another_build_does() {
    let mut world = World::new();
    world.beat_with(full("a", "h1", "1"));
    let key = world.agent("a").manifest.clone();
    world.publish("edge", "f1");
    let sent = world.beat_with(light("a", "h1", None)).remove(0);
    world.ack(&sent.id, AckState::FullyApplied);
    // C++ agents hash the components of their flow, too.
    assert!(world.beat_with(light("a", "h2", Some("f1"))).is_empty());
    assert_eq!(world.agent("a").manifest, key);
    // Another hash with the same flow: another build may have been started.
    let asked = world.beat_with(light("a", "h3", Some("f1"))).remove(0);
    assert_eq!(asked.kind, OperationKind::Describe);
    world.describe(&asked, "a", "h3", "2");
    assert_ne!(world.agent("a").manifest, key);
    assert!(world.beat_with(light("a", "h3", Some("f1"))).is_empty());
}

#[test]
fn no_more_agents_are_asked_at_once_than_can_answer() {
    let mut world = World::new();
    let mut asked = Vec::new();
    for n in 0..limits::DESCRIBING_MAX + 50 {
        let name = format!("a{n}");
        let sent = world.beat_with(light(&name, &name, None));
        asked.extend(sent.into_iter().map(|handout| (name.clone(), handout)));
    }
    assert_eq!(asked.len(), limits::DESCRIBING_MAX);
    let (name, first) = &asked[0];
    world.describe(first, name, name, "1");
    let last = format!("a{}", limits::DESCRIBING_MAX + 10);
    assert_eq!(world.beat_with(light(&last, &last, None)).len(), 1);
}

#[test]
fn a_manifest_that_is_gone_is_asked_for_again_by_who_has_it() {
    let mut world = World::new();
    world.beat_with(full("a", "h", "1"));
    let key = world.agent("a").manifest.clone().unwrap();
    world.store();
    world.registry.forget_manifests(std::slice::from_ref(&key));
    assert_eq!(world.registry.manifest_named("h"), None);
    let asked = world.beat_with(light("a", "h", None)).remove(0);
    world.describe(&asked, "a", "h", "1");
    assert_eq!(world.agent("a").manifest.as_ref(), Some(&key));
    assert_eq!(world.registry.manifest_named("h"), Some(key));
}

#[test]
fn hashes_that_no_agent_says_any_more_are_forgotten() {
    let mut world = World::new();
    for n in 0..2 * limits::NAMES_SPARE {
        let key = Arc::from("m1-key");
        world
            .registry
            .name_manifest(crate::manifest::Mark::of(&n.to_string()), &key);
    }
    assert!(world.registry.names.len() <= limits::NAMES_SPARE);
    world.beat_with(full("a", "h", "1"));
    assert!(world.registry.has_idle_names());
    world.registry.begin_round_of_names();
    assert!(world.registry.note_names_said(None).is_none());
    // Who comes while that is done counts, too.
    world.beat_with(full("late", "of its own", "1"));
    for part in 0..NAME_PARTS {
        world.registry.sweep_names(part);
    }
    assert!(world.registry.manifest_named("of its own").is_some());
    assert_eq!(world.registry.names.len(), 2, "its own, and the late one's");
    world.registry.remove("late");
    world.registry.begin_round_of_names();
    assert!(world.registry.note_names_said(None).is_none());
    let before = world.registry.names.len();
    world.registry.sweep_names(0);
    let swept = before - world.registry.names.len();
    assert!(swept <= 1, "one lock looks at one part");
    for part in 0..NAME_PARTS {
        world.registry.sweep_names(part);
    }
    assert_eq!(world.registry.names.len(), 1, "its own alone");
    world.beat_with(full("b", "h", "1"));
    assert!(world.registry.manifest_named("h").is_some());
}

#[test]
fn one_agent_brings_few_new_classes_and_is_parked_then() {
    let mut world = World::new();
    let names = |world: &mut World, agent: &str, name: String| {
        let mut beat = heartbeat(agent, None);
        beat.agent_info.as_mut().unwrap().agent_class = Some(name);
        world.beat_with(beat);
    };
    for n in 0..100 {
        names(&mut world, "a", format!("class-{n}"));
    }
    assert_eq!(world.registry.classes.len(), limits::NOVELTIES_MAX as usize);
    assert_eq!(world.agent("a").class, None);
    let told = |world: &World| {
        let events = world.registry.events.iter();
        events
            .filter(|event| event.kind == crate::events::Kind::AgentOverBounds)
            .count()
    };
    let batch = world.registry.take_batch();
    let is_it = |event: &&Event| event.kind == crate::events::Kind::AgentOverBounds;
    let before = batch.events.iter().filter(is_it).count();
    assert_eq!(before + told(&world), 1, "it is told once");
    // Others bring theirs, it may go to those that are there, and an hour later it may again.
    names(&mut world, "b", "of-b".to_owned());
    names(&mut world, "a", "of-b".to_owned());
    assert_eq!(world.agent("a").class.as_deref(), Some("of-b"));
    world.pass(3_600);
    names(&mut world, "a", "later".to_owned());
    assert_eq!(world.agent("a").class.as_deref(), Some("later"));
}

#[test]
fn one_agent_brings_few_new_manifests() {
    let mut world = World::new();
    for n in 0..100 {
        world.beat_with(full("a", &format!("h{n}"), &format!("build-{n}")));
    }
    // Its class is one of what it brought.
    let brought = world.registry.manifests.len() + world.registry.classes.len();
    assert_eq!(brought, limits::NOVELTIES_MAX as usize);
    assert_eq!(world.agent("a").manifest, None);
}

#[test]
fn classes_that_do_not_appear_by_themselves_park_their_agents() {
    let mut world = World::new();
    world.registry.config = Arc::new(FleetConfig {
        classes_appear: false,
        ..FleetConfig::default()
    });
    world.beat("a", None);
    assert_eq!(world.agent("a").class, None);
    let now = world.at();
    world.registry.class_or_new("edge", now).unwrap();
    world.beat("a", None);
    assert_eq!(world.agent("a").class.as_deref(), Some("edge"));
}

#[test]
fn what_a_hash_stands_for_is_not_lost_between_nodes() {
    let now = UnixMillis(1_000);
    let agent = |seen: i64, hash: &str, key: Option<&str>| {
        let mut agent = Agent::new(Arc::from("a"), now);
        agent.last_seen = UnixMillis(seen);
        agent.mark = Some(crate::manifest::Mark::of(hash));
        agent.manifest = key.map(Arc::from);
        agent
    };
    for (one, other, key) in [
        // Described at one node, while a heartbeat came to the other.
        (agent(1, "h", Some("k")), agent(2, "h", None), Some("k")),
        (agent(1, "h", Some("k")), agent(2, "h2", None), None),
        (
            agent(1, "h", Some("k")),
            agent(2, "h2", Some("k2")),
            Some("k2"),
        ),
    ] {
        for (mut first, second) in [(one.clone(), &other), (other.clone(), &one)] {
            first.join(second);
            assert_eq!(first.manifest.as_deref(), key);
        }
    }
}
