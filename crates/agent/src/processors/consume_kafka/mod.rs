//! ConsumeKafka: records as FlowFiles, each once over crashes of the agent.
//!
//! # How a record comes once
//!
//! The position behind the last record goes into the processor's state in the commit that brings
//! the FlowFiles, and only when that is durable is it committed to the group. The state also
//! keeps the offset that the group is known to have. On a start, or when partitions are shared
//! out anew, the group's offset is asked for: from the known one up to our position, it is our
//! own lagging commit, and reading goes on at the position; anywhere else, another member has
//! read on or somebody has set it, and reading goes on there.
//!
//! A partition that is taken away while its records are on their way into the repository is
//! read from its last committed offset by the next member: those records may then be there twice.

mod files;
mod kind;
mod position;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use regex::Regex;

use self::files::{Encoding, FileSettings};
use self::position::Positions;
use super::kafka_properties::{brokers, security};
use super::{Next, Processor, ProcessorError, Settings};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::kafka::{
    Assignment, Cluster, Committed, End, Group, GroupSettings, KafkaError, Offsets, ReadOutcome,
    Reading, end_of, read,
};
use crate::patterns;
use crate::session::ProcessSession;

pub(super) use kind::KIND;

struct ConsumeKafka {
    cluster: Cluster,
    group: Group,
    topics: Topics,
    reset: Option<End>,
    reading: Reading,
    wait: Duration,
    files: FileSettings,
    /// Where reading goes on, of the partitions that are ours now.
    offsets: Offsets,
    /// What is on record; read at the first trigger.
    positions: Option<Positions>,
    /// Topics and their counts of partitions, as they were when the group was joined.
    known: Vec<(String, usize)>,
    looked: Instant,
}

/// Which topics are read.
enum Topics {
    Names(Vec<String>),
    Pattern(Regex),
}

