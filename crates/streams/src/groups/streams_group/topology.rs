//! What a Kafka Streams application is made of, and which tasks and topics that comes to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::super::{Catalog, GroupError};

/// An application's topology, as its members tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// A later topology of the same application has a higher one.
    pub epoch: i32,
    /// Its parts, which are joined by topics alone.
    pub subtopologies: Vec<Subtopology>,
}

/// A part of a topology: a task of it reads one partition of each of its topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtopology {
    /// Its id within the topology.
    pub id: Arc<str>,
    /// Topics that it reads and that others make.
    pub sources: Vec<String>,
    /// Internal topics that it reads.
    pub repartition_sources: Vec<InternalTopic>,
    /// Internal topics that it writes.
    pub repartition_sinks: Vec<String>,
    /// Internal topics that keep its states.
    pub changelogs: Vec<InternalTopic>,
    /// Sets of the topics that it reads which must have as many partitions as each other.
    pub copartitioned: Vec<BTreeSet<Arc<str>>>,
}

/// A topic that the application has for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InternalTopic {
    /// Its name, as on the wire.
    pub name: String,
    /// How many partitions it has; 0 when that follows from others.
    pub partitions: i32,
    /// How many replicas; 0 for as many as usual.
    pub replication_factor: i16,
    /// Its settings.
    pub configs: Vec<(String, String)>,
}

/// Something that members are told of their group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNotice {
    /// What it is about.
    pub kind: NoticeKind,
    /// The same for people.
    pub detail: String,
}

/// What a [`GroupNotice`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The member has an older topology than the others.
    StaleTopology,
    /// A topic that the application reads is not there.
    MissingSourceTopics,
    /// Topics have other numbers of partitions than the application needs.
    IncorrectlyPartitionedTopics,
    /// An internal topic is not there yet.
    MissingInternalTopics,
    /// A member has asked all to end.
    ShutdownApplication,
    /// Tasks are given out a little later, as more members may come.
    AssignmentDelayed,
}

/// What a topology comes to with the topics that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The subtopologies with their tasks; none while something is wrong.
    pub(super) work: BTreeMap<Arc<str>, Work>,
    /// What is wrong.
    pub(super) problem: Option<GroupNotice>,
    /// The internal topics that are still to be made.
    pub(super) missing: Vec<InternalTopic>,
    /// The subtopology that reads a topic, by topic id.
    pub(super) readers: HashMap<Uuid, Arc<str>>,
}

/// What is to be done for a subtopology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// How many tasks it has.
    pub(super) tasks: i32,
    /// Whether its tasks keep states, so that stand-bys may follow them.
    pub(super) is_stateful: bool,
    /// The topics that it reads, with their ids and numbers of partitions.
    pub(super) topics: Vec<(String, Uuid, i32)>,
}

impl Subtopology {
    /// Every topic that it reads.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &str> {
        let internal = self.repartition_sources.iter();
        let sources = self.sources.iter().map(String::as_str);
        sources.chain(internal.map(|topic| topic.name.as_str()))
    }
}

