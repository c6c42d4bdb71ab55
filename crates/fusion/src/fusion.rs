//! The engine: statements added, listed and removed while it runs, and started again with their
//! state when it opens.

mod functions;
mod handover;
mod inputs;
mod life;
mod listing;
mod polling;
mod prepare;
mod recovered;
mod sources;
mod types;

use functions::FunctionTable;
pub use functions::{NewFunctions, ShownFunctions};
pub use life::Explained;
pub use types::ShownType;
use types::TypeTable;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::Clock;
use journal::RealDisk;
use mqtt::{Bridges, Server};
use parking_lot::RwLock;
use streams::EventStore;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::chains::Chains;
use crate::config::FusionConfig;
use crate::error::FusionError;
use crate::fusion::listing::Statement;
use crate::fusion::sources::Sources;
use crate::input::InputLog;
use crate::lane::Lane;
use crate::lane::checkpoint::encode;
use crate::output::Output;
use crate::plan::{Sink, Source};
use crate::polls::Fetcher;
use crate::sinks::{Letters, Poster, Tables};
use crate::statement::{Definition, NewStatement, Origin, StatementInfo};
use crate::store::StatementStore;

/// The statement engine.
pub struct Fusion {
    config: FusionConfig,
    store: Arc<dyn EventStore>,
    around: Around,
    clock: Arc<dyn Clock>,
    chains: Arc<Chains>,
    journal: Arc<StatementStore>,
    /// The folder of durable statements' inputs.
    inputs: PathBuf,
    /// Those that are open.
    input_logs: parking_lot::Mutex<Vec<Weak<InputLog>>>,
    statements: RwLock<BTreeMap<String, Arc<Statement>>>,
    types: RwLock<TypeTable>,
    functions: RwLock<FunctionTable>,
    letters: Option<Arc<Letters>>,
    poster: Arc<Poster>,
    fetcher: Arc<Fetcher>,
    /// Held while a statement is added or removed.
    sources: Mutex<Sources>,
    reading: CancellationToken,
    writing: CancellationToken,
    /// Ends the task that writes dead letters, which writers may add to up to their end.
    lettering: CancellationToken,
    readers: TaskTracker,
    writers: TaskTracker,
    letterers: TaskTracker,
}

/// What statements reach beside the event store.
#[derive(Clone, Default)]
pub struct Around {
    /// The MQTT server.
    pub mqtt: Option<Server>,
    /// What leads from it to other brokers.
    pub bridges: Option<Arc<Bridges>>,
    /// The databases whose tables take rows.
    pub tables: Option<Arc<dyn Tables>>,
}

impl Fusion {
    /// Opens the engine in `dir` and starts every statement that is there, with its state.
    ///
    /// Call it within a tokio runtime. A statement that cannot be started (its MQTT server or its
    /// topic is gone) is listed as failed and harms nobody else; one whose event store is away
    /// starts when that is back.
    ///
    /// # Errors
    /// The folder cannot be opened or holds what this version does not know; the configuration
    /// cannot work.
    pub async fn open(
        dir: &Path,
        config: FusionConfig,
        store: Arc<dyn EventStore>,
        mqtt: Option<Server>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Fusion>, FusionError> {
        let around = Around {
            mqtt,
            ..Around::default()
        };
        Fusion::open_with(dir, config, store, around, clock).await
    }

    /// As [`Fusion::open`], with all that there is around it.
    ///
    /// # Errors
    /// As [`Fusion::open`].
    pub async fn open_with(
        dir: &Path,
        config: FusionConfig,
        store: Arc<dyn EventStore>,
        around: Around,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Fusion>, FusionError> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(FusionError::Refused(problems.join("; ")));
        }
        let (journal, recovered) = StatementStore::open(Arc::new(RealDisk), dir)?;
        let letters = letters_of(&config, around.mqtt.is_some());
        let types = RwLock::new(TypeTable::open(dir, config.types.clone())?);
        let functions = RwLock::new(FunctionTable::open(dir, &config.functions)?);
        let fusion = Arc::new(Fusion {
            config,
            store,
            around,
            clock,
            chains: Arc::default(),
            journal: Arc::new(journal),
            inputs: dir.join("inputs"),
            input_logs: parking_lot::Mutex::default(),
            statements: RwLock::default(),
            types,
            functions,
            letters,
            poster: Arc::default(),
            fetcher: Arc::default(),
            sources: Mutex::default(),
            reading: CancellationToken::new(),
            writing: CancellationToken::new(),
            lettering: CancellationToken::new(),
            readers: TaskTracker::new(),
            writers: TaskTracker::new(),
            letterers: TaskTracker::new(),
        });
        if let Some(letters) = &fusion.letters {
            let (mqtt, store) = (fusion.around.mqtt.clone(), fusion.store.clone());
            let stop = fusion.lettering.clone();
            fusion
                .letterers
                .spawn(letters.clone().run(mqtt, store, stop));
        }
        fusion.start_again(recovered).await;
        Ok(fusion)
    }

