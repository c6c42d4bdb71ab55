//! The sources that are read: opened for the first statement, closed after the last.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use mqtt::SubscriptionId;
use tokio_util::sync::CancellationToken;

use super::Fusion;
use super::inputs::Held;
use super::listing::{Running, Statement};
use super::prepare::{kafka_name, no_mqtt, shown};
use crate::error::FusionError;
use crate::feed::Feed;
use crate::formats::Format;
use crate::group::{self, Group, Member};
use crate::lane::{Lane, Sequence};
use crate::output::Output;
use crate::plan::Source;
use crate::reader;
use crate::statement::{Definition, Start};
use crate::writer::Writer;

/// The sources that are read.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) open: HashMap<SourceKey, OpenSource>,
    /// The feeds that statements hold, also of sources that no running one reads.
    pub(super) feeds: HashMap<SourceKey, Weak<Feed>>,
    /// The sources of durable statements that could not be started.
    pub(super) held: HashMap<SourceKey, Held>,
    pub(super) is_closed: bool,
}

pub(super) struct OpenSource {
    pub(super) feed: Arc<Feed>,
    pub(super) input: Input,
}

pub(super) enum Input {
    Mqtt(SubscriptionId),
    /// Of a durable statement, which begins with what its input holds.
    Durable(SubscriptionId, CancellationToken),
    Kafka(CancellationToken),
    /// Statements give it its events.
    Stream,
}

/// What statements share a source by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceKey {
    pub(super) source: Source,
    pub(super) format: Format,
    /// A statement that reads a topic from its start reads by itself: the others need not wait. One
    /// whose input is kept has its own.
    pub(super) alone: Option<String>,
}

impl SourceKey {
    /// A statement's source.
    pub(super) fn of(definition: &Definition, source: &Source) -> Self {
        let is_alone = match source {
            Source::Kafka(_) => definition.start == Start::Earliest,
            Source::Mqtt(_) => definition.is_durable(),
            Source::Stream(_) => false,
        };
        SourceKey {
            source: source.clone(),
            format: match source {
                Source::Stream(_) => Format::Json,
                _ => definition.format.unwrap_or_default(),
            },
            alone: is_alone.then(|| definition.id.clone()),
        }
    }
}

/// A statement that is ready to join its source.
pub(super) struct Prepared {
    pub(super) lane: Arc<Lane>,
    pub(super) key: SourceKey,
    pub(super) more: Vec<SourceKey>,
    pub(super) sequence: Sequence,
    pub(super) outbox: Output,
}

impl Fusion {
    /// Lists the statements, joins them to their sources, opens those that are not open, and
    /// starts a writer for each.
    pub(super) fn start(
        &self,
        sources: &mut Sources,
        prepared: Vec<Prepared>,
    ) -> Result<(), FusionError> {
        let lanes = prepared.iter().map(|it| it.lane.clone());
        let awake = lanes.filter(|lane| !lane.definition.is_paused);
        // They hear the first rows, and begin when what they ask for is heard.
        let polls: Vec<_> = awake.map(|lane| (self.askers(&lane), lane)).collect();
        let mut by_source: Vec<(SourceKey, Vec<Arc<Lane>>)> = Vec::new();
        let mut places: HashMap<SourceKey, usize> = HashMap::new();
        for Prepared {
            key, more, lane, ..
        } in &prepared
        {
            // A group reads by itself.
            let keys = std::iter::once(key).chain(more);
            for key in keys.filter(|_| !lane.is_grouped()) {
                let place = *places.entry(key.clone()).or_insert_with(|| {
                    by_source.push((key.clone(), Vec::new()));
                    by_source.len() - 1
                });
                by_source[place].1.push(lane.clone());
            }
            self.chains.create(lane);
            if !lane.definition.is_paused {
                self.chains.join(lane);
            }
            let (source, sink) = shown(&lane.definition, &lane.plan);
            let policies = lane.definition.policies.as_ref();
            let group = policies.and_then(|policies| policies.group.as_deref());
            self.list(Statement {
                definition: lane.definition.clone(),
                source,
                sink,
                run: Ok(Running {
                    lane: lane.clone(),
                    key: key.clone(),
                    more: more.clone(),
                    group: group.map(Group::new),
                }),
            });
        }
        let (grouped, prepared): (Vec<_>, Vec<_>) =
            prepared.into_iter().partition(|it| it.lane.is_grouped());
        for Prepared { lane, .. } in grouped {
            if let Ok(running) = &self.find(&lane.definition.id)?.run
                && !lane.definition.is_paused
            {
                self.take_part(running);
            }
        }
        let mut to_open = Vec::new();
        let mut feeds: HashMap<SourceKey, Arc<Feed>> = HashMap::new();
        for (key, mut lanes) in by_source {
            let feed = self.feed(sources, &key);
            lanes.retain(|lane| !lane.definition.is_paused);
            if !lanes.is_empty() {
                feed.join(lanes);
                match sources.open.contains_key(&key) {
                    true => feed.set_repeated(),
                    false => to_open.push((key.clone(), feed.clone())),
                }
            }
            feeds.insert(key, feed);
        }
        for Prepared {
            key,
            more: _,
            lane,
            sequence,
            outbox,
        } in prepared
        {
            let writer = Writer {
                lane,
                feed: feeds[&key].clone(),
                chains: self.chains.clone(),
                store: self.store.clone(),
                mqtt: self.around.mqtt.clone(),
                bridges: self.around.bridges.clone(),
                tables: self.around.tables.clone(),
                poster: self.poster.clone(),
                journal: self.journal.clone(),
                clock: self.clock.clone(),
                checkpoint_interval: self.config.checkpoint_interval.0,
                sequence,
                closing: self.writing.clone(),
            };
            self.writers.spawn(writer.run(outbox));
        }
        for (key, feed) in to_open {
            let input = self.open_source(sources, &key, &feed)?;
            sources.open.insert(key, OpenSource { feed, input });
        }
        for (askers, lane) in polls {
            self.start_polls(&lane, askers);
        }
        Ok(())
    }