impl Topology {
    /// Every topic that the application reads or has for itself.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.subtopologies.iter().flat_map(|of| {
            let changelogs = of.changelogs.iter().map(|topic| topic.name.as_str());
            of.inputs().chain(changelogs)
        })
    }

    /// About the memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let internal = |topic: &InternalTopic| {
            let configs = topic.configs.iter();
            let configs = configs.map(|(name, value)| name.len() + value.len() + TEXT_BYTES);
            topic.name.len() + TEXT_BYTES + configs.sum::<usize>()
        };
        let texts = |texts: &[String]| {
            let each = texts.iter().map(|text| text.len() + TEXT_BYTES);
            each.sum::<usize>()
        };
        // The names are told once, however many sets have them.
        let sets = |sets: &[BTreeSet<Arc<str>>]| {
            let each = sets.iter().map(|set| (set.len() + 1) * TEXT_BYTES);
            each.sum::<usize>()
        };
        let each = self.subtopologies.iter().map(|of| {
            let own = of.repartition_sources.iter().chain(&of.changelogs);
            texts(&of.sources)
                + texts(&of.repartition_sinks)
                + own.map(internal).sum::<usize>()
                + sets(&of.copartitioned)
                + of.id.len()
        });
        each.sum()
    }

    /// Whether it is one at all, and no larger than a plan may cost.
    fn check(&self) -> Result<(), GroupError> {
        let ids: BTreeSet<&str> = self.subtopologies.iter().map(|of| &*of.id).collect();
        if ids.len() < self.subtopologies.len() {
            let reason = "two subtopologies have one id";
            return Err(GroupError::InvalidTopology(reason.to_owned()));
        }
        let sinks = self.subtopologies.iter();
        let sinks: usize = sinks.map(|of| of.repartition_sinks.len()).sum();
        if ids.len() > SUBTOPOLOGIES_MAX || self.topics().count() + sinks > TOPICS_MAX {
            let reason = format!(
                "it has more than {SUBTOPOLOGIES_MAX} subtopologies or {TOPICS_MAX} topics"
            );
            return Err(GroupError::InvalidTopology(reason));
        }
        Ok(())
    }

    /// What it comes to with the topics of the catalog.
    pub(super) fn plan(&self, catalog: &dyn Catalog) -> Result<Plan, GroupError> {
        self.check()?;
        let mut counts = Counts::of(self);
        let missing = counts.look_up(self, catalog);
        if !missing.is_empty() {
            let detail = format!("Source topics {} are missing.", listed(&missing));
            return Ok(Plan::waiting(NoticeKind::MissingSourceTopics, detail));
        }
        counts.follow(self)?;
        if let Err(detail) = counts.even_out(self) {
            let kind = NoticeKind::IncorrectlyPartitionedTopics;
            return Ok(Plan::waiting(kind, detail));
        }
        let mut plan = Plan::default();
        let mut is_here = |topic: &InternalTopic, partitions: i32| match catalog.topic(&topic.name)
        {
            Some((_, count)) if count == partitions => Ok(()),
            Some((_, count)) => Err(format!(
                "Internal topic {} has {count} partitions where {partitions} are needed.",
                topic.name
            )),
            None => {
                let topic = topic.clone();
                plan.missing.push(InternalTopic {
                    partitions,
                    ..topic
                });
                Ok(())
            }
        };
        let mut tasks_in_all = 0_i64;
        for of in &self.subtopologies {
            let tasks = of.inputs().filter_map(|name| counts.get(name)).max();
            let tasks = tasks.unwrap_or(0);
            tasks_in_all += i64::from(tasks);
            let repartition = of.repartition_sources.iter();
            let repartition = repartition.map(|topic| (topic, counts.get(&topic.name)));
            let repartition = repartition.map(|(topic, count)| (topic, count.unwrap_or(tasks)));
            let changelogs = of.changelogs.iter().map(|topic| (topic, tasks));
            for (topic, partitions) in repartition.chain(changelogs) {
                if let Err(detail) = is_here(topic, partitions) {
                    let kind = NoticeKind::IncorrectlyPartitionedTopics;
                    return Ok(Plan::waiting(kind, detail));
                }
            }
        }
        if tasks_in_all > TASKS_MAX {
            let reason = format!("it comes to more than {TASKS_MAX} tasks");
            return Err(GroupError::InvalidTopology(reason));
        }
        if !plan.missing.is_empty() {
            plan.missing.sort_by(|a, b| a.name.cmp(&b.name));
            plan.missing.dedup_by(|a, b| a.name == b.name);
            let names: BTreeSet<&str> = plan.missing.iter().map(|t| t.name.as_str()).collect();
            plan.problem = Some(GroupNotice {
                kind: NoticeKind::MissingInternalTopics,
                detail: format!("Internal topics are missing: {}.", listed(&names)),
            });
            return Ok(plan);
        }
        for of in &self.subtopologies {
            let topics = of.inputs().filter_map(|name| {
                let (id, count) = catalog.topic(name)?;
                Some((name.to_owned(), id, count))
            });
            let topics: Vec<(String, Uuid, i32)> = topics.collect();
            for (_, id, _) in &topics {
                plan.readers.insert(*id, Arc::clone(&of.id));
            }
            let tasks = topics.iter().map(|(_, _, count)| *count).max();
            let work = Work {
                tasks: tasks.unwrap_or(0),
                is_stateful: !of.changelogs.is_empty(),
                topics,
            };
            plan.work.insert(Arc::clone(&of.id), work);
        }
        Ok(plan)
    }
}

impl Plan {
    fn waiting(kind: NoticeKind, detail: String) -> Self {
        Plan {
            problem: Some(GroupNotice { kind, detail }),
            ..Plan::default()
        }
    }
}

/// How many partitions each topic that is read has, or is to have.
struct Counts<'a> {
    counts: BTreeMap<&'a str, i32>,
    /// The internal ones, with what was said of them; 0 for nothing.
    internal: BTreeMap<&'a str, i32>,
}

