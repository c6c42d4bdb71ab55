//! A process's part in a group: takes partitions over, reads them, writes what they come to, and
//! gives them up again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, Rng};
use streams::transactions::TransactionError;
use streams::{
    ConsumedRecord, Consumer, ConsumerConfig, EventStore, FencedWriter, Isolation, SeekTo,
    StreamsError, TopicName,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::form::Form;
use super::share::{Places, Share};
use super::{CLIENT_ID, Group, log};
use crate::lane::checkpoint::decode;
use crate::lane::{Lane, Target};
use crate::limits::{CLOSE_WAIT, GROUP_FORM_WAIT, GROUP_LOOK, GROUP_SESSION, POLL_BYTES_MAX};
use crate::retry::Retries;

/// What a part in a group works with.
pub struct Member {
    /// The lane that the statement is listed by: it has the first positions and no state.
    pub shell: Arc<Lane>,
    /// The group.
    pub group: Arc<Group>,
    /// The event store.
    pub store: Arc<dyn EventStore>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// State without rows is written at most this often.
    pub interval: Duration,
}

/// Why a part in a group ended.
#[derive(Debug)]
enum Broken {
    /// The store failed, or what it holds is about to change: tried again.
    Store(StreamsError),
    /// The group's state is of another form: tried again when it is not.
    Refused(String),
}

/// A part in a group at work.
struct Part<'m> {
    with: &'m Member,
    source: TopicName,
    log: TopicName,
    form: Form,
    member: Box<dyn Consumer>,
    reader: Box<dyn Consumer>,
    shares: BTreeMap<i32, Share>,
    /// A partition was lost: before then none is taken.
    waits_until: Option<Instant>,
    told: Instant,
}

/// Takes part in the group until `stop`; tries again after every failure.
pub async fn run(with: Member, stop: CancellationToken) {
    let _turn = with.group.turn.lock().await;
    let (mut retries, mut looks) = (Retries::new(), Retries::within(GROUP_FORM_WAIT));
    loop {
        let why = match with.take_part(&stop).await {
            Ok(()) => return,
            Err(Broken::Store(error)) => format!(
                "cannot take part in the group '{}': {}",
                with.group.name,
                base::report(&error)
            ),
            Err(Broken::Refused(why)) => {
                with.say(Some(why));
                if !with.is_welcome(&mut looks, &stop).await {
                    return;
                }
                with.say(None);
                continue;
            }
        };
        with.say(Some(why));
        if !retries.rest(&stop).await {
            return;
        }
    }
}

