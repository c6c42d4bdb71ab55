//! Any order of lost responses and of lost, doubled, late and foreign acknowledges: what must never
//! happen does not, and what must happen in the end does.

use std::collections::{HashMap, HashSet};

use c2::{Operand, OperationKind};

use super::*;
use crate::request::{Request, Target};

/// An agent of a simulated world: it does what it gets, and its words may get lost.
#[derive(Default)]
struct Simulated {
    flow: Option<String>,
    restarts: HashSet<Arc<str>>,
    /// Acknowledges on their way.
    answers: Vec<(Arc<str>, AckState)>,
}

struct Simulation {
    world: World,
    rng: base::Rng,
    agents: [Simulated; 3],
    handed_out: HashMap<Arc<str>, u32>,
    acknowledged: HashSet<Arc<str>>,
    seed: u64,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut world = World::new();
        for name in NAMES {
            let mut first = heartbeat(name, None);
            let text = r#"{"agentType":"cpp","supportedOperations":[{"type":"restart"},
                {"type":"update","properties":{"configuration":{}}},{"type":"describe","properties":
                {"manifest":{}}}]}"#;
            let manifest = RawJson::parse(text.to_owned()).unwrap();
            first.agent_info.as_mut().unwrap().agent_manifest = Some(manifest);
            assert!(world.beat_with(first).is_empty());
        }
        Simulation {
            world,
            rng: base::Rng::from_seed(seed),
            agents: Default::default(),
            handed_out: HashMap::new(),
            acknowledged: HashSet::new(),
            seed,
        }
    }

    /// One heartbeat; the response gets lost where `is_lossy` and chance say so.
    fn beat(&mut self, index: usize, is_lossy: bool) {
        let flow = self.agents[index].flow.clone();
        let handouts = self.world.beat(NAMES[index], flow.as_deref());
        for handout in &handouts {
            let seed = self.seed;
            let count = self.handed_out.entry(handout.id.clone()).or_default();
            *count += 1;
            assert!(
                handout.repeats || *count == 1,
                "seed {seed}: destroyed twice"
            );
            let again = self.acknowledged.contains(&handout.id);
            assert!(
                !again,
                "seed {seed}: {} was answered and came again",
                handout.id
            );
        }
        if is_lossy && self.rng.one_in(3) {
            return;
        }
        for handout in handouts {
            let agent = &mut self.agents[index];
            let state = match (&handout.kind, &handout.flow) {
                (OperationKind::Update, Some(flow)) if agent.flow.as_deref() == Some(flow) => {
                    AckState::NoOperation
                }
                (OperationKind::Update, Some(flow)) => {
                    agent.flow = Some(flow.to_string());
                    AckState::FullyApplied
                }
                _ => {
                    let is_new = agent.restarts.insert(handout.id.clone());
                    assert!(is_new, "seed {}: restarted twice", self.seed);
                    AckState::FullyApplied
                }
            };
            agent.answers.push((handout.id, state));
        }
    }

    /// Delivers, doubles or loses what is on its way; sometimes somebody else says the same.
    fn answers(&mut self, index: usize, is_lossy: bool) {
        let answers = std::mem::take(&mut self.agents[index].answers);
        for (id, state) in answers {
            if is_lossy && self.rng.one_in(4) {
                continue;
            }
            if is_lossy && self.rng.one_in(4) {
                // Late: it stays on its way.
                self.agents[index].answers.push((id, state));
                continue;
            }
            if is_lossy && self.rng.one_in(4) {
                self.foreign(&id, (index + 1) % NAMES.len());
            }
            let times = 1 + u32::from(is_lossy && self.rng.one_in(3));
            for _ in 0..times {
                self.world.ack(&id, state.clone());
                self.acknowledged.insert(id.clone());
            }
        }
    }

    /// An acknowledge of another agent's operation changes nothing.
    fn foreign(&mut self, id: &str, by: usize) {
        let state = |world: &World| {
            let found = world.registry.operation(id);
            found.map(|(_, op)| (op.status, op.acknowledged, op.updated))
        };
        let before = state(&self.world);
        let mut ack = Acknowledge::new(id, AckState::NotApplied);
        ack.agent_info = heartbeat(NAMES[by], None).agent_info;
        let (now, registry) = (self.world.at(), &mut self.world.registry);
        let (_, result) = registry.acknowledge(now, &ack, None).unwrap();
        assert!(
            matches!(result, AckResult::Foreign | AckResult::Unknown),
            "seed {}",
            self.seed
        );
        assert_eq!(state(&self.world), before, "seed {}", self.seed);
    }

    fn ask_restart(&mut self, index: usize) {
        let request = Arc::new(Request {
            at_once: 0,
            id: Arc::from(Uuid::new_v4().to_string()),
            target: Target::Agent(NAMES[index].to_owned()),
            kind: OperationKind::Restart,
            operand: Operand::default(),
            args: BTreeMap::new(),
            created: self.world.at(),
        });
        self.world.registry.keep_request(request.clone());
        // Refused while too many are under way.
        let _ = self
            .world
            .registry
            .ask(self.world.at(), NAMES[index], &request);
    }

    fn check(&self) {
        for name in NAMES {
            let active = self.world.agent(name).operations.iter();
            let flows: Vec<_> = active
                .filter(|op| op.is_active())
                .filter_map(|op| op.flow.clone())
                .collect();
            let distinct: HashSet<_> = flows.iter().collect();
            assert_eq!(
                flows.len(),
                distinct.len(),
                "seed {}: one intent, two ids",
                self.seed
            );
            for op in &self.world.agent(name).operations {
                let proven = op.acknowledged || op.details.contains("no acknowledge");
                let is_done = op.status == OperationStatus::Done;
                assert!(!is_done || proven, "seed {}: done without proof", self.seed);
            }
        }
    }
}

#[test]
fn whatever_is_lost_doubled_or_late_every_agent_gets_there_and_nothing_is_done_twice() {
    for seed in 0..300 {
        let mut simulation = Simulation::new(seed);
        let mut version = 0;
        for _ in 0..150 {
            let index = simulation.rng.below(3) as usize;
            match simulation.rng.below(12) {
                0 => {
                    version += 1;
                    simulation.world.publish("edge", &format!("flow-{version}"));
                }
                1 => simulation.ask_restart(index),
                2 => simulation.world.pass(301),
                3..=8 => simulation.beat(index, true),
                _ => simulation.answers(index, true),
            }
            let seconds = simulation.rng.below(40) as i64;
            simulation.world.pass(seconds);
            simulation.check();
        }
        // From here on nothing gets lost: everybody gets to the last flow, however far behind.
        for _ in 0..60 {
            for index in 0..NAMES.len() {
                simulation.beat(index, false);
                simulation.answers(index, false);
            }
            simulation.world.pass(200);
            simulation.check();
        }
        for agent in &simulation.agents {
            let wanted = (version > 0).then(|| format!("flow-{version}"));
            assert_eq!(agent.flow, wanted, "seed {seed}");
        }
    }
}