    /// Adds a statement; it is durable and takes events when this returns.
    ///
    /// # Errors
    /// [`FusionError::Text`] points at what does not compile; `Refused`, `NameTaken` and `Limit`
    /// say what to change; others are the engine's or its stores' own.
    pub async fn add(&self, new: NewStatement) -> Result<StatementInfo, FusionError> {
        self.add_from(new, Origin::Api, false).await
    }

    /// As [`Fusion::add`], for one that came another way, and may begin paused.
    pub(crate) async fn add_from(
        &self,
        new: NewStatement,
        origin: Origin,
        is_paused: bool,
    ) -> Result<StatementInfo, FusionError> {
        let mut sources = self.sources.lock().await;
        if sources.is_closed {
            return Err(FusionError::Closed);
        }
        let definition = Definition {
            origin,
            is_paused,
            ..self.define(new)?
        };
        let (definition, plan) = self.compiled(definition)?;
        let prepared = self
            .prepare(definition.clone(), Arc::new(plan), None)
            .await?;
        let checkpoint = {
            let state = prepared.lane.state.lock();
            encode(
                &state.machine,
                (0, 0),
                &state.positions,
                prepared.sequence,
                &Output::default(),
            )
        };
        self.forget_input(&prepared.key);
        self.journal.add(&definition, &checkpoint).await?;
        let id = definition.id.clone();
        self.start(&mut sources, vec![prepared])?;
        tracing::info!(statement = definition.name, id, "a statement was added");
        self.statement(&id)
    }

    /// Removes a statement, by id or name, with its state; rows on their way are given up.
    ///
    /// # Errors
    /// `Unknown`; `Refused` for a named window or table that other statements read or change; or the
    /// journal failed: then it is stopped, but may be back after a restart.
    pub async fn remove(&self, id_or_name: &str) -> Result<(), FusionError> {
        let mut sources = self.sources.lock().await;
        let statement = self.find(id_or_name)?;
        if let Ok(running) = &statement.run {
            self.check_unused(&running.lane)?;
            self.chains.forget(&running.lane);
            running.lane.removed.cancel();
            self.leave(&mut sources, running);
            self.forget_input(&running.key);
        }
        let id = &statement.definition.id;
        self.let_publishers_go(&mut sources, id);
        self.statements.write().remove(id);
        self.set_gauge();
        self.journal.remove(id).await?;
        tracing::info!(
            statement = statement.definition.name,
            id,
            "a statement was removed"
        );
        Ok(())
    }