impl Member {
    /// Waits until the group's state is of the statement's form, or is gone; false when `stop` comes
    /// first. It looks without joining: the others would share their partitions anew each time.
    async fn is_welcome(&self, looks: &mut Retries, stop: &CancellationToken) -> bool {
        while looks.rest(stop).await {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                found = self.difference() => found,
            };
            match found {
                Ok(None) => return true,
                Ok(Some(difference)) => self.say(Some(self.foreign(&difference))),
                Err(error) => self.say(Some(format!(
                    "cannot look at the form of the group '{}': {}",
                    self.group.name,
                    base::report(&error)
                ))),
            }
        }
        false
    }

    /// What differs of the form in which the group's state is now.
    async fn difference(&self) -> Result<Option<String>, StreamsError> {
        let log: TopicName = self.group.log().parse()?;
        let kept = log::form(&*self.store, &log).await?;
        Ok(kept.and_then(|kept| Form::of(&self.shell).difference(&kept)))
    }

    fn foreign(&self, difference: &str) -> String {
        let name = &self.group.name;
        format!(
            "the group '{name}' {difference}: add this one with another group, or with the same form \
             everywhere"
        )
    }

    async fn take_part(&self, stop: &CancellationToken) -> Result<(), Broken> {
        let topic = self.shell.plan.kafka_topics().next().unwrap_or_default();
        let source: TopicName = topic.parse().map_err(StreamsError::from)?;
        let log: TopicName = self.group.log().parse().map_err(StreamsError::from)?;
        let config = ConsumerConfig {
            session_timeout: GROUP_SESSION,
            reads: false,
            ..ConsumerConfig::in_group(self.group.consumer_group(), CLIENT_ID)
        };
        let mut member = self.store.consumer(config).await?;
        member.subscribe(vec![source.clone()]).await?;
        let config = ConsumerConfig {
            isolation: Isolation::Committed,
            ..ConsumerConfig::alone(CLIENT_ID)
        };
        let mut part = Part {
            with: self,
            source,
            log,
            form: Form::of(&self.shell),
            member,
            reader: self.store.consumer(config).await?,
            shares: BTreeMap::new(),
            waits_until: None,
            told: Instant::now(),
        };
        let ended = part.run(stop).await;
        let all: Vec<i32> = part.shares.keys().copied().collect();
        let last = async {
            part.commit(all).await;
            part.tell_offsets().await;
        };
        if tokio::time::timeout(CLOSE_WAIT, last).await.is_err() {
            let statement = &self.shell.definition.name;
            tracing::warn!(
                statement,
                "a part in a group ended without a last checkpoint"
            );
        }
        self.group.shares.lock().clear();
        // Others get the partitions at once.
        let left = part.member.close().await;
        part.reader.close().await?;
        ended.and(left.map_err(Broken::from))
    }

    /// Deletes what the log needs no more.
    async fn cut(&self, log: &TopicName, partition: i32, offset: i64) {
        let cut = self.store.delete_records(log, partition, Some(offset));
        if let Err(error) = cut.await {
            let (topic, error) = (log.display(), base::report(&error));
            tracing::warn!(
                topic,
                partition,
                error,
                "a group's old state was not deleted"
            );
        }
    }

    fn say(&self, trouble: Option<String>) {
        if let Some(why) = &trouble {
            let statement = &self.shell.definition.name;
            tracing::warn!(statement, why, "a statement's part in a group is stuck");
        }
        self.shell.state.lock().trouble = trouble;
    }
}

