//! Shares, bounds and waits in simulated time.

use base::Rng;

use super::*;

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Jobs served by some workers in simulated time, in microseconds.
struct Simulation {
    schedule: Schedule,
    now: u64,
    workers: usize,
    jobs: HashMap<JobNumber, SimJob>,
    /// Slices that run: when each ends, and what it costs.
    running: BTreeMap<(u64, JobNumber), u64>,
    /// Service in microseconds by tenant.
    served: BTreeMap<TenantId, u64>,
    ended: HashMap<JobNumber, u64>,
}

struct SimJob {
    tenant: TenantId,
    slices: u64,
    cost: u64,
}

impl Simulation {
    fn new(workers: usize) -> Self {
        Simulation {
            schedule: Schedule::default(),
            now: 0,
            workers,
            jobs: HashMap::new(),
            running: BTreeMap::new(),
            served: BTreeMap::new(),
            ended: HashMap::new(),
        }
    }

    fn submit(&mut self, class: Class, name: &str, slices: u64, cost: u64) -> JobNumber {
        let number = JobNumber(i64::try_from(self.jobs.len()).unwrap());
        let job = SimJob {
            tenant: tenant(name),
            slices,
            cost,
        };
        self.schedule.add(class, &job.tenant, number);
        self.jobs.insert(number, job);
        number
    }

    fn bulk(&mut self, name: &str, slices: u64, cost: u64) -> JobNumber {
        self.submit(Class::Bulk, name, slices, cost)
    }

    /// Starts what there is room for and ends the next slice; false when nothing is left.
    fn step(&mut self, rng: &mut Rng) -> bool {
        while self.running.len() < self.workers {
            let Some(number) = self.schedule.next() else {
                break;
            };
            let cost = self.jobs[&number].cost;
            // Costs vary by a fifth.
            let cost = cost - cost / 10 + rng.below(cost / 5 + 1);
            self.running.insert((self.now + cost, number), cost);
            *self
                .served
                .entry(self.jobs[&number].tenant.clone())
                .or_default() += cost;
        }
        let Some(((at, number), cost)) = self.running.pop_first() else {
            return false;
        };
        self.now = at;
        let job = self.jobs.get_mut(&number).unwrap();
        job.slices -= 1;
        let again = job.slices > 0;
        self.schedule.done(number, Cost(cost), again);
        if !again {
            self.ended.insert(number, self.now);
        }
        true
    }

    fn run_until(&mut self, end: u64, rng: &mut Rng) {
        while self.now < end && self.step(rng) {}
    }

    fn run(&mut self, rng: &mut Rng) {
        while self.step(rng) {}
    }

    fn served(&self, name: &str) -> u64 {
        self.served.get(&tenant(name)).copied().unwrap_or(0)
    }
}

/// Jain's index of fairness: one when all are equal.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn backlogged_tenants_share_alike_in_every_window_whatever_their_slices_cost() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed);
        let mut sim = Simulation::new(1);
        for (name, cost) in [("a", 30_000), ("b", 150_000), ("c", 5_000)] {
            for _ in 0..=rng.below(3) {
                sim.bulk(name, 1_000_000, cost);
            }
        }
        let mut before = [0; 3];
        for window in 1..=20 {
            sim.run_until(window * 5_000_000, &mut rng);
            let total = ["a", "b", "c"].map(|name| sim.served(name));
            let shares: Vec<f64> = total
                .iter()
                .zip(before)
                .map(|(t, b)| (t - b) as f64)
                .collect();
            assert!(
                jain(&shares) >= 0.99,
                "seed {seed} window {window}: {shares:?}"
            );
            before = total;
        }
    }
}

