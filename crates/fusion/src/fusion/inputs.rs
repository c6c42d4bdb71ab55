//! The inputs of durable statements on the disk: one folder each, named after statement, source and
//! format, so that no other form of a statement finds what is not its own.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use journal::{Durability, RealDisk};
use mqtt::{Server, SubscriptionId};
use tokio_util::sync::CancellationToken;

use super::Fusion;
use super::prepare::compile;
use super::sources::{SourceKey, Sources};
use crate::digest;
use crate::error::FusionError;
use crate::feed::Feed;
use crate::input::{InputLog, InputOptions};
use crate::limits::INPUT_BYTES_MAX;
use crate::plan::Source;
use crate::statement::Definition;

impl SourceKey {
    /// Whether it is a durable statement's.
    pub(super) fn is_durable(&self) -> bool {
        self.alone.is_some() && matches!(self.source, Source::Mqtt(_))
    }
}

/// A durable statement's source that nobody reads: its publishers wait.
pub(super) struct Held {
    _feed: Arc<Feed>,
    pub(super) subscription: SubscriptionId,
}

impl Fusion {
    /// Has the publishers to a durable statement that could not be started wait until it is, or goes.
    pub(super) fn hold_publishers(&self, sources: &mut Sources, definition: &Definition) {
        if !definition.is_durable() || definition.is_paused {
            return;
        }
        // What does not compile says nothing of its source.
        let Ok(plan) = compile(definition, &self.catalog()) else {
            return;
        };
        let key = SourceKey::of(definition, &plan.source);
        let (Source::Mqtt(filter), Some(server)) = (&key.source, &self.around.mqtt) else {
            return;
        };
        let Ok(filter) = filter.parse() else { return };
        if !sources.held.contains_key(&key) {
            let feed = self.feed(sources, &key);
            let subscription = server.subscribe(filter, feed.clone());
            let held = Held {
                _feed: feed,
                subscription,
            };
            sources.held.insert(key, held);
        }
    }

    /// Has nobody wait for this statement any more that could not be started.
    pub(super) fn let_publishers_go(&self, sources: &mut Sources, id: &str) {
        let Some(server) = &self.around.mqtt else {
            return;
        };
        sources.held.retain(|key, held| {
            let is_its = key.alone.as_deref() == Some(id);
            if is_its {
                server.unsubscribe(held.subscription);
            }
            !is_its
        });
    }

    /// Opens a durable statement's input, and has it take what it had not had of it.
    pub(super) fn open_input(
        &self,
        key: &SourceKey,
        feed: &Arc<Feed>,
        server: &Server,
        stop: &CancellationToken,
    ) -> Result<(), FusionError> {
        let (_, positions) = feed.positions();
        let next = positions.first().copied().unwrap_or(0);
        let options = InputOptions {
            // What is acknowledged outlives the process at least.
            need: server.durability().max(Durability::Os),
            message_bytes_max: server.packet_bytes_max(),
            bytes_max: INPUT_BYTES_MAX,
        };
        let from = u64::try_from(next).unwrap_or(0);
        let (log, frames) =
            InputLog::open(Arc::new(RealDisk), &self.input_dir(key), options, from)?;
        let log = Arc::new(log);
        {
            let mut logs = self.input_logs.lock();
            logs.retain(|log| log.strong_count() > 0);
            logs.push(Arc::downgrade(&log));
        }
        feed.open_input(log);
        let (feed, stop) = (feed.clone(), stop.clone());
        self.readers
            .spawn(async move { feed.repeat(frames, stop).await });
        Ok(())
    }

    /// Whether a failed write or sync has stopped the journal of statements, or a durable statement's
    /// input, until it is opened again.
    pub fn is_poisoned(&self) -> bool {
        let mut logs = self.input_logs.lock();
        logs.retain(|log| log.strong_count() > 0);
        let mut open = logs.iter().filter_map(Weak::upgrade);
        self.journal.is_poisoned() || open.any(|log| log.is_poisoned())
    }

    /// Removes what was kept of a source that is not read any more.
    pub(super) fn forget_input(&self, key: &SourceKey) {
        if key.is_durable() {
            remove(&self.input_dir(key));
        }
    }

    /// Removes inputs that belong to no statement: a crash came between its end and theirs.
    pub(super) fn sweep_inputs(&self) {
        let Ok(entries) = std::fs::read_dir(&self.inputs) else {
            return;
        };
        let (mut wanted, mut unknown) = (HashSet::new(), HashSet::new());
        for statement in self.statements.read().values() {
            match &statement.run {
                Ok(running) => wanted.insert(name_of(&running.key)),
                // Which source it has is not known before it starts.
                Err(_) => unknown.insert(digest::of(statement.definition.id.as_bytes())),
            };
        }
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.split('-').next().unwrap_or_default();
            if !wanted.contains(&name) && !unknown.contains(owner) {
                remove(&entry.path());
            }
        }
    }

    fn input_dir(&self, key: &SourceKey) -> PathBuf {
        self.inputs.join(name_of(key))
    }
}

fn name_of(key: &SourceKey) -> String {
    let id = key.alone.as_deref().unwrap_or_default();
    // Another format is another source: both are open for a moment while one takes the other's place.
    let source = format!("{} {:?}", key.source, key.format);
    let [id, source] = [id, source.as_str()].map(|text| digest::of(text.as_bytes()));
    format!("{id}-{source}")
}

fn remove(dir: &std::path::Path) {
    if let Err(error) = std::fs::remove_dir_all(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a statement's input");
    }
}
