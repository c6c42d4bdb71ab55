//! Who of an application's members does which task.
//!
//! Every task is done by one member, as evenly as may be. Whoever did a task goes on with it; one that
//! becomes free goes to a process that has followed it as a stand-by, if one has room. Stand-bys are
//! of other processes than whoever does the task, since members of one process share its disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::super::Tasks;
use super::TaskShare;
use super::topology::Work;

/// A member that may do tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taker<'a> {
    /// The process that it is a thread of.
    pub(super) process: &'a str,
    /// What it was to do before.
    pub(super) before: Option<&'a TaskShare>,
}

/// Shares all tasks, each with so many stand-bys where it keeps states; answers each taker's share,
/// in their order.
pub(super) fn assign(
    takers: &[Taker<'_>],
    work: &BTreeMap<Arc<str>, Work>,
    standbys: usize,
) -> Vec<TaskShare> {
    let mut shares = vec![TaskShare::default(); takers.len()];
    if !takers.is_empty() {
        share_active(takers, work, &mut shares);
        share_standbys(takers, work, standbys, &mut shares);
    }
    shares
}

fn share_active(takers: &[Taker<'_>], work: &BTreeMap<Arc<str>, Work>, shares: &mut [TaskShare]) {
    let mut free: Tasks = tasks(work).collect();
    let kept: Vec<Vec<(Arc<str>, i32)>> = takers
        .iter()
        .map(|taker| {
            let before = taker.before.into_iter().flat_map(|b| b.active.iter());
            before.filter(|(of, n)| free.remove(of, *n)).collect()
        })
        .collect();
    let total = free.len() + kept.iter().map(Vec::len).sum::<usize>();
    let (each, mut longer) = (total / takers.len(), total % takers.len());
    let turns = turns(takers);
    let mut rooms = vec![each; takers.len()];
    // Those that have most keep the places of the longer shares, so that the fewest move.
    for has_more in [true, false] {
        for at in &turns {
            if longer > 0 && rooms[*at] == each && (kept[*at].len() > each) == has_more {
                rooms[*at] += 1;
                longer -= 1;
            }
        }
    }
    for (at, mut kept) in kept.into_iter().enumerate() {
        let over = kept.split_off(kept.len().min(rooms[at]));
        free.extend(over);
        rooms[at] -= kept.len();
        shares[at].active.extend(kept);
    }
    let mut followers: HashMap<(Arc<str>, i32), Vec<usize>> = HashMap::new();
    for at in &turns {
        let before = takers[*at].before.into_iter();
        for task in before.flat_map(|before| before.standby.iter()) {
            followers.entry(task).or_default().push(*at);
        }
    }
    let of_process = members(takers);
    let mut rest = Vec::new();
    for task in free.iter() {
        // Any thread of a process that has followed it will do, the one itself first.
        let found = followers.get(&task).into_iter().flatten().find_map(|at| {
            let others = of_process.get(takers[*at].process).into_iter().flatten();
            let mut mates = std::iter::once(at).chain(others);
            mates.find(|at| rooms[**at] > 0).copied()
        });
        match found {
            Some(at) => {
                rooms[at] -= 1;
                shares[at].active.extend([task]);
            }
            None => rest.push(task),
        }
    }
    // Turn by turn, so that one subtopology's tasks spread over the processes.
    let mut rest = rest.into_iter();
    loop {
        let mut has_room = false;
        for at in &turns {
            if rooms[*at] == 0 {
                continue;
            }
            let Some((of, n)) = rest.next() else { return };
            rooms[*at] -= 1;
            has_room = true;
            shares[*at].active.insert(of, n);
        }
        if !has_room {
            return;
        }
    }
}

fn share_standbys(
    takers: &[Taker<'_>],
    work: &BTreeMap<Arc<str>, Work>,
    standbys: usize,
    shares: &mut [TaskShare],
) {
    let of_process = members(takers);
    // A task has one process that does it, and followers are other ones.
    let standbys = standbys.min(of_process.len() - 1);
    if standbys == 0 {
        return;
    }
    let mut doing: HashMap<(Arc<str>, i32), usize> = HashMap::new();
    let mut had: HashMap<(Arc<str>, i32), Vec<usize>> = HashMap::new();
    for (at, taker) in takers.iter().enumerate() {
        doing.extend(shares[at].active.iter().map(|task| (task, at)));
        let before = taker.before.into_iter();
        let followed_first = before.flat_map(|b| b.standby.iter().chain(b.active.iter()));
        for task in followed_first {
            had.entry(task).or_default().push(at);
        }
    }
    let mut laden = Laden::new(takers, shares);
    let stateful = || tasks(work).filter(|(of, _)| work.get(of).is_some_and(|w| w.is_stateful));
    let total = doing.len() + stateful().count() * standbys;
    let fair = total.div_ceil(takers.len());
    for task in stateful() {
        let mut taken: Vec<&str> = Vec::with_capacity(standbys + 1);
        taken.extend(doing.get(&task).map(|at| takers[*at].process));
        for _ in 0..standbys {
            // Who has the state already takes least time to follow, if it is not laden too much.
            let mut had = had.get(&task).into_iter().flatten().copied();
            let had = had.find(|at| laden.of(*at) < fair && !taken.contains(&takers[*at].process));
            let Some(at) = had.or_else(|| laden.least(&taken)) else {
                break;
            };
            taken.push(takers[at].process);
            laden.add(at);
            shares[at].standby.extend([task.clone()]);
        }
    }
}

/// How many tasks each taker has, and who has least.
struct Laden<'a> {
    takers: &'a [Taker<'a>],
    loads: Vec<usize>,
    /// The takers of each process by what they have.
    of_process: BTreeMap<&'a str, BTreeSet<(usize, usize)>>,
    /// The processes by what the least laden of their takers has.
    processes: BTreeSet<(usize, &'a str)>,
}

impl<'a> Laden<'a> {
    fn new(takers: &'a [Taker<'a>], shares: &[TaskShare]) -> Self {
        let loads: Vec<usize> = shares.iter().map(|share| share.active.len()).collect();
        let mut of_process: BTreeMap<&str, BTreeSet<(usize, usize)>> = BTreeMap::new();
        for (at, load) in loads.iter().enumerate() {
            of_process
                .entry(takers[at].process)
                .or_default()
                .insert((*load, at));
        }
        let least = of_process.iter().filter_map(|(process, takers)| {
            let (load, _) = takers.first()?;
            Some((*load, *process))
        });
        let processes = least.collect();
        Laden {
            takers,
            loads,
            of_process,
            processes,
        }
    }

    fn of(&self, at: usize) -> usize {
        self.loads[at]
    }

    /// The least laden taker of a process that is none of these.
    fn least(&self, taken: &[&str]) -> Option<usize> {
        let mut processes = self.processes.iter();
        let (_, process) = processes.find(|(_, process)| !taken.contains(process))?;
        let (_, at) = self.of_process.get(process)?.first()?;
        Some(*at)
    }

    fn add(&mut self, at: usize) {
        let process = self.takers[at].process;
        let Some(takers) = self.of_process.get_mut(process) else {
            return;
        };
        if let Some((least, _)) = takers.first() {
            self.processes.remove(&(*least, process));
        }
        takers.remove(&(self.loads[at], at));
        self.loads[at] += 1;
        takers.insert((self.loads[at], at));
        if let Some((least, _)) = takers.first() {
            self.processes.insert((*least, process));
        }
    }
}

/// The takers in the order in which they take turns: one of each process, then another of each.
fn turns(takers: &[Taker<'_>]) -> Vec<usize> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(takers.len());
    for (at, taker) in takers.iter().enumerate() {
        let nth = seen.entry(taker.process).or_default();
        order.push((*nth, at));
        *nth += 1;
    }
    order.sort_unstable();
    order.into_iter().map(|(_, at)| at).collect()
}

/// The takers of each process.
fn members<'a>(takers: &[Taker<'a>]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, taker) in takers.iter().enumerate() {
        members.entry(taker.process).or_default().push(at);
    }
    members
}

