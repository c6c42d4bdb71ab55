//! The short way of heartbeats beside the whole one: both leave the same.

use c2::Glance;
use serde_json::{Value, json};

use super::*;
use crate::kept::Kept;
use crate::resource::ResourceSet;

/// Two registries that are told the same; the first takes heartbeats at a glance where it can.
struct Twins {
    quick: World,
    whole: World,
    /// Heartbeats that were taken at a glance.
    glances: usize,
}

impl Twins {
    fn new() -> Twins {
        Twins {
            quick: World::new(),
            whole: World::new(),
            glances: 0,
        }
    }

    fn both(&mut self, mut act: impl FnMut(&mut World)) {
        act(&mut self.quick);
        act(&mut self.whole);
    }

    /// A heartbeat; the operations of its response, which are the same.
    fn beat(&mut self, beat: &Value, certificate: Option<ShownCertificate>) -> Vec<Handout> {
        let text = beat.to_string();
        let glance = Glance::at(text.as_bytes()).filter(|_| beat["whole"].is_null());
        let (now, registry) = (self.quick.at(), &mut self.quick.registry);
        let beaten = glance.and_then(|glance| {
            let kept = Kept::at_a_glance(&glance, text.as_bytes(), &registry.samples);
            registry.beat(now, &POLICY, &glance, certificate, kept)
        });
        let whole = whole_way(&mut self.whole, &text, certificate);
        if beaten.is_some() {
            self.glances += 1;
            assert!(whole.is_empty(), "{text}");
        } else {
            let quick = whole_way(&mut self.quick, &text, certificate);
            let ids =
                |handouts: &[Handout]| handouts.iter().map(|h| h.id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&quick), ids(&whole), "{text}");
        }
        whole
    }

    fn check(&mut self) {
        // What a heartbeat is packed against is not the same, what is kept of it is.
        let agents = |world: &World| -> Vec<String> {
            let agents = world.registry.agents.values().cloned();
            let told = agents.map(|mut agent| {
                let last = agent.last.take().and_then(|kept| kept.read());
                format!("{agent:#?} {last:#?}")
            });
            told.collect()
        };
        same(&agents(&self.quick), &agents(&self.whole));
        let due = |world: &World| vec![format!("{:?}", world.registry.due)];
        same(&due(&self.quick), &due(&self.whole));
        let batch = |world: &mut World| {
            let batch = world.registry.take_batch();
            world.registry.committed(&batch);
            vec![format!("{batch:#?}")]
        };
        same(&batch(&mut self.quick), &batch(&mut self.whole));
    }
}

fn same(quick: &[String], whole: &[String]) {
    for (quick, whole) in quick.iter().zip(whole) {
        let mut lines = quick.lines().zip(whole.lines());
        if let Some((one, other)) = lines.find(|(one, other)| one != other) {
            panic!("{one} is not {other}");
        }
        assert_eq!(quick.len(), whole.len());
    }
}

fn whole_way(world: &mut World, text: &str, certificate: Option<ShownCertificate>) -> Vec<Handout> {
    let heartbeat = Heartbeat::parse(text.as_bytes()).unwrap();
    let known = |by: Known<'_>| world.registry.known_manifest(None, by);
    let manifest = brought(heartbeat.agent_info.as_ref(), known);
    let source = Source {
        text: text.as_bytes(),
        certificate,
    };
    let (now, registry) = (world.at(), &mut world.registry);
    let taken = registry.heartbeat(now, &POLICY, heartbeat, source, manifest);
    if taken.as_ref().unwrap().wait_for.is_some() {
        world.store();
    }
    let agent = taken.unwrap().agent.unwrap();
    world.registry.hand_out(world.at(), &POLICY, &agent).0
}

/// What an agent is like, and how that changes.
#[derive(Default)]
struct Life {
    flow: Option<String>,
    resources: Option<String>,
    started: i64,
    device: u64,
    class: u64,
    hash: u64,
    bulletin: u64,
}

