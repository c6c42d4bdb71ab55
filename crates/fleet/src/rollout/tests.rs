//! Roll-outs against simulated classes of agents.

use base::Rng;

use super::*;

fn rollout(plan: Plan) -> Rollout {
    Rollout {
        id: Arc::from("rollout"),
        class: Arc::from("edge"),
        flow: Arc::from("new"),
        previous: Some(Arc::from("old")),
        plan,
        state: RolloutState::Running,
        reach: 0,
        reached: UnixMillis(0),
        created: UnixMillis(0),
        reason: String::new(),
        version: 0,
    }
}

const PLAN: Plan = Plan {
    batch_agents: 10,
    batch_interval: Duration::from_secs(10),
    canary_percent: 0,
    failures_percent: 20,
};

/// A class whose agents come, go, succeed and fail.
struct Class {
    rollout: Rollout,
    agents: Vec<Standing>,
    now: UnixMillis,
    /// Of a hundred agents, how many fail.
    failing: u64,
}

impl Class {
    fn new(plan: Plan, count: usize, failing: u64, rng: &mut Rng) -> Class {
        let rollout = rollout(plan);
        let agent = |number: usize| Standing {
            rank: rollout.rank(&format!("agent-{number}")),
            is_online: !rng.one_in(5),
            outcome: Outcome::Pending,
        };
        Class {
            agents: (0..count).map(agent).collect(),
            rollout,
            now: UnixMillis(0),
            failing,
        }
    }

    fn pending(&self) -> usize {
        self.rollout.progress(&self.agents).pending
    }

    /// A second in the life of the class.
    fn pass(&mut self, rng: &mut Rng) -> Step {
        let step = self.rollout.decide(self.now, &self.agents);
        match &step {
            Step::Reach(reach) => {
                assert!(*reach > self.rollout.reach, "it never goes back");
                self.rollout.reach = *reach;
                self.rollout.reached = self.now;
            }
            Step::Halt(_) => self.rollout.state = RolloutState::Halted,
            Step::Finish => self.rollout.state = RolloutState::Done,
            Step::Wait => {}
        }
        let reach = self.rollout.reach;
        for agent in &mut self.agents {
            let is_at_it = u64::from(agent.rank) < reach && agent.is_online;
            if is_at_it && agent.outcome == Outcome::Pending && rng.one_in(4) {
                agent.outcome = match rng.below(100) < self.failing {
                    true => Outcome::Failed,
                    false => Outcome::Deployed,
                };
            }
        }
        self.now = self.now + Duration::from_secs(1);
        step
    }
}

#[test]
fn batches_keep_to_their_size_and_interval_and_end() {
    let mut rng = Rng::from_seed(3);
    for case in 0..60 {
        let plan = Plan {
            batch_agents: 1 + rng.below(30) as u32,
            batch_interval: Duration::from_secs(rng.below(20)),
            canary_percent: rng.below(20) as u8,
            failures_percent: 100,
        };
        let mut class = Class::new(plan, 200, 5, &mut rng);
        let mut last: Option<UnixMillis> = None;
        for _ in 0..20_000 {
            let before = class.rollout.reach;
            if let Step::Reach(reach) = class.pass(&mut rng) {
                let at = class.rollout.reached;
                let waited = last.map(|last| at.since(last));
                let is_last = reach == EVERYBODY;
                assert!(
                    is_last || before == 0 || waited >= Some(plan.batch_interval),
                    "case {case}: {waited:?} {plan:?}"
                );
                last = Some(at);
            }
            assert!(
                class.pending() <= plan.batch_agents as usize,
                "case {case}: {} at it, {plan:?}",
                class.pending()
            );
            if class.rollout.state == RolloutState::Done {
                break;
            }
        }
        assert_eq!(
            class.rollout.state,
            RolloutState::Done,
            "case {case}: {plan:?}"
        );
        let left = class.agents.iter().filter(|a| a.is_online);
        let left = left.filter(|agent| agent.outcome == Outcome::Pending);
        assert_eq!(
            left.count(),
            0,
            "who is away holds up nobody, who is there is served"
        );
    }
}

#[test]
fn it_halts_where_too_much_fails_and_reaches_nobody_further() {
    let mut rng = Rng::from_seed(4);
    for case in 0..60 {
        let plan = Plan {
            canary_percent: rng.below(10) as u8,
            ..PLAN
        };
        let mut class = Class::new(plan, 300, 60, &mut rng);
        for _ in 0..2_000 {
            class.pass(&mut rng);
        }
        assert_eq!(class.rollout.state, RolloutState::Halted, "case {case}");
        let progress = class.rollout.progress(&class.agents);
        assert!(
            progress.failed * 100 > progress.reached * 20,
            "{progress:?}"
        );
        assert!(progress.reached < 150, "it stopped early: {progress:?}");
    }
}

#[test]
fn canaries_go_first_and_the_rest_waits_for_them() {
    let plan = Plan {
        batch_agents: 50,
        canary_percent: 5,
        failures_percent: 0,
        batch_interval: Duration::ZERO,
    };
    let mut rollout = rollout(plan);
    let agent = |number: usize| Standing {
        rank: rollout.rank(&number.to_string()),
        is_online: true,
        outcome: Outcome::Pending,
    };
    let mut agents: Vec<Standing> = (0..100).map(agent).collect();
    let Step::Reach(reach) = rollout.decide(UnixMillis(0), &agents) else {
        panic!("nobody goes first");
    };
    rollout.reach = reach;
    assert_eq!(rollout.progress(&agents).reached, 5);
    let later = UnixMillis(3_600_000);
    assert_eq!(rollout.decide(later, &agents), Step::Wait);
    let reached = |agent: &&mut Standing| u64::from(agent.rank) < reach;
    for agent in agents.iter_mut().filter(reached) {
        agent.outcome = Outcome::Deployed;
    }
    let Step::Reach(further) = rollout.decide(later, &agents) else {
        panic!("the rest waits for ever");
    };
    rollout.reach = further;
    assert_eq!(rollout.progress(&agents).reached, 55);
    agents[0].outcome = Outcome::Failed;
    rollout.reach = EVERYBODY;
    assert!(matches!(rollout.decide(later, &agents), Step::Halt(_)));
}

#[test]
fn progress_is_what_one_counts() {
    let mut rng = Rng::from_seed(5);
    let mut class = Class::new(PLAN, 250, 10, &mut rng);
    for _ in 0..300 {
        class.pass(&mut rng);
        let reach = class.rollout.reach;
        let is_reached = |agent: &&Standing| u64::from(agent.rank) < reach;
        let count = |outcome| {
            let reached = class.agents.iter().filter(is_reached);
            reached.filter(|agent| agent.outcome == outcome).count()
        };
        let progress = class.rollout.progress(&class.agents);
        assert_eq!(progress.deployed, count(Outcome::Deployed));
        assert_eq!(progress.failed, count(Outcome::Failed));
        assert_eq!(progress.pending + progress.offline, count(Outcome::Pending));
        let all = progress.deployed + progress.failed + progress.pending + progress.offline;
        assert_eq!(progress.reached, all);
    }
}