fn tasks(work: &BTreeMap<Arc<str>, Work>) -> impl Iterator<Item = (Arc<str>, i32)> {
    work.iter()
        .flat_map(|(of, work)| (0..work.tasks).map(move |n| (Arc::clone(of), n)))
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn work(each: &[(&str, i32, bool)]) -> BTreeMap<Arc<str>, Work> {
        let each = each.iter().map(|(id, tasks, is_stateful)| {
            let work = Work {
                tasks: *tasks,
                is_stateful: *is_stateful,
                topics: Vec::new(),
            };
            (Arc::from(*id), work)
        });
        each.collect()
    }

    fn lengths(shares: &[TaskShare]) -> Vec<(usize, usize)> {
        let each = shares.iter();
        each.map(|share| (share.active.len(), share.standby.len()))
            .collect()
    }

    fn taker<'a>(process: &'a str, before: Option<&'a TaskShare>) -> Taker<'a> {
        Taker { process, before }
    }

    #[test]
    fn tasks_spread_over_processes_before_threads() {
        let work = work(&[("0", 2, false)]);
        let takers = ["a", "a", "b", "b"].map(|process| taker(process, None));
        let shares = assign(&takers, &work, 0);
        assert_eq!(lengths(&shares), [(1, 0), (0, 0), (1, 0), (0, 0)]);
    }

    #[test]
    fn a_task_that_loses_its_process_goes_to_its_stand_by() {
        let work = work(&[("0", 6, true)]);
        let takers = ["a", "b", "c"].map(|process| taker(process, None));
        let first = assign(&takers, &work, 1);
        assert_eq!(lengths(&first), [(2, 2); 3]);
        let rest = [taker("b", Some(&first[1])), taker("c", Some(&first[2]))];
        let second = assign(&rest, &work, 1);
        assert_eq!(lengths(&second), [(3, 3); 2]);
        for (before, after) in first[1..].iter().zip(&second) {
            assert!(before.active.is_within(&after.active));
            let taken_over: Vec<_> = after.active.split_by(&before.active).1.iter().collect();
            assert_eq!(taken_over.len(), 1);
        }
        // What the first process had was followed by both others, and each goes on with its own.
        let followed = first[0].active.iter();
        let followed = followed.filter(|(of, n)| {
            let at = first.iter().position(|s| s.standby.contains(of, *n));
            at.is_some_and(|at| second[at - 1].active.contains(of, *n))
        });
        assert_eq!(followed.count(), 2);
    }

    /// Whatever the members: every task is done once, its stand-bys are of other processes and as
    /// many as there may be, nobody has two more tasks than another, and sharing anew moves no task.
    #[test]
    fn random_members_do_every_task_once() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let names = ["0", "1", "2", "3"];
            let each = names.map(|id| (id, i32::try_from(rng.below(9)).unwrap(), rng.one_in(2)));
            let work = work(&each);
            let count = usize::try_from(1 + rng.below(6)).unwrap();
            let processes: Vec<String> = (0..count).map(|_| format!("p{}", rng.below(3))).collect();
            let of_processes: BTreeSet<&String> = processes.iter().collect();
            let standbys = usize::try_from(rng.below(3)).unwrap();
            let shared = |before: Option<&[TaskShare]>| {
                let takers = processes.iter().enumerate();
                let takers = takers.map(|(at, p)| taker(p, before.map(|before| &before[at])));
                assign(&takers.collect::<Vec<_>>(), &work, standbys)
            };
            let shares = shared(None);
            let loads: Vec<usize> = shares.iter().map(|share| share.active.len()).collect();
            let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            assert!(spread <= 1, "seed {seed}: {loads:?}");
            for (of, n) in tasks(&work) {
                let holders = |of_role: fn(&TaskShare) -> &Tasks| -> Vec<&String> {
                    let found = shares.iter().zip(&processes);
                    found
                        .filter(|(share, _)| of_role(share).contains(&of, n))
                        .map(|(_, process)| process)
                        .collect()
                };
                let active = holders(|share| &share.active);
                let standby = holders(|share| &share.standby);
                assert_eq!(active.len(), 1, "seed {seed}");
                let wanted = match work[&of].is_stateful {
                    true => standbys.min(of_processes.len() - 1),
                    false => 0,
                };
                let all: BTreeSet<&String> = active.into_iter().chain(standby).collect();
                assert_eq!(all.len(), 1 + wanted, "seed {seed}: {of} {n}");
            }
            let again = shared(Some(&shares));
            for (before, after) in shares.iter().zip(&again) {
                assert_eq!(before.active, after.active, "seed {seed}: a task moved");
            }
        }
    }
}