fn beat_of(agent: u64, life: &Life, now: i64, rng: &mut base::Rng) -> Value {
    let mut beat = json!({"created": now, "agentId": format!("agent-{agent}"),
        "deviceInfo": {"identifier": format!("device-{}", life.device),
            "networkInfo": {"hostname": format!("host-{agent}")}},
        "agentInfo": {"identifier": format!("agent-{agent}"), "agentClass": format!("class-{}", life.class),
            "agentManifestHash": format!("hash-{}", life.hash),
            "status": {"uptime": (now - life.started) * 1_000, "repositories": {"a": {"size": rng.below(99)}}}},
        "flowInfo": {"flowId": life.flow, "queues": {"q": {"size": rng.below(9_999)}}},
        "resourceInfo": {"hash": life.resources}});
    let fields = beat.as_object_mut().unwrap();
    match rng.below(100) {
        0 => drop(fields.remove("deviceInfo")),
        1 => drop(fields.remove("flowInfo")),
        2 => drop(fields.remove("resourceInfo")),
        3 => drop(fields.remove("created")),
        4 => drop(
            fields["agentInfo"]
                .as_object_mut()
                .unwrap()
                .remove("agentManifestHash"),
        ),
        5 => drop(
            fields["agentInfo"]
                .as_object_mut()
                .unwrap()
                .remove("status"),
        ),
        6 => drop(
            fields["agentInfo"]
                .as_object_mut()
                .unwrap()
                .remove("agentClass"),
        ),
        // From then on each without it is read whole.
        7 if now % 5 == 0 => drop(fields.insert("zone".to_owned(), json!(agent))),
        8 => {
            let bulletins = json!([{"id": life.bulletin, "level": "WARN", "message": "m"}]);
            drop(
                fields["flowInfo"]
                    .as_object_mut()
                    .unwrap()
                    .insert("processorBulletins".to_owned(), bulletins),
            );
        }
        9 => drop(fields.insert("whole".to_owned(), json!(1))),
        _ => {}
    }
    beat
}

#[test]
fn an_agent_that_says_an_empty_flow_says_nothing_new_each_time() {
    let mut world = World::new();
    world.beat("a", Some(""));
    world.store();
    let again = heartbeat("a", Some(""));
    assert!(!world.registry.is_news(&again));
    world.beat_with(again);
    let batch = world.registry.take_batch();
    assert_eq!(batch.agents.len(), 0, "a row for nothing new");
    // And it is taken at a glance.
    let text = heartbeat("a", Some("")).to_vec().unwrap();
    let glance = Glance::at(&text).unwrap();
    assert_eq!(glance.flow, Some(None));
}

#[test]
fn a_heartbeat_at_a_glance_leaves_what_the_whole_one_leaves() {
    let (mut glances, mut beats) = (0, 0);
    for seed in 0..60 {
        let mut rng = base::Rng::from_seed(seed);
        let mut twins = Twins::new();
        let mut lives: Vec<Life> = (0..3).map(|_| Life::default()).collect();
        for step in 0..250 {
            let index = rng.below(3);
            let life = &mut lives[index as usize];
            match rng.below(150) {
                0 => twins.both(|world| world.publish("class-0", &format!("flow-{step}"))),
                1 => life.started = twins.quick.now,
                2 => life.device += 1,
                3 => life.class = 1 - life.class,
                4 => life.hash = rng.below(2),
                5 => life.bulletin += 1,
                6 => life.flow = Some("its own".to_owned()),
                7 => {
                    let set = Arc::new(ResourceSet {
                        digest: Arc::from(format!("digest-{step}")),
                        items: Vec::new(),
                        at_once: step % 3,
                    });
                    twins.both(|world| {
                        drop(
                            world
                                .registry
                                .resource_sets
                                .insert(Arc::from("class-0"), set.clone()),
                        );
                    });
                }
                8 => twins.both(|world| world.pass(1_900)),
                9 => twins.check(),
                _ => {}
            }
            let certificate = (rng.below(20) == 0).then_some(ShownCertificate {
                mark: life.device,
                until: None,
            });
            let beat = beat_of(index, life, twins.quick.now, &mut rng);
            beats += 1;
            for handout in twins.beat(&beat, certificate) {
                let mut ack = Acknowledge::new(&handout.id, AckState::FullyApplied);
                if handout.kind == OperationKind::Describe {
                    let text = r#"{"agentType":"minifi-java","supportedOperations":[{"type":"SYNC",
                        "properties":{"RESOURCE":{}}},{"type":"UPDATE","properties":{"CONFIGURATION":{}}}]}"#;
                    let manifest = RawJson::parse(text.to_owned()).unwrap();
                    ack.agent_info = Some(AgentInfo {
                        agent_manifest_hash: Some(format!("hash-{}", life.hash)),
                        agent_manifest: Some(manifest),
                        ..AgentInfo::default()
                    });
                }
                if rng.one_in(5) {
                    continue;
                }
                life.flow = handout
                    .flow
                    .as_deref()
                    .map(str::to_owned)
                    .or(life.flow.take());
                let synced = handout.resources.as_ref().map(|set| set.digest.to_string());
                life.resources = synced.or(life.resources.take());
                twins.both(|world| {
                    let known = |by: Known<'_>| world.registry.known_manifest(None, by);
                    let manifest = brought(ack.agent_info.as_ref(), known);
                    let now = world.at();
                    world.registry.acknowledge(now, &ack, manifest).unwrap();
                });
            }
            let seconds = rng.below(40) as i64;
            twins.both(|world| world.pass(seconds));
        }
        twins.check();
        glances += twins.glances;
    }
    assert!(
        glances * 4 > beats,
        "only {glances} of {beats} were taken at a glance"
    );
}
