//! Topic rules: MQTT messages become records of the event store, and records MQTT messages, without
//! a statement.
//!
//! | from | to | kept |
//! | --- | --- | --- |
//! | `mqtt:FILTER` | `kafka:TOPIC` | topic, properties and user properties as headers; a key by a template |
//! | `kafka:TOPIC` | `mqtt:TOPIC` | those headers as properties; other headers that are texts as user properties |
//!
//! The target, and the key, are templates ([`template`]). [`carry`] says which header stands for
//! which property.
//!
//! # What is kept when something fails
//!
//! Into the store: PUBACK and PUBREC leave after the store's commit ([`mqtt::MessageSink::settled`]),
//! so that a publisher sends again what a crash took; a message may then stand twice. What waits for
//! the store is bounded, and publishers are held back at the bound. Out of the store: a consumer
//! group keeps the position, which is committed after the messages are with the server; after a
//! crash some come twice.
//!
//! # Loops
//!
//! A message carries the rules that it went through ([`mqtt::PATH`]), as `INSTALLATION/rule:NAME`. What
//! a rule took from some topic is never put back into that topic by another one: such a message is
//! dropped and counted. So two rules, or a ring of them, between the same topics are harmless. What a
//! program reads and writes anew without its headers starts anew.

mod carry;
mod config;
pub mod http;
mod intake;
mod observe;
mod outlet;
mod template;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Clock;
use mqtt::{Server, SubscriptionId};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use streams::EventStore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::file;
use crate::limits::RULES_MAX;
use crate::rules::carry::Carrier;
use crate::rules::config::{Taken, Way};
use crate::rules::intake::Intake;
use crate::rules::outlet::Outlet;

pub use config::TopicRule;

/// A failure of a rule's settings or of the file that keeps rules.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Settings that cannot work; the caller's fault.
    #[error("rule '{name}' cannot work: {problem}")]
    Invalid {
        /// The rule.
        name: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// There is one of this name.
    #[error("there is a rule '{0}' already: remove it first")]
    Exists(String),
    /// There is none of this name.
    #[error("there is no rule '{0}': thalweg mqtt rules list names them")]
    Unknown(String),
    /// It stands in the configuration.
    #[error("rule '{0}' stands in the configuration (fusion.rules): remove it there")]
    Configured(String),
    /// As many as there may be.
    #[error("there are {RULES_MAX} rules already: one rule with a wildcard does the work of many")]
    TooMany,
    /// The file of rules cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The event store could not prepare what the rule needs; retry.
    #[error("cannot prepare rule '{name}'")]
    Store {
        /// The rule.
        name: String,
        /// Why.
        #[source]
        source: streams::StreamsError,
    },
}

/// How a rule is.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RuleStatus {
    /// Its settings.
    #[serde(flatten)]
    pub rule: TopicRule,
    /// Whether it stands in the configuration.
    pub configured: bool,
    /// Why it does not get on, or the latest message that it refused; empty when all is well.
    pub problem: String,
    /// Messages or records that it took.
    pub taken_total: u64,
    /// Messages or records that are where they should be.
    pub passed_total: u64,
    /// Those that cannot be brought there: no legal topic, too large, expired.
    pub refused_total: u64,
    /// Those that had been there before.
    pub looped_total: u64,
    /// Those that wait for the store.
    pub waiting: u64,
}

/// The rules of one process.
pub struct Rules {
    store: Arc<dyn EventStore>,
    server: Server,
    clock: Arc<dyn Clock>,
    /// This installation in the paths of messages.
    id: Arc<str>,
    path: PathBuf,
    running: Mutex<BTreeMap<String, Running>>,
    ends: Arc<Ends>,
    /// Held by a change from reading to writing.
    changing: tokio::sync::Mutex<()>,
}