    /// Runs an EPL text once over named windows and tables and gives the rows, as JSON.
    ///
    /// # Errors
    /// [`FusionError::Text`] points at what does not compile; `Limit` where the answer is too long
    /// or a window is full: what it changed up to there stays; `Closed`.
    pub async fn query(&self, text: &str) -> Result<Vec<serde_json::Value>, FusionError> {
        let _gate = self.chains.entered().await;
        if self.writing.is_cancelled() {
            // Nothing would keep what it changes.
            return Err(FusionError::Closed);
        }
        let kept = self.chains.kept();
        let done = crate::demand::once(text, &self.catalog(), &kept, self.clock.now());
        // Also what it changed before it met a bound.
        for kept in kept.values().filter(|kept| kept.has_changes()) {
            self.chains.tell_of(kept);
        }
        let out = done?;
        let rows = out.texts().zip(&out.rows);
        // What an update puts in a row's place is told; what was there is not asked for.
        let new = rows.filter(|(_, row)| !row.is_old);
        Ok(new
            .filter_map(|(text, _)| serde_json::from_slice(text).ok())
            .collect())
    }

    /// What the engine was configured with.
    pub fn config(&self) -> &FusionConfig {
        &self.config
    }

    /// Whether a bridge of this name leads to another broker.
    pub(crate) fn has_bridge(&self, name: &str) -> bool {
        self.around
            .bridges
            .as_ref()
            .is_some_and(|bridges| bridges.has(name))
    }

    /// The time by the engine's clock.
    pub(crate) fn now(&self) -> base::UnixMillis {
        self.clock.now()
    }

    /// One statement, by id or name.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn statement(&self, id_or_name: &str) -> Result<StatementInfo, FusionError> {
        self.find(id_or_name).map(|statement| statement.info())
    }

    /// All statements, in the order they were added.
    pub fn statements(&self) -> Vec<StatementInfo> {
        let statements: Vec<Arc<Statement>> = self.statements.read().values().cloned().collect();
        let mut infos: Vec<StatementInfo> = statements
            .iter()
            .map(|statement| statement.info())
            .collect();
        infos.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        infos
    }

    /// Refuses to let a named window or table go that others read or change.
    fn check_unused(&self, lane: &Lane) -> Result<(), FusionError> {
        let created = lane.state.lock().machine.created().cloned();
        let Some(kept) = created else { return Ok(()) };
        let statements = self.statements.read();
        let mut users = statements.values().filter(|known| {
            known.run.as_ref().is_ok_and(|running| {
                let sources = running.lane.plan.sources();
                let is_it = |source: &&Source| matches!(source, Source::Stream(name) if name == kept.name());
                !std::ptr::eq(&*running.lane, lane) && sources.iter().any(is_it)
            })
        });
        match users.next() {
            None => Ok(()),
            Some(user) => Err(FusionError::Refused(format!(
                "the statement '{}' reads or changes {}: remove that first",
                user.definition.name,
                kept.name()
            ))),
        }
    }

    /// Stops the sources, lets the sinks take what waits, keeps a last checkpoint of every
    /// statement, and releases the folder. Close it before the MQTT server and the event store.
    pub async fn close(&self) {
        {
            let mut sources = self.sources.lock().await;
            sources.is_closed = true;
            for (_, open) in sources.open.drain() {
                self.stop(&open);
                // What a publisher is just giving it would be in nobody's last checkpoint.
                open.feed.hold();
            }
        }
        self.reading.cancel();
        self.readers.close();
        self.readers.wait().await;
        {
            // From here on nothing goes along a chain: the last checkpoints tell of one instant.
            let _gate = self.chains.enter();
            self.writing.cancel();
        }
        self.writers.close();
        self.writers.wait().await;
        self.lettering.cancel();
        self.letterers.close();
        self.letterers.wait().await;
        self.journal.close().await;
    }
}

/// Where dead letters go, when there is such a place.
fn letters_of(config: &FusionConfig, has_mqtt: bool) -> Option<Arc<Letters>> {
    let target = config.errors.sink().ok().flatten()?;
    let is_there = has_mqtt || !matches!(target, Sink::Mqtt(_));
    is_there.then(|| Arc::new(Letters::new(target, config.errors.per_second)))
}