    /// The feed of a source: the one that statements hold already, or a new one.
    pub(super) fn feed(&self, sources: &mut Sources, key: &SourceKey) -> Arc<Feed> {
        if let Some(feed) = sources.feeds.get(key).and_then(Weak::upgrade) {
            return feed;
        }
        let prefix = self
            .letters
            .as_ref()
            .and_then(|letters| letters.mqtt_prefix());
        let skipped = prefix.filter(|prefix| match &key.source {
            // Who names the topics of dead letters wants them.
            Source::Mqtt(filter) => !filter.starts_with(prefix.as_str()),
            Source::Kafka(_) | Source::Stream(_) => false,
        });
        let feed = Feed::of(key.format, skipped);
        let feed = match key.is_durable() {
            true => feed.made_durable(),
            false => feed,
        };
        let feed = Arc::new(feed.linked(key.source.clone(), self.chains.clone()));
        sources.feeds.retain(|_, feed| feed.strong_count() > 0);
        sources.feeds.insert(key.clone(), Arc::downgrade(&feed));
        feed
    }

    pub(super) fn open_source(
        &self,
        sources: &mut Sources,
        key: &SourceKey,
        feed: &Arc<Feed>,
    ) -> Result<Input, FusionError> {
        match &key.source {
            Source::Stream(_) => Ok(Input::Stream),
            Source::Mqtt(filter) => {
                let server = self
                    .around
                    .mqtt
                    .as_ref()
                    .ok_or_else(|| no_mqtt("reads from"))?;
                let filter = filter
                    .parse()
                    .map_err(|error| FusionError::Refused(format!("mqtt.\"{filter}\": {error}")))?;
                if key.is_durable() {
                    let stop = self.reading.child_token();
                    if let Err(error) = self.open_input(key, feed, server, &stop) {
                        // Publishers wait rather than be told what is not so; the others go on.
                        let why = base::report(&error);
                        tracing::error!(why, "a durable statement takes nothing");
                        feed.set_trouble(Some(&why));
                    }
                    let subscription = match sources.held.remove(key) {
                        Some(held) => held.subscription,
                        None => server.subscribe(filter, feed.clone()),
                    };
                    return Ok(Input::Durable(subscription, stop));
                }
                Ok(Input::Mqtt(server.subscribe(filter, feed.clone())))
            }
            Source::Kafka(topic) => {
                let stop = self.reading.child_token();
                let topic = kafka_name(topic)?;
                self.readers.spawn(reader::run(
                    feed.clone(),
                    self.store.clone(),
                    topic,
                    stop.clone(),
                ));
                Ok(Input::Kafka(stop))
            }
        }
    }

    /// Has this process take part in a statement's group.
    pub(super) fn take_part(&self, running: &Running) {
        let Some(group) = &running.group else { return };
        let stop = group.starts(&self.reading);
        let member = Member {
            shell: running.lane.clone(),
            group: group.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            interval: self.config.checkpoint_interval.0,
        };
        self.readers.spawn(group::run(member, stop));
    }

    pub(super) fn leave(&self, sources: &mut Sources, running: &Running) {
        if let Some(group) = &running.group {
            group.stop();
        }
        if let Some(poll) = running.lane.poll() {
            poll.stop();
        }
        for key in std::iter::once(&running.key).chain(&running.more) {
            let Some(open) = sources.open.get(key) else {
                continue;
            };
            if open.feed.leave(&running.lane) {
                self.stop(open);
                if let (Input::Durable(subscription, _), Some(server)) =
                    (&open.input, &self.around.mqtt)
                {
                    server.unsubscribe(*subscription);
                }
                sources.open.remove(key);
            }
        }
        self.chains.leave(&running.lane);
    }

    /// Ends a source; publishers to a durable one are held back until it is unsubscribed, or their
    /// links end.
    pub(super) fn stop(&self, open: &OpenSource) {
        match (&open.input, &self.around.mqtt) {
            (Input::Mqtt(subscription), Some(server)) => server.unsubscribe(*subscription),
            (Input::Mqtt(_), None) | (Input::Stream, _) => {}
            (Input::Kafka(stop), _) => stop.cancel(),
            (Input::Durable(_, stop), _) => {
                stop.cancel();
                open.feed.close_input();
            }
        }
    }
}