impl ConsumeKafka {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let brokers = brokers(settings, "Kafka Brokers")?;
        let names = settings.needed("Topic Names")?;
        let topics = if settings.needed("Topic Name Format")? == "Patterns" {
            let pattern = patterns::whole_text(&names);
            Topics::Pattern(pattern.map_err(|error| format!("Topic Names: {error}"))?)
        } else {
            let names = names.split(',').map(|name| name.trim().to_owned());
            Topics::Names(names.filter(|name| !name.is_empty()).collect())
        };
        if matches!(&topics, Topics::Names(names) if names.is_empty()) {
            return Err("Topic Names names no topic".to_owned());
        }
        let client = settings
            .text("Client Name")?
            .unwrap_or_else(|| "thalweg-agent".to_owned());
        let group = GroupSettings {
            id: settings.needed("Group ID")?,
            session_timeout: settings.duration("Session Timeout")?,
        };
        Ok(ConsumeKafka {
            cluster: Cluster::new(brokers, client, security(settings)?),
            group: Group::new(group),
            topics,
            reset: match settings.needed("Offset Reset")?.as_str() {
                "earliest" => Some(End::Earliest),
                "latest" => Some(End::Latest),
                _ => None,
            },
            reading: Reading {
                is_committed_only: settings.flag("Honor Transactions")?,
                records_max: settings.integer("Max Poll Records")?,
            },
            wait: settings.duration("Max Poll Time")?,
            files: FileSettings {
                demarcator: settings.text("Message Demarcator")?.map(String::into_bytes),
                headers: files::names(settings.text("Headers To Add As Attributes")?)?,
                duplicates: files::duplicates(&settings.needed("Duplicate Header Handling")?),
                header_encoding: Encoding::of(&settings.needed("Message Header Encoding")?),
                key_encoding: Encoding::of(&settings.needed("Key Attribute Encoding")?),
            },
            offsets: Offsets::new(),
            positions: None,
            known: Vec::new(),
            looked: Instant::now(),
        })
    }

    /// Joins the group where that is due, and finds where to go on.
    fn join(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
    ) -> Result<(), ProcessorError> {
        let stops = || context.is_stopping();
        self.offsets.clear();
        self.known = self.look(&stops)?;
        self.looked = Instant::now();
        let topics: Vec<String> = self.known.iter().map(|(name, _)| name.clone()).collect();
        if topics.is_empty() {
            return Err(ProcessorError::Failed(
                "no topic fits Topic Names yet; it is looked for again".to_owned(),
            ));
        }
        let share = self
            .group
            .join(&mut self.cluster, &topics, &stops)
            .map_err(failed)?;
        let placed = self.place(context, session, &share);
        if placed.is_err() {
            // The share is not read: it is asked for again after a rest.
            self.group.rejoin();
        }
        placed
    }

    fn place(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
        share: &Assignment,
    ) -> Result<(), ProcessorError> {
        let stops = || context.is_stopping();
        let committed = self
            .group
            .offsets(&mut self.cluster, share, &stops)
            .map_err(failed)?;
        let positions = match &mut self.positions {
            Some(positions) => positions,
            none => none.insert(Positions::read(&session.state())),
        };
        let mut count = 0;
        for (topic, partitions) in share {
            for &partition in partitions {
                let key = (topic.clone(), partition);
                let of_group = committed.get(&key).copied().filter(|offset| *offset >= 0);
                let offset = match positions.resume(topic, partition, of_group) {
                    Some(offset) => offset,
                    None => {
                        let Some(end) = self.reset else {
                            return Err(ProcessorError::Failed(format!(
                                "the group has no offset of {topic}-{partition} and Offset Reset \
                                 is none: set an offset, or earliest or latest"
                            )));
                        };
                        end_of(
                            &mut self.cluster,
                            self.reading,
                            topic,
                            partition,
                            end,
                            &stops,
                        )
                        .map_err(failed)?
                    }
                };
                self.offsets.insert(key, offset);
                count += 1;
            }
        }
        tracing::info!(
            processor = context.name(),
            partitions = count,
            "joined the group"
        );
        Ok(())
    }

    /// The topics that are to be read, with their counts of partitions.
    fn look(&mut self, stops: &dyn Fn() -> bool) -> Result<Vec<(String, usize)>, ProcessorError> {
        let mut all = match &self.topics {
            Topics::Pattern(pattern) => {
                let mut all = self.cluster.all_topics(stops).map_err(failed)?;
                all.retain(|(name, _)| pattern.is_match(name));
                all
            }
            Topics::Names(names) => {
                let mut all = Vec::new();
                for name in names {
                    self.cluster.forget(name);
                    let count = self.cluster.partitions(name, stops).map_err(failed)?;
                    all.push((name.clone(), usize::try_from(count).unwrap_or(0)));
                }
                all
            }
        };
        all.sort();
        Ok(all)
    }

    /// Joins again when topics came, went or grew.
    fn look_again(&mut self, context: &Context) -> Result<(), ProcessorError> {
        if self.looked.elapsed() < LOOK_EACH {
            return Ok(());
        }
        self.looked = Instant::now();
        let stops = || context.is_stopping();
        if self.look(&stops)? != self.known {
            self.group.rejoin();
        }
        Ok(())
    }

    /// Reads, makes FlowFiles, commits them, then the offsets.
    fn poll(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let stops = || context.is_stopping();
        let deadline = Instant::now() + self.wait;
        let reads = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = left.min(FETCH_WAIT);
            let reads = read(&mut self.cluster, self.reading, &self.offsets, wait, &stops);
            let reads = reads.map_err(failed)?;
            if !reads.is_empty() || left.is_zero() || stops() || !self.group.is_joined() {
                break reads;
            }
        };
        let mut room = files::Room::new(self.reading.records_max);
        let mut moved = Offsets::new();
        for read in reads {
            let key = (read.topic, read.partition);
            match read.outcome {
                ReadOutcome::OutOfRange => self.reset(context, key, &stops)?,
                ReadOutcome::Records(records, next) => {
                    let next = self.files.make(session, &key, records, next, &mut room)?;
                    if let Some(next) = next {
                        moved.insert(key, next);
                    }
                }
            }
        }
        if moved.is_empty() {
            return Ok(Next::Scheduled);
        }
        let positions = self.positions.get_or_insert_default();
        for ((topic, partition), next) in &moved {
            let from = self.offsets.get(&(topic.clone(), *partition)).copied();
            positions.advance(topic, *partition, from.unwrap_or(*next), *next);
        }
        session.set_state(positions.to_bytes())?;
        let durable = session.commit_and_wait();
        if durable.is_err() {
            // What is on record counts, not what was not recorded.
            self.positions = None;
            self.group.rejoin();
        }
        durable?;
        self.offsets
            .extend(moved.iter().map(|(key, next)| (key.clone(), *next)));
        self.commit(context, &moved);
        if let Some(positions) = &self.positions {
            // What the group has now; lost with a crash, it is only found anew.
            session.set_state(positions.to_bytes())?;
            session.commit_lazily()?;
        }
        Ok(Next::Again)
    }

    /// Tells the group; what it does not take is told again with the next, or found on a start.
    fn commit(&mut self, context: &Context, moved: &Offsets) {
        let stops = || context.is_stopping();
        match self.group.commit(&mut self.cluster, moved, &stops) {
            Ok(Committed::Done) => {
                if let Some(positions) = &mut self.positions {
                    positions.committed(moved);
                }
            }
            Ok(Committed::Outdated) => {
                tracing::debug!("partitions are shared out anew");
            }
            Err(error) => {
                context.post(
                    Level::Warning,
                    &format!("offsets not committed yet: {error}"),
                );
            }
        }
    }

    fn reset(
        &mut self,
        context: &Context,
        (topic, partition): (String, i32),
        stops: &dyn Fn() -> bool,
    ) -> Result<(), ProcessorError> {
        let from = self
            .offsets
            .get(&(topic.clone(), partition))
            .copied()
            .unwrap_or(0);
        let Some(end) = self.reset else {
            return Err(ProcessorError::Failed(format!(
                "offset {from} of {topic}-{partition} is not there any more and Offset Reset is \
                 none: set the group's offset, or earliest or latest"
            )));
        };
        let offset = end_of(
            &mut self.cluster,
            self.reading,
            &topic,
            partition,
            end,
            stops,
        );
        let offset = offset.map_err(failed)?;
        context.post(
            Level::Warning,
            &format!(
                "offset {from} of {topic}-{partition} is not there any more; reading goes on at \
                 {offset}, what is missing was deleted before it was read"
            ),
        );
        if let Some(positions) = &mut self.positions {
            positions.forget(&topic, partition);
        }
        self.offsets.insert((topic, partition), offset);
        Ok(())
    }
}

impl Processor for ConsumeKafka {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        if !self.group.is_joined() {
            self.join(context, session)?;
        }
        self.look_again(context)?;
        if self.offsets.is_empty() {
            // Others have all partitions; a change of that ends the membership.
            return Ok(Next::Woken(SHARELESS_WAIT));
        }
        self.poll(context, session)
    }

    fn stop(&mut self) {
        self.group.leave(&mut self.cluster);
    }
}

fn failed(error: KafkaError) -> ProcessorError {
    ProcessorError::Failed(error.to_string())
}

/// Longest wait of one fetch, so that a stop and a rebalance are noticed.
const FETCH_WAIT: Duration = Duration::from_millis(500);

/// How often a member without partitions looks whether it is still one.
const SHARELESS_WAIT: Duration = Duration::from_secs(1);

/// How often topics are looked at.
const LOOK_EACH: Duration = Duration::from_secs(60);