#[test]
fn weights_are_kept_within_a_twentieth_and_changed_on_a_backlog() {
    let mut rng = Rng::from_seed(1);
    let mut sim = Simulation::new(1);
    for (name, weight) in [("one", 1), ("two", 2), ("four", 4)] {
        sim.schedule.set_weight(&tenant(name), weight);
        sim.bulk(name, 1_000_000, 40_000);
    }
    sim.run_until(60_000_000, &mut rng);
    let unit = sim.served("one") as f64;
    for (name, weight) in [("two", 2.0), ("four", 4.0)] {
        let ratio = sim.served(name) as f64 / unit / weight;
        assert!((0.95..=1.05).contains(&ratio), "{name}: {ratio}");
    }
    // From now on the first one has as much as the others together.
    sim.schedule.set_weight(&tenant("one"), 6);
    let before = ["one", "two", "four"].map(|name| sim.served(name));
    sim.run_until(120_000_000, &mut rng);
    let more = sim.served("one") - before[0];
    let others = sim.served("two") - before[1] + sim.served("four") - before[2];
    let ratio = more as f64 / others as f64;
    assert!((0.95..=1.05).contains(&ratio), "{ratio}");
}

#[test]
fn a_slice_that_stood_still_is_not_held_against_its_tenant() {
    let mut schedule = Schedule::default();
    let (hit, other) = (JobNumber(1), JobNumber(2));
    schedule.add(Class::Bulk, &tenant("hit"), hit);
    schedule.add(Class::Bulk, &tenant("other"), other);
    let mut slices = HashMap::new();
    for _ in 0..2_000 {
        let job = schedule.next().unwrap();
        let count = slices.entry(job).or_insert(0_u32);
        *count += 1;
        let stands_still = job == hit && *count % 10 == 0;
        let cost = if stands_still { 2_000 } else { 100 };
        schedule.done(job, Cost(cost), true);
    }
    let ratio = f64::from(slices[&hit]) / f64::from(slices[&other]);
    assert!((0.85..1.0).contains(&ratio), "{ratio}");
    schedule.remove(Class::Bulk, &tenant("hit"), hit);
    assert_eq!(schedule.lanes[&Class::Bulk].usual.len(), 1);
}

#[test]
fn fifty_quiet_tenants_do_not_wait_behind_a_backlog() {
    let mut rng = Rng::from_seed(5);
    let (slices, cost) = (1, 20_000);
    let mut sim = Simulation::new(1);
    sim.bulk("noisy", 4_000, 40_000);
    let mut arrivals: Vec<u64> = (0..50)
        .map(|_| 1_000_000 + rng.below(100_000_000))
        .collect();
    arrivals.sort_unstable();
    let mut waits = Vec::new();
    let mut quiet = Vec::new();
    for (index, at) in arrivals.iter().enumerate() {
        sim.run_until(*at, &mut rng);
        let number = sim.bulk(&format!("quiet-{index}"), slices, cost);
        quiet.push((number, *at));
    }
    sim.run(&mut rng);
    for (number, at) in quiet {
        waits.push(sim.ended[&number] - at.min(sim.ended[&number]));
    }
    waits.sort_unstable();
    let p95 = waits[waits.len() * 95 / 100];
    // Alone it takes one slice; the worst is one slice of the noisy one before it.
    assert!(p95 <= 3 * cost + 10_000, "{p95}");
    // Nothing was left idle: the noisy one lost what the quiet ones took.
    let work: u64 = sim.served.values().sum();
    assert!(sim.now - work < 1_000_000, "{} idle", sim.now - work);
}

#[test]
fn the_published_start_rule_gives_the_durations_of_processor_sharing() {
    // The second tenant starts at 30 % of the first one's progress, the third at 60 %.
    let mut rng = Rng::from_seed(9);
    let mut sim = Simulation::new(1);
    let (slices, cost) = (100, 50_000);
    let alone = (slices * cost) as f64;
    let first = sim.bulk("t1", slices, cost);
    let mut started = vec![(first, 0)];
    for (name, part) in [("t2", 30), ("t3", 60)] {
        while slices - sim.jobs[&first].slices < part {
            assert!(sim.step(&mut rng));
        }
        started.push((sim.bulk(name, slices, cost), sim.now));
    }
    sim.run(&mut rng);
    let durations: Vec<f64> = started
        .iter()
        .map(|(number, at)| (sim.ended[number] - at) as f64 / alone)
        .collect();
    for (found, ideal) in durations.iter().zip([2.10, 2.40, 2.10]) {
        assert!((found / ideal - 1.0).abs() < 0.1, "{durations:?}");
    }
}