struct Running {
    is_configured: bool,
    rule: Arc<Rule>,
    /// Of a rule that takes from MQTT.
    intake: Option<(SubscriptionId, Arc<Intake>)>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What the parts of one rule share.
struct Rule {
    config: TopicRule,
    carrier: Carrier,
    ends: Arc<Ends>,
    problem: Mutex<String>,
    taken: AtomicU64,
    passed: AtomicU64,
    refused: AtomicU64,
    looped: AtomicU64,
}

/// From where each rule of this process takes, by name.
#[derive(Default)]
struct Ends(RwLock<HashMap<String, Taken>>);

impl Rules {
    /// Starts the rules of the configuration and those that were added, which are kept in `path`.
    /// `id` names this installation in the paths of messages. Call it within a tokio runtime, before
    /// clients are served.
    ///
    /// # Errors
    /// [`RuleError`] of the first rule that cannot work, or of the file.
    pub fn open(
        path: &Path,
        id: &str,
        configured: &[TopicRule],
        store: Arc<dyn EventStore>,
        server: Server,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Rules>, RuleError> {
        let kept: Vec<TopicRule> = file::read(path).map_err(|source| RuleError::File {
            path: path.to_owned(),
            source,
        })?;
        let rules = Arc::new(Rules {
            store,
            server,
            clock,
            id: id.into(),
            path: path.to_owned(),
            running: Mutex::default(),
            ends: Arc::default(),
            changing: tokio::sync::Mutex::default(),
        });
        for rule in configured {
            rules.start(rule.clone(), true)?;
        }
        for rule in kept {
            // The configuration's goes before an older one of the same name.
            if rules.running.lock().contains_key(&rule.name) {
                tracing::warn!(
                    rule = rule.name,
                    "a rule that was added is hidden by one of the configuration"
                );
                continue;
            }
            rules.start(rule, false)?;
        }
        Ok(rules)
    }

    /// Every rule, in the order of names.
    pub fn list(&self) -> Vec<RuleStatus> {
        self.running.lock().values().map(Running::status).collect()
    }

    /// Adds a rule and keeps it: durable, and at work, on return.
    ///
    /// # Errors
    /// [`RuleError`]; nothing was changed then.
    pub async fn add(&self, rule: TopicRule) -> Result<RuleStatus, RuleError> {
        let _alone = self.changing.lock().await;
        let name = rule.name.clone();
        let way = rule.way()?;
        if let Way::ToMqtt { topic, .. } = &way
            && !self.running.lock().contains_key(&name)
        {
            // A reader that starts with what comes from now on has to know where that is.
            let group = rule.group(&self.id);
            let prepared = outlet::prepare(&*self.store, topic, &group, rule.start).await;
            prepared.map_err(|source| RuleError::Store {
                name: name.clone(),
                source,
            })?;
        }
        self.start(rule, false)?;
        if let Err(error) = self.keep().await {
            self.stop(&name, true).await;
            return Err(error);
        }
        let running = self.running.lock();
        let status = running.get(&name).map(Running::status);
        status.ok_or(RuleError::Unknown(name))
    }

    /// Ends a rule that was added; messages that wait for the store are given up.
    ///
    /// # Errors
    /// [`RuleError`].
    pub async fn remove(&self, name: &str) -> Result<(), RuleError> {
        let _alone = self.changing.lock().await;
        match self.running.lock().get(name) {
            None => return Err(RuleError::Unknown(name.chars().take(80).collect())),
            Some(running) if running.is_configured => {
                return Err(RuleError::Configured(name.to_owned()));
            }
            Some(_) => {}
        }
        self.stop(name, true).await;
        self.keep().await
    }

    /// Ends all rules; what waits for the store is stored if that is quick, and else not
    /// acknowledged. Close them before the MQTT server and the event store.
    pub async fn close(&self) {
        let names: Vec<String> = self.running.lock().keys().cloned().collect();
        for name in names {
            self.stop(&name, false).await;
        }
    }

    fn start(&self, config: TopicRule, is_configured: bool) -> Result<(), RuleError> {
        let way = config.way()?;
        let name = config.name.clone();
        {
            let running = self.running.lock();
            if running.contains_key(&name) {
                return Err(RuleError::Exists(name));
            }
            if running.len() >= RULES_MAX {
                return Err(RuleError::TooMany);
            }
        }
        self.ends.0.write().insert(name.clone(), way.taken());
        let rule = Arc::new(Rule {
            carrier: Carrier::new(&self.id, &name),
            ends: self.ends.clone(),
            config,
            problem: Mutex::default(),
            taken: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            looped: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let (intake, task) = match way {
            Way::ToStore { filter, topic, key } => {
                let intake = Arc::new(Intake::new(rule.clone(), topic, key));
                let work = intake.clone().run(self.store.clone(), stop.clone());
                let task = tokio::spawn(work);
                let id = self.server.subscribe(filter, intake.clone());
                (Some((id, intake)), task)
            }
            Way::ToMqtt { topic, to } => {
                let outlet = Outlet {
                    group: rule.config.group(&self.id),
                    rule: rule.clone(),
                    topic,
                    to,
                    store: self.store.clone(),
                    server: self.server.clone(),
                    clock: self.clock.clone(),
                };
                (None, tokio::spawn(outlet.run(stop.clone())))
            }
        };
        let running = Running {
            is_configured,
            rule,
            intake,
            stop,
            task,
        };
        self.running.lock().insert(name, running);
        Ok(())
    }

    async fn stop(&self, name: &str, is_removed: bool) {
        let Some(running) = self.running.lock().remove(name) else {
            return;
        };
        if is_removed {
            self.ends.0.write().remove(name);
        }
        if let Some((id, _)) = running.intake.as_ref().filter(|_| is_removed) {
            // Publishers that wait for it go on.
            self.server.unsubscribe(*id);
        }
        if let Some((_, intake)) = &running.intake {
            intake.close();
        }
        running.stop.cancel();
        if let Err(error) = running.task.await {
            tracing::error!(rule = name, %error, "the task of a rule failed");
        }
    }

    /// Writes those that were added.
    async fn keep(&self) -> Result<(), RuleError> {
        let rules: Vec<TopicRule> = {
            let running = self.running.lock();
            let added = running.values().filter(|running| !running.is_configured);
            added.map(|running| running.rule.config.clone()).collect()
        };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || file::write(&path, &rules)).await;
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|source| RuleError::File {
            path: self.path.clone(),
            source,
        })
    }
}

impl Running {
    fn status(&self) -> RuleStatus {
        let rule = &self.rule;
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuleStatus {
            rule: rule.config.clone(),
            configured: self.is_configured,
            problem: rule.problem.lock().clone(),
            taken_total: total(&rule.taken),
            passed_total: total(&rule.passed),
            refused_total: total(&rule.refused),
            looped_total: total(&rule.looped),
            waiting: self
                .intake
                .as_ref()
                .map_or(0, |(_, intake)| intake.waiting()),
        }
    }
}

impl Rule {
    /// Whether a message that went through these rules came from the place where it would go now.
    fn is_echo(&self, path: &str, to: &dyn Fn(&Taken) -> bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let ends = self.ends.0.read();
        let mut passed = self.carrier.rules_of(path);
        self.carrier.is_worn_out(path) || passed.any(|name| ends.get(name).is_some_and(to))
    }

    fn count(&self, counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts messages that cannot be brought where they should go, and says why.
    fn refuse(&self, count: usize, why: &str) {
        self.count(&self.refused, count);
        self.say(why);
        tracing::debug!(rule = self.config.name, why, "a rule refused a message");
    }

    /// Says why the rule does not get on; nothing when it does.
    fn say(&self, why: &str) {
        let mut problem = self.problem.lock();
        problem.clear();
        problem.push_str(&why[..why.floor_char_boundary(PROBLEM_BYTES_MAX)]);
    }
}

/// Of a text that says what is wrong.
const PROBLEM_BYTES_MAX: usize = 512;