impl Part<'_> {
    async fn run(&mut self, stop: &CancellationToken) -> Result<(), Broken> {
        loop {
            self.member.poll(Duration::ZERO, 1).await?;
            self.share_out(stop).await?;
            let now = self.with.clock.now();
            self.shares.values().for_each(|share| share.tick(now));
            let interval = self.with.interval;
            let due = self.shares.values().filter(|share| share.is_due(interval));
            let due: Vec<i32> = due.map(|share| share.partition).collect();
            self.commit(due).await;
            if self.told.elapsed() >= interval.max(GROUP_LOOK) {
                self.tell_offsets().await;
            }
            let next = self.shares.values();
            let next = next.filter_map(|share| share.next(now, interval)).min();
            let pause = next.map_or(GROUP_LOOK, |next| next.clamp(TICK, GROUP_LOOK));
            let records = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause), if self.shares.is_empty() => continue,
                polled = self.reader.poll(pause, POLL_BYTES_MAX), if !self.shares.is_empty() => polled?,
            };
            self.apply(&records).await;
        }
    }

    async fn apply(&mut self, records: &[ConsumedRecord]) {
        let bytes = |record: &ConsumedRecord| record.value.as_ref().map_or(0, |value| value.len());
        let is_caught_up = records.iter().map(bytes).sum::<usize>() < POLL_BYTES_MAX / 2;
        let mut at = 0;
        while let Some(first) = records.get(at) {
            let rest = records[at..].iter();
            let of_it = rest.take_while(|record| record.partition == first.partition);
            let end = at + of_it.count();
            // One that was lost meanwhile reads them again.
            while at < end
                && let Some(share) = self.shares.get_mut(&first.partition)
            {
                let applied = share.apply(&records[at..end]);
                at += applied;
                match applied {
                    0 => self.commit(vec![first.partition]).await,
                    _ => tokio::task::yield_now().await,
                }
            }
            at = end;
        }
        for share in self.shares.values_mut() {
            share.set_caught_up(is_caught_up);
        }
    }

    /// Gives up what the group took away and takes over what it gave.
    async fn share_out(&mut self, stop: &CancellationToken) -> Result<(), Broken> {
        let held = self.member.assignment().into_iter();
        let held: BTreeSet<i32> = held
            .filter(|(topic, _)| *topic == self.source)
            .map(|(_, partition)| partition)
            .collect();
        let known = self.shares.keys().copied();
        let gone: Vec<i32> = known.filter(|known| !held.contains(known)).collect();
        let is_fresh = |partition: &i32| !self.shares.contains_key(partition);
        let mut fresh: Vec<i32> = held.into_iter().filter(is_fresh).collect();
        if self.waits_until.is_some_and(|until| Instant::now() < until) {
            fresh.clear();
        }
        if gone.is_empty() && fresh.is_empty() {
            return Ok(());
        }
        self.waits_until = None;
        self.commit(gone.clone()).await;
        gone.iter().for_each(|gone| drop(self.shares.remove(gone)));
        if !fresh.is_empty() {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                taken = self.take_over(fresh) => taken?,
            }
        }
        self.list();
        let places = self.shares.keys();
        let places = places.map(|partition| (self.source.clone(), *partition));
        self.reader.assign(places.collect()).await?;
        let positions = self.shares.values();
        let positions = positions.map(|share| (share.partition, share.position()));
        for (partition, position) in positions.collect::<Vec<_>>() {
            let at = SeekTo::Offset(position);
            self.reader.seek(&self.source, partition, at).await?;
        }
        self.with.say(None);
        let statement = &self.with.shell.definition.name;
        let partitions = self.shares.len();
        tracing::info!(statement, partitions, "a group has shared its partitions");
        Ok(())
    }

    async fn take_over(&mut self, fresh: Vec<i32>) -> Result<(), Broken> {
        let store = &self.with.store;
        let info = store.topic(&self.source).await?;
        log::ready(&**store, &self.log, info.partitions).await?;
        let mut targets = Vec::new();
        for target in &self.with.shell.targets {
            if let Target::Kafka { topic, .. } = target {
                targets.push((topic.clone(), store.partitions_or_create(topic).await?));
            }
        }
        let mut writers = self.claim(fresh).await?;
        let claims = writers.iter().map(|(of, (_, number))| (*of, *number));
        let mut found = log::load(&**store, &self.log, &claims.collect()).await?;
        // Before any is taken: one that is new would be written in this form.
        let mut forms = found.values().filter_map(|found| found.kept.as_ref());
        if let Some(difference) = forms.find_map(|(form, _)| self.form.difference(form)) {
            return Err(Broken::Refused(self.with.foreign(&difference)));
        }
        while let Some((partition, (writer, _))) = writers.pop_first() {
            let found = found.remove(&partition).unwrap_or_default();
            let index = usize::try_from(partition).unwrap_or(0);
            let is_new = found.kept.is_none();
            let (machine, positions) = {
                let state = self.with.shell.state.lock();
                (state.machine.clone(), state.positions.clone())
            };
            let (machine, positions) = match found.kept {
                None => (machine, positions),
                Some((_, kept)) => {
                    let restored = decode(machine, &kept).ok_or(StreamsError::Unreadable(
                        "the state of a statement's group, which does not fit it",
                    ))?;
                    (restored.machine, restored.positions)
                }
            };
            // A partition that came after the statement is read from its start.
            let position = positions.get(index).copied().unwrap_or(0);
            let places = Places {
                log: self.log.clone(),
                form: self.form.bytes(),
                targets: targets
                    .iter()
                    .map(|(topic, count)| (topic.clone(), partition % count.max(&1)))
                    .collect(),
            };
            let end = info.partition_offsets.get(index).map_or(0, |it| it.end);
            let share = Share::new(
                &self.with.shell,
                partition,
                (machine, position),
                (writer, places),
                (end, is_new),
            );
            self.shares.insert(partition, share);
        }
        Ok(())
    }

    /// Takes the names of partitions, and says so in the log; without those that somebody else
    /// takes at the same time.
    async fn claim(&mut self, fresh: Vec<i32>) -> Result<Claimed, Broken> {
        let mut rng = Rng::from_entropy();
        let mut claims = JoinSet::new();
        for partition in fresh {
            let (store, log) = (self.with.store.clone(), self.log.clone());
            let (name, number) = (self.with.group.writer(partition), rng.next_u64());
            claims.spawn(async move {
                let mut writer = store.fenced_writer(&name).await?;
                let claim = log::claim(&log, partition, number);
                writer.store(vec![claim]).await?;
                Ok::<_, StreamsError>((partition, (writer, number)))
            });
        }
        let mut writers = Claimed::new();
        for claimed in claims.join_all().await {
            match claimed {
                Ok((partition, claim)) => drop(writers.insert(partition, claim)),
                Err(error) if is_fenced(&error) => self.wait(),
                Err(error) => return Err(Broken::Store(error)),
            }
        }
        Ok(writers)
    }

    /// Writes what these partitions have come to; those that cannot are lost, and taken anew if they
    /// are still this process's.
    async fn commit(&mut self, partitions: Vec<i32>) {
        let mut commits = JoinSet::new();
        for partition in partitions {
            if let Some(mut share) = self.shares.remove(&partition) {
                commits.spawn(async move { (share.commit().await, share) });
            }
        }
        while let Some(committed) = commits.join_next().await {
            // Otherwise the runtime is going down.
            let Ok((committed, share)) = committed else {
                continue;
            };
            let partition = share.partition;
            match committed {
                Ok(cut) => {
                    self.shares.insert(partition, share);
                    if let Some(offset) = cut {
                        self.with.cut(&self.log, partition, offset).await;
                    }
                }
                Err(error) => {
                    if !is_fenced(&error) {
                        self.with.say(Some(format!(
                            "cannot write what partition {partition} has come to: {}",
                            base::report(&error)
                        )));
                    }
                    self.wait();
                    self.list();
                }
            }
        }
    }

    /// Commits the positions to the group, for those who look at its lag.
    async fn tell_offsets(&mut self) {
        self.told = Instant::now();
        let offsets = self.shares.values().map(|share| {
            (
                self.source.clone(),
                share.partition,
                share.position(),
                String::new(),
            )
        });
        let offsets: Vec<_> = offsets.collect();
        if offsets.is_empty() {
            return;
        }
        if let Err(error) = self.member.commit(Some(offsets)).await {
            // While partitions are shared anew there is nobody to take them.
            tracing::debug!(
                error = base::report(&error),
                "a group's offsets were not told"
            );
        }
    }

    fn list(&self) {
        let shares = self.shares.iter();
        let lanes = shares.map(|(partition, share)| (*partition, share.lane.clone()));
        *self.with.group.shares.lock() = lanes.collect();
    }

    /// Lets some time pass before partitions are taken again: who has lost one may be about to hear
    /// that it is no member any more.
    fn wait(&mut self) {
        self.waits_until = Some(Instant::now() + GROUP_LOOK);
    }
}

type Claimed = BTreeMap<i32, (Box<dyn FencedWriter>, u64)>;

impl From<StreamsError> for Broken {
    fn from(error: StreamsError) -> Self {
        Broken::Store(error)
    }
}

fn is_fenced(error: &StreamsError) -> bool {
    let fenced = &TransactionError::Fenced;
    matches!(error, StreamsError::Transaction { reason, .. } if reason == fenced)
}

/// The shortest pause, so that a clock that lags behind its timer does not spin.
const TICK: Duration = Duration::from_millis(1);