#[test]
fn interactive_work_goes_first_and_bulk_keeps_its_tenth() {
    let mut rng = Rng::from_seed(2);
    let mut sim = Simulation::new(1);
    sim.bulk("load", 1_000_000, 30_000);
    sim.run_until(10_000_000, &mut rng);
    let before = sim.served("load");
    sim.submit(Class::Interactive, "desk", 1_000_000, 30_000);
    sim.run_until(70_000_000, &mut rng);
    let share = (sim.served("load") - before) as f64 / 60_000_000.0;
    assert!((0.09..=0.11).contains(&share), "{share}");
    assert!(sim.schedule.is_busy(Class::Bulk) && sim.schedule.is_busy(Class::Interactive));
}

#[test]
fn a_newcomer_is_served_at_once_and_gets_no_credit_for_its_absence() {
    let mut rng = Rng::from_seed(3);
    let mut sim = Simulation::new(1);
    sim.bulk("old", 1_000_000, 10_000);
    sim.run_until(10_000_000, &mut rng);
    sim.bulk("new", 1_000_000, 10_000);
    let before = (sim.now, sim.served("old"));
    sim.run_until(before.0 + 40_000, &mut rng);
    assert!(sim.served("new") >= 10_000, "it waits");
    sim.run_until(before.0 + 10_000_000, &mut rng);
    let share = sim.served("new") as f64 / (sim.served("old") - before.1) as f64;
    assert!((0.97..=1.03).contains(&share), "{share}");
}

#[test]
fn running_slices_count_so_that_two_workers_serve_two_tenants() {
    let mut schedule = Schedule::default();
    for job in 0..2 {
        schedule.add(Class::Bulk, &tenant("a"), JobNumber(job));
        schedule.add(Class::Bulk, &tenant("b"), JobNumber(job + 10));
    }
    // A slice of each teaches the estimate.
    for job in [schedule.next().unwrap(), schedule.next().unwrap()] {
        schedule.done(job, Cost(800), true);
    }
    let (one, two) = (schedule.next().unwrap(), schedule.next().unwrap());
    assert_ne!(
        one.0 < 10,
        two.0 < 10,
        "{one:?} and {two:?} are one tenant's"
    );
}

#[test]
fn removed_jobs_are_not_picked_and_idle_tenants_are_forgotten() {
    let mut schedule = Schedule::default();
    let a = tenant("a");
    schedule.add(Class::Bulk, &a, JobNumber(0));
    schedule.add(Class::Bulk, &a, JobNumber(1));
    schedule.remove(Class::Bulk, &a, JobNumber(0));
    assert_eq!(schedule.next(), Some(JobNumber(1)));
    schedule.done(JobNumber(1), Cost(5), false);
    assert_eq!(schedule.next(), None);
    assert_eq!(schedule.busy_tenants(), 0);
    assert!(!schedule.is_busy(Class::Bulk));
    // A running job that is removed ends with its slice.
    schedule.add(Class::Bulk, &a, JobNumber(2));
    assert_eq!(schedule.next(), Some(JobNumber(2)));
    schedule.remove(Class::Bulk, &a, JobNumber(2));
    schedule.done(JobNumber(2), Cost(5), false);
    assert_eq!((schedule.next(), schedule.busy_tenants()), (None, 0));
}

#[test]
fn whatever_comes_and_goes_every_job_is_served_to_its_end() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let mut sim = Simulation::new(1 + usize::try_from(rng.below(4)).unwrap());
        for _ in 0..200 {
            let class = if rng.one_in(4) {
                Class::Interactive
            } else {
                Class::Bulk
            };
            let name = format!("t{}", rng.below(12));
            sim.submit(class, &name, 1 + rng.below(20), 1_000 + rng.below(50_000));
            let until = sim.now + rng.below(200_000);
            sim.run_until(until, &mut rng);
            if rng.one_in(5) {
                let weight = u32::try_from(1 + rng.below(9)).unwrap();
                sim.schedule.set_weight(&tenant(&name), weight);
            }
        }
        sim.run(&mut rng);
        assert_eq!(sim.ended.len(), 200, "seed {seed}");
        assert_eq!(sim.schedule.busy_tenants(), 0, "seed {seed}");
        assert!(sim.schedule.running.is_empty());
    }
}