impl<'a> Counts<'a> {
    fn of(topology: &'a Topology) -> Self {
        let all = topology.subtopologies.iter();
        let internal = all.flat_map(|of| &of.repartition_sources);
        Counts {
            counts: BTreeMap::new(),
            internal: internal
                .map(|topic| (topic.name.as_str(), topic.partitions))
                .collect(),
        }
    }

    fn get(&self, name: &str) -> Option<i32> {
        self.counts.get(name).copied()
    }

    /// Takes in the topics that others make, and what was said of the internal ones; answers those
    /// that are not there.
    fn look_up(&mut self, topology: &'a Topology, catalog: &dyn Catalog) -> BTreeSet<&'a str> {
        let said = self.internal.iter().filter(|(_, said)| **said > 0);
        self.counts.extend(said);
        let all = topology.subtopologies.iter().flat_map(|of| &of.sources);
        let mut missing = BTreeSet::new();
        for name in all.map(String::as_str) {
            match catalog.topic(name) {
                _ if self.internal.contains_key(name) => {}
                Some((_, count)) => drop(self.counts.insert(name, count)),
                None => drop(missing.insert(name)),
            }
        }
        missing
    }

    /// An internal topic of which nothing was said has as many partitions as whoever writes to it has
    /// tasks.
    fn follow(&mut self, topology: &'a Topology) -> Result<(), GroupError> {
        let mut writers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, of) in topology.subtopologies.iter().enumerate() {
            for sink in &of.repartition_sinks {
                writers.entry(sink).or_default().push(at);
            }
        }
        loop {
            let is_open = |name: &&&str| !self.counts.contains_key(**name);
            let open: Vec<&str> = self.internal.keys().filter(is_open).copied().collect();
            if open.is_empty() {
                return Ok(());
            }
            let before = self.counts.len();
            // What each subtopology comes to, as far as all that it reads is known.
            let tasks = topology.subtopologies.iter().map(|of| {
                let known: Option<Vec<i32>> = of.inputs().map(|name| self.get(name)).collect();
                known.and_then(|known| known.into_iter().max())
            });
            let tasks: Vec<Option<i32>> = tasks.collect();
            for name in &open {
                let writers = writers.get(name).into_iter().flatten();
                let known: Option<Vec<i32>> = writers.map(|at| tasks[*at]).collect();
                if let Some(most) = known.and_then(|known| known.into_iter().max()) {
                    self.counts.insert(name, most);
                }
            }
            if self.counts.len() == before {
                let open = listed(&open.into_iter().collect());
                let reason = format!("nothing says how many partitions {open} has");
                return Err(GroupError::InvalidTopology(reason));
            }
        }
    }

    /// Gives internal topics as many partitions as those have that are read together with them.
    fn even_out(&mut self, topology: &'a Topology) -> Result<(), String> {
        for set in topology
            .subtopologies
            .iter()
            .flat_map(|of| &of.copartitioned)
        {
            let said_of = |name: &str| self.internal.get(name).copied();
            let (free, firm): (Vec<&Arc<str>>, Vec<&Arc<str>>) =
                set.iter().partition(|name| said_of(name) == Some(0));
            let held: BTreeSet<i32> = firm.iter().filter_map(|name| self.get(name)).collect();
            if held.len() > 1 {
                let each = firm.iter().map(|name| {
                    let count = self.get(name).unwrap_or(0);
                    format!("{name}: {count}")
                });
                let each: Vec<String> = each.take(NAMED_MAX).collect();
                return Err(format!(
                    "Topics that are read together have different numbers of partitions ({}).",
                    each.join(", ")
                ));
            }
            let free_most = free.iter().filter_map(|name| self.get(name)).max();
            let Some(count) = held.first().copied().or(free_most) else {
                continue;
            };
            for name in free {
                self.counts.insert(name, count);
            }
        }
        Ok(())
    }
}

/// The first names, for people.
fn listed(names: &BTreeSet<&str>) -> String {
    let first = names.iter().take(NAMED_MAX).copied();
    let first = first.collect::<Vec<&str>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// What a text takes beside its bytes.
const TEXT_BYTES: usize = 24;

/// How many names a notice has: every heartbeat is answered with it.
const NAMED_MAX: usize = 20;

/// Most tasks of one application: each takes memory with whoever has it.
const TASKS_MAX: i64 = 100_000;

/// Most parts and topics of one: what they come to is seen to under the coordinator's lock.
const SUBTOPOLOGIES_MAX: usize = 1_000;
const TOPICS_MAX: usize = 10_000;
